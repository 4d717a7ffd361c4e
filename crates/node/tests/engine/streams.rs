//! Streams of small writes on one connection: each has the effect of any other write, and a change between two of them
//! is checked before the second.

use frieze_base::crc32c;
use frieze_wire::txn::Grant;

use super::*;

impl Served {
    /// Writes as over a socket, on a connection whose scratch is this.
    fn write_by(
        &mut self,
        scratch: &mut Scratch,
        capability: &[u8],
        offset: Option<u64>,
        durability: Durability,
        bytes: &[u8],
    ) -> u64 {
        self.seq += 1;
        let id = self.next;
        self.next += 1;
        let header = FrameHeader {
            request_id: id,
            session: self.session,
            seq: Seq(self.seq),
            payload_len: bytes.len() as u32,
            payload_crc: crc32c(bytes),
            ..FrameHeader::of(FrameKind::Request)
        };
        let body = RequestBody { caller: None, request: Some(Self::write_request(capability, offset, durability)) };
        let responder: Arc<dyn Responder> = self.answers.clone();
        self.engine.handle(&self.conn, &header, body, bytes.into(), &responder, scratch);
        id
    }

    /// The first write of a stream.
    fn begin(&mut self, capability: &[u8], offset: u64, bytes: &[u8]) -> Scratch {
        let mut scratch = Scratch::default();
        self.on(&mut scratch, capability, offset, bytes).expect("writes");
        scratch
    }

    /// The next write of a stream. Returns its stamp.
    fn on(&mut self, scratch: &mut Scratch, capability: &[u8], offset: u64, bytes: &[u8]) -> Result<u64, Fault> {
        let id = self.write_by(scratch, capability, Some(offset), Durability::Async, bytes);
        match self.answer(id).expect("answered at once").0? {
            Reply::Write(reply) => Ok(reply.stamp),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_stream_is_the_same_file_at_every_instant() {
    let mut machine = Machine::new();
    let mut served = machine.serve();
    let file = served.make("/f");
    let mut scratch = served.begin(&file, 0, b"0");
    let mut stamps = vec![served.engine.planes.newest().0];
    let (mut all, mut ends) = (b"0".to_vec(), vec![1]);
    for number in 1..60_u8 {
        let piece = pattern(usize::from(number) * 13 % 700 + 1, number);
        let at = all.len() as u64;
        stamps.push(served.on(&mut scratch, &file, at, &piece).expect("it writes"));
        all.extend_from_slice(&piece);
        assert_eq!(served.stat("/f", View::NOW).unwrap().attr.size, all.len() as u64, "seen as soon as it is written");
        let before = usize::from(number) - 1;
        assert_eq!(served.at("/f", stamps[before]).unwrap(), all[..ends[before]]);
        ends.push(all.len());
        if number % 20 == 0 {
            scratch = served.begin(&file, all.len() as u64, b"-");
            all.push(b'-');
        }
    }
    assert!(stamps.is_sorted_by(|one, next| one < next));
    let looks: Vec<Vec<u8>> = stamps.iter().map(|stamp| served.at("/f", *stamp).unwrap()).collect();
    let log = |served: &mut Served| {
        let log =
            Log { target: Target::path("/f"), view: View::NOW, after: 0, count_max: 0, upto: 0, ..Log::default() };
        let Ok(Reply::Log(log)) = served.ask(Request::Log(log)) else { panic!("no log") };
        log.versions
    };
    let versions = log(&mut served);
    assert_eq!(versions.len(), 63, "each is a version: the making, 60 and 2 writes");
    // What its process leaves behind is all there, and after the power went, what was flushed.
    let again = |served: &mut Served| {
        assert_eq!(served.read("/f", View::NOW).unwrap(), all);
        assert!(stamps.iter().zip(&looks).all(|(stamp, look)| served.at("/f", *stamp).unwrap() == *look));
        assert_eq!(log(served), versions);
        assert_eq!(served.engine.check_up().found(), 0);
    };
    again(&mut served);
    machine.disk.crash(CrashKind::Process);
    machine.disk.restart();
    let mut served = machine.serve();
    again(&mut served);
    served.open_session();
    served.fsync();
    machine.lose_power();
    again(&mut machine.serve());
}

#[test]
fn what_is_wrong_in_the_middle_of_a_stream_is_refused() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let file = served.make("/f");
    let mut scratch = served.begin(&file, 0, b"one");
    let refused = |written: Result<u64, Fault>| written.expect_err("it is refused").reason;
    assert_eq!(refused(served.on(&mut scratch, &file[1..], 3, b"x")), Reason::StaleHandle);
    assert_eq!(refused(served.on(&mut scratch, &file, 3, b"")), Reason::InvalidArgument);
    let session = std::mem::replace(&mut served.session, SessionId(77));
    assert_eq!(refused(served.on(&mut scratch, &file, 3, b"x")), Reason::UnknownSession);
    served.session = session;
    let stamp = served.on(&mut scratch, &file, 3, b"two").expect("it writes");
    served.seq -= 1;
    assert_eq!(served.on(&mut scratch, &file, 3, b"two").expect("a retry"), stamp, "and has run once");
    // Over the end of its chunk, of 64 KiB.
    let long = pattern(65_531, 3);
    assert_eq!(refused(served.on(&mut scratch, &file, 6, &long)), Reason::Busy, "into a chunk that was not granted");
    served.on(&mut scratch, &file, 6, &long[..65_530]).expect("up to its end");
    assert_eq!(served.read("/f", View::NOW).unwrap(), [b"onetwo", &long[..65_530]].concat());
}

#[test]
fn a_capability_that_was_shown_for_another_file_writes_to_that_file() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let (file, _) = (served.make("/f"), served.make("/g"));
    // The right to read and write the other.
    let other = served.open("/g").unwrap();
    let mut scratch = served.begin(&file, 0, b"one");
    let id = served.next;
    served.next += 1;
    let header = FrameHeader { request_id: id, session: served.session, ..FrameHeader::of(FrameKind::Request) };
    let read = Read { capability: other.clone(), offset: 0, len: 10, in_steps: false, ..Read::default() };
    let body = RequestBody { caller: None, request: Some(Request::Read(read)) };
    let responder: Arc<dyn Responder> = served.answers.clone();
    served.engine.handle(&served.conn, &header, body, [][..].into(), &responder, &mut scratch);
    served.answer(id).expect("answered at once").0.expect("reads");
    served.on(&mut scratch, &other, 3, b"x").expect("the right of the second file writes to the second file");
    assert_eq!(served.read("/f", View::NOW).unwrap(), b"one");
    assert_eq!(served.read("/g", View::NOW).unwrap(), b"\0\0\0x");
}

#[test]
fn whatever_happens_in_between_is_looked_at() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let (file, other) = (served.make("/f"), served.make("/g"));
    let mut at = 0;
    let mut stream =
        |served: &mut Served, what: &str, between: &mut dyn FnMut(&mut Served), refused: Option<Reason>| {
            let mut scratch = served.begin(&file, at, b"abc");
            served.on(&mut scratch, &file, at + 3, b"def").expect(what);
            between(served);
            let written = served.on(&mut scratch, &file, at + 6, b"ghi");
            assert_eq!(written.err().map(|fault| fault.reason), refused, "after {what}");
            at += 9;
        };
    stream(&mut served, "nothing", &mut |_| {}, None);
    stream(&mut served, "a read", &mut |served| drop(served.read("/f", View::NOW).unwrap()), None);
    stream(&mut served, "a transaction", &mut |served| served.mkdir("/d"), None);
    let write = &mut |served: &mut Served| assert!(served.write(&other, Some(0), b"x").is_ok());
    stream(&mut served, "a write to another file", write, None);
    stream(&mut served, "a flush", &mut |served| served.engine.planes.flush().unwrap(), None);
    let close = &mut |served: &mut Served| drop(served.at("/f", served.engine.planes.newest().0).unwrap());
    stream(&mut served, "an instant that was closed", close, None);
    let cut = &mut |served: &mut Served| {
        let cut = SetAttr { target: Target::path("/f"), size: Some(2), ..SetAttr::default() };
        served.txn(Op::SetAttr(cut)).unwrap();
    };
    stream(&mut served, "a truncate", cut, None);
    let inode = served.stat("/f", View::NOW).unwrap().attr.inode;
    served.txn(Op::Grant(Grant { inode, first: 0, count: 1 })).unwrap();
    let remove = Remove { target: Target::path("/f"), directory: false };
    let remove = &mut |served: &mut Served| drop(served.txn(Op::Remove(remove.clone())).unwrap());
    stream(&mut served, "its removal, while it is open", remove, None);
    assert_eq!(served.engine.check_up().found(), 0);
}

#[test]
fn streams_go_on_side_by_side_also_in_one_chunk() {
    let mut machine = Machine::new();
    let mut served = machine.serve();
    let (file, other) = (served.make("/f"), served.make("/g"));
    let streams = [(&file, 0, b'a'), (&other, 0, b'b'), (&file, 500, b'z')];
    let mut scratches = streams.map(|(capability, at, byte)| served.begin(capability, at, &[byte]));
    for round in 1..41 {
        for ((capability, at, byte), scratch) in streams.iter().zip(&mut scratches) {
            served.on(scratch, capability, at + round, &[*byte]).expect("it writes");
        }
        if round % 7 == 0 {
            served.write(&file, Some(300), b"not a stream").unwrap();
        }
    }
    let look = |served: &mut Served| {
        let (one, two) = (served.read("/f", View::NOW).unwrap(), served.read("/g", View::NOW).unwrap());
        assert_eq!((&one[..41], &one[500..], &two[..]), (&[b'a'; 41][..], &[b'z'; 41][..], &[b'b'; 41][..]));
        assert_eq!(&one[300..312], b"not a stream");
        assert_eq!(served.engine.check_up().found(), 0);
    };
    look(&mut served);
    served.fsync();
    machine.lose_power();
    look(&mut machine.serve());
}

#[test]
fn a_device_that_failed_takes_nothing_more_of_a_stream() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let file = served.make("/f");
    served.engine.planes.flush().unwrap();
    let mut scratch = served.begin(&file, 0, b"one");
    machine.disk.fail_syncs(1);
    served.engine.planes.flush().unwrap_err();
    assert_eq!(served.on(&mut scratch, &file, 3, b"x").unwrap_err().reason, Reason::InputOutput);
}

#[test]
fn a_write_behind_one_that_waits_for_the_disk_waits_for_it() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let file = served.make("/f");
    let mut scratch = Scratch::default();
    let first = served.write_by(&mut scratch, &file, Some(0), Durability::Sync, b"one");
    let second = served.write_by(&mut scratch, &file, Some(3), Durability::Async, b"two");
    assert!(served.answer(first).is_none());
    served.engine.planes.flush().unwrap();
    served.answer(first).expect("it is durable").0.expect("writes");
    served.answer(second).expect("it is durable").0.expect("writes");
    assert_eq!(served.read("/f", View::NOW).unwrap(), b"onetwo");
}
