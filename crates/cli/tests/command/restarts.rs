//! Nothing changes by a restart or a crash of the server.

use nix::sys::signal::Signal;

use crate::served::Served;

/// Every answer about the past that a test can ask for.
fn answers(server: &Served, instants: &[String]) -> Vec<String> {
    let mut answers = Vec::new();
    for at in instants {
        answers.push(server.ok(&["ls", "-R", "--json", "/", "--at", at]));
        for path in ["/d/f", "/d/g"] {
            let said = server.run(&["cat", path, "--at", at]);
            answers.push(format!("{} {} {}", said.status, said.out(), said.err));
        }
    }
    answers
}

#[test]
fn sync_says_up_to_where_everything_is_durable() {
    let server = Served::start();
    server.put("/f", "text");
    let before = server.now();
    assert_eq!(server.ok(&["sync"]), "");
    let item = &server.json(&["sync", "--json", "/f", "/"])[0];
    assert_eq!(item["path"], "/f");
    assert!(item["durable"].as_str().unwrap() >= before.as_str(), "{item} covers {before}");
    let refused = server.fails(1, &["sync", "/f", "/none"]);
    assert!(refused.starts_with("frieze: sync: /none: "), "{refused}");
}

#[test]
fn the_past_and_the_present_are_the_same_after_a_stop_and_after_a_kill() {
    let mut server = Served::start();
    let mut instants = Vec::new();
    server.ok(&["mkdir", "/d"]);
    for i in 0..5 {
        server.put("/d/f", format!("{i}").repeat(i * 1000));
        instants.push(server.now());
        server.ok(&["mv", "/d/f", "/d/g"]);
        instants.push(server.now());
    }
    server.ok(&["snapshot", "create", "kept"]);
    let before = answers(&server, &instants);

    assert_eq!(server.restart(Signal::SIGTERM), Some(0), "a stop is clean");
    assert_eq!(answers(&server, &instants), before);
    server.put("/d/f", "after the stop");

    assert_eq!(server.restart(Signal::SIGKILL), None);
    assert_eq!(answers(&server, &instants), before);
    assert_eq!(server.ok(&["cat", "/d/f"]), "after the stop", "what was acknowledged survives a kill");
    assert_eq!(server.json(&["snapshot", "list", "--json"])[0]["name"], "kept");

    server.put("/d/f", "after the kill");
    let later = server.now();
    assert!(later > *instants.last().unwrap(), "time goes on");
    assert_eq!(server.cat_at("/d/f", &later), "after the kill");
    assert_eq!(server.end(Signal::SIGINT), Some(0), "an interrupt is a stop too");
}

#[test]
fn a_server_killed_again_and_again_loses_nothing_that_was_acknowledged() {
    let mut server = Served::start();
    let mut recorded = Vec::new();
    for i in 0..8 {
        server.put("/f", format!("round {i}"));
        server.ok(&["mkdir", "-p", &format!("/d{i}/e")]);
        recorded.push((server.now(), format!("round {i}")));
        server.restart(Signal::SIGKILL);
        for (at, text) in &recorded {
            assert_eq!(&server.cat_at("/f", at), text);
        }
        assert_eq!(server.ok(&["ls"]).lines().count(), i + 2);
    }
}
