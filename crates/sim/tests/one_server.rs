//! A limited number of seeds: `cargo xtask sim one_server --count N` runs more.

use std::fmt::Write;

use frieze_sim::{ServerPlan, run_one_server};

/// Seeds that every run of the tests plays, and one more range for every thread of the test runner.
const SEEDS: u64 = 40;

fn play(seeds: std::ops::Range<u64>) {
    let mut failures = String::new();
    for seed in seeds {
        let outcome = run_one_server(&ServerPlan::of_seed(seed));
        assert!(outcome.counts.operations >= 300 || outcome.violation.is_some(), "a seed is at least 300 operations");
        assert!(outcome.counts.faults >= 5 || outcome.violation.is_some(), "and 5 faults");
        if let Some(failure) = outcome.failure(seed) {
            writeln!(failures, "{failure}").expect("strings do not fail");
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

#[test]
fn one_server_keeps_its_promises_under_the_first_seeds() {
    play(0..SEEDS);
}

#[test]
fn one_server_keeps_its_promises_under_seeds_that_once_broke_them() {
    for seed in [
        7, 8, 10, 23, 25, 28, 34, 36, 42, 43, 52, 69, 94, 0x8f, 0x2ce, 0x6d, 0x1614, 9, 0x58, 0xa0, 0x376, 0x418,
        0xf42e9, 0xf4352, 0xf588c, 0xf58d7, 0x40444, 0x41295, 0x413ea, 0x41da1, 0x42483, 0x50355, 0x609aa, 0x710451,
        0x800518, 0x801522, 0x900107, 0xf8eed, 0x5bc145, 0x1313abb,
    ] {
        play(seed..seed + 1);
    }
}

#[test]
fn one_server_keeps_its_promises_under_further_seeds() {
    play(0x5eed..0x5eed + SEEDS);
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in [1, 2, 3] {
        let plan = ServerPlan::of_seed(seed);
        let (first, second) = (run_one_server(&plan), run_one_server(&plan));
        assert_eq!(first.trace_hash, second.trace_hash, "seed {seed}");
        assert_eq!(first.counts, second.counts);
    }
    assert_ne!(run_one_server(&ServerPlan::of_seed(1)).trace_hash, run_one_server(&ServerPlan::of_seed(2)).trace_hash);
}
