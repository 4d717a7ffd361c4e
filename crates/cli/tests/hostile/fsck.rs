//! `frieze fsck`: a directory that no server uses is looked at, and nothing in it is changed.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use frieze_client::Target;
use frieze_testkit::bytes::random_bytes;
use nix::sys::signal::Signal;
use serde_json::Value;

use super::damage::{SETTINGS, filled, flip_bit, place_of};
use super::{put, server};
use crate::support::client;
use crate::support::served::{Served, frieze};

/// Every file below a directory: its bytes, and when it was changed.
fn all_of(dir: &Path) -> BTreeMap<PathBuf, (Vec<u8>, std::time::SystemTime)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let meta = fs::symlink_metadata(&path).unwrap();
        if meta.is_dir() {
            found.extend(all_of(&path));
        } else if meta.is_file() {
            found.insert(path.clone(), (fs::read(&path).unwrap(), meta.modified().unwrap()));
        }
    }
    found
}

/// Exit status, and what was said as JSON. The directory is as it was before.
fn fsck(server: &Served) -> (i32, Value) {
    let before = all_of(&server.data());
    let output = frieze(&["fsck".as_ref(), server.data().as_os_str(), "--json".as_ref()]).output().unwrap();
    assert!(all_of(&server.data()) == before, "something was changed");
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(words, "");
    (output.status.code().unwrap(), serde_json::from_slice(&output.stdout).unwrap())
}

fn check_clean(server: &Served) -> Value {
    let (status, said) = fsck(server);
    assert_eq!(
        (status, &said["clean"], &said["wrong"]),
        (0, &Value::from(true), &Value::from(Vec::<Value>::new())),
        "{said}"
    );
    said
}

fn flip(file: &Path, at: u64) {
    let file = fs::OpenOptions::new().read(true).write(true).open(file).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 4], at).unwrap();
}

#[test]
fn a_directory_is_clean_after_a_stop_and_after_any_crash_of_the_server() {
    let mut server = filled();
    let files = client(&server.address);
    for n in 0..200 {
        files.fs().mkdir(&Target::path(format!("/d{n}")), 0o755).unwrap();
        put(&files, &format!("/d{n}/f"), &random_bytes(n, 3000));
    }
    drop(files);
    assert_eq!(server.run(&["rm", "-r", "/d7"]).status, 0);
    assert_eq!(server.run(&["clone", "/d8", "/clone"]).status, 0);
    let now = server.now();
    assert_eq!(server.run(&["forget", "--before", &now, "/d9"]).status, 0);
    assert_eq!(server.end(Signal::SIGKILL), None);
    let killed = check_clean(&server);
    assert!(killed["records"].as_u64().unwrap() > 300 && killed["names"].as_u64().unwrap() > 400, "{killed}");
    server.start_again();
    assert_eq!(server.end(Signal::SIGTERM), Some(0));
    let stopped = check_clean(&server);
    assert_eq!((&stopped["records"], &stopped["names"]), (&killed["records"], &killed["names"]));
    server.start_again();
    assert_eq!(server.run(&["status"]).status, 0);
}

#[test]
fn damage_of_bytes_of_segments_and_of_names_is_found_wherever_it_is() {
    let mut server = filled();
    let files = client(&server.address);
    for n in 0..500 {
        files.fs().mkdir(&Target::path(format!("/d{n}")), 0o755).unwrap();
    }
    drop(files);
    assert_eq!(server.end(Signal::SIGTERM), Some(0));
    check_clean(&server);

    flip_bit(&server, "/b", 1_000_000);
    let (status, said) = fsck(&server);
    let finding = &said["findings"][0];
    assert_eq!((status, &said["found"], &finding["path"]), (1, &Value::from(1), &Value::from("/b")), "{said}");
    assert!(finding["start"].as_u64().unwrap() <= 1_000_000 && finding["end"].as_u64().unwrap() > 1_000_000);
    flip_bit_at(&server, "/b", 1_000_000);
    check_clean(&server);

    // A segment that is gone: a server would refuse.
    let (segment, _) = place_of(&server, "/b", 3 << 20);
    let aside = segment.with_extension("aside");
    fs::rename(&segment, &aside).unwrap();
    let (status, said) = fsck(&server);
    assert_eq!(status, 1);
    assert!(
        said["wrong"][0].as_str().unwrap().contains("a server refuses to start: the device log is corrupt"),
        "{said}"
    );
    fs::rename(&aside, &segment).unwrap();

    // Every table of the store of names, and its log.
    let mut tables = Vec::new();
    for (path, (bytes, _)) in all_of(&server.data().join("namespace")) {
        if path.parent().unwrap().ends_with("tables") {
            tables.push((path, bytes.len() as u64));
        }
    }
    assert!(!tables.is_empty());
    for (table, len) in tables {
        let mut found = 0;
        for at in (10..len).step_by(len as usize / 6) {
            flip(&table, at);
            let (status, said) = fsck(&server);
            found += usize::from(status == 1);
            assert!(status <= 1, "{} byte {at}: {said}", table.display());
            flip(&table, at);
        }
        assert!(found >= 4, "{}: {found} of 6 flipped bits were found", table.display());
    }
    check_clean(&server);

    // The state.
    flip(&server.data().join("state"), 30);
    flip(&server.data().join("state"), 4096 + 30);
    let (status, said) = fsck(&server);
    assert_eq!(status, 1);
    assert!(said["wrong"][0].as_str().unwrap().contains("state"), "{said}");
}

fn flip_bit_at(server: &Served, path: &str, offset: usize) {
    // The bytes around it are found by those behind.
    let (file, at) = place_of(server, path, offset + 1);
    flip(&file, at as u64 - 1);
}

#[test]
fn what_cannot_be_looked_at_is_another_exit_status() {
    let server = server(SETTINGS, "127.0.0.1:0");
    let say = |dir: &Path| {
        let output = frieze(&["fsck".as_ref(), dir.as_os_str()]).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (status, words) = say(&server.data());
    assert_eq!(status, Some(2), "{words}");
    assert!(words.contains("is in use by a running server (pid "), "{words}");
    let empty = server.local("empty");
    fs::create_dir(&empty).unwrap();
    let (status, words) = say(&empty);
    assert_eq!(status, Some(2), "{words}");
    assert!(words.contains("is no data directory"), "{words}");
    assert!(fs::read_dir(&empty).unwrap().next().is_none(), "nothing was made in it");
    let (status, words) = say(&server.local("nowhere"));
    assert_eq!(status, Some(2), "{words}");
    assert!(words.contains("no such file or directory") || words.contains("No such file"), "{words}");
    assert!(!server.local("nowhere").exists());
}
