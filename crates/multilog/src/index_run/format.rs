//! An index run as it is stored and as it is kept in memory.
//!
//! # The bytes
//! A head of 128 bytes, blocks, contents. All numbers little-endian, `v` a variable-length integer.
//!
//! | offset | bytes | field of the head |
//! |---|---|---|
//! | 0 | 4 | magic `FRZI` |
//! | 4 | 1 | format version, 1 |
//! | 5 | 3 | reserved, 0 |
//! | 8 | 8 | id of the first segment |
//! | 16 | 8 | id of the last |
//! | 24 | 8 | length of the blocks, which begin at 128 |
//! | 32 | 8 | length of the contents, which follow them |
//! | 40 | 8 | records |
//! | 48 | 8 | bytes that they take in segments |
//! | 56 | 4 | CRC32C of the contents |
//! | 60 | 64 | reserved, 0 |
//! | 124 | 4 | CRC32C of bytes 0..124 |
//!
//! A block holds whole files, sorted: inode (v), length of its pieces (v), the pieces; a piece is its length (v) and
//! entries ([`super::piece`]). The contents: of each segment its header, end (8), stamp of its last record (8), number
//! of its records (8), bytes of their entries in the footer (8), before them their count (v); of each slot with files
//! the largest inode (v), before them their count (v); of each block first inode (v, as difference),
//! length (v), CRC32C (4), before them their count (v); sessions (count v) with the stamp of their newest record (v, v,
//! by session); chains (count v) with their last record (chain, epoch, n, stamp, session, seq, each v); the index of
//! time (length v); and what the driver gave to be kept (the rest).

use std::mem::size_of;

use frieze_base::varint::{put, put_difference, take, take_bytes, take_difference, take_u32};
use frieze_base::{ChainEpoch, ChainId, InodeId, SegmentId, Seq, SessionId, crc32c};
use frieze_hlc::Hlc;

use super::key::RunKey;
use super::newest::NewestFiles;
use crate::discarded::{Discards, of_chain};
use crate::error::Error;
use crate::header::{LogPosition, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::index::TimeRuns;
use crate::record::{long, word};
use crate::segment::LogSegment;
use crate::trailer::TRAILER_BYTES;

/// The last record of a chain among those indexed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainTip {
    /// The chain.
    pub chain: ChainId,
    /// Its configuration then.
    pub epoch: ChainEpoch,
    /// Number in the chain.
    pub n: u64,
    /// Stamp.
    pub stamp: Hlc,
    /// The session that wrote it.
    pub session: SessionId,
    /// The session's number of that request.
    pub seq: Seq,
}

/// An index run as it is kept in memory: its directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexRun {
    pub(super) key: RunKey,
    pub(super) segments: usize,
    pub(super) records: u64,
    pub(super) newest: NewestFiles,
    pub(super) blocks: Vec<RunBlock>,
    pub(super) blocks_bytes: u64,
    pub(super) contents_bytes: u64,
}

/// Where a block lies, and which is the first file in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunBlock {
    pub(crate) first: InodeId,
    pub(crate) offset: u64,
    pub(crate) len: u32,
    pub(crate) crc: u32,
}

impl IndexRun {
    /// Its name.
    pub fn key(&self) -> RunKey {
        self.key
    }

    /// Records that it indexes.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Bytes that it takes on the device.
    pub fn bytes(&self) -> u64 {
        HEAD_BYTES as u64 + self.blocks_bytes + self.contents_bytes
    }

    /// Memory held, in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.blocks.capacity() * size_of::<RunBlock>() + self.newest.heap_bytes()
    }

    pub(crate) fn segments(&self) -> usize {
        self.segments
    }
}

/// What an index run says of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentFacts {
    pub(crate) header: SegmentHeader,
    pub(crate) end: u64,
    pub(crate) stamp: Hlc,
    pub(crate) records: u64,
    pub(crate) entries_bytes: u64,
}

impl SegmentFacts {
    pub(crate) fn of(segment: &LogSegment) -> SegmentFacts {
        let LogSegment { header, end, stamp, records, entries_bytes, .. } = *segment;
        SegmentFacts { header, end, stamp, records, entries_bytes }
    }
}

/// What an index run says beside its files.
#[derive(Debug, Default)]
pub(crate) struct RunContents {
    pub(crate) facts: Vec<SegmentFacts>,
    pub(crate) sessions: Vec<(SessionId, Hlc)>,
    pub(crate) chains: Vec<ChainTip>,
    pub(crate) time_runs: TimeRuns,
    pub(crate) companion: Vec<u8>,
    pub(crate) log_bytes: u64,
}

/// The head as decoded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunHead {
    pub(super) key: RunKey,
    pub(super) blocks_bytes: u64,
    pub(crate) contents_bytes: u64,
    pub(super) records: u64,
    pub(super) log_bytes: u64,
    pub(super) contents_crc: u32,
}

impl RunHead {
    /// Reads the head of an index run.
    ///
    /// # Errors
    /// `DamagedIndexRun` if these bytes are no head of `index_run`; `IndexRunVersion` if they are one of another format
    /// version.
    pub(crate) fn decode(index_run: RunKey, bytes: &[u8]) -> Result<RunHead, Error> {
        if bytes.len() != HEAD_BYTES || bytes[..4] != MAGIC || crc32c(&bytes[..124]) != word(bytes, 124) {
            return Err(Error::DamagedIndexRun { run: index_run });
        }
        if bytes[4] != FORMAT_VERSION {
            return Err(Error::IndexRunVersion { run: index_run, expected: FORMAT_VERSION, found: bytes[4] });
        }
        let head = RunHead {
            key: RunKey { first: SegmentId(long(bytes, 8)), last: SegmentId(long(bytes, 16)) },
            blocks_bytes: long(bytes, 24),
            contents_bytes: long(bytes, 32),
            records: long(bytes, 40),
            log_bytes: long(bytes, 48),
            contents_crc: word(bytes, 56),
        };
        // Places behind the head are sums of these.
        let ends =
            head.blocks_bytes.checked_add(head.contents_bytes).and_then(|end| end.checked_add(HEAD_BYTES as u64));
        if head.key == index_run && ends.is_some() { Ok(head) } else { Err(Error::DamagedIndexRun { run: index_run }) }
    }

    pub(crate) fn contents_at(&self) -> u64 {
        HEAD_BYTES as u64 + self.blocks_bytes
    }

    pub(super) fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = FORMAT_VERSION;
        let longs =
            [self.key.first.0, self.key.last.0, self.blocks_bytes, self.contents_bytes, self.records, self.log_bytes];
        for (at, value) in longs.into_iter().enumerate() {
            bytes[8 + 8 * at..16 + 8 * at].copy_from_slice(&value.to_le_bytes());
        }
        bytes[56..60].copy_from_slice(&self.contents_crc.to_le_bytes());
        let crc = crc32c(&bytes[..124]);
        bytes[124..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }
}

/// Reads what an index run says beside its files; `None` if the bytes are damaged.
pub(crate) fn open(head: &RunHead, bytes: &[u8]) -> Option<(IndexRun, RunContents)> {
    if bytes.len() as u64 != head.contents_bytes || crc32c(bytes) != head.contents_crc {
        return None;
    }
    let rest = &mut &*bytes;
    let mut contents = RunContents { log_bytes: head.log_bytes, ..RunContents::default() };
    for _ in 0..take(rest)? {
        let header = SegmentHeader::decode(take_bytes(rest, SEGMENT_HEADER_BYTES)?).ok()?;
        let facts = take_bytes(rest, 32)?;
        let (end, stamp) = (long(facts, 0), Hlc(long(facts, 8)));
        let (records, entries_bytes) = (long(facts, 16), long(facts, 24));
        // What lies behind the records is for the footer.
        end.checked_add(entries_bytes)?.checked_add(TRAILER_BYTES as u64).filter(|upto| *upto <= header.bytes)?;
        contents.facts.push(SegmentFacts { header, end, stamp, records, entries_bytes });
    }
    let newest = NewestFiles::decode(rest)?;
    let count = take(rest)?;
    let (mut blocks, mut first, mut offset) = (Vec::new(), 0, HEAD_BYTES as u64);
    for _ in 0..count {
        first = take_difference(rest, first)?;
        let (len, crc) = (u32::try_from(take(rest)?).ok()?, take_u32(rest)?);
        blocks.push(RunBlock { first: InodeId(first), offset, len, crc });
        offset += u64::from(len);
    }
    for _ in 0..take(rest)? {
        contents.sessions.push((SessionId(take(rest)?), Hlc(take(rest)?)));
    }
    for _ in 0..take(rest)? {
        contents.chains.push(ChainTip {
            chain: ChainId(u32::try_from(take(rest)?).ok()?),
            epoch: ChainEpoch(take(rest)?),
            n: take(rest)?,
            stamp: Hlc(take(rest)?),
            session: SessionId(take(rest)?),
            seq: Seq(take(rest)?),
        });
    }
    let time_runs_bytes = usize::try_from(take(rest)?).ok()?;
    contents.time_runs = TimeRuns::decode(take_bytes(rest, time_runs_bytes)?)?;
    contents.companion = rest.to_vec();
    blocks.shrink_to_fit();
    let index_run = IndexRun {
        key: head.key,
        segments: contents.facts.len(),
        records: head.records,
        newest,
        blocks,
        blocks_bytes: head.blocks_bytes,
        contents_bytes: head.contents_bytes,
    };
    let named = contents.facts.first().zip(contents.facts.last());
    let sound = offset == head.contents_at()
        && named.is_some_and(|(first, last)| (first.header.id, last.header.id) == (head.key.first, head.key.last))
        && contents.facts.iter().try_fold(0u64, |sum, facts| sum.checked_add(facts.records)) == Some(head.records);
    sound.then_some((index_run, contents))
}

impl RunContents {
    /// Leaves out the last records of chains that were discarded since the index run was made. One made later does not
    /// name them.
    pub(crate) fn leave_out(&mut self, discarded: &[Discards]) {
        let Some(end) = self.facts.last().map(|last| LogPosition { segment: last.header.id, offset: last.end }) else {
            return;
        };
        let is_gone = |tip: &ChainTip| of_chain(discarded, tip.chain).any(|one| tip.n > one.after && end <= one.before);
        self.chains.retain(|tip| !is_gone(tip));
    }

    pub(super) fn encode(&self, blocks: &[RunBlock], newest: &NewestFiles) -> Vec<u8> {
        let mut bytes = Vec::new();
        put(&mut bytes, self.facts.len() as u64);
        for SegmentFacts { header, end, stamp, records, entries_bytes } in &self.facts {
            bytes.extend_from_slice(&header.encode());
            for value in [*end, stamp.0, *records, *entries_bytes] {
                bytes.extend_from_slice(&value.to_le_bytes());
            }
        }
        newest.encode(&mut bytes);
        put(&mut bytes, blocks.len() as u64);
        let mut before = 0;
        for block in blocks {
            put_difference(&mut bytes, before, block.first.0);
            before = block.first.0;
            put(&mut bytes, block.len.into());
            bytes.extend_from_slice(&block.crc.to_le_bytes());
        }
        put(&mut bytes, self.sessions.len() as u64);
        for (session, newest) in &self.sessions {
            put(&mut bytes, session.0);
            put(&mut bytes, newest.0);
        }
        put(&mut bytes, self.chains.len() as u64);
        for tip in &self.chains {
            for value in [tip.chain.0.into(), tip.epoch.0, tip.n, tip.stamp.0, tip.session.0, tip.seq.0] {
                put(&mut bytes, value);
            }
        }
        let time_runs = self.time_runs.encode();
        put(&mut bytes, time_runs.len() as u64);
        bytes.extend_from_slice(&time_runs);
        bytes.extend_from_slice(&self.companion);
        bytes
    }
}

/// Length of the head in bytes.
pub(crate) const HEAD_BYTES: usize = 128;
/// A block is closed when it has so many bytes: one read of the device, and one search for a small file.
pub(super) const BLOCK_BYTES: usize = 16 << 10;
const FORMAT_VERSION: u8 = 1;
const MAGIC: [u8; 4] = *b"FRZI";
