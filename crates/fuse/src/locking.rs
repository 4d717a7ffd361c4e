//! Locks of files at the server: fcntl(2) and flock(2) of programs on this mount against those on other mounts.
//!
//! Guarantees: a waiting program can be interrupted and killed; this mount claims its locks again when the server has
//! restarted, before another client can get them; a lock ends with the file, the process or the mount. A lock that
//! another client got while the mount hung or was cut off for longer than its lease is lost: reads and writes through
//! the open file of the lock fail with `EIO`, before anything is read or changed without the lock.
//!
//! The kernel names at each close(2) the owner whose fcntl locks end, and at the last close of a description the one
//! whose flock ends. It does not name a lock of the description itself (`F_OFD_SETLK`). So each lock is recorded with
//! the handle of its request: a lock that the last close finds under its handle is such a lock, because those of
//! processes have ended with their descriptors. Leaves to others: conflicts of locks (the server).
//!
//! The kernel's request to wait is kept here without a thread: the server reports the grant by the request that waits
//! for recalls. FUSE lets a program die only when its request is answered, so the signals of the waiting programs are
//! checked ten times a second.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread;
use std::time::Duration;

use frieze_base::InodeId;
use frieze_client::{Client, LockKind, LockOutcome, LockRange};
use nix::errno::Errno;

use crate::errno::answer;
use crate::process::has_signal;

/// Called once with how a wait ended.
pub(crate) type LockAnswer = Box<dyn FnOnce(Result<(), Errno>) + Send>;

/// The locks of one mount.
#[derive(Default)]
pub(crate) struct Locking {
    state: Mutex<LockTable>,
    /// Read lock: an unlock. Write lock: claiming the locks again. A lock that is released during the claim would be
    /// claimed after its release, and stay for ever.
    unlocking: RwLock<()>,
    /// A lock is held or lost: reads and writes check it first.
    is_used: AtomicBool,
    /// The lease has run out, and the locks have not been claimed again since.
    is_unsure: AtomicBool,
}

#[derive(Default)]
struct LockTable {
    /// The locks of each owner in each file, in the order of their requests.
    held: BTreeMap<(InodeId, u64), Vec<GrantedLock>>,
    /// Open files with a lock that was lost to another client.
    lost: BTreeSet<u64>,
    waiting: BTreeMap<u64, WaitingLock>,
    last_wait: u64,
    /// Restarts of the server after which the waits were requested again.
    lives: u64,
    is_watching: bool,
}

#[derive(Clone, Copy, PartialEq)]
struct GrantedLock {
    range: LockRange,
    /// The open file of its request.
    handle: u64,
}

struct WaitingLock {
    wanted: GrantedLock,
    /// The server has answered that it waits. Before, the request is under way and reaches the server by itself:
    /// requested a second time, the lock would be granted a second time after the program has released it, and never be
    /// released.
    is_known: bool,
    thread: u32,
    answer: LockAnswer,
}

/// A lock as a program asks for it.
#[derive(Clone, Copy)]
pub(crate) struct LockRequest {
    /// The range, the file and the owner.
    pub(crate) range: LockRange,
    /// Through which open file.
    pub(crate) handle: u64,
    /// Whether the program waits.
    pub(crate) wait: bool,
    /// The thread that asks: it waits no longer than until it has a signal.
    pub(crate) thread: u32,
}

impl Locking {
    /// Locks, unlocks, or waits: `answer` is called when it is decided.
    pub(crate) fn set(self: &Arc<Locking>, client: &Client, asked: LockRequest, answered: LockAnswer) {
        let LockRequest { range, handle, wait, thread } = asked;
        let wanted = GrantedLock { range, handle };
        if !wait || range.kind() == LockKind::Unlock {
            return answered(self.ask(client, wanted, 0).and_then(errno_of));
        }
        let number = {
            let mut state = self.lock();
            state.last_wait += 1;
            let number = state.last_wait;
            // Before its request: the server may report the grant before it answers the request.
            state.waiting.insert(number, WaitingLock { wanted, is_known: false, thread, answer: answered });
            number
        };
        loop {
            let lives = self.lock().lives;
            match self.ask(client, wanted, number) {
                Ok(LockOutcome::Waiting) => {
                    let mut state = self.lock();
                    let is_of_now = state.lives == lives;
                    let Some(waiting) = state.waiting.get_mut(&number) else { return };
                    if is_of_now {
                        waiting.is_known = true;
                        break;
                    }
                    // The server may have started anew since it answered.
                }
                outcome => return self.finish(number, outcome.and_then(errno_of)),
            }
        }
        self.watch_signals(client);
    }

    /// Checks signals as long as a program waits.
    fn watch_signals(self: &Arc<Locking>, client: &Client) {
        if std::mem::replace(&mut self.lock().is_watching, true) {
            return;
        }
        let (locking, client) = (self.clone(), client.clone());
        let watch = move || {
            loop {
                thread::park_timeout(LOOK_EVERY);
                locking.interrupt(&client);
                let mut state = locking.lock();
                if state.waiting.is_empty() {
                    state.is_watching = false;
                    return;
                }
            }
        };
        if let Err(error) = thread::Builder::new().name("frieze-signals".to_owned()).spawn(watch) {
            tracing::warn!(%error, "programs that wait for locks cannot be interrupted");
            self.lock().is_watching = false;
        }
    }

    /// The lock that prevents `range` from being locked.
    pub(crate) fn test(&self, client: &Client, range: LockRange) -> Result<Option<LockRange>, Errno> {
        client.test_lock(range).map_err(|error| answer(&error.into()))
    }

    /// An owner has closed a file, which ends its locks.
    pub(crate) fn release(&self, client: &Client, inode: InodeId, owner: u64) {
        if !self.lock().held.contains_key(&(inode, owner)) {
            return;
        }
        let range = LockRange { inode: inode.0, owner, kind: LockKind::Unlock as i32, start: 0, end: u64::MAX, pid: 0 };
        if let Err(errno) = self.ask(client, GrantedLock { range, handle: 0 }, 0) {
            tracing::warn!(%errno, %inode, "a lock is given up with the session only");
        }
    }

    /// The last descriptor of an open file is closed: its own locks end.
    pub(crate) fn close(&self, client: &Client, inode: InodeId, handle: u64) {
        let owners: Vec<u64> = {
            let mut state = self.lock();
            state.lost.remove(&handle);
            let of_inode = state.held.range((inode, 0)..=(inode, u64::MAX));
            let is_own = |(_, held): &(_, &Vec<GrantedLock>)| held.iter().any(|held| held.handle == handle);
            of_inode.filter(is_own).map(|((_, owner), _)| *owner).collect()
        };
        for owner in owners {
            self.release(client, inode, owner);
        }
    }

    /// Checks that the locks of an open file are still valid, before bytes are read or written through it.
    /// `has_lapsed`: the mount's lease has run out.
    pub(crate) fn check(
        &self,
        client: &Client,
        inode: InodeId,
        handle: u64,
        has_lapsed: impl FnOnce() -> bool,
    ) -> Result<(), Errno> {
        if !self.is_used.load(Ordering::Acquire) {
            return Ok(());
        }
        if self.is_unsure.load(Ordering::Acquire) || has_lapsed() {
            let _alone = self.unlocking.write().unwrap_or_else(PoisonError::into_inner);
            let held: Vec<GrantedLock> = {
                let state = self.lock();
                let of_inode = state.held.range((inode, 0)..=(inode, u64::MAX)).flat_map(|(_, held)| held);
                of_inode.filter(|held| held.handle == handle).copied().collect()
            };
            for held in held {
                self.claim(client, held).map_err(|error| answer(&error.into()))?;
            }
        }
        if self.lock().lost.contains(&handle) { Err(Errno::EIO) } else { Ok(()) }
    }

    /// The lease has run out: other clients may have got the locks.
    pub(crate) fn mark_unsure(&self) {
        self.is_unsure.store(true, Ordering::Release);
    }

    /// Claims a lock again; it is lost if another client has got it.
    fn claim(&self, client: &Client, held: GrantedLock) -> Result<(), frieze_client::Error> {
        let outcome = client.lock(held.range, 0, true)?;
        if outcome != LockOutcome::Held {
            tracing::warn!(?outcome, inode = held.range.inode, "a lock was lost to others");
            let mut state = self.lock();
            state.lost.insert(held.handle);
            state.note(GrantedLock { range: LockRange { kind: LockKind::Unlock as i32, ..held.range }, ..held });
        }
        Ok(())
    }

    /// The server reports that these waits are over: the locks are granted.
    pub(crate) fn served(&self, waits: &[u64]) {
        for wait in waits {
            let wanted = self.lock().waiting.get(wait).map(|waiting| waiting.wanted);
            if let Some(wanted) = wanted {
                self.note(wanted);
                self.finish(*wait, Ok(()));
            }
        }
    }

    /// The server has restarted: claims the locks and the waits again. False if it could not be reached.
    pub(crate) fn ask_again(&self, client: &Client) -> bool {
        let _alone = self.unlocking.write().unwrap_or_else(PoisonError::into_inner);
        loop {
            let held = self.granted();
            for held in &held {
                if let Err(error) = self.claim(client, *held) {
                    tracing::debug!(%error, "locks are asked for again later");
                    return false;
                }
            }
            // A lock that was changed meanwhile was perhaps changed back by this claim; a lost one is not claimed any
            // more.
            if self.granted().len() <= held.len() && self.granted().iter().all(|still| held.contains(still)) {
                break;
            }
        }
        let waits: Vec<(u64, LockRange)> = {
            let mut state = self.lock();
            state.lives += 1;
            let known = state.waiting.iter().filter(|(_, waiting)| waiting.is_known);
            known.map(|(number, waiting)| (*number, waiting.wanted.range)).collect()
        };
        for (number, range) in waits {
            match client.lock(range, number, true) {
                Ok(LockOutcome::Waiting) => {}
                Ok(LockOutcome::Held) => self.served(&[number]),
                Ok(outcome) => self.finish(number, errno_of(outcome)),
                Err(_) => return false,
            }
        }
        self.is_unsure.store(false, Ordering::Release);
        true
    }

    /// Ends the waits of programs that have a signal to act on.
    pub(crate) fn interrupt(&self, client: &Client) {
        // A request that is under way cannot be cancelled: it is checked when it is answered.
        let waiting: Vec<(u64, u32, LockRange)> = {
            let state = self.lock();
            let known = state.waiting.iter().filter(|(_, waiting)| waiting.is_known);
            known.map(|(number, waiting)| (*number, waiting.thread, waiting.wanted.range)).collect()
        };
        for (number, thread, range) in waiting {
            if !has_signal(thread) {
                continue;
            }
            match client.cancel_lock(number) {
                // It was granted before the signal was noticed; or the server has restarted, and does not know the
                // wait.
                Ok(LockOutcome::Held) => match client.lock(range, 0, false) {
                    Ok(LockOutcome::Held) => self.served(&[number]),
                    Ok(_) => self.finish(number, Err(Errno::EINTR)),
                    Err(error) => tracing::debug!(%error, "a wait that was taken back is looked at again"),
                },
                _ => self.finish(number, Err(Errno::EINTR)),
            }
        }
    }

    /// The mount ends: no wait continues.
    pub(crate) fn end(&self) {
        let waiting = std::mem::take(&mut self.lock().waiting);
        for (_, WaitingLock { answer, .. }) in waiting {
            answer(Err(Errno::EIO));
        }
    }

    fn granted(&self) -> Vec<GrantedLock> {
        self.lock().held.values().flatten().copied().collect()
    }

    fn ask(&self, client: &Client, wanted: GrantedLock, wait: u64) -> Result<LockOutcome, Errno> {
        let range = wanted.range;
        // New locks are not kept waiting: the server refuses them while other mounts may ask again, and they for us.
        let unlocks = range.kind() == LockKind::Unlock;
        let _unlocking = unlocks.then(|| self.unlocking.read().unwrap_or_else(PoisonError::into_inner));
        let outcome = client.lock(range, wait, false).map_err(|error| answer(&error.into()))?;
        if outcome == LockOutcome::Held {
            self.note(wanted);
        }
        Ok(outcome)
    }

    /// Records a lock, to claim it again.
    fn note(&self, newer: GrantedLock) {
        self.lock().note(newer);
        self.is_used.store(true, Ordering::Release);
    }

    fn finish(&self, number: u64, result: Result<(), Errno>) {
        let waiting = self.lock().waiting.remove(&number);
        if let Some(WaitingLock { answer, .. }) = waiting {
            answer(result);
        }
    }

    fn lock(&self) -> MutexGuard<'_, LockTable> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LockTable {
    fn note(&mut self, newer: GrantedLock) {
        let range = newer.range;
        let key = (InodeId(range.inode), range.owner);
        let mut rest = Vec::new();
        for held in self.held.remove(&key).unwrap_or_default() {
            let older = held.range;
            if older.end < range.start || range.end < older.start {
                rest.push(held);
                continue;
            }
            if older.start < range.start {
                rest.push(GrantedLock { range: LockRange { end: range.start - 1, ..older }, ..held });
            }
            if range.end < older.end {
                rest.push(GrantedLock { range: LockRange { start: range.end + 1, ..older }, ..held });
            }
        }
        if range.kind() != LockKind::Unlock {
            rest.push(newer);
        }
        if !rest.is_empty() {
            self.held.insert(key, rest);
        }
    }
}

fn errno_of(outcome: LockOutcome) -> Result<(), Errno> {
    match outcome {
        LockOutcome::Held => Ok(()),
        LockOutcome::Refused | LockOutcome::Waiting => Err(Errno::EAGAIN),
        LockOutcome::Deadlock => Err(Errno::EDEADLK),
        LockOutcome::Cancelled => Err(Errno::EINTR),
        LockOutcome::Full => Err(Errno::ENOLCK),
    }
}

/// Interval between two checks of the signals of waiting programs.
const LOOK_EVERY: Duration = Duration::from_millis(100);
