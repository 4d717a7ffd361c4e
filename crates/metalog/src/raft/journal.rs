//! The records of a member in the crate's segments: places for new ones, and which old ones are still needed.
//!
//! Guarantees: records come back in order, a prefix of those written that holds every one reported persisted; what
//! is needed is never let go before what stands for it is on stable storage.

use std::collections::VecDeque;

use frieze_base::LogIndex;

use super::message::{BatchDurability, MemberEffect, PeerEntry};
use super::record::{JournalBase, JournalRecord};
use super::settings::MemberSettings;
use crate::error::Error;
use crate::message::DataEnd;
use crate::segment_log::{RecordWrite, SegmentLog, SegmentSettings, WithdrawStep};

/// The records of one member.
#[derive(Debug)]
pub(super) struct RaftJournal {
    segments: SegmentLog,
    /// For every entry of the log, oldest first: its index, and the newest record that holds it.
    places: VecDeque<(u64, u64)>,
    /// What [`RaftJournal::durable_entry`] returns: each step asks for it, and a search takes as long as the rest.
    durable_entry: u64,
    /// Records with a base, oldest first, and the first record that each needs. Those that the newest one on stable
    /// storage stands for are gone.
    bases: VecDeque<(u64, u64)>,
    /// Records on their way to stable storage, and up to which one each says that the journal was there.
    claims: VecDeque<(u64, u64)>,
    /// The newest such word that is itself on stable storage: records up to it cannot be missing unnoticed.
    claimed: u64,
    /// End of this server's data log, as far as entries may name data.
    data_end: DataEnd,
    /// Term and vote of the last record.
    vote: (u64, u64),
}

impl RaftJournal {
    pub(super) fn new(settings: &MemberSettings) -> RaftJournal {
        RaftJournal::of(SegmentLog::new(segment_settings(settings)))
    }

    pub(super) fn of(segments: SegmentLog) -> RaftJournal {
        let (places, claims, bases) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        let (durable_entry, claimed, data_end, vote) = (0, 0, DataEnd::default(), (0, 0));
        RaftJournal { segments, places, durable_entry, bases, claims, claimed, data_end, vote }
    }

    /// Entries that are written from now on may name data of this server before `end`.
    pub(super) fn note_data_end(&mut self, end: DataEnd) {
        self.data_end = self.data_end.max(end);
    }

    /// Number of the last record.
    pub(super) fn last(&self) -> u64 {
        self.segments.last.0
    }

    /// Number of the last record that is whole in its file.
    pub(super) fn written(&self) -> u64 {
        self.segments.written.0
    }

    /// The last entry on stable storage with all before it; 0 if no entry of the journal is.
    pub(super) fn durable_entry(&self) -> u64 {
        debug_assert_eq!(self.durable_entry, self.find_durable_entry());
        self.durable_entry
    }

    fn find_durable_entry(&self) -> u64 {
        let durable = self.durable();
        let count = self.places.partition_point(|(_, record)| *record <= durable);
        count.checked_sub(1).map_or(0, |last| self.places[last].0)
    }

    /// Number of the last record on stable storage.
    pub(super) fn durable(&self) -> u64 {
        self.segments.durable.0
    }

    /// Gives a record its place. Returns its number. `flush`: a flush is wanted at once.
    ///
    /// # Errors
    /// `DeviceFailed`: it cannot be written, for what it is larger than any that a step makes.
    pub(super) fn append(
        &mut self,
        mut record: JournalRecord,
        flush: FlushDue,
        out: &mut Vec<MemberEffect>,
    ) -> Result<u64, Error> {
        let number = self.last() + 1;
        if let Some(base) = &mut record.base {
            self.forget_before(base);
            base.needed = self.places.front().map_or(number, |(_, place)| *place).min(number);
        }
        let is_due = match flush {
            FlushDue::Now => true,
            FlushDue::After(records) => number - self.durable() >= records,
        };
        // An election waits for a term and a vote.
        let urgent = is_due
            || (record.term, record.vote) != self.vote
            || record.base.as_ref().is_some_and(|base| base.anew)
            || record.entries.iter().any(|entry| entry.durability() != BatchDurability::Memory);
        self.claims.push_back((number, self.durable()));
        let is_naming = |entry: &PeerEntry| entry.data_end().is_some_and(|end| end != DataEnd::default());
        let data_end = if record.entries.iter().any(is_naming) { self.data_end } else { DataEnd::default() };
        let written = self.segments.append(&record.encode(), data_end);
        let RecordWrite { number: record_number, roll, segment, offset, bytes } =
            written.map_err(|error| Error::DeviceFailed { reason: error.reason() })?;
        out.push(MemberEffect::Append { record: record_number, roll, segment, offset, bytes, urgent });
        self.see(number, &record);
        Ok(number)
    }

    /// Takes in what a record holds, whether it is written or read.
    pub(super) fn see(&mut self, number: u64, record: &JournalRecord) {
        self.vote = (record.term, record.vote);
        if let Some(base) = &record.base {
            self.forget_before(base);
            self.bases.push_back((number, base.needed));
        }
        let mut replaced = false;
        for PeerEntry { index, .. } in &record.entries {
            while self.places.back().is_some_and(|(last, _)| *last >= index.0) {
                self.places.pop_back();
            }
            self.places.push_back((index.0, number));
            replaced |= index.0 <= self.durable_entry;
        }
        if replaced || number <= self.durable() {
            self.durable_entry = self.find_durable_entry();
        }
    }

    /// The last entry before those that are in `record` and later ones; `None` if no entry is in them.
    pub(super) fn last_entry_before(&self, record: u64) -> Option<u64> {
        let first = self.places.partition_point(|(_, place)| *place < record);
        self.places.get(first).map(|(index, _)| index - 1)
    }

    /// The records from `record` on could not be written, and are as if they had never been: `last` is the last entry
    /// of the log without them.
    pub(super) fn withdraw(&mut self, record: LogIndex, last: u64, out: &mut Vec<MemberEffect>) {
        out.extend(self.segments.withdraw(record).into_iter().map(|step| match step {
            WithdrawStep::Erase { segment, offset, len } => MemberEffect::Erase { segment, offset, len },
            WithdrawStep::Remove { segment } => MemberEffect::Remove { segment },
        }));
        self.claims.retain(|(number, _)| *number < record.0);
        self.places.retain(|(index, _)| *index <= last);
        self.bases.retain(|(number, _)| *number < record.0);
        self.durable_entry = self.find_durable_entry();
    }

    fn forget_before(&mut self, base: &JournalBase) {
        if base.anew {
            self.places.clear();
        }
        while self.places.front().is_some_and(|(index, _)| *index <= base.meta.index.0) {
            self.places.pop_front();
        }
        self.durable_entry = self.find_durable_entry();
    }

    pub(super) fn on_appended(&mut self, record: LogIndex) {
        self.segments.on_written(record);
    }

    /// Records up to `record` are on stable storage: lets go of the segments that nothing needs any more. Only those
    /// that recovery would miss if they were needed: it finds where the journal begins by trying (see `recover`).
    pub(super) fn on_persisted(&mut self, record: LogIndex, out: &mut Vec<MemberEffect>) {
        self.segments.on_persisted(record);
        self.durable_entry = self.find_durable_entry();
        let durable = self.durable();
        while let Some((_, claim)) = self.claims.pop_front_if(|(record, _)| *record <= durable) {
            self.claimed = self.claimed.max(claim);
        }
        let mut needed = 0;
        while let Some((_, first)) = self.bases.pop_front_if(|(base, _)| *base <= self.claimed) {
            needed = first;
        }
        if needed > 1 {
            let removed = self.segments.truncate(LogIndex(needed - 1));
            out.extend(removed.into_iter().map(|segment| MemberEffect::Remove { segment }));
        }
    }
}

/// When a record is to come to stable storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlushDue {
    /// At once: an answer waits for it.
    Now,
    /// With others, unless it says so itself: when so many records are on no stable storage.
    After(u64),
}

/// How the segments are used for the records of a member.
pub(super) fn segment_settings(settings: &MemberSettings) -> SegmentSettings {
    SegmentSettings {
        segment_bytes: settings.segment_bytes,
        // A record can hold what one message and one step can, and members beside.
        body_bytes_max: settings.body_bytes_max.saturating_add(settings.message_bytes).saturating_add(1 << 20),
        spare_max: SPARE_SEGMENTS_MAX,
    }
}

/// Spare segment files of a journal.
const SPARE_SEGMENTS_MAX: usize = 4;
