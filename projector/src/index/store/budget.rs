//! The memory that the stores of one process share: a block cache, and memtables charged to it.

use super::bodies::BodyMemory;
use std::{fmt, sync::Arc};

/// The largest memtable of runs. With the memtables of the two small column families, RocksDB resumes on a full disk when
/// one and a half times this size is free.
const MEMTABLE_BYTES_MAX: usize = 16 << 20;
/// The smallest limit of a memtable's size.
const MEMTABLE_BYTES_MIN: usize = 1 << 20;

/// The binary logarithm of the number of the cache's shards. There are few, because a block larger than its shard is never
/// cached. Even with a small budget, a shard holds a memtable's charge and blocks of every kind.
const SHARD_BITS: i32 = 4;

/// The part of the memory that caches blocks of bodies.
const BODIES_PART: usize = 8;

/// The memory of the stores of one process: RocksDB's block cache, memtables charged to it, and blocks of bodies.
#[derive(Clone)]
pub struct Budget {
    pub(super) cache: rocksdb::Cache,
    pub(super) buffers: rocksdb::WriteBufferManager,
    pub(super) bodies: Arc<BodyMemory>,
    memtables_max: usize,
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Budget({} bytes of cache in use)", self.cache.get_usage())
    }
}

impl Budget {
    /// `bytes` for caches and memtables together. Memtables get half.
    pub fn new(bytes: usize) -> Self {
        let mut options = rocksdb::LruCacheOptions::default();
        let body_bytes = bytes / BODIES_PART;
        options.set_capacity(bytes - body_bytes);
        options.set_num_shard_bits(SHARD_BITS);
        let cache = rocksdb::Cache::new_lru_cache_opts(&options);
        // No limit: the manager charges memtables to the cache. Which store flushes is decided by `flush`, because the
        // manager would flush the memtable of the store that writes next, however small it is.
        let buffers = rocksdb::WriteBufferManager::new_write_buffer_manager_with_cache(0, false, cache.clone());
        Self { cache, buffers, bodies: Arc::new(BodyMemory::new(body_bytes)), memtables_max: bytes / 2 }
    }

    /// Bytes in use: of the cache, memtables included, and of the memtables alone.
    pub(crate) fn in_use(&self) -> (usize, usize) {
        (self.cache.get_usage(), self.buffers.get_usage())
    }

    /// The memtables' share, bytes.
    pub(crate) fn memtables_max(&self) -> usize {
        self.memtables_max
    }

    /// The size at which RocksDB itself flushes a memtable.
    pub(super) fn memtable_bytes(&self) -> usize {
        self.memtables_max.clamp(MEMTABLE_BYTES_MIN, MEMTABLE_BYTES_MAX)
    }
}
