//! A device that is a directory of the machine's file system.
//!
//! Guarantees: those of [`Disk`]; one process at a time (a lock on the file `lock`, which ends with the process).
//! Space of a file is reserved when it is created (`fallocate`, or by writing zeroes if the file system has none).

use std::collections::BTreeSet;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use frieze_locks::{Mutex, MutexGuard, levels};
use rustix::fs::{Advice, AtFlags, Dir, FallocateFlags, FileType, Mode, OFlags, RenameFlags, StatxFlags};
use rustix::io::Errno;
use smallvec::SmallVec;

use crate::device::{check_name, pages_within};
use crate::directory_lock::DirectoryLock;
use crate::page_cache::{begin_writeback, cached_bytes};
use crate::syscalls::{io, open_directory, read_all, read_direct, retry};
use crate::window::{MappedWriter, may_map};
use crate::{Disk, DiskFile, DiskOp, Error, Result, Space};

/// Settings of a directory used as a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileDiskSettings {
    /// Most bytes of all files together. Default: the limit of the file system. Less makes a full disk testable and
    /// leaves space for other programs.
    pub capacity_bytes_max: Option<u64>,
}

/// A directory used as a device, locked until it is dropped.
#[derive(Debug)]
pub struct FileDisk {
    path: PathBuf,
    dir: OwnedFd,
    settings: FileDiskSettings,
    /// Bytes of all files; the lock serialises rename, remove and punch.
    used_bytes: Arc<Mutex<levels::DiskSpace, u64>>,
    /// Locked while a file is created: unfinished files share one name.
    creating: Mutex<levels::FileCreation, ()>,
    /// Files whose sync has failed.
    sync_failed: FailedFiles,
    /// Small writes may go into mapped pages.
    may_map: bool,
    /// The lock on the directory.
    _lock: DirectoryLock,
}

/// An open file of a [`FileDisk`].
#[derive(Debug)]
struct OpenFile {
    name: String,
    fd: OwnedFd,
    len: u64,
    inode: u64,
    sync_failed: FailedFiles,
    used_bytes: Arc<Mutex<levels::DiskSpace, u64>>,
    /// The same file without the page cache; `None` if the file system does not support that.
    direct: OnceLock<Option<OwnedFd>>,
    /// The window of small writes; `None` if files are not to be mapped.
    mapped: Option<Mutex<levels::WriteWindow, MappedWriter>>,
}

/// Inode numbers of files whose sync has failed, on any handle.
type FailedFiles = Arc<Mutex<levels::FailedFiles, BTreeSet<u64>>>;

impl FileDisk {
    /// Opens the directory `path` as a device, creating it if it is missing (its parent has to exist).
    ///
    /// # Errors
    /// `Busy` if another server has it locked, with its process id. Other errors of the system, naming the directory.
    pub fn open(path: &Path, settings: FileDiskSettings) -> Result<FileDisk> {
        let at = |errno| Error::Io { op: DiskOp::OpenDisk, name: path.display().to_string(), errno };
        match retry(|| rustix::fs::mkdir(path, Mode::from_raw_mode(0o700))) {
            Ok(()) => {
                let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
                open_directory(parent).and_then(|parent| retry(|| rustix::fs::fsync(&parent))).map_err(at)?;
            }
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(at(errno)),
        }
        let dir = open_directory(path).map_err(at)?;
        let lock = DirectoryLock::acquire(&dir, path)?;
        // An unfinished file of an earlier process.
        match retry(|| rustix::fs::unlinkat(&dir, UNFINISHED_NAME, AtFlags::empty())) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(at(errno)),
        }
        let may_map = may_map(&dir);
        let disk = FileDisk {
            path: path.to_owned(),
            dir,
            settings,
            used_bytes: Arc::default(),
            creating: Mutex::default(),
            sync_failed: FailedFiles::default(),
            may_map,
            _lock: lock,
        };
        let mut used_bytes = 0;
        for name in disk.list()? {
            used_bytes += disk.taken_by(&name, DiskOp::OpenDisk)?;
        }
        *disk.used() = used_bytes;
        Ok(disk)
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    #[track_caller]
    fn used(&self) -> MutexGuard<'_, u64> {
        self.used_bytes.lock()
    }

    fn make(&self, name: &str, len: u64) -> std::result::Result<OwnedFd, Errno> {
        let flags = OFlags::CREATE | OFlags::TRUNC | FILE_FLAGS;
        let fd = retry(|| rustix::fs::openat(&self.dir, UNFINISHED_NAME, flags, Mode::from_raw_mode(0o600)))?;
        reserve(&fd, len)?;
        // Another process may have created a file of that name meanwhile.
        let flags = RenameFlags::NOREPLACE;
        match retry(|| rustix::fs::renameat_with(&self.dir, UNFINISHED_NAME, &self.dir, name, flags)) {
            // The file system does not support the flag; other processes create no files of these names.
            Err(Errno::INVAL | Errno::NOSYS) => {
                retry(|| rustix::fs::renameat(&self.dir, UNFINISHED_NAME, &self.dir, name))?
            }
            done => done?,
        }
        Ok(fd)
    }

    fn handle(&self, name: &str, fd: OwnedFd, op: DiskOp) -> Result<Arc<dyn DiskFile>> {
        let stat = retry(|| rustix::fs::fstat(&fd)).map_err(io(op, name))?;
        let sync_failed = Arc::clone(&self.sync_failed);
        Ok(Arc::new(OpenFile {
            name: name.to_owned(),
            fd,
            len: stat.st_size as u64,
            inode: stat.st_ino,
            sync_failed,
            used_bytes: Arc::clone(&self.used_bytes),
            direct: OnceLock::new(),
            mapped: self.may_map.then(Mutex::default),
        }))
    }

    /// Bytes that a file uses: its length, less what was freed.
    fn taken_by(&self, name: &str, op: DiskOp) -> Result<u64> {
        check_name(name)?;
        let stat = retry(|| rustix::fs::statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW)).map_err(io(op, name))?;
        Ok((stat.st_size as u64).min(allocated(&stat)))
    }
}

impl FileDisk {
    /// Distinguishes this file from every copy of it: its inode number, and the time of its creation. Unchanged by a
    /// restart of the machine or a rename of the directory; different in a copy. Empty if the system has no such
    /// values.
    ///
    /// # Errors
    /// `NotFound` if there is no such file; what else the system says.
    pub fn place(&self, name: &str) -> Result<String> {
        check_name(name)?;
        let mask = StatxFlags::INO | StatxFlags::BTIME;
        let stat = retry(|| rustix::fs::statx(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW, mask));
        let stat = stat.map_err(io(DiskOp::Open, name))?;
        let has_birth = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
        let born = || format!("{}.{:09}", stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec);
        Ok(format!("{}@{}", stat.stx_ino, if has_birth { born() } else { String::new() }))
    }
}

impl Disk for FileDisk {
    fn list(&self) -> Result<Vec<String>> {
        names_in(&self.dir, &self.path.display().to_string(), NameKind::Files)
    }

    fn list_others(&self) -> Result<Vec<String>> {
        names_in(&self.dir, &self.path.display().to_string(), NameKind::Others)
    }

    fn create(&self, name: &str, len: u64) -> Result<Arc<dyn DiskFile>> {
        check_name(name)?;
        let _creating = self.creating.lock();
        match retry(|| rustix::fs::statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW)) {
            Err(Errno::NOENT) => {}
            Ok(_) => return Err(io(DiskOp::Create, name)(Errno::EXIST)),
            Err(errno) => return Err(io(DiskOp::Create, name)(errno)),
        }
        {
            let mut used_bytes = self.used();
            let free_bytes = self.settings.capacity_bytes_max.unwrap_or(u64::MAX).saturating_sub(*used_bytes);
            if len > free_bytes {
                return Err(Error::Full { name: name.to_owned(), wanted_bytes: len, free_bytes });
            }
            // Counted before it is allocated: a file system may need long to find the space, and other operations run
            // meanwhile.
            *used_bytes += len;
        }
        // Created under another name first: a crash in between leaves no file that is shorter than it should be.
        let made = self.make(name, len).map_err(|errno| {
            *self.used() -= len;
            // Best effort: the reported failure is the one that matters.
            let _ = rustix::fs::unlinkat(&self.dir, UNFINISHED_NAME, AtFlags::empty());
            io(DiskOp::Create, name)(errno)
        })?;
        self.handle(name, made, DiskOp::Create)
    }

    fn open(&self, name: &str) -> Result<Arc<dyn DiskFile>> {
        check_name(name)?;
        let fd =
            retry(|| rustix::fs::openat(&self.dir, name, FILE_FLAGS, Mode::empty())).map_err(io(DiskOp::Open, name))?;
        self.handle(name, fd, DiskOp::Open)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        check_name(from)?;
        check_name(to)?;
        let mut used_bytes = self.used();
        let replaced_bytes = if from == to { 0 } else { self.taken_by(to, DiskOp::Rename).unwrap_or(0) };
        retry(|| rustix::fs::renameat(&self.dir, from, &self.dir, to)).map_err(io(DiskOp::Rename, from))?;
        *used_bytes = used_bytes.saturating_sub(replaced_bytes);
        Ok(())
    }

    fn hint_name(&self, name: &str) {
        // The kernel caches lookups, also negative ones. The result matters only in the later call.
        let _found = rustix::fs::statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW);
    }

    fn remove(&self, name: &str) -> Result<()> {
        let mut used_bytes = self.used();
        let len = self.taken_by(name, DiskOp::Remove)?;
        retry(|| rustix::fs::unlinkat(&self.dir, name, AtFlags::empty())).map_err(io(DiskOp::Remove, name))?;
        *used_bytes = used_bytes.saturating_sub(len);
        Ok(())
    }

    fn sync_dir(&self) -> Result<()> {
        retry(|| rustix::fs::fsync(&self.dir)).map_err(io(DiskOp::SyncDir, &self.path.display().to_string()))
    }

    fn space(&self) -> Result<Space> {
        let stat =
            retry(|| rustix::fs::fstatvfs(&self.dir)).map_err(io(DiskOp::Space, &self.path.display().to_string()))?;
        let (mut capacity_bytes, mut free_bytes) = (stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize);
        if let Some(max) = self.settings.capacity_bytes_max {
            capacity_bytes = capacity_bytes.min(max);
            free_bytes = free_bytes.min(max.saturating_sub(*self.used()));
        }
        Ok(Space { capacity_bytes, free_bytes })
    }
}

impl DiskFile for OpenFile {
    fn len(&self) -> Result<u64> {
        Ok(self.len)
    }

    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        let len: u64 = parts.iter().map(|part| part.len() as u64).sum();
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(Error::Beyond { name: self.name.clone(), offset, len, file_bytes: self.len });
        }
        if let Some(writer) = &self.mapped
            && writer.lock().put(&self.fd, offset, parts, len)
        {
            return Ok(());
        }
        let mut slices: SmallVec<[IoSlice<'_>; 4]> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut left = &mut slices[..];
        IoSlice::advance_slices(&mut left, 0); // leaves out empty parts at the front
        let mut at = offset;
        while !left.is_empty() {
            // At most IOV_MAX parts go in one call; rustix leaves the rest for the next.
            let written = retry(|| rustix::io::pwritev(&self.fd, left, at)).map_err(io(DiskOp::Write, &self.name))?;
            if written == 0 {
                return Err(io(DiskOp::Write, &self.name)(Errno::IO)); // never for a regular file: do not spin on it
            }
            at += written as u64;
            IoSlice::advance_slices(&mut left, written);
        }
        Ok(())
    }

    fn hint_writes(&self, free: Range<u64>) {
        if let Some(writer) = &self.mapped {
            writer.lock().declare_free(free.start..free.end.min(self.len));
        }
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        read_all(&self.fd, offset, into, 1).map_err(io(DiskOp::Read, &self.name))
    }

    fn read_two_at(&self, offset: u64, first: &mut [u8], second: &mut [u8]) -> Result<usize> {
        let wanted = first.len() + second.len();
        let read = rustix::io::preadv(&self.fd, &mut [IoSliceMut::new(first), IoSliceMut::new(second)], offset);
        if read == Ok(wanted) {
            return Ok(wanted);
        }
        // A short read, an interrupt or an error: separate reads show which.
        let found = self.read_at(offset, first)?;
        Ok(found + if found < first.len() { 0 } else { self.read_at(offset + found as u64, second)? })
    }

    fn handle(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }

    fn read_direct_at(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        read_direct(&self.fd, &self.direct, offset, into).map_err(io(DiskOp::Read, &self.name))
    }

    fn prefetch(&self, offset: u64, len: u64) -> Result<()> {
        let Some(len) = std::num::NonZeroU64::new(len) else { return Ok(()) };
        match retry(|| rustix::fs::fadvise(&self.fd, offset, Some(len), Advice::WillNeed)) {
            // A file system without such advice reads on demand.
            Ok(()) | Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(errno) => Err(io(DiskOp::Read, &self.name)(errno)),
        }
    }

    fn begin_sync(&self, offset: u64, len: u64) {
        // A partial page would be written twice: the next write fills the rest of it.
        let (start, end) = pages_within(offset, len);
        begin_writeback(self.fd.as_fd(), start, end - start);
    }

    fn advise_dont_need(&self, offset: u64, len: u64) -> Result<()> {
        // The kernel drops only whole pages, and takes a length of 0 as the rest of the file.
        let Some(len) = std::num::NonZeroU64::new(len) else { return Ok(()) };
        retry(|| rustix::fs::fadvise(&self.fd, offset, Some(len), Advice::DontNeed))
            .map_err(io(DiskOp::Advise, &self.name))
    }

    fn hint_random_reads(&self) -> Result<()> {
        retry(|| rustix::fs::fadvise(&self.fd, 0, None, Advice::Random)).map_err(io(DiskOp::Advise, &self.name))
    }

    fn cached_bytes(&self) -> Result<Option<u64>> {
        cached_bytes(self.fd.as_fd()).map_err(io(DiskOp::Read, &self.name))
    }

    fn punch(&self, offset: u64, len: u64) -> Result<u64> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(Error::Beyond { name: self.name.clone(), offset, len, file_bytes: self.len });
        }
        let (start, end) = pages_within(offset, len);
        if start == end {
            return Ok(0);
        }
        let mut used_bytes = self.used_bytes.lock();
        let failed = io(DiskOp::Punch, &self.name);
        let before = allocated(&retry(|| rustix::fs::fstat(&self.fd)).map_err(&failed)?);
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        retry(|| rustix::fs::fallocate(&self.fd, flags, start, end - start)).map_err(&failed)?;
        let after = allocated(&retry(|| rustix::fs::fstat(&self.fd)).map_err(&failed)?);
        let freed = before.saturating_sub(after);
        *used_bytes = used_bytes.saturating_sub(freed);
        Ok(freed)
    }

    fn sync(&self) -> Result<()> {
        let failed = || self.sync_failed.lock();
        if failed().contains(&self.inode) {
            return Err(Error::SyncLost { name: self.name.clone() });
        }
        // Linux drops the dirty pages of a failed sync: a second attempt could report false success.
        retry(|| rustix::fs::fdatasync(&self.fd)).map_err(|errno| {
            failed().insert(self.inode);
            io(DiskOp::Sync, &self.name)(errno)
        })?;
        if let Some(writer) = &self.mapped {
            writer.lock().synced();
        }
        Ok(())
    }
}

/// Bytes that a file uses on its file system; `st_blocks` counts units of 512, whatever a block is.
fn allocated(stat: &rustix::fs::Stat) -> u64 {
    stat.st_blocks as u64 * 512
}

/// Which names of a directory are listed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameKind {
    /// Files.
    Files,
    /// All that are none.
    Others,
}

/// The names in a directory that can belong to a device, sorted.
pub(crate) fn names_in(dir: &OwnedFd, here: &str, kind: NameKind) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir).map_err(io(DiskOp::List, here))? {
        let entry = entry.map_err(io(DiskOp::List, here))?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        if check_name(name).is_err() {
            continue;
        }
        let is_file = match entry.file_type() {
            FileType::RegularFile => true,
            FileType::Unknown => {
                let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
                let stat = stat.map_err(io(DiskOp::List, name))?;
                FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            }
            _ => false,
        };
        if is_file == (kind == NameKind::Files) {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Reserves `len` bytes that read as zero.
fn reserve(fd: &OwnedFd, len: u64) -> std::result::Result<(), Errno> {
    if len == 0 {
        return Ok(());
    }
    match retry(|| rustix::fs::fallocate(fd, FallocateFlags::empty(), 0, len)) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeroes(fd, len),
        done => done,
    }
}

/// Reserves by writing, for file systems without `fallocate`.
fn write_zeroes(fd: &OwnedFd, len: u64) -> std::result::Result<(), Errno> {
    retry(|| rustix::fs::ftruncate(fd, len))?;
    let zeroes = vec![0u8; (1 << 20).min(len as usize)];
    let mut at = 0;
    while at < len {
        let piece = &zeroes[..zeroes.len().min((len - at) as usize)];
        match retry(|| rustix::io::pwrite(fd, piece, at))? {
            0 => return Err(Errno::IO),
            written => at += written as u64,
        }
    }
    Ok(())
}

const UNFINISHED_NAME: &str = ".making";
const FILE_FLAGS: OFlags = OFlags::RDWR.union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

#[cfg(test)]
mod tests;
