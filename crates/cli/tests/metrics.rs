//! The metrics that Prometheus reads of a server, and the answers to other clients of that address.

#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

#[path = "metrics/expressions.rs"]
mod expressions;
#[path = "metrics/spans.rs"]
mod spans;
#[expect(dead_code, reason = "shared with tests that need more of it")]
mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;

use frieze_client::{CreateMode, Target};
use frieze_testkit::bytes::random_bytes;
use frieze_testkit::process::ChildProcess;
use frieze_testkit::wait::{clock, eventually, patience};
use nix::sys::signal::Signal;
use serde_json::Value;
use support::client;
use support::served::frieze;
use tempfile::TempDir;

struct MeteredServer {
    process: ChildProcess,
    address: String,
    metrics: Option<String>,
}

impl MeteredServer {
    fn start(directory: &Path, more: &[&str]) -> MeteredServer {
        let data = directory.join(format!("data-{}", more.len()));
        let mut command = frieze(&["serve", "--json", "--listen", "127.0.0.1:0", "--memory", "256", "--dir"]);
        command.arg(data).args(more).env("FRIEZE_LOG", "error");
        let mut process = ChildProcess::start(command, &directory.join("log"));
        let ready: Value = serde_json::from_str(&process.next_line()).expect("the server says when it is ready");
        let address = ready["addresses"][0].as_str().unwrap().to_owned();
        MeteredServer { process, address, metrics: ready["metrics"].as_str().map(str::to_owned) }
    }

    fn door(&self) -> TcpStream {
        let stream = TcpStream::connect(self.metrics.as_ref().expect("it was asked for figures")).unwrap();
        stream.set_read_timeout(Some(patience())).unwrap();
        stream
    }

    /// Everything that is answered to these bytes.
    fn answer(&self, sent: &str) -> String {
        let mut stream = self.door();
        stream.write_all(sent.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn figures(&self) -> String {
        let answer = self.answer("GET /metrics HTTP/1.1\r\nHost: frieze\r\n\r\n");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("Content-Type: text/plain; version=0.0.4"), "{head}");
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
        body.to_owned()
    }
}

/// The value of the one line that begins so.
#[track_caller]
fn value(figures: &str, name: &str) -> f64 {
    let found = figures.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("{name} is not in\n{figures}")).parse().unwrap()
}

#[test]
fn a_server_tells_how_it_is_and_what_it_was_asked() {
    let directory = TempDir::new().unwrap();
    let server = MeteredServer::start(directory.path(), &["--metrics", "0"]);
    let before = server.figures();
    assert_eq!(value(&before, "frieze_healthy"), 1.0);
    assert_eq!(value(&before, "frieze_fenced"), 0.0);
    assert!(value(&before, "frieze_disk_free_bytes") > 0.0 && value(&before, "process_resident_memory_bytes") > 0.0);
    // It is alone: there is no lease, and a 0 would raise an alert.
    assert!(!before.contains("frieze_lease_held"), "{before}");
    let client = client(&server.address);
    let file = client.fs().create(&Target::path("/told"), 0o644, CreateMode::OpenExisting).unwrap();
    file.write_at(0, &[7; 70_000]).unwrap();
    assert!(client.fs().stat(&Target::path("/nothing")).is_err());
    // An answer is counted when it has gone out.
    let after = eventually("what was asked is counted", || {
        let after = server.figures();
        after.contains("frieze_requests_refused_total{kind=\"stat\"}").then_some(after)
    });
    assert_eq!(value(&after, "frieze_request_duration_seconds_count{kind=\"write\"}"), 1.0);
    assert!(value(&after, "frieze_request_duration_seconds_sum{kind=\"write\"}") > 0.0);
    assert!(value(&after, "frieze_requests_refused_total{kind=\"stat\"}") >= 1.0);
    assert!(value(&after, "frieze_log_bytes") >= value(&before, "frieze_log_bytes") + 70_000.0);
    // Each has its help and its kind, once.
    for line in after.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        let family = name.trim_end_matches("_bucket").trim_end_matches("_sum").trim_end_matches("_count");
        for mark in ["HELP", "TYPE"] {
            assert_eq!(after.matches(&format!("# {mark} {family} ")).count(), 1, "{mark} {family}");
        }
    }
}

#[test]
fn top_prints_a_sample_of_a_real_server() {
    let directory = TempDir::new().unwrap();
    let server = MeteredServer::start(directory.path(), &["--metrics", "0"]);
    let client = client(&server.address);
    let file = client.fs().create(&Target::path("/file"), 0o644, CreateMode::OpenExisting).unwrap();
    file.write_at(0, &[7; 70_000]).unwrap();
    let top = |more: &[&str]| {
        let metrics = server.metrics.as_deref().unwrap();
        let words = ["--server", &server.address, "top", "--interval", "0.3", "--metrics", metrics];
        let mut command = frieze(&[&words[..], more].concat());
        let mut process = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut reads = 0;
        while process.try_wait().unwrap().is_none() {
            file.read_at(0, &mut [0; 50_000]).unwrap();
            assert!(client.fs().stat(&Target::path("/nothing")).is_err());
            reads += 1;
        }
        let output = process.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        (String::from_utf8(output.stdout).unwrap(), reads)
    };
    let (line, reads) = top(&["--once", "--json"]);
    let sample: Value = serde_json::from_str(&line).expect("one line of JSON");
    let operations = sample["operations"].as_array().unwrap();
    let read = operations.iter().find(|operation| operation["kind"] == "read").unwrap();
    let interval_s = sample["interval_s"].as_f64().unwrap();
    let count = read["per_s"].as_f64().unwrap() * interval_s;
    assert!(interval_s >= 0.3 && count >= 1.0 && count <= f64::from(reads), "{count} of {reads}: {sample}");
    assert!(read["p99_s"].as_f64().unwrap() > 0.0 && sample["refused_per_s"].as_f64().unwrap() > 0.0, "{sample}");
    assert_eq!(sample["space"]["live_bytes"], 70_000);
    let only = &sample["servers"][0];
    assert!(only["free_bytes"].as_u64().unwrap() > 0 && only["sessions"].as_u64().unwrap() > 0, "{sample}");
    assert_eq!((&sample["healthy"], &sample["cluster"]), (&Value::Bool(true), &Value::Null));
    // A pipe gets one sample as text.
    let (text, _) = top(&[]);
    assert!(text.contains(" healthy ") && text.contains("\nread ") && text.lines().count() < 40, "{text}");
    // Where there are no metrics the rest is shown.
    let output = frieze(&["--server", &server.address, "top", "--once", "--metrics", "127.0.0.1:1"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("none exports them here") && text.contains(" healthy "), "{text}");
    drop(server);
    let mut command = frieze(&["--server", "127.0.0.1:1", "--timeout", "1", "top", "--once"]);
    assert_eq!(command.output().unwrap().status.code(), Some(1));
}

#[test]
fn without_the_option_a_server_exports_no_metrics() {
    let directory = TempDir::new().unwrap();
    assert_eq!(MeteredServer::start(directory.path(), &[]).metrics, None);
}

#[test]
fn a_wrong_request_gets_an_answer_and_the_listener_survives() {
    let directory = TempDir::new().unwrap();
    let mut server = MeteredServer::start(directory.path(), &["--metrics", "127.0.0.1:0"]);
    for (sent, status) in [
        ("GET / HTTP/1.1\r\nHost: h\r\n\r\n", "404 Not Found"),
        ("DELETE /metrics HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody", "405 Method Not Allowed"),
        ("what?\r\n\r\n", "400 Bad Request"),
    ] {
        let answer = server.answer(sent);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{sent:?}: {answer}");
    }
    let head = server.answer("HEAD /metrics HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.ends_with("\r\n\r\n"), "{head}");
    let endless = server.answer(&format!("GET /{} HTTP/1.1\r\n", "x".repeat(9_000)));
    assert!(endless.starts_with("HTTP/1.1 431 "), "{endless}");
    // A silent client takes a place for a while, and no more than there are.
    let silent = eventually("those who say nothing have all places", || {
        // Others each time: on a machine that stands still the first may have been sent away.
        let silent: Vec<TcpStream> = (0..8).map(|_| server.door()).collect();
        let mut late = server.door();
        let mut answer = String::new();
        let came = late.read_to_string(&mut answer);
        (came.is_ok() && answer.starts_with("HTTP/1.1 503 ")).then_some(silent)
    });
    for stream in &silent {
        stream.shutdown(Shutdown::Both).unwrap();
    }
    eventually("their places are free again", || {
        let answer = server.answer("GET /metrics HTTP/1.0\r\n\r\n");
        answer.starts_with("HTTP/1.0 200 OK").then_some(())
    });
    // Nor do they keep it from stopping.
    let _half = server.door().write_all(b"GET /met");
    assert_eq!(server.process.end(Signal::SIGTERM), Some(0));
}

#[test]
fn a_server_of_a_cluster_tells_of_its_lease_its_chains_and_the_others() {
    let directory = TempDir::new().unwrap();
    let first = MeteredServer::start(directory.path(), &["--metrics", "0", "--name", "db1"]);
    let join = first.address.clone();
    let second = MeteredServer::start(directory.path(), &["--metrics", "0", "--name", "db2", "--join", &join]);
    let figures = eventually("every chain has both", || {
        let figures = first.figures();
        let told = figures.contains("frieze_cluster_chains_whole");
        (told
            && value(&figures, "frieze_cluster_chains_whole") == 8.0
            && value(&figures, "frieze_chain_members{chain=\"0\"}") == 2.0)
            .then_some(figures)
    });
    assert_eq!(value(&figures, "frieze_lease_held"), 1.0);
    assert!(value(&figures, "frieze_lease_left_seconds") > 0.0);
    assert_eq!(value(&figures, "frieze_metalog_has_leader"), 1.0);
    assert_eq!(value(&figures, "frieze_cluster_nodes{state=\"up\"}"), 2.0);
    assert_eq!(value(&figures, "frieze_sync_left_records"), 0.0);
    assert!(value(&figures, "frieze_peer_sent_messages_total{kind=\"metalog\"}") > 0.0);
    let of = |figures: &str, role: &str| value(figures, &format!("frieze_chains{{role=\"{role}\"}}"));
    let other = eventually("the other knows it too", || {
        let other = second.figures();
        (other.contains("frieze_lease_held 1") && of(&other, "tail") + of(&other, "head") == 8.0).then_some(other)
    });
    assert_eq!(of(&figures, "head") + of(&other, "head"), 8.0);
    assert_eq!(value(&figures, "frieze_metalog_leads") + value(&other, "frieze_metalog_leads"), 1.0);
    assert!(figures.contains("name=\"db1\"") && other.contains("name=\"db2\""), "{figures}\n{other}");
}

#[test]
fn a_joining_server_catches_up_at_the_set_rate_and_its_progress_is_exported() {
    let directory = TempDir::new().unwrap();
    let config = directory.path().join("settings.toml");
    std::fs::write(&config, "sync_bytes_per_s = 524288\nchunk_bytes = 65536\nlease = \"1s\"\n").unwrap();
    let config = config.to_str().unwrap();
    let first = MeteredServer::start(directory.path(), &["--metrics", "0", "--name", "db1", "--config", config]);
    let client = client(&first.address);
    let file = client.fs().create(&Target::path("/copied"), 0o644, CreateMode::OpenExisting).unwrap();
    // On every chain, in pieces that are small beside the rate.
    for number in 0..64 {
        file.write_at(number * 65_536, &random_bytes(number, 65_536)).unwrap();
    }
    file.close().unwrap();
    let began = clock();
    let join = first.address.clone();
    let second = MeteredServer::start(
        directory.path(),
        &["--metrics", "0", "--name", "db2", "--join", &join, "--config", config],
    );
    let (mut words, mut lacked) = (None, None);
    eventually("the command says how far it is, and the figures of who lacks something", || {
        let figures = second.figures();
        lacked = lacked.take().or_else(|| {
            let is_told = figures.contains("frieze_sync_lacked_bytes");
            Some(value(is_told.then_some(&*figures)?, "frieze_sync_lacked_bytes")).filter(|bytes| *bytes > 0.0)
        });
        words = words.take().or_else(|| {
            let said = frieze(&["--server", &first.address, "cluster"]).output().unwrap();
            let words = String::from_utf8(said.stdout).unwrap();
            let is_told = words.contains("brought up to date, about ") && words.contains("/s (at most 512");
            is_told.then_some(words)
        });
        (words.is_some() && lacked.is_some()).then_some(())
    });
    let (words, lacked) = (words.unwrap(), lacked.unwrap());
    assert!(words.contains("left, "), "{words}");
    assert!(lacked < 8e6, "{lacked}");
    eventually("it has all", || {
        let figures = first.figures();
        (value(&figures, "frieze_cluster_chains_whole") == 8.0
            && value(&figures, "frieze_chains{role=\"only\"}") == 0.0)
            .then_some(())
    });
    let took = clock() - began;
    let figures = first.figures();
    let sent = value(&figures, "frieze_sync_sent_bytes_total");
    assert!(sent >= 4e6, "{sent}");
    assert!(took.as_secs_f64() > sent / 524_288.0 * 0.9 - 0.2, "{sent} bytes within {took:?}");
    assert_eq!(value(&figures, "frieze_sync_max_bytes_per_second"), 524_288.0);
    assert_eq!(
        (value(&figures, "frieze_sync_left_records"), value(&second.figures(), "frieze_sync_lacked_bytes")),
        (0.0, 0.0)
    );
}

#[test]
fn without_a_majority_no_server_or_chain_is_reported_healthy_whole_or_up() {
    let directory = TempDir::new().unwrap();
    let config = directory.path().join("settings.toml");
    std::fs::write(&config, "lease = \"1s\"\n").unwrap();
    let config = config.to_str().unwrap();
    let first = MeteredServer::start(directory.path(), &["--metrics", "0", "--name", "db1", "--config", config]);
    let join = ["--metrics", "0", "--config", config, "--join", &first.address];
    let second = MeteredServer::start(directory.path(), &[&join[..], &["--name", "db2"]].concat());
    let third =
        MeteredServer::start(directory.path(), &[&join[..], &["--name", "db3", "--machine", "another"]].concat());
    let told = |what: &str, wanted: [f64; 6]| {
        eventually(what, || {
            let figures = second.figures();
            let names = [
                "frieze_healthy",
                "frieze_cluster_nodes{state=\"up\"}",
                "frieze_cluster_nodes{state=\"offline\"}",
                "frieze_cluster_nodes{state=\"unknown\"}",
                "frieze_cluster_chains_whole",
                "frieze_cluster_copies_missing",
            ];
            let is_there = figures.contains("frieze_cluster_copies_missing");
            (is_there && names.map(|name| value(&figures, name)) == wanted).then_some(())
        });
    };
    told("everything is there", [1.0, 3.0, 0.0, 0.0, 8.0, 0.0]);
    drop(third);
    told("a copy of each chain is missing", [0.0, 2.0, 1.0, 0.0, 0.0, 8.0]);
    drop(first);
    told("it hears nobody", [0.0, 1.0, 1.0, 1.0, 0.0, 16.0]);
}
