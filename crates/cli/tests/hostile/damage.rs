//! Stored bytes that changed, or are gone: never given out as data, named, and no harm to anything else.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use frieze_base::Reason;
use frieze_client::{Client, CreateMode, OpenFlags, Target};
use frieze_testkit::bytes::random_bytes;
use frieze_testkit::wait::eventually;
use nix::errno::Errno;
use nix::sys::signal::Signal;

use super::{check_serves, check_well, get, put, server};
use crate::support::served::{Said, Served, frieze};
use crate::support::{Mount, client};

pub(super) const SETTINGS: &str = "chunk_bytes = 65536\nsegment_bytes = 8388608\n";
/// Three files of it fill two segments and begin a third.
pub(super) const LEN: usize = 6 << 20;
const PIECE: usize = 64 << 10;

pub(super) fn content(path: &str) -> Vec<u8> {
    random_bytes(u64::from(path.as_bytes()[1]), LEN)
}

/// A server with the files `/a`, `/b` and `/c`, on stable storage.
pub(super) fn filled() -> Served {
    let server = server(SETTINGS, "127.0.0.1:0");
    let client = client(&server.address);
    for path in ["/a", "/b", "/c"] {
        let file = client.fs().create(&Target::path(path), 0o644, CreateMode::Exclusive).unwrap();
        for (n, piece) in content(path).chunks(PIECE).enumerate() {
            file.write_at((n * PIECE) as u64, piece).unwrap();
        }
        file.sync().unwrap();
        file.close().unwrap();
    }
    server
}

/// The segment file and the place in it that hold what `path` has at `offset`.
pub(super) fn place_of(server: &Served, path: &str, offset: usize) -> (PathBuf, usize) {
    let needle = &content(path)[offset..offset + 32];
    for entry in fs::read_dir(server.data()).unwrap() {
        let file = entry.unwrap().path();
        if !file.file_name().unwrap().to_str().unwrap().starts_with("seg-") {
            continue;
        }
        let bytes = fs::read(&file).unwrap();
        if let Some(at) = bytes.windows(needle.len()).position(|window| window == needle) {
            return (file, at);
        }
    }
    panic!("{path} at {offset} is in no segment");
}

pub(super) fn flip_bit(server: &Served, path: &str, offset: usize) {
    let (file, at) = place_of(server, path, offset);
    let file = OpenOptions::new().read(true).write(true).open(file).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at as u64).unwrap();
    file.write_all_at(&[byte[0] ^ 4], at as u64).unwrap();
}

/// Reads a file piece by piece. Every piece is as written, or refused in words; returns the offsets of those refused.
fn refused_pieces(client: &Client, path: &str) -> Vec<usize> {
    let file = client.fs().open(&Target::path(path), OpenFlags::READ).unwrap();
    assert_eq!(file.attr().size, LEN as u64, "{path}");
    let mut refused = Vec::new();
    for (n, expected) in content(path).chunks(PIECE).enumerate() {
        let mut bytes = vec![0; PIECE];
        match file.read_at((n * PIECE) as u64, &mut bytes) {
            Ok(len) => assert!(bytes[..len] == *expected, "{path} at {}: bytes that nobody wrote", n * PIECE),
            Err(error) => {
                assert_eq!(error.reason(), Reason::Corrupt, "{error}");
                let words = error.to_string();
                assert!(words.contains("corrupt") && words.contains("segment"), "{words}");
                refused.push(n * PIECE);
            }
        }
    }
    refused
}

/// Only the piece at `offset` of `path` is refused, through every door.
fn check_refused(server: &mut Served, path: &str, offset: usize) {
    let client = client(&server.address);
    let piece = offset / PIECE * PIECE;
    for other in ["/a", "/b", "/c"] {
        let expected = if other == path { vec![piece] } else { vec![] };
        assert_eq!(refused_pieces(&client, other), expected, "{other}");
    }
    let past = client.fs().at(client.now().unwrap()).open(&Target::path(path), OpenFlags::READ).unwrap();
    let error = past.read_at(offset as u64, &mut [0; 1]).unwrap_err();
    assert_eq!(error.reason(), Reason::Corrupt, "{error}");

    let said = server.run(&["cat", path]);
    assert_eq!(said.status, 1);
    assert!(said.err.starts_with(&format!("frieze: cat: {path}: ")) && said.err.contains("is corrupt"), "{}", said.err);
    assert_eq!(said.err.lines().count(), 1);
    assert!(content(path).starts_with(&said.bytes) && said.bytes.len() <= offset, "what was printed is right");
    let out = server.local("out");
    assert_eq!(server.run(&["get", path, out.to_str().unwrap()]).status, 1);
    assert!(server.run(&["cat", "/kept"]).status == 0);
    check_serves(server);
    // Where a reader met damage, the server looks soon, and says what it found.
    eventually("the damage is told", || {
        client.status().unwrap().health.starts_with("stored data is damaged in 1 place,").then_some(())
    });
}

#[test]
fn a_flipped_bit_is_named_and_costs_what_it_hit_and_nothing_else() {
    let mut server = filled();
    let hit = 3 * (1 << 20) + 12_345;
    flip_bit(&server, "/a", hit);
    check_refused(&mut server, "/a", hit);
    if let Some(mount) = Mount::of(&server) {
        let file = fs::File::open(mount.path("a")).unwrap();
        let mut bytes = vec![0; 4096];
        let error = file.read_exact_at(&mut bytes, hit as u64 / 4096 * 4096).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::EIO as i32), "{error}");
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes == content("/a")[..4096]);
        assert!(fs::read(mount.path("b")).unwrap() == content("/b"));
    }
    // What is written over it is good again.
    let client = client(&server.address);
    let file = client.fs().open(&Target::path("/a"), OpenFlags::WRITE).unwrap();
    let piece = hit / PIECE * PIECE;
    file.write_at(piece as u64, &content("/a")[piece..piece + PIECE]).unwrap();
    file.close().unwrap();
    assert_eq!(refused_pieces(&client, "/a"), Vec::<usize>::new());
}

#[test]
fn a_bit_flipped_while_the_server_is_down_is_no_end_of_the_log() {
    // In the first segment, which is sealed, and in the last, which is open.
    for (path, hit) in [("/a", 100_000), ("/c", LEN - 3_000_000)] {
        let mut server = filled();
        assert_eq!(server.end(Signal::SIGTERM), Some(0));
        flip_bit(&server, path, hit);
        server.start_again();
        check_refused(&mut server, path, hit);
        assert_eq!(server.restart(Signal::SIGKILL), None);
        check_refused(&mut server, path, hit);
    }
}

fn set_len(file: &Path, len: u64) {
    OpenOptions::new().write(true).open(file).unwrap().set_len(len).unwrap();
}

#[test]
fn a_last_segment_cut_in_its_free_part_is_continued() {
    let mut server = filled();
    let (file, _) = place_of(&server, "/c", LEN - 100);
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        server.end(signal);
        set_len(&file, 6 << 20);
        server.start_again();
        for path in ["/a", "/b", "/c"] {
            assert_eq!(refused_pieces(&client(&server.address), path), Vec::<usize>::new(), "{path}");
        }
        // What was cut is written.
        put(&client(&server.address), "/more", &random_bytes(9, 1 << 20));
        check_well(&mut server);
    }
    put(&client(&server.address), "/more", &random_bytes(9, 9 << 20));
    assert!(get(&client(&server.address), "/more") == random_bytes(9, 9 << 20));
    check_well(&mut server);
}

#[test]
fn a_cut_or_missing_segment_is_reported_and_never_read_as_a_hole() {
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 3] = [
        ("cut", |file| set_len(file, 1 << 20)),
        ("emptied", |file| set_len(file, 0)),
        ("removed", |file| fs::remove_file(file).unwrap()),
    ];
    let mut server = filled();
    // One in the middle of the log, and the last one.
    for (path, offset) in [("/b", LEN / 2), ("/c", LEN - 100)] {
        let (file, _) = place_of(&server, path, offset);
        for (name, damage) in damages {
            for signal in [Signal::SIGTERM, Signal::SIGKILL] {
                client(&server.address).fs().sync_all().unwrap();
                server.end(signal);
                let whole = fs::read(&file).unwrap();
                damage(&file);
                eprintln!("{path} {name} {signal}");
                let said = server.serve_in_vain();
                assert_eq!(said.status, 1, "{path} {name}");
                let line = said.err.lines().last().unwrap();
                for words in ["the device log is corrupt", "segment", "Put back what is missing", "serve_damaged"] {
                    assert!(line.contains(words), "{path} {name}: {line}");
                }
                // Refused, nothing was changed: with the file put back everything is there.
                fs::write(&file, &whole).unwrap();
                server.start_again();
                for path in ["/a", "/b", "/c"] {
                    assert_eq!(refused_pieces(&client(&server.address), path), Vec::<usize>::new(), "{path} {name}");
                }
                check_well(&mut server);
            }
        }
    }
    // A reader of the rest gets it.
    let (file, _) = place_of(&server, "/b", LEN / 2);
    assert_eq!(server.end(Signal::SIGTERM), Some(0));
    fs::remove_file(&file).unwrap();
    fs::write(server.local("config.toml"), format!("{SETTINGS}serve_damaged = true\n")).unwrap();
    for _ in 0..2 {
        server.start_again();
        assert_eq!(refused_pieces(&client(&server.address), "/a"), Vec::<usize>::new());
        check_well(&mut server);
        assert_eq!(server.end(Signal::SIGKILL), None);
    }
}

#[test]
fn a_bit_flipped_in_the_log_of_names_is_never_taken_for_its_end() {
    let mut server = server(SETTINGS, "127.0.0.1:0");
    let before = client(&server.address);
    for n in 0..500 {
        before.fs().mkdir(&Target::path(format!("/d{n}")), 0o755).unwrap();
    }
    before.fs().sync_all().unwrap();
    drop(before);
    assert_eq!(server.end(Signal::SIGKILL), None);
    let log = fs::read_dir(server.data())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.file_name().unwrap().to_str().unwrap().starts_with("raft-"))
        .unwrap();
    let bytes = fs::read(&log).unwrap();
    for name in [b"d200", b"d499"] {
        let at = bytes.windows(4).position(|window| window == name).expect("a name is in the log");
        let file = OpenOptions::new().write(true).open(&log).unwrap();
        file.write_all_at(&[bytes[at] ^ 1], at as u64).unwrap();
        if let Some(said) = server.serve_for_a_look() {
            assert_eq!(said.status, 1);
            let named = log.file_name().unwrap().to_str().unwrap();
            let words = [named, "is damaged at byte", "was on stable storage and fails its checksum", "frieze export"];
            assert!(words.iter().all(|word| said.err.contains(word)), "{}", said.err);
            // Refused, nothing was changed: with the bit as it was everything is there.
            file.write_all_at(&[bytes[at]], at as u64).unwrap();
        }
        // Else the store of versions held it already.
        server.start_again();
        let names = client(&server.address).fs().entries(&Target::path("/")).unwrap();
        assert_eq!(names.len(), 501, "what was synced is there");
        check_well(&mut server);
        assert_eq!(server.end(Signal::SIGKILL), None);
    }
}

/// The files of the log of names.
fn journal(data: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        paths.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("raft-")).collect();
    files.sort();
    files
}

#[test]
fn names_before_a_damaged_record_of_their_log_are_exported_and_served() {
    let mut server = server(SETTINGS, "127.0.0.1:0");
    let before = client(&server.address);
    for n in 0..100 {
        before.fs().mkdir(&Target::path(format!("/dir-{n:03}")), 0o755).unwrap();
    }
    before.fs().sync_all().unwrap();
    drop(before);
    assert_eq!(server.end(Signal::SIGKILL), None);
    let log = journal(&server.data()).remove(0);
    let whole = fs::read(&log).unwrap();
    let record = whole.windows(7).position(|window| window == b"dir-060").expect("a name is in the log");
    // A record, and the header of the file.
    for (place, words, names) in [(record, "at byte", 60), (8, "its header, bytes 0 to 47", 100)] {
        let mut damaged = whole.clone();
        damaged[place] ^= 1;
        fs::write(&log, &damaged).unwrap();
        let said = server.serve_in_vain();
        let file = log.file_name().unwrap().to_str().unwrap();
        let line = said.err.lines().last().unwrap();
        for part in [file, words, "serve_damaged", "'frieze export DIR'"] {
            assert!(line.contains(part), "{part}: {line}");
        }
        let export = |args: &[&str]| -> Said {
            let mut command = frieze(&["export"]);
            command.arg(server.data()).args(args).output().unwrap().into()
        };
        let said = export(&["--list"]);
        let listed = said.out().lines().filter(|line| line.contains("dir-")).count();
        assert_eq!((said.status, listed), (1, names), "{}", said.err);
        assert!(said.err.contains("the directory is damaged, this is what is left") && said.err.contains(file));
        let is_whole = said.err.contains("no change of names is missing");
        let is_dated = said.err.contains("changes of names after");
        assert_eq!((is_whole, is_dated), (names == 100, names < 100), "{}", said.err);
        assert!(fs::read(&log).unwrap() == damaged, "an export changes nothing");
        let fsck: Said = frieze(&["fsck"]).arg(server.data()).output().unwrap().into();
        assert_eq!(fsck.status, 1);
        assert_eq!(fsck.out().matches(words).count(), 2, "once refused, once served: {}", fsck.out());
        assert!(!fsck.out().contains("/frieze-copy-"), "{}", fsck.out());
    }
    fs::write(server.local("config.toml"), format!("{SETTINGS}serve_damaged = true\n")).unwrap();
    let mut damaged = whole.clone();
    damaged[record] ^= 1;
    fs::write(&log, &damaged).unwrap();
    server.start_again();
    let count = |server: &Served| client(&server.address).fs().entries(&Target::path("/")).unwrap().len();
    let kept = |server: &Served| server.data().join("lost-raft-0000000000000001").exists();
    assert!(kept(&server), "the damaged file is kept");
    // The gap is named.
    let status = server.run(&["status"]);
    assert!(status.out().contains("may be missing") || status.out().contains("may be lost"), "{}", status.out());
    put(&client(&server.address), "/new", b"new");
    let names = count(&server);
    // From now on it is a directory like any other.
    fs::write(server.local("config.toml"), SETTINGS).unwrap();
    assert_eq!(server.restart(Signal::SIGKILL), None);
    assert_eq!((count(&server), kept(&server)), (names, true));
    assert!((60..=63).contains(&names), "{names}");
    check_serves(&mut server);
}

#[test]
fn a_missing_store_of_names_is_named_and_nothing_is_made_in_its_place() {
    let mut server = server(SETTINGS, "127.0.0.1:0");
    put(&client(&server.address), "/kept", b"kept");
    assert_eq!(server.end(Signal::SIGTERM), Some(0));
    let (names, aside) = (server.data().join("namespace"), server.local("aside"));
    fs::rename(&names, &aside).unwrap();
    let said = server.serve_in_vain();
    let line = said.err.lines().last().unwrap();
    assert!(line.contains(names.to_str().unwrap()) && line.contains("put it back from a backup"), "{line}");
    assert!(!names.exists(), "a start that is refused makes nothing");
    for command in ["fsck", "export"] {
        let args: &[&str] = if command == "export" { &["--list"] } else { &[] };
        let said: Said = frieze(&[command]).arg(server.data()).args(args).output().unwrap().into();
        let words = format!("{}{}", said.out(), said.err);
        assert_eq!(said.status, if command == "fsck" { 1 } else { 2 }, "{words}");
        assert_eq!(words.matches(names.to_str().unwrap()).count(), 1, "{words}");
    }
    fs::rename(&aside, &names).unwrap();
    server.start_again();
    assert!(get(&client(&server.address), "/kept") == b"kept");
}
