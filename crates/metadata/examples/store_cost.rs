//! What the versions of creates cost in the store: `cargo run --release -p frieze-metadata --example store_cost`.
//!
//! Each entry of the log makes eight files, with the changes that a create and its close have. One thread adds entries;
//! another says that they are durable in the log, as the flush of a server does.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use frieze_base::LogIndex;
use frieze_hlc::Hlc;
use frieze_metadata::{LsmStore, NameVersions, VersionStore};
use frieze_namespace::KeyVersion;

/// Files made by one entry of the log.
const FILES_PER_ENTRY: u64 = 8;
/// Files of a directory.
const FILES_PER_DIRECTORY: u64 = 500;
const MEMORY_BYTES: u64 = 96 << 20;

fn change(key: Vec<u8>, stamp: u64, value: Option<Vec<u8>>) -> KeyVersion {
    KeyVersion { key, stamp: Hlc(stamp), value }
}

/// The changes of a create and of its close.
fn create(file: u64, stamp: u64) -> Vec<KeyVersion> {
    let (parent, inode) = (1 + file / FILES_PER_DIRECTORY, 1_000_000 + file);
    let key = |letter: u8, id: u64| [&[letter][..], &id.to_be_bytes()].concat();
    let name = format!("file-{file:015}").into_bytes();
    let body = |seed: u64| (0..90).map(|at| (seed.wrapping_mul(at + 7) >> 3) as u8).collect::<Vec<u8>>();
    vec![
        change([key(b'E', parent), name.clone()].concat(), stamp, Some(inode.to_be_bytes().to_vec())),
        change(key(b'I', inode), stamp, Some(body(file))),
        change(key(b'I', parent), stamp, Some(body(parent))),
        change([key(b'L', inode), parent.to_be_bytes().to_vec(), name].concat(), stamp, Some(vec![1])),
        change([key(b'R', 7), file.to_be_bytes().to_vec()].concat(), stamp, Some(body(file)[..40].to_vec())),
        change([key(b'R', 7), file.saturating_sub(32).to_be_bytes().to_vec()].concat(), stamp, None),
        change(key(b'I', inode), stamp + 1, Some(body(file + 1))),
    ]
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
    let files: u64 = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(400_000);
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
                (first..first + FILES_PER_ENTRY).flat_map(|file| create(file, (file + 1) << 8)).collect();
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
        "{files} creates of 7 changes: {:.2} us in add, {:.2} us of time with settling, {:.2} us of CPU of all",
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
    drop(versions);
    start(&path);
}
