//! Changes of metadata that decide what bytes are (a truncate, a restore, the end of a session), ordered among the
//! writes of the chains that they affect.
//!
//! Guarantees: when a change has been ordered, its chains stamp nothing at or below it any more, whichever member
//! becomes head, and their heads place later writes by the state after it. So a change never hides a write that begins
//! after the change was acknowledged, however slow the clock of a head. Writes acknowledged before lie below the
//! change, for the node that stamps it has adopted the stamps of all of them. Leaves to others: the set of chains, and
//! execution of the change here (`metadata`).
//!
//! The node that orders a change asks the heads, and repeats that with every tick, until each has replied. A head
//! replies when it has executed the entry (earlier requests are dropped before this module) and every member that may
//! become head knows of the promise.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use frieze_base::{ChainId, Fault, LogIndex, NodeId};
use frieze_chain::ReplicaInput;
use frieze_hlc::Hlc;
use frieze_wire::peer::{ChainAskKind, CloseAfter};

use crate::appender::Appender;
use crate::chain_state::{DeferredWork, NOBODY, OrderedChange, Requester, ResultCallback};
use crate::gather::Gather;
use crate::plane::DataPlane;

impl DataPlane {
    /// Orders a change stamped `at`, entry `entry` of the metalog, which this node has executed, among the writes of
    /// these chains, and waits for it.
    ///
    /// # Errors
    /// `Unavailable` if a head does not answer: retry.
    pub fn order_change(&self, at: Hlc, entry: LogIndex, chains: &BTreeSet<ChainId>) -> Result<(), Fault> {
        self.await_reply(self.bounds.wait, |reply| self.order_change_then(at, entry, chains, reply))
    }

    /// The same, and calls `reply` when it is done.
    pub fn order_change_then(&self, at: Hlc, entry: LogIndex, chains: &BTreeSet<ChainId>, reply: ResultCallback) {
        if chains.is_empty() {
            return reply(Ok(()));
        }
        if let Err(fault) = self.clock.adopt(at) {
            return reply(Err(fault));
        }
        let mut out = DeferredWork::default();
        let mut appender = self.lock_appender();
        let gather = Gather::new(chains.len(), reply);
        let after = CloseAfter { at: at.0, entry: entry.0 };
        for &chain in chains {
            let waiter = self.add_waiter(&mut appender, chain, gather.clone());
            let since = self.clock.reading().mono;
            appender.states[chain.0 as usize].ordered.push(OrderedChange {
                after,
                requester: Requester::Local(waiter),
                since,
            });
            self.advance_ordered(&mut appender, chain, &mut out);
        }
        drop(appender);
        self.run_deferred(out);
    }

    /// Returns a stamp: the log here has every record of these chains up to it, committed, and no other.
    ///
    /// # Errors
    /// `Elsewhere` if this node does not have everything that was acknowledged.
    pub fn complete_upto(&self, chains: &BTreeSet<ChainId>) -> Result<Hlc, Fault> {
        let appender = self.lock_appender();
        let now = self.clock.newest();
        let mut complete = now;
        for &chain in chains {
            let (replica, state) = (&appender.chains[chain.0 as usize], &appender.states[chain.0 as usize]);
            if state.shared && !replica.has_all_acknowledged() {
                return Err(frieze_chain::Error::NotMember { chain }.into());
            }
            // If another node is head, it may have stamped records above the newest one here that have not arrived yet.
            let known = if replica.is_head() { now } else { replica.newest().max(replica.closed()) };
            complete = complete.min(known).min(replica.now_cut());
        }
        Ok(complete)
    }

    /// True if this node knows that these chains stamp nothing at or below `at` any more.
    pub fn has_closed(&self, at: Hlc, chains: &BTreeSet<ChainId>) -> bool {
        let appender = self.lock_appender();
        let remembered = |chain: &ChainId| self.views.closed_before_start[chain.0 as usize].load(Ordering::SeqCst);
        chains.iter().all(|chain| appender.chains[chain.0 as usize].closed().0.max(remembered(chain)) >= at.0)
    }

    /// Node `from` asks this one, its head by its configuration, to close a change that this one has executed.
    pub(crate) fn on_close_after(
        &self,
        from: NodeId,
        chain: ChainId,
        after: CloseAfter,
        out: &mut DeferredWork,
    ) -> Result<(), Fault> {
        self.clock.adopt(Hlc(after.at))?;
        let mut appender = self.lock_appender();
        // Two nodes may take each other for the head, one of them by an old configuration. If each repeated its own
        // request on every request it receives, the messages would multiply without end. A node repeats with its tick.
        if !appender.states[chain.0 as usize].shared || !appender.chains[chain.0 as usize].is_head() {
            return Ok(());
        }
        let requester = Requester::Node(from);
        let since = self.clock.reading().mono;
        let ordered = &mut appender.states[chain.0 as usize].ordered;
        // A repeated request, or one for a later change.
        ordered.retain(|asked| asked.requester != requester || asked.after > after);
        if ordered.len() < ORDERED_MAX {
            ordered.push(OrderedChange { after, requester, since });
        }
        self.advance_ordered(&mut appender, chain, out);
        Ok(())
    }

    /// The head has closed a change.
    pub(crate) fn on_closed_after(&self, chain: ChainId, after: CloseAfter, out: &mut DeferredWork) {
        let mut appender = self.lock_appender();
        let Appender { states, waiters, .. } = &mut *appender;
        states[chain.0 as usize].ordered.retain(|asked| match asked.requester {
            Requester::Local(waiter) if asked.after.at <= after.at && asked.after.entry <= after.entry => {
                out.answer(waiters.remove(&waiter), Ok(()));
                false
            }
            _ => true,
        });
    }

    /// Advances the changes that a chain is to close: closes them at its head, or asks the head.
    pub(crate) fn advance_ordered(&self, appender: &mut Appender, chain: ChainId, out: &mut DeferredWork) {
        let now = self.clock.reading().mono;
        let wait_ns = self.bounds.wait.as_nanos() as u64;
        let Appender { chains, states, waiters, .. } = &mut *appender;
        let (replica, state) = (&chains[chain.0 as usize], &mut states[chain.0 as usize]);
        let is_head = replica.is_head();
        state.ordered.retain(|asked| match asked.requester {
            Requester::Local(waiter) => waiters.contains_key(&waiter),
            // The node that asked repeats its request at the new head.
            Requester::Node(_) => is_head && now.since_ns(asked.since) < wait_ns,
        });
        let Some(newest) = state.ordered.iter().map(|asked| asked.after).max_by_key(|after| after.at) else { return };
        if is_head {
            if replica.promised() < Hlc(newest.at) {
                self.step(appender, chain, ReplicaInput::Close { request: NOBODY, at: Hlc(newest.at) }, out);
            }
            return self.reply_ordered(appender, chain, out);
        }
        let (epoch, head) = (replica.epoch(), replica.configuration().head());
        for after in state.ordered.iter().map(|asked| asked.after) {
            if let Some(head) = head {
                self.send_ask(head, chain, epoch, ChainAskKind::CloseAfter(after));
            }
        }
    }

    /// Replies to the nodes that wait for a change that the head here has closed.
    pub(crate) fn reply_ordered(&self, appender: &mut Appender, chain: ChainId, out: &mut DeferredWork) {
        let Appender { chains, states, waiters, .. } = &mut *appender;
        let (replica, state) = (&chains[chain.0 as usize], &mut states[chain.0 as usize]);
        if !replica.is_head() || state.ordered.is_empty() {
            return;
        }
        if state.shared && !self.lease.holds(self.clock.reading().mono) {
            // Another node may be head, and have stamped below it.
            return;
        }
        let (closed, epoch) = (replica.closed(), replica.epoch());
        state.ordered.retain(|asked| {
            let is_closed = Hlc(asked.after.at) <= closed;
            match asked.requester {
                Requester::Local(waiter) if is_closed => out.answer(waiters.remove(&waiter), Ok(())),
                Requester::Node(to) if is_closed => {
                    self.send_ask(to, chain, epoch, ChainAskKind::ClosedAfter(asked.after))
                }
                _ => {}
            }
            !is_closed
        });
    }
}

/// Most changes that nodes ask one chain to close at a time: one per node, and nodes are few.
const ORDERED_MAX: usize = 1024;
