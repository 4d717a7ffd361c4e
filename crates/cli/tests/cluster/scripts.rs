//! What scripts rest on: commands that end with 0 only when they did something or it is so, and the upgrade as it is
//! documented.

use std::io::Write;

use nix::sys::signal::Signal;

use super::*;

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

#[test]
fn a_lone_server_keeps_the_wanted_count_of_copies_and_refuses_other_orders() {
    let mut cluster = ServedCluster::of(1);
    for args in [
        &["balance", "on"][..],
        &["balance", "off"],
        &["drain", "db1"],
        &["undrain", "db1"],
        &["remove", "db1"],
        &["declare-dead", "db1", "--yes"],
        &["wait", "--for", "joined", "db2"],
        &["wait", "--for", "drained", "db1"],
    ] {
        let output = cluster.frieze(0, &[&["cluster"], args].concat());
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!((code(&output), words.contains("the server is alone")), (1, true), "{args:?}: {words}");
    }
    for args in [&["status"][..], &["nodes"], &["wait", "--for", "whole"]] {
        assert_eq!(code(&cluster.frieze(0, &[&["cluster"], args].concat())), 0, "{args:?}");
    }
    assert_eq!(code(&cluster.frieze(0, &["cluster", "replicas", "9"])), 2);
    let kept = cluster.frieze(0, &["cluster", "replicas", "1", "--json"]);
    assert_eq!((code(&kept), &kept.stdout[..]), (0, &b"{\"cluster\":null,\"replicas\":1}\n"[..]));
    // It outlives the process, and the settings say something else.
    cluster.kill(0);
    cluster.start_again(0);
    cluster.grow();
    let whole = cluster.frieze(1, &["cluster", "wait", "--for", "whole", "--json"]);
    assert_eq!(code(&whole), 0, "{whole:?}");
    let found: serde_json::Value = serde_json::from_slice(&whole.stdout).unwrap();
    assert_eq!((&found["replicas"], &found["copies_wanted"]), (&1.into(), &1.into()));
    let copies = found["chains"].as_array().unwrap().iter().map(|chain| chain["targets"].as_array().unwrap().len());
    assert_eq!(copies.max(), Some(1), "{found}");
    let idle = cluster.frieze(0, &["cluster", "undrain", "db2"]);
    assert_eq!(code(&idle), 1, "it does not drain: {idle:?}");
    assert_eq!(code(&cluster.frieze(0, &["scrub", "--stop"])), 1, "none is under way");
    assert_eq!(code(&cluster.frieze(0, &["quota", "/", "--files", "none"])), 1, "there is none");
    assert_eq!(code(&cluster.frieze(0, &["snapshot", "delete", "nothing"])), 1);
    assert_eq!(code(&cluster.frieze(0, &["time", "unbind", "/"])), 1);
}

/// The lines of the page that are indented below this heading, up to the next paragraph that is not.
fn documented(heading: &str) -> String {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operating.md")).unwrap();
    let section = page.split_once(&format!("\n## {heading}\n")).unwrap().1;
    let indented = section.lines().skip_while(|line| !line.starts_with("    "));
    indented.take_while(|line| line.starts_with("    ")).map(|line| format!("{line}\n")).collect()
}

/// As the page says it, word for word; `ssh` restarts a server here as `systemctl restart` does there: it returns when
/// the server serves.
#[test]
fn an_upgrade_by_the_documented_commands_loses_nothing_and_interrupts_no_client() {
    let mut cluster = ServedCluster::of(3);
    let script = documented("To stop, restart or upgrade a server");
    assert!(script.contains("systemctl restart frieze") && script.contains("db1 db2 db3"), "{script}");
    let before =
        "frieze() { \"$BIN\" \"$@\"; }\nssh() { echo \"restart $1\"; read -r answer; test \"$answer\" = serves; }\n";
    let mut bash = Command::new("bash")
        .args(["-c", &format!("{before}{script}")])
        .env("BIN", env!("CARGO_BIN_EXE_frieze"))
        .env("FRIEZE_SERVER", cluster.addresses.join(","))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut answers, lines) = (bash.stdin.take().unwrap(), BufReader::new(bash.stdout.take().unwrap()).lines());
    let (over, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let writer = cluster.client(0);
    std::thread::scope(|scope| {
        let ends = SetOnDrop(&over);
        scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                let number = written.load(Ordering::Acquire);
                write(&writer, &format!("/f{number}"), &random_bytes(number, 200_000));
                written.store(number + 1, Ordering::Release);
            }
        });
        let mut restarted = Vec::new();
        for line in lines.map(Result::unwrap) {
            let Some(name) = line.strip_prefix("restart ") else { continue };
            let number: usize = name.strip_prefix("db").unwrap().parse::<usize>().unwrap() - 1;
            // The others have everything: one that goes now costs nothing.
            let reply = cluster.client((number + 1) % 3).cluster(None).unwrap();
            let serving = |chain: &frieze_client::ClusterChain| {
                chain.targets.iter().filter(|target| target.state == "serving").count()
            };
            assert!(reply.chains.iter().all(|chain| serving(chain) == 3), "before {name}: {reply:?}");
            let mut server = cluster.servers[number].take().unwrap();
            server.signal(Signal::SIGTERM);
            assert!(server.wait().success());
            cluster.start_again(number);
            restarted.push(name.to_owned());
            answers.write_all(b"serves\n").unwrap();
        }
        drop(ends);
        assert_eq!(restarted, ["db1", "db2", "db3"]);
    });
    assert!(bash.wait().unwrap().success());
    let written = written.into_inner();
    assert!(written > 3, "{written}");
    for number in 0..written {
        let found = read(&cluster.client(number as usize % 3), &format!("/f{number}"));
        assert!(found == random_bytes(number, 200_000), "/f{number}");
    }
}

#[test]
fn wait_retries_without_any_server_until_its_timeout() {
    let mut cluster = ServedCluster::of(1);
    cluster.kill(0);
    let address = cluster.addresses[0].clone();
    let wait = |limit: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_frieze"));
        command.args(["--server", &address, "cluster", "wait", "--for", "whole", "--timeout", limit]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let never = wait("1").wait_with_output().unwrap();
    let words = String::from_utf8_lossy(&never.stderr);
    assert_eq!(never.status.code(), Some(1), "{words}");
    assert!(words.contains("cluster: no server of the cluster answers: "), "{words}");
    assert!(words.contains("not within 1 s (--timeout): no server of the cluster answers"), "{words}");
    // It asks before anything listens there, and says so.
    let mut waiting = wait("60");
    let mut line = String::new();
    BufReader::new(waiting.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("no server of the cluster answers"), "{line}");
    cluster.start_again(0);
    assert!(waiting.wait_with_output().unwrap().status.success());
}

#[test]
fn wait_tells_a_server_without_a_majority_from_one_that_does_not_answer() {
    let mut cluster = ServedCluster::of(2);
    cluster.await_whole(0);
    cluster.kill(1);
    // Longer than the lease of the former leader.
    let waited = cluster.frieze(0, &["cluster", "wait", "--for", "whole", "--timeout", "4"]);
    let words = String::from_utf8_lossy(&waited.stderr);
    assert_eq!(waited.status.code(), Some(1), "{words}");
    assert!(words.contains("not within 4 s (--timeout): "), "{words}");
    assert!(!words.contains("no server of the cluster answers"), "{words}");
    // An error of now says what the server answered, and does not say that it was silent.
    let changed = cluster.frieze(0, &["--timeout", "1", "mkdir", "/d"]);
    let words = String::from_utf8_lossy(&changed.stderr);
    assert!(words.contains("could not be done within") && words.contains("the last answer: "), "{words}");
    assert!(!words.contains("has not answered"), "{words}");
}
