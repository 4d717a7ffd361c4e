//! Images: a page of a chunk as it stood after one record, stored in one place, so that a read at any instant has few
//! places of the device to go to.
//!
//! Guarantees: an image holds bytes and nothing else: what is data, what a hole and what was punched is said by the
//! index; it is used only where the index says that the page consisted of the very fragments that it was made of; it
//! never holds bytes of a record that was dead when it was made.
//! Leaves to others: files, reading and writing, how much space there is (`node`).
//!
//! # The algorithm
//! A page of 64 KiB that was overwritten in small pieces consists of as many records, each somewhere in the log. The
//! walk along its records ([`crate::MultiLog::scan_for_images`]) counts the *pieces*, the places of the device that it
//! consists of after each: where they would be more than `pieces_max`, an image of the page before that record is due.
//! From then on the page is the image and the records after it, until those are too many again. So images are as few as
//! they can be if each instant is to be read from the newest image before it. A page of few pieces needs none, and none
//! is used.
//!
//! # The bytes
//! An image file is a head (4 KiB), a directory of one entry for each slot, filled up to 4 KiB, and the slots: 4 KiB of
//! head, 64 KiB of page. Little-endian. The head:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `FRZP` |
//! | 4 | 1 | format version, 1 |
//! | 5 | 3 | reserved, 0 |
//! | 8 | 4 | number of the file: its name |
//! | 12 | 4 | slots |
//! | 16 | 44 | reserved, 0 |
//! | 60 | 4 | CRC32C of bytes 0..60 |
//!
//! An entry of the directory; all zero where there is no image:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | inode |
//! | 8 | 4 | chunk index |
//! | 12 | 4 | page: which 64 KiB of the chunk |
//! | 16 | 8 | stamp of the newest record in it |
//! | 24 | 8 | digest of the fragments it was made of: for each its record's stamp, first and last byte, and whether it is a punch |
//! | 32 | 4 | the same of those left out since they are dead, 0 without any |
//! | 36 | 4 | CRC32C of the block checksums in the slot's head |
//! | 40 | 20 | reserved, 0 |
//! | 60 | 4 | CRC32C of the number of the file and of the slot (4 bytes each) and of bytes 0..60 |
//!
//! A slot's head is the same entry again and the CRC32C of each of the 16 blocks of 4 KiB of the page; the rest is 0.
//! Bytes of the page that are not data are 0.
//!
//! # Source
//! Log-structured stores that materialise a page when its chain of deltas grows (Bw-tree, Levandoski et al., 2013;
//! Umbra's and SQL Server's page versions); ours are made for old states too, since those are read as well.

mod key;
mod set;

use frieze_base::{ChunkId, Crc32c, InodeId, crc32c};
use frieze_hlc::Hlc;

pub(crate) use key::Digest;
pub use key::{ImageDigest, ImageKey, ImagePlace};
pub use set::Images;

use crate::record::{long, word};

/// An image file, as its head says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageFile {
    /// Its number.
    pub file: u32,
    /// Images that it has room for.
    pub slots: u32,
}

/// What an entry of the directory says of its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageEntry {
    /// Nothing is there.
    Free,
    /// An image.
    Image(ImageKey, ImageDigest),
    /// The entry is damaged: nothing is known.
    Damaged,
}

/// What the head of a slot says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotHead {
    /// The image asked for, with the checksums of its blocks.
    Image([u32; BLOCKS]),
    /// Another image, or none: the one asked for was given up.
    Gone,
    /// Damaged.
    Damaged,
}

impl ImageFile {
    /// Reads the head of a file; `None` if there is no sound one of this version.
    pub fn decode(bytes: &[u8]) -> Option<ImageFile> {
        let bytes = bytes.get(..HEAD_BYTES)?;
        let sound = bytes[..4] == MAGIC && bytes[4] == FORMAT_VERSION && crc32c(&bytes[..60]) == word(bytes, 60);
        let head = ImageFile { file: word(bytes, 8), slots: word(bytes, 12) };
        (sound && (1..=SLOTS_MAX).contains(&head.slots)).then_some(head)
    }

    /// The bytes of the head.
    pub fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = FORMAT_VERSION;
        bytes[8..12].copy_from_slice(&self.file.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.slots.to_le_bytes());
        let crc = crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Length of the file in bytes.
    pub fn bytes(&self) -> u64 {
        self.slot_at(self.slots)
    }

    /// Where the entry of a slot lies.
    pub fn entry_at(&self, slot: u32) -> u64 {
        ALIGN + u64::from(slot) * ENTRY_BYTES as u64
    }

    /// Where a slot begins: its head, [`SLOT_HEAD_BYTES`] later the page.
    pub fn slot_at(&self, slot: u32) -> u64 {
        self.entry_at(self.slots).next_multiple_of(ALIGN) + u64::from(slot) * SLOT_BYTES
    }

    /// The entry of a slot and the head that goes before its page, for an image of these bytes.
    ///
    /// # Panics
    /// If they are not a page.
    pub fn seal(&self, slot: u32, key: &ImageKey, of: &ImageDigest, page: &[u8]) -> ([u8; ENTRY_BYTES], Vec<u8>) {
        assert_eq!(page.len(), PAGE_BYTES, "an image is of a whole page");
        let crcs: Vec<u8> = page.chunks(BLOCK_BYTES).flat_map(|block| crc32c(block).to_le_bytes()).collect();
        let mut entry = [0; ENTRY_BYTES];
        entry[..8].copy_from_slice(&key.chunk.inode.0.to_le_bytes());
        entry[8..12].copy_from_slice(&key.chunk.index.to_le_bytes());
        entry[12..16].copy_from_slice(&key.page.to_le_bytes());
        entry[16..24].copy_from_slice(&key.stamp.0.to_le_bytes());
        entry[24..32].copy_from_slice(&of.digest.to_le_bytes());
        entry[32..36].copy_from_slice(&of.left_out.to_le_bytes());
        entry[36..40].copy_from_slice(&crc32c(&crcs).to_le_bytes());
        let crc = self.checksum(slot, &entry);
        entry[60..].copy_from_slice(&crc.to_le_bytes());
        let mut head = [&entry[..], &crcs].concat();
        head.resize(SLOT_HEAD_BYTES, 0);
        (entry, head)
    }

    /// Reads an entry of the directory.
    pub fn entry(&self, slot: u32, bytes: &[u8]) -> ImageEntry {
        if bytes.iter().all(|&byte| byte == 0) {
            return ImageEntry::Free;
        }
        if bytes.len() != ENTRY_BYTES || self.checksum(slot, bytes) != word(bytes, 60) {
            return ImageEntry::Damaged;
        }
        let chunk = ChunkId { inode: InodeId(long(bytes, 0)), index: word(bytes, 8) };
        let key = ImageKey { chunk, page: word(bytes, 12), stamp: Hlc(long(bytes, 16)) };
        ImageEntry::Image(key, ImageDigest { digest: long(bytes, 24), left_out: word(bytes, 32) })
    }

    /// Reads the head of a slot, of which the image `key` is expected. At least [`SLOT_HEAD_USED`] bytes of it are
    /// needed.
    pub fn slot_head(&self, slot: u32, key: &ImageKey, bytes: &[u8]) -> SlotHead {
        let Some(bytes) = bytes.get(..SLOT_HEAD_USED) else { return SlotHead::Damaged };
        let (entry, crcs) = bytes.split_at(ENTRY_BYTES);
        match self.entry(slot, entry) {
            ImageEntry::Image(found, _) if found == *key && crc32c(crcs) == word(entry, 36) => {
                let mut blocks = [0; BLOCKS];
                blocks.iter_mut().zip(crcs.as_chunks().0).for_each(|(block, crc)| *block = u32::from_le_bytes(*crc));
                SlotHead::Image(blocks)
            }
            ImageEntry::Image(found, _) if found == *key => SlotHead::Damaged,
            ImageEntry::Image(..) | ImageEntry::Free => SlotHead::Gone,
            ImageEntry::Damaged => SlotHead::Damaged,
        }
    }

    fn checksum(&self, slot: u32, entry: &[u8]) -> u32 {
        let mut crc = Crc32c::default();
        crc.update(&self.file.to_le_bytes());
        crc.update(&slot.to_le_bytes());
        crc.update(&entry[..60]);
        crc.value()
    }
}

/// Bytes of the page that an image holds.
pub const PAGE_BYTES: usize = crate::index::PAGE_BYTES as usize;
/// Bytes under one checksum of an image.
pub const BLOCK_BYTES: usize = 4 << 10;
/// Blocks of an image.
pub const BLOCKS: usize = PAGE_BYTES / BLOCK_BYTES;
/// Length of an entry of the directory in bytes.
pub const ENTRY_BYTES: usize = 64;
/// Length of the head of a slot in bytes.
pub const SLOT_HEAD_BYTES: usize = 4 << 10;
/// Bytes of it that say something.
pub const SLOT_HEAD_USED: usize = ENTRY_BYTES + 4 * BLOCKS;
/// Length of a slot in bytes.
pub const SLOT_BYTES: u64 = (SLOT_HEAD_BYTES + PAGE_BYTES) as u64;
/// Length of the head of a file in bytes; the directory begins at the next multiple of 4 KiB.
pub const HEAD_BYTES: usize = 64;
/// Most slots of a file.
pub const SLOTS_MAX: u32 = 1024;
const ALIGN: u64 = 4 << 10;
const FORMAT_VERSION: u8 = 1;
const MAGIC: [u8; 4] = *b"FRZP";

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: ImageKey =
        ImageKey { chunk: ChunkId { inode: InodeId(0x0102), index: 3 }, page: 4, stamp: Hlc(0x0506_0708) };
    const OF: ImageDigest = ImageDigest { digest: 0x1122_3344_5566_7788, left_out: 9 };

    #[test]
    fn the_bytes_of_a_file_are_as_they_were_first_written() {
        let file = ImageFile { file: 7, slots: 32 };
        let head = file.encode();
        assert_eq!(&head[..16], b"FRZP\x01\0\0\0\x07\0\0\0\x20\0\0\0");
        assert_eq!(ImageFile::decode(&head), Some(file));
        let page: Vec<u8> = (0..PAGE_BYTES).map(|at| (at / BLOCK_BYTES) as u8).collect();
        let (entry, slot) = file.seal(5, &KEY, &OF, &page);
        let hex: String = entry.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, include_str!("image/entry-1.hex").trim());
        assert_eq!(file.entry(5, &entry), ImageEntry::Image(KEY, OF));
        let SlotHead::Image(crcs) = file.slot_head(5, &KEY, &slot) else { panic!("a sound head") };
        assert_eq!(crcs[3], crc32c(&page[3 * BLOCK_BYTES..][..BLOCK_BYTES]));
        assert_eq!((file.entry_at(1), file.slot_at(0), file.slot_at(1)), (4160, 8192, 8192 + 69_632));
        assert_eq!(file.bytes(), 8192 + 32 * 69_632);
    }

    #[test]
    fn an_entry_counts_only_where_it_was_written_and_whole() {
        let file = ImageFile { file: 7, slots: 32 };
        let (entry, slot) = file.seal(5, &KEY, &OF, &vec![1; PAGE_BYTES]);
        assert_eq!(file.entry(6, &entry), ImageEntry::Damaged);
        assert_eq!(ImageFile { file: 8, ..file }.entry(5, &entry), ImageEntry::Damaged);
        assert_eq!(file.entry(5, &[0; ENTRY_BYTES]), ImageEntry::Free);
        for at in 0..SLOT_HEAD_USED {
            let mut slot = slot.clone();
            slot[at] ^= 4;
            assert_eq!(file.slot_head(5, &KEY, &slot), SlotHead::Damaged, "byte {at}");
            if at < ENTRY_BYTES {
                assert_eq!(file.entry(5, &slot[..ENTRY_BYTES]), ImageEntry::Damaged, "byte {at}");
            }
        }
        let other = ImageKey { page: 5, ..KEY };
        assert_eq!(file.slot_head(5, &other, &slot), SlotHead::Gone);
        assert_eq!(file.slot_head(5, &KEY, &[0; SLOT_HEAD_BYTES]), SlotHead::Gone);
        assert_eq!(file.slot_head(5, &KEY, &slot[..100]), SlotHead::Damaged);
        for at in 0..HEAD_BYTES {
            let mut head = file.encode();
            head[at] ^= 1;
            assert_eq!(ImageFile::decode(&head), None, "byte {at}");
        }
        assert_eq!(ImageFile::decode(&[0; 10]), None);
    }

    fn seal(bytes: &mut Vec<u8>) {
        bytes.resize(HEAD_BYTES, 0);
        let crc = crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
    }

    #[test]
    fn any_bytes_are_the_head_of_an_image_file_or_none() {
        let inputs = frieze_harness::Inputs::from([ImageFile { file: 7, slots: 32 }.encode()]).resealed(seal);
        frieze_harness::fuzz!(inputs, |bytes: &[u8]| {
            let decode = |bytes: &[u8]| ImageFile::decode(bytes);
            if let Some(file) = frieze_harness::check_stable(bytes, decode, |file| file.encode().to_vec()) {
                assert_eq!(file.bytes(), file.slot_at(file.slots));
            }
        });
    }

    #[test]
    fn any_bytes_are_a_slot_of_an_image_or_damaged() {
        let file = ImageFile { file: 7, slots: 32 };
        let (entry, head) = file.seal(5, &KEY, &OF, &vec![1; PAGE_BYTES]);
        frieze_harness::fuzz!([entry.to_vec(), head[..SLOT_HEAD_USED].to_vec()], |bytes: &[u8]| {
            if let ImageEntry::Image(key, _) = file.entry(5, bytes) {
                assert_eq!(key, KEY, "its checksum covers every byte");
            }
            if matches!(file.slot_head(5, &KEY, bytes), SlotHead::Image(_)) {
                assert_eq!(bytes[..SLOT_HEAD_USED], head[..SLOT_HEAD_USED]);
            }
        });
    }
}
