//! Memory that the stores of one process share, and when one of them switches to a new memtable.
//!
//! Left alone, RocksDB switches memtables itself, and with them the write-ahead log, while the end of the old log may
//! not be on disk yet. If a power cut then keeps the new log but loses the end of the old one, no recovery mode notices
//! the gap, and the store would answer as if it were complete. So a store switches a little earlier than RocksDB would,
//! after syncing the old log ([`super::Store`]). This module only says when.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// The size at which RocksDB counts a memtable as full.
pub(super) const WRITE_BUFFER_BYTES: usize = 16 << 20;

/// The size at which a store switches to a new memtable. A single commit may exceed both: RocksDB switches at the next
/// write at the earliest, and the store switches before that write.
const FULL_BYTES: usize = WRITE_BUFFER_BYTES / 8 * 7;

/// From this size on, nothing is written before the switch: RocksDB may switch from 15.6 MiB on
/// (`MemTable::ShouldFlushNow`, which allows for the last block).
const LAST_BYTES: usize = WRITE_BUFFER_BYTES / 16 * 15;

/// The fraction of all memtables' budget below which a single memtable is left as it is. Without it, many idle
/// memtables, each with a bloom filter and a first block, would make the others switch at every commit.
const SMALL_PART: usize = 32;

/// The cache's shards, as a power of two. A block larger than its shard is never cached, so there are few shards: one
/// of a small budget still holds a memtable's charge and blocks of every kind.
const SHARD_BITS: i32 = 4;

/// One value of RocksDB's memory, shared by every partition: a block cache, and memtables charged to it.
#[derive(Clone)]
pub struct Budget {
    pub(super) cache: rocksdb::Cache,
    pub(super) buffers: rocksdb::WriteBufferManager,
    /// The memtables' share, bytes.
    memtables_max: usize,
    /// Bytes of all active memtables.
    active: Arc<AtomicUsize>,
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Budget({} bytes of cache in use)", self.cache.get_usage())
    }
}

impl Budget {
    /// `bytes` for cache and memtables together. Memtables get about half; where there are many, each gets a 64th of
    /// `bytes`.
    pub fn new(bytes: usize) -> Self {
        let mut options = rocksdb::LruCacheOptions::default();
        options.set_capacity(bytes);
        options.set_num_shard_bits(SHARD_BITS);
        let cache = rocksdb::Cache::new_lru_cache_opts(&options);
        // No limit: the manager charges memtables to the cache and never switches them.
        let buffers = rocksdb::WriteBufferManager::new_write_buffer_manager_with_cache(0, false, cache.clone());
        Self { cache, buffers, memtables_max: bytes / 2, active: Arc::default() }
    }

    /// Bytes in use: of the cache, memtables included, and of the memtables alone.
    pub(crate) fn in_use(&self) -> (usize, usize) {
        (self.cache.get_usage(), self.buffers.get_usage())
    }

    /// An empty memtable.
    pub(super) fn share(&self) -> Share {
        Share { budget: self.clone(), bytes: 0 }
    }
}

/// A store's active memtable.
#[derive(Debug)]
pub(super) struct Share {
    budget: Budget,
    /// Its bytes; 0 if nothing was written to it.
    bytes: usize,
}

impl Share {
    /// Sets its bytes; 0 for a new memtable.
    pub(super) fn set(&mut self, bytes: usize) {
        // One atomic step, which may be a subtraction: others read the sum.
        self.budget.active.fetch_add(bytes.wrapping_sub(self.bytes), Ordering::Relaxed);
        self.bytes = bytes;
    }

    /// Whether it is full.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= FULL_BYTES
    }

    /// Whether nothing more may be written to it.
    pub(super) fn is_past_full(&self) -> bool {
        self.bytes >= LAST_BYTES
    }

    /// Whether the memtables together are full, and this one is large enough to help. The fractions are those of
    /// RocksDB's `WriteBufferManager::ShouldFlush`: while more than half is already being flushed, flushing more does
    /// not help.
    pub(super) fn all_are_full(&self) -> bool {
        let (max, active) = (self.budget.memtables_max, self.budget.active.load(Ordering::Relaxed));
        let all_full = active > max / 8 * 7 || active >= max / 2 && self.budget.buffers.get_usage() >= max;
        all_full && self.bytes >= max / SMALL_PART
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}
