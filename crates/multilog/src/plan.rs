//! What a read has to fetch: holes and stored pieces, in order, without a gap.

use frieze_base::SegmentId;
use frieze_hlc::Hlc;

use crate::image::{ImageKey, ImagePlace};
use crate::index::IndexRecord;
use crate::record_files::RecordFiles;

/// One part of a planned range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Offset in the chunk, in bytes.
    pub at: u64,
    /// Length in bytes, never 0.
    pub len: u32,
    /// Where the bytes are.
    pub source: PieceSource,
}

impl Piece {
    /// First byte behind it.
    pub fn end(&self) -> u64 {
        self.at + u64::from(self.len)
    }

    /// The part of it within `start..end`, which it overlaps.
    pub fn part(&self, start: u64, end: u64) -> Piece {
        let (from, to) = (self.at.max(start), self.end().min(end));
        let source = match self.source {
            PieceSource::Data(stored) => {
                PieceSource::Data(StoredSpan { skip: stored.skip + (from - self.at) as u32, ..stored })
            }
            PieceSource::Image(image) => {
                PieceSource::Image(ImageSpan { skip: image.skip + (from - self.at) as u32, ..image })
            }
            PieceSource::External(fetched) => {
                PieceSource::External(ExternalSpan { skip: fetched.skip + (from - self.at) as u32, ..fetched })
            }
            PieceSource::Hole | PieceSource::Punched(_) => self.source,
        };
        Piece { at: from, len: (to - from) as u32, source }
    }
}

/// Where the bytes of a piece come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceSource {
    /// No record says anything: never written, or hidden. Zeros, unless the file shares what lies there.
    Hole,
    /// Zeros: a record of this stamp punched it.
    Punched(Hlc),
    /// Bytes of a record.
    Data(StoredSpan),
    /// Bytes of records, as an image of their page has them. Only plans made to be read have these
    /// ([`crate::MultiLog::plan_to_read`]).
    Image(ImageSpan),
    /// Bytes that the reader fetched from another server. No plan of a log has these.
    External(ExternalSpan),
}

/// A span of bytes from elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExternalSpan {
    /// Which of them.
    pub number: u32,
    /// Bytes of it before the piece.
    pub skip: u32,
}

/// A span of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageSpan {
    /// Which image: what its place has to hold when it is read.
    pub key: ImageKey,
    /// Where it lies.
    pub place: ImagePlace,
    /// Bytes of the page before the piece.
    pub skip: u32,
}

/// A span of a stored record. Its bytes are at `data_offset + skip`; to verify them, read whole blocks of `block_bytes`
/// counted from `data_offset` and compare with the little-endian `u32`s that begin at `crcs_offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredSpan {
    /// The segment that holds the record, or the pack ([`SegmentId::is_pack`]).
    pub segment: SegmentId,
    /// Offset of the record's payload in the segment.
    pub data_offset: u64,
    /// Length of the whole payload in bytes; its last block may be short.
    pub record_len: u32,
    /// Bytes of the payload before the piece.
    pub skip: u32,
    /// Offset of the array of block CRCs in the segment.
    pub crcs_offset: u64,
    /// Bytes in a block of this record.
    pub block_bytes: u32,
    /// When it was written.
    pub stamp: Hlc,
}

/// Builds the plan of one range: data comes in order, what lies between is holes.
#[derive(Debug)]
pub(crate) struct Planner<'a> {
    files: RecordFiles<'a>,
    out: &'a mut Vec<Piece>,
    /// Everything before it is planned.
    cursor: u64,
    /// The record of the last piece, if that piece may grow.
    last_record: Option<u32>,
}

impl<'a> Planner<'a> {
    pub(crate) fn new(files: RecordFiles<'a>, start: u64, out: &'a mut Vec<Piece>) -> Planner<'a> {
        Planner { files, out, cursor: start, last_record: None }
    }

    /// Bytes `start..end` are those of a record, which has this number in its chunk.
    pub(crate) fn data(&mut self, start: u64, end: u64, number: u32, record: &IndexRecord) {
        self.hole(start);
        let len = (end - start) as u32;
        self.cursor = end;
        if self.last_record == Some(number)
            && let Some(piece) = self.out.last_mut()
        {
            // The same record goes on in the next page.
            piece.len += len;
            return;
        }
        self.last_record = Some(number);
        let skip = (start - u64::from(record.offset)) as u32;
        let source = PieceSource::Data(StoredSpan { skip, ..self.files.span(record) });
        self.out.push(Piece { at: start, len, source });
    }

    /// Bytes `start..end` are those of an image of their page.
    pub(crate) fn image(&mut self, start: u64, end: u64, image: ImageSpan) {
        self.hole(start);
        let len = (end - start) as u32;
        self.cursor = end;
        self.last_record = None;
        match self.out.last_mut() {
            // Other records of the same image go on.
            Some(Piece { len: before, source: PieceSource::Image(last), .. })
                if last.place == image.place && last.skip + *before == image.skip =>
            {
                *before += len;
            }
            _ => self.out.push(Piece { at: start, len, source: PieceSource::Image(image) }),
        }
    }

    /// Bytes `start..end` were punched at `stamp`.
    pub(crate) fn punched(&mut self, start: u64, end: u64, stamp: Hlc) {
        self.hole(start);
        self.zeros(end, PieceSource::Punched(stamp));
    }

    /// Everything up to `end` that is not planned yet is a hole.
    pub(crate) fn hole(&mut self, end: u64) {
        self.zeros(end, PieceSource::Hole);
    }

    fn zeros(&mut self, end: u64, source: PieceSource) {
        while self.cursor < end {
            // A chunk of 4 GiB without a byte needs two pieces.
            let len = (end - self.cursor).min(u32::MAX.into()) as u32;
            self.out.push(Piece { at: self.cursor, len, source });
            self.cursor += u64::from(len);
            self.last_record = None;
        }
    }
}
