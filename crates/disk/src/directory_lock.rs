//! The lock of a directory: one process at a time uses it, and the lock file has its process id.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::device::LOCK_NAME;
use crate::error::{DiskOp, Error, Result};
use crate::syscalls::{io, read_all, retry};

/// A directory locked by this process, until it is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    fd: OwnedFd,
}

impl DirectoryLock {
    /// Locks a directory for a server, and writes our process id into the lock file; creates the file if there is none.
    ///
    /// # Errors
    /// `Busy` if another process has it locked, with its process id. Other errors of the system, naming the directory.
    pub(crate) fn acquire(dir: &OwnedFd, path: &Path) -> Result<DirectoryLock> {
        let missing = || io(DiskOp::OpenDisk, &path.display().to_string())(Errno::NOENT);
        let lock = DirectoryLock::open(dir, path, OFlags::CREATE | OFlags::RDWR)?.ok_or_else(missing)?;
        // The id only helps a person: a disk too full to hold it must still come up.
        let id = format!("{}\n", rustix::process::getpid().as_raw_nonzero());
        let _ = rustix::fs::ftruncate(&lock.fd, 0).and_then(|()| rustix::io::pwrite(&lock.fd, id.as_bytes(), 0));
        Ok(lock)
    }

    /// Locks a directory for reading it; `None` if it has no lock file: a server creates that before anything else.
    ///
    /// # Errors
    /// As [`DirectoryLock::acquire`].
    pub(crate) fn acquire_existing(dir: &OwnedFd, path: &Path) -> Result<Option<DirectoryLock>> {
        DirectoryLock::open(dir, path, OFlags::RDONLY)
    }

    fn open(dir: &OwnedFd, path: &Path, how: OFlags) -> Result<Option<DirectoryLock>> {
        let shown = path.display().to_string();
        let flags = how | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let lock = match retry(|| rustix::fs::openat(dir, LOCK_NAME, flags, Mode::from_raw_mode(0o600))) {
            Ok(lock) => lock,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(io(DiskOp::OpenDisk, &shown)(errno)),
        };
        match retry(|| rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)) {
            Ok(()) => Ok(Some(DirectoryLock { fd: lock })),
            Err(Errno::WOULDBLOCK) => Err(in_use(&lock, shown)),
            Err(errno) => Err(io(DiskOp::OpenDisk, &shown)(errno)),
        }
    }
}

impl Drop for DirectoryLock {
    /// The descriptor's end would not be enough: a process that a thread of ours is starting has a copy of it
    /// until it has become another program (`flock(2)`: the lock belongs to all copies, and an unlock ends it).
    fn drop(&mut self) {
        let _ = retry(|| rustix::fs::flock(&self.fd, FlockOperation::Unlock));
    }
}

/// Process id of the lock's holder, from the lock file.
fn in_use(lock: &OwnedFd, dir: String) -> Error {
    let mut text = [0u8; 32];
    let len = read_all(lock, 0, &mut text, 1).unwrap_or(0);
    let pid = std::str::from_utf8(&text[..len]).ok().and_then(|text| text.trim().parse().ok());
    Error::InUse { dir, pid }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syscalls::open_directory;

    #[test]
    fn a_lock_ends_when_it_is_dropped_though_a_child_process_has_a_copy() {
        let place = tempfile::tempdir().unwrap();
        let dir = open_directory(place.path()).unwrap();
        let lock = DirectoryLock::acquire(&dir, place.path()).unwrap();
        // What `fork` gives a child until `exec` closes it.
        let copy = lock.fd.try_clone().unwrap();
        assert!(DirectoryLock::acquire_existing(&dir, place.path()).is_err(), "it is locked");
        drop(lock);
        let next = DirectoryLock::acquire(&dir, place.path()).expect("the directory is unlocked");
        drop(copy);
        assert!(DirectoryLock::acquire(&dir, place.path()).is_err(), "the copy's end does not unlock the next lock");
        drop(next);
        assert!(DirectoryLock::acquire_existing(&dir, place.path()).unwrap().is_some());
    }
}
