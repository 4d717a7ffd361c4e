//! Which items of the state a partial namespace has: what is not among them is unknown, not absent.
//!
//! Guarantees: the first look at an unknown item is noted.
//! Leaves to others: what becomes of a transaction that looked at one ([`crate::PartialState`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use frieze_base::InodeId;

use crate::state_item::StateItem;

/// The items that a partial namespace has.
#[derive(Debug, Default)]
pub(crate) struct ReadScope {
    known: BTreeSet<StateItem>,
    /// Names of directories, of those whose number of names is known: of subdirectories and others together.
    names: BTreeMap<InodeId, u64>,
    /// The last count of a directory, if it is known.
    directories: Option<u64>,
    /// The last count of a file, of slots of which it is known.
    files: BTreeMap<u16, u64>,
    /// The first unknown item that was looked at.
    outside: OnceLock<StateItem>,
}

impl ReadScope {
    /// Notes that an item is known. `number` is its value, if that is one.
    pub(crate) fn add(&mut self, item: &StateItem, number: u64) {
        match item {
            StateItem::DirectoryNumbers => self.directories = Some(number),
            StateItem::FileNumbers(slot) => drop(self.files.insert(*slot, number)),
            StateItem::Directories(id) | StateItem::Files(id) => *self.names.entry(*id).or_default() += number,
            _ => {}
        }
        self.known.insert(item.clone());
    }

    /// The first unknown item that was looked at.
    pub(crate) fn outside(&self) -> Option<&StateItem> {
        self.outside.get()
    }

    /// True if the item is known.
    pub(crate) fn is_known(&self, item: &StateItem) -> bool {
        self.known.contains(item)
    }

    /// False, and noted, if the item is unknown.
    pub(crate) fn look(&self, item: StateItem) -> bool {
        let of_new = match &item {
            StateItem::AllDirectories(id) | StateItem::AllFiles(id) => self.is_new(*id),
            _ => false,
        };
        let is_known = of_new || self.known.contains(&item);
        if !is_known {
            // The first one stays.
            drop(self.outside.set(item));
        }
        is_known
    }

    /// The same of an inode. One whose number was not given yet is known to be none.
    pub(crate) fn look_at_inode(&self, id: InodeId) -> bool {
        !id.is_valid() || self.is_new(id) || self.look(StateItem::Inode(id))
    }

    /// Looks at a name, under which the namespace has found a directory (`true`), something else, or nothing.
    pub(crate) fn look_at_name(&self, directory: InodeId, name: &[u8], found: Option<bool>) {
        let _ = self.is_new(directory)
            || !self.look(StateItem::DirectoryName(directory, name.to_vec()))
            || found == Some(true)
            || self.look(StateItem::FileName(directory, name.to_vec()));
    }

    /// How many names a directory has; 0 if that is unknown.
    pub(crate) fn name_count(&self, directory: InodeId) -> usize {
        if self.is_new(directory)
            || !self.look(StateItem::Directories(directory))
            || !self.look(StateItem::Files(directory))
        {
            return 0;
        }
        self.names.get(&directory).copied().unwrap_or_default() as usize
    }

    /// True if the inode's number is known to be none that was given.
    fn is_new(&self, id: InodeId) -> bool {
        let last = if id.is_directory() { self.directories } else { self.files.get(&id.slot()).copied() };
        last.is_some_and(|last| id.count() > last)
    }
}
