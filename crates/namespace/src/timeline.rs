//! What changed in an interval: read from the index of time, so the cost is that of the changes and not of the tree.
//!
//! Guarantees: every version of a name, inode or extended attribute stamped in (after, upto] is in the answer once,
//! with its author; what it replaced is there too. The answer for a closed interval is the same for ever.
//! Leaves to others: which bytes changed (`multilog`), where things lie and which users may see them
//! ([`crate::TreeAt`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use frieze_base::{Fault, InodeId, Reason, SessionId};
use frieze_hlc::Hlc;
use frieze_wire::message::{FileKind, VersionKind};

use crate::cause::StoredCause;
use crate::error::Error;
use crate::history::VersionHistory;
use crate::inode::Inode;
use crate::key::VersionKey;
use crate::stored::{StoredEntry, StoredInode, StoredXattr, decode, read_entry};

/// What a version is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChangeSubject {
    /// A name in a directory.
    Entry {
        /// The directory.
        parent: InodeId,
        /// The name.
        name: Vec<u8>,
    },
    /// An inode.
    Inode(InodeId),
    /// An extended attribute of an inode.
    Xattr {
        /// The inode.
        inode: InodeId,
        /// Name of the attribute.
        name: Vec<u8>,
    },
}

/// What a subject is from one stamp to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubjectState {
    /// What a name stands for.
    Entry {
        /// The inode.
        inode: InodeId,
        /// Its kind.
        kind: FileKind,
    },
    /// An inode.
    Inode(Box<Inode>),
    /// The value of an extended attribute.
    Xattr(Vec<u8>),
}

/// Why a version of an inode was made. Bookkeeping has no cause: a grant, a settled length, names in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionCause {
    /// What happened.
    pub kind: VersionKind,
    /// Name given or taken; empty for anything else.
    pub name: Vec<u8>,
}

/// One version and its author.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision {
    /// From when on; one stamp is one transaction.
    pub stamp: Hlc,
    /// The session that made it; 0 for the server itself.
    pub session: SessionId,
    /// On whose behalf.
    pub uid: u32,
    /// Why; of inodes only.
    pub causes: Vec<VersionCause>,
    /// What it was from then on; `None`: absent.
    pub state: Option<SubjectState>,
}

/// All that happened to a subject in an interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubjectChange {
    /// What changed.
    pub subject: ChangeSubject,
    /// What it was at the start of the interval, and since when; `None`: absent.
    pub before: Option<(Hlc, SubjectState)>,
    /// Its versions in the interval, oldest first; at least one. The last is what it was at the end.
    pub revisions: Vec<Revision>,
}

/// What changed in an interval, and what it cost to find out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// In order of subjects: names by directory, then inodes, then extended attributes.
    pub subjects: Vec<SubjectChange>,
    /// Entries of the index of time that were read.
    pub index_entries: u64,
    /// Versions that were read.
    pub versions: u64,
}

/// What one transaction changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnChanges {
    /// Its stamp.
    pub stamp: Hlc,
    /// The names, inodes and attributes that it made versions of, in order, each once.
    pub subjects: Vec<ChangeSubject>,
}

/// A name of an inode.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlaceName {
    /// The directory that holds it.
    pub parent: InodeId,
    /// The name.
    pub name: Vec<u8>,
}

impl ChangeSubject {
    fn of(key: &[u8]) -> Result<Option<ChangeSubject>, Error> {
        Ok(match VersionKey::decode(key).ok_or(Error::Corrupt { what: "key in the index of time" })? {
            VersionKey::Entry(parent, name) => Some(ChangeSubject::Entry { parent, name: name.to_vec() }),
            VersionKey::Inode(id) => Some(ChangeSubject::Inode(id)),
            VersionKey::Xattr(inode, name) => Some(ChangeSubject::Xattr { inode, name: name.to_vec() }),
            _ => None,
        })
    }

    fn key(&self) -> Vec<u8> {
        match self {
            ChangeSubject::Entry { parent, name } => VersionKey::Entry(*parent, name).encode(),
            ChangeSubject::Inode(id) => VersionKey::Inode(*id).encode(),
            ChangeSubject::Xattr { inode, name } => VersionKey::Xattr(*inode, name).encode(),
        }
    }

    /// The inode of which every transaction that changes the subject makes a version too.
    pub fn inode(&self) -> InodeId {
        match self {
            ChangeSubject::Entry { parent, .. } => *parent,
            ChangeSubject::Inode(id) => *id,
            ChangeSubject::Xattr { inode, .. } => *inode,
        }
    }

    /// Reads a stored version.
    fn read(&self, stamp: Hlc, value: &[u8]) -> Result<Revision, Error> {
        Ok(match self {
            ChangeSubject::Entry { .. } => {
                let entry = read_entry(stamp, value)?;
                let stored: StoredEntry = decode(value, "directory entry")?;
                let state = SubjectState::Entry { inode: entry.inode(), kind: entry.kind() };
                Revision::new(stamp, stored.session, stored.uid, state)
            }
            ChangeSubject::Inode(_) => {
                let (inode, stored) = StoredInode::read(stamp, value, Arc::new)?;
                let causes =
                    stored.causes.into_iter().map(|cause| VersionCause { kind: cause.kind(), name: cause.name });
                let causes = causes.collect();
                Revision {
                    causes,
                    ..Revision::new(stamp, stored.session, stored.by_uid, SubjectState::Inode(Box::new(inode)))
                }
            }
            ChangeSubject::Xattr { .. } => {
                let stored: StoredXattr = decode(value, "extended attribute")?;
                Revision::new(stamp, stored.session, stored.uid, SubjectState::Xattr(stored.value))
            }
        })
    }
}

impl Revision {
    /// True if it is of a directory, and only names in it came or went.
    pub fn is_of_entries(&self) -> bool {
        let is_directory = matches!(&self.state, Some(SubjectState::Inode(inode)) if inode.is_directory());
        is_directory && self.causes.is_empty()
    }

    fn new(stamp: Hlc, session: u64, uid: u32, state: SubjectState) -> Revision {
        Revision { stamp, session: SessionId(session), uid, causes: Vec::new(), state: Some(state) }
    }
}

impl Changed {
    /// Reads what changed in (`after`, `upto`], of subjects that `keep` wants: it is asked once for each. `upto` has to
    /// be closed. `stamps`: the only transactions of the interval that matter, in order, where they are known.
    ///
    /// # Errors
    /// `Overloaded` if the interval holds more than `max` changes: ask for a shorter one. Those of the store and of
    /// `keep`.
    ///
    /// # Cost
    /// The interval's entries of the index of time, or those of the transactions that matter; and for each subject that
    /// is kept its versions in the interval and the one before.
    pub fn read(
        history: &dyn VersionHistory,
        after: Hlc,
        upto: Hlc,
        stamps: Option<&[Hlc]>,
        max: usize,
        keep: &mut dyn FnMut(&ChangeSubject) -> Result<bool, Fault>,
    ) -> Result<Changed, Fault> {
        let mut answer = Changed::default();
        let mut found: BTreeMap<ChangeSubject, Vec<Hlc>> = BTreeMap::new();
        let mut count = 0;
        let mut broken = Ok(());
        let mut look = |stamp: Hlc, key: &[u8]| {
            count += 1;
            match ChangeSubject::of(key) {
                Ok(subject) => {
                    if let Some(subject) = subject {
                        found.entry(subject).or_default().push(stamp);
                    }
                }
                Err(error) => broken = Err(error),
            }
            broken.is_ok() && count <= max
        };
        match stamps {
            None => answer.index_entries = history.changed(after, upto, &mut look)?,
            Some(stamps) => {
                for stamp in stamps {
                    answer.index_entries += history.changed(stamp.previous(), *stamp, &mut look)?;
                }
            }
        }
        broken?;
        if count > max {
            return Err(Fault::new(
                Reason::Overloaded,
                format!("more than {max} changes of names and attributes in the interval: ask for a shorter one"),
            ));
        }
        for (subject, stamps) in found {
            if !keep(&subject)? {
                continue;
            }
            let change = answer.subject(history, subject, after, &stamps)?;
            answer.subjects.push(change);
        }
        Ok(answer)
    }

    /// As [`Changed::read`], of one transaction.
    ///
    /// # Errors
    /// Those of the store and of `keep`.
    pub fn by(
        history: &dyn VersionHistory,
        transaction: &TxnChanges,
        keep: &mut dyn FnMut(&ChangeSubject) -> Result<bool, Fault>,
    ) -> Result<Changed, Fault> {
        let mut answer = Changed::default();
        let stamp = transaction.stamp;
        for subject in &transaction.subjects {
            if keep(subject)? {
                let change = answer.subject(history, subject.clone(), stamp.previous(), &[stamp])?;
                answer.subjects.push(change);
            }
        }
        Ok(answer)
    }

    fn subject(
        &mut self,
        history: &dyn VersionHistory,
        subject: ChangeSubject,
        after: Hlc,
        stamps: &[Hlc],
    ) -> Result<SubjectChange, Fault> {
        let key = subject.key();
        self.versions += 1;
        let before = match history.newest(&key, after)? {
            Some((since, Some(value))) => subject.read(since, &value)?.state.map(|state| (since, state)),
            _ => None,
        };
        let mut revisions = Vec::with_capacity(stamps.len());
        let mut broken = Ok(());
        let (first, last) = (stamps[0], stamps[stamps.len() - 1]);
        history.versions_of(&key, first.previous(), last, &mut |_, stamp, value| {
            let revision = match value {
                Some(value) => subject.read(stamp, value),
                None => Ok(Revision { stamp, session: SessionId(0), uid: 0, causes: Vec::new(), state: None }),
            };
            match revision {
                Ok(revision) => revisions.push(revision),
                Err(error) => broken = Err(error),
            }
            broken.is_ok()
        })?;
        broken?;
        self.versions += revisions.len() as u64;
        // An absence does not say its author; the inode whose name or attribute went has a version that does.
        for revision in revisions.iter_mut().filter(|revision| revision.state.is_none()) {
            self.versions += 1;
            (revision.session, revision.uid) = author(history, subject.inode(), revision.stamp)?;
        }
        Ok(SubjectChange { subject, before, revisions })
    }
}

impl TxnChanges {
    /// The transactions of (`after`, `upto`], oldest first, and the instant up to which these are all. They end earlier
    /// than `upto` where there are more than `max` of them or their subjects are more than `subjects_max`; one is
    /// always whole. `upto` has to be closed.
    ///
    /// # Errors
    /// `Corrupt`; those of the store.
    ///
    /// # Cost
    /// The entries of the index of time for them.
    pub fn list(
        history: &dyn VersionHistory,
        after: Hlc,
        upto: Hlc,
        max: usize,
        subjects_max: usize,
    ) -> Result<(Vec<TxnChanges>, Hlc), Fault> {
        let mut found: Vec<TxnChanges> = Vec::new();
        let (mut count, mut end, mut broken) = (0, upto, Ok(()));
        history.changed(after, upto, &mut |stamp, key| {
            let is_next = found.last().is_none_or(|last| last.stamp != stamp);
            if is_next && (found.len() == max || count >= subjects_max) {
                end = found.last().map_or(after, |last| last.stamp);
                return false;
            }
            if is_next {
                found.push(TxnChanges { stamp, subjects: Vec::new() });
            }
            match ChangeSubject::of(key) {
                Ok(subject) => {
                    count += 1;
                    found.last_mut().expect("one was just added").subjects.extend(subject);
                }
                Err(error) => broken = Err(error),
            }
            broken.is_ok()
        })?;
        broken?;
        found.iter_mut().for_each(TxnChanges::sort);
        Ok((found, end))
    }

    /// The instant in [`after`, `upto`) after which the newest transactions of the interval follow: `max` of them, or
    /// fewer where their subjects are more than `subjects_max`; one at least. `after` if these are all.
    ///
    /// # Errors
    /// Those of the store.
    ///
    /// # Cost
    /// The entries of the index of time for them.
    pub fn newest_since(
        history: &dyn VersionHistory,
        after: Hlc,
        upto: Hlc,
        max: usize,
        subjects_max: usize,
    ) -> Result<Hlc, Fault> {
        let (mut oldest, mut transactions, mut subjects, mut is_all) = (None, 0, 0, true);
        history.changed_back(after, upto, &mut |stamp, _| {
            if oldest != Some(stamp) {
                if transactions == max || subjects >= subjects_max {
                    is_all = false;
                    return false;
                }
                oldest = Some(stamp);
                transactions += 1;
            }
            subjects += 1;
            true
        })?;
        Ok(oldest.filter(|_| !is_all).map_or(after, Hlc::previous))
    }

    /// The inodes that it made versions of.
    pub fn inodes(&self) -> impl Iterator<Item = InodeId> {
        self.subjects.iter().filter_map(|subject| match subject {
            ChangeSubject::Inode(id) => Some(*id),
            _ => None,
        })
    }

    fn sort(&mut self) {
        self.subjects.sort_unstable();
        self.subjects.dedup();
    }
}

/// The author of the version of an inode that is stamped exactly `stamp`; (0, 0) if there is none.
///
/// # Errors
/// `Corrupt`; those of the store.
pub fn author(history: &dyn VersionHistory, id: InodeId, stamp: Hlc) -> Result<(SessionId, u32), Fault> {
    match history.newest(&VersionKey::Inode(id).encode(), stamp)? {
        Some((from, Some(value))) if from == stamp => {
            let stored: StoredInode = decode(&value, "inode")?;
            Ok((SessionId(stored.session), stored.by_uid))
        }
        _ => Ok((SessionId(0), 0)),
    }
}

/// What a name stood for at an instant.
///
/// # Errors
/// `Corrupt`; those of the store.
pub fn entry_at(
    history: &dyn VersionHistory,
    directory: InodeId,
    name: &[u8],
    at: Hlc,
) -> Result<Option<InodeId>, Fault> {
    match history.newest(&VersionKey::Entry(directory, name).encode(), at)? {
        Some((from, Some(value))) => Ok(Some(read_entry(from, &value)?.inode())),
        _ => Ok(None),
    }
}

/// The names of an inode at an instant, by directory and name.
///
/// Most inodes have one name, and no record of it but the directory entry: the version in which the inode got the name
/// has it among its causes. Further names, and those that an edit gave, have a record each. A record stays when the
/// name is taken: the directory entry decides.
///
/// # Errors
/// `Corrupt`; those of the store.
///
/// # Cost
/// Two versions of the inode, an entry for each name found, and the records of its further names.
pub fn names_at(history: &dyn VersionHistory, id: InodeId, at: Hlc) -> Result<Vec<PlaceName>, Fault> {
    let mut names: Vec<PlaceName> = home_name(history, id, at)?.into_iter().collect();
    let mut broken = Ok(());
    let all = VersionKey::Link(id, InodeId(0), b"").encode();
    history.scan(&all[..9], &[], at, &mut |key, _, _| {
        match VersionKey::decode(key) {
            Some(VersionKey::Link(_, parent, name)) => names.push(PlaceName { parent, name: name.to_vec() }),
            _ => broken = Err(Error::Corrupt { what: "key of a name" }),
        }
        broken.is_ok()
    })?;
    broken?;
    names.sort_unstable();
    names.dedup();
    let mut had = Vec::with_capacity(names.len());
    for named in names {
        if entry_at(history, named.parent, &named.name, at)? == Some(id) {
            had.push(named);
        }
    }
    Ok(had)
}

/// The name that an inode got in its home, if no record but a cause of a version has it.
fn home_name(history: &dyn VersionHistory, id: InodeId, at: Hlc) -> Result<Option<PlaceName>, Fault> {
    let key = VersionKey::Inode(id).encode();
    let Some((from, Some(value))) = history.newest(&key, at)? else { return Ok(None) };
    let (mut inode, mut stored) = StoredInode::read(from, &value, Arc::new)?;
    if inode.named == Hlc::ZERO {
        return Ok(None);
    }
    if inode.named != from {
        let named = inode.named;
        let Some((from, Some(value))) = history.newest(&key, named)? else { return Ok(None) };
        (inode, stored) = StoredInode::read(from, &value, Arc::new)?;
    }
    let names = |cause: &StoredCause| matches!(cause.kind(), VersionKind::Make | VersionKind::Named);
    let given = stored.causes.into_iter().rfind(names);
    Ok(given.map(|cause| PlaceName { parent: inode.parent, name: cause.name }))
}

/// One version of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryVersion {
    /// From when on.
    pub from: Hlc,
    /// What the name stood for; `None`: nothing.
    pub state: Option<(InodeId, FileKind)>,
}

impl EntryVersion {
    fn read(from: Hlc, value: Option<&[u8]>) -> Result<EntryVersion, Error> {
        let entry = value.map(|value| read_entry(from, value)).transpose()?;
        Ok(EntryVersion { from, state: entry.map(|entry| (entry.inode(), entry.kind())) })
    }
}

/// The version of a name that held at an instant; `None` if there never had been one.
///
/// # Errors
/// `Corrupt`; those of the store.
pub fn version_of_name(
    history: &dyn VersionHistory,
    parent: InodeId,
    name: &[u8],
    at: Hlc,
) -> Result<Option<EntryVersion>, Fault> {
    let found = history.newest(&VersionKey::Entry(parent, name).encode(), at)?;
    Ok(found.map(|(from, value)| EntryVersion::read(from, value.as_deref())).transpose()?)
}

/// Visits every name that a directory ever had, after the name `above` (empty: from the start), in byte order, with its
/// versions stamped up to `upto`, oldest first. False ends the visit.
///
/// # Errors
/// `Corrupt`; those of the store.
///
/// # Cost
/// The versions of the names visited.
pub fn visit_names(
    history: &dyn VersionHistory,
    directory: InodeId,
    above: &[u8],
    upto: Hlc,
    visit: &mut dyn FnMut(&[u8], &[EntryVersion]) -> bool,
) -> Result<(), Fault> {
    let prefix = VersionKey::Entry(directory, b"").encode();
    let after = if above.is_empty() { Vec::new() } else { VersionKey::Entry(directory, above).encode() };
    let mut name = Vec::new();
    let mut versions = Vec::new();
    let mut broken = Ok(());
    let mut goes_on = true;
    history.versions(&prefix, &after, Hlc::ZERO, upto, &mut |key, stamp, value| {
        let this = &key[prefix.len()..];
        if name != this {
            if !versions.is_empty() {
                goes_on = visit(&name, &versions);
            }
            name = this.to_vec();
            versions.clear();
        }
        match EntryVersion::read(stamp, value) {
            Ok(version) => versions.push(version),
            Err(error) => broken = Err(error),
        }
        goes_on && broken.is_ok()
    })?;
    broken?;
    if goes_on && !versions.is_empty() {
        visit(&name, &versions);
    }
    Ok(())
}

/// Stamps in (`after`, `upto`] at which a directory, its names or its attributes changed, oldest first, at most `max`.
///
/// # Errors
/// Those of the store.
pub fn changes_of(
    history: &dyn VersionHistory,
    id: InodeId,
    after: Hlc,
    upto: Hlc,
    max: usize,
) -> Result<Vec<Hlc>, Fault> {
    let mut stamps = Vec::new();
    history.versions_of(&VersionKey::Inode(id).encode(), after, upto, &mut |_, stamp, _| {
        stamps.push(stamp);
        stamps.len() < max
    })?;
    Ok(stamps)
}

/// As [`TxnChanges::newest_since`], of the versions of one inode.
///
/// # Errors
/// Those of the store.
///
/// # Cost
/// A look-up for each of these versions.
pub fn newest_changes_since(
    history: &dyn VersionHistory,
    id: InodeId,
    after: Hlc,
    upto: Hlc,
    max: usize,
) -> Result<Hlc, Fault> {
    let (key, mut at) = (VersionKey::Inode(id).encode(), upto);
    for _ in 0..max {
        match history.newest(&key, at)? {
            Some((stamp, _)) if stamp > after => at = stamp.previous(),
            _ => return Ok(after),
        }
    }
    Ok(at.max(after))
}
