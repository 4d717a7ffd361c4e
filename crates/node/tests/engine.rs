//! The engine over a simulated disk and clock, asked as a connection asks it, without threads or sockets.

#![expect(clippy::unwrap_used, reason = "a test may stop where something is not as it says")]

#[path = "engine/anew.rs"]
mod anew;
#[path = "engine/edges.rs"]
mod edges;
#[path = "engine/ended.rs"]
mod ended;
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
#[path = "engine/metamorphic.rs"]
mod metamorphic;
#[path = "engine/past_cost.rs"]
mod past_cost;
#[path = "engine/power.rs"]
mod power;
#[path = "engine/races.rs"]
mod races;
#[path = "engine/removing.rs"]
mod removing;
#[path = "engine/rows.rs"]
mod rows;
#[path = "engine/scrub.rs"]
mod scrub;
#[path = "engine/snapshots.rs"]
mod snapshots;
#[path = "engine/streams.rs"]
mod streams;
#[path = "engine/together.rs"]
mod together;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use frieze_base::{Fault, InodeId, Reason, Seq, SessionId, crc32c};
use frieze_disk::{CrashKind, Disk, SimDisk, SimTime};
use frieze_node::{
    Conn, MemoryStore, ProcessStats, Responder, Scratch, Seams, ServerParts, Settings, VersionStore, no_wake,
};
use frieze_wire::frame::{FrameHeader, FrameKind};
use frieze_wire::message::{
    Durability, GetXattr, Hello, List, Log, Open, Read, Reply, Request, RequestBody, Stat, Status, Sync, Txn, View,
    Write,
};
use frieze_wire::txn::{
    Caller, CloseSession, Make, MakeKind, Op, OpenSession, Remove, Rename, SetAttr, SetXattr, Target,
};
use frieze_wire::writers::{FileWriter, WRITERS_XATTR, parse_writers};

#[path = "engine/sharing.rs"]
mod sharing;
#[path = "engine/shelves.rs"]
mod shelves;
#[path = "engine/steps.rs"]
mod steps;
#[path = "engine/tiers.rs"]
mod tiers;
#[path = "engine/told.rs"]
mod told;
#[path = "engine/versions.rs"]
mod versions;

/// An answer and its payload.
type Answer = (Result<Reply, Fault>, Vec<u8>);

/// Keeps answers by request id.
#[derive(Default)]
struct Answers(Mutex<BTreeMap<u64, Answer>>);

impl Responder for Answers {
    fn respond(&self, request: &FrameHeader, result: Result<Reply, Fault>, payload: &[u8], payload_crc: u32) {
        if !payload.is_empty() {
            assert_eq!(payload_crc, crc32c(payload), "the checksum that goes out is that of the bytes");
        }
        let before = self.0.lock().unwrap().insert(request.request_id, (result, payload.to_vec()));
        assert!(before.is_none(), "request {} was answered twice", request.request_id);
    }
}

/// One machine: what outlives its server.
struct Machine {
    disk: SimDisk,
    time: SimTime,
    store: MemoryStore,
    boot: u32,
    settings: Settings,
}

/// A server on it and a connection to that.
struct Served {
    engine: Arc<ServerParts>,
    conn: Conn,
    answers: Arc<Answers>,
    next: u64,
    session: SessionId,
    seq: u64,
}

impl Machine {
    fn new() -> Machine {
        let settings = Settings {
            dir: "simulated".into(),
            segment_bytes: 8 << 20,
            chunk_bytes: 64 << 10,
            chain_count: 3,
            reserve_bytes: 1 << 20,
            root_mode: Some(0o1777),
            ..Settings::default()
        };
        let disk = SimDisk::new(7);
        Machine { disk, time: SimTime::new(1_700_000_000_000_000), store: MemoryStore::default(), boot: 1, settings }
    }

    fn try_serve(&self) -> Result<ServerParts, Fault> {
        self.open(Box::new(self.store.clone()))
    }

    fn open(&self, store: Box<dyn VersionStore>) -> Result<ServerParts, Fault> {
        self.open_on(Arc::new(self.disk.clone()), store)
    }

    fn open_on(&self, disk: Arc<dyn Disk>, store: Box<dyn VersionStore>) -> Result<ServerParts, Fault> {
        let seams = Seams {
            disk,
            time: Arc::new(self.time.clone()),
            store,
            boot: format!("boot {}", self.boot),
            entropy: [9; 64],
            wake: no_wake(),
            process: Box::new(ProcessStats::default),
            keys: BTreeMap::new(),
            owner: Caller::root(),
        };
        ServerParts::open(self.settings.clone(), seams)
    }

    fn serve(&self) -> Served {
        self.serve_as(Caller::root())
    }

    fn serve_as(&self, caller: Caller) -> Served {
        self.connect(Arc::new(self.try_serve().expect("opens")), caller)
    }

    fn connect(&self, engine: Arc<ServerParts>, caller: Caller) -> Served {
        self.time.advance_us(engine.restart_wait_us());
        let conn = Conn::new(Some(caller), [3; 32]);
        let mut served = Served { engine, conn, answers: Arc::default(), next: 1, session: SessionId(0), seq: 0 };
        served.ask(Request::Hello(Hello::default())).expect("greets");
        served
    }

    fn lose_power(&mut self) {
        self.disk.crash(CrashKind::Power);
        self.disk.restart();
        self.store.lose_power();
        self.boot += 1;
    }
}

impl Served {
    fn send(&mut self, request: Request, payload: &[u8], seq: u64) -> u64 {
        let id = self.next;
        self.next += 1;
        let header = FrameHeader {
            request_id: id,
            session: self.session,
            seq: Seq(seq),
            payload_len: payload.len() as u32,
            payload_crc: crc32c(payload),
            ..FrameHeader::of(FrameKind::Request)
        };
        let body = RequestBody { caller: None, request: Some(request) };
        let responder: Arc<dyn Responder> = self.answers.clone();
        self.engine.handle(&self.conn, &header, body, payload.into(), &responder, &mut Scratch::default());
        id
    }

    fn answer(&self, id: u64) -> Option<Answer> {
        self.answers.0.lock().unwrap().remove(&id)
    }

    fn ask(&mut self, request: Request) -> Result<Reply, Fault> {
        let id = self.send(request, &[], 0);
        self.answer(id).expect("answered at once").0
    }

    fn open_session(&mut self) {
        if self.session != SessionId(0) {
            return;
        }
        let open = Op::OpenSession(OpenSession { command: "test".into(), host: "here".into(), uid: 0, keeps: false });
        let id = self.send(Request::Txn(Txn { durability: 0, op: Some(open) }), &[], 0);
        let Some((Ok(Reply::Txn(reply)), _)) = self.answer(id) else { panic!("no session") };
        self.session = SessionId(reply.id);
    }

    fn txn(&mut self, op: Op) -> Result<frieze_wire::message::TxnReply, Fault> {
        self.open_session();
        self.seq += 1;
        let id = self.send(Request::Txn(Txn { durability: 0, op: Some(op) }), &[], self.seq);
        match self.answer(id).expect("answered at once").0? {
            Reply::Txn(reply) => Ok(reply),
            other => panic!("{other:?}"),
        }
    }

    /// Makes a file and returns its capability.
    fn make(&mut self, path: &str) -> Vec<u8> {
        let make = Make {
            target: Target::path(path),
            mode: 0o644,
            or_open: false,
            kind: Some(MakeKind::File(true)),
            ..Make::default()
        };
        self.txn(Op::Make(make)).expect("makes").capability
    }

    fn mkdir(&mut self, path: &str) {
        let kind = Some(MakeKind::Directory(true));
        let make = Make { target: Target::path(path), mode: 0o755, or_open: false, kind, ..Make::default() };
        self.txn(Op::Make(make)).expect("makes");
    }

    fn write_request(capability: &[u8], offset: Option<u64>, durability: Durability) -> Request {
        Request::Write(Write {
            capability: capability.to_vec(),
            offset: offset.unwrap_or(0),
            append: offset.is_none(),
            durability: durability as i32,
            uid: 0,
        })
    }

    /// Writes and returns the stamp and offset.
    fn write(&mut self, capability: &[u8], offset: Option<u64>, bytes: &[u8]) -> Result<(u64, u64), Fault> {
        self.seq += 1;
        let id = self.send(Self::write_request(capability, offset, Durability::Async), bytes, self.seq);
        match self.answer(id).expect("answered at once").0? {
            Reply::Write(reply) => Ok((reply.stamp, reply.offset)),
            other => panic!("{other:?}"),
        }
    }

    fn read(&mut self, path: &str, view: View) -> Result<Vec<u8>, Fault> {
        self.open_session();
        let open = Open { target: Target::path(path), view, read: true, write: false, made_at: 0 };
        let Reply::Open(open) = self.ask(Request::Open(open))? else { panic!("no open file") };
        let read = Read { capability: open.capability, offset: 0, len: 1 << 20, in_steps: false, ..Read::default() };
        let id = self.send(Request::Read(read), &[], 0);
        let (reply, payload) = self.answer(id).expect("answered at once");
        reply.map(|_| payload)
    }

    fn at(&mut self, path: &str, stamp: u64) -> Result<Vec<u8>, Fault> {
        self.read(path, View { at: Some(stamp), user_at: None })
    }

    fn stat(&mut self, path: &str, view: View) -> Result<frieze_wire::message::StatReply, Fault> {
        match self.ask(Request::Stat(Stat { target: Target::path(path), view, ..Stat::default() }))? {
            Reply::Stat(reply) => Ok(reply),
            other => panic!("{other:?}"),
        }
    }

    fn fsync(&mut self) {
        let id = self.send(Request::Sync(Sync { inode: 0 }), &[], 0);
        assert!(self.answer(id).is_none(), "a barrier is answered when everything is durable, not before");
        self.engine.planes.flush().expect("flushes");
        self.answer(id).expect("answered by the flush").0.expect("durable");
    }
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

#[test]
fn every_version_stays_readable_through_overwrite_truncate_rename_and_delete() {
    let machine = Machine::new();
    let mut served = machine.serve();
    served.mkdir("/d");
    let file = served.make("/d/f");
    let (one, _) = served.write(&file, Some(0), b"first").unwrap();
    let (two, _) = served.write(&file, Some(2), b"RST!!").unwrap();
    let cut = SetAttr { target: Target::path("/d/f"), size: Some(3), ..SetAttr::default() };
    let three = served.txn(Op::SetAttr(cut)).unwrap().stamp;
    let (four, offset) = served.write(&file, None, b"tail").unwrap();
    assert_eq!(offset, 3);
    let rename = Rename { from: Target::path("/d"), to: Target::path("/e"), flags: 0 };
    let five = served.txn(Op::Rename(rename)).unwrap().stamp;
    let remove = Remove { target: Target::path("/e/f"), directory: false };
    let six = served.txn(Op::Remove(remove)).unwrap().stamp;
    let look = |served: &mut Served| {
        assert_eq!(served.at("/d/f", one).unwrap(), b"first");
        assert_eq!(served.at("/d/f", two - 1).unwrap(), b"first");
        assert_eq!(served.at("/d/f", two).unwrap(), b"fiRST!!");
        assert_eq!(served.at("/d/f", three).unwrap(), b"fiR");
        assert_eq!(served.at("/d/f", four).unwrap(), b"fiRtail");
        assert_eq!(served.at("/e/f", five).unwrap(), b"fiRtail");
        assert_eq!(served.at("/d/f", five).unwrap_err().reason, Reason::NotFound);
        assert_eq!(served.at("/e/f", six).unwrap_err().reason, Reason::NotFound);
        assert_eq!(served.stat("/d/f", View { at: Some(three), user_at: None }).unwrap().attr.size, 3);
    };
    look(&mut served);
    served.engine.stop().expect("stops");
    let mut served = machine.serve();
    look(&mut served);
}

#[test]
fn a_write_over_several_chunks_is_one_stamp_and_reads_back_whole() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let file = served.make("/f");
    served.write(&file, Some(0), &pattern(10, 1)).unwrap();
    let grant = frieze_wire::txn::Grant { inode: served.stat("/f", View::NOW).unwrap().attr.inode, first: 0, count: 8 };
    served.txn(Op::Grant(grant)).unwrap();
    // 200,000 bytes from 50,000: chunks of 65,536 bytes 0 to 3, on three chains.
    let bytes = pattern(200_000, 2);
    let (stamp, _) = served.write(&file, Some(50_000), &bytes).unwrap();
    assert_eq!(served.at("/f", stamp - 1).unwrap().len(), 10);
    let all = served.at("/f", stamp).unwrap();
    assert_eq!(all.len(), 250_000);
    assert!(all[10..50_000].iter().all(|byte| *byte == 0), "a hole reads as zeros");
    assert_eq!(all[50_000..], bytes[..]);
    let log =
        Log { target: Target::path("/f"), view: View::NOW, after: stamp - 1, count_max: 0, upto: 0, ..Log::default() };
    let Ok(Reply::Log(log)) = served.ask(Request::Log(log)) else { panic!("no log") };
    let lens: Vec<u64> = log.versions.iter().filter(|v| v.stamp == stamp).map(|v| v.len).collect();
    assert_eq!(lens, [200_000], "its parts are one version");
}

#[test]
fn a_write_without_a_grant_or_with_a_damaged_payload_is_refused() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let file = served.make("/f");
    assert_eq!(served.write(&file, Some(1 << 20), b"x").unwrap_err().reason, Reason::Busy);
    let id = served.next;
    served.next += 1;
    let header = FrameHeader {
        request_id: id,
        session: served.session,
        seq: Seq(99),
        payload_crc: 1,
        ..FrameHeader::of(FrameKind::Request)
    };
    let request = Served::write_request(&file, Some(0), Durability::Async);
    let body = RequestBody { caller: None, request: Some(request) };
    let responder: Arc<dyn Responder> = served.answers.clone();
    served.engine.handle(&served.conn, &header, body, b"bytes"[..].into(), &responder, &mut Scratch::default());
    assert_eq!(served.answer(id).unwrap().0.unwrap_err().reason, Reason::BadFrame);
    assert_eq!(served.read("/f", View::NOW).unwrap(), b"");
}

#[test]
fn a_retry_runs_once_also_after_a_restart() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let file = served.make("/f");
    let append = || Served::write_request(&file, None, Durability::Async);
    let first = served.send(append(), b"once", 50);
    let again = served.send(append(), b"once", 50);
    let stamps: Vec<_> = [first, again].map(|id| served.answer(id).unwrap().0.unwrap()).into();
    assert_eq!(stamps[0], stamps[1]);
    let session = served.session;
    drop(served);
    let mut served = machine.serve();
    served.session = session;
    let late = served.send(append(), b"once", 50);
    assert_eq!(served.answer(late).unwrap().0.unwrap(), stamps[0]);
    assert_eq!(served.read("/f", View::NOW).unwrap(), b"once");
}

#[test]
fn a_sync_write_is_answered_by_the_flush_and_survives_the_power() {
    let mut machine = Machine::new();
    let mut served = machine.serve();
    let file = served.make("/f");
    served.fsync();
    let id = served.send(Served::write_request(&file, Some(0), Durability::Sync), b"kept", 70);
    assert!(served.answer(id).is_none(), "not durable yet");
    assert_eq!(served.read("/f", View::NOW).unwrap(), b"", "what is not committed is not shown");
    served.engine.planes.flush().unwrap();
    served.answer(id).expect("answered by the flush").0.expect("written");
    drop(served);
    machine.lose_power();
    let mut served = machine.serve();
    assert_eq!(served.read("/f", View::NOW).unwrap(), b"kept");
}

#[test]
fn losing_the_power_leaves_a_gap_that_answers_mention() {
    let mut machine = Machine::new();
    let mut served = machine.serve();
    let file = served.make("/f");
    let (kept, _) = served.write(&file, Some(0), b"kept").unwrap();
    served.fsync();
    machine.time.advance_us(3_000_000);
    served.write(&file, Some(0), b"may be lost").unwrap();
    drop(served);
    machine.lose_power();
    let mut served = machine.serve();
    assert_eq!(served.at("/f", kept).unwrap(), b"kept");
    let Ok(Reply::Status(status)) = served.ask(Request::Status(Status {})) else { panic!("no status") };
    let gap = status.gaps.first().expect("a gap is remembered");
    assert!(gap.from >= kept || gap.from == status.last_whole);
    let inside = View { at: Some(gap.to - 1), user_at: None };
    assert!(served.stat("/", inside).unwrap().answered.incomplete);
    let before = View { at: Some(gap.from), user_at: None };
    assert!(!served.stat("/", before).is_ok_and(|reply| reply.answered.incomplete));
}

#[test]
fn a_killed_process_loses_nothing_that_was_acknowledged() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let file = served.make("/f");
    let (stamp, _) = served.write(&file, Some(0), b"acknowledged").unwrap();
    drop(served);
    machine.disk.crash(CrashKind::Process);
    machine.disk.restart();
    let mut served = machine.serve();
    assert_eq!(served.read("/f", View::NOW).unwrap(), b"acknowledged");
    assert_eq!(served.at("/f", stamp - 1).unwrap(), b"");
    let Ok(Reply::Status(status)) = served.ask(Request::Status(Status {})) else { panic!("no status") };
    assert!(status.gaps.is_empty(), "the page cache survived: nothing is missing");
}

#[test]
fn instants_outside_of_history_are_refused_with_words() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let early = served.at("/", 4096).unwrap_err();
    assert_eq!(early.reason, Reason::HistoryExpired);
    assert!(early.message.contains("before the earliest instant"), "{early}");
    let late = served.stat("/", View { at: Some(u64::MAX >> 1), user_at: None }).unwrap_err();
    assert_eq!(late.reason, Reason::Future);
}

#[test]
fn user_time_cuts_each_file_at_its_last_record_up_to_it() {
    let machine = Machine::new();
    let mut served = machine.serve();
    served.mkdir("/s");
    let bind = |value: &str| {
        Op::SetXattr(SetXattr {
            target: Target::path("/s"),
            name: b"user.frieze.time".to_vec(),
            value: value.as_bytes().to_vec(),
            flags: 0,
        })
    };
    assert_eq!(served.txn(bind("binary:width=3")).unwrap_err().reason, Reason::InvalidArgument);
    served.txn(bind("binary:unit=ns")).unwrap();
    let file = served.make("/s/f");
    let record = |time: u64, tail: &[u8]| [&time.to_le_bytes()[..], tail].concat();
    for (time, tail) in [(100, b"a"), (200, b"b"), (200, b"c"), (300, b"d")] {
        served.write(&file, None, &record(time, tail)).unwrap();
    }
    let backward = served.write(&file, None, &record(250, b"x")).unwrap_err();
    assert_eq!(backward.reason, Reason::BackwardUserTime);
    assert!(served.write(&file, None, b"short").unwrap_err().message.contains("no time field"));
    let mut cut = |user: i64| served.read("/s/f", View { at: None, user_at: Some(user) }).map(|bytes| bytes.len());
    assert_eq!(cut(99), Ok(0), "before the first user time the file is empty");
    assert_eq!([cut(100), cut(199)], [Ok(9), Ok(9)]);
    assert_eq!([cut(200), cut(250)], [Ok(27), Ok(27)], "all records of an equal user time");
    assert_eq!(cut(300), Ok(36));
    let open = |served: &mut Served, user| {
        served.stat("/s/f", View { at: None, user_at: Some(user) }).unwrap().answered.user_time_open
    };
    assert!(open(&mut served, 300) && !open(&mut served, 250));
    served.make("/plain");
    let none = served.read("/plain", View { at: None, user_at: Some(5) }).unwrap_err();
    assert_eq!(none.reason, Reason::NoUserTime);
}

#[test]
fn rights_are_those_of_the_proven_user_and_sessions_are_their_owners() {
    let machine = Machine::new();
    let mut root = machine.serve();
    let file = root.make("/secret");
    let mode = SetAttr { target: Target::path("/secret"), mode: Some(0o600), ..SetAttr::default() };
    root.txn(Op::SetAttr(mode)).unwrap();
    root.write(&file, Some(0), b"secret").unwrap();
    let session = root.session;
    let somebody = Conn::new(Some(Caller { uid: 1000, gid: 1000, groups: vec![] }), [4; 32]);
    root.conn = somebody;
    root.session = SessionId(0);
    root.ask(Request::Hello(Hello::default())).unwrap();
    root.seq = 0;
    root.mkdir("/mine");
    assert_eq!(root.read("/secret", View::NOW).unwrap_err().reason, Reason::AccessDenied);
    // With the other's session and capability: not without being its owner.
    root.session = session;
    let stolen = Read { capability: file, offset: 0, len: 10, in_steps: false, ..Read::default() };
    let id = root.send(Request::Read(stolen), &[], 0);
    assert_eq!(root.answer(id).unwrap().0.unwrap_err().reason, Reason::UnknownSession);
}

#[test]
fn who_writes_a_file_is_told_to_who_may_read_or_write_it_until_its_session_has_ended() {
    let machine = Machine::new();
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
    let mut other = machine.connect(writer.engine.clone(), Caller { uid: 1000, gid: 1000, groups: vec![] });
    let writers = told(other.ask(asks("/f", None))).unwrap();
    let session = writer.session;
    // What it calls itself is its own user's to know.
    assert_eq!(writers, [FileWriter { session, uid: 0, host: String::new(), command: String::new() }]);
    let own = told(writer.ask(asks("/f", None))).unwrap();
    assert_eq!(own, [FileWriter { session, uid: 0, host: "here".to_owned(), command: "test".to_owned() }]);
    let now = writer.engine.planes.newest().0;
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
    let mut machine = Machine::new();
    machine.disk = SimDisk::with_capacity(7, 96 << 20);
    let mut served = machine.serve();
    let file = served.make("/f");
    let id = InodeId(served.stat("/f", View::NOW).unwrap().attr.inode);
    let mut offset = 0;
    let full = loop {
        let first = (offset >> 16) as u32;
        served.txn(Op::Grant(frieze_wire::txn::Grant { inode: id.0, first, count: 16 })).unwrap();
        match served.write(&file, Some(offset), &pattern(1 << 20, 5)) {
            Ok(_) => offset += 1 << 20,
            Err(fault) => break fault,
        }
        served.engine.planes.flush().expect("flushes");
        assert!(offset < 200 << 20, "the disk never filled");
    };
    assert_eq!(full.reason, Reason::NoSpace);
    assert!(full.message.contains("no space for data"), "{full}");
    let cut = SetAttr { target: Target::path("/f"), size: Some(5), ..SetAttr::default() };
    served.txn(Op::SetAttr(cut)).expect("truncates");
    served.txn(Op::Remove(Remove { target: Target::path("/f"), directory: false })).expect("removes");
    served.engine.planes.flush().expect("flushes");
    assert!(matches!(served.ask(Request::Status(Status {})), Ok(Reply::Status(_))));
    drop(served);
    let mut served = machine.serve();
    let list = List { target: Target::path("/"), view: View::NOW, ..List::default() };
    let Ok(Reply::List(list)) = served.ask(Request::List(list)) else { panic!("no listing") };
    assert!(list.entries.is_empty());
}

#[test]
fn a_flipped_bit_is_named_and_never_returned() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let file = served.make("/f");
    served.write(&file, Some(0), &pattern(60_000, 1)).unwrap();
    let other = served.make("/g");
    served.write(&other, Some(0), b"whole").unwrap();
    served.engine.stop().expect("stops");
    drop(served);
    let segment = machine.disk.list().unwrap().into_iter().find(|name| name.starts_with("seg-")).expect("a segment");
    machine.disk.flip_bit(&segment, 40_000, 3).unwrap();
    let mut served = machine.serve();
    let fault = served.read("/f", View::NOW).unwrap_err();
    assert_eq!(fault.reason, Reason::Corrupt);
    assert!(fault.message.contains("fails its checksum"), "{fault}");
    assert_eq!(served.read("/g", View::NOW).unwrap(), b"whole");
}

#[test]
fn a_failed_flush_makes_the_server_read_only_and_says_so() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let file = served.make("/f");
    served.write(&file, Some(0), b"here").unwrap();
    machine.disk.fail_syncs(1);
    let waits = served.send(Request::Sync(Sync { inode: 0 }), &[], 0);
    assert!(served.engine.planes.flush().is_err());
    assert!(served.answer(waits).expect("answered").0.is_err(), "fsync does not claim success");
    assert!(served.write(&file, Some(0), b"more").unwrap_err().message.contains("read-only"));
    assert_eq!(served.read("/f", View::NOW).unwrap(), b"here");
    let Ok(Reply::Status(status)) = served.ask(Request::Status(Status {})) else { panic!("no status") };
    assert!(status.health.contains("read-only"), "{}", status.health);
}
