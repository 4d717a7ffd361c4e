//! What is left after a crash or damage, whatever the bytes are.

use frieze_base::{ByteRange, ChunkId, InodeId, Reason};
use frieze_hlc::Hlc;
use frieze_multilog::{Error, LogCutReason, LogPosition, MultiLog, RecordHeader, RecoveredItem, SegmentKey};

use crate::support::{DeviceFiles, LogDevice, payload_of, recover, settings, with_payload, write_of};

const SEGMENT_BYTES: u64 = 32 << 10;

/// Records of 700 bytes, so two blocks, one behind the other in chunk 0 of file 1, stamped 1, 2, 3...
fn nth(stamp: u64) -> RecordHeader {
    write_of(1, 0, stamp, (stamp as u32 - 1) * 700, 700)
}

fn device_with(records: u64) -> LogDevice {
    let mut device = LogDevice::new(settings(SEGMENT_BYTES));
    (1..=records).for_each(|stamp| {
        device.write(&[with_payload(nth(stamp))]);
    });
    device
}

fn stamps(records: &[RecordHeader]) -> Vec<u64> {
    records.iter().map(|record| record.stamp.0).collect()
}

/// Where record `stamp` lies: its first byte, and its length.
fn lies(device: &LogDevice, stamp: u64) -> (u64, u64) {
    let dead_records = device.log.dead_records(InodeId(1), Hlc::MAX, &Default::default());
    let dead = dead_records[stamp as usize - 1];
    (dead.start, dead.end - dead.start)
}

/// The bytes of record `stamp` as the device reads them at `at`.
fn shown(device: &LogDevice, stamp: u64, at: Hlc) -> Option<Vec<u8>> {
    let record = nth(stamp);
    let range = ByteRange::new(record.offset.into(), u64::from(record.offset + record.len));
    device.read(record.chunk, range, at)
}

#[test]
fn an_empty_device_recovers_as_an_empty_log() {
    let (device, report, _) = recover(DeviceFiles::default(), settings(SEGMENT_BYTES));
    assert_eq!((report.records, report.cut, report.end), (0, None, LogPosition::default()));
    assert_eq!(device.log.end(), LogPosition::default());
}

#[test]
fn recovery_gives_the_log_that_was_published() {
    let device = device_with(100);
    let (again, report, seen) = device.restarted();
    assert_eq!((report.cut.clone(), report.corrupt.len(), report.end), (None, 0, device.log.end()));
    assert_eq!(stamps(&seen), (1..=100).collect::<Vec<_>>());
    assert_eq!(again.log.stats().log_bytes, device.log.stats().log_bytes);
    let record = nth(100);
    assert_eq!(again.log.chunk_version(record.chunk), 100);
    assert_eq!(again.log.chain_state(record.chain).stamp, Hlc(100));
    assert_eq!(again.log.versions(InodeId(1), Hlc(98), Hlc::MAX, 9), [nth(99), nth(100)]);
}

#[test]
fn recovery_reads_sealed_segments_by_their_footers_only() {
    let mut device = device_with(100);
    let sealed = device.seal(device.log.end());
    assert!(sealed >= 2);
    let (_, report, seen) = device.restarted();
    assert_eq!(seen.len(), 100);
    let scanned = report.scanned_bytes;
    assert!(scanned < SEGMENT_BYTES, "{scanned} bytes scanned with {sealed} segments sealed");
    let all = device.log.end();
    device.log.checkpoint(all).iter().for_each(|seal| device.files.seal(seal));
    assert_eq!(device.restarted().1.scanned_bytes, 0);
}

#[test]
fn a_torn_record_is_cut_wherever_it_was_torn() {
    let device = device_with(5);
    let whole = device.log.end();
    let mut torn = LogDevice { log: recover(device.files.clone(), settings(SEGMENT_BYTES)).0.log, ..device_with(5) };
    let placed = torn.store(&[with_payload(nth(6))]);
    let (from, to) = (placed.spots[0].offset as usize, placed.spots[0].end.offset as usize);
    for stop in from..=to {
        let mut files = torn.files.clone();
        files.of(whole.segment)[stop..].fill(0);
        let (mut again, report, seen) = recover(files, settings(SEGMENT_BYTES));
        // A payload's trailing byte is never 0 here, so anything short of the end is torn.
        let expect = if stop == to { 6 } else { 5 };
        assert_eq!(seen.len(), expect, "torn at byte {} of {}", stop - from, to - from);
        let cut = report.cut.map(|cut| (cut.segment, cut.offset));
        // The first two bytes tell that a record was begun.
        if stop >= from + 2 && stop < to {
            assert_eq!(cut, Some((whole.segment, whole.offset)), "torn at byte {}", stop - from);
        } else {
            assert_eq!(cut, None);
        }
        // The log goes on as if the torn record had never been begun.
        again.write(&[with_payload(nth(7))]);
        let (again, report, seen) = again.restarted();
        assert_eq!((report.cut, seen.len()), (None, expect + 1));
        assert_eq!(shown(&again, 7, Hlc::MAX), Some(payload_of(&nth(7))));
    }
}

#[test]
fn a_flipped_bit_in_the_tail_ends_the_log_before_it() {
    let device = device_with(4);
    let end = device.log.end();
    let third = device.log.versions(InodeId(1), Hlc::ZERO, Hlc(2), 9).len();
    assert_eq!(third, 2);
    let (from, record_bytes) = lies(&device, 3);
    for byte in from..from + record_bytes {
        let mut files = device.files.clone();
        files.of(end.segment)[byte as usize] ^= 1 << (byte % 8);
        let (again, report, seen) = recover(files, settings(SEGMENT_BYTES));
        assert_eq!(stamps(&seen), [1, 2], "bit {} of byte {} flipped", byte % 8, byte - from);
        assert_eq!(report.end.offset, from);
        assert_eq!(shown(&again, 2, Hlc::MAX), Some(payload_of(&nth(2))));
    }
}

#[test]
fn a_flipped_bit_in_a_vouched_record_costs_that_record_only() {
    let mut device = device_with(4);
    let end = device.log.end();
    let seal = device.log.checkpoint(end).expect("records without a footer");
    device.files.seal(&seal);
    assert_eq!(device.log.checkpoint(end), None);
    device.write(&[with_payload(nth(5))]);
    let (from, record_bytes) = lies(&device, 3);
    for byte in from..from + record_bytes {
        let mut files = device.files.clone();
        files.of(end.segment)[byte as usize] ^= 1 << (byte % 8);
        let (again, report, seen) = recover(files, settings(SEGMENT_BYTES));
        assert_eq!((stamps(&seen), report.cut), (vec![1, 2, 3, 4, 5], None), "byte {}", byte - from);
        for stamp in [1, 2, 4, 5] {
            assert_eq!(shown(&again, stamp, Hlc::MAX), Some(payload_of(&nth(stamp))));
        }
        // The damaged record is never shown as something else.
        let found = shown(&again, 3, Hlc::MAX);
        assert!(found.is_none() || found == Some(payload_of(&nth(3))));
    }
}

#[test]
fn a_checkpoint_names_only_durable_records() {
    let mut device = device_with(3);
    let durable = device.log.end();
    device.write(&[with_payload(nth(4))]);
    let seal = device.log.checkpoint(durable).expect("three records");
    device.files.seal(&seal);
    let mut files = device.files.clone();
    files.of(durable.segment)[durable.offset as usize..][..200].fill(0);
    let (_, report, seen) = recover(files, settings(SEGMENT_BYTES));
    assert_eq!((stamps(&seen), report.corrupt), (vec![1, 2, 3], vec![]));
}

#[test]
fn a_checkpoint_never_splits_a_group() {
    let mut device = device_with(2);
    let before = device.log.end();
    let placed = device.store(&pair(3));
    let headers: Vec<RecordHeader> = pair(3).into_iter().map(|(header, _)| header).collect();
    headers.iter().zip(&placed.spots).for_each(|(header, spot)| device.log.publish(header, spot));
    // The first half is durable, the second is lost with the power.
    let seal = device.log.checkpoint(placed.spots[0].end).expect("two records");
    device.files.seal(&seal);
    let mut files = device.files.clone();
    files.of(before.segment)[placed.spots[1].offset as usize..][..300].fill(0);
    let (_, report, seen) = recover(files, settings(SEGMENT_BYTES));
    assert_eq!((stamps(&seen), report.corrupt, report.end), (vec![1, 2], vec![], before));
}

#[test]
fn damage_in_a_sealed_segment_leaves_the_rest() {
    let mut device = device_with(100);
    device.seal(device.log.end());
    let (&segment, _) = device.files.keys.first_key_value().expect("segments");
    let len = device.files.of(segment).len();
    // Each is damaged in one place: header, a record, the footer's headers, the trailer.
    for at in [8, 20_000, len - 300, len - 60] {
        let mut files = device.files.clone();
        files.of(segment)[at] ^= 0x10;
        let (again, report, seen) = recover(files, settings(SEGMENT_BYTES));
        assert_eq!((seen.len(), report.cut.clone()), (100, None), "damaged at {at}: {report:?}");
        let lost: Vec<u64> = (1..=100).filter(|stamp| shown(&again, *stamp, Hlc::MAX).is_none()).collect();
        assert_eq!(lost.len(), usize::from(at == 20_000), "damaged at {at}");
    }
}

#[test]
fn a_lost_or_shortened_sealed_segment_is_reported_and_the_rest_is_there() {
    let mut device = device_with(100);
    let end = device.log.end();
    device.seal(end);
    device.log.checkpoint(end).iter().for_each(|seal| device.files.seal(seal));
    let keys: Vec<SegmentKey> = device.files.keys.values().copied().collect();
    for (victim, len) in [(0, 0), (1, 0), (1, 10_000), (0, 20_000)] {
        let mut files = device.files.clone();
        files.bytes.get_mut(&keys[victim]).expect("a file").truncate(len);
        let (again, report, seen) = recover(files, settings(SEGMENT_BYTES));
        assert!(!report.corrupt.is_empty(), "file {victim} cut to {len}");
        assert_eq!(report.cut, None);
        assert!(seen.len() < 100 && seen.len() > 30, "{} of 100 left", seen.len());
        assert_eq!(seen.last().map(|record| record.stamp), Some(Hlc(100)));
        // The record at the place where the file ends now is known by its header and refused.
        let damaged = seen.iter().filter(|record| shown(&again, record.stamp.0, Hlc::MAX).is_none()).count();
        assert!(damaged <= usize::from(len > 0), "{damaged} damaged");
        for record in &seen {
            assert!(shown(&again, record.stamp.0, Hlc::MAX).is_none_or(|bytes| bytes == payload_of(record)));
        }
        // The next start says the same.
        let (_, again, seen_again) = again.restarted();
        assert_eq!((again.corrupt, seen_again), (report.corrupt, seen));
    }
}

/// A write over two chunks as one group.
fn pair(stamp: u64) -> Vec<(RecordHeader, Vec<u8>)> {
    let first = RecordHeader { parts: 2, ..write_of(1, 0, stamp, 9000, 600) };
    let second = RecordHeader { part: 1, parts: 2, ..write_of(1, 1, stamp, 0, 300) };
    vec![with_payload(first), with_payload(second)]
}

#[test]
fn a_group_is_recovered_wholly_or_not_at_all() {
    let mut device = device_with(2);
    let before = device.log.end();
    let placed = device.store(&pair(3));
    let (from, to) = (placed.spots[0].offset as usize, placed.spots[1].end.offset as usize);
    for stop in from..=to {
        let mut files = device.files.clone();
        files.of(before.segment)[stop..].fill(0);
        let (again, report, seen) = recover(files, settings(SEGMENT_BYTES));
        assert_eq!(seen.len(), if stop == to { 4 } else { 2 }, "torn at byte {}", stop - from);
        if stop == placed.spots[1].offset as usize {
            assert_eq!(
                report.cut.map(|cut| (cut.offset, cut.why)),
                Some((before.offset, LogCutReason::IncompleteGroup))
            );
        }
        let tail = again.log.newest_in(InodeId(1), 0..=9, Hlc(2), Hlc::MAX);
        assert_eq!(tail.highest, (stop == to).then_some((1, 300)));
    }
}

#[test]
fn a_log_recovered_up_to_a_stamp_ends_before_the_next_record_unless_a_footer_vouches_for_it() {
    let mut device = device_with(5);
    let upto = |mut files: DeviceFiles, limit| {
        let mut seen = Vec::new();
        let recovered = MultiLog::recover_upto(settings(SEGMENT_BYTES), &mut files, Hlc(limit), &mut |recovered| {
            let RecoveredItem::Record(header) = recovered else { panic!("there are no index_runs") };
            seen.push(header.stamp.0);
        });
        let (log, report) = recovered.expect("readable files");
        assert_eq!(log.end(), report.end);
        (seen, report.cut.map(|cut| cut.why))
    };
    assert_eq!(upto(device.files.clone(), 3), (vec![1, 2, 3], Some(LogCutReason::BeyondLimit)));
    assert_eq!(upto(device.files.clone(), 5), (vec![1, 2, 3, 4, 5], None));
    let seal = device.log.checkpoint(device.log.end()).expect("something to vouch for");
    device.files.seal(&seal);
    assert_eq!(upto(device.files.clone(), 3), (vec![1, 2, 3, 4, 5], None));
}

#[test]
fn an_abandoned_group_leaves_no_trace() {
    let mut device = device_with(2);
    let placed = device.store(&pair(3));
    let spots = placed.spots.clone();
    device.log.abandon(placed);
    // Of the same length as the first of the pair, so the second lies exactly behind it.
    device.write(&[with_payload(write_of(1, 0, 4, 9000, 600))]);
    assert_eq!(device.log.end(), spots[0].end);
    let (again, report, seen) = device.restarted();
    assert_eq!((stamps(&seen), report.cut, again.log.end()), (vec![1, 2, 4], None, spots[0].end));
}

#[test]
fn records_that_a_recovery_cut_off_never_come_back() {
    let device = device_with(6);
    let end = device.log.end();
    let mut files = device.files.clone();
    files.of(end.segment)[lies(&device, 4).0 as usize] ^= 1;
    let (mut again, _, seen) = recover(files, settings(SEGMENT_BYTES));
    assert_eq!(stamps(&seen), [1, 2, 3]);
    // The new record lies exactly where the damaged one was; records 5 and 6 are still behind it, whole.
    again.write(&[with_payload(RecordHeader { stamp: Hlc(9), ..nth(4) })]);
    let (again, _, seen) = again.restarted();
    assert_eq!(stamps(&seen), [1, 2, 3, 9]);
    assert_eq!(again.log.newest_in(InodeId(1), 0..=0, Hlc::ZERO, Hlc::MAX).newest, Some(Hlc(9)));
}

#[test]
fn a_cut_drops_later_segments_and_their_files_serve_again() {
    let device = device_with(100);
    let (&second, _) = device.files.keys.iter().nth(1).expect("segments");
    let mut files = device.files.clone();
    files.of(second)[10_000] ^= 1;
    let (mut again, report, seen) = recover(files, settings(SEGMENT_BYTES));
    assert!(seen.len() < 100);
    assert_eq!(report.cut.as_ref().map(|cut| cut.segment), Some(second));
    assert!(!report.free.is_empty());
    let kept = seen.len() as u64;
    let same = again.restarted();
    assert_eq!((same.1, same.2), (report, seen));
    for stamp in kept + 1..=100 {
        let record = RecordHeader { stamp: Hlc(stamp + 1000), ..nth(stamp) };
        again.write(&[with_payload(record)]);
        let (_, report, seen) = again.restarted();
        assert_eq!((seen.len() as u64, report.corrupt.len()), (stamp, 0), "after {stamp}");
    }
    assert_eq!(again.restarted().1.cut, None);
}

#[test]
fn a_segment_whose_making_failed_is_left_out() {
    let mut device = LogDevice::new(settings(SEGMENT_BYTES));
    for stamp in 1..=100 {
        let placed = device.log.reserve(&[nth(stamp)]).expect("nothing is reserved");
        let rolled = placed.roll.clone();
        device.log.abandon(placed);
        if let Some(roll) = rolled {
            // Half the time the file was made before the write failed.
            if stamp % 2 == 0 {
                device.files.make(roll.id, roll.bytes, &mut Vec::new());
                device.files.put(roll.id, 0, &roll.header);
            }
            let next = device.store(&[with_payload(nth(stamp))]);
            assert!(next.roll.as_ref().is_some_and(|next| next.id > roll.id));
            device.log.abandon(next);
        }
        device.write(&[with_payload(nth(stamp))]);
    }
    let (_, report, seen) = device.restarted();
    assert_eq!((seen.len(), report.cut, report.corrupt), (100, None, vec![]));
    assert!(!report.free.is_empty());
}

#[test]
fn old_bytes_of_a_recycled_file_are_no_records() {
    let old = device_with(120);
    let mut device = LogDevice::new(settings(SEGMENT_BYTES));
    device.files.bytes = old.files.bytes.clone();
    device.free = old.files.bytes.keys().copied().collect();
    // Ids go on after those of the first use.
    for _ in 0..10 {
        let placed = device.log.reserve(&[write_of(1, 0, 1, 0, 1)]).expect("nothing is reserved");
        device.log.abandon(placed);
    }
    for stamp in 1..=60 {
        device.write(&[with_payload(RecordHeader { stamp: Hlc(stamp + 500), ..nth(stamp) })]);
    }
    let used: Vec<SegmentKey> = device.files.keys.values().copied().collect();
    device.files.bytes.retain(|key, _| used.contains(key));
    let (_, report, seen) = device.restarted();
    assert_eq!((seen.len(), report.cut), (60, None));
}

#[test]
fn records_of_a_chunk_out_of_order_end_the_log() {
    // The log itself refuses to write such a thing, so two logs are spliced: the second segment of one is rewritten
    // with older stamps by a log that knew no better.
    let mut device = device_with(3);
    // So long that what comes behind it is told alone.
    let other = write_of(2, 0, 50, 0, 17_000);
    device.write(&[with_payload(other.clone())]);
    let mut foreign = LogDevice::new(settings(SEGMENT_BYTES));
    (1..=3).for_each(|stamp| {
        foreign.write(&[with_payload(nth(stamp))]);
    });
    foreign.write(&[with_payload(RecordHeader { chunk: ChunkId { inode: InodeId(3), index: 0 }, ..other })]);
    foreign.write(&[with_payload(write_of(2, 0, 40, 0, 700))]);
    let at = device.log.end();
    let late = foreign.log.end();
    let bytes = foreign.files.of(late.segment)[at.offset as usize..late.offset as usize].to_vec();
    device.files.put(at.segment, at.offset, &bytes);
    let (_, report, seen) = device.restarted();
    assert_eq!(seen.len(), 4);
    assert_eq!(report.cut.map(|cut| cut.why), Some(LogCutReason::Contradiction));
}

#[test]
fn another_format_version_and_a_copied_file_are_refused_with_reasons() {
    let device = device_with(3);
    let open = |mut files: DeviceFiles| {
        MultiLog::recover(settings(SEGMENT_BYTES), &mut files, &mut |_| {}).expect_err("refused")
    };
    let mut newer = device.files.clone();
    let header = newer.bytes.get_mut(&SegmentKey(1)).expect("the first file");
    header[4] = 2;
    let crc = frieze_base::crc32c(&header[..60]);
    header[60..64].copy_from_slice(&crc.to_le_bytes());
    let error = open(newer);
    assert_eq!(error.reason(), Reason::WrongVersion);
    assert!(
        error
            .to_string()
            .contains("format version 2, this build of frieze reads 1 only: read it with the build that wrote it"),
        "{error}"
    );

    let mut doubled = device.files.clone();
    let copy = doubled.bytes[&SegmentKey(1)].clone();
    doubled.bytes.insert(SegmentKey(7), copy);
    assert!(matches!(open(doubled), Error::DoubleSegment { first: 1, second: 7, .. }));
}

#[test]
fn garbage_files_are_free_and_change_nothing() {
    let mut device = device_with(3);
    device.files.bytes.insert(SegmentKey(50), vec![0x5a; 5000]);
    device.files.bytes.insert(SegmentKey(51), vec![0; 5000]);
    device.files.bytes.insert(SegmentKey(52), Vec::new());
    let (_, report, seen) = device.restarted();
    assert_eq!((seen.len(), report.cut, report.corrupt), (3, None, vec![]));
    assert_eq!(report.free, [SegmentKey(50), SegmentKey(51), SegmentKey(52)]);
}

#[test]
fn only_full_durable_segments_are_sealed_and_each_once() {
    let mut device = device_with(100);
    let end = device.log.end();
    let first = *device.files.keys.keys().next().expect("a segment");
    assert_eq!(device.seal(LogPosition { segment: first, offset: 20_000 }), 0);
    assert_eq!(device.seal(LogPosition { segment: first, offset: SEGMENT_BYTES }), 1);
    let open = device.files.keys.len() - 1;
    assert_eq!(device.seal(end), open - 1);
    assert_eq!(device.seal(end), 0);
}

#[test]
fn a_stale_segment_that_ends_where_the_new_log_does_is_not_taken() {
    let device = device_with(60);
    let (&second, _) = device.files.keys.iter().nth(1).expect("two segments");
    let first = *device.files.keys.keys().next().expect("a segment");
    // The first segment's last record is damaged, so the second is cut off; then the same place is written again.
    let mut files = device.files.clone();
    files.bytes.remove(&device.files.keys[&second]);
    let in_first = recover(files.clone(), settings(SEGMENT_BYTES)).1;
    let last = in_first.records;
    files.of(first)[in_first.end.offset as usize - 1] ^= 1;
    let (mut again, ..) = recover(files, settings(SEGMENT_BYTES));
    again.write(&[with_payload(RecordHeader { stamp: Hlc(last + 50), ..nth(last) })]);
    assert_eq!(again.log.end(), in_first.end);
    let key = device.files.keys[&second];
    again.files.bytes.insert(key, device.files.bytes[&key].clone());
    let (_, report, seen) = again.restarted();
    assert_eq!((report.records, seen.last().map(|record| record.stamp)), (last, Some(Hlc(last + 50))));
    assert_eq!(report.free, [key]);
}
