//! Files that decide which callers are trusted: keys and settings.
//!
//! Guarantees: a file is refused if other users could have written it, or, if it holds a secret, could have read it;
//! the error names the file, its mode and the command that corrects it. The file that was checked is the one that is
//! read.
//! Leaves to others: its content.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A file was refused, or cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PrivateFileError {
    /// Error of the system.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Other users may read or write it and must not.
    #[error("{path} can be {by_others} by others (mode {mode:04o}): refused; chmod {wanted:o} {path}")]
    Open {
        /// The file.
        path: String,
        /// `read` or `written`.
        by_others: &'static str,
        /// Its mode.
        mode: u32,
        /// The mode that it should have.
        wanted: u32,
    },
}

/// The content of a file, with its metadata.
#[derive(Debug)]
pub struct PrivateFile {
    /// Its content.
    pub text: String,
    path: String,
    of: Metadata,
}

impl PrivateFile {
    /// Reads a file that no other user can write. A pipe, which has no mode of its own, is read as it is.
    ///
    /// # Errors
    /// `Io`; `Open` if group or others may write it.
    pub fn read(path: &Path) -> Result<PrivateFile, PrivateFileError> {
        let mut file = File::open(path)?;
        let of = file.metadata()?;
        let mut read = PrivateFile { text: String::new(), path: path.display().to_string(), of };
        read.refuse("written", 0o022)?;
        file.read_to_string(&mut read.text)?;
        Ok(read)
    }

    /// As [`PrivateFile::read`], of a file with a secret in it.
    ///
    /// # Errors
    /// As [`PrivateFile::read`] and [`PrivateFile::keeps_secret`].
    pub fn read_secret(path: &Path) -> Result<PrivateFile, PrivateFileError> {
        let read = PrivateFile::read(path)?;
        read.keeps_secret()?;
        Ok(read)
    }

    /// Checks that no other user can read it. The group of a service that runs as another user may read root's own
    /// file.
    ///
    /// # Errors
    /// `Open` if others, or the group, may read it.
    pub fn keeps_secret(&self) -> Result<(), PrivateFileError> {
        let of_service = self.of.uid() == 0 && !rustix::process::geteuid().is_root();
        self.refuse("read", if of_service { 0o037 } else { 0o077 })
    }

    fn refuse(&self, by_others: &'static str, bits: u32) -> Result<(), PrivateFileError> {
        let mode = self.of.mode() & 0o7777;
        if !self.of.is_file() || mode & bits == 0 {
            return Ok(());
        }
        Err(PrivateFileError::Open { path: self.path.clone(), by_others, mode, wanted: mode & 0o777 & !bits })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_others_can_write_is_refused_and_a_secret_that_they_can_read() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("key");
        fs::write(&path, "secret").unwrap();
        let refused = |mode, read: fn(&Path) -> Result<PrivateFile, PrivateFileError>| {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            read(&path).err().map(|error| error.to_string())
        };
        let shown = path.display();
        for mode in [0o600, 0o400, 0o700] {
            assert_eq!(refused(mode, PrivateFile::read_secret), None, "{mode:o}");
        }
        for mode in [0o644, 0o604, 0o640] {
            let words = format!("{shown} can be read by others (mode {mode:04o}): refused; chmod 600 {shown}");
            assert_eq!(refused(mode, PrivateFile::read_secret), Some(words));
            assert_eq!(refused(mode, PrivateFile::read), None, "{mode:o}");
        }
        for (mode, wanted) in [(0o666, 0o644), (0o620, 0o600), (0o602, 0o600)] {
            let words =
                format!("{shown} can be written by others (mode {mode:04o}): refused; chmod {wanted:o} {shown}");
            assert_eq!(refused(mode, PrivateFile::read), Some(words));
        }
    }
}
