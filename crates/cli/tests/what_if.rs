//! `frieze what-if` on a trace of its own making.

use std::path::Path;
use std::process::{Command, Output};

use frieze_trace::{CallKind, Gateway};
use frieze_tracefile::{KindRules, Manifest, TraceNames, TraceRow, TraceWriter};

fn frieze(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_frieze")).args(args).output().expect("the machine of the test has room")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Reads of a hot quarter and of the rest, and a log, for `seconds`.
fn trace(dir: &Path, seconds: i64) {
    let mut writer = TraceWriter::create(dir, Manifest::new("test")).expect("the machine of the test has room");
    for second in 0..seconds {
        let data = |call, inode: u64, offset: u64, bytes: u64| TraceRow {
            inode: Some(inode),
            offset: Some(offset),
            got: Some(bytes),
            ..TraceRow::new(second * 1_000_000_000, call, Gateway::Hdfs)
        };
        let (hot, cold) = (second as u64 * 7 % 16, 16 + second as u64 * 13 % 48);
        writer
            .push(data(CallKind::Read, 1 + hot / 4, (hot % 4) << 20, 50_000))
            .expect("the machine of the test has room");
        writer
            .push(data(CallKind::Read, 1 + cold / 4, (cold % 4) << 20, 50_000))
            .expect("the machine of the test has room");
        writer
            .push(data(CallKind::Append, 1000, second as u64 * 1400, 1400))
            .expect("the machine of the test has room");
    }
    writer.finish(&TraceNames::default(), &KindRules::built_in(), true).expect("the machine of the test has room");
}

#[test]
fn the_answer_comes_in_words_then_as_a_table_then_with_what_it_assumes() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("trace");
    trace(&at, 500);
    let at = at.to_str().unwrap();
    let out = dir.path().join("report");
    let done = frieze(&[
        "what-if",
        at,
        "--set",
        "ram=1MB",
        "--sweep",
        "ram=1MB,2MB",
        "flash=0,1MB",
        "disks=10,15",
        "--out",
        out.to_str().unwrap(),
    ]);
    let words = text(&done.stdout);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(words.starts_with("You have"), "{words}");
    for part in ["Worth their price", "of 8 systems", "FS reads MB/min", "It assumes:", "the trace has no purposes"] {
        assert!(words.contains(part), "{part}: {words}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(out.join("what-if.json")).unwrap()).unwrap();
    assert_eq!(json["systems"].as_array().unwrap().len(), 8);
    assert_eq!(std::fs::read_to_string(out.join("systems.csv")).unwrap().lines().count(), 9);
    assert!(std::fs::read_to_string(out.join("price.svg")).unwrap().ends_with("</svg>\n"));
}

#[test]
fn json_is_one_document_and_missing_prices_are_no_costs() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("trace");
    trace(&at, 50);
    let done = frieze(&["what-if", at.to_str().unwrap(), "--profile", "hdd-nvme", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    let system = &json["systems"][0];
    assert!(system["capex"].is_null() && system["hit_ratio"].as_f64().unwrap() > 0.0);
    let assumed = json["assumptions"].to_string();
    assert!(assumed.contains("profile hdd-nvme lacks prices") && assumed.contains("caches are larger than all files"));
}

#[test]
fn what_cannot_be_answered_is_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("trace");
    trace(&at, 5);
    let at = at.to_str().unwrap();
    let many = (1..=400).map(|number| number.to_string()).collect::<Vec<_>>().join(",");
    let (ram, flash) = (format!("ram={many}"), format!("flash={many}"));
    for (args, words) in [
        (vec!["--set", "disks=0"], "disk.count = 0 is outside 1 to 1000 disks"),
        (vec!["--set", "ram=1e30"], "is outside 0 to 100000 GB"),
        (vec!["--set", "disk.color=red"], "there is no setting disk.color"),
        (vec!["--on-flash-hit", "keep"], "keep needs flash"),
        (vec!["--profile", "no-such"], "built in are fast14, hdd-nvme, hdd-qlc"),
        (vec!["--scale", "4000000"], "disk.seek"),
        (vec!["--sweep", &ram, &flash], "160000 systems are too many for one run, 10000 is the most"),
    ] {
        let done = frieze(&[vec!["what-if", at], args.clone()].concat());
        assert_eq!(done.status.code(), Some(2), "{args:?}: {}", text(&done.stderr));
        assert!(text(&done.stderr).contains(words), "{args:?}: {}", text(&done.stderr));
    }
    let empty = dir.path().join("empty");
    trace(&empty, 0);
    let done = frieze(&["what-if", empty.to_str().unwrap()]);
    assert!(!done.status.success() && text(&done.stderr).contains("no reads and no writes"), "{}", text(&done.stderr));
    let done = frieze(&["what-if", "-"]);
    assert!(done.status.code() == Some(2) && text(&done.stderr).contains("names no trace"), "{}", text(&done.stderr));
    let done = frieze(&["what-if", dir.path().join("none").to_str().unwrap()]);
    assert!(!done.status.success() && text(&done.stderr).contains("none"), "{}", text(&done.stderr));
}

#[test]
fn a_load_is_simulated_by_the_name_that_it_prints() {
    let dir = tempfile::tempdir().unwrap();
    let mut load = Command::new(env!("CARGO_BIN_EXE_frieze"));
    load.args(["load", "messages", "--scale", "1/3000", "--days", "0.3"]).env("XDG_CACHE_HOME", dir.path());
    let made = load.output().unwrap();
    assert!(made.status.success(), "{}", text(&made.stderr));
    let name = dir.path().join("name");
    std::fs::write(&name, &made.stdout).unwrap();
    let mut what_if = Command::new(env!("CARGO_BIN_EXE_frieze"));
    what_if.args(["what-if", "--fast14", "--json"]).stdin(std::fs::File::open(&name).unwrap());
    let answered = what_if.output().unwrap();
    assert!(answered.status.success(), "{}", text(&answered.stderr));
    let answer: serde_json::Value = serde_json::from_slice(&answered.stdout).unwrap();
    assert_eq!((&answer["scale"], answer["systems"].as_array().unwrap().len()), (&3000.into(), 36));
    let words = answer["answer"].to_string();
    assert!(words.contains("Worth their price") && words.contains("From 10 GB, 10 disks"), "{words}");
    for scale in ["0", "-1", "2", "1e9", "1/0", "half"] {
        let refused = frieze(&["load", "messages", "--scale", scale]);
        assert_eq!(refused.status.code(), Some(2), "{scale}: {}", text(&refused.stderr));
        assert!(text(&refused.stderr).contains("1/225"), "{scale}: {}", text(&refused.stderr));
    }
}
