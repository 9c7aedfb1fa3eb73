//! Seeded randomness: SplitMix64, one sequence for each purpose, so that removing a part of a plan does not change
//! the rest.

/// A sequence of numbers.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// The sequence of a seed for a purpose.
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        let mut dice = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ purpose.wrapping_mul(0xd1b5_4a32_d192_ed03));
        dice.number();
        dice
    }

    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from `from` to `to`, both inclusive.
    pub(crate) fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.number() % (to - from + 1)
    }

    /// True in `share` of a hundred cases.
    pub(crate) fn percent(&mut self, share: u64) -> bool {
        self.number() % 100 < share
    }

    /// A delay in milliseconds: mostly short, sometimes long.
    pub(crate) fn delay(&mut self) -> u64 {
        match self.number() % 20 {
            0 => self.between(100, 1500),
            1..=4 => self.between(20, 100),
            _ => self.between(0, 20),
        }
    }
}
