//! Writes the file of a pack from its beginning to its end.
//!
//! Guarantees: the same payloads and the same index give the same bytes.

use frieze_base::{Fault, crc32c};
use frieze_disk::DiskFile;
use frieze_hlc::Hlc;
use frieze_multilog::{PackIndexBuilder, PackKey};

use super::pack_file::{BLOCK_BYTES, DATA_AT, PackHead, PayloadBlock, compressed, encode_table};

/// After so many bytes of places it is decided whether compression gains enough.
const TRIED_BYTES: u64 = 1 << 20;
/// Bytes of files that are written at once.
const WRITE_BYTES: usize = 1 << 20;

/// Writes the blocks of a pack.
pub(super) struct PackWriter<'a> {
    raw: &'a dyn DiskFile,
    bytes_max: u64,
    blocks: Vec<PayloadBlock>,
    open: Vec<u8>,
    /// Blocks whose compression is not decided yet, as they are.
    tried: Option<Vec<Vec<u8>>>,
    compresses: bool,
    /// End of the closed blocks, by place and in the file.
    ends: (u64, u64),
    buffer: Vec<u8>,
    pub(super) since_asked: u64,
}

impl<'a> PackWriter<'a> {
    pub(super) fn new(raw: &'a dyn DiskFile, bytes_max: u64) -> PackWriter<'a> {
        PackWriter {
            raw,
            bytes_max,
            blocks: Vec::new(),
            open: Vec::with_capacity(BLOCK_BYTES),
            tried: Some(Vec::new()),
            compresses: false,
            ends: (DATA_AT, DATA_AT),
            buffer: Vec::new(),
            since_asked: 0,
        }
    }

    /// The place of the next byte.
    pub(super) fn place(&self) -> u64 {
        let tried = self.tried.iter().flatten().map(|block| block.len() as u64).sum::<u64>();
        self.ends.0 + tried + self.open.len() as u64
    }

    pub(super) fn add(&mut self, mut bytes: &[u8]) -> Result<(), Fault> {
        self.since_asked += bytes.len() as u64;
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK_BYTES - self.open.len()));
            self.open.extend_from_slice(now);
            bytes = later;
            if self.open.len() == BLOCK_BYTES {
                self.end_block()?;
            }
        }
        Ok(())
    }

    pub(super) fn end_block(&mut self) -> Result<(), Fault> {
        if self.open.is_empty() {
            return Ok(());
        }
        let block = std::mem::replace(&mut self.open, Vec::with_capacity(BLOCK_BYTES));
        match &mut self.tried {
            None => self.write_block(&block),
            Some(tried) => {
                tried.push(block);
                let bytes = tried.iter().map(|block| block.len() as u64).sum::<u64>();
                if bytes >= TRIED_BYTES { self.decide() } else { Ok(()) }
            }
        }
    }

    /// Decides by the first blocks whether blocks are compressed, and writes them.
    fn decide(&mut self) -> Result<(), Fault> {
        let Some(tried) = self.tried.take() else { return Ok(()) };
        let plain = tried.iter().map(Vec::len).sum::<usize>();
        let stored =
            tried.iter().map(|block| compressed(block).map_or(block.len(), |block| block.len())).sum::<usize>();
        self.compresses = stored * 10 < plain * 9;
        tried.iter().try_for_each(|block| self.write_block(block))
    }

    fn write_block(&mut self, block: &[u8]) -> Result<(), Fault> {
        let shorter = if self.compresses { compressed(block) } else { None };
        let stored = shorter.as_deref().unwrap_or(block);
        let (at, stored_at) = self.ends;
        let (len, stored_len) = (block.len() as u32, stored.len() as u32);
        self.blocks.push(PayloadBlock { at, len, stored_at, stored_len, crc: crc32c(stored) });
        self.ends = (at + u64::from(len), stored_at + u64::from(stored_len));
        self.buffer.extend_from_slice(stored);
        if self.buffer.len() >= WRITE_BYTES { self.write_out() } else { Ok(()) }
    }

    fn write_out(&mut self) -> Result<(), Fault> {
        let at = self.ends.1 - self.buffer.len() as u64;
        self.raw.write_at(at, &[&self.buffer])?;
        self.buffer.clear();
        Ok(())
    }

    /// Writes what remains, the table, both indexes and both heads, and frees the rest of the file.
    pub(super) fn finish(
        mut self,
        (key, newest): (PackKey, Hlc),
        index: PackIndexBuilder,
        block_bytes: u32,
    ) -> Result<PackHead, Fault> {
        self.end_block()?;
        self.decide()?;
        self.write_out()?;
        let table = encode_table(&self.blocks);
        let (index, index_blocks_bytes) = index.finish(newest, block_bytes);
        let (places_end, blocks_end) = self.ends;
        let both = (index.len() + table.len()) as u64;
        let first = blocks_end.next_multiple_of(frieze_disk::PAGE_BYTES);
        let second = (first + both).next_multiple_of(frieze_disk::PAGE_BYTES);
        let head = PackHead {
            key,
            may_compress: self.compresses,
            block_bytes,
            places_end,
            table_bytes: table.len() as u64,
            indexes: [first, second],
            index_bytes: index.len() as u64,
            index_blocks_bytes,
            table_crc: crc32c(&table),
            directory_crc: crc32c(&index[index_blocks_bytes as usize..]),
        };
        self.raw.write_at(first, &[&index, &table])?;
        self.raw.write_at(second, &[&index, &table])?;
        head.write(self.raw)?;
        let end = head.end();
        // A file system without holes keeps what was reserved.
        let _ = self.raw.punch(end, self.bytes_max.saturating_sub(end));
        Ok(head)
    }
}
