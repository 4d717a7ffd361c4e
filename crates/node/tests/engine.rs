//! The server over a simulated disk and clock, asked as a connection asks it, without threads or sockets.

#![expect(clippy::unwrap_used, reason = "a test may stop where something is not as it says")]

#[path = "engine/edges.rs"]
mod edges;
#[path = "engine/ended_sessions.rs"]
mod ended_sessions;
#[path = "engine/faults.rs"]
mod faults;
#[path = "engine/forget.rs"]
mod forget;
#[path = "engine/holes.rs"]
mod holes;
#[path = "engine/images.rs"]
mod images;
#[path = "engine/intervals.rs"]
mod intervals;
#[path = "engine/joint_writes.rs"]
mod joint_writes;
#[path = "engine/kept_quota.rs"]
mod kept_quota;
#[path = "engine/metamorphic.rs"]
mod metamorphic;
#[path = "engine/packs.rs"]
mod packs;
#[path = "engine/past_cost.rs"]
mod past_cost;
#[path = "engine/plan_rights.rs"]
mod plan_rights;
#[path = "engine/power.rs"]
mod power;
#[path = "engine/races.rs"]
mod races;
#[path = "engine/rebound_times.rs"]
mod rebound_times;
#[path = "engine/removing.rs"]
mod removing;
#[path = "engine/retention.rs"]
mod retention;
#[path = "engine/rows.rs"]
mod rows;
#[path = "engine/scrub.rs"]
mod scrub;
#[path = "engine/snapshots.rs"]
mod snapshots;
#[path = "engine/streams.rs"]
mod streams;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use frieze_base::{Fault, InodeId, Reason, Seq, SessionId, crc32c};
use frieze_disk::{CrashKind, Disk, SimDisk};
use frieze_node::{MemoryStore, Scratch, Settings, StoreBatch, VersionStore};
use frieze_testkit::bytes::pattern;
use frieze_testkit::server::{ReplyAndPayload, SessionPlace, SimMachine, TestConnection, TestServer};
use frieze_wire::message::{
    Durability, GetXattr, List, Log, Open, Read, Reply, Request, Stat, Status, Sync, Txn, View,
};
use frieze_wire::txn::{
    Caller, CloseSession, Make, MakeKind, Op, OpenSession, Remove, Rename, SetAttr, SetXattr, Target,
};
use frieze_wire::writers::{FileWriter, WRITERS_XATTR, parse_writers};

#[path = "engine/recalls.rs"]
mod recalls;
#[path = "engine/sharing.rs"]
mod sharing;
#[path = "engine/shelves.rs"]
mod shelves;
#[path = "engine/steps.rs"]
mod steps;
#[path = "engine/store_tables.rs"]
mod store_tables;
#[path = "engine/tiers.rs"]
mod tiers;
#[path = "engine/versions.rs"]
mod versions;

#[test]
fn every_version_stays_readable_through_overwrite_truncate_rename_and_delete() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    client.mkdir("/d");
    let file = client.make("/d/f");
    let (one, _) = client.write(&file, Some(0), b"first").unwrap();
    let (two, _) = client.write(&file, Some(2), b"RST!!").unwrap();
    let cut = SetAttr { target: Target::path("/d/f"), size: Some(3), ..SetAttr::default() };
    let three = client.txn(Op::SetAttr(cut)).unwrap().stamp;
    let (four, offset) = client.write(&file, None, b"tail").unwrap();
    assert_eq!(offset, 3);
    let rename = Rename { from: Target::path("/d"), to: Target::path("/e"), flags: 0 };
    let five = client.txn(Op::Rename(rename)).unwrap().stamp;
    let remove = Remove { target: Target::path("/e/f"), directory: false };
    let six = client.txn(Op::Remove(remove)).unwrap().stamp;
    let look = |client: &mut TestConnection| {
        assert_eq!(client.at("/d/f", one).unwrap(), b"first");
        assert_eq!(client.at("/d/f", two - 1).unwrap(), b"first");
        assert_eq!(client.at("/d/f", two).unwrap(), b"fiRST!!");
        assert_eq!(client.at("/d/f", three).unwrap(), b"fiR");
        assert_eq!(client.at("/d/f", four).unwrap(), b"fiRtail");
        assert_eq!(client.at("/e/f", five).unwrap(), b"fiRtail");
        assert_eq!(client.at("/d/f", five).unwrap_err().reason, Reason::NotFound);
        assert_eq!(client.at("/e/f", six).unwrap_err().reason, Reason::NotFound);
        assert_eq!(client.stat("/d/f", View { at: Some(three), user_at: None }).unwrap().attr.size, 3);
    };
    look(&mut client);
    client.server.stop().expect("stops");
    let mut client = machine.serve();
    look(&mut client);
}

#[test]
fn a_write_over_several_chunks_is_one_stamp_and_reads_back_whole() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let file = client.make("/f");
    client.write(&file, Some(0), &pattern(10, 1)).unwrap();
    let grant = frieze_wire::txn::Grant { inode: client.stat("/f", View::NOW).unwrap().attr.inode, first: 0, count: 8 };
    client.txn(Op::Grant(grant)).unwrap();
    // 200,000 bytes from 50,000: chunks of 65,536 bytes 0 to 3, on three chains.
    let bytes = pattern(200_000, 2);
    let (stamp, _) = client.write(&file, Some(50_000), &bytes).unwrap();
    assert_eq!(client.at("/f", stamp - 1).unwrap().len(), 10);
    let all = client.at("/f", stamp).unwrap();
    assert_eq!(all.len(), 250_000);
    assert!(all[10..50_000].iter().all(|byte| *byte == 0), "a hole reads as zeros");
    assert_eq!(all[50_000..], bytes[..]);
    let log =
        Log { target: Target::path("/f"), view: View::NOW, after: stamp - 1, count_max: 0, upto: 0, ..Log::default() };
    let Ok(Reply::Log(log)) = client.ask(Request::Log(log)) else { panic!("no log") };
    let lens: Vec<u64> = log.versions.iter().filter(|v| v.stamp == stamp).map(|v| v.len).collect();
    assert_eq!(lens, [200_000], "its parts are one version");
}

#[test]
fn a_write_without_a_grant_or_with_a_damaged_payload_is_refused() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let file = client.make("/f");
    assert_eq!(client.write(&file, Some(1 << 20), b"x").unwrap_err().reason, Reason::Busy);
    let request = TestConnection::write_request(&file, Some(0), Durability::Async);
    let id = client.send_frame(request, b"bytes", &mut Scratch::default(), |header| {
        (header.seq, header.payload_crc, header.payload_len) = (Seq(99), 1, 0);
    });
    assert_eq!(client.answer(id).unwrap().0.unwrap_err().reason, Reason::BadFrame);
    assert_eq!(client.read("/f", View::NOW).unwrap(), b"");
}

#[test]
fn a_retry_runs_once_also_after_a_restart() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let file = client.make("/f");
    let append = || TestConnection::write_request(&file, None, Durability::Async);
    let first = client.send(append(), b"once", 50);
    let again = client.send(append(), b"once", 50);
    let stamps: Vec<_> = [first, again].map(|id| client.answer(id).unwrap().0.unwrap()).into();
    assert_eq!(stamps[0], stamps[1]);
    let session = client.session;
    drop(client);
    let mut client = machine.serve();
    client.session = session;
    let late = client.send(append(), b"once", 50);
    assert_eq!(client.answer(late).unwrap().0.unwrap(), stamps[0]);
    assert_eq!(client.read("/f", View::NOW).unwrap(), b"once");
}

#[test]
fn a_sync_write_is_answered_by_the_flush_and_survives_the_power() {
    let mut machine = SimMachine::new(7);
    let mut client = machine.serve();
    let file = client.make("/f");
    client.fsync();
    let id = client.send(TestConnection::write_request(&file, Some(0), Durability::Sync), b"kept", 70);
    assert!(client.answer(id).is_none(), "not durable yet");
    assert_eq!(client.read("/f", View::NOW).unwrap(), b"", "what is not committed is not shown");
    client.server.flush().unwrap();
    client.answer(id).expect("answered by the flush").0.expect("written");
    drop(client);
    machine.lose_power();
    let mut client = machine.serve();
    assert_eq!(client.read("/f", View::NOW).unwrap(), b"kept");
}

#[test]
fn losing_the_power_leaves_a_gap_that_answers_mention() {
    let mut machine = SimMachine::new(7);
    let mut client = machine.serve();
    let file = client.make("/f");
    let (kept, _) = client.write(&file, Some(0), b"kept").unwrap();
    client.fsync();
    machine.time.advance_us(3_000_000);
    client.write(&file, Some(0), b"may be lost").unwrap();
    drop(client);
    machine.lose_power();
    let mut client = machine.serve();
    assert_eq!(client.at("/f", kept).unwrap(), b"kept");
    let Ok(Reply::Status(status)) = client.ask(Request::Status(Status {})) else { panic!("no status") };
    let gap = status.gaps.first().expect("a gap is remembered");
    assert!(gap.from >= kept || gap.from == status.last_whole);
    let inside = View { at: Some(gap.to - 1), user_at: None };
    assert!(client.stat("/", inside).unwrap().answered.incomplete);
    let before = View { at: Some(gap.from), user_at: None };
    assert!(!client.stat("/", before).is_ok_and(|reply| reply.answered.incomplete));
}

#[test]
fn a_killed_process_loses_nothing_that_was_acknowledged() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let file = client.make("/f");
    let (stamp, _) = client.write(&file, Some(0), b"acknowledged").unwrap();
    drop(client);
    machine.disk.crash(CrashKind::Process);
    machine.disk.restart();
    let mut client = machine.serve();
    assert_eq!(client.read("/f", View::NOW).unwrap(), b"acknowledged");
    assert_eq!(client.at("/f", stamp - 1).unwrap(), b"");
    let Ok(Reply::Status(status)) = client.ask(Request::Status(Status {})) else { panic!("no status") };
    assert!(status.gaps.is_empty(), "the page cache survived: nothing is missing");
}

#[test]
fn instants_outside_of_history_are_refused_with_words() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let early = client.at("/", 4096).unwrap_err();
    assert_eq!(early.reason, Reason::HistoryExpired);
    assert!(early.message.contains("before the earliest instant"), "{early}");
    let late = client.stat("/", View { at: Some(u64::MAX >> 1), user_at: None }).unwrap_err();
    assert_eq!(late.reason, Reason::Future);
}

#[test]
fn user_time_cuts_each_file_at_its_last_record_up_to_it() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    client.mkdir("/s");
    let bind = |value: &str| {
        Op::SetXattr(SetXattr {
            target: Target::path("/s"),
            name: b"user.frieze.time".to_vec(),
            value: value.as_bytes().to_vec(),
            flags: 0,
        })
    };
    assert_eq!(client.txn(bind("binary:width=3")).unwrap_err().reason, Reason::InvalidArgument);
    client.txn(bind("binary:unit=ns")).unwrap();
    let file = client.make("/s/f");
    let record = |time: u64, tail: &[u8]| [&time.to_le_bytes()[..], tail].concat();
    for (time, tail) in [(100, b"a"), (200, b"b"), (200, b"c"), (300, b"d")] {
        client.write(&file, None, &record(time, tail)).unwrap();
    }
    let backward = client.write(&file, None, &record(250, b"x")).unwrap_err();
    assert_eq!(backward.reason, Reason::BackwardUserTime);
    assert!(client.write(&file, None, b"short").unwrap_err().message.contains("no time field"));
    let mut cut = |user: i64| client.read("/s/f", View { at: None, user_at: Some(user) }).map(|bytes| bytes.len());
    assert_eq!(cut(99), Ok(0), "before the first user time the file is empty");
    assert_eq!([cut(100), cut(199)], [Ok(9), Ok(9)]);
    assert_eq!([cut(200), cut(250)], [Ok(27), Ok(27)], "all records of an equal user time");
    assert_eq!(cut(300), Ok(36));
    let open = |client: &mut TestConnection, user| {
        client.stat("/s/f", View { at: None, user_at: Some(user) }).unwrap().answered.user_time_open
    };
    assert!(open(&mut client, 300) && !open(&mut client, 250));
    client.make("/plain");
    let none = client.read("/plain", View { at: None, user_at: Some(5) }).unwrap_err();
    assert_eq!(none.reason, Reason::NoUserTime);
}

#[test]
fn rights_are_those_of_the_proven_user_and_sessions_are_their_owners() {
    let machine = SimMachine::new(7);
    let mut root = machine.serve();
    let file = root.make("/secret");
    let mode = SetAttr { target: Target::path("/secret"), mode: Some(0o600), ..SetAttr::default() };
    root.txn(Op::SetAttr(mode)).unwrap();
    root.write(&file, Some(0), b"secret").unwrap();
    let session = root.session;
    root.reconnect(Caller { uid: 1000, gid: 1000, groups: vec![] });
    root.mkdir("/mine");
    assert_eq!(root.read("/secret", View::NOW).unwrap_err().reason, Reason::AccessDenied);
    // With the other's session and capability: not without being its owner.
    root.session = session;
    let stolen = Read { capability: file, offset: 0, len: 10, in_steps: false, ..Read::default() };
    let id = root.send(Request::Read(stolen), &[], 0);
    assert_eq!(root.answer(id).unwrap().0.unwrap_err().reason, Reason::UnknownSession);
}

#[test]
fn the_writers_of_a_file_are_shown_to_its_readers_and_writers_until_their_sessions_end() {
    let machine = SimMachine::new(7);
    let mut writer = machine.serve();
    let file = writer.make("/f");
    writer.write(&file, Some(0), b"x").unwrap();
    writer.mkdir("/d");
    let asks = |path: &str, at: Option<u64>| {
        let view = View { at, user_at: None };
        Request::GetXattr(GetXattr { target: Target::path(path), view, name: WRITERS_XATTR.to_vec() })
    };
    let told = |reply: Result<Reply, Fault>| -> Result<Vec<FileWriter>, Fault> {
        match reply? {
            Reply::Bytes(bytes) => Ok(parse_writers(&bytes.value).unwrap()),
            other => panic!("{other:?}"),
        }
    };
    let mut other = machine.connect(writer.server.clone(), Caller { uid: 1000, gid: 1000, groups: vec![] });
    let writers = told(other.ask(asks("/f", None))).unwrap();
    let session = writer.session;
    // What it calls itself is its own user's to know.
    assert_eq!(writers, [FileWriter { session, uid: 0, host: String::new(), command: String::new() }]);
    let own = told(writer.ask(asks("/f", None))).unwrap();
    assert_eq!(own, [FileWriter { session, uid: 0, host: "here".to_owned(), command: "test".to_owned() }]);
    let now = writer.server.newest().0;
    assert_eq!(told(other.ask(asks("/f", Some(now)))).unwrap_err().reason, Reason::NoAttribute, "of the past");
    assert_eq!(told(other.ask(asks("/d", None))).unwrap_err().reason, Reason::NoAttribute, "of a directory");
    let set = |mode| SetAttr { target: Target::path("/f"), mode: Some(mode), ..SetAttr::default() };
    writer.txn(Op::SetAttr(set(0o602))).unwrap();
    assert_eq!(told(other.ask(asks("/f", None))).unwrap().len(), 1, "who may only write it");
    writer.txn(Op::SetAttr(set(0o600))).unwrap();
    assert_eq!(told(other.ask(asks("/f", None))).unwrap_err().reason, Reason::AccessDenied);
    let (target, name) = (Target::path("/f"), WRITERS_XATTR.to_vec());
    let set = SetXattr { target, name, ..SetXattr::default() };
    assert_eq!(writer.txn(Op::SetXattr(set)).unwrap_err().reason, Reason::NotPermitted);
    writer.txn(Op::CloseSession(CloseSession::default())).unwrap();
    assert_eq!(told(writer.ask(asks("/f", None))).unwrap(), []);
}

#[test]
fn a_full_disk_refuses_data_and_lets_everything_else_go_on() {
    let mut machine = SimMachine::new(7);
    machine.disk = SimDisk::with_capacity(7, 96 << 20);
    let mut client = machine.serve();
    let file = client.make("/f");
    let id = InodeId(client.stat("/f", View::NOW).unwrap().attr.inode);
    let mut offset = 0;
    let full = loop {
        let first = (offset >> 16) as u32;
        client.txn(Op::Grant(frieze_wire::txn::Grant { inode: id.0, first, count: 16 })).unwrap();
        match client.write(&file, Some(offset), &pattern(1 << 20, 5)) {
            Ok(_) => offset += 1 << 20,
            Err(fault) => break fault,
        }
        client.server.flush().expect("flushes");
        assert!(offset < 200 << 20, "the disk never filled");
    };
    assert_eq!(full.reason, Reason::NoSpace);
    assert!(full.message.contains("no space for data"), "{full}");
    let cut = SetAttr { target: Target::path("/f"), size: Some(5), ..SetAttr::default() };
    client.txn(Op::SetAttr(cut)).expect("truncates");
    client.txn(Op::Remove(Remove { target: Target::path("/f"), directory: false })).expect("removes");
    client.server.flush().expect("flushes");
    assert!(matches!(client.ask(Request::Status(Status {})), Ok(Reply::Status(_))));
    drop(client);
    let mut client = machine.serve();
    let list = List { target: Target::path("/"), view: View::NOW, ..List::default() };
    let Ok(Reply::List(list)) = client.ask(Request::List(list)) else { panic!("no listing") };
    assert!(list.entries.is_empty());
}

#[test]
fn a_flipped_bit_is_named_and_never_returned() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let file = client.make("/f");
    client.write(&file, Some(0), &pattern(60_000, 1)).unwrap();
    let other = client.make("/g");
    client.write(&other, Some(0), b"whole").unwrap();
    client.server.stop().expect("stops");
    drop(client);
    let segment = machine.disk.list().unwrap().into_iter().find(|name| name.starts_with("seg-")).expect("a segment");
    machine.disk.flip_bit(&segment, 40_000, 3).unwrap();
    let mut client = machine.serve();
    let fault = client.read("/f", View::NOW).unwrap_err();
    assert_eq!(fault.reason, Reason::Corrupt);
    assert!(fault.message.contains("fails its checksum"), "{fault}");
    assert_eq!(client.read("/g", View::NOW).unwrap(), b"whole");
}

#[test]
fn a_failed_flush_makes_the_server_read_only_and_says_so() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let file = client.make("/f");
    client.write(&file, Some(0), b"here").unwrap();
    machine.disk.fail_syncs(1);
    let waits = client.send(Request::Sync(Sync { inode: 0 }), &[], 0);
    assert!(client.server.flush().is_err());
    assert!(client.answer(waits).expect("answered").0.is_err(), "fsync does not claim success");
    assert!(client.write(&file, Some(0), b"more").unwrap_err().message.contains("read-only"));
    assert_eq!(client.read("/f", View::NOW).unwrap(), b"here");
    let Ok(Reply::Status(status)) = client.ask(Request::Status(Status {})) else { panic!("no status") };
    assert!(status.health.contains("read-only"), "{}", status.health);
}
