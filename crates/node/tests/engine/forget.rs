//! Expiry of history through the engine: retained states read as before, expired ones are refused, and space is freed.

use std::collections::BTreeSet;

use super::sharing::{Model, check_states, play};
use super::*;
use frieze_wire::forget::{Forget, ForgetReply};
use frieze_wire::holding::Recalls;
use frieze_wire::txn::{CloseSession, DeleteSnapshot, MakeSnapshot};

impl Served {
    fn forget_as_asked(&mut self, path: &str, before: u64, dry_run: bool) -> Result<ForgetReply, Fault> {
        self.open_session();
        self.seq += 1;
        let ask = Forget { target: Target::path(path), before, dry_run, with_snapshots: false };
        let id = self.send(Request::Forget(ask), &[], self.seq);
        match self.answer(id).expect("answered at once").0? {
            Reply::Forgot(reply) => Ok(reply),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn forget(&mut self, path: &str, before: u64) -> ForgetReply {
        self.forget_as_asked(path, before, false).unwrap()
    }

    /// Ends the session, so that no session has a file open for writing.
    pub(crate) fn close(&mut self) {
        if self.session != SessionId(0) {
            self.txn(Op::CloseSession(CloseSession::default())).unwrap();
            self.session = SessionId(0);
        }
    }

    fn status(&mut self) -> frieze_wire::message::StatusReply {
        match self.ask(Request::Status(Status {})) {
            Ok(Reply::Status(status)) => *status,
            other => panic!("{other:?}"),
        }
    }

    fn write_all(&mut self, path: &str, bytes: &[u8]) -> u64 {
        let file = match self.stat(path, View::NOW) {
            Ok(_) => self.open(path).unwrap(),
            Err(_) => {
                self.make(path);
                self.open(path).unwrap()
            }
        };
        self.write(&file, Some(0), bytes).unwrap();
        self.engine.planes.newest().0
    }

    fn reason_at(&mut self, path: &str, stamp: u64) -> Reason {
        self.at(path, stamp).unwrap_err().reason
    }
}

#[test]
fn nothing_is_restored_from_what_is_forgotten_even_if_nothing_was_changed_since() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let written = served.write_all("/f", &pattern(1000, 1));
    served.close();
    served.forget("/", written + 1);
    for path in ["/", "/f"] {
        let refused = served.restore(path, written, false).unwrap_err();
        assert_eq!(refused.reason, Reason::HistoryExpired, "{path}: {refused}");
        assert_eq!(served.restore(path, written + 1, false).unwrap().count, 0, "{path}");
    }
}

#[test]
fn what_was_before_is_refused_and_its_space_comes_back() {
    let machine = Machine::new();
    let mut served = machine.serve();
    served.mkdir("/d");
    served.mkdir("/other");
    let (one, two) = (pattern(200_000, 1), pattern(200_000, 2));
    served.write_all("/d/f", &one);
    served.write_all("/d/gone", &one);
    let then = served.write_all("/other/f", &one);
    served.remove("/d/gone", false).unwrap();
    let before = served.write_all("/d/f", &two);
    served.write_all("/other/f", &two);
    served.close();
    let dry = served.forget_as_asked("/d", before, true).unwrap();
    assert_eq!((dry.stamp, dry.bytes, dry.files, dry.deleted_files), (0, 400_000, 1, 1));
    assert_eq!(served.at("/d/f", then).unwrap(), one, "a dry run forgets nothing");

    let reply = served.forget("/d", before);
    assert_eq!((reply.bytes, reply.files, reply.deleted_files), (dry.bytes, 1, 1));
    assert!(reply.stamp > 0 && reply.waiting_bytes == 0, "{reply:?}");
    assert!(reply.freed_bytes > 380_000, "{reply:?}");
    let check = |served: &mut Served| {
        for path in ["/d/f", "/d/gone"] {
            assert_eq!(served.reason_at(path, then), Reason::HistoryExpired, "{path}");
        }
        let fault = served.at("/d/f", before - 1).unwrap_err();
        assert!(fault.message.contains(&frieze_hlc::Hlc(before).to_string()), "names the earliest: {fault}");
        assert_eq!(served.at("/d/f", before).unwrap(), two);
        assert_eq!(served.read("/d/f", View::NOW).unwrap(), two);
        assert_eq!(served.at("/other/f", then).unwrap(), one, "elsewhere nothing is forgotten");
    };
    check(&mut served);
    // Again, and for less, changes nothing and says so.
    assert_eq!(served.forget("/d", before).stamp, 0);
    assert_eq!(served.forget("/d", then).stamp, 0);
    check(&mut served);
    // An edit that needs the tree of an expired instant is refused, and only there.
    for refused in [
        served.restore("/d", then, false).unwrap_err(),
        served.restore("/", then, false).unwrap_err(),
        served.clone_tree("/d", then, "/copy").unwrap_err(),
    ] {
        assert_eq!(refused.reason, Reason::HistoryExpired, "{refused}");
    }
    served.clone_tree("/other", then, "/copy").unwrap();
    assert_eq!(served.read("/copy/f", View::NOW).unwrap(), one);
    let log = |served: &mut Served, path: &str| {
        let ask =
            Log { target: Target::path(path), view: View::NOW, after: 0, count_max: 0, upto: 0, ..Log::default() };
        match served.ask(Request::Log(ask)) {
            Ok(Reply::Log(reply)) => reply,
            other => panic!("{other:?}"),
        }
    };
    let told = log(&mut served, "/d/f");
    assert_eq!(told.forgotten.unwrap().before, before);
    assert!(told.versions.iter().all(|version| version.stamp >= before), "{told:?}");
    assert_eq!(log(&mut served, "/other/f").forgotten, None);
    served.engine.stop().unwrap();
    let mut served = machine.serve();
    served.engine.service.upkeep.reclaim().unwrap();
    check(&mut served);
    assert_eq!(served.status().forgotten_waiting_bytes, 0);
}

/// Writes `/d/f` again and again by a session of its own each time; returns their numbers and an instant after each.
fn overwritten(served: &mut Served, times: u8) -> Vec<(u64, u64)> {
    let write = |number: u8| {
        let after = served.write_all("/d/f", &pattern(1000, number));
        let session = served.session.0;
        served.close();
        (session, after)
    };
    (1..=times).map(write).collect()
}

#[test]
fn what_changed_before_the_horizon_is_refused_though_the_index_says_no_more_what_it_was() {
    let machine = Machine::new();
    let mut served = machine.serve();
    served.mkdir("/d");
    let written = overwritten(&mut served, 40);
    let other = served.write_all("/other", &pattern(10, 1));
    served.close();
    let index = served.status().index_bytes;
    let horizon = written[35].1;
    assert_eq!(served.forget("/d/f", horizon).writes, 35);
    assert!(served.status().index_bytes < index, "{} bytes of index were {index}", served.status().index_bytes);
    let check = |served: &mut Served| {
        let refused = |result: Result<(), Fault>| result.unwrap_err().reason == Reason::HistoryExpired;
        for (from, to) in [(3, 4), (0, 34), (10, 35), (20, 39)] {
            let (from, to) = (written[from].1, written[to].1);
            assert!(refused(served.diff("/", from, to).map(drop)), "({from}, {to}]");
            assert!(refused(served.diff("/d", from, to).map(drop)), "({from}, {to}]");
        }
        let told = |served: &mut Served, from| served.diff("/", from, other).unwrap().differences.len();
        assert_eq!(told(served, horizon), 2, "the file and another one");
        assert_eq!(told(served, written[39].1), 1);
        let story = served.story("/d", 0, other, 0);
        assert!(story.left_out, "some writes are not told, and that is said");
        assert!(story.events.iter().any(|event| event.stamp > horizon), "{story:?}");
        // A session that wrote then cannot be undone, one that wrote later can.
        assert!(refused(served.undo(&[written[5].0]).map(drop)));
        assert!(refused(served.undo(&[written[34].0]).map(drop)));
        assert_eq!(served.at("/d/f", horizon).unwrap(), pattern(1000, 36));
    };
    check(&mut served);
    served.engine.stop().unwrap();
    let mut served = machine.serve();
    check(&mut served);
    served.engine.service.upkeep.reclaim().unwrap();
    check(&mut served);
    served.undo(&[written[39].0]).unwrap();
    assert_eq!(served.read("/d/f", View::NOW).unwrap(), pattern(1000, 39));
}

#[test]
fn a_file_that_only_a_snapshot_shows_is_told_as_gone_since_then() {
    let machine = Machine::new();
    let mut served = machine.serve();
    served.mkdir("/d");
    let kept = served.write_all("/d/f", &pattern(1000, 1));
    served.write_all("/d/f", &pattern(2000, 2));
    served.remove("/d/f", false).unwrap();
    served.close();
    let before = served.write_all("/other", &pattern(10, 1));
    served.close();
    served.txn(Op::MakeSnapshot(MakeSnapshot { name: "kept".into(), at: kept, count_max: 0 })).unwrap();
    served.forget("/d", before);
    let now = served.engine.planes.newest().0;
    for path in ["/", "/d"] {
        let reply = served.diff(path, kept, now).unwrap();
        let told = |side: &frieze_wire::timeline::Side| String::from_utf8_lossy(&side.path).into_owned();
        let gone: Vec<String> = reply
            .differences
            .iter()
            .filter(|one| one.after.is_none())
            .filter_map(|one| one.before.as_ref())
            .map(told)
            .collect();
        assert_eq!(gone, ["/d/f"], "below {path}");
    }
    assert_eq!(served.diff("/d", kept + 1, now).unwrap_err().reason, Reason::HistoryExpired);
}

#[test]
fn a_snapshot_and_what_shares_bytes_keep_theirs() {
    let mut machine = Machine::new();
    let mut served = machine.serve();
    served.mkdir("/d");
    let contents: Vec<Vec<u8>> = (0..5).map(|n| pattern(100_000, n * 40)).collect();
    let mut stamps = Vec::new();
    for bytes in &contents {
        stamps.push(served.write_all("/d/f", bytes));
    }
    served.txn(Op::MakeSnapshot(MakeSnapshot { name: "kept".into(), at: stamps[1], count_max: 0 })).unwrap();
    served.clone_tree("/d/f", stamps[2], "/clone").unwrap();
    let reply = served.forget("/d", stamps[4]);
    assert_eq!(reply.snapshots, ["kept"]);
    assert_eq!((reply.bytes, reply.held_bytes), (200_000, 200_000));
    let expect = |served: &mut Served, readable: [bool; 5]| {
        for (n, stamp) in stamps.iter().enumerate() {
            match readable[n] {
                true => assert_eq!(served.at("/d/f", *stamp).unwrap(), contents[n], "state {n}"),
                false => assert_eq!(served.reason_at("/d/f", *stamp), Reason::HistoryExpired, "state {n}"),
            }
        }
        assert_eq!(served.read("/clone", View::NOW).unwrap(), contents[2], "a clone keeps its bytes");
    };
    expect(&mut served, [false, true, false, false, true]);
    assert_eq!(served.reason_at("/d/f", stamps[1] + 1), Reason::HistoryExpired, "not the neighbour of a snapshot");
    served.txn(Op::DeleteSnapshot(DeleteSnapshot { name: "kept".into() })).unwrap();
    expect(&mut served, [false, false, false, false, true]);
    let held = served.status().forgotten_bytes;
    served.engine.service.upkeep.reclaim().unwrap();
    assert!(served.status().forgotten_bytes >= held + 100_000, "a snapshot that goes lets go of its bytes");
    // A snapshot of an expired instant restores nothing.
    served.txn(Op::MakeSnapshot(MakeSnapshot { name: "late".into(), at: stamps[1], count_max: 0 })).unwrap();
    expect(&mut served, [false, false, false, false, true]);
    served.fsync();
    drop(served);
    machine.lose_power();
    let mut served = machine.serve();
    served.engine.service.upkeep.reclaim().unwrap();
    expect(&mut served, [false, false, false, false, true]);
}

#[test]
fn the_tree_of_the_instant_decides_what_belongs_to_a_path() {
    let machine = Machine::new();
    let mut served = machine.serve();
    for directory in ["/d", "/d/sub", "/out"] {
        served.mkdir(directory);
    }
    let (old, new) = (pattern(50_000, 1), pattern(50_000, 2));
    let mut then = 0;
    for path in ["/d/sub/in", "/d/left", "/out/came", "/d/linked", "/d/later"] {
        then = served.write_all(path, &old);
    }
    let link = frieze_wire::txn::Link { file: Target::path("/d/linked"), name: Target::path("/out/linked") };
    served.txn(Op::Link(link)).unwrap();
    served.rename("/d/left", "/out/left").unwrap();
    served.rename("/out/came", "/d/came").unwrap();
    for path in ["/d/sub/in", "/out/left", "/d/came", "/d/linked", "/d/later"] {
        served.write_all(path, &new);
    }
    let before = served.engine.planes.newest().0;
    served.rename("/d/later", "/out/later").unwrap();
    served.write_all("/d/young", &old);
    served.close();
    let reply = served.forget("/d", before);
    assert_eq!((reply.files, reply.bytes, reply.left), (3, 150_000, 1), "{reply:?}");
    // A file moved out by then keeps its history where it lay outside, and lost it as part of the directory.
    assert_eq!(served.at("/out/linked", before).unwrap(), new);
    let versions = served.at("/out/left", before).unwrap();
    assert_eq!(versions, new);
    assert_eq!(served.reason_at("/d/left", then), Reason::HistoryExpired);
    // A file moved in by then belongs to it with all of its history, wherever it lay.
    assert_eq!(served.reason_at("/out/came", then), Reason::HistoryExpired);
    assert_eq!(served.read("/out/later", View::NOW).unwrap(), new, "moved out after: its present stays");
    assert_eq!(served.read("/d/young", View::NOW).unwrap(), old);
    let fault = served.forget_as_asked("/d/young", before, false).unwrap_err();
    assert_eq!(fault.reason, Reason::InvalidArgument, "{fault}");
}

#[test]
fn only_the_owner_forgets_and_only_what_is_the_owners() {
    let machine = Machine::new();
    let mut served = machine.serve();
    served.mkdir("/d");
    served.chmod("/d", 0o777).unwrap();
    served.write_all("/d/roots", &pattern(30_000, 1));
    let own = |path: &str, uid| SetAttr { target: Target::path(path), uid: Some(uid), ..SetAttr::default() };
    served.txn(Op::SetAttr(own("/d", 1000))).unwrap();
    let then = served.engine.planes.newest().0;
    let before = served.write_all("/d/roots", &pattern(30_000, 2));
    served.close();
    served.engine.stop().unwrap();
    for (uid, refused) in [(1001, true), (1000, false)] {
        let mut served = machine.serve_as(Caller { uid, gid: uid, groups: Vec::new() });
        match served.forget_as_asked("/d", before, false) {
            Err(fault) => assert!(refused && fault.reason == Reason::NotPermitted, "{fault}"),
            Ok(reply) => assert_eq!((refused, reply.bytes, reply.left), (false, 0, 1), "{reply:?}"),
        }
        served.engine.stop().unwrap();
    }
    let mut served = machine.serve();
    assert_eq!(served.reason_at("/d/roots", then), Reason::HistoryExpired, "the way there was forgotten");
}

#[test]
fn any_history_reads_as_before_where_it_is_kept_and_never_wrongly() {
    let mut freed = 0;
    for seed in 1..=10 {
        let mut rng = frieze_base::Rng::new(seed * 77);
        let mut machine = Machine::new();
        let mut served = machine.serve();
        served.mkdir("/a");
        served.mkdir("/b");
        let mut model = Model::empty(served.engine.planes.newest().0);
        let mut old = Model::empty(served.engine.planes.newest().0);
        let mut pinned: BTreeSet<u64> = BTreeSet::new();
        for round in 0..4 {
            for _ in 0..40 {
                play(&mut served, &mut model, &mut rng);
            }
            // Segments fill up, and hold what is kept beside what is not.
            for n in 0..20 {
                served.write_all("/fill", &pattern(200_000, n));
                play(&mut served, &mut model, &mut rng);
            }
            let pin = model.states[rng.below(model.states.len() as u64) as usize].0;
            let name = format!("s{round}");
            served.txn(Op::MakeSnapshot(MakeSnapshot { name, at: pin, count_max: 0 })).unwrap();
            pinned.insert(pin);
            if rng.chance(2) {
                served.close();
            }
            let (before, files) =
                model.states[model.states.len() - 1 - rng.below(30.min(model.states.len() as u64)) as usize].clone();
            let scope = match rng.below(3) {
                0 => "/".to_owned(),
                1 => "/a".to_owned(),
                _ => files.keys().next().cloned().unwrap_or("/b".to_owned()),
            };
            // Crash in the middle now and then: at any write, sync or hole.
            served.open_session();
            let crash = rng.chance(2);
            if crash {
                machine.disk.fail_after(rng.between(1, 40));
            }
            let answer = served.forget_as_asked(&scope, before, false);
            if machine.disk.is_crashed() || crash {
                drop(served);
                machine.disk.crash(CrashKind::Process);
                machine.disk.restart();
                served = machine.serve();
                served.engine.service.upkeep.reclaim().unwrap();
                // A crash may have come before the expiry was ordered.
                if let Ok(reply) = served.forget_as_asked(&scope, before, false) {
                    freed += reply.freed_bytes;
                }
            } else {
                freed += answer.map_or(0, |reply| reply.freed_bytes);
            }
            let (kept, gone): (Vec<_>, Vec<_>) = model.states.drain(..).partition(|(stamp, _)| *stamp >= before);
            model.states = kept;
            old.states.extend(gone);
            check_states(&mut served, &model, &mut rng, 25);
            for _ in 0..25 {
                let (stamp, files) = old.states[rng.below(old.states.len() as u64) as usize].clone();
                for (path, (_, bytes)) in &files {
                    match served.at(path, stamp) {
                        Ok(found) => assert!(found == *bytes, "seed {seed}: {path} at {stamp} reads wrongly"),
                        Err(fault) => {
                            assert_eq!(fault.reason, Reason::HistoryExpired, "seed {seed}: {path} at {stamp}: {fault}");
                            assert!(!pinned.contains(&stamp), "seed {seed}: {path} at the snapshot {stamp}: {fault}");
                        }
                    }
                }
            }
        }
        served.fsync();
        drop(served);
        machine.lose_power();
        let mut served = machine.serve();
        served.engine.service.upkeep.reclaim().unwrap();
        check_states(&mut served, &model, &mut rng, 25);
    }
    assert!(freed > 2 << 20, "{freed} bytes were freed");
}

/// Opens a file for reading only.
fn open_to_read(reader: &mut Served, path: &str) -> Vec<u8> {
    reader.open_session();
    let open = Open { target: Target::path(path), view: View::NOW, read: true, write: false, made_at: 0 };
    let Reply::Open(open) = reader.ask(Request::Open(open)).unwrap() else { panic!("no open file") };
    open.capability
}

fn read_open(reader: &mut Served, capability: &[u8], len: u32) -> Result<Vec<u8>, Fault> {
    let id = reader.send(
        Request::Read(Read { capability: capability.to_vec(), offset: 0, len, in_steps: false, ..Read::default() }),
        &[],
        0,
    );
    let (reply, payload) = reader.answer(id).unwrap();
    reply.map(|_| payload)
}

#[test]
fn a_deleted_file_that_somebody_reads_stays_until_he_has_closed_it() {
    let machine = Machine::new();
    let mut served = machine.serve();
    served.mkdir("/d");
    for seed in [1, 2] {
        served.write_all("/d/f", &pattern(60_000, seed));
    }
    served.close();
    let mut reader = machine.connect(served.engine.clone(), Caller::root());
    let capability = open_to_read(&mut reader, "/d/f");
    let ask = |life, list, open: &[u64]| Request::Recalls(Recalls { acked: 0, life, list, open: open.to_vec() });
    let inode = served.stat("/d/f", View::NOW).unwrap().attr.inode;
    reader.send(ask(0, 1, &[inode]), &[], 0);
    served.txn(Op::Remove(Remove { target: Target::path("/d/f"), directory: false })).unwrap();
    let before = served.engine.planes.newest().0;
    let reply = served.forget("/d", before);
    assert_eq!((reply.open, reply.files, reply.deleted_files), (1, 1, 0), "{reply:?}");
    assert_eq!(read_open(&mut reader, &capability, 1 << 20).unwrap(), pattern(60_000, 2));

    // The next life of the server does not know its open file until the session has listed it.
    served.close();
    let session = reader.session;
    drop(reader);
    drop(served);
    let mut served = machine.serve();
    let mut reader = machine.connect(served.engine.clone(), Caller::root());
    reader.session = session;
    let hello = reader.send(ask(0, 0, &[]), &[], 0);
    let Some((Ok(Reply::Recalls(hello)), _)) = reader.answer(hello) else { panic!("told at once the first time") };
    read_open(&mut reader, &capability, 0).unwrap();
    let heard = Recalls { acked: hello.number, life: hello.life, ..Recalls::default() };
    reader.send(Request::Recalls(heard), &[], 0);
    served.forget("/d", before);
    assert_eq!(
        read_open(&mut reader, &capability, 1 << 20).unwrap(),
        pattern(60_000, 2),
        "it is among what it has open"
    );

    for list in [1, 2] {
        reader.send(ask(hello.life, list, &[]), &[], 0);
    }
    let reply = served.forget("/d", before);
    assert_eq!((reply.open, reply.deleted_files), (0, 1), "{reply:?}");
    assert!(read_open(&mut reader, &capability, 1 << 20).is_err(), "it has said that it is closed");
}
