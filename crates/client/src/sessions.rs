//! The session of a client: opened when it is first needed, numbers for changes, ended with the last handle.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use frieze_base::{Reason, Seq, SessionId};
use frieze_net::mono;
use frieze_wire::message::{Reply, Request, RequestBody, TxnReply};
use frieze_wire::txn::{Caller, CloseSession, Op, OpenSession};

use crate::cache_leases::CacheLease;
use crate::client_core::ClientCore;
use crate::request::{RpcRequest, txn};
use crate::route::ServerRoute;
use crate::{Durability, Error};

impl ClientCore {
    /// The session, opened when it is first needed: reading the past of a path needs none.
    pub(crate) fn session(&self) -> Result<SessionId, Error> {
        match self.session.load(Ordering::Acquire) {
            0 => self.open_session(SessionId(0)),
            session => Ok(SessionId(session)),
        }
    }

    /// The session if there is one, else 0.
    pub(crate) fn current_session(&self) -> SessionId {
        SessionId(self.session.load(Ordering::Acquire))
    }

    /// Opens a session in place of `old`, unless another thread has.
    pub(crate) fn open_session(&self, old: SessionId) -> Result<SessionId, Error> {
        let _opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        let current = self.session.load(Ordering::Acquire);
        if current != old.0 {
            return Ok(SessionId(current));
        }
        let op = Op::OpenSession(OpenSession {
            command: self.options.command.clone(),
            host: frieze_net::host_name(),
            uid: self.hello.uid,
            keeps: self.options.keeps,
        });
        // It has no number yet: sent again it opens another session, and the first stays unused. On stable storage, so
        // that a power loss does not take the numbers and handles of a client that survives it.
        let body = RequestBody { caller: None, trace: None, request: Some(txn(Durability::Sync, op)) };
        let request = RpcRequest::new(body, SessionId(0), Seq(0), &[]);
        let reply = expect_txn(self, self.call(&request, &mut [])?.0)?;
        self.session.store(reply.id, Ordering::Release);
        Ok(SessionId(reply.id))
    }

    /// Runs a metadata transaction.
    pub(crate) fn change(&self, caller: Option<&Caller>, durability: Durability, op: Op) -> Result<TxnReply, Error> {
        self.change_leasing(caller, durability, op, None)
    }

    /// The same with a request for cache leases.
    pub(crate) fn change_leasing(
        &self,
        caller: Option<&Caller>,
        durability: Durability,
        op: Op,
        lease: Option<&CacheLease>,
    ) -> Result<TxnReply, Error> {
        let mut reply = expect_txn(self, self.call_numbered(caller, txn(durability, op), lease)?)?;
        if let Some(lease) = lease {
            lease.note_parents(&mut reply);
        }
        Ok(reply)
    }

    /// Sends a request that changes something, under a number of its own.
    pub(crate) fn call_numbered(
        &self,
        caller: Option<&Caller>,
        request: Request,
        lease: Option<&CacheLease>,
    ) -> Result<Reply, Error> {
        let session = self.session()?;
        let number = self.number()?;
        let body = RequestBody { caller: caller.cloned(), trace: None, request: Some(request) };
        let mut rpc = RpcRequest::new(body, session, number.seq, &[]).leasing(lease);
        match self.call(&rpc, &mut []) {
            // A power loss took the session before it was on disk. Under another session the request is another one, so
            // it is sent again only if it cannot have run.
            Err(Error::Refused(fault)) if fault.reason == Reason::UnknownSession && !rpc.may_have_run.get() => {
                tracing::info!(session = %rpc.session, "the server does not know the session: opening another");
                rpc.session = self.open_session(rpc.session)?;
                Ok(self.call(&rpc, &mut [])?.0)
            }
            done => Ok(done?.0),
        }
    }

    /// Ends the session, once. Every later call fails with `Closed`.
    pub(crate) fn close(&self) -> Result<(), Error> {
        if self.servers.is_closed() {
            return Ok(());
        }
        let ended = match self.session.load(Ordering::Acquire) {
            0 => Ok(()),
            _ => {
                let op = Op::CloseSession(CloseSession::default());
                self.change(None, Durability::Async, op).map(|_| ())
            }
        };
        self.servers.close();
        self.close_queue.end();
        match ended {
            // The session has ended already, as it should.
            Err(Error::Refused(fault)) if fault.reason == Reason::UnknownSession => Ok(()),
            ended => ended,
        }
    }
}

impl Drop for ClientCore {
    /// Ends the session if the server answers at once. Otherwise the session stays open and keeps what its files hold.
    fn drop(&mut self) {
        self.close_queue.end();
        let session = self.current_session();
        if self.servers.is_closed() || session == SessionId(0) {
            return;
        }
        let Ok(mut pooled) = self.servers.pool(ServerRoute::Lead).take(mono()) else { return };
        if pooled.connection.is_none() {
            // The last connection ended with a stream that was refused. Until this session ends, no other one may write
            // to the file of that stream.
            pooled.connection = self.open(pooled.pool(), FAREWELL).ok().map(|(connection, _)| Box::new(connection));
        }
        let Some(connection) = pooled.connection.as_mut() else { return };
        let op = Op::CloseSession(CloseSession::default());
        let body = RequestBody { caller: None, trace: None, request: Some(txn(Durability::Async, op)) };
        let number = self.sequence.next_at_once();
        connection.set_limit(FAREWELL);
        // Read to the end: closing a socket over unread replies resets it, which drops what was sent last.
        let ended = self.send(connection, &RpcRequest::new(body, session, number.seq, &[])).and_then(|id| {
            connection.owed.push((id, number));
            self.collect_owed(connection)
        });
        if let Err(error) = ended {
            tracing::debug!(%error, "the session could not be ended");
        }
    }
}

fn expect_txn(core: &ClientCore, reply: Reply) -> Result<TxnReply, Error> {
    match reply {
        Reply::Txn(reply) => Ok(reply),
        other => Err(core.unexpected("a change", &other)),
    }
}

/// How long the last handle waits for its session to end.
const FAREWELL: Duration = Duration::from_secs(1);
