//! The present as bytes: what a checkpoint copies while the namespace goes on, and how it becomes a present again.
//!
//! | piece | content |
//! |---|---|
//! | `C` numbers given | see `InodeNumbers::put` |
//! | `L` layout | chunk size, chains, time plug-in; numbered from 0 in their order. Empty: a number without one |
//! | `P` inodes | its first row ([`super::row`]), then the page ([`super::inode_page`]) |
//! | `I` inode | its number, stamp (8), then the value of its version as in the store ([`crate::stored`]) |
//! | `N` names | row of the directory, then a block ([`super::name_block`]) |
//!
//! A piece has no length and no checksum: those are the file's. Numbers are varints. The numbers given come first,
//! layouts before pages, and the blocks of a directory in their order, directories by row.
//!
//! A present that was read from bytes is brought to a later instant by the newest version of each key that changed
//! since ([`PackedInodes::replace`], [`PackedNames::replace`]).

use std::sync::Arc;

use frieze_base::{Fault, InodeId, NAME_BYTES_MAX, varint};
use frieze_hlc::Hlc;
use prost::Message;

use super::bytes::PackedBytes;
use super::directories::{DirectoryLeaf, DirectoryTable};
use super::directory::DirectoryBuilder;
use super::inode_page::InodePage;
use super::inode_table::{InodeLeaf, InodeTable};
use super::layouts::NumberedLayouts;
use super::name_block::NameBlock;
use super::place::{ColdFile, ColdReader, PiecePlace};
use super::row::{ROWS_END, id_at, row_of};
use crate::error::Error;
use crate::inode::{FileLayout, Inode};
use crate::key::VersionKey;
use crate::load::read_inode;
use crate::namespace::Namespace;
use crate::numbers::InodeNumbers;
use crate::stored::{StoredInode, read_entry};

/// Takes a piece; false: no more.
pub type VisitPiece<'a> = dyn FnMut(&[u8]) -> bool + 'a;

const NUMBERS: u8 = b'C';
const LAYOUT: u8 = b'L';
pub(super) const PAGE: u8 = b'P';
const INODE: u8 = b'I';
pub(super) const NAMES: u8 = b'N';

/// All inodes in memory and all names, as they are at one instant. It shares memory with the namespace: what changes
/// afterwards is copied first.
#[derive(Clone)]
pub struct PresentSnapshot {
    pub(super) numbers: InodeNumbers,
    /// By number; those that no packed inode has are `None`.
    pub(super) layouts: NumberedLayouts,
    /// By number.
    pub(super) inodes: Vec<(u64, Arc<InodeLeaf>)>,
    /// By number.
    pub(super) directories: Vec<(u64, Arc<DirectoryLeaf>)>,
}

/// Inodes of a present that is read from bytes.
#[derive(Debug, Default)]
pub struct PackedInodes {
    /// `None` until its piece came.
    numbers: Option<InodeNumbers>,
    table: InodeTable,
    file: Option<LoadedFile>,
    /// Numbers of layouts that count as those of one packed inode more, until all pieces are read.
    appended: Vec<u16>,
}

/// Names of a present that is read from bytes.
#[derive(Debug, Default)]
pub struct PackedNames {
    table: DirectoryTable,
    file: Option<LoadedFile>,
    /// Memory of the blocks that are not cold.
    block_bytes: i64,
    /// Row of the directory that comes now; that of the root is 0.
    row: u64,
    names: DirectoryBuilder,
}

/// The file that pieces are read from, and where they stay beyond a bound.
#[derive(Debug)]
struct LoadedFile {
    file: Arc<ColdFile>,
    /// Bytes in memory beyond which pages or blocks stay in the file.
    bytes_max: i64,
}

impl PresentSnapshot {
    /// A snapshot of these; see [`Namespace::present`].
    pub fn of(numbers: &InodeNumbers, inodes: &InodeTable, directories: &DirectoryTable) -> PresentSnapshot {
        let (layouts, inodes) = inodes.leaves();
        PresentSnapshot { numbers: numbers.clone(), layouts, inodes, directories: directories.leaves() }
    }

    /// Gives each piece of the inodes to `visit`, in the order in which [`PackedInodes::load`] takes them. False if
    /// `visit` stopped. Cold pages are read from the checkpoint that has them, and stay cold.
    pub fn inode_pieces(&self, visit: &mut VisitPiece<'_>) -> bool {
        let (mut piece, mut reader) = (Vec::new(), ColdReader::of_many());
        put_numbers(&mut piece, &self.numbers);
        if !visit(&piece) {
            return false;
        }
        for layout in &self.layouts {
            put_layout(&mut piece, layout.as_deref());
            if !visit(&piece) {
                return false;
            }
        }
        for (leaf, inodes) in &self.inodes {
            for (first, page) in inodes.packed(*leaf) {
                begin(&mut piece, PAGE, first);
                piece.extend_from_slice(page.bytes().peek(&mut reader));
                if !visit(&piece) {
                    return false;
                }
            }
            for (id, inode) in inodes.unpacked(*leaf) {
                put_inode(&mut piece, id, inode);
                if !visit(&piece) {
                    return false;
                }
            }
        }
        true
    }

    /// Gives each piece of the names to `visit`, in the order in which [`PackedNames::load`] takes them. False if
    /// `visit` stopped. Cold blocks are read from the checkpoint that has them, and stay cold.
    pub fn name_pieces(&self, visit: &mut VisitPiece<'_>) -> bool {
        let (mut piece, mut reader) = (Vec::new(), ColdReader::of_many());
        for (leaf, directories) in &self.directories {
            for (id, directory) in super::directories::in_leaf(*leaf, directories) {
                for block in directory.blocks() {
                    begin(&mut piece, NAMES, row_of(id));
                    piece.extend_from_slice(block.bytes().peek(&mut reader));
                    if !visit(&piece) {
                        return false;
                    }
                }
            }
        }
        true
    }

    /// The lengths of all pieces of the inodes, in their order, without a look at cold pages.
    pub fn inode_lengths(&self, visit: &mut dyn FnMut(usize)) {
        let mut piece = Vec::new();
        put_numbers(&mut piece, &self.numbers);
        visit(piece.len());
        for layout in &self.layouts {
            put_layout(&mut piece, layout.as_deref());
            visit(piece.len());
        }
        for (leaf, inodes) in &self.inodes {
            for (first, page) in inodes.packed(*leaf) {
                begin(&mut piece, PAGE, first);
                visit(piece.len() + page.bytes().len());
            }
            for (id, inode) in inodes.unpacked(*leaf) {
                put_inode(&mut piece, id, inode);
                visit(piece.len());
            }
        }
    }

    /// The lengths of all pieces of the names, in their order, without a look at cold blocks.
    pub fn name_lengths(&self, visit: &mut dyn FnMut(usize)) {
        let mut piece = Vec::new();
        for (leaf, directories) in &self.directories {
            for (id, directory) in super::directories::in_leaf(*leaf, directories) {
                begin(&mut piece, NAMES, row_of(id));
                directory.blocks().for_each(|block| visit(piece.len() + block.bytes().len()));
            }
        }
    }
}

impl LoadedFile {
    fn new(file: &Arc<ColdFile>, bytes_max: u64) -> LoadedFile {
        LoadedFile { file: Arc::clone(file), bytes_max: i64::try_from(bytes_max).unwrap_or(i64::MAX) }
    }

    /// Notes where bytes are that were read from `piece`, and evicts them if `bytes` are too many. Returns how many
    /// leave.
    fn place(&self, packed: &mut PackedBytes, piece: &[u8], offset: u64, bytes: i64) -> i64 {
        let head_bytes = piece.len() - packed.len();
        let number = varint::take(&mut &piece[1..head_bytes]).unwrap_or(0);
        if let Some(place) = PiecePlace::new(offset, piece.len(), head_bytes, number) {
            packed.set_place(&self.file, place);
        }
        if bytes > self.bytes_max { packed.evict() } else { 0 }
    }

    /// True if so many bytes, and those that were read again, are too many.
    fn is_full(&self, (bytes, evicted): (i64, i64)) -> bool {
        bytes - evicted + self.file.loads().counts().1 > self.bytes_max
    }
}

impl PackedInodes {
    /// For pieces of this file: beyond `bytes_max` bytes of memory, pages stay in it.
    pub fn of_file(file: &Arc<ColdFile>, bytes_max: u64) -> PackedInodes {
        PackedInodes { file: Some(LoadedFile::new(file, bytes_max)), ..PackedInodes::default() }
    }

    /// As [`PackedInodes::load`], of the piece at this offset of the file.
    ///
    /// # Errors
    /// As [`PackedInodes::load`].
    pub fn load_at(&mut self, piece: &[u8], offset: u64) -> Result<(), Fault> {
        self.load(piece)?;
        if let (Some(file), Some((&PAGE, mut rest))) = (&self.file, piece.split_first()) {
            let first = varint::take(&mut rest).unwrap_or(0);
            let (pages, evicted) = self.table.memory_bytes();
            self.table.place(first, |page| file.place(page, piece, offset, pages - evicted));
        }
        Ok(())
    }

    /// Evicts pages that were read again, if there are too many. After all pieces.
    pub fn keep_to_bound(&mut self) {
        let Some(file) = &self.file else { return };
        let leaves: Vec<u64> = self.table.leaves().1.into_iter().map(|(leaf, _)| leaf).collect();
        // The first round takes marks of use away.
        for leaf in leaves.iter().chain(&leaves) {
            if !file.is_full(self.table.memory_bytes()) {
                break;
            }
            let mut all = usize::MAX;
            self.table.evict(*leaf, &mut all);
        }
    }

    /// Takes a piece.
    ///
    /// # Errors
    /// `Corrupt` if it is not one that [`PresentSnapshot::inode_pieces`] gives after those that came: the present is to
    /// be read from the versions in the store.
    ///
    /// # Cost
    /// A page is decoded and encoded again, some 100 ns an inode. Memory is the length of the piece, and 400 bytes for
    /// each 1,024 numbers that have one.
    pub fn load(&mut self, piece: &[u8]) -> Result<(), Fault> {
        let (letter, mut rest) = piece.split_first().ok_or(Error::Corrupt { what: "piece without a letter" })?;
        if self.numbers.is_none() && *letter != NUMBERS {
            return Err(Error::Corrupt { what: "pieces without the inode numbers given" }.into());
        }
        let rest = &mut rest;
        let is_loaded = match *letter {
            NUMBERS => {
                let is_first = self.numbers.is_none();
                self.numbers = InodeNumbers::read(rest).filter(|_| is_first);
                self.numbers.as_ref().map(drop)
            }
            LAYOUT => self.load_layout(rest),
            PAGE => self.load_page(rest),
            INODE => return Ok(self.load_inode(rest)?),
            _ => return Err(Error::Corrupt { what: "letter of a piece of inodes" }.into()),
        };
        match is_loaded {
            Some(()) => Ok(()),
            None => {
                let what = match *letter {
                    PAGE => "page of inodes",
                    NUMBERS => "inode numbers given",
                    _ => "layout of inodes",
                };
                Err(Error::Corrupt { what }.into())
            }
        }
    }

    /// Replaces the version of an inode by its newest one, whose key, stamp and value these are; `None`: it is absent.
    /// After all pieces.
    ///
    /// # Errors
    /// `Corrupt` if the key is not one of an inode, or the value cannot be read.
    pub fn replace(&mut self, key: &[u8], stamp: Hlc, value: Option<&[u8]>) -> Result<(), Fault> {
        self.end_layouts();
        let Some(VersionKey::Inode(id)) = VersionKey::decode(key) else {
            return Err(Error::Corrupt { what: "key of an inode" }.into());
        };
        match value {
            Some(value) => {
                let inode = read_inode(id, stamp, value, self.table.layouts_mut())?;
                self.table.insert(id, inode);
                self.table.pack(id);
                self.numbers.get_or_insert_default().note(id);
            }
            None => drop(self.table.remove(id)),
        }
        Ok(())
    }

    /// Keys and stamps of the versions that may have been written again in their place since, under their old stamp,
    /// so that no index of time names the change: those with grants.
    pub fn rewritable(&self) -> Vec<(Vec<u8>, Hlc)> {
        let unpacked = self.table.unpacked_ids().filter_map(|id| Some((id, self.table.unpacked(id)?)));
        let granted = unpacked.filter(|(_, inode)| !inode.grants().is_empty());
        granted.map(|(id, inode)| (VersionKey::Inode(id).encode(), inode.from)).collect()
    }

    fn load_layout(&mut self, rest: &mut &[u8]) -> Option<()> {
        let layout = match rest.is_empty() {
            true => None,
            false => Some(FileLayout {
                chunk_bytes: varint::take(rest).filter(|bytes| bytes.is_power_of_two())?,
                chain_count: u32::try_from(varint::take(rest)?).ok()?,
                regime: u32::try_from(varint::take(rest)?).ok()?,
                plugin: std::str::from_utf8(rest).ok()?.to_owned(),
            }),
        };
        let is_one = layout.is_some();
        let number = self.table.layouts_mut().append(layout)?;
        if is_one {
            self.appended.push(number);
        }
        Some(())
    }

    /// All pieces have come: a layout that no inode has may lose its number.
    fn end_layouts(&mut self) {
        for number in self.appended.drain(..) {
            self.table.layouts_mut().count_unpacked(number);
        }
    }

    fn load_page(&mut self, rest: &mut &[u8]) -> Option<()> {
        let first = varint::take(rest)?;
        let layouts = self.table.layouts_mut();
        let page = InodePage::load(rest, |number| layouts.has(number))?;
        self.table.insert_page(first, page).then_some(())
    }

    fn load_inode(&mut self, rest: &mut &[u8]) -> Result<(), Error> {
        let corrupt = Error::Corrupt { what: "inode number" };
        let id = varint::take(rest).map(InodeId).filter(|id| id.is_valid()).ok_or(corrupt.clone())?;
        let (from, value) = rest.split_first_chunk().ok_or(corrupt.clone())?;
        let from = Hlc(u64::from_le_bytes(*from));
        let (inode, _) = StoredInode::read(from, value, |layout| self.table.share(layout))?;
        if self.table.contains(id) {
            return Err(corrupt);
        }
        self.table.insert(id, inode);
        Ok(())
    }
}

impl PackedNames {
    /// For pieces of this file: beyond `bytes_max` bytes of memory, blocks stay in it.
    pub fn of_file(file: &Arc<ColdFile>, bytes_max: u64) -> PackedNames {
        PackedNames { file: Some(LoadedFile::new(file, bytes_max)), ..PackedNames::default() }
    }

    /// As [`PackedNames::load`], of the piece at this offset of the file.
    ///
    /// # Errors
    /// As [`PackedNames::load`].
    pub fn load_at(&mut self, piece: &[u8], offset: u64) -> Result<(), Fault> {
        self.load(piece)?;
        if let (Some(file), Some(block)) = (&self.file, self.names.last_block_mut()) {
            self.block_bytes += block.bytes().memory_bytes();
            let leaving = file.place(block.bytes_mut(), piece, offset, self.block_bytes);
            self.block_bytes -= leaving;
            self.table.note_evicted(leaving);
        }
        Ok(())
    }

    /// Evicts blocks that were read again, if there are too many. After all pieces.
    pub fn keep_to_bound(&mut self) {
        self.end_directory();
        let Some(file) = &self.file else { return };
        let leaves: Vec<u64> = self.table.leaves().into_iter().map(|(leaf, _)| leaf).collect();
        // The first round takes marks of use away.
        for leaf in leaves.iter().chain(&leaves) {
            if !file.is_full(self.table.memory_bytes()) {
                break;
            }
            let mut all = usize::MAX;
            let _end = self.table.evict(*leaf, (0, 0), &mut all);
        }
    }

    /// Takes a piece.
    ///
    /// # Errors
    /// `Corrupt` if it is not one that [`PresentSnapshot::name_pieces`] gives after those that came: the present is to
    /// be read from the versions in the store.
    pub fn load(&mut self, piece: &[u8]) -> Result<(), Fault> {
        let corrupt = || Error::Corrupt { what: "block of names" };
        let (letter, mut rest) = piece.split_first().ok_or_else(corrupt)?;
        let row = varint::take(&mut rest).filter(|row| *letter == NAMES && *row >= self.row && *row < ROWS_END);
        let row = row.ok_or_else(corrupt)?;
        if row != self.row {
            self.end_directory();
            self.row = row;
        }
        let (block, last) = NameBlock::load(rest).ok_or_else(corrupt)?;
        if self.names.push_block_of(block, last) { Ok(()) } else { Err(corrupt().into()) }
    }

    /// Replaces a directory entry by its newest version, whose key, stamp and value these are; `None`: it is absent.
    /// After all pieces.
    ///
    /// # Errors
    /// `Corrupt` if the key is not one of an entry, or key or value cannot be read.
    pub fn replace(&mut self, key: &[u8], stamp: Hlc, value: Option<&[u8]>) -> Result<(), Fault> {
        self.end_directory();
        let Some(VersionKey::Entry(parent, name)) = VersionKey::decode(key) else {
            return Err(Error::Corrupt { what: "key of a directory entry" }.into());
        };
        if !parent.is_valid() || name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(Error::Corrupt { what: "name of a directory entry" }.into());
        }
        match value {
            Some(value) => drop(self.table.set(parent, name, read_entry(stamp, value)?)),
            None => drop(self.table.remove(parent, name)),
        }
        Ok(())
    }

    fn end_directory(&mut self) {
        if let Some(names) = self.names.finish() {
            let is_first = self.table.insert(id_at(self.row), names);
            assert!(is_first, "directories come by row");
        }
    }
}

impl Namespace {
    /// All inodes in memory and all names as they are now.
    ///
    /// # Cost
    /// A handle for each 1,024 numbers of inodes and of directories: 1 ms for 10 million files, under the caller's
    /// lock. Afterwards the first change of such a leaf copies 16 handles and those of its directories, and the first
    /// change of a page or block copies that.
    pub fn present(&self) -> PresentSnapshot {
        PresentSnapshot::of(&self.numbers, &self.inodes, &self.directories)
    }

    /// Takes over a present that was read from bytes, into a namespace without one. As with
    /// [`Namespace::take_apart`], extended attributes are loaded afterwards, and what was forgotten before.
    pub fn take_present(&mut self, mut inodes: PackedInodes, mut names: PackedNames) {
        inodes.end_layouts();
        names.end_directory();
        if let Some(LoadedFile { file, .. }) = &inodes.file {
            self.piece_loads = Arc::clone(file.loads());
        }
        self.directories = names.table;
        self.inodes = inodes.table;
        self.alive += self.inodes.packed_count(&mut |_| ());
        // A loss that is declared later than the checkpoint was taken may have been loaded before.
        let floor = self.numbers.floor();
        self.numbers = inodes.numbers.unwrap_or_default();
        self.numbers.skip(floor);
        let unpacked: Vec<InodeId> = self.inodes.unpacked_ids().collect();
        for id in unpacked {
            let inode = self.inodes.unpacked(id).cloned();
            self.count_loaded(id, &inode.expect("its number was given"));
            self.inodes.pack(id);
        }
    }
}

/// The numbers given, as a piece.
pub(super) fn put_numbers(piece: &mut Vec<u8>, numbers: &InodeNumbers) {
    piece.clear();
    piece.push(NUMBERS);
    numbers.put(piece);
}

pub(super) fn put_layout(piece: &mut Vec<u8>, layout: Option<&FileLayout>) {
    piece.clear();
    piece.push(LAYOUT);
    if let Some(FileLayout { chunk_bytes, chain_count, plugin, regime }) = layout {
        varint::put(piece, *chunk_bytes);
        varint::put(piece, (*chain_count).into());
        varint::put(piece, (*regime).into());
        piece.extend_from_slice(plugin.as_bytes());
    }
}

pub(super) fn put_inode(piece: &mut Vec<u8>, id: InodeId, inode: &Inode) {
    begin(piece, INODE, id.0);
    piece.extend_from_slice(&inode.from.0.to_le_bytes());
    StoredInode::of_current(inode).encode_raw(piece);
}

/// Begins a piece whose content follows.
pub(super) fn begin(piece: &mut Vec<u8>, letter: u8, number: u64) {
    piece.clear();
    piece.push(letter);
    varint::put(piece, number);
}

#[cfg(test)]
mod tests;
