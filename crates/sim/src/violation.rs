//! A broken promise, and which one.

use std::fmt;

/// The promises that are checked. Numbers are those of protocols §9 where they have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A read of now shows everything acknowledged before it was asked, nothing that was never written, and every write
    /// wholly or not at all; a change has the outcome that POSIX gives it at its place in the order (9).
    Linearizable,
    /// An answer at an instant is repeated for ever, outside gaps; inside, the answer says that it is incomplete (3).
    SameForEver,
    /// Writes acknowledged as durable survive every crash, all acknowledged writes survive the death of the process
    /// (5).
    Durable,
    /// A power loss leaves a prefix of each log, never a name without the bytes written before it (7).
    Prefix,
    /// Each (session, seq) has one effect and one answer (6).
    Once,
    /// The namespace is a tree with right link counts, sizes and times at every stamp (7).
    Tree,
    /// Stamps rise, and none lies at or below an instant that was answered (2).
    StampsRise,
    /// Once faults stop, every request is answered (11).
    Live,
    /// Every error is one that the interface promises here; corrupt bytes are never returned.
    PromisedErrors,
    /// Stored data is consistent: bytes and checksums, names and inodes, writes and files.
    Whole,
    /// A chain that a server calls whole has every wanted copy.
    Health,
    /// The server starts again after every crash.
    Restarts,
    /// The past needs no majority: every remaining server answers for what was closed, marks what may be missing, and
    /// answers for nothing that it cannot know.
    Past,
    /// A transfer reaches no memory that has another use by then, and memory that transfers use is bounded.
    Memory,
    /// Nothing panics.
    NoPanic,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub rule: Rule,
    /// Observed and expected values, as a sentence.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.what)
    }
}

impl std::error::Error for Violation {}

/// `Ok`, or the first promise that was broken.
pub type Verdict<T = ()> = Result<T, Violation>;

/// A broken promise as the error of a [`Verdict`].
pub(crate) fn broken<T>(rule: Rule, what: impl Into<String>) -> Verdict<T> {
    Err(Violation { rule, what: what.into() })
}
