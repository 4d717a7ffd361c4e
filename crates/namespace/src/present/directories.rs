//! The directories that hold something, by number.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use frieze_base::{FastMap, InodeId};

use super::directory::DirectoryNames;
use super::name_block::BlockScratch;
use super::row::{id_at, row_of};
use crate::model::NameEntry;

/// Consecutive rows of a leaf. A snapshot shares each leaf, so that it has few handles.
pub(super) const LEAF_INODES: u64 = 1024;

/// The directories that hold something.
#[derive(Default)]
pub struct DirectoryTable {
    leaves: FastMap<u64, Arc<DirectoryLeaf>>,
    /// Overwritten by each change of a block.
    scratch: BlockScratch,
    /// Memory that evictions gave back so far.
    evicted_bytes: i64,
}

/// The directories of 1,024 consecutive rows.
pub(super) type DirectoryLeaf = BTreeMap<u16, DirectoryNames>;

impl DirectoryTable {
    /// A directory, if it holds something.
    pub fn get(&self, id: InodeId) -> Option<&DirectoryNames> {
        self.leaves.get(&leaf_of(id))?.get(&index_of(id))
    }

    /// How many names a directory holds.
    pub fn count(&self, id: InodeId) -> usize {
        self.get(id).map_or(0, DirectoryNames::count)
    }

    /// Sets what a name of a directory stands for, and says what it stood for before.
    pub fn set(&mut self, id: InodeId, name: &[u8], entry: NameEntry) -> Option<NameEntry> {
        let leaf = Arc::make_mut(self.leaves.entry(leaf_of(id)).or_default());
        match leaf.get_mut(&index_of(id)) {
            Some(directory) => directory.set(name, entry, &mut self.scratch),
            None => {
                leaf.insert(index_of(id), DirectoryNames::of_one(name, entry, &mut self.scratch));
                None
            }
        }
    }

    /// Takes a name out of a directory, and says what it stood for.
    pub fn remove(&mut self, id: InodeId, name: &[u8]) -> Option<NameEntry> {
        let leaf = Arc::make_mut(self.leaves.get_mut(&leaf_of(id))?);
        let directory = leaf.get_mut(&index_of(id))?;
        if directory.count() > 1 {
            return directory.remove(name, &mut self.scratch);
        }
        let found = directory.get(name)?;
        let removed = leaf.remove(&index_of(id)).expect("it was found there");
        self.scratch.memory_bytes -= removed.memory_bytes();
        if leaf.is_empty() {
            self.leaves.remove(&leaf_of(id));
        }
        Some(found)
    }

    /// Takes all names of a directory; false if there was one with that number.
    pub fn insert(&mut self, id: InodeId, directory: DirectoryNames) -> bool {
        self.scratch.memory_bytes += directory.memory_bytes();
        let leaf = Arc::make_mut(self.leaves.entry(leaf_of(id)).or_default());
        let before = leaf.insert(index_of(id), directory);
        self.scratch.memory_bytes -= before.as_ref().map_or(0, DirectoryNames::memory_bytes);
        before.is_none()
    }

    /// The directories in the order of their rows.
    pub fn iter(&self) -> impl Iterator<Item = (InodeId, &DirectoryNames)> {
        let mut leaves: Vec<(&u64, &Arc<DirectoryLeaf>)> = self.leaves.iter().collect();
        leaves.sort_unstable_by_key(|(leaf, _)| **leaf);
        leaves.into_iter().flat_map(|(leaf, directories)| in_leaf(*leaf, directories))
    }

    /// Memory that all blocks take, or would take if none was cold, and what evictions gave back so far.
    pub(super) fn memory_bytes(&self) -> (i64, i64) {
        (self.scratch.memory_bytes, self.evicted_bytes)
    }

    /// Blocks that come in a directory are cold: so much memory they do not take.
    pub(super) fn note_evicted(&mut self, bytes: i64) {
        self.evicted_bytes += bytes;
    }

    /// A directory, of which blocks are to be placed.
    pub(super) fn get_mut(&mut self, id: InodeId) -> Option<&mut DirectoryNames> {
        Arc::make_mut(self.leaves.get_mut(&leaf_of(id))?).get_mut(&index_of(id))
    }

    /// Evicts idle blocks of a leaf from this directory and group of blocks on, until `left` blocks were looked at.
    /// Returns the place to continue at; `None` after the last block of the leaf.
    pub(super) fn evict(&mut self, leaf: u64, from: (u16, usize), left: &mut usize) -> Option<(u16, usize)> {
        let (mut directory, mut group) = from;
        let shared = self.leaves.get_mut(&leaf)?;
        loop {
            if *left == 0 {
                return Some((directory, group));
            }
            let (index, names) = shared.range(directory..).next()?;
            if *index != directory {
                (directory, group) = (*index, 0);
            }
            if group < names.group_count() {
                *left = left.saturating_sub(names.group_blocks(group).count());
                if names.group_blocks(group).any(|(_, block)| block.bytes().may_leave()) {
                    let names = Arc::make_mut(shared).get_mut(&directory).expect("it was found there");
                    self.evicted_bytes += names.evict_group(group);
                }
                group += 1;
            } else {
                (directory, group) = (directory.checked_add(1)?, 0);
            }
        }
    }

    /// Numbers of the leaves, in no order.
    pub(super) fn leaf_numbers(&self) -> impl Iterator<Item = u64> {
        self.leaves.keys().copied()
    }

    /// All leaves, by number.
    pub(super) fn leaves(&self) -> Vec<(u64, Arc<DirectoryLeaf>)> {
        let mut leaves: Vec<_> = self.leaves.iter().map(|(leaf, names)| (*leaf, Arc::clone(names))).collect();
        leaves.sort_unstable_by_key(|(leaf, _)| *leaf);
        leaves
    }
}

/// The directories of the leaf with this number.
pub(super) fn in_leaf(leaf: u64, directories: &DirectoryLeaf) -> impl Iterator<Item = (InodeId, &DirectoryNames)> {
    directories.iter().map(move |(index, directory)| (id_of(leaf, *index), directory))
}

/// The number of a directory of a leaf.
pub(super) fn id_of(leaf: u64, index: u16) -> InodeId {
    id_at(leaf * LEAF_INODES + u64::from(index))
}

fn leaf_of(id: InodeId) -> u64 {
    row_of(id) / LEAF_INODES
}

fn index_of(id: InodeId) -> u16 {
    (row_of(id) % LEAF_INODES) as u16
}

impl PartialEq for DirectoryTable {
    fn eq(&self, other: &DirectoryTable) -> bool {
        self.iter().eq(other.iter())
    }
}

impl fmt::Debug for DirectoryTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
