//! CRC32C, the one checksum of frieze: of frames, of records, of stored blocks.

use crc_fast::{CrcAlgorithm, Digest};

/// The CRC32C (Castagnoli) of `bytes`. About 11 GB/s a core with SIMD.
pub fn crc32c(bytes: &[u8]) -> u32 {
    // The library returns 64 bits for all widths; CRC32C fills the low 32.
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// The CRC32C of `a` followed by `b`, from the two checksums and the length of `b` in bytes.
pub fn crc32c_combine(crc_a: u32, crc_b: u32, len_b: u64) -> u32 {
    crc_fast::checksum_combine(CrcAlgorithm::Crc32Iscsi, crc_a.into(), crc_b.into(), len_b) as u32
}

/// A CRC32C taken piece by piece.
#[derive(Debug)]
pub struct Crc(Digest);

impl Default for Crc {
    fn default() -> Self {
        Crc(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }
}

impl Crc {
    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of all bytes added so far.
    pub fn value(&self) -> u32 {
        self.0.finalize() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32c_matches_the_published_check_value() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(b""), 0);
    }

    #[test]
    fn combined_checksum_equals_that_of_the_whole() {
        let whole: Vec<u8> = (0..100_000u32).map(|i| (i * 7) as u8).collect();
        for cut in [0, 1, 4096, 65_537, 100_000] {
            let (a, b) = whole.split_at(cut);
            assert_eq!(crc32c_combine(crc32c(a), crc32c(b), b.len() as u64), crc32c(&whole), "cut at {cut}");
        }
    }

    #[test]
    fn pieces_give_the_checksum_of_the_whole() {
        let mut crc = Crc::default();
        crc.update(b"1234");
        crc.update(b"56789");
        assert_eq!(crc.value(), crc32c(b"123456789"));
    }
}
