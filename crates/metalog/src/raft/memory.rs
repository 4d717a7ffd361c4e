//! What members know of each other's memory.
//!
//! An entry is committed when a majority has it in memory, so a member that comes back without its memory must not
//! elect as if it had it. Each process of a member has a number, its *incarnation*, which rises with each start; every
//! message names it. A process that starts after a loss of power is *returning* until a leader has said up to which
//! entry it has to be, and it is.
//!
//! # Rules
//! - A message of an earlier incarnation than the newest one known is dropped. A leader that hears of a new incarnation
//!   forgets what the member had acknowledged.
//! - A returning member votes, and says with its vote that it is returning. A candidate wins with the votes of a
//!   majority that kept its memory, or with the votes of all voters. If it wins with the second alone, entries may be
//!   lost that were in memory only: the new leader says so ([`MemberEffect::Role`]).
//! - The operator may declare a voter lost while no leader is known: `excuses.rs`.
//! - A leader that hears of a returning incarnation takes its last entry of then as the incarnation's *goal*, and names
//!   it until the member has it. The member takes a goal from the leader of its term only.
//! - Members say how far their logs are on stable storage. An entry is *durable* when a majority of the voters has it
//!   there; the leader says so to all. A learner learns of commits only when they are durable: it has no vote with
//!   which to save what the voters lose.
//! - Some entries are acknowledged from stable storage only, and so is what follows them: changes of members, batches
//!   that say so, and the first entry of each leader. So a committed change is in the logs of a majority for good, and
//!   nothing that was answered lies behind an entry of an older term that only one disk has. A leader orders nothing
//!   after a change of members before it has executed it: nothing behind it is counted with the voters of before.
//!
//! # Source
//! Protocols §2 and §7 of the design, for chains; ADR 75 for the rules here, `tests/returning_model.rs` for a model of
//! them in which every rule can be removed.

use std::collections::BTreeMap;

use frieze_base::{LogIndex, NodeId};
use frieze_hlc::Hlc;
use raft::StateRole;

use super::member::RaftMember;
use super::message::{EntryKind, MemberEffect, PeerKind, PeerMessage};
use super::peer;

/// An entry with which a returning incarnation is up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MemoryGoal {
    incarnation: u64,
    index: u64,
    term: u64,
}

/// How a candidate won.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Victory {
    term: u64,
    /// With a majority that kept its memory.
    kept: bool,
}

/// What the leader of a term knows of the members.
#[derive(Debug, Default)]
struct LeadershipMemory {
    term: u64,
    /// What returning members have to reach.
    goals: BTreeMap<NodeId, MemoryGoal>,
    /// How far their logs are on stable storage.
    flushed: BTreeMap<NodeId, u64>,
}

/// Votes that do not count yet, of one term and one kind.
#[derive(Debug, Default)]
struct PendingVotes {
    term: u64,
    kind: Option<PeerKind>,
    votes: BTreeMap<NodeId, PeerMessage>,
}

/// How a process of a member begins.
pub(super) struct ProcessStart {
    pub(super) incarnation: u64,
    pub(super) stamp_bound: Hlc,
}

/// The memory of one member, and what it knows of that of the others.
#[derive(Debug, Default)]
pub(super) struct MemberMemory {
    /// Number of this process among those of the member, from 1 on.
    pub(super) incarnation: u64,
    /// What it had in memory is lost, and it is not up to date yet.
    pub(super) returning: bool,
    /// No entry that an earlier incarnation acknowledged is stamped above it.
    stamp_bound: Hlc,
    /// What it has to reach, and the term of the leader that said so.
    goal: Option<(u64, MemoryGoal)>,
    /// The newest incarnation of each other member.
    incarnations: BTreeMap<NodeId, u64>,
    leading: LeadershipMemory,
    election: PendingVotes,
    victory: Option<Victory>,
    /// Voters that the operator declared lost, and in which term.
    pub(super) excuses: BTreeMap<NodeId, u64>,
    /// What the leader was told last of this log, and in which term.
    reported: (u64, u64),
    /// A leader said that entries up to here are durable.
    announced: u64,
    /// The newest committed entry that is committed from stable storage alone.
    pub(super) stable: u64,
    /// Entries up to here are durable and known here to be.
    pub(super) durable: u64,
    /// Heartbeats with which a leader says again how far entries are durable.
    repeats: u32,
}

impl MemberMemory {
    pub(super) fn begin(start: &ProcessStart) -> MemberMemory {
        let ProcessStart { incarnation, stamp_bound } = *start;
        MemberMemory { incarnation, stamp_bound, ..MemberMemory::default() }
    }
}

pub(super) fn is_majority(voters: &[NodeId], counts: impl Fn(&NodeId) -> bool) -> bool {
    voters.iter().filter(|voter| counts(voter)).count() * 2 > voters.len()
}

/// Heartbeats with which what is durable is said again: a message may be lost.
const REPEATS: u32 = 4;

impl RaftMember {
    /// Entries up to this one are on stable storage at a majority of the voters, and known here to be.
    pub fn durable(&self) -> LogIndex {
        LogIndex(self.memory.durable)
    }

    /// True if no other member has a vote.
    pub fn is_only_voter(&self) -> bool {
        self.members().voters == [self.id]
    }

    /// What earlier processes of this member had in memory is lost.
    pub(super) fn return_without_memory(&mut self) {
        self.memory.returning = true;
    }

    /// True if what this member had in memory is lost and it is not up to date yet.
    pub fn is_returning(&self) -> bool {
        self.memory.returning
    }

    /// Notes which incarnation of another member speaks. False: an earlier one than is known, whose word does not
    /// count.
    pub(super) fn observe_incarnation(&mut self, message: &PeerMessage, out: &mut Vec<MemberEffect>) -> bool {
        if message.kind == PeerKind::AskReadIndex {
            // Another member may have passed it on. It changes nothing.
            return true;
        }
        let known = *self.memory.incarnations.get(&message.from).unwrap_or(&message.incarnation);
        if message.incarnation < known {
            return false;
        }
        self.memory.incarnations.insert(message.from, message.incarnation);
        if message.incarnation > known {
            self.memory.leading.goals.remove(&message.from);
            self.forget_progress(message.from);
        }
        if message.returning && self.leads() && message.term == self.term() {
            self.name_goal(message, out);
        }
        true
    }

    /// What this leader knows of the members in its term.
    fn leading_memory(&mut self) -> &mut LeadershipMemory {
        let term = self.term();
        let leading = &mut self.memory.leading;
        if leading.term != term {
            *leading = LeadershipMemory { term, ..LeadershipMemory::default() };
        }
        leading
    }

    /// What the member acknowledged, its new incarnation may lack.
    fn forget_progress(&mut self, peer: NodeId) {
        let last = self.last().0;
        let leads = self.leads();
        let Some(progress) = self.node.raft.mut_prs().get_mut(peer.0.into()).filter(|_| leads) else { return };
        progress.become_probe();
        (progress.matched, progress.next_idx) = (0, last + 1);
    }

    fn name_goal(&mut self, message: &PeerMessage, out: &mut Vec<MemberEffect>) {
        let last = self.last();
        let fresh =
            MemoryGoal { incarnation: message.incarnation, index: last.0, term: self.term_at(last).unwrap_or(0) };
        let goal = *self.leading_memory().goals.entry(message.from).or_insert(fresh);
        // Answers to appends are many: the goal is named with the others.
        if message.kind != PeerKind::Appended || goal == fresh {
            let named = PeerMessage {
                index: LogIndex(goal.index),
                log_term: goal.term,
                hint: LogIndex(goal.incarnation),
                ..self.message(PeerKind::UpToDate, message.from)
            };
            self.send(named, out);
        }
    }

    /// A leader says which entry this member has to have.
    pub(super) fn on_goal(&mut self, message: &PeerMessage) {
        let from_leader = message.term == self.term() && self.leader() == Some(message.from);
        if self.memory.returning && from_leader && message.hint.0 == self.memory.incarnation {
            let goal = MemoryGoal { incarnation: message.hint.0, index: message.index.0, term: message.log_term };
            self.memory.goal = Some((message.term, goal));
        }
    }

    /// A granted vote counts when it decides: at once of a member that kept its memory, if there is a majority of such;
    /// that of a returning member when all voters that are not excused have granted theirs. Returns the votes that
    /// count now.
    pub(super) fn count_vote(&mut self, message: &PeerMessage) -> Vec<PeerMessage> {
        // A refusal of a term to come has the term of before.
        let term = if message.kind == PeerKind::PreVote { self.term() + 1 } else { message.term };
        let kind = Some(message.kind);
        let election = &mut self.memory.election;
        if (election.term, election.kind) != (term, kind) {
            *election = PendingVotes { term, kind, votes: BTreeMap::new() };
        }
        election.votes.insert(message.from, message.clone());
        let to_be = self.voters_to_be();
        let (id, voters) = (self.id, &self.node.store().members().voters);
        let votes = &self.memory.election.votes;
        let has_kept = |voter: &NodeId| match *voter == id {
            true => !self.memory.returning,
            false => votes.get(voter).is_some_and(|vote| !vote.returning && !vote.reject),
        };
        let kept = is_majority(voters, has_kept);
        let has_granted = |voter: &NodeId| *voter == id || votes.contains_key(voter);
        let need_not = |voter: &NodeId| has_granted(voter) || self.is_excused(*voter);
        let all = voters.iter().all(need_not) && to_be.iter().all(need_not) && is_majority(voters, has_granted);
        if !kept && !all {
            return Vec::new();
        }
        if message.kind == PeerKind::Vote {
            self.memory.victory = Some(Victory { term, kept });
        }
        let votes = std::mem::take(&mut self.memory.election.votes);
        if !kept {
            // What is stamped next is above all that may be lost.
            let stamps = votes.values().map(|vote| vote.newest).max().unwrap_or_default();
            self.newest = self.newest.max(stamps).max(self.memory.stamp_bound);
        }
        votes.into_values().filter(|vote| !vote.reject).collect()
    }

    /// This member leads: it is up to date by that. Returns the stamp up to which nothing is lost, if entries may be.
    pub(super) fn begin_leading(&mut self, out: &mut Vec<MemberEffect>) -> Option<Hlc> {
        let term = self.term();
        let was_returning = self.memory.returning;
        let kept = match self.memory.victory.take() {
            Some(victory) if victory.term == term => victory.kept,
            // The only voter asks no other.
            _ => !self.memory.returning,
        };
        (self.memory.returning, self.memory.goal) = (false, None);
        self.memory.leading = LeadershipMemory { term, ..LeadershipMemory::default() };
        if was_returning {
            out.push(MemberEffect::UpToDate);
        }
        if kept {
            return None;
        }
        // What was answered in its last entry's term, or before, lies before that entry: the first entry of a term was
        // on the disks of a majority before anything after it was answered.
        let base = self.base();
        Some(base.stamp.max(self.newest_stamp(base.index.0, self.last().0)))
    }

    /// After each input: what became known by it of the memory and the disks of the members.
    pub(super) fn settle_memory(&mut self, out: &mut Vec<MemberEffect>) {
        if let Some((term, goal)) = self.memory.goal {
            let base = self.base().index.0;
            if term != self.term() {
                self.memory.goal = None;
            } else if goal.index <= base || self.term_at(LogIndex(goal.index)) == Some(goal.term) {
                (self.memory.returning, self.memory.goal) = (false, None);
                out.push(MemberEffect::UpToDate);
            }
        }
        let before = self.memory.durable;
        match self.leads() {
            true => self.count_flushed(out),
            false => {
                let known = self.memory.announced.min(self.committed().0);
                self.memory.durable = before.max(known).max(self.memory.stable);
            }
        }
        if self.memory.durable > before {
            out.push(MemberEffect::Durable { index: LogIndex(self.memory.durable) });
        }
    }

    /// The last entry that is on stable storage here, with all before it.
    pub fn flushed(&self) -> LogIndex {
        LogIndex(self.own_flushed())
    }

    fn own_flushed(&self) -> u64 {
        self.journal.durable_entry().max(self.base().index.0)
    }

    fn count_flushed(&mut self, out: &mut Vec<MemberEffect>) {
        let own = self.own_flushed();
        let flushed = &self.memory.leading.flushed;
        let of = |voter: &NodeId| if *voter == self.id { own } else { flushed.get(voter).copied().unwrap_or(0) };
        let mut all: Vec<u64> = self.members().voters.iter().map(of).collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        let durable = all.get(all.len() / 2).copied().unwrap_or(0).min(self.committed().0);
        let durable = durable.max(self.memory.stable);
        if durable > self.memory.durable {
            self.memory.durable = durable;
            self.memory.repeats = REPEATS;
            self.announce_durable(out);
        }
    }

    fn announce_durable(&mut self, out: &mut Vec<MemberEffect>) {
        let members = self.members();
        let others: Vec<NodeId> =
            members.voters.iter().chain(&members.learners).copied().filter(|node| *node != self.id).collect();
        for other in others {
            let durable = self.durable();
            let log_term = self.term_at(durable).unwrap_or(0);
            let said = PeerMessage { index: durable, log_term, ..self.message(PeerKind::Durable, other) };
            self.send(said, out);
        }
    }

    /// The leader says up to which entry a majority has the log on stable storage.
    pub(super) fn on_durable(&mut self, message: &PeerMessage) {
        if message.term != self.term() || self.leader() != Some(message.from) {
            return;
        }
        self.memory.announced = self.memory.announced.max(message.index.0);
        // It was committed before. A learner has not been told so until now.
        if self.term_at(message.index) == Some(message.log_term) {
            self.node.raft.raft_log.commit_to(message.index.0);
        }
    }

    /// Another member says how far its log is on stable storage.
    pub(super) fn on_flushed(&mut self, message: &PeerMessage) {
        let term = self.term();
        if !self.leads() || message.term != term || self.term_at(message.index) != Some(message.log_term) {
            // Another log than this one, or entries that are compacted: the member says more when it has more.
            return;
        }
        let known = self.leading_memory().flushed.entry(message.from).or_default();
        *known = (*known).max(message.index.0);
    }

    /// Says to the leader how far the log is on stable storage here, if that is news or `again`.
    pub(super) fn report_flushed(&mut self, again: bool, out: &mut Vec<MemberEffect>) {
        let Some(leader) = self.leader().filter(|leader| *leader != self.id) else { return };
        let (term, own) = (self.term(), self.own_flushed());
        let is_news = (term, own) != self.memory.reported && own > 0;
        let is_unanswered = again && own > self.memory.durable;
        if !is_news && !is_unanswered {
            return;
        }
        let Some(log_term) = self.term_at(LogIndex(own)) else { return };
        self.memory.reported = (term, own);
        let said = PeerMessage { index: LogIndex(own), log_term, ..self.message(PeerKind::Flushed, leader) };
        self.send(said, out);
    }

    /// Says again, with a heartbeat, what a lost message may have left unknown.
    pub(super) fn repeat_durable(&mut self, out: &mut Vec<MemberEffect>) {
        match self.leads() {
            true if self.memory.repeats > 0 => {
                self.memory.repeats -= 1;
                self.announce_durable(out);
            }
            true => {}
            false => self.report_flushed(true, out),
        }
    }

    /// Asks all members, by way of the leader, to flush what they have.
    pub(super) fn on_flush_all(&mut self, from: Option<NodeId>, out: &mut Vec<MemberEffect>) {
        out.push(MemberEffect::FlushNow);
        let asked: Vec<NodeId> = match (self.leads(), from) {
            (true, _) => self.members().voters.iter().copied().filter(|node| *node != self.id).collect(),
            (false, None) => self.leader().into_iter().collect(),
            (false, Some(_)) => Vec::new(),
        };
        for to in asked.into_iter().filter(|to| Some(*to) != from) {
            let said = self.message(PeerKind::FlushNow, to);
            self.send(said, out);
        }
    }

    /// True if a vote is one that this candidate waits for: a granted one, or the answer of a learner that votes by an
    /// open change and has not executed it. That one executed nothing behind the change, so it need not grant anything.
    pub(super) fn awaits_vote(&self, message: &PeerMessage) -> bool {
        let raft = &self.node.raft;
        let excuses = || !message.votes && self.voters_to_be().contains(&message.from);
        let is_of_election = match message.kind {
            PeerKind::Vote => raft.state == StateRole::Candidate && message.term == raft.term,
            // A member that refuses a term to come answers in its own.
            PeerKind::PreVote => {
                let is_refusal = message.reject && message.term <= raft.term;
                raft.state == StateRole::PreCandidate && (message.term == raft.term + 1 || is_refusal)
            }
            _ => false,
        };
        is_of_election && (!message.reject || excuses())
    }

    pub(super) fn message(&self, kind: PeerKind, to: NodeId) -> PeerMessage {
        PeerMessage::new(kind, self.id, to, self.term())
    }

    /// What every message says of its sender.
    pub(super) fn sign(&self, message: &mut PeerMessage) {
        if message.from != self.id {
            // It passes a question on.
            return;
        }
        (message.incarnation, message.returning) = (self.memory.incarnation, self.memory.returning);
        message.votes = self.members().voters.contains(&self.id);
        message.for_incarnation = self.memory.incarnations.get(&message.to).copied().unwrap_or(0);
        if matches!(message.kind, PeerKind::Append | PeerKind::Heartbeat)
            && self.members().learners.contains(&message.to)
        {
            message.commit = message.commit.min(self.durable());
        }
        if message.kind == PeerKind::Vote && self.memory.returning {
            message.newest = self.newest.max(self.memory.stamp_bound);
        }
    }

    /// The learners that vote by a change in the log that is not known to be committed: if it was, they elect, and may
    /// have what all voters lost.
    pub(super) fn voters_to_be(&self) -> Vec<NodeId> {
        let (store, members) = (self.node.store(), self.members());
        let changes = (self.committed().0 + 1..=store.last()).filter_map(|index| store.entry(index));
        let changes = changes.map(peer::entry_out).filter(|entry| entry.kind == EntryKind::Change);
        let promoted = changes.filter_map(|entry| peer::decode_change(&entry.data)).filter_map(|change| {
            let mut next = members.clone();
            peer::change_members(&mut next, &change);
            next.voters.into_iter().find(|voter| !members.voters.contains(voter))
        });
        promoted.collect()
    }

    /// A candidate asks those for their votes, too.
    pub(super) fn ask_voters_to_be(&self, messages: &mut Vec<PeerMessage>) {
        let is_asking = |message: &&PeerMessage| matches!(message.kind, PeerKind::AskVote | PeerKind::AskPreVote);
        let Some(asking) = messages.iter().find(is_asking).cloned() else { return };
        let others = self.voters_to_be().into_iter().filter(|node| *node != self.id);
        messages.extend(others.map(|to| PeerMessage { to, ..asking.clone() }));
    }
}
