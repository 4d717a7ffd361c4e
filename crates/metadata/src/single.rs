//! The metalog of a lone server: the thread of a request orders, executes and answers its transaction.
//!
//! Batches form by themselves (group commit without a timer). One thread at a time *combines*: it takes all
//! transactions that wait, and runs them as one batch. A thread that finds another one combining sleeps until its
//! transaction is done, or until the combining thread leaves and wakes it as the next. No thread queues for the lock of
//! the log to find that its transaction was run meanwhile.
//!
//! # Source
//! Flat combining (Hendler, Incze, Shavit, Tzafrir, SPAA'10).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use frieze_base::{Fault, LogIndex, Reason};
use frieze_hlc::Hlc;
use frieze_locks::{Mutex, MutexGuard, levels};
use frieze_metalog::{DataEnd, Metalog, MetalogEffect, MetalogInput, RecoverFrom};
use frieze_wire::txn::{Batch, Op, Outcome, Transaction};
use prost::Message;

use super::durable_mark::DurableMark;
use super::host::{MetadataHost, RecoverUpto};
use super::observer::SharedReadSet;
use super::pending_txns::{PendingTxn, TxnQueue};
use super::segments::SegmentFiles;
use super::state::AppliedState;
use frieze_storage::{Device, IdentityStore, NodeClock, damaged_log};

/// How far the durable bound of inode numbers is kept ahead: one write of the identity for so many files made.
const IDS_AHEAD: u64 = 65_536;
/// What the files of its log are called.
pub(super) const SEGMENT_PREFIX: &str = "meta-";

/// The log of a lone server; see [`crate::single`].
pub(super) struct SingleLog {
    clock: Arc<NodeClock>,
    keeper: Arc<IdentityStore>,
    mark: DurableMark,
    device: Arc<Device>,
    /// Inode numbers up to it are left out.
    ids_above: AtomicU64,
    /// No inode number above it is given before a larger bound is durable.
    ids_bound: AtomicU64,
    queue: TxnQueue,
    /// A thread runs batches. It is set after a transaction is in the queue, and looked at before its thread sleeps; it
    /// is cleared before the queue is looked at for the last time. So no transaction stays without a thread.
    combining: AtomicBool,
    core: Mutex<levels::SingleCore, SingleCore>,
    appended: AtomicU64,
    closed: AtomicU64,
}

pub(super) struct SingleCore {
    log: Metalog,
    files: SegmentFiles,
    effects: Vec<MetalogEffect>,
    /// Others have joined: nothing is ordered here any more.
    over: bool,
}

/// What became of a transaction that was brought here.
pub(super) enum SingleRun {
    Done(Result<Outcome, Fault>),
    /// Others have joined meanwhile: ask them.
    Over(Box<Transaction>, Option<SharedReadSet>),
}

impl SingleLog {
    /// Replays the log on `disk` on top of what the store holds, as far as the data log reaches. Also returns what was
    /// cut, in words.
    ///
    /// # Errors
    /// `Corrupt` if an entry cannot be decoded or the log does not reach back to what the store holds; the disk's.
    pub(super) fn recover(
        host: &MetadataHost,
        settings: frieze_metalog::MetalogSettings,
        state: &AppliedState,
        data_end: DataEnd,
        reach: &RecoverUpto,
    ) -> Result<(SingleLog, Vec<String>), Fault> {
        let applied = state.versions.applied()?;
        let mark = DurableMark::open(&*host.disk)?;
        let durable = if reach.is_cut { LogIndex(0) } else { reach.durable.max(mark.read()?) };
        if reach.is_cut || reach.serve_damaged {
            // The next start must not miss what is cut off now.
            mark.reset()?;
        }
        let mut files = SegmentFiles::new(host.disk.clone(), SEGMENT_PREFIX);
        let mut failed: Option<Fault> = None;
        let recovered = Metalog::recover(settings, RecoverFrom { applied, data_end }, &mut files, &mut |entry| {
            if failed.is_none() {
                failed = state.apply_entry(&entry).err();
            }
        })
        .map_err(Fault::from)?;
        if let Some(fault) = failed {
            return Err(fault);
        }
        let mut notes: Vec<String> =
            recovered.report.cut.iter().map(|cut| format!("the metalog was cut: {cut:?}")).collect();
        let last = recovered.log.last();
        if last < durable {
            let loss = format!("it ends with entry {last}, and was on stable storage up to entry {durable}");
            notes.push(damaged_log(reach.serve_damaged, "metalog", &loss)?);
        }
        files.mend(&recovered.mend)?;
        // What recovery read may be in the page cache only: the first flush makes sure.
        files.doubt_all();
        let log = recovered.log;
        let alone = SingleLog {
            clock: host.clock.clone(),
            keeper: host.keeper.clone(),
            mark,
            device: host.device.clone(),
            ids_above: AtomicU64::new(0),
            ids_bound: AtomicU64::new(0),
            queue: TxnQueue::default(),
            combining: AtomicBool::new(false),
            appended: AtomicU64::new(log.last().0),
            closed: AtomicU64::new(log.closed().0),
            core: Mutex::new(SingleCore { log, files, effects: Vec::new(), over: false }),
        };
        Ok((alone, notes))
    }

    pub(super) fn execute(
        &self,
        state: &AppliedState,
        transaction: Transaction,
        reads: Option<SharedReadSet>,
    ) -> SingleRun {
        if let Err(fault) = state.versions.check_room() {
            return SingleRun::Done(Err(fault));
        }
        let slot = self.queue.put(transaction, reads.clone());
        slot.wake_me();
        while !slot.is_done() {
            if self.combining.swap(true, Ordering::SeqCst) {
                // The thread that combines runs it, or wakes this one to run it. Combining takes no lock above that of
                // the log, so this is as a wait for the lock of the log.
                std::thread::park();
                continue;
            }
            let mut core = self.lock();
            let taken_back = if core.over { self.queue.take_back(&slot) } else { None };
            let done = if core.over { Vec::new() } else { self.run_batch(&mut core, state) };
            drop(core);
            self.combining.store(false, Ordering::SeqCst);
            self.queue.wake_first();
            done.iter().filter(|one| !Arc::ptr_eq(one, &slot)).for_each(|one| one.wake());
            if let Some(transaction) = taken_back {
                return SingleRun::Over(Box::new(transaction), reads);
            }
        }
        SingleRun::Done(slot.take())
    }

    /// Holds the log: nothing is ordered meanwhile, and all that was, is executed.
    #[track_caller]
    pub(super) fn lock(&self) -> MutexGuard<'_, SingleCore> {
        self.core.lock()
    }

    /// Runs the transactions that wait as one batch, and returns them; their threads sleep on.
    fn run_batch(&self, core: &mut SingleCore, state: &AppliedState) -> Vec<Arc<PendingTxn>> {
        let slots: Vec<Arc<PendingTxn>> = self.queue.take();
        if slots.is_empty() {
            return slots;
        }
        let transactions: Vec<Transaction> = slots.iter().map(|slot| slot.start()).collect();
        let ids_above = self.ids_above.load(Ordering::Acquire);
        let batch = Batch { transactions, ids_above, decisions: Vec::new() };
        match self.reserve_ids(state, new_inodes(&batch)).and_then(|()| self.order(core, &batch)) {
            Ok((index, stamp)) => {
                let reads = slots.iter().map(|slot| slot.reads());
                let outcomes = state.apply_batch((index, stamp), &batch, reads);
                self.appended.store(index.0, Ordering::Release);
                for (slot, outcome) in slots.iter().zip(outcomes) {
                    slot.set_done(Ok(outcome));
                }
            }
            Err(fault) => {
                for slot in &slots {
                    slot.set_done(Err(fault.clone()));
                }
            }
        }
        slots
    }

    /// Takes over from the identity which inode numbers may be given.
    pub(super) fn begin_ids(&self) {
        let (floor, bound) = self.keeper.with(|identity| (identity.inode_floor, identity.inode_bound));
        self.ids_above.store(floor, Ordering::Release);
        self.ids_bound.store(bound, Ordering::Release);
    }

    /// Sees to it that the numbers of `count` inodes lie within the durable bound.
    fn reserve_ids(&self, state: &AppliedState, count: usize) -> Result<(), Fault> {
        let last = state.read().last_id().0.max(self.ids_above.load(Ordering::Acquire)) + count as u64;
        if last <= self.ids_bound.load(Ordering::Acquire) {
            return Ok(());
        }
        let bound = last + IDS_AHEAD;
        self.keeper.update(|identity| identity.inode_bound = identity.inode_bound.max(bound))?;
        self.ids_bound.store(bound, Ordering::Release);
        Ok(())
    }

    /// Puts a batch into the log.
    fn order(&self, core: &mut SingleCore, batch: &Batch) -> Result<(LogIndex, Hlc), Fault> {
        let count = batch.transactions.len() as u32;
        let stamp = self.clock.tick_many(count.into())?;
        let end = self.device.log().end();
        let data_end = DataEnd { segment: end.segment, offset: end.offset };
        let proposal = MetalogInput::Propose { body: batch.encode_to_vec(), count, data_end };
        let mut effects = std::mem::take(&mut core.effects);
        core.log.step(stamp, proposal, &mut effects);
        let mut ordered = Err(Fault::new(Reason::Internal, "the metalog did not answer a proposal"));
        for effect in effects.drain(..) {
            match effect {
                MetalogEffect::Append { index, roll, segment, offset, bytes, .. } => {
                    match core.files.write(roll, segment, offset, &bytes) {
                        Ok(()) => ordered = Ok(index),
                        Err(fault) => {
                            core.withdraw(stamp, index, fault.reason)?;
                            ordered = Err(fault);
                        }
                    }
                }
                MetalogEffect::Refused(fault) => ordered = Err(fault),
                other => core.apply_effect(other)?,
            }
        }
        if let Ok(index) = ordered {
            core.log.step(stamp, MetalogInput::Appended { index }, &mut effects);
            for effect in effects.drain(..) {
                core.apply_effect(effect)?;
            }
        }
        core.effects = effects;
        ordered.map(|index| (index, stamp))
    }

    /// Makes the state durable as it is after the last entry. Returns that entry's place and term, and a stamp that
    /// nothing later may lie at or below: it was given, or promised.
    ///
    /// # Errors
    /// The disk's, and the store's.
    pub(super) fn finish(&self, core: &mut SingleCore, state: &AppliedState) -> Result<(LogIndex, u64, Hlc), Fault> {
        core.files.take_unflushed().flush()?;
        let last = core.log.last();
        let mut effects = Vec::new();
        core.log.step(self.clock.newest(), MetalogInput::Persisted { index: last }, &mut effects);
        effects.into_iter().try_for_each(|effect| core.apply_effect(effect))?;
        state.versions.settle(last)?;
        state.versions.persist()?;
        let applied = state.versions.applied()?;
        if applied != last {
            // The log goes away: nothing may be in it alone.
            let words = format!("the tables of the namespace's store end with entry {applied}, the log with {last}");
            return Err(Fault::new(Reason::Internal, words));
        }
        Ok((last, core.log.term().max(1), core.log.newest().max(core.log.closed())))
    }

    pub(super) fn newest(&self) -> Hlc {
        self.lock().log.newest()
    }

    pub(super) fn appended(&self) -> LogIndex {
        LogIndex(self.appended.load(Ordering::Acquire))
    }

    pub(super) fn sync(&self, through: LogIndex) -> Result<(), Fault> {
        let unflushed = self.lock().files.take_unflushed();
        unflushed.flush()?;
        self.mark.note(through)?;
        self.feed(MetalogInput::Persisted { index: through })
    }

    pub(super) fn truncate(&self, through: LogIndex) -> Result<(), Fault> {
        self.feed(MetalogInput::Truncate { through })
    }

    pub(super) fn files(&self) -> Vec<Arc<dyn frieze_disk::DiskFile>> {
        self.lock().files.files()
    }

    fn feed(&self, input: MetalogInput) -> Result<(), Fault> {
        let mut core = self.lock();
        let mut effects = Vec::new();
        core.log.step(self.clock.newest(), input, &mut effects);
        effects.into_iter().try_for_each(|effect| core.apply_effect(effect))
    }

    pub(super) fn close(&self, at: Hlc) -> Result<bool, Fault> {
        if at.0 <= self.closed.load(Ordering::Acquire) {
            return Ok(true);
        }
        let mut core = self.lock();
        self.clock.close(at)?;
        let mut effects = Vec::new();
        core.log.step(self.clock.newest(), MetalogInput::Close { at }, &mut effects);
        // Every entry is appended and executed while the lock is held, so the promise is good at once.
        if core.log.closed() < at {
            return Err(Fault::new(Reason::NotYetClosed, format!("the metalog cannot close {at} yet")));
        }
        self.closed.fetch_max(at.0, Ordering::AcqRel);
        Ok(false)
    }

    pub(super) fn closed(&self) -> Hlc {
        Hlc(self.closed.load(Ordering::Acquire))
    }
}

impl SingleCore {
    /// True if others have joined.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Nothing is ordered here any more.
    pub(super) fn end(&mut self) {
        self.over = true;
    }

    /// Nothing is ordered any more, by anybody.
    pub(super) fn fail(&mut self, reason: Reason) {
        self.log.step(Hlc::ZERO, MetalogInput::DeviceFailed { reason }, &mut Vec::new());
    }

    /// An entry could not be written: what there is of it goes, so that it cannot come back after a crash.
    fn withdraw(&mut self, stamp: Hlc, index: LogIndex, reason: Reason) -> Result<(), Fault> {
        let mut effects = Vec::new();
        self.log.step(stamp, MetalogInput::AppendFailed { index, reason }, &mut effects);
        for effect in effects {
            if let Err(fault) = self.apply_effect(effect) {
                self.log.step(stamp, MetalogInput::DeviceFailed { reason: fault.reason }, &mut Vec::new());
                return Err(fault);
            }
        }
        Ok(())
    }

    /// Effects that need no answer.
    fn apply_effect(&mut self, effect: MetalogEffect) -> Result<(), Fault> {
        match effect {
            MetalogEffect::Remove { segment } => self.files.remove(segment),
            MetalogEffect::Erase { segment, offset, len } => self.files.erase(segment, offset, len),
            _ => Ok(()),
        }
    }
}

/// Most inodes that a batch can make.
pub(super) fn new_inodes(batch: &Batch) -> usize {
    let made = |transaction: &Transaction| match &transaction.op {
        Some(Op::Edit(edit)) => edit.new.len(),
        _ => 1,
    };
    batch.transactions.iter().map(made).sum()
}
