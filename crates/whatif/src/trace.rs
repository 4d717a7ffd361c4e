//! A trace directory as a [`RecordedLoad`]: which events move bytes, of which file, what for.
//!
//! Guarantees: what the trace does not say and is assumed all the same becomes a sentence of
//! [`RecordedLoad::assumptions`], with a count.
//! Leaves to others: the format (`tracefile`).
//!
//! # Purposes
//! Where the trace has the column `purpose`, it counts. Else: a write of a file of kind `log` is a log; a read is a
//! user's; any other write is a flush. Of HBase's files under `.tmp`, flushes and compactions differ by what
//! follows the rename of a file into its store: within ten minutes the inputs of a compaction move from the store to
//! the archive. A stream that reads nine tenths of such an input before it moves is the compaction's.

use std::collections::BTreeMap;
use std::path::Path;

use frieze_base::FastMap;
use frieze_trace::{CallKind, Gateway};
use frieze_tracefile::{Manifest, Purpose, TraceFileError, TraceNames, TraceReader, TraceRow};

use crate::error::WhatIfError;
use crate::workload::{DataCall, IoPurpose, Movement, RecordedLoad};

/// Events up to which a trace is sorted as a whole; a larger one is taken in the order of its files.
pub const EVENTS_SORTED_MAX: u64 = 4_000_000;

/// A trace that is read.
#[derive(Debug)]
pub struct TraceLoad {
    pub(crate) reader: TraceReader,
}

impl TraceLoad {
    /// Opens a trace.
    ///
    /// # Errors
    /// `Trace` names the file and what is wrong with it.
    pub fn open(dir: &Path) -> Result<TraceLoad, WhatIfError> {
        Ok(TraceLoad { reader: TraceReader::open(dir)? })
    }

    /// The trace itself.
    pub fn reader(&self) -> &TraceReader {
        &self.reader
    }

    /// What the trace says of itself.
    pub fn manifest(&self) -> &Manifest {
        self.reader.manifest()
    }

    /// It has one in so many files of its machine.
    pub fn one_in(&self) -> u32 {
        self.manifest().one_in.max(1)
    }

    /// Bytes of memory that reading it takes at most, calls of the load included.
    pub fn memory_bytes(&self) -> u64 {
        let events = self.manifest().events;
        let sorted = if events <= EVENTS_SORTED_MAX { 2 * events * size_of::<TraceRow>() as u64 } else { 1 << 30 };
        sorted + 2 * events * size_of::<DataCall>() as u64
    }

    /// Reads it.
    ///
    /// # Errors
    /// `Trace` with file, column and row; `EmptyTrace` if no event moves bytes; `TooManyFiles`.
    pub fn read(&self) -> Result<RecordedLoad, WhatIfError> {
        self.read_with(false)
    }

    /// As [`TraceLoad::read`], but calls that were recorded as one event are calls of their own.
    ///
    /// # Errors
    /// As [`TraceLoad::read`].
    pub fn read_apart(&self) -> Result<RecordedLoad, WhatIfError> {
        self.read_with(true)
    }

    fn read_with(&self, takes_apart: bool) -> Result<RecordedLoad, WhatIfError> {
        let manifest = self.manifest();
        let names = self.reader.names()?;
        let mut reading = TraceReading { takes_apart, ..TraceReading::new(manifest, &names) };
        if manifest.events <= EVENTS_SORTED_MAX {
            self.reader.rows()?.iter().for_each(|row| reading.row(row));
        } else {
            reading.assume("events are taken in the order of the trace's files");
            self.reader.for_each_group(|rows| -> Result<(), WhatIfError> {
                rows.iter().for_each(|row| reading.row(row));
                Ok(())
            })?;
        }
        reading.finish()
    }
}

impl From<TraceFileError> for WhatIfError {
    fn from(error: TraceFileError) -> WhatIfError {
        WhatIfError::Trace(error.to_string())
    }
}

/// What a file is, as far as purposes need it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ReadKind {
    #[default]
    Other,
    Log,
    Temporary,
    Archive,
}

#[derive(Clone, Copy, Debug, Default)]
struct ReadFile {
    kind: ReadKind,
    /// Largest end so far, where the next append begins.
    end: u64,
    /// When it was renamed into a directory, and that directory's hash.
    placed: Option<(u64, u64)>,
    /// When it moved to the archive, and from which directory.
    archived: Option<(u64, u64)>,
}

struct TraceReading<'a> {
    manifest: &'a Manifest,
    names: &'a TraceNames,
    machines: FastMap<&'a str, u8>,
    /// Files by identity, and by hash of their path where the trace has no identity.
    by_inode: FastMap<u64, u32>,
    by_path: FastMap<u64, u32>,
    files: Vec<ReadFile>,
    /// Where a stream stands.
    positions: FastMap<u64, u64>,
    /// Bytes read of a file by a stream.
    streamed: FastMap<(u32, u64), u64>,
    calls: Vec<DataCall>,
    /// The stream of each call.
    streams: Vec<u64>,
    has_purposes: bool,
    /// A call of its own for each that an event stands for.
    takes_apart: bool,
    assumptions: BTreeMap<String, u64>,
}

impl<'a> TraceReading<'a> {
    fn new(manifest: &'a Manifest, names: &'a TraceNames) -> TraceReading<'a> {
        let hosts: std::collections::BTreeSet<&str> =
            names.actors.values().filter_map(|actor| actor.host.as_deref()).collect();
        // Each machine is a place of replicas; many clients of one service are not.
        let machines = if hosts.len() <= MACHINES_MAX {
            (0..).zip(hosts).map(|(at, host)| (host, at)).collect()
        } else {
            FastMap::default()
        };
        TraceReading {
            manifest,
            names,
            machines,
            by_inode: FastMap::default(),
            by_path: FastMap::default(),
            files: Vec::new(),
            positions: FastMap::default(),
            streamed: FastMap::default(),
            calls: Vec::new(),
            streams: Vec::new(),
            has_purposes: false,
            takes_apart: false,
            assumptions: BTreeMap::new(),
        }
    }

    fn assume(&mut self, what: &str) {
        match self.assumptions.get_mut(what) {
            Some(count) => *count += 1,
            None => _ = self.assumptions.insert(what.to_owned(), 1),
        }
    }

    fn row(&mut self, row: &TraceRow) {
        // Events of devices lie below the cache that is simulated.
        if row.result != 0 || row.gateway == Gateway::Device {
            return;
        }
        match row.call {
            CallKind::Read | CallKind::Write | CallKind::Append => self.data(row),
            CallKind::Rename => self.rename(row),
            CallKind::Unlink => {
                if let Some(file) = self.known_file(row) {
                    self.push(row, file, 0, 0, Movement::Remove);
                }
                row.path.map(|path| self.by_path.remove(&path));
            }
            CallKind::RemoveTree => self.assume("a removed tree keeps its files, which the trace does not name"),
            CallKind::Create | CallKind::Open => _ = self.file(row),
            _ => {}
        }
    }

    fn data(&mut self, row: &TraceRow) {
        let bytes = row.got.or(row.asked).unwrap_or(0);
        if bytes == 0 {
            return;
        }
        let Some(file) = self.file(row) else {
            self.assume("a call without file and path is left out");
            return;
        };
        let stream = row.stream.unwrap_or(0);
        let offset = match row.offset {
            Some(offset) if row.call != CallKind::Append || offset > 0 => offset,
            _ if row.call == CallKind::Append => self.files[file as usize].end,
            _ => {
                self.assume("a call without an offset goes on where its stream stands");
                self.positions.get(&stream).copied().unwrap_or(0)
            }
        };
        let end = offset.saturating_add(bytes);
        self.positions.insert(stream, end);
        self.files[file as usize].end = self.files[file as usize].end.max(end);
        let movement = if row.call == CallKind::Read { Movement::Read } else { Movement::Write };
        if movement == Movement::Read {
            *self.streamed.entry((file, stream)).or_default() += bytes;
        }
        self.push(row, file, offset, bytes, movement);
    }

    fn push(&mut self, row: &TraceRow, file: u32, offset: u64, bytes: u64, movement: Movement) {
        let purpose = match (row.purpose, movement) {
            (Some(purpose), _) => {
                self.has_purposes = true;
                match purpose {
                    Purpose::Read => IoPurpose::Read,
                    Purpose::Log => IoPurpose::Log,
                    Purpose::Flush => IoPurpose::Flush,
                    Purpose::Compaction => IoPurpose::Compaction,
                }
            }
            (None, Movement::Read) => IoPurpose::Read,
            (None, _) if self.files[file as usize].kind == ReadKind::Log => IoPurpose::Log,
            (None, _) => IoPurpose::Flush,
        };
        let host = row.actor.and_then(|actor| self.names.actors.get(&actor)).and_then(|actor| actor.host.as_deref());
        let machine = host.and_then(|host| self.machines.get(host)).copied().unwrap_or(0);
        let at_us = row.start_ns.saturating_sub(self.manifest.begin_ns).max(0) as u64 / 1000;
        let calls = if self.takes_apart { u64::from(row.count).clamp(1, PIECES_MAX) } else { 1 };
        if bytes > CALL_BYTES_MAX * PIECES_MAX {
            self.assume("a call of more than 64 GiB counts as one of 64 GiB");
        }
        let bytes = bytes.min(CALL_BYTES_MAX * PIECES_MAX);
        let longest = bytes.div_ceil(calls).clamp(1, CALL_BYTES_MAX);
        let mut done = 0;
        loop {
            let piece = (bytes - done).min(longest);
            let offset = offset.saturating_add(done);
            self.calls.push(DataCall { at_us, offset, bytes: piece as u32, file, movement, purpose, machine });
            self.streams.push(row.stream.unwrap_or(0));
            done += piece;
            if done >= bytes {
                return;
            }
        }
    }

    fn rename(&mut self, row: &TraceRow) {
        let Some(file) = self.known_file(row) else { return };
        let (Some(from), Some(to)) = (row.path, row.path2) else { return };
        if let Some(moved) = self.by_path.remove(&from) {
            self.by_path.insert(to, moved);
        }
        let (from_dir, to_dir) = (self.directory(from), self.directory(to));
        let at_us = row.start_ns.saturating_sub(self.manifest.begin_ns).max(0) as u64 / 1000;
        let kind = self.kind(to);
        let of_file = &mut self.files[file as usize];
        if kind == ReadKind::Archive {
            of_file.archived = from_dir.map(|dir| (at_us, dir));
        } else if of_file.kind == ReadKind::Temporary {
            of_file.placed = to_dir.map(|dir| (at_us, dir));
        }
        if kind == ReadKind::Other && of_file.kind == ReadKind::Log {
            return;
        }
        of_file.kind = kind;
    }

    fn directory(&self, path: u64) -> Option<u64> {
        self.names.paths.get(&path).and_then(|path| path.parent)
    }

    fn kind(&self, path: u64) -> ReadKind {
        match self.names.paths.get(&path).and_then(|path| path.kind.as_ref()).map(|kind| kind.kind.as_str()) {
            Some("log") => ReadKind::Log,
            Some("temporary") => ReadKind::Temporary,
            Some("archive") => ReadKind::Archive,
            _ => ReadKind::Other,
        }
    }

    fn known_file(&self, row: &TraceRow) -> Option<u32> {
        let by_path = || row.path.and_then(|path| self.by_path.get(&path)).copied();
        row.inode.and_then(|inode| self.by_inode.get(&inode)).copied().or_else(by_path)
    }

    /// The number of a row's file, a new one at first sight.
    fn file(&mut self, row: &TraceRow) -> Option<u32> {
        let next = self.files.len() as u32;
        let number = match (row.inode, row.path) {
            (Some(inode), _) => *self.by_inode.entry(inode).or_insert(next),
            (None, Some(path)) => *self.by_path.entry(path).or_insert(next),
            (None, None) => return None,
        };
        if number == next {
            self.files.push(ReadFile::default());
        }
        if let Some(path) = row.path {
            let kind = self.kind(path);
            let file = &mut self.files[number as usize];
            if file.kind == ReadKind::Other {
                file.kind = kind;
            }
        }
        Some(number)
    }

    fn finish(mut self) -> Result<RecordedLoad, WhatIfError> {
        if !self.calls.iter().any(|call| call.movement != Movement::Remove) {
            return Err(WhatIfError::EmptyTrace);
        }
        if !self.has_purposes {
            self.decide_compactions();
        }
        let lost = &self.manifest.lost;
        let lost = lost.overwritten + lost.torn + lost.unknown;
        if lost > 0 {
            self.assumptions.insert("events were lost while the trace was made".to_owned(), lost);
        }
        if self.machines.len() <= 1 {
            self.assume("one machine was traced: its own writes stand for those that arrive from others");
        }
        let span_us = self.manifest.end_ns.saturating_sub(self.manifest.begin_ns).max(0) as u64 / 1000;
        let words = |(what, count): (String, u64)| if count > 1 { format!("{what} ({count} times)") } else { what };
        RecordedLoad::new(self.calls, span_us, self.assumptions.into_iter().map(words).collect())
    }

    /// Separates the output of compactions from that of flushes, and what a compaction read from what users read.
    fn decide_compactions(&mut self) {
        let mut archived: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for (at_us, dir) in self.files.iter().filter_map(|file| file.archived) {
            archived.entry(dir).or_default().push(at_us);
        }
        archived.values_mut().for_each(|times| times.sort_unstable());
        let is_output = |file: &ReadFile| {
            let Some((at_us, dir)) = file.placed else { return false };
            let times = archived.get(&dir).map_or(&[][..], Vec::as_slice);
            let next = times.partition_point(|time| *time < at_us);
            times.get(next).is_some_and(|time| time - at_us <= INPUTS_MOVE_US)
        };
        let outputs: Vec<bool> = self.files.iter().map(is_output).collect();
        let mut found = 0;
        for (call, stream) in self.calls.iter_mut().zip(&self.streams) {
            let file = &self.files[call.file as usize];
            let is_compaction = match call.movement {
                Movement::Write => outputs[call.file as usize] && call.purpose == IoPurpose::Flush,
                Movement::Read => file.archived.is_some_and(|(at_us, _)| {
                    let whole = self.streamed.get(&(call.file, *stream)).copied().unwrap_or(0) >= file.end / 10 * 9;
                    whole && call.at_us <= at_us
                }),
                Movement::Remove => false,
            };
            if is_compaction {
                call.purpose = IoPurpose::Compaction;
                found += 1;
            }
        }
        let words = "the trace has no purposes: a write to a log is a log, another write a flush, a read a user's";
        self.assumptions.insert(words.to_owned(), 1);
        if found > 0 {
            let words = "calls are a compaction's by what moves to the archive within ten minutes";
            self.assumptions.insert(words.to_owned(), found);
        }
    }
}

/// Machines up to which each is a place of replicas.
const MACHINES_MAX: usize = 64;
/// A longer call becomes several.
const CALL_BYTES_MAX: u64 = 1 << 30;
/// Pieces of a call at most: a hostile trace names any number of bytes.
const PIECES_MAX: u64 = 64;
/// Within so many microseconds of its output the inputs of a compaction move to the archive.
const INPUTS_MOVE_US: u64 = 600 * 1_000_000;
