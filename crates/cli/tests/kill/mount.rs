//! Loads by programs on a mount: databases, a repository, a journal, replacements.

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};

use frieze_base::Rng;
use frieze_harness::requirements;
use frieze_testkit::bytes::random_bytes;
use nix::sys::signal::Signal;

use crate::loads::{EndOfLoads, Load, Loads, State};
use crate::support::Mount;
use crate::support::served::Served;
use crate::{SETTINGS, number_of, seed, version};

const KILLS: u64 = 4;

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
        fs::write(directory.join(format!("file-{}", commits % 7)), random_bytes(commits as u64, 3000)).unwrap();
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
    let (with_sqlite, with_git) = (requirements::program("sqlite3"), requirements::program("git"));

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

        state.kill_again_and_again(&mut server, &mut rng, KILLS, 60);
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
