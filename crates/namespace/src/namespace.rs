//! The current state in memory, how it is loaded, and the questions it answers alone.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use frieze_base::{FastMap, Fault, InodeId, Seq, SessionId};
use frieze_hlc::Hlc;
use frieze_wire::message::FileKind;
use frieze_wire::quota::QUOTA_XATTR;
use frieze_wire::txn::{Caller, Format, Outcome, Target};

use crate::ended::EndedSessions;
use crate::error::Error;
use crate::forget::Horizons;
use crate::history::History;
use crate::inode::{Inode, Layout, WriteGrant, allows};
use crate::key::Key;
use crate::name::Name;
use crate::quota::Quotas;
use crate::read_set::ReadSet;
use crate::stored::{
    StoredEntry, StoredFormat, StoredInode, StoredOutcome, StoredSession, StoredSnapshot, StoredXattr, decode,
};
use crate::table::{INODE_ID_MAX, Table};
use crate::walk::Walk;

/// Files without a name that stay in memory, so that handles still open can change them: the newest ones. Those with a
/// write grant stay in any case; all others can still be read, from history. Those forgotten whole do not stay. At about 250 bytes
/// each: 16 MiB.
pub const ORPHANS_KEPT_MAX: usize = 65_536;
/// Inodes of a list while they are loaded: some 600 KiB.
const LOADED_TOGETHER: usize = 4096;

/// The current state: every name and inode that lives now, open sessions, named instants.
///
/// Deterministic: the same transactions at the same stamps give the same state, outcomes and changes.
#[derive(Debug, Default)]
pub struct Namespace {
    pub(crate) inodes: Table,
    /// Directories that hold something.
    pub(crate) directories: FastMap<InodeId, BTreeMap<Name, Entry>>,
    pub(crate) xattrs: FastMap<InodeId, Xattrs>,
    /// The newest inodes without a name, by when they lost the last.
    pub(crate) orphans: BTreeSet<(Hlc, InodeId)>,
    pub(crate) sessions: BTreeMap<SessionId, Session>,
    pub(crate) ended: EndedSessions,
    /// Files that a session has write grants on.
    pub(crate) granted: BTreeMap<SessionId, BTreeSet<InodeId>>,
    pub(crate) replies: BTreeMap<SessionId, Replies>,
    pub(crate) snapshots: BTreeMap<String, Snapshot>,
    pub(crate) horizons: Horizons,
    pub(crate) quotas: Quotas,
    pub(crate) format: Option<Format>,
    /// Largest inode id given so far.
    pub(crate) last_id: u64,
    pub(crate) alive: u64,
    pub(crate) layouts: Layouts,
}

/// What is loaded at a restart apart from the rest of a [`Namespace`], which needs none of it meanwhile: by another thread.
#[derive(Debug, Default)]
pub struct LoadedApart {
    directories: FastMap<InodeId, BTreeMap<Name, Entry>>,
    /// The directory that comes now, and what of it has come: a map is made at once of all that it is to hold.
    parent: InodeId,
    names: Vec<(Name, Entry)>,
    /// Of [`LOADED_TOGETHER`] each: one list of all would be copied whenever it grows.
    inodes: Vec<Vec<(InodeId, Inode)>>,
    layouts: Layouts,
}

/// One copy of each layout; those of inodes long gone are dropped when a new one comes.
#[derive(Debug, Default)]
pub(crate) struct Layouts {
    all: BTreeSet<Arc<Layout>>,
    /// The one asked for last: most inodes have that of the one before.
    last: Option<Arc<Layout>>,
}

/// Extended attributes of one inode, by name.
pub(crate) type Xattrs = BTreeMap<Box<[u8]>, Box<[u8]>>;

/// What a name stands for, since when. The kind lives in the top bits of the id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    packed: u64,
    pub(crate) from: Hlc,
}

/// Outcomes that a session has not acknowledged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Replies {
    /// Everything below is acknowledged and forgotten.
    pub(crate) acked: u64,
    pub(crate) outcomes: BTreeMap<u64, Outcome>,
}

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The inode's id.
    pub id: InodeId,
    /// Its version at the instant asked for.
    pub inode: Inode,
    /// Directory in which the last name was found; the home directory where the path ended without one.
    pub parent: InodeId,
    /// Last name, links followed; empty where the path was empty, the root or `.`.
    pub name: Vec<u8>,
}

/// An open session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// When it was opened; its id too.
    pub opened: Hlc,
    /// The user proven by the server.
    pub uid: u32,
    /// Program, as the client tells it.
    pub command: String,
    /// Host, as the client tells it.
    pub host: String,
    /// It may ask to be allowed to cache, and for locks.
    pub keeps: bool,
    /// It has changed nothing so far.
    pub unchanging: bool,
}

/// A named instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Name.
    pub name: String,
    /// The instant.
    pub at: Hlc,
    /// When it was made.
    pub made: Hlc,
    /// By whom.
    pub uid: u32,
}

/// Sizes, for `status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Inodes with a name.
    pub inodes: u64,
    /// Open sessions.
    pub sessions: u64,
}

impl LoadedApart {
    /// As [`Namespace::load`], of the key of a directory entry or of an inode.
    ///
    /// # Errors
    /// `Corrupt` if it is another, or cannot be read.
    pub fn load(&mut self, key: &[u8], stamp: Hlc, value: &[u8]) -> Result<(), Fault> {
        match Key::decode(key) {
            Some(Key::Entry(parent, name)) => {
                if parent != self.parent {
                    self.end_directory();
                    self.parent = parent;
                }
                self.names.push((Name::new(name), Entry::read(stamp, value)?));
            }
            Some(Key::Inode(id)) => {
                let inode = read_inode(id, stamp, value, &mut self.layouts)?;
                match self.inodes.last_mut().filter(|together| together.len() < LOADED_TOGETHER) {
                    Some(together) => together.push((id, inode)),
                    None => {
                        let mut together = Vec::with_capacity(LOADED_TOGETHER);
                        together.push((id, inode));
                        self.inodes.push(together);
                    }
                }
            }
            _ => return Err(Error::Corrupt { what: "key of an entry or inode" }.into()),
        }
        Ok(())
    }

    fn end_directory(&mut self) {
        if !self.names.is_empty() {
            let before = self.directories.insert(self.parent, std::mem::take(&mut self.names).into_iter().collect());
            assert!(before.is_none(), "keys come in their order");
        }
    }
}

impl Layouts {
    /// The copy of a layout that all share.
    fn share(&mut self, layout: Layout) -> Arc<Layout> {
        if let Some(shared) = self.last.as_ref().filter(|shared| shared.is(&layout)) {
            return Arc::clone(shared);
        }
        let shared = match self.all.get(&layout) {
            Some(shared) => Arc::clone(shared),
            None => {
                self.last = None;
                self.all.retain(|shared| Arc::strong_count(shared) > 1);
                let shared = Arc::new(layout);
                self.all.insert(Arc::clone(&shared));
                shared
            }
        };
        self.last = Some(Arc::clone(&shared));
        shared
    }
}

fn read_inode(id: InodeId, stamp: Hlc, value: &[u8], layouts: &mut Layouts) -> Result<Inode, Error> {
    if id.0 == 0 || id.0 > INODE_ID_MAX {
        return Err(Error::Corrupt { what: "inode number" });
    }
    StoredInode::read(stamp, value, |layout| layouts.share(layout)).map(|(inode, _)| inode)
}

impl Entry {
    const KIND_SHIFT: u32 = 56;

    pub(crate) fn new(inode: InodeId, kind: FileKind, from: Hlc) -> Entry {
        Entry { packed: inode.0 | (kind as u64) << Self::KIND_SHIFT, from }
    }

    pub(crate) fn inode(self) -> InodeId {
        InodeId(self.packed & ((1 << Self::KIND_SHIFT) - 1))
    }

    pub(crate) fn kind(self) -> FileKind {
        FileKind::try_from((self.packed >> Self::KIND_SHIFT) as i32).expect("packed from a FileKind")
    }

    pub(crate) fn read(from: Hlc, value: &[u8]) -> Result<Entry, Error> {
        let corrupt = Error::Corrupt { what: "directory entry" };
        let stored: StoredEntry = decode(value, "directory entry")?;
        let kind = FileKind::try_from(stored.kind).map_err(|_| corrupt.clone())?;
        if stored.inode > INODE_ID_MAX {
            return Err(corrupt);
        }
        Ok(Entry::new(InodeId(stored.inode), kind, from))
    }
}

impl Namespace {
    /// An empty namespace, to be loaded, or formatted by its first transaction.
    pub fn new() -> Namespace {
        Namespace::default()
    }

    /// Takes the newest version of a key at restart, before anything is applied. Keys come in their order, each once;
    /// those whose newest version is an absence are left out. Directory entries are taken by [`LoadedApart`].
    ///
    /// # Errors
    /// `Corrupt` if key or value cannot be read.
    pub fn load(&mut self, key: &[u8], stamp: Hlc, value: &[u8]) -> Result<(), Fault> {
        match Key::decode(key).ok_or(Error::Corrupt { what: "key" })? {
            Key::Entry(..) => return Err(Error::Corrupt { what: "key, which is one of an entry" }.into()),
            Key::Format => {
                let stored: StoredFormat = decode(value, "format")?;
                let StoredFormat { chunk_bytes, chain_count, uid, gid, mode } = stored;
                self.format = Some(Format { chunk_bytes, chain_count, uid, gid, mode });
            }
            Key::Forgotten(at, page) => self.load_forgotten(at, page, value)?,
            Key::Inode(id) => self.load_inode(id, stamp, value)?,
            // Looked up in the store when somebody asks for a path.
            Key::Link(..) => {}
            Key::Snapshot(name) => {
                let stored: StoredSnapshot = decode(value, "snapshot")?;
                let name = String::from_utf8(name.to_vec()).map_err(|_| Error::Corrupt { what: "snapshot" })?;
                let snapshot = Snapshot { name: name.clone(), at: Hlc(stored.at), made: stamp, uid: stored.uid };
                self.snapshots.insert(name, snapshot);
            }
            Key::Outcome(session, Seq(seq)) => {
                let stored: StoredOutcome = decode(value, "outcome")?;
                let replies = self.replies.entry(session).or_default();
                replies.acked = replies.acked.max(stored.acked);
                let StoredOutcome { id, existed, reason, message, replaced, .. } = stored;
                let outcome = Outcome { stamp: stamp.0, id, existed, reason, message, replaced };
                replies.outcomes.insert(seq, outcome);
            }
            Key::Session(id) => {
                let StoredSession { uid, command, host, keeps, unchanging, ended } = decode(value, "session")?;
                match ended {
                    0 => {
                        drop(self.sessions.insert(id, Session { opened: stamp, uid, command, host, keeps, unchanging }))
                    }
                    ended => self.ended.insert(id, Hlc(ended)),
                }
            }
            Key::Xattr(id, name) => {
                let stored: StoredXattr = decode(value, "extended attribute")?;
                if self.inodes.get(id).is_some() {
                    self.xattrs.entry(id).or_default().insert(name.into(), stored.value.into());
                    if name == QUOTA_XATTR {
                        self.quota_changed(id);
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes over what was loaded apart: all directory entries, and inodes. Extended attributes are loaded afterwards, for they go with
    /// inodes that stay; what was forgotten before, for it says which do not.
    pub fn take_apart(&mut self, mut apart: LoadedApart) {
        apart.end_directory();
        self.directories = apart.directories;
        // Their layouts are few, and one copy of each is theirs already: ours takes its place, looked up where it changes.
        let mut last: Option<(Arc<Layout>, Arc<Layout>)> = None;
        for (id, mut inode) in apart.inodes.into_iter().flatten() {
            let known = last.take_if(|(theirs, _)| Arc::ptr_eq(theirs, &inode.layout));
            let (theirs, ours) = known.unwrap_or_else(|| (inode.layout.clone(), self.share((*inode.layout).clone())));
            inode.layout = ours.clone();
            last = Some((theirs, ours));
            self.put_loaded(id, inode);
        }
    }

    fn load_inode(&mut self, id: InodeId, stamp: Hlc, value: &[u8]) -> Result<(), Error> {
        let inode = read_inode(id, stamp, value, &mut self.layouts)?;
        self.put_loaded(id, inode);
        Ok(())
    }

    fn put_loaded(&mut self, id: InodeId, inode: Inode) {
        self.last_id = self.last_id.max(id.0);
        for grant in inode.grants() {
            self.granted.entry(grant.session).or_default().insert(id);
        }
        match inode.orphaned() {
            Some(since) => self.keep_orphan(since, id, inode.is_directory()),
            None => self.alive += 1,
        }
        self.inodes.insert(id, inode);
        self.forget_if_done(id);
        self.trim_orphans();
    }

    /// Resolves a target at an instant (`None`: now). The right to search is checked on every directory of the walk,
    /// for the past by its version of then and by its newest. A base that is not the root is checked up to the root.
    /// The rights on what is found are the caller's to check ([`Namespace::check_access`]).
    ///
    /// # Errors
    /// As `path_resolution(7)`: `NotFound`, `NotDirectory`, `AccessDenied`, `SymlinkLoop`, `NameTooLong`;
    /// `InvalidArgument` for `..` and NUL; `StaleHandle` for an unknown base; those of the store.
    ///
    /// # Cost
    /// Now: O(log entries) a name, in memory. Then: a read of the history for what changed since.
    ///
    /// `reads` hears what of the present is looked at on the way.
    pub fn resolve(
        &self,
        history: &dyn History,
        target: &Target,
        at: Option<Hlc>,
        caller: &Caller,
        reads: &dyn ReadSet,
    ) -> Result<Resolved, Fault> {
        Ok(Walk { namespace: self, history, at, caller, reads }.resolve(target)?)
    }

    /// The current version of an inode in memory, without a copy. `None` if there is none, or if it lost its last name
    /// so long ago that only the history has it.
    pub fn current(&self, id: InodeId) -> Option<&Inode> {
        self.inodes.get(id)
    }

    /// What a request of a session did, if it ran and is not acknowledged yet.
    pub fn remembered(&self, session: SessionId, seq: Seq) -> Option<&Outcome> {
        self.replies.get(&session)?.outcomes.get(&seq.0)
    }

    /// How many names a directory holds now.
    pub fn entry_count(&self, directory: InodeId) -> usize {
        self.directories.get(&directory).map_or(0, BTreeMap::len)
    }

    /// True if the session may write that chunk now.
    pub fn has_grant(&self, session: SessionId, inode: InodeId, chunk: u32) -> bool {
        self.inodes.get(inode).is_some_and(|inode| inode.may_write_chunk(session, chunk))
    }

    /// True if the session may write any chunk of the file now.
    pub fn may_write(&self, session: SessionId, inode: InodeId) -> bool {
        let goes_on = |grant: &WriteGrant| grant.session == session && !grant.is_stopped;
        self.inodes.get(inode).is_some_and(|inode| inode.grants().iter().any(goes_on))
    }

    /// Files that a session has write grants on, by id: `CloseSession` has to settle every one.
    pub fn granted(&self, session: SessionId) -> Vec<InodeId> {
        self.granted.get(&session).into_iter().flatten().copied().collect()
    }

    /// An open session.
    pub fn session(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(&id)
    }

    /// Open sessions in order of id, oldest first.
    pub fn sessions(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        self.sessions.iter().map(|(id, session)| (*id, session))
    }

    /// Stamp of the newest change of names or attributes that an open session is remembered for.
    pub fn newest_of(&self, session: SessionId) -> Option<Hlc> {
        let outcomes = self.replies.get(&session)?.outcomes.values();
        outcomes.map(|outcome| Hlc(outcome.stamp)).max()
    }

    /// Named instants in order of name.
    pub fn snapshots(&self) -> impl Iterator<Item = &Snapshot> {
        self.snapshots.values()
    }

    /// Named instants in order of name, after this one.
    pub fn snapshots_after(&self, name: &str) -> impl Iterator<Item = &Snapshot> {
        use std::ops::Bound::{Excluded, Unbounded};
        self.snapshots.range::<str, _>((Excluded(name), Unbounded)).map(|(_, snapshot)| snapshot)
    }

    /// A named instant.
    pub fn snapshot(&self, name: &str) -> Option<&Snapshot> {
        self.snapshots.get(name)
    }

    /// What the file system was formatted with; `None` before.
    pub fn format(&self) -> Option<&Format> {
        self.format.as_ref()
    }

    /// Largest inode number given so far.
    pub fn last_id(&self) -> InodeId {
        InodeId(self.last_id)
    }

    /// Leaves out inode numbers up to `last`: those after a loss of power that may have been given and lost.
    pub fn skip_ids(&mut self, last: InodeId) {
        self.last_id = self.last_id.max(last.0);
    }

    /// How much there is.
    pub fn counts(&self) -> Counts {
        Counts { inodes: self.alive, sessions: self.sessions.len() as u64 }
    }

    pub(crate) fn entry(&self, directory: InodeId, name: &[u8]) -> Option<Entry> {
        self.directories.get(&directory)?.get(name).copied()
    }

    /// What a name stood for at an instant, by the history alone.
    pub(crate) fn entry_then(
        history: &dyn History,
        directory: InodeId,
        name: &[u8],
        at: Hlc,
    ) -> Result<Option<Entry>, Error> {
        match history.newest(&Key::Entry(directory, name).encode(), at)? {
            Some((from, Some(value))) => Entry::read(from, &value).map(Some),
            _ => Ok(None),
        }
    }

    /// The version of an inode at an instant: from memory if it is old enough, else from the history.
    pub(crate) fn version<'a>(
        &'a self,
        history: &dyn History,
        id: InodeId,
        at: Option<Hlc>,
    ) -> Result<Cow<'a, Inode>, Error> {
        if let Some(inode) = self.inodes.get(id)
            && at.is_none_or(|at| inode.from <= at)
        {
            return Ok(Cow::Borrowed(inode));
        }
        let missing = || at.map_or(Error::StaleHandle { inode: id }, |at| Error::NotYetMade { inode: id, at });
        match history.newest(&Key::Inode(id).encode(), at.unwrap_or(Hlc::MAX))? {
            Some((from, Some(value))) => Ok(Cow::Owned(StoredInode::read(from, &value, Arc::new)?.0)),
            _ => Err(missing()),
        }
    }

    /// Checks rights on a version and, if that is of the past, on the newest one too.
    #[expect(clippy::too_many_arguments, reason = "private; a struct would only rename them at three call sites")]
    pub(crate) fn check_both(
        &self,
        history: &dyn History,
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
    pub(crate) fn share(&mut self, layout: Layout) -> Arc<Layout> {
        self.layouts.share(layout)
    }

    /// An inode without a name stays in memory for a while, unless it is a file that is forgotten whole: then nobody is answered
    /// about it. The way up from a file that somebody has open may lead through such a directory.
    pub(crate) fn keep_orphan(&mut self, since: Hlc, id: InodeId, is_directory: bool) {
        if is_directory || !self.horizons.is_gone(id) {
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
        let Some(inode) = self.inodes.get(id) else { return };
        let Some(since) = inode.orphaned() else { return };
        if inode.grants().is_empty() && !self.orphans.contains(&(since, id)) {
            self.inodes.remove(id);
            if self.xattrs.remove(&id).is_some() {
                self.quota_changed(id);
            }
        }
    }
}

/// Equal states answer alike for ever. Left out: the pool of shared layouts, which no answer depends on, and quotas, which
/// follow from attributes, names and lengths.
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
            && self.snapshots == other.snapshots
            && self.horizons == other.horizons
            && self.format == other.format
            && (self.last_id, self.alive) == (other.last_id, other.alive)
    }
}
