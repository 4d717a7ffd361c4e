//! Rebuilding the log from its segments after a stop or a crash.
//!
//! Guarantees: the result is a prefix of what was published, whole groups only; two recoveries of the same bytes give
//! the same log; a damaged file costs what it held and nothing else, and is named.
//! Leaves to others: listing and reading files, keeping or recycling those that are free.
//!
//! # The algorithm
//! A footer names only records that are durable, and all before them are too. So everything up to the last footer was
//! durable: those segments are found by following each header's link backwards, read by their footers, and what is
//! unreadable there is *corruption*, reported while the rest goes on. What follows is the *tail*: each segment is scanned
//! record by record, payloads verified, and the one after it is taken if its header names exactly where the scan ended
//! and the stamp of the record there. The first thing that does not fit ends the log.
//!
//! The oldest of the durable segments need not even be read by their footers: shelves say the same ([`shelved`]).
//!
//! Why both: an unverified tail would show torn records, and a scan of everything would take as long as the history is.

mod read;
mod shelved;
mod source;

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::{SegmentId, crc32c};
use frieze_hlc::Hlc;

use crate::discarded::{is_discarded, sorted};
use crate::entry::{Entries, Entry};
use crate::error::Error;
use crate::header::{FORMAT_VERSION, LogPosition, NoHeader};
use crate::log::{MultiLog, Settings};
use crate::record::RecordMeta;
use crate::segment::{Segment, SegmentState};
use crate::shelf::{ChainTip, ShelfKey};
use read::{Candidate, Next, Read, Reader};
pub use source::{SegmentKey, SegmentSource};

/// What recovery shows its driver, in this order.
#[derive(Clone, Copy, Debug)]
pub enum Recovered<'a> {
    /// Once, if there are shelves: records that are not shown one by one.
    Shelved {
        /// The last record of each chain.
        chains: &'a [ChainTip],
        /// Stamp of the last record.
        newest: Hlc,
        /// What the driver gave to [`crate::ShelfBuilder::finish`] for the last of them.
        companion: &'a [u8],
    },
    /// The next record.
    Record(&'a RecordMeta),
}

/// What recovery found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Records in the recovered log.
    pub records: u64,
    /// Bytes that were read and verified record by record because no footer vouches for them.
    pub scanned_bytes: u64,
    /// Where the log was cut, if something that was begun is missing at its end.
    pub cut: Option<Cut>,
    /// End of the recovered log.
    pub end: LogPosition,
    /// Where the last record ends, and how many bytes are free there, if the last segment takes more. The driver wipes what is
    /// left of a head there, up to [`crate::RECORD_MARK_BYTES`]: torn once more, the same record sent again could make it
    /// whole.
    pub next: Option<(LogPosition, u64)>,
    /// Damage that is no torn tail: the rest of the log is there.
    pub corrupt: Vec<Corruption>,
    /// Which file holds which segment of the log.
    pub files: BTreeMap<SegmentId, SegmentKey>,
    /// Files that hold nothing of the log and may be recycled or removed.
    pub free: Vec<SegmentKey>,
    /// Records that were not read: shelves index them.
    pub shelved_records: u64,
    /// Shelves that are not in use: they may be removed. What is wrong with them, if they were not merged into others.
    pub free_shelves: Vec<(ShelfKey, Option<&'static str>)>,
}

/// The end of the log, where it is not a clean one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The segment.
    pub segment: SegmentId,
    /// Offset of the first byte that is not part of the log.
    pub offset: u64,
    /// What was found there.
    pub why: CutReason,
}

/// Why a log was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutReason {
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
    /// Rebuilds a log from its segments; `on_record` sees every record in log order, those on shelves left out.
    ///
    /// The log goes on where the recovered one ends. Before anything recovered counts as durable the driver syncs the
    /// files of [`Report::files`]: after a killed process they may be in the page cache only. Free files are removed or
    /// recycled before the next recovery.
    ///
    /// # Errors
    /// If files cannot be listed or read, are of another format version, or two hold the same segment: nothing was
    /// changed; mend it and start again.
    ///
    /// # Cost
    /// About a microsecond a record, and reading the segments that have no footer yet.
    pub fn recover(
        settings: Settings,
        source: &mut dyn SegmentSource,
        on_record: &mut dyn FnMut(&RecordMeta),
    ) -> Result<(MultiLog, Report), Error> {
        let mut on_recovered = |recovered: Recovered<'_>| {
            if let Recovered::Record(meta) = recovered {
                on_record(meta);
            }
        };
        MultiLog::recover_upto(settings, source, Hlc::MAX, &mut on_recovered)
    }

    /// As [`MultiLog::recover`], but ends the log before the first record stamped after `upto` that no footer vouches
    /// for: what the driver knows to depend on something that is lost. The driver wipes the header of that record, or
    /// the next recovery finds it again.
    ///
    /// # Errors
    /// As [`MultiLog::recover`].
    pub fn recover_upto(
        settings: Settings,
        source: &mut dyn SegmentSource,
        upto: Hlc,
        on_recovered: &mut dyn FnMut(Recovered<'_>),
    ) -> Result<(MultiLog, Report), Error> {
        let mut log = MultiLog::new(settings);
        log.discarded = sorted(source.discarded());
        let mut recovery = Recovery {
            upto,
            log,
            report: Report::default(),
            reader: Reader::new(source),
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

struct Recovery<'a> {
    /// Records of the tail stamped later are not part of the log.
    upto: Hlc,
    log: MultiLog,
    report: Report,
    reader: Reader<'a>,
    /// Segments found and not yet taken into the log.
    candidates: BTreeMap<SegmentId, Candidate>,
    /// Files that are not blank and have no readable header.
    damaged: Vec<SegmentKey>,
    /// A segment that was durable cannot be found.
    lost_durable: bool,
    /// Segments whose files are shorter than they were made.
    short: BTreeSet<SegmentId>,
    on_recovered: &'a mut dyn FnMut(Recovered<'_>),
}

/// How a scan treats what does not fit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// It ends the log.
    Tail,
    /// Up to this offset, where a record of this stamp ends, it is damage: report it and go on if that is possible.
    Durable { end: u64, stamp: Hlc },
}

impl Recovery<'_> {
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
            self.log.next_segment = self.log.next_segment.max(SegmentId(id.0 + 1));
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
        let sealed_before = |candidates: &BTreeMap<SegmentId, Candidate>, id: SegmentId| {
            candidates.range(..id).rev().find(|(_, candidate)| candidate.trailer.is_some()).map(|(id, _)| *id)
        };
        let mut order = Vec::new();
        let mut next = sealed_before(&self.candidates, SegmentId(u64::MAX));
        while let Some(id) = next {
            let Candidate { key, header, .. } = self.candidates[&id];
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
        let shelved = self.take_shelves(&order)?;
        for (at, id) in order.iter().enumerate().rev().skip(shelved) {
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
                self.scan(&candidate, Mode::Durable { end, stamp })?;
            } else if footer && (follower.is_some() || closed) {
                self.segment().close();
            }
            if follower.is_none() && !(footer && closed) {
                // Records may follow those of the footer: nobody vouches for them.
                let why = self.scan(&candidate, Mode::Tail)?;
                self.report.cut = self.cut(why);
            }
        }
        Ok(())
    }

    /// Takes in a segment by its footer. False if there is none, or it is damaged.
    fn take_footer(&mut self, candidate: &Candidate) -> Result<bool, Error> {
        let Some(trailer) = candidate.trailer else { return Ok(false) };
        let id = candidate.header.id;
        let (len, offset) = (trailer.entries_bytes as usize, trailer.footer_at());
        let entries = self.reader.bytes(candidate.key, offset, len)?.to_vec();
        let whole = entries.len() == len && crc32c(&entries) == trailer.entries_crc;
        let listed = Entries::new(&candidate.header, &entries).all(trailer.records).filter(|_| whole);
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
            self.take(candidate.key, &listed.meta, &listed.entry);
        }
        self.segment().vouch_for_all();
        Ok(true)
    }

    /// Takes in what follows the durable part, as far as it is whole.
    fn take_tail(&mut self) -> Result<(), Error> {
        while self.report.cut.is_none() {
            let tip = self.log.segments.last().map_or_else(Default::default, Segment::link);
            // Of several that follow here, all but the last were given up before they held anything.
            let next = self.candidates.iter().rev().find(|(_, candidate)| candidate.header.previous == tip);
            let Some(id) = next.map(|(id, _)| *id) else {
                if self.candidates.values().any(|candidate| candidate.header.previous.end > tip.end) {
                    self.report.cut = self.cut(Some(CutReason::LostBeforeLaterSegment));
                }
                return Ok(());
            };
            let candidate = self.candidates.remove(&id).expect("just found");
            self.open(&candidate);
            let why = self.scan(&candidate, Mode::Tail)?;
            self.report.cut = self.cut(why);
        }
        Ok(())
    }

    /// Makes a segment the last of the log.
    fn open(&mut self, candidate: &Candidate) {
        if let Some(before) = self.log.segments.last_mut().filter(|before| before.state == SegmentState::Open) {
            before.state = SegmentState::Full;
        }
        self.log.segments.push(Segment::new(candidate.header));
        self.log.tip = self.segment().link();
        self.report.files.insert(candidate.header.id, candidate.key);
        let Candidate { key, len, header, .. } = *candidate;
        if len < header.bytes {
            self.short.insert(header.id);
            let what = format!("the file was cut from {} to {len} bytes; nothing more is written to it", header.bytes);
            self.corrupt(key, Some(header.id), len, what);
        }
    }

    /// The last segment of the log.
    fn segment(&mut self) -> &mut Segment {
        self.log.segments.last_mut().expect("a segment was opened")
    }

    fn cut(&self, why: Option<CutReason>) -> Option<Cut> {
        let LogPosition { segment, offset } = self.log.end();
        why.map(|why| Cut { segment, offset, why })
    }

    /// Reads the records of the last segment from where it ends. Returns why it stopped if that was not the clean end.
    fn scan(&mut self, candidate: &Candidate, mode: Mode) -> Result<Option<CutReason>, Error> {
        let Candidate { key, header: segment, .. } = *candidate;
        let mut group: Vec<Read> = Vec::new();
        let mut cursor = self.segment().cursor.clone();
        let why = loop {
            if matches!(mode, Mode::Durable { end, .. } if end == cursor.at) && group.is_empty() {
                return Ok(None);
            }
            let (read, whole) = match self.reader.record(key, &segment, &cursor)? {
                Next::End if group.is_empty() => break None,
                Next::End => break Some(CutReason::IncompleteGroup),
                Next::TornHead => break Some(CutReason::TornHeader),
                Next::TornPayload(_) if mode == Mode::Tail => break Some(CutReason::TornPayload),
                Next::TornPayload(read) => (read, false),
                Next::Record(read) => (read, true),
            };
            let Read { meta, entry, span } = &read;
            if !whole {
                let what = format!(
                    "{} bytes of chunk {} at offset {} written at {} are damaged",
                    meta.len, meta.chunk, meta.offset, meta.stamp
                );
                self.corrupt(key, Some(segment.id), span.start, what);
            }
            self.report.scanned_bytes += span.end - span.start;
            cursor.pass(&segment, meta, entry);
            let first = group.first().map_or(meta, |read| &read.meta);
            let follows = if meta.parts == 0 { group.is_empty() } else { usize::from(meta.part) == group.len() };
            if !follows || (meta.parts, meta.stamp) != (first.parts, first.stamp) {
                break Some(CutReason::IncompleteGroup);
            }
            let is_whole = meta.ends_group();
            group.push(read);
            if !is_whole {
                continue;
            }
            if mode == Mode::Tail && group.iter().any(|read| self.log.refuses(&read.meta).is_some()) {
                break Some(CutReason::Contradiction);
            }
            if mode == Mode::Tail && group.iter().any(|read| read.meta.stamp > self.upto) {
                break Some(CutReason::BeyondLimit);
            }
            for Read { meta, entry, .. } in group.drain(..) {
                self.take(key, &meta, &entry);
            }
        };
        let tip = self.segment().link();
        if mode == Mode::Tail && self.candidates.values().any(|next| next.header.previous == tip) {
            // A segment says that this one ended here: what lies behind are bytes of an earlier use, or of what was given up.
            return Ok(None);
        }
        if let Mode::Durable { end, stamp } = mode {
            let at = self.segment().end;
            self.lose(
                key,
                Some(segment.id),
                at,
                format!("records from here to byte {end} of the segment cannot be read"),
            );
            // Nothing may follow here, and no footer may vouch for it.
            (self.segment().end, self.segment().stamp) = (end, stamp);
            self.segment().close();
            self.log.tip = self.segment().link();
        }
        Ok(why)
    }

    /// Takes in a record of the last segment; one that contradicts those before it was durable and is left out.
    fn take(&mut self, key: SegmentKey, meta: &RecordMeta, entry: &Entry) {
        let begins = LogPosition { segment: self.segment().header.id, offset: self.segment().end };
        if is_discarded(&self.log.discarded, meta, begins) {
            let segment = self.segment();
            segment.add(meta, entry);
            self.log.tip = self.segment().link();
            return;
        }
        if let Some(why) = self.log.refuses(meta) {
            let segment = self.segment();
            let (id, at) = (segment.header.id, segment.end);
            segment.add(meta, entry);
            self.log.tip = self.segment().link();
            self.lose(key, Some(id), at, format!("a record of chunk {} is left out: {why}", meta.chunk));
            return;
        }
        self.log.admit(meta, entry);
        (self.on_recovered)(Recovered::Record(meta));
        self.report.records += 1;
    }

    fn finish(mut self) -> (MultiLog, Report) {
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
