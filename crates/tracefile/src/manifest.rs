//! `manifest.json`: what a trace is, and what it lacks. It is written last, so a directory with one is whole.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use frieze_base::Reason;
use frieze_trace::{CallKind, EventFlags, Gateway, RingPlace};
use serde::{Deserialize, Serialize};

use crate::error::TraceFileError;
use crate::row::Purpose;

/// Name of the format in its manifest.
const FORMAT: &str = "frieze-trace";
/// The version that this code writes, and the newest that it reads.
pub const TRACE_VERSION: u32 = 1;
/// Its file in the directory of a trace.
pub(crate) const MANIFEST: &str = "manifest.json";
/// Locked by the program that records into the trace.
pub(crate) const RECORDING_LOCK: &str = "recording.lock";
/// Longest manifest that is read, bytes.
const MANIFEST_BYTES_MAX: u64 = 16 << 20;
/// Programs that are named one by one.
const PROGRAMS_MAX: usize = 1000;
/// Largest number of a manifest: sums of many of them are numbers, too.
const COUNT_MAX: u64 = 1 << 48;
/// Spans of lost events that are named one by one.
const SPANS_MAX: usize = 10_000;

/// What a trace is, and what it lacks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Always `frieze-trace`.
    pub format: String,
    /// Version of the format.
    pub version: u32,
    /// The program that wrote it.
    pub made_by: String,
    /// Where its events come from: `ring`, `messages`, or the name of an imported format.
    pub source: String,
    /// The programs that were recorded.
    #[serde(default)]
    pub programs: Vec<TracedProgram>,
    /// Start of the first event, ns since 1970; 0 if there is none.
    pub begin_ns: i64,
    /// End of the last to end.
    pub end_ns: i64,
    /// Events, of which each may stand for several calls.
    pub events: u64,
    /// The trace has one in so many files of its machine.
    #[serde(default = "whole")]
    pub one_in: u32,
    /// What is known to be missing.
    #[serde(default)]
    pub lost: LostEvents,
    /// Fingerprint of the key of path hashes: traces with the same one have the same hash for the same path.
    pub key: Option<String>,
    /// Words of the numbers in the columns.
    pub calls: BTreeMap<u32, String>,
    /// As `calls`.
    pub gateways: BTreeMap<u32, String>,
    /// By bit.
    pub flags: BTreeMap<u32, String>,
    /// As `calls`.
    pub purposes: BTreeMap<u32, String>,
    /// Words of the numbers of results.
    pub reasons: BTreeMap<u32, String>,
    /// Columns that the source does not know: they are null throughout.
    #[serde(default)]
    pub absent: Vec<String>,
    /// Oddities of the source, counted.
    #[serde(default)]
    pub notes: Vec<TraceNote>,
    /// The files of events, in the order in which they were written. Others in the directory are not of the trace.
    #[serde(default)]
    pub parts: Vec<TracePart>,
    /// The ring of a program that records into this trace, or did until it was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recording: Option<RecordedRing>,
}

/// A trace of all files.
fn whole() -> u32 {
    1
}

/// A program that was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TracedProgram {
    /// Its word: `mount`, `serve`.
    pub program: String,
    /// Its process.
    pub process: u32,
}

/// What is known to be missing from a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostEvents {
    /// Slots of rings that were written over before the trace was saved, at most.
    pub overwritten: u64,
    /// Slots that were being written when their process ended, or are damaged.
    pub torn: u64,
    /// Slots of kinds that the writer of the trace did not know.
    pub unknown: u64,
    /// When events are missing.
    pub spans: Vec<LostTime>,
}

/// A time of which events are missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostTime {
    /// Its begin, ns since 1970.
    pub from_ns: i64,
    /// Its end.
    pub to_ns: i64,
    /// How many, if known.
    pub events: Option<u64>,
}

/// A file of events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracePart {
    /// Its path in the directory.
    pub file: String,
    /// Events in it.
    pub events: u64,
    /// Its size.
    pub bytes: u64,
    /// Start of its first event, ns since 1970.
    pub begin_ns: i64,
}

impl TracePart {
    /// Its number in its hour; `None` for a name that no trace gives to a part.
    pub(crate) fn number(&self) -> Option<u32> {
        let (hour, name) = self.file.strip_prefix("events/hour=")?.split_once('/')?;
        let digits = name.strip_prefix("part-")?.strip_suffix(".parquet")?;
        let is_hour = hour.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        digits.parse().ok().filter(|_| is_hour)
    }
}

/// A ring whose newest events are not in the files yet, and how far it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedRing {
    /// The file of the ring.
    pub ring: PathBuf,
    /// The process that records.
    pub process: u32,
    /// The monotonic clock when the ring was made, ns: tells it from another ring of this name.
    pub started: u64,
    /// Blocks that were read.
    pub claimed: u64,
    /// Earlier blocks that may grow, and the slots of each that were read.
    pub growing: Vec<(u64, u8)>,
    /// Readings of the clocks that were read.
    pub readings: u64,
}

impl RecordedRing {
    pub(crate) fn place(&self) -> RingPlace {
        RingPlace { claimed: self.claimed, growing: self.growing.iter().copied().collect(), readings: self.readings }
    }
}

/// An oddity of the source of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceNote {
    /// What was met.
    pub what: String,
    /// How often.
    pub count: u64,
}

impl Manifest {
    /// The manifest of a trace without events, from `source`.
    pub fn new(source: &str) -> Manifest {
        let named = |all: &[(u32, &str)]| all.iter().map(|(number, name)| (*number, (*name).to_owned())).collect();
        let flags = [
            (EventFlags::PAST, "past"),
            (EventFlags::SYNCHRONOUS, "synchronous"),
            (EventFlags::COLLAPSED, "collapsed"),
            (EventFlags::SEQUENTIAL, "sequential"),
            (EventFlags::FROM_CACHE, "from_cache"),
        ];
        let reasons = Reason::ALL.iter().map(|reason| (*reason as u32, format!("{reason:?}")));
        Manifest {
            format: FORMAT.to_owned(),
            version: TRACE_VERSION,
            one_in: 1,
            made_by: format!("frieze {}", env!("CARGO_PKG_VERSION")),
            source: source.to_owned(),
            calls: CallKind::ALL.iter().map(|call| (*call as u32, call.name().to_owned())).collect(),
            gateways: Gateway::ALL.iter().map(|gateway| (*gateway as u32, gateway.name().to_owned())).collect(),
            flags: named(&flags.map(|(flag, name)| (u32::from(flag.0), name))),
            purposes: named(&Purpose::ALL.map(|purpose| (purpose as u32, purpose.name()))),
            reasons: reasons.collect(),
            ..Manifest::default()
        }
    }

    /// Adds a time of which events are missing. Beyond 10,000 the last one grows.
    pub fn add_lost_time(&mut self, lost: LostTime) {
        let is_full = self.lost.spans.len() >= SPANS_MAX;
        match self.lost.spans.last_mut() {
            Some(last) if is_full => {
                last.to_ns = last.to_ns.max(lost.to_ns);
                last.events = last.events.zip(lost.events).map(|(a, b)| a.saturating_add(b));
            }
            _ => self.lost.spans.push(lost),
        }
    }

    /// Names a program that was recorded. Beyond 1,000 they are counted.
    pub fn add_program(&mut self, program: TracedProgram) {
        if self.programs.contains(&program) {
            return;
        }
        match self.programs.len() < PROGRAMS_MAX {
            true => self.programs.push(program),
            false => self.note("programs that are not named", 1),
        }
    }

    /// Counts an oddity, if there is any.
    pub fn note(&mut self, what: &str, count: u64) {
        if count == 0 {
            return;
        }
        match self.notes.iter_mut().find(|note| note.what == what) {
            Some(note) => note.count += count,
            None => self.notes.push(TraceNote { what: what.to_owned(), count }),
        }
    }

    /// Reads the manifest of a trace.
    ///
    /// # Errors
    /// `NoTrace`; `Bad` for a file of another format or version; `System`.
    pub fn load(dir: &Path) -> Result<Manifest, TraceFileError> {
        let path = dir.join(MANIFEST);
        let len = match fs::metadata(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !dir.exists() => {
                return Err(TraceFileError::NoDirectory { path: dir.to_owned() });
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(TraceFileError::NoTrace { path: dir.to_owned() });
            }
            found => found.map_err(TraceFileError::system("read", &path))?.len(),
        };
        if len > MANIFEST_BYTES_MAX {
            return Err(TraceFileError::bad(&path, format!("it has {len} bytes, and at most {MANIFEST_BYTES_MAX}")));
        }
        let text = fs::read_to_string(&path).map_err(TraceFileError::system("read", &path))?;
        let manifest: Manifest = serde_json::from_str(&text).map_err(|error| TraceFileError::bad(&path, error))?;
        if manifest.format != FORMAT {
            let why = format!("its format is {:?}, not {FORMAT:?}", manifest.format);
            return Err(TraceFileError::bad(&path, why));
        }
        let counts = [manifest.events, manifest.lost.overwritten, manifest.lost.torn, manifest.lost.unknown];
        let parts = manifest.parts.iter().flat_map(|part| [part.events, part.bytes]);
        if let Some(count) = counts.into_iter().chain(parts).find(|count| *count > COUNT_MAX) {
            return Err(TraceFileError::bad(&path, format!("it counts {count} events or bytes: no trace has so many")));
        }
        if manifest.version > TRACE_VERSION {
            let why = format!(
                "version {} is newer than {TRACE_VERSION}: read the trace with the frieze that wrote it ({})",
                manifest.version, manifest.made_by
            );
            return Err(TraceFileError::bad(&path, why));
        }
        Ok(manifest)
    }

    pub(crate) fn store(&self, dir: &Path) -> Result<(), TraceFileError> {
        let path = dir.join(MANIFEST);
        let text = serde_json::to_string_pretty(self).map_err(|error| TraceFileError::bad(&path, error))?;
        // Whole or not there.
        let partial = dir.join("manifest.json.partial");
        fs::write(&partial, text + "\n").map_err(TraceFileError::system("write", &partial))?;
        fs::rename(&partial, &path).map_err(TraceFileError::system("rename", &partial))
    }
}
