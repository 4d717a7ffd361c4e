//! A file as words of eight bytes that several threads store at once: a shared mapping.
//!
//! The file is allocated whole before it is mapped, and only on file systems that write in place: elsewhere a full disk
//! would end the process when a page is touched.

#![expect(unsafe_code, reason = "words of a shared mapping have no safe wrapper; this file is all of it")]

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

use rustix::fs::{FallocateFlags, FsWord};
use rustix::mm::{MapFlags, ProtFlags};

use crate::TraceError;

/// `statfs` types of ext4, XFS and tmpfs.
const WRITES_IN_PLACE: [FsWord; 3] = [0xef53, 0x5846_5342, 0x0102_1994];

/// A mapped file.
#[derive(Debug)]
pub(crate) struct MappedWords {
    at: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: the mapping belongs to this value alone, is the same memory from every thread, and is used as atomics only.
unsafe impl Send for MappedWords {}
// SAFETY: as above.
unsafe impl Sync for MappedWords {}

impl MappedWords {
    /// Makes a file of `count` words, all 0, that only its owner may read. A file of this name is replaced.
    ///
    /// # Errors
    /// `FileSystem`; `System`, also if the disk has too little space. Then there is no file.
    pub(crate) fn create(path: &Path, count: usize) -> Result<MappedWords, TraceError> {
        let system = |what, error| TraceError::System { what, path: path.to_owned(), error };
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(system("replace", error)),
            _ => {}
        }
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(path);
        let file = file.map_err(|error| system("create", error))?;
        let mapped = MappedWords::of(&file, path, count);
        if mapped.is_err() {
            // The first fault is the one to report.
            let _removed = std::fs::remove_file(path);
        }
        mapped
    }

    fn of(file: &File, path: &Path, count: usize) -> Result<MappedWords, TraceError> {
        let system =
            |what, error: rustix::io::Errno| TraceError::System { what, path: path.to_owned(), error: error.into() };
        let bytes = count as u64 * 8;
        let kind = rustix::fs::fstatfs(file).map_err(|error| system("examine", error))?.f_type;
        if !WRITES_IN_PLACE.contains(&kind) {
            return Err(TraceError::FileSystem { path: path.to_owned() });
        }
        rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes).map_err(|error| system("allocate", error))?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory that is in use.
        let at = unsafe { rustix::mm::mmap(ptr::null_mut(), bytes as usize, access, MapFlags::SHARED, file, 0) };
        let at = at.map_err(|error| system("map", error))?;
        let at = NonNull::new(at.cast()).ok_or_else(|| system("map", rustix::io::Errno::NOMEM))?;
        Ok(MappedWords { at, count })
    }

    /// The words.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has so many words, is aligned to pages, and lives as long as this value.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.count) }
    }
}

impl Drop for MappedWords {
    fn drop(&mut self) {
        // SAFETY: it is ours, whole, and no reference into it outlives this value.
        let _unmapped = unsafe { rustix::mm::munmap(self.at.as_ptr().cast(), self.count * 8) };
    }
}
