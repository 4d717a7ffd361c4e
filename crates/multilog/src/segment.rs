//! Segments in memory: where a record goes, and which footer is due.
//!
//! Leaves to others: the bytes of headers (`header`) and footers (`trailer`).

use frieze_base::{SegmentId, crc32c};
use frieze_hlc::Hlc;

use crate::RecordHeader;
use crate::entry::{FooterEntries, FooterEntry, RecordCursor, RecordSpan};
use crate::header::{LogPosition, SegmentHeader, SegmentLink};
use crate::numbers::ChainNumbers;
use crate::slim::reserve_slim;
use crate::trailer::{TRAILER_BYTES, Trailer};

/// Where one record goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// The segment.
    pub segment: SegmentId,
    /// Offset of the header: the bytes of [`crate::Reservation::head`] and then the payload go here.
    pub offset: u64,
    /// Offset of the payload.
    pub data_offset: u64,
    /// The log's end once this record is in.
    pub end: LogPosition,
    /// What it will say in footers.
    pub(crate) entry: FooterEntry,
}

impl Spot {
    pub(crate) fn new(header: &SegmentHeader, span: &RecordSpan, entry: FooterEntry) -> Spot {
        let end = LogPosition { segment: header.id, offset: span.end };
        Spot { segment: header.id, offset: span.start, data_offset: span.data, end, entry }
    }
}

/// A segment to be made before the records reserved with it are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSegment {
    /// Its id, never used before.
    pub id: SegmentId,
    /// Length of the file in bytes, to be preallocated. Old bytes in a recycled file do no harm, but for the footer of
    /// a segment that was sealed: overwrite its last 128 bytes and sync before the file is used again.
    pub bytes: u64,
    /// Goes to offset 0.
    pub header: Vec<u8>,
}

/// A footer to be written: the records it names are durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seal {
    /// The segment.
    pub segment: SegmentId,
    /// Where the footer goes.
    pub offset: u64,
    /// Its bytes; they end where the segment ends.
    pub footer: Vec<u8>,
}

/// Which way a segment has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentState {
    /// Records go here.
    Open,
    /// No record fits any more; the last footer waits until the content is durable.
    Full,
    /// The last footer was handed out, or recovery found it; or the segment is damaged and gets none.
    Closed,
}

/// A segment in use.
#[derive(Clone, Debug)]
pub(crate) struct LogSegment {
    pub(crate) header: SegmentHeader,
    pub(crate) state: SegmentState,
    /// End of the last published record.
    pub(crate) end: u64,
    /// Stamp of the last published record of the log up to here.
    pub(crate) stamp: Hlc,
    pub(crate) records: u64,
    /// The entries of its records, until it is closed.
    pub(crate) entries: Vec<u8>,
    /// How many bytes they take or took.
    pub(crate) entries_bytes: u64,
    /// Behind its last record, until it is closed.
    pub(crate) cursor: RecordCursor,
    /// Which numbers of which chains it holds, if that is known.
    pub(crate) numbers: Option<Vec<ChainNumbers>>,
    /// What the newest footer names.
    covered: FooterCover,
}

/// The records that a footer names: how many, the bytes of their entries, and the place behind the last.
#[derive(Clone, Debug)]
struct FooterCover {
    records: u64,
    entries_bytes: usize,
    cursor: RecordCursor,
}

impl LogSegment {
    pub(crate) fn new(header: SegmentHeader) -> LogSegment {
        let cursor = RecordCursor::new(&header);
        LogSegment {
            header,
            state: SegmentState::Open,
            end: cursor.at,
            stamp: cursor.stamp,
            records: 0,
            entries: Vec::new(),
            entries_bytes: 0,
            covered: FooterCover { records: 0, entries_bytes: 0, cursor: cursor.clone() },
            cursor,
            numbers: Some(Vec::new()),
        }
    }

    /// Where these records go behind `cursor`, up to which footer entries take `entries_bytes`; and the same behind
    /// them. `None` if there is no room for them and for their part of the footer.
    pub(crate) fn place(
        &self,
        cursor: &RecordCursor,
        mut entries_bytes: u64,
        headers: &[RecordHeader],
    ) -> Option<(Vec<Spot>, (RecordCursor, u64))> {
        let mut spots: Vec<Spot> = Vec::with_capacity(headers.len());
        let mut behind = cursor.clone();
        for header in headers {
            let entry = behind.encode(header);
            let span = behind.span(&self.header, header, &entry);
            behind.pass(&self.header, header, &entry);
            entries_bytes += entry.bytes().len() as u64;
            spots.push(Spot::new(&self.header, &span, entry));
        }
        (behind.at + entries_bytes + TRAILER_BYTES as u64 <= self.header.bytes)
            .then_some((spots, (behind, entries_bytes)))
    }

    /// Adds a record that is whole.
    pub(crate) fn add(&mut self, header: &RecordHeader, entry: &FooterEntry) {
        self.cursor.pass(&self.header, header, entry);
        self.end = self.cursor.at;
        self.stamp = header.stamp;
        self.records += 1;
        self.entries_bytes += entry.bytes().len() as u64;
        reserve_slim(&mut self.entries, entry.bytes().len());
        self.entries.extend_from_slice(entry.bytes());
    }

    /// How the next segment follows this one.
    pub(crate) fn link(&self) -> SegmentLink {
        SegmentLink { end: LogPosition { segment: self.header.id, offset: self.end }, stamp: self.stamp }
    }

    /// Where its footer begins once all records are in.
    pub(crate) fn footer_at(&self) -> u64 {
        self.header.bytes - TRAILER_BYTES as u64 - self.entries_bytes
    }

    /// Closes the segment and gives its footer.
    pub(crate) fn seal(&mut self) -> Seal {
        self.cover_all();
        let seal = self.footer();
        self.close();
        seal
    }

    /// No record is added and no footer written any more.
    pub(crate) fn close(&mut self) {
        self.entries = Vec::new();
        self.state = SegmentState::Closed;
    }

    /// The footer written last, or the one about to be, names all records.
    pub(crate) fn cover_all(&mut self) {
        let (records, entries_bytes) = (self.records, self.entries.len());
        self.covered = FooterCover { records, entries_bytes, cursor: self.cursor.clone() };
    }

    /// A footer of the records that end by `durable`; `None` if the last footer has them all. Ends with a whole group.
    pub(crate) fn checkpoint(&mut self, durable: u64) -> Option<Seal> {
        let before = self.covered.records;
        let FooterCover { mut records, mut entries_bytes, .. } = self.covered;
        let mut new = FooterEntries::from(&self.header, &self.entries[entries_bytes..], self.covered.cursor.clone());
        while let Some(listed) = new.next().filter(|listed| listed.span.end <= durable) {
            records += 1;
            entries_bytes += listed.entry.bytes().len();
            if listed.header.ends_group() {
                self.covered = FooterCover { records, entries_bytes, cursor: new.cursor.clone() };
            }
        }
        (self.covered.records > before).then(|| self.footer())
    }

    fn footer(&self) -> Seal {
        let FooterCover { records, entries_bytes, ref cursor } = self.covered;
        let entries = &self.entries[..entries_bytes];
        let trailer = Trailer {
            header: self.header,
            entries_crc: crc32c(entries),
            entries_bytes: entries_bytes as u64,
            end: cursor.at,
            records,
            stamp: cursor.stamp,
            closed: self.state != SegmentState::Open,
        };
        let footer = [entries, &trailer.encode()].concat();
        Seal { segment: self.header.id, offset: trailer.footer_at(), footer }
    }
}
