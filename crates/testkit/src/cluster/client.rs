//! A client that asks one server after the other, under one session and number, until one answers.

use std::sync::Arc;

use frieze_base::{ErrorKind, Fault, InodeId, NodeId, Seq, SessionId, crc32c};
use frieze_node::{Conn, Responder, Scratch};
use frieze_wire::frame::{FrameHeader, FrameKind, Holds};
use frieze_wire::holding::Recalls;
use frieze_wire::message::{
    Hello, List, Now, Open, Read, Reply, Request, RequestBody, Stat, Txn, TxnReply, View, Write, WriteReply,
};
use frieze_wire::txn::{Caller, Grant, Make, MakeKind, Op, OpenSession, Rename, Target};

use super::TestCluster;
use crate::server::{ReplyAndPayload, ReplyLog};

/// A client of a cluster, with one session.
pub struct FailoverClient {
    cluster: Arc<TestCluster>,
    answers: Arc<ReplyLog>,
    next: u64,
    session: SessionId,
    seq: u64,
    /// Asked first.
    at: NodeId,
    /// It caches what it may.
    keeps: bool,
    /// Requests that had to be sent again.
    pub again: u64,
    /// Where it believes that the file which it appends to ends.
    pub end: u64,
}

impl FailoverClient {
    /// A client without a session.
    pub fn new(cluster: &Arc<TestCluster>) -> FailoverClient {
        FailoverClient {
            cluster: cluster.clone(),
            answers: Arc::default(),
            next: 1,
            session: SessionId(0),
            seq: 0,
            at: NodeId(1),
            keeps: false,
            again: 0,
            end: 0,
        }
    }

    /// The same client once more: its next request is the number `seq` of this one.
    pub fn twin(&self, seq: u64) -> FailoverClient {
        let FailoverClient { cluster, session, at, keeps, .. } = self;
        FailoverClient { seq, session: *session, at: *at, keeps: *keeps, ..FailoverClient::new(cluster) }
    }

    /// The session.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// The number of the last change.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Asks one server once.
    pub fn ask_at(&mut self, node: NodeId, request: Request, payload: &[u8], seq: u64) -> ReplyAndPayload {
        let server = self.cluster.server(node);
        let conn = Conn::new(Some(Caller::root()), [3; 32]);
        let responder: Arc<dyn Responder> = self.answers.clone();
        let mut id = 0;
        let (session, keeps) = (self.session, self.keeps);
        let next = &mut self.next;
        let mut send = |request: Request, payload: &[u8], session: SessionId| {
            id = *next;
            *next += 1;
            let header = FrameHeader {
                request_id: id,
                session,
                seq: Seq(seq),
                acked: Seq(seq),
                payload_len: payload.len() as u32,
                payload_crc: crc32c(payload),
                hlc: frieze_hlc::Hlc::ZERO,
                holds: if keeps { Holds::ASKED } else { Holds::NONE },
                ..FrameHeader::of(FrameKind::Request)
            };
            let body = RequestBody { caller: None, trace: None, request: Some(request) };
            server.handle(&conn, &header, body, payload.into(), &responder, &mut Scratch::default());
            id
        };
        send(Request::Hello(Hello::default()), &[], SessionId(0));
        let id = send(request, payload, session);
        self.cluster.until("a request is answered", || {
            // Only what waits for a flush gets one.
            let answered = || self.answers.has(id);
            answered() || (server.flush().is_ok() && answered())
        });
        server.disconnected(&conn);
        self.answers.take(id).unwrap()
    }

    /// A connection to one server that stays.
    pub fn stay_at(&mut self, node: NodeId) -> Conn {
        let server = self.cluster.server(node);
        let conn = Conn::new(Some(Caller::root()), [3; 32]);
        let responder: Arc<dyn Responder> = self.answers.clone();
        for (request, session) in
            [(Request::Hello(Hello::default()), SessionId(0)), (Request::Now(Now::default()), self.session)]
        {
            let id = self.next;
            self.next += 1;
            let header = FrameHeader { request_id: id, session, ..FrameHeader::of(FrameKind::Request) };
            let body = RequestBody { caller: None, trace: None, request: Some(request) };
            server.handle(&conn, &header, body, (&[][..]).into(), &responder, &mut Scratch::default());
            self.cluster.until("it is answered", || self.answers.has(id));
        }
        conn
    }

    /// Asks one server after the other, until one answers.
    pub fn ask(&mut self, request: &Request, seq: u64) -> ReplyAndPayload {
        let mut last = None;
        for _ in 0..2000 {
            let alive: Vec<NodeId> = self.cluster.alive().into_iter().map(|(id, _)| id).collect();
            let node = self.cluster.leader().filter(|_| self.again % 3 != 2).unwrap_or(self.at);
            let node = if alive.contains(&node) { node } else { alive[0] };
            let answer = self.ask_at(node, request.clone(), &[], seq);
            match &answer.0 {
                Err(fault) if fault.kind() == ErrorKind::Unavailable => {
                    last = Some(fault.clone());
                    self.again += 1;
                    self.at = alive[self.again as usize % alive.len()];
                    self.cluster.run(10);
                }
                _ => return answer,
            }
        }
        panic!("no server answers {request:?}: {last:?}; {:?}", self.cluster.statuses());
    }

    /// Opens a session, if there is none.
    pub fn open_session(&mut self) {
        if self.session == SessionId(0) {
            let open =
                Op::OpenSession(OpenSession { command: "test".into(), host: "here".into(), uid: 0, keeps: self.keeps });
            let (Ok(Reply::Txn(reply)), _) = self.ask(&Request::Txn(Txn { durability: 0, op: Some(open) }), 0) else {
                panic!("no session")
            };
            self.session = SessionId(reply.id);
        }
    }

    /// Begins a session that caches what it may.
    pub fn keep(&mut self) {
        self.keeps = true;
        self.open_session();
        let recalls = Request::Recalls(Recalls { acked: 0, life: 0, ..Recalls::default() });
        assert!(matches!(self.ask(&recalls, 0).0, Ok(Reply::Recalls(_))));
    }

    /// How long the leader lets the session cache the attributes of a name.
    pub fn may_keep_ms(&mut self, path: &str) -> u16 {
        let stat = Stat { target: Target::path(path), view: View::NOW, ..Stat::default() };
        self.ask(&Request::Stat(stat), 0).0.unwrap();
        self.answers.leases().files_ms
    }

    /// Changes names at any server that answers.
    ///
    /// # Errors
    /// The server's answer.
    pub fn txn(&mut self, op: Op) -> Result<TxnReply, Fault> {
        self.open_session();
        self.seq += 1;
        match self.ask(&Request::Txn(Txn { durability: 0, op: Some(op) }), self.seq).0? {
            Reply::Txn(reply) => Ok(reply),
            other => panic!("{other:?}"),
        }
    }

    /// A change asked of one server, once.
    ///
    /// # Errors
    /// The server's answer.
    pub fn txn_once(&mut self, node: NodeId, op: Op) -> Result<TxnReply, Fault> {
        self.open_session();
        self.seq += 1;
        match self.ask_at(node, Request::Txn(Txn { durability: 0, op: Some(op) }), &[], self.seq).0? {
            Reply::Txn(reply) => Ok(reply),
            other => panic!("{other:?}"),
        }
    }

    /// Repeats the last change, under its number, at any server that answers.
    ///
    /// # Errors
    /// The server's answer.
    pub fn txn_again(&mut self, op: Op) -> Result<TxnReply, Fault> {
        match self.ask(&Request::Txn(Txn { durability: 0, op: Some(op) }), self.seq).0? {
            Reply::Txn(reply) => Ok(reply),
            other => panic!("{other:?}"),
        }
    }

    /// A change at any server that answers; it is repeated until one does.
    ///
    /// # Errors
    /// The server's answer.
    pub fn change(&mut self, request: &Request) -> Result<Reply, Fault> {
        self.seq += 1;
        self.change_again(request)
    }

    /// The last change, under its number.
    ///
    /// # Errors
    /// The server's answer.
    pub fn change_again(&mut self, request: &Request) -> Result<Reply, Fault> {
        self.ask(request, self.seq).0
    }

    /// A change asked of one server, once.
    ///
    /// # Errors
    /// The server's answer.
    pub fn change_once(&mut self, node: NodeId, request: &Request) -> Result<Reply, Fault> {
        self.seq += 1;
        self.change_again_at(node, request)
    }

    /// The last change, under its number, asked of one server once.
    ///
    /// # Errors
    /// The server's answer.
    pub fn change_again_at(&mut self, node: NodeId, request: &Request) -> Result<Reply, Fault> {
        self.ask_at(node, request.clone(), &[], self.seq).0
    }

    /// Makes a file that must not be there: run twice, it fails.
    ///
    /// # Errors
    /// The server's answer.
    pub fn make(&mut self, path: &str) -> Result<TxnReply, Fault> {
        self.txn(make_op(path, MakeKind::File(true)))
    }

    /// Renames.
    ///
    /// # Errors
    /// The server's answer.
    pub fn rename(&mut self, from: &str, to: &str) -> Result<TxnReply, Fault> {
        self.txn(Op::Rename(Rename { from: Target::path(from), to: Target::path(to), flags: 0 }))
    }

    /// Writes at one server.
    ///
    /// # Errors
    /// The server's answer.
    pub fn write_at(&mut self, node: NodeId, capability: &[u8], offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.seq += 1;
        let write = Write { capability: capability.to_vec(), offset, ..Write::default() };
        self.ask_at(node, Request::Write(write), bytes, self.seq).0.map(drop)
    }

    /// Writes over a connection to one server, and does not wait for an answer.
    pub fn begin_write_at(&mut self, conn: &Conn, node: NodeId, capability: &[u8], offset: u64, bytes: &[u8]) {
        self.seq += 1;
        self.next += 1;
        let header = FrameHeader {
            request_id: self.next - 1,
            session: self.session,
            seq: Seq(self.seq),
            payload_len: bytes.len() as u32,
            payload_crc: crc32c(bytes),
            ..FrameHeader::of(FrameKind::Request)
        };
        let write = Write { capability: capability.to_vec(), offset, ..Write::default() };
        let body = RequestBody { caller: None, trace: None, request: Some(Request::Write(write)) };
        let responder: Arc<dyn Responder> = self.answers.clone();
        self.cluster.server(node).handle(conn, &header, body, bytes.into(), &responder, &mut Scratch::default());
    }

    /// The last write, once more.
    ///
    /// # Errors
    /// The server's answer.
    pub fn write_again(&mut self, node: NodeId, capability: &[u8], offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        let write = Write { capability: capability.to_vec(), offset, ..Write::default() };
        self.ask_at(node, Request::Write(write), bytes, self.seq).0.map(drop)
    }

    /// Appends at one server; `end` is where the file is believed to end.
    ///
    /// # Errors
    /// The server's answer.
    pub fn append_at(&mut self, node: NodeId, capability: &[u8], end: u64, bytes: &[u8]) -> Result<WriteReply, Fault> {
        self.seq += 1;
        self.append_again(node, capability, end, bytes)
    }

    /// The last append, once more.
    ///
    /// # Errors
    /// The server's answer.
    pub fn append_again(
        &mut self,
        node: NodeId,
        capability: &[u8],
        end: u64,
        bytes: &[u8],
    ) -> Result<WriteReply, Fault> {
        let write = Write { capability: capability.to_vec(), offset: end, append: true, ..Write::default() };
        match self.ask_at(node, Request::Write(write), bytes, self.seq).0? {
            Reply::Write(reply) => Ok(reply),
            other => panic!("{other:?}"),
        }
    }

    /// Opens a file to read and write it.
    pub fn open(&mut self, path: &str) -> (InodeId, Vec<u8>) {
        self.open_session();
        let open = Open { target: Target::path(path), read: true, write: true, view: View::NOW, ..Open::default() };
        let Ok(Reply::Open(reply)) = self.ask(&Request::Open(open), 0).0 else { panic!("{path} is not opened") };
        (InodeId(reply.attr.inode), reply.capability)
    }

    /// Gets the right to write chunks.
    pub fn grant(&mut self, inode: InodeId, first: u32, count: u32) {
        self.txn(Op::Grant(Grant { inode: inode.0, first, count })).unwrap();
    }

    /// Gets the right to append, which says that records may reach over the ends of chunks.
    pub fn grant_append(&mut self, inode: InodeId, first: u32, count: u32) {
        self.txn(Op::GrantAppend(Grant { inode: inode.0, first, count })).unwrap();
    }

    /// Length of a file, bytes.
    pub fn len(&mut self, path: &str) -> u64 {
        let stat = Stat { target: Target::path(path), view: View::NOW, ..Stat::default() };
        match self.ask(&Request::Stat(stat), 0).0 {
            Ok(Reply::Stat(reply)) => reply.attr.size,
            other => panic!("{other:?}"),
        }
    }

    /// Reads the start of an open file at one server.
    ///
    /// # Errors
    /// The server's answer.
    pub fn read_at(&mut self, node: NodeId, capability: &[u8], len: u32) -> Result<Vec<u8>, Fault> {
        self.read_from(node, capability, 0, len)
    }

    /// Reads a part of an open file at one server.
    ///
    /// # Errors
    /// The server's answer.
    pub fn read_from(&mut self, node: NodeId, capability: &[u8], offset: u64, len: u32) -> Result<Vec<u8>, Fault> {
        let read = Read { capability: capability.to_vec(), offset, len, ..Read::default() };
        let (result, payload) = self.ask_at(node, Request::Read(read), &[], 0);
        result.map(|_| payload)
    }

    /// True if the answer to a read of this file, as it is now, says that something may be missing.
    pub fn may_lack(&mut self, node: NodeId, capability: &[u8], offset: u64, len: u32) -> bool {
        let read = Read { capability: capability.to_vec(), offset, len, ..Read::default() };
        match self.ask_at(node, Request::Read(read), &[], 0).0 {
            Ok(Reply::Read(reply)) => reply.answered.incomplete,
            other => panic!("{other:?}"),
        }
    }

    /// Reads a file as it was.
    ///
    /// # Errors
    /// The server's answer.
    pub fn read_past(&mut self, node: NodeId, path: &str, at: u64, offset: u64, len: u32) -> Result<Vec<u8>, Fault> {
        let view = View { at: Some(at), user_at: None };
        let open = Open { target: Target::path(path), read: true, view, ..Open::default() };
        let Reply::Open(opened) = self.ask(&Request::Open(open), 0).0? else { panic!("{path} is not opened") };
        self.read_from(node, &opened.capability, offset, len)
    }

    /// The names in the root directory.
    pub fn names(&mut self) -> Vec<String> {
        let list = List { target: Target::path("/"), count_max: 10_000, ..List::default() };
        let Ok(Reply::List(reply)) = self.ask(&Request::List(list), 0).0 else { panic!("no listing") };
        reply.entries.iter().map(|entry| String::from_utf8(entry.name.clone()).unwrap()).collect()
    }

    /// Attributes, from one server.
    ///
    /// # Errors
    /// The server's answer.
    pub fn stat_at(&mut self, node: NodeId, path: &str, view: View) -> Result<Reply, Fault> {
        let stat = Stat { target: Target::path(path), view, ..Stat::default() };
        self.ask_at(node, Request::Stat(stat), &[], 0).0
    }
}

/// The operation that makes a name, which must not be there.
pub fn make_op(path: &str, kind: MakeKind) -> Op {
    Op::Make(Make { target: Target::path(path), mode: 0o644, or_open: false, kind: Some(kind), ..Make::default() })
}
