//! What happens to the bytes of chains: writes, reads, flushes, and newcomers that receive a log.

use std::collections::BTreeSet;

use frieze_base::ChainId;

use super::ControlCluster;
use crate::{NodeLeaseInput, ReplicaEvent};

impl ControlCluster {
    /// True if the process may answer reads of now of the chain.
    pub(super) fn may_answer(&self, at: usize, chain: ChainId) -> bool {
        let machine = &self.machines[at];
        let (Some(node), Some(tenant), Some(replica)) = (machine.node, &machine.tenant, machine.chains.get(&chain))
        else {
            return false;
        };
        self.is_awake(at) && replica.installed.may_answer(node) && tenant.holds(self.moment(at).mono)
    }

    /// Something happens to a chain: a write, a read, or a sync.
    pub(super) fn work(&mut self, at: usize) {
        let chains = self.truth.chains().count() as u64;
        if chains == 0 || !self.is_awake(at) {
            return;
        }
        let chain = ChainId(self.rng.below(chains) as u32);
        match self.rng.below(6) {
            0 | 1 => self.write(at, chain),
            2 => self.read(at, chain),
            3 => {
                let Some(replica) = self.machines[at].chains.get_mut(&chain) else { return };
                replica.durable = replica.log.len();
            }
            _ => {
                let all: Vec<_> = self.machines[at].chains.keys().copied().collect();
                all.into_iter().for_each(|chain| self.advance_newcomer(at, chain));
            }
        }
    }

    pub(super) fn write(&mut self, at: usize, chain: ChainId) {
        if !self.may_answer(at, chain) {
            return;
        }
        let head = &self.machines[at].chains[&chain];
        let installed = head.installed.clone();
        if installed.members.first() != self.machines[at].node.as_ref() {
            return;
        }
        self.written += 1;
        let mut log = head.log.clone();
        log.push((installed.epoch, self.written));
        let reach = if self.rng.chance(4) { self.rng.between(1, installed.members.len() as u64) as usize } else { 99 };
        for (place, member) in installed.members.iter().enumerate() {
            let Some(to) = self.of(*member) else { return };
            let is_cut = self.cut.contains(&(at, to)) || self.cut.contains(&(to, at));
            let replica = self.machines[to].chains.get(&chain);
            if place >= reach
                || is_cut
                || !self.is_awake(to)
                || replica.is_none_or(|replica| replica.installed != installed)
            {
                return;
            }
            let replica = self.machines[to].chains.get_mut(&chain).expect("looked at above");
            assert!(log.starts_with(&replica.log), "{member} of {installed:?}: its log is no prefix of the head's");
            replica.log.clone_from(&log);
        }
        if let Some(to) = installed.syncing.and_then(|node| self.of(node))
            && self.caught_up.contains(&(chain, installed.epoch, installed.syncing.expect("it is there")))
            && let Some(replica) = self.machines[to].chains.get_mut(&chain)
            && replica.installed == installed
        {
            replica.log = log;
        }
        self.acknowledged.entry(chain).or_default().push(self.written);
        self.counts.writes += 1;
    }

    pub(super) fn read(&mut self, at: usize, chain: ChainId) {
        if !self.may_answer(at, chain) {
            self.counts.refused_reads += 1;
            return;
        }
        self.counts.reads += 1;
        let replica = &self.machines[at].chains[&chain];
        let has: BTreeSet<u64> = replica.log.iter().map(|(_, id)| *id).collect();
        for id in self.acknowledged.get(&chain).into_iter().flatten() {
            assert!(
                has.contains(id),
                "machine {at} answers for chain {chain} under {:?} without write {id}; now {:?}",
                replica.installed,
                self.truth.chain(chain)
            );
        }
    }

    /// A tail brings the one behind it up to date; a joining one gets what its predecessor has.
    pub(super) fn advance_newcomer(&mut self, at: usize, chain: ChainId) {
        let installed = self.machines[at].chains[&chain].installed.clone();
        let epoch = installed.epoch;
        let Some(node) = self.machines[at].node else { return };
        let is_last = installed.members.last() == Some(&node);
        let (from, to) = if is_last && !installed.joining {
            (at, installed.syncing.and_then(|node| self.of(node)))
        } else if is_last {
            let before = installed.members.len().checked_sub(2).map(|before| installed.members[before]);
            let Some(before) = before.and_then(|node| self.of(node)) else { return };
            (before, Some(at))
        } else {
            return;
        };
        let Some(to) = to else { return };
        let is_same =
            |at: usize| self.machines[at].chains.get(&chain).is_some_and(|replica| replica.installed == installed);
        let is_cut = self.cut.contains(&(from, to)) || self.cut.contains(&(to, from));
        if !is_same(from) || !is_same(to) || !self.is_awake(from) || !self.is_awake(to) || is_cut {
            return;
        }
        let log = self.machines[from].chains[&chain].log.clone();
        let replica = self.machines[to].chains.get_mut(&chain).expect("it has installed it");
        replica.durable = replica.durable.min(log.len());
        replica.log = log;
        if installed.joining {
            self.ready.insert((chain, epoch, node));
            self.step_node_lease(at, NodeLeaseInput::Replica { chain, event: ReplicaEvent::Ready { epoch } });
        } else {
            let node = installed.syncing.expect("looked at above");
            self.caught_up.insert((chain, epoch, node));
            self.step_node_lease(at, NodeLeaseInput::Replica { chain, event: ReplicaEvent::CaughtUp { node, epoch } });
        }
    }
}
