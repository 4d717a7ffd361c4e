//! The way to the other servers of a cluster, as the planes see it.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use frieze_base::{ClusterId, NodeId};
use frieze_net::Key;
use frieze_wire::peer::ServerMessage;

use crate::identity::secret_after;

/// Tells other nodes. Never waits; keeps the order of what one plane tells one node while the connection to it lives; holds a
/// bounded number of bytes for each and loses what is beyond, and what was under way when a connection breaks.
pub trait Peers: Send + Sync {
    /// Tells `to` something, with bytes beside it.
    fn tell(&self, to: NodeId, told: ServerMessage, payload: PeerPayload);

    /// The same, by who holds a lock that others wait for, and calls [`Peers::go`] when it has let go of it: what is told takes its
    /// place now, and goes then.
    fn tell_soon(&self, to: NodeId, told: ServerMessage, payload: PeerPayload) {
        self.tell(to, told, payload);
    }

    /// Sends what has its place, as far as that goes without waiting.
    fn go(&self) {}
}

/// Bytes beside a message; shared, not copied, on their way to several nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerPayload {
    /// What of them has gone ahead.
    pub ahead: Option<Ahead>,
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
pub struct Ahead(Arc<dyn SentAhead>);

/// What a connection has sent.
pub(crate) trait SentAhead: Send + Sync {
    /// Its name and how many bytes went, if the connection is still `connection`. Once only.
    fn claim(&self, connection: u64) -> Option<(u64, usize)>;
}

impl Ahead {
    /// What was sent; if it is dropped unclaimed, the other end is told to forget it.
    pub(crate) fn of(sent: Arc<dyn SentAhead>) -> Ahead {
        Ahead(sent)
    }

    /// See [`SentAhead::claim`].
    pub(crate) fn claim(&self, connection: u64) -> Option<(u64, usize)> {
        self.0.claim(connection)
    }
}

impl std::fmt::Debug for Ahead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ahead")
    }
}

impl PartialEq for Ahead {
    fn eq(&self, other: &Ahead) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Ahead {}

/// What proves the nodes of a cluster to each other.
pub(crate) struct NodeKeys {
    secret: [u8; 32],
    /// By which who tells proves itself.
    teller: Key,
    /// By which who is told proves itself.
    told: Key,
}

impl NodeKeys {
    /// The keys of the cluster with this secret, which every node of it holds.
    pub(crate) fn of(secret: [u8; 32]) -> NodeKeys {
        let named = |name| Key::new(name, secret).expect("the name is legal and the secret long enough");
        NodeKeys { secret, teller: named("node"), told: named("server") }
    }

    /// The keys of the cluster after it went on as each of `clusters`, one after the other.
    pub(crate) fn after(&self, clusters: impl Iterator<Item = ClusterId>) -> NodeKeys {
        NodeKeys::of(clusters.fold(self.secret, |secret, cluster| secret_after(&secret, cluster)))
    }

    /// What who tells sends.
    pub(crate) fn prove_teller(&self, challenge: &[u8], nonce: &[u8]) -> Vec<u8> {
        self.teller.prove(challenge, nonce).to_vec()
    }

    /// True if that was it.
    pub(crate) fn is_teller(&self, challenge: &[u8], nonce: &[u8], proof: &[u8]) -> bool {
        self.teller.verify(challenge, nonce, proof)
    }

    /// What who is told sends, before the other has proven itself: it says nothing of the other proof.
    pub(crate) fn prove_told(&self, challenge: &[u8], nonce: &[u8]) -> Vec<u8> {
        self.told.prove(nonce, challenge).to_vec()
    }

    /// True if that was it.
    pub(crate) fn is_told(&self, challenge: &[u8], nonce: &[u8], proof: &[u8]) -> bool {
        self.told.verify(nonce, challenge, proof)
    }
}

/// The way to the others once there is one; until then nothing is told.
#[derive(Default)]
pub(crate) struct Way(OnceLock<Arc<dyn Peers>>);

impl Way {
    /// From now on it is this. Once only.
    pub(crate) fn open(&self, peers: Arc<dyn Peers>) {
        // A second one would be another network: nobody makes one.
        let _ = self.0.set(peers);
    }
}

impl Peers for Way {
    fn tell(&self, to: NodeId, told: ServerMessage, payload: PeerPayload) {
        if let Some(peers) = self.0.get() {
            peers.tell(to, told, payload);
        }
    }

    fn tell_soon(&self, to: NodeId, told: ServerMessage, payload: PeerPayload) {
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
