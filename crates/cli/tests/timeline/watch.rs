//! `frieze watch`: its lines, the commands that it runs, its posts, and what it costs while nothing happens.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::ffi::OsStringExt;
use std::process::Stdio;
use std::time::Duration;

use frieze_client::{Caller, Fs, Hlc, RenameMode, Target, WatchItem};
use frieze_testkit::process::ChildProcess;
use frieze_testkit::wait::{eventually, pass};
use serde_json::Value;

use crate::support::client;
use crate::support::served::{Served, lines_of_json};

/// The events of some lines: kind, path, former path.
fn events(lines: &[Value]) -> Vec<(String, String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let events = lines.iter().filter(|line| line.get("kind").is_some());
    events.map(|line| (text(&line["kind"]), text(&line["path"]), text(&line["was"]))).collect()
}

/// The same events from words.
fn expected(events: &[(&str, &str, &str)]) -> Vec<(String, String, String)> {
    events.iter().map(|(kind, path, was)| ((*kind).to_owned(), (*path).to_owned(), (*was).to_owned())).collect()
}

#[test]
fn a_watch_prints_what_happens_below_a_directory_and_a_name_that_moves_out_is_removed() {
    let server = Served::start();
    server.ok(&["mkdir", "/in", "/out"]);
    let from = server.now();
    let mut live =
        ChildProcess::start(server.command(&["watch", "/in", "--from", &from, "--json"]), &server.local("watch.log"));
    server.put("/in/a", "hello");
    server.ok(&["mv", "/in/a", "/in/b"]);
    server.ok(&["mkdir", "/in/sub"]);
    server.put("/in/sub/x", "x");
    server.ok(&["mv", "/in/b", "/out/b"]);
    server.put("/out/b", "not below it");
    server.ok(&["mv", "/out/b", "/in/c"]);
    server.ok(&["chmod", "600", "/in/c"]);
    server.ok(&["rm", "/in/sub/x"]);
    server.ok(&["mv", "/in/sub", "/out/sub"]);
    let end = server.now();
    let past = server.json(&["watch", "/in", "--from", &from, "--to", &end, "--json"]);
    let happened = events(&past);
    let names: Vec<_> = happened.iter().filter(|(kind, ..)| kind != "written").cloned().collect();
    let all = [
        ("created", "/in/a", ""),
        ("renamed", "/in/b", "/in/a"),
        ("created", "/in/sub", ""),
        ("created", "/in/sub/x", ""),
        ("removed", "/in/b", ""),
        ("created", "/in/c", ""),
        ("attributes", "/in/c", ""),
        ("removed", "/in/sub/x", ""),
        ("removed", "/in/sub", ""),
    ];
    assert_eq!(names, expected(&all), "{past:?}");
    assert_eq!(past.last().unwrap()["resolved"], end);
    // As it happened.
    let mut said = Vec::new();
    eventually("the last of it", || {
        said.extend(lines_of_json(&live.next_line()));
        said.last().is_some_and(|line| line["path"] == "/in/sub" && line["kind"] == "removed").then_some(())
    });
    assert_eq!(events(&said), happened);
    let stamps: Vec<&str> = said.iter().filter_map(|line| line["at"].as_str()).collect();
    assert!(stamps.is_sorted(), "{stamps:?}");
    // The directory itself, and then nothing.
    server.ok(&["rm", "-r", "/in"]);
    assert!(live.wait().success());
    // A file, under any name.
    server.put("/file", "1");
    let from = server.now();
    server.ok(&["mv", "/file", "/out/file"]);
    server.put("/out/other", "another");
    server.put("/out/file", "22");
    let lines = server.json(&["watch", "/out/file", "--from", &from, "--to", "now", "--json"]);
    let of_file = events(&lines);
    assert_eq!(of_file[0], expected(&[("renamed", "/out/file", "/file")])[0]);
    let kinds: Vec<&str> = of_file[1..].iter().map(|(kind, ..)| kind.as_str()).collect();
    assert_eq!(kinds.last(), Some(&"written"), "{lines:?}");
    assert!(of_file.iter().all(|(_, path, _)| path == "/out/file"), "{lines:?}");
}

#[test]
fn writes_of_one_session_within_a_moment_are_one_line_with_all_their_bytes() {
    let server = Served::start();
    server.put("/log", "");
    let from = server.now();
    server.put("/log", vec![7u8; 300_000]);
    let lines = server.json(&["watch", "/", "--from", &from, "--to", "now", "--json"]);
    let written: Vec<&Value> = lines.iter().filter(|line| line["kind"] == "written").collect();
    let bytes: u64 = written
        .iter()
        .flat_map(|line| line["spans"].as_array().unwrap())
        .map(|span| span["len"].as_u64().unwrap())
        .sum();
    assert_eq!(bytes, 300_000, "{lines:?}");
    assert!(written.len() < 5, "{lines:?}");
}

#[test]
fn a_watch_goes_on_from_the_position_that_another_kept_and_runs_commands_at_least_once() {
    let server = Served::start();
    server.ok(&["mkdir", "/in"]);
    let position = server.local("in.mark").to_str().unwrap().to_owned();
    let from = server.now();
    server.put("/in/a b;c", "1");
    let script = "printf '%s %s\\n' \"$FRIEZE_KIND\" \"$FRIEZE_PATH\" >> out; test ! -e \"fail\"";
    let run =
        |args: &[&str]| server.run(&[&["watch", "/in", "--to", "now"], args, &["--exec", "sh", "-c", script]].concat());
    let kept = ["--position", &position];
    assert_eq!(run(&[&["--from", &from], &kept[..]].concat()).status, 0);
    let first = std::fs::read_to_string(server.local("out")).unwrap();
    assert!(first.starts_with("created /in/a b;c\n"), "{first}");
    // A failure keeps the position, and what could not be passed on comes again.
    server.put("/in/second", "2");
    server.local_file("fail", "");
    let said = run(&kept);
    assert!(said.status == 1 && said.err.contains("ended with exit status: 1"), "{said:?}");
    std::fs::remove_file(server.local("fail")).unwrap();
    assert_eq!(run(&kept).status, 0);
    let all = std::fs::read_to_string(server.local("out")).unwrap();
    assert_eq!(all[first.len()..].matches("created /in/second\n").count(), 2, "{all}");
    assert_eq!(all.matches("created /in/a b;c\n").count(), 1, "{all}");
    // Nothing new.
    assert_eq!(run(&kept).status, 0);
    assert_eq!(std::fs::read_to_string(server.local("out")).unwrap(), all);
    assert!(server.fails(2, &["watch", "/in", "--from", "now", "--position", &position]).contains("leave out --from"));
    server.local_file("in.mark", "yesterday");
    assert!(server.fails(2, &["watch", "/in", "--position", &position]).contains("expected one line hlc-"));
}

#[test]
fn a_first_change_that_cannot_be_passed_on_comes_again_though_there_was_no_mark_yet() {
    let server = Served::start();
    server.ok(&["mkdir", "/in"]);
    let position = server.local("first.mark").to_str().unwrap().to_owned();
    let kept = ["watch", "/in", "--position", &position];
    let failing = server.command(&[&kept[..], &["--exec", "false"]].concat());
    let mut failing = ChildProcess::start(failing, &server.local("failing.log"));
    eventually("the position", || server.local("first.mark").exists().then_some(()));
    server.ok(&["mkdir", "/in/first"]);
    assert_eq!(failing.wait().code(), Some(1));
    let lines = server.json(&[&kept[..], &["--to", "now", "--json"]].concat());
    assert_eq!(events(&lines), expected(&[("created", "/in/first", "")]));
    // A position that cannot be kept ends the watch before it has passed anything on.
    let ran = server.local("ran").to_str().unwrap().to_owned();
    let nowhere = server.local("none/mark").to_str().unwrap().to_owned();
    let words = server.fails(1, &["watch", "/in", "--position", &nowhere, "--exec", "touch", &ran]);
    assert!(words.contains("cannot be kept") && !server.local("ran").exists(), "{words}");
    // An endless file is no position.
    assert!(server.fails(2, &["watch", "/in", "--position", "/dev/zero"]).contains("expected one line hlc-"));
}

#[test]
fn a_watch_ends_at_an_instant_to_come_though_nothing_changes() {
    let server = Served::start();
    let now: Hlc = server.now().parse().unwrap();
    let end = Hlc::last_of_micros(now.micros() + 1_500_000).to_string();
    let lines = server.json(&["watch", "/", "--to", &end, "--json"]);
    assert_eq!(lines.last().unwrap()["resolved"], end, "{lines:?}");
}

#[test]
fn a_user_learns_nothing_of_names_in_a_watched_directory_that_they_may_not_read() {
    let server = Served::start();
    let root = client(&server.address);
    let (fs, from) = (root.fs(), root.now().unwrap());
    for (path, mode) in [("/private", 0o700), ("/open", 0o755), ("/open/moved", 0o755), ("/private/secret", 0o755)] {
        fs.mkdir(&Target::path(path), mode).unwrap();
    }
    let begun = root.now().unwrap();
    fs.rename(&Target::path("/open/moved"), &Target::path("/private/hidden"), RenameMode::Replace).unwrap();
    fs.rename(&Target::path("/private/secret"), &Target::path("/open/shown"), RenameMode::Replace).unwrap();
    fs.mkdir(&Target::path("/private/made"), 0o755).unwrap();
    let end = root.now().unwrap();
    let other = fs.as_caller(Caller { uid: 4242, gid: 4242, groups: Vec::new() });
    let items = |fs: &Fs, path: &str, from| {
        let mut feed = fs.watch(&Target::path(path), from).unwrap().until(end);
        let mut items = Vec::new();
        while !feed.has_ended() {
            items.extend(feed.next(Duration::from_secs(10)).unwrap());
        }
        items
    };
    let is_event = |item: &&WatchItem| matches!(item, WatchItem::Event { .. });
    let of_directory = items(&other, "/private", begun);
    assert_eq!(of_directory.iter().filter(is_event).count(), 0, "{of_directory:?}");
    assert_eq!(of_directory[0], WatchItem::LeftOut(false), "{of_directory:?}");
    assert_eq!(items(&fs, "/private", begun).iter().filter(is_event).count(), 3);
    let of_all = format!("{:?}", items(&other, "/", from));
    for name in [&b"secret"[..], b"hidden", b"made"] {
        let bytes = format!("{name:?}");
        assert!(!of_all.contains(bytes.trim_matches(['[', ']'])), "{}: {of_all}", name.escape_ascii());
    }
    let shown = format!("{:?}", b"shown");
    assert!(of_all.contains(shown.trim_matches(['[', ']'])), "{of_all}");
}

#[test]
fn the_position_of_a_feed_is_the_last_mark_that_it_returned() {
    let server = Served::start();
    let root = client(&server.address);
    let (fs, from) = (root.fs(), root.now().unwrap());
    for name in ["/a", "/b", "/c"] {
        fs.mkdir(&Target::path(name), 0o755).unwrap();
    }
    let end = root.now().unwrap();
    let mut feed = fs.watch(&Target::path("/"), from).unwrap().until(end);
    let mut resolved = from;
    while !feed.has_ended() {
        let item = feed.next(Duration::from_secs(10)).unwrap();
        if let Some(WatchItem::Resolved(mark)) = item {
            resolved = mark;
        }
        assert_eq!(feed.resolved(), resolved, "{item:?}");
    }
    assert_eq!(resolved, end);
}

/// A receiver that answers each post with the next of `answers`, and returns heads and bodies.
fn receive(listener: &TcpListener, answers: &[&str]) -> Vec<(String, String)> {
    let mut got = Vec::new();
    let mut open: Option<BufReader<TcpStream>> = None;
    while got.len() < answers.len() {
        let reader = open.get_or_insert_with(|| BufReader::new(listener.accept().unwrap().0));
        let (mut head, mut len) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap() == 0 || line == "\r\n" {
                break;
            }
            if let Some(count) = line.to_lowercase().strip_prefix("content-length: ") {
                len = count.trim().parse().unwrap();
            }
            head += &line.to_lowercase();
        }
        if head.is_empty() {
            open = None;
            continue;
        }
        let mut body = vec![0; len];
        reader.read_exact(&mut body).unwrap();
        let answer = answers[got.len()];
        reader.get_mut().write_all(format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\n\r\n").as_bytes()).unwrap();
        got.push((head, String::from_utf8(body).unwrap()));
    }
    got
}

#[test]
fn a_webhook_gets_signed_posts_again_until_it_accepts_them_and_redirects_are_not_followed() {
    let server = Served::start();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let secret = server.private_file("hook.secret", "a secret of many characters\n");
    let from = server.now();
    server.put("/a", "1");
    let hook = |args: &[&str]| {
        let base = ["watch", "/", "--from", &from, "--to", "now", "--webhook", &url, "--secret", &secret];
        server.command(&[&base[..], args].concat())
    };
    let child = hook(&[]).stderr(Stdio::piped()).spawn().unwrap();
    let away = "302 Found\r\nlocation: http://127.0.0.1:1/";
    let got = receive(&listener, &["500 Oh", away, "204 No Content"]);
    let said = child.wait_with_output().unwrap();
    let err = String::from_utf8(said.stderr).unwrap();
    assert!(said.status.success(), "{err}");
    assert!(err.contains("it answers 500") && err.contains("redirects are not followed"), "{err}");
    let header = |head: &str, name: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix(&format!("{name}: "))).unwrap();
        line.trim().to_owned()
    };
    for (head, body) in &got {
        assert_eq!(body, &got[0].1, "the same again");
        assert_eq!(header(head, "webhook-id"), header(&got[0].0, "webhook-id"));
        assert!(header(head, "webhook-signature").starts_with("v1,"));
        assert!(header(head, "webhook-timestamp").parse::<u64>().is_ok());
    }
    let body: Value = serde_json::from_str(&got[0].1).unwrap();
    assert_eq!(body["events"][0]["kind"], "created");
    assert_eq!(body["events"][0]["path"], "/a");
    assert!(body["resolved"].is_string(), "{body}");
    // A receiver that wants no more.
    let child = hook(&[]).stderr(Stdio::piped()).spawn().unwrap();
    receive(&listener, &["410 Gone"]);
    let said = child.wait_with_output().unwrap();
    assert_eq!(said.status.code(), Some(1));
    assert!(String::from_utf8(said.stderr).unwrap().contains("the receiver wants no more"));
    // What cannot be one.
    let bad = |args: &[&str]| server.fails(2, &[&["watch", "/"], args].concat());
    assert!(bad(&["--webhook", "ftp://x", "--secret", &secret]).contains("expected a URL"));
    assert!(bad(&["--webhook", &url]).contains("--secret"));
    let short = server.private_file("short", "short");
    assert!(bad(&["--webhook", &url, "--secret", &short]).contains("at least 16 characters"));
}

#[test]
fn odd_names_and_odd_instants_are_answered_clearly() {
    let server = Served::start();
    let from = server.now();
    let odd = OsString::from_vec(b"/\xff\n".to_vec());
    server.ok(&[OsString::from("mkdir"), odd]);
    let lines = server.json(&["watch", "/", "--from", &from, "--to", "now", "--json"]);
    let made = lines.iter().find(|line| line["kind"] == "created").unwrap();
    assert_eq!(made["path_hex"], "2fff0a", "{lines:?}");
    assert!(server.fails(1, &["watch", "/", "--from", "2100-01-01"]).contains("after now"), "the future");
    assert!(server.fails(1, &["watch", "/none"]).contains("no such file"));
    assert!(server.fails(2, &["watch", "/", "--from", "now", "--to", "1h-ago"]).contains("swap"));
    // Forgotten history is said to be missing.
    server.put("/f", "1");
    server.put("/f", "2");
    server.ok(&["forget", "--before", "now", "/f"]);
    server.put("/f", "3");
    let lines = lines_of_json(&server.run(&["watch", "/f", "--from", &from, "--to", "now", "--json"]).out());
    assert!(lines.iter().any(|line| line["left_out"] == "forgotten"), "{lines:?}");
    assert!(lines.iter().any(|line| line["kind"] == "written"), "what followed is there: {lines:?}");
}

/// Waits for the line of an event of this path.
fn await_event(watch: &mut ChildProcess, path: &str) {
    let what = format!("an event of {path}");
    eventually(&what, || lines_of_json(&watch.next_line()).iter().any(|line| line["path"] == path).then_some(()));
}

/// How often the threads of a process went to sleep so far.
fn sleeps(process: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let count = |task: std::io::Result<std::fs::DirEntry>| {
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
        line.trim().parse::<u64>().unwrap()
    };
    tasks.map(count).sum()
}

#[test]
fn an_idle_watch_wakes_no_thread_of_its_own() {
    let server = Served::start();
    let mut watch = ChildProcess::start(server.command(&["watch", "/", "--json"]), &server.local("watch.log"));
    server.put("/a", "1");
    await_event(&mut watch, "/a");
    // Until what it does after the last change is done.
    eventually("the watch sleeps", || {
        let before = sleeps(watch.id());
        pass(Duration::from_secs(2));
        (sleeps(watch.id()) == before).then_some(())
    });
    server.put("/b", "1");
    await_event(&mut watch, "/b");
}
