//! Requests that make no sense, asked politely: paths, names and instants.

use std::fs;

use frieze_base::Reason;
use frieze_client::{Client, CreateMode, Error, HistoryInterval, Hlc, OpenFlags, RenameMode, Target, ZonePolicy};
use frieze_wire::message::{Open, Request, View};
use nix::errno::Errno;

use super::raw::Raw;
use super::{KEPT, check_well, get, put, server};
use crate::support::{Mount, client};

/// Everything that can be done with a path.
fn everything(client: &Client, path: &[u8]) -> Vec<(&'static str, Result<(), Error>)> {
    let fs = client.fs();
    let (target, kept) = (Target::path(path), Target::path("/kept"));
    let past = fs.at(client.now().unwrap());
    vec![
        ("stat", fs.stat(&target).map(drop)),
        ("stat then", past.stat(&target).map(drop)),
        ("list", fs.entries(&target).map(drop)),
        ("open", fs.open(&target, OpenFlags::READ).map(drop)),
        ("create", fs.create(&target, 0o644, CreateMode::OpenExisting).map(drop)),
        ("mkdir", fs.mkdir(&target, 0o755).map(drop)),
        ("symlink", fs.symlink(b"kept", &target).map(drop)),
        ("link", fs.link(&kept, &target).map(drop)),
        ("unlink", fs.unlink(&target).map(drop)),
        ("rmdir", fs.rmdir(&target).map(drop)),
        ("rename from", fs.rename(&target, &kept, RenameMode::Replace).map(drop)),
        ("rename to", fs.rename(&kept, &target, RenameMode::Replace).map(drop)),
        ("log", fs.log(&target, HistoryInterval::WHOLE, 0).map(drop)),
    ]
}

#[test]
fn a_path_that_cannot_be_one_is_refused_for_every_use() {
    let mut server = server("", "127.0.0.1:0");
    let client = client(&server.address);
    client.fs().mkdir(&Target::path("/d"), 0o755).unwrap();
    let long_name = format!("/d/{}", "n".repeat(256));
    let long_path = "/d".repeat(2049);
    for (path, reason, words) in [
        ("/d/../kept", Reason::InvalidArgument, "`..` is not allowed in a path"),
        ("..", Reason::InvalidArgument, "`..` is not allowed in a path"),
        ("/d/..", Reason::InvalidArgument, "`..` is not allowed in a path"),
        ("/kept\0", Reason::InvalidArgument, "a path holds no NUL"),
        ("/\0/kept", Reason::InvalidArgument, "a path holds no NUL"),
        (&long_name, Reason::NameTooLong, "255"),
        (&long_path, Reason::NameTooLong, "4096"),
    ] {
        for (name, done) in everything(&client, path.as_bytes()) {
            let error = done.expect_err(name);
            assert_eq!(error.reason(), reason, "{name} of {path:?}: {error}");
            assert!(error.to_string().contains(words), "{name} of {path:?}: {error}");
        }
    }
    // The longest name there is, and one that is no text.
    for name in [&[b'n'; 255][..], b"\xff\xfe \n\x01"] {
        let path = [b"/d/", name].concat();
        put(&client, &String::from_utf8_lossy(b"/d/x"), b"x");
        client.fs().rename(&Target::path("/d/x"), &Target::path(&path[..]), RenameMode::NoReplace).unwrap();
        assert_eq!(client.fs().entries(&Target::path("/d")).unwrap()[0].name, name);
        client.fs().unlink(&Target::path(&path[..])).unwrap();
    }
    check_well(&mut server);
}

#[test]
fn no_gateway_creates_the_name_dot_at() {
    let mut server = server("", "127.0.0.1:0");
    let client = client(&server.address);
    let at = client.now().unwrap();
    let view = client.fs();
    view.mkdir(&Target::path("/d"), 0o755).unwrap();
    let (here, below, kept) = (Target::path("/.at"), Target::path("/d/.at/"), Target::path("/kept"));
    for (what, done) in [
        ("mkdir", view.mkdir(&here, 0o755).map(drop)),
        ("mkdir below", view.mkdir(&below, 0o755).map(drop)),
        ("create", view.create(&here, 0o644, CreateMode::OpenExisting).map(drop)),
        ("symlink", view.symlink(b"kept", &here).map(drop)),
        ("link", view.link(&kept, &here).map(drop)),
        ("rename", view.rename(&kept, &here, RenameMode::Replace).map(drop)),
        ("exchange", view.rename(&here, &kept, RenameMode::Exchange).map(drop)),
    ] {
        let error = done.expect_err(what);
        assert_eq!(error.reason(), Reason::InvalidArgument, "{what}: {error}");
        assert!(error.to_string().contains("the name .at is reserved"), "{what}: {error}");
    }
    for command in
        [&["clone", "/d", "/.at"][..], &["mkdir", "/d/.at"], &["cp", "/kept", "/d/.at"], &["mv", "/kept", "/.at"]]
    {
        let said = server.fails(1, command);
        assert!(said.contains("the name .at is reserved"), "{command:?}: {said}");
    }
    if let Some(mount) = Mount::of(&server) {
        let mut names: Vec<_> = fs::read_dir(&mount.path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["d", "kept"]);
        assert_eq!(fs::read(mount.path(format!(".at/{at}/kept"))).unwrap(), KEPT);
        let errno = |done: std::io::Result<()>| done.unwrap_err().raw_os_error();
        assert_eq!(errno(fs::create_dir(mount.path(".at"))), Some(Errno::EEXIST as i32));
        assert_eq!(errno(fs::write(mount.path(".at/file"), "x")), Some(Errno::EROFS as i32));
        assert_eq!(errno(fs::write(mount.path(format!(".at/{at}/kept")), "x")), Some(Errno::EROFS as i32));
        assert_eq!(errno(fs::remove_dir(mount.path(".at"))), Some(Errno::EROFS as i32));
    }
    check_well(&mut server);
}

#[test]
fn the_past_cannot_be_changed_through_the_library_nor_by_hand() {
    let mut server = server("", "127.0.0.1:0");
    let client = client(&server.address);
    let now = client.now().unwrap();
    let past = client.fs().at(now);
    let kept = Target::path("/kept");
    for (name, done) in [
        ("open", past.open(&kept, OpenFlags::WRITE).map(drop)),
        ("mkdir", past.mkdir(&Target::path("/d"), 0o755).map(drop)),
        ("create", past.create(&Target::path("/f"), 0o644, CreateMode::Exclusive).map(drop)),
        ("unlink", past.unlink(&kept).map(drop)),
        ("rename", past.rename(&kept, &Target::path("/x"), RenameMode::Replace).map(drop)),
    ] {
        let error = done.expect_err(name);
        assert_eq!(error.reason(), Reason::ReadOnly, "{name}");
        assert!(error.to_string().contains("the past cannot be changed"), "{name}: {error}");
    }
    let mut raw = Raw::in_session(&server.addresses[1]);
    let view = View { at: Some(now.0), user_at: None };
    let open = Open { target: kept, view, read: true, write: true, made_at: 0 };
    assert_eq!(raw.ask(Request::Open(open)).unwrap_err().reason, Reason::ReadOnly);
    check_well(&mut server);
}

#[test]
fn an_instant_that_cannot_be_read_says_why() {
    let mut server = server("", "127.0.0.1:0");
    let client = client(&server.address);
    let now = client.clock().unwrap();
    let kept = Target::path("/kept");
    let hour = Hlc(now.at).micros() + 3_600_000_000;
    for at in [Hlc::last_of_micros(hour), Hlc(u64::MAX - 1), Hlc::MAX] {
        let fs = client.fs().at(at);
        for (name, done) in [
            ("stat", fs.stat(&kept).map(drop)),
            ("open", fs.open(&kept, OpenFlags::READ).map(drop)),
            ("list", fs.entries(&Target::path("/")).map(drop)),
            ("log", fs.log(&kept, HistoryInterval::WHOLE, 0).map(drop)),
        ] {
            let error = done.expect_err(name);
            assert_eq!(error.reason(), Reason::Future, "{name} at {at}: {error}");
            assert!(error.to_string().contains("future"), "{name} at {at}: {error}");
        }
    }
    let after = client.now().unwrap();
    assert!(after.micros() < hour, "to ask for the future does not bring it: {after}");
    put(&client, "/later", b"later");
    assert_eq!(get(&client, "/later"), b"later");

    let earliest = Hlc(now.earliest);
    for at in [Hlc::ZERO, Hlc(1), earliest.previous()] {
        let error = client.fs().at(at).stat(&kept).unwrap_err();
        assert_eq!(error.reason(), Reason::HistoryExpired, "at {at}: {error}");
        let words = error.to_string();
        assert!(words.contains("lies before the earliest instant") && words.contains(&earliest.to_string()), "{words}");
    }
    assert!(client.fs().at(earliest).entries(&Target::path("/")).unwrap().is_empty(), "the first instant is empty");

    for text in ["2026-99-99T00:00:00Z", "hlc-xyz", "@", "5 fortnights ago", "2026-01-01T00:00:00", ""] {
        let error = client.resolve(text, ZonePolicy::Refuse).expect_err(text);
        assert_eq!(error.reason(), Reason::InvalidInstant, "{text:?}: {error}");
    }
    let error = client.resolve("no-such-snapshot", ZonePolicy::Refuse).unwrap_err();
    assert_eq!(error.reason(), Reason::NotFound);
    assert!(error.to_string().contains("no-such-snapshot"), "{error}");
    check_well(&mut server);
}
