//! Which slot of a connection belongs to which request. Decides only: it touches no memory.

/// What follows from a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotEnd {
    /// The request had no slot.
    NoSlot,
    /// Its slot is free again.
    Free,
    /// Its slot has the payload until [`LentSlots::release`].
    Landed,
    /// The server may still write into the slot: all registrations have to be closed before their memory is used.
    AllClosed,
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

    /// The reply to `request` has come: `landed` bytes are in its slot, or the server `is_abandoned` it in the middle.
    pub fn end(&mut self, request: u64, landed: usize, is_abandoned: bool) -> SlotEnd {
        self.release();
        let Some(slot) = self.lent.iter().position(|lent| *lent == Some(request)) else { return SlotEnd::NoSlot };
        self.lent[slot] = None;
        if is_abandoned {
            self.is_closed = true;
            return SlotEnd::AllClosed;
        }
        self.landed = (landed > 0).then_some((slot, landed));
        if landed > 0 { SlotEnd::Landed } else { SlotEnd::Free }
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
