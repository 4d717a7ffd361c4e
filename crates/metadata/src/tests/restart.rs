//! Starts: alone and as a member of several, by the same journal.

use std::time::Duration;

use frieze_base::{InodeId, NodeId, Reason, Seq, SessionId};
use frieze_disk::{CrashKind, Disk, SimDisk};
use frieze_namespace::NoReadSet;
use frieze_wire::txn::{Caller, MakeKind};

use super::fixture::{LoneMachine, make, open_session, run, target};
use super::raft::three;
use crate::Metadata;

/// Makes directories, one after the other.
fn make_directories(metadata: &Metadata, session: SessionId, names: &[&str]) {
    for (seq, name) in (1..).zip(names) {
        run(metadata, session, Seq(seq), make(name, MakeKind::Directory(true))).expect("it is made");
    }
}

fn finds(metadata: &Metadata, path: &str) -> bool {
    metadata.resolve(&target(path), None, &Caller::root(), &NoReadSet).is_ok()
}

fn id_of(metadata: &Metadata, path: &str) -> InodeId {
    metadata.resolve(&target(path), None, &Caller::root(), &NoReadSet).expect("it is there").id
}

fn segments(disk: &SimDisk) -> Vec<String> {
    disk.list().expect("it works").into_iter().filter(|name| name.starts_with("raft-")).collect()
}

/// One bit of the last byte of the journal is another.
fn rot_at_the_end(disk: &SimDisk) {
    let name = segments(disk).pop().expect("there is a journal");
    let file = disk.open(&name).expect("it is there");
    let mut bytes = vec![0; file.len().expect("it works") as usize];
    assert_eq!(file.read_at(0, &mut bytes), Ok(bytes.len()));
    let last = bytes.iter().rposition(|byte| *byte != 0).expect("there are records");
    disk.flip_bit(&name, last as u64, 3).expect("it is there");
}

#[test]
fn a_server_that_is_alone_leads_when_its_start_returns() {
    let machine = LoneMachine::new(1);
    let mut metadata = machine.serve();
    make_directories(&metadata, open_session(&metadata, 7, false), &["/a", "/b"]);
    for kind in [CrashKind::Process, CrashKind::Power] {
        metadata.sync(metadata.mark()).expect("the journal is flushed");
        machine.crash(kind);
        // Nothing ticks, and no thread flushes.
        metadata = machine.serve();
        assert!(metadata.leads() && !metadata.is_member());
        assert!(finds(&metadata, "/a") && finds(&metadata, "/b"));
        let other = make(&format!("/{kind:?}"), MakeKind::Directory(true));
        run(&metadata, open_session(&metadata, 7, false), Seq(1), other).expect("it is made");
    }
}

#[test]
fn a_change_that_no_flush_covers_survives_the_process_and_not_the_power() {
    for (kind, survives) in [(CrashKind::Process, true), (CrashKind::Power, false)] {
        // The simulated disk keeps some of what was not flushed: in one of a few cases nothing of the record.
        let kept = (1..=20).filter(|seed| {
            let machine = LoneMachine::new(*seed);
            let metadata = machine.serve();
            metadata.sync(metadata.mark()).expect("the journal is flushed");
            make_directories(&metadata, open_session(&metadata, 7, false), &["/a"]);
            machine.crash(kind);
            finds(&machine.serve(), "/a")
        });
        let kept = kept.count();
        assert_eq!(kept == 20, survives, "{kind:?} leaves {kept} of 20");
    }
}

#[test]
fn a_server_that_others_may_join_goes_on_with_its_journal() {
    let machine = LoneMachine::new(1);
    let metadata = machine.serve();
    make_directories(&metadata, open_session(&metadata, 7, false), &["/a"]);
    let (before, appended) = (segments(&machine.disk), metadata.appended());
    assert_eq!(metadata.bootstrap(&|| Ok(())).map_err(|fault| fault.reason), Ok(true));
    assert_eq!(segments(&machine.disk), before);
    assert!(metadata.appended() >= appended && metadata.is_member());
    machine.crash(CrashKind::Process);
    let (again, _) = machine.open().expect("it starts");
    again.begin().expect("others may be there: it waits for its timers");
    assert!(again.is_member() && finds(&again, "/a"));
    assert!(again.appended() >= appended, "the numbers of entries go on");
}

/// Starts with damage that a start refuses. Also returns what it says of it.
fn serve_damaged(machine: &LoneMachine) -> (Metadata, Vec<String>) {
    let fault = machine.open().err().expect("what was flushed is not whole");
    assert_eq!(fault.reason, Reason::Corrupt);
    assert!(fault.message.contains("was on stable storage up to record"), "{fault}");
    machine.open_with(true).expect("damage may be served")
}

#[test]
fn a_start_refuses_a_journal_whose_flushed_end_rotted_alone_and_shared() {
    for is_shared in [false, true] {
        let machine = LoneMachine::new(1);
        let metadata = machine.serve();
        if is_shared {
            metadata.bootstrap(&|| Ok(())).expect("it works");
        }
        make_directories(&metadata, open_session(&metadata, 7, false), &["/a", "/b"]);
        if metadata.await_journal(Duration::ZERO) {
            metadata.sync(metadata.mark()).expect("the journal is flushed");
        }
        machine.crash(CrashKind::Process);
        rot_at_the_end(&machine.disk);
        // The only voter serves what is left: no other server has more.
        let (metadata, notes) = serve_damaged(&machine);
        assert!(notes.iter().any(|note| note.contains("was on stable storage up to record")), "{notes:?}");
        metadata.begin().expect("it leads");
        assert!(finds(&metadata, "/a") && !finds(&metadata, "/b"));
        machine.crash(CrashKind::Process);
        machine.open().expect("the loss is known by now");
    }
}

/// One bit of the first place where the journal has `needle` is another.
fn rot_at(disk: &SimDisk, needle: &[u8]) {
    for name in segments(disk) {
        let file = disk.open(&name).expect("it is there");
        let mut bytes = vec![0; file.len().expect("it works") as usize];
        assert_eq!(file.read_at(0, &mut bytes), Ok(bytes.len()));
        if let Some(at) = bytes.windows(needle.len()).position(|window| window == needle) {
            return disk.flip_bit(&name, at as u64, 3).expect("it is there");
        }
    }
    panic!("{needle:?} is in no segment");
}

/// What was changed so far comes into tables, durably. Makes a directory.
fn write_tables(machine: &LoneMachine, metadata: &Metadata) {
    machine.store.set_memtable_bytes_max(1);
    make_directories(metadata, open_session(metadata, 8, false), &["/table"]);
    machine.store.set_memtable_bytes_max(1 << 20);
    metadata.sync(metadata.mark()).expect("the journal is flushed");
    assert_eq!(metadata.settle_versions(metadata.appended()), Ok(metadata.appended()));
}

#[test]
fn a_damaged_record_in_the_middle_of_the_journal_costs_the_names_behind_it_if_damage_is_served() {
    for has_later in [false, true] {
        check_damaged_record(has_later);
    }
}

fn check_damaged_record(has_later: bool) {
    let machine = LoneMachine::new(1);
    let metadata = machine.serve();
    make_directories(&metadata, open_session(&metadata, 7, false), &["/first", "/second", "/third"]);
    let newest = metadata.state.read().numbers().newest();
    metadata.sync(metadata.mark()).expect("the journal is flushed");
    if has_later {
        // Its record says that those before it were on stable storage.
        make_directories(&metadata, open_session(&metadata, 7, false), &["/fourth"]);
        metadata.sync(metadata.mark()).expect("the journal is flushed");
    }
    drop(metadata);
    machine.crash(CrashKind::Process);
    let whole = segments(&machine.disk);
    rot_at(&machine.disk, b"second");
    let fault = machine.open().err().expect("what was flushed is not whole");
    assert_eq!(fault.reason, Reason::Corrupt);
    for words in [&whole[0], "at byte", "serve_damaged = true", "frieze export"] {
        assert!(fault.message.contains(words), "{words}: {fault}");
    }
    assert_eq!(segments(&machine.disk), whole, "a refusal changes nothing");

    let (metadata, notes) = machine.open_with(true).expect("damage may be served");
    metadata.begin().expect("it leads");
    assert!(notes.iter().any(|note| note.contains("changes of names after")), "{notes:?}");
    assert!(finds(&metadata, "/first") && !finds(&metadata, "/second") && !finds(&metadata, "/third"));
    let after = metadata.lost_after().expect("names are lost");
    assert_eq!(Some(after), metadata.birth_stamp(id_of(&metadata, "/first")));
    make_directories(&metadata, open_session(&metadata, 7, false), &["/again"]);
    assert!(metadata.state.read().numbers().newest() > newest, "no lost inode number is given again");
    let aside = |name: &String| name.starts_with("lost-raft-");
    assert_eq!(machine.disk.list().expect("it works").iter().filter(|name| aside(name)).count(), whole.len());

    // From now on it is a directory like any other.
    drop(metadata);
    machine.crash(CrashKind::Process);
    let metadata = machine.serve();
    assert!(finds(&metadata, "/first") && finds(&metadata, "/again") && !finds(&metadata, "/third"));
    assert_eq!(metadata.lost_after(), None);
}

#[test]
fn what_is_lost_with_a_damaged_journal_is_known_after_a_crash_right_behind() {
    let machine = LoneMachine::new(1);
    let metadata = machine.serve();
    make_directories(&metadata, open_session(&metadata, 7, false), &["/first", "/second", "/third"]);
    let newest = metadata.state.read().numbers().newest();
    metadata.sync(metadata.mark()).expect("the journal is flushed");
    drop(metadata);
    machine.crash(CrashKind::Process);
    rot_at(&machine.disk, b"second");
    // The process ends once the new journal counts, and before it orders anything.
    let (metadata, _) = machine.open_with(true).expect("damage may be served");
    let after = metadata.lost_after().expect("names are lost");
    drop(metadata);
    machine.crash(CrashKind::Process);

    let metadata = machine.serve();
    assert_eq!(metadata.lost_after(), None, "the new journal is whole");
    let gaps: Vec<_> = metadata.host.keeper.with(|identity| identity.gaps().collect());
    assert!(matches!(gaps[..], [(from, _)] if from == after), "{gaps:?}");
    make_directories(&metadata, open_session(&metadata, 7, false), &["/again"]);
    assert!(metadata.state.read().numbers().newest() > newest, "no lost inode number is given again");
}

#[test]
fn a_damaged_record_costs_nothing_if_the_store_has_its_entries() {
    let machine = LoneMachine::new(1);
    let metadata = machine.serve();
    make_directories(&metadata, open_session(&metadata, 7, false), &["/first", "/second"]);
    write_tables(&machine, &metadata);
    make_directories(&metadata, open_session(&metadata, 7, false), &["/third"]);
    metadata.sync(metadata.mark()).expect("the journal is flushed");
    drop(metadata);
    machine.crash(CrashKind::Process);
    rot_at(&machine.disk, b"second");
    machine.open().err().expect("the default is to refuse");
    let (metadata, notes) = machine.open_with(true).expect("damage may be served");
    metadata.begin().expect("it leads");
    assert!(["/first", "/second", "/third"].iter().all(|path| finds(&metadata, path)));
    assert!(notes.iter().any(|note| note.contains("no change of names is missing")), "{notes:?}");
    assert_eq!(metadata.lost_after(), None);
}

#[test]
fn a_journal_that_is_missing_leaves_what_the_store_has() {
    let machine = LoneMachine::new(1);
    let metadata = machine.serve();
    make_directories(&metadata, open_session(&metadata, 7, false), &["/first"]);
    write_tables(&machine, &metadata);
    make_directories(&metadata, open_session(&metadata, 7, false), &["/second"]);
    metadata.sync(metadata.mark()).expect("the journal is flushed");
    drop(metadata);
    machine.crash(CrashKind::Process);
    segments(&machine.disk).iter().for_each(|name| machine.disk.remove(name).expect("it is there"));
    let fault = machine.open().err().expect("it is missing");
    assert!(fault.message.contains("the metalog has no segment") && fault.message.contains("serve_damaged"), "{fault}");
    let (metadata, _) = machine.open_with(true).expect("damage may be served");
    metadata.begin().expect("it leads");
    assert!(finds(&metadata, "/first") && !finds(&metadata, "/second"));
    assert!(metadata.lost_after().is_some());
}

#[test]
fn a_directory_of_whose_names_nothing_is_left_is_not_formatted_anew() {
    let machine = LoneMachine::new(1);
    let metadata = machine.serve();
    make_directories(&metadata, open_session(&metadata, 7, false), &["/first"]);
    metadata.sync(metadata.mark()).expect("the journal is flushed");
    drop(metadata);
    machine.crash(CrashKind::Process);
    segments(&machine.disk).iter().for_each(|name| machine.disk.remove(name).expect("it is there"));
    let before = machine.disk.list();
    for serves_damaged in [false, true, false] {
        let fault = machine.open_with(serves_damaged).err().expect("nothing has the names");
        assert_eq!(fault.reason, Reason::Corrupt);
        assert_eq!(fault.message.contains("Nothing of the names is left"), serves_damaged, "{fault}");
    }
    assert_eq!(machine.disk.list(), before);
}

#[test]
fn a_store_of_names_that_is_missing_is_named() {
    let machine = LoneMachine::new(1);
    let metadata = machine.serve();
    make_directories(&metadata, open_session(&metadata, 7, false), &["/first"]);
    write_tables(&machine, &metadata);
    make_directories(&metadata, open_session(&metadata, 7, false), &["/second"]);
    metadata.truncate(metadata.durable_upto()).expect("the log is cut");
    metadata.sync(metadata.mark()).expect("the journal is flushed");
    drop(metadata);
    machine.crash(CrashKind::Process);
    machine.store.pretend_applied(frieze_base::LogIndex(0));
    for serves_damaged in [false, true] {
        let fault = machine.open_with(serves_damaged).err().expect("nothing has the names");
        assert!(fault.message.contains("'namespace'") && fault.message.contains("Put the directory back"), "{fault}");
    }
}

#[test]
fn a_member_whose_flushed_records_rotted_takes_no_part() {
    let servers = three();
    let follower = 2;
    let before = servers.node(follower).status().expect("a member");
    assert!(!before.leads && before.failed.is_none());
    for name in ["/a", "/b"] {
        make_directories(servers.node(1), open_session(servers.node(1), 7, false), &[name]);
        servers.run_until("the entry at the follower", || finds(servers.node(follower), name));
        // Ticks without an entry: a record says how far the log is committed.
        (0..500).for_each(|_| servers.step());
    }
    servers.cut_off(follower, true);
    servers.step();
    let machine = servers.machine(follower);
    machine.crash(CrashKind::Process);
    rot_at_the_end(&machine.disk);
    // It may have voted by what it lost.
    let (metadata, notes) = serve_damaged(machine);
    assert!(notes.iter().any(|note| note.contains("replace the server")), "{notes:?}");
    let status = metadata.status().expect("a member");
    assert!(status.failed.is_some() && !status.leads && status.members.voters.contains(&NodeId(follower)));
    assert!(finds(&metadata, "/a"), "it shows what it has");
    drop(metadata);
    machine.crash(CrashKind::Process);
    machine.open().err().expect("its files are as they were: it takes part no more");
    rot_at(&machine.disk, b"a");
    let (metadata, notes) = machine.open_with(true).expect("damage may be served");
    assert!(notes.iter().any(|note| note.contains("replace the server")), "{notes:?}");
    assert!(metadata.status().expect("a member").failed.is_some());
}
