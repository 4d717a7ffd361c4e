//! A call: sent, and sent again under the same number until it is answered or its time is over.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use frieze_base::{ChainEpoch, MonoTime, Reason, Seq, SessionId};
use frieze_net::{TransportReply, mono};
use frieze_wire::message::{Reply, Request, RequestBody, Stat};
use frieze_wire::txn::Caller;
use frieze_wire::{FrameHeader, FrameKind, Holds};

use crate::Error;
use crate::cache_leases::CacheLease;
use crate::client_core::ClientCore;
use crate::connection::{Connection, ServerWatch};
use crate::pool::{ConnectionPool, PoolError, PooledConnection};
use crate::request::RpcRequest;
use crate::retry::{RetryBudget, is_retryable, is_transient};
use crate::route::ServerRoute;
use crate::sequence::RequestNumber;
use crate::servers::MapAge;
use crate::trace;

/// How a query is made.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QueryOptions<'a> {
    /// The server answers it only within a session, which is opened if there is none.
    pub(crate) in_session: bool,
    /// Requests cache leases, and receives those that the reply grants.
    pub(crate) lease: Option<&'a CacheLease>,
}

impl QueryOptions<'_> {
    /// Within a session, without leases.
    pub(crate) const IN_SESSION: QueryOptions<'static> = QueryOptions { in_session: true, lease: None };
}

/// The end of one attempt.
enum Attempt<T> {
    /// A reply, or an error that another attempt would not change.
    Done(T),
    /// An error that another attempt may not meet.
    Again(Error),
}

impl ClientCore {
    /// Sends a request that changes nothing.
    pub(crate) fn query(
        &self,
        caller: Option<&Caller>,
        request: Request,
        options: QueryOptions<'_>,
    ) -> Result<Reply, Error> {
        let body = RequestBody { caller: caller.cloned(), trace: None, request: Some(request) };
        let session = if options.in_session { self.session()? } else { self.current_session() };
        let mut rpc = RpcRequest::new(body, session, Seq(0), &[]).leasing(options.lease);
        match self.call(&rpc, &mut []) {
            Err(Error::Refused(fault)) if options.in_session && fault.reason == Reason::UnknownSession => {
                rpc.session = self.open_session(rpc.session)?;
                Ok(self.call(&rpc, &mut [])?.0)
            }
            done => Ok(done?.0),
        }
    }

    /// Reads the attributes of a directory as they are now. If no server answers within [`RECENT_AFTER`], reads them as
    /// any server knew them last, without a cache lease.
    pub(crate) fn query_recent(
        &self,
        caller: Option<&Caller>,
        stat: Stat,
        lease: Option<&CacheLease>,
    ) -> Result<Reply, Error> {
        let body = |recent| {
            let stat = Stat { recent, ..stat.clone() };
            RequestBody { caller: caller.cloned(), trace: None, request: Some(Request::Stat(stat)) }
        };
        if mono() >= MonoTime(self.recent_until.load(Ordering::Relaxed)) {
            // Leases belong to a session.
            let mut session = if lease.is_some() { self.session()? } else { self.current_session() };
            let rpc =
                |session| RpcRequest::new(body(false), session, Seq(0), &[]).leasing(lease).within(Some(RECENT_AFTER));
            let mut reply = self.call(&rpc(session), &mut []);
            if matches!(&reply, Err(Error::Refused(fault)) if fault.reason == Reason::UnknownSession) {
                session = self.open_session(session)?;
                reply = self.call(&rpc(session), &mut []);
            }
            if !matches!(reply, Err(Error::Unanswered { .. })) {
                return Ok(reply?.0);
            }
            let until = mono().0.saturating_add(RECENT_FOR.as_nanos() as u64);
            self.recent_until.store(until, Ordering::Relaxed);
        }
        Ok(self.call(&RpcRequest::new(body(true), SessionId(0), Seq(0), &[]), &mut [])?.0)
    }

    /// Sends a request until it is answered or its time is over. Returns the reply and how many bytes of `into` its
    /// payload filled.
    pub(crate) fn call(&self, request: &RpcRequest<'_>, into: &mut [u8]) -> Result<(Reply, usize), Error> {
        let scope = self.request_scope(request);
        let span = self.request_span(request);
        let done = self.call_until_answered(request, into);
        trace::end_span(span.as_ref(), &done);
        trace::note_end(&scope, &done);
        if let Ok((reply, count)) = &done {
            trace::note_reply(&scope, request, reply, *count);
        }
        done
    }

    fn call_until_answered(&self, request: &RpcRequest<'_>, into: &mut [u8]) -> Result<(Reply, usize), Error> {
        let mut budget = self.retry_budget();
        if let Some(limit) = request.limit {
            budget.limit_to(limit);
        }
        loop {
            let age = self.servers.age();
            let mut pooled = self.take(request.route, &budget)?;
            match self.attempt(&mut pooled, request, into, &budget) {
                Attempt::Done(Ok(done)) => {
                    pooled.give_back();
                    return Ok(done);
                }
                Attempt::Done(Err(error @ Error::Refused(_))) => {
                    let tries_another = budget.passes_over(&self.servers, request.route, pooled.pool(), &error);
                    pooled.give_back();
                    if !tries_another {
                        return Err(error);
                    }
                }
                Attempt::Done(Err(error)) => {
                    pooled.discard();
                    return Err(error);
                }
                Attempt::Again(error) => {
                    self.give_back_after(pooled, &error, age, &budget);
                    self.wait_to_retry(&mut budget, error)?;
                }
            }
        }
    }

    fn attempt(
        &self,
        pooled: &mut PooledConnection,
        request: &RpcRequest<'_>,
        into: &mut [u8],
        budget: &RetryBudget,
    ) -> Attempt<Result<(Reply, usize), Error>> {
        let connection = match self.opened(pooled, budget) {
            Ok(connection) => connection,
            Err(error) if is_retryable(&error) => return Attempt::Again(error),
            Err(error) => return Attempt::Done(Err(error)),
        };
        match self.exchange(connection, request, into) {
            Ok((TransportReply { result: Ok(reply), .. }, len)) => Attempt::Done(Ok((reply, len))),
            Ok((TransportReply { result: Err(fault), .. }, _)) if is_transient(&fault) => {
                Attempt::Again(Error::Refused(fault))
            }
            Ok((TransportReply { result: Err(fault), .. }, _)) => Attempt::Done(Err(Error::Refused(fault))),
            Err(error) if is_retryable(&error) => Attempt::Again(error),
            Err(error) => Attempt::Done(Err(error)),
        }
    }

    fn exchange(
        &self,
        connection: &mut Connection,
        request: &RpcRequest<'_>,
        into: &mut [u8],
    ) -> Result<(TransportReply, usize), Error> {
        let before = request.may_have_run.replace(true);
        let id = self.send(connection, request)?;
        let reply = self.receive(connection, id)?;
        if let Some(lease) = request.lease {
            lease.note(reply.header.holds);
        }
        // Answered: the outcome of this attempt is known.
        request.may_have_run.set(before);
        let len = reply.header.payload_len as usize;
        if len > into.len() {
            let found = format!("{len} bytes of payload");
            return Err(Error::Protocol { server: self.server(), asked: "a request for fewer", found });
        }
        connection.read_payload(&mut into[..len])?;
        Ok((reply, len))
    }

    /// A number for a change. Waits while an older one is unanswered that the server would forget before it is sent
    /// again: after a restart of the server one request may pause while others run by the thousand.
    pub(crate) fn number(&self) -> Result<RequestNumber, Error> {
        let mut budget = None;
        loop {
            if let Some(number) = self.sequence.next() {
                return Ok(number);
            }
            let budget = budget.get_or_insert_with(|| self.retry_budget());
            if budget.left().is_zero() {
                let last = "a request before it is not answered".to_owned();
                let (server, waited) = (self.server(), budget.waited());
                return Err(Error::Unanswered { server, waited, last, refused: true });
            }
            self.catch_up();
            self.sequence.wait(CATCH_UP_EVERY);
        }
    }

    /// Returns the connection of an attempt that ended with `error`, made by a map of `age`. If another server may know
    /// better, asks which one answers now.
    pub(crate) fn give_back_after(&self, pooled: PooledConnection, error: &Error, age: MapAge, budget: &RetryBudget) {
        let pool = pooled.pool().clone();
        match error {
            Error::Refused(_) => pooled.give_back(),
            _ => pooled.discard(),
        }
        self.refresh_map_after(&pool, error, age, budget);
    }

    /// The same with replies still to come on the connection: closes it.
    pub(crate) fn abandon(&self, pooled: PooledConnection, error: &Error, age: MapAge, budget: &RetryBudget) {
        let pool = pooled.pool().clone();
        match error {
            Error::Refused(_) => drop(pooled),
            _ => pooled.discard(),
        }
        self.refresh_map_after(&pool, error, age, budget);
    }

    fn refresh_map_after(&self, pool: &ConnectionPool, error: &Error, age: MapAge, budget: &RetryBudget) {
        let was_answered = match error {
            // The server was alone when it was connected to, and has founded a cluster since.
            Error::Refused(fault) if fault.reason == Reason::Elsewhere => true,
            _ if age.is_alone() => return,
            Error::Refused(fault) if fault.reason == Reason::Overloaded => return,
            Error::Refused(_) => true,
            _ => false,
        };
        self.refresh_map(age, budget.left());
        if !was_answered {
            self.servers.note_silent(pool.address());
        }
    }

    /// Borrows a connection to the server that is to answer; waits for it as long as the call may take.
    pub(crate) fn take(&self, route: ServerRoute, budget: &RetryBudget) -> Result<PooledConnection, Error> {
        if self.sequence.behind() > BEHIND_MAX {
            self.catch_up();
        }
        let pool = match budget.passed.is_empty() {
            true => self.servers.pool(route),
            false => self.servers.another(route, &budget.passed).unwrap_or_else(|| self.servers.pool(route)),
        };
        match pool.take(budget.deadline) {
            Ok(mut pooled) => {
                pooled.route = route;
                Ok(pooled)
            }
            Err(PoolError::Closed) => Err(Error::Closed),
            Err(PoolError::Busy) => Err(Error::Busy {
                server: self.server(),
                connections_max: self.options.connections_max,
                waited: budget.waited(),
            }),
        }
    }

    /// The borrowed connection, opened if it is not, with the time that is left.
    pub(crate) fn opened<'p>(
        &self,
        pooled: &'p mut PooledConnection,
        budget: &RetryBudget,
    ) -> Result<&'p mut Connection, Error> {
        let left = budget.left();
        if pooled.connection.is_none() {
            // One of several servers that does not answer is given less time.
            let limit = if self.servers.age().is_alone() { left } else { left.min(MAP_WAIT) };
            pooled.connection = Some(Box::new(self.greet(pooled.pool(), limit)?));
        }
        let watch = (!self.servers.age().is_alone())
            .then(|| ServerWatch { server: pooled.pool().address().clone(), route: pooled.route });
        let connection = pooled.connection.as_mut().expect("just opened");
        connection.watch = watch;
        connection.set_limit(left);
        Ok(connection)
    }

    /// Sends a request with everything that a header carries. Returns the request's id.
    pub(crate) fn send(&self, connection: &mut Connection, request: &RpcRequest<'_>) -> Result<u64, Error> {
        let header = self.header(request);
        connection.send(&header, &request.sent_body(), request.payload)?;
        Ok(header.request_id)
    }

    /// Adds a small request to those that [`Connection::send_queued`] sends. Returns its id.
    pub(crate) fn queue(&self, connection: &mut Connection, request: &RpcRequest<'_>) -> u64 {
        let header = self.header(request);
        connection.queue(&header, &request.sent_body(), request.payload);
        header.request_id
    }

    fn header(&self, request: &RpcRequest<'_>) -> FrameHeader {
        FrameHeader {
            request_id: self.last_request.fetch_add(1, Ordering::Relaxed) + 1,
            session: request.session,
            seq: request.seq,
            acked: if request.seq == Seq(0) { Seq(0) } else { self.sequence.acked() },
            // Every chain of a cluster has an epoch of its own, which its head knows.
            epoch: ChainEpoch(if self.servers.age().is_alone() { self.epoch.load(Ordering::Relaxed) } else { 0 }),
            hlc: self.newest(),
            holds: if request.lease.is_some() { Holds::ASKED } else { Holds::NONE },
            ..FrameHeader::of(FrameKind::Request)
        }
    }

    /// Receives the reply to request `id`.
    pub(crate) fn receive(&self, connection: &mut Connection, id: u64) -> Result<TransportReply, Error> {
        let reply = self.receive_any(connection)?;
        if reply.header.request_id == id {
            return Ok(reply);
        }
        let found = format!("request {}", reply.header.request_id);
        Err(Error::Protocol { server: self.server(), asked: "another request", found })
    }

    /// Receives the next reply that a call waits for.
    pub(crate) fn receive_any(&self, connection: &mut Connection) -> Result<TransportReply, Error> {
        loop {
            if connection.watch.is_some() {
                self.await_reply(connection)?;
            }
            let reply = connection.receive()?;
            self.note_stamp(reply.header.hlc);
            self.epoch.fetch_max(reply.header.epoch.0, Ordering::Relaxed);
            let id = reply.header.request_id;
            if let (0, Err(fault)) = (id, &reply.result) {
                // The server closes the connection, and this is its reason.
                return Err(Error::Refused(fault.clone()));
            }
            match connection.owed.iter().position(|(owed, _)| *owed == id) {
                None => return Ok(reply),
                Some(at) => drop(connection.owed.swap_remove(at)),
            }
        }
    }

    /// Waits for a reply of one of several servers. While none arrives, asks the others which one answers now: a server
    /// that was cut off or stopped does not end its connections.
    ///
    /// # Errors
    /// `Silent` once another server is to be tried.
    fn await_reply(&self, connection: &mut Connection) -> Result<(), Error> {
        let began = mono();
        loop {
            let waited = Duration::from_nanos(mono().since_ns(began));
            let left = connection.limit().saturating_sub(waited);
            if left.is_zero() {
                return Err(connection.silent(waited));
            }
            if connection.await_reply(left.min(SILENCE))? {
                return Ok(());
            }
            let Some(ServerWatch { server, route }) = connection.watch.clone() else { continue };
            let age = self.servers.age();
            if self.servers.may_refresh(mono(), SILENCE) {
                self.refresh_map(age, left);
            }
            self.servers.note_silent(&server);
            if !Arc::ptr_eq(self.servers.pool(route).address(), &server) {
                return Err(connection.silent(Duration::from_nanos(mono().since_ns(began))));
            }
        }
    }
}

/// How long one of several servers may take to greet, or to send the map.
pub(crate) const MAP_WAIT: Duration = Duration::from_millis(500);
/// How long one of several servers is silent before the others are asked which one answers.
const SILENCE: Duration = Duration::from_millis(400);
/// How long a call waits for a leader before a directory is read as it was last known, and for how long directories are
/// then read so without waiting again. A leader that was lost has a successor within a fraction of a second.
const RECENT_AFTER: Duration = Duration::from_secs(1);
const RECENT_FOR: Duration = Duration::from_secs(2);
/// Numbers given out since the first unanswered one before idle connections are read: a quarter of what the server
/// remembers.
const BEHIND_MAX: u64 = 1024;
/// How often a call that waits for an older number reads idle connections.
const CATCH_UP_EVERY: Duration = Duration::from_millis(20);
