//! Memory that the stores of one process share, and when one of them turns to a new memtable.
//!
//! RocksDB would turn to one by itself, and to a new write-ahead log with it, while the end of the old one is not on
//! disk yet. A power cut that keeps the new log and takes the end of the old one leaves a hole that no recovery mode
//! notices: what was read back without it would be taken for everything. So stores turn themselves, a little earlier,
//! and have the old log on disk first ([`super::Store`]); here is only told when.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// At this size RocksDB takes a memtable for full.
pub(super) const WRITE_BUFFER_BYTES: usize = 16 << 20;

/// At this size a store turns to a new one. What a single commit adds may go beyond both: RocksDB turns at the next
/// write at the earliest, and the store in front of that.
const FULL_BYTES: usize = WRITE_BUFFER_BYTES / 8 * 7;

/// From this size on nothing is written before it has: RocksDB may turn from 15.6 MiB on
/// (`MemTable::ShouldFlushNow`, which allows for the last block).
const LAST_BYTES: usize = WRITE_BUFFER_BYTES / 16 * 15;

/// Of what all memtables may have, the part below which one of them is left as it is: else many idle ones, each of
/// which has a bloom filter and a first block, would have the others turn at every commit.
const SMALL_PART: usize = 32;

/// The cache's shards, as a power of two. What is larger than its shard is never kept: few, so that a shard of a small
/// budget still holds a memtable's charge and blocks of every sort.
const SHARD_BITS: i32 = 4;

/// One value of RocksDB's memory, shared by every partition: a block cache, and memtables charged to it.
#[derive(Clone)]
pub struct Budget {
    pub(super) cache: rocksdb::Cache,
    pub(super) buffers: rocksdb::WriteBufferManager,
    /// What memtables may have, bytes.
    memtables_max: usize,
    /// Bytes of all memtables that are written to.
    active: Arc<AtomicUsize>,
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Budget({} bytes of cache in use)", self.cache.get_usage())
    }
}

impl Budget {
    /// `bytes` for cache and memtables together. Memtables take about half, and where there are many, a 64th of `bytes`
    /// each.
    pub fn new(bytes: usize) -> Self {
        let mut options = rocksdb::LruCacheOptions::default();
        options.set_capacity(bytes);
        options.set_num_shard_bits(SHARD_BITS);
        let cache = rocksdb::Cache::new_lru_cache_opts(&options);
        // No limit: it charges memtables to the cache, and does not turn to new ones.
        let buffers = rocksdb::WriteBufferManager::new_write_buffer_manager_with_cache(0, false, cache.clone());
        Self { cache, buffers, memtables_max: bytes / 2, active: Arc::default() }
    }

    /// Bytes that are in use: of the cache, which includes the memtables, and of the memtables alone.
    pub(crate) fn in_use(&self) -> (usize, usize) {
        (self.cache.get_usage(), self.buffers.get_usage())
    }

    /// Nothing yet.
    pub(super) fn share(&self) -> Share {
        Share { budget: self.clone(), bytes: 0 }
    }
}

/// The memtable that a store writes to.
#[derive(Debug)]
pub(super) struct Share {
    budget: Budget,
    /// Its bytes, 0 where nothing was written to it.
    bytes: usize,
}

impl Share {
    /// It has so many bytes now; 0 for a new one.
    pub(super) fn set(&mut self, bytes: usize) {
        // One step, which may well be a subtraction: others read the sum.
        self.budget.active.fetch_add(bytes.wrapping_sub(self.bytes), Ordering::Relaxed);
        self.bytes = bytes;
    }

    /// Whether it is full.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= FULL_BYTES
    }

    /// Whether it must not be written to any more.
    pub(super) fn is_past_full(&self) -> bool {
        self.bytes >= LAST_BYTES
    }

    /// Whether all together are, and this one is not too small to help. The shares are RocksDB's own, of its
    /// `WriteBufferManager::ShouldFlush`: once more than half is on its way to disk, more of it would not help.
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
