//! Transactions that wait for their batch, and for what became of it.

use std::sync::{Arc, Mutex, PoisonError};

use frieze_base::Fault;
use frieze_namespace::{NoReadSet, ReadSet};
use frieze_wire::txn::{Outcome, Transaction};

use crate::caching::Gate;

/// Transactions in one batch; more wait for the next.
const BATCH_MAX: usize = 256;

/// Transactions that no batch has taken yet. Each is held by a thread that waits, so the connections bound them.
#[derive(Default)]
pub(super) struct Queue(Mutex<Vec<Arc<Slot>>>);

/// A transaction that waits for its batch.
pub(super) struct Slot {
    waiting: Mutex<Waiting>,
    /// Holds its answer back, and hears what it reads.
    gate: Option<Arc<Gate>>,
}

enum Waiting {
    Asked(Transaction),
    Running,
    Done(Result<Outcome, Fault>),
}

impl Queue {
    pub(super) fn put(&self, transaction: Transaction, gate: Option<Arc<Gate>>) -> Arc<Slot> {
        let slot = Arc::new(Slot { waiting: Mutex::new(Waiting::Asked(transaction)), gate });
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(slot.clone());
        slot
    }

    /// The transactions of the next batch.
    pub(super) fn take(&self) -> Vec<Arc<Slot>> {
        let mut queue = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = queue.len().min(BATCH_MAX);
        queue.drain(..count).collect()
    }
}

impl Slot {
    pub(super) fn reads(&self) -> &dyn ReadSet {
        self.gate.as_deref().map_or(&NoReadSet, |gate| gate)
    }

    pub(super) fn start(&self) -> Transaction {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *waiting, Waiting::Running) {
            Waiting::Asked(transaction) => transaction,
            Waiting::Running | Waiting::Done(_) => panic!("a transaction was taken from the queue twice"),
        }
    }

    pub(super) fn finish(&self, result: Result<Outcome, Fault>) {
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = Waiting::Done(result);
    }

    pub(super) fn is_done(&self) -> bool {
        matches!(*self.waiting.lock().unwrap_or_else(PoisonError::into_inner), Waiting::Done(_))
    }

    pub(super) fn take(&self) -> Result<Outcome, Fault> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *waiting, Waiting::Running) {
            Waiting::Done(result) => result,
            Waiting::Asked(_) | Waiting::Running => panic!("a transaction was answered before it ran"),
        }
    }
}
