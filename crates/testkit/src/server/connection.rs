//! A connection to a server of the tests: frames, answers, a session.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use frieze_base::{Fault, Seq, SessionId, crc32c};
use frieze_node::{Conn, Responder, Scratch};
use frieze_wire::frame::{FrameHeader, FrameKind, Holds};
use frieze_wire::message::{Durability, Hello, Reply, Request, RequestBody, Sync, Txn, TxnReply, Write};
use frieze_wire::txn::{Caller, CloseSession, Op, OpenSession};

use super::TestServer;

/// An answer and its payload.
pub type ReplyAndPayload = (Result<Reply, Fault>, Vec<u8>);

/// Answers by request id, and the cache leases of the last one.
#[derive(Default)]
pub struct ReplyLog {
    by_request: Mutex<BTreeMap<u64, ReplyAndPayload>>,
    leases: Mutex<Holds>,
}

impl ReplyLog {
    /// The answer to a request, once, if there is one.
    pub fn take(&self, request: u64) -> Option<ReplyAndPayload> {
        self.by_request.lock().unwrap().remove(&request)
    }

    /// True if a request has an answer that was not taken.
    pub fn has(&self, request: u64) -> bool {
        self.by_request.lock().unwrap().contains_key(&request)
    }

    /// The cache leases that the last answer granted.
    pub fn leases(&self) -> Holds {
        *self.leases.lock().unwrap()
    }
}

impl Responder for ReplyLog {
    fn respond(&self, request: &FrameHeader, result: Result<Reply, Fault>, payload: &[u8], payload_crc: u32) {
        if !payload.is_empty() {
            assert_eq!(payload_crc, crc32c(payload), "the checksum that is sent is that of the bytes");
        }
        let before = self.by_request.lock().unwrap().insert(request.request_id, (result, payload.to_vec()));
        *self.leases.lock().unwrap() = request.holds;
        assert!(before.is_none(), "request {} was answered twice", request.request_id);
    }
}

/// A connection to a server, with the session and the numbers of a client.
pub struct TestConnection {
    /// The server.
    pub server: TestServer,
    /// The server's side of the connection.
    pub conn: Conn,
    /// The session of the requests; 0 is none.
    pub session: SessionId,
    /// Number of the session's last change.
    pub seq: u64,
    answers: Arc<ReplyLog>,
    next: u64,
}

impl TestConnection {
    /// Connects and greets.
    pub(super) fn new(server: TestServer, caller: Caller) -> TestConnection {
        let conn = Conn::new(Some(caller), [3; 32]);
        let (answers, session) = (Arc::default(), SessionId(0));
        let mut connection = TestConnection { server, conn, session, seq: 0, answers, next: 1 };
        connection.ask(Request::Hello(Hello::default())).expect("greets");
        connection
    }

    /// Another user on this connection's place, without a session.
    pub fn reconnect(&mut self, caller: Caller) {
        self.conn = Conn::new(Some(caller), [4; 32]);
        (self.session, self.seq) = (SessionId(0), 0);
        self.ask(Request::Hello(Hello::default())).expect("greets");
    }

    /// Sends a request whose header `change` may change; returns its id.
    pub fn send_frame(
        &mut self,
        request: Request,
        payload: &[u8],
        scratch: &mut Scratch,
        change: impl FnOnce(&mut FrameHeader),
    ) -> u64 {
        let id = self.next;
        self.next += 1;
        let mut header = FrameHeader {
            request_id: id,
            session: self.session,
            payload_len: payload.len() as u32,
            payload_crc: crc32c(payload),
            ..FrameHeader::of(FrameKind::Request)
        };
        change(&mut header);
        let body = RequestBody { caller: None, trace: None, request: Some(request) };
        let responder: Arc<dyn Responder> = self.answers.clone();
        self.server.handle(&self.conn, &header, body, payload.into(), &responder, scratch);
        id
    }

    /// Sends a request under a number of the session; returns its id.
    pub fn send(&mut self, request: Request, payload: &[u8], seq: u64) -> u64 {
        self.send_frame(request, payload, &mut Scratch::default(), |header| header.seq = Seq(seq))
    }

    /// Sends a request under the next number of the session; returns its id.
    pub fn send_next(&mut self, request: Request, payload: &[u8]) -> u64 {
        self.seq += 1;
        self.send(request, payload, self.seq)
    }

    /// Sends a request as a session that caches; returns its id.
    pub fn send_to_cache(&mut self, request: Request) -> u64 {
        self.send_frame(request, &[], &mut Scratch::default(), |header| header.holds = Holds::ASKED)
    }

    /// The answer to a request, once, if there is one.
    pub fn answer(&self, id: u64) -> Option<ReplyAndPayload> {
        self.answers.take(id)
    }

    /// The reply to a request that is answered already.
    ///
    /// # Errors
    /// The server's answer.
    pub fn reply(&self, id: u64) -> Result<Reply, Fault> {
        self.answer(id).expect("answered at once").0
    }

    /// Sends a request that changes nothing.
    ///
    /// # Errors
    /// The server's answer.
    pub fn ask(&mut self, request: Request) -> Result<Reply, Fault> {
        let id = self.send(request, &[], 0);
        self.reply(id)
    }

    /// Opens a session, if there is none.
    pub fn open_session(&mut self) {
        if self.session == SessionId(0) {
            self.open_session_as("test", "here");
        }
    }

    /// Opens another session; returns its number.
    pub fn open_session_as(&mut self, command: &str, host: &str) -> u64 {
        self.try_open_session(command, host).expect("opens a session")
    }

    /// Opens another session; returns its number.
    ///
    /// # Errors
    /// The server's answer.
    pub fn try_open_session(&mut self, command: &str, host: &str) -> Result<u64, Fault> {
        let open = OpenSession { command: command.to_owned(), host: host.to_owned(), uid: 0, keeps: false };
        let id = self.send(Request::Txn(Txn { durability: 0, op: Some(Op::OpenSession(open)) }), &[], 0);
        match self.reply(id)? {
            Reply::Txn(reply) => {
                self.session = SessionId(reply.id);
                Ok(reply.id)
            }
            other => panic!("{other:?}"),
        }
    }

    /// Ends the session, so that no session has a file open for writing.
    pub fn close_session(&mut self) {
        if self.session != SessionId(0) {
            self.txn(Op::CloseSession(CloseSession::default())).unwrap();
            self.session = SessionId(0);
        }
    }

    /// Sends a change of names; returns the request's id.
    pub fn send_txn(&mut self, op: Op) -> u64 {
        self.open_session();
        self.send_next(Request::Txn(Txn { durability: 0, op: Some(op) }), &[])
    }

    /// Changes names.
    ///
    /// # Errors
    /// The server's answer.
    pub fn txn(&mut self, op: Op) -> Result<TxnReply, Fault> {
        let id = self.send_txn(op);
        match self.reply(id)? {
            Reply::Txn(reply) => Ok(reply),
            other => panic!("{other:?}"),
        }
    }

    /// The request that writes to an open file; without an offset it appends.
    pub fn write_request(capability: &[u8], offset: Option<u64>, durability: Durability) -> Request {
        Request::Write(Write {
            capability: capability.to_vec(),
            offset: offset.unwrap_or(0),
            append: offset.is_none(),
            durability: durability as i32,
            ..Write::default()
        })
    }

    /// Waits until everything is durable, which takes a flush.
    pub fn fsync(&mut self) {
        let id = self.send(Request::Sync(Sync { inode: 0 }), &[], 0);
        assert!(self.answer(id).is_none(), "a barrier is answered when everything is durable, not before");
        self.server.flush().expect("flushes");
        self.reply(id).expect("durable");
    }

    /// Asks that everything be durable, and flushes.
    ///
    /// # Errors
    /// The answer to the request, whatever the flush returned.
    pub fn try_fsync(&mut self) -> Result<(), Fault> {
        let id = self.send(Request::Sync(Sync { inode: 0 }), &[], 0);
        let _ = self.server.flush();
        self.answer(id).expect("answered by the flush").0.map(drop)
    }
}
