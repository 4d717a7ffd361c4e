//! The metadata of one server: transactions are gathered into batches, ordered by the metalog, executed by the
//! namespace; questions about names are answered.
//!
//! Guarantees: a transaction is in the log before it is executed; every transaction has one stamp and runs once; what
//! it reads and writes is the namespace at that stamp. An answer is a value: no lock guard and no reference into the
//! namespace leaves this crate, so that a shard on another server could answer too.
//! Leaves to others: the rights of sessions and the instants of questions (`node`), when to flush (`node::durability`).
//!
//! One driver orders transactions (`raft_driver`): every member executes an entry when it is committed, in the order of
//! the log. A server that is alone is the only voter: an entry is committed when it is written, and executed at once,
//! on the thread of the request. The first other server that joins changes the set of voters, and nothing else
//! (`bootstrap`).
//!
//! Questions: `reader` (names and inodes), `writers` (sessions and their grants), `horizons` (what was forgotten),
//! `history` (every instant). A question takes the lock of the namespace for its own answer alone; what has to be of
//! one state is one question. Versions of names are in `store`.

mod apply_wait;
mod bootstrap;
mod checkpoint;
mod codec;
mod durable_mark;
mod facts;
mod history;
mod horizons;
mod host;
mod metadata;
mod observer;
mod pending_txns;
mod raft_driver;
mod read_index;
mod reader;
mod segments;
mod snapshot_transfer;
mod staging;
mod state;
mod store;
mod survivor;
mod writers;

pub use checkpoint::{CheckpointStatus, LostNames};
pub use facts::{ChunkLayout, FileChunks, InodeHome, MissingGrant, OpenSessions, OtherWriter, TreeNode, WriteTarget};
pub use history::{NameHistory, VisitAuthorship, VisitName, WantsSubject};
pub use host::{FlushMark, MetadataHost, RecoverUpto};
pub use metadata::{Metadata, PeerMetalog};
pub use observer::{ChangeObserver, SharedReadSet};
pub use raft_driver::MetalogStatus;
pub use reader::WantsXattr;
pub use segments::{SegmentFiles, Unflushed};
pub use staging::EditPlan;
pub use store::{
    LoadVersion, LsmStore, MemoryStore, NameVersions, STORE_DIRECTORY, StoreBatch, StoreCopy, StoreItem, StoreView,
    VersionStore, VisitItem, check_store,
};
pub use survivor::{SurvivorJournal, SurvivorStore};
pub use writers::holds_grant;

#[cfg(test)]
mod tests;

#[cfg(test)]
frieze_harness::count_allocations!();
