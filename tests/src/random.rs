//! Seeded randomness: the seed reproduces a failure.

use std::{
    env,
    hash::{BuildHasher, RandomState},
};

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// `RUNLOG_SEED`, or a random seed.
    pub fn seed() -> u64 {
        let named = env::var("RUNLOG_SEED").ok().and_then(|seed| seed.parse().ok());
        // The keys of the hasher are random; the standard library has no other source.
        named.unwrap_or_else(|| RandomState::new().hash_one(0))
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from `from` (inclusive) to `to` (exclusive).
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.number() % (to - from)
    }

    /// Puts `items` in another order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let at = usize::try_from(self.number() % (last as u64 + 1)).unwrap_or(0);
            items.swap(at, last);
        }
    }
}
