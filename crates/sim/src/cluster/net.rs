//! The network between the nodes: connections that delay, break and stall.
//!
//! Guarantees what a TCP connection does, and nothing more: messages of one node to another arrive in the order of
//! sending as long as the connection lives; orders have another connection than bytes. When it breaks, messages in
//! flight are lost, and both ends are notified. Where a connection is replaced while the old one is still being read
//! ([`Weather::overlaps`]), the rest of the old one arrives between new messages, and some of it twice.

use std::collections::{BTreeMap, VecDeque};

use frieze_base::{NodeId, Rng};
use frieze_node::PeerPayload;
use frieze_wire::frame::FrameHeader;
use frieze_wire::peer::ServerMessage;

/// A message on its way.
#[derive(Clone)]
pub(super) struct Envelope {
    pub(super) from: NodeId,
    pub(super) to: NodeId,
    pub(super) header: FrameHeader,
    pub(super) message: ServerMessage,
    pub(super) payload: PeerPayload,
}

/// How bad the network is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weather {
    /// One letter in so many breaks its connection.
    pub(super) breaks: u64,
    /// One in so many is late, by up to `late_us`, and so are those behind it.
    pub(super) late: u64,
    pub(super) late_us: u64,
    /// The rest of an old connection arrives beside the messages of the new one.
    pub(super) overlaps: bool,
}

pub(super) const FAIR: Weather = Weather { breaks: u64::MAX, late: u64::MAX, late_us: 1, overlaps: false };

/// A way from one node to another.
#[derive(Default)]
struct PeerPath {
    /// Rises when the connection breaks: letters of an older one are lost.
    connection: u64,
    /// Start of a partition, and the messages sent since.
    cut: Option<(u64, VecDeque<Box<Envelope>>)>,
    /// When the last letter of each of its lanes arrives.
    last_arrivals_us: [u64; 2],
}

/// Fate of a message.
pub(super) enum SendOutcome {
    /// It arrives then, if this connection still lives.
    Arrives { at_us: u64, connection: u64, twice: bool },
    /// It is queued until the way is free again.
    Held,
    /// The connection broke under it.
    Broke,
}

pub(super) struct Net {
    rng: Rng,
    pub(super) weather: Weather,
    ways: BTreeMap<(NodeId, NodeId), PeerPath>,
}

/// Orders have a connection of their own (`node/src/serve/links.rs`): they do not wait behind bytes.
#[derive(Clone, Copy)]
enum PeerChannel {
    Orders,
    Bytes,
}

impl PeerChannel {
    fn of(message: &ServerMessage) -> PeerChannel {
        match message {
            ServerMessage::Heartbeat(_) | ServerMessage::Grant(_) | ServerMessage::Refused(_) => PeerChannel::Orders,
            ServerMessage::Metalog(_) | ServerMessage::MetalogHeld(_) | ServerMessage::MetalogClose(_) => {
                PeerChannel::Orders
            }
            _ => PeerChannel::Bytes,
        }
    }
}

/// After so long without a sign the ends give a connection up.
pub(super) const SILENT_US: u64 = 2_000_000;
/// Most messages that wait behind a partition: further ones are lost.
const QUEUED_MAX: usize = 2_000;

impl Net {
    pub(super) fn new(rng: Rng) -> Net {
        Net { rng, weather: FAIR, ways: BTreeMap::new() }
    }

    fn way(&mut self, from: NodeId, to: NodeId) -> &mut PeerPath {
        self.ways.entry((from, to)).or_default()
    }

    pub(super) fn send(&mut self, now_us: u64, envelope: &Envelope) -> SendOutcome {
        let weather = self.weather;
        let mut delay = 50 + self.rng.below(150);
        if self.rng.chance(weather.late) {
            delay += self.rng.below(weather.late_us);
        }
        let breaks = self.rng.chance(weather.breaks);
        let twice = weather.overlaps && self.rng.chance(100);
        let way = self.way(envelope.from, envelope.to);
        if let Some((_, queue)) = &mut way.cut {
            if queue.len() < QUEUED_MAX {
                queue.push_back(Box::new(envelope.clone()));
            }
            return SendOutcome::Held;
        }
        if breaks {
            return SendOutcome::Broke;
        }
        let connection = way.connection;
        let last = &mut way.last_arrivals_us[PeerChannel::of(&envelope.message) as usize];
        *last = (now_us + delay).max(*last);
        SendOutcome::Arrives { at_us: *last, connection, twice }
    }

    /// True if a letter of this connection still arrives.
    pub(super) fn arrives(&mut self, from: NodeId, to: NodeId, connection: u64) -> bool {
        let overlaps = self.weather.overlaps;
        let way = self.way(from, to);
        way.cut.is_none() && (way.connection == connection || overlaps)
    }

    /// The connection between two nodes breaks, both ways.
    pub(super) fn break_off(&mut self, one: NodeId, other: NodeId) {
        for (from, to) in [(one, other), (other, one)] {
            self.way(from, to).connection += 1;
        }
    }

    /// Nothing gets from one node to the other any more.
    pub(super) fn cut(&mut self, now_us: u64, from: NodeId, to: NodeId) {
        self.way(from, to).cut.get_or_insert((now_us, VecDeque::new()));
    }

    pub(super) fn is_cut(&self, from: NodeId, to: NodeId) -> bool {
        self.ways.get(&(from, to)).is_some_and(|way| way.cut.is_some())
    }

    /// Ends a partition. Returns the waiting messages if both ends kept the connection; `None` if it broke.
    pub(super) fn heal(&mut self, now_us: u64, from: NodeId, to: NodeId) -> Option<VecDeque<Box<Envelope>>> {
        let way = self.way(from, to);
        let Some((since_us, queue)) = way.cut.take() else { return Some(VecDeque::new()) };
        if now_us - since_us < SILENT_US {
            return Some(queue);
        }
        None
    }

    pub(super) fn cuts(&self) -> Vec<(NodeId, NodeId)> {
        self.ways.iter().filter(|(_, way)| way.cut.is_some()).map(|(ends, _)| *ends).collect()
    }
}
