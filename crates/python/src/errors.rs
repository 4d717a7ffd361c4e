//! Errors of the client as Python's exceptions.
//!
//! A refusal that POSIX knows is an `OSError` with its errno: Python makes a `FileNotFoundError` of ENOENT, and so on.
//! What POSIX does not know has classes of its own. Every exception has `reason`, the name of the server's reason.

use std::ffi::c_int;

use frieze_client::{Error, ErrorKind, Fault, Reason};
use pyo3::exceptions::{PyConnectionError, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyType;
use pyo3::{create_exception, intern};

create_exception!(frieze, HistoryExpired, PyOSError, "The history of that instant is no longer kept.");
create_exception!(frieze, FutureInstant, PyOSError, "The instant lies in the future.");
create_exception!(frieze, InvalidInstant, PyValueError, "The text is not an instant.");
create_exception!(frieze, Unavailable, PyConnectionError, "The server did not answer in time; try again later.");
create_exception!(frieze, VersionMismatch, PyOSError, "The server speaks another version of the protocol.");

/// The exception for an error about the object at `path`.
pub(crate) fn exception(py: Python<'_>, error: Error, path: Option<&[u8]>) -> PyErr {
    let (reason, is_connecting) = (error.reason(), matches!(error, Error::Transport(_) | Error::NoneAnswers { .. }));
    let message = match (&error, reason) {
        (Error::Protocol { .. }, _) => format!("{error} Use a server at least as new as this package."),
        _ => error.to_string(),
    };
    let reason = if matches!(error, Error::Protocol { .. }) { Reason::WrongVersion } else { reason };
    match build(py, reason, is_connecting, &message, path) {
        Ok(exception) | Err(exception) => exception,
    }
}

/// The exception for a fault of this package itself.
pub(crate) fn fault(py: Python<'_>, reason: Reason, message: impl Into<String>, path: Option<&[u8]>) -> PyErr {
    exception(py, Error::Refused(Fault::new(reason, message)), path)
}

fn build(py: Python<'_>, reason: Reason, is_connecting: bool, message: &str, path: Option<&[u8]>) -> PyResult<PyErr> {
    let class = class_of(py, reason, is_connecting);
    let exception = match (reason, path) {
        (Reason::InvalidInstant, _) => class.call1((message,))?,
        (_, Some(path)) => class.call1((errno_of(reason, is_connecting), message, text(py, path)?))?,
        (_, None) => class.call1((errno_of(reason, is_connecting), message))?,
    };
    exception.setattr(intern!(py, "reason"), format!("{reason:?}"))?;
    Ok(PyErr::from_value(exception))
}

fn class_of(py: Python<'_>, reason: Reason, is_connecting: bool) -> Bound<'_, PyType> {
    match reason {
        Reason::HistoryExpired => py.get_type::<HistoryExpired>(),
        Reason::Future => py.get_type::<FutureInstant>(),
        Reason::InvalidInstant => py.get_type::<InvalidInstant>(),
        Reason::WrongVersion | Reason::BadFrame => py.get_type::<VersionMismatch>(),
        // `OSError` chooses `ConnectionRefusedError` by itself.
        _ if is_connecting => py.get_type::<PyOSError>(),
        Reason::Corrupt | Reason::InputOutput | Reason::Fenced => py.get_type::<PyOSError>(),
        reason if reason.kind() == ErrorKind::Unavailable => py.get_type::<Unavailable>(),
        _ => py.get_type::<PyOSError>(),
    }
}

/// A path as Python has it: UTF-8, with surrogates for the bytes that are none.
pub(crate) fn text<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.into_pyobject(py)?.into_any()),
        Err(_) => {
            let bytes = pyo3::types::PyBytes::new(py, bytes);
            bytes.call_method1(intern!(py, "decode"), ("utf-8", "surrogateescape"))
        }
    }
}

/// The errno of Linux for a reason: the table of the mount.
fn errno_of(reason: Reason, is_connecting: bool) -> c_int {
    match reason {
        _ if is_connecting && reason.kind() == ErrorKind::Unavailable => ECONNREFUSED,
        Reason::NotFound => ENOENT,
        Reason::Exists => EEXIST,
        Reason::NotDirectory => ENOTDIR,
        Reason::IsDirectory => EISDIR,
        Reason::NotEmpty => ENOTEMPTY,
        Reason::NameTooLong => ENAMETOOLONG,
        Reason::SymlinkLoop => ELOOP,
        Reason::TooManyLinks => EMLINK,
        Reason::AccessDenied | Reason::Unproven => EACCES,
        Reason::NotPermitted => EPERM,
        Reason::ReadOnly | Reason::Fenced => EROFS,
        Reason::InvalidArgument | Reason::BackwardUserTime | Reason::InvalidInstant => EINVAL,
        Reason::TooLarge => EFBIG,
        Reason::NoAttribute | Reason::NoUserTime => ENODATA,
        Reason::AttributeTooSmall | Reason::Future | Reason::HistoryExpired | Reason::IncompleteGap => ERANGE,
        Reason::NotYetClosed | Reason::Overloaded => EAGAIN,
        Reason::NoSpace => ENOSPC,
        Reason::FilesQuota | Reason::BytesQuota => EDQUOT,
        Reason::StaleHandle | Reason::WrongCluster => ESTALE,
        Reason::CrossDevice => EXDEV,
        Reason::Busy | Reason::Superseded => EBUSY,
        Reason::Unsupported => EOPNOTSUPP,
        Reason::BadFrame | Reason::WrongVersion | Reason::Removed => EPROTO,
        Reason::Unavailable => ETIMEDOUT,
        Reason::Elsewhere
        | Reason::StaleEpoch
        | Reason::UnknownSession
        | Reason::SequenceTooOld
        | Reason::FabricFailed
        | Reason::Corrupt
        | Reason::InputOutput
        | Reason::Internal => EIO,
    }
}

const EPERM: c_int = 1;
const ENOENT: c_int = 2;
const EIO: c_int = 5;
const EAGAIN: c_int = 11;
const EACCES: c_int = 13;
const EBUSY: c_int = 16;
const EEXIST: c_int = 17;
const EXDEV: c_int = 18;
const ENOTDIR: c_int = 20;
const EISDIR: c_int = 21;
const EINVAL: c_int = 22;
const EFBIG: c_int = 27;
const ENOSPC: c_int = 28;
const EROFS: c_int = 30;
const EMLINK: c_int = 31;
const ERANGE: c_int = 34;
const ENAMETOOLONG: c_int = 36;
const ENOTEMPTY: c_int = 39;
const ELOOP: c_int = 40;
const ENODATA: c_int = 61;
const EPROTO: c_int = 71;
const EOPNOTSUPP: c_int = 95;
const ETIMEDOUT: c_int = 110;
const ECONNREFUSED: c_int = 111;
const ESTALE: c_int = 116;
const EDQUOT: c_int = 122;
