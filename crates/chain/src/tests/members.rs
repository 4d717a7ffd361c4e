//! Random lives of chains of two to four members under a seed: messages are lost, doubled and out of order, clocks
//! differ, disks refuse records, members die or are taken out, come back without what they had not flushed, and are brought up to date. The
//! invariants of protocols §9 (1 to 4, 6, 8, 11) hold after every step.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};

use frieze_base::{ByteRange, ChainEpoch, ChainId, ChunkId, InodeId, NodeId, Reason, Rng, SegmentId, Seq};
use frieze_hlc::Hlc;
use frieze_testkit::seeds::SeedPlan;
use frieze_wire::chain::Configuration;
use frieze_wire::message::Durability;

use crate::{
    AppendToken, ForwardedRecord, LogEnd, Message, Moment, Replica, ReplicaEffect, ReplicaInput, RequestId, Settings,
    WriteRequest,
};

use super::write_of;

/// One member with its device.
struct ChainMember {
    replica: Replica,
    is_up: bool,
    /// Its disk refused a record that its predecessor has.
    has_failed: bool,
    hlc: u64,
    appends: VecDeque<(AppendToken, ForwardedRecord)>,
    log: Vec<ForwardedRecord>,
    persisted: usize,
}

#[derive(Clone, Copy)]
enum Waiting {
    /// Session and number.
    Write(u64, u64),
    Close(Hlc),
    /// So many records had been acknowledged or seen when the read began.
    Look(u64),
}

struct MemberHistory {
    rng: Rng,
    nodes: Vec<ChainMember>,
    /// What the control plane has decided, newest last.
    configurations: Vec<Configuration>,
    net: Vec<(usize, usize, ChainEpoch, Message)>,
    requests: u64,
    waiting: BTreeMap<(usize, RequestId), Waiting>,
    writes: BTreeMap<(usize, RequestId), WriteRequest>,
    numbers: [u64; 3],
    answered: BTreeMap<(u64, u64), (u64, Hlc)>,
    /// Records that some answer has shown to be there.
    known: u64,
    /// What was read at an instant: the last record.
    past: BTreeMap<Hlc, u64>,
    lossy: bool,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    answered: u64,
    looks: u64,
    asked: u64,
    /// Parts that could be read though something else was on its way.
    beside: Cell<u64>,
    closed: u64,
    changes: u64,
    returned: u64,
    discarded: u64,
    supplied: u64,
    refused: u64,
}

const CHAIN: ChainId = ChainId(3);

impl MemberHistory {
    fn new(seed: u64) -> MemberHistory {
        let mut rng = Rng::new(seed);
        let count = rng.between(2, 4) as usize;
        let members: Vec<NodeId> = (1..=count as u32).map(NodeId).collect();
        let first = Configuration { epoch: ChainEpoch(1), members: members.clone(), ..Configuration::default() };
        let settings = settings();
        let node = |&me: &NodeId| ChainMember {
            replica: Replica::member(CHAIN, me, first.clone(), settings.clone()),
            is_up: true,
            has_failed: false,
            hlc: 1000 + 10 * u64::from(me.0),
            appends: VecDeque::new(),
            log: Vec::new(),
            persisted: 0,
        };
        let nodes = members.iter().map(node).collect();
        let (lossy, configurations) = (rng.chance(2), vec![first.clone()]);
        MemberHistory {
            rng,
            nodes,
            configurations,
            net: Vec::new(),
            requests: 0,
            waiting: BTreeMap::new(),
            writes: BTreeMap::new(),
            numbers: [0; 3],
            answered: BTreeMap::new(),
            known: 0,
            past: BTreeMap::new(),
            lossy,
            counts: Counts::default(),
        }
    }

    fn pick(&mut self) -> usize {
        self.rng.below(self.nodes.len() as u64) as usize
    }

    fn request(&mut self) -> RequestId {
        self.requests += 1;
        RequestId(self.requests)
    }

    fn current(&self) -> &Configuration {
        self.configurations.last().expect("there is one from the start")
    }

    fn of(node: NodeId) -> usize {
        node.0 as usize - 1
    }

    fn play(&mut self) {
        let at = self.pick();
        match self.rng.below(20) {
            0..=3 => {
                let head = Self::of(self.current().head().expect("a chain keeps a member"));
                let (session, back) = (self.rng.below(3), self.rng.below(4));
                let newest = &mut self.numbers[session as usize];
                *newest += u64::from(back < 2);
                let seq = newest.saturating_sub(back / 2).max(1);
                *newest = (*newest).max(seq);
                let to = if self.rng.chance(10) { at } else { head };
                self.write(to, session + 1, seq);
            }
            4..=8 => self.complete(at),
            9 => {
                let more = self.rng.below(4) as usize;
                let node = &mut self.nodes[at];
                node.persisted = (node.persisted + more).min(node.log.len());
                let through = end(node.persisted);
                self.step(at, ReplicaInput::Persisted { through });
            }
            10..=15 => self.deliver(),
            16 => {
                let request = self.request();
                let instant = Hlc(self.nodes[at].hlc.saturating_sub(self.rng.below(60)));
                self.waiting.insert((at, request), Waiting::Close(instant));
                self.step(at, ReplicaInput::Close { request, at: instant });
            }
            17 => {
                let request = self.request();
                self.waiting.insert((at, request), Waiting::Look(self.known));
                self.step(at, ReplicaInput::QueryTail { request });
            }
            18 => self.step(at, ReplicaInput::Resend),
            _ if self.rng.chance(6) => self.refuse(at),
            _ if self.rng.chance(5) => self.change(),
            _ if self.rng.chance(3) => self.remove_failed(),
            _ if self.rng.chance(4) => self.come_back(at),
            _ => self.install(at),
        }
        self.check();
    }

    fn write(&mut self, to: usize, session: u64, seq: u64) {
        let request = self.request();
        let chunk = ChunkId { inode: InodeId(7), index: self.rng.below(2) as u32 };
        let index = &self.nodes[to].log;
        let mut write = WriteRequest {
            request,
            durability: if self.rng.chance(3) { Durability::Sync } else { Durability::Async },
            chunk_version: index
                .iter()
                .rev()
                .find(|record| record.header.chunk == chunk)
                .map_or(0, |record| record.header.version),
            ..write_of(session, seq)
        };
        (write.header.epoch, write.header.chunk) = (self.nodes[to].replica.epoch(), chunk);
        self.waiting.insert((to, request), Waiting::Write(session, seq));
        self.writes.insert((to, request), write.clone());
        self.nodes[to].hlc += self.rng.between(1, 9);
        self.step(to, ReplicaInput::Write(write));
    }

    fn complete(&mut self, at: usize) {
        if !self.nodes[at].is_up {
            return;
        }
        let Some((token, record)) = self.nodes[at].appends.pop_front() else { return };
        let node = &mut self.nodes[at];
        assert_eq!(record.header.n, node.log.len() as u64 + 1, "a log has no hole");
        node.log.push(record);
        let end = end(node.log.len());
        self.step(at, ReplicaInput::Appended { token, end });
    }

    /// The disk refuses an append, and those behind it: their places lie behind its own. Other inputs have come since
    /// the replica asked for it.
    fn refuse(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if !node.is_up || node.appends.is_empty() {
            return;
        }
        let which = self.rng.below(node.appends.len() as u64) as usize;
        self.counts.refused += 1;
        node.has_failed |= !node.replica.is_head();
        for (token, _) in node.appends.split_off(which) {
            self.step(at, ReplicaInput::AppendFailed { token, reason: Reason::InputOutput });
        }
    }

    fn deliver(&mut self) {
        if self.net.is_empty() {
            return;
        }
        let which = if self.lossy { self.rng.below(self.net.len() as u64) as usize } else { 0 };
        let (from, to, epoch, message) = self.net.remove(which);
        if self.lossy && self.rng.chance(12) {
            return;
        }
        if self.lossy && self.rng.chance(12) {
            self.net.push((from, to, epoch, message.clone()));
        }
        let newest = message.newest().0;
        self.nodes[to].hlc = self.nodes[to].hlc.max(newest);
        self.step(to, ReplicaInput::Receive { from: NodeId(from as u32 + 1), epoch, message });
    }

    /// A member dies, or is taken out and knows it before anybody else does.
    fn change(&mut self) {
        let which = self.rng.below(self.current().members.len() as u64) as usize;
        self.remove(which);
    }

    /// The control plane has heard that a disk refused a record: it takes the member out.
    fn remove_failed(&mut self) {
        let mut next = self.current().clone();
        if next.syncing.is_some_and(|node| self.nodes[Self::of(node)].has_failed) {
            next.syncing = None;
            next.epoch = ChainEpoch(next.epoch.0 + 1);
            self.configurations.push(next);
        } else if let Some(which) = next.members.iter().position(|node| self.nodes[Self::of(*node)].has_failed) {
            let at = Self::of(next.members[which]);
            if which == 0 && next.members.len() - usize::from(next.joining) == 1 {
                // The chain waits for it: its server is started again.
                self.start(at, self.nodes[at].log.len());
                next.epoch = ChainEpoch(next.epoch.0 + 1);
                self.configurations.push(next);
            } else {
                self.remove(which);
            }
        }
    }

    fn remove(&mut self, which: usize) {
        let mut next = self.current().clone();
        // A joining tail cannot be left alone with the chain.
        let full = next.members.len() - usize::from(next.joining);
        if full == 1 && which == 0 {
            return;
        }
        let gone = next.members.remove(which);
        // Nor can it go on when the one it learns from is gone: it begins again.
        if next.joining && which + 1 >= full {
            if which < full {
                next.syncing = next.members.pop();
            }
            next.joining = false;
        }
        next.epoch = ChainEpoch(next.epoch.0 + 1);
        self.counts.changes += 1;
        let gone = Self::of(gone);
        self.configurations.push(next.clone());
        if self.rng.chance(3) {
            self.step(gone, ReplicaInput::Configure(next));
        } else {
            self.nodes[gone].is_up = false;
            self.waiting.retain(|(at, _), _| *at != gone);
        }
    }

    /// A member that died starts again with what its disk has; one that is out of the chain is brought up to date.
    fn come_back(&mut self, at: usize) {
        let mut next = self.current().clone();
        let node = NodeId(at as u32 + 1);
        if next.holds(node) || next.syncing.is_some() || next.joining {
            return;
        }
        if !self.nodes[at].is_up || self.nodes[at].has_failed {
            let kept = self.rng.between(self.nodes[at].persisted as u64, self.nodes[at].log.len() as u64) as usize;
            self.start(at, kept);
        }
        next.syncing = Some(node);
        next.epoch = ChainEpoch(next.epoch.0 + 1);
        self.configurations.push(next);
        self.counts.returned += 1;
    }

    /// A server starts with the first `kept` records of its log.
    fn start(&mut self, at: usize, kept: usize) {
        let mut replica = Replica::member(CHAIN, NodeId(at as u32 + 1), Configuration::default(), settings());
        let node = &mut self.nodes[at];
        node.log.truncate(kept);
        (node.persisted, node.is_up, node.has_failed) = (kept, true, false);
        node.appends.clear();
        for record in &node.log {
            assert_eq!(replica.replay(&record.header), Ok(0));
        }
        node.replica = replica;
        self.waiting.retain(|(place, _), _| *place != at);
    }

    fn install(&mut self, at: usize) {
        let next = self.current().clone();
        self.step(at, ReplicaInput::Configure(next));
    }

    fn step(&mut self, at: usize, input: ReplicaInput) {
        if !self.nodes[at].is_up {
            // No replica is there to answer.
            if let ReplicaInput::Write(WriteRequest { request, .. })
            | ReplicaInput::Close { request, .. }
            | ReplicaInput::QueryTail { request } = input
            {
                self.waiting.remove(&(at, request));
            }
            return;
        }
        let mut out = Vec::new();
        let hlc = Hlc(self.nodes[at].hlc);
        self.nodes[at].replica.step(Moment { hlc, ..Moment::default() }, input, &mut out);
        for effect in out {
            self.take(at, effect);
        }
    }

    fn take(&mut self, at: usize, effect: ReplicaEffect) {
        match effect {
            ReplicaEffect::Append { token, request, header } => {
                let (write, stamp) = (&self.writes[&(at, request)], header.stamp);
                assert_eq!((header.session, header.seq), (write.header.session, write.header.seq));
                let record = ForwardedRecord { header, durability: write.durability, acked: Seq(0) };
                for node in self.living() {
                    assert!(stamp > node.replica.closed(), "stamped {stamp}, and {} is closed", node.replica.closed());
                }
                self.nodes[at].appends.push_back((token, record));
            }
            ReplicaEffect::AppendForwarded { token, record } => self.nodes[at].appends.push_back((token, *record)),
            ReplicaEffect::Send { to, epoch, message } => self.net.push((at, Self::of(to), epoch, message)),
            ReplicaEffect::Reply { request, result } => {
                let waiting = self.waiting.remove(&(at, request)).expect("answered once, and only who asked");
                if let (Waiting::Write(session, seq), Ok(done)) = (waiting, result) {
                    self.acknowledged(at, (session, seq), done.stamp);
                }
            }
            ReplicaEffect::Closed { request, at: instant } => {
                assert!(matches!(self.waiting.remove(&(at, request)), Some(Waiting::Close(asked)) if asked == instant));
                self.counts.closed += 1;
                let last = last_upto(&self.nodes[at].log, instant);
                let before = *self.past.entry(instant).or_insert(last);
                assert_eq!(before, last, "what is read at {instant} changes");
            }
            ReplicaEffect::TailCut { request, cut } => {
                let Some(Waiting::Look(floor)) = self.waiting.remove(&(at, request)) else { panic!("nobody looks") };
                self.counts.looks += 1;
                self.counts.asked += u64::from(cut != Hlc::MAX);
                let seen = last_upto(&self.nodes[at].log, cut);
                assert!(seen >= floor, "a read begun when {floor} records were known sees {seen}");
                self.known = self.known.max(seen);
            }
            ReplicaEffect::Supply { to, after, upto } => {
                self.counts.supplied += 1;
                let epoch = self.nodes[at].replica.epoch();
                for record in &self.nodes[at].log[after as usize..upto as usize] {
                    let message = Message::Record(Box::new(record.clone()));
                    self.net.push((at, Self::of(to), epoch, message));
                }
            }
            ReplicaEffect::Discard { after } => {
                self.counts.discarded += 1;
                self.start(at, after as usize);
            }
            ReplicaEffect::CaughtUp { node, epoch } => {
                let mut next = self.current().clone();
                if next.epoch == epoch {
                    assert_eq!(next.syncing.take(), Some(node));
                    next.members.push(node);
                    next.joining = true;
                    next.epoch = ChainEpoch(epoch.0 + 1);
                    self.configurations.push(next);
                }
            }
            ReplicaEffect::Ready { epoch } => {
                let mut next = self.current().clone();
                if next.epoch == epoch {
                    next.joining = false;
                    next.epoch = ChainEpoch(epoch.0 + 1);
                    self.configurations.push(next);
                }
            }
            ReplicaEffect::Distrust { peer, why } => panic!("member {} distrusts {peer}: {why}", at + 1),
        }
    }

    fn acknowledged(&mut self, at: usize, name: (u64, u64), stamp: Hlc) {
        let record = find(&self.nodes[at].log, name).expect("answered only when it is in the log").clone();
        assert_eq!(record.header.stamp, stamp);
        let before = self.answered.insert(name, (record.header.n, stamp));
        assert!(before.is_none_or(|before| before == (record.header.n, stamp)), "a retry is answered as the first");
        self.known = self.known.max(record.header.n);
        self.counts.answered += 1;
        let now = self.current();
        let full = &now.members[..now.members.len() - usize::from(now.joining)];
        for member in self.nodes[at].replica.configuration().members.iter().filter(|member| full.contains(member)) {
            let node = &self.nodes[Self::of(*member)];
            // A node that died since had it too, and one that was taken out has no role in the chain.
            assert!(node.log.len() as u64 >= record.header.n, "{member} does not hold record {}", record.header.n);
            if record.durability == Durability::Sync && before.is_none() {
                assert!(node.persisted as u64 >= record.header.n, "{member} holds it in memory only");
            }
        }
    }

    /// The members of the newest configuration, in order.
    fn living(&self) -> impl Iterator<Item = &ChainMember> {
        self.current().members.iter().map(|member| &self.nodes[Self::of(*member)])
    }

    fn check(&self) {
        let living: Vec<&ChainMember> = self.living().collect();
        for pair in living.windows(2) {
            let (before, after) = (&pair[0].log, &pair[1].log);
            assert!(
                after.len() <= before.len() && after[..] == before[..after.len()],
                "a log is no prefix of the one before"
            );
        }
        let shortest = living[..living.len() - usize::from(self.current().joining)].iter().map(|node| node.log.len());
        let shortest = shortest.min().expect("a chain keeps a member") as u64;
        for node in &living {
            assert!(
                node.log.is_sorted_by(|a, b| a.header.stamp < b.header.stamp && a.header.epoch <= b.header.epoch),
                "stamps rise"
            );
            assert!(node.replica.clean() <= shortest, "what is clean is held by all");
        }
        assert!(self.known <= shortest, "what somebody knows is held by all");
        self.check_beside();
    }

    /// A member that reports a part of a chunk as clean shows every record of it that any member has shown.
    fn check_beside(&self) {
        let all = ByteRange::new(0, 1);
        for node in self.living().filter(|node| node.is_up) {
            let cut = node.replica.now_cut();
            for chunk in (0..2).map(|index| ChunkId { inode: InodeId(7), index }) {
                if node.replica.is_clean_in(chunk, all) {
                    let mut known =
                        node.log.iter().filter(|record| record.header.chunk == chunk && record.header.n <= self.known);
                    assert!(known.all(|record| record.header.stamp <= cut), "a record that is known is hidden");
                    self.counts.beside.set(self.counts.beside.get() + u64::from(!node.replica.is_readable_now()));
                }
            }
        }
    }

    /// Faults stop: everybody is answered, and all logs are the same.
    fn finish(&mut self) {
        self.lossy = false;
        for round in 0..60 {
            self.remove_failed();
            for at in 0..self.nodes.len() {
                if round % 4 == 0 {
                    self.come_back(at);
                }
                self.install(at);
                while !self.nodes[at].appends.is_empty() && self.nodes[at].is_up {
                    self.complete(at);
                }
                self.nodes[at].persisted = self.nodes[at].log.len();
                let through = end(self.nodes[at].persisted);
                self.step(at, ReplicaInput::Persisted { through });
                if self.nodes[at].replica.has_unanswered() {
                    self.step(at, ReplicaInput::Resend);
                }
            }
            while !self.net.is_empty() {
                self.deliver();
                self.check();
            }
        }
        let members = self.current().members.clone();
        assert_eq!(members.len(), self.nodes.len(), "everybody is back");
        let head = &self.nodes[Self::of(members[0])];
        for node in self.living() {
            assert!(node.log == head.log, "all logs are the same");
            assert_eq!(node.replica.clean(), node.log.len() as u64, "everything is committed");
            assert!(node.is_up);
            assert_eq!(node.replica.closed(), head.replica.closed(), "everybody knows what is closed");
            assert!(!node.replica.has_unanswered());
        }
        let mut names: Vec<_> = head.log.iter().map(|record| (record.header.session, record.header.seq)).collect();
        names.sort();
        assert!(names.is_sorted_by(|a, b| a < b), "each request has one record");
        for (name, (n, stamp)) in &self.answered {
            let record = find(&head.log, *name).expect("nothing acknowledged is lost");
            assert_eq!((record.header.n, record.header.stamp), (*n, *stamp));
        }
        for (instant, last) in &self.past {
            assert_eq!(last_upto(&head.log, *instant), *last, "what was read at {instant} is so for ever");
        }
        let left: Vec<_> = self.waiting.keys().filter(|(at, _)| members.contains(&NodeId(*at as u32 + 1))).collect();
        assert!(left.is_empty(), "nobody waits once faults stop: {left:?}");
    }
}

fn end(records: usize) -> LogEnd {
    LogEnd { segment: SegmentId(1), offset: records as u64 }
}

fn find(log: &[ForwardedRecord], (session, seq): (u64, u64)) -> Option<&ForwardedRecord> {
    log.iter().find(|record| (record.header.session.0, record.header.seq.0) == (session, seq))
}

fn last_upto(log: &[ForwardedRecord], cut: Hlc) -> u64 {
    log.iter().rev().find(|record| record.header.stamp <= cut).map_or(0, |record| record.header.n)
}

fn settings() -> Settings {
    Settings { in_flight_max: 12, ..Settings::default() }
}

#[test]
fn every_life_of_a_chain_keeps_its_promises() {
    let mut sum = Counts::default();
    let plan = SeedPlan::new(0, 3000, 300);
    let lives = plan.play(|seed, steps| {
        let mut chain = MemberHistory::new(seed);
        for _ in 0..steps {
            chain.play();
        }
        chain.finish();
        chain.counts
    });
    for counts in lives {
        let Counts { answered, looks, asked, beside, closed, changes, returned, discarded, supplied, refused } = counts;
        *sum.beside.get_mut() += beside.get();
        sum.answered += answered;
        sum.looks += looks;
        sum.asked += asked;
        sum.closed += closed;
        sum.changes += changes;
        sum.returned += returned;
        sum.discarded += discarded;
        sum.supplied += supplied;
        sum.refused += refused;
    }
    if !plan.is_whole(3000, 300) {
        return;
    }
    // What it is about has happened.
    assert!(
        sum.answered > 50_000 && sum.looks > 20_000 && sum.asked > 2_000,
        "{} {} {}",
        sum.answered,
        sum.looks,
        sum.asked
    );
    assert!(sum.beside.get() > 20_000, "{}", sum.beside.get());
    assert!(sum.closed > 20_000 && sum.changes > 1_000, "{} {}", sum.closed, sum.changes);
    let Counts { returned, discarded, supplied, refused, .. } = sum;
    assert!(returned > 2_000 && discarded > 200 && supplied > 1_000, "{returned} {discarded} {supplied}");
    assert!(refused > 1_500, "{refused}");
}
