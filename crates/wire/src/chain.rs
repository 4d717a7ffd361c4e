//! The members of a chain and the header of its records, for every crate that names them: the core that runs a chain,
//! the core that decides its members, the log of a device, and the messages between servers.
//!
//! Guarantees: a message converts to these types and back without loss. Leaves to others: which configuration is in
//! force (`cluster`), what a record changes (`multilog`), the bytes of messages ([`crate::peer`]).

use frieze_base::{ChainEpoch, ChainId, ChunkId, InodeId, NodeId, Seq, SessionId};
use frieze_hlc::{Hlc, UserTime};

use crate::peer::ChainRecord;
use crate::peer::control::ConfigurationProto;

/// The members of a chain, as the control plane has decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// Its number. Members of an older one are fenced.
    pub epoch: ChainEpoch,
    /// Head first, tail last. The log of each is a prefix of that of the one before it.
    pub members: Vec<NodeId>,
    /// The node that syncs behind the tail: it receives records, acknowledges none, serves no reads.
    pub syncing: Option<NodeId>,
    /// The tail is new: commits and promises need it, but it does not answer reads of now, and must not be left alone
    /// with the chain, before it has reported that it is ready.
    pub joining: bool,
}

impl Configuration {
    /// A chain of one member, which is head and tail.
    pub fn alone(epoch: ChainEpoch) -> Configuration {
        Configuration { epoch, members: vec![NodeId::default()], ..Configuration::default() }
    }

    /// The head, which stamps.
    pub fn head(&self) -> Option<NodeId> {
        self.members.first().copied()
    }

    /// The tail, which commits.
    pub fn tail(&self) -> Option<NodeId> {
        self.members.last().copied()
    }

    /// True if `node` is one of the members; the syncing node is not.
    pub fn holds(&self, node: NodeId) -> bool {
        self.members.contains(&node)
    }

    /// True if `node` is a member or the syncing node.
    pub fn names(&self, node: NodeId) -> bool {
        self.holds(node) || self.syncing == Some(node)
    }

    /// True if `node` may answer reads of now under it: a joining tail may not.
    pub fn may_answer(&self, node: NodeId) -> bool {
        let full = self.members.len() - usize::from(self.joining);
        self.members[..full].contains(&node)
    }

    /// The member before `node`.
    pub fn before(&self, node: NodeId) -> Option<NodeId> {
        if self.syncing == Some(node) {
            return self.tail();
        }
        let at = self.members.iter().position(|member| *member == node)?;
        at.checked_sub(1).map(|before| self.members[before])
    }

    /// The member after `node`; after the tail, the syncing node.
    pub fn after(&self, node: NodeId) -> Option<NodeId> {
        let at = self.members.iter().position(|member| *member == node)?;
        self.members.get(at + 1).copied().or(self.syncing)
    }
}

impl From<&Configuration> for ConfigurationProto {
    fn from(configuration: &Configuration) -> ConfigurationProto {
        ConfigurationProto {
            epoch: configuration.epoch.0,
            members: configuration.members.iter().map(|node| node.0).collect(),
            syncing: configuration.syncing.map_or(0, |node| node.0),
            joining: configuration.joining,
        }
    }
}

impl From<ConfigurationProto> for Configuration {
    fn from(message: ConfigurationProto) -> Configuration {
        Configuration {
            epoch: ChainEpoch(message.epoch),
            members: message.members.into_iter().map(NodeId).collect(),
            syncing: Some(NodeId(message.syncing)).filter(|node| node.0 > 0),
            joining: message.joining,
        }
    }
}

/// What a record does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum RecordKind {
    /// Bytes at an offset.
    Write = 1,
    /// A range reads as zeros from now on; it carries no payload and extends nothing.
    Punch = 2,
}

impl RecordKind {
    /// The kind with this number; `None` for an unknown one.
    pub fn of(byte: u8) -> Option<RecordKind> {
        match byte {
            1 => Some(RecordKind::Write),
            2 => Some(RecordKind::Punch),
            _ => None,
        }
    }
}

/// Header of a record of a chain: everything about it but its bytes.
///
/// One struct at every stage of its life, with these fields set:
///
/// | stage | not set | set by |
/// |---|---|---|
/// | a write before the head has stamped it (`chain::WriteRequest`) | `n`, `version`, `stamp` are 0; `epoch` is the writer's | the data plane of the head |
/// | stamped (`chain::ReplicaEffect::Append`) | none; `parts` counts the whole group | the replica at the head |
/// | in the log of a device (`multilog`) | none; `parts` is 0 or 1 if the group is not beside it | the log |
/// | in a message ([`ChainRecord`]) | `parts`, which no message has; the receiver sets 1 for the first part, 0 for others | the sender |
/// | in answers about history (`PeerResponse`) | as in a message | the server with the record |
///
/// Durability and the writer's acknowledged numbers are no part of it: only the members of the chain need them, until
/// the record is committed (`chain::ForwardedRecord`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// What it does.
    pub kind: RecordKind,
    /// The chain that ordered it.
    pub chain: ChainId,
    /// Configuration of the chain in which it was stamped.
    pub epoch: ChainEpoch,
    /// Its number in the chain, from 1.
    pub n: u64,
    /// The chunk it changes.
    pub chunk: ChunkId,
    /// Version of the chunk that it makes, from 1.
    pub version: u64,
    /// Its stamp.
    pub stamp: Hlc,
    /// The time that its data tells, found by a plug-in.
    pub user_time: Option<UserTime>,
    /// The session that wrote it.
    pub session: SessionId,
    /// Number of the request in its session.
    pub seq: Seq,
    /// User on whose behalf.
    pub uid: u32,
    /// First byte in the chunk.
    pub offset: u32,
    /// Bytes of the chunk it covers. `offset + len` stays below 2^32.
    pub len: u32,
    /// Which record of its group, from 0.
    pub part: u8,
    /// Records in its group, which lie one after the other; 1 if it is none. 0: the others are not beside it, as where
    /// a chain has brought this one by itself.
    pub parts: u8,
}

impl RecordHeader {
    /// A write of no bytes with zeros in all its numbers: the first record of a list differs from this one.
    pub const ZERO: RecordHeader = RecordHeader {
        kind: RecordKind::Write,
        chain: ChainId(0),
        epoch: ChainEpoch(0),
        n: 0,
        chunk: ChunkId { inode: InodeId(0), index: 0 },
        version: 0,
        stamp: Hlc::ZERO,
        user_time: None,
        session: SessionId(0),
        seq: Seq(0),
        uid: 0,
        offset: 0,
        len: 0,
        part: 0,
        parts: 1,
    };

    /// True if all of its group that is to be seen together lies up to here, in the order of the log.
    pub fn ends_group(&self) -> bool {
        self.parts == 0 || self.part + 1 == self.parts
    }

    /// True if the records of its group begin with it.
    pub fn begins_group(&self) -> bool {
        self.parts == 0 || self.part == 0
    }

    /// True if such a record can be.
    pub fn is_sound(&self) -> bool {
        (self.parts == 0 || self.part < self.parts) && self.offset.checked_add(self.len).is_some()
    }

    /// Bytes of payload that the record carries.
    pub fn payload_len(&self) -> u32 {
        match self.kind {
            RecordKind::Write => self.len,
            RecordKind::Punch => 0,
        }
    }
}

impl From<&RecordHeader> for ChainRecord {
    /// The message about this record, with what the header has of it.
    fn from(header: &RecordHeader) -> ChainRecord {
        ChainRecord {
            chain: header.chain.0,
            n: header.n,
            stamped_under: header.epoch.0,
            version: header.version,
            stamp: header.stamp.0,
            inode: header.chunk.inode.0,
            index: header.chunk.index,
            offset: header.offset,
            len: header.len,
            user_time: header.user_time.map(|time| time.0),
            session: header.session.0,
            seq: header.seq.0,
            part: header.part.into(),
            uid: header.uid,
            punch: header.kind == RecordKind::Punch,
            ..ChainRecord::default()
        }
    }
}

impl ChainRecord {
    /// The header in this message; `None` if its range or its part is impossible. The parts of a group travel one by
    /// one, so `parts` is 1 for the first and 0 for the others.
    pub fn header(&self) -> Option<RecordHeader> {
        self.offset.checked_add(self.len)?;
        Some(RecordHeader {
            kind: if self.punch { RecordKind::Punch } else { RecordKind::Write },
            chain: ChainId(self.chain),
            epoch: ChainEpoch(self.stamped_under),
            n: self.n,
            chunk: ChunkId { inode: InodeId(self.inode), index: self.index },
            version: self.version,
            stamp: Hlc(self.stamp),
            user_time: self.user_time.map(UserTime),
            session: SessionId(self.session),
            seq: Seq(self.seq),
            uid: self.uid,
            offset: self.offset,
            len: self.len,
            part: u8::try_from(self.part).ok()?,
            parts: u8::from(self.part == 0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_its_message_but_for_the_size_of_its_group() {
        let header = RecordHeader {
            kind: RecordKind::Punch,
            chain: ChainId(1),
            epoch: ChainEpoch(2),
            n: 3,
            chunk: ChunkId { inode: InodeId(4), index: 5 },
            version: 6,
            stamp: Hlc(7),
            user_time: Some(UserTime(-8)),
            session: SessionId(9),
            seq: Seq(10),
            uid: 11,
            offset: 12,
            len: 13,
            part: 1,
            parts: 2,
        };
        let message = ChainRecord::from(&header);
        assert_eq!(message.header(), Some(RecordHeader { parts: 0, ..header.clone() }));
        let first = ChainRecord { part: 0, ..message.clone() };
        assert_eq!(first.header(), Some(RecordHeader { part: 0, parts: 1, ..header }));
        assert_eq!(ChainRecord { part: 256, ..message.clone() }.header(), None, "a part has eight bits");
        assert_eq!(ChainRecord { offset: u32::MAX, ..message }.header(), None, "it ends beyond 2^32");
    }

    #[test]
    fn a_configuration_survives_its_message() {
        let one = Configuration {
            epoch: ChainEpoch(7),
            members: vec![NodeId(3), NodeId(1)],
            syncing: Some(NodeId(2)),
            joining: true,
        };
        for configuration in [one, Configuration::default()] {
            assert_eq!(Configuration::from(ConfigurationProto::from(&configuration)), configuration);
        }
    }
}
