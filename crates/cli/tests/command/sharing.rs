//! `clone`, `restore` and `undo`, as a person uses them.

use crate::served::{Served, lines_of_json};

/// The session that wrote a file last.
fn writer(server: &Served, path: &str) -> String {
    let versions = server.json(&["log", "--json", path]);
    versions.first().unwrap()["session"].as_str().unwrap().to_owned()
}

#[test]
fn a_clone_of_an_older_tree_is_made_in_the_directory_named() {
    let server = Served::start();
    server.ok(&["mkdir", "-p", "/a/b", "/into"]);
    server.put("/a/b/f", "then");
    let then = server.now();
    server.put("/a/b/f", "now");
    assert!(server.ok(&["clone", "--dry-run", "/a", "/into", "--at", &then]).contains("/into/a/b/f"));
    assert!(server.names_at("/into", &server.now()).is_empty(), "a dry run makes nothing");
    let lines = server.json(&["clone", "--json", "/a", "/into", "--at", &then]);
    let (summary, made) = lines.split_last().unwrap();
    assert_eq!((made.len(), summary["at"].as_str()), (3, Some(then.as_str())));
    assert_eq!(server.ok(&["cat", "/into/a/b/f"]), "then");
    server.put("/into/a/b/f", "its own way");
    assert_eq!(server.ok(&["cat", "/a/b/f"]), "now");
    assert!(server.fails(1, &["clone", "/a", "/into"]).contains("already exists"));
}

#[test]
fn a_directory_deleted_by_mistake_comes_back() {
    let server = Served::start();
    server.ok(&["mkdir", "-p", "/project/src"]);
    server.put("/project/src/main", "fn main");
    server.put("/project/notes", "first");
    let then = server.now();
    server.ok(&["rm", "-r", "/project/src"]);
    server.put("/project/notes", "second");
    server.put("/project/new", "kept");
    let before = server.now();
    let plan = server.ok(&["restore", "/project", "--to", &then, "--dry-run"]);
    assert!(plan.contains("bring back  /project/src") && plan.contains("bytes       /project/notes"), "{plan}");
    assert_eq!(server.ok(&["cat", "/project/notes"]), "second");
    server.ok(&["restore", "/project", "--to", &then]);
    assert_eq!(server.ok(&["cat", "/project/src/main", "/project/notes", "/project/new"]), "fn mainfirstkept");
    assert_eq!(server.cat_at("/project/notes", &before), "second");
    // A path that is gone is named as it was.
    server.ok(&["rm", "-r", "/project/src"]);
    server.ok(&["restore", "/project/src", "--to", &then]);
    assert_eq!(server.ok(&["cat", "/project/src/main"]), "fn main");
    server.ok(&["restore", "/project", "--to", &then, "--delete"]);
    assert_eq!(server.names_at("/project", &server.now()), ["notes", "src"]);
    assert!(server.fails(1, &["restore", "/never", "--to", &then]).contains("nothing to put back"));
}

#[test]
fn a_restore_says_what_it_copies_because_it_was_moved_out() {
    let server = Served::start();
    server.ok(&["mkdir", "/project"]);
    server.put("/project/notes", "first");
    let then = server.now();
    server.ok(&["mv", "/project/notes", "/elsewhere"]);
    let copy = "make        /project/notes  (a copy that shares the bytes of then: the original is /elsewhere now and \
        stays there)";
    let plan = server.ok(&["restore", "/project", "--to", &then, "--dry-run"]);
    assert!(plan.contains(copy), "{plan}");
    let lines = server.json(&["restore", "--json", "/project", "--to", &then, "--dry-run"]);
    assert_eq!((&lines[0]["action"], &lines[0]["lives_at"]), (&"make".into(), &"/elsewhere".into()), "{lines:?}");
    let done = server.ok(&["restore", "/project", "--to", &then]);
    assert!(done.contains(copy), "{done}");
    assert_eq!(server.ok(&["cat", "/project/notes", "/elsewhere"]), "firstfirst");
}

#[test]
fn one_sessions_edits_among_two_are_undone_and_the_others_left() {
    let server = Served::start();
    server.ok(&["mkdir", "/d"]);
    server.put("/d/shared", "base");
    server.put("/d/mine", "mine");
    let before = server.now();
    server.put("/d/shared", "theirs");
    let session = writer(&server, "/d/shared");
    let words = server.ok(&["undo", "--session", &session, "--dry-run"]);
    assert!(words.contains("/d/shared"), "{words}");
    server.put("/d/mine", "mine, newer");
    server.ok(&["undo", "--session", &session]);
    assert_eq!(server.ok(&["cat", "/d/shared", "/d/mine"]), "basemine, newer");
    // By time and path: everything since an instant.
    server.ok(&["undo", "--from", &before, "--path", "/d/mine"]);
    assert_eq!(server.ok(&["cat", "/d/mine"]), "mine");
    // What others changed later is told, and stays.
    server.put("/d/shared", "one");
    let first = writer(&server, "/d/shared");
    server.put("/d/shared", "two");
    let words = leaves(&server, &["undo", "--session", &first]);
    assert!(words.contains("left"), "{words}");
    assert_eq!(server.ok(&["cat", "/d/shared"]), "two");
    assert!(server.fails(2, &["undo"]).contains("whose changes?"));
}

#[test]
fn what_cannot_be_undone_cloned_or_forgotten_is_named() {
    let server = Served::start();
    server.put("/f", "bytes");
    let then = server.now();
    for (args, status, words) in [
        (&["undo", "--session", "12"][..], 1, "there is and was no session 12"),
        (&["undo", "--session", "abc"], 1, "no session of yours is named abc"),
        (&["undo", "--session", "a b"], 2, "cannot name a session"),
        (&["undo", "--path", "/never", "--from", &then], 1, "undo: /never: no such file or directory"),
        (&["clone", "/never", "/c"], 1, "clone: /never: no such file or directory"),
        (&["clone", "/f", "/no/such"], 1, "clone: /no/such: no such file or directory"),
        (&["clone", "/f", "/f"], 1, "clone: /f: already exists"),
        (&["forget", "/never", "--before", &then], 1, "forget: /never: no such file or directory"),
    ] {
        let said = server.fails(status, args);
        assert!(said.contains(words), "{args:?}: {said}");
    }
}

#[test]
fn the_sums_of_history_count_what_came_back_as_there_and_leave_out_what_was_forgotten() {
    let server = Served::start();
    server.ok(&["mkdir", "-p", "/d/back", "/d/gone"]);
    server.put("/d/back/f", "1234");
    server.put("/d/gone/g", "12345");
    let then = server.now();
    server.ok(&["rm", "-r", "/d/back", "/d/gone"]);
    server.ok(&["restore", "/d/back", "--to", &then]);
    let sum = |server: &Served| {
        let lines = server.json(&["du", "--json", "--history", "-s", "/d"]);
        let of = |name: &str| lines.last().unwrap()[name].as_u64().unwrap();
        [of("bytes_live"), of("bytes_history"), of("files"), of("deleted_files"), of("directories")]
    };
    assert_eq!(sum(&server), [4, 5, 1, 1, 3]);
    server.ok(&["forget", "/d", "--before", &server.now()]);
    assert_eq!(sum(&server), [4, 0, 1, 0, 2], "no error, and nothing of what was forgotten");
}

/// The session that did the last thing to a name, which may be gone.
fn last_actor(server: &Served, path: &str) -> String {
    let said = server.run(&["log", "--json", path]);
    lines_of_json(&said.out()).first().unwrap()["session"].as_str().unwrap().to_owned()
}

/// What a command says that does all but something, and so ends with 1.
fn leaves(server: &Served, args: &[&str]) -> String {
    let said = server.run(args);
    assert_eq!((said.status, said.err.as_str()), (1, ""), "{said:?}");
    said.out()
}

#[test]
fn an_undo_replaces_no_name_that_another_session_created_since() {
    let server = Served::start();
    for name in ["/deleted", "/free", "/renamed"] {
        server.put(name, "of old");
    }
    server.ok(&["rm", "/deleted", "/free"]);
    let remover = last_actor(&server, "/deleted");
    server.ok(&["mv", "/renamed", "/elsewhere"]);
    let mover = last_actor(&server, "/elsewhere");
    server.put("/deleted", "of another");
    server.put("/renamed", "of another");
    let words = leaves(&server, &["undo", "--session", &remover]);
    assert!(words.lines().any(|line| line.contains("left") && line.contains("/deleted")), "{words}");
    let words = leaves(&server, &["undo", "--session", &mover]);
    assert!(words.lines().any(|line| line.contains("left") && line.contains("/elsewhere")), "{words}");
    let held = ["/deleted", "/renamed", "/free", "/elsewhere"].map(|name| server.ok(&["cat", name]));
    assert_eq!(held, ["of another", "of another", "of old", "of old"]);
}
