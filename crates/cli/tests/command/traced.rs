//! `--trace-ring` and `trace`: what is recorded, and what is not.

use std::fs;

use frieze_harness::requirements;
use serde_json::Value;

use crate::served::Served;

const RING: [&str; 4] = ["--trace-ring", "1M", "--trace-dir", "rings"];

fn summary(server: &Served) -> Value {
    server.json(&["trace", "summary", "--json", "--trace-dir", "rings"]).remove(0)
}

fn call(summary: &Value, gateway: &str, call: &str, field: &str) -> u64 {
    let calls = summary["calls"].as_array().unwrap();
    let row = calls.iter().find(|row| row["gateway"] == gateway && row["call"] == call);
    row.map_or(0, |row| row[field].as_u64().unwrap())
}

#[test]
fn a_command_records_its_calls_without_content() {
    let server = Served::start();
    let secret = "content that no trace may hold";
    let file = server.local_file("secret.txt", secret);
    server.ok(&[&["put", &file, "/kept.txt"][..], &RING].concat());
    server.fails(1, &[&["cat", "/missing.txt"][..], &RING].concat());
    let found = summary(&server);
    assert_eq!(call(&found, "command", "write", "bytes"), secret.len() as u64, "{found}");
    assert_eq!(call(&found, "command", "write", "failed"), 0);
    assert_eq!(call(&found, "command", "stat", "failed"), 2, "{found}");
    assert_eq!((&found["overwritten"], &found["torn"], &found["unknown"]), (&0.into(), &0.into(), &0.into()));
    let file = &found["files"][0];
    assert_eq!((&file["path"], &file["written"]), (&"/kept.txt".into(), &(secret.len() as u64).into()), "{found}");
    let rings = server.json(&["trace", "list", "--json", "--trace-dir", "rings"]);
    let programs: Vec<&Value> = rings.iter().map(|ring| &ring["program"]).collect();
    assert_eq!(programs.len(), 2, "{rings:?}");
    assert!(rings.iter().all(|ring| ring["running"] == false && ring["events"].as_u64() > Some(0)), "{rings:?}");
    for entry in fs::read_dir(server.local("rings")).unwrap() {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(secret.len()).any(|window| window == secret.as_bytes()), "content is never recorded");
    }
    let text = server.ok(&["trace", "summary", "--trace-dir", "rings"]);
    assert!(text.contains("/kept.txt") && text.contains("command"), "{text}");
}

#[test]
fn a_mount_records_what_programs_ask_of_it() {
    if !requirements::fuse() {
        return;
    }
    let server = Served::start();
    let mountpoint = server.local("mnt");
    fs::create_dir(&mountpoint).unwrap();
    server.ok(&[&["mount", "mnt"][..], &RING].concat());
    fs::create_dir(mountpoint.join("dir")).unwrap();
    fs::write(mountpoint.join("dir/a.txt"), b"0123456789").unwrap();
    assert_eq!(fs::read(mountpoint.join("dir/a.txt")).unwrap().len(), 10);
    fs::rename(mountpoint.join("dir/a.txt"), mountpoint.join("dir/b.txt")).unwrap();
    assert!(!mountpoint.join("dir/a.txt").exists());
    fs::remove_file(mountpoint.join("dir/b.txt")).unwrap();
    // While it runs.
    let found = summary(&server);
    for (name, count) in [("mkdir", 1), ("create", 1), ("write", 1), ("rename", 1), ("unlink", 1)] {
        assert_eq!(call(&found, "mount", name, "count"), count, "{name}: {found}");
        assert_eq!(call(&found, "mount", name, "failed"), 0, "{name}: {found}");
    }
    assert_eq!(call(&found, "mount", "write", "bytes"), 10, "{found}");
    assert!(call(&found, "mount", "lookup", "failed") > 0, "{found}");
    server.ok(&["umount", "mnt"]);
    let rings = server.json(&["trace", "list", "--json", "--trace-dir", "rings"]);
    assert_eq!(rings.len(), 1, "{rings:?}");
}

#[test]
fn a_ring_that_cannot_be_is_refused_in_clear_words() {
    let server = Served::start();
    let refused = server.fails(2, &["ls", "/", "--trace-ring", "much"]);
    assert!(refused.contains("--trace-ring much: give a size, such as 256M"), "{refused}");
    let refused = server.fails(1, &["ls", "/", "--trace-ring", "1K", "--trace-dir", "rings"]);
    assert!(refused.contains("give 1048576 to"), "{refused}");
    let refused = server.fails(1, &["trace", "summary", "--trace-dir", "nowhere"]);
    assert!(refused.contains("no ring in nowhere: record one with --trace-ring 256M"), "{refused}");
    let file = server.local_file("no.ring", "not a ring");
    let refused = server.fails(1, &["trace", "summary", &file]);
    assert!(refused.contains("is no ring of a trace"), "{refused}");
    // A directory that another user could have made first is not taken in place of a home.
    let mut homeless = server.command(&["trace", "list"]);
    let output = homeless.env_remove("HOME").env_remove("XDG_STATE_HOME").output().unwrap();
    let refused = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{refused}");
    assert!(refused.contains("--trace-dir: name the directory of rings; there is no HOME"), "{refused}");
}

#[test]
fn rings_become_a_trace_that_stays_and_a_copy_without_names() {
    let server = Served::start();
    let file = server.local_file("a.rs", "fn main() {}");
    server.ok(&[&["put", &file, "/marked-name.rs"][..], &RING].concat());
    server.ok(&[&["mv", "/marked-name.rs", "/moved.rs"][..], &RING].concat());
    let saved = server.json(&["trace", "save", "traces/one", "--json", "--trace-dir", "rings"]).remove(0);
    assert!(saved["events"].as_u64() > Some(3) && saved["paths"].as_u64() > Some(1), "{saved}");
    assert!(server.local("traces/one/manifest.json").exists());
    let text = server.fails(1, &["trace", "save", "traces/one", "--trace-dir", "rings"]);
    assert!(text.contains("is not empty"), "{text}");
    let none =
        server.json(&["trace", "save", "traces/late", "--last", "0s", "--json", "--trace-dir", "rings"]).remove(0);
    assert_eq!(none["events"], 0);
    let text = server.fails(2, &["trace", "save", "traces/x", "--last", "yesterday", "--trace-dir", "rings"]);
    assert!(text.contains("such as 10m"), "{text}");

    let copy = server.json(&["trace", "export", "traces/one", "--to", "traces/copy", "--json"]).remove(0);
    assert_eq!(copy["events"], saved["events"]);
    let is_named = |dir: &str| {
        let mut dirs = vec![server.local(dir)];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => dirs.push(path),
                    false if fs::read(&path).unwrap().windows(11).any(|window| window == b"marked-name") => {
                        return true;
                    }
                    false => {}
                }
            }
        }
        false
    };
    assert_eq!((is_named("traces/one"), is_named("traces/copy")), (true, false));
    let blocks = ["trace", "export", "traces/one", "--to", "blocks", "--format", "libcachesim", "--writes", "--json"];
    assert_eq!(server.json(&blocks).remove(0)["requests"], 1);
    assert_eq!(fs::metadata(server.local("blocks")).unwrap().len(), 24);
    let text =
        server.fails(2, &["trace", "export", "traces/one", "--to", "b", "--format", "cachebench", "--block", "3"]);
    assert!(text.contains("such as 4K"), "{text}");
    let text = server.fails(1, &["trace", "export", "traces", "--to", "b"]);
    assert!(text.contains("no whole trace"), "{text}");
}

#[test]
fn what_another_program_recorded_becomes_a_trace() {
    let server = Served::start();
    let line = "1700000000.1 openat(AT_FDCWD</src>, \"a.c\", O_RDONLY) = 3</src/a.c> <0.1>\nno call\n";
    let input = server.local_file("build.strace", line);
    let import = |to: &str, more: &[&str]| {
        let base = ["trace", "import", "--format", "strace", &input, "--to", to, "--trace-dir", "rings"];
        base.iter().chain(more).map(|word| (*word).to_owned()).collect::<Vec<String>>()
    };
    let words = |words: &[String]| -> Vec<String> { words.to_vec() };
    let run = words(&import("build", &["--json"]));
    let found = server.json(&run.iter().map(String::as_str).collect::<Vec<_>>()).remove(0);
    assert_eq!((&found["events"], &found["paths"]), (&1.into(), &2.into()), "{found}");
    assert_eq!(found["notes"][0]["count"], 1, "{found}");
    let run = words(&import("other", &["--under", "/mnt"]));
    let text = server.fails(1, &run.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(text.contains("no call in the format strace"), "{text}");
    assert!(!server.local("other").exists(), "nothing is left of it");
    let run = words(&import("other", &["--zone", "25"]));
    let text = server.fails(2, &run.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(text.contains("hours from -24 to 24"), "{text}");
}

fn manifest(server: &Served, trace: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(server.local(trace).join("manifest.json")).unwrap()).unwrap()
}

#[test]
fn commands_record_into_one_trace_one_after_the_other() {
    let server = Served::start();
    let trace = ["--trace", "load", "--trace-dir", "rings"];
    let file = server.local_file("a.rs", "fn main() {}");
    server.ok(&[&["put", &file, "/a.rs"][..], &trace].concat());
    let first = manifest(&server, "load");
    assert!(first["events"].as_u64() > Some(1) && first["recording"].is_null(), "{first}");
    server.ok(&[&["mv", "/a.rs", "/b.rs"][..], &trace].concat());
    let second = manifest(&server, "load");
    assert!(second["events"].as_u64() > first["events"].as_u64(), "{second}");
    assert_eq!(second["programs"].as_array().unwrap().len(), 2);
    let copy = server.json(&["trace", "export", "load", "--to", "copy", "--json"]).remove(0);
    assert_eq!(copy["events"], second["events"]);

    let refused = server.fails(2, &["ls", "/", "--trace", "load", "--trace-dir", "rings", "--trace-max", "1"]);
    assert!(refused.contains("--trace-max 1: give a size from 1M on"), "{refused}");
    let refused = server.fails(1, &["ls", "/", "--trace", ".", "--trace-dir", "rings"]);
    assert!(refused.contains("--trace .") && refused.contains("is not empty"), "{refused}");
    server.local_file("taken", "");
    let refused = server.fails(1, &["ls", "/", "--trace", "taken", "--trace-dir", "rings"]);
    assert!(refused.contains("--trace taken: cannot create"), "{refused}");
}

#[test]
fn a_mount_that_is_killed_leaves_a_trace_that_its_next_reader_completes() {
    if !requirements::fuse() {
        return;
    }
    let server = Served::start();
    let mountpoint = server.local("mnt");
    fs::create_dir(&mountpoint).unwrap();
    let options = ["mount", "--foreground", "mnt", "--trace", "load", "--trace-dir", "rings"];
    let mut child = server.command(&options).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.as_mut().unwrap()), &mut line).unwrap();
    let refused = server.fails(1, &["ls", "/", "--trace", "load", "--trace-dir", "rings"]);
    assert!(refused.contains("another program records into it"), "{refused}");
    (0..20).for_each(|number| fs::write(mountpoint.join(format!("f{number}.txt")), b"0123456789").unwrap());
    child.kill().unwrap();
    child.wait().unwrap();
    nix::mount::umount2(&mountpoint, nix::mount::MntFlags::MNT_DETACH).unwrap();
    assert!(manifest(&server, "load")["recording"].is_object());

    let said = server.run(&["trace", "export", "load", "--to", "copy", "--json"]);
    assert!(said.err.contains("the program that recorded into load did not end it"), "{}", said.err);
    let whole = manifest(&server, "load");
    assert!(whole["recording"].is_null() && whole["lost"]["torn"].as_u64() <= Some(1), "{whole}");
    let calls = whole["events"].as_u64().unwrap();
    assert!(calls >= 3 * 20, "a create, a write and a close of each file: {calls}");
    assert_eq!(serde_json::from_str::<Value>(&said.out()).unwrap()["events"], whole["events"]);
}

#[test]
fn advice_comes_from_rings_or_a_trace_and_changes_nothing() {
    let server = Served::start();
    let file = server.local_file("a.rs", "fn main() {}");
    server.ok(&[&["put", &file, "/a.rs"][..], &RING].concat());
    server.ok(&["cat", "/a.rs", "--trace", "load", "--trace-dir", "rings"]);
    let topics = |args: &[&str]| -> Vec<Value> { server.json(&[args, &["--json", "--trace-dir", "rings"]].concat()) };
    let before = manifest(&server, "load");
    for source in [&["advise"][..], &["advise", "load"]] {
        let advice = topics(source);
        assert_eq!(advice.len(), 6, "{advice:?}");
        assert!(advice.iter().all(|advice| advice["confidence"] == "low" && advice["because"].is_string()));
    }
    assert_eq!(manifest(&server, "load"), before, "nothing is recorded into what is read");
    let text = server.ok(&["advise", "load", "--memory", "1G"]);
    assert!(text.contains("1.0 GiB, as --memory says") && text.contains("Nothing to gain:"), "{text}");
    let text = server.ok(&["advise", "load"]);
    assert!(text.contains("as the server says"), "{text}");
    let refused = server.fails(2, &["advise", "load", "--memory", "1"]);
    assert!(refused.contains("--memory 1: give a size from 64M on"), "{refused}");
    let refused = server.fails(1, &["advise", "nowhere"]);
    assert!(refused.contains("nowhere: no such directory"), "{refused}");
    let refused = server.fails(1, &["advise", "--trace-dir", "nowhere"]);
    assert!(refused.contains("no ring in nowhere"), "{refused}");
}
