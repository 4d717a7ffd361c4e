//! Writes a trace directory.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::columns::{ColumnValues, TableColumn, write_events, write_table};
use crate::error::TraceFileError;
use crate::kinds::{KindRules, PathKind};
use crate::manifest::{MANIFEST, Manifest, RECORDING_LOCK, RecordedRing, TracePart};
use crate::reader::{TraceReader, list};
use crate::row::{COLUMNS, TraceRow};

/// Rows that are collected before they are sorted and written: some 150 MiB.
const ROWS_MAX: usize = 1 << 20;
/// ns of an hour.
const HOUR_NS: i64 = 3_600_000_000_000;

/// Words of a trace that its tables beside the events hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceNames {
    /// Paths by their hashes.
    pub paths: BTreeMap<u64, TracedPath>,
    /// Users and programs by their numbers.
    pub actors: BTreeMap<u64, TracedActor>,
}

/// A path of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TracedPath {
    /// The path, if it is known.
    pub text: Option<Vec<u8>>,
    /// Hash of its directory.
    pub parent: Option<u64>,
    /// What it is, if it was decided before its name was left out.
    pub kind: Option<PathKind>,
}

/// A user and a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TracedActor {
    /// The user's number.
    pub uid: Option<u32>,
    /// The program and its arguments.
    pub program: Option<String>,
    /// The machine.
    pub host: Option<String>,
}

/// Writes a trace: events in any order, then the words, then the manifest.
#[derive(Debug)]
pub struct TraceWriter {
    dir: PathBuf,
    /// The directory was not there before.
    is_made: bool,
    manifest: Manifest,
    rows: Vec<TraceRow>,
    /// Parts written of each hour.
    parts: BTreeMap<i64, u32>,
    /// For each column: a row has a value.
    has_value: [bool; COLUMNS.len()],
    begin_ns: Option<i64>,
    end_ns: i64,
}

impl TraceWriter {
    /// Begins a trace in a directory that is empty or not there.
    ///
    /// # Errors
    /// `NotEmpty`, `System`.
    pub fn create(dir: &Path, manifest: Manifest) -> Result<TraceWriter, TraceFileError> {
        let is_made = !dir.exists();
        fs::create_dir_all(dir).map_err(TraceFileError::system("create", dir))?;
        if list(dir)?.iter().any(|entry| entry.file_name() != Some(RECORDING_LOCK.as_ref())) {
            return Err(TraceFileError::NotEmpty { path: dir.to_owned() });
        }
        Ok(TraceWriter {
            dir: dir.to_owned(),
            is_made,
            manifest: Manifest { parts: Vec::new(), recording: None, ..manifest },
            rows: Vec::new(),
            parts: BTreeMap::new(),
            has_value: [false; COLUMNS.len()],
            begin_ns: None,
            end_ns: i64::MIN,
        })
    }

    /// Goes on with a whole trace. Files that its manifest does not name are removed: the program that wrote them was
    /// killed before they counted.
    ///
    /// # Errors
    /// `NoTrace`; `Bad`, also if its manifest does not name all of its files; `System`.
    pub(crate) fn resume(dir: &Path) -> Result<TraceWriter, TraceFileError> {
        let manifest = Manifest::load(dir)?;
        let named = || manifest.parts.iter().map(|part| part.events);
        if named().fold(0, u64::saturating_add) != manifest.events {
            let why = "its files are not those of its events: record into another directory";
            return Err(TraceFileError::bad(&dir.join(MANIFEST), why));
        }
        let mut parts = BTreeMap::new();
        for part in &manifest.parts {
            let number = part.number().ok_or_else(|| {
                TraceFileError::bad(&dir.join(MANIFEST), format!("it names {}, which is no part", part.file))
            })?;
            let path = dir.join(&part.file);
            fs::metadata(&path).map_err(TraceFileError::system("find", &path))?;
            let next = parts.entry(part.begin_ns.div_euclid(HOUR_NS)).or_default();
            *next = number.saturating_add(1).max(*next);
        }
        remove_unnamed(dir, &manifest)?;
        let has_value = COLUMNS.each_ref().map(|column| !manifest.absent.iter().any(|name| name == column.name));
        Ok(TraceWriter {
            dir: dir.to_owned(),
            is_made: false,
            rows: Vec::new(),
            parts,
            has_value,
            begin_ns: (manifest.events > 0).then_some(manifest.begin_ns),
            end_ns: if manifest.events > 0 { manifest.end_ns } else { i64::MIN },
            manifest,
        })
    }

    /// What the manifest will say; for losses and notes.
    pub fn manifest(&mut self) -> &mut Manifest {
        &mut self.manifest
    }

    /// Adds an event.
    ///
    /// # Errors
    /// `System`: a full disk, for one. The trace stays without a manifest then, and is no trace.
    pub fn push(&mut self, row: TraceRow) -> Result<(), TraceFileError> {
        self.manifest.events = self.manifest.events.saturating_add(1);
        let end = row.start_ns.saturating_add(i64::try_from(row.duration_ns.unwrap_or(0)).unwrap_or(i64::MAX));
        self.begin_ns = Some(self.begin_ns.map_or(row.start_ns, |begin| begin.min(row.start_ns)));
        self.end_ns = self.end_ns.max(end);
        for (has_value, column) in self.has_value.iter_mut().zip(&COLUMNS) {
            *has_value = *has_value || (column.get)(&row).is_some();
        }
        self.rows.push(row);
        match self.rows.len() >= ROWS_MAX {
            true => self.write_rows(),
            false => Ok(()),
        }
    }

    /// The words of the trace that this one goes on with.
    pub(crate) fn names(&self) -> Result<TraceNames, TraceFileError> {
        TraceReader::open(&self.dir)?.names()
    }

    /// Rows that are in memory.
    pub(crate) fn waiting(&self) -> usize {
        self.rows.len()
    }

    fn write_rows(&mut self) -> Result<(), TraceFileError> {
        self.rows.sort_by_key(|row| row.start_ns);
        let hour_of = |row: &TraceRow| row.start_ns.div_euclid(HOUR_NS);
        while let Some(first) = self.rows.first() {
            let (hour, begin_ns) = (hour_of(first), first.start_ns);
            let count = self.rows.partition_point(|row| hour_of(row) == hour);
            let events = self.dir.join("events");
            let name = format!("hour={}", hour_name(hour));
            let dir = events.join(&name);
            fs::create_dir_all(&dir).map_err(TraceFileError::system("create", &dir))?;
            let number = self.parts.entry(hour).or_default();
            let file = format!("part-{number}.parquet");
            let path = dir.join(&file);
            write_events(&path, &self.rows[..count])?;
            *number += 1;
            let bytes = fs::metadata(&path).map_err(TraceFileError::system("examine", &path))?.len();
            let file = format!("events/{name}/{file}");
            self.manifest.parts.push(TracePart { file, events: count as u64, bytes, begin_ns });
            // What is written stays so if the next hour fails.
            self.rows.drain(..count);
        }
        Ok(())
    }

    /// Writes what is left, the words and the manifest: the trace is whole then. `keeps_names`: whether the words are
    /// written; kinds are in any case.
    ///
    /// # Errors
    /// As [`TraceWriter::push`].
    pub fn finish(
        mut self,
        names: &TraceNames,
        rules: &KindRules,
        keeps_names: bool,
    ) -> Result<Manifest, TraceFileError> {
        self.write_names(names, rules, keeps_names)?;
        self.commit(None)?;
        Ok(self.manifest)
    }

    /// Writes the words, or those that are known so far.
    pub(crate) fn write_names(
        &mut self,
        names: &TraceNames,
        rules: &KindRules,
        keeps_names: bool,
    ) -> Result<(), TraceFileError> {
        write_table(&self.dir.join("paths.parquet"), 0o666, &paths_table(names, rules))?;
        if keeps_names {
            write_table(&self.dir.join("names.parquet"), 0o600, &names_table(names))?;
            write_table(&self.dir.join("actors.parquet"), 0o600, &actors_table(names))?;
        }
        Ok(())
    }

    /// Writes the events that wait, and then the manifest: the trace is whole as far as `recording` says.
    pub(crate) fn commit(&mut self, recording: Option<RecordedRing>) -> Result<(), TraceFileError> {
        let dir = self.dir.join("events");
        fs::create_dir_all(&dir).map_err(TraceFileError::system("create", &dir))?;
        self.write_rows()?;
        self.manifest.begin_ns = self.begin_ns.unwrap_or(0);
        self.manifest.end_ns = self.end_ns.max(self.manifest.begin_ns);
        let absent = COLUMNS.iter().zip(self.has_value).filter(|(column, has_value)| column.is_optional && !has_value);
        self.manifest.absent = absent.map(|(column, _)| column.name.to_owned()).collect();
        self.manifest.recording = recording;
        self.manifest.store(&self.dir)
    }

    /// Takes the oldest files out of the trace until those that stay have at most so many bytes; the newest stays in
    /// any case. [`TraceWriter::remove_files`] removes them once a manifest without them is written.
    pub(crate) fn shrink(&mut self, bytes_max: u64) -> Vec<TracePart> {
        let mut bytes: u64 = self.manifest.parts.iter().map(|part| part.bytes).sum();
        let mut removed = Vec::new();
        while bytes > bytes_max && self.manifest.parts.len() > 1 {
            let oldest = (0..self.manifest.parts.len()).min_by_key(|at| self.manifest.parts[*at].begin_ns);
            let part = self.manifest.parts.remove(oldest.unwrap_or(0));
            bytes -= part.bytes;
            self.manifest.events -= part.events.min(self.manifest.events);
            self.manifest.note("events that were removed because the trace had reached its size", part.events);
            removed.push(part);
        }
        if !removed.is_empty() {
            self.begin_ns = self.manifest.parts.iter().map(|part| part.begin_ns).min();
        }
        removed
    }

    /// Removes files that the manifest does not name any more. One that cannot be removed is the next resumption's.
    pub(crate) fn remove_files(&self, parts: &[TracePart]) {
        for part in parts {
            let path = self.dir.join(&part.file);
            drop(fs::remove_file(&path));
            // The last file of an hour leaves an empty directory.
            drop(path.parent().map(fs::remove_dir));
        }
    }

    /// Removes what was written of a trace that cannot be finished.
    pub fn abandon(self) {
        // The directory was empty before: everything in it is of this trace.
        for name in ["events", "paths.parquet", "names.parquet", "actors.parquet"] {
            let path = self.dir.join(name);
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            drop(removed);
        }
        // A directory that others use, or have filled meanwhile, stays.
        if self.is_made {
            drop(fs::remove_dir(&self.dir));
        }
    }
}

/// Removes parts that a killed program wrote and did not name. Only names that this code gives, in directories of the
/// trace: what lies there else, or where a link leads, belongs to others.
fn remove_unnamed(dir: &Path, manifest: &Manifest) -> Result<(), TraceFileError> {
    for hour in list(&dir.join("events"))? {
        let is_dir = fs::symlink_metadata(&hour).is_ok_and(|found| found.is_dir());
        let name = hour.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !is_dir || !name.starts_with("hour=") {
            continue;
        }
        for file in list(&hour)? {
            let part = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let part = TracePart { file: format!("events/{name}/{part}"), ..TracePart::default() };
            let whole = TracePart { file: part.file.trim_end_matches(".partial").to_owned(), ..TracePart::default() };
            let is_named = manifest.parts.iter().any(|named| named.file == part.file);
            let is_file = fs::symlink_metadata(&file).is_ok_and(|found| found.is_file());
            if whole.number().is_some() && is_file && !is_named {
                fs::remove_file(&file).map_err(TraceFileError::system("remove", &file))?;
            }
        }
    }
    Ok(())
}

/// `2026-11-28T12`.
fn hour_name(hour: i64) -> String {
    let time = jiff::Timestamp::from_second(hour.saturating_mul(3600));
    time.map_or_else(|_| format!("hour{hour}"), |time| time.strftime("%Y-%m-%dT%H").to_string())
}

fn paths_table(names: &TraceNames, rules: &KindRules) -> Vec<TableColumn> {
    let kinds: Vec<PathKind> = names
        .paths
        .values()
        .map(|path| path.kind.clone().unwrap_or_else(|| rules.kind_of(path.text.as_deref().unwrap_or_default())))
        .collect();
    let numbers = |values: Vec<Option<i64>>| ColumnValues::Numbers(values);
    vec![
        TableColumn { name: "path", values: numbers(names.paths.keys().map(|hash| Some(*hash as i64)).collect()) },
        TableColumn {
            name: "parent",
            values: numbers(names.paths.values().map(|path| path.parent.map(|hash| hash as i64)).collect()),
        },
        TableColumn {
            name: "kind",
            values: ColumnValues::Texts(kinds.iter().map(|kind| Some(kind.kind.clone())).collect()),
        },
        TableColumn {
            name: "family",
            values: ColumnValues::Texts(kinds.iter().map(|kind| kind.family.clone()).collect()),
        },
        TableColumn {
            name: "extension",
            values: ColumnValues::Texts(kinds.iter().map(|kind| kind.extension.clone()).collect()),
        },
    ]
}

fn names_table(names: &TraceNames) -> Vec<TableColumn> {
    let named = || names.paths.iter().filter_map(|(hash, path)| Some((hash, path.text.as_ref()?)));
    vec![
        TableColumn {
            name: "path",
            values: ColumnValues::Numbers(named().map(|(hash, _)| Some(*hash as i64)).collect()),
        },
        TableColumn {
            name: "text",
            values: ColumnValues::Texts(named().map(|(_, text)| Some(escaped(text))).collect()),
        },
    ]
}

fn actors_table(names: &TraceNames) -> Vec<TableColumn> {
    let actors = names.actors.values();
    let texts = |get: fn(&TracedActor) -> Option<String>| ColumnValues::Texts(actors.clone().map(get).collect());
    vec![
        TableColumn {
            name: "actor",
            values: ColumnValues::Numbers(names.actors.keys().map(|number| Some(*number as i64)).collect()),
        },
        TableColumn {
            name: "uid",
            values: ColumnValues::Numbers(actors.clone().map(|actor| actor.uid.map(i64::from)).collect()),
        },
        TableColumn { name: "program", values: texts(|actor| actor.program.clone()) },
        TableColumn { name: "host", values: texts(|actor| actor.host.clone()) },
    ]
}

/// A path as text: bytes that are no UTF-8 as `\xNN`, and a backslash as `\\`.
pub(crate) fn escaped(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        text.push_str(&chunk.valid().replace('\\', "\\\\"));
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// The bytes of a path that [`escaped`] made.
pub(crate) fn unescaped(text: &str) -> Vec<u8> {
    let (mut path, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some(at) = rest.find('\\') {
        path.extend_from_slice(&rest.as_bytes()[..at]);
        let after = &rest[at + 1..];
        let byte = after.strip_prefix('x').and_then(|hex| hex.get(..2)).map(|hex| u8::from_str_radix(hex, 16));
        match byte {
            Some(Ok(byte)) => {
                path.push(byte);
                rest = &after[3..];
            }
            _ => {
                path.push(b'\\');
                rest = after.strip_prefix('\\').unwrap_or(after);
            }
        }
    }
    path.extend_from_slice(rest.as_bytes());
    path
}
