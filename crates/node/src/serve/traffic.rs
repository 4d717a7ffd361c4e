//! Messages between servers of a cluster, counted by kind.

use std::sync::atomic::{AtomicU64, Ordering};

use frieze_wire::peer::ServerMessage;

use frieze_metrics::Values;

/// Names of the messages, in the order of [`kind_of`].
const KINDS: [&str; 22] = [
    "alive",
    "heartbeat",
    "grant",
    "refused",
    "record",
    "ack",
    "promise",
    "greet",
    "offer",
    "keep",
    "clean",
    "ask",
    "metalog",
    "metalog_piece",
    "metalog_held",
    "metalog_close",
    "piece",
    "question",
    "answer",
    "attached",
    "hop_offer",
    "hop_answer",
];

fn kind_of(message: &ServerMessage) -> usize {
    match message {
        ServerMessage::Alive(_) => 0,
        ServerMessage::Heartbeat(_) => 1,
        ServerMessage::Grant(_) => 2,
        ServerMessage::Refused(_) => 3,
        ServerMessage::ChainRecord(_) => 4,
        ServerMessage::ChainAck(_) => 5,
        ServerMessage::ChainPromise(_) => 6,
        ServerMessage::ChainGreet(_) => 7,
        ServerMessage::ChainOffer(_) => 8,
        ServerMessage::ChainKeep(_) => 9,
        ServerMessage::ChainClean(_) => 10,
        ServerMessage::ChainAsk(_) => 11,
        ServerMessage::Metalog(_) => 12,
        ServerMessage::MetalogPiece(_) => 13,
        ServerMessage::MetalogHeld(_) => 14,
        ServerMessage::MetalogClose(_) => 15,
        ServerMessage::ChainPiece(_) => 16,
        ServerMessage::Question(_) => 17,
        ServerMessage::QuestionAnswer(_) => 18,
        ServerMessage::Attached(_) => 19,
        ServerMessage::HopOffer(_) => 20,
        ServerMessage::HopAnswer(_) => 21,
    }
}

/// Messages and bytes in both directions since the process began.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    sent: [Count; KINDS.len()],
    received: [Count; KINDS.len()],
    lost: AtomicU64,
}

#[derive(Debug, Default)]
struct Count {
    messages: AtomicU64,
    bytes: AtomicU64,
}

impl Count {
    fn add(&self, bytes: usize) {
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Traffic {
    /// Counts a message that is sent, with so many bytes.
    pub(super) fn sent(&self, message: &ServerMessage, bytes: usize) {
        self.sent[kind_of(message)].add(bytes);
    }

    /// Counts a received message.
    pub(super) fn received(&self, message: &ServerMessage, bytes: usize) {
        self.received[kind_of(message)].add(bytes);
    }

    /// Counts dropped messages.
    pub(super) fn lost(&self, messages: u64) {
        self.lost.fetch_add(messages, Ordering::Relaxed);
    }

    /// Reports the counts; kinds that never occurred are left out.
    pub(super) fn export(&self, values: &mut Values) {
        for (counts, messages, bytes) in [
            (&self.sent, "frieze_peer_sent_messages_total", "frieze_peer_sent_bytes_total"),
            (&self.received, "frieze_peer_received_messages_total", "frieze_peer_received_bytes_total"),
        ] {
            for (kind, count) in KINDS.iter().zip(counts) {
                let number = count.messages.load(Ordering::Relaxed);
                if number > 0 {
                    values.set(messages, &[kind], number as f64);
                    values.set(bytes, &[kind], count.bytes.load(Ordering::Relaxed) as f64);
                }
            }
        }
        values.set("frieze_peer_lost_messages_total", &[], self.lost.load(Ordering::Relaxed) as f64);
    }
}
