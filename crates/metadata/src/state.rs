//! What the log makes: the namespace and its history, and the state of the control plane, changed by executing entries
//! in their order.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use frieze_base::{Fault, LogIndex, Reason, Seq, SessionId};
use frieze_disk::Disk;
use frieze_hlc::Hlc;
use frieze_locks::{Mutex, RwLock, RwLockReadGuard, levels};
use frieze_metalog::LogEntry;
use frieze_namespace::{
    CONTROL, INODES, KeyVersion, LoadedNames, Loss, Namespace, NoReadSet, PresentSnapshot, ReadSet, entry_stamps_of,
    is_timed,
};
use frieze_wire::txn::{Batch, Outcome, Transaction};
use prost::Message;

use super::observer::ChangeObserver;
use crate::checkpoint::{Checkpoints, LoadedPresent, TakenPresent, UnnamedCheckpoint};
use crate::store::{LoadPart, LoadVersion, NameVersions};

/// Changes by decisions that wait to be taken, at most. A reader that takes them so seldom looks at all of the state.
const NEWS_MAX: usize = 65_536;

/// Changes of names and inodes after which a checkpoint is due, at least: so many are read at a start in half a second.
const CHECKPOINT_CHANGES_MIN: u64 = 100_000;
/// A checkpoint is due after changes of one in so many files: it writes all of them.
const CHECKPOINT_FILES_PER_CHANGE: u64 = 16;
/// It is due, too, if names that no checkpoint has fill their memory, after so many changes or one for each so many
/// bytes of the memory: a change may bring a page of inodes and a block of names.
const FULL_CHANGES_MIN: u64 = 20_000;
const FULL_BYTES_PER_CHANGE: u64 = 2048;
/// The same at a clean stop, which no client waits for.
const STOP_CHANGES_MIN: u64 = 20_000;
const STOP_FILES_PER_CHANGE: u64 = 256;

/// The namespace, its history, and the observer of changes.
pub(super) struct AppliedState {
    pub(super) namespace: RwLock<levels::Namespace, Namespace>,
    pub(super) versions: NameVersions,
    pub(super) checkpoints: Checkpoints,
    observer: OnceLock<Arc<dyn ChangeObserver>>,
    /// Nodes and chains; nothing on a machine that is alone.
    control: RwLock<levels::ClusterState, frieze_cluster::ClusterState>,
    /// What decisions have changed since the last call of [`AppliedState::take_control_changes`].
    news: Mutex<levels::ClusterChanges, Vec<frieze_cluster::ClusterChange>>,
    /// Every transaction stamped up to it has been executed, as far as that is known: what was in the store at the
    /// start counts as nothing.
    executed: AtomicU64,
    /// Count of entries executed and states received, changed under the lock of the namespace.
    change_count: AtomicU64,
    /// Changes of names and inodes that the newest checkpoint lacks, changed under the lock of the namespace.
    unsaved_changes: AtomicU64,
    /// Memory for packed inodes and names, bytes: beyond it they stay in a checkpoint.
    names_bytes_max: u64,
    /// Names that the newest checkpoint lacks took more than that when others were evicted last.
    is_full: AtomicBool,
}

impl AppliedState {
    /// Loads the namespace from the newest checkpoint on `disk` and the store under `versions`, or from the store
    /// alone. `notes` get a sentence of each checkpoint that does not count. Packed names and inodes beyond
    /// `names_bytes_max` bytes stay in the checkpoint.
    ///
    /// # Errors
    /// `Corrupt`, and the store's.
    pub(super) fn load(
        versions: NameVersions,
        disk: Arc<dyn Disk>,
        names_bytes_max: u64,
        notes: &mut Vec<String>,
    ) -> Result<AppliedState, Fault> {
        let (checkpoints, loaded) = Checkpoints::load(disk, &versions, names_bytes_max, notes)?;
        let unsaved = loaded.as_ref().map(|present| present.changes);
        let begun = match loaded {
            Some(present) => LoadedState::by_checkpoint(&versions, present)?,
            None => LoadedState::by_the_store(&versions)?,
        };
        let LoadedState { namespace, control } = begun.load(|load| versions.load(&LoadPart::Last, load))?;
        // Without a checkpoint, every file is missing in it.
        let unsaved = unsaved.unwrap_or(namespace.counts().inodes);
        Ok(AppliedState {
            namespace: RwLock::new(namespace),
            versions,
            checkpoints,
            observer: OnceLock::new(),
            control: RwLock::new(control),
            news: Mutex::default(),
            executed: AtomicU64::new(0),
            change_count: AtomicU64::new(0),
            unsaved_changes: AtomicU64::new(unsaved),
            names_bytes_max,
            is_full: AtomicBool::new(false),
        })
    }

    /// From now on `observer` is called with every change before any reader can see it.
    pub(super) fn observe_by(&self, observer: Arc<dyn ChangeObserver>) {
        // Called once, at the start.
        let _ = self.observer.set(observer);
    }

    pub(super) fn observer(&self) -> Option<&dyn ChangeObserver> {
        self.observer.get().map(|observer| &**observer)
    }

    /// Looks at what the log has decided about nodes and chains.
    pub(super) fn look_at_control(&self, look: &mut dyn FnMut(&frieze_cluster::ClusterState)) {
        look(&self.control.read());
    }

    /// What decisions have changed since the last call. After a state was received everything may have changed.
    pub(super) fn take_control_changes(&self) -> Vec<frieze_cluster::ClusterChange> {
        std::mem::take(&mut *self.news.lock())
    }

    /// Executes decisions, after the transactions of their batch.
    fn decide(&self, decisions: &[frieze_wire::control::DecisionProto], stamp: Hlc, changes: &mut Vec<KeyVersion>) {
        if decisions.is_empty() {
            return;
        }
        let mut control = self.control.write();
        let mut news = self.news.lock();
        for decision in decisions {
            let changed = control.apply(&frieze_cluster::Decision::from_wire(decision), stamp.0);
            if news.len() < NEWS_MAX {
                news.extend(changed);
            }
        }
        changes.push(KeyVersion { key: vec![CONTROL], stamp, value: Some(control.encode()) });
    }

    /// The namespace as it is now.
    #[track_caller]
    pub(super) fn read(&self) -> RwLockReadGuard<'_, Namespace> {
        self.namespace.read()
    }

    /// The open sessions that may keep something: cache leases and locks.
    pub(super) fn keeping_sessions(&self) -> Vec<SessionId> {
        let namespace = self.read();
        let keeping = namespace.sessions().filter(|(_, session)| session.keeps);
        keeping.map(|(id, _)| id).collect()
    }

    /// Executes a batch of requests of this server. What transactions read is added to `reads`; the observer is called
    /// before a reader can see a change.
    pub(super) fn apply_batch<'a>(
        &self,
        place: (LogIndex, Hlc),
        batch: &Batch,
        reads: impl Iterator<Item = &'a dyn ReadSet>,
    ) -> Vec<Outcome> {
        let mut namespace = self.namespace.write();
        // Called under the write lock: a reader that sees the change sees its recalls, too.
        let told = |by: &Transaction, changes: &[KeyVersion]| {
            if let Some(observer) = self.observer() {
                observer.changed((SessionId(by.session), Seq(by.seq)), changes);
            }
        };
        self.apply(&mut namespace, place, batch, reads, &told)
    }

    /// Executes an entry of another server, or of the log at a start. The observer is called all the same.
    ///
    /// # Errors
    /// `Corrupt` if it cannot be decoded.
    pub(super) fn apply_entry(&self, entry: &LogEntry) -> Result<(), Fault> {
        let batch = decode(entry)?;
        self.apply_batch((entry.index, entry.stamp), &batch, std::iter::repeat::<&dyn ReadSet>(&NoReadSet));
        Ok(())
    }

    fn apply<'a>(
        &self,
        namespace: &mut Namespace,
        (index, stamp): (LogIndex, Hlc),
        batch: &Batch,
        reads: impl Iterator<Item = &'a dyn ReadSet>,
        told: &dyn Fn(&Transaction, &[KeyVersion]),
    ) -> Vec<Outcome> {
        let mut changes: Vec<KeyVersion> = Vec::new();
        let grants = batch.decisions.iter().any(|decision| decision.loses_names());
        namespace.lose(Loss { counts_upto: batch.ids_above, grants }, stamp, &mut changes);
        let outcomes = batch
            .transactions
            .iter()
            .zip(stamp.0..)
            .zip(reads)
            .map(|((transaction, stamp), reads)| {
                let before = changes.len();
                let outcome = namespace.apply(transaction, Hlc(stamp), &mut changes, reads);
                told(transaction, &changes[before..]);
                outcome
            })
            .collect();
        let last = stamp.0 + (batch.transactions.len() as u64).saturating_sub(1);
        self.decide(&batch.decisions, Hlc(last), &mut changes);
        // The index of time names them, a directory at each change of its entries.
        let is_counted = |change: &&KeyVersion| is_timed(&change.key) || entry_stamps_of(&change.key).is_some();
        let timed = changes.iter().filter(is_counted).count();
        self.unsaved_changes.fetch_add(timed as u64, Ordering::Relaxed);
        self.versions.add(index, changes);
        self.executed.store(last, Ordering::Release);
        self.change_count.fetch_add(1, Ordering::Release);
        outcomes
    }

    /// Count of entries executed and states received.
    pub(super) fn change_count(&self) -> u64 {
        self.change_count.load(Ordering::Acquire)
    }

    /// Stamp of the last transaction that was executed since the start.
    pub(super) fn executed(&self) -> Hlc {
        Hlc(self.executed.load(Ordering::Acquire))
    }

    /// A snapshot of names and inodes after the last entry that was executed, and the changes that it adds to the
    /// newest checkpoint. The memtable of the store is closed behind that entry.
    ///
    /// # Cost
    /// Less than 1 ms for 10 million files, while which nothing is executed.
    pub(super) fn take_present(&self) -> Result<(TakenPresent, u64), Fault> {
        // Nothing is executed while the lock is held, so that all of this is of one entry.
        let namespace = self.read();
        let (index, stamp) = self.versions.seal_last();
        let (present, state) = (namespace.present(), self.versions.name()?);
        let unsaved = self.unsaved_changes.load(Ordering::Relaxed);
        Ok((TakenPresent { present, index, stamp, state }, unsaved))
    }

    /// The present gets its places in a checkpoint that was published: what has not changed since the snapshot that it
    /// was made of. No lock is held for more than about 1 ms.
    pub(super) fn relocate(&self, unnamed: UnnamedCheckpoint, present: PresentSnapshot) {
        let loads = Arc::clone(self.read().piece_loads());
        let mut relocation = unnamed.relocation(present, &loads);
        while self.namespace.write().relocate(&mut relocation) {}
    }

    /// Evicts packed inodes and names that were not used for long, if they take more than `bytes_max` bytes, until
    /// seven eighths of that are left, or only what the newest checkpoint lacks. No lock is held for more than about
    /// 1 ms.
    pub(super) fn evict_names(&self, bytes_max: u64) {
        let is_beyond = || self.read().names_memory().bytes > bytes_max;
        if is_beyond() {
            self.namespace.write().begin_eviction();
            while self.namespace.write().evict(bytes_max / 8 * 7) {}
        }
        self.is_full.store(is_beyond(), Ordering::Relaxed);
    }

    /// Memory for packed inodes and names, bytes.
    pub(super) fn names_bytes_max(&self) -> u64 {
        self.names_bytes_max
    }

    /// A checkpoint with these changes was published.
    pub(super) fn note_saved(&self, changes: u64) {
        let left = |unsaved: u64| Some(unsaved.saturating_sub(changes));
        let _always = self.unsaved_changes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
    }

    /// Changes of names and inodes that the newest checkpoint lacks.
    pub(super) fn unsaved_changes(&self) -> u64 {
        self.unsaved_changes.load(Ordering::Relaxed)
    }

    /// True if so much has changed since the newest checkpoint that another one is worth its writing; less is enough
    /// when the server stops.
    pub(super) fn is_checkpoint_due(&self, is_stopping: bool) -> bool {
        let unsaved = self.unsaved_changes();
        let (min, files_per_change) = match is_stopping {
            false => (CHECKPOINT_CHANGES_MIN, CHECKPOINT_FILES_PER_CHANGE),
            true => (STOP_CHANGES_MIN, STOP_FILES_PER_CHANGE),
        };
        let full_min = FULL_CHANGES_MIN.min(self.names_bytes_max / FULL_BYTES_PER_CHANGE);
        let is_full = self.is_full.load(Ordering::Relaxed) && unsaved > full_min;
        is_full || unsaved > min && unsaved > self.read().counts().inodes / files_per_change
    }

    /// Puts the state that was received, complete up to `applied`, in the place of this one, durably: a reader finds
    /// the one or the other.
    ///
    /// # Errors
    /// `Corrupt`, and the store's: the state is as before.
    pub(super) fn install_snapshot(&self, applied: LogIndex, name: &[u8]) -> Result<(), Fault> {
        // One after the other: all inodes count as first.
        let part = |part: LoadPart| move |load: &mut LoadVersion<'_>| self.versions.load_snapshot(&part, load);
        let first = LoadedState::default().load(part(LoadPart::First(vec![INODES + 1])))?;
        let apart = load_apart(part(LoadPart::Apart(vec![INODES + 1])))?;
        let LoadedState { namespace: mut other, control } = first.take_apart(apart).load(part(LoadPart::Last))?;
        self.checkpoints.remove_all();
        let mut namespace = self.namespace.write();
        self.versions.install_snapshot(applied, name)?;
        *self.control.write() = control;
        std::mem::swap(&mut *namespace, &mut other);
        self.change_count.fetch_add(1, Ordering::Release);
        self.unsaved_changes.store(namespace.counts().inodes, Ordering::Relaxed);
        // The old one is dropped without the lock.
        drop(namespace);
        // One of the state before that got its name meanwhile.
        self.checkpoints.remove_all();
        Ok(())
    }
}

/// The namespace, and the nodes and chains, as far as they have been loaded.
#[derive(Default)]
struct LoadedState {
    namespace: Namespace,
    control: frieze_cluster::ClusterState,
}

impl LoadedState {
    /// All but what goes with inodes, from the store.
    fn by_the_store(versions: &NameVersions) -> Result<LoadedState, Fault> {
        let inode = versions.inode_between()?;
        let (mut apart, mut first) = (Ok(LoadedNames::default()), Ok(LoadedState::default()));
        versions.read_both(
            &mut || apart = load_apart(|load| versions.load(&LoadPart::Apart(inode.clone()), load)),
            &mut || first = LoadedState::default().load(|load| versions.load(&LoadPart::First(inode.clone()), load)),
        );
        Ok(first?.take_apart(apart?))
    }

    /// The same by names and inodes of a checkpoint, brought to where the store is. What comes before inodes is the
    /// store's.
    fn by_checkpoint(versions: &NameVersions, present: LoadedPresent) -> Result<LoadedState, Fault> {
        let LoadedPresent { inodes, names, .. } = present;
        let mut begun = LoadedState::default().load(|load| versions.load(&LoadPart::First(vec![INODES]), load))?;
        begun.namespace.take_present(inodes, names);
        // Inodes that are not in memory any more had numbers, too.
        Ok(begun)
    }

    /// Goes on with what `versions` shows, newest of each key; directory entries are not among it.
    fn load(mut self, versions: impl FnOnce(&mut LoadVersion<'_>) -> Result<(), Fault>) -> Result<LoadedState, Fault> {
        let mut failed: Option<Fault> = None;
        versions(&mut |key, stamp, value| {
            if failed.is_some() {
                return;
            }
            let decoded = || frieze_cluster::ClusterState::decode(value).map_err(Fault::from);
            failed = match key {
                [CONTROL] => decoded().map(|state| self.control = state).err(),
                _ => self.namespace.load(key, stamp, value).err(),
            };
        })?;
        failed.map_or(Ok(self), Err)
    }

    fn take_apart(mut self, apart: LoadedNames) -> LoadedState {
        self.namespace.take_apart(apart);
        self
    }
}

/// What `versions` shows of directory entries and inodes.
fn load_apart(versions: impl FnOnce(&mut LoadVersion<'_>) -> Result<(), Fault>) -> Result<LoadedNames, Fault> {
    let mut apart = LoadedNames::default();
    let mut failed: Option<Fault> = None;
    versions(&mut |key, stamp, value| {
        if failed.is_none() {
            failed = apart.load(key, stamp, value).err();
        }
    })?;
    failed.map_or(Ok(apart), Err)
}

fn decode(entry: &LogEntry) -> Result<Batch, Fault> {
    Batch::decode(entry.body.as_slice()).map_err(|error| {
        Fault::new(
            Reason::Corrupt,
            format!("entry {} of the metalog passes its checksum but is no batch: {error}", entry.index),
        )
    })
}
