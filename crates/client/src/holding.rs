//! What the session holds of the server for a while: the right to cache, and locks.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use frieze_base::{Reason, Seq};
use frieze_wire::Holds;
use frieze_wire::holding::{CancelLock, Lock, LockOutcome, LockRange, Recalls, RecallsReply, TestLock};
use frieze_wire::message::{Attr, Read, Reply, Request, RequestBody, TxnReply};

use crate::call::{Ask, Shared};
use crate::connection::{Connection, Cord};
use crate::servers::Route;
use crate::{Client, Error};

/// How long the last answer may be used without asking again, and what else came with it.
#[derive(Debug, Default)]
pub struct Granted {
    holds: AtomicU32,
    parents: Mutex<Parents>,
}

/// What came with the answer to a change of names: the directories it changed.
#[derive(Clone, Debug, Default)]
pub struct Parents {
    /// Their attributes just after; empty if nothing was said of them.
    pub attrs: Vec<Attr>,
    /// For how many milliseconds they may be used.
    pub holds_ms: u32,
}

impl Granted {
    /// What the last answer said; nothing before the first.
    pub fn holds(&self) -> Holds {
        let bits = self.holds.load(Ordering::Relaxed);
        Holds { names_ms: bits as u16, files_ms: (bits >> 16) as u16 }
    }

    /// The directories that the last change of names changed. Taken once.
    pub fn take_parents(&self) -> Parents {
        std::mem::take(&mut *self.parents.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn note_parents(&self, reply: &mut TxnReply) {
        let said = Parents { attrs: std::mem::take(&mut reply.parents), holds_ms: reply.parents_ms };
        *self.parents.lock().unwrap_or_else(PoisonError::into_inner) = said;
    }

    pub(crate) fn note(&self, holds: Holds) {
        self.holds.store(u32::from(holds.names_ms) | u32::from(holds.files_ms) << 16, Ordering::Relaxed);
    }
}

/// Asks the server what must not be used any more, on a connection of its own. Each question renews the lease of
/// everything granted to the session.
#[derive(Debug)]
pub struct Recaller {
    shared: Arc<Shared>,
    connection: Option<Connection>,
}

/// The connection on which recalls are waited for.
#[derive(Debug, Default)]
pub(crate) struct Recalling(Mutex<Option<Cord>>);

impl Recalling {
    fn wait_on(&self, cord: Cord) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(cord);
    }

    /// Whoever waits there asks anew.
    pub(crate) fn hang_up(&self) {
        if let Some(cord) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            cord.pull();
        }
    }
}

impl Client {
    /// What asks for recalls: one for a client that caches, asked again and again by a thread of its own.
    pub fn recaller(&self) -> Recaller {
        Recaller { shared: self.shared(), connection: None }
    }

    /// Tells a server that was started anew which files are open, so that a forgetting leaves them. False if it could not be
    /// told: try again.
    pub fn claim_open_files(&self) -> bool {
        let shared = self.shared();
        shared.open_files.proofs().into_iter().all(|capability| {
            // At a place where no byte can be: it asks for nothing.
            let read = Request::Read(Read { capability, offset: u64::MAX, len: 0, in_steps: false, ..Read::default() });
            // One that is refused is not open any more, as far as the server is concerned.
            matches!(shared.query_in_session(None, read), Ok(_) | Err(Error::Refused(_)))
        })
    }

    /// Locks or unlocks a range of a file. `wait` not 0: waits in line under that number, and [`RecallsReply::locked`]
    /// tells when it is held. `again`: it was held in an earlier life of the server.
    ///
    /// # Errors
    /// As any call.
    pub fn lock(&self, range: LockRange, wait: u64, again: bool) -> Result<LockOutcome, Error> {
        self.ask_lock(Request::Lock(Lock { range, wait, again }))
    }

    /// Waits for a lock no longer. `Held` if it came first.
    ///
    /// # Errors
    /// As any call.
    pub fn cancel_lock(&self, wait: u64) -> Result<LockOutcome, Error> {
        self.ask_lock(Request::CancelLock(CancelLock { wait }))
    }

    /// The first lock that keeps a range from being locked.
    ///
    /// # Errors
    /// As any call.
    pub fn test_lock(&self, range: LockRange) -> Result<Option<LockRange>, Error> {
        let shared = self.shared();
        match shared.query_in_session(None, Request::TestLock(TestLock { range }))? {
            Reply::TestLock(reply) => Ok(reply.held),
            other => Err(shared.unexpected("a lock", &other)),
        }
    }

    fn ask_lock(&self, request: Request) -> Result<LockOutcome, Error> {
        let shared = self.shared();
        match shared.query_in_session(None, request)? {
            Reply::Lock(reply) => Ok(reply.outcome()),
            other => Err(shared.unexpected("a lock", &other)),
        }
    }
}

impl Recaller {
    /// Waits for recalls, a second or so; everything recalled under numbers up to `acked` by the server's life `life` is
    /// dropped.
    ///
    /// # Errors
    /// As any call, without asking again: the lease goes on running out. `Closed` once the client was closed.
    pub fn ask(&mut self, acked: u64, life: u64) -> Result<RecallsReply, Error> {
        if self.shared.is_closed() {
            return Err(Error::Closed);
        }
        let session = self.shared.session()?;
        let (list, open) = self.shared.open_files.list();
        let request = Request::Recalls(Recalls { acked, life, list, open });
        let body = RequestBody { caller: None, request: Some(request) };
        match self.exchange(&Ask::new(body, session, Seq(0), &[])) {
            Err(Error::Refused(fault)) if fault.reason == Reason::UnknownSession => {
                self.shared.open_session(session)?;
                Err(Error::Refused(fault))
            }
            Err(error) => {
                self.connection = None;
                let age = self.shared.servers.age();
                if !age.is_alone() {
                    // Another server may give out what may be cached.
                    self.shared.look_around(age, ANSWER_MAX);
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

    fn exchange(&mut self, ask: &Ask<'_>) -> Result<RecallsReply, Error> {
        if self.connection.is_none() {
            let connection = self.shared.greet(&self.shared.servers.pool(Route::Lead), ANSWER_MAX)?;
            self.shared.recalls.wait_on(connection.cord());
            self.connection = Some(connection);
        }
        let connection = self.connection.as_mut().expect("just opened");
        let is_alone = self.shared.servers.age().is_alone();
        connection.set_limit(if is_alone { ANSWER_MAX } else { ANSWER_AMONG_MAX });
        let id = self.shared.send(connection, ask)?;
        let answer = self.shared.receive(connection, id)?;
        match answer.result.map_err(Error::Refused)? {
            Reply::Recalls(reply) => Ok(reply),
            other => Err(self.shared.unexpected("recalls", &other)),
        }
    }
}

/// A question is answered within a second; a server that takes this long is away.
const ANSWER_MAX: Duration = Duration::from_secs(4);
/// The same where another one would go on.
const ANSWER_AMONG_MAX: Duration = Duration::from_secs(2);
