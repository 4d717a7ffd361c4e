//! Why a replica refuses.

use frieze_base::{ChainEpoch, ChainId, ErrorKind, Fault, NodeId, Reason, Seq, SessionId};
use frieze_hlc::{Hlc, UserTime};

/// A refused request, or a record that recovery cannot take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The sender knows an older configuration.
    #[error(
        "chain {chain} is at epoch {current}, the request was made for epoch {found}: take the new one and send again"
    )]
    StaleEpoch {
        /// The chain.
        chain: ChainId,
        /// Its epoch here.
        current: ChainEpoch,
        /// The request's.
        found: ChainEpoch,
    },
    /// The sender knows a newer configuration than this replica.
    #[error(
        "chain {chain} is at epoch {current} here and at {found} elsewhere: send again when this server has caught up"
    )]
    Behind {
        /// The chain.
        chain: ChainId,
        /// Its epoch here.
        current: ChainEpoch,
        /// The request's.
        found: ChainEpoch,
    },
    /// Writes enter at the head.
    #[error(
        "the head of chain {chain} is {}, not this server: look up the chain's members and send the write there",
        server_or_none(head)
    )]
    NotHead {
        /// The chain.
        chain: ChainId,
        /// Its head.
        head: Option<NodeId>,
    },
    /// Reads are answered by members.
    #[error(
        "this server is not one of chain {chain}'s just now: ask for the chain's members and read from one of them"
    )]
    NotMember {
        /// The chain.
        chain: ChainId,
    },
    /// A write without a session or a number cannot be distinguished from its retry.
    #[error("a write needs a session and a request number, got session {session} and number {seq}")]
    Unnumbered {
        /// The session given.
        session: SessionId,
        /// The number given.
        seq: Seq,
    },
    /// A write of no bytes.
    #[error("a record holds at least one byte")]
    Empty,
    /// The number lies before those that are remembered.
    #[error("request {seq} of session {session} is too old: numbers below {floor} are no longer remembered")]
    SequenceTooOld {
        /// The session.
        session: SessionId,
        /// The number given.
        seq: Seq,
        /// Smallest number that is remembered.
        floor: Seq,
    },
    /// The sender's newest known stamp is so far ahead that the clock here does not adopt it.
    #[error("the request has seen {seen}, beyond the stamp {stamp} of this server's clock")]
    SeenFuture {
        /// The sender's newest known stamp.
        seen: Hlc,
        /// The fresh tick here.
        stamp: Hlc,
    },
    /// The instant to close lies above the clock.
    #[error("{at} cannot be closed: it lies above this server's clock {clock}")]
    CloseFuture {
        /// The instant.
        at: Hlc,
        /// The reading here.
        clock: Hlc,
    },
    /// The data runs backwards in its own time.
    #[error("the record at byte {file_offset} has user time {found}, before {newest}, the newest of the file")]
    BackwardUserTime {
        /// First byte of the record in the file.
        file_offset: u64,
        /// Its user time.
        found: UserTime,
        /// The newest user time of the file.
        newest: UserTime,
    },
    /// A limit of [`crate::Settings`] is reached.
    #[error("too many {what}: {max} at most; send again later")]
    Overloaded {
        /// The items counted.
        what: &'static str,
        /// The limit.
        max: u64,
    },
    /// The record could not be appended.
    #[error("the record could not be written: {}", reason.words())]
    AppendFailed {
        /// From the driver.
        reason: Reason,
    },
    /// The device failed, now or before.
    #[error(
        "the device of chain {chain} has failed ({}): nothing is written until the server has been restarted",
        reason.words()
    )]
    DeviceFailed {
        /// The chain.
        chain: ChainId,
        /// From the driver.
        reason: Reason,
    },
    /// A recovered record does not lie after the one before it.
    #[error("chain {chain}: record {n} stamped {stamp} follows record {last_n} stamped {last_stamp}")]
    OutOfOrder {
        /// The chain.
        chain: ChainId,
        /// Number of the record.
        n: u64,
        /// Its stamp.
        stamp: Hlc,
        /// Number of the one before.
        last_n: u64,
        /// Stamp of the one before.
        last_stamp: Hlc,
    },
}

impl Error {
    /// Why, as doors map it.
    pub fn reason(&self) -> Reason {
        match self {
            Error::StaleEpoch { .. } => Reason::StaleEpoch,
            Error::Behind { .. } => Reason::Unavailable,
            Error::NotHead { .. } | Error::NotMember { .. } => Reason::Elsewhere,
            Error::Unnumbered { .. } | Error::Empty => Reason::InvalidArgument,
            Error::SequenceTooOld { .. } => Reason::SequenceTooOld,
            Error::SeenFuture { .. } | Error::CloseFuture { .. } => Reason::Future,
            Error::BackwardUserTime { .. } => Reason::BackwardUserTime,
            Error::Overloaded { .. } => Reason::Overloaded,
            Error::AppendFailed { reason } | Error::DeviceFailed { reason, .. } => *reason,
            Error::OutOfOrder { .. } => Reason::Corrupt,
        }
    }

    /// The class of the error, by the caller's next action.
    pub fn kind(&self) -> ErrorKind {
        self.reason().kind()
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault::new(error.reason(), error.to_string())
    }
}

fn server_or_none(head: &Option<NodeId>) -> String {
    head.map_or_else(|| "no server at the moment".to_owned(), |head| format!("server {head}"))
}
