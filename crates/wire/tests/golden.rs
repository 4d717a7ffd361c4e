//! The bytes on the wire, kept: what an older process sent still reads, and what this one sends is what was agreed.
//!
//! `testdata/golden.txt` holds one message a line: its name and its bytes in hexadecimal. `UPDATE_EXPECT=1` rewrites
//! it; a changed line is a new protocol version, an added line is not.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "golden/cluster.rs"]
mod cluster;
#[path = "golden/logs.rs"]
mod logs;
#[path = "golden/metalog.rs"]
mod metalog;
#[path = "golden/peers.rs"]
mod peers;
#[path = "golden/control.rs"]
mod plane;
#[path = "golden/replies.rs"]
mod replies;
#[path = "golden/requests.rs"]
mod requests;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fmt::Write as _;
use std::path::PathBuf;

use frieze_base::{ChainEpoch, Reason, Seq, SessionId, crc32c};
use frieze_hlc::Hlc;
use frieze_wire::control;
use frieze_wire::edit::*;
use frieze_wire::frame::{BODY_BYTES_MAX, PAYLOAD_BYTES_MAX, PROTOCOL_VERSION};
use frieze_wire::message::*;
use frieze_wire::peer::PeerBody;
use frieze_wire::trace::TraceContext;
use frieze_wire::txn::*;
use frieze_wire::{FRAME_HEADER_BYTES, FrameHeader, FrameKind, Holds};
use proptest::prelude::*;
use prost::Message;

const AT: u64 = 0x0006_4b2d_8f00_1234;

fn file() -> Target {
    Target { base: 1, path: b"a/b.txt".to_vec(), follow: true }
}

fn past() -> View {
    View { at: Some(AT), user_at: Some(-5) }
}

fn caller() -> Caller {
    Caller { uid: 1000, gid: 100, groups: vec![4, 27, 300] }
}

fn answered() -> InstantInfo {
    InstantInfo {
        at: AT,
        precision_us: 250,
        was_stable: true,
        incomplete: true,
        user_time_open: true,
        without_lease: true,
        executed: AT,
    }
}

fn attr() -> Attr {
    Attr {
        inode: 77,
        kind: FileKind::Directory as i32,
        mode: 0o755,
        links: 2,
        uid: 1000,
        gid: 100,
        size: 1 << 33,
        bytes_live: 4096,
        atime_ns: -1,
        mtime_ns: 1_439_845_200_000_000_000,
        ctime_ns: 3,
        born: AT,
        rdev: 5,
        chunk_bytes: 64 << 20,
        time_plugin: "json:/meta/time".to_owned(),
        changed: AT + 1,
        has_acl: false,
    }
}

fn settle() -> Settle {
    Settle { inode: 77, keep_grant: true, stamp: AT, size: 4097, mtime_ns: -9, complete: None, since: 0 }
}

fn share() -> Share {
    Share { start: 4096, len: 1 << 20, inode: 77, offset: 512, at: AT }
}

fn edit() -> Edit {
    let xattr = Xattr { name: b"user.c".to_vec(), value: Some(vec![0, 255]) };
    let gone = Xattr { name: b"user.d".to_vec(), value: None };
    Edit {
        kind: EditKind::Undo as i32,
        at: AT,
        brought: vec![NamelessInode { inode: 77, from: AT, value: vec![1, 2], xattrs: vec![xattr.clone()] }],
        new: vec![NewInode {
            kind: FileKind::Symlink as i32,
            mode: 0o777,
            uid: 1000,
            gid: 100,
            atime_ns: -1,
            mtime_ns: 5,
            size: 1 << 33,
            target: b"../to".to_vec(),
            rdev: 5,
            chunk_bytes: 64 << 20,
            chain_count: 8,
            plugin: "json:/t".into(),
            xattrs: vec![xattr],
            shares: vec![share()],
            ..NewInode::default()
        }],
        names: vec![SetName { directory: NEW | 3, name: b"n".to_vec(), expect: 77, inode: NEW }],
        states: vec![SetState {
            inode: 77,
            expect: AT,
            mode: Some(0),
            uid: Some(0),
            gid: Some(0),
            atime_ns: Some(-1),
            mtime_ns: Some(0),
            size: Some(0),
            shares: vec![share()],
            xattrs: vec![gone],
            extends: false,
            times_anew: false,
            origin: 0,
            origin_at: 0,
            gets_policy: false,
        }],
        keeps_times: false,
        staged: None,
        policy: String::new(),
    }
}

fn full_header() -> FrameHeader {
    FrameHeader {
        kind: FrameKind::Refusal,
        body_len: 0x0001_0203,
        payload_len: 0x0004_0506,
        request_id: 0x1112_1314_1516_1718,
        session: SessionId(0x2122_2324_2526_2728),
        seq: Seq(0x3132_3334_3536_3738),
        acked: Seq(0x4142_4344_4546_4748),
        epoch: ChainEpoch(0x5152_5354_5556_5758),
        hlc: Hlc(0x6162_6364_6566_6768),
        body_crc: 0x7172_7374,
        payload_crc: 0x8182_8384,
        holds: Holds { names_ms: 0x9192, files_ms: 0x9394 },
    }
}

/// Checks `value` against its line, in both directions.
struct Golden {
    kept: BTreeMap<String, Vec<u8>>,
    now: String,
    wrong: Vec<String>,
}

impl Golden {
    fn open() -> Golden {
        let text = std::fs::read_to_string(path()).unwrap_or_default();
        let kept = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
            let (name, hex) = line.split_once(' ')?;
            let bytes = (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap());
            Some((name.to_owned(), bytes.collect()))
        });
        Golden { kept: kept.collect(), now: String::new(), wrong: Vec::new() }
    }

    fn message<M: Message + Default + PartialEq + Debug>(&mut self, name: String, value: &M) {
        let bytes = value.encode_to_vec();
        if let Some(kept) = self.kept.get(&name) {
            match M::decode(&kept[..]) {
                Ok(read) if read == *value => {}
                other => self.wrong.push(format!("{name}: the kept bytes read as {other:?}")),
            }
        }
        self.bytes(name, &bytes);
    }

    fn bytes(&mut self, name: String, bytes: &[u8]) {
        match self.kept.get(&name) {
            Some(kept) if kept == bytes => {}
            Some(_) => self.wrong.push(format!("{name}: other bytes than were kept")),
            None => self.wrong.push(format!("{name}: no bytes were kept")),
        }
        let _ = write!(self.now, "{name} ");
        bytes.iter().for_each(|b| {
            let _ = write!(self.now, "{b:02x}");
        });
        self.now.push('\n');
    }

    fn finish(self) {
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            let head = "# The bytes of every message; see tests/golden.rs. A changed line is a new protocol version.\n";
            std::fs::write(path(), head.to_owned() + &self.now).unwrap();
            return;
        }
        assert!(self.wrong.is_empty(), "{}\nUPDATE_EXPECT=1 keeps the new bytes", self.wrong.join("\n"));
        assert_eq!(self.kept.len(), self.now.lines().count(), "a message that was kept is no longer tried");
    }
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/testdata/golden.txt")
}

#[test]
fn every_message_reads_its_kept_bytes_and_writes_the_same() {
    let mut golden = Golden::open();
    golden.bytes("header".into(), &full_header().encode());
    for (name, request) in
        requests::requests().into_iter().chain(logs::requests(&file(), past())).chain(cluster::requests())
    {
        golden.message(
            format!("request.{name}"),
            &RequestBody { caller: Some(caller()), trace: None, request: Some(request) },
        );
    }
    let trace = Some(TraceContext::of(0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736, 0x00f0_67aa_0ba9_02b7));
    let sampled = RequestBody { caller: None, trace, request: Some(Request::Ping(Ping {})) };
    golden.message("request.ping-sampled".into(), &sampled);
    for (name, reply) in replies::replies().into_iter().chain(logs::replies()).chain(cluster::replies()) {
        golden.message(format!("reply.{name}"), &ReplyBody { reply: Some(reply) });
    }
    for (name, message) in peers::messages().into_iter().chain(metalog::messages()) {
        golden.message(format!("told.{name}"), &PeerBody { message: Some(message) });
    }
    golden.message("refusal".into(), &Refusal { reason: Reason::NoSpace as u32, message: "full".into() });
    for (name, op) in requests::ops() {
        let transaction =
            Transaction { session: 42, seq: 7, acked: 5, caller: caller(), must_see: AT, op: Some(op.clone()) };
        golden.message(format!("op.{name}"), &transaction);
        // As a client sends it: the same tags in another envelope.
        golden.message(format!("txn.{name}"), &Txn { durability: 0, op: Some(op) });
    }
    let transactions = vec![
        Transaction {
            session: 42,
            seq: 7,
            acked: 5,
            caller: caller(),
            must_see: AT,
            op: requests::ops().pop().map(|(_, op)| op)
        };
        2
    ];
    golden.message("batch".into(), &Batch { transactions, ids_above: 0, decisions: vec![] });
    let all: Vec<_> =
        plane::decisions().into_iter().map(|(_, kind)| control::DecisionProto { kind: Some(kind) }).collect();
    golden.message("batch.decisions".into(), &Batch { transactions: vec![], ids_above: 9, decisions: all });
    let outcome = Outcome {
        stamp: AT,
        id: 77,
        existed: true,
        reason: Reason::Exists as u32,
        message: "a/b.txt exists".into(),
        replaced: 0,
    };
    golden.message("outcome".into(), &outcome);
    golden.message("outcome.replaced".into(), &Outcome { stamp: AT, id: 77, replaced: 78, ..Outcome::default() });
    for (name, kind) in plane::decisions().into_iter().chain(plane::later_decisions()) {
        golden.message(format!("decision.{name}"), &control::DecisionProto { kind: Some(kind) });
    }
    golden.message("control_state".into(), &plane::control_state());
    let mut behind = plane::control_state();
    (behind.chains[0].behind_from, behind.chains[0].behind_to) = (AT, AT + 9);
    golden.message("control_state_behind".into(), &behind);
    let mut away = plane::control_state();
    away.nodes[0].offline_since = AT;
    golden.message("control_state_away".into(), &away);
    let former = control::StoredFormer { cluster: vec![0xef; 16], node: 2, at: AT };
    golden.message(
        "control_state_recovered".into(),
        &control::StoredCluster { former: vec![former], ..plane::control_state() },
    );
    golden.finish();
}

#[test]
fn a_header_lies_as_its_table_says() {
    let header = full_header();
    let bytes = header.encode();
    let expect: Vec<u8> = [
        &b"FRZ1"[..],
        &[3, PROTOCOL_VERSION, 0, 0],
        &[0x03, 0x02, 0x01, 0x00],
        &[0x06, 0x05, 0x04, 0x00],
        &[0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11],
        &[0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21],
        &[0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31],
        &[0x48, 0x47, 0x46, 0x45, 0x44, 0x43, 0x42, 0x41],
        &[0x58, 0x57, 0x56, 0x55, 0x54, 0x53, 0x52, 0x51],
        &[0x68, 0x67, 0x66, 0x65, 0x64, 0x63, 0x62, 0x61],
        &[0x74, 0x73, 0x72, 0x71],
        &[0x84, 0x83, 0x82, 0x81],
        &[0x92, 0x91],
        &[0x94, 0x93],
    ]
    .concat();
    assert_eq!(bytes[..76], expect[..]);
    assert_eq!(bytes[76..], crc32c(&expect).to_le_bytes());
    assert_eq!(FrameHeader::decode(&bytes).unwrap(), header);
}

#[test]
fn every_flipped_bit_of_a_header_is_noticed() {
    let bytes = full_header().encode();
    for bit in 0..FRAME_HEADER_BYTES * 8 {
        let mut flipped = bytes;
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(FrameHeader::decode(&flipped).unwrap_err().reason, Reason::BadFrame, "bit {bit}");
    }
}

#[test]
fn a_header_of_another_version_names_both() {
    let mut bytes = full_header().encode();
    bytes[5] = PROTOCOL_VERSION + 1;
    let crc = crc32c(&bytes[..76]);
    bytes[76..].copy_from_slice(&crc.to_le_bytes());
    let fault = FrameHeader::decode(&bytes).unwrap_err();
    assert_eq!(fault.reason, Reason::WrongVersion);
    assert!(fault.message.contains("version 2") && fault.message.contains("this process 1"), "{fault}");
}

#[test]
fn a_length_beyond_its_bound_is_refused_before_anything_is_read() {
    for (body_len, payload_len, is_good) in
        [(BODY_BYTES_MAX, PAYLOAD_BYTES_MAX, true), (BODY_BYTES_MAX + 1, 0, false), (0, PAYLOAD_BYTES_MAX + 1, false)]
    {
        let bytes = FrameHeader { body_len, payload_len, ..FrameHeader::of(FrameKind::Request) }.encode();
        assert_eq!(FrameHeader::decode(&bytes).is_ok(), is_good, "{body_len} {payload_len}");
    }
}

#[test]
fn a_field_that_a_newer_peer_added_is_passed_over() {
    let mut bytes = StatReply { attr: attr(), answered: answered() }.encode_to_vec();
    bytes.extend([0xfa, 0x3f, 3, b'n', b'e', b'w']); // field 1023, three bytes
    assert_eq!(StatReply::decode(&bytes[..]).unwrap(), StatReply { attr: attr(), answered: answered() });
}

#[test]
fn an_unknown_request_reads_as_none_and_not_as_another() {
    // Field 29, an empty message: a request of a newer client.
    assert_eq!(RequestBody::decode(&[0xea, 0x01, 0][..]).unwrap().request, None);
    assert_eq!(ReplyBody::decode(&[0xea, 0x01, 0][..]).unwrap().reply, None);
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic_a_decoder(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = RequestBody::decode(&bytes[..]);
        let _ = ReplyBody::decode(&bytes[..]);
        let _ = Refusal::decode(&bytes[..]);
        let _ = PeerBody::decode(&bytes[..]);
        let _ = Batch::decode(&bytes[..]);
        let _ = Outcome::decode(&bytes[..]);
        let _ = control::StoredCluster::decode(&bytes[..]);
        if let Some(header) = bytes.first_chunk::<FRAME_HEADER_BYTES>() {
            let _ = FrameHeader::decode(header);
        }
    }

    #[test]
    fn a_changed_message_never_panics_a_decoder(
        which in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        to in any::<u8>(),
    ) {
        let requests = requests::requests();
        let (_, request) = requests[which.index(requests.len())].clone();
        let mut bytes = RequestBody { caller: Some(caller()), trace: None, request: Some(request) }.encode_to_vec();
        let at = at.index(bytes.len());
        bytes[at] = to;
        let _ = RequestBody::decode(&bytes[..]);
    }
}
