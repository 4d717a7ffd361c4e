//! Pages of directories.

use frieze_client::{DirEntry, InodeId};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::client::{PythonClient, kind_word};
use crate::columns::{Columns, attributes};

/// A page of a directory: its inode, whether more follow, and the columns. The next page names the inode as `directory`
/// and the last name as `after`: the directory may have been renamed.
#[pyfunction]
#[pyo3(signature = (client, path, at=None, directory=None, after=None, with_attrs=true, count_max=0))]
pub(crate) fn list_page<'py>(
    client: &Bound<'py, PythonClient>,
    path: &[u8],
    at: Option<u64>,
    directory: Option<u64>,
    after: Option<&[u8]>,
    with_attrs: bool,
    count_max: u32,
) -> PyResult<(u64, bool, Bound<'py, PyDict>)> {
    let after = after.unwrap_or_default();
    let page = client.get().call(client.py(), at, path, |fs, target| match directory {
        Some(directory) => fs.list_opened(InodeId(directory), after, count_max, with_attrs),
        None => fs.list(&target, after, count_max, with_attrs),
    })?;
    let columns = Columns::of(client.py(), &page.entries)
        .with_text("name", |entry| Some(&entry.name[..]))?
        .with("inode", |entry: &DirEntry| entry.inode)?
        .with("kind", |entry| kind_word(entry.kind()))?;
    if with_attrs {
        let attrs: Vec<_> = page.entries.iter().map(|entry| entry.attr.clone().unwrap_or_default()).collect();
        let all = attributes(Columns::of(client.py(), &attrs), |attr| attr)?.done();
        let names = columns.done();
        names.update(all.as_mapping())?;
        return Ok((page.inode, page.more, names));
    }
    Ok((page.inode, page.more, columns.done()))
}
