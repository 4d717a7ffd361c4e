//! Content of a file of the small server: only written blocks take memory.

use std::collections::BTreeMap;
use std::ops::Range;

const BLOCK: usize = 64 << 10;

/// A file with holes.
#[derive(Clone, Debug, Default)]
pub struct Content {
    len: u64,
    blocks: BTreeMap<u64, Vec<u8>>,
}

impl Content {
    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.len = self.len.max(offset + bytes.len() as u64);
        let mut done = 0;
        while done < bytes.len() {
            let (block, within) = place(offset + done as u64);
            let len = (BLOCK - within).min(bytes.len() - done);
            let block = self.blocks.entry(block).or_insert_with(|| vec![0; BLOCK]);
            block[within..within + len].copy_from_slice(&bytes[done..done + len]);
            done += len;
        }
    }

    pub fn read(&self, range: Range<u64>) -> Vec<u8> {
        let end = range.end.min(self.len);
        let mut bytes = vec![0; end.saturating_sub(range.start) as usize];
        let mut done = 0;
        while done < bytes.len() {
            let (block, within) = place(range.start + done as u64);
            let len = (BLOCK - within).min(bytes.len() - done);
            if let Some(block) = self.blocks.get(&block) {
                bytes[done..done + len].copy_from_slice(&block[within..within + len]);
            }
            done += len;
        }
        bytes
    }

    pub fn set_len(&mut self, len: u64) {
        if len < self.len {
            let (last, within) = place(len);
            self.blocks.retain(|block, _| *block <= last);
            if let Some(block) = self.blocks.get_mut(&last) {
                block[within..].fill(0);
            }
        }
        self.len = len;
    }
}

impl From<&[u8]> for Content {
    fn from(bytes: &[u8]) -> Content {
        let mut content = Content::default();
        content.write(0, bytes);
        content
    }
}

fn place(offset: u64) -> (u64, usize) {
    (offset / BLOCK as u64, (offset % BLOCK as u64) as usize)
}
