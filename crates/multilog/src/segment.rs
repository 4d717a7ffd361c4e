//! Segments: where a record lies, and the footer that makes a full one quick to read back.

use frieze_base::SegmentId;

/// Length of a segment's header in bytes; the first record follows it.
pub const SEGMENT_HEADER_BYTES: usize = 64;

/// A position in the log: the end of a record. Positions of one log compare as the records were written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPosition {
    /// The segment.
    pub segment: SegmentId,
    /// Bytes from its start.
    pub offset: u64,
}

/// Where one record goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// The segment.
    pub segment: SegmentId,
    /// Offset of the header: the bytes of [`crate::MultiLog::encode`] and then the payload go here.
    pub offset: u64,
    /// Offset of the payload.
    pub data_offset: u64,
    /// The log's end once this record is in.
    pub end: LogPosition,
}

/// A segment to be made before the records placed with it are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSegment {
    /// Its id, never used before.
    pub id: SegmentId,
    /// Length of the file in bytes, to be preallocated; old bytes in a recycled file do no harm.
    pub bytes: u64,
    /// Goes to offset 0.
    pub header: Vec<u8>,
}

/// Where a group of records goes: adjacent, in one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// A segment to be made first, if the current one is full.
    pub roll: Option<NewSegment>,
    /// One for each record, in order.
    pub spots: Vec<Spot>,
}

/// A footer to be written: its segment is full and durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seal {
    /// The segment.
    pub segment: SegmentId,
    /// Where the footer goes.
    pub offset: u64,
    /// Its bytes; they end where the file ends.
    pub footer: Vec<u8>,
}
