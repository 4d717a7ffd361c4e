//! The page cache: which parts of a file are in it, and when the kernel writes them to the medium.

#![expect(
    unsafe_code,
    reason = "cachestat and sync_file_range have no wrapper in rustix or nix; this file is all of it"
)]

use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Advice, Mode, OFlags};
use rustix::io::Errno;

use crate::device::PAGE_BYTES;
use crate::error::{DiskOp, Result};
use crate::syscalls::{io, retry};

/// The same on every architecture with this call; Linux 6.5 is the first.
const CACHESTAT: libc::c_long = 451;

#[repr(C)]
struct CachestatRange {
    offset: u64,
    /// 0: to the end.
    len: u64,
}

#[repr(C)]
#[derive(Default)]
struct CachestatCounts {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// The kernel does not know this call: it is not called again.
static UNKNOWN: AtomicBool = AtomicBool::new(false);

/// Bytes of a file that are in the page cache; `None` if the kernel cannot report it.
pub(crate) fn cached_bytes(fd: BorrowedFd<'_>) -> std::result::Result<Option<u64>, Errno> {
    Ok(counts(fd)?.map(|counts| counts.cached * page_bytes()))
}

fn counts(fd: BorrowedFd<'_>) -> std::result::Result<Option<CachestatCounts>, Errno> {
    if UNKNOWN.load(Ordering::Relaxed) {
        return Ok(None);
    }
    let range = CachestatRange { offset: 0, len: 0 };
    let mut counts = CachestatCounts::default();
    // SAFETY: both pointers are to live values of the layout that the call defines (`linux/mman.h`), the second one
    // borrowed exclusively; it fills that and keeps neither.
    let answer = unsafe { libc::syscall(CACHESTAT, fd.as_raw_fd(), &raw const range, &raw mut counts, 0u32) };
    if answer == 0 {
        return Ok(Some(counts));
    }
    match std::io::Error::last_os_error().raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error) {
        // A kernel that is too old or behind a filter, or a file system with its own cache.
        Errno::NOSYS | Errno::PERM => {
            UNKNOWN.store(true, Ordering::Relaxed);
            Ok(None)
        }
        Errno::OPNOTSUPP | Errno::INVAL => Ok(None),
        errno => Err(errno),
    }
}

/// Starts writeback of a range of a file, if the kernel can. It does not wait, and it does not consume an error of the
/// file: the `fdatasync` that follows returns it.
pub(crate) fn begin_writeback(fd: BorrowedFd<'_>, offset: u64, len: u64) {
    let (Ok(offset), Ok(len @ 1..)) = (i64::try_from(offset), i64::try_from(len)) else { return };
    #[cfg(target_os = "linux")]
    // SAFETY: it takes no pointer, and the descriptor is borrowed for the call.
    unsafe {
        // A file system that cannot do this ignores it, and the sync writes everything.
        libc::sync_file_range(fd.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE);
    }
}

/// Page size of the kernel, which may differ from that of frieze.
fn page_bytes() -> u64 {
    (rustix::param::page_size() as u64).max(PAGE_BYTES)
}

/// Bytes of all files below a directory that are in the page cache; `None` if the kernel cannot report it. Files that
/// are created or removed meanwhile may count or not.
///
/// # Errors
/// `InputOutput`, `AccessDenied`.
pub fn cached_below(directory: &Path) -> Result<Option<u64>> {
    let mut sum = Some(0);
    each_file_below(directory, &mut |fd, shown| {
        let one = cached_bytes(rustix::fd::AsFd::as_fd(fd)).map_err(io(DiskOp::Read, shown))?;
        sum = sum.zip(one).map(|(sum, one)| sum + one);
        Ok(())
    })?;
    Ok(sum)
}

/// Drops all files below a directory from the page cache, as far as they are on the medium.
///
/// # Errors
/// `Unsupported` if the kernel ignores the advice; `InputOutput`, `AccessDenied`.
pub fn drop_cached_below(directory: &Path) -> Result<()> {
    each_file_below(directory, &mut |fd, shown| {
        retry(|| rustix::fs::fadvise(fd, 0, None, Advice::DontNeed)).map_err(io(DiskOp::Advise, shown))
    })
}

fn each_file_below(directory: &Path, visit: &mut dyn FnMut(&OwnedFd, &str) -> Result<()>) -> Result<()> {
    let failed = |shown: String| {
        move |error: std::io::Error| io(DiskOp::List, &shown)(Errno::from_io_error(&error).unwrap_or(Errno::IO))
    };
    let shown = directory.display().to_string();
    for entry in fs::read_dir(directory).map_err(failed(shown.clone()))? {
        let entry = entry.map_err(failed(shown.clone()))?;
        let path = entry.path();
        let shown = path.display().to_string();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => match each_file_below(&path, visit) {
                Err(error) if error.kind() == frieze_base::ErrorKind::NotFound => {}
                visited => visited?,
            },
            Ok(kind) if kind.is_file() => {
                let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
                match retry(|| rustix::fs::open(&path, flags, Mode::empty())) {
                    Ok(fd) => visit(&fd, &shown)?,
                    // Removed since it was listed.
                    Err(Errno::NOENT) => {}
                    Err(errno) => return Err(io(DiskOp::Open, &shown)(errno)),
                }
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_bytes_are_cached_until_they_are_dropped() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("below")).unwrap();
        fs::write(dir.path().join("a"), vec![1u8; 1 << 20]).unwrap();
        fs::write(dir.path().join("below/b"), vec![2u8; 1 << 20]).unwrap();
        let Some(before) = cached_below(dir.path()).unwrap() else { return };
        assert!(before >= 2 << 20, "{before}");
        for name in ["a", "below/b"] {
            fs::File::open(dir.path().join(name)).unwrap().sync_all().unwrap();
        }
        drop_cached_below(dir.path()).unwrap();
        // A file system in memory keeps all of it.
        let after = cached_below(dir.path()).unwrap().unwrap();
        assert!(after == 0 || after >= 2 << 20, "{after}");
        assert!(cached_below(&dir.path().join("nowhere")).is_err());
    }

    #[test]
    fn writeback_that_was_started_reaches_the_medium_without_a_sync() {
        let dir = tempfile::tempdir().unwrap();
        let file = fs::File::create(dir.path().join("a")).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &vec![1u8; 4 << 20], 0).unwrap();
        let fd = rustix::fd::AsFd::as_fd(&file);
        let dirty = || counts(fd).unwrap().map(|counts| counts.dirty);
        let Some(before @ 1..) = dirty() else { return }; // an old kernel, or files that live in memory
        begin_writeback(fd, u64::MAX, 1);
        begin_writeback(fd, 0, 0);
        begin_writeback(fd, 0, 4 << 20);
        // Waits for writeback in progress, and starts none.
        // SAFETY: as above.
        let waited = unsafe { libc::sync_file_range(fd.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WAIT_BEFORE) };
        assert_eq!(waited, 0);
        assert!(dirty().unwrap() < before, "nothing was begun");
    }
}
