//! A few members whose messages arrive when the test says so, on disks that forget nothing but what they are told to.

use std::collections::{BTreeMap, VecDeque};

use frieze_base::{Fault, LogIndex, NodeId, Reason, Rng, SegmentId};
use frieze_hlc::Hlc;

use crate::message::{DataEnd, JournalSegment, LogEntry};
use crate::raft::{
    BatchDurability, MemberChange, MemberEffect, MemberFrom, MemberInput, MemberRecovered, MemberSettings, Members,
    PeerKind, PeerMessage, RaftMember, RaftRole, SnapshotMeta,
};
use crate::{Error, Mend, SegmentSource};

/// The files of one member.
#[derive(Clone, Debug, Default)]
pub(super) struct MemberFiles(pub(super) BTreeMap<u64, Vec<u8>>);

impl SegmentSource for MemberFiles {
    fn segments(&mut self) -> Result<Vec<(SegmentId, u64)>, Fault> {
        Ok(self.0.iter().map(|(id, bytes)| (SegmentId(*id), bytes.len() as u64)).collect())
    }

    fn read(&mut self, segment: SegmentId, offset: u64, into: &mut [u8]) -> Result<usize, Fault> {
        let rest = &self.0[&segment.0][offset as usize..];
        let len = rest.len().min(into.len());
        into[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }
}

impl MemberFiles {
    pub(super) fn write(&mut self, roll: Option<JournalSegment>, segment: SegmentId, offset: u64, bytes: &[u8]) {
        if let Some(roll) = roll {
            let mut file = roll.recycle.map_or(Vec::new(), |old| self.0.remove(&old.0).unwrap());
            file.resize(roll.bytes as usize, 0);
            file[..roll.header.len()].copy_from_slice(&roll.header);
            self.0.insert(roll.segment.0, file);
        }
        let file = self.0.get_mut(&segment.0).unwrap();
        file[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
    }
}

/// One member and what it has done.
pub(super) struct One {
    pub(super) member: RaftMember,
    pub(super) files: MemberFiles,
    /// The files as they were at the last flush.
    pub(super) flushed: MemberFiles,
    pub(super) incarnation: u64,
    /// Flushes end at once.
    pub(super) flushes: bool,
    /// Of those only the urgent ones.
    pub(super) is_lazy: bool,
    /// The next record fails to be written after so many bytes of it, and those after it are not tried.
    pub(super) fails_after: Option<usize>,
    /// Where its data log ends.
    pub(super) data_end: DataEnd,
    pub(super) written: LogIndex,
    pub(super) executed: Vec<LogEntry>,
    pub(super) applied: LogIndex,
    pub(super) installed: Option<SnapshotMeta>,
    /// What it said, and was not for another member.
    pub(super) said: Vec<MemberEffect>,
}

pub(super) struct RaftGroup {
    pub(super) ones: BTreeMap<u32, One>,
    pub(super) under_way: VecDeque<PeerMessage>,
    pub(super) settings: MemberSettings,
    stamp: u64,
}

/// A message of a member's first incarnation that says nothing but its kind.
pub(super) fn message(kind: PeerKind, from: u32, to: u32, term: u64) -> PeerMessage {
    let plain = PeerMessage::new(kind, NodeId(from), NodeId(to), term);
    PeerMessage { incarnation: 1, votes: true, ..plain }
}

/// A batch that is acknowledged from memory.
pub(super) fn propose(body: Vec<u8>) -> MemberInput {
    let (data_end, durability) = (DataEnd::default(), BatchDurability::Memory);
    MemberInput::Propose { body, count: 1, data_end, durability }
}

pub(super) fn settings() -> MemberSettings {
    MemberSettings { segment_bytes: 2048, promote_lag: 1, ..MemberSettings::default() }
}

pub(super) fn founders(count: u32) -> SnapshotMeta {
    let members = Members { voters: (1..=count).map(NodeId).collect(), learners: Vec::new() };
    SnapshotMeta { index: LogIndex(1), term: 1, stamp: Hlc(1), members }
}

impl RaftGroup {
    pub(super) fn of(count: u32) -> RaftGroup {
        RaftGroup::with(settings(), count)
    }

    /// One member with these settings.
    pub(super) fn alone(settings: MemberSettings) -> RaftGroup {
        RaftGroup::with(settings, 1)
    }

    fn with(settings: MemberSettings, count: u32) -> RaftGroup {
        let mut group = RaftGroup { ones: BTreeMap::new(), under_way: VecDeque::new(), settings, stamp: 100 };
        for id in 1..=count {
            let settings = group.settings.clone();
            let (member, effects) = RaftMember::found(NodeId(id), settings, (id.into(), 1), founders(count));
            group.add(id, member, effects, Some(founders(count)));
        }
        group
    }

    fn add(&mut self, id: u32, member: RaftMember, effects: Vec<MemberEffect>, from: Option<SnapshotMeta>) {
        let applied = from.as_ref().map_or(LogIndex(0), |from| from.index);
        let one = One {
            member,
            files: MemberFiles::default(),
            flushed: MemberFiles::default(),
            incarnation: 1,
            flushes: true,
            is_lazy: false,
            fails_after: None,
            data_end: DataEnd::default(),
            written: LogIndex(0),
            executed: Vec::new(),
            applied,
            installed: from,
            said: Vec::new(),
        };
        self.ones.insert(id, one);
        self.obey(id, effects);
    }

    /// A member that waits to be added.
    pub(super) fn join(&mut self, id: u32) {
        let (member, effects) = RaftMember::join(NodeId(id), self.settings.clone(), (id.into(), 1));
        self.add(id, member, effects, None);
    }

    pub(super) fn give(&mut self, id: u32, input: MemberInput) {
        self.stamp += 10;
        let mut effects = Vec::new();
        let one = self.ones.get_mut(&id).unwrap();
        if matches!(input, MemberInput::Persisted { .. }) {
            one.flushed = one.files.clone();
        }
        let stamp = Hlc(self.stamp).max(one.member.newest().next());
        one.member.step(stamp, input, &mut effects);
        self.obey(id, effects);
    }

    fn obey(&mut self, id: u32, effects: Vec<MemberEffect>) {
        let mut inputs = Vec::new();
        let mut has_failed = false;
        for effect in effects {
            let one = self.ones.get_mut(&id).unwrap();
            match effect {
                MemberEffect::Append { .. } if has_failed => {}
                MemberEffect::Append { record, roll, segment, offset, bytes, .. } if one.fails_after.is_some() => {
                    let len = one.fails_after.take().unwrap().min(bytes.len());
                    one.files.write(roll, segment, offset, &bytes[..len]);
                    has_failed = true;
                    inputs.insert(0, MemberInput::AppendFailed { record, reason: Reason::NoSpace });
                }
                MemberEffect::Append { record, roll, segment, offset, bytes, urgent } => {
                    one.files.write(roll, segment, offset, &bytes);
                    one.written = record;
                    inputs.push(MemberInput::Appended { record });
                    if one.flushes && (urgent || !one.is_lazy) {
                        inputs.push(MemberInput::Persisted { record });
                    }
                }
                MemberEffect::Erase { segment, offset, len } => {
                    let file = one.files.0.get_mut(&segment.0).unwrap();
                    file[offset as usize..(offset + len) as usize].fill(0);
                }
                MemberEffect::Remove { segment } => drop(one.files.0.remove(&segment.0)),
                MemberEffect::Send(message) | MemberEffect::SendSnapshot { message, .. } => {
                    self.under_way.push_back(message);
                }
                MemberEffect::Committed { through, entries } => {
                    one.executed.extend(entries);
                    one.applied = through;
                    inputs.push(MemberInput::Applied { index: through });
                }
                MemberEffect::Install { meta } => {
                    one.applied = meta.index;
                    one.installed = Some(meta.clone());
                    one.said.push(MemberEffect::Install { meta });
                }
                other => one.said.push(other),
            }
        }
        for input in inputs {
            self.give(id, input);
        }
    }

    /// Delivers everything under way but what `lost` says, until nothing is.
    pub(super) fn deliver_but(&mut self, lost: impl Fn(&PeerMessage) -> bool) {
        while let Some(message) = self.under_way.pop_front() {
            let to = message.to.0;
            let is_lost = lost(&message);
            if is_lost && message.snapshot.is_some() {
                self.give(message.from.0, MemberInput::SnapshotSent { to: message.to, whole: false });
            }
            if !is_lost && self.ones.contains_key(&to) {
                self.give(to, MemberInput::Receive(message));
            }
        }
    }

    pub(super) fn deliver(&mut self) {
        self.deliver_but(|_| false);
    }

    /// So many ticks of every member, with everything delivered in between but what `lost` says.
    pub(super) fn ticks_but(&mut self, count: u32, lost: impl Fn(&PeerMessage) -> bool) {
        for _ in 0..count {
            for id in self.ones.keys().copied().collect::<Vec<_>>() {
                self.give(id, MemberInput::Tick);
            }
            self.deliver_but(&lost);
        }
    }

    pub(super) fn ticks(&mut self, count: u32) {
        self.ticks_but(count, |_| false);
    }

    /// Waits for a leader that all follow.
    pub(super) fn elect(&mut self) -> u32 {
        self.ticks(100);
        self.leader().expect("a hundred ticks are enough")
    }

    pub(super) fn leader(&self) -> Option<u32> {
        let leads = self.ones.iter().filter(|(_, one)| one.member.role() == RaftRole::Leader);
        leads.max_by_key(|(_, one)| one.member.term()).map(|(id, _)| *id)
    }

    pub(super) fn propose(&mut self, id: u32, words: &str) {
        let body = words.as_bytes().to_vec();
        self.give(id, propose(body));
    }

    pub(super) fn change(&mut self, change: MemberChange) {
        let leader = self.leader().unwrap();
        self.give(leader, MemberInput::Change(change));
        self.deliver();
        self.ticks(5);
    }

    /// Why the leader refuses a change.
    pub(super) fn refused(&mut self, change: MemberChange) -> Error {
        let leader = self.leader().unwrap();
        self.said(leader);
        self.give(leader, MemberInput::Change(change));
        let refused = self.said(leader).into_iter().find_map(|effect| match effect {
            MemberEffect::Refused(error) => Some(error),
            _ => None,
        });
        refused.unwrap_or_else(|| panic!("{change:?} is not refused"))
    }

    /// What a member has executed, in words.
    pub(super) fn words(&self, id: u32) -> Vec<String> {
        let bodies = self.ones[&id].executed.iter();
        bodies.map(|entry| String::from_utf8(entry.body.clone()).unwrap()).collect()
    }

    pub(super) fn said(&mut self, id: u32) -> Vec<MemberEffect> {
        std::mem::take(&mut self.ones.get_mut(&id).unwrap().said)
    }

    /// Starts a member again from its files and a store that holds entries up to `applied`.
    pub(super) fn restart(&mut self, id: u32, applied: LogIndex) -> Result<(), Error> {
        self.begin_again(id, applied, true)
    }

    /// A loss of power: what no flush covered is lost, and the member starts again.
    pub(super) fn lose_power(&mut self, id: u32) {
        let one = self.ones.get_mut(&id).unwrap();
        one.files = one.flushed.clone();
        let installed = one.installed.as_ref().map_or(LogIndex(0), |meta| meta.index);
        self.begin_after_loss(id, installed).unwrap();
    }

    /// The same, but each 32 bytes and each file may be as of the last flush or as of now.
    pub(super) fn tear(&mut self, id: u32, rng: &mut Rng) {
        let one = self.ones.get_mut(&id).unwrap();
        let mut after = one.flushed.clone();
        for (segment, now) in &one.files.0 {
            let Some(before) = after.0.get_mut(segment) else {
                if rng.chance(2) {
                    let mut file = now.clone();
                    file.chunks_mut(32).filter(|_| rng.chance(2)).for_each(|piece| piece.fill(0));
                    after.0.insert(*segment, file);
                }
                continue;
            };
            for (kept, new) in before.chunks_mut(32).zip(now.chunks(32)) {
                if rng.chance(2) {
                    kept.copy_from_slice(new);
                }
            }
        }
        one.files = after;
    }

    /// Starts a member after a loss of power, from what is left.
    pub(super) fn begin_after_loss(&mut self, id: u32, applied: LogIndex) -> Result<(), Error> {
        self.begin_again(id, applied, false)
    }

    fn begin_again(&mut self, id: u32, applied: LogIndex, kept_memory: bool) -> Result<(), Error> {
        let one = self.ones.get_mut(&id).unwrap();
        one.incarnation += 1;
        let stamp_bound = Hlc(self.stamp).max(one.member.newest());
        let (seed, incarnation, installed) = (99 + u64::from(id), one.incarnation, one.installed.clone());
        let (id_of, data_end) = (NodeId(id), Some(one.data_end));
        let from = MemberFrom { id: id_of, seed, incarnation, kept_memory, stamp_bound, applied, installed, data_end };
        let MemberRecovered { member, report, mend, effects } =
            RaftMember::recover(self.settings.clone(), &from, &mut one.files)?;
        for one_mend in mend {
            match one_mend {
                Mend::Erase { segment, offset, len } => {
                    let file = one.files.0.get_mut(&segment.0).unwrap();
                    file[offset as usize..(offset + len) as usize].fill(0);
                }
                Mend::Remove { segment } => drop(one.files.0.remove(&segment.0)),
            }
        }
        one.member = member;
        one.written = report.last;
        // The driver syncs what was recovered.
        one.flushed = one.files.clone();
        one.executed.retain(|entry| entry.index <= applied);
        one.applied = applied;
        self.obey(id, effects);
        Ok(())
    }
}
