//! The newest versions as they are in memory, for the image that the next start reads.
//!
//! Guarantees: a namespace that is loaded from these, the other keys of the store and [`Namespace::last_id`] is equal
//! to this one.
//! Leaves to others: the author and the cause of a version without grants, which the history has.

use frieze_hlc::Hlc;
use prost::Message;

use crate::key::VersionKey;
use crate::namespace::Namespace;
use crate::stored::{StoredEntry, StoredInode};

/// Takes a key, the stamp of its newest version, and the value.
type TakeNewest<'a> = dyn FnMut(&[u8], Hlc, &[u8]) + 'a;

impl Namespace {
    /// Calls `take` with key, stamp and value of every directory entry, in the order of keys, as
    /// [`crate::LoadedNames::load`] takes them.
    pub fn newest_entries(&self, take: &mut TakeNewest<'_>) {
        let mut value = Vec::new();
        for (parent, names) in self.directories.iter() {
            // What goes before each name in a key.
            let mut key = VersionKey::Entry(parent, &[]).encode();
            let len = key.len();
            let mut cursor = names.cursor();
            while let Some((name, entry)) = cursor.next_name() {
                key.truncate(len);
                key.extend_from_slice(name);
                value.clear();
                StoredEntry { inode: entry.inode().0, kind: entry.kind() as i32, session: 0, uid: 0 }
                    .encode_raw(&mut value);
                take(&key, entry.from, &value);
            }
        }
    }

    /// The same of every inode, as [`Namespace::load`] takes them.
    pub fn newest_inodes(&self, take: &mut TakeNewest<'_>) {
        let mut value = Vec::new();
        for (id, inode) in self.inodes.iter() {
            value.clear();
            StoredInode::of_current(&inode).encode_raw(&mut value);
            take(&VersionKey::Inode(id).encode(), inode.from, &value);
        }
    }
}
