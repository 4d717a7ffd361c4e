//! Faults, and their repair. Each seed leaves some of them out.

use frieze_base::{NodeId, Rng};
use frieze_disk::CrashKind;

use super::super::net::FAIR;
use super::super::swarm::{ClusterFault, ClusterRepair, name_of};
use super::{ClusterEvent, ClusterWorld};
use crate::violation::Verdict;

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
