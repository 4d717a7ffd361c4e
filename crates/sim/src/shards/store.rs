//! What a server has of a part of the state: its versions, and the numbers that were given in it.

use std::collections::BTreeMap;

use frieze_base::InodeId;
use frieze_hlc::Hlc;
use frieze_namespace::{INODES, ItemValue, KeyVersion, MemoryHistory, StateItem};
use frieze_wire::quota::TreeUsage;

/// A part of the state: the trunk, or a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PartStore {
    history: MemoryHistory,
    /// The last count given in a slot; of directories under `None`.
    given: BTreeMap<Option<u16>, u64>,
    /// What is used of the quotas of directories of this part.
    usages: BTreeMap<InodeId, TreeUsage>,
}

impl Default for PartStore {
    fn default() -> PartStore {
        PartStore { history: MemoryHistory::of_part(), given: BTreeMap::new(), usages: BTreeMap::new() }
    }
}

impl PartStore {
    /// Keeps changes.
    pub(super) fn commit<'a>(&mut self, changes: impl IntoIterator<Item = &'a KeyVersion>) {
        for change in changes {
            if let Some(id) = inode_of(&change.key) {
                let last = self.given.entry(slot_of(id)).or_default();
                *last = (*last).max(id.count());
            }
            self.history.commit(std::slice::from_ref(change));
        }
    }

    /// Keeps what is used of the quota of a directory.
    pub(super) fn set_usage(&mut self, directory: InodeId, usage: TreeUsage) {
        self.usages.insert(directory, usage);
    }

    /// What the versions of an item were at an instant.
    pub(super) fn read_at(&self, item: &StateItem, at: Hlc) -> ItemValue {
        item.read(&self.history, at).expect("versions that transactions made can be read")
    }

    /// What an item holds here now.
    pub(super) fn read(&self, item: &StateItem) -> ItemValue {
        let mut value = self.read_at(item, Hlc::MAX);
        match item {
            StateItem::DirectoryNumbers => value.number = self.last(None),
            StateItem::FileNumbers(slot) => value.number = self.last(Some(*slot)),
            StateItem::Usage(id) => value.usage = self.usages.get(id).copied().unwrap_or_default(),
            _ => {}
        }
        value
    }

    /// True if the number was given here.
    pub(super) fn was_given(&self, id: InodeId) -> bool {
        id.count() <= self.last(slot_of(id))
    }

    fn last(&self, slot: Option<u16>) -> u64 {
        self.given.get(&slot).copied().unwrap_or_default()
    }
}

fn slot_of(id: InodeId) -> Option<u16> {
    (!id.is_directory()).then(|| id.slot())
}

/// The inode whose version a key is of.
fn inode_of(key: &[u8]) -> Option<InodeId> {
    let (first, rest) = key.split_first()?;
    (*first == INODES).then(|| InodeId(u64::from_be_bytes(rest.try_into().expect("the key of an inode is a number"))))
}
