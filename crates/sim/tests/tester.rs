//! Test of the tester: servers that are broken on purpose do not pass.

use frieze_sim::{Rule, ServerBreak, ServerPlan, run_one_server};

/// Plays seeds until the break is noticed, and returns by which rule and after how many seeds.
fn noticed(breakage: ServerBreak, seeds: u64) -> Option<(Rule, u64)> {
    (0..seeds).find_map(|seed| {
        let outcome = run_one_server(&ServerPlan { breakage: Some(breakage), ..ServerPlan::of_seed(seed) });
        outcome.violation.map(|violation| (violation.rule, seed + 1))
    })
}

#[test]
fn every_break_is_noticed_within_a_few_seeds() {
    let mut missed = Vec::new();
    for breakage in ServerBreak::ALL {
        match noticed(*breakage, 60) {
            Some((rule, seeds)) => println!("{breakage:?}: {rule:?} after {seeds} seeds"),
            None => missed.push(breakage),
        }
    }
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}
