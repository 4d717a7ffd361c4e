//! `chmod`, `chown`, `touch`, `rmdir`, and names as scripts want them.

use frieze_harness::requirements;
use serde_json::Value;

use crate::served::Served;

fn stat(server: &Served, path: &str) -> Value {
    serde_json::from_str(&server.ok(&["stat", "--json", path])).unwrap()
}

fn mode(server: &Served, path: &str) -> String {
    stat(server, path)["mode"].as_str().unwrap().to_owned()
}

#[test]
fn chmod_changes_files_and_trees_and_leaves_the_past() {
    let server = Served::start();
    server.ok(&["mkdir", "-p", "/d/e"]);
    server.put("/d/e/f", "x");
    server.ok(&["chmod", "0640", "/d/e/f"]);
    assert_eq!(mode(&server, "/d/e/f"), "0640");
    let before = server.ok(&["now"]).trim().to_owned();
    server.ok(&["ln", "-s", "f", "/d/e/link"]);
    server.ok(&["chmod", "-w,+x", "/d/e/link"]);
    assert_eq!(mode(&server, "/d/e/f"), "0551", "a link stands for what it names");
    server.ok(&["chmod", "-R", "u=rwX,go=", "/d"]);
    assert_eq!(["/d", "/d/e", "/d/e/f"].map(|path| mode(&server, path)), ["0700"; 3]);
    let then: Value = serde_json::from_str(&server.ok(&["stat", "--json", "--at", &before, "/d/e/f"])).unwrap();
    assert_eq!(then["mode"], "0640");
    let said = server.fails(2, &["chmod", "u+q", "/d"]);
    assert!(said.contains("mode u+q: write it in octal, such as 755, or as changes"), "{said}");
    let said = server.fails(1, &["chmod", "600", "/none", "/d/e/f"]);
    assert_eq!(said.trim_end(), "frieze: chmod: /none: no such file or directory");
    assert_eq!(mode(&server, "/d/e/f"), "0600", "the others are done");
}

#[test]
fn chown_takes_numbers_and_names_and_only_root_gives_away() {
    let server = Served::start();
    server.ok(&["mkdir", "/d"]);
    server.put("/d/f", "x");
    let owner = |path: &str| {
        let stat = stat(&server, path);
        (stat["uid"].as_u64().unwrap(), stat["gid"].as_u64().unwrap())
    };
    let (uid, gid) = owner("/d/f");
    server.ok(&["chown", &format!("{uid}:{gid}"), "/d/f"]);
    if nix::unistd::geteuid().is_root() {
        server.ok(&["chown", "-R", "7:9", "/d"]);
        assert_eq!([owner("/d"), owner("/d/f")], [(7, 9); 2]);
        server.ok(&["chown", ":root", "/d/f"]);
        assert_eq!(owner("/d/f"), (7, 0));
        server.ok(&["chown", "root:", "/d/f"]);
        assert_eq!(owner("/d/f"), (0, 0));
    } else {
        server.fails(1, &["chown", &(uid + 1).to_string(), "/d/f"]);
    }
    let said = server.fails(2, &["chown", "nobody-of-this-name", "/d/f"]);
    assert!(said.contains("no such user here; give the number"), "{said}");
}

#[test]
fn touch_creates_missing_files_and_sets_times() {
    let server = Served::start();
    server.ok(&["touch", "/f", "/g"]);
    assert_eq!(stat(&server, "/f")["size"], 0);
    server.put("/f", "kept");
    server.ok(&["touch", "-d", "2001-02-03T04:05:06Z", "/f", "/new"]);
    for path in ["/f", "/new"] {
        let stat = stat(&server, path);
        for time in ["mtime", "atime"] {
            assert!(stat[time].as_str().unwrap().starts_with("2001-02-03T04:05:06"), "{path}: {stat}");
        }
    }
    assert_eq!(server.ok(&["cat", "/f"]), "kept");
    server.ok(&["touch", "-m", "/f"]);
    let (mtime, atime) = (stat(&server, "/f")["mtime"].clone(), stat(&server, "/f")["atime"].clone());
    assert!(mtime.as_str().unwrap().starts_with("20") && !mtime.as_str().unwrap().starts_with("2001"), "{mtime}");
    assert!(atime.as_str().unwrap().starts_with("2001"), "{atime}");
    server.ok(&["touch", "-c", "/absent"]);
    server.fails(1, &["stat", "/absent"]);
    let said = server.fails(1, &["touch", "/no/where"]);
    assert!(said.contains("/no") && said.contains("no such file or directory"), "{said}");
}

#[test]
fn rmdir_removes_empty_directories_and_parents_if_asked() {
    let server = Served::start();
    server.ok(&["mkdir", "-p", "/a/b/c", "/x/y"]);
    server.put("/x/f", "x");
    let said = server.fails(1, &["rmdir", "/x", "/a/b/c"]);
    assert_eq!(said.trim_end(), "frieze: rmdir: /x: directory not empty");
    assert_eq!(server.ok(&["ls", "/a/b"]), "");
    server.ok(&["rmdir", "-p", "/a/b"]);
    server.fails(1, &["rmdir", "-p", "/x/y"]);
    assert_eq!(server.ok(&["ls", "-R", "/"]), "/:\nx\n\n/x:\nf\n");
    assert_eq!(server.fails(1, &["rmdir", "/x/f"]).trim_end(), "frieze: rmdir: /x/f: not a directory");
    assert!(server.fails(2, &["rmdir", "/"]).contains("/ cannot be removed"));
}

#[test]
fn names_are_listed_as_they_are_for_programs_and_sizes_as_people_read_them() {
    let server = Served::start();
    server.ok(&["mkdir", "/d"]);
    server.put("/d/two\nlines", "x".repeat(5000));
    assert_eq!(server.run(&["ls", "-0", "/d"]).bytes, b"two\nlines\0");
    assert_eq!(server.run(&["ls", "-R", "-0", "/"]).bytes, b"/d\0/d/two\nlines\0");
    for args in [&["ls", "-lh", "/d"][..], &["du", "-sh", "/d"]] {
        assert!(server.ok(args).contains("4.9K"), "{args:?}: {}", server.ok(args));
    }
    assert!(server.ok(&["ls", "--help"]).contains("--human"));
}

#[test]
fn intervals_are_spelled_one_way() {
    let server = Served::start();
    let before = server.now();
    server.put("/two\nlines", "x");
    server.put("/f", "x");
    let after = server.now();
    server.put("/later", "x");
    assert_eq!(server.run(&["find", "/", "--from", &before, "--to", &after, "-0"]).bytes, b"/f\0/two\nlines\0");
    for (args, words) in [
        (&["log", "/f", "--since", "now"][..], "--since INSTANT is --from INSTANT now"),
        (&["log", "/f", "--until", "now"], "--until INSTANT is --to INSTANT now"),
        (&["find", "--changed-since", "now"], "--changed-since INSTANT is --from INSTANT now"),
        (&["find", "--changed-between", "now", "now"], "is --from INSTANT --to INSTANT now"),
        (&["sessions", "--since", "now"], "--since INSTANT is --from INSTANT now"),
        (&["find", "/"], "say when: --from INSTANT, and --to INSTANT if not up to now"),
    ] {
        let said = server.fails(2, args);
        assert!(said.contains(words), "{args:?}: {said}");
    }
}

#[test]
fn df_says_what_can_be_written() {
    let server = Served::start();
    server.ok(&["mkdir", "/q"]);
    let room = |path: &str| -> Value { serde_json::from_str(&server.ok(&["df", "--json", path])).unwrap() };
    let (status, root): (Value, Value) = (serde_json::from_str(&server.ok(&["status", "--json"])).unwrap(), room("/"));
    let near = |found: &Value, wanted: &Value| {
        let (found, wanted) = (found.as_f64().unwrap(), wanted.as_f64().unwrap());
        // Others use the disk, too.
        assert!((found - wanted).abs() < wanted / 10.0 + 1e8, "{found} {wanted}");
    };
    near(&root["bytes_free"], &status["free_bytes"]);
    assert_eq!(root["bytes"], root["bytes_used"].as_u64().unwrap() + root["bytes_free"].as_u64().unwrap());
    if requirements::root() {
        server.ok(&["quota", "/q", "--bytes", "1M", "--files", "3"]);
        server.put("/q/f", "x".repeat(256 << 10));
        let below = room("/q/f");
        assert_eq!((&below["bytes"], &below["bytes_free"]), (&Value::from(1 << 20), &Value::from(3 << 18)));
        assert_eq!((&below["inodes"], &below["inodes_free"]), (&Value::from(3), &Value::from(1)));
        let said = server.ok(&["df", "-h", "/q"]);
        assert_eq!(said, "SIZE  USED  AVAIL  USE%  PATH\n1.0M  256K   768K   25%  /q\n");
    }
    assert_eq!(server.fails(1, &["df", "/none"]).trim_end(), "frieze: df: /none: no such file or directory");
}
