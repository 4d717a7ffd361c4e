//! Between our words for what members say and those of the Raft core, and the check of what comes from outside.
//!
//! The library ends the process on messages that no honest member sends (a commit beyond the log, an entry in the place
//! of a committed one). So every message is checked against the log before it gets there: a wrong one is an error. One
//! that contradicts a committed entry ends this member's part: the others elected without it (`excuses.rs`).

use bytes::Bytes;
use frieze_base::{LogIndex, NodeId};
use frieze_hlc::Hlc;
use raft::eraftpb::MessageType as Type;
use raft::eraftpb::{ConfChangeSingle, ConfChangeType, ConfChangeV2, ConfState, Entry, EntryType, Message, Snapshot};

use super::message::{EntryKind, MemberChange, Members, PeerEntry, PeerKind, PeerMessage, SnapshotMeta};
use crate::error::Error;

/// What an entry takes in a message beside its data, roughly: counted so that many empty ones do not make one huge
/// message.
pub(super) const ENTRY_OVERHEAD_BYTES: u64 = 32;
/// A change of members is no longer than this: two numbers.
const CHANGE_BYTES_MAX: usize = 32;
/// Terms above it would overflow when they rise; no cluster gets there.
const TERM_MAX: u64 = 1 << 60;
/// The same of indexes.
const INDEX_MAX: u64 = 1 << 60;

const KINDS: [(PeerKind, Type); 12] = [
    (PeerKind::Append, Type::MsgAppend),
    (PeerKind::Appended, Type::MsgAppendResponse),
    (PeerKind::AskVote, Type::MsgRequestVote),
    (PeerKind::Vote, Type::MsgRequestVoteResponse),
    (PeerKind::AskPreVote, Type::MsgRequestPreVote),
    (PeerKind::PreVote, Type::MsgRequestPreVoteResponse),
    (PeerKind::Snapshot, Type::MsgSnapshot),
    (PeerKind::Heartbeat, Type::MsgHeartbeat),
    (PeerKind::HeartbeatSeen, Type::MsgHeartbeatResponse),
    (PeerKind::TimeoutNow, Type::MsgTimeoutNow),
    (PeerKind::AskReadIndex, Type::MsgReadIndex),
    (PeerKind::ReadIndex, Type::MsgReadIndexResp),
];

pub(super) fn node(id: u64) -> NodeId {
    NodeId(u32::try_from(id).expect("only ids that were node ids are given to the library"))
}

pub(super) fn conf_state(members: &Members) -> ConfState {
    let ids = |nodes: &[NodeId]| nodes.iter().map(|node| u64::from(node.0)).collect::<Vec<u64>>();
    let mut state = ConfState::default();
    state.set_voters(ids(&members.voters));
    state.set_learners(ids(&members.learners));
    state
}

pub(super) fn members_of(state: &ConfState) -> Members {
    let nodes = |ids: &[u64]| {
        let mut nodes: Vec<NodeId> = ids.iter().map(|id| node(*id)).collect();
        nodes.sort();
        nodes
    };
    Members { voters: nodes(state.get_voters()), learners: nodes(state.get_learners()) }
}

/// The library's words for a change: one step, so that old and new majority always share a member.
pub(super) fn change_of(change: MemberChange) -> ConfChangeV2 {
    let (kind, node) = match change {
        MemberChange::Promote(node) => (ConfChangeType::AddNode, node),
        MemberChange::Add(node) | MemberChange::Demote(node) => (ConfChangeType::AddLearnerNode, node),
        MemberChange::Remove(node) => (ConfChangeType::RemoveNode, node),
    };
    let mut single = ConfChangeSingle::default();
    single.set_change_type(kind);
    single.node_id = node.0.into();
    let mut change = ConfChangeV2::default();
    change.mut_changes().push(single);
    change
}

/// Decodes a committed change. `None` for what no leader of ours proposes.
pub(super) fn decode_change(data: &[u8]) -> Option<ConfChangeV2> {
    if data.len() > CHANGE_BYTES_MAX {
        return None;
    }
    let mut change = ConfChangeV2::default();
    protobuf::Message::merge_from_bytes(&mut change, data).ok()?;
    let known = change.get_changes().len() == 1 && change.get_changes().iter().all(|one| is_node(one.node_id));
    known.then_some(change)
}

/// The bytes of a change, as an entry holds them.
pub(super) fn change_data(change: &ConfChangeV2) -> Bytes {
    protobuf::Message::write_to_bytes(change).expect("a change has no field that could be missing").into()
}

/// What a change makes of the members.
pub(super) fn change_members(members: &mut Members, change: &ConfChangeV2) {
    for one in change.get_changes() {
        let changed = node(one.node_id);
        members.voters.retain(|member| *member != changed);
        members.learners.retain(|member| *member != changed);
        match one.get_change_type() {
            ConfChangeType::AddNode => members.voters.push(changed),
            ConfChangeType::AddLearnerNode => members.learners.push(changed),
            ConfChangeType::RemoveNode => {}
        }
    }
    members.voters.sort();
    members.learners.sort();
}

fn is_node(id: u64) -> bool {
    (1..=u64::from(u32::MAX)).contains(&id)
}

pub(super) fn snapshot_of(meta: &SnapshotMeta) -> Snapshot {
    let stamp = Bytes::copy_from_slice(&meta.stamp.0.to_le_bytes());
    let mut snapshot = Snapshot { data: stamp, ..Snapshot::default() };
    let into = snapshot.mut_metadata();
    into.index = meta.index.0;
    into.term = meta.term;
    into.set_conf_state(conf_state(&meta.members));
    snapshot
}

pub(super) fn meta_of(snapshot: &Snapshot) -> SnapshotMeta {
    let stamp = snapshot.data.as_ref().try_into().map_or(0, u64::from_le_bytes);
    let meta = snapshot.get_metadata();
    let members = members_of(meta.get_conf_state());
    SnapshotMeta { index: LogIndex(meta.index), term: meta.term, stamp: Hlc(stamp), members }
}

pub(super) fn entry_in(entry: &PeerEntry) -> Entry {
    let mut made = Entry::default();
    made.set_entry_type(match entry.kind {
        EntryKind::Normal => EntryType::EntryNormal,
        EntryKind::Change => EntryType::EntryConfChangeV2,
    });
    made.index = entry.index.0;
    made.term = entry.term;
    made.data = entry.data.clone();
    made
}

pub(super) fn kind_of(entry: &Entry) -> EntryKind {
    match entry.get_entry_type() {
        EntryType::EntryNormal => EntryKind::Normal,
        EntryType::EntryConfChange | EntryType::EntryConfChangeV2 => EntryKind::Change,
    }
}

pub(super) fn entry_out(entry: &Entry) -> PeerEntry {
    let kind = kind_of(entry);
    PeerEntry { kind, index: LogIndex(entry.index), term: entry.term, data: entry.data.clone() }
}

/// Our words for a message of the library. `None` for those that no other member is meant to get.
pub(super) fn message_out(message: &Message) -> Option<PeerMessage> {
    let (kind, _) = KINDS.iter().find(|(_, kind)| *kind == message.get_msg_type())?;
    Some(PeerMessage {
        log_term: message.log_term,
        index: LogIndex(message.index),
        commit: LogIndex(message.commit),
        commit_term: message.commit_term,
        reject: message.reject,
        hint: LogIndex(message.reject_hint),
        context: message.context.clone(),
        entries: message.get_entries().iter().map(entry_out).collect(),
        snapshot: message.has_snapshot().then(|| meta_of(message.get_snapshot())),
        ..PeerMessage::new(*kind, node(message.from), node(message.to), message.term)
    })
}

/// The library's words for a message that [`check`] has found right.
pub(super) fn message_in(message: &PeerMessage) -> Message {
    let mut made = Message::default();
    let kind = KINDS.iter().find(|(kind, _)| *kind == message.kind);
    made.set_msg_type(kind.expect("every kind has its line").1);
    made.from = message.from.0.into();
    made.to = message.to.0.into();
    made.term = message.term;
    made.log_term = message.log_term;
    made.index = message.index.0;
    made.commit = message.commit.0;
    made.commit_term = message.commit_term;
    made.reject = message.reject;
    made.reject_hint = message.hint.0;
    made.context = message.context.clone();
    made.set_entries(message.entries.iter().map(entry_in).collect::<Vec<_>>().into());
    if let Some(meta) = &message.snapshot {
        made.set_snapshot(snapshot_of(meta));
    }
    made
}

/// What of the log a message is checked against.
pub(super) struct KnownLog<'a> {
    pub(super) me: NodeId,
    pub(super) term: u64,
    pub(super) last: u64,
    pub(super) committed: u64,
    pub(super) leads: bool,
    pub(super) data_bytes_max: u64,
    /// Of all entries of a message together, beside one.
    pub(super) message_bytes: u64,
    /// Terms of entries that are there.
    pub(super) term_at: &'a dyn Fn(u64) -> Option<u64>,
}

/// Refuses what no honest member sends: what the library would end the process for, and what would make it hold too
/// much.
pub(super) fn check(message: &PeerMessage, seen: &KnownLog<'_>) -> Result<(), Error> {
    let wrong = |what: &'static str| Error::BadMessage { from: message.from, what };
    let require = |right: bool, what: &'static str| if right { Ok(()) } else { Err(wrong(what)) };
    require(message.to == seen.me, "it is for another member")?;
    require(message.from != seen.me && message.from != NodeId(0), "it is from nobody else")?;
    let all_terms = [message.term, message.log_term, message.commit_term];
    require(all_terms.iter().all(|term| *term <= TERM_MAX), "its term is out of range")?;
    let all_places = [message.index, message.commit, message.hint];
    require(all_places.iter().all(|index| index.0 <= INDEX_MAX), "its place in the log is out of range")?;
    let has_entries = matches!(message.kind, PeerKind::Append | PeerKind::AskReadIndex | PeerKind::ReadIndex);
    require(has_entries || message.entries.is_empty(), "it holds entries")?;
    require((message.kind == PeerKind::Snapshot) == message.snapshot.is_some(), "its snapshot does not belong there")?;
    // Terms tell an old message from a new one; only a question to the leader has none.
    require((message.kind == PeerKind::AskReadIndex) == (message.term == 0), "its term does not belong there")?;
    let current = message.term >= seen.term;
    match message.kind {
        PeerKind::Append => check_entries(message, seen, current, &wrong),
        PeerKind::Heartbeat if current => {
            require(message.commit.0 <= seen.last, "it commits beyond the end of the log, which was there before")
        }
        PeerKind::Snapshot => check_snapshot(message, seen, current, &wrong),
        PeerKind::Appended if current && seen.leads => {
            require(message.index.0 <= seen.last && message.hint.0 <= seen.last, "it names entries that never were")
        }
        PeerKind::AskReadIndex | PeerKind::ReadIndex => {
            let named = message.entries.len() == 1 && message.entries.iter().all(|entry| entry.data.len() <= 64);
            require(named, "it does not name its question")
        }
        _ => Ok(()),
    }
}

fn check_entries(
    message: &PeerMessage,
    seen: &KnownLog<'_>,
    current: bool,
    wrong: &dyn Fn(&'static str) -> Error,
) -> Result<(), Error> {
    let mut before = (message.index.0, message.log_term);
    if message.log_term > message.term {
        return Err(wrong("its entries are from a term to come"));
    }
    // The library takes term 0 for that of whatever lies beyond the end of the log.
    if (message.log_term == 0) != (message.index == LogIndex(0)) {
        return Err(wrong("only what comes before the first entry has no term"));
    }
    // What an old leader sends may contradict what was committed since: the library does not look at it. Beyond what is
    // committed the logs may differ: then the library says no by itself. A leader may have got its vote after the last
    // entry here, so what an unknown sender contradicts counts, too.
    let contradicts = |index: u64, term: u64| {
        current && index <= seen.committed && (seen.term_at)(index).is_some_and(|known| known != term)
    };
    if contradicts(message.index.0, message.log_term) {
        return Err(Error::Contradicted { from: message.from });
    }
    let bytes: u64 = message.entries.iter().map(|entry| entry.data.len() as u64 + ENTRY_OVERHEAD_BYTES).sum();
    if bytes > seen.data_bytes_max + seen.message_bytes {
        return Err(wrong("its entries are too many"));
    }
    for entry in &message.entries {
        if entry.index.0 != before.0 + 1 || entry.term < before.1.max(1) || entry.term > message.term {
            return Err(wrong("its entries do not follow each other"));
        }
        let len = entry.data.len() as u64;
        if len > seen.data_bytes_max || (entry.kind == EntryKind::Change && decode_change(&entry.data).is_none()) {
            return Err(wrong("an entry is not one of ours"));
        }
        if contradicts(entry.index.0, entry.term) {
            return Err(Error::Contradicted { from: message.from });
        }
        before = (entry.index.0, entry.term);
    }
    Ok(())
}

fn check_snapshot(
    message: &PeerMessage,
    seen: &KnownLog<'_>,
    current: bool,
    wrong: &dyn Fn(&'static str) -> Error,
) -> Result<(), Error> {
    let Some(meta) = &message.snapshot else { return Err(wrong("it has no snapshot")) };
    let Members { voters, learners } = &meta.members;
    let rises = |nodes: &[NodeId]| nodes.windows(2).all(|pair| pair[0] < pair[1]) && !nodes.contains(&NodeId(0));
    let apart = learners.iter().all(|learner| !voters.contains(learner));
    if voters.is_empty() || !rises(voters) || !rises(learners) || !apart {
        return Err(wrong("the members in its snapshot are no members"));
    }
    if meta.index == LogIndex(0) || meta.index.0 > INDEX_MAX || meta.term == 0 || meta.term > message.term {
        return Err(wrong("its snapshot is out of range"));
    }
    // A state before the end of the log agrees with it, if it is of committed entries, which it is.
    let known = (seen.term_at)(meta.index.0);
    if current && meta.index.0 <= seen.committed && known.is_some_and(|term| term != meta.term) {
        return Err(Error::Contradicted { from: message.from });
    }
    Ok(())
}
