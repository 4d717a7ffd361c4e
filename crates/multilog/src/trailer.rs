//! The footer of a segment: entries of its records and a trailer.
//!
//! The footer is written once the segment is full *and durable*, or earlier as a checkpoint of the records that are
//! durable by then: it names those, and all segments before are durable too. It holds each record's entry
//! ([`crate::entry`]) in order, then the trailer, the segment's last 128 bytes. Room for it is kept free as records are
//! placed.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 64 | the segment's header again: a damaged one is replaced by it |
//! | 64 | 4 | magic `FRZF` |
//! | 68 | 4 | CRC32C of the entries in the footer |
//! | 72 | 8 | end of the last record in the footer |
//! | 80 | 8 | number of records in the footer |
//! | 88 | 8 | stamp of the last record in the footer |
//! | 96 | 1 | 1 if no record will follow those of the footer |
//! | 97 | 7 | reserved, 0 |
//! | 104 | 8 | length of the entries |
//! | 112 | 12 | reserved, 0 |
//! | 124 | 4 | CRC32C of bytes 0..124 |

use frieze_base::crc32c;
use frieze_hlc::Hlc;

use crate::header::{SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::record::{long, word};

/// A footer's trailer as decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trailer {
    pub(crate) header: SegmentHeader,
    pub(crate) entries_crc: u32,
    pub(crate) entries_bytes: u64,
    pub(crate) end: u64,
    pub(crate) records: u64,
    pub(crate) stamp: Hlc,
    /// The last footer of the segment.
    pub(crate) closed: bool,
}

impl Trailer {
    pub(crate) fn encode(&self) -> [u8; TRAILER_BYTES] {
        let mut bytes = [0u8; TRAILER_BYTES];
        bytes[..SEGMENT_HEADER_BYTES].copy_from_slice(&self.header.encode());
        bytes[64..68].copy_from_slice(&TRAILER_MAGIC);
        bytes[68..72].copy_from_slice(&self.entries_crc.to_le_bytes());
        bytes[72..80].copy_from_slice(&self.end.to_le_bytes());
        bytes[80..88].copy_from_slice(&self.records.to_le_bytes());
        bytes[88..96].copy_from_slice(&self.stamp.0.to_le_bytes());
        bytes[96] = u8::from(self.closed);
        bytes[104..112].copy_from_slice(&self.entries_bytes.to_le_bytes());
        let crc = crc32c(&bytes[..124]);
        bytes[124..128].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// `None` if there is no sound trailer in these bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Trailer> {
        if bytes.len() != TRAILER_BYTES || bytes[64..68] != TRAILER_MAGIC || crc32c(&bytes[..124]) != word(bytes, 124) {
            return None;
        }
        let header = SegmentHeader::decode(&bytes[..SEGMENT_HEADER_BYTES]).ok()?;
        let entries_bytes = long(bytes, 104);
        let trailer = Trailer {
            header,
            entries_crc: word(bytes, 68),
            entries_bytes,
            end: long(bytes, 72),
            records: long(bytes, 80),
            stamp: Hlc(long(bytes, 88)),
            closed: bytes[96] == 1,
        };
        let footer_bytes = entries_bytes.checked_add(TRAILER_BYTES as u64)?;
        (trailer.end.checked_add(footer_bytes)? <= header.bytes).then_some(trailer)
    }

    /// Where the footer begins.
    pub(crate) fn footer_at(&self) -> u64 {
        self.header.bytes - TRAILER_BYTES as u64 - self.entries_bytes
    }
}

/// Length of the fixed part at the end of a footer in bytes.
pub(crate) const TRAILER_BYTES: usize = 128;
const TRAILER_MAGIC: [u8; 4] = *b"FRZF";

#[cfg(test)]
mod tests {
    use super::*;

    use frieze_base::SegmentId;

    use crate::header::SegmentLink;

    fn seal(bytes: &mut Vec<u8>) {
        bytes.resize(TRAILER_BYTES, 0);
        for (end, at) in [(60, 60), (124, 124)] {
            let crc = crc32c(&bytes[..end]);
            bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
        }
    }

    #[test]
    fn any_bytes_are_a_trailer_or_none() {
        let previous = SegmentLink::default();
        let header = SegmentHeader { id: SegmentId(5), tag: 0x5eed, bytes: 1 << 20, previous, block_bytes: 512 };
        let trailer = Trailer {
            header,
            entries_crc: 7,
            entries_bytes: 300,
            end: 5000,
            records: 20,
            stamp: Hlc(99),
            closed: true,
        };
        let inputs = frieze_harness::Inputs::from([trailer.encode()]).resealed(seal);
        frieze_harness::fuzz!(inputs, |bytes: &[u8]| {
            let decode = |bytes: &[u8]| Trailer::decode(bytes);
            if let Some(trailer) = frieze_harness::check_stable(bytes, decode, |trailer| trailer.encode().to_vec()) {
                assert!(trailer.footer_at() >= trailer.end, "the footer lies behind the records");
            }
        });
    }
}
