//! From the bytes of a directory back to the segments of a journal: the records that count, and what has to be mended
//! before it goes on.

use frieze_base::{Fault, LogIndex, SegmentId, crc32c};

use crate::error::Error;
use crate::format::{
    self, FORMAT_VERSION, JournalHeader, JournalRecordHeader, RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES, SegmentStart,
};
use crate::message::DataEnd;
use crate::segment_log::{LogTail, NeededSegment, SegmentLog, SegmentSettings, Spare};

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

/// The first file that has records of a journal behind a header that cannot be read.
///
/// # Errors
/// `WrongVersion`; `Source`: a file cannot be read.
pub fn damaged_header(source: &mut dyn SegmentSource) -> Result<Option<SegmentId>, Error> {
    JournalFiles::read_any(source)?.headless(source)
}

/// Data that a record names and the data log does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MissingData {
    /// Where the data log ended when the record was written.
    pub(crate) needed: DataEnd,
    /// Where it ends after its own recovery.
    pub(crate) found: DataEnd,
}

/// A record of a recovered log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundRecord {
    pub(crate) number: LogIndex,
    /// Where the data log ended when it was appended.
    pub(crate) data_end: DataEnd,
    pub(crate) body: Vec<u8>,
}

/// A recovered log.
#[derive(Debug)]
pub(crate) struct RecoveredSegments {
    /// The log, ready to go on.
    pub(crate) log: SegmentLog,
    /// What was found.
    pub(crate) report: MetalogReport,
    /// What the driver does, in order, and syncs (files and directory) before the log is used: what was cut must not
    /// come back after the next crash.
    pub(crate) mend: Vec<Mend>,
}

/// What recovery found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetalogReport {
    /// Records that were read.
    pub records: u64,
    /// The last record.
    pub last: LogIndex,
    /// Where something that looks like a record was left out, if anything was.
    pub cut: Option<MetalogCut>,
    /// Where the journal ends: a segment, and a place in it. `None`: it has no segment.
    pub end: Option<(SegmentId, u64)>,
}

/// Where the log was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetalogCut {
    /// The segment.
    pub segment: SegmentId,
    /// Where in it.
    pub offset: u64,
    /// The record that would have been there.
    pub record: LogIndex,
    /// Why.
    pub why: MetalogCutReason,
}

/// Why the log was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetalogCutReason {
    /// The record is not whole: the crash came before its flush.
    Torn,
    /// The record names data that the crash lost: a name is never there without the bytes written before it.
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

impl SegmentLog {
    /// Recovers the log from its files: a prefix of what was appended, holding everything that was durable. Gives the
    /// records after `known` to `visit`, in order.
    ///
    /// The log ends at the first record that is not whole, or that names data which `visit` misses. A file may hold
    /// anything from an earlier use.
    ///
    /// # Errors
    /// `FileBeforeMissing` or `NoSegment` if the log does not reach back to `known`; `Damaged`, `HeaderDamaged`,
    /// `FileMissing`, `Truncated` or `DataMissing` if something that was on stable storage is lost; `WrongVersion`: do
    /// not serve, and leave the files as they are. `Source`: a file cannot be read.
    pub(crate) fn recover(
        settings: SegmentSettings,
        known: LogIndex,
        source: &mut dyn SegmentSource,
        visit: &mut dyn FnMut(FoundRecord) -> Result<(), MissingData>,
    ) -> Result<RecoveredSegments, Error> {
        let files = JournalFiles::read(source)?;
        let mut log = SegmentLog::new(settings);
        log.next_segment = SegmentId(files.all.last().map_or(0, |file| file.segment.0) + 1);
        let Some(start) = files.start(known) else {
            files.check_never_flushed(source, known)?;
            let mend = files.all.iter().map(|file| Mend::Remove { segment: file.segment }).collect();
            let report = MetalogReport { records: 0, last: LogIndex(0), cut: None, end: None };
            return Ok(RecoveredSegments { log, report, mend });
        };

        let mut walk = LogWalk::new(known, files.all[start]);
        let mut bytes = files.load(source, walk.segment)?;
        log.needed.push_back(walk.needed_segment(&files));
        let why = loop {
            match walk.next(&bytes) {
                WalkStep::Record(record, place) => {
                    if record.number > known {
                        if let Err(missing) = visit(record) {
                            break Some((MetalogCutReason::BeyondData, missing));
                        }
                        walk.records += 1;
                    }
                    walk.advance(place);
                }
                WalkStep::Nothing { torn } => {
                    let Some(next) = files.following(&walk) else {
                        let missing = MissingData { needed: DataEnd::default(), found: DataEnd::default() };
                        break torn.then_some((MetalogCutReason::Torn, missing));
                    };
                    walk.enter(next);
                    bytes = files.load(source, walk.segment)?;
                    log.needed.push_back(walk.needed_segment(&files));
                }
            }
        };

        let left = files.beyond(source, &walk, &bytes)?;
        if let Err(damage) = walk.check_undamaged(left.durable, why) {
            let lost = if why.is_none() && !left.in_segment { files.lost_file(source, &walk)? } else { None };
            return Err(lost.unwrap_or(damage));
        }
        let file_bytes = bytes.len() as u64;
        let mut mend = Vec::new();
        let len = if left.in_segment { file_bytes - walk.offset } else { left.remnant_bytes };
        if len > 0 {
            mend.push(Mend::Erase { segment: walk.segment, offset: walk.offset, len });
        }
        mend.extend(left.later.into_iter().map(|segment| Mend::Remove { segment }));

        let last = LogIndex(walk.next_number.0 - 1);
        log.last = last;
        log.written = last;
        log.durable = known.min(last);
        log.tail = Some(LogTail { segment: walk.segment, bytes: file_bytes, offset: walk.offset, link: walk.link });
        let before = files.all[..start].iter();
        log.spare.extend(before.map(|file| Spare { segment: file.segment, bytes: file.bytes }));
        let cut = why.map(|(why, _)| MetalogCut {
            segment: walk.segment,
            offset: walk.offset,
            record: walk.next_number,
            why,
        });
        let end = Some((walk.segment, walk.offset));
        Ok(RecoveredSegments { log, report: MetalogReport { records: walk.records, last, cut, end }, mend })
    }
}

/// One file, by what its first bytes say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JournalFile {
    pub(crate) segment: SegmentId,
    bytes: u64,
    /// `None`: the segment was never begun under this id.
    pub(crate) header: Option<JournalHeader>,
}

/// The files of the log, by id.
pub(crate) struct JournalFiles {
    pub(crate) all: Vec<JournalFile>,
}

/// What lies beyond the end of the log.
#[derive(Debug, Default)]
struct BeyondEnd {
    /// The last segment still holds records of its own after the end.
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
        let files = JournalFiles::read_any(source)?;
        let cut =
            files.all.iter().find_map(|file| Some((file, file.header.filter(|header| file.bytes < header.bytes)?)));
        match cut {
            Some((file, JournalHeader { bytes: expected, .. })) => {
                Err(Error::Truncated { segment: file.segment, found: file.bytes, expected })
            }
            None => Ok(files),
        }
    }

    /// As [`JournalFiles::read`], of files that may be cut off.
    pub(crate) fn read_any(source: &mut dyn SegmentSource) -> Result<JournalFiles, Error> {
        let mut all = Vec::new();
        for (segment, bytes) in source.segments().map_err(Error::Source)? {
            let mut start = [0u8; SEGMENT_HEADER_BYTES];
            let len = fill(source, segment, &mut start)?;
            let header = match JournalHeader::decode(&start[..len]) {
                SegmentStart::Begun(header) if header.segment == segment => Some(header),
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

    /// The place of the segment that holds the first record after `known`, or will: the newest that begins no later.
    fn start(&self, known: LogIndex) -> Option<usize> {
        self.all.iter().rposition(|file| file.header.is_some_and(|header| header.first.0 <= known.0 + 1))
    }

    /// There is nothing to start from. That is right only if the crash came before the first flush.
    fn check_never_flushed(&self, source: &mut dyn SegmentSource, known: LogIndex) -> Result<(), Error> {
        if known > LogIndex(0) && self.all.is_empty() {
            return Err(Error::NoSegment { applied: known });
        }
        let mut left = BeyondEnd::default();
        for file in &self.all {
            left.see_file(source, self, file)?;
        }
        if known == LogIndex(0) && left.durable == LogIndex(0) {
            return Ok(());
        }
        let first = self.all.iter().find_map(|file| Some((file.segment, file.header?.first)));
        Err(match (self.headless(source)?, first) {
            (Some(segment), _) => Error::HeaderDamaged { segment },
            (None, Some((segment, record))) => Error::FileBeforeMissing { segment, record },
            (None, None) => Error::NoSegment { applied: known },
        })
    }

    /// The first file with records of its own behind a header that cannot be read.
    pub(crate) fn headless(&self, source: &mut dyn SegmentSource) -> Result<Option<SegmentId>, Error> {
        for file in self.all.iter().filter(|file| file.header.is_none()) {
            if BeyondEnd::default().see(&self.load(source, file.segment)?, 0, file.segment) {
                return Ok(Some(file.segment));
            }
        }
        Ok(None)
    }

    /// The log ends at `walk` in a place where nothing is, and a later file says that its next record was on stable
    /// storage: it lay in a file whose header is damaged, or in one that is missing.
    fn lost_file(&self, source: &mut dyn SegmentSource, walk: &LogWalk) -> Result<Option<Error>, Error> {
        let later = JournalFiles { all: self.all.iter().filter(|file| file.segment > walk.segment).copied().collect() };
        if let Some(segment) = later.headless(source)? {
            return Ok(Some(Error::HeaderDamaged { segment }));
        }
        let next = later.all.iter().find(|file| file.header.is_some()).map(|file| file.segment);
        let (before, record) = (walk.segment, walk.next_number);
        let is_missing = |after: &SegmentId| after.0 > before.0 + 1;
        Ok(next.filter(is_missing).map(|after| Error::FileMissing { before, after, record }))
    }

    /// The segment that goes on where the walk has come to. Of several (a roll that failed and was done again) the
    /// newest.
    fn following(&self, walk: &LogWalk) -> Option<JournalFile> {
        let follows = |header: JournalHeader| header.first == walk.next_number && header.link == walk.link;
        let later = self.all.iter().rev().take_while(|file| file.segment > walk.segment);
        later.copied().find(|file| file.header.is_some_and(follows))
    }

    /// All bytes of a segment.
    pub(crate) fn load(&self, source: &mut dyn SegmentSource, segment: SegmentId) -> Result<Vec<u8>, Error> {
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
        let next = &rest[..rest.len().min(RECORD_HEADER_BYTES)];
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

    /// Takes in the records of `segment` from `offset` on; true if there are any.
    fn see(&mut self, bytes: &[u8], offset: u64, segment: SegmentId) -> bool {
        let mut any = false;
        let mut from = offset as usize;
        while from < bytes.len() {
            // Most of a segment was never written, and a record begins with bytes that are not zero.
            let upto = (from + EMPTY.len()).min(bytes.len());
            if bytes[from..upto] != EMPTY[..upto - from] {
                let places = (from..upto).step_by(format::ALIGNMENT);
                for header in places.filter_map(|place| JournalRecordHeader::decode(&bytes[place..], segment)) {
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
    /// Records up to here are known.
    known: LogIndex,
    segment: SegmentId,
    offset: u64,
    /// The record expected at `offset`.
    next_number: LogIndex,
    /// Checksum of the header before it.
    link: u32,
    records: u64,
}

/// What lies at the walk's place.
enum WalkStep {
    Record(FoundRecord, JournalPlace),
    Nothing { torn: bool },
}

/// What the walk needs of a record to go on behind it.
struct JournalPlace {
    header: JournalRecordHeader,
    link: u32,
}

impl LogWalk {
    fn new(known: LogIndex, file: JournalFile) -> LogWalk {
        let mut walk =
            LogWalk { known, segment: file.segment, offset: 0, next_number: LogIndex(0), link: 0, records: 0 };
        walk.enter(file);
        walk
    }

    /// Goes on at the start of `file`.
    fn enter(&mut self, file: JournalFile) {
        let header = file.header.expect("only a segment that was begun is entered");
        self.segment = file.segment;
        self.offset = SEGMENT_HEADER_BYTES as u64;
        self.next_number = header.first;
        self.link = format::link_of(&header.encode());
    }

    /// The record at the walk's place; or why there is none.
    fn next(&self, bytes: &[u8]) -> WalkStep {
        let rest = bytes.get(self.offset as usize..).unwrap_or_default();
        let expected = |header: &JournalRecordHeader| header.number == self.next_number && header.link == self.link;
        let Some(header) = JournalRecordHeader::decode(rest, self.segment).filter(expected) else {
            return WalkStep::Nothing { torn: false };
        };
        let body = rest.get(RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + header.body_len as usize);
        // What the store holds already is passed over by its header alone.
        let needed = header.number > self.known;
        let body = match body {
            Some(body) if !needed || crc32c(body) == header.body_crc => body,
            _ => return WalkStep::Nothing { torn: true },
        };
        let record = FoundRecord { number: header.number, data_end: header.data_end, body: body.to_vec() };
        WalkStep::Record(record, JournalPlace { header, link: format::link_of(&rest[..RECORD_HEADER_BYTES]) })
    }

    /// One step on, behind the record at `place`.
    fn advance(&mut self, JournalPlace { header, link }: JournalPlace) {
        self.link = link;
        self.offset += header.size() as u64;
        self.next_number = LogIndex(header.number.0 + 1);
    }

    /// What a crash takes was promised to no client. A record that a later one says was durable was:
    /// then this is not the end of the log but damage.
    fn check_undamaged(&self, claimed: LogIndex, why: Option<(MetalogCutReason, MissingData)>) -> Result<(), Error> {
        let record = self.next_number;
        if record > claimed.max(self.known) {
            return Ok(());
        }
        Err(match why {
            Some((MetalogCutReason::BeyondData, MissingData { needed, found })) => {
                Error::DataMissing { record, needed, found }
            }
            _ => Error::Damaged { segment: self.segment, offset: self.offset, record },
        })
    }

    fn needed_segment(&self, files: &JournalFiles) -> NeededSegment {
        let file = files.all.iter().find(|file| file.segment == self.segment).expect("the walk stays on files");
        NeededSegment { segment: self.segment, bytes: file.bytes, first: self.next_number }
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
