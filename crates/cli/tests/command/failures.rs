//! What goes wrong, in which words and with which exit status.

use std::process::Stdio;

use crate::served::{Said, Served, frieze};

#[test]
fn a_failure_is_one_line_and_the_other_paths_are_still_done() {
    let server = Served::start();
    server.put("/a", "a");
    server.put("/c", "c");
    let said = server.run(&["cat", "/a", "/none", "/c"]);
    assert_eq!((said.status, said.out().as_str()), (1, "ac"));
    assert_eq!(said.err, "frieze: cat: /none: no such file or directory\n");
    assert_eq!(server.fails(1, &["ls", "/a/b"]), "frieze: ls: /a/b: not a directory\n");
    assert_eq!(server.fails(1, &["rm", "/none", "/a"]), "frieze: rm: /none: no such file or directory\n");
    assert_eq!(server.ok(&["ls"]), "c\n", "the other name was removed");
}

#[test]
fn failures_use_the_words_of_the_system() {
    let server = Served::start();
    server.put("/f", "x");
    server.ok(&["mkdir", "-p", "/d/full"]);
    for (args, line) in [
        (&["mkdir", "/d"][..], "frieze: mkdir: /d: already exists\n"),
        (&["mkdir", "/f/x"], "frieze: mkdir: /f/x: not a directory\n"),
        (&["mkdir", "-p", "/f/x"], "frieze: mkdir: /f/x: not a directory\n"),
        (&["cat", "/d"], "frieze: cat: /d: is a directory\n"),
        (&["mv", "/f", "/none/x"], "frieze: mv: /none: no such file or directory\n"),
        (&["mv", "/none", "/x"], "frieze: mv: /none: no such file or directory\n"),
        (&["rm", "/d"], "frieze: rm: /d: is a directory: -r removes it with everything in it\n"),
        (&["cp", "/d", "/e"], "frieze: cp: /d: is a directory: -r copies it with everything in it\n"),
        (&["get", "/f", "no/such/place"], "frieze: get: no: no such file or directory\n"),
        (&["put", "missing", "/x"], "frieze: put: missing: no such file or directory\n"),
        (&["put", "missing", "missing2", "/x"], "frieze: put: /x: no such file or directory\n"),
        (&["ls", "--at", "no-such-snapshot"], "no-such-snapshot"),
    ] {
        let said = server.fails(1, args);
        assert!(said == line || (!line.starts_with("frieze") && said.contains(line)), "{args:?}: {said}");
    }
    let long = format!("/{}", "n".repeat(256));
    let said = server.fails(1, &["mkdir", &long]);
    assert!(said.contains("255"), "{said}");
}

#[test]
fn a_wrong_command_line_does_nothing_and_ends_with_2() {
    let server = Served::start();
    server.put("/f", "x");
    for args in [
        &["rm", "/f", "relative"][..],
        &["rm", "/f", "/a/../f"],
        &["cat", "/f", "--at", "2026-13-45"],
        &["cat", "/f", "--at", "@"],
        &["cat", "/f", "--user-at", "soon"],
        &["rm", "-r", "/"],
        &["no-such-command"],
        &["ls", "--no-such-option"],
        &["cp", "-r", "/", "/copy"],
    ] {
        server.fails(2, args);
    }
    assert!(server.fails(2, &["ls", "a/b"]).starts_with("frieze: ls: a/b: not an absolute path: write /a/b\n"));
    assert_eq!(server.ok(&["ls"]), "f\n");
}

#[test]
fn the_past_cannot_be_changed() {
    let server = Served::start();
    server.put("/f", "x");
    let now = server.now();
    for args in [
        &["rm", "/f", "--at", now.as_str()][..],
        &["mv", "/f", "/g", "--at", &now],
        &["mkdir", "/d", "--at", &now],
        &["put", "x", "/f", "--at", &now],
        &["ln", "/f", "/g", "--at", &now],
    ] {
        let said = server.fails(1, args);
        assert!(said.contains("the past cannot be changed"), "{said}");
    }
    assert_eq!(server.ok(&["ls"]), "f\n");
}

#[test]
fn a_server_that_is_away_is_named() {
    let said = frieze(&["--server", "127.0.0.1:1", "--timeout", "1", "ls"]).output().unwrap();
    let err = String::from_utf8(said.stderr).unwrap();
    assert_eq!(said.status.code(), Some(1));
    assert!(err.starts_with("frieze: ls: ") && err.contains("127.0.0.1:1"), "{err}");
    let said = frieze(&["--server", "nonsense", "ls"]).output().unwrap();
    assert_eq!(said.status.code(), Some(2));
}

#[test]
fn a_data_directory_serves_one_server() {
    let server = Served::start();
    let second = frieze(&["serve", "--listen", "127.0.0.1:0", "--dir"]).arg(server.data()).output().unwrap();
    let err = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(err.lines().last().unwrap().starts_with("frieze: serve: ") && err.contains("in use"), "{err}");
    server.put("/f", "the first goes on");
}

#[test]
fn an_address_in_use_and_one_that_needs_keys_are_refused_in_words() {
    let server = Served::start();
    let directory = tempfile::tempdir().unwrap();
    for (address, words) in [(server.address.as_str(), server.address.as_str()), ("0.0.0.0:0", "key")] {
        let said = frieze(&["serve", "--listen", address, "--dir"]).arg(directory.path()).output().unwrap();
        let err = String::from_utf8(said.stderr).unwrap();
        assert_eq!(said.status.code(), Some(1), "{err}");
        assert!(err.lines().last().unwrap().contains(words), "{address}: {err}");
    }
}

#[test]
fn a_mount_that_fails_says_so_in_the_foreground() {
    let server = Served::start();
    let mut command = server.command(&["mount", "no-such-directory"]);
    let said = command.stdin(Stdio::null()).output().unwrap();
    let err = String::from_utf8(said.stderr).unwrap();
    assert_eq!(said.status.code(), Some(1), "{err}");
    assert!(err.starts_with("frieze: mount: ") && err.contains("no-such-directory"), "{err}");
    let said = server.fails(1, &["umount", "/"]);
    assert_eq!(said, "frieze: umount: /: no frieze file system is mounted there\n");
}

#[test]
fn of_several_servers_the_first_that_answers_is_asked_and_if_none_does_each_says_why() {
    let server = Served::start();
    server.put("/there", "1");
    let several = format!("127.0.0.1:1,unix:/nobody,{}", server.address);
    assert_eq!(server.ok(&["--server", &several, "ls", "/"]), "there\n");
    let status = &server.json(&["--server", &several, "status", "--json"])[0];
    assert_eq!(status["server"], server.address.as_str());
    // The environment and the file of settings take the same.
    let asked = |variable: &str, value: &str| {
        let mut command = server.command(&["ls", "/"]);
        command.env_remove("FRIEZE_SERVER").env(variable, value);
        Said::from(command.output().unwrap())
    };
    assert_eq!(asked("FRIEZE_SERVER", &several).ok(), "there\n");
    let config = server.local_file("client.toml", format!("server = \"{several}\"\n"));
    assert_eq!(asked("FRIEZE_CLIENT", &config).ok(), "there\n");
    let words = server.fails(1, &["--server", "127.0.0.1:1,unix:/nobody", "ls", "/"]);
    assert_eq!(
        words,
        "frieze: ls: none of the servers answers: 127.0.0.1:1: connection refused; unix:/nobody: no such file or \
         directory\n"
    );
    let words = server.fails(2, &["--server", "127.0.0.1:1,", "ls", "/"]);
    assert!(words.contains("expected HOST:PORT"), "{words}");
}

#[test]
fn the_allocator_uses_its_settings() {
    let told = frieze(&["--version"]).env("_RJEM_MALLOC_CONF", "stats_print:true").output().unwrap();
    let told = String::from_utf8(told.stderr).unwrap();
    for setting in
        ["opt.narenas: 1\n", "opt.tcache_max: 8192\n", "opt.dirty_decay_ms: 1000 ", "opt.background_thread: true "]
    {
        assert!(told.contains(setting), "{setting} is not in:\n{told}");
    }
}

#[test]
fn a_shell_without_completion_is_refused_with_those_that_have_it() {
    let said = Said::from(frieze(&["completion", "tcsh"]).output().unwrap());
    assert_eq!((said.status, said.out().as_str()), (2, ""));
    assert!(said.err.contains("'tcsh'") && said.err.contains("[possible values: bash, zsh, fish]"), "{}", said.err);
    let said = Said::from(frieze(&["completion"]).output().unwrap());
    assert!(said.status == 2 && said.err.contains("<SHELL>"), "{}", said.err);
}

#[test]
fn pages_that_cannot_be_written_are_refused_with_their_path() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let below = file.join("man1");
    let said = Said::from(frieze(&["man", "--dir"]).arg(&below).output().unwrap());
    let words = format!("frieze: man: the directory {} cannot be made: not a directory\n", below.display());
    assert_eq!((said.status, said.err), (1, words));
    // A page that is a directory: root may write everywhere else.
    let pages = directory.path().join("pages");
    std::fs::create_dir_all(pages.join("frieze-serve.1")).unwrap();
    let said = Said::from(frieze(&["man", "--dir"]).arg(&pages).output().unwrap());
    let words = format!("frieze: man: {} cannot be written: is a directory\n", pages.join("frieze-serve.1").display());
    assert_eq!((said.status, said.err), (1, words));
}
