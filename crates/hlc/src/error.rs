//! What can go wrong with time.

use frieze_base::{ErrorKind, Fault, Reason};

use crate::fence::Fence;
use crate::format::format_instant;
use crate::stamp::Hlc;

/// Why the clock gave no stamp, or a text is no instant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The clock is not trusted now: reads go on, stamps are refused until it is well again, which it finds by itself.
    #[error("the server's clock is not trusted, so it serves reads only: {0}")]
    Fenced(Fence),
    /// The stamp would lie above the persisted bound. The driver makes this bound durable, reports it with
    /// [`crate::HlcClock::bound_persisted`] and asks again; the caller of the server never sees this error.
    #[error("the clock's bound must be made durable up to {0} first")]
    BoundNeeded(Hlc),
    /// A remote stamp lies too far ahead to be believed; it was not adopted.
    #[error(
        "a stamp of another process ({remote}, {}) lies {ahead_us} us ahead of this server's clock; at most \
         {max_us} us are accepted: check the clocks of both machines",
        format_instant(*remote)
    )]
    RemoteAhead {
        /// The stamp that was refused.
        remote: Hlc,
        /// How far it lies above the wall clock, in microseconds.
        ahead_us: u64,
        /// How far it may lie ahead.
        max_us: u64,
    },
    /// The instant asked for has not come yet.
    #[error(
        "{asked} ({}) lies in the future: the newest instant that can be read now is {newest} ({})",
        format_instant(*asked), format_instant(*newest)
    )]
    Future {
        /// The instant asked for.
        asked: Hlc,
        /// The newest that would be answered.
        newest: Hlc,
    },
    /// The text names no instant.
    #[error("{text:?} is not an instant: {wrong}; {instead}")]
    NotInstant {
        /// What was written, cut where it is very long.
        text: String,
        /// What is wrong with it.
        wrong: String,
        /// What to write instead.
        instead: String,
    },
    /// The text names no user time.
    #[error("{text:?} is not a user time: {wrong}; {instead}")]
    NotUserTime {
        /// What was written, cut where it is very long.
        text: String,
        /// What is wrong with it.
        wrong: String,
        /// What to write instead.
        instead: String,
    },
    /// The text cannot name a snapshot.
    #[error("{text:?} cannot name a snapshot: {wrong}; {instead}")]
    NotSnapshotName {
        /// What was written, cut where it is very long.
        text: String,
        /// What is wrong with it.
        wrong: String,
        /// What to write instead.
        instead: String,
    },
}

impl Error {
    /// What the caller does next.
    pub fn kind(&self) -> ErrorKind {
        self.reason().kind()
    }

    /// Why, for programs.
    pub fn reason(&self) -> Reason {
        match self {
            Error::Fenced(_) => Reason::Fenced,
            Error::BoundNeeded(_) => Reason::Unavailable,
            Error::RemoteAhead { .. } | Error::Future { .. } => Reason::Future,
            Error::NotInstant { .. } | Error::NotUserTime { .. } => Reason::InvalidInstant,
            Error::NotSnapshotName { .. } => Reason::InvalidArgument,
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault::new(error.reason(), error.to_string())
    }
}
