//! The world: a chain, servers that execute the log of names at speeds of their own, a leader, faults.

use std::collections::BTreeMap;

use frieze_base::{ByteRange, ChainEpoch, InodeId, Rng};
use frieze_hlc::Hlc;
use frieze_retention::{PolicyNumber, RetentionEntry, RetentionMark};

use crate::breakage::RetentionBreak;
use crate::common::RecordExtent;
use crate::judge::{BYTES, Judge};
use crate::names::{BEGIN, BEHIND_MAX, FILES, NamesEntry, NamesLog, seconds};
use crate::node::{NodeRole, RecordBytes, ReplicaNode};

pub(crate) const NODES: usize = 4;
const MEMBERS: usize = 3;
const DIRTY_MAX: u64 = 5;

#[derive(Debug)]
pub(crate) struct ReplicaWorld {
    pub(crate) rng: Rng,
    pub(crate) broken: Option<RetentionBreak>,
    /// True time, in seconds.
    now: u64,
    pub(crate) names: NamesLog,
    /// Entries that the leader has proposed, and that may be lost.
    pub(crate) proposed: Vec<NamesEntry>,
    /// How far the leader's clock is ahead, in seconds.
    leader_ahead: u64,
    pub(crate) nodes: Vec<ReplicaNode>,
    /// Members, head first.
    pub(crate) chain: Vec<usize>,
    epoch: u64,
    /// Acknowledged promise: the instant, and the last number at or below it.
    pub(crate) closed: (Hlc, u64),
    /// The head's promise on its way down.
    promise: Option<(Hlc, u64)>,
    /// Everything that this head has promised.
    promised: Hlc,
    pub(crate) judge: Judge,
    /// What the run has reached: a model that reaches nothing finds nothing.
    pub(crate) reached: BTreeMap<&'static str, u64>,
}

impl ReplicaWorld {
    pub(crate) fn new(seed: u64, broken: Option<RetentionBreak>) -> ReplicaWorld {
        let mut rng = Rng::new(seed);
        let skew = *rng.choose(&[0, 2, 15, 60]);
        let nodes = (0..NODES)
            .map(|_| ReplicaNode::new(rng.below(2 * skew + 1) as i64 - skew as i64, *rng.choose(&[1, 1, 2, 12])))
            .collect();
        let leader_ahead = if rng.chance(3) { 20 + rng.below(100) } else { 0 };
        let mut world = ReplicaWorld {
            rng,
            broken,
            now: BEGIN,
            names: NamesLog::new(broken),
            proposed: Vec::new(),
            leader_ahead,
            nodes,
            chain: (0..MEMBERS).collect(),
            epoch: 1,
            closed: (Hlc::ZERO, 0),
            promise: None,
            promised: Hlc::ZERO,
            judge: Judge::default(),
            reached: BTreeMap::new(),
        };
        for member in world.chain.clone() {
            world.nodes[member].role = NodeRole::Member;
        }
        world.judge.execute(&world.names);
        world
    }

    pub(crate) fn is(&self, broken: RetentionBreak) -> bool {
        self.broken == Some(broken)
    }

    pub(crate) fn reach(&mut self, what: &'static str) {
        *self.reached.entry(what).or_default() += 1;
    }

    /// Number of the last committed record.
    pub(crate) fn committed(&self) -> u64 {
        self.judge.truth.len() as u64
    }

    pub(crate) fn run(&mut self, steps: u32) {
        // Some history, so that the first marks are about something.
        for _ in 0..self.rng.below(25) {
            self.now += self.rng.below(3);
            self.write();
            self.drain();
        }
        for _ in 0..steps {
            self.step();
            if !self.judge.violations.is_empty() {
                return;
            }
        }
        self.end();
    }

    fn step(&mut self) {
        self.now += self.rng.below(2);
        let node = self.rng.below(NODES as u64) as usize;
        match self.rng.below(100) {
            0..=11 => self.write(),
            12..=23 => self.deliver(),
            24..=29 => self.acknowledge(),
            30..=37 => self.some_nodes(|world, node| world.nodes[node].sync()),
            38..=41 => self.promise(),
            42..=50 => self.some_nodes(Self::execute),
            51..=58 => {
                self.propose();
                if !self.rng.chance(3) {
                    self.decide();
                }
            }
            59 => self.decide(),
            60 => self.jump(),
            61 if self.rng.chance(2) => self.crash(node),
            61 => self.remove(node),
            62..=64 => self.some_nodes(Self::rejoin),
            65..=69 => self.some_nodes(|world, node| (0..5).for_each(|_| world.supply(node))),
            70..=76 => self.some_nodes(Self::pass),
            77..=82 => self.some_nodes(Self::start_pack),
            83..=88 => self.some_nodes(Self::list_pack),
            89 if self.rng.chance(3) => self.rot(node),
            89..=91 => self.mend(node),
            92 => self.nodes[node].is_full = self.rng.chance(8),
            _ => self.read(node),
        }
    }

    fn some_nodes(&mut self, step: impl Fn(&mut Self, usize)) {
        for node in 0..NODES {
            if !self.rng.chance(3) {
                step(self, node);
            }
        }
    }

    // ---- the chain

    fn clock(&self, node: usize) -> Hlc {
        seconds(self.now.saturating_add_signed(self.nodes[node].clock_offset))
    }

    fn write(&mut self) {
        // A removed head does not know it, and numbers records that the chain never has.
        let lost = (0..NODES).find_map(|node| match self.nodes[node].role {
            NodeRole::Removed { head_of } if self.nodes[node].is_up => Some((node, head_of?)),
            _ => None,
        });
        let (head, epoch) = match lost {
            Some(lost) if self.rng.chance(3) => lost,
            _ => (self.chain[0], self.epoch),
        };
        let last = self.nodes[head].last();
        if last > self.committed() + DIRTY_MAX || self.nodes[head].whole_upto() != last {
            return;
        }
        let before = self.nodes[head].extent_of(last);
        let (last_stamp, is_last_mine) =
            before.map_or((Hlc::ZERO, false), |record| (record.stamp, record.epoch.0 == epoch));
        let promised = self.promised.max(self.closed.0);
        // Records of one group share their stamp.
        let stamp = match is_last_mine && last_stamp > promised && self.rng.chance(6) {
            true => last_stamp,
            false => self.clock(head).max(last_stamp.next()).max(promised.next()),
        };
        let (a, b) = (self.rng.below(BYTES), self.rng.below(BYTES));
        let range = ByteRange::new(a.min(b), a.max(b) + 1);
        let inode = InodeId(1 + self.rng.below(FILES));
        let record = RecordExtent { number: last + 1, stamp, epoch: ChainEpoch(epoch), inode, range };
        self.nodes[head].add(record, RecordBytes::Here);
        self.commit();
    }

    fn deliver(&mut self) {
        for place in 1..self.chain.len() {
            if self.rng.chance(3) {
                continue;
            }
            let (from, to) = (self.chain[place - 1], self.chain[place]);
            self.forward(from, to, self.nodes[to].last() + 1);
        }
        let tail = self.tail();
        for node in 0..NODES {
            if let NodeRole::Syncing { base } = self.nodes[node].role
                && self.rng.chance(2)
            {
                let next = self.nodes[node].last().max(base) + 1;
                self.forward(tail, node, next);
            }
        }
        self.commit();
    }

    /// Young records come with their bytes.
    fn forward(&mut self, from: usize, to: usize, number: u64) {
        if let Some(record) = self.nodes[from].records.get(&number)
            && record.bytes == RecordBytes::Here
            && !self.nodes[to].records.contains_key(&number)
        {
            let extent = record.extent;
            self.nodes[to].add(extent, RecordBytes::Here);
        }
    }

    pub(crate) fn tail(&self) -> usize {
        *self.chain.last().expect("a chain has a member")
    }

    /// The tail commits all that it has.
    fn commit(&mut self) {
        let tail = self.tail();
        while self.committed() < self.nodes[tail].last() {
            match self.nodes[tail].extent_of(self.committed() + 1) {
                Some(record) => self.judge.commit(record),
                None => return self.judge.fail(format!("the tail lacks {}", self.committed() + 1)),
            }
        }
        let committed = self.committed();
        self.nodes[tail].clean = committed;
        if let Some((closed, number)) = self.promise.filter(|(_, number)| *number <= committed) {
            self.closed = (closed, number);
            self.promise = None;
        }
    }

    fn acknowledge(&mut self) {
        for place in (1..self.chain.len()).rev() {
            let (to, from) = (self.chain[place - 1], self.chain[place]);
            if self.rng.chance(3) {
                return;
            }
            let clean = self.nodes[from].clean.min(self.nodes[to].last());
            self.nodes[to].clean = self.nodes[to].clean.max(clean);
        }
    }

    fn promise(&mut self) {
        let head = self.chain[0];
        if self.promise.is_none() {
            self.promised = self.promised.max(self.closed.0).max(self.clock(head));
            let newest = self.nodes[head].extent_of(self.nodes[head].last());
            if let Some(record) = newest {
                self.promised = self.promised.max(record.stamp);
            }
            self.promise = Some((self.promised, self.nodes[head].last()));
            self.commit();
        }
    }

    /// Takes a member out of the chain; the next head knows acknowledged promises only.
    fn leave(&mut self, node: usize) {
        self.chain.retain(|member| *member != node);
        self.epoch += 1;
        (self.promise, self.promised) = (None, self.closed.0);
        self.commit();
    }

    /// Everything on its way arrives.
    pub(crate) fn drain(&mut self) {
        for _ in 0..=DIRTY_MAX {
            self.deliver();
        }
        self.promise();
        self.acknowledge();
    }

    /// The rest of the chain keeps its memory, and has every record whole.
    fn may_leave(&self, node: usize) -> bool {
        let mut rest = self.chain.iter().filter(|member| **member != node).peekable();
        rest.peek().is_some() && rest.all(|member| self.nodes[*member].rotten.is_empty())
    }

    fn crash(&mut self, node: usize) {
        let is_member = self.chain.contains(&node);
        if !self.nodes[node].is_up || (is_member && !self.may_leave(node)) {
            return;
        }
        self.nodes[node].crash();
        if is_member {
            self.leave(node);
            self.reach("members that crashed");
        }
    }

    fn remove(&mut self, node: usize) {
        let is_only_one = (0..NODES).all(|node| !matches!(self.nodes[node].role, NodeRole::Removed { .. }));
        if self.chain.contains(&node) && self.may_leave(node) && is_only_one {
            let head_of = (self.chain[0] == node).then_some(self.epoch);
            self.nodes[node].role = NodeRole::Removed { head_of };
            self.leave(node);
        }
    }

    /// A server that is in no chain starts, learns so, and becomes the next one to be supplied.
    pub(crate) fn rejoin(&mut self, node: usize) {
        let syncs = (0..NODES).any(|node| matches!(self.nodes[node].role, NodeRole::Syncing { .. }));
        if syncs || self.chain.len() == MEMBERS || self.chain.contains(&node) {
            return;
        }
        if self.rng.chance(5) {
            // Another server, with an empty disk.
            let slowness = *self.rng.choose(&[1, 4, 30]);
            self.nodes[node] = ReplicaNode::new(self.nodes[node].clock_offset, slowness);
        }
        let tail = self.tail();
        let epochs = |node: &ReplicaNode| {
            let each = node.records.iter().map(|(number, record)| (*number, record.extent.epoch));
            each.collect::<BTreeMap<u64, ChainEpoch>>()
        };
        let (own, chain) = (epochs(&self.nodes[node]), epochs(&self.nodes[tail]));
        let common =
            (1..).take_while(|number| own.contains_key(number) && own.get(number) == chain.get(number)).count();
        let base = self.nodes[tail].last();
        let node = &mut self.nodes[node];
        node.is_up = true;
        node.candidate = None;
        node.discard_above(common as u64);
        node.role = NodeRole::Syncing { base };
    }

    pub(crate) fn supply(&mut self, node: usize) {
        use RetentionBreak as Break;
        let NodeRole::Syncing { .. } = self.nodes[node].role else { return };
        let tail = self.tail();
        let upto = self.nodes[node].whole_upto();
        if upto >= self.nodes[tail].last() {
            return self.join(node);
        }
        let number = upto + 1;
        let from = &self.nodes[tail];
        let Some(extent) = from.extent_of(number) else { return };
        if from.rotten.contains(&number) {
            return;
        }
        let entry = from.index().get(&number).copied();
        if entry.is_some_and(|entry| entry.has_bytes) {
            return self.nodes[node].add(extent, RecordBytes::Here);
        }
        if entry.is_some_and(|entry| !entry.is_dead && !entry.is_hole) {
            // It was freed before a start, and is not found dead yet.
            return;
        }
        // It died here, or where it came from: it comes as a hole, with what it died by.
        let expired = from.expired.max(from.unstored_expired);
        let to = &mut self.nodes[node];
        if self.broken != Some(Break::SupplyWithoutExpiries) {
            to.expired = to.expired.max(expired);
        }
        if self.broken == Some(Break::SupplySkipsDead) && self.nodes[node].last() > number {
            return self.join(node);
        }
        self.reach("records that were supplied without bytes");
        self.nodes[node].add(extent, RecordBytes::Hole);
    }

    fn join(&mut self, node: usize) {
        let committed = self.committed();
        let joined = &mut self.nodes[node];
        joined.sync();
        joined.role = NodeRole::Member;
        joined.clean = committed;
        self.chain.push(node);
        self.epoch += 1;
        // The head stays, and so do its promises; what is on its way is sent again.
        self.reach("members that returned");
        self.check_parts(node);
        self.commit();
    }

    /// What a server acknowledges has no hole, and no record that is not the chain's.
    fn check_parts(&mut self, node: usize) {
        let this = &self.nodes[node];
        if this.whole_upto() != this.last() {
            self.judge.fail(format!("server {node} acknowledges {} with a hole", this.last()));
        }
        let packed = self.nodes[node]
            .packs
            .iter()
            .flat_map(|pack| pack.live.values().map(|(extent, _)| *extent).chain(pack.dead.values().copied()));
        let logged = self.nodes[node].records.values().map(|record| record.extent);
        for record in packed.chain(logged).collect::<Vec<_>>() {
            if self.judge.truth.get(record.number as usize - 1).is_some_and(|truth| *truth != record) {
                self.judge.fail(format!("server {node} keeps {record:?}, which is not the chain's"));
            }
        }
    }

    // ---- the log of names

    pub(crate) fn execute(&mut self, node: usize) {
        let end = self.names.end();
        let some = 1 + self.rng.below(4) as usize;
        let node = &mut self.nodes[node];
        if node.is_up && self.rng.chance(node.slowness) {
            node.position = (node.position + some).min(end);
        }
    }

    fn jump(&mut self) {
        let ahead = 20 + self.rng.below(200);
        match self.rng.below(3) {
            0 => self.leader_ahead = if self.leader_ahead == 0 { ahead } else { 0 },
            1 => self.now += ahead / 2,
            _ => {
                let node = self.rng.below(NODES as u64) as usize;
                let offset = self.nodes[node].clock_offset + ahead as i64 / 2 - 50;
                self.nodes[node].clock_offset = offset.max(-(BEHIND_MAX as i64));
            }
        }
    }

    fn propose(&mut self) {
        if !self.proposed.is_empty() {
            return;
        }
        let inode = InodeId(1 + self.rng.below(FILES));
        match self.rng.below(12) {
            0..=3 => {
                let marks = self.marks();
                self.proposed.extend(marks);
            }
            4..=6 => {
                let at = self.instant(inode);
                self.proposed.push(NamesEntry::Retain(RetentionEntry::Pin(inode, at)));
            }
            7 | 8 => {
                let pins = self.judge.pins(inode);
                if !pins.is_empty() {
                    let at = *self.rng.choose(&pins);
                    self.proposed.push(NamesEntry::Retain(RetentionEntry::Unpin(inode, at)));
                }
            }
            9 | 10 => {
                let number = PolicyNumber(self.rng.below(4) as u32);
                self.proposed.push(NamesEntry::Retain(RetentionEntry::SetPolicy(inode, number)));
            }
            _ => self.proposed.push(NamesEntry::Truncate(inode, self.rng.below(BYTES))),
        }
    }

    /// Marks that are due, some of them; or one that an older leader had proposed.
    fn marks(&mut self) -> Vec<NamesEntry> {
        let table = &self.names.tables[self.names.end()];
        let closed = match self.is(RetentionBreak::MarkBeyondClosed) {
            true => seconds(self.now + self.leader_ahead),
            false => self.closed.0,
        };
        let mut marks = table.marks_due(closed);
        let older: Vec<RetentionMark> = self.names.entries.iter().filter_map(|(_, entry)| mark_of(entry)).collect();
        if self.rng.chance(3) && !older.is_empty() {
            // An older leader had proposed it.
            marks = vec![*self.rng.choose(&older)];
        }
        marks.retain(|_| !self.rng.chance(3));
        marks.into_iter().map(|mark| NamesEntry::Retain(RetentionEntry::Mark(mark))).collect()
    }

    /// What was proposed is committed, or lost with its leader.
    fn decide(&mut self) {
        let proposed = std::mem::take(&mut self.proposed);
        if !self.rng.chance(4) {
            self.append(proposed);
        }
    }

    pub(crate) fn append(&mut self, entries: Vec<NamesEntry>) {
        for entry in entries {
            self.names.append(self.closed.0, entry);
        }
        self.judge.execute(&self.names);
    }

    /// An instant that is worth a question.
    pub(crate) fn instant(&mut self, inode: InodeId) -> Hlc {
        let truth = &self.judge.truth;
        match self.rng.below(4) {
            0 | 1 if !truth.is_empty() => {
                let stamp = self.rng.choose(truth).stamp;
                *self.rng.choose(&[stamp, stamp, stamp.next(), stamp.previous()])
            }
            2 => {
                let pins = self.judge.pins(inode);
                if pins.is_empty() { self.closed.0 } else { *self.rng.choose(&pins) }
            }
            _ => seconds(BEGIN + self.rng.below(self.now - BEGIN + 1)),
        }
        .min(self.closed.0)
    }
}

fn mark_of(entry: &NamesEntry) -> Option<RetentionMark> {
    match entry {
        NamesEntry::Retain(RetentionEntry::Mark(mark)) => Some(*mark),
        _ => None,
    }
}
