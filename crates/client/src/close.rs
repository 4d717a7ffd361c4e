//! Files that were closed a moment ago, to be settled together.
//!
//! Settling reports a file's length and returns the right to write it: a transaction that no call waits for. Programs
//! that make many small files close them one after the other, and one transaction settles a few of them.
//!
//! Guarantees: every file added is returned once, in a batch of one caller; at most [`FILES_MAX`] wait, for at most
//! [`MOMENT`].
//! Leaves to others: sending the batch (`deferred`).

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use frieze_wire::txn::{Caller, Op, Settle, SettleAll};

use crate::client_core::ClientCore;

/// The closed files that wait.
#[derive(Debug, Default)]
pub(crate) struct CloseQueue {
    batch: Mutex<CloseBatch>,
    /// Notified when the first file is added, and at the end.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct CloseBatch {
    caller: Option<Caller>,
    files: Vec<Settle>,
    has_ended: bool,
}

/// Files of one caller to be settled now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SettleBatch {
    pub(crate) caller: Option<Caller>,
    pub(crate) op: Op,
}

impl CloseQueue {
    /// Adds a file that `caller` closed. Returns the batch that is to be settled now, if there is one.
    pub(crate) fn add(&self, caller: Option<&Caller>, settle: Settle) -> Option<SettleBatch> {
        let mut batch = self.lock();
        let others = if batch.caller.as_ref() == caller { None } else { batch.take() };
        // Closed, opened and closed again: the last close counts.
        batch.files.retain(|earlier| earlier.inode != settle.inode);
        batch.caller = caller.cloned();
        batch.files.push(settle);
        let is_first = batch.files.len() == 1;
        // A batch of another caller and a full one never coincide: after the former this one has a single file.
        let full = others.or_else(|| if batch.files.len() >= FILES_MAX { batch.take() } else { None });
        drop(batch);
        if is_first {
            self.changed.notify_one();
        }
        full
    }

    /// Takes the files that wait.
    pub(crate) fn take(&self) -> Option<SettleBatch> {
        self.lock().take()
    }

    /// Waits for a file; false once the queue has ended.
    pub(crate) fn wait(&self) -> bool {
        let batch = self.lock();
        let idle = |batch: &mut CloseBatch| batch.files.is_empty() && !batch.has_ended;
        !self.changed.wait_while(batch, idle).unwrap_or_else(PoisonError::into_inner).has_ended
    }

    /// Waits for other files to follow the first one; ends early with the queue.
    pub(crate) fn linger(&self) {
        let batch = self.lock();
        let goes_on = |batch: &mut CloseBatch| !batch.has_ended;
        drop(self.changed.wait_timeout_while(batch, MOMENT, goes_on));
    }

    /// Ends the queue with the session, which settles every file.
    pub(crate) fn end(&self) {
        let mut batch = self.lock();
        batch.has_ended = true;
        batch.files.clear();
        drop(batch);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, CloseBatch> {
        self.batch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CloseBatch {
    fn take(&mut self) -> Option<SettleBatch> {
        let mut files = std::mem::take(&mut self.files);
        let caller = self.caller.take();
        let op = match files.len() {
            0 => return None,
            1 => Op::Settle(files.remove(0)),
            _ => Op::SettleAll(SettleAll { files }),
        };
        Some(SettleBatch { caller, op })
    }
}

/// Starts the thread that settles the files that wait. It ends with the client. False if the system has no thread to
/// give.
pub(crate) fn start_settling(client: &Arc<ClientCore>) -> bool {
    let (queue, client): (_, Weak<ClientCore>) = (Arc::clone(&client.close_queue), Arc::downgrade(client));
    let settle = move || {
        while queue.wait() {
            queue.linger();
            let (Some(client), Some(batch)) = (client.upgrade(), queue.take()) else { continue };
            if let Err(error) = client.settle(&batch) {
                tracing::debug!("files are settled at the end of the session: {error}");
            }
        }
    };
    thread::Builder::new().name("frieze-settle".to_owned()).spawn(settle).is_ok()
}

/// How long a closed file waits for others. Until then the server computes its length from the bytes themselves, which
/// costs a request for the length a little more.
const MOMENT: Duration = Duration::from_millis(20);
/// Files that one transaction settles. More would save little and hold the server's writers longer.
const FILES_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn file(inode: u64) -> Settle {
        Settle { inode, ..Settle::default() }
    }

    fn user(uid: u32) -> Caller {
        Caller { uid, ..Caller::default() }
    }

    fn inodes(closed: Option<SettleBatch>) -> Vec<u64> {
        match closed.map(|closed| closed.op) {
            Some(Op::SettleAll(all)) => all.files.iter().map(|settle| settle.inode).collect(),
            Some(Op::Settle(settle)) => vec![settle.inode],
            other => {
                assert_eq!(other, None);
                Vec::new()
            }
        }
    }

    #[test]
    fn a_full_batch_is_settled_at_once_and_the_rest_waits() {
        let queue = CloseQueue::default();
        let given: Vec<Vec<u64>> = (0..40).map(|inode| inodes(queue.add(None, file(inode)))).collect();
        let batches: Vec<&Vec<u64>> = given.iter().filter(|batch| !batch.is_empty()).collect();
        assert_eq!(batches, [&(0..16).collect::<Vec<u64>>(), &(16..32).collect()]);
        assert_eq!(inodes(queue.take()), (32..40).collect::<Vec<u64>>());
        assert_eq!(queue.take(), None);
    }

    #[test]
    fn files_of_different_callers_are_settled_apart() {
        let queue = CloseQueue::default();
        assert_eq!(queue.add(Some(&user(1)), file(1)), None);
        assert_eq!(queue.add(Some(&user(1)), file(2)), None);
        let first = queue.add(Some(&user(2)), file(3)).unwrap();
        assert_eq!(first.caller, Some(user(1)));
        assert_eq!(inodes(Some(first)), [1, 2]);
        let last = queue.take().unwrap();
        assert_eq!((last.caller.clone(), inodes(Some(last))), (Some(user(2)), vec![3]));
    }

    #[test]
    fn of_a_file_closed_twice_the_last_close_counts() {
        let queue = CloseQueue::default();
        queue.add(None, file(1));
        queue.add(None, file(2));
        queue.add(None, Settle { keep_grant: true, ..file(1) });
        let Some(SettleBatch { op: Op::SettleAll(all), .. }) = queue.take() else { panic!("two files wait") };
        assert_eq!(all.files, [file(2), Settle { keep_grant: true, ..file(1) }]);
    }

    #[test]
    fn a_wait_returns_with_the_first_file_and_at_the_end() {
        let queue = CloseQueue::default();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| queue.wait());
            queue.add(None, file(1));
            assert!(waits.join().unwrap());
            assert!(queue.wait(), "it waits still");
            queue.take();
            let waits = scope.spawn(|| queue.wait());
            queue.end();
            assert!(!waits.join().unwrap());
        });
    }
}
