//! Traces written and read back, and bad ones.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use frieze_trace::{CallKind, EventFlags, Gateway, Program, Recorder, RingSettings, read_ring};
use proptest::prelude::*;

use super::*;
use crate::writer::{escaped, unescaped};

/// 2026-11-28T12:00:00Z.
const NOON_NS: i64 = 1_795_867_200_000_000_000;

fn row(start_ns: i64) -> TraceRow {
    TraceRow::new(start_ns, CallKind::Read, Gateway::Library)
}

fn full_row(start_ns: i64) -> TraceRow {
    TraceRow {
        duration_ns: Some(12_345),
        flags: EventFlags::SEQUENTIAL.with(EventFlags::COLLAPSED),
        inode: Some(u64::MAX),
        stream: Some(7),
        offset: Some(1 << 40),
        asked: Some(1 << 33),
        got: Some(5),
        result: 39,
        count: 64,
        path: Some(0xf000_0000_0000_0001),
        path2: Some(2),
        actor: Some(3),
        view_ns: Some(NOON_NS - 1),
        purpose: Some(Purpose::Compaction),
        ..row(start_ns)
    }
}

fn write(dir: &Path, rows: &[TraceRow]) -> Manifest {
    let mut trace = TraceWriter::create(dir, Manifest::new("test")).unwrap();
    rows.iter().for_each(|row| trace.push(*row).unwrap());
    trace.finish(&TraceNames::default(), &KindRules::built_in(), true).unwrap()
}

#[test]
fn what_is_written_is_read_by_start_over_hours() {
    let dir = tempfile::tempdir().unwrap();
    let hour = 3_600_000_000_000;
    let rows = [full_row(NOON_NS + hour), row(NOON_NS + 5), row(NOON_NS), full_row(NOON_NS - 1)];
    let manifest = write(dir.path(), &rows);
    assert_eq!((manifest.events, manifest.begin_ns, manifest.end_ns), (4, NOON_NS - 1, NOON_NS + hour + 12_345));
    assert_eq!(manifest.absent, [""; 0], "each column has a value in some row");
    let reader = TraceReader::open(dir.path()).unwrap();
    assert_eq!(reader.manifest(), &manifest);
    let mut sorted = rows;
    sorted.reverse();
    sorted[1..].sort_by_key(|row| row.start_ns);
    assert_eq!(reader.rows().unwrap(), sorted);
    let hours = fs::read_dir(dir.path().join("events")).unwrap();
    let mut hours: Vec<String> = hours.map(|hour| hour.unwrap().file_name().into_string().unwrap()).collect();
    hours.sort();
    assert_eq!(hours, ["hour=2026-11-28T11", "hour=2026-11-28T12", "hour=2026-11-28T13"]);
}

#[test]
fn an_empty_trace_is_one_and_says_what_it_lacks() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = write(dir.path(), &[]);
    assert_eq!((manifest.events, manifest.begin_ns, manifest.end_ns), (0, 0, 0));
    assert!(manifest.absent.contains(&"dur_ns".to_owned()) && !manifest.absent.contains(&"call".to_owned()));
    assert_eq!(TraceReader::open(dir.path()).unwrap().rows().unwrap(), []);
}

#[test]
fn words_are_in_files_of_their_own_for_their_owner_and_can_be_left_out() {
    let names = TraceNames {
        paths: [
            (1, TracedPath { text: Some(b"/".to_vec()), parent: None, kind: None }),
            (9, TracedPath { text: Some(b"/secret/\xff\\name.rs".to_vec()), parent: Some(1), kind: None }),
        ]
        .into(),
        actors: [(3, TracedActor { uid: Some(1000), program: Some("thief".into()), host: Some("castle".into()) })]
            .into(),
    };
    for keeps_names in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let mut trace = TraceWriter::create(dir.path(), Manifest::new("test")).unwrap();
        trace.push(full_row(NOON_NS)).unwrap();
        trace.finish(&names, &KindRules::built_in(), keeps_names).unwrap();
        let read = TraceReader::open(dir.path()).unwrap().names().unwrap();
        let kind = read.paths[&9].kind.clone().unwrap();
        assert_eq!(
            (kind.kind.as_str(), kind.extension.as_deref()),
            ("source", Some("rs")),
            "decided while it had a name"
        );
        assert_eq!(read.paths[&9].text.is_some(), keeps_names);
        let mut bytes = Vec::new();
        for entry in walk(dir.path()) {
            if entry.ends_with("names.parquet") || entry.ends_with("actors.parquet") {
                assert!(keeps_names);
                assert_eq!(fs::metadata(&entry).unwrap().permissions().mode() & 0o777, 0o600, "{entry:?}");
            }
            bytes.extend(fs::read(&entry).unwrap());
        }
        let found = |word: &[u8]| bytes.windows(word.len()).any(|window| window == word);
        assert_eq!([found(b"secret"), found(b"thief"), found(b"castle")], [keeps_names; 3]);
        if keeps_names {
            assert_eq!(read.paths[&9].text, names.paths[&9].text);
            assert_eq!(read.actors, names.actors);
        }
    }
}

fn walk(dir: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

#[test]
fn a_trace_gets_a_directory_of_its_own_and_is_whole_only_with_its_manifest() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("mine"), b"x").unwrap();
    let refused = TraceWriter::create(dir.path(), Manifest::new("test")).unwrap_err().to_string();
    assert!(refused.contains("is not empty"), "{refused}");
    let other = dir.path().join("cut");
    let mut trace = TraceWriter::create(&other, Manifest::new("test")).unwrap();
    trace.push(row(NOON_NS)).unwrap();
    drop(trace);
    let refused = TraceReader::open(&other).unwrap_err().to_string();
    assert!(refused.contains("no whole trace") && refused.contains("save or import it again"), "{refused}");
}

#[test]
fn bad_files_are_named_with_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &[full_row(NOON_NS), row(NOON_NS + 1)]);
    let part = dir.path().join("events/hour=2026-11-28T12/part-0.parquet");
    let whole = fs::read(&part).unwrap();
    let refusal = |bytes: &[u8]| {
        fs::write(&part, bytes).unwrap();
        TraceReader::open(dir.path()).unwrap().rows().unwrap_err().to_string()
    };
    for cut in [0, 3, 100, whole.len() / 2, whole.len() - 1] {
        let refused = refusal(&whole[..cut]);
        assert!(refused.contains("part-0.parquet") && refused.contains("cut or no Parquet"), "{cut}: {refused}");
    }
    fs::write(&part, &whole).unwrap();
    let manifest = dir.path().join("manifest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    for (from, to, words) in [
        ("\"version\": 1", "\"version\": 2", "newer than 1"),
        ("frieze-trace", "another", "its format is"),
        ("\"events\"", "\"evens\"", "events"),
    ] {
        fs::write(&manifest, text.replace(from, to)).unwrap();
        let refused = TraceReader::open(dir.path()).unwrap_err().to_string();
        assert!(refused.contains("manifest.json") && refused.contains(words), "{refused}");
    }
}

#[test]
fn a_ring_becomes_a_trace_with_paths_and_programs() {
    let dir = tempfile::tempdir().unwrap();
    let settings =
        RingSettings { bytes: 1 << 20, dir: dir.path().join("rings"), program: "test".into(), is_live: false };
    let recorder = Recorder::create(&settings).unwrap();
    let program: Program = recorder.program("sort -u");
    {
        let scope = recorder.scope(Gateway::Mount, CallKind::Rename);
        scope.path(&recorder, 1, b"/data/a.rs");
        scope.second_path(&recorder, 1, b"/data/b.rs");
        scope.actor(recorder.actor(&program, 1000));
    }
    {
        let scope = recorder.scope(Gateway::Library, CallKind::Read);
        scope.inode(42);
        scope.range(1 << 33, 6 << 32);
        scope.moved(5 << 32);
        scope.view(frieze_hlc::Hlc(7_353_217_843_200_000_000));
    }
    let ring = read_ring(recorder.path()).unwrap();
    let out = dir.path().join("trace");
    let mut trace = TraceWriter::create(&out, Manifest::new("ring")).unwrap();
    let mut names = TraceNames::default();
    let mut importer = RingImporter::default();
    importer.add(&mut trace, &ring, 0).unwrap();
    importer.name(&mut names, trace.manifest());
    let manifest = trace.finish(&names, &KindRules::built_in(), true).unwrap();
    assert_eq!(manifest.events, 2);
    assert_eq!(manifest.programs, [TracedProgram { program: "test".into(), process: std::process::id() }]);
    let reader = TraceReader::open(&out).unwrap();
    let (rows, names) = (reader.rows().unwrap(), reader.names().unwrap());
    let text = |hash: Option<u64>| names.paths[&hash.unwrap()].text.clone().unwrap();
    assert_eq!((text(rows[0].path), text(rows[0].path2)), (b"/data/a.rs".to_vec(), b"/data/b.rs".to_vec()));
    let actor = &names.actors[&rows[0].actor.unwrap()];
    assert_eq!((actor.uid, actor.program.as_deref()), (Some(1000), Some("sort -u")));
    assert_eq!((rows[1].offset, rows[1].asked, rows[1].got), (Some(1 << 33), Some(6 << 32), Some(5 << 32)));
    assert_eq!(rows[1].view_ns, Some(1_795_219_200_000_000_000));
    assert!(rows[1].flags.has(EventFlags::PAST));
}

#[test]
fn kinds_are_decided_by_the_first_rule_that_fits() {
    let rules = KindRules::built_in();
    let kind = |path: &str| {
        let kind = rules.kind_of(path.as_bytes());
        (kind.kind, kind.family.unwrap_or_default())
    };
    let own = |kind: &str, family: &str| (kind.to_owned(), family.to_owned());
    assert_eq!(kind("/hbase/data/default/messages/1588/Actions/ab12"), own("hfile", "Actions"));
    assert_eq!(kind("/hbase/data/default/messages/1588/.tmp/Actions/ab12"), own("temporary", "Actions"));
    assert_eq!(kind("/hbase/WALs/host,1,2/host.3"), own("log", ""));
    assert_eq!(kind("/hbase/archive/data/default/messages/1588/Actions/ab12"), own("archive", "Actions"));
    assert_eq!(kind("/src/frieze/target/debug/frieze"), own("build", ""));
    assert_eq!(kind("/src/frieze/targetGX0pxf/debug/frieze"), own("build", ""));
    assert_eq!(kind("/shop/targets/today/list"), own("other", ""));
    assert_eq!(kind("/src/frieze/crates/trace/src/lib.rs"), own("source", ""));
    assert_eq!(kind("/x/test.db-wal"), own("log", ""));
    assert_eq!(kind("/nothing/known"), own("other", ""));
    let mine = KindRules::parse("[[kind]]\nname = \"mine\"\npaths = [\"/people/*/{family}/**\"]\n")
        .unwrap()
        .before(rules.clone());
    assert_eq!(mine.kind_of(b"/people/me/photos/a/b.rs").family.as_deref(), Some("photos"));
    for (text, words) in [
        ("[[kind]]\nname = \"x\"\npaths = []\n", "rule 1"),
        ("[[kind]]\nname = \"x\"\npaths = [\"/\"]\n", "is no path"),
        ("[[kind]]\nname = \"x\"\npath = \"/a\"\n", "paths"),
        ("nonsense", "rule 0"),
    ] {
        let refused = KindRules::parse(text).unwrap_err().to_string();
        assert!(refused.contains(words), "{refused}");
    }
}

proptest! {
    #[test]
    fn any_path_survives_its_text(path in proptest::collection::vec(any::<u8>(), 0..40)) {
        prop_assert_eq!(unescaped(&escaped(&path)), path);
    }

    #[test]
    fn any_numbers_survive(start in any::<i64>(), inode in any::<u64>(), offset in any::<u64>(), count in 1..u32::MAX) {
        // A directory's name has four digits for a year.
        let start = start % 4_000_000_000_000_000_000;
        let dir = tempfile::tempdir().unwrap();
        let row = TraceRow { inode: Some(inode), offset: Some(offset), count: count % 0x7fff_ffff + 1, ..row(start) };
        write(dir.path(), &[row]);
        prop_assert_eq!(TraceReader::open(dir.path()).unwrap().rows().unwrap(), vec![row]);
    }
}
