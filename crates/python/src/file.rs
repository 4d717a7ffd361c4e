//! `File`: an open file. Offsets are given with each call; positions and buffers are Python's.

use std::sync::{Arc, Mutex, PoisonError};

use frieze_client::{CreateMode, Error, File, Fs, InodeId, OpenFlags, Reason, Target};
use pyo3::prelude::*;

use crate::buffers::{ReadableBuffer, WritableBuffer, filled_bytes};
use crate::client::{AttributeRow, PythonClient, attribute_row, umask};
use crate::errors::{exception, fault};
use crate::per_process::PerProcess;
use crate::read_ahead::ReadAhead;

/// An open file. In a forked process a file that was opened to read is opened anew; one that was opened to write is
/// refused there, since two processes would write as one session.
#[pyclass(name = "File", module = "frieze._frieze", frozen)]
pub(crate) struct PythonFile {
    client: Py<PythonClient>,
    path: Vec<u8>,
    at: Option<u64>,
    flags: OpenFlags,
    inode: InodeId,
    opened: PerProcess<OpenedFile>,
}

struct OpenedFile {
    file: Arc<File>,
    ahead: Mutex<ReadAhead>,
}

impl OpenedFile {
    fn new(file: File) -> Arc<OpenedFile> {
        Arc::new(OpenedFile { file: Arc::new(file), ahead: Mutex::default() })
    }

    fn ahead(&self) -> std::sync::MutexGuard<'_, ReadAhead> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens a regular file. `create`: `never`, `if_absent` or `exclusive`; with `truncate` an existing file is emptied.
#[pyfunction]
#[pyo3(signature = (client, path, at=None, read=true, write=false, create="never", truncate=false, mode=0o666))]
#[expect(clippy::too_many_arguments, reason = "each is a keyword argument of Python")]
pub(crate) fn open_file(
    client: &Bound<'_, PythonClient>,
    path: &[u8],
    at: Option<u64>,
    read: bool,
    write: bool,
    create: &str,
    truncate: bool,
    mode: u32,
) -> PyResult<PythonFile> {
    let flags = OpenFlags { read, write };
    let create = match create {
        "never" => None,
        "if_absent" => Some(CreateMode::OpenExisting),
        "exclusive" => Some(CreateMode::Exclusive),
        other => {
            let words = format!("create={other:?}: give never, if_absent or exclusive");
            return Err(fault(client.py(), Reason::InvalidArgument, words, Some(path)));
        }
    };
    let file = client.get().call(client.py(), at, path, |fs, target| {
        let file = match create {
            None => fs.open(&target, flags)?,
            Some(create) => fs.with_umask(umask()).create_with(&target, mode, create, flags)?,
        };
        if truncate && file.attr().size > 0 {
            file.set_len(0)?;
        }
        Ok(file)
    })?;
    let (client, path, inode) = (client.clone().unbind(), path.to_vec(), file.inode());
    Ok(PythonFile { client, path, at, flags, inode, opened: PerProcess::new(OpenedFile::new(file)) })
}

impl PythonFile {
    /// The open file of this process.
    fn opened(&self, py: Python<'_>) -> PyResult<Arc<OpenedFile>> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        if !self.opened.is_of_parent() {
            return Err(fault(py, Reason::InvalidArgument, "the file is closed", Some(&self.path)));
        }
        if self.flags.write {
            let words = "it was opened to write before this process was forked: open it here";
            return Err(fault(py, Reason::Unsupported, words, Some(&self.path)));
        }
        let (fs, inode, flags) = (self.client.get().fs(py, self.at)?, self.inode, self.flags);
        let open = |fs: &Fs| fs.open(&Target::inode(inode), flags);
        let file = py.detach(|| open(&fs)).map_err(|error| self.failed(py, error))?;
        Ok(self.opened.renew(OpenedFile::new(file)))
    }

    fn call<T: Send>(&self, py: Python<'_>, call: impl FnOnce(&OpenedFile) -> Result<T, Error> + Send) -> PyResult<T> {
        let opened = self.opened(py)?;
        py.detach(|| call(&opened)).map_err(|error| self.failed(py, error))
    }

    fn failed(&self, py: Python<'_>, error: Error) -> PyErr {
        exception(py, error, Some(&self.path))
    }
}

impl Drop for PythonFile {
    fn drop(&mut self) {
        self.opened.drop_detached();
    }
}

#[pymethods]
impl PythonFile {
    /// Its inode.
    #[getter]
    fn inode(&self) -> u64 {
        self.inode.0
    }

    /// The attributes when it was opened.
    fn attributes(&self, py: Python<'_>) -> PyResult<AttributeRow> {
        Ok(attribute_row(self.opened(py)?.file.attr()))
    }

    /// The attributes now, or at the instant that it was opened at.
    fn stat(&self, py: Python<'_>) -> PyResult<AttributeRow> {
        let reply = self.call(py, |opened| opened.file.stat())?;
        Ok(attribute_row(&reply.attr))
    }

    /// Reads into a buffer; returns how many bytes: fewer than it holds only at the end of the file. With `ahead` a
    /// thread reads on where calls follow each other.
    #[pyo3(signature = (offset, buffer, ahead=false))]
    fn read_into(&self, py: Python<'_>, offset: u64, buffer: &Bound<'_, PyAny>, ahead: bool) -> PyResult<usize> {
        let mut buffer = WritableBuffer::of(buffer)?;
        let into = buffer.as_mut_slice();
        self.call(py, |opened| match ahead {
            true => opened.ahead().read(&opened.file, offset, into),
            false => opened.file.read_at(offset, into),
        })
    }

    /// Reads up to `len` bytes; fewer only at the end of the file.
    fn read<'py>(&self, py: Python<'py>, offset: u64, len: usize) -> PyResult<Bound<'py, PyAny>> {
        let opened = self.opened(py)?;
        filled_bytes(py, len, |into| {
            py.detach(|| opened.file.read_at(offset, into)).map_err(|error| self.failed(py, error))
        })
    }

    /// Writes all of `data`; returns the stamp of the last write.
    fn write(&self, py: Python<'_>, offset: u64, data: &Bound<'_, PyAny>) -> PyResult<u64> {
        let data = ReadableBuffer::of(data)?;
        let bytes = data.as_slice();
        self.call(py, |opened| {
            opened.ahead().stop();
            opened.file.write_at(offset, bytes).map(|stamp| stamp.0)
        })
    }

    /// Appends all of `data`, 4 MiB at most, in one piece; returns where.
    fn append(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<u64> {
        let data = ReadableBuffer::of(data)?;
        let bytes = data.as_slice();
        self.call(py, |opened| {
            opened.ahead().stop();
            opened.file.append(bytes).map(|reply| reply.offset)
        })
    }

    /// Truncates the file, or extends it with a hole.
    fn truncate(&self, py: Python<'_>, len: u64) -> PyResult<()> {
        self.call(py, |opened| {
            opened.ahead().stop();
            opened.file.set_len(len)
        })
    }

    /// Makes everything written durable.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, |opened| opened.file.sync())
    }

    /// Closes the file: its length is settled when this returns.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(opened) = self.opened.take() else { return Ok(()) };
        py.detach(|| {
            opened.ahead().stop();
            // A file that another thread reads just now is closed when that ends.
            match Arc::try_unwrap(opened).map(|opened| Arc::try_unwrap(opened.file)) {
                Ok(Ok(file)) => file.close(),
                _ => Ok(()),
            }
        })
        .map_err(|error| self.failed(py, error))
    }
}
