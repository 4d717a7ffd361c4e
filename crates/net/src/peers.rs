//! Messages to the other servers of a cluster, as the planes send them.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use frieze_base::NodeId;
use frieze_wire::peer::ServerMessage;

/// Sends messages to other nodes. Never waits; keeps the order of the messages from one plane to one node as long as
/// the connection lives; queues a bounded number of bytes for each node. Messages beyond it are dropped, and so are
/// those in flight when a connection breaks.
pub trait Peers: Send + Sync {
    /// Sends a message to `to`, with a payload.
    fn send(&self, to: NodeId, message: ServerMessage, payload: PeerPayload);

    /// The same for a caller that holds a contended lock, and calls [`Peers::go`] after its release: the message is
    /// queued now and sent then.
    fn queue(&self, to: NodeId, message: ServerMessage, payload: PeerPayload) {
        self.send(to, message, payload);
    }

    /// Sends the queued messages, as far as that is possible without waiting.
    fn go(&self) {}
}

/// The payload of a message: shared, not copied, for several nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerPayload {
    /// The prefix that was sent ahead.
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

/// The prefix of a payload that was sent to a node ahead of its record, while it was being received here. The record is
/// sent there with the rest over the same connection, or with all of it over another.
#[derive(Clone)]
pub struct SentPrefix(Arc<dyn PrefixClaim>);

/// A claim on the bytes that a connection has sent.
pub trait PrefixClaim: Send + Sync {
    /// The name of the prefix and its length in bytes, if the connection is still `connection`. Once only.
    fn claim(&self, connection: u64) -> Option<(u64, usize)>;
}

impl SentPrefix {
    /// A prefix that was sent. If it is dropped unclaimed, a message has the other end drop it.
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

/// The sender of messages once there is one; until then messages are dropped.
#[derive(Default)]
pub struct PeersCell(OnceLock<Arc<dyn Peers>>);

impl PeersCell {
    /// Sets the sender, once.
    pub fn open(&self, peers: Arc<dyn Peers>) {
        // A second sender would be another network, and there is none.
        let _ = self.0.set(peers);
    }
}

impl Peers for PeersCell {
    fn send(&self, to: NodeId, message: ServerMessage, payload: PeerPayload) {
        if let Some(peers) = self.0.get() {
            peers.send(to, message, payload);
        }
    }

    fn queue(&self, to: NodeId, message: ServerMessage, payload: PeerPayload) {
        if let Some(peers) = self.0.get() {
            peers.queue(to, message, payload);
        }
    }

    fn go(&self) {
        if let Some(peers) = self.0.get() {
            peers.go();
        }
    }
}
