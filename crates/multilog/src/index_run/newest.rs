//! Which files an index run can have: those whose numbers are at most the newest of their slots.

use std::collections::BTreeMap;

use frieze_base::InodeId;
use frieze_base::varint::{put, take};

/// The largest inode number of each slot that has files. The files of a slot are numbered as they are made, so that
/// what is made later is none of these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NewestFiles(BTreeMap<u16, InodeId>);

impl NewestFiles {
    /// Takes in a file.
    pub(super) fn add(&mut self, inode: InodeId) {
        let newest = self.0.entry(inode.slot()).or_default();
        *newest = inode.max(*newest);
    }

    /// Takes in all of `other`.
    pub(crate) fn merge(&mut self, other: &NewestFiles) {
        other.0.values().for_each(|inode| self.add(*inode));
    }

    /// False: the file is none of them.
    pub(crate) fn may_have(&self, inode: InodeId) -> bool {
        self.0.get(&inode.slot()).is_some_and(|newest| inode <= *newest)
    }

    /// Memory held, in bytes: about so much, with a node of the tree two thirds full.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.0.len() * size_of::<(u16, InodeId)>() * 3 / 2
    }

    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        put(bytes, self.0.len() as u64);
        self.0.values().for_each(|newest| put(bytes, newest.0));
    }

    /// Reads what [`NewestFiles::encode`] wrote; `None` if it is something else.
    pub(crate) fn decode(rest: &mut &[u8]) -> Option<NewestFiles> {
        let mut all = NewestFiles::default();
        let count = take(rest)?;
        for _ in 0..count {
            let newest = InodeId(take(rest)?);
            if all.0.last_key_value().is_some_and(|(slot, _)| *slot >= newest.slot()) {
                return None;
            }
            all.add(newest);
        }
        Some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_made_later_is_none_of_them_whatever_its_slot() {
        let mut one = NewestFiles::default();
        [(0, 5), (0, 9), (7, 2), (4095, 1)].into_iter().for_each(|(slot, count)| one.add(InodeId::file(slot, count)));
        let check = |files: &NewestFiles, slot, count, may| {
            assert_eq!(files.may_have(InodeId::file(slot, count)), may, "{count} of {slot}");
        };
        for (slot, count, may) in
            [(0, 1, true), (0, 9, true), (0, 10, false), (1, 1, false), (7, 2, true), (7, 3, false), (4095, 2, false)]
        {
            check(&one, slot, count, may);
        }
        let mut other = NewestFiles::default();
        [(0, 3), (1, 4), (7, 30)].into_iter().for_each(|(slot, count)| other.add(InodeId::file(slot, count)));
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
