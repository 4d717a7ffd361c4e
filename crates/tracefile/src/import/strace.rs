//! `strace -f -ttt -T -y`: what programs call, with offsets followed through reads, seeks, dup and fork.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use frieze_trace::{CallKind, EventFlags, Gateway};

use super::strace_line::{self, Descriptor, TracedCall};
use super::target::{FileIdentities, ImportSettings, ImportTarget, for_each_line, reason_of_errno};
use crate::error::TraceFileError;
use crate::row::TraceRow;
use crate::writer::TracedActor;

/// Calls that have begun and not ended, at most: a process has one.
const UNFINISHED_MAX: usize = 1 << 16;

/// An open file description, perhaps of several descriptors.
struct TracedStream {
    stream: u64,
    identity: u64,
    path: u64,
    /// Where the next read or write begins; `None` when it is not known.
    position: Option<u64>,
    appends: bool,
}

type SharedStream = Rc<RefCell<TracedStream>>;

/// The descriptors of a process, shared by its threads.
#[derive(Default)]
struct DescriptorTable {
    files: BTreeMap<i64, SharedStream>,
    directory: Option<Vec<u8>>,
}

struct StraceImport<'s> {
    settings: &'s ImportSettings,
    tables: BTreeMap<u32, Rc<RefCell<DescriptorTable>>>,
    /// Begun calls by process: time and text.
    unfinished: BTreeMap<u32, (i64, String)>,
    identities: FileIdentities,
    streams: u64,
    actors: BTreeMap<u32, u64>,
}

pub(super) fn import(
    settings: &ImportSettings,
    input: &Path,
    target: &mut ImportTarget<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<(), TraceFileError> {
    let mut state = StraceImport {
        settings,
        tables: BTreeMap::new(),
        unfinished: BTreeMap::new(),
        identities: FileIdentities::default(),
        streams: 0,
        actors: BTreeMap::new(),
    };
    for_each_line(input, progress, target, |target, line| state.line(target, line, input))?;
    for _ in &state.unfinished {
        target.note("calls without an end");
    }
    Ok(())
}

impl StraceImport<'_> {
    fn line(&mut self, target: &mut ImportTarget<'_>, line: &str, input: &Path) -> Result<(), TraceFileError> {
        let Some(timed) = strace_line::timed(line) else {
            if !line.trim().is_empty() {
                target.note("lines without a time: trace with -ttt");
            }
            return Ok(());
        };
        let (pid, rest) = (timed.pid, timed.rest);
        if rest.starts_with("+++") {
            self.tables.remove(&pid);
            self.unfinished.remove(&pid);
            return Ok(());
        }
        if rest.starts_with("---") {
            return Ok(());
        }
        if let Some(begun) = rest.strip_suffix("<unfinished ...>") {
            if self.unfinished.len() < UNFINISHED_MAX {
                self.unfinished.insert(pid, (timed.time_ns, begun.to_owned()));
            }
            return Ok(());
        }
        let resumed = rest.strip_prefix("<... ").and_then(|rest| rest.split_once("resumed>"));
        let (time_ns, text) = match resumed {
            Some((_, end)) => match self.unfinished.remove(&pid) {
                Some((time_ns, begun)) => (time_ns, begun + end),
                None => {
                    target.note("ends of calls without their begin");
                    return Ok(());
                }
            },
            None => (timed.time_ns, rest.to_owned()),
        };
        match strace_line::call(&text) {
            Some(call) => self.call(target, pid, time_ns, &call, input),
            None => {
                target.note("lines that are no call");
                Ok(())
            }
        }
    }

    fn table(&mut self, pid: u32) -> Rc<RefCell<DescriptorTable>> {
        self.tables.entry(pid).or_default().clone()
    }

    fn row(
        &mut self,
        target: &mut ImportTarget<'_>,
        pid: u32,
        time_ns: i64,
        kind: CallKind,
        call: &TracedCall<'_>,
    ) -> TraceRow {
        let actor = *self.actors.entry(pid).or_insert_with(|| {
            target.actor(TracedActor { uid: None, program: Some(format!("process {pid}")), host: None })
        });
        TraceRow {
            duration_ns: call.duration_ns,
            result: call.errno.map_or(0, |errno| reason_of_errno(errno) as u16),
            actor: Some(actor),
            ..TraceRow::new(time_ns, kind, Gateway::Import)
        }
    }

    /// Hash of a path argument, from the directory of a descriptor. `None`: it is not below the wanted directory, or
    /// not known.
    fn path(
        &mut self,
        target: &mut ImportTarget<'_>,
        pid: u32,
        directory: Option<Descriptor<'_>>,
        text: &str,
        input: &Path,
    ) -> Result<Option<u64>, TraceFileError> {
        let Some(name) = strace_line::string(text) else { return Ok(None) };
        let path = match name.first() {
            Some(b'/') => name,
            _ => {
                let table = self.table(pid);
                let own = table.borrow().directory.clone();
                let base = match directory.and_then(|directory| directory.path) {
                    Some(path) => Some(strace_line::string(&format!("\"{path}\"")).unwrap_or_default()),
                    None => own,
                };
                let Some(base) = base else {
                    target.note("relative paths without their directory: trace with -y");
                    return Ok(None);
                };
                [&base[..], b"/", &name].concat()
            }
        };
        self.hash(target, &normalized(&path), input)
    }

    fn hash(
        &mut self,
        target: &mut ImportTarget<'_>,
        path: &[u8],
        input: &Path,
    ) -> Result<Option<u64>, TraceFileError> {
        let wanted = match &self.settings.under {
            None => Some(path),
            Some(under) => path.strip_prefix(&under[..]).filter(|rest| rest.is_empty() || rest.starts_with(b"/")),
        };
        match wanted {
            Some(path) => target.path(path, input).map(Some),
            None => {
                target.note("calls outside the wanted directory");
                Ok(None)
            }
        }
    }

    /// The open file of a descriptor; one that was open before the trace is known by its path.
    fn file(
        &mut self,
        target: &mut ImportTarget<'_>,
        pid: u32,
        argument: Option<&&str>,
        input: &Path,
    ) -> Result<Option<SharedStream>, TraceFileError> {
        let Some(descriptor) = argument.and_then(|text| strace_line::descriptor(text)) else { return Ok(None) };
        let table = self.table(pid);
        if let Some(file) = table.borrow().files.get(&descriptor.number) {
            return Ok(Some(file.clone()));
        }
        let Some(path) = descriptor.path.filter(|path| is_regular(path)) else { return Ok(None) };
        let path = strace_line::string(&format!("\"{path}\"")).unwrap_or_default();
        let Some(hash) = self.hash(target, &normalized(&path), input)? else { return Ok(None) };
        target.note("files that were open before the trace");
        let file = self.opened(hash, None, false);
        table.borrow_mut().files.insert(descriptor.number, file.clone());
        Ok(Some(file))
    }

    fn opened(&mut self, path: u64, position: Option<u64>, appends: bool) -> SharedStream {
        self.streams += 1;
        let identity = self.identities.of(path);
        Rc::new(RefCell::new(TracedStream { stream: self.streams, identity, path, position, appends }))
    }

    fn call(
        &mut self,
        target: &mut ImportTarget<'_>,
        pid: u32,
        time_ns: i64,
        call: &TracedCall<'_>,
        input: &Path,
    ) -> Result<(), TraceFileError> {
        let arguments = &call.arguments;
        let argument = |at: usize| arguments.get(at).copied().unwrap_or_default();
        let has_failed = call.errno.is_some() || call.value.is_none();
        match call.name {
            "open" | "openat" | "creat" | "openat2" => self.open(target, pid, time_ns, call, input),
            "close" => {
                let Some(descriptor) = strace_line::descriptor(argument(0)) else { return Ok(()) };
                let table = self.table(pid);
                let closed = table.borrow_mut().files.remove(&descriptor.number);
                let Some(file) = closed else { return Ok(()) };
                let row = self.row(target, pid, time_ns, CallKind::Close, call);
                let file = file.borrow();
                target.push(TraceRow { inode: Some(file.identity), stream: Some(file.stream), ..row })
            }
            "dup" | "dup2" | "dup3" | "fcntl" => {
                let is_dup = call.name != "fcntl" || argument(1).starts_with("F_DUPFD");
                if let (true, false, Some(value)) = (is_dup, has_failed, call.value)
                    && let Some(file) = self.file(target, pid, arguments.first(), input)?
                {
                    self.table(pid).borrow_mut().files.insert(value, file);
                }
                Ok(())
            }
            "fork" | "vfork" | "clone" | "clone3" => {
                let Some(child) = call.value.and_then(|child| u32::try_from(child).ok()) else { return Ok(()) };
                let table = self.table(pid);
                let is_shared = arguments.iter().any(|argument| argument.contains("CLONE_FILES"));
                let copied = match is_shared {
                    true => table,
                    false => {
                        let table = table.borrow();
                        let (files, directory) = (table.files.clone(), table.directory.clone());
                        Rc::new(RefCell::new(DescriptorTable { files, directory }))
                    }
                };
                // The child's first lines may come before the end of the call.
                self.tables.entry(child).or_insert(copied);
                Ok(())
            }
            "chdir" if !has_failed => {
                let path = strace_line::string(argument(0)).unwrap_or_default();
                let table = self.table(pid);
                let mut table = table.borrow_mut();
                let base = table.directory.clone().unwrap_or_default();
                let whole = if path.starts_with(b"/") { path } else { [&base[..], b"/", &path].concat() };
                table.directory = Some(normalized(&whole));
                Ok(())
            }
            "read" | "readv" | "pread64" | "preadv" | "preadv2" => {
                self.transfer(target, pid, time_ns, CallKind::Read, call, input)
            }
            "write" | "writev" | "pwrite64" | "pwritev" | "pwritev2" => {
                self.transfer(target, pid, time_ns, CallKind::Write, call, input)
            }
            "lseek" | "llseek" | "_llseek" => {
                let Some(file) = self.file(target, pid, arguments.first(), input)? else { return Ok(()) };
                let place = call.value.and_then(|value| u64::try_from(value).ok());
                let mut file = file.borrow_mut();
                file.position = place.or(file.position);
                let row = self.row(target, pid, time_ns, CallKind::Seek, call);
                target.push(TraceRow { inode: Some(file.identity), stream: Some(file.stream), offset: place, ..row })
            }
            "sendfile" | "copy_file_range" | "splice" | "mmap" => {
                if self.file(target, pid, arguments.iter().find(|text| text.contains('<')), input)?.is_some() {
                    target.note(&format!("{}: its bytes are not followed", call.name));
                }
                Ok(())
            }
            _ => match named_call(call.name) {
                Some((kind, places)) => self.named(target, pid, time_ns, kind, places, call, input),
                None => match open_call(call.name, argument(1)) {
                    Some(kind) => {
                        let Some(file) = self.file(target, pid, arguments.first(), input)? else { return Ok(()) };
                        let row = self.row(target, pid, time_ns, kind, call);
                        let file = file.borrow();
                        target.push(TraceRow { inode: Some(file.identity), stream: Some(file.stream), ..row })
                    }
                    None => Ok(()),
                },
            },
        }
    }

    fn open(
        &mut self,
        target: &mut ImportTarget<'_>,
        pid: u32,
        time_ns: i64,
        call: &TracedCall<'_>,
        input: &Path,
    ) -> Result<(), TraceFileError> {
        let at = call.name == "openat" || call.name == "openat2";
        let argument = |at: usize| call.arguments.get(at).copied().unwrap_or_default();
        let (directory, name, flags) = match at {
            true => (strace_line::descriptor(argument(0)), argument(1), argument(2)),
            false => (None, argument(0), argument(1)),
        };
        if call.returned_path.is_some_and(|path| !is_regular(path)) {
            return Ok(());
        }
        let Some(path) = self.path(target, pid, directory, name, input)? else { return Ok(()) };
        let has = |flag: &str| flags.split('|').any(|one| one.trim_start_matches("{flags=") == flag);
        let is_new = !self.identities.is_known(path);
        let creates = call.name == "creat" || has("O_CREAT");
        let truncates = call.name == "creat" || has("O_TRUNC");
        // A file that nothing was known of, and that begins empty, is taken for a new one.
        let kind = if creates && (has("O_EXCL") || truncates && is_new) { CallKind::Create } else { CallKind::Open };
        let mut row = self.row(target, pid, time_ns, kind, call);
        row.path = Some(path);
        if let (None, Some(number)) = (call.errno, call.value) {
            let file = self.opened(path, Some(0), has("O_APPEND"));
            (row.inode, row.stream) = (Some(file.borrow().identity), Some(file.borrow().stream));
            self.table(pid).borrow_mut().files.insert(number, file);
        }
        target.push(row)
    }

    fn transfer(
        &mut self,
        target: &mut ImportTarget<'_>,
        pid: u32,
        time_ns: i64,
        kind: CallKind,
        call: &TracedCall<'_>,
        input: &Path,
    ) -> Result<(), TraceFileError> {
        let Some(file) = self.file(target, pid, call.arguments.first(), input)? else { return Ok(()) };
        let mut file = file.borrow_mut();
        let number = |at: usize| call.arguments.get(at).and_then(|text| text.parse::<u64>().ok());
        let moved = call.value.and_then(|value| u64::try_from(value).ok()).unwrap_or(0);
        let is_placed = call.name.starts_with('p');
        let is_vector = call.name.contains('v');
        let offset = match is_placed {
            true => number(3),
            false if file.appends && kind == CallKind::Write => None,
            false => file.position,
        };
        if offset.is_none() && !file.appends {
            target.note("reads and writes at a place that is not known");
        }
        if !is_placed {
            file.position = file.position.map(|position| position.saturating_add(moved));
        }
        let asked = if is_vector { None } else { number(2) };
        let is_append = file.appends && kind == CallKind::Write && !is_placed;
        let mut row = self.row(target, pid, time_ns, if is_append { CallKind::Append } else { kind }, call);
        (row.inode, row.stream, row.path) = (Some(file.identity), Some(file.stream), Some(file.path));
        (row.offset, row.asked, row.got) = (offset, asked.or(Some(moved)), Some(moved));
        if !is_placed && offset.is_some() {
            row.flags = EventFlags::SEQUENTIAL;
        }
        target.push(row)
    }

    /// A call on names.
    #[expect(clippy::too_many_arguments, reason = "a call, and where its paths are among its arguments")]
    fn named(
        &mut self,
        target: &mut ImportTarget<'_>,
        pid: u32,
        time_ns: i64,
        kind: CallKind,
        places: NamePlaces,
        call: &TracedCall<'_>,
        input: &Path,
    ) -> Result<(), TraceFileError> {
        let argument = |at: usize| call.arguments.get(at).copied().unwrap_or_default();
        let directory = |at: Option<usize>| at.and_then(|at| strace_line::descriptor(argument(at)));
        // `newfstatat(3</path>, "", ..., AT_EMPTY_PATH)` is about the descriptor.
        let is_empty = strace_line::string(argument(places.name.1)).is_some_and(|name| name.is_empty());
        let kind = match kind {
            CallKind::Unlink if call.arguments.iter().any(|argument| argument.contains("AT_REMOVEDIR")) => {
                CallKind::Rmdir
            }
            kind => kind,
        };
        let path = match is_empty {
            true => match self.file(target, pid, call.arguments.first(), input)? {
                Some(file) => Some(file.borrow().path),
                None => return Ok(()),
            },
            false => self.path(target, pid, directory(places.name.0), argument(places.name.1), input)?,
        };
        let Some(path) = path else { return Ok(()) };
        let mut row = self.row(target, pid, time_ns, kind, call);
        row.path = Some(path);
        if let Some((from, at)) = places.second {
            row.path2 = self.path(target, pid, directory(from), argument(at), input)?;
        }
        let has_failed = call.errno.is_some();
        row.inode = match (kind, row.path2) {
            _ if has_failed => None,
            (CallKind::Unlink | CallKind::Rmdir, _) => Some(self.identities.remove(path)),
            (CallKind::Rename, Some(to)) => Some(self.identities.rename(path, to)),
            (CallKind::Symlink, _) => None,
            _ => Some(self.identities.of(path)),
        };
        target.push(row)
    }
}

/// Where the paths of a call are: the argument with the directory, if any, and the one with the name.
#[derive(Clone, Copy)]
struct NamePlaces {
    name: (Option<usize>, usize),
    second: Option<(Option<usize>, usize)>,
}

/// Calls about names.
fn named_call(name: &str) -> Option<(CallKind, NamePlaces)> {
    let plain = NamePlaces { name: (None, 0), second: None };
    let from_directory = NamePlaces { name: (Some(0), 1), second: None };
    let two = NamePlaces { name: (None, 0), second: Some((None, 1)) };
    let two_from = NamePlaces { name: (Some(0), 1), second: Some((Some(2), 3)) };
    Some(match name {
        "stat" | "lstat" | "stat64" | "lstat64" => (CallKind::Stat, plain),
        "newfstatat" | "fstatat64" | "statx" => (CallKind::Stat, from_directory),
        "access" => (CallKind::Access, plain),
        "faccessat" | "faccessat2" => (CallKind::Access, from_directory),
        "readlink" => (CallKind::Readlink, plain),
        "readlinkat" => (CallKind::Readlink, from_directory),
        "mkdir" => (CallKind::Mkdir, plain),
        "mkdirat" => (CallKind::Mkdir, from_directory),
        "rmdir" => (CallKind::Rmdir, plain),
        "unlink" => (CallKind::Unlink, plain),
        "unlinkat" => (CallKind::Unlink, from_directory),
        "rename" => (CallKind::Rename, two),
        "renameat" | "renameat2" => (CallKind::Rename, two_from),
        "link" => (CallKind::Link, two),
        "linkat" => (CallKind::Link, two_from),
        "symlink" => (CallKind::Symlink, NamePlaces { name: (None, 1), second: None }),
        "symlinkat" => (CallKind::Symlink, NamePlaces { name: (Some(1), 2), second: None }),
        "truncate" => (CallKind::Truncate, plain),
        "chmod" | "chown" | "lchown" | "utime" | "utimes" => (CallKind::SetAttr, plain),
        "fchmodat" | "fchownat" | "utimensat" | "futimesat" => (CallKind::SetAttr, from_directory),
        "getxattr" | "lgetxattr" => (CallKind::XattrGet, plain),
        "setxattr" | "lsetxattr" => (CallKind::XattrSet, plain),
        "listxattr" | "llistxattr" => (CallKind::XattrList, plain),
        "removexattr" | "lremovexattr" => (CallKind::XattrRemove, plain),
        "statfs" => (CallKind::StatFs, plain),
        _ => return None,
    })
}

/// Calls about an open file.
fn open_call(name: &str, second: &str) -> Option<CallKind> {
    Some(match name {
        "fstat" | "fstat64" => CallKind::Stat,
        "fsync" | "fdatasync" | "sync_file_range" => CallKind::Sync,
        "ftruncate" | "ftruncate64" => CallKind::Truncate,
        "fallocate" if second.contains("PUNCH_HOLE") => CallKind::Punch,
        "getdents" | "getdents64" => CallKind::List,
        "fchmod" | "fchown" => CallKind::SetAttr,
        "flock" => CallKind::Lock,
        "fgetxattr" => CallKind::XattrGet,
        "fsetxattr" => CallKind::XattrSet,
        "fstatfs" => CallKind::StatFs,
        _ => return None,
    })
}

/// True for the path of a file: not of a socket, a pipe, a device, or of the kernel's own.
fn is_regular(path: &str) -> bool {
    path.starts_with('/') && !["/dev/", "/proc/", "/sys/"].iter().any(|prefix| path.starts_with(prefix))
}

/// A path without `.`, `..` and what strace says of a removed file.
fn normalized(path: &[u8]) -> Vec<u8> {
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    let mut names: Vec<&[u8]> = Vec::new();
    for name in path.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    [b"/", &names.join(&b'/')[..]].concat()
}
