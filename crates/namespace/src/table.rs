//! The inodes in memory, in pages by id: ids are handed out one after the other and never again, so no hash is needed.

use std::fmt;

use frieze_base::InodeId;

use crate::inode::Inode;

/// Inodes a page holds: 7 KiB, so that a page with one survivor wastes little.
const PAGE_INODES: u64 = 64;
/// Larger ids are damage, not a file system: the first level of the table stays below 128 GiB of address space.
pub(crate) const INODE_ID_MAX: u64 = 1 << 40;

#[derive(Default)]
pub(crate) struct InodeTable {
    pages: Vec<Option<Box<InodePage>>>,
}

struct InodePage {
    used: u32,
    slots: [Option<Inode>; PAGE_INODES as usize],
}

impl InodeTable {
    pub(crate) fn get(&self, id: InodeId) -> Option<&Inode> {
        let page = self.pages.get((id.0 / PAGE_INODES) as usize)?.as_ref()?;
        page.slots[(id.0 % PAGE_INODES) as usize].as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: InodeId) -> Option<&mut Inode> {
        let page = self.pages.get_mut((id.0 / PAGE_INODES) as usize)?.as_mut()?;
        page.slots[(id.0 % PAGE_INODES) as usize].as_mut()
    }

    pub(crate) fn insert(&mut self, id: InodeId, inode: Inode) {
        assert!(id.0 <= INODE_ID_MAX, "inode id {id} is beyond {INODE_ID_MAX}");
        let index = (id.0 / PAGE_INODES) as usize;
        if index >= self.pages.len() {
            self.pages.resize_with(index + 1, || None);
        }
        let page = self.pages[index]
            .get_or_insert_with(|| Box::new(InodePage { used: 0, slots: std::array::from_fn(|_| None) }));
        if page.slots[(id.0 % PAGE_INODES) as usize].replace(inode).is_none() {
            page.used += 1;
        }
    }

    pub(crate) fn remove(&mut self, id: InodeId) -> Option<Inode> {
        let slot = self.pages.get_mut((id.0 / PAGE_INODES) as usize)?;
        let page = slot.as_mut()?;
        let removed = page.slots[(id.0 % PAGE_INODES) as usize].take();
        page.used -= u32::from(removed.is_some());
        if page.used == 0 {
            *slot = None;
        }
        removed
    }

    /// All inodes in order of id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (InodeId, &Inode)> {
        self.pages.iter().enumerate().filter_map(|(index, page)| Some((index, page.as_ref()?))).flat_map(
            |(index, page)| {
                let first = index as u64 * PAGE_INODES;
                page.slots.iter().zip(first..).filter_map(|(slot, id)| Some((InodeId(id), slot.as_ref()?)))
            },
        )
    }
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
