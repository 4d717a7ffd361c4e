//! The network between the servers of a cluster: messages on their way, and which of them are lost.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use frieze_base::{NodeId, Rng, crc32c};
use frieze_disk::SimTime;
use frieze_node::{PeerPayload, Peers};
use frieze_wire::frame::{FrameHeader, FrameKind};
use frieze_wire::peer::ServerMessage;

/// How bad the network is.
#[derive(Clone, Copy)]
pub struct NetFaults {
    /// One message in so many is lost.
    pub lost: u64,
    /// One message in so many arrives twice.
    pub doubled: u64,
    /// One message in four is late by up to so many virtual microseconds; this reorders them.
    pub late_us: u64,
}

impl NetFaults {
    /// Every message arrives once, in order.
    pub const NONE: NetFaults = NetFaults { lost: u64::MAX, doubled: u64::MAX, late_us: 0 };
    /// Messages are lost, doubled and reordered, and most arrive.
    pub const MANY: NetFaults = NetFaults { lost: 25, doubled: 25, late_us: 20_000 };
}

/// A message on its way.
pub(super) struct PeerPacket {
    due_us: u64,
    pub(super) from: NodeId,
    pub(super) to: NodeId,
    pub(super) header: FrameHeader,
    pub(super) message: ServerMessage,
    pub(super) payload: PeerPayload,
}

/// Inspects a message to a node: true if it is lost.
pub(super) type LossRule = Box<dyn FnMut(NodeId, &ServerMessage) -> bool + Send>;

/// Messages on their way, and the faults of the network.
pub(super) struct PeerNetwork {
    pub(super) rng: Rng,
    pub(super) faults: NetFaults,
    /// Virtual microseconds since the start.
    pub(super) now_us: u64,
    pub(super) packets: Vec<PeerPacket>,
    /// Nodes that neither send nor receive.
    pub(super) isolated: BTreeSet<NodeId>,
    /// Pairs of sender and receiver without any messages.
    pub(super) cut: BTreeSet<(NodeId, NodeId)>,
    /// Pairs of sender and receiver without messages of the log.
    pub(super) cut_for_log: BTreeSet<(NodeId, NodeId)>,
    /// Decides which other messages are lost, by their content.
    pub(super) loss_rule: Option<LossRule>,
}

impl PeerNetwork {
    pub(super) fn new(seed: u64) -> PeerNetwork {
        PeerNetwork {
            rng: Rng::new(seed),
            faults: NetFaults::NONE,
            now_us: 0,
            packets: Vec::new(),
            isolated: BTreeSet::new(),
            cut: BTreeSet::new(),
            cut_for_log: BTreeSet::new(),
            loss_rule: None,
        }
    }

    fn send(&mut self, packet: PeerPacket) {
        let PeerPacket { from, to, message, .. } = &packet;
        let is_of_log = matches!(message, ServerMessage::Metalog(_) | ServerMessage::MetalogClose(_));
        let is_cut = self.cut.contains(&(*from, *to)) || is_of_log && self.cut_for_log.contains(&(*from, *to));
        let is_lost_by_rule = self.loss_rule.as_mut().is_some_and(|is_lost| is_lost(*to, message));
        if self.isolated.contains(from) || self.isolated.contains(to) || is_cut || is_lost_by_rule {
            return;
        }
        let NetFaults { lost, doubled, late_us } = self.faults;
        let copies = if self.rng.chance(lost) { 0 } else { 1 + u64::from(self.rng.chance(doubled)) };
        for _ in 0..copies {
            let late_us = if late_us > 0 && self.rng.chance(4) { self.rng.below(late_us) } else { 0 };
            let PeerPacket { from, to, header, .. } = packet;
            let (message, payload) = (packet.message.clone(), packet.payload.clone());
            self.packets.push(PeerPacket { due_us: self.now_us + 100 + late_us, from, to, header, message, payload });
        }
    }

    /// Takes the messages that have arrived, in their order.
    pub(super) fn take_arrived(&mut self) -> Vec<PeerPacket> {
        let now_us = self.now_us;
        let mut due: Vec<PeerPacket> = self.packets.extract_if(.., |packet| packet.due_us <= now_us).collect();
        due.sort_by_key(|packet| packet.due_us);
        due
    }
}

/// What a server sends its messages with.
pub(super) struct PeerLinks {
    pub(super) from: NodeId,
    /// The clocks of the sender.
    pub(super) time: SimTime,
    pub(super) network: Arc<Mutex<PeerNetwork>>,
}

impl Peers for PeerLinks {
    fn send(&self, to: NodeId, message: ServerMessage, payload: PeerPayload) {
        // A real link stamps a frame with its server's clock when it is sent; here the machine's wall clock will do.
        let hlc = self.time.wall();
        let payload_crc = payload.crc.unwrap_or_else(|| crc32c(&payload.bytes));
        let header = FrameHeader { hlc, payload_crc, ..FrameHeader::of(FrameKind::Peer) };
        let from = self.from;
        self.network.lock().unwrap().send(PeerPacket { due_us: 0, from, to, header, message, payload });
    }
}
