//! Attributes of files, and the errors that say that there is no such file.

use frieze_client::{Attr, Error, ErrorKind, FileKind, Fs, Reason, Target};

use crate::exception::Exception;
use crate::proto::FsPermission;

pub(crate) fn must_be_file(attr: &Attr, path: &str) -> Result<(), Exception> {
    match attr.kind() {
        FileKind::File => Ok(()),
        FileKind::Directory => Err(Exception::not_found(format!("Path is not a file: {path}"))),
        _ => Err(Exception::io(format!("{path} is neither a file nor a directory"))),
    }
}

/// True if the error means that there is no such name, or that a parent is not a directory.
pub(crate) fn is_absent(error: &Error) -> bool {
    error.kind() == ErrorKind::NotFound || error.reason() == Reason::NotDirectory
}

/// True if the error means that the file does not exist any more: it cannot be written.
pub(crate) fn is_deleted(error: &Error) -> bool {
    [Reason::NotFound, Reason::StaleHandle].contains(&error.reason())
}

/// The mode of a new file, and the umask, which applies only without a default list: clients send the mode with and
/// without it.
pub(crate) fn new_mode(masked: Option<&FsPermission>, unmasked: Option<&FsPermission>, usual: u32) -> (u32, u32) {
    let masked = masked.map_or(usual, |masked| masked.perm) & 0o1777;
    match unmasked.map(|unmasked| unmasked.perm & 0o1777) {
        Some(unmasked) if unmasked & masked == masked => (unmasked, unmasked & !masked & 0o777),
        _ => (masked, 0),
    }
}

/// The attributes behind a name: of a symbolic link, those of its target, if that exists.
pub(crate) fn followed(fs: &Fs, target: &Target, attr: Attr) -> Result<Attr, Error> {
    if attr.kind() != FileKind::Symlink {
        return Ok(attr);
    }
    match fs.stat(&Target { follow: true, ..target.clone() }) {
        Ok(found) => Ok(found.attr),
        Err(Error::Refused(_)) => Ok(attr),
        Err(error) => Err(error),
    }
}

pub(crate) fn millis(ns: i64) -> u64 {
    u64::try_from(ns.div_euclid(1_000_000)).unwrap_or(0)
}
