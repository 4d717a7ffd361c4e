//! What the versions of creates cost in the store: `cargo run --release -p frieze-metadata --example store_cost`.
//!
//! Each entry of the log makes eight files, with the changes that a create and its close have. One thread adds entries;
//! another says that they are durable in the log, as the flush of a server does. Then directories are read as they were
//! at random instants. Arguments: the number of files; the number of files of a directory (500); with `versions` behind
//! these each create also makes a version of its directory's inode, in place of a stamp in a page.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use frieze_base::{InodeId, LogIndex, Rng, SessionId};
use frieze_hlc::Hlc;
use frieze_metadata::{LsmStore, NameVersions, VersionStore};
use frieze_namespace::{
    EntryStamp, EntryStampPage, KeyVersion, Namespace, NoReadSet, VersionHistory, entry_stamps_key, inode_key,
};
use frieze_wire::txn::{Caller, Format, Op, Transaction};

/// Files made by one entry of the log.
const FILES_PER_ENTRY: u64 = 8;
const FIRST_FILE: u64 = 100_000_000;
const FIRST_STAMP: u64 = 1 << 60;
const PAST_READS: u64 = 100_000;
/// Sessions that make files.
const SESSIONS: u64 = 32;
/// Between the stamps of two creates: 30 us.
const STAMP_STEP: u64 = 30 << 12;
const MEMORY_BYTES: u64 = 96 << 20;

fn change(key: Vec<u8>, stamp: u64, value: Option<Vec<u8>>) -> KeyVersion {
    KeyVersion { key, stamp: Hlc(stamp), value }
}

struct Load {
    files: u64,
    files_per_directory: u64,
    has_versions: bool,
    /// A version of a directory.
    directory: Vec<u8>,
}

impl Load {
    fn of_arguments() -> Load {
        let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse().ok());
        Load {
            files: numbers.next().unwrap_or(400_000),
            files_per_directory: numbers.next().unwrap_or(500),
            has_versions: std::env::args().any(|argument| argument == "versions"),
            directory: directory_value(),
        }
    }

    fn parent_of(&self, file: u64) -> u64 {
        1 + file / self.files_per_directory
    }

    fn stamp_of(&self, file: u64) -> u64 {
        FIRST_STAMP + file * STAMP_STEP
    }
}

/// The version of a directory that was just made.
fn directory_value() -> Vec<u8> {
    let (mut namespace, mut changes) = (Namespace::new(), Vec::new());
    let format = Format { chunk_bytes: 64 << 20, chain_count: 1, uid: 0, gid: 0, mode: 0o755 };
    let transaction = Transaction { caller: Caller::root(), op: Some(Op::Format(format)), ..Transaction::default() };
    namespace.apply(&transaction, Hlc(FIRST_STAMP), &mut changes, &NoReadSet);
    let root = changes.into_iter().find(|change| change.key == inode_key(InodeId::ROOT));
    root.and_then(|change| change.value).expect("the root was made")
}

/// Reads directories as they were at random instants.
fn read_past(versions: &NameVersions, load: &Load) {
    let mut rng = Rng::new(7);
    let (began, before_cpu) = (now(), cpu_us());
    for _ in 0..PAST_READS {
        let file = rng.below(load.files / FILES_PER_ENTRY * FILES_PER_ENTRY);
        let (key, at) = (inode_key(InodeId(load.parent_of(file))), load.stamp_of(file));
        let found = versions.newest(&key, Hlc(at)).expect("reads");
        assert!(found.is_some_and(|(stamp, value)| stamp == Hlc(at) && value.is_some()), "file {file}");
    }
    let per = |amount: u64| amount as f64 / PAST_READS as f64;
    println!(
        "a directory as it was: {:.2} us, {:.2} us of CPU",
        per(began.elapsed().as_micros() as u64),
        per(cpu_us() - before_cpu)
    );
}

/// The changes of a create and of its close, which writes the version with the grant again without it.
fn create(file: u64, load: &Load) -> Vec<KeyVersion> {
    let (stamp, parent, inode) = (load.stamp_of(file), load.parent_of(file), FIRST_FILE + file);
    let key = |letter: u8, id: u64| [&[letter][..], &id.to_be_bytes()].concat();
    let name = format!("file-{file:015}").into_bytes();
    // Sessions in turn, each named after the stamp at which it was opened.
    let made = EntryStamp { stamp: Hlc(stamp), session: SessionId((1 << 60) + file % SESSIONS), uid: 1000 };
    let page = EntryStampPage::new(made);
    let body = |seed: u64| (0..90).map(|at| (seed.wrapping_mul(at + 7) >> 3) as u8).collect::<Vec<u8>>();
    let directory = |stamp: u64| change(inode_key(InodeId(parent)), stamp, Some(load.directory.clone()));
    let is_first = file.is_multiple_of(load.files_per_directory);
    let made = is_first.then(|| directory(stamp - 1));
    let changes = [
        change([key(b'E', parent), name].concat(), stamp, Some(inode.to_be_bytes().to_vec())),
        change(key(b'I', inode), stamp, Some(body(file))),
        match load.has_versions {
            true => directory(stamp),
            false => change(entry_stamps_key(InodeId(parent)), stamp, Some(page.bytes().to_vec())),
        },
        change([key(b'R', 7), file.to_be_bytes().to_vec()].concat(), stamp, Some(body(file)[..40].to_vec())),
        change([key(b'R', 7), file.saturating_sub(32).to_be_bytes().to_vec()].concat(), stamp, None),
        change(key(b'I', inode), stamp, Some(body(file + 1))),
    ];
    made.into_iter().chain(changes).collect()
}

fn written_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("wchar: "));
    line.and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}

fn cpu_us() -> u64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    (ticks(11) + ticks(12)) * 10_000
}

fn rss_mib() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) / 256
}

#[expect(clippy::disallowed_methods, reason = "it measures")]
fn now() -> Instant {
    Instant::now()
}

fn start(directory: &Path) {
    let began = now();
    let store = LsmStore::open(directory, MEMORY_BYTES).expect("opens");
    let opened = began.elapsed();
    let (mut count, mut bytes) = (0_u64, 0_u64);
    let mut visit = |key: &[u8], value: &[u8]| {
        count += 1;
        bytes += (key.len() + value.len()) as u64;
        Ok(())
    };
    store.visit(&[0], &[0xff; 320], &mut visit).expect("reads");
    println!("a start: opened in {opened:?}, {count} items of {bytes} bytes read after {:?}", began.elapsed());
}

fn main() {
    let load = Load::of_arguments();
    let files = load.files;
    let directory = tempfile::tempdir_in("/tmp").expect("a directory");
    let path = directory.path().join("namespace");
    let store = LsmStore::open(&path, MEMORY_BYTES).expect("opens");
    let versions = NameVersions::open(Box::new(store)).expect("opens");
    let (added, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let (before_written, before_cpu) = (written_bytes(), cpu_us());
    let began = now();
    let entries = files / FILES_PER_ENTRY;
    let mut in_add = Duration::ZERO;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                std::thread::park_timeout(Duration::from_millis(20));
                versions.settle(LogIndex(added.load(Ordering::Acquire))).expect("settles");
            }
        });
        for entry in 1..=entries {
            let first = (entry - 1) * FILES_PER_ENTRY;
            let changes: Vec<KeyVersion> =
                (first..first + FILES_PER_ENTRY).flat_map(|file| create(file, &load)).collect();
            let adding = now();
            versions.check_room().expect("there is room");
            versions.add(LogIndex(entry), changes);
            in_add += adding.elapsed();
            added.store(entry, Ordering::Release);
        }
        is_over.store(true, Ordering::Release);
    });
    versions.settle(LogIndex(entries)).expect("settles");
    let added_after = began.elapsed();
    let per = |amount: u64| amount as f64 / files as f64;
    println!(
        "{files} creates of 6 changes: {:.2} us in add, {:.2} us of time with settling, {:.2} us of CPU of all",
        per(in_add.as_micros() as u64),
        per(added_after.as_micros() as u64),
        per(cpu_us() - before_cpu)
    );
    println!(
        "{:.0} bytes written to disk a create so far, RSS {} MiB",
        per(written_bytes() - before_written),
        rss_mib()
    );
    let left = entries - versions.applied().expect("says").0;
    println!("a start after a kill replays {} creates", left * FILES_PER_ENTRY);
    versions.persist().expect("persists");
    versions.rest();
    println!("{:.0} bytes written to disk a create with the end", per(written_bytes() - before_written));
    read_past(&versions, &load);
    drop(versions);
    start(&path);
}
