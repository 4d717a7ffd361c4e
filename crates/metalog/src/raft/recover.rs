//! The ways to get a member: founded with others, about to join, or recovered from its journal.
//!
//! The journal says by itself where it begins: the newest base names the first record that is needed. Older segments
//! may still be there, with or without gaps between them, for they go without a sync. So recovery tries the oldest
//! segment first and, where the records from there on are not whole, the next. A gap among needed records cannot pass
//! for such a one: the base that is found then needs what is missing.

use std::collections::{BTreeMap, VecDeque};

use frieze_base::{LogIndex, NodeId};
use frieze_hlc::Hlc;
use raft::eraftpb::{Entry as RaftEntry, HardState};
use raft::{Config, RawNode};

use super::journal::{self, RaftJournal};
use super::member::RaftMember;
use super::memory::ProcessStart;
use super::message::{EntryKind, MemberEffect, Members, SnapshotMeta};
use super::peer;
use super::record::{self, EntryData, JournalBase, JournalRecord};
use super::settings::MemberSettings;
use super::store::Store;
use crate::error::Error;
use crate::format::{FORMAT_VERSION, JournalHeader, SEGMENT_HEADER_BYTES, SegmentStart};
use crate::message::{DataEnd, LogEntry};
use crate::recover::{
    FoundRecord, JournalFiles, Mend, MetalogCutReason, MetalogReport, MissingData, SegmentSource, damaged_header,
};
use crate::segment_log::SegmentLog;

/// What a member is recovered from, beside its journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberFrom {
    /// Its node id.
    pub id: NodeId,
    /// Election timeouts and the names of questions are drawn from it: another one at every start.
    pub seed: u64,
    /// Number of this process among those of the node: it rises with each start.
    pub incarnation: u64,
    /// False after a loss of power, and until [`MemberEffect::UpToDate`] after it: what the journal had not flushed is
    /// lost.
    pub kept_memory: bool,
    /// No entry that an earlier process acknowledged is stamped above it.
    pub stamp_bound: Hlc,
    /// Last entry whose effects the store holds durably; 0 for none.
    pub applied: LogIndex,
    /// The state installed last, as the store keeps it with its name; `None` if it never installed one.
    pub installed: Option<SnapshotMeta>,
    /// Where the server's data log ends after its own recovery: records with entries that name later data are cut.
    /// `None` if it is not looked at.
    pub data_end: Option<DataEnd>,
}

/// A recovered member.
#[derive(Debug)]
pub struct MemberRecovered {
    /// The member, ready to go on.
    pub member: RaftMember,
    /// What was found in the journal: its entries are records.
    pub report: MetalogReport,
    /// What the driver does, in order. It then syncs every segment and the directory before the first step, whether
    /// there is something to mend or not: what was read counts as being on stable storage.
    pub mend: Vec<Mend>,
    /// What comes first.
    pub effects: Vec<MemberEffect>,
}

impl RaftMember {
    /// A founding member of a metalog whose state is `from`: empty, with entry 1 and term 1, or that of a machine that
    /// had no other members so far, at its last entry. Every founding member is given the same.
    ///
    /// # Panics
    /// If `from` has no entry, no term, or does not have `id` among its voters.
    pub fn found(
        id: NodeId,
        settings: MemberSettings,
        (seed, incarnation): (u64, u64),
        from: SnapshotMeta,
    ) -> (RaftMember, Vec<MemberEffect>) {
        assert!(from.index > LogIndex(0) && from.term > 0, "a founder begins after an entry");
        assert!(from.members.voters.contains(&id), "a founder is a voter");
        RaftMember::begin(id, settings, (seed, incarnation), from)
    }

    /// A member that others will add: it waits for the state.
    pub fn join(
        id: NodeId,
        settings: MemberSettings,
        (seed, incarnation): (u64, u64),
    ) -> (RaftMember, Vec<MemberEffect>) {
        RaftMember::begin(id, settings, (seed, incarnation), SnapshotMeta::default())
    }

    fn begin(
        id: NodeId,
        settings: MemberSettings,
        (seed, incarnation): (u64, u64),
        base: SnapshotMeta,
    ) -> (RaftMember, Vec<MemberEffect>) {
        let journal = RaftJournal::new(&settings);
        let found = JournalContents {
            base: Some(JournalBase { meta: base, anew: true, needed: 1 }),
            ..JournalContents::default()
        };
        let mut effects = Vec::new();
        let from = MemberFrom {
            id,
            seed,
            incarnation,
            kept_memory: true,
            stamp_bound: Hlc::ZERO,
            applied: LogIndex(0),
            installed: None,
            data_end: None,
        };
        let member = build(settings, &from, journal, found, true, &mut effects);
        (member.expect("an empty journal takes its first record"), effects)
    }

    /// Recovers a member from its journal and the place of its store. It has everything that it ever spoke of from
    /// stable storage; what it spoke of from memory, a loss of power may have taken.
    ///
    /// # Errors
    /// `NeverBegun`: there is no record. If the machine knows that no flush of it ever ended, the member never spoke
    /// and can be begun anew; else it is lost, like what follows. `Damaged`, `HeaderDamaged`, `FileBeforeMissing`,
    /// `FileMissing`, `Truncated`, `BadRecord`, `Missing`, `JournalBehind`: something that was on stable storage is
    /// lost. Do not serve, and leave the files as they are; the member can be replaced by one with another id, and
    /// [`RaftMember::salvage`] reads what is left. `WrongVersion`: another build wrote it. `Source`: a file cannot be
    /// read.
    pub fn recover(
        settings: MemberSettings,
        from: &MemberFrom,
        source: &mut dyn SegmentSource,
    ) -> Result<MemberRecovered, Error> {
        let JournalRead { journal, found, anew, report, mend, mut effects } = JournalRead::of(&settings, from, source)?;
        let member = build(settings, from, journal, found, anew, &mut effects)?;
        Ok(MemberRecovered { member, report, mend, effects })
    }
}

/// A journal that was read whole.
pub(super) struct JournalRead {
    pub(super) journal: RaftJournal,
    pub(super) found: JournalContents,
    /// Its base is not in the journal yet.
    pub(super) anew: bool,
    pub(super) report: MetalogReport,
    pub(super) mend: Vec<Mend>,
    pub(super) effects: Vec<MemberEffect>,
}

impl JournalRead {
    /// # Errors
    /// As [`RaftMember::recover`].
    pub(super) fn of(
        settings: &MemberSettings,
        from: &MemberFrom,
        source: &mut dyn SegmentSource,
    ) -> Result<JournalRead, Error> {
        let mut first_error = None;
        let starts = starts(source)?;
        if starts.is_empty() {
            // Damaged, if what is left says that it was on stable storage.
            SegmentLog::recover(journal::segment_settings(settings), LogIndex(0), source, &mut |_| Ok(()))?;
        }
        for start in starts {
            let mut found = JournalContents { first_record: start, ..JournalContents::default() };
            let segments = journal::segment_settings(settings);
            let read =
                SegmentLog::recover(segments, LogIndex(start - 1), source, &mut |record| found.see(&record, from));
            let recovered = read.and_then(|recovered| found.check().map(|()| recovered));
            let recovered = match recovered {
                Ok(recovered) => recovered,
                Err(
                    error @ (Error::Source(_)
                    | Error::WrongVersion { .. }
                    | Error::Truncated { .. }
                    | Error::DataMissing { .. }),
                ) => return Err(error),
                Err(error) => {
                    first_error.get_or_insert(error);
                    continue;
                }
            };
            let mut journal = RaftJournal::of(recovered.log);
            for (number, record) in std::mem::take(&mut found.records) {
                journal.see(number, &record);
            }
            let mut effects = Vec::new();
            let last = LogIndex(journal.last());
            // The driver syncs it before the first step.
            journal.on_persisted(last, &mut effects);
            let anew = found.install(from);
            if from.applied > found.last() {
                return Err(Error::JournalBehind { applied: from.applied, last: found.last() });
            }
            let base = found.base.as_ref().map_or(LogIndex(0), |base| base.meta.index);
            if from.applied < base {
                return Err(Error::Missing { applied: from.applied, found: base });
            }
            let (report, mend) = (recovered.report, recovered.mend);
            found.lacks_data = report.cut.is_some_and(|cut| cut.why == MetalogCutReason::BeyondData);
            return Ok(JournalRead { journal, found, anew, report, mend, effects });
        }
        Err(lost_file(source, first_error)?)
    }
}

/// Why no segment is a beginning of the journal. `first`: the error of the oldest one. If its records need others,
/// those lay in a file before it.
fn lost_file(source: &mut dyn SegmentSource, first: Option<Error>) -> Result<Error, Error> {
    let Some(first) = first else { return Ok(Error::NeverBegun) };
    if !matches!(first, Error::BadRecord { what, .. } if what != record::OTHER_BUILD) {
        return Ok(first);
    }
    if let Some(segment) = damaged_header(source)? {
        return Ok(Error::HeaderDamaged { segment });
    }
    let files = JournalFiles::read_any(source)?;
    let oldest = files.all.iter().find_map(|file| Some((file.segment, file.header?.first)));
    Ok(oldest.map_or(first, |(segment, record)| Error::FileBeforeMissing { segment, record }))
}

/// Reads the batches in the journal of a member that does not run, for a look at them alone. Returns the entry up to
/// which a member would look into its store, and all that hold transactions, as far as their segments are still there.
///
/// # Errors
/// As [`RaftMember::recover`].
pub fn read_batches(
    settings: &MemberSettings,
    source: &mut dyn SegmentSource,
) -> Result<(LogIndex, Vec<LogEntry>), Error> {
    let mut first_error = None;
    for start in starts(source)? {
        let (mut base, mut batches) = (LogIndex(0), BTreeMap::new());
        let read =
            SegmentLog::recover(journal::segment_settings(settings), LogIndex(start - 1), source, &mut |record| {
                let Some(record) = JournalRecord::decode(&record.body) else { return Ok(()) };
                base = record.base.map_or(base, |base| base.meta.index);
                for entry in record.entries {
                    let _after = batches.split_off(&entry.index);
                    if let EntryData::Batch(batch) = record::decode_batch(entry.index.0, entry.term, &entry.data)
                        && entry.kind == EntryKind::Normal
                    {
                        batches.insert(entry.index, batch);
                    }
                }
                Ok(())
            });
        match read {
            Ok(_) => return Ok((base, batches.into_values().collect())),
            Err(error) => drop(first_error.get_or_insert(error)),
        }
    }
    Err(first_error.unwrap_or(Error::NeverBegun))
}

/// The first record of every segment, oldest first.
fn starts(source: &mut dyn SegmentSource) -> Result<Vec<u64>, Error> {
    let mut segments = source.segments().map_err(Error::Source)?;
    segments.sort();
    let mut starts = Vec::new();
    for (segment, _) in segments {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        let len = source.read(segment, 0, &mut bytes).map_err(Error::Source)?;
        match JournalHeader::decode(&bytes[..len]) {
            SegmentStart::Begun(header) if header.segment == segment && header.first.0 > 0 => {
                starts.push(header.first.0);
            }
            SegmentStart::OtherVersion(found) => {
                return Err(Error::WrongVersion { segment, found, expected: FORMAT_VERSION });
            }
            SegmentStart::Begun(_) | SegmentStart::NotBegun => {}
        }
    }
    starts.dedup();
    Ok(starts)
}

/// What the records hold.
#[derive(Default)]
pub(super) struct JournalContents {
    /// Where reading began.
    pub(super) first_record: u64,
    pub(super) state: HardState,
    pub(super) base: Option<JournalBase>,
    /// One after the other.
    pub(super) entries: VecDeque<RaftEntry>,
    pub(super) newest: Hlc,
    /// The records without their entries' data.
    pub(super) records: Vec<(u64, JournalRecord)>,
    pub(super) wrong: Option<Error>,
    /// Records were cut because the data is lost that their entries name: the power failed.
    pub(super) lacks_data: bool,
}

impl JournalContents {
    /// Takes in the next record. Not one with entries that the store lacks, if they name data that is not there: the
    /// journal ends before it.
    fn see(&mut self, found: &FoundRecord, from: &MemberFrom) -> Result<(), MissingData> {
        if self.wrong.is_some() {
            return Ok(());
        }
        let number = found.number.0;
        let Some(mut record) = JournalRecord::decode(&found.body) else {
            self.wrong = Some(Error::BadRecord { record: found.number, what: record::OTHER_BUILD });
            return Ok(());
        };
        let needed = found.data_end;
        if let Some(found) = from.data_end.filter(|end| needed > *end)
            && record.entries.iter().any(|entry| entry.index > from.applied)
        {
            return Err(MissingData { needed, found });
        }
        self.state.term = record.term;
        self.state.vote = record.vote;
        self.state.commit = record.commit;
        if let Some(base) = &record.base {
            if base.anew || self.last() < base.meta.index {
                self.entries.clear();
            }
            while self.entries.front().is_some_and(|entry| entry.index <= base.meta.index.0) {
                self.entries.pop_front();
            }
            self.newest = self.newest.max(base.meta.stamp);
            self.base = Some(base.clone());
        }
        for held in &mut record.entries {
            self.newest = self.newest.max(record::stamp_of(&held.data).unwrap_or_default());
            let made = peer::entry_in(held);
            held.data = bytes::Bytes::new();
            self.put(made);
        }
        self.records.push((number, record));
        Ok(())
    }

    /// Puts an entry into the log, over those that it replaces. Before the first record that is needed anything may be
    /// missing: then the log begins anew, and `check` sees whether that is too late.
    fn put(&mut self, entry: RaftEntry) {
        let first = self.entries.front().map_or(self.last().0 + 1, |entry| entry.index);
        if entry.index < first || entry.index > self.last().0 + 1 {
            self.entries.clear();
        } else {
            self.entries.truncate((entry.index - first) as usize);
        }
        self.entries.push_back(entry);
    }

    pub(super) fn last(&self) -> LogIndex {
        let base = self.base.as_ref().map_or(LogIndex(0), |base| base.meta.index);
        self.entries.back().map_or(base, |entry| LogIndex(entry.index))
    }

    /// How far the log is committed, if it is up to `commit`: what was appended while `id` was the only voter was
    /// committed when it was on this disk, up to and with the change that gives others a vote. Those may have more of
    /// the log than is here.
    fn committed_by_one_voter(&self, id: NodeId, members: &Members, commit: u64) -> u64 {
        let (mut members, mut committed) = (members.clone(), commit);
        for entry in self.entries.iter().map(peer::entry_out) {
            if entry.index.0 > committed {
                if members.voters != [id] {
                    break;
                }
                committed = entry.index.0;
            }
            if let Some(change) = peer::decode_change(&entry.data).filter(|_| entry.kind == EntryKind::Change) {
                peer::change_members(&mut members, &change);
            }
        }
        committed
    }

    /// Is what is needed there?
    fn check(&mut self) -> Result<(), Error> {
        if let Some(error) = self.wrong.take() {
            return Err(error);
        }
        let record = LogIndex(self.first_record);
        if self.records.is_empty() {
            return Err(Error::NeverBegun);
        }
        let Some(base) = &self.base else {
            return Err(Error::BadRecord { record, what: "the journal does not say where the log begins" });
        };
        if base.needed < self.first_record {
            return Err(Error::BadRecord { record, what: "records before it are needed and missing" });
        }
        let first = self.entries.front().map_or(base.meta.index.0 + 1, |entry| entry.index);
        if first != base.meta.index.0 + 1 {
            return Err(Error::BadRecord { record, what: "the log does not begin where the state ends" });
        }
        Ok(())
    }

    /// The store holds a state that was installed just before the crash, and the journal does not know: true if so.
    fn install(&mut self, from: &MemberFrom) -> bool {
        let Some(meta) = &from.installed else { return false };
        let base = self.base.as_ref().map_or(LogIndex(0), |base| base.meta.index);
        let place = meta.index.0.checked_sub(base.0 + 1);
        let held = place.and_then(|place| self.entries.get(place as usize)).map(|entry| entry.term);
        if meta.index <= base || held == Some(meta.term) {
            return false;
        }
        self.entries.clear();
        self.newest = self.newest.max(meta.stamp);
        self.state.term = self.state.term.max(meta.term);
        self.base = Some(JournalBase { meta: meta.clone(), anew: true, needed: 0 });
        true
    }
}

/// Puts a member together. `anew`: its base is not in the journal yet.
pub(super) fn build(
    settings: MemberSettings,
    from: &MemberFrom,
    journal: RaftJournal,
    found: JournalContents,
    anew: bool,
    effects: &mut Vec<MemberEffect>,
) -> Result<RaftMember, Error> {
    let MemberFrom { id, applied, incarnation, kept_memory, stamp_bound, .. } = *from;
    let start = ProcessStart { incarnation, stamp_bound };
    let (last, found_cut) = (found.last().0, found.lacks_data);
    let base = found.base.clone().expect("checked, or made");
    let mut state = found.state.clone();
    state.term = state.term.max(base.meta.term);
    // What the store holds was committed, whether the last record says so or not.
    state.commit = state.commit.max(base.meta.index.0).max(applied.0).min(last);
    state.commit = found.committed_by_one_voter(id, &base.meta.members, state.commit);
    let newest = found.newest.max(base.meta.stamp);
    let store = Store::new(base.meta.clone(), found.entries, state);
    let logger = slog::Logger::root(slog::Discard, slog::o!());
    let node = RawNode::new(&config(id, &settings, base.meta.index), store, &logger)
        .map_err(|_| Error::BadRecord { record: LogIndex(journal.last()), what: "the members in it are no members" })?;
    let mut member = RaftMember::assemble((id, from.seed), &start, settings, node, journal, newest);
    member.applied_before = applied.0;
    if anew {
        member.write(JournalRecord { base: Some(base), ..JournalRecord::default() }, effects)?;
    }
    // Everything that is committed comes out at once, with the members that it makes.
    member.settle(effects)?;
    member.step(Hlc::ZERO, super::message::MemberInput::Applied { index: applied }, effects);
    if !kept_memory || found_cut {
        member.return_without_memory();
    }
    member.lead_soon_if_alone();
    Ok(member)
}

fn config(id: NodeId, settings: &MemberSettings, applied: LogIndex) -> Config {
    let election_tick = settings.election_ticks as usize;
    Config {
        id: id.0.into(),
        election_tick,
        heartbeat_tick: settings.heartbeat_ticks as usize,
        min_election_tick: election_tick,
        max_election_tick: 2 * election_tick,
        applied: applied.0,
        max_size_per_msg: settings.message_bytes.into(),
        max_inflight_msgs: settings.messages_in_flight,
        max_uncommitted_size: settings.uncommitted_bytes_max.max(settings.message_bytes.into()),
        // A leader that a majority does not hear stands down; a member that was cut off does not disturb those that go
        // on.
        check_quorum: true,
        pre_vote: true,
        ..Config::default()
    }
}
