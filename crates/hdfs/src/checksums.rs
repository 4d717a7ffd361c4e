//! Checksums of whole blocks, by which Hadoop's clients compare files (`hdfs dfs -checksum`, DistCp).
//!
//! Two kinds: the MD5 over the CRC32C of each 512 bytes, of which a client computes the MD5 over all blocks; and the
//! CRC32C of the block, which a client combines with those of other blocks, so that it does not depend on block
//! boundaries. frieze stores checksums of other spans: these are computed from the bytes.

use frieze_base::{Crc32c, crc32c};

use crate::proto::{BlockChecksumOptions, OpBlockChecksumResponse, block_checksum, checksum};
use crate::transfer::CHUNK_BYTES;

/// The checksum that a client requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChecksumRequest {
    /// The MD5 over its CRCs.
    Md5OfCrcs,
    /// Its CRC.
    Crc,
}

impl ChecksumRequest {
    /// Parses a request; `None` for another kind, or for stripes, which only erasure-coded files have.
    pub(crate) fn read(options: Option<&BlockChecksumOptions>) -> Option<ChecksumRequest> {
        let Some(options) = options else { return Some(ChecksumRequest::Md5OfCrcs) };
        match options.block_checksum_type.unwrap_or(block_checksum::MD5_OF_CRCS) {
            block_checksum::MD5_OF_CRCS => Some(ChecksumRequest::Md5OfCrcs),
            block_checksum::COMPOSITE_CRC if options.stripe_length.unwrap_or(0) == 0 => Some(ChecksumRequest::Crc),
            _ => None,
        }
    }
}

/// Computes the checksum of a block, piece by piece.
pub(crate) struct BlockChecksummer {
    wanted: ChecksumRequest,
    md5: md5::Context,
    /// Of all bytes.
    crc: Crc32c,
    /// Of the incomplete last span, and its bytes.
    span: Crc32c,
    span_len: usize,
}

impl BlockChecksummer {
    pub(crate) fn new(wanted: ChecksumRequest) -> BlockChecksummer {
        BlockChecksummer {
            wanted,
            md5: md5::Context::new(),
            crc: Crc32c::default(),
            span: Crc32c::default(),
            span_len: 0,
        }
    }

    /// Adds the next bytes.
    pub(crate) fn add(&mut self, mut bytes: &[u8]) {
        if self.wanted == ChecksumRequest::Crc {
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

    /// The response to the client.
    pub(crate) fn response(mut self) -> OpBlockChecksumResponse {
        if self.span_len > 0 {
            self.end_span();
        }
        let (kind, block_checksum) = match self.wanted {
            ChecksumRequest::Md5OfCrcs => (block_checksum::MD5_OF_CRCS, self.md5.finalize().to_vec()),
            ChecksumRequest::Crc => (block_checksum::COMPOSITE_CRC, self.crc.value().to_be_bytes().to_vec()),
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

/// The checksum of a file, as clients report it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChecksum {
    /// Name of the algorithm.
    pub algorithm: String,
    /// The value.
    pub bytes: Vec<u8>,
}

/// Computes the checksum of a file, block by block, as a client does from those of the blocks.
#[derive(Default)]
pub(crate) struct FileChecksummer {
    block: Option<BlockChecksummer>,
    blocks: Vec<u8>,
}

impl FileChecksummer {
    /// Begins the next block.
    pub(crate) fn begin_block(&mut self) {
        let before = self.block.replace(BlockChecksummer::new(ChecksumRequest::Md5OfCrcs));
        self.blocks.extend(before.into_iter().flat_map(BlockChecksummer::md5));
    }

    /// Adds the next bytes of the block.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.block.as_mut().expect("a block was begun").add(bytes);
    }

    /// The checksum of all.
    pub(crate) fn checksum(mut self) -> FileChecksum {
        self.blocks.extend(self.block.take().into_iter().flat_map(BlockChecksummer::md5));
        let count = self.blocks.len() / 16;
        // A single block does not define the number of CRCs in a block, and no block defines nothing.
        let crcs = if count > 1 { crate::blocks::BLOCK_BYTES / u64::from(CHUNK_BYTES) } else { 0 };
        let (span, kind) = if count == 0 { (0, "CRC32") } else { (CHUNK_BYTES, "CRC32C") };
        // Clients hash the whole buffer that they collected the blocks' checksums in, which begins with 32 bytes and
        // doubles.
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

    fn of(wanted: ChecksumRequest, pieces: &[&[u8]]) -> Vec<u8> {
        let mut sums = BlockChecksummer::new(wanted);
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
            assert_eq!(of(ChecksumRequest::Md5OfCrcs, &[a, b]), md5, "cut at {cut}");
            assert_eq!(of(ChecksumRequest::Crc, &[a, b]), crc32c(&bytes).to_be_bytes(), "cut at {cut}");
        }
        let singly: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(of(ChecksumRequest::Md5OfCrcs, &singly), md5);
    }

    #[test]
    fn nothing_has_the_checksum_that_hadoop_gives_it() {
        let md5 = of(ChecksumRequest::Md5OfCrcs, &[]);
        assert_eq!(md5[..4], [0xd4, 0x1d, 0x8c, 0xd9], "the MD5 of no bytes");
        assert_eq!(of(ChecksumRequest::Crc, &[]), [0; 4]);
    }

    #[test]
    fn a_file_has_the_checksum_that_clients_make_of_its_blocks() {
        let nothing = FileChecksummer::default().checksum();
        assert_eq!(nothing.algorithm, "MD5-of-0MD5-of-0CRC32");
        assert_eq!(nothing.bytes[12..16], [0x70, 0xbc, 0x8f, 0x4b], "the MD5 of 32 zeros");
        let mut one = FileChecksummer::default();
        one.begin_block();
        one.add(b"abc");
        let of_block = md5::compute(crc32c(b"abc").to_be_bytes()).to_vec();
        let one = one.checksum();
        assert_eq!(one.algorithm, "MD5-of-0MD5-of-512CRC32C");
        assert_eq!(one.bytes[..12], [0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(one.bytes[12..], md5::compute([of_block, vec![0; 16]].concat()).0);
        let mut three = FileChecksummer::default();
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
        assert_eq!(ChecksumRequest::read(None), Some(ChecksumRequest::Md5OfCrcs));
        assert_eq!(ChecksumRequest::read(Some(&options(Some(1), Some(0)))), Some(ChecksumRequest::Md5OfCrcs));
        assert_eq!(ChecksumRequest::read(Some(&options(Some(2), Some(0)))), Some(ChecksumRequest::Crc));
        assert_eq!(ChecksumRequest::read(Some(&options(Some(2), Some(4096)))), None);
        assert_eq!(ChecksumRequest::read(Some(&options(Some(3), None))), None);
    }
}
