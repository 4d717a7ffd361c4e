//! Locks of one machine: which of them end when.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use frieze_testkit::wait::eventually;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use nix::sys::signal::Signal;

use crate::mount_server;
use crate::support::Mount;

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

fn range(kind: libc::c_int, start: i64, len: i64) -> libc::flock {
    libc::flock { l_type: kind as i16, l_whence: libc::SEEK_SET as i16, l_start: start, l_len: len, l_pid: 0 }
}

/// A mount whose process is stopped; it goes on when this is dropped, before files of it are closed, which would wait
/// for it.
struct Stopped<'a>(&'a Mount);

impl Stopped<'_> {
    fn new(mount: &Mount) -> Stopped<'_> {
        mount.signal(Signal::SIGSTOP);
        Stopped(mount)
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.signal(Signal::SIGCONT);
    }
}

/// Locks bytes for the open file description itself.
fn lock(file: &File, start: i64, len: i64) -> Result<(), Errno> {
    fcntl(file, FcntlArg::F_OFD_SETLK(&range(libc::F_WRLCK, start, len))).map(drop)
}

#[test]
fn a_lock_of_an_open_file_ends_with_its_last_descriptor_and_with_no_other() {
    let Some(mounted) = mount_server() else { return };
    let path = mounted.path("f");
    let (first, other) = (mounted.file("f"), open(&path));
    lock(&first, 0, 10).unwrap();
    lock(&first, 20, 10).unwrap();
    // Part of it is given up, so what is left of it is two ranges.
    fcntl(&first, FcntlArg::F_OFD_SETLK(&range(libc::F_UNLCK, 4, 2))).unwrap();
    lock(&other, 4, 2).unwrap();
    assert_eq!(lock(&other, 0, 4), Err(Errno::EAGAIN));
    // Another descriptor of the file, and one of two of the same description.
    drop(open(&path));
    let second = first.try_clone().unwrap();
    drop(first);
    for (start, len) in [(0, 4), (6, 4), (20, 10)] {
        assert_eq!(lock(&other, start, len), Err(Errno::EAGAIN), "{start}");
    }
    drop(second);
    // The kernel tells the mount after close(2) has returned.
    eventually("the locks of a closed description end", || lock(&other, 0, 100).ok());
}

#[test]
fn a_lock_of_a_process_outlives_another_open_file_that_it_closes_late() {
    let Some(mounted) = mount_server() else { return };
    let path = mounted.path("f");
    let (first, other) = (mounted.file("f"), open(&path));
    let of_process = |file: &File, kind| fcntl(file, FcntlArg::F_SETLK(&range(kind, 0, 10))).map(drop);
    // Each round locks through a new open file while the last close of the one before is on its way.
    for _ in 0..50 {
        let earlier = open(&path);
        of_process(&earlier, libc::F_WRLCK).unwrap();
        drop(earlier);
        of_process(&first, libc::F_WRLCK).unwrap();
        assert_eq!(lock(&other, 0, 1), Err(Errno::EAGAIN));
    }
    of_process(&first, libc::F_UNLCK).unwrap();
    lock(&other, 0, 1).unwrap();
}

#[test]
fn a_mount_that_hangs_loses_its_locks_with_its_lease_and_writes_no_more_under_them() {
    let Some(mounted) = mount_server() else { return };
    let second = Mount::at(&mounted.server, "second").unwrap();
    let (first, theirs, kept) = (mounted.file("f"), open(&second.path("f")), mounted.file("g"));
    first.write_all_at(b"before", 0).unwrap();
    lock(&first, 0, 10).unwrap();
    lock(&kept, 0, 10).unwrap();
    let stopped = Stopped::new(&mounted.mount);
    eventually("the lock of a mount that hangs", || lock(&theirs, 0, 10).ok());
    theirs.write_all_at(b"theirs", 0).unwrap();
    drop(stopped);
    let refused = first.write_all_at(b"ours", 0).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(Errno::EIO as i32));
    let mut read = [0; 6];
    theirs.read_exact_at(&mut read, 0).unwrap();
    assert_eq!(&read, b"theirs");
    // Another open file of the same mount is none the worse, nor is a lock that no other client wanted.
    open(&mounted.path("f")).write_all_at(b"anew", 0).unwrap();
    kept.write_all_at(b"kept", 0).unwrap();
    assert_eq!(lock(&open(&second.path("g")), 0, 1), Err(Errno::EAGAIN));
}
