//! Files made below a directory of this machine.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use frieze_client::FileKind;
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};

use super::target::{ExportTarget, Meta};
use crate::copy::{PIECE_BYTES, Pull};

/// See the module.
pub(super) struct OutputDir {
    top: PathBuf,
    keeps_owners: bool,
}

impl OutputDir {
    /// Makes the directory, or takes one that is empty.
    ///
    /// # Errors
    /// If something is in it: nothing is overwritten.
    pub(super) fn make(top: &Path) -> Result<OutputDir> {
        let shown = || top.display().to_string();
        match fs::DirBuilder::new().mode(0o700).create(top) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if fs::read_dir(top).with_context(shown)?.next().is_some() {
                    bail!("{} is not empty: nothing that is there is overwritten; name a new directory", shown());
                }
            }
            Err(error) => return Err(error).with_context(shown),
        }
        Ok(OutputDir { top: top.to_owned(), keeps_owners: rustix::process::geteuid().is_root() })
    }

    /// Notes about all files.
    pub(super) fn notes(&self) -> Option<String> {
        let words = "owners are not kept: that needs root; they are in a tar";
        (!self.keeps_owners).then(|| words.to_owned())
    }

    fn place(&self, name: &[u8]) -> PathBuf {
        if name.is_empty() { self.top.clone() } else { self.top.join(OsStr::from_bytes(name)) }
    }

    /// Owner, mode, attributes and times. Returns what cannot be kept.
    fn dress(&self, path: &Path, meta: &Meta) -> Vec<String> {
        let attr = &meta.attr;
        let mut lost = Vec::new();
        let mut keep = |what: &str, done: io::Result<()>| {
            if let Err(error) = done {
                lost.push(format!("{what} cannot be kept: {error}"));
            }
        };
        if self.keeps_owners {
            let (uid, gid) = (Uid::from_raw(attr.uid), Gid::from_raw(attr.gid));
            let owned = rustix::fs::chownat(CWD, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW);
            keep("its owner", owned.map_err(io::Error::from));
        }
        if meta.kind() != FileKind::Symlink {
            for (name, value) in &meta.xattrs {
                let set = rustix::fs::lsetxattr(path, name.as_slice(), value, XattrFlags::empty());
                let what = format!("attribute {:?}", String::from_utf8_lossy(name));
                keep(&what, set.map_err(io::Error::from));
            }
            keep("its mode", fs::set_permissions(path, fs::Permissions::from_mode(attr.mode)));
        }
        let times = Timestamps { last_access: timespec(attr.atime_ns), last_modification: timespec(attr.mtime_ns) };
        let set = rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW);
        keep("its times", set.map_err(io::Error::from));
        lost
    }
}

impl ExportTarget for OutputDir {
    fn directory(&mut self, name: &[u8], _: &Meta) -> Result<()> {
        if name.is_empty() {
            return Ok(());
        }
        let path = self.place(name);
        // Filled first, whatever its mode.
        fs::DirBuilder::new().mode(0o700).create(&path).with_context(|| path.display().to_string())
    }

    fn leave(&mut self, name: &[u8], meta: &Meta) -> Result<Vec<String>> {
        Ok(self.dress(&self.place(name), meta))
    }

    fn file(&mut self, name: &[u8], meta: &Meta, bytes: &mut dyn Pull) -> Result<Vec<String>> {
        let path = self.place(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let file = file.with_context(|| path.display().to_string())?;
        fill(&file, bytes).with_context(|| path.display().to_string())?;
        drop(file);
        Ok(self.dress(&path, meta))
    }

    fn again(&mut self, name: &[u8], first: &[u8], _: &Meta) -> Result<()> {
        let path = self.place(name);
        fs::hard_link(self.place(first), &path).with_context(|| path.display().to_string())
    }

    fn link(&mut self, name: &[u8], meta: &Meta, target: &[u8]) -> Result<Vec<String>> {
        let path = self.place(name);
        let made = std::os::unix::fs::symlink(OsStr::from_bytes(target), &path);
        made.with_context(|| path.display().to_string())?;
        Ok(self.dress(&path, meta))
    }

    fn special(&mut self, name: &[u8], meta: &Meta) -> Result<Vec<String>> {
        let path = self.place(name);
        let kind = match meta.kind() {
            FileKind::Fifo => FileType::Fifo,
            FileKind::Socket => FileType::Socket,
            FileKind::CharDevice => FileType::CharacterDevice,
            _ => FileType::BlockDevice,
        };
        match rustix::fs::mknodat(CWD, &path, kind, Mode::from_raw_mode(0o600), meta.attr.rdev.into()) {
            Ok(()) => Ok(self.dress(&path, meta)),
            Err(errno) => Ok(vec![format!("it cannot be made: {}", io::Error::from(errno))]),
        }
    }
}

fn fill(file: &File, bytes: &mut dyn Pull) -> Result<()> {
    let mut piece = Vec::with_capacity(PIECE_BYTES);
    while let Some(offset) = bytes.next(&mut piece)? {
        file.write_all_at(&piece, offset)?;
    }
    // Ends in a hole, perhaps.
    Ok(file.set_len(bytes.end())?)
}

fn timespec(ns: i64) -> Timespec {
    Timespec { tv_sec: ns.div_euclid(1_000_000_000), tv_nsec: ns.rem_euclid(1_000_000_000) }
}
