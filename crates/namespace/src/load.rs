//! Loading the current state at a restart.

use frieze_base::{Fault, InodeId, NAME_BYTES_MAX, Seq};
use frieze_hlc::Hlc;
use frieze_wire::quota::QUOTA_XATTR;
use frieze_wire::txn::{Format, Outcome};

use crate::entry_stamps::newest_entry_stamp;
use crate::error::Error;
use crate::inode::{FileLayout, Inode};
use crate::key::VersionKey;
use crate::model::{NamedInstant, SessionState};
use crate::namespace::Namespace;
use crate::present::{DirectoryBuilder, DirectoryTable, FileLayouts, InodeTable};
use crate::stored::{
    StoredFormat, StoredInode, StoredOutcome, StoredSession, StoredSnapshot, StoredXattr, decode, read_entry, read_loss,
};

/// What is loaded at a restart apart from the rest of a [`Namespace`], which needs none of it meanwhile: by another
/// thread.
#[derive(Debug, Default)]
pub struct LoadedNames {
    directories: DirectoryTable,
    /// The directory that comes now, and what of it has come.
    parent: InodeId,
    names: DirectoryBuilder,
    inodes: InodeTable,
}

impl LoadedNames {
    /// As [`Namespace::load`], of the key of a directory entry or of an inode.
    ///
    /// # Errors
    /// `Corrupt` if it is another, or cannot be read.
    pub fn load(&mut self, key: &[u8], stamp: Hlc, value: &[u8]) -> Result<(), Fault> {
        match VersionKey::decode(key) {
            Some(VersionKey::Entry(parent, name)) => {
                if parent != self.parent {
                    if parent < self.parent {
                        return Err(Error::Corrupt { what: "order of directories" }.into());
                    }
                    self.end_directory();
                    self.parent = parent;
                }
                let entry = read_entry(stamp, value)?;
                if name.is_empty() || name.len() > NAME_BYTES_MAX || !self.names.push(name, entry) {
                    return Err(Error::Corrupt { what: "name of a directory entry, or the order of names" }.into());
                }
            }
            Some(VersionKey::Inode(id)) => {
                let inode = read_inode(id, stamp, value, self.inodes.layouts_mut())?;
                self.inodes.insert_packed(id, inode);
            }
            _ => return Err(Error::Corrupt { what: "key of an entry or inode" }.into()),
        }
        Ok(())
    }

    fn end_directory(&mut self) {
        if let Some(names) = self.names.finish() {
            let is_first = self.directories.insert(self.parent, names);
            assert!(is_first, "directories come in their order");
        }
    }
}

impl Namespace {
    /// Takes the newest version of a key at restart, before anything is applied. Keys come in their order, each once;
    /// those whose newest version is an absence are left out. Directory entries are taken by [`LoadedNames`].
    ///
    /// # Errors
    /// `Corrupt` if key or value cannot be read.
    pub fn load(&mut self, key: &[u8], stamp: Hlc, value: &[u8]) -> Result<(), Fault> {
        match VersionKey::decode(key).ok_or(Error::Corrupt { what: "key" })? {
            VersionKey::Entry(..) => return Err(Error::Corrupt { what: "key, which is one of an entry" }.into()),
            VersionKey::Loss => {
                let (counts_upto, upto) = read_loss(value)?;
                self.numbers.skip(counts_upto);
                self.lost_upto = upto;
            }
            VersionKey::Format => {
                let stored: StoredFormat = decode(value, "format")?;
                let StoredFormat { chunk_bytes, chain_count, uid, gid, mode } = stored;
                self.format = Some(Format { chunk_bytes, chain_count, uid, gid, mode });
            }
            VersionKey::Staged(session, request, plan, part) => {
                self.staged.insert((session, request, plan), part, value.to_vec());
            }
            VersionKey::Forgotten(at, page) => self.load_forgotten(at, page, value)?,
            VersionKey::Policy(number) => self.load_policy(number, value)?,
            VersionKey::Regime(number) => self.load_regime(number, value)?,
            VersionKey::Removed(stamp) => self.load_removed(stamp, value)?,
            VersionKey::Inode(id) => self.load_inode(id, stamp, value)?,
            VersionKey::EntryStamps(id) => self.load_entry_stamps(id, stamp, value)?,
            // Looked up in the store when a path is asked for.
            VersionKey::Link(..) => {}
            VersionKey::Snapshot(name) => {
                let stored: StoredSnapshot = decode(value, "snapshot")?;
                let name = String::from_utf8(name.to_vec()).map_err(|_| Error::Corrupt { what: "snapshot" })?;
                let snapshot = NamedInstant { name: name.clone(), at: Hlc(stored.at), made: stamp, uid: stored.uid };
                self.pin(snapshot.at);
                self.snapshots.insert(name, snapshot);
            }
            VersionKey::Outcome(session, Seq(seq)) => {
                let stored: StoredOutcome = decode(value, "outcome")?;
                let replies = self.replies.entry(session).or_default();
                replies.acked = replies.acked.max(stored.acked);
                let StoredOutcome { id, existed, reason, message, replaced, .. } = stored;
                let outcome = Outcome { stamp: stamp.0, id, existed, reason, message, replaced };
                replies.outcomes.insert(seq, outcome);
            }
            VersionKey::Session(id) => {
                let StoredSession { uid, command, host, keeps, unchanging, ended } = decode(value, "session")?;
                match ended {
                    0 => drop(
                        self.sessions.insert(id, SessionState { opened: stamp, uid, command, host, keeps, unchanging }),
                    ),
                    ended => self.ended.insert(id, Hlc(ended)),
                }
            }
            VersionKey::Xattr(id, name) => {
                let stored: StoredXattr = decode(value, "extended attribute")?;
                if self.inodes.contains(id) {
                    self.xattrs.entry(id).or_default().insert(name.into(), stored.value.into());
                    if name == QUOTA_XATTR {
                        self.quota_changed(id);
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes over what was loaded apart: all directory entries, and inodes. Extended attributes are loaded afterwards,
    /// for they go with inodes that stay; what was forgotten before, for it says which do not.
    pub fn take_apart(&mut self, mut apart: LoadedNames) {
        apart.end_directory();
        self.directories = apart.directories;
        self.count_all_packed(&apart.inodes);
        for (id, mut inode) in self.inodes.take(&apart.inodes) {
            inode.layout = self.share(FileLayout::clone(&inode.layout));
            self.put_loaded(id, inode);
        }
    }

    fn load_inode(&mut self, id: InodeId, stamp: Hlc, value: &[u8]) -> Result<(), Error> {
        let inode = read_inode(id, stamp, value, self.inodes.layouts_mut())?;
        self.put_loaded(id, inode);
        Ok(())
    }

    /// Takes the times of a directory from its newest page, unless its newest version is younger. Inodes have come.
    fn load_entry_stamps(&mut self, id: InodeId, first: Hlc, page: &[u8]) -> Result<(), Fault> {
        let Some(change) = newest_entry_stamp(id, first, page, Hlc::MAX)? else { return Ok(()) };
        match self.inodes.unpacked(id) {
            Some(inode) if inode.is_directory() && inode.from < change.stamp => {
                self.inodes.get_mut(id).expect("just seen").change_entries(change.stamp);
            }
            // One without a name may not be in memory any more.
            _ => {}
        }
        Ok(())
    }

    fn put_loaded(&mut self, id: InodeId, inode: Inode) {
        let plain = inode.extra.is_none();
        if plain {
            self.alive += 1;
            self.numbers.note(id);
            return self.inodes.insert_packed(id, inode);
        }
        self.inodes.insert(id, inode.clone());
        self.count_loaded(id, &inode);
    }

    /// Notes what the state has of packed inodes beside them: how many there are, and their numbers.
    pub(crate) fn count_all_packed(&mut self, inodes: &InodeTable) {
        let numbers = &mut self.numbers;
        self.alive += inodes.packed_count(&mut |last| numbers.note(last));
    }

    /// Notes what the state has of an inode beside the inode, which is in memory.
    pub(crate) fn count_loaded(&mut self, id: InodeId, inode: &Inode) {
        self.numbers.note(id);
        for grant in inode.grants() {
            self.granted.entry(grant.session).or_default().insert(id);
        }
        match inode.orphaned() {
            Some(since) => self.keep_orphan(since, id, inode.is_directory()),
            None => self.alive += 1,
        }
        self.forget_if_done(id);
        self.trim_orphans();
    }
}

/// The inode that a version stamped `stamp` has.
pub(crate) fn read_inode(id: InodeId, stamp: Hlc, value: &[u8], layouts: &mut FileLayouts) -> Result<Inode, Error> {
    if !id.is_valid() {
        return Err(Error::Corrupt { what: "inode number" });
    }
    StoredInode::read(stamp, value, |layout| layouts.share(layout)).map(|(inode, _)| inode)
}
