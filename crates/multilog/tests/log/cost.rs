//! What the index costs in memory, counted.

use frieze_base::{ChunkId, InodeId, Rng};
use frieze_hlc::Hlc;
use frieze_multilog::{LogSettings, MultiLog, RecordHeader};

use crate::support::write_of;

const CHUNK_BYTES: u64 = 64 << 20;

fn log_with(records: impl Iterator<Item = RecordHeader>) -> MultiLog {
    let mut log = MultiLog::new(LogSettings::default());
    for record in records {
        let placed = log.reserve(std::slice::from_ref(&record)).expect("nothing is reserved");
        log.publish(&record, &placed.spots[0]);
        let end = log.end();
        log.sealable(end);
    }
    log
}

fn index_bytes_per_record(log: &MultiLog) -> u64 {
    let stats = log.stats();
    // The open segment's footer is not of the index: it is bounded by the segment.
    (stats.index_bytes - stats.footer_bytes) / stats.records
}

#[test]
fn a_random_write_costs_few_bytes() {
    for (len, align, expect) in [(4096, 4096, 30), (4096, 1, 40), (512, 512, 25), (512, 1, 40)] {
        let mut rng = Rng::new(4);
        let places = (CHUNK_BYTES - u64::from(len)) / align;
        let log = log_with((1..=200_000).map(|stamp| write_of(1, 0, stamp, (rng.below(places) * align) as u32, len)));
        let bytes = index_bytes_per_record(&log);
        assert!(bytes <= expect, "{bytes} bytes a write of {len}, aligned to {align}");
        // 15 or 16 bytes of head, 4 of checksum; a larger one is told alone more often.
        let log_bytes = log.stats().log_bytes / 200_000 - u64::from(len);
        assert!(log_bytes <= if len == 512 { 21 } else { 28 }, "{log_bytes} bytes in the log");
    }
}

#[test]
fn a_streamed_mebibyte_costs_less_than_600_bytes() {
    let mib = 1 << 20;
    let log = log_with((0..4000).map(|at| write_of(1, at / 64, u64::from(at) + 1, at % 64 * mib, mib)));
    let bytes = index_bytes_per_record(&log);
    assert!(bytes < 600, "{bytes} bytes a MiB");
    let live = |index| log.live_in(ChunkId { inode: InodeId(1), index }, 64 << 20, Hlc::MAX, Hlc::ZERO);
    assert_eq!((0..63).map(live).sum::<Result<u64, u64>>(), Ok(4000 << 20));
}

#[test]
fn a_file_of_one_small_write_costs_less_than_700_bytes() {
    let log = log_with((1..=10_000).map(|stamp| write_of(stamp, 0, stamp, 0, 4096)));
    let bytes = index_bytes_per_record(&log);
    assert!(bytes < 700, "{bytes} bytes a file");
    assert_eq!(log.newest_in(InodeId(77), 0..=0, Hlc::ZERO, Hlc::MAX).highest, Some((0, 4096)));
}
