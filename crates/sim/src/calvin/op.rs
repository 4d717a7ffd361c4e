//! What clients ask of the small file system, and what it answers.

use frieze_base::SessionId;
use frieze_calvin::{Position, SLOTS, Slot};

use super::stages::{EditId, NameRange, StagedRange};

/// A name in a directory.
pub(super) type Name = u8;

/// The number of an inode: its slot, whether it is a directory, and a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Ino(pub(super) u64);

impl Ino {
    /// The root directory.
    pub(super) const ROOT: Ino = Ino(DIRECTORY);

    /// The directory of this count. Its slot follows from the count.
    pub(super) fn directory(count: u64) -> Ino {
        let slot = count.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52;
        debug_assert!(slot < u64::from(SLOTS));
        Ino(slot << 40 | DIRECTORY | count)
    }

    /// The file of this count in a slot.
    pub(super) fn file(slot: Slot, count: u64) -> Ino {
        Ino(u64::from(slot.0) << 40 | count)
    }

    /// Where it lies, for ever.
    pub(super) fn slot(self) -> Slot {
        Slot((self.0 >> 40) as u16)
    }

    /// True for a directory.
    pub(super) fn is_directory(self) -> bool {
        self.0 & DIRECTORY != 0
    }
}

const DIRECTORY: u64 = 1 << 39;
/// The last number of a file in a slot.
pub(super) const NUMBER_MAX: u64 = DIRECTORY - 1;

impl Default for TreeSettings {
    fn default() -> TreeSettings {
        TreeSettings { stages_max: 1024, numbers_max: NUMBER_MAX, shards: 1 }
    }
}

/// A name of one directory.
pub(super) type DirectoryName = (Ino, Name);

/// A path: from a directory over directories to a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChangePath {
    pub(super) base: Ino,
    pub(super) way: Vec<Name>,
    pub(super) name: Name,
}

/// A file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FileState {
    /// How many names it has.
    pub(super) names: u32,
    pub(super) value: u64,
    /// Its mode, which nothing here asks for.
    pub(super) open: bool,
    /// The last change of any of these.
    pub(super) changed: Position,
}

/// Bounds of the file system, the same on every server.
#[derive(Clone, Copy, Debug)]
pub(super) struct TreeSettings {
    /// Stages of a session.
    pub(super) stages_max: usize,
    /// Numbers of files that a slot has.
    pub(super) numbers_max: u64,
    /// Shards that the slots are divided into.
    pub(super) shards: u16,
}

/// A change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TreeOp {
    Make(ChangePath),
    Mkdir(ChangePath),
    Rmdir(ChangePath),
    Unlink(ChangePath),
    /// Sets the value of a file.
    Set(ChangePath, u64),
    /// Opens or closes a directory to walks.
    Chmod(ChangePath, bool),
    Rename(ChangePath, ChangePath),
    Link(ChangePath, ChangePath),
    /// Limits the names of files in a directory and below, or limits them no more.
    Limit(ChangePath, Option<u64>),
    /// Keeps what a front-end finds in these ranges, as a part of an edit.
    Stage(EditId, u32, Vec<NameRange>),
    /// Makes an edit of so many parts, at one position, if what was staged is what is there.
    Commit(EditId, u32, EditChange),
    /// Drops the stages of an edit that its client gives up.
    DropEdit(EditId),
    /// Ends the session, and drops its stages.
    EndSession,
}

/// A change of a directory and all below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EditChange {
    Remove(ChangePath),
    /// Sets the mode of all files and directories.
    Chmod(ChangePath, bool),
}

impl EditChange {
    /// The directory.
    pub(super) fn target(&self) -> &ChangePath {
        match self {
            EditChange::Remove(target) | EditChange::Chmod(target, _) => target,
        }
    }
}

/// A change with what its front-end saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Body {
    /// Of the client.
    pub(super) session: SessionId,
    pub(super) op: TreeOp,
    /// The files that its names had, as far as they had any.
    pub(super) expects: [Option<Ino>; 2],
    /// Of a stage: what was in its ranges.
    pub(super) part: Vec<StagedRange>,
    /// All shards are asked for room, for its own had none.
    pub(super) gathers: bool,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Ok(Ino),
    /// A stage is kept, or dropped; a session has ended.
    Done,
    Exists,
    NotFound,
    NotDirectory,
    IsDirectory,
    NotEmpty,
    /// A directory cannot move below itself.
    Loop,
    /// A directory on the way is closed, or one of those that are to be removed.
    Denied,
    TooManyLinks,
    /// The names had other files than the front-end saw: nothing has changed, and it looks again.
    Superseded,
    /// The shard has no room for another name below this limit: nothing has changed, and the front-end gathers.
    NeedsRoom,
    /// There are as many names as the limit says.
    QuotaFull,
    /// The slot of the directory has no number for another file: other directories have other slots.
    NumbersUsedUp,
    /// Not all stages of the edit are there: nothing has changed, and the client sends those that are missing.
    StagesMissing,
    /// The session has as many stages as it may: it commits an edit, or drops one.
    Overloaded,
    /// The session has ended.
    UnknownSession,
}

impl Answer {
    /// True if it says that the change was made.
    pub(super) fn is_change(self) -> bool {
        matches!(self, Answer::Ok(_) | Answer::Done)
    }
}

/// Most names of a file.
pub(super) const LINKS_MAX: u32 = 3;
