//! What can happen to the log and what it asks for.

use std::fmt;

use frieze_base::{Fault, LogIndex, Reason, SegmentId};
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
    /// Term of the leader that appended it; on one machine it rises with every start.
    pub term: u64,
    /// Stamp of the first transaction; transaction i has `stamp + i`.
    pub stamp: Hlc,
    /// Number of transactions, at least 1.
    pub count: u32,
    /// Where the data log ended when the entry was appended: the entry counts only with all of that.
    pub data_end: DataEnd,
    /// The encoded `wire::txn::Batch`.
    pub body: Vec<u8>,
}

/// Everything that can happen to the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetalogInput {
    /// Put this batch at the end. The stamp given to `step` is a fresh tick, the first of `count` consecutive ones.
    /// Answered by [`MetalogEffect::Append`] or [`MetalogEffect::Refused`].
    Propose {
        /// The encoded batch.
        body: Vec<u8>,
        /// Number of transactions in it, at least 1.
        count: u32,
        /// End of the data log now.
        data_end: DataEnd,
    },
    /// The bytes of this entry (and of its new segment, if it had one) are whole in the file. Entries complete in
    /// order.
    Appended {
        /// The entry.
        index: LogIndex,
    },
    /// They are not. The entry and all after it are withdrawn; their space is used again.
    AppendFailed {
        /// The first entry that failed.
        index: LogIndex,
        /// What the callers are told.
        reason: Reason,
    },
    /// Every entry up to `index`, and the data log up to what they name, is on stable storage.
    Persisted {
        /// The last of them.
        index: LogIndex,
    },
    /// The device can no longer make entries durable. Nothing is appended from now on.
    DeviceFailed {
        /// What the callers are told.
        reason: Reason,
    },
    /// Everything up to `index` is applied and durable in the store: its segments may be used again.
    Truncate {
        /// The last of them.
        through: LogIndex,
    },
    /// No entry will be stamped at or below `at` any more. Answered by [`MetalogEffect::Closed`] when every entry up to
    /// `at` is committed.
    Close {
        /// The instant, inclusive; not above the stamp given to `step`.
        at: Hlc,
    },
}

/// A file that the log begins to write.
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

/// Everything the log can ask of its driver, to be done in the order given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetalogEffect {
    /// Write `bytes` at `offset` of `segment`, after making the segment if it is new; then report
    /// [`MetalogInput::Appended`] or [`MetalogInput::AppendFailed`].
    Append {
        /// Position of the entry.
        index: LogIndex,
        /// Its stamp.
        stamp: Hlc,
        /// The segment to make first.
        roll: Option<JournalSegment>,
        /// The segment.
        segment: SegmentId,
        /// Bytes from its start.
        offset: u64,
        /// Header, body and padding.
        bytes: Vec<u8>,
    },
    /// The proposal of this step was not taken.
    Refused(Fault),
    /// This entry was withdrawn: it is as if it had never been proposed.
    Withdrawn {
        /// Its position, which will be used again.
        index: LogIndex,
        /// Why.
        fault: Fault,
    },
    /// Every entry up to `index` is committed: apply them, in order, and answer `async` callers.
    Committed {
        /// The last of them.
        index: LogIndex,
    },
    /// Every entry up to `index` is committed and durable: answer `sync` callers, feed the store.
    Durable {
        /// The last of them.
        index: LogIndex,
    },
    /// Every waiter, for an entry to be committed or durable or for an instant to close, gets this. Whether
    /// those changes survive is not known.
    Failed(Fault),
    /// Write zeros over what a withdrawn entry may have left: else it could come back after a crash that comes before
    /// the next append. If this fails too, report [`MetalogInput::DeviceFailed`].
    Erase {
        /// The segment.
        segment: SegmentId,
        /// Bytes from its start.
        offset: u64,
        /// Number of zeros.
        len: u64,
    },
    /// Remove this file, if it is there: it is no part of the log and not kept for use again.
    Remove {
        /// The file.
        segment: SegmentId,
    },
    /// The namespace at `at` will never change.
    Closed {
        /// The instant asked for.
        at: Hlc,
    },
}
