//! Records of one file in few bytes: each as what differs from the one before.
//!
//! An entry: flags (below); then as differences to the last entry n, seq, stamp, the offset (to where the last one
//! ended) and the place of its block checksums in the segment, and one byte: how many from the start of the record to
//! there; then, if their flags say so, session, uid and epoch; version; user time; part and parts; chunk index and
//! chain; segment; length. A piece begins from an entry of zeros.

use frieze_base::varint::{put, put_difference, take, take_bytes, take_difference};
use frieze_base::{ChainEpoch, ChainId, ChunkId, InodeId, SegmentId, Seq, SessionId};
use frieze_hlc::{Hlc, UserTime};

use crate::{RecordHeader, RecordKind};

/// A record, and where it lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunRecord {
    pub(crate) header: RecordHeader,
    pub(crate) segment: SegmentId,
    /// Offset of its block checksums in the segment.
    pub(crate) at: u32,
    /// Bytes from its start to there.
    pub(crate) head: u8,
}

/// What the first entry of a piece differs from.
fn nothing(inode: InodeId) -> RunRecord {
    let chunk = ChunkId { inode, index: 0 };
    RunRecord { header: RecordHeader { chunk, ..RecordHeader::ZERO }, segment: SegmentId(0), at: 0, head: 0 }
}

/// Appends a piece: records of one file in the order of the log.
pub(crate) fn encode<'a>(records: impl Iterator<Item = &'a RunRecord>, bytes: &mut Vec<u8>) {
    let mut last = nothing(InodeId(0));
    let mut user_time = 0;
    for record in records {
        let (header, before) = (&record.header, &last.header);
        let who = |header: &RecordHeader| (header.session, header.uid, header.epoch);
        let at = |header: &RecordHeader| (header.chunk.index, header.chain);
        let mut flags = 0;
        flags |= WRITER * u8::from(who(header) != who(before));
        flags |= VERSION * u8::from(header.version != before.version.wrapping_add(1));
        flags |= USER_TIME * u8::from(header.user_time.is_some());
        flags |= PARTS * u8::from((header.part, header.parts) != (0, 1));
        flags |= CHUNK * u8::from(at(header) != at(before));
        flags |= SEGMENT * u8::from(record.segment != last.segment);
        flags |= PUNCH * u8::from(header.kind == RecordKind::Punch);
        flags |= LEN * u8::from(header.len != before.len);
        bytes.push(flags);
        put_difference(bytes, before.n, header.n);
        put_difference(bytes, before.seq.0, header.seq.0);
        put_difference(bytes, before.stamp.0, header.stamp.0);
        put_difference(bytes, end_of(before), header.offset.into());
        put_difference(bytes, last.at.into(), record.at.into());
        bytes.push(record.head);
        if flags & WRITER != 0 {
            put(bytes, header.session.0);
            put(bytes, header.uid.into());
            put_difference(bytes, before.epoch.0, header.epoch.0);
        }
        if flags & VERSION != 0 {
            put_difference(bytes, before.version, header.version);
        }
        if let Some(time) = header.user_time {
            put_difference(bytes, user_time, time.0 as u64);
            user_time = time.0 as u64;
        }
        if flags & PARTS != 0 {
            bytes.extend([header.part, header.parts]);
        }
        if flags & CHUNK != 0 {
            put(bytes, header.chunk.index.into());
            put(bytes, header.chain.0.into());
        }
        if flags & SEGMENT != 0 {
            put_difference(bytes, last.segment.0, record.segment.0);
        }
        if flags & LEN != 0 {
            put(bytes, header.len.into());
        }
        last = record.clone();
    }
}

/// Reads a piece; `None` if the bytes are none.
pub(crate) fn decode(inode: InodeId, mut bytes: &[u8], records: &mut Vec<RunRecord>) -> Option<()> {
    let mut last = nothing(inode);
    let mut user_time = 0;
    let bytes = &mut bytes;
    while let Some((&flags, rest)) = bytes.split_first() {
        *bytes = rest;
        let before = &last.header;
        let mut header = before.clone();
        header.n = take_difference(bytes, before.n)?;
        header.seq = Seq(take_difference(bytes, before.seq.0)?);
        header.stamp = Hlc(take_difference(bytes, before.stamp.0)?);
        header.offset = u32::try_from(take_difference(bytes, end_of(before))?).ok()?;
        let at = u32::try_from(take_difference(bytes, last.at.into())?).ok()?;
        let head = take_bytes(bytes, 1)?[0];
        if flags & WRITER != 0 {
            header.session = SessionId(take(bytes)?);
            header.uid = u32::try_from(take(bytes)?).ok()?;
            header.epoch = ChainEpoch(take_difference(bytes, before.epoch.0)?);
        }
        header.version = match flags & VERSION {
            0 => before.version.wrapping_add(1),
            _ => take_difference(bytes, before.version)?,
        };
        header.user_time = None;
        if flags & USER_TIME != 0 {
            user_time = take_difference(bytes, user_time)?;
            header.user_time = Some(UserTime(user_time as i64));
        }
        (header.part, header.parts) = (0, 1);
        if flags & PARTS != 0 {
            let (&[part, parts], rest) = bytes.split_first_chunk()?;
            *bytes = rest;
            (header.part, header.parts) = (part, parts);
        }
        if flags & CHUNK != 0 {
            header.chunk.index = u32::try_from(take(bytes)?).ok()?;
            header.chain = ChainId(u32::try_from(take(bytes)?).ok()?);
        }
        let segment = match flags & SEGMENT {
            0 => last.segment,
            _ => SegmentId(take_difference(bytes, last.segment.0)?),
        };
        header.kind = if flags & PUNCH == 0 { RecordKind::Write } else { RecordKind::Punch };
        if flags & LEN != 0 {
            header.len = u32::try_from(take(bytes)?).ok()?;
        }
        let sound = header.is_sound();
        last = RunRecord { header: sound.then_some(header)?, segment, at, head };
        records.push(last.clone());
    }
    Some(())
}

fn end_of(header: &RecordHeader) -> u64 {
    u64::from(header.offset) + u64::from(header.len)
}

const WRITER: u8 = 1;
const VERSION: u8 = 2;
const USER_TIME: u8 = 4;
const PARTS: u8 = 8;
const CHUNK: u8 = 16;
const SEGMENT: u8 = 32;
const PUNCH: u8 = 64;
const LEN: u8 = 128;

#[cfg(test)]
mod tests {
    use frieze_base::Rng;

    use super::*;

    #[test]
    fn records_come_back_as_they_were() {
        let mut rng = Rng::new(5);
        let mut odd = |max: u64| match rng.below(4) {
            0 => rng.next() % max,
            1 => max - 1,
            _ => rng.below(max.min(300)),
        };
        let inode = InodeId(77);
        let records: Vec<RunRecord> = (0..2000)
            .map(|_| {
                let mut record = nothing(inode);
                let header = &mut record.header;
                header.kind = if odd(3) == 0 { RecordKind::Punch } else { RecordKind::Write };
                (header.chain, header.epoch) = (ChainId(odd(1 << 32) as u32), ChainEpoch(odd(u64::MAX)));
                (header.n, header.version, header.stamp) = (odd(u64::MAX), odd(u64::MAX), Hlc(odd(u64::MAX)));
                header.user_time = (odd(2) == 0).then(|| UserTime(odd(u64::MAX) as i64));
                (header.session, header.seq, header.uid) =
                    (SessionId(odd(u64::MAX)), Seq(odd(u64::MAX)), odd(1 << 32) as u32);
                (header.chunk.index, header.offset, header.len) =
                    (odd(1 << 32) as u32, odd(1 << 31) as u32, odd(1 << 31) as u32);
                header.part = odd(8) as u8;
                header.parts = header.part + 1 + odd(3) as u8;
                (record.segment, record.at, record.head) =
                    (SegmentId(odd(u64::MAX)), odd(1 << 32) as u32, odd(128) as u8);
                record
            })
            .collect();
        let mut bytes = Vec::new();
        encode(records.iter(), &mut bytes);
        let mut read = Vec::new();
        assert_eq!(decode(inode, &bytes, &mut read), Some(()));
        assert_eq!(read, records);
        // Cut anywhere it is shorter or refused, and never reads beyond.
        for len in 0..bytes.len().min(3000) {
            read.clear();
            let whole = decode(inode, &bytes[..len], &mut read);
            assert!(whole.is_none() || read[..] == records[..read.len()]);
        }
    }

    #[test]
    fn an_ordinary_record_takes_few_bytes() {
        let mut record = nothing(InodeId(1));
        let mut rng = Rng::new(1);
        let records: Vec<RunRecord> = (0..1000)
            .map(|number| {
                let header = &mut record.header;
                (header.n, header.version) = (header.n + 1 + rng.below(40), header.version + 1);
                (header.seq, header.stamp) = (Seq(header.seq.0 + 1 + rng.below(40)), Hlc(header.stamp.0 + (1 << 20)));
                (header.offset, header.len) = (rng.below(1 << 26) as u32, 32 << 10);
                record.at = (record.at + 33_000 * 4) % (64 << 20);
                record.segment = SegmentId(1 + number / 500);
                record.clone()
            })
            .collect();
        let mut bytes = Vec::new();
        encode(records.iter(), &mut bytes);
        assert!(bytes.len() < 18 * records.len(), "{} bytes a record", bytes.len() / records.len());
    }

    fn record(stamp: u64, index: u32, segment: u64) -> RunRecord {
        let chunk = ChunkId { inode: InodeId(77), index };
        let header = RecordHeader { chunk, stamp: Hlc(stamp), n: stamp, seq: Seq(3), len: 600, ..RecordHeader::ZERO };
        RunRecord { header, segment: SegmentId(segment), at: 70, head: 6 }
    }

    #[test]
    fn any_bytes_are_a_piece_of_an_index_run_or_none() {
        let mut punch = record(1000, 2, 6);
        (punch.header.kind, punch.header.user_time, punch.header.parts) = (RecordKind::Punch, Some(UserTime(-5)), 3);
        let mut seed = Vec::new();
        encode([record(900, 0, 5), record(901, 0, 5), punch].iter(), &mut seed);
        frieze_harness::fuzz!([seed], |bytes: &[u8]| {
            let read = |bytes: &[u8]| {
                let mut records = Vec::new();
                decode(InodeId(77), bytes, &mut records).map(|()| records)
            };
            let write = |records: &Vec<RunRecord>| {
                let mut bytes = Vec::new();
                encode(records.iter(), &mut bytes);
                bytes
            };
            frieze_harness::check_stable(bytes, read, write);
        });
    }
}
