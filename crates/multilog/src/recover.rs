//! Rebuilding the log from its segments after a stop or a crash.

use std::collections::BTreeMap;

use frieze_base::{Fault, SegmentId};

use crate::LogPosition;

/// The driver's name of a segment file, such as the number in the file's name. Not the segment id: files are recycled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentKey(pub u64);

/// The segment files as the driver can read them.
pub trait SegmentSource {
    /// Every segment file and its length in bytes, in any order.
    fn segments(&mut self) -> Result<Vec<(SegmentKey, u64)>, Fault>;

    /// Reads from `offset` and returns how many bytes were read: fewer than asked only at the end of the file.
    fn read(&mut self, key: SegmentKey, offset: u64, into: &mut [u8]) -> Result<usize, Fault>;
}

/// What recovery found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Records in the recovered log.
    pub records: u64,
    /// Bytes that were read and verified record by record because no footer vouches for them.
    pub scanned_bytes: u64,
    /// Where the log was cut, if something that was begun is missing at its end.
    pub cut: Option<Cut>,
    /// End of the recovered log.
    pub end: LogPosition,
    /// Damage that is no torn tail: the rest of the log is there.
    pub corrupt: Vec<Corruption>,
    /// Which file holds which segment of the log.
    pub files: BTreeMap<SegmentId, SegmentKey>,
    /// Files that hold nothing of the log and may be recycled or removed.
    pub free: Vec<SegmentKey>,
}

/// The end of the log, where it is not a clean one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The segment.
    pub segment: SegmentId,
    /// Offset of the first byte that is not part of the log.
    pub offset: u64,
    /// What was found there.
    pub why: CutReason,
}

/// Why a log was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutReason {
    /// A record was begun, but its header is not whole.
    TornHeader,
    /// A record's header is whole, its payload is not.
    TornPayload,
    /// Records of an atomic group are there, but not all.
    IncompleteGroup,
    /// A record that contradicts those before it.
    Contradiction,
    /// Later segments exist, but what leads to them is missing.
    LostBeforeLaterSegment,
}

/// Damage in the part of the log that was durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// The file.
    pub key: SegmentKey,
    /// The segment, if that could be read.
    pub segment: Option<SegmentId>,
    /// Offset of the damage in the file.
    pub offset: u64,
    /// What is wrong and what it means, for people.
    pub what: String,
}
