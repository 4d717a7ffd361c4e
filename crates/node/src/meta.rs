//! The metadata plane: transactions are gathered into batches, ordered by the metalog, executed by the namespace.
//!
//! Guarantees: a transaction is in the log before it is executed; every transaction has one stamp and runs once; what
//! it reads and writes is the namespace at that stamp.
//! Leaves to others: who may ask (`engine`), when to flush (`durability`).
//!
//! There are two ways to order. A machine that is alone (`single`) writes to its log and executes at once, on the thread that
//! asks. With others (`raft_driver`) an entry is executed when a majority holds it durably, by all members in the order of the log.
//! The one becomes the other once, when the first other machine joins (`bootstrap`). What is executed, and how, is the same
//! (`state`).

mod apply_wait;
mod bootstrap;
mod codec;
mod facts;
mod horizons;
mod host;
mod metadata;
mod observer;
mod past;
mod pending_txns;
mod raft_driver;
mod read_index;
mod reader;
mod segments;
mod single;
mod snapshot_transfer;
mod state;
mod survivor;
mod writers;

pub(crate) use facts::{
    ChunkLayout, FileChunks, InodeHome, MissingGrant, OpenSessions, OtherWriter, TreeNode, WriteRight, WriteTarget,
};
pub(crate) use host::{MetaHost, RecoverUpto};
pub(crate) use metadata::{Metadata, PeerMetalog};
pub(crate) use observer::{ChangeObserver, SharedReadSet};
pub(crate) use past::Past;
pub use raft_driver::MetalogStatus;
pub use segments::{SegmentFiles, Unflushed};
pub(crate) use survivor::{LeftJournal, LeftStore};
pub(crate) use writers::holds_grant;
