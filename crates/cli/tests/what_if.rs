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
        (vec!["--set", "disks=0"], "the profile has no object.latency"),
        (vec!["--set", "disks=-1"], "disk.count = -1 is outside 0 to 1000 disks"),
        (vec!["--code", "0+3"], "such as 6+3:1024"),
        (vec!["--code", "6"], "such as 6+3:1024"),
        (vec!["--sample", "64"], "such as 1/64"),
        (vec!["--sample", "1/1"], "such as 1/64"),
        (vec!["--sample", "1/64", "--report", "x"], "cannot be used with"),
        (vec!["--set", "ram=1e30"], "is outside 0 to 100000 GB"),
        (vec!["--set", "disk.color=red"], "there is no setting disk.color"),
        (vec!["--on-flash-hit", "keep"], "keep needs flash"),
        (vec!["--profile", "no-such"], "built in are fast14, hdd-nvme, hdd-qlc"),
        (vec!["--scale", "4000000"], "disk.seek"),
        (vec!["--finish", "2"], "days before the end of the trace, as -2"),
        (vec!["--finish", "NaN"], "days before the end of the trace"),
        (vec!["--jitter", "60001"], "60001 is not in"),
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
fn a_load_may_be_jittered_and_end_early() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("trace");
    trace(&at, 500);
    let run = |args: &[&str]| -> serde_json::Value {
        let done = frieze(&[&["what-if", at.to_str().unwrap(), "--json"], args].concat());
        assert!(done.status.success(), "{args:?}: {}", text(&done.stderr));
        serde_json::from_slice(&done.stdout).unwrap()
    };
    let (whole, jittered) = (run(&[]), run(&["--jitter", "10"]));
    let reads = |answer: &serde_json::Value| answer["systems"][0]["table1"]["FS reads MB/min"].as_f64().unwrap();
    let waits = |answer: &serde_json::Value| answer["systems"][0]["table1"]["Disk queue ms"].as_f64().unwrap();
    assert!((reads(&whole) / reads(&jittered) - 1.0).abs() < 0.001);
    assert_ne!(waits(&whole), waits(&jittered));
    assert!(jittered["assumptions"].to_string().contains("later by up to 10 ms"));
    let early = run(&["--finish", "-0.004"]);
    assert!(early["assumptions"].to_string().contains("ends 0.00 days early"), "{early}");
    assert!((reads(&whole) / reads(&early) - 1.0).abs() < 0.1, "the load is even");
}

#[test]
fn hardware_of_today_has_codes_objects_and_samples() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("trace");
    trace(&at, 2000);
    let run = |args: &[&str]| -> serde_json::Value {
        let done = frieze(&[&["what-if", at.to_str().unwrap(), "--set", "ram=1MB", "--json"], args].concat());
        assert!(done.status.success(), "{args:?}: {}", text(&done.stderr));
        serde_json::from_slice(&done.stdout).unwrap()
    };
    let number = |answer: &serde_json::Value, system: usize, name: &str| answer["systems"][system][name].as_f64();
    let (copies, code) = (run(&[]), run(&["--model", "erasure-coded", "--code", "6+3"]));
    let ms = |answer: &serde_json::Value| number(answer, 0, "foreground_ms").unwrap();
    assert!(ms(&code) > ms(&copies), "a read waits for the slowest part: {} and {}", ms(&code), ms(&copies));
    let priced = ["object.get_price=0.0004", "object.put_price=0.005", "object.price=0.023", "ram.price=4"];
    let set: Vec<&str> = priced.iter().flat_map(|price| ["--set", price]).collect();
    let report = dir.path().join("report");
    let store =
        ["--profile", "hdd-qlc", "--set", "disk.price=300", "--set", "flash.price=0.1", "--sweep", "disks=0,15"];
    let stored = run(&[&store[..], &set, &["--report", report.to_str().unwrap()]].concat());
    let at_store = stored["systems"].as_array().unwrap().iter().find(|system| system["disks"] == 0).unwrap();
    assert!(at_store["name"].as_str().unwrap().ends_with("an object store"), "{at_store}");
    assert!(at_store["object_gets_a_year"].as_f64().unwrap() > 0.0 && at_store["object_rent"].as_f64().unwrap() > 0.0);
    assert!(at_store["foreground_ms"].as_f64().unwrap() > 10.0);
    assert!(stored["assumptions"].to_string().contains("an object store answers any number of requests"));
    let sampled = run(&["--policy", "sieve", "--sample", "1/2", "--sweep", "ram=1MB,8MB"]);
    assert!(number(&sampled, 1, "hit_ratio_error").is_some_and(|error| error > 0.0));
    assert!(number(&sampled, 1, "hit_ratio").unwrap() >= number(&sampled, 0, "hit_ratio").unwrap());
    assert!(sampled["assumptions"].to_string().contains("one in 2 frames"));
    assert_eq!(number(&copies, 0, "hit_ratio_error"), None);
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

/// The page computes money as this program does, at the profile's prices and at others; node runs it, where it is.
#[test]
fn the_page_of_a_report_computes_money_as_the_simulator_does() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("trace </script>");
    trace(&at, 500);
    let at = at.to_str().unwrap();
    let report = dir.path().join("report");
    let sweep = ["--set", "ram=1MB", "--sweep", "ram=1MB,2MB,3MB", "flash=0,1MB", "disks=10,15", "--json"];
    let made = frieze(&[&["what-if", at, "--report", report.to_str().unwrap()][..], &sweep].concat());
    assert!(made.status.success(), "{}", text(&made.stderr));
    let page = std::fs::read_to_string(report.join("what-if.html")).unwrap();
    let between = |from: &str, to: &str| {
        let begin = page.find(from).unwrap() + from.len();
        &page[begin..begin + page[begin..].find(to).unwrap()]
    };
    assert_eq!(page.matches("http").count(), 1, "it needs nothing else: the only address is the name of SVG");
    let data = between("<script type=\"application/json\" id=\"data\">", "</script>");
    let known: serde_json::Value = serde_json::from_str(data).unwrap();
    assert!(known["about"].as_str().unwrap().contains("trace </script>"), "{known}");
    assert_eq!((known["systems"].as_array().unwrap().len(), known["crashes"].as_array().unwrap().len()), (12, 2));
    assert!(!known["ambiguous"].as_array().unwrap().is_empty());

    if Command::new("node").arg("--version").output().is_err() {
        return;
    }
    let script = between("<script id=\"page\">", "</script>");
    std::fs::write(dir.path().join("page.cjs"), script).unwrap();
    std::fs::write(dir.path().join("data.json"), data).unwrap();
    let priced =
        "const page = require('./page.cjs'), data = require('./data.json'), price = JSON.parse(process.argv[2]);
        const all = data.systems.map((system) => page.costs(system, price, data.afr));
        const is = page.justified(all.map((cost, at) => [cost.capex, data.systems[at].ms ?? Infinity]));
        console.log(JSON.stringify(all.map((cost, at) => ({ ...cost, justified: is[at] }))));";
    std::fs::write(dir.path().join("priced.cjs"), priced).unwrap();
    for (disk, ram, flash) in [("100", "5", "0.8"), ("37.5", "20000", "3"), ("0", "0.25", "90000")] {
        let prices = [
            "--set",
            &format!("disk.price={disk}"),
            "--set",
            &format!("ram.price={ram}"),
            "--set",
            &format!("flash.price={flash}"),
        ];
        let answered = frieze(&[&["what-if", at][..], &prices, &sweep].concat());
        let answer: serde_json::Value = serde_json::from_slice(&answered.stdout).unwrap();
        let mut node = Command::new("node");
        node.arg(dir.path().join("priced.cjs"));
        let ran = node.arg(format!("{{\"disk\":{disk},\"ram\":{ram},\"flash\":{flash}}}")).output().unwrap();
        assert!(ran.status.success(), "{}", text(&ran.stderr));
        let page: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
        for (ours, theirs) in answer["systems"].as_array().unwrap().iter().zip(page.as_array().unwrap()) {
            for name in ["capex", "opex", "opex_with_ram"] {
                let (ours, theirs) = (ours[name].as_f64().unwrap(), theirs[name].as_f64().unwrap());
                assert!((ours - theirs).abs() <= 1e-9 * ours.abs(), "{disk} {ram} {flash}: {name} {ours} {theirs}");
            }
            assert_eq!(ours["justified"], theirs["justified"], "{disk} {ram} {flash}: {ours}");
        }
    }
}

/// Half of the systems of an endless run, and Ctrl-C: those that are done answer.
#[test]
fn an_interrupted_run_answers_from_the_systems_that_are_done() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("trace");
    trace(&at, 4000);
    let sizes: Vec<String> = (1..=2400).map(|mb| format!("{mb}MB")).collect();
    let sweep = format!("ram={}", sizes.join(","));
    let mut child = Command::new(env!("CARGO_BIN_EXE_frieze"))
        .args(["what-if", at.to_str().unwrap(), "--set", "ram=1MB", "--threads", "1", "--json"])
        .args(["--sweep", &sweep, "disks=1,2,3,4", "--report"])
        .arg(dir.path().join("report"))
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // It takes signals once its thread for them is there; the first systems are done within two seconds of its work.
    let process = std::path::PathBuf::from(format!("/proc/{}", child.id()));
    let is_of_signals = |task: std::fs::DirEntry| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim() == "signals")
    };
    let takes_signals = || {
        std::fs::read_dir(process.join("task")).is_ok_and(|mut tasks| tasks.any(|task| task.is_ok_and(is_of_signals)))
    };
    let worked_ticks = || -> u64 {
        let stat = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        fields.get(11).and_then(|ticks| ticks.parse().ok()).unwrap_or(0)
    };
    let mut wait_until = |reached: &dyn Fn() -> bool| {
        while !reached() && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
    };
    wait_until(&takes_signals);
    let begin = worked_ticks();
    wait_until(&|| worked_ticks() > begin + 200);
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    let done = child.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(130), "{}", text(&done.stderr));
    assert!(text(&done.stderr).contains("of 9601 systems are missing"), "{}", text(&done.stderr));
    let answer: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    let systems = answer["systems"].as_array().unwrap().len();
    assert!((1..9601).contains(&systems), "{systems}");
    assert!(answer["answer"].to_string().contains(&format!("{} of 9601 systems are missing", 9601 - systems)));
    assert!(dir.path().join("report/what-if.html").exists());
}
