//! Which files an index run can have: those whose numbers are at most the newest of their slots.

use frieze_base::InodeId;
use frieze_base::varint::{put, put_difference, take, take_difference};

/// The largest inode number of each slot that has files, in order. The files of a slot are numbered as they are made,
/// so that what is made later is none of these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NewestFiles(Vec<InodeId>);

impl NewestFiles {
    /// Takes in a file. Files come in order of their numbers.
    pub(super) fn push(&mut self, inode: InodeId) {
        match self.0.last_mut().filter(|last| last.slot() == inode.slot()) {
            Some(last) => *last = inode,
            None => self.0.push(inode),
        }
    }

    /// Takes in all of `other`.
    pub(crate) fn merge(&mut self, other: &NewestFiles) {
        let mut all: Vec<InodeId> = self.0.iter().chain(&other.0).copied().collect();
        all.sort_unstable();
        self.0.clear();
        all.into_iter().for_each(|inode| self.push(inode));
    }

    /// False: the file is none of them.
    pub(crate) fn may_have(&self, inode: InodeId) -> bool {
        // The newest of the slot is the first one that is as large, unless the file is newer.
        let at = self.0.partition_point(|newest| *newest < inode);
        self.0.get(at).is_some_and(|newest| newest.slot() == inode.slot())
    }

    /// Memory held, in bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        self.0.capacity() * size_of::<InodeId>()
    }

    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        put(bytes, self.0.len() as u64);
        let mut before = 0;
        for newest in &self.0 {
            put_difference(bytes, before, newest.0);
            before = newest.0;
        }
    }

    /// Reads what [`NewestFiles::encode`] wrote; `None` if it is something else.
    pub(super) fn decode(rest: &mut &[u8]) -> Option<NewestFiles> {
        let mut all = NewestFiles::default();
        let mut before = 0;
        for _ in 0..take(rest)? {
            let newest = InodeId(take_difference(rest, before)?);
            if all.0.last().is_some_and(|last| last.slot() >= newest.slot()) {
                return None;
            }
            before = newest.0;
            all.0.push(newest);
        }
        all.0.shrink_to_fit();
        Some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_made_later_is_none_of_them_whatever_its_slot() {
        let mut one = NewestFiles::default();
        [(0, 5), (0, 9), (7, 2), (4095, 1)].into_iter().for_each(|(slot, count)| one.push(InodeId::file(slot, count)));
        let check = |files: &NewestFiles, slot, count, may| {
            assert_eq!(files.may_have(InodeId::file(slot, count)), may, "{count} of {slot}");
        };
        for (slot, count, may) in
            [(0, 1, true), (0, 9, true), (0, 10, false), (1, 1, false), (7, 2, true), (7, 3, false), (4095, 2, false)]
        {
            check(&one, slot, count, may);
        }
        let mut other = NewestFiles::default();
        [(0, 3), (1, 4), (7, 30)].into_iter().for_each(|(slot, count)| other.push(InodeId::file(slot, count)));
        one.merge(&other);
        for (slot, count, may) in [(0, 9, true), (0, 10, false), (1, 4, true), (1, 5, false), (7, 30, true)] {
            check(&one, slot, count, may);
        }
        let mut bytes = Vec::new();
        one.encode(&mut bytes);
        assert_eq!(NewestFiles::decode(&mut &*bytes), Some(one));
        assert_eq!(NewestFiles::decode(&mut &bytes[..bytes.len() - 1]), None);
    }
}
