//! When the entries of a directory changed, and by which authors: pages of stamps in place of versions of its inode.
//!
//! A create, a removal or a rename of a file changes the times of the directory and nothing else of its inode. Such a
//! change makes no version of the inode but a stamp with an author. The version that it stands for is the newest
//! version before it with these times and this author, so it is computed when it is read ([`DirectoryVersion::at`]). A
//! change of anything else (links, mode, attributes, the directory's own name) is a version, as of any inode.
//!
//! A page is the value of the key `P` directory, stamped as its first change. A transaction makes a page of one; a
//! store joins those that come one after the other to pages of up to [`ENTRY_STAMPS_MAX`]. Pages of a directory do not
//! overlap.
//!
//! For each change a page has: the stamp as the difference to the one before (of the first: to the page's stamp, 0),
//! and the number of the author among the authors of the page, in the order in which they first occur. A number that is
//! new is followed by session and user. All are variable-length integers.

use std::sync::Arc;

use frieze_base::varint::{put, take};
use frieze_base::{Fault, InodeId, Reason, SessionId};
use frieze_hlc::Hlc;
use prost::Message;

use crate::inode::Inode;
use crate::key::VersionKey;
use crate::stored::StoredInode;

/// Stamps in a page, at most. More make fewer items of the store; a look at an instant reads a whole page.
pub const ENTRY_STAMPS_MAX: usize = 256;

/// One change of a directory's entries that changed nothing of its inode but the times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryStamp {
    /// When.
    pub stamp: Hlc,
    /// The session that did it; 0 for the server itself.
    pub session: SessionId,
    /// On whose behalf.
    pub uid: u32,
}

/// A page that grows: changes of one directory's entries, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryStampPage {
    first: Hlc,
    last: Hlc,
    count: usize,
    authors: Vec<(SessionId, u32)>,
    bytes: Vec<u8>,
}

impl EntryStampPage {
    /// A page of one change.
    pub fn new(change: EntryStamp) -> EntryStampPage {
        let EntryStamp { stamp, .. } = change;
        let mut page = EntryStampPage { first: stamp, last: stamp, count: 0, authors: Vec::new(), bytes: Vec::new() };
        page.put(change);
        page
    }

    /// Adds a change.
    ///
    /// # Panics
    /// If it is not newer than the last one: stamps of a directory rise.
    pub fn push(&mut self, change: EntryStamp) {
        assert!(change.stamp > self.last, "entries changed at {} before {}", change.stamp, self.last);
        self.put(change);
    }

    fn put(&mut self, EntryStamp { stamp, session, uid }: EntryStamp) {
        put(&mut self.bytes, stamp.0 - self.last.0);
        let known = self.authors.iter().rposition(|author| *author == (session, uid));
        put(&mut self.bytes, known.unwrap_or(self.authors.len()) as u64);
        if known.is_none() {
            put(&mut self.bytes, session.0);
            put(&mut self.bytes, uid.into());
            self.authors.push((session, uid));
        }
        self.last = stamp;
        self.count += 1;
    }

    /// True if the page takes no further change.
    pub fn is_full(&self) -> bool {
        self.count >= ENTRY_STAMPS_MAX
    }

    /// Stamp of the first change, which is that of the page.
    pub fn first(&self) -> Hlc {
        self.first
    }

    /// The value of the page.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Calls `visit` with every change of a page, oldest first, until it answers false. `first` is the page's stamp.
///
/// # Errors
/// `Corrupt`: the page is malformed, and the fault names it. The changes before the damage have been visited.
pub fn visit_entry_stamps(
    directory: InodeId,
    first: Hlc,
    page: &[u8],
    visit: &mut dyn FnMut(EntryStamp) -> bool,
) -> Result<(), Fault> {
    let corrupt = || {
        let what = format!("the page of entry stamps of directory {directory} from {first} is malformed");
        Fault::new(Reason::Corrupt, what)
    };
    let mut authors: Vec<(SessionId, u32)> = Vec::new();
    let (mut stamp, mut rest, mut is_first) = (first.0, page, true);
    while !rest.is_empty() || is_first {
        let since = take(&mut rest).filter(|since| (*since == 0) == is_first).ok_or_else(corrupt)?;
        let number = take(&mut rest).and_then(|number| usize::try_from(number).ok()).ok_or_else(corrupt)?;
        if number == authors.len() {
            let session = take(&mut rest).ok_or_else(corrupt)?;
            let uid = take(&mut rest).and_then(|uid| u32::try_from(uid).ok()).ok_or_else(corrupt)?;
            authors.push((SessionId(session), uid));
        }
        let (session, uid) = *authors.get(number).ok_or_else(corrupt)?;
        stamp = stamp.checked_add(since).ok_or_else(corrupt)?;
        is_first = false;
        if !visit(EntryStamp { stamp: Hlc(stamp), session, uid }) {
            break;
        }
    }
    Ok(())
}

/// The last change of a page stamped <= `at`; `None` if all are newer.
///
/// # Errors
/// `Corrupt`, as [`visit_entry_stamps`].
pub fn newest_entry_stamp(directory: InodeId, first: Hlc, page: &[u8], at: Hlc) -> Result<Option<EntryStamp>, Fault> {
    let mut newest = None;
    visit_entry_stamps(directory, first, page, &mut |change| {
        if change.stamp <= at {
            newest = Some(change);
        }
        change.stamp <= at
    })?;
    Ok(newest)
}

/// The directory of which this is the key of pages; `None` for any other key.
pub fn entry_stamps_of(key: &[u8]) -> Option<InodeId> {
    match VersionKey::decode(key) {
        Some(VersionKey::EntryStamps(directory)) => Some(directory),
        _ => None,
    }
}

/// The key of the pages of a directory, which stands beside their stamps.
pub fn entry_stamps_key(directory: InodeId) -> Vec<u8> {
    VersionKey::EntryStamps(directory).encode()
}

/// A version of a directory's inode, from which those follow that pages of stamps stand for.
#[derive(Clone, Debug)]
pub struct DirectoryVersion {
    id: InodeId,
    inode: Inode,
}

impl DirectoryVersion {
    /// The directory that `key` and `value` are a version of; `None` if they are of anything else, which costs a look
    /// at two bytes.
    pub fn directory_of(key: &[u8], value: Option<&[u8]>) -> Option<InodeId> {
        match VersionKey::decode(key) {
            Some(VersionKey::Inode(id)) if value.is_some_and(StoredInode::is_of_directory) => Some(id),
            _ => None,
        }
    }

    /// Reads the version stamped `from` of a directory.
    ///
    /// # Errors
    /// `Corrupt`: the value is malformed, and the fault names the directory.
    pub fn read(id: InodeId, from: Hlc, value: &[u8]) -> Result<DirectoryVersion, Fault> {
        let read = StoredInode::read(from, value, Arc::new);
        let (inode, _) = read.map_err(|error| {
            let what = format!("directory {id} as of {from}, before its entries changed, cannot be read: {error}");
            Fault::new(Reason::Corrupt, what)
        })?;
        Ok(DirectoryVersion { id, inode })
    }

    /// The value that holds from a change of the entries on, which comes after this version and before the next.
    ///
    /// # Errors
    /// `Corrupt`: the change is not newer than the version.
    pub fn at(&self, change: EntryStamp) -> Result<Vec<u8>, Fault> {
        let EntryStamp { stamp, session, uid } = change;
        if stamp <= self.inode.from {
            let what = format!("entries of directory {} change at {stamp}, and it is of {}", self.id, self.inode.from);
            return Err(Fault::new(Reason::Corrupt, what));
        }
        let mut inode = self.inode.clone();
        inode.change_entries(stamp);
        Ok(StoredInode::of(&inode, session, uid, Vec::new()).encode_to_vec())
    }
}

#[cfg(test)]
mod tests;
