//! The scheduler of names: seeds that pass, runs that repeat, and every broken rule noticed. `cargo xtask sim calvin
//! --count N` runs more.

use std::fmt::Write;

use frieze_sim::{CalvinBreak, CalvinCounts, CalvinPlan, run_calvin};

#[test]
fn servers_agree_with_one_tree_under_the_first_seeds() {
    let (mut failures, mut all) = (String::new(), Vec::new());
    for seed in 0..1000 {
        let outcome = run_calvin(&CalvinPlan::of_seed(seed));
        all.push(outcome.counts);
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
    let often = |what: &str, least: u64, count: fn(&CalvinCounts) -> u64| {
        let found: u64 = all.iter().map(count).sum();
        assert!(found >= least, "{what}: {found} times");
    };
    often("changes", 40_000, |counts| counts.changes);
    often("superseded changes", 5_000, |counts| counts.superseded);
    often("repeated requests", 20_000, |counts| counts.again);
    often("values asked for", 5_000, |counts| counts.asks);
    often("restarts", 4_000, |counts| counts.restarts);
    often("stages", 8_000, |counts| counts.stages);
    often("edits made", 1_000, |counts| counts.edits);
    often("edits planned again", 1_000, |counts| counts.replanned);
    often("edits given up", 500, |counts| counts.busy);
    often("edits without room", 200, |counts| counts.overloaded);
    often("commits before their stages", 100, |counts| counts.stages_missing);
    often("limits", 1_500, |counts| counts.limits);
    often("changes without room in their shard", 500, |counts| counts.gathers);
    often("changes without room", 500, |counts| counts.quota_full);
    often("slots without a number", 500, |counts| counts.numbers_used_up);
    often("sessions ended", 500, |counts| counts.sessions_ended);
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
        (0..500).find_map(|seed| {
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
