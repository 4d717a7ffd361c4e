//! Threads of the server: every one is spawned here.

use std::thread::JoinHandle;

use frieze_base::{Fault, Reason};

/// Stack of a connection's thread: the deepest request (a listing of the past) uses a quarter of it.
const STACK_BYTES: usize = 512 << 10;

/// Spawns a thread of the server.
///
/// # Errors
/// `Overloaded` if the system refuses another thread.
pub(super) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Fault> {
    std::thread::Builder::new()
        .name(format!("frieze-{name}"))
        .stack_size(STACK_BYTES)
        .spawn(run)
        .map_err(|error| Fault::new(Reason::Overloaded, format!("the system has no more threads to give: {error}")))
}
