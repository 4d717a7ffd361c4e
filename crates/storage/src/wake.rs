//! A flag that wakes a waiting thread.

use std::sync::Arc;

use frieze_locks::{Condvar, Mutex, levels};

/// A flag that one thread waits for and any thread sets.
#[derive(Default)]
pub struct Wake {
    wanted: Mutex<levels::Wake, bool>,
    changed: Condvar,
}

impl Wake {
    /// Sets the flag, and wakes the thread that waits for it.
    pub fn wake(self: &Arc<Self>) {
        let mut wanted = self.wanted.lock();
        if !*wanted {
            *wanted = true;
            self.changed.notify_one();
        }
    }

    /// Waits until woken, at most `timeout`. True if woken.
    pub fn wait(&self, timeout: std::time::Duration) -> bool {
        let wanted = self.wanted.lock();
        let (mut wanted, _) = self.changed.wait_timeout_while(wanted, timeout, |wanted| !*wanted);
        std::mem::take(&mut *wanted)
    }
}
