//! The edges of interval queries: expired history, and the time before the first change.

use super::*;
use frieze_wire::timeline::{DiffReply, Difference};

/// `/a` and `/b`, each with a file.
fn two_directories(client: &mut TestConnection) {
    for directory in ["/a", "/b"] {
        client.mkdir(directory);
        client.make(&format!("{directory}/f"));
    }
}

fn added(reply: &DiffReply) -> Vec<String> {
    let path = |difference: &Difference| {
        assert!(difference.before.is_none(), "{difference:?}");
        String::from_utf8(difference.after.clone().unwrap().path).unwrap()
    };
    reply.differences.iter().map(path).collect()
}

#[test]
fn a_log_says_that_it_leaves_out_a_rename_whose_other_directory_has_forgotten() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    two_directories(&mut client);
    let renamed = client.rename("/a/f", "/b/g").unwrap();
    client.chmod("/a", 0o700).unwrap();
    let now = client.server.newest().0;
    let story = client.story("/a", 0, now, 0);
    assert!(story.events.iter().any(|event| event.stamp == renamed) && !story.left_out, "{story:?}");

    client.forget("/b", now);
    let story = client.story("/a", 0, now, 0);
    assert!(!story.events.is_empty() && story.events.iter().all(|event| event.stamp != renamed), "{story:?}");
    assert!(story.left_out && !story.hidden, "that there is more is said, and why");
}

#[test]
fn a_log_shows_a_write_to_a_file_that_was_there_between_two_omitted_renames() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    two_directories(&mut client);
    let began = client.server.newest().0;
    client.rename("/b/f", "/a/g").unwrap();
    let file = client.open("/a/g").unwrap();
    let (written, _) = client.write(&file, Some(0), b"bytes").unwrap();
    let ended = client.rename("/a/g", "/b/f").unwrap();
    // Moved out of the part whose history expires.
    client.rename("/b/f", "/f").unwrap();
    let told = |client: &mut TestConnection| {
        let story = client.story("/a", began, ended, 0);
        (story.events.iter().any(|event| event.stamp == written), story.left_out)
    };
    assert_eq!(told(&mut client), (true, false));
    let now = client.server.newest().0;
    client.forget("/b", now);
    assert_eq!(told(&mut client), (true, true));
}

#[test]
fn a_refusal_names_what_has_forgotten_to_whoever_may_know_it() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    two_directories(&mut client);
    client.mkdir("/b/inner");
    client.make("/b/inner/g");
    let old = client.server.newest().0;
    let file = client.open("/b/inner/g").unwrap();
    client.write(&file, Some(0), b"bytes").unwrap();
    client.rename("/b/inner/g", "/b/inner/h").unwrap();
    let now = client.server.newest().0;
    client.forget("/b/inner", now);

    let me = [client.session.0];
    let refusals = [
        client.at("/b/inner/g", old).unwrap_err(),
        client.diff("/", old, now).unwrap_err(),
        client.restore("/", old, false).unwrap_err(),
        client.undo(&me).unwrap_err(),
    ];
    for refusal in &refusals {
        assert_eq!(refusal.reason, Reason::HistoryExpired);
        assert!(refusal.message.starts_with("history of /b/inner"), "{}", refusal.message);
    }
    // A user that may not list `/b` gets the same words without the name.
    client.chmod("/b", 0o711).unwrap();
    let someone = Caller { uid: 1000, gid: 1000, groups: Vec::new() };
    let mut other = machine.connect(client.server.clone(), someone);
    let refusal = other.diff("/", old, now).unwrap_err();
    assert!(refusal.message.starts_with("history is not kept at "), "{}", refusal.message);
}

#[test]
fn an_interval_that_begins_before_the_file_system_begins_with_nothing() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    two_directories(&mut client);
    let now = client.server.newest().0;
    for from in [0, 1, 1 << 40] {
        assert_eq!(added(&client.diff("/", from, now).unwrap()), ["/a", "/a/f", "/b", "/b/f"]);
        assert_eq!(added(&client.diff("/b", from, now).unwrap()), ["/b", "/b/f"]);
        assert_eq!(client.diff("/none", from, now).unwrap_err().reason, Reason::NotFound);
    }
    assert_eq!(client.diff("/", 0, 1).unwrap_err().reason, Reason::HistoryExpired, "then there was no file system");
}
