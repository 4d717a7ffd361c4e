//! What clients ask of the small file system, and what it answers.

use std::collections::BTreeMap;

use frieze_calvin::{SLOTS, Slot};

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

/// A path: from a directory over directories to a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChangePath {
    pub(super) base: Ino,
    pub(super) way: Vec<Name>,
    pub(super) name: Name,
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
    /// Removes a directory with all that is in it, at one position.
    RemoveTree(ChangePath),
}

/// A change with what its front-end saw: the files that its names had, as far as they had any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Body {
    pub(super) op: TreeOp,
    pub(super) expects: [Option<Ino>; 2],
    /// Of a tree that is removed: its directories, each with the files in it.
    pub(super) tree: ExpectedTree,
}

/// Directories, each with its files.
pub(super) type ExpectedTree = BTreeMap<Ino, BTreeMap<Name, Ino>>;

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Ok(Ino),
    Exists,
    NotFound,
    NotDirectory,
    IsDirectory,
    NotEmpty,
    /// A directory cannot move below itself.
    Loop,
    /// A directory on the way is closed.
    Denied,
    TooManyLinks,
    /// The names had other files than the front-end saw: nothing has changed, and it looks again.
    Superseded,
}

/// Most names of a file.
pub(super) const LINKS_MAX: u32 = 3;
