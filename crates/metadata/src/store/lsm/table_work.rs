//! The threads that write and merge tables, and what waits for them.
//!
//! One thread writes sealed memtables into tables, oldest first, each as soon as the log is durable up to its entry.
//! Another merges tables: a merge takes seconds, and memtables do not wait for it. After a failure both pause until the
//! files of unfinished tables are removed; then the store tries again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use frieze_base::{Fault, LogIndex, Reason};
use frieze_locks::{Condvar, Mutex, MutexGuard, levels};

use super::tree::{SealedMemtable, VersionTree};

/// After a failed write the store waits so long before the next try.
const RETRY_AFTER: Duration = Duration::from_millis(500);
/// A change waits so long for room, at most.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(10);
/// A wait for tables ends if none is written for so long.
const TABLE_WAIT_MAX: Duration = Duration::from_secs(60);
/// Sorted runs that no merge has reached, at most: each costs every reader a look. Changes wait beyond.
const YOUNG_RUNS_MAX: usize = 32;

/// Sealed memtables, and the state of the threads.
pub(super) struct TableWork {
    state: Mutex<levels::TableWork, WorkState>,
    changed: Condvar,
    /// Bytes of sealed memtables.
    sealed_bytes: AtomicU64,
    /// Sorted runs that no merge has reached.
    young_runs: AtomicU64,
}

struct WorkState {
    /// The tree of the store.
    tree: Arc<VersionTree>,
    /// Oldest first.
    sealed: VecDeque<SealedMemtable>,
    /// How far the log is durable.
    durable: LogIndex,
    /// How far the tables are complete.
    applied: LogIndex,
    /// Why the oldest memtable is no table yet.
    trouble: Option<Fault>,
    is_merge_due: bool,
    /// Why tables are not merged.
    merge_trouble: Option<Fault>,
    /// Tables are being written or merged by so many threads.
    jobs: u32,
    /// Files of unfinished tables have ids from here on.
    unfinished: Option<(Arc<VersionTree>, u64)>,
    /// After it nothing can be written any more.
    fatal: Option<Fault>,
    is_closing: bool,
}

impl WorkState {
    fn is_writable(&self) -> bool {
        self.fatal.is_none() && self.sealed.front().is_some_and(|front| front.through <= self.durable)
    }
}

impl TableWork {
    pub(super) fn new(tree: Arc<VersionTree>, applied: LogIndex) -> TableWork {
        let young_runs = AtomicU64::new(tree.young_runs() as u64);
        let state = WorkState {
            tree,
            sealed: VecDeque::new(),
            durable: applied,
            applied,
            trouble: None,
            is_merge_due: false,
            merge_trouble: None,
            jobs: 0,
            unfinished: None,
            fatal: None,
            is_closing: false,
        };
        TableWork { state: Mutex::new(state), changed: Condvar::new(), sealed_bytes: AtomicU64::new(0), young_runs }
    }

    /// A memtable is sealed.
    pub(super) fn push(&self, sealed: SealedMemtable) {
        let mut state = self.state.lock();
        self.sealed_bytes.fetch_add(sealed.memtable.size(), Ordering::AcqRel);
        state.sealed.push_back(sealed);
        self.changed.notify_all();
    }

    /// The log is durable up to `durable`. Returns how far the tables are complete.
    ///
    /// # Errors
    /// What keeps the oldest memtable from becoming a table.
    pub(super) fn settle(&self, durable: LogIndex) -> Result<LogIndex, Fault> {
        let mut state = self.state.lock();
        if durable > state.durable {
            state.durable = durable;
            self.changed.notify_all();
        }
        match state.fatal.as_ref().or(state.trouble.as_ref()) {
            Some(fault) => Err(fault.clone()),
            None => Ok(state.applied),
        }
    }

    /// How far the tables are complete.
    pub(super) fn applied(&self) -> LogIndex {
        self.state.lock().applied
    }

    /// Waits until no memtable is left that can become a table.
    ///
    /// # Errors
    /// What keeps the oldest from it.
    pub(super) fn drain(&self) -> Result<(), Fault> {
        let mut state = self.state.lock();
        while let Some(front) = state.sealed.front().filter(|front| front.through <= state.durable) {
            let waits_for = front.memtable.id();
            if let Some(fault) = state.fatal.as_ref().or(state.trouble.as_ref()) {
                return Err(fault.clone());
            }
            let (after, waited) = self.changed.wait_timeout_while(state, TABLE_WAIT_MAX, |state| {
                let is_first = state.sealed.front().is_some_and(|front| front.memtable.id() == waits_for);
                is_first && state.trouble.is_none() && state.fatal.is_none()
            });
            state = after;
            if waited.timed_out() {
                let words = "the namespace's store has written no table for a minute: the disk does not answer";
                return Err(Fault::new(Reason::Unavailable, words));
            }
        }
        Ok(())
    }

    /// Bytes of sealed memtables.
    pub(super) fn sealed_bytes(&self) -> u64 {
        self.sealed_bytes.load(Ordering::Acquire)
    }

    /// Waits until memtables take less than `bytes_max`, with `open_bytes` of the open one.
    ///
    /// # Errors
    /// See [`super::super::VersionStore::check_room`].
    pub(super) fn check_room(&self, bytes_max: u64, open_bytes: &AtomicU64) -> Result<(), Fault> {
        let is_full = || {
            self.sealed_bytes() > 0 && self.sealed_bytes() + open_bytes.load(Ordering::Acquire) >= bytes_max
                || self.young_runs.load(Ordering::Acquire) >= YOUNG_RUNS_MAX as u64
        };
        if !is_full() {
            return Ok(());
        }
        let trouble = |state: &WorkState| {
            state.fatal.clone().or_else(|| state.trouble.clone()).or_else(|| state.merge_trouble.clone())
        };
        let state = self.state.lock();
        let waits = |state: &mut WorkState| is_full() && trouble(state).is_none() && !state.is_closing;
        let (state, _) = self.changed.wait_timeout_while(state, ROOM_WAIT_MAX, waits);
        match trouble(&state) {
            _ if !is_full() => Ok(()),
            Some(fault) => Err(Fault::new(fault.reason, format!("no room for changes in memory: {}", fault.message))),
            None => {
                let words = "the disk is too slow for the changes of names that wait in memory: try again";
                Err(Fault::new(Reason::Overloaded, words))
            }
        }
    }

    /// Another tree takes the place of the one so far, complete up to `applied`. Memtables of the former are dropped.
    pub(super) fn replace(&self, tree: Arc<VersionTree>, applied: LogIndex) {
        let mut state = self.state.lock();
        state.tree.stop_merging();
        self.young_runs.store(tree.young_runs() as u64, Ordering::Release);
        self.sealed_bytes.store(0, Ordering::Release);
        (state.tree, state.sealed) = (tree, VecDeque::new());
        (state.applied, state.durable) = (applied, applied);
        (state.trouble, state.merge_trouble, state.is_merge_due) = (None, None, true);
        self.changed.notify_all();
    }

    /// Drops sealed memtables, and waits until no table is written or merged. To be followed by
    /// [`TableWork::replace`].
    pub(super) fn pause(&self) {
        let mut state = self.state.lock();
        state.sealed.clear();
        state.tree.stop_merging();
        drop(self.changed.wait_while(state, |state| state.jobs > 0));
    }

    /// No tables are merged any more.
    pub(super) fn rest(&self) {
        self.state.lock().tree.stop_merging();
    }

    /// Ends the threads.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closing = true;
        state.tree.stop_merging();
        self.changed.notify_all();
    }

    /// Writes memtables into tables until the store is closed.
    pub(super) fn write_tables(&self) {
        loop {
            let mut state = self.state.lock();
            if state.trouble.is_some() && !state.is_closing {
                let waited = self.changed.wait_timeout_while(state, RETRY_AFTER, |state| !state.is_closing);
                state = waited.0;
            }
            let mut state = self
                .changed
                .wait_while(state, |state| !state.is_closing && (state.unfinished.is_some() || !state.is_writable()));
            if state.is_closing {
                return;
            }
            let (tree, Some(next)) = (state.tree.clone(), state.sealed.front().cloned()) else { continue };
            state.jobs += 1;
            drop(state);
            let first = tree.next_table();
            let written = tree.write_table(&next);
            let mut state = self.end_job(&tree, first, written.is_err());
            if !Arc::ptr_eq(&tree, &state.tree) {
                // Another state has taken its place meanwhile.
                continue;
            }
            match written {
                Ok(()) => {
                    state.sealed.pop_front();
                    self.sealed_bytes.fetch_sub(next.memtable.size(), Ordering::AcqRel);
                    self.young_runs.store(tree.young_runs() as u64, Ordering::Release);
                    (state.applied, state.trouble, state.is_merge_due) = (next.through, None, true);
                }
                Err(fault) => {
                    if state.trouble.is_none() {
                        tracing::warn!("{fault}; the log keeps what is in no table, and the store tries again");
                    }
                    state.trouble = Some(fault);
                }
            }
            self.changed.notify_all();
        }
    }

    /// Merges tables until the store is closed.
    pub(super) fn merge_tables(&self) {
        loop {
            let state = self.state.lock();
            let mut state = self.changed.wait_while(state, |state| {
                let is_due = state.is_merge_due && state.fatal.is_none() && !state.tree.is_stopped();
                !state.is_closing && (state.unfinished.is_some() || !is_due)
            });
            if state.is_closing {
                return;
            }
            let tree = state.tree.clone();
            state.is_merge_due = false;
            state.jobs += 1;
            drop(state);
            let first = tree.next_table();
            let merged = tree.merge();
            let mut state = self.end_job(&tree, first, merged.is_err());
            if !Arc::ptr_eq(&tree, &state.tree) || tree.is_stopped() {
                continue;
            }
            self.young_runs.store(tree.young_runs() as u64, Ordering::Release);
            if let Err(fault) = &merged
                && state.merge_trouble.is_none()
            {
                tracing::warn!("{fault}; the next table that is written brings another try");
            }
            state.merge_trouble = merged.err();
            self.changed.notify_all();
        }
    }

    /// A job is over. After one that failed, and when no other runs, files of unfinished tables are removed.
    fn end_job(&self, tree: &Arc<VersionTree>, first: u64, has_failed: bool) -> MutexGuard<'_, WorkState> {
        let mut state = self.state.lock();
        state.jobs -= 1;
        if has_failed {
            let earlier = state.unfinished.take().filter(|(of, _)| Arc::ptr_eq(of, tree));
            state.unfinished = Some((tree.clone(), earlier.map_or(first, |(_, earlier)| earlier.min(first))));
        }
        if state.jobs == 0
            && let Some((tree, first)) = state.unfinished.take()
        {
            // No other begins meanwhile: it would need this lock.
            if let Err(fault) = tree.sweep(first)
                && Arc::ptr_eq(&tree, &state.tree)
            {
                tracing::error!("{fault}");
                state.fatal = Some(fault);
            }
        }
        self.changed.notify_all();
        state
    }
}
