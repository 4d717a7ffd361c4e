//! How many entries a plan looks at, counted where it looks.

use frieze_base::{ByteRange, ChainEpoch, ChainId, ChunkId, InodeId, Rng, Seq, SessionId};
use frieze_hlc::Hlc;

use super::page::TOUCHED;
use crate::{LogSettings, MultiLog, RecordHeader, RecordKind};

fn write(stamp: u64, offset: u32, len: u32) -> RecordHeader {
    RecordHeader {
        kind: RecordKind::Write,
        chain: ChainId(1),
        epoch: ChainEpoch(1),
        n: stamp,
        chunk: ChunkId { inode: InodeId(1), index: 0 },
        version: stamp,
        stamp: Hlc(stamp),
        user_time: None,
        session: SessionId(1),
        seq: Seq(stamp),
        uid: 0,
        offset,
        len,
        part: 0,
        parts: 1,
    }
}

/// The most entries that a plan of 64 KiB looks at, over all instants, after many writes of `len` bytes to the first
/// MiB.
fn touched_max(records: u64, len: u64) -> usize {
    let mut rng = Rng::new(11);
    let mut log = MultiLog::new(LogSettings::default());
    for stamp in 1..=records {
        let record = write(stamp, rng.below((1 << 20) - len) as u32, len as u32);
        let placed = log.reserve(std::slice::from_ref(&record)).expect("nothing is reserved");
        log.publish(&record, &placed.spots[0]);
    }
    let (mut most, mut out) = (0, Vec::new());
    for _ in 0..2000 {
        let start = rng.below(16) * (64 << 10);
        TOUCHED.set(0);
        out.clear();
        let at = Hlc(rng.below(records));
        log.plan(write(1, 0, 0).chunk, ByteRange::new(start, start + (64 << 10)), at, Hlc::ZERO, &mut out);
        most = most.max(TOUCHED.get());
    }
    most
}

#[test]
fn a_plan_of_any_instant_looks_at_a_bounded_number_of_entries() {
    for len in [4096, 1000, 100_000] {
        let few = touched_max(10_000, len);
        let many = touched_max(60_000, len);
        // Fragments of a page: about 65536 / len * 2; base, half as many deltas, and what is shown.
        let fragments = 2 * (65_536 / len as usize) + 2;
        assert!(many <= 4 * fragments + 48, "{many} entries for writes of {len} bytes");
        assert!(many <= few * 3 / 2 + 16, "{many} entries after 6 times the writes, {few} before");
    }
}

#[test]
fn a_plan_looks_no_further_back_than_what_covers_its_range_together() {
    let mut rng = Rng::new(5);
    let mut log = MultiLog::new(LogSettings::default());
    const SLOT: u64 = 32 << 10;
    let records = 4000;
    for stamp in 1..=records {
        let record = write(stamp, (rng.below(32) * SLOT) as u32, SLOT as u32);
        let placed = log.reserve(std::slice::from_ref(&record)).expect("nothing is reserved");
        log.publish(&record, &placed.spots[0]);
    }
    let mut out = Vec::new();
    TOUCHED.set(0);
    let plans = 1000;
    for _ in 0..plans {
        let start = rng.below(16) * (64 << 10);
        out.clear();
        // Every page has its first records by then.
        let at = Hlc(500 + rng.below(records - 500));
        log.plan(write(1, 0, 0).chunk, ByteRange::new(start, start + (64 << 10)), at, Hlc::ZERO, &mut out);
        assert_eq!(out.len(), 2, "two slots a page");
    }
    // The newest record covers one half; half of those before it the other: three on average, and two are shown.
    assert!(TOUCHED.get() < plans * 8, "{} entries in {plans} plans", TOUCHED.get());
}
