//! Rows as columns: a dictionary of lists, from which Python makes objects, or an Arrow table at once.

use frieze_client::{Attr, Difference, EditAction, SessionInfo, Side, Version};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::client::kind_word;
use crate::errors::text;

/// Columns of rows of one kind.
pub(crate) struct Columns<'py, 'r, T> {
    py: Python<'py>,
    rows: &'r [T],
    columns: Bound<'py, PyDict>,
}

impl<'py, 'r, T> Columns<'py, 'r, T> {
    /// No columns yet.
    pub(crate) fn of(py: Python<'py>, rows: &'r [T]) -> Columns<'py, 'r, T> {
        Columns { py, rows, columns: PyDict::new(py) }
    }

    /// Adds a column of numbers, words, or whatever Python has a type for.
    pub(crate) fn with<V: IntoPyObject<'py>>(self, name: &str, value: impl Fn(&'r T) -> V) -> PyResult<Self> {
        let column = PyList::empty(self.py);
        for row in self.rows {
            column.append(value(row))?;
        }
        self.columns.set_item(name, column)?;
        Ok(self)
    }

    /// Adds a column of paths or names.
    pub(crate) fn with_text(self, name: &str, value: impl Fn(&'r T) -> Option<&'r [u8]>) -> PyResult<Self> {
        let column = PyList::empty(self.py);
        for row in self.rows {
            match value(row) {
                Some(bytes) => column.append(text(self.py, bytes)?)?,
                None => column.append(self.py.None())?,
            }
        }
        self.columns.set_item(name, column)?;
        Ok(self)
    }

    /// The columns.
    pub(crate) fn done(self) -> Bound<'py, PyDict> {
        self.columns
    }
}

/// Attributes of names.
pub(crate) fn attributes<'py, 'r, T>(
    columns: Columns<'py, 'r, T>,
    attr: impl Fn(&'r T) -> &'r Attr + Copy,
) -> PyResult<Columns<'py, 'r, T>> {
    columns
        .with("mode", move |row| attr(row).mode)?
        .with("links", move |row| attr(row).links)?
        .with("uid", move |row| attr(row).uid)?
        .with("gid", move |row| attr(row).gid)?
        .with("size", move |row| attr(row).size)?
        .with("bytes_live", move |row| attr(row).bytes_live)?
        .with("atime_ns", move |row| attr(row).atime_ns)?
        .with("mtime_ns", move |row| attr(row).mtime_ns)?
        .with("ctime_ns", move |row| attr(row).ctime_ns)?
        .with("born", move |row| attr(row).born)?
        .with("changed", move |row| attr(row).changed)
}

/// Differences, or events of a tree.
pub(crate) fn differences<'py>(py: Python<'py>, rows: &[Difference]) -> PyResult<Bound<'py, PyDict>> {
    let columns = Columns::of(py, rows)
        .with("change", change_word)?
        .with("what", |row| row.words())?
        .with_text("path", |row| named(row).map(|side| &side.path[..]))?
        .with_text("path_before", |row| {
            row.before.as_ref().filter(|_| change_word(row) == "renamed").map(|side| &side.path[..])
        })?
        .with("inode", |row| named(row).map(|side| side.inode))?
        .with("kind", |row| named(row).map(|side| kind_word(side.kind())))?
        .with("size_before", |row| row.before.as_ref().map(|side| side.size))?
        .with("size_after", |row| row.after.as_ref().map(|side| side.size))?
        .with("mode_before", |row| row.before.as_ref().map(|side| side.mode))?
        .with("mode_after", |row| row.after.as_ref().map(|side| side.mode))?
        .with("bytes", |row| row.spans.iter().map(|span| span.len).sum::<u64>())?
        .with("spans", |row| row.spans.iter().map(|span| (span.offset, span.len)).collect::<Vec<_>>())?
        .with("stamp", |row| row.stamp)?
        .with("session", |row| row.session)?
        .with("uid", |row| row.uid)?;
    Ok(columns.done())
}

/// Versions of one file.
pub(crate) fn versions<'py>(py: Python<'py>, rows: &[Version]) -> PyResult<Bound<'py, PyDict>> {
    let columns = Columns::of(py, rows)
        .with("change", |row| row.kind().word())?
        .with_text("name", |row| Some(&row.name[..]).filter(|name| !name.is_empty()))?
        .with("offset", |row| row.offset)?
        .with("len", |row| row.len)?
        .with("user_time_ns", |row| row.user_time)?
        .with("stamp", |row| row.stamp)?
        .with("session", |row| row.session)?
        .with("uid", |row| row.uid)?;
    Ok(columns.done())
}

/// Actions of a composite change.
pub(crate) fn actions<'py>(py: Python<'py>, rows: &[EditAction]) -> PyResult<Bound<'py, PyDict>> {
    let columns = Columns::of(py, rows)
        .with("action", |row| row.kind().word())?
        .with_text("path", |row| Some(&row.path[..]))?
        .with("inode", |row| row.inode)?
        .with("offset", |row| row.offset)?
        .with("len", |row| row.len)?
        .with("words", |row| &row.words[..])?;
    Ok(columns.done())
}

/// Sessions by number: user, command, host, stamp of the end.
pub(crate) fn sessions<'py>(py: Python<'py>, rows: &[SessionInfo]) -> PyResult<Bound<'py, PyDict>> {
    let columns = Columns::of(py, rows)
        .with("session", |row| row.id)?
        .with("uid", |row| row.uid)?
        .with("command", |row| Some(&row.command[..]).filter(|_| !row.hidden))?
        .with("host", |row| Some(&row.host[..]).filter(|_| !row.hidden))?
        .with("ended", |row| (row.ended != 0).then_some(row.ended))?
        .with("last", |row| (row.last != 0).then_some(row.last))?;
    Ok(columns.done())
}

/// The side that names it: that of the end, else that of the start.
fn named(row: &Difference) -> Option<&Side> {
    row.after.as_ref().or(row.before.as_ref())
}

fn change_word(row: &Difference) -> &'static str {
    match (&row.before, &row.after) {
        (None, _) => "added",
        (_, None) => "removed",
        (Some(before), Some(after)) if before.path != after.path => "renamed",
        _ => "modified",
    }
}
