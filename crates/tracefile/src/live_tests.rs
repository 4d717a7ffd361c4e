//! Traces that are recorded while a program runs, and programs that are killed, come back, or find the disk full.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use frieze_trace::{CallKind, Event, Gateway, Recorder, RingSettings};
use tempfile::TempDir;

use super::*;
use crate::live::LiveWriter;

const HOUR_NS: i64 = 3_600_000_000_000;

fn recorder(dir: &TempDir) -> Recorder {
    let settings =
        RingSettings { bytes: 1 << 20, dir: dir.path().join("rings"), program: "mount".into(), is_live: true };
    Recorder::create(&settings).unwrap()
}

fn settings(dir: &TempDir) -> LiveSettings {
    LiveSettings { dir: dir.path().join("trace"), bytes_max: 1 << 30 }
}

/// Records an event whose inode is its number.
fn record(recorder: &Recorder, number: u64) {
    let path = recorder.path_hash(1, format!("/data/file-{number}.rs").as_bytes());
    let start_ns = number as i64 * HOUR_NS / 1000;
    recorder.record(&Event { inode: number + 1, path, start_ns, ..Event::new(CallKind::Stat, Gateway::Mount) });
}

fn inodes(dir: &Path) -> Vec<u64> {
    let rows = TraceReader::open(dir).unwrap().rows().unwrap();
    let mut inodes: Vec<u64> = rows.iter().filter_map(|row| row.inode).collect();
    inodes.sort_unstable();
    inodes
}

fn texts(dir: &Path) -> BTreeSet<String> {
    let names = TraceReader::open(dir).unwrap().names().unwrap();
    assert!(names.paths.values().all(|path| path.kind.is_some()));
    names.paths.values().filter_map(|path| String::from_utf8(path.text.clone()?).ok()).collect()
}

fn all(count: u64) -> Vec<u64> {
    (1..=count).collect()
}

fn parts(dir: &Path) -> Vec<PathBuf> {
    let hours = crate::reader::list(&dir.join("events")).unwrap();
    hours.iter().flat_map(|hour| crate::reader::list(hour).unwrap()).collect()
}

#[test]
fn what_a_program_records_is_in_its_trace_when_it_ends() {
    let dir = TempDir::new().unwrap();
    let (recorder, settings) = (recorder(&dir), settings(&dir));
    let live = LiveTrace::begin(&recorder, &settings, |error| panic!("{error}")).unwrap();
    (0..500).for_each(|number| record(&recorder, number));
    let manifest = live.finish().unwrap();
    assert_eq!(
        (manifest.events, manifest.recording.clone(), manifest.lost.clone()),
        (500, None, LostEvents::default())
    );
    assert_eq!(inodes(&settings.dir), all(500));
    assert!(texts(&settings.dir).contains("/data/file-77.rs"));
    assert_eq!(manifest.parts.len(), 1, "half an hour is one file");
    assert_eq!(recover_trace(&settings.dir).unwrap(), TraceState::Whole);
    assert!(!recorder.path().exists(), "its events are in the trace");
}

#[test]
fn a_killed_program_leaves_a_whole_trace_and_its_ring_the_rest() {
    for is_ring_left in [true, false] {
        let dir = TempDir::new().unwrap();
        let (recorder, settings) = (recorder(&dir), settings(&dir));
        let mut writer = LiveWriter::begin(&recorder, &settings).unwrap();
        (0..2500).for_each(|number| record(&recorder, number));
        writer.look().unwrap();
        writer.commit().unwrap();
        let written = inodes(&settings.dir);
        assert!(written.len() > 2400, "{}", written.len());
        (2500..3000).for_each(|number| record(&recorder, number));
        writer.look().unwrap();
        assert_eq!(recover_trace(&settings.dir).unwrap(), TraceState::InUse);
        drop(writer);
        // A file that was written, but not yet named.
        let part = &parts(&settings.dir)[0];
        fs::copy(part, part.with_file_name("part-9.parquet")).unwrap();
        fs::write(part.with_file_name("part-10.parquet.partial"), b"PAR1").unwrap();
        if !is_ring_left {
            fs::remove_file(recorder.path()).unwrap();
        }
        let manifest = match recover_trace(&settings.dir).unwrap() {
            TraceState::Completed(manifest) if is_ring_left => manifest,
            TraceState::EndLost(manifest) if !is_ring_left => manifest,
            state => panic!("{state:?}"),
        };
        assert_eq!(recorder.path().exists(), is_ring_left, "a copy of the trace may need it");
        match is_ring_left {
            true => {
                assert_eq!(inodes(&settings.dir), all(3000));
                assert!(
                    texts(&settings.dir).is_superset(&["/data/file-1.rs".into(), "/data/file-2999.rs".into()].into())
                );
                assert_eq!(manifest.notes, []);
            }
            false => {
                assert_eq!(inodes(&settings.dir), written);
                assert!(manifest.notes[0].what.contains("last minute is missing"), "{manifest:?}");
            }
        }
        assert_eq!(parts(&settings.dir).len(), manifest.parts.len(), "files without a name are removed");
        assert_eq!(recover_trace(&settings.dir).unwrap(), TraceState::Whole);
    }
}

#[test]
fn a_trace_goes_on_with_the_next_program_and_admits_one_at_a_time() {
    let dir = TempDir::new().unwrap();
    let settings = settings(&dir);
    for round in 0..3 {
        let recorder = recorder(&dir);
        let mut writer = LiveWriter::begin(&recorder, &settings).unwrap();
        let second = LiveWriter::begin(&recorder, &settings).unwrap_err();
        assert!(second.to_string().contains("another program records into it"), "{second}");
        (round * 100..round * 100 + 100).for_each(|number| record(&recorder, number));
        match round {
            // Killed: the next program reads its ring.
            1 => writer.look().unwrap(),
            _ => drop(writer.finish().unwrap()),
        }
    }
    assert_eq!(inodes(&settings.dir), all(300));
    let names = texts(&settings.dir);
    assert!((0..300).all(|number| names.contains(&format!("/data/file-{number}.rs"))));
    let manifest = Manifest::load(&settings.dir).unwrap();
    assert!(manifest.key.is_some() && manifest.programs.len() == 1, "{manifest:?}");
    // Hashes of another key have no common fingerprint.
    let other = TempDir::new().unwrap();
    let recorder = recorder(&other);
    LiveWriter::begin(&recorder, &settings).unwrap().finish().unwrap();
    assert_eq!(Manifest::load(&settings.dir).unwrap().key, None);
}

#[test]
fn a_directory_that_is_no_trace_of_a_program_is_refused() {
    let dir = TempDir::new().unwrap();
    let (recorder, settings) = (recorder(&dir), settings(&dir));
    let refused = || LiveWriter::begin(&recorder, &settings).unwrap_err().to_string();
    fs::create_dir(&settings.dir).unwrap();
    fs::write(settings.dir.join("notes.txt"), b"mine").unwrap();
    assert!(refused().contains("is not empty"), "{}", refused());
    fs::remove_dir_all(&settings.dir).unwrap();
    let trace = TraceWriter::create(&settings.dir, Manifest::new("strace")).unwrap();
    trace.finish(&TraceNames::default(), &KindRules::built_in(), true).unwrap();
    assert!(refused().contains("it is a trace from strace: record into another directory"), "{}", refused());
    fs::remove_dir_all(&settings.dir).unwrap();
    let writer = LiveWriter::begin(&recorder, &settings).unwrap();
    record(&recorder, 1);
    writer.finish().unwrap();
    let manifest = settings.dir.join("manifest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replace("events/hour=", "../../hour=")).unwrap();
    assert!(refused().contains("which is no part"), "{}", refused());
    fs::write(&manifest, text.replace("\"events\": 1", "\"events\": 2")).unwrap();
    // Of both counts one is changed back: that of the manifest stays.
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replacen("\"events\": 2,\n      \"bytes\"", "\"events\": 1,\n      \"bytes\"", 1))
        .unwrap();
    assert!(refused().contains("its files are not those of its events"), "{}", refused());
    fs::remove_file(&parts(&settings.dir)[0]).unwrap();
    let missing = TraceReader::open(&settings.dir).unwrap_err().to_string();
    assert!(missing.contains("part-0.parquet: it is missing, with 1 events"), "{missing}");
}

#[test]
fn a_trace_that_reached_its_size_loses_its_oldest_files() {
    let dir = TempDir::new().unwrap();
    let recorder = recorder(&dir);
    let settings = LiveSettings { bytes_max: 30_000, ..settings(&dir) };
    let mut writer = LiveWriter::begin(&recorder, &settings).unwrap();
    for hour in 0..40 {
        (hour * 1000..hour * 1000 + 1000).for_each(|number| record(&recorder, number));
        writer.look().unwrap();
        writer.commit().unwrap();
        let bytes: u64 = parts(&settings.dir).iter().map(|part| fs::metadata(part).unwrap().len()).sum();
        assert!(bytes <= 30_000, "{bytes}");
    }
    let manifest = writer.finish().unwrap();
    let left = inodes(&settings.dir);
    assert_eq!(left.last(), Some(&40_000), "the newest stay");
    assert!(left.len() > 1000 && manifest.events == left.len() as u64, "{}", left.len());
    let (first, removed) = (left[0], &manifest.notes[0]);
    assert_eq!(left, (first..=40_000).collect::<Vec<_>>());
    assert_eq!((removed.count, removed.what.contains("had reached its size")), (first - 1, true));
    assert_eq!(manifest.begin_ns, (first as i64 - 1) * HOUR_NS / 1000);
    assert_eq!(parts(&settings.dir).len(), manifest.parts.len());
}

#[test]
fn a_disk_that_refuses_for_a_while_costs_what_the_ring_writes_over() {
    let dir = TempDir::new().unwrap();
    let (recorder, settings) = (recorder(&dir), settings(&dir));
    let mut writer = LiveWriter::begin(&recorder, &settings).unwrap();
    (0..3000).for_each(|number| record(&recorder, number));
    // A file in the place of the second hour's directory.
    let blocked = settings.dir.join("events/hour=1970-01-01T01");
    fs::write(&blocked, b"").unwrap();
    let refused = writer.look().unwrap_err();
    (0..10).for_each(|_| writer.look().expect("it waits before it tries again"));
    assert!(refused.to_string().contains("hour=1970-01-01T01"), "{refused}");
    assert!(writer.commit().is_err());
    (3000..4000).for_each(|number| record(&recorder, number));
    fs::remove_file(&blocked).unwrap();
    writer.look().unwrap();
    writer.commit().unwrap();
    let manifest = writer.finish().unwrap();
    assert_eq!(inodes(&settings.dir), all(4000), "each event once, although the first hour was written before");
    assert_eq!(manifest.lost.overwritten, 0);
    // Blocked for longer than a lap of the ring: its 16,384 slots.
    let mut writer = LiveWriter::begin(&recorder, &settings).unwrap();
    let before = Manifest::load(&settings.dir).unwrap().events;
    (4000..60_000).for_each(|number| record(&recorder, number));
    writer.look().unwrap();
    let manifest = writer.finish().unwrap();
    assert!(manifest.lost.overwritten > 30_000 && manifest.lost.spans.len() == 1, "{:?}", manifest.lost);
    assert!(manifest.events > before + 5_000);
}

#[test]
fn what_is_not_of_the_trace_stays_where_it_is() {
    let dir = TempDir::new().unwrap();
    let (recorder, settings) = (recorder(&dir), settings(&dir));
    let mut writer = LiveWriter::begin(&recorder, &settings).unwrap();
    record(&recorder, 1);
    writer.look().unwrap();
    writer.commit().unwrap();
    drop(writer);
    let others = dir.path().join("others");
    let (events, hour) = (settings.dir.join("events"), settings.dir.join("events/hour=1971-01-01T00"));
    fs::create_dir_all(&others).unwrap();
    fs::create_dir_all(&events).unwrap();
    fs::create_dir(events.join("subdir")).unwrap();
    fs::create_dir_all(hour.join("part-7.parquet")).unwrap();
    let kept =
        [others.join("thesis.txt"), others.join("part-0.parquet"), events.join("README"), hour.join("mine.parquet")];
    kept.iter().for_each(|file| fs::write(file, b"mine").unwrap());
    std::os::unix::fs::symlink(&others, events.join("hour=1970-01-02T00")).unwrap();
    assert!(matches!(recover_trace(&settings.dir).unwrap(), TraceState::Completed(_)));
    assert!(kept.iter().all(|file| file.exists()));
}

#[test]
fn a_manifest_names_no_ring_that_is_no_file_and_no_number_beyond_reason() {
    let dir = TempDir::new().unwrap();
    let (recorder, settings) = (recorder(&dir), settings(&dir));
    drop(LiveWriter::begin(&recorder, &settings).unwrap());
    let path = settings.dir.join("manifest.json");
    let text = fs::read_to_string(&path).unwrap();
    let ring = recorder.path().to_str().unwrap().to_owned();
    for other in ["/dev/zero", "/tmp"] {
        fs::write(&path, text.replace(&ring, other)).unwrap();
        let refused = recover_trace(&settings.dir).unwrap_err().to_string();
        assert!(refused.contains("it is no file"), "{refused}");
    }
    fs::write(&path, text.replace("\"events\": 0", "\"events\": 18446744073709551615")).unwrap();
    let refused = recover_trace(&settings.dir).unwrap_err().to_string();
    assert!(refused.contains("no trace has so many"), "{refused}");
    fs::write(&path, text).unwrap();
    assert!(matches!(recover_trace(&settings.dir).unwrap(), TraceState::Completed(_)), "its ring is still there");
}
