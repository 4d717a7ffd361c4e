//! One simulated machine with a member of the metalog: a disk, a store, a clock that runs slightly wrong.
//!
//! Effects of the member are carried out at once, except the flush, which takes as long as its caller says.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use frieze_base::{LogIndex, NodeId};
use frieze_disk::{CrashKind, Disk, SimDisk};
use frieze_hlc::Hlc;
use frieze_metalog::{
    Error, LogEntry, MemberEffect, MemberFrom, MemberInput, MemberSettings, Members, PeerMessage, RaftMember, RaftRole,
    SnapshotMeta,
};
use frieze_node::SegmentFiles;

use super::breakage::{MemberBreakState, MetalogBreak};
use super::state::MemberState;

/// An event of a host that concerns other hosts.
#[derive(Clone, Debug)]
pub(super) enum HostEffect {
    Sent(PeerMessage, Option<Rc<MemberState>>),
    /// It has executed everything up to here; its terms beside the entries that hold something.
    Executed {
        from: LogIndex,
        after: StateMark,
        terms: Vec<Option<u64>>,
        entries: Vec<LogEntry>,
    },
    Installed(StateMark),
    Role {
        role: RaftRole,
        term: u64,
        leader: Option<NodeId>,
        lost_after: Option<Hlc>,
    },
    /// A majority has the log on stable storage up to here, it says.
    Durable,
    Changed,
    Refused(Error),
    ReadAt {
        token: u64,
        index: LogIndex,
    },
    ReadFailed {
        token: u64,
    },
    Closed(Hlc),
    NotClosed,
    /// The device stopped in the middle of something.
    Died,
    /// The member gave up.
    Failed(Error),
}

/// Identity of a state: its place, its digest, and the count of its requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct StateMark {
    pub(super) applied: LogIndex,
    pub(super) digest: u64,
    pub(super) count: u64,
}

/// Durable content of the store.
#[derive(Clone, Debug, Default)]
struct Stored {
    state: MemberState,
    installed: Option<SnapshotMeta>,
}

pub(super) struct Host {
    pub(super) id: NodeId,
    pub(super) disk: SimDisk,
    pub(super) member: Option<RaftMember>,
    settings: MemberSettings,
    files: SegmentFiles,
    /// The last record written.
    written: LogIndex,
    /// The last one that a flush has covered.
    persisted: LogIndex,
    pub(super) state: MemberState,
    stored: Stored,
    /// States that came with snapshots, until they are installed.
    received: BTreeMap<u64, Rc<MemberState>>,
    /// Microseconds that its wall clock is ahead.
    pub(super) skew_us: i64,
    stamp: Hlc,
    /// Processes that it has been.
    pub(super) life: u64,
    /// A flush ended once: a real machine stores this beside its identity.
    begun: bool,
    /// The log was cut once.
    cut: bool,
    breakage: Option<MetalogBreak>,
    memory: MemberBreakState,
    /// Next state of a store that lags behind.
    lagging: Option<MemberState>,
    /// State that waits until the log is on stable storage so far.
    unstored: Option<MemberState>,
    /// States for learners, until they are durable.
    states_out: Vec<(PeerMessage, Rc<MemberState>)>,
    /// No loss of power took what an earlier process had in memory.
    kept_memory: bool,
}

impl Host {
    pub(super) fn new(id: NodeId, seed: u64, settings: MemberSettings, breakage: Option<MetalogBreak>) -> Host {
        let disk = SimDisk::new(seed);
        Host {
            id,
            files: no_files(&disk),
            disk,
            member: None,
            settings,
            written: LogIndex(0),
            persisted: LogIndex(0),
            state: MemberState::default(),
            stored: Stored::default(),
            received: BTreeMap::new(),
            skew_us: 0,
            stamp: Hlc::ZERO,
            life: 0,
            begun: false,
            cut: false,
            breakage,
            memory: MemberBreakState::default(),
            lagging: None,
            unstored: None,
            states_out: Vec::new(),
            kept_memory: true,
        }
    }

    /// Creates the metalog together with other members.
    pub(super) fn found(&mut self, seed: u64, from: &SnapshotMeta) -> Vec<HostEffect> {
        self.memory.founders = from.members.clone();
        self.state.applied = from.index;
        self.stored = Stored { state: self.state.clone(), installed: Some(from.clone()) };
        let (member, effects) = RaftMember::found(self.id, self.settings.clone(), (seed, self.life + 1), from.clone());
        self.begin(member, effects)
    }

    /// Waits to be added to it.
    pub(super) fn join(&mut self, seed: u64, founders: &Members) -> Vec<HostEffect> {
        self.memory.founders = founders.clone();
        let (member, effects) = RaftMember::join(self.id, self.settings.clone(), (seed, self.life + 1));
        self.begin(member, effects)
    }

    fn begin(&mut self, member: RaftMember, effects: Vec<MemberEffect>) -> Vec<HostEffect> {
        self.life += 1;
        self.member = Some(member);
        let (mut inputs, mut done) = (VecDeque::new(), Vec::new());
        self.perform(effects, &mut inputs, &mut done);
        for input in inputs {
            self.feed(0, input, &mut done);
        }
        done
    }

    /// The process, or the power, is gone.
    pub(super) fn crash(&mut self, kind: CrashKind) {
        self.disk.crash(kind);
        self.kept_memory &= kind == CrashKind::Process;
        (self.unstored, self.states_out) = (None, Vec::new());
        self.life += 1;
        self.member = None;
        self.files = no_files(&self.disk);
        self.received.clear();
        self.state = MemberState::default();
    }

    /// Starts it again.
    pub(super) fn restart(&mut self, seed: u64) -> Result<Vec<HostEffect>, Error> {
        self.disk.restart();
        if self.breakage == Some(MetalogBreak::SuffixForgotten) {
            self.forget_suffix();
        }
        self.state = self.stored.state.clone();
        let counts = [MetalogBreak::SuffixForgotten, MetalogBreak::ReturningCounts].map(Some).contains(&self.breakage);
        let from = MemberFrom {
            id: self.id,
            seed,
            incarnation: self.life + 1,
            kept_memory: self.kept_memory || counts,
            // A real machine makes a bound durable before it gives or acknowledges a stamp.
            stamp_bound: self.stamp,
            applied: self.state.applied,
            installed: self.stored.installed.clone(),
            data_end: None,
        };
        let mut files = no_files(&self.disk);
        let mut recovered = match RaftMember::recover(self.settings.clone(), &from, &mut files) {
            // No client received an answer.
            Err(Error::NeverBegun) if !self.begun => {
                self.files.remove_all().map_err(Error::Source)?;
                (self.written, self.persisted) = (LogIndex(0), LogIndex(0));
                return Ok(match from.installed {
                    Some(meta) => self.found(seed, &meta),
                    None => self.join(seed, &self.memory.founders.clone()),
                });
            }
            other => other?,
        };
        files.mend(&recovered.mend).map_err(Error::Source)?;
        files.sync_all().map_err(Error::Source)?;
        self.files = files;
        (self.written, self.persisted) = (recovered.report.last, recovered.report.last);
        self.memory.restarted_in = Some(recovered.member.term());
        self.stamp = self.stamp.max(recovered.member.newest());
        let effects = std::mem::take(&mut recovered.effects);
        Ok(self.begin(recovered.member, effects))
    }

    /// Takes the end off the newest segment.
    fn forget_suffix(&mut self) {
        let Ok(names) = self.disk.list() else { return };
        let Some(last) = names.iter().filter(|name| name.starts_with("raft-")).max() else { return };
        let Ok(file) = self.disk.open(last) else { return };
        let Ok(len) = file.len() else { return };
        let mut bytes = vec![0; len as usize];
        let _ = file.read_at(0, &mut bytes);
        let places = (48..bytes.len().saturating_sub(52)).step_by(8);
        let heads: Vec<usize> = places.filter(|at| &bytes[*at..*at + 4] == b"FRZM").collect();
        // All but the one that says that the rest was there.
        if heads.len() > 3 {
            let from = heads[heads.len() - 2];
            let _ = file.write_at(from as u64, &[&vec![0; bytes.len() - from]]);
            let _ = file.sync();
            // The store does not give it away.
            if !self.cut && self.stored.installed.as_ref().is_some_and(|from| from.index == LogIndex(1)) {
                self.stored.state = MemberState { applied: LogIndex(1), ..MemberState::default() };
            }
        }
    }

    /// Gives the member an input, and carries out its effects.
    pub(super) fn input(&mut self, at_us: u64, input: MemberInput) -> Vec<HostEffect> {
        let mut done = Vec::new();
        if let MemberInput::Receive(message) = &input {
            self.memory.observe(message);
        }
        self.feed(at_us, input, &mut done);
        done
    }

    /// A message with the state that its snapshot names.
    pub(super) fn receive(
        &mut self,
        at_us: u64,
        message: PeerMessage,
        state: Option<Rc<MemberState>>,
    ) -> Vec<HostEffect> {
        if let (Some(meta), Some(state)) = (&message.snapshot, state) {
            self.received.insert(meta.index.0, state);
        }
        self.input(at_us, MemberInput::Receive(message))
    }

    /// One input after the other: inputs that result from effects follow when all effects are done.
    fn feed(&mut self, at_us: u64, input: MemberInput, done: &mut Vec<HostEffect>) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let Some(member) = &mut self.member else { return };
            let wall = Hlc((at_us as i64 + self.skew_us).max(0) as u64 * 4096);
            self.stamp = wall.max(self.stamp.next()).max(member.newest().next());
            let mut effects = Vec::new();
            member.step(self.stamp, input, &mut effects);
            self.perform(effects, &mut inputs, done);
        }
    }

    /// Identity of its state.
    pub(super) fn mark(&self) -> StateMark {
        let MemberState { applied, digest, count, .. } = self.state;
        StateMark { applied, digest, count }
    }

    /// Microseconds of real time between two ticks of its clock, which runs up to a tenth too fast or too slow.
    pub(super) fn tick_us(&self) -> u64 {
        self.settings.tick_us * (900 + u64::from(self.id.0 * 37 % 200)) / 1000
    }

    /// The stamp that its clock shows.
    pub(super) fn clock(&self, at_us: u64) -> Hlc {
        Hlc((at_us as i64 + self.skew_us).max(0) as u64 * 4096).max(self.stamp)
    }

    fn perform(&mut self, effects: Vec<MemberEffect>, inputs: &mut VecDeque<MemberInput>, done: &mut Vec<HostEffect>) {
        let mut has_failed = false;
        for effect in effects {
            if self.disk.is_crashed() {
                done.push(HostEffect::Died);
                return;
            }
            match effect {
                MemberEffect::Append { .. } if has_failed => {}
                MemberEffect::Append { record, roll, segment, offset, bytes, .. } => {
                    match self.files.write(roll, segment, offset, &bytes) {
                        Ok(()) => {
                            self.written = record;
                            inputs.push_back(MemberInput::Appended { record });
                        }
                        Err(_) if self.disk.is_crashed() => {
                            done.push(HostEffect::Died);
                            return;
                        }
                        Err(fault) => {
                            has_failed = true;
                            inputs.push_front(MemberInput::AppendFailed { record, reason: fault.reason });
                        }
                    }
                }
                MemberEffect::Remove { segment } => {
                    let _ = self.files.remove(segment);
                }
                MemberEffect::Erase { segment, offset, len } => {
                    if let Err(fault) = self.files.erase(segment, offset, len) {
                        inputs.push_front(MemberInput::DeviceFailed { reason: fault.reason });
                    }
                }
                // Its client asks again.
                MemberEffect::Withdrawn { .. } => {}
                MemberEffect::Send(message) => self.send(message, None, done),
                MemberEffect::SendSnapshot { meta, message } => {
                    assert_eq!(self.state.applied, meta.index, "the state is where the member thinks it is");
                    let stale = self.breakage == Some(MetalogBreak::SnapshotStale);
                    let mut state = if stale { self.stored.state.clone() } else { self.state.clone() };
                    state.applied = meta.index;
                    let member = self.member.as_ref().expect("it asked for this");
                    let early = self.breakage == Some(MetalogBreak::LearnersEarly);
                    if member.members().learners.contains(&message.to) && member.durable() < meta.index && !early {
                        self.states_out.push((message, Rc::new(state)));
                    } else {
                        self.send(message, Some(Rc::new(state)), done);
                    }
                }
                MemberEffect::Install { meta } => {
                    let state = self.received.remove(&meta.index.0).expect("the state comes before its message");
                    self.state = (*state).clone();
                    if self.breakage != Some(MetalogBreak::InstallForgotten) {
                        self.stored = Stored { state: self.state.clone(), installed: Some(meta.clone()) };
                    }
                    self.received.clear();
                    done.push(HostEffect::Installed(self.mark()));
                }
                MemberEffect::Committed { through, entries } => {
                    let from = self.state.applied;
                    let member = self.member.as_ref().expect("it asked for this");
                    let terms = (from.0 + 1..=through.0).map(|index| member.term_at(LogIndex(index))).collect();
                    let again = self.breakage == Some(MetalogBreak::RetriesRunAgain);
                    entries.iter().for_each(|entry| self.state.execute(entry, again));
                    self.state.applied = through;
                    done.push(HostEffect::Executed { from, after: self.mark(), terms, entries });
                    inputs.push_back(MemberInput::Applied { index: through });
                }
                // The proposer is answered when the entry is executed, or retries.
                MemberEffect::Proposed { .. } => {}
                MemberEffect::Refused(error) => done.push(HostEffect::Refused(error)),
                MemberEffect::ReadAt { token, index } => done.push(HostEffect::ReadAt { token, index }),
                MemberEffect::ReadFailed { token, .. } => done.push(HostEffect::ReadFailed { token }),
                MemberEffect::Closed { at } => done.push(HostEffect::Closed(at)),
                MemberEffect::NotClosed { .. } => done.push(HostEffect::NotClosed),
                MemberEffect::Role { role, term, leader, lost_after } => {
                    let lost_after = lost_after.filter(|_| self.breakage != Some(MetalogBreak::LossesHidden));
                    done.push(HostEffect::Role { role, term, leader, lost_after });
                }
                MemberEffect::Durable { index } => {
                    done.push(HostEffect::Durable);
                    let is_durable = |(message, _): &mut (PeerMessage, _)| {
                        message.snapshot.as_ref().is_some_and(|meta| meta.index <= index)
                    };
                    for (message, state) in self.states_out.extract_if(.., is_durable).collect::<Vec<_>>() {
                        self.send(message, Some(state), done);
                    }
                }
                MemberEffect::FlushNow => {}
                MemberEffect::UpToDate => self.kept_memory = true,
                MemberEffect::Changed { .. } => done.push(HostEffect::Changed),
                MemberEffect::Failed(error) => done.push(HostEffect::Failed(error)),
            }
        }
    }

    fn send(&mut self, mut message: PeerMessage, state: Option<Rc<MemberState>>, done: &mut Vec<HostEffect>) {
        if let (Some(broken), Some(member)) = (self.breakage, &self.member) {
            let own = (member.term_at(member.last()).unwrap_or(0), member.last().0);
            self.memory.mangle(broken, &mut message, own, member.members());
            self.memory.mangle_memory(broken, &mut message, member);
        }
        done.push(HostEffect::Sent(message, state));
    }

    /// The last record written, which a flush that begins now will cover.
    pub(super) fn flush_begins(&mut self, at_us: u64) -> (LogIndex, Vec<HostEffect>) {
        let through = self.written;
        let early = self.breakage == Some(MetalogBreak::SaysPersistedEarly);
        let done = if early { self.input(at_us, MemberInput::Persisted { record: through }) } else { Vec::new() };
        (through, done)
    }

    /// A flush that covers records up to `through` is done.
    pub(super) fn flush_ends(&mut self, at_us: u64, through: LogIndex) -> Vec<HostEffect> {
        let lies = self.breakage == Some(MetalogBreak::SyncLies);
        let synced = if lies { Ok(()) } else { self.files.take_unflushed().flush() };
        let input = match synced {
            Ok(()) => {
                self.begun = true;
                self.persisted = through;
                MemberInput::Persisted { record: through }
            }
            Err(_) if self.disk.is_crashed() => return vec![HostEffect::Died],
            Err(fault) => MemberInput::DeviceFailed { reason: fault.reason },
        };
        self.input(at_us, input)
    }

    /// True if there is something that no flush has covered.
    pub(super) fn wants_flush(&self) -> bool {
        self.written > self.persisted
    }

    /// The store makes its state durable; the log is cut but for its last `kept` entries.
    pub(super) fn store_flush(&mut self, at_us: u64, kept: u64) -> Vec<HostEffect> {
        if self.member.is_none() {
            return Vec::new();
        }
        // Tables hold what the log has on stable storage.
        let flushed = self.member.as_ref().map_or(LogIndex(0), RaftMember::flushed);
        let candidate = self.unstored.take().filter(|state| state.applied >= self.stored.state.applied);
        let next = candidate.unwrap_or_else(|| self.state.clone());
        let through = if next.applied <= flushed {
            let lagging = self.breakage == Some(MetalogBreak::TruncatesEarly);
            let (applied, next) = (next.applied, if lagging { self.lagging.replace(next) } else { Some(next) });
            self.stored.state = next.unwrap_or_else(|| self.stored.state.clone());
            self.unstored = Some(self.state.clone());
            applied
        } else {
            self.unstored = Some(next);
            self.stored.state.applied
        };
        let through = LogIndex(through.0.saturating_sub(kept));
        self.cut |= through > LogIndex(1);
        self.input(at_us, MemberInput::Truncate { through })
    }
}

fn no_files(disk: &SimDisk) -> SegmentFiles {
    SegmentFiles::new(Arc::new(disk.clone()))
}
