//! Failures of tools, as the model reads them: what failed, on which object, and what to do.

use frieze_base::Reason;
use frieze_hlc::Hlc;

use crate::words::time_of;

/// A tool failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ToolError {
    /// The arguments do not fit the tool's schema, or contradict each other.
    #[error("the arguments are wrong: {0}")]
    Arguments(String),
    /// The path is not one of the file system.
    #[error("path {path:?}: {why}")]
    Path {
        /// As it was given, control characters escaped.
        path: String,
        /// The reason, and what to write instead.
        why: &'static str,
    },
    /// The path lies outside the tree of this server.
    #[error("path {path:?} lies outside {root:?}, the only tree that these tools reach: name a path below it")]
    Outside {
        /// The path.
        path: String,
        /// The tree.
        root: String,
    },
    /// A symbolic link on the way could lead out of the tree.
    #[error(
        "path {path:?}: {link:?} is a symbolic link, and may lead out of {root:?}: name the place that it leads to \
         (read_at of the link shows it)"
    )]
    Link {
        /// The path.
        path: String,
        /// The part of it that is a link.
        link: String,
        /// The tree.
        root: String,
    },
    /// The instant has not come.
    #[error(
        "{text:?} lies in the future: now is {now} ({}); use an instant up to now, or leave it out for now",
        time_of(*now)
    )]
    FutureInstant {
        /// The instant as it was given.
        text: String,
        /// Now.
        now: Hlc,
    },
    /// The interval ends before it begins.
    #[error("the interval ends ({}) before it begins ({}): swap from and to", time_of(*to), time_of(*from))]
    Backward {
        /// Start.
        from: Hlc,
        /// End.
        to: Hlc,
    },
    /// No session has this number or name.
    #[error("there is and was no session {0:?} that you may name: the tool sessions lists them")]
    NoSession(String),
    /// Several sessions have the name.
    #[error("{count} sessions are named {name:?}: name one by its number: {list}")]
    SeveralSessions {
        /// The name.
        name: String,
        /// How many.
        count: usize,
        /// The newest of them, with their times.
        list: String,
    },
    /// This server only looks.
    #[error("{0} is refused: frieze-mcp was started with --read-only")]
    ReadOnly(&'static str),
    /// The server, or the client library, refused a request.
    #[error("{subject}: {}{}", words(source), advice(source))]
    Client {
        /// The object of the request.
        subject: String,
        /// The refusal.
        source: frieze_client::Error,
    },
}

impl ToolError {
    /// Names the object of a request that failed.
    pub(crate) fn about(subject: impl Into<String>) -> impl FnOnce(frieze_client::Error) -> ToolError {
        let subject = subject.into();
        move |source| ToolError::Client { subject, source }
    }

    /// True if the reason of a refused request is this one.
    pub(crate) fn is(&self, reason: Reason) -> bool {
        matches!(self, ToolError::Client { source, .. } if source.reason() == reason)
    }
}

/// Reasons with complete words; the server's message mostly repeats them with inode numbers.
fn words(error: &frieze_client::Error) -> String {
    use Reason::{AccessDenied, IsDirectory, NotDirectory, NotFound, SymlinkLoop};
    match error.reason() {
        reason @ (NotFound | NotDirectory | IsDirectory | SymlinkLoop | AccessDenied) => reason.words().to_owned(),
        _ => error.to_string(),
    }
}

/// What to do next, where the words do not say it.
fn advice(error: &frieze_client::Error) -> &'static str {
    match error.reason() {
        Reason::Unavailable => {
            "; nothing is known to have changed: start the server (frieze serve), or correct --server"
        }
        Reason::HistoryExpired => "; use a kept instant, which the words name: this history is not kept any more",
        Reason::NotFound => "; check the path and the instant: history names when a deleted file was last there",
        Reason::TooLarge => "; take a smaller part: a path below it, or a shorter interval",
        Reason::Busy => "; try again",
        _ => "",
    }
}
