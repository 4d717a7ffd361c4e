//! The present as it was before it was packed: the other side of each comparison.

use std::collections::BTreeMap;
use std::ops::Bound;

use frieze_base::InodeId;
use frieze_namespace::{Inode, NameEntry};

const PAGE_INODES: u64 = 64;
const SHORT_BYTES_MAX: usize = 22;

/// Inodes of 104 bytes in pages of 64, by number.
#[derive(Default)]
pub(crate) struct UnpackedInodes {
    pages: Vec<Option<Box<[Option<Inode>; PAGE_INODES as usize]>>>,
}

/// A sorted map for a directory.
#[derive(Default)]
pub(crate) struct UnpackedNames {
    names: BTreeMap<StoredName, NameEntry>,
}

/// A name of 22 bytes or fewer without an allocation.
#[derive(PartialEq, Eq)]
enum StoredName {
    Short { len: u8, bytes: [u8; SHORT_BYTES_MAX] },
    Long(Box<[u8]>),
}

impl UnpackedInodes {
    pub(crate) fn get(&self, id: InodeId) -> Option<&Inode> {
        let page = self.pages.get((id.0 / PAGE_INODES) as usize)?.as_ref()?;
        page[(id.0 % PAGE_INODES) as usize].as_ref()
    }

    pub(crate) fn insert(&mut self, id: InodeId, inode: Inode) {
        let index = (id.0 / PAGE_INODES) as usize;
        if index >= self.pages.len() {
            self.pages.resize_with(index + 1, || None);
        }
        let page = self.pages[index].get_or_insert_with(|| Box::new(std::array::from_fn(|_| None)));
        page[(id.0 % PAGE_INODES) as usize] = Some(inode);
    }
}

impl UnpackedNames {
    pub(crate) fn get(&self, name: &[u8]) -> Option<NameEntry> {
        self.names.get(name).copied()
    }

    pub(crate) fn set(&mut self, name: &[u8], entry: NameEntry) {
        self.names.insert(StoredName::new(name), entry);
    }

    pub(crate) fn page(&self, after: &[u8], max: usize, visit: &mut dyn FnMut(&[u8], NameEntry)) {
        let rest = self.names.range::<[u8], _>((Bound::Excluded(after), Bound::Unbounded));
        rest.take(max).for_each(|(name, entry)| visit(name.bytes(), *entry));
    }
}

impl StoredName {
    fn new(name: &[u8]) -> StoredName {
        if name.len() > SHORT_BYTES_MAX {
            return StoredName::Long(name.into());
        }
        let mut bytes = [0; SHORT_BYTES_MAX];
        bytes[..name.len()].copy_from_slice(name);
        StoredName::Short { len: name.len() as u8, bytes }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            StoredName::Short { len, bytes } => &bytes[..usize::from(*len)],
            StoredName::Long(bytes) => bytes,
        }
    }
}

impl std::borrow::Borrow<[u8]> for StoredName {
    fn borrow(&self) -> &[u8] {
        self.bytes()
    }
}

impl PartialOrd for StoredName {
    fn partial_cmp(&self, other: &StoredName) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for StoredName {
    fn cmp(&self, other: &StoredName) -> std::cmp::Ordering {
        self.bytes().cmp(other.bytes())
    }
}
