//! Connections that calls borrow one at a time.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use frieze_base::MonoTime;
use frieze_net::{InProcess, ServerAddr, mono};

use crate::connection::Connection;
use crate::servers::Route;

/// A bounded set of connections to one server. A call beyond the bound waits until another gives one back.
#[derive(Debug)]
pub(crate) struct Pool {
    address: ServerAddr,
    /// Another door of the same server that is nearer.
    near: Option<Near>,
    state: Mutex<State>,
    /// A connection or a place came free, or the pool was closed.
    freed: Condvar,
    /// The pool was closed: whoever pauses goes on.
    closing: Condvar,
    connections_max: usize,
}

/// A nearer door of a server.
#[derive(Clone, Debug)]
pub(crate) enum Near {
    /// Its socket on this machine.
    Socket(ServerAddr),
    /// It runs in this process.
    Within(Arc<dyn InProcess>),
}

#[derive(Debug, Default)]
struct State {
    #[expect(clippy::vec_box, reason = "they go to and fro with every call, and are large")]
    idle: Vec<Box<Connection>>,
    /// Calls that wait for a place: waking nobody would be a system call, too.
    waiting: usize,
    /// Idle and borrowed, those being opened included.
    open: usize,
    /// Rises when the connections of before are believed dead.
    generation: u64,
    closed: bool,
}

/// The right to one connection; gives its place back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    pool: Arc<Pool>,
    generation: u64,
    /// Who is to answer on it.
    pub(crate) route: Route,
    /// The connection; `None` until it is opened.
    pub(crate) connection: Option<Box<Connection>>,
    /// The place belongs to an idle connection now.
    stays: bool,
}

/// Why there is no place.
#[derive(Debug)]
pub(crate) enum NoPlace {
    /// All were busy until the deadline.
    Busy,
    /// The pool was closed.
    Closed,
}

impl Pool {
    pub(crate) fn new(address: ServerAddr, near: Option<Near>, connections_max: usize) -> Pool {
        Pool {
            address,
            near,
            state: Mutex::default(),
            freed: Condvar::new(),
            closing: Condvar::new(),
            connections_max: connections_max.max(1),
        }
    }

    /// Where the server is.
    pub(crate) fn address(&self) -> &ServerAddr {
        &self.address
    }

    /// A nearer door of it.
    pub(crate) fn near(&self) -> Option<&Near> {
        self.near.as_ref()
    }

    /// An idle connection, or the right to open one; waits for it until `deadline`.
    pub(crate) fn take(self: &Arc<Pool>, deadline: MonoTime) -> Result<Place, NoPlace> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return Err(NoPlace::Closed);
            }
            // The one used last: its thread and memory at the server are warm.
            if let Some(connection) = state.idle.pop() {
                return Ok(Place {
                    pool: self.clone(),
                    generation: state.generation,
                    route: Route::Lead,
                    connection: Some(connection),
                    stays: false,
                });
            }
            if state.open < self.connections_max {
                state.open += 1;
                let (pool, generation) = (self.clone(), state.generation);
                return Ok(Place { pool, generation, route: Route::Lead, connection: None, stays: false });
            }
            let left = deadline.since_ns(mono());
            if left == 0 {
                return Err(NoPlace::Busy);
            }
            state.waiting += 1;
            state = wait(&self.freed, state, Duration::from_nanos(left));
            state.waiting -= 1;
        }
    }

    /// An idle connection on which answers wait that nobody reads.
    pub(crate) fn take_owing(self: &Arc<Pool>) -> Option<Place> {
        let mut state = self.lock();
        let at = state.idle.iter().position(|connection| !connection.owed.is_empty())?;
        let connection = state.idle.remove(at);
        let (pool, generation) = (self.clone(), state.generation);
        Some(Place { pool, generation, route: Route::Lead, connection: Some(connection), stays: false })
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

    /// Ends the idle connections, and those that are given back later; no call gets one any more.
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

    /// Connections that calls have borrowed now.
    pub(crate) fn busy(&self) -> usize {
        let state = self.lock();
        state.open - state.idle.len()
    }

    /// True once [`Pool::close`] was called.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// The server.
    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Gives the connection back for the next call.
    pub(crate) fn give_back(mut self) {
        let Some(connection) = self.connection.take() else { return };
        let mut state = self.pool.lock();
        if state.closed || state.generation != self.generation {
            drop(state);
            drop(connection);
            return; // the place is given back by drop
        }
        state.idle.push(connection);
        let is_awaited = state.waiting > 0;
        drop(state);
        if is_awaited {
            self.pool.freed.notify_one();
        }
        self.stays = true;
    }

    /// The connection was found dead: so are, most likely, the idle ones of the same age.
    pub(crate) fn bury(mut self) {
        self.connection = None;
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

impl Drop for Place {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        self.connection = None;
        self.pool.lock().open -= 1;
        self.pool.freed.notify_one();
    }
}

fn wait<'a>(on: &Condvar, state: MutexGuard<'a, State>, duration: Duration) -> MutexGuard<'a, State> {
    on.wait_timeout(state, duration).unwrap_or_else(PoisonError::into_inner).0
}
