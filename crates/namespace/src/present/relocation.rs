//! Pages and blocks get their places in a checkpoint that was published.
//!
//! The pieces of a checkpoint are in the order of the snapshot that it was made of, so their offsets follow from a walk
//! over the same snapshot. A page or block of the present gets the place of its piece if it is the one that the
//! snapshot has: the same bytes in memory, or the same place in the file before. One that has changed since has no
//! place.

use std::sync::Arc;

use super::directories::{DirectoryLeaf, id_of};
use super::inode_page::InodePage;
use super::inode_table::InodeLeaf;
use super::name_block::NameBlock;
use super::place::{ColdFile, PiecePlace};
use super::row::row_of;
use super::snapshot::{NAMES, PAGE, PresentSnapshot, begin, put_inode, put_layout, put_numbers};
use crate::namespace::Namespace;

/// Pieces of one call: less than 1 ms.
const BITE_PIECES: usize = 512;

/// Where a file has the pieces of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceOffsets {
    /// Where the section of inodes begins.
    pub inodes: u64,
    /// Where the section of names begins.
    pub names: u64,
    /// Bytes of the file before each piece.
    pub head_bytes: u64,
}

/// A walk over the pieces of a checkpoint, in which the present gets their places.
pub struct Relocation {
    file: Arc<ColdFile>,
    head_bytes: u64,
    /// Where the next piece of inodes is, and the next one of names.
    inodes_at: u64,
    names_at: u64,
    inodes: std::vec::IntoIter<(u64, Arc<InodeLeaf>)>,
    directories: std::vec::IntoIter<(u64, Arc<DirectoryLeaf>)>,
    /// The leaf of directories that is being walked, the next directory in it, and the next group of its blocks.
    leaf: Option<(u64, Arc<DirectoryLeaf>)>,
    next: (u16, usize),
    /// The head of a piece, or a piece that has no place.
    scratch: Vec<u8>,
}

impl PresentSnapshot {
    /// The pieces of this snapshot are in `file` now.
    pub fn relocate(self, file: Arc<ColdFile>, offsets: PieceOffsets) -> Relocation {
        let PieceOffsets { inodes: mut inodes_at, names: names_at, head_bytes } = offsets;
        let mut piece = Vec::new();
        put_numbers(&mut piece, &self.numbers);
        inodes_at += head_bytes + piece.len() as u64;
        for layout in &self.layouts {
            put_layout(&mut piece, layout.as_deref());
            inodes_at += head_bytes + piece.len() as u64;
        }
        Relocation {
            file,
            head_bytes,
            inodes_at,
            names_at,
            inodes: self.inodes.into_iter(),
            directories: self.directories.into_iter(),
            leaf: None,
            next: (0, 0),
            scratch: piece,
        }
    }
}

impl Namespace {
    /// Gives places to some more pages and blocks. True if there are more: call it again, after others had the lock.
    ///
    /// # Cost
    /// Less than 1 ms.
    pub fn relocate(&mut self, relocation: &mut Relocation) -> bool {
        let mut left = BITE_PIECES;
        while left > 0 {
            if let Some((leaf, inodes)) = relocation.inodes.next() {
                left = left.saturating_sub(relocation.place_leaf(self, leaf, &inodes));
                continue;
            }
            match relocation.place_group(self) {
                Some(blocks) => left = left.saturating_sub(blocks),
                None => return false,
            }
        }
        true
    }
}

impl Relocation {
    /// Places the pages of a leaf, and passes its unpacked inodes. Returns how many pieces these are.
    fn place_leaf(&mut self, namespace: &mut Namespace, leaf: u64, inodes: &InodeLeaf) -> usize {
        let mut pieces = 0;
        for (first, page) in inodes.packed(leaf) {
            pieces += 1;
            let place = self.place(PAGE, first, page.bytes().len(), true);
            let is_same = |now: &InodePage| now.bytes().is_same(page.bytes());
            // Nothing is copied for a page that has changed.
            if namespace.inodes.page(first).is_some_and(is_same)
                && let (Some(now), Some(place)) = (namespace.inodes.page_mut(first), place)
            {
                now.bytes_mut().set_place(&self.file, place);
            }
        }
        for (id, inode) in inodes.unpacked(leaf) {
            pieces += 1;
            put_inode(&mut self.scratch, id, inode);
            self.inodes_at += self.head_bytes + self.scratch.len() as u64;
        }
        pieces.max(1)
    }

    /// Places the next group of blocks. Returns how many these are; `None`: there is none.
    fn place_group(&mut self, namespace: &mut Namespace) -> Option<usize> {
        let (leaf, directories) = match self.leaf.take() {
            Some(leaf) => leaf,
            None => {
                self.next = (0, 0);
                self.directories.next()?
            }
        };
        let (from, group) = self.next;
        let Some((index, names)) = directories.range(from..).next() else { return Some(1) };
        let group = if *index == from { group } else { 0 };
        let id = id_of(leaf, *index);
        let mut blocks = 0;
        for (first, block) in names.group_blocks(group) {
            blocks += 1;
            let place = self.place(NAMES, row_of(id), block.bytes().len(), false);
            let is_same = |block_now: &NameBlock| block_now.bytes().is_same(block.bytes());
            if namespace.directories.get(id).is_some_and(|now| is_same(now.block_near(first)))
                && let (Some(now), Some(place)) = (namespace.directories.get_mut(id), place)
            {
                now.block_near_mut(first).bytes_mut().set_place(&self.file, place);
            }
        }
        let is_last = group + 1 == names.group_count();
        let next = if is_last { index.checked_add(1).map(|next| (next, 0)) } else { Some((*index, group + 1)) };
        if let Some(next) = next {
            self.next = next;
            self.leaf = Some((leaf, directories));
        }
        Some(blocks)
    }

    /// The place of the next piece.
    fn place(&mut self, letter: u8, number: u64, content_bytes: usize, is_page: bool) -> Option<PiecePlace> {
        begin(&mut self.scratch, letter, number);
        let (head_bytes, at) = (self.scratch.len(), if is_page { &mut self.inodes_at } else { &mut self.names_at });
        let offset = *at + self.head_bytes;
        *at = offset + (head_bytes + content_bytes) as u64;
        PiecePlace::new(offset, head_bytes + content_bytes, head_bytes, number)
    }
}
