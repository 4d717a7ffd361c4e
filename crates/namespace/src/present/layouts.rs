//! Layouts by number: a packed inode has the number of its layout.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::inode::FileLayout;

/// Layouts that have a number. An inode of one without stays unpacked.
const NUMBERED_MAX: usize = 1 << 16;

/// One copy of each layout; those that no inode has any more are dropped when a new one comes.
#[derive(Debug, Default)]
pub(crate) struct FileLayouts {
    numbers: BTreeMap<Arc<FileLayout>, u16>,
    slots: Vec<LayoutSlot>,
    /// The number asked for last: most inodes have the layout of the one before.
    last: u16,
}

/// Layouts by number; `None` for a number that is free.
pub(super) type NumberedLayouts = Vec<Option<Arc<FileLayout>>>;

#[derive(Debug, Default)]
struct LayoutSlot {
    layout: Option<Arc<FileLayout>>,
    /// Packed inodes that have it.
    packed: u64,
}

impl FileLayouts {
    /// The copy of a layout that all inodes share.
    pub(crate) fn share(&mut self, layout: FileLayout) -> Arc<FileLayout> {
        if let Some(last) = self.slots.get(usize::from(self.last)).and_then(|slot| slot.layout.as_ref())
            && last.is(&layout)
        {
            return Arc::clone(last);
        }
        let layout = Arc::new(layout);
        match self.number_of(&layout) {
            Some(number) => Arc::clone(self.get(number)),
            None => layout,
        }
    }

    /// The number of a layout, which becomes one of these if it is none; `None` if there are too many.
    pub(super) fn number_of(&mut self, layout: &Arc<FileLayout>) -> Option<u16> {
        if let Some(last) = self.slots.get(usize::from(self.last)).and_then(|slot| slot.layout.as_ref())
            && (Arc::ptr_eq(last, layout) || last.is(layout))
        {
            return Some(self.last);
        }
        let number = match self.numbers.get(layout) {
            Some(number) => *number,
            None => self.add(Arc::clone(layout))?,
        };
        self.last = number;
        Some(number)
    }

    /// A layout by its number, which a packed inode has.
    #[inline]
    pub(super) fn get(&self, number: u16) -> &Arc<FileLayout> {
        self.slots[usize::from(number)].layout.as_ref().expect("a layout stays while an inode has its number")
    }

    /// A packed inode more has this layout.
    pub(super) fn count_packed(&mut self, number: u16) {
        self.slots[usize::from(number)].packed += 1;
    }

    /// A packed inode less has it.
    pub(super) fn count_unpacked(&mut self, number: u16) {
        self.slots[usize::from(number)].packed -= 1;
    }

    /// The layouts that packed inodes have, by number.
    pub(super) fn numbered(&self) -> NumberedLayouts {
        let used = self.slots.iter().map(|slot| slot.layout.clone().filter(|_| slot.packed > 0));
        let mut used: Vec<_> = used.collect();
        used.truncate(used.iter().rposition(Option::is_some).map_or(0, |last| last + 1));
        used
    }

    /// Gives the next number to a layout, or to none, and returns it; `None` if there are too many, or it has one. The
    /// layout counts as that of one packed inode, so that it keeps its number until the inodes come that have it.
    pub(super) fn append(&mut self, layout: Option<FileLayout>) -> Option<u16> {
        let layout = layout.map(Arc::new);
        if self.slots.len() == NUMBERED_MAX || layout.as_ref().is_some_and(|layout| self.numbers.contains_key(layout)) {
            return None;
        }
        let number = self.slots.len() as u16;
        if let Some(layout) = &layout {
            self.numbers.insert(Arc::clone(layout), number);
        }
        let packed = u64::from(layout.is_some());
        self.slots.push(LayoutSlot { layout, packed });
        Some(number)
    }

    /// True if a layout has this number.
    pub(super) fn has(&self, number: u16) -> bool {
        self.slots.get(usize::from(number)).is_some_and(|slot| slot.layout.is_some())
    }

    fn add(&mut self, layout: Arc<FileLayout>) -> Option<u16> {
        for slot in &mut self.slots {
            // One reference is here, one is the key of the numbers.
            let unused = |layout: &Arc<FileLayout>| slot.packed == 0 && Arc::strong_count(layout) == 2;
            if let Some(unused) = slot.layout.take_if(|layout| unused(layout)) {
                self.numbers.remove(&unused);
            }
        }
        let free = self.slots.iter().position(|slot| slot.layout.is_none());
        let at = free.unwrap_or(self.slots.len());
        if at == self.slots.len() {
            if at == NUMBERED_MAX {
                return None;
            }
            self.slots.push(LayoutSlot::default());
        }
        let number = u16::try_from(at).expect("below the bound");
        self.numbers.insert(Arc::clone(&layout), number);
        self.slots[at].layout = Some(layout);
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(chain_count: u32) -> FileLayout {
        FileLayout { chunk_bytes: 4096, chain_count, plugin: String::new(), regime: 0 }
    }

    #[test]
    fn a_number_is_given_again_once_no_inode_has_its_layout() {
        let mut layouts = FileLayouts::default();
        let (first, second) = (layouts.share(layout(1)), layouts.share(layout(2)));
        assert!(Arc::ptr_eq(&layouts.share(layout(1)), &first));
        assert_eq!((layouts.number_of(&first), layouts.number_of(&second)), (Some(0), Some(1)));
        layouts.count_packed(0);
        drop((first, second));
        let third = layouts.share(layout(3));
        assert_eq!(layouts.number_of(&third), Some(1), "a packed inode has the first");
        assert_eq!(layouts.get(0).chain_count, 1);
        layouts.count_unpacked(0);
        let fourth = layouts.share(layout(4));
        assert_eq!(layouts.number_of(&fourth), Some(0));
        assert_eq!((layouts.get(0).chain_count, layouts.get(1).chain_count), (4, 3));
    }

    #[test]
    fn layouts_beyond_the_numbers_are_shared_by_none() {
        let mut layouts = FileLayouts::default();
        let all: Vec<Arc<FileLayout>> = (0..4).map(|chains| layouts.share(layout(chains))).collect();
        layouts.slots.resize_with(NUMBERED_MAX, || LayoutSlot { layout: Some(Arc::clone(&all[0])), packed: 1 });
        let more = layouts.share(layout(9));
        assert_eq!((more.chain_count, layouts.number_of(&more)), (9, None));
    }
}
