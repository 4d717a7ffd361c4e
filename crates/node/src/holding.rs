//! Session state: requests about cache leases and locks.
//!
//! Guarantees: a session that may cache is recorded durably before it gets its first lease; an answer that contains a
//! change is sent when no session can still read the state before it. Leaves to others: which session holds what
//! (`grants`, `locks`), waiting answers (`caching`).

use std::sync::{Arc, MutexGuard, PoisonError};

use frieze_base::{Fault, Reason, Seq, SessionId};
use frieze_wire::frame::FrameHeader;
use frieze_wire::holding::{CancelLock, Lock, LockKind, LockReply, Recalls, TestLock, TestLockReply};
use frieze_wire::message::{Read, Request};

use crate::caching::Gate;
use crate::capability::{Presenter, claims_past};
use crate::engine::{Engine, Responder, unknown_session};
use frieze_coherence::{AnswerKeys, CacheKey, FileLocks, GrantedLocks};

impl Engine {
    /// What delays an answer while other sessions may still read an older state of its contents. Empty as long as no
    /// other session caches anything: then only a change has a gate, for a change by a session that begins to cache
    /// meanwhile.
    pub(crate) fn gate(
        &self,
        header: &FrameHeader,
        request: &Request,
        to: &Arc<dyn Responder>,
    ) -> (Option<Arc<dyn Responder>>, Option<Arc<Gate>>) {
        let gate = |told: AnswerKeys| Arc::new(Gate::new(self.caching.clone(), to.clone(), told));
        if self.caching.is_watched(header.session) {
            let gate = gate(self.told_ahead(header, request));
            return (Some(gate.clone()), Some(gate));
        }
        match header.seq {
            Seq(0) => (None, None),
            _ => (Some(gate(EVERYTHING)), None),
        }
    }

    /// The gate of an answer that is ready and has none: a session may have begun to cache during the look-up.
    pub(crate) fn late_gate(&self, header: &FrameHeader, to: &Arc<dyn Responder>) -> Option<Gate> {
        let watched = self.caching.is_watched(header.session);
        watched.then(|| Gate::new(self.caching.clone(), to.clone(), EVERYTHING))
    }

    /// What the answer will contain, as far as the look-up does not find it.
    fn told_ahead(&self, header: &FrameHeader, request: &Request) -> AnswerKeys {
        let opened = |capability: &[u8]| {
            let capability = self.mint.open(capability, Presenter::of_now(header.session)).ok();
            let present = capability.filter(|capability| capability.view.at.is_none());
            AnswerKeys {
                keys: present.map(|capability| CacheKey::inode(capability.inode)).into_iter().collect(),
                everything: false,
            }
        };
        match request {
            Request::Read(ask) => opened(&ask.capability),
            Request::Seek(ask) => opened(&ask.capability),
            Request::Write(ask) => opened(&ask.capability),
            Request::Punch(ask) => opened(&ask.capability),
            // Their reads span whole trees.
            Request::Clone(_) | Request::Restore(_) | Request::Undo(_) | Request::CopyRange(_) => EVERYTHING,
            Request::RemoveTree(_) | Request::JoinFiles(_) => EVERYTHING,
            Request::Forget(_) | Request::Deleted(_) | Request::LastSeen(_) | Request::Usage(_) => EVERYTHING,
            _ => AnswerKeys::default(),
        }
    }

    /// Keeps the request until there is something to recall, or until its timeout.
    pub(crate) fn recalls(
        &self,
        header: &FrameHeader,
        ask: &Recalls,
        responder: &Arc<dyn Responder>,
    ) -> Result<(), Fault> {
        if header.session == SessionId(0) {
            return Err(unknown_session(header.session));
        }
        if !self.caching.is_known(header.session) {
            // Recorded before any lease is granted: after a restart the server must know which sessions may cache.
            let listed = self.keeper.with(|identity| identity.caching.clone());
            let closed = self.meta.closed_sessions(listed.into_iter().map(SessionId));
            // A session that was listed since is not among them, and stays.
            let alive = |id| !closed.contains(&id);
            self.keeper.update(|identity| identity.note_caching(header.session, alive))?;
        }
        if ask.life == self.caching.life() {
            // The session knows this server process, has reclaimed its locks, and has named its open files.
            self.locks().settled(header.session);
            self.opened.settled(header.session);
        }
        self.opened.told(header.session, ask.list, &ask.open);
        self.caching.poll(header, ask.acked, ask.life, responder);
        self.locks().lease(header.session);
        Ok(())
    }

    /// FileLocks or unlocks a range. The kernel of the client asks only for files that are open.
    pub(crate) fn lock(&self, session: SessionId, ask: &Lock) -> Result<LockReply, Fault> {
        if session == SessionId(0) {
            return Err(unknown_session(session));
        }
        let mut served = Vec::new();
        let outcome = {
            let mut locks = self.locks();
            let is_new = ask.range.kind() != LockKind::Unlock && !ask.again;
            if is_new && locks.is_early(self.clock.reading().mono, session) {
                return Err(Fault::new(
                    Reason::Unavailable,
                    "the server has just started: it waits for those who held locks before",
                ));
            }
            locks.lock(session, &ask.range, ask.wait, &mut served)
        };
        self.caching.tell_locked(&served);
        Ok(LockReply { outcome: outcome as i32 })
    }

    pub(crate) fn test_lock(&self, session: SessionId, ask: &TestLock) -> TestLockReply {
        TestLockReply { held: self.locks().test(session, &ask.range) }
    }

    pub(crate) fn cancel_lock(&self, session: SessionId, ask: &CancelLock) -> LockReply {
        LockReply { outcome: self.locks().cancel(session, ask.wait) as i32 }
    }

    /// Ends the locks of sessions that have not polled for recalls for a lease.
    pub(crate) fn end_lapsed_locks(&self) {
        let mut served = GrantedLocks::new();
        self.locks().lapse(|session| self.caching.is_known(session), &mut served);
        self.caching.tell_locked(&served);
    }

    /// The locks and leases of a session end with it.
    pub(crate) fn let_go(&self, session: SessionId) {
        let mut served = GrantedLocks::new();
        self.locks().ended(session, &mut served);
        self.caching.ended(session);
        self.opened.ended(session);
        self.caching.tell_locked(&served);
    }

    fn locks(&self) -> MutexGuard<'_, FileLocks> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All keys: too many to list.
const EVERYTHING: AnswerKeys = AnswerKeys { keys: Vec::new(), everything: true };

/// True if a read only declares that a file is open: no byte lies at its offset.
pub(crate) fn is_claim(ask: &Read) -> bool {
    ask.len == 0 && ask.offset == u64::MAX
}

/// True if the answer is about the present. The past does not change: no answer about it waits for a session.
pub(crate) fn tells_of_now(header: &FrameHeader, request: &Request) -> bool {
    match request {
        Request::Stat(ask) => ask.view.at.is_none() && !ask.recent,
        Request::List(ask) => ask.view.at.is_none(),
        Request::ReadLink(ask) => ask.view.at.is_none(),
        Request::Access(ask) => ask.view.at.is_none(),
        Request::GetXattr(ask) => ask.view.at.is_none(),
        Request::Open(ask) => ask.view.at.is_none(),
        Request::Story(ask) => ask.view.at.is_none(),
        Request::Deleted(ask) => ask.view.at.is_none(),
        // They answer up to now, wherever they begin.
        Request::Log(ask) => !ask.is_past(),
        Request::LastSeen(_) | Request::Usage(_) => true,
        // It declares that a file is open, and its answer is empty. All sessions must declare this before the server
        // can recall their leases, so they must not wait for each other in a circle.
        Request::Read(ask) if is_claim(ask) => false,
        // The claim of the capability sorts reads of the past from reads of now before it is verified: the read itself
        // verifies it.
        Request::Read(ask) => !claims_past(&ask.capability),
        Request::Seek(ask) => !claims_past(&ask.capability),
        // They answer about the state that they would change.
        Request::Clone(_) | Request::Restore(_) | Request::Undo(_) | Request::Forget(_) => true,
        Request::RemoveTree(_) | Request::JoinFiles(_) => true,
        // Every change waits for the sessions that cache what it changed.
        _ => header.seq != Seq(0),
    }
}
