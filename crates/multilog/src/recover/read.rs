//! Reading segments and single records, whatever the bytes are.

use frieze_base::{Fault, crc32c};

use super::source::{LogSource, SegmentKey};
use crate::RecordHeader;
use crate::entry::{FooterEntry, HeadRead, RECORD_HEAD_BYTES_MAX, RecordCursor, RecordSpan};
use crate::error::Error;
use crate::header::{NoHeader, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::index_run::{IndexRun, RunContents, RunKey, RunSource, read_contents};
use crate::trailer::{TRAILER_BYTES, Trailer};

/// A file that holds a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentFile {
    pub(super) key: SegmentKey,
    /// Length of the file in bytes.
    pub(super) len: u64,
    pub(super) header: SegmentHeader,
    /// Present if the segment was sealed.
    pub(super) trailer: Option<Trailer>,
    /// The header was taken from the trailer.
    pub(super) header_damaged: bool,
}

/// What is at a place where a record may be.
#[derive(Debug)]
pub(super) enum NextRecord {
    /// No record was begun here.
    End,
    /// A record was begun here and its head or block array is not whole.
    TornHead,
    /// The head is that of the next record, the payload is not whole.
    TornPayload(RecordRead),
    /// The next record.
    Record(RecordRead),
}

/// A record as read.
#[derive(Debug)]
pub(super) struct RecordRead {
    pub(super) header: RecordHeader,
    pub(super) entry: FooterEntry,
    pub(super) span: RecordSpan,
}

/// Reads through a window, so that small records do not cost a call each.
pub(super) struct SegmentReader<'a> {
    source: &'a mut dyn LogSource,
    key: SegmentKey,
    start: u64,
    window: Vec<u8>,
}

impl<'a> SegmentReader<'a> {
    pub(super) fn new(source: &'a mut dyn LogSource) -> SegmentReader<'a> {
        SegmentReader { source, key: SegmentKey::default(), start: 0, window: Vec::new() }
    }

    pub(super) fn segments(&mut self) -> Result<Vec<(SegmentKey, u64)>, Error> {
        let mut segments = self.source.segments().map_err(Error::Source)?;
        segments.sort_unstable();
        Ok(segments)
    }

    pub(super) fn index_runs(&mut self) -> Result<Vec<RunKey>, Error> {
        self.source.index_runs().map_err(Error::Source)
    }

    /// What an index run says beside its files.
    pub(super) fn index_run(&mut self, key: RunKey) -> Result<(IndexRun, RunContents), Error> {
        read_contents(&mut RecoveryRuns(self.source), key)
    }

    /// `len` bytes from `offset`, fewer if the file ends before.
    pub(super) fn bytes(&mut self, key: SegmentKey, offset: u64, len: usize) -> Result<&[u8], Error> {
        let within =
            key == self.key && offset >= self.start && offset + len as u64 <= self.start + self.window.len() as u64;
        if !within {
            self.window.resize(len.max(WINDOW_BYTES), 0);
            let mut filled = 0;
            while filled < self.window.len() {
                let at = offset + filled as u64;
                match self.source.read(key, at, &mut self.window[filled..]).map_err(Error::Source)? {
                    0 => break,
                    read => filled += read,
                }
            }
            self.window.truncate(filled);
            (self.key, self.start) = (key, offset);
        }
        let from = (offset - self.start) as usize;
        Ok(&self.window[from..self.window.len().min(from + len)])
    }

    /// What a file says it is.
    pub(super) fn candidate(&mut self, key: SegmentKey, len: u64) -> Result<Result<SegmentFile, NoHeader>, Error> {
        let header = SegmentHeader::decode(self.short_read(key, 0, SEGMENT_HEADER_BYTES)?.as_slice());
        let bytes = header.map_or(len, |header| header.bytes);
        let trailer_at = bytes.saturating_sub(TRAILER_BYTES as u64);
        let trailer = Trailer::decode(&self.short_read(key, trailer_at, TRAILER_BYTES)?);
        Ok(match (header, trailer) {
            // A trailer of another segment is from an earlier use of the file.
            (Ok(header), trailer) => {
                let trailer = trailer.filter(|trailer| trailer.header == header);
                Ok(SegmentFile { key, len, header, trailer, header_damaged: false })
            }
            (Err(NoHeader::Unreadable | NoHeader::Blank), Some(trailer)) if trailer.header.bytes == len => {
                Ok(SegmentFile { key, len, header: trailer.header, trailer: Some(trailer), header_damaged: true })
            }
            (Err(why), _) => Err(why),
        })
    }

    /// The record behind `cursor`, if it is the one that follows what was before it.
    pub(super) fn record(
        &mut self,
        key: SegmentKey,
        segment: &SegmentHeader,
        cursor: &RecordCursor,
    ) -> Result<NextRecord, Error> {
        let found = match cursor.read(segment, self.bytes(key, cursor.at, RECORD_HEAD_BYTES_MAX)?) {
            HeadRead::Nothing => return Ok(NextRecord::End),
            HeadRead::Torn => return Ok(NextRecord::TornHead),
            HeadRead::Found(found) => found,
        };
        let span = cursor.span(segment, &found.header, &found.entry);
        if span.end > segment.bytes {
            return Ok(NextRecord::TornHead);
        }
        let whole = self.bytes(key, cursor.at, (span.end - span.start) as usize)?;
        let Some((head, payload)) = whole.split_at_checked((span.data - span.start) as usize) else {
            return Ok(NextRecord::TornHead);
        };
        let array = &head[(span.place - span.start) as usize..];
        if !found.is_sound(segment, array) {
            return Ok(NextRecord::TornHead);
        }
        if found.previous != cursor.stamp {
            // A sound record that followed another one: cut off by an earlier recovery.
            return Ok(NextRecord::End);
        }
        let sound = payload.len() == found.header.payload_len() as usize
            && payload.chunks(segment.block_bytes as usize).map(crc32c).eq(array
                .as_chunks()
                .0
                .iter()
                .map(|crc| u32::from_le_bytes(*crc)));
        let read = RecordRead { header: found.header, entry: found.entry, span };
        Ok(if sound { NextRecord::Record(read) } else { NextRecord::TornPayload(read) })
    }

    /// A read that leaves the window alone: looking at every file's ends should not read a window of each.
    fn short_read(&mut self, key: SegmentKey, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; len];
        let read = self.source.read(key, offset, &mut bytes).map_err(Error::Source)?;
        bytes.truncate(read);
        Ok(bytes)
    }
}

/// The index runs beside the segments.
struct RecoveryRuns<'a>(&'a mut dyn LogSource);

impl RunSource for RecoveryRuns<'_> {
    fn read(&mut self, key: RunKey, offset: u64, into: &mut [u8]) -> Result<usize, Fault> {
        self.0.read_index_run(key, offset, into)
    }
}

/// Small beside a segment, large beside the cost of a call.
const WINDOW_BYTES: usize = 1 << 20;
