//! The namespace in shards: seeds that pass, runs that repeat, and every broken rule noticed. `cargo xtask sim shards
//! --count N` runs more.

use std::fmt::Write;

use frieze_sim::{ShardBreak, ShardCounts, ShardPlan, run_shards};

#[test]
fn shards_agree_with_one_namespace_under_the_first_seeds() {
    let (mut failures, mut all) = (String::new(), Vec::new());
    for seed in 0..300 {
        let outcome = run_shards(&ShardPlan::of_seed(seed));
        all.push(outcome.counts);
        if let Some(violation) = outcome.violation {
            writeln!(
                failures,
                "seed {seed:#x}: {violation}\n  see it again: cargo xtask sim shards --seed {seed:#x} --trace"
            )
            .expect("strings do not fail");
        }
    }
    assert!(failures.is_empty(), "{failures}");
    // Each thing that can happen has happened often.
    let often = |what: &str, least: u64, count: fn(&ShardCounts) -> u64| {
        let found: u64 = all.iter().map(count).sum();
        assert!(found >= least, "{what}: {found} times");
    };
    often("transactions", 60_000, |counts| counts.transactions);
    often("changes", 25_000, |counts| counts.changes);
    often("refused changes", 20_000, |counts| counts.refused);
    often("superseded changes", 4_000, |counts| counts.superseded);
    often("changes over several slots", 4_000, |counts| counts.several);
    often("changes of directories", 15_000, |counts| counts.trunk);
    often("edits made", 3_000, |counts| counts.edits);
    often("changes below a quota", 500, |counts| counts.counted);
    often("changes that a quota refused", 50, |counts| counts.quota_full);
    often("values asked for", 5_000, |counts| counts.asks);
    often("restarts", 1_000, |counts| counts.restarts);
    often("looks at an instant", 20_000, |counts| counts.compared);
}

#[test]
fn a_seed_is_the_same_run_every_time() {
    for seed in 0..20 {
        let [first, second] = [(); 2].map(|()| run_shards(&ShardPlan { keep_trace: true, ..ShardPlan::of_seed(seed) }));
        assert_eq!((first.trace, first.counts), (second.trace, second.counts), "seed {seed}");
    }
}

#[test]
fn every_broken_rule_is_noticed() {
    let noticed = |breakage| {
        (0..500).find_map(|seed| {
            let outcome = run_shards(&ShardPlan { breakage: Some(breakage), ..ShardPlan::of_seed(seed) });
            outcome.violation.map(|violation| (seed, violation))
        })
    };
    let mut missed = Vec::new();
    for breakage in ShardBreak::ALL {
        match noticed(*breakage) {
            Some((seed, violation)) => println!("{breakage:?}: {violation} after {} seeds", seed + 1),
            None => missed.push(breakage),
        }
    }
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}
