//! Reading segments and single records, whatever the bytes are.

use frieze_base::{Fault, crc32c};
use frieze_hlc::Hlc;

use super::{SegmentKey, SegmentSource};
use crate::record::{self, Header, RECORD_HEADER_BYTES, RecordMeta, begins_record, payload_at, record_bytes};
use crate::segment::{NoHeader, SEGMENT_HEADER_BYTES, SegmentHeader, TRAILER_BYTES, Trailer};
use crate::shelf::{Contents, read_contents};
use crate::{Error, Shelf, ShelfKey, ShelfSource};

/// A file that holds a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
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
pub(super) enum Found {
    /// No record was begun here.
    End,
    /// A record was begun here and its header or block array is not whole.
    TornHeader,
    /// The header is that of the next record, the payload is not whole.
    TornPayload { entry: [u8; RECORD_HEADER_BYTES], meta: RecordMeta, end: u64 },
    /// The next record.
    Record { entry: [u8; RECORD_HEADER_BYTES], meta: RecordMeta, end: u64 },
}

/// Reads through a window, so that small records do not cost a call each.
pub(super) struct Reader<'a> {
    source: &'a mut dyn SegmentSource,
    key: SegmentKey,
    start: u64,
    window: Vec<u8>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(source: &'a mut dyn SegmentSource) -> Reader<'a> {
        Reader { source, key: SegmentKey::default(), start: 0, window: Vec::new() }
    }

    pub(super) fn segments(&mut self) -> Result<Vec<(SegmentKey, u64)>, Error> {
        let mut segments = self.source.segments().map_err(Error::Source)?;
        segments.sort_unstable();
        Ok(segments)
    }

    pub(super) fn shelves(&mut self) -> Result<Vec<ShelfKey>, Error> {
        self.source.shelves().map_err(Error::Source)
    }

    /// What a shelf says beside its files.
    pub(super) fn shelf(&mut self, key: ShelfKey) -> Result<(Shelf, Contents), Error> {
        read_contents(&mut Shelves(self.source), key)
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
    pub(super) fn candidate(&mut self, key: SegmentKey, len: u64) -> Result<Result<Candidate, NoHeader>, Error> {
        let header = SegmentHeader::decode(self.short_read(key, 0, SEGMENT_HEADER_BYTES)?.as_slice());
        let bytes = header.map_or(len, |header| header.bytes);
        let trailer_at = bytes.saturating_sub(TRAILER_BYTES as u64);
        let trailer = Trailer::decode(&self.short_read(key, trailer_at, TRAILER_BYTES)?);
        Ok(match (header, trailer) {
            // A trailer of another segment is from an earlier use of the file.
            (Ok(header), trailer) => {
                let trailer = trailer.filter(|trailer| trailer.header == header);
                Ok(Candidate { key, len, header, trailer, header_damaged: false })
            }
            (Err(NoHeader::Unreadable | NoHeader::Blank), Some(trailer)) if trailer.header.bytes == len => {
                Ok(Candidate { key, len, header: trailer.header, trailer: Some(trailer), header_damaged: true })
            }
            (Err(why), _) => Err(why),
        })
    }

    /// The record at `at` of a segment, if it is the one that follows a record stamped `before`.
    pub(super) fn record(
        &mut self,
        key: SegmentKey,
        segment: &SegmentHeader,
        at: u64,
        before: Hlc,
    ) -> Result<Found, Error> {
        let Some(&entry) = self.bytes(key, at, RECORD_HEADER_BYTES)?.first_chunk::<RECORD_HEADER_BYTES>() else {
            return Ok(Found::End);
        };
        if !begins_record(&entry, segment.id) {
            return Ok(Found::End);
        }
        let Some(Header { meta, previous, block_bytes, crc }) = Header::decode(&entry) else {
            return Ok(Found::TornHeader);
        };
        let end = at + record_bytes(meta.payload_len(), block_bytes);
        if block_bytes != segment.block_bytes || end > segment.bytes {
            return Ok(Found::TornHeader);
        }
        let whole = self.bytes(key, at, (end - at) as usize)?;
        let payload_from = payload_at(meta.payload_len(), block_bytes) as usize;
        let Some((head, payload)) = whole.split_at_checked(payload_from) else { return Ok(Found::TornHeader) };
        let array = &head[RECORD_HEADER_BYTES..];
        if record::checksum(segment.id, segment.tag, &entry, array) != crc {
            return Ok(Found::TornHeader);
        }
        if previous != before {
            // A sound record that followed another one: cut off by an earlier recovery.
            return Ok(Found::End);
        }
        let sound = payload.len() == meta.payload_len() as usize
            && payload.chunks(block_bytes as usize).map(crc32c).eq(array
                .as_chunks()
                .0
                .iter()
                .map(|crc| u32::from_le_bytes(*crc)));
        // A footer keeps headers without their checksum.
        let mut entry = entry;
        entry[record::CRC_AT..].fill(0);
        Ok(if sound { Found::Record { entry, meta, end } } else { Found::TornPayload { entry, meta, end } })
    }

    /// A read that leaves the window alone: looking at every file's ends should not read a window of each.
    fn short_read(&mut self, key: SegmentKey, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; len];
        let read = self.source.read(key, offset, &mut bytes).map_err(Error::Source)?;
        bytes.truncate(read);
        Ok(bytes)
    }
}

/// The shelves beside the segments.
struct Shelves<'a>(&'a mut dyn SegmentSource);

impl ShelfSource for Shelves<'_> {
    fn read(&mut self, key: ShelfKey, offset: u64, into: &mut [u8]) -> Result<usize, Fault> {
        self.0.read_shelf(key, offset, into)
    }
}

/// Small beside a segment, large beside the cost of a call.
const WINDOW_BYTES: usize = 1 << 20;
