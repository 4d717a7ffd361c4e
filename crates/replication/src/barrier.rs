//! Barriers: every acknowledged record of this node's chains is on stable storage at every member.

use std::collections::BTreeSet;

use frieze_base::{ChainEpoch, ChainId, Fault, NodeId, Reason};
use frieze_wire::peer::ChainAskKind;

use crate::appender::Appender;
use crate::chain_state::ResultCallback;
use crate::chain_state::{Barrier, DeferredWork, PendingReply};
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
    pub fn barrier(&self, named: Option<&BTreeSet<ChainId>>, reply: ResultCallback) {
        let mut out = DeferredWork::default();
        let mut appender = self.lock_appender();
        let mut asks: Vec<(ChainId, ChainEpoch, u64, Vec<NodeId>)> = Vec::new();
        for (replica, state) in appender.chains.iter().zip(&appender.states) {
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
            if state.shared && configuration.holds(self.me) && !others.is_empty() && replica.last() > 0 {
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
            let reply: ResultCallback = Box::new(move |result| gather.add(result));
            appender.waiters.insert(id, PendingReply { chain, since, reply });
            let state = &mut appender.states[chain.0 as usize];
            state.barriers.push(Barrier { n, left: others.clone(), asked: epoch, waiter: id });
            for to in others {
                self.send_ask(to, chain, epoch, ChainAskKind::Persist(n));
            }
        }
        self.answer_barriers(&mut appender, &mut out);
        drop(appender);
        self.run_deferred(out);
    }

    /// A member asks for records up to `n` on stable storage here.
    pub(crate) fn on_persist_request(
        &self,
        from: NodeId,
        chain: ChainId,
        epoch: ChainEpoch,
        n: u64,
        out: &mut DeferredWork,
    ) {
        let mut appender = self.lock_appender();
        let replica = &appender.chains[chain.0 as usize];
        // If a record is missing here, the member asks again with its next tick.
        if replica.epoch() != epoch || !replica.configuration().holds(from) || replica.last() < n {
            return;
        }
        let end = self.device.log().end();
        let state = &mut appender.states[chain.0 as usize];
        let wanted = state.persisting.entry(from).or_insert((n, end));
        *wanted = (*wanted).max((n, end));
        out.flush = Some((end, 0));
    }

    /// A member has records up to `n` on stable storage.
    pub(crate) fn on_persisted_report(
        &self,
        from: NodeId,
        chain: ChainId,
        epoch: ChainEpoch,
        n: u64,
        out: &mut DeferredWork,
    ) {
        let mut appender = self.lock_appender();
        if appender.chains[chain.0 as usize].epoch() != epoch {
            return;
        }
        for barrier in &mut appender.states[chain.0 as usize].barriers {
            if barrier.n <= n {
                barrier.left.retain(|node| *node != from);
            }
        }
        self.answer_barriers(&mut appender, out);
    }

    /// Everything up to `through` is on stable storage here: sends `Persisted` to the members that asked for it.
    pub(crate) fn send_persisted(&self, appender: &mut Appender, through: frieze_multilog::LogPosition) {
        for (replica, state) in appender.chains.iter().zip(&mut appender.states) {
            let (chain, epoch) = (replica.chain(), replica.epoch());
            state.persisting.retain(|to, (n, end)| {
                let waits = *end > through;
                if !waits {
                    self.send_ask(*to, chain, epoch, ChainAskKind::Persisted(*n));
                }
                waits
            });
        }
    }

    /// Answers barriers for which every member has replied, and asks again where the membership changed. Called
    /// periodically.
    pub(crate) fn answer_barriers(&self, appender: &mut Appender, out: &mut DeferredWork) {
        for chain in 0..appender.states.len() {
            let mut barriers = std::mem::take(&mut appender.states[chain].barriers);
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
            appender.states[chain].barriers = barriers;
        }
    }

    /// Repeats the requests of pending barriers.
    pub(crate) fn resend_barriers(&self, appender: &Appender) {
        for (replica, state) in appender.chains.iter().zip(&appender.states) {
            for barrier in &state.barriers {
                for to in &barrier.left {
                    self.send_ask(*to, replica.chain(), replica.epoch(), ChainAskKind::Persist(barrier.n));
                }
            }
        }
    }
}
