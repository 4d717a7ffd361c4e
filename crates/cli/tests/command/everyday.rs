//! Storing, reading, listing, copying, renaming, removing.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Stdio;

use serde_json::Value;

use crate::served::Served;

/// Bytes that differ from place to place.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8).collect()
}

#[test]
fn cat_and_get_return_the_bytes_that_were_put() {
    let server = Served::start();
    for len in [0, 1, 4096, (1 << 20) - 1, 1 << 20, (5 << 20) + 17] {
        let bytes = pattern(len);
        let local = server.local_file("in", &bytes);
        server.ok(&["put", &local, "/f"]);
        assert!(server.run(&["cat", "/f"]).bytes == bytes, "cat of {len} bytes");
        let out = server.local("out");
        server.ok(&["get", "/f", out.to_str().unwrap()]);
        assert!(fs::read(&out).unwrap() == bytes, "get of {len} bytes");
        assert!(server.run(&["get", "/f", "-"]).bytes == bytes, "get to standard output of {len} bytes");
    }
}

#[test]
fn standard_input_is_a_source_and_an_append_adds_to_the_end() {
    let server = Served::start();
    server.put("/f", "one\n");
    assert_eq!(server.run_with(&["put", "--append", "-", "/f"], b"two\n").ok(), "");
    assert_eq!(server.ok(&["cat", "/f"]), "one\ntwo\n");
    server.put("/f", "short\n");
    assert_eq!(server.ok(&["cat", "/f", "/f"]), "short\nshort\n");
}

#[test]
fn an_error_names_the_missing_path_on_either_side() {
    let server = Served::start();
    server.put("/f", "x");
    let local = server.local("local");
    std::fs::write(&local, "y").unwrap();
    let local = local.to_str().unwrap();
    for (args, subject) in [
        (&["put", local, "/no/where/f"][..], "/no"),
        (&["cp", "/f", "/no/f"], "/no"),
        (&["mv", "/f", "/no/f"], "/no"),
        (&["mv", "/none", "/g"], "/none"),
        (&["ln", "/f", "/no/f"], "/no"),
        (&["ln", "/none", "/g"], "/none"),
        (&["ln", "-s", "x", "/no/g"], "/no"),
        (&["cp", "/none", "/no/f"], "/none"),
        (&["get", "/none", local], "/none"),
    ] {
        let said = server.fails(1, args);
        assert_eq!(said.trim_end(), format!("frieze: {}: {subject}: no such file or directory", args[0]), "{args:?}");
    }
    let absent = server.local("absent");
    let said = server.fails(1, &["get", "/f", absent.join("f").to_str().unwrap()]);
    assert!(said.contains(&format!("get: {}: no such file", absent.display())), "{said}");
}

#[test]
fn an_atomic_put_replaces_the_file_and_keeps_its_mode() {
    let server = Served::start();
    let local = server.local_file("a", "new");
    for args in [&["put", "--atomic", local.as_str(), "/f"][..], &["put", "--atomic", local.as_str(), "/"]] {
        server.ok(args);
    }
    assert_eq!(server.ok(&["ls", "/"]), "a\nf\n", "nothing temporary is left");
    assert_eq!(server.ok(&["cat", "/a", "/f"]), "newnew");
}

#[test]
fn a_quota_is_shown_set_and_kept() {
    let server = Served::start();
    server.ok(&["mkdir", "/q"]);
    server.put("/q/f", "four");
    assert_eq!(
        server.ok(&["quota", "/q"]),
        "FILES  OF  BYTES  OF  KEPT  OF  PATH\n    -   -      -   -     -   -  /q\n"
    );
    if !nix::unistd::geteuid().is_root() {
        let refused = server.fails(1, &["quota", "/q", "--files", "9"]);
        assert!(refused.contains("only the superuser"), "{refused}");
        return;
    }
    server.ok(&["quota", "/q", "--files", "2", "--bytes", "1K"]);
    let shown = server.ok(&["quota", "/q"]);
    assert!(shown.contains("    2   2      4  1.0K") && shown.contains("2.0K  /q\n"), "{shown}");
    let refused = server.fails(1, &["mkdir", "/q/g"]);
    assert!(refused.contains("may hold 2 files, and holds 2"), "{refused}");
    server.ok(&["quota", "/q", "--files", "none", "--bytes", "4"]);
    let one = server.local_file("one", "x");
    let refused = server.fails(1, &["put", "--append", &one, "/q/f"]);
    assert!(refused.contains("may hold 4 bytes, and holds 4"), "{refused}");
    // What is kept is counted in the background.
    let mut shown = (0..2000).map(|_| server.json(&["--json", "quota", "/q"]).remove(0));
    let counted = shown.find(|shown| !shown["kept"].is_null()).expect("it is counted");
    assert_eq!(
        counted,
        serde_json::json!({
            "path": "/q", "files": 2, "files_max": null, "bytes": 4, "bytes_max": 4, "kept": 4, "kept_max": 8
        })
    );
    let other = server.local_file("other", "five");
    server.ok(&["put", &other, "/q/f"]);
    let refused = server.fails(1, &["put", &other, "/q/f"]);
    assert!(refused.contains("take 8 bytes with their history, of at most 8"), "{refused}");
    server.ok(&["quota", "/q", "--kept", "1K"]);
    server.ok(&["put", &other, "/q/f"]);
    server.ok(&["quota", "/q", "--bytes", "none"]);
    assert_eq!(server.json(&["--json", "quota", "/q"])[0]["kept_max"], 1024, "it has a bound of its own");
    server.ok(&["quota", "/q", "--kept", "none"]);
    server.put("/q/g", "x");
    assert!(server.fails(1, &["quota", "/q/g"]).contains("not a directory"));
    assert!(server.fails(2, &["quota", "/q", "--bytes", "4X"]).contains("it is a size such as"));
}

#[test]
fn trees_go_in_and_come_out_as_they_were() {
    let server = Served::start();
    let tree = server.local("tree");
    fs::create_dir_all(tree.join("a/b")).unwrap();
    fs::write(tree.join("a/b/file"), pattern(3 << 20)).unwrap();
    fs::write(tree.join("a/empty"), "").unwrap();
    fs::write(tree.join("run"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(tree.join("run"), fs::Permissions::from_mode(0o750)).unwrap();
    std::os::unix::fs::symlink("a/b/file", tree.join("link")).unwrap();

    server.ok(&["put", "-r", "-p", tree.to_str().unwrap(), "/t"]);
    assert_eq!(
        server.ok(&["ls", "-R", "/t"]),
        "/t:\na\nlink\nrun\n\n/t/a:\nb\nempty\n\n/t/a/b:\nfile\n",
        "directories in the order of their names"
    );
    server.ok(&["cp", "-r", "-p", "/t", "/copy"]);
    let back = server.local("back");
    server.ok(&["get", "-r", "-p", "/copy", back.to_str().unwrap()]);
    assert!(fs::read(back.join("a/b/file")).unwrap() == pattern(3 << 20));
    assert_eq!(fs::read(back.join("a/empty")).unwrap(), b"");
    assert_eq!(fs::read_link(back.join("link")).unwrap().to_str(), Some("a/b/file"));
    let (was, is) = (fs::metadata(tree.join("run")).unwrap(), fs::metadata(back.join("run")).unwrap());
    assert_eq!((is.mode(), is.mtime()), (was.mode(), was.mtime()));
    assert_eq!(is.mtime_nsec(), was.mtime_nsec());

    // Into a directory that is there, a tree keeps its name.
    server.ok(&["mkdir", "/into"]);
    server.ok(&["put", "-r", tree.to_str().unwrap(), "/into"]);
    assert_eq!(server.ok(&["ls", "/into"]), "tree\n");

    server.ok(&["rm", "-r", "/t", "/into"]);
    assert_eq!(server.ok(&["ls"]), "copy\n");
}

#[test]
fn holes_stay_holes_on_the_way_in_and_out() {
    let server = Served::start();
    let local = server.local("sparse");
    let file = fs::File::create(&local).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"middle", 8 << 20).unwrap();
    file.set_len(16 << 20).unwrap();
    server.ok(&["put", local.to_str().unwrap(), "/sparse"]);
    let stat = &server.json(&["stat", "--json", "/sparse"])[0];
    assert_eq!(stat["size"], 16 << 20);
    assert!(stat["bytes_live"].as_u64().unwrap() < 1 << 20, "{stat}");
    let out = server.local("out");
    server.ok(&["get", "/sparse", out.to_str().unwrap()]);
    let read = fs::read(&out).unwrap();
    assert!(read.len() == 16 << 20 && &read[8 << 20..][..6] == b"middle");
    assert!(read.iter().filter(|byte| **byte != 0).count() == 6);
    assert!(fs::metadata(&out).unwrap().blocks() * 512 < 1 << 20, "the copy has holes too");
}

#[test]
fn a_listing_tells_kind_mode_owner_size_and_time_of_each_name() {
    let server = Served::start();
    server.put("/file", "12345");
    server.ok(&["mkdir", "-m", "700", "/dir"]);
    server.ok(&["ln", "-s", "file", "/soft"]);
    server.ok(&["ln", "/file", "/hard"]);
    let long = server.ok(&["ls", "-l", "/"]);
    let columns: Vec<Vec<&str>> = long.lines().map(|line| line.split_whitespace().collect()).collect();
    let names: Vec<&str> = columns.iter().map(|row| row[6]).collect();
    assert_eq!(names, ["dir", "file", "hard", "soft"]);
    assert_eq!(columns[0][0], "drwx------");
    assert_eq!((columns[1][1], columns[1][4]), ("2", "5"), "{long}");
    assert!(long.ends_with("soft -> file\n"), "{long}");

    let items = server.json(&["ls", "--json", "/"]);
    let kinds: Vec<&Value> = items.iter().map(|item| &item["kind"]).collect();
    assert_eq!(kinds, ["directory", "file", "file", "symlink"]);
    assert_eq!(items[1]["inode"], items[2]["inode"]);
    assert_eq!((&items[3]["target"], &items[3]["path"]), (&Value::from("file"), &Value::from("/soft")));
    assert!(items[0].get("answered").is_none(), "now is not the past");

    // The time that a listing shows names a state that holds the write.
    assert_eq!(server.cat_at("/file", columns[1][5]), "12345");
}

#[test]
fn names_move_swap_and_go_away() {
    let server = Served::start();
    server.put("/a", "a");
    server.put("/b", "b");
    server.ok(&["mv", "--exchange", "/a", "/b"]);
    assert_eq!(server.ok(&["cat", "/a", "/b"]), "ba");
    let refused = server.fails(1, &["mv", "-n", "/a", "/b"]);
    assert_eq!(refused, "frieze: mv: /b: already exists\n");
    server.ok(&["mkdir", "-p", "/d/e/f"]);
    server.ok(&["mkdir", "-p", "/d/e/f"]);
    server.ok(&["mv", "/a", "/b", "/d/e"]);
    assert_eq!(server.ok(&["ls", "/d/e"]), "a\nb\nf\n");
    server.ok(&["mv", "/d", "/moved"]);
    assert_eq!(server.ok(&["cat", "/moved/e/b"]), "a");
    server.ok(&["rm", "/moved/e/a", "/moved/e/b"]);
    server.ok(&["rm", "-f", "/moved/e/a"]);
    server.ok(&["rm", "-r", "/moved"]);
    assert_eq!(server.ok(&["ls"]), "");
}

#[test]
fn du_counts_bytes_that_hold_data_once_for_each_file() {
    let server = Served::start();
    server.ok(&["mkdir", "-p", "/d/below"]);
    server.put("/d/one", pattern(1000));
    server.put("/d/below/two", pattern(10));
    server.ok(&["ln", "/d/one", "/d/below/again"]);
    let items = server.json(&["du", "--json", "/d"]);
    let sums: Vec<(&str, u64)> =
        items.iter().map(|item| (item["path"].as_str().unwrap(), item["size"].as_u64().unwrap())).collect();
    assert_eq!(sums.last(), Some(&("/d", 1010)), "{items:?}");
    assert_eq!(items.last().unwrap()["files"], 2);
    let text = server.ok(&["du", "-s", "--apparent-size", "/d"]);
    assert_eq!(text.split_whitespace().collect::<Vec<_>>(), ["1010", "/d"]);
}

#[test]
fn status_says_how_the_server_is() {
    let server = Served::start();
    server.put("/f", "x");
    let items = server.json(&["status", "--json"]);
    let [status] = &items[..] else { panic!("one document: {items:?}") };
    assert_eq!(status["healthy"], true, "{status}");
    assert_eq!(status["server"], server.address.as_str());
    // Null where nothing disciplines the clock of the machine: then the error is unknown.
    assert!(status["clock_error_us"].is_u64() || status["clock_error_us"].is_null(), "{status}");
    for field in ["dirty_bytes", "capacity_bytes", "free_bytes", "records", "inodes", "cpu_ns"] {
        assert!(status[field].is_u64(), "{field} of {status}");
    }
    let stamps: Vec<&str> = ["earliest", "newest"].map(|name| status[name].as_str().unwrap()).to_vec();
    assert!(stamps.is_sorted(), "{stamps:?}");
    assert!(server.ok(&["status"]).lines().next().unwrap().trim_start().starts_with("health  healthy"));
}

#[test]
fn every_command_that_changes_something_tells_what_it_did_as_json() {
    let server = Served::start();
    let local = server.local_file("l", "123");
    let moved = &server.json(&["put", "--json", &local, "/f"])[0];
    assert_eq!(moved.to_string(), format!(r#"{{"from":"{local}","to":"/f","kind":"file","bytes":3}}"#));
    assert_eq!(
        server.ok(&["cp", "--json", "/f", "/g"]),
        "{\"from\":\"/f\",\"to\":\"/g\",\"kind\":\"file\",\"bytes\":3}\n"
    );
    assert_eq!(server.ok(&["mv", "--json", "/g", "/h"]), "{\"from\":\"/g\",\"to\":\"/h\"}\n");
    assert_eq!(server.ok(&["rm", "--json", "/h"]), "{\"path\":\"/h\",\"kind\":\"file\"}\n");
    assert_eq!(server.json(&["mkdir", "--json", "-p", "/x/y"]).len(), 2);
    assert_eq!(server.json(&["cat", "--json", "/f"])[0]["text"], "123");
    assert_eq!(
        server.ok(&["ln", "--json", "-s", "t", "/s"]),
        "{\"target\":\"t\",\"name\":\"/s\",\"kind\":\"symbolic\"}\n"
    );
}

#[test]
fn a_closed_output_ends_the_command_without_a_message() {
    let server = Served::start();
    let local = server.local_file("big", pattern(8 << 20));
    server.ok(&["put", &local, "/big"]);
    let mut child = server.command(&["cat", "/big"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 10];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), ended.stderr.as_slice()), (Some(0), b"".as_slice()));
}
