//! The log against a plain replay of all records: any range, any instant, before and after recovery.

use crate::support::{LogDevice, payload_of, settings, with_payload, write_of};
use frieze_base::{ByteRange, ChunkId, InodeId, Rng};
use frieze_hlc::{Hlc, UserTime};
use frieze_multilog::{PieceSource, RecordHeader, RecordKind, Tail};
use proptest::prelude::*;

const CHUNK_BYTES: u32 = 300 << 10;

/// Every record ever, replayed for each question.
#[derive(Default)]
pub(crate) struct LogModel {
    pub(crate) records: Vec<RecordHeader>,
}

impl LogModel {
    fn read(&self, chunk: ChunkId, range: ByteRange, at: Hlc, after: Hlc) -> Vec<Option<u8>> {
        let mut bytes = vec![None; range.len() as usize];
        for record in self.records.iter().filter(|record| record.chunk == chunk && record.stamp <= at) {
            let payload = payload_of(record);
            let start = u64::from(record.offset);
            let part = range.intersect(ByteRange::new(start, start + u64::from(record.len)));
            for offset in part.start()..part.end() {
                let byte = if record.kind == RecordKind::Write { payload[(offset - start) as usize] } else { 0 };
                bytes[(offset - range.start()) as usize] = (record.stamp > after).then_some(byte);
            }
        }
        bytes
    }

    fn bytes(&self, chunk: ChunkId, range: ByteRange, at: Hlc) -> Vec<u8> {
        self.read(chunk, range, at, Hlc::ZERO).into_iter().map(Option::unwrap_or_default).collect()
    }

    /// How many among the first `upto` bytes of a chunk hold data.
    fn data(&self, chunk: ChunkId, upto: u64, at: Hlc, after: Hlc) -> u64 {
        let mut written = vec![false; upto as usize];
        for record in self.records.iter().filter(|record| record.chunk == chunk && record.stamp <= at) {
            let clip = |offset: u32| u64::from(offset).min(upto) as usize;
            let shows = record.kind == RecordKind::Write && record.stamp > after;
            written[clip(record.offset)..clip(record.offset + record.len)].fill(shows);
        }
        written.iter().filter(|written| **written).count() as u64
    }

    fn of(&self, inode: InodeId, after: Hlc, upto: Hlc) -> impl DoubleEndedIterator<Item = &RecordHeader> {
        let within =
            move |record: &&RecordHeader| record.chunk.inode == inode && record.stamp > after && record.stamp <= upto;
        self.records.iter().filter(within)
    }

    fn newest_in(&self, inode: InodeId, chunks: std::ops::RangeInclusive<u32>, after: Hlc, upto: Hlc) -> Tail {
        let found = || self.of(inode, after, upto).filter(|record| chunks.contains(&record.chunk.index));
        let writes = found().filter(|record| record.kind == RecordKind::Write && record.len > 0);
        Tail {
            highest: writes.map(|record| (record.chunk.index, record.offset + record.len)).max(),
            newest: found().map(|record| record.stamp).max(),
        }
    }
}

/// One group: a write that may cross into the next chunk, or a punch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogOp {
    inode: u64,
    index: u32,
    offset: u32,
    len: u32,
    punch: bool,
    user_time: bool,
}

pub(crate) fn any_op() -> impl Strategy<Value = LogOp> {
    let len = prop_oneof![
        4 => 1u32..600,
        4 => Just(4096u32),
        2 => 1u32..20_000,
        1 => Just(64u32 << 10),
        1 => 60_000u32..200_000,
        1 => Just(0u32),
    ];
    let offset =
        prop_oneof![2 => 0u32..CHUNK_BYTES, 2 => (0u32..75).prop_map(|page| page * 4096), 1 => 65_000u32..66_000];
    (1u64..3, 0u32..3, offset, len, 0u32..6, 0u32..4).prop_map(|(inode, index, offset, len, punch, user_time)| LogOp {
        inode,
        index,
        offset: offset.min(CHUNK_BYTES - 1),
        len,
        punch: punch == 0,
        user_time: user_time == 0,
    })
}

/// Runs operations on a device and the model; stamps rise by 10.
pub(crate) fn run(ops: &[LogOp], device: &mut LogDevice, model: &mut LogModel, rng: &mut Rng) {
    for op in ops {
        let stamp = model.records.last().map_or(10, |record| record.stamp.0 + 10);
        let mut first = write_of(op.inode, op.index, stamp, op.offset, op.len.min(CHUNK_BYTES - op.offset));
        if op.punch {
            first.kind = RecordKind::Punch;
        }
        if op.user_time {
            first.user_time = Some(UserTime(stamp as i64 / 30 - 4));
        }
        let mut group = vec![first.clone()];
        let rest = op.len - first.len;
        if rest > 0 && !op.punch {
            let mut second = RecordHeader { offset: 0, len: rest, part: 1, parts: 2, ..first };
            second.chunk.index += 1;
            group[0].parts = 2;
            group.push(second);
        }
        let group: Vec<_> = group.into_iter().map(with_payload).collect();
        if rng.chance(9) {
            let placed = device.store(&group);
            device.log.abandon(placed);
        }
        device.write(&group);
        if rng.chance(5) {
            device.seal(device.log.end());
        }
        if rng.chance(11) {
            let end = device.log.end();
            device.log.checkpoint(end).iter().for_each(|seal| device.files.seal(seal));
        }
        model.records.extend(group.into_iter().map(|(header, _)| header));
    }
}

/// Now, the very stamp of a record, or any other instant.
fn any_instant(rng: &mut Rng, newest: Hlc) -> Hlc {
    let at = rng.below(newest.0 + 20);
    match rng.below(8) {
        0 => Hlc::MAX,
        1..4 => Hlc(at / 10 * 10),
        _ => Hlc(at),
    }
}

/// Asks a device and the model the same questions.
pub(crate) fn compare(device: &LogDevice, model: &LogModel, rng: &mut Rng, questions: usize) {
    let newest = model.records.last().map_or(Hlc::ZERO, |record| record.stamp);
    for _ in 0..questions {
        let chunk = ChunkId { inode: InodeId(rng.between(1, 3)), index: rng.below(4) as u32 };
        let start = rng.below(CHUNK_BYTES.into());
        let len = if rng.chance(3) { rng.below(200_000) } else { rng.below(9000) };
        let range = ByteRange::new(start, start + len);
        let at = any_instant(rng, newest);
        let after = if rng.chance(2) { Hlc::ZERO } else { any_instant(rng, newest) };
        let expect = model.read(chunk, range, at, after);
        let found = device.read_after(chunk, range, at, after).expect("whole blocks");
        assert!(found == expect, "{range} of chunk {chunk} at {at}, hidden up to {after}");

        let upto = rng.below(2 * u64::from(CHUNK_BYTES));
        let at = if rng.chance(2) { Hlc::MAX } else { at };
        let live = model.data(chunk, upto, at, after);
        match device.log.live_in(chunk, upto, at, after) {
            Ok(exact) => assert_eq!(exact, live, "of {upto} bytes of chunk {chunk} at {at}, hidden up to {after}"),
            Err(most) => assert!(most >= live, "{most} for {live} of chunk {chunk} at {at}, hidden up to {after}"),
        }
        let mut pieces = Vec::new();
        device.log.plan(chunk, ByteRange::new(0, upto), at, after, &mut pieces);
        let data = pieces.iter().filter(|piece| matches!(piece.source, PieceSource::Data(_)));
        assert_eq!(data.map(|piece| u64::from(piece.len)).sum::<u64>(), live);
        let whole = device.log.data_in(chunk, ByteRange::new(0, upto), at, after);
        let below = device.log.data_in(chunk, ByteRange::new(0, start.min(upto)), at, after);
        let above = device.log.data_in(chunk, ByteRange::new(start.min(upto), upto), at, after);
        assert_eq!(
            (whole, below + above),
            (live, live),
            "of {upto} bytes of chunk {chunk} at {at}, hidden up to {after}"
        );

        let (after, upto) = (any_instant(rng, newest), any_instant(rng, newest));
        let first = rng.below(4) as u32;
        let chunks = first..=rng.between(first.into(), 4) as u32;
        let tail = device.log.newest_in(chunk.inode, chunks.clone(), after, upto);
        assert_eq!(tail, model.newest_in(chunk.inode, chunks, after, upto));

        let max = rng.below(30) as usize;
        let versions = device.log.versions(chunk.inode, after, upto, max);
        let expect: Vec<RecordHeader> = model.of(chunk.inode, after, upto).take(max).cloned().collect();
        assert_eq!(versions, expect);

        let user = UserTime(rng.below(newest.0 / 30 + 20) as i64 - 10);
        // Times of the records after a stamp begin anew.
        let after = if rng.chance(2) { Hlc::ZERO } else { after };
        let marks = || model.of(chunk.inode, after, upto).filter(|record| record.user_time.is_some());
        let cut = device.log.by_user_time(chunk.inode, user, after, upto);
        assert_eq!(cut.is_some(), marks().count() > 0);
        if let Some(cut) = cut {
            let last = marks().rfind(|record| record.user_time <= Some(user));
            assert_eq!(cut.stamp, last.map_or(Hlc::ZERO, |record| record.stamp));
            let later = model.of(chunk.inode, after, Hlc::MAX).any(|record| record.user_time > Some(user));
            assert_eq!(cut.open, !later);
        }
    }
}

fn check(ops: &[LogOp], seed: u64) {
    let mut rng = Rng::new(seed);
    let mut device = LogDevice::new(settings(1 << 20));
    let mut model = LogModel::default();
    let (before, after) = ops.split_at(ops.len() / 2);
    run(before, &mut device, &mut model, &mut rng);
    compare(&device, &model, &mut rng, 10);
    let (mut device, report, seen) = device.restarted();
    assert_eq!((report.cut, report.corrupt), (None, Vec::new()));
    assert_eq!(seen, model.records);
    compare(&device, &model, &mut rng, 10);
    run(after, &mut device, &mut model, &mut rng);
    compare(&device, &model, &mut rng, 20);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_operations_read_as_a_replay_of_them(ops in prop::collection::vec(any_op(), 1..120), seed in any::<u64>()) {
        check(&ops, seed);
    }
}

#[test]
fn the_index_equals_a_replay_at_a_hundred_instants() {
    let mut rng = Rng::new(100);
    let mut device = LogDevice::new(settings(1 << 20));
    let mut model = LogModel::default();
    let ops: Vec<LogOp> = (0..1500)
        .map(|_| LogOp {
            inode: 1,
            index: 0,
            offset: rng.below(100_000) as u32,
            len: rng.between(1, 6000) as u32,
            punch: rng.chance(20),
            user_time: false,
        })
        .collect();
    run(&ops, &mut device, &mut model, &mut rng);
    let chunk = ChunkId { inode: InodeId(1), index: 0 };
    let whole = ByteRange::new(0, 110_000);
    let mut answers = Vec::new();
    for number in 0..100 {
        let at = Hlc(number * 150 + 7);
        let found = device.read(chunk, whole, at).expect("whole blocks");
        assert!(found == model.bytes(chunk, whole, at), "at {at}");
        answers.push((at, found));
    }
    assert!(answers.windows(2).all(|pair| pair[0].1 != pair[1].1), "each instant shows another state");

    let more: Vec<LogOp> = ops.iter().map(|op| LogOp { offset: op.offset / 2, ..*op }).collect();
    run(&more, &mut device, &mut model, &mut rng);
    let (restarted, ..) = device.restarted();
    for (at, expect) in &answers {
        for device in [&device, &restarted] {
            assert!(device.read(chunk, whole, *at).as_ref() == Some(expect), "at {at} after more writes");
        }
    }
}

#[test]
fn tiny_writes_in_one_page_read_as_a_replay() {
    let mut rng = Rng::new(5);
    let mut device = LogDevice::new(settings(1 << 20));
    let mut model = LogModel::default();
    let ops: Vec<LogOp> = (0..6000)
        .map(|_| LogOp {
            inode: 1,
            index: 0,
            offset: rng.below(3000) as u32,
            len: rng.between(1, 3) as u32,
            punch: rng.chance(30),
            user_time: false,
        })
        .collect();
    run(&ops, &mut device, &mut model, &mut rng);
    let chunk = ChunkId { inode: InodeId(1), index: 0 };
    for _ in 0..60 {
        let at = Hlc(rng.below(62_000));
        let start = rng.below(2900);
        let range = ByteRange::new(start, start + rng.below(200));
        assert!(device.read(chunk, range, at).expect("whole") == model.bytes(chunk, range, at), "{range} at {at}");
    }
}
