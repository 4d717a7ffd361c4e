//! Failures, in words for people.

use std::fmt;
use std::io;

use anyhow::Error;
use frieze_base::{Fault, Reason};

/// A signal ended the work early, and what was done was printed: 128 and the number of SIGINT.
pub(crate) const EXIT_INTERRUPTED: u8 = 130;

/// The command line is wrong: nothing was done, exit status 2.
#[derive(Debug)]
pub(crate) struct UsageError(pub(crate) String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// The reader of standard output is gone: the command ends at once and in silence.
#[derive(Debug)]
pub(crate) struct OutputClosed;

impl fmt::Display for OutputClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("standard output is closed")
    }
}

impl std::error::Error for OutputClosed {}

/// Failures were reported already, one line each: exit status 1 and no further message.
#[derive(Debug)]
pub(crate) struct ReportedError;

impl fmt::Display for ReportedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("failures were reported")
    }
}

impl std::error::Error for ReportedError {}

/// The server was removed from its cluster, and none starts on its directory again: exit status 3.
#[derive(Debug)]
pub(crate) struct ServerRemoved(pub(crate) String);

impl fmt::Display for ServerRemoved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ServerRemoved {}

/// The cluster of the server has ended, and was recovered under another identity: exit status 4.
#[derive(Debug)]
pub(crate) struct ClusterEnded(pub(crate) String);

impl fmt::Display for ClusterEnded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ClusterEnded {}

/// The check could not run: nothing is known, exit status 2.
#[derive(Debug)]
pub(crate) struct CheckFailed(pub(crate) String);

impl fmt::Display for CheckFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CheckFailed {}

/// The process that was started to do the work failed with this exit status and printed why.
#[derive(Debug)]
pub(crate) struct ChildFailed(pub(crate) u8);

impl fmt::Display for ChildFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exit status {}", self.0)
    }
}

impl std::error::Error for ChildFailed {}

/// A signal ended the work early; what was done is printed: exit status 130, as shells have it for Ctrl-C.
#[derive(Debug)]
pub(crate) struct WorkInterrupted(pub(crate) String);

impl fmt::Display for WorkInterrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WorkInterrupted {}

/// The subject of a failure, if it is not what the command was reading or writing just then.
#[derive(Debug)]
pub(crate) struct ErrorSubject(pub(crate) String);

impl fmt::Display for ErrorSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The fault that a server or the client library answered, if `error` comes from there.
pub(crate) fn fault_of(error: &Error) -> Option<Fault> {
    error.chain().find_map(|cause| {
        if let Some(fault) = cause.downcast_ref::<Fault>() {
            return Some(fault.clone());
        }
        cause.downcast_ref::<frieze_client::Error>().map(|error| Fault::new(error.reason(), error.to_string()))
    })
}

/// True if `error` is a fault for this reason.
pub(crate) fn is(error: &Error, reason: Reason) -> bool {
    fault_of(error).is_some_and(|fault| fault.reason == reason)
}

/// `error` about `subject` in one line: `/a/b: no such file or directory`.
///
/// A subject that the words name already is not repeated.
pub(crate) fn line(subject: &str, error: &Error) -> String {
    let words = words(error);
    let subject = error.downcast_ref::<ErrorSubject>().map_or(subject, |about| &about.0);
    if subject.is_empty() || words.starts_with(&format!("{subject}: ")) || words.contains(&format!("{subject:?}")) {
        return words;
    }
    format!("{subject}: {words}")
}

/// `error` in one line, lower case, without error numbers.
pub(crate) fn words(error: &Error) -> String {
    let text = match fault_of(error) {
        Some(fault) => of_fault(&fault),
        None => {
            let mut said: Vec<String> = Vec::new();
            let subjects = usize::from(error.is::<ErrorSubject>());
            for cause in error.chain().skip(subjects) {
                let words = cause.downcast_ref::<io::Error>().map_or_else(|| cause.to_string(), of_io);
                // A cause that the words above it quote already adds nothing.
                if !said.last().is_some_and(|last| last.contains(&words)) {
                    said.push(words);
                }
            }
            said.join(": ")
        }
    };
    text.trim_end().replace('\n', " ")
}

/// Reasons with complete words. The message of the server mostly repeats them with names of its own.
fn of_fault(fault: &Fault) -> String {
    use Reason::{AccessDenied, Exists, IsDirectory, NotDirectory, NotEmpty, NotFound, SymlinkLoop, TooManyLinks};
    match fault.reason {
        NotFound | Exists | NotDirectory | IsDirectory | NotEmpty | SymlinkLoop | TooManyLinks | AccessDenied => {
            fault.reason.words().to_owned()
        }
        _ => fault.message.clone(),
    }
}

/// The operating system's message, but in lower case and without the number.
fn of_io(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(code) => {
            let words = nix::errno::Errno::from_raw(code).desc();
            let mut letters = words.chars();
            match letters.next() {
                Some(first) => first.to_lowercase().chain(letters).collect(),
                None => words.to_owned(),
            }
        }
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn a_failure_is_one_line_with_its_subject() {
        let error = Error::new(Fault::new(Reason::NotFound, "inode 7 has no entry x"));
        assert_eq!(line("/a/b", &error), "/a/b: no such file or directory");
    }

    #[test]
    fn a_message_that_names_the_subject_does_not_name_it_twice() {
        let error = Error::new(Fault::new(Reason::NoSpace, "/a: no space left:\nfree some"));
        assert_eq!(line("/a", &error), "/a: no space left: free some");
    }

    #[test]
    fn the_words_of_the_system_lose_their_number() {
        let error = Error::new(io::Error::from_raw_os_error(2));
        assert_eq!(line("x", &error), "x: no such file or directory");
        let error = Error::new(io::Error::from_raw_os_error(13)).context("cannot read the key");
        assert_eq!(line("k", &error), "k: cannot read the key: permission denied");
    }

    #[test]
    fn a_fault_below_a_context_is_found() {
        let error = Err::<(), _>(Fault::from(Reason::Future)).context("resolving").unwrap_err();
        assert!(is(&error, Reason::Future));
        assert!(!is(&error, Reason::Busy));
    }
}
