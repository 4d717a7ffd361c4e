//! Checksums of whole blocks, by which Hadoop's clients compare files (`hdfs dfs -checksum`, DistCp).
//!
//! Two kinds: the MD5 over the CRC32C of each 512 bytes, of which a client takes the MD5 over all blocks; and the CRC32C of the
//! block as a whole, which a client combines with those of the others, so that it does not depend on how a file is cut into
//! blocks. frieze keeps checksums of its own blocks: these are computed from the bytes.

use frieze_base::{Crc32c, crc32c};

use crate::proto::{BlockChecksumOptions, OpBlockChecksumResponse, block_checksum, checksum};
use crate::transfer::CHUNK_BYTES;

/// What of a block a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The MD5 over its CRCs.
    Md5OfCrcs,
    /// Its CRC.
    Crc,
}

impl Wanted {
    /// As a client names it; `None` if it is another kind than these, or in stripes, which only erasure-coded files have.
    pub(crate) fn read(options: Option<&BlockChecksumOptions>) -> Option<Wanted> {
        let Some(options) = options else { return Some(Wanted::Md5OfCrcs) };
        match options.block_checksum_type.unwrap_or(block_checksum::MD5_OF_CRCS) {
            block_checksum::MD5_OF_CRCS => Some(Wanted::Md5OfCrcs),
            block_checksum::COMPOSITE_CRC if options.stripe_length.unwrap_or(0) == 0 => Some(Wanted::Crc),
            _ => None,
        }
    }
}

/// The checksum of a block, taken piece by piece.
pub(crate) struct OfBlock {
    wanted: Wanted,
    md5: md5::Context,
    /// Of all bytes.
    crc: Crc32c,
    /// Of the last span, which is not full yet, and how many bytes it has.
    span: Crc32c,
    span_len: usize,
}

impl OfBlock {
    pub(crate) fn new(wanted: Wanted) -> OfBlock {
        OfBlock { wanted, md5: md5::Context::new(), crc: Crc32c::default(), span: Crc32c::default(), span_len: 0 }
    }

    /// Adds the next bytes.
    pub(crate) fn add(&mut self, mut bytes: &[u8]) {
        if self.wanted == Wanted::Crc {
            return self.crc.update(bytes);
        }
        if self.span_len > 0 {
            let (of_span, rest) = bytes.split_at(bytes.len().min(SPAN - self.span_len));
            self.span.update(of_span);
            self.span_len += of_span.len();
            if self.span_len < SPAN {
                return;
            }
            self.end_span();
            bytes = rest;
        }
        let spans = bytes.chunks_exact(SPAN);
        let last = spans.remainder();
        spans.for_each(|span| self.md5.consume(crc32c(span).to_be_bytes()));
        self.span.update(last);
        self.span_len = last.len();
    }

    /// The answer to the client.
    pub(crate) fn response(mut self) -> OpBlockChecksumResponse {
        if self.span_len > 0 {
            self.end_span();
        }
        let (kind, block_checksum) = match self.wanted {
            Wanted::Md5OfCrcs => (block_checksum::MD5_OF_CRCS, self.md5.finalize().to_vec()),
            Wanted::Crc => (block_checksum::COMPOSITE_CRC, self.crc.value().to_be_bytes().to_vec()),
        };
        let options = BlockChecksumOptions { block_checksum_type: Some(kind), stripe_length: None };
        OpBlockChecksumResponse {
            bytes_per_crc: CHUNK_BYTES,
            crc_per_block: crate::blocks::BLOCK_BYTES / u64::from(CHUNK_BYTES),
            block_checksum,
            crc_type: Some(checksum::CRC32C),
            block_checksum_options: Some(options),
        }
    }

    /// The MD5 over its CRCs.
    fn md5(mut self) -> [u8; 16] {
        if self.span_len > 0 {
            self.end_span();
        }
        self.md5.finalize().0
    }

    fn end_span(&mut self) {
        self.md5.consume(self.span.value().to_be_bytes());
        (self.span, self.span_len) = (Crc32c::default(), 0);
    }
}

/// The checksum of a file, as clients tell it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChecksum {
    /// Its name: what it is of what.
    pub algorithm: String,
    /// As it is compared.
    pub bytes: Vec<u8>,
}

/// The checksum of a file, taken block by block: what a client makes of those of the blocks when it asks for each.
#[derive(Default)]
pub(crate) struct OfFile {
    block: Option<OfBlock>,
    blocks: Vec<u8>,
}

impl OfFile {
    /// What is added from now on is of the next block.
    pub(crate) fn begin_block(&mut self) {
        let before = self.block.replace(OfBlock::new(Wanted::Md5OfCrcs));
        self.blocks.extend(before.into_iter().flat_map(OfBlock::md5));
    }

    /// Adds the next bytes of the block.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.block.as_mut().expect("a block was begun").add(bytes);
    }

    /// The checksum of all.
    pub(crate) fn checksum(mut self) -> FileChecksum {
        self.blocks.extend(self.block.take().into_iter().flat_map(OfBlock::md5));
        let count = self.blocks.len() / 16;
        // Of one block it is not said how many CRCs one may have, and of none nothing.
        let crcs = if count > 1 { crate::blocks::BLOCK_BYTES / u64::from(CHUNK_BYTES) } else { 0 };
        let (span, kind) = if count == 0 { (0, "CRC32") } else { (CHUNK_BYTES, "CRC32C") };
        // Clients take it over the buffer that they collected the blocks' in, which begins with 32 bytes and doubles.
        self.blocks.resize(self.blocks.len().next_power_of_two().max(32), 0);
        let md5 = md5::compute(&self.blocks);
        let bytes = [span.to_be_bytes().as_slice(), &crcs.to_be_bytes(), &md5.0].concat();
        FileChecksum { algorithm: format!("MD5-of-{crcs}MD5-of-{span}{kind}"), bytes }
    }
}

const SPAN: usize = CHUNK_BYTES as usize;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(wanted: Wanted, pieces: &[&[u8]]) -> Vec<u8> {
        let mut sums = OfBlock::new(wanted);
        pieces.iter().for_each(|piece| sums.add(piece));
        sums.response().block_checksum
    }

    #[test]
    fn however_the_bytes_come_the_checksum_is_of_all() {
        let bytes: Vec<u8> = (0..2000_u32).map(|at| (at * 31 % 251) as u8).collect();
        let crcs: Vec<u8> = bytes.chunks(512).flat_map(|span| crc32c(span).to_be_bytes()).collect();
        let md5 = md5::compute(crcs).to_vec();
        for cut in [0, 1, 511, 512, 513, 1024, 1999, 2000] {
            let (a, b) = bytes.split_at(cut);
            assert_eq!(of(Wanted::Md5OfCrcs, &[a, b]), md5, "cut at {cut}");
            assert_eq!(of(Wanted::Crc, &[a, b]), crc32c(&bytes).to_be_bytes(), "cut at {cut}");
        }
        let singly: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(of(Wanted::Md5OfCrcs, &singly), md5);
    }

    #[test]
    fn nothing_has_the_checksum_that_hadoop_gives_it() {
        let md5 = of(Wanted::Md5OfCrcs, &[]);
        assert_eq!(md5[..4], [0xd4, 0x1d, 0x8c, 0xd9], "the MD5 of no bytes");
        assert_eq!(of(Wanted::Crc, &[]), [0; 4]);
    }

    #[test]
    fn a_file_has_the_checksum_that_clients_make_of_its_blocks() {
        let nothing = OfFile::default().checksum();
        assert_eq!(nothing.algorithm, "MD5-of-0MD5-of-0CRC32");
        assert_eq!(nothing.bytes[12..16], [0x70, 0xbc, 0x8f, 0x4b], "the MD5 of 32 zeros");
        let mut one = OfFile::default();
        one.begin_block();
        one.add(b"abc");
        let of_block = md5::compute(crc32c(b"abc").to_be_bytes()).to_vec();
        let one = one.checksum();
        assert_eq!(one.algorithm, "MD5-of-0MD5-of-512CRC32C");
        assert_eq!(one.bytes[..12], [0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(one.bytes[12..], md5::compute([of_block, vec![0; 16]].concat()).0);
        let mut three = OfFile::default();
        for _ in 0..3 {
            three.begin_block();
        }
        let three = three.checksum();
        assert_eq!(three.algorithm, "MD5-of-262144MD5-of-512CRC32C");
        let of_none = md5::compute([]).to_vec();
        assert_eq!(three.bytes[12..], md5::compute([of_none.repeat(3), vec![0; 16]].concat()).0);
    }

    #[test]
    fn stripes_are_not_served() {
        let options = |kind, stripe_length| BlockChecksumOptions { block_checksum_type: kind, stripe_length };
        assert_eq!(Wanted::read(None), Some(Wanted::Md5OfCrcs));
        assert_eq!(Wanted::read(Some(&options(Some(1), Some(0)))), Some(Wanted::Md5OfCrcs));
        assert_eq!(Wanted::read(Some(&options(Some(2), Some(0)))), Some(Wanted::Crc));
        assert_eq!(Wanted::read(Some(&options(Some(2), Some(4096)))), None);
        assert_eq!(Wanted::read(Some(&options(Some(3), None))), None);
    }
}
