//! Errors of opening the console, and refusals of requests.

use std::io;

use frieze_base::{ErrorKind, Reason};
use hyper::StatusCode;

/// Why the console cannot open.
#[derive(Debug, thiserror::Error)]
pub enum ConsoleError {
    /// The build had no Node.
    #[error("this frieze was built without its console: build it where there are Node and npm, or leave --console out")]
    NotBuilt,
    /// The address is invalid, or cannot be listened on.
    #[error("cannot listen for browsers on {address}: {source}")]
    Listen {
        /// As configured.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// The address is reachable from other machines.
    #[error(
        "refusing to listen for browsers on {address}: what they send and see is not encrypted; listen on 127.0.0.1 \
         and let other machines in by `ssh -L`, or pass --console-public where the network is trusted"
    )]
    Beyond {
        /// As configured.
        address: String,
    },
    /// Its own server does not answer.
    #[error(transparent)]
    Client(#[from] frieze_client::Error),
    /// A system call failed.
    #[error("cannot {doing}: {source}")]
    System {
        /// What it was for.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// Why a request is not answered with what it asks for: a page says it.
#[derive(Clone, Debug)]
pub(crate) struct PageRefusal {
    pub(crate) status: StatusCode,
    /// What is wrong, on which object.
    pub(crate) words: String,
    /// What the reader of the page can do.
    pub(crate) remedy: String,
}

impl PageRefusal {
    pub(crate) fn new(status: StatusCode, words: impl Into<String>, remedy: impl Into<String>) -> PageRefusal {
        PageRefusal { status, words: words.into(), remedy: remedy.into() }
    }

    pub(crate) fn bad(words: impl Into<String>) -> PageRefusal {
        PageRefusal::new(StatusCode::BAD_REQUEST, words, "Follow the links of the pages, or mend the address.")
    }

    /// A fault of a call about `subject`.
    pub(crate) fn of(subject: &str, error: &frieze_client::Error) -> PageRefusal {
        let (status, remedy) = match error.reason() {
            Reason::NotFound => (
                StatusCode::NOT_FOUND,
                "It may have another name at this instant: move the slider, or look at the deleted names of its \
                 directory.",
            ),
            Reason::Future => (StatusCode::BAD_REQUEST, "Choose an instant that has passed."),
            reason => match reason.kind() {
                ErrorKind::NotFound => (StatusCode::NOT_FOUND, "Look at another instant."),
                ErrorKind::Denied => {
                    (StatusCode::FORBIDDEN, "Its owner can change its mode, now; the past keeps its own.")
                }
                ErrorKind::HistoryExpired => {
                    (StatusCode::GONE, "Choose an instant that is kept: the words above name one.")
                }
                ErrorKind::Unavailable | ErrorKind::NotYetClosed | ErrorKind::StaleEpoch => {
                    (StatusCode::SERVICE_UNAVAILABLE, "Load the page again in a moment.")
                }
                ErrorKind::NoSpace => (StatusCode::INSUFFICIENT_STORAGE, "Free space, then do it again."),
                ErrorKind::Conflict | ErrorKind::Exists => (StatusCode::CONFLICT, "Load the page again, then decide."),
                ErrorKind::Invalid => (StatusCode::BAD_REQUEST, "Follow the links of the pages, or mend the address."),
                ErrorKind::Corrupt | ErrorKind::Internal => {
                    (StatusCode::INTERNAL_SERVER_ERROR, "Its operator finds more with `frieze scrub` and in the log.")
                }
            },
        };
        PageRefusal::new(status, format!("{subject}: {error}"), remedy)
    }
}

/// A call about `subject` failed.
pub(crate) fn about(subject: impl Into<String>) -> impl FnOnce(frieze_client::Error) -> PageRefusal {
    let subject = subject.into();
    move |error| PageRefusal::of(&subject, &error)
}

/// There is no such page.
pub(crate) fn not_there(path: &str) -> PageRefusal {
    let shown = crate::words::shown(path.as_bytes());
    PageRefusal::new(StatusCode::NOT_FOUND, format!("there is no page {shown}"), "Begin at /files/.")
}
