//! Questions about names and inodes, as they are now and as they were.
//!
//! Guarantees: an answer is a value. The namespace is locked while one answer is put together, so that an answer is of
//! one state, and by no caller.
//! Leaves to others: closing the instant of a question; rights, but where a question names a caller.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use frieze_base::{Fault, InodeId, LogIndex, Reason, Seq, SessionId};
use frieze_hlc::Hlc;
use frieze_namespace::{Inode, ListedEntry, NamedInstant, NamespaceCounts, ReadSet, Resolved};
use frieze_wire::edit::{Edit, NamelessInode};
use frieze_wire::message::{FileKind, Version};
use frieze_wire::txn::{Caller, Format, Outcome, Target};

use super::facts::{ChunkLayout, TreeNode};
use super::metadata::Metadata;

/// True of the names of extended attributes that are wanted.
pub type WantsXattr<'a> = dyn Fn(&[u8]) -> bool + 'a;

/// Names and inodes.
impl Metadata {
    /// Where a target leads; see [`frieze_namespace::Namespace::resolve`]. `reads` is called with what is read of the
    /// present on the way.
    ///
    /// # Errors
    /// As [`frieze_namespace::Namespace::resolve`].
    pub fn resolve(
        &self,
        target: &Target,
        at: Option<Hlc>,
        caller: &Caller,
        reads: &dyn ReadSet,
    ) -> Result<Resolved, Fault> {
        self.state.read().resolve(&self.state.versions, target, at, caller, reads)
    }

    /// The version of an inode at an instant (`None`: now), forgotten or not. No rights are checked.
    ///
    /// # Errors
    /// `NotFound` before it was made; `StaleHandle` if it never was; the store's.
    pub fn inode(&self, id: InodeId, at: Option<Hlc>) -> Result<Inode, Fault> {
        self.state.read().inode(&self.state.versions, id, at)
    }

    /// As [`Metadata::inode`], of an inode that can be read at that instant.
    ///
    /// # Errors
    /// As [`Metadata::inode`]; `HistoryExpired` for what was forgotten.
    pub fn kept_inode(&self, id: InodeId, at: Option<Hlc>) -> Result<Inode, Fault> {
        let namespace = self.state.read();
        namespace.check_kept(id, at)?;
        namespace.inode(&self.state.versions, id, at)
    }

    /// The current version of an inode in memory. `None` if there is none, or if only the history has it.
    pub fn current(&self, id: InodeId) -> Option<Inode> {
        self.state.read().current(id).map(Cow::into_owned)
    }

    /// The current version of an inode that a client has open. The history has it if the inode was forgotten whole.
    ///
    /// # Errors
    /// `StaleHandle` if there is none; the store's.
    pub fn open_inode(&self, id: InodeId) -> Result<Inode, Fault> {
        let namespace = self.state.read();
        match namespace.current(id) {
            Some(inode) => Ok(inode.into_owned()),
            None if namespace.horizons().is_wholly_expired(id) => namespace.inode(&self.state.versions, id, None),
            None => Err(Reason::StaleHandle.into()),
        }
    }

    /// Stamp of the current version of an inode in memory.
    pub fn version_stamp(&self, id: InodeId) -> Option<Hlc> {
        self.state.read().current(id).map(|inode| inode.from)
    }

    /// Stamp of the creation of an inode in memory.
    pub fn birth_stamp(&self, id: InodeId) -> Option<Hlc> {
        self.state.read().current(id).map(|inode| inode.born)
    }

    /// What an inode in memory is.
    pub fn kind(&self, id: InodeId) -> Option<FileKind> {
        self.state.read().current(id).map(|inode| inode.kind())
    }

    /// How the bytes of a file in memory are spread.
    pub fn current_layout(&self, id: InodeId) -> Option<ChunkLayout> {
        self.state.read().current(id).map(|inode| ChunkLayout::of(&inode))
    }

    /// The directories with a bound of the bytes that are kept below, with the bounds.
    pub fn kept_quotas(&self) -> BTreeMap<InodeId, u64> {
        self.state.read().kept_quotas().collect()
    }

    /// The directories above an inode in memory that bound the bytes kept below, with the bounds.
    pub fn kept_quotas_above(&self, id: InodeId) -> Vec<(InodeId, u64)> {
        self.state.read().kept_quotas_above(id)
    }

    /// Counts the changes of quotas, and the moves from below one to below another, since the start.
    pub fn quota_changes(&self) -> u64 {
        self.state.read().quota_changes()
    }

    /// How the bytes of a file are spread: that is settled by its birth, whether it still has a name or not.
    ///
    /// # Errors
    /// `StaleHandle` if it never was; the store's.
    pub fn layout(&self, id: InodeId) -> Result<ChunkLayout, Fault> {
        let namespace = self.state.read();
        match namespace.current(id) {
            Some(inode) => Ok(ChunkLayout::of(&inode)),
            None => namespace.inode(&self.state.versions, id, None).map(|inode| ChunkLayout::of(&inode)),
        }
    }

    /// At most `max` entries of a directory at an instant, in byte order, after the name `after`. No rights are
    /// checked.
    ///
    /// # Errors
    /// `NotDirectory`; as [`Metadata::inode`].
    pub fn list(
        &self,
        directory: InodeId,
        at: Option<Hlc>,
        after: &[u8],
        max: usize,
    ) -> Result<Vec<ListedEntry>, Fault> {
        self.state.read().list(&self.state.versions, directory, at, after, max)
    }

    /// Checks rights on an inode, by its version at an instant and, if that is the past, by its newest one too.
    ///
    /// # Errors
    /// `AccessDenied`; as [`Metadata::inode`].
    pub fn check_access(&self, id: InodeId, at: Option<Hlc>, caller: &Caller, mask: u32) -> Result<(), Fault> {
        self.state.read().check_access(&self.state.versions, id, at, caller, mask)
    }

    /// The value of an extended attribute at an instant, with the rights of then and of now.
    ///
    /// # Errors
    /// As [`frieze_namespace::Namespace::xattr`].
    pub fn xattr(&self, id: InodeId, name: &[u8], at: Option<Hlc>, caller: &Caller) -> Result<Vec<u8>, Fault> {
        self.state.read().xattr(&self.state.versions, id, name, at, caller)
    }

    /// The names of the extended attributes at an instant, in byte order.
    ///
    /// # Errors
    /// As [`Metadata::inode`].
    pub fn xattr_names(&self, id: InodeId, at: Option<Hlc>, caller: &Caller) -> Result<Vec<Vec<u8>>, Fault> {
        self.state.read().xattr_names(&self.state.versions, id, at, caller)
    }

    /// The extended attributes that `wants` is true of, at an instant, by name: names and values of one state.
    ///
    /// # Errors
    /// As [`frieze_namespace::Namespace::xattr`].
    pub fn xattrs(
        &self,
        id: InodeId,
        at: Option<Hlc>,
        caller: &Caller,
        wants: &WantsXattr<'_>,
    ) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, Fault> {
        let (namespace, versions) = (self.state.read(), &self.state.versions);
        let names = namespace.xattr_names(versions, id, at, caller)?;
        let value = |name: Vec<u8>| {
            let value = namespace.xattr(versions, id, &name, at, caller)?;
            Ok((name, value))
        };
        names.into_iter().filter(|name| wants(name)).map(value).collect()
    }

    /// What happened to an inode in (`after`, `upto`]; see [`frieze_namespace::Namespace::log`].
    ///
    /// # Errors
    /// `Corrupt`; the store's.
    pub fn log(&self, id: InodeId, after: Hlc, upto: Hlc, max: usize) -> Result<Vec<Version>, Fault> {
        self.state.read().log(&self.state.versions, id, after, upto, max)
    }

    /// Where inodes are in the tree now: `ids`, as far as they are in memory, and all directories above them.
    pub fn tree_nodes(&self, ids: impl Iterator<Item = InodeId>) -> BTreeMap<InodeId, TreeNode> {
        let namespace = self.state.read();
        let mut nodes = BTreeMap::new();
        for id in ids {
            let mut here = id;
            while !nodes.contains_key(&here)
                && let Some(inode) = namespace.current(here)
            {
                let node = TreeNode {
                    is_directory: inode.is_directory(),
                    links: inode.links,
                    parent: inode.parent,
                    entry_count: namespace.entry_count(here),
                };
                nodes.insert(here, node);
                here = inode.parent;
            }
        }
        nodes
    }
}

/// The file system as a whole, and transactions that ran.
impl Metadata {
    /// What the file system was formatted with; `None` before.
    pub fn format(&self) -> Option<Format> {
        self.state.read().format().cloned()
    }

    /// How many inodes and sessions there are.
    pub fn counts(&self) -> NamespaceCounts {
        self.state.read().counts()
    }

    /// The last entry executed here, and a number that is the same on every server that has executed the same.
    ///
    /// # Errors
    /// The store's.
    pub fn digest(&self) -> Result<(LogIndex, u64), Fault> {
        // No entry is executed while the namespace is locked.
        let namespace = self.state.read();
        let history = self.state.versions.digest()?;
        let counts = namespace.counts();
        let ids = namespace.numbers().given() ^ counts.inodes << 20 ^ counts.sessions << 40;
        let mut control = 0;
        self.state.look_at_control(&mut |state| control = frieze_base::crc32c(&state.encode()).into());
        Ok((self.appended(), history.rotate_left(17) ^ ids ^ control))
    }

    /// Named instants, in order of name.
    pub fn snapshots(&self) -> Vec<NamedInstant> {
        self.state.read().snapshots().cloned().collect()
    }

    /// At most `max` named instants, in order of name, after the name `after`.
    pub fn snapshots_after(&self, after: &str, max: usize) -> Vec<NamedInstant> {
        self.state.read().snapshots_after(after).take(max).cloned().collect()
    }

    /// A named instant.
    pub fn snapshot(&self, name: &str) -> Option<NamedInstant> {
        self.state.read().snapshot(name).cloned()
    }

    /// The outcome of a request of a session, if it ran and the client has not acknowledged that.
    pub fn remembered(&self, session: SessionId, seq: Seq) -> Option<Outcome> {
        self.state.read().remembered(session, seq).cloned()
    }

    /// Whether an edit stamped `stamp` would run.
    ///
    /// # Errors
    /// Those of the edit.
    pub fn check_edit(&self, caller: &Caller, edit: &Edit, stamp: Hlc) -> Result<(), Fault> {
        self.state.read().check_edit(caller, edit, stamp)
    }

    /// What an edit has to bring of these inodes, because only the history has it.
    ///
    /// # Errors
    /// The store's.
    pub fn nameless_inodes(&self, ids: &BTreeSet<InodeId>) -> Result<Vec<NamelessInode>, Fault> {
        let namespace = self.state.read();
        let brought = ids.iter().map(|id| namespace.bring(&self.state.versions, *id));
        brought.filter_map(Result::transpose).collect()
    }
}
