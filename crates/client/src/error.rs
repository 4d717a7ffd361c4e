//! What a call can end with.

use std::time::Duration;

use frieze_base::{ErrorKind, Fault, Reason};

/// A call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server refused the request, with its reason.
    #[error("{0}")]
    Refused(Fault),
    /// The server cannot be reached, or the connection failed and a retry does not help.
    #[error(transparent)]
    Transport(frieze_net::Error),
    /// None of several servers can be reached and accepts this caller.
    #[error("none of the servers answers: {}", said(tried))]
    NoneAnswers {
        /// Each server tried, in order, and its error.
        tried: Vec<(String, String)>,
        /// Reason of the last one.
        reason: Reason,
    },
    /// The server did not answer in time, in spite of retries. A change may or may not have happened.
    #[error("{}{last}", unanswered(server, *waited, *refused))]
    Unanswered {
        /// The server.
        server: String,
        /// How long the call waited.
        waited: Duration,
        /// The last error.
        last: String,
        /// True if the last error is the reply of a server, which could not serve the request yet.
        refused: bool,
    },
    /// Every connection was busy for the whole time.
    #[error(
        "all {connections_max} connections to {server} were busy for {:.1} s: raise connections_max or the timeout",
        waited.as_secs_f64()
    )]
    Busy {
        /// The server.
        server: String,
        /// The limit of open connections.
        connections_max: usize,
        /// How long the call waited.
        waited: Duration,
    },
    /// The reply is of another kind than the request asks for.
    #[error("frieze server at {server} answered {found} to {asked}: is it of another version?")]
    Protocol {
        /// The server.
        server: String,
        /// The kind of the request.
        asked: &'static str,
        /// The kind of the reply.
        found: String,
    },
    /// The text is not an instant.
    #[error(transparent)]
    Instant(#[from] frieze_hlc::Error),
    /// A change was requested through a view of the past.
    #[error("the past cannot be changed: {what} asked of a view of an earlier instant")]
    PastView {
        /// The change.
        what: &'static str,
    },
    /// The file was not opened for this.
    #[error("the file was not opened for {what}")]
    NotOpenFor {
        /// `reading` or `writing`.
        what: &'static str,
    },
    /// An append is one request, so that it is atomic.
    #[error(
        "an append of {len} bytes is larger than the {max} bytes that are appended as one: write in smaller appends"
    )]
    AppendTooLarge {
        /// Bytes given.
        len: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// A write to a file with user time is one record, so it is not split.
    #[error("a record of {len} bytes is larger than the {max} bytes that a record with user time may have")]
    RecordTooLarge {
        /// Bytes given.
        len: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// The range ends beyond 2^63 - 1, the largest offset there is.
    #[error("offset {offset} with {len} bytes ends beyond the largest file")]
    OffsetTooLarge {
        /// Offset.
        offset: u64,
        /// Length.
        len: u64,
    },
    /// The client was closed.
    #[error("the client was closed")]
    Closed,
    /// The program's own source or sink of a stream failed.
    #[error("{0}")]
    Program(String),
}

impl Error {
    /// The reason, for programs.
    pub fn reason(&self) -> Reason {
        match self {
            Error::Refused(fault) => fault.reason,
            Error::Transport(error) => error.reason(),
            Error::NoneAnswers { reason, .. } => *reason,
            Error::Unanswered { .. } | Error::Closed => Reason::Unavailable,
            Error::Busy { .. } => Reason::Overloaded,
            Error::Protocol { .. } => Reason::BadFrame,
            Error::Instant(error) => error.reason(),
            Error::PastView { .. } => Reason::ReadOnly,
            // POSIX has EBADF for it, which no server ever answers: a gateway checks its own modes.
            Error::NotOpenFor { .. } => Reason::AccessDenied,
            Error::AppendTooLarge { .. } | Error::RecordTooLarge { .. } | Error::OffsetTooLarge { .. } => {
                Reason::TooLarge
            }
            Error::Program(_) => Reason::InputOutput,
        }
    }

    /// What the caller does next.
    pub fn kind(&self) -> ErrorKind {
        self.reason().kind()
    }
}

/// The text before the error of the last attempt.
fn unanswered(server: &str, waited: Duration, refused: bool) -> String {
    let waited = waited.as_secs_f64();
    match refused {
        true => format!("it could not be done within {waited:.1} s; the last answer: "),
        false => format!("frieze server at {server} has not answered for {waited:.1} s: "),
    }
}

fn said(tried: &[(String, String)]) -> String {
    tried.iter().map(|(server, why)| format!("{server}: {why}")).collect::<Vec<_>>().join("; ")
}

impl From<frieze_net::Error> for Error {
    fn from(error: frieze_net::Error) -> Error {
        match error {
            frieze_net::Error::Refused(fault) => Error::Refused(fault),
            other => Error::Transport(other),
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        match error {
            Error::Refused(fault) => fault,
            other => Fault::new(other.reason(), other.to_string()),
        }
    }
}
