//! The actor of an undo: which changes of the history are its own.

use frieze_base::SessionId;
use frieze_hlc::Hlc;
use frieze_namespace::{Revision, SubjectChange};
use frieze_wire::txn::Caller;

/// The actor whose changes are undone.
pub(super) struct Actor<'a> {
    pub(super) sessions: &'a [u64],
    pub(super) uid: Option<u32>,
    pub(super) after: Hlc,
    pub(super) upto: Hlc,
    /// The caller of the undo.
    pub(super) caller: &'a Caller,
}

impl Actor<'_> {
    pub(super) fn did(&self, stamp: Hlc, session: SessionId, uid: u32) -> bool {
        self.may_have_done((stamp, stamp), session, uid)
    }

    /// True if the actor may have made one of several changes of which only the first and the last stamp are known.
    pub(super) fn may_have_done(&self, (first, last): (Hlc, Hlc), session: SessionId, uid: u32) -> bool {
        (self.sessions.is_empty() || self.sessions.contains(&session.0))
            && self.uid.is_none_or(|wanted| wanted == uid)
            && last > self.after
            && first <= self.upto
    }

    pub(super) fn made(&self, revision: &Revision) -> bool {
        self.did(revision.stamp, revision.session, revision.uid)
    }

    /// The users on whose behalf the actor made the change; empty if the actor did not.
    pub(super) fn uids<'a>(&'a self, change: &'a SubjectChange) -> impl Iterator<Item = u32> + 'a {
        change.revisions.iter().filter(|revision| self.made(revision)).map(|revision| revision.uid)
    }
}
