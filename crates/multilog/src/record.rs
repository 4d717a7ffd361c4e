//! What a record says: its fields, and their bytes in full.
//!
//! On disk a record is a mark, a checksum, its fields as differences to the record before it ([`crate::entry`]), the
//! block checksums and the payload. The checksum is over the fields in full, as this table draws them; they are not
//! stored.
//!
//! | offset | bytes | field (little-endian) |
//! |---|---|---|
//! | 0 | 4 | magic `FRZR` |
//! | 4 | 4 | low half of the segment's id |
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
//!
//! The payload has as many bytes as the length says for a write, and none for a punch; the next record follows it. A
//! record counts only if its checksum fits the segment's id and tag *and* it names the stamp of the record before it.
//! Bytes of an earlier use of the file, or of records that an earlier recovery cut off, fail one or the other, so a
//! chance alignment cannot bring them back.

use frieze_base::SegmentId;
use frieze_hlc::Hlc;
pub use frieze_wire::chain::{RecordHeader, RecordKind};

/// Length of a record's fields in full, in bytes.
pub(crate) const FULL_BYTES: usize = 108;

/// The checksums of the blocks of a payload, in order; the last block may be short.
pub fn block_crcs(payload: &[u8], block_bytes: u32) -> Vec<u32> {
    payload.chunks(block_bytes as usize).map(frieze_base::crc32c).collect()
}

/// Number of blocks in a payload.
pub(crate) fn blocks(payload_len: u32, block_bytes: u32) -> u32 {
    payload_len.div_ceil(block_bytes)
}

/// The fields of a record in full: what its checksum is over. `previous` is the stamp of the record before it in the
/// log.
pub(crate) fn in_full(header: &RecordHeader, previous: Hlc, segment: SegmentId, block_bytes: u32) -> [u8; FULL_BYTES] {
    let mut bytes = [0u8; FULL_BYTES];
    bytes[0..4].copy_from_slice(&MAGIC);
    bytes[4..8].copy_from_slice(&(segment.0 as u32).to_le_bytes());
    bytes[8..16].copy_from_slice(&previous.0.to_le_bytes());
    bytes[16..24].copy_from_slice(&header.chunk.inode.0.to_le_bytes());
    bytes[24..28].copy_from_slice(&header.chunk.index.to_le_bytes());
    bytes[28..32].copy_from_slice(&header.chain.0.to_le_bytes());
    bytes[32..40].copy_from_slice(&header.epoch.0.to_le_bytes());
    bytes[40..48].copy_from_slice(&header.n.to_le_bytes());
    bytes[48..56].copy_from_slice(&header.version.to_le_bytes());
    bytes[56..64].copy_from_slice(&header.stamp.0.to_le_bytes());
    bytes[64..72].copy_from_slice(&header.user_time.unwrap_or_default().0.to_le_bytes());
    bytes[72..80].copy_from_slice(&header.session.0.to_le_bytes());
    bytes[80..88].copy_from_slice(&header.seq.0.to_le_bytes());
    bytes[88..92].copy_from_slice(&header.uid.to_le_bytes());
    bytes[92..96].copy_from_slice(&header.offset.to_le_bytes());
    bytes[96..100].copy_from_slice(&header.len.to_le_bytes());
    bytes[100..104].copy_from_slice(&[
        header.kind as u8,
        u8::from(header.user_time.is_some()) * HAS_USER_TIME,
        header.part,
        header.parts,
    ]);
    bytes[104..108].copy_from_slice(&block_bytes.to_le_bytes());
    bytes
}

/// The little-endian `u32` at an offset.
pub(crate) fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The little-endian `u64` at an offset.
pub(crate) fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

const MAGIC: [u8; 4] = *b"FRZR";
const HAS_USER_TIME: u8 = 1;
