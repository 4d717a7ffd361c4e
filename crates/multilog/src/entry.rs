//! The fields of a record as differences to the record before it, as they lie in the log and in footers.
//!
//! Guarantees: a head is taken for that of a record only if its checksum fits the segment, the record before it and
//! every byte of it; the same records in the same places give the same bytes.
//! Leaves to others: the block checksums and the payload that follow, which records belong together (`recover`).
//!
//! # The bytes
//! The *entry* of a record says in what it differs from the record before it in the segment. Footers hold entries one
//! after the other. In the log each entry has a mark and a checksum before it:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 2 | mark: both halves, by exclusive or, of the CRC32C of the segment's id and tag, this place in it, and the stamp of the record before (8 bytes each); 1 where that is 0 |
//! | 2 | 4 | CRC32C of the segment's id and tag (8 bytes each), of the record's fields in full ([`crate::record`]), of the entry and of the block array |
//! | 6 | | entry |
//! | | 4 x blocks | CRC32C of each block of the payload |
//!
//! | entry | there if | field |
//! |---|---|---|
//! | 1 byte | always | flags |
//! | v | always | stamp, less that of the record before |
//! | v | flag 1, *alone* | stamp, less that of the record before it in the log: of a record that is told without the one before, as if that had been all zeros. The first of a segment is, and the first after [`ALONE_BYTES`]: so far damage reaches |
//! | v, v, d | 2 | session, uid, chain epoch |
//! | d, v, v | 4 | inode, chunk index, chain |
//! | d, d | 8 | n, version; else each is one more than before |
//! | d | 16 | seq; else one more than before |
//! | d | always | offset, from the end of the record before, or 0 in another chunk than it |
//! | v | 32 | length; else that of the record before |
//! | d | 64 | user time, from 0; else it has none |
//! | 3 bytes | 128 | kind, part, parts; else 1, 0, 1 |
//!
//! `v` is an integer of seven bits a byte, low bits first, `d` one of either sign as the difference to the record
//! before, doubled, and less one if it is negative.
//!
//! Why the fields in full are in the checksum: behind another record the same entry has another meaning. The checksum
//! covers the meaning. Why the mark: it tells the torn beginning of a record from bytes of an earlier use of the file,
//! which fail it but once in 65,535 times, and then the checksum.

use frieze_base::varint::{VarintSink, put, put_difference, take, take_difference};
use frieze_base::{ChainEpoch, ChainId, ChunkId, Crc32c, InodeId, Seq, SessionId, crc32c};
use frieze_hlc::{Hlc, UserTime};

use crate::header::{SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::record::{FULL_BYTES, blocks, in_full};
use crate::{RecordHeader, RecordKind};

/// The most bytes from the start of a record to its block checksums.
pub(crate) const RECORD_HEAD_BYTES_MAX: usize = 128;
/// So many bytes at the start of a record, made zero, undo it: nothing begins there any more, and its checksum is gone.
pub const RECORD_MARK_BYTES: usize = 8;

/// An entry of a footer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct FooterEntry {
    bytes: [u8; ENTRY_BYTES_MAX],
    len: u8,
}

impl std::fmt::Debug for FooterEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("FooterEntry").field(&self.bytes()).finish()
    }
}

impl VarintSink for FooterEntry {
    fn push(&mut self, byte: u8) {
        self.bytes[usize::from(self.len)] = byte;
        self.len += 1;
    }
}

impl FooterEntry {
    fn of(bytes: &[u8]) -> FooterEntry {
        let mut entry = FooterEntry { bytes: [0; ENTRY_BYTES_MAX], len: bytes.len() as u8 };
        entry.bytes[..bytes.len()].copy_from_slice(bytes);
        entry
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len.into()]
    }
}

/// Where a record lies in its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordSpan {
    /// Its first byte.
    pub(crate) start: u64,
    /// Where its block checksums begin: what the index keeps of it.
    pub(crate) place: u64,
    /// First byte of its payload.
    pub(crate) data: u64,
    /// First byte after it.
    pub(crate) end: u64,
}

/// A place between two records of a segment, and what was before it: what the next record is told by.
#[derive(Clone, Debug)]
pub(crate) struct RecordCursor {
    /// Offset in the segment.
    pub(crate) at: u64,
    /// Stamp of the record before it in the log.
    pub(crate) stamp: Hlc,
    /// The record before it in the segment.
    before: Option<RecordHeader>,
    /// Where the last record begins that is told alone.
    alone_at: u64,
}

/// What is found where a record may begin.
#[derive(Clone, Debug)]
pub(crate) enum HeadRead {
    /// No record was begun here.
    Nothing,
    /// One was, and its head is not whole.
    Torn,
    /// A head; its checksum is for [`ReadHead::is_sound`] to verify.
    Found(Box<ReadHead>),
}

/// A head as read.
#[derive(Clone, Debug)]
pub(crate) struct ReadHead {
    pub(crate) header: RecordHeader,
    /// Stamp of the record before it.
    pub(crate) previous: Hlc,
    pub(crate) entry: FooterEntry,
    crc: u32,
}

impl RecordCursor {
    /// Before the first record of a segment.
    pub(crate) fn new(segment: &SegmentHeader) -> RecordCursor {
        RecordCursor { at: SEGMENT_HEADER_BYTES as u64, stamp: segment.previous.stamp, before: None, alone_at: 0 }
    }

    /// At an offset of the segment, with nothing known of what was before.
    pub(crate) fn at(at: u64) -> RecordCursor {
        RecordCursor { at, stamp: Hlc::ZERO, before: None, alone_at: 0 }
    }

    /// Where a record lies that begins here.
    pub(crate) fn span(&self, segment: &SegmentHeader, header: &RecordHeader, entry: &FooterEntry) -> RecordSpan {
        let place = self.at + head_bytes(entry);
        let data = place + 4 * u64::from(blocks(header.payload_len(), segment.block_bytes));
        RecordSpan { start: self.at, place, data, end: data + u64::from(header.payload_len()) }
    }

    /// Goes on behind a record.
    pub(crate) fn pass(&mut self, segment: &SegmentHeader, header: &RecordHeader, entry: &FooterEntry) {
        if entry.bytes[0] & ALONE != 0 {
            self.alone_at = self.at;
        }
        self.at = self.span(segment, header, entry).end;
        self.stamp = header.stamp;
        self.before = Some(header.clone());
    }

    /// The entry of the record that comes here.
    pub(crate) fn encode(&self, header: &RecordHeader) -> FooterEntry {
        let before = self.before.as_ref().filter(|_| self.at - self.alone_at < ALONE_BYTES);
        let alone = before.is_none();
        let before = before.unwrap_or(&RecordHeader::ZERO);
        let who = |header: &RecordHeader| (header.session, header.uid, header.epoch);
        let place = |header: &RecordHeader| (header.chunk, header.chain);
        let next = |value: u64| value.wrapping_add(1);
        let kind = (header.kind, header.part, header.parts);
        let mut flags = ALONE * u8::from(alone);
        flags |= WRITER * u8::from(who(header) != who(before));
        flags |= CHUNK * u8::from(place(header) != place(before));
        flags |= NUMBERS * u8::from((header.n, header.version) != (next(before.n), next(before.version)));
        flags |= SEQ * u8::from(header.seq.0 != next(before.seq.0));
        flags |= LEN * u8::from(header.len != before.len);
        flags |= USER_TIME * u8::from(header.user_time.is_some());
        flags |= KIND * u8::from(kind != (RecordKind::Write, 0, 1));
        let mut bytes = FooterEntry::of(&[flags]);
        put(&mut bytes, header.stamp.0.wrapping_sub(before.stamp.0));
        if alone {
            put(&mut bytes, header.stamp.0.wrapping_sub(self.stamp.0));
        }
        if flags & WRITER != 0 {
            put(&mut bytes, header.session.0);
            put(&mut bytes, header.uid.into());
            put_difference(&mut bytes, before.epoch.0, header.epoch.0);
        }
        if flags & CHUNK != 0 {
            put_difference(&mut bytes, before.chunk.inode.0, header.chunk.inode.0);
            put(&mut bytes, header.chunk.index.into());
            put(&mut bytes, header.chain.0.into());
        }
        if flags & NUMBERS != 0 {
            put_difference(&mut bytes, before.n, header.n);
            put_difference(&mut bytes, before.version, header.version);
        }
        if flags & SEQ != 0 {
            put_difference(&mut bytes, before.seq.0, header.seq.0);
        }
        let from = if flags & CHUNK == 0 { end_of(before) } else { 0 };
        put_difference(&mut bytes, from, header.offset.into());
        if flags & LEN != 0 {
            put(&mut bytes, header.len.into());
        }
        if let Some(time) = header.user_time {
            put_difference(&mut bytes, 0, time.0 as u64);
        }
        if flags & KIND != 0 {
            [header.kind as u8, header.part, header.parts].into_iter().for_each(|byte| bytes.push(byte));
        }
        bytes
    }

    /// The record that an entry tells which begins with these bytes, and the stamp of the one before where it tells
    /// that too; `None` if they begin none.
    pub(crate) fn decode(&self, bytes: &[u8]) -> Option<(RecordHeader, Option<Hlc>, FooterEntry)> {
        let rest = &mut &bytes[..bytes.len().min(ENTRY_BYTES_MAX)];
        let (&flags, after) = rest.split_first()?;
        *rest = after;
        let before = if flags & ALONE == 0 { self.before.as_ref()? } else { &RecordHeader::ZERO };
        let mut header = before.clone();
        header.stamp = Hlc(before.stamp.0.wrapping_add(take(rest)?));
        let previous = match flags & ALONE {
            0 => None,
            _ => Some(Hlc(header.stamp.0.wrapping_sub(take(rest)?))),
        };
        if flags & WRITER != 0 {
            header.session = SessionId(take(rest)?);
            header.uid = u32::try_from(take(rest)?).ok()?;
            header.epoch = ChainEpoch(take_difference(rest, before.epoch.0)?);
        }
        if flags & CHUNK != 0 {
            let inode = InodeId(take_difference(rest, before.chunk.inode.0)?);
            header.chunk = ChunkId { inode, index: u32::try_from(take(rest)?).ok()? };
            header.chain = ChainId(u32::try_from(take(rest)?).ok()?);
        }
        (header.n, header.version) = match flags & NUMBERS {
            0 => (before.n.wrapping_add(1), before.version.wrapping_add(1)),
            _ => (take_difference(rest, before.n)?, take_difference(rest, before.version)?),
        };
        header.seq = match flags & SEQ {
            0 => Seq(before.seq.0.wrapping_add(1)),
            _ => Seq(take_difference(rest, before.seq.0)?),
        };
        let from = if flags & CHUNK == 0 { end_of(before) } else { 0 };
        header.offset = u32::try_from(take_difference(rest, from)?).ok()?;
        if flags & LEN != 0 {
            header.len = u32::try_from(take(rest)?).ok()?;
        }
        header.user_time = None;
        if flags & USER_TIME != 0 {
            header.user_time = Some(UserTime(take_difference(rest, 0)? as i64));
        }
        (header.kind, header.part, header.parts) = (RecordKind::Write, 0, 1);
        if flags & KIND != 0 {
            let (&[kind, part, parts], after) = rest.split_first_chunk()?;
            *rest = after;
            header.kind = RecordKind::of(kind)?;
            (header.part, header.parts) = (part, parts);
        }
        let sound = header.is_sound();
        let len = bytes.len().min(ENTRY_BYTES_MAX) - rest.len();
        sound.then(|| (header, previous, FooterEntry::of(&bytes[..len])))
    }

    /// What begins here, by the first [`RECORD_HEAD_BYTES_MAX`] bytes, or fewer where the file ends.
    pub(crate) fn read(&self, segment: &SegmentHeader, bytes: &[u8]) -> HeadRead {
        match bytes.split_first_chunk::<MARK_AND_CRC_BYTES>() {
            Some((&[a, b, c, d, e, f], rest)) if u16::from_le_bytes([a, b]) == mark(segment, self.at, self.stamp) => {
                match self.decode(rest) {
                    Some((header, told, entry)) if told.is_none_or(|told| told == self.stamp) => {
                        let crc = u32::from_le_bytes([c, d, e, f]);
                        HeadRead::Found(Box::new(ReadHead { header, previous: self.stamp, entry, crc }))
                    }
                    _ => HeadRead::Torn,
                }
            }
            _ => HeadRead::Nothing,
        }
    }
}

/// The bytes of a record from its start at `at` to its payload.
pub(crate) fn head(
    segment: &SegmentHeader,
    at: u64,
    header: &RecordHeader,
    previous: Hlc,
    entry: &FooterEntry,
    block_crcs: &[u32],
) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(RECORD_HEAD_BYTES_MAX + 4 * block_crcs.len());
    bytes.extend_from_slice(&mark(segment, at, previous).to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(entry.bytes());
    let array_at = bytes.len();
    bytes.extend(block_crcs.iter().flat_map(|crc| crc.to_le_bytes()));
    let crc = checksum(segment, header, previous, entry, &bytes[array_at..]);
    bytes[MARK_BYTES..MARK_AND_CRC_BYTES].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn mark(segment: &SegmentHeader, at: u64, previous: Hlc) -> u16 {
    let mut bytes = [0; 32];
    for (into, part) in bytes.chunks_exact_mut(8).zip([segment.id.0, segment.tag, at, previous.0]) {
        into.copy_from_slice(&part.to_le_bytes());
    }
    let crc = crc32c(&bytes);
    ((crc >> 16 ^ crc) as u16).max(1)
}

/// A record that is told alone and begins at `at`, whatever was before it.
pub(crate) fn read_alone(segment: &SegmentHeader, at: u64, bytes: &[u8]) -> Option<ReadHead> {
    let mut cursor = RecordCursor::at(at);
    let (_, rest) = bytes.split_first_chunk::<MARK_AND_CRC_BYTES>()?;
    let (_, previous, _) = cursor.decode(rest)?;
    cursor.stamp = previous?;
    match cursor.read(segment, bytes) {
        HeadRead::Found(found) => Some(*found),
        HeadRead::Nothing | HeadRead::Torn => None,
    }
}

impl ReadHead {
    /// True if the checksum fits, with the block checksums that follow the head.
    pub(crate) fn is_sound(&self, segment: &SegmentHeader, array: &[u8]) -> bool {
        checksum(segment, &self.header, self.previous, &self.entry, array) == self.crc
    }
}

/// Bytes from the start of a record to its block checksums.
fn head_bytes(entry: &FooterEntry) -> u64 {
    (MARK_AND_CRC_BYTES + entry.bytes().len()) as u64
}

/// The checksum of a record's head and block array in a segment.
fn checksum(segment: &SegmentHeader, header: &RecordHeader, previous: Hlc, entry: &FooterEntry, array: &[u8]) -> u32 {
    // What is short goes together: each update costs as much as a hundred bytes.
    let mut bytes = [0; 16 + FULL_BYTES];
    bytes[..8].copy_from_slice(&segment.id.0.to_le_bytes());
    bytes[8..16].copy_from_slice(&segment.tag.to_le_bytes());
    bytes[16..].copy_from_slice(&in_full(header, previous, segment.id, segment.block_bytes));
    let mut crc = Crc32c::default();
    crc.update(&bytes);
    crc.update(entry.bytes());
    crc.update(array);
    crc.value()
}

fn end_of(header: &RecordHeader) -> u64 {
    u64::from(header.offset) + u64::from(header.len)
}

/// Records of a segment one after the other, from the entries of a footer.
pub(crate) struct FooterEntries<'a> {
    segment: SegmentHeader,
    rest: &'a [u8],
    pub(crate) cursor: RecordCursor,
}

/// A record of a footer.
#[derive(Clone, Debug)]
pub(crate) struct FooterRecord {
    pub(crate) header: RecordHeader,
    pub(crate) entry: FooterEntry,
    pub(crate) span: RecordSpan,
}

impl<'a> FooterEntries<'a> {
    /// From the first record of a segment on.
    pub(crate) fn new(segment: &SegmentHeader, entries: &'a [u8]) -> FooterEntries<'a> {
        FooterEntries::from(segment, entries, RecordCursor::new(segment))
    }

    /// From the record on that lies behind `cursor`.
    pub(crate) fn from(segment: &SegmentHeader, entries: &'a [u8], cursor: RecordCursor) -> FooterEntries<'a> {
        FooterEntries { segment: *segment, rest: entries, cursor }
    }

    /// All of them, if they are as many and nothing is left over.
    pub(crate) fn all(mut self, records: u64) -> Option<Vec<FooterRecord>> {
        let listed: Option<Vec<FooterRecord>> = (0..records).map(|_| self.next()).collect();
        listed.filter(|_| self.rest.is_empty())
    }
}

impl Iterator for FooterEntries<'_> {
    type Item = FooterRecord;

    /// `None` at the end, and where there is no entry.
    fn next(&mut self) -> Option<FooterRecord> {
        let (header, _, entry) = self.cursor.decode(self.rest)?;
        self.rest = &self.rest[entry.bytes().len()..];
        let span = self.cursor.span(&self.segment, &header, &entry);
        self.cursor.pass(&self.segment, &header, &entry);
        Some(FooterRecord { header, entry, span })
    }
}

/// The most bytes of an entry.
pub(crate) const ENTRY_BYTES_MAX: usize = 120;
const MARK_BYTES: usize = 2;
const MARK_AND_CRC_BYTES: usize = MARK_BYTES + 4;
/// A record that begins so far behind the last that is told alone is told alone. Less: damage to a head costs fewer
/// records where the footer is damaged too; more: 16 KiB of writes of 512 bytes are 30, of which the one takes 25 bytes
/// more.
pub(crate) const ALONE_BYTES: u64 = 16 << 10;
const ALONE: u8 = 1;
const WRITER: u8 = 2;
const CHUNK: u8 = 4;
const NUMBERS: u8 = 8;
const SEQ: u8 = 16;
const LEN: u8 = 32;
const USER_TIME: u8 = 64;
const KIND: u8 = 128;

#[cfg(test)]
mod tests;
