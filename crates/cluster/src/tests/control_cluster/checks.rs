//! What holds after every decision and every step, and in the end, when faults stop.

use std::collections::BTreeMap;

use frieze_base::ChainId;
use frieze_wire::chain::Configuration;

use super::{ControlCluster, Replica};
use crate::{ChainStep, ClusterState, Decision, TargetRole};

impl ControlCluster {
    /// A decision that has an effect rests on what is true.
    pub(super) fn check_decision(&mut self, before: &ClusterState, decision: &Decision) {
        if let Decision::Node { step, .. } = decision {
            self.counts.offline += u64::from(matches!(step, crate::NodeStep::Offline));
            self.counts.returned += u64::from(matches!(step, crate::NodeStep::Return { .. }));
            self.counts.removed += u64::from(matches!(step, crate::NodeStep::Remove));
        }
        let Decision::Chain { chain: id, step, .. } = decision else { return };
        let (was, node) = (before.chain(*id).expect("it has an effect"), step.node());
        match *step {
            ChainStep::Join(_) => assert!(self.caught_up.contains(&(*id, was.epoch, node)), "{node} has not caught up"),
            ChainStep::Serve(_) => {
                self.counts.served += 1;
                assert!(self.ready.contains(&(*id, was.epoch, node)), "{node} is not ready");
            }
            ChainStep::TakeOut(_) => self.counts.taken_out += 1,
            ChainStep::Left(_) => self.counts.left += 1,
            ChainStep::Retire(_) => self.counts.moved += 1,
            ChainStep::Resume { incarnation, is_missing, .. } => {
                self.counts.resumed += 1;
                let at = self.of(node).expect("it is a node");
                let is_dead = was.serving().any(|member| self.declared_dead.contains(&member.node));
                let waited = self.now - self.stuck[id];
                let patience = self.settings.return_patience_ns / 100 * 98;
                assert!(!is_missing || is_dead || waited >= patience, "it did not wait for the others");
                for member in was.serving() {
                    let machine = &self.machines[self.of(member.node).expect("it is a node")];
                    let is_dead = self.declared_dead.contains(&member.node);
                    assert!(machine.incarnation != member.incarnation || is_dead, "{} kept its memory", member.node);
                    let process = before.node(member.node).expect("it is a node").incarnation();
                    if !is_missing && machine.incarnation == process {
                        let newer = machine.chains.get(id).map(Replica::last)
                            > self.machines[at].chains.get(id).map(Replica::last);
                        assert!(
                            !newer || self.machines[at].incarnation != incarnation,
                            "the log of {} is newer",
                            member.node
                        );
                    }
                }
                // What its log does not have was in memory only, of processes that are gone.
                let has = self.machines[at].chains.get(id).map(|replica| replica.log.clone()).unwrap_or_default();
                if let Some(acknowledged) = self.acknowledged.get_mut(id) {
                    acknowledged.retain(|write| has.iter().any(|(_, id)| id == write));
                }
            }
            _ => {}
        }
    }

    /// A node that may answer has a role in the newest configuration in use.
    pub(super) fn check_parts(&self) {
        let mut newest: BTreeMap<ChainId, &Configuration> = BTreeMap::new();
        for machine in self.machines.iter().filter(|machine| machine.is_up) {
            for (id, replica) in &machine.chains {
                if machine.node.is_some_and(|node| replica.installed.names(node)) {
                    let newest = newest.entry(*id).or_insert(&replica.installed);
                    if replica.installed.epoch > newest.epoch {
                        *newest = &replica.installed;
                    }
                }
            }
        }
        for (at, machine) in self.machines.iter().enumerate() {
            for (id, replica) in &machine.chains {
                let Some(now) = newest.get(id).filter(|now| now.epoch > replica.installed.epoch) else { continue };
                let node = machine.node.expect("it has a replica");
                assert!(
                    now.members.contains(&node) || !self.may_answer(at, *id),
                    "{node} answers for chain {id} under {:?}, others act under {now:?}",
                    replica.installed
                );
            }
        }
    }

    /// Faults stop, and everything is as it is wanted.
    pub(in super::super) fn finish(&mut self) {
        self.is_faulty = false;
        self.cut.clear();
        for at in 0..self.machines.len() {
            self.machines[at].asleep_until = 0;
            // A node that has resigned has to be started again.
            if !self.machines[at].is_destroyed {
                self.restart(at);
            }
        }
        let mut quiet = 0;
        for round in 0..40_000 {
            if round % 50 == 0 {
                if self.leader.is_none_or(|leader| !self.may_lead(leader)) {
                    let next = (0..self.machines.len()).find(|at| self.may_lead(*at));
                    self.elect(next.expect("somebody is there"));
                }
                self.declare_dead_node();
                quiet = if self.is_whole().is_ok() { quiet + 1 } else { 0 };
            }
            if quiet == 5 {
                break;
            }
            self.play();
        }
        self.is_whole().unwrap();
        for at in 0..self.machines.len() {
            self.catch_up(at);
            assert_eq!(self.machines[at].state.encode(), self.truth.encode());
        }
        for chain in self.truth.chains().map(|chain| chain.id).collect::<Vec<_>>() {
            for node in self.truth.chain(chain).expect("it is there").configuration().members {
                let at = self.of(node).expect("it is a node");
                self.read(at, chain);
            }
        }
    }

    /// What is not as it is wanted.
    pub(super) fn is_whole(&self) -> Result<(), String> {
        let truth = &self.truth;
        let there = || truth.nodes().filter(|node| !node.is_dead && !node.is_offline);
        let stay = there().filter(|node| !node.is_draining).count();
        let stay = if stay == 0 { there().count() } else { stay };
        let wanted = stay.clamp(1, truth.replicas() as usize);
        for chain in truth.chains() {
            let name = format!("chain {chain:?}");
            let kept = chain.serving().filter(|target| truth.is_alive(target)).count();
            if kept != wanted || chain.newcomer().is_some() || !chain.leaving.is_empty() {
                return Err(format!("{name}: {kept} of {wanted}"));
            }
            let is_odd = |target: &crate::ChainTarget| target.role == TargetRole::Out || target.is_retiring;
            if wanted == truth.replicas() as usize && chain.targets.iter().any(is_odd) {
                return Err(format!("{name}: a target is left over"));
            }
            for node in chain.configuration().members {
                let at = self.of(node).ok_or("a member that is no node")?;
                if !self.may_answer(at, chain.id) || self.machines[at].chains[&chain.id].installed.epoch != chain.epoch
                {
                    return Err(format!("{name}: {node} does not serve"));
                }
            }
        }
        if truth.is_balancing() { Err("it is still balancing".to_owned()) } else { Ok(()) }
    }
}
