//! The users that own something of a tree.

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::InodeId;
use frieze_wire::forget::ANYBODY;

use crate::horizons::Owners;
use crate::inode::Inode;

/// The owners of what lies below a path.
///
/// A user needs a path to the objects in a snapshot of his. So a directory counts as owned also by every user that
/// owned an object which ever had a name in it, or further below. If a directory below is not read, its owners are
/// unknown.
#[derive(Default)]
pub struct TreeOwners {
    /// Owners by inode; without the superuser, whose snapshots protect everything.
    owners: Owners,
    /// Directories by the directories in which they had a name.
    above: BTreeMap<InodeId, BTreeSet<InodeId>>,
}

impl TreeOwners {
    /// Notes an inode and its owner.
    pub fn own(&mut self, id: InodeId, inode: &Inode) {
        if inode.uid != 0 {
            self.owners.entry(id).or_default().insert(inode.uid);
        }
    }

    /// Records that an inode had a name in a directory.
    pub fn lay_in(&mut self, directory: InodeId, id: InodeId, inode: &Inode) {
        if inode.is_directory() {
            self.above.entry(id).or_default().insert(directory);
        }
        if inode.uid != 0 {
            self.owners.entry(directory).or_default().insert(inode.uid);
        }
    }

    /// By inode, the users whose snapshots protect it, where these directories were read.
    pub fn owners(mut self, directories: &BTreeSet<InodeId>) -> Owners {
        for (_, above) in self.above.iter().filter(|(id, _)| !directories.contains(id)) {
            for directory in above {
                self.owners.entry(*directory).or_default().insert(ANYBODY);
            }
        }
        let mut todo: Vec<(InodeId, u32)> = Vec::new();
        for (id, users) in self.owners.iter().filter(|(id, _)| self.above.contains_key(id)) {
            todo.extend(users.iter().map(|user| (*id, *user)));
        }
        while let Some((id, user)) = todo.pop() {
            for directory in self.above.get(&id).into_iter().flatten() {
                if self.owners.entry(*directory).or_default().insert(user) {
                    todo.push((*directory, user));
                }
            }
        }
        self.owners
    }
}
