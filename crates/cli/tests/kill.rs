//! `kill -9` of the server at random moments, under load: whatever was acknowledged is there, once, in order and whole.
//!
//! The loads never stop for a kill: their clients ride out the restart and send again what was not answered. So every
//! call succeeds, and at the end the file system must hold exactly what the calls said. Each test prints its seed;
//! `FRIEZE_SEED` sets another.

#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

#[expect(dead_code, reason = "shared with tests that need more of it")]
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;

use frieze_base::Rng;
use frieze_client::{Client, CreateMode, Durability, Hlc, InodeId, OpenFlags, Reason, RenameMode, Target, VersionKind};
use nix::sys::signal::Signal;

use support::served::Served;
use support::{Mount, client, eventually, is_installed, scrambled};

/// Small chunks and segments, so that groups of records and changes of segment are frequent.
const SETTINGS: &str = "chunk_bytes = 65536\nsegment_bytes = 8388608\n";
const KILLS: u64 = 8;

fn seed() -> u64 {
    let seed = std::env::var("FRIEZE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_261_121);
    eprintln!("FRIEZE_SEED={seed}");
    seed
}

/// Runs loads while the server is killed again and again.
struct Loads<'scope, 'env> {
    scope: &'scope std::thread::Scope<'scope, 'env>,
    state: &'env State,
}

/// What the loads and the killer know of each other.
#[derive(Default)]
struct State {
    over: AtomicBool,
    failed: AtomicBool,
    /// Calls answered so far, for each load.
    progress: [AtomicU64; LOADS_MAX],
    loads: AtomicU64,
}

const LOADS_MAX: usize = 16;

/// What a load tells of itself.
struct Load<'a> {
    state: &'a State,
    index: usize,
}

impl Drop for Load<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.state.failed.store(true, Ordering::Relaxed);
        }
    }
}

impl Load<'_> {
    /// Notes that a call was answered. False when it is time to end.
    fn goes_on(&self) -> bool {
        self.state.progress[self.index].fetch_add(1, Ordering::Relaxed);
        !self.state.over.load(Ordering::Relaxed)
    }
}

impl<'scope, 'env> Loads<'scope, 'env> {
    fn start<T: Send + 'scope>(
        &self,
        run: impl FnOnce(Load<'env>) -> T + Send + 'scope,
    ) -> ScopedJoinHandle<'scope, T> {
        let index = self.state.loads.fetch_add(1, Ordering::Relaxed) as usize;
        let load = Load { state: self.state, index };
        self.scope.spawn(move || run(load))
    }
}

impl State {
    fn progress(&self) -> Vec<u64> {
        let loads = self.loads.load(Ordering::Relaxed) as usize;
        self.progress[..loads].iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    /// Waits until every load has got an answer, and all together have got `count`.
    fn await_answers(&self, count: u64) {
        let before = self.progress();
        eventually("every load goes on", || {
            assert!(!self.failed.load(Ordering::Relaxed), "a load has failed: its own words stand above");
            let now = self.progress();
            let each = now.iter().zip(&before).all(|(now, before)| now > before);
            (each && now.iter().sum::<u64>() >= before.iter().sum::<u64>() + count).then_some(())
        });
    }

    /// Kills the server at random moments, sometimes while it recovers; ends the loads after the last recovery.
    fn kill_again_and_again(&self, server: &mut Served, rng: &mut Rng, kills: u64, answers_max: u64) {
        for round in 0..kills {
            self.await_answers(rng.below(answers_max));
            assert_eq!(server.end(Signal::SIGKILL), None, "it ran until it was killed");
            if round % 3 == 2 {
                // Somewhere between the first instruction and the first answer.
                server.spawn_again();
                std::thread::park_timeout(std::time::Duration::from_micros(rng.below(400_000)));
                assert_eq!(server.end(Signal::SIGKILL), None, "it ran until it was killed");
            }
            server.start_again();
        }
        self.await_answers(1);
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Ends the loads if the killer fails, so that the test ends too.
struct EndOfLoads<'a>(&'a State);

impl Drop for EndOfLoads<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
    }
}

/// A write that was acknowledged, or a truncate (without a stamp).
struct Change {
    stamp: Option<Hlc>,
    offset: u64,
    /// Seed and length of the bytes; no length for a truncate.
    bytes: (u64, usize),
}

/// Writes and truncates at random, one after the other.
fn overwrite(load: &Load<'_>, client: &Client, path: &str, durability: Durability, mut rng: Rng) -> Vec<Change> {
    let fs = client.fs().with_durability(durability);
    let file = fs.create(&Target::path(path), 0o644, CreateMode::Exclusive).unwrap();
    let mut changes = Vec::new();
    loop {
        let offset = rng.below(500_000);
        if rng.chance(20) {
            file.set_len(offset).unwrap();
            changes.push(Change { stamp: None, offset, bytes: (0, 0) });
        } else {
            // Often over the boundary of a chunk.
            let bytes = (rng.next(), rng.between(1, 40_000) as usize);
            let stamp = file.write_at(offset, &scrambled(bytes.0, bytes.1)).unwrap();
            changes.push(Change { stamp: Some(stamp), offset, bytes });
        }
        if rng.chance(30) {
            file.sync().unwrap();
        }
        if !load.goes_on() {
            file.close().unwrap();
            return changes;
        }
    }
}

fn check_overwritten(client: &Client, path: &str, changes: &[Change], rng: &mut Rng) {
    // Every write that was acknowledged is a version of the file, once, and there is no other.
    let log = whole_log(client, path);
    let expected: Vec<(u64, u64, u64)> =
        changes.iter().filter_map(|change| Some((change.stamp?.0, change.offset, change.bytes.1 as u64))).collect();
    assert_eq!(log, expected, "{path}: the writes in the log are not those that were acknowledged");
    // Its content now, and at some of the stamps on the way.
    let mut content: Vec<u8> = Vec::new();
    for change in changes {
        let offset = change.offset as usize;
        match change.stamp {
            None => content.resize(offset, 0),
            Some(stamp) => {
                let bytes = scrambled(change.bytes.0, change.bytes.1);
                content.resize(content.len().max(offset + bytes.len()), 0);
                content[offset..offset + bytes.len()].copy_from_slice(&bytes);
                if rng.chance(1 + changes.len() as u64 / 20) {
                    assert!(read(client, path, Some(stamp)) == content, "{path} at {stamp}");
                }
            }
        }
    }
    assert!(read(client, path, None) == content, "{path} now");
}

/// Every write to a file: stamp, offset and length, the parts of one write put together.
fn whole_log(client: &Client, path: &str) -> Vec<(u64, u64, u64)> {
    let mut writes: Vec<(u64, u64, u64)> = Vec::new();
    let mut after = Hlc::ZERO;
    loop {
        let page = client.fs().log(&Target::path(path), after, 0).unwrap();
        for version in &page.versions {
            after = Hlc(version.stamp);
            if version.kind != VersionKind::Write as i32 {
                continue;
            }
            match writes.last_mut() {
                Some((stamp, offset, len)) if *stamp == version.stamp => {
                    assert_eq!(*offset + *len, version.offset, "the parts of a write follow each other");
                    *len += version.len;
                }
                _ => writes.push((version.stamp, version.offset, version.len)),
            }
        }
        if !page.more {
            return writes;
        }
    }
}

fn read(client: &Client, path: &str, at: Option<Hlc>) -> Vec<u8> {
    let fs = at.map_or(client.fs(), |at| client.fs().at(at));
    let file = fs.open(&Target::path(path), OpenFlags::READ).unwrap();
    let mut bytes = vec![0; file.attr().size as usize];
    let len = file.read_at(0, &mut bytes).unwrap();
    bytes.truncate(len);
    bytes
}

const RECORD_HEAD: usize = 12;

/// Appends records of any length to a file that others append to as well: who, which, how long, and bytes.
/// Returns the offset of each.
fn append(load: &Load<'_>, client: &Client, path: &str, mut rng: Rng) -> Vec<u64> {
    let file = client.fs().create(&Target::path(path), 0o644, CreateMode::OpenExisting).unwrap();
    let mut offsets = Vec::new();
    loop {
        let number = offsets.len() as u32;
        let len = rng.between(RECORD_HEAD as u64, 9000) as usize;
        let mut record = scrambled(u64::from(number) << 8 | load.index as u64, len);
        record[..4].copy_from_slice(&(load.index as u32).to_le_bytes());
        record[4..8].copy_from_slice(&number.to_le_bytes());
        record[8..12].copy_from_slice(&(len as u32).to_le_bytes());
        offsets.push(file.append(&record).unwrap().offset);
        if rng.chance(30) {
            file.sync().unwrap();
        }
        if !load.goes_on() {
            file.close().unwrap();
            return offsets;
        }
    }
}

/// The file is records one after the other, those of each appender in order, each once, where its append said.
fn check_appended(content: &[u8], appended: &BTreeMap<u32, Vec<u64>>) {
    let mut found: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    let mut at = 0;
    while at < content.len() {
        let word = |from: usize| u32::from_le_bytes(content[at + from..at + from + 4].try_into().unwrap());
        let (who, number, len) = (word(0), word(4), word(8) as usize);
        let offsets = found.entry(who).or_default();
        assert_eq!(number as usize, offsets.len(), "at {at}: a record of appender {who} is out of order");
        offsets.push(at as u64);
        let expected = scrambled(u64::from(number) << 8 | u64::from(who), len);
        assert!(content[at + RECORD_HEAD..at + len] == expected[RECORD_HEAD..], "at {at}: a torn record");
        at += len;
    }
    assert_eq!(&found, appended, "records are not where their appends said");
}

/// The content of a version of a file that is replaced as a whole: its number, then bytes that follow from it.
fn version(number: u64) -> Vec<u8> {
    let mut bytes = scrambled(number, 8 + (number * 7919 % 150_000) as usize);
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// The number of the version that `bytes` are, all of them.
fn number_of(bytes: &[u8]) -> u64 {
    let number = u64::from_le_bytes(bytes[..8].try_into().expect("a version begins with its number"));
    assert!(bytes == version(number), "version {number} is not whole: {} bytes", bytes.len());
    number
}

/// Writes beside and renames into place, again and again. Returns the stamp of each rename.
fn replace(load: &Load<'_>, client: &Client, path: &str, newest: &AtomicU64) -> Vec<Hlc> {
    let fs = client.fs();
    let (target, beside) = (Target::path(path), Target::path(format!("{path}.new")));
    let mut stamps = Vec::new();
    loop {
        let number = stamps.len() as u64;
        let file = fs.create(&beside, 0o644, CreateMode::Exclusive).unwrap();
        file.write_at(0, &version(number)).unwrap();
        file.close().unwrap();
        let done = fs.rename(&beside, &target, RenameMode::Replace).unwrap();
        stamps.push(Hlc(done.stamp));
        newest.store(number, Ordering::SeqCst);
        if !load.goes_on() {
            return stamps;
        }
    }
}

/// Reads what is replaced meanwhile: always a whole version, and never one older than was there when the read began.
fn watch(load: &Load<'_>, client: &Client, path: &str, newest: &AtomicU64) {
    loop {
        let at_least = newest.load(Ordering::SeqCst);
        match client.fs().open(&Target::path(path), OpenFlags::READ) {
            // Before the first rename.
            Err(error) if error.reason() == Reason::NotFound => assert_eq!(at_least, 0, "{error}"),
            Err(error) => panic!("{error}"),
            Ok(file) => {
                let mut bytes = vec![0; file.attr().size as usize];
                assert_eq!(file.read_at(0, &mut bytes).unwrap(), bytes.len());
                let number = number_of(&bytes);
                assert!(number >= at_least, "version {number} after version {at_least}");
            }
        }
        if !load.goes_on() {
            return;
        }
    }
}

/// Makes, links, renames and removes names. A request that ran twice would answer that a name is there or is gone.
/// Returns the names that must be left.
fn juggle(load: &Load<'_>, client: &Client, directory: &str, mut rng: Rng) -> Vec<String> {
    let fs = client.fs();
    fs.mkdir(&Target::path(directory), 0o755).unwrap();
    // Links themselves are linked and renamed, not what they point to.
    let path = |name: &str| Target::under(InodeId::ROOT, format!("{directory}/{name}"));
    let mut names: Vec<String> = Vec::new();
    let mut made = 0;
    loop {
        let index = rng.below(names.len().max(1) as u64) as usize;
        let new = format!("n{made}");
        made += 1;
        match rng.below(5) {
            _ if names.len() < 3 => {
                fs.symlink(b"anywhere", &path(&new)).unwrap();
                names.push(new);
            }
            0 => {
                fs.create(&path(&new), 0o600, CreateMode::Exclusive).unwrap().close().unwrap();
                names.push(new);
            }
            1 => {
                fs.link(&path(&names[index]), &path(&new)).unwrap();
                names.push(new);
            }
            2 => {
                fs.rename(&path(&names[index]), &path(&new), RenameMode::NoReplace).unwrap();
                names[index] = new;
            }
            3 => {
                fs.mkdir(&path(&new), 0o700).unwrap();
                fs.rmdir(&path(&new)).unwrap();
            }
            _ => {
                fs.unlink(&path(&names[index])).unwrap();
                names.swap_remove(index);
            }
        }
        if !load.goes_on() {
            names.sort();
            return names;
        }
    }
}

#[test]
fn what_clients_were_told_is_so_after_any_number_of_kills() {
    let mut rng = Rng::new(seed());
    let mut server = Served::with(SETTINGS, "127.0.0.1:0");
    let address = server.address.clone();
    let state = State::default();
    let newest = AtomicU64::new(0);
    let connect = || client(&address);

    std::thread::scope(|scope| {
        let loads = Loads { scope, state: &state };
        let _end = EndOfLoads(&state);
        let writers: Vec<_> = [("/async", Durability::Async), ("/sync", Durability::Sync)]
            .into_iter()
            .map(|(path, durability)| {
                let (client, rng) = (connect(), rng.split());
                (path, loads.start(move |load| overwrite(&load, &client, path, durability, rng)))
            })
            .collect();
        let appenders: Vec<_> = (0..3)
            .map(|_| {
                let (client, rng) = (connect(), rng.split());
                loads.start(move |load| (load.index as u32, append(&load, &client, "/appended", rng)))
            })
            .collect();
        let (replacing, watching, juggling) = (connect(), connect(), connect());
        let newest = &newest;
        let replacer = loads.start(move |load| replace(&load, &replacing, "/replaced", newest));
        let watcher = loads.start(move |load| watch(&load, &watching, "/replaced", newest));
        let names_rng = rng.split();
        let juggler = loads.start(move |load| juggle(&load, &juggling, "/names", names_rng));

        state.kill_again_and_again(&mut server, &mut rng, KILLS, 400);
        let overwritten: Vec<_> = writers.into_iter().map(|(path, load)| (path, load.join().unwrap())).collect();
        let appended: BTreeMap<u32, Vec<u64>> = appenders.into_iter().map(|load| load.join().unwrap()).collect();
        let replaced = replacer.join().unwrap();
        watcher.join().unwrap();
        let names = juggler.join().unwrap();

        // By a client that knows nothing, of a server that was killed once more.
        let answers = state.progress();
        eprintln!("answers: {answers:?}");
        assert_eq!(server.restart(Signal::SIGKILL), None);
        let client = connect();
        for (path, changes) in &overwritten {
            check_overwritten(&client, path, changes, &mut rng);
        }
        check_appended(&read(&client, "/appended", None), &appended);
        assert_eq!(number_of(&read(&client, "/replaced", None)), replaced.len() as u64 - 1);
        for number in 0..replaced.len() as u64 {
            if rng.chance(1 + replaced.len() as u64 / 20) {
                let at = replaced[number as usize];
                assert_eq!(number_of(&read(&client, "/replaced", Some(at))), number, "at {at}");
            }
        }
        let found = client.fs().entries(&Target::path("/names")).unwrap();
        let found: Vec<String> = found.into_iter().map(|entry| String::from_utf8(entry.name).unwrap()).collect();
        let mut sorted = found.clone();
        sorted.sort();
        assert_eq!(sorted, names);
        let status = client.status().unwrap();
        assert_eq!(status.health, "healthy");
        assert!(status.gaps.is_empty(), "the machine has not gone down: nothing was lost: {:?}", status.gaps);
    });
}

/// Runs a program that has to succeed.
#[track_caller]
fn run(directory: &Path, program: &str, args: &[&str]) -> Output {
    let output = Command::new(program).args(args).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {output:?}");
    output
}

/// Commits rows to a database, each in a process of its own. Returns how many were committed.
fn sqlite(load: &Load<'_>, directory: &Path, mode: &str) -> u64 {
    fs::create_dir(directory).unwrap();
    let journal = format!("pragma journal_mode={mode}; create table t(n integer primary key, text);");
    run(directory, "sqlite3", &["db", &journal]);
    let mut rows = 0;
    loop {
        // Large enough to spread over pages; the index makes more of them change together.
        let insert = format!("insert into t values({rows}, hex(zeroblob({})));", 10 + rows * 37 % 3000);
        run(directory, "sqlite3", &["-cmd", ".timeout 60000", "db", &insert]);
        rows += 1;
        if !load.goes_on() {
            return rows;
        }
    }
}

fn check_sqlite(directory: &Path, rows: u64) {
    let ask = |sql: &str| String::from_utf8(run(directory, "sqlite3", &["db", sql]).stdout).unwrap();
    assert_eq!(ask("pragma integrity_check"), "ok\n");
    assert_eq!(ask("select count(*), min(n), max(n) from t"), format!("{rows}|0|{}\n", rows - 1));
}

/// Commits to a repository. Returns how often.
fn git(load: &Load<'_>, directory: &Path) -> usize {
    fs::create_dir(directory).unwrap();
    let settings = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "core.fsync=all", "-c", "gc.auto=0"];
    let git = |args: &[&str]| run(directory, "git", &[&settings[..], args].concat());
    git(&["init", "-q", "-b", "main"]);
    let mut commits = 0;
    loop {
        fs::write(directory.join(format!("file-{}", commits % 7)), scrambled(commits as u64, 3000)).unwrap();
        git(&["add", "."]);
        git(&["commit", "-q", "-m", &commits.to_string()]);
        commits += 1;
        if !load.goes_on() {
            return commits;
        }
    }
}

fn check_git(directory: &Path, commits: usize) {
    let said = run(directory, "git", &["fsck", "--full", "--strict"]);
    assert!(!String::from_utf8_lossy(&said.stdout).contains("missing"), "{said:?}");
    let log = String::from_utf8(run(directory, "git", &["log", "--format=%s"]).stdout).unwrap();
    let expected: Vec<String> = (0..commits).rev().map(|n| n.to_string()).collect();
    assert!(log.lines().eq(&expected), "{log}");
    assert_eq!(run(directory, "git", &["status", "--porcelain"]).stdout, b"", "the work tree is as committed");
}

/// Appends lines, each made durable. Returns how many.
fn journal(load: &Load<'_>, path: &Path) -> u64 {
    let mut file = fs::OpenOptions::new().append(true).create_new(true).open(path).unwrap();
    let mut lines = 0;
    loop {
        file.write_all(format!("line {lines}\n").as_bytes()).unwrap();
        file.sync_data().unwrap();
        lines += 1;
        if !load.goes_on() {
            return lines;
        }
    }
}

/// As [`replace`], as a program does it.
fn replace_by_program(load: &Load<'_>, path: &Path) -> u64 {
    let beside = path.with_extension("new");
    let mut number = 0;
    loop {
        let file = fs::File::create_new(&beside).unwrap();
        let bytes = version(number);
        // Two writes, so that a file with the first alone would be seen.
        let (head, tail) = bytes.split_at(bytes.len() / 2);
        file.write_all_at(head, 0).unwrap();
        file.write_all_at(tail, head.len() as u64).unwrap();
        drop(file);
        fs::rename(&beside, path).unwrap();
        assert_eq!(number_of(&fs::read(path).unwrap()), number);
        number += 1;
        if !load.goes_on() {
            return number;
        }
    }
}

#[test]
fn programs_on_a_mount_ride_out_kills_and_lose_nothing() {
    let mut rng = Rng::new(seed() ^ 0xf05e);
    let mut server = Served::with(SETTINGS, "127.0.0.1:0");
    let Some(mount) = Mount::of(&server) else { return };
    let state = State::default();
    let (with_sqlite, with_git) = (is_installed("sqlite3"), is_installed("git"));

    std::thread::scope(|scope| {
        let loads = Loads { scope, state: &state };
        let _end = EndOfLoads(&state);
        let databases: Vec<_> = ["delete", "truncate", "persist"]
            .into_iter()
            .filter(|_| with_sqlite)
            .map(|mode| {
                let directory = mount.path(mode);
                let at = directory.clone();
                (directory, loads.start(move |load| sqlite(&load, &at, mode)))
            })
            .collect();
        let repository = mount.path("repository");
        let at = repository.clone();
        let commits = with_git.then(|| loads.start(move |load| git(&load, &at)));
        let (lines_at, replaced_at) = (mount.path("lines"), mount.path("replaced"));
        let (at, beside) = (lines_at.clone(), replaced_at.clone());
        let lines = loads.start(move |load| journal(&load, &at));
        let replaced = loads.start(move |load| replace_by_program(&load, &beside));

        state.kill_again_and_again(&mut server, &mut rng, KILLS / 2, 60);
        let rows: Vec<_> = databases.into_iter().map(|(at, load)| (at, load.join().unwrap())).collect();
        let commits = commits.map(|load| load.join().unwrap());
        let (lines, versions) = (lines.join().unwrap(), replaced.join().unwrap());
        let counts: Vec<u64> = rows.iter().map(|(_, rows)| *rows).collect();
        eprintln!("rows {counts:?}, commits {commits:?}, lines {lines}, versions {versions}");

        assert_eq!(server.restart(Signal::SIGKILL), None);
        for (at, rows) in &rows {
            check_sqlite(at, *rows);
        }
        if let Some(commits) = commits {
            check_git(&repository, commits);
        }
        let expected: String = (0..lines).map(|n| format!("line {n}\n")).collect();
        assert_eq!(fs::read_to_string(&lines_at).unwrap(), expected);
        assert_eq!(number_of(&fs::read(&replaced_at).unwrap()), versions - 1);
    });
}
