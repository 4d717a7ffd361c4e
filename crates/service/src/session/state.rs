//! Session state: requests about cache leases and locks.
//!
//! Guarantees: a session that may cache is recorded durably before it gets its first lease; an answer that contains a
//! change is sent when no session can still read the state before it. Leaves to others: grants and locks of sessions
//! (`coherence`), waiting answers (`cache_leases`).

use std::sync::Arc;

use frieze_base::{Fault, Reason, Seq, SessionId};
use frieze_coherence::{AnswerKeys, CacheKey, GrantedLocks};
use frieze_wire::frame::FrameHeader;
use frieze_wire::holding::{CancelLock, Lock, LockKind, LockReply, Recalls, TestLock, TestLockReply};

use crate::session::cache_leases::Gate;
use crate::session::capability::Presenter;
use crate::session::request_class::GatedOn;
use crate::session::responder::Responder;
use crate::session::{Sessions, unknown_session};

impl Sessions {
    /// What delays an answer while other sessions may still read an older state of its contents. Empty as long as no
    /// other session caches anything: then only a change has a gate, for a change by a session that begins to cache
    /// meanwhile.
    pub(crate) fn gate(
        &self,
        header: &FrameHeader,
        gated_on: GatedOn<'_>,
        to: &Arc<dyn Responder>,
    ) -> (Option<Arc<dyn Responder>>, Option<Arc<Gate>>) {
        let gate = |told: AnswerKeys| Arc::new(Gate::new(self.caching.clone(), to.clone(), told));
        if self.caching.is_watched(header.session) {
            let gate = gate(self.keys_ahead(header, gated_on));
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

    /// What the answer will tell of, as far as it is not found on the way.
    fn keys_ahead(&self, header: &FrameHeader, gated_on: GatedOn<'_>) -> AnswerKeys {
        match gated_on {
            GatedOn::Found => AnswerKeys::default(),
            GatedOn::Everything => EVERYTHING,
            GatedOn::Capability(token) => {
                let capability = self.mint.open(token, Presenter::of_now(header.session)).ok();
                let present = capability.filter(|capability| capability.view.at.is_none());
                AnswerKeys {
                    keys: present.map(|capability| CacheKey::inode(capability.inode)).into_iter().collect(),
                    everything: false,
                }
            }
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
            let listed = self.planes.keeper.with(|identity| identity.caching.clone());
            let closed = self.planes.meta.closed_sessions(listed.into_iter().map(SessionId));
            // A session that was listed since is not among them, and stays.
            let alive = |id| !closed.contains(&id);
            self.planes.keeper.update(|identity| identity.note_caching(header.session, alive))?;
        }
        if ask.life == self.caching.life() {
            // The session knows this server process, has reclaimed its locks, and has named its open files.
            self.locks.lock().settled(header.session);
            self.opened.settled(header.session);
        }
        self.opened.update(header.session, ask.list, &ask.open);
        self.caching.poll(header, ask.acked, ask.life, responder);
        self.locks.lock().lease(header.session);
        Ok(())
    }

    /// FileLocks or unlocks a range. The kernel of the client asks only for files that are open.
    pub(crate) fn lock(&self, session: SessionId, ask: &Lock) -> Result<LockReply, Fault> {
        if session == SessionId(0) {
            return Err(unknown_session(session));
        }
        let mut served = Vec::new();
        let outcome = {
            let mut locks = self.locks.lock();
            let is_new = ask.range.kind() != LockKind::Unlock && !ask.again;
            if is_new && locks.is_early(self.planes.clock.reading().mono, session) {
                return Err(Fault::new(
                    Reason::Unavailable,
                    "the server has just started: it waits for those who held locks before",
                ));
            }
            locks.lock(session, &ask.range, ask.wait, &mut served)
        };
        self.caching.notify_locked(&served);
        Ok(LockReply { outcome: outcome as i32 })
    }

    pub(crate) fn test_lock(&self, session: SessionId, ask: &TestLock) -> TestLockReply {
        TestLockReply { held: self.locks.lock().test(session, &ask.range) }
    }

    pub(crate) fn cancel_lock(&self, session: SessionId, ask: &CancelLock) -> LockReply {
        LockReply { outcome: self.locks.lock().cancel(session, ask.wait) as i32 }
    }

    /// Ends the locks of sessions that have not polled for recalls for a lease.
    pub fn end_lapsed_locks(&self) {
        let mut served = GrantedLocks::new();
        self.locks.lock().lapse(|session| self.caching.is_known(session), &mut served);
        self.caching.notify_locked(&served);
    }

    /// The locks and leases of a session end with it.
    pub(crate) fn drop_session(&self, session: SessionId) {
        let mut served = GrantedLocks::new();
        self.locks.lock().ended(session, &mut served);
        self.caching.ended(session);
        self.opened.ended(session);
        self.caching.notify_locked(&served);
    }
}

/// All keys: too many to list.
const EVERYTHING: AnswerKeys = AnswerKeys { keys: Vec::new(), everything: true };
