//! What belongs to one process: connections, threads and locks do not survive a fork.
//!
//! A child of `fork` has a copy of its parent's memory, but none of its threads: a lock that another thread had is
//! locked for ever, and a socket is shared with the parent. So the child leaves everything as it is, does not even drop
//! it (the last drop of a client ends the parent's session), and makes its own.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::Python;

/// A value of the process that made it.
///
/// The lock is taken only by threads that have the interpreter's lock, and for a moment: `os.fork` needs that lock too,
/// so no other thread has this one while a process forks.
#[derive(Debug)]
pub(crate) struct PerProcess<T>(Mutex<OfProcess<T>>);

#[derive(Debug)]
struct OfProcess<T> {
    pid: u32,
    value: Option<Arc<T>>,
}

impl<T> PerProcess<T> {
    /// A value of this process.
    pub(crate) fn new(value: Arc<T>) -> PerProcess<T> {
        PerProcess(Mutex::new(OfProcess { pid: std::process::id(), value: Some(value) }))
    }

    /// The value, if this process made it, and it was not taken.
    pub(crate) fn get(&self) -> Option<Arc<T>> {
        let owned = self.lock();
        owned.value.clone().filter(|_| owned.pid == std::process::id())
    }

    /// True in a process that was forked from the one that made the value.
    pub(crate) fn is_of_parent(&self) -> bool {
        self.lock().pid != std::process::id()
    }

    /// Makes `value` that of this process, unless another thread was faster. Returns the one that counts.
    pub(crate) fn renew(&self, value: Arc<T>) -> Arc<T> {
        let mut owned = self.lock();
        if let Some(there) = owned.value.as_ref().filter(|_| owned.pid == std::process::id()) {
            return there.clone();
        }
        std::mem::forget(owned.value.replace(value.clone()));
        owned.pid = std::process::id();
        value
    }

    /// Takes the value out; the parent's is left as it is.
    pub(crate) fn take(&self) -> Option<Arc<T>> {
        let mut owned = self.lock();
        let value = owned.value.take();
        if owned.pid == std::process::id() {
            return value;
        }
        std::mem::forget(value);
        None
    }

    fn lock(&self) -> MutexGuard<'_, OfProcess<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Send + Sync> PerProcess<T> {
    /// Drops the value without the interpreter's lock: the last drop may wait for the server.
    pub(crate) fn drop_detached(&self) {
        let Some(value) = self.take() else { return };
        let mut value = Some(value);
        // Without an interpreter, at the end of the process, it is dropped as it is.
        let _ = Python::try_attach(|py| py.detach(|| drop(value.take())));
    }
}

impl<T> Drop for PerProcess<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}
