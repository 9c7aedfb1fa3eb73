//! Reproducible random numbers. All randomness of the demo comes from one seed.

/// `SplitMix64`, from Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators" (2014).
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

impl Dice {
    /// Creates the random numbers of stream `stream` of `seed`.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        Self(Self(seed).throw() ^ Self(stream).throw().rotate_left(32))
    }

    /// Creates the random numbers for `text`, whose hash (FNV-1a, 64 bits) is the seed.
    pub(crate) fn from_text(text: &str) -> Self {
        let hash = text
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        Self(hash)
    }

    fn throw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN_GAMMA);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `sides`, which must not be 0.
    pub(crate) fn below(&mut self, sides: u32) -> u32 {
        // The high bits of a 32 by 32 bit product: the remainder is below 2^32.
        (((self.throw() >> 32) * u64::from(sides)) >> 32) as u32
    }

    /// Returns one of `items`, which must not be empty.
    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u32) as usize]
    }

    /// Shuffles the items (Fisher and Yates).
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u32 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_throws_the_same_and_streams_differ() {
        let throws = |seed, stream| {
            let mut dice = Dice::new(seed, stream);
            (0..20).map(|_| dice.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(throws(1, 2), throws(1, 2));
        assert_ne!(throws(1, 2), throws(2, 1));
        assert!(throws(7, 7).iter().all(|throw| *throw < 1000));
    }
}
