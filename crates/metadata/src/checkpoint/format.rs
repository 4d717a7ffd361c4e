//! The bytes of a checkpoint: header, two sections of pieces, footer.
//!
//! # Format
//! A file of exactly the length that its header says. Integers are little-endian.
//!
//! | offset | bytes | field of the header |
//! |---|---|---|
//! | 0 | 8 | magic `FRZCHECK` |
//! | 8 | 4 | version, 1 |
//! | 12 | 4 | CRC32C of bytes 16..88 |
//! | 16 | 8 | index of the last entry of the metalog that it contains |
//! | 24 | 8 | stamp of the newest change that it contains, as in the index of time |
//! | 32 | 8 | when it was taken, microseconds since 1970 |
//! | 40 | 16 | the first bytes of BLAKE3 of the name of the state that was received last; zeros if none was |
//! | 56 | 8, 8 | pieces of inodes, and bytes of their section |
//! | 72 | 8, 8 | pieces of names, and bytes of their section |
//!
//! The section of inodes follows, then that of names: length (4), CRC32C (4) and bytes of each piece
//! ([`frieze_namespace::PresentSnapshot`]). The last 32 bytes are the footer:
//!
//! | offset | bytes | field of the footer |
//! |---|---|---|
//! | 0 | 8 | magic `FRZCKEND` |
//! | 8 | 8 | the index again |
//! | 16 | 4, 4 | checksum of the section of inodes, and of that of names |
//! | 24 | 4 | CRC32C of the header |
//! | 28 | 4 | CRC32C of bytes 0..28 |
//!
//! The checksum of a section begins with 0 and becomes, with each piece, the CRC32C of itself, the length and the
//! CRC32C of the piece. So each byte has a checksum, and so has the order of the pieces.

use frieze_base::{LogIndex, crc32c};
use frieze_hlc::Hlc;

/// A checkpoint in the making.
pub(super) const UNFINISHED: &str = "checkpoint-unfinished";

const MAGIC: [u8; 8] = *b"FRZCHECK";
const END_MAGIC: [u8; 8] = *b"FRZCKEND";
const VERSION: u32 = 1;
pub(super) const HEADER_BYTES: usize = 88;
pub(super) const FOOTER_BYTES: usize = 32;
/// Length and checksum of a piece.
pub(super) const PIECE_HEAD_BYTES: usize = 8;

/// Names the state that was received last; zeros: none was.
pub(super) type StateDigest = [u8; 16];

/// The header of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) index: LogIndex,
    pub(super) stamp: Hlc,
    pub(super) taken_us: u64,
    pub(super) state: StateDigest,
    pub(super) inodes: Section,
    pub(super) names: Section,
}

/// Count and size of pieces, heads included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) pieces: u64,
    pub(super) bytes: u64,
}

/// The footer of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Footer {
    pub(super) index: LogIndex,
    pub(super) inodes: u32,
    pub(super) names: u32,
    pub(super) header: u32,
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        let (inodes, names) = (self.inodes, self.names);
        let before = [self.index.0, self.stamp.0, self.taken_us];
        let behind = [inodes.pieces, inodes.bytes, names.pieces, names.bytes];
        put_fields(&mut bytes[16..40], before);
        bytes[40..56].copy_from_slice(&self.state);
        put_fields(&mut bytes[56..], behind);
        let crc = crc32c(&bytes[16..]);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a header; what is wrong with it, if it is none.
    pub(super) fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Header, &'static str> {
        if bytes[..8] != MAGIC {
            return Err("it does not begin as one");
        }
        if bytes[8..12] != VERSION.to_le_bytes() {
            return Err("it has the format of another build");
        }
        if bytes[12..16] != crc32c(&bytes[16..]).to_le_bytes() {
            return Err("the checksum of its header");
        }
        let mut state = StateDigest::default();
        state.copy_from_slice(&bytes[40..56]);
        let section = |at| Section { pieces: field(bytes, at), bytes: field(bytes, at + 8) };
        Ok(Header {
            index: LogIndex(field(bytes, 16)),
            stamp: Hlc(field(bytes, 24)),
            taken_us: field(bytes, 32),
            state,
            inodes: section(56),
            names: section(72),
        })
    }

    /// Length of the file; `None` if there is no such length.
    pub(super) fn file_bytes(&self) -> Option<u64> {
        let ends = (HEADER_BYTES + FOOTER_BYTES) as u64;
        self.inodes.bytes.checked_add(self.names.bytes)?.checked_add(ends)
    }
}

impl Section {
    /// Adds a piece of this length.
    pub(super) fn add(&mut self, piece_bytes: usize) {
        self.pieces += 1;
        self.bytes += (PIECE_HEAD_BYTES + piece_bytes) as u64;
    }
}

impl Footer {
    pub(super) fn encode(&self) -> [u8; FOOTER_BYTES] {
        let mut bytes = [0; FOOTER_BYTES];
        bytes[..8].copy_from_slice(&END_MAGIC);
        bytes[8..16].copy_from_slice(&self.index.0.to_le_bytes());
        for (into, crc) in bytes[16..28].chunks_exact_mut(4).zip([self.inodes, self.names, self.header]) {
            into.copy_from_slice(&crc.to_le_bytes());
        }
        let crc = crc32c(&bytes[..28]);
        bytes[28..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; FOOTER_BYTES]) -> Option<Footer> {
        let crc = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let footer = Footer { index: LogIndex(field(bytes, 8)), inodes: crc(16), names: crc(20), header: crc(24) };
        (footer.encode() == *bytes).then_some(footer)
    }
}

/// The head of a piece, and the checksum of its section with it.
pub(super) fn piece_head(checksum: u32, piece: &[u8]) -> ([u8; PIECE_HEAD_BYTES], u32) {
    let mut bytes = [0; 4 + PIECE_HEAD_BYTES];
    bytes[..4].copy_from_slice(&checksum.to_le_bytes());
    bytes[4..8].copy_from_slice(&(piece.len() as u32).to_le_bytes());
    bytes[8..].copy_from_slice(&crc32c(piece).to_le_bytes());
    let mut head = [0; PIECE_HEAD_BYTES];
    head.copy_from_slice(&bytes[4..]);
    (head, crc32c(&bytes))
}

/// The digest of the name of the state that was received last.
pub(super) fn state_digest(name: Option<&[u8]>) -> StateDigest {
    let mut digest = StateDigest::default();
    if let Some(name) = name {
        digest.copy_from_slice(&blake3::hash(name).as_bytes()[..16]);
    }
    digest
}

fn put_fields<const N: usize>(bytes: &mut [u8], fields: [u64; N]) {
    for (into, field) in bytes.chunks_exact_mut(8).zip(fields) {
        into.copy_from_slice(&field.to_le_bytes());
    }
}

fn field(bytes: &[u8], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            index: LogIndex(0x0102),
            stamp: Hlc(0x0304),
            taken_us: 6,
            state: state_digest(None),
            inodes: Section { pieces: 7, bytes: 8 },
            names: Section { pieces: 9, bytes: 10 },
        }
    }

    #[test]
    fn golden_bytes_of_header_and_footer() {
        let header = Header { state: *b"0123456789abcdef", ..header() };
        let expected = b"FRZCHECK\x01\0\0\0CRCC\x02\x01\0\0\0\0\0\0\x04\x03\0\0\0\0\0\0\x06\0\0\0\0\0\0\0\
            0123456789abcdef\x07\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\x0a\0\0\0\0\0\0\0";
        let mut bytes = header.encode();
        assert_eq!(u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]), crc32c(&expected[16..]));
        bytes[12..16].copy_from_slice(b"CRCC");
        assert_eq!(bytes, *expected);
        let footer = Footer { index: LogIndex(0x0102), inodes: 3, names: 4, header: 5 };
        let expected = b"FRZCKEND\x02\x01\0\0\0\0\0\0\x03\0\0\0\x04\0\0\0\x05\0\0\0";
        assert_eq!(footer.encode(), *[&expected[..], &crc32c(expected).to_le_bytes()].concat());
        assert_eq!(piece_head(0, b"piece").0, *[&5_u32.to_le_bytes()[..], &crc32c(b"piece").to_le_bytes()].concat());
        assert_ne!(state_digest(Some(b"")), state_digest(None), "an empty name is a name");
    }

    #[test]
    fn any_bytes_are_a_header_and_a_footer_or_none() {
        let footer = Footer { index: LogIndex(7), inodes: 3, names: 4, header: 5 }.encode();
        let seal = |bytes: &mut Vec<u8>| {
            bytes.resize(HEADER_BYTES, 0);
            let crc = crc32c(&bytes[16..]);
            bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        };
        let inputs = frieze_harness::Inputs::from([header().encode().to_vec(), footer.to_vec()]).resealed(seal);
        frieze_harness::fuzz!(inputs, |bytes: &[u8]| {
            if let Some(head) = bytes.first_chunk() {
                match Header::decode(head) {
                    Ok(header) => assert_eq!(header.encode(), *head),
                    Err(words) => assert!(!words.is_empty()),
                }
            }
            if let Some(end) = bytes.last_chunk()
                && let Some(footer) = Footer::decode(end)
            {
                assert_eq!(footer.encode(), *end);
            }
        });
    }
}
