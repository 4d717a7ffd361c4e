//! Records into a trace while a program runs: a thread takes what is new from the ring of the process, writes it as
//! Parquet, and says in the manifest how far it is.
//!
//! Guarantees: the program never waits for the trace, and goes on if the trace cannot be written; a program that is
//! killed leaves a trace that is whole up to its last minute, and [`recover_trace`] adds the rest from its ring; what
//! the ring wrote over is counted. Leaves to others: recording (`trace`).
//!
//! # How
//! Files of events count once the manifest names them, and the manifest is replaced in one step. It says beside them
//! which blocks of the ring they hold. So a killed program's files that no manifest names are removed, and their events
//! are read from the ring again.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use frieze_trace::{Recorder, RingFollower, TraceError, read_ring};

use crate::error::TraceFileError;
use crate::kinds::KindRules;
use crate::manifest::{MANIFEST, Manifest, RECORDING_LOCK, RecordedRing};
use crate::rings::RingImporter;
use crate::writer::{TraceNames, TraceWriter};

/// Smallest and largest size of a trace that is recorded, bytes.
pub const TRACE_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=1 << 50;
/// Time between two looks at the ring.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Looks after which what is new is written: a minute. A trace of many files is written less often, so that its
/// manifest stays small.
const LOOKS_MAX: usize = 240;
const PARTS_PER_LOOKS: usize = 2000;
const FIRST_LOOKS_MAX: usize = 8;
/// Looks between two tries to write, once one has failed: ten seconds.
const RESTS: usize = 40;
/// Events that wait in memory at most: some 40 MiB.
const EVENTS_MAX: usize = 1 << 18;
/// How the thread yields to others.
const NICE: i32 = 19;

/// Where and how much is recorded.
#[derive(Clone, Debug)]
pub struct LiveSettings {
    /// The directory: a trace that was recorded before and goes on, or one that is empty or not there.
    pub dir: PathBuf,
    /// Size of its files of events at most: the oldest are removed.
    pub bytes_max: u64,
}

/// A trace into which this process records, until [`LiveTrace::finish`].
#[derive(Debug)]
pub struct LiveTrace {
    stop: Sender<()>,
    thread: JoinHandle<Result<Manifest, TraceFileError>>,
}

impl LiveTrace {
    /// Begins to record what is in the ring, and what comes. `report` gets the first fault of several in a row: the
    /// trace is tried again, and lacks what the ring writes over meanwhile.
    ///
    /// # Errors
    /// `InUse`, `NotEmpty`, `Bad`, `System`: nothing is recorded then. Name another directory.
    pub fn begin(
        recorder: &Recorder,
        settings: &LiveSettings,
        report: impl Fn(&TraceFileError) + Send + 'static,
    ) -> Result<LiveTrace, TraceFileError> {
        let mut writer = LiveWriter::begin(recorder, settings)?;
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new().name("trace".to_owned()).spawn(move || {
            // Refused in some containers; then it runs as others do.
            let _ = rustix::process::nice(NICE);
            writer.follow(&stopped, report);
            writer.finish()
        });
        let thread = thread.map_err(TraceFileError::system("record into", &settings.dir))?;
        Ok(LiveTrace { stop, thread })
    }

    /// Writes what is left. The trace is whole then.
    ///
    /// # Errors
    /// `System`, such as a full disk. The trace is whole up to its last minute; [`recover_trace`] adds the rest as long
    /// as the ring is there.
    pub fn finish(self) -> Result<Manifest, TraceFileError> {
        drop(self.stop);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// What [`recover_trace`] found.
#[derive(Clone, Debug, PartialEq)]
pub enum TraceState {
    /// The trace is whole.
    Whole,
    /// A program records into it: what came last is not in it yet.
    InUse,
    /// The program did not end it, and the directory cannot be written: what came last is missing.
    Unwritable,
    /// What the program left in its ring was added.
    Completed(Manifest),
    /// The ring of the program is not there any more: what came last is lost.
    EndLost(Manifest),
}

/// Adds what a program that was killed left in its ring.
///
/// # Errors
/// `NoDirectory`, `NoTrace`, `Bad`, `System`; `Ring` if the ring is there and cannot be read.
pub fn recover_trace(dir: &Path) -> Result<TraceState, TraceFileError> {
    let Some(recording) = Manifest::load(dir)?.recording else { return Ok(TraceState::Whole) };
    let locked = match lock(dir) {
        // Another reader completes it: its work takes moments.
        Err(TraceFileError::InUse { .. }) if !is_running(recording.process) => {
            let path = dir.join(RECORDING_LOCK);
            let file = File::open(&path).map_err(TraceFileError::system("open", &path))?;
            file.lock().map_err(TraceFileError::system("lock", &path))?;
            file
        }
        Err(TraceFileError::InUse { .. }) => return Ok(TraceState::InUse),
        Err(TraceFileError::System { error, .. })
            if matches!(error.kind(), ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied) =>
        {
            return Ok(TraceState::Unwritable);
        }
        locked => locked?,
    };
    let state = recover(dir);
    drop(locked);
    state
}

fn is_running(process: u32) -> bool {
    Path::new(&format!("/proc/{process}")).exists()
}

/// As [`recover_trace`], for a trace that is locked.
fn recover(dir: &Path) -> Result<TraceState, TraceFileError> {
    let mut trace = TraceWriter::resume(dir)?;
    let Some(recorded) = trace.manifest().recording.take() else { return Ok(TraceState::Whole) };
    let mut names = trace.names()?;
    let ring = match RingFollower::open(&recorded.ring, recorded.place()) {
        Err(TraceError::System { error, .. }) if error.kind() == ErrorKind::NotFound => None,
        ring => Some(ring?).filter(|ring| ring.started() == recorded.started && ring.process() == recorded.process),
    };
    let is_there = ring.is_some();
    match ring {
        Some(mut ring) => {
            let mut importer = RingImporter::default();
            // Names may lie in blocks that were read before.
            importer.add_words(&read_ring(&recorded.ring)?);
            importer.add(&mut trace, &ring.read_to_end(), i64::MIN)?;
            importer.name(&mut names, trace.manifest());
        }
        None => trace.manifest().note("programs whose last minute is missing: they were killed, their ring removed", 1),
    }
    let manifest = trace.finish(&names, &KindRules::built_in(), true)?;
    if !is_there {
        return Ok(TraceState::EndLost(manifest));
    }
    // The ring stays: the trace may be a copy, of which the original needs it too.
    Ok(TraceState::Completed(manifest))
}

/// Takes the right to record into a trace, until the file is dropped.
fn lock(dir: &Path) -> Result<File, TraceFileError> {
    let path = dir.join(RECORDING_LOCK);
    let file = File::options().create(true).append(true).open(&path);
    let file = file.map_err(TraceFileError::system("open", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(TraceFileError::InUse { path: dir.to_owned() }),
        Err(TryLockError::Error(error)) => Err(TraceFileError::system("lock", &path)(error)),
    }
}

/// Takes what is new from a ring, and writes it.
#[derive(Debug)]
pub(crate) struct LiveWriter {
    trace: TraceWriter,
    follower: RingFollower,
    importer: RingImporter,
    names: TraceNames,
    rules: KindRules,
    ring: PathBuf,
    bytes_max: u64,
    /// Looks since the last commit.
    looks: usize,
    /// Looks until a commit that failed is tried again.
    rests: usize,
    /// Blocks that were claimed at the last commit.
    committed: u64,
    _locked: File,
}

impl LiveWriter {
    pub(crate) fn begin(recorder: &Recorder, settings: &LiveSettings) -> Result<LiveWriter, TraceFileError> {
        let dir = &settings.dir;
        std::fs::create_dir_all(dir).map_err(TraceFileError::system("create", dir))?;
        let locked = lock(dir)?;
        let (mut trace, names) = match Manifest::load(dir) {
            Err(TraceFileError::NoTrace { .. }) => {
                (TraceWriter::create(dir, Manifest::new("ring"))?, TraceNames::default())
            }
            Err(error) => return Err(error),
            Ok(manifest) if manifest.source != "ring" => {
                let why = format!("it is a trace from {}: record into another directory", manifest.source);
                return Err(TraceFileError::bad(&dir.join(MANIFEST), why));
            }
            Ok(manifest) => {
                if manifest.recording.is_some() {
                    recover(dir)?;
                }
                let trace = TraceWriter::resume(dir)?;
                let names = trace.names()?;
                (trace, names)
            }
        };
        let follower = RingFollower::of(recorder)?;
        let key = format!("{:016x}", follower.key());
        let is_new = trace.manifest().programs.is_empty();
        let manifest = trace.manifest();
        // Hashes of another key have no fingerprint.
        manifest.key = Some(key).filter(|key| is_new || manifest.key.as_ref() == Some(key));
        let mut writer = LiveWriter {
            trace,
            follower,
            importer: RingImporter::default(),
            names,
            rules: KindRules::built_in(),
            ring: recorder.path().to_owned(),
            bytes_max: settings.bytes_max,
            looks: 0,
            rests: 0,
            committed: 0,
            _locked: locked,
        };
        // From now on a reader finds the ring.
        writer.commit()?;
        Ok(writer)
    }

    /// Looks at the ring until the other end of `stopped` is dropped.
    fn follow(&mut self, stopped: &Receiver<()>, report: impl Fn(&TraceFileError)) {
        let mut has_failed = false;
        while stopped.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
            match self.look() {
                // Nothing was tried.
                Ok(()) if self.rests > 0 => {}
                Ok(()) => has_failed = false,
                Err(error) => {
                    if !std::mem::replace(&mut has_failed, true) {
                        report(&error);
                    }
                }
            }
        }
    }

    /// Takes what is new; writes it if it is much, or a minute has passed.
    pub(crate) fn look(&mut self) -> Result<(), TraceFileError> {
        self.looks += 1;
        if self.trace.waiting() < EVENTS_MAX {
            let content = self.follower.read();
            self.importer.add(&mut self.trace, &content, i64::MIN)?;
        }
        let (_, blocks) = self.follower.ahead();
        let is_far = self.follower.place().claimed - self.committed > blocks / 4;
        let looks_max = match self.trace.manifest().parts.len() {
            // A first look at a trace that has just begun.
            0 => FIRST_LOOKS_MAX,
            parts => LOOKS_MAX * (1 + parts / PARTS_PER_LOOKS),
        };
        let is_old = self.looks >= looks_max && self.trace.waiting() > 0;
        if self.rests > 0 {
            self.rests -= 1;
            return Ok(());
        }
        if !is_far && !is_old && self.trace.waiting() < EVENTS_MAX {
            return Ok(());
        }
        let committed = self.commit();
        if committed.is_err() {
            // A full disk stays full for some time.
            self.rests = RESTS;
        }
        committed
    }

    /// Writes all that was taken.
    pub(crate) fn commit(&mut self) -> Result<(), TraceFileError> {
        self.write_names()?;
        let place = self.follower.place();
        let recording = RecordedRing {
            ring: self.ring.clone(),
            process: self.follower.process(),
            started: self.follower.started(),
            claimed: place.claimed,
            growing: place.growing.iter().map(|(block, read)| (*block, *read)).collect(),
            readings: place.readings,
        };
        let claimed = place.claimed;
        self.trace.commit(Some(recording.clone()))?;
        (self.committed, self.looks) = (claimed, 0);
        let removed = self.trace.shrink(self.bytes_max);
        if !removed.is_empty() {
            self.trace.commit(Some(recording))?;
            self.trace.remove_files(&removed);
        }
        Ok(())
    }

    fn write_names(&mut self) -> Result<(), TraceFileError> {
        if !self.importer.has_new_words() && self.committed > 0 {
            return Ok(());
        }
        self.importer.name(&mut self.names, self.trace.manifest());
        self.trace.write_names(&self.names, &self.rules, true)?;
        self.importer.words_are_written();
        Ok(())
    }

    /// Writes what is left: nothing is recorded any more.
    pub(crate) fn finish(mut self) -> Result<Manifest, TraceFileError> {
        let content = self.follower.read_to_end();
        self.importer.add(&mut self.trace, &content, i64::MIN)?;
        self.importer.name(&mut self.names, self.trace.manifest());
        let manifest = self.trace.finish(&self.names, &self.rules, true)?;
        // Its events are in the trace.
        drop(std::fs::remove_file(&self.ring));
        Ok(manifest)
    }
}
