//! Barriers: every acknowledged record of this node's chains is on stable storage at every member.

use std::collections::BTreeSet;

use frieze_base::{ChainEpoch, ChainId, Fault, NodeId, Reason};
use frieze_wire::peer::ChainAskKind;

use crate::appender::Appender;
use crate::chain_state::WaitReply;
use crate::chain_state::{Barrier, Out, Waiter};
use crate::gather::Gather;
use crate::plane::DataPlane;

impl DataPlane {
    /// Calls `reply` when every record that this node has stamped or appended so far, of chains of several members, is
    /// on stable storage at all members. Covers the chains in `named`, or all chains if `named` is `None`. The caller
    /// flushes this node.
    ///
    /// The barrier covers what was acknowledged only where this node is a full member of a chain, under a lease:
    /// without a lease the other members may have continued in a configuration without it, and its records would still
    /// become durable after it returns. In that case `reply` receives `Unavailable`.
    pub fn barrier(&self, named: Option<&BTreeSet<ChainId>>, reply: WaitReply) {
        if !self.is_shared() {
            return reply(Ok(()));
        }
        let mut out = Out::default();
        let mut appender = self.hold_writes();
        let mut asks: Vec<(ChainId, ChainEpoch, u64, Vec<NodeId>)> = Vec::new();
        for (replica, member) in appender.chains.iter().zip(&appender.members) {
            let configuration = replica.configuration();
            if named.is_some_and(|named| !named.contains(&replica.chain())) {
                continue;
            }
            let is_new = configuration.joining && configuration.tail() == Some(self.me);
            if !configuration.holds(self.me) || is_new {
                // Without that, records that other members acknowledged may be missing here.
                let chain = replica.chain();
                drop(appender);
                return reply(Err(Fault::new(
                    Reason::Unavailable,
                    format!(
                        "this server is not one of chain {chain}'s just now, so it cannot say what is durable: ask \
                         again in a moment"
                    ),
                )));
            }
            let others: Vec<NodeId> = configuration.members.iter().copied().filter(|node| *node != self.me).collect();
            if member.shared && configuration.holds(self.me) && !others.is_empty() && replica.last() > 0 {
                asks.push((replica.chain(), replica.epoch(), replica.last(), others));
            }
        }
        let leased = if named.is_some_and(BTreeSet::is_empty) { Ok(()) } else { self.check_lease() };
        if asks.is_empty() || leased.is_err() {
            drop(appender);
            return reply(leased);
        }
        let gather = Gather::new(asks.len(), reply);
        for (chain, epoch, n, others) in asks {
            let id = appender.next_waiter;
            appender.next_waiter += 1;
            let (gather, since) = (gather.clone(), self.clock.reading().mono);
            let reply: WaitReply = Box::new(move |result| gather.one(result));
            appender.waiters.insert(id, Waiter { chain, since, reply });
            let member = &mut appender.members[chain.0 as usize];
            member.barriers.push(Barrier { n, left: others.clone(), asked: epoch, waiter: id });
            for to in others {
                self.tell(to, chain, epoch, ChainAskKind::Persist(n));
            }
        }
        self.settle_barriers(&mut appender, &mut out);
        drop(appender);
        self.finish_out(out);
    }

    /// A member asks for records up to `n` on stable storage here.
    pub(crate) fn hear_persist(&self, from: NodeId, chain: ChainId, epoch: ChainEpoch, n: u64, out: &mut Out) {
        let mut appender = self.hold_writes();
        let replica = &appender.chains[chain.0 as usize];
        // If a record is missing here, the member asks again with its next tick.
        if replica.epoch() != epoch || !replica.configuration().holds(from) || replica.last() < n {
            return;
        }
        let end = self.device.log().end();
        let member = &mut appender.members[chain.0 as usize];
        let wanted = member.persisting.entry(from).or_insert((n, end));
        *wanted = (*wanted).max((n, end));
        out.flush = Some((end, 0));
    }

    /// A member has records up to `n` on stable storage.
    pub(crate) fn hear_persisted(&self, from: NodeId, chain: ChainId, epoch: ChainEpoch, n: u64, out: &mut Out) {
        let mut appender = self.hold_writes();
        if appender.chains[chain.0 as usize].epoch() != epoch {
            return;
        }
        for barrier in &mut appender.members[chain.0 as usize].barriers {
            if barrier.n <= n {
                barrier.left.retain(|node| *node != from);
            }
        }
        self.settle_barriers(&mut appender, out);
    }

    /// Everything up to `through` is on stable storage here: sends `Persisted` to the members that asked for it.
    pub(crate) fn tell_persisted(&self, appender: &mut Appender, through: frieze_multilog::LogPosition) {
        for (replica, member) in appender.chains.iter().zip(&mut appender.members) {
            let (chain, epoch) = (replica.chain(), replica.epoch());
            member.persisting.retain(|to, (n, end)| {
                let waits = *end > through;
                if !waits {
                    self.tell(*to, chain, epoch, ChainAskKind::Persisted(*n));
                }
                waits
            });
        }
    }

    /// Answers barriers for which every member has replied, and asks again where the membership changed. Called
    /// periodically.
    pub(crate) fn settle_barriers(&self, appender: &mut Appender, out: &mut Out) {
        for chain in 0..appender.members.len() {
            let mut barriers = std::mem::take(&mut appender.members[chain].barriers);
            let replica = &appender.chains[chain];
            let configuration = replica.configuration();
            for barrier in &mut barriers {
                if barrier.asked != configuration.epoch {
                    // A new member has the records of its predecessors, but perhaps not on stable storage yet.
                    barrier.asked = configuration.epoch;
                    let others = configuration.members.iter().copied().filter(|node| *node != self.me);
                    barrier.left = others.collect();
                }
            }
            let whole = |barrier: &Barrier| barrier.left.is_empty();
            for barrier in barriers.iter().filter(|barrier| whole(barrier)) {
                out.answer(appender.waiters.remove(&barrier.waiter), Ok(()));
            }
            barriers.retain(|barrier| !whole(barrier) && appender.waiters.contains_key(&barrier.waiter));
            appender.members[chain].barriers = barriers;
        }
    }

    /// Repeats the requests of pending barriers.
    pub(crate) fn ask_barriers(&self, appender: &Appender) {
        for (replica, member) in appender.chains.iter().zip(&appender.members) {
            for barrier in &member.barriers {
                for to in &barrier.left {
                    self.tell(*to, replica.chain(), replica.epoch(), ChainAskKind::Persist(barrier.n));
                }
            }
        }
    }
}
