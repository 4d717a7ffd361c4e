//! Reads a trace directory.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::columns::{ColumnKind, ColumnValues, EventsFile, read_table};
use crate::error::TraceFileError;
use crate::kinds::PathKind;
use crate::manifest::Manifest;
use crate::row::TraceRow;
use crate::writer::{TraceNames, TracedActor, TracedPath, unescaped};

/// A trace whose manifest is read.
#[derive(Debug)]
pub struct TraceReader {
    dir: PathBuf,
    manifest: Manifest,
    files: Vec<PathBuf>,
}

impl TraceReader {
    /// Opens a trace.
    ///
    /// # Errors
    /// `NoTrace`, `Bad`, `System`.
    pub fn open(dir: &Path) -> Result<TraceReader, TraceFileError> {
        let manifest = Manifest::load(dir)?;
        let mut files = Vec::new();
        let events = dir.join("events");
        for hour in list(&events)?.into_iter().filter(|hour| hour.is_dir()) {
            files.extend(list(&hour)?.into_iter().filter(|file| file.extension().is_some_and(|ext| ext == "parquet")));
        }
        if let Some(part) = manifest.parts.iter().find(|part| !files.contains(&dir.join(&part.file))) {
            let why = format!("it is missing, with {} events: copy the trace again", part.events);
            return Err(TraceFileError::bad(&dir.join(&part.file), why));
        }
        Ok(TraceReader { dir: dir.to_owned(), manifest, files })
    }

    /// What the trace says of itself.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Gives all events to `visit`, in groups: each is sorted by start, and so are the files of an hour in most traces,
    /// but events of one hour may be spread over groups.
    ///
    /// # Errors
    /// `Bad` with file, column and row; `System`; those of `visit`.
    pub fn for_each_group<E: From<TraceFileError>>(
        &self,
        mut visit: impl FnMut(Vec<TraceRow>) -> Result<(), E>,
    ) -> Result<(), E> {
        for path in &self.files {
            let file = EventsFile::open(path)?;
            for number in 0..file.group_count() {
                visit(file.read(number)?)?;
            }
        }
        Ok(())
    }

    /// All events, by start. A trace of 10 million events takes some 2 GiB: larger ones are read by groups.
    ///
    /// # Errors
    /// As [`TraceReader::for_each_group`].
    pub fn rows(&self) -> Result<Vec<TraceRow>, TraceFileError> {
        let mut all = Vec::new();
        self.for_each_group(|rows| -> Result<(), TraceFileError> {
            all.extend(rows);
            Ok(())
        })?;
        all.sort_by_key(|row| row.start_ns);
        Ok(all)
    }

    /// Kinds of paths, and the words that the trace still has.
    ///
    /// # Errors
    /// As [`TraceReader::for_each_group`].
    pub fn names(&self) -> Result<TraceNames, TraceFileError> {
        let mut names = TraceNames::default();
        let columns = [
            ("path", ColumnKind::Wide),
            ("parent", ColumnKind::Wide),
            ("kind", ColumnKind::Text),
            ("family", ColumnKind::Text),
            ("extension", ColumnKind::Text),
        ];
        let mut table = NamedColumns::read(&self.dir.join("paths.parquet"), &columns)?;
        for row in 0..table.rows() {
            let Some(path) = table.number(0, row) else { continue };
            let kind = table.text(2, row).map(|kind| PathKind {
                kind,
                family: table.text(3, row),
                extension: table.text(4, row),
            });
            names.paths.insert(path, TracedPath { text: None, parent: table.number(1, row), kind });
        }
        let named = self.dir.join("names.parquet");
        if named.exists() {
            table = NamedColumns::read(&named, &[("path", ColumnKind::Wide), ("text", ColumnKind::Text)])?;
            for row in 0..table.rows() {
                if let (Some(path), Some(text)) = (table.number(0, row), table.text(1, row)) {
                    names.paths.entry(path).or_default().text = Some(unescaped(&text));
                }
            }
        }
        let actors = self.dir.join("actors.parquet");
        if actors.exists() {
            let columns = [
                ("actor", ColumnKind::Wide),
                ("uid", ColumnKind::Wide),
                ("program", ColumnKind::Text),
                ("host", ColumnKind::Text),
            ];
            table = NamedColumns::read(&actors, &columns)?;
            for row in 0..table.rows() {
                let Some(number) = table.number(0, row) else { continue };
                let uid = table.number(1, row).and_then(|uid| u32::try_from(uid).ok());
                let actor = TracedActor { uid, program: table.text(2, row), host: table.text(3, row) };
                names.actors.insert(number, actor);
            }
        }
        Ok(names)
    }
}

/// Columns of a table in memory.
struct NamedColumns(Vec<ColumnValues>);

impl NamedColumns {
    fn read(path: &Path, columns: &[(&str, ColumnKind)]) -> Result<NamedColumns, TraceFileError> {
        read_table(path, columns).map(NamedColumns)
    }

    fn rows(&self) -> usize {
        self.0.first().map_or(0, |column| match column {
            ColumnValues::Numbers(values) => values.len(),
            ColumnValues::Texts(values) => values.len(),
        })
    }

    fn number(&self, column: usize, row: usize) -> Option<u64> {
        match &self.0[column] {
            ColumnValues::Numbers(values) => values[row].map(|value| value as u64),
            ColumnValues::Texts(_) => None,
        }
    }

    fn text(&self, column: usize, row: usize) -> Option<String> {
        match &self.0[column] {
            ColumnValues::Texts(values) => values[row].clone(),
            ColumnValues::Numbers(_) => None,
        }
    }
}

/// Entries of a directory, by name.
pub(crate) fn list(dir: &Path) -> Result<Vec<PathBuf>, TraceFileError> {
    let entries = fs::read_dir(dir).map_err(TraceFileError::system("read", dir))?;
    let mut paths = BTreeMap::new();
    for entry in entries {
        let path = entry.map_err(TraceFileError::system("read", dir))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // `part-10` follows `part-9`.
        paths.insert((name.len(), name), path);
    }
    Ok(paths.into_values().collect())
}
