//! Bytes that are no frames, and frames that are no requests.

use frieze_base::{Reason, Rng, Seq};
use frieze_client::{Hlc, OpenFlags, Target};
use frieze_testkit::bytes::random_bytes;
use frieze_testkit::wait::eventually;
use frieze_wire::message::{
    Access, GetXattr, List, Log, Now, Open, Ping, Read, Reply, Request, RequestBody, Seek, Stat, Status, Sync, Txn,
    View, Write,
};
use frieze_wire::txn::{Make, MakeKind, Op, Rename, SetAttr, SetXattr};
use frieze_wire::{FrameHeader, FrameKind};
use prost::Message;

use super::raw::{Raw, frame, hello, sealed, txn};
use super::{check_well, put, server};
use crate::support::client;

/// A request that is right in every way.
fn good() -> Vec<u8> {
    RequestBody { caller: None, trace: None, request: Some(hello()) }.encode_to_vec()
}

#[test]
fn bytes_that_are_no_frame_are_refused_in_words_and_the_connection_ends() {
    let mut server = server("", "127.0.0.1:0");
    let request = FrameHeader::of(FrameKind::Request);
    let with = |change: &dyn Fn(&mut [u8; 80])| {
        let mut header = request.encode();
        change(&mut header);
        sealed(header).to_vec()
    };
    let mut changed_body = frame(request, &good(), &[]);
    *changed_body.last_mut().unwrap() ^= 1;
    let mut http = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: ".to_vec();
    http.resize(200, b'x');
    let cases: [(&str, Vec<u8>, Reason, &str); 10] = [
        ("noise", random_bytes(7, 200), Reason::BadFrame, "not with the magic of frieze"),
        ("another protocol", http, Reason::BadFrame, "not with the magic of frieze"),
        ("zeros", vec![0; 4096], Reason::BadFrame, "not with the magic of frieze"),
        ("a body of 4 GiB", with(&|h| h[8..12].fill(0xff)), Reason::BadFrame, "body of 4294967295 bytes; at most"),
        ("a payload of 4 GiB", with(&|h| h[12..16].fill(0xff)), Reason::BadFrame, "payload of 4294967295 bytes; at"),
        ("another version", with(&|h| h[5] = 9), Reason::WrongVersion, "protocol version 9, this process 1"),
        ("an unknown kind", with(&|h| h[4] = 77), Reason::BadFrame, "unknown kind 77"),
        ("a changed body", changed_body, Reason::BadFrame, "it was changed on the way"),
        (
            "a reply",
            frame(FrameHeader::of(FrameKind::Reply), &[], &[]),
            Reason::BadFrame,
            "a client sends requests, nothing else",
        ),
        (
            "a refusal",
            frame(FrameHeader::of(FrameKind::Refusal), &[], &[]),
            Reason::BadFrame,
            "a client sends requests, nothing else",
        ),
    ];
    for greeted in [false, true] {
        for (name, bytes, reason, words) in &cases {
            let mut raw = if greeted { Raw::greeted(&server.addresses[1]) } else { Raw::connect(&server.addresses[1]) };
            raw.send(bytes).unwrap();
            let fault = raw.refusal();
            assert_eq!(fault.reason, *reason, "{name}: {fault}");
            assert!(fault.message.contains(words), "{name}: {fault}");
            assert!(raw.receive().is_none(), "{name}: the connection ends");
        }
    }
    check_well(&mut server);
}

#[test]
fn every_changed_byte_of_a_header_is_noticed() {
    let mut server = server("", "127.0.0.1:0");
    let good = frame(FrameHeader::of(FrameKind::Request), &good(), &[]);
    for at in 0..80 {
        let mut bytes = good.clone();
        bytes[at] ^= 1 << (at % 8);
        let mut raw = Raw::connect(&server.addresses[1]);
        raw.send(&bytes).unwrap();
        let fault = raw.refusal();
        assert_eq!(fault.reason, Reason::BadFrame, "byte {at}: {fault}");
    }
    check_well(&mut server);
}

#[test]
fn frames_that_are_no_requests_are_refused_and_the_connection_survives() {
    let mut server = server("", "127.0.0.1:0");
    let mut raw = Raw::connect(&server.addresses[1]);
    let early = raw.ask(Request::Ping(Ping {})).unwrap_err();
    assert_eq!(early.reason, Reason::BadFrame);
    assert!(early.message.contains("the first message of a connection must be Hello"), "{early}");
    raw.greet();

    let noise = raw.ask_bytes(&[0xff; 64], &[]).unwrap_err();
    assert_eq!(noise.reason, Reason::BadFrame);
    assert!(noise.message.contains("the body is no request"), "{noise}");
    let nothing = raw.ask_bytes(&[], &[]).unwrap_err();
    assert_eq!(nothing.reason, Reason::Unsupported);
    assert!(nothing.message.contains("of a kind that this server does not know"), "{nothing}");
    let no_op = raw.ask(Request::Txn(Txn::default())).unwrap_err();
    assert_eq!(no_op.reason, Reason::Unsupported);
    assert!(no_op.message.contains("of a kind that this server does not know"), "{no_op}");

    // A change needs a session and a number.
    let mkdir = || {
        let target = Target::path("/by-hand");
        txn(Op::Make(Make {
            target,
            mode: 0o755,
            or_open: false,
            kind: Some(MakeKind::Directory(true)),
            ..Make::default()
        }))
    };
    assert_eq!(raw.ask(mkdir()).unwrap_err().reason, Reason::UnknownSession);
    let mut raw = Raw::in_session(&server.addresses[1]);
    let body = RequestBody { caller: None, trace: None, request: Some(mkdir()) }.encode_to_vec();
    let header = FrameHeader { seq: Seq(0), ..raw.header() };
    raw.send(&frame(header, &body, &[])).unwrap();
    let unnumbered = raw.refusal();
    assert_eq!(unnumbered.reason, Reason::BadFrame, "{unnumbered}");
    assert!(unnumbered.message.contains("number"), "{unnumbered}");

    // A stamp from the far future is refused and not taken over.
    let before = client(&server.address).now().unwrap();
    let header = FrameHeader { hlc: Hlc(u64::MAX - 1), ..raw.header() };
    raw.send(&frame(header, &body, &[])).unwrap();
    let future = raw.refusal();
    assert_eq!(future.reason, Reason::Future, "{future}");
    let after = client(&server.address).now().unwrap();
    assert!(after.micros() - before.micros() < 60_000_000, "the clock is where it was: {before} {after}");

    // Payload whose bytes are not those of the checksum, and payload where none belongs.
    let write = Write { capability: vec![0; 51], ..Write::default() };
    let body = RequestBody { caller: None, trace: None, request: Some(Request::Write(write)) }.encode_to_vec();
    let forged = raw.ask_bytes(&body, b"data").unwrap_err();
    assert_eq!(forged.reason, Reason::StaleHandle, "{forged}");
    let ping = RequestBody { caller: None, trace: None, request: Some(Request::Ping(Ping {})) }.encode_to_vec();
    assert!(
        matches!(raw.ask_bytes(&ping, &[7; 100_000]), Ok(Reply::Done(_))),
        "what belongs to nothing is passed over"
    );
    assert!(client(&server.address).fs().stat(&Target::path("/by-hand")).is_err(), "none of it was done");
    check_well(&mut server);
}

#[test]
fn a_large_answer_is_whole_at_the_first_asking_wherever_it_begins_and_ends() {
    let server = server("", "127.0.0.1:0");
    let root = client(&server.address);
    let bytes = random_bytes(9, 3_500_000);
    put(&root, "/film", &bytes);
    // Another record within, and one that ends where no block does.
    let file = root.fs().open(&Target::path("/film"), OpenFlags { read: true, write: true }).unwrap();
    file.write_at(1_300_000, &random_bytes(10, 300_001)).unwrap();
    file.close().unwrap();
    let mut raw = Raw::in_session(&server.addresses[1]);
    let open = Open { target: Target::path("/film"), view: View::NOW, read: true, write: false, made_at: 0 };
    let Ok(Reply::Open(open)) = raw.ask(Request::Open(open)) else { panic!("it is opened") };
    let mut rng = Rng::new(7);
    for asked in 0..100 {
        let (block, at_blocks) = (16 << 10, asked % 2 == 0);
        let offset = if at_blocks { rng.below(200) * block } else { rng.below(3_200_000) };
        let len = if at_blocks { rng.between(16, 64) * block } else { rng.between(256 << 10, 1 << 20) } as u32;
        // The checksum of what comes is compared with the one that comes with it.
        let read = Read { capability: open.capability.clone(), offset, len, in_steps: true, ..Read::default() };
        let body = RequestBody { caller: None, trace: None, request: Some(Request::Read(read)) }.encode_to_vec();
        // What is numbered may be a change, and is answered as a whole.
        let header = FrameHeader { seq: Seq(0), ..raw.header() };
        raw.send(&frame(header, &body, &[])).unwrap();
        match raw.receive() {
            Some((_, Ok(Reply::Read(reply)))) => {
                assert!(reply.crc_behind || offset + 262_144 > 3_500_000, "it goes out in steps");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn requests_with_random_bytes_changed_never_harm_the_server() {
    let mut server = server("", "127.0.0.1:0");
    let keeper = client(&server.address);
    keeper.fs().mkdir(&Target::path("/noise"), 0o777).unwrap();
    let target = || Target::path("/noise/file");
    let view = View { at: Some(keeper.now().unwrap().0), user_at: Some(5) };
    let op = |op: Op| Request::Txn(Txn { op: Some(op), ..Txn::default() });
    let make =
        Make { target: target(), mode: 0o644, or_open: true, kind: Some(MakeKind::File(true)), ..Make::default() };
    let requests = [
        Request::Stat(Stat { target: target(), view, ..Stat::default() }),
        Request::List(List {
            target: Target::path("/noise"),
            view,
            count_max: 10,
            with_attrs: true,
            ..List::default()
        }),
        Request::Access(Access { target: target(), view, mask: 4 }),
        Request::GetXattr(GetXattr { target: target(), view, name: b"user.x".to_vec() }),
        Request::Open(Open { target: target(), view: View::NOW, read: true, write: true, made_at: 0 }),
        Request::Read(Read {
            capability: vec![9; 51],
            offset: 1 << 40,
            len: 1 << 20,
            in_steps: true,
            ..Read::default()
        }),
        Request::Write(Write { capability: vec![9; 51], offset: 3, append: true, ..Write::default() }),
        Request::Sync(Sync { inode: 5 }),
        Request::Seek(Seek { capability: vec![9; 51], offset: 1, data: true }),
        Request::Now(Now { name: "last-whole".to_owned(), nearest: 0 }),
        Request::Log(Log { target: target(), view, after: 1, count_max: 5, upto: 3, ..Log::default() }),
        Request::Status(Status {}),
        op(Op::Make(make)),
        op(Op::SetAttr(SetAttr { target: target(), size: Some(1 << 30), mode: Some(0o600), ..SetAttr::default() })),
        op(Op::SetXattr(SetXattr { target: target(), name: b"user.x".to_vec(), value: vec![1; 30], flags: 0 })),
        op(Op::Rename(Rename { from: target(), to: Target::path("/noise/other"), flags: 2 })),
    ];
    let bodies: Vec<Vec<u8>> = requests
        .into_iter()
        .map(|request| RequestBody { caller: None, trace: None, request: Some(request) }.encode_to_vec())
        .collect();
    let mut rng = Rng::new(0xbad);
    let mut raw = Raw::in_session(&server.addresses[1]);
    let mut refused = 0;
    for _ in 0..4000 {
        let mut body = rng.choose(&bodies).clone();
        for _ in 0..rng.between(1, 4) {
            let at = rng.below(body.len() as u64) as usize;
            body[at] = rng.next() as u8;
        }
        if rng.chance(5) {
            body.truncate(rng.below(body.len() as u64) as usize);
        }
        let payload = if rng.chance(2) { random_bytes(1, 100) } else { Vec::new() };
        refused += u32::from(raw.ask_bytes(&body, &payload).is_err());
    }
    assert!((1000..4000).contains(&refused), "some is understood, most is not: {refused}");
    drop(raw);
    eventually("the connection is taken off the books", || (keeper.status().unwrap().connections == 1).then_some(()));
    check_well(&mut server);
}
