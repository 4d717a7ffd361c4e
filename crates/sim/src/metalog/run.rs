//! Runs: of a plan, and the scenarios in which leaders die.

use frieze_disk::CrashKind;

use super::fault_plan::MetalogFaults;
use super::plan::{MetalogOutcome, MetalogPlan};
use super::world::MetalogWorld;
use crate::violation::{Rule, Verdict, broken};

/// Plays a plan.
pub fn run_metalog(plan: &MetalogPlan) -> MetalogOutcome {
    let mut world = MetalogWorld::new(plan);
    let violation = world.play().err();
    MetalogOutcome {
        trace_hash: world.trace.hash(),
        trace: world.trace.take_lines(),
        answered: world.answered,
        faults: world.faults.count,
        elections: world.elections,
        losses: world.losses,
        installs: world.installs,
        changes: world.changes,
        violation,
    }
}

/// No other fault: the leader loses its power, again and again. How long there is no leader, and nothing is
/// acknowledged.
pub(crate) fn leader_dies(seed: u64) -> Verdict {
    lose_leaders(seed, CrashKind::Power, ELECTION_US_MAX)
}

/// The same with a killed process: the other members need not wait for a long silence.
pub(crate) fn leader_is_killed(seed: u64) -> Verdict {
    lose_leaders(seed, CrashKind::Process, NOTICED_US_MAX)
}

fn lose_leaders(seed: u64, kind: CrashKind, election_us_max: u64) -> Verdict {
    let mut world = MetalogWorld::new(&MetalogPlan { asks: 400, ..MetalogPlan::of_seed(seed) });
    world.faults = MetalogFaults::none();
    world.run_for(2_000_000)?;
    for _ in 0..8 {
        let Some(leader) = world.leader() else {
            return broken(Rule::Live, "there is no leader though nothing is wrong");
        };
        let before = world.answered;
        world.take_down(leader, kind);
        if kind == CrashKind::Process {
            for host in world.hosts.keys().copied().collect::<Vec<_>>() {
                world.break_connection(host, leader);
            }
        }
        let down = world.now_us;
        while world.leader().is_none() {
            world.run_for(1_000)?;
            if world.now_us > down + election_us_max {
                return broken(Rule::Live, format!("no leader {election_us_max} us after the last one died"));
            }
        }
        while world.answered < before + 4 {
            world.run_for(1_000)?;
            if world.now_us > down + GAP_US_MAX {
                return broken(Rule::Live, format!("nothing is acknowledged {GAP_US_MAX} us after the leader died"));
            }
        }
        world.start(leader)?;
        world.run_for(500_000)?;
    }
    Ok(())
}

/// An election ends within half a lease of 2 s, so that no healthy server's lease ends by the loss of the leader.
const ELECTION_US_MAX: u64 = 1_000_000;
/// Where it is noticed: that takes up to 20 ms here, standing for election 4 ticks of 25 ms, and two flushes and
/// answers.
const NOTICED_US_MAX: u64 = 200_000;
/// Four clients that have to find the new leader, some by asking the dead one first, are answered.
const GAP_US_MAX: u64 = 2_000_000;
