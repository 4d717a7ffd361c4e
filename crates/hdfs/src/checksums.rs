//! Checksums of whole blocks, by which Hadoop's clients compare files (`hdfs dfs -checksum`, DistCp).
//!
//! Two kinds: the MD5 over the CRC32C of each 512 bytes, of which a client takes the MD5 over all blocks; and the CRC32C of the
//! block as a whole, which a client combines with those of the others, so that it does not depend on how a file is cut into
//! blocks. frieze keeps checksums of its own blocks: these are computed from the bytes.

use frieze_base::{Crc, crc32c};

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
    crc: Crc,
    /// Of the last span, which is not full yet, and how many bytes it has.
    span: Crc,
    span_len: usize,
}

impl OfBlock {
    pub(crate) fn new(wanted: Wanted) -> OfBlock {
        OfBlock { wanted, md5: md5::Context::new(), crc: Crc::default(), span: Crc::default(), span_len: 0 }
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

    fn end_span(&mut self) {
        self.md5.consume(self.span.value().to_be_bytes());
        (self.span, self.span_len) = (Crc::default(), 0);
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
    fn stripes_are_not_served() {
        let options = |kind, stripe_length| BlockChecksumOptions { block_checksum_type: kind, stripe_length };
        assert_eq!(Wanted::read(None), Some(Wanted::Md5OfCrcs));
        assert_eq!(Wanted::read(Some(&options(Some(1), Some(0)))), Some(Wanted::Md5OfCrcs));
        assert_eq!(Wanted::read(Some(&options(Some(2), Some(0)))), Some(Wanted::Crc));
        assert_eq!(Wanted::read(Some(&options(Some(2), Some(4096)))), None);
        assert_eq!(Wanted::read(Some(&options(Some(3), None))), None);
    }
}
