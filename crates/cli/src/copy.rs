//! `put`, `get` and `cp`: one recursion over two ends, local files or the file system at a view.

mod local;
mod remote;
mod side;

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use frieze_base::{Fault, Reason};
use frieze_client::InstantInfo;
use serde_json::{Value, json};

use self::local::{LocalBytes, LocalSide};
use self::side::{CopyEntry, CopyKind, CopySide, CopySink, How};
use crate::args::{CopyOptions, CpArgs, GetArgs, PutArgs};
use crate::failure::{ErrorSubject, ReportedError, UsageError};
use crate::past;
use crate::path::FsPath;
use crate::progress::ProgressLine;
use crate::run::CommandRun;

pub(crate) use self::remote::{RemoteSide, target};
pub(crate) use self::side::{CopySource, PIECE_BYTES, Pull, about};

/// Options of every file of one copy.
#[derive(Clone, Copy, Debug)]
struct CopySettings {
    recursive: bool,
    preserve: bool,
    how: How,
    /// Bits that new files do not get.
    umask: u32,
}

impl CopySettings {
    fn new(options: CopyOptions) -> CopySettings {
        let CopyOptions { recursive, preserve, atomic } = options;
        CopySettings { recursive, preserve, how: if atomic { How::Atomic } else { How::Over }, umask: umask() }
    }

    /// For a copy into the file system, where the server applies the umask, or a default access list.
    fn into_remote(self) -> CopySettings {
        CopySettings { umask: umask() & OWNER, ..self }
    }
}

/// Bits of the owner, which no access list overrides: a directory is made with all of them, and gets its own when it is
/// full.
pub(crate) const OWNER: u32 = 0o700;

/// `frieze put`.
pub(crate) fn put(run: &mut CommandRun, args: &PutArgs) -> Result<()> {
    args.no_past.refuse()?;
    let (to, from) = args.paths.split_last().ok_or_else(two_paths)?;
    let to = FsPath::parse(to)?;
    let mut asked = CopySettings::new(args.options).into_remote();
    if args.append {
        asked.how = How::Append;
    }
    let sink = RemoteSide::sink(run)?;
    run.show(ProgressLine::bytes);
    let into = destination(run, &sink, &to, from.len(), to.wants_directory)?;
    for typed in from {
        if typed == "-" {
            if into {
                return Err(UsageError(format!("{to}: is a directory: standard input needs the path of a file")).into());
            }
            if let Err(error) = put_stdin(run, &sink, &to, asked) {
                run.report(&to.to_string(), error)?;
            }
            continue;
        }
        let path = PathBuf::from(typed);
        let place = match (into, name_of_local(&path)) {
            (false, _) => to.clone(),
            (true, Some(name)) => to.join(&name),
            (true, None) => to.clone(),
        };
        let from = path.display().to_string();
        if let Err(error) = copy(run, &LocalSide, &path, &sink, &place, asked) {
            run.report(&from, error)?;
        }
    }
    Ok(())
}

/// `frieze get`.
pub(crate) fn get(run: &mut CommandRun, args: &GetArgs) -> Result<()> {
    let (to, typed) = args.paths.split_last().ok_or_else(two_paths)?;
    let from = parse_all(typed)?;
    let asked = CopySettings::new(args.options);
    let source = RemoteSide { fs: run.view(&args.past)? };
    if to == "-" {
        if run.json() {
            return Err(UsageError("get PATH - writes bytes: it has no --json (cat has)".to_owned()).into());
        }
        for path in &from {
            if let Err(error) = to_stdout(run, &source, path) {
                run.report(&path.to_string(), error)?;
            }
        }
        return Ok(());
    }
    run.show(ProgressLine::bytes);
    let wants_directory = to.as_bytes().ends_with(b"/");
    let to = PathBuf::from(to);
    let into = destination(run, &LocalSide, &to, from.len(), wants_directory)?;
    copy_all(run, &source, &from, &LocalSide, &to, into, asked)
}

/// `frieze cp`.
pub(crate) fn cp(run: &mut CommandRun, args: &CpArgs) -> Result<()> {
    let (to, from) = args.paths.split_last().ok_or_else(two_paths)?;
    let (to, from) = (FsPath::parse(to)?, parse_all(from)?);
    let asked = CopySettings::new(args.options).into_remote();
    let source = RemoteSide { fs: run.view(&args.past)? };
    let sink = RemoteSide::sink(run)?;
    run.show(ProgressLine::bytes);
    let into = destination(run, &sink, &to, from.len(), to.wants_directory)?;
    if args.past.is_now() {
        // A tree of now that is copied into itself would never end; one of the past is finite.
        for path in &from {
            let place = if into { path.name().map_or(to.clone(), |name| to.join(name)) } else { to.clone() };
            if args.options.recursive && path.holds(&place) && path != &place {
                return Err(UsageError(format!("{path} cannot be copied into itself ({place})")).into());
            }
        }
    }
    copy_all(run, &source, &from, &sink, &to, into, asked)
}

/// Writes the bytes of a file to standard output, holes as zeros.
///
/// # Errors
/// If it cannot be opened or read, or standard output fails.
pub(crate) fn to_stdout(run: &mut CommandRun, source: &RemoteSide, path: &FsPath) -> Result<()> {
    const ZEROS: &[u8] = &[0; 1 << 16];
    let node = source.node_or_fail(path)?;
    note_answered(run, node.answered.as_ref());
    let mut bytes = source.open(path)?;
    let mut piece = Vec::with_capacity(PIECE_BYTES);
    let mut written_to = 0;
    loop {
        let next = bytes.next(&mut piece)?;
        let offset = next.unwrap_or_else(|| bytes.end());
        while written_to < offset {
            let count = (offset - written_to).min(ZEROS.len() as u64);
            run.bytes(&ZEROS[..count as usize])?;
            written_to += count;
        }
        if next.is_none() {
            return Ok(());
        }
        run.bytes(&piece)?;
        written_to += piece.len() as u64;
    }
}

/// Paths as typed, all checked before anything is done.
///
/// # Errors
/// [`UsageError`] at the first that is none.
pub(crate) fn parse_all(typed: &[OsString]) -> Result<Vec<FsPath>> {
    typed.iter().map(|text| FsPath::parse(text)).collect()
}

/// The process's mask of permission bits for new files.
pub(crate) fn umask() -> u32 {
    // It can only be read by setting it; the command has one thread here.
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    mask.bits()
}

impl RemoteSide {
    /// The file system of now, for new files with the umask of this process.
    fn sink(run: &mut CommandRun) -> Result<RemoteSide> {
        Ok(RemoteSide { fs: run.fs()?.with_umask(umask() & !OWNER) })
    }

    /// The object at a path, links followed.
    ///
    /// # Errors
    /// `NotFound` if nothing does.
    pub(crate) fn node_or_fail(&self, path: &FsPath) -> Result<CopyEntry> {
        self.node(path, true)?.ok_or_else(|| Fault::from(Reason::NotFound).into())
    }
}

fn two_paths() -> anyhow::Error {
    UsageError("two paths are needed: from and to".to_owned()).into()
}

fn put_stdin(run: &mut CommandRun, sink: &RemoteSide, to: &FsPath, asked: CopySettings) -> Result<()> {
    let stdin = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let mut counted = CountedBytes { bytes: &mut LocalBytes::new(stdin)?, from: "-".to_owned(), run };
    let moved = sink.write(to, 0o666 & !asked.umask, asked.how, &mut counted)?;
    run.item(|| item("-", &to.to_string(), CopyKind::File, moved, None), || None)
}

/// True if things are copied into `to`, false if `to` is the new name.
fn destination<S: CopySide>(run: &mut CommandRun, side: &S, to: &S::Path, count: usize, wants: bool) -> Result<bool> {
    let there = match side.node(to, true) {
        Ok(there) => there,
        Err(error) => {
            run.report(&side.show(to), error)?;
            return Err(ReportedError.into());
        }
    };
    let is_directory = there.as_ref().is_some_and(|node| node.kind == CopyKind::Directory);
    if !is_directory && (count > 1 || wants) {
        let reason = if there.is_some() { Reason::NotDirectory } else { Reason::NotFound };
        run.report(&side.show(to), Fault::from(reason).into())?;
        return Err(ReportedError.into());
    }
    Ok(is_directory)
}

fn copy_all<K: CopySink>(
    run: &mut CommandRun,
    source: &RemoteSide,
    from: &[FsPath],
    sink: &K,
    to: &K::Path,
    into: bool,
    asked: CopySettings,
) -> Result<()> {
    for path in from {
        let place = match (into, path.name()) {
            (true, Some(name)) => sink.join(to, name),
            _ => to.clone(),
        };
        if let Err(error) = copy(run, source, path, sink, &place, asked) {
            run.report(&path.to_string(), error)?;
        }
    }
    Ok(())
}

/// Copies one path and, if requested, what is below it.
///
/// # Errors
/// The error of this path; [`ReportedError`] if only something below it failed.
fn copy<S: CopySource, K: CopySink>(
    run: &mut CommandRun,
    source: &S,
    from: &S::Path,
    sink: &K,
    to: &K::Path,
    asked: CopySettings,
) -> Result<()> {
    let node = source.node(from, !asked.recursive)?.ok_or_else(|| anyhow!(Fault::from(Reason::NotFound)))?;
    note_answered(run, node.answered.as_ref());
    if node.kind == CopyKind::Directory && !asked.recursive {
        return Err(Fault::new(Reason::InvalidArgument, "is a directory: -r copies it with everything in it").into());
    }
    if is_same(&node, sink, to)? {
        return Err(Fault::new(Reason::InvalidArgument, format!("{} is the same file", sink.show(to))).into());
    }
    copy_node(run, source, from, &node, sink, to, asked)
}

/// True if the source of now is the very file that would be written.
fn is_same<K: CopySink>(node: &CopyEntry, sink: &K, to: &K::Path) -> Result<bool> {
    let of_now = node.answered.as_ref().is_some_and(|answered| answered.at == 0);
    if !of_now || node.kind != CopyKind::File {
        return Ok(false);
    }
    Ok(sink.node(to, true)?.is_some_and(|there| there.answered.is_some() && there.identity == node.identity))
}

fn copy_node<S: CopySource, K: CopySink>(
    run: &mut CommandRun,
    source: &S,
    from: &S::Path,
    node: &CopyEntry,
    sink: &K,
    to: &K::Path,
    asked: CopySettings,
) -> Result<()> {
    run.progress(|progress| progress.at(source.show(from)));
    let mode = node.mode & 0o777 & !asked.umask;
    let mut below_failed = false;
    let mut moved = 0;
    match node.kind {
        CopyKind::File => {
            run.progress(|progress| progress.expect(node.size));
            let mut bytes = source.open(from)?;
            let from = source.show(from);
            let written = sink.write(to, mode, asked.how, &mut CountedBytes { bytes: &mut *bytes, from, run });
            moved = written.map_err(|error| about(sink, to, error))?;
        }
        CopyKind::Symlink => {
            let text = source.link_text(from)?;
            sink.make_link(to, &text).map_err(|error| about(sink, to, error))?;
        }
        CopyKind::Directory => {
            let made = match sink.node(to, true)? {
                Some(there) if there.kind == CopyKind::Directory => false,
                _ => {
                    sink.make_directory(to, mode).map_err(|error| about(sink, to, error))?;
                    true
                }
            };
            for name in source.names(from)? {
                let (from, to) = (source.join(from, &name), sink.join(to, &name));
                if let Err(error) = copy_below(run, source, &from, sink, &to, asked) {
                    run.report(&source.show(&from), error)?;
                    below_failed = true;
                }
            }
            if made && !asked.preserve && mode & 0o700 != 0o700 {
                sink.set_like(to, &CopyEntry { mode, ..node.clone() })?;
            }
        }
        CopyKind::Other => {
            return Err(anyhow!("is neither a file, a directory nor a symbolic link: it is not copied"));
        }
    }
    if asked.preserve {
        sink.set_like(to, node).map_err(|error| about(sink, to, error))?;
    }
    let (from, to) = (source.show(from), sink.show(to));
    run.item(|| item(&from, &to, node.kind, moved, node.answered.as_ref()), || None)?;
    if below_failed { Err(ReportedError.into()) } else { Ok(()) }
}

fn copy_below<S: CopySource, K: CopySink>(
    run: &mut CommandRun,
    source: &S,
    from: &S::Path,
    sink: &K,
    to: &K::Path,
    asked: CopySettings,
) -> Result<()> {
    // An entry that was removed since its directory was read is skipped.
    let Some(node) = source.node(from, false)? else { return Ok(()) };
    note_answered(run, node.answered.as_ref());
    copy_node(run, source, from, &node, sink, to, asked)
}

fn note_answered(run: &mut CommandRun, answered: Option<&InstantInfo>) {
    if let Some(answered) = answered {
        run.note_answered(answered);
    }
}

fn item(from: &str, to: &str, kind: CopyKind, bytes: u64, answered: Option<&InstantInfo>) -> Value {
    let mut item = json!({ "from": from, "to": to, "kind": kind.word(), "bytes": bytes });
    if let Some(answered) = answered.map(past::to_json).filter(|answered| !answered.is_null()) {
        item["answered"] = answered;
    }
    item
}

fn name_of_local(path: &Path) -> Option<Vec<u8>> {
    // `.` and `a/..` have no name of their own: their contents go into the directory itself, as with cp.
    path.file_name().map(|name| name.as_bytes().to_vec())
}

/// Bytes that are copied, counted for the progress line.
struct CountedBytes<'a> {
    bytes: &'a mut dyn Pull,
    from: String,
    run: &'a mut CommandRun,
}

impl Pull for CountedBytes<'_> {
    fn next(&mut self, into: &mut Vec<u8>) -> Result<Option<u64>> {
        let next = self.bytes.next(into).map_err(|error| error.context(ErrorSubject(self.from.clone())))?;
        let count = into.len() as u64;
        if next.is_some() {
            self.run.progress(|progress| progress.advance(count));
        }
        Ok(next)
    }

    fn end(&self) -> u64 {
        self.bytes.end()
    }
}
