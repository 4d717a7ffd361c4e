//! The connections on which this server sends to the others: two to each, a thread each.
//!
//! The sending thread writes as much of a message as the socket accepts at once; the link's own thread sends the rest,
//! and messages that arrive meanwhile. So an idle chain wakes no thread, and a busy one delays no sender.
//!
//! Guarantees: sending never blocks; the queue for one node is bounded in bytes and number; a node that is away costs
//! attempts to connect at intervals, and its messages are dropped meanwhile; both ends have proven that they belong to
//! the cluster before the first message; heartbeats and leases do not wait behind bytes of files, neither on the
//! connection nor at the receiver.
//! Leaves to others: the messages, and sending again those that were lost.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use frieze_base::{ChainId, ClusterId, Fault, NodeId, Reason};
use frieze_locks::{Condvar, Mutex, RwLock, levels};
use frieze_net::{
    FrameWriter, Limits, LogThrottle, PartialFrame, PeerPayload, Peers, PrefixClaim, ServerAddr, random_nonce,
};
use frieze_service::NodeKeys;
use frieze_storage::NodeClock;
use frieze_wire::message::{Hello, HelloReply, Prove, Request};
use frieze_wire::peer::{ChainPiece, KeepAlive, PeerBody, ServerMessage};
use frieze_wire::{FrameHeader, FrameKind};
use prost::Message;
use tracing::{debug, info};

use super::asker::Asker;
use super::spawn;
use super::traffic::Traffic;
use crate::parts::SOFTWARE;
use crate::successor::Successor;

/// Most bytes in the queue to one node; beyond it a message is lost.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// Most messages in the queue.
const WAITING_MAX: usize = 1 << 16;
/// Bytes that a thread sends after its own message, before the link's own thread continues: the next request of that
/// thread may be waiting.
const OWN_BYTES_MAX: usize = 4 << 20;
/// Bytes that a message counts beside its payload.
const MESSAGE_BYTES: usize = 256;
/// Numbers the connections of all links.
static CONNECTIONS: AtomicU64 = AtomicU64::new(1);
/// Most payloads on one connection whose beginnings were sent before their records: the receiver has a buffer for each.
pub(super) const AHEAD_MAX: usize = 8;
/// Least bytes of a payload worth a message of their own.
const PIECE_BYTES_MIN: usize = 192 << 10;
/// Silence after which a keep-alive is sent.
const ALIVE_EVERY: Duration = Duration::from_millis(500);
/// A node that receives nothing for so long closes the connection.
pub(super) const SILENT_MAX: Duration = Duration::from_secs(5);
/// Time until the next attempt to reach a node: twice as long each time, between these.
const RETRY_MIN: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(1);
/// To connect, and for each step of the greeting.
const GREETING: Limits = Limits { idle: Some(Duration::from_secs(2)), frame: Duration::from_secs(2) };
/// Time for the socket to accept a message.
const TELLING: Limits = Limits { idle: None, frame: Duration::from_secs(5) };

/// Callbacks of the links.
pub(super) struct Notices {
    /// True when a connection for the chains of a node is open, false when it is lost.
    pub(super) link: Box<dyn Fn(NodeId, bool) + Send + Sync>,
    /// A server that has proven to be of the cluster refuses this one: it was removed.
    pub(super) removed: Box<dyn Fn(Fault) + Send + Sync>,
    /// A server proves that the cluster was recovered from one server under another identity.
    pub(super) went_on: Box<dyn Fn(Successor) + Send + Sync>,
}

/// All connections on which this server sends.
pub(crate) struct Links {
    me: NodeId,
    cluster: ClusterId,
    keys: NodeKeys,
    clock: Arc<NodeClock>,
    notices: Notices,
    traffic: Arc<Traffic>,
    links: Mutex<levels::PeerLinks, BTreeMap<(NodeId, Lane), Open>>,
    /// Links of lane [`Lane::Bytes`], searched for messages to send.
    going: RwLock<levels::ByteLinks, Vec<Arc<Link>>>,
}

struct Open {
    link: Arc<Link>,
    thread: JoinHandle<()>,
}

/// Each lane has a connection of its own and keeps its order; there is no order between lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Lane {
    /// Heartbeats, leases and the metalog: small, and worthless when late.
    Orders,
    /// Messages of chains, and snapshots of the metalog: as much as a connection can carry, received as fast as a disk
    /// writes.
    Bytes,
}

impl Lane {
    const ALL: [Lane; 2] = [Lane::Orders, Lane::Bytes];

    fn of(told: &ServerMessage) -> Lane {
        match told {
            ServerMessage::Heartbeat(_) | ServerMessage::Grant(_) | ServerMessage::Refused(_) => Lane::Orders,
            ServerMessage::Metalog(_)
            | ServerMessage::MetalogHeld(_)
            | ServerMessage::MetalogClose(_)
            | ServerMessage::Attached(_) => Lane::Orders,
            _ => Lane::Bytes,
        }
    }
}

/// One lane to one node.
struct Link {
    to: NodeId,
    lane: Lane,
    address: ServerAddr,
    waiting: Mutex<levels::LinkQueue, Waiting>,
    changed: Condvar,
    /// Log lines about lost messages: while a node is away some are lost at each heartbeat.
    losses: LogThrottle,
}

#[derive(Default)]
struct Waiting {
    messages: VecDeque<(ServerMessage, PeerPayload)>,
    bytes: usize,
    /// Writer of the connection, while there is one.
    writer: Option<FrameWriter>,
    /// A thread is sending: it also sends messages that arrive meanwhile.
    is_sending: bool,
    /// Rest of a message that the socket did not accept at once: the link's own thread sends it.
    begun: Option<PartialFrame<Bytes>>,
    /// Sending has failed.
    failed: Option<Fault>,
    /// Number of the connection among all of this process; 0 without one.
    connection: u64,
    /// Payloads whose beginning was sent and whose record was not yet.
    ahead: usize,
    aheads: u64,
    /// There is a connection, or the first attempt at one.
    is_taking: bool,
    ends: bool,
    /// The node has connected to this one, so it is up.
    is_heard: bool,
    /// Messages that were dropped because the queue was full.
    lost: u64,
    /// Lost messages that no line of the log counts yet.
    unsaid: u64,
}

impl Links {
    /// No connections yet.
    pub(super) fn new(
        me: NodeId,
        cluster: ClusterId,
        keys: NodeKeys,
        clock: Arc<NodeClock>,
        notices: Notices,
        traffic: Arc<Traffic>,
    ) -> Arc<Links> {
        let (links, going) = (Mutex::default(), RwLock::default());
        Arc::new(Links { me, cluster, keys, clock, notices, traffic, links, going })
    }

    /// Sets the other servers to `nodes`, at these addresses.
    ///
    /// # Errors
    /// `Overloaded` if the system refuses another thread; all links that need none are set then.
    pub(crate) fn set(self: &Arc<Links>, nodes: &BTreeMap<NodeId, ServerAddr>) -> Result<(), Fault> {
        let mut links = self.links.lock();
        // The thread of a link that ends stops by itself; nothing depends on when.
        let goes = |(node, _): &(NodeId, Lane), open: &mut Open| nodes.get(node) != Some(&open.link.address);
        links.extract_if(.., goes).for_each(|(_, open)| open.link.end());
        let mut failed = Ok(());
        let others = nodes.iter().filter(|(node, _)| **node != self.me);
        for ((&to, address), lane) in others.flat_map(|other| Lane::ALL.map(|lane| (other, lane))) {
            if links.contains_key(&(to, lane)) {
                continue;
            }
            let link = Arc::new(Link::new(to, lane, address.clone()));
            let (links_of_thread, link_of_thread) = (self.clone(), link.clone());
            match spawn("link", move || links_of_thread.run(&link_of_thread)) {
                Ok(thread) => drop(links.insert((to, lane), Open { link, thread })),
                Err(fault) => failed = Err(fault),
            }
        }
        let for_bytes = links.values().map(|open| &open.link).filter(|link| link.lane == Lane::Bytes);
        *self.going.write() = for_bytes.cloned().collect();
        failed
    }

    /// The node has connected to this one: the link to it tries again at once.
    pub(super) fn heard(&self, node: NodeId) {
        let links = self.links.lock();
        Lane::ALL.iter().filter_map(|lane| links.get(&(node, *lane))).for_each(|open| open.link.heard());
    }

    /// Closes all connections and waits for their threads.
    pub(super) fn stop(&self) {
        let links = std::mem::take(&mut *self.links.lock());
        for open in links.values() {
            open.link.end();
        }
        for open in links.into_values() {
            // A panic of the thread is in the log already.
            let _ = open.thread.join();
        }
    }

    /// Body of the thread of one link.
    fn run(&self, link: &Link) {
        let mut retry = RETRY_MIN;
        let mut said = None;
        while !link.has_ended() {
            match self.connect(link) {
                Ok(writer) => {
                    retry = RETRY_MIN;
                    said = None;
                    self.notice(link, true);
                    link.open(&writer);
                    let ended = self.tell_all(link, &writer);
                    writer.stream().shutdown();
                    link.close();
                    self.notice(link, false);
                    if let Err(fault) = ended {
                        info!("the connection to node {} ({}) is lost: {fault}", link.to, link.lane);
                    }
                }
                Err(fault) => {
                    self.traffic.lost(link.take(false));
                    let words = fault.to_string();
                    if said.as_ref() != Some(&words) && link.lane == Lane::Bytes {
                        info!("node {} at {} cannot be reached: {words}", link.to, link.address);
                        said = Some(words);
                    }
                }
            }
            retry = if link.rest(retry) { RETRY_MIN } else { (retry * 2).min(RETRY_MAX) };
        }
    }

    fn notice(&self, link: &Link, stands: bool) {
        if stands {
            info!("connected to node {} at {} ({})", link.to, link.address, link.lane);
        }
        self.traffic.lost(link.take(stands));
        if link.lane == Lane::Bytes {
            (self.notices.link)(link.to, stands);
        }
    }

    /// Connects, and proves both ends to each other.
    fn connect(&self, link: &Link) -> Result<FrameWriter, Fault> {
        let mut asker = Asker::connect(&link.address, GREETING, TELLING)?;
        let nonce = random_nonce()?;
        let hello = Hello {
            software: SOFTWARE.to_owned(),
            key_name: String::new(),
            nonce: nonce.to_vec(),
            cluster: self.cluster.to_string(),
            node: self.me.0,
        };
        let greeted = asker.hello(Request::Hello(hello)).inspect_err(|fault| {
            if fault.reason == Reason::WrongCluster {
                self.ask_for_successor(link, &mut asker);
            }
        })?;
        if !self.keys.is_told(&greeted.challenge, &nonce, &greeted.proof) {
            let words = format!("the server at {} does not hold the secret of this cluster", link.address);
            return Err(Fault::new(Reason::Unproven, words));
        }
        if greeted.node != link.to.0 {
            let words = format!("the server at {} is node {}, not {}", link.address, greeted.node, link.to);
            return Err(Fault::new(Reason::Unproven, words));
        }
        let mac = self.keys.prove_teller(&greeted.challenge, &nonce);
        asker.hello(Request::Prove(Prove { mac })).inspect_err(|fault| {
            if fault.reason == Reason::Removed {
                (self.notices.removed)(fault.clone());
            }
        })?;
        Ok(asker.into_writer())
    }

    /// The server refuses this one as one of another cluster: asks it to prove whether that is this cluster under a
    /// later identity.
    fn ask_for_successor(&self, link: &Link, asker: &mut Asker) {
        let identified = asker.identify(self.me);
        let of = |(reply, nonce): (HelloReply, Vec<u8>)| {
            Successor::of(&reply, &nonce, self.cluster, &self.keys, &link.address)
        };
        match identified.and_then(of) {
            Ok(Some(successor)) => (self.notices.went_on)(successor),
            Ok(None) => {}
            Err(fault) => debug!("the server at {} says no more of its cluster: {fault}", link.address),
        }
    }

    /// Sends what other threads leave, until the connection fails or the link ends.
    fn tell_all(&self, link: &Link, writer: &FrameWriter) -> Result<(), Fault> {
        while let Some(next) = link.next()? {
            let begun = match next {
                Next::Left(begun) => Ok(begun),
                Next::Message(told, payload) => self.begin(link, writer, told, payload),
            };
            let sent = begun.and_then(|begun| if begun.is_done() { Ok(()) } else { Ok(writer.finish(&begun)?) });
            link.sent();
            sent?;
        }
        Ok(())
    }

    /// Sends as much of a message as the socket takes at once.
    fn begin(
        &self,
        link: &Link,
        writer: &FrameWriter,
        mut told: ServerMessage,
        payload: PeerPayload,
    ) -> Result<PartialFrame<Bytes>, Fault> {
        let PeerPayload { ahead, mut bytes, crc } = payload;
        if let (ServerMessage::ChainRecord(record), Some(ahead), Some(crc)) = (&mut told, ahead, crc)
            && let Some((name, sent)) = ahead.claim(link.connection())
        {
            (record.ahead, record.crc) = (name, crc);
            bytes = bytes.slice(sent..);
        }
        let body = PeerBody { message: Some(told) };
        let len = bytes.len() + body.encoded_len();
        body.message.iter().for_each(|told| self.traffic.sent(told, len));
        let header = FrameHeader { hlc: self.clock.newest(), ..FrameHeader::of(FrameKind::Peer) };
        Ok(writer.begin(header, &body.encode_to_vec(), bytes, crc)?)
    }

    /// Prepares to send the beginning of a payload of `len` bytes, which begins to arrive here and goes to `to` with a
    /// record of the chain. `None` if that is of no use now.
    pub(super) fn set_off(self: &Arc<Links>, to: NodeId, chain: ChainId, len: usize) -> Option<Arc<Going>> {
        let link = self.going.read().iter().find(|link| link.to == to)?.clone();
        let (name, connection) = link.name_ahead()?;
        let (links, sent) = (self.clone(), Mutex::new(Some(0)));
        Some(Arc::new(Going { links, link, connection, chain, name, len, sent }))
    }

    /// Sends queued messages without blocking. The rest is for the link's own thread.
    fn send_some(&self, link: &Link) {
        if let Some(writer) = link.take_turn() {
            self.send_in_turn(link, &writer);
        }
    }

    fn send_in_turn(&self, link: &Link, writer: &FrameWriter) {
        let mut bytes = 0;
        while let Some((told, payload)) = link.next_in_turn() {
            bytes += payload.bytes.len() + MESSAGE_BYTES;
            match self.begin(link, writer, told, payload) {
                Ok(begun) if begun.is_done() && bytes < OWN_BYTES_MAX => {}
                begun => return link.leave(begun),
            }
        }
    }
}

impl Links {
    fn put(
        &self,
        to: NodeId,
        told: ServerMessage,
        payload: PeerPayload,
        put: impl FnOnce(&Link, ServerMessage, PeerPayload),
    ) {
        let link = self.links.lock().get(&(to, Lane::of(&told))).map(|open| open.link.clone());
        match link {
            Some(link) => put(&link, told, payload),
            None => debug!("node {to} is not known here: what was to be told is lost"),
        }
    }
}

impl Peers for Links {
    fn tell(&self, to: NodeId, told: ServerMessage, payload: PeerPayload) {
        self.put(to, told, payload, Link::tell);
    }

    fn tell_soon(&self, to: NodeId, told: ServerMessage, payload: PeerPayload) {
        match Lane::of(&told) {
            Lane::Bytes => self.put(to, told, payload, Link::put),
            Lane::Orders => self.put(to, told, payload, Link::tell),
        }
    }

    fn go(&self) {
        let going = self.going.read();
        going.iter().for_each(|link| self.send_some(link));
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

/// A payload whose beginning is sent before its record.
pub(super) struct Going {
    links: Arc<Links>,
    link: Arc<Link>,
    connection: u64,
    chain: ChainId,
    name: u64,
    len: usize,
    /// Bytes sent; `None` once the record was sent.
    sent: Mutex<levels::RecordProgress, Option<usize>>,
}

impl Going {
    /// Sends what arrived since the last piece, if that is worth a message and the connection is free; the last piece
    /// goes with the record. `so_far`: everything that has arrived.
    pub(super) fn go_on(&self, so_far: &[u8]) {
        let mut sent = self.sent.lock();
        let Some(from) = sent.filter(|from| so_far.len() - from >= PIECE_BYTES_MIN && so_far.len() < self.len) else {
            return;
        };
        let Some(writer) = self.link.take_turn_on(self.connection) else { return };
        let piece = &so_far[from..];
        let told =
            ServerMessage::ChainPiece(ChainPiece { chain: self.chain.0, ahead: self.name, len: self.len as u32 });
        self.links.traffic.sent(&told, piece.len());
        let body = PeerBody { message: Some(told) }.encode_to_vec();
        let header = FrameHeader { hlc: self.links.clock.newest(), ..FrameHeader::of(FrameKind::Peer) };
        // The record carries the checksum of these bytes.
        match writer.begin(header, &body, piece, Some(0)) {
            Ok(begun) => {
                *sent = Some(so_far.len());
                drop(sent);
                match begun.is_done() {
                    true => self.links.send_in_turn(&self.link, &writer),
                    false => self.link.leave(Ok(begun.map(Bytes::copy_from_slice))),
                }
            }
            Err(fault) => self.link.leave(Err(fault.into())),
        }
    }
}

impl PrefixClaim for Going {
    fn claim(&self, connection: u64) -> Option<(u64, usize)> {
        let mut sent = self.sent.lock();
        if connection != self.connection || sent.is_none_or(|bytes| bytes == 0) {
            return None;
        }
        sent.take().map(|bytes| (self.name, bytes))
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        let unclaimed = self.sent.lock().is_some_and(|bytes| bytes > 0);
        self.link.done_ahead(self.connection);
        if unclaimed && self.link.connection() == self.connection {
            let forget = ChainPiece { chain: self.chain.0, ahead: self.name, len: 0 };
            self.link.tell(ServerMessage::ChainPiece(forget), PeerPayload::none());
        }
    }
}

/// Next work of a link's own thread.
#[expect(clippy::large_enum_variant, reason = "taken apart where it is made")]
enum Next {
    /// Rest of a message.
    Left(PartialFrame<Bytes>),
    Message(ServerMessage, PeerPayload),
}

impl Link {
    /// A message that is queued before the first attempt to connect has ended waits for it.
    fn new(to: NodeId, lane: Lane, address: ServerAddr) -> Link {
        let waiting = Mutex::new(Waiting { is_taking: true, ..Waiting::default() });
        Link { to, lane, address, waiting, changed: Condvar::new(), losses: LogThrottle::default() }
    }

    /// Queues a message and wakes the link's own thread.
    fn tell(&self, told: ServerMessage, payload: PeerPayload) {
        self.put(told, payload);
        self.changed.notify_one();
    }

    /// Queues a message for the next thread that sends.
    fn put(&self, told: ServerMessage, payload: PeerPayload) {
        let mut waiting = self.waiting.lock();
        let bytes = payload.bytes.len() + MESSAGE_BYTES;
        if !waiting.is_taking || waiting.messages.len() >= WAITING_MAX || waiting.bytes + bytes > WAITING_BYTES_MAX {
            waiting.lost += 1;
            return;
        }
        waiting.bytes += bytes;
        waiting.messages.push_back((told, payload));
    }

    /// Opens the link on a connection.
    fn open(&self, writer: &FrameWriter) {
        let mut waiting = self.waiting.lock();
        waiting.connection = CONNECTIONS.fetch_add(1, Ordering::Relaxed);
        waiting.ahead = 0;
        waiting.writer = Some(writer.clone());
    }

    /// Number of the connection; 0 for none.
    fn connection(&self) -> u64 {
        self.waiting.lock().connection
    }

    /// A name for a payload whose beginning is to be sent, and the connection on which the name is valid.
    fn name_ahead(&self) -> Option<(u64, u64)> {
        let mut waiting = self.waiting.lock();
        let takes = waiting.connection != 0 && waiting.ahead < AHEAD_MAX;
        waiting.ahead += usize::from(takes);
        waiting.aheads += u64::from(takes);
        takes.then_some((waiting.aheads, waiting.connection))
    }

    fn done_ahead(&self, connection: u64) {
        let mut waiting = self.waiting.lock();
        waiting.ahead -= usize::from(waiting.connection == connection);
    }

    /// Takes the turn to send on this connection, if it is free.
    fn take_turn_on(&self, connection: u64) -> Option<FrameWriter> {
        let mut waiting = self.waiting.lock();
        let is_free = !waiting.is_sending && waiting.begun.is_none() && waiting.failed.is_none();
        let writer = waiting.writer.clone().filter(|_| is_free && waiting.connection == connection);
        waiting.is_sending |= writer.is_some();
        writer
    }

    /// Closes the link once no thread sends on its connection.
    fn close(&self) {
        let mut waiting = self.waiting.lock();
        (waiting.writer, waiting.connection) = (None, 0);
        let waited = self.changed.wait_while(waiting, |waiting| waiting.is_sending);
        let mut waiting = waited;
        (waiting.begun, waiting.failed) = (None, None);
    }

    /// Takes the turn to send, if the queue has a message and the turn is free.
    fn take_turn(&self) -> Option<FrameWriter> {
        let mut waiting = self.waiting.lock();
        let is_free = !waiting.is_sending && waiting.begun.is_none() && waiting.failed.is_none();
        let writer = waiting.writer.clone().filter(|_| is_free && !waiting.messages.is_empty());
        waiting.is_sending |= writer.is_some();
        writer
    }

    /// The next message for the thread with the turn. Without one the turn ends.
    fn next_in_turn(&self) -> Option<(ServerMessage, PeerPayload)> {
        let mut waiting = self.waiting.lock();
        let next = waiting.pop();
        waiting.is_sending = next.is_some();
        if next.is_none() && waiting.writer.is_none() {
            self.changed.notify_all();
        }
        next
    }

    /// Ends the turn before everything is sent.
    fn leave(&self, rest: Result<PartialFrame<Bytes>, Fault>) {
        let mut waiting = self.waiting.lock();
        waiting.is_sending = false;
        match rest {
            Ok(begun) => waiting.begun = Some(begun).filter(|begun| !begun.is_done()),
            Err(fault) => waiting.failed = Some(fault),
        }
        self.changed.notify_all();
    }

    /// Takes the turn for the link's own thread, and returns what to send next; after a long silence a keep-alive.
    /// `None` when the link ends.
    ///
    /// # Errors
    /// The failure of another thread that was sending on this link.
    fn next(&self) -> Result<Option<Next>, Fault> {
        let mut waiting = self.waiting.lock();
        let idle = |waiting: &mut Waiting| {
            let nothing = waiting.messages.is_empty() && waiting.begun.is_none();
            !waiting.ends && waiting.failed.is_none() && (nothing || waiting.is_sending)
        };
        loop {
            let waited = self.changed.wait_timeout_while(waiting, ALIVE_EVERY, idle);
            waiting = waited.0;
            // If another thread is sending just now, no keep-alive is needed.
            if !waiting.is_sending || waiting.ends || waiting.failed.is_some() {
                break;
            }
        }
        if waiting.ends {
            return Ok(None);
        }
        if let Some(fault) = waiting.failed.take() {
            return Err(fault);
        }
        waiting.is_sending = true;
        if let Some(begun) = waiting.begun.take() {
            return Ok(Some(Next::Left(begun)));
        }
        let (told, payload) = waiting.pop().unwrap_or((ServerMessage::Alive(KeepAlive {}), PeerPayload::none()));
        Ok(Some(Next::Message(told, payload)))
    }

    /// Ends the turn of the link's own thread.
    fn sent(&self) {
        self.waiting.lock().is_sending = false;
    }

    /// Sets whether messages are queued. Messages under way are lost when a connection breaks. Returns the messages
    /// lost since the last call.
    fn take(&self, is_taking: bool) -> u64 {
        let mut waiting = self.waiting.lock();
        let lost = std::mem::take(&mut waiting.lost);
        waiting.unsaid += lost;
        if lost > 0 && self.losses.happened().is_some() {
            let lost = std::mem::take(&mut waiting.unsaid);
            info!("{lost} messages to node {} were lost: it was away, or too much waited for it", self.to);
        }
        waiting.is_taking = is_taking;
        let mut gone = VecDeque::new();
        if !is_taking {
            gone = std::mem::take(&mut waiting.messages);
            waiting.bytes = 0;
        }
        drop(waiting);
        // Dropping a payload whose beginning was sent locks the link.
        drop(gone);
        lost
    }

    /// Waits until it is time to try again. True if the node connected meanwhile.
    fn rest(&self, time: Duration) -> bool {
        let mut waiting = self.waiting.lock();
        // A connection of the node from before this wait does not count.
        waiting.is_heard = false;
        // Messages do not wake it: they are dropped now.
        let idle = |waiting: &mut Waiting| !waiting.ends && !waiting.is_heard;
        let waited = self.changed.wait_timeout_while(waiting, time, idle);
        waited.0.is_heard
    }

    fn heard(&self) {
        self.waiting.lock().is_heard = true;
        self.changed.notify_all();
    }

    fn end(&self) {
        self.waiting.lock().ends = true;
        self.changed.notify_all();
    }

    fn has_ended(&self) -> bool {
        self.waiting.lock().ends
    }
}

impl Waiting {
    fn pop(&mut self) -> Option<(ServerMessage, PeerPayload)> {
        let (told, payload) = self.messages.pop_front()?;
        self.bytes -= payload.bytes.len() + MESSAGE_BYTES;
        Some((told, payload))
    }
}

#[cfg(test)]
mod tests;
