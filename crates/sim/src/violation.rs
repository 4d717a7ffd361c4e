//! A promise that was broken, and which one.

use std::fmt;

/// The promises that are checked. Numbers are those of protocols §9 where they have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A read of now shows what was acknowledged before it was asked, nothing that never was, and every write wholly
    /// or not at all; a change has the outcome that POSIX gives it at its place in the order (9).
    Linearizable,
    /// What was answered at an instant is answered again, outside gaps; inside, the answer says that it is incomplete
    /// (3).
    SameForEver,
    /// What was acknowledged as durable survives every crash, all that was acknowledged survives the death of the
    /// process (5).
    Durable,
    /// What a loss of power leaves is a prefix of each log, never a name without the bytes written before it (7).
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
    /// What is stored fits together: bytes and checksums, names and inodes, writes and files.
    Whole,
    /// What a server calls whole has every copy that is wanted.
    Health,
    /// The server starts again after every crash.
    Restarts,
    /// The past needs no majority: every server that is left answers for what was closed, says what it cannot vouch
    /// for, and answers for nothing that it cannot know.
    Past,
    /// Nothing panics.
    NoPanic,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub rule: Rule,
    /// What was seen and what should have been, in words.
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
