//! The header of a segment, and places in the log.
//!
//! A segment is a file of fixed length: header, records one after the other, free space, footer. The header, 64 bytes,
//! little-endian:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `FRZS` |
//! | 4 | 1 | format version, 1 |
//! | 5 | 3 | reserved, 0 |
//! | 8 | 8 | segment id: rises with each use of a file |
//! | 16 | 8 | tag: a random number that no writer of files can guess |
//! | 24 | 8 | length of the segment |
//! | 32 | 8 | id of the segment before it in the log, 0 for the first |
//! | 40 | 8 | end of that segment's last record |
//! | 48 | 8 | stamp of that record |
//! | 56 | 4 | bytes in a block of the records |
//! | 60 | 4 | CRC32C of bytes 0..60 |

use frieze_base::{SegmentId, crc32c};
use frieze_hlc::Hlc;

use crate::record::{long, word};

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

/// How one segment follows another: which, where it ended, and the stamp of the last record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentLink {
    pub(crate) end: LogPosition,
    pub(crate) stamp: Hlc,
}

/// A segment's header as decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) id: SegmentId,
    pub(crate) tag: u64,
    pub(crate) bytes: u64,
    pub(crate) previous: SegmentLink,
    pub(crate) block_bytes: u32,
}

/// Why bytes are no segment header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoHeader {
    /// Nothing was ever written there.
    Blank,
    /// Something else, or a damaged header.
    Unreadable,
    /// A sound header of another format version.
    WrongVersion { segment: SegmentId, found: u8 },
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut bytes = [0u8; SEGMENT_HEADER_BYTES];
        bytes[0..4].copy_from_slice(&HEADER_MAGIC);
        bytes[4] = FORMAT_VERSION;
        bytes[8..16].copy_from_slice(&self.id.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.tag.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.previous.end.segment.0.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.previous.end.offset.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.previous.stamp.0.to_le_bytes());
        bytes[56..60].copy_from_slice(&self.block_bytes.to_le_bytes());
        let crc = crc32c(&bytes[..60]);
        bytes[60..64].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<SegmentHeader, NoHeader> {
        if bytes.iter().all(|&byte| byte == 0) {
            return Err(NoHeader::Blank);
        }
        if bytes.len() < SEGMENT_HEADER_BYTES || bytes[0..4] != HEADER_MAGIC || crc32c(&bytes[..60]) != word(bytes, 60)
        {
            return Err(NoHeader::Unreadable);
        }
        let id = SegmentId(long(bytes, 8));
        if bytes[4] != FORMAT_VERSION {
            return Err(NoHeader::WrongVersion { segment: id, found: bytes[4] });
        }
        let header = SegmentHeader {
            id,
            tag: long(bytes, 16),
            bytes: long(bytes, 24),
            previous: SegmentLink {
                end: LogPosition { segment: SegmentId(long(bytes, 32)), offset: long(bytes, 40) },
                stamp: Hlc(long(bytes, 48)),
            },
            block_bytes: word(bytes, 56),
        };
        let sound = header.previous.end.segment < id
            && header.block_bytes >= BLOCK_BYTES_MIN
            && (SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&header.bytes);
        if sound { Ok(header) } else { Err(NoHeader::Unreadable) }
    }
}

/// Positions in a segment are kept as `u32`.
pub(crate) const SEGMENT_BYTES_MAX: u64 = u32::MAX as u64;
/// Room for a header, a small record and a footer.
pub(crate) const SEGMENT_BYTES_MIN: u64 = 1024;
/// Below it the checksums would outweigh the data.
pub(crate) const BLOCK_BYTES_MIN: u32 = 512;
/// The format version of segments.
pub const FORMAT_VERSION: u8 = 1;
const HEADER_MAGIC: [u8; 4] = *b"FRZS";

#[cfg(test)]
mod tests {
    use super::*;

    fn seal(bytes: &mut Vec<u8>) {
        bytes.resize(SEGMENT_HEADER_BYTES, 0);
        let crc = crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
    }

    #[test]
    fn any_bytes_are_a_segment_header_or_none() {
        let end = LogPosition { segment: SegmentId(4), offset: 77 };
        let previous = SegmentLink { end, stamp: Hlc(99) };
        let header = SegmentHeader { id: SegmentId(5), tag: 0x5eed, bytes: 1 << 30, previous, block_bytes: 512 };
        let inputs = frieze_harness::Inputs::from([header.encode(), [0; SEGMENT_HEADER_BYTES]]).resealed(seal);
        frieze_harness::fuzz!(inputs, |bytes: &[u8]| {
            let decode = |bytes: &[u8]| SegmentHeader::decode(bytes).ok();
            frieze_harness::check_stable(bytes, decode, |header| header.encode().to_vec());
        });
    }
}
