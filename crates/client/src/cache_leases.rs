//! Cache leases: how long a reply may be used without another request, and the connection on which they are recalled.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use frieze_net::CancelHandle;
use frieze_wire::Holds;
use frieze_wire::message::{Attr, TxnReply};

/// The cache leases of the last reply to a request for them.
#[derive(Debug, Default)]
pub struct CacheLease {
    holds: AtomicU32,
    parents: Mutex<ChangedParents>,
}

/// The directories that a change of names changed.
#[derive(Clone, Debug, Default)]
pub struct ChangedParents {
    /// Their attributes just after the change; empty if the reply had none.
    pub attrs: Vec<Attr>,
    /// How long they may be used, in milliseconds.
    pub holds_ms: u32,
}

impl CacheLease {
    /// The leases of the last reply; none before the first.
    pub fn holds(&self) -> Holds {
        let bits = self.holds.load(Ordering::Relaxed);
        Holds { names_ms: bits as u16, files_ms: (bits >> 16) as u16 }
    }

    /// Takes the directories that the last change of names changed.
    pub fn take_parents(&self) -> ChangedParents {
        std::mem::take(&mut *self.parents.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn note_parents(&self, reply: &mut TxnReply) {
        let parents = ChangedParents { attrs: std::mem::take(&mut reply.parents), holds_ms: reply.parents_ms };
        *self.parents.lock().unwrap_or_else(PoisonError::into_inner) = parents;
    }

    pub(crate) fn note(&self, holds: Holds) {
        self.holds.store(u32::from(holds.names_ms) | u32::from(holds.files_ms) << 16, Ordering::Relaxed);
    }
}

/// The connection on which a thread waits for recalls.
#[derive(Debug, Default)]
pub(crate) struct RecallConnection(Mutex<Option<CancelHandle>>);

impl RecallConnection {
    pub(crate) fn set(&self, handle: CancelHandle) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(handle);
    }

    /// Ends it: the thread that waits there makes a new request.
    pub(crate) fn cancel(&self) {
        if let Some(handle) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            handle.cancel();
        }
    }
}
