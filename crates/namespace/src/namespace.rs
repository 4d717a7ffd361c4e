//! The current state in memory, how it is loaded, and the questions it answers alone.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use frieze_base::{FastMap, InodeId, Seq, SessionId};
use frieze_hlc::Hlc;
use frieze_wire::message::FileKind;
use frieze_wire::txn::{Caller, Format, Outcome};
use prost::Message;

use crate::ended::EndedSessions;
use crate::error::Error;
use crate::history::{KeyVersion, VersionHistory};
use crate::horizons::Expiries;
use crate::inode::{FileLayout, Inode, WriteGrant, allows};
use crate::key::VersionKey;
use crate::model::{NameEntry, NamedInstant, Replies, SessionState, Xattrs};
use crate::numbers::InodeNumbers;
use crate::present::{DirectoryTable, EvictionHand, InodeTable, PieceLoads};
use crate::quotas::Quotas;
use crate::read_scope::ReadScope;
use crate::regimes::Retentions;
use crate::staged::StagedEdits;
use crate::state_item::StateItem;
use crate::stored::{StoredInode, read_entry};

/// Files without a name that stay in memory, so that handles still open can change them: the newest ones. Those with a
/// write grant stay in any case; all others can still be read, from history. Those forgotten whole do not stay. At
/// about 250 bytes each: 16 MiB.
pub const ORPHANS_KEPT_MAX: usize = 65_536;

/// Sizes, for `status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamespaceCounts {
    /// Inodes with a name.
    pub inodes: u64,
    /// Open sessions.
    pub sessions: u64,
}

/// What a loss of power took of the names, at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Inode numbers with a count up to it are left out: clients may know them.
    pub counts_upto: u64,
    /// Write grants may be lost, and records that were written under them kept. A server that is alone cuts those off.
    pub grants: bool,
}

/// The current state: every name and inode that lives now, open sessions, named instants.
///
/// Deterministic: the same transactions at the same stamps give the same state, outcomes and changes.
#[derive(Debug, Default)]
pub struct Namespace {
    pub(crate) inodes: InodeTable,
    /// Directories that hold something.
    pub(crate) directories: DirectoryTable,
    pub(crate) xattrs: FastMap<InodeId, Xattrs>,
    /// The newest inodes without a name, by when they lost the last.
    pub(crate) orphans: BTreeSet<(Hlc, InodeId)>,
    pub(crate) sessions: BTreeMap<SessionId, SessionState>,
    pub(crate) ended: EndedSessions,
    /// Files that a session has write grants on.
    pub(crate) granted: BTreeMap<SessionId, BTreeSet<InodeId>>,
    pub(crate) replies: BTreeMap<SessionId, Replies>,
    pub(crate) staged: StagedEdits,
    pub(crate) snapshots: BTreeMap<String, NamedInstant>,
    pub(crate) horizons: Expiries,
    pub(crate) retention: Retentions,
    pub(crate) quotas: Quotas,
    pub(crate) format: Option<Format>,
    pub(crate) numbers: InodeNumbers,
    /// Changes stamped up to it may have been lost while records of chains were kept; ZERO if none ever was.
    pub(crate) lost_upto: Hlc,
    pub(crate) alive: u64,
    /// Of pages and blocks that were cold.
    pub(crate) piece_loads: Arc<PieceLoads>,
    /// Where the next eviction continues.
    pub(crate) hand: EvictionHand,
    /// Of a partial namespace: the items that it has.
    pub(crate) scope: Option<Arc<ReadScope>>,
}

impl Namespace {
    /// An empty namespace, to be loaded, or formatted by its first transaction.
    pub fn new() -> Namespace {
        Namespace::default()
    }

    /// The current version of an inode in memory. `None` if there is none, or if it lost its last name so long ago that
    /// only the history has it.
    ///
    /// # Cost
    /// About 10 ns for a directory or a file that is being written, which are borrowed; 40 ns for others, which are
    /// unpacked. No allocation.
    pub fn current(&self, id: InodeId) -> Option<Cow<'_, Inode>> {
        self.inodes.get(id)
    }

    /// What a request of a session did, if it ran and is not acknowledged yet.
    pub fn remembered(&self, session: SessionId, seq: Seq) -> Option<&Outcome> {
        self.replies.get(&session)?.outcomes.get(&seq.0)
    }

    /// How many names a directory holds now.
    pub fn entry_count(&self, directory: InodeId) -> usize {
        self.directories.count(directory)
    }

    /// True if the session may write that chunk now.
    pub fn has_grant(&self, session: SessionId, inode: InodeId, chunk: u32) -> bool {
        self.inodes.unpacked(inode).is_some_and(|inode| inode.may_write_chunk(session, chunk))
    }

    /// True if the session may write any chunk of the file now.
    pub fn may_write(&self, session: SessionId, inode: InodeId) -> bool {
        let goes_on = |grant: &WriteGrant| grant.session == session && !grant.is_stopped;
        self.inodes.unpacked(inode).is_some_and(|inode| inode.grants().iter().any(goes_on))
    }

    /// Files that a session has write grants on, by id: `CloseSession` has to settle every one.
    pub fn granted(&self, session: SessionId) -> Vec<InodeId> {
        self.granted.get(&session).into_iter().flatten().copied().collect()
    }

    /// An open session.
    pub fn session(&self, id: SessionId) -> Option<&SessionState> {
        self.sessions.get(&id)
    }

    /// Open sessions in order of id, oldest first.
    pub fn sessions(&self) -> impl Iterator<Item = (SessionId, &SessionState)> {
        self.sessions.iter().map(|(id, session)| (*id, session))
    }

    /// Stamp of the newest change of names or attributes that an open session is remembered for.
    pub fn newest_of(&self, session: SessionId) -> Option<Hlc> {
        let outcomes = self.replies.get(&session)?.outcomes.values();
        outcomes.map(|outcome| Hlc(outcome.stamp)).max()
    }

    /// Named instants in order of name.
    pub fn snapshots(&self) -> impl Iterator<Item = &NamedInstant> {
        self.snapshots.values()
    }

    /// Named instants in order of name, after this one.
    pub fn snapshots_after(&self, name: &str) -> impl Iterator<Item = &NamedInstant> {
        use std::ops::Bound::{Excluded, Unbounded};
        self.snapshots.range::<str, _>((Excluded(name), Unbounded)).map(|(_, snapshot)| snapshot)
    }

    /// A named instant.
    pub fn snapshot(&self, name: &str) -> Option<&NamedInstant> {
        self.snapshots.get(name)
    }

    /// What the file system was formatted with; `None` before.
    pub fn format(&self) -> Option<&Format> {
        self.format.as_ref()
    }

    /// The numbers given so far.
    pub fn numbers(&self) -> &InodeNumbers {
        &self.numbers
    }

    /// Takes account of a loss of changes of names, declared at `stamp`. A change of the state: what is executed again
    /// from before it does what it did.
    ///
    /// # Cost
    /// If grants may be lost, a version of each file on which a session has a grant.
    pub fn lose(&mut self, loss: Loss, stamp: Hlc, changes: &mut Vec<KeyVersion>) {
        let Loss { counts_upto, grants } = loss;
        if counts_upto <= self.numbers.floor() && !grants {
            return;
        }
        self.numbers.skip(counts_upto);
        if grants {
            self.lost_upto = stamp;
            self.hide_ungranted(stamp, changes);
        }
        let value = Some([self.numbers.floor().to_le_bytes(), self.lost_upto.0.to_le_bytes()].concat());
        changes.push(KeyVersion { key: VersionKey::Loss.encode(), stamp, value });
    }

    /// Files on which sessions have grants hide at once what lost grants let be written: bytes that the other grants
    /// let count may lie behind it. Other files hide it with their next version (`edit`); nothing counts there before.
    fn hide_ungranted(&mut self, stamp: Hlc, changes: &mut Vec<KeyVersion>) {
        let granted: BTreeSet<InodeId> = self.granted.values().flatten().copied().collect();
        for id in granted {
            let Some(inode) = self.inodes.get_mut(id) else { continue };
            if inode.hide_lost(stamp) {
                inode.from = stamp;
                let stored = StoredInode::of(inode, SessionId(0), 0, Vec::new());
                let value = Some(stored.encode_to_vec());
                changes.push(KeyVersion { key: VersionKey::Inode(id).encode(), stamp, value });
                inode.extra_mut().made_by = Some(Box::new(stored.into_author()));
            }
            self.inodes.pack(id);
        }
    }

    /// Changes stamped up to this may have been lost while records that depend on them were not; ZERO if none ever was.
    pub fn lost_upto(&self) -> Hlc {
        self.lost_upto
    }

    /// How much there is.
    pub fn counts(&self) -> NamespaceCounts {
        NamespaceCounts { inodes: self.alive, sessions: self.sessions.len() as u64 }
    }

    pub(crate) fn entry(&self, directory: InodeId, name: &[u8]) -> Option<NameEntry> {
        let found = self.directories.get(directory).and_then(|names| names.get(name));
        if let Some(scope) = &self.scope {
            scope.look_at_name(directory, name, found.map(|entry| entry.kind() == FileKind::Directory));
        }
        found
    }

    /// How many names a directory holds, for a transaction to decide by.
    pub(crate) fn name_count(&self, directory: InodeId) -> usize {
        match &self.scope {
            Some(scope) => scope.name_count(directory),
            None => self.directories.count(directory),
        }
    }

    /// The number that the next file but `ahead` in the slot of this directory gets.
    ///
    /// # Errors
    /// `NumbersUsedUp`: the file can be made in another directory.
    pub(crate) fn next_file(&self, directory: InodeId, ahead: u64) -> Result<InodeId, Error> {
        self.look_at(|| StateItem::FileNumbers(directory.slot()));
        self.numbers.next_file(directory, ahead)
    }

    /// The number that the next directory but `ahead` gets.
    ///
    /// # Errors
    /// `NumbersUsedUp`.
    pub(crate) fn next_directory(&self, ahead: u64) -> Result<InodeId, Error> {
        self.look_at(|| StateItem::DirectoryNumbers);
        self.numbers.next_directory(ahead)
    }

    /// True if an inode may have this number, or had it.
    pub(crate) fn was_given(&self, id: InodeId) -> bool {
        self.look_at(|| match id.is_directory() {
            true => StateItem::DirectoryNumbers,
            false => StateItem::FileNumbers(id.slot()),
        });
        self.numbers.was_given(id)
    }

    /// Notes a look at an item, of a partial namespace.
    pub(crate) fn look_at(&self, item: impl FnOnce() -> StateItem) {
        if let Some(scope) = &self.scope {
            scope.look(item());
        }
    }

    /// What a name stood for at an instant, by the history alone.
    pub(crate) fn entry_then(
        history: &dyn VersionHistory,
        directory: InodeId,
        name: &[u8],
        at: Hlc,
    ) -> Result<Option<NameEntry>, Error> {
        match history.newest(&VersionKey::Entry(directory, name).encode(), at)? {
            Some((from, Some(value))) => read_entry(from, &value).map(Some),
            _ => Ok(None),
        }
    }

    /// The version of an inode at an instant: from memory if it is old enough, else from the history.
    pub(crate) fn version<'a>(
        &'a self,
        history: &dyn VersionHistory,
        id: InodeId,
        at: Option<Hlc>,
    ) -> Result<Cow<'a, Inode>, Error> {
        if let Some(inode) = self.inodes.get(id)
            && at.is_none_or(|at| inode.from <= at)
        {
            return Ok(inode);
        }
        let missing = || at.map_or(Error::StaleHandle { inode: id }, |at| Error::NotYetMade { inode: id, at });
        match history.newest(&VersionKey::Inode(id).encode(), at.unwrap_or(Hlc::MAX))? {
            Some((from, Some(value))) => Ok(Cow::Owned(StoredInode::read(from, &value, Arc::new)?.0)),
            _ => Err(missing()),
        }
    }

    /// Checks rights on a version and, if that is of the past, on the newest one too.
    #[expect(clippy::too_many_arguments, reason = "private; a struct would only rename them at three call sites")]
    pub(crate) fn check_both(
        &self,
        history: &dyn VersionHistory,
        id: InodeId,
        version: &Inode,
        at: Option<Hlc>,
        caller: &Caller,
        mask: u32,
        name: &[u8],
    ) -> Result<(), Error> {
        if !allows(version, caller, mask) {
            return Err(Error::denied(if at.is_some() { "rights of then on" } else { "rights on" }, name));
        }
        if at.is_some() && caller.uid != 0 {
            let newest = self.version(history, id, None)?;
            if newest.from != version.from && !allows(&newest, caller, mask) {
                return Err(Error::denied("rights of now on", name));
            }
        }
        Ok(())
    }

    /// One shared copy of a layout.
    pub(crate) fn share(&mut self, layout: FileLayout) -> Arc<FileLayout> {
        self.inodes.share(layout)
    }

    /// An inode without a name stays in memory for a while, unless it is a file that is forgotten whole: then no
    /// question about it is answered. The way up from an open file may lead through such a directory.
    pub(crate) fn keep_orphan(&mut self, since: Hlc, id: InodeId, is_directory: bool) {
        if is_directory || !(self.horizons.is_wholly_expired(id) || self.horizons.is_removal_expired(id)) {
            self.orphans.insert((since, id));
        }
    }

    /// Lets go of the oldest inodes without a name. A pure function of the state, so that a restart changes nothing.
    pub(crate) fn trim_orphans(&mut self) {
        while self.orphans.len() > ORPHANS_KEPT_MAX {
            let (_, id) = self.orphans.pop_first().expect("it holds more than the limit");
            self.forget_if_done(id);
        }
    }

    /// Drops an inode from memory that has neither a name, nor a place among the newest orphans, nor a writer.
    pub(crate) fn forget_if_done(&mut self, id: InodeId) {
        let Some(inode) = self.inodes.unpacked(id) else { return };
        let Some(since) = inode.orphaned() else { return };
        if inode.grants().is_empty() && !self.orphans.contains(&(since, id)) {
            self.inodes.remove(id);
            if self.xattrs.remove(&id).is_some() {
                self.quota_changed(id);
            }
        }
    }
}

/// Equal states answer alike for ever. Left out: the pool of shared layouts and what is cold, which no answer depends
/// on, and quotas, which follow from attributes, names and lengths.
impl PartialEq for Namespace {
    fn eq(&self, other: &Namespace) -> bool {
        self.inodes == other.inodes
            && self.directories == other.directories
            && self.xattrs == other.xattrs
            && self.orphans == other.orphans
            && self.sessions == other.sessions
            && self.ended == other.ended
            && self.granted == other.granted
            && self.replies == other.replies
            && self.staged == other.staged
            && self.snapshots == other.snapshots
            && self.horizons == other.horizons
            && self.retention == other.retention
            && self.format == other.format
            && self.numbers == other.numbers
            && (self.alive, self.lost_upto) == (other.alive, other.lost_upto)
    }
}
