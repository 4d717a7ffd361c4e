//! Packs: the oldest records of a chain without those that died, sorted by file; here their index.
//!
//! Guarantees: a pack is immutable. What it says of a file answers every kept instant as all records of its numbers do.
//! It names no segment and no device, so its bytes depend on the chain's records and on what died, and on nothing else.
//! Leaves to others: bytes of payloads and files (`storage`), which records died and what is worth packing (`planes`).
//!
//! Footers keep every number of the chain, also of records that died: a member that lacks records, a returning member
//! and the memory of sessions ask them. A pack has the bytes that are still needed, in one place, and the index of
//! them, which takes the place of what index runs and footers say of its numbers ([`Packs::holds`]).

mod format;
mod put;

use frieze_base::{ChainId, FastMap, InodeId, SegmentId};
use frieze_hlc::Hlc;

use crate::header::LogPosition;
use crate::index_run::{NewestFiles, RunBlock};
use crate::record::RecordHeader;

pub use format::{PackIndexBuilder, PackedRecord};
pub(crate) use format::{PackedLoss, decode_file};
pub use put::{FileToPack, RecordToPack};

/// Which records a pack is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PackKey {
    /// Their chain.
    pub chain: ChainId,
    /// The first number.
    pub first: u64,
    /// The last number.
    pub last: u64,
}

impl std::fmt::Display for PackKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "records {} to {} of chain {}", self.first, self.last, self.chain)
    }
}

/// Where a pack was made: what this device knows of it beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackPlace {
    /// Its number on this device: [`SegmentId::is_pack`] holds of it.
    pub id: SegmentId,
    /// The end of the log then. A record with one of its numbers behind this place is another one: the chain discarded
    /// what had the number before.
    pub made: LogPosition,
    /// The last of its numbers that the chain still has.
    pub upto: u64,
    /// Up to this number nothing of it is read in segments any more: their space there may be gone.
    pub released: u64,
}

impl PackPlace {
    /// Up to number `last`, as far as it has them, nothing of its records is read in segments any more.
    pub fn release(&mut self, last: u64) {
        self.released = self.released.max(last.min(self.upto));
    }
}

/// The index of a pack as it is kept in memory: its directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackIndex {
    pub(crate) place: PackPlace,
    pub(crate) key: PackKey,
    pub(crate) newest: Hlc,
    pub(crate) block_bytes: u32,
    pub(crate) records: u64,
    pub(crate) live_bytes: u64,
    pub(crate) files: NewestFiles,
    pub(crate) blocks: Vec<RunBlock>,
}

impl PackIndex {
    /// What this device knows of it.
    pub fn place(&self) -> PackPlace {
        self.place
    }

    /// Which records it is made of.
    pub fn key(&self) -> PackKey {
        self.key
    }

    /// Stamp of its last number: all records of the chain up to there are among its numbers.
    pub fn newest(&self) -> Hlc {
        self.newest
    }

    /// Records that it has.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Bytes of their payloads.
    pub fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Where blocks of its index lie in its file, and how long they are.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, usize)> {
        self.blocks.iter().map(|block| (block.offset, block.len as usize))
    }

    /// The files in a block of its index, with the records that a read may need. `None` if the bytes are damaged.
    pub fn files_in(&self, block: usize, bytes: &[u8]) -> Option<Vec<(InodeId, Vec<PackedRecord>)>> {
        format::decode_block(self.blocks.get(block)?, bytes)
    }

    fn numbers(&self) -> PackedNumbers {
        PackedNumbers { key: PackKey { last: self.place.upto, ..self.key }, made: self.place.made }
    }

    /// The block of its index that may have a file.
    pub(crate) fn block_of(&self, inode: InodeId) -> Option<RunBlock> {
        let at = self.blocks.partition_point(|block| block.first <= inode).checked_sub(1)?;
        self.files.may_have(inode).then(|| self.blocks[at])
    }
}

/// The numbers that a pack has of records that begin before a place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackedNumbers {
    key: PackKey,
    made: LogPosition,
}

impl PackedNumbers {
    /// True if the record that begins at `at` is one of them.
    pub(crate) fn holds(&self, header: &RecordHeader, at: LogPosition) -> bool {
        let PackKey { chain, first, last } = self.key;
        header.chain == chain && (first..=last).contains(&header.n) && at < self.made
    }
}

/// The packs of a device.
#[derive(Debug, Default)]
pub(crate) struct Packs {
    /// By chain and number; those of a chain follow each other from number 1 on.
    list: Vec<PackIndex>,
    /// By slot: the pack, and the bytes of its blocks. A slot is used once.
    slots: Vec<(SegmentId, u32)>,
    /// The slots of packs.
    slot_of: FastMap<SegmentId, u32>,
    /// Files that packs have, or had.
    files: NewestFiles,
}

impl Packs {
    pub(crate) fn of(list: Vec<PackIndex>) -> Packs {
        let mut packs = Packs::default();
        list.into_iter().for_each(|pack| packs.put(pack, &[]));
        packs
    }

    /// True if the record that begins at `at` is among the numbers of a pack: what of it is still needed is there.
    pub(crate) fn holds(&self, header: &RecordHeader, at: LogPosition) -> bool {
        self.pack_of(header, at).is_some()
    }

    /// True if, besides, no reader asks for it at its place in a segment.
    pub(crate) fn has_released(&self, header: &RecordHeader, at: LogPosition) -> bool {
        self.pack_of(header, at).is_some_and(|pack| header.n <= pack.place.released)
    }

    fn pack_of(&self, header: &RecordHeader, at: LogPosition) -> Option<&PackIndex> {
        // Those of a chain have no number in common: the last that begins at or before this one.
        let behind = self.list.partition_point(|pack| (pack.key.chain, pack.key.first) <= (header.chain, header.n));
        let pack = &self.list[behind.checked_sub(1)?];
        pack.numbers().holds(header, at).then_some(pack)
    }

    /// Nothing of the packs of a chain is read in segments any more, up to number `last`.
    pub(crate) fn release(&mut self, chain: ChainId, last: u64) {
        for pack in self.list.iter_mut().filter(|pack| pack.key.chain == chain) {
            pack.place.release(last);
        }
    }

    /// The numbers that packs have.
    pub(crate) fn numbers(&self) -> Vec<PackedNumbers> {
        self.list.iter().map(PackIndex::numbers).collect()
    }

    /// False: no pack says anything of the file.
    pub(crate) fn may_have(&self, inode: InodeId) -> bool {
        self.files.may_have(inode)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &PackIndex> {
        self.list.iter()
    }

    pub(crate) fn get(&self, id: SegmentId) -> Option<&PackIndex> {
        self.list.iter().find(|pack| pack.place.id == id)
    }

    pub(crate) fn in_slot(&self, slot: usize) -> (SegmentId, u32) {
        self.slots[slot]
    }

    pub(crate) fn slot_of(&self, id: SegmentId) -> Option<u32> {
        self.slot_of.get(&id).copied()
    }

    /// Puts a pack in the place of others.
    pub(crate) fn put(&mut self, pack: PackIndex, old: &[SegmentId]) {
        self.list.retain(|known| !old.contains(&known.place.id));
        self.slot_of.insert(pack.place.id, self.slots.len() as u32);
        self.slots.push((pack.place.id, pack.block_bytes));
        self.files.merge(&pack.files);
        let at = self.list.partition_point(|known| known.key < pack.key);
        self.list.insert(at, pack);
    }

    /// Leaves out the packs of these chains.
    pub(crate) fn take_out(&mut self, is_out: &dyn Fn(ChainId) -> bool) {
        self.list.retain(|pack| !is_out(pack.key.chain));
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let blocks = |pack: &PackIndex| pack.blocks.capacity() * size_of::<RunBlock>() + pack.files.heap_bytes();
        self.list.iter().map(blocks).sum::<usize>() + 2 * self.slots.capacity() * size_of::<(SegmentId, u32)>()
    }
}
