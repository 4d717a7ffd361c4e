//! Memory that another machine may reach: whole pages of its own, whose lifetime the code controls.

#![expect(unsafe_code, reason = "memory that devices write has no safe type; this file is the one that maps it")]

use std::ops::Range;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags};

/// Anonymous, page-aligned memory of a fixed size, filled with zeros.
///
/// A slice of it is made only by its owner, for a range in which no transfer is under way.
#[derive(Debug)]
pub(crate) struct MappedPages {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it is memory and nothing else; its owner decides which range may be touched.
unsafe impl Send for MappedPages {}
// SAFETY: as above: a shared reference gives out addresses only.
unsafe impl Sync for MappedPages {}

impl MappedPages {
    /// Maps `len` bytes.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn map(len: usize) -> Result<MappedPages, rustix::io::Errno> {
        let flags = MapFlags::PRIVATE;
        // SAFETY: a new mapping at a place that the system chooses overlaps nothing.
        let start = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags)
        }?;
        let start = NonNull::new(start.cast()).expect("a mapping is not at address 0");
        Ok(MappedPages { start, len })
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Address of its first byte.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// The bytes of a range.
    ///
    /// # Safety
    /// Nothing writes into the range while the slice lives.
    ///
    /// # Panics
    /// If the range is not within it.
    pub(crate) unsafe fn bytes(&self, range: Range<usize>) -> &[u8] {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {} bytes", self.len);
        // SAFETY: within the mapping; the caller excludes writers.
        unsafe { std::slice::from_raw_parts(self.start().add(range.start), range.len()) }
    }

    /// The bytes of a range, to be written.
    ///
    /// # Safety
    /// Nothing else reads or writes in the range while the slice lives.
    ///
    /// # Panics
    /// If the range is not within it.
    #[expect(clippy::mut_from_ref, reason = "the caller guarantees that it is the only one")]
    pub(crate) unsafe fn bytes_mut(&self, range: Range<usize>) -> &mut [u8] {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {} bytes", self.len);
        // SAFETY: within the mapping; the caller excludes everybody else.
        unsafe { std::slice::from_raw_parts_mut(self.start().add(range.start), range.len()) }
    }
}

impl Drop for MappedPages {
    fn drop(&mut self) {
        // SAFETY: the mapping of this value, which nothing refers to any more. The call cannot fail for it.
        let unmapped = unsafe { rustix::mm::munmap(self.start().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "a mapping of our own");
    }
}
