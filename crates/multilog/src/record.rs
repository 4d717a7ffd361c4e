//! The record: its fixed header, array of block checksums, payload. So it lies in segments of format version 1; in those of
//! version 2 what is left of the header is told as differences ([`crate::entry`]), and its checksum is over what it says in full.
//!
//! | offset | bytes | field (little-endian) |
//! |---|---|---|
//! | 0 | 4 | magic `FRZR` |
//! | 4 | 4 | low half of the segment's id: tells bytes of an earlier use of the file from a torn record |
//! | 8 | 8 | stamp of the record before it in the log, 0 for the first |
//! | 16 | 8 | inode |
//! | 24 | 4 | chunk index |
//! | 28 | 4 | chain |
//! | 32 | 8 | chain epoch |
//! | 40 | 8 | n: number in the chain |
//! | 48 | 8 | version of the chunk |
//! | 56 | 8 | stamp |
//! | 64 | 8 | user time, 0 without one |
//! | 72 | 8 | session |
//! | 80 | 8 | seq |
//! | 88 | 4 | uid |
//! | 92 | 4 | offset in the chunk |
//! | 96 | 4 | length in the chunk |
//! | 100 | 1 | kind: 1 write, 2 punch (3 prepare, 4 commit, 5 abort, 6 delete are reserved) |
//! | 101 | 1 | flags: bit 0, the record has a user time |
//! | 102 | 1 | part: which record of its group, from 0 |
//! | 103 | 1 | parts: records in its group |
//! | 104 | 4 | bytes in a block |
//! | 108 | 4 | CRC32C of the segment's id and tag (8 bytes each), of bytes 0..108 and of the block array |
//! | 112 | 4 x blocks | CRC32C of each block of the payload |
//!
//! The payload follows directly, as long as the length for a write, of no bytes for a punch, and then the next record. A record counts only if its checksum fits the segment's
//! id and tag *and* it names the stamp of the record before it: bytes of an earlier use of the file, or of records that
//! an earlier recovery cut off, fail one or the other, so a chance alignment cannot bring them back.

use frieze_base::{ChainEpoch, ChainId, ChunkId, InodeId, SegmentId, Seq, SessionId};
use frieze_hlc::{Hlc, UserTime};

use crate::segment::SegmentHeader;

/// Length of the fixed header of a record in bytes.
pub(crate) const RECORD_HEADER_BYTES: usize = 112;

/// What a record does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum RecordKind {
    /// Bytes at an offset.
    Write = 1,
    /// A range reads as zeros from now on; it carries no payload and extends nothing.
    Punch = 2,
}

impl RecordKind {
    pub(crate) fn of(byte: u8) -> Option<RecordKind> {
        match byte {
            1 => Some(RecordKind::Write),
            2 => Some(RecordKind::Punch),
            _ => None,
        }
    }
}

/// Everything about a record but its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordMeta {
    /// What it does.
    pub kind: RecordKind,
    /// The chain that ordered it.
    pub chain: ChainId,
    /// Configuration of the chain at that time.
    pub epoch: ChainEpoch,
    /// Its number in the chain.
    pub n: u64,
    /// The chunk it changes.
    pub chunk: ChunkId,
    /// Version of the chunk that it makes.
    pub version: u64,
    /// When it happened.
    pub stamp: Hlc,
    /// The time that its data tells, found by a plug-in.
    pub user_time: Option<UserTime>,
    /// The session that asked for it.
    pub session: SessionId,
    /// The session's number of that request.
    pub seq: Seq,
    /// The user it was done for.
    pub uid: u32,
    /// First byte in the chunk.
    pub offset: u32,
    /// Bytes of the chunk it covers. `offset + len` stays below 2^32.
    pub len: u32,
    /// Which record of its group, from 0.
    pub part: u8,
    /// Records in its group, which lie one after the other; 1 if it is none. 0: the others are not beside it, as where a chain has
    /// brought this one by itself.
    pub parts: u8,
}

impl RecordMeta {
    /// True if all of its group that is to be seen together lies up to here, in the order of the log.
    pub(crate) fn ends_group(&self) -> bool {
        self.parts == 0 || self.part + 1 == self.parts
    }

    /// True if the records of its group begin with it.
    pub(crate) fn begins_group(&self) -> bool {
        self.parts == 0 || self.part == 0
    }

    /// True if such a record can be.
    pub(crate) fn is_sound(&self) -> bool {
        (self.parts == 0 || self.part < self.parts) && self.offset.checked_add(self.len).is_some()
    }

    /// Bytes of payload that the record carries.
    pub fn payload_len(&self) -> u32 {
        match self.kind {
            RecordKind::Write => self.len,
            RecordKind::Punch => 0,
        }
    }
}

/// The checksums of the blocks of a payload, in order; the last block may be short.
pub fn block_crcs(payload: &[u8], block_bytes: u32) -> Vec<u32> {
    payload.chunks(block_bytes as usize).map(frieze_base::crc32c).collect()
}

/// Number of blocks in a payload.
pub(crate) fn blocks(payload_len: u32, block_bytes: u32) -> u32 {
    payload_len.div_ceil(block_bytes)
}

/// A record's header as decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) meta: RecordMeta,
    /// Stamp of the record before it in the log.
    pub(crate) previous: Hlc,
    pub(crate) block_bytes: u32,
}

impl Header {
    /// The header's bytes without its checksum: what a footer keeps of a record.
    pub(crate) fn encode(meta: &RecordMeta, previous: Hlc, segment: &SegmentHeader) -> [u8; RECORD_HEADER_BYTES] {
        let mut bytes = [0u8; RECORD_HEADER_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&(segment.id.0 as u32).to_le_bytes());
        bytes[8..16].copy_from_slice(&previous.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&meta.chunk.inode.0.to_le_bytes());
        bytes[24..28].copy_from_slice(&meta.chunk.index.to_le_bytes());
        bytes[28..32].copy_from_slice(&meta.chain.0.to_le_bytes());
        bytes[32..40].copy_from_slice(&meta.epoch.0.to_le_bytes());
        bytes[40..48].copy_from_slice(&meta.n.to_le_bytes());
        bytes[48..56].copy_from_slice(&meta.version.to_le_bytes());
        bytes[56..64].copy_from_slice(&meta.stamp.0.to_le_bytes());
        bytes[64..72].copy_from_slice(&meta.user_time.unwrap_or_default().0.to_le_bytes());
        bytes[72..80].copy_from_slice(&meta.session.0.to_le_bytes());
        bytes[80..88].copy_from_slice(&meta.seq.0.to_le_bytes());
        bytes[88..92].copy_from_slice(&meta.uid.to_le_bytes());
        bytes[92..96].copy_from_slice(&meta.offset.to_le_bytes());
        bytes[96..100].copy_from_slice(&meta.len.to_le_bytes());
        bytes[100..104].copy_from_slice(&[
            meta.kind as u8,
            u8::from(meta.user_time.is_some()) * HAS_USER_TIME,
            meta.part,
            meta.parts,
        ]);
        bytes[104..108].copy_from_slice(&segment.block_bytes.to_le_bytes());
        bytes
    }

    /// Reads the fields; `None` if they cannot be those of a record. The checksum is for others to verify.
    pub(crate) fn decode(bytes: &[u8; RECORD_HEADER_BYTES]) -> Option<Header> {
        let meta = RecordMeta {
            kind: RecordKind::of(bytes[100])?,
            chain: ChainId(word(bytes, 28)),
            epoch: ChainEpoch(long(bytes, 32)),
            n: long(bytes, 40),
            chunk: ChunkId { inode: InodeId(long(bytes, 16)), index: word(bytes, 24) },
            version: long(bytes, 48),
            stamp: Hlc(long(bytes, 56)),
            user_time: (bytes[101] & HAS_USER_TIME != 0).then(|| UserTime(long(bytes, 64) as i64)),
            session: SessionId(long(bytes, 72)),
            seq: Seq(long(bytes, 80)),
            uid: word(bytes, 88),
            offset: word(bytes, 92),
            len: word(bytes, 96),
            part: bytes[102],
            parts: bytes[103],
        };
        let header = Header { previous: Hlc(long(bytes, 8)), block_bytes: word(bytes, 104), meta };
        let meta = &header.meta;
        let sound = meta.is_sound() && header.block_bytes > 0;
        sound.then_some(header)
    }
}

/// True if the bytes begin as a record of this segment does that has a fixed header, whole or torn.
pub(crate) fn begins_record(bytes: &[u8], segment: SegmentId) -> bool {
    bytes[..4] == MAGIC && word(bytes, 4) == segment.0 as u32
}

/// The little-endian `u32` at an offset.
pub(crate) fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The little-endian `u64` at an offset.
pub(crate) fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

/// Where the checksum lies in the header.
pub(crate) const CRC_AT: usize = 108;
const MAGIC: [u8; 4] = *b"FRZR";
const HAS_USER_TIME: u8 = 1;
