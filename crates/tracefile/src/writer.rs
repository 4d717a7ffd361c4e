//! Writes a trace directory.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::columns::{ColumnValues, TableColumn, write_events, write_table};
use crate::error::TraceFileError;
use crate::kinds::{KindRules, PathKind};
use crate::manifest::Manifest;
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
        let mut entries = fs::read_dir(dir).map_err(TraceFileError::system("read", dir))?;
        if entries.next().is_some() {
            return Err(TraceFileError::NotEmpty { path: dir.to_owned() });
        }
        Ok(TraceWriter {
            dir: dir.to_owned(),
            is_made,
            manifest,
            rows: Vec::new(),
            parts: BTreeMap::new(),
            has_value: [false; COLUMNS.len()],
            begin_ns: None,
            end_ns: i64::MIN,
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
        self.manifest.events += 1;
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

    fn write_rows(&mut self) -> Result<(), TraceFileError> {
        self.rows.sort_by_key(|row| row.start_ns);
        for rows in self.rows.chunk_by(|a, b| a.start_ns.div_euclid(HOUR_NS) == b.start_ns.div_euclid(HOUR_NS)) {
            let hour = rows[0].start_ns.div_euclid(HOUR_NS);
            let dir = self.dir.join("events").join(format!("hour={}", hour_name(hour)));
            fs::create_dir_all(&dir).map_err(TraceFileError::system("create", &dir))?;
            let number = self.parts.entry(hour).or_default();
            write_events(&dir.join(format!("part-{number}.parquet")), rows)?;
            *number += 1;
        }
        self.rows.clear();
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
        if self.parts.is_empty() && self.rows.is_empty() {
            let dir = self.dir.join("events");
            fs::create_dir_all(&dir).map_err(TraceFileError::system("create", &dir))?;
        }
        self.write_rows()?;
        write_table(&self.dir.join("paths.parquet"), 0o666, &paths_table(names, rules))?;
        if keeps_names {
            write_table(&self.dir.join("names.parquet"), 0o600, &names_table(names))?;
            write_table(&self.dir.join("actors.parquet"), 0o600, &actors_table(names))?;
        }
        self.manifest.begin_ns = self.begin_ns.unwrap_or(0);
        self.manifest.end_ns = self.end_ns.max(self.manifest.begin_ns);
        let absent = COLUMNS.iter().zip(self.has_value).filter(|(column, has_value)| column.is_optional && !has_value);
        self.manifest.absent = absent.map(|(column, _)| column.name.to_owned()).collect();
        self.manifest.store(&self.dir)?;
        Ok(self.manifest)
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
