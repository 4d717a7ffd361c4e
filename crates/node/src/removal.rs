//! Removal of this server from its cluster: it is recorded for the next start, and the callback of the process runs.
//!
//! A removed server receives nothing from a leader and learns of no decision, so it finds out by connecting: the other
//! servers prove that they belong to the cluster, and then refuse its connections with the reason. They refuse only
//! when they have executed the decision *and* the node is no member of the metalog any more, so no server ends while
//! its vote still counts.
//!
//! Guarantees: once the server has received such a refusal, no later start serves the directory, whichever server
//! answers.
//! Leaves to others: when a connection is refused (`parts::control`, `serve::links`), and ending the process (its
//! owner).

use frieze_base::{Fault, Reason};
use frieze_locks::{Mutex, MutexGuard, levels};
use frieze_storage::Identity;

/// Callback that runs once, with the reason why this server ends.
pub(crate) type OnRemoval = Box<dyn FnOnce(Fault) + Send>;

/// Whether this server ends: it was removed, or its cluster has ended ([`crate::successor`]).
#[derive(Default)]
pub(crate) struct Removal(Mutex<levels::Removal, RemovalState>);

#[derive(Default)]
struct RemovalState {
    fault: Option<Fault>,
    call: Option<OnRemoval>,
}

impl Removal {
    /// Registers `call` for the end of this server. If the end has begun, `call` runs at once.
    pub(crate) fn watch(&self, call: OnRemoval) {
        let mut state = self.lock();
        match state.fault.clone() {
            Some(fault) => {
                drop(state);
                call(fault);
            }
            None => state.call = Some(call),
        }
    }

    /// Records why this server ends. Returns the callback, the first time.
    pub(crate) fn begin(&self, fault: &Fault) -> Option<OnRemoval> {
        let mut state = self.lock();
        if state.fault.is_some() {
            return None;
        }
        state.fault = Some(fault.clone());
        Some(state.call.take().unwrap_or_else(|| Box::new(drop)))
    }

    /// Why the server ends, if it was removed or its cluster has ended.
    pub(crate) fn fault(&self) -> Option<Fault> {
        self.lock().fault.clone()
    }

    fn lock(&self) -> MutexGuard<'_, RemovalState> {
        self.0.lock()
    }
}

/// Whether a server may start on the directory with this record.
///
/// # Errors
/// `Removed` if its server was removed from its cluster, with what to do.
pub(crate) fn check_may_start(directory: &std::path::Path, identity: &Identity) -> Result<(), Fault> {
    if !identity.is_removed {
        return Ok(());
    }
    let (directory, node, cluster) = (directory.display(), identity.node_id(), identity.cluster_id());
    Err(Fault::new(
        Reason::Removed,
        format!(
            "{directory} is of node {node} of cluster {cluster}, which was removed from it: for this machine to be a \
             server of the cluster again, start it on an empty directory with --join; 'frieze export {directory}' \
             reads out what is in this one"
        ),
    ))
}
