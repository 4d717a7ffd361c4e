//! What a server does about changes of metadata before they can be read.

use std::sync::Arc;

use frieze_base::{Seq, SessionId};
use frieze_namespace::{KeyVersion, ReadSet};

/// Is called with changes of metadata before any reader can see them: cache leases of other sessions are recalled.
pub trait ChangeObserver: Send + Sync {
    /// The request `by` made `changes`. The namespace is locked until this returns.
    fn changed(&self, by: (SessionId, Seq), changes: &[KeyVersion]);

    /// This server begins to lead. What the leader before granted to these sessions is not known.
    fn begin_to_lead(&self, sessions: Vec<SessionId>);

    /// This server leads no more.
    fn resign(&self);
}

/// What a transaction reads is added to it. It may outlive the request.
pub type SharedReadSet = Arc<dyn ReadSet + Send>;
