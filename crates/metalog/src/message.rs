//! Batches of the log, and the files that it asks for.

use std::fmt;

use frieze_base::{LogIndex, SegmentId};
use frieze_hlc::Hlc;

/// A position of the server's data log: everything written to it before the entry that names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DataEnd {
    /// Segment of the data log.
    pub segment: SegmentId,
    /// Bytes from its start.
    pub offset: u64,
}

impl fmt::Display for DataEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.segment, self.offset)
    }
}

/// One batch of transactions in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Position in the log; 1 is the first.
    pub index: LogIndex,
    /// Term of the leader that appended it.
    pub term: u64,
    /// Stamp of the first transaction; transaction i has `stamp + i`.
    pub stamp: Hlc,
    /// Number of transactions, at least 1.
    pub count: u32,
    /// Where the leader's data log ended when the entry was appended, if the batch may name data.
    pub data_end: DataEnd,
    /// The encoded `wire::txn::Batch`.
    pub body: Vec<u8>,
}

/// A file that a journal begins to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalSegment {
    /// Its id, which names the file.
    pub segment: SegmentId,
    /// The file to rename to it; `None`: create and preallocate one.
    pub recycle: Option<SegmentId>,
    /// Length in bytes.
    pub bytes: u64,
    /// What goes to offset 0. Files and directory are synced with the next flush.
    pub header: Vec<u8>,
}
