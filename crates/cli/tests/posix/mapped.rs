//! `mmap`: shared stores reach the file by `msync`, private ones never, and programs run from the mount.
//!
//! Python maps, because a map is unsafe memory to Rust. Where there is no Python the parts say so and pass.

use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;

use crate::mount_server;
use frieze_harness::requirements;
use frieze_testkit::bytes::random_bytes;

/// Runs a program with `mmap`, `os` and `sys` at hand; it fails by `assert`.
#[track_caller]
fn python(program: &str, arguments: &[&Path]) {
    let program = format!("import mmap, os, sys\n{program}");
    let output = Command::new("python3").args(["-c", &program]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_shared_store_reaches_the_file_and_its_past() {
    if !requirements::program("python3") {
        return;
    }
    let Some(mounted) = mount_server() else { return };
    let path = mounted.path("f");
    // Not whole pages, and over a border of chunks.
    let bytes = random_bytes(1, 100_001);
    fs::write(&path, &bytes).unwrap();
    let before = mounted.server.now();
    python(
        "
f = open(sys.argv[1], 'r+b')
m = mmap.mmap(f.fileno(), 0)
m[65530:65545] = b'over the border'
m[100000] = 33
m.flush()
assert os.pread(f.fileno(), 15, 65530) == b'over the border'
os.pwrite(f.fileno(), b'by a call', 70000)
assert m[70000:70009] == b'by a call', m[70000:70009]
m.close()",
        &[&path],
    );
    let mut expected = bytes.clone();
    expected[65530..65545].copy_from_slice(b"over the border");
    expected[70000..70009].copy_from_slice(b"by a call");
    expected[100_000] = 33;
    assert!(fs::read(&path).unwrap() == expected, "and no byte beyond the end");
    assert!(fs::read(mounted.past(&before, "f")).unwrap() == bytes);
}

#[test]
fn a_private_store_reaches_nobody() {
    if !requirements::program("python3") {
        return;
    }
    let Some(mounted) = mount_server() else { return };
    let path = mounted.path("f");
    let bytes = random_bytes(2, 9000);
    fs::write(&path, &bytes).unwrap();
    python(
        "
f = open(sys.argv[1], 'rb')
m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY)
m[0:7] = b'private'
m.flush()
assert m[0:7] == b'private'
m.close()",
        &[&path],
    );
    assert!(fs::read(&path).unwrap() == bytes);
    // Of the past too, where a shared map can only be read.
    let past = mounted.past(&mounted.server.now(), "f");
    python(
        "
f = open(sys.argv[1], 'rb')
m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY)
m[0:7] = b'private'
r = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
assert r[0:7] != b'private'",
        &[&past],
    );
}

#[test]
fn a_file_open_for_appending_is_mapped_and_agrees_with_what_is_read() {
    if !requirements::program("python3") {
        return;
    }
    let Some(mounted) = mount_server() else { return };
    let path = mounted.path("f");
    fs::write(&path, random_bytes(4, 5000)).unwrap();
    python(
        "
f = open(sys.argv[1], 'a+b', buffering=0)
reader = open(sys.argv[1], 'rb', buffering=0)
first = reader.read(6000)
assert len(first) == 5000
f.write(b'appended')
assert os.pread(reader.fileno(), 6000, 0) == first + b'appended'
m = mmap.mmap(f.fileno(), 0)
assert m[:] == first + b'appended'
m[4998:5002] = b'over'
m.flush()
f.write(b' and more')
assert os.pread(reader.fileno(), 6000, 4990) == first[4990:4998] + b'overpended and more'
assert os.pread(f.fileno(), 6000, 4990) == first[4990:4998] + b'overpended and more'",
        &[&path],
    );
}

#[test]
fn a_map_goes_on_when_the_file_has_no_name_and_is_closed() {
    if !requirements::program("python3") {
        return;
    }
    let Some(mounted) = mount_server() else { return };
    let path = mounted.path("f");
    fs::write(&path, random_bytes(3, 20_000)).unwrap();
    python(
        "
f = open(sys.argv[1], 'r+b')
first = f.read()
m = mmap.mmap(f.fileno(), 0)
f.close()
os.unlink(sys.argv[1])
assert m[:] == first
m[12345:12350] = b'still'
m.flush()
assert m[12345:12350] == b'still'
m.close()",
        &[&path],
    );
    assert!(!path.exists());
}

/// The kernel refuses to open a running program for writing or to cut it; what it refuses must not have been done.
#[test]
fn a_program_that_runs_is_neither_written_nor_cut() {
    let Some(mounted) = mount_server() else { return };
    let program = mounted.path("program");
    let image = fs::read("/usr/bin/tail").unwrap();
    // Copied by another process: what this one has open to write, children that other tests start hold for a moment
    // too.
    assert!(Command::new("cp").arg("/usr/bin/tail").arg(&program).status().unwrap().success());
    let mut running = Command::new(&program).args(["-f", "/dev/null"]).spawn().unwrap();
    let cut = || OpenOptions::new().read(true).custom_flags(nix::libc::O_TRUNC).open(&program);
    let refused = [
        OpenOptions::new().write(true).open(&program),
        OpenOptions::new().read(true).write(true).open(&program),
        cut(),
    ]
    .map(|opened| opened.map(drop).unwrap_err().kind());
    let state = running.try_wait().unwrap();
    running.kill().unwrap();
    running.wait().unwrap();
    assert_eq!(refused, [ErrorKind::ExecutableFileBusy; 3]);
    assert_eq!(state, None, "the program went on");
    assert!(fs::read(&program).unwrap() == image, "what was refused was done");
    // It runs no more.
    cut().unwrap();
    assert!(fs::read(&program).unwrap().is_empty());
}
