//! Where the versions of the namespace live: an LSM tree of which the metalog is the journal.
//!
//! An entry that is executed goes into a memtable, once, and is readable from then on. A memtable is sealed behind an
//! entry, and becomes a table on disk when the metalog is durable up to that entry. A table says up to which entry it
//! is complete. So the tables never hold a version whose entry could still be lost, and after a crash they are the
//! state of some durable prefix of the metalog: the rest is replayed.
//!
//! A stored key is the namespace's key with its zero bytes escaped (`00` → `00 ff`), a terminator (`00 00`) and the
//! stamp, big-endian: byte order is key order, then time order. Keys that keep no history (remembered outcomes, `R…`,
//! and the control state, `C`) have stamp 0 and are overwritten and removed in place; their stamp stands before the
//! value. A version may be written again in its place, under its stamp: the younger value counts. That of a session is
//! also removed, as long as nothing names the session.
//!
//! Changes of a directory's entries have no versions of its inode: the versions are computed from pages of stamps
//! (`entry_pages.rs`), and readers find them as if they were stored.
//!
//! Beside the versions lies the *index of time* (`time_index.rs`): which keys changed when, so that the changes of an
//! interval are read without walking the tree.

mod batch;
mod copy;
mod entry_pages;
mod keys;
mod load;
mod lsm;
mod memory;
mod name_versions;
mod snapshot_store;
mod time_index;
mod version_history;
mod version_store;

pub use batch::StoreBatch;
pub use copy::{STORE_DIRECTORY, StoreCopy, check_store};
pub(crate) use load::LoadPart;
pub use lsm::LsmStore;
pub use memory::MemoryStore;
pub use name_versions::NameVersions;
pub(crate) use snapshot_store::page_of;
pub use version_store::{LoadVersion, StoreItem, StoreView, VersionStore, VisitItem};

#[cfg(test)]
mod tests;
