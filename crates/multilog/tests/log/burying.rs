//! What is buried leaves memory, and nobody who asks for an instant that is kept can tell.

use std::collections::BTreeSet;

use frieze_base::{ByteRange, ChunkId, InodeId, Rng, SegmentId};
use frieze_hlc::Hlc;
use frieze_multilog::{RecordKind, Source};

use crate::support::{Device, settings, with_payload, write_of};

const FILE: InodeId = InodeId(1);
const CHUNK: ChunkId = ChunkId { inode: FILE, index: 0 };
const BYTES: u64 = 300_000;
const RECORDS: u64 = 600;

/// Writes, holes, and ever shorter reaches at the end.
fn device_with(rng: &mut Rng) -> Device {
    let mut device = Device::new(settings(4 << 20));
    for stamp in 1..=RECORDS {
        let offset = rng.below(BYTES - 20_000) as u32 / 4096 * 4096;
        let mut meta = write_of(FILE.0, 0, stamp, offset, rng.between(1, 20_000) as u32);
        if rng.chance(10) {
            meta.kind = RecordKind::Punch;
        } else if stamp == RECORDS / 4 {
            // Nothing that is kept reaches as far.
            (meta.offset, meta.len) = (BYTES as u32 - 10, 10);
        } else if stamp == RECORDS / 4 + 1 {
            (meta.kind, meta.offset, meta.len) = (RecordKind::Punch, BYTES as u32 - 100, 100);
        }
        device.write(&[with_payload(meta)]);
    }
    device
}

/// As the server does it: what the horizon and now show stays.
fn bury(device: &mut Device, horizon: Hlc, masks: [Hlc; 2], thin: bool) -> usize {
    let mut live: BTreeSet<(SegmentId, u64)> = BTreeSet::new();
    for (at, after) in [(horizon, masks[0]), (Hlc::MAX, masks[1])] {
        let mut pieces = Vec::new();
        device.log.plan(CHUNK, ByteRange::new(0, BYTES), at, after, &mut pieces);
        live.extend(pieces.iter().filter_map(|piece| match &piece.source {
            Source::Data(stored) => Some((stored.segment, stored.crcs_offset)),
            _ => None,
        }));
    }
    let graves = device.log.graves(FILE, horizon, &live);
    device.log.bury(FILE, horizon, &graves, thin);
    graves.len()
}

#[test]
fn nobody_who_asks_for_an_instant_that_is_kept_can_tell_that_buried_records_left_memory() {
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let (mut whole, mut thin) = (device_with(&mut rng.clone()), device_with(&mut rng.clone()));
        let horizon = Hlc(rng.between(RECORDS / 2, RECORDS * 3 / 4));
        // A truncate before the horizon, and one after it.
        let masks = [Hlc(rng.below(horizon.0)), Hlc(rng.between(horizon.0, RECORDS))];
        let held = |device: &Device| device.log.stats().index_bytes - device.log.stats().footer_bytes;
        let before = held(&thin);
        let buried = bury(&mut whole, horizon, masks, false);
        assert_eq!(bury(&mut thin, horizon, masks, true), buried);
        assert!(buried as u64 > RECORDS / 4, "{buried} buried");
        let after = held(&thin);
        assert!(after < before * 4 / 5, "{before} bytes became {after} without {buried} of {RECORDS} records");
        assert_eq!(whole.log.written_bytes(FILE), thin.log.written_bytes(FILE));
        assert_eq!(whole.log.chunk_version(CHUNK), thin.log.chunk_version(CHUNK));
        for _ in 0..200 {
            let at = Hlc(rng.between(horizon.0, RECORDS + 1));
            let mask = if at < masks[1] { masks[0] } else { masks[1] };
            let start = rng.below(BYTES);
            let range = ByteRange::new(start, rng.between(start + 1, BYTES));
            let shown = whole.read_after(CHUNK, range, at, mask).expect("whole records");
            assert!(thin.read_after(CHUNK, range, at, mask).expect("whole records") == shown, "{range} at {at}");
            let since = Hlc(rng.below(at.0));
            let tails = [&whole, &thin].map(|device| device.log.newest_in(FILE, 0..=9, since, at));
            assert_eq!(tails[0], tails[1], "since {since} up to {at}");
            let upto = rng.below(BYTES);
            let all = whole.read_after(CHUNK, ByteRange::new(0, upto.max(1)), at, mask).expect("whole records");
            let holds = all.iter().take(upto as usize).filter(|byte| byte.is_some_and(|byte| byte != 0)).count() as u64;
            match thin.log.live_in(CHUNK, upto, at, mask) {
                Ok(live) => assert_eq!(live, holds, "{upto} bytes at {at}"),
                Err(most) => assert!(most >= holds, "{upto} bytes at {at}: at most {most}, but {holds}"),
            }
        }
    }
}

#[test]
fn a_file_of_which_all_is_buried_may_leave_and_come_back() {
    let mut device = Device::new(settings(32 << 10));
    for stamp in 1..=400u64 {
        device.write(&[with_payload(write_of(1 + stamp % 4, 0, stamp, stamp as u32 * 100, 700))]);
    }
    device.seal(device.log.end());
    while device.shelve(8, b"") > 0 {}
    let graves = device.log.graves(FILE, Hlc::MAX, &BTreeSet::new());
    assert_eq!(graves.len(), 100);
    let live = device.log.live_in(CHUNK, 1 << 20, Hlc::MAX, Hlc::ZERO);
    device.log.bury(FILE, Hlc::MAX, &graves, true);
    // Who has it open is told what it held.
    assert_eq!(device.log.live_in(CHUNK, 1 << 20, Hlc::MAX, Hlc::ZERO), live);
    device.log.evict(&device.log.to_evict(0));
    assert!(device.log.is_away(FILE), "nobody asks for it");
    device.fetch(FILE);
    assert_eq!(device.log.chunk_version(CHUNK), 400);
}
