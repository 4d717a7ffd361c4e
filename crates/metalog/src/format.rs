//! The bytes of the log: segment header, entry header, body. Little-endian.
//!
//! A segment begins with 64 bytes:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `FRZL` |
//! | 4 | 4 | format version |
//! | 8 | 8 | segment id |
//! | 16 | 8 | index of the first entry |
//! | 24 | 8 | term |
//! | 32 | 8 | index up to which the log was durable when the segment was begun |
//! | 40 | 8 | newest stamp before the first entry |
//! | 48 | 4 | link: the CRC32C at the end of the last entry header before the first entry, 0 if there is none |
//! | 52 | 8 | length of the file in bytes |
//! | 60 | 4 | CRC32C of bytes 0..60 |
//!
//! Entries follow, each 72 bytes of header, the body, and zeros up to a multiple of 8:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `FRZM` |
//! | 4 | 4 | length of the body |
//! | 8 | 8 | index |
//! | 16 | 8 | term |
//! | 24 | 8 | stamp of the first transaction |
//! | 32 | 8 | index up to which the log was durable when the entry was appended |
//! | 40 | 8 | data end: segment |
//! | 48 | 8 | data end: offset |
//! | 56 | 4 | number of transactions |
//! | 60 | 4 | link: the CRC32C at the end of the header before it, of the entry or, for the first, of the segment |
//! | 64 | 4 | CRC32C of the body |
//! | 68 | 4 | CRC32C of the segment id (8 bytes) followed by bytes 0..68 |
//!
//! The segment id in the checksum keeps what a recycled file held before from passing for an entry. The link keeps what
//! a failed append left behind from following the entry that took its place. "Durable up to" tells a torn tail, which
//! was promised to no client, from damage to what was on stable storage.

use frieze_base::{Crc32c, LogIndex, SegmentId, crc32c};
use frieze_hlc::Hlc;

use crate::message::DataEnd;

/// Bytes of a segment header.
pub const SEGMENT_HEADER_BYTES: usize = 64;
/// Bytes of an entry header.
pub const ENTRY_HEADER_BYTES: usize = 72;
/// Version of the format that this code writes.
pub const FORMAT_VERSION: u32 = 1;

/// Entries begin at multiples of it.
pub(crate) const ALIGNMENT: usize = 8;

const SEGMENT_MAGIC: [u8; 4] = *b"FRZL";
const ENTRY_MAGIC: [u8; 4] = *b"FRZM";

/// The first bytes of a segment. Field meanings are in the module's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalHeader {
    /// Id of the segment.
    pub segment: SegmentId,
    /// Index of its first entry.
    pub first: LogIndex,
    /// Term in which it was begun.
    pub term: u64,
    /// The log was durable up to here.
    pub durable: LogIndex,
    /// Newest stamp before its first entry.
    pub stamp: Hlc,
    /// Checksum of the header of the entry before its first.
    pub link: u32,
    /// Length of the file in bytes.
    pub bytes: u64,
}

/// The bytes before a body. Field meanings are in the module's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryHeader {
    /// Length of the body in bytes.
    pub body_len: u32,
    /// Position in the log.
    pub index: LogIndex,
    /// Term of the leader.
    pub term: u64,
    /// Stamp of the first transaction.
    pub stamp: Hlc,
    /// The log was durable up to here.
    pub durable: LogIndex,
    /// End of the data log.
    pub data_end: DataEnd,
    /// Number of transactions.
    pub count: u32,
    /// Checksum of the header before this one.
    pub link: u32,
    /// Checksum of the body.
    pub body_crc: u32,
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
    pub fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut bytes = [0u8; SEGMENT_HEADER_BYTES];
        bytes[0..4].copy_from_slice(&SEGMENT_MAGIC);
        bytes[4..8].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.segment.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.first.0.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.term.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.durable.0.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.stamp.0.to_le_bytes());
        bytes[48..52].copy_from_slice(&self.link.to_le_bytes());
        bytes[52..60].copy_from_slice(&self.bytes.to_le_bytes());
        let crc = crc32c(&bytes[..60]);
        bytes[60..64].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// What `bytes`, the start of a file, say.
    pub(crate) fn decode(bytes: &[u8]) -> SegmentStart {
        if bytes.len() < SEGMENT_HEADER_BYTES || bytes[0..4] != SEGMENT_MAGIC || word(bytes, 60) != crc32c(&bytes[..60])
        {
            return SegmentStart::NotBegun;
        }
        if word(bytes, 4) != FORMAT_VERSION {
            return SegmentStart::OtherVersion(word(bytes, 4));
        }
        SegmentStart::Begun(JournalHeader {
            segment: SegmentId(long(bytes, 8)),
            first: LogIndex(long(bytes, 16)),
            term: long(bytes, 24),
            durable: LogIndex(long(bytes, 32)),
            stamp: Hlc(long(bytes, 40)),
            link: word(bytes, 48),
            bytes: long(bytes, 52),
        })
    }
}

impl EntryHeader {
    /// The bytes before the body, in `segment`.
    pub fn encode(&self, segment: SegmentId) -> [u8; ENTRY_HEADER_BYTES] {
        let mut bytes = [0u8; ENTRY_HEADER_BYTES];
        bytes[0..4].copy_from_slice(&ENTRY_MAGIC);
        bytes[4..8].copy_from_slice(&self.body_len.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.index.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.term.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.stamp.0.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.durable.0.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.data_end.segment.0.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.data_end.offset.to_le_bytes());
        bytes[56..60].copy_from_slice(&self.count.to_le_bytes());
        bytes[60..64].copy_from_slice(&self.link.to_le_bytes());
        bytes[64..68].copy_from_slice(&self.body_crc.to_le_bytes());
        let crc = entry_crc(segment, &bytes);
        bytes[68..72].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The entry header that `bytes` begin with, if they are one of `segment`. The body is not looked at.
    pub(crate) fn decode(bytes: &[u8], segment: SegmentId) -> Option<EntryHeader> {
        if bytes.len() < ENTRY_HEADER_BYTES
            || bytes[0..4] != ENTRY_MAGIC
            || word(bytes, 68) != entry_crc(segment, bytes)
        {
            return None;
        }
        Some(EntryHeader {
            body_len: word(bytes, 4),
            index: LogIndex(long(bytes, 8)),
            term: long(bytes, 16),
            stamp: Hlc(long(bytes, 24)),
            durable: LogIndex(long(bytes, 32)),
            data_end: DataEnd { segment: SegmentId(long(bytes, 40)), offset: long(bytes, 48) },
            count: word(bytes, 56),
            link: word(bytes, 60),
            body_crc: word(bytes, 64),
        })
    }

    /// The newest stamp of its transactions.
    pub(crate) fn last_stamp(&self) -> Hlc {
        last_stamp(self.stamp, self.count)
    }

    /// Bytes that header, body and padding take.
    pub(crate) fn size(&self) -> usize {
        entry_size(self.body_len as usize)
    }
}

/// The newest of `count` consecutive stamps.
pub(crate) fn last_stamp(first: Hlc, count: u32) -> Hlc {
    Hlc(first.0.saturating_add(u64::from(count.saturating_sub(1))))
}

/// Bytes that an entry with a body of `body_len` bytes takes.
pub(crate) fn entry_size(body_len: usize) -> usize {
    (ENTRY_HEADER_BYTES + body_len).next_multiple_of(ALIGNMENT)
}

/// What the header after this one links to: the checksum at its end. (Not the checksum of all of it: a CRC over bytes
/// that end with their own CRC is the same for all.)
pub(crate) fn link_of(header: &[u8]) -> u32 {
    word(header, header.len() - 4)
}

fn entry_crc(segment: SegmentId, bytes: &[u8]) -> u32 {
    let mut crc = Crc32c::default();
    crc.update(&segment.0.to_le_bytes());
    crc.update(&bytes[..68]);
    crc.value()
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}
