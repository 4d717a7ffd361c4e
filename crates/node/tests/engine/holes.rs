//! Holes: punched, remembered, made durable, found, counted.

use frieze_base::{Reason, Rng};
use frieze_disk::CrashKind;
use frieze_wire::message::{Durability, Log, Open, Reply, Request, VersionKind, View};
use frieze_wire::txn::{Op, Remove, Settle, SettleAll, Target};

use crate::{SimMachine, TestConnection, pattern};

/// Bytes of a chunk here.
const CHUNK: u64 = 64 << 10;

fn view(at: u64) -> View {
    View { at: Some(at), user_at: None }
}

#[test]
fn a_hole_over_several_chunks_is_one_stamp_and_the_bytes_before_it_stay_readable() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let file = client.make("/f");
    client.grant("/f", 0, 4);
    let bytes = pattern(4 * CHUNK as usize, 1);
    let (written, _) = client.write(&file, Some(0), &bytes).unwrap();
    let before = client.stat("/f", View::NOW).unwrap().attr;
    machine.time.advance_us(10);
    let hole = client.punch(&file, 1000, 3 * CHUNK).unwrap();
    assert_eq!(hole.upto, 1000 + 3 * CHUNK);

    let mut expected = bytes.clone();
    expected[1000..1000 + 3 * CHUNK as usize].fill(0);
    assert!(client.read("/f", View::NOW).unwrap() == expected);
    assert!(client.at("/f", hole.stamp).unwrap() == expected);
    assert!(client.at("/f", hole.stamp - 1).unwrap() == bytes);
    assert!(client.at("/f", written).unwrap() == bytes);
    let after = client.stat("/f", View::NOW).unwrap().attr;
    assert_eq!((after.size, after.bytes_live), (4 * CHUNK, CHUNK));
    assert!(after.mtime_ns > before.mtime_ns && after.ctime_ns > before.ctime_ns && after.changed == hole.stamp);
    assert_eq!(client.borders("/f", View::NOW), [0, 1000, 1000 + 3 * CHUNK, 4 * CHUNK]);
    assert_eq!(client.borders("/f", view(written)), [0, 4 * CHUNK]);
    assert_eq!(client.bytes_live("/f", view(written)), 4 * CHUNK);

    let log =
        Log { target: Target::path("/f"), view: View::NOW, after: written, count_max: 0, upto: 0, ..Log::default() };
    let Reply::Log(log) = client.ask(Request::Log(log)).unwrap() else { panic!("no log") };
    let lines: Vec<_> = log.versions.iter().map(|line| (line.kind(), line.stamp, line.offset, line.len)).collect();
    assert_eq!(lines, [(VersionKind::Punch, hole.stamp, 1000, 3 * CHUNK)]);
}

#[test]
fn a_hole_extends_nothing_and_needs_no_length() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let file = client.make("/f");
    client.write(&file, Some(0), b"abc").unwrap();
    let far = client.punch(&file, 1 << 40, 1 << 40).unwrap();
    assert_eq!(far.upto, 2 << 40);
    let whole = client.punch(&file, 1, 1 << 60).unwrap();
    assert_eq!(whole.upto, CHUNK * u64::from(u32::MAX), "as far as a file can reach");
    assert_eq!(client.read("/f", View::NOW).unwrap(), b"a\0\0");
    assert_eq!(client.bytes_live("/f", View::NOW), 1);
    assert_eq!(client.punch(&file, 5, 0).unwrap_err().reason, Reason::InvalidArgument);
    assert_eq!(client.punch(&file, u64::MAX, 1).unwrap_err().reason, Reason::TooLarge);
    client.write(&file, Some(2), b"z").unwrap();
    assert_eq!(client.read("/f", View::NOW).unwrap(), b"a\0z");
}

#[test]
fn a_hole_over_more_chunks_than_one_request_reaches_says_how_far_it_came() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let file = client.make("/f");
    // Every other chunk of 400, so that no two are neighbours.
    for chunk in (0..400).step_by(2) {
        client.grant("/f", chunk, 1);
        client.write(&file, Some(u64::from(chunk) * CHUNK), b"x").unwrap();
    }
    let end = 399 * CHUNK;
    let first = client.punch(&file, 0, end).unwrap();
    assert_eq!(first.upto, 2 * 128 * CHUNK, "128 chunks that hold data, and the holes between them");
    assert_eq!(client.bytes_live("/f", View::NOW), 200 - 128);
    let second = client.punch(&file, first.upto, end - first.upto).unwrap();
    assert_eq!((second.upto, client.bytes_live("/f", View::NOW)), (end, 0));
    assert_eq!(client.seek("/f", View::NOW, 0, true), None);
}

#[test]
fn punching_needs_a_file_open_for_writing_and_gets_its_own_grants() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let file = client.make("/f");
    client.grant("/f", 0, 3);
    client.write(&file, Some(0), &pattern(3 * CHUNK as usize, 1)).unwrap();
    let inode = client.stat("/f", View::NOW).unwrap().attr.inode;
    client.txn(Op::Settle(Settle { inode, ..Settle::default() })).unwrap();
    // Nothing is granted any more; the right was proven at open.
    client.punch(&file, CHUNK, CHUNK).unwrap();
    assert_eq!(client.bytes_live("/f", View::NOW), 2 * CHUNK);
    assert_eq!(client.stat("/f", View::NOW).unwrap().attr.size, 3 * CHUNK);

    let open = Open { target: Target::path("/f"), view: View::NOW, read: true, write: false, made_at: 0 };
    let Reply::Open(reader) = client.ask(Request::Open(open.clone())).unwrap() else { panic!("no open file") };
    assert_eq!(client.punch(&reader.capability, 0, 1).unwrap_err().reason, Reason::AccessDenied);
    let now = client.punch(&file, 0, 1).unwrap().stamp;
    let Reply::Open(past) = client.ask(Request::Open(Open { view: view(now), ..open })).unwrap() else { panic!() };
    assert_eq!(client.punch(&past.capability, 0, 1).unwrap_err().reason, Reason::ReadOnly);
}

#[test]
fn files_closed_together_are_settled_and_removed_ones_are_skipped() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let paths = ["/a", "/b", "/gone"];
    let (mut files, mut handles) = (Vec::new(), Vec::new());
    for (at, path) in paths.into_iter().enumerate() {
        let file = client.make(path);
        client.grant(path, 0, 1);
        client.write(&file, Some(0), &pattern(100 * (at + 1), 1)).unwrap();
        let inode = client.stat(path, View::NOW).unwrap().attr.inode;
        files.push(Settle { inode, ..Settle::default() });
        handles.push(file);
    }
    files.push(Settle { inode: 12_345, ..Settle::default() });
    client.txn(Op::Remove(Remove { target: Target::path("/gone"), directory: false })).unwrap();
    client.txn(Op::SettleAll(SettleAll { files: files.clone() })).unwrap();
    let sizes = ["/a", "/b"].map(|path| client.stat(path, View::NOW).unwrap().attr.size);
    assert_eq!(sizes, [100, 200]);
    assert!(client.write(&handles[0], Some(0), b"x").is_err(), "the right to write is given back");
    let many = SettleAll { files: vec![Settle::default(); 257] };
    assert_eq!(client.txn(Op::SettleAll(many)).unwrap_err().reason, Reason::TooLarge);
}

#[test]
fn a_punch_that_is_sent_again_runs_once_also_after_a_restart() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let file = client.make("/f");
    client.write(&file, Some(0), b"first").unwrap();
    let punch = || TestConnection::punch_request(&file, 0, 5, Durability::Async);
    let first = client.send(punch(), &[], 50);
    let first = client.answer(first).unwrap().0.unwrap();
    client.seq = 50;
    client.write(&file, Some(0), b"second").unwrap();
    let again = client.send(punch(), &[], 50);
    assert_eq!(client.answer(again).unwrap().0.unwrap(), first);
    let session = client.session;
    drop(client);
    let mut client = machine.serve();
    client.session = session;
    let late = client.send(punch(), &[], 50);
    assert_eq!(client.answer(late).unwrap().0.unwrap(), first);
    assert_eq!(client.read("/f", View::NOW).unwrap(), b"second");
}

#[test]
fn a_sync_punch_is_answered_by_the_flush_and_survives_the_power() {
    let mut machine = SimMachine::new(7);
    let mut client = machine.serve();
    let file = client.make("/f");
    client.write(&file, Some(0), &pattern(3000, 3)).unwrap();
    client.seq += 1;
    let punch = TestConnection::punch_request(&file, 1000, 1000, Durability::Sync);
    let id = client.send(punch, &[], client.seq);
    assert!(client.answer(id).is_none(), "not before it is on disk");
    client.server.flush().unwrap();
    let Some((Ok(Reply::Punch(reply)), _)) = client.answer(id) else { panic!("not answered by the flush") };
    drop(client);
    machine.lose_power();
    let mut client = machine.serve();
    let mut expected = pattern(3000, 3);
    expected[1000..2000].fill(0);
    assert!(client.read("/f", View::NOW).unwrap() == expected);
    assert!(client.at("/f", reply.stamp - 1).unwrap() == pattern(3000, 3));
}

#[test]
fn live_bytes_are_exact_behind_truncates_and_in_the_past() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let file = client.make("/f");
    client.grant("/f", 0, 4);
    let (full, _) = client.write(&file, Some(0), &pattern(4 * CHUNK as usize, 1)).unwrap();
    client.truncate("/f", CHUNK + 100);
    assert_eq!(client.bytes_live("/f", View::NOW), CHUNK + 100);
    client.truncate("/f", 4 * CHUNK);
    assert_eq!(client.bytes_live("/f", View::NOW), CHUNK + 100, "what grew is a hole");
    client.grant("/f", 0, 4);
    let (last, _) = client.write(&file, Some(3 * CHUNK), b"far").unwrap();
    assert_eq!(client.bytes_live("/f", View::NOW), CHUNK + 103);
    assert_eq!(client.borders("/f", View::NOW), [0, CHUNK + 100, 3 * CHUNK, 3 * CHUNK + 3]);
    assert_eq!(client.bytes_live("/f", view(full)), 4 * CHUNK);
    assert_eq!(client.bytes_live("/f", view(last - 1)), CHUNK + 100);
    // Written anew from the start: what was there before does not count twice.
    client.truncate("/f", 0);
    assert_eq!(client.bytes_live("/f", View::NOW), 0);
    client.grant("/f", 0, 1);
    client.write(&file, Some(0), &pattern(5000, 2)).unwrap();
    assert_eq!(client.bytes_live("/f", View::NOW), 5000);
    drop(client);
    machine.disk.crash(CrashKind::Process);
    machine.disk.restart();
    let mut client = machine.serve();
    client.open_session();
    assert_eq!((client.bytes_live("/f", View::NOW), client.bytes_live("/f", view(last))), (5000, CHUNK + 103));
}

#[test]
fn a_file_that_is_one_enormous_hole_is_looked_through_at_once() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let file = client.make("/f");
    let len = CHUNK * u64::from(u32::MAX);
    client.truncate("/f", len);
    assert_eq!(client.borders("/f", View::NOW), [0; 0]);
    assert_eq!(client.seek("/f", View::NOW, 5, false), Some(5));
    let last = u32::MAX - 1;
    client.grant("/f", last, 1);
    client.write(&file, Some(len - 10), b"the end").unwrap();
    assert_eq!(client.borders("/f", View::NOW), [len - 10, len - 3]);
    assert_eq!(client.seek("/f", View::NOW, len - 5, false), Some(len - 3));
    assert_eq!(client.bytes_live("/f", View::NOW), 7);
}

#[test]
fn what_was_punched_where_a_clone_had_been_cut_off_is_not_brought_back_by_an_undo_of_the_cut() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let original = client.make("/original");
    client.grant("/original", 0, 4);
    client.write(&original, Some(0), &pattern(4 * CHUNK as usize, 1)).unwrap();
    client.clone_tree("/original", 0, "/copy").unwrap();
    // One cuts the copy off, twice, and lets it grow again; another punches it out.
    let mut speakers = [client.new_session(), client.new_session()];
    let cutter = client.switch_session(&mut speakers, 1, 0);
    for len in [CHUNK / 2, 0, 4 * CHUNK] {
        client.truncate("/copy", len);
    }
    client.switch_session(&mut speakers, 0, 1);
    let copy = client.open("/copy").unwrap();
    let punched = client.punch(&copy, 10, 3 * CHUNK).unwrap();
    assert_eq!(punched.upto, 10 + 3 * CHUNK, "in one request");
    client.switch_session(&mut speakers, 1, 0);
    let after = client.stat("/original", View::NOW).unwrap().attr.born;
    let undo = frieze_wire::edit::Undo {
        target: Target::path("/copy"),
        sessions: vec![cutter.0],
        after,
        ..Default::default()
    };
    client.edit(Request::Undo(undo)).unwrap();
    let bytes = client.read("/copy", View::NOW).unwrap();
    let mut expect = pattern(4 * CHUNK as usize, 1);
    expect[10..10 + 3 * CHUNK as usize].fill(0);
    let differs = bytes.iter().zip(&expect).position(|(found, expected)| found != expected);
    assert_eq!((bytes.len(), differs), (expect.len(), None), "only what nobody punched comes back");
}

#[test]
fn live_bytes_are_those_that_lie_between_the_holes_also_where_they_are_shared_and_at_any_instant() {
    let mut rng = Rng::new(8);
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let mut files = vec!["/f0".to_owned()];
    client.make("/f0");
    let mut instants = Vec::new();
    for step in 0..120 {
        let path = rng.choose(&files).clone();
        machine.time.advance_us(10);
        match rng.below(6) {
            0 => {
                client.truncate(&path, rng.below(4 * CHUNK));
            }
            1 => {
                let file = client.open(&path).unwrap();
                client.punch(&file, rng.below(4 * CHUNK), rng.between(1, CHUNK)).unwrap();
            }
            2 if files.len() < 6 => {
                let copy = format!("/f{}", files.len());
                let at = if rng.chance(2) { 0 } else { *instants.last().unwrap_or(&0) };
                if client.clone_tree(&path, at, &copy).is_ok() {
                    files.push(copy);
                }
            }
            _ => {
                client.grant(&path, 0, 4);
                let file = client.open(&path).unwrap();
                let bytes = pattern(rng.between(1, 30_000) as usize, step);
                instants.push(client.write(&file, Some(rng.below(4 * CHUNK - 30_000)), &bytes).unwrap().0);
            }
        }
        let (first, last) = (instants.first().copied(), instants.last().copied());
        let at = *rng.choose(&[View::NOW, view(first.unwrap_or(0)), view(last.unwrap_or(0))]);
        let path = rng.choose(&files);
        if at.at == Some(0) || client.stat(path, at).is_err() {
            continue;
        }
        let borders = client.borders(path, at);
        // Each stretch of data begins at one border and ends at the next, the last perhaps at the end of the file.
        let size = client.stat(path, at).unwrap().attr.size;
        let data = borders.chunks(2).map(|ends| ends.get(1).copied().unwrap_or(size) - ends[0]);
        assert_eq!(client.bytes_live(path, at), data.sum::<u64>(), "{path} at {at:?}: {borders:?}");
    }
    assert!(files.len() > 3, "there are clones of clones");
}
