//! How long a call goes on trying, and after which errors.

use std::time::Duration;

use frieze_base::{Fault, MonoTime, Reason};
use frieze_net::{ServerAddr, mono};

use crate::Error;
use crate::call::Shared;
use crate::pool::Pool;
use crate::servers::{Route, Servers};

/// When a call gives up, and how it waits between attempts.
#[derive(Debug)]
pub(crate) struct Patience {
    pub(crate) began: MonoTime,
    pub(crate) deadline: MonoTime,
    pub(crate) pause: Duration,
    /// Servers that cannot read what is asked for, though others of its chain may.
    pub(crate) passed: Vec<ServerAddr>,
    /// What a server last gave as the reason: it says more than that the last attempt ran out of time.
    pub(crate) refused: Option<String>,
}

impl Patience {
    /// Waits before the next attempt: not at all before the second, then longer and longer.
    ///
    /// # Errors
    /// `Unanswered` when the time is over; `Refused` with `WrongCluster` if only servers of another cluster have answered.
    pub(crate) fn wait(&mut self, shared: &Shared, last: Error) -> Result<(), Error> {
        self.deadline = self.deadline.min(shared.ends_at());
        if matches!(last, Error::Refused(_)) {
            self.refused = Some(last.to_string());
        }
        if self.left() <= self.pause {
            if let Some(fault) = shared.another_cluster() {
                return Err(Error::Refused(fault));
            }
            let is_cut_short = matches!(last, Error::Transport(frieze_net::Error::Silent { .. }));
            let answered = self.refused.take().filter(|_| is_cut_short || matches!(last, Error::Refused(_)));
            let (server, waited, refused) = (shared.server(), self.waited(), answered.is_some());
            let last = answered.unwrap_or_else(|| last.to_string());
            return Err(Error::Unanswered { server, waited, last, refused });
        }
        tracing::debug!(error = %last, "asking again");
        shared.pause(self.pause);
        if shared.is_closed() {
            return Err(Error::Closed);
        }
        // Where there are several servers, another one goes on soon after one is lost.
        let longest = match shared.servers.age().is_alone() {
            true => PAUSE_MAX,
            false if self.waited() < SOON => PAUSE_AMONG_SOON,
            false => PAUSE_AMONG_MAX,
        };
        self.pause = (self.pause * 2).clamp(PAUSE_MIN, longest);
        Ok(())
    }

    /// True if `error` says that a server cannot read what it has of a chunk, and another one of the chain was not asked yet: each has
    /// bytes of its own, on a disk of its own. From now on the others are asked.
    pub(crate) fn passes_over(&mut self, servers: &Servers, route: Route, pool: &Pool, error: &Error) -> bool {
        let is_its_own = |fault: &Fault| matches!(fault.reason, Reason::InputOutput | Reason::Corrupt);
        if !matches!(error, Error::Refused(fault) if is_its_own(fault)) || self.passed.contains(pool.address()) {
            return false;
        }
        self.passed.push(pool.address().clone());
        servers.another(route, &self.passed).is_some()
    }

    /// It is given up sooner.
    pub(crate) fn within(&mut self, limit: Duration) {
        self.deadline = self.deadline.min(MonoTime(self.began.0.saturating_add(limit.as_nanos() as u64)));
    }

    /// There was progress: the time begins again.
    pub(crate) fn renew(&mut self, shared: &Shared) {
        *self = shared.patience();
    }

    pub(crate) fn left(&self) -> Duration {
        Duration::from_nanos(self.deadline.since_ns(mono()))
    }

    pub(crate) fn waited(&self) -> Duration {
        Duration::from_nanos(mono().since_ns(self.began))
    }
}

/// True if the server says that it will be able to answer soon.
pub(crate) fn is_passing(fault: &Fault) -> bool {
    matches!(
        fault.reason,
        Reason::Unavailable | Reason::Elsewhere | Reason::Overloaded | Reason::StaleEpoch | Reason::NotYetClosed
    )
}

/// True if the request may be answered on another connection.
pub(crate) fn is_worth_repeating(error: &Error) -> bool {
    match error {
        Error::Refused(fault) => is_passing(fault),
        Error::Transport(error) => match error {
            frieze_net::Error::Frame { fault, .. } => fault.reason != Reason::WrongVersion,
            frieze_net::Error::Address { .. } | frieze_net::Error::Key => false,
            _ => true,
        },
        _ => false,
    }
}

/// Pauses between attempts: short at first, for a server that restarts in a blink, then gentle.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Among several servers: a leader that was killed has a successor within a tenth of a second.
const SOON: Duration = Duration::from_millis(400);
const PAUSE_AMONG_SOON: Duration = Duration::from_millis(20);
const PAUSE_AMONG_MAX: Duration = Duration::from_millis(80);
