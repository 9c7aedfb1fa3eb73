//! The memory for bodies that the stores of one process share: recently used blocks, and contexts of the compressor.

use std::{
    collections::HashMap,
    fmt, io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};
use zstd::{
    bulk::{Compressor, Decompressor},
    zstd_safe::{self, CParameter},
};

/// Zstandard's fastest level that is not negative.
const LEVEL: i32 = 1;
/// Idle contexts of each kind. More threads at a time create their own.
const CONTEXTS_MAX: usize = 4;
/// Bytes counted for a block, in addition to its bodies.
const ENTRY_BYTES: usize = 64;

/// A block: the number of its file in this process, and its position.
type BlockId = (u64, u64);
/// A block's bodies.
pub(super) type Bodies = Arc<Vec<u8>>;
type Map = HashMap<BlockId, Bodies, foldhash::fast::RandomState>;

/// Blocks and contexts in memory.
pub(in super::super) struct BodyMemory {
    cache: Mutex<BlockCache>,
    compressors: Mutex<Vec<Compressor<'static>>>,
    decompressors: Mutex<Vec<Decompressor<'static>>>,
    files: AtomicU64,
}

impl fmt::Debug for BodyMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BodyMemory")
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl BodyMemory {
    /// `bytes` for blocks.
    pub(in super::super) fn new(bytes: usize) -> Self {
        let cache = BlockCache { generation_max: bytes / 2, ..BlockCache::default() };
        let (compressors, decompressors, files) = Default::default();
        Self { cache: Mutex::new(cache), compressors, decompressors, files }
    }

    /// A number for a file, unique in this process.
    pub(super) fn file_number(&self) -> u64 {
        self.files.fetch_add(1, Ordering::Relaxed)
    }

    /// A block's bodies, if they are in memory.
    pub(super) fn cached(&self, block: BlockId) -> Option<Bodies> {
        lock(&self.cache).get(block)
    }

    /// Keeps a block's bodies.
    pub(super) fn cache(&self, block: BlockId, bodies: Bodies) {
        lock(&self.cache).add(block, bodies);
    }

    /// Appends the frame of a block's bodies.
    pub(super) fn compress(&self, bodies: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        let compressor = lock(&self.compressors).pop();
        let mut compressor = match compressor {
            Some(compressor) => compressor,
            None => {
                let mut new = Compressor::new(LEVEL)?;
                new.set_parameter(CParameter::ChecksumFlag(true))?;
                new
            }
        };
        let from = out.len();
        out.resize(from + zstd_safe::compress_bound(bodies.len()), 0);
        let written = compressor.compress_to_buffer(bodies, &mut out[from..])?;
        out.truncate(from + written);
        put_back(&self.compressors, compressor);
        Ok(())
    }

    /// The bodies of a frame. Errors if the frame is damaged or does not have `length` bytes of bodies.
    pub(super) fn decompress(&self, frame: &[u8], length: usize) -> io::Result<Bodies> {
        let decompressor = lock(&self.decompressors).pop();
        let mut decompressor = decompressor.map_or_else(Decompressor::new, Ok)?;
        let bodies = decompressor.decompress(frame, length)?;
        put_back(&self.decompressors, decompressor);
        if bodies.len() != length {
            return Err(io::Error::other(format!("{} bytes instead of {length}", bodies.len())));
        }
        Ok(Arc::new(bodies))
    }
}

fn put_back<T>(contexts: &Mutex<Vec<T>>, context: T) {
    let mut contexts = lock(contexts);
    if contexts.len() < CONTEXTS_MAX {
        contexts.push(context);
    }
}

/// Blocks in two generations: a block stays until about `generation_max` bytes of other blocks were used after it.
#[derive(Default)]
struct BlockCache {
    young: Map,
    old: Map,
    /// Bytes of the young generation, and their limit.
    bytes: usize,
    generation_max: usize,
}

impl BlockCache {
    fn get(&mut self, block: BlockId) -> Option<Bodies> {
        if let Some(bodies) = self.young.get(&block) {
            return Some(bodies.clone());
        }
        let bodies = self.old.remove(&block)?;
        self.add(block, bodies.clone());
        Some(bodies)
    }

    fn add(&mut self, block: BlockId, bodies: Bodies) {
        let bytes = bodies.len() + ENTRY_BYTES;
        // A larger block would empty the cache.
        if bytes > self.generation_max / 4 {
            return;
        }
        if self.bytes + bytes > self.generation_max {
            self.old = std::mem::take(&mut self.young);
            self.bytes = 0;
        }
        self.bytes += bytes;
        self.young.insert(block, bodies);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_bounded_and_keeps_requested_blocks() {
        let mut cache = BlockCache { generation_max: 64 << 10, ..BlockCache::default() };
        let block = Arc::new(vec![7; 4 << 10]);
        cache.add((0, 0), block.clone());
        for position in 1..200 {
            cache.add((0, position), block.clone());
            assert!(cache.get((0, 0)).is_some(), "{position}");
            assert!(cache.young.len() + cache.old.len() <= 2 * (64 << 10) / block.len());
        }
        assert!(cache.get((0, 1)).is_none() && cache.get((0, 199)).is_some());
        cache.add((1, 0), Arc::new(vec![7; 32 << 10]));
        assert!(cache.get((1, 0)).is_none(), "it is too large");
    }
}
