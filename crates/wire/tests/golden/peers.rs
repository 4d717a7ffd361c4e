//! What servers tell each other, one of each kind.

use frieze_wire::RemoteMemory;
use frieze_wire::control::DeviceProto;
use frieze_wire::fabric::FabricOffer;
use frieze_wire::message::Refusal;
use frieze_wire::peer::control::{
    AssignmentProto, Attached, ChainReport, ClockOffsetProto, ConfigurationProto, HeartbeatProto, HeartbeatRefusal,
    LeaseGrantProto,
};
use frieze_wire::peer::{
    BytesAsk, BytesPart, ChainAck, ChainAsk, ChainAskKind, ChainClean, ChainGreet, ChainKeep, ChainOffer, ChainPiece,
    ChainPromise, ChainRecord, CloseAfter, FileReach, FileTail, Holes, HopAnswer, HopOffer, KeepAlive, KeptAsk,
    PeerRequest, PeerRequestKind, PeerResponse, PersistAsk, ReachAsk, RecordAsk, RecordsAsk, ServerMessage, TouchedAsk,
};

use frieze_wire::trace::TraceContext;

use super::AT;

pub(super) fn messages() -> Vec<(&'static str, ServerMessage)> {
    let ask = |ask| ServerMessage::ChainAsk(ChainAsk { chain: 3, epoch: 12, ask: Some(ask) });
    let record = ChainRecord {
        chain: 3,
        epoch: 12,
        n: 4711,
        stamped_under: 11,
        version: 42,
        stamp: AT,
        inode: 77,
        index: 5,
        offset: 4096,
        len: 1 << 20,
        user_time: Some(-5),
        sync: true,
        session: 9,
        seq: 30,
        acked: 28,
        part: 1,
        uid: 1000,
        punch: false,
        left_bytes: 0,
        expired_index: 0,
        ahead: 0,
        crc: 0,
        src_slot: None,
        trace: None,
    };
    vec![
        ("alive", ServerMessage::Alive(KeepAlive {})),
        ("heartbeat", ServerMessage::Heartbeat(heartbeat())),
        ("attached", ServerMessage::Attached(Attached { sessions: vec![1, 0x0102_0304_0506_0708] })),
        ("heartbeat-after-a-loss", ServerMessage::Heartbeat(heartbeat_after_a_loss())),
        ("heartbeat-with-remains", ServerMessage::Heartbeat(heartbeat_with_remains())),
        ("heartbeat-in-trouble", ServerMessage::Heartbeat(heartbeat_in_trouble())),
        ("grant", ServerMessage::Grant(grant())),
        ("refused", ServerMessage::Refused(HeartbeatRefusal { reason: 33, message: "another cluster".into() })),
        ("chain-record", ServerMessage::ChainRecord(record.clone())),
        (
            "chain-record-behind-pieces",
            ServerMessage::ChainRecord(ChainRecord { ahead: 7, crc: 0xfeed, ..record.clone() }),
        ),
        (
            "chain-record-sampled",
            ServerMessage::ChainRecord(ChainRecord { trace: Some(TraceContext::of(1 << 64 | 2, 3)), ..record.clone() }),
        ),
        (
            "hop-offer",
            ServerMessage::HopOffer(HopOffer {
                connection: 5,
                offer: FabricOffer { provider: "tcp".into(), protocol: 11, address: vec![2, 0, 9] },
                memory: RemoteMemory { address: 0x7f00_0000_1000, key: 7, len: 4096 },
                crc: 0x0102_0304,
            }),
        ),
        ("hop-answer", ServerMessage::HopAnswer(HopAnswer { connection: 5, works: true })),
        (
            "record-to-be-fetched",
            ServerMessage::ChainRecord(ChainRecord {
                chain: 3,
                n: 4,
                len: 1 << 20,
                crc: 0x0102_0304,
                src_slot: Some(RemoteMemory { address: 0x7f00_0000_1000, key: 7, len: 1 << 20 }),
                ..ChainRecord::default()
            }),
        ),
        ("chain-piece", ServerMessage::ChainPiece(ChainPiece { chain: 3, ahead: 7, len: 1 << 20 })),
        ("chain-record-that-died", ServerMessage::ChainRecord(ChainRecord { expired_index: 9, ..record.clone() })),
        ("chain-record-of-the-past", ServerMessage::ChainRecord(ChainRecord { left_bytes: 5 << 30, ..record.clone() })),
        (
            "chain-punch",
            ServerMessage::ChainRecord(ChainRecord { user_time: None, sync: false, part: 0, punch: true, ..record }),
        ),
        ("chain-ack", ServerMessage::ChainAck(ChainAck { chain: 3, epoch: 12, upto: 4700, closed: AT, held: 4711 })),
        ("chain-promise", ServerMessage::ChainPromise(ChainPromise { chain: 3, epoch: 12, follows: 4711, at: AT })),
        ("chain-greet", ServerMessage::ChainGreet(ChainGreet { chain: 3, epoch: 12, held: 4711, promised: AT })),
        ("chain-offer", ServerMessage::ChainOffer(ChainOffer { chain: 3, epoch: 12, epochs: vec![1, 100, 11, 4711] })),
        ("chain-keep", ServerMessage::ChainKeep(ChainKeep { chain: 3, epoch: 12, upto: 4700 })),
        ("chain-ask-clean", ServerMessage::ChainClean(ChainClean { chain: 3, epoch: 12, request: 6, upto: None })),
        ("chain-clean", ServerMessage::ChainClean(ChainClean { chain: 3, epoch: 12, request: 6, upto: Some(0) })),
        ("chain-ask-close", ask(ChainAskKind::Close(AT))),
        ("chain-ask-persist", ask(ChainAskKind::Persist(4711))),
        ("chain-persisted", ask(ChainAskKind::Persisted(4711))),
        ("chain-ask-close-after", ask(ChainAskKind::CloseAfter(CloseAfter { at: AT, entry: 99 }))),
        ("chain-closed-after", ask(ChainAskKind::ClosedAfter(CloseAfter { at: AT, entry: 99 }))),
    ]
    .into_iter()
    .chain(questions())
    .collect()
}

fn questions() -> Vec<(&'static str, ServerMessage)> {
    let ask = |at, about| ServerMessage::Question(PeerRequest { id: 5, chains: vec![3, 7], at, about: Some(about) });
    let file = FileReach { inode: 77, chain_count: 8, after: AT, chunks: vec![0, 3, 9, 9], chunk_bytes: 0 };
    let over = vec![FileReach { chunk_bytes: 64 << 20, ..file.clone() }];
    let files = vec![file];
    let answer = PeerResponse {
        id: 5,
        complete: AT,
        tails: vec![FileTail { chunk: Some(3), end: 4096, newest: Some(AT) }, FileTail::default()],
        ..PeerResponse::default()
    };
    let part = BytesPart { inode: 77, index: 3, chain_count: 8, offset: 512, len: 4096, after: 1 };
    let holes = vec![Holes { runs: vec![0, 512] }, Holes::default()];
    let refused = Some(Refusal { reason: 33, message: "not here".into() });
    vec![
        ("question-reach", ask(None, PeerRequestKind::Reach(ReachAsk { files, uncommitted: true }))),
        ("question-reach-over", ask(None, PeerRequestKind::Reach(ReachAsk { files: over, uncommitted: false }))),
        ("question-order", ask(None, PeerRequestKind::Order(CloseAfter { at: AT, entry: 99 }))),
        ("question-persist", ask(None, PeerRequestKind::Persist(PersistAsk {}))),
        (
            "question-records",
            ask(Some(AT), PeerRequestKind::Records(RecordsAsk { inode: 77, chain_count: 8, after: 1, upto: AT })),
        ),
        ("question-kept", ask(None, PeerRequestKind::Kept(KeptAsk { trees: vec![1, 77] }))),
        ("question-touched", ask(Some(AT), PeerRequestKind::Touched(TouchedAsk { after: 1, upto: AT, above: 9 }))),
        ("question-bytes-now", ask(None, PeerRequestKind::Bytes(BytesAsk { parts: vec![part.clone()] }))),
        ("question-bytes", ask(Some(AT), PeerRequestKind::Bytes(BytesAsk { parts: vec![part] }))),
        ("question-record", ask(None, PeerRequestKind::Record(RecordAsk { n: 4711, stamp: AT }))),
        ("answer-tails", ServerMessage::QuestionAnswer(answer)),
        ("answer-bytes", ServerMessage::QuestionAnswer(PeerResponse { id: 5, holes, ..PeerResponse::default() })),
        ("answer-refused", ServerMessage::QuestionAnswer(PeerResponse { id: 5, refused, ..PeerResponse::default() })),
        (
            "answer-touched",
            ServerMessage::QuestionAnswer(PeerResponse {
                id: 5,
                inodes: vec![77, 78],
                more_after: Some(AT),
                ..PeerResponse::default()
            }),
        ),
    ]
}

fn heartbeat() -> HeartbeatProto {
    HeartbeatProto {
        incarnation: 4,
        number: 10,
        heard: 9,
        clock: Some(ClockOffsetProto { offset_us: -3, error_us: 8 }),
        resigns: true,
        address: "b:7470".into(),
        devices: vec![DeviceProto { device: 1, capacity_bytes: 1 << 40, has_failed: true, is_full: false }],
        chains: vec![ChainReport {
            chain: 3,
            epoch: 7,
            caught_up: 2,
            is_ready: true,
            last_epoch: 6,
            last: 4711,
            has_failed: true,
            unreachable: 5,
            left_bytes: 1 << 30,
            lost_from: 0,
            lost_to: 0,
            newest: 0,
            is_full: false,
        }],
        remains_chains: 0,
        remains_bytes: 0,
        trouble: String::new(),
    }
}

fn heartbeat_after_a_loss() -> HeartbeatProto {
    let whole = heartbeat();
    let lost = |report: &ChainReport| ChainReport { lost_from: AT, lost_to: AT + 9, newest: AT + 1, ..*report };
    HeartbeatProto { chains: whole.chains.iter().map(lost).collect(), ..whole }
}

/// Of a server whose disk takes no more.
fn heartbeat_in_trouble() -> HeartbeatProto {
    let whole = heartbeat();
    let devices = whole.devices.iter().map(|device| DeviceProto { is_full: true, ..device.clone() }).collect();
    let chains = whole.chains.iter().map(|report| ChainReport { is_full: true, ..*report }).collect();
    HeartbeatProto { devices, chains, trouble: "the disk is full".into(), ..whole }
}

/// Of a server that others have taken chains over from.
fn heartbeat_with_remains() -> HeartbeatProto {
    HeartbeatProto { remains_chains: 5, remains_bytes: 7 << 30, ..heartbeat() }
}

fn grant() -> LeaseGrantProto {
    let configuration = ConfigurationProto { epoch: 8, members: vec![1, 300], syncing: 3, joining: true };
    LeaseGrantProto {
        number: 10,
        incarnation: 4,
        wall_us: 1_763_856_000_000_000,
        version: 12,
        lease_ns: 2_000_000_000,
        chains: vec![AssignmentProto {
            chain: 3,
            device: 1,
            configuration: Some(configuration),
            resumed_epoch: 5,
            resumed_missing: true,
        }],
    }
}
