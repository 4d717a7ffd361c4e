//! Rebuilding the log from its segments after a stop or a crash.
//!
//! Guarantees: the result is a prefix of what was published, whole groups only. Two recoveries of the same bytes give
//! the same log. A damaged file costs what it held and nothing else, and is named.
//! Leaves to others: listing and reading files, keeping or recycling those that are free.
//!
//! # The algorithm
//! A footer names only records that are durable, and all before them are too. So everything up to the last footer was
//! durable: recovery finds those segments by following each header's link backwards and reads them by their footers.
//! What is unreadable there is *corruption*: it is reported, and the rest is recovered. What follows is the *tail*:
//! each segment is scanned record by record, payloads verified. The next segment counts if its header names exactly
//! where the scan ended and the stamp of the record there. The first record that does not fit ends the log.
//!
//! The oldest of the durable segments need not even be read by their footers: index runs say the same ([`index_runs`]).
//!
//! Why both: an unverified tail would show torn records, and a scan of everything would take as long as the history is.

mod index_runs;
mod read;
mod source;

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::{SegmentId, crc32c};
use frieze_hlc::Hlc;

use crate::discarded::{is_discarded, sorted};
use crate::entry::{FooterEntries, FooterEntry};
use crate::error::Error;
use crate::header::{FORMAT_VERSION, LogPosition, NoHeader};
use crate::index_run::{ChainTip, RunKey};
use crate::log::{LogSettings, MultiLog};
use crate::pack::Packs;
use crate::record::RecordHeader;
use crate::segment::{LogSegment, SegmentState};
use read::{NextRecord, RecordRead, SegmentFile, SegmentReader};
pub use source::{LogSource, SegmentKey};

/// What recovery shows its driver, in this order.
#[derive(Clone, Copy, Debug)]
pub enum RecoveredItem<'a> {
    /// Once, if there are index runs: records that are not shown one by one.
    Indexed {
        /// The last record of each chain.
        chains: &'a [ChainTip],
        /// Stamp of the last record.
        newest: Hlc,
        /// What the driver gave to [`crate::RunBuilder::finish`] for the last of them.
        companion: &'a [u8],
    },
    /// The next record.
    Record(&'a RecordHeader),
}

/// What recovery found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Records in the recovered log.
    pub records: u64,
    /// Bytes that were read and verified record by record because no footer names them.
    pub scanned_bytes: u64,
    /// Where the log was cut, if something that was begun is missing at its end.
    pub cut: Option<LogCut>,
    /// End of the recovered log.
    pub end: LogPosition,
    /// Where the last record ends, and how many bytes are free there, if the last segment takes more. The driver erases
    /// [`crate::RECORD_MARK_BYTES`] there, or the same record, sent again to the same place, could make a torn one
    /// whole. It erases [`crate::RESERVED_BYTES_MAX`] from there on, or from `torn_end`, or that record could lead to
    /// one behind it that this recovery did not reach. Both durably.
    pub next: Option<(LogPosition, u64)>,
    /// Offset behind a record, the first at `next` or a later one of its group, of which the head is whole and the
    /// payload is not. It may be a damaged one: payloads up to here can stay for a repair by hand, because no payload
    /// is taken for a head.
    pub torn_end: Option<u64>,
    /// Damage that is no torn tail: the rest of the log is there.
    pub corrupt: Vec<Corruption>,
    /// Which file holds which segment of the log.
    pub files: BTreeMap<SegmentId, SegmentKey>,
    /// Files that hold nothing of the log and may be recycled or removed.
    pub free: Vec<SegmentKey>,
    /// Records that were not read: index runs index them.
    pub run_records: u64,
    /// Index runs that are not in use: they may be removed. What is wrong with them, if they were not merged into
    /// others.
    pub free_index_runs: Vec<(RunKey, Option<&'static str>)>,
}

/// The end of the log, where it is not a clean one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogCut {
    /// The segment.
    pub segment: SegmentId,
    /// Offset of the first byte that is not part of the log.
    pub offset: u64,
    /// What was found there.
    pub why: LogCutReason,
}

/// Why a log was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogCutReason {
    /// A record was begun, but its header is not whole.
    TornHeader,
    /// A record's header is whole, its payload is not.
    TornPayload,
    /// Records of an atomic group are there, but not all.
    IncompleteGroup,
    /// A record that contradicts those before it.
    Contradiction,
    /// Later segments exist, but what leads to them is missing.
    LostBeforeLaterSegment,
    /// A record stamped after the instant up to which the log was to be recovered.
    BeyondLimit,
}

/// Damage in the part of the log that was durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// The file.
    pub key: SegmentKey,
    /// The segment, if that could be read.
    pub segment: Option<SegmentId>,
    /// Offset of the damage in the file.
    pub offset: u64,
    /// What is wrong and what it means, for people.
    pub what: String,
    /// Records are missing because of it: without them files read as they never were. Other damage is noticed when what
    /// it hit is read.
    pub loses: bool,
    /// It looks as a footer does that was being written when the server ended. What is lost of it is time: the records
    /// that it names are read instead, and it is written anew. The driver knows whether it can have been.
    pub may_be_torn: bool,
}

impl MultiLog {
    /// Rebuilds a log from its segments; `on_record` sees every record in log order, those in index runs left out.
    ///
    /// The log goes on where the recovered one ends. Before anything recovered counts as durable the driver syncs the
    /// files of [`RecoveryReport::files`]: after a killed process they may be in the page cache only. Free files are
    /// removed or recycled before the next recovery.
    ///
    /// # Errors
    /// If files cannot be listed or read, are of another format version, or two hold the same segment: nothing was
    /// changed; mend it and start again.
    ///
    /// # Cost
    /// About a microsecond a record, and reading the segments that have no footer yet.
    pub fn recover(
        settings: LogSettings,
        source: &mut dyn LogSource,
        on_record: &mut dyn FnMut(&RecordHeader),
    ) -> Result<(MultiLog, RecoveryReport), Error> {
        let mut on_recovered = |recovered: RecoveredItem<'_>| {
            if let RecoveredItem::Record(header) = recovered {
                on_record(header);
            }
        };
        MultiLog::recover_upto(settings, source, Hlc::MAX, &mut on_recovered)
    }

    /// As [`MultiLog::recover`], but ends the log before the first record stamped after `upto` that no footer names it
    /// for: what the driver knows to depend on something that is lost. The driver wipes the header of that record, or
    /// the next recovery finds it again.
    ///
    /// # Errors
    /// As [`MultiLog::recover`].
    pub fn recover_upto(
        settings: LogSettings,
        source: &mut dyn LogSource,
        upto: Hlc,
        on_recovered: &mut dyn FnMut(RecoveredItem<'_>),
    ) -> Result<(MultiLog, RecoveryReport), Error> {
        let mut log = MultiLog::new(settings);
        log.discarded = sorted(source.discarded());
        log.packs = Packs::of(source.packs());
        let mut recovery = LogRecovery {
            upto,
            log,
            report: RecoveryReport::default(),
            reader: SegmentReader::new(source),
            candidates: BTreeMap::new(),
            damaged: Vec::new(),
            lost_durable: false,
            short: BTreeSet::new(),
            on_recovered,
        };
        recovery.find_segments()?;
        recovery.take_durable()?;
        recovery.take_tail()?;
        Ok(recovery.finish())
    }
}

struct LogRecovery<'a> {
    /// Records of the tail stamped later are not part of the log.
    upto: Hlc,
    log: MultiLog,
    report: RecoveryReport,
    reader: SegmentReader<'a>,
    /// Segments found and not yet taken into the log.
    candidates: BTreeMap<SegmentId, SegmentFile>,
    /// Files that are not blank and have no readable header.
    damaged: Vec<SegmentKey>,
    /// A segment that was durable cannot be found.
    lost_durable: bool,
    /// Segments whose files are shorter than they were made.
    short: BTreeSet<SegmentId>,
    on_recovered: &'a mut dyn FnMut(RecoveredItem<'_>),
}

/// How a scan treats what does not fit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RecoveryMode {
    /// It ends the log.
    Tail,
    /// Up to this offset, where a record of this stamp ends, it is damage: report it and go on if that is possible.
    Durable { end: u64, stamp: Hlc },
}

impl LogRecovery<'_> {
    fn find_segments(&mut self) -> Result<(), Error> {
        for (key, len) in self.reader.segments()? {
            let candidate = match self.reader.candidate(key, len)? {
                Ok(candidate) => candidate,
                Err(NoHeader::WrongVersion { segment, found }) => {
                    return Err(Error::WrongVersion { segment, expected: FORMAT_VERSION, found });
                }
                Err(NoHeader::Unreadable) => {
                    self.damaged.push(key);
                    continue;
                }
                Err(NoHeader::Blank) => {
                    self.report.free.push(key);
                    continue;
                }
            };
            let id = candidate.header.id;
            // No log counts that far: the next segment needs a number above it.
            let Some(next) = id.0.checked_add(1) else {
                self.damaged.push(key);
                continue;
            };
            self.log.next_segment = self.log.next_segment.max(SegmentId(next));
            if candidate.header_damaged {
                self.corrupt(
                    key,
                    Some(id),
                    0,
                    "the segment's header is damaged; its copy in the footer is used".to_owned(),
                );
            }
            if let Some(other) = self.candidates.insert(id, candidate) {
                return Err(Error::DoubleSegment { segment: id, first: other.key.0, second: key.0 });
            }
        }
        Ok(())
    }

    /// Takes in everything up to the last segment with a footer.
    fn take_durable(&mut self) -> Result<(), Error> {
        let sealed_before = |candidates: &BTreeMap<SegmentId, SegmentFile>, id: SegmentId| {
            candidates.range(..id).rev().find(|(_, candidate)| candidate.trailer.is_some()).map(|(id, _)| *id)
        };
        let mut order = Vec::new();
        let mut next = sealed_before(&self.candidates, SegmentId(u64::MAX));
        while let Some(id) = next {
            let SegmentFile { key, header, .. } = self.candidates[&id];
            order.push(id);
            let before = header.previous.end.segment;
            next = (before != SegmentId(0)).then_some(before);
            if next.is_some_and(|before| !self.candidates.contains_key(&before)) {
                self.lost_durable = true;
                self.lose(
                    key,
                    Some(before),
                    0,
                    format!("segment {before}, which leads to segment {id} in this file, is missing"),
                );
                next = sealed_before(&self.candidates, before);
            }
        }
        let indexed = self.take_index_runs(&order)?;
        for (at, id) in order.iter().enumerate().rev().skip(indexed) {
            let candidate = self.candidates.remove(id).expect("the order holds candidates, each once: links lead down");
            self.open(&candidate);
            let footer = self.take_footer(&candidate)?;
            let closed = candidate.trailer.is_some_and(|trailer| trailer.closed);
            // Where the segment after it says that this one ended; the last one's end is known to its footer only.
            let follower = at.checked_sub(1).map(|after| self.candidates[&order[after]].header.previous);
            let (end, stamp) = match (follower, candidate.trailer) {
                (Some(link), _) if link.end.segment == *id => (link.end.offset, link.stamp),
                (_, trailer) => trailer.map_or((0, Hlc::ZERO), |trailer| (trailer.end, trailer.stamp)),
            };
            if self.segment().end < end {
                self.scan(&candidate, RecoveryMode::Durable { end, stamp })?;
            } else if footer && (follower.is_some() || closed) {
                self.segment().close();
            }
            if follower.is_none() && !(footer && closed) {
                // Records may follow those of the footer, and no footer names them.
                let why = self.scan(&candidate, RecoveryMode::Tail)?;
                self.report.cut = self.cut(why);
            }
        }
        Ok(())
    }

    /// Adds a segment by its footer. False if there is none, or it is damaged.
    fn take_footer(&mut self, candidate: &SegmentFile) -> Result<bool, Error> {
        let Some(trailer) = candidate.trailer else { return Ok(false) };
        let id = candidate.header.id;
        let (len, offset) = (trailer.entries_bytes as usize, trailer.footer_at());
        let entries = self.reader.bytes(candidate.key, offset, len)?.to_vec();
        let whole = entries.len() == len && crc32c(&entries) == trailer.entries_crc;
        let listed = FooterEntries::new(&candidate.header, &entries).all(trailer.records).filter(|_| whole);
        let Some(listed) = listed else {
            self.corrupt(
                candidate.key,
                Some(id),
                offset,
                "the segment's footer is damaged; its records are read instead".to_owned(),
            );
            self.report.corrupt.last_mut().expect("just noted").may_be_torn = true;
            return Ok(false);
        };
        for listed in listed {
            self.take(candidate.key, &listed.header, &listed.entry);
        }
        self.segment().cover_all();
        Ok(true)
    }

    /// Takes in what follows the durable part, as far as it is whole.
    fn take_tail(&mut self) -> Result<(), Error> {
        while self.report.cut.is_none() {
            let tip = self.log.segments.last().map_or_else(Default::default, LogSegment::link);
            // Of several that follow here, all but the last were given up before they held anything.
            let next = self.candidates.iter().rev().find(|(_, candidate)| candidate.header.previous == tip);
            let Some(id) = next.map(|(id, _)| *id) else {
                if self.candidates.values().any(|candidate| candidate.header.previous.end > tip.end) {
                    self.report.cut = self.cut(Some(LogCutReason::LostBeforeLaterSegment));
                }
                return Ok(());
            };
            let candidate = self.candidates.remove(&id).expect("just found");
            self.open(&candidate);
            let why = self.scan(&candidate, RecoveryMode::Tail)?;
            self.report.cut = self.cut(why);
        }
        Ok(())
    }

    /// Makes a segment the last of the log.
    fn open(&mut self, candidate: &SegmentFile) {
        if let Some(before) = self.log.segments.last_mut().filter(|before| before.state == SegmentState::Open) {
            before.state = SegmentState::Full;
        }
        self.log.segments.push(LogSegment::new(candidate.header));
        self.log.tip = self.segment().link();
        self.report.files.insert(candidate.header.id, candidate.key);
        let SegmentFile { key, len, header, .. } = *candidate;
        if len < header.bytes {
            self.short.insert(header.id);
            let what = format!("the file was cut from {} to {len} bytes; nothing more is written to it", header.bytes);
            self.corrupt(key, Some(header.id), len, what);
        }
    }

    /// The last segment of the log.
    fn segment(&mut self) -> &mut LogSegment {
        self.log.segments.last_mut().expect("a segment was opened")
    }

    fn cut(&self, why: Option<LogCutReason>) -> Option<LogCut> {
        let LogPosition { segment, offset } = self.log.end();
        why.map(|why| LogCut { segment, offset, why })
    }

    /// Reads the records of the last segment from where it ends. Returns why it stopped if that was not the clean end.
    fn scan(&mut self, candidate: &SegmentFile, mode: RecoveryMode) -> Result<Option<LogCutReason>, Error> {
        let SegmentFile { key, header: segment, .. } = *candidate;
        let mut group: Vec<RecordRead> = Vec::new();
        let mut cursor = self.segment().cursor.clone();
        let why = loop {
            if matches!(mode, RecoveryMode::Durable { end, .. } if end == cursor.at) && group.is_empty() {
                return Ok(None);
            }
            let (read, whole) = match self.reader.record(key, &segment, &cursor)? {
                NextRecord::End if group.is_empty() => break None,
                NextRecord::End => break Some(LogCutReason::IncompleteGroup),
                NextRecord::TornHead => break Some(LogCutReason::TornHeader),
                NextRecord::TornPayload(read) if mode == RecoveryMode::Tail => {
                    self.report.torn_end = Some(read.span.end);
                    break Some(LogCutReason::TornPayload);
                }
                NextRecord::TornPayload(read) => (read, false),
                NextRecord::Record(read) => (read, true),
            };
            let RecordRead { header, entry, span } = &read;
            if !whole {
                let what = format!(
                    "{} bytes of chunk {} at offset {} written at {} are damaged",
                    header.len, header.chunk, header.offset, header.stamp
                );
                self.corrupt(key, Some(segment.id), span.start, what);
            }
            self.report.scanned_bytes += span.end - span.start;
            cursor.pass(&segment, header, entry);
            let first = group.first().map_or(header, |read| &read.header);
            let follows = if header.parts == 0 { group.is_empty() } else { usize::from(header.part) == group.len() };
            if !follows || (header.parts, header.stamp) != (first.parts, first.stamp) {
                break Some(LogCutReason::IncompleteGroup);
            }
            let is_whole = header.ends_group();
            group.push(read);
            if !is_whole {
                continue;
            }
            if mode == RecoveryMode::Tail && group.iter().any(|read| self.log.refuses(&read.header).is_some()) {
                break Some(LogCutReason::Contradiction);
            }
            if mode == RecoveryMode::Tail && group.iter().any(|read| read.header.stamp > self.upto) {
                break Some(LogCutReason::BeyondLimit);
            }
            for RecordRead { header, entry, .. } in group.drain(..) {
                self.take(key, &header, &entry);
            }
        };
        let tip = self.segment().link();
        if mode == RecoveryMode::Tail && self.candidates.values().any(|next| next.header.previous == tip) {
            // A segment says that this one ended here: what lies behind are bytes of an earlier use, or of what was
            // given up.
            return Ok(None);
        }
        if let RecoveryMode::Durable { end, stamp } = mode {
            let at = self.segment().end;
            self.lose(
                key,
                Some(segment.id),
                at,
                format!("records from here to byte {end} of the segment cannot be read"),
            );
            // Nothing may follow here, and no footer may name it.
            (self.segment().end, self.segment().stamp) = (end, stamp);
            self.segment().close();
            self.log.tip = self.segment().link();
        }
        Ok(why)
    }

    /// Adds a record of the last segment; one that contradicts those before it was durable and is left out.
    fn take(&mut self, key: SegmentKey, header: &RecordHeader, entry: &FooterEntry) {
        let begins = LogPosition { segment: self.segment().header.id, offset: self.segment().end };
        if is_discarded(&self.log.discarded, header, begins) {
            let segment = self.segment();
            segment.add(header, entry);
            self.log.tip = self.segment().link();
            return;
        }
        if let Some(why) = self.log.refuses(header) {
            let segment = self.segment();
            let (id, at) = (segment.header.id, segment.end);
            segment.add(header, entry);
            self.log.tip = self.segment().link();
            self.lose(key, Some(id), at, format!("a record of chunk {} is left out: {why}", header.chunk));
            return;
        }
        self.log.admit(header, entry);
        (self.on_recovered)(RecoveredItem::Record(header));
        self.report.records += 1;
    }

    fn finish(mut self) -> (MultiLog, RecoveryReport) {
        for segment in self.log.segments.iter_mut().filter(|segment| self.short.contains(&segment.header.id)) {
            segment.close();
        }
        for key in std::mem::take(&mut self.damaged) {
            if self.lost_durable {
                self.corrupt(key, None, 0, "the header is damaged: this may be a segment that is missing".to_owned());
            } else {
                self.report.free.push(key);
            }
        }
        self.report.free.extend(self.candidates.values().map(|candidate| candidate.key));
        self.report.free.sort_unstable();
        self.report.end = self.log.end();
        if let Some(open) = self.log.segments.last_mut().filter(|last| last.state == SegmentState::Open) {
            let end = LogPosition { segment: open.header.id, offset: open.end };
            self.report.next = open.footer_at().checked_sub(open.end).map(|free| (end, free));
        }
        (self.log, self.report)
    }

    fn corrupt(&mut self, key: SegmentKey, segment: Option<SegmentId>, offset: u64, what: String) {
        self.report.corrupt.push(Corruption { key, segment, offset, what, loses: false, may_be_torn: false });
    }

    fn lose(&mut self, key: SegmentKey, segment: Option<SegmentId>, offset: u64, what: String) {
        self.report.corrupt.push(Corruption { key, segment, offset, what, loses: true, may_be_torn: false });
    }
}
