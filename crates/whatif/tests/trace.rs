//! A trace directory becomes a load.

use std::collections::BTreeMap;
use std::path::Path;

use frieze_trace::{CallKind, Gateway};
use frieze_tracefile::{
    KindRules, Manifest, PathKind, Purpose, TraceNames, TraceRow, TraceWriter, TracedActor, TracedPath,
};
use frieze_whatif::{IoPurpose, Movement, RecordedLoad, TraceLoad, WhatIfError};

const SECOND: i64 = 1_000_000_000;

fn row(second: i64, call: CallKind, inode: u64) -> TraceRow {
    TraceRow { inode: Some(inode), ..TraceRow::new(second * SECOND, call, Gateway::Hdfs) }
}

fn data(second: i64, call: CallKind, inode: u64, offset: u64, bytes: u64) -> TraceRow {
    TraceRow { offset: Some(offset), got: Some(bytes), stream: Some(inode), ..row(second, call, inode) }
}

fn named(path: u64, row: TraceRow) -> TraceRow {
    TraceRow { path: Some(path), ..row }
}

fn path(kind: &str, parent: u64) -> TracedPath {
    let kind = PathKind { kind: kind.to_owned(), family: None, extension: None };
    TracedPath { text: None, parent: Some(parent), kind: Some(kind) }
}

fn write(dir: &Path, rows: &[TraceRow], paths: BTreeMap<u64, TracedPath>, actors: BTreeMap<u64, TracedActor>) {
    let mut writer = TraceWriter::create(dir, Manifest::new("test")).expect("a trace is written");
    rows.iter().for_each(|row| writer.push(*row).expect("a trace is written"));
    writer.finish(&TraceNames { paths, actors }, &KindRules::built_in(), true).expect("a trace is written");
}

fn load(rows: &[TraceRow], paths: &[(u64, TracedPath)]) -> Result<RecordedLoad, WhatIfError> {
    let dir = tempfile::tempdir().expect("a trace is written");
    let at = dir.path().join("trace");
    write(&at, rows, paths.iter().cloned().collect(), BTreeMap::new());
    TraceLoad::open(&at)?.read()
}

fn purposes(load: &RecordedLoad) -> Vec<(Movement, IoPurpose)> {
    load.calls().iter().map(|call| (call.movement, call.purpose)).collect()
}

#[test]
fn a_purpose_in_the_trace_counts() {
    let with = |purpose| TraceRow { purpose: Some(purpose), ..data(1, CallKind::Write, 1, 0, 10) };
    let rows = [with(Purpose::Log), with(Purpose::Compaction), with(Purpose::Flush), with(Purpose::Read)];
    let load = load(&rows, &[]).unwrap();
    let mut found: Vec<IoPurpose> = load.calls().iter().map(|call| call.purpose).collect();
    found.sort();
    assert_eq!(found, IoPurpose::ALL);
    assert!(!load.assumptions().iter().any(|words| words.contains("no purposes")), "{:?}", load.assumptions());
}

#[test]
fn compactions_are_known_by_what_moves_to_the_archive() {
    // Store 9 has the directory of temporary files 8; the archive of the store is 7.
    let paths = [
        (1, path("temporary", 8)),
        (2, path("hfile", 9)),
        (3, path("temporary", 8)),
        (4, path("hfile", 9)),
        (5, path("archive", 7)),
        (6, path("log", 6)),
    ];
    let rename =
        |second, inode, from, to| TraceRow { path2: Some(to), ..named(from, row(second, CallKind::Rename, inode)) };
    let rows = [
        data(0, CallKind::Append, 30, 0, 5),
        named(6, row(0, CallKind::Create, 30)),
        named(1, data(1, CallKind::Write, 10, 0, 100)),
        rename(2, 10, 1, 2),
        data(3, CallKind::Read, 10, 40, 10),
        // The compaction reads all of it, writes another, and moves the input away.
        TraceRow { stream: Some(77), ..data(2000, CallKind::Read, 10, 0, 100) },
        named(3, data(2001, CallKind::Write, 20, 0, 90)),
        rename(2002, 20, 3, 4),
        rename(2003, 10, 2, 5),
        named(6, data(2004, CallKind::Append, 30, 5, 5)),
    ];
    let load = load(&rows, &paths).unwrap();
    let expected = [
        (Movement::Write, IoPurpose::Flush),
        (Movement::Write, IoPurpose::Flush),
        (Movement::Read, IoPurpose::Read),
        (Movement::Read, IoPurpose::Compaction),
        (Movement::Write, IoPurpose::Compaction),
        (Movement::Write, IoPurpose::Log),
    ];
    assert_eq!(purposes(&load)[1..], expected[1..]);
    assert!(load.assumptions().iter().any(|words| words.starts_with("the trace has no purposes")));
}

#[test]
fn offsets_files_and_machines_come_from_where_they_are() {
    let unplaced = |second| TraceRow { offset: None, ..data(second, CallKind::Read, 1, 0, 10) };
    let rows = [
        unplaced(1),
        unplaced(2),
        data(3, CallKind::Write, 2, 0, 3 << 30),
        TraceRow { offset: None, ..data(4, CallKind::Append, 2, 0, 7) },
        TraceRow { result: 5, ..data(5, CallKind::Read, 3, 0, 10) },
        TraceRow { gateway: Gateway::Device, ..data(6, CallKind::Read, 4, 0, 10) },
        row(7, CallKind::Unlink, 2),
        row(8, CallKind::Unlink, 99),
    ];
    let load = load(&rows, &[]).unwrap();
    let places: Vec<(u32, u64, u32)> = load.calls().iter().map(|call| (call.file, call.offset, call.bytes)).collect();
    let gib = 1u64 << 30;
    assert_eq!(
        places,
        [
            (0, 0, 10),
            (0, 10, 10),
            (1, 0, 1 << 30),
            (1, gib, 1 << 30),
            (1, 2 * gib, 1 << 30),
            (1, 3 * gib, 7),
            (1, 0, 0)
        ]
    );
    assert_eq!(load.files()[1].removed_us, 6_000_000, "times begin with the first event");
    assert_eq!(load.machines(), 1);
}

#[test]
fn machines_are_those_of_the_actors() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("trace");
    let by = |actor, inode| TraceRow { actor: Some(actor), ..data(1, CallKind::Write, inode, 0, 10) };
    let host = |name: &str| TracedActor { host: Some(name.to_owned()), ..TracedActor::default() };
    let actors = [(1, host("a")), (2, host("b")), (3, host("a"))].into_iter().collect();
    write(&at, &[by(1, 1), by(2, 2), by(3, 3)], BTreeMap::new(), actors);
    let load = TraceLoad::open(&at).unwrap().read().unwrap();
    assert_eq!(load.machines(), 2);
    assert_eq!(load.calls().iter().map(|call| call.machine).collect::<Vec<_>>(), [0, 1, 0]);
}

#[test]
fn a_trace_that_is_none_or_empty_is_refused_in_words() {
    assert_eq!(load(&[row(1, CallKind::Stat, 1)], &[]).unwrap_err(), WhatIfError::EmptyTrace);
    assert_eq!(load(&[], &[]).unwrap_err(), WhatIfError::EmptyTrace);
    let dir = tempfile::tempdir().unwrap();
    let words = TraceLoad::open(dir.path()).unwrap_err().to_string();
    assert!(words.contains(&*dir.path().to_string_lossy()), "{words}");
    // A file of events that was cut.
    let at = dir.path().join("trace");
    write(&at, &[data(1, CallKind::Read, 1, 0, 10)], BTreeMap::new(), BTreeMap::new());
    let hour = std::fs::read_dir(at.join("events")).unwrap().next().unwrap().unwrap().path();
    let part = std::fs::read_dir(hour).unwrap().next().unwrap().unwrap().path();
    let bytes = std::fs::read(&part).unwrap();
    std::fs::write(&part, &bytes[..bytes.len() / 2]).unwrap();
    let words = TraceLoad::open(&at).unwrap().read().unwrap_err().to_string();
    assert!(words.contains("part-0.parquet"), "{words}");
}
