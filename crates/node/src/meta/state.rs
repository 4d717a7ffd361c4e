//! What the log makes: the namespace and its history, and the state of the control plane, changed by executing entries in their
//! order.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use frieze_base::{Fault, InodeId, LogIndex, Reason, Seq, SessionId};
use frieze_hlc::Hlc;
use frieze_metalog::Entry;
use frieze_namespace::{CONTROL, Change, INODES, LoadedApart, Namespace, NoReadSet, ReadSet};
use frieze_wire::txn::{Batch, Outcome, Transaction};
use prost::Message;

use crate::caching::Caching;
use crate::reading::{NAMESPACE, Reading};
use crate::store::{Left, LoadVersion, Newest, Part, Versions};

/// What decisions changed and nobody has asked for yet, at most: whoever asks so seldom looks at all of the state.
const NEWS_MAX: usize = 65_536;

/// What an inode and its name take where they are left for the next start, at most; most take 90.
const LEFT_BYTES: u64 = 512;

/// The namespace, its history, and who has to be told of changes before anybody sees them.
pub(super) struct State {
    pub(super) namespace: RwLock<Namespace>,
    pub(super) versions: Versions,
    caching: OnceLock<Arc<Caching>>,
    /// Nodes and chains; nothing on a machine that is alone.
    control: RwLock<frieze_cluster::ClusterState>,
    /// What decisions have changed since somebody asked.
    news: Mutex<Vec<frieze_cluster::ClusterChange>>,
    /// Every transaction stamped up to it has been executed, as far as that is known: what was in the store at the start counts as
    /// nothing.
    executed: AtomicU64,
}

impl State {
    /// Loads the namespace from the store under `versions`.
    ///
    /// # Errors
    /// `Corrupt`, and the store's.
    pub(super) fn load(versions: Versions) -> Result<State, Fault> {
        versions.complete()?;
        let begun = match Begun::by_what_was_left(&versions)? {
            Some(begun) => begun,
            None => Begun::by_the_store(&versions)?,
        };
        let Begun { namespace, control } = begun.load(|load| versions.load(&Part::Last, load))?;
        Ok(State {
            namespace: RwLock::new(namespace),
            versions,
            caching: OnceLock::new(),
            control: RwLock::new(control),
            news: Mutex::default(),
            executed: AtomicU64::new(0),
        })
    }

    /// From now on `caching` is told of every change before anybody sees it.
    pub(super) fn watch(&self, caching: Arc<Caching>) {
        // Called once, at the start.
        let _ = self.caching.set(caching);
    }

    pub(super) fn caching(&self) -> Option<&Arc<Caching>> {
        self.caching.get()
    }

    /// Looks at what the log has decided about nodes and chains.
    pub(super) fn look_at_control(&self, look: &mut dyn FnMut(&frieze_cluster::ClusterState)) {
        look(&self.control.read().unwrap_or_else(PoisonError::into_inner));
    }

    /// What decisions have changed since the last call. After a state was received everything may have changed.
    pub(super) fn take_news(&self) -> Vec<frieze_cluster::ClusterChange> {
        std::mem::take(&mut *self.news.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Executes decisions, after the transactions of their batch.
    fn decide(&self, decisions: &[frieze_wire::control::DecisionProto], stamp: Hlc, changes: &mut Vec<Change>) {
        if decisions.is_empty() {
            return;
        }
        let mut control = self.control.write().unwrap_or_else(PoisonError::into_inner);
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        for decision in decisions {
            let changed = control.apply(&frieze_cluster::Decision::from_wire(decision), stamp.0);
            if news.len() < NEWS_MAX {
                news.extend(changed);
            }
        }
        changes.push(Change { key: vec![CONTROL], stamp, value: Some(control.encode()) });
    }

    /// The namespace as it is now.
    pub(super) fn read(&self) -> Reading<'_, Namespace> {
        Reading::of(&self.namespace, &NAMESPACE)
    }

    /// Executes a batch whose transactions are asked for by somebody here: `reads` hear what they read, and the caches of
    /// others are recalled before anybody can see a change.
    pub(super) fn run<'a>(
        &self,
        place: (LogIndex, Hlc),
        batch: &Batch,
        reads: impl Iterator<Item = &'a dyn ReadSet>,
    ) -> Vec<Outcome> {
        let mut namespace = self.namespace.write().unwrap_or_else(PoisonError::into_inner);
        // Told while nobody can read: who sees the change sees what it recalled.
        let told = |by: &Transaction, changes: &[Change]| {
            if let Some(caching) = self.caching.get() {
                caching.changed((SessionId(by.session), Seq(by.seq)), changes);
            }
        };
        self.apply(&mut namespace, place, batch, reads, &told)
    }

    /// Executes an entry that nobody here waits for. Caches are recalled if this server has let anybody keep one.
    ///
    /// # Errors
    /// `Corrupt` if it cannot be decoded.
    pub(super) fn follow(&self, entry: &Entry) -> Result<(), Fault> {
        let batch = decode(entry)?;
        self.run((entry.index, entry.stamp), &batch, std::iter::repeat::<&dyn ReadSet>(&NoReadSet));
        Ok(())
    }

    fn apply<'a>(
        &self,
        namespace: &mut Namespace,
        (index, stamp): (LogIndex, Hlc),
        batch: &Batch,
        reads: impl Iterator<Item = &'a dyn ReadSet>,
        told: &dyn Fn(&Transaction, &[Change]),
    ) -> Vec<Outcome> {
        let mut changes: Vec<Change> = Vec::new();
        namespace.skip_ids(InodeId(batch.ids_above));
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
        self.versions.add(index, changes);
        self.executed.store(last, Ordering::Release);
        outcomes
    }

    /// Stamp of the last transaction that was executed since the start.
    pub(super) fn executed(&self) -> Hlc {
        Hlc(self.executed.load(Ordering::Acquire))
    }

    /// Leaves entries and inodes as they are for the next start, if the store is complete up to the last entry that was executed, `applied`, and
    /// `has_room` for so many bytes: what is kept back on a disk is for removing and restarting.
    ///
    /// # Errors
    /// The disk's: the next start reads the store.
    pub(super) fn leave(&self, applied: LogIndex, has_room: &dyn Fn(u64) -> bool) -> Result<(), Fault> {
        let namespace = self.read();
        let is_all = self.versions.waiting() == 0 && self.versions.applied()? == applied;
        if !is_all || !has_room(namespace.counts().inodes * LEFT_BYTES) {
            return Ok(());
        }
        self.versions.leave(&Newest {
            last_id: namespace.last_id().0,
            entries: &|take| namespace.newest_entries(take),
            inodes: &|take| namespace.newest_inodes(take),
        })
    }

    /// Leaves out inode numbers.
    pub(super) fn skip_ids(&self, last: InodeId) {
        self.namespace.write().unwrap_or_else(PoisonError::into_inner).skip_ids(last);
    }

    /// Puts the state that was received, complete up to `applied`, in the place of this one, durably: who reads finds the
    /// one or the other.
    ///
    /// # Errors
    /// `Corrupt`, and the store's: the state is as before.
    pub(super) fn take_received(&self, applied: LogIndex, name: &[u8], ids_above: u64) -> Result<(), Fault> {
        // One after the other: all inodes count as first.
        let part = |part: Part| move |load: &mut LoadVersion<'_>| self.versions.load_other(&part, load);
        let first = Begun::default().load(part(Part::First(vec![INODES + 1])))?;
        let apart = load_apart(part(Part::Apart(vec![INODES + 1])))?;
        let Begun { namespace: mut other, control } = first.take_apart(apart).load(part(Part::Last))?;
        other.skip_ids(InodeId(ids_above));
        let mut namespace = self.namespace.write().unwrap_or_else(PoisonError::into_inner);
        self.versions.take_other(applied, name)?;
        *self.control.write().unwrap_or_else(PoisonError::into_inner) = control;
        std::mem::swap(&mut *namespace, &mut other);
        // The old one is taken apart when nobody waits for it.
        drop(namespace);
        Ok(())
    }
}

/// The namespace, and the nodes and chains, as far as they have been loaded.
#[derive(Default)]
struct Begun {
    namespace: Namespace,
    control: frieze_cluster::ClusterState,
}

impl Begun {
    /// All but what goes with inodes, from the store.
    fn by_the_store(versions: &Versions) -> Result<Begun, Fault> {
        let inode = versions.inode_between()?;
        let (mut apart, mut first) = (Ok(LoadedApart::default()), Ok(Begun::default()));
        versions.read_both(
            &mut || apart = load_apart(|load| versions.load(&Part::Apart(inode.clone()), load)),
            &mut || first = Begun::default().load(|load| versions.load(&Part::First(inode.clone()), load)),
        );
        Ok(first?.take_apart(apart?))
    }

    /// The same where a server that ended in good order left entries and inodes, if they are whole; what is before those is still the store's.
    ///
    /// # Errors
    /// The store's.
    fn by_what_was_left(versions: &Versions) -> Result<Option<Begun>, Fault> {
        let Some(Left { last_id, mut entries, mut inodes }) = versions.left()? else { return Ok(None) };
        let before_inodes = Begun::default().load(|load| versions.load(&Part::First(vec![INODES]), load))?;
        let (mut apart, mut first) = (Ok(LoadedApart::default()), Ok(Begun::default()));
        let mut before_inodes = Some(before_inodes);
        versions.read_both(&mut || apart = load_apart(|load| entries(load)), &mut || {
            first = before_inodes.take().unwrap_or_default().load(|load| inodes(load));
        });
        let whole = first.and_then(|first| Ok(first.take_apart(apart?)));
        let whole = whole.inspect_err(|fault| tracing::warn!("this start takes longer: {fault}"));
        Ok(whole.ok().map(|mut begun| {
            // Inodes that are not in memory any more had numbers, too.
            begun.namespace.skip_ids(InodeId(last_id));
            begun
        }))
    }

    /// Goes on with what `versions` shows, newest of each key; directory entries are not among it.
    fn load(mut self, versions: impl FnOnce(&mut LoadVersion<'_>) -> Result<(), Fault>) -> Result<Begun, Fault> {
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

    fn take_apart(mut self, apart: LoadedApart) -> Begun {
        self.namespace.take_apart(apart);
        self
    }
}

/// What `versions` shows of directory entries and inodes.
fn load_apart(versions: impl FnOnce(&mut LoadVersion<'_>) -> Result<(), Fault>) -> Result<LoadedApart, Fault> {
    let mut apart = LoadedApart::default();
    let mut failed: Option<Fault> = None;
    versions(&mut |key, stamp, value| {
        if failed.is_none() {
            failed = apart.load(key, stamp, value).err();
        }
    })?;
    failed.map_or(Ok(apart), Err)
}

fn decode(entry: &Entry) -> Result<Batch, Fault> {
    Batch::decode(entry.body.as_slice()).map_err(|error| {
        Fault::new(
            Reason::Corrupt,
            format!("entry {} of the metalog passes its checksum but is no batch: {error}", entry.index),
        )
    })
}
