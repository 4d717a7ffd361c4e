//! The way to the other servers of a cluster, as the planes see it.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use frieze_base::NodeId;
use frieze_wire::peer::Told;

/// Tells other nodes. Never waits; keeps the order of what one plane tells one node while the connection to it lives; holds a
/// bounded number of bytes for each and loses what is beyond, and what was under way when a connection breaks.
pub trait Peers: Send + Sync {
    /// Tells `to` something, with bytes beside it.
    fn tell(&self, to: NodeId, told: Told, payload: PeerPayload);

    /// The same, by who holds a lock that others wait for, and calls [`Peers::go`] when it has let go of it: what is told takes its
    /// place now, and goes then.
    fn tell_soon(&self, to: NodeId, told: Told, payload: PeerPayload) {
        self.tell(to, told, payload);
    }

    /// Sends what has its place, as far as that goes without waiting.
    fn go(&self) {}
}

/// Bytes beside a message; shared, not copied, on their way to several nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerPayload {
    /// What of them has gone ahead.
    pub ahead: Option<SentPrefix>,
    /// The bytes; at most [`frieze_wire::frame::PAYLOAD_BYTES_MAX`].
    pub bytes: Bytes,
    /// Their CRC32C, if the sender knows it already.
    pub crc: Option<u32>,
}

impl PeerPayload {
    /// No bytes.
    pub fn none() -> PeerPayload {
        PeerPayload::default()
    }
}

/// The beginning of a payload that went to a node ahead of the record it belongs to, while it was being received here. Whoever sends
/// the record there, over the same connection, sends the rest; otherwise all of it.
#[derive(Clone)]
pub struct SentPrefix(Arc<dyn PrefixClaim>);

/// What a connection has sent.
pub trait PrefixClaim: Send + Sync {
    /// Its name and how many bytes went, if the connection is still `connection`. Once only.
    fn claim(&self, connection: u64) -> Option<(u64, usize)>;
}

impl SentPrefix {
    /// What was sent; if it is dropped unclaimed, the other end is told to forget it.
    pub fn of(sent: Arc<dyn PrefixClaim>) -> SentPrefix {
        SentPrefix(sent)
    }

    /// See [`PrefixClaim::claim`].
    pub fn claim(&self, connection: u64) -> Option<(u64, usize)> {
        self.0.claim(connection)
    }
}

impl std::fmt::Debug for SentPrefix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SentPrefix")
    }
}

impl PartialEq for SentPrefix {
    fn eq(&self, other: &SentPrefix) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for SentPrefix {}

/// The way to the others once there is one; until then nothing is told.
#[derive(Default)]
pub struct Way(OnceLock<Arc<dyn Peers>>);

impl Way {
    /// From now on it is this. Once only.
    pub fn open(&self, peers: Arc<dyn Peers>) {
        // A second one would be another network: nobody makes one.
        let _ = self.0.set(peers);
    }
}

impl Peers for Way {
    fn tell(&self, to: NodeId, told: Told, payload: PeerPayload) {
        if let Some(peers) = self.0.get() {
            peers.tell(to, told, payload);
        }
    }

    fn tell_soon(&self, to: NodeId, told: Told, payload: PeerPayload) {
        if let Some(peers) = self.0.get() {
            peers.tell_soon(to, told, payload);
        }
    }

    fn go(&self) {
        if let Some(peers) = self.0.get() {
            peers.go();
        }
    }
}
