//! Files that were closed a moment ago, to be settled together.
//!
//! Settling tells a file's length and gives back the right to write it: a transaction that nobody waits for. Programs that
//! write many small files close them one after the other, and one transaction settles a few of them.
//!
//! Guarantees: every file added is given out once, in a batch of one caller; at most [`FILES_MAX`] wait.
//! Leaves to others: sending the batch, and not letting it wait for long ([`crate::Client::settle_closed`]).

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use frieze_wire::txn::{Caller, Op, Settle, SettleAll};

/// The files that wait.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    waiting: Mutex<Waiting>,
    /// The first file came, or there will be no more.
    came: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    caller: Option<Caller>,
    files: Vec<Settle>,
    has_ended: bool,
}

/// Files of one caller to be settled now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Closed {
    pub(crate) caller: Option<Caller>,
    pub(crate) op: Op,
}

impl Closing {
    /// Adds a file that `caller` closed. Returns what is to be settled now.
    pub(crate) fn add(&self, caller: Option<&Caller>, settle: Settle) -> Option<Closed> {
        let mut waiting = self.lock();
        let others = if waiting.caller.as_ref() == caller { None } else { waiting.take() };
        // Closed, opened and closed again: the last close says what stays.
        waiting.files.retain(|earlier| earlier.inode != settle.inode);
        waiting.caller = caller.cloned();
        waiting.files.push(settle);
        let is_first = waiting.files.len() == 1;
        // Those of another caller were at least one: they and a full batch never come together.
        let closed = others.or_else(|| if waiting.files.len() >= FILES_MAX { waiting.take() } else { None });
        drop(waiting);
        if is_first {
            self.came.notify_one();
        }
        closed
    }

    /// What waits.
    pub(crate) fn take(&self) -> Option<Closed> {
        self.lock().take()
    }

    /// Returns when something waits; false once there will be no more.
    pub(crate) fn wait(&self) -> bool {
        let waiting = self.lock();
        let idle = |waiting: &mut Waiting| waiting.files.is_empty() && !waiting.has_ended;
        !self.came.wait_while(waiting, idle).unwrap_or_else(PoisonError::into_inner).has_ended
    }

    /// The session has ended, and has settled everything.
    pub(crate) fn end(&self) {
        let mut waiting = self.lock();
        waiting.has_ended = true;
        waiting.files.clear();
        drop(waiting);
        self.came.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn take(&mut self) -> Option<Closed> {
        let mut files = std::mem::take(&mut self.files);
        let caller = self.caller.take();
        let op = match files.len() {
            0 => return None,
            1 => Op::Settle(files.remove(0)),
            _ => Op::SettleAll(SettleAll { files }),
        };
        Some(Closed { caller, op })
    }
}

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

    fn inodes(closed: Option<Closed>) -> Vec<u64> {
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
        let closing = Closing::default();
        let given: Vec<Vec<u64>> = (0..40).map(|inode| inodes(closing.add(None, file(inode)))).collect();
        let batches: Vec<&Vec<u64>> = given.iter().filter(|batch| !batch.is_empty()).collect();
        assert_eq!(batches, [&(0..16).collect::<Vec<u64>>(), &(16..32).collect()]);
        assert_eq!(inodes(closing.take()), (32..40).collect::<Vec<u64>>());
        assert_eq!(closing.take(), None);
    }

    #[test]
    fn files_of_different_callers_are_settled_apart() {
        let closing = Closing::default();
        assert_eq!(closing.add(Some(&user(1)), file(1)), None);
        assert_eq!(closing.add(Some(&user(1)), file(2)), None);
        let first = closing.add(Some(&user(2)), file(3)).unwrap();
        assert_eq!(first.caller, Some(user(1)));
        assert_eq!(inodes(Some(first)), [1, 2]);
        let last = closing.take().unwrap();
        assert_eq!((last.caller.clone(), inodes(Some(last))), (Some(user(2)), vec![3]));
    }

    #[test]
    fn of_a_file_closed_twice_the_last_close_counts() {
        let closing = Closing::default();
        closing.add(None, file(1));
        closing.add(None, file(2));
        closing.add(None, Settle { keep_grant: true, ..file(1) });
        let Some(Closed { op: Op::SettleAll(all), .. }) = closing.take() else { panic!("two files wait") };
        assert_eq!(all.files, [file(2), Settle { keep_grant: true, ..file(1) }]);
    }

    #[test]
    fn whoever_waits_goes_on_with_the_first_file_and_at_the_end() {
        let closing = Closing::default();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| closing.wait());
            closing.add(None, file(1));
            assert!(waits.join().unwrap());
            assert!(closing.wait(), "it waits still");
            closing.take();
            let waits = scope.spawn(|| closing.wait());
            closing.end();
            assert!(!waits.join().unwrap());
        });
    }
}
