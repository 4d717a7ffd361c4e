//! Runs a transaction on the items of its footprint alone, as any server can that was sent their values.
//!
//! Guarantees: outcome and changes are those that the whole namespace would have; a transaction that looks at an item
//! that it was not given does nothing, and says which item that was. Each change says in which part of the state it
//! lies.
//! Leaves to others: that the values are those just below the transaction's stamp; keeping the changes.
//!
//! The operations are those of [`Namespace`], on one that holds these items only. It notes the first look at another.
//!
//! # Source
//! Calvin (SIGMOD'12) §3.2: every participant reads its items, sends them to the others, runs the whole transaction,
//! and keeps the changes that are its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use frieze_base::{Fault, InodeId, SessionId};
use frieze_hlc::Hlc;
use frieze_wire::message::FileKind;
use frieze_wire::quota::{QUOTA_XATTR, Quota, TreeUsage};
use frieze_wire::txn::{Op, Outcome, Transaction};

use crate::error::Error;
use crate::footprint::Footprint;
use crate::history::KeyVersion;
use crate::inode::Inode;
use crate::item_value::{ItemValue, is_quota};
use crate::key::VersionKey;
use crate::namespace::Namespace;
use crate::quotas::QuotaLimit;
use crate::read_scope::ReadScope;
use crate::read_set::NoReadSet;
use crate::state_item::{StateItem, StatePart};
use crate::stored::{StoredInode, StoredXattr, decode, read_entry};

/// Items of a footprint, at most: each takes a run, with all items before it.
pub const FOOTPRINT_ITEMS_MAX: usize = 1024;

/// Some items of a namespace, on which one transaction runs.
pub struct PartialState {
    namespace: Namespace,
    scope: ReadScope,
    /// Inodes as they are before.
    inodes: BTreeMap<InodeId, Inode>,
    /// Names as they are before: those of directories, and others.
    names: BTreeMap<(InodeId, Vec<u8>), bool>,
    /// Directories that have a quota before.
    limits: BTreeSet<InodeId>,
    /// What is used of those of which it is known.
    usages: BTreeMap<InodeId, TreeUsage>,
}

/// What became of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartialRun {
    /// It ran.
    Done(PartialOutcome),
    /// It would have read this item, which was not given.
    Outside(StateItem),
}

/// The end of a transaction that ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartialOutcome {
    /// The same as that of [`Namespace::apply`].
    pub outcome: Outcome,
    /// What it changed, and in which part that lies. An entry that ceases to be one of the trunk, and becomes one of a
    /// slot, or the other way round, changes in both.
    pub changes: Vec<(StatePart, KeyVersion)>,
    /// What is used of quotas, where that has changed; it lies in the slots of the directories.
    pub usages: BTreeMap<InodeId, TreeUsage>,
    /// The items changed.
    pub writes: BTreeSet<StateItem>,
}

impl PartialState {
    /// A state of these items.
    ///
    /// # Errors
    /// `Corrupt` if a version cannot be read.
    pub fn new<'a>(items: impl IntoIterator<Item = (&'a StateItem, &'a ItemValue)>) -> Result<PartialState, Fault> {
        let mut state = PartialState {
            namespace: Namespace::new(),
            scope: ReadScope::default(),
            inodes: BTreeMap::new(),
            names: BTreeMap::new(),
            limits: BTreeSet::new(),
            usages: BTreeMap::new(),
        };
        for (item, value) in items {
            state.add(item, value)?;
        }
        Ok(state)
    }

    /// Items come in their order: an inode before its times.
    fn add(&mut self, item: &StateItem, value: &ItemValue) -> Result<(), Fault> {
        self.scope.add(item, value.number);
        for KeyVersion { key, stamp, value } in &value.versions {
            let value = value.as_deref().unwrap_or_default();
            match VersionKey::decode(key) {
                Some(VersionKey::Entry(directory, name)) => {
                    let entry = read_entry(*stamp, value)?;
                    self.namespace.directories.set(directory, name, entry);
                    self.names.insert((directory, name.to_vec()), entry.kind() == FileKind::Directory);
                }
                Some(VersionKey::Xattr(id, QUOTA_XATTR)) if *item == StateItem::Globals => {
                    let stored: StoredXattr = decode(value, "extended attribute")?;
                    if let Some(quota) = Quota::parse(&stored.value).ok().filter(|quota| *quota != Quota::default()) {
                        let limit = QuotaLimit { quota, used: Some(TreeUsage::default()) };
                        self.namespace.quotas.limits.insert(id, limit);
                        self.limits.insert(id);
                    }
                }
                _ => self.namespace.load(key, *stamp, value)?,
            }
        }
        match item {
            StateItem::Inode(id) | StateItem::Times(id) => {
                let inode = self.namespace.inodes.get(*id).map(|inode| inode.into_owned());
                self.inodes.extend(inode.map(|inode| (*id, inode)));
            }
            StateItem::DirectoryNumbers if value.number > 0 => {
                self.namespace.numbers.note(InodeId::directory(value.number));
            }
            StateItem::FileNumbers(slot) if value.number > 0 => {
                self.namespace.numbers.note(InodeId::file(*slot, value.number));
            }
            StateItem::Usage(id) => {
                self.usages.insert(*id, value.usage);
                self.namespace.quotas.limits.entry(*id).and_modify(|limit| limit.used = Some(value.usage));
            }
            StateItem::Grants(session) => {
                self.namespace.granted.entry(*session).or_default().extend(value.inodes.iter().copied());
            }
            _ => {}
        }
        Ok(())
    }

    /// Runs a transaction. It is not remembered, and runs whatever ran before: that is the caller's to know.
    pub fn run(self, txn: &Transaction, stamp: Hlc) -> PartialRun {
        let PartialState { mut namespace, scope, inodes, names, limits, usages } = self;
        let scope = Arc::new(scope);
        namespace.inodes.restrict(Arc::clone(&scope));
        namespace.scope = Some(Arc::clone(&scope));
        let mut changes = Vec::new();
        let txn = Transaction { seq: 0, ..txn.clone() };
        let outcome = namespace.apply(&txn, stamp, &mut changes, &NoReadSet);
        let mut end = RunEnd { scope: &scope, inodes, names, stamp, writes: BTreeSet::new() };
        let changes = changes.into_iter().flat_map(|change| end.sort(change)).collect();
        end.add_kind(txn.op.as_ref());
        let used = namespace.quotas.limits.iter().filter_map(|(id, limit)| Some((*id, limit.used?)));
        let is_changed = |(id, used): &(InodeId, TreeUsage)| match usages.get(id) {
            Some(before) => before != used,
            None => !limits.contains(id),
        };
        let usages: BTreeMap<InodeId, TreeUsage> = used.filter(is_changed).collect();
        end.writes.extend(usages.keys().map(|id| StateItem::Usage(*id)));
        match scope.outside() {
            Some(item) => PartialRun::Outside(item.clone()),
            None => PartialRun::Done(PartialOutcome { outcome, changes, usages, writes: end.writes }),
        }
    }
}

/// Sorts the changes of a transaction by parts, and finds which items they are of.
struct RunEnd<'a> {
    scope: &'a ReadScope,
    inodes: BTreeMap<InodeId, Inode>,
    names: BTreeMap<(InodeId, Vec<u8>), bool>,
    stamp: Hlc,
    writes: BTreeSet<StateItem>,
}

impl RunEnd<'_> {
    fn sort(&mut self, change: KeyVersion) -> Vec<(StatePart, KeyVersion)> {
        let part_of = |id: InodeId| StateItem::Inode(id).part();
        let part = match VersionKey::decode(&change.key).expect("a transaction writes keys that can be read") {
            VersionKey::Entry(directory, name) => return self.sort_entry(directory, name, &change),
            VersionKey::Inode(id) => {
                self.add_inode(id, change.value.as_deref());
                part_of(id)
            }
            VersionKey::Xattr(id, _) | VersionKey::Link(id, ..) => {
                if is_quota(&change.key) {
                    self.writes.insert(StateItem::Globals);
                }
                self.add_known(id, StateItem::Inode(id));
                part_of(id)
            }
            VersionKey::EntryStamps(id) => {
                self.add_known(id, StateItem::Times(id));
                StateItem::Times(id).part()
            }
            // Another than the transaction's own session is one of the list.
            VersionKey::Session(id) => {
                let own = StateItem::Session(id);
                let item = if self.scope.is_known(&own) { own } else { StateItem::Sessions };
                self.add(item)
            }
            VersionKey::Snapshot(_) => self.add(StateItem::Snapshots),
            VersionKey::Staged(..) => self.add(StateItem::StagedEdits),
            VersionKey::Format
            | VersionKey::Forgotten(..)
            | VersionKey::Loss
            | VersionKey::Policy(_)
            | VersionKey::Regime(_)
            | VersionKey::Removed(_) => self.add(StateItem::Globals),
            VersionKey::Outcome(..) => unreachable!("a transaction without a number is not remembered"),
        };
        vec![(part, change)]
    }

    fn sort_entry(&mut self, directory: InodeId, name: &[u8], change: &KeyVersion) -> Vec<(StatePart, KeyVersion)> {
        let entry = |value: &Vec<u8>| read_entry(change.stamp, value).expect("a transaction writes what can be read");
        let is_directory = change.value.as_ref().map(|value| entry(value).kind() == FileKind::Directory);
        let was_directory = self.names.get(&(directory, name.to_vec())).copied();
        let mut sorted = Vec::new();
        for (of_directories, item) in [
            (true, StateItem::DirectoryName(directory, name.to_vec())),
            (false, StateItem::FileName(directory, name.to_vec())),
        ] {
            if is_directory == Some(of_directories) {
                sorted.push((item.part(), change.clone()));
            } else if was_directory == Some(of_directories) {
                sorted.push((item.part(), KeyVersion { value: None, ..change.clone() }));
            } else {
                continue;
            }
            self.writes.insert(item);
            let count = if of_directories { StateItem::Directories(directory) } else { StateItem::Files(directory) };
            self.writes.insert(count);
        }
        sorted
    }

    fn add(&mut self, item: StateItem) -> StatePart {
        let part = item.part();
        self.writes.insert(item);
        part
    }

    /// An item of an inode, unless the transaction made that.
    fn add_known(&mut self, id: InodeId, item: StateItem) {
        if self.inodes.contains_key(&id) {
            self.writes.insert(item);
        }
    }

    fn add_inode(&mut self, id: InodeId, value: Option<&[u8]>) {
        let value = value.expect("an inode's versions are no absences");
        let read = StoredInode::read(self.stamp, value, Arc::new);
        let (inode, _) = read.expect("a transaction writes what can be read");
        let before = self.inodes.get(&id);
        let grants = before.into_iter().chain([&inode]).flat_map(Inode::grants);
        let sessions: BTreeSet<SessionId> = grants.map(|grant| grant.session).collect();
        self.writes.extend(sessions.into_iter().map(StateItem::Grants));
        let Some(before) = before else { return };
        if !inode.is_directory() {
            self.writes.insert(StateItem::Inode(id));
            return;
        }
        self.writes.insert(StateItem::Links(id));
        if inode.mtime_stamp != self.stamp || inode.size_as_of != self.stamp {
            // The version has times that it did not set.
            self.scope.look(StateItem::Times(id));
        }
        let Inode { from, ctime, mtime_ns, mtime_stamp, size_as_of, links, .. } = inode;
        let same = Inode { from, ctime, mtime_ns, mtime_stamp, size_as_of, links, ..before.clone() };
        if same != inode {
            self.writes.insert(StateItem::Inode(id));
        }
    }

    /// What it changes of lists that have no key of their own.
    fn add_kind(&mut self, op: Option<&Op>) {
        let of_list =
            |op: &Op| matches!(op, Op::OpenSession(_) | Op::CloseSession(_) | Op::EraseSessions(_) | Op::Forget(_));
        if op.is_some_and(of_list) {
            self.writes.insert(StateItem::Sessions);
        }
    }
}

/// Finds what a transaction reads and changes at `stamp`, by running it on the items that `read` gives, as often as it
/// looks at one more.
///
/// # Errors
/// `Corrupt`; those of `read`. `TooLarge`: it reads more items than one transaction may.
///
/// # Cost
/// A run for each item, and one.
pub fn find_footprint(
    txn: &Transaction,
    stamp: Hlc,
    read: &mut dyn FnMut(&StateItem) -> Result<ItemValue, Fault>,
) -> Result<(Footprint, PartialOutcome), Fault> {
    let mut values = BTreeMap::new();
    for item in Footprint::of_kind(txn).reads {
        let value = read(&item)?;
        values.insert(item, value);
    }
    while values.len() <= FOOTPRINT_ITEMS_MAX {
        match PartialState::new(&values)?.run(txn, stamp) {
            PartialRun::Done(done) => {
                let reads = values.into_keys().collect();
                return Ok((Footprint { reads, writes: done.writes.clone() }, done));
            }
            PartialRun::Outside(item) => {
                let value = read(&item)?;
                values.insert(item, value);
            }
        }
    }
    Err(Error::EditTooLarge { steps: values.len(), steps_max: FOOTPRINT_ITEMS_MAX }.into())
}
