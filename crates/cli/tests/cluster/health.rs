//! The status of a cluster: each server's own, and what it can vouch for of the missing ones.

use super::*;

/// Standard output, and whether the exit status was 0.
fn said(output: &Output) -> (String, bool) {
    (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.success())
}

/// Of `status --json` of a server, once it is as wanted.
fn await_status(
    cluster: &ServedCluster,
    number: usize,
    what: &str,
    is_so: impl Fn(&serde_json::Value) -> bool,
) -> serde_json::Value {
    eventually(what, || {
        let output = cluster.frieze(number, &["status", "--json"]);
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        assert_eq!(found["healthy"], output.status.success(), "the exit status says the same: {found}");
        is_so(&found).then_some(found)
    })
}

/// The majority is lost: the leader that is left is asked at the same moment, and finds that out before it answers.
#[test]
fn a_leader_that_has_just_lost_its_majority_does_not_say_that_all_is_well() {
    let mut cluster = ServedCluster::of(3);
    let leader = cluster.await_whole(0).leader;
    let number = (0..3).find(|number| cluster.client(*number).cluster(None).unwrap().told_by == leader).unwrap();
    await_status(&cluster, number, "everything is there", is_healthy);
    (0..3).filter(|other| *other != number).for_each(|other| cluster.kill(other));
    let (words, success) = said(&cluster.frieze(number, &["status"]));
    assert!(!success && words.contains("no majority of the servers"), "{words}");
    let (words, success) = said(&cluster.frieze(number, &["cluster"]));
    assert!(!success && words.contains("none at the moment"), "{words}");
}

/// Others are on their way: a script that waits for one need not begin after them.
#[test]
fn a_wait_for_servers_at_a_lone_server_keeps_waiting() {
    let mut cluster = ServedCluster::of(1);
    let short = cluster.frieze(0, &["cluster", "wait", "--for", "joined", "db2", "--timeout", "1"]);
    let words = String::from_utf8_lossy(&short.stderr).into_owned();
    assert!(
        short.status.code() == Some(1) && words.contains("the server is alone: db2 has not joined it yet"),
        "{words}"
    );
    let mut waits = Command::new(env!("CARGO_BIN_EXE_frieze"))
        .args(["--server", &cluster.addresses[0], "cluster", "wait", "--for", "joined", "db2", "--timeout", "60"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(waits.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.contains("the server is alone"), "{said}");
    cluster.grow();
    assert!(waits.wait().unwrap().success());
}

fn is_healthy(status: &serde_json::Value) -> bool {
    status["healthy"] == true && status["health"] == "healthy" && status["troubles"] == serde_json::json!([])
}

#[test]
fn a_server_reports_its_own_figures_whichever_server_leads() {
    let cluster = ServedCluster::of(3);
    cluster.await_whole(0);
    for number in 0..3 {
        let status = await_status(&cluster, number, "it is healthy", is_healthy);
        assert_eq!(status["memory"]["bytes_max"], memory_mib(number) << 20, "server {number}");
        assert_eq!(status["server"], cluster.addresses[number]);
    }
}

#[test]
fn a_server_that_is_away_is_named_and_copies_are_counted_against_those_wanted() {
    let mut cluster = ServedCluster::of(3);
    cluster.await_whole(0);
    await_status(&cluster, 1, "everything is there", is_healthy);
    // The other one may be a moment without its lease on a busy machine, and then says so.
    let whole = eventually("nothing is wrong", || {
        let (whole, success) = said(&cluster.frieze(0, &["cluster"]));
        success.then_some(whole)
    });
    assert!(
        whole.contains("8, 3 copies of each wanted (as many as there are servers; 5 are asked for), all whole"),
        "{whole}"
    );
    cluster.kill(2);
    for number in 0..2 {
        let status = await_status(&cluster, number, "it is missed", |status| {
            status["health"].as_str().unwrap().contains("db3 is away since ")
        });
        let is_settled = |status: &serde_json::Value| status["troubles"].as_array().unwrap().len() == 2;
        let status =
            if is_settled(&status) { status } else { await_status(&cluster, number, "the rest goes on", is_settled) };
        let (what, remedy) = (&status["troubles"][0]["what"], &status["troubles"][0]["remedy"]);
        assert!(what.as_str().unwrap().starts_with("8 chains have 2 of 3 copies: db3 is away since 2"), "{status}");
        assert!(remedy.as_str().unwrap().starts_with("start db3 again"), "{status}");
        let votes = status["troubles"][1]["what"].as_str().unwrap();
        assert_eq!(votes, "2 of 3 servers that vote are there: the loss of one more stops the cluster");
        assert_eq!(status["health"], format!("{}; {votes}", what.as_str().unwrap()));
        let (table, success) = said(&cluster.frieze(number, &["status"]));
        assert!(!success && table.starts_with("  health  8 chains have 2 of 3 copies: db3 is away since "), "{table}");
        assert!(table.lines().nth(1).unwrap().starts_with("  remedy  start db3 again"), "{table}");
        let (words, success) = said(&cluster.frieze(number, &["cluster"]));
        assert!(!success && words.contains("8 not whole") && words.contains("3: 2 up, 1 offline"), "{words}");
        assert!(words.contains("8 chains have 2 of 3 copies: db3 is away since "), "{words}");
    }
    let nodes = said(&cluster.frieze(0, &["cluster", "nodes"])).0;
    assert!(nodes.contains("offline since 2"), "{nodes}");
    // It comes back, and nothing is wrong any more.
    cluster.start_again(2);
    cluster.await_whole(0);
    (0..3).for_each(|number| drop(await_status(&cluster, number, "everything is there again", is_healthy)));
}

#[test]
fn with_the_majority_lost_a_server_says_what_it_can_vouch_for() {
    let mut cluster = ServedCluster::of(3);
    cluster.await_whole(0);
    await_status(&cluster, 1, "it hears the leader", is_healthy);
    [0, 2].into_iter().for_each(|number| cluster.kill(number));
    // At once, not when the leader's time is up.
    let (words, success) = said(&cluster.frieze(1, &["status"]));
    assert!(!success, "{words}");
    let status = await_status(&cluster, 1, "nobody leads, and nobody is heard", |status| {
        // The leader has spoken to it; the third server may never have, and then it says so.
        let words = status["health"].as_str().unwrap();
        let heard = |name: &str| words.contains(&format!("{name} was last heard from at 2"));
        heard("db1") && (heard("db3") || words.contains("db3 has not been heard from"))
    });
    let what = status["troubles"][0]["what"].as_str().unwrap();
    assert!(what.starts_with("no majority of the servers: none leads since 2"), "{what}");
    assert!(what.contains("db1 was last heard from at 2"), "{what}");
    let what = status["troubles"][1]["what"].as_str().unwrap();
    assert!(what.starts_with("8 chains have 1 of 3 copies: db1 was last heard from at 2"), "{what}");
    let remedy = status["troubles"][0]["remedy"].as_str().unwrap();
    assert!(remedy.contains("frieze cluster recover") && remedy.contains("docs/operating.md"), "{remedy}");
    let made = cluster.frieze(1, &["mkdir", "/now", "--timeout", "2"]);
    let words = String::from_utf8_lossy(&made.stderr);
    assert!(
        words.contains("no majority of the cluster's servers answers: 1 of 3 that vote were heard from lately"),
        "{words}"
    );
    let words = said(&cluster.frieze(1, &["cluster"])).0;
    assert!(words.contains("3: 1 up, 2 unknown") && words.contains("8 not whole"), "{words}");
    assert!(words.contains("none at the moment") && !words.contains("all whole"), "{words}");
    let waited = cluster.frieze(1, &["cluster", "wait", "--for", "whole", "--timeout", "2"]);
    assert_eq!(waited.status.code(), Some(1), "{waited:?}");
    cluster.start_again(0);
    cluster.start_again(2);
    cluster.await_whole(1);
    await_status(&cluster, 1, "everything is there again", is_healthy);
}

/// What it has counts: it is not given everything anew at each start.
#[test]
fn a_server_with_a_full_disk_reports_it_keeps_its_data_and_resumes() {
    let mut cluster = ServedCluster::of(2);
    let room = |mib: u64| format!("capacity_bytes_max = {}\nreserve_bytes = 41943040\n", mib << 20);
    cluster.configure(2, &room(140));
    cluster.grow();
    cluster.await_whole(0);
    let admin = cluster.client(0);
    let bytes = |number: u64| random_bytes(number, 4 << 20);
    let written = (0..40).find(|number| {
        write(&admin, &format!("/f{number}"), &bytes(*number));
        cluster.client(0).cluster(None).unwrap().nodes.iter().any(|node| node.is_full)
    });
    let written = written.expect("160 MiB are more than it takes") + 1;
    // Whatever chain it is, the next record of it finds no room either.
    (written..written + 4).for_each(|number| write(&admin, &format!("/f{number}"), &bytes(number)));
    let status = await_status(&cluster, 2, "it says so", |status| {
        status["health"].as_str().unwrap().contains("took a record no more")
    });
    assert!(status["health"].as_str().unwrap().contains("no space left on device"), "{status}");
    let words = said(&cluster.frieze(0, &["cluster"])).0;
    assert!(words.contains("the disk of db3 is full") && words.contains("'frieze forget'"), "{words}");
    let nodes = said(&cluster.frieze(1, &["cluster", "nodes"])).0;
    assert!(nodes.contains("disk full"), "{nodes}");
    let records = |cluster: &ServedCluster| cluster.client(2).status().unwrap().records;
    let before = records(&cluster);
    assert!(before > 20, "{before}");
    // As it is, it finds no room again, and nothing of what it has goes.
    cluster.kill(2);
    cluster.start_again(2);
    eventually("it is full again", || {
        let found = admin.cluster(None).ok()?;
        let node = found.nodes.into_iter().find(|node| node.name == "db3")?;
        (node.is_full && node.state == "up").then_some(())
    });
    assert!(records(&cluster) >= before, "{} of {before} records", records(&cluster));
    // With room it goes on from there.
    cluster.kill(2);
    cluster.configure(2, &room(2000));
    cluster.start_again(2);
    cluster.await_whole(0);
    await_status(&cluster, 2, "nothing is wrong", is_healthy);
    cluster.kill(1);
    for number in 0..written + 4 {
        assert!(read(&cluster.client(2), &format!("/f{number}")) == bytes(number), "/f{number}");
    }
}
