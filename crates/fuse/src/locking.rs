//! Locks of files, held on the server: fcntl(2) and flock(2) of programs on this mount against those on others.
//!
//! Guarantees: a waiting program can be interrupted and killed; what this mount holds is asked for again when the server
//! has started anew, before anybody else can get it; a lock is given up with the file, the process or the mount.
//! Leaves to others: who may have which (the server).
//!
//! The kernel's request to wait is kept here without a thread: the server tells when the lock is held, through the
//! question that waits for recalls. FUSE lets a program die only when its request is answered, so the signals of the
//! programs that wait are looked at ten times a second.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread;
use std::time::Duration;

use frieze_base::InodeId;
use frieze_client::{Client, LockKind, LockOutcome, LockRange};
use nix::errno::Errno;

use crate::errno::answer;
use crate::process::has_signal;

/// Called once with how a wait ended.
pub(crate) type Answer = Box<dyn FnOnce(Result<(), Errno>) + Send>;

/// The locks of one mount.
#[derive(Default)]
pub(crate) struct Locking {
    state: Mutex<State>,
    /// Shared by who unlocks; alone by who asks again for what is held: what is unlocked meanwhile would be locked again
    /// behind it, and nobody would unlock it any more.
    unlocking: RwLock<()>,
}

#[derive(Default)]
struct State {
    /// What each owner holds of each file, in the order of asking.
    held: BTreeMap<(InodeId, u64), Vec<LockRange>>,
    waiting: BTreeMap<u64, Waiting>,
    last_wait: u64,
    is_watching: bool,
}

struct Waiting {
    range: LockRange,
    thread: u32,
    answer: Answer,
}

impl Locking {
    /// Locks, unlocks, or waits: `answer` is called when it is decided.
    pub(crate) fn set(
        self: &Arc<Locking>,
        client: &Client,
        range: LockRange,
        wait: bool,
        thread: u32,
        answered: Answer,
    ) {
        if !wait || range.kind() == LockKind::Unlock {
            return answered(self.ask(client, range, 0).and_then(errno_of));
        }
        let number = {
            let mut state = self.lock();
            state.last_wait += 1;
            let number = state.last_wait;
            // Before it is asked for: the server may tell that it is held before it answers the question.
            state.waiting.insert(number, Waiting { range, thread, answer: answered });
            number
        };
        match self.ask(client, range, number) {
            Ok(LockOutcome::Waiting) => self.watch_signals(client),
            outcome => self.finish(number, outcome.and_then(errno_of)),
        }
    }

    /// Looks at signals as long as somebody waits.
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

    /// Who keeps `range` from being locked.
    pub(crate) fn test(&self, client: &Client, range: LockRange) -> Result<Option<LockRange>, Errno> {
        client.test_lock(range).map_err(|error| answer(&error.into()))
    }

    /// An owner is gone from a file, and its locks with it.
    pub(crate) fn release(&self, client: &Client, inode: InodeId, owner: u64) {
        if !self.lock().held.contains_key(&(inode, owner)) {
            return;
        }
        let range = LockRange { inode: inode.0, owner, kind: LockKind::Unlock as i32, start: 0, end: u64::MAX, pid: 0 };
        if let Err(errno) = self.ask(client, range, 0) {
            tracing::warn!(%errno, %inode, "a lock is given up with the session only");
        }
    }

    /// The server says that these waits are over: the locks are held.
    pub(crate) fn served(&self, waits: &[u64]) {
        for wait in waits {
            let range = self.lock().waiting.get(wait).map(|waiting| waiting.range);
            if let Some(range) = range {
                self.note(range);
                self.finish(*wait, Ok(()));
            }
        }
    }

    /// The server has started anew: asks again for what is held and waited for. False if it could not be asked.
    pub(crate) fn ask_again(&self, client: &Client) -> bool {
        let _alone = self.unlocking.write().unwrap_or_else(PoisonError::into_inner);
        loop {
            let held = self.held();
            for range in &held {
                match client.lock(*range, 0, true) {
                    Ok(LockOutcome::Held) => {}
                    Ok(outcome) => tracing::warn!(?outcome, inode = range.inode, "a lock was lost with the server"),
                    Err(error) => {
                        tracing::debug!(%error, "locks are asked for again later");
                        return false;
                    }
                }
            }
            // A lock that was changed meanwhile was perhaps changed back by this.
            if self.held() == held {
                break;
            }
        }
        let waits: Vec<(u64, LockRange)> =
            self.lock().waiting.iter().map(|(number, waiting)| (*number, waiting.range)).collect();
        for (number, range) in waits {
            match client.lock(range, number, true) {
                Ok(LockOutcome::Waiting) => {}
                Ok(LockOutcome::Held) => self.served(&[number]),
                Ok(outcome) => self.finish(number, errno_of(outcome)),
                Err(_) => return false,
            }
        }
        true
    }

    /// Ends the waits of programs that have a signal to act on.
    pub(crate) fn interrupt(&self, client: &Client) {
        let waiting: Vec<(u64, u32)> =
            self.lock().waiting.iter().map(|(number, waiting)| (*number, waiting.thread)).collect();
        for (number, thread) in waiting {
            if !has_signal(thread) {
                continue;
            }
            match client.cancel_lock(number) {
                // It was held before the signal was seen.
                Ok(LockOutcome::Held) => self.served(&[number]),
                _ => self.finish(number, Err(Errno::EINTR)),
            }
        }
    }

    /// The mount ends: nobody waits any more.
    pub(crate) fn end(&self) {
        let waiting = std::mem::take(&mut self.lock().waiting);
        for (_, Waiting { answer, .. }) in waiting {
            answer(Err(Errno::EIO));
        }
    }

    fn held(&self) -> Vec<LockRange> {
        self.lock().held.values().flatten().copied().collect()
    }

    fn ask(&self, client: &Client, range: LockRange, wait: u64) -> Result<LockOutcome, Errno> {
        // New locks are not kept waiting: the server refuses them while other mounts may ask again, and they for us.
        let unlocks = range.kind() == LockKind::Unlock;
        let _unlocking = unlocks.then(|| self.unlocking.read().unwrap_or_else(PoisonError::into_inner));
        let outcome = client.lock(range, wait, false).map_err(|error| answer(&error.into()))?;
        if outcome == LockOutcome::Held {
            self.note(range);
        }
        Ok(outcome)
    }

    /// Keeps in mind what is held, to ask for it again.
    fn note(&self, range: LockRange) {
        let mut state = self.lock();
        let key = (InodeId(range.inode), range.owner);
        let mut rest = Vec::new();
        for older in state.held.remove(&key).unwrap_or_default() {
            if older.end < range.start || range.end < older.start {
                rest.push(older);
                continue;
            }
            if older.start < range.start {
                rest.push(LockRange { end: range.start - 1, ..older });
            }
            if range.end < older.end {
                rest.push(LockRange { start: range.end + 1, ..older });
            }
        }
        if range.kind() != LockKind::Unlock {
            rest.push(range);
        }
        if !rest.is_empty() {
            state.held.insert(key, rest);
        }
    }

    fn finish(&self, number: u64, result: Result<(), Errno>) {
        let waiting = self.lock().waiting.remove(&number);
        if let Some(Waiting { answer, .. }) = waiting {
            answer(result);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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

/// How often the signals of programs that wait are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
