//! Waiting for changes at every server of a cluster: each knows the writes that come to it, and all know the names.
//!
//! Guarantees: a change that any server made visible after the position ends the wait; so does the loss of a server,
//! for what it alone knew is known by others after it. While nothing changes, the threads sleep in their sockets, and
//! one request a minute goes to each server.
//! Leaves to others: what has changed (`watch`).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use frieze_base::{MonoTime, Seq};
use frieze_hlc::Hlc;
use frieze_net::{CancelHandle, ServerAddr, mono};
use frieze_wire::message::{Reply, Request, RequestBody};
use frieze_wire::timeline::{AWAIT_MS_MAX, AwaitChange};

use crate::Error;
use crate::client_core::ClientCore;
use crate::connection::Connection;
use crate::pool::ConnectionPool;
use crate::request::RpcRequest;
use crate::retry::is_retryable;

/// Why a wait has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeSignal {
    /// Something changed up to this end of a cell of time.
    Upto(Hlc),
    /// A server does not answer: something may have changed.
    ServerLost,
}

/// Waits at all servers. Dropping it ends them.
pub(crate) struct ChangeWaits {
    shared: Arc<ClientCore>,
    board: Arc<WaitBoard>,
    servers: BTreeMap<ServerAddr, Arc<Mutex<Option<CancelHandle>>>>,
}

/// What the threads and the feed say to each other.
#[derive(Default)]
struct WaitBoard {
    state: Mutex<BoardState>,
    changed: Condvar,
}

#[derive(Default)]
struct BoardState {
    /// Stamps up to here need no signal.
    position: Hlc,
    /// Counts the waits of the feed: a server that has signalled is asked again in the next.
    round: u64,
    upto: Option<Hlc>,
    is_server_lost: bool,
    error: Option<Error>,
    is_closed: bool,
}

impl fmt::Debug for ChangeWaits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "waits at {} servers", self.servers.len())
    }
}

impl ChangeWaits {
    /// No wait yet.
    pub(crate) fn new(shared: &Arc<ClientCore>) -> ChangeWaits {
        ChangeWaits { shared: shared.clone(), board: Arc::default(), servers: BTreeMap::new() }
    }

    /// Waits until something after `position` has changed, at most `wait`.
    ///
    /// # Errors
    /// `Refused` if a server refuses for good: it may be older than this client. `Closed`.
    pub(crate) fn wait(&mut self, position: Hlc, wait: Duration) -> Result<Option<ChangeSignal>, Error> {
        if self.shared.is_closed() {
            return Err(Error::Closed);
        }
        self.ask_every_server()?;
        let until = MonoTime(mono().0.saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)));
        let mut state = self.board.lock();
        state.position = position;
        state.round += 1;
        self.board.changed.notify_all();
        loop {
            if let Some(error) = state.error.take() {
                return Err(error);
            }
            if let Some(upto) = state.upto.take().filter(|upto| *upto > position) {
                return Ok(Some(ChangeSignal::Upto(upto)));
            }
            if std::mem::take(&mut state.is_server_lost) {
                return Ok(Some(ChangeSignal::ServerLost));
            }
            let left = Duration::from_nanos(until.since_ns(mono()));
            if left.is_zero() {
                return Ok(None);
            }
            state = self.board.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The next wait ends soon, as after the loss of a server.
    pub(crate) fn look_again(&self) {
        self.shared.pause(LOST_PAUSE);
        self.board.lock().is_server_lost = true;
    }

    /// Begins to wait at servers that are new in the map.
    fn ask_every_server(&mut self) -> Result<(), Error> {
        let pools = self.shared.servers.all();
        let is_known = |address: &ServerAddr| pools.iter().any(|pool| **pool.address() == *address);
        self.servers.retain(|address, cancel| {
            let keeps = is_known(address);
            if !keeps && let Some(cancel) = lock(cancel).take() {
                cancel.cancel();
            }
            keeps
        });
        for pool in pools {
            if self.servers.contains_key(&**pool.address()) {
                continue;
            }
            let cancel = Arc::new(Mutex::new(None));
            let server = WaitingServer {
                shared: self.shared.clone(),
                board: self.board.clone(),
                pool: pool.clone(),
                cancel: cancel.clone(),
            };
            let spawned = std::thread::Builder::new().name("frieze-watch".to_owned()).spawn(move || server.run());
            spawned.map_err(|error| {
                let words = format!("the system has no thread for a watch: {error}");
                Error::Refused(frieze_base::Fault::new(frieze_base::Reason::Overloaded, words))
            })?;
            self.servers.insert((**pool.address()).clone(), cancel);
        }
        Ok(())
    }
}

impl Drop for ChangeWaits {
    fn drop(&mut self) {
        self.board.lock().is_closed = true;
        self.board.changed.notify_all();
        for cancel in self.servers.values() {
            if let Some(cancel) = lock(cancel).take() {
                cancel.cancel();
            }
        }
    }
}

impl WaitBoard {
    fn lock(&self) -> MutexGuard<'_, BoardState> {
        lock(&self.state)
    }
}

/// The thread that waits at one server.
struct WaitingServer {
    shared: Arc<ClientCore>,
    board: Arc<WaitBoard>,
    pool: Arc<ConnectionPool>,
    /// Ends the wait in the socket.
    cancel: Arc<Mutex<Option<CancelHandle>>>,
}

impl WaitingServer {
    fn run(self) {
        let (mut connection, mut answered, mut pause) = (None, 0, PAUSE_MIN);
        while let Some((after, round)) = self.next_round(answered) {
            match self.ask(&mut connection, after) {
                Ok(None) => {}
                Ok(Some(upto)) => {
                    (answered, pause) = (round, PAUSE_MIN);
                    let mut state = self.board.lock();
                    state.upto = state.upto.max(Some(upto));
                    self.board.changed.notify_all();
                }
                Err(error) => {
                    connection = None;
                    if !is_retryable(&error) && !matches!(error, Error::Unanswered { .. }) {
                        let mut state = self.board.lock();
                        state.error = Some(error);
                        answered = round;
                        self.board.changed.notify_all();
                        continue;
                    }
                    tracing::debug!(server = %self.pool.address(), "a watch waits at the other servers: {error}");
                    self.shared.refresh_map(self.shared.servers.age(), ANSWER_MAX);
                    if !self.is_in_map() {
                        return;
                    }
                    self.board.lock().is_server_lost = true;
                    self.board.changed.notify_all();
                    self.shared.pause(pause);
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    /// The position to wait from, once the feed waits again after this server has answered. `None`: the feed has ended.
    fn next_round(&self, answered: u64) -> Option<(Hlc, u64)> {
        let mut state = self.board.lock();
        while !state.is_closed && state.round <= answered {
            state = self.board.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        (!state.is_closed && !self.shared.is_closed()).then_some((state.position, state.round))
    }

    fn is_in_map(&self) -> bool {
        self.shared.servers.all().iter().any(|pool| pool.address() == self.pool.address())
    }

    fn ask(&self, connection: &mut Option<Connection>, after: Hlc) -> Result<Option<Hlc>, Error> {
        let connection = match connection {
            Some(connection) => connection,
            None => {
                let opened = self.shared.greet(&self.pool, ANSWER_MAX)?;
                *lock(&self.cancel) = Some(opened.cancel_handle());
                // The feed may have ended before there was anything to cancel.
                if self.board.lock().is_closed {
                    return Err(Error::Closed);
                }
                connection.insert(opened)
            }
        };
        let request = Request::AwaitChange(AwaitChange { after: after.0, wait_ms: AWAIT_MS_MAX });
        let body = RequestBody { caller: None, trace: None, request: Some(request) };
        let id = self.shared.send(connection, &RpcRequest::new(body, self.shared.current_session(), Seq(0), &[]))?;
        // Sleeps in the socket; a read with a limit would wake the thread now and then.
        let limit = Duration::from_millis(AWAIT_MS_MAX.into()) + ANSWER_MAX;
        if !connection.await_reply(limit)? {
            return Err(connection.silent(limit));
        }
        match self.shared.receive(connection, id)?.result.map_err(Error::Refused)? {
            Reply::AwaitChange(reply) => Ok(Some(Hlc(reply.upto)).filter(|upto| *upto > Hlc::ZERO)),
            other => Err(self.shared.unexpected("a change", &other)),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A server greets within this time, and answers so long after the end of the wait.
const ANSWER_MAX: Duration = Duration::from_secs(4);
/// Pauses before a server that does not answer is asked again.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Pause until the cell of time of a lost server's last change has ended.
const LOST_PAUSE: Duration = Duration::from_millis(50);
