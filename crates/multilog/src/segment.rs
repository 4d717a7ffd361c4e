//! Segments: header, footer, and where a record goes.
//!
//! A segment is a file of fixed length: header, records one after the other, free space, footer. The header, 64 bytes,
//! little-endian:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `FRZS` |
//! | 4 | 1 | format version, 1 |
//! | 5 | 3 | reserved, 0 |
//! | 8 | 8 | segment id: rises with each use of a file |
//! | 16 | 8 | tag: nobody who writes files can guess it |
//! | 24 | 8 | length of the segment |
//! | 32 | 8 | id of the segment before it in the log, 0 for the first |
//! | 40 | 8 | end of that segment's last record |
//! | 48 | 8 | stamp of that record |
//! | 56 | 4 | bytes in a block of the records |
//! | 60 | 4 | CRC32C of bytes 0..60 |
//!
//! The footer is written once the segment is full *and durable*, or earlier as a checkpoint of the records that are
//! durable by then: it vouches for those and for the segments before. It holds each record's entry ([`crate::entry`])
//! in order, then the trailer, the segment's last 128 bytes. Room for
//! it is kept free as records are placed.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 64 | the segment's header again: a damaged one is replaced by it |
//! | 64 | 4 | magic `FRZF` |
//! | 68 | 4 | CRC32C of the entries in the footer |
//! | 72 | 8 | end of the last record in the footer |
//! | 80 | 8 | number of records in the footer |
//! | 88 | 8 | stamp of the last record in the footer |
//! | 96 | 1 | 1 if no record will follow those of the footer |
//! | 97 | 7 | reserved, 0 |
//! | 104 | 8 | length of the entries |
//! | 112 | 12 | reserved, 0 |
//! | 124 | 4 | CRC32C of bytes 0..124 |

use frieze_base::{SegmentId, crc32c};
use frieze_hlc::Hlc;

use crate::RecordMeta;
use crate::chains::Numbers;
use crate::entry::{Cursor, Entries, Entry, Span};
use crate::index::reserve_slim;
use crate::record::{long, word};

/// Length of a segment's header in bytes; the first record follows it.
pub const SEGMENT_HEADER_BYTES: usize = 64;

/// A position in the log: the end of a record. Positions of one log compare as the records were written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPosition {
    /// The segment.
    pub segment: SegmentId,
    /// Bytes from its start.
    pub offset: u64,
}

/// Where one record goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// The segment.
    pub segment: SegmentId,
    /// Offset of the header: the bytes of [`crate::MultiLog::encode`] and then the payload go here.
    pub offset: u64,
    /// Offset of the payload.
    pub data_offset: u64,
    /// The log's end once this record is in.
    pub end: LogPosition,
    /// What it will say in footers.
    pub(crate) entry: Entry,
}

impl Spot {
    pub(crate) fn new(header: &SegmentHeader, span: &Span, entry: Entry) -> Spot {
        let end = LogPosition { segment: header.id, offset: span.end };
        Spot { segment: header.id, offset: span.start, data_offset: span.data, end, entry }
    }
}

/// A segment to be made before the records placed with it are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSegment {
    /// Its id, never used before.
    pub id: SegmentId,
    /// Length of the file in bytes, to be preallocated. Old bytes in a recycled file do no harm, but for the footer of a
    /// segment that was sealed: overwrite its last 128 bytes and sync before the file is used again.
    pub bytes: u64,
    /// Goes to offset 0.
    pub header: Vec<u8>,
}

/// Where a group of records goes: adjacent, in one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// A segment to be made first, if the current one is full.
    pub roll: Option<NewSegment>,
    /// One for each record, in order.
    pub spots: Vec<Spot>,
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

/// How one segment follows another: which, where it ended, and the stamp of the last record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) end: LogPosition,
    pub(crate) stamp: Hlc,
}

/// A segment's header as decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) id: SegmentId,
    pub(crate) tag: u64,
    pub(crate) bytes: u64,
    pub(crate) previous: Link,
    pub(crate) block_bytes: u32,
}

/// Why bytes are no segment header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoHeader {
    /// Nothing was ever written there.
    Blank,
    /// Something else, or a damaged header.
    Unreadable,
    /// A sound header of another format version.
    WrongVersion { segment: SegmentId, found: u8 },
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut bytes = [0u8; SEGMENT_HEADER_BYTES];
        bytes[0..4].copy_from_slice(&HEADER_MAGIC);
        bytes[4] = FORMAT_VERSION;
        bytes[8..16].copy_from_slice(&self.id.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.tag.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.previous.end.segment.0.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.previous.end.offset.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.previous.stamp.0.to_le_bytes());
        bytes[56..60].copy_from_slice(&self.block_bytes.to_le_bytes());
        let crc = crc32c(&bytes[..60]);
        bytes[60..64].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<SegmentHeader, NoHeader> {
        if bytes.iter().all(|&byte| byte == 0) {
            return Err(NoHeader::Blank);
        }
        if bytes.len() < SEGMENT_HEADER_BYTES || bytes[0..4] != HEADER_MAGIC || crc32c(&bytes[..60]) != word(bytes, 60)
        {
            return Err(NoHeader::Unreadable);
        }
        let id = SegmentId(long(bytes, 8));
        if bytes[4] != FORMAT_VERSION {
            return Err(NoHeader::WrongVersion { segment: id, found: bytes[4] });
        }
        let header = SegmentHeader {
            id,
            tag: long(bytes, 16),
            bytes: long(bytes, 24),
            previous: Link {
                end: LogPosition { segment: SegmentId(long(bytes, 32)), offset: long(bytes, 40) },
                stamp: Hlc(long(bytes, 48)),
            },
            block_bytes: word(bytes, 56),
        };
        let sound = header.previous.end.segment < id
            && header.block_bytes >= BLOCK_BYTES_MIN
            && (SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&header.bytes);
        if sound { Ok(header) } else { Err(NoHeader::Unreadable) }
    }
}

/// A footer's trailer as decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trailer {
    pub(crate) header: SegmentHeader,
    pub(crate) entries_crc: u32,
    pub(crate) entries_bytes: u64,
    pub(crate) end: u64,
    pub(crate) records: u64,
    pub(crate) stamp: Hlc,
    /// The last footer of the segment.
    pub(crate) closed: bool,
}

impl Trailer {
    pub(crate) fn encode(&self) -> [u8; TRAILER_BYTES] {
        let mut bytes = [0u8; TRAILER_BYTES];
        bytes[..SEGMENT_HEADER_BYTES].copy_from_slice(&self.header.encode());
        bytes[64..68].copy_from_slice(&TRAILER_MAGIC);
        bytes[68..72].copy_from_slice(&self.entries_crc.to_le_bytes());
        bytes[72..80].copy_from_slice(&self.end.to_le_bytes());
        bytes[80..88].copy_from_slice(&self.records.to_le_bytes());
        bytes[88..96].copy_from_slice(&self.stamp.0.to_le_bytes());
        bytes[96] = u8::from(self.closed);
        bytes[104..112].copy_from_slice(&self.entries_bytes.to_le_bytes());
        let crc = crc32c(&bytes[..124]);
        bytes[124..128].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// `None` if there is no sound trailer in these bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Trailer> {
        if bytes.len() != TRAILER_BYTES || bytes[64..68] != TRAILER_MAGIC || crc32c(&bytes[..124]) != word(bytes, 124) {
            return None;
        }
        let header = SegmentHeader::decode(&bytes[..SEGMENT_HEADER_BYTES]).ok()?;
        let entries_bytes = long(bytes, 104);
        let trailer = Trailer {
            header,
            entries_crc: word(bytes, 68),
            entries_bytes,
            end: long(bytes, 72),
            records: long(bytes, 80),
            stamp: Hlc(long(bytes, 88)),
            closed: bytes[96] == 1,
        };
        let footer_bytes = entries_bytes.checked_add(TRAILER_BYTES as u64)?;
        (trailer.end.checked_add(footer_bytes)? <= header.bytes).then_some(trailer)
    }

    /// Where the footer begins.
    pub(crate) fn footer_at(&self) -> u64 {
        self.header.bytes - TRAILER_BYTES as u64 - self.entries_bytes
    }
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
pub(crate) struct Segment {
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
    pub(crate) cursor: Cursor,
    /// Which numbers of which chains it holds, if that is known.
    pub(crate) numbers: Option<Vec<Numbers>>,
    /// What the newest footer names.
    vouched: Vouched,
}

/// The records that a footer names: how many, the bytes of their entries, and the place behind the last.
#[derive(Clone, Debug)]
struct Vouched {
    records: u64,
    entries_bytes: usize,
    cursor: Cursor,
}

impl Segment {
    pub(crate) fn new(header: SegmentHeader) -> Segment {
        let cursor = Cursor::new(&header);
        Segment {
            header,
            state: SegmentState::Open,
            end: cursor.at,
            stamp: cursor.stamp,
            records: 0,
            entries: Vec::new(),
            entries_bytes: 0,
            vouched: Vouched { records: 0, entries_bytes: 0, cursor: cursor.clone() },
            cursor,
            numbers: Some(Vec::new()),
        }
    }

    /// Bytes that are left for records and for their part of the footer.
    pub(crate) fn room(&self) -> u64 {
        self.header.bytes.saturating_sub(self.end + self.entries_bytes + TRAILER_BYTES as u64)
    }

    /// Where these records go behind the last one, with their entries; `None` if there is no room for them and for their
    /// part of the footer.
    pub(crate) fn place(&self, metas: &[RecordMeta]) -> Option<Vec<Spot>> {
        let mut entries_bytes = self.entries_bytes;
        let mut spots: Vec<Spot> = Vec::with_capacity(metas.len());
        let mut end = self.cursor.at;
        // Behind all but the last: most groups are one record.
        let mut behind: Option<Cursor> = None;
        for (index, meta) in metas.iter().enumerate() {
            let cursor = behind.as_ref().unwrap_or(&self.cursor);
            let entry = cursor.encode(meta);
            let span = cursor.span(&self.header, meta, &entry);
            if index + 1 < metas.len() {
                let mut next = cursor.clone();
                next.pass(&self.header, meta, &entry);
                behind = Some(next);
            }
            end = span.end;
            entries_bytes += entry.bytes().len() as u64;
            spots.push(Spot::new(&self.header, &span, entry));
        }
        (end + entries_bytes + TRAILER_BYTES as u64 <= self.header.bytes).then_some(spots)
    }

    /// Takes in a record that is whole.
    pub(crate) fn add(&mut self, meta: &RecordMeta, entry: &Entry) {
        self.cursor.pass(&self.header, meta, entry);
        self.end = self.cursor.at;
        self.stamp = meta.stamp;
        self.records += 1;
        self.entries_bytes += entry.bytes().len() as u64;
        reserve_slim(&mut self.entries, entry.bytes().len());
        self.entries.extend_from_slice(entry.bytes());
    }

    /// How the next segment follows this one.
    pub(crate) fn link(&self) -> Link {
        Link { end: LogPosition { segment: self.header.id, offset: self.end }, stamp: self.stamp }
    }

    /// Where its footer begins once all records are in.
    pub(crate) fn footer_at(&self) -> u64 {
        self.header.bytes - TRAILER_BYTES as u64 - self.entries_bytes
    }

    /// Closes the segment and gives its footer.
    pub(crate) fn seal(&mut self) -> Seal {
        self.vouch_for_all();
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
    pub(crate) fn vouch_for_all(&mut self) {
        let (records, entries_bytes) = (self.records, self.entries.len());
        self.vouched = Vouched { records, entries_bytes, cursor: self.cursor.clone() };
    }

    /// A footer of the records that end by `durable`; `None` if the last footer has them all. Ends with a whole group.
    pub(crate) fn checkpoint(&mut self, durable: u64) -> Option<Seal> {
        let before = self.vouched.records;
        let Vouched { mut records, mut entries_bytes, .. } = self.vouched;
        let mut new = Entries::from(&self.header, &self.entries[entries_bytes..], self.vouched.cursor.clone());
        while let Some(listed) = new.next().filter(|listed| listed.span.end <= durable) {
            records += 1;
            entries_bytes += listed.entry.bytes().len();
            if listed.meta.ends_group() {
                self.vouched = Vouched { records, entries_bytes, cursor: new.cursor.clone() };
            }
        }
        (self.vouched.records > before).then(|| self.footer())
    }

    fn footer(&self) -> Seal {
        let Vouched { records, entries_bytes, ref cursor } = self.vouched;
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

/// Length of the fixed part at the end of a footer in bytes.
pub(crate) const TRAILER_BYTES: usize = 128;
/// Positions in a segment are kept as `u32`.
pub(crate) const SEGMENT_BYTES_MAX: u64 = u32::MAX as u64;
/// Room for a header, a small record and a footer.
pub(crate) const SEGMENT_BYTES_MIN: u64 = 1024;
/// Below it the checksums would outweigh the data.
pub(crate) const BLOCK_BYTES_MIN: u32 = 512;
/// The format version of segments.
pub const FORMAT_VERSION: u8 = 1;
const HEADER_MAGIC: [u8; 4] = *b"FRZS";
const TRAILER_MAGIC: [u8; 4] = *b"FRZF";
