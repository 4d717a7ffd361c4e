//! Members that are broken on purpose, from outside: the judge has to detect every one.

use std::collections::BTreeMap;

use frieze_base::{LogIndex, NodeId};
use frieze_metalog::{Members, PeerKind, PeerMessage, RaftMember, RaftRole};

/// A way to break members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetalogBreak {
    /// Syncs report success without effect.
    SyncLies,
    /// It is said before the flush instead of after it.
    SaysPersistedEarly,
    /// A restarted member has forgotten its vote.
    VoteForgotten,
    /// A member votes for any candidate with a sufficient log, though it voted for another in that term.
    VotesTwice,
    /// A member votes for any candidate, whatever its log holds.
    VotesForAll,
    /// A leader takes an entry of an earlier term for committed because a majority has it.
    CommitsEarlierTerm,
    /// A leader does not wait for a majority.
    CommitsAlone,
    /// A member that was restarted has lost the end of its journal, and counts.
    SuffixForgotten,
    /// A leader answers reads without asking other members.
    ReadsAlone,
    /// Any member does.
    ReadsAnywhere,
    /// Requests that come again are executed again.
    RetriesRunAgain,
    /// The state sent to a member is older than its name says.
    SnapshotStale,
    /// The state sent to a member has the members of the beginning in its name.
    MembersForgotten,
    /// The log is truncated before the store has its content.
    TruncatesEarly,
    /// A received state is not durable when the log continues after it.
    InstallForgotten,
    /// An instant is closed by word alone.
    ClosesEarly,
    /// A leader counts learners for a majority.
    LearnersCount,
    /// More members vote than may.
    MoreVote,
    /// Elections take ten times as long.
    ElectionsSlow,
    /// A member that does not lead neither names the leader nor answers.
    NoHints,
    /// A member whose memory a loss of power took counts as if it had kept it.
    ReturningCounts,
    /// A leader names an early entry as what a returning member has to reach.
    GoalsEarly,
    /// A member says that its log is on stable storage before it is.
    FlushedEarly,
    /// Learners learn of commits, and get states, that are not durable.
    LearnersEarly,
    /// Batches that must never be undone are acknowledged from memory.
    BarriersFromMemory,
    /// A leader does not say that its election may have lost entries.
    LossesHidden,
}

impl MetalogBreak {
    /// Every one, for the test of the tester.
    pub const ALL: &'static [MetalogBreak] = &[
        MetalogBreak::SyncLies,
        MetalogBreak::SaysPersistedEarly,
        MetalogBreak::VoteForgotten,
        MetalogBreak::VotesTwice,
        MetalogBreak::VotesForAll,
        MetalogBreak::CommitsEarlierTerm,
        MetalogBreak::CommitsAlone,
        MetalogBreak::SuffixForgotten,
        MetalogBreak::ReadsAlone,
        MetalogBreak::ReadsAnywhere,
        MetalogBreak::RetriesRunAgain,
        MetalogBreak::SnapshotStale,
        MetalogBreak::MembersForgotten,
        MetalogBreak::TruncatesEarly,
        MetalogBreak::InstallForgotten,
        MetalogBreak::ClosesEarly,
        MetalogBreak::MoreVote,
        MetalogBreak::ElectionsSlow,
        MetalogBreak::NoHints,
        MetalogBreak::ReturningCounts,
        MetalogBreak::LossesHidden,
    ];

    /// Those that few schedules show, one in thousands: `cargo xtask sim metalog --mutants` looks for them.
    pub const RARE: &[MetalogBreak] = &[
        MetalogBreak::BarriersFromMemory,
        MetalogBreak::GoalsEarly,
        MetalogBreak::FlushedEarly,
        MetalogBreak::LearnersCount,
        MetalogBreak::LearnersEarly,
    ];
}

/// State of a broken host.
#[derive(Clone, Debug, Default)]
pub(super) struct MemberBreakState {
    /// How far each other member has the log, in this term.
    matched: (u64, BTreeMap<NodeId, u64>),
    /// The log of the last candidate: its last term and index.
    candidate: (u64, u64),
    /// The term in which the process was restarted.
    pub(super) restarted_in: Option<u64>,
    /// The members at the beginning.
    pub(super) founders: Members,
}

impl MemberBreakState {
    /// Observes an incoming message.
    pub(super) fn observe(&mut self, message: &PeerMessage) {
        if message.kind == PeerKind::AskVote {
            self.candidate = (message.log_term, message.index.0);
        }
        if message.kind != PeerKind::Appended || message.reject {
            return;
        }
        if message.term != self.matched.0 {
            self.matched = (message.term, BTreeMap::new());
        }
        let place = self.matched.1.entry(message.from).or_default();
        *place = (*place).max(message.index.0);
    }

    /// How far so many of these have the log as are a majority of the voters.
    fn replicated_to_majority(&self, members: &Members, these: &[NodeId], own: Option<u64>) -> LogIndex {
        let mut places: Vec<u64> = these.iter().filter_map(|node| self.matched.1.get(node).copied()).collect();
        places.extend(own);
        places.sort_unstable_by(|a, b| b.cmp(a));
        LogIndex(places.get(members.voters.len() / 2).copied().unwrap_or(0))
    }

    /// Breaks what an outgoing message says of its sender's memory.
    pub(super) fn mangle_memory(&self, broken: MetalogBreak, message: &mut PeerMessage, member: &RaftMember) {
        match (broken, message.kind) {
            (MetalogBreak::GoalsEarly, PeerKind::UpToDate) => {
                let early = member.base().index;
                (message.index, message.log_term) = (early, member.term_at(early).unwrap_or(0));
            }
            (MetalogBreak::FlushedEarly, PeerKind::Flushed) => {
                message.index = member.last();
                message.log_term = member.term_at(member.last()).unwrap_or(0);
            }
            (MetalogBreak::LearnersEarly, PeerKind::Append)
                if member.role() == RaftRole::Leader && member.members().learners.contains(&message.to) =>
            {
                let end = LogIndex(message.index.0 + message.entries.len() as u64);
                message.commit = member.committed().min(end);
            }
            _ => {}
        }
    }

    /// Breaks an outgoing message. `own`: the last term and index of the sender's log.
    pub(super) fn mangle(&self, broken: MetalogBreak, message: &mut PeerMessage, own: (u64, u64), members: &Members) {
        let end = LogIndex(message.index.0 + message.entries.len() as u64);
        match (broken, message.kind) {
            (MetalogBreak::VotesForAll, PeerKind::Vote | PeerKind::PreVote) => message.reject = false,
            (MetalogBreak::VotesTwice, PeerKind::Vote) if self.candidate >= own => message.reject = false,
            (MetalogBreak::VoteForgotten, PeerKind::Vote)
                if self.restarted_in == Some(message.term) && self.candidate >= own =>
            {
                message.reject = false;
            }
            (MetalogBreak::CommitsAlone, PeerKind::Append) => message.commit = end,
            (MetalogBreak::CommitsEarlierTerm, PeerKind::Append) if self.matched.0 == message.term => {
                let most = self.replicated_to_majority(members, &members.voters, Some(own.1));
                message.commit = message.commit.max(most.min(end));
            }
            (MetalogBreak::LearnersCount, PeerKind::Append) if self.matched.0 == message.term => {
                let all: Vec<NodeId> = members.voters.iter().chain(&members.learners).copied().collect();
                // An entry of an earlier term, or one that the leader has not flushed, is another break.
                let most = self.replicated_to_majority(members, &all, None).min(end);
                let mut terms = message.entries.iter().map(|entry| (entry.index, entry.term));
                if (message.index, message.log_term) == (most, message.term)
                    || terms.any(|entry| entry == (most, message.term))
                {
                    message.commit = message.commit.max(most);
                }
            }
            (MetalogBreak::MembersForgotten, PeerKind::Snapshot) => {
                if let Some(meta) = &mut message.snapshot {
                    let mut founders = self.founders.clone();
                    if !founders.contains(message.to) {
                        founders.learners.push(message.to);
                    }
                    meta.members = founders;
                }
            }
            _ => {}
        }
    }
}
