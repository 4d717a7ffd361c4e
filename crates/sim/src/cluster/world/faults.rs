//! Faults, and their repair. Each seed leaves some of them out.

use frieze_base::{NodeId, Rng};
use frieze_disk::CrashKind;

use super::super::client::ATTEMPT_US;
use super::super::net::{FAIR, Weather};
use super::super::work::ClusterMix;
use super::{ClusterEvent, ClusterWorld};
use crate::violation::Verdict;

/// A fault that ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum ClusterRepair {
    Cut { from: NodeId, to: NodeId },
    Deaf,
    Sick { node: usize, life: u64 },
}

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClusterFault {
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
    faults: Vec<ClusterFault>,
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
    unreachable: Option<NodeId>,
    skew_us: u64,
    rate_ppm: i64,
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

/// Duration of a fault: mostly less than a lease and the limit of silence between nodes, sometimes more than either.
fn lasts_us(rng: &mut Rng) -> u64 {
    if rng.chance(4) { rng.between(2_000_000, 5_000_000) } else { rng.between(100_000, 2_000_000) }
}

impl ClusterWorld {
    /// Clocks do not agree.
    pub(super) fn unset_clocks(&mut self) {
        let (skew_us, rate_ppm) = (self.swarm.skew_us, self.swarm.rate_ppm);
        for node in &mut self.nodes {
            // Forward only: a clock does not show a time twice.
            let by_us = self.rng.below(skew_us + 1) as i64;
            node.time.time.jump_wall_us(by_us);
            node.skew_us = by_us;
            node.rate_ppm = self.rng.below(rate_ppm as u64 + 1) as i64;
        }
    }

    fn some_node(&mut self) -> usize {
        self.rng.below(self.nodes.len() as u64) as usize
    }

    pub(super) fn inject(&mut self) -> Verdict {
        let fault = *self.rng.choose(&self.swarm.faults);
        let node = match fault {
            ClusterFault::CrashLeader => self.leader().unwrap_or(0),
            _ => self.some_node(),
        };
        let id = self.nodes[node].id;
        let other = NodeId((id.0 + self.rng.below(self.nodes.len() as u64 - 1) as u32) % self.nodes.len() as u32 + 1);
        let others: Vec<NodeId> = self.nodes.iter().map(|node| node.id).filter(|other| *other != id).collect();
        self.say(|| format!("fault: {fault:?} of {id}, {other}"));
        *self.counts.faults.entry(name_of(fault)).or_default() += 1;
        let long_us = lasts_us(&mut self.rng);
        match fault {
            ClusterFault::Crash | ClusterFault::CrashLeader if self.nodes[node].engine.is_some() => {
                self.die(node, CrashKind::Process);
            }
            ClusterFault::PowerLoss if self.nodes[node].engine.is_some() => self.die(node, CrashKind::Power),
            ClusterFault::CrashAtEffect if self.nodes[node].engine.is_some() => {
                let changes = self.rng.between(1, 30);
                self.nodes[node].disk.fail_after(changes);
                self.nodes[node].may_crash = true;
            }
            ClusterFault::Isolate => {
                for other in others {
                    self.cut(id, other, long_us);
                    self.cut(other, id, long_us);
                }
            }
            ClusterFault::CutOneWay => self.cut(id, other, long_us),
            ClusterFault::CutPair => {
                self.cut(id, other, long_us);
                self.cut(other, id, long_us);
            }
            ClusterFault::Break => self.break_link(id, other),
            ClusterFault::Unreachable => {
                self.swarm.unreachable = Some(id);
                self.after(long_us, ClusterEvent::Heal(ClusterRepair::Deaf));
            }
            ClusterFault::Pause => {
                let until_us = self.now_us + self.rng.between(1_000, 3_000_000);
                self.nodes[node].paused_until_us = self.nodes[node].paused_until_us.max(until_us);
            }
            ClusterFault::ClockJump => {
                let by_us = self.rng.between(1_000, 300_000) as i64;
                let by_us = if self.rng.chance(2) { by_us } else { -by_us };
                // Not further from the other clocks than trusted clocks are.
                let to_us = self.nodes[node].skew_us + by_us;
                if (-200_000..=200_000).contains(&to_us) {
                    self.nodes[node].skew_us = to_us;
                    self.nodes[node].time.time.jump_wall_us(by_us);
                }
            }
            ClusterFault::FailedSync if self.nodes[node].engine.is_some() => {
                self.nodes[node].disk.fail_syncs(1);
                // Its supervisor restarts it.
                let life = self.nodes[node].life;
                self.after(long_us, ClusterEvent::Heal(ClusterRepair::Sick { node, life }));
            }
            ClusterFault::Stun => {
                // Some readings from now, and once more: one of them is between a read and the check of the lease.
                let looks = self.rng.between(1, 60);
                let us = self.rng.between(100_000, 3_000_000);
                self.nodes[node].time.stun_after(looks, us);
            }
            ClusterFault::Blackout => {
                let kind = if self.rng.chance(4) { CrashKind::Process } else { CrashKind::Power };
                for node in 0..self.nodes.len() {
                    if self.nodes[node].engine.is_some() {
                        self.die(node, kind);
                    }
                }
            }
            ClusterFault::Vanish => {
                let client = self.rng.below(self.plan.clients) as usize;
                self.clients[client].port.lock().unwrap_or_else(std::sync::PoisonError::into_inner).vanishes = true;
                self.wake(client)?;
            }
            // It is down already.
            _ => {}
        }
        Ok(())
    }

    fn cut(&mut self, from: NodeId, to: NodeId, long_us: u64) {
        if from == to {
            return;
        }
        self.net.cut(self.now_us, from, to);
        // The ends notice that nothing comes.
        let (one, other) = (self.index_of(from), self.index_of(to));
        if long_us >= super::super::net::SILENT_US {
            self.after(super::super::net::SILENT_US, ClusterEvent::Link { node: one, other: to, stands: false });
            self.after(super::super::net::SILENT_US, ClusterEvent::Link { node: other, other: from, stands: false });
        }
        self.after(long_us, ClusterEvent::Heal(ClusterRepair::Cut { from, to }));
    }

    pub(super) fn heal(&mut self, healing: ClusterRepair) {
        match healing {
            ClusterRepair::Cut { from, to } => self.mend(from, to),
            ClusterRepair::Deaf => self.swarm.unreachable = None,
            ClusterRepair::Sick { node, life } => {
                if self.nodes[node].life == life {
                    self.die(node, CrashKind::Process);
                }
            }
        }
    }

    fn mend(&mut self, from: NodeId, to: NodeId) {
        if !self.net.is_cut(from, to) {
            return;
        }
        match self.net.heal(self.now_us, from, to) {
            Some(queue) => queue.into_iter().for_each(|envelope| self.send(envelope, 0)),
            None => self.break_link(from, to),
        }
    }

    pub(super) fn end_faults(&mut self) {
        self.net.weather = FAIR;
        self.swarm.unreachable = None;
        for (from, to) in self.net.cuts() {
            self.mend(from, to);
        }
        for node in 0..self.nodes.len() {
            if self.nodes[node].is_rotten {
                self.after(0, ClusterEvent::Lose(node));
            }
            self.nodes[node].paused_until_us = self.nodes[node].paused_until_us.min(self.now_us);
            // The rest of them is cancelled.
            self.nodes[node].disk.fail_after(u64::MAX);
            self.nodes[node].disk.fail_syncs(0);
            self.nodes[node].time.stun_after(u64::MAX, 0);
            if self.nodes[node].failed {
                self.die(node, CrashKind::Process);
            }
        }
    }
}

fn name_of(fault: ClusterFault) -> &'static str {
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
