//! Locks: two mounts contend as two processes of one machine do, and no lock waits for a dead mount.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, fcntl_lock, flock};
use rustix::io::Errno;

use crate::{LocalMounts, clock};

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// Another process that locks `path` with flock(1), says so, and holds it until its input ends.
fn locker(path: &Path) -> Child {
    Command::new("flock")
        .arg(path)
        .args(["sh", "-c", "echo held; cat >/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn wait_held(child: &mut Child) {
    let mut line = [0u8; 5];
    io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
    assert_eq!(&line, b"held\n");
}

#[test]
fn mounts_contend_for_flock_and_for_ranges() {
    let Some(mounts) = LocalMounts::new(2) else { return };
    let (here, there) = (open(&mounts.path(0, "file")), open(&mounts.path(1, "file")));
    flock(&here, FlockOperation::LockExclusive).unwrap();
    assert_eq!(flock(&there, FlockOperation::NonBlockingLockExclusive), Err(Errno::WOULDBLOCK));
    flock(&here, FlockOperation::LockShared).unwrap();
    flock(&there, FlockOperation::NonBlockingLockShared).unwrap();
    // The kernel tells of the last close a moment after close(2) has returned: so wait.
    drop(here);
    flock(&there, FlockOperation::LockExclusive).unwrap();
    flock(&there, FlockOperation::Unlock).unwrap();
    let here = open(&mounts.path(0, "file"));
    fcntl_lock(&here, FlockOperation::LockExclusive).unwrap();
    // One table for both kinds.
    assert_eq!(flock(&there, FlockOperation::NonBlockingLockShared), Err(Errno::WOULDBLOCK));
    // Closing any descriptor of the file ends the process's fcntl locks.
    drop(open(&mounts.path(0, "file")));
    flock(&there, FlockOperation::NonBlockingLockShared).unwrap();
}

#[test]
fn a_waiter_gets_the_lock_when_the_other_mount_releases_it() {
    let Some(mounts) = LocalMounts::new(2) else { return };
    let here = open(&mounts.path(0, "file"));
    flock(&here, FlockOperation::LockExclusive).unwrap();
    let mut waiter = locker(&mounts.path(1, "file"));
    crate::pass(Duration::from_millis(200));
    flock(&here, FlockOperation::Unlock).unwrap();
    let began = clock();
    wait_held(&mut waiter);
    assert!((clock() - began) < Duration::from_secs(2), "{:?}", (clock() - began));
    assert_eq!(flock(&here, FlockOperation::NonBlockingLockExclusive), Err(Errno::WOULDBLOCK));
    drop(waiter.stdin.take());
    assert!(waiter.wait().unwrap().success());
    flock(&here, FlockOperation::LockExclusive).unwrap();
}

#[test]
fn a_waiter_can_be_killed() {
    let Some(mounts) = LocalMounts::new(2) else { return };
    let here = open(&mounts.path(0, "file"));
    flock(&here, FlockOperation::LockExclusive).unwrap();
    let mut waiter = locker(&mounts.path(1, "file"));
    crate::pass(Duration::from_millis(200));
    let began = clock();
    waiter.kill().unwrap();
    waiter.wait().unwrap();
    assert!((clock() - began) < Duration::from_secs(2), "{:?}", (clock() - began));
    // And gets nothing after its death.
    flock(&here, FlockOperation::Unlock).unwrap();
    flock(open(&mounts.path(1, "file")), FlockOperation::NonBlockingLockExclusive).unwrap();
}

#[test]
fn locks_end_with_the_mount() {
    let Some(mut mounts) = LocalMounts::new(2) else { return };
    let mut holder = locker(&mounts.path(1, "file"));
    wait_held(&mut holder);
    let here = open(&mounts.path(0, "file"));
    assert_eq!(flock(&here, FlockOperation::NonBlockingLockExclusive), Err(Errno::WOULDBLOCK));
    mounts.unmount(1);
    flock(&here, FlockOperation::NonBlockingLockExclusive).unwrap();
    holder.kill().unwrap();
    holder.wait().unwrap();
}

#[test]
fn locks_outlive_a_restart_of_the_server() {
    let Some(mut mounts) = LocalMounts::new(2) else { return };
    let (here, there) = (open(&mounts.path(0, "file")), open(&mounts.path(1, "file")));
    flock(&here, FlockOperation::LockExclusive).unwrap();
    let mut waiter = locker(&mounts.path(1, "file"));
    crate::pass(Duration::from_millis(200));
    mounts.stop_server();
    mounts.start_server();
    assert_eq!(flock(&there, FlockOperation::NonBlockingLockExclusive), Err(Errno::WOULDBLOCK));
    fs::write(mounts.path(1, "beside"), "").unwrap();
    flock(&here, FlockOperation::Unlock).unwrap();
    wait_held(&mut waiter);
    drop(waiter.stdin.take());
    waiter.wait().unwrap();
}

#[test]
fn a_lock_released_during_a_restart_of_the_server_is_free() {
    let Some(mut mounts) = LocalMounts::new(2) else { return };
    let names: Vec<String> = (0..8).map(|n| format!("file{n}")).collect();
    let is_over = AtomicBool::new(false);
    let paths: Vec<_> = names.iter().map(|name| mounts.path(0, name)).collect();
    thread::scope(|scope| {
        for path in &paths {
            let (file, is_over) = (open(path), &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    flock(&file, FlockOperation::LockExclusive).unwrap();
                    flock(&file, FlockOperation::Unlock).unwrap();
                }
            });
        }
        for _ in 0..6 {
            crate::pass(Duration::from_millis(100));
            mounts.stop_server();
            mounts.start_server();
        }
        crate::pass(Duration::from_millis(500));
        is_over.store(true, Ordering::Relaxed);
    });
    for name in &names {
        let there = open(&mounts.path(1, name));
        // Refused for a moment after a start of the server, and never because of another lock.
        let began = clock();
        while let Err(error) = flock(&there, FlockOperation::NonBlockingLockExclusive) {
            assert!(clock() - began < Duration::from_secs(15), "{name}: {error}");
            crate::pass(Duration::from_millis(20));
        }
    }
}
