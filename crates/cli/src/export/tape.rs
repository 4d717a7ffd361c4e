//! A tar: names as long as they are, times to the nanosecond and extended attributes by PAX.

use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::Result;
use frieze_client::{ACCESS_ACL_XATTR, Acl, DEFAULT_ACL_XATTR, FileKind};
use tar::{Builder, EntryType, Header};

use super::target::{ExportTarget, Meta};
use crate::copy::{PIECE_BYTES, Pull};

/// See the module.
pub(super) struct Tape<W: Write>(Builder<W>);

impl<W: Write> Tape<W> {
    pub(super) fn new(into: W) -> Tape<W> {
        let mut builder = Builder::new(into);
        builder.sparse(false);
        Tape(builder)
    }

    /// Ends the tar.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn finish(self) -> io::Result<W> {
        self.0.into_inner()
    }

    /// The header of an entry; what does not fit into it goes before it. Returns what cannot be kept.
    fn header(&mut self, meta: &Meta, kind: EntryType, size: u64) -> Result<(Header, Vec<String>)> {
        let attr = &meta.attr;
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(attr.mode);
        header.set_uid(attr.uid.into());
        header.set_gid(attr.gid.into());
        header.set_size(size);
        let (seconds, ns) = (attr.mtime_ns.div_euclid(1_000_000_000), attr.mtime_ns.rem_euclid(1_000_000_000));
        header.set_mtime(seconds.max(0) as u64);
        let (mut more, mut lost) = (Vec::new(), Vec::new());
        if ns != 0 || seconds < 0 {
            // As a decimal number: of a time before 1970 the digits count back from the second.
            let exact = match seconds {
                0.. => format!("{seconds}.{ns:09}"),
                _ => format!(
                    "-{}.{:09}",
                    attr.mtime_ns.unsigned_abs() / 1_000_000_000,
                    attr.mtime_ns.unsigned_abs() % 1_000_000_000
                ),
            };
            more.push(("mtime".to_owned(), exact.into_bytes()));
        }
        for (name, value) in &meta.xattrs {
            if let Some((key, list)) = access_list(name, value) {
                more.push((key.to_owned(), list.to_string().into_bytes()));
                continue;
            }
            match std::str::from_utf8(name) {
                Ok(name) if !name.contains('=') => more.push((format!("SCHILY.xattr.{name}"), value.clone())),
                _ => lost.push(format!("attribute {:?} has no place in a tar", String::from_utf8_lossy(name))),
            }
        }
        if !more.is_empty() {
            self.0.append_pax_extensions(more.iter().map(|(key, value)| (key.as_str(), value.as_slice())))?;
        }
        Ok((header, lost))
    }

    fn put(&mut self, name: &[u8], meta: &Meta, kind: EntryType) -> Result<Vec<String>> {
        let (mut header, lost) = self.header(meta, kind, 0)?;
        let (major, minor) = device(meta.attr.rdev);
        if matches!(kind, EntryType::Char | EntryType::Block) {
            header.set_device_major(major)?;
            header.set_device_minor(minor)?;
        }
        self.0.append_data(&mut header, path(name), io::empty())?;
        Ok(lost)
    }
}

impl<W: Write> ExportTarget for Tape<W> {
    fn directory(&mut self, name: &[u8], meta: &Meta) -> Result<()> {
        let name = if name.is_empty() { b"." } else { name };
        let _kept_by_leave = self.put(&[name, b"/"].concat(), meta, EntryType::Directory)?;
        Ok(())
    }

    fn leave(&mut self, _: &[u8], meta: &Meta) -> Result<Vec<String>> {
        let unnamed = meta.xattrs.iter().filter(|(name, _)| std::str::from_utf8(name).is_err() || name.contains(&b'='));
        Ok(unnamed
            .map(|(name, _)| format!("attribute {:?} has no place in a tar", String::from_utf8_lossy(name)))
            .collect())
    }

    fn file(&mut self, name: &[u8], meta: &Meta, bytes: &mut dyn Pull) -> Result<Vec<String>> {
        let size = meta.attr.size;
        let (mut header, lost) = self.header(meta, EntryType::Regular, size)?;
        let piece = Vec::with_capacity(PIECE_BYTES);
        let mut filled = PaddedBytes { bytes, piece, start: 0, at: 0, size, is_read: false };
        self.0.append_data(&mut header, path(name), &mut filled)?;
        Ok(lost)
    }

    fn again(&mut self, name: &[u8], first: &[u8], meta: &Meta) -> Result<()> {
        let (mut header, _) = self.header(meta, EntryType::Link, 0)?;
        Ok(self.0.append_link(&mut header, path(name), path(first))?)
    }

    fn link(&mut self, name: &[u8], meta: &Meta, target: &[u8]) -> Result<Vec<String>> {
        let (mut header, lost) = self.header(meta, EntryType::Symlink, 0)?;
        self.0.append_link(&mut header, path(name), path(target))?;
        Ok(lost)
    }

    fn special(&mut self, name: &[u8], meta: &Meta) -> Result<Vec<String>> {
        match meta.kind() {
            FileKind::Fifo => self.put(name, meta, EntryType::Fifo),
            FileKind::CharDevice => self.put(name, meta, EntryType::Char),
            FileKind::BlockDevice => self.put(name, meta, EntryType::Block),
            _ => Ok(vec!["a socket has no place in a tar: it is left out".to_owned()]),
        }
    }
}

/// An access list, under the key by which tars have them as text.
fn access_list(name: &[u8], value: &[u8]) -> Option<(&'static str, Acl)> {
    let key = match name {
        ACCESS_ACL_XATTR => "SCHILY.acl.access",
        DEFAULT_ACL_XATTR => "SCHILY.acl.default",
        _ => return None,
    };
    Some((key, Acl::read(value).ok().flatten()?))
}

/// A file's bytes with zeros in its holes, exactly as long as its header says.
struct PaddedBytes<'a> {
    bytes: &'a mut dyn Pull,
    piece: Vec<u8>,
    /// Where the piece begins; where it is read next.
    start: u64,
    at: u64,
    size: u64,
    /// There are no more pieces.
    is_read: bool,
}

impl Read for PaddedBytes<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.size - self.at;
        if left == 0 || into.is_empty() {
            return Ok(0);
        }
        if !self.is_read && self.at >= self.start + self.piece.len() as u64 {
            match self.bytes.next(&mut self.piece).map_err(io::Error::other)? {
                Some(start) => self.start = start,
                None => (self.is_read, self.start) = (true, self.size),
            }
            if self.is_read {
                self.piece.clear();
            }
        }
        let most = left.min(into.len() as u64);
        let count = match self.at < self.start {
            true => {
                let count = most.min(self.start - self.at) as usize;
                into[..count].fill(0);
                count
            }
            false => {
                let from = (self.at - self.start) as usize;
                let count = (most as usize).min(self.piece.len() - from);
                into[..count].copy_from_slice(&self.piece[from..from + count]);
                count
            }
        };
        self.at += count as u64;
        Ok(count)
    }
}

fn path(name: &[u8]) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(name))
}

fn device(rdev: u32) -> (u32, u32) {
    (rustix::fs::major(rdev.into()), rustix::fs::minor(rdev.into()))
}
