//! The seam between frieze and storage: a flat set of named files of fixed length.
//!
//! Guarantees, by every implementation: a file's length is what it was created with; bytes never written read as zero;
//! a write that returned is seen by every later read, also after the process dies; it survives a loss of power only
//! once a later [`DiskFile::sync`] has returned. Names (create, rename, remove) survive a loss of power only once a
//! later [`Disk::sync_dir`] has returned. A write may be torn by a loss of power, at sectors of 512 bytes.
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
    /// `InputOutput` and what else the system says.
    fn list(&self) -> Result<Vec<String>>;

    /// Makes a file of `len` bytes that all read as zero, with its space reserved: writes into it cannot run out of it.
    /// Nothing is left of it if this fails.
    ///
    /// # Errors
    /// `Exists`; `NoSpace`: free space, or reuse a file by renaming it.
    fn create(&self, name: &str, len: u64) -> Result<Arc<dyn DiskFile>>;

    /// Opens a file that is there.
    ///
    /// # Errors
    /// `NotFound`.
    fn open(&self, name: &str) -> Result<Arc<dyn DiskFile>>;

    /// Gives a file another name; one that has it already is replaced. Open handles stay with their file.
    ///
    /// # Errors
    /// `NotFound`.
    fn rename(&self, from: &str, to: &str) -> Result<()>;

    /// Says that [`Disk::rename`] will soon give a file this name, so that it need not look for it then. A directory
    /// whose blocks are on their way to the medium can't be looked into: behind much data that takes many milliseconds.
    fn expect_name(&self, _name: &str) {}

    /// Removes a file. Its space is free when the last handle is dropped. On flash this can take milliseconds: rename
    /// and reuse files where they come and go.
    ///
    /// # Errors
    /// `NotFound`.
    fn remove(&self, name: &str) -> Result<()>;

    /// Makes every name as it is now durable.
    ///
    /// # Errors
    /// `InputOutput`.
    fn sync_dir(&self) -> Result<()>;

    /// How much room there is.
    ///
    /// # Errors
    /// `InputOutput`.
    fn space(&self) -> Result<Space>;
}

/// An open file of a device. Offsets and lengths are bytes. Safe to use from several threads at once; what two writes
/// of the same bytes at the same time leave is either.
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

    /// Writes `parts` one after the other from `offset`. All of it is written when this returns `Ok`; any part of it
    /// may be when it returns an error.
    ///
    /// # Errors
    /// `InvalidArgument` beyond the file's length (nothing was written); `NoSpace`, `InputOutput`.
    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()>;

    /// Says that small writes will come one behind the other from the start of this range on, and that what lies in it
    /// is of no use to anybody: until it is written it may be as it is, or zeros.
    fn expect_writes(&self, _free: Range<u64>) {}

    /// Reads from `offset` until `into` is full or the file ends, and returns how many bytes were read.
    ///
    /// # Errors
    /// `InputOutput`.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize>;

    /// As [`DiskFile::read_at`] of `first` and then, behind it, of `second`: one question for both, where the system
    /// has such.
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

    /// As [`DiskFile::read_at`], but what lies on the medium, not a copy of it in memory, and without pushing other
    /// copies out of memory. What was written before is seen. Cheapest where offset and length are multiples of
    /// [`PAGE_BYTES`].
    ///
    /// # Errors
    /// `InputOutput`.
    fn read_medium_at(&self, offset: u64, into: &mut [u8]) -> Result<usize>;

    /// The system's own handle of it, by which it hands bytes on that nobody here looks at; `None` if there is none.
    /// Offsets are those of the file.
    fn handle(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Begins to read these bytes into memory and does not wait for them: whoever asks for them next waits less. As far
    /// as the system does such a thing; the bytes themselves are the same either way.
    ///
    /// # Errors
    /// `InputOutput`. Nothing is lost: a read says what is wrong.
    fn prefetch(&self, offset: u64, len: u64) -> Result<()>;

    /// Begins to bring the whole pages within `offset..offset + len` to the medium and does not wait for them: a later
    /// [`DiskFile::sync`] waits less. Nothing is promised by it, and no trouble is lost: the sync tells it.
    fn begin_sync(&self, _offset: u64, _len: u64) {}

    /// Gives back the memory of copies of the whole pages within `offset..offset + len`, as far as they are on the
    /// medium and nobody reads them just now. A later read brings them back.
    ///
    /// # Errors
    /// `Unsupported` where the system keeps copies as it likes; `InputOutput`.
    fn let_go(&self, offset: u64, len: u64) -> Result<()>;

    /// From now on a read brings just the pages into memory that it asks for, none that may be asked for next.
    ///
    /// # Errors
    /// As [`DiskFile::let_go`].
    fn expect_random_reads(&self) -> Result<()>;

    /// Bytes of copies in memory, in whole pages; `None` where the system does not tell.
    ///
    /// # Errors
    /// `InputOutput`.
    fn cached_bytes(&self) -> Result<Option<u64>>;

    /// Gives back the space of the whole pages of [`PAGE_BYTES`] within `offset..offset + len`, which read as zero from
    /// then on; the rest of the range stays. Returns how many bytes the device has more than before: none for what was
    /// given back already. A loss of power before the next [`DiskFile::sync`] may bring old bytes back.
    ///
    /// # Errors
    /// `Unsupported` where files cannot have holes: nothing was changed. `InvalidArgument` beyond the file's length;
    /// `InputOutput`.
    fn punch(&self, offset: u64, len: u64) -> Result<u64>;

    /// Makes everything written before durable. After it has failed once on a file it fails for ever: the bytes may be
    /// gone, and a later success would hide that.
    ///
    /// # Errors
    /// `InputOutput`.
    fn sync(&self) -> Result<()>;
}

/// What space is given back in. Every file system has pages of this size, or parts of them.
pub const PAGE_BYTES: u64 = 4096;

/// The whole pages within `offset..offset + len`: first byte and end.
pub(crate) fn pages_within(offset: u64, len: u64) -> (u64, u64) {
    let (start, end) = (offset.next_multiple_of(PAGE_BYTES), (offset + len) / PAGE_BYTES * PAGE_BYTES);
    (start, end.max(start))
}

/// Room on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// All of it, in bytes.
    pub capacity_bytes: u64,
    /// What new files may take, in bytes.
    pub free_bytes: u64,
}

/// Checks that `name` is one plain component, and none that a device keeps for itself.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let plain = !name.is_empty() && name.len() <= 200 && !name.starts_with('.') && !name.contains(['/', '\0']);
    if plain && name != LOCK_NAME { Ok(()) } else { Err(crate::Error::BadName { name: name.to_owned() }) }
}

/// The file that keeps a directory for one server.
pub(crate) const LOCK_NAME: &str = "lock";
