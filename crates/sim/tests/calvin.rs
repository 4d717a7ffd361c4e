//! The scheduler of names: seeds that pass, runs that repeat, and every broken rule noticed. `cargo xtask sim calvin
//! --count N` runs more.

use std::fmt::Write;

use frieze_sim::{CalvinBreak, CalvinPlan, run_calvin};

#[test]
fn servers_agree_with_one_tree_under_the_first_seeds() {
    let (mut failures, mut changes, mut superseded, mut asks, mut restarts) = (String::new(), 0, 0, 0, 0);
    for seed in 0..1000 {
        let outcome = run_calvin(&CalvinPlan::of_seed(seed));
        changes += outcome.counts.changes;
        superseded += outcome.counts.superseded;
        asks += outcome.counts.asks;
        restarts += outcome.counts.restarts;
        if let Some(violation) = outcome.violation {
            writeln!(
                failures,
                "seed {seed:#x}: {violation}\n  see it again: cargo xtask sim calvin --seed {seed:#x} --trace"
            )
            .expect("strings do not fail");
        }
    }
    assert!(failures.is_empty(), "{failures}");
    // Each thing that can happen has happened often.
    assert!(
        changes > 50_000 && superseded > 5_000 && asks > 10_000 && restarts > 2_000,
        "{changes} {superseded} {asks} {restarts}"
    );
}

#[test]
fn a_seed_is_the_same_run_every_time() {
    for seed in 0..50 {
        let [first, second] =
            [(); 2].map(|()| run_calvin(&CalvinPlan { keep_trace: true, ..CalvinPlan::of_seed(seed) }));
        assert_eq!((first.trace, first.counts), (second.trace, second.counts), "seed {seed}");
    }
}

#[test]
fn every_broken_rule_is_noticed() {
    let noticed = |breakage| {
        // Most by the first ten; that a directory moved below another one that moves needs a few hundred.
        (0..3000).find_map(|seed| {
            let outcome = run_calvin(&CalvinPlan { breakage: Some(breakage), ..CalvinPlan::of_seed(seed) });
            outcome.violation.map(|violation| (seed, violation))
        })
    };
    let mut missed = Vec::new();
    for breakage in CalvinBreak::ALL {
        match noticed(*breakage) {
            Some((seed, violation)) => println!("{breakage:?}: {violation} after {} seeds", seed + 1),
            None => missed.push(breakage),
        }
    }
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}
