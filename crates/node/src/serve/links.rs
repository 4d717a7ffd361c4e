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

mod early_payload;
mod link;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use frieze_base::{ChainId, ClusterId, Fault, NodeId, Reason};
use frieze_fabric::FabricHost;
use frieze_locks::{Mutex, RwLock, levels};
use frieze_net::{FrameWriter, Limits, PEER_SILENCE_MAX, PeerPayload, Peers, ServerAddr, random_nonce};
use frieze_service::NodeKeys;
use frieze_storage::NodeClock;
use frieze_wire::message::{Hello, HelloReply, Prove, Request};
use frieze_wire::peer::{HopAnswer, ServerMessage};
use tracing::{debug, info};

pub(super) use self::early_payload::EarlyPayload;
pub(super) use self::link::AHEAD_MAX;
use self::link::{Lane, LinkSender, NextSend, PeerLink};
use super::spans::RequestSpans;
use super::threads::spawn;
use super::traffic::Traffic;
use crate::parts::SOFTWARE;
use crate::successor::Successor;
use frieze_net::PeerClient;

/// Time until the next attempt to reach a node: twice as long each time, between these.
const RETRY_MIN: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(1);
/// To connect, and for each step of the greeting.
const GREETING: Limits = Limits { idle: Some(Duration::from_secs(2)), frame: Duration::from_secs(2) };
/// Time for the socket to accept a message.
const SENDING: Limits = Limits { idle: None, frame: PEER_SILENCE_MAX };

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
    notices: Notices,
    sender: Arc<LinkSender>,
    fabric: Option<Arc<FabricHost>>,
    spans: Option<Arc<RequestSpans>>,
    links: Mutex<levels::PeerLinks, BTreeMap<(NodeId, Lane), RunningLink>>,
    /// Links of lane [`Lane::Bytes`], searched for messages to send.
    for_bytes: RwLock<levels::ByteLinks, Vec<Arc<PeerLink>>>,
}

/// A link and its thread.
struct RunningLink {
    link: Arc<PeerLink>,
    thread: JoinHandle<()>,
}

impl Links {
    /// No connections yet.
    pub(super) fn new(
        me: NodeId,
        cluster: ClusterId,
        keys: NodeKeys,
        clock: Arc<NodeClock>,
        notices: Notices,
        (traffic, fabric, spans): (Arc<Traffic>, Option<Arc<FabricHost>>, Option<Arc<RequestSpans>>),
    ) -> Arc<Links> {
        let sender = Arc::new(LinkSender { clock, traffic });
        let (links, for_bytes) = (Mutex::default(), RwLock::default());
        Arc::new(Links { me, cluster, keys, notices, sender, fabric, spans, links, for_bytes })
    }

    /// Sets the other servers to `nodes`, at these addresses.
    ///
    /// # Errors
    /// `Overloaded` if the system refuses another thread; all links that need none are set then.
    pub(crate) fn set(self: &Arc<Links>, nodes: &BTreeMap<NodeId, ServerAddr>) -> Result<(), Fault> {
        let mut links = self.links.lock();
        // The thread of a link that ends stops by itself; nothing depends on when.
        let goes = |(node, _): &(NodeId, Lane), open: &mut RunningLink| nodes.get(node) != Some(&open.link.address);
        links.extract_if(.., goes).for_each(|(_, open)| open.link.end());
        let mut failed = Ok(());
        let others = nodes.iter().filter(|(node, _)| **node != self.me);
        for ((&to, address), lane) in others.flat_map(|other| Lane::ALL.map(|lane| (other, lane))) {
            if links.contains_key(&(to, lane)) {
                continue;
            }
            let link = Arc::new(PeerLink::new(to, lane, address.clone(), self.fabric.clone()));
            let (links_of_thread, link_of_thread) = (self.clone(), link.clone());
            match spawn("link", move || links_of_thread.run(&link_of_thread)) {
                Ok(thread) => drop(links.insert((to, lane), RunningLink { link, thread })),
                Err(fault) => failed = Err(fault),
            }
        }
        let for_bytes = links.values().map(|open| &open.link).filter(|link| link.lane == Lane::Bytes);
        *self.for_bytes.write() = for_bytes.cloned().collect();
        failed
    }

    /// The node says whether it fetches payloads of records.
    pub(super) fn on_hop_answer(&self, node: NodeId, answer: &HopAnswer) {
        let links = self.for_bytes.read();
        links.iter().filter(|link| link.to == node).for_each(|link| link.hop.on_answer(answer));
    }

    /// The node has connected to this one: the link to it tries again at once.
    pub(super) fn on_contact(&self, node: NodeId) {
        let links = self.links.lock();
        Lane::ALL.iter().filter_map(|lane| links.get(&(node, *lane))).for_each(|open| open.link.on_contact());
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
    fn run(&self, link: &PeerLink) {
        let mut retry = RETRY_MIN;
        let mut logged = None;
        while !link.has_ended() {
            match self.connect(link) {
                Ok(writer) => {
                    retry = RETRY_MIN;
                    logged = None;
                    self.notice(link, true);
                    link.open(&writer);
                    let ended = self.send_all(link, &writer);
                    writer.stream().shutdown();
                    link.close();
                    self.notice(link, false);
                    if let Err(fault) = ended {
                        info!("the connection to node {} ({}) is lost: {fault}", link.to, link.lane);
                    }
                }
                Err(fault) => {
                    self.sender.traffic.lost(link.set_accepting(false));
                    let words = fault.to_string();
                    if logged.as_ref() != Some(&words) && link.lane == Lane::Bytes {
                        info!("node {} at {} cannot be reached: {words}", link.to, link.address);
                        logged = Some(words);
                    }
                }
            }
            retry = if link.await_retry(retry) { RETRY_MIN } else { (retry * 2).min(RETRY_MAX) };
        }
    }

    fn notice(&self, link: &PeerLink, stands: bool) {
        if stands {
            info!("connected to node {} at {} ({})", link.to, link.address, link.lane);
        }
        self.sender.traffic.lost(link.set_accepting(stands));
        if link.lane == Lane::Bytes {
            (self.notices.link)(link.to, stands);
        }
    }

    /// Connects, and proves both ends to each other.
    fn connect(&self, link: &PeerLink) -> Result<FrameWriter, Fault> {
        let mut client = PeerClient::connect(&link.address, GREETING, SENDING)?;
        let nonce = random_nonce()?;
        let hello = Hello {
            software: SOFTWARE.to_owned(),
            key_name: String::new(),
            nonce: nonce.to_vec(),
            cluster: self.cluster.to_string(),
            node: self.me.0,
        };
        let greeted = client.hello(Request::Hello(hello)).inspect_err(|fault| {
            if fault.reason == Reason::WrongCluster {
                self.ask_for_successor(link, &mut client);
            }
        })?;
        if !self.keys.is_receiver(&greeted.challenge, &nonce, &greeted.proof) {
            let words = format!("the server at {} does not hold the secret of this cluster", link.address);
            return Err(Fault::new(Reason::Unproven, words));
        }
        if greeted.node != link.to.0 {
            let words = format!("the server at {} is node {}, not {}", link.address, greeted.node, link.to);
            return Err(Fault::new(Reason::Unproven, words));
        }
        let mac = self.keys.prove_sender(&greeted.challenge, &nonce);
        client.hello(Request::Prove(Prove { mac })).inspect_err(|fault| {
            if fault.reason == Reason::Removed {
                (self.notices.removed)(fault.clone());
            }
        })?;
        Ok(client.into_writer())
    }

    /// The server refuses this one as one of another cluster: asks it to prove whether that is this cluster under a
    /// later identity.
    fn ask_for_successor(&self, link: &PeerLink, client: &mut PeerClient) {
        let identified = client.identify(self.me);
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
    fn send_all(&self, link: &PeerLink, writer: &FrameWriter) -> Result<(), Fault> {
        while let Some(next) = link.next()? {
            if let Some(offer) = link.hop.offer(frieze_net::mono()) {
                link.enqueue(ServerMessage::HopOffer(offer), PeerPayload::none());
            }
            let partial = match next {
                NextSend::Rest(partial) => Ok(partial),
                NextSend::Message(message, payload) => self.sender.begin(link, writer, message, payload),
            };
            let sent =
                partial.and_then(|partial| if partial.is_done() { Ok(()) } else { Ok(writer.finish(&partial)?) });
            link.sent();
            sent?;
        }
        Ok(())
    }

    /// Prepares to send the beginning of a payload of `len` bytes, which begins to arrive here and goes to `to` with a
    /// record of the chain. `None` if that is of no use now.
    pub(super) fn send_early(&self, to: NodeId, chain: ChainId, len: usize) -> Option<Arc<EarlyPayload>> {
        let link = self.for_bytes.read().iter().find(|link| link.to == to)?.clone();
        let (name, connection) = link.reserve_early()?;
        let (sender, sent) = (self.sender.clone(), Mutex::new(Some(0)));
        Some(Arc::new(EarlyPayload { sender, link, connection, chain, name, len, sent }))
    }

    fn enqueue(
        &self,
        to: NodeId,
        mut message: ServerMessage,
        payload: PeerPayload,
        enqueue: impl FnOnce(&PeerLink, ServerMessage, PeerPayload),
    ) {
        let link = self.links.lock().get(&(to, Lane::of(&message))).map(|open| open.link.clone());
        match link {
            Some(link) => {
                self.spans.iter().for_each(|spans| spans.mark(&mut message));
                enqueue(&link, message, payload);
            }
            None => debug!("node {to} is not known here: a message to it is lost"),
        }
    }
}

impl Peers for Links {
    fn send(&self, to: NodeId, message: ServerMessage, payload: PeerPayload) {
        self.enqueue(to, message, payload, PeerLink::send);
    }

    fn queue(&self, to: NodeId, message: ServerMessage, payload: PeerPayload) {
        match Lane::of(&message) {
            Lane::Bytes => self.enqueue(to, message, payload, PeerLink::enqueue),
            Lane::Orders => self.enqueue(to, message, payload, PeerLink::send),
        }
    }

    fn go(&self) {
        let links = self.for_bytes.read();
        links.iter().for_each(|link| self.sender.send_some(link));
    }
}

#[cfg(test)]
mod tests;
