//! When acknowledged writes reach stable storage, and which waiters are answered then.
//!
//! Guarantees: data first, then the metadata that names it; a waiter is answered only when everything before its
//! request is durable; after a failed flush the server accepts no more changes and answers no waiter with success.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use frieze_base::{Fault, LogIndex, MonoTime};
use frieze_hlc::Hlc;
use frieze_locks::{Mutex, RwLock, levels};
use frieze_metadata::Metadata;
use frieze_replication::DataPlane;
use frieze_storage::{NodeClock, Ticket};

/// Called once when a ticket is covered, or with the fault of the flush that failed.
pub type DurableReply = Box<dyn FnOnce(Result<(), Fault>) + Send>;

/// Changes that may wait for the next flush before the store may write them into a table, at most.
const UNSETTLED_MAX: usize = 4096;

/// The flusher's state; one flush runs at a time.
pub struct Durability {
    state: Mutex<levels::FlushState, FlushState>,
    waiters: Mutex<levels::FlushWaiters, Vec<(Ticket, DurableReply)>>,
    /// A request waits for a flush that has not begun.
    wanted: Arc<AtomicBool>,
    failed: RwLock<levels::FlushFailure, Option<Fault>>,
    store_trouble: Mutex<levels::StoreTrouble, Option<Fault>>,
    /// Monotonic time at which the running flush began; 0 if none runs.
    flushing_since: AtomicU64,
    wake: Arc<dyn Fn() + Send + Sync>,
    durable: Mutex<levels::DurableEnd, Durable>,
}

#[derive(Default)]
struct FlushState {
    /// The metalog was cut up to there.
    truncated: LogIndex,
}

#[derive(Clone, Default)]
struct Durable {
    ticket: Ticket,
    stamp: Hlc,
    /// The closed timestamp of each chain at that time.
    closed: Vec<u64>,
    /// When dirty bytes were first noticed; `None` if all bytes are durable.
    dirty_since: Option<MonoTime>,
}

impl Durability {
    /// A flusher that sets `wanted` and calls `wake` when a request waits for a flush. Others may set it, too.
    pub fn new(wake: Arc<dyn Fn() + Send + Sync>, wanted: Arc<AtomicBool>) -> Durability {
        Durability {
            state: Mutex::default(),
            waiters: Mutex::default(),
            wanted,
            failed: RwLock::default(),
            store_trouble: Mutex::default(),
            flushing_since: AtomicU64::new(0),
            wake,
            durable: Mutex::default(),
        }
    }

    /// Answers `reply` once everything up to `ticket` is durable.
    pub fn when_durable(&self, ticket: Ticket, reply: DurableReply) {
        if let Some(fault) = self.failure() {
            return reply(Err(fault));
        }
        self.waiters.lock().push((ticket, reply));
        self.hurry();
    }

    /// Wakes the flusher for a request that waits another way (a `sync` write in its chain).
    pub fn hurry(&self) {
        self.wanted.store(true, Ordering::Release);
        (self.wake)();
    }

    /// The fault of the flush that failed, if one did: nothing may change any more.
    pub fn failure(&self) -> Option<Fault> {
        self.failed.read().clone()
    }

    /// Makes everything appended so far durable and answers the requests that waited for it.
    ///
    /// # Errors
    /// The disk's. The server must not change anything any more; reads continue.
    pub fn flush(&self, clock: &NodeClock, data: &DataPlane, meta: &Metadata) -> Result<Ticket, Fault> {
        let mut state = self.state.lock();
        if let Some(fault) = self.failure() {
            return Err(fault);
        }
        self.wanted.store(false, Ordering::Release);
        // Taken before the flush, so they are covered by it; later ones wait for the next.
        let waiting = std::mem::take(&mut *self.waiters.lock());
        if !waiting.is_empty() {
            meta.flush_others();
        }
        self.flushing_since.store(clock.reading().mono.0.max(1), Ordering::Relaxed);
        let result = self.flush_locked(&mut state, clock, data, meta);
        self.flushing_since.store(0, Ordering::Relaxed);
        drop(state);
        match result {
            Ok(reached) => {
                for (ticket, reply) in waiting {
                    if ticket.data <= reached.data && ticket.meta <= reached.meta {
                        reply(Ok(()));
                    } else {
                        self.waiters.lock().push((ticket, reply));
                    }
                }
                Ok(reached)
            }
            Err(fault) => {
                self.fail(&fault, data, meta);
                waiting.into_iter().for_each(|(_, reply)| reply(Err(fault.clone())));
                Err(fault)
            }
        }
    }

    /// Answers the requests for which both logs are durable by now: a majority of the members of the metalog has
    /// flushed since. To be called when the metalog says that more is durable.
    pub fn reply_durable(&self, meta: &Metadata) {
        let flushed = self.durable.lock().ticket;
        let reached = meta.durable_upto();
        let is_covered =
            |(ticket, _): &mut (Ticket, DurableReply)| ticket.data <= flushed.data && ticket.meta <= reached;
        let covered: Vec<_> = self.waiters.lock().extract_if(.., is_covered).collect();
        covered.into_iter().for_each(|(_, reply)| reply(Ok(())));
    }

    /// From now on nothing changes, and every waiter gets the fault.
    fn fail(&self, fault: &Fault, data: &DataPlane, meta: &Metadata) {
        *self.failed.write() = Some(fault.clone());
        data.on_device_failed(fault.reason);
        meta.device_failed(fault.reason);
        let late = std::mem::take(&mut *self.waiters.lock());
        late.into_iter().for_each(|(_, reply)| reply(Err(fault.clone())));
    }

    /// Makes the journal of a member durable, after the data that its entries may name.
    ///
    /// # Errors
    /// As [`Durability::flush`].
    pub fn flush_journal(&self, clock: &NodeClock, data: &DataPlane, meta: &Metadata) -> Result<(), Fault> {
        if let Some(fault) = self.failure() {
            return Err(fault);
        }
        // A write after this belongs to another flush: it may name data written after the end was read.
        let mark = meta.mark();
        if meta.journal_names_data() && data.device().dirty_bytes() > 0 {
            return self.flush(clock, data, meta).map(drop);
        }
        meta.sync(mark).inspect_err(|fault| self.fail(fault, data, meta))
    }

    /// Turns a single server into a member of a metalog ([`Metadata::bootstrap`]), while no other flush runs. False if
    /// it is a member already.
    ///
    /// # Errors
    /// As [`Metadata::bootstrap`]; that of the flush that failed.
    pub fn found(&self, data: &DataPlane, meta: &Metadata) -> Result<bool, Fault> {
        let _one = self.state.lock();
        match self.failure() {
            Some(fault) => Err(fault),
            None => {
                // The guard keeps every write out until the machine is a member.
                let _held = data.lock_appender();
                meta.bootstrap(&|| data.device().flush().map(drop))
            }
        }
    }

    fn flush_locked(
        &self,
        state: &mut FlushState,
        clock: &NodeClock,
        data: &DataPlane,
        meta: &Metadata,
    ) -> Result<Ticket, Fault> {
        // Everything stamped up to the smaller of the two closed timestamps is in the logs already.
        let stamp = data.closed().min(meta.closed());
        let closed = data.closed_by_chain();
        self.durable.lock().dirty_since = None;
        // The metalog's end before the data's: then the data flushed holds all that those entries name.
        let mark = meta.mark();
        let index = mark.index;
        let end = data.device().flush()?;
        meta.sync(mark)?;
        // Not before the metadata: a footer protects its records from being cut off, even those that depend on lost
        // metadata.
        data.device().write_footers(end)?;
        data.on_persisted(end);
        {
            let mut durable = self.durable.lock();
            durable.ticket = Ticket { data: end, meta: index };
            durable.stamp = durable.stamp.max(stamp);
            durable.closed.clone_from(&closed);
        }
        // The rest makes the next start and the next segment quick. It can fail (a full disk) without a loss: the
        // metalog holds the versions, and the store tries again.
        *self.store_trouble.lock() =
            self.hand_over(state, meta, index).and_then(|()| data.device().prepare_spares()).err();
        data.device().keep_young(end);
        clock.look(stamp, Ticket { data: end, meta: index })?;
        Ok(Ticket { data: end, meta: meta.durable_upto() })
    }

    /// Says to the store how far the metalog is durable, and cuts the metalog as far as the tables of the store are
    /// complete.
    fn hand_over(&self, state: &mut FlushState, meta: &Metadata, index: LogIndex) -> Result<(), Fault> {
        let applied = meta.settle_versions(index)?;
        if applied > state.truncated {
            meta.truncate(applied)?;
            state.truncated = applied;
        }
        Ok(())
    }

    /// The fault that keeps versions from coming into tables, if there is one.
    pub fn store_trouble(&self) -> Option<Fault> {
        self.store_trouble.lock().clone()
    }

    /// For how long the running flush has run, in nanoseconds; 0 if none runs.
    pub fn flushing_ns(&self, now: impl FnOnce() -> MonoTime) -> u64 {
        match self.flushing_since.load(Ordering::Relaxed) {
            0 => 0,
            since => now().since_ns(MonoTime(since)),
        }
    }

    /// Brings all versions into tables too and cuts the metalog, so that the next start has nothing to replay. Nothing
    /// may change afterwards.
    ///
    /// # Errors
    /// The disk's.
    pub fn finish(&self, clock: &NodeClock, data: &DataPlane, meta: &Metadata) -> Result<(), Fault> {
        self.flush(clock, data, meta)?;
        let flushed = self.durable_ticket();
        data.device().checkpoint(flushed.data)?;
        data.device().flush()?;
        if let Err(fault) = self.rest(meta, flushed.meta) {
            // The metalog holds what is in no table.
            tracing::warn!("the next start takes longer: {fault}");
        }
        Ok(())
    }

    /// Brings all versions into tables, and writes a checkpoint if much has changed since the last one.
    fn rest(&self, meta: &Metadata, durable: LogIndex) -> Result<(), Fault> {
        // A later append is not durable yet and must not come into a table.
        meta.settle_versions(durable)?;
        meta.persist_versions()?;
        meta.truncate(meta.settle_versions(durable)?)?;
        meta.rest_versions();
        meta.checkpoint_at_stop()
    }

    /// True if a request waits for a flush that has not begun.
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Acquire)
    }

    /// True if something waits to be flushed.
    pub fn is_dirty(&self, data: &DataPlane, meta: &Metadata) -> bool {
        let ticket = self.durable.lock().ticket;
        data.device().dirty_bytes() > 0
            || meta.appended() > ticket.meta
            || meta.unsettled_versions() > UNSETTLED_MAX
            || self.is_wanted()
            || self.waiters.lock().iter().any(|(waits, _)| waits.data > ticket.data || waits.meta > ticket.meta)
    }

    /// Notes at `now` whether something is dirty, and returns for how long something has been, in nanoseconds.
    pub fn dirty_age_ns(&self, now: MonoTime, dirty: bool) -> u64 {
        let mut durable = self.durable.lock();
        if !dirty {
            durable.dirty_since = None;
            return 0;
        }
        now.since_ns(*durable.dirty_since.get_or_insert(now))
    }

    /// How far both logs are on stable storage.
    pub fn durable_ticket(&self) -> Ticket {
        self.durable.lock().ticket
    }

    /// What was closed on each chain before the last flush, as [`DataPlane::closed_by_chain`] says it: all of it is on
    /// stable storage.
    pub fn durable_closed(&self) -> Vec<u64> {
        self.durable.lock().closed.clone()
    }

    /// Every record stamped up to it is on stable storage.
    pub fn durable_stamp(&self) -> Hlc {
        self.durable.lock().stamp
    }
}

/// A wake-up without effect: the caller flushes by itself.
pub fn no_wake() -> Box<dyn Fn() + Send + Sync> {
    Box::new(|| {})
}
