//! What the threads of the server share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};

use frieze_locks::{Mutex, levels};
use frieze_net::{Admission, BufferPool, LogThrottle, ReplySlots, Stream};
use frieze_service::Conn;
use frieze_storage::Wake;

use super::links::Links;
use super::metrics::MetricsPage;
use super::spans::RequestSpans;
use super::traffic::Traffic;
use crate::parts::ServerParts;

/// Interval of the upkeep of clocks and sessions.
pub(super) const TEND_EVERY_NS: u64 = 500_000_000;
/// From this size on, a payload that may be forwarded is received into a buffer of its own; smaller ones are copied.
pub(super) const SHARED_BYTES_MIN: usize = 64 << 10;

/// The parts, and the state of sockets and threads.
pub(super) struct Shared {
    pub(super) parts: ServerParts,
    pub(super) wakes: Wakes,
    /// Connections to the other servers.
    pub(super) links: OnceLock<Arc<Links>>,
    /// Messages on these connections and on those of the other servers.
    pub(super) traffic: Arc<Traffic>,
    /// Buffers of payloads that are forwarded.
    pub(super) pool: Arc<BufferPool>,
    /// Admission of large replies.
    pub(super) slots: Arc<ReplySlots>,
    /// The page of metrics, if there is one.
    pub(super) metrics: Option<Arc<MetricsPage>>,
    /// Spans of sampled requests, if the process has a tracer.
    pub(super) spans: Option<Arc<RequestSpans>>,
    pub(super) stopping: AtomicBool,
    pub(super) connections: Arc<AtomicU64>,
    /// Seats for connections, of this gateway and of the others of the process.
    pub(super) admission: Admission,
    /// Connections that could not be accepted.
    pub(super) missed: LogThrottle,
    pub(super) open: Mutex<levels::OpenConnections, BTreeMap<u64, OpenConnection>>,
    pub(super) next_connection: AtomicU64,
    /// Requests from this process that are being answered.
    pub(super) requests_under_way: AtomicU64,
}

/// An open connection, and the identity of its peer as far as it is known.
pub(super) struct OpenConnection {
    pub(super) stream: Stream,
    pub(super) conn: Arc<Conn>,
}

/// Each wakes the thread of this work before its time.
#[derive(Default)]
pub(super) struct Wakes {
    /// Flushing.
    pub(super) flush: Arc<Wake>,
    /// Reclaiming space.
    pub(super) reclaim: Arc<Wake>,
    /// Scrubbing.
    pub(super) scrub: Arc<Wake>,
    /// Making images.
    pub(super) image: Arc<Wake>,
    /// Writing checkpoints of the names.
    pub(super) checkpoint: Arc<Wake>,
    /// Timers of chains.
    pub(super) chains: Arc<Wake>,
    /// Timers of the metalog.
    pub(super) metalog: Arc<Wake>,
    /// Renewing the lease.
    pub(super) lease: Arc<Wake>,
    /// Requesting decisions, while there are none to request.
    pub(super) decisions: Arc<Wake>,
}

impl Wakes {
    /// Wakes all of these threads.
    pub(super) fn wake_all(&self) {
        let Wakes { flush, reclaim, scrub, image, checkpoint, chains, metalog, lease, decisions } = self;
        let all = [flush, reclaim, scrub, image, checkpoint, chains, metalog, lease, decisions];
        all.iter().for_each(|wake| wake.wake());
    }
}
