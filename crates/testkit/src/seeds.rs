//! Random histories under a seed: which seeds are played, and the shortest beginning of one that fails.
//!
//! `SEED` is the first seed and `SEEDS` their number; `STEPS` is the number of steps of each. A failure names all
//! three.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Seeds, and the number of steps of the history that each of them gives.
#[derive(Clone, Copy, Debug)]
pub struct SeedPlan {
    /// The first seed.
    pub first: u64,
    /// Number of seeds.
    pub count: u64,
    /// Steps of each history.
    pub steps: usize,
}

impl SeedPlan {
    /// These seeds and steps, unless the environment sets others.
    pub fn new(first: u64, count: u64, steps: usize) -> SeedPlan {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        SeedPlan {
            first: number("SEED").unwrap_or(first),
            count: number("SEEDS").unwrap_or(count),
            steps: number("STEPS").map_or(steps, |steps| steps as usize),
        }
    }

    /// Plays every seed: `play` runs a history of so many steps. Returns what it returned, in the order of the seeds.
    ///
    /// # Panics
    /// If `play` panics. The shortest beginning of that history that still fails is played last, so that the last
    /// message in the output is about it.
    pub fn play<T>(self, play: impl Fn(u64, usize) -> T) -> Vec<T> {
        let SeedPlan { first, count, steps } = self;
        (first..first + count).map(|seed| self.play_seed(seed, steps, &play)).collect()
    }

    fn play_seed<T>(self, seed: u64, steps: usize, play: &impl Fn(u64, usize) -> T) -> T {
        let fails = |steps| catch_unwind(AssertUnwindSafe(|| play(seed, steps))).err();
        let failure = match catch_unwind(AssertUnwindSafe(|| play(seed, steps))) {
            Ok(played) => return played,
            Err(failure) => failure,
        };
        let shortest = shortest_failing(steps, |steps| fails(steps).is_some());
        eprintln!("seed {seed} fails after {shortest} of {steps} steps; SEED={seed} SEEDS=1 STEPS={shortest} plays it");
        std::panic::resume_unwind(fails(shortest).unwrap_or(failure));
    }

    /// True if the environment has not made the plan smaller, so that counts over all seeds are meaningful.
    pub fn is_whole(self, count: u64, steps: usize) -> bool {
        self.count >= count && self.steps >= steps
    }
}

/// The least number of steps found at which a history fails that fails at `steps`.
///
/// It halves the interval, so that it plays about log2(steps) histories. A failure that a longer history mends again is
/// not noticed; the result fails in any case.
fn shortest_failing(steps: usize, fails: impl Fn(usize) -> bool) -> usize {
    let (mut passes, mut found) = (0, steps);
    if fails(0) {
        return 0;
    }
    while passes + 1 < found {
        let middle = passes + (found - passes) / 2;
        if fails(middle) {
            found = middle;
        } else {
            passes = middle;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_failing_beginning_is_found() {
        for first in 0..=64 {
            assert_eq!(shortest_failing(64, |steps| steps >= first), first, "fails from {first} steps on");
        }
    }

    #[test]
    fn every_seed_is_played_and_a_failure_ends_the_play() {
        let plan = SeedPlan { first: 3, count: 4, steps: 10 };
        assert_eq!(plan.play(|seed, steps| seed * steps as u64), [30, 40, 50, 60]);
        let played = catch_unwind(|| plan.play(|seed, steps| assert!(seed != 5 || steps < 7, "step 7 of seed {seed}")));
        let message = played.expect_err("seed 5 fails");
        assert_eq!(message.downcast_ref::<String>().map(String::as_str), Some("step 7 of seed 5"));
    }
}
