//! A member: its one `step`, and what can be asked of it.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use frieze_base::{LogIndex, NodeId, Rng};
use frieze_hlc::Hlc;
use raft::{ProgressState, RawNode, StateRole, Storage};

use super::journal::RaftJournal;
use super::memory::{MemberMemory, ProcessStart};
use super::message::{
    BatchDurability, MemberEffect, MemberInput, Members, PeerKind, PeerMessage, RaftRole, SnapshotMeta,
};
use super::peer::{self, KnownLog};
use super::record::{self, JournalBase, JournalRecord};
use super::settings::MemberSettings;
use super::store::Store;
use crate::error::Error;
use crate::message::DataEnd;

/// One member of the metalog.
pub struct RaftMember {
    pub(super) id: NodeId,
    pub(super) settings: MemberSettings,
    pub(super) node: RawNode<Store>,
    pub(super) journal: RaftJournal,
    /// Why nothing more is said.
    pub(super) failed: Option<Error>,

    /// Draws election timeouts.
    rng: Rng,
    /// The one in force, in ticks.
    timeout: usize,
    /// Term, role and ticks without a leader when it was last looked at.
    looked: (u64, StateRole, usize),

    /// What may be said only when records are written or on stable storage, oldest first.
    pub(super) held_back: VecDeque<HeldBack>,
    /// The newest record that has to be on stable storage before anything more is said: one with a term, a vote, a
    /// received state, or an entry that is acknowledged from stable storage.
    pub(super) stable_first: u64,
    /// Term and vote in the last record.
    pub(super) recorded_vote: (u64, u64),
    /// The newest record that cannot be withdrawn: one with another term or vote, or with a state that was received.
    pub(super) kept_record: u64,
    pub(super) memory: MemberMemory,
    /// Newest stamp in the log, those of entries that were replaced included.
    pub(super) newest: Hlc,
    /// Newest stamp of a committed entry.
    pub(super) committed_stamp: Hlc,
    /// Committed entries up to here are in the state already.
    pub(super) applied_before: u64,
    /// Instants that wait for an entry to commit.
    pub(super) closing: Vec<Hlc>,
    /// Questions about reads, by their number.
    pub(super) reads: BTreeMap<u64, ReadRequest>,
    /// Sets this process's questions apart from those of the one before.
    pub(super) read_salt: u64,
    pub(super) last_read: u64,
    /// Questions of other members that this process received as the leader.
    pub(super) questions: u64,
    /// The commit index in the journal's last record.
    pub(super) recorded_commit: u64,
    /// Ticks of this incarnation.
    ticks: u32,
    /// Ticks since the last record.
    pub(super) ticks_without_record: u32,
}

/// What waits for a record.
#[derive(Debug)]
pub(super) struct HeldBack {
    /// The library's name for it.
    pub(super) number: u64,
    /// It waits until this record is written,
    pub(super) written: u64,
    /// and this one is on stable storage.
    pub(super) stable: u64,
    pub(super) messages: Vec<PeerMessage>,
    /// A state was installed with it: the last entry in it.
    pub(super) installed: Option<u64>,
}

/// A question about reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadRequest {
    pub(super) token: u64,
    pub(super) ticks: u32,
}

impl RaftMember {
    /// The parts put together; see `recover` for the ways to get one.
    pub(super) fn assemble(
        (id, seed): (NodeId, u64),
        start: &ProcessStart,
        settings: MemberSettings,
        node: RawNode<Store>,
        journal: RaftJournal,
        newest: Hlc,
    ) -> RaftMember {
        let mut rng = Rng::new(seed);
        let read_salt = rng.next();
        let looked = (node.raft.term, node.raft.state, 0);
        let committed_stamp = node.store().base().stamp;
        let state = node.raft.hard_state();
        let (recorded_commit, recorded_vote) = (state.commit, (state.term, state.vote));
        let mut member = RaftMember {
            memory: MemberMemory::begin(start),
            id,
            settings,
            node,
            journal,
            failed: None,
            rng,
            timeout: 0,
            looked,
            held_back: VecDeque::new(),
            stable_first: 0,
            recorded_vote,
            kept_record: 0,
            newest,
            committed_stamp,
            applied_before: 0,
            closing: Vec::new(),
            reads: BTreeMap::new(),
            read_salt,
            last_read: 0,
            questions: 0,
            recorded_commit,
            ticks: 0,
            ticks_without_record: 0,
        };
        member.draw_timeout();
        member.settle_timeout();
        member
    }

    /// Advances the member by one input; `out` receives what the driver has to do, in order. `at` is the node's clock:
    /// for [`MemberInput::Propose`] and [`MemberInput::Close`] a fresh tick above [`RaftMember::newest`], for `Propose`
    /// the first of as many as the batch has transactions.
    ///
    /// # Panics
    /// If the driver breaks its part: a proposal whose stamp is not above the log's newest, records completed out of
    /// order.
    pub fn step(&mut self, at: Hlc, input: MemberInput, out: &mut Vec<MemberEffect>) {
        if let Some(error) = &self.failed {
            let asks = matches!(
                input,
                MemberInput::Propose { .. }
                    | MemberInput::Close { .. }
                    | MemberInput::Read { .. }
                    | MemberInput::Change(_)
                    | MemberInput::Transfer { .. }
                    | MemberInput::DeclareLost { .. }
            );
            out.extend(asks.then(|| MemberEffect::Refused(error.clone())));
            return;
        }
        let taken = match input {
            MemberInput::Tick => {
                self.on_tick(out);
                self.record_commit(out)
            }
            MemberInput::Receive(message) => self.on_receive(&message, out),
            MemberInput::Propose { body, count, data_end, durability } => {
                assert!(count > 0, "a batch holds at least one transaction");
                self.propose(at, &body, count, data_end, durability).map(|proposed| out.push(proposed))
            }
            MemberInput::Appended { record } => {
                self.journal.on_appended(record);
                Ok(())
            }
            MemberInput::FlushAll => {
                self.on_flush_all(None, out);
                Ok(())
            }
            MemberInput::Persisted { record } => {
                self.journal.on_persisted(record, out);
                self.report_flushed(false, out);
                Ok(())
            }
            MemberInput::AppendFailed { record, reason } => self.withdraw(record, reason, out),
            MemberInput::DeviceFailed { reason } => Err(Error::DeviceFailed { reason }),
            MemberInput::Applied { index } => {
                self.on_applied(index.0);
                Ok(())
            }
            MemberInput::Truncate { through } => self.on_truncate(through.0, out),
            MemberInput::Close { at: instant } => self.on_close(at, instant, out),
            MemberInput::Read { token } => self.on_read(token),
            MemberInput::Change(change) => self.on_change(change).map(|proposed| out.push(proposed)),
            MemberInput::Transfer { to } => self.on_transfer(to),
            MemberInput::DeclareLost { node } => self.on_declare_lost(node, out),
            MemberInput::Unreachable { peer } => {
                self.node.report_unreachable(peer.0.into());
                Ok(())
            }
            MemberInput::Gone { peer } => {
                self.on_peer_lost(peer);
                Ok(())
            }
            MemberInput::SnapshotSent { to, whole } => {
                let status = if whole { raft::SnapshotStatus::Finish } else { raft::SnapshotStatus::Failure };
                self.node.report_snapshot(to.0.into(), status);
                Ok(())
            }
        };
        match taken {
            Ok(()) => {}
            Err(Error::AppendFailed { reason } | Error::DeviceFailed { reason }) => {
                return self.fail(Error::DeviceFailed { reason }, out);
            }
            Err(error @ Error::Contradicted { .. }) => return self.fail(error, out),
            Err(error) => out.push(MemberEffect::Refused(error)),
        }
        self.settle_timeout();
        if let Err(error) = self.settle(out) {
            self.failed = Some(error.clone());
            out.push(MemberEffect::Failed(error));
        }
        self.settle_memory(out);
        self.settle_timeout();
        self.assert_whole();
    }

    /// This member's node id.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// What it is at the moment.
    pub fn role(&self) -> RaftRole {
        match self.node.raft.state {
            StateRole::Leader => RaftRole::Leader,
            StateRole::Follower => RaftRole::Follower,
            StateRole::Candidate | StateRole::PreCandidate => RaftRole::Candidate,
        }
    }

    /// Its term.
    pub fn term(&self) -> u64 {
        self.node.raft.term
    }

    /// The member that it takes for the leader.
    pub fn leader(&self) -> Option<NodeId> {
        Some(self.node.raft.leader_id).filter(|id| *id != 0).map(peer::node)
    }

    /// The members, as far as it knows.
    pub fn members(&self) -> &Members {
        self.node.store().members()
    }

    /// Last entry of its log, committed or not.
    pub fn last(&self) -> LogIndex {
        LogIndex(self.node.raft.raft_log.last_index())
    }

    /// Last entry that it knows to be committed.
    pub fn committed(&self) -> LogIndex {
        LogIndex(self.node.raft.raft_log.committed)
    }

    /// Last entry that it no longer holds: the state stands for it.
    pub fn base(&self) -> &SnapshotMeta {
        self.node.store().base()
    }

    /// Term of the entry at `index`; `None` if it is not held.
    pub fn term_at(&self, index: LogIndex) -> Option<u64> {
        let log = &self.node.raft.raft_log;
        let held = index.0 >= log.first_index() - 1 && index.0 <= log.last_index();
        if held { log.term(index.0).ok() } else { None }
    }

    /// Newest stamp in its log.
    pub fn newest(&self) -> Hlc {
        self.newest
    }

    /// The closed timestamp: whatever is stamped at or below it is committed, and known here to be.
    pub fn closed(&self) -> Hlc {
        self.committed_stamp
    }

    /// True if a change of members is in the log that is not executed yet: a leader takes no proposal meanwhile.
    pub fn is_changing(&self) -> bool {
        self.leads() && self.node.raft.has_pending_conf()
    }

    /// Voters that there may be.
    pub fn voters_max(&self) -> usize {
        self.settings.voters_max
    }

    /// The learners that could vote at once: heard lately, and
    /// [`MemberSettings::promote_lag`](crate::MemberSettings::promote_lag) entries behind at most. Empty unless this
    /// member leads, for only a leader knows.
    pub fn caught_up(&self) -> Vec<NodeId> {
        let raft = &self.node.raft;
        let far = raft.raft_log.last_index().saturating_sub(self.settings.promote_lag);
        let is_near = |learner: &&NodeId| {
            // A learner that has not answered yet holds nothing, however short the log is; the library takes it for
            // active.
            let has_caught_up = |at: &raft::Progress| at.matched > 0 && at.matched >= far;
            let progress = raft.prs().get(learner.0.into());
            progress.is_some_and(|at| at.state != ProgressState::Snapshot && at.recent_active && has_caught_up(at))
        };
        if self.leads() { self.members().learners.iter().filter(is_near).copied().collect() } else { Vec::new() }
    }

    pub(super) fn leads(&self) -> bool {
        self.node.raft.state == StateRole::Leader
    }

    /// Refuses whatever is asked of a member that was removed: no other would answer it.
    pub(super) fn check_belongs(&self) -> Result<(), Error> {
        let members = self.members();
        if members.contains(self.id) || members.voters.is_empty() { Ok(()) } else { Err(Error::NotMember) }
    }

    /// Refuses what only a leader can take, and names the leader.
    pub(super) fn check_leads(&self) -> Result<(), Error> {
        self.check_belongs()?;
        if !self.leads() {
            return Err(Error::NotLeader { leader: self.leader() });
        }
        match self.node.raft.lead_transferee {
            Some(next) => Err(Error::NotLeader { leader: Some(peer::node(next)) }),
            None => Ok(()),
        }
    }

    pub(super) fn check_room(&self) -> Result<(), Error> {
        let max = self.unflushed_max() as u64;
        let what = "records of the metalog on their way to the disk";
        if self.has_room() { Ok(()) } else { Err(Error::Overloaded { what, max }) }
    }

    pub(super) fn propose(
        &mut self,
        stamp: Hlc,
        body: &[u8],
        count: u32,
        data_end: DataEnd,
        durability: BatchDurability,
    ) -> Result<MemberEffect, Error> {
        self.check_leads()?;
        self.check_room()?;
        let max = u64::from(self.settings.body_bytes_max);
        if body.len() as u64 > max {
            return Err(Error::BatchTooLarge { len: body.len() as u64, max });
        }
        if self.is_changing() {
            return Err(Error::Changing);
        }
        assert!(stamp > self.newest, "stamp {stamp} is not above {}, the newest of the log", self.newest);
        self.node.propose(Vec::new(), record::encode_batch(stamp, count, data_end, durability, body)).map_err(
            |_| {
                let max = self.settings.uncommitted_bytes_max;
                Error::Overloaded { what: "bytes of metadata on their way to a majority", max }
            },
        )?;
        self.newest = record::last_stamp(stamp, count);
        Ok(MemberEffect::Proposed { index: self.last(), term: self.term() })
    }

    fn on_receive(&mut self, message: &PeerMessage, out: &mut Vec<MemberEffect>) -> Result<(), Error> {
        let raft = &self.node.raft;
        let seen = KnownLog {
            me: self.id,
            term: raft.term,
            last: raft.raft_log.last_index(),
            committed: raft.raft_log.committed,
            leads: self.leads(),
            data_bytes_max: u64::from(self.settings.body_bytes_max) + record::DATA_HEADER_BYTES as u64,
            message_bytes: self.settings.message_bytes.into(),
            term_at: &|index| self.term_at(LogIndex(index)),
        };
        // The commit of a heartbeat is that of a log that the receiver has acknowledged: an earlier incarnation,
        // perhaps.
        let is_for_other = message.kind == PeerKind::Heartbeat && message.for_incarnation != self.memory.incarnation;
        let without = is_for_other.then(|| PeerMessage { commit: LogIndex(0), ..message.clone() });
        let message = without.as_ref().unwrap_or(message);
        peer::check(message, &seen)?;
        if !self.observe_incarnation(message, out) {
            return Ok(());
        }
        if matches!(message.kind, PeerKind::Append | PeerKind::Snapshot) {
            // The leader sends it again.
            self.check_room()?;
        }
        let log = &self.node.raft.raft_log;
        let stands = self.node.raft.state == StateRole::Candidate;
        if message.kind == PeerKind::Vote && stands && log.persisted < log.last_index() {
            // It asks only when what it has is durable; to lead before that would end it.
            return Err(Error::BadMessage { from: message.from, what: "it votes for one who has not asked" });
        }
        match message.kind {
            PeerKind::TimeoutNow if self.waits_for_disk() => return Ok(()),
            PeerKind::UpToDate => {
                self.on_goal(message);
                return Ok(());
            }
            PeerKind::Flushed => {
                self.on_flushed(message);
                return Ok(());
            }
            PeerKind::Durable => {
                self.on_durable(message);
                return Ok(());
            }
            PeerKind::FlushNow => {
                self.on_flush_all(Some(message.from), out);
                return Ok(());
            }
            PeerKind::DeclareLost => {
                self.on_peer_excuses(message);
                return Ok(());
            }
            PeerKind::ReadIndex if !self.reads_of_leader(message) => return Ok(()),
            PeerKind::AskReadIndex if self.leads() => {
                let numbered = self.number_question(message);
                let _ = self.node.step(peer::message_in(&numbered));
                return Ok(());
            }
            _ if self.awaits_vote(message) => {
                for vote in self.count_vote(message) {
                    let _ = self.node.step(peer::message_in(&vote));
                }
                return Ok(());
            }
            _ => {}
        }
        // Those from nodes that are no members, or not any more, are refused: they change nothing.
        let _ = self.node.step(peer::message_in(message));
        Ok(())
    }

    /// It does not stand for election before a flush ends. Alone it would lead at once, which is right only when its
    /// log is durable; and after a state was installed the library counts it as applied only then, and trips over what
    /// is not there.
    fn waits_for_disk(&self) -> bool {
        let alone = self.is_only_voter();
        self.held_back.iter().any(|held| alone || held.installed.is_some())
    }

    fn on_tick(&mut self, out: &mut Vec<MemberEffect>) {
        if self.leads() || !self.waits_for_disk() {
            self.node.tick();
        }
        self.ticks += 1;
        if self.ticks.is_multiple_of(self.settings.heartbeat_ticks) {
            self.repeat_durable(out);
            self.repeat_excuses(out);
        }
        let mut again = Vec::new();
        for (number, question) in &mut self.reads {
            question.ticks += 1;
            // A leader that has just begun drops it, and one that is gone took it along.
            if question.ticks.is_multiple_of(self.settings.heartbeat_ticks) {
                again.push(*number);
            }
        }
        let over = self.settings.read_ticks;
        for (_, question) in self.reads.extract_if(.., |_, question| question.ticks >= over) {
            out.push(MemberEffect::ReadFailed { token: question.token, error: Error::NoAnswer });
        }
        for number in again.into_iter().filter(|number| self.reads.contains_key(number)) {
            self.node.read_index(self.read_name(number));
        }
    }

    /// Makes the newest commit durable if no record has done so for a while: a member that restarts without a majority
    /// answers for the instants that it knows to be closed, and without this it would not know the last of them.
    fn record_commit(&mut self, out: &mut Vec<MemberEffect>) -> Result<(), Error> {
        self.ticks_without_record += 1;
        let is_newer = self.node.raft.hard_state().commit > self.recorded_commit;
        let is_due = self.ticks_without_record >= COMMIT_TICKS && self.journal.durable() == self.journal.last();
        if is_newer && is_due { self.write(JournalRecord::default(), out) } else { Ok(()) }
    }

    /// Stands for election soon, and lets others stand, if it was the leader that went. One after the other, so that
    /// they do not take each other's votes: two ticks are time enough to ask and be answered.
    fn on_peer_lost(&mut self, peer: NodeId) {
        if self.leader() != Some(peer) || self.node.raft.state != StateRole::Follower {
            return;
        }
        let before = self.members().voters.iter().filter(|voter| **voter < self.id && **voter != peer).count();
        let raft = &mut self.node.raft;
        let least = raft.election_timeout();
        raft.election_elapsed = least;
        self.timeout = (least + 1 + before * GONE_TICKS).min(2 * least - 1);
        // It stays until something is heard of a leader.
        self.looked.2 = least;
    }

    /// The only voter waits for no other: it stands with its first tick, once what it has is durable.
    pub(super) fn lead_soon_if_alone(&mut self) {
        if self.is_only_voter() {
            self.node.raft.election_elapsed = 2 * self.settings.election_ticks as usize;
        }
    }

    fn on_applied(&mut self, index: u64) {
        let applied = self.node.store().applied();
        if index <= applied {
            return;
        }
        let stamp = self.newest_stamp(applied, index);
        self.node.mut_store().apply(index, stamp);
        if index > self.node.raft.raft_log.applied {
            self.node.advance_apply_to(index);
        }
    }

    /// Newest stamp of the entries in `after..=through`.
    pub(super) fn newest_stamp(&self, after: u64, through: u64) -> Hlc {
        let store = self.node.store();
        let data = (after + 1..=through).filter_map(|index| store.entry(index));
        data.filter_map(|entry| record::stamp_of(&entry.data)).max().unwrap_or(Hlc::ZERO)
    }

    fn on_truncate(&mut self, through: u64, out: &mut Vec<MemberEffect>) -> Result<(), Error> {
        let store = self.node.store();
        let through = through.min(store.applied());
        if through <= store.base().index.0 {
            return Ok(());
        }
        let stamp = store.base().stamp.max(self.newest_stamp(store.base().index.0, through));
        let Some(meta) = store.meta_at(through, stamp) else { return Ok(()) };
        let base = JournalBase { meta: meta.clone(), anew: false, needed: 0 };
        self.node.mut_store().compact(meta);
        self.write(JournalRecord { base: Some(base), ..JournalRecord::default() }, out)
    }

    fn fail(&mut self, error: Error, out: &mut Vec<MemberEffect>) {
        self.failed = Some(error.clone());
        self.held_back.clear();
        for question in std::mem::take(&mut self.reads).into_values() {
            out.push(MemberEffect::ReadFailed { token: question.token, error: error.clone() });
        }
        let closing = self.closing.drain(..);
        out.extend(closing.map(|at| MemberEffect::NotClosed { at, error: error.clone() }));
        out.push(MemberEffect::Failed(error));
    }

    /// The library draws election timeouts from the thread's own numbers. Here they come from the seed: a new one
    /// wherever the library may have drawn one, and ours is put in its place whether it has or not.
    fn settle_timeout(&mut self) {
        let raft = &self.node.raft;
        let now = (raft.term, raft.state, raft.election_elapsed);
        if (now.0, now.1) != (self.looked.0, self.looked.1) || now.2 < self.looked.2 {
            self.draw_timeout();
        }
        self.looked = now;
        self.node.raft.set_randomized_election_timeout(self.timeout);
    }

    fn draw_timeout(&mut self) {
        let ticks = u64::from(self.settings.election_ticks);
        self.timeout = (ticks + self.rng.below(ticks)) as usize;
    }

    /// What holds between any two inputs.
    fn assert_whole(&self) {
        let log = &self.node.raft.raft_log;
        assert!(
            log.applied <= log.committed && log.committed <= log.last_index(),
            "applied, committed, last: in this order"
        );
        assert!(self.node.store().applied() <= log.committed, "only what is committed is applied");
        assert!(self.committed_stamp <= self.newest, "what is committed is in the log");
    }
}

impl fmt::Debug for RaftMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Member");
        shown.field("id", &self.id).field("role", &self.role()).field("term", &self.term());
        shown.field("last", &self.last()).field("committed", &self.committed()).field("members", self.members());
        shown.field("first", &self.node.store().first_index().unwrap_or(0)).finish_non_exhaustive()
    }
}

/// Between those that stand for election when the leader has ended its connections.
const GONE_TICKS: usize = 2;
/// Ticks without a record after which a commit gets one of its own. More: a restarted minority knows less. Less: slow
/// entries each cost a second write.
const COMMIT_TICKS: u32 = 4;
