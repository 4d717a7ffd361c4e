//! What goes wrong on machines that share a file system: mounts that die, two that want the same, a clock that is
//! wrong. Mounts are processes of their own here. Without /dev/fuse each part that mounts says so and passes.

#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

#[expect(dead_code, reason = "shared with tests that need more of it")]
mod support;

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

use frieze_base::{ByteRange, Reason};
use frieze_client::{CreateMode, Target};
use frieze_harness::requirements;
use frieze_testkit::wait::eventually;
use support::Mount;
use support::served::Served;

/// A server with two mounts.
fn two_mounts() -> Option<(Served, Mount, Mount)> {
    // What the dead held is given on after this long.
    let server = Served::with("session_timeout = \"2s\"\n", "127.0.0.1:0");
    let (one, other) = (Mount::at(&server, "one")?, Mount::at(&server, "other")?);
    Some((server, one, other))
}

/// Both do their part at the same moment.
fn at_once<T: Send>(parts: [&(dyn Fn() -> T + Sync); 2]) -> [T; 2] {
    let start = Barrier::new(2);
    std::thread::scope(|scope| {
        let [one, other] = parts.map(|part| {
            scope.spawn(|| {
                start.wait();
                part()
            })
        });
        [one.join().unwrap(), other.join().unwrap()]
    })
}

#[test]
fn of_two_mounts_that_make_one_name_one_has_made_it() {
    let Some((_server, one, other)) = two_mounts() else { return };
    for round in 0..100 {
        let file = format!("f{round}");
        let make = |path: PathBuf| OpenOptions::new().write(true).create_new(true).open(path).map(drop);
        let made = at_once([&|| make(one.path(&file)), &|| make(other.path(&file))]);
        assert_eq!(made.iter().filter(|made| made.is_ok()).count(), 1, "round {round}: {made:?}");
        assert!(made.iter().flat_map(|made| made.as_ref().err()).all(|error| error.kind() == ErrorKind::AlreadyExists));

        let directory = format!("d{round}");
        let made = at_once([&|| fs::create_dir(one.path(&directory)), &|| fs::create_dir(other.path(&directory))]);
        assert_eq!(made.iter().filter(|made| made.is_ok()).count(), 1, "round {round}: {made:?}");
    }
    let names = |mount: &Mount| fs::read_dir(mount.path("")).unwrap().count();
    assert_eq!((names(&one), names(&other)), (200, 200));
}

#[test]
fn directories_moved_into_each_other_by_two_mounts_make_no_cycle() {
    let Some((_server, one, other)) = two_mounts() else { return };
    for round in 0..50 {
        for mount in [&one, &other] {
            // Both know both.
            fs::create_dir_all(mount.path(format!("{round}/a/below"))).unwrap();
            fs::create_dir_all(mount.path(format!("{round}/b/below"))).unwrap();
        }
        let mv = |mount: &Mount, from: &str, to: &str| {
            fs::rename(mount.path(format!("{round}/{from}")), mount.path(format!("{round}/{to}")))
        };
        let moved = at_once([&|| mv(&one, "a", "b/below/a"), &|| mv(&other, "b", "a/below/b")]);
        assert_eq!(moved.iter().filter(|moved| moved.is_ok()).count(), 1, "round {round}: {moved:?}");
        let refused = moved.into_iter().find_map(Result::err).unwrap();
        // It is a part of itself, or has gone to where it was not looked for.
        assert!(matches!(refused.kind(), ErrorKind::InvalidInput | ErrorKind::NotFound), "{refused:?}");
    }
    // Every directory is still found from the root: four in each round's own.
    let below = |round: usize| Command::new("find").arg(one.path(round.to_string())).output().unwrap().stdout;
    for round in 0..50 {
        let found = String::from_utf8(below(round)).unwrap();
        assert_eq!(found.lines().count(), 5, "{found}");
    }
}

/// Writes its own number into each block, one after the other, until it is told off; how many were acknowledged.
fn write_blocks(path: &Path, acknowledged: &AtomicU64) -> io::Error {
    let mut file = File::create(path).unwrap();
    for block in 0u64.. {
        let bytes: Vec<u8> = block.to_le_bytes().repeat(BLOCK / 8);
        match file.write_all(&bytes) {
            Ok(()) => acknowledged.store(block + 1, Ordering::Relaxed),
            Err(error) => return error,
        }
    }
    unreachable!()
}

/// Not a whole number of pages.
const BLOCK: usize = 100_000;

#[test]
fn a_mount_killed_in_the_middle_of_a_write_leaves_what_was_acknowledged_and_no_torn_request() {
    let Some((server, mut one, other)) = two_mounts() else { return };
    let acknowledged = AtomicU64::new(0);
    let path = one.path("stream");
    let error = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_blocks(&path, &acknowledged));
        eventually("blocks are written", || (acknowledged.load(Ordering::Relaxed) > 20).then_some(()));
        one.kill();
        writer.join().unwrap()
    });
    // EIO if the kernel had handed on a part of the block.
    let told = [nix::libc::ENOTCONN, nix::libc::ECONNABORTED, nix::libc::EIO];
    assert!(told.map(Some).contains(&error.raw_os_error()), "{error:?}");
    let bytes = fs::read(other.path("stream")).unwrap();
    assert!(
        bytes.len() as u64 >= acknowledged.load(Ordering::Relaxed) * BLOCK as u64,
        "what was acknowledged is there"
    );
    for (block, bytes) in bytes.chunks(BLOCK).enumerate() {
        let number = (block as u64).to_le_bytes();
        assert!(bytes.chunks(8).all(|bytes| bytes == &number[..bytes.len()]), "block {block}");
    }
    // Nothing has to be cleaned up behind it: other clients continue to write the file, and the place is mounted again.
    fs::write(other.path("stream"), "by another").unwrap();
    assert_eq!(server.ok(&["cat", "/stream"]), "by another");
    let refused = server.fails(1, &["mount", "one"]);
    assert!(refused.contains("umount"), "it says what to do: {refused}");
    server.ok(&["umount", "one"]);
    server.ok(&["mount", "one"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), "by another");
    server.ok(&["umount", "one"]);
}

/// A process that holds a lock on `path` by `mount` until its input ends.
fn holder(path: &Path) -> Child {
    let mut child = Command::new("flock")
        .arg(path)
        .args(["sh", "-c", "echo held; cat >/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = [0u8; 5];
    child.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
    child
}

#[test]
fn locks_of_a_killed_mount_pass_to_the_waiters() {
    let Some((_server, mut one, other)) = two_mounts() else { return };
    let mut dead = holder(&one.path("file"));
    let mut waiter = Command::new("flock").arg(other.path("file")).arg("true").spawn().unwrap();
    assert!(waiter.try_wait().unwrap().is_none());
    one.kill();
    let status = eventually("the lock of the dead is given on", || waiter.try_wait().unwrap());
    assert!(status.success());
    dead.kill().unwrap();
    dead.wait().unwrap();
}

#[test]
fn a_client_whose_clock_is_wrong_asks_and_writes_in_the_time_of_the_server() {
    if !requirements::program("faketime") {
        return;
    }
    let server = Served::start();
    server.put("/f", "one");
    let first = server.now();
    let wrong = |step: &str, args: &[&str]| {
        let command = server.command(args);
        let mut faked = Command::new("faketime");
        faked.args(["-f", step]).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => faked.env(name, value),
                None => faked.env_remove(name),
            };
        }
        let output = faked.current_dir(server.local("")).output().unwrap();
        assert!(output.status.success(), "{step} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    };
    let mut before = first.clone();
    for (text, step) in [("two", "-400d"), ("three", "+400d")] {
        server.local_file("text", text);
        wrong(step, &["put", "text", "/f"]);
        assert_eq!(server.ok(&["cat", "/f"]), text);
        let seen = wrong(step, &["now"]);
        let after = server.now();
        // Stamps are of a fixed width: text in order is time in order.
        assert!(before < seen && seen < after, "{before} {seen} {after}");
        assert_eq!(wrong(step, &["cat", "/f", "--at", &first]), "one");
        assert_eq!(wrong(step, &["cat", "/f", "--at", "0s-ago"]), text);
        before = after;
    }
}

#[test]
fn a_restore_over_a_directory_in_use_leaves_its_users_their_files() {
    let Some((server, one, other)) = two_mounts() else { return };
    fs::create_dir(one.path("d")).unwrap();
    fs::write(one.path("d/kept"), "as it was").unwrap();
    fs::write(one.path("d/gone"), "as it was").unwrap();
    let then = server.now();
    fs::remove_file(one.path("d/gone")).unwrap();
    let mut kept = OpenOptions::new().read(true).append(true).open(one.path("d/kept")).unwrap();
    kept.write_all(b", and longer").unwrap();
    let mut made = OpenOptions::new().read(true).write(true).create_new(true).open(other.path("d/made")).unwrap();
    made.write_all(b"since").unwrap();
    // A program works in it.
    let mut shell = Command::new("sh")
        .args(["-c", "read line; ls . && echo mine >new"])
        .current_dir(other.path("d"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let words = server.ok(&["restore", "/d", "--to", &then, "--delete"]);
    let read = |path: PathBuf| fs::read_to_string(path).unwrap();
    for mount in [&one, &other] {
        assert_eq!(read(mount.path("d/kept")), "as it was", "{words}");
        assert_eq!(read(mount.path("d/gone")), "as it was");
        assert!(!mount.path("d/made").exists());
    }
    // What was open stays open: of the same file, or of one without a name.
    kept.write_all(b", and after").unwrap();
    assert_eq!(read(other.path("d/kept")), "as it was, and after");
    made.write_all(b" then").unwrap();
    let mut bytes = String::new();
    io::Seek::rewind(&mut made).unwrap();
    made.read_to_string(&mut bytes).unwrap();
    assert_eq!(bytes, "since then");
    shell.stdin.take().unwrap().write_all(b"go on\n").unwrap();
    let output = shell.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "gone\nkept\n");
    assert_eq!(read(one.path("d/new")), "mine\n");
}

#[test]
fn a_large_read_of_damaged_bytes_names_the_damage() {
    let data = tempfile::tempdir().unwrap();
    let server = Served::on(data.path(), "", "127.0.0.1:0");
    let by_tcp = server.addresses.iter().find(|address| !address.starts_with("unix:")).unwrap();
    let client = support::client(by_tcp);
    let file = client.fs().create(&Target::path("/film"), 0o644, CreateMode::Exclusive).unwrap();
    let bytes = frieze_testkit::bytes::random_bytes(5, 3 << 20);
    file.write_at(0, &bytes).unwrap();
    file.sync().unwrap();
    let mut read = vec![0; bytes.len()];
    assert_eq!(file.read_at(0, &mut read).unwrap(), bytes.len());
    assert!(read == bytes);

    // A byte in the middle of the second mebibyte, under the running server.
    let at = (1 << 20) + 700_000;
    let needle = &bytes[at..at + 64];
    let segment = fs::read_dir(data.path()).unwrap().map(|entry| entry.unwrap().path()).find_map(|path| {
        let stored = path.is_file().then(|| fs::read(&path).unwrap())?;
        let found = stored.windows(64).position(|window| window == needle)?;
        Some((path, found))
    });
    let (segment, found) = segment.unwrap();
    let stored = OpenOptions::new().write(true).open(segment).unwrap();
    stored.write_all_at(&[needle[0] ^ 1], found as u64).unwrap();

    let refused = |result: Result<usize, frieze_client::Error>| match result {
        Err(frieze_client::Error::Refused(fault)) => fault,
        other => panic!("{other:?}"),
    };
    // As a piece of several, as one request, and as a stream.
    for range in [0..3 << 20, 1 << 20..2 << 20] {
        let fault = refused(file.read_at(range.start, &mut read[..(range.end - range.start) as usize]));
        assert_eq!(fault.reason, Reason::Corrupt, "{fault}");
        assert!(fault.message.contains("fails its checksum"), "{fault}");
    }
    let mut seen = 0;
    let streamed = file.read_stream(ByteRange::new(0, 3 << 20), 4, |piece| {
        assert!(piece == &bytes[seen..seen + piece.len()], "what is handed over is sound");
        seen += piece.len();
        Ok::<(), frieze_client::Error>(())
    });
    assert_eq!((streamed.unwrap_err().to_string().contains("fails its checksum"), seen), (true, 1 << 20));
    assert_eq!(file.read_at(2 << 20, &mut read[..1 << 20]).unwrap(), 1 << 20, "the rest is there");
}
