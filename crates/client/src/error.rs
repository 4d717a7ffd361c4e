//! What a call can end with.

use std::time::Duration;

use frieze_base::{ErrorKind, Fault, Reason};

/// A call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server answered that it cannot be done, and why.
    #[error("{0}")]
    Refused(Fault),
    /// The server cannot be reached, or the connection failed in a way that sending again does not mend.
    #[error(transparent)]
    Transport(#[from] frieze_net::Error),
    /// None of several servers can be reached, or takes this caller.
    #[error("none of the servers answers: {}", said(tried))]
    NoneAnswers {
        /// Each that was asked, in turn, and why it is not that one.
        tried: Vec<(String, String)>,
        /// Of the last one.
        reason: Reason,
    },
    /// The server did not answer in time, though it was asked again and again. A change may or may not have happened.
    #[error("{}{last}", unanswered(server, *waited, *refused))]
    Unanswered {
        /// The server.
        server: String,
        /// How long was waited.
        waited: Duration,
        /// What went wrong last.
        last: String,
        /// True if that is what a server answered: it is there, and could not do it yet.
        refused: bool,
    },
    /// Every connection was busy for the whole time.
    #[error("all {connections_max} connections to {server} were busy for {:.1} s: raise connections_max or the timeout", waited.as_secs_f64())]
    Busy {
        /// The server.
        server: String,
        /// How many connections there may be.
        connections_max: usize,
        /// How long was waited.
        waited: Duration,
    },
    /// The server's answer is not one to what was asked.
    #[error("frieze server at {server} answered {found} to {asked}: is it of another version?")]
    Protocol {
        /// The server.
        server: String,
        /// What was asked.
        asked: &'static str,
        /// What came.
        found: String,
    },
    /// The text is not an instant.
    #[error(transparent)]
    Instant(#[from] frieze_hlc::Error),
    /// A change was asked of a view of the past.
    #[error("the past cannot be changed: {what} asked of a view of an earlier instant")]
    PastView {
        /// What was asked.
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
    /// Why, for programs.
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
            // POSIX has EBADF for it, which no server ever answers: a door keeps its own modes.
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

/// What goes before the words of the last attempt.
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

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        match error {
            Error::Refused(fault) => fault,
            other => Fault::new(other.reason(), other.to_string()),
        }
    }
}
