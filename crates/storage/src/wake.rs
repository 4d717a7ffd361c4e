//! A flag that wakes a waiting thread.

use std::sync::{Arc, Mutex, PoisonError};

/// A flag that one thread waits for and any thread sets.
#[derive(Default)]
pub struct Wake {
    wanted: Mutex<bool>,
    changed: std::sync::Condvar,
}

impl Wake {
    /// Sets the flag, and wakes the thread that waits for it.
    pub fn wake(self: &Arc<Self>) {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        if !*wanted {
            *wanted = true;
            self.changed.notify_one();
        }
    }

    /// Waits until woken, at most `timeout`. True if woken.
    pub fn wait(&self, timeout: std::time::Duration) -> bool {
        let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut wanted, _) =
            self.changed.wait_timeout_while(wanted, timeout, |wanted| !*wanted).unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *wanted)
    }
}
