//! Sessions that have ended and changed nothing: they are listed for a while, and then erased.
//!
//! Guarantees: a session in here is named by no version of any name, inode, attribute, snapshot or horizon, so no answer at any instant
//! depends on it; there are never more than [`ENDED_SESSIONS_MAX`]. All replicas erase the same ones, by the same transactions.
//! Leaves to others: how long they are listed (`node`), the sessions that changed something, which stay as long as history.
//!
//! An open session that has changed nothing is marked so in its one version. The first change takes the mark away, and the end of one that
//! still has it is written into that version, in its place: a restart finds both. Erasing takes the version away.

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::SessionId;
use frieze_hlc::Hlc;
use frieze_wire::txn::EraseSessions;
use prost::Message;

use crate::apply::{Done, Run};
use crate::error::Error;
use crate::history::Change;
use crate::key::Key;
use crate::namespace::{Namespace, Session};
use crate::stored::StoredSession;

/// Sessions that ended without a change and are listed. When one more ends, the one that ended first is erased: 100,000 short sessions an
/// hour leave 1 MiB in memory and a few in the store, however long sessions are to be listed.
pub const ENDED_SESSIONS_MAX: usize = 16_384;
/// Sessions that one transaction erases.
const ERASED_MAX: usize = 1024;

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
    fn take_first(&mut self, before: Hlc) -> Option<SessionId> {
        let first = self.by_end.first().copied().filter(|(ended, _)| *ended < before)?;
        self.by_end.remove(&first);
        self.ended.remove(&first.1);
        Some(first.1)
    }
}

impl Namespace {
    /// True if a session that changed nothing ended before `before`, and is still listed.
    pub fn has_ended_before(&self, before: Hlc) -> bool {
        self.ended.by_end.first().is_some_and(|(ended, _)| *ended < before)
    }

    /// A session has changed something: its number is in versions that stay.
    pub(crate) fn note_change(&mut self, id: SessionId, changes: &mut Vec<Change>) {
        let Some(session) = self.sessions.get_mut(&id).filter(|session| session.unchanging) else { return };
        session.unchanging = false;
        changes.push(written_again(id, &StoredSession::of(session)));
    }

    /// A session ends that has changed nothing.
    pub(crate) fn end_unchanging(&mut self, run: &mut Run<'_>, id: SessionId, session: &Session) {
        run.changes.push(written_again(id, &StoredSession { ended: run.stamp.0, ..StoredSession::of(session) }));
        self.ended.insert(id, run.stamp);
        while self.ended.by_end.len() > ENDED_SESSIONS_MAX {
            run.changes.extend(self.ended.take_first(Hlc::MAX).map(erasure));
        }
    }

    pub(crate) fn erase_sessions(&mut self, run: &mut Run<'_>, op: &EraseSessions) -> Result<Done, Error> {
        let before = Hlc(op.before);
        if before > run.stamp {
            return Err(Error::Future { at: before, now: run.stamp });
        }
        for _ in 0..ERASED_MAX {
            let Some(id) = self.ended.take_first(before) else { break };
            run.changes.push(erasure(id));
        }
        Ok(Done::default())
    }
}

/// The one version of a session, in the place of what it was.
fn written_again(id: SessionId, stored: &StoredSession) -> Change {
    Change { key: Key::Session(id).encode(), stamp: Hlc(id.0), value: Some(stored.encode_to_vec()) }
}

/// A session's only version goes: see [`crate::erases`].
fn erasure(id: SessionId) -> Change {
    Change { key: Key::Session(id).encode(), stamp: Hlc(id.0), value: None }
}
