//! Pages of history: versions of a file, events of a tree, differences, deleted names, sessions, snapshots.

use frieze_client::{HistoryInterval, Hlc, Target};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::client::PythonClient;
use crate::columns::{self, Columns};
use crate::errors::exception;

/// A page of history: the rows, the sessions that they name, and the rest of the interval (exclusive start, inclusive
/// end), if there is any.
type HistoryPage<'py> = (Bound<'py, PyDict>, Bound<'py, PyDict>, Option<(u64, u64)>);

/// Deleted names, the sessions, and the name to continue after.
type DeletedPage<'py> = (Bound<'py, PyDict>, Bound<'py, PyDict>, Option<Vec<u8>>);

/// A page of the versions of a file, the newest first or the oldest first.
#[pyfunction]
#[pyo3(signature = (client, path, at, after, upto, newest_first=true, count_max=0))]
pub(crate) fn log_page<'py>(
    client: &Bound<'py, PythonClient>,
    path: &[u8],
    at: Option<u64>,
    after: u64,
    upto: u64,
    newest_first: bool,
    count_max: u32,
) -> PyResult<HistoryPage<'py>> {
    let py = client.py();
    let interval = HistoryInterval { after: Hlc(after), upto: Hlc(upto) };
    let page = client.get().call(py, at, path, |fs, target| match newest_first {
        true => fs.log_newest(&target, interval, count_max),
        false => fs.log(&target, interval, count_max),
    })?;
    let last = page.versions.last().map_or(upto, |version| version.stamp);
    let rest = if newest_first { (after, page.after) } else { (last, upto) };
    let rest = Some(rest).filter(|(after, upto)| page.more && after < upto);
    Ok((columns::versions(py, &page.versions)?, columns::sessions(py, &page.sessions)?, rest))
}

/// A page of the events of a directory, with `recursive` of everything below it, the newest first or the oldest first.
#[pyfunction]
#[pyo3(signature = (client, path, at, after, upto, recursive=true, newest_first=true, count_max=0))]
#[expect(clippy::too_many_arguments, reason = "each is a keyword argument of Python")]
pub(crate) fn story_page<'py>(
    client: &Bound<'py, PythonClient>,
    path: &[u8],
    at: Option<u64>,
    after: u64,
    upto: u64,
    recursive: bool,
    newest_first: bool,
    count_max: u32,
) -> PyResult<HistoryPage<'py>> {
    let py = client.py();
    let interval = HistoryInterval { after: Hlc(after), upto: Hlc(upto) };
    let page = client.get().call(py, at, path, |fs, target| match newest_first {
        true => fs.story_newest(&target, interval, recursive, count_max),
        false => fs.story(&target, interval, recursive, count_max),
    })?;
    let rest = match newest_first {
        true => (after, page.after),
        false => (page.upto, upto),
    };
    let rest = Some(rest).filter(|(after, upto)| after < upto);
    Ok((columns::differences(py, &page.events)?, columns::sessions(py, &page.sessions)?, rest))
}

/// A page of the differences between two instants: the rows after the first `skip`, the sessions, whether more follow,
/// whether something changed where the caller may not look.
#[pyfunction]
#[pyo3(signature = (client, path, after, upto, skip=0, count_max=0))]
pub(crate) fn diff_page<'py>(
    client: &Bound<'py, PythonClient>,
    path: &[u8],
    after: u64,
    upto: u64,
    skip: u64,
    count_max: u32,
) -> PyResult<(Bound<'py, PyDict>, Bound<'py, PyDict>, bool, bool)> {
    let py = client.py();
    let interval = HistoryInterval { after: Hlc(after), upto: Hlc(upto) };
    let page = client.get().call(py, None, path, |fs, target| fs.diff(&target, interval, skip, count_max))?;
    let more = page.more && !page.differences.is_empty();
    Ok((columns::differences(py, &page.differences)?, columns::sessions(py, &page.sessions)?, more, page.hidden))
}

/// A page of the names that once were in a directory and are not at the view, and the name to continue after.
#[pyfunction]
#[pyo3(signature = (client, path, at=None, after=None))]
pub(crate) fn deleted_page<'py>(
    client: &Bound<'py, PythonClient>,
    path: &[u8],
    at: Option<u64>,
    after: Option<&[u8]>,
) -> PyResult<DeletedPage<'py>> {
    let py = client.py();
    let after = after.unwrap_or_default();
    let page = client.get().call(py, at, path, |fs, target| fs.deleted(&target, after, 0))?;
    let rows = Columns::of(py, &page.names)
        .with_text("path", |row| Some(&row.was.path[..]))?
        .with("inode", |row| row.was.inode)?
        .with("kind", |row| crate::client::kind_word(row.was.kind()))?
        .with("size", |row| row.was.size)?
        .with("stamp", |row| row.stamp)?
        .with("session", |row| row.session)?
        .with("uid", |row| row.uid)?
        .with_text("moved_to", |row| Some(&row.moved_to[..]).filter(|path| !path.is_empty()))?;
    let next = Some(page.next).filter(|next| !next.is_empty());
    Ok((rows.done(), columns::sessions(py, &page.sessions)?, next))
}

/// The newest instant at which a path existed; `None` if it exists now.
#[pyfunction]
pub(crate) fn last_existed(client: &Bound<'_, PythonClient>, path: &[u8]) -> PyResult<Option<u64>> {
    let reply = client.get().call(client.py(), None, path, |fs, _: Target| fs.last_existed(path))?;
    Ok(Some(reply.at).filter(|at| *at != 0))
}

/// A page of the sessions that were open after `since`, and whether more follow.
#[pyfunction]
#[pyo3(signature = (client, since=0, after=0))]
pub(crate) fn sessions_page<'py>(
    client: &Bound<'py, PythonClient>,
    since: u64,
    after: u64,
) -> PyResult<(Bound<'py, PyDict>, bool)> {
    let py = client.py();
    let caller = client.get().client(py)?;
    let page = py.detach(|| caller.sessions_page(Hlc(since), after, 0)).map_err(|error| exception(py, error, None))?;
    let more = page.more && !page.sessions.is_empty();
    Ok((columns::sessions(py, &page.sessions)?, more))
}

/// The named instants: name, instant, stamp of their making, user.
#[pyfunction]
pub(crate) fn snapshots(client: &Bound<'_, PythonClient>) -> PyResult<Vec<(String, u64, u64, u32)>> {
    let py = client.py();
    let caller = client.get().client(py)?;
    let all = py.detach(|| caller.snapshots()).map_err(|error| exception(py, error, None))?;
    Ok(all.into_iter().map(|snapshot| (snapshot.name, snapshot.at, snapshot.made, snapshot.uid)).collect())
}
