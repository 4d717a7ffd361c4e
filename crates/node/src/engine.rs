//! The server without threads and sockets: it owns the cores and answers one request at a time, on any thread.
//!
//! Guarantees: the caller is proven before its request has an effect; a state change is logged before it is answered; a
//! read at a closed instant never changes. The real server calls it from one thread a connection, the simulator from
//! one. Leaves to others: sockets and threads (`serve`), the guarantees of the cores.

mod chains;
mod control;
mod metalog;
mod open;
pub(crate) mod requests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use frieze_base::{ClusterId, ErrorKind, Fault, MonoTime, NodeId, Reason, SessionId};
use frieze_disk::{Disk, TimeSource};
use frieze_hlc::Hlc;
use frieze_locks::{Mutex, RwLock, levels};
use frieze_wire::frame::FrameHeader;
use frieze_wire::message::{HelloReply, Reply, Request, RequestBody};
use frieze_wire::peer::control::Attached;
use frieze_wire::peer::{ChainAsk, ChainAskKind, ServerMessage};
use frieze_wire::txn::Caller;

pub(crate) use chains::chains_of_extent;
use requests::{RunningRequest, class_of};

use crate::caching::{Asking, Caching};
use crate::control::{Control, ControlTold};
use crate::durability::Durability;
use crate::elsewhere::Fetch;
use crate::node_keys::NodeKeys;
use crate::questions::Questions;
use crate::reclaim::Reclaim;
use crate::remains::{Remains, went_meanwhile};
use crate::removal::Removal;
use crate::scrub::Scrub;
use crate::session::{Conn, KeyRight, Principal, Sessions};
use crate::settings::Settings;
use crate::settling::{CaughtUp, Ending};
use crate::steps::{Steps, Unread};
use crate::successor::Successors;
use crate::unshown::Unshown;
use frieze_coherence::{FileLocks, OpenFiles};
use frieze_metadata::{Metadata, PeerMetalog, VersionStore};
use frieze_net::{PeerPayload, Peers, PeersCell, ReceivedPayload};
use frieze_replication::{ClosedRecord, DataPlane};
use frieze_service::{Mint, Shown};
use frieze_storage::{Identity, IdentityStore, NodeClock};

/// What the simulator replaces.
pub struct Seams {
    /// Where logs and identity live.
    pub disk: Arc<dyn Disk>,
    /// The machine's clocks.
    pub time: Arc<dyn TimeSource>,
    /// Where the namespace's history lives.
    pub store: Box<dyn VersionStore>,
    /// Names the boot of the machine: while it is the same, the page cache has survived.
    pub boot: String,
    /// 64 fresh random bytes: identity and keys of a new directory, the seed of new segments, the name of this life.
    pub entropy: [u8; 64],
    /// Wakes the flusher.
    pub wake: Box<dyn Fn() + Send + Sync>,
    /// Memory and CPU of the process, for `status`.
    pub process: Box<dyn Fn() -> ProcessStats + Send + Sync>,
    /// The rights of each key with which a client may prove itself.
    pub keys: BTreeMap<String, KeyRight>,
    /// Owner of the root directory of a new file system.
    pub owner: Caller,
}

/// What the process uses.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessStats {
    /// Resident memory, bytes.
    pub resident_bytes: u64,
    /// Largest so far, bytes.
    pub resident_bytes_peak: u64,
    /// CPU time, nanoseconds.
    pub cpu_ns: u64,
    /// Open connections.
    pub connections: u64,
}

/// Answers go through this, at once or later, from any thread.
pub trait Responder: Send + Sync {
    /// Sends the answer to `request`. `payload_crc` is the CRC32C of `payload`.
    fn respond(&self, request: &FrameHeader, result: Result<Reply, Fault>, payload: &[u8], payload_crc: u32);

    /// The same with a payload that may be swapped: a buffer left in its place is used for the next payload.
    fn respond_with(
        &self,
        request: &FrameHeader,
        result: Result<Reply, Fault>,
        payload: &mut Vec<u8>,
        payload_crc: u32,
    ) {
        self.respond(request, result, payload, payload_crc);
    }

    /// Sends an answer whose payload `steps` brings piece by piece. If that fails half-way the connection ends.
    fn respond_in_steps(&self, request: &FrameHeader, reply: Reply, steps: &mut Steps<'_>) {
        let (mut payload, mut crc) = (Vec::with_capacity(steps.len), 0);
        let brought = steps.bring(&mut |bytes, of_all| {
            payload.extend_from_slice(bytes);
            crc = of_all.unwrap_or(0);
            Ok(())
        });
        match brought {
            Ok(()) => self.respond(request, Ok(reply), &payload, crc),
            Err(fault) => self.respond(request, Err(fault), &[], 0),
        }
    }
}

/// Buffers of one connection, used again for every request.
#[derive(Default)]
pub struct Scratch {
    pub(crate) payload: Vec<u8>,
    /// CRC32C of `payload`.
    pub(crate) payload_crc: u32,
    pub(crate) block: Vec<u8>,
    pub(crate) pieces: Vec<frieze_multilog::Piece>,
    pub(crate) crowded: Vec<frieze_multilog::FragmentedPage>,
    /// The parts of the answer that other servers have.
    pub(crate) fetch: Fetch,
    /// The capability that came with the last request.
    pub(crate) shown: Shown,
    /// The cache leases that the request may get for its session.
    pub(crate) asking: Asking,
    /// The answer may go out before all of it is read.
    pub(crate) may_step: bool,
    /// The payload is still to be read, as `pieces` say.
    pub(crate) unread: Option<Unread>,
}

impl Scratch {
    /// Called when the connection is idle: frees buffers.
    pub(crate) fn rest(&mut self) {
        (self.payload, self.block) = (Vec::new(), Vec::new());
        (self.pieces, self.crowded) = (Vec::new(), Vec::new());
    }
}

/// The server.
pub struct Engine {
    pub(crate) settings: Settings,
    pub(crate) clock: Arc<NodeClock>,
    pub(crate) keeper: Arc<IdentityStore>,
    pub(crate) data: DataPlane,
    pub(crate) remembered: Arc<ClosedRecord>,
    pub(crate) meta: Metadata,
    pub(crate) durability: Durability,
    pub(crate) sessions: Sessions,
    pub(crate) caching: Arc<Caching>,
    pub(crate) locks: Mutex<levels::FileLocks, FileLocks>,
    pub(crate) opened: OpenFiles,
    pub(crate) reclaim: Reclaim,
    pub(crate) remains: Remains,
    pub(crate) unshown: Unshown,
    pub(crate) scrub: Scrub,
    /// See [`Engine::files_cached`].
    pub(crate) files_cached: AtomicU64,
    /// The user that the server runs as.
    pub(crate) owner_uid: u32,
    /// Read lock: an edit, while it is planned and run. Write lock: an expiry of history.
    pub(crate) forgetting: RwLock<levels::HistoryExpiry, ()>,
    pub(crate) mint: Mint,
    pub(crate) process: Box<dyn Fn() -> ProcessStats + Send + Sync>,
    pub(crate) started: MonoTime,
    /// See [`Engine::earliest`].
    earliest: OnceLock<Hlc>,
    /// How often this server had begun to lead the metalog at the last look.
    reigns: AtomicU64,
    keys: BTreeMap<String, KeyRight>,
    nodes: NodeKeys,
    /// Connections to the other nodes.
    pub(crate) way: Arc<PeersCell>,
    /// Requests to other servers, and requests from them.
    pub(crate) questions: Arc<Questions>,
    /// This node's part in its cluster; empty while the server is alone.
    control: OnceLock<Arc<Control>>,
    /// Sessions that are being ended.
    pub(crate) ending: Ending,
    /// For each chain, the configuration under which appends here have looked at earlier decisions.
    pub(crate) caught_up: CaughtUp,
    /// Times that [`Engine::tend`] was called.
    tended: AtomicU64,
    /// When this server last reported its connected sessions to the leader ([`MonoTime`]).
    attached_told: AtomicU64,
    /// Held while a cluster is being founded.
    founding: Mutex<levels::Founding, ()>,
    pub(crate) removal: Removal,
    pub(crate) successors: Successors,
    /// Random, drawn anew at every start.
    seed: u64,
    /// Where it listens, with the port that was chosen.
    pub(crate) listens_at: OnceLock<String>,
    notes: Vec<String>,
    /// Where the server listens for callers on its machine, besides the addresses of its settings.
    pub(crate) socket: OnceLock<String>,
}

/// Software and version, which both ends send in their greeting.
pub const SOFTWARE: &str = concat!("frieze/", env!("CARGO_PKG_VERSION"));

pub(crate) use control::troubles_out;
pub use metalog::Joining;

impl Engine {
    /// Notes of recovery, in words.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The cluster of this directory.
    pub fn cluster(&self) -> ClusterId {
        self.keeper.with(Identity::cluster_id)
    }

    /// Microseconds to wait before serving, so that the wall clock has passed every stamp of an earlier life.
    pub fn restart_wait_us(&self) -> u64 {
        let newest = self.clock.newest();
        (newest.micros() + 1).saturating_sub(self.clock.reading().wall_us)
    }

    /// The newest stamp: goes into the header of every answer.
    pub fn newest(&self) -> Hlc {
        self.clock.newest()
    }

    /// Answers a request through `responder`, at once or when it is durable.
    pub fn handle(
        &self,
        conn: &Conn,
        header: &FrameHeader,
        body: RequestBody,
        payload: ReceivedPayload<'_>,
        responder: &Arc<dyn Responder>,
        scratch: &mut Scratch,
    ) {
        let class = body.request.as_ref().map(|request| class_of(header, request));
        let (gate, reads) = match &class {
            Some(class) if class.is_of_now() => self.gate(header, class.gated_on, responder),
            _ => (None, None),
        };
        let ungated = class.is_some_and(|class| class.is_of_now()) && gate.is_none();
        let responder = gate.as_ref().unwrap_or(responder);
        scratch.asking = Asking::of(header, reads);
        // An answer that has to wait for others is kept whole.
        scratch.may_step = ungated && class.is_some_and(|class| class.may_stream);
        scratch.unread = None;
        let sees_now = class.is_some_and(|class| self.needs_lease(header.session, class.sees));
        let (turns, went) = (self.data.membership_count(), self.data.detach_count());
        let sees_instants = class.is_some_and(|class| class.sees_instants);
        let answer = match body.request {
            Some(Request::Hello(hello)) => self
                .check_former(&hello.cluster)
                .and_then(|()| conn.hello(hello, &self.nodes, self.greeting()))
                .map(Reply::Hello),
            Some(Request::Prove(prove)) => {
                let proven = conn.prove(&prove, &self.keys, &self.nodes, self.greeting());
                let is_one_of_us = || conn.node().map_or(Ok(()), |node| self.check_is_node(node));
                let greeted = proven.and_then(|reply| is_one_of_us().map(|()| reply));
                greeted.inspect_err(|_| conn.disown()).map(Reply::Hello)
            }
            Some(request) => match self.admit(conn, header, body.caller).and_then(|principal| {
                // The client may cache nothing of it unless this server learns of every change first.
                scratch.asking.session = scratch.asking.session.filter(|session| self.may_keep(*session));
                let class = class_of(header, &request);
                self.check_place(header, &class)?;
                if sees_now {
                    self.look_now(header.session, class.sees)?;
                }
                Ok(principal)
            }) {
                Ok(principal) => {
                    let engine = self;
                    let principal = &principal;
                    let call =
                        RunningRequest { engine, conn, principal, header, payload, responder, scratch: &mut *scratch };
                    match requests::run(call, request) {
                        Some(answer) => answer,
                        None => return,
                    }
                }
                Err(fault) => Err(fault),
            },
            None => Err(Fault::new(
                Reason::Unsupported,
                "the request is of a kind that this server does not know: it may be older than the client",
            )),
        };
        let answer = if sees_now { chains::under_lease(self, answer, turns) } else { answer };
        // An error, too, may come from the chains that were lost.
        let lost = sees_instants && self.has_lost_chains_since(went);
        let answer = if lost { Err(went_meanwhile()) } else { answer };
        let header = FrameHeader { holds: scratch.asking.holds, ..*header };
        let late = self.late_gate(&header, responder).filter(|_| ungated);
        let answer = match (answer, scratch.unread.take()) {
            (Ok(reply), Some(unread)) => {
                let mut steps = Steps::of(self.data.device(), unread, scratch);
                return match late {
                    Some(gate) => gate.respond_in_steps(&header, reply, &mut steps),
                    None => responder.respond_in_steps(&header, reply, &mut steps),
                };
            }
            (answer, None) => answer,
            (Err(fault), Some(unread)) => {
                self.data.device().unpin(unread.lease, true);
                Err(fault)
            }
        };
        let responder: &dyn Responder = match &late {
            Some(gate) => gate,
            None => &**responder,
        };
        match &answer {
            Ok(Reply::Read(_)) => {
                responder.respond_with(&header, answer, &mut scratch.payload, scratch.payload_crc);
            }
            _ => responder.respond(&header, answer, &[], 0),
        }
    }

    fn greeting(&self) -> HelloReply {
        let chunk_bytes = self.meta.format().map_or(self.settings.chunk_bytes, |format| format.chunk_bytes);
        let (cluster, NodeId(node)) = self.keeper.with(|identity| (identity.cluster_id(), identity.node_id()));
        HelloReply {
            software: SOFTWARE.to_owned(),
            cluster: cluster.to_string(),
            node,
            challenge: Vec::new(),
            uid: 0,
            may_impersonate: false,
            chunk_bytes,
            socket: self.socket.get().cloned().unwrap_or_default(),
            proof: Vec::new(),
            map_version: self.cluster_map().version,
            former: self.former_clusters(),
        }
    }

    /// Handles one message of node `from`, as its connection has proven. The payload is not verified yet: its consumer
    /// checks it against the CRC in `header`.
    ///
    /// # Errors
    /// `BadFrame` for a malformed message: close the connection. `Future` for a clock too far ahead: the message is
    /// dropped, and the peer sends it again when the clocks are right.
    pub fn told(
        &self,
        from: NodeId,
        header: &FrameHeader,
        told: ServerMessage,
        payload: ReceivedPayload<'_>,
    ) -> Result<(), Fault> {
        self.clock.observe(header.hlc)?;
        match told {
            ServerMessage::Alive(_) if payload.is_empty() => {
                self.contact(from);
                Ok(())
            }
            ServerMessage::Alive(_) => Err(Fault::new(
                Reason::BadFrame,
                format!("malformed frame: node {from} sent {} bytes with a sign of life", payload.len()),
            )),
            ServerMessage::Heartbeat(told) => {
                self.control_told(from, ControlTold::Heartbeat(told));
                Ok(())
            }
            ServerMessage::Grant(told) => {
                self.control_told(from, ControlTold::Grant(told));
                Ok(())
            }
            ServerMessage::Refused(told) => {
                self.control_told(from, ControlTold::Refused(told));
                Ok(())
            }
            ServerMessage::Metalog(said) => {
                self.contact(from);
                self.meta.on_peer_message(from, PeerMetalog::Message(said), payload.bytes())
            }
            ServerMessage::MetalogPiece(piece) => {
                self.meta.on_peer_message(from, PeerMetalog::Piece(piece), payload.bytes())
            }
            ServerMessage::MetalogHeld(held) => {
                self.meta.on_peer_message(from, PeerMetalog::Held(held), payload.bytes())
            }
            ServerMessage::MetalogClose(close) => {
                self.meta.on_peer_message(from, PeerMetalog::Close(close), payload.bytes())
            }
            ServerMessage::Question(question) => {
                self.questions.ask(from, question);
                Ok(())
            }
            ServerMessage::QuestionAnswer(answer) => {
                self.questions.answered(answer, payload.bytes());
                Ok(())
            }
            ServerMessage::Attached(told) => {
                self.sessions.seen(told.sessions.into_iter().map(SessionId), self.clock.reading().mono);
                Ok(())
            }
            // The peer sends it again, and by then the entry may be executed here.
            told if self.is_early(&told) => Ok(()),
            told => self.data.on_message(from, told, header.payload_crc, payload).map(drop),
        }
    }

    /// True if a peer asks this server to close a change of metadata that it has not executed yet.
    fn is_early(&self, told: &ServerMessage) -> bool {
        match told {
            ServerMessage::ChainAsk(ChainAsk { ask: Some(ChainAskKind::CloseAfter(after)), .. }) => {
                self.meta.appended().0 < after.entry
            }
            _ => false,
        }
    }

    /// Sets the connections to the other nodes. To be called once, before the first message to one.
    pub fn connect(&self, peers: Arc<dyn Peers>) {
        self.way.open(peers);
    }

    /// Checks the caller and its session.
    fn admit(&self, conn: &Conn, header: &FrameHeader, named: Option<Caller>) -> Result<Principal, Fault> {
        let principal = conn.principal(named)?;
        self.clock.observe(header.hlc)?;
        if header.session != SessionId(0) && conn.session() != Some(header.session) {
            let owner = || self.meta.session_user(header.session);
            let known = match owner() {
                // Another server may have opened it a moment ago.
                None if self.meta.is_member() => {
                    self.meta.linearizable()?;
                    owner()
                }
                known => known,
            };
            match known {
                Some(uid) if uid == principal.uid => {
                    self.sessions.attach(conn, header.session, self.clock.reading().mono);
                }
                // The same words for both, so that no client can probe for sessions of other users.
                Some(_) | None => return Err(unknown_session(header.session)),
            }
        }
        Ok(principal)
    }

    /// Looks after what waits for sessions that cache; to be called some times a second.
    pub fn tick(&self) {
        self.caching.tick();
    }

    /// Number of cache leases granted and not expired, at most: for tests and `status`.
    pub fn grants(&self) -> usize {
        self.caching.count()
    }

    /// A connection is closed.
    pub fn disconnected(&self, conn: &Conn) {
        self.sessions.detach(conn, self.clock.reading().mono);
    }

    /// Makes everything appended so far durable, if there is anything.
    ///
    /// # Errors
    /// The disk's: the server continues read-only.
    pub fn flush(&self) -> Result<(), Fault> {
        // Closed timestamps keep up with the clock, so that `stable` does not lag behind on a busy server.
        let now = self.clock.newest();
        // In a cluster each closed timestamp is an entry of the log: only while there are writes.
        let writing = !self.meta.is_member() || self.data.device().dirty_bytes() > 0;
        if writing && now > self.meta.closed() && self.meta.promise(now) {
            let closed = match self.data.is_shared() {
                // For the chains whose head is here; the other members follow theirs.
                true => self.data.promise(now).map(|()| false),
                false => self.data.close(now),
            };
            match closed {
                Ok(_) => {}
                Err(fault) if fault.reason == Reason::NotYetClosed => {}
                Err(fault) => return Err(fault),
            }
        }
        self.durability.flush(&self.clock, &self.data, &self.meta)?;
        Ok(())
    }

    /// True if something waits to be flushed.
    pub fn is_dirty(&self) -> bool {
        let dirty = self.durability.is_dirty(&self.data, &self.meta);
        self.durability.dirty_age_ns(self.clock.reading().mono, dirty);
        dirty
    }

    /// Maintains clocks and sessions; to be called about twice a second.
    ///
    /// # Errors
    /// The disk's.
    pub fn tend(&self) -> Result<(), Fault> {
        self.caching.tick();
        self.end_lapsed_locks();
        self.take_over();
        let mut failed = self.close_when_idle();
        let timeout_ns = self.settings.session_timeout.as_nanos() as u64;
        // The server that orders changes ends sessions.
        let now = self.clock.reading().mono;
        let expired = match self.meta.leads() {
            true => self.sessions.expired(now, timeout_ns),
            false => {
                self.tell_attached(now, timeout_ns);
                Vec::new()
            }
        };
        for session in expired {
            // Ending one takes a while: the client of the next may be back by then.
            if !self.sessions.has_expired(session, self.clock.reading().mono, timeout_ns) {
                continue;
            }
            match self.end_expired(session) {
                Ok(()) => {}
                Err(fault) if fault.reason == Reason::UnknownSession => self.sessions.forget(session),
                // The disk refuses the write: report it.
                Err(fault) if fault.reason == Reason::InputOutput => failed = failed.and(Err(fault)),
                // No other server answers, or another leads, or the clock is not trusted: tried again.
                Err(fault) if matches!(fault.kind(), ErrorKind::Unavailable | ErrorKind::Conflict) => {}
                Err(fault) => failed = failed.and(Err(fault)),
            }
        }
        if self.tended.fetch_add(1, Ordering::Relaxed).is_multiple_of(SWEEP_EVERY) {
            self.sweep_sessions();
            failed = failed.and(self.erase_sessions());
        }
        self.tell_trouble();
        self.clock.look(self.durability.durable_stamp(), self.durability.durable_ticket())?;
        if self.tended.load(Ordering::Relaxed).is_multiple_of(2) {
            let look = || {
                self.data
                    .closed_if_durable()
                    .unwrap_or_else(|| self.data.still_closed(&self.durability.durable_closed()))
            };
            failed = failed.and(self.keep_closed(look));
        }
        failed
    }

    /// Stores the closed timestamps for the next start.
    fn keep_closed(&self, look: impl FnOnce() -> Vec<u64>) -> Result<(), Fault> {
        if !self.meta.is_member() {
            return Ok(());
        }
        match self.remembered.keep(look) {
            // On a full disk an older record serves as well.
            Err(fault) if fault.reason == Reason::NoSpace => Ok(()),
            kept => kept,
        }
    }

    /// In a cluster instants close even without writes or requests: every server can then read the past, whatever is
    /// lost afterwards. The leader closes the names, a head its chains; each second costs a small entry of the log and
    /// a message to each member.
    ///
    /// # Errors
    /// The disk's: the clock's bound cannot be made durable.
    fn close_when_idle(&self) -> Result<(), Fault> {
        if !self.meta.is_member() {
            return Ok(());
        }
        let now = self.clock.now();
        let is_behind = |closed: Hlc| closed.micros() + IDLE_CLOSE_US <= now.micros();
        if self.meta.leads() && is_behind(self.meta.closed()) {
            self.meta.promise(now);
        }
        match self.data.promise_if(now, is_behind) {
            // A clock that is not trusted closes nothing; another server does.
            Err(fault) if matches!(fault.kind(), ErrorKind::Unavailable | ErrorKind::Conflict) => Ok(()),
            promised => promised,
        }
    }

    /// Reports to the leader, several times within a session timeout, the sessions that are connected here. A client
    /// that only reads and writes bytes may never send a request to the leader.
    fn tell_attached(&self, now: MonoTime, timeout_ns: u64) {
        let Some(leader) = self.meta.leader() else { return };
        if now.since_ns(MonoTime(self.attached_told.load(Ordering::Relaxed))) < timeout_ns / ATTACHED_TELLS {
            return;
        }
        self.attached_told.store(now.0, Ordering::Relaxed);
        let sessions: Vec<u64> = self.sessions.connected().into_iter().map(|session| session.0).collect();
        if !sessions.is_empty() {
            self.way.tell(leader, ServerMessage::Attached(Attached { sessions }), PeerPayload::default());
        }
    }

    /// Flushes everything and records a clean stop. The engine must not be used afterwards.
    ///
    /// # Errors
    /// The disk's: the next start recovers as after a crash.
    pub fn stop(&self) -> Result<(), Fault> {
        self.durability.finish(&self.clock, &self.data, &self.meta)?;
        self.keep_closed(|| self.data.closed_by_chain())?;
        let newest = self.clock.newest();
        self.keeper.update(|identity| {
            identity.clean = true;
            identity.clock_bound = newest.0;
            identity.frontier = newest.0;
            identity.set_durable(self.durability.durable_ticket());
        })
    }

    /// Preallocates segments as soon as one is used, or after `timeout` at the latest. To be called again and again, on
    /// a thread of its own; the next flush does the same and reports a failure.
    pub fn stock(&self, timeout: Duration) {
        let device = self.data.device();
        device.spares().await_taken(timeout);
        if self.durability.failure().is_none() {
            let _told_by_flush = device.prepare_spares();
            device.expect_segments();
        }
    }

    /// Ends the wait of [`Engine::stock`].
    pub fn stop_stocking(&self) {
        self.data.device().spares().wake();
    }

    /// How long after a write its flush begins.
    pub fn flush_delay(&self) -> Duration {
        self.settings.flush_delay
    }
}

/// How far behind the clock, in microseconds, the closed instants may be before an idle server closes newer ones.
const IDLE_CLOSE_US: u64 = 900_000;
/// One in so many calls of [`Engine::tend`] looks for sessions that have ended.
const SWEEP_EVERY: u64 = 8;
/// Reports of a connected session within its timeout: messages are lost, and leaders change.
const ATTACHED_TELLS: u64 = 4;

pub(crate) fn done() -> Reply {
    Reply::Done(frieze_wire::message::EmptyReply {})
}

pub(crate) fn unknown_session(session: SessionId) -> Fault {
    Fault::new(
        Reason::UnknownSession,
        format!("session {session} is unknown or has ended, or belongs to another user: open a new one"),
    )
}
