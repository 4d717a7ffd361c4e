//! System calls that several parts of this crate use, with retries after signals.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::OnceLock;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::device::PAGE_BYTES;
use crate::error::{DiskOp, Error};

/// Reads until `into` is full, or the file ends: at 0 bytes, or at a part of a sector.
pub(crate) fn read_all(
    fd: &OwnedFd,
    offset: u64,
    into: &mut [u8],
    sector_bytes: usize,
) -> std::result::Result<usize, Errno> {
    let mut done = 0;
    while done < into.len() {
        match rustix::io::pread(fd, &mut into[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        if !done.is_multiple_of(sector_bytes) {
            break;
        }
    }
    Ok(done)
}

/// As [`read_all`], past the page cache if the file system supports it; `direct` keeps the file opened for it.
pub(crate) fn read_direct(
    fd: &OwnedFd,
    direct: &OnceLock<Option<OwnedFd>>,
    offset: u64,
    into: &mut [u8],
) -> std::result::Result<usize, Errno> {
    let Some(direct) = direct.get_or_init(|| open_direct(fd).ok()) else {
        return read_all(fd, offset, into, 1);
    };
    // The kernel reads only whole pages into aligned memory.
    let start = offset / PAGE_BYTES * PAGE_BYTES;
    let skip = (offset - start) as usize;
    let len = (skip + into.len()).next_multiple_of(PAGE_BYTES as usize);
    let mut pages = vec![0u8; len + PAGE_BYTES as usize];
    let aligned = pages.as_ptr().align_offset(PAGE_BYTES as usize);
    match read_all(direct, start, &mut pages[aligned..aligned + len], SECTOR_BYTES) {
        Ok(read) => {
            let found = read.saturating_sub(skip).min(into.len());
            into[..found].copy_from_slice(&pages[aligned + skip..aligned + skip + found]);
            Ok(found)
        }
        Err(Errno::INVAL) => read_all(fd, offset, into, 1),
        Err(errno) => Err(errno),
    }
}

/// Opens the same file again, past the page cache.
fn open_direct(fd: &OwnedFd) -> std::result::Result<OwnedFd, Errno> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    retry(|| rustix::fs::openat(CWD, &path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECT, Mode::empty()))
}

/// Opens a directory for `*at` calls.
pub(crate) fn open_directory(path: &Path) -> std::result::Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    retry(|| rustix::fs::openat(CWD, path, flags, Mode::empty()))
}

/// Repeats a system call that a signal interrupted.
pub(crate) fn retry<T>(mut call: impl FnMut() -> std::result::Result<T, Errno>) -> std::result::Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

/// Makes an error of the system one of operation `op` on the file `name`.
pub(crate) fn io(op: DiskOp, name: &str) -> impl Fn(Errno) -> Error {
    move |errno| Error::Io { op, name: name.to_owned(), errno }
}

/// Every direct read ends at a multiple of it, except at the end of the file.
const SECTOR_BYTES: usize = 512;
