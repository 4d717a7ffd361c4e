//! The bytes of a member's journal: the body of each of its records, and of each entry in them. Little-endian.
//!
//! These are the bodies of the records in the segments (`format.rs`), where torn tails, reused files and damage are
//! told apart. A record holds what one step of the member has to make durable before it may say anything more:
//!
//! | bytes | field |
//! |---|---|
//! | 4 | magic `FRZR` |
//! | 1 | version |
//! | 1 | bit 0: a base follows; bit 1: the base takes the place of the whole log |
//! | 2 | zero |
//! | 8 | term |
//! | 8 | vote: node id, 0 for none |
//! | 8 | index of the last entry known to be committed |
//! | | **base**, if there is one |
//! | 8 | index: the state holds everything up to this entry |
//! | 8 | its term |
//! | 8 | newest stamp up to it |
//! | 8 | first record that is still needed |
//! | 2 + 2 | number of voters, number of learners |
//! | 4 each | their node ids |
//! | | **entries** |
//! | 4 | number of entries; each takes the place of the entry with its index and all after it |
//! | 8 | index |
//! | 8 | term |
//! | 1 | kind: 0 normal, 1 change of members |
//! | 4 | length of the data |
//! | | data |
//!
//! The data of a normal entry is empty, or
//!
//! | bytes | field |
//! |---|---|
//! | 1 | version |
//! | 1 | when it is acknowledged: 0 from memory, 1 from stable storage |
//! | 8 | stamp of the first transaction |
//! | 4 | number of transactions, 0 for an instant that was closed |
//! | 8 + 8 | end of the proposer's data log: segment, offset |
//! | | the batch |

use bytes::Bytes;
use frieze_base::{LogIndex, NodeId, SegmentId};
use frieze_hlc::Hlc;

use super::message::{BatchDurability, EntryKind, Members, PeerEntry, PeerKind, PeerMessage, SnapshotMeta};
use crate::message::{DataEnd, LogEntry};

const MAGIC: [u8; 4] = *b"FRZR";
/// Version of the records that this code writes.
pub const RECORD_VERSION: u8 = 1;
const DATA_VERSION: u8 = 1;
/// Why a record is refused whose checksum is right and whose version is not.
pub(crate) const OTHER_BUILD: &str = "another build of frieze wrote it: read it with that build";
/// Bytes of an entry's data before its batch.
pub(super) const DATA_HEADER_BYTES: usize = 30;

const HAS_BASE: u8 = 1;
const STARTS_ANEW: u8 = 2;

/// One record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct JournalRecord {
    pub(super) term: u64,
    /// 0 for none.
    pub(super) vote: u64,
    pub(super) commit: u64,
    pub(super) base: Option<JournalBase>,
    pub(super) entries: Vec<PeerEntry>,
}

/// Where the log begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct JournalBase {
    pub(super) meta: SnapshotMeta,
    /// The state was received: nothing of the log before is left.
    pub(super) anew: bool,
    /// First record that is still needed.
    pub(super) needed: u64,
}

impl JournalRecord {
    pub(super) fn encode(&self) -> Vec<u8> {
        let bytes: usize = self.entries.iter().map(|entry| 21 + entry.data.len()).sum();
        let mut into = Vec::with_capacity(bytes + 128);
        into.extend_from_slice(&MAGIC);
        let base_flags = self.base.as_ref().map_or(0, |base| HAS_BASE | if base.anew { STARTS_ANEW } else { 0 });
        into.extend_from_slice(&[RECORD_VERSION, base_flags, 0, 0]);
        for number in [self.term, self.vote, self.commit] {
            into.extend_from_slice(&number.to_le_bytes());
        }
        if let Some(JournalBase { meta, needed, .. }) = &self.base {
            for number in [meta.index.0, meta.term, meta.stamp.0, *needed] {
                into.extend_from_slice(&number.to_le_bytes());
            }
            let Members { voters, learners } = &meta.members;
            for nodes in [voters, learners] {
                into.extend_from_slice(&(nodes.len() as u16).to_le_bytes());
            }
            for node in voters.iter().chain(learners) {
                into.extend_from_slice(&node.0.to_le_bytes());
            }
        }
        into.extend_from_slice(&(self.entries.len() as u32).to_le_bytes());
        for entry in &self.entries {
            into.extend_from_slice(&entry.index.0.to_le_bytes());
            into.extend_from_slice(&entry.term.to_le_bytes());
            into.push(match entry.kind {
                EntryKind::Normal => 0,
                EntryKind::Change => 1,
            });
            into.extend_from_slice(&(entry.data.len() as u32).to_le_bytes());
            into.extend_from_slice(&entry.data);
        }
        into
    }

    /// The record in `bytes`, all of them; `None` if they are none of this version.
    pub(super) fn decode(bytes: &[u8]) -> Option<JournalRecord> {
        let mut rest = ByteReader(bytes);
        if rest.take(4)? != MAGIC || rest.take(1)? != [RECORD_VERSION] {
            return None;
        }
        let flags = rest.take(1)?[0];
        if flags & !(HAS_BASE | STARTS_ANEW) != 0 || rest.take(2)? != [0, 0] {
            return None;
        }
        let mut record =
            JournalRecord { term: rest.long()?, vote: rest.long()?, commit: rest.long()?, ..JournalRecord::default() };
        if flags & HAS_BASE != 0 {
            let (index, term, stamp, needed) = (rest.long()?, rest.long()?, rest.long()?, rest.long()?);
            let (voters, learners) = (rest.short()?, rest.short()?);
            let members = Members { voters: rest.nodes(voters)?, learners: rest.nodes(learners)? };
            let meta = SnapshotMeta { index: LogIndex(index), term, stamp: Hlc(stamp), members };
            record.base = Some(JournalBase { meta, anew: flags & STARTS_ANEW != 0, needed });
        }
        for _ in 0..rest.word()? {
            let (index, term) = (LogIndex(rest.long()?), rest.long()?);
            let kind = match rest.take(1)?[0] {
                0 => EntryKind::Normal,
                1 => EntryKind::Change,
                _ => return None,
            };
            let len = rest.word()? as usize;
            let data = Bytes::copy_from_slice(rest.take(len)?);
            record.entries.push(PeerEntry { kind, index, term, data });
        }
        rest.0.is_empty().then_some(record)
    }
}

/// The data of a normal entry.
pub(super) fn encode_batch(
    stamp: Hlc,
    count: u32,
    data_end: DataEnd,
    durability: BatchDurability,
    body: &[u8],
) -> Vec<u8> {
    let mut into = Vec::with_capacity(DATA_HEADER_BYTES + body.len());
    into.extend_from_slice(&[DATA_VERSION, durability as u8]);
    into.extend_from_slice(&stamp.0.to_le_bytes());
    into.extend_from_slice(&count.to_le_bytes());
    into.extend_from_slice(&data_end.segment.0.to_le_bytes());
    into.extend_from_slice(&data_end.offset.to_le_bytes());
    into.extend_from_slice(body);
    into
}

/// See [`PeerEntry::durability`].
pub(super) fn durability_of(kind: EntryKind, data: &[u8]) -> BatchDurability {
    match (kind, data.get(1)) {
        (EntryKind::Normal, Some(0)) => BatchDurability::Memory,
        _ => BatchDurability::Stable,
    }
}

impl PeerEntry {
    /// When members acknowledge this entry. Changes of members, and the first entry of a leader, which is empty, are
    /// acknowledged from stable storage.
    pub fn durability(&self) -> BatchDurability {
        durability_of(self.kind, &self.data)
    }

    /// The end of the proposer's data log that came with this batch; `None` if it is none.
    pub fn data_end(&self) -> Option<DataEnd> {
        let mut rest = ByteReader(self.data.as_ref());
        if self.kind != EntryKind::Normal || rest.take(1)? != [DATA_VERSION] {
            return None;
        }
        rest.take(13)?;
        Some(DataEnd { segment: SegmentId(rest.long()?), offset: rest.long()? })
    }
}

impl PeerMessage {
    /// Newest stamp of the transactions that it brings; `None` if it brings none. (The entries of questions about reads
    /// are names.)
    pub fn newest_stamp(&self) -> Option<Hlc> {
        let entries = self.entries.iter().filter(|entry| entry.kind == EntryKind::Normal);
        let newest = entries.filter_map(|entry| stamp_of(&entry.data)).max();
        newest.filter(|_| self.kind == PeerKind::Append)
    }
}

/// What a normal entry holds.
pub(super) enum EntryData {
    /// A new leader's first entry: it holds nothing.
    Nothing,
    /// A batch, or with a count of 0 an instant.
    Batch(LogEntry),
    /// Nothing that this version writes.
    Unknown,
}

/// What the data of a normal entry says.
pub(super) fn decode_batch(index: u64, term: u64, data: &[u8]) -> EntryData {
    if data.is_empty() {
        return EntryData::Nothing;
    }
    let read = || {
        let mut rest = ByteReader(data);
        if rest.take(1)? != [DATA_VERSION] || rest.take(1)?[0] > BatchDurability::Stable as u8 {
            return None;
        }
        let (stamp, count) = (Hlc(rest.long()?), rest.word()?);
        let data_end = DataEnd { segment: SegmentId(rest.long()?), offset: rest.long()? };
        Some(LogEntry { index: LogIndex(index), term, stamp, count, data_end, body: rest.0.to_vec() })
    };
    read().map_or(EntryData::Unknown, EntryData::Batch)
}

/// The newest of `count` consecutive stamps.
pub(super) fn last_stamp(first: Hlc, count: u32) -> Hlc {
    Hlc(first.0.saturating_add(u64::from(count.saturating_sub(1))))
}

/// Newest stamp in the data of a normal entry; `None` if it has none.
pub(super) fn stamp_of(data: &[u8]) -> Option<Hlc> {
    let mut rest = ByteReader(data.get(2..)?);
    let (stamp, count) = (Hlc(rest.long()?), rest.word()?);
    Some(last_stamp(stamp, count))
}

struct ByteReader<'a>(&'a [u8]);

impl<'a> ByteReader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn short(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    fn word(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn long(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn nodes(&mut self, count: u16) -> Option<Vec<NodeId>> {
        (0..count).map(|_| self.word().map(NodeId)).collect()
    }
}
