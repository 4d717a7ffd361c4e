//! The faults of a seed, and its weather: each seed leaves some out.

use frieze_base::{NodeId, Rng};

use super::client::ATTEMPT_US;
use super::net::{FAIR, Weather};
use super::work::ClusterMix;

/// A fault that ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum ClusterRepair {
    Cut { from: NodeId, to: NodeId },
    Deaf,
    Sick { node: usize, life: u64 },
}

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClusterFault {
    /// The process of a node ends.
    Crash,
    /// The process ends in the middle of a change of its disk.
    CrashAtEffect,
    /// The machine of a node loses power.
    PowerLoss,
    /// A node is cut off from all others, in both directions.
    Isolate,
    /// Nothing gets from one node to another.
    CutOneWay,
    /// Two nodes cannot reach each other, a third reaches both.
    CutPair,
    /// The connection of two nodes breaks.
    Break,
    /// Clients cannot reach a node.
    Unreachable,
    /// A node stands still for a while, and does not know it.
    Pause,
    /// A wall clock jumps.
    ClockJump,
    /// A sync fails.
    FailedSync,
    /// The leader of the metalog crashes.
    CrashLeader,
    /// A node stands still in the middle of a call.
    Stun,
    /// All nodes lose power, or their processes end.
    Blackout,
    /// A client is gone for ever in the middle of an operation, and another takes its place.
    Vanish,
}

const ALL: [ClusterFault; 15] = [
    ClusterFault::Crash,
    ClusterFault::CrashAtEffect,
    ClusterFault::PowerLoss,
    ClusterFault::Isolate,
    ClusterFault::CutOneWay,
    ClusterFault::CutPair,
    ClusterFault::Break,
    ClusterFault::Unreachable,
    ClusterFault::Pause,
    ClusterFault::ClockJump,
    ClusterFault::FailedSync,
    ClusterFault::CrashLeader,
    ClusterFault::Stun,
    ClusterFault::Blackout,
    ClusterFault::Vanish,
];

/// The faults of a seed.
pub(super) struct Swarm {
    pub(super) faults: Vec<ClusterFault>,
    pub(super) weather: Weather,
    pub(super) mix: ClusterMix,
    pub(super) flush_delay_us: u64,
    /// How long a sync takes: one of these.
    pub(super) sync_us: Vec<u64>,
    /// Longest time that a node that died stays away.
    pub(super) away_us: u64,
    /// One message in so many between clients and nodes is lost, and the connection with it.
    client_loss: u64,
    /// How long a client waits for the first answer of a server that is silent.
    pub(super) patience_us: u64,
    /// Clients cannot reach this node.
    pub(super) unreachable: Option<NodeId>,
    pub(super) skew_us: u64,
    pub(super) rate_ppm: i64,
}

impl Swarm {
    pub(super) fn draw(rng: &mut Rng) -> Swarm {
        let mut faults: Vec<ClusterFault> = ALL.iter().copied().filter(|_| rng.chance(2)).collect();
        if faults.is_empty() {
            faults.push(*rng.choose(&ALL));
        }
        let weather = match rng.below(3) {
            0 => FAIR,
            1 => Weather { breaks: u64::MAX, late: 10, late_us: 20_000, overlaps: false },
            _ => Weather { breaks: 2_000, late: 20, late_us: 50_000, overlaps: rng.chance(2) },
        };
        let mut weight = |usual: u64| if rng.chance(6) { 0 } else { usual };
        let mix = ClusterMix {
            write: 6,
            read: weight(6),
            past: weight(5),
            append: weight(2),
            sync: weight(1),
            names: weight(3),
            cut: weight(1),
            leave: 0,
            together: 0,
            is_apart: false,
            sync_one_in: 4,
            think_us: 0,
        };
        let mix = ClusterMix {
            sync_one_in: *rng.choose(&[1, 3, 10, 1000]),
            think_us: *rng.choose(&[1_000, 10_000, 30_000]),
            ..mix
        };
        Swarm {
            faults,
            weather,
            mix,
            flush_delay_us: *rng.choose(&[50_000, 50_000, 400_000]),
            sync_us: match rng.below(3) {
                0 => vec![100],
                1 => vec![100, 500, 2_000],
                _ => vec![200, 5_000, 30_000],
            },
            away_us: *rng.choose(&[100_000, 1_500_000, 4_000_000]),
            client_loss: *rng.choose(&[u64::MAX, 300, 50]),
            unreachable: None,
            skew_us: *rng.choose(&[0, 1_000, 100_000, 200_000]),
            rate_ppm: *rng.choose(&[0, 50, 300]),
            patience_us: *rng.choose(&[300_000, 800_000, ATTEMPT_US]),
        }
    }

    /// Fate of a message between a client and this node.
    pub(super) fn delivery(&self, rng: &mut Rng, calm: bool, node: NodeId) -> ClientDelivery {
        match () {
            () if calm => ClientDelivery::Arrives,
            () if self.unreachable == Some(node) => ClientDelivery::Vanishes,
            () if !rng.chance(self.client_loss) => ClientDelivery::Arrives,
            () if rng.chance(4) => ClientDelivery::Vanishes,
            () => ClientDelivery::Breaks,
        }
    }
}

/// Fate of a message between a client and a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientDelivery {
    Arrives,
    /// It is lost with its connection, and both ends are notified.
    Breaks,
    /// It is lost without a notice: a partition sends none.
    Vanishes,
}

pub(super) fn name_of(fault: ClusterFault) -> &'static str {
    match fault {
        ClusterFault::Crash => "crash",
        ClusterFault::CrashAtEffect => "crash at an effect",
        ClusterFault::PowerLoss => "power loss",
        ClusterFault::Isolate => "isolation",
        ClusterFault::CutOneWay => "cut one way",
        ClusterFault::CutPair => "cut of two",
        ClusterFault::Break => "broken connection",
        ClusterFault::Unreachable => "unreachable for clients",
        ClusterFault::Pause => "pause",
        ClusterFault::ClockJump => "clock jump",
        ClusterFault::FailedSync => "failed sync",
        ClusterFault::CrashLeader => "crash of the leader",
        ClusterFault::Stun => "pause in a call",
        ClusterFault::Blackout => "blackout",
        ClusterFault::Vanish => "client that vanishes",
    }
}
