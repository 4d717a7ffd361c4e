//! A read-only view of a directory: changes stay in memory.
//!
//! Guarantees: nothing below the directory is written, not even the lock; no server uses it meanwhile. A caller sees
//! its own changes as on any device. Reads come from the medium, not from a copy in memory. Leaves to others: what the
//! bytes mean. Changes use memory: a view is for inspection, not for serving.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use frieze_locks::{Mutex, MutexGuard, levels};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::device::{PAGE_BYTES, check_name};
use crate::directory_lock::DirectoryLock;
use crate::file_disk::{NameKind, names_in};
use crate::syscalls::{io, open_directory, read_all, read_direct, retry};
use crate::{Disk, DiskFile, DiskOp, Error, Result, Space};

/// The directory of a stopped server, as a device whose changes are dropped with it.
#[derive(Debug)]
pub struct ViewDisk {
    path: PathBuf,
    dir: OwnedFd,
    names: Mutex<levels::ViewNames, BTreeMap<String, Arc<ViewFile>>>,
    /// Locks out servers.
    _lock: Option<DirectoryLock>,
}

/// A file of a view.
#[derive(Debug)]
struct ViewFile {
    name: String,
    /// The file of the directory; `None` for one that was created in the view.
    base: Option<OwnedFd>,
    direct: OnceLock<Option<OwnedFd>>,
    len: u64,
    /// Pages that were written.
    pages: Mutex<levels::ViewPages, BTreeMap<u64, ViewPage>>,
}

type ViewPage = Box<[u8; PAGE_BYTES as usize]>;

impl ViewDisk {
    /// Opens a view of a directory.
    ///
    /// # Errors
    /// `Busy` if a server uses it, with its process id; `NotFound`, and other errors of the system.
    pub fn open(path: &Path) -> Result<ViewDisk> {
        let shown = path.display().to_string();
        let dir = open_directory(path).map_err(io(DiskOp::OpenDisk, &shown))?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let lock = DirectoryLock::acquire_existing(&dir, path)?;
        let mut names = BTreeMap::new();
        for name in names_in(&dir, &shown, NameKind::Files)? {
            let fd = retry(|| rustix::fs::openat(&dir, name.as_str(), flags, Mode::empty()));
            let fd = fd.map_err(io(DiskOp::Open, &name))?;
            let len = retry(|| rustix::fs::fstat(&fd)).map_err(io(DiskOp::Len, &name))?.st_size as u64;
            names.insert(name.clone(), Arc::new(ViewFile::new(&name, Some(fd), len)));
        }
        Ok(ViewDisk { path: path.to_owned(), dir, names: Mutex::new(names), _lock: lock })
    }

    #[track_caller]
    fn names(&self) -> MutexGuard<'_, BTreeMap<String, Arc<ViewFile>>> {
        self.names.lock()
    }
}

impl ViewFile {
    fn new(name: &str, base: Option<OwnedFd>, len: u64) -> ViewFile {
        ViewFile { name: name.to_owned(), base, direct: OnceLock::new(), len, pages: Mutex::default() }
    }

    #[track_caller]
    fn pages(&self) -> MutexGuard<'_, BTreeMap<u64, ViewPage>> {
        self.pages.lock()
    }

    /// Reads the file of the directory with `read`; zeros if there is none.
    fn read_base(
        &self,
        offset: u64,
        into: &mut [u8],
        read: impl FnOnce(&OwnedFd, &mut [u8]) -> std::result::Result<usize, Errno>,
    ) -> Result<usize> {
        let len = (into.len() as u64).min(self.len.saturating_sub(offset)) as usize;
        let into = &mut into[..len];
        match &self.base {
            None => into.fill(0),
            Some(fd) => {
                let found = read(fd, into).map_err(io(DiskOp::Read, &self.name))?;
                into[found..].fill(0);
            }
        }
        let end = offset + len as u64;
        for (&number, page) in self.pages().range(offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES)) {
            let start = number * PAGE_BYTES;
            let (from, upto) = (start.max(offset), (start + PAGE_BYTES).min(end));
            into[(from - offset) as usize..(upto - offset) as usize]
                .copy_from_slice(&page[(from - start) as usize..(upto - start) as usize]);
        }
        Ok(len)
    }
}

impl Disk for ViewDisk {
    fn list(&self) -> Result<Vec<String>> {
        Ok(self.names().keys().cloned().collect())
    }

    fn list_others(&self) -> Result<Vec<String>> {
        names_in(&self.dir, &self.path.display().to_string(), NameKind::Others)
    }

    fn create(&self, name: &str, len: u64) -> Result<Arc<dyn DiskFile>> {
        check_name(name)?;
        let mut names = self.names();
        if names.contains_key(name) {
            return Err(io(DiskOp::Create, name)(Errno::EXIST));
        }
        let file = Arc::new(ViewFile::new(name, None, len));
        names.insert(name.to_owned(), file.clone());
        Ok(file)
    }

    fn open(&self, name: &str) -> Result<Arc<dyn DiskFile>> {
        check_name(name)?;
        match self.names().get(name) {
            Some(file) => Ok(file.clone()),
            None => Err(io(DiskOp::Open, name)(Errno::NOENT)),
        }
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        check_name(to)?;
        let mut names = self.names();
        let file = names.remove(from).ok_or_else(|| io(DiskOp::Rename, from)(Errno::NOENT))?;
        names.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.names().remove(name).map(drop).ok_or_else(|| io(DiskOp::Remove, name)(Errno::NOENT))
    }

    fn sync_dir(&self) -> Result<()> {
        Ok(())
    }

    /// Space of the file system: files created in the view use none of it.
    fn space(&self) -> Result<Space> {
        let stat = retry(|| rustix::fs::fstatvfs(&self.dir));
        let stat = stat.map_err(io(DiskOp::Space, &self.path.display().to_string()))?;
        let capacity_bytes = stat.f_blocks * stat.f_frsize;
        Ok(Space { capacity_bytes, free_bytes: capacity_bytes })
    }
}

impl DiskFile for ViewFile {
    fn len(&self) -> Result<u64> {
        Ok(self.len)
    }

    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        let bytes = parts.concat();
        let len = bytes.len() as u64;
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(Error::Beyond { name: self.name.clone(), offset, len, file_bytes: self.len });
        }
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let (number, within) = (at / PAGE_BYTES, (at % PAGE_BYTES) as usize);
            let count = (PAGE_BYTES as usize - within).min(bytes.len() - done);
            let mut page = Box::new([0u8; PAGE_BYTES as usize]);
            self.read_at(number * PAGE_BYTES, &mut page[..])?;
            page[within..within + count].copy_from_slice(&bytes[done..done + count]);
            self.pages().insert(number, page);
            done += count;
        }
        Ok(())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.read_base(offset, into, |fd, into| read_all(fd, offset, into, 1))
    }

    fn read_direct_at(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.read_base(offset, into, |fd, into| read_direct(fd, &self.direct, offset, into))
    }

    // A view reads from the medium: there are no copies to fetch.
    fn prefetch(&self, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }

    fn advise_dont_need(&self, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }

    fn hint_random_reads(&self) -> Result<()> {
        Ok(())
    }

    fn cached_bytes(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    fn punch(&self, _offset: u64, _len: u64) -> Result<u64> {
        // There is no space to free.
        Err(io(DiskOp::Punch, &self.name)(Errno::OPNOTSUPP))
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }
}

/// A copy of a directory tree that may be changed without changing the original. Removed when dropped.
#[derive(Debug)]
pub struct TreeCopy(PathBuf);

impl TreeCopy {
    /// Copies a tree to the machine's directory of temporary files. Files for which `never_changes` is true of their
    /// path are hard links, not copies.
    ///
    /// # Errors
    /// The system's, naming the file.
    pub fn of(from: &Path, never_changes: &dyn Fn(&Path) -> bool) -> Result<TreeCopy> {
        let mut nonce = [0u8; 8];
        retry(|| rustix::rand::getrandom(&mut nonce, rustix::rand::GetRandomFlags::empty()))
            .map_err(io(DiskOp::Create, "a random name"))?;
        let name = format!("frieze-copy-{:016x}", u64::from_le_bytes(nonce));
        let to = std::env::temp_dir().join(name);
        // Created before it has content: if a step fails, it is removed again.
        let copy = TreeCopy(to.clone());
        copy_tree(&std::path::absolute(from).unwrap_or_else(|_| from.to_owned()), &to, never_changes)?;
        Ok(copy)
    }

    /// Path of the copy.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TreeCopy {
    fn drop(&mut self) {
        // If files cannot be removed, the system's cleaning of temporary files removes them.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn copy_tree(from: &Path, to: &Path, never_changes: &dyn Fn(&Path) -> bool) -> Result<()> {
    let failed = |op: DiskOp, path: &Path| {
        let name = path.display().to_string();
        move |error: std::io::Error| io(op, &name)(Errno::from_io_error(&error).unwrap_or(Errno::IO))
    };
    fs::DirBuilder::new().mode(0o700).create(to).map_err(failed(DiskOp::Create, to))?;
    for entry in fs::read_dir(from).map_err(failed(DiskOp::List, from))? {
        let entry = entry.map_err(failed(DiskOp::List, from))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().map_err(failed(DiskOp::Open, &source))?;
        if kind.is_dir() {
            copy_tree(&source, &target, never_changes)?;
        } else if never_changes(&source) {
            symlink(&source, &target).map_err(failed(DiskOp::Create, &target))?;
        } else if kind.is_file() {
            fs::copy(&source, &target).map_err(failed(DiskOp::Read, &source))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileDisk, FileDiskSettings};

    fn bytes_of(disk: &dyn Disk, name: &str) -> Vec<u8> {
        let file = disk.open(name).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        assert_eq!(file.read_at(0, &mut bytes).unwrap(), bytes.len());
        let mut again = vec![1; bytes.len()];
        assert_eq!(file.read_direct_at(0, &mut again).unwrap(), bytes.len());
        assert!(again == bytes);
        bytes
    }

    #[test]
    fn changes_show_in_the_view_only() {
        let dir = tempfile::tempdir().unwrap();
        let disk = FileDisk::open(dir.path(), FileDiskSettings::default()).unwrap();
        let was: Vec<u8> = (0..20_000u32).map(|i| (i % 251) as u8).collect();
        disk.create("a", 20_000).unwrap().write_at(0, &[&was]).unwrap();
        disk.create("b", 10).unwrap();
        assert_eq!(ViewDisk::open(dir.path()).unwrap_err().reason(), frieze_base::Reason::Busy);
        drop(disk);
        let lock = fs::read(dir.path().join("lock")).unwrap();

        let view = ViewDisk::open(dir.path()).unwrap();
        let file = view.open("a").unwrap();
        file.write_at(4000, &[&[7; 100], &[8; 5000]]).unwrap();
        assert!(file.write_at(19_999, &[&[1; 2]]).is_err());
        let mut now = was.clone();
        now[4000..4100].fill(7);
        now[4100..9100].fill(8);
        assert!(bytes_of(&view, "a") == now);
        let mut part = [0; 3];
        assert_eq!(file.read_at(4099, &mut part), Ok(3));
        assert_eq!(part, [7, 8, 8]);
        assert_eq!(file.read_at(19_999, &mut part), Ok(1));
        view.create("c", 5000).unwrap().write_at(4990, &[b"end"]).unwrap();
        view.rename("c", "b").unwrap();
        assert_eq!(bytes_of(&view, "b")[4990..4993], *b"end");
        view.remove("a").unwrap();
        assert_eq!(view.list().unwrap(), ["b"]);
        // A server cannot open the directory while a view is open.
        assert!(FileDisk::open(dir.path(), FileDiskSettings::default()).is_err());
        drop((file, view));

        assert!(fs::read(dir.path().join("lock")).unwrap() == lock);
        let disk = FileDisk::open(dir.path(), FileDiskSettings::default()).unwrap();
        assert_eq!(disk.list().unwrap(), ["a", "b"]);
        assert!(bytes_of(&disk, "a") == was);
    }

    #[test]
    fn a_copy_of_a_tree_links_to_what_never_changes_and_goes_when_it_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("x/tables")).unwrap();
        fs::write(dir.path().join("x/tables/1"), b"table").unwrap();
        fs::write(dir.path().join("x/log"), b"log").unwrap();
        let copy =
            TreeCopy::of(dir.path(), &|path| path.parent().is_some_and(|above| above.ends_with("tables"))).unwrap();
        let at = copy.path().to_owned();
        fs::write(at.join("x/log"), b"other").unwrap();
        assert_eq!(fs::read(at.join("x/tables/1")).unwrap(), b"table");
        fs::remove_file(at.join("x/tables/1")).unwrap();
        assert_eq!(fs::read(dir.path().join("x/tables/1")).unwrap(), b"table");
        assert_eq!(fs::read(dir.path().join("x/log")).unwrap(), b"log");
        drop(copy);
        assert!(!at.exists());
        assert!(TreeCopy::of(&dir.path().join("nowhere"), &|_| true).is_err());
    }
}
