//! An event: one call as its user made it. Its 64 bytes are the format of a slot of the ring.
//!
//! | bytes | field |
//! |---|---|
//! | 0..8 | start, ns since 1970 |
//! | 8..12 | duration, ns; `u32::MAX` for longer ones. Of several calls: the sum |
//! | 12; 13 | number of [`CallKind`]; number of [`Gateway`] |
//! | 14..16 | [`EventFlags`] |
//! | 16..24 | inode; 0: none |
//! | 24..32 | offset |
//! | 32..36; 36..40 | bytes asked for; bytes moved (their low halves) |
//! | 40..44 | number of the open file; 0: none |
//! | 44..48 | actor: low half of the hash of its words |
//! | 48..56 | keyed hash of the path; 0: none |
//! | 56..58 | number of the fault's `Reason`; 0: none |
//! | 58..60 | calls that this event stands for |
//! | 60..62 | low bits of the lap of the ring in which it was written |
//! | 62..64 | sum over the other bytes |
//!
//! An event that flag 15 marks has a second slot behind it, in the same block:
//!
//! | bytes | field |
//! |---|---|
//! | 0..4; 4..8 | high halves of bytes asked for, and moved |
//! | 12 | 252 |
//! | 16..24 | keyed hash of the second path of a rename or link; 0: none |
//! | 24..32 | stamp of the instant that was read; 0: none, or now |
//! | 60..64 | as in an event |
//!
//! A slot with 253 in place of the call's number ends its block: the rest of it stays empty.
//!
//! All numbers are little-endian. A slot whose sum is wrong was being written when its process ended, or is empty.

use frieze_hlc::Hlc;

use crate::kinds::{CallKind, Gateway};

/// Words of eight bytes in a slot.
pub(crate) const SLOT_WORDS: usize = 8;
/// Bytes of a slot.
pub const SLOT_BYTES: usize = SLOT_WORDS * 8;
/// Largest call that is collapsed with others, bytes: larger ones cost more than their event.
const COLLAPSED_CALL_BYTES_MAX: u64 = 16 << 10;
/// Calls, bytes and ns of one event at most. More: a smaller trace. Less: times within it are known better.
const COLLAPSED_CALLS_MAX: u16 = 64;
const COLLAPSED_BYTES_MAX: u64 = 256 << 10;
const COLLAPSED_NS_MAX: i64 = 10_000_000;

/// In place of a call's number: the slot is part of a word ([`crate::words`]).
pub(crate) const WORD_SLOT: u8 = 251;
/// In place of a call's number: the slot is the second one of an event.
pub(crate) const SECOND_SLOT: u8 = 252;
/// In place of a call's number: the slots behind this one in its block stay empty.
pub(crate) const END_SLOT: u8 = 253;

/// What else is known of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EventFlags(pub u16);

impl EventFlags {
    /// The call was about an instant of the past.
    pub const PAST: EventFlags = EventFlags(1);
    /// The call waited for stable storage.
    pub const SYNCHRONOUS: EventFlags = EventFlags(1 << 1);
    /// The event stands for several calls, one behind the other.
    pub const COLLAPSED: EventFlags = EventFlags(1 << 2);
    /// The call began where the one before it on the same open file ended.
    pub const SEQUENTIAL: EventFlags = EventFlags(1 << 3);
    /// The gateway answered from its own cache: no server was asked.
    pub const FROM_CACHE: EventFlags = EventFlags(1 << 4);
    /// In a slot: the event has a second one.
    const HAS_SECOND: EventFlags = EventFlags(1 << 15);

    /// Both.
    #[must_use]
    pub fn with(self, other: EventFlags) -> EventFlags {
        EventFlags(self.0 | other.0)
    }

    /// True if all of `other` are set.
    pub fn has(self, other: EventFlags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// One call as its user made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Start, ns since 1970.
    pub start_ns: i64,
    /// Until it was answered, ns; `u32::MAX` for longer ones. Of several calls the sum.
    pub duration_ns: u32,
    /// What was called.
    pub call: CallKind,
    /// Where it was called.
    pub gateway: Gateway,
    /// What else is known.
    pub flags: EventFlags,
    /// The file; 0: none, or not known.
    pub inode: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes asked for.
    pub asked: u64,
    /// Bytes moved.
    pub got: u64,
    /// Number of the open file; 0: none.
    pub stream: u32,
    /// Hash of the words that describe session, user and program; 0: none.
    pub actor: u32,
    /// Keyed hash of the path; 0: none.
    pub path: u64,
    /// Keyed hash of the second path of a rename or link; 0: none.
    pub path2: u64,
    /// Stamp of the instant that was read; 0: none, or now.
    pub view: Hlc,
    /// Number of the fault's `Reason`; 0: none.
    pub result: u16,
    /// Calls that this event stands for, 1 or more.
    pub count: u16,
}

impl Event {
    /// One call, of which nothing else is known.
    pub fn new(call: CallKind, gateway: Gateway) -> Event {
        Event {
            start_ns: 0,
            duration_ns: 0,
            call,
            gateway,
            flags: EventFlags::default(),
            inode: 0,
            offset: 0,
            asked: 0,
            got: 0,
            stream: 0,
            actor: 0,
            path: 0,
            path2: 0,
            view: Hlc(0),
            result: 0,
            count: 1,
        }
    }

    /// This event and a small one right behind it as one; `None` if they differ in more than their place.
    pub(crate) fn collapsed_with(&self, next: &Event) -> Option<Event> {
        let alone = |event: &Event| {
            let flags = event.flags.0 & !(EventFlags::COLLAPSED.0 | EventFlags::SEQUENTIAL.0);
            (event.call, event.gateway, flags, event.inode, event.stream, event.actor, event.path)
        };
        let bytes = self.got.saturating_add(next.got);
        let is_next = next.call.moves_bytes()
            && alone(self) == alone(next)
            && next.offset == self.offset.saturating_add(self.got)
            && self.result | next.result == 0
            && !self.has_second()
            && !next.has_second();
        let is_small = (1..=COLLAPSED_CALL_BYTES_MAX).contains(&next.got)
            && (1..=COLLAPSED_BYTES_MAX).contains(&self.got)
            && bytes <= COLLAPSED_BYTES_MAX
            && self.count < COLLAPSED_CALLS_MAX
            && next.count == 1
            && next.start_ns.saturating_sub(self.start_ns) <= COLLAPSED_NS_MAX;
        (is_next && is_small).then(|| Event {
            duration_ns: self.duration_ns.saturating_add(next.duration_ns),
            flags: self.flags.with(EventFlags::COLLAPSED).with(EventFlags::SEQUENTIAL),
            asked: self.asked.saturating_add(next.asked),
            got: bytes,
            count: self.count + 1,
            ..*self
        })
    }

    /// True if the event takes two slots.
    pub(crate) fn has_second(&self) -> bool {
        self.path2 != 0 || self.view != Hlc(0) || (self.asked | self.got) >> 32 != 0
    }

    /// The second slot of this event in a lap of the ring.
    pub(crate) fn encode_second(&self, lap: u16) -> [u64; SLOT_WORDS] {
        let high = self.asked >> 32 | self.got & !0xffff_ffff;
        seal([high, u64::from(SECOND_SLOT) << 32, self.path2, self.view.0, 0, 0, 0, 0], lap)
    }

    /// Adds what the second slot says.
    pub(crate) fn extend(&mut self, slot: &[u64; SLOT_WORDS]) {
        self.asked |= slot[0] << 32;
        self.got |= slot[0] & !0xffff_ffff;
        (self.path2, self.view) = (slot[2], Hlc(slot[3]));
    }

    /// The slot of this event in a lap of the ring, the first if it takes two.
    pub(crate) fn encode(&self, lap: u16) -> [u64; SLOT_WORDS] {
        let flags = if self.has_second() { self.flags.with(EventFlags::HAS_SECOND) } else { self.flags };
        let kinds = u64::from(self.call as u8) | u64::from(self.gateway as u8) << 8 | u64::from(flags.0) << 16;
        seal(
            [
                self.start_ns as u64,
                u64::from(self.duration_ns) | kinds << 32,
                self.inode,
                self.offset,
                self.asked & 0xffff_ffff | self.got << 32,
                u64::from(self.stream) | u64::from(self.actor) << 32,
                self.path,
                u64::from(self.result) | u64::from(self.count) << 16,
            ],
            lap,
        )
    }

    /// The event of a whole slot, and whether a second one follows; `None` if it is no event, or one of a kind that
    /// this version does not know.
    pub(crate) fn decode(slot: &[u64; SLOT_WORDS]) -> Option<(Event, bool)> {
        let flags = EventFlags((slot[1] >> 48) as u16);
        let event = Event {
            start_ns: slot[0] as i64,
            duration_ns: slot[1] as u32,
            call: CallKind::from_number((slot[1] >> 32) as u8)?,
            gateway: Gateway::from_number((slot[1] >> 40) as u8)?,
            flags: EventFlags(flags.0 & !EventFlags::HAS_SECOND.0),
            inode: slot[2],
            offset: slot[3],
            asked: slot[4] & 0xffff_ffff,
            got: slot[4] >> 32,
            stream: slot[5] as u32,
            actor: (slot[5] >> 32) as u32,
            path: slot[6],
            path2: 0,
            view: Hlc(0),
            result: slot[7] as u16,
            count: (slot[7] >> 16) as u16,
        };
        Some((event, flags.has(EventFlags::HAS_SECOND)))
    }
}

/// Number of the call, or [`WORD_SLOT`].
pub(crate) fn kind_of(slot: &[u64; SLOT_WORDS]) -> u8 {
    (slot[1] >> 32) as u8
}

/// The slot that ends a block before it is full.
pub(crate) fn encode_end(lap: u16) -> [u64; SLOT_WORDS] {
    seal([0, u64::from(END_SLOT) << 32, 0, 0, 0, 0, 0, 0], lap)
}

/// Writes lap and sum into the last four bytes.
pub(crate) fn seal(mut slot: [u64; SLOT_WORDS], lap: u16) -> [u64; SLOT_WORDS] {
    slot[7] = slot[7] & 0xffff_ffff | u64::from(lap) << 32;
    slot[7] |= u64::from(sum(&slot)) << 48;
    slot
}

/// The lap of a slot; `None` if it is empty or not whole.
pub(crate) fn lap_of(slot: &[u64; SLOT_WORDS]) -> Option<u16> {
    let mut unsealed = *slot;
    unsealed[7] &= 0xffff_ffff_ffff;
    (kind_of(slot) != 0 && sum(&unsealed) == (slot[7] >> 48) as u16).then_some((slot[7] >> 32) as u16)
}

/// Each word counts differently, so that words of two events do not make a third.
fn sum(slot: &[u64; SLOT_WORDS]) -> u16 {
    let mixed = slot.iter().fold(0x9e37_79b9_7f4a_7c15_u64, |mixed, word| {
        (mixed.rotate_left(23) ^ word).wrapping_mul(0xd6e8_feb8_6659_fd93)
    });
    (mixed >> 48) as u16
}
