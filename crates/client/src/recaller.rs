//! Recalls of cache leases, and locks of file ranges.

use std::sync::Arc;
use std::time::Duration;

use frieze_base::{Reason, Seq};
use frieze_wire::holding::{CancelLock, Lock, LockOutcome, LockRange, Recalls, RecallsReply, TestLock};
use frieze_wire::message::{Read, Reply, Request, RequestBody};

use crate::client_core::ClientCore;
use crate::connection::Connection;
use crate::request::RpcRequest;
use crate::route::ServerRoute;
use crate::rpc::QueryOptions;
use crate::{Client, Error};

/// Requests the recalls of cache leases, on a connection of its own. Each request renews all leases of the session.
#[derive(Debug)]
pub struct Recaller {
    shared: Arc<ClientCore>,
    connection: Option<Connection>,
}

impl Client {
    /// A recaller: a client that caches has one, and a thread that calls [`Recaller::ask`] again and again.
    pub fn recaller(&self) -> Recaller {
        Recaller { shared: self.shared(), connection: None }
    }

    /// Sends the list of open files to a server that was restarted, so that `forget` spares them. False if the server
    /// could not be reached: call it again.
    pub fn claim_open_files(&self) -> bool {
        let shared = self.shared();
        shared.open_files.capabilities().into_iter().all(|capability| {
            // At an offset where no byte can be: it reads nothing.
            let read = Request::Read(Read { capability, offset: u64::MAX, len: 0, in_steps: false, ..Read::default() });
            // A file whose read is refused is not open any more, as far as the server is concerned.
            matches!(shared.query(None, read, QueryOptions::IN_SESSION), Ok(_) | Err(Error::Refused(_)))
        })
    }

    /// Locks or unlocks a range of a file. If `wait` is not 0, the lock is queued under that number, and
    /// [`RecallsReply::locked`] names it when it is held. `again`: it was held before a restart of the server.
    ///
    /// # Errors
    /// As any call.
    pub fn lock(&self, range: LockRange, wait: u64, again: bool) -> Result<LockOutcome, Error> {
        self.change_lock(Request::Lock(Lock { range, wait, again }))
    }

    /// Removes a lock from the queue. `Held` if it was granted first.
    ///
    /// # Errors
    /// As any call.
    pub fn cancel_lock(&self, wait: u64) -> Result<LockOutcome, Error> {
        self.change_lock(Request::CancelLock(CancelLock { wait }))
    }

    /// The first lock that keeps a range from being locked.
    ///
    /// # Errors
    /// As any call.
    pub fn test_lock(&self, range: LockRange) -> Result<Option<LockRange>, Error> {
        let shared = self.shared();
        match shared.query(None, Request::TestLock(TestLock { range }), QueryOptions::IN_SESSION)? {
            Reply::TestLock(reply) => Ok(reply.held),
            other => Err(shared.unexpected("a lock", &other)),
        }
    }

    fn change_lock(&self, request: Request) -> Result<LockOutcome, Error> {
        let shared = self.shared();
        match shared.query(None, request, QueryOptions::IN_SESSION)? {
            Reply::Lock(reply) => Ok(reply.outcome()),
            other => Err(shared.unexpected("a lock", &other)),
        }
    }
}

impl Recaller {
    /// Waits for recalls for about a second. The caller has dropped everything recalled under numbers up to `acked` by
    /// the server's life `life`.
    ///
    /// # Errors
    /// As any call, without retry: the leases continue to expire. `Closed` once the client was closed.
    pub fn ask(&mut self, acked: u64, life: u64) -> Result<RecallsReply, Error> {
        if self.shared.is_closed() {
            return Err(Error::Closed);
        }
        let session = self.shared.session()?;
        let (list, open) = self.shared.open_files.list();
        let request = Request::Recalls(Recalls { acked, life, list, open });
        let body = RequestBody { caller: None, trace: None, request: Some(request) };
        match self.exchange(&RpcRequest::new(body, session, Seq(0), &[])) {
            Err(Error::Refused(fault)) if fault.reason == Reason::UnknownSession => {
                self.shared.open_session(session)?;
                Err(Error::Refused(fault))
            }
            Err(error) => {
                self.connection = None;
                let age = self.shared.servers.age();
                if !age.is_alone() {
                    // Another server may grant the leases now.
                    self.shared.refresh_map(age, ANSWER_MAX);
                }
                Err(error)
            }
            answered => answered,
        }
    }

    /// Waits before another attempt; ends early when the client is closed.
    pub fn pause(&self, duration: Duration) {
        self.shared.pause(duration);
    }

    fn exchange(&mut self, request: &RpcRequest<'_>) -> Result<RecallsReply, Error> {
        if self.connection.is_none() {
            let connection = self.shared.greet(&self.shared.servers.pool(ServerRoute::Lead), ANSWER_MAX)?;
            self.shared.recalls.set(connection.cancel_handle());
            self.connection = Some(connection);
        }
        let connection = self.connection.as_mut().expect("just opened");
        let is_alone = self.shared.servers.age().is_alone();
        connection.set_limit(if is_alone { ANSWER_MAX } else { ANSWER_AMONG_MAX });
        let id = self.shared.send(connection, request)?;
        let reply = self.shared.receive(connection, id)?;
        match reply.result.map_err(Error::Refused)? {
            Reply::Recalls(reply) => Ok(reply),
            other => Err(self.shared.unexpected("recalls", &other)),
        }
    }
}

/// A server replies within a second; one that takes this long is lost.
const ANSWER_MAX: Duration = Duration::from_secs(4);
/// The same among several servers, where another one would take over.
const ANSWER_AMONG_MAX: Duration = Duration::from_secs(2);
