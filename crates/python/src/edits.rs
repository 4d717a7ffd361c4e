//! Composite changes: clone, restore, undo, removal of a tree. Each is one change at one stamp.

use frieze_client::{EditReply, Hlc, Reason, Target, Undo};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::client::PythonClient;
use crate::columns;
use crate::errors::fault;

/// What a change did: its stamp (0 for a dry run, or if nothing was done), the instant that older states were taken at
/// (0 for none), how many actions there are, and those that fit into the reply.
type EditRow<'py> = (u64, u64, u64, Bound<'py, PyDict>);

/// Makes `target` a clone of `path` at an instant.
#[pyfunction]
#[pyo3(signature = (client, path, target, at=None, dry_run=false))]
pub(crate) fn clone_tree<'py>(
    client: &Bound<'py, PythonClient>,
    path: &[u8],
    target: &[u8],
    at: Option<u64>,
    dry_run: bool,
) -> PyResult<EditRow<'py>> {
    let reply = client.get().call(client.py(), at, path, |fs, source| {
        fs.clone_tree(&source, &Target { follow: false, ..Target::path(target) }, dry_run)
    })?;
    row(client, reply, path)
}

/// Restores a file or tree to its state at an instant.
#[pyfunction]
#[pyo3(signature = (client, path, to, delete=false, dry_run=false))]
pub(crate) fn restore<'py>(
    client: &Bound<'py, PythonClient>,
    path: &[u8],
    to: u64,
    delete: bool,
    dry_run: bool,
) -> PyResult<EditRow<'py>> {
    let reply =
        client.get().call(client.py(), None, path, |fs, target| fs.restore(&target, Hlc(to), delete, dry_run))?;
    row(client, reply, path)
}

/// Undoes the changes of sessions, of a user, or of an interval.
#[pyfunction]
#[pyo3(signature = (client, path, sessions, uid=None, after=0, upto=0, dry_run=false))]
pub(crate) fn undo<'py>(
    client: &Bound<'py, PythonClient>,
    path: &[u8],
    sessions: Vec<u64>,
    uid: Option<u32>,
    after: u64,
    upto: u64,
    dry_run: bool,
) -> PyResult<EditRow<'py>> {
    let reply = client
        .get()
        .call(client.py(), None, path, |fs, target| fs.undo(Undo { target, sessions, uid, after, upto, dry_run }))?;
    row(client, reply, path)
}

/// Removes a file, or a directory with everything below it.
#[pyfunction]
#[pyo3(signature = (client, path, at=None, dry_run=false))]
pub(crate) fn remove_tree<'py>(
    client: &Bound<'py, PythonClient>,
    path: &[u8],
    at: Option<u64>,
    dry_run: bool,
) -> PyResult<EditRow<'py>> {
    let reply = client
        .get()
        .call(client.py(), at, path, |fs, target| fs.remove_tree(&Target { follow: false, ..target }, dry_run))?;
    row(client, reply, path)
}

fn row<'py>(client: &Bound<'py, PythonClient>, reply: EditReply, path: &[u8]) -> PyResult<EditRow<'py>> {
    let py = client.py();
    if reply.refused != 0 {
        // A dry run ends as the real one would.
        return Err(fault(py, Reason::from_code(reply.refused), reply.refused_words, Some(path)));
    }
    Ok((reply.stamp, reply.at, reply.count, columns::actions(py, &reply.actions)?))
}
