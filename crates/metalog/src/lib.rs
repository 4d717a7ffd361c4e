//! The ordered log of metadata batches: a Raft log, of one member or of several ([`RaftMember`]).
//!
//! Every change of the namespace is a transaction in a batch, every batch one entry here, with one stamp; every member
//! that executes the entries in order gets the same namespace. This crate decides order, place and durability; the
//! driver moves the bytes.
//!
//! A member (`raft`) keeps its log in a journal: records (`raft/record.rs`) in segments (`segment_log`, `format`),
//! found again after a crash (`recover`). [`RaftMember`] has the life of a batch and what is guaranteed.
//!
//! # Guarantees of a journal
//! - What is recovered is a prefix of what was written and not withdrawn, and holds every record that was durable. (A
//!   withdrawn record can come back in one way: the power fails before the next flush.)
//! - *Ordered*: a record counts only if the data log recovered everything it held when the record was written, as far
//!   as entries in it may name data and the store lacks them. So a name is never there without the bytes written before
//!   it. The flusher keeps the same order: data, then metalog.
//! - A file may hold anything from an earlier use or a failed append; none of it is ever taken for a record.
//! - What recovery cut stays cut: it is erased before the log goes on.
//! - Damage to a record that was on stable storage is an error, never a shorter log, as far as a later record says so.
//!   Of the last ones the driver's mark says it.
//!
//! Leaves to others: what a batch means (`namespace`), files and flushes (`node`, `disk`), the clock (`hlc`).
//!
//! # Source
//! CalvinFS (FAST'15) §2: one ordered log of batches. Protocols §6, §7 (*ordered*).

mod error;
mod format;
mod message;
mod raft;
mod recover;
mod scan;
mod segment_log;
#[cfg(test)]
mod tests;

pub use error::Error;
pub use format::{SEGMENT_FILE_PREFIX, segment_file_name};
pub use message::{DataEnd, JournalSegment, LogEntry};
pub use raft::{
    BatchDurability, EntryKind, MemberChange, MemberEffect, MemberFrom, MemberInput, MemberRecovered, MemberSettings,
    Members, PeerEntry, PeerKind, PeerMessage, RECORD_VERSION, RaftMember, RaftRole, Salvage, SalvageFrom, Salvaged,
    SnapshotMeta, SoleMember, Survivor, read_batches,
};
pub use recover::{Mend, MetalogCut, MetalogCutReason, MetalogReport, SegmentSource, damaged_header};

#[cfg(test)]
frieze_harness::count_allocations!();
