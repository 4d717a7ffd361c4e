//! A small server for tests: files in memory, every request recorded, and a plan of failures.

#![expect(dead_code, unreachable_pub, reason = "each test binary uses its own part of it")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod content;

use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSlice;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use frieze_base::{Fault, Reason};
use frieze_client::{Client, Key, Options, ServerAddr};
use frieze_hlc::Hlc;
use frieze_net::{FramePayload, FrameReader, FrameWriter, Limits, Listener, Stream, random_nonce};
use frieze_wire::edit::EditReply;
use frieze_wire::message::*;
use frieze_wire::txn::*;
use frieze_wire::{FrameHeader, FrameKind};
use prost::Message;

pub use content::Content;

/// Chunk size of the files in the tests: small, so that grants are requested.
pub const CHUNK: u64 = 4 << 20;

/// One request as the server received it.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    /// The server that received it.
    pub node: u32,
    pub connection: usize,
    pub header: FrameHeader,
    pub request: Request,
    pub caller: Option<Caller>,
    pub payload_len: usize,
    /// How many requests of this kind and number came before.
    pub again: bool,
}

impl ReceivedRequest {
    pub fn op(&self) -> Option<&Op> {
        match &self.request {
            Request::Txn(txn) => txn.op.as_ref(),
            _ => None,
        }
    }

    pub fn is_write(&self) -> bool {
        matches!(self.request, Request::Write(_))
    }

    pub fn is_read(&self) -> bool {
        matches!(self.request, Request::Read(_))
    }
}

/// What the server does with a request.
#[derive(Clone, Debug)]
pub enum FakeAnswer {
    /// Run it and answer.
    Answer,
    /// Run it, and the connection breaks before the answer.
    RunThenClose,
    /// Run it, and the connection breaks in the middle of the answer.
    RunThenHalf,
    /// The connection breaks before it runs.
    Close,
    /// Run it without a reply.
    RunThenHang,
    /// Answer these bytes.
    Bytes(Vec<u8>),
    /// Refuse it.
    Refuse(Reason),
    /// Refuse the connection (request id 0) and close it.
    RefuseConnection(Reason),
    /// Answer another reply.
    Instead(Box<Reply>),
}

type AnswerPlan = Box<dyn FnMut(&ReceivedRequest) -> FakeAnswer + Send>;

/// The state that survives a restart of the server.
#[derive(Clone)]
pub struct FakeStore(Arc<Mutex<FakeStoreState>>);

pub struct FakeStoreState {
    pub received: Vec<ReceivedRequest>,
    pub files: BTreeMap<u64, Content>,
    pub runs: BTreeMap<(u64, u64), u32>,
    pub connections: usize,
    pub connections_now: usize,
    pub connections_most: usize,
    pub sessions: BTreeSet<u64>,
    pub time_plugin: String,
    pub key: Option<Key>,
    /// An append is granted the chunks it lands in.
    pub grants_appends: bool,
    /// The map that every server sends; none for a server that is alone.
    pub map: Option<ClusterMapReply>,
    answers: BTreeMap<(u64, u64), Reply>,
    names: BTreeMap<Vec<u8>, u64>,
    grants: BTreeSet<(u64, u64, u32)>,
    stamp: u64,
    plan: AnswerPlan,
}

pub struct FakeServer {
    pub addr: ServerAddr,
    store: FakeStore,
    listener: Arc<Listener>,
    streams: Arc<Mutex<Vec<Stream>>>,
}

impl FakeStore {
    pub fn new() -> FakeStore {
        FakeStore(Arc::new(Mutex::new(FakeStoreState {
            received: Vec::new(),
            files: BTreeMap::new(),
            runs: BTreeMap::new(),
            connections: 0,
            connections_now: 0,
            connections_most: 0,
            sessions: BTreeSet::new(),
            time_plugin: String::new(),
            key: None,
            grants_appends: true,
            map: None,
            answers: BTreeMap::new(),
            names: BTreeMap::new(),
            grants: BTreeSet::new(),
            stamp: 1000,
            plan: Box::new(|_| FakeAnswer::Answer),
        })))
    }

    pub fn with<T>(&self, look: impl FnOnce(&mut FakeStoreState) -> T) -> T {
        look(&mut self.0.lock().unwrap())
    }

    pub fn plan(&self, plan: impl FnMut(&ReceivedRequest) -> FakeAnswer + Send + 'static) {
        self.with(|state| state.plan = Box::new(plan));
    }

    /// The next `count` requests that `pick` picks get `act`; everything else is answered.
    pub fn plan_for(&self, count: usize, act: FakeAnswer, pick: impl Fn(&ReceivedRequest) -> bool + Send + 'static) {
        let mut left = count;
        self.plan(move |received| {
            if left > 0 && pick(received) {
                left -= 1;
                return act.clone();
            }
            FakeAnswer::Answer
        });
    }

    pub fn received(&self, pick: impl Fn(&ReceivedRequest) -> bool) -> Vec<ReceivedRequest> {
        self.with(|state| state.received.iter().filter(|received| pick(received)).cloned().collect())
    }

    pub fn ops(&self) -> Vec<Op> {
        self.received(|received| received.op().is_some()).iter().filter_map(|received| received.op().cloned()).collect()
    }

    pub fn file(&self, path: &str) -> Vec<u8> {
        self.with(|state| state.files[&state.names[path.as_bytes()]].read(0..u64::MAX))
    }

    /// Drops every grant, as a truncate by another client does.
    pub fn drop_grants(&self) {
        self.with(|state| state.grants.clear());
    }

    pub fn serve(&self) -> FakeServer {
        self.serve_at(&"127.0.0.1:0".parse().unwrap())
    }

    pub fn serve_at(&self, addr: &ServerAddr) -> FakeServer {
        self.serve_as(1, addr)
    }

    /// Serves as one of several servers with one state.
    pub fn serve_as(&self, node: u32, addr: &ServerAddr) -> FakeServer {
        let listener = Arc::new(Listener::bind(addr).unwrap());
        let streams = Arc::new(Mutex::new(Vec::new()));
        let server = FakeServer {
            addr: listener.addr().clone(),
            store: self.clone(),
            listener: listener.clone(),
            streams: streams.clone(),
        };
        let store = self.clone();
        thread::spawn(move || {
            while let Ok(Some(stream)) = listener.accept() {
                streams.lock().unwrap().push(stream.clone());
                let store = store.clone();
                thread::spawn(move || store.converse(node, stream));
            }
        });
        server
    }

    fn converse(&self, node: u32, stream: Stream) {
        let number = self.with(|state| {
            state.connections += 1;
            state.connections_now += 1;
            state.connections_most = state.connections_most.max(state.connections_now);
            state.connections
        });
        let mut nonces = None;
        let mut reader = FrameReader::new(stream.clone(), Limits::SERVING).unwrap();
        let writer = FrameWriter::new(stream.clone(), Limits::SERVING);
        let (mut body, mut payload) = (Vec::new(), Vec::new());
        while let Ok(Some(header)) = reader.read_frame(&mut body) {
            let Ok(RequestBody { caller, request: Some(request), .. }) = RequestBody::decode(&body[..]) else { break };
            let Ok(payload) = reader.read_payload_reusing(&mut payload) else { break };
            if !self.answer(&stream, &writer, (node, number), header, caller, request, payload, &mut nonces) {
                break;
            }
        }
        stream.shutdown();
        self.with(|state| state.connections_now -= 1);
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of a request")]
    fn answer(
        &self,
        stream: &Stream,
        writer: &FrameWriter,
        (node, connection): (u32, usize),
        header: FrameHeader,
        caller: Option<Caller>,
        request: Request,
        payload: &[u8],
        nonces: &mut Option<(Vec<u8>, Vec<u8>)>,
    ) -> bool {
        let (act, outcome, hlc) = self.with(|state| {
            let numbered = |received: &ReceivedRequest| {
                header.seq.0 != 0 && received.header.seq == header.seq && received.header.session == header.session
            };
            let again = state.received.iter().any(numbered);
            let payload_len = payload.len();
            let received =
                ReceivedRequest { node, connection, header, request: request.clone(), caller, payload_len, again };
            state.received.push(received.clone());
            let act = (state.plan)(&received);
            let runs = matches!(
                act,
                FakeAnswer::Answer | FakeAnswer::RunThenClose | FakeAnswer::RunThenHalf | FakeAnswer::RunThenHang
            );
            let outcome = match &act {
                FakeAnswer::Refuse(reason) => Err(Fault::from(*reason)),
                FakeAnswer::Instead(reply) => Ok((Reply::clone(reply), Vec::new())),
                _ if runs => state.run(&header, request, payload, nonces),
                _ => Err(Reason::Internal.into()),
            };
            (act, outcome, Hlc(state.stamp))
        });
        let base = FrameHeader {
            request_id: header.request_id,
            session: header.session,
            seq: header.seq,
            hlc,
            ..FrameHeader::of(FrameKind::Reply)
        };
        match act {
            FakeAnswer::Close | FakeAnswer::RunThenClose => return false,
            FakeAnswer::RunThenHang => return true,
            FakeAnswer::Bytes(bytes) => {
                write_raw(stream, &bytes);
                return true;
            }
            FakeAnswer::RefuseConnection(reason) => {
                let header = FrameHeader { request_id: 0, ..FrameHeader::of(FrameKind::Refusal) };
                let _ = writer.send(header, &Refusal::from(Fault::from(reason)).encode_to_vec(), FramePayload::None);
                return false;
            }
            FakeAnswer::RunThenHalf => {
                let frame = FrameHeader { body_len: 100, ..base };
                write_raw(stream, &frame.encode());
                write_raw(stream, &[0; 50]);
                return false;
            }
            FakeAnswer::Answer | FakeAnswer::Refuse(_) | FakeAnswer::Instead(_) => {}
        }
        match outcome {
            Ok((reply, payload)) => {
                let body = ReplyBody { reply: Some(reply) }.encode_to_vec();
                writer.send(base, &body, FramePayload::Bytes(&payload)).is_ok()
            }
            Err(fault) => {
                let header = FrameHeader { kind: FrameKind::Refusal, ..base };
                writer.send(header, &Refusal::from(fault).encode_to_vec(), FramePayload::None).is_ok()
            }
        }
    }
}

impl FakeStoreState {
    fn run(
        &mut self,
        header: &FrameHeader,
        request: Request,
        payload: &[u8],
        nonces: &mut Option<(Vec<u8>, Vec<u8>)>,
    ) -> Result<(Reply, Vec<u8>), Fault> {
        let key = (header.session.0, header.seq.0);
        if key.1 != 0 {
            if let Some(reply) = self.answers.get(&key) {
                return Ok((reply.clone(), Vec::new()));
            }
            if !self.sessions.contains(&key.0) {
                return Err(Reason::UnknownSession.into());
            }
        }
        let (reply, payload) = self.run_once(header, request, payload, nonces)?;
        if key.1 != 0 {
            *self.runs.entry(key).or_default() += 1;
            self.answers.insert(key, reply.clone());
        }
        Ok((reply, payload))
    }

    fn run_once(
        &mut self,
        header: &FrameHeader,
        request: Request,
        payload: &[u8],
        nonces: &mut Option<(Vec<u8>, Vec<u8>)>,
    ) -> Result<(Reply, Vec<u8>), Fault> {
        let session = header.session.0;
        let reply = match request {
            Request::Hello(hello) => {
                let challenge = if self.key.is_some() { random_nonce().unwrap().to_vec() } else { Vec::new() };
                *nonces = Some((challenge.clone(), hello.nonce));
                Reply::Hello(HelloReply { challenge, uid: 65534, ..self.hello() })
            }
            Request::ClusterMap(_) => Reply::ClusterMap(self.map.clone().unwrap_or_default()),
            Request::Prove(prove) => {
                let (challenge, nonce) = nonces.clone().ok_or(Reason::Unproven)?;
                let key = self.key.as_ref().ok_or(Reason::Unproven)?;
                if !key.verify(&challenge, &nonce, &prove.mac) {
                    return Err(Reason::Unproven.into());
                }
                Reply::Hello(HelloReply { uid: 1234, may_impersonate: true, ..self.hello() })
            }
            Request::Open(open) => {
                let inode = self.find(&open.target)?;
                let capability = inode.to_le_bytes().to_vec();
                Reply::Open(OpenReply { attr: self.attr(inode), capability, answered: InstantInfo::default() })
            }
            Request::Stat(stat) => {
                let inode = self.find(&stat.target)?;
                Reply::Stat(StatReply { attr: self.attr(inode), answered: InstantInfo::default() })
            }
            Request::Read(read) => {
                let file = &self.files[&inode_of(&read.capability)];
                let end = read.offset + u64::from(read.len);
                let reply = Reply::Read(ReadReply {
                    end_of_file: end >= file.len(),
                    answered: InstantInfo::default(),
                    ..ReadReply::default()
                });
                return Ok((reply, file.read(read.offset..end)));
            }
            Request::Write(write) => {
                let inode = inode_of(&write.capability);
                let file = self.files.entry(inode).or_default();
                let offset = if write.append { file.len() } else { write.offset };
                let chunks = offset / CHUNK..=(offset + payload.len() as u64 - 1) / CHUNK;
                if write.append && self.grants_appends {
                    self.grants.extend(chunks.clone().map(|chunk| (session, inode, chunk as u32)));
                }
                if let Some(chunk) =
                    chunks.clone().find(|&chunk| !self.grants.contains(&(session, inode, chunk as u32)))
                {
                    return Err(Fault::new(Reason::Busy, format!("no grant for chunk {chunk}")));
                }
                file.write(offset, payload);
                self.stamp += 1;
                Reply::Write(WriteReply { stamp: self.stamp, offset })
            }
            Request::Txn(Txn { op: Some(op), .. }) => {
                self.stamp += 1;
                let (id, existed, capability) = self.change(session, op)?;
                let attr = self.files.contains_key(&id).then(|| self.attr(id));
                Reply::Txn(TxnReply { stamp: self.stamp, id, existed, attr, capability, ..TxnReply::default() })
            }
            Request::Now(now) if now.name.is_empty() => Reply::Now(NowReply {
                at: self.stamp,
                precision_us: 1,
                earliest: 0,
                stable: self.stamp,
                without_lease: false,
            }),
            Request::Now(now) if now.name == "release" => {
                Reply::Now(NowReply { at: 500, precision_us: 1, earliest: 0, stable: self.stamp, without_lease: false })
            }
            Request::Now(_) => return Err(Reason::NotFound.into()),
            Request::List(list) => {
                let after: u64 = String::from_utf8_lossy(&list.after).parse().unwrap_or(0);
                let entries: Vec<DirEntry> = (after + 1..=25)
                    .take(10)
                    .map(|i| DirEntry { name: format!("{i}").into_bytes(), inode: i, kind: 0, attr: None })
                    .collect();
                let more = after + (entries.len() as u64) < 25;
                Reply::List(ListReply { entries, more, answered: InstantInfo::default(), inode: 9, parent: 1 })
            }
            Request::GetXattr(get) if get.name.is_empty() => {
                Reply::Bytes(BytesReply { value: b"user.a\0user.b\0".to_vec() })
            }
            Request::Status(_) => {
                Reply::Status(Box::new(StatusReply { health: "healthy".into(), ..Default::default() }))
            }
            Request::CopyRange(mut copy) => {
                let also = std::mem::take(&mut copy.also);
                self.stamp += 1;
                let mut len = 0;
                for range in std::iter::once(copy).chain(also) {
                    let (from, to) = (inode_of(&range.source), inode_of(&range.target));
                    let bytes = self.files[&from].read(range.source_offset..range.source_offset + range.len);
                    self.files.entry(to).or_default().write(range.target_offset, &bytes);
                    len += bytes.len() as u64;
                }
                Reply::Edited(EditReply { stamp: self.stamp, len, ..EditReply::default() })
            }
            Request::Seek(_) => return Err(Reason::NotFound.into()),
            _ => Reply::Done(EmptyReply {}),
        };
        Ok((reply, Vec::new()))
    }

    fn change(&mut self, session: u64, op: Op) -> Result<(u64, bool, Vec<u8>), Fault> {
        match op {
            Op::OpenSession(_) => {
                self.sessions.insert(self.stamp);
                return Ok((self.stamp, false, Vec::new()));
            }
            Op::Make(make) => {
                if let Some(&inode) = self.names.get(&make.target.path) {
                    return if make.or_open { Ok((inode, true, Vec::new())) } else { Err(Reason::Exists.into()) };
                }
                let inode = 100 + self.names.len() as u64;
                self.names.insert(make.target.path, inode);
                self.files.insert(inode, Content::default());
                if make.kind == Some(MakeKind::File(true)) {
                    self.grants.insert((session, inode, 0));
                }
                return Ok((inode, false, inode.to_le_bytes().to_vec()));
            }
            Op::MakeNameless(_) => {
                let inode = 10_000 + self.files.len() as u64;
                self.files.insert(inode, Content::default());
                self.grants.insert((session, inode, 0));
                return Ok((inode, false, inode.to_le_bytes().to_vec()));
            }
            Op::Grant(grant) | Op::GrantAppend(grant) => {
                for chunk in grant.first..grant.first + grant.count {
                    self.grants.insert((session, grant.inode, chunk));
                }
            }
            Op::Settle(settle) if !settle.keep_grant => {
                self.grants.retain(|&(of, inode, _)| (of, inode) != (session, settle.inode))
            }
            Op::SettleAll(all) => {
                let settled: Vec<u64> = all.files.iter().map(|settle| settle.inode).collect();
                self.grants.retain(|(of, inode, _)| *of != session || !settled.contains(inode));
            }
            Op::SetAttr(SetAttr { target, size: Some(size), .. }) => {
                let inode = self.find(&target)?;
                self.files.entry(inode).or_default().set_len(size);
                self.grants.retain(|&(_, of, chunk)| of != inode || u64::from(chunk) * CHUNK < size);
                return Ok((inode, false, Vec::new()));
            }
            Op::CloseSession(_) => {
                self.sessions.remove(&session);
            }
            _ => {}
        }
        Ok((0, false, Vec::new()))
    }

    fn find(&self, target: &Target) -> Result<u64, Fault> {
        if target.path.is_empty() {
            return Ok(target.base);
        }
        self.names.get(&target.path).copied().ok_or_else(|| Reason::NotFound.into())
    }

    fn attr(&self, inode: u64) -> Attr {
        let size = self.files.get(&inode).map_or(0, Content::len);
        Attr { inode, size, chunk_bytes: CHUNK, time_plugin: self.time_plugin.clone(), ..Attr::default() }
    }

    fn hello(&self) -> HelloReply {
        HelloReply {
            software: "store".into(),
            cluster: "00".into(),
            node: 1,
            challenge: Vec::new(),
            uid: 0,
            may_impersonate: false,
            chunk_bytes: CHUNK,
            socket: String::new(),
            proof: Vec::new(),
            map_version: self.map.as_ref().map_or(0, |map| map.version),
            former: Vec::new(),
            fabric: None,
        }
    }
}

impl FakeServer {
    pub fn options(&self) -> Options {
        Options {
            server: self.addr.clone(),
            command: "test".into(),
            timeout: Duration::from_secs(20),
            ..Options::default()
        }
    }

    pub fn connect(&self) -> Client {
        Client::connect(self.options()).unwrap()
    }

    /// Stops at once, as a killed server does: every connection breaks.
    pub fn stop(self) -> ServerAddr {
        self.listener.stop();
        self.streams.lock().unwrap().drain(..).for_each(|stream| stream.shutdown());
        self.addr.clone()
    }

    pub fn store(&self) -> &FakeStore {
        &self.store
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.listener.stop();
        self.streams.lock().unwrap().drain(..).for_each(|stream| stream.shutdown());
    }
}

fn inode_of(capability: &[u8]) -> u64 {
    u64::from_le_bytes(capability.try_into().unwrap())
}

fn write_raw(stream: &Stream, bytes: &[u8]) {
    let _ = rustix::net::sendmsg(
        stream,
        &[IoSlice::new(bytes)],
        &mut rustix::net::SendAncillaryBuffer::default(),
        rustix::net::SendFlags::NOSIGNAL,
    );
}

/// Bytes that differ at every offset that matters.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251 + i / 65_537) as u8).collect()
}
