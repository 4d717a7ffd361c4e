//! Holes: punched, remembered, made durable, found, counted.

use frieze_base::{Fault, Reason, Rng};
use frieze_disk::CrashKind;
use frieze_wire::message::{Durability, Log, Open, Punch, PunchReply, Reply, Request, Seek, VersionKind, View};
use frieze_wire::txn::{Op, Remove, SetAttr, Settle, SettleAll, Target};

use crate::{Machine, Served, pattern};

/// Bytes of a chunk here.
const CHUNK: u64 = 64 << 10;

impl Served {
    fn punch_request(capability: &[u8], offset: u64, len: u64, durability: Durability) -> Request {
        Request::Punch(Punch { capability: capability.to_vec(), offset, len, durability: durability as i32 })
    }

    fn punch(&mut self, capability: &[u8], offset: u64, len: u64) -> Result<PunchReply, Fault> {
        self.seq += 1;
        let id = self.send(Self::punch_request(capability, offset, len, Durability::Async), &[], self.seq);
        match self.answer(id).expect("answered at once").0? {
            Reply::Punch(reply) => Ok(reply),
            other => panic!("{other:?}"),
        }
    }

    fn seek(&mut self, path: &str, view: View, offset: u64, data: bool) -> Option<u64> {
        let open = Open { target: Target::path(path), view, read: true, write: false, made_at: 0 };
        let Reply::Open(open) = self.ask(Request::Open(open)).unwrap() else { panic!("no open file") };
        match self.ask(Request::Seek(Seek { capability: open.capability, offset, data })) {
            Ok(Reply::Seek(found)) => Some(found),
            Err(fault) if fault.reason == Reason::NotFound => None,
            other => panic!("{other:?}"),
        }
    }

    /// Every border between data and hole.
    fn borders(&mut self, path: &str, view: View) -> Vec<u64> {
        let (mut found, mut at, mut data) = (Vec::new(), 0, true);
        while let Some(next) = self.seek(path, view, at, data) {
            found.push(next);
            (at, data) = (next, !data);
        }
        found
    }

    fn live(&mut self, path: &str, view: View) -> u64 {
        self.stat(path, view).unwrap().attr.bytes_live
    }

    fn truncate(&mut self, path: &str, len: u64) {
        let op = SetAttr { target: Target::path(path), size: Some(len), ..SetAttr::default() };
        self.txn(Op::SetAttr(op)).unwrap();
    }

    pub(crate) fn grant(&mut self, path: &str, first: u32, count: u32) {
        let inode = self.stat(path, View::NOW).unwrap().attr.inode;
        self.txn(Op::Grant(frieze_wire::txn::Grant { inode, first, count })).unwrap();
    }
}

fn view(at: u64) -> View {
    View { at: Some(at), user_at: None }
}

#[test]
fn a_hole_over_several_chunks_is_one_stamp_and_the_bytes_before_it_stay_readable() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let file = served.make("/f");
    served.grant("/f", 0, 4);
    let bytes = pattern(4 * CHUNK as usize, 1);
    let (written, _) = served.write(&file, Some(0), &bytes).unwrap();
    let before = served.stat("/f", View::NOW).unwrap().attr;
    machine.time.advance_us(10);
    let hole = served.punch(&file, 1000, 3 * CHUNK).unwrap();
    assert_eq!(hole.upto, 1000 + 3 * CHUNK);

    let mut expected = bytes.clone();
    expected[1000..1000 + 3 * CHUNK as usize].fill(0);
    assert!(served.read("/f", View::NOW).unwrap() == expected);
    assert!(served.at("/f", hole.stamp).unwrap() == expected);
    assert!(served.at("/f", hole.stamp - 1).unwrap() == bytes);
    assert!(served.at("/f", written).unwrap() == bytes);
    let after = served.stat("/f", View::NOW).unwrap().attr;
    assert_eq!((after.size, after.bytes_live), (4 * CHUNK, CHUNK));
    assert!(after.mtime_ns > before.mtime_ns && after.ctime_ns > before.ctime_ns && after.changed == hole.stamp);
    assert_eq!(served.borders("/f", View::NOW), [0, 1000, 1000 + 3 * CHUNK, 4 * CHUNK]);
    assert_eq!(served.borders("/f", view(written)), [0, 4 * CHUNK]);
    assert_eq!(served.live("/f", view(written)), 4 * CHUNK);

    let log =
        Log { target: Target::path("/f"), view: View::NOW, after: written, count_max: 0, upto: 0, ..Log::default() };
    let Reply::Log(log) = served.ask(Request::Log(log)).unwrap() else { panic!("no log") };
    let lines: Vec<_> = log.versions.iter().map(|line| (line.kind(), line.stamp, line.offset, line.len)).collect();
    assert_eq!(lines, [(VersionKind::Punch, hole.stamp, 1000, 3 * CHUNK)]);
}

#[test]
fn a_hole_extends_nothing_and_needs_no_length() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let file = served.make("/f");
    served.write(&file, Some(0), b"abc").unwrap();
    let far = served.punch(&file, 1 << 40, 1 << 40).unwrap();
    assert_eq!(far.upto, 2 << 40);
    let whole = served.punch(&file, 1, 1 << 60).unwrap();
    assert_eq!(whole.upto, CHUNK * u64::from(u32::MAX), "as far as a file can reach");
    assert_eq!(served.read("/f", View::NOW).unwrap(), b"a\0\0");
    assert_eq!(served.live("/f", View::NOW), 1);
    assert_eq!(served.punch(&file, 5, 0).unwrap_err().reason, Reason::InvalidArgument);
    assert_eq!(served.punch(&file, u64::MAX, 1).unwrap_err().reason, Reason::TooLarge);
    served.write(&file, Some(2), b"z").unwrap();
    assert_eq!(served.read("/f", View::NOW).unwrap(), b"a\0z");
}

#[test]
fn a_hole_over_more_chunks_than_one_request_reaches_says_how_far_it_came() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let file = served.make("/f");
    // Every other chunk of 400, so that no two are neighbours.
    for chunk in (0..400).step_by(2) {
        served.grant("/f", chunk, 1);
        served.write(&file, Some(u64::from(chunk) * CHUNK), b"x").unwrap();
    }
    let end = 399 * CHUNK;
    let first = served.punch(&file, 0, end).unwrap();
    assert_eq!(first.upto, 2 * 128 * CHUNK, "128 chunks that hold data, and the holes between them");
    assert_eq!(served.live("/f", View::NOW), 200 - 128);
    let second = served.punch(&file, first.upto, end - first.upto).unwrap();
    assert_eq!((second.upto, served.live("/f", View::NOW)), (end, 0));
    assert_eq!(served.seek("/f", View::NOW, 0, true), None);
}

#[test]
fn punching_needs_a_file_open_for_writing_and_gets_its_own_grants() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let file = served.make("/f");
    served.grant("/f", 0, 3);
    served.write(&file, Some(0), &pattern(3 * CHUNK as usize, 1)).unwrap();
    let inode = served.stat("/f", View::NOW).unwrap().attr.inode;
    served.txn(Op::Settle(Settle { inode, ..Settle::default() })).unwrap();
    // Nothing is granted any more; the right was proven at open.
    served.punch(&file, CHUNK, CHUNK).unwrap();
    assert_eq!(served.live("/f", View::NOW), 2 * CHUNK);
    assert_eq!(served.stat("/f", View::NOW).unwrap().attr.size, 3 * CHUNK);

    let open = Open { target: Target::path("/f"), view: View::NOW, read: true, write: false, made_at: 0 };
    let Reply::Open(reader) = served.ask(Request::Open(open.clone())).unwrap() else { panic!("no open file") };
    assert_eq!(served.punch(&reader.capability, 0, 1).unwrap_err().reason, Reason::AccessDenied);
    let now = served.punch(&file, 0, 1).unwrap().stamp;
    let Reply::Open(past) = served.ask(Request::Open(Open { view: view(now), ..open })).unwrap() else { panic!() };
    assert_eq!(served.punch(&past.capability, 0, 1).unwrap_err().reason, Reason::ReadOnly);
}

#[test]
fn files_closed_together_are_settled_to_what_they_hold_and_what_is_gone_is_passed_over() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let paths = ["/a", "/b", "/gone"];
    let (mut files, mut handles) = (Vec::new(), Vec::new());
    for (at, path) in paths.into_iter().enumerate() {
        let file = served.make(path);
        served.grant(path, 0, 1);
        served.write(&file, Some(0), &pattern(100 * (at + 1), 1)).unwrap();
        let inode = served.stat(path, View::NOW).unwrap().attr.inode;
        files.push(Settle { inode, ..Settle::default() });
        handles.push(file);
    }
    files.push(Settle { inode: 12_345, ..Settle::default() });
    served.txn(Op::Remove(Remove { target: Target::path("/gone"), directory: false })).unwrap();
    served.txn(Op::SettleAll(SettleAll { files: files.clone() })).unwrap();
    let sizes = ["/a", "/b"].map(|path| served.stat(path, View::NOW).unwrap().attr.size);
    assert_eq!(sizes, [100, 200]);
    assert!(served.write(&handles[0], Some(0), b"x").is_err(), "the right to write is given back");
    let many = SettleAll { files: vec![Settle::default(); 257] };
    assert_eq!(served.txn(Op::SettleAll(many)).unwrap_err().reason, Reason::TooLarge);
}

#[test]
fn a_punch_that_is_sent_again_runs_once_also_after_a_restart() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let file = served.make("/f");
    served.write(&file, Some(0), b"first").unwrap();
    let punch = || Served::punch_request(&file, 0, 5, Durability::Async);
    let first = served.send(punch(), &[], 50);
    let first = served.answer(first).unwrap().0.unwrap();
    served.seq = 50;
    served.write(&file, Some(0), b"second").unwrap();
    let again = served.send(punch(), &[], 50);
    assert_eq!(served.answer(again).unwrap().0.unwrap(), first);
    let session = served.session;
    drop(served);
    let mut served = machine.serve();
    served.session = session;
    let late = served.send(punch(), &[], 50);
    assert_eq!(served.answer(late).unwrap().0.unwrap(), first);
    assert_eq!(served.read("/f", View::NOW).unwrap(), b"second");
}

#[test]
fn a_sync_punch_is_answered_by_the_flush_and_survives_the_power() {
    let mut machine = Machine::new();
    let mut served = machine.serve();
    let file = served.make("/f");
    served.write(&file, Some(0), &pattern(3000, 3)).unwrap();
    served.seq += 1;
    let punch = Served::punch_request(&file, 1000, 1000, Durability::Sync);
    let id = served.send(punch, &[], served.seq);
    assert!(served.answer(id).is_none(), "not before it is on disk");
    served.engine.planes.flush().unwrap();
    let Some((Ok(Reply::Punch(reply)), _)) = served.answer(id) else { panic!("not answered by the flush") };
    drop(served);
    machine.lose_power();
    let mut served = machine.serve();
    let mut expected = pattern(3000, 3);
    expected[1000..2000].fill(0);
    assert!(served.read("/f", View::NOW).unwrap() == expected);
    assert!(served.at("/f", reply.stamp - 1).unwrap() == pattern(3000, 3));
}

#[test]
fn live_bytes_are_exact_behind_truncates_and_in_the_past() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let file = served.make("/f");
    served.grant("/f", 0, 4);
    let (full, _) = served.write(&file, Some(0), &pattern(4 * CHUNK as usize, 1)).unwrap();
    served.truncate("/f", CHUNK + 100);
    assert_eq!(served.live("/f", View::NOW), CHUNK + 100);
    served.truncate("/f", 4 * CHUNK);
    assert_eq!(served.live("/f", View::NOW), CHUNK + 100, "what grew is a hole");
    served.grant("/f", 0, 4);
    let (last, _) = served.write(&file, Some(3 * CHUNK), b"far").unwrap();
    assert_eq!(served.live("/f", View::NOW), CHUNK + 103);
    assert_eq!(served.borders("/f", View::NOW), [0, CHUNK + 100, 3 * CHUNK, 3 * CHUNK + 3]);
    assert_eq!(served.live("/f", view(full)), 4 * CHUNK);
    assert_eq!(served.live("/f", view(last - 1)), CHUNK + 100);
    // Written anew from the start: what was there before does not count twice.
    served.truncate("/f", 0);
    assert_eq!(served.live("/f", View::NOW), 0);
    served.grant("/f", 0, 1);
    served.write(&file, Some(0), &pattern(5000, 2)).unwrap();
    assert_eq!(served.live("/f", View::NOW), 5000);
    drop(served);
    machine.disk.crash(CrashKind::Process);
    machine.disk.restart();
    let mut served = machine.serve();
    served.open_session();
    assert_eq!((served.live("/f", View::NOW), served.live("/f", view(last))), (5000, CHUNK + 103));
}

#[test]
fn a_file_that_is_one_enormous_hole_is_looked_through_at_once() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let file = served.make("/f");
    let len = CHUNK * u64::from(u32::MAX);
    served.truncate("/f", len);
    assert_eq!(served.borders("/f", View::NOW), [0; 0]);
    assert_eq!(served.seek("/f", View::NOW, 5, false), Some(5));
    let last = u32::MAX - 1;
    served.grant("/f", last, 1);
    served.write(&file, Some(len - 10), b"the end").unwrap();
    assert_eq!(served.borders("/f", View::NOW), [len - 10, len - 3]);
    assert_eq!(served.seek("/f", View::NOW, len - 5, false), Some(len - 3));
    assert_eq!(served.live("/f", View::NOW), 7);
}

#[test]
fn what_was_punched_where_a_clone_had_been_cut_off_is_not_brought_back_by_an_undo_of_the_cut() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let original = served.make("/original");
    served.grant("/original", 0, 4);
    served.write(&original, Some(0), &pattern(4 * CHUNK as usize, 1)).unwrap();
    served.clone_tree("/original", 0, "/copy").unwrap();
    // One cuts the copy off, twice, and lets it grow again; another punches it out.
    let mut speakers = [served.speaker(), served.speaker()];
    let cutter = served.cast(&mut speakers, 1, 0);
    for len in [CHUNK / 2, 0, 4 * CHUNK] {
        served.truncate("/copy", len);
    }
    served.cast(&mut speakers, 0, 1);
    let copy = served.open("/copy").unwrap();
    let punched = served.punch(&copy, 10, 3 * CHUNK).unwrap();
    assert_eq!(punched.upto, 10 + 3 * CHUNK, "in one request");
    served.cast(&mut speakers, 1, 0);
    let after = served.stat("/original", View::NOW).unwrap().attr.born;
    let undo = frieze_wire::edit::Undo {
        target: Target::path("/copy"),
        sessions: vec![cutter.0],
        after,
        ..Default::default()
    };
    served.edit(Request::Undo(undo)).unwrap();
    let bytes = served.read("/copy", View::NOW).unwrap();
    let mut expect = pattern(4 * CHUNK as usize, 1);
    expect[10..10 + 3 * CHUNK as usize].fill(0);
    let differs = bytes.iter().zip(&expect).position(|(found, expected)| found != expected);
    assert_eq!((bytes.len(), differs), (expect.len(), None), "only what nobody punched comes back");
}

#[test]
fn live_bytes_are_those_that_lie_between_the_holes_also_where_they_are_shared_and_at_any_instant() {
    let mut rng = Rng::new(8);
    let machine = Machine::new();
    let mut served = machine.serve();
    let mut files = vec!["/f0".to_owned()];
    served.make("/f0");
    let mut instants = Vec::new();
    for step in 0..120 {
        let path = rng.choose(&files).clone();
        machine.time.advance_us(10);
        match rng.below(6) {
            0 => served.truncate(&path, rng.below(4 * CHUNK)),
            1 => {
                let file = served.open(&path).unwrap();
                served.punch(&file, rng.below(4 * CHUNK), rng.between(1, CHUNK)).unwrap();
            }
            2 if files.len() < 6 => {
                let copy = format!("/f{}", files.len());
                let at = if rng.chance(2) { 0 } else { *instants.last().unwrap_or(&0) };
                if served.clone_tree(&path, at, &copy).is_ok() {
                    files.push(copy);
                }
            }
            _ => {
                served.grant(&path, 0, 4);
                let file = served.open(&path).unwrap();
                let bytes = pattern(rng.between(1, 30_000) as usize, step);
                instants.push(served.write(&file, Some(rng.below(4 * CHUNK - 30_000)), &bytes).unwrap().0);
            }
        }
        let (first, last) = (instants.first().copied(), instants.last().copied());
        let at = *rng.choose(&[View::NOW, view(first.unwrap_or(0)), view(last.unwrap_or(0))]);
        let path = rng.choose(&files);
        if at.at == Some(0) || served.stat(path, at).is_err() {
            continue;
        }
        let borders = served.borders(path, at);
        // Each stretch of data begins at one border and ends at the next, the last perhaps at the end of the file.
        let size = served.stat(path, at).unwrap().attr.size;
        let data = borders.chunks(2).map(|ends| ends.get(1).copied().unwrap_or(size) - ends[0]);
        assert_eq!(served.live(path, at), data.sum::<u64>(), "{path} at {at:?}: {borders:?}");
    }
    assert!(files.len() > 3, "there are clones of clones");
}
