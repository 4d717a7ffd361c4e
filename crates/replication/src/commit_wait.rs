//! Waits for other members of chains.
//!
//! Guarantees: every wait ends.
//! Leaves to others: the messages to those members (`reads`).

use std::collections::BTreeSet;
use std::sync::mpsc;
use std::time::Duration;

use frieze_base::{ChainId, Fault};
use frieze_hlc::Hlc;
use frieze_net::idle_until;

use crate::chain_state::ResultCallback;
use crate::fault::no_answer;
use crate::plane::DataPlane;

impl DataPlane {
    /// As [`DataPlane::query_tails`], but blocks until the reply.
    ///
    /// # Errors
    /// `Unavailable` if another server has to be asked, or does not answer.
    pub fn await_tails(&self, chains: impl Iterator<Item = ChainId>) -> Result<(), Fault> {
        self.await_reply(self.bounds.wait, |reply| self.query_tails(chains, reply))
    }

    /// As [`DataPlane::close_shared`], but blocks until the reply.
    pub(crate) fn close_and_wait(&self, at: Hlc, chains: Option<&BTreeSet<ChainId>>) -> Result<(), Fault> {
        // The records may be on their way to this node's disk.
        self.flush_soon();
        self.await_reply(self.bounds.wait, |reply| self.close_shared(at, chains, reply))
    }

    /// Brings the state of these chains at `at`, or now, up to date here, within `patience`.
    ///
    /// # Errors
    /// As [`DataPlane::await_tails`].
    pub fn refresh(&self, chains: &BTreeSet<ChainId>, at: Option<Hlc>, patience: Duration) -> Result<(), Fault> {
        match at {
            None => self.await_reply(patience, |reply| self.query_tails(chains.iter().copied(), reply)),
            Some(at) if self.is_closed(at, Some(chains)) => Ok(()),
            Some(at) => {
                self.flush_soon();
                self.await_reply(patience, |reply| self.close_shared(at, Some(chains), reply))
            }
        }
    }

    /// Starts an asynchronous request and blocks until its reply.
    pub(crate) fn await_reply(&self, patience: Duration, begin: impl FnOnce(ResultCallback)) -> Result<(), Fault> {
        let (done, waiting) = mpsc::sync_channel(1);
        begin(Box::new(move |result| drop(done.send(result))));
        match self.idle.get().and_then(|idle| idle.get()) {
            Some(idle) => idle_until(idle, &|| self.clock.reading().mono, patience, || waiting.try_recv().ok()),
            None => waiting.recv_timeout(patience).ok(),
        }
        .unwrap_or_else(|| Err(no_answer()))
    }
}
