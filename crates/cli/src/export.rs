//! `export`: files out of a data directory that no server uses, as a tar or below a directory.
//!
//! Everything that is not as it was, or may not be, is named; what can be read is exported all the same.

mod directory;
mod tape;
mod target;

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result};
use frieze_base::{Fault, InodeId};
use frieze_client::{Attr, FileKind};
use frieze_hlc::{Hlc, Instant, ZonePolicy};
use frieze_node::{Archive, MemberArchive};
use serde_json::{Value, json};

use self::directory::OutputDir;
use self::tape::Tape;
use self::target::{ExportTarget, Meta};
use crate::args::ExportArgs;
use crate::copy::{PIECE_BYTES, Pull};
use crate::failure::{self, CheckFailed, OutputClosed, ReportedError, UsageError};
use crate::format;
use crate::path::FsPath;
use crate::progress::ProgressLine;
use crate::run::CommandRun;

/// Sentences that are kept; of more it is known how many.
const WRONG_MAX: usize = 1000;
/// Size of a read where part of a piece is damaged: the bytes beside it are good.
const SMALL_BYTES: usize = 4096;

/// `frieze export`.
pub(crate) fn export(run: &mut CommandRun, args: &ExportArgs) -> Result<()> {
    let path = FsPath::parse(&args.path)?;
    let instant = args.at.as_deref().map(parse).transpose()?;
    let to_stdout = args.to.is_none() && args.output.is_none() && !args.list;
    if to_stdout && io::stdout().is_terminal() {
        let words = "a tar is not for a terminal: '> FILE', --output FILE, --to DIR or --list".to_owned();
        return Err(UsageError(words).into());
    }
    if let Some(to) = args.to.as_ref().or(args.output.as_ref()) {
        check_outside(&args.dir, to)?;
    }
    let archive = Archive::open(&args.dir).map_err(|fault| CheckFailed(fault.message))?;
    let at = instant.map(|instant| exact(&archive, &instant)).transpose()?;
    let mut work = ExportRun {
        run,
        archive,
        at,
        first: BTreeMap::new(),
        counts: ExportCounts::default(),
        wrong: Vec::new(),
        wrong_more: 0,
        notes: Vec::new(),
    };
    work.look()?;
    let root =
        work.archive.find(path.as_bytes(), at).map_err(|fault| CheckFailed(format!("{path}: {}", fault.message)))?;
    let name = path.name().map(<[u8]>::to_vec).unwrap_or_default();
    if args.list {
        work.walk(&name, root, &mut ListOnly)?;
        // A line for each name is all there is on standard output.
        return work.end(false);
    }
    work.run.show(ProgressLine::bytes);
    match (&args.to, &args.output) {
        (Some(to), _) => {
            let mut below = OutputDir::make(to)?;
            work.walk(&name, root, &mut below)?;
            work.notes.extend(below.notes());
            work.end(true)
        }
        (None, Some(file)) => {
            let made = OpenOptions::new().write(true).create_new(true).open(file);
            let made = made.with_context(|| file.display().to_string())?;
            let mut tape = Tape::new(BufWriter::new(made));
            work.walk(&name, root, &mut tape)?;
            let file = tape.finish()?.into_inner().map_err(|error| error.into_error())?;
            file.sync_all()?;
            work.end(true)
        }
        (None, None) => {
            let mut tape = Tape::new(ExportOutput(BufWriter::new(io::stdout())));
            let walked = work.walk(&name, root, &mut tape).and_then(|()| Ok(tape.finish()?.0.flush()?));
            match walked {
                Err(error) if is_closed(&error) => return Err(OutputClosed.into()),
                walked => walked?,
            }
            // The document of --json has no place beside a tar.
            work.end(false)
        }
    }
}

/// Sees to it that nothing is made in the data directory: a server refuses to start on a directory with other things in
/// it.
///
/// # Errors
/// [`UsageError`] if `to` lies in `dir`.
fn check_outside(dir: &Path, to: &Path) -> Result<()> {
    // A missing path is made where its existing part leads.
    let absolute = std::path::absolute(to)?;
    let place = absolute.ancestors().find_map(|ancestor| ancestor.canonicalize().ok());
    if dir.canonicalize().is_ok_and(|dir| place.is_some_and(|place| place.starts_with(dir))) {
        let words =
            format!("{} lies in the data directory {}: name a place outside of it", to.display(), dir.display());
        return Err(UsageError(words).into());
    }
    Ok(())
}

/// Standard output.
struct ExportOutput(BufWriter<io::Stdout>);

impl Write for ExportOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn is_closed(error: &anyhow::Error) -> bool {
    let is_pipe = |cause: &io::Error| cause.kind() == io::ErrorKind::BrokenPipe;
    error.chain().any(|cause| cause.downcast_ref::<io::Error>().is_some_and(is_pipe))
}

fn parse(text: &str) -> Result<Instant> {
    Ok(Instant::parse(text, ZonePolicy::Local).map_err(|error| UsageError(error.to_string()))?)
}

/// The exact instant that is meant.
fn exact(archive: &Archive, instant: &Instant) -> Result<Hlc> {
    let named = |name: &str| archive.instant_named(name).map_err(|fault| CheckFailed(fault.message));
    Ok(match instant {
        Instant::System(at) => *at,
        Instant::Named(name) => named(name)?,
        Instant::LastWhole => match archive.member() {
            Some(member) => member.whole,
            None => named("last-whole")?,
        },
        moving => {
            let now = archive.now();
            moving.resolve(now).unwrap_or(now)
        }
    })
}

/// No output: only lists.
struct ListOnly;

impl ExportTarget for ListOnly {
    fn directory(&mut self, _: &[u8], _: &Meta) -> Result<()> {
        Ok(())
    }

    fn leave(&mut self, _: &[u8], _: &Meta) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn file(&mut self, _: &[u8], _: &Meta, _: &mut dyn Pull) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn again(&mut self, _: &[u8], _: &[u8], _: &Meta) -> Result<()> {
        Ok(())
    }

    fn link(&mut self, _: &[u8], _: &Meta, _: &[u8]) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn special(&mut self, _: &[u8], _: &Meta) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn takes_bytes(&self) -> bool {
        false
    }
}

#[derive(Default)]
struct ExportCounts {
    files: u64,
    directories: u64,
    links: u64,
    others: u64,
    bytes: u64,
}

/// Something that is not as it was, or may not be.
struct Defect {
    path: String,
    range: Option<Range<u64>>,
    why: String,
}

/// One export.
struct ExportRun<'a> {
    run: &'a mut CommandRun,
    archive: Archive,
    at: Option<Hlc>,
    /// Files of several names: the first.
    first: BTreeMap<InodeId, Vec<u8>>,
    counts: ExportCounts,
    wrong: Vec<Defect>,
    wrong_more: u64,
    notes: Vec<String>,
}

impl ExportRun<'_> {
    /// Checks before anything is read.
    fn look(&mut self) -> Result<()> {
        self.notes.extend(self.archive.notes().iter().cloned());
        if let Some(words) = self.archive.damaged().map(str::to_owned) {
            self.wrong("", None, format!("the directory is damaged, this is what is left: {words}"));
        }
        if let Some(member) = self.archive.member() {
            let notes = member_notes(member);
            self.notes.extend(notes);
        }
        let gaps = self.archive.gaps();
        self.notes.extend(gap_notes(&gaps));
        for note in std::mem::take(&mut self.notes) {
            self.run.say(&format!("note: {note}"));
            self.notes.push(note);
        }
        if let Some(at) = self.at {
            let gap = self.archive.begin(at).map_err(|fault| CheckFailed(fault.message))?;
            if let Some((from, to)) = gap {
                let upto = if to == Hlc::MAX { String::new() } else { format!(" to {}", format::time_of(to)) };
                let words = format!(
                    "{} lies in a gap, from {}{upto}: what was written there may be missing",
                    format::time_of(at),
                    format::time_of(from)
                );
                self.wrong("", None, words);
            }
        }
        Ok(())
    }

    fn walk(&mut self, name: &[u8], root: InodeId, place: &mut dyn ExportTarget) -> Result<()> {
        // Directories that are open: their own name, and where their listing continues.
        let mut open: Vec<(Vec<u8>, InodeId, Meta, Vec<u8>)> = Vec::new();
        if let Some(meta) = self.one(name, root, place)? {
            open.push((name.to_vec(), root, meta, Vec::new()));
        }
        'directories: while let Some((directory, id, _, after)) = open.last() {
            let (directory, id, after) = (directory.clone(), *id, after.clone());
            let listed = match self.archive.list(id, self.at, &after) {
                Ok(listed) => listed,
                Err(fault) => {
                    self.fault(&directory, &fault);
                    Vec::new()
                }
            };
            for entry in &listed {
                open.last_mut().expect("it is open").3 = entry.name.clone();
                let name = match directory.is_empty() {
                    true => entry.name.clone(),
                    false => [&directory[..], b"/", &entry.name].concat(),
                };
                if let Some(meta) = self.one(&name, entry.inode, place)? {
                    open.push((name, entry.inode, meta, Vec::new()));
                    continue 'directories;
                }
            }
            if listed.is_empty() {
                let (name, _, meta, _) = open.pop().expect("it is open");
                let kept = place.leave(&name, &meta)?;
                kept.into_iter().for_each(|words| self.wrong_at(&name, None, words));
            }
        }
        Ok(())
    }

    /// One name. Returns the directory, if it is one.
    fn one(&mut self, name: &[u8], id: InodeId, place: &mut dyn ExportTarget) -> Result<Option<Meta>> {
        let known = self.archive.attr(id, self.at).and_then(|attr| {
            let xattrs = self.archive.xattrs(id, self.at)?;
            Ok(Meta { attr, xattrs })
        });
        let meta = match known {
            Ok(meta) => meta,
            Err(fault) => {
                self.fault(name, &fault);
                return Ok(None);
            }
        };
        self.run.progress(|progress| progress.at(shown(name)));
        let target = match meta.kind() {
            FileKind::Symlink => self.archive.link(id, self.at)?,
            _ => Vec::new(),
        };
        if !place.takes_bytes() {
            self.show(name, &meta, &target)?;
        }
        let lost = match meta.kind() {
            FileKind::Directory => {
                self.counts.directories += 1;
                place.directory(name, &meta)?;
                return Ok(Some(meta));
            }
            FileKind::Symlink => {
                self.counts.links += 1;
                place.link(name, &meta, &target)?
            }
            FileKind::File => {
                self.counts.files += 1;
                if meta.attr.links > 1 {
                    if let Some(first) = self.first.get(&id).cloned() {
                        place.again(name, &first, &meta)?;
                        return Ok(None);
                    }
                    self.first.insert(id, name.to_vec());
                }
                self.file(name, id, &meta, place)?
            }
            _ => {
                self.counts.others += 1;
                place.special(name, &meta)?
            }
        };
        lost.into_iter().for_each(|words| self.wrong_at(name, None, words));
        Ok(None)
    }

    fn file(&mut self, name: &[u8], id: InodeId, meta: &Meta, place: &mut dyn ExportTarget) -> Result<Vec<String>> {
        let lacks = self.archive.lacks(id, self.at)?;
        if !lacks.is_empty() {
            let chains: Vec<String> = lacks.iter().map(ToString::to_string).collect();
            self.wrong_at(name, None, format!("some of it may be missing: {}", chains.join("; ")));
        }
        let size = meta.attr.size;
        self.run.progress(|progress| progress.expect(size));
        let mut content = FileContent {
            archive: &mut self.archive,
            id,
            at: self.at,
            size,
            offset: 0,
            run: self.run,
            unread: Vec::new(),
            moved: 0,
        };
        let lost = place.file(name, meta, &mut content)?;
        let (moved, unread) = (content.moved, std::mem::take(&mut content.unread));
        self.counts.bytes += moved;
        for (range, why) in unread {
            self.wrong_at(name, Some(range), format!("cannot be read, zeros are in its place: {why}"));
        }
        Ok(lost)
    }

    fn show(&mut self, name: &[u8], meta: &Meta, target: &[u8]) -> Result<()> {
        let Attr { mode, uid, gid, size, mtime_ns, links, inode, .. } = meta.attr;
        let (kind, letter) = match meta.kind() {
            FileKind::File => ("file", '-'),
            FileKind::Directory => ("directory", 'd'),
            FileKind::Symlink => ("symlink", 'l'),
            FileKind::Fifo => ("fifo", 'p'),
            FileKind::Socket => ("socket", 's'),
            FileKind::CharDevice => ("char_device", 'c'),
            FileKind::BlockDevice => ("block_device", 'b'),
        };
        let path = shown(name);
        let leads = String::from_utf8_lossy(target).into_owned();
        let arrow = if target.is_empty() { String::new() } else { format!(" -> {leads}") };
        let item = || {
            let target = if target.is_empty() { Value::Null } else { json!(leads) };
            json!({ "path": path, "inode": inode, "kind": kind, "mode": mode, "uid": uid, "gid": gid, "size": size,
                    "mtime_ns": mtime_ns, "links": links, "target": target })
        };
        let line = || {
            let time = format::time_of(Hlc::last_of_micros((mtime_ns / 1000).max(0) as u64));
            Some(format!("{letter}{mode:04o} {uid:>6} {gid:>6} {size:>14} {time} {path}{arrow}"))
        };
        self.run.item(item, line)
    }

    fn fault(&mut self, name: &[u8], fault: &Fault) {
        self.wrong_at(name, None, fault.message.clone());
    }

    fn wrong_at(&mut self, name: &[u8], range: Option<Range<u64>>, why: String) {
        self.wrong(&shown(name), range, why);
    }

    /// Prints a defect at once, and keeps it for the end.
    fn wrong(&mut self, path: &str, range: Option<Range<u64>>, why: String) {
        if self.wrong.len() >= WRONG_MAX {
            self.wrong_more += 1;
            return;
        }
        let bytes =
            range.as_ref().map(|range| format!(" (bytes {} to {})", range.start, range.end)).unwrap_or_default();
        match path {
            "" => self.run.say(&format!("wrong: {why}")),
            path => self.run.say(&format!("wrong: {path}{bytes}: {why}")),
        }
        self.wrong.push(Defect { path: path.to_owned(), range, why });
    }

    /// The end: a summary in one document, and whether all of it is as it was.
    fn end(self, prints: bool) -> Result<()> {
        let found = self.wrong.len() as u64 + self.wrong_more;
        if self.wrong_more > 0 {
            self.run.say(&format!("wrong: {} more", self.wrong_more));
        }
        if prints && self.run.json() {
            let document = self.to_json();
            self.run.print_json(document)?;
        }
        if found == 0 { Ok(()) } else { Err(ReportedError.into()) }
    }

    fn to_json(&self) -> Value {
        let ExportCounts { files, directories, links, others, bytes } = &self.counts;
        let wrong = self.wrong.iter().map(|Defect { path, range, why }| {
            let (start, end) = range.as_ref().map(|range| (range.start, range.end)).unzip();
            json!({ "path": path, "start": start, "end": end, "why": why })
        });
        let mut document = json!({
            "at": self.at.map(|at| at.to_string()),
            "at_time": self.at.map(format::time_of),
            "files": files, "directories": directories, "links": links, "others": others, "bytes": bytes,
            "wrong": wrong.collect::<Vec<_>>(), "wrong_more": self.wrong_more, "notes": self.notes,
        });
        if let Some(member) = self.archive.member() {
            let lacking = member.lacking.values().map(
                |chain| json!({ "chain": chain.chain.0, "copy": chain.copy.word(), "whole": chain.whole.to_string() }),
            );
            document["node"] = json!(member.node.0);
            document["whole"] = json!(member.whole.to_string());
            document["kept"] = json!(member.kept);
            document["chains"] = json!(member.chains);
            document["lacking"] = json!(lacking.collect::<Vec<_>>());
        }
        document
    }
}

fn member_notes(member: &MemberArchive) -> Vec<String> {
    let mut notes = vec![format!(
        "this is what server {} of a cluster has: all of it up to {}; what the others have done since may be missing",
        member.node,
        format::time_of(member.whole)
    )];
    if member.kept > 0 {
        let changes = format::count(member.kept, "change");
        notes.push(format!("not known to be committed, and shown: {changes} at the end"));
    }
    if !member.lacking.is_empty() {
        let lacking = member.lacking.len();
        notes.push(format!("{lacking} of {} chains have no full copy here: files on them are named", member.chains));
    }
    notes.push(
        "if a majority of the servers is lost for good, 'frieze cluster recover --dir DIR' goes on from one that is \
         left"
            .to_owned(),
    );
    notes
}

/// Gaps that are named; of more only the number is printed.
const GAPS_NAMED_MAX: usize = 3;

fn gap_notes(gaps: &[(Hlc, Hlc)]) -> Vec<String> {
    let newest = gaps.iter().rev().take(GAPS_NAMED_MAX);
    let mut notes: Vec<String> = newest
        .map(|(from, to)| {
            let (from, to) = (format::time_of(*from), format::time_of(*to));
            format!("some of what was acknowledged from {from} to {to} may be missing")
        })
        .collect();
    if gaps.len() > GAPS_NAMED_MAX {
        notes.push(format!("{} more gaps lie before", gaps.len() - GAPS_NAMED_MAX));
    }
    notes
}

/// A name in print.
fn shown(name: &[u8]) -> String {
    format!("/{}", String::from_utf8_lossy(name))
}

/// The bytes of a file in order, holes left out; zeros in place of unreadable bytes.
struct FileContent<'a> {
    archive: &'a mut Archive,
    id: InodeId,
    at: Option<Hlc>,
    size: u64,
    offset: u64,
    run: &'a mut CommandRun,
    unread: Vec<(Range<u64>, String)>,
    moved: u64,
}

impl FileContent<'_> {
    fn is_unread(&mut self, range: Range<u64>, fault: &Fault) {
        match self.unread.last_mut() {
            Some((before, _)) if before.end == range.start => before.end = range.end,
            _ => self.unread.push((range, failure::words(&fault.clone().into()))),
        }
    }

    /// Reads small pieces one by one.
    fn pick(&mut self, start: u64, len: usize, into: &mut Vec<u8>) {
        let end = start + len as u64;
        let mut at = start;
        while at < end {
            let upto = ((at / SMALL_BYTES as u64 + 1) * SMALL_BYTES as u64).min(end);
            let wanted = (upto - at) as usize;
            let filled = into.len() + wanted;
            match self.archive.read(self.id, self.at, at, wanted as u32) {
                Ok(part) => into.extend_from_slice(&part.bytes),
                Err(fault) => self.is_unread(at..upto, &fault),
            }
            into.resize(filled, 0);
            at = upto;
        }
    }
}

impl Pull for FileContent<'_> {
    fn next(&mut self, into: &mut Vec<u8>) -> Result<Option<u64>> {
        into.clear();
        let found = self.archive.next_data(self.id, self.at, self.offset, self.size);
        // If it is not known where holes are, everything is read.
        let range = found.unwrap_or_else(|_| (self.offset < self.size).then_some(self.offset..self.size));
        let Some(range) = range else { return Ok(None) };
        let len = (range.end - range.start).min(PIECE_BYTES as u64) as usize;
        match self.archive.read(self.id, self.at, range.start, len as u32) {
            Ok(part) => {
                into.extend_from_slice(&part.bytes);
                into.resize(len, 0);
            }
            Err(_) => self.pick(range.start, len, into),
        }
        self.offset = range.start + len as u64;
        self.moved += len as u64;
        self.run.progress(|progress| progress.advance(len as u64));
        Ok(Some(range.start))
    }

    fn end(&self) -> u64 {
        self.size
    }
}
