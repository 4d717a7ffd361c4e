//! Store files and the rule which of them to merge.

use crate::error::LoadError;

/// A store file. Blocks of all files are numbered through.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreFile {
    pub(crate) number: u64,
    pub(crate) region: u32,
    pub(crate) family: u8,
    pub(crate) size: u64,
    pub(crate) first_block: u64,
    pub(crate) blocks: u32,
    /// Seconds of puts that it holds; infinite for a file with every row.
    pub(crate) span_s: f64,
    /// Stream by which gets read it.
    pub(crate) stream: u64,
}

impl StoreFile {
    /// First byte of block `index`; of the one behind the last: the size.
    pub(crate) fn block_offset(&self, index: u32, block_bytes: u64) -> u64 {
        if index == 0 {
            return 0;
        }
        if index >= self.blocks {
            return self.size;
        }
        // Compressed blocks differ in size: a boundary lies up to a fifth of a block from its place.
        let jitter = mix(self.first_block + u64::from(index)) % (block_bytes * 2 / 5 + 1);
        (u64::from(index) * block_bytes + jitter - block_bytes / 5).min(self.size)
    }
}

/// Spreads a number over 64 bits (splitmix64).
pub(crate) fn mix(word: u64) -> u64 {
    let mut z = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The files of one family in one region, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct FamilyStore {
    /// Places in the table of files.
    pub(crate) files: Vec<u32>,
    /// A compaction runs.
    pub(crate) is_busy: bool,
}

/// HBase's ratio rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompactionRule {
    pub(crate) files_min: usize,
    pub(crate) files_max: usize,
    pub(crate) ratio: f64,
    pub(crate) floor_bytes: f64,
}

impl CompactionRule {
    /// Which of the files with these sizes (oldest first) are merged; `None` if that has to wait for more of them.
    pub(crate) fn select(&self, sizes: &[u64]) -> Option<std::ops::Range<usize>> {
        let count = sizes.len();
        let mut first = 0;
        while count - first >= self.files_min {
            let newer: u64 = sizes[first + 1..count.min(first + self.files_max)].iter().sum();
            if sizes[first] as f64 <= self.floor_bytes.max(newer as f64 * self.ratio) {
                return Some(first..count.min(first + self.files_max));
            }
            first += 1;
        }
        None
    }
}

/// Most blocks whose state is held: 16 bytes each in the measures.
pub(crate) const BLOCKS_MAX: u64 = 1 << 28;

/// Hands out numbers of files, blocks and streams.
#[derive(Debug, Default)]
pub(crate) struct FileTable {
    pub(crate) files: Vec<StoreFile>,
    /// Places of removed files, used again.
    free: Vec<u32>,
    numbers: u64,
    blocks: u64,
    streams: u64,
    block_bytes: u64,
}

impl FileTable {
    pub(crate) fn new(block_bytes: u64) -> FileTable {
        FileTable { block_bytes, ..FileTable::default() }
    }

    pub(crate) fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(crate) fn next_stream(&mut self) -> u64 {
        self.streams += 1;
        self.streams
    }

    pub(crate) fn blocks_of(&self, size: u64) -> u32 {
        ((size + self.block_bytes / 2) / self.block_bytes).clamp(1, u64::from(u32::MAX)) as u32
    }

    pub(crate) fn add(&mut self, region: u32, family: u8, size: u64, span_s: f64) -> Result<u32, LoadError> {
        let blocks = self.blocks_of(size);
        if self.blocks + u64::from(blocks) > BLOCKS_MAX {
            return Err(LoadError::TooLarge { blocks: self.blocks + u64::from(blocks), blocks_max: BLOCKS_MAX });
        }
        let (number, stream) = (self.next_number(), self.next_stream());
        let file = StoreFile { number, region, family, size, first_block: self.blocks, blocks, span_s, stream };
        self.blocks += u64::from(blocks);
        Ok(match self.free.pop() {
            Some(at) => {
                self.files[at as usize] = file;
                at
            }
            None => {
                self.files.push(file);
                (self.files.len() - 1) as u32
            }
        })
    }

    /// The place may be used again.
    pub(crate) fn remove(&mut self, at: u32) {
        self.free.push(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_goes_in_if_the_newer_ones_weigh_enough() {
        let rule = CompactionRule { files_min: 3, files_max: 5, ratio: 1.2, floor_bytes: 0.0 };
        assert_eq!(rule.select(&[10, 10]), None, "too few");
        assert_eq!(rule.select(&[1000, 10, 10, 10]), Some(1..4));
        assert_eq!(rule.select(&[1000, 100, 10, 1]), None, "each weighs more than the newer ones");
        assert_eq!(rule.select(&[20, 10, 10, 10, 10, 10, 10]), Some(0..5));
        let rule = CompactionRule { floor_bytes: 150.0, ..rule };
        assert_eq!(rule.select(&[1000, 100, 10, 1]), Some(1..4), "small files always do");
    }

    #[test]
    fn blocks_cover_a_file_without_gaps() {
        let mut table = FileTable::new(50_000);
        for size in [0, 1, 49_999, 75_000, 1_234_567, 50_000_000] {
            let at = table.add(0, 0, size, 1.0).unwrap();
            let file = table.files[at as usize];
            let offsets: Vec<u64> = (0..=file.blocks).map(|index| file.block_offset(index, 50_000)).collect();
            assert_eq!((offsets[0], offsets[offsets.len() - 1]), (0, size));
            assert!(offsets.is_sorted(), "{offsets:?}");
        }
    }
}
