//! A server's memory under loads made by hand: what is young, what stays, what is read ahead, what is replayed.

mod common;

use std::path::Path;

use common::{load, read, write};
use frieze_base::Rng;
use frieze_tier::{AheadSteps, HitCounts};
use frieze_trace::{CallKind, DeviceFile, EventFlags, Gateway};
use frieze_tracefile::{KindRules, Manifest, TraceNames, TraceRow, TraceWriter};
use frieze_whatif::{
    DataCall, DeviceReplay, IoPurpose, Movement, ServerHits, ServerMemory, TraceLoad, simulate_server,
};

const MIB: u64 = 1 << 20;
/// Nothing is read ahead.
const NO_AHEAD: AheadSteps = AheadSteps { first_bytes: 0, bytes_max: 0 };

fn hits(calls: Vec<DataCall>, young_bytes: u64, old_bytes: u64) -> ServerHits {
    let memory = ServerMemory { young_bytes, old_bytes, small_share: None, ahead: None };
    simulate_server(&load(calls), &[memory])[0]
}

/// A file of `mib` MiB, written in parts of 1 MiB, one a second.
fn written(file: u32, mib: u64, from: f64) -> Vec<DataCall> {
    (0..mib).map(|part| write(from + part as f64, IoPurpose::Flush, file, part * MIB, MIB as u32)).collect()
}

#[test]
fn what_was_written_last_is_young_and_what_lies_before_it_is_missed_once() {
    let mut calls = written(0, 16, 0.0);
    for second in [100.0, 101.0] {
        calls.push(read(second, 0, 15 * MIB + 4096, 4096));
        calls.push(read(second, 0, 2 * MIB + 4096, 4096));
    }
    let found = hits(calls, 8 * MIB, 8 * MIB);
    // A block of 16 KiB is verified as a whole; the checksums before it make it five pages.
    assert_eq!(found.young_bytes, 2 * 5 * 4096, "{found:?}");
    assert_eq!(found.wanted, HitCounts { hit_bytes: 5 * 4096, missed_bytes: 5 * 4096 });
    assert_eq!((found.scanned, found.evicted), (HitCounts::default(), 0));
    assert_eq!(found.served_share(), Some(0.75));
}

#[test]
fn a_reader_from_front_to_back_waits_less_for_what_was_read_ahead_of_it() {
    let mut calls = written(0, 32, 0.0);
    calls.extend((0..256u32).map(|part| read(100.0 + f64::from(part), 0, u64::from(part) << 16, 1 << 16)));
    let memory = ServerMemory { young_bytes: 0, old_bytes: 64 * MIB, small_share: None, ahead: None };
    let off = ServerMemory { ahead: Some(NO_AHEAD), ..memory };
    let found = simulate_server(&load(calls), &[memory, off]);
    assert!(found[0].ahead.missed_bytes > 12 * MIB, "{:?}", found[0]);
    assert!(found[0].waited_share() < Some(0.05), "{:?}", found[0]);
    assert_eq!(found[1].ahead, HitCounts::default());
    // Blocks of 16 KiB are not aligned to pages: a tenth is asked for twice.
    assert!(found[1].waited_share() > Some(0.85), "{:?}", found[1]);
}

#[test]
fn overwritten_and_removed_bytes_are_found_no_more() {
    let mut calls = written(0, 1, 0.0);
    calls.extend(written(0, 1, 10.0));
    calls.push(read(20.0, 0, 0, 4096));
    let remove = DataCall { movement: Movement::Remove, bytes: 0, ..read(21.0, 0, 0, 0) };
    calls.extend([remove, read(22.0, 0, 0, 4096)]);
    let found = hits(calls, 8 * MIB, 8 * MIB);
    assert_eq!(
        found.asked_bytes(),
        5 * 4096,
        "one read finds the newer bytes, the other a file that is empty: {found:?}"
    );
}

#[test]
fn more_memory_for_older_records_finds_no_less_under_a_power_law() {
    let mut rng = Rng::new(3);
    let mut calls = written(0, 64, 0.0);
    for second in 0..20_000 {
        let bound = 1 + rng.below(64 << 8);
        let page = rng.below(bound);
        calls.push(read(100.0 + f64::from(second), 0, page << 12, 4096));
    }
    let memories: Vec<ServerMemory> = [4, 8, 16, 32, 80]
        .map(|mib| ServerMemory { ahead: Some(NO_AHEAD), ..ServerMemory::split(mib * MIB, 0.0) })
        .to_vec();
    let served: Vec<f64> =
        simulate_server(&load(calls), &memories).iter().filter_map(ServerHits::served_share).collect();
    assert!(served.len() == 5 && served.is_sorted(), "{served:?}");
    assert!(served[0] > 0.1 && served[4] > 0.7, "{served:?}");
}

fn device(ms: i64, call: CallKind, file: DeviceFile, offset: u64, asked: u64, got: u64) -> TraceRow {
    TraceRow {
        inode: Some(file.number()).filter(|number| *number != 0),
        offset: Some(offset),
        asked: Some(asked),
        got: Some(got),
        ..TraceRow::new(ms * 1_000_000, call, Gateway::Device)
    }
}

fn replayed(dir: &Path, rows: &[TraceRow]) -> Option<DeviceReplay> {
    let mut writer = TraceWriter::create(dir, Manifest::new("ring")).expect("a trace is written");
    rows.iter().for_each(|row| writer.push(*row).expect("a trace is written"));
    writer.finish(&TraceNames::default(), &KindRules::built_in(), true).expect("a trace is written");
    DeviceReplay::of(&TraceLoad::open(dir).expect("it is whole")).expect("it is readable")
}

#[test]
fn requests_of_a_device_are_decided_about_again_beside_what_the_server_counted() {
    let dir = tempfile::tempdir().expect("a trace is written");
    let (log, run) = (DeviceFile::Segment(0), DeviceFile::IndexRun { first: 0, last: 3 });
    let shares = TraceRow { inode: Some(64 * MIB), ..device(0, CallKind::DeviceShares, log, 0, 4 * MIB, 4 * MIB) };
    let fetch =
        |ms, file, offset, got, flags| TraceRow { flags, ..device(ms, CallKind::DeviceFetch, file, offset, 4096, got) };
    let none = EventFlags::default();
    let rows = [
        // Before the limits are known nothing can be decided.
        fetch(-1, log, 0, 4096, none),
        shares,
        device(1, CallKind::DeviceAppend, log, 64, 8 * MIB, 8 * MIB),
        fetch(2, log, 0, 0, EventFlags::FROM_CACHE),
        device(3, CallKind::DeviceFlush, log, 8 * MIB, 8 * MIB, 8 * MIB),
        // What was young before the flush is old now.
        fetch(4, log, 0, 4096, none),
        fetch(5, log, 0, 0, none),
        fetch(6, log, 8 * MIB - 4096, 0, EventFlags::FROM_CACHE),
        fetch(7, run, 0, 4096, EventFlags::SEQUENTIAL),
        fetch(8, run, 0, 0, EventFlags::SEQUENTIAL),
        device(9, CallKind::DeviceRemove, run, 0, 0, 0),
        // The server says that it found this; the simulation knows better.
        fetch(10, run, 0, 0, EventFlags::SEQUENTIAL),
        device(11, CallKind::DeviceDrop, log, 0, 65536, 65536),
    ];
    let found = replayed(&dir.path().join("trace"), &rows).expect("it has events of a device");
    assert_eq!((found.memory.young_bytes, found.memory.old_bytes, found.fetches), (4 * MIB, 4 * MIB, 7));
    assert_eq!((found.counted.young_bytes, found.simulated.young_bytes), (8192, 8192));
    let once = HitCounts { hit_bytes: 4096, missed_bytes: 4096 };
    assert_eq!((found.counted.wanted, found.simulated.wanted), (once, once));
    assert_eq!(found.counted.scanned, HitCounts { hit_bytes: 8192, missed_bytes: 4096 });
    assert_eq!(found.simulated.scanned, HitCounts { hit_bytes: 4096, missed_bytes: 8192 });

    assert_eq!(replayed(&dir.path().join("calls"), &[TraceRow::new(0, CallKind::Open, Gateway::Mount)]), None);
    assert_eq!(replayed(&dir.path().join("shares"), &[shares]), None, "no request, no answer");
}
