//! One lane to one node: the queue of its messages, and the turn to send them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use frieze_base::{Fault, NodeId};
use frieze_fabric::{FabricHost, HopSender};
use frieze_locks::{Condvar, Mutex, levels};
use frieze_net::{FrameWriter, LogThrottle, PartialFrame, PeerPayload, ServerAddr};
use frieze_storage::NodeClock;
use frieze_wire::peer::{KeepAlive, PeerBody, ServerMessage};
use frieze_wire::{FrameHeader, FrameKind};
use prost::Message;
use tracing::info;

use crate::serve::traffic::Traffic;

/// Most bytes in the queue to one node; beyond it a message is lost.
pub(super) const WAITING_BYTES_MAX: usize = 64 << 20;
/// Most messages in the queue.
pub(super) const WAITING_MAX: usize = 1 << 16;
/// Bytes that a thread sends after its own message, before the link's own thread continues: the next request of that
/// thread may be waiting.
const OWN_BYTES_MAX: usize = 4 << 20;
/// Bytes that a message counts beside its payload.
const MESSAGE_BYTES: usize = 256;
/// Numbers the connections of all links.
static CONNECTIONS: AtomicU64 = AtomicU64::new(1);
/// Most payloads on one connection whose beginnings were sent before their records: the receiver has a buffer for each.
pub(crate) const AHEAD_MAX: usize = 8;
/// Silence after which a keep-alive is sent.
const ALIVE_EVERY: Duration = Duration::from_millis(500);

/// Each lane has a connection of its own and keeps its order; there is no order between lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lane {
    /// Heartbeats, leases and the metalog: small, and worthless when late.
    Orders,
    /// Messages of chains, and snapshots of the metalog: as much as a connection can carry, received as fast as a disk
    /// writes.
    Bytes,
}

impl Lane {
    pub(super) const ALL: [Lane; 2] = [Lane::Orders, Lane::Bytes];

    pub(super) fn of(message: &ServerMessage) -> Lane {
        match message {
            ServerMessage::Heartbeat(_) | ServerMessage::Grant(_) | ServerMessage::Refused(_) => Lane::Orders,
            ServerMessage::Metalog(_)
            | ServerMessage::MetalogHeld(_)
            | ServerMessage::MetalogClose(_)
            | ServerMessage::Attached(_) => Lane::Orders,
            _ => Lane::Bytes,
        }
    }
}

impl std::fmt::Display for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Lane::Orders => "for orders",
            Lane::Bytes => "for bytes",
        })
    }
}

/// One lane to one node.
pub(super) struct PeerLink {
    pub(super) to: NodeId,
    pub(super) lane: Lane,
    pub(super) address: ServerAddr,
    pub(super) queue: Mutex<levels::LinkQueue, SendQueue>,
    pub(super) changed: Condvar,
    /// Payloads that the node fetches itself.
    pub(super) hop: HopSender,
    /// Log lines about lost messages: while a node is away some are lost at each heartbeat.
    pub(super) losses: LogThrottle,
}

/// Messages of a lane that are not sent yet, and the state of its connection.
#[derive(Default)]
pub(super) struct SendQueue {
    pub(super) messages: VecDeque<(ServerMessage, PeerPayload)>,
    pub(super) bytes: usize,
    /// Writer of the connection, while there is one.
    pub(super) writer: Option<FrameWriter>,
    /// A thread is sending: it also sends messages that arrive meanwhile.
    pub(super) is_sending: bool,
    /// Rest of a message that the socket did not accept at once: the link's own thread sends it.
    pub(super) partial: Option<PartialFrame<Bytes>>,
    /// Sending has failed.
    pub(super) failed: Option<Fault>,
    /// Number of the connection among all of this process; 0 without one.
    pub(super) connection: u64,
    /// Payloads whose beginning was sent and whose record was not yet.
    pub(super) ahead: usize,
    pub(super) aheads: u64,
    /// There is a connection, or the first attempt at one.
    pub(super) is_accepting: bool,
    pub(super) ends: bool,
    /// The node has connected to this one, so it is up.
    pub(super) is_contacted: bool,
    /// Messages that were dropped because the queue was full.
    pub(super) lost: u64,
    /// Lost messages that no line of the log counts yet.
    pub(super) unlogged: u64,
}

/// Next work of a link's own thread.
#[expect(clippy::large_enum_variant, reason = "taken apart where it is made")]
pub(super) enum NextSend {
    /// Rest of a message.
    Rest(PartialFrame<Bytes>),
    Message(ServerMessage, PeerPayload),
}

impl PeerLink {
    /// A message that is queued before the first attempt to connect has ended waits for it.
    pub(super) fn new(to: NodeId, lane: Lane, address: ServerAddr, fabric: Option<Arc<FabricHost>>) -> PeerLink {
        let queue = Mutex::new(SendQueue { is_accepting: true, ..SendQueue::default() });
        let hop = HopSender::new(fabric.filter(|_| lane == Lane::Bytes));
        PeerLink { to, lane, address, queue, changed: Condvar::new(), hop, losses: LogThrottle::default() }
    }

    /// Queues a message and wakes the link's own thread.
    pub(super) fn send(&self, message: ServerMessage, payload: PeerPayload) {
        self.enqueue(message, payload);
        self.changed.notify_one();
    }

    /// Queues a message for the next thread that sends.
    pub(super) fn enqueue(&self, message: ServerMessage, payload: PeerPayload) {
        let mut queue = self.queue.lock();
        let bytes = payload.bytes.len() + MESSAGE_BYTES;
        if !queue.is_accepting || queue.messages.len() >= WAITING_MAX || queue.bytes + bytes > WAITING_BYTES_MAX {
            queue.lost += 1;
            return;
        }
        queue.bytes += bytes;
        queue.messages.push_back((message, payload));
    }

    /// Opens the link on a connection.
    pub(super) fn open(&self, writer: &FrameWriter) {
        let connection = CONNECTIONS.fetch_add(1, Ordering::Relaxed);
        self.hop.open(connection);
        let mut queue = self.queue.lock();
        queue.connection = connection;
        queue.ahead = 0;
        queue.writer = Some(writer.clone());
    }

    /// Number of the connection; 0 for none.
    pub(super) fn connection(&self) -> u64 {
        self.queue.lock().connection
    }

    /// A name for a payload whose beginning is to be sent, and the connection on which the name is valid.
    pub(super) fn reserve_early(&self) -> Option<(u64, u64)> {
        let mut queue = self.queue.lock();
        let takes = queue.connection != 0 && queue.ahead < AHEAD_MAX;
        queue.ahead += usize::from(takes);
        queue.aheads += u64::from(takes);
        takes.then_some((queue.aheads, queue.connection))
    }

    pub(super) fn release_early(&self, connection: u64) {
        let mut queue = self.queue.lock();
        queue.ahead -= usize::from(queue.connection == connection);
    }

    /// Takes the turn to send on this connection, if it is free.
    pub(super) fn take_turn_on(&self, connection: u64) -> Option<FrameWriter> {
        let mut queue = self.queue.lock();
        let is_free = !queue.is_sending && queue.partial.is_none() && queue.failed.is_none();
        let writer = queue.writer.clone().filter(|_| is_free && queue.connection == connection);
        queue.is_sending |= writer.is_some();
        writer
    }

    /// Closes the link once no thread sends on its connection.
    pub(super) fn close(&self) {
        let mut queue = self.queue.lock();
        (queue.writer, queue.connection) = (None, 0);
        let waited = self.changed.wait_while(queue, |queue| queue.is_sending);
        let mut queue = waited;
        (queue.partial, queue.failed) = (None, None);
        drop(queue);
        self.hop.open(0);
    }

    /// Takes the turn to send, if the queue has a message and the turn is free.
    pub(super) fn take_turn(&self) -> Option<FrameWriter> {
        let mut queue = self.queue.lock();
        let is_free = !queue.is_sending && queue.partial.is_none() && queue.failed.is_none();
        let writer = queue.writer.clone().filter(|_| is_free && !queue.messages.is_empty());
        queue.is_sending |= writer.is_some();
        writer
    }

    /// The next message for the thread with the turn. Without one the turn ends.
    pub(super) fn next_in_turn(&self) -> Option<(ServerMessage, PeerPayload)> {
        let mut queue = self.queue.lock();
        let next = queue.pop();
        queue.is_sending = next.is_some();
        if next.is_none() && queue.writer.is_none() {
            self.changed.notify_all();
        }
        next
    }

    /// Ends the turn before everything is sent.
    pub(super) fn leave(&self, rest: Result<PartialFrame<Bytes>, Fault>) {
        let mut queue = self.queue.lock();
        queue.is_sending = false;
        match rest {
            Ok(partial) => queue.partial = Some(partial).filter(|partial| !partial.is_done()),
            Err(fault) => queue.failed = Some(fault),
        }
        self.changed.notify_all();
    }

    /// Takes the turn for the link's own thread, and returns what to send next; after a long silence a keep-alive.
    /// `None` when the link ends.
    ///
    /// # Errors
    /// The failure of another thread that was sending on this link.
    pub(super) fn next(&self) -> Result<Option<NextSend>, Fault> {
        let mut queue = self.queue.lock();
        let idle = |queue: &mut SendQueue| {
            let nothing = queue.messages.is_empty() && queue.partial.is_none();
            !queue.ends && queue.failed.is_none() && (nothing || queue.is_sending)
        };
        loop {
            let waited = self.changed.wait_timeout_while(queue, ALIVE_EVERY, idle);
            queue = waited.0;
            // If another thread is sending just now, no keep-alive is needed.
            if !queue.is_sending || queue.ends || queue.failed.is_some() {
                break;
            }
        }
        if queue.ends {
            return Ok(None);
        }
        if let Some(fault) = queue.failed.take() {
            return Err(fault);
        }
        queue.is_sending = true;
        if let Some(partial) = queue.partial.take() {
            return Ok(Some(NextSend::Rest(partial)));
        }
        let (message, payload) = queue.pop().unwrap_or((ServerMessage::Alive(KeepAlive {}), PeerPayload::none()));
        Ok(Some(NextSend::Message(message, payload)))
    }

    /// Ends the turn of the link's own thread.
    pub(super) fn sent(&self) {
        self.queue.lock().is_sending = false;
    }

    /// Sets whether messages are queued. Messages under way are lost when a connection breaks. Returns the messages
    /// lost since the last call.
    pub(super) fn set_accepting(&self, is_accepting: bool) -> u64 {
        let mut queue = self.queue.lock();
        let lost = std::mem::take(&mut queue.lost);
        queue.unlogged += lost;
        if lost > 0 && self.losses.happened().is_some() {
            let lost = std::mem::take(&mut queue.unlogged);
            info!("{lost} messages to node {} were lost: it was away, or too much waited for it", self.to);
        }
        queue.is_accepting = is_accepting;
        let mut dropped = VecDeque::new();
        if !is_accepting {
            dropped = std::mem::take(&mut queue.messages);
            queue.bytes = 0;
        }
        drop(queue);
        // Dropping a payload whose beginning was sent locks the link.
        drop(dropped);
        lost
    }

    /// Waits until it is time to try again. True if the node connected meanwhile.
    pub(super) fn await_retry(&self, time: Duration) -> bool {
        let mut queue = self.queue.lock();
        // A connection of the node from before this wait does not count.
        queue.is_contacted = false;
        // Messages do not wake it: they are dropped now.
        let idle = |queue: &mut SendQueue| !queue.ends && !queue.is_contacted;
        let waited = self.changed.wait_timeout_while(queue, time, idle);
        waited.0.is_contacted
    }

    pub(super) fn on_contact(&self) {
        self.queue.lock().is_contacted = true;
        self.changed.notify_all();
    }

    pub(super) fn end(&self) {
        self.queue.lock().ends = true;
        self.changed.notify_all();
    }

    pub(super) fn has_ended(&self) -> bool {
        self.queue.lock().ends
    }
}

impl SendQueue {
    pub(super) fn pop(&mut self) -> Option<(ServerMessage, PeerPayload)> {
        let (message, payload) = self.messages.pop_front()?;
        self.bytes -= payload.bytes.len() + MESSAGE_BYTES;
        Some((message, payload))
    }
}

/// Writes messages to the connections of links.
pub(super) struct LinkSender {
    pub(super) clock: Arc<NodeClock>,
    pub(super) traffic: Arc<Traffic>,
}

impl LinkSender {
    /// Sends as much of a message as the socket takes at once.
    pub(super) fn begin(
        &self,
        link: &PeerLink,
        writer: &FrameWriter,
        mut message: ServerMessage,
        payload: PeerPayload,
    ) -> Result<PartialFrame<Bytes>, Fault> {
        let PeerPayload { ahead, mut bytes, mut crc } = payload;
        if let (ServerMessage::ChainRecord(record), Some(ahead), Some(crc)) = (&mut message, ahead, crc)
            && let Some((name, sent)) = ahead.claim(link.connection())
        {
            (record.ahead, record.crc) = (name, crc);
            bytes = bytes.slice(sent..);
        } else if let (ServerMessage::ChainRecord(record), Some(payload_crc)) = (&mut message, crc)
            && let Some(memory) = link.hop.lend(&bytes)
        {
            (record.src_slot, record.crc) = (Some(memory), payload_crc);
            (bytes, crc) = (Bytes::new(), None);
        }
        let body = PeerBody { message: Some(message) };
        let len = bytes.len() + body.encoded_len();
        body.message.iter().for_each(|message| self.traffic.sent(message, len));
        let header = FrameHeader { hlc: self.clock.newest(), ..FrameHeader::of(FrameKind::Peer) };
        Ok(writer.begin(header, &body.encode_to_vec(), bytes, crc)?)
    }

    /// Sends queued messages of a link without blocking. The rest is for the link's own thread.
    pub(super) fn send_some(&self, link: &PeerLink) {
        if let Some(writer) = link.take_turn() {
            self.send_in_turn(link, &writer);
        }
    }

    pub(super) fn send_in_turn(&self, link: &PeerLink, writer: &FrameWriter) {
        let mut bytes = 0;
        while let Some((message, payload)) = link.next_in_turn() {
            bytes += payload.bytes.len() + MESSAGE_BYTES;
            match self.begin(link, writer, message, payload) {
                Ok(partial) if partial.is_done() && bytes < OWN_BYTES_MAX => {}
                partial => return link.leave(partial),
            }
        }
    }
}
