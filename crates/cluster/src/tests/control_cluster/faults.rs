//! Faults of machines and of the network, and the requests of operators.

use frieze_base::NodeId;
use frieze_wire::chain::Configuration;

use super::{ControlCluster, MS, Packet};
use crate::{NodeLeaseInput, NodeState, OperatorRequest};

impl ControlCluster {
    /// A fault happens, or an operator's request arrives.
    pub(in super::super) fn trouble(&mut self) {
        let at = self.pick();
        match self.rng.below(20) {
            0..=2 => self.crash(at),
            3..=6 => self.restart(at),
            7..=8 => self.machines[at].asleep_until = self.now + self.rng.below(6_000) * MS,
            9 => {
                let to = self.pick();
                self.cut.insert((at, to));
                if self.rng.chance(2) {
                    self.cut.insert((to, at));
                }
            }
            10 | 11 => self.cut.clear(),
            12 if self.rng.chance(4) => (0..self.machines.len()).for_each(|at| self.crash(at)),
            12 | 13 => {
                let up: Vec<usize> = (0..self.machines.len()).filter(|at| self.may_lead(*at)).collect();
                if !up.is_empty() {
                    let next = *self.rng.choose(&up);
                    // Now and then it leads for a while only, and the one before hears of it when it leads again.
                    let before = self.leader.filter(|before| *before != next && self.rng.chance(2));
                    let after = self.rng.between(1_500, 4_500) * MS;
                    self.again = before.map(|before| (self.now + after, before));
                    self.elect(next);
                }
            }
            14 if self.machines.len() < 7 && self.rng.chance(3) => self.add_machine(),
            14 => self.resign(at),
            _ => self.operate(at),
        }
    }

    pub(super) fn may_lead(&self, at: usize) -> bool {
        let machine = &self.machines[at];
        machine.is_up && machine.node.is_some_and(|node| self.truth.node(node).is_ok())
    }

    pub(super) fn crash(&mut self, at: usize) {
        self.machines[at].is_up = false;
        if self.leader == Some(at) {
            self.leader = None;
        }
    }

    pub(super) fn restart(&mut self, at: usize) {
        if self.machines[at].is_destroyed || self.machines[at].node.is_none() {
            self.machines[at].is_up |= !self.machines[at].is_destroyed;
            return;
        }
        self.crash(at);
        let machine = &mut self.machines[at];
        (machine.is_up, machine.asleep_until) = (true, 0);
        machine.incarnation += 1;
        for replica in machine.chains.values_mut() {
            let kept = self.rng.between(replica.durable as u64, replica.log.len() as u64) as usize;
            replica.log.truncate(kept);
            (replica.durable, replica.installed) = (kept, Configuration::default());
        }
        self.start(at);
    }

    /// A process ends on purpose.
    pub(super) fn resign(&mut self, at: usize) {
        if self.is_awake(at) {
            self.step_node_lease(at, NodeLeaseInput::Resign);
            if self.rng.chance(2) {
                self.crash(at);
            }
        }
    }

    pub(super) fn operate(&mut self, at: usize) {
        let Some(node) = self.machines[at].node else { return };
        let up = self.machines.iter().filter(|machine| !machine.is_destroyed && machine.node.is_some()).count();
        let (fewer, on) = (self.rng.chance(2), self.rng.chance(3));
        match self.rng.below(9) {
            0 => self.ask(OperatorRequest::Drain { node, fewer }),
            1 => self.ask(OperatorRequest::Undrain(node)),
            2 => self.ask(OperatorRequest::Remove(node)),
            3 if self.rng.chance(4) && up > 3 && self.leader != Some(at) => {
                self.crash(at);
                self.machines[at].is_destroyed = true;
            }
            3 | 4 => self.declare_dead_node(),
            5 => self.ask(OperatorRequest::Balance(on)),
            6 => {
                let replicas = self.rng.between(1, 3) as u32;
                self.ask(OperatorRequest::Replicas(replicas));
            }
            _ => self.ask(OperatorRequest::Balance(true)),
        }
    }

    /// Operators tell of machines that will never come back.
    pub(super) fn declare_dead_node(&mut self) {
        let gone: Vec<NodeId> =
            self.machines.iter().filter(|machine| machine.is_destroyed).filter_map(|machine| machine.node).collect();
        for node in gone {
            if self.truth.node_state(node) == Some(NodeState::Offline) {
                self.declared_dead.insert(node);
                self.ask(OperatorRequest::DeclareDead { node, with_loss: true });
            }
        }
    }

    pub(super) fn ask(&mut self, ask: OperatorRequest) {
        let Some(to) = self.leader else { return };
        self.asked += 1;
        self.send(to, to, Packet::Ask(self.asked, ask));
    }
}
