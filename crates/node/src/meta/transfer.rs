//! The state goes to a member that lacks too much of the log: the whole store as it is after one entry, in pieces.
//!
//! Guarantees: what arrives is the store of the sender after exactly that entry; each piece has a checksum of its own, is
//! numbered, and is taken once, in order; the receiver puts the pieces beside its own state, and the member is told only when
//! all of them are there. At most [`STATES_MAX`] states are on their way, with at most [`WINDOW`] pieces of each in memory.
//! Whoever hears nothing for a while says it again, and after a long while gives up: the leader then begins anew.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use frieze_base::{Fault, LogIndex, NodeId, Rng, crc32c};
use frieze_metalog::{MemberInput, PeerMessage, SnapshotMeta};
use frieze_wire::peer::ServerMessage;
use frieze_wire::peer::metalog::{MetalogHeld, MetalogMessage, MetalogPiece};

use super::member::Group;
use super::state::State;
use super::wires::{self, Incoming};
use crate::peers::{PeerPayload, Peers};
use crate::store::{Item, StoreView, page_of};

/// Bytes of a piece.
const PIECE_BYTES: usize = 256 << 10;
/// Pieces on their way to one receiver.
const WINDOW: usize = 8;
/// States on their way at once, each to another member: a view of the store and [`WINDOW`] pieces in memory for each.
const STATES_MAX: usize = 4;
/// Ticks without an answer until what is on its way is sent again.
const AGAIN_TICKS: u32 = 8;
/// Ticks without an answer until the transfer is given up: 10 s.
const PATIENCE_TICKS: u32 = 400;

/// What goes out and what comes in.
pub(super) struct Transfers {
    sending: Mutex<BTreeMap<NodeId, Arc<Mutex<Sending>>>>,
    receiving: Mutex<Receiving>,
    names: Mutex<Rng>,
}

/// A state on its way to a member.
struct Sending {
    to: NodeId,
    transfer: u64,
    index: LogIndex,
    /// What follows the state, with the last piece.
    message: MetalogMessage,
    view: Box<dyn StoreView>,
    /// The last key that was read.
    after: Vec<u8>,
    at_end: bool,
    /// Pieces that the receiver is not known to hold.
    window: VecDeque<(MetalogPiece, Bytes)>,
    next: u64,
    /// Since something of it arrived.
    ticks: u32,
    over: bool,
}

/// A state that is coming.
#[derive(Default)]
struct Receiving {
    /// 0: none.
    transfer: u64,
    next: u64,
    whole: bool,
}

/// A state that has come.
pub(super) struct Received {
    pub(super) meta: SnapshotMeta,
    pub(super) ids_above: u64,
}

impl Transfers {
    pub(super) fn new(seed: u64) -> Transfers {
        Transfers { sending: Mutex::default(), receiving: Mutex::default(), names: Mutex::new(Rng::new(seed)) }
    }

    /// True if a state may go to this member: in the place of one that is on its way to it, or beside those to others.
    pub(super) fn has_room(&self, to: NodeId) -> bool {
        self.sending().keys().filter(|other| **other != to).count() < STATES_MAX
    }

    /// Begins to send a state. What was on its way to the same member before is given up: the leader has begun anew.
    pub(super) fn begin(
        &self,
        (to, meta, ids_above): (NodeId, &SnapshotMeta, u64),
        message: &PeerMessage,
        view: Box<dyn StoreView>,
    ) {
        // Not 0, which names none.
        let transfer = self.names.lock().unwrap_or_else(PoisonError::into_inner).next() | 1;
        let sending = Sending {
            to,
            transfer,
            index: meta.index,
            message: wires::to_wire(message, ids_above).0,
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

    /// The oldest state that is on its way to somebody: what follows it is needed.
    pub(super) fn oldest(&self) -> Option<LogIndex> {
        let all: Vec<_> = self.sending().values().cloned().collect();
        all.iter().map(|sending| sending.lock().unwrap_or_else(PoisonError::into_inner).index).min()
    }

    /// Whoever leads now sends what is needed.
    pub(super) fn forget_sending(&self) {
        self.sending().clear();
    }

    fn sending(&self) -> MutexGuard<'_, BTreeMap<NodeId, Arc<Mutex<Sending>>>> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sending {
    /// Reads ahead, as far as there is room, and tells what is new.
    fn fill(&mut self, way: &dyn Peers) -> Result<(), Fault> {
        while self.window.len() < WINDOW && !self.at_end {
            let items = page_of(&*self.view, &self.after, PIECE_BYTES)?;
            match items.last() {
                Some((key, _)) => self.after.clone_from(key),
                None => self.at_end = true,
            }
            let bytes = encode(&items);
            let message = self.at_end.then(|| self.message.clone());
            let piece = MetalogPiece { transfer: self.transfer, number: self.next, crc: crc32c(&bytes), message };
            self.next += 1;
            tell(way, self.to, &piece, &bytes);
            self.window.push_back((piece, bytes));
        }
        Ok(())
    }
}

impl Group {
    /// Looks after what is on its way: begins, says it again, or gives up.
    pub(super) fn tick_transfers(&self, state: &State) {
        let all: Vec<_> = self.transfers.sending().values().cloned().collect();
        for one in all {
            let mut sending = one.lock().unwrap_or_else(PoisonError::into_inner);
            sending.ticks += 1;
            let gone_on = if sending.ticks >= PATIENCE_TICKS {
                None
            } else if sending.ticks.is_multiple_of(AGAIN_TICKS) {
                sending.window.iter().for_each(|(piece, bytes)| tell(&*self.way, sending.to, piece, bytes));
                sending.fill(&*self.way).ok()
            } else {
                Some(())
            };
            if gone_on.is_none() {
                self.end_sending(state, sending, false);
            }
        }
    }

    /// A receiver tells how far it is.
    pub(super) fn heard_held(&self, state: &State, from: NodeId, held: MetalogHeld) {
        let Some(one) = self.transfers.sending().get(&from).cloned() else { return };
        let mut sending = one.lock().unwrap_or_else(PoisonError::into_inner);
        if held.transfer != sending.transfer || sending.over {
            return;
        }
        let first = sending.window.front().map_or(sending.next, |(piece, _)| piece.number);
        if held.whole {
            return self.end_sending(state, sending, true);
        }
        if held.next < first || held.next > sending.next {
            // It has lost what it had.
            return self.end_sending(state, sending, false);
        }
        if held.next > first {
            sending.ticks = 0;
            while sending.window.pop_front_if(|(piece, _)| piece.number < held.next).is_some() {}
            if sending.fill(&*self.way).is_err() {
                self.end_sending(state, sending, false);
            }
        }
    }

    fn end_sending(&self, state: &State, mut sending: MutexGuard<'_, Sending>, whole: bool) {
        if std::mem::replace(&mut sending.over, true) {
            return;
        }
        let (to, transfer) = (sending.to, sending.transfer);
        drop(sending);
        {
            let mut all = self.transfers.sending();
            let same = |one: &Arc<Mutex<Sending>>| one.try_lock().is_ok_and(|sending| sending.transfer == transfer);
            if !all.get(&to).is_some_and(same) {
                // Another has taken its place, and will be reported.
                return;
            }
            all.remove(&to);
        }
        self.feed(&mut self.lock(), state, MemberInput::SnapshotSent { to, whole });
    }

    /// A piece of a state comes.
    ///
    /// # Errors
    /// `BadFrame` for what no member sends; the store's.
    pub(super) fn heard_piece(
        &self,
        state: &State,
        from: NodeId,
        piece: MetalogPiece,
        payload: &[u8],
    ) -> Result<(), Fault> {
        let mut receiving = self.transfers.receiving.lock().unwrap_or_else(PoisonError::into_inner);
        if piece.number == 0 && piece.transfer != receiving.transfer && piece.transfer != 0 {
            state.versions.begin_other()?;
            *receiving = Receiving { transfer: piece.transfer, next: 0, whole: false };
        }
        let known = piece.transfer == receiving.transfer;
        if known && !receiving.whole && piece.number == receiving.next && crc32c(payload) == piece.crc {
            let items = decode(payload).ok_or_else(|| wires::bad(from, "its piece of a state cannot be read"))?;
            if let Err(fault) = state.versions.put_other(items) {
                // The sender begins anew.
                *receiving = Receiving::default();
                return Err(fault);
            }
            receiving.next += 1;
            if let Some(message) = piece.message {
                receiving.whole = true;
                self.received(state, from, message)?;
            }
        }
        let held = match known {
            true => MetalogHeld { transfer: piece.transfer, next: receiving.next, whole: receiving.whole },
            false => MetalogHeld { transfer: piece.transfer, next: 0, whole: false },
        };
        self.way.tell(from, ServerMessage::MetalogHeld(held), PeerPayload::none());
        Ok(())
    }

    /// All of a state is here: the member decides whether it takes it.
    fn received(&self, state: &State, from: NodeId, message: MetalogMessage) -> Result<(), Fault> {
        let name = message.state.clone().ok_or_else(|| wires::bad(from, "its state has no name"))?;
        let (meta, ids_above) = wires::state_from_wire(&name);
        let whole = Incoming::default().take((from, self.id), message, &[])?;
        let message = whole.ok_or_else(|| wires::bad(from, "its message about a state comes in parts"))?;
        let mut core = self.lock();
        core.received = Some(Received { meta, ids_above });
        self.feed(&mut core, state, MemberInput::Receive(message));
        // If it was not taken, it never will be.
        core.received = None;
        Ok(())
    }
}

fn tell(way: &dyn Peers, to: NodeId, piece: &MetalogPiece, bytes: &Bytes) {
    way.tell(
        to,
        ServerMessage::MetalogPiece(piece.clone()),
        PeerPayload { bytes: bytes.clone(), crc: Some(piece.crc), ahead: None },
    );
}

fn encode(items: &[Item]) -> Bytes {
    let mut bytes = Vec::with_capacity(items.iter().map(|(key, value)| key.len() + value.len() + 8).sum());
    for (key, value) in items {
        bytes.extend_from_slice(&(key.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
    }
    bytes.into()
}

fn decode(mut bytes: &[u8]) -> Option<Vec<Item>> {
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
