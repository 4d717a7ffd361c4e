//! Sessions and what they hold: connections, capabilities, cache leases, locks, open files.

pub mod cache_leases;
pub(crate) mod capability;
pub mod connection;
pub mod node_keys;
pub mod reply_stream;
pub mod request_class;
pub mod responder;
pub mod scratch;
pub mod state;
pub(crate) mod write_context;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use frieze_base::{Fault, MonoTime, Reason, SessionId};
use frieze_coherence::{FileLocks, OpenFiles};
use frieze_locks::{Mutex, levels};
use frieze_net::{PeerPayload, Peers};
use frieze_planes::Planes;
use frieze_wire::peer::ServerMessage;
use frieze_wire::peer::control::Attached;

use crate::session::cache_leases::Caching;
use crate::session::capability::Mint;
use crate::session::connection::{Conn, KeyRight, SessionTable};
use crate::session::node_keys::NodeKeys;

/// Sessions of one server.
pub struct Sessions {
    /// The planes.
    pub planes: Arc<Planes>,
    /// Which sessions are connected.
    pub table: SessionTable,
    /// Cache leases.
    pub caching: Arc<Caching>,
    /// Locks on ranges of files.
    pub locks: Mutex<levels::FileLocks, FileLocks>,
    /// Files that sessions have open.
    pub opened: OpenFiles,
    /// Capabilities.
    pub mint: Mint,
    /// The rights of each key with which a client may prove itself.
    pub keys: BTreeMap<String, KeyRight>,
    /// The keys of the nodes of the cluster.
    pub nodes: NodeKeys,
    /// When this server last reported its connected sessions to the leader ([`MonoTime`]).
    pub attached_at: AtomicU64,
}

impl Sessions {
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
        self.table.detach(conn, self.planes.clock.reading().mono);
    }

    /// Reports to the leader, several times within a session timeout, the sessions that are connected here. A client
    /// that only reads and writes bytes may never send a request to the leader.
    pub fn report_attached(&self, now: MonoTime, timeout_ns: u64) {
        let Some(leader) = self.planes.meta.leader() else { return };
        if now.since_ns(MonoTime(self.attached_at.load(Ordering::Relaxed))) < timeout_ns / ATTACHED_TELLS {
            return;
        }
        self.attached_at.store(now.0, Ordering::Relaxed);
        let sessions: Vec<u64> = self.table.connected().into_iter().map(|session| session.0).collect();
        if !sessions.is_empty() {
            self.planes.peers.send(leader, ServerMessage::Attached(Attached { sessions }), PeerPayload::default());
        }
    }

    /// Number of sessions with state here, of their requests or of their connections: for `status`, and tests.
    pub fn sessions_remembered(&self) -> usize {
        let mut known = self.planes.data.sessions();
        known.extend(self.table.known());
        known.len()
    }
}

/// Reports of a connected session within its timeout: messages are lost, and leaders change.
const ATTACHED_TELLS: u64 = 4;

/// The error for a session that is unknown, has ended, or belongs to another user.
pub fn unknown_session(session: SessionId) -> Fault {
    Fault::new(
        Reason::UnknownSession,
        format!("session {session} is unknown or has ended, or belongs to another user: open a new one"),
    )
}
