//! Calls that must run once: their results, for repetitions.
//!
//! A client that loses its connection repeats its calls, under the same numbers. A change that runs again would find
//! its own effect: a rename finds nothing to rename. So their results are kept, as in HDFS; a repetition of a call in
//! progress waits for it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use frieze_base::MonoTime;
use frieze_client::mono;

use crate::exception::Exception;
use crate::rpc::CallId;

/// The result of a call.
pub(crate) type CallResult = Result<Vec<u8>, Exception>;

/// Recent results.
#[derive(Debug, Default)]
pub(crate) struct RetryCache {
    table: Mutex<RetryTable>,
    made: Condvar,
}

#[derive(Debug, Default)]
struct RetryTable {
    /// `None` while the call is in progress.
    answers: BTreeMap<CallId, Option<CallResult>>,
    order: VecDeque<(MonoTime, CallId)>,
    /// Waiting repetitions: waking none would cost a system call, too.
    waiting: usize,
}

impl RetryCache {
    /// The result of a call: the one of its first run, or that of `run`.
    pub(crate) fn once(&self, id: &CallId, run: impl FnOnce() -> CallResult) -> CallResult {
        let mut table = self.lock();
        loop {
            match table.answers.get(id) {
                Some(Some(answer)) => return answer.clone(),
                Some(None) => {
                    table.waiting += 1;
                    table = self.made.wait(table).unwrap_or_else(PoisonError::into_inner);
                    table.waiting -= 1;
                }
                None => break,
            }
        }
        table.forget();
        table.answers.insert(id.clone(), None);
        drop(table);
        let unmade = Unmade { retries: self, id };
        let answer = run();
        std::mem::forget(unmade);
        let mut table = self.lock();
        table.answers.insert(id.clone(), Some(answer.clone()));
        table.order.push_back((mono(), id.clone()));
        self.wake(&table);
        answer
    }

    /// Wakes waiting repetitions.
    fn wake(&self, table: &RetryTable) {
        if table.waiting > 0 {
            self.made.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, RetryTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that panics leaves no result, and wakes its repetitions.
struct Unmade<'r> {
    retries: &'r RetryCache,
    id: &'r CallId,
}

impl Drop for Unmade<'_> {
    fn drop(&mut self) {
        let mut table = self.retries.lock();
        table.answers.remove(self.id);
        self.retries.wake(&table);
    }
}

impl RetryTable {
    /// Evicts old results, and the oldest of too many.
    fn forget(&mut self) {
        let now = mono();
        while let Some((given, id)) = self.order.front() {
            if self.order.len() < CACHED_MAX && now.0.saturating_sub(given.0) < CACHED_NS {
                return;
            }
            self.answers.remove(id);
            self.order.pop_front();
        }
    }
}

/// How long a result is kept, as in HDFS.
const CACHED_NS: u64 = 600 * 1_000_000_000;
/// Results kept at most. Each has some hundred bytes.
const CACHED_MAX: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_comes_again_is_answered_what_it_was_answered_before() {
        let retries = RetryCache::default();
        let id = |number| CallId { client: vec![1], number };
        let mut runs = 0;
        let mut ask = |number| {
            retries.once(&id(number), || {
                runs += 1;
                Ok(vec![runs])
            })
        };
        assert_eq!((ask(1), ask(2), ask(1)), (Ok(vec![1]), Ok(vec![2]), Ok(vec![1])));
    }

    #[test]
    fn a_repetition_of_a_call_in_progress_waits_for_its_result() {
        let retries = RetryCache::default();
        let id = CallId { client: vec![1], number: 7 };
        let (begun, begins) = std::sync::mpsc::channel();
        let (end, ends) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let (retries, id) = (&retries, &id);
            scope.spawn(move || {
                retries.once(id, || {
                    begun.send(()).unwrap();
                    ends.recv().unwrap();
                    Ok(vec![1])
                })
            });
            begins.recv().unwrap();
            let again = scope.spawn(move || retries.once(id, || Ok(vec![2])));
            end.send(()).unwrap();
            assert_eq!(again.join().unwrap(), Ok(vec![1]));
        });
    }
}
