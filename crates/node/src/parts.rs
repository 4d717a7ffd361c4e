//! The server without threads and sockets: it owns the cores and answers one request at a time, on any thread.
//!
//! Guarantees: the caller is proven before its request has an effect; a state change is logged before it is answered; a
//! read at a closed instant never changes. The real server calls it from one thread a connection, the simulator from
//! one. Leaves to others: sockets and threads (`serve`), the guarantees of the cores.

mod control;
mod metalog;
mod open;
mod succession;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use frieze_base::{ChainId, Fault, MonoTime, NodeId, Reason, SessionId};
use frieze_disk::{Disk, TimeSource};
use frieze_fabric::FabricHost;
use frieze_locks::{Mutex, levels};
use frieze_metadata::{PeerMetalog, VersionStore};
use frieze_net::{Peers, ReceivedPayload};
use frieze_planes::{Planes, Principal};
use frieze_service::{ClusterHost, Conn, KeyRight, ReceivedRequest, Responder, Scratch, Service};
use frieze_wire::chain::Configuration;
use frieze_wire::frame::FrameHeader;
use frieze_wire::message::{
    Cluster, ClusterMapReply, ClusterReply, HelloReply, Join, JoinReply, RequestBody, StatusReply,
};
use frieze_wire::peer::{ChainAsk, ChainAskKind, ServerMessage};
use frieze_wire::txn::Caller;

use crate::control::{Control, ControlMessage};
use crate::removal::Removal;
use crate::successor::Successors;

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

/// A server without threads and sockets: the rooms that answer requests, and its part in a cluster.
pub struct ServerParts {
    /// The rooms that answer requests.
    pub service: Service,
    /// Names and bytes.
    pub planes: Arc<Planes>,
    pub(crate) process: Box<dyn Fn() -> ProcessStats + Send + Sync>,
    pub(crate) started: MonoTime,
    /// This node's part in its cluster; empty while the server is alone.
    control: OnceLock<Arc<Control>>,
    /// Times that [`ServerParts::tend`] was called.
    tended: AtomicU64,
    /// Held while a cluster is being founded.
    founding: Mutex<levels::Founding, ()>,
    pub(crate) removal: Removal,
    pub(crate) successors: Successors,
    /// Random, drawn anew at every start.
    seed: u64,
    /// Where it listens, with the port that was chosen.
    pub(crate) listens_at: OnceLock<String>,
    notes: Vec<String>,
    /// One-sided transfers of payloads, unless the settings exclude them.
    pub(crate) fabric: OnceLock<Arc<FabricHost>>,
    /// Where the server listens for callers on its machine, besides the addresses of its settings.
    pub(crate) socket: OnceLock<String>,
}

/// Software and version, which both ends send in their greeting.
pub const SOFTWARE: &str = concat!("frieze/", env!("CARGO_PKG_VERSION"));

pub use metalog::Joining;

impl ServerParts {
    /// Applies configurations of chains that the control plane has decided. Durable on return.
    ///
    /// # Errors
    /// The disk's: then no configuration is applied.
    pub fn configure(&self, configurations: &[(ChainId, Configuration)]) -> Result<(), Fault> {
        self.planes.data.configure(configurations)
    }

    /// Renews the lease for chains of several members until `until`, by this node's own monotonic clock.
    pub fn renew_lease(&self, until: MonoTime) {
        self.planes.data.lease().renew(until);
    }

    /// The connection with a node broke: messages that may have been lost are sent again.
    pub fn lost(&self, node: NodeId) {
        self.planes.data.on_disconnect(node);
    }

    /// Advances timers of chains of several members; to be called about every 20 ms while there are any (true).
    pub fn tick_chains(&self) -> bool {
        let has_timers = self.planes.data.tick();
        if self.planes.data.take_discarded() {
            // The index was built anew: records that were marked dead in it have to be marked again.
            self.planes.gc.want();
        }
        has_timers
    }

    /// Notes of recovery, in words.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Microseconds to wait before serving, so that the wall clock has passed every stamp of an earlier life.
    pub fn restart_wait_us(&self) -> u64 {
        let newest = self.planes.clock.newest();
        (newest.micros() + 1).saturating_sub(self.planes.clock.reading().wall_us)
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
        self.service.handle(self, conn, ReceivedRequest { header, body, payload }, responder, scratch);
    }

    /// What this server says of itself in a greeting.
    fn greeting_reply(&self) -> HelloReply {
        let chunk_bytes =
            self.planes.meta.format().map_or(self.planes.settings.chunk_bytes, |format| format.chunk_bytes);
        let (cluster, NodeId(node)) = self.planes.keeper.with(|identity| (identity.cluster_id(), identity.node_id()));
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
            // Of one connection, which adds it.
            fabric: None,
        }
    }

    /// Handles one message of node `from`, as its connection has proven. The payload is not verified yet: its consumer
    /// checks it against the CRC in `header`.
    ///
    /// # Errors
    /// `BadFrame` for a malformed message: close the connection. `Future` for a clock too far ahead: the message is
    /// dropped, and the peer sends it again when the clocks are right.
    pub fn on_peer_message(
        &self,
        from: NodeId,
        header: &FrameHeader,
        told: ServerMessage,
        payload: ReceivedPayload<'_>,
    ) -> Result<(), Fault> {
        self.planes.clock.observe(header.hlc)?;
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
                self.on_control_message(from, ControlMessage::Heartbeat(told));
                Ok(())
            }
            ServerMessage::Grant(told) => {
                self.on_control_message(from, ControlMessage::Grant(told));
                Ok(())
            }
            ServerMessage::Refused(told) => {
                self.on_control_message(from, ControlMessage::Refused(told));
                Ok(())
            }
            ServerMessage::Metalog(said) => {
                self.contact(from);
                self.planes.meta.on_peer_message(from, PeerMetalog::Message(said), payload.bytes())
            }
            ServerMessage::MetalogPiece(piece) => {
                self.planes.meta.on_peer_message(from, PeerMetalog::Piece(piece), payload.bytes())
            }
            ServerMessage::MetalogHeld(held) => {
                self.planes.meta.on_peer_message(from, PeerMetalog::Held(held), payload.bytes())
            }
            ServerMessage::MetalogClose(close) => {
                self.planes.meta.on_peer_message(from, PeerMetalog::Close(close), payload.bytes())
            }
            ServerMessage::Question(question) => {
                self.planes.peer_rpc.enqueue(from, question);
                Ok(())
            }
            ServerMessage::QuestionAnswer(answer) => {
                self.planes.peer_rpc.respond(answer, payload.bytes());
                Ok(())
            }
            ServerMessage::Attached(told) => {
                self.service
                    .sessions
                    .table
                    .connected_remotely(told.sessions.into_iter().map(SessionId), self.planes.clock.reading().mono);
                Ok(())
            }
            // The peer sends it again, and by then the entry may be executed here.
            told if self.is_early(&told) => Ok(()),
            told => self.planes.data.on_message(from, told, header.payload_crc, payload).map(drop),
        }
    }

    /// True if a peer asks this server to close a change of metadata that it has not executed yet.
    fn is_early(&self, told: &ServerMessage) -> bool {
        match told {
            ServerMessage::ChainAsk(ChainAsk { ask: Some(ChainAskKind::CloseAfter(after)), .. }) => {
                self.planes.meta.appended().0 < after.entry
            }
            _ => false,
        }
    }

    /// Sets the connections to the other nodes. To be called once, before the first message to one.
    pub fn connect(&self, peers: Arc<dyn Peers>) {
        self.planes.peers.open(peers);
    }

    /// Maintains clocks and sessions; to be called about twice a second.
    ///
    /// # Errors
    /// The disk's.
    pub fn tend(&self) -> Result<(), Fault> {
        self.service.sessions.caching.tick();
        self.service.sessions.end_lapsed_locks();
        self.service.take_over();
        let mut failed = self.planes.close_when_idle();
        failed = failed.and(self.service.upkeep.end_expired_sessions());
        if self.tended.fetch_add(1, Ordering::Relaxed).is_multiple_of(SWEEP_EVERY) {
            self.service.write.sweep_sessions();
            failed = failed.and(self.service.upkeep.erase_sessions());
        }
        self.report_trouble();
        self.planes.clock.look(self.planes.durability.durable_stamp(), self.planes.durability.durable_ticket())?;
        if self.tended.load(Ordering::Relaxed).is_multiple_of(2) {
            let look = || {
                self.planes
                    .data
                    .closed_if_durable()
                    .unwrap_or_else(|| self.planes.data.still_closed(&self.planes.durability.durable_closed()))
            };
            failed = failed.and(self.planes.keep_closed(look));
        }
        failed
    }

    /// Flushes everything and records a clean stop. The parts must not be used afterwards.
    ///
    /// # Errors
    /// The disk's: the next start recovers as after a crash.
    pub fn stop(&self) -> Result<(), Fault> {
        self.planes.durability.finish(&self.planes.clock, &self.planes.data, &self.planes.meta)?;
        self.planes.keep_closed(|| self.planes.data.closed_by_chain())?;
        let newest = self.planes.clock.newest();
        self.planes.keeper.update(|identity| {
            identity.clean = true;
            identity.clock_bound = newest.0;
            identity.frontier = newest.0;
            identity.set_durable(self.planes.durability.durable_ticket());
        })
    }

    /// Preallocates segments as soon as one is used, or after `timeout` at the latest. To be called again and again, on
    /// a thread of its own; the next flush does the same and reports a failure.
    pub fn stock(&self, timeout: Duration) {
        let device = self.planes.data.device();
        device.spares().await_taken(timeout);
        if self.planes.durability.failure().is_none() {
            let _told_by_flush = device.prepare_spares();
            device.expect_segments();
        }
    }

    /// Ends the wait of [`ServerParts::stock`].
    pub fn stop_stocking(&self) {
        self.planes.data.device().spares().wake();
    }
}

/// One in so many calls of [`ServerParts::tend`] looks for sessions that have ended.
const SWEEP_EVERY: u64 = 8;

impl ClusterHost for ServerParts {
    fn greeting(&self) -> HelloReply {
        self.greeting_reply()
    }

    fn check_former(&self, expected: &str) -> Result<(), Fault> {
        ServerParts::check_former(self, expected)
    }

    fn check_is_node(&self, node: NodeId) -> Result<(), Fault> {
        ServerParts::check_is_node(self, node)
    }

    fn check_leads(&self) -> Result<(), Fault> {
        ServerParts::check_leads(self)
    }

    fn name_majority(&self, fault: Fault) -> Fault {
        ServerParts::name_majority(self, fault)
    }

    fn status(&self) -> StatusReply {
        self.ask_majority();
        ServerParts::status(self)
    }

    fn cluster_map(&self) -> ClusterMapReply {
        ServerParts::cluster_map(self)
    }

    fn admit_node(&self, principal: &Principal, ask: Join) -> Result<JoinReply, Fault> {
        self.admit_newcomer(principal, ask)
    }

    fn cluster(&self, principal: &Principal, ask: Cluster) -> Result<ClusterReply, Fault> {
        self.on_operator_request(principal, ask)
    }
}
