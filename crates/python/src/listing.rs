//! Pages of directories.

use frieze_client::{Attr, DirEntry, FileKind, Hlc, InodeId, ListReply};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString};

use crate::client::{AttributeRow, PythonClient, attribute_row, kind_word};
use crate::columns::{Columns, attributes};
use crate::errors::text;

/// A name in a directory, with the attributes of what it names. They become objects of Python when they are read.
#[pyclass(name = "Entry", module = "frieze._frieze", frozen)]
pub(crate) struct PythonEntry {
    name: Py<PyAny>,
    /// Path of the directory, with a slash at its end.
    directory: Py<PyString>,
    attr: Attr,
}

#[pymethods]
impl PythonEntry {
    /// The name.
    #[getter]
    fn name(&self, py: Python<'_>) -> Py<PyAny> {
        self.name.clone_ref(py)
    }

    /// The path from the root.
    #[getter]
    fn path<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.directory.bind(py).add(self.name.bind(py))
    }

    /// `file`, `directory`, `link`, `fifo`, `socket`, `char-device` or `block-device`.
    #[getter]
    fn kind(&self) -> &'static str {
        kind_word(self.attr.kind())
    }

    /// The length in bytes.
    #[getter]
    fn size(&self) -> u64 {
        self.attr.size
    }

    /// True for a directory; a symbolic link is none.
    fn is_dir(&self) -> bool {
        self.attr.kind() == FileKind::Directory
    }

    /// True for a regular file.
    fn is_file(&self) -> bool {
        self.attr.kind() == FileKind::File
    }

    /// True for a symbolic link.
    fn is_symlink(&self) -> bool {
        self.attr.kind() == FileKind::Symlink
    }

    /// The attributes, as `FileSystem.lstat` has them.
    #[getter]
    fn stat<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        static STAT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        STAT.import(py, "frieze.filesystem", "_stat_of")?.call1((self.attributes(),))
    }

    /// The same as a dictionary of numbers.
    fn attributes(&self) -> AttributeRow {
        attribute_row(&self.attr)
    }

    /// The dictionary of fsspec.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let attr = &self.attr;
        let (kind, type_bits) = match attr.kind() {
            FileKind::File => ("file", 0o100_000),
            FileKind::Directory => ("directory", 0o040_000),
            FileKind::Symlink => ("other", 0o120_000),
            FileKind::Fifo => ("other", 0o010_000),
            FileKind::Socket => ("other", 0o140_000),
            FileKind::CharDevice => ("other", 0o020_000),
            FileKind::BlockDevice => ("other", 0o060_000),
        };
        let info = PyDict::new(py);
        info.set_item(intern!(py, "name"), self.path(py)?)?;
        info.set_item(intern!(py, "size"), attr.size)?;
        info.set_item(intern!(py, "type"), kind)?;
        info.set_item(intern!(py, "islink"), self.is_symlink())?;
        info.set_item(intern!(py, "mode"), type_bits | attr.mode)?;
        info.set_item(intern!(py, "uid"), attr.uid)?;
        info.set_item(intern!(py, "gid"), attr.gid)?;
        info.set_item(intern!(py, "ino"), attr.inode)?;
        info.set_item(intern!(py, "nlink"), attr.links)?;
        info.set_item(intern!(py, "mtime"), attr.mtime_ns as f64 / 1e9)?;
        info.set_item(intern!(py, "created"), Hlc(attr.born).micros() as f64 / 1e6)?;
        info.set_item(intern!(py, "changed"), attr.changed)?;
        Ok(info)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<Entry {} {}>", self.kind(), self.path(py)?.repr()?))
    }
}

/// A page of a directory as entries: its inode, whether more follow, the entries. `path` is the text of the path.
#[pyfunction]
#[pyo3(signature = (client, path, at=None, directory=None, after=None))]
pub(crate) fn scan_page(
    client: &Bound<'_, PythonClient>,
    path: &[u8],
    at: Option<u64>,
    directory: Option<u64>,
    after: Option<&[u8]>,
) -> PyResult<(u64, bool, Vec<PythonEntry>)> {
    let py = client.py();
    let page = page(client, path, at, directory, after, true)?;
    let start = [path.strip_suffix(b"/").unwrap_or(path), b"/"].concat();
    let start = text(py, &start)?.cast_into::<PyString>()?.unbind();
    let entries = page.entries.into_iter().map(|entry| {
        let attr = entry.attr.unwrap_or_default();
        Ok(PythonEntry { name: text(py, &entry.name)?.unbind(), directory: start.clone_ref(py), attr })
    });
    Ok((page.inode, page.more, entries.collect::<PyResult<_>>()?))
}

fn page(
    client: &Bound<'_, PythonClient>,
    path: &[u8],
    at: Option<u64>,
    directory: Option<u64>,
    after: Option<&[u8]>,
    with_attrs: bool,
) -> PyResult<ListReply> {
    let after = after.unwrap_or_default();
    client.get().call(client.py(), at, path, |fs, target| match directory {
        Some(directory) => fs.list_opened(InodeId(directory), after, 0, with_attrs),
        None => fs.list(&target, after, 0, with_attrs),
    })
}

/// A page of a directory: its inode, whether more follow, and the columns: `names`, names with `kinds`, or
/// `attributes` too. The next page names the inode as `directory` and the last name as `after`: the directory may have
/// been renamed.
#[pyfunction]
#[pyo3(signature = (client, path, at=None, directory=None, after=None, columns="attributes"))]
pub(crate) fn list_page<'py>(
    client: &Bound<'py, PythonClient>,
    path: &[u8],
    at: Option<u64>,
    directory: Option<u64>,
    after: Option<&[u8]>,
    columns: &str,
) -> PyResult<(u64, bool, Bound<'py, PyDict>)> {
    let py = client.py();
    let with_attrs = columns == "attributes";
    let page = page(client, path, at, directory, after, with_attrs)?;
    let names = Columns::of(py, &page.entries).with_text("name", |entry| Some(&entry.name[..]))?;
    if columns == "names" {
        return Ok((page.inode, page.more, names.done()));
    }
    let names =
        names.with("inode", |entry: &DirEntry| entry.inode)?.with("kind", |entry| kind_word(entry.kind()))?.done();
    if with_attrs {
        let none = Attr::default();
        let attrs: Vec<&Attr> = page.entries.iter().map(|entry| entry.attr.as_ref().unwrap_or(&none)).collect();
        let all = attributes(Columns::of(py, &attrs), |attr| attr)?.done();
        names.update(all.as_mapping())?;
    }
    Ok((page.inode, page.more, names))
}
