//! The command that is proposed to get a name back does get it back.

use crate::support::served::Served;

/// The last command that was proposed, without its program.
fn proposed(said: &str) -> Vec<String> {
    let line = said.lines().rev().find_map(|line| line.split_once("back: frieze ")).expect("a command is proposed").1;
    line.split(' ').map(str::to_owned).collect()
}

#[test]
fn the_proposed_restore_of_an_emptied_directory_restores_all_of_it() {
    let server = Served::start();
    server.ok(&["mkdir", "-p", "/d/sub"]);
    server.put("/d/old", "removed before");
    server.ok(&["rm", "/d/old"]);
    server.put("/d/a", "one");
    server.put("/d/sub/b", "two");
    server.ok(&["rm", "-r", "/d"]);
    for asked in [&["log", "/d"][..], &["ls", "--deleted", "/"]] {
        let said = server.run(asked);
        assert_eq!(said.status, 0, "{said:?}");
        server.ok(&proposed(&said.err));
        assert_eq!((server.ok(&["cat", "/d/a"]), server.ok(&["cat", "/d/sub/b"])), ("one".into(), "two".into()));
        assert!(server.fails(1, &["cat", "/d/old"]).contains("no such file"), "it went before");
        server.ok(&["rm", "-r", "/d"]);
    }
    // One that was empty for long comes back empty.
    server.ok(&["mkdir", "/empty"]);
    server.ok(&["rm", "-r", "/empty"]);
    server.ok(&proposed(&server.run(&["log", "/empty"]).err));
    assert_eq!(server.ok(&["ls", "/empty"]), "");
}
