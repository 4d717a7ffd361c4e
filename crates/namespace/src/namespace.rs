//! The state machine.

use frieze_base::{Fault, InodeId, Reason, SessionId};
use frieze_hlc::Hlc;
use frieze_wire::message::{FileKind, Version};
use frieze_wire::txn::{Caller, Format, Outcome, Target, Transaction};

use crate::history::{Change, History};
use crate::inode::Inode;

/// The current state.
#[derive(Debug, Default)]
pub struct Namespace {}

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The inode's id.
    pub id: InodeId,
    /// Its version at the instant asked for.
    pub inode: Inode,
    /// Directory in which the last name was found; the home directory where the path was empty.
    pub parent: InodeId,
    /// Last name, links followed; empty where the path was.
    pub name: Vec<u8>,
}

/// One entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Name.
    pub name: Vec<u8>,
    /// Inode it names.
    pub inode: InodeId,
    /// Its kind.
    pub kind: FileKind,
}

/// An open session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// When it was opened; its id too.
    pub opened: Hlc,
    /// The user proven by the server.
    pub uid: u32,
    /// Program, as the client tells it.
    pub command: String,
    /// Host, as the client tells it.
    pub host: String,
}

/// A named instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Name.
    pub name: String,
    /// The instant.
    pub at: Hlc,
    /// When it was made.
    pub made: Hlc,
    /// By whom.
    pub uid: u32,
}

/// Sizes, for `status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Inodes with a name.
    pub inodes: u64,
    /// Open sessions.
    pub sessions: u64,
}

fn soon<T>() -> Result<T, Fault> {
    Err(Reason::Internal.into())
}

#[expect(unused_variables, reason = "signatures first")]
impl Namespace {
    /// An empty, unformatted namespace.
    pub fn new() -> Namespace {
        Namespace {}
    }

    /// Takes the newest version of a key at restart, in order of keys, before anything is applied. Absent values too, or not: they change nothing.
    ///
    /// # Errors
    /// `Corrupt` if the key or value cannot be read.
    pub fn load(&mut self, key: &[u8], stamp: Hlc, value: &[u8]) -> Result<(), Fault> {
        soon()
    }

    /// Executes one transaction at its stamp and appends the versions it makes to `changes`.
    pub fn apply(&mut self, txn: &Transaction, stamp: Hlc, changes: &mut Vec<Change>) -> Outcome {
        Outcome::failed(stamp, Reason::Internal.into())
    }

    /// Resolves a target at `at` (None: now). Checks search rights of then and of now.
    ///
    /// # Errors
    /// POSIX.
    pub fn resolve(
        &self,
        history: &dyn History,
        target: &Target,
        at: Option<Hlc>,
        caller: &Caller,
    ) -> Result<Resolved, Fault> {
        soon()
    }

    /// The version of an inode at an instant.
    ///
    /// # Errors
    /// `NotFound` before it was made.
    pub fn inode(&self, history: &dyn History, id: InodeId, at: Option<Hlc>) -> Result<Inode, Fault> {
        soon()
    }

    /// Checks the rights on an inode by its version at `at`, and, if that is the past, by its newest too.
    ///
    /// # Errors
    /// `AccessDenied`, `NotFound`.
    pub fn check_access(
        &self,
        history: &dyn History,
        id: InodeId,
        at: Option<Hlc>,
        caller: &Caller,
        mask: u32,
    ) -> Result<(), Fault> {
        soon()
    }

    /// At most `max` entries of a directory in byte order, after the name `after`. No rights are checked here.
    ///
    /// # Errors
    /// `NotDirectory`, `NotFound`.
    pub fn list(
        &self,
        history: &dyn History,
        directory: InodeId,
        at: Option<Hlc>,
        after: &[u8],
        max: usize,
    ) -> Result<Vec<Listed>, Fault> {
        soon()
    }

    /// Value of an extended attribute; checks the rights (read for `user.`, root for `trusted.`).
    ///
    /// # Errors
    /// `NoAttribute`, `AccessDenied`.
    pub fn xattr(
        &self,
        history: &dyn History,
        id: InodeId,
        name: &[u8],
        at: Option<Hlc>,
        caller: &Caller,
    ) -> Result<Vec<u8>, Fault> {
        soon()
    }

    /// Names of the extended attributes that the caller may see.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn xattr_names(
        &self,
        history: &dyn History,
        id: InodeId,
        at: Option<Hlc>,
        caller: &Caller,
    ) -> Result<Vec<Vec<u8>>, Fault> {
        soon()
    }

    /// At most `max` metadata versions of an inode stamped in (`after`, `upto`]: made, named, unnamed, truncated, attributes set.
    ///
    /// # Errors
    /// Those of the store.
    pub fn log(
        &self,
        history: &dyn History,
        id: InodeId,
        after: Hlc,
        upto: Hlc,
        max: usize,
    ) -> Result<Vec<Version>, Fault> {
        soon()
    }

    /// The current version of an inode in memory, without a copy.
    pub fn current(&self, id: InodeId) -> Option<&Inode> {
        None
    }

    /// True if the session may write that chunk now.
    pub fn has_grant(&self, session: SessionId, inode: InodeId, chunk: u32) -> bool {
        false
    }

    /// Files that a session has write grants on: a `CloseSession` must settle every one.
    pub fn granted(&self, session: SessionId) -> Vec<InodeId> {
        Vec::new()
    }

    /// An open session.
    pub fn session(&self, id: SessionId) -> Option<&Session> {
        None
    }

    /// Open sessions in order of id.
    pub fn sessions(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        std::iter::empty()
    }

    /// Named instants in order of name.
    pub fn snapshots(&self) -> impl Iterator<Item = &Snapshot> {
        std::iter::empty()
    }

    /// A named instant.
    pub fn snapshot(&self, name: &str) -> Option<&Snapshot> {
        None
    }

    /// What the file system was formatted with; None before.
    pub fn format(&self) -> Option<&Format> {
        None
    }

    /// How much there is.
    pub fn counts(&self) -> Counts {
        Counts::default()
    }
}
