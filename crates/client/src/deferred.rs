//! Requests whose replies no call waits for.

use std::time::Duration;

use frieze_base::InodeId;
use frieze_net::mono;
use frieze_wire::message::RequestBody;
use frieze_wire::txn::{Caller, Op};

use crate::client_core::ClientCore;
use crate::close::SettleBatch;
use crate::connection::Connection;
use crate::request::{RpcRequest, txn};
use crate::route::ServerRoute;
use crate::{Durability, Error};

impl ClientCore {
    /// Sends a transaction without waiting for its reply, which is read before the next one on that connection. False
    /// if no connection is idle. If the request is lost, so is its effect: only for transactions that the end of the
    /// session replaces.
    pub(crate) fn defer(&self, caller: Option<&Caller>, op: &Op) -> bool {
        let session = self.current_session();
        let Ok(mut pooled) = self.servers.pool(ServerRoute::Lead).take(mono()) else { return false };
        let Some(connection) = pooled.connection.as_mut() else { return false };
        let number = self.sequence.next_at_once();
        let body =
            RequestBody { caller: caller.cloned(), trace: None, request: Some(txn(Durability::Async, op.clone())) };
        let request = RpcRequest::new(body, session, number.seq, &[]);
        connection.set_limit(self.options.timeout);
        let sent = self.send(connection, &request).map(|id| connection.owed.push((id, number)));
        let done =
            sent.and_then(|()| if connection.owed.len() < OWED_MAX { Ok(()) } else { self.collect_owed(connection) });
        match done {
            Ok(()) => {
                pooled.give_back();
                true
            }
            Err(error) => {
                tracing::debug!(%error, "a deferred request was lost");
                pooled.discard();
                false
            }
        }
    }

    /// Settles closed files, without waiting for the reply if a connection is idle.
    ///
    /// # Errors
    /// As any call, if it had to wait for the reply.
    pub(crate) fn settle(&self, batch: &SettleBatch) -> Result<(), Error> {
        if self.servers.age().is_alone() && self.defer(batch.caller.as_ref(), &batch.op) {
            return Ok(());
        }
        let settled = self.change(batch.caller.as_ref(), Durability::Async, batch.op.clone()).map(drop);
        let files = match &batch.op {
            Op::Settle(settle) => std::slice::from_ref(settle),
            Op::SettleAll(all) => all.files.as_slice(),
            _ => &[],
        };
        self.grants.settled(files.iter().filter(|file| !file.keep_grant).map(|file| InodeId(file.inode)));
        settled
    }

    /// Reads the replies that wait on idle connections. The pool lends the connection used last, so a rarely used one
    /// would keep its replies for ever, and the server would keep what it remembers for retries.
    pub(crate) fn catch_up(&self) {
        while let Some(mut pooled) = self.servers.take_owing() {
            let Some(connection) = pooled.connection.as_mut() else { continue };
            // The next call does not wait long for a server that may be lost.
            let limit = if self.servers.age().is_alone() { self.options.timeout } else { OWED_AMONG_WAIT };
            connection.set_limit(limit);
            match self.collect_owed(connection) {
                Ok(()) => pooled.give_back(),
                Err(error) => {
                    tracing::debug!(%error, "replies to deferred requests were lost");
                    pooled.discard();
                }
            }
        }
    }

    /// Receives the replies that no call waits for.
    pub(crate) fn collect_owed(&self, connection: &mut Connection) -> Result<(), Error> {
        while let Some(id) = connection.owed.first().map(|(id, _)| *id) {
            let reply = connection.receive()?;
            self.note_stamp(reply.header.hlc);
            match connection.owed.iter().position(|(owed, _)| *owed == reply.header.request_id) {
                Some(at) => drop(connection.owed.swap_remove(at)),
                None => {
                    let found = format!("request {}", reply.header.request_id);
                    tracing::debug!(expected = id, found, "a reply to no request in flight");
                    return Err(Error::Protocol { server: self.server(), asked: "another request", found });
                }
            }
        }
        Ok(())
    }
}

/// How long one of several servers may take to send the reply to a deferred request.
const OWED_AMONG_WAIT: Duration = Duration::from_millis(500);
/// Replies that may wait unread on a connection: far below what a socket buffer holds.
const OWED_MAX: usize = 16;
