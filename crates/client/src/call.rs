//! A call: sent, and sent again under the same number until it is answered or its time is over.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use frieze_base::{ChainEpoch, Fault, MonoTime, Reason, Seq, SessionId};
use frieze_hlc::Hlc;
use frieze_net::{ServerAddr, mono, random_nonce};
use frieze_wire::message::{ClusterMap, HelloReply, Reply, Request, RequestBody, Stat, Txn, TxnReply};
use frieze_wire::txn::{Caller, CloseSession, Op, OpenSession};
use frieze_wire::{FrameHeader, FrameKind, Holds};

use crate::buffers::Buffers;
use crate::closing::Closing;
use crate::connection::{Answer, Connection, name_of};
use crate::grants::Writers;
use crate::holding::{Granted, Recalling};
use crate::open_files::OpenFiles;
use crate::patience::{Patience, is_passing, is_worth_repeating};
use crate::pool::{Near, NoPlace, Place, Pool};
use crate::posting::{BEHIND_MAX, CATCH_UP_EVERY};
use crate::servers::{Age, Route, Servers};
use crate::session::{Numbered, Sequence};
use crate::{Durability, Error, Options};

/// What all handles of one client share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) hello: HelloReply,
    pub(crate) sequence: Arc<Sequence>,
    pub(crate) writers: Writers,
    pub(crate) closing: Closing,
    pub(crate) open_files: OpenFiles,
    pub(crate) servers: Servers,
    pub(crate) recalls: Recalling,
    pub(crate) buffers: Buffers,
    /// 0 until a session was needed.
    session: AtomicU64,
    /// Held while a session is opened, so that there is one.
    opening: Mutex<()>,
    newest: AtomicU64,
    epoch: AtomicU64,
    last_request: AtomicU64,
    /// No call goes on trying beyond this moment ([`MonoTime`]); the largest number while the program has no end in sight.
    ends_at: AtomicU64,
    /// What was read of some file may lack something.
    pub(crate) met_loss: AtomicBool,
    /// Under which this client reads the past, where it needs no session.
    pub(crate) reader: u64,
    /// Until when nobody is asked what is now before what was known last ([`MonoTime`]): nobody led just now.
    recent_until: AtomicU64,
    /// What a server answered last that is of another cluster now.
    another_cluster: Mutex<Option<Fault>>,
}

/// One request as it is sent, once or more often.
#[derive(Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) body: RequestBody,
    pub(crate) session: SessionId,
    /// 0 for a request that changes nothing.
    pub(crate) seq: Seq,
    pub(crate) payload: &'a [u8],
    /// It was sent and no answer came: it may have run.
    pub(crate) may_have_run: Cell<bool>,
    /// Asks for cache grants, and keeps what the answer says of them.
    pub(crate) granted: Option<&'a Granted>,
    /// Who is to answer.
    pub(crate) route: Route,
    /// It is given up after so long, if that is less than any call of the client may take.
    limit: Option<Duration>,
}

impl<'a> Ask<'a> {
    pub(crate) fn new(body: RequestBody, session: SessionId, seq: Seq, payload: &'a [u8]) -> Ask<'a> {
        let route = body.request.as_ref().map_or(Route::Lead, route_of);
        Ask { body, session, seq, payload, may_have_run: Cell::new(false), granted: None, route, limit: None }
    }

    /// Given up after `limit`.
    pub(crate) fn within(self, limit: Option<Duration>) -> Ask<'a> {
        Ask { limit, ..self }
    }

    pub(crate) fn to(self, route: Route) -> Ask<'a> {
        Ask { route, ..self }
    }

    fn noting(self, granted: Option<&'a Granted>) -> Ask<'a> {
        Ask { granted, ..self }
    }
}

/// Who is to answer a request that is about no chunk.
fn route_of(request: &Request) -> Route {
    let is_past = match request {
        Request::Stat(ask) => ask.view.at.is_some() || ask.recent,
        Request::List(ask) => ask.view.at.is_some(),
        Request::ReadLink(ask) => ask.view.at.is_some(),
        Request::Access(ask) => ask.view.at.is_some(),
        Request::GetXattr(ask) => ask.view.at.is_some(),
        Request::Open(ask) => ask.view.at.is_some(),
        Request::Story(ask) => ask.view.at.is_some(),
        Request::Deleted(ask) => ask.view.at.is_some(),
        Request::Log(ask) => ask.is_past(),
        // Two instants; the time, and what instants are named; who is known to answer for what.
        Request::Diff(_) | Request::Now(_) | Request::Snapshots(_) | Request::ClusterMap(_) => true,
        _ => false,
    };
    if is_past { Route::Any } else { Route::Lead }
}

/// What one attempt ended with.
pub(crate) enum Attempt<T> {
    /// An answer, good or bad.
    Done(T),
    /// None, or one that says: later. Worth another attempt.
    Again(Error),
}

impl Shared {
    pub(crate) fn connect(mut options: Options) -> Result<Shared, Error> {
        let (server, connection, hello) = first_that_answers(&options)?;
        options.server = server;
        let near = match &options.within {
            Some(within) => Some(Near::Within(within.clone())),
            None => options.prefers_socket.then(|| near(&options, &hello)).flatten().map(Near::Socket),
        };
        // By whichever door it came.
        let connection = (options.within.is_some() || near.is_none()).then_some(connection);
        let home = Pool::new(options.server.clone(), near, options.connections_max);
        let salt = random_nonce()?;
        let reader = u64::from_le_bytes([salt[4], salt[5], salt[6], salt[7], salt[8], salt[9], salt[10], salt[11]]);
        let salt = u32::from_le_bytes([salt[0], salt[1], salt[2], salt[3]]);
        let shared = Shared {
            servers: Servers::new(home, options.connections_max, salt),
            hello,
            sequence: Arc::default(),
            writers: Writers::default(),
            closing: Closing::default(),
            open_files: OpenFiles::default(),
            recalls: Recalling::default(),
            buffers: Buffers::default(),
            session: AtomicU64::new(0),
            opening: Mutex::new(()),
            newest: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
            last_request: AtomicU64::new(0),
            ends_at: AtomicU64::new(u64::MAX),
            met_loss: AtomicBool::new(false),
            reader,
            recent_until: AtomicU64::new(0),
            another_cluster: Mutex::default(),
            options,
        };
        if let Ok(mut place) = shared.servers.home().take(mono()) {
            place.connection = connection.map(Box::new);
            place.give_back();
        }
        if shared.hello.map_version > 0 {
            shared.look_around(Age::default(), shared.options.timeout);
        }
        Ok(shared)
    }

    /// The newest stamp seen in any answer.
    pub(crate) fn newest(&self) -> Hlc {
        Hlc(self.newest.load(Ordering::Relaxed))
    }

    /// An answer carried this stamp: later requests relay it.
    pub(crate) fn saw(&self, stamp: Hlc) {
        self.newest.fetch_max(stamp.0, Ordering::Relaxed);
    }

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
        let _opening = self.opening.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
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
        // It has no number yet: sent again it opens another, and the first stays unused. On stable storage, so that a loss
        // of power does not take the numbers and handles of a client that lives on.
        let body = RequestBody { caller: None, request: Some(txn(Durability::Sync, op)) };
        let ask = Ask::new(body, SessionId(0), Seq(0), &[]);
        let reply = expect_txn(self, self.ask(&ask, &mut [])?.0)?;
        self.session.store(reply.id, Ordering::Release);
        Ok(SessionId(reply.id))
    }

    /// A request that changes nothing.
    pub(crate) fn query(&self, caller: Option<&Caller>, request: Request) -> Result<Reply, Error> {
        self.query_noting(caller, request, None)
    }

    /// The same, with a note of how long the answer may be cached.
    pub(crate) fn query_noting(
        &self,
        caller: Option<&Caller>,
        request: Request,
        granted: Option<&Granted>,
    ) -> Result<Reply, Error> {
        let body = RequestBody { caller: caller.cloned(), request: Some(request) };
        let session = SessionId(self.session.load(Ordering::Acquire));
        Ok(self.ask(&Ask::new(body, session, Seq(0), &[]).noting(granted), &mut [])?.0)
    }

    /// The attributes of a directory as they are now; if nobody says so within [`RECENT_AFTER`], as a server that answers knew them
    /// last, without a right to cache them.
    pub(crate) fn query_recent(
        &self,
        caller: Option<&Caller>,
        stat: Stat,
        granted: Option<&Granted>,
    ) -> Result<Reply, Error> {
        let body = |recent| {
            let stat = Stat { recent, ..stat.clone() };
            RequestBody { caller: caller.cloned(), request: Some(Request::Stat(stat)) }
        };
        if mono() >= MonoTime(self.recent_until.load(Ordering::Relaxed)) {
            // Grants belong to a session.
            let mut session = if granted.is_some() { self.session()? } else { self.current_session() };
            let ask = |session| Ask::new(body(false), session, Seq(0), &[]).noting(granted).within(Some(RECENT_AFTER));
            let mut asked = self.ask(&ask(session), &mut []);
            if matches!(&asked, Err(Error::Refused(fault)) if fault.reason == Reason::UnknownSession) {
                session = self.open_session(session)?;
                asked = self.ask(&ask(session), &mut []);
            }
            if !matches!(asked, Err(Error::Unanswered { .. })) {
                return Ok(asked?.0);
            }
            let until = mono().0.saturating_add(RECENT_FOR.as_nanos() as u64);
            self.recent_until.store(until, Ordering::Relaxed);
        }
        Ok(self.ask(&Ask::new(body(true), SessionId(0), Seq(0), &[]), &mut [])?.0)
    }

    /// A request that changes nothing but needs a session.
    pub(crate) fn query_in_session(&self, caller: Option<&Caller>, request: Request) -> Result<Reply, Error> {
        self.query_in_session_noting(caller, request, None)
    }

    /// The same, with a note of how long the answer may be cached.
    pub(crate) fn query_in_session_noting(
        &self,
        caller: Option<&Caller>,
        request: Request,
        granted: Option<&Granted>,
    ) -> Result<Reply, Error> {
        let body = RequestBody { caller: caller.cloned(), request: Some(request) };
        let mut ask = Ask::new(body, self.session()?, Seq(0), &[]).noting(granted);
        match self.ask(&ask, &mut []) {
            Err(Error::Refused(fault)) if fault.reason == Reason::UnknownSession => {
                ask.session = self.open_session(ask.session)?;
                Ok(self.ask(&ask, &mut [])?.0)
            }
            done => Ok(done?.0),
        }
    }

    /// A metadata transaction.
    pub(crate) fn change(&self, caller: Option<&Caller>, durability: Durability, op: Op) -> Result<TxnReply, Error> {
        self.change_noting(caller, durability, op, None)
    }

    /// The same, with a note of how long the answer may be cached.
    pub(crate) fn change_noting(
        &self,
        caller: Option<&Caller>,
        durability: Durability,
        op: Op,
        granted: Option<&Granted>,
    ) -> Result<TxnReply, Error> {
        let mut reply = expect_txn(self, self.ask_numbered(caller, txn(durability, op), granted)?)?;
        if let Some(granted) = granted {
            granted.note_parents(&mut reply);
        }
        Ok(reply)
    }

    /// A request that changes something, with a number of its own.
    pub(crate) fn ask_numbered(
        &self,
        caller: Option<&Caller>,
        request: Request,
        granted: Option<&Granted>,
    ) -> Result<Reply, Error> {
        let session = self.session()?;
        let numbered = self.number()?;
        let body = RequestBody { caller: caller.cloned(), request: Some(request) };
        let mut ask = Ask::new(body, session, numbered.seq, &[]).noting(granted);
        match self.ask(&ask, &mut []) {
            // A loss of power took the session before it was on disk. Under another session the request is another, so
            // it is sent again only if it cannot have run.
            Err(Error::Refused(fault)) if fault.reason == Reason::UnknownSession && !ask.may_have_run.get() => {
                tracing::info!(session = %ask.session, "the server does not know the session any more: opening another");
                ask.session = self.open_session(ask.session)?;
                Ok(self.ask(&ask, &mut [])?.0)
            }
            done => Ok(done?.0),
        }
    }

    /// Sends a request until it is answered or its time is over. Returns the reply and how many bytes of `into` its
    /// payload filled.
    pub(crate) fn ask(&self, ask: &Ask<'_>, into: &mut [u8]) -> Result<(Reply, usize), Error> {
        let mut patience = self.patience();
        if let Some(limit) = ask.limit {
            patience.within(limit);
        }
        loop {
            let age = self.servers.age();
            let mut place = self.take(ask.route, &patience)?;
            let attempt = self.attempt(&mut place, ask, into, &patience);
            match attempt {
                Attempt::Done(Ok(done)) => {
                    place.give_back();
                    return Ok(done);
                }
                Attempt::Done(Err(error @ Error::Refused(_))) => {
                    let goes_on = patience.passes_over(&self.servers, ask.route, place.pool(), &error);
                    place.give_back();
                    if !goes_on {
                        return Err(error);
                    }
                }
                Attempt::Done(Err(error)) => {
                    self.bury(place);
                    return Err(error);
                }
                Attempt::Again(error) => {
                    self.leave(place, &error, age, &patience);
                    patience.wait(self, error)?;
                }
            }
        }
    }

    fn attempt(
        &self,
        place: &mut Place,
        ask: &Ask<'_>,
        into: &mut [u8],
        patience: &Patience,
    ) -> Attempt<Result<(Reply, usize), Error>> {
        let connection = match self.opened(place, patience) {
            Ok(connection) => connection,
            Err(error) if is_worth_repeating(&error) => return Attempt::Again(error),
            Err(error) => return Attempt::Done(Err(error)),
        };
        let mut exchange = || -> Result<(Answer, usize), Error> {
            let before = ask.may_have_run.replace(true);
            let id = self.send(connection, ask)?;
            let answer = self.receive(connection, id)?;
            if let Some(granted) = ask.granted {
                granted.note(answer.header.holds);
            }
            // Answered: as far as this attempt goes it is known.
            ask.may_have_run.set(before);
            let len = answer.header.payload_len as usize;
            if len > into.len() {
                let found = format!("{len} bytes of payload");
                return Err(Error::Protocol { server: self.server(), asked: "a request for fewer", found });
            }
            connection.take_payload(&mut into[..len])?;
            Ok((answer, len))
        };
        match exchange() {
            Ok((Answer { result: Ok(reply), .. }, len)) => Attempt::Done(Ok((reply, len))),
            Ok((Answer { result: Err(fault), .. }, _)) if is_passing(&fault) => Attempt::Again(Error::Refused(fault)),
            Ok((Answer { result: Err(fault), .. }, _)) => Attempt::Done(Err(Error::Refused(fault))),
            Err(error) if is_worth_repeating(&error) => Attempt::Again(error),
            Err(error) => Attempt::Done(Err(error)),
        }
    }

    /// A number for a change. Waits while an older one is unanswered that the server would forget before it is sent again:
    /// after a restart of the server one request may pause while others run by the thousand.
    pub(crate) fn number(&self) -> Result<Numbered, Error> {
        let mut patience = None;
        loop {
            if let Some(numbered) = self.sequence.next() {
                return Ok(numbered);
            }
            let patience = patience.get_or_insert_with(|| self.patience());
            if patience.left().is_zero() {
                let last = "a request before it is not answered".to_owned();
                let (server, waited) = (self.server(), patience.waited());
                return Err(Error::Unanswered { server, waited, last, refused: true });
            }
            self.catch_up();
            self.sequence.wait(CATCH_UP_EVERY);
        }
    }

    /// An attempt ended with `error`, made by a map of `age`: the place is given up, and where another server
    /// may know better, it is asked who answers now.
    pub(crate) fn leave(&self, place: Place, error: &Error, age: Age, patience: &Patience) {
        let pool = place.pool().clone();
        match error {
            Error::Refused(_) => place.give_back(),
            _ => self.bury(place),
        }
        self.look_after(&pool, error, age, patience);
    }

    /// The same where answers are still to come on the connection: it ends.
    pub(crate) fn abandon(&self, place: Place, error: &Error, age: Age, patience: &Patience) {
        let pool = place.pool().clone();
        match error {
            Error::Refused(_) => drop(place),
            _ => self.bury(place),
        }
        self.look_after(&pool, error, age, patience);
    }

    fn look_after(&self, pool: &Pool, error: &Error, age: Age, patience: &Patience) {
        let was_answered = match error {
            // It was alone when it was connected to, and has founded a cluster since.
            Error::Refused(fault) if fault.reason == Reason::Elsewhere => true,
            _ if age.is_alone() => return,
            Error::Refused(fault) if fault.reason == Reason::Overloaded => return,
            Error::Refused(_) => true,
            _ => false,
        };
        self.look_around(age, patience.left());
        if !was_answered {
            self.servers.was_silent(pool);
        }
    }

    /// Asks the servers, one after the other, for a map that is newer than `age`, until one has it.
    pub(crate) fn look_around(&self, age: Age, left: Duration) {
        let Some(_asking) = self.servers.asking(age) else { return };
        let body = RequestBody { caller: None, request: Some(Request::ClusterMap(ClusterMap {})) };
        let ask = Ask::new(body, SessionId(0), Seq(0), &[]);
        let servers = self.servers.all();
        // The only one that is known is waited for: without its map nobody else is asked when it is lost.
        let limit = if servers.len() == 1 { left } else { left.min(MAP_WAIT) };
        for pool in servers {
            // A connection of its own: those that are idle may be as dead as the one that failed.
            let asked = self.open(&pool, limit).and_then(|(mut connection, _)| {
                let id = self.send(&mut connection, &ask)?;
                self.receive(&mut connection, id)?.result.map_err(Error::Refused)
            });
            match asked {
                Ok(Reply::ClusterMap(map)) => {
                    if self.servers.learn(&map) {
                        // Whoever waits for recalls waits at the wrong server.
                        self.recalls.hang_up();
                    }
                    *self.another_cluster.lock().unwrap_or_else(PoisonError::into_inner) = None;
                    // Who lags behind does not know better.
                    if Age::of(&map).is_newer_than(age) && map.leader != 0 {
                        return;
                    }
                }
                Ok(other) => {
                    tracing::debug!(found = name_of(&other), server = %pool.address(), "no map of the cluster")
                }
                Err(error) => {
                    tracing::debug!(%error, server = %pool.address(), "no map of the cluster");
                    if let Error::Refused(fault) = error
                        && fault.reason == Reason::WrongCluster
                    {
                        *self.another_cluster.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault);
                    }
                }
            }
        }
    }

    /// What a server of another cluster answered, where no server of this one has answered since.
    pub(crate) fn another_cluster(&self) -> Option<Fault> {
        self.another_cluster.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A place for who is to answer; waits for it as long as the call may take.
    pub(crate) fn take(&self, route: Route, patience: &Patience) -> Result<Place, Error> {
        if self.sequence.behind() > BEHIND_MAX {
            self.catch_up();
        }
        let pool = match patience.passed.is_empty() {
            true => self.servers.pool(route),
            false => self.servers.another(route, &patience.passed).unwrap_or_else(|| self.servers.pool(route)),
        };
        let taken = pool.take(patience.deadline);
        let named = taken.map(|mut place| {
            place.route = route;
            place
        });
        named.map_err(|no_place| match no_place {
            NoPlace::Closed => Error::Closed,
            NoPlace::Busy => Error::Busy {
                server: self.server(),
                connections_max: self.options.connections_max,
                waited: patience.waited(),
            },
        })
    }

    /// The connection of a place, opened if it has none, with the time that is left.
    pub(crate) fn opened<'p>(&self, place: &'p mut Place, patience: &Patience) -> Result<&'p mut Connection, Error> {
        let left = patience.left();
        if place.connection.is_none() {
            // Of several servers one that does not answer is given up sooner.
            let limit = if self.servers.age().is_alone() { left } else { left.min(MAP_WAIT) };
            place.connection = Some(Box::new(self.greet(place.pool(), limit)?));
        }
        let asked = (!self.servers.age().is_alone()).then(|| (place.pool().clone(), place.route));
        let connection = place.connection.as_mut().expect("just opened");
        connection.asked = asked;
        connection.set_limit(left);
        Ok(connection)
    }

    /// Opens a connection to a server; if the server's map is newer than the one that is known, asks for it: servers end the connections of
    /// clients when others join or leave, so that clients know whom to ask when one is lost.
    pub(crate) fn greet(&self, pool: &Pool, limit: Duration) -> Result<Connection, Error> {
        let (connection, map_version) = self.open(pool, limit)?;
        let age = self.servers.age();
        if map_version > age.version {
            self.look_around(age, limit);
        }
        Ok(connection)
    }

    /// Opens a connection to a server, by the near door if it is open. Returns it with the version of the server's map.
    fn open(&self, pool: &Pool, limit: Duration) -> Result<(Connection, u64), Error> {
        let with_version = |(connection, hello): (Connection, HelloReply)| (connection, hello.map_version);
        match pool.near() {
            None => {}
            Some(Near::Within(within)) => {
                return Connection::open_within(&**within, &self.options, &self.hello.cluster, limit).map(with_version);
            }
            Some(Near::Socket(near)) => match Connection::open_at(near, &self.options, &self.hello.cluster, limit) {
                Ok(opened) => return Ok(with_version(opened)),
                // Nobody is behind it, or another server.
                Err(error @ (Error::Transport(frieze_net::Error::Connect { .. }) | Error::Refused(_))) => {
                    tracing::debug!(%error, %near, "the server is asked by its usual address");
                }
                Err(error) => return Err(error),
            },
        }
        Connection::open_at(pool.address(), &self.options, &self.hello.cluster, limit).map(with_version)
    }

    /// Sends a request with everything a header carries. Returns the request's id.
    pub(crate) fn send(&self, connection: &mut Connection, ask: &Ask<'_>) -> Result<u64, Error> {
        let header = self.header(ask);
        connection.send(header, &ask.body, ask.payload)?;
        Ok(header.request_id)
    }

    /// Adds a small request to those that go out with [`Connection::send_together`]. Returns its id.
    pub(crate) fn put(&self, connection: &mut Connection, ask: &Ask<'_>) -> u64 {
        let header = self.header(ask);
        connection.put(header, &ask.body, ask.payload);
        header.request_id
    }

    fn header(&self, ask: &Ask<'_>) -> FrameHeader {
        FrameHeader {
            request_id: self.last_request.fetch_add(1, Ordering::Relaxed) + 1,
            session: ask.session,
            seq: ask.seq,
            acked: if ask.seq == Seq(0) { Seq(0) } else { self.sequence.acked() },
            // Every chain of a cluster counts for itself, and its head knows.
            epoch: ChainEpoch(if self.servers.age().is_alone() { self.epoch.load(Ordering::Relaxed) } else { 0 }),
            hlc: self.newest(),
            holds: if ask.granted.is_some() { Holds::ASKED } else { Holds::NONE },
            ..FrameHeader::of(FrameKind::Request)
        }
    }

    /// Receives the answer to `id`.
    pub(crate) fn receive(&self, connection: &mut Connection, id: u64) -> Result<Answer, Error> {
        let answer = self.receive_any(connection)?;
        if answer.header.request_id == id {
            return Ok(answer);
        }
        let found = format!("request {}", answer.header.request_id);
        Err(Error::Protocol { server: self.server(), asked: "another request", found })
    }

    /// Receives the next answer that somebody waits for.
    pub(crate) fn receive_any(&self, connection: &mut Connection) -> Result<Answer, Error> {
        loop {
            if connection.asked.is_some() {
                self.await_answer(connection)?;
            }
            let answer = connection.receive()?;
            self.saw(answer.header.hlc);
            self.epoch.fetch_max(answer.header.epoch.0, Ordering::Relaxed);
            let id = answer.header.request_id;
            if let (0, Err(fault)) = (id, &answer.result) {
                // The server closes the connection and says why.
                return Err(Error::Refused(fault.clone()));
            }
            match connection.owed.iter().position(|(owed, _)| *owed == id) {
                None => return Ok(answer),
                Some(at) => drop(connection.owed.swap_remove(at)),
            }
        }
    }

    /// Waits for an answer of one of several servers. While there is none the others are asked who answers now: one that was cut off
    /// or stopped ends no connection.
    ///
    /// # Errors
    /// `Silent` once another is to be asked.
    fn await_answer(&self, connection: &mut Connection) -> Result<(), Error> {
        let began = mono();
        loop {
            let waited = Duration::from_nanos(mono().since_ns(began));
            let left = connection.limit().saturating_sub(waited);
            if left.is_zero() {
                return Err(connection.silent(waited));
            }
            if connection.await_answer(left.min(SILENCE))? {
                return Ok(());
            }
            let Some((pool, route)) = connection.asked.clone() else { continue };
            let age = self.servers.age();
            if self.servers.may_look(mono(), SILENCE) {
                self.look_around(age, left);
            }
            self.servers.was_silent(&pool);
            if !Arc::ptr_eq(&self.servers.pool(route), &pool) {
                return Err(connection.silent(Duration::from_nanos(mono().since_ns(began))));
            }
        }
    }

    /// Ends a connection that failed. What it owed is lost.
    pub(crate) fn bury(&self, place: Place) {
        if place.connection.is_some() {
            place.bury();
        }
    }

    pub(crate) fn patience(&self) -> Patience {
        let began = mono();
        let deadline = MonoTime(began.0.saturating_add(self.options.timeout.as_nanos() as u64)).min(self.ends_at());
        Patience { began, deadline, pause: Duration::ZERO, passed: Vec::new(), refused: None }
    }

    /// The moment beyond which no call goes on trying.
    pub(crate) fn ends_at(&self) -> MonoTime {
        MonoTime(self.ends_at.load(Ordering::Acquire))
    }

    pub(crate) fn end_within(&self, limit: Duration) {
        let at = mono().0.saturating_add(limit.as_nanos() as u64);
        self.ends_at.fetch_min(at, Ordering::AcqRel);
    }

    pub(crate) fn server(&self) -> String {
        self.options.server.to_string()
    }

    pub(crate) fn unexpected(&self, asked: &'static str, found: &Reply) -> Error {
        Error::Protocol { server: self.server(), asked, found: name_of(found).to_owned() }
    }

    /// True once the client was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.servers.is_closed()
    }

    /// Waits, and ends early when the client is closed.
    pub(crate) fn pause(&self, duration: Duration) {
        self.servers.pause(duration);
    }

    /// Ends the session, once. Nothing can be asked afterwards.
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
        self.closing.end();
        match ended {
            // It has ended already: that is what was wanted.
            Err(Error::Refused(fault)) if fault.reason == Reason::UnknownSession => Ok(()),
            ended => ended,
        }
    }
}

impl Drop for Shared {
    /// Ends the session if the server answers at once. Else it stays open, holding nothing but what its files hold.
    fn drop(&mut self) {
        let session = self.current_session();
        if self.servers.is_closed() || session == SessionId(0) {
            return;
        }
        let Ok(mut place) = self.servers.pool(Route::Lead).take(mono()) else { return };
        if place.connection.is_none() {
            // The last one ended with a stream that was refused, whose file nobody else may write to before this session ends.
            place.connection = self.open(place.pool(), FAREWELL).ok().map(|(connection, _)| Box::new(connection));
        }
        let Some(connection) = place.connection.as_mut() else { return };
        let op = Op::CloseSession(CloseSession::default());
        let body = RequestBody { caller: None, request: Some(txn(Durability::Async, op)) };
        let numbered = self.sequence.next_at_once();
        connection.set_limit(FAREWELL);
        // Read to the end: a socket closed over unread answers is reset, and with it what was sent last.
        let ended = self.send(connection, &Ask::new(body, session, numbered.seq, &[])).and_then(|id| {
            connection.owed.push((id, numbered));
            self.collect_owed(connection)
        });
        if let Err(error) = ended {
            tracing::debug!(%error, "the session could not be ended");
        }
    }
}

/// The first of the servers that are named which answers and takes this caller.
fn first_that_answers(options: &Options) -> Result<(ServerAddr, Connection, HelloReply), Error> {
    if let Some(within) = &options.within {
        let (connection, hello) = Connection::open_within(&**within, options, "", options.timeout)?;
        return Ok((options.server.clone(), connection, hello));
    }
    let connect = |server: &ServerAddr, limit| {
        let (connection, hello) = Connection::open_at(server, options, "", limit)?;
        Ok((server.clone(), connection, hello))
    };
    if options.others.is_empty() {
        return connect(&options.server, options.timeout);
    }
    let (mut tried, mut reason, mut unled) = (Vec::new(), Reason::Unavailable, None);
    for server in std::iter::once(&options.server).chain(&options.others) {
        match connect(server, options.timeout.min(NEXT_WAIT)) {
            Ok((server, mut connection, hello)) => {
                if !options.prefers_led || is_led(&mut connection, &hello) {
                    return Ok((server, connection, hello));
                }
                tracing::debug!(%server, "it knows no leader: the next server is asked");
                unled.get_or_insert((server, connection, hello));
            }
            Err(error) => {
                let why = match &error {
                    Error::Transport(error) => error.why(),
                    other => other.to_string(),
                };
                tracing::debug!(%server, why, "the next server is asked");
                tried.push((server.to_string(), why));
                reason = error.reason();
            }
        }
    }
    unled.ok_or(Error::NoneAnswers { tried, reason })
}

/// True if the server is alone, or knows who leads its cluster: of a lost majority, or an identity that has ended, it knows of nobody.
fn is_led(connection: &mut Connection, hello: &HelloReply) -> bool {
    if hello.map_version == 0 {
        return true;
    }
    let body = RequestBody { caller: None, request: Some(Request::ClusterMap(ClusterMap {})) };
    let header = FrameHeader::of(FrameKind::Request);
    let answer = connection.send(header, &body, &[]).and_then(|()| connection.receive());
    matches!(answer, Ok(Answer { result: Ok(Reply::ClusterMap(map)), .. }) if map.leader != 0)
}

/// The door that the server offers to callers from its machine, if it leads to the same server and it takes the caller for
/// the same there.
fn near(options: &Options, hello: &HelloReply) -> Option<ServerAddr> {
    if hello.socket.is_empty() || matches!(options.server, ServerAddr::Unix(_)) {
        return None;
    }
    let near = ServerAddr::Unix(hello.socket.clone().into());
    let (_, there) = Connection::open_at(&near, options, &hello.cluster, options.timeout).ok()?;
    let is_same = (there.uid, there.may_impersonate, there.node) == (hello.uid, hello.may_impersonate, hello.node);
    is_same.then_some(near)
}

pub(crate) fn txn(durability: Durability, op: Op) -> Request {
    Request::Txn(Txn { durability: durability as i32, op: Some(op) })
}

fn expect_txn(shared: &Shared, reply: Reply) -> Result<TxnReply, Error> {
    match reply {
        Reply::Txn(reply) => Ok(reply),
        other => Err(shared.unexpected("a change", &other)),
    }
}

/// How long one of several servers that are named may take to answer before the next is asked.
const NEXT_WAIT: Duration = Duration::from_secs(3);
/// How long one of several servers may take to greet, or to say who answers for what.
const MAP_WAIT: Duration = Duration::from_millis(500);
/// Of several servers: how long one is silent before the others are asked who answers now.
const SILENCE: Duration = Duration::from_millis(400);
/// How long a server that leads is waited for before a directory is shown as it was last known, and for how long it is then shown so
/// without waiting again. A leader that was lost has a successor within a fraction of a second.
const RECENT_AFTER: Duration = Duration::from_secs(1);
const RECENT_FOR: Duration = Duration::from_secs(2);
/// How long the last handle waits for its session to end.
const FAREWELL: Duration = Duration::from_secs(1);
