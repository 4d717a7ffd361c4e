//! Calls that must not run twice: what was answered to each, for when it is sent again.
//!
//! A client that loses its connection sends its calls again, under the same numbers. One that changes something would find it
//! changed: a rename finds nothing to rename. So the answers to those are kept, as HDFS keeps them; while one is being
//! made, who asks again waits for it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use frieze_base::MonoTime;
use frieze_client::mono;

use crate::exception::Exception;
use crate::rpc::CallId;

/// What a call was answered.
pub(crate) type CallResult = Result<Vec<u8>, Exception>;

/// Answers given lately.
#[derive(Debug, Default)]
pub(crate) struct RetryCache {
    table: Mutex<RetryTable>,
    made: Condvar,
}

#[derive(Debug, Default)]
struct RetryTable {
    /// `None` while it is being made.
    answers: BTreeMap<CallId, Option<CallResult>>,
    order: VecDeque<(MonoTime, CallId)>,
    /// How many wait for an answer that is being made: waking nobody would be a system call, too.
    waiting: usize,
}

impl RetryCache {
    /// The answer to a call: the one given before, or what `run` makes.
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

    /// Wakes who waits for an answer.
    fn wake(&self, table: &RetryTable) {
        if table.waiting > 0 {
            self.made.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, RetryTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that panics is no answer that others wait for.
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
    /// Makes room: what is old goes, and the oldest of too many.
    fn forget(&mut self) {
        let now = mono();
        while let Some((given, id)) = self.order.front() {
            if self.order.len() < KEPT_MAX && now.0.saturating_sub(given.0) < KEPT_NS {
                return;
            }
            self.answers.remove(id);
            self.order.pop_front();
        }
    }
}

/// How long an answer is kept: as in HDFS.
const KEPT_NS: u64 = 600 * 1_000_000_000;
/// Answers kept at most. Each has some hundred bytes.
const KEPT_MAX: usize = 65_536;

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
    fn who_asks_again_meanwhile_waits_for_the_answer() {
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
