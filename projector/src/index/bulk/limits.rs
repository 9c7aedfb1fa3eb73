//! The limits of bulk builds.

/// Limits of bulk builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The least number of offsets for a bulk build. Fewer records are applied one by one.
    pub offsets_min: u64,
    /// Memory for sorting and folding, bytes, of all partitions together.
    pub memory_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { offsets_min: 20_000, memory_bytes: 256 << 20 }
    }
}
