//! The file system, at a view, as one end of a copy.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use anyhow::{Error, Result, anyhow};
use frieze_base::{ByteRange, ErrorKind, Fault, Reason};
use frieze_client::{Attr, FileKind};
use frieze_client::{CreateMode, File, Fs, OpenFlags, RenameMode};
use frieze_client::{SetAttr, Target, TimeValue};

use super::side::{CopyEntry, CopyKind, CopySide, CopySink, CopySource, How, PIECE_BYTES, Pull, temporary_name};
use crate::failure;
use crate::path::FsPath;

/// Requests in flight on one connection: enough to keep both ends busy.
const DEPTH: usize = 4;

/// The file system as it is at a view.
#[derive(Clone, Debug)]
pub(crate) struct RemoteSide {
    /// The view.
    pub(crate) fs: Fs,
}

/// The path as a request names it.
pub(crate) fn target(path: &FsPath, follow: bool) -> Target {
    Target { follow, ..Target::path(path.as_bytes()) }
}

impl CopySide for RemoteSide {
    type Path = FsPath;

    fn join(&self, directory: &FsPath, name: &[u8]) -> FsPath {
        directory.join(name)
    }

    fn parent(&self, path: &FsPath) -> Option<FsPath> {
        path.parent()
    }

    fn show(&self, path: &FsPath) -> String {
        path.to_string()
    }

    fn node(&self, path: &FsPath, follow: bool) -> Result<Option<CopyEntry>> {
        match self.fs.stat(&target(path, follow)) {
            Ok(reply) => Ok(Some(CopyEntry { answered: Some(reply.answered), ..node_of(&reply.attr) })),
            Err(error) if error.reason() == Reason::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

fn node_of(attr: &Attr) -> CopyEntry {
    let kind = match attr.kind() {
        FileKind::File => CopyKind::File,
        FileKind::Directory => CopyKind::Directory,
        FileKind::Symlink => CopyKind::Symlink,
        FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => CopyKind::Other,
    };
    CopyEntry {
        kind,
        mode: attr.mode,
        mtime_ns: attr.mtime_ns,
        size: attr.size,
        identity: (0, attr.inode),
        answered: None,
    }
}

impl CopySource for RemoteSide {
    fn names(&self, directory: &FsPath) -> Result<Vec<Vec<u8>>> {
        let entries = self.fs.entries(&target(directory, true))?;
        Ok(entries.into_iter().map(|entry| entry.name).collect())
    }

    fn link_text(&self, path: &FsPath) -> Result<Vec<u8>> {
        Ok(self.fs.read_link(&target(path, false))?)
    }

    fn open(&self, path: &FsPath) -> Result<Box<dyn Pull>> {
        let file = self.fs.open(&target(path, true), OpenFlags::READ)?;
        Ok(Box::new(RemoteBytes::new(file)?))
    }
}

impl CopySink for RemoteSide {
    fn make_directory(&self, path: &FsPath, mode: u32) -> Result<()> {
        // Its owner can fill it, whatever the mode: the wanted one is set when it is full.
        self.fs.mkdir(&target(path, false), mode | 0o700)?;
        Ok(())
    }

    fn make_link(&self, path: &FsPath, text: &[u8]) -> Result<()> {
        match self.fs.symlink(text, &target(path, false)) {
            Err(error) if error.reason() == Reason::Exists => {}
            made => return made.map(drop).map_err(Error::from),
        }
        if self.node(path, false)?.is_none_or(|there| there.kind != CopyKind::Symlink) {
            return Err(Fault::from(Reason::Exists).into());
        }
        // Replaced in one step: the name is never absent.
        let beside = beside(path);
        self.fs.symlink(text, &target(&beside, false))?;
        self.fs.rename(&target(&beside, false), &target(path, false), RenameMode::Replace)?;
        Ok(())
    }

    fn write(&self, path: &FsPath, mode: u32, how: How, bytes: &mut dyn Pull) -> Result<u64> {
        match how {
            How::Over => self.write_over(path, mode, bytes),
            How::Append => {
                let at = target(path, true);
                let made = match self.fs.create_with(&at, mode, CreateMode::Exclusive, OpenFlags::WRITE) {
                    Err(error) if error.reason() == Reason::Exists => None,
                    made => Some(made?),
                };
                match made {
                    Some(file) => append(file, bytes).inspect_err(|error| {
                        // Other clients may have appended to it by now.
                        if matches!(self.node(path, true), Ok(Some(CopyEntry { size: 0, .. }))) {
                            self.take_back(&at, error);
                        }
                    }),
                    None => append(self.fs.create_with(&at, mode, CreateMode::OpenExisting, OpenFlags::WRITE)?, bytes),
                }
            }
            How::Atomic => self.replace(path, mode, None, bytes),
        }
    }

    fn set_like(&self, path: &FsPath, node: &CopyEntry) -> Result<()> {
        let is_link = node.kind == CopyKind::Symlink;
        self.fs.set_attr(SetAttr {
            target: target(path, false),
            mode: (!is_link).then_some(node.mode),
            mtime: Some(TimeValue { now: false, ns: node.mtime_ns }),
            ..SetAttr::default()
        })?;
        Ok(())
    }
}

impl RemoteSide {
    /// Writes the file anew. A refused write leaves nothing behind if there was no file.
    fn write_over(&self, path: &FsPath, mode: u32, bytes: &mut dyn Pull) -> Result<u64> {
        let at = target(path, true);
        let made = match self.fs.create_with(&at, mode, CreateMode::Exclusive, OpenFlags::WRITE) {
            Err(error) if error.reason() == Reason::Exists => None,
            made => Some(made?),
        };
        if let Some(file) = made {
            return fill(file, bytes).inspect_err(|error| self.take_back(&at, error));
        }
        let file = self.fs.create_with(&at, mode, CreateMode::OpenExisting, OpenFlags::WRITE)?;
        if file.attr().size > 0 {
            if !file.attr().time_plugin.is_empty() {
                // Its times only rise, and the new rows may begin before them: another file takes its place, or none
                // does.
                let plugin = file.attr().time_plugin.clone();
                file.close()?;
                if self.node(path, false)?.is_some_and(|there| there.kind == CopyKind::Symlink) {
                    let words = "is a symbolic link to a file with user time, which is replaced and not written over: \
                        name the file itself";
                    return Err(Fault::new(Reason::InvalidArgument, words).into());
                }
                return self.replace(path, mode, Some(&plugin), bytes);
            }
            file.set_len(0)?;
        }
        fill(file, bytes)
    }

    /// Removes a file that was made for bytes which were refused.
    fn take_back(&self, made: &Target, error: &Error) {
        if [Reason::InvalidArgument, Reason::BackwardUserTime].into_iter().any(|reason| failure::is(error, reason)) {
            // The first failure is reported.
            let _ = self.fs.unlink(made);
        }
    }

    /// Writes a file beside it and gives that its name. It has to be under this time plug-in, if one is named.
    fn replace(&self, path: &FsPath, mode: u32, plugin: Option<&str>, bytes: &mut dyn Pull) -> Result<u64> {
        let beside = beside(path);
        // The new file takes the mode of the replaced one.
        let (fs, mode) = match self.node(path, true)? {
            Some(there) => (self.fs.with_umask(0), there.mode),
            None => (self.fs.clone(), mode),
        };
        let file = fs.create_with(&target(&beside, false), mode, CreateMode::Exclusive, OpenFlags::WRITE)?;
        let done = match plugin.filter(|plugin| file.attr().time_plugin != *plugin) {
            Some(plugin) => {
                let words = format!(
                    "its time plug-in is {plugin}, and what is made in its directory has another one or none: bind \
                     the directory to it"
                );
                Err(Fault::new(Reason::InvalidArgument, words).into())
            }
            None => fill(file, bytes),
        };
        let done = done.and_then(|count| {
            self.fs.rename(&target(&beside, false), &target(path, false), RenameMode::Replace)?;
            Ok(count)
        });
        if done.is_err() {
            // The first failure is reported.
            let _ = self.fs.unlink(&target(&beside, false));
        }
        done
    }
}

fn beside(path: &FsPath) -> FsPath {
    let name = temporary_name(path.name().unwrap_or_default());
    path.parent().unwrap_or_else(FsPath::root).join(&name)
}

/// Writes the pieces at their offsets, several requests in flight while they follow each other.
fn fill(file: File, bytes: &mut dyn Pull) -> Result<u64> {
    let bytes = &mut Recut::new(bytes, &file);
    let mut piece = Vec::with_capacity(PIECE_BYTES);
    let (mut moved, mut written_to) = (0u64, 0u64);
    let mut next = bytes.next(&mut piece)?;
    while let Some(start) = next {
        let mut at = start;
        next = None;
        let mut first = true;
        let streamed = file.write_stream(start, DEPTH, |into| -> Result<bool> {
            if !first {
                next = bytes.next(&mut piece)?;
                // At a hole the stream ends; the next one begins behind it with the piece in hand.
                if next != Some(at) {
                    return Ok(false);
                }
            }
            first = false;
            at += piece.len() as u64;
            into.clear();
            into.extend_from_slice(&piece);
            Ok(true)
        });
        streamed?;
        moved += at - start;
        written_to = at;
    }
    if bytes.end() > written_to {
        file.set_len(bytes.end())?;
    }
    file.close()?;
    Ok(moved)
}

/// Appends piece by piece, each in one atomic request.
fn append(file: File, bytes: &mut dyn Pull) -> Result<u64> {
    let bytes = &mut Recut::new(bytes, &file);
    let mut piece = Vec::with_capacity(PIECE_BYTES);
    let mut moved = 0;
    while bytes.next(&mut piece)?.is_some() {
        file.append(&piece)?;
        moved += piece.len() as u64;
    }
    file.close()?;
    Ok(moved)
}

/// The same bytes in pieces of whole records, where the file takes nothing else.
struct Recut<'a> {
    bytes: &'a mut dyn Pull,
    most: usize,
    /// Bytes that were read and not returned yet, and their offset.
    left: Option<RemotePiece>,
}

impl Recut<'_> {
    fn new<'a>(bytes: &'a mut dyn Pull, into: &File) -> Recut<'a> {
        Recut { bytes, most: into.run_bytes_max(PIECE_BYTES), left: None }
    }
}

impl Pull for Recut<'_> {
    fn next(&mut self, into: &mut Vec<u8>) -> Result<Option<u64>> {
        let start = match self.left.take() {
            Some((at, bytes)) => {
                into.clear();
                into.extend_from_slice(&bytes);
                at
            }
            None => match self.bytes.next(into)? {
                Some(at) => at,
                None => return Ok(None),
            },
        };
        // Pieces of the full length are handed on as they come.
        while self.most < PIECE_BYTES && into.len() < self.most {
            let mut more = Vec::new();
            match self.bytes.next(&mut more)? {
                Some(at) if at == start + into.len() as u64 => into.append(&mut more),
                Some(at) => {
                    self.left = Some((at, more));
                    return Ok(Some(start));
                }
                None => break,
            }
        }
        if into.len() > self.most {
            let rest = into.split_off(self.most);
            self.left = Some((start + self.most as u64, rest));
        }
        Ok(Some(start))
    }

    fn end(&self) -> u64 {
        self.bytes.end()
    }
}

/// Bytes and their offset.
type RemotePiece = (u64, Vec<u8>);

/// Bytes of a file of the file system, holes left out.
///
/// Small files are read in one request; larger ones by a thread of their own that keeps requests in flight while the
/// other end writes.
pub(crate) struct RemoteBytes {
    size: u64,
    small: Option<File>,
    pieces: Option<Receiver<Result<RemotePiece>>>,
    used: Option<SyncSender<Vec<u8>>>,
}

impl RemoteBytes {
    /// The bytes of an open file at its view.
    ///
    /// # Errors
    /// If no thread can be had.
    pub(crate) fn new(file: File) -> Result<RemoteBytes> {
        let size = file.attr().size;
        if size <= PIECE_BYTES as u64 {
            return Ok(RemoteBytes { size, small: Some(file), pieces: None, used: None });
        }
        let (filled, pieces) = sync_channel(DEPTH);
        let (used, empty) = sync_channel(DEPTH + 2);
        let reader = move || {
            if let Err(error) = read_ahead(&file, size, &filled, &empty) {
                // The puller is gone: there is no receiver.
                let _ = filled.send(Err(error));
            }
        };
        thread::Builder::new().name("read-ahead".to_owned()).spawn(reader)?;
        Ok(RemoteBytes { size, small: None, pieces: Some(pieces), used: Some(used) })
    }
}

fn read_ahead(
    file: &File,
    size: u64,
    filled: &SyncSender<Result<RemotePiece>>,
    empty: &Receiver<Vec<u8>>,
) -> Result<()> {
    // Asking for holes costs a request each: only where there are some.
    let has_holes = file.attr().bytes_live < size;
    let mut offset = 0;
    while offset < size {
        let end = match has_holes {
            false => size,
            true => {
                offset = match file.seek_data(offset) {
                    Ok(Some(data)) => data,
                    Ok(None) => return Ok(()),
                    Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                    Err(error) => return Err(error.into()),
                };
                file.seek_hole(offset)?.map_or(size, |hole| hole.min(size))
            }
        };
        file.read_stream(ByteRange::new(offset, end), DEPTH, |bytes| -> Result<()> {
            let mut piece = empty.try_recv().unwrap_or_default();
            piece.clear();
            piece.extend_from_slice(bytes);
            // If the puller is gone, the rest is not wanted.
            filled.send(Ok((offset, piece))).map_err(|_| anyhow!("the rest is not wanted"))?;
            offset += bytes.len() as u64;
            Ok(())
        })?;
        if offset < end {
            return Err(anyhow!("the file ended at byte {offset}, before its length of {size}"));
        }
    }
    Ok(())
}

impl Pull for RemoteBytes {
    fn next(&mut self, into: &mut Vec<u8>) -> Result<Option<u64>> {
        if let Some(file) = self.small.take() {
            into.resize(self.size as usize, 0);
            let count = file.read_at(0, into)?;
            into.truncate(count);
            return Ok((count > 0).then_some(0));
        }
        let Some(pieces) = &self.pieces else { return Ok(None) };
        // A closed channel is the end: a reader that failed has sent its failure before.
        let Ok(piece) = pieces.recv() else { return Ok(None) };
        let (offset, piece) = piece?;
        let before = std::mem::replace(into, piece);
        if let Some(used) = &self.used {
            // Buffers go round; one too many is dropped.
            let _ = used.try_send(before);
        }
        Ok(Some(offset))
    }

    fn end(&self) -> u64 {
        self.size
    }
}

impl std::fmt::Debug for RemoteBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteBytes").field("size", &self.size).finish_non_exhaustive()
    }
}
