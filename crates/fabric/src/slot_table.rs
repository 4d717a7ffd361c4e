//! Which slot of a connection belongs to which request. Decides only: it touches no memory.

use frieze_base::{Fault, Reason};
use frieze_wire::message::Reply;

/// What a reply says of the slot of its request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotReply {
    /// Bytes in the slot.
    pub landed: usize,
    /// Their CRC32C.
    pub landed_crc: u32,
    /// The server may not have finished with the slot, or transfers do not do what they should.
    pub is_abandoned: bool,
}

impl SlotReply {
    /// What this reply says.
    pub fn of(result: &Result<Reply, Fault>) -> SlotReply {
        match result {
            Ok(Reply::Read(read)) => SlotReply {
                landed: read.landed as usize,
                landed_crc: read.landed_crc,
                is_abandoned: read.is_slot_abandoned,
            },
            Ok(_) => SlotReply::default(),
            Err(fault) => SlotReply { is_abandoned: closes(fault.reason), ..SlotReply::default() },
        }
    }

    /// The refusal of a request whose slot was closed with it, as the caller receives it. The server has compared bytes
    /// that it fetched with the checksum of those that were sent: the request is sent again, by TCP.
    pub fn refusal_after_close(fault: Fault) -> Fault {
        let reason = if fault.reason == Reason::BadFrame { Reason::FabricFailed } else { fault.reason };
        Fault { reason, ..fault }
    }
}

/// True if a slot is not to be used again after its request was refused for this reason. A payload could not be
/// fetched, or was not what was sent. Or stored bytes were damaged when others had been written into the slot already:
/// the last of these may arrive after the refusal, and no checksum is compared that would await them.
fn closes(reason: Reason) -> bool {
    matches!(reason, Reason::FabricFailed | Reason::BadFrame | Reason::Corrupt | Reason::InputOutput)
}

/// What follows from a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotEnd {
    /// The request had no slot.
    NoSlot,
    /// Its slot is free again.
    Free,
    /// Its slot has the payload until [`LentSlots::release`].
    Landed,
    /// The server may still write into the slot: all registrations have to be closed before their memory is used. A
    /// refusal is that of [`SlotReply::refusal_after_close`].
    AllClosed,
    /// The payload lies in no slot of the request, or in one that was closed before it was looked at: the connection is
    /// of no use, and the request is made again over another.
    Lost,
}

/// The slots of a connection.
#[derive(Clone, Debug)]
pub struct LentSlots {
    /// The request that each slot was lent to.
    lent: Vec<Option<u64>>,
    /// The slot with the payload of the last reply, and its bytes.
    landed: Option<(usize, usize)>,
    is_closed: bool,
}

impl LentSlots {
    /// A table of `count` free slots.
    pub fn new(count: usize) -> LentSlots {
        LentSlots { lent: vec![None; count], landed: None, is_closed: false }
    }

    /// Lends a free slot to a request.
    pub fn lend(&mut self, request: u64) -> Option<usize> {
        let landed = self.landed.map(|(slot, _)| slot);
        let is_free = |slot: &usize| self.lent[*slot].is_none() && Some(*slot) != landed;
        let slot = (0..self.lent.len()).find(is_free).filter(|_| !self.is_closed)?;
        self.lent[slot] = Some(request);
        Some(slot)
    }

    /// The reply to `request` has come.
    pub fn end(&mut self, request: u64, reply: SlotReply) -> SlotEnd {
        self.release();
        let slot = self.lent.iter().position(|lent| *lent == Some(request));
        if let Some(slot) = slot {
            self.lent[slot] = None;
        }
        match slot {
            Some(_) if reply.is_abandoned => {
                self.close();
                SlotEnd::AllClosed
            }
            Some(slot) if reply.landed > 0 && !self.is_closed => {
                self.landed = Some((slot, reply.landed));
                SlotEnd::Landed
            }
            _ if reply.landed > 0 => SlotEnd::Lost,
            Some(_) => SlotEnd::Free,
            None => SlotEnd::NoSlot,
        }
    }

    /// Lends no slot from now on. Replies to requests that have one may still come.
    pub fn close(&mut self) {
        self.landed = None;
        self.is_closed = true;
    }

    /// The slot with the payload of the last reply, and how many bytes that is.
    pub fn landed(&self) -> Option<(usize, usize)> {
        self.landed
    }

    /// The payload of the last reply is not needed any more.
    pub fn release(&mut self) {
        self.landed = None;
    }

    /// True if no slot is lent.
    pub fn is_idle(&self) -> bool {
        self.lent.iter().all(Option::is_none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABANDONED: SlotReply = SlotReply { landed: 0, landed_crc: 0, is_abandoned: true };
    const LANDED: SlotReply = SlotReply { landed: 8, landed_crc: 0, is_abandoned: false };

    #[test]
    fn a_slot_has_one_request_until_its_payload_is_released() {
        let mut table = LentSlots::new(2);
        assert_eq!([table.lend(1), table.lend(2), table.lend(3)], [Some(0), Some(1), None]);
        assert_eq!(table.end(1, LANDED), SlotEnd::Landed);
        assert_eq!((table.landed(), table.lend(3)), (Some((0, 8)), None), "its payload is still read");
        table.release();
        assert_eq!(table.lend(3), Some(0));
        assert_eq!(
            [table.end(2, SlotReply::default()), table.end(4, SlotReply::default())],
            [SlotEnd::Free, SlotEnd::NoSlot]
        );
    }

    #[test]
    fn after_an_abandoned_slot_no_payload_is_taken_from_any() {
        let mut table = LentSlots::new(3);
        (1..=3).for_each(|request| assert!(table.lend(request).is_some()));
        assert_eq!(table.end(1, ABANDONED), SlotEnd::AllClosed);
        assert_eq!((table.lend(4), table.end(2, LANDED)), (None, SlotEnd::Lost));
        assert_eq!(table.end(3, ABANDONED), SlotEnd::AllClosed);
        assert_eq!(table.end(5, LANDED), SlotEnd::Lost, "it has no slot");
    }

    #[test]
    fn refusals_that_memory_may_be_the_cause_of_close_the_slots() {
        let refused = |reason| SlotReply::of(&Err(Fault::from(reason))).is_abandoned;
        assert!(
            [Reason::FabricFailed, Reason::BadFrame, Reason::Corrupt, Reason::InputOutput].into_iter().all(refused)
        );
        assert!(![Reason::NotFound, Reason::Overloaded, Reason::StaleEpoch].into_iter().any(refused));
        let damaged = SlotReply::refusal_after_close(Reason::BadFrame.into());
        assert_eq!(damaged.reason, Reason::FabricFailed, "it is sent again");
        assert_eq!(SlotReply::refusal_after_close(Reason::Corrupt.into()).reason, Reason::Corrupt);
    }
}
