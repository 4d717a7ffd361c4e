use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use frieze_base::{LogIndex, Rng, SessionId};
use frieze_namespace::VersionHistory;
use frieze_namespace::{
    ChangeSubject, Changed, Inode, LoadedNames, MemoryHistory, Namespace, NoReadSet, SubjectState, TxnChanges, author,
    changes_of, check_history, inode_key, newest_changes_since,
};
use frieze_wire::txn::{
    Caller, Format, Link, Make, MakeKind, Op, OpenSession, Remove, Rename, SetAttr, SetXattr, Target, Transaction,
};

use super::*;
use crate::store::{LoadPart, LoadVersion, LsmStore, MemoryStore, NameVersions};

/// One version of a directory as the present had it when it was made, and its author.
type MadeVersion = (Inode, SessionId, u32);
/// A stamp, a key, and a value or its absence.
type FoundVersion = (Vec<u8>, Hlc, Option<Vec<u8>>);

/// What an entry of the log executes, at which stamps, and the changes that it makes.
type LogEntry = (Vec<(Transaction, Hlc)>, Vec<KeyVersion>);

/// A namespace that transactions change, everything that it made, and what it was after each change.
pub(in crate::store) struct Tree {
    pub(in crate::store) namespace: Namespace,
    rng: Rng,
    sessions: Vec<SessionId>,
    pub(in crate::store) stamp: Hlc,
    pub(in crate::store) entries: Vec<LogEntry>,
    /// The directories of the present at each change of theirs.
    pub(in crate::store) made: BTreeMap<(InodeId, Hlc), MadeVersion>,
}

impl Tree {
    pub(in crate::store) fn new(seed: u64) -> Tree {
        let mut tree = Tree {
            namespace: Namespace::new(),
            rng: Rng::new(seed),
            sessions: vec![SessionId(0)],
            stamp: Hlc::first_of_micros(1_000_000),
            entries: Vec::new(),
            made: BTreeMap::new(),
        };
        tree.execute(vec![(
            SessionId(0),
            0,
            Op::Format(Format { chunk_bytes: 4096, chain_count: 4, uid: 0, gid: 0, mode: 0o777 }),
        )]);
        for uid in [0, 1000, 1001] {
            let open = OpenSession { command: "test".to_owned(), host: "here".to_owned(), uid, keeps: false };
            tree.execute(vec![(SessionId(0), 0, Op::OpenSession(open))]);
            // A session is named after its stamp.
            tree.sessions.push(SessionId(tree.stamp.0));
        }
        tree.sessions.remove(0);
        tree
    }

    /// Executes an entry of the log: operations with session and user.
    pub(in crate::store) fn execute(&mut self, operations: Vec<(SessionId, u32, Op)>) {
        let (mut transactions, mut changes) = (Vec::new(), Vec::new());
        for (session, uid, op) in operations {
            self.stamp = Hlc(self.stamp.0 + 1 + self.rng.below(1 << 20));
            let caller = Caller { uid, gid: 100, groups: Vec::new() };
            let transaction = Transaction { session: session.0, seq: 0, acked: 0, caller, must_see: 0, op: Some(op) };
            let before = changes.len();
            self.namespace.apply(&transaction, self.stamp, &mut changes, &NoReadSet);
            for change in &changes[before..] {
                let directory = entry_stamps_of(&change.key)
                    .or_else(|| (change.key[0] == b'I').then(|| inode_of(&change.key)))
                    .filter(|id| self.is_directory(*id));
                if let Some(id) = directory {
                    let inode = self.namespace.inode(&MemoryHistory::new(), id, None).expect("it is in memory");
                    assert_eq!(inode.from, self.stamp);
                    self.made.insert((id, self.stamp), (inode, session, uid));
                }
            }
            transactions.push((transaction, self.stamp));
        }
        self.entries.push((transactions, changes));
    }

    fn is_directory(&self, id: InodeId) -> bool {
        self.namespace.inode(&MemoryHistory::new(), id, None).is_ok_and(|inode| inode.is_directory())
    }

    /// An entry of operations on a few names, most of which succeed.
    fn execute_any(&mut self) {
        let count = 1 + self.rng.below(4);
        let operations = (0..count).map(|_| self.any()).collect();
        self.execute(operations);
    }

    fn any(&mut self) -> (SessionId, u32, Op) {
        let number = self.rng.below(self.sessions.len() as u64) as usize;
        let (session, uid) = (self.sessions[number], [0, 1000, 1001][number]);
        let file = Target::path(format!("{}/f{}", self.any_directory(), self.rng.below(12)));
        let other = Target::path(format!("{}/f{}", self.any_directory(), self.rng.below(12)));
        let (directory, second) = (Target::path(self.any_directory()), Target::path(self.any_directory()));
        let op = match self.rng.below(32) {
            0..=13 => Op::Make(Make { mode: 0o666, kind: Some(MakeKind::File(false)), ..make(file) }),
            14..=19 => Op::Remove(Remove { target: file, directory: false }),
            20..=22 => Op::Rename(Rename { from: file, to: other, flags: 0 }),
            23 => Op::Link(Link { file, name: other }),
            24..=26 => Op::Make(Make { mode: 0o777, kind: Some(MakeKind::Directory(true)), ..make(directory) }),
            27 => Op::Remove(Remove { target: directory, directory: true }),
            28 => Op::Rename(Rename { from: directory, to: second, flags: 0 }),
            29 => {
                let mode = Some(0o777 & !(self.rng.below(8) as u32 & 5));
                Op::SetAttr(SetAttr { target: directory, mode, ..SetAttr::default() })
            }
            30 => {
                let value = self.rng.next().to_le_bytes().to_vec();
                Op::SetXattr(SetXattr { target: directory, name: b"user.a".to_vec(), value, flags: 0 })
            }
            _ => Op::SetAttr(SetAttr { target: file, mode: Some(0o640), ..SetAttr::default() }),
        };
        (session, uid, op)
    }

    fn any_directory(&mut self) -> String {
        let depth = 1 + self.rng.below(2);
        (0..depth).map(|_| format!("/d{}", self.rng.below(3))).collect()
    }

    /// The history that keeps a version of each directory at each change.
    fn reference(&self) -> MemoryHistory {
        let mut history = MemoryHistory::new();
        self.entries.iter().for_each(|(_, changes)| history.commit(changes));
        history
    }
}

fn make(target: Target) -> Make {
    Make { target, ..Make::default() }
}

pub(in crate::store) fn inode_of(key: &[u8]) -> InodeId {
    InodeId(u64::from_be_bytes(key[1..].try_into().expect("a number")))
}

/// The namespace as a start loads it.
pub(in crate::store) fn loaded(versions: &NameVersions) -> Namespace {
    let (mut namespace, mut apart) = (Namespace::new(), LoadedNames::default());
    let between = versions.inode_between().expect("reads");
    let load = |part: LoadPart, load: &mut LoadVersion<'_>| {
        versions.load(&part, &mut |key, stamp, value| load(key, stamp, value)).expect("reads");
    };
    load(LoadPart::Apart(between.clone()), &mut |key, stamp, value| apart.load(key, stamp, value).expect("loads"));
    load(LoadPart::First(between), &mut |key, stamp, value| namespace.load(key, stamp, value).expect("loads"));
    namespace.take_apart(apart);
    load(LoadPart::Last, &mut |key, stamp, value| namespace.load(key, stamp, value).expect("loads"));
    namespace
}

fn all_versions(
    history: &dyn VersionHistory,
    prefix: &[u8],
    above: &[u8],
    (after, upto): (Hlc, Hlc),
    max: usize,
) -> Vec<FoundVersion> {
    let mut found = Vec::new();
    let visit = &mut |key: &[u8], stamp: Hlc, value: Option<&[u8]>| {
        found.push((key.to_vec(), stamp, value.map(<[u8]>::to_vec)));
        found.len() < max
    };
    history.versions(prefix, above, after, upto, visit).expect("reads");
    found
}

fn versions_of(history: &dyn VersionHistory, key: &[u8], (after, upto): (Hlc, Hlc), max: usize) -> Vec<FoundVersion> {
    let mut found = Vec::new();
    let visit = &mut |key: &[u8], stamp: Hlc, value: Option<&[u8]>| {
        found.push((key.to_vec(), stamp, value.map(<[u8]>::to_vec)));
        found.len() < max
    };
    history.versions_of(key, after, upto, visit).expect("reads");
    found
}

fn scanned(history: &dyn VersionHistory, prefix: &[u8], above: &[u8], at: Hlc) -> Vec<FoundVersion> {
    let mut found = Vec::new();
    let visit = &mut |key: &[u8], stamp: Hlc, value: &[u8]| {
        found.push((key.to_vec(), stamp, Some(value.to_vec())));
        true
    };
    history.scan(prefix, above, at, visit).expect("reads");
    found
}

fn indexed(history: &dyn VersionHistory, after: Hlc, upto: Hlc, is_back: bool) -> Vec<(Hlc, Vec<u8>)> {
    let mut found = Vec::new();
    let visit = &mut |stamp: Hlc, key: &[u8]| {
        found.push((stamp, key.to_vec()));
        true
    };
    match is_back {
        false => history.changed(after, upto, visit).expect("reads"),
        true => history.changed_back(after, upto, visit).expect("reads"),
    };
    // Keys of one transaction come in any order.
    found.sort_unstable();
    found
}

/// Compares every answer of a history with the reference and with what the present was.
fn compare(tree: &mut Tree, versions: &NameVersions) {
    let reference = tree.reference();
    let stamps: Vec<Hlc> = tree.made.keys().map(|(_, stamp)| *stamp).collect();
    let directories: Vec<InodeId> =
        tree.made.keys().map(|(id, _)| *id).collect::<std::collections::BTreeSet<_>>().into_iter().collect();
    for _ in 0..60 {
        let mut any = || match tree.rng.below(8) {
            0 => Hlc::ZERO,
            1 => Hlc::MAX,
            2 => Hlc(stamps[tree.rng.below(stamps.len() as u64) as usize].0 - 1),
            _ => stamps[tree.rng.below(stamps.len() as u64) as usize],
        };
        let (one, other) = (any(), any());
        let (after, upto) = (one.min(other), one.max(other));
        let id = directories[tree.rng.below(directories.len() as u64) as usize];
        let (key, max) = (inode_key(id), 1 + tree.rng.below(20) as usize);
        for at in [after, upto] {
            assert_eq!(versions.newest(&key, at), reference.newest(&key, at), "directory {id} at {at}");
            let above = if tree.rng.chance(2) { &key[..] } else { &[] };
            assert_eq!(scanned(versions, b"I", above, at), scanned(&reference, b"I", above, at), "all at {at}");
            assert_eq!(scanned(versions, &key, &[], at), scanned(&reference, &key, &[], at), "{id} at {at}");
            assert_eq!(author(versions, id, at), author(&reference, id, at));
        }
        for max in [max, usize::MAX] {
            let within = (after, upto);
            let found = versions_of(versions, &key, within, max);
            assert_eq!(found, versions_of(&reference, &key, within, max), "directory {id} in {after} to {upto}");
            for (prefix, above) in [(&b"I"[..], &[][..]), (b"I", &key), (&key, &[]), (b"E", &[])] {
                let found = all_versions(versions, prefix, above, within, max);
                assert_eq!(found, all_versions(&reference, prefix, above, within, max), "{prefix:?} above {above:?}");
            }
        }
        for is_back in [false, true] {
            assert_eq!(indexed(versions, after, upto, is_back), indexed(&reference, after, upto, is_back));
        }
        assert_eq!(changes_of(versions, id, after, upto, max), changes_of(&reference, id, after, upto, max));
        let since = |history: &dyn VersionHistory| newest_changes_since(history, id, after, upto, max);
        assert_eq!(since(versions), since(&reference));
        let changed = |history: &dyn VersionHistory| {
            Changed::read(history, after, upto, None, usize::MAX, &mut |_| Ok(true)).expect("reads")
        };
        let found = changed(versions);
        assert_eq!(found.subjects, changed(&reference).subjects);
        check_made(tree, &found);
        let list = |history: &dyn VersionHistory| TxnChanges::list(history, after, upto, max, 50);
        assert_eq!(list(versions), list(&reference));
    }
    let mut wrong = Vec::new();
    let count = check_history(versions, tree.stamp, &mut |what| wrong.push(what)).expect("reads");
    assert_eq!((count, wrong), (check_history(&reference, tree.stamp, &mut |_| {}).expect("reads"), Vec::new()));
}

/// The versions of directories are those that the present had, by their authors; so are removals.
fn check_made(tree: &Tree, found: &Changed) {
    for change in &found.subjects {
        for revision in &change.revisions {
            match (&change.subject, &revision.state) {
                (ChangeSubject::Inode(id), Some(SubjectState::Inode(inode))) if inode.is_directory() => {
                    let (made, session, uid) = &tree.made[&(*id, revision.stamp)];
                    assert_eq!((&**inode, revision.session, revision.uid), (made, *session, *uid), "directory {id}");
                }
                (ChangeSubject::Entry { parent, name }, _) => {
                    let (_, session, uid) = &tree.made[&(*parent, revision.stamp)];
                    assert_eq!((revision.session, revision.uid), (*session, *uid), "{name:?} in {parent}");
                }
                _ => {}
            }
        }
    }
}

fn memory_of(bytes: u64) -> MemoryStore {
    let store = MemoryStore::default();
    store.set_memtable_bytes_max(bytes);
    store
}

/// Random operations; the process ends now and then, with what is in no table, and the log is replayed.
fn live(seed: u64, store: Box<dyn VersionStore>, lives: u64) {
    let mut tree = Tree::new(seed);
    let mut versions = NameVersions::open(store).expect("opens");
    let mut added = 0;
    for life in 0..lives {
        for _ in 0..150 {
            tree.execute_any();
        }
        while added < tree.entries.len() {
            let (_, changes) = &tree.entries[added];
            added += 1;
            versions.add(LogIndex(added as u64), changes.clone());
            if tree.rng.chance(40) {
                versions.settle(LogIndex(added as u64)).expect("settles");
            }
            if tree.rng.chance(60) {
                drop(versions.view(LogIndex(added as u64)).expect("views"));
            }
        }
        compare(&mut tree, &versions);
        if life + 1 == lives {
            break;
        }
        let digest = versions.digest().expect("reads");
        versions = NameVersions::open(versions.into_store()).expect("opens");
        let applied = versions.applied().expect("says").0 as usize;
        let mut namespace = loaded(&versions);
        for (index, (transactions, changes)) in tree.entries.iter().enumerate().skip(applied) {
            let mut again = Vec::new();
            for (transaction, stamp) in transactions {
                namespace.apply(transaction, *stamp, &mut again, &NoReadSet);
            }
            assert_eq!(again, *changes, "entry {} is executed again after {applied}", index + 1);
            versions.add(LogIndex(index as u64 + 1), again);
        }
        assert_eq!(namespace, tree.namespace, "the present after entry {applied} and a replay");
        assert_eq!(versions.digest(), Ok(digest), "the history after entry {applied} and a replay");
        compare(&mut tree, &versions);
    }
}

#[test]
fn a_directory_reads_at_any_instant_as_if_each_change_were_a_version() {
    for seed in 0..6 {
        // All in one memtable; memtables of some entries; each entry a memtable.
        for bytes in [u64::MAX, 20_000, 1] {
            live(seed, Box::new(memory_of(bytes)), 3);
        }
    }
    for seed in 10..12 {
        let directory = tempfile::tempdir().expect("a directory");
        live(seed, Box::new(LsmStore::open(directory.path(), 4 << 20).expect("opens")), 3);
    }
}

/// Creates in `/d0` by two sessions, and after each hundredth a change of its mode.
fn fill(tree: &mut Tree, from: u64, count: u64) {
    for number in from..from + count {
        let (session, uid) = [(tree.sessions[0], 0), (tree.sessions[1], 1000)][number as usize % 2];
        let file = make(Target::path(format!("/d0/file-{number:06}")));
        let mut ops = vec![(session, uid, Op::Make(Make { mode: 0o644, kind: Some(MakeKind::File(false)), ..file }))];
        if number % 100 == 99 {
            let mode = Some(0o770 | (number / 100) as u32 & 7);
            let set = SetAttr { target: Target::path("/d0".to_owned()), mode, ..SetAttr::default() };
            ops.push((tree.sessions[0], 0, Op::SetAttr(set)));
        }
        tree.execute(ops);
    }
}

pub(in crate::store) fn with_directory(seed: u64) -> (Tree, InodeId) {
    let mut tree = Tree::new(seed);
    let made = make(Target::path("/d0".to_owned()));
    let made = Make { mode: 0o777, kind: Some(MakeKind::Directory(true)), ..made };
    tree.execute(vec![(tree.sessions[0], 0, Op::Make(made))]);
    let id = tree.made.keys().map(|(id, _)| *id).max().expect("it was made");
    (tree, id)
}

/// A create in `/d0`, and an attribute of 600 bytes at the root, so that memtables become full.
pub(in crate::store) fn grow(tree: &mut Tree, number: u64) {
    fill(tree, number, 1);
    let (target, value) = (Target::path("/".to_owned()), vec![number as u8; 600]);
    let set = SetXattr { target, name: b"user.a".to_vec(), value, flags: 0 };
    tree.execute(vec![(tree.sessions[0], 0, Op::SetXattr(set))]);
}

#[test]
fn a_create_makes_two_records_and_a_page_gathers_its_directory_stamps() {
    let (mut tree, id) = with_directory(1);
    let first = tree.entries.len();
    fill(&mut tree, 0, 1000);
    let store = memory_of(u64::MAX);
    let versions = NameVersions::open(Box::new(store)).expect("opens");
    for (index, (_, changes)) in tree.entries.iter().enumerate() {
        versions.add(LogIndex(index as u64 + 1), changes.clone());
    }
    for (_, changes) in tree.entries[first..].iter().filter(|(transactions, _)| transactions.len() == 1) {
        // The first change of a session writes it again.
        let letters: Vec<u8> = changes.iter().map(|change| change.key[0]).filter(|letter| *letter != b'S').collect();
        assert_eq!(letters, b"EPI");
    }
    drop(versions.view(LogIndex(tree.entries.len() as u64)).expect("views"));
    let items = |letter: u8| versions.store.items(&[letter], &[letter + 1]).map(|item| item.expect("reads").1);
    assert_eq!(items(ENTRY_STAMPS).count(), 1000_usize.div_ceil(256));
    let bytes: usize = items(ENTRY_STAMPS).map(|page| page.len()).sum();
    assert!(bytes < 6 * 1000, "{bytes} bytes for 1000 changes");
    let key = inode_key(id);
    let stored = versions.store.items(&stored_key(&key, Hlc::ZERO), &stored_key(&key, Hlc::MAX)).count();
    assert_eq!(stored, 1 + 10, "one when it was made, one for each change of the mode");
    assert_eq!(versions_of(&versions, &key, (Hlc::ZERO, Hlc::MAX), usize::MAX).len(), 1 + 1000 + 10);
}

#[test]
fn what_is_read_while_changes_are_added_is_some_instant_of_the_directory() {
    let (mut tree, id) = with_directory(3);
    let first = tree.entries.len();
    fill(&mut tree, 0, 6000);
    let directory = tempfile::tempdir().expect("a directory");
    let store = LsmStore::open(directory.path(), 4 << 20).expect("opens");
    let versions = NameVersions::open(Box::new(store)).expect("opens");
    for (index, (_, changes)) in tree.entries[..first].iter().enumerate() {
        versions.add(LogIndex(index as u64 + 1), changes.clone());
    }
    let reference = tree.reference();
    let is_over = AtomicBool::new(false);
    let key = inode_key(id);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut last = Hlc::ZERO;
            while !is_over.load(Ordering::Acquire) {
                let (stamp, value) = versions.newest(&key, Hlc::MAX).expect("reads").expect("there is one");
                assert!(stamp >= last, "it was read at {last} before {stamp}");
                assert_eq!(reference.newest(&key, stamp), Ok(Some((stamp, value))));
                last = stamp;
            }
        });
        scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                for of_all in [false, true] {
                    let found = match of_all {
                        false => versions_of(&versions, &key, (Hlc::ZERO, Hlc::MAX), usize::MAX),
                        true => all_versions(&versions, &key, &[], (Hlc::ZERO, Hlc::MAX), usize::MAX),
                    };
                    let upto = found.last().expect("there is one").1;
                    let whole = versions_of(&reference, &key, (Hlc::ZERO, upto), usize::MAX);
                    // Stored versions may be younger than the last change that counts.
                    let settled = found.iter().zip(&whole).take_while(|(found, whole)| found == whole).count();
                    let is_stored = |stamp: Hlc| {
                        let at = whole.iter().position(|(_, other, _)| *other == stamp).expect("it was made");
                        tree.made[&(id, stamp)].0.mode != tree.made[&(id, whole[at - 1].1)].0.mode
                    };
                    assert!(found[settled..].iter().all(|(_, stamp, _)| is_stored(*stamp)));
                }
            }
        });
        for (index, (_, changes)) in tree.entries.iter().enumerate().skip(first) {
            versions.add(LogIndex(index as u64 + 1), changes.clone());
            if index % 64 == 0 {
                versions.settle(LogIndex(index as u64 + 1)).expect("settles");
            }
        }
        is_over.store(true, Ordering::Release);
    });
    assert_eq!(versions.newest(&key, Hlc::MAX), reference.newest(&key, Hlc::MAX));
}

/// A store in memory that looks at what readers find before and after it gets something.
struct WatchedStore {
    inner: MemoryStore,
    look: Arc<OnceLock<Box<dyn Fn() + Send + Sync>>>,
}

impl WatchedStore {
    fn look(&self) {
        self.look.get().into_iter().for_each(|look| look());
    }
}

impl VersionStore for WatchedStore {
    fn begin(&self) -> Result<LogIndex, Fault> {
        self.inner.begin()
    }

    fn last_in(&self, from: &[u8], to: &[u8]) -> Result<Option<StoreItem>, Fault> {
        self.inner.last_in(from, to)
    }

    fn items(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<StoreItem, Fault>> + '_> {
        self.inner.items(from, to)
    }

    fn insert(&self, batch: &StoreBatch) -> u64 {
        self.look();
        let bytes = self.inner.insert(batch);
        self.look();
        bytes
    }

    fn memtable_bytes_max(&self) -> u64 {
        self.inner.memtable_bytes_max()
    }

    fn seal(&self, batch: &StoreBatch, through: LogIndex) {
        self.look();
        self.inner.seal(batch, through);
        self.look();
    }

    fn settle(&self, durable: LogIndex) -> Result<LogIndex, Fault> {
        self.inner.settle(durable)
    }

    fn applied(&self) -> Result<LogIndex, Fault> {
        self.inner.applied()
    }

    fn persist(&self) -> Result<(), Fault> {
        self.inner.persist()
    }
}

#[test]
fn a_page_is_found_at_each_moment_while_it_goes_from_memory_to_the_store() {
    let (mut tree, id) = with_directory(4);
    fill(&mut tree, 0, 1500);
    let look = Arc::<OnceLock<_>>::default();
    let store = WatchedStore { inner: memory_of(150_000), look: look.clone() };
    let versions = Arc::new(NameVersions::open(Box::new(store)).expect("opens"));
    let (reference, key) = (tree.reference(), inode_key(id));
    let (reader, looks) = (Arc::downgrade(&versions), Arc::new(AtomicUsize::new(0)));
    let count = looks.clone();
    let is_set = look.set(Box::new(move || {
        let versions = reader.upgrade().expect("it adds");
        let known = versions.newest_change();
        assert_eq!(versions.newest(&key, known), reference.newest(&key, known));
        // Not each time: it reads all.
        if count.fetch_add(1, Ordering::AcqRel) % 64 < 2 {
            let within = (Hlc::ZERO, known);
            let whole = versions_of(&reference, &key, within, usize::MAX);
            assert_eq!(versions_of(&*versions, &key, within, usize::MAX), whole);
            assert_eq!(all_versions(&*versions, &key, &[], within, usize::MAX), whole);
        }
    }) as Box<dyn Fn() + Send + Sync>);
    assert!(is_set.is_ok());
    for (index, (_, changes)) in tree.entries.iter().enumerate() {
        versions.add(LogIndex(index as u64 + 1), changes.clone());
    }
    assert!(looks.load(Ordering::Acquire) > 3000);
}

#[test]
fn a_page_that_rots_is_reported_and_named() {
    let (mut tree, id) = with_directory(2);
    fill(&mut tree, 0, 700);
    let versions = NameVersions::open(Box::new(memory_of(u64::MAX))).expect("opens");
    for (index, (_, changes)) in tree.entries.iter().enumerate() {
        versions.add(LogIndex(index as u64 + 1), changes.clone());
    }
    drop(versions.view(LogIndex(tree.entries.len() as u64)).expect("views"));
    let page_key = entry_stamps_key(id);
    let pages: Vec<StoreItem> = versions
        .store
        .items(&stored_key(&page_key, Hlc::ZERO), &stored_key(&page_key, Hlc::MAX))
        .collect::<Result<_, _>>()
        .expect("reads");
    assert_eq!(pages.len(), 3);
    let last = parse_stored_key(&pages[2].0).expect("a key").1;
    let key = inode_key(id);
    for damaged in [vec![0], vec![1], [&pages[2].1[..20], &[0xff; 10]].concat(), vec![1, 5, 0, 1, 1]] {
        let mut batch = StoreBatch::default();
        batch.put(&pages[2].0, &damaged);
        versions.store.insert(&batch);
        let named = |fault: Fault| {
            assert_eq!(fault.reason, Reason::Corrupt);
            let says = format!("the page of entry stamps of directory {id} from {last}");
            assert!(fault.message.contains(&says), "{fault}");
        };
        named(versions.newest(&key, Hlc::MAX).expect_err("it is damaged"));
        named(versions.versions_of(&key, Hlc::ZERO, Hlc::MAX, &mut |_, _, _| true).expect_err("it is damaged"));
        named(versions.versions(b"I", &[], Hlc::ZERO, Hlc::MAX, &mut |_, _, _| true).expect_err("it is damaged"));
        named(versions.scan(b"I", &[], Hlc::MAX, &mut |_, _, _| true).expect_err("it is damaged"));
        named(versions.digest().expect_err("it is damaged"));
        // What lies before is read.
        assert_eq!(versions.newest(&key, last.previous()), tree.reference().newest(&key, last.previous()));
        let mut wrong = Vec::new();
        let fault = check_history(&versions, Hlc::MAX, &mut |what| wrong.push(what)).expect_err("it is damaged");
        assert!(fault.message.contains(&format!("directory {id}")), "{fault}");
        if damaged != [0] {
            assert!(wrong.iter().any(|what| what.contains(&format!("directory {id}"))), "{wrong:?}");
        }
        let mut failed = Vec::new();
        let mut namespace = Namespace::new();
        versions
            .load(&LoadPart::Last, &mut |key, stamp, value| failed.extend(namespace.load(key, stamp, value).err()))
            .expect("reads");
        if damaged != [0] {
            named(failed.pop().expect("a start is refused"));
        }
    }
    // Of a directory's version that the changes follow, too.
    let mut batch = StoreBatch::default();
    batch.put(&pages[2].0, &pages[2].1);
    let item = versions.store.last_in(&stored_key(&key, Hlc::ZERO), &stored_key(&key, last)).expect("reads");
    batch.put(&item.expect("a version").0, &[1, 8, 1, 0xff]);
    versions.store.insert(&batch);
    let fault = versions.newest(&key, last).expect_err("it is damaged");
    assert!(fault.message.contains(&format!("directory {id} as of")), "{fault}");
}
