//! Numbers of inodes: which one the next file of a slot gets, and the next directory.
//!
//! Guarantees: a number is given once. All servers that have executed the same give the same one.

use frieze_base::{InodeId, varint};

use crate::error::Error;

/// What was given so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InodeNumbers {
    /// Counts up to it are left out, of every slot and of directories: clients may know them.
    floor: u64,
    /// Last count of a directory.
    directories: u64,
    /// Last count of a file, by slot.
    files: Box<[u64]>,
}

impl Default for InodeNumbers {
    fn default() -> InodeNumbers {
        InodeNumbers { floor: 0, directories: 0, files: vec![0; InodeId::SLOTS.into()].into() }
    }
}

impl InodeNumbers {
    /// The number that the next file but `ahead` in the slot of this directory gets.
    ///
    /// # Errors
    /// `NumbersUsedUp` if none is left: the file can be made in another directory.
    pub(crate) fn next_file(&self, directory: InodeId, ahead: u64) -> Result<InodeId, Error> {
        let slot = directory.slot();
        let count = self.files[usize::from(slot)].max(self.floor).saturating_add(1 + ahead);
        if count > InodeId::COUNT_MAX {
            return Err(Error::NumbersUsedUp { slot: Some(slot) });
        }
        Ok(InodeId::file(slot, count))
    }

    /// The number that the next directory but `ahead` gets.
    ///
    /// # Errors
    /// `NumbersUsedUp` if none is left.
    pub(crate) fn next_directory(&self, ahead: u64) -> Result<InodeId, Error> {
        let count = self.directories.max(self.floor).saturating_add(1 + ahead);
        if count > InodeId::COUNT_MAX {
            return Err(Error::NumbersUsedUp { slot: None });
        }
        Ok(InodeId::directory(count))
    }

    /// Notes that an inode has this number.
    pub(crate) fn note(&mut self, id: InodeId) {
        let last = match id.is_directory() {
            true => &mut self.directories,
            false => &mut self.files[usize::from(id.slot())],
        };
        *last = (*last).max(id.count());
    }

    /// True if an inode may have this number, or had it.
    pub(crate) fn was_given(&self, id: InodeId) -> bool {
        let last = match id.is_directory() {
            true => self.directories,
            false => self.files[usize::from(id.slot())],
        };
        id.is_valid() && id.count() <= last.max(self.floor)
    }

    /// Leaves out all counts up to `floor`.
    pub fn skip(&mut self, floor: u64) {
        // Beyond the last count there is nothing to leave out.
        self.floor = self.floor.max(floor.min(InodeId::COUNT_MAX));
    }

    /// Counts up to it are left out.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// The largest count given or left out.
    pub fn newest(&self) -> u64 {
        self.files.iter().copied().fold(self.floor.max(self.directories), u64::max)
    }

    /// How many numbers were given or left out: a digest.
    pub fn given(&self) -> u64 {
        self.files.iter().fold(self.directories.wrapping_add(self.floor), |sum, count| sum.wrapping_add(*count))
    }

    /// Appends them: floor, directories, then of each slot with files its distance to the one before and its count.
    pub(crate) fn put(&self, into: &mut Vec<u8>) {
        varint::put(into, self.floor);
        varint::put(into, self.directories);
        let mut before = 0;
        for (slot, count) in (1u64..).zip(&self.files).filter(|(_, count)| **count > 0) {
            varint::put(into, slot - before);
            varint::put(into, *count);
            before = slot;
        }
    }

    /// Reads what [`InodeNumbers::put`] wrote; `None` if it is something else.
    pub(crate) fn read(mut bytes: &[u8]) -> Option<InodeNumbers> {
        let mut numbers = InodeNumbers::default();
        let rest = &mut bytes;
        let is_count = |count: &u64| *count <= InodeId::COUNT_MAX;
        numbers.floor = varint::take(rest).filter(is_count)?;
        numbers.directories = varint::take(rest).filter(is_count)?;
        let mut slot = 0usize;
        while !rest.is_empty() {
            slot = slot.checked_add(usize::try_from(varint::take(rest).filter(|step| *step > 0)?).ok()?)?;
            *numbers.files.get_mut(slot - 1)? = varint::take(rest).filter(is_count)?;
        }
        Some(numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_count_by_slot_and_directories_together() {
        let mut numbers = InodeNumbers::default();
        let (one, other) = (InodeId::directory(1), InodeId::directory(2));
        assert_ne!(one.slot(), other.slot());
        for (directory, count) in [(one, 1), (one, 2), (other, 1), (InodeId::ROOT, 1)] {
            let id = numbers.next_file(directory, 0).unwrap();
            assert_eq!(id, InodeId::file(directory.slot(), count));
            assert!(!numbers.was_given(id));
            numbers.note(id);
            assert!(numbers.was_given(id));
        }
        assert_eq!(numbers.next_directory(0).unwrap(), one);
        assert_eq!(numbers.next_directory(1).unwrap(), other);
        assert_eq!(numbers.next_file(one, 2).unwrap(), InodeId::file(one.slot(), 5));
    }

    #[test]
    fn what_was_left_out_is_given_by_no_slot() {
        let mut numbers = InodeNumbers::default();
        numbers.note(InodeId::file(7, 3));
        numbers.skip(10);
        let slots = (0..InodeId::SLOTS).map(|slot| numbers.next_file(InodeId::file(slot, 1), 0).unwrap());
        assert!(slots.zip(0..).all(|(id, slot)| id == InodeId::file(slot, 11)));
        assert_eq!(numbers.next_directory(0).unwrap(), InodeId::directory(11));
        numbers.skip(5);
        assert_eq!(numbers.newest(), 10, "nothing comes back");
        numbers.skip(u64::MAX);
        assert_eq!(numbers.next_directory(0), Err(Error::NumbersUsedUp { slot: None }));
        let mut bytes = Vec::new();
        numbers.put(&mut bytes);
        assert_eq!(InodeNumbers::read(&bytes), Some(numbers));
    }

    #[test]
    fn a_slot_whose_numbers_are_used_up_says_so_and_others_go_on() {
        let mut numbers = InodeNumbers::default();
        let full = InodeId::directory(1);
        numbers.note(InodeId::file(full.slot(), InodeId::COUNT_MAX - 1));
        let last = numbers.next_file(full, 0).unwrap();
        assert!(numbers.next_file(full, 1).is_err());
        numbers.note(last);
        assert_eq!(numbers.next_file(full, 0), Err(Error::NumbersUsedUp { slot: Some(full.slot()) }));
        assert!(numbers.next_file(InodeId::directory(2), 0).is_ok() && numbers.next_directory(0).is_ok());
        numbers.note(InodeId::directory(InodeId::COUNT_MAX));
        assert_eq!(numbers.next_directory(0), Err(Error::NumbersUsedUp { slot: None }));
    }

    #[test]
    fn they_are_read_as_they_were_written() {
        let mut numbers = InodeNumbers::default();
        numbers.skip(9);
        for id in [InodeId::file(0, 1), InodeId::file(4095, InodeId::COUNT_MAX), InodeId::directory(77)] {
            numbers.note(id);
        }
        let mut bytes = Vec::new();
        numbers.put(&mut bytes);
        assert_eq!(InodeNumbers::read(&bytes), Some(numbers));
        assert_eq!(InodeNumbers::read(&bytes[..bytes.len() - 1]), None);
        bytes.extend([1, 1]);
        assert_eq!(InodeNumbers::read(&bytes), None, "a slot that there is not");
    }
}
