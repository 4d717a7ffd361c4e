//! The state goes to a member that lacks too much of the log: the whole store as it is after one entry, in pieces.
//!
//! Guarantees: what arrives is the store of the sender after exactly that entry; each piece has a checksum of its own,
//! is numbered, and is taken once, in order; the receiver puts the pieces beside its own state, and the member is told
//! only when all of them are there. At most [`STATES_MAX`] states are on their way, with at most [`WINDOW`] pieces of
//! each in memory. Without an answer the sender sends again, and after 10 s gives up: the leader then begins anew.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use frieze_base::{Fault, LogIndex, NodeId, Rng, crc32c};
use frieze_locks::{Mutex, MutexGuard, levels};
use frieze_metalog::{PeerMessage, SnapshotMeta};
use frieze_wire::peer::ServerMessage;
use frieze_wire::peer::metalog::{MetalogMessage, MetalogPiece};

use super::codec;
use crate::store::{StoreItem, StoreView, page_of};
use frieze_net::{PeerPayload, Peers};

/// A snapshot that is sent, shared by the threads that receive what its receiver answers.
type SharedSnapshot = Arc<Mutex<levels::OutgoingSnapshot, OutgoingSnapshot>>;

/// Bytes of a piece.
const PIECE_BYTES: usize = 256 << 10;
/// Pieces on their way to one receiver.
const WINDOW: usize = 8;
/// States on their way at once, each to another member: a view of the store and [`WINDOW`] pieces in memory for each.
const STATES_MAX: usize = 4;
/// Ticks without an answer until what is on its way is sent again.
pub(super) const AGAIN_TICKS: u32 = 8;
/// Ticks without an answer until the transfer is given up: 10 s.
pub(super) const PATIENCE_TICKS: u32 = 400;

/// What goes out and what comes in.
pub(super) struct SnapshotTransfers {
    pub(super) sending: Mutex<levels::OutgoingSnapshots, BTreeMap<NodeId, SharedSnapshot>>,
    pub(super) receiving: Mutex<levels::IncomingSnapshot, IncomingSnapshot>,
    pub(super) names: Mutex<levels::TransferNames, Rng>,
}

/// A state on its way to a member.
pub(super) struct OutgoingSnapshot {
    pub(super) to: NodeId,
    pub(super) transfer: u64,
    pub(super) index: LogIndex,
    /// What follows the state, with the last piece.
    pub(super) message: MetalogMessage,
    pub(super) view: Box<dyn StoreView>,
    /// The last key that was read.
    pub(super) after: Vec<u8>,
    pub(super) at_end: bool,
    /// Pieces that the receiver is not known to hold.
    pub(super) window: VecDeque<(MetalogPiece, Bytes)>,
    pub(super) next: u64,
    /// Since something of it arrived.
    pub(super) ticks: u32,
    pub(super) over: bool,
}

/// What of the group decides how far a state may be sent.
pub(super) struct GroupView {
    pub(super) learners: Vec<NodeId>,
    pub(super) durable: LogIndex,
}

/// A state that is coming.
#[derive(Default)]
pub(super) struct IncomingSnapshot {
    /// 0: none.
    pub(super) transfer: u64,
    pub(super) next: u64,
    pub(super) whole: bool,
}

impl SnapshotTransfers {
    pub(super) fn new(seed: u64) -> SnapshotTransfers {
        SnapshotTransfers { sending: Mutex::default(), receiving: Mutex::default(), names: Mutex::new(Rng::new(seed)) }
    }

    /// True if a state may go to this member: in the place of one that is on its way to it, or beside those to others.
    pub(super) fn has_room(&self, to: NodeId) -> bool {
        self.sending().keys().filter(|other| **other != to).count() < STATES_MAX
    }

    /// Begins to send a state. What was on its way to the same member before is given up: the leader has begun anew.
    pub(super) fn begin(&self, (to, meta): (NodeId, &SnapshotMeta), message: &PeerMessage, view: Box<dyn StoreView>) {
        // Not 0, which names none.
        let transfer = self.names.lock().next() | 1;
        let sending = OutgoingSnapshot {
            to,
            transfer,
            index: meta.index,
            message: codec::to_wire(message).0,
            view,
            after: Vec::new(),
            at_end: false,
            window: VecDeque::new(),
            next: 0,
            ticks: AGAIN_TICKS - 1,
            over: false,
        };
        self.sending().insert(to, Arc::new(Mutex::new(sending)));
    }

    /// The oldest state that is on its way: its receiver needs the entries that follow.
    pub(super) fn oldest(&self) -> Option<LogIndex> {
        let all: Vec<_> = self.sending().values().cloned().collect();
        all.iter().map(|sending| sending.lock().index).min()
    }

    /// Removes the state on its way to `to` if it is `transfer`; false if another has taken its place.
    pub(super) fn remove(&self, to: NodeId, transfer: u64) -> bool {
        let mut all = self.sending();
        let is_same = all.get(&to).is_some_and(|one| one.lock().transfer == transfer);
        if is_same {
            all.remove(&to);
        }
        is_same
    }

    /// Drops the states on their way: the new leader sends what is needed.
    pub(super) fn forget_sending(&self) {
        self.sending().clear();
    }

    #[track_caller]
    pub(super) fn sending(&self) -> MutexGuard<'_, BTreeMap<NodeId, SharedSnapshot>> {
        self.sending.lock()
    }
}

impl OutgoingSnapshot {
    /// Reads ahead, as far as there is room, and tells what is new. The last piece goes to a learner only when the
    /// state is durable: a learner could not go back if the voters lost the end of it.
    pub(super) fn fill(&mut self, way: &dyn Peers, group: &GroupView) -> Result<(), Fault> {
        while self.window.len() < WINDOW && !self.at_end {
            let items = page_of(&*self.view, &self.after, PIECE_BYTES)?;
            match items.last() {
                Some((key, _)) => self.after.clone_from(key),
                None if group.learners.contains(&self.to) && group.durable < self.index => return Ok(()),
                None => self.at_end = true,
            }
            let bytes = encode(&items);
            let message = self.at_end.then(|| self.message.clone());
            let piece = MetalogPiece { transfer: self.transfer, number: self.next, crc: crc32c(&bytes), message };
            self.next += 1;
            send_piece(way, self.to, &piece, &bytes);
            self.window.push_back((piece, bytes));
        }
        Ok(())
    }
}

pub(super) fn send_piece(way: &dyn Peers, to: NodeId, piece: &MetalogPiece, bytes: &Bytes) {
    way.send(
        to,
        ServerMessage::MetalogPiece(piece.clone()),
        PeerPayload { bytes: bytes.clone(), crc: Some(piece.crc), ahead: None },
    );
}

fn encode(items: &[StoreItem]) -> Bytes {
    let mut bytes = Vec::with_capacity(items.iter().map(|(key, value)| key.len() + value.len() + 8).sum());
    for (key, value) in items {
        bytes.extend_from_slice(&(key.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
    }
    bytes.into()
}

pub(super) fn decode(mut bytes: &[u8]) -> Option<Vec<StoreItem>> {
    let mut items = Vec::new();
    while !bytes.is_empty() {
        let (lens, rest) = bytes.split_first_chunk::<8>()?;
        let len = |at: usize| u32::from_le_bytes([lens[at], lens[at + 1], lens[at + 2], lens[at + 3]]) as usize;
        let (key, rest) = rest.split_at_checked(len(0))?;
        let (value, rest) = rest.split_at_checked(len(4))?;
        items.push((key.to_vec(), value.to_vec()));
        bytes = rest;
    }
    Some(items)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::store::{MemoryStore, VersionStore};

    #[test]
    fn a_snapshot_that_another_thread_has_locked_is_removed_all_the_same() {
        let transfers = SnapshotTransfers::new(1);
        let (to, transfer) = (NodeId(2), 7);
        let one = Arc::new(Mutex::new(OutgoingSnapshot {
            to,
            transfer,
            index: LogIndex(3),
            message: MetalogMessage::default(),
            view: MemoryStore::default().view().expect("it is in memory"),
            after: Vec::new(),
            at_end: false,
            window: VecDeque::new(),
            next: 0,
            ticks: 0,
            over: false,
        }));
        transfers.sending().insert(to, one.clone());
        assert!(!transfers.remove(to, transfer + 1), "another has taken its place");
        let (locked, is_locked) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let guard = one.lock();
                locked.send(()).expect("the test waits");
                std::thread::yield_now();
                drop(guard);
            });
            is_locked.recv().expect("the thread locks it");
            assert!(transfers.remove(to, transfer));
        });
        assert!(transfers.sending().is_empty());
    }

    #[test]
    fn any_bytes_are_a_piece_of_a_state_or_none() {
        let items = vec![(b"key".to_vec(), b"value".to_vec()), (b"".to_vec(), vec![0; 300])];
        frieze_harness::fuzz!([encode(&items).to_vec()], |bytes: &[u8]| {
            if let Some(items) = decode(bytes) {
                assert_eq!(encode(&items), bytes, "every byte is read");
            }
        });
    }
}
