//! The records of one chain, found by their numbers; and those that a chain does not have, though they lie in the log.
//!
//! Guarantees: of two records of one chain and number the later one counts; what was discarded is in no plan, no shelf and no
//! list, whatever is recovered.
//! Leaves to others: which records a chain has (`chain`), reading footers and keeping what was discarded (`node`).
//!
//! Every segment knows which numbers of which chains it holds: 24 bytes for each chain. Of one that recovery took from a shelf
//! that is not known until its footer is read. Numbers rise along the log, but where something was discarded, so the search goes
//! backwards from its end.

use frieze_base::{ChainId, SegmentId};

use crate::entry::Entries;
use crate::log::MultiLog;
use crate::segment::SegmentState;
use crate::{LogPosition, RecordKind, RecordMeta, Stored};

/// Records of a chain that are not the chain's: it took another way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discarded {
    /// The chain.
    pub chain: ChainId,
    /// Number of the last record that stays.
    pub after: u64,
    /// Those that begin before this place; what comes later with these numbers is the chain's. All before it was durable when they
    /// were discarded, so that nothing else can come to lie there.
    pub before: LogPosition,
}

impl Discarded {
    fn holds(&self, meta: &RecordMeta, at: LogPosition) -> bool {
        meta.chain == self.chain && meta.n > self.after && at < self.before
    }
}

/// True if a record that begins at `at` was discarded.
pub(crate) fn is_discarded(discarded: &[Discarded], meta: &RecordMeta, at: LogPosition) -> bool {
    discarded.iter().any(|one| one.holds(meta, at))
}

/// Which numbers of a chain a segment holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    chain: ChainId,
    first: u64,
    last: u64,
}

/// Notes a record among those of its segment.
pub(crate) fn note(numbers: &mut Vec<Numbers>, meta: &RecordMeta) {
    match numbers.iter_mut().find(|known| known.chain == meta.chain) {
        Some(known) => (known.first, known.last) = (known.first.min(meta.n), known.last.max(meta.n)),
        None => numbers.push(Numbers { chain: meta.chain, first: meta.n, last: meta.n }),
    }
}

/// A record as its chain knows it, and where its bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbered {
    /// The record.
    pub meta: RecordMeta,
    /// Its payload; none of a punch.
    pub stored: Option<Stored>,
}

impl MultiLog {
    /// A segment whose footer has to be read ([`MultiLog::list`]) before [`MultiLog::segments_with`] can tell where the records
    /// of `chain` after `after` are; `None` if it can.
    pub fn unlisted(&self, chain: ChainId, after: u64) -> Option<SegmentId> {
        for segment in self.segments.iter().rev() {
            let Some(numbers) = &segment.numbers else { return Some(segment.header.id) };
            if numbers.iter().any(|known| known.chain == chain && known.first <= after + 1) {
                return None;
            }
        }
        None
    }

    /// Takes in which chains a segment has records of. False if these bytes are not its last footer.
    pub fn list(&mut self, id: SegmentId, footer: &[u8]) -> bool {
        let Some(entries) = self.footer_entries(id, footer) else { return false };
        let Ok(at) = self.segments.binary_search_by_key(&id, |segment| segment.header.id) else { return false };
        let header = self.segments[at].header;
        let mut numbers = Vec::new();
        for listed in Entries::new(&header, entries) {
            let begins = LogPosition { segment: id, offset: listed.span.start };
            if !is_discarded(&self.discarded, &listed.meta, begins) {
                note(&mut numbers, &listed.meta);
            }
        }
        self.segments[at].numbers = Some(numbers);
        true
    }

    /// The segments that hold records of `chain` after `after`, in the order of the log, and whether their footer is needed to
    /// list them.
    pub fn segments_with(&self, chain: ChainId, after: u64) -> Vec<(SegmentId, bool)> {
        let holds = |known: &&Numbers| known.chain == chain && known.last > after;
        let segments =
            self.segments.iter().filter(|segment| segment.numbers.iter().flatten().any(|known| holds(&known)));
        segments.map(|segment| (segment.header.id, segment.state == SegmentState::Closed)).collect()
    }

    /// The records of `chain` in a segment after number `after`, in order, at most `max`. `footer`: its last footer, if it is
    /// closed. `None` if that is not what these bytes are.
    ///
    /// # Cost
    /// About 60 ns for each record of the segment.
    pub fn numbered(
        &self,
        chain: ChainId,
        id: SegmentId,
        footer: Option<&[u8]>,
        after: u64,
        max: usize,
    ) -> Option<Vec<Numbered>> {
        let at = self.segments.binary_search_by_key(&id, |segment| segment.header.id).ok()?;
        let segment = &self.segments[at];
        let entries = match footer {
            Some(footer) => self.footer_entries(id, footer)?,
            None if segment.state == SegmentState::Closed => return None,
            None => &segment.entries,
        };
        let of_chain = Entries::new(&segment.header, entries).filter(|listed| {
            let begins = LogPosition { segment: id, offset: listed.span.start };
            listed.meta.chain == chain && listed.meta.n > after && !is_discarded(&self.discarded, &listed.meta, begins)
        });
        let numbered = of_chain.take(max).map(|listed| Numbered {
            stored: (listed.meta.kind == RecordKind::Write).then_some(Stored {
                segment: id,
                data_offset: listed.span.data,
                record_len: listed.meta.len,
                skip: 0,
                crcs_offset: listed.span.place,
                block_bytes: segment.header.block_bytes,
                stamp: listed.meta.stamp,
            }),
            meta: listed.meta,
        });
        Some(numbered.collect())
    }
}
