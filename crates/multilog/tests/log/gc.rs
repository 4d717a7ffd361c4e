//! Dead records leave memory, and every answer for an instant that is kept stays as it was.

use std::collections::BTreeSet;

use frieze_base::{ByteRange, ChunkId, InodeId, Rng, SegmentId, SessionId};
use frieze_hlc::Hlc;
use frieze_multilog::{PieceSource, RecordHeader, RecordKind};

use crate::support::{LogDevice, settings, with_payload, write_of};

const FILE: InodeId = InodeId(1);
const CHUNK: ChunkId = ChunkId { inode: FILE, index: 0 };
const BYTES: u64 = 300_000;
const RECORDS: u64 = 600;

/// The next record: a write, or now and then a hole, by one of some sessions.
fn record(rng: &mut Rng, stamp: u64, sessions: u64) -> RecordHeader {
    let offset = rng.below(BYTES - 20_000) as u32 / 4096 * 4096;
    let mut header = write_of(FILE.0, 0, stamp, offset, rng.between(1, 20_000) as u32);
    if rng.chance(10) {
        header.kind = RecordKind::Punch;
    }
    header.session = SessionId(1 + rng.below(sessions));
    header
}

/// Writes, holes, and ever shorter reaches at the end.
fn device_with(rng: &mut Rng, sessions: u64) -> LogDevice {
    let mut device = LogDevice::new(settings(4 << 20));
    for stamp in 1..=RECORDS {
        let mut header = record(rng, stamp, sessions);
        if stamp == RECORDS / 4 {
            // Nothing that is kept reaches as far.
            (header.kind, header.offset, header.len) = (RecordKind::Write, BYTES as u32 - 10, 10);
        } else if stamp == RECORDS / 4 + 1 {
            (header.kind, header.offset, header.len) = (RecordKind::Punch, BYTES as u32 - 100, 100);
        }
        device.write(&[with_payload(header)]);
    }
    device
}

/// An instant that is kept, and which records are hidden then.
#[derive(Clone, Copy)]
struct KeptInstants {
    at: Hlc,
    mask: Hlc,
}

/// Marks dead what the server would: what any instant that is kept shows stays. The last is now, the one before it the
/// horizon.
fn mark_dead(device: &mut LogDevice, kept: &[KeptInstants]) -> usize {
    let mut live: BTreeSet<(SegmentId, u64)> = BTreeSet::new();
    for KeptInstants { at, mask } in kept {
        let mut pieces = Vec::new();
        device.log.plan(CHUNK, ByteRange::new(0, BYTES), *at, *mask, &mut pieces);
        live.extend(pieces.iter().filter_map(|piece| match &piece.source {
            PieceSource::Data(stored) => Some((stored.segment, stored.crcs_offset)),
            _ => None,
        }));
    }
    let horizon = kept[kept.len() - 2].at;
    let dead_records = device.log.dead_records(FILE, horizon, &live);
    device.log.mark_dead(FILE, horizon, &dead_records, false);
    dead_records.len()
}

fn compact_index(device: &mut LogDevice, kept: &[KeptInstants]) {
    let kept: Vec<Hlc> = kept[..kept.len() - 1].iter().map(|kept| kept.at).collect();
    let mut from = 0;
    while let Some(mut compact) = device.log.compact_index(FILE, from, &kept) {
        compact.build();
        device.log.put_compact_index(&mut compact);
        from = compact.next_chunk();
    }
}

/// What is asked of two devices, one of them without what is dead.
fn check_same(
    whole: &LogDevice,
    compact: &LogDevice,
    rng: &mut Rng,
    KeptInstants { at, mask }: KeptInstants,
    words: &str,
) {
    let start = rng.below(BYTES);
    let range = ByteRange::new(start, rng.between(start + 1, BYTES));
    let shown = whole.read_after(CHUNK, range, at, mask).expect("whole records");
    assert!(compact.read_after(CHUNK, range, at, mask).expect("whole records") == shown, "{words}: {range} at {at}");
    let since = Hlc(rng.below(at.0.min(RECORDS)));
    let tails = [whole, compact].map(|device| device.log.newest_in(FILE, 0..=9, since, at));
    assert_eq!(tails[0], tails[1], "{words}: since {since} up to {at}");
    let changed = [whole, compact].map(|device| device.log.has_records(FILE, since, at));
    assert_eq!(changed[0], changed[1], "{words}: since {since} up to {at}");
    let upto = rng.below(BYTES);
    let all = whole.read_after(CHUNK, ByteRange::new(0, upto.max(1)), at, mask).expect("whole records");
    let holds = all.iter().take(upto as usize).filter(|byte| byte.is_some_and(|byte| byte != 0)).count() as u64;
    match compact.log.live_in(CHUNK, upto, at, mask) {
        Ok(live) => assert_eq!(live, holds, "{words}: {upto} bytes at {at}"),
        Err(most) => assert!(most >= holds, "{words}: {upto} bytes at {at}: at most {most}, but {holds}"),
    }
}

/// The records of an interval are listed, or a dropped span says that there were some.
fn check_told(whole: &LogDevice, compact: &LogDevice, after: Hlc, upto: Hlc) {
    let told = compact.log.versions(FILE, after, upto, usize::MAX);
    let lost = compact.log.dropped_records(FILE, after, upto);
    for record in whole.log.versions(FILE, after, upto, usize::MAX) {
        let known = told.contains(&record);
        let who = |by: Option<(SessionId, u32)>| by.is_none_or(|by| by == (record.session, record.uid));
        let within = |first, last| (first..=last).contains(&record.stamp);
        assert!(
            known || lost.iter().any(|lost| who(lost.by) && within(lost.first, lost.last)),
            "({after}, {upto}]: {record:?} is neither told nor lost: {lost:?}"
        );
        assert!(compact.log.has_records(FILE, after, upto), "({after}, {upto}] holds {record:?}");
    }
    assert!(lost.len() <= 17, "{} are kept apart", lost.len());
}

#[test]
fn reads_at_kept_instants_do_not_change_when_dead_records_leave_memory() {
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let sessions = rng.between(2, 40);
        let mut made = rng.split();
        let (mut whole, mut less) = (device_with(&mut made.clone(), sessions), device_with(&mut made, sessions));
        let horizon = Hlc(rng.between(RECORDS / 2, RECORDS * 3 / 4));
        // A truncate before the horizon, and one after it; and a snapshot, or none.
        let masks = [Hlc(rng.below(horizon.0)), Hlc(rng.between(horizon.0, RECORDS))];
        let mask_at = |at: Hlc| if at < masks[0] { Hlc::ZERO } else { masks[usize::from(at >= masks[1])] };
        let pin = Hlc(rng.between(RECORDS / 3, RECORDS / 2)).min(horizon.previous());
        let instants = if seed % 2 == 0 { vec![pin, horizon, Hlc::MAX] } else { vec![horizon, Hlc::MAX] };
        let kept: Vec<KeptInstants> = instants.iter().map(|at| KeptInstants { at: *at, mask: mask_at(*at) }).collect();
        let held = |device: &LogDevice| device.log.stats().index_bytes - device.log.stats().footer_bytes;
        let before = held(&less);
        let dead = mark_dead(&mut whole, &kept);
        assert_eq!(mark_dead(&mut less, &kept), dead);
        assert!(dead as u64 > RECORDS / 4, "{dead} dead");
        compact_index(&mut less, &kept);
        let after = held(&less);
        assert!(after < before * 9 / 10, "{before} bytes became {after} without {dead} of {RECORDS} records");
        for more in 0..3 {
            let words = format!("seed {seed}, {more}");
            assert_eq!(whole.log.written_bytes(FILE), less.log.written_bytes(FILE), "{words}");
            assert_eq!(whole.log.chunk_version(CHUNK), less.log.chunk_version(CHUNK), "{words}");
            for _ in 0..100 {
                let at = Hlc(rng.between(horizon.0, RECORDS + 30));
                check_same(&whole, &less, &mut rng, KeptInstants { at, mask: mask_at(at) }, &words);
                for kept in &kept {
                    check_same(&whole, &less, &mut rng, *kept, &words);
                }
                let from = rng.below(RECORDS);
                check_told(&whole, &less, Hlc(from), Hlc(rng.between(from + 1, RECORDS + 30)));
            }
            // It goes on.
            for stamp in (1..=10).map(|number| RECORDS + 10 * more + number) {
                let next = with_payload(record(&mut rng, stamp, sessions));
                whole.write(std::slice::from_ref(&next));
                less.write(&[next]);
            }
        }
    }
}

#[test]
fn a_change_before_the_horizon_is_known_of_though_the_record_left_memory() {
    let mut device = LogDevice::new(settings(4 << 20));
    for stamp in [10, 20, 30, 40, 50] {
        device.write(&[with_payload(write_of(FILE.0, 0, stamp, 0, 700))]);
    }
    let kept = [KeptInstants { at: Hlc(45), mask: Hlc::ZERO }, KeptInstants { at: Hlc::MAX, mask: Hlc::ZERO }];
    assert_eq!(mark_dead(&mut device, &kept), 3);
    compact_index(&mut device, &kept);
    let stamps: Vec<Hlc> =
        device.log.versions(FILE, Hlc::ZERO, Hlc::MAX, 9).iter().map(|record| record.stamp).collect();
    // The newest that died says that something did.
    assert_eq!(stamps, [Hlc(30), Hlc(40), Hlc(50)]);
    let changed = |after, upto| device.log.has_records(FILE, Hlc(after), Hlc(upto));
    assert!(changed(5, 10) && changed(9, 35) && changed(29, 30), "what is asked for there is refused");
    assert!(!changed(0, 9) && !changed(30, 39) && !changed(40, 49) && !changed(50, 99), "nothing was written then");
    let lost = device.log.dropped_records(FILE, Hlc(9), Hlc(99));
    assert_eq!(lost.iter().map(|lost| (lost.first, lost.last)).collect::<Vec<_>>(), [(Hlc(10), Hlc(20))]);
    assert_eq!(device.log.dropped_records(FILE, Hlc(20), Hlc(99)), []);
}

#[test]
fn a_chunk_of_which_little_is_buried_is_left_as_it_is() {
    let mut device = LogDevice::new(settings(4 << 20));
    for stamp in 1..=100u64 {
        device.write(&[with_payload(write_of(FILE.0, 0, stamp, stamp.saturating_sub(20) as u32 * 1000, 1000))]);
    }
    let kept = [KeptInstants { at: Hlc(100), mask: Hlc::ZERO }, KeptInstants { at: Hlc::MAX, mask: Hlc::ZERO }];
    assert_eq!(mark_dead(&mut device, &kept), 19);
    compact_index(&mut device, &kept);
    assert_eq!(device.log.versions(FILE, Hlc::ZERO, Hlc::MAX, 999).len(), 100);
}

#[test]
fn a_file_of_which_all_is_buried_may_leave_and_come_back() {
    let mut device = LogDevice::new(settings(32 << 10));
    for stamp in 1..=400u64 {
        device.write(&[with_payload(write_of(1 + stamp % 4, 0, stamp, stamp as u32 * 100, 700))]);
    }
    device.seal(device.log.end());
    while device.make_index_run(8, b"") > 0 {}
    let dead_records = device.log.dead_records(FILE, Hlc::MAX, &BTreeSet::new());
    assert_eq!(dead_records.len(), 100);
    let live = device.log.live_in(CHUNK, 1 << 20, Hlc::MAX, Hlc::ZERO);
    device.log.mark_dead(FILE, Hlc::MAX, &dead_records, true);
    // An open handle still gets its length.
    assert_eq!(device.log.live_in(CHUNK, 1 << 20, Hlc::MAX, Hlc::ZERO), live);
    device.log.evict(&device.log.to_evict(0));
    assert!(device.log.is_evicted(FILE), "nobody asks for it");
    assert!(device.log.is_wholly_dead(FILE) && !device.log.is_wholly_dead(InodeId(2)));
    device.fetch(FILE);
    assert_eq!(device.log.chunk_version(CHUNK), 400);
    assert_eq!(device.log.dead_records(FILE, Hlc::MAX, &BTreeSet::new()), [], "it came back dead");
    assert_eq!(device.log.written_bytes(FILE), 0);
}
