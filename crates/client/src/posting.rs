//! Requests whose answers nobody waits for.

use std::time::Duration;

use frieze_base::InodeId;
use frieze_net::mono;
use frieze_wire::message::RequestBody;
use frieze_wire::txn::{Caller, Op};

use crate::call::{Ask, Shared, txn};
use crate::closing::Closed;
use crate::connection::Connection;
use crate::servers::Route;
use crate::{Durability, Error};

impl Shared {
    /// Sends a transaction whose answer nobody waits for: it is read before the next on that connection. False if no
    /// connection was idle. If it is lost, so is its effect; use it only where the end of the session does the same.
    pub(crate) fn post(&self, caller: Option<&Caller>, op: &Op) -> bool {
        let session = self.current_session();
        let Ok(mut place) = self.servers.pool(Route::Lead).take(mono()) else { return false };
        let Some(connection) = place.connection.as_mut() else { return false };
        let numbered = self.sequence.next_at_once();
        let body = RequestBody { caller: caller.cloned(), request: Some(txn(Durability::Async, op.clone())) };
        let ask = Ask::new(body, session, numbered.seq, &[]);
        connection.set_limit(self.options.timeout);
        let sent = self.send(connection, &ask).map(|id| connection.owed.push((id, numbered)));
        let settled =
            sent.and_then(|()| if connection.owed.len() < OWED_MAX { Ok(()) } else { self.collect_owed(connection) });
        match settled {
            Ok(()) => {
                place.give_back();
                true
            }
            Err(error) => {
                tracing::debug!(%error, "a request that nobody waits for was lost");
                self.bury(place);
                false
            }
        }
    }

    /// True if several calls are under way: one more request takes from them what it costs. Where there are none, it costs
    /// nobody anything, and the server is awake for the next.
    pub(crate) fn is_busy(&self) -> bool {
        self.servers.busy() >= BUSY_CALLS
    }

    /// Settles files that were closed, without waiting for the answer where a connection is idle.
    ///
    /// # Errors
    /// As any call, if it had to be waited for.
    pub(crate) fn settle(&self, closed: &Closed) -> Result<(), Error> {
        if self.servers.age().is_alone() && self.post(closed.caller.as_ref(), &closed.op) {
            return Ok(());
        }
        let settled = self.change(closed.caller.as_ref(), Durability::Async, closed.op.clone()).map(drop);
        let files = match &closed.op {
            Op::Settle(settle) => std::slice::from_ref(settle),
            Op::SettleAll(all) => all.files.as_slice(),
            _ => &[],
        };
        self.writers.settled(files.iter().filter(|file| !file.keep_grant).map(|file| InodeId(file.inode)));
        settled
    }

    /// Reads the answers that wait on idle connections. The pool gives out the connection used last, so one that is rarely
    /// needed would keep its answers for ever, and with them the server what it remembers for retries.
    pub(crate) fn catch_up(&self) {
        while let Some(mut place) = self.servers.take_owing() {
            let Some(connection) = place.connection.as_mut() else { continue };
            // Whoever asks next is not to wait for a server that may be gone.
            let limit = if self.servers.age().is_alone() { self.options.timeout } else { OWED_AMONG_WAIT };
            connection.set_limit(limit);
            match self.collect_owed(connection) {
                Ok(()) => place.give_back(),
                Err(error) => {
                    tracing::debug!(%error, "answers that nobody waited for were lost");
                    self.bury(place);
                }
            }
        }
    }

    /// Receives the answers that nobody waited for.
    pub(crate) fn collect_owed(&self, connection: &mut Connection) -> Result<(), Error> {
        while let Some(id) = connection.owed.first().map(|(id, _)| *id) {
            let answer = connection.receive()?;
            self.saw(answer.header.hlc);
            match connection.owed.iter().position(|(owed, _)| *owed == answer.header.request_id) {
                Some(at) => drop(connection.owed.swap_remove(at)),
                None => {
                    let found = format!("request {}", answer.header.request_id);
                    tracing::debug!(expected = id, found, "an answer to nothing asked");
                    return Err(Error::Protocol { server: self.server(), asked: "another request", found });
                }
            }
        }
        Ok(())
    }
}

/// So many calls at a time, and they compete.
const BUSY_CALLS: usize = 2;
/// Numbers given since the first unanswered one before idle connections are read: a quarter of what the server remembers.
pub(crate) const BEHIND_MAX: u64 = 1024;
/// How often who waits for an older number looks for answers that nobody reads.
pub(crate) const CATCH_UP_EVERY: Duration = Duration::from_millis(20);
/// For answers that nobody waits for, of one of several servers.
const OWED_AMONG_WAIT: Duration = Duration::from_millis(500);
/// Answers that may wait unread on a connection: far below what a socket buffer holds.
const OWED_MAX: usize = 16;
