//! The metadata state machine: every version of every name and inode.
//!
//! Guarantees: deterministic; a transaction runs once, whole or not at all; what was true at an instant stays readable,
//! names since removed or moved included; POSIX semantics and error numbers in the order of checks of Linux.
//! Leaves to others: ordering and durability (`metalog`), keeping the versions (a [`VersionHistory`]), the bytes of
//! files and their unsettled length (`multilog`), proving callers and checking capabilities (`node`).
//!
//! The present is in memory, packed (`present`): inodes in pages by number, names in sorted blocks; 50 bytes a file.
//! Every change is also a [`KeyVersion`]: a key and its value from a stamp on. The store keeps all of them, so the past
//! is a lookup of the newest version at or before the instant, and a version in memory that is old enough answers for
//! the past too. Nothing is ever overwritten, so an answer at t does not change.
//!
//! Where a request goes: `apply` admits, runs once and remembers; `names`, `attributes` and `sessions` hold the
//! operations; `walk` resolves paths, now and then; `read` answers questions; `stored` and `key` are the disk format.
//!
//! # Source
//! CalvinFS (FAST'15) §2-3 for metadata as a deterministic state machine; entries are keyed by parent and name, not by
//! full path, so that renaming a directory is one change.

mod acl;
mod apply;
mod attributes;
mod cause;
mod check;
mod edit;
mod ended;
mod entry_stamps;
mod error;
mod expired_removals;
mod extent;
mod footprint;
mod forget;
mod history;
mod horizons;
mod inode;
mod item_value;
mod key;
mod load;
mod memory;
mod model;
mod names;
mod namespace;
mod numbers;
mod partial;
mod past_session;
mod patch;
mod paths;
mod present;
mod quota;
mod quotas;
mod read;
mod read_scope;
mod read_set;
mod regimes;
mod retain;
mod sessions;
mod snapshot_fates;
mod staged;
mod state_item;
mod stored;
mod timeline;
mod tree_at;
mod tree_owners;
mod walk;

pub use apply::OUTCOMES_REMEMBERED_MAX;
pub use attributes::PLUGIN_XATTR;
pub use check::{CheckCounts, check_history};
pub use ended::ENDED_SESSIONS_MAX;
pub use entry_stamps::{
    DirectoryVersion, ENTRY_STAMPS_MAX, EntryStamp, EntryStampPage, entry_stamps_key, entry_stamps_of,
    newest_entry_stamp, visit_entry_stamps,
};
pub use error::Error;
pub use expired_removals::expired_removals;
pub use extent::TreeExtent;
pub use footprint::{Footprint, ItemAccess};
pub use forget::{FORGET_INODES_MAX, SharedState, VisitAuthors, pack_owners, shared_states, visit_authors};
pub use history::{KeyVersion, NewestVersion, VersionHistory, VisitChanged, VisitValue, VisitVersion};
pub use horizons::{ExpiredInodes, Expiries, Expiry, Owners, Pins};
pub use inode::{FileLayout, Inode, MAY_EXECUTE, MAY_READ, MAY_WRITE, WriteGrant, check_access};
pub use item_value::ItemValue;
pub use key::{
    CONTROL, Cached, ENTRIES, ENTRY_STAMPS, INODES, LINKS, cached_of, erases, inode_between, inode_key, inode_of,
    is_loaded, is_rewritten, is_timed, keeps_versions,
};
pub use load::LoadedNames;
pub use memory::MemoryHistory;
#[doc(hidden)]
pub use model::NameEntry;
pub use model::{NamedInstant, Resolved, SessionState};
pub use names::LINKS_MAX;
pub use namespace::{Loss, Namespace, NamespaceCounts, ORPHANS_KEPT_MAX};
pub use numbers::InodeNumbers;
pub use partial::{FOOTPRINT_ITEMS_MAX, PartialOutcome, PartialRun, PartialState, find_footprint};
pub use past_session::PastSession;
pub use patch::{PATCHES_MAX, Patch, PatchSource};
pub use paths::Paths;
pub use present::{
    ColdFile, ColdSource, MemoryPieces, NamesMemory, PackedInodes, PackedNames, PieceLoads, PieceOffsets, PieceWindow,
    PresentSnapshot, Relocation, VisitPiece,
};
// For the example that measures them.
#[doc(hidden)]
pub use present::{DirectoryNames, DirectoryTable, InodeTable, NameCursor};
pub use read::ListedEntry;
pub use read_set::{NoReadSet, ReadSet};
pub use retain::InodeRetention;
pub use sessions::{GRANT_CHUNKS_MAX, SESSIONS_MAX, SNAPSHOTS_MAX};
pub use snapshot_fates::SnapshotFates;
pub use staged::{STAGED_BYTES_MAX, check_edit_bytes};
pub use state_item::{StateItem, StatePart};
pub use timeline::{
    ChangeSubject, Changed, EntryVersion, PlaceName, Revision, SubjectChange, SubjectState, TxnChanges, VersionCause,
    author, changes_of, entry_at, names_at, newest_changes_since, version_of_name, visit_names,
};
pub use tree_at::TreeAt;
pub use tree_owners::TreeOwners;

#[cfg(test)]
frieze_harness::count_allocations!();
