//! The ordered log of metadata batches: with one member a write-ahead log with group commit ([`Metalog`]), with several
//! a Raft log on the same segments ([`RaftMember`], see there for what differs).
//!
//! Every change of the namespace is a transaction in a batch, every batch one entry here, with one stamp; every member
//! that executes the entries in order gets the same namespace. This crate decides order, place and durability; the
//! driver moves the bytes.
//!
//! # The life of a batch
//! 1. [`MetalogInput::Propose`] with a fresh tick. The log gives it the next index and a place, at its tail or at the
//!    start of a new segment, and asks for [`MetalogEffect::Append`].
//! 2. [`MetalogInput::Appended`]: with one member it is committed, [`MetalogEffect::Committed`]. Execute it, answer
//!    `async` callers.
//! 3. [`MetalogInput::Persisted`] after a flush, which covers however many entries came meanwhile:
//!    [`MetalogEffect::Durable`]. Answer `sync` callers, hand the versions to the store.
//! 4. [`MetalogInput::Truncate`] when the store holds it durably: its segment's file is used again.
//!
//! # Guarantees
//! - What is recovered is a prefix of what was proposed and not withdrawn, and holds every entry that was durable. (A
//!   withdrawn entry can come back in one way: the power fails before the next flush.)
//! - *Ordered*: an entry counts only if the data log recovered everything it held when the entry was proposed. So a
//!   name is never there without the bytes written before it. The flusher keeps the same order: data, then metalog.
//! - A file may hold anything from an earlier use or a failed append; none of it is ever taken for an entry.
//! - What recovery cut stays cut: it is erased before the log goes on.
//! - Damage to an entry that was on stable storage is an error, never a shorter log.
//!
//! Leaves to others: what a batch means (`namespace`), files and flushes (`node`, `disk`), the clock (`hlc`).
//!
//! # Source
//! CalvinFS (FAST'15) §2: one ordered log of batches. Protocols §6, §7 (*ordered*).

mod error;
mod format;
mod log;
mod message;
mod raft;
mod recover;
mod settings;
#[cfg(test)]
mod tests;

pub use error::Error;
pub use format::{ENTRY_HEADER_BYTES, EntryHeader, FORMAT_VERSION, JournalHeader, SEGMENT_HEADER_BYTES};
pub use log::Metalog;
pub use message::{DataEnd, JournalSegment, LogEntry, MetalogEffect, MetalogInput};
pub use raft::{
    BatchDurability, EntryKind, MemberChange, MemberEffect, MemberFrom, MemberInput, MemberRecovered, MemberSettings,
    Members, PeerEntry, PeerKind, PeerMessage, RECORD_VERSION, RaftMember, RaftRole, SnapshotMeta, SoleMember,
    Survivor,
};
pub use recover::{Mend, MetalogCut, MetalogCutReason, MetalogReport, RecoverFrom, RecoveredMetalog, SegmentSource};
pub use settings::MetalogSettings;

#[cfg(test)]
frieze_harness::count_allocations!();
