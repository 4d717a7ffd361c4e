//! `ls`, `stat`, `cat` and `du`: reading, now or in the past.

use std::collections::BTreeSet;

use anyhow::{Error, Result};
use frieze_base::{Fault, InodeId, Reason};
use frieze_client::Fs;
use frieze_client::{AccessLists, Attr, DirEntry, FileKind, InstantInfo, StatReply, Target};
use frieze_hlc::Hlc;
use serde_json::{Value, json};

use crate::args::{CatArgs, DuArgs, LsArgs, StatArgs};
use crate::copy::{self, CopySource, RemoteSide, target};
use crate::entry;
use crate::failure::ReportedError;
use crate::format::{self, TextTable};
use crate::past;
use crate::path::FsPath;
use crate::progress::ProgressLine;
use crate::run::CommandRun;

/// `frieze ls`.
pub(crate) fn ls(run: &mut CommandRun, args: &LsArgs) -> Result<()> {
    let paths = copy::parse_all(&args.paths)?;
    let fs = run.view(&args.past)?;
    let mut listing = DirectoryLister { fs, args, headings: paths.len() > 1 || args.recursive, begun: false };
    for path in &paths {
        if let Err(error) = listing.path(run, path) {
            run.report(&path.to_string(), error)?;
        }
    }
    Ok(())
}

/// `frieze stat`.
pub(crate) fn stat(run: &mut CommandRun, args: &StatArgs) -> Result<()> {
    let paths = copy::parse_all(&args.paths)?;
    let fs = run.view(&args.past)?;
    let mut begun = false;
    for path in &paths {
        let found = fs.stat(&target(path, args.follow)).map_err(Error::from).and_then(|reply| {
            run.note_answered(&reply.answered);
            let text = link_text(&fs, path, &reply.attr)?;
            Ok((reply, text))
        });
        match found {
            Ok((reply, text)) => {
                if begun && !run.json() {
                    run.print("")?;
                }
                begun = true;
                let lists = access_lists(&fs, &reply.attr)?;
                print_stat(run, path, &reply, text.as_deref(), lists.as_ref())?;
            }
            Err(error) => run.report(&path.to_string(), error)?,
        }
    }
    Ok(())
}

/// `frieze cat`.
pub(crate) fn cat(run: &mut CommandRun, args: &CatArgs) -> Result<()> {
    let paths = copy::parse_all(&args.paths)?;
    let source = RemoteSide { fs: run.view(&args.past)? };
    for path in &paths {
        let done = if run.json() { cat_json(run, &source, path) } else { copy::to_stdout(run, &source, path) };
        if let Err(error) = done {
            run.report(&path.to_string(), error)?;
        }
    }
    Ok(())
}

/// `frieze du`.
pub(crate) fn du(run: &mut CommandRun, args: &DuArgs) -> Result<()> {
    let paths = copy::parse_all(&args.paths)?;
    let fs = run.view(&args.past)?;
    run.show(|wanted| ProgressLine::items(wanted, "files"));
    let mut usage = UsageLister { fs, args, counted: BTreeSet::new() };
    for path in &paths {
        let summed = usage.fs.stat(&target(path, false)).map_err(Error::from).and_then(|reply| {
            run.note_answered(&reply.answered);
            match reply.attr.kind() {
                FileKind::Directory => usage.tree(run, path, true).map(drop),
                _ => {
                    let mut sum = SpaceSum::default();
                    usage.add(&mut sum, &reply.attr);
                    usage.print(run, path, &sum, &reply.answered)
                }
            }
        });
        if let Err(error) = summed {
            run.report(&path.to_string(), error)?;
        }
    }
    Ok(())
}

struct DirectoryLister<'a> {
    fs: Fs,
    args: &'a LsArgs,
    /// Directories are printed with their names.
    headings: bool,
    begun: bool,
}

impl DirectoryLister<'_> {
    fn path(&mut self, run: &mut CommandRun, path: &FsPath) -> Result<()> {
        // A link to a directory is listed as the directory, unless the link itself is requested.
        let follow = !self.args.long && !self.args.directory || path.wants_directory;
        let reply = match self.fs.stat(&target(path, follow)) {
            // A link that leads nowhere is still there.
            Err(error) if follow && error.reason() == Reason::NotFound => self.fs.stat(&target(path, false))?,
            reply => reply?,
        };
        run.note_answered(&reply.answered);
        if reply.attr.kind() == FileKind::Directory && !self.args.directory {
            return self.directory(run, path);
        }
        if path.wants_directory && reply.attr.kind() != FileKind::Directory {
            return Err(Fault::from(Reason::NotDirectory).into());
        }
        let text = link_text(&self.fs, path, &reply.attr)?;
        self.begun = true;
        if run.json() {
            let item = entry::to_json(path, &reply.attr, text.as_deref(), &reply.answered);
            return run.print_json(item);
        }
        let mut table = long_table();
        let shown = shown(path.as_bytes(), text.as_deref());
        if !self.args.long {
            return run.name(path.as_bytes(), self.args.null);
        }
        table.row(long_row(run, &reply.attr, shown, self.args.human));
        table.lines().try_for_each(|line| run.print(&line))
    }

    fn directory(&mut self, run: &mut CommandRun, path: &FsPath) -> Result<()> {
        if self.headings && !run.json() && !self.args.null {
            if self.begun {
                run.print("")?;
            }
            run.print(&format!("{path}:"))?;
        }
        self.begun = true;
        let with_attrs = self.args.long || run.json();
        let mut below = Vec::new();
        let mut table = long_table();
        pages(&self.fs, path, with_attrs, |entry, answered| {
            let place = path.join(&entry.name);
            if self.args.recursive && entry.kind() == FileKind::Directory {
                below.push(place.clone());
            }
            let Some(attr) = &entry.attr else {
                // Without headings the name alone would not show where it is.
                let name = if self.args.null && self.headings { place.as_bytes() } else { &entry.name };
                return run.name(name, self.args.null);
            };
            let text = link_text(&self.fs, &place, attr)?;
            if run.json() {
                return run.print_json(entry::to_json(&place, attr, text.as_deref(), answered));
            }
            table.row(long_row(run, attr, shown(&entry.name, text.as_deref()), self.args.human));
            Ok(())
        })?;
        table.lines().try_for_each(|line| run.print(&line))?;
        drop(table);
        for path in below {
            if let Err(error) = self.directory(run, &path) {
                run.report(&path.to_string(), error)?;
            }
        }
        Ok(())
    }
}

/// Every entry of a directory, page by page.
fn pages(
    fs: &Fs,
    path: &FsPath,
    with_attrs: bool,
    mut each: impl FnMut(&DirEntry, &InstantInfo) -> Result<()>,
) -> Result<()> {
    let mut after = Vec::new();
    loop {
        let page = fs.list(&target(path, true), &after, 0, with_attrs)?;
        for entry in &page.entries {
            each(entry, &page.answered)?;
        }
        match page.entries.last() {
            Some(last) if page.more => after.clone_from(&last.name),
            _ => return Ok(()),
        }
    }
}

fn link_text(fs: &Fs, path: &FsPath, attr: &Attr) -> Result<Option<Vec<u8>>> {
    match attr.kind() {
        FileKind::Symlink => Ok(Some(fs.read_link(&target(path, false))?)),
        _ => Ok(None),
    }
}

fn shown(name: &[u8], link_text: Option<&[u8]>) -> String {
    match link_text {
        Some(text) => format!("{} -> {}", format::printable(name), format::printable(text)),
        None => format::printable(name),
    }
}

fn long_table() -> TextTable {
    TextTable::new(&[false, true, false, false, true, false, false])
}

fn long_row(run: &mut CommandRun, attr: &Attr, name: String, human: bool) -> [String; 7] {
    let size = match attr.kind() {
        FileKind::CharDevice | FileKind::BlockDevice => {
            format!("{}, {}", rustix::fs::major(attr.rdev.into()), rustix::fs::minor(attr.rdev.into()))
        }
        _ => size_text(attr.size, human),
    };
    [
        format!("{}{}", format::mode(entry::kind_letter(attr.kind()), attr.mode), if attr.has_acl { "+" } else { "" }),
        attr.links.to_string(),
        run.names.user(attr.uid).to_owned(),
        run.names.group(attr.gid).to_owned(),
        size,
        format::time_ns(attr.mtime_ns.div_euclid(1000) * 1000),
        name,
    ]
}

fn size_text(bytes: u64, human: bool) -> String {
    if human { format::human(bytes) } else { bytes.to_string() }
}

/// The access lists of an object that has any.
fn access_lists(fs: &Fs, attr: &Attr) -> Result<Option<AccessLists>> {
    // Not the name again: another file may have it by now.
    let target = Target::inode(InodeId(attr.inode));
    Ok(attr.has_acl.then(|| fs.access_lists(&target)).transpose()?)
}

fn print_stat(
    run: &mut CommandRun,
    path: &FsPath,
    reply: &StatReply,
    link_text: Option<&[u8]>,
    lists: Option<&AccessLists>,
) -> Result<()> {
    let attr = &reply.attr;
    if run.json() {
        let mut item = entry::to_json(path, attr, link_text, &reply.answered);
        item["atime"] = format::time_ns(attr.atime_ns).into();
        item["rdev"] = attr.rdev.into();
        item["chunk_bytes"] = attr.chunk_bytes.into();
        item["acl"] = lists.map(|lists| entry::acl(run, &lists.access)).into();
        item["default_acl"] = lists.and_then(|lists| Some(entry::acl(run, lists.default.as_ref()?))).into();
        return run.print_json(item);
    }
    let born = Hlc(attr.born);
    let changed = Hlc(attr.changed);
    let mut table = TextTable::new(&[true, false]);
    let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
    row("path", shown(path.as_bytes(), link_text));
    row("kind", attr.kind().word().to_owned());
    row("size", format!("{} bytes, {} of them data", attr.size, attr.bytes_live));
    row("mode", format!("{:04o} {}", attr.mode, format::mode(entry::kind_letter(attr.kind()), attr.mode)));
    if let Some(lists) = lists {
        row("access list", entry::acl(run, &lists.access).join(", "));
        if let Some(default) = &lists.default {
            row("default list", entry::acl(run, default).join(", "));
        }
    }
    row(
        "owner",
        format!(
            "{} ({}), group {} ({})",
            run.names.user(attr.uid).to_owned(),
            attr.uid,
            run.names.group(attr.gid),
            attr.gid
        ),
    );
    row("inode", format!("{}, {}", attr.inode, format::count(attr.links.into(), "name")));
    row("modified", format::time_ns(attr.mtime_ns));
    row("changed", format!("{} ({changed})", format::time_of(changed)));
    row("accessed", format::time_ns(attr.atime_ns));
    row("made", format!("{} ({born})", format::time_of(born)));
    if let Some(plugin) = entry::plugin(attr) {
        row("data time", plugin.to_owned());
    }
    if reply.answered.at != 0 {
        row("as of", format!("{} ({})", format::time_of(Hlc(reply.answered.at)), Hlc(reply.answered.at)));
    }
    table.lines().try_for_each(|line| run.print(&line))
}

fn cat_json(run: &mut CommandRun, source: &RemoteSide, path: &FsPath) -> Result<()> {
    let node = source.node_or_fail(path)?;
    let mut pulled = source.open(path)?;
    let mut bytes = vec![0; usize::try_from(node.size)?];
    let mut piece = Vec::new();
    while let Some(offset) = pulled.next(&mut piece)? {
        let end = usize::try_from(offset)? + piece.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[end - piece.len()..end].copy_from_slice(&piece);
    }
    bytes.truncate(usize::try_from(pulled.end())?);
    let text = std::str::from_utf8(&bytes).ok();
    let mut item = json!({
        "path": path.to_string(),
        "bytes": bytes.len(),
        "text": text,
        "hex": text.is_none().then(|| format::hex(&bytes)),
    });
    if let Some(answered) = &node.answered {
        run.note_answered(answered);
        put_answered(&mut item, answered);
    }
    run.print_json(item)
}

fn put_answered(item: &mut Value, answered: &InstantInfo) {
    let answered = past::to_json(answered);
    if !answered.is_null() {
        item["answered"] = answered;
    }
}

/// Space below a directory.
#[derive(Clone, Copy, Debug, Default)]
struct SpaceSum {
    bytes_live: u64,
    size: u64,
    files: u64,
    directories: u64,
}

struct UsageLister<'a> {
    fs: Fs,
    args: &'a DuArgs,
    /// Inodes with several names that were counted under one of them.
    counted: BTreeSet<u64>,
}

impl UsageLister<'_> {
    fn add(&mut self, sum: &mut SpaceSum, attr: &Attr) {
        if attr.kind() == FileKind::File && attr.links > 1 && !self.counted.insert(attr.inode) {
            return;
        }
        sum.files += 1;
        sum.bytes_live = sum.bytes_live.saturating_add(attr.bytes_live);
        sum.size = sum.size.saturating_add(if attr.kind() == FileKind::File { attr.size } else { 0 });
    }

    /// Sums up a directory, printing those below first.
    fn tree(&mut self, run: &mut CommandRun, path: &FsPath, is_asked: bool) -> Result<SpaceSum> {
        let mut sum = SpaceSum { directories: 1, ..SpaceSum::default() };
        let mut below = Vec::new();
        let mut last = InstantInfo::default();
        let fs = self.fs.clone();
        pages(&fs, path, true, |entry, answered| {
            last = *answered;
            run.progress(|progress| progress.advance(1));
            match (&entry.attr, entry.kind()) {
                (_, FileKind::Directory) => below.push(path.join(&entry.name)),
                (Some(attr), _) => self.add(&mut sum, attr),
                (None, _) => {}
            }
            Ok(())
        })?;
        run.progress(|progress| progress.at(path.to_string()));
        let mut failed = false;
        for path in below {
            match self.tree(run, &path, false) {
                Ok(part) => {
                    sum.bytes_live = sum.bytes_live.saturating_add(part.bytes_live);
                    sum.size = sum.size.saturating_add(part.size);
                    sum.files += part.files;
                    sum.directories += part.directories;
                }
                Err(error) => {
                    run.report(&path.to_string(), error)?;
                    failed = true;
                }
            }
        }
        if is_asked || !self.args.summarize {
            self.print(run, path, &sum, &last)?;
        }
        // A sum with something missing was printed, and the missing part reported.
        if failed && is_asked { Err(ReportedError.into()) } else { Ok(sum) }
    }

    fn print(&self, run: &mut CommandRun, path: &FsPath, sum: &SpaceSum, answered: &InstantInfo) -> Result<()> {
        let bytes = if self.args.apparent_size { sum.size } else { sum.bytes_live };
        run.item(
            || {
                let mut item = json!({
                    "path": path.to_string(),
                    "bytes_live": sum.bytes_live,
                    "size": sum.size,
                    "files": sum.files,
                    "directories": sum.directories,
                });
                put_answered(&mut item, answered);
                item
            },
            || Some(format!("{:>12}  {path}", size_text(bytes, self.args.human))),
        )
    }
}
