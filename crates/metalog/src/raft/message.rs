//! What can happen to a member of the metalog and what it asks for, and what members say to each other.

use bytes::Bytes;
use frieze_base::{LogIndex, NodeId, Reason, SegmentId};
use frieze_hlc::Hlc;

use crate::error::Error;
use crate::message::{DataEnd, JournalSegment, LogEntry};

/// The members, as of an entry of the log. Ids rise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Those whose majority commits and elects.
    pub voters: Vec<NodeId>,
    /// Those that get the log and do not count: new ones, and all beyond the most that may vote.
    pub learners: Vec<NodeId>,
}

impl Members {
    /// True if `node` is one of them.
    pub fn contains(&self, node: NodeId) -> bool {
        self.voters.contains(&node) || self.learners.contains(&node)
    }
}

/// A place in the log from which a member can go on without what came before: the state after this entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotMeta {
    /// The last entry in the state.
    pub index: LogIndex,
    /// Its term.
    pub term: u64,
    /// Newest stamp of a transaction up to it.
    pub stamp: Hlc,
    /// The members as of it.
    pub members: Members,
}

/// A change of the members. One at a time: the next is refused until the log holds the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberChange {
    /// A new member, with an id that no member ever had, as a learner.
    Add(NodeId),
    /// A learner that has caught up ([`RaftMember::caught_up`](crate::RaftMember::caught_up)) becomes a voter.
    Promote(NodeId),
    /// A voter becomes a learner: it goes on getting the log.
    Demote(NodeId),
    /// A member goes, for ever.
    Remove(NodeId),
}

/// When a batch is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum BatchDurability {
    /// When a majority has it in memory.
    #[default]
    Memory,
    /// When a majority has it on stable storage: what servers do by it must never be undone.
    Stable,
}

/// What a member is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RaftRole {
    /// It orders proposals.
    Leader,
    /// It follows a leader, or waits for one.
    Follower,
    /// It asks to be elected.
    Candidate,
}

/// Everything that can happen to a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberInput {
    /// [`MemberSettings::tick_us`](crate::MemberSettings::tick_us) of the monotonic clock have gone by.
    Tick,
    /// A message of another member. After one with a snapshot: only when all of the state that it names is here.
    Receive(PeerMessage),
    /// Put this batch at the end. The stamp given to `step` is a fresh tick, the first of `count` consecutive ones,
    /// above [`RaftMember::newest`](crate::RaftMember::newest). Answered by [`MemberEffect::Proposed`] or
    /// [`MemberEffect::Refused`].
    Propose {
        /// The encoded batch.
        body: Vec<u8>,
        /// Number of transactions in it, at least 1.
        count: u32,
        /// End of the proposer's data log now.
        data_end: DataEnd,
        /// When members acknowledge it.
        durability: BatchDurability,
    },
    /// A client waits until what is in the log is durable: all members flush theirs soon.
    FlushAll,
    /// The bytes of this record (and of its new segment, if it had one) are whole in the file. Records complete in
    /// order.
    Appended {
        /// The record.
        record: LogIndex,
    },
    /// They are not. A leader without other members withdraws the record and all after it
    /// ([`MemberEffect::Withdrawn`]), unless it holds a term or a vote. Any other is silent from now on, until it has
    /// been restarted.
    AppendFailed {
        /// The record.
        record: LogIndex,
        /// Why.
        reason: Reason,
    },
    /// Every record up to this one is on stable storage.
    Persisted {
        /// The last of them.
        record: LogIndex,
    },
    /// The device can no longer make records durable. The member is silent from now on, until it has been restarted.
    DeviceFailed {
        /// Why.
        reason: Reason,
    },
    /// The state holds every entry up to `index`.
    Applied {
        /// The last of them.
        index: LogIndex,
    },
    /// The store holds every entry up to `through` durably: they need not be kept. A member that lacks some of them
    /// gets the state instead.
    Truncate {
        /// The last of them.
        through: LogIndex,
    },
    /// No entry will be stamped at or below `at` any more. Answered by [`MemberEffect::Closed`],
    /// [`MemberEffect::NotClosed`] or [`MemberEffect::Refused`].
    Close {
        /// The instant, inclusive; not above the stamp given to `step`.
        at: Hlc,
    },
    /// How far has the state to be, to hold everything that anybody was told before now? Answered by
    /// [`MemberEffect::ReadAt`], [`MemberEffect::ReadFailed`] or [`MemberEffect::Refused`].
    Read {
        /// Names the question; the driver's.
        token: u64,
    },
    /// Change the members. Answered by [`MemberEffect::Proposed`] or [`MemberEffect::Refused`].
    Change(MemberChange),
    /// The operator says that this voter is lost with what it had in memory: an election that needs all voters does not
    /// wait for it. Only while no leader is known; [`MemberEffect::Refused`] says why not.
    DeclareLost {
        /// The voter.
        node: NodeId,
    },
    /// Let this member lead, if this one does.
    Transfer {
        /// The next leader.
        to: NodeId,
    },
    /// Messages do not reach this member.
    Unreachable {
        /// The member.
        peer: NodeId,
    },
    /// This member has ended its connection, as a process does that ends: if it leads, an election need not wait until
    /// it has been silent for long. It may be running all the same; then it stays leader for the members that it still
    /// reaches.
    Gone {
        /// The member.
        peer: NodeId,
    },
    /// The state that [`MemberEffect::SendSnapshot`] asked for has been sent, or has not.
    SnapshotSent {
        /// The receiver.
        to: NodeId,
        /// All of it is there.
        whole: bool,
    },
}

/// Everything a member can ask of its driver, to be done in the order given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberEffect {
    /// Write `bytes` at `offset` of `segment`, after making the segment if it is new; then report
    /// [`MemberInput::Appended`] or [`MemberInput::AppendFailed`], and after a flush, which may cover many,
    /// [`MemberInput::Persisted`].
    Append {
        /// Number of the record.
        record: LogIndex,
        /// The segment to make first.
        roll: Option<JournalSegment>,
        /// The segment.
        segment: SegmentId,
        /// Bytes from its start.
        offset: u64,
        /// Header, body and padding.
        bytes: Vec<u8>,
        /// Something waits for it: flush it at once, not when more has gathered.
        urgent: bool,
    },
    /// Remove this file, if it is there.
    Remove {
        /// The file.
        segment: SegmentId,
    },
    /// Write zeros over what a withdrawn record may have left: else it could come back after a crash that comes before
    /// the next record. If this fails too, report [`MemberInput::DeviceFailed`].
    Erase {
        /// The segment.
        segment: SegmentId,
        /// Bytes from its start.
        offset: u64,
        /// Number of zeros.
        len: u64,
    },
    /// The entries after this one could not be written, and are as if they had never been proposed. Others take their
    /// places.
    Withdrawn {
        /// The last entry that stays.
        after: LogIndex,
        /// Why.
        error: Error,
    },
    /// Send this. It may be lost, delayed or doubled.
    Send(PeerMessage),
    /// Send the state as it is after `meta.index`, which is the last entry applied here, and then the message.
    /// Report [`MemberInput::SnapshotSent`].
    SendSnapshot {
        /// What the state is called.
        meta: SnapshotMeta,
        /// What follows it.
        message: PeerMessage,
    },
    /// Put the state received under this name in the place of the one here, all at once and durably, `meta` with it,
    /// before doing anything that follows. If that fails, report [`MemberInput::DeviceFailed`] and drop what follows.
    Install {
        /// Its name.
        meta: SnapshotMeta,
    },
    /// These entries are committed: here and on a majority. Apply them in order, then report
    /// [`MemberInput::Applied`] with `through`.
    Committed {
        /// The last entry; those left out of `entries` hold no transaction.
        through: LogIndex,
        /// What to execute.
        entries: Vec<LogEntry>,
    },
    /// Entries up to this one are on stable storage at a majority of the voters. Only of members that commit from
    /// memory: else whatever is committed is.
    Durable {
        /// The last of them.
        index: LogIndex,
    },
    /// This member lost its memory, and has again what it lacked: it is no returning member any more, not even if it
    /// stops now.
    UpToDate,
    /// Flush the journal at once, if something of it is not on stable storage.
    FlushNow,
    /// The proposal of this step has this place, if it is ever committed: it is if [`MemberEffect::Committed`] shows an
    /// entry of this term there; it is not if it shows one of another.
    Proposed {
        /// The place.
        index: LogIndex,
        /// This leader's term.
        term: u64,
    },
    /// The input of this step was not taken.
    Refused(Error),
    /// The metalog at `at` will never change.
    Closed {
        /// The instant asked for.
        at: Hlc,
    },
    /// It is not known whether it does: ask again.
    NotClosed {
        /// The instant asked for.
        at: Hlc,
        /// Why.
        error: Error,
    },
    /// Everything that anybody was told before the question is in the state once it holds `index`.
    ReadAt {
        /// The question.
        token: u64,
        /// So far.
        index: LogIndex,
    },
    /// No answer could be had: ask again.
    ReadFailed {
        /// The question.
        token: u64,
        /// Why.
        error: Error,
    },
    /// The role of this member, and the member that it takes for the leader. A new leader's clock goes above
    /// [`RaftMember::newest`](crate::RaftMember::newest) before it proposes.
    Role {
        /// What it is.
        role: RaftRole,
        /// In this term.
        term: u64,
        /// The member that a client may ask.
        leader: Option<NodeId>,
        /// This member leads, and too few of those that elected it kept their memory: entries stamped above this may be
        /// lost that were acknowledged and on no stable storage. Its first batch says so.
        lost_after: Option<Hlc>,
    },
    /// The members from this entry on.
    Changed {
        /// The entry.
        index: LogIndex,
        /// The members.
        members: Members,
    },
    /// The member is silent from now on, until it has been restarted. What waits for it will not come.
    Failed(Error),
}

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PeerKind {
    /// Entries, or none to probe.
    Append,
    /// They are in memory, or do not fit.
    Appended,
    /// Vote for me.
    AskVote,
    /// Yes or no.
    Vote,
    /// Would you vote for me?
    AskPreVote,
    /// Yes or no.
    PreVote,
    /// Go on from this state.
    Snapshot,
    /// I lead.
    Heartbeat,
    /// I follow.
    HeartbeatSeen,
    /// Stand for election at once: I step aside for you.
    TimeoutNow,
    /// How far have I to be?
    AskReadIndex,
    /// So far.
    ReadIndex,
    /// You are up to date with this entry.
    UpToDate,
    /// My log is on stable storage up to here.
    Flushed,
    /// A majority has the log on stable storage up to here.
    Durable,
    /// A client waits for what is on no stable storage.
    FlushNow,
    /// The operator declared the voter named by `hint` lost, in term `log_term`.
    DeclareLost,
}

/// What an entry on its way between members holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EntryKind {
    /// A batch, an instant, or nothing.
    Normal,
    /// A change of members.
    Change,
}

/// An entry on its way between members, or in the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerEntry {
    /// What `data` is.
    pub kind: EntryKind,
    /// Its place.
    pub index: LogIndex,
    /// Term of the leader that put it there.
    pub term: u64,
    /// Encoded by the leader.
    pub data: Bytes,
}

/// What one member says to another. Any of it may be wrong: [`RaftMember::step`](crate::RaftMember::step) checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerMessage {
    /// What it is about.
    pub kind: PeerKind,
    /// The sender.
    pub from: NodeId,
    /// The receiver.
    pub to: NodeId,
    /// The sender's term, or the one it asks votes for.
    pub term: u64,
    /// Term of the entry at `index`, or at `hint`; of a declaration.
    pub log_term: u64,
    /// A place in the log.
    pub index: LogIndex,
    /// The last entry that the sender knows to be committed and its receiver may take so.
    pub commit: LogIndex,
    /// Its term, with votes.
    pub commit_term: u64,
    /// No.
    pub reject: bool,
    /// Where to try next; with [`PeerKind::UpToDate`] the receiver's incarnation that is meant, with
    /// [`PeerKind::DeclareLost`] a voter.
    pub hint: LogIndex,
    /// Names a question about reads; `CampaignTransfer` with a vote that was asked for by the leader.
    pub context: Bytes,
    /// Entries after `index`; the name of a question about reads.
    pub entries: Vec<PeerEntry>,
    /// With [`PeerKind::Snapshot`].
    pub snapshot: Option<SnapshotMeta>,
    /// Number of the sender's process among those of its node.
    pub incarnation: u64,
    /// What the sender had in memory is lost, and it is not up to date yet.
    pub returning: bool,
    /// The newest incarnation of the receiver that the sender knows; 0 for none.
    pub for_incarnation: u64,
    /// With votes of a returning member: no entry that it ever acknowledged is stamped above it.
    pub newest: Hlc,
    /// The sender is a voter, as far as it knows.
    pub votes: bool,
}

impl PeerMessage {
    /// A message that says nothing but its kind.
    pub(super) fn new(kind: PeerKind, from: NodeId, to: NodeId, term: u64) -> PeerMessage {
        PeerMessage {
            kind,
            from,
            to,
            term,
            log_term: 0,
            index: LogIndex(0),
            commit: LogIndex(0),
            commit_term: 0,
            reject: false,
            hint: LogIndex(0),
            context: Bytes::new(),
            entries: Vec::new(),
            snapshot: None,
            incarnation: 0,
            returning: false,
            for_incarnation: 0,
            newest: Hlc::ZERO,
            votes: false,
        }
    }
}
