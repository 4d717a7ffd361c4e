//! The plan of a cluster run, and its outcome.

use std::collections::BTreeMap;

use frieze_base::Rng;

use super::breakage::ClusterBreak;
use crate::violation::Violation;

/// A run. Everything in it follows from the seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterPlan {
    /// Decides everything.
    pub seed: u64,
    /// Servers in the end, but for machines that are lost and replaced. Default: 3, or 4 or 5 where there are fewer
    /// copies than servers; in an eighth of the seeds 6 or 7, of which 5 vote.
    pub nodes: u32,
    /// Those that join during work and faults. Default: none, or some of 6 or 7; by the seed.
    pub joins: u32,
    /// Copies of each chain. Default: as many as servers, or 2 or 3 of them; by the seed.
    pub copies: u32,
    /// Operations that clients finish before the faults stop.
    pub operations: u64,
    /// Clients. Default: 3 to 5, by the seed.
    pub clients: u64,
    /// Faults, each after a share of the operations. Default: 5 to 9, by the seed.
    pub faults: u64,
    /// An operator drains nodes, and undoes that.
    pub operator: bool,
    /// Clients sometimes end their sessions, and start others.
    pub leaves: bool,
    /// Some writes go to several places at once.
    pub together: bool,
    /// A machine is lost with all that it had, and another takes its place.
    pub replaces: bool,
    /// When all is whole a majority of the servers is lost for a while, and those that are left are asked about the
    /// past.
    pub loses_majority: bool,
    /// The majority is lost for good, and one of the rest continues alone.
    pub goes_on_alone: bool,
    /// A bit of a disk rots, and the machine is replaced after a while.
    pub rots: bool,
    /// Seconds without a connection after which a session ends. Default: so long that it never ends, or so short that
    /// clients behind a partition find their sessions ended; by the seed.
    pub session_timeout_s: u64,
    /// The deliberate break, for the test of the tester.
    pub breakage: Option<ClusterBreak>,
    /// True: the trace keeps its lines.
    pub keep_trace: bool,
}

impl ClusterPlan {
    /// The run of a seed.
    pub fn of_seed(seed: u64) -> ClusterPlan {
        let mut rng = Rng::new(seed ^ 0xc105_7e12);
        let mut others = Rng::new(seed ^ 0x0be8_a708);
        let mut room = Rng::new(seed ^ 0x5bac_e000);
        let mut rare = Rng::new(seed ^ 0x4a4e_0000);
        let mut many = Rng::new(seed ^ 0x3e7e_0000);
        let together = rare.chance(3);
        // Two machines lost for good are more than three can bear.
        let loses = rare.below(6);
        let everybody = if rng.chance(8) { 5 } else { 3 };
        let (nodes, copies) = match room.chance(6) {
            true => (room.between(4, 5) as u32, room.between(2, 3) as u32),
            false => (everybody, everybody),
        };
        let (nodes, copies, joins) = match many.chance(8) {
            true => {
                let nodes = many.between(6, 7) as u32;
                let copies = if many.chance(4) { nodes } else { 3 };
                (nodes, copies, many.below(4) as u32)
            }
            false => (nodes, copies, 0),
        };
        let loses_majority = rare.chance(4);
        ClusterPlan {
            operator: others.chance(4),
            leaves: others.chance(3),
            together,
            loses_majority,
            goes_on_alone: loses_majority && rare.chance(3),
            replaces: loses == 0,
            rots: loses == 1,
            session_timeout_s: if others.chance(4) { 2 } else { 600 },
            seed,
            nodes,
            joins,
            copies,
            operations: 300,
            clients: rng.between(3, 5),
            faults: rng.between(5, 9),
            breakage: None,
            keep_trace: false,
        }
    }
}

/// Outcome of a run.
#[derive(Clone, Debug)]
pub struct ClusterOutcome {
    /// The promise that was broken first, if one was.
    pub violation: Option<Violation>,
    /// Two runs of one plan have the same.
    pub trace_hash: u64,
    /// The lines of the trace, if they were to be kept.
    pub trace: Vec<String>,
    /// Counts of events.
    pub counts: ClusterCounts,
}

/// Counts of events in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterCounts {
    /// Operations that clients finished.
    pub operations: u64,
    /// Requests to servers, and messages between them.
    pub requests: u64,
    /// See `requests`.
    pub peer_messages: u64,
    /// Events in all.
    pub events: u64,
    /// Simulated milliseconds.
    pub simulated_ms: u64,
    /// Faults, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Starts of servers after their first.
    pub restarts: u64,
    /// Answers about instants that were remembered.
    pub remembered: u64,
    /// Chains that nodes detached, since other nodes had them.
    pub detached: u64,
}

/// Chains of a simulated cluster.
pub(super) const CHAINS: u32 = 3;
