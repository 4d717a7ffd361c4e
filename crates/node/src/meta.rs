//! The metadata plane of one machine: transactions are gathered into batches, ordered by the metalog, executed by the
//! namespace.
//!
//! Guarantees: a transaction is in the log before it is executed; every transaction has one stamp and runs once; what
//! it reads and writes is the namespace at that stamp. Batches form by themselves: whoever finds the log busy leaves
//! its transaction in the queue, and whoever holds the log takes all that wait (group commit without a timer).
//! Leaves to others: who may ask (`engine`), when to flush (`durability`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use frieze_base::{Fault, InodeId, LogIndex, Reason, SegmentId, Seq, SessionId};
use frieze_disk::{Disk, DiskFile};
use frieze_hlc::Hlc;
use frieze_metalog::{DataEnd, Effect, Entry, Input, Mend, Metalog, RecoverFrom, SegmentSource};
use frieze_namespace::{Change, Namespace, NoReadSet, ReadSet};
use frieze_wire::txn::{Batch, Op, Outcome, Transaction};
use prost::Message;

use crate::caching::{Caching, Gate};
use crate::clock::{Keeper, NodeClock};
use crate::device::{Device, not_whole, write_surely};
use crate::reading::{NAMESPACE, Reading};
use crate::store::{VersionStore, Versions};

/// Transactions in one batch; more wait for the next.
const BATCH_MAX: usize = 256;
/// How far the durable bound of inode numbers is kept ahead: one write of the identity for so many files made.
const IDS_AHEAD: u64 = 65_536;

/// Order and execution of metadata.
pub(crate) struct MetaPlane {
    clock: Arc<NodeClock>,
    keeper: Arc<Keeper>,
    device: Arc<Device>,
    disk: Arc<dyn Disk>,
    /// Inode numbers up to it are left out.
    ids_above: AtomicU64,
    /// No inode number above it is given before a larger bound is durable.
    ids_bound: AtomicU64,
    queue: Mutex<Vec<Arc<Slot>>>,
    core: Mutex<Core>,
    namespace: RwLock<Namespace>,
    versions: Versions,
    appended: AtomicU64,
    closed: AtomicU64,
    /// Who has to be told of changes before anybody sees them.
    caching: OnceLock<Arc<Caching>>,
}

struct Core {
    log: Metalog,
    files: BTreeMap<SegmentId, Arc<dyn DiskFile>>,
    dirty: BTreeSet<SegmentId>,
    directory_dirty: bool,
    effects: Vec<Effect>,
}

/// A transaction that waits for its batch.
struct Slot {
    waiting: Mutex<Waiting>,
    /// Holds its answer back, and hears what it reads.
    gate: Option<Arc<Gate>>,
}

enum Waiting {
    Asked(Transaction),
    Running,
    Done(Result<Outcome, Fault>),
}

fn meta_name(segment: SegmentId) -> String {
    format!("meta-{:016x}", segment.0)
}

/// How far recovery is to reach.
pub(crate) struct MetaReach {
    /// The log was on stable storage up to this entry.
    pub(crate) durable: LogIndex,
    /// Serve what is left.
    pub(crate) serve_damaged: bool,
}

/// Reads the log's segments for recovery.
struct Segments<'a> {
    disk: &'a dyn Disk,
    files: BTreeMap<SegmentId, Arc<dyn DiskFile>>,
}

impl SegmentSource for Segments<'_> {
    fn segments(&mut self) -> Result<Vec<(SegmentId, u64)>, Fault> {
        let mut found = Vec::new();
        for name in self.disk.list()? {
            let Some(id) = name.strip_prefix("meta-").and_then(|hex| u64::from_str_radix(hex, 16).ok()) else {
                continue;
            };
            let file = self.disk.open(&name)?;
            found.push((SegmentId(id), file.len()?));
            self.files.insert(SegmentId(id), file);
        }
        Ok(found)
    }

    fn read(&mut self, segment: SegmentId, offset: u64, into: &mut [u8]) -> Result<usize, Fault> {
        let file = self.files.get(&segment).expect("only segments that were listed are read");
        Ok(file.read_at(offset, into)?)
    }
}

impl MetaPlane {
    /// Loads the namespace from `versions` and replays the metalog on `disk` after it, as far as the data log reaches.
    /// Returns the plane and what was cut, in words.
    ///
    /// # Errors
    /// `Corrupt` if an entry cannot be decoded or the log does not reach back to what the store holds; the disk's.
    #[expect(clippy::too_many_arguments, reason = "what recovery needs, handed over once")]
    pub(crate) fn recover(
        clock: Arc<NodeClock>,
        keeper: Arc<Keeper>,
        device: Arc<Device>,
        disk: Arc<dyn Disk>,
        settings: frieze_metalog::Settings,
        versions: Versions,
        data_end: DataEnd,
        reach: &MetaReach,
    ) -> Result<(MetaPlane, Vec<String>), Fault> {
        versions.complete()?;
        let mut namespace = Namespace::new();
        let mut failed: Option<Fault> = None;
        versions.load(&mut |key, stamp, value| {
            if failed.is_none() {
                failed = namespace.load(key, stamp, value).err();
            }
        })?;
        if let Some(fault) = failed.take() {
            return Err(fault);
        }
        let applied = versions.applied()?;
        let mut source = Segments { disk: &*disk, files: BTreeMap::new() };
        let recovered = Metalog::recover(settings, RecoverFrom { applied, data_end }, &mut source, &mut |entry| {
            if failed.is_none() {
                failed = execute(&mut namespace, &versions, &entry).err();
            }
        })
        .map_err(Fault::from)?;
        if let Some(fault) = failed {
            return Err(fault);
        }
        let mut notes: Vec<String> =
            recovered.report.cut.iter().map(|cut| format!("the metalog was cut: {cut:?}")).collect();
        let last = recovered.log.last();
        if last < reach.durable {
            let loss = format!("it ends with entry {last}, and was on stable storage up to entry {}", reach.durable);
            notes.push(not_whole(reach.serve_damaged, "metalog", &loss)?);
        }
        let mut files = source.files;
        for mend in recovered.mend {
            match mend {
                Mend::Erase { segment, offset, len } => {
                    let file = files.get(&segment).expect("recovery mends only files it was shown");
                    file.write_at(offset, &[&vec![0u8; len as usize]])?;
                    file.sync()?;
                }
                Mend::Remove { segment } => {
                    files.remove(&segment);
                    disk.remove(&meta_name(segment))?;
                }
            }
        }
        disk.sync_dir()?;
        let log = recovered.log;
        let appended = log.last().0;
        let closed = log.closed().0;
        let plane = MetaPlane {
            clock,
            keeper,
            device,
            disk,
            ids_above: AtomicU64::new(0),
            ids_bound: AtomicU64::new(0),
            queue: Mutex::default(),
            // What recovery read may be in the page cache only: the first flush makes sure.
            core: Mutex::new(Core {
                log,
                dirty: files.keys().copied().collect(),
                files,
                directory_dirty: true,
                effects: Vec::new(),
            }),
            namespace: RwLock::new(namespace),
            versions,
            appended: AtomicU64::new(appended),
            closed: AtomicU64::new(closed),
            caching: OnceLock::new(),
        };
        Ok((plane, notes))
    }

    /// Executes a transaction; `gate` hears what it reads.
    ///
    /// # Errors
    /// Only what kept it from being ordered (`NoSpace`, `Fenced`, `InputOutput`, `Overloaded`); it has no effect then.
    /// What the transaction itself failed with is in its outcome.
    pub(crate) fn execute(&self, transaction: Transaction, gate: Option<Arc<Gate>>) -> Result<Outcome, Fault> {
        let slot = Arc::new(Slot { waiting: Mutex::new(Waiting::Asked(transaction)), gate });
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push(slot.clone());
        let mut core = self.lock_core();
        // Whoever held the log before may have taken this transaction along.
        while !slot.is_done() {
            self.run_batch(&mut core);
        }
        drop(core);
        slot.take()
    }

    fn lock_core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run_batch(&self, core: &mut Core) {
        let slots: Vec<Arc<Slot>> = {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            let count = queue.len().min(BATCH_MAX);
            queue.drain(..count).collect()
        };
        if slots.is_empty() {
            return;
        }
        let transactions: Vec<Transaction> = slots.iter().map(|slot| slot.start()).collect();
        let ids_above = self.ids_above.load(Ordering::Acquire);
        let batch = Batch { transactions, ids_above, decisions: Vec::new() };
        match self.reserve_ids(new_inodes(&batch)).and_then(|()| self.order(core, &batch)) {
            Ok((index, stamp)) => {
                let outcomes = {
                    let mut namespace = self.namespace.write().unwrap_or_else(PoisonError::into_inner);
                    // Told while nobody can read: who sees the change sees what it recalled.
                    let told = |by: &Transaction, changes: &[Change]| {
                        if let Some(caching) = self.caching.get() {
                            caching.changed((SessionId(by.session), Seq(by.seq)), changes);
                        }
                    };
                    let reads = slots.iter().map(|slot| slot.reads());
                    apply(&mut namespace, &self.versions, (index, stamp), &batch, reads, &told)
                };
                self.appended.store(index.0, Ordering::Release);
                for (slot, outcome) in slots.iter().zip(outcomes) {
                    slot.finish(Ok(outcome));
                }
            }
            Err(fault) => {
                for slot in &slots {
                    slot.finish(Err(fault.clone()));
                }
            }
        }
    }

    /// From now on `caching` is told of every change before anybody sees it.
    pub(crate) fn watch(&self, caching: Arc<Caching>) {
        // Called once, at the start.
        let _ = self.caching.set(caching);
    }

    /// Takes over from the identity which inode numbers may be given.
    pub(crate) fn begin_ids(&self) {
        let (floor, bound) = self.keeper.with(|identity| (identity.inode_floor, identity.inode_bound));
        self.ids_above.store(floor, Ordering::Release);
        self.ids_bound.store(bound, Ordering::Release);
    }

    /// Sees to it that the numbers of `count` inodes lie within the durable bound.
    fn reserve_ids(&self, count: usize) -> Result<(), Fault> {
        let last = self.namespace().last_id().0.max(self.ids_above.load(Ordering::Acquire)) + count as u64;
        if last <= self.ids_bound.load(Ordering::Acquire) {
            return Ok(());
        }
        let bound = last + IDS_AHEAD;
        self.keeper.update(|identity| identity.inode_bound = identity.inode_bound.max(bound))?;
        self.ids_bound.store(bound, Ordering::Release);
        Ok(())
    }

    /// Puts a batch into the log.
    fn order(&self, core: &mut Core, batch: &Batch) -> Result<(LogIndex, Hlc), Fault> {
        let count = batch.transactions.len() as u32;
        let stamp = self.clock.tick_many(count.into())?;
        let end = self.device.log().end();
        let data_end = DataEnd { segment: end.segment, offset: end.offset };
        let proposal = Input::Propose { body: batch.encode_to_vec(), count, data_end };
        let mut effects = std::mem::take(&mut core.effects);
        core.log.step(stamp, proposal, &mut effects);
        let mut ordered = Err(Fault::new(Reason::Internal, "the metalog did not answer a proposal"));
        for effect in effects.drain(..) {
            match effect {
                Effect::Append { index, roll, segment, offset, bytes, .. } => {
                    match self.write_entry(core, roll, segment, offset, &bytes) {
                        Ok(()) => ordered = Ok(index),
                        Err(fault) => {
                            self.withdraw(core, stamp, index, fault.reason)?;
                            ordered = Err(fault);
                        }
                    }
                }
                Effect::Refused(fault) => ordered = Err(fault),
                other => self.obey(core, other)?,
            }
        }
        if let Ok(index) = ordered {
            core.log.step(stamp, Input::Appended { index }, &mut effects);
            for effect in effects.drain(..) {
                self.obey(core, effect)?;
            }
        }
        core.effects = effects;
        ordered.map(|index| (index, stamp))
    }

    fn write_entry(
        &self,
        core: &mut Core,
        roll: Option<frieze_metalog::NewSegment>,
        segment: SegmentId,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), Fault> {
        if let Some(roll) = roll {
            let file = match roll.recycle {
                Some(old) => {
                    self.disk.rename(&meta_name(old), &meta_name(roll.segment))?;
                    let file = core.files.remove(&old);
                    file.map_or_else(|| self.disk.open(&meta_name(roll.segment)), Ok)?
                }
                None => self.disk.create(&meta_name(roll.segment), roll.bytes)?,
            };
            core.files.insert(roll.segment, file.clone());
            core.dirty.insert(roll.segment);
            core.directory_dirty = true;
            file.write_at(0, &[&roll.header])?;
        }
        let file = core.files.get(&segment).ok_or_else(|| {
            Fault::new(Reason::Internal, format!("the metalog writes to segment {segment}, which is not open"))
        })?;
        file.write_at(offset, &[bytes])?;
        core.dirty.insert(segment);
        Ok(())
    }

    /// An entry could not be written: what there is of it goes, so that it cannot come back after a crash.
    fn withdraw(&self, core: &mut Core, stamp: Hlc, index: LogIndex, reason: Reason) -> Result<(), Fault> {
        let mut effects = Vec::new();
        core.log.step(stamp, Input::AppendFailed { index, reason }, &mut effects);
        for effect in effects {
            if let Err(fault) = self.obey(core, effect) {
                core.log.step(stamp, Input::DeviceFailed { reason: fault.reason }, &mut Vec::new());
                return Err(fault);
            }
        }
        Ok(())
    }

    /// Effects that need no answer.
    fn obey(&self, core: &mut Core, effect: Effect) -> Result<(), Fault> {
        match effect {
            Effect::Remove { segment } => {
                core.files.remove(&segment);
                match self.disk.remove(&meta_name(segment)).map_err(Fault::from) {
                    // A file that was never made need not go.
                    Err(fault) if fault.reason == Reason::NotFound => {}
                    other => other?,
                }
                core.directory_dirty = true;
            }
            Effect::Erase { segment, offset, len } => {
                if let Some(file) = core.files.get(&segment) {
                    write_surely(&**file, offset, &vec![0u8; len as usize])?;
                    core.dirty.insert(segment);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Stamp of the last transaction in the log.
    pub(crate) fn newest(&self) -> Hlc {
        self.lock_core().log.newest()
    }

    /// Gives the store back: the plane was recovered in vain.
    pub(crate) fn into_store(self) -> Box<dyn VersionStore> {
        self.versions.into_store()
    }

    /// Index of the last entry appended.
    pub(crate) fn appended(&self) -> LogIndex {
        LogIndex(self.appended.load(Ordering::Acquire))
    }

    /// Makes every entry up to the last durable; the data they name must be durable already. Returns the last.
    ///
    /// # Errors
    /// The disk's: refuse writes from then on.
    pub(crate) fn sync(&self, through: LogIndex) -> Result<(), Fault> {
        let (files, directory) = {
            let mut core = self.lock_core();
            let dirty = std::mem::take(&mut core.dirty);
            let files: Vec<_> = dirty.iter().filter_map(|segment| core.files.get(segment).cloned()).collect();
            (files, std::mem::take(&mut core.directory_dirty))
        };
        if directory {
            self.disk.sync_dir()?;
        }
        for file in files {
            file.sync()?;
        }
        self.feed(Input::Persisted { index: through })
    }

    /// Gives back copies of the log in the kernel's memory, if they are more than `bytes_max`. Returns how many bytes there
    /// are; 0 where nobody knows. Nobody reads the log but the next start.
    ///
    /// # Errors
    /// The disk's: more is in memory than should be, and nothing else.
    pub(crate) fn keep_cached(&self, bytes_max: u64) -> Result<u64, Fault> {
        let files: Vec<_> = self.lock_core().files.values().cloned().collect();
        let mut cached = 0;
        for file in &files {
            cached += file.cached_bytes()?.unwrap_or(0);
        }
        if cached > bytes_max {
            for file in &files {
                file.let_go(0, file.len()?)?;
            }
        }
        Ok(cached)
    }

    /// The store holds everything up to `through`, durably: the log may use its space again.
    pub(crate) fn truncate(&self, through: LogIndex) -> Result<(), Fault> {
        self.feed(Input::Truncate { through })
    }

    fn feed(&self, input: Input) -> Result<(), Fault> {
        let mut core = self.lock_core();
        let mut effects = Vec::new();
        core.log.step(self.clock.newest(), input, &mut effects);
        for effect in effects {
            self.obey(&mut core, effect)?;
        }
        Ok(())
    }

    /// The namespace as it is now.
    pub(crate) fn namespace(&self) -> Reading<'_, Namespace> {
        Reading::of(&self.namespace, &NAMESPACE)
    }

    /// Its history.
    pub(crate) fn versions(&self) -> &Versions {
        &self.versions
    }

    /// Promises that no transaction will be stamped at or below `at` any more. True if that was so already.
    ///
    /// # Errors
    /// `Future` if `at` has not come yet.
    pub(crate) fn close(&self, at: Hlc) -> Result<bool, Fault> {
        if at.0 <= self.closed.load(Ordering::Acquire) {
            return Ok(true);
        }
        let mut core = self.lock_core();
        self.clock.close(at)?;
        let mut effects = Vec::new();
        core.log.step(self.clock.newest(), Input::Close { at }, &mut effects);
        // Every entry is appended and executed while the lock is held, so the promise is good at once.
        if core.log.closed() < at {
            return Err(Fault::new(Reason::NotYetClosed, format!("the metalog cannot close {at} yet")));
        }
        self.closed.fetch_max(at.0, Ordering::AcqRel);
        Ok(false)
    }

    /// The newest instant closed.
    pub(crate) fn closed(&self) -> Hlc {
        Hlc(self.closed.load(Ordering::Acquire))
    }
}

/// Most inodes that a batch can make.
fn new_inodes(batch: &Batch) -> usize {
    let made = |transaction: &Transaction| match &transaction.op {
        Some(Op::Edit(edit)) => edit.new.len(),
        _ => 1,
    };
    batch.transactions.iter().map(made).sum()
}

fn execute(namespace: &mut Namespace, versions: &Versions, entry: &Entry) -> Result<(), Fault> {
    let batch = Batch::decode(entry.body.as_slice()).map_err(|error| {
        Fault::new(
            Reason::Corrupt,
            format!("entry {} of the metalog passes its checksum but is no batch: {error}", entry.index),
        )
    })?;
    let reads = std::iter::repeat::<&dyn ReadSet>(&NoReadSet);
    apply(namespace, versions, (entry.index, entry.stamp), &batch, reads, &|_, _| {});
    Ok(())
}

fn apply<'a>(
    namespace: &mut Namespace,
    versions: &Versions,
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
    versions.add(index, changes);
    outcomes
}

impl Slot {
    fn reads(&self) -> &dyn ReadSet {
        self.gate.as_deref().map_or(&NoReadSet, |gate| gate)
    }

    fn start(&self) -> Transaction {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *waiting, Waiting::Running) {
            Waiting::Asked(transaction) => transaction,
            Waiting::Running | Waiting::Done(_) => panic!("a transaction was taken from the queue twice"),
        }
    }

    fn finish(&self, result: Result<Outcome, Fault>) {
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = Waiting::Done(result);
    }

    fn is_done(&self) -> bool {
        matches!(*self.waiting.lock().unwrap_or_else(PoisonError::into_inner), Waiting::Done(_))
    }

    fn take(&self) -> Result<Outcome, Fault> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *waiting, Waiting::Running) {
            Waiting::Done(result) => result,
            Waiting::Asked(_) | Waiting::Running => panic!("a transaction was answered before it ran"),
        }
    }
}
