//! The bytes of a journal: segment header, record header, body. Little-endian.
//!
//! A segment begins with 48 bytes:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `FRZL` |
//! | 4 | 4 | format version |
//! | 8 | 8 | segment id |
//! | 16 | 8 | number of the first record |
//! | 24 | 8 | number up to which the journal was durable when the segment was begun |
//! | 32 | 4 | link: the CRC32C at the end of the last record header before the first record, 0 if there is none |
//! | 36 | 8 | length of the file in bytes |
//! | 44 | 4 | CRC32C of bytes 0..44 |
//!
//! Records follow, each 52 bytes of header, the body, and zeros up to a multiple of 8:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `FRZM` |
//! | 4 | 4 | length of the body |
//! | 8 | 8 | number |
//! | 16 | 8 | number up to which the journal was durable when the record was appended |
//! | 24 | 8 | data end: segment |
//! | 32 | 8 | data end: offset |
//! | 40 | 4 | link: the CRC32C at the end of the header before it, of the record or, for the first, of the segment |
//! | 44 | 4 | CRC32C of the body |
//! | 48 | 4 | CRC32C of the segment id (8 bytes) followed by bytes 0..48 |
//!
//! The segment id in the checksum keeps what a recycled file held before from passing for a record. The link keeps what
//! a failed append left behind from following the record that took its place. "Durable up to" tells a torn tail, which
//! was promised to no client, from damage to what was on stable storage.

use frieze_base::{Crc32c, LogIndex, SegmentId, crc32c};

use crate::message::DataEnd;

/// Bytes of a segment header.
pub(crate) const SEGMENT_HEADER_BYTES: usize = 48;
/// Bytes of a record header.
pub(crate) const RECORD_HEADER_BYTES: usize = 52;
/// Version of the format that this code writes.
pub(crate) const FORMAT_VERSION: u32 = 1;

/// Records begin at multiples of it.
pub(crate) const ALIGNMENT: usize = 8;

const SEGMENT_MAGIC: [u8; 4] = *b"FRZL";
const RECORD_MAGIC: [u8; 4] = *b"FRZM";

/// The first bytes of a segment. Field meanings are in the module's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JournalHeader {
    pub(crate) segment: SegmentId,
    /// Number of its first record.
    pub(crate) first: LogIndex,
    /// The journal was durable up to here.
    pub(crate) durable: LogIndex,
    /// Checksum of the header of the record before its first.
    pub(crate) link: u32,
    /// Length of the file in bytes.
    pub(crate) bytes: u64,
}

/// The bytes before a body. Field meanings are in the module's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JournalRecordHeader {
    /// Length of the body in bytes.
    pub(crate) body_len: u32,
    pub(crate) number: LogIndex,
    /// The journal was durable up to here.
    pub(crate) durable: LogIndex,
    /// End of the data log.
    pub(crate) data_end: DataEnd,
    /// Checksum of the header before this one.
    pub(crate) link: u32,
    /// Checksum of the body.
    pub(crate) body_crc: u32,
}

/// What the first bytes of a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentStart {
    /// A segment of this format.
    Begun(JournalHeader),
    /// A whole header of another version.
    OtherVersion(u32),
    /// Zeros, remnants or a torn header: the segment was not begun.
    NotBegun,
}

impl JournalHeader {
    /// The bytes at offset 0.
    pub(crate) fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut bytes = [0u8; SEGMENT_HEADER_BYTES];
        bytes[0..4].copy_from_slice(&SEGMENT_MAGIC);
        bytes[4..8].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.segment.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.first.0.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.durable.0.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.link.to_le_bytes());
        bytes[36..44].copy_from_slice(&self.bytes.to_le_bytes());
        let crc = crc32c(&bytes[..44]);
        bytes[44..48].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// What `bytes`, the start of a file, say.
    pub(crate) fn decode(bytes: &[u8]) -> SegmentStart {
        if bytes.len() < SEGMENT_HEADER_BYTES || bytes[0..4] != SEGMENT_MAGIC || word(bytes, 44) != crc32c(&bytes[..44])
        {
            return SegmentStart::NotBegun;
        }
        if word(bytes, 4) != FORMAT_VERSION {
            return SegmentStart::OtherVersion(word(bytes, 4));
        }
        SegmentStart::Begun(JournalHeader {
            segment: SegmentId(long(bytes, 8)),
            first: LogIndex(long(bytes, 16)),
            durable: LogIndex(long(bytes, 24)),
            link: word(bytes, 32),
            bytes: long(bytes, 36),
        })
    }
}

impl JournalRecordHeader {
    /// The bytes before the body, in `segment`.
    pub(crate) fn encode(&self, segment: SegmentId) -> [u8; RECORD_HEADER_BYTES] {
        let mut bytes = [0u8; RECORD_HEADER_BYTES];
        bytes[0..4].copy_from_slice(&RECORD_MAGIC);
        bytes[4..8].copy_from_slice(&self.body_len.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.number.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.durable.0.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.data_end.segment.0.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.data_end.offset.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.link.to_le_bytes());
        bytes[44..48].copy_from_slice(&self.body_crc.to_le_bytes());
        let crc = record_crc(segment, &bytes);
        bytes[48..52].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The record header that `bytes` begin with, if they are one of `segment`. The body is not looked at.
    pub(crate) fn decode(bytes: &[u8], segment: SegmentId) -> Option<JournalRecordHeader> {
        if bytes.len() < RECORD_HEADER_BYTES
            || bytes[0..4] != RECORD_MAGIC
            || word(bytes, 48) != record_crc(segment, bytes)
        {
            return None;
        }
        Some(JournalRecordHeader {
            body_len: word(bytes, 4),
            number: LogIndex(long(bytes, 8)),
            durable: LogIndex(long(bytes, 16)),
            data_end: DataEnd { segment: SegmentId(long(bytes, 24)), offset: long(bytes, 32) },
            link: word(bytes, 40),
            body_crc: word(bytes, 44),
        })
    }

    /// Bytes that header, body and padding take.
    pub(crate) fn size(&self) -> usize {
        record_size(self.body_len as usize)
    }
}

/// The name of the file of a segment.
pub fn segment_file_name(segment: SegmentId) -> String {
    format!("{SEGMENT_FILE_PREFIX}{:016x}", segment.0)
}

/// What the names of all files of a journal begin with.
pub const SEGMENT_FILE_PREFIX: &str = "raft-";

/// Bytes that a record with a body of `body_len` bytes takes.
pub(crate) fn record_size(body_len: usize) -> usize {
    (RECORD_HEADER_BYTES + body_len).next_multiple_of(ALIGNMENT)
}

/// What the header after this one links to: the checksum at its end. (Not the checksum of all of it: a CRC over bytes
/// that end with their own CRC is the same for all.)
pub(crate) fn link_of(header: &[u8]) -> u32 {
    word(header, header.len() - 4)
}

fn record_crc(segment: SegmentId, bytes: &[u8]) -> u32 {
    let mut crc = Crc32c::default();
    crc.update(&segment.0.to_le_bytes());
    crc.update(&bytes[..48]);
    crc.value()
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}
