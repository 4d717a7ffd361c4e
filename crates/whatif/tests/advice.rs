//! Advice from loads whose best answer is known.

use std::path::Path;

use frieze_base::Rng;
use frieze_trace::{CallKind, EventFlags, Gateway};
use frieze_tracefile::{KindRules, Manifest, TraceNames, TraceReader, TraceRow, TraceWriter, TracedActor, TracedPath};
use frieze_whatif::{
    Advice, AdviceTopic, AdvisedServer, Confidence, DataCall, IoPurpose, LoadFacts, Movement, RecordedLoad, advise,
};

const HOUR_US: u64 = 3_600_000_000;
const MIB: u64 = 1 << 20;
/// ns of the trace's begin.
const BEGIN_NS: i64 = 1_795_867_200_000_000_000;

fn server(memory_mib: u64) -> AdvisedServer {
    AdvisedServer { memory_bytes: memory_mib * MIB, memory_bytes_max: 64 << 30, young_share: None, one_in: 1 }
}

fn call(at_us: u64, file: u32, offset: u64, movement: Movement) -> DataCall {
    let bytes = if movement == Movement::Write { 1 << 20 } else { 64 << 10 };
    DataCall { at_us, offset, bytes, file, movement, purpose: IoPurpose::Read, machine: 0 }
}

/// A file of `mib` is written, and then random pieces of `hot_mib` of it are read.
fn random_reads(mib: u64, hot_mib: u64, reads: u64, span_us: u64) -> RecordedLoad {
    let mut rng = Rng::new(1);
    let mut calls: Vec<DataCall> = (0..mib).map(|at| call(at, 0, at * MIB, Movement::Write)).collect();
    // What is hot lies at the begin, and is old when it is read.
    calls.extend((0..reads).map(|number| {
        let offset = rng.below(hot_mib * 16) << 16;
        call(1000 + number * (span_us - 1000) / reads, 0, offset, Movement::Read)
    }));
    RecordedLoad::new(calls, span_us, Vec::new()).expect("a load")
}

fn about(advice: &[Advice], topic: AdviceTopic) -> &Advice {
    advice.iter().find(|advice| advice.topic == topic).expect("each topic has a line")
}

#[test]
fn memory_is_advised_up_to_where_reads_find_their_bytes_and_no_further() {
    let load = random_reads(8192, 1024, 60_000, 2 * HOUR_US);
    let small = advise(&load, &LoadFacts::default(), &server(512));
    let memory = about(&small, AdviceTopic::Memory);
    assert!(memory.points > 20.0 && memory.confidence == Confidence::High, "{memory:?}");
    let command = memory.command.as_deref().unwrap();
    let advised: u64 = command.strip_prefix("frieze serve --memory ").unwrap().parse().unwrap();
    assert!((1024..=4096).contains(&advised), "{command}");
    let large = advise(&load, &LoadFacts::default(), &server(32 << 10));
    let memory = about(&large, AdviceTopic::Memory);
    assert!(memory.change.as_deref().unwrap_or_default().starts_with("less memory: "), "{memory:?}");
    // A machine that has no more is not advised to give more.
    let full = AdvisedServer { memory_bytes_max: 512 * MIB, ..server(512) };
    assert!(about(&advise(&load, &LoadFacts::default(), &full), AdviceTopic::Memory).points <= 0.0);
}

#[test]
fn the_share_of_young_records_follows_what_is_read() {
    // Only what is old is read: the young share is of no use.
    let old = random_reads(8192, 700, 60_000, 2 * HOUR_US);
    let advice = advise(&old, &LoadFacts::default(), &server(2048));
    let share = about(&advice, AdviceTopic::YoungShare);
    assert!(share.points > 3.0, "{share:?}");
    assert!(share.command.as_deref().unwrap().starts_with("young_bytes_max = "), "{share:?}");
    // A server that has that share has nothing to gain.
    let bytes: u64 = share.command.as_deref().unwrap().rsplit(' ').next().unwrap().parse().unwrap();
    let records: f64 = share.change.as_deref().unwrap().split(' ').next().unwrap().parse().unwrap();
    let set = AdvisedServer { young_share: Some(records / 100.0), ..server(2048) };
    let again = advise(&old, &LoadFacts::default(), &set);
    assert_eq!(about(&again, AdviceTopic::YoungShare).change, None, "{bytes}: {again:?}");
}

#[test]
fn a_short_trace_and_a_first_half_that_differs_make_advice_unsure() {
    // Nine thousand reads of sixteen thousand pieces: most of the first half meet a piece for the first time.
    let cold = advise(&random_reads(4096, 1024, 9_000, HOUR_US), &LoadFacts::default(), &server(1024));
    let memory = about(&cold, AdviceTopic::Memory);
    assert!(memory.confidence == Confidence::Low && memory.because.contains("its first half alone"), "{memory:?}");
    let few = advise(&random_reads(1024, 256, 500, 20_000_000), &LoadFacts::default(), &server(256));
    assert!(few.iter().all(|advice| advice.confidence == Confidence::Low), "{few:?}");
    assert!(few[0].because.starts_with("only 1524 calls in 20 seconds"), "{few:?}");
}

#[test]
fn a_load_without_reads_or_without_anything_has_nothing_to_gain() {
    let empty = RecordedLoad::new(Vec::new(), 0, Vec::new()).unwrap();
    let advice = advise(&empty, &LoadFacts::default(), &server(1024));
    assert_eq!(advice.iter().map(|advice| advice.topic).collect::<Vec<_>>(), AdviceTopic::ALL);
    assert!(advice.iter().all(|advice| advice.change.is_none() && advice.points == 0.0), "{advice:?}");
    // Memory below what a server needs is no panic.
    assert!(advise(&empty, &LoadFacts::default(), &server(1))[0].gain.contains("less memory than it needs"));
}

struct Traced {
    dir: tempfile::TempDir,
}

impl Traced {
    /// Writes rows as a trace in which path 10 is `/build/tmp`, and actor 1 the program `db`.
    fn new(rows: &[TraceRow]) -> Traced {
        let dir = tempfile::tempdir().expect("a directory");
        let mut trace = TraceWriter::create(dir.path(), Manifest::new("ring")).expect("an empty directory");
        rows.iter().for_each(|row| trace.push(*row).expect("space"));
        let path = |text: &[u8], parent| TracedPath { text: Some(text.to_vec()), parent, kind: None };
        let names = TraceNames {
            paths: [
                (9, path(b"/build", Some(1))),
                (10, path(b"/build/tmp", Some(9))),
                (11, path(b"/build/tmp/a.o", Some(10))),
                (12, path(b"/data/b.db", Some(13))),
                (13, path(b"/data", Some(1))),
            ]
            .into(),
            actors: [(1, TracedActor { uid: Some(0), program: Some("db".into()), host: None })].into(),
        };
        trace.finish(&names, &KindRules::built_in(), true).expect("space");
        Traced { dir }
    }

    fn facts(&self) -> LoadFacts {
        let reader = TraceReader::open(self.dir.path()).expect("a trace");
        LoadFacts::read(&reader).expect("a trace")
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }
}

fn row(call: CallKind, at_s: i64) -> TraceRow {
    TraceRow {
        duration_ns: Some(1000),
        inode: Some(5),
        ..TraceRow::new(BEGIN_NS + at_s * 1_000_000_000, call, Gateway::Mount)
    }
}

#[test]
fn programs_that_sync_often_or_write_little_pieces_are_named() {
    let rows: Vec<TraceRow> = (0..2000)
        .flat_map(|at| {
            let write =
                TraceRow { got: Some(100), actor: Some(1), duration_ns: Some(400_000), ..row(CallKind::Write, at) };
            let sync = TraceRow { actor: Some(1), duration_ns: Some(2_000_000), ..row(CallKind::Sync, at) };
            [write, sync]
        })
        .collect();
    let facts = Traced::new(&rows).facts();
    assert_eq!(facts.programs["db"].syncs.calls, 2000);
    let load = random_reads(64, 16, 11_000, HOUR_US);
    let advice = advise(&load, &facts, &server(1024));
    let syncs = about(&advice, AdviceTopic::Syncs);
    assert!(syncs.change.as_deref().unwrap().starts_with("db: several writes"), "{syncs:?}");
    assert!((83.0..84.0).contains(&syncs.points) && syncs.gain.contains("2000 syncs, 100 bytes each, 2.00 ms"));
    let writes = about(&advice, AdviceTopic::SmallWrites);
    assert!(writes.change.as_deref().unwrap().contains("db: a buffer of 64 KiB"), "{writes:?}");
    // Large pieces between syncs, and large writes: nothing to gain.
    let large: Vec<TraceRow> = rows.iter().map(|row| TraceRow { got: row.got.map(|_| 1 << 20), ..*row }).collect();
    let advice = advise(&load, &Traced::new(&large).facts(), &server(1024));
    assert_eq!(about(&advice, AdviceTopic::Syncs).change, None);
    assert_eq!(about(&advice, AdviceTopic::SmallWrites).change, None);
}

#[test]
fn the_history_of_short_lived_files_has_a_directory_and_a_command() {
    let file = |inode: u64, at_s: i64, life_s: i64, path: u64| {
        let of = |call, at| TraceRow { inode: Some(inode), path: Some(path), ..row(call, at) };
        let write = TraceRow { got: Some(1 << 20), path: None, ..of(CallKind::Write, at_s) };
        [of(CallKind::Create, at_s), write, of(CallKind::Unlink, at_s + life_s)]
    };
    let mut rows: Vec<TraceRow> = (0..90).flat_map(|number| file(number + 100, number as i64, 60, 11)).collect();
    // Of a file that lives longer than an hour nothing is said.
    rows.extend((0..10).flat_map(|number| file(number + 500, number as i64, 3601, 12)));
    rows.sort_by_key(|row| row.start_ns);
    let traced = Traced::new(&rows);
    let facts = traced.facts();
    assert_eq!((facts.written_bytes, facts.short_lived_bytes), (100 << 20, 90 << 20));
    assert_eq!(facts.main_directory(), (b"/build/tmp".to_vec(), 90 << 20));
    let load = random_reads(64, 16, 11_000, 2 * HOUR_US);
    let advice = advise(&load, &facts, &server(1024));
    let history = about(&advice, AdviceTopic::ShortLived);
    assert_eq!(history.command.as_deref(), Some("frieze forget --before 1d-ago /build/tmp"));
    assert!(history.gain.contains("90 % of what is written, 1080 MiB a day"), "{history:?}");
    assert!(traced.path().exists());
}

#[test]
fn images_are_for_reads_of_the_past() {
    let day = random_reads(64, 16, 11_000, 25 * HOUR_US);
    let advice = advise(&day, &LoadFacts::default(), &server(1024));
    assert_eq!(about(&advice, AdviceTopic::Images).command.as_deref(), Some("image_percent = 0"));
    let past = TraceRow { got: Some(1), flags: EventFlags::PAST, ..row(CallKind::Read, 0) };
    let advice = advise(&day, &Traced::new(&[past]).facts(), &server(1024));
    let images = about(&advice, AdviceTopic::Images);
    assert!(images.change.is_none() && images.gain.contains("1 of 1 reads are of the past"), "{images:?}");
}
