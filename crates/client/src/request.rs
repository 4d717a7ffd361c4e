//! A request as it is sent, once or several times.

use std::borrow::Cow;
use std::cell::Cell;
use std::time::Duration;

use frieze_base::{Seq, SessionId};
use frieze_wire::message::{Request, RequestBody, Txn};
use frieze_wire::trace::TraceContext;
use frieze_wire::txn::Op;

use crate::Durability;
use crate::cache_leases::CacheLease;
use crate::route::ServerRoute;

/// A request with everything that its attempts share.
#[derive(Debug)]
pub(crate) struct RpcRequest<'a> {
    pub(crate) body: RequestBody,
    pub(crate) session: SessionId,
    /// 0 for a request that changes nothing.
    pub(crate) seq: Seq,
    pub(crate) payload: &'a [u8],
    /// It was sent and not answered: it may have run.
    pub(crate) may_have_run: Cell<bool>,
    /// Requests cache leases, and receives those that the reply grants.
    pub(crate) lease: Option<&'a CacheLease>,
    /// The server that is to answer.
    pub(crate) route: ServerRoute,
    /// Time for all attempts, if less than the client's own limit.
    pub(crate) limit: Option<Duration>,
    /// The span of the request, if it is sampled.
    pub(crate) trace: Cell<Option<TraceContext>>,
}

impl<'a> RpcRequest<'a> {
    pub(crate) fn new(body: RequestBody, session: SessionId, seq: Seq, payload: &'a [u8]) -> RpcRequest<'a> {
        let route = body.request.as_ref().map_or(ServerRoute::Lead, ServerRoute::of);
        RpcRequest {
            body,
            session,
            seq,
            payload,
            may_have_run: Cell::new(false),
            lease: None,
            route,
            limit: None,
            trace: Cell::new(None),
        }
    }

    /// The body as it is sent: with the span, if there is one.
    pub(crate) fn sent_body(&self) -> Cow<'_, RequestBody> {
        match self.trace.get() {
            None => Cow::Borrowed(&self.body),
            trace => Cow::Owned(RequestBody { trace, ..self.body.clone() }),
        }
    }

    /// The same with a limit on the time for all attempts.
    pub(crate) fn within(self, limit: Option<Duration>) -> RpcRequest<'a> {
        RpcRequest { limit, ..self }
    }

    /// The same to another server.
    pub(crate) fn to(self, route: ServerRoute) -> RpcRequest<'a> {
        RpcRequest { route, ..self }
    }

    /// The same with a request for cache leases.
    pub(crate) fn leasing(self, lease: Option<&'a CacheLease>) -> RpcRequest<'a> {
        RpcRequest { lease, ..self }
    }
}

/// A metadata transaction as a request.
pub(crate) fn txn(durability: Durability, op: Op) -> Request {
    Request::Txn(Txn { durability: durability as i32, op: Some(op) })
}
