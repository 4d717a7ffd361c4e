//! Expiry of history through the server: retained states read as before, expired ones are refused, and space is freed.

use std::collections::BTreeSet;

use super::sharing::{Model, check_states, play};
use super::*;
use frieze_wire::holding::Recalls;
use frieze_wire::timeline::CONTENT;
use frieze_wire::txn::{DeleteSnapshot, MakeSnapshot};

#[test]
fn nothing_is_restored_from_what_is_forgotten_even_if_nothing_was_changed_since() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let written = client.write_file("/f", &pattern(1000, 1));
    client.close_session();
    client.forget("/", written + 1);
    for path in ["/", "/f"] {
        let refused = client.restore(path, written, false).unwrap_err();
        assert_eq!(refused.reason, Reason::HistoryExpired, "{path}: {refused}");
        assert_eq!(client.restore(path, written + 1, false).unwrap().count, 0, "{path}");
    }
}

#[test]
fn what_was_before_is_refused_and_its_space_comes_back() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    client.mkdir("/d");
    client.mkdir("/other");
    let (one, two) = (pattern(200_000, 1), pattern(200_000, 2));
    client.write_file("/d/f", &one);
    client.write_file("/d/gone", &one);
    let then = client.write_file("/other/f", &one);
    client.remove("/d/gone", false).unwrap();
    let before = client.write_file("/d/f", &two);
    client.write_file("/other/f", &two);
    client.close_session();
    let dry = client.plan_forget("/d", before).unwrap();
    assert_eq!((dry.stamp, dry.bytes, dry.files, dry.deleted_files), (0, 400_000, 1, 1));
    assert_eq!(client.at("/d/f", then).unwrap(), one, "a dry run forgets nothing");

    let reply = client.forget("/d", before);
    assert_eq!((reply.bytes, reply.files, reply.deleted_files), (dry.bytes, 1, 1));
    assert!(reply.stamp > 0 && reply.waiting_bytes == 0, "{reply:?}");
    assert!(reply.freed_bytes > 380_000, "{reply:?}");
    let check = |client: &mut TestConnection| {
        for path in ["/d/f", "/d/gone"] {
            assert_eq!(client.reason_at(path, then), Reason::HistoryExpired, "{path}");
        }
        let fault = client.at("/d/f", before - 1).unwrap_err();
        assert!(fault.message.contains(&frieze_hlc::Hlc(before).to_string()), "names the earliest: {fault}");
        assert_eq!(client.at("/d/f", before).unwrap(), two);
        assert_eq!(client.read("/d/f", View::NOW).unwrap(), two);
        assert_eq!(client.at("/other/f", then).unwrap(), one, "elsewhere nothing is forgotten");
    };
    check(&mut client);
    // Again, and for less, changes nothing and says so.
    assert_eq!(client.forget("/d", before).stamp, 0);
    assert_eq!(client.forget("/d", then).stamp, 0);
    check(&mut client);
    // An edit that needs the tree of an expired instant is refused, and only there.
    for refused in [
        client.restore("/d", then, false).unwrap_err(),
        client.restore("/", then, false).unwrap_err(),
        client.clone_tree("/d", then, "/copy").unwrap_err(),
    ] {
        assert_eq!(refused.reason, Reason::HistoryExpired, "{refused}");
    }
    client.clone_tree("/other", then, "/copy").unwrap();
    assert_eq!(client.read("/copy/f", View::NOW).unwrap(), one);
    let log = |client: &mut TestConnection, path: &str| {
        let ask =
            Log { target: Target::path(path), view: View::NOW, after: 0, count_max: 0, upto: 0, ..Log::default() };
        match client.ask(Request::Log(ask)) {
            Ok(Reply::Log(reply)) => reply,
            other => panic!("{other:?}"),
        }
    };
    let told = log(&mut client, "/d/f");
    assert_eq!(told.forgotten.unwrap().before, before);
    assert!(told.versions.iter().all(|version| version.stamp >= before), "{told:?}");
    assert_eq!(log(&mut client, "/other/f").forgotten, None);
    client.server.stop().unwrap();
    let mut client = machine.serve();
    client.server.reclaim().unwrap();
    check(&mut client);
    assert_eq!(client.status().forgotten_waiting_bytes, 0);
}

/// Writes `/d/f` again and again by a session of its own each time; returns their numbers and an instant after each.
fn overwritten(client: &mut TestConnection, times: u8) -> Vec<(u64, u64)> {
    let write = |number: u8| {
        let after = client.write_file("/d/f", &pattern(1000, number));
        let session = client.session.0;
        client.close_session();
        (session, after)
    };
    (1..=times).map(write).collect()
}

#[test]
fn what_changed_before_the_horizon_is_refused_though_the_index_says_no_more_what_it_was() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    client.mkdir("/d");
    let written = overwritten(&mut client, 40);
    let other = client.write_file("/other", &pattern(10, 1));
    client.close_session();
    let index = client.status().index_bytes;
    let horizon = written[35].1;
    assert_eq!(client.forget("/d/f", horizon).writes, 35);
    assert!(client.status().index_bytes < index, "{} bytes of index were {index}", client.status().index_bytes);
    let check = |client: &mut TestConnection| {
        let refused = |result: Result<(), Fault>| result.unwrap_err().reason == Reason::HistoryExpired;
        for (from, to) in [(3, 4), (0, 34), (10, 35), (20, 39)] {
            let (from, to) = (written[from].1, written[to].1);
            assert!(refused(client.diff("/", from, to).map(drop)), "({from}, {to}]");
            assert!(refused(client.diff("/d", from, to).map(drop)), "({from}, {to}]");
        }
        let told = |client: &mut TestConnection, from| client.diff("/", from, other).unwrap().differences.len();
        assert_eq!(told(client, horizon), 2, "the file and another one");
        assert_eq!(told(client, written[39].1), 1);
        let story = client.story("/d", 0, other, 0);
        assert!(story.left_out, "some writes are not told, and that is said");
        assert!(story.events.iter().any(|event| event.stamp > horizon), "{story:?}");
        // A session that wrote then cannot be undone, one that wrote later can.
        assert!(refused(client.undo(&[written[5].0]).map(drop)));
        assert!(refused(client.undo(&[written[34].0]).map(drop)));
        assert_eq!(client.at("/d/f", horizon).unwrap(), pattern(1000, 36));
    };
    check(&mut client);
    client.server.stop().unwrap();
    let mut client = machine.serve();
    check(&mut client);
    client.server.reclaim().unwrap();
    check(&mut client);
    client.undo(&[written[39].0]).unwrap();
    assert_eq!(client.read("/d/f", View::NOW).unwrap(), pattern(1000, 39));
}

#[test]
fn a_file_that_only_a_snapshot_shows_is_reported_as_removed_since_then() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    client.mkdir("/d");
    let kept = client.write_file("/d/f", &pattern(1000, 1));
    client.write_file("/d/f", &pattern(2000, 2));
    client.remove("/d/f", false).unwrap();
    client.close_session();
    let before = client.write_file("/other", &pattern(10, 1));
    client.close_session();
    client.txn(Op::MakeSnapshot(MakeSnapshot { name: "kept".into(), at: kept, count_max: 0 })).unwrap();
    client.forget("/d", before);
    let now = client.server.newest().0;
    for path in ["/", "/d"] {
        let reply = client.diff(path, kept, now).unwrap();
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
    assert_eq!(client.diff("/d", kept + 1, now).unwrap_err().reason, Reason::HistoryExpired);
}

#[test]
fn a_log_shows_the_write_that_a_snapshot_keeps_in_the_middle_of_a_run() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    client.mkdir("/d");
    client.make("/d/f");
    let file = client.open("/d/f").unwrap();
    // One session appends to its own last write: one run.
    let stamps: Vec<u64> =
        (0..4).map(|n| client.write(&file, Some(n * 10), &pattern(10, n as u8)).unwrap().0).collect();
    client.txn(Op::MakeSnapshot(MakeSnapshot { name: "kept".into(), at: stamps[1], count_max: 0 })).unwrap();
    client.close_session();
    let over = client.write_file("/d/f", &pattern(40, 9));
    client.close_session();
    assert_eq!(client.forget("/d/f", over).files, 1);
    let story = client.story("/d", 0, stamps[2], 0);
    let writes: Vec<u64> =
        story.events.iter().filter(|event| event.flags & CONTENT != 0).map(|event| event.stamp).collect();
    assert_eq!((writes, story.left_out), (vec![stamps[1]], true), "{story:?}");
}

#[test]
fn a_snapshot_and_what_shares_bytes_keep_theirs() {
    let mut machine = SimMachine::new(7);
    let mut client = machine.serve();
    client.mkdir("/d");
    let contents: Vec<Vec<u8>> = (0..5).map(|n| pattern(100_000, n * 40)).collect();
    let mut stamps = Vec::new();
    for bytes in &contents {
        stamps.push(client.write_file("/d/f", bytes));
    }
    client.txn(Op::MakeSnapshot(MakeSnapshot { name: "kept".into(), at: stamps[1], count_max: 0 })).unwrap();
    client.clone_tree("/d/f", stamps[2], "/clone").unwrap();
    let reply = client.forget("/d", stamps[4]);
    assert_eq!(reply.snapshots, ["kept"]);
    assert_eq!((reply.bytes, reply.held_bytes), (200_000, 200_000));
    let expect = |client: &mut TestConnection, readable: [bool; 5]| {
        for (n, stamp) in stamps.iter().enumerate() {
            match readable[n] {
                true => assert_eq!(client.at("/d/f", *stamp).unwrap(), contents[n], "state {n}"),
                false => assert_eq!(client.reason_at("/d/f", *stamp), Reason::HistoryExpired, "state {n}"),
            }
        }
        assert_eq!(client.read("/clone", View::NOW).unwrap(), contents[2], "a clone keeps its bytes");
    };
    expect(&mut client, [false, true, false, false, true]);
    assert_eq!(client.reason_at("/d/f", stamps[1] + 1), Reason::HistoryExpired, "not the neighbour of a snapshot");
    client.txn(Op::DeleteSnapshot(DeleteSnapshot { name: "kept".into() })).unwrap();
    expect(&mut client, [false, false, false, false, true]);
    let held = client.status().forgotten_bytes;
    client.server.reclaim().unwrap();
    assert!(client.status().forgotten_bytes >= held + 100_000, "a snapshot that goes lets go of its bytes");
    // A snapshot of an expired instant restores nothing.
    client.txn(Op::MakeSnapshot(MakeSnapshot { name: "late".into(), at: stamps[1], count_max: 0 })).unwrap();
    expect(&mut client, [false, false, false, false, true]);
    client.fsync();
    drop(client);
    machine.lose_power();
    let mut client = machine.serve();
    client.server.reclaim().unwrap();
    expect(&mut client, [false, false, false, false, true]);
}

#[test]
fn the_tree_of_the_instant_decides_what_belongs_to_a_path() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    for directory in ["/d", "/d/sub", "/out"] {
        client.mkdir(directory);
    }
    let (old, new) = (pattern(50_000, 1), pattern(50_000, 2));
    let mut then = 0;
    for path in ["/d/sub/in", "/d/left", "/out/came", "/d/linked", "/d/later"] {
        then = client.write_file(path, &old);
    }
    let link = frieze_wire::txn::Link { file: Target::path("/d/linked"), name: Target::path("/out/linked") };
    client.txn(Op::Link(link)).unwrap();
    client.rename("/d/left", "/out/left").unwrap();
    client.rename("/out/came", "/d/came").unwrap();
    for path in ["/d/sub/in", "/out/left", "/d/came", "/d/linked", "/d/later"] {
        client.write_file(path, &new);
    }
    let before = client.server.newest().0;
    client.rename("/d/later", "/out/later").unwrap();
    client.write_file("/d/young", &old);
    client.close_session();
    let reply = client.forget("/d", before);
    assert_eq!((reply.files, reply.bytes, reply.left), (3, 150_000, 1), "{reply:?}");
    // A file moved out by then keeps its history where it lay outside, and lost it as part of the directory.
    assert_eq!(client.at("/out/linked", before).unwrap(), new);
    let versions = client.at("/out/left", before).unwrap();
    assert_eq!(versions, new);
    assert_eq!(client.reason_at("/d/left", then), Reason::HistoryExpired);
    // A file moved in by then belongs to it with all of its history, wherever it lay.
    assert_eq!(client.reason_at("/out/came", then), Reason::HistoryExpired);
    assert_eq!(client.read("/out/later", View::NOW).unwrap(), new, "moved out after: its present stays");
    assert_eq!(client.read("/d/young", View::NOW).unwrap(), old);
    let fault = client.try_forget("/d/young", before).unwrap_err();
    assert_eq!(fault.reason, Reason::InvalidArgument, "{fault}");
}

#[test]
fn only_the_owner_forgets_and_only_what_is_the_owners() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    client.mkdir("/d");
    client.chmod("/d", 0o777).unwrap();
    client.write_file("/d/roots", &pattern(30_000, 1));
    let own = |path: &str, uid| SetAttr { target: Target::path(path), uid: Some(uid), ..SetAttr::default() };
    client.txn(Op::SetAttr(own("/d", 1000))).unwrap();
    let then = client.server.newest().0;
    let before = client.write_file("/d/roots", &pattern(30_000, 2));
    client.close_session();
    client.server.stop().unwrap();
    for (uid, refused) in [(1001, true), (1000, false)] {
        let mut client = machine.serve_as(Caller { uid, gid: uid, groups: Vec::new() });
        match client.try_forget("/d", before) {
            Err(fault) => assert!(refused && fault.reason == Reason::NotPermitted, "{fault}"),
            Ok(reply) => assert_eq!((refused, reply.bytes, reply.left), (false, 0, 1), "{reply:?}"),
        }
        client.server.stop().unwrap();
    }
    let mut client = machine.serve();
    assert_eq!(client.reason_at("/d/roots", then), Reason::HistoryExpired, "the way there was forgotten");
}

#[test]
fn any_history_reads_as_before_where_it_is_kept_and_never_wrongly() {
    let mut freed = 0;
    for seed in 1..=10 {
        let mut rng = frieze_base::Rng::new(seed * 77);
        let mut machine = SimMachine::new(7);
        let mut client = machine.serve();
        client.mkdir("/a");
        client.mkdir("/b");
        let mut model = Model::empty(client.server.newest().0);
        let mut old = Model::empty(client.server.newest().0);
        let mut pinned: BTreeSet<u64> = BTreeSet::new();
        for round in 0..4 {
            for _ in 0..40 {
                play(&mut client, &mut model, &mut rng);
            }
            // Segments fill up, and hold what is kept beside what is not.
            for n in 0..20 {
                client.write_file("/fill", &pattern(200_000, n));
                play(&mut client, &mut model, &mut rng);
            }
            let pin = model.states[rng.below(model.states.len() as u64) as usize].0;
            let name = format!("s{round}");
            client.txn(Op::MakeSnapshot(MakeSnapshot { name, at: pin, count_max: 0 })).unwrap();
            pinned.insert(pin);
            if rng.chance(2) {
                client.close_session();
            }
            let (before, files) =
                model.states[model.states.len() - 1 - rng.below(30.min(model.states.len() as u64)) as usize].clone();
            let scope = match rng.below(3) {
                0 => "/".to_owned(),
                1 => "/a".to_owned(),
                _ => files.keys().next().cloned().unwrap_or("/b".to_owned()),
            };
            // Crash in the middle now and then: at any write, sync or hole.
            client.open_session();
            let crash = rng.chance(2);
            if crash {
                machine.disk.fail_after(rng.between(1, 40));
            }
            let answer = client.try_forget(&scope, before);
            if machine.disk.is_crashed() || crash {
                drop(client);
                machine.disk.crash(CrashKind::Process);
                machine.disk.restart();
                client = machine.serve();
                client.server.reclaim().unwrap();
                // A crash may have come before the expiry was ordered.
                if let Ok(reply) = client.try_forget(&scope, before) {
                    freed += reply.freed_bytes;
                }
            } else {
                freed += answer.map_or(0, |reply| reply.freed_bytes);
            }
            let (kept, gone): (Vec<_>, Vec<_>) = model.states.drain(..).partition(|(stamp, _)| *stamp >= before);
            model.states = kept;
            old.states.extend(gone);
            check_states(&mut client, &model, &mut rng, 25);
            for _ in 0..25 {
                let (stamp, files) = old.states[rng.below(old.states.len() as u64) as usize].clone();
                for (path, (_, bytes)) in &files {
                    match client.at(path, stamp) {
                        Ok(found) => assert!(found == *bytes, "seed {seed}: {path} at {stamp} reads wrongly"),
                        Err(fault) => {
                            assert_eq!(fault.reason, Reason::HistoryExpired, "seed {seed}: {path} at {stamp}: {fault}");
                            assert!(!pinned.contains(&stamp), "seed {seed}: {path} at the snapshot {stamp}: {fault}");
                        }
                    }
                }
            }
        }
        client.fsync();
        drop(client);
        machine.lose_power();
        let mut client = machine.serve();
        client.server.reclaim().unwrap();
        check_states(&mut client, &model, &mut rng, 25);
    }
    assert!(freed > 2 << 20, "{freed} bytes were freed");
}

/// Opens a file for reading only.
fn open_to_read(reader: &mut TestConnection, path: &str) -> Vec<u8> {
    reader.open_session();
    let open = Open { target: Target::path(path), view: View::NOW, read: true, write: false, made_at: 0 };
    let Reply::Open(open) = reader.ask(Request::Open(open)).unwrap() else { panic!("no open file") };
    open.capability
}

fn read_open(reader: &mut TestConnection, capability: &[u8], len: u32) -> Result<Vec<u8>, Fault> {
    let id = reader.send(
        Request::Read(Read { capability: capability.to_vec(), offset: 0, len, in_steps: false, ..Read::default() }),
        &[],
        0,
    );
    let (reply, payload) = reader.answer(id).unwrap();
    reply.map(|_| payload)
}

#[test]
fn a_deleted_file_stays_until_its_reader_closes_it() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    client.mkdir("/d");
    for seed in [1, 2] {
        client.write_file("/d/f", &pattern(60_000, seed));
    }
    client.close_session();
    let mut reader = machine.connect(client.server.clone(), Caller::root());
    let capability = open_to_read(&mut reader, "/d/f");
    let ask = |life, list, open: &[u64]| Request::Recalls(Recalls { acked: 0, life, list, open: open.to_vec() });
    let inode = client.stat("/d/f", View::NOW).unwrap().attr.inode;
    reader.send(ask(0, 1, &[inode]), &[], 0);
    client.txn(Op::Remove(Remove { target: Target::path("/d/f"), directory: false })).unwrap();
    let before = client.server.newest().0;
    let reply = client.forget("/d", before);
    assert_eq!((reply.open, reply.files, reply.deleted_files), (1, 1, 0), "{reply:?}");
    assert_eq!(read_open(&mut reader, &capability, 1 << 20).unwrap(), pattern(60_000, 2));

    // The next life of the server does not know its open file until the session has listed it.
    client.close_session();
    let session = reader.session;
    drop(reader);
    drop(client);
    let mut client = machine.serve();
    let mut reader = machine.connect(client.server.clone(), Caller::root());
    reader.session = session;
    let hello = reader.send(ask(0, 0, &[]), &[], 0);
    let Some((Ok(Reply::Recalls(hello)), _)) = reader.answer(hello) else { panic!("told at once the first time") };
    read_open(&mut reader, &capability, 0).unwrap();
    let heard = Recalls { acked: hello.number, life: hello.life, ..Recalls::default() };
    reader.send(Request::Recalls(heard), &[], 0);
    client.forget("/d", before);
    assert_eq!(
        read_open(&mut reader, &capability, 1 << 20).unwrap(),
        pattern(60_000, 2),
        "it is among what it has open"
    );

    for list in [1, 2] {
        reader.send(ask(hello.life, list, &[]), &[], 0);
    }
    let reply = client.forget("/d", before);
    assert_eq!((reply.open, reply.deleted_files), (0, 1), "{reply:?}");
    assert!(read_open(&mut reader, &capability, 1 << 20).is_err(), "it has said that it is closed");
}
