//! `log` from the newest on, page by page, and as it goes on.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::support::served::Served;

fn stamps(items: &[Value]) -> Vec<String> {
    items.iter().map(|item| item["stamp"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_newest_comes_first_and_the_pages_of_both_orders_hold_the_same() {
    let server = Served::start();
    server.ok(&["mkdir", "-p", "/d/e"]);
    let client = crate::support::client(&server.address);
    let fs = client.fs();
    // More than two pages of 1,000, with two events each.
    for number in 0..1300 {
        let path = frieze_client::Target::path(format!("/d/e/{number}"));
        let file = fs.create(&path, 0o644, frieze_client::CreateMode::Exclusive).unwrap();
        file.write_at(0, b"text").unwrap();
        file.close().unwrap();
    }
    let file = fs.open(&frieze_client::Target::path("/d/e/7"), frieze_client::OpenFlags::WRITE).unwrap();
    for number in 0..2500u64 {
        file.write_at(number % 100, b"x").unwrap();
    }
    file.close().unwrap();
    for asked in [&["log", "-R", "/", "--json"][..], &["log", "/d/e", "--json"], &["log", "/d/e/7", "--json"]] {
        let mut oldest = server.json(&[asked, &["--reverse"]].concat());
        let newest = server.json(asked);
        let told = stamps(&newest);
        assert!(told.is_sorted_by(|one, next| one >= next), "{asked:?}");
        assert!(stamps(&oldest).is_sorted(), "{asked:?}");
        if asked[1] == "/d/e/7" {
            // Of one transaction and of one record each; a run of writes is as long as a page of events sees it.
            oldest.reverse();
            assert_eq!(told, stamps(&oldest));
            assert!(told.len() > 2500, "{}", told.len());
        }
        let (made_newest, made_oldest) = (made(&newest), made(&oldest));
        assert_eq!(made_newest, made_oldest, "{asked:?}");
        let few = server.json(&[asked, &["-n", "3"]].concat());
        assert_eq!(stamps(&few), told[..3]);
    }
}

/// The paths that were made, in order of names.
fn made(items: &[Value]) -> Vec<String> {
    let is_made = |item: &&Value| item["change"] == "added" || item["kind"] == "make";
    let mut paths: Vec<String> =
        items.iter().filter(is_made).map(|item| item.get("path").unwrap_or(&item["name"]).to_string()).collect();
    paths.sort();
    paths
}

#[test]
fn a_followed_log_runs_until_it_is_interrupted() {
    let server = Served::start();
    for number in 0..4 {
        server.put(&format!("/{number}"), "text");
    }
    // Tests that run in the background of a shell ignore SIGINT, and what they start does.
    let mut child = Command::new("env")
        .args([
            "--default-signal=INT",
            env!("CARGO_BIN_EXE_frieze"),
            "log",
            "-R",
            "--json",
            "--follow",
            "-n",
            "2",
            "/",
            "--server",
            &server.address,
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || -> (String, String) {
        let item: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        (item["change"].as_str().unwrap().to_owned(), item["path"].as_str().unwrap().to_owned())
    };
    let of = |change: &str, path: &str| (change.to_owned(), path.to_owned());
    assert_eq!([next(), next()], [of("added", "/3"), of("modified", "/3")]);
    server.ok(&["rm", "/0"]);
    assert_eq!(next(), of("removed", "/0"));
    server.ok(&["mkdir", "/d"]);
    assert_eq!(next(), of("added", "/d"));
    kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(Signal::SIGINT as i32));
}
