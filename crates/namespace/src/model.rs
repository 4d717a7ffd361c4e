//! What the current state consists of: entries of directories, attributes, sessions, outcomes, named instants.

use std::collections::BTreeMap;

use frieze_base::InodeId;
use frieze_hlc::Hlc;
use frieze_wire::message::FileKind;
use frieze_wire::txn::Outcome;

use crate::inode::Inode;

/// Extended attributes of one inode, by name.
pub(crate) type Xattrs = BTreeMap<Box<[u8]>, Box<[u8]>>;

/// What a name stands for, since when. The kind lives in the top bits of the id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameEntry {
    packed: u64,
    /// Stamp of the change that made it so.
    pub from: Hlc,
}

/// Outcomes that a session has not acknowledged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Replies {
    /// Everything below is acknowledged and forgotten.
    pub(crate) acked: u64,
    pub(crate) outcomes: BTreeMap<u64, Outcome>,
}

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The inode's id.
    pub id: InodeId,
    /// Its version at the instant asked for.
    pub inode: Inode,
    /// Directory in which the last name was found; the home directory where the path ended without one.
    pub parent: InodeId,
    /// Last name, links followed; empty where the path was empty, the root or `.`.
    pub name: Vec<u8>,
}

/// An open session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionState {
    /// When it was opened; its id too.
    pub opened: Hlc,
    /// The user proven by the server.
    pub uid: u32,
    /// Program, as the client tells it.
    pub command: String,
    /// Host, as the client tells it.
    pub host: String,
    /// It may ask to be allowed to cache, and for locks.
    pub keeps: bool,
    /// It has changed nothing so far.
    pub unchanging: bool,
}

/// A named instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedInstant {
    /// Name.
    pub name: String,
    /// The instant.
    pub at: Hlc,
    /// When it was made.
    pub made: Hlc,
    /// The user that made it.
    pub uid: u32,
}

impl NameEntry {
    const KIND_SHIFT: u32 = 56;
    /// What stands before the first name.
    pub(crate) const NONE: NameEntry = NameEntry { packed: 0, from: Hlc::ZERO };

    /// An entry.
    pub fn new(inode: InodeId, kind: FileKind, from: Hlc) -> NameEntry {
        NameEntry { packed: inode.0 | (kind as u64) << Self::KIND_SHIFT, from }
    }

    /// The inode.
    pub fn inode(self) -> InodeId {
        InodeId(self.packed & ((1 << Self::KIND_SHIFT) - 1))
    }

    /// Its kind.
    pub fn kind(self) -> FileKind {
        FileKind::try_from((self.packed >> Self::KIND_SHIFT) as i32).expect("packed from a FileKind")
    }
}
