//! What a record said beside where and when: kept for `log`, for footers and for nothing on the hot path, so packed.

use frieze_base::{ChainEpoch, ChainId, FastMap, Seq, SessionId, varint};
use frieze_hlc::UserTime;

use crate::RecordHeader;
use crate::slim::{heap_bytes, push_slim, reserve_slim};

/// Session, user, chain and epoch of a record. Long runs of records have the same, so a record keeps a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WriterKey {
    pub(crate) session: SessionId,
    pub(crate) uid: u32,
    pub(crate) chain: ChainId,
    pub(crate) epoch: ChainEpoch,
}

impl WriterKey {
    pub(crate) fn of(header: &RecordHeader) -> WriterKey {
        let RecordHeader { session, uid, chain, epoch, .. } = *header;
        WriterKey { session, uid, chain, epoch }
    }
}

/// All writers by number.
#[derive(Debug, Default)]
pub(crate) struct WriterTable {
    list: Vec<WriterKey>,
    numbers: FastMap<WriterKey, u32>,
}

impl WriterTable {
    /// The number of a writer.
    pub(crate) fn number_of(&mut self, writer: WriterKey) -> u32 {
        *self.numbers.entry(writer).or_insert_with(|| {
            self.list.push(writer);
            (self.list.len() - 1) as u32
        })
    }

    /// The writer with a number.
    pub(crate) fn get(&self, number: u32) -> WriterKey {
        self.list[number as usize]
    }

    /// Memory held, in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        let entry = size_of::<(WriterKey, u32)>() + 1;
        heap_bytes(self.list.capacity() * size_of::<WriterKey>()) + heap_bytes(self.numbers.capacity() * entry * 8 / 7)
    }
}

/// The part of a record's header that is only asked for by `log`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ArchivedRecord {
    pub(crate) writer: u32,
    pub(crate) n: u64,
    pub(crate) version: u64,
    pub(crate) seq: Seq,
    pub(crate) user_time: Option<UserTime>,
    pub(crate) part: u8,
    pub(crate) parts: u8,
}

/// The archived parts of a chunk's records, as differences from the record before. Every 64th is whole, so that one is
/// found by reading at most 63 others.
///
/// An entry: flags (1 writer differs, 2 version is not the next, 4 user time, 8 one of several parts, 16 n is not the
/// next, 32 seq is not the next), then as variable length integers what the flags name: n and seq as differences,
/// writer, version as a difference, user time as a difference to the last one, part and parts.
#[derive(Debug, Default)]
pub(super) struct RecordArchive {
    bytes: Vec<u8>,
    /// Where each run of 64 starts.
    runs: Vec<u32>,
    records: u32,
    last: ArchivedRecord,
}

impl RecordArchive {
    /// Appends an entry and returns by how much the memory grew.
    pub(super) fn push(&mut self, entry: ArchivedRecord) -> usize {
        let mut grown = reserve_slim(&mut self.bytes, ENTRY_BYTES_MAX);
        if self.records.is_multiple_of(RUN) {
            grown += push_slim(&mut self.runs, self.bytes.len() as u32);
            self.last = ArchivedRecord::default();
        }
        let last = self.last;
        let mut flags = 0;
        flags |= WRITER * u8::from(entry.writer != last.writer);
        flags |= VERSION * u8::from(entry.version != last.version.wrapping_add(1));
        flags |= USER_TIME * u8::from(entry.user_time.is_some());
        flags |= PARTS * u8::from((entry.part, entry.parts) != (0, 1));
        flags |= N * u8::from(entry.n != last.n.wrapping_add(1));
        flags |= SEQ * u8::from(entry.seq.0 != last.seq.0.wrapping_add(1));
        self.bytes.push(flags);
        if flags & N != 0 {
            self.put_difference(last.n, entry.n);
        }
        if flags & SEQ != 0 {
            self.put_difference(last.seq.0, entry.seq.0);
        }
        if flags & WRITER != 0 {
            self.put_difference(0, entry.writer.into());
        }
        if flags & VERSION != 0 {
            self.put_difference(last.version, entry.version);
        }
        if let Some(user_time) = entry.user_time {
            self.put_difference(last.user_time.unwrap_or_default().0 as u64, user_time.0 as u64);
        }
        if flags & PARTS != 0 {
            self.bytes.extend([entry.part, entry.parts]);
        }
        self.last = ArchivedRecord { user_time: entry.user_time.or(last.user_time), ..entry };
        self.records += 1;
        grown
    }

    /// Reads entries from record number `from` on.
    pub(super) fn read_from(&self, from: u32) -> ArchiveReader<'_> {
        let run = from / RUN;
        let at = self.runs.get(run as usize).map_or(self.bytes.len(), |&at| at as usize);
        let mut reader = ArchiveReader { archive: self, at, record: run * RUN, last: ArchivedRecord::default() };
        while reader.record < from && reader.next().is_some() {}
        reader
    }

    fn put_difference(&mut self, last: u64, value: u64) {
        varint::put_difference(&mut self.bytes, last, value);
    }
}

/// Entries in order.
#[derive(Debug)]
pub(super) struct ArchiveReader<'a> {
    archive: &'a RecordArchive,
    at: usize,
    record: u32,
    last: ArchivedRecord,
}

impl ArchiveReader<'_> {
    fn byte(&mut self) -> u8 {
        self.at += 1;
        self.archive.bytes[self.at - 1]
    }

    fn difference(&mut self, last: u64) -> u64 {
        let mut rest = &self.archive.bytes[self.at..];
        let value = varint::take_difference(&mut rest, last).expect("the archive wrote it whole");
        self.at = self.archive.bytes.len() - rest.len();
        value
    }
}

impl Iterator for ArchiveReader<'_> {
    type Item = ArchivedRecord;

    fn next(&mut self) -> Option<ArchivedRecord> {
        if self.record == self.archive.records {
            return None;
        }
        if self.record.is_multiple_of(RUN) {
            self.last = ArchivedRecord::default();
        }
        let last = self.last;
        let flags = self.byte();
        let n = if flags & N != 0 { self.difference(last.n) } else { last.n.wrapping_add(1) };
        let seq = Seq(if flags & SEQ != 0 { self.difference(last.seq.0) } else { last.seq.0.wrapping_add(1) });
        let writer = if flags & WRITER != 0 { self.difference(0) as u32 } else { last.writer };
        let version = if flags & VERSION != 0 { self.difference(last.version) } else { last.version.wrapping_add(1) };
        let user_time = (flags & USER_TIME != 0)
            .then(|| UserTime(self.difference(last.user_time.unwrap_or_default().0 as u64) as i64));
        let (part, parts) = if flags & PARTS != 0 { (self.byte(), self.byte()) } else { (0, 1) };
        let entry = ArchivedRecord { writer, n, version, seq, user_time, part, parts };
        self.last = ArchivedRecord { user_time: user_time.or(last.user_time), ..entry };
        self.record += 1;
        Some(entry)
    }
}

/// Entries from one whole one to the next.
const RUN: u32 = 64;
/// Flags, four 64-bit and one 32-bit integers of at most 10 bytes, two bytes.
const ENTRY_BYTES_MAX: usize = 1 + 5 * 10 + 2;
const WRITER: u8 = 1;
const VERSION: u8 = 2;
const USER_TIME: u8 = 4;
const PARTS: u8 = 8;
const N: u8 = 16;
const SEQ: u8 = 32;

#[cfg(test)]
mod tests {
    use frieze_base::Rng;

    use super::*;

    #[test]
    fn entries_come_back_from_any_position() {
        let mut rng = Rng::new(3);
        let odd = |rng: &mut Rng| match rng.below(4) {
            0 => rng.next(),
            1 => u64::MAX,
            _ => rng.below(300),
        };
        let entries: Vec<ArchivedRecord> = (0..300)
            .map(|_| ArchivedRecord {
                writer: odd(&mut rng) as u32,
                n: odd(&mut rng),
                version: odd(&mut rng),
                seq: Seq(odd(&mut rng)),
                user_time: rng.chance(2).then(|| UserTime(odd(&mut rng) as i64)),
                part: rng.below(2) as u8,
                parts: rng.below(3) as u8,
            })
            .collect();
        let mut archive = RecordArchive::default();
        for &entry in &entries {
            archive.push(entry);
        }
        for from in 0..=entries.len() {
            let read: Vec<ArchivedRecord> = archive.read_from(from as u32).collect();
            assert_eq!(read, entries[from..], "from {from}");
        }
    }

    #[test]
    fn an_ordinary_entry_takes_few_bytes() {
        let mut archive = RecordArchive::default();
        for at in 0..640 {
            let seq = Seq(1000 + at * 30);
            archive.push(ArchivedRecord {
                writer: 3,
                n: 5000 + at * 40,
                version: at + 1,
                seq,
                user_time: None,
                part: 0,
                parts: 1,
            });
        }
        assert!(archive.bytes.len() < 640 * 5, "{} bytes", archive.bytes.len());
    }
}
