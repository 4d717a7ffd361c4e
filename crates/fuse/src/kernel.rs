//! The `fuser` crate's calls translated into [`Operations`], and nothing else.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLock,
    ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use nix::errno::Errno;
use nix::fcntl::OFlag;

use crate::node::NodeId;
use crate::operations::{
    Allocate, AttrChanges, Attributes, FileLock, FuseCaller, FuseEntry, LockFor, LookupResult, NewMode, NewNode,
    NewTime, NodeKind, OpenHow, OpenResult, Operations, RenameHow, SeekFor, WantedLock, WriteHow,
};

/// A file system as `fuser` wants one.
pub(crate) struct KernelAdapter<T: Operations> {
    operations: Arc<T>,
    /// It shows an instant, which has no writers: locks are not needed.
    shows_past: bool,
}

/// Lines of a listing gathered at a time: what fits into the buffer of readdir(3), 32 KiB, at most.
const LINES_MAX: usize = 240;
/// The largest read or write of one request: the kernel's own limit (256 pages).
pub(crate) const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Read-ahead and other background requests at one time: 1 MiB each fills a fast link many times over.
const BACKGROUND_MAX: u16 = 64;

impl<T: Operations> KernelAdapter<T> {
    pub(crate) fn new(operations: Arc<T>, shows_past: bool) -> KernelAdapter<T> {
        KernelAdapter { operations, shows_past }
    }
}

thread_local! {
    /// Bytes on their way to the kernel. Reused: memory that is hot and already there costs half of fresh memory.
    static READ_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl<T: Operations> Filesystem for KernelAdapter<T> {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Not FUSE_ATOMIC_O_TRUNC: a running program would be truncated before the kernel refuses (ETXTBSY) to open it
        // with O_RDONLY | O_TRUNC. Without it the kernel requests the truncation itself, after it has checked the
        // right. Not FUSE_ASYNC_DIO: the kernel drops cached pages before it sends an asynchronous O_DIRECT write and
        // not again when it has ended, so a page that another program reads meanwhile would stay as it was before.
        let mut wanted = vec![
            // Pages are dropped when a file's size or mtime has changed.
            InitFlags::FUSE_AUTO_INVAL_DATA,
            InitFlags::FUSE_PARALLEL_DIROPS,
            // Without it the kernel would chmod as the writer, which is not allowed to, before a write to a set-user-id
            // file.
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
            // A file open for appending can be mapped too.
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
        ];
        // Names and attributes hold for a while, so listings carry them.
        wanted.extend([InitFlags::FUSE_DO_READDIRPLUS, InitFlags::FUSE_READDIRPLUS_AUTO]);
        if !self.shows_past {
            wanted.extend([InitFlags::FUSE_POSIX_LOCKS, InitFlags::FUSE_FLOCK_LOCKS]);
        }
        // The kernel's own check has to know of access lists, or it would refuse users that a list admits. The
        // umask counts only where no default list does, which the server knows.
        wanted.extend([InitFlags::FUSE_POSIX_ACL, InitFlags::FUSE_DONT_MASK]);
        for flag in wanted {
            if let Err(missing) = config.add_capabilities(flag) {
                tracing::debug!("this kernel does without {missing:?}");
            }
        }
        // A refused value comes back as the nearest that is possible.
        if let Err(possible) = config.set_max_write(REQUEST_BYTES_MAX) {
            config.set_max_write(possible).map_err(|_| io::Error::other("the kernel takes no size of writes"))?;
        }
        if let Err(possible) = config.set_max_background(BACKGROUND_MAX) {
            tracing::debug!("at most {possible} requests in the background");
        }
        Ok(())
    }

    fn destroy(&mut self) {
        self.operations.destroy();
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.operations.lookup(who(req), node(parent), name.as_bytes()) {
            Ok(LookupResult::Entry(entry)) => self.answer_entry(Ok(entry), reply),
            Ok(LookupResult::Absent(promise)) => {
                let mut reply = Some(reply);
                self.operations.giving(&mut |holding| {
                    let Some(reply) = reply.take() else { return };
                    let (names, _) = holding(&promise);
                    match names.is_zero() {
                        true => reply.error(to_fuser(Errno::ENOENT)),
                        // An inode of 0 is an absent name, for its validity.
                        false => reply.entry(&names, &absent(), Generation(0)),
                    }
                });
            }
            Err(errno) => reply.error(to_fuser(errno)),
        }
    }

    fn forget(&self, _req: &Request, ino: INodeNo, nlookup: u64) {
        self.operations.forget(node(ino), nlookup);
    }

    fn getattr(&self, req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        self.answer_attr(self.operations.getattr(who(req), node(ino)), reply);
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let changes = AttrChanges {
            mode,
            uid,
            gid,
            size,
            atime: atime.map(new_time),
            mtime: mtime.map(new_time),
            handle: fh.map(|fh| fh.0),
        };
        self.answer_attr(self.operations.setattr(who(req), node(ino), changes), reply);
    }

    fn readlink(&self, req: &Request, ino: INodeNo, reply: ReplyData) {
        match self.operations.readlink(who(req), node(ino)) {
            Ok(target) => reply.data(&target),
            Err(errno) => reply.error(to_fuser(errno)),
        }
    }

    fn mknod(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, rdev: u32, reply: ReplyEntry) {
        self.answer_entry(
            self.operations.mknod(
                who(req),
                node(parent),
                name.as_bytes(),
                NewNode { mode: NewMode { mode, umask }, rdev },
            ),
            reply,
        );
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let mode = NewMode { mode, umask };
        self.answer_entry(self.operations.mkdir(who(req), node(parent), name.as_bytes(), mode), reply);
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer_empty(self.operations.unlink(who(req), node(parent), name.as_bytes()), reply);
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer_empty(self.operations.rmdir(who(req), node(parent), name.as_bytes()), reply);
    }

    fn symlink(&self, req: &Request, parent: INodeNo, link_name: &OsStr, target: &Path, reply: ReplyEntry) {
        let target = target.as_os_str().as_bytes();
        self.answer_entry(self.operations.symlink(who(req), node(parent), link_name.as_bytes(), target), reply);
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let how = match flags {
            flags if flags.is_empty() => RenameHow::Replace,
            RenameFlags::RENAME_NOREPLACE => RenameHow::NoReplace,
            RenameFlags::RENAME_EXCHANGE => RenameHow::Exchange,
            _ => return reply.error(to_fuser(Errno::EINVAL)),
        };
        let (from, to) = ((node(parent), name.as_bytes()), (node(newparent), newname.as_bytes()));
        answer_empty(self.operations.rename(who(req), from, to, how), reply);
    }

    fn link(&self, req: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        self.answer_entry(self.operations.link(who(req), node(ino), node(newparent), newname.as_bytes()), reply);
    }

    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        answer_open(self.operations.open(who(req), node(ino), open_how(flags)), reply);
    }

    fn read(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        READ_BUFFER.with_borrow_mut(|buffer| {
            let size = size as usize;
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            match self.operations.read(fh.0, offset, &mut buffer[..size]) {
                Ok(count) => reply.data(&buffer[..count]),
                Err(errno) => reply.error(to_fuser(errno)),
            }
        });
    }

    fn write(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let flags = OFlag::from_bits_retain(flags.0);
        let from_cache = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let how = WriteHow {
            // A page of a shared mapping is written back to its offset, whatever the file was opened with.
            append: flags.contains(OFlag::O_APPEND) && !from_cache,
            sync: flags.intersects(OFlag::O_SYNC | OFlag::O_DSYNC),
            kill_privileges: write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID),
            from_cache,
        };
        match self.operations.write(fh.0, offset, data, how) {
            Ok(written) => reply.written(written as u32),
            Err(errno) => reply.error(to_fuser(errno)),
        }
    }

    fn flush(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, lock_owner: LockOwner, reply: ReplyEmpty) {
        // The kernel has written its dirty mappings back before it asks, and every write was answered.
        self.operations.flush(node(ino), lock_owner.0);
        reply.ok();
    }

    fn release(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.operations.release(node(ino), fh.0, lock_owner.map(|owner| owner.0));
        reply.ok();
    }

    fn fsync(&self, _req: &Request, _ino: INodeNo, fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        answer_empty(self.operations.fsync(fh.0), reply);
    }

    fn opendir(&self, req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        answer_open(self.operations.opendir(who(req), node(ino)), reply);
    }

    fn readdir(&self, req: &Request, _ino: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let read = self.operations.readdir(who(req), fh.0, offset, &mut |line| {
            reply.add(INodeNo(line.node.0), line.cookie, file_type(line.kind), OsStr::from_bytes(line.name))
        });
        match read {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(to_fuser(errno)),
        }
    }

    fn readdirplus(&self, req: &Request, _ino: INodeNo, fh: FileHandle, offset: u64, reply: ReplyDirectoryPlus) {
        // First the lines, which may have to wait for the server, then the answer, which must not.
        let mut lines: Vec<(u64, Vec<u8>, FuseEntry)> = Vec::new();
        let read = self.operations.readdir_plus(who(req), fh.0, offset, &mut |line, entry| {
            let full = lines.len() >= LINES_MAX;
            if !full {
                lines.push((line.cookie, line.name.to_vec(), *entry));
            }
            full
        });
        if let Err(errno) = read {
            return reply.error(to_fuser(errno));
        }
        let mut reply = Some(reply);
        let mut left_out = lines.len();
        self.operations.giving(&mut |holding| {
            let Some(mut reply) = reply.take() else { return };
            for (at, (cookie, name, entry)) in lines.iter().enumerate() {
                let (names, files) = entry.promise.as_ref().map_or((entry.valid, entry.valid), holding);
                let (node, attributes) = (INodeNo(entry.attributes.node.0), file_attr(&entry.attributes));
                if reply.add(node, *cookie, OsStr::from_bytes(name), &names.min(files), &attributes, Generation(0)) {
                    left_out = at;
                    break;
                }
            }
            reply.ok();
        });
        for (_, name, entry) in &lines[left_out..] {
            // They will be shown again; `.` and `..` carry no reference.
            if name != b"." && name != b".." {
                self.operations.forget(entry.attributes.node, 1);
            }
        }
    }

    fn releasedir(&self, _req: &Request, _ino: INodeNo, fh: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        self.operations.releasedir(fh.0);
        reply.ok();
    }

    fn fsyncdir(&self, _req: &Request, _ino: INodeNo, fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        answer_empty(self.operations.fsyncdir(fh.0), reply);
    }

    fn statfs(&self, _req: &Request, ino: INodeNo, reply: ReplyStatfs) {
        match self.operations.statfs(node(ino)) {
            Ok(space) => {
                let free = space.free_bytes / u64::from(STATFS_BLOCK_BYTES);
                reply.statfs(
                    space.capacity_bytes / u64::from(STATFS_BLOCK_BYTES),
                    free,
                    free,
                    space.inodes,
                    space.inodes_free,
                    STATFS_BLOCK_BYTES,
                    frieze_base::NAME_BYTES_MAX as u32,
                    STATFS_BLOCK_BYTES,
                );
            }
            Err(errno) => reply.error(to_fuser(errno)),
        }
    }

    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let flags = flags as u32;
        answer_empty(self.operations.setxattr(who(req), node(ino), name.as_bytes(), value, flags), reply);
    }

    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        answer_xattr(self.operations.getxattr(who(req), node(ino), name.as_bytes()), size, reply);
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        answer_xattr(self.operations.listxattr(who(req), node(ino)), size, reply);
    }

    fn removexattr(&self, req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer_empty(self.operations.removexattr(who(req), node(ino), name.as_bytes()), reply);
    }

    fn access(&self, req: &Request, ino: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        answer_empty(self.operations.access(who(req), node(ino), mask.bits() as u32), reply);
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let mode = NewMode { mode, umask };
        match self.operations.create(who(req), node(parent), name.as_bytes(), mode, open_how(OpenFlags(flags))) {
            Ok((entry, opened)) => {
                let mut reply = Some(reply);
                self.give(&entry, &mut |names, files| {
                    let (attributes, handle) = (file_attr(&entry.attributes), FileHandle(opened.handle));
                    if let Some(reply) = reply.take() {
                        // One time for both.
                        reply.created(&names.min(files), &attributes, Generation(0), handle, fopen_flags(opened));
                    }
                });
            }
            Err(errno) => reply.error(to_fuser(errno)),
        }
    }

    fn getlk(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        lock_owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        pid: u32,
        reply: ReplyLock,
    ) {
        let wanted = FileLock { owner: lock_owner.0, kind: lock_for(typ), start, end, pid };
        match self.operations.test_lock(node(ino), wanted) {
            Ok(None) => reply.locked(0, 0, F_UNLCK, 0),
            Ok(Some(FileLock { kind, start, end, pid, .. })) => {
                let typ = if kind == LockFor::Writing { F_WRLCK } else { F_RDLCK };
                reply.locked(start, end, typ, pid);
            }
            Err(errno) => reply.error(to_fuser(errno)),
        }
    }

    fn setlk(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        lock_owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        pid: u32,
        sleep: bool,
        reply: ReplyEmpty,
    ) {
        let range = FileLock { owner: lock_owner.0, kind: lock_for(typ), start, end, pid };
        let answer = Box::new(move |result| answer_empty(result, reply));
        self.operations.lock(who(req), node(ino), WantedLock { range, handle: fh.0, wait: sleep }, answer);
    }

    fn ioctl(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _flags: IoctlFlags,
        _cmd: u32,
        _in_data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(to_fuser(Errno::ENOTTY));
    }

    fn fallocate(
        &self,
        req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let how = match mode {
            0 => Allocate::Extend,
            KEEP_SIZE => Allocate::KeepSize,
            PUNCH_HOLE_KEEP_SIZE => Allocate::Punch,
            ZERO_RANGE => Allocate::Zero,
            ZERO_RANGE_KEEP_SIZE => Allocate::ZeroKeepSize,
            _ => Allocate::Other,
        };
        answer_empty(self.operations.allocate(who(req), fh.0, offset, length, how), reply);
    }

    fn lseek(&self, _req: &Request, _ino: INodeNo, fh: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let what = match whence {
            SEEK_DATA => SeekFor::Data,
            SEEK_HOLE => SeekFor::Hole,
            _ => return reply.error(to_fuser(Errno::EINVAL)),
        };
        let Ok(offset) = u64::try_from(offset) else {
            return reply.error(to_fuser(Errno::ENXIO));
        };
        match self.operations.seek(fh.0, offset, what) {
            Ok(found) => reply.offset(found as i64),
            Err(errno) => reply.error(to_fuser(errno)),
        }
    }

    fn copy_file_range(
        &self,
        req: &Request,
        _ino_in: INodeNo,
        fh_in: FileHandle,
        offset_in: u64,
        _ino_out: INodeNo,
        fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        match self.operations.copy_range(who(req), (fh_in.0, offset_in), (fh_out.0, offset_out), len) {
            Ok(copied) => reply.written(copied),
            Err(errno) => reply.error(to_fuser(errno)),
        }
    }
}

fn who(req: &Request) -> FuseCaller {
    FuseCaller { uid: req.uid(), gid: req.gid(), thread: req.pid() }
}

fn node(ino: INodeNo) -> NodeId {
    NodeId(ino.0)
}

fn lock_for(typ: i32) -> LockFor {
    match typ {
        F_RDLCK => LockFor::Reading,
        F_WRLCK => LockFor::Writing,
        _ => LockFor::Nothing,
    }
}

fn to_fuser(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno as i32)
}

fn answer_empty(result: Result<(), Errno>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(to_fuser(errno)),
    }
}

impl<T: Operations> KernelAdapter<T> {
    fn answer_entry(&self, result: Result<FuseEntry, Errno>, reply: ReplyEntry) {
        let entry = match result {
            Ok(entry) => entry,
            Err(errno) => return reply.error(to_fuser(errno)),
        };
        let mut reply = Some(reply);
        self.give(&entry, &mut |names, files| {
            if let Some(reply) = reply.take() {
                reply.entry_with_ttls(&files, &names, &file_attr(&entry.attributes), Generation(0));
            }
        });
    }

    fn answer_attr(&self, result: Result<FuseEntry, Errno>, reply: ReplyAttr) {
        let entry = match result {
            Ok(entry) => entry,
            Err(errno) => return reply.error(to_fuser(errno)),
        };
        let mut reply = Some(reply);
        self.give(&entry, &mut |_, files| {
            if let Some(reply) = reply.take() {
                reply.attr(&files, &file_attr(&entry.attributes));
            }
        });
    }

    fn give(&self, entry: &FuseEntry, answer: &mut dyn FnMut(Duration, Duration)) {
        match &entry.promise {
            Some(promise) => self.operations.giving(&mut |holding| {
                let (names, files) = holding(promise);
                answer(names, files);
            }),
            None => answer(entry.valid, entry.valid),
        }
    }
}

/// The attributes of an absent name.
fn absent() -> FileAttr {
    file_attr(&Attributes {
        node: NodeId(0),
        kind: NodeKind::File,
        mode: 0,
        links: 0,
        uid: 0,
        gid: 0,
        size: 0,
        bytes_live: 0,
        atime_ns: 0,
        mtime_ns: 0,
        ctime_ns: 0,
        rdev: 0,
    })
}

fn answer_open(result: Result<OpenResult, Errno>, reply: ReplyOpen) {
    match result {
        Ok(opened) => reply.opened(FileHandle(opened.handle), fopen_flags(opened)),
        Err(errno) => reply.error(to_fuser(errno)),
    }
}

/// Size 0 asks how long the value is.
fn answer_xattr(result: Result<Vec<u8>, Errno>, size: u32, reply: ReplyXattr) {
    match result {
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() <= size as usize => reply.data(&value),
        Ok(_) => reply.error(to_fuser(Errno::ERANGE)),
        Err(errno) => reply.error(to_fuser(errno)),
    }
}

fn fopen_flags(opened: OpenResult) -> FopenFlags {
    let mut flags = FopenFlags::empty();
    flags.set(FopenFlags::FOPEN_KEEP_CACHE, opened.keep_cache);
    flags.set(FopenFlags::FOPEN_NOFLUSH, opened.no_flush);
    flags.set(FopenFlags::FOPEN_DIRECT_IO, opened.direct);
    flags
}

fn open_how(flags: OpenFlags) -> OpenHow {
    let access = flags.acc_mode();
    let bits = OFlag::from_bits_retain(flags.0);
    OpenHow {
        read: access != OpenAccMode::O_WRONLY,
        write: access != OpenAccMode::O_RDONLY,
        truncate: bits.contains(OFlag::O_TRUNC),
        exclusive: bits.contains(OFlag::O_EXCL),
        append: bits.contains(OFlag::O_APPEND),
        execute: flags.0 & FMODE_EXEC != 0,
    }
}

fn file_attr(attributes: &Attributes) -> FileAttr {
    FileAttr {
        ino: INodeNo(attributes.node.0),
        size: attributes.size,
        blocks: attributes.bytes_live.div_ceil(512),
        atime: system_time(attributes.atime_ns),
        mtime: system_time(attributes.mtime_ns),
        ctime: system_time(attributes.ctime_ns),
        crtime: UNIX_EPOCH,
        kind: file_type(attributes.kind),
        perm: attributes.mode as u16,
        nlink: attributes.links,
        uid: attributes.uid,
        gid: attributes.gid,
        rdev: attributes.rdev,
        blksize: PREFERRED_IO_BYTES,
        flags: 0,
    }
}

fn file_type(kind: NodeKind) -> FileType {
    match kind {
        NodeKind::File => FileType::RegularFile,
        NodeKind::Directory => FileType::Directory,
        NodeKind::Symlink => FileType::Symlink,
        NodeKind::Fifo => FileType::NamedPipe,
        NodeKind::Socket => FileType::Socket,
        NodeKind::CharDevice => FileType::CharDevice,
        NodeKind::BlockDevice => FileType::BlockDevice,
    }
}

fn system_time(ns: i64) -> SystemTime {
    let span = Duration::from_nanos(ns.unsigned_abs());
    if ns >= 0 { UNIX_EPOCH + span } else { UNIX_EPOCH - span }
}

fn new_time(time: TimeOrNow) -> NewTime {
    match time {
        TimeOrNow::Now => NewTime::Now,
        TimeOrNow::SpecificTime(time) => NewTime::At(nanoseconds(time)),
    }
}

/// `fuser` 0.18 reads a time before 1970, which the kernel gives as negative seconds and positive nanoseconds, as that
/// many seconds *and* nanoseconds before: turn the nanoseconds round.
fn nanoseconds(time: SystemTime) -> i64 {
    let of = |span: Duration| i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => of(after),
        Err(before) => {
            let before = before.duration();
            let whole = of(Duration::from_secs(before.as_secs()));
            i64::from(before.subsec_nanos()) - whole
        }
    }
}

// Names from <linux/falloc.h>, <linux/fs.h>.
const KEEP_SIZE: i32 = 0x01;
/// Punching without keeping the size does not exist.
const PUNCH_HOLE_KEEP_SIZE: i32 = 0x02 | KEEP_SIZE;
const ZERO_RANGE: i32 = 0x10;
const ZERO_RANGE_KEEP_SIZE: i32 = ZERO_RANGE | KEEP_SIZE;
// From <fcntl.h>.
const F_RDLCK: i32 = 0;
const F_WRLCK: i32 = 1;
const F_UNLCK: i32 = 2;
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;
/// The kernel's mark in the open flags of a file that is about to be run.
const FMODE_EXEC: i32 = 0x20;
/// `st_blksize`: the I/O size of stdio and cp. Every write(2) is a request, so not 4 KiB.
const PREFERRED_IO_BYTES: u32 = 128 << 10;
const STATFS_BLOCK_BYTES: u32 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive_the_way_through_the_kernel() {
        for ns in [0, 1, 1_500_000_000, i64::MAX / 2, -2_000_000_000] {
            assert_eq!(nanoseconds(system_time(ns)), ns);
        }
        // -1.5 s reaches fuser as -2 s + 0.5e9 ns, which it takes for 2.5 s before 1970.
        let as_fuser_gives_it = UNIX_EPOCH - Duration::new(2, 500_000_000);
        assert_eq!(nanoseconds(as_fuser_gives_it), -1_500_000_000);
    }

    #[test]
    fn open_flags_are_read_as_open_2_means_them() {
        let how = open_how(OpenFlags((OFlag::O_RDWR | OFlag::O_TRUNC).bits()));
        assert_eq!(how, OpenHow { read: true, write: true, truncate: true, ..OpenHow::default() });
        let how = open_how(OpenFlags((OFlag::O_WRONLY | OFlag::O_EXCL | OFlag::O_APPEND).bits()));
        assert_eq!(how, OpenHow { write: true, exclusive: true, append: true, ..OpenHow::default() });
        assert!(open_how(OpenFlags(FMODE_EXEC)).execute);
    }
}
