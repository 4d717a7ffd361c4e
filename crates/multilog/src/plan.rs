//! What a read has to fetch: holes and stored pieces, in order, without a gap.

use frieze_base::SegmentId;
use frieze_hlc::Hlc;

/// A truncate, in terms of one chunk: bytes of the chunk at or beyond `len` that were written before `at` are hidden
/// from reads at or after `at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Horizon {
    /// Stamp of the truncate.
    pub at: Hlc,
    /// Bytes of this chunk that it kept.
    pub len: u64,
}

/// One part of a planned range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Offset in the chunk, in bytes.
    pub at: u64,
    /// Length in bytes, never 0.
    pub len: u32,
    /// Where the bytes are.
    pub source: Source,
}

/// Where the bytes of a piece come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Zeros: never written, punched or cut off.
    Hole,
    /// Bytes of a record.
    Data(Stored),
}

/// A span of a stored record. Its bytes are at `data_offset + skip`; to verify them, read whole blocks of `block_bytes`
/// counted from `data_offset` and compare with the little-endian `u32`s that begin at `crcs_offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The segment that holds the record.
    pub segment: SegmentId,
    /// Offset of the record's payload in the segment.
    pub data_offset: u64,
    /// Length of the whole payload in bytes; its last block may be short.
    pub record_len: u32,
    /// Bytes of the payload before the piece.
    pub skip: u32,
    /// Offset of the array of block CRCs in the segment.
    pub crcs_offset: u64,
    /// Bytes in a block of this record.
    pub block_bytes: u32,
    /// When it was written.
    pub stamp: Hlc,
}
