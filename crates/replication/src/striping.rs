//! Striping: the chunks and chains of a file's bytes, and the parts of a write.

use std::ops::RangeInclusive;

use frieze_base::{ChainId, ChunkId, Fault, InodeId, Reason};
use frieze_wire::frame::PAYLOAD_BYTES_MAX;

use frieze_storage::Few;

/// Layout of a file: its chunks and chains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Chains in the table.
    pub chain_count: u32,
    /// The file: a hash of its number selects its first chain in the table.
    pub inode: InodeId,
}

impl Layout {
    /// The chain of chunk `index`.
    pub fn chain(&self, index: u32) -> ChainId {
        ChunkId { inode: self.inode, index }.chain(self.chain_count)
    }

    /// Most chunks after its own into which a record may reach.
    pub fn reach(&self) -> u32 {
        REACH_BYTES_MAX.div_ceil(self.chunk_bytes) as u32
    }

    /// The chunks before `index` whose records may reach into it, the nearest first.
    pub fn reached_by(&self, index: u32) -> impl Iterator<Item = u32> + use<> {
        (index.saturating_sub(self.reach())..index).rev()
    }

    /// Converts an end to the chunk that contains it: a record may reach over the end of its own chunk.
    pub fn end_in_chunk(&self, (chunk, end): (u32, u32)) -> (u32, u32) {
        let further = u64::from(end.saturating_sub(1)) / self.chunk_bytes;
        (chunk + further as u32, end - (further * self.chunk_bytes) as u32)
    }
}

/// The parts of a write.
pub struct Spread {
    /// Its parts, in order.
    pub parts: Few<ChunkPart>,
    /// End of the write in the file.
    pub(crate) end: u64,
}

/// A part of a write within one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkPart {
    /// Index of the chunk.
    pub chunk: u32,
    /// First byte in the chunk.
    pub(crate) offset: u32,
    /// Length in bytes.
    pub(crate) len: u32,
    /// Offset of the part in the payload, in bytes.
    skip: usize,
}

impl ChunkPart {
    /// Its offset in the file.
    pub(crate) fn at(&self, layout: Layout) -> u64 {
        u64::from(self.chunk) * layout.chunk_bytes + u64::from(self.offset)
    }

    /// Its slice of the payload.
    pub(crate) fn bytes<'a>(&self, payload: &'a [u8]) -> &'a [u8] {
        &payload[self.skip..self.skip + self.len as usize]
    }
}

/// True if a write touches one chunk only.
pub(crate) fn fits_one_chunk(offset: u64, len: usize, layout: Layout) -> bool {
    offset % layout.chunk_bytes + len as u64 <= layout.chunk_bytes
}

/// An append to one of several servers: all of it is one record of the chunk in which it begins, and may reach over the
/// end of that chunk.
///
/// # Errors
/// `TooLarge` beyond the largest file.
pub fn in_one_record(offset: u64, len: usize, layout: Layout) -> Result<Spread, Fault> {
    let end = checked_end(offset, len as u64, layout)?;
    let (chunk, offset) = ((offset / layout.chunk_bytes) as u32, (offset % layout.chunk_bytes) as u32);
    Ok(Spread { parts: Few::from_iter([ChunkPart { chunk, offset, len: len as u32, skip: 0 }]), end })
}

/// The parts of a write of `len` bytes.
///
/// # Errors
/// `TooLarge` beyond the largest file.
pub fn split(offset: u64, len: usize, layout: Layout) -> Result<Spread, Fault> {
    let end = checked_end(offset, len as u64, layout)?;
    let mut parts = Few::new();
    let mut at = offset;
    while at < end {
        let in_chunk = at % layout.chunk_bytes;
        let take = (layout.chunk_bytes - in_chunk).min(end - at);
        parts.push(ChunkPart {
            chunk: (at / layout.chunk_bytes) as u32,
            offset: in_chunk as u32,
            len: take as u32,
            skip: (at - offset) as usize,
        });
        at += take;
    }
    Ok(Spread { parts, end })
}

/// The parts of a hole: the chunk in which it begins, and those after it that were ever written, [`HOLE_PARTS_MAX`] at
/// most. Chunks never written are holes already: each part includes them, up to the next part or the end of the range.
///
/// # Errors
/// `TooLarge` if it begins beyond the largest file.
pub fn split_hole(
    offset: u64,
    len: u64,
    layout: Layout,
    written: impl FnOnce(RangeInclusive<u32>) -> Vec<u32>,
) -> Result<Spread, Fault> {
    let first = checked_end(offset, 1, layout).map(|_| (offset / layout.chunk_bytes) as u32)?;
    let end = offset.saturating_add(len).min(file_bytes_max(layout.chunk_bytes));
    let last = ((end - 1) / layout.chunk_bytes) as u32;
    let mut chunks = vec![first];
    if last > first {
        chunks.extend(written(first + 1..=last));
    }
    let reaches = chunks.get(HOLE_PARTS_MAX).map_or(end, |next| u64::from(*next) * layout.chunk_bytes);
    chunks.truncate(HOLE_PARTS_MAX);
    let part = |chunk: u32| {
        let chunk_start = u64::from(chunk) * layout.chunk_bytes;
        let from = offset.max(chunk_start);
        let to = end.min(chunk_start + layout.chunk_bytes);
        ChunkPart { chunk, offset: (from - chunk_start) as u32, len: (to - from) as u32, skip: 0 }
    };
    Ok(Spread { parts: chunks.into_iter().map(part).collect(), end: reaches })
}

fn checked_end(offset: u64, len: u64, layout: Layout) -> Result<u64, Fault> {
    let max = file_bytes_max(layout.chunk_bytes);
    offset.checked_add(len).filter(|end| *end <= max).ok_or_else(|| {
        Fault::new(
            Reason::TooLarge,
            format!("{len} bytes at offset {offset} lie beyond the largest file of {max} bytes"),
        )
    })
}

/// Most bytes of a record beyond the end of its chunk: at least one lies before it.
pub const REACH_BYTES_MAX: u64 = PAYLOAD_BYTES_MAX as u64 - 1;

/// Chunks that one request punches: they are one group of records, whose count has eight bits.
pub const HOLE_PARTS_MAX: usize = 128;

/// Largest file in bytes: chunk indexes are 32 bits, offsets signed 64.
pub fn file_bytes_max(chunk_bytes: u64) -> u64 {
    chunk_bytes.saturating_mul(u64::from(u32::MAX)).min(i64::MAX as u64)
}
