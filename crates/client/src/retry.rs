//! How long a call is retried, and after which errors.

use std::time::Duration;

use frieze_base::{Fault, MonoTime, Reason};
use frieze_net::{ServerAddr, mono};

use crate::Error;
use crate::pool::ConnectionPool;
use crate::route::ServerRoute;
use crate::servers::Servers;

/// The time that a call has left, and the pause before its next attempt.
#[derive(Debug)]
pub(crate) struct RetryBudget {
    pub(crate) began: MonoTime,
    pub(crate) deadline: MonoTime,
    pub(crate) pause: Duration,
    /// Servers that cannot read the bytes asked for, though others of the chain may.
    pub(crate) passed: Vec<ServerAddr>,
    /// The last reason that a server gave. It says more than that the last attempt timed out.
    pub(crate) refused: Option<String>,
}

impl RetryBudget {
    /// A budget from now to `deadline`.
    pub(crate) fn until(deadline: MonoTime) -> RetryBudget {
        RetryBudget { began: mono(), deadline, pause: Duration::ZERO, passed: Vec::new(), refused: None }
    }

    /// Lengthens the pause before the attempt after the next: none before the second, then longer and longer.
    pub(crate) fn back_off(&mut self, is_alone: bool) {
        // Among several servers another one takes over soon after one is lost.
        let longest = match is_alone {
            true => PAUSE_MAX,
            false if self.waited() < SOON => PAUSE_AMONG_SOON,
            false => PAUSE_AMONG_MAX,
        };
        self.pause = (self.pause * 2).clamp(PAUSE_MIN, longest);
    }

    /// True if `error` says that a server cannot read its own copy of a chunk, and another server of the chain was not
    /// tried yet: each has a copy on a disk of its own. Later attempts go to the others.
    pub(crate) fn passes_over(
        &mut self,
        servers: &Servers,
        route: ServerRoute,
        pool: &ConnectionPool,
        error: &Error,
    ) -> bool {
        let is_its_own = |fault: &Fault| matches!(fault.reason, Reason::InputOutput | Reason::Corrupt);
        let address: &ServerAddr = pool.address();
        if !matches!(error, Error::Refused(fault) if is_its_own(fault)) || self.passed.contains(address) {
            return false;
        }
        self.passed.push(address.clone());
        servers.another(route, &self.passed).is_some()
    }

    /// Shortens the budget to `limit` from its beginning.
    pub(crate) fn limit_to(&mut self, limit: Duration) {
        self.deadline = self.deadline.min(MonoTime(self.began.0.saturating_add(limit.as_nanos() as u64)));
    }

    /// The time until the deadline.
    pub(crate) fn left(&self) -> Duration {
        Duration::from_nanos(self.deadline.since_ns(mono()))
    }

    /// The time since the first attempt.
    pub(crate) fn waited(&self) -> Duration {
        Duration::from_nanos(mono().since_ns(self.began))
    }
}

/// True if the server will be able to answer soon.
pub(crate) fn is_transient(fault: &Fault) -> bool {
    matches!(
        fault.reason,
        Reason::FabricFailed
            | Reason::Unavailable
            | Reason::Elsewhere
            | Reason::Overloaded
            | Reason::StaleEpoch
            | Reason::NotYetClosed
    )
}

/// True if the request may succeed on another connection.
pub(crate) fn is_retryable(error: &Error) -> bool {
    match error {
        Error::Refused(fault) => is_transient(fault),
        Error::Transport(error) => match error {
            frieze_net::Error::Frame { fault, .. } => fault.reason != Reason::WrongVersion,
            frieze_net::Error::Address { .. } | frieze_net::Error::Key => false,
            _ => true,
        },
        _ => false,
    }
}

/// Pauses between attempts: short at first, for a server that restarts quickly, then longer.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Among several servers: a leader that was killed has a successor within a tenth of a second.
const SOON: Duration = Duration::from_millis(400);
const PAUSE_AMONG_SOON: Duration = Duration::from_millis(20);
const PAUSE_AMONG_MAX: Duration = Duration::from_millis(80);
