//! Payloads by one-sided transfers: seeds that pass, runs that repeat, and every broken rule noticed. `cargo xtask sim
//! fabric --count N` runs more.

use std::fmt::Write;

use frieze_sim::{FabricBreak, FabricCounts, FabricPlan, run_fabric};

#[test]
fn transfers_keep_their_promises_under_the_first_seeds() {
    let (mut failures, mut all) = (String::new(), Vec::new());
    for seed in 0..2000 {
        let outcome = run_fabric(&FabricPlan::of_seed(seed));
        all.push(outcome.counts);
        if let Some(violation) = outcome.violation {
            writeln!(
                failures,
                "seed {seed:#x}: {violation}\n  see it again: cargo xtask sim fabric --seed {seed:#x} --trace"
            )
            .expect("strings do not fail");
        }
    }
    assert!(failures.is_empty(), "{failures}");
    // Each thing that can happen has happened often.
    let often = |what: &str, least: u64, count: fn(&FabricCounts) -> u64| {
        let found: u64 = all.iter().map(count).sum();
        assert!(found >= least, "{what}: {found} times");
    };
    often("answers", 100_000, |counts| counts.answered);
    often("payloads that landed", 20_000, |counts| counts.landed);
    often("payloads that were fetched", 15_000, |counts| counts.fetched);
    often("payloads by TCP", 20_000, |counts| counts.inline);
    often("requests that were sent again", 5_000, |counts| counts.redone);
    often("tests", 5_000, |counts| counts.tests);
    often("demotions", 2_000, |counts| counts.demotions);
    often("transfers that failed", 2_000, |counts| counts.failures);
    often("transfers without an end", 500, |counts| counts.timeouts);
    often("completions of nothing", 200, |counts| counts.strays);
    often("pieces that a closed key kept out", 200, |counts| counts.refused_pieces);
    often("late pieces", 500, |counts| counts.late_pieces);
    often("damage at clients", 100, |counts| counts.damaged_landings);
    often("damage at the server", 100, |counts| counts.damaged_fetches);
    often("stored damage", 100, |counts| counts.corrupt);
    often("requests without a room", 500, |counts| counts.full);
    often("endpoints opened again", 200, |counts| counts.reopened);
    often("deaths and cuts", 1_000, |counts| counts.deaths);
    often("stalls", 200, |counts| counts.stalls);
}

#[test]
fn a_seed_is_the_same_run_every_time() {
    for seed in 0..50 {
        let [first, second] =
            [(); 2].map(|()| run_fabric(&FabricPlan { keep_trace: true, ..FabricPlan::of_seed(seed) }));
        assert_eq!((first.trace, first.counts), (second.trace, second.counts), "seed {seed}");
    }
}

#[test]
fn every_broken_rule_is_noticed() {
    let noticed = |breakage| {
        (0..4000).find_map(|seed| {
            let outcome = run_fabric(&FabricPlan { breakage: Some(breakage), ..FabricPlan::of_seed(seed) });
            outcome.violation.map(|violation| (seed, violation))
        })
    };
    let mut missed = Vec::new();
    for breakage in FabricBreak::ALL {
        match noticed(*breakage) {
            Some((seed, violation)) => println!("{breakage:?}: {violation} after {} seeds", seed + 1),
            None => missed.push(breakage),
        }
    }
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}
