//! Creating directories.

use frieze_client::{Error, FileKind, Fs, InodeId, Reason, Target};

use crate::exception::Exception;
use crate::paths::split;

/// Creates the directory `path` and its missing parents.
pub(crate) fn make_directories(fs: &Fs, path: &[u8], mode: u32, shown: &str) -> Result<(), Exception> {
    // Usually only the last one is missing.
    let mut missing: Vec<&[u8]> = Vec::new();
    let mut next = path;
    loop {
        match make_directory(fs, next, mode) {
            Ok(()) => break,
            Err(error) if error.reason() == Reason::NotFound && next != b"/" => {
                missing.push(next);
                next = split(next).0;
            }
            Err(error) if error.reason() == Reason::Exists && next == path => {
                return Err(Exception::already_exists(format!("Path is not a directory: {shown}")));
            }
            Err(error) if [Reason::Exists, Reason::NotDirectory].contains(&error.reason()) => {
                let parent = String::from_utf8_lossy(next).into_owned();
                return Err(Exception::not_a_parent(format!("{parent} (is not a directory)")));
            }
            Err(error) => return Err(Exception::of(error, shown)),
        }
    }
    for path in missing.into_iter().rev() {
        make_directory(fs, path, mode).map_err(|error| Exception::of(error, shown))?;
    }
    Ok(())
}

/// Creates one directory, unless it exists.
pub(crate) fn make_directory(fs: &Fs, path: &[u8], mode: u32) -> Result<(), Error> {
    if path == b"/" {
        return Ok(());
    }
    match fs.mkdir(&Target::under(InodeId::ROOT, path), mode) {
        Ok(_) => Ok(()),
        Err(error) if error.reason() == Reason::Exists => {
            let found = fs.stat(&Target::path(path))?;
            if found.attr.kind() == FileKind::Directory { Ok(()) } else { Err(error) }
        }
        Err(error) => Err(error),
    }
}
