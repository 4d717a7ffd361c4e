//! Reads of chains: asking the tail for the newest commit, closing instants, and whether this node may answer at all.
//!
//! Guarantees: every wait for other members ends (`tick`); without a lease this node answers nothing about now. Leaves
//! to others: what is published to readers (`visibility`), blocking waits (`commit_wait`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use frieze_base::{ChainId, Fault, Reason};
use frieze_chain::{Moment, ReplicaEffect, ReplicaInput, RequestId};
use frieze_hlc::Hlc;

use crate::appender::Appender;
use crate::chain_state::{DeferredWork, PendingReply, ResultCallback, WAITER};
use crate::chain_view::LocalRead;
use crate::fault::no_lease;
use crate::gather::Gather;
use crate::plane::DataPlane;

impl DataPlane {
    /// Brings [`DataPlane::cuts`] up to everything that was committed of these chains at the time of the call, then
    /// calls `reply`.
    pub(crate) fn query_tails(&self, chains: impl Iterator<Item = ChainId>, reply: ResultCallback) {
        let asks: Vec<ChainId> = chains.filter(|chain| self.has_to_query_tail(std::iter::once(*chain))).collect();
        if asks.is_empty() {
            return reply(Ok(()));
        }
        let mut out = DeferredWork::default();
        let mut appender = self.lock_appender();
        let gather = Gather::new(asks.len(), reply);
        for chain in asks {
            let request = self.wait(&mut appender, chain, gather.clone());
            self.step(&mut appender, chain, ReplicaInput::QueryTail { request }, &mut out);
        }
        drop(appender);
        self.run_deferred(out);
    }

    /// Closes the chains of this node at `at`, and calls `reply` when every record up to `at` that this node has is
    /// committed.
    pub(crate) fn close_shared(&self, at: Hlc, named: Option<&BTreeSet<ChainId>>, reply: ResultCallback) {
        let mut out = DeferredWork::default();
        let mut appender = self.lock_appender();
        if let Err(fault) = self.clock.close(at) {
            drop(appender);
            return reply(Err(fault));
        }
        let now = self.clock.reading().mono;
        let mut open = Vec::new();
        let Appender { chains, states, .. } = &mut *appender;
        for (chain, (replica, state)) in chains.iter().zip(states).enumerate() {
            let is_asked = named.is_none_or(|named| named.contains(&replica.chain()));
            let is_here = is_asked && (!state.shared || replica.configuration().holds(self.me));
            if is_here {
                state.read_at = Some(now);
            }
            if is_here && !replica.is_readable_at(at) {
                open.push(ChainId(chain as u32));
            }
        }
        if open.is_empty() {
            drop(appender);
            return reply(Ok(()));
        }
        let gather = Gather::new(open.len(), reply);
        for chain in open {
            appender.states[chain.0 as usize].asked_at = Some(now);
            let request = self.wait(&mut appender, chain, gather.clone());
            self.step(&mut appender, chain, ReplicaInput::Close { request, at }, &mut out);
        }
        drop(appender);
        self.run_deferred(out);
    }

    /// Promises that nothing will be stamped at or below `at` any more. True if that was so before the call.
    ///
    /// # Errors
    /// `Future` if `at` lies ahead; `NotYetClosed` if records up to it are not committed: flush and retry.
    pub fn close(&self, at: Hlc) -> Result<bool, Fault> {
        self.close_of(at, None)
    }

    /// The same for these chains, as far as this node can; for all chains if `chains` is `None`.
    ///
    /// # Errors
    /// As [`DataPlane::close`]; `Unavailable` if other members do not answer.
    pub fn close_of(&self, at: Hlc, chains: Option<&BTreeSet<ChainId>>) -> Result<bool, Fault> {
        if self.is_shared() {
            return match self.is_closed(at, chains) {
                true => Ok(true),
                false => self.close_and_wait(at, chains).map(|()| false),
            };
        }
        if self.is_closed(at, None) {
            return Ok(true);
        }
        let mut appender = self.lock_appender();
        self.clock.close(at)?;
        let moment = Moment { mono: self.clock.reading().mono, hlc: self.clock.newest() };
        let mut effects = Vec::new();
        let mut closed = true;
        for chain in &mut appender.chains {
            if !chain.is_readable_at(at) {
                effects.clear();
                chain.step(moment, ReplicaInput::Close { request: RequestId(0), at }, &mut effects);
                closed &= effects
                    .iter()
                    .any(|effect| matches!(effect, ReplicaEffect::Closed { at: done, .. } if *done == at));
            }
        }
        self.publish_cuts(&appender, (0..appender.chains.len() as u32).map(ChainId));
        if !closed {
            return Err(Fault::new(Reason::NotYetClosed, format!("records up to {at} are still on their way to disk")));
        }
        self.closed.fetch_max(at.0, Ordering::AcqRel);
        Ok(false)
    }

    /// The newest instant closed on every chain.
    pub fn closed(&self) -> Hlc {
        self.closed.fetch_max(self.closed_here().0, Ordering::AcqRel);
        Hlc(self.closed.load(Ordering::Acquire))
    }

    /// True if reads at `at` of this node's chains do not change any more.
    pub(crate) fn is_closed(&self, at: Hlc, chains: Option<&BTreeSet<ChainId>>) -> bool {
        match chains {
            Some(chains) => {
                chains.iter().all(|chain| at.0 <= self.views.closed[chain.0 as usize].load(Ordering::SeqCst))
            }
            None => at <= self.closed_here(),
        }
    }

    /// The newest instant closed on all of them.
    pub(crate) fn closed_here(&self) -> Hlc {
        let chains = (0..self.views.closed.len()).map(|chain| ChainId(chain as u32));
        let here = chains
            .filter(|chain| self.views.local_read(*chain) != LocalRead::NotMember || self.has_closed_record(*chain));
        let closed = here.map(|chain| self.views.closed[chain.0 as usize].load(Ordering::SeqCst));
        Hlc(closed.min().unwrap_or(0))
    }

    fn wait(&self, appender: &mut Appender, chain: ChainId, gather: Arc<Gather>) -> RequestId {
        RequestId(WAITER | self.add_waiter(appender, chain, gather))
    }

    pub(crate) fn add_waiter(&self, appender: &mut Appender, chain: ChainId, gather: Arc<Gather>) -> u64 {
        let id = appender.next_waiter;
        appender.next_waiter += 1;
        let since = self.clock.reading().mono;
        let reply: ResultCallback = Box::new(move |result| gather.add(result));
        appender.waiters.insert(id, PendingReply { chain, since, reply });
        id
    }

    /// True if this node may answer for its chains of several members. Checked after the answer was read.
    ///
    /// # Errors
    /// `Unavailable` without a lease.
    pub fn check_lease(&self) -> Result<(), Fault> {
        if !self.lease.holds(self.clock.reading().mono) {
            return Err(no_lease());
        }
        Ok(())
    }

    /// Checks that a chunk of this chain can be read here at `at`, or now.
    ///
    /// # Errors
    /// `Unavailable` if the records have to come from other members.
    pub fn check_here(&self, chain: ChainId, at: Option<Hlc>) -> Result<(), Fault> {
        let local_read = self.views.local_read(chain);
        let here = match at {
            None => local_read != LocalRead::NotMember,
            Some(at) => {
                local_read == LocalRead::Sole || at.0 <= self.views.closed[chain.0 as usize].load(Ordering::SeqCst)
            }
        };
        if here {
            return Ok(());
        }
        Err(frieze_chain::Error::NotMember { chain }.into())
    }
}
