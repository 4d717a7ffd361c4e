//! `Client`: one server, and the calls about names.

use std::sync::Arc;
use std::time::Duration;

use frieze_client::{
    Attr, Client, Durability, Error, FileKind, Fs, Hlc, InodeId, Instant, Key, Options, PrivateFile, Reason,
    RenameMode, ServerAddr, SetAttr, Target, TimeValue, XattrMode, ZonePolicy,
};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::{exception, fault, text};
use crate::per_process::PerProcess;

/// Attributes of an object: a dictionary in Python. Times are in nanoseconds.
#[derive(IntoPyObject)]
pub(crate) struct AttributeRow {
    inode: u64,
    kind: &'static str,
    mode: u32,
    links: u32,
    uid: u32,
    gid: u32,
    size: u64,
    bytes_live: u64,
    atime_ns: i64,
    mtime_ns: i64,
    ctime_ns: i64,
    born: u64,
    changed: u64,
}

/// A client of one server or cluster. In a forked process it connects anew.
#[pyclass(name = "Client", module = "frieze._frieze", frozen)]
pub(crate) struct PythonClient {
    options: Options,
    connected: PerProcess<Client>,
}

impl PythonClient {
    /// The client of this process.
    pub(crate) fn client(&self, py: Python<'_>) -> PyResult<Client> {
        if let Some(client) = self.connected.get() {
            return Ok((*client).clone());
        }
        if !self.connected.is_of_parent() {
            return Err(exception(py, Error::Closed, None));
        }
        let client = connect(py, &self.options)?;
        Ok((*self.connected.renew(Arc::new(client))).clone())
    }

    /// The file system now, or at an instant.
    pub(crate) fn fs(&self, py: Python<'_>, at: Option<u64>) -> PyResult<Fs> {
        let fs = self.client(py)?.fs();
        Ok(match at {
            Some(at) => fs.at(Hlc(at)),
            None => fs,
        })
    }

    /// Makes a call about the object at `path` without the interpreter's lock.
    pub(crate) fn call<T: Send>(
        &self,
        py: Python<'_>,
        at: Option<u64>,
        path: &[u8],
        call: impl FnOnce(&Fs, Target) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        let fs = self.fs(py, at)?;
        py.detach(|| call(&fs, Target::path(path))).map_err(|error| exception(py, error, Some(path)))
    }

    fn change(
        &self,
        py: Python<'_>,
        at: Option<u64>,
        path: &[u8],
        change: impl FnOnce(&Fs, Target) -> Result<(), Error> + Send,
    ) -> PyResult<()> {
        self.call(py, at, path, |fs, target| change(&fs.with_umask(umask()), target))
    }
}

impl Drop for PythonClient {
    fn drop(&mut self) {
        self.connected.drop_detached();
    }
}

#[pymethods]
impl PythonClient {
    /// Connects to the first of the servers (`HOST:PORT,...`) that answers.
    #[new]
    #[pyo3(signature = (server, key=None, timeout=30.0, sync=false))]
    fn new(py: Python<'_>, server: &str, key: Option<&str>, timeout: f64, sync: bool) -> PyResult<PythonClient> {
        let refused = |message: String| fault(py, Reason::InvalidArgument, message, None);
        let mut servers = ServerAddr::parse_list(server).map_err(|error| refused(error.to_string()))?;
        let timeout = Duration::try_from_secs_f64(timeout)
            .map_err(|_| refused(format!("timeout={timeout}: give seconds above 0")))?;
        let options = Options {
            server: servers.remove(0),
            others: servers,
            key: key.map(|file| key_of(file).map_err(|words| refused(format!("key={file}: {words}")))).transpose()?,
            timeout,
            durability: if sync { Durability::Sync } else { Durability::Async },
            command: command(py),
            ..Options::default()
        };
        let client = connect(py, &options)?;
        Ok(PythonClient { options, connected: PerProcess::new(Arc::new(client)) })
    }

    /// Software, identity and version of the server: software, cluster, user of this connection.
    fn hello(&self, py: Python<'_>) -> PyResult<(String, String, u32)> {
        let client = self.client(py)?;
        let hello = client.hello();
        Ok((hello.software.clone(), hello.cluster.clone(), hello.uid))
    }

    /// The session, opened when it is first needed: its changes are undone by this number.
    fn session(&self, py: Python<'_>) -> PyResult<u64> {
        let client = self.client(py)?;
        py.detach(|| client.session()).map(|session| session.0).map_err(|error| exception(py, error, None))
    }

    /// The instant of now, the bound of the clock's error in microseconds (`None`: unknown), the earliest and the
    /// newest instant that can be read.
    fn clock(&self, py: Python<'_>) -> PyResult<(u64, Option<u64>, u64, u64)> {
        let client = self.client(py)?;
        let now = py.detach(|| client.clock()).map_err(|error| exception(py, error, None))?;
        let precision_us = (now.precision_us != u64::MAX).then_some(now.precision_us);
        Ok((now.at, precision_us, now.earliest, now.stable))
    }

    /// The exact instant that a text means. A date and time has to name its zone.
    fn resolve(&self, py: Python<'_>, instant: &str) -> PyResult<u64> {
        let client = self.client(py)?;
        let resolved = py.detach(|| client.resolve(instant, ZonePolicy::Refuse));
        resolved.map(|at| at.0).map_err(|error| match error.reason() {
            // No file is meant: the server's words, not those of a missing file.
            Reason::NotFound => fault(py, Reason::InvalidInstant, error.to_string(), None),
            _ => exception(py, error, None),
        })
    }

    /// Attributes of an object.
    #[pyo3(signature = (path, at=None, follow=true))]
    fn stat(&self, py: Python<'_>, path: &[u8], at: Option<u64>, follow: bool) -> PyResult<AttributeRow> {
        let reply = self.call(py, at, path, |fs, target| fs.stat(&Target { follow, ..target }))?;
        Ok(attribute_row(&reply.attr))
    }

    /// The length of a file, by its inode.
    #[pyo3(signature = (inode, at=None))]
    fn size_of(&self, py: Python<'_>, inode: u64, at: Option<u64>) -> PyResult<u64> {
        let fs = self.fs(py, at)?;
        let reply = py.detach(|| fs.stat(&Target::inode(InodeId(inode))));
        reply.map(|reply| reply.attr.size).map_err(|error| exception(py, error, None))
    }

    /// The text of a symbolic link.
    #[pyo3(signature = (path, at=None))]
    fn read_link<'py>(&self, py: Python<'py>, path: &[u8], at: Option<u64>) -> PyResult<Bound<'py, PyAny>> {
        let link = self.call(py, at, path, |fs, target| fs.read_link(&Target { follow: false, ..target }))?;
        text(py, &link)
    }

    /// Checks rights, as access(2).
    #[pyo3(signature = (path, mask, at=None))]
    fn access(&self, py: Python<'_>, path: &[u8], mask: u32, at: Option<u64>) -> PyResult<()> {
        self.call(py, at, path, |fs, target| fs.access(&target, mask))
    }

    /// Makes a directory.
    #[pyo3(signature = (path, mode=0o777, at=None))]
    fn mkdir(&self, py: Python<'_>, path: &[u8], mode: u32, at: Option<u64>) -> PyResult<()> {
        self.change(py, at, path, |fs, target| fs.mkdir(&Target { follow: false, ..target }, mode).map(drop))
    }

    /// Removes an empty directory.
    #[pyo3(signature = (path, at=None))]
    fn rmdir(&self, py: Python<'_>, path: &[u8], at: Option<u64>) -> PyResult<()> {
        self.change(py, at, path, |fs, target| fs.rmdir(&Target { follow: false, ..target }).map(drop))
    }

    /// Removes a name that is not a directory's.
    #[pyo3(signature = (path, at=None))]
    fn unlink(&self, py: Python<'_>, path: &[u8], at: Option<u64>) -> PyResult<()> {
        self.change(py, at, path, |fs, target| fs.unlink(&Target { follow: false, ..target }).map(drop))
    }

    /// Moves a name; `replace`: over another one.
    #[pyo3(signature = (path, to, replace=true, at=None))]
    fn rename(&self, py: Python<'_>, path: &[u8], to: &[u8], replace: bool, at: Option<u64>) -> PyResult<()> {
        let mode = if replace { RenameMode::Replace } else { RenameMode::NoReplace };
        self.change(py, at, path, |fs, target| {
            let to = Target { follow: false, ..Target::path(to) };
            fs.rename(&Target { follow: false, ..target }, &to, mode).map(drop)
        })
    }

    /// Makes a symbolic link at `path`.
    #[pyo3(signature = (link, path, at=None))]
    fn symlink(&self, py: Python<'_>, link: &[u8], path: &[u8], at: Option<u64>) -> PyResult<()> {
        self.change(py, at, path, |fs, target| fs.symlink(link, &Target { follow: false, ..target }).map(drop))
    }

    /// Gives the file at `path` another name.
    #[pyo3(signature = (path, name, at=None))]
    fn link(&self, py: Python<'_>, path: &[u8], name: &[u8], at: Option<u64>) -> PyResult<()> {
        self.change(py, at, path, |fs, target| {
            let name = Target { follow: false, ..Target::path(name) };
            fs.link(&Target { follow: false, ..target }, &name).map(drop)
        })
    }

    /// Changes attributes: what is `None` stays. Times are in nanoseconds.
    #[pyo3(signature = (path, mode=None, uid=None, gid=None, size=None, atime_ns=None, mtime_ns=None, at=None))]
    #[expect(clippy::too_many_arguments, reason = "each is a keyword argument of Python")]
    fn set_attr(
        &self,
        py: Python<'_>,
        path: &[u8],
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime_ns: Option<i64>,
        mtime_ns: Option<i64>,
        at: Option<u64>,
    ) -> PyResult<()> {
        let time = |ns: Option<i64>| ns.map(|ns| TimeValue { now: false, ns });
        let (atime, mtime) = (time(atime_ns), time(mtime_ns));
        self.call(py, at, path, |fs, target| {
            fs.set_attr(SetAttr { target, mode, uid, gid, size, atime, mtime, ..SetAttr::default() }).map(drop)
        })
    }

    /// An extended attribute.
    #[pyo3(signature = (path, name, at=None))]
    fn get_xattr<'py>(
        &self,
        py: Python<'py>,
        path: &[u8],
        name: &[u8],
        at: Option<u64>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let value = self.call(py, at, path, |fs, target| fs.get_xattr(&target, name))?;
        Ok(PyBytes::new(py, &value))
    }

    /// The names of extended attributes.
    #[pyo3(signature = (path, at=None))]
    fn list_xattr<'py>(&self, py: Python<'py>, path: &[u8], at: Option<u64>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let names = self.call(py, at, path, |fs, target| fs.list_xattr(&target))?;
        names.iter().map(|name| text(py, name)).collect()
    }

    /// Sets an extended attribute, or removes it where `value` is `None`.
    #[pyo3(signature = (path, name, value, at=None))]
    fn set_xattr(
        &self,
        py: Python<'_>,
        path: &[u8],
        name: &[u8],
        value: Option<&[u8]>,
        at: Option<u64>,
    ) -> PyResult<()> {
        self.call(py, at, path, |fs, target| match value {
            Some(value) => fs.set_xattr(&target, name, value, XattrMode::Any).map(drop),
            None => fs.remove_xattr(&target, name).map(drop),
        })
    }

    /// Names an instant; `None`: that of now. Returns the instant.
    #[pyo3(signature = (name, at=None))]
    fn make_snapshot(&self, py: Python<'_>, name: &str, at: Option<u64>) -> PyResult<u64> {
        let client = self.client(py)?;
        let made = py.detach(|| client.make_snapshot(name, at.map(Hlc)));
        made.map(|at| at.0).map_err(|error| exception(py, error, Some(name.as_bytes())))
    }

    /// Deletes a snapshot.
    fn delete_snapshot(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let client = self.client(py)?;
        py.detach(|| client.delete_snapshot(name)).map_err(|error| exception(py, error, Some(name.as_bytes())))
    }

    /// Deletes the history of a file or tree before an instant. Returns how many bytes it frees.
    #[pyo3(signature = (path, before, dry_run=false))]
    fn forget(&self, py: Python<'_>, path: &[u8], before: u64, dry_run: bool) -> PyResult<u64> {
        let how = frieze_client::ForgetOptions { dry_run, with_snapshots: false };
        let reply = self.call(py, None, path, |fs, target| fs.forget(&target, Hlc(before), how))?;
        Ok(reply.bytes)
    }

    /// Makes everything that this client wrote durable.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, None, b"/", |fs, _| fs.sync_all())
    }

    /// Ends the session and every connection of this process.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        match self.connected.take() {
            // The server ends the session by itself where it cannot be reached.
            Some(client) => py.detach(|| client.close()).or_else(|error| match error {
                Error::Refused(_) => Err(exception(py, error, None)),
                _ => Ok(()),
            }),
            None => Ok(()),
        }
    }
}

/// True for a text that is an instant by its form, whatever the server knows: no name of a snapshot.
#[pyfunction]
pub(crate) fn is_instant(text: &str) -> bool {
    !matches!(Instant::parse(text, ZonePolicy::Refuse), Err(_) | Ok(Instant::Named(_)))
}

fn connect(py: Python<'_>, options: &Options) -> PyResult<Client> {
    py.detach(|| Client::connect(options.clone())).map_err(|error| exception(py, error, None))
}

/// The key in a file with a line `NAME:SECRET`.
fn key_of(file: &str) -> Result<Key, String> {
    let secret = PrivateFile::read_secret(file.as_ref()).map_err(|error| error.to_string())?;
    let expected = "expected one line NAME:SECRET, with a secret of at least 16 characters";
    let (name, secret) = secret.text.trim().split_once(':').ok_or(expected)?;
    Key::new(name, secret).map_err(|_| expected.to_owned())
}

/// The command line as `frieze sessions` shows it: that of Python's program, not of the interpreter.
fn command(py: Python<'_>) -> String {
    let words = py.import("sys").and_then(|sys| sys.getattr("argv")).and_then(|argv| argv.extract::<Vec<String>>());
    let words = words.unwrap_or_default();
    let mut command = match words.first().map(String::as_str) {
        None | Some("" | "-c" | "-m") => "python".to_owned(),
        Some(_) => words.join(" "),
    };
    command.truncate(command.floor_char_boundary(COMMAND_BYTES_MAX));
    command
}

/// Bits that new files do not get. It can be set only, and read by setting it, which other threads would notice: the
/// kernel shows it in a file as well.
pub(crate) fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(UMASK_DEFAULT)
}

/// A row of attributes.
pub(crate) fn attribute_row(attr: &Attr) -> AttributeRow {
    AttributeRow {
        inode: attr.inode,
        kind: kind_word(attr.kind()),
        mode: attr.mode,
        links: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        size: attr.size,
        bytes_live: attr.bytes_live,
        atime_ns: attr.atime_ns,
        mtime_ns: attr.mtime_ns,
        ctime_ns: attr.ctime_ns,
        born: attr.born,
        changed: attr.changed,
    }
}

/// The kind of a file, in the words of fsspec where it has one.
pub(crate) fn kind_word(kind: FileKind) -> &'static str {
    match kind {
        // As fsspec has it.
        FileKind::Symlink => "link",
        kind => kind.word(),
    }
}

/// As the client truncates command lines.
const COMMAND_BYTES_MAX: usize = 200;
/// The mask of most systems, for one without `/proc`.
const UMASK_DEFAULT: u32 = 0o022;
