//! Invalidation of the kernel's pages, by a thread that may have to wait for each file.
//!
//! Guarantees: when [`PageInvalidation::wait`] returns, no file of it will be begun any more. When the kernel drops the
//! pages of a file, it discards each answer about attributes that is on its way, and continues with its former state;
//! dropped late, a read that began after the recall was acknowledged would end at the former end of the file. Leaves to
//! others: how pages are dropped ([`crate::notify`]).

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use frieze_base::InodeId;

/// Files whose pages are to be dropped.
#[derive(Debug)]
pub(crate) struct PageInvalidation {
    inodes: Vec<InodeId>,
    progress: Mutex<InvalidationProgress>,
    moved: Condvar,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct InvalidationProgress {
    begun: usize,
    ended: usize,
}

impl PageInvalidation {
    pub(crate) fn new(inodes: Vec<InodeId>) -> PageInvalidation {
        PageInvalidation { inodes, progress: Mutex::default(), moved: Condvar::new() }
    }

    /// Drops, one after the other, the files that no thread has begun.
    pub(crate) fn work(&self, drop: impl Fn(InodeId)) {
        while let Some(inode) = self.begin() {
            drop(inode);
            self.lock().ended += 1;
            self.moved.notify_one();
        }
    }

    /// Waits until all are dropped, or until a time limit; `another` starts another thread where one is stuck, if it
    /// can. Returns how many are not known to be dropped; files that were not begun never are.
    pub(crate) fn wait(&self, another: impl Fn() -> Option<()>) -> usize {
        let mut others = 0;
        let mut progress = self.lock();
        while progress.ended < self.inodes.len() {
            let seen = *progress;
            progress = self.moved.wait_timeout(progress, DROPPED).unwrap_or_else(PoisonError::into_inner).0;
            if *progress != seen {
                continue;
            }
            let can_begin = progress.begun < self.inodes.len() && others < OTHERS_MAX;
            if !can_begin || another().is_none() {
                progress.begun = self.inodes.len();
                break;
            }
            others += 1;
        }
        self.inodes.len() - progress.ended
    }

    fn begin(&self) -> Option<InodeId> {
        let mut progress = self.lock();
        let inode = self.inodes.get(progress.begun).copied()?;
        progress.begun += 1;
        Some(inode)
    }

    fn lock(&self) -> MutexGuard<'_, InvalidationProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Longer than a page takes to be dropped that no request holds, and than a thread waits for its processor.
const DROPPED: Duration = Duration::from_millis(20);
/// Files of one recall that are waited for side by side, less one.
const OTHERS_MAX: usize = 7;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, channel};
    use std::thread;

    use super::*;

    fn inodes(count: u64) -> Vec<InodeId> {
        (1..=count).map(InodeId).collect()
    }

    /// The files dropped by a thread that waits for ever at the files that are `held`.
    fn worker(dropping: &Arc<PageInvalidation>, held: &'static [u64], log: &Arc<Mutex<Vec<u64>>>, until: Receiver<()>) {
        let (dropping, log) = (dropping.clone(), log.clone());
        thread::spawn(move || {
            dropping.work(|inode| {
                if held.contains(&inode.0) {
                    let _ = until.recv();
                }
                log.lock().unwrap().push(inode.0);
            });
        });
    }

    #[test]
    fn all_are_dropped_where_nothing_holds_them() {
        let (dropping, log) = (Arc::new(PageInvalidation::new(inodes(100))), Arc::default());
        let another = || {
            worker(&dropping, &[], &log, channel().1);
            Some(())
        };
        another();
        assert_eq!(dropping.wait(another), 0);
        let mut log = log.lock().unwrap();
        log.sort_unstable();
        assert_eq!(*log, (1..=100).collect::<Vec<_>>());
    }

    #[test]
    fn a_blocked_invalidation_does_not_delay_others() {
        let (dropping, log) = (Arc::new(PageInvalidation::new(inodes(5))), Arc::default());
        let (hold, until) = channel();
        worker(&dropping, &[2, 4], &log, until);
        let holds = Mutex::new(vec![hold]);
        let left = dropping.wait(|| {
            let (hold, until) = channel();
            holds.lock().unwrap().push(hold);
            worker(&dropping, &[2, 4], &log, until);
            Some(())
        });
        assert_eq!(left, 2);
        let mut log = log.lock().unwrap();
        log.sort_unstable();
        assert_eq!(*log, [1, 3, 5]);
    }

    #[test]
    fn what_no_thread_has_begun_in_time_is_never_begun() {
        let (dropping, log) = (Arc::new(PageInvalidation::new(inodes(3))), Arc::<Mutex<Vec<u64>>>::default());
        // No thread reaches it: the thread waits for pages of another recall.
        assert_eq!(dropping.wait(|| None), 3);
        let (_hold, until) = channel();
        worker(&dropping, &[], &log, until);
        dropping.work(|_| unreachable!("the recall was acknowledged"));
        assert!(log.lock().unwrap().is_empty());
    }
}
