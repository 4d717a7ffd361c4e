//! While the server is away: requests wait and go on, or fail in time; handles live; unmounting works.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::time::Duration;

use rustix::io::Errno;

use crate::{LocalMounts, clock};

#[test]
fn requests_wait_for_the_server_and_handles_stay_valid() {
    let Some(mut mounts) = LocalMounts::new(1) else { return };
    let path = mounts.path(0, "file");
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    file.write_all(b"before ").unwrap();
    fs::remove_file(&path).unwrap();
    fs::write(mounts.path(0, "named"), "kept").unwrap();
    let mut named = fs::File::open(mounts.path(0, "named")).unwrap();
    mounts.stop_server();
    std::thread::scope(|scope| {
        let write = scope.spawn(|| {
            file.write_all(b"after").unwrap();
            file
        });
        crate::pass(Duration::from_millis(300));
        assert!(!write.is_finished(), "it waits");
        mounts.start_server();
        file = write.join().unwrap();
        let mut content = String::new();
        std::io::Seek::rewind(&mut file).unwrap();
        file.read_to_string(&mut content).unwrap();
        assert_eq!(content, "before after", "a file without a name lives as long as it is open");
        content.clear();
        named.read_to_string(&mut content).unwrap();
        assert_eq!(content, "kept");
    });
}

#[test]
fn a_request_fails_when_its_time_is_over_and_the_mount_lives_on() {
    let Some(mut mounts) = LocalMounts::with_timeout(1, Duration::from_millis(700)) else { return };
    fs::write(mounts.path(0, "file"), "x").unwrap();
    let mut file = OpenOptions::new().write(true).open(mounts.path(0, "file")).unwrap();
    mounts.stop_server();
    let began = clock();
    let failed = file.write_all(b"lost").unwrap_err();
    assert_eq!(Errno::from_io_error(&failed), Some(Errno::IO));
    let took = clock() - began;
    assert!(took >= Duration::from_millis(500) && took < Duration::from_secs(5), "{took:?}");
    mounts.start_server();
    file.write_all(b"kept").unwrap();
    file.sync_all().unwrap();
}

#[test]
fn unmounting_works_while_the_server_is_down() {
    let Some(mut mounts) = LocalMounts::with_timeout(2, Duration::from_secs(2)) else { return };
    let file = fs::File::create(mounts.path(1, "open")).unwrap();
    mounts.stop_server();
    let began = clock();
    mounts.unmount(0);
    mounts.unmount(1);
    assert!((clock() - began) < Duration::from_secs(10), "{:?}", (clock() - began));
    drop(file);
}
