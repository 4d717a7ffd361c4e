//! Index runs change no answer: not by being made, merged, fetched from, given up, damaged or lost.

use frieze_base::{ChunkId, InodeId, Rng, SessionId, crc32c};
use frieze_hlc::{Hlc, UserTime};
use frieze_multilog::{Error, LogSettings, MultiLog, RecordHeader, RecoveredItem, RunKey, RunMerge};
use proptest::prelude::*;

use crate::model::{LogModel, any_op, compare, run};
use crate::support::{DeviceFiles, LogDevice, recover, settings, with_payload, write_of};

/// Small, so that a history has many.
const SEGMENT_BYTES: u64 = 256 << 10;

fn fetch_all(device: &mut LogDevice) {
    (0..=4).for_each(|inode| device.fetch(InodeId(inode)));
}

/// One step of what goes on in the background, by chance.
fn background(device: &mut LogDevice, rng: &mut Rng) {
    match rng.below(5) {
        0 | 1 => drop(device.make_index_run(rng.between(1, 5) as usize, b"companion")),
        2 => {
            let keys: Vec<RunKey> = device.log.index_runs().map(|index_run| index_run.key()).collect();
            if keys.len() >= 2 {
                let from = rng.below(keys.len() as u64 - 1) as usize;
                let to = rng.between(from as u64 + 2, keys.len() as u64) as usize;
                let keys = &keys[from..to];
                match device.merge(keys, rng.chance(2)) {
                    Err(Error::DamagedIndexRun { run: index_run }) => device.mend(index_run),
                    other => other.expect("merged"),
                }
            }
        }
        3 => evict(device, rng),
        _ => device.fetch(InodeId(rng.below(5))),
    }
}

fn evict(device: &mut LogDevice, rng: &mut Rng) {
    let candidates = device.log.to_evict(0);
    let some: Vec<InodeId> = candidates.into_iter().filter(|_| !rng.chance(3)).collect();
    device.log.evict(&some);
}

/// The same answers from a log that never had an index run.
fn same(device: &mut LogDevice, plain: &LogDevice, newest: Hlc) {
    fetch_all(device);
    let (log, plain) = (&device.log, &plain.log);
    for inode in (0..=4).map(InodeId) {
        assert_eq!(
            log.versions(inode, Hlc::ZERO, Hlc::MAX, usize::MAX),
            plain.versions(inode, Hlc::ZERO, Hlc::MAX, usize::MAX)
        );
        assert_eq!(
            log.newest_user_time(inode, Hlc::ZERO, Hlc::MAX),
            plain.newest_user_time(inode, Hlc::ZERO, Hlc::MAX)
        );
        assert_eq!(log.written_bytes(inode), plain.written_bytes(inode));
        for index in 0..4 {
            let chunk = ChunkId { inode, index };
            assert_eq!(log.chunk_version(chunk), plain.chunk_version(chunk));
        }
        assert_eq!(
            log.has_records(inode, Hlc(newest.0 / 2), newest),
            plain.has_records(inode, Hlc(newest.0 / 2), newest)
        );
    }
    for (after, upto) in [(0, u64::MAX), (newest.0 / 3, newest.0 / 2), (newest.0 / 2, newest.0)] {
        let time_runs = |log: &MultiLog| {
            let mut files = log.files_with_records(Hlc(after), Hlc(upto)).0;
            files.retain(|inode| log.has_records(*inode, Hlc(after), Hlc(upto)));
            files
        };
        assert_eq!(time_runs(log), time_runs(plain));
    }
    assert_eq!(log.chain_state(write_of(1, 0, 1, 0, 1).chain), plain.chain_state(write_of(1, 0, 1, 0, 1).chain));
    assert_eq!(log.newest_of(SessionId(9)), plain.newest_of(SessionId(9)));
    assert_eq!(log.end(), plain.end());
    let (ours, theirs) = (log.stats(), plain.stats());
    assert_eq!((ours.records, ours.log_bytes, ours.segments), (theirs.records, theirs.log_bytes, theirs.segments));
}

/// The device as it comes back from these files, and from its segments alone.
fn restart(device: &LogDevice, damage: impl FnOnce(&mut DeviceFiles)) -> (LogDevice, LogDevice) {
    let mut files = device.files.clone();
    damage(&mut files);
    let (mut back, report, _) = recover(files.clone(), device.log.settings().clone());
    for (key, _) in report.free_index_runs {
        back.files.index_runs.remove(&key);
    }
    files.index_runs.clear();
    let (plain, by_scan, _) = recover(files, device.log.settings().clone());
    assert_eq!((report.end, &report.cut, report.records), (by_scan.end, &by_scan.cut, by_scan.records));
    (back, plain)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_history_reads_as_a_replay_whatever_is_shelved(
        ops in prop::collection::vec(any_op(), 20..160), seed in any::<u64>(),
    ) {
        let mut rng = Rng::new(seed);
        let mut device = LogDevice::new(settings(SEGMENT_BYTES));
        let mut model = LogModel::default();
        for some in ops.chunks(12) {
            run(some, &mut device, &mut model, &mut rng);
            device.seal(device.log.end());
            (0..rng.below(6)).for_each(|_| background(&mut device, &mut rng));
            if rng.chance(4) {
                fetch_all(&mut device);
                compare(&device, &model, &mut rng, 3);
                evict(&mut device, &mut rng);
            }
            if rng.chance(5) {
                let (back, plain) = restart(&device, |_| {});
                device = back;
                same(&mut device, &plain, model.records.last().expect("records").stamp);
                evict(&mut device, &mut rng);
            }
            if rng.chance(5) {
                // A bit rots in an index run while it is in use: fetching or merging finds it.
                if let Some(bytes) = device.files.index_runs.values_mut().nth(rng.below(3) as usize) {
                    let at = rng.below(bytes.len() as u64) as usize;
                    bytes[at] ^= 1 << rng.below(8);
                }
            }
        }
        fetch_all(&mut device);
        compare(&device, &model, &mut rng, 20);
    }

    #[test]
    fn recovery_with_shelves_equals_recovery_by_scan_whatever_happened_to_them(
        ops in prop::collection::vec(any_op(), 40..160), seed in any::<u64>(),
    ) {
        let mut rng = Rng::new(seed);
        let mut device = LogDevice::new(settings(SEGMENT_BYTES));
        let mut model = LogModel::default();
        for some in ops.chunks(10) {
            run(some, &mut device, &mut model, &mut rng);
            device.seal(device.log.end());
            (0..rng.below(4)).for_each(|_| background(&mut device, &mut rng));
        }
        let newest = model.records.last().expect("records").stamp;
        for _ in 0..6 {
            let kind = rng.below(6);
            let (mut back, plain) = restart(&device, |files| {
                let keys: Vec<RunKey> = files.index_runs.keys().copied().collect();
                let Some(&key) = keys.get(rng.below(keys.len().max(1) as u64) as usize) else { return };
                let bytes = files.index_runs.get_mut(&key).expect("just listed");
                let at = rng.below(bytes.len() as u64) as usize;
                match kind {
                    // Rot, a file cut short, one that was never written, one that is gone, one of another log.
                    0 => bytes[at] ^= 1 << rng.below(8),
                    1 => bytes.truncate(at),
                    2 => bytes[at..].fill(0),
                    3 => drop(files.index_runs.remove(&key)),
                    4 => {
                        let seven = LogSettings { seed: 7, ..settings(SEGMENT_BYTES) };
                        let mut other = LogDevice::new(seven);
                        run(&ops, &mut other, &mut LogModel::default(), &mut rng);
                        other.seal(other.log.end());
                        other.make_index_run(3, b"of another");
                        files.index_runs.append(&mut other.files.index_runs);
                    }
                    // A crash that tore the end of the log.
                    _ => {
                        let end = device.log.end();
                        let cut = rng.below(end.offset) as usize;
                        let open = files.of(end.segment);
                        let footer_at = open.len() - 128;
                        open[cut.max(64)..footer_at].fill(0);
                        open[footer_at..].fill(0);
                    }
                }
            });
            same(&mut back, &plain, newest);
            // It goes on from there.
            let mut again = back;
            again.write(&[with_payload(write_of(3, 0, newest.0 + 1000, 0, 100))]);
            again.fetch(InodeId(3));
            let found = again.log.versions(InodeId(3), newest, Hlc::MAX, 9);
            prop_assert_eq!(found.len(), 1);
        }
    }
}

/// `count` records of 700 bytes in turn to files 1..=4, all but the last few sealed.
fn device_with(count: u64) -> LogDevice {
    let mut device = LogDevice::new(settings(32 << 10));
    (1..=count).for_each(|stamp| {
        let mut header = write_of(1 + stamp % 4, 0, stamp, (stamp as u32 % 64) * 700, 700);
        header.user_time = Some(UserTime(stamp as i64));
        device.write(&[with_payload(header)]);
    });
    device.seal(device.log.end());
    device
}

#[test]
fn a_restart_does_not_read_records_in_index_runs() {
    let mut device = device_with(1000);
    let segments = device.log.segments_to_index().len();
    while device.make_index_run(4, b"kept") > 0 {}
    let mut shown = Vec::new();
    let mut indexed = None;
    let (log, report) = MultiLog::recover_upto(
        settings(32 << 10),
        &mut device.files.clone(),
        Hlc::MAX,
        &mut |recovered| match recovered {
            RecoveredItem::Record(header) => shown.push(header.stamp.0),
            RecoveredItem::Indexed { chains, newest, companion } => {
                assert!(shown.is_empty(), "before all records");
                indexed = Some((chains.to_vec(), newest, companion.to_vec()));
            }
        },
    )
    .expect("readable files");
    let (chains, newest, companion) = indexed.expect("there are index_runs");
    assert!(report.run_records > 900, "{segments} segments indexed, {} records", report.run_records);
    assert_eq!(companion, b"kept");
    assert_eq!((chains.len(), chains[0].n, chains[0].stamp), (1, newest.0, newest));
    let unsealed: Vec<u64> = (newest.0 + 1..=1000).collect();
    assert_eq!(shown, unsealed, "only what no index_run indexes");
    assert_eq!((report.records, log.stats().records), (1000, 1000));
    let held = log.stats();
    assert!(held.index_bytes - held.footer_bytes < 30_000, "{held:?}");
}

#[test]
fn a_file_that_is_away_is_never_answered_for() {
    let mut device = device_with(300);
    while device.make_index_run(4, b"") > 0 {}
    device.log.evict(&device.log.to_evict(0));
    assert!(device.log.is_evicted(InodeId(1)));
    let asked = std::panic::catch_unwind(|| device.log.written_bytes(InodeId(1)));
    assert!(asked.is_err(), "an answer from half of the records would be a wrong one");
    device.fetch(InodeId(1));
    assert_eq!(device.log.written_bytes(InodeId(1)), 75 * 700);
}

#[test]
fn index_runs_free_memory_and_dead_records_keep_theirs() {
    let mut device = device_with(4000);
    while device.make_index_run(8, b"") > 0 {}
    let dead_records = device.log.dead_records(InodeId(1), Hlc(100), &std::collections::BTreeSet::new());
    device.log.mark_dead(InodeId(1), Hlc(100), &dead_records, false);
    let before = device.log.stats().index_bytes;
    device.log.evict(&device.log.to_evict(0));
    let after = device.log.stats().index_bytes;
    assert!(after < before / 2, "{before} bytes, then {after}");
    assert!(!device.log.is_evicted(InodeId(1)) && device.log.is_evicted(InodeId(2)));
    let left = device.log.dead_records(InodeId(1), Hlc(100), &std::collections::BTreeSet::new());
    assert_eq!(left, [], "what is dead stays so");
    for inode in 2..=4 {
        device.fetch(InodeId(inode));
    }
    assert_eq!(device.log.stats().index_bytes.abs_diff(before) / 1024, 0, "as much as before");
}

#[test]
fn a_file_asked_for_again_survives_a_scan_of_others() {
    let mut device = LogDevice::new(settings(32 << 10));
    for stamp in 1..=4000u64 {
        device.write(&[with_payload(write_of(1 + stamp % 400, 0, stamp, 0, 200))]);
    }
    device.seal(device.log.end());
    while device.make_index_run(8, b"") > 0 {}
    device.log.evict(&device.log.to_evict(0));
    let floor = device.log.stats().index_bytes;
    device.fetch(InodeId(7));
    let one = device.log.stats().index_bytes - floor;
    device.fetch(InodeId(8));
    device.log.written_bytes(InodeId(7));
    for inode in 9..=300 {
        device.fetch(InodeId(inode));
        device.log.evict(&device.log.to_evict(floor + 20 * one));
    }
    assert!(!device.log.is_evicted(InodeId(7)), "it was asked for twice");
    assert!(device.log.is_evicted(InodeId(8)), "it was asked for once, long ago");
    assert!(device.log.stats().index_bytes <= floor + 20 * one);
}

#[test]
fn index_runs_of_like_size_become_one() {
    let mut device = device_with(8000);
    let mut most = 0;
    while device.make_index_run(1, b"") > 0 {
        while let Some(keys) = device.log.to_merge() {
            device.merge(&keys, false).expect("sound index_runs");
        }
        most = most.max(device.log.index_runs().count());
    }
    assert!(device.log.stats().run_records > 7900);
    assert!(most <= 16, "{most} index_runs of about 200 segments");
    let mut plain = device.restarted().0;
    plain.files.index_runs.clear();
    let (mut again, _, _) = device.restarted();
    same(&mut again, &plain.restarted().0, Hlc(8000));
}

#[test]
fn a_merge_of_a_damaged_shelf_names_it() {
    let mut device = device_with(1000);
    while device.make_index_run(2, b"") > 0 {}
    let keys: Vec<RunKey> = device.log.index_runs().map(|index_run| index_run.key()).collect();
    // In the blocks, which begin behind the head.
    device.files.index_runs.get_mut(&keys[1]).expect("a index_run")[200] ^= 4;
    let found = device.merge(&keys, true);
    assert_eq!(found, Err(Error::DamagedIndexRun { run: keys[1] }));
    device.files.index_runs.get_mut(&keys[2]).expect("a index_run")[10] ^= 4;
    let found = RunMerge::begin(&mut device.files, &keys, &[]).map(drop);
    assert_eq!(found, Err(Error::DamagedIndexRun { run: keys[2] }));
}

/// Records enough for two full segments.
pub(crate) fn device_to_be_shelved(records: u64) -> LogDevice {
    let mut device = LogDevice::new(settings(4096));
    for stamp in 1..=records {
        let header =
            RecordHeader { user_time: Some(UserTime(-5)), ..write_of(stamp % 3 + 1, 2, stamp * 1000, 700, 300) };
        device.write(&[with_payload(header)]);
    }
    device.seal(device.log.end());
    device
}

#[test]
fn the_bytes_of_an_index_run_are_those_of_format_version_1() {
    let device = device_to_be_shelved(24);
    let (_, bytes) = device.make_shelf(&device.log.segments_to_index(), b"kept beside").expect("sealed segments");
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, include_str!("index_run.hex").trim());
}

#[test]
fn a_shelf_of_another_format_version_is_refused_by_name_and_made_anew() {
    let mut device = device_to_be_shelved(24);
    assert!(device.make_index_run(100, b"") > 0);
    let key = device.log.index_runs().next().expect("one index_run").key();
    let index_run = device.files.index_runs.get_mut(&key).expect("its bytes");
    index_run[4] += 1;
    let crc = crc32c(&index_run[..124]);
    index_run[124..128].copy_from_slice(&crc.to_le_bytes());
    let error = RunMerge::begin(&mut device.files, &[key], &[]).map(drop).expect_err("another version");
    assert_eq!(error, Error::IndexRunVersion { run: key, expected: 1, found: 2 });
    assert!(error.to_string().contains("format version 2, this build of frieze reads 1"), "{error}");
    let (mut device, report, _) = device.restarted();
    assert_eq!(report.free_index_runs, [(key, Some("another build of frieze wrote it"))]);
    assert_eq!(report.run_records, 0);
    device.files.index_runs.clear();
    assert!(device.make_index_run(100, b"") > 0);
    assert!(device.restarted().1.free_index_runs.is_empty());
}
