//! The file of a pack: its bytes, and reading it as if its payloads were not compressed.
//!
//! | bytes | what |
//! |---|---|
//! | 0..256 | head |
//! | 4096..4352 | head, again |
//! | 8192.. | blocks of payload |
//! | | index (`multilog/src/pack/format.rs`) and table of the blocks, twice |
//!
//! Payloads have *places* in the pack: where they would lie if no block were compressed, from 8192 on: of each record
//! the CRC32C of its blocks, 4 bytes each, then its payload. A block of the file is up to 64 KiB of these places, of
//! one chunk, compressed by itself by zstd; if that is not shorter, as it is. Of a pack whose first blocks gain less
//! than a tenth, none is compressed: then a place is an offset of the file, and bytes are sent as they lie there.
//!
//! | offset | bytes | field of the head |
//! |---|---|---|
//! | 0 | 4 | magic `FRZK` |
//! | 4 | 1 | format version, 1 |
//! | 5 | 1 | 1 if blocks may be compressed |
//! | 8 | 4, 4 | chain, bytes in a block of payload |
//! | 16 | 8, 8 | first and last number |
//! | 32 | 8 | end of the places |
//! | 40 | 8, 8 | bytes of the table, zeros |
//! | 56 | 8, 8 | where the first index begins, and where the second |
//! | 72 | 8, 8 | bytes of an index, and those of them that are blocks |
//! | 88 | 4, 4 | CRC32C of the table, of the directory behind the blocks of the index |
//! | 252 | 4 | CRC32C of bytes 0..252 |
//!
//! An entry of the table: bytes of places (v), bytes of the file (v), CRC32C of the latter (4).

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use frieze_base::varint::{put, take, take_u32};
use frieze_base::{ChainId, Fault, Reason, SegmentId, crc32c};
use frieze_disk::{DiskFile, DiskOp, Error};
use frieze_locks::{Mutex, levels};
use frieze_multilog::{PackIndex, PackKey, PackPlace};

/// Where blocks begin.
pub(super) const DATA_AT: u64 = 8192;
/// Most bytes of places in a block.
pub(super) const BLOCK_BYTES: usize = 64 << 10;
const HEAD_BYTES: usize = 256;
/// Where the head is, and where it is again.
const HEADS: [u64; 2] = [0, 4096];
const MAGIC: [u8; 4] = *b"FRZK";
const FORMAT_VERSION: u8 = 1;
/// Level of zstd: about as fast as a disk writes.
const LEVEL: i32 = 1;
/// Blocks of all packs that a reader finds decompressed: 4 MiB.
const CACHED_BLOCKS: usize = 64;

/// The head of a pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PackHead {
    pub(super) key: PackKey,
    pub(super) may_compress: bool,
    pub(super) block_bytes: u32,
    pub(super) places_end: u64,
    pub(super) table_bytes: u64,
    pub(super) indexes: [u64; 2],
    pub(super) index_bytes: u64,
    pub(super) index_blocks_bytes: u64,
    pub(super) table_crc: u32,
    pub(super) directory_crc: u32,
}

impl PackHead {
    pub(super) fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        (bytes[4], bytes[5]) = (FORMAT_VERSION, u8::from(self.may_compress));
        let [first, second] = self.indexes;
        let longs = [
            u64::from(self.key.chain.0) | u64::from(self.block_bytes) << 32,
            self.key.first,
            self.key.last,
            self.places_end,
            self.table_bytes,
            0,
            first,
            second,
            self.index_bytes,
            self.index_blocks_bytes,
            u64::from(self.table_crc) | u64::from(self.directory_crc) << 32,
        ];
        for (at, value) in longs.into_iter().enumerate() {
            bytes[8 + 8 * at..16 + 8 * at].copy_from_slice(&value.to_le_bytes());
        }
        let crc = crc32c(&bytes[..252]);
        bytes[252..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<PackHead> {
        let long = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let sound = bytes.len() == HEAD_BYTES
            && bytes[..4] == MAGIC
            && bytes[4] == FORMAT_VERSION
            && bytes[252..] == crc32c(&bytes[..252]).to_le_bytes();
        if !sound {
            return None;
        }
        let (who, crcs) = (long(8)?, long(88)?);
        Some(PackHead {
            key: PackKey { chain: ChainId(who as u32), first: long(16)?, last: long(24)? },
            may_compress: bytes[5] != 0,
            block_bytes: (who >> 32) as u32,
            places_end: long(32)?,
            table_bytes: long(40)?,
            indexes: [long(56)?, long(64)?],
            index_bytes: long(72)?,
            index_blocks_bytes: long(80)?,
            table_crc: crcs as u32,
            directory_crc: (crcs >> 32) as u32,
        })
    }

    /// Where the file ends.
    pub(super) fn end(&self) -> u64 {
        self.indexes[1] + self.index_bytes + self.table_bytes
    }

    /// Writes both heads.
    pub(super) fn write(&self, file: &dyn DiskFile) -> Result<(), Error> {
        let bytes = self.encode();
        HEADS.iter().try_for_each(|at| file.write_at(*at, &[&bytes]))
    }
}

/// A block of payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PayloadBlock {
    /// Its first place.
    pub(super) at: u64,
    pub(super) len: u32,
    /// Where it lies in the file.
    pub(super) stored_at: u64,
    pub(super) stored_len: u32,
    pub(super) crc: u32,
}

/// The table of blocks in bytes.
pub(super) fn encode_table(blocks: &[PayloadBlock]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for block in blocks {
        put(&mut bytes, block.len.into());
        put(&mut bytes, block.stored_len.into());
        bytes.extend_from_slice(&block.crc.to_le_bytes());
    }
    bytes
}

fn decode_table(mut bytes: &[u8]) -> Option<Vec<PayloadBlock>> {
    let (mut blocks, mut at, mut stored_at) = (Vec::new(), DATA_AT, DATA_AT);
    while !bytes.is_empty() {
        let len = u32::try_from(take(&mut bytes)?).ok().filter(|len| *len as usize <= BLOCK_BYTES)?;
        let stored_len = u32::try_from(take(&mut bytes)?).ok().filter(|stored| *stored <= len)?;
        let crc = take_u32(&mut bytes)?;
        blocks.push(PayloadBlock { at, len, stored_at, stored_len, crc });
        (at, stored_at) = (at + u64::from(len), stored_at + u64::from(stored_len));
    }
    blocks.shrink_to_fit();
    Some(blocks)
}

/// A block that was decompressed: its pack and number, and its payload.
type UnpackedBlock = ((SegmentId, usize), Arc<Vec<u8>>);

/// Blocks of all packs that were decompressed last.
pub(super) type UnpackedBlocks = Mutex<levels::PackBlocks, VecDeque<UnpackedBlock>>;

/// An open pack.
pub(super) struct PackFile {
    /// The file as it lies on the disk.
    pub(super) raw: Arc<dyn DiskFile>,
    pub(super) head: PackHead,
    /// Its table, if blocks may be compressed; else it is read when a scrub wants it.
    blocks: Vec<PayloadBlock>,
    id: SegmentId,
    cached: Arc<UnpackedBlocks>,
    /// Damaged blocks by number, as far as copies of their records came.
    mended: Mutex<levels::MendedBlocks, BTreeMap<usize, MendedBlock>>,
}

/// A damaged block on its way to be whole: its bytes, and which of them are there.
struct MendedBlock {
    bytes: Vec<u8>,
    filled: Vec<bool>,
}

impl PackFile {
    /// Opens a pack and reads its directory. Says what is wrong with it if it is not whole.
    pub(super) fn open(
        raw: Arc<dyn DiskFile>,
        place: PackPlace,
        cached: &Arc<UnpackedBlocks>,
    ) -> Result<(PackFile, PackIndex), String> {
        let read = |at: u64, len: u64| -> Option<Vec<u8>> {
            let bytes_max = raw.len().ok()?;
            let mut bytes = vec![0; usize::try_from(len.min(bytes_max)).ok()?];
            let found = raw.read_at(at, &mut bytes).ok()?;
            (found as u64 == len).then_some(bytes)
        };
        let head = HEADS.iter().find_map(|at| PackHead::decode(&read(*at, HEAD_BYTES as u64)?));
        let head = head.ok_or("neither of its two heads is whole")?;
        let blocks = head.indexes.iter().find_map(|at| {
            let table = read(at + head.index_bytes, head.table_bytes)?;
            if crc32c(&table) == head.table_crc { decode_table(&table) } else { None }
        });
        let blocks = blocks.ok_or("neither of the two tables of its blocks is whole")?;
        let directory_bytes = head.index_bytes.saturating_sub(head.index_blocks_bytes);
        let index = head.indexes.iter().find_map(|at| {
            let directory = read(at + head.index_blocks_bytes, directory_bytes)?;
            let is_whole = crc32c(&directory) == head.directory_crc;
            is_whole.then(|| PackIndex::open(place, head.key, 0, &directory)).flatten()
        });
        let index = index.ok_or("neither of its two indexes is whole")?;
        let (id, cached) = (place.id, cached.clone());
        let blocks = if head.may_compress { blocks } else { Vec::new() };
        Ok((PackFile { raw, head, blocks, id, cached, mended: Mutex::default() }, index))
    }

    /// Its payloads by their places.
    pub(super) fn payloads(self: &Arc<PackFile>) -> Arc<dyn DiskFile> {
        if self.head.may_compress { self.clone() } else { self.raw.clone() }
    }

    /// Reads `into.len()` bytes at `offset` of copy `copy` of the index.
    pub(super) fn read_index(&self, copy: usize, offset: u64, into: &mut [u8]) -> Result<usize, Fault> {
        Ok(self.raw.read_at(self.head.indexes[copy] + offset, into)?)
    }

    /// The table of its blocks.
    fn table(&self) -> Result<Cow<'_, [PayloadBlock]>, Error> {
        if self.head.may_compress {
            return Ok(Cow::Borrowed(&self.blocks));
        }
        for copy in 0..2 {
            if let Some(blocks) = self.table_of(copy)? {
                return Ok(Cow::Owned(blocks));
            }
        }
        let what = "neither of the two tables of its blocks is whole".to_owned();
        Err(Error::Corrupt { name: format!("the pack of {}", self.head.key), what })
    }

    /// The table beside a copy of the index, if it is whole.
    fn table_of(&self, copy: usize) -> Result<Option<Vec<PayloadBlock>>, Error> {
        let mut bytes = vec![0; self.head.table_bytes as usize];
        let found = self.raw.read_direct_at(self.head.indexes[copy] + self.head.index_bytes, &mut bytes)?;
        let is_whole = found == bytes.len() && crc32c(&bytes) == self.head.table_crc;
        Ok(if is_whole { decode_table(&bytes) } else { None })
    }

    /// The payload of a block, checked: `direct`, from the medium and not from memory.
    fn block(&self, number: usize, direct: bool) -> Result<Arc<Vec<u8>>, Error> {
        if !direct && let Some((_, bytes)) = self.cached.lock().iter().find(|(known, _)| *known == (self.id, number)) {
            return Ok(bytes.clone());
        }
        let stored = |direct| self.stored(&self.blocks[number], direct);
        let bytes = Arc::new(match stored(direct)? {
            Some(bytes) => bytes,
            // A copy in memory may have rotted.
            None => stored(true)?.ok_or_else(|| self.damaged(number))?,
        });
        if !direct {
            let mut cached = self.cached.lock();
            if cached.len() == CACHED_BLOCKS {
                cached.pop_back();
            }
            cached.push_front(((self.id, number), bytes.clone()));
        }
        Ok(bytes)
    }

    /// The payload of a block; `None` if what is stored is not what was written.
    fn stored(&self, block: &PayloadBlock, direct: bool) -> Result<Option<Vec<u8>>, Error> {
        let PayloadBlock { len, stored_at, stored_len, crc, .. } = *block;
        let mut stored = vec![0; stored_len as usize];
        let found = match direct {
            true => self.raw.read_direct_at(stored_at, &mut stored)?,
            false => self.raw.read_at(stored_at, &mut stored)?,
        };
        if found != stored.len() || crc32c(&stored) != crc {
            return Ok(None);
        }
        if stored_len == len {
            return Ok(Some(stored));
        }
        let plain = zstd::bulk::decompress(&stored, len as usize).ok();
        Ok(plain.filter(|plain| plain.len() == len as usize))
    }

    /// Blocks that are not what was written, each with its places, as far as `goes_on` lets it read.
    pub(super) fn damaged_blocks(
        &self,
        goes_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<Vec<PayloadBlock>>, Error> {
        let mut damaged = Vec::new();
        for block in self.table()?.iter() {
            if !goes_on(block.stored_len.into()) {
                return Ok(None);
            }
            if !matches!(self.stored(block, true), Ok(Some(_))) {
                damaged.push(*block);
            }
        }
        Ok(Some(damaged))
    }

    /// Takes in a copy of what should be at a place, block checksums and payload of a record. A damaged block is
    /// written as soon as all of it came and is what was there, by its checksum. Returns whether the blocks of the
    /// place are whole now.
    pub(super) fn mend(&self, place: u64, copy: &[u8]) -> Result<bool, Error> {
        let end = place + copy.len() as u64;
        let table = self.table()?;
        let (mut number, mut is_whole) = (block_at(&table, place), true);
        while let Some(block) = table.get(number).filter(|block| block.at < end) {
            if !matches!(self.stored(block, true), Ok(Some(_))) {
                is_whole &= self.mend_block(number, block, place, copy)?;
            }
            number += 1;
        }
        Ok(is_whole)
    }

    fn mend_block(&self, number: usize, block: &PayloadBlock, place: u64, copy: &[u8]) -> Result<bool, Error> {
        let mut mended = self.mended.lock();
        let len = block.len as usize;
        let entry = || MendedBlock { bytes: vec![0; len], filled: vec![false; len] };
        let here = mended.entry(number).or_insert_with(entry);
        let (from, end) = (place.max(block.at), (place + copy.len() as u64).min(block.at + u64::from(block.len)));
        let (within, of_copy) = ((from - block.at) as usize, (from - place) as usize);
        let count = (end - from) as usize;
        here.bytes[within..within + count].copy_from_slice(&copy[of_copy..of_copy + count]);
        here.filled[within..within + count].fill(true);
        if !here.filled.iter().all(|filled| *filled) {
            return Ok(false);
        }
        let bytes = mended.remove(&number).expect("just filled").bytes;
        let stored = if block.stored_len == block.len { Some(bytes) } else { compressed(&bytes) };
        let Some(stored) = stored.filter(|stored| stored.len() == block.stored_len as usize) else { return Ok(false) };
        if crc32c(&stored) != block.crc {
            return Ok(false);
        }
        self.raw.write_at(block.stored_at, &[&stored])?;
        self.raw.sync()?;
        self.cached.lock().retain(|((id, _), _)| *id != self.id);
        Ok(true)
    }

    /// Overwrites a copy of head, index and table with the other.
    pub(super) fn restore_copy(&self, from: usize, to: usize) -> Result<(), Error> {
        let mut bytes = vec![0; (self.head.index_bytes + self.head.table_bytes) as usize];
        self.raw.read_direct_at(self.head.indexes[from], &mut bytes)?;
        self.raw.write_at(self.head.indexes[to], &[&bytes])?;
        self.raw.write_at(HEADS[to], &[&self.head.encode()])?;
        self.raw.sync()
    }

    /// True if a copy of head, index and table is what was written.
    pub(super) fn has_copy(&self, copy: usize, index: &PackIndex) -> bool {
        let read = |at: u64, len: u64| -> Option<Vec<u8>> {
            let mut bytes = vec![0; usize::try_from(len).ok()?];
            let found = self.raw.read_direct_at(at, &mut bytes).ok()?;
            (found as u64 == len).then_some(bytes)
        };
        let PackHead { indexes, index_bytes, index_blocks_bytes, directory_crc, .. } = self.head;
        let directory = read(indexes[copy] + index_blocks_bytes, index_bytes - index_blocks_bytes);
        read(HEADS[copy], HEAD_BYTES as u64).is_some_and(|bytes| bytes == self.head.encode())
            && directory.is_some_and(|bytes| crc32c(&bytes) == directory_crc)
            && matches!(self.table_of(copy), Ok(Some(_)))
            && (0usize..).zip(index.blocks()).all(|(number, (offset, len))| {
                let bytes = read(indexes[copy] + offset, len as u64);
                bytes.is_some_and(|bytes| index.files_in(number, &bytes).is_some())
            })
    }

    fn damaged(&self, number: usize) -> Error {
        let what = format!(
            "block {number} of the pack of {} at byte {} fails its checksum; it is not returned",
            self.head.key, self.blocks[number].stored_at
        );
        Error::Corrupt { name: "stored data".to_owned(), what }
    }

    fn read(&self, offset: u64, into: &mut [u8], direct: bool) -> Result<usize, Error> {
        let mut done = 0;
        let mut number = block_at(&self.blocks, offset);
        while done < into.len() && offset >= DATA_AT {
            let Some(block) = self.blocks.get(number) else { break };
            let bytes = self.block(number, direct)?;
            let part = &bytes[(offset + done as u64 - block.at) as usize..];
            let len = part.len().min(into.len() - done);
            into[done..done + len].copy_from_slice(&part[..len]);
            (done, number) = (done + len, number + 1);
        }
        Ok(done)
    }

    /// Where the blocks of some places lie in the file.
    fn stored_range(&self, offset: u64, len: u64) -> Option<(u64, u64)> {
        let first = self.blocks.get(block_at(&self.blocks, offset))?;
        let end = offset.saturating_add(len).min(self.head.places_end);
        let last = &self.blocks[block_at(&self.blocks, end.saturating_sub(1)).min(self.blocks.len() - 1)];
        let stored_end = last.stored_at + u64::from(last.stored_len);
        Some((first.stored_at, stored_end.checked_sub(first.stored_at)?))
    }

    fn refuse(&self, op: DiskOp) -> Error {
        Error::Immutable { op, name: format!("the pack of {}", self.head.key) }
    }
}

impl DiskFile for PackFile {
    fn len(&self) -> frieze_disk::Result<u64> {
        Ok(self.head.places_end)
    }

    fn write_at(&self, _: u64, _: &[&[u8]]) -> frieze_disk::Result<()> {
        Err(self.refuse(DiskOp::Write))
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> frieze_disk::Result<usize> {
        self.read(offset, into, false)
    }

    fn read_direct_at(&self, offset: u64, into: &mut [u8]) -> frieze_disk::Result<usize> {
        self.read(offset, into, true)
    }

    fn handle(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn prefetch(&self, offset: u64, len: u64) -> frieze_disk::Result<()> {
        self.stored_range(offset, len).map_or(Ok(()), |(at, len)| self.raw.prefetch(at, len))
    }

    fn advise_dont_need(&self, offset: u64, len: u64) -> frieze_disk::Result<()> {
        self.stored_range(offset, len).map_or(Ok(()), |(at, len)| self.raw.advise_dont_need(at, len))
    }

    fn hint_random_reads(&self) -> frieze_disk::Result<()> {
        self.raw.hint_random_reads()
    }

    fn cached_bytes(&self) -> frieze_disk::Result<Option<u64>> {
        self.raw.cached_bytes()
    }

    fn punch(&self, _: u64, _: u64) -> frieze_disk::Result<u64> {
        Err(self.refuse(DiskOp::Punch))
    }

    fn sync(&self) -> frieze_disk::Result<()> {
        self.raw.sync()
    }
}

/// The first block that ends behind a place.
fn block_at(blocks: &[PayloadBlock], at: u64) -> usize {
    blocks.partition_point(|block| block.at + u64::from(block.len) <= at)
}

/// A block, compressed, if that is shorter.
pub(super) fn compressed(block: &[u8]) -> Option<Vec<u8>> {
    zstd::bulk::compress(block, LEVEL).ok().filter(|stored| stored.len() < block.len())
}

/// The fault of a pack that is not whole.
pub(super) fn damaged_pack(name: &str, what: &str) -> Fault {
    Fault::new(Reason::Corrupt, format!("{name}, a pack of old records, is damaged: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> PackHead {
        PackHead {
            key: PackKey { chain: ChainId(3), first: 1, last: 900 },
            may_compress: true,
            block_bytes: 16 << 10,
            places_end: 100_000,
            table_bytes: 12,
            indexes: [53_248, 57_344],
            index_bytes: 700,
            index_blocks_bytes: 600,
            table_crc: 5,
            directory_crc: 6,
        }
    }

    #[test]
    fn a_head_has_the_same_bytes_for_ever() {
        let bytes = head().encode();
        assert_eq!(PackHead::decode(&bytes), Some(head()));
        let sum = crc32c(&bytes[..252]);
        assert_eq!((&bytes[..8], sum), (&b"FRZK\x01\x01\0\0"[..], HEAD_SUM), "{sum:#x}");
        for at in 0..bytes.len() {
            let mut turned = bytes;
            turned[at] ^= 1;
            assert_eq!(PackHead::decode(&turned), None, "byte {at}");
        }
    }

    /// CRC32C of the head above.
    const HEAD_SUM: u32 = 0x85a2_2c04;

    #[test]
    fn any_bytes_are_a_table_of_blocks_or_none() {
        let block = |at, len, stored_at, stored_len| PayloadBlock { at, len, stored_at, stored_len, crc: 9 };
        let blocks = [block(DATA_AT, 65_536, DATA_AT, 300), block(DATA_AT + 65_536, 700, DATA_AT + 300, 700)];
        let bytes = encode_table(&blocks);
        assert_eq!(decode_table(&bytes), Some(blocks.to_vec()));
        frieze_harness::fuzz!([bytes, head().encode().to_vec()], |bytes: &[u8]| {
            let write = |blocks: &Vec<PayloadBlock>| encode_table(blocks);
            frieze_harness::check_stable(bytes, decode_table, write);
            let _ = PackHead::decode(bytes);
        });
    }
}
