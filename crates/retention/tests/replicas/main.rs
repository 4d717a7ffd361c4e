//! The model of retention in a chain: members that execute the log of names, pack, crash and return at different times.
//!
//! What it plays: writes down a chain of up to three members of four servers, promises, marks, pins, changes of policy
//! and truncates, from a log of names whose proposals may be lost; members that find the dead, free them and pack by
//! themselves; crashes that take what was not synced and what was in memory, members that are removed alive and go on,
//! supply by records, without the bytes of the dead, clocks that jump, full disks, rotten records, disks that change a
//! pack.
//!
//! What it judges, by brute force over every committed record: what is answered for an instant at a position of the
//! log, and nothing else; that no refusal is taken back; that a member keeps no record that is not the chain's; and
//! that everything comes to an end when faults do.
//!
//! `RETENTION_SEEDS=100000 cargo test -p frieze-retention --release --test replicas` runs more seeds.

mod breakage;
#[path = "../common/mod.rs"]
mod common;
mod judge;
mod names;
mod node;
mod packing;
mod world;

use std::collections::BTreeMap;

use breakage::RetentionBreak;
use world::ReplicaWorld;

const STEPS: u32 = 500;

fn seeds(default: u64) -> u64 {
    std::env::var("RETENTION_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(default)
}

fn play(seed: u64, broken: Option<RetentionBreak>) -> ReplicaWorld {
    let mut world = ReplicaWorld::new(seed, broken);
    world.run(STEPS);
    world
}

#[test]
fn no_order_of_events_loses_a_kept_state_or_makes_two_members_differ() {
    let mut reached: BTreeMap<&str, u64> = BTreeMap::new();
    let first = std::env::var("RETENTION_FIRST").ok().and_then(|first| first.parse().ok()).unwrap_or(0);
    for seed in first..first + seeds(3_000) {
        let world = play(seed, None);
        assert!(world.judge.violations.is_empty(), "seed {seed}: {:#?}", world.judge.violations);
        for (what, count) in world.reached {
            *reached.entry(what).or_default() += count;
        }
    }
    println!("{reached:#?}");
    assert_eq!(reached.len(), 14, "the model reaches everything it is about: {reached:#?}");
}

#[test]
fn every_rule_that_is_left_out_is_caught() {
    let mut missed = Vec::new();
    for broken in RetentionBreak::ALL {
        let caught = (0..20_000).find(|seed| !play(*seed, Some(*broken)).judge.violations.is_empty());
        match caught {
            Some(seed) => println!("{broken:?}: seed {seed}"),
            None => missed.push(broken),
        }
    }
    assert!(missed.is_empty(), "the judge misses {missed:?}");
}
