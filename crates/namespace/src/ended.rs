//! Sessions that have ended and changed nothing: they are listed for a while, and then erased.
//!
//! Guarantees: a session in here is named by no version of any name, inode, attribute, snapshot or horizon, so no
//! answer at any instant depends on it; there are never more than [`ENDED_SESSIONS_MAX`]. All replicas erase the same
//! ones, by the same transactions.
//! Leaves to others: how long they are listed (`node`), the sessions that changed something, which stay as long as
//! history.
//!
//! An open session that has changed nothing is marked so in its one version. The first change takes the mark away, and
//! the end of one that still has it is written into that version, in its place: a restart finds both. Erasing takes the
//! version away.

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::SessionId;
use frieze_hlc::Hlc;

/// Sessions that ended without a change and are listed. When one more ends, the one that ended first is erased: 100,000
/// short sessions an hour leave 1 MiB in memory and a few in the store, however long sessions are to be listed.
pub const ENDED_SESSIONS_MAX: usize = 16_384;
/// When sessions ended that changed nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EndedSessions {
    ended: BTreeMap<SessionId, Hlc>,
    by_end: BTreeSet<(Hlc, SessionId)>,
}

impl EndedSessions {
    pub(crate) fn insert(&mut self, id: SessionId, ended: Hlc) {
        self.ended.insert(id, ended);
        self.by_end.insert((ended, id));
    }

    /// When it ended; `None` if it is open, changed something, or was erased.
    pub(crate) fn end_of(&self, id: SessionId) -> Option<Hlc> {
        self.ended.get(&id).copied()
    }

    /// Takes out the one that ended first, if it ended before `before`.
    pub(crate) fn take_first(&mut self, before: Hlc) -> Option<SessionId> {
        let first = self.by_end.first().copied().filter(|(ended, _)| *ended < before)?;
        self.by_end.remove(&first);
        self.ended.remove(&first.1);
        Some(first.1)
    }

    /// When the one that ended first did.
    pub(crate) fn first_end(&self) -> Option<Hlc> {
        self.by_end.first().map(|(ended, _)| *ended)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_end.len()
    }
}
