//! Data directories that are not what they should be.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use frieze_base::{Reason, crc32c};
use frieze_client::{Client, Options, Target};
use frieze_testkit::wait::eventually;
use nix::sys::signal::Signal;

use super::{check_well, get, put, server};
use crate::support::client;
use crate::support::served::{Said, Served, frieze};

/// Length of each of the two slots of the `state` file.
const SLOT: usize = 4096;

/// The server does not start, says why in one line, and leaves everything as it is.
fn check_refused(server: &Served, words: &[&str]) {
    let before = listing(&server.data());
    let said = server.serve_in_vain();
    assert_eq!((said.status, said.out().as_str()), (1, ""), "{}", said.err);
    let line = said.err.lines().last().unwrap();
    assert!(line.starts_with("frieze: serve: "), "{line}");
    for word in words {
        assert!(line.contains(word), "{line:?} should name {word:?}");
    }
    assert_eq!(listing(&server.data()), before);
}

fn listing(directory: &Path) -> Vec<(String, u64)> {
    let mut listing: Vec<(String, u64)> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap())
        // What a server that runs there makes for a moment may go in between.
        .filter_map(|entry| Some((entry.file_name().into_string().unwrap(), entry.metadata().ok()?.len())))
        .filter(|(name, _)| name != "lock")
        .collect();
    listing.sort();
    listing
}

/// A state file to whose record a field is added: the last value of a field counts.
fn with_field(whole: &[u8], field: &[u8]) -> Vec<u8> {
    let mut other = whole.to_vec();
    let mut changed = 0;
    for slot in other.chunks_mut(SLOT).filter(|slot| slot.starts_with(b"FRZS")) {
        let len = u32::from_le_bytes(slot[4..8].try_into().unwrap()) as usize;
        slot[20 + len..20 + len + field.len()].copy_from_slice(field);
        let len = len + field.len();
        slot[4..8].copy_from_slice(&(len as u32).to_le_bytes());
        let crc = crc32c(&[&slot[..16], &slot[20..20 + len]].concat());
        slot[16..20].copy_from_slice(&crc.to_le_bytes());
        changed += 1;
    }
    assert!(changed > 0);
    other
}

#[test]
fn a_directory_of_another_format_or_of_an_unreleased_build_is_refused_with_what_to_do() {
    let mut server = server("", "127.0.0.1:0");
    assert_eq!(server.end(Signal::SIGTERM), Some(0));
    let path = server.data().join("state");
    let whole = fs::read(&path).unwrap();
    // Tag 20 is the format version; tags 1 and 19 were it in earlier builds.
    fs::write(&path, with_field(&whole, &[0xa0, 0x01, 2])).unwrap();
    check_refused(&server, &["format version 2", "this server reads 1"]);
    for field in [&[0x08, 5][..], &[0x98, 0x01, 1]] {
        fs::write(&path, with_field(&whole, field)).unwrap();
        let dir = server.data().display().to_string();
        check_refused(&server, &[&dir, "older, unreleased build", "with the build that made it"]);
    }
    fs::write(&path, &whole).unwrap();
    server.start_again();
    check_well(&mut server);
}

#[test]
fn a_directory_with_a_damaged_or_missing_state_is_refused_and_not_formatted() {
    let mut server = server("", "127.0.0.1:0");
    assert_eq!(server.end(Signal::SIGTERM), Some(0));
    let path = server.data().join("state");
    let whole = fs::read(&path).unwrap();
    fs::write(&path, vec![0x5a; whole.len()]).unwrap();
    check_refused(&server, &["state", "neither of its two slots is whole"]);
    fs::remove_file(&path).unwrap();
    check_refused(&server, &["but no state file", "restore the file or use an empty directory"]);
    fs::write(&path, b"").unwrap();
    check_refused(&server, &["state"]);
    // The newer slot is torn, as by a crash: the older one is good.
    let generation = |slot: &[u8]| u64::from_le_bytes(slot[8..16].try_into().unwrap());
    let slots: Vec<&[u8]> = whole.chunks(SLOT).collect();
    let newer = if generation(slots[0]) > generation(slots[1]) { 0 } else { 1 };
    let mut torn = whole.clone();
    torn[newer * SLOT + 30..newer * SLOT + 40].fill(0xff);
    fs::write(&path, &torn).unwrap();
    server.start_again();
    check_well(&mut server);
}

#[test]
fn foreign_files_stay_untouched() {
    let mut server = server("", "127.0.0.1:0");
    assert_eq!(server.end(Signal::SIGTERM), Some(0));
    let data = server.data();
    for name in ["notes.txt", "seg-notes", "lost+found", "meta-notes"] {
        fs::write(data.join(name), name).unwrap();
    }
    server.start_again();
    check_well(&mut server);
    for name in ["notes.txt", "seg-notes", "lost+found", "meta-notes"] {
        assert_eq!(fs::read_to_string(data.join(name)).unwrap(), name);
    }
}

#[test]
fn a_copy_of_a_segment_under_another_name_is_refused_and_nothing_is_changed() {
    let mut server = server("", "127.0.0.1:0");
    assert_eq!(server.end(Signal::SIGTERM), Some(0));
    let copy = server.data().join("seg-00000000000000ff");
    fs::copy(first_segment(&server.data()), &copy).unwrap();
    check_refused(&server, &["files 1 and 255 both hold segment 1", "one is a copy"]);
    fs::remove_file(&copy).unwrap();
    server.start_again();
    check_well(&mut server);
}

fn first_segment(data: &Path) -> std::path::PathBuf {
    let mut names: Vec<_> = fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    names.into_iter().find(|path| path.file_name().unwrap().to_str().unwrap().starts_with("seg-0")).unwrap()
}

#[test]
fn a_segment_of_another_format_version_is_refused_and_kept() {
    let mut server = server("", "127.0.0.1:0");
    assert_eq!(server.end(Signal::SIGTERM), Some(0));
    let path = first_segment(&server.data());
    let whole = fs::read(&path).unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let mut header = whole[..64].to_vec();
    header[4] = 9;
    let crc = crc32c(&header[..60]);
    header[60..].copy_from_slice(&crc.to_le_bytes());
    file.write_all_at(&header, 0).unwrap();
    check_refused(&server, &["version 9", "segment"]);
    file.write_all_at(&whole[..64], 0).unwrap();
    server.start_again();
    check_well(&mut server);
}

#[test]
fn a_directory_in_use_is_refused_with_the_process_that_uses_it() {
    let mut server = server("", "127.0.0.1:0");
    let status = fs::read_to_string(server.data().join("lock")).unwrap();
    // The one that runs makes what it keeps ready, and then nothing.
    eventually("the segments kept ready", || {
        let names: Vec<String> = listing(&server.data()).into_iter().map(|(name, _)| name).collect();
        let has = |name: &str| names.iter().any(|one| one == name);
        let ready = ["seg-0000000000000001", "spare-segment", "spare-segment-2"].into_iter().all(has);
        (ready && !has(".making")).then_some(())
    });
    check_refused(&server, &["in use by a running server", status.trim()]);
    check_well(&mut server);
}

#[test]
fn a_directory_in_the_place_of_a_checkpoint_is_named_and_the_start_goes_on() {
    let mut server = server("", "127.0.0.1:0");
    put(&client(&server.address), "/kept", b"kept");
    assert_eq!(server.end(Signal::SIGTERM), Some(0));
    let places = ["checkpoint-unfinished", "checkpoint-00000000000000ff"];
    for name in places {
        fs::create_dir(server.data().join(name)).unwrap();
    }
    let said: Said = frieze(&["fsck"]).arg(server.data()).output().unwrap().into();
    assert_eq!(said.status, 0, "{}", said.out());
    let log = said.out().to_lowercase();
    server.start_again();
    for name in places {
        let is_named = log.lines().any(|line| line.contains(name) && line.contains("remove it"));
        assert!(is_named, "{name}: {log}");
    }
    assert_eq!(get(&client(&server.address), "/kept"), b"kept");
}

#[test]
fn a_file_cannot_be_served_as_a_directory() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    fs::write(&file, "not a directory").unwrap();
    let serve = |dir: &Path| -> Said {
        frieze(&["serve", "--listen", "127.0.0.1:0", "--dir"]).arg(dir).output().unwrap().into()
    };
    for (dir, words) in [
        (file.clone(), "not a directory"),
        (place.path().join("missing/below"), "no such file or directory"),
        (file.join("below"), "not a directory"),
    ] {
        let said = serve(&dir);
        assert_eq!(said.status, 1, "{}", said.err);
        let line = said.err.lines().last().unwrap().to_lowercase();
        assert!(line.starts_with("frieze: serve: ") && line.contains(words), "{line}");
        assert!(line.contains(&dir.display().to_string().to_lowercase()), "{line}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "not a directory");
}

#[test]
fn a_directory_with_other_things_in_it_is_refused_and_left_as_it_was() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("thesis.tex"), "x").unwrap();
    let said: Said = frieze(&["serve", "--listen", "127.0.0.1:0", "--dir"]).arg(place.path()).output().unwrap().into();
    assert_eq!(said.status, 1, "{}", said.err);
    assert!(
        said.err.contains("neither empty nor a data directory of frieze, for it holds \"thesis.tex\""),
        "{}",
        said.err
    );
    let names: Vec<_> = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["thesis.tex"]);
}

#[test]
fn nothing_below_a_data_directory_is_for_others_whatever_the_mode_of_the_directory_and_of_what_was_made_before() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).unwrap();
    let mut server = Served::on(&data, "", "127.0.0.1:0");
    put(&client(&server.address), "/kept", b"kept");
    // Everything that a stop writes is there, too.
    server.end(Signal::SIGTERM);
    let loose = || -> Vec<PathBuf> {
        let (mut loose, mut left) = (Vec::new(), vec![data.clone()]);
        while let Some(directory) = left.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let (path, of) = entry.map(|entry| (entry.path(), entry.metadata().unwrap())).unwrap();
                if of.is_dir() {
                    left.push(path.clone());
                }
                if !of.file_type().is_socket() && of.permissions().mode() & 0o077 != 0 {
                    loose.push(path);
                }
            }
        }
        loose
    };
    assert_eq!(loose(), Vec::<PathBuf>::new());
    for name in ["state", "namespace"] {
        let path = data.join(name);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode | 0o055)).unwrap();
    }
    assert_eq!(loose().len(), 2);
    server.start_again();
    assert_eq!((loose(), get(&client(&server.address), "/kept")), (Vec::new(), b"kept".to_vec()));
}

#[test]
fn the_root_of_a_new_file_system_is_its_owners_to_write() {
    let server = Served::start();
    let attr = client(&server.address).fs().stat(&Target::path("/")).unwrap().attr;
    assert_eq!((attr.mode & 0o7777, attr.uid), (0o755, rustix::process::geteuid().as_raw()));
}

#[test]
fn a_client_of_one_cluster_does_not_talk_to_another_at_the_same_address() {
    let mut server = server("", "127.0.0.1:0");
    let server_at = server.address.parse().unwrap();
    let timeout = std::time::Duration::from_secs(5);
    let mine = Client::connect(Options { server: server_at, timeout, ..Options::default() }).unwrap();
    mine.fs().mkdir(&Target::path("/mine"), 0o755).unwrap();
    assert_eq!(server.end(Signal::SIGTERM), Some(0));
    fs::rename(server.data(), server.local("mine")).unwrap();
    server.start_again();
    let error = mine.fs().mkdir(&Target::path("/mine"), 0o755).unwrap_err();
    assert_eq!(error.reason(), Reason::WrongCluster, "{error}");
    let words = error.to_string();
    assert!(words.contains("this server belongs to cluster") && words.contains(&mine.hello().cluster), "{words}");
    let other = client(&server.address);
    assert!(other.fs().entries(&Target::path("/")).unwrap().is_empty(), "nothing was made there");
}
