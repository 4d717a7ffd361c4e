//! Writes that go on where the last one of their connection ended: they leave what any other write leaves, and everything that a write
//! is refused for sends them the usual way.

use frieze_base::crc32c;
use frieze_hlc::Hlc;
use frieze_node::WriteOn;
use frieze_wire::txn::Grant;

use super::told::Believer;
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
        let id = self.write_by(&mut scratch, capability, Some(offset), Durability::Async, bytes);
        self.answer(id).expect("answered at once").0.expect("writes");
        scratch
    }

    fn on(&mut self, scratch: &mut Scratch, capability: &[u8], offset: u64, payload: &[u8]) -> Option<u64> {
        self.seq += 1;
        let write = WriteOn {
            session: self.session,
            seq: Seq(self.seq),
            acked: Seq(0),
            seen: Hlc::ZERO,
            capability,
            offset,
            payload,
            crc: self.seq.is_multiple_of(2).then(|| crc32c(payload)),
        };
        self.engine.write_on(scratch, &write).map(|stamp| stamp.0)
    }
}

#[test]
fn a_stream_is_the_same_file_at_every_instant_whichever_way_it_was_written() {
    let mut machine = Machine::new();
    let mut served = machine.serve();
    let file = served.make("/f");
    let mut scratch = served.begin(&file, 0, b"0");
    let mut stamps = vec![served.engine.newest().0];
    let (mut all, mut ends) = (b"0".to_vec(), vec![1]);
    for number in 1..60_u8 {
        let piece = pattern(usize::from(number) * 13 % 700 + 1, number);
        let at = all.len() as u64;
        stamps.push(served.on(&mut scratch, &file, at, &piece).expect("it goes on"));
        all.extend_from_slice(&piece);
        assert_eq!(served.stat("/f", View::NOW).unwrap().attr.size, all.len() as u64, "seen as soon as it is written");
        // A look at the past in between keeps nobody from going on.
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
fn what_is_not_the_next_of_the_same_writer_goes_the_usual_way() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let (file, other) = (served.make("/f"), served.make("/g"));
    let mut scratch = served.begin(&file, 0, b"one");
    assert_eq!(served.on(&mut Scratch::default(), &file, 3, b"x"), None, "another connection");
    assert_eq!(served.on(&mut scratch, &file, 4, b"x"), None, "not where it ended");
    assert_eq!(served.on(&mut scratch, &file, 2, b"x"), None, "before that");
    assert_eq!(served.on(&mut scratch, &other, 3, b"x"), None, "another file");
    assert_eq!(served.on(&mut scratch, &file[1..], 3, b"x"), None, "no capability");
    assert_eq!(served.on(&mut scratch, &file, 3, b""), None, "nothing");
    let session = std::mem::replace(&mut served.session, SessionId(77));
    assert_eq!(served.on(&mut scratch, &file, 3, b"x"), None, "another session");
    served.session = session;
    served.seq -= 1;
    assert!(served.on(&mut scratch, &file, 3, b"two").is_some());
    served.seq -= 1;
    assert_eq!(served.on(&mut scratch, &file, 6, b"x"), None, "its number has been used");
    // Over the end of its chunk, of 64 KiB.
    let long = pattern(65_529, 3);
    assert_eq!(served.on(&mut scratch, &file, 6, &pattern(65_531, 3)), None, "into the next chunk");
    assert!(
        served.on(&mut scratch, &file, 6, &long).is_some() && served.on(&mut scratch, &file, 65_535, b"e").is_some()
    );
    assert_eq!(served.on(&mut scratch, &file, 65_536, b"x"), None, "behind the chunk");
    assert_eq!(served.read("/f", View::NOW).unwrap(), [b"onetwo", &long[..], b"e"].concat());
}

#[test]
fn what_was_shown_for_a_read_of_another_file_in_between_writes_to_neither() {
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
    assert_eq!(served.on(&mut scratch, &other, 3, b"x"), None);
    assert_eq!(served.read("/f", View::NOW).unwrap(), b"one");
}

#[test]
fn whatever_happens_in_between_is_looked_at() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let (file, other) = (served.make("/f"), served.make("/g"));
    let mut at = 0;
    let mut stream = |served: &mut Served, what: &str, between: &mut dyn FnMut(&mut Served), goes_on: bool| {
        let mut scratch = served.begin(&file, at, b"abc");
        assert!(served.on(&mut scratch, &file, at + 3, b"def").is_some(), "before {what}");
        between(served);
        assert_eq!(served.on(&mut scratch, &file, at + 6, b"ghi").is_some(), goes_on, "after {what}");
        at += 9;
    };
    stream(&mut served, "nothing", &mut |_| {}, true);
    stream(&mut served, "a read", &mut |served| drop(served.read("/f", View::NOW).unwrap()), true);
    stream(&mut served, "a transaction", &mut |served| served.mkdir("/d"), false);
    stream(
        &mut served,
        "a write to another file",
        &mut |served| assert!(served.write(&other, Some(0), b"x").is_ok()),
        true,
    );
    stream(&mut served, "a flush", &mut |served| served.engine.flush().unwrap(), false);
    let close = |served: &mut Served| drop(served.at("/f", served.engine.newest().0).unwrap());
    stream(&mut served, "an instant that was closed", &mut |served| close(served), true);
    let cut = |served: &mut Served| {
        let cut = SetAttr { target: Target::path("/f"), size: Some(2), ..SetAttr::default() };
        served.txn(Op::SetAttr(cut)).unwrap();
        let inode = served.stat("/f", View::NOW).unwrap().attr.inode;
        served.txn(Op::Grant(Grant { inode, first: 0, count: 1 })).unwrap();
    };
    stream(&mut served, "a truncate", &mut |served| cut(served), false);
    stream(
        &mut served,
        "its removal",
        &mut |served| drop(served.txn(Op::Remove(Remove { target: Target::path("/f"), directory: false })).unwrap()),
        false,
    );
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
            assert!(served.on(scratch, capability, at + round, &[*byte]).is_some(), "round {round}");
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
fn while_somebody_else_caches_anything_every_write_is_looked_at() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let file = served.make("/f");
    let mut scratch = served.begin(&file, 0, b"one");
    assert!(served.on(&mut scratch, &file, 3, b"two").is_some());
    let _believer = Believer::new(&machine, &served.engine);
    scratch = served.begin(&file, 6, b"three");
    assert_eq!(served.on(&mut scratch, &file, 11, b"x"), None, "somebody may show what was before");
}

#[test]
fn a_device_that_failed_is_not_written_on() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let file = served.make("/f");
    served.engine.flush().unwrap();
    let mut scratch = served.begin(&file, 0, b"one");
    machine.disk.fail_syncs(1);
    served.engine.flush().unwrap_err();
    assert_eq!(served.on(&mut scratch, &file, 3, b"x"), None);
    assert_eq!(served.write(&file, Some(3), b"x").unwrap_err().reason, Reason::InputOutput);
}

#[test]
fn what_waits_for_the_disk_or_has_its_place_found_is_gone_on_from_by_nobody() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let file = served.make("/f");
    let mut scratch = Scratch::default();
    served.write_by(&mut scratch, &file, Some(0), Durability::Sync, b"one");
    assert_eq!(served.on(&mut scratch, &file, 3, b"x"), None, "it would be seen before the one before it");
    served.engine.flush().unwrap();
    // An append that is alone has a place like any other write.
    let id = served.write_by(&mut scratch, &file, None, Durability::Async, b"two");
    served.answer(id).expect("answered at once").0.expect("appends");
    assert!(served.on(&mut scratch, &file, 6, b"three").is_some());
    assert_eq!(served.read("/f", View::NOW).unwrap(), b"onetwothree");
}
