//! Several servers with one metalog: an answered request stays in effect, whichever server leads and whatever is lost.

#![expect(clippy::unwrap_used, reason = "a test may stop where something is not as it says")]

#[path = "cluster/client.rs"]
mod client;
#[path = "cluster/elsewhere.rs"]
mod elsewhere;
#[path = "cluster/founding.rs"]
mod founding;
#[path = "cluster/mending.rs"]
mod mending;
#[path = "cluster/reaching.rs"]
mod reaching;
#[path = "cluster/remains.rs"]
mod remains;
#[path = "cluster/seven.rs"]
mod seven;
#[path = "cluster/states.rs"]
mod states;
#[path = "cluster/together.rs"]
mod together;
#[path = "cluster/world.rs"]
mod world;
#[path = "cluster/writers.rs"]
mod writers;

use std::collections::BTreeSet;

use frieze_base::{NodeId, Reason};
use frieze_disk::CrashKind;
use frieze_wire::message::{Open, Reply, Request, Txn, View};
use frieze_wire::txn::{CloseSession, MakeKind, Op, SetAttr, Target};

use client::{Client, make};
use world::{FAIR, FOUL, World};

const ONE: NodeId = NodeId(1);
const TWO: NodeId = NodeId(2);
const THREE: NodeId = NodeId(3);

fn names(count: u32) -> Vec<String> {
    (0..count).map(|number| format!("f{number:04}")).collect()
}

#[test]
fn what_one_server_orders_all_execute_alike() {
    for seed in 1..=3 {
        let world = World::of(seed, 3);
        world.set_weather(FOUL);
        let mut client = Client::new(&world);
        for name in names(60) {
            client.make(&name).unwrap();
            client.rename(&name, &format!("{name}x")).unwrap();
        }
        world.set_weather(FAIR);
        world.settle();
        let wanted: Vec<String> = names(60).iter().map(|name| format!("{name}x")).collect();
        assert_eq!(client.names(), wanted);
    }
}

/// The file is created once: a second creation would answer that it exists.
#[test]
fn a_request_that_is_sent_again_to_the_next_leader_runs_once() {
    let (mut again, mut all) = (0, 0);
    for seed in 1..=6 {
        let world = World::of(seed, 3);
        world.set_weather(FOUL);
        let mut client = Client::new(&world);
        client.open_session();
        let mut changes = 0;
        let mut lost = BTreeSet::new();
        for (number, name) in names(40).iter().enumerate() {
            if number % 8 == 3 {
                // From some moment on the leader is cut off while it orders this.
                let leader = world.leader().unwrap_or(ONE);
                world.heal();
                let weak = std::sync::Arc::downgrade(&world);
                let mut left = 1 + seed * number as u64 % 7;
                world.set_hook(Some(Box::new(move |_| {
                    left = left.saturating_sub(1);
                    if left == 0
                        && let Some(world) = weak.upgrade()
                    {
                        world.cut_off(leader);
                    }
                })));
                lost.insert(leader);
                changes += 1;
            }
            client.make(name).unwrap_or_else(|fault| panic!("seed {seed}, {name}: {fault:?}"));
            world.set_hook(None);
        }
        world.heal();
        world.set_weather(FAIR);
        world.settle();
        assert!(!lost.is_empty());
        assert_eq!(client.names(), names(40));
        (again, all) = (again + client.again, all + changes);
    }
    assert!(again >= all / 2, "of {all} leaders that were lost only {again} had something that was sent again");
}

#[test]
fn what_was_answered_outlives_the_leader_and_its_power() {
    for (seed, kind) in [(1, CrashKind::Process), (2, CrashKind::Power), (3, CrashKind::Power)] {
        let world = World::of(seed, 3);
        let mut client = Client::new(&world);
        for (number, name) in names(30).iter().enumerate() {
            client.make(name).unwrap();
            if number % 10 == 9 {
                let leader = world.leader().unwrap();
                world.crash(leader, kind);
                client.make(&format!("after{number}")).unwrap();
                world.start(leader).unwrap();
            }
        }
        world.settle();
        assert_eq!(client.names().len(), 33);
    }
}

#[test]
fn what_was_answered_outlives_the_power_of_all() {
    let world = World::of(4, 3);
    let mut client = Client::new(&world);
    for name in names(25) {
        client.make(&name).unwrap();
    }
    for node in [ONE, TWO, THREE] {
        world.crash(node, CrashKind::Power);
    }
    for node in [ONE, TWO, THREE] {
        world.start(node).unwrap();
    }
    world.until("somebody leads", || world.leader().is_some());
    assert_eq!(client.names(), names(25));
    world.settle();
}

#[test]
fn a_server_that_does_not_lead_says_who_does() {
    let world = World::of(5, 3);
    let mut client = Client::new(&world);
    client.make("f").unwrap();
    let leader = world.leader().unwrap();
    for node in [ONE, TWO, THREE].into_iter().filter(|node| *node != leader) {
        let op = make("g", MakeKind::File(true));
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
    let world = World::of(6, 3);
    let mut client = Client::new(&world);
    let made = client.make("f").unwrap().stamp;
    let gone = client.rename("f", "g").unwrap().stamp;
    world.run(100);
    for node in [ONE, TWO, THREE] {
        let then = |at: u64| View { at: Some(at), ..View::NOW };
        assert!(matches!(client.stat_at(node, "f", then(made)), Ok(Reply::Stat(_))), "at node {node}");
        assert_eq!(client.stat_at(node, "f", then(gone)).unwrap_err().reason, Reason::NotFound, "at node {node}");
        // Nothing has been stamped so late: the leader closes it, and the log says so to all.
        let now = world.engine(node).planes.newest().0 + 20_000 * 4096;
        world.run(30);
        assert!(matches!(client.stat_at(node, "g", then(now)), Ok(Reply::Stat(_))), "at node {node}");
    }
}

#[test]
fn a_server_that_nobody_hears_answers_nothing_about_now() {
    let world = World::of(7, 3);
    let mut client = Client::new(&world);
    client.make("f").unwrap();
    let leader = world.leader().unwrap();
    world.cut_off(leader);
    // It does not know yet that no server follows it.
    assert!(world.status(leader).leads);
    let answer = client.stat_at(leader, "f", View::NOW);
    assert!(matches!(&answer, Err(fault) if fault.kind() == frieze_base::ErrorKind::Unavailable), "{answer:?}");
    client.make("g").unwrap();
    world.heal();
    world.settle();
}

#[test]
fn a_session_that_nobody_knows_of_ends_by_itself() {
    let world = World::of(8, 3);
    let mut client = Client::new(&world);
    client.open_session();
    // The session is opened, and the answer is lost.
    let open = Op::OpenSession(frieze_wire::txn::OpenSession {
        command: "lost".into(),
        host: "h".into(),
        uid: 0,
        keeps: false,
    });
    let leader = world.leader().unwrap();
    client.ask_at(leader, Request::Txn(Txn { durability: 0, op: Some(open) }), &[], 0).0.unwrap();
    client.make("f").unwrap();
    world.crash(leader, CrashKind::Power);
    world.start(leader).unwrap();
    client.make("g").unwrap();
    // From now on neither session has a connection: after the timeout both are closed.
    let before = world.settle();
    world.run(45_000);
    assert!(world.settle().0.0 >= before.0.0 + 2, "both were closed");
    let (answer, _) = client.ask(&Request::Txn(Txn { durability: 0, op: Some(make("h", MakeKind::File(true))) }), 99);
    assert_eq!(answer.unwrap_err().reason, Reason::UnknownSession);
}

/// If a leader kept writers out while it waits for other servers, it would wait for what its own writers hold up: its
/// flushes, the answers of the others behind records of a chain. It once lost the lead for it, at each file that was
/// closed.
#[test]
fn whoever_waits_for_other_servers_keeps_no_writer_out() {
    let world = World::of(12, 3);
    let mut client = Client::new(&world);
    client.make("f").unwrap();
    let weak = std::sync::Arc::downgrade(&world);
    let waits = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counted = waits.clone();
    world.set_hook(Some(Box::new(move |_| {
        let Some(leader) = weak.upgrade().and_then(|world| Some(world.engine(world.leader()?))) else { return };
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let (done, is_done) = std::sync::mpsc::channel();
        // It needs the same lock as a write.
        let writer = std::thread::spawn(move || {
            leader.service.upkeep.close_segment();
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
    world.set_hook(None);
}

#[test]
fn a_leader_that_stops_tells_whoever_waits_for_the_others() {
    let world = World::of(13, 3);
    let mut client = Client::new(&world);
    client.make("f").unwrap();
    let leader = world.leader().unwrap();
    let stopping = world.engine(leader);
    world.set_hook(Some(Box::new(move |_| stopping.end_waits())));
    world.cut_off(leader);
    let op = make("g", MakeKind::File(true));
    let (answer, _) = client.ask_at(leader, Request::Txn(Txn { durability: 0, op: Some(op) }), &[], 90);
    let fault = answer.unwrap_err();
    assert!(fault.reason == Reason::Unavailable && fault.message.contains("this server stops"), "{fault:?}");
    world.set_hook(None);
}

/// Heads on other servers answer writes, and do not know the cache leases of the leader.
#[test]
fn nothing_of_a_file_is_cached_where_other_servers_may_answer_writes() {
    for nodes in [1, 3] {
        let world = World::of(14, nodes);
        let mut client = Client::new(&world);
        client.keep();
        client.make("file").unwrap();
        client.txn(make("directory", MakeKind::Directory(true))).unwrap();
        assert!(client.may_keep_ms("directory") > 0, "only the leader changes it");
        assert_eq!(client.may_keep_ms("file"), 0, "of {nodes} servers");
    }
}

#[test]
fn a_leader_hands_over_and_goes() {
    let world = World::of(9, 3);
    let mut client = Client::new(&world);
    client.make("f").unwrap();
    let leader = world.leader().unwrap();
    let next = if leader == TWO { THREE } else { TWO };
    world.engine(leader).hand_over(next).unwrap();
    world.until("the other leads", || world.leader() == Some(next));
    client.make("g").unwrap();
    world.as_leader(|engine| engine.remove_member(leader));
    world.until("it is out", || !world.status(next).members.contains(leader));
    client.make("h").unwrap();
    assert_eq!(client.names(), ["f", "g", "h"]);
}

#[test]
fn a_leader_whose_clock_is_not_trusted_steps_aside() {
    let world = World::of(11, 3);
    // A clock may be set right after a start.
    world.run(40_000);
    let mut client = Client::new(&world);
    client.make("f").unwrap();
    let leader = world.leader().unwrap();
    world.time(leader).jump_wall_us(-20_000_000);
    client.make("g").unwrap();
    assert!(world.leader().is_some_and(|other| other != leader));
    // It still executes what other servers order.
    world.until("it has executed that", || {
        world.status(leader).applied == world.status(world.leader().unwrap()).applied
    });
}

#[test]
fn a_server_whose_device_fails_says_so_and_another_leads() {
    let world = World::of(10, 3);
    let mut client = Client::new(&world);
    client.make("f").unwrap();
    let leader = world.leader().unwrap();
    world.disk(leader).fail_syncs(1);
    client.make("g").unwrap();
    world.until("it says so", || world.status(leader).failed.is_some());
    assert!(world.leader().is_some_and(|other| other != leader));
    let (answer, _) = client.ask_at(
        leader,
        Request::Txn(Txn { durability: 0, op: Some(make("h", MakeKind::File(true))) }),
        &[],
        1000,
    );
    assert!(answer.is_err());
    // Started again on a device that is well, it has everything.
    world.crash(leader, CrashKind::Power);
    world.start(leader).unwrap();
    client.make("i").unwrap();
    world.settle();
    assert_eq!(client.names(), ["f", "g", "i"]);
}

/// Names are on stable storage when they are answered. So must be what was written under them before, fsync or not.
#[test]
fn a_name_is_never_there_without_the_bytes_written_before_it() {
    for seed in 1..=8 {
        let world = World::of(seed, 1);
        let mut client = Client::new(&world);
        let made = client.make("new").unwrap();
        client.write_at(ONE, &made.capability, 0, &[seed as u8; 3000]).unwrap();
        client.rename("new", "old").unwrap();
        world.crash(ONE, CrashKind::Power);
        world.start(ONE).unwrap();
        world.until("it leads again", || world.leader().is_some());
        let target = Target::path("old");
        let open = Open { target, read: true, ..Open::default() };
        let (answer, _) = client.ask(&Request::Open(open), 0);
        let Ok(Reply::Open(opened)) = answer else { panic!("{answer:?}") };
        assert_eq!(client.read_at(ONE, &opened.capability, 3000).unwrap(), [seed as u8; 3000], "seed {seed}");
    }
}

/// More than `session_timeout` of the world's settings, in steps.
const LONG: u64 = 30_000;

/// A client that only writes to a chain sends the leader nothing, and has no connection to it.
#[test]
fn a_connection_to_any_server_keeps_a_session() {
    let world = World::of(41, 3);
    let mut client = Client::new(&world);
    client.make("one").unwrap();
    let leader = world.leader().unwrap();
    let other = NodeId(leader.0 % 3 + 1);
    let conn = client.stay_at(other);
    world.run(LONG);
    client.make("two").unwrap();
    world.engine(other).service.sessions.disconnected(&conn);
    world.run(LONG);
    assert_eq!(client.make("three").unwrap_err().reason, Reason::UnknownSession);
}

/// Its last connection to the new leader, long ago, does not count: it was connected to another server since.
#[test]
fn who_leads_again_ends_nobody_for_what_it_missed() {
    let world = World::of(42, 3);
    let mut client = Client::new(&world);
    client.make("one").unwrap();
    let first = world.leader().unwrap();
    let second = NodeId(first.0 % 3 + 1);
    world.engine(first).hand_over(second).unwrap();
    world.until("the other leads", || world.leader() == Some(second));
    let _conn = client.stay_at(second);
    world.run(LONG);
    world.engine(second).hand_over(first).unwrap();
    world.until("the first leads again", || world.leader() == Some(first));
    world.run(2_000);
    client.make("two").unwrap();
}
