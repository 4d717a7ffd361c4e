//! Waits for other members of chains.
//!
//! Guarantees: every wait ends; each request is answered once.
//! Leaves to others: the messages to those members (`chains`).

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use frieze_base::{ChainId, Fault, Reason};
use frieze_hlc::Hlc;

use crate::chains::WaitReply;
use crate::plane::DataPlane;
use frieze_net::idle_until;

/// Replies when all of a count of results have arrived.
pub struct Gather(Mutex<(usize, Result<(), Fault>, Option<WaitReply>)>);

impl Gather {
    /// Replies after [`Gather::one`] was called `count` times, with the first fault among the results.
    pub fn new(count: usize, reply: WaitReply) -> Arc<Gather> {
        Arc::new(Gather(Mutex::new((count, Ok(()), Some(reply)))))
    }

    /// Adds one result.
    pub fn one(&self, result: Result<(), Fault>) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.0 -= 1;
        if inner.1.is_ok() {
            inner.1 = result;
        }
        if inner.0 == 0
            && let Some(reply) = inner.2.take()
        {
            let result = inner.1.clone();
            drop(inner);
            reply(result);
        }
    }
}

impl DataPlane {
    /// As [`DataPlane::look`], but blocks until the reply.
    ///
    /// # Errors
    /// `Unavailable` if another server has to be asked, or does not answer.
    pub fn look_and_wait(&self, chains: impl Iterator<Item = ChainId>) -> Result<(), Fault> {
        self.await_reply(self.bounds.wait, |reply| self.look(chains, reply))
    }

    /// As [`DataPlane::close_shared`], but blocks until the reply.
    pub(crate) fn close_and_wait(&self, at: Hlc, chains: Option<&BTreeSet<ChainId>>) -> Result<(), Fault> {
        // The records may be on their way to this node's disk.
        self.hurry();
        self.await_reply(self.bounds.wait, |reply| self.close_shared(at, chains, reply))
    }

    /// Brings the state of these chains at `at`, or now, up to date here, within `patience`.
    ///
    /// # Errors
    /// As [`DataPlane::look_and_wait`].
    pub fn learn(&self, chains: &BTreeSet<ChainId>, at: Option<Hlc>, patience: Duration) -> Result<(), Fault> {
        match at {
            None => self.await_reply(patience, |reply| self.look(chains.iter().copied(), reply)),
            Some(at) if self.is_closed(at, Some(chains)) => Ok(()),
            Some(at) => {
                self.hurry();
                self.await_reply(patience, |reply| self.close_shared(at, Some(chains), reply))
            }
        }
    }

    /// Starts an asynchronous request and blocks until its reply.
    pub(crate) fn await_reply(&self, patience: Duration, begin: impl FnOnce(WaitReply)) -> Result<(), Fault> {
        let (done, waiting) = mpsc::sync_channel(1);
        begin(Box::new(move |result| drop(done.send(result))));
        match self.idle.get().and_then(|idle| idle.get()) {
            Some(idle) => idle_until(idle, &|| self.clock.reading().mono, patience, || waiting.try_recv().ok()),
            None => waiting.recv_timeout(patience).ok(),
        }
        .unwrap_or_else(|| Err(no_answer()))
    }
}

pub(crate) fn no_answer() -> Fault {
    Fault::new(Reason::Unavailable, "the chain's other members do not answer just now: try again")
}
