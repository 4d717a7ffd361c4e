//! `frieze scrub`: what is damaged is named, kept in mind, and forgotten when it is whole again.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;

use frieze_client::{CreateMode, ScrubAction, ScrubState, Target};
use frieze_testkit::bytes::random_bytes;
use frieze_testkit::wait::clock;
use nix::sys::signal::Signal;
use serde_json::Value;

use super::damage::{LEN, SETTINGS, content, filled, flip_bit, place_of};
use super::server;
use crate::support::client;
use crate::support::served::{Said, Served};

fn json(said: &Said) -> Value {
    serde_json::from_str(&said.out()).unwrap_or_else(|error| panic!("{error}: {} {}", said.out(), said.err))
}

fn run(server: &Served, args: &[&str]) -> (i32, Value) {
    let said = server.run(&[&["scrub", "--json"], args].concat());
    (said.status, json(&said))
}

#[test]
fn a_scrub_names_the_file_the_bytes_and_the_instants_and_the_status_says_so_too() {
    let mut server = filled();
    let sound = server.run(&["scrub"]);
    assert_eq!((sound.status, sound.err.as_str()), (0, ""));
    assert!(sound.out().contains("finished at ") && sound.out().contains("no damage is known"), "{}", sound.out());
    assert_eq!(server.run(&["status"]).status, 0);

    let hit = 3 * (1 << 20) + 12_345;
    flip_bit(&server, "/a", hit);
    assert_eq!(server.run(&["mv", "/a", "/moved"]).status, 0);
    let check = |server: &Served, (status, found): (i32, Value)| {
        assert_eq!((status, &found["state"], &found["damaged"]), (1, &Value::from("finished"), &Value::from(1)));
        let finding = &found["findings"][0];
        assert_eq!((&finding["path"], &finding["kind"]), (&Value::from("/moved"), &Value::from("data")), "{finding}");
        let (start, end) = (finding["start"].as_u64().unwrap(), finding["end"].as_u64().unwrap());
        assert!((start..end).contains(&(hit as u64)) && end - start == 16 << 10, "{finding}");
        assert_eq!(finding["until"], Value::Null, "it shows now");
        // The instants are those at which a read fails.
        let from = finding["from"].as_str().unwrap();
        let before = from.replace("hlc-", "0x");
        let before = u64::from_str_radix(&before[2..], 16).unwrap() - 1;
        assert_eq!(server.run(&["cat", "/a", "--at", from]).status, 1);
        let said = server.run(&["cat", "/a", "--at", &format!("hlc-{before:016x}")]);
        assert_eq!(said.status, 0, "before the write there is a shorter file: {}", said.err);
        let status = server.run(&["status"]);
        assert_eq!(status.status, 1);
        assert!(status.out().contains("damaged in 1 place") && status.out().contains("scrubbed"), "{}", status.out());
        let words = server.run(&["scrub", "--status"]);
        assert_eq!(words.status, 1);
        let told = format!("/moved: bytes {start}..{end} are damaged and cannot be read, shown from");
        assert!(words.out().contains(&told) && words.out().contains("1 damaged place known"), "{}", words.out());
    };
    check(&server, run(&server, &["--rate", "1000"]));
    // It is known over a restart, whichever way the server ended.
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        client(&server.address).fs().sync_all().unwrap();
        server.restart(signal);
        check(&server, run(&server, &["--status"]));
    }
    // Put right as it was: known until a scrub has come by.
    flip_bit_back(&server, hit);
    check_known(&server, 1);
    assert_eq!(run(&server, &[]).0, 0);
    check_known(&server, 0);
    assert_eq!(server.run(&["status"]).status, 0);
}

/// In place: the server has the file open, and may look into it at any moment.
fn flip_bit_back(server: &Served, hit: usize) {
    let (file, at) = place_of(server, "/a", hit + 1);
    let file = OpenOptions::new().write(true).open(file).unwrap();
    file.write_all_at(&[content("/a")[hit]], at as u64 - 1).unwrap();
}

fn check_known(server: &Served, damaged: u64) {
    let (status, known) = run(server, &["--status"]);
    assert_eq!((status, known["damaged"].as_u64()), (i32::from(damaged > 0), Some(damaged)), "{known}");
}

#[test]
fn a_scrub_keeps_its_rate_yields_to_requests_survives_a_restart_and_can_be_stopped() {
    let mut server = filled();
    let (status, begun) = run(&server, &["--rate", "4", "--background"]);
    assert_eq!((status, &begun["state"]), (0, &Value::from("running")));
    assert_eq!(begun["bytes_per_s"], 4 << 20);
    let client = client(&server.address);
    let file = client.fs().create(&Target::path("/busy"), 0o644, CreateMode::Exclusive).unwrap();
    let began = clock();
    for n in 0..50 {
        file.write_at(n * 4096, &random_bytes(n, 4096)).unwrap();
    }
    file.sync().unwrap();
    let looked_at = client.scrub(ScrubAction::Look, 0, false).unwrap();
    assert_eq!(looked_at.state(), ScrubState::Running);
    let most = ((clock() - began).as_secs_f64() + 2.0) * f64::from(4 << 20);
    assert!((looked_at.done_bytes as f64) < most, "{} of at most {most}", looked_at.done_bytes);
    drop(file);
    assert_eq!(server.restart(Signal::SIGKILL), None);
    assert_eq!(client.scrub(ScrubAction::Look, 0, false).unwrap().state(), ScrubState::Running);
    let (_, stopped) = run(&server, &["--stop"]);
    assert_eq!(stopped["state"], "stopped");
    assert_eq!(stopped["finished"], Value::Null);
    let (status, all) = run(&server, &[]);
    assert_eq!((status, &all["state"]), (0, &Value::from("finished")));
    assert!(all["done_bytes"].as_u64().unwrap() >= 3 * LEN as u64, "{all}");
}

#[test]
fn a_scrub_is_for_administrators_and_says_so() {
    let server = server(SETTINGS, "127.0.0.1:0");
    let said = server.run(&["scrub", "--status", "--stop"]);
    assert_eq!(said.status, 2, "{}", said.err);
    if !nix::unistd::getuid().is_root() {
        return;
    }
    let somebody = server.command(&["scrub", "--status"]).uid(1234).gid(1234).output().unwrap();
    let words = String::from_utf8(somebody.stderr).unwrap();
    assert_eq!(somebody.status.code(), Some(1), "{words}");
    assert!(words.contains("only root, and the user that the server runs as, may scrub"), "{words}");
    assert!(somebody.stdout.is_empty());
}
