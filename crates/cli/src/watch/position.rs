//! The kept position of a watch: the last mark, in a file.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use frieze_client::Hlc;

use crate::failure::UsageError;

/// A file with one line: a stamp.
#[derive(Debug)]
pub(super) struct PositionFile {
    file: PathBuf,
    kept: Option<Hlc>,
}

impl PositionFile {
    /// Reads the file, if there is one.
    pub(super) fn open(file: &Path) -> Result<PositionFile> {
        let mut text = Vec::new();
        let read = File::open(file).and_then(|open| open.take(LINE_BYTES_MAX).read_to_end(&mut text));
        let kept = match read {
            Ok(_) => {
                let stamp = String::from_utf8_lossy(&text).trim().parse::<Hlc>().map_err(|_| {
                    let shown = file.display();
                    UsageError(format!("--position {shown}: expected one line hlc-…; remove the file to begin anew"))
                })?;
                Some(stamp)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error).with_context(|| format!("--position {}", file.display())),
        };
        Ok(PositionFile { file: file.to_owned(), kept })
    }

    /// The stamp that an earlier watch left.
    pub(super) fn kept(&self) -> Option<Hlc> {
        self.kept
    }

    /// Replaces the stamp: the file has the former or this one, whenever the machine stops.
    pub(super) fn keep(&mut self, at: Hlc) -> Result<()> {
        let mut name = self.file.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let new = self.file.with_file_name(name);
        let write = || {
            let mut file = File::create(&new)?;
            writeln!(file, "{at}")?;
            file.sync_data()?;
            fs::rename(&new, &self.file)
        };
        write().with_context(|| format!("--position {}: the mark {at} cannot be kept", self.file.display()))?;
        self.kept = Some(at);
        Ok(())
    }
}

/// Longest line that is read: a stamp has 20 characters.
const LINE_BYTES_MAX: u64 = 64;
