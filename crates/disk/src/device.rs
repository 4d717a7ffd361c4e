//! The seam between frieze and storage: a flat set of named files of fixed length.
//!
//! Guarantees, by every implementation: a file's length is what it was created with; bytes never written read as zero;
//! every later read sees a write that returned, also after the process dies; the write survives a power loss only once
//! a later [`DiskFile::sync`] has returned. Names (create, rename, remove) survive a power loss only once a later
//! [`Disk::sync_dir`] has returned. A power loss may tear a write, at sectors of 512 bytes.
//! Leaves to others: what the bytes mean, checksums, order between files (`node`).

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::Result;

/// A device.
pub trait Disk: Send + Sync {
    /// The names of all files, sorted.
    ///
    /// # Errors
    /// `InputOutput` and other errors of the system.
    fn list(&self) -> Result<Vec<String>>;

    /// Lists the names in the directory that are no files: other directories, links. A device without them has none.
    ///
    /// # Errors
    /// As [`Disk::list`].
    fn list_others(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    /// Creates a file of `len` bytes that all read as zero, with its space reserved: later writes into it cannot fail
    /// for lack of space. If this fails, no file is left.
    ///
    /// # Errors
    /// `Exists`; `NoSpace`: free space, or reuse a file by renaming it.
    fn create(&self, name: &str, len: u64) -> Result<Arc<dyn DiskFile>>;

    /// Opens an existing file.
    ///
    /// # Errors
    /// `NotFound`.
    fn open(&self, name: &str) -> Result<Arc<dyn DiskFile>>;

    /// Renames a file; an existing file of the new name is replaced. Open handles stay with their file.
    ///
    /// # Errors
    /// `NotFound`.
    fn rename(&self, from: &str, to: &str) -> Result<()>;

    /// Announces that [`Disk::rename`] will soon give a file this name, so that the lookup is done in advance. A
    /// directory whose blocks are being written to the medium cannot be read: behind much data that takes many
    /// milliseconds.
    fn hint_name(&self, _name: &str) {}

    /// Removes a file. Its space is free when the last handle is dropped. On flash this can take milliseconds: rename
    /// and reuse files that are created and removed often.
    ///
    /// # Errors
    /// `NotFound`.
    fn remove(&self, name: &str) -> Result<()>;

    /// Makes all current names durable.
    ///
    /// # Errors
    /// `InputOutput`.
    fn sync_dir(&self) -> Result<()>;

    /// Space of the device.
    ///
    /// # Errors
    /// `InputOutput`.
    fn space(&self) -> Result<Space>;
}

/// An open file of a device. Offsets and lengths are bytes. Safe to use from several threads at once; after two
/// concurrent writes of the same bytes either may be there.
pub trait DiskFile: Send + Sync {
    /// The length it was created with.
    ///
    /// # Errors
    /// `InputOutput`.
    fn len(&self) -> Result<u64>;

    /// True if it was created with no bytes.
    ///
    /// # Errors
    /// As [`DiskFile::len`].
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Writes `parts` one after the other from `offset`. All of it is written if this returns `Ok`; any part of it may
    /// be if it returns an error.
    ///
    /// # Errors
    /// `InvalidArgument` beyond the file's length (nothing was written); `NoSpace`, `InputOutput`.
    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()>;

    /// Announces small sequential writes from the start of this range on. The range holds no data in use: until it is
    /// written it may be as it is, or zeros.
    fn hint_writes(&self, _free: Range<u64>) {}

    /// Reads from `offset` until `into` is full or the file ends, and returns how many bytes were read.
    ///
    /// # Errors
    /// `InputOutput`.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize>;

    /// As [`DiskFile::read_at`] of `first` and then, after it, of `second`: one system call for both, if there is one.
    ///
    /// # Errors
    /// `InputOutput`.
    fn read_two_at(&self, offset: u64, first: &mut [u8], second: &mut [u8]) -> Result<usize> {
        let found = self.read_at(offset, first)?;
        if found < first.len() {
            return Ok(found);
        }
        Ok(found + self.read_at(offset + found as u64, second)?)
    }

    /// As [`DiskFile::read_at`], but reads the medium, not a copy in memory, and without evicting other copies. Earlier
    /// writes are visible. Cheapest if offset and length are multiples of [`PAGE_BYTES`].
    ///
    /// # Errors
    /// `InputOutput`.
    fn read_direct_at(&self, offset: u64, into: &mut [u8]) -> Result<usize>;

    /// The file descriptor, for transfers in the kernel that this process does not read; `None` if there is none.
    /// Offsets are those of the file.
    fn handle(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Starts reading these bytes into memory and does not wait for them: the next read of them waits less. A hint, as
    /// far as the system has one; the bytes are the same either way.
    ///
    /// # Errors
    /// `InputOutput`. Nothing is lost: a read returns the error.
    fn prefetch(&self, offset: u64, len: u64) -> Result<()>;

    /// Starts writing the whole pages within `offset..offset + len` to the medium and does not wait: a later
    /// [`DiskFile::sync`] waits less. It guarantees nothing and loses no error: the sync returns it.
    fn begin_sync(&self, _offset: u64, _len: u64) {}

    /// Drops copies of the whole pages within `offset..offset + len` from memory, as far as they are on the medium and
    /// no thread reads them at the moment. A later read fetches them again.
    ///
    /// # Errors
    /// `Unsupported` if the system ignores the advice; `InputOutput`.
    fn advise_dont_need(&self, offset: u64, len: u64) -> Result<()>;

    /// From now on a read fetches only the pages that it needs, without read-ahead.
    ///
    /// # Errors
    /// As [`DiskFile::advise_dont_need`].
    fn hint_random_reads(&self) -> Result<()>;

    /// Bytes of copies in memory, in whole pages; `None` if the system cannot report it.
    ///
    /// # Errors
    /// `InputOutput`.
    fn cached_bytes(&self) -> Result<Option<u64>>;

    /// Frees the space of the whole pages of [`PAGE_BYTES`] within `offset..offset + len`, which read as zero from then
    /// on; the rest of the range stays. Returns how many bytes the device has gained: none for pages that were free
    /// already. A power loss before the next [`DiskFile::sync`] may restore old bytes.
    ///
    /// # Errors
    /// `Unsupported` if files cannot have holes: nothing was changed. `InvalidArgument` beyond the file's length;
    /// `InputOutput`.
    fn punch(&self, offset: u64, len: u64) -> Result<u64>;

    /// Makes all earlier writes durable. After one failure on a file it fails for ever: the bytes may be lost, and a
    /// later success would hide that.
    ///
    /// # Errors
    /// `InputOutput`.
    fn sync(&self) -> Result<()>;
}

/// Unit in which space is freed. Every file system has pages of this size, or parts of them.
pub const PAGE_BYTES: u64 = 4096;

/// The whole pages within `offset..offset + len`: first byte and end.
pub(crate) fn pages_within(offset: u64, len: u64) -> (u64, u64) {
    let (start, end) = (offset.next_multiple_of(PAGE_BYTES), (offset + len) / PAGE_BYTES * PAGE_BYTES);
    (start, end.max(start))
}

/// Space on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Total, in bytes.
    pub capacity_bytes: u64,
    /// Available to new files, in bytes.
    pub free_bytes: u64,
}

/// Checks that `name` is one plain component, and no name that a device reserves.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let plain = !name.is_empty() && name.len() <= 200 && !name.starts_with('.') && !name.contains(['/', '\0']);
    if plain && name != LOCK_NAME { Ok(()) } else { Err(crate::Error::BadName { name: name.to_owned() }) }
}

/// The file whose lock reserves a directory for one server.
pub(crate) const LOCK_NAME: &str = "lock";
