//! Files that say whom to believe: keys and settings.
//!
//! Guarantees: a file is refused that somebody else could have written, or, if it holds a secret, could have read; the words name the
//! file, its mode and the command that mends it. The file that was checked is the one that is read.
//! Leaves to others: what is in it.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A file was refused, or cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PrivateFileError {
    /// The system's words.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Others may do with it what they must not.
    #[error("{path} can be {by_others} by others (mode {mode:04o}): refused; chmod {wanted:o} {path}")]
    Open {
        /// The file.
        path: String,
        /// `read` or `written`.
        by_others: &'static str,
        /// What it is.
        mode: u32,
        /// What it should be.
        wanted: u32,
    },
}

/// A file as it was read, with what the system says of it.
#[derive(Debug)]
pub struct PrivateFile {
    /// What is in it.
    pub text: String,
    path: String,
    of: Metadata,
}

impl PrivateFile {
    /// Reads a file that nobody else can write. One without a mode of its own (a pipe) is read as it is.
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

    /// Makes sure that nobody else can read it. Root's own file may be read by the group of a service that runs as another user.
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
