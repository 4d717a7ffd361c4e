//! What is left of a member whose journal is damaged: the state of its store, and the entries that follow it.
//!
//! Guarantees: an entry counts only if all entries between the state of the store and it can be read. The only voter
//! loses no entry to a damaged record whose entries the store has. Nothing of the damaged files is changed. The journal
//! of the only voter begins anew in segments of its own; until the last record of what it begins with is whole, a start
//! finds the damaged journal, as before.
//! Leaves to others: whether a damaged journal is to be served, and what is said of what may be lost.
//!
//! Of several members one may have voted by what it lost: it takes no part, and shows what is known to be committed of
//! the records before the damage.

use frieze_base::{LogIndex, Reason, SegmentId};
use frieze_hlc::Hlc;
use raft::eraftpb::HardState;

use super::journal::{self, FlushDue, RaftJournal};
use super::member::RaftMember;
use super::message::{EntryKind, MemberEffect, MemberInput, Members, PeerEntry, SnapshotMeta};
use super::peer;
use super::record::{self, JournalBase, JournalRecord};
use super::recover::{self, JournalContents, JournalRead, MemberFrom};
use super::settings::MemberSettings;
use crate::error::Error;
use crate::message::DataEnd;
use crate::recover::{FoundRecord, MetalogReport, SegmentSource};
use crate::scan::JournalScan;
use crate::segment_log::SegmentLog;

/// Which member a damaged journal is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Salvage {
    /// No other member ever was, or may have become one: it goes on with what is left.
    OnlyVoter,
    /// One of several: it takes no part.
    OneOfSeveral,
}

/// What a damaged journal is salvaged with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SalvageFrom {
    /// As for a recovery.
    pub member: MemberFrom,
    /// Newest stamp in the state that the store holds, as far as it is known.
    pub stamp: Hlc,
    /// The last entry, and the last record, that are known to have been on stable storage; 0: unknown.
    pub durable: (LogIndex, LogIndex),
    /// Which member it is.
    pub whose: Salvage,
}

/// A member with what is left of its journal.
#[derive(Debug)]
pub struct Salvaged {
    /// Of the only voter: ready to go on. Of several: silent, with [`MemberEffect::Failed`] among the effects.
    pub member: RaftMember,
    /// What comes first, in new files.
    pub effects: Vec<MemberEffect>,
    /// The record before the first new one.
    pub record: LogIndex,
    /// Entries stamped above it may be lost; `None`: no entry is lost.
    pub lost_after: Option<Hlc>,
    /// The damaged files. Of the only voter none is needed once the effects are on stable storage.
    pub files: Vec<SegmentId>,
}

impl RaftMember {
    /// Makes a member of what is left of a journal of which [`RaftMember::recover`] says that it is damaged.
    ///
    /// # Errors
    /// `Missing`: the store lacks entries that the journal has let go, so that nothing has them. `BadRecord`,
    /// `WrongVersion`: another build wrote a record or a file. `Source`: a file cannot be read.
    ///
    /// # Cost
    /// Reads all files of the journal. Memory for all of them.
    pub fn salvage(
        settings: MemberSettings,
        from: &SalvageFrom,
        source: &mut dyn SegmentSource,
    ) -> Result<Salvaged, Error> {
        let is_only_voter = from.whose == Salvage::OnlyVoter;
        let SalvagedJournal { read, lost_after, files } =
            SalvagedJournal::read(&settings, from, is_only_voter, source)?;
        let JournalRead { journal, mut found, report, mut effects, .. } = read;
        if !is_only_voter {
            let commit = found.state.commit;
            found.entries.retain(|entry| entry.index <= commit);
            // Its journal stays as it is.
            effects.clear();
        }
        let kept_memory = from.member.kept_memory && lost_after.is_none();
        let member_from = MemberFrom { kept_memory, ..from.member.clone() };
        let mut member = recover::build(settings, &member_from, journal, found, false, &mut effects)?;
        if !is_only_voter {
            member.silence(&mut effects);
        }
        Ok(Salvaged { member, effects, record: report.last, lost_after, files })
    }

    /// Keeps a member from taking part, from the start on: `effects`, what comes first, write nothing, and end with
    /// [`MemberEffect::Failed`].
    pub fn silence(&mut self, effects: &mut Vec<MemberEffect>) {
        effects.retain(|effect| {
            let writes = matches!(
                effect,
                MemberEffect::Append { .. } | MemberEffect::Remove { .. } | MemberEffect::Erase { .. }
            );
            !writes
        });
        self.step(Hlc::ZERO, MemberInput::DeviceFailed { reason: Reason::Corrupt }, effects);
    }
}

/// A journal that begins anew with what is left of a damaged one.
pub(super) struct SalvagedJournal {
    /// Its effects write the new journal.
    pub(super) read: JournalRead,
    pub(super) lost_after: Option<Hlc>,
    pub(super) files: Vec<SegmentId>,
}

impl SalvagedJournal {
    /// `is_only_voter`: records behind damage count if no entry can be lost between; else only those before it do.
    pub(super) fn read(
        settings: &MemberSettings,
        from: &SalvageFrom,
        is_only_voter: bool,
        source: &mut dyn SegmentSource,
    ) -> Result<SalvagedJournal, Error> {
        let scan = JournalScan::of(source)?;
        let mut left = LeftEntries::after(from);
        for found in &scan.records {
            if !left.see(found, &from.member, is_only_voter)? {
                break;
            }
        }
        let member = &from.member;
        if left.base > member.applied {
            return Err(Error::Missing { applied: member.applied, found: left.base });
        }
        let last = left.entries.last().map_or(member.applied, |entry| entry.index);
        let record_end = scan.records.last().map_or(LogIndex(0), |found| found.number);
        // Behind the last whole record, headers may say that there was another.
        let records_end = scan.last.max(from.durable.1);
        let is_lost = left.is_stopped || left.is_doubtful || last < from.durable.0 || record_end < records_end;
        let stamps = left.entries.iter().filter_map(|entry| record::stamp_of(&entry.data));
        let newest = stamps.max().unwrap_or(Hlc::ZERO).max(from.stamp);

        let next_segment = SegmentId(scan.files.last().map_or(0, |segment| segment.0) + 1);
        // The number after the last is left out: nothing of the damaged journal goes on in the new one.
        let before = LogIndex(records_end.0 + 1);
        let segments = SegmentLog::beside(journal::segment_settings(settings), before, next_segment);
        let mut read = JournalRead {
            journal: RaftJournal::of(segments),
            found: left.contents(from, newest, is_only_voter),
            anew: false,
            report: MetalogReport { records: 0, last: before, cut: None, end: None },
            mend: Vec::new(),
            effects: Vec::new(),
        };
        left.write(settings, &mut read)?;
        Ok(SalvagedJournal { read, lost_after: is_lost.then_some(newest), files: scan.files })
    }
}

/// The entries behind the state of the store, as far as all of them can be read.
struct LeftEntries {
    applied: LogIndex,
    /// The entry before the first, as the newest record with a base says.
    base: LogIndex,
    entries: Vec<PeerEntry>,
    /// Of the last entry in the store, as far as it is known.
    base_term: u64,
    /// As of the last record before any damage.
    state: HardState,
    /// The newest term of any record.
    term: u64,
    members: Option<Members>,
    data_end: DataEnd,
    last_record: Option<LogIndex>,
    /// The first record that was read after those that were lost last.
    run_start: u64,
    /// Records may be lost before: it is not known yet that none of their entries is.
    is_doubtful: bool,
    /// Records behind a place where entries are lost: they do not count.
    is_stopped: bool,
}

impl LeftEntries {
    fn after(from: &SalvageFrom) -> LeftEntries {
        let installed = from.member.installed.as_ref();
        LeftEntries {
            applied: from.member.applied,
            base: LogIndex(0),
            entries: Vec::new(),
            base_term: installed.map_or(1, |meta| meta.term),
            state: HardState::default(),
            term: installed.map_or(1, |meta| meta.term),
            members: installed.map(|meta| meta.members.clone()),
            data_end: DataEnd::default(),
            last_record: None,
            run_start: 0,
            is_doubtful: true,
            is_stopped: false,
        }
    }

    /// Takes in the next whole record. False: it does not count, and none behind it.
    fn see(&mut self, found: &FoundRecord, from: &MemberFrom, is_only_voter: bool) -> Result<bool, Error> {
        let Some(record) = JournalRecord::decode(&found.body) else {
            return Err(Error::BadRecord { record: found.number, what: record::OTHER_BUILD });
        };
        let is_next = self.last_record.is_some_and(|last| found.number.0 == last.0 + 1);
        let is_behind_damage = self.last_record.is_some() && !is_next;
        self.last_record = Some(found.number);
        self.term = self.term.max(record.term);
        if !is_next {
            self.run_start = found.number.0;
            self.is_doubtful = true;
        }
        if is_behind_damage && !is_only_voter {
            self.is_stopped = true;
            return Ok(false);
        }
        let last = self.entries.last().map_or(self.applied, |entry| entry.index);
        let first = record.entries.first().map(|entry| entry.index);
        // The entries before it are in the store, or were read; or all records were that the log needs.
        self.is_doubtful &= first.is_none_or(|first| first > LogIndex(last.0 + 1))
            && record.base.as_ref().is_none_or(|base| base.needed < self.run_start);
        let is_beyond_data = from.data_end.is_some_and(|end| found.data_end > end)
            && record.entries.iter().any(|entry| entry.index > self.applied);
        if first.is_some_and(|first| first > LogIndex(last.0 + 1)) || is_beyond_data {
            self.is_stopped = true;
            return Ok(false);
        }
        self.state.term = record.term;
        self.state.vote = record.vote;
        self.state.commit = record.commit;
        if let Some(JournalBase { meta, .. }) = &record.base {
            self.base = self.base.max(meta.index);
            self.members = Some(meta.members.clone());
            if meta.index <= self.applied {
                self.base_term = self.base_term.max(meta.term);
            }
        }
        self.data_end = self.data_end.max(found.data_end);
        for entry in record.entries {
            if entry.index <= self.applied {
                self.base_term = self.base_term.max(entry.term);
                let change = Some(&entry).filter(|entry| entry.kind == EntryKind::Change);
                if let Some(change) = change.and_then(|entry| peer::decode_change(&entry.data))
                    && let Some(members) = &mut self.members
                {
                    peer::change_members(members, &change);
                }
                continue;
            }
            while self.entries.pop_if(|kept| kept.index >= entry.index).is_some() {}
            self.entries.push(entry);
        }
        Ok(true)
    }

    fn contents(&self, from: &SalvageFrom, newest: Hlc, is_only_voter: bool) -> JournalContents {
        let alone = Members { voters: vec![from.member.id], learners: Vec::new() };
        let members = self.members.clone().filter(|_| !is_only_voter).unwrap_or(alone);
        let meta = SnapshotMeta { index: self.applied, term: self.base_term, stamp: from.stamp, members };
        let last = self.entries.last().map_or(self.applied, |entry| entry.index);
        let mut state = self.state.clone();
        state.commit = if is_only_voter { last.0 } else { state.commit.clamp(self.applied.0, last.0) };
        if is_only_voter {
            (state.term, state.vote) = (self.term, from.member.id.0.into());
        }
        JournalContents {
            state,
            base: Some(JournalBase { meta, anew: false, needed: 0 }),
            entries: self.entries.iter().map(peer::entry_in).collect(),
            newest,
            ..JournalContents::default()
        }
    }

    /// Writes what the new journal begins with: the entries, and last the base that makes it count.
    fn write(self, settings: &MemberSettings, read: &mut JournalRead) -> Result<(), Error> {
        let JournalRead { journal, found, effects, .. } = read;
        let state = &found.state;
        let record =
            || JournalRecord { term: state.term, vote: state.vote, commit: state.commit, ..JournalRecord::default() };
        journal.note_data_end(self.data_end);
        let mut entries = Vec::new();
        let mut bytes = 0;
        for entry in self.entries {
            bytes += entry.data.len() as u64;
            entries.push(entry);
            if bytes >= u64::from(settings.message_bytes) {
                let entries = std::mem::take(&mut entries);
                journal.append(JournalRecord { entries, ..record() }, FlushDue::Now, effects)?;
                bytes = 0;
            }
        }
        let base = found.base.clone();
        journal.append(JournalRecord { base, entries, ..record() }, FlushDue::Now, effects)?;
        Ok(())
    }
}
