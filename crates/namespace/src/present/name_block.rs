//! A block of names of one directory, sorted.
//!
//! | bytes | content |
//! |---|---|
//! | 1 | format, 1 |
//! | 2 | names |
//! | 1 | runs: how many, then 3 bytes each: offset (2), names (1) |
//! | | runs, in order |
//!
//! A run is its base, an entry with its length (1), and names. A name is the number of bytes that it shares with the
//! name before (1), the number of the others (1), the length of what it stands for (1), the others, then a varint of
//! the difference between its inode's row ([`super::row`]) and that of the base, shifted left by 3, and its kind, and
//! the difference of its stamp; a base has its inode's number in place of the first difference. The first name of a run
//! shares nothing: a search finds the run by the first names, and reads that run alone. A base stays when the name goes
//! that it came with, so a change of a name leaves all others as they are, but for what the one after it shares.
//!
//! The shared bytes are always all that two names have in common, so the search compares each byte of the sought name
//! once: a name that shares more with its predecessor than the sought one does is on the same side.
//!
//! # Source
//! Front coding with restart points as in tables of LevelDB; the comparison is that of Bayer and Unterauer, Prefix
//! B-trees (TODS 1977), section 4.

use frieze_base::{InodeId, NAME_BYTES_MAX};

use super::block_parts::{
    BlockParts, HEADER_BYTES, RUN_BYTES, RUN_BYTES_MAX, RUN_NAMES_MAX, RunWalk, RunsChange, common, put_base,
    put_entry, put_header, put_name, run_row, take_value,
};
use super::bytes::PackedBytes;
use crate::model::NameEntry;

/// Content of a block, bytes, before it is split.
pub(super) const BLOCK_BYTES_MAX: usize = 1024;
/// Bytes of a name that begins a run, without its own.
const ENTRY_BYTES_MAX: usize = 48;
/// Bytes of a block that is read. A half of a split block has more runs than before, and each has a whole name: at most
/// the block's bytes and twice all names that begin its runs.
const LOADED_BYTES_MAX: usize = BLOCK_BYTES_MAX * 4;
/// Two neighbours of fewer bytes together become one, when a name was taken out of one of them.
const MERGED_BYTES_MAX: usize = BLOCK_BYTES_MAX / 2;

/// Names of a run when it is built.
const RUN_NAMES: usize = 8;
/// Runs of a block before it is split.
const RUNS_MAX: usize = 200;

/// A block of names.
#[derive(Clone)]
pub(super) struct NameBlock(PackedBytes);

/// What has to follow a change of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockChange {
    /// Nothing.
    Done,
    /// The block is too large: [`NameBlock::split`].
    TooLarge,
    /// The block is small: [`NameBlock::joined`] with a neighbour, if that is small too.
    Small,
    /// The last name was taken out: the block is to be dropped, and unchanged.
    Empty,
}

/// What changes of blocks overwrite, and what they have in common.
#[derive(Default)]
pub(super) struct BlockScratch {
    block: Vec<u8>,
    patch: Vec<u8>,
    /// Memory that all blocks of the table take, or would take if none was cold.
    pub(super) memory_bytes: i64,
}

/// Builds blocks from names in order.
pub(super) struct BlockBuilder {
    count: u16,
    runs: Vec<u8>,
    /// Names of the last run.
    run_names: usize,
    run_start: usize,
    names: Vec<u8>,
    /// The name before, and the base of its run.
    last: Vec<u8>,
    base: NameEntry,
}

/// Reads the names of a block in order.
pub(super) struct BlockCursor<'a> {
    block: BlockParts<'a>,
    /// The next run.
    run: usize,
    walk: RunWalk<'a>,
    name: Vec<u8>,
}

impl NameBlock {
    /// A block of one name.
    pub(super) fn of_one(name: &[u8], entry: NameEntry, scratch: &mut BlockScratch) -> NameBlock {
        let mut builder = BlockBuilder::default();
        builder.push(name, entry);
        let block = builder.finish(&mut scratch.block);
        scratch.memory_bytes += block.0.memory_bytes();
        block
    }

    /// What a name stands for.
    ///
    /// # Cost
    /// A binary search among the runs, and half a run.
    pub(super) fn get(&self, name: &[u8]) -> Option<NameEntry> {
        let parts = self.fetched_parts();
        let place = parts.find(name);
        place.found.map(|found| found.entry(place.base))
    }

    /// Sets what a name stands for; the result says what it stood for before. `scratch` is overwritten.
    pub(super) fn set(
        &mut self,
        name: &[u8],
        entry: NameEntry,
        scratch: &mut BlockScratch,
    ) -> (Option<NameEntry>, BlockChange) {
        let parts = self.fetched_parts();
        let place = parts.find(name);
        let (run, run_names) = (place.run, parts.run_names(place.run));
        let BlockScratch { block: scratch, patch, memory_bytes } = scratch;
        *memory_bytes -= self.0.memory_bytes();
        patch.clear();
        let is_new = place.found.is_none();
        let change = if is_new && place.next.is_none() && place.has_before && run_names >= RUN_NAMES {
            put_base(patch, entry);
            put_entry(patch, 0, name, entry, entry);
            RunsChange::NewAfter
        } else {
            put_entry(patch, place.shared, &name[place.shared..], place.base, entry);
            RunsChange::Count((run_names + usize::from(is_new)) as u8)
        };
        let mut end = place.found.map_or(place.at, |found| found.end);
        if let Some((next, shared)) = place.next.filter(|_| is_new) {
            put_name(patch, shared, &[&next.rest[shared - next.shared..]], next.value);
            end = next.end;
        }
        let found = place.found.map(|found| found.entry(place.base));
        parts.splice(scratch, run, change, place.at..end, patch);
        self.0.store(scratch);
        if self.parts().has_long_run(run) {
            self.rebuild(scratch);
        }
        *memory_bytes += self.0.memory_bytes();
        let parts = self.parts();
        let is_large = self.0.len() > BLOCK_BYTES_MAX || parts.runs.len() > RUNS_MAX;
        (found, if is_large && parts.count > 1 { BlockChange::TooLarge } else { BlockChange::Done })
    }

    /// Takes a name out; `None` if it is not there. `scratch` is overwritten.
    pub(super) fn remove(&mut self, name: &[u8], scratch: &mut BlockScratch) -> Option<(NameEntry, BlockChange)> {
        let parts = self.parts();
        let place = parts.find(name);
        let found = place.found?;
        let entry = found.entry(place.base);
        if parts.count == 1 {
            return Some((entry, BlockChange::Empty));
        }
        let BlockScratch { block: scratch, patch, memory_bytes } = scratch;
        *memory_bytes -= self.0.memory_bytes();
        patch.clear();
        let mut range = place.at..found.end;
        if let Some((next, _)) = place.next {
            let shared = found.shared.min(next.shared);
            let of_found = &found.rest[..next.shared - shared];
            put_name(patch, shared, &[of_found, next.rest], next.value);
            range.end = next.end;
        }
        let change = match parts.run_names(place.run) {
            1 => {
                range = parts.span(place.run);
                RunsChange::Gone
            }
            names => RunsChange::Count((names - 1) as u8),
        };
        parts.splice(scratch, place.run, change, range, patch);
        self.0.store(scratch);
        *memory_bytes += self.0.memory_bytes();
        let is_small = self.0.len() <= MERGED_BYTES_MAX;
        Some((entry, if is_small { BlockChange::Small } else { BlockChange::Done }))
    }

    /// True if `name` is behind all names.
    pub(super) fn is_behind(&self, name: &[u8]) -> bool {
        let parts = self.parts();
        let place = parts.find(name);
        place.run + 1 == parts.runs.len() && place.found.is_none() && place.next.is_none() && place.has_before
    }

    /// True if a name fits in without a split.
    pub(super) fn has_room_for(&self, name: &[u8]) -> bool {
        self.0.len() + name.len() + ENTRY_BYTES_MAX <= BLOCK_BYTES_MAX
    }

    /// Two blocks of half the bytes each, with the first name of the second. The block has more than one name.
    pub(super) fn split(
        &self,
        BlockScratch { block: scratch, memory_bytes, .. }: &mut BlockScratch,
    ) -> (NameBlock, Vec<u8>, NameBlock) {
        let (mut left, mut right) = (BlockBuilder::default(), BlockBuilder::default());
        let (half, last) = (self.parts().names.len() / 2, self.parts().count - 1);
        let mut first_of_right = Vec::new();
        let mut cursor = self.cursor();
        let mut at = 0;
        while let Some((name, entry)) = cursor.next_name() {
            // Either has a name at least.
            if left.names.len() >= half && at > 0 || at == last {
                if right.count == 0 {
                    first_of_right = name.to_vec();
                }
                right.push(name, entry);
            } else {
                left.push(name, entry);
            }
            at += 1;
        }
        let (left, right) = (left.finish(scratch), right.finish(scratch));
        *memory_bytes += left.0.memory_bytes() + right.0.memory_bytes();
        *memory_bytes -= self.0.memory_bytes();
        (left, first_of_right, right)
    }

    /// One block with the names of both, those of `next` behind, if that is small enough.
    pub(super) fn joined(&self, next: &NameBlock, scratch: &mut BlockScratch) -> Option<NameBlock> {
        if self.0.len() + next.0.len() > MERGED_BYTES_MAX {
            return None;
        }
        let mut builder = BlockBuilder::default();
        [self, next].into_iter().for_each(|block| builder.push_all(block));
        let joined = builder.finish(&mut scratch.block);
        scratch.memory_bytes += joined.0.memory_bytes();
        scratch.memory_bytes -= self.0.memory_bytes() + next.0.memory_bytes();
        Some(joined)
    }

    /// The names of the block, in order.
    pub(super) fn cursor(&self) -> BlockCursor<'_> {
        BlockCursor { block: self.fetched_parts(), run: 0, walk: RunWalk::EMPTY, name: Vec::new() }
    }

    /// The names from the run on in which `name` is, or would be.
    pub(super) fn cursor_near(&self, name: &[u8]) -> BlockCursor<'_> {
        let block = self.fetched_parts();
        BlockCursor { run: block.run_of(name), block, walk: RunWalk::EMPTY, name: Vec::new() }
    }

    /// Names.
    pub(super) fn count(&self) -> usize {
        usize::from(self.parts().count)
    }

    /// The bytes of the block.
    pub(super) fn bytes(&self) -> &PackedBytes {
        &self.0
    }

    /// The same, to be placed or evicted.
    pub(super) fn bytes_mut(&mut self) -> &mut PackedBytes {
        &mut self.0
    }

    /// Reads a block from bytes of unknown origin; `None` unless they are the content of one. The second is the last
    /// name.
    pub(super) fn load(content: &[u8]) -> Option<(NameBlock, Vec<u8>)> {
        if content.len() > LOADED_BYTES_MAX {
            return None;
        }
        let parts = BlockParts::read(content)?;
        let (mut last, mut count, mut again) = (None::<Vec<u8>>, 0, Vec::new());
        for run in 0..parts.runs.len() {
            let span = parts.span(run);
            let starts_well = if run == 0 { span.start == 0 } else { parts.span(run - 1).end == span.start };
            if !starts_well || span.is_empty() || span.end > parts.names.len() {
                return None;
            }
            let mut walk = RunWalk::read(parts.names, span.clone())?;
            let mut names = 0;
            again.clear();
            put_base(&mut again, walk.base);
            if parts.names[span.start..walk.at] != again {
                return None;
            }
            while walk.at < walk.end {
                let (at, coded) = (walk.at, walk.next_or_damage()?);
                let entry = take_value(coded.value, walk.base)?;
                let name = [last.as_ref().map_or(Some(&[][..]), |last| last.get(..coded.shared))?, coded.rest].concat();
                let in_order = last.as_ref().is_none_or(|last| *last < name);
                if !in_order || name.len() > NAME_BYTES_MAX || entry.inode() > InodeId::MAX {
                    return None;
                }
                let common = last.as_ref().filter(|_| names > 0).map_or(0, |last| common(last, &name));
                again.clear();
                put_entry(&mut again, common, &name[common..], walk.base, entry);
                if parts.names[at..walk.at] != again {
                    return None;
                }
                last = Some(name);
                names += 1;
            }
            if names != parts.run_names(run) || names > RUN_NAMES_MAX {
                return None;
            }
            count += names;
        }
        let last = last.filter(|_| count == usize::from(parts.count) && parts.runs.len() <= RUNS_MAX)?;
        Some((NameBlock(PackedBytes::new(content)), last))
    }

    fn rebuild(&mut self, scratch: &mut Vec<u8>) {
        let mut builder = BlockBuilder::default();
        builder.push_all(self);
        builder.write(scratch);
        self.0.store(scratch);
    }

    #[inline]
    fn fetched_parts(&self) -> BlockParts<'_> {
        BlockParts::read(self.0.fetched()).expect("a block holds what was packed")
    }

    #[inline]
    fn parts(&self) -> BlockParts<'_> {
        BlockParts::read(self.0.content()).expect("a block holds what was packed")
    }
}

impl Default for BlockBuilder {
    fn default() -> BlockBuilder {
        let (runs, names, last) = (Vec::new(), Vec::new(), Vec::new());
        BlockBuilder { count: 0, runs, run_names: 0, run_start: 0, names, last, base: NameEntry::NONE }
    }
}

impl BlockBuilder {
    /// Appends a name, which is behind all before.
    pub(super) fn push(&mut self, name: &[u8], entry: NameEntry) {
        let run_bytes = self.names.len() - self.run_start;
        let common = common(&self.last, name);
        let is_long = run_bytes + name.len() - common + ENTRY_BYTES_MAX > RUN_BYTES_MAX;
        let begins = self.count == 0 || self.run_names == RUN_NAMES || is_long;
        let shared = if begins { 0 } else { common };
        if begins {
            (self.run_names, self.run_start, self.base) = (0, self.names.len(), entry);
            self.runs.extend_from_slice(&run_row(self.names.len(), 0));
            put_base(&mut self.names, entry);
        }
        put_entry(&mut self.names, shared, &name[shared..], self.base, entry);
        self.last.truncate(shared);
        self.last.extend_from_slice(&name[shared..]);
        self.run_names += 1;
        self.count += 1;
        *self.runs.last_mut().expect("a run has begun") += 1;
    }

    fn push_all(&mut self, block: &NameBlock) {
        let mut cursor = block.cursor();
        while let Some((name, entry)) = cursor.next_name() {
            self.push(name, entry);
        }
    }

    /// True if no name has come since the last block.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// True if there is room for a name.
    pub(super) fn has_room_for(&self, name: &[u8]) -> bool {
        let bytes = HEADER_BYTES + self.runs.len() + self.names.len();
        bytes + name.len() + ENTRY_BYTES_MAX <= BLOCK_BYTES_MAX
    }

    /// The block of what came; the next name begins another.
    pub(super) fn finish(&mut self, scratch: &mut Vec<u8>) -> NameBlock {
        self.write(scratch);
        (self.count, self.run_names, self.run_start) = (0, 0, 0);
        self.runs.clear();
        self.names.clear();
        NameBlock(PackedBytes::new(scratch))
    }

    fn write(&self, block: &mut Vec<u8>) {
        block.clear();
        put_header(block, self.count, self.runs.len() / RUN_BYTES);
        block.extend_from_slice(&self.runs);
        block.extend_from_slice(&self.names);
    }
}

impl BlockCursor<'_> {
    /// The next name, and what it stands for.
    pub(super) fn next_name(&mut self) -> Option<(&[u8], NameEntry)> {
        self.advance().map(|entry| (self.name(), entry))
    }

    /// The name that the cursor is at.
    pub(super) fn name(&self) -> &[u8] {
        &self.name
    }

    /// Goes to the next name, and says what it stands for.
    pub(super) fn advance(&mut self) -> Option<NameEntry> {
        let coded = loop {
            match self.walk.next() {
                Some(coded) => break coded,
                None if self.run == self.block.runs.len() => return None,
                None => {
                    self.walk = self.block.walk(self.run);
                    self.run += 1;
                }
            }
        };
        self.name.truncate(coded.shared);
        self.name.extend_from_slice(coded.rest);
        Some(coded.entry(self.walk.base))
    }
}

#[cfg(test)]
mod tests;
