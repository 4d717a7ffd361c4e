//! Several servers with one metalog: an answered request stays in effect, whichever server leads and whatever is lost.

#![expect(clippy::unwrap_used, reason = "a test may stop where something is not as it says")]

#[path = "cluster/founding.rs"]
mod founding;
#[path = "cluster/joint_writes.rs"]
mod joint_writes;
#[path = "cluster/mending.rs"]
mod mending;
#[path = "cluster/packs.rs"]
mod packs;
#[path = "cluster/reaching.rs"]
mod reaching;
#[path = "cluster/remains.rs"]
mod remains;
#[path = "cluster/remote_heads.rs"]
mod remote_heads;
#[path = "cluster/seven_servers.rs"]
mod seven_servers;
#[path = "cluster/states.rs"]
mod states;
#[path = "cluster/writers.rs"]
mod writers;

use std::collections::BTreeSet;

use frieze_base::{NodeId, Reason};
use frieze_disk::CrashKind;
use frieze_testkit::cluster::{FailoverClient, NetFaults, TestCluster, make_op};
use frieze_wire::message::{Open, Reply, Request, Txn, View};
use frieze_wire::txn::{CloseSession, MakeKind, Op, SetAttr, Target};

const ONE: NodeId = NodeId(1);
const TWO: NodeId = NodeId(2);
const THREE: NodeId = NodeId(3);

fn names(count: u32) -> Vec<String> {
    (0..count).map(|number| format!("f{number:04}")).collect()
}

#[test]
fn what_one_server_orders_all_execute_alike() {
    for seed in 1..=3 {
        let cluster = TestCluster::of(seed, 3);
        cluster.set_faults(NetFaults::MANY);
        let mut client = FailoverClient::new(&cluster);
        for name in names(60) {
            client.make(&name).unwrap();
            client.rename(&name, &format!("{name}x")).unwrap();
        }
        cluster.set_faults(NetFaults::NONE);
        cluster.settle();
        let wanted: Vec<String> = names(60).iter().map(|name| format!("{name}x")).collect();
        assert_eq!(client.names(), wanted);
    }
}

/// The file is created once: a second creation would answer that it exists.
#[test]
fn a_request_that_is_sent_again_to_the_next_leader_runs_once() {
    let (mut again, mut all) = (0, 0);
    for seed in 1..=6 {
        let cluster = TestCluster::of(seed, 3);
        cluster.set_faults(NetFaults::MANY);
        let mut client = FailoverClient::new(&cluster);
        client.open_session();
        let mut changes = 0;
        let mut lost = BTreeSet::new();
        for (number, name) in names(40).iter().enumerate() {
            if number % 8 == 3 {
                // From some moment on the leader is cut off while it orders this.
                let leader = cluster.leader().unwrap_or(ONE);
                cluster.heal();
                let weak = std::sync::Arc::downgrade(&cluster);
                let mut left = 1 + seed * number as u64 % 7;
                cluster.set_step_hook(Some(Box::new(move |_| {
                    left = left.saturating_sub(1);
                    if left == 0
                        && let Some(cluster) = weak.upgrade()
                    {
                        cluster.isolate(leader);
                    }
                })));
                lost.insert(leader);
                changes += 1;
            }
            client.make(name).unwrap_or_else(|fault| panic!("seed {seed}, {name}: {fault:?}"));
            cluster.set_step_hook(None);
        }
        cluster.heal();
        cluster.set_faults(NetFaults::NONE);
        cluster.settle();
        assert!(!lost.is_empty());
        assert_eq!(client.names(), names(40));
        (again, all) = (again + client.again, all + changes);
    }
    assert!(again >= all / 2, "of {all} leaders that were lost only {again} had something that was sent again");
}

#[test]
fn what_was_answered_outlives_the_leader_and_its_power() {
    for (seed, kind) in [(1, CrashKind::Process), (2, CrashKind::Power), (3, CrashKind::Power)] {
        let cluster = TestCluster::of(seed, 3);
        let mut client = FailoverClient::new(&cluster);
        for (number, name) in names(30).iter().enumerate() {
            client.make(name).unwrap();
            if number % 10 == 9 {
                let leader = cluster.leader().unwrap();
                cluster.crash(leader, kind);
                client.make(&format!("after{number}")).unwrap();
                cluster.start(leader).unwrap();
                // It elects as one that kept its memory when it has again what it lost.
                cluster.settle();
            }
        }
        assert_eq!(client.names().len(), 33);
    }
}

#[test]
fn what_was_answered_outlives_the_power_of_all() {
    let cluster = TestCluster::of(4, 3);
    let mut client = FailoverClient::new(&cluster);
    for name in names(25) {
        client.make(&name).unwrap();
    }
    for node in [ONE, TWO, THREE] {
        cluster.crash(node, CrashKind::Power);
    }
    for node in [ONE, TWO, THREE] {
        cluster.start(node).unwrap();
    }
    cluster.until("somebody leads", || cluster.leader().is_some());
    assert_eq!(client.names(), names(25));
    cluster.settle();
}

#[test]
fn a_follower_names_the_leader() {
    let cluster = TestCluster::of(5, 3);
    let mut client = FailoverClient::new(&cluster);
    client.make("f").unwrap();
    let leader = cluster.leader().unwrap();
    for node in [ONE, TWO, THREE].into_iter().filter(|node| *node != leader) {
        let op = make_op("g", MakeKind::File(true));
        let (answer, _) = client.ask_at(node, Request::Txn(Txn { durability: 0, op: Some(op) }), &[], 90);
        let fault = answer.unwrap_err();
        assert_eq!(fault.reason, Reason::Elsewhere, "{fault:?}");
        assert!(fault.message.contains(&format!("node {leader} does")), "{}", fault.message);
        // Nor about now: it hands out nothing that may be cached.
        assert_eq!(client.stat_at(node, "f", View::NOW).unwrap_err().reason, Reason::Elsewhere);
    }
    assert_eq!(client.names(), ["f"]);
}

#[test]
fn every_server_answers_about_what_was() {
    let cluster = TestCluster::of(6, 3);
    let mut client = FailoverClient::new(&cluster);
    let made = client.make("f").unwrap().stamp;
    let gone = client.rename("f", "g").unwrap().stamp;
    cluster.run(100);
    for node in [ONE, TWO, THREE] {
        let then = |at: u64| View { at: Some(at), ..View::NOW };
        assert!(matches!(client.stat_at(node, "f", then(made)), Ok(Reply::Stat(_))), "at node {node}");
        assert_eq!(client.stat_at(node, "f", then(gone)).unwrap_err().reason, Reason::NotFound, "at node {node}");
        // Nothing has been stamped so late: the leader closes it, and the log says so to all.
        let now = cluster.server(node).newest().0 + 20_000 * 4096;
        cluster.run(30);
        assert!(matches!(client.stat_at(node, "g", then(now)), Ok(Reply::Stat(_))), "at node {node}");
    }
}

#[test]
fn an_isolated_server_answers_no_read_of_the_present() {
    let cluster = TestCluster::of(7, 3);
    let mut client = FailoverClient::new(&cluster);
    client.make("f").unwrap();
    let leader = cluster.leader().unwrap();
    cluster.isolate(leader);
    // It does not know yet that no server follows it.
    assert!(cluster.status(leader).leads);
    let answer = client.stat_at(leader, "f", View::NOW);
    assert!(matches!(&answer, Err(fault) if fault.kind() == frieze_base::ErrorKind::Unavailable), "{answer:?}");
    client.make("g").unwrap();
    cluster.heal();
    cluster.settle();
}

#[test]
fn a_session_whose_open_answer_was_lost_ends_by_itself() {
    let cluster = TestCluster::of(8, 3);
    let mut client = FailoverClient::new(&cluster);
    client.open_session();
    // The session is opened, and the answer is lost.
    let open = Op::OpenSession(frieze_wire::txn::OpenSession {
        command: "lost".into(),
        host: "h".into(),
        uid: 0,
        keeps: false,
    });
    let leader = cluster.leader().unwrap();
    client.ask_at(leader, Request::Txn(Txn { durability: 0, op: Some(open) }), &[], 0).0.unwrap();
    client.make("f").unwrap();
    cluster.crash(leader, CrashKind::Power);
    cluster.start(leader).unwrap();
    client.make("g").unwrap();
    // From now on neither session has a connection: after the timeout both are closed.
    let before = cluster.settle();
    cluster.run(45_000);
    assert!(cluster.settle().0.0 >= before.0.0 + 2, "both were closed");
    let (answer, _) =
        client.ask(&Request::Txn(Txn { durability: 0, op: Some(make_op("h", MakeKind::File(true))) }), 99);
    assert_eq!(answer.unwrap_err().reason, Reason::UnknownSession);
}

/// If a leader kept writers out while it waits for other servers, it would wait for what its own writers hold up: its
/// flushes, the answers of the others behind records of a chain. It once lost the lead for it, at each file that was
/// closed.
#[test]
fn a_request_that_waits_for_other_servers_blocks_no_writer() {
    let cluster = TestCluster::of(12, 3);
    let mut client = FailoverClient::new(&cluster);
    client.make("f").unwrap();
    let weak = std::sync::Arc::downgrade(&cluster);
    let waits = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counted = waits.clone();
    cluster.set_step_hook(Some(Box::new(move |_| {
        let Some(leader) = weak.upgrade().and_then(|cluster| Some(cluster.server(cluster.leader()?))) else { return };
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let (done, is_done) = std::sync::mpsc::channel();
        // It needs the same lock as a write.
        let writer = std::thread::spawn(move || {
            leader.close_segment();
            // After the timeout the receiver is dropped.
            let _ = done.send(());
        });
        is_done.recv_timeout(std::time::Duration::from_secs(10)).expect("writers are kept out meanwhile");
        writer.join().unwrap();
    })));
    let shorter = SetAttr { target: Target::path("f"), size: Some(0), ..SetAttr::default() };
    client.txn(Op::SetAttr(shorter)).unwrap();
    client.txn(Op::CloseSession(CloseSession::default())).unwrap();
    assert!(waits.load(std::sync::atomic::Ordering::Relaxed) > 2, "nobody waited");
    cluster.set_step_hook(None);
}

#[test]
fn a_leader_that_stops_answers_requests_that_wait_for_other_servers() {
    let cluster = TestCluster::of(13, 3);
    let mut client = FailoverClient::new(&cluster);
    client.make("f").unwrap();
    let leader = cluster.leader().unwrap();
    let stopping = cluster.server(leader);
    cluster.set_step_hook(Some(Box::new(move |_| stopping.end_waits())));
    cluster.isolate(leader);
    let op = make_op("g", MakeKind::File(true));
    let (answer, _) = client.ask_at(leader, Request::Txn(Txn { durability: 0, op: Some(op) }), &[], 90);
    let fault = answer.unwrap_err();
    assert!(fault.reason == Reason::Unavailable && fault.message.contains("this server stops"), "{fault:?}");
    cluster.set_step_hook(None);
}

/// Heads on other servers answer writes, and do not know the cache leases of the leader.
#[test]
fn nothing_of_a_file_is_cached_where_other_servers_may_answer_writes() {
    for nodes in [1, 3] {
        let cluster = TestCluster::of(14, nodes);
        let mut client = FailoverClient::new(&cluster);
        client.keep();
        client.make("file").unwrap();
        client.txn(make_op("directory", MakeKind::Directory(true))).unwrap();
        assert!(client.may_keep_ms("directory") > 0, "only the leader changes it");
        assert_eq!(client.may_keep_ms("file"), 0, "of {nodes} servers");
    }
}

#[test]
fn a_leader_hands_over_and_goes() {
    let cluster = TestCluster::of(9, 3);
    let mut client = FailoverClient::new(&cluster);
    client.make("f").unwrap();
    let leader = cluster.leader().unwrap();
    let next = if leader == TWO { THREE } else { TWO };
    cluster.server(leader).hand_over(next).unwrap();
    cluster.until("the other leads", || cluster.leader() == Some(next));
    client.make("g").unwrap();
    cluster.as_leader(|server| server.remove_member(leader));
    cluster.until("it is out", || !cluster.status(next).members.contains(leader));
    client.make("h").unwrap();
    assert_eq!(client.names(), ["f", "g", "h"]);
}

#[test]
fn a_leader_whose_clock_is_not_trusted_steps_aside() {
    let cluster = TestCluster::of(11, 3);
    // A clock may be set right after a start.
    cluster.run(40_000);
    let mut client = FailoverClient::new(&cluster);
    client.make("f").unwrap();
    let leader = cluster.leader().unwrap();
    cluster.time(leader).jump_wall_us(-20_000_000);
    client.make("g").unwrap();
    assert!(cluster.leader().is_some_and(|other| other != leader));
    // It still executes what other servers order.
    cluster.until("it has executed that", || {
        cluster.status(leader).applied == cluster.status(cluster.leader().unwrap()).applied
    });
}

#[test]
fn a_server_whose_device_fails_says_so_and_another_leads() {
    let cluster = TestCluster::of(10, 3);
    let mut client = FailoverClient::new(&cluster);
    client.make("f").unwrap();
    let leader = cluster.leader().unwrap();
    cluster.disk(leader).fail_syncs(1);
    client.make("g").unwrap();
    cluster.until("it says so", || cluster.status(leader).failed.is_some());
    assert!(cluster.leader().is_some_and(|other| other != leader));
    let (answer, _) = client.ask_at(
        leader,
        Request::Txn(Txn { durability: 0, op: Some(make_op("h", MakeKind::File(true))) }),
        &[],
        1000,
    );
    assert!(answer.is_err());
    // Started again on a device that is well, it has everything.
    cluster.crash(leader, CrashKind::Power);
    cluster.start(leader).unwrap();
    client.make("i").unwrap();
    cluster.settle();
    assert_eq!(client.names(), ["f", "g", "i"]);
}

/// The only voter answers from memory, so that a loss of power may take a name; never the bytes under one that it left.
#[test]
fn a_name_is_never_there_without_the_bytes_written_before_it() {
    let mut left = 0;
    for seed in 1..=40 {
        let cluster = TestCluster::of(seed, 1);
        let mut client = FailoverClient::new(&cluster);
        let made = client.make("new").unwrap();
        client.write_at(ONE, &made.capability, 0, &[seed as u8; 3000]).unwrap();
        client.rename("new", "old").unwrap();
        cluster.run(seed % 8);
        cluster.crash(ONE, CrashKind::Power);
        cluster.start(ONE).unwrap();
        cluster.until("it leads again", || cluster.leader().is_some());
        let target = Target::path("old");
        let open = Open { target, read: true, ..Open::default() };
        match client.ask(&Request::Open(open), 0).0 {
            Ok(Reply::Open(opened)) => {
                left += 1;
                assert_eq!(client.read_at(ONE, &opened.capability, 3000).unwrap(), [seed as u8; 3000], "seed {seed}");
            }
            // The session may be lost with it.
            Err(fault) if matches!(fault.reason, Reason::NotFound | Reason::UnknownSession) => {}
            answer => panic!("{answer:?}"),
        }
    }
    assert!((5..35).contains(&left), "{left} of 40 losses left the name");
}

/// More than `session_timeout` of the cluster's settings, in steps.
const LONG: u64 = 30_000;

/// A client that only writes to a chain sends the leader nothing, and has no connection to it.
#[test]
fn a_connection_to_any_server_keeps_a_session() {
    let cluster = TestCluster::of(41, 3);
    let mut client = FailoverClient::new(&cluster);
    client.make("one").unwrap();
    let leader = cluster.leader().unwrap();
    let other = NodeId(leader.0 % 3 + 1);
    let conn = client.stay_at(other);
    cluster.run(LONG);
    client.make("two").unwrap();
    cluster.server(other).disconnected(&conn);
    cluster.run(LONG);
    assert_eq!(client.make("three").unwrap_err().reason, Reason::UnknownSession);
}

/// Its last connection to the new leader, long ago, does not count: it was connected to another server since.
#[test]
fn a_leader_that_returns_ends_no_session_for_missed_contacts() {
    let cluster = TestCluster::of(42, 3);
    let mut client = FailoverClient::new(&cluster);
    client.make("one").unwrap();
    let first = cluster.leader().unwrap();
    let second = NodeId(first.0 % 3 + 1);
    cluster.server(first).hand_over(second).unwrap();
    cluster.until("the other leads", || cluster.leader() == Some(second));
    let _conn = client.stay_at(second);
    cluster.run(LONG);
    cluster.server(second).hand_over(first).unwrap();
    cluster.until("the first leads again", || cluster.leader() == Some(first));
    cluster.run(2_000);
    client.make("two").unwrap();
}
