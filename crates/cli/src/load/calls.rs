//! A load as calls in a directory, at a pace.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use frieze_base::Rng;
use frieze_load::{FilePlace, LoadCall, LoadError, LoadEvent, MessagesLoad};
use rustix::time::{ClockId, Timespec, clock_gettime};
use serde_json::json;

use crate::failure::UsageError;
use crate::format;
use crate::progress::ProgressLine;
use crate::run::CommandRun;

/// Bytes of one write, and of the pattern that all of them are cut from.
const PATTERN_BYTES: usize = 1 << 20;
/// Files that are kept open: the least used is closed for another.
const OPEN_MAX: usize = 256;
/// Most bytes that are made before the replay begins.
const PREPARED_MAX: u64 = 1 << 36;

/// How fast, and how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplayPace {
    speed: f64,
    seconds: f64,
}

impl ReplayPace {
    /// Refuses what is no pace.
    pub(super) fn new(speed: f64, seconds: f64) -> Result<ReplayPace> {
        if !(speed > 0.0 && speed <= 1e6) {
            return Err(UsageError(format!("--speed {speed}: it has to be above 0 and at most 1000000")).into());
        }
        if !(seconds > 0.0 && seconds <= 86_400.0) {
            return Err(UsageError(format!("--seconds {seconds}: it has to be above 0 and at most 86400")).into());
        }
        Ok(ReplayPace { speed, seconds })
    }

    /// Nanoseconds of the load that go by.
    fn window_ns(self) -> i64 {
        (self.speed * self.seconds * 1e9) as i64
    }
}

/// Why a replay ended.
#[derive(Debug)]
enum ReplayEnd {
    WindowOver,
    Failed(anyhow::Error),
}

impl From<LoadError> for ReplayEnd {
    fn from(error: LoadError) -> ReplayEnd {
        ReplayEnd::Failed(error.into())
    }
}

impl From<anyhow::Error> for ReplayEnd {
    fn from(error: anyhow::Error) -> ReplayEnd {
        ReplayEnd::Failed(error)
    }
}

/// Files of the load in the directory.
struct ReplayFiles<'a> {
    dir: &'a Path,
    pattern: Vec<u8>,
    buffer: Vec<u8>,
    /// By number, with the turn of the last use.
    open: BTreeMap<u64, (u64, File)>,
    /// Where files lie that were created or found.
    places: BTreeMap<u64, FilePlace>,
    turn: u64,
}

impl<'a> ReplayFiles<'a> {
    fn new(dir: &'a Path, seed: u64) -> ReplayFiles<'a> {
        let mut pattern = vec![0; PATTERN_BYTES];
        Rng::new(seed).fill(&mut pattern);
        let (open, places) = (BTreeMap::new(), BTreeMap::new());
        ReplayFiles { dir, pattern, buffer: Vec::new(), open, places, turn: 0 }
    }

    fn path(&self, event: &LoadEvent<'_>, place: FilePlace) -> PathBuf {
        let path = event.file.path(place).to_string();
        self.dir.join(path.trim_start_matches('/'))
    }

    fn open(&mut self, event: &LoadEvent<'_>, creates: bool) -> Result<&File> {
        self.turn += 1;
        let (number, turn) = (event.file.number, self.turn);
        if !self.open.contains_key(&number) {
            if self.open.len() >= OPEN_MAX
                && let Some(oldest) = self.open.iter().min_by_key(|(_, (turn, _))| *turn).map(|(number, _)| *number)
            {
                self.open.remove(&oldest);
            }
            let path = self.path(event, event.place);
            if creates && let Some(parent) = path.parent() {
                fs::create_dir_all(parent).with_context(|| format!("cannot create {}", format::local(parent)))?;
            }
            // What an earlier run of the same load has left is written over.
            let file = OpenOptions::new().read(true).write(true).create(creates).truncate(false).open(&path);
            let file = file.with_context(|| format!("cannot open {}", format::local(&path)))?;
            self.open.insert(number, (turn, file));
        }
        let entry = self.open.get_mut(&number).expect("it was just put there");
        entry.0 = turn;
        Ok(&entry.1)
    }

    fn write(&mut self, event: &LoadEvent<'_>) -> Result<()> {
        let pattern = std::mem::take(&mut self.pattern);
        let (mut offset, end) = (event.offset, event.offset + event.len);
        let file = self.open(event, true)?;
        let mut done = Ok(());
        while done.is_ok() && offset < end {
            // The same bytes at the same offset, whatever pieces they are written in.
            let from = (offset % PATTERN_BYTES as u64) as usize;
            let len = (PATTERN_BYTES - from).min((end - offset) as usize);
            done = file.write_all_at(&pattern[from..from + len], offset);
            offset += len as u64;
        }
        self.pattern = pattern;
        done.with_context(|| format!("cannot write {}", format::local(&self.path(event, event.place))))
    }

    fn read(&mut self, event: &LoadEvent<'_>) -> Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(event.len as usize, 0);
        let read = self.open(event, false)?.read_exact_at(&mut buffer, event.offset);
        self.buffer = buffer;
        read.with_context(|| format!("cannot read {}", format::local(&self.path(event, event.place))))
    }

    /// Makes one call.
    fn call(&mut self, event: &LoadEvent<'_>) -> Result<()> {
        let number = event.file.number;
        let path = self.path(event, event.place);
        let named = || format!("{:?} of {}", event.call, format::local(&path)).to_lowercase();
        match event.call {
            LoadCall::Create => {
                self.open.remove(&number);
                self.open(event, true)?.set_len(0).with_context(named)?;
                self.places.insert(number, event.place);
            }
            LoadCall::Open => {
                if self.places.contains_key(&number) {
                    self.open(event, false)?;
                }
            }
            LoadCall::Read => self.read(event)?,
            LoadCall::Write => {
                self.write(event)?;
                self.places.insert(number, event.place);
            }
            LoadCall::Close => {
                if let Some((_, file)) = self.open.remove(&number)
                    && event.place != FilePlace::Store
                {
                    file.sync_all().with_context(named)?;
                }
            }
            LoadCall::Rename => {
                let to = event.to.unwrap_or(event.place);
                self.open.remove(&number);
                // A file from before that was never read is not there.
                if self.places.contains_key(&number) {
                    let new = self.path(event, to);
                    if let Some(parent) = new.parent() {
                        fs::create_dir_all(parent)
                            .with_context(|| format!("cannot create {}", format::local(parent)))?;
                    }
                    fs::rename(&path, &new).with_context(named)?;
                    self.places.insert(number, to);
                }
            }
            LoadCall::Unlink => {
                self.open.remove(&number);
                match fs::remove_file(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error).with_context(named),
                    _ => {}
                }
                self.places.remove(&number);
            }
        }
        Ok(())
    }
}

fn now_ns() -> i64 {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Monotonic);
    tv_sec * 1_000_000_000 + tv_nsec
}

fn window(load: &MessagesLoad, pace: ReplayPace, mut each: impl FnMut(&LoadEvent<'_>) -> Result<bool>) -> Result<()> {
    let window_ns = pace.window_ns();
    let ended = load.run(|event| -> Result<(), ReplayEnd> {
        if event.t_ns >= window_ns || !each(event)? {
            return Err(ReplayEnd::WindowOver);
        }
        Ok(())
    });
    match ended {
        Err(ReplayEnd::Failed(error)) => Err(error),
        Ok(()) | Err(ReplayEnd::WindowOver) => Ok(()),
    }
}

/// Plays `load` in `dir`, which has to be there.
pub(super) fn replay(run: &mut CommandRun, load: &MessagesLoad, dir: &Path, pace: ReplayPace) -> Result<()> {
    if !fs::metadata(dir).with_context(|| format!("--against {}", format::local(dir)))?.is_dir() {
        return Err(UsageError(format!("--against {}: it is no directory", format::local(dir))).into());
    }
    let mut files = ReplayFiles::new(dir, load.size().seed);
    let prepared = prepare(run, load, &mut files, pace)?;
    run.show(|wanted| ProgressLine::known(wanted, "seconds"));
    run.progress(|progress| progress.at(format!("calls in {}", format::local(dir))));
    let begin_ns = now_ns();
    let (mut calls, mut read, mut written, mut behind_ns) = (0u64, 0u64, 0u64, 0i64);
    let end_ns = begin_ns + (pace.seconds * 1e9) as i64;
    window(load, pace, |event| {
        let due_ns = begin_ns + (event.t_ns as f64 / pace.speed) as i64;
        let at_ns = now_ns();
        if due_ns > at_ns {
            let wait = (due_ns - at_ns) as u64;
            let wait = Timespec { tv_sec: (wait / 1_000_000_000) as i64, tv_nsec: (wait % 1_000_000_000) as i64 };
            // An interrupted wait makes one call early.
            let _ = rustix::thread::nanosleep(&wait);
        }
        behind_ns = behind_ns.max(at_ns - due_ns);
        if at_ns > end_ns {
            return Ok(false);
        }
        files.call(event)?;
        calls += u64::from(event.count);
        match event.call {
            LoadCall::Read => read += event.len,
            LoadCall::Write => written += event.len,
            _ => {}
        }
        run.progress(|progress| progress.is_at(((at_ns - begin_ns) / 1_000_000_000) as u64, pace.seconds as u64));
        Ok(true)
    })?;
    let seconds = (now_ns() - begin_ns) as f64 / 1e9;
    let behind_ms = behind_ns / 1_000_000;
    if run.json() {
        return run.print_json(json!({
            "directory": format::local(dir), "calls": calls, "read": read, "written": written, "seconds": seconds,
            "behind_ms": behind_ms, "prepared": prepared,
        }));
    }
    run.print(&format!(
        "{calls} calls in {seconds:.1} s: {} read, {} written; at most {behind_ms} ms behind the load",
        format::human(read),
        format::human(written)
    ))
}

/// Makes what the load reads of files from before it. Returns the bytes.
fn prepare(run: &mut CommandRun, load: &MessagesLoad, files: &mut ReplayFiles<'_>, pace: ReplayPace) -> Result<u64> {
    run.show(ProgressLine::bytes);
    run.progress(|progress| progress.at("files from before".to_owned()));
    let mut created: std::collections::BTreeSet<u64> = std::collections::BTreeSet::new();
    let mut bytes = 0u64;
    window(load, pace, |event| {
        match event.call {
            LoadCall::Create => {
                created.insert(event.file.number);
            }
            LoadCall::Read if !created.contains(&event.file.number) => {
                bytes += event.len;
                if bytes > PREPARED_MAX {
                    anyhow::bail!(
                        "the load reads more than {} of files from before it: give a smaller --scale, --speed or \
                         --seconds",
                        format::human(PREPARED_MAX)
                    );
                }
                files.write(event)?;
                files.places.insert(event.file.number, event.place);
                run.progress(|progress| progress.advance(event.len));
            }
            _ => {}
        }
        Ok(true)
    })?;
    files.open.clear();
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use frieze_load::{LoadSize, MessagesParameters};

    use super::*;

    #[test]
    fn every_call_of_a_load_works_in_a_directory_and_its_files_have_the_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let size = LoadSize { scale: 1.0 / 30_000.0, days: 0.4, seed: 5 };
        let load = MessagesLoad::new(MessagesParameters::built_in(), size).unwrap();
        let pace = ReplayPace::new(1e6, 1.0).unwrap();
        let mut files = ReplayFiles::new(dir.path(), 5);
        let mut created = BTreeMap::<u64, u64>::new();
        let mut run = CommandRun::new("load", crate::args::Cli::read(["frieze", "now"]).unwrap().common);
        prepare(&mut run, &load, &mut files, pace).unwrap();
        window(&load, pace, |event| {
            files.call(event)?;
            match event.call {
                LoadCall::Create => drop(created.insert(event.file.number, 0)),
                LoadCall::Write => {
                    created.entry(event.file.number).and_modify(|size| *size += event.len);
                }
                LoadCall::Unlink => drop(created.remove(&event.file.number)),
                _ => {}
            }
            Ok(true)
        })
        .unwrap();
        assert!(created.len() > 8, "files were created and stay");
        let mut sizes = BTreeMap::new();
        let mut open = vec![dir.path().to_owned()];
        while let Some(at) = open.pop() {
            for entry in fs::read_dir(at).unwrap().map(|entry| entry.unwrap().path()) {
                match entry.is_dir() {
                    true => open.push(entry),
                    false => {
                        let name = entry.file_name().unwrap().to_str().unwrap().replace("log.", "");
                        sizes.insert(u64::from_str_radix(&name, 16).unwrap(), fs::metadata(&entry).unwrap().len());
                    }
                }
            }
        }
        for (number, size) in created {
            assert_eq!(sizes.get(&number), Some(&size), "file {number}");
        }
    }

    #[test]
    fn a_pace_that_is_none_is_refused_with_the_range() {
        for (speed, seconds) in [(0.0, 1.0), (-1.0, 1.0), (f64::NAN, 1.0), (1e7, 1.0), (1.0, 0.0), (1.0, 1e9)] {
            let refused = ReplayPace::new(speed, seconds).unwrap_err().to_string();
            assert!(refused.contains("at most"), "{refused}");
        }
    }
}
