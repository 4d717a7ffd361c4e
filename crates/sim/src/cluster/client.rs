//! A client: it finds the server that answers, retries under the same number, and never stops retrying.
//!
//! It does what `frieze_client` does (`servers.rs`, `call.rs`), on a stack of its own: a call is suspended until its
//! answer has arrived, or its time is over. Its messages go through its [`Port`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frieze_base::{ChunkId, Fault, NodeId, Reason, Rng, Seq, SessionId, crc32c};
use frieze_hlc::Hlc;
use frieze_wire::frame::{FrameHeader, FrameKind};
use frieze_wire::message::{ClusterMap, ClusterMapReply, JoinReply, Reply, Request, RequestBody, Txn, TxnReply};
use frieze_wire::txn::{CloseSession, Op, OpenSession};

use super::outbox::{NodeConnId, NodeResponse};
use super::tasks::suspend;

/// A request on its way out of a client.
pub(super) struct OutgoingRequest {
    pub(super) to: NodeId,
    pub(super) conn: NodeConnId,
    pub(super) header: FrameHeader,
    pub(super) body: RequestBody,
    pub(super) payload: Vec<u8>,
}

/// Data exchanged between a client and the world.
#[derive(Default)]
pub(super) struct Port {
    pub(super) now_us: u64,
    pub(super) outgoing: Vec<OutgoingRequest>,
    pub(super) closed: Vec<(NodeId, NodeConnId)>,
    pub(super) answers: Vec<NodeResponse>,
    /// Connections whose end has reached it.
    pub(super) over: Vec<NodeConnId>,
    /// When it wants to be woken at the latest.
    pub(super) alarm_us: u64,
    /// The client is gone; another takes its place, without any knowledge of it.
    pub(super) vanishes: bool,
    /// The set of nodes has changed.
    pub(super) nodes: Option<Vec<NodeId>>,
    /// A node was taken in, as it asked for.
    pub(super) joined: Option<JoinReply>,
    /// A disk may be damaged: the client asks other nodes.
    pub(super) disks_rot: bool,
    /// How long it waits for the first answer of a server that is silent. For the next ones longer.
    pub(super) patience_us: u64,
    /// No new operations are begun.
    pub(super) calm: bool,
    /// The current operation as a sentence, for a run that does not end.
    pub(super) doing: String,
}

/// Target of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Route {
    Lead,
    Write(ChunkId),
    Read(ChunkId),
    /// Any node, starting with this one.
    At(NodeId),
}

pub(super) struct ClusterClient {
    pub(super) index: usize,
    pub(super) rng: Rng,
    pub(super) session: SessionId,
    /// The newest stamp of any answer.
    pub(super) newest: Hlc,
    port: Arc<Mutex<Port>>,
    nodes: Vec<NodeId>,
    seq: u64,
    requests: u64,
    map: ClusterMapReply,
    conns: BTreeMap<NodeId, NodeConnId>,
    silent: BTreeSet<NodeId>,
    vanished: bool,
    /// It has begun.
    pub(super) may_vanish: bool,
    /// How often another client has taken its place.
    lives: usize,
}

/// How long one attempt waits at most.
pub(super) const ATTEMPT_US: u64 = 2_500_000;
/// The same for the map.
const MAP_WAIT_US: u64 = 500_000;
const PAUSE_MIN_US: u64 = 5_000;
const PAUSE_MAX_US: u64 = 200_000;

impl ClusterClient {
    pub(super) fn new(index: usize, rng: Rng, port: Arc<Mutex<Port>>, nodes: Vec<NodeId>) -> ClusterClient {
        ClusterClient {
            index,
            rng,
            session: SessionId(0),
            newest: Hlc::ZERO,
            port,
            nodes,
            seq: 0,
            requests: 0,
            map: ClusterMapReply::default(),
            conns: BTreeMap::new(),
            silent: BTreeSet::new(),
            vanished: false,
            may_vanish: false,
            lives: 0,
        }
    }

    pub(super) fn port(&self) -> MutexGuard<'_, Port> {
        self.port.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now_us(&self) -> u64 {
        self.port().now_us
    }

    pub(super) fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    pub(super) fn pause(&self, us: u64) {
        let until = self.now_us() + us;
        while self.now_us() < until {
            self.port().alarm_us = until;
            suspend();
        }
    }

    /// The same, but it is over as soon as no new operations are begun.
    pub(super) fn pause_while_busy(&self, us: u64) {
        let until = self.now_us() + us;
        while self.now_us() < until && !self.port().calm {
            self.port().alarm_us = until;
            suspend();
        }
    }

    pub(super) fn any_node(&mut self) -> NodeId {
        let others = self.port().nodes.take();
        if let Some(nodes) = others {
            self.nodes = nodes;
        }
        *self.rng.choose(&self.nodes)
    }

    /// The number of the next change.
    pub(super) fn number(&mut self) -> Seq {
        self.seq += 1;
        Seq(self.seq)
    }

    /// Forgets connections that are over.
    fn drop_ended_connections(&mut self) {
        let over = std::mem::take(&mut self.port().over);
        if !over.is_empty() {
            self.conns.retain(|_, conn| !over.contains(conn));
        }
    }

    /// One try at one server. `None`: no answer came.
    fn attempt(
        &mut self,
        node: NodeId,
        request: &Request,
        payload: &[u8],
        seq: Seq,
        wait_us: u64,
    ) -> Option<NodeResponse> {
        self.drop_ended_connections();
        self.requests += 1;
        let id = self.requests;
        let fresh = (self.index as u64 + 1) << 32 | id;
        let conn = *self.conns.entry(node).or_insert(fresh);
        let header = FrameHeader {
            request_id: id,
            // A client that asks for the cluster map may have lost its session.
            session: if matches!(request, Request::ClusterMap(_)) { SessionId(0) } else { self.session },
            seq,
            // It does one thing after the other: all before this one are answered.
            acked: seq,
            hlc: self.newest,
            payload_len: payload.len() as u32,
            payload_crc: crc32c(payload),
            ..FrameHeader::of(FrameKind::Request)
        };
        let body = RequestBody { caller: None, trace: None, request: Some(request.clone()) };
        let deadline = self.now_us() + wait_us;
        self.port().outgoing.push(OutgoingRequest { to: node, conn, header, body, payload: payload.to_vec() });
        loop {
            self.port().alarm_us = deadline;
            suspend();
            let answers = std::mem::take(&mut self.port().answers);
            self.drop_ended_connections();
            if self.port().vanishes && self.may_vanish {
                return None;
            }
            for answer in answers {
                self.newest = self.newest.max(answer.hlc);
                if answer.request_id == id {
                    return Some(answer);
                }
            }
            if !self.conns.contains_key(&node) {
                // It broke, or there was no server: whether the request arrived is unknown.
                return None;
            }
            if self.now_us() >= deadline {
                if let Some(conn) = self.conns.remove(&node) {
                    self.port().closed.push((node, conn));
                }
                return None;
            }
        }
    }

    fn choose(&mut self, route: Route) -> NodeId {
        let leader = Some(NodeId(self.map.leader)).filter(|leader| leader.0 > 0);
        let serving = |chunk: ChunkId, map: &ClusterMapReply| -> Vec<NodeId> {
            let count = map.chains.len() as u32;
            if count == 0 {
                return Vec::new();
            }
            map.chains[chunk.chain(count).0 as usize].serving.iter().map(|node| NodeId(*node)).collect()
        };
        let chosen = match route {
            Route::Lead => leader,
            Route::Write(chunk) => serving(chunk, &self.map).first().copied(),
            Route::Read(chunk) => {
                let mut all = serving(chunk, &self.map);
                let answering: Vec<NodeId> = all.iter().copied().filter(|node| !self.silent.contains(node)).collect();
                if !answering.is_empty() {
                    all = answering;
                }
                (!all.is_empty()).then(|| *self.rng.choose(&all))
            }
            Route::At(node) => Some(node),
        };
        match chosen {
            Some(node) => node,
            None => self.any_node(),
        }
    }

    /// Repeats a request until a server answers, with a result or a fault.
    pub(super) fn call(
        &mut self,
        route: Route,
        request: &Request,
        payload: &[u8],
        seq: Seq,
    ) -> Result<(Reply, Vec<u8>, NodeId), Fault> {
        let (mut pause, mut route, mut wait_us) = (0, route, self.port().patience_us);
        let mut sent_on = 0;
        loop {
            let node = self.choose(route);
            let answered = self.attempt(node, request, payload, seq, wait_us);
            wait_us = (2 * wait_us).min(ATTEMPT_US);
            if self.may_vanish && std::mem::take(&mut self.port().vanishes) {
                self.vanish();
                return Err(Reason::Superseded.into());
            }
            match answered {
                Some(NodeResponse { result: Ok(reply), payload, .. }) => return Ok((reply, payload, node)),
                Some(NodeResponse { result: Err(fault), .. })
                    if fault.reason == Reason::Elsewhere
                        && matches!(route, Route::At(_))
                        && sent_on < self.nodes.len() =>
                {
                    // Each of the other servers once, before the cluster map is read.
                    sent_on += 1;
                    let at = self.nodes.iter().position(|known| *known == node).unwrap_or(0);
                    route = Route::At(self.nodes[(at + 1) % self.nodes.len()]);
                    continue;
                }
                Some(NodeResponse { result: Err(fault), .. })
                    if is_passing(&fault) || fault.reason == Reason::Corrupt && self.port().disks_rot =>
                {
                    self.port().doing = format!("{}: {node} said: {fault}", words_of(request));
                    if fault.reason != Reason::Overloaded {
                        self.look_around();
                    }
                }
                Some(NodeResponse { result: Err(fault), .. })
                    if self.may_vanish && fault.reason == Reason::UnknownSession =>
                {
                    // It was cut off for too long. Whether this happened before its session ended is unknown.
                    self.vanish();
                    return Err(Reason::Superseded.into());
                }
                Some(NodeResponse { result: Err(fault), .. }) => return Err(fault),
                None => {
                    self.port().doing = format!("{}: {node} is silent", words_of(request));
                    self.silent.insert(node);
                    self.look_around();
                    self.silent.insert(node);
                }
            }
            if let Route::At(_) = route {
                // Try another server.
                route = Route::At(self.any_node());
            }
            self.pause(pause);
            pause = (pause * 2).clamp(PAUSE_MIN_US, PAUSE_MAX_US);
        }
    }

    /// Asks one server and no other, without a session, until it answers or `within_us` are over.
    pub(super) fn ask_one(
        &mut self,
        node: NodeId,
        request: &Request,
        within_us: u64,
    ) -> Result<(Reply, Vec<u8>), Fault> {
        let session = std::mem::take(&mut self.session);
        let deadline = self.now_us() + within_us;
        let answered = loop {
            let left_us = deadline.saturating_sub(self.now_us()).max(1);
            let refused = match self.attempt(node, request, &[], Seq(0), left_us) {
                Some(NodeResponse { result: Ok(reply), payload, .. }) => break Ok((reply, payload)),
                Some(NodeResponse { result: Err(fault), .. }) if !is_passing(&fault) => break Err(fault),
                Some(NodeResponse { result: Err(fault), .. }) => fault,
                None => Fault::new(Reason::Unavailable, format!("{node} is silent")),
            };
            if self.now_us() >= deadline {
                break Err(refused);
            }
            self.pause(PAUSE_MIN_US);
        };
        self.session = session;
        answered
    }

    /// From now on it is another client, with connections of its own.
    fn vanish(&mut self) {
        for (node, conn) in std::mem::take(&mut self.conns) {
            self.port().closed.push((node, conn));
        }
        (self.vanished, self.lives) = (true, self.lives + 1);
        (self.session, self.newest, self.map) = (SessionId(0), Hlc::ZERO, ClusterMapReply::default());
    }

    /// Its identity: its number, and a hundred more for each time that it vanished.
    pub(super) fn identity(&self) -> usize {
        self.index + 100 * self.lives
    }

    /// Ends its session, and is another client from then on.
    pub(super) fn leave(&mut self) -> Result<(), Fault> {
        let done = self.change(Op::CloseSession(CloseSession::default()), false);
        if !self.vanished {
            done?;
            self.vanish();
        }
        Err(Reason::Superseded.into())
    }

    /// True, once, if it is another client now.
    pub(super) fn take_vanished(&mut self) -> bool {
        std::mem::take(&mut self.vanished)
    }

    /// Asks the servers for a newer map.
    fn look_around(&mut self) {
        let mut order = self.nodes.clone();
        order.sort_by_key(|node| (self.silent.contains(node), node.0 != self.map.leader, node.0));
        let (version, term) = (self.map.version, self.map.term);
        for node in order {
            let ask = Request::ClusterMap(ClusterMap {});
            let answered = self.attempt(node, &ask, &[], Seq(0), MAP_WAIT_US);
            let Some(NodeResponse { result: Ok(Reply::ClusterMap(map)), .. }) = answered else { continue };
            self.silent.clear();
            let newer = map.version > version || map.term > term;
            let leads = map.leader != 0;
            // The map of a server that names itself as leader is final.
            let is_its_own = map.leader == node.0 && map.version >= version && map.term >= term;
            if map.version > 0 {
                if map.term >= self.map.term {
                    (self.map.term, self.map.leader) = (map.term, map.leader);
                }
                if map.version >= self.map.version {
                    (self.map.version, self.map.nodes, self.map.chains) = (map.version, map.nodes, map.chains);
                }
            }
            if newer && leads || is_its_own {
                return;
            }
        }
    }

    /// Opens a session.
    pub(super) fn open_session(&mut self) -> Result<(), Fault> {
        self.session = SessionId(0);
        let open = OpenSession { command: "sim".into(), host: format!("client{}", self.index), uid: 0, keeps: false };
        let request = Request::Txn(Txn { durability: 1, op: Some(Op::OpenSession(open)) });
        let (reply, ..) = self.call(Route::Lead, &request, &[], Seq(0))?;
        if let Reply::Txn(reply) = reply {
            self.session = SessionId(reply.id);
            self.seq = 0;
        }
        Ok(())
    }

    /// A change of names, with a number of its own.
    pub(super) fn change(&mut self, op: Op, sync: bool) -> Result<TxnReply, Fault> {
        let request = Request::Txn(Txn { durability: sync.into(), op: Some(op) });
        let seq = self.number();
        match self.call(Route::Lead, &request, &[], seq)?.0 {
            Reply::Txn(reply) => Ok(reply),
            _ => Err(Reason::BadFrame.into()),
        }
    }
}

/// Whose connection it is.
pub(super) fn client_of(conn: NodeConnId) -> usize {
    (conn >> 32) as usize - 1
}

/// True if the server says that it, or another, can answer soon. A device failure is that of one server: the program
/// retries, and another server answers.
fn is_passing(fault: &Fault) -> bool {
    matches!(
        fault.reason,
        Reason::Unavailable
            | Reason::Elsewhere
            | Reason::Overloaded
            | Reason::StaleEpoch
            | Reason::NotYetClosed
            | Reason::InputOutput
            | Reason::Fenced
    )
}

fn words_of(request: &Request) -> String {
    let words = format!("{request:?}");
    words.chars().take(160).collect()
}
