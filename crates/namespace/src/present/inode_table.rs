//! The inodes in memory, by number.
//!
//! Each number has a row ([`super::row`]). The table finds the 1,024 rows around it by a hash, then the page by the
//! row. A snapshot shares each such leaf, and the first change of a leaf after a snapshot copies the handles of its
//! pages, not the pages.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use frieze_base::{FastMap, InodeId};

use super::bytes::PackedBytes;
use super::inode_page::{InodePage, PAGE_INODES, PlainInode, bits, rank};
use super::layouts::{FileLayouts, NumberedLayouts};
use super::row::{ROWS_END, id_at, row_of};
use crate::inode::{FileLayout, Inode};
use crate::read_scope::ReadScope;

/// Pages of a leaf: 896 bytes of handles.
const LEAF_PAGES: usize = 16;
pub(super) const LEAF_INODES: u64 = LEAF_PAGES as u64 * PAGE_INODES;

/// The inodes in memory.
#[derive(Default)]
pub struct InodeTable {
    leaves: FastMap<u64, Arc<InodeLeaf>>,
    layouts: FileLayouts,
    /// Overwritten by each change of a page.
    scratch: Vec<u8>,
    /// Memory that all pages take, or would take if none was cold.
    page_bytes: i64,
    /// Memory that evictions gave back so far.
    evicted_bytes: i64,
    /// In a partial namespace: the inodes that are known.
    scope: Option<Box<InodeScope>>,
}

/// The inodes that a partial namespace knows: those of its scope, and those that its transaction makes.
struct InodeScope {
    scope: Arc<ReadScope>,
    made: BTreeSet<InodeId>,
}

/// The inodes of 1,024 consecutive rows.
#[derive(Clone)]
pub(super) struct InodeLeaf {
    pages: [InodeSlot; LEAF_PAGES],
    /// Inodes in it.
    count: u16,
}

/// The inodes of 64 consecutive rows: each is in one of the two, or in none.
#[derive(Clone, Default)]
struct InodeSlot {
    packed: Option<InodePage>,
    unpacked: Option<Arc<UnpackedPage>>,
}

/// Inodes with what few inodes have, and directories.
#[derive(Clone, Default)]
struct UnpackedPage {
    /// A bit for each row that is here.
    present: u64,
    /// By row.
    inodes: Vec<Inode>,
}

impl InodeTable {
    /// True if an inode is in memory.
    pub fn contains(&self, id: InodeId) -> bool {
        self.slot(id).is_some_and(|slot| slot.present() & 1 << index_of(id) != 0)
    }

    /// The inode: borrowed if it is unpacked, as directories always are.
    ///
    /// # Cost
    /// 10 ns, or 40 ns for a packed inode; no allocation.
    pub fn get(&self, id: InodeId) -> Option<Cow<'_, Inode>> {
        let (slot, index) = (self.slot(id)?, index_of(id));
        if let Some(inode) = slot.unpacked.as_ref().and_then(|page| page.get(index)) {
            return Some(Cow::Borrowed(inode));
        }
        let page = slot.packed.as_ref().filter(|page| page.present() & 1 << index != 0)?;
        Some(Cow::Owned(self.unpack(page.get(index))))
    }

    /// The inode if it is a directory, or has something that few inodes have: grants, patches, a target, several
    /// places, access lists, no name. `None` for all others.
    pub fn unpacked(&self, id: InodeId) -> Option<&Inode> {
        self.slot(id)?.unpacked.as_ref()?.get(index_of(id))
    }

    /// Knows the inodes of a scope only, from now on.
    pub(crate) fn restrict(&mut self, scope: Arc<ReadScope>) {
        self.scope = Some(Box::new(InodeScope { scope, made: BTreeSet::new() }));
    }

    /// The inode, to be changed. It stays unpacked until [`InodeTable::pack`].
    pub fn get_mut(&mut self, id: InodeId) -> Option<&mut Inode> {
        if !self.is_known(id) && self.slot(id).is_none_or(|slot| slot.present() & 1 << index_of(id) == 0) {
            // What the transaction does with it does not count any more.
            self.leaf_mut(id).slot_mut(id).unpacked_mut().put(index_of(id), Inode::unknown());
        }
        let index = index_of(id);
        let leaf = Arc::make_mut(self.leaves.get_mut(&leaf_of(id))?);
        let slot = leaf.slot_mut(id);
        if slot.packed.as_ref().is_some_and(|page| page.present() & 1 << index != 0) {
            self.page_bytes -= slot.page_bytes();
            let plain = InodePage::take(&mut slot.packed, index, &mut self.scratch);
            self.page_bytes += slot.page_bytes();
            let layout = Arc::clone(self.layouts.get(plain.owner.layout));
            self.layouts.count_unpacked(plain.owner.layout);
            slot.unpacked_mut().put(index, plain.unpacked(layout));
        }
        let page = slot.unpacked.as_mut().filter(|page| page.present & 1 << index != 0)?;
        let page = Arc::make_mut(page);
        Some(&mut page.inodes[rank(page.present, index)])
    }

    /// Takes an inode in the place of one that may be there. It stays unpacked until [`InodeTable::pack`].
    pub fn insert(&mut self, id: InodeId, inode: Inode) {
        if let Some(scope) = &mut self.scope {
            scope.made.insert(id);
        }
        match self.get_mut(id) {
            Some(old) => *old = inode,
            None => {
                let leaf = self.leaf_mut(id);
                leaf.count += 1;
                leaf.slot_mut(id).unpacked_mut().put(index_of(id), inode);
            }
        }
    }

    /// The same of an inode that does not change soon: it is packed at once, if it can be.
    pub fn insert_packed(&mut self, id: InodeId, inode: Inode) {
        let plain = match &inode.extra {
            None if !self.contains(id) => self.plain(&inode),
            _ => None,
        };
        let Some(plain) = plain else { return self.insert(id, inode) };
        let mut scratch = std::mem::take(&mut self.scratch);
        let leaf = self.leaf_mut(id);
        leaf.count += 1;
        let slot = leaf.slot_mut(id);
        let before = slot.page_bytes();
        InodePage::put(&mut slot.packed, index_of(id), &plain, &mut scratch);
        self.page_bytes += slot.page_bytes() - before;
        self.scratch = scratch;
        self.layouts.count_packed(plain.owner.layout);
    }

    /// The inode, without a box for what few inodes have if it has nothing in it.
    pub(crate) fn trimmed(&mut self, id: InodeId) -> Option<Cow<'_, Inode>> {
        if self.unpacked(id).is_some_and(Inode::is_untrimmed) {
            self.get_mut(id)?.trim();
        }
        self.get(id)
    }

    /// Packs an inode, if nothing is left that few inodes have.
    pub fn pack(&mut self, id: InodeId) {
        let Some(slot) = self.slot(id) else { return };
        let Some(inode) = slot.unpacked.as_ref().and_then(|page| page.get(index_of(id))) else { return };
        // Before the search for its layout.
        if PlainInode::of(inode, 0).is_none() {
            return;
        }
        let layout = Arc::clone(&inode.layout);
        let Some(number) = self.layouts.number_of(&layout) else { return };
        let leaf = Arc::make_mut(self.leaves.get_mut(&leaf_of(id)).expect("it was found there"));
        let slot = leaf.slot_mut(id);
        let inode = slot.take_unpacked(index_of(id));
        let plain = PlainInode::of(&inode, number).expect("checked above");
        self.page_bytes -= slot.page_bytes();
        InodePage::put(&mut slot.packed, index_of(id), &plain, &mut self.scratch);
        self.page_bytes += slot.page_bytes();
        self.layouts.count_packed(number);
    }

    /// Takes an inode out of memory.
    pub fn remove(&mut self, id: InodeId) -> Option<Inode> {
        self.get_mut(id)?;
        let leaf = Arc::make_mut(self.leaves.get_mut(&leaf_of(id))?);
        let inode = leaf.slot_mut(id).take_unpacked(index_of(id));
        leaf.count -= 1;
        if leaf.count == 0 {
            self.leaves.remove(&leaf_of(id));
        }
        Some(inode)
    }

    /// One shared copy of a layout.
    pub fn share(&mut self, layout: FileLayout) -> Arc<FileLayout> {
        self.layouts.share(layout)
    }

    /// The layouts of the inodes.
    pub(crate) fn layouts_mut(&mut self) -> &mut FileLayouts {
        &mut self.layouts
    }

    /// All inodes in the order of their rows.
    pub fn iter(&self) -> impl Iterator<Item = (InodeId, Cow<'_, Inode>)> {
        let mut leaves: Vec<(&u64, &Arc<InodeLeaf>)> = self.leaves.iter().collect();
        leaves.sort_unstable_by_key(|(first, _)| **first);
        let slots = leaves.into_iter().flat_map(|(leaf, inodes)| inodes.slots(*leaf));
        slots.flat_map(move |(first, slot)| {
            bits(slot.present()).map(move |index| {
                let id = id_at(first + u64::from(index));
                (id, self.get(id).expect("its bit is set"))
            })
        })
    }

    /// The layouts that packed inodes have, by number, and all leaves, by row.
    pub(super) fn leaves(&self) -> (NumberedLayouts, Vec<(u64, Arc<InodeLeaf>)>) {
        let mut leaves: Vec<_> = self.leaves.iter().map(|(leaf, inodes)| (*leaf, Arc::clone(inodes))).collect();
        leaves.sort_unstable_by_key(|(leaf, _)| *leaf);
        (self.layouts.numbered(), leaves)
    }

    /// Takes the page of the rows from `first` on; false if that is none, or another is there.
    pub(super) fn insert_page(&mut self, first: u64, page: InodePage) -> bool {
        let present = page.present();
        let is_first = first.is_multiple_of(PAGE_INODES) && first <= ROWS_END - PAGE_INODES;
        if !is_first || !bits(present).all(|index| id_at(first + u64::from(index)).is_valid()) {
            return false;
        }
        if self.slot_at(first).is_some_and(|slot| slot.present() != 0) {
            return false;
        }
        bits(present).for_each(|index| self.layouts.count_packed(page.get(index).owner.layout));
        self.page_bytes += page.bytes().memory_bytes();
        let leaf = Arc::make_mut(self.leaves.entry(first / LEAF_INODES).or_default());
        leaf.count += present.count_ones() as u16;
        leaf.pages[page_of(first)].packed = Some(page);
        true
    }

    /// Takes packed inodes over from another table, and returns copies of the others.
    pub(crate) fn take(&mut self, other: &InodeTable) -> Vec<(InodeId, Inode)> {
        let mut unpacked = Vec::new();
        for (leaf, inodes) in other.leaves().1 {
            for (first, page) in inodes.packed(leaf) {
                let ours = page.with_layouts(|number| self.layouts.number_of(other.layouts.get(number)));
                if ours.is_none_or(|ours| !self.insert_page(first, ours)) {
                    for index in bits(page.present()) {
                        let inode = other.unpack(page.get(index));
                        self.insert_packed(id_at(first + u64::from(index)), inode);
                    }
                }
            }
            unpacked.extend(inodes.unpacked(leaf).map(|(id, inode)| (id, inode.clone())));
        }
        unpacked
    }

    /// How many inodes are packed. `visit` is called with the last number of each page.
    pub(crate) fn packed_count(&self, visit: &mut dyn FnMut(InodeId)) -> u64 {
        let pages = self.leaves.iter().flat_map(|(leaf, inodes)| inodes.packed(*leaf));
        pages.fold(0, |count, (first, page)| {
            let present = page.present();
            visit(id_at(first + u64::from(present.ilog2())));
            count + u64::from(present.count_ones())
        })
    }

    /// Memory that all pages take, or would take if none was cold, and what evictions gave back so far.
    pub(super) fn memory_bytes(&self) -> (i64, i64) {
        (self.page_bytes, self.evicted_bytes)
    }

    /// The page of the rows from `first` on.
    pub(super) fn page(&self, first: u64) -> Option<&InodePage> {
        self.slot_at(first)?.packed.as_ref()
    }

    /// The same, to be placed.
    pub(super) fn page_mut(&mut self, first: u64) -> Option<&mut InodePage> {
        Arc::make_mut(self.leaves.get_mut(&(first / LEAF_INODES))?).pages[page_of(first)].packed.as_mut()
    }

    /// Places a page, which is there, by `place`. That returns how much memory it gives back.
    pub(super) fn place(&mut self, first: u64, place: impl FnOnce(&mut PackedBytes) -> i64) {
        let page = self.page_mut(first).expect("it was put there");
        let evicted = place(page.bytes_mut());
        self.evicted_bytes += evicted;
    }

    /// Evicts idle pages of the leaf with this number, and takes those that were looked at from `left`.
    pub(super) fn evict(&mut self, leaf: u64, left: &mut usize) {
        let Some(shared) = self.leaves.get_mut(&leaf) else { return };
        let pages = || shared.pages.iter().filter_map(|slot| slot.packed.as_ref());
        *left = left.saturating_sub(pages().count());
        // Nothing is copied for pages that stay.
        if !pages().any(|page| page.bytes().may_leave()) {
            return;
        }
        let pages = Arc::make_mut(shared).pages.iter_mut().filter_map(|slot| slot.packed.as_mut());
        let idle = pages.filter(|page| page.bytes().is_idle());
        self.evicted_bytes += idle.map(|page| page.bytes_mut().evict()).sum::<i64>();
    }

    /// The numbers of unpacked inodes, in the order of their rows.
    pub(super) fn unpacked_ids(&self) -> impl Iterator<Item = InodeId> {
        let (_, leaves) = self.leaves();
        leaves.into_iter().flat_map(|(leaf, inodes)| inodes.unpacked(leaf).map(|(id, _)| id).collect::<Vec<InodeId>>())
    }

    fn slot(&self, id: InodeId) -> Option<&InodeSlot> {
        self.is_known(id);
        self.slot_at(row_of(id))
    }

    /// False, and noted, if this is a part of the state that may have the inode elsewhere.
    fn is_known(&self, id: InodeId) -> bool {
        let known = |scope: &InodeScope| scope.made.contains(&id) || scope.scope.look_at_inode(id);
        self.scope.as_deref().is_none_or(known)
    }

    fn slot_at(&self, row: u64) -> Option<&InodeSlot> {
        Some(&self.leaves.get(&(row / LEAF_INODES))?.pages[page_of(row)])
    }

    /// Numbers of the leaves, in no order.
    pub(super) fn leaf_numbers(&self) -> impl Iterator<Item = u64> {
        self.leaves.keys().copied()
    }

    fn leaf_mut(&mut self, id: InodeId) -> &mut InodeLeaf {
        assert!(id.is_valid() || id.0 == 0, "{id} is no inode number");
        Arc::make_mut(self.leaves.entry(leaf_of(id)).or_default())
    }

    fn plain(&mut self, inode: &Inode) -> Option<PlainInode> {
        PlainInode::of(inode, self.layouts.number_of(&inode.layout)?)
    }

    fn unpack(&self, plain: PlainInode) -> Inode {
        plain.unpacked(Arc::clone(self.layouts.get(plain.owner.layout)))
    }
}

impl Default for InodeLeaf {
    fn default() -> InodeLeaf {
        InodeLeaf { pages: std::array::from_fn(|_| InodeSlot::default()), count: 0 }
    }
}

impl InodeLeaf {
    /// The packed pages of the leaf with this number, each with its first row.
    pub(super) fn packed(&self, leaf: u64) -> impl Iterator<Item = (u64, &InodePage)> {
        self.slots(leaf).filter_map(|(first, slot)| Some((first, slot.packed.as_ref()?)))
    }

    /// The unpacked inodes of the leaf with this number.
    pub(super) fn unpacked(&self, leaf: u64) -> impl Iterator<Item = (InodeId, &Inode)> {
        self.slots(leaf).filter_map(|(first, slot)| Some((first, slot.unpacked.as_ref()?))).flat_map(|(first, page)| {
            bits(page.present).zip(&page.inodes).map(move |(index, inode)| (id_at(first + u64::from(index)), inode))
        })
    }

    fn slots(&self, leaf: u64) -> impl Iterator<Item = (u64, &InodeSlot)> {
        self.pages.iter().zip(0..).map(move |(slot, at)| (leaf * LEAF_INODES + at * PAGE_INODES, slot))
    }

    fn slot_mut(&mut self, id: InodeId) -> &mut InodeSlot {
        &mut self.pages[page_of(row_of(id))]
    }
}

impl InodeSlot {
    fn page_bytes(&self) -> i64 {
        self.packed.as_ref().map_or(0, |page| page.bytes().memory_bytes())
    }

    /// A bit for each number that is in one of the two.
    fn present(&self) -> u64 {
        let unpacked = self.unpacked.as_ref().map_or(0, |page| page.present);
        self.packed.as_ref().map_or(0, InodePage::present) | unpacked
    }

    fn unpacked_mut(&mut self) -> &mut UnpackedPage {
        Arc::make_mut(self.unpacked.get_or_insert_default())
    }

    fn take_unpacked(&mut self, index: u32) -> Inode {
        let page = Arc::make_mut(self.unpacked.as_mut().expect("the caller found it here"));
        let inode = page.inodes.remove(rank(page.present, index));
        page.present &= !(1 << index);
        if page.present == 0 {
            self.unpacked = None;
        } else if page.inodes.len() * 2 < page.inodes.capacity() {
            page.inodes.shrink_to_fit();
        }
        inode
    }
}

impl UnpackedPage {
    #[inline]
    fn get(&self, index: u32) -> Option<&Inode> {
        (self.present & 1 << index != 0).then(|| &self.inodes[rank(self.present, index)])
    }

    /// Puts an inode where none is.
    fn put(&mut self, index: u32, inode: Inode) {
        if self.inodes.len() == self.inodes.capacity() {
            // Most pages have one or two directories, some have many.
            self.inodes.reserve_exact(1 + self.inodes.len() / 4);
        }
        self.inodes.insert(rank(self.present, index), inode);
        self.present |= 1 << index;
    }
}

fn leaf_of(id: InodeId) -> u64 {
    row_of(id) / LEAF_INODES
}

fn page_of(row: u64) -> usize {
    (row / PAGE_INODES) as usize % LEAF_PAGES
}

fn index_of(id: InodeId) -> u32 {
    (row_of(id) % PAGE_INODES) as u32
}

impl PartialEq for InodeTable {
    fn eq(&self, other: &InodeTable) -> bool {
        self.iter().eq(other.iter())
    }
}

impl fmt::Debug for InodeTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests;
