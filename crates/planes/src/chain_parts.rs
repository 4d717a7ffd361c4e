//! Which chains, and which parts of chunks, a range of a file lies on.

use std::collections::BTreeSet;
use std::ops::Range;

use frieze_base::{ByteRange, ChainId, ChunkId, InodeId};
use frieze_metadata::FileChunks;
use frieze_namespace::Inode;
use frieze_replication::{Layout, REACH_BYTES_MAX};
use frieze_wire::message::Read;

use crate::file_version::{layout_of, spread_of};

/// The chains that a read covers: those of its range, and those of the chunks that decide the length of the file.
pub fn chains_of_read(layout: Layout, reaches_from: Option<u32>, ask: &Read) -> BTreeSet<ChainId> {
    let mut chains = chains_of_range(layout, ask);
    chains.extend(parts_before(layout, reaches_from, ask).into_iter().map(|(chain, ..)| chain));
    chains
}

/// The chains of its range.
pub fn chains_of_range(layout: Layout, ask: &Read) -> BTreeSet<ChainId> {
    chains_of_extent(layout, ask.offset, ask.len.into())
}

/// The chains of the chunks of a byte range, or of one position.
pub fn chains_of_extent(layout: Layout, offset: u64, len: u64) -> BTreeSet<ChainId> {
    let chunk_of = |offset: u64| u32::try_from(offset / layout.chunk_bytes).unwrap_or(u32::MAX);
    let last = offset.saturating_add(len.max(1)) - 1;
    chains_of_chunks(layout, chunk_of(offset)..chunk_of(last).saturating_add(1))
}

/// The parts of chunks before a read's range whose records may reach into it, beyond the ends of those chunks.
pub fn parts_before(layout: Layout, reaches_from: Option<u32>, ask: &Read) -> Vec<(ChainId, ChunkId, ByteRange)> {
    let first = u32::try_from(ask.offset / layout.chunk_bytes).unwrap_or(u32::MAX);
    let chunk_start = u64::from(first) * layout.chunk_bytes;
    let end = ask.offset.saturating_add(ask.len.into()).min(chunk_start + REACH_BYTES_MAX);
    if ask.offset >= end {
        return Vec::new();
    }
    let part = |index: u32| {
        let start = u64::from(index) * layout.chunk_bytes;
        let range = ByteRange::new(ask.offset - start, end - start);
        (layout.chain(index), ChunkId { inode: layout.inode, index }, range)
    };
    let reaches = |index: &u32| reaches_from.is_some_and(|from| from <= *index);
    layout.reached_by(first).filter(reaches).map(part).collect()
}

/// The chains of chunks of a file.
pub fn chains_of_chunks(layout: Layout, chunks: Range<u32>) -> BTreeSet<ChainId> {
    match u64::from(chunks.end.saturating_sub(chunks.start)) > u64::from(8 * layout.chain_count) {
        // So many chunks may be on all chains.
        true => (0..layout.chain_count).map(ChainId).collect(),
        false => chunks.map(|index| layout.chain(index)).collect(),
    }
}

/// The parts of chunks of `start..end` of a file.
pub fn parts_of(layout: Layout, start: u64, end: u64) -> Option<Vec<(ChainId, ChunkId, ByteRange)>> {
    let part = |index: u64| {
        let first = index * layout.chunk_bytes;
        let range = ByteRange::new(start.max(first) - first, end.min(first + layout.chunk_bytes) - first);
        let index = u32::try_from(index).ok()?;
        Some((layout.chain(index), ChunkId { inode: layout.inode, index }, range))
    };
    (start / layout.chunk_bytes..end.div_ceil(layout.chunk_bytes)).map(part).collect()
}

/// The chains of the chunks of a file that sessions may write.
pub fn granted_chains(id: InodeId, inode: &Inode) -> BTreeSet<ChainId> {
    chains_of_ranges(layout_of(id, inode), inode.granted_chunks().iter())
}

/// The same, by the chunks of the file.
pub fn chains_of_grants(id: InodeId, chunks: &FileChunks) -> BTreeSet<ChainId> {
    chains_of_ranges(spread_of(id, chunks.layout), chunks.granted.iter())
}

/// The chains of these ranges of chunks.
pub fn chains_of_ranges<'a>(layout: Layout, ranges: impl Iterator<Item = &'a Range<u32>>) -> BTreeSet<ChainId> {
    let mut chains = BTreeSet::new();
    for range in ranges {
        if u64::from(range.end - range.start) > u64::from(8 * layout.chain_count) {
            // So many chunks may be on all chains.
            chains.extend((0..layout.chain_count).map(ChainId));
        } else {
            chains.extend(range.clone().map(|index| layout.chain(index)));
        }
    }
    chains
}
