//! Appends by reservation on a device: interleaved in one thread under a seed, and by threads.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use frieze_base::{ChainEpoch, ChainId, ChunkId, InodeId, Rng, SegmentId, Seq, SessionId};
use frieze_disk::{CrashKind, SimDisk};
use frieze_hlc::Hlc;
use frieze_multilog::{LogPosition, LogSettings, RecordHeader, RecordKind, RecoveredItem};
use frieze_storage::{Budget, Device, ImageBudget, RecoveryLimits, ReservedAppend, block_checksums};
use frieze_tier::Shares;

const BLOCK_BYTES: u32 = 512;

/// A device over `disk`, and the stamps of its records.
fn open(disk: &SimDisk, life: u64, durable: LogPosition) -> (Device, Vec<u64>) {
    let settings = LogSettings { segment_bytes: 64 << 10, block_bytes: BLOCK_BYTES, seed: life };
    let shares = Shares { young: 1 << 20, old: 1 << 20, ..Shares::default() };
    let images = ImageBudget { pieces_max: 16, percent: 0 };
    let budget = Budget { reserve_bytes: 0, index_bytes_max: 1 << 20, shelve_segments: 4, shares, images };
    let limits = RecoveryLimits { upto: Hlc::MAX, durable, footers_from: SegmentId(0), serve_damaged: false };
    let mut stamps = Vec::new();
    let recovered = Device::recover(Arc::new(disk.clone()), settings, budget, &limits, &[], &mut |item| {
        if let RecoveredItem::Record(header) = item {
            stamps.push(header.stamp.0);
        }
    });
    (recovered.expect("a readable log").device, stamps)
}

fn record(stamp: u64, chunk: u64, len: u32) -> RecordHeader {
    RecordHeader {
        kind: RecordKind::Write,
        chain: ChainId(0),
        epoch: ChainEpoch(1),
        n: stamp,
        chunk: ChunkId { inode: InodeId(1 + chunk), index: 0 },
        version: stamp,
        stamp: Hlc(stamp),
        user_time: None,
        session: SessionId(1),
        seq: Seq(stamp),
        uid: 0,
        offset: 0,
        len,
        part: 0,
        parts: 1,
    }
}

fn payload(header: &RecordHeader) -> Vec<u8> {
    (0..header.len).map(|at| (header.stamp.0 * 131 + u64::from(at)) as u8).collect()
}

fn fill(device: &Device, header: &RecordHeader, reserved: &mut ReservedAppend) {
    let bytes = payload(header);
    let (crcs, _) = block_checksums(&bytes, BLOCK_BYTES as usize);
    device.fill(reserved, &[&bytes], &[crcs]);
}

#[test]
fn interleaved_appends_survive_crashes_at_any_step() {
    let (mut crashes, mut failures, mut both) = (0, 0, 0);
    for seed in 0..150 {
        let (disk, mut rng) = (SimDisk::new(seed), Rng::new(seed));
        let (mut device, _) = open(&disk, 0, LogPosition::default());
        let mut durable_end = LogPosition::default();
        let mut places: VecDeque<(RecordHeader, ReservedAppend, bool)> = VecDeque::new();
        let (mut published, mut refused, mut lost) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let mut durable = BTreeSet::new();
        let mut is_down = false;
        for stamp in 1..500 {
            match rng.below(9) {
                0..=2 => {
                    let header = record(stamp, rng.below(3), rng.between(1, 3000) as u32);
                    match device.reserve(std::slice::from_ref(&header)) {
                        Ok(Some(reserved)) => places.push_back((header, reserved, false)),
                        Ok(None) => {}
                        Err(_) => is_down = disk.is_crashed(),
                    }
                }
                3..=4 if !places.is_empty() => {
                    let at = rng.below(places.len() as u64) as usize;
                    let (header, reserved, is_filled) = &mut places[at];
                    if !*is_filled {
                        fill(&device, header, reserved);
                        *is_filled = true;
                    }
                    both += usize::from(at > 0);
                }
                5..=6 => {
                    while let Some((header, reserved, _)) = places.pop_front_if(|(_, _, is_filled)| *is_filled) {
                        match device.publish(reserved) {
                            Ok(_) => drop(published.insert(header.stamp.0)),
                            Err(_) => {
                                failures += 1;
                                refused.insert(header.stamp.0);
                            }
                        }
                    }
                    is_down = disk.is_crashed();
                }
                7 if places.is_empty() => match device.flush() {
                    Ok(end) => {
                        durable.clone_from(&published);
                        durable_end = end;
                        if device.write_footers(end).is_err() {
                            is_down = true;
                        }
                    }
                    Err(_) => is_down = true,
                },
                8 => match rng.below(12) {
                    0 => disk.fail_writes(rng.below(3) as u32, 1),
                    1 => disk.fail_after(rng.between(1, 6)),
                    2 => is_down = true,
                    _ => {}
                },
                _ => {}
            }
            if !is_down {
                continue;
            }
            is_down = false;
            crashes += 1;
            let kind = if rng.chance(2) { CrashKind::Process } else { CrashKind::Power };
            let open_now: Vec<u64> = places.drain(..).map(|(header, ..)| header.stamp.0).collect();
            disk.crash(kind);
            disk.restart();
            let (again, found) = open(&disk, stamp, durable_end);
            device = again;
            let found: BTreeSet<u64> = found.into_iter().collect();
            let kept = if kind == CrashKind::Process { &published } else { &durable };
            let missing: Vec<&u64> = kept.difference(&found).collect();
            assert!(missing.is_empty(), "seed {seed}: {kind:?} lost {missing:?}");
            if kind == CrashKind::Process && !disk.is_crashed() {
                let back: Vec<&u64> = lost.intersection(&found).collect();
                assert!(back.is_empty(), "seed {seed}: {back:?} came back");
                lost.extend(open_now.iter().copied().filter(|stamp| !found.contains(stamp)));
            }
            let known: BTreeSet<u64> = published.iter().chain(&refused).chain(&open_now).copied().collect();
            assert!(found.is_subset(&known), "seed {seed}");
            published.clone_from(&found);
            durable = durable.intersection(&found).copied().collect();
            refused.clear();
        }
    }
    assert!(crashes > 150 && failures > 20 && both > 1000, "{crashes}, {failures}, {both}");
}

#[test]
fn threads_fill_while_another_flushes_and_nothing_acknowledged_is_lost() {
    const THREADS: u64 = 4;
    for (round, kind) in [CrashKind::Process, CrashKind::Power, CrashKind::Process, CrashKind::Power].iter().enumerate()
    {
        let disk = SimDisk::new(round as u64);
        let (device, _) = open(&disk, 0, LogPosition::default());
        // Places are reserved in the order of stamps, as `replication` does.
        let order = Mutex::new(0);
        let (flushed, is_done) = (Mutex::new(LogPosition::default()), AtomicBool::new(false));
        let acknowledged: Mutex<Vec<(u64, LogPosition)>> = Mutex::default();
        let running = AtomicU64::new(THREADS);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (device, order, acknowledged, running) = (&device, &order, &acknowledged, &running);
                scope.spawn(move || {
                    let mut rng = Rng::new(thread);
                    for _ in 0..150 {
                        let (header, mut reserved) = loop {
                            let mut last = order.lock().expect("no thread panics");
                            let header = record(*last + 1, thread, rng.between(1, 5000) as u32);
                            if let Some(reserved) =
                                device.reserve(std::slice::from_ref(&header)).expect("a disk that works")
                            {
                                *last += 1;
                                break (header, reserved);
                            }
                            drop(last);
                            device.await_reserved();
                        };
                        fill(device, &header, &mut reserved);
                        device.await_turn(&reserved);
                        let end = device.publish(reserved).expect("a disk that works");
                        acknowledged.lock().expect("no thread panics").push((header.stamp.0, end));
                    }
                    running.fetch_sub(1, Ordering::SeqCst);
                });
            }
            scope.spawn(|| {
                while running.load(Ordering::SeqCst) > 0 {
                    let end = device.flush().expect("a disk that works");
                    *flushed.lock().expect("no thread panics") = end;
                    device.write_footers(end).expect("a disk that works");
                }
                is_done.store(true, Ordering::SeqCst);
            });
        });
        assert!(is_done.load(Ordering::SeqCst));
        let flushed = *flushed.lock().expect("no thread panics");
        let acknowledged = acknowledged.into_inner().expect("no thread panics");
        disk.crash(*kind);
        disk.restart();
        let (_, found) = open(&disk, 1, flushed);
        let expect = |end: &LogPosition| *kind == CrashKind::Process || *end <= flushed;
        let found: BTreeSet<u64> = found.into_iter().collect();
        assert!(acknowledged.iter().filter(|(_, end)| expect(end)).all(|(stamp, _)| found.contains(stamp)));
        assert!(*kind == CrashKind::Power || found.len() as u64 == THREADS * 150);
    }
}

#[test]
fn a_record_lost_behind_a_hole_does_not_come_back_when_the_hole_is_written_again() {
    let disk = SimDisk::new(1);
    let (device, _) = open(&disk, 0, LogPosition::default());
    let headers = [record(1, 0, 900), record(2, 1, 900), record(3, 2, 900)];
    let [first, second, third] = headers.each_ref().map(|header| {
        device.reserve(std::slice::from_ref(header)).map(|reserved| (header, reserved)).expect("a disk that works")
    });
    let (_, mut first) = (first.0, first.1.expect("there is room"));
    fill(&device, &headers[0], &mut first);
    device.publish(first).expect("a disk that works");
    // The first record began the segment alone.
    assert!(second.1.is_none() && third.1.is_none());
    let second = device.reserve(&headers[1..2]).expect("a disk that works").expect("there is room");
    let mut third = device.reserve(&headers[2..]).expect("a disk that works").expect("there is room");
    fill(&device, &headers[2], &mut third);
    drop((second, third));
    disk.crash(CrashKind::Process);
    disk.restart();
    let (device, found) = open(&disk, 1, LogPosition::default());
    assert_eq!(found, [1]);
    let bytes = payload(&headers[1]);
    let (crcs, _) = block_checksums(&bytes, BLOCK_BYTES as usize);
    device.append(&headers[1..2], &[&bytes], &[crcs]).expect("a disk that works");
    disk.crash(CrashKind::Process);
    disk.restart();
    assert_eq!(open(&disk, 2, LogPosition::default()).1, [1, 2]);
}

#[test]
fn a_failed_fill_fails_the_appends_behind_it_and_the_next_append_has_their_place() {
    let disk = SimDisk::new(1);
    let (device, _) = open(&disk, 0, LogPosition::default());
    let bytes = payload(&record(1, 0, 900));
    let (crcs, _) = block_checksums(&bytes, BLOCK_BYTES as usize);
    device.append(&[record(1, 0, 900)], &[&bytes], std::slice::from_ref(&crcs)).expect("a disk that works");
    let headers = [record(2, 1, 900), record(3, 2, 900)];
    let [mut second, mut third] = headers
        .each_ref()
        .map(|header| device.reserve(std::slice::from_ref(header)).expect("a disk that works").expect("there is room"));
    fill(&device, &headers[1], &mut third);
    disk.fail_writes(0, 1);
    fill(&device, &headers[0], &mut second);
    assert!(device.publish(second).is_err());
    let waits = device.reserve(&[record(4, 1, 900)]).expect("a disk that works");
    assert!(waits.is_none(), "a thread may still write to the place of the third");
    assert!(device.publish(third).is_err(), "its link leads through the second");
    assert_eq!(device.log().stats().records, 1);
    device.append(&[record(5, 1, 900)], &[&bytes], &[crcs]).expect("a disk that works");
    disk.crash(CrashKind::Process);
    disk.restart();
    assert_eq!(open(&disk, 1, LogPosition::default()).1, [1, 5]);
}
