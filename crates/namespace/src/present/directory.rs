//! The names of one directory: a block, or a tree of two levels over blocks.
//!
//! A tree is a list of groups of at most 64 blocks. A group and a block have a name that divides them from those
//! before: no name of theirs is below it. The first of a list has all below the second.
//!
//! # Source
//! Bayer and Unterauer, Prefix B-trees (TODS 1977), with two levels instead of any number: a list of groups for ten
//! million names has 5,000 entries. A block that is full when names come in order is not split; the name begins a
//! block (as in LMDB and `BTRFS`), so blocks are full then.

use std::fmt;
use std::hint::black_box;
use std::sync::Arc;

use super::block_parts::compare;
use super::entry_name::EntryName;
use super::name_block::{BlockBuilder, BlockChange, BlockCursor, BlockScratch, NameBlock};
use crate::model::NameEntry;

/// Blocks of a group: 2.5 KiB of them.
const GROUP_BLOCKS_MAX: usize = 64;
/// Two neighbours of fewer blocks together become one, when one of them loses a block.
const GROUP_BLOCKS_JOINED: usize = GROUP_BLOCKS_MAX / 2;

/// The names of one directory, which has one at least.
#[derive(Clone)]
pub struct DirectoryNames {
    count: usize,
    names: NameTree,
}

#[derive(Clone)]
enum NameTree {
    Block(NameBlock),
    Tree(Vec<NameGroup>),
}

#[derive(Clone)]
struct NameGroup {
    /// No name of the group is below it.
    first: EntryName,
    blocks: Arc<Vec<DividedBlock>>,
}

#[derive(Clone)]
struct DividedBlock {
    /// No name of the block is below it.
    first: EntryName,
    block: NameBlock,
}

/// Builds a directory from its names in order.
#[derive(Default)]
pub(crate) struct DirectoryBuilder {
    count: usize,
    groups: Vec<NameGroup>,
    /// The blocks of the last group.
    blocks: Vec<DividedBlock>,
    /// The last block, and its first name.
    block: BlockBuilder,
    first: Vec<u8>,
    last: Vec<u8>,
    scratch: Vec<u8>,
}

/// Reads names in order.
pub struct NameCursor<'a> {
    names: &'a NameTree,
    /// The next block.
    group: usize,
    block: usize,
    current: BlockCursor<'a>,
    /// What the name stands for that the cursor is at and that was not given yet.
    pending: Option<NameEntry>,
}

impl DirectoryNames {
    /// A directory of one name.
    pub(super) fn of_one(name: &[u8], entry: NameEntry, scratch: &mut BlockScratch) -> DirectoryNames {
        DirectoryNames { count: 1, names: NameTree::Block(NameBlock::of_one(name, entry, scratch)) }
    }

    /// How many names there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// What a name stands for.
    ///
    /// # Cost
    /// Binary searches among groups, blocks and the runs of a block: 100 ns, or a few misses of the cache more in a
    /// large directory; no allocation.
    pub fn get(&self, name: &[u8]) -> Option<NameEntry> {
        match &self.names {
            NameTree::Block(block) => block.get(name),
            NameTree::Tree(groups) => {
                let blocks = &groups[group_of(groups, name)].blocks;
                blocks[block_of(blocks, name)].block.get(name)
            }
        }
    }

    /// Sets what a name stands for, and says what it stood for before. `scratch` is overwritten.
    ///
    /// # Cost
    /// A copy of the block, 1 KiB at most, and of the handles of a group if a snapshot shares it.
    pub(super) fn set(&mut self, name: &[u8], entry: NameEntry, scratch: &mut BlockScratch) -> Option<NameEntry> {
        let found = match &mut self.names {
            NameTree::Block(block) => {
                let (found, change) = block.set(name, entry, scratch);
                if change == BlockChange::TooLarge {
                    let first = EntryName::new(b"");
                    let mut blocks = vec![DividedBlock { first: first.clone(), block: block.clone() }];
                    split_block(&mut blocks, 0, scratch);
                    self.names = NameTree::Tree(vec![NameGroup { first, blocks: Arc::new(blocks) }]);
                }
                found
            }
            NameTree::Tree(groups) => {
                let at = group_of(groups, name);
                let found = groups[at].set(name, entry, scratch);
                if groups[at].blocks.len() > GROUP_BLOCKS_MAX {
                    let is_last = at + 1 == groups.len();
                    let right = groups[at].split(is_last);
                    groups.insert(at + 1, right);
                }
                found
            }
        };
        self.count += usize::from(found.is_none());
        found
    }

    /// Takes a name out; `None` if it is not there. The last name is not taken out: the caller drops the directory.
    /// `scratch` is overwritten.
    pub(super) fn remove(&mut self, name: &[u8], scratch: &mut BlockScratch) -> Option<NameEntry> {
        let found = match &mut self.names {
            NameTree::Block(block) => block.remove(name, scratch)?.0,
            NameTree::Tree(groups) => {
                let at = group_of(groups, name);
                let found = groups[at].remove(name, scratch)?;
                if groups[at].blocks.is_empty() {
                    groups.remove(at);
                } else {
                    join_groups(groups, at);
                    join_groups(groups, at.wrapping_sub(1));
                }
                if let [NameGroup { blocks, .. }] = groups.as_slice()
                    && let [DividedBlock { block, .. }] = blocks.as_slice()
                {
                    self.names = NameTree::Block(block.clone());
                }
                found
            }
        };
        self.count -= 1;
        Some(found)
    }

    /// All names in order.
    pub fn cursor(&self) -> NameCursor<'_> {
        let (current, block) = match &self.names {
            NameTree::Block(block) => (block.cursor(), 1),
            NameTree::Tree(groups) => (groups[0].blocks[0].block.cursor(), 1),
        };
        NameCursor { names: &self.names, group: 0, block, current, pending: None }
    }

    /// The names behind `name`, in order.
    pub fn cursor_after(&self, name: &[u8]) -> NameCursor<'_> {
        let (current, group, block) = match &self.names {
            NameTree::Block(block) => (block.cursor_near(name), 0, 1),
            NameTree::Tree(groups) => {
                let group = group_of(groups, name);
                let blocks = &groups[group].blocks;
                let block = block_of(blocks, name);
                (blocks[block].block.cursor_near(name), group, block + 1)
            }
        };
        let mut cursor = NameCursor { names: &self.names, group, block, current, pending: None };
        while let Some(entry) = cursor.advance() {
            if cursor.current.name() > name {
                cursor.pending = Some(entry);
                break;
            }
        }
        cursor
    }

    /// The blocks in order.
    pub(super) fn blocks(&self) -> impl Iterator<Item = &NameBlock> {
        let (one, groups) = match &self.names {
            NameTree::Block(block) => (Some(block), &[][..]),
            NameTree::Tree(groups) => (None, groups.as_slice()),
        };
        one.into_iter().chain(groups.iter().flat_map(|group| group.blocks.iter().map(|divided| &divided.block)))
    }
}

impl DirectoryNames {
    /// Memory that its blocks take, or would take if none was cold.
    pub(super) fn memory_bytes(&self) -> i64 {
        self.blocks().map(|block| block.bytes().memory_bytes()).sum()
    }

    /// How many groups of blocks there are; a directory of one block is one group.
    pub(super) fn group_count(&self) -> usize {
        match &self.names {
            NameTree::Block(_) => 1,
            NameTree::Tree(groups) => groups.len(),
        }
    }

    /// The blocks of a group, each with the name that divides it from those before.
    pub(super) fn group_blocks(&self, group: usize) -> impl Iterator<Item = (&[u8], &NameBlock)> {
        let (one, blocks) = match &self.names {
            NameTree::Block(block) => (Some((&[][..], block)), &[][..]),
            NameTree::Tree(groups) => (None, groups[group].blocks.as_slice()),
        };
        one.into_iter().chain(blocks.iter().map(|divided| (divided.first.bytes(), &divided.block)))
    }

    /// The block in which names from `first` on are, to be placed.
    pub(super) fn block_near(&self, first: &[u8]) -> &NameBlock {
        match &self.names {
            NameTree::Block(block) => block,
            NameTree::Tree(groups) => {
                let blocks = &groups[group_of(groups, first)].blocks;
                &blocks[block_of(blocks, first)].block
            }
        }
    }

    /// The same, to be placed.
    pub(super) fn block_near_mut(&mut self, first: &[u8]) -> &mut NameBlock {
        match &mut self.names {
            NameTree::Block(block) => block,
            NameTree::Tree(groups) => {
                let at = group_of(groups, first);
                let blocks = Arc::make_mut(&mut groups[at].blocks);
                let at = block_of(blocks, first);
                &mut blocks[at].block
            }
        }
    }

    /// Evicts the blocks of a group that are idle. Returns how much memory that gives back.
    pub(super) fn evict_group(&mut self, group: usize) -> i64 {
        let idle: Vec<bool> = self.group_blocks(group).map(|(_, block)| block.bytes().is_idle()).collect();
        // Nothing is copied for blocks that stay.
        if !idle.contains(&true) {
            return 0;
        }
        let evict = |(block, is_idle): (&mut NameBlock, &bool)| if *is_idle { block.bytes_mut().evict() } else { 0 };
        match &mut self.names {
            NameTree::Block(block) => evict((block, &true)),
            NameTree::Tree(groups) => {
                let blocks = Arc::make_mut(&mut groups[group].blocks);
                blocks.iter_mut().map(|divided| &mut divided.block).zip(&idle).map(evict).sum()
            }
        }
    }
}

impl PartialEq for DirectoryNames {
    fn eq(&self, other: &DirectoryNames) -> bool {
        let (mut one, mut two) = (self.cursor(), other.cursor());
        while let Some(entry) = one.next_name() {
            if Some(entry) != two.next_name() {
                return false;
            }
        }
        self.count == other.count
    }
}

impl fmt::Debug for DirectoryNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        let mut cursor = self.cursor();
        while let Some((name, entry)) = cursor.next_name() {
            map.entry(&String::from_utf8_lossy(name), &entry);
        }
        map.finish()
    }
}

impl NameGroup {
    fn set(&mut self, name: &[u8], entry: NameEntry, scratch: &mut BlockScratch) -> Option<NameEntry> {
        let blocks = Arc::make_mut(&mut self.blocks);
        let mut at = block_of(blocks, name);
        if !blocks[at].block.has_room_for(name) && blocks[at].block.is_behind(name) {
            at += 1;
            let first = EntryName::new(name);
            match blocks.get_mut(at).filter(|next| next.block.has_room_for(name)) {
                Some(next) => next.first = first,
                None => {
                    blocks.insert(at, DividedBlock { first, block: NameBlock::of_one(name, entry, scratch) });
                    return None;
                }
            }
        }
        let (found, change) = blocks[at].block.set(name, entry, scratch);
        if change == BlockChange::TooLarge {
            split_block(blocks, at, scratch);
        }
        found
    }

    fn remove(&mut self, name: &[u8], scratch: &mut BlockScratch) -> Option<NameEntry> {
        let at = block_of(&self.blocks, name);
        // Nothing is copied for a name that is not there.
        self.blocks[at].block.get(name)?;
        let blocks = Arc::make_mut(&mut self.blocks);
        let (found, change) = blocks[at].block.remove(name, scratch)?;
        match change {
            BlockChange::Empty => scratch.memory_bytes -= blocks.remove(at).block.bytes().memory_bytes(),
            BlockChange::Small => {
                for left in [at, at.wrapping_sub(1)] {
                    let Some([one, two]) = blocks.get(left..left.saturating_add(2)) else { continue };
                    if let Some(joined) = one.block.joined(&two.block, scratch) {
                        blocks[left].block = joined;
                        blocks.remove(left + 1);
                        break;
                    }
                }
            }
            BlockChange::Done | BlockChange::TooLarge => {}
        }
        Some(found)
    }

    /// Takes the upper half of the blocks; of the last group, to which names come in order, the last block alone.
    fn split(&mut self, is_last: bool) -> NameGroup {
        let blocks = Arc::make_mut(&mut self.blocks);
        let right = blocks.split_off(if is_last { blocks.len() - 1 } else { blocks.len() / 2 });
        NameGroup { first: right[0].first.clone(), blocks: Arc::new(right) }
    }
}

impl DirectoryBuilder {
    /// Appends a name; false if it is not behind all before.
    pub(crate) fn push(&mut self, name: &[u8], entry: NameEntry) -> bool {
        if self.count > 0 && self.last.as_slice() >= name {
            return false;
        }
        if !self.block.is_empty() && !self.block.has_room_for(name) {
            let block = self.block.finish(&mut self.scratch);
            self.push_block(block);
        }
        if self.block.is_empty() {
            name.clone_into(&mut self.first);
        }
        self.block.push(name, entry);
        name.clone_into(&mut self.last);
        self.count += 1;
        true
    }

    /// Appends a block of names that are behind all before; false if they are not.
    pub(super) fn push_block_of(&mut self, block: NameBlock, last: Vec<u8>) -> bool {
        let mut cursor = block.cursor();
        let first = cursor.advance().map(|_| cursor.name().to_vec());
        let Some(first) = first.filter(|first| self.count == 0 || self.last < *first) else { return false };
        self.first = first;
        self.last = last;
        self.count += block.count();
        self.push_block(block);
        true
    }

    /// The block that came last.
    pub(super) fn last_block_mut(&mut self) -> Option<&mut NameBlock> {
        if self.blocks.is_empty() {
            let group = self.groups.last_mut()?;
            return Arc::make_mut(&mut group.blocks).last_mut().map(|divided| &mut divided.block);
        }
        self.blocks.last_mut().map(|divided| &mut divided.block)
    }

    /// The directory; `None` if no name came. The next name begins another.
    pub(crate) fn finish(&mut self) -> Option<DirectoryNames> {
        if !self.block.is_empty() {
            let block = self.block.finish(&mut self.scratch);
            self.push_block(block);
        }
        let count = std::mem::take(&mut self.count);
        self.end_group();
        let groups = std::mem::take(&mut self.groups);
        let names = match groups.as_slice() {
            [] => return None,
            [NameGroup { blocks, .. }] if blocks.len() == 1 => NameTree::Block(blocks[0].block.clone()),
            _ => NameTree::Tree(groups),
        };
        Some(DirectoryNames { count, names })
    }

    fn push_block(&mut self, block: NameBlock) {
        self.blocks.push(DividedBlock { first: EntryName::new(&self.first), block });
        if self.blocks.len() == GROUP_BLOCKS_MAX {
            self.end_group();
        }
    }

    fn end_group(&mut self) {
        if let Some(first) = self.blocks.first().map(|divided| divided.first.clone()) {
            let mut blocks = std::mem::take(&mut self.blocks);
            blocks.shrink_to_fit();
            self.groups.push(NameGroup { first, blocks: Arc::new(blocks) });
        }
    }
}

impl fmt::Debug for DirectoryBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} names", self.count)
    }
}

impl NameCursor<'_> {
    /// The next name, and what it stands for.
    pub fn next_name(&mut self) -> Option<(&[u8], NameEntry)> {
        let entry = self.advance()?;
        Some((self.current.name(), entry))
    }

    fn advance(&mut self) -> Option<NameEntry> {
        loop {
            if let Some(entry) = self.pending.take().or_else(|| self.current.advance()) {
                return Some(entry);
            }
            let NameTree::Tree(groups) = self.names else { return None };
            match groups.get(self.group)?.blocks.get(self.block) {
                Some(divided) => {
                    self.current = divided.block.cursor();
                    self.block += 1;
                }
                None => (self.group, self.block) = (self.group + 1, 0),
            }
        }
    }
}

/// The group that has a name, if any has.
fn group_of(groups: &[NameGroup], name: &[u8]) -> usize {
    groups[1..].partition_point(|group| compare(group.first.bytes(), name).is_le())
}

/// The block that has a name, if any has.
fn block_of(blocks: &[DividedBlock], name: &[u8]) -> usize {
    if blocks.len() > 4 {
        // As [`super::bytes::PackedBytes::fetched`].
        black_box(blocks.iter().step_by(2).fold(false, |all, divided| all | divided.first.is_long()));
    }
    blocks[1..].partition_point(|divided| compare(divided.first.bytes(), name).is_le())
}

/// Divides a block into two.
fn split_block(blocks: &mut Vec<DividedBlock>, at: usize, scratch: &mut BlockScratch) {
    let (left, first, right) = blocks[at].block.split(scratch);
    blocks[at].block = left;
    blocks.insert(at + 1, DividedBlock { first: EntryName::new(&first), block: right });
}

/// Makes one group of a group and the next, if both are there and have few blocks.
fn join_groups(groups: &mut Vec<NameGroup>, at: usize) {
    let Some([one, two]) = groups.get(at..at.saturating_add(2)) else { return };
    if one.blocks.len() + two.blocks.len() <= GROUP_BLOCKS_JOINED {
        let next = groups.remove(at + 1);
        let first = next.first;
        let mut next = Arc::unwrap_or_clone(next.blocks);
        next[0].first = first;
        Arc::make_mut(&mut groups[at].blocks).append(&mut next);
    }
}

#[cfg(test)]
mod tests;
