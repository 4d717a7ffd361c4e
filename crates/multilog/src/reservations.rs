//! Places that are reserved in the open segment and hold no visible record yet.
//!
//! Guarantees: reservations lie one behind the other in one segment, in the order in which they were made; if one of
//! them fails, those behind it fail too, and their space is reserved again only when all of them have ended. Leaves to
//! others: the bytes, which several threads may write at once, and making records visible in order (`log`).
//!
//! A record names the record before it, so a hole between two records would end recovery. That is why publication
//! follows the order of reservations, and why a failure takes those behind it along.

use std::collections::VecDeque;

use frieze_hlc::Hlc;

use crate::entry::{self, RecordCursor};
use crate::header::{LogPosition, SegmentHeader};
use crate::record::{self, RecordHeader};
use crate::segment::{NewSegment, Spot};

/// Most bytes of reservations behind the last visible record, if there is more than one reservation. A recovery has to
/// erase as many behind the end of the log: a record in there that it did not find must not come back.
pub const RESERVED_BYTES_MAX: u64 = 4 << 20;

/// Number of a reservation: they rise in the order of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReservationId(pub(crate) u64);

/// Where a group of records goes: adjacent, in one segment.
///
/// It ends with [`crate::MultiLog::publish`] of each of its records, or with [`crate::MultiLog::abandon`].
#[derive(Debug)]
pub struct Reservation {
    /// Its number.
    pub id: ReservationId,
    /// A segment to be made first, if the current one is full.
    pub roll: Option<NewSegment>,
    /// One for each record, in order.
    pub spots: Vec<Spot>,
    header: SegmentHeader,
    /// Stamp of the record before the group.
    before: Hlc,
}

impl Reservation {
    pub(crate) fn new(
        id: ReservationId,
        roll: Option<NewSegment>,
        header: SegmentHeader,
        before: Hlc,
        spots: Vec<Spot>,
    ) -> Reservation {
        Reservation { id, roll, spots, header, before }
    }

    /// The bytes that go before the payload of record `index` of the group: head and block checksums. `block_crcs` are
    /// those of [`crate::block_crcs`], none for a punch. Needs no lock on the log.
    ///
    /// # Panics
    /// If the header, the checksums and the spot do not belong together.
    pub fn head(&self, index: usize, header: &RecordHeader, block_crcs: &[u32]) -> Vec<u8> {
        let (spot, block_bytes) = (&self.spots[index], self.header.block_bytes);
        assert_eq!(
            block_crcs.len(),
            record::blocks(header.payload_len(), block_bytes) as usize,
            "one checksum a block"
        );
        // In a group all have one stamp.
        let before = if header.begins_group() { self.before } else { header.stamp };
        let bytes = entry::head(&self.header, spot.offset, header, before, &spot.entry, block_crcs);
        assert_eq!(bytes.len() as u64, spot.data_offset - spot.offset, "the spot is for another record");
        bytes
    }

    /// The log's end once the group is in.
    pub fn end(&self) -> LogPosition {
        self.spots.last().expect("a group has at least one record").end
    }
}

/// The reservations that have not ended, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    next: u64,
    open: VecDeque<OpenReservation>,
    /// Behind the last of them, with the bytes of all footer entries up to there.
    behind: Option<(RecordCursor, u64)>,
}

#[derive(Debug)]
struct OpenReservation {
    id: ReservationId,
    /// Its records that are not visible yet.
    records: usize,
    /// It began a segment: it stays the only one.
    has_rolled: bool,
    has_failed: bool,
}

impl Reservations {
    /// True if all have ended.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// The number that the next one gets.
    pub(crate) fn next_id(&self) -> ReservationId {
        ReservationId(self.next)
    }

    /// True if no reservation may be added before another ends, whatever its size.
    pub(crate) fn is_barred(&self) -> bool {
        self.open.iter().any(|open| open.has_failed || open.has_rolled)
    }

    /// Where the next one begins, if it does not begin behind the last visible record.
    pub(crate) fn behind(&self) -> Option<&(RecordCursor, u64)> {
        self.behind.as_ref()
    }

    /// Adds a reservation of so many records, with the place behind them.
    pub(crate) fn push(&mut self, records: usize, has_rolled: bool, behind: (RecordCursor, u64)) -> ReservationId {
        assert!(!self.is_barred(), "a place is reserved behind one that must stay the last");
        let id = self.next_id();
        self.next += 1;
        self.open.push_back(OpenReservation { id, records, has_rolled, has_failed: false });
        self.behind = Some(behind);
        id
    }

    /// The oldest.
    pub(crate) fn first(&self) -> Option<ReservationId> {
        self.open.front().map(|open| open.id)
    }

    /// True if one before it has failed.
    pub(crate) fn has_failed(&self, id: ReservationId) -> bool {
        self.open.iter().any(|open| open.id == id && open.has_failed)
    }

    /// A record of the oldest has become visible.
    pub(crate) fn publish(&mut self) {
        let first = self.open.front_mut().expect("only a record that was reserved is published");
        assert!(!first.has_failed, "a record is published behind one that failed");
        first.records -= 1;
        if first.records == 0 {
            self.open.pop_front();
        }
        self.forget_behind();
    }

    /// The oldest, of so many records, ends without them. Those behind it fail.
    pub(crate) fn abandon(&mut self, id: ReservationId, records: usize) {
        let first = self.open.pop_front().filter(|first| first.id == id);
        assert_eq!(first.map(|first| first.records), Some(records), "only the oldest is abandoned, and as a whole");
        self.open.iter_mut().for_each(|open| open.has_failed = true);
        self.forget_behind();
    }

    fn forget_behind(&mut self) {
        if self.open.is_empty() {
            self.behind = None;
        }
    }
}
