//! Local files as one end of a copy.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use rustix::fs::{SeekFrom, Timespec, Timestamps};

use super::side::{CopyEntry, CopyKind, CopySide, CopySink, CopySource, How, PIECE_BYTES, Pull, temporary_name};
use crate::format;

/// Files of this machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalSide;

impl CopySide for LocalSide {
    type Path = PathBuf;

    fn join(&self, directory: &PathBuf, name: &[u8]) -> PathBuf {
        directory.join(OsStr::from_bytes(name))
    }

    fn parent(&self, path: &PathBuf) -> Option<PathBuf> {
        path.parent().filter(|parent| !parent.as_os_str().is_empty()).map(Path::to_path_buf)
    }

    fn show(&self, path: &PathBuf) -> String {
        format::local(path)
    }

    fn node(&self, path: &PathBuf, follow: bool) -> Result<Option<CopyEntry>> {
        let found = if follow { fs::metadata(path) } else { fs::symlink_metadata(path) };
        let metadata = match found {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let kind = match metadata.file_type() {
            kind if kind.is_file() => CopyKind::File,
            kind if kind.is_dir() => CopyKind::Directory,
            kind if kind.is_symlink() => CopyKind::Symlink,
            // A pipe has bytes to read: `put <(command) /a` is worth having.
            kind if kind.is_fifo() && follow => CopyKind::File,
            _ => CopyKind::Other,
        };
        Ok(Some(CopyEntry {
            kind,
            mode: metadata.mode() & 0o7777,
            mtime_ns: metadata.mtime().saturating_mul(1_000_000_000).saturating_add(metadata.mtime_nsec()),
            size: metadata.len(),
            identity: (metadata.dev(), metadata.ino()),
            answered: None,
        }))
    }
}

impl CopySource for LocalSide {
    fn names(&self, directory: &PathBuf) -> Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(directory)? {
            names.push(entry?.file_name().as_bytes().to_vec());
        }
        names.sort();
        Ok(names)
    }

    fn link_text(&self, path: &PathBuf) -> Result<Vec<u8>> {
        Ok(fs::read_link(path)?.as_os_str().as_bytes().to_vec())
    }

    fn open(&self, path: &PathBuf) -> Result<Box<dyn Pull>> {
        Ok(Box::new(LocalBytes::new(File::open(path)?)?))
    }
}

impl CopySink for LocalSide {
    fn make_directory(&self, path: &PathBuf, mode: u32) -> Result<()> {
        // Its owner can fill it, whatever the mode: the wanted one is set when it is full.
        Ok(fs::DirBuilder::new().mode(mode | 0o700).create(path)?)
    }

    fn make_link(&self, path: &PathBuf, text: &[u8]) -> Result<()> {
        match fs::symlink_metadata(path) {
            Ok(there) if there.file_type().is_symlink() => fs::remove_file(path)?,
            Ok(_) => return Err(io::Error::from(io::ErrorKind::AlreadyExists).into()),
            Err(_) => {}
        }
        Ok(std::os::unix::fs::symlink(OsStr::from_bytes(text), path)?)
    }

    fn write(&self, path: &PathBuf, mode: u32, how: How, bytes: &mut dyn Pull) -> Result<u64> {
        match how {
            How::Over => {
                fill(&OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path)?, bytes)
            }
            How::Append => bail!("local files are not appended to"),
            How::Atomic => {
                let name = path.file_name().unwrap_or_default();
                let beside = path.with_file_name(OsStr::from_bytes(&temporary_name(name.as_bytes())));
                let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
                let done = fill(&file, bytes).and_then(|count| {
                    fs::rename(&beside, path)?;
                    Ok(count)
                });
                if done.is_err() {
                    // The first failure is reported.
                    let _ = fs::remove_file(&beside);
                }
                done
            }
        }
    }

    fn set_like(&self, path: &PathBuf, node: &CopyEntry) -> Result<()> {
        if node.kind != CopyKind::Symlink {
            fs::set_permissions(path, Permissions::from_mode(node.mode))?;
        }
        set_mtime(path, node.mtime_ns)
    }
}

fn set_mtime(path: &Path, mtime_ns: i64) -> Result<()> {
    let mtime = Timespec { tv_sec: mtime_ns.div_euclid(1_000_000_000), tv_nsec: mtime_ns.rem_euclid(1_000_000_000) };
    let times =
        Timestamps { last_access: Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT }, last_modification: mtime };
    Ok(rustix::fs::utimensat(rustix::fs::CWD, path, &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
        .map_err(io::Error::from)?)
}

fn fill(file: &File, bytes: &mut dyn Pull) -> Result<u64> {
    let mut piece = Vec::with_capacity(PIECE_BYTES);
    let (mut moved, mut written_to) = (0, 0);
    while let Some(offset) = bytes.next(&mut piece)? {
        file.write_all_at(&piece, offset)?;
        moved += piece.len() as u64;
        written_to = offset + piece.len() as u64;
    }
    if bytes.end() > written_to {
        file.set_len(bytes.end())?;
    }
    Ok(moved)
}

/// Bytes of a local file, holes left out; of a pipe or standard input, all of them.
#[derive(Debug)]
pub(crate) struct LocalBytes {
    file: File,
    offset: u64,
    /// End of the data that is known to be there without a hole; `u64::MAX` where holes are not looked for.
    data_end: u64,
    /// Length where holes are looked for.
    size: Option<u64>,
}

impl LocalBytes {
    /// The bytes of `file` from where it stands.
    ///
    /// # Errors
    /// If the system does not tell what it is.
    pub(crate) fn new(file: File) -> Result<LocalBytes> {
        let metadata = file.metadata()?;
        // `blocks` counts 512 bytes whatever the file system.
        let has_holes = metadata.is_file() && metadata.blocks().saturating_mul(512) < metadata.len();
        Ok(LocalBytes {
            file,
            offset: 0,
            data_end: if has_holes { 0 } else { u64::MAX },
            size: has_holes.then_some(metadata.len()),
        })
    }

    /// Moves on to the next data; false if there is none.
    fn skip_hole(&mut self) -> Result<bool> {
        if self.offset < self.data_end {
            return Ok(true);
        }
        match rustix::fs::seek(&self.file, SeekFrom::Data(self.offset)) {
            Ok(data) => self.offset = data,
            Err(rustix::io::Errno::NXIO) => return Ok(false),
            Err(errno) => return Err(io::Error::from(errno).into()),
        }
        self.data_end = rustix::fs::seek(&self.file, SeekFrom::Hole(self.offset)).map_err(io::Error::from)?;
        rustix::fs::seek(&self.file, SeekFrom::Start(self.offset)).map_err(io::Error::from)?;
        Ok(true)
    }
}

impl Pull for LocalBytes {
    fn next(&mut self, into: &mut Vec<u8>) -> Result<Option<u64>> {
        into.clear();
        if !self.skip_hole()? {
            return Ok(None);
        }
        let wanted = (self.data_end - self.offset).min(PIECE_BYTES as u64);
        // Pipes give little at a time: whole pieces make fewer, larger writes.
        let count = (&self.file).take(wanted).read_to_end(into)?;
        if count == 0 {
            return Ok(None);
        }
        let offset = self.offset;
        self.offset += count as u64;
        Ok(Some(offset))
    }

    fn end(&self) -> u64 {
        self.size.map_or(self.offset, |size| size.max(self.offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copied(how: How, content: &[u8], holes_to: u64) -> (tempfile::TempDir, Vec<u8>, u64) {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("from"), directory.path().join("to"));
        fs::write(&to, b"old and longer than what comes, to see it cut").unwrap();
        let file = File::create(&from).unwrap();
        file.write_all_at(content, holes_to).unwrap();
        file.set_len(holes_to + content.len() as u64 + holes_to).unwrap();
        let mut bytes = LocalSide.open(&from).unwrap();
        let moved = LocalSide.write(&to, 0o640, how, &mut *bytes).unwrap();
        let read = fs::read(&to).unwrap();
        (directory, read, moved)
    }

    #[test]
    fn a_file_is_copied_whole() {
        for how in [How::Over, How::Atomic] {
            let content: Vec<u8> = (0..3_000_000u32).map(|i| (i / 7) as u8).collect();
            let (_directory, read, moved) = copied(how, &content, 0);
            assert!(read == content && moved == content.len() as u64, "{how:?}");
        }
    }

    #[test]
    fn holes_are_not_moved_and_the_length_is_kept() {
        let (directory, read, moved) = copied(How::Over, b"data", 1 << 20);
        assert_eq!(read.len(), (2 << 20) + 4);
        assert_eq!(&read[1 << 20..][..4], b"data");
        assert!(moved < 1 << 20, "{moved} bytes were moved");
        let blocks = fs::metadata(directory.path().join("to")).unwrap().blocks();
        assert!(blocks * 512 < 1 << 20);
    }

    #[test]
    fn an_atomic_copy_that_fails_leaves_the_old_file_and_nothing_beside_it() {
        struct Broken;
        impl Pull for Broken {
            fn next(&mut self, _: &mut Vec<u8>) -> Result<Option<u64>> {
                bail!("broken")
            }
            fn end(&self) -> u64 {
                0
            }
        }
        let directory = tempfile::tempdir().unwrap();
        let to = directory.path().join("to");
        fs::write(&to, b"old").unwrap();
        LocalSide.write(&to, 0o600, How::Atomic, &mut Broken).unwrap_err();
        assert_eq!(fs::read(&to).unwrap(), b"old");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn mode_and_time_are_kept_to_the_nanosecond() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        fs::write(&path, b"").unwrap();
        let mut node = LocalSide.node(&path, true).unwrap().unwrap();
        (node.mode, node.mtime_ns) = (0o4711, -1_500_000_001);
        LocalSide.set_like(&path, &node).unwrap();
        let after = LocalSide.node(&path, true).unwrap().unwrap();
        assert_eq!((after.mode, after.mtime_ns), (0o4711, -1_500_000_001));
    }
}
