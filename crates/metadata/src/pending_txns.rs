//! Transactions that wait for a batch, and for its outcome.

use std::sync::{Arc, OnceLock};
use std::thread::Thread;

use frieze_base::Fault;
use frieze_locks::{Mutex, levels};
use frieze_namespace::{NoReadSet, ReadSet};
use frieze_wire::txn::{Outcome, Transaction};

use super::observer::SharedReadSet;

/// Transactions in one batch; more wait for the next.
const BATCH_MAX: usize = 256;

/// Transactions that no batch has taken yet. Each is held by a thread that waits, so the connections bound them.
#[derive(Default)]
pub(super) struct TxnQueue(Mutex<levels::TxnQueue, Vec<Arc<PendingTxn>>>);

/// A transaction that waits for its batch.
pub(super) struct PendingTxn {
    waiting: Mutex<levels::PendingTxn, TxnState>,
    /// What it reads is added to it.
    reads: Option<SharedReadSet>,
    /// The thread that sleeps until it is done, or until it is to run the next batch.
    sleeper: OnceLock<Thread>,
}

enum TxnState {
    Asked(Transaction),
    Running,
    Done(Result<Outcome, Fault>),
}

impl TxnQueue {
    pub(super) fn put(&self, transaction: Transaction, reads: Option<SharedReadSet>) -> Arc<PendingTxn> {
        let slot =
            Arc::new(PendingTxn { waiting: Mutex::new(TxnState::Asked(transaction)), reads, sleeper: OnceLock::new() });
        self.0.lock().push(slot.clone());
        slot
    }

    /// The transactions of the next batch.
    pub(super) fn take(&self) -> Vec<Arc<PendingTxn>> {
        let mut queue = self.0.lock();
        let count = queue.len().min(BATCH_MAX);
        queue.drain(..count).collect()
    }

    /// Wakes the thread of the first transaction, if one waits.
    pub(super) fn wake_first(&self) {
        let first = self.0.lock().first().cloned();
        if let Some(first) = first {
            first.wake();
        }
    }
}

impl PendingTxn {
    pub(super) fn reads(&self) -> &dyn ReadSet {
        match &self.reads {
            Some(reads) => &**reads,
            None => &NoReadSet,
        }
    }

    pub(super) fn start(&self) -> Transaction {
        let mut waiting = self.waiting.lock();
        match std::mem::replace(&mut *waiting, TxnState::Running) {
            TxnState::Asked(transaction) => transaction,
            TxnState::Running | TxnState::Done(_) => panic!("a transaction was taken from the queue twice"),
        }
    }

    /// Sets its outcome and wakes its thread.
    pub(super) fn finish(&self, result: Result<Outcome, Fault>) {
        self.set_done(result);
        self.wake();
    }

    /// Sets its outcome. Its thread sleeps on.
    pub(super) fn set_done(&self, result: Result<Outcome, Fault>) {
        *self.waiting.lock() = TxnState::Done(result);
    }

    /// Wakes its thread, if it sleeps.
    pub(super) fn wake(&self) {
        if let Some(sleeper) = self.sleeper.get() {
            sleeper.unpark();
        }
    }

    /// From now on [`PendingTxn::wake`] wakes the calling thread.
    pub(super) fn wake_me(&self) {
        // Called by the one thread that brought it.
        let _ = self.sleeper.set(std::thread::current());
    }

    pub(super) fn is_done(&self) -> bool {
        matches!(*self.waiting.lock(), TxnState::Done(_))
    }

    pub(super) fn take(&self) -> Result<Outcome, Fault> {
        let mut waiting = self.waiting.lock();
        match std::mem::replace(&mut *waiting, TxnState::Running) {
            TxnState::Done(result) => result,
            TxnState::Asked(_) | TxnState::Running => panic!("a transaction was answered before it ran"),
        }
    }
}
