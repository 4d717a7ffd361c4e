//! The directories that hold something, by number.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use frieze_base::{FastMap, InodeId};

use super::directory::DirectoryNames;
use super::name_block::BlockScratch;
use crate::model::NameEntry;

/// Consecutive numbers of a leaf. A snapshot shares each leaf, so that it has few handles.
const LEAF_INODES: u64 = 1024;

/// The directories that hold something.
#[derive(Default)]
pub struct DirectoryTable {
    leaves: FastMap<u64, Arc<DirectoryLeaf>>,
    /// Overwritten by each change of a block.
    scratch: BlockScratch,
}

/// The directories of 1,024 consecutive numbers.
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
                leaf.insert(index_of(id), DirectoryNames::of_one(name, entry));
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
        leaf.remove(&index_of(id));
        if leaf.is_empty() {
            self.leaves.remove(&leaf_of(id));
        }
        Some(found)
    }

    /// Takes all names of a directory; false if there was one with that number.
    pub fn insert(&mut self, id: InodeId, directory: DirectoryNames) -> bool {
        let leaf = Arc::make_mut(self.leaves.entry(leaf_of(id)).or_default());
        leaf.insert(index_of(id), directory).is_none()
    }

    /// The directories in order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (InodeId, &DirectoryNames)> {
        let mut leaves: Vec<(&u64, &Arc<DirectoryLeaf>)> = self.leaves.iter().collect();
        leaves.sort_unstable_by_key(|(leaf, _)| **leaf);
        leaves.into_iter().flat_map(|(leaf, directories)| in_leaf(*leaf, directories))
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
    directories.iter().map(move |(index, directory)| (InodeId(leaf * LEAF_INODES + u64::from(*index)), directory))
}

fn leaf_of(id: InodeId) -> u64 {
    id.0 / LEAF_INODES
}

fn index_of(id: InodeId) -> u16 {
    (id.0 % LEAF_INODES) as u16
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
