//! The lock of a directory: one process at a time uses it, and the lock file has its process id.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::{io, read_all, retry};
use crate::device::LOCK_NAME;
use crate::error::{Error, Op, Result};

/// A directory locked by this process, until it is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct Hold {
    lock: OwnedFd,
}

impl Hold {
    /// Locks a directory for a server, and writes our process id into the lock file; creates the file if there is none.
    ///
    /// # Errors
    /// `Busy` if another process has it locked, with its process id. Other errors of the system, naming the directory.
    pub(crate) fn take(dir: &OwnedFd, path: &Path) -> Result<Hold> {
        let gone = || io(Op::OpenDisk, &path.display().to_string())(Errno::NOENT);
        let hold = Hold::open(dir, path, OFlags::CREATE | OFlags::RDWR)?.ok_or_else(gone)?;
        // The id only helps a person: a disk too full to hold it must still come up.
        let id = format!("{}\n", rustix::process::getpid().as_raw_nonzero());
        let _ = rustix::fs::ftruncate(&hold.lock, 0).and_then(|()| rustix::io::pwrite(&hold.lock, id.as_bytes(), 0));
        Ok(hold)
    }

    /// Locks a directory for reading it; `None` if it has no lock file: a server creates that before anything else.
    ///
    /// # Errors
    /// As [`Hold::take`].
    pub(crate) fn look(dir: &OwnedFd, path: &Path) -> Result<Option<Hold>> {
        Hold::open(dir, path, OFlags::RDONLY)
    }

    fn open(dir: &OwnedFd, path: &Path, how: OFlags) -> Result<Option<Hold>> {
        let shown = path.display().to_string();
        let flags = how | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let lock = match retry(|| rustix::fs::openat(dir, LOCK_NAME, flags, Mode::from_raw_mode(0o600))) {
            Ok(lock) => lock,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(io(Op::OpenDisk, &shown)(errno)),
        };
        match retry(|| rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)) {
            Ok(()) => Ok(Some(Hold { lock })),
            Err(Errno::WOULDBLOCK) => Err(in_use(&lock, shown)),
            Err(errno) => Err(io(Op::OpenDisk, &shown)(errno)),
        }
    }
}

impl Drop for Hold {
    /// The descriptor's end would not be enough: a process that a thread of ours is starting has a copy of it
    /// until it has become another program (`flock(2)`: the lock belongs to all copies, and an unlock ends it).
    fn drop(&mut self) {
        let _ = retry(|| rustix::fs::flock(&self.lock, FlockOperation::Unlock));
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
    use crate::file_disk::open_directory;

    #[test]
    fn a_hold_ends_with_its_holder_though_a_process_being_started_has_a_copy() {
        let place = tempfile::tempdir().unwrap();
        let dir = open_directory(place.path()).unwrap();
        let hold = Hold::take(&dir, place.path()).unwrap();
        // What `fork` gives a child until `exec` closes it.
        let copy = hold.lock.try_clone().unwrap();
        assert!(Hold::look(&dir, place.path()).is_err(), "it is held");
        drop(hold);
        let next = Hold::take(&dir, place.path()).expect("nobody uses the directory");
        drop(copy);
        assert!(Hold::take(&dir, place.path()).is_err(), "the copy's end takes nothing from the next holder");
        drop(next);
        assert!(Hold::look(&dir, place.path()).unwrap().is_some());
    }
}
