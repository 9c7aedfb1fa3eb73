//! Seeded randomness: SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014), the same on
//! every platform.

/// A sequence of numbers that its seed determines.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Self(seed);
        // Neighbouring seeds are neighbouring states, so the first number is discarded.
        random.number();
        random
    }

    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0 if `end` is 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.number() % end }
    }

    /// A number from `from` to `to`, both inclusive.
    pub(crate) fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from + 1)
    }

    /// True in `share` of a hundred cases.
    pub(crate) fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
    }

    /// One of the items; `None` if there are none.
    pub(crate) fn pick<T: Clone>(&mut self, items: &[T]) -> Option<T> {
        let at = usize::try_from(self.below(items.len() as u64)).ok()?;
        items.get(at).cloned()
    }

    /// One of the items, each with the probability of its weight.
    pub(crate) fn weigh<T: Copy>(&mut self, first: T, items: &[(u64, T)]) -> T {
        let mut at = self.below(items.iter().map(|(weight, _)| weight).sum());
        for (weight, item) in items {
            if at < *weight {
                return *item;
            }
            at -= weight;
        }
        first
    }
}
