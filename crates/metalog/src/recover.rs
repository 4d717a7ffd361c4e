//! From the bytes of a directory back to the log: the entries that count, and what has to be mended before it goes on.

use frieze_base::{Fault, LogIndex, SegmentId, crc32c};
use frieze_hlc::Hlc;

use crate::error::Error;
use crate::format::{
    self, ENTRY_HEADER_BYTES, EntryHeader, FORMAT_VERSION, JournalHeader, SEGMENT_HEADER_BYTES, SegmentStart,
};
use crate::log::{LogTail, Metalog, NeededSegment, Spare};
use crate::message::{DataEnd, LogEntry};
use crate::settings::MetalogSettings;

/// Where recovery reads.
pub trait SegmentSource {
    /// Every segment file: its id, from its name, and its length in bytes. In any order.
    ///
    /// # Errors
    /// The directory cannot be read.
    fn segments(&mut self) -> Result<Vec<(SegmentId, u64)>, Fault>;

    /// Reads from `offset` into `into`; fewer bytes only at the end of the file.
    ///
    /// # Errors
    /// The file cannot be read.
    fn read(&mut self, segment: SegmentId, offset: u64, into: &mut [u8]) -> Result<usize, Fault>;
}

/// What recovery starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoverFrom {
    /// Last entry whose effects the store holds durably; 0 for none.
    pub applied: LogIndex,
    /// Where the data log ends after its own recovery.
    pub data_end: DataEnd,
}

/// A recovered log.
#[derive(Debug)]
pub struct RecoveredMetalog {
    /// The log, ready to go on.
    pub log: Metalog,
    /// What was found.
    pub report: MetalogReport,
    /// What the driver does, in order, and syncs (files and directory) before the log is used: what was cut must not
    /// come back after the next crash.
    pub mend: Vec<Mend>,
}

/// What recovery found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetalogReport {
    /// Entries given to the visitor.
    pub entries: u64,
    /// Last entry of the log.
    pub last: LogIndex,
    /// Where something that looks like an entry was left out, if anything was.
    pub cut: Option<MetalogCut>,
}

/// Where the log was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetalogCut {
    /// The segment.
    pub segment: SegmentId,
    /// Where in it.
    pub offset: u64,
    /// The entry that would have been there.
    pub index: LogIndex,
    /// Why.
    pub why: MetalogCutReason,
}

/// Why the log was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetalogCutReason {
    /// The entry is not whole: the crash came before its flush.
    Torn,
    /// The entry names data that the crash lost: a name is never there without the bytes written before it.
    BeyondData,
}

/// One thing to mend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mend {
    /// Write zeros.
    Erase {
        /// The segment.
        segment: SegmentId,
        /// From here,
        offset: u64,
        /// so many bytes.
        len: u64,
    },
    /// Remove the file.
    Remove {
        /// The file.
        segment: SegmentId,
    },
}

impl Metalog {
    /// Recovers the log from its files: a prefix of what was proposed, holding everything that was durable. Gives the
    /// entries after `from.applied` to `visit`, in order.
    ///
    /// The log ends at the first entry that is not whole, or that names data beyond `from.data_end`. A file may hold
    /// anything from an earlier use.
    ///
    /// # Errors
    /// `Missing` or `NoSegment` if the log does not reach back to the store; `Damaged`, `Truncated` or `DataMissing` if
    /// something that was on stable storage is lost; `WrongVersion`: do not serve, and leave the files as they are.
    /// `Source`: a file cannot be read.
    pub fn recover(
        settings: MetalogSettings,
        from: RecoverFrom,
        source: &mut dyn SegmentSource,
        visit: &mut dyn FnMut(LogEntry),
    ) -> Result<RecoveredMetalog, Error> {
        let files = JournalFiles::read(source)?;
        let mut log = Metalog::new(settings);
        log.next_segment = SegmentId(files.all.last().map_or(0, |file| file.segment.0) + 1);
        let Some(start) = files.start(from.applied) else {
            files.check_never_flushed(source, from.applied)?;
            let mend = files.all.iter().map(|file| Mend::Remove { segment: file.segment }).collect();
            let report = MetalogReport { entries: 0, last: LogIndex(0), cut: None };
            return Ok(RecoveredMetalog { log, report, mend });
        };

        let mut walk = LogWalk::new(from, files.all[start]);
        let mut bytes = files.load(source, walk.segment)?;
        log.held.push_back(walk.needed_segment(&files));
        let why = loop {
            match walk.next(&bytes) {
                WalkStep::Entry(entry) => {
                    if entry.index > from.applied {
                        walk.entries += 1;
                        visit(entry);
                    }
                }
                WalkStep::BeyondData(needed) => break Some((MetalogCutReason::BeyondData, needed)),
                WalkStep::Nothing { torn } => {
                    let Some(next) = files.following(&walk) else {
                        break torn.then_some((MetalogCutReason::Torn, DataEnd::default()));
                    };
                    walk.enter(next);
                    bytes = files.load(source, walk.segment)?;
                    log.held.push_back(walk.needed_segment(&files));
                }
            }
        };

        let left = files.beyond(source, &walk, &bytes)?;
        walk.check_undamaged(left.durable, why)?;
        let file_bytes = bytes.len() as u64;
        let mut mend = Vec::new();
        let len = if left.in_segment { file_bytes - walk.offset } else { left.remnant_bytes };
        if len > 0 {
            mend.push(Mend::Erase { segment: walk.segment, offset: walk.offset, len });
        }
        mend.extend(left.later.into_iter().map(|segment| Mend::Remove { segment }));

        let last = LogIndex(walk.next_index.0 - 1);
        log.term = walk.term + 1;
        log.last = last;
        log.committed = last;
        log.durable = from.applied.min(last);
        log.newest = walk.newest;
        log.tail = Some(LogTail { segment: walk.segment, bytes: file_bytes, offset: walk.offset, link: walk.link });
        let before = files.all[..start].iter();
        log.spare.extend(before.map(|file| Spare { segment: file.segment, bytes: file.bytes }));
        let cut =
            why.map(|(why, _)| MetalogCut { segment: walk.segment, offset: walk.offset, index: walk.next_index, why });
        Ok(RecoveredMetalog { log, report: MetalogReport { entries: walk.entries, last, cut }, mend })
    }
}

/// One file, by what its first bytes say.
#[derive(Clone, Copy, Debug)]
struct JournalFile {
    segment: SegmentId,
    bytes: u64,
    /// `None`: the segment was never begun under this id.
    header: Option<JournalHeader>,
}

/// The files of the log, by id.
struct JournalFiles {
    all: Vec<JournalFile>,
}

/// What lies beyond the end of the log.
#[derive(Debug, Default)]
struct BeyondEnd {
    /// The last segment still holds entries of its own after the end.
    in_segment: bool,
    /// Bytes in the place of the next header, if anything is in it. What a loss of power left of a header begins as the
    /// next one may: of that a later loss may leave just the beginning, and what was cut would be whole again.
    remnant_bytes: u64,
    /// Files with higher ids.
    later: Vec<SegmentId>,
    /// The newest index that any of it says was durable.
    durable: LogIndex,
}

impl JournalFiles {
    fn read(source: &mut dyn SegmentSource) -> Result<JournalFiles, Error> {
        let mut all = Vec::new();
        for (segment, bytes) in source.segments().map_err(Error::Source)? {
            let mut start = [0u8; SEGMENT_HEADER_BYTES];
            let len = fill(source, segment, &mut start)?;
            let header = match JournalHeader::decode(&start[..len]) {
                SegmentStart::Begun(header) if header.segment == segment => {
                    if bytes < header.bytes {
                        return Err(Error::Truncated { segment, found: bytes, expected: header.bytes });
                    }
                    Some(header)
                }
                SegmentStart::Begun(_) | SegmentStart::NotBegun => None,
                SegmentStart::OtherVersion(found) => {
                    return Err(Error::WrongVersion { segment, found, expected: FORMAT_VERSION });
                }
            };
            all.push(JournalFile { segment, bytes, header });
        }
        all.sort_by_key(|file| file.segment);
        Ok(JournalFiles { all })
    }

    /// The place of the segment that holds the first entry after `applied`, or will: the newest that begins no later.
    fn start(&self, applied: LogIndex) -> Option<usize> {
        self.all.iter().rposition(|file| file.header.is_some_and(|header| header.first.0 <= applied.0 + 1))
    }

    /// There is nothing to start from. That is right only if the crash came before the first flush.
    fn check_never_flushed(&self, source: &mut dyn SegmentSource, applied: LogIndex) -> Result<(), Error> {
        if applied > LogIndex(0) && self.all.is_empty() {
            return Err(Error::NoSegment { applied });
        }
        let mut left = BeyondEnd::default();
        for file in &self.all {
            left.see_file(source, self, file)?;
        }
        if applied == LogIndex(0) && left.durable == LogIndex(0) {
            return Ok(());
        }
        let first = self.all.iter().find_map(|file| file.header).map(|header| header.first);
        Err(match first {
            Some(first) => Error::Missing { applied, found: LogIndex(first.0 - 1) },
            None => Error::Damaged { segment: self.all[0].segment, offset: 0, index: LogIndex(applied.0 + 1) },
        })
    }

    /// The segment that goes on where the walk has come to. Of several (a roll that failed and was done again) the
    /// newest.
    fn following(&self, walk: &LogWalk) -> Option<JournalFile> {
        let follows = |header: JournalHeader| header.first == walk.next_index && header.link == walk.link;
        let later = self.all.iter().rev().take_while(|file| file.segment > walk.segment);
        later.copied().find(|file| file.header.is_some_and(follows))
    }

    /// All bytes of a segment.
    fn load(&self, source: &mut dyn SegmentSource, segment: SegmentId) -> Result<Vec<u8>, Error> {
        let file = self.all.iter().find(|file| file.segment == segment).expect("the walk stays on files");
        let mut bytes = vec![0u8; usize::try_from(file.bytes).expect("a segment fits in memory")];
        fill(source, segment, &mut bytes)?;
        Ok(bytes)
    }

    /// Looks through everything beyond the end of the log.
    fn beyond(&self, source: &mut dyn SegmentSource, walk: &LogWalk, bytes: &[u8]) -> Result<BeyondEnd, Error> {
        let mut left = BeyondEnd::default();
        left.in_segment = left.see(bytes, walk.offset, walk.segment);
        let rest = bytes.get(walk.offset as usize..).unwrap_or_default();
        let next = &rest[..rest.len().min(ENTRY_HEADER_BYTES)];
        left.remnant_bytes = if next.iter().any(|byte| *byte != 0) { next.len() as u64 } else { 0 };
        for file in self.all.iter().filter(|file| file.segment > walk.segment) {
            left.see_file(source, self, file)?;
            left.later.push(file.segment);
        }
        Ok(left)
    }
}

impl BeyondEnd {
    /// Takes in all of a file.
    fn see_file(
        &mut self,
        source: &mut dyn SegmentSource,
        files: &JournalFiles,
        file: &JournalFile,
    ) -> Result<(), Error> {
        self.durable = self.durable.max(file.header.map_or(LogIndex(0), |header| header.durable));
        self.see(&files.load(source, file.segment)?, 0, file.segment);
        Ok(())
    }

    /// Takes in the entries of `segment` from `offset` on; true if there are any.
    fn see(&mut self, bytes: &[u8], offset: u64, segment: SegmentId) -> bool {
        let mut any = false;
        let mut from = offset as usize;
        while from < bytes.len() {
            // Most of a segment was never written, and an entry begins with bytes that are not zero.
            let upto = (from + EMPTY.len()).min(bytes.len());
            if bytes[from..upto] != EMPTY[..upto - from] {
                let places = (from..upto).step_by(format::ALIGNMENT);
                for header in places.filter_map(|place| EntryHeader::decode(&bytes[place..], segment)) {
                    self.durable = self.durable.max(header.durable);
                    any = true;
                }
            }
            from = upto;
        }
        any
    }
}

/// What a piece of a segment looks like that holds nothing: a multiple of [`format::ALIGNMENT`].
static EMPTY: [u8; 4096] = [0; 4096];

/// A walk along the log.
struct LogWalk {
    from: RecoverFrom,
    segment: SegmentId,
    offset: u64,
    /// The entry expected at `offset`.
    next_index: LogIndex,
    /// Checksum of the header before it.
    link: u32,
    term: u64,
    newest: Hlc,
    entries: u64,
}

/// What lies at the walk's place.
enum WalkStep {
    Entry(LogEntry),
    BeyondData(DataEnd),
    Nothing { torn: bool },
}

impl LogWalk {
    fn new(from: RecoverFrom, file: JournalFile) -> LogWalk {
        let mut walk = LogWalk {
            from,
            segment: file.segment,
            offset: 0,
            next_index: LogIndex(0),
            link: 0,
            term: 0,
            newest: Hlc::ZERO,
            entries: 0,
        };
        walk.enter(file);
        walk
    }

    /// Goes on at the start of `file`.
    fn enter(&mut self, file: JournalFile) {
        let header = file.header.expect("only a segment that was begun is entered");
        self.segment = file.segment;
        self.offset = SEGMENT_HEADER_BYTES as u64;
        self.next_index = header.first;
        self.link = format::link_of(&header.encode());
        self.term = self.term.max(header.term);
        self.newest = self.newest.max(header.stamp);
    }

    /// The entry at the walk's place, and one step on; or why there is none.
    fn next(&mut self, bytes: &[u8]) -> WalkStep {
        let rest = bytes.get(self.offset as usize..).unwrap_or_default();
        let expected = |header: &EntryHeader| header.index == self.next_index && header.link == self.link;
        let Some(header) = EntryHeader::decode(rest, self.segment).filter(expected) else {
            return WalkStep::Nothing { torn: false };
        };
        let body = rest.get(ENTRY_HEADER_BYTES..ENTRY_HEADER_BYTES + header.body_len as usize);
        // What the store holds already is passed over by its header alone.
        let needed = header.index > self.from.applied;
        let body = match body {
            Some(body) if !needed || crc32c(body) == header.body_crc => body,
            _ => return WalkStep::Nothing { torn: true },
        };
        if needed && header.data_end > self.from.data_end {
            return WalkStep::BeyondData(header.data_end);
        }
        self.link = format::link_of(&rest[..ENTRY_HEADER_BYTES]);
        self.offset += header.size() as u64;
        self.next_index = LogIndex(header.index.0 + 1);
        self.term = self.term.max(header.term);
        self.newest = self.newest.max(header.last_stamp());
        WalkStep::Entry(LogEntry {
            index: header.index,
            term: header.term,
            stamp: header.stamp,
            count: header.count,
            data_end: header.data_end,
            body: body.to_vec(),
        })
    }

    /// What a crash takes was promised to no client. An entry that the store, or a later entry, says was durable was:
    /// then this is not the end of the log but damage.
    fn check_undamaged(&self, claimed: LogIndex, why: Option<(MetalogCutReason, DataEnd)>) -> Result<(), Error> {
        let index = self.next_index;
        if index > claimed.max(self.from.applied) {
            return Ok(());
        }
        Err(match why {
            Some((MetalogCutReason::BeyondData, needed)) => {
                Error::DataMissing { index, needed, found: self.from.data_end }
            }
            _ => Error::Damaged { segment: self.segment, offset: self.offset, index },
        })
    }

    fn needed_segment(&self, files: &JournalFiles) -> NeededSegment {
        let file = files.all.iter().find(|file| file.segment == self.segment).expect("the walk stays on files");
        NeededSegment { segment: self.segment, bytes: file.bytes, first: self.next_index }
    }
}

/// Reads the start of a file; fewer bytes than `into` holds only if the file is shorter.
fn fill(source: &mut dyn SegmentSource, segment: SegmentId, into: &mut [u8]) -> Result<usize, Error> {
    let mut filled = 0;
    while filled < into.len() {
        match source.read(segment, filled as u64, &mut into[filled..]).map_err(Error::Source)? {
            0 => break,
            len => filled += len,
        }
    }
    Ok(filled)
}
