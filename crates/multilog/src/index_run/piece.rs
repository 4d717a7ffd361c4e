//! Records of one file in few bytes: each as what differs from the one before.
//!
//! An entry: flags (below); then as differences to the last entry n, seq, stamp, the offset (to where the last one
//! ended) and the place of its block checksums in the segment, and one byte: how many from the start of the record to
//! there; then, if their flags say so, session, uid and epoch; version; user time; part and parts; chunk index and
//! chain; segment; length. A piece begins from an entry of zeros.

use frieze_base::varint::{put, put_difference, take, take_bytes, take_difference};
use frieze_base::{ChainEpoch, ChainId, ChunkId, InodeId, SegmentId, Seq, SessionId};
use frieze_hlc::{Hlc, UserTime};

use crate::{RecordKind, RecordMeta};

/// A record, and where it lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunRecord {
    pub(crate) meta: RecordMeta,
    pub(crate) segment: SegmentId,
    /// Offset of its block checksums in the segment.
    pub(crate) at: u32,
    /// Bytes from its start to there.
    pub(crate) head: u8,
}

/// What the first entry of a piece differs from.
fn nothing(inode: InodeId) -> RunRecord {
    let chunk = ChunkId { inode, index: 0 };
    RunRecord { meta: RecordMeta { chunk, ..RecordMeta::ZERO }, segment: SegmentId(0), at: 0, head: 0 }
}

/// Appends a piece: records of one file in the order of the log.
pub(crate) fn encode<'a>(records: impl Iterator<Item = &'a RunRecord>, bytes: &mut Vec<u8>) {
    let mut last = nothing(InodeId(0));
    let mut user_time = 0;
    for record in records {
        let (meta, before) = (&record.meta, &last.meta);
        let who = |meta: &RecordMeta| (meta.session, meta.uid, meta.epoch);
        let at = |meta: &RecordMeta| (meta.chunk.index, meta.chain);
        let mut flags = 0;
        flags |= WRITER * u8::from(who(meta) != who(before));
        flags |= VERSION * u8::from(meta.version != before.version.wrapping_add(1));
        flags |= USER_TIME * u8::from(meta.user_time.is_some());
        flags |= PARTS * u8::from((meta.part, meta.parts) != (0, 1));
        flags |= CHUNK * u8::from(at(meta) != at(before));
        flags |= SEGMENT * u8::from(record.segment != last.segment);
        flags |= PUNCH * u8::from(meta.kind == RecordKind::Punch);
        flags |= LEN * u8::from(meta.len != before.len);
        bytes.push(flags);
        put_difference(bytes, before.n, meta.n);
        put_difference(bytes, before.seq.0, meta.seq.0);
        put_difference(bytes, before.stamp.0, meta.stamp.0);
        put_difference(bytes, end_of(before), meta.offset.into());
        put_difference(bytes, last.at.into(), record.at.into());
        bytes.push(record.head);
        if flags & WRITER != 0 {
            put(bytes, meta.session.0);
            put(bytes, meta.uid.into());
            put_difference(bytes, before.epoch.0, meta.epoch.0);
        }
        if flags & VERSION != 0 {
            put_difference(bytes, before.version, meta.version);
        }
        if let Some(time) = meta.user_time {
            put_difference(bytes, user_time, time.0 as u64);
            user_time = time.0 as u64;
        }
        if flags & PARTS != 0 {
            bytes.extend([meta.part, meta.parts]);
        }
        if flags & CHUNK != 0 {
            put(bytes, meta.chunk.index.into());
            put(bytes, meta.chain.0.into());
        }
        if flags & SEGMENT != 0 {
            put_difference(bytes, last.segment.0, record.segment.0);
        }
        if flags & LEN != 0 {
            put(bytes, meta.len.into());
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
        let before = &last.meta;
        let mut meta = before.clone();
        meta.n = take_difference(bytes, before.n)?;
        meta.seq = Seq(take_difference(bytes, before.seq.0)?);
        meta.stamp = Hlc(take_difference(bytes, before.stamp.0)?);
        meta.offset = u32::try_from(take_difference(bytes, end_of(before))?).ok()?;
        let at = u32::try_from(take_difference(bytes, last.at.into())?).ok()?;
        let head = take_bytes(bytes, 1)?[0];
        if flags & WRITER != 0 {
            meta.session = SessionId(take(bytes)?);
            meta.uid = u32::try_from(take(bytes)?).ok()?;
            meta.epoch = ChainEpoch(take_difference(bytes, before.epoch.0)?);
        }
        meta.version = match flags & VERSION {
            0 => before.version.wrapping_add(1),
            _ => take_difference(bytes, before.version)?,
        };
        meta.user_time = None;
        if flags & USER_TIME != 0 {
            user_time = take_difference(bytes, user_time)?;
            meta.user_time = Some(UserTime(user_time as i64));
        }
        (meta.part, meta.parts) = (0, 1);
        if flags & PARTS != 0 {
            let (&[part, parts], rest) = bytes.split_first_chunk()?;
            *bytes = rest;
            (meta.part, meta.parts) = (part, parts);
        }
        if flags & CHUNK != 0 {
            meta.chunk.index = u32::try_from(take(bytes)?).ok()?;
            meta.chain = ChainId(u32::try_from(take(bytes)?).ok()?);
        }
        let segment = match flags & SEGMENT {
            0 => last.segment,
            _ => SegmentId(take_difference(bytes, last.segment.0)?),
        };
        meta.kind = if flags & PUNCH == 0 { RecordKind::Write } else { RecordKind::Punch };
        if flags & LEN != 0 {
            meta.len = u32::try_from(take(bytes)?).ok()?;
        }
        let sound = meta.is_sound();
        last = RunRecord { meta: sound.then_some(meta)?, segment, at, head };
        records.push(last.clone());
    }
    Some(())
}

fn end_of(meta: &RecordMeta) -> u64 {
    u64::from(meta.offset) + u64::from(meta.len)
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
                let meta = &mut record.meta;
                meta.kind = if odd(3) == 0 { RecordKind::Punch } else { RecordKind::Write };
                (meta.chain, meta.epoch) = (ChainId(odd(1 << 32) as u32), ChainEpoch(odd(u64::MAX)));
                (meta.n, meta.version, meta.stamp) = (odd(u64::MAX), odd(u64::MAX), Hlc(odd(u64::MAX)));
                meta.user_time = (odd(2) == 0).then(|| UserTime(odd(u64::MAX) as i64));
                (meta.session, meta.seq, meta.uid) =
                    (SessionId(odd(u64::MAX)), Seq(odd(u64::MAX)), odd(1 << 32) as u32);
                (meta.chunk.index, meta.offset, meta.len) =
                    (odd(1 << 32) as u32, odd(1 << 31) as u32, odd(1 << 31) as u32);
                meta.part = odd(8) as u8;
                meta.parts = meta.part + 1 + odd(3) as u8;
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
                let meta = &mut record.meta;
                (meta.n, meta.version) = (meta.n + 1 + rng.below(40), meta.version + 1);
                (meta.seq, meta.stamp) = (Seq(meta.seq.0 + 1 + rng.below(40)), Hlc(meta.stamp.0 + (1 << 20)));
                (meta.offset, meta.len) = (rng.below(1 << 26) as u32, 32 << 10);
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
        let meta = RecordMeta { chunk, stamp: Hlc(stamp), n: stamp, seq: Seq(3), len: 600, ..RecordMeta::ZERO };
        RunRecord { meta, segment: SegmentId(segment), at: 70, head: 6 }
    }

    #[test]
    fn any_bytes_are_a_piece_of_an_index_run_or_none() {
        let mut punch = record(1000, 2, 6);
        (punch.meta.kind, punch.meta.user_time, punch.meta.parts) = (RecordKind::Punch, Some(UserTime(-5)), 3);
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
