//! Seeded random numbers. A child generator is split from its parent when the child is built, so that adding a draw in
//! one part never changes what another part sees.

use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A seeded generator: the same seed gives the same numbers for ever, on every machine. Not for secrets.
#[derive(Clone, Debug)]
pub struct Rng(Xoshiro256PlusPlus);

impl Rng {
    /// The generator of `seed`.
    pub fn new(seed: u64) -> Rng {
        Rng(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// A generator of its own for a part, seeded from this one.
    pub fn split(&mut self) -> Rng {
        Rng::new(self.next())
    }

    /// The next 64 random bits.
    #[expect(clippy::should_implement_trait, reason = "a generator is no iterator: it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`.
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "nothing is below 0");
        // Multiply-shift; its bias of bound/2^64 is far below what a test could see.
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True once in `one_in` draws on average.
    pub fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }

    /// One of `items`.
    ///
    /// # Panics
    /// If there is none.
    pub fn choose<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }

    /// Fills `bytes` with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_for_ever() {
        let mut rng = Rng::new(42);
        assert_eq!([rng.next(), rng.next()], [0xd076_4d4f_4476_689f, 0x519e_4174_576f_3791]);
    }

    #[test]
    fn below_stays_below() {
        let mut rng = Rng::new(1);
        assert!((0..10_000).all(|_| rng.below(7) < 7));
    }
}
