//! The records of a member in the crate's segments: places for new ones, and which old ones are still needed.
//!
//! Guarantees: records come back in order, a prefix of those written that holds every one reported persisted; what
//! is needed is never let go before what stands for it is on stable storage.

use std::collections::VecDeque;

use frieze_base::LogIndex;
use frieze_hlc::Hlc;

use super::message::{BatchDurability, MemberEffect, PeerEntry};
use super::record::{JournalBase, JournalRecord};
use super::settings::MemberSettings;
use crate::error::Error;
use crate::log::Metalog;
use crate::message::{DataEnd, MetalogEffect, MetalogInput};
use crate::settings::MetalogSettings;

/// Records that are on no stable storage, from which on a flush waits for nothing.
const URGENT_RECORDS: u64 = 512;

/// The records of one member.
#[derive(Debug)]
pub(super) struct RaftJournal {
    segments: Metalog,
    /// For every entry of the log, oldest first: its index, and the newest record that holds it.
    places: VecDeque<(u64, u64)>,
    /// The newest record with a base.
    base: u64,
    /// Records on their way to stable storage, and up to which one each says that the journal was there.
    claims: VecDeque<(u64, u64)>,
    /// The newest such word that is itself on stable storage: records up to it cannot be missing unnoticed.
    claimed: u64,
    places_out: Vec<MetalogEffect>,
    /// Term and vote of the last record.
    vote: (u64, u64),
}

impl RaftJournal {
    pub(super) fn new(settings: &MemberSettings) -> RaftJournal {
        RaftJournal::of(Metalog::new(segment_settings(settings)))
    }

    pub(super) fn of(segments: Metalog) -> RaftJournal {
        let (places, claims, places_out) = (VecDeque::new(), VecDeque::new(), Vec::new());
        RaftJournal { segments, places, base: 0, claims, claimed: 0, places_out, vote: (0, 0) }
    }

    /// Number of the last record.
    pub(super) fn last(&self) -> u64 {
        self.segments.last().0
    }

    /// Number of the last record that is whole in its file.
    pub(super) fn written(&self) -> u64 {
        self.segments.committed().0
    }

    /// The last entry on stable storage with all before it; 0 if no entry of the journal is.
    pub(super) fn durable_entry(&self) -> u64 {
        let durable = self.durable();
        let count = self.places.partition_point(|(_, record)| *record <= durable);
        count.checked_sub(1).map_or(0, |last| self.places[last].0)
    }

    /// Number of the last record on stable storage.
    pub(super) fn durable(&self) -> u64 {
        self.segments.durable().0
    }

    /// Gives a record its place. Returns its number.
    ///
    /// # Errors
    /// `DeviceFailed`: it cannot be written, for what it is larger than any that a step makes.
    pub(super) fn append(&mut self, mut record: JournalRecord, out: &mut Vec<MemberEffect>) -> Result<u64, Error> {
        let number = self.last() + 1;
        if let Some(base) = &mut record.base {
            self.forget_before(base);
            base.needed = self.places.front().map_or(number, |(_, place)| *place).min(number);
        }
        // An election waits for a term and a vote.
        let urgent = (record.term, record.vote) != self.vote
            || number - self.durable() >= URGENT_RECORDS
            || record.base.as_ref().is_some_and(|base| base.anew)
            || record.entries.iter().any(|entry| entry.durability() != BatchDurability::Memory);
        self.claims.push_back((number, self.durable()));
        // A record's number is its stamp: the segments want stamps that rise, and those of batches can come twice.
        let proposal = MetalogInput::Propose { body: record.encode(), count: 1, data_end: DataEnd::default() };
        self.segments.step(Hlc(number), proposal, &mut self.places_out);
        for place in self.places_out.drain(..) {
            match place {
                MetalogEffect::Append { index, roll, segment, offset, bytes, .. } => {
                    out.push(MemberEffect::Append { record: index, roll, segment, offset, bytes, urgent });
                }
                MetalogEffect::Refused(fault) => return Err(Error::DeviceFailed { reason: fault.reason }),
                _ => {}
            }
        }
        self.see(number, &record);
        Ok(number)
    }

    /// Takes in what a record holds, whether it is written or read.
    pub(super) fn see(&mut self, number: u64, record: &JournalRecord) {
        self.vote = (record.term, record.vote);
        if let Some(base) = &record.base {
            self.forget_before(base);
            self.base = number;
        }
        for PeerEntry { index, .. } in &record.entries {
            while self.places.back().is_some_and(|(last, _)| *last >= index.0) {
                self.places.pop_back();
            }
            self.places.push_back((index.0, number));
        }
    }

    fn forget_before(&mut self, base: &JournalBase) {
        if base.anew {
            self.places.clear();
        }
        while self.places.front().is_some_and(|(index, _)| *index <= base.meta.index.0) {
            self.places.pop_front();
        }
    }

    pub(super) fn on_appended(&mut self, record: LogIndex) {
        self.segments.step(Hlc::ZERO, MetalogInput::Appended { index: record }, &mut self.places_out);
        self.places_out.clear();
    }

    /// Records up to `record` are on stable storage: lets go of the segments that nothing needs any more. Only those
    /// that recovery would miss if they were needed: it finds where the journal begins by trying (see `recover`).
    pub(super) fn on_persisted(&mut self, record: LogIndex, out: &mut Vec<MemberEffect>) {
        self.segments.step(Hlc::ZERO, MetalogInput::Persisted { index: record }, &mut self.places_out);
        let durable = self.durable();
        while let Some((_, claim)) = self.claims.pop_front_if(|(record, _)| *record <= durable) {
            self.claimed = self.claimed.max(claim);
        }
        let needed = self.places.front().map_or(self.base, |(_, place)| (*place).min(self.base));
        if self.base > 0 && self.base <= self.claimed && needed > 1 {
            self.segments.step(
                Hlc::ZERO,
                MetalogInput::Truncate { through: LogIndex(needed - 1) },
                &mut self.places_out,
            );
        }
        for place in self.places_out.drain(..) {
            if let MetalogEffect::Remove { segment } = place {
                out.push(MemberEffect::Remove { segment });
            }
        }
    }
}

/// How the segments are used for the records of a member.
pub(super) fn segment_settings(settings: &MemberSettings) -> MetalogSettings {
    MetalogSettings {
        segment_bytes: settings.segment_bytes,
        // A record can hold what one message and one step can, and members beside.
        body_bytes_max: settings.body_bytes_max.saturating_add(settings.message_bytes).saturating_add(1 << 20),
        // The member looks after that itself, before there is something that cannot be refused.
        in_flight_max: usize::MAX,
        ..MetalogSettings::default()
    }
}
