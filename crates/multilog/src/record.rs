//! The record as it lies in a segment: fixed header, array of block checksums, payload.
//!
//! | offset | bytes | field (little-endian) |
//! |---|---|---|
//! | 0 | 4 | magic `FRZR` |
//! | 4 | 1 | kind: 1 write, 2 punch (3 prepare, 4 commit, 5 abort, 6 delete are reserved) |
//! | 5 | 1 | flags: bit 0, the record has a user time |
//! | 6 | 1 | part: which record of its group, from 0 |
//! | 7 | 1 | parts: records in its group |
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
//! | 100 | 4 | payload bytes: the length for a write, 0 for a punch |
//! | 104 | 4 | bytes in a block |
//! | 108 | 4 | CRC32C of the segment's id and tag (8 bytes each), of bytes 0..108 and of the block array |
//! | 112 | 4 x blocks | CRC32C of each block of the payload |
//!
//! The payload follows directly, and after it the next record. A record counts only if its checksum fits the segment's
//! id and tag *and* it names the stamp of the record before it: bytes of an earlier use of the file, or of records that
//! an earlier recovery cut off, fail one or the other, so a chance alignment cannot bring them back.

use frieze_base::{ChainEpoch, ChainId, ChunkId, InodeId, Seq, SessionId};
use frieze_hlc::{Hlc, UserTime};

/// Length of the fixed header of a record in bytes.
pub const RECORD_HEADER_BYTES: usize = 112;

/// What a record does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum RecordKind {
    /// Bytes at an offset.
    Write = 1,
    /// A range reads as zeros from now on; it carries no payload and extends nothing.
    Punch = 2,
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
    /// Records in its group; 1 if it stands alone.
    pub parts: u8,
}

impl RecordMeta {
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
