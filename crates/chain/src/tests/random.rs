//! Random lives of one replica with retries, failing appends, crashes and restarts: the invariants of protocols §9 that
//! one member can break hold after every step, and once faults stop everybody has been answered.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use frieze_base::{ChainEpoch, ChainId, ChunkId, InodeId, Reason, SegmentId, Seq, SessionId};
use frieze_hlc::Hlc;
use frieze_wire::chain::{Configuration, RecordHeader};
use frieze_wire::message::Durability;
use proptest::prelude::*;

use crate::{AppendToken, LogEnd, Moment, Replica, ReplicaEffect, ReplicaInput, RequestId, Settings, WriteRequest};

#[derive(Clone, Debug)]
enum Op {
    Write { session: u64, back: u64, sync: bool, chunk: u32, parts: u8 },
    Complete,
    Fail { which: usize },
    Persist { to: u64 },
    Close { ago: u64 },
    Configure,
    Crash { power: bool, keep: u64 },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (1..4u64, 0..4u64, any::<bool>(), 0..3u32, 1..3u8)
            .prop_map(|(session, back, sync, chunk, parts)| Op::Write { session, back, sync, chunk, parts }),
        6 => Just(Op::Complete),
        1 => (0..4usize).prop_map(|which| Op::Fail { which }),
        2 => (0..5u64).prop_map(|to| Op::Persist { to }),
        2 => (0..40u64).prop_map(|ago| Op::Close { ago }),
        1 => Just(Op::Configure),
        1 => (any::<bool>(), 0..5u64).prop_map(|(power, keep)| Op::Crash { power, keep }),
    ]
}

/// A request as its sender knows it.
#[derive(Clone, Copy, Debug)]
struct Asked {
    name: Name,
    sync: bool,
}

/// Session, number, part.
type Name = (u64, u64, u8);

/// The request to answer.
#[derive(Clone, Copy, Debug)]
enum Waiting {
    Write(Asked),
    Close(Hlc),
}

/// The driver, the device, and the promises of each member.
struct LoneReplica {
    replica: Replica,
    hlc: u64,
    requests: u64,
    waiting: BTreeMap<RequestId, Waiting>,
    /// Appends under way, oldest first.
    appends: VecDeque<(AppendToken, RecordHeader)>,
    /// The device's log; record i ends at offset i + 1.
    log: Vec<RecordHeader>,
    persisted: usize,
    /// Newest number each session has used.
    numbers: BTreeMap<u64, u64>,
    extents: BTreeMap<RequestId, (Name, ChunkId)>,
    answered: BTreeMap<Name, Hlc>,
    closed: Hlc,
    clean: u64,
}

impl LoneReplica {
    fn new() -> LoneReplica {
        LoneReplica {
            replica: Replica::new(ChainId(1), ChainEpoch(1), Settings { in_flight_max: 6, ..Settings::default() }),
            hlc: 100,
            requests: 0,
            waiting: BTreeMap::new(),
            appends: VecDeque::new(),
            log: Vec::new(),
            persisted: 0,
            numbers: BTreeMap::new(),
            extents: BTreeMap::new(),
            answered: BTreeMap::new(),
            closed: Hlc::ZERO,
            clean: 0,
        }
    }

    fn end(&self, records: usize) -> LogEnd {
        LogEnd { segment: SegmentId(1), offset: records as u64 }
    }

    fn request(&mut self) -> RequestId {
        self.requests += 1;
        RequestId(self.requests)
    }

    fn play(&mut self, op: &Op) {
        match *op {
            Op::Write { session, back, sync, chunk, parts } => {
                let newest = self.numbers.entry(session).or_default();
                if back == 0 {
                    *newest += 1;
                }
                let seq = newest.saturating_sub(back).max(1);
                *newest = (*newest).max(seq);
                self.hlc += 3;
                for part in 0..parts {
                    self.write((session, seq, part), parts, sync, chunk + u32::from(part));
                }
            }
            Op::Complete => {
                if let Some((token, record)) = self.appends.pop_front() {
                    self.log.push(record);
                    let end = self.end(self.log.len());
                    self.step(ReplicaInput::Appended { token, end });
                }
            }
            Op::Fail { which } => {
                if which < self.appends.len() {
                    let failed: Vec<_> = self.appends.drain(which..).collect();
                    for (token, _) in failed {
                        self.step(ReplicaInput::AppendFailed { token, reason: Reason::NoSpace });
                    }
                }
            }
            Op::Persist { to } => {
                self.persisted = (self.persisted + to as usize).min(self.log.len());
                let through = self.end(self.persisted);
                self.step(ReplicaInput::Persisted { through });
            }
            Op::Close { ago } => {
                let request = self.request();
                let at = Hlc(self.hlc.saturating_sub(ago));
                self.waiting.insert(request, Waiting::Close(at));
                self.step(ReplicaInput::Close { request, at });
            }
            Op::Configure => {
                let epoch = ChainEpoch(self.replica.epoch().0 + 1);
                self.step(ReplicaInput::Configure(Configuration::alone(epoch)));
            }
            Op::Crash { power, keep } => self.crash(power, keep as usize),
        }
    }

    fn write(&mut self, name: Name, parts: u8, sync: bool, chunk: u32) {
        let request = self.request();
        let (session, seq, part) = name;
        let chunk = ChunkId { inode: InodeId(7), index: chunk };
        self.waiting.insert(request, Waiting::Write(Asked { name, sync }));
        self.extents.insert(request, (name, chunk));
        self.step(ReplicaInput::Write(WriteRequest {
            request,
            header: RecordHeader {
                session: SessionId(session),
                seq: Seq(seq),
                epoch: self.replica.epoch(),
                chunk,
                len: 1,
                part,
                parts,
                ..RecordHeader::ZERO
            },
            acked: Seq(0),
            seen: Hlc(self.hlc - 1),
            file_offset: 0,
            durability: if sync { Durability::Sync } else { Durability::Async },
            chunk_version: 0,
            newest_user_time: None,
            times_after: Hlc::ZERO,
        }));
    }

    /// The server stops; the log keeps what is durable and, if only the process died, everything.
    fn crash(&mut self, power: bool, keep: usize) {
        if power {
            let kept = (self.persisted + keep).min(self.log.len());
            for lost in self.log.drain(kept..) {
                self.answered.remove(&(lost.session.0, lost.seq.0, lost.part));
            }
        }
        self.waiting.clear();
        self.appends.clear();
        let settings = Settings { in_flight_max: 6, ..Settings::default() };
        self.replica = Replica::new(ChainId(1), ChainEpoch(1), settings);
        for record in &self.log {
            assert_eq!(self.replica.replay(record), Ok(0));
        }
        self.clean = self.replica.clean();
        assert_eq!(self.clean, self.log.len() as u64, "what was recovered is committed");
        let epoch = ChainEpoch(self.replica.epoch().0 + 1);
        self.step(ReplicaInput::Configure(Configuration::alone(epoch)));
    }

    fn step(&mut self, input: ReplicaInput) {
        let mut out = Vec::new();
        self.replica.step(Moment { hlc: Hlc(self.hlc), ..Moment::default() }, input, &mut out);
        for effect in out {
            self.take(effect);
        }
        self.check();
    }

    fn take(&mut self, effect: ReplicaEffect) {
        match effect {
            ReplicaEffect::Append { token, request, header } => {
                let (name, chunk) = self.extents[&request];
                assert_eq!(((header.session.0, header.seq.0, header.part), header.chunk), (name, chunk));
                assert!(header.stamp > self.closed, "stamped {} though {} is closed", header.stamp, self.closed);
                assert_eq!(header.n, (self.log.len() + self.appends.len()) as u64 + 1);
                self.appends.push_back((token, header));
            }
            ReplicaEffect::Reply { request, result } => {
                let waiting = self.waiting.remove(&request).expect("answered once, and only who asked");
                if let (Waiting::Write(asked), Ok(done)) = (waiting, result) {
                    let place = self.log.iter().position(|r| (r.session.0, r.seq.0, r.part) == asked.name);
                    let place = place.expect("answered only when it is whole in the log");
                    assert_eq!(done.stamp, self.log[place].stamp);
                    assert_eq!(done.chunk, self.log[place].chunk);
                    let before = self.answered.insert(asked.name, done.stamp);
                    assert!(before.is_none_or(|stamp| stamp == done.stamp), "a retry is answered as the first");
                    let first_asked_sync = before.is_none() && asked.sync;
                    assert!(!first_asked_sync || place < self.persisted || place < self.clean as usize);
                }
            }
            ReplicaEffect::Closed { request, at } => {
                assert!(matches!(self.waiting.remove(&request), Some(Waiting::Close(asked)) if asked == at));
                assert!(self.appends.iter().all(|(_, record)| record.stamp > at), "closed above a record on its way");
                self.closed = self.closed.max(at);
            }
            ReplicaEffect::AppendForwarded { .. }
            | ReplicaEffect::Send { .. }
            | ReplicaEffect::TailCut { .. }
            | ReplicaEffect::Supply { .. }
            | ReplicaEffect::Discard { .. }
            | ReplicaEffect::CaughtUp { .. }
            | ReplicaEffect::Ready { .. }
            | ReplicaEffect::Distrust { .. } => {
                panic!("a replica alone: {effect:?}")
            }
        }
    }

    fn check(&mut self) {
        assert!(self.log.is_sorted_by(|a, b| (a.epoch, a.n) < (b.epoch, b.n) && a.stamp <= b.stamp));
        assert!(self.log.iter().enumerate().all(|(i, record)| record.n == i as u64 + 1), "no hole");
        let names: BTreeSet<_> = self.log.iter().map(|record| (record.session, record.seq, record.part)).collect();
        assert_eq!(names.len(), self.log.len(), "each request has one record");
        assert!(self.replica.clean() >= self.clean, "the commit position never goes back");
        self.clean = self.replica.clean();
        let cut = self.replica.now_cut();
        assert!(self.log[self.clean as usize..].iter().all(|record| record.stamp > cut), "now shows what is committed");
        assert!(self.replica.closed() < Hlc(self.hlc + 1));
    }

    /// Lets everything under way come to its end.
    fn finish(&mut self) {
        while !self.appends.is_empty() {
            self.play(&Op::Complete);
        }
        self.play(&Op::Persist { to: u64::from(u32::MAX) });
        assert!(self.waiting.is_empty(), "everybody is answered once faults stop: {:?}", self.waiting);
        assert_eq!(self.replica.clean(), self.replica.last());
        assert_eq!(self.replica.now_cut(), Hlc::MAX);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn every_life_of_a_replica_keeps_its_promises(ops in prop::collection::vec(op(), 1..60)) {
        let mut lone = LoneReplica::new();
        for op in &ops {
            lone.play(op);
        }
        lone.finish();
    }
}
