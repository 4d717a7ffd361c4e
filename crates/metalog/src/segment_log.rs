//! The segments of a journal: places for records, and which files are needed.
//!
//! Guarantees: records have consecutive numbers; what is recovered is a prefix of what was appended and not withdrawn,
//! and holds every record that was durable (a withdrawn record can come back in one way: the power fails before the
//! next flush); a file may hold anything from an earlier use or a failed append, and none of it is taken for a record.
//! Leaves to others: what a record means (`raft`), files and flushes (the driver).

use std::collections::VecDeque;

use frieze_base::{LogIndex, SegmentId, crc32c};

use crate::error::Error;
use crate::format::{self, JournalHeader, JournalRecordHeader, SEGMENT_HEADER_BYTES};
use crate::message::{DataEnd, JournalSegment};

/// How the files are used, and the largest record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SegmentSettings {
    /// Length of a segment file in bytes. A record that does not fit gets a segment of its own length.
    pub(crate) segment_bytes: u64,
    /// Largest body of a record in bytes.
    pub(crate) body_bytes_max: u32,
    /// Spare files kept for use again (making one costs milliseconds, and so does removing one).
    pub(crate) spare_max: usize,
}

/// The segments of a journal.
#[derive(Debug)]
pub(crate) struct SegmentLog {
    settings: SegmentSettings,
    /// The last record appended.
    pub(crate) last: LogIndex,
    /// The last record that is whole in its file.
    pub(crate) written: LogIndex,
    /// The last record on stable storage.
    pub(crate) durable: LogIndex,
    /// The records after `written`, in order.
    writing: VecDeque<WritingRecord>,
    /// End of the data log as the last record named it.
    data_end: DataEnd,
    /// Where the next record goes; `None` before the first.
    pub(crate) tail: Option<LogTail>,
    /// The segments that are needed, oldest first; the last is that of `tail`.
    pub(crate) needed: VecDeque<NeededSegment>,
    /// Files that may be used again.
    pub(crate) spare: VecDeque<Spare>,
    /// Id of the next segment: above every id that a file ever had here.
    pub(crate) next_segment: SegmentId,
}

/// A record on its way into its file.
#[derive(Clone, Copy, Debug)]
struct WritingRecord {
    number: LogIndex,
    /// The tail to go back to if it fails.
    before: Option<LogTail>,
    /// The segment that was begun for it.
    rolled: Option<Rolled>,
}

#[derive(Clone, Copy, Debug)]
struct Rolled {
    segment: SegmentId,
    recycled: Option<SegmentId>,
}

/// The end of the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogTail {
    pub(crate) segment: SegmentId,
    /// Length of its file.
    pub(crate) bytes: u64,
    /// Where the next record goes.
    pub(crate) offset: u64,
    /// Checksum of the header before it.
    pub(crate) link: u32,
}

/// A segment whose records are needed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NeededSegment {
    pub(crate) segment: SegmentId,
    pub(crate) bytes: u64,
    /// Its first record.
    pub(crate) first: LogIndex,
}

/// A file that may be used again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spare {
    pub(crate) segment: SegmentId,
    pub(crate) bytes: u64,
}

/// What is to be written of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordWrite {
    pub(crate) number: LogIndex,
    /// The segment to make first.
    pub(crate) roll: Option<JournalSegment>,
    pub(crate) segment: SegmentId,
    /// Bytes from its start.
    pub(crate) offset: u64,
    /// Header, body and padding.
    pub(crate) bytes: Vec<u8>,
}

/// What is to be done about records that were withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WithdrawStep {
    /// Write so many zeros.
    Erase { segment: SegmentId, offset: u64, len: u64 },
    /// Remove the file, if it is there.
    Remove { segment: SegmentId },
}

impl SegmentLog {
    /// The log of an empty directory.
    pub(crate) fn new(settings: SegmentSettings) -> SegmentLog {
        SegmentLog {
            settings,
            last: LogIndex(0),
            written: LogIndex(0),
            durable: LogIndex(0),
            writing: VecDeque::new(),
            data_end: DataEnd::default(),
            tail: None,
            needed: VecDeque::new(),
            spare: VecDeque::new(),
            next_segment: SegmentId(1),
        }
    }

    /// A log that begins anew beside the files of an earlier one: its next record follows `last`, its next segment is
    /// `next_segment`. Nothing of the earlier one is needed any more once a record here says so.
    pub(crate) fn beside(settings: SegmentSettings, last: LogIndex, next_segment: SegmentId) -> SegmentLog {
        SegmentLog { last, written: last, durable: last, next_segment, ..SegmentLog::new(settings) }
    }

    /// Gives a record the next number and a place: at the tail, or at the start of a new segment if it does not fit.
    /// [`SegmentLog::on_written`] or [`SegmentLog::withdraw`] follows.
    ///
    /// # Errors
    /// `BatchTooLarge`.
    pub(crate) fn append(&mut self, body: &[u8], data_end: DataEnd) -> Result<RecordWrite, Error> {
        let max = u64::from(self.settings.body_bytes_max);
        if body.len() as u64 > max {
            return Err(Error::BatchTooLarge { len: body.len() as u64, max });
        }
        // What follows a record needs what the record needs.
        let data_end = data_end.max(self.data_end);
        let number = LogIndex(self.last.0 + 1);
        let before = self.tail;
        let size = format::record_size(body.len());
        let fits = before.is_some_and(|tail| tail.offset + size as u64 <= tail.bytes);
        let roll = if fits { None } else { Some(self.roll(number, size)) };
        let tail = self.tail.as_mut().expect("there is a tail, or the roll has made one");
        let header = JournalRecordHeader {
            body_len: body.len() as u32,
            number,
            durable: self.durable,
            data_end,
            link: tail.link,
            body_crc: crc32c(body),
        }
        .encode(tail.segment);
        let mut bytes = Vec::with_capacity(size);
        bytes.extend_from_slice(&header);
        bytes.extend_from_slice(body);
        bytes.resize(size, 0);

        let (segment, offset) = (tail.segment, tail.offset);
        tail.offset += size as u64;
        tail.link = format::link_of(&header);
        self.last = number;
        self.data_end = data_end;
        let rolled = roll.as_ref().map(|new| Rolled { segment: new.segment, recycled: new.recycle });
        self.writing.push_back(WritingRecord { number, before, rolled });
        Ok(RecordWrite { number, roll, segment, offset, bytes })
    }

    /// Begins a segment whose first record is `first` and takes `size` bytes.
    fn roll(&mut self, first: LogIndex, size: usize) -> JournalSegment {
        let need = (SEGMENT_HEADER_BYTES + size) as u64;
        let fitting = self.spare.iter().position(|spare| spare.bytes >= need);
        let recycled = fitting.and_then(|place| self.spare.remove(place));
        let bytes = recycled.map_or(self.settings.segment_bytes.max(need), |spare| spare.bytes);
        let segment = self.next_segment;
        self.next_segment = SegmentId(segment.0 + 1);
        let link = self.tail.map_or(0, |tail| tail.link);
        let header = JournalHeader { segment, first, durable: self.durable, link, bytes }.encode();
        let offset = SEGMENT_HEADER_BYTES as u64;
        self.tail = Some(LogTail { segment, bytes, offset, link: format::link_of(&header) });
        self.needed.push_back(NeededSegment { segment, bytes, first });
        JournalSegment { segment, recycle: recycled.map(|spare| spare.segment), bytes, header: header.to_vec() }
    }

    /// The bytes of this record are whole in the file. Records complete in order.
    ///
    /// # Panics
    /// If another is the next.
    pub(crate) fn on_written(&mut self, number: LogIndex) {
        let record = self.writing.pop_front().expect("only a record that was appended is written");
        assert_eq!(record.number, number, "records complete in order");
        self.written = number;
        self.assert_whole();
    }

    /// Takes back record `number`, which could not be written, and all after it. The next one takes its place: links
    /// keep what these may have left in the file from following it. The ids of segments begun for them stay burnt, and
    /// then the next record begins another: the newest segment with a first number is the one that counts, should the
    /// removal be lost.
    ///
    /// # Panics
    /// If it was reported whole.
    pub(crate) fn withdraw(&mut self, number: LogIndex) -> Vec<WithdrawStep> {
        assert!(number > self.written, "record {number} was reported whole and then failed");
        let mut steps = Vec::new();
        let Some(first) = self.writing.iter().position(|record| record.number == number) else {
            // Withdrawn already, together with one before it.
            return steps;
        };
        let WritingRecord { before, rolled, .. } = self.writing[first];
        self.tail = before;
        self.last = LogIndex(number.0 - 1);
        if let (Some(tail), None) = (before, rolled) {
            let len = format::RECORD_HEADER_BYTES as u64;
            steps.push(WithdrawStep::Erase { segment: tail.segment, offset: tail.offset, len });
        }
        for record in self.writing.drain(first..) {
            if let Some(Rolled { segment, recycled }) = record.rolled {
                self.tail = self.tail.map(|tail| LogTail { bytes: tail.offset, ..tail });
                self.needed.retain(|needed| needed.segment != segment);
                // Whichever of the two names the file has: neither is part of the log.
                steps.extend(recycled.into_iter().chain([segment]).map(|segment| WithdrawStep::Remove { segment }));
            }
        }
        self.assert_whole();
        steps
    }

    /// Every record up to `number`, and the data that they name, is on stable storage.
    pub(crate) fn on_persisted(&mut self, number: LogIndex) {
        self.durable = self.durable.max(number.min(self.written));
        self.assert_whole();
    }

    /// Lets go of the segments that hold nothing after `through`. The one that follows must be durable: until then a
    /// loss of power may take it, and the log would end before what is needed. Returns the files to remove.
    ///
    /// # Panics
    /// If `through` is not durable.
    pub(crate) fn truncate(&mut self, through: LogIndex) -> Vec<SegmentId> {
        assert!(
            through <= self.durable,
            "record {through} cannot be let go: the log is durable up to {}",
            self.durable
        );
        while self.needed.get(1).is_some_and(|next| next.first.0 <= through.0 + 1 && next.first <= self.durable) {
            let needed = self.needed.pop_front().expect("there are two");
            self.spare.push_back(Spare { segment: needed.segment, bytes: needed.bytes });
        }
        let surplus = self.spare.len().saturating_sub(self.settings.spare_max);
        self.spare.drain(..surplus).map(|spare| spare.segment).collect()
    }

    /// What holds between any two calls. Each line costs O(1), so it stays on in release.
    fn assert_whole(&self) {
        assert!(self.durable <= self.written && self.written <= self.last, "durable, written, last: in this order");
        assert_eq!(self.writing.len() as u64, self.last.0 - self.written.0, "every record under way is known");
        assert_eq!(self.needed.back().map(|needed| needed.segment), self.tail.map(|tail| tail.segment));
        assert!(self.tail.is_none_or(|tail| tail.offset <= tail.bytes), "a record lies within its segment");
        assert!(
            self.needed.back().is_none_or(|needed| needed.segment < self.next_segment),
            "ids of segments only rise"
        );
    }
}
