//! The items that the state of names consists of, as transactions read and change them.
//!
//! Guarantees: an item says by itself in which part of the state it lies: in the trunk, which every server has, or in a
//! slot.

use frieze_base::{InodeId, SessionId};

/// A part of the state that transactions read or change as a whole. Values are loaded in the order of the variants: an
/// inode before its times.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StateItem {
    /// The format, what was forgotten, policies of retention, losses, and which directories have a quota.
    Globals,
    /// An open session.
    Session(SessionId),
    /// All sessions, and those that ended not long ago.
    Sessions,
    /// All named instants.
    Snapshots,
    /// All staged parts of edits.
    StagedEdits,
    /// An inode with its extended attributes; of a directory all but its times and the number of its subdirectories.
    Inode(InodeId),
    /// Of a directory: its number of subdirectories, as its link count says it.
    Links(InodeId),
    /// Of a directory: its times, as far as they come from changes of its names.
    Times(InodeId),
    /// A name as that of a subdirectory.
    DirectoryName(InodeId, Vec<u8>),
    /// A name as that of anything else.
    FileName(InodeId, Vec<u8>),
    /// How many subdirectories a directory has names of.
    Directories(InodeId),
    /// How many other names it has.
    Files(InodeId),
    /// The last number of a directory.
    DirectoryNumbers,
    /// The last number of a file in this slot.
    FileNumbers(u16),
    /// Files that a session has write grants on.
    Grants(SessionId),
    /// What is used of the quota of a directory.
    Usage(InodeId),
    /// All subdirectories of a directory.
    AllDirectories(InodeId),
    /// All other names of it.
    AllFiles(InodeId),
}

/// The part of the state that an item lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StatePart {
    /// Directories, sessions, named instants: every server has them.
    Trunk,
    /// A slot: what the directories of the slot name, and the files that were made in them.
    Slot(u16),
    /// A piece of it in every shard.
    Shards,
}

impl StateItem {
    /// The inode that it is an item of.
    pub fn inode(&self) -> Option<InodeId> {
        match self {
            StateItem::Inode(id)
            | StateItem::Links(id)
            | StateItem::Times(id)
            | StateItem::DirectoryName(id, _)
            | StateItem::FileName(id, _)
            | StateItem::Directories(id)
            | StateItem::Files(id)
            | StateItem::Usage(id)
            | StateItem::AllDirectories(id)
            | StateItem::AllFiles(id) => Some(*id),
            StateItem::Globals
            | StateItem::Session(_)
            | StateItem::Sessions
            | StateItem::Snapshots
            | StateItem::StagedEdits
            | StateItem::DirectoryNumbers
            | StateItem::FileNumbers(_)
            | StateItem::Grants(_) => None,
        }
    }

    /// Where it lies.
    pub fn part(&self) -> StatePart {
        match self {
            StateItem::Globals
            | StateItem::Session(_)
            | StateItem::Sessions
            | StateItem::Snapshots
            | StateItem::StagedEdits
            | StateItem::Links(_)
            | StateItem::DirectoryName(..)
            | StateItem::Directories(_)
            | StateItem::AllDirectories(_)
            | StateItem::DirectoryNumbers => StatePart::Trunk,
            StateItem::Inode(id) if id.is_directory() => StatePart::Trunk,
            StateItem::Inode(id)
            | StateItem::Times(id)
            | StateItem::FileName(id, _)
            | StateItem::Files(id)
            | StateItem::AllFiles(id)
            | StateItem::Usage(id) => StatePart::Slot(id.slot()),
            StateItem::FileNumbers(slot) => StatePart::Slot(*slot),
            StateItem::Grants(_) => StatePart::Shards,
        }
    }
}
