//! Clients that wait for a change: each waits until something has changed after its position, and is answered at the
//! end of the cell of time in which it did.
//!
//! Guarantees: a change that this server makes visible, or that came to it before the wait began, ends every wait whose
//! position is before it; a wait ends by itself after its time. While no client waits, a change costs the load of one
//! flag, and the thread sleeps.
//! Leaves to others: what has changed (`frieze_service::history`), changes that other servers make visible: a client
//! waits at each server.
//!
//! A name changes a moment after its observer is called. A wait that begins in between finds neither the signal nor the
//! name, so the thread looks for older changes once more, a cell later.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use frieze_base::{Fault, InodeId, MonoTime, Reason, Seq, SessionId};
use frieze_hlc::Hlc;
use frieze_locks::{Mutex, levels};
use frieze_metadata::ChangeObserver;
use frieze_namespace::KeyVersion;
use frieze_replication::PublishObserver;
use frieze_storage::Wake;
use frieze_wire::timeline::{AWAIT_MS_MAX, AwaitChange, AwaitChangeReply, CELL_US};

use crate::planes::Planes;

/// Most clients that wait at once.
const WAITS_MAX: usize = 4096;
/// A position this far back counts as one behind a change: to look for it would cost more than an answer for nothing.
const LOOK_BACK_US: u64 = 10_000_000;
/// Longest sleep of the thread while no client waits.
const IDLE: Duration = Duration::from_secs(3600);

/// Receives the answer.
pub type ChangeReply = Box<dyn FnOnce(AwaitChangeReply) + Send>;

/// The clients that wait.
#[derive(Default)]
pub struct ChangeWatch {
    /// Some client waits, and nothing has changed yet.
    is_armed: AtomicBool,
    has_changed: AtomicBool,
    state: Mutex<levels::ChangeWaits, ParkedClients>,
    wake: Arc<Wake>,
}

#[derive(Default)]
struct ParkedClients {
    waits: Vec<ChangeWait>,
    /// End of the cell at which all waits end.
    due: Option<Hlc>,
    /// Position from which the thread looks once more, and when.
    look: Option<(Hlc, MonoTime)>,
}

struct ChangeWait {
    after: Hlc,
    until: MonoTime,
    reply: ChangeReply,
}

impl ChangeWatch {
    /// Something has changed, or is about to.
    fn note(&self) {
        if self.is_armed.load(Ordering::SeqCst) && self.is_armed.swap(false, Ordering::SeqCst) {
            self.has_changed.store(true, Ordering::SeqCst);
            self.wake.wake();
        }
    }

    /// Wakes the thread, so that it sees that the server stops.
    pub fn wake(&self) {
        self.wake.wake();
    }
}

impl Planes {
    /// Calls `reply` at the end of the cell of the first change after the client's position, or after its time.
    ///
    /// # Errors
    /// `Overloaded` if 4,096 clients wait: `reply` is not called.
    ///
    /// # Cost
    /// The changes of the last ten seconds after the position, if there are any.
    pub fn await_change(&self, ask: &AwaitChange, reply: ChangeReply) -> Result<(), Fault> {
        let now = self.clock.reading().mono;
        let wait = Duration::from_millis(ask.wait_ms.min(AWAIT_MS_MAX).into());
        let after = Hlc(ask.after);
        {
            let mut state = self.changes.state.lock();
            if state.waits.len() >= WAITS_MAX {
                let words = format!("{WAITS_MAX} clients wait for changes: end some of their watches, or ask later");
                return Err(Fault::new(Reason::Overloaded, words));
            }
            state.waits.push(ChangeWait { after, until: later(now, wait), reply });
            let from = state.look.map_or(after, |(from, _)| from.min(after));
            state.look = Some((from, later(now, Duration::from_micros(CELL_US))));
        }
        self.changes.is_armed.store(true, Ordering::SeqCst);
        // A fault of the disk counts as a change: the wait is answered once, and the client meets the fault where it
        // reads what has changed.
        if self.has_changed_after(after).unwrap_or(true) {
            self.changes.note();
        }
        // The thread knows neither the deadline nor the second look.
        self.changes.wake.wake();
        Ok(())
    }

    /// Ends the waits that are due, then sleeps until the next is, or something has changed. To be called again and
    /// again by one thread.
    pub fn end_waits(&self) {
        let wait = self.end_due_waits();
        self.changes.wake.wait(wait);
    }

    fn end_due_waits(&self) -> Duration {
        let now = self.clock.reading().mono;
        let (mut ended, mut look_from) = (Vec::new(), None);
        let wait = {
            let mut state = self.changes.state.lock();
            if self.changes.has_changed.swap(false, Ordering::SeqCst) && state.due.is_none() {
                let newest = state.waits.iter().map(|wait| wait.after).max().unwrap_or_default();
                state.due = Some(cell_end(self.clock.now().max(newest.next())));
            }
            if let Some(due) = state.due.filter(|due| self.clock.now() > *due) {
                (state.due, state.look) = (None, None);
                ended.extend(state.waits.extract_if(.., |wait| wait.after < due).map(|wait| (wait.reply, Some(due))));
                // Those whose clients have seen a later clock wait on, for the next change.
                if let Some(after) = state.waits.iter().map(|wait| wait.after).min() {
                    state.look = Some((after, later(now, Duration::from_micros(CELL_US))));
                    self.changes.is_armed.store(true, Ordering::SeqCst);
                }
            }
            ended.extend(state.waits.extract_if(.., |wait| wait.until <= now).map(|wait| (wait.reply, None)));
            if let Some((from, _)) = state.look.filter(|(_, at)| *at <= now) {
                state.look = None;
                look_from = Some(from).filter(|_| !state.waits.is_empty());
            }
            let deadlines = state.waits.iter().map(|wait| wait.until).chain(state.look.map(|(_, at)| at));
            let next = deadlines.map(|at| Duration::from_nanos(at.since_ns(now))).min().unwrap_or(IDLE);
            let to_due = |due: Hlc| Duration::from_micros((due.micros() + 1).saturating_sub(self.clock.now().micros()));
            state.due.map_or(next, |due| to_due(due).min(next))
        };
        for (reply, upto) in ended {
            reply(AwaitChangeReply { upto: upto.map_or(0, |upto: Hlc| upto.0) });
        }
        match look_from {
            Some(from) if self.has_changed_after(from).unwrap_or(true) => {
                self.changes.note();
                Duration::ZERO
            }
            _ => wait,
        }
    }

    /// True if something changed after this stamp, as far as this server knows, or the stamp is too old to look.
    fn has_changed_after(&self, after: Hlc) -> Result<bool, Fault> {
        if after.micros() + LOOK_BACK_US < self.clock.now().micros() {
            return Ok(true);
        }
        let is_quiet = self.meta.history().has_few_changes((after, Hlc::MAX), 0)?;
        let any = |_: InodeId| true;
        Ok(!is_quiet || !self.data.device().files_written(after, Hlc::MAX, &any)?.0.is_empty())
    }
}

/// The last stamp of the cell of time that `at` lies in.
pub fn cell_end(at: Hlc) -> Hlc {
    Hlc::last_of_micros((at.micros() / CELL_US + 1) * CELL_US - 1)
}

fn later(now: MonoTime, wait: Duration) -> MonoTime {
    MonoTime(now.0.saturating_add(wait.as_nanos() as u64))
}

/// Notes each change, and passes it on.
pub struct NotedChanges<O> {
    changes: Arc<ChangeWatch>,
    observer: Arc<O>,
}

impl<O> NotedChanges<O> {
    /// In front of `observer`.
    pub fn new(changes: &Arc<ChangeWatch>, observer: &Arc<O>) -> NotedChanges<O> {
        NotedChanges { changes: changes.clone(), observer: observer.clone() }
    }
}

impl<O: ChangeObserver> ChangeObserver for NotedChanges<O> {
    fn changed(&self, by: (SessionId, Seq), changes: &[KeyVersion]) {
        self.observer.changed(by, changes);
        self.changes.note();
    }

    fn begin_to_lead(&self, sessions: Vec<SessionId>) {
        self.observer.begin_to_lead(sessions);
    }

    fn resign(&self) {
        self.observer.resign();
    }
}

impl<O: PublishObserver> PublishObserver for NotedChanges<O> {
    fn publishing(&self, by: (SessionId, Seq), inode: InodeId) {
        self.observer.publishing(by, inode);
    }

    fn publishing_all(&self, writes: &mut dyn Iterator<Item = ((SessionId, Seq), InodeId)>) {
        self.observer.publishing_all(writes);
    }

    fn published(&self) {
        self.observer.published();
        self.changes.note();
    }
}
