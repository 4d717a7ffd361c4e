//! The state goes to another member, or comes from one.

use frieze_base::{Fault, NodeId, crc32c};
use frieze_locks::MutexGuard;
use frieze_metalog::MemberInput;
use frieze_wire::peer::ServerMessage;
use frieze_wire::peer::metalog::{MetalogHeld, MetalogMessage, MetalogPiece};

use super::super::codec::{self, RaftReceiver};
use super::super::snapshot_transfer::{
    AGAIN_TICKS, GroupView, IncomingSnapshot, OutgoingSnapshot, PATIENCE_TICKS, decode, send_piece,
};
use super::super::state::AppliedState;
use super::driver::RaftDriver;
use frieze_net::PeerPayload;

impl RaftDriver {
    /// Looks after what is on its way: begins, says it again, or gives up.
    pub(super) fn tick_snapshots(&self, state: &AppliedState) {
        let all: Vec<_> = self.transfers.sending().values().cloned().collect();
        if all.is_empty() {
            return;
        }
        let group = self.group_view();
        for one in all {
            let mut sending = one.lock();
            sending.ticks += 1;
            let gone_on = if sending.ticks >= PATIENCE_TICKS {
                None
            } else if sending.ticks.is_multiple_of(AGAIN_TICKS) {
                sending.window.iter().for_each(|(piece, bytes)| send_piece(&*self.way, sending.to, piece, bytes));
                sending.fill(&*self.way, &group).ok()
            } else {
                Some(())
            };
            if gone_on.is_none() {
                self.finish_sending(state, sending, false);
            }
        }
    }

    fn group_view(&self) -> GroupView {
        let core = self.lock();
        GroupView { learners: core.member.members().learners.clone(), durable: core.member.durable() }
    }

    /// A receiver tells how far it is.
    pub(crate) fn on_snapshot_progress(&self, state: &AppliedState, from: NodeId, held: MetalogHeld) {
        let Some(one) = self.transfers.sending().get(&from).cloned() else { return };
        let group = self.group_view();
        let mut sending = one.lock();
        if held.transfer != sending.transfer || sending.over {
            return;
        }
        let first = sending.window.front().map_or(sending.next, |(piece, _)| piece.number);
        if held.whole {
            return self.finish_sending(state, sending, true);
        }
        if held.next < first || held.next > sending.next {
            // It has lost what it had.
            return self.finish_sending(state, sending, false);
        }
        if held.next > first {
            sending.ticks = 0;
            while sending.window.pop_front_if(|(piece, _)| piece.number < held.next).is_some() {}
            if sending.fill(&*self.way, &group).is_err() {
                self.finish_sending(state, sending, false);
            }
        }
    }

    pub(super) fn finish_sending(
        &self,
        state: &AppliedState,
        mut sending: MutexGuard<'_, OutgoingSnapshot>,
        whole: bool,
    ) {
        if std::mem::replace(&mut sending.over, true) {
            return;
        }
        let (to, transfer) = (sending.to, sending.transfer);
        drop(sending);
        if self.transfers.remove(to, transfer) {
            self.feed(&mut self.lock(), state, MemberInput::SnapshotSent { to, whole });
        }
    }

    /// A piece of a state comes.
    ///
    /// # Errors
    /// `BadFrame` for what no member sends; the store's.
    pub(crate) fn on_snapshot_piece(
        &self,
        state: &AppliedState,
        from: NodeId,
        piece: MetalogPiece,
        payload: &[u8],
    ) -> Result<(), Fault> {
        let mut receiving = self.transfers.receiving.lock();
        if piece.number == 0 && piece.transfer != receiving.transfer && piece.transfer != 0 {
            state.versions.begin_snapshot()?;
            *receiving = IncomingSnapshot { transfer: piece.transfer, next: 0, whole: false };
        }
        let known = piece.transfer == receiving.transfer;
        if known && !receiving.whole && piece.number == receiving.next && crc32c(payload) == piece.crc {
            let items = decode(payload).ok_or_else(|| codec::bad(from, "its piece of a state cannot be read"))?;
            if let Err(fault) = state.versions.put_snapshot(items) {
                // The sender begins anew.
                *receiving = IncomingSnapshot::default();
                return Err(fault);
            }
            receiving.next += 1;
            if let Some(message) = piece.message {
                receiving.whole = true;
                self.on_snapshot_complete(state, from, message)?;
            }
        }
        let held = match known {
            true => MetalogHeld { transfer: piece.transfer, next: receiving.next, whole: receiving.whole },
            false => MetalogHeld { transfer: piece.transfer, next: 0, whole: false },
        };
        self.way.send(from, ServerMessage::MetalogHeld(held), PeerPayload::none());
        Ok(())
    }

    /// All of a state is here: the member decides whether it takes it.
    pub(super) fn on_snapshot_complete(
        &self,
        state: &AppliedState,
        from: NodeId,
        message: MetalogMessage,
    ) -> Result<(), Fault> {
        let name = message.state.clone().ok_or_else(|| codec::bad(from, "its state has no name"))?;
        let meta = codec::state_from_wire(&name);
        let whole = RaftReceiver::default().take((from, self.id), message, &[])?;
        let message = whole.ok_or_else(|| codec::bad(from, "its message about a state comes in parts"))?;
        let mut core = self.lock();
        core.received = Some(meta);
        self.feed(&mut core, state, MemberInput::Receive(message));
        // If it was not taken, it never will be.
        core.received = None;
        Ok(())
    }
}
