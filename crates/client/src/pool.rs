//! Connections of one server, each borrowed by one call at a time.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use frieze_base::MonoTime;
use frieze_net::{ServerAddr, SocketTransport, Transport, mono};

use crate::connection::Connection;
use crate::route::ServerRoute;

/// A bounded set of connections to one server. A call beyond the bound waits until another returns its connection.
#[derive(Debug)]
pub(crate) struct ConnectionPool {
    address: Arc<ServerAddr>,
    /// The way to the server.
    transport: Arc<dyn Transport>,
    /// A nearer way to the same server, tried first.
    near: Option<Arc<dyn Transport>>,
    state: Mutex<PoolState>,
    /// Notified when a connection or the right to open one becomes free, and when the pool is closed.
    freed: Condvar,
    /// Notified when the pool is closed: pauses end.
    closing: Condvar,
    connections_max: usize,
}

#[derive(Debug, Default)]
struct PoolState {
    #[expect(clippy::vec_box, reason = "they move with every call, and are large")]
    idle: Vec<Box<Connection>>,
    /// Calls that wait for a connection. Without any, a notification would be a system call for nothing.
    waiting: usize,
    /// Idle and borrowed connections, those being opened included.
    open: usize,
    /// Rises when the connections opened so far are believed dead.
    generation: u64,
    closed: bool,
}

/// The right to one connection, and the connection once it is open. Dropping it closes the connection and returns the
/// right.
#[derive(Debug)]
pub(crate) struct PooledConnection {
    pool: Arc<ConnectionPool>,
    generation: u64,
    /// Route of the request that it was borrowed for.
    pub(crate) route: ServerRoute,
    /// The connection; `None` until it is opened.
    pub(crate) connection: Option<Box<Connection>>,
    /// The connection is idle in the pool again.
    is_returned: bool,
}

/// Why the pool lends no connection.
#[derive(Debug)]
pub(crate) enum PoolError {
    /// All were busy until the deadline.
    Busy,
    /// The pool was closed.
    Closed,
}

impl ConnectionPool {
    /// Connections to the server at an address.
    pub(crate) fn new(address: ServerAddr, connections_max: usize) -> ConnectionPool {
        let transport = Arc::new(SocketTransport::new(address.clone()));
        ConnectionPool::by(address, transport, None, connections_max)
    }

    /// Connections by `transport`, or by `near` where that works.
    pub(crate) fn by(
        address: ServerAddr,
        transport: Arc<dyn Transport>,
        near: Option<Arc<dyn Transport>>,
        connections_max: usize,
    ) -> ConnectionPool {
        ConnectionPool {
            address: Arc::new(address),
            transport,
            near,
            state: Mutex::default(),
            freed: Condvar::new(),
            closing: Condvar::new(),
            connections_max: connections_max.max(1),
        }
    }

    /// The server's address.
    pub(crate) fn address(&self) -> &Arc<ServerAddr> {
        &self.address
    }

    /// The way to the server.
    pub(crate) fn transport(&self) -> &dyn Transport {
        &*self.transport
    }

    /// A nearer way to the same server.
    pub(crate) fn near(&self) -> Option<&dyn Transport> {
        self.near.as_deref()
    }

    /// Borrows an idle connection, or the right to open one; waits for it until `deadline`.
    pub(crate) fn take(self: &Arc<ConnectionPool>, deadline: MonoTime) -> Result<PooledConnection, PoolError> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return Err(PoolError::Closed);
            }
            // The one used last: its thread and memory at the server are warm.
            if let Some(connection) = state.idle.pop() {
                return Ok(self.lend(state.generation, Some(connection)));
            }
            if state.open < self.connections_max {
                state.open += 1;
                return Ok(self.lend(state.generation, None));
            }
            let left = deadline.since_ns(mono());
            if left == 0 {
                return Err(PoolError::Busy);
            }
            state.waiting += 1;
            state = wait(&self.freed, state, Duration::from_nanos(left));
            state.waiting -= 1;
        }
    }

    /// Borrows an idle connection with replies that no call waits for.
    pub(crate) fn take_owing(self: &Arc<ConnectionPool>) -> Option<PooledConnection> {
        let mut state = self.lock();
        let at = state.idle.iter().position(|connection| !connection.owed.is_empty())?;
        let connection = state.idle.remove(at);
        Some(self.lend(state.generation, Some(connection)))
    }

    fn lend(self: &Arc<ConnectionPool>, generation: u64, connection: Option<Box<Connection>>) -> PooledConnection {
        PooledConnection { pool: self.clone(), generation, route: ServerRoute::Lead, connection, is_returned: false }
    }

    /// Waits before another attempt; ends early when the pool is closed.
    pub(crate) fn pause(&self, duration: Duration) {
        let until = MonoTime(mono().0 + duration.as_nanos() as u64);
        let mut state = self.lock();
        loop {
            let left = until.since_ns(mono());
            if left == 0 || state.closed {
                return;
            }
            state = wait(&self.closing, state, Duration::from_nanos(left));
        }
    }

    /// Closes the idle connections, and the borrowed ones when they are returned; lends none from now on.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.open -= state.idle.len();
        let idle = std::mem::take(&mut state.idle);
        drop(state);
        drop(idle);
        self.freed.notify_all();
        self.closing.notify_all();
    }

    /// The number of borrowed connections.
    pub(crate) fn busy(&self) -> usize {
        let state = self.lock();
        state.open - state.idle.len()
    }

    /// True once [`ConnectionPool::close`] was called.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PooledConnection {
    /// The pool that it belongs to.
    pub(crate) fn pool(&self) -> &Arc<ConnectionPool> {
        &self.pool
    }

    /// Returns the connection for the next call.
    pub(crate) fn give_back(mut self) {
        let Some(connection) = self.connection.take() else { return };
        let mut state = self.pool.lock();
        if state.closed || state.generation != self.generation {
            drop(state);
            drop(connection);
            return; // the drop returns the right
        }
        state.idle.push(connection);
        let is_awaited = state.waiting > 0;
        drop(state);
        if is_awaited {
            self.pool.freed.notify_one();
        }
        self.is_returned = true;
    }

    /// Closes a connection that failed, and the idle ones of the same age, which are most likely dead as well.
    pub(crate) fn discard(mut self) {
        if self.connection.take().is_none() {
            return;
        }
        let mut state = self.pool.lock();
        if state.generation == self.generation {
            state.generation += 1;
            state.open -= state.idle.len();
            let idle = std::mem::take(&mut state.idle);
            drop(state);
            drop(idle);
            self.pool.freed.notify_all();
        }
    }
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        if self.is_returned {
            return;
        }
        self.connection = None;
        self.pool.lock().open -= 1;
        self.pool.freed.notify_one();
    }
}

fn wait<'a>(on: &Condvar, state: MutexGuard<'a, PoolState>, duration: Duration) -> MutexGuard<'a, PoolState> {
    on.wait_timeout(state, duration).unwrap_or_else(PoisonError::into_inner).0
}
