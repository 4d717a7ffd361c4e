//! Between what members of the metalog say and what goes over the wire.

use bytes::{Bytes, BytesMut};
use frieze_base::{Fault, LogIndex, NodeId, Reason};
use frieze_hlc::Hlc;
use frieze_metalog::{EntryKind, Members, PeerEntry, PeerKind, PeerMessage, SnapshotMeta};
use frieze_wire::peer::ServerMessage;
use frieze_wire::peer::metalog::{MetalogEntry, MetalogKind, MetalogMembers, MetalogMessage, MetalogState};

use frieze_net::{PeerPayload, Peers};

/// Payload of one part of a message: small beside what a connection holds for a node.
const PART_BYTES: usize = 1 << 20;
/// Bytes of a message in parts: entries of one message and one more of the largest kind, and room.
const PARTED_BYTES_MAX: usize = 40 << 20;

const KINDS: [(PeerKind, MetalogKind); 17] = [
    (PeerKind::Append, MetalogKind::Append),
    (PeerKind::Appended, MetalogKind::Appended),
    (PeerKind::AskVote, MetalogKind::AskVote),
    (PeerKind::Vote, MetalogKind::Vote),
    (PeerKind::AskPreVote, MetalogKind::AskPreVote),
    (PeerKind::PreVote, MetalogKind::PreVote),
    (PeerKind::Snapshot, MetalogKind::Snapshot),
    (PeerKind::Heartbeat, MetalogKind::Heartbeat),
    (PeerKind::HeartbeatSeen, MetalogKind::HeartbeatSeen),
    (PeerKind::TimeoutNow, MetalogKind::TimeoutNow),
    (PeerKind::AskReadIndex, MetalogKind::AskReadIndex),
    (PeerKind::ReadIndex, MetalogKind::ReadIndex),
    (PeerKind::UpToDate, MetalogKind::UpToDate),
    (PeerKind::Flushed, MetalogKind::Flushed),
    (PeerKind::Durable, MetalogKind::Durable),
    (PeerKind::FlushNow, MetalogKind::FlushNow),
    (PeerKind::DeclareLost, MetalogKind::DeclareLost),
];

/// Sends messages, those that are too long for a frame in parts.
#[derive(Default)]
pub(super) struct RaftSender {
    parted: u64,
}

impl RaftSender {
    pub(super) fn send(&mut self, way: &dyn Peers, message: &PeerMessage) {
        let (said, bytes) = to_wire(message);
        if bytes.len() <= PART_BYTES {
            return way.send(message.to, ServerMessage::Metalog(said), PeerPayload { bytes, crc: None, ahead: None });
        }
        self.parted += 1;
        let parts = bytes.len().div_ceil(PART_BYTES) as u32;
        for part in 0..parts {
            let said = MetalogMessage { parted: self.parted, part, parts, ..said.clone() };
            let from = part as usize * PART_BYTES;
            let bytes = bytes.slice(from..bytes.len().min(from + PART_BYTES));
            way.send(message.to, ServerMessage::Metalog(said), PeerPayload { bytes, crc: None, ahead: None });
        }
    }
}

/// Puts the parts of one sender's messages together. Of a message of which a part is lost, nothing is left: it comes
/// again.
#[derive(Default)]
pub(super) struct RaftReceiver {
    parted: u64,
    next: u32,
    bytes: BytesMut,
}

impl RaftReceiver {
    /// A message, once all of it is there.
    ///
    /// # Errors
    /// `BadFrame` for what no member sends.
    pub(super) fn take(
        &mut self,
        (from, me): (NodeId, NodeId),
        said: MetalogMessage,
        payload: &[u8],
    ) -> Result<Option<PeerMessage>, Fault> {
        if said.parted == 0 {
            return from_wire((from, me), said, Bytes::copy_from_slice(payload)).map(Some);
        }
        if said.part == 0 {
            (self.parted, self.next) = (said.parted, 0);
            self.bytes.clear();
        }
        if (said.parted, said.part) != (self.parted, self.next) {
            return Ok(None);
        }
        if self.bytes.len() + payload.len() > PARTED_BYTES_MAX {
            self.parted = 0;
            return Err(bad(from, "it is longer than any"));
        }
        self.next += 1;
        self.bytes.extend_from_slice(payload);
        if self.next < said.parts {
            return Ok(None);
        }
        self.parted = 0;
        from_wire((from, me), said, std::mem::take(&mut self.bytes).freeze()).map(Some)
    }
}

/// The message, and the bytes of its entries.
pub(super) fn to_wire(message: &PeerMessage) -> (MetalogMessage, Bytes) {
    let kind = KINDS.iter().find(|(kind, _)| *kind == message.kind).expect("every kind has its line").1;
    let entry = |entry: &PeerEntry| MetalogEntry {
        index: entry.index.0,
        term: entry.term,
        change: entry.kind == EntryKind::Change,
        len: entry.data.len() as u32,
    };
    let said = MetalogMessage {
        kind: kind as i32,
        term: message.term,
        log_term: message.log_term,
        index: message.index.0,
        commit: message.commit.0,
        commit_term: message.commit_term,
        reject: message.reject,
        hint: message.hint.0,
        context: message.context.to_vec(),
        entries: message.entries.iter().map(entry).collect(),
        state: message.snapshot.as_ref().map(state_to_wire),
        incarnation: message.incarnation,
        returning: message.returning,
        for_incarnation: message.for_incarnation,
        newest: message.newest.0,
        votes: message.votes,
        ..MetalogMessage::default()
    };
    let bytes = match message.entries.as_slice() {
        [] => Bytes::new(),
        [one] => one.data.clone(),
        many => {
            let mut all = BytesMut::with_capacity(many.iter().map(|entry| entry.data.len()).sum());
            many.iter().for_each(|entry| all.extend_from_slice(&entry.data));
            all.freeze()
        }
    };
    (said, bytes)
}

fn from_wire((from, to): (NodeId, NodeId), said: MetalogMessage, mut bytes: Bytes) -> Result<PeerMessage, Fault> {
    let kind =
        KINDS.iter().find(|(_, kind)| *kind as i32 == said.kind).ok_or_else(|| bad(from, "its kind is unknown"))?;
    let mut entries = Vec::with_capacity(said.entries.len().min(4096));
    for entry in &said.entries {
        if entry.len as usize > bytes.len() {
            return Err(bad(from, "its entries are longer than their bytes"));
        }
        let kind = if entry.change { EntryKind::Change } else { EntryKind::Normal };
        let data = bytes.split_to(entry.len as usize);
        entries.push(PeerEntry { kind, index: LogIndex(entry.index), term: entry.term, data });
    }
    if !bytes.is_empty() {
        return Err(bad(from, "its entries are shorter than their bytes"));
    }
    Ok(PeerMessage {
        kind: kind.0,
        from,
        to,
        term: said.term,
        log_term: said.log_term,
        index: LogIndex(said.index),
        commit: LogIndex(said.commit),
        commit_term: said.commit_term,
        reject: said.reject,
        hint: LogIndex(said.hint),
        context: said.context.into(),
        entries,
        snapshot: said.state.as_ref().map(state_from_wire),
        incarnation: said.incarnation,
        returning: said.returning,
        for_incarnation: said.for_incarnation,
        newest: Hlc(said.newest),
        votes: said.votes,
    })
}

/// What a state is called, on the wire and in the store that it was received in.
pub(super) fn state_to_wire(meta: &SnapshotMeta) -> MetalogState {
    let ids = |nodes: &[NodeId]| nodes.iter().map(|node| node.0).collect();
    MetalogState {
        index: meta.index.0,
        term: meta.term,
        stamp: meta.stamp.0,
        members: MetalogMembers { voters: ids(&meta.members.voters), learners: ids(&meta.members.learners) },
    }
}

pub(super) fn state_from_wire(state: &MetalogState) -> SnapshotMeta {
    let nodes = |ids: &[u32]| ids.iter().copied().map(NodeId).collect();
    let members = Members { voters: nodes(&state.members.voters), learners: nodes(&state.members.learners) };
    SnapshotMeta { index: LogIndex(state.index), term: state.term, stamp: Hlc(state.stamp), members }
}

pub(super) fn bad(from: NodeId, what: &str) -> Fault {
    Fault::new(Reason::BadFrame, format!("node {from} sent a message that no member of the metalog sends: {what}"))
}
