//! What sessions hold for a while: requests about cache grants and locks.
//!
//! Guarantees: who may cache something is remembered durably before it is granted anything; an answer that tells of a
//! change goes out when nobody can be shown the state before it.
//! Leaves to others: who holds what (`grants`, `locks`), waiting answers (`caching`).

use std::sync::{Arc, MutexGuard, PoisonError};

use frieze_base::{Fault, InodeId, Reason, Seq, SessionId};
use frieze_wire::frame::FrameHeader;
use frieze_wire::holding::{CancelLock, Lock, LockKind, LockReply, Recalls, TestLock, TestLockReply};
use frieze_wire::message::{Request, View};
use frieze_wire::txn::{Op, Target};

use crate::caching::Gate;
use crate::engine::{Engine, Responder, unknown_session};
use crate::grants::Key;
use crate::locks::{Locks, Served};

impl Engine {
    /// What holds an answer back while others may still be shown an older state of what it tells of.
    pub(crate) fn gate(
        &self,
        header: &FrameHeader,
        request: &Request,
        to: &Arc<dyn Responder>,
    ) -> Option<Arc<dyn Responder>> {
        let of = |target: &Target| match target.path.is_empty() {
            true => Key::inode(InodeId(target.base)),
            false => Key::names(InodeId(target.base)),
        };
        let opened = |capability: &[u8]| {
            let inode = self.mint.open(capability, header.session).ok().map(|capability| capability.inode);
            inode.map(Key::inode).into_iter().collect::<Vec<_>>()
        };
        // What was does not change: nobody waits for it.
        if view_of(request).is_some_and(|view| view.is_past()) {
            return None;
        }
        let keys = match request {
            Request::Stat(ask) => vec![of(&ask.target)],
            Request::List(ask) => match ask.target.path.is_empty() {
                true => vec![Key::inode(InodeId(ask.target.base)), Key::names(InodeId(ask.target.base))],
                false => vec![of(&ask.target)],
            },
            Request::ReadLink(ask) => vec![of(&ask.target)],
            Request::Access(ask) => vec![of(&ask.target)],
            Request::GetXattr(ask) => vec![of(&ask.target)],
            Request::Open(ask) => vec![of(&ask.target)],
            Request::Read(ask) => opened(&ask.capability),
            Request::Seek(ask) => opened(&ask.capability),
            Request::Write(ask) => opened(&ask.capability),
            Request::Punch(ask) => opened(&ask.capability),
            Request::Txn(ask) => match &ask.op {
                Some(Op::Make(op)) => vec![of(&op.target)],
                Some(Op::Link(op)) => vec![of(&op.file), of(&op.name)],
                Some(Op::Remove(op)) => vec![of(&op.target)],
                Some(Op::Rename(op)) => vec![of(&op.from), of(&op.to)],
                Some(Op::SetAttr(op)) => vec![of(&op.target)],
                Some(Op::SetXattr(op)) => vec![of(&op.target)],
                Some(Op::RemoveXattr(op)) => vec![of(&op.target)],
                // Others wait for what they changed.
                _ => Vec::new(),
            },
            // Whatever else changes something waits for what it changed.
            _ if header.seq != Seq(0) => Vec::new(),
            _ => return None,
        };
        Some(Arc::new(Gate { caching: self.caching.clone(), to: to.clone(), keys }))
    }

    /// Keeps the question until there is something to recall, or its time is over.
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
            // Remembered before anything is granted: a server started anew must know who may believe what.
            let namespace = self.meta.namespace();
            let alive = |id: &u64| namespace.session(SessionId(*id)).is_some();
            self.keeper.update(|identity| {
                identity.caching.retain(|id| alive(id) && *id != header.session.0);
                identity.caching.push(header.session.0);
            })?;
        }
        if ask.life == self.caching.life() {
            // It has heard of this life of the server, and asked again for the locks it held.
            self.locks().settled(header.session);
        }
        self.caching.poll(header, ask.acked, ask.life, responder);
        Ok(())
    }

    /// Locks or unlocks a range. The kernel of the client asks only for files that are open.
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

    /// What a session held ends with it.
    pub(crate) fn let_go(&self, session: SessionId) {
        let mut served = Served::new();
        self.locks().ended(session, &mut served);
        self.caching.ended(session);
        self.caching.tell_locked(&served);
    }

    fn locks(&self) -> MutexGuard<'_, Locks> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The view that a question about names and attributes asks for.
fn view_of(request: &Request) -> Option<View> {
    match request {
        Request::Stat(ask) => Some(ask.view),
        Request::List(ask) => Some(ask.view),
        Request::ReadLink(ask) => Some(ask.view),
        Request::Access(ask) => Some(ask.view),
        Request::GetXattr(ask) => Some(ask.view),
        Request::Open(ask) => Some(ask.view),
        _ => None,
    }
}
