//! Checking that a segment still holds what was written to it.
//!
//! Guarantees: the check covers every byte of a record, a header or a footer; dead and discarded records are left out.
//! Damage is named as closely as the checksums allow: the blocks of the record that it hit. Nothing is changed.
//! Leaves to others: reading, at which rate, and where space was given back (`node`), names of files (`namespace`).
//!
//! # The algorithm
//! The footer, or for a segment without one the log in memory, says which records lie where. Each is compared with the
//! bytes there: its header byte for byte, its block checksums by the header's checksum, its payload by those. If no
//! footer can be read, headers lead from one record to the next; behind a damaged header the next sound one is searched
//! for.

use std::collections::BTreeMap;

use frieze_base::{Crc32c, Fault, SegmentId, crc32c};
use frieze_hlc::Hlc;

use crate::discarded::{Discards, is_discarded};
use crate::entry::{
    self, ENTRY_BYTES_MAX, FooterEntries, FooterRecord, HeadRead, RECORD_HEAD_BYTES_MAX, ReadHead, RecordCursor,
};
use crate::header::{LogPosition, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::log::MultiLog;
use crate::pack::PackedNumbers;
use crate::record::RecordHeader;
use crate::segment::{LogSegment, SegmentState};
use crate::trailer::{TRAILER_BYTES, Trailer};

/// What the log says that a segment holds.
#[derive(Clone, Debug)]
pub struct SegmentContent {
    header: SegmentHeader,
    end: u64,
    records: u64,
    /// Bytes of their entries.
    entries_bytes: u64,
    /// Those, where no footer has them yet.
    entries: Option<Vec<u8>>,
    /// Records whose place has no meaning.
    discarded: Vec<Discards>,
    /// Records that packs have.
    packed: Vec<PackedNumbers>,
}

/// The bytes of the segment that is checked.
pub trait SegmentBytes {
    /// `len` bytes from `offset`, fewer where the file ends. At most as many as a record's header and checksums take,
    /// or a block of it.
    ///
    /// # Errors
    /// [`CheckStop`].
    fn bytes(&mut self, offset: u64, len: usize) -> Result<&[u8], CheckStop>;
}

/// Why bytes were not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckStop {
    /// The check is to end here.
    Stop,
    /// The device cannot read them: damage like any other.
    Failed(Fault),
}

/// What was hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum DamageKind {
    /// Bytes of a file: they cannot be read.
    Data = 1,
    /// A record's header or its checksums. Blocks whose checksums are whole can be read; without the footer the record
    /// could not be found.
    Header = 2,
    /// The segment's own header: its copy in the footer is used.
    SegmentHeader = 3,
    /// The footer: the records themselves are read at the next start.
    Footer = 4,
    /// Records that no footer names: they cannot be listed.
    Records = 5,
    /// An index run and a footer below it: the files that it indexes cannot be read. The driver, which reads index
    /// runs, adds this one.
    Index = 6,
}

/// A damaged place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// What was hit.
    pub kind: DamageKind,
    /// The segment.
    pub segment: SegmentId,
    /// First damaged byte of the segment, as closely as a checksum tells.
    pub at: u64,
    /// Bytes from there on that may be damaged.
    pub len: u64,
    /// The record that was hit, if it was one.
    pub record: Option<RecordHeader>,
    /// Of data: where the damage begins in the payload.
    pub skip: u32,
    /// What the device said, where it could not read.
    pub unread: Option<Fault>,
}

/// What a check has looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckedSegment {
    /// Records found where they should be, whole or not; dead ones are not counted.
    pub records: u64,
}

impl SegmentContent {
    /// Length of the segment in bytes.
    pub fn bytes(&self) -> u64 {
        self.header.bytes
    }

    /// End of its last record.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// True if the segment takes no more records and its footer was handed out.
    pub fn is_sealed(&self) -> bool {
        self.entries.is_none()
    }

    /// Checks the segment; `skip` are stretches of dead records: first byte and end. Tells each damage to `out`, in
    /// the order of the segment but for the footer, which comes first.
    ///
    /// # Errors
    /// [`CheckStop::Stop`] as `source` gave it; nothing else.
    ///
    /// # Cost
    /// Reads all that is stored, footers twice, and no memory that grows with it.
    pub fn check(
        &self,
        skip: &BTreeMap<u64, u64>,
        source: &mut dyn SegmentBytes,
        out: &mut dyn FnMut(Damage),
    ) -> Result<CheckedSegment, CheckStop> {
        let mut check = SegmentCheck { content: self, skip, source, out, checked: CheckedSegment::default() };
        let named = match &self.entries {
            Some(entries) => FooterNames::Here(entries),
            None => check.footer()?.map_or(FooterNames::Nowhere, FooterNames::InFooter),
        };
        check.segment_header()?;
        match named {
            FooterNames::Nowhere => check.walk()?,
            named => check.compare(&named)?,
        }
        Ok(check.checked)
    }
}

impl MultiLog {
    /// The first segment after `after` in the order of the log; `SegmentId(0)` is before the first.
    pub fn segment_after(&self, after: SegmentId) -> Option<SegmentId> {
        let at = self.segments.partition_point(|segment| segment.header.id <= after);
        self.segments.get(at).map(|segment| segment.header.id)
    }

    /// Bytes of header, records and footer of a segment, without what is free in it.
    pub fn stored_bytes(&self, id: SegmentId) -> u64 {
        let Ok(at) = self.segments.binary_search_by_key(&id, |segment| segment.header.id) else { return 0 };
        self.segments[at].end
    }

    /// What a segment holds now, to be checked. `None` if there is no such segment.
    ///
    /// # Cost
    /// For a segment without its last footer, a copy of its records' headers.
    pub fn content(&self, id: SegmentId) -> Option<SegmentContent> {
        let segment = &self.segments[self.segments.binary_search_by_key(&id, |segment| segment.header.id).ok()?];
        let entries = (segment.state != SegmentState::Closed).then(|| segment.entries.clone());
        let LogSegment { header, end, records, entries_bytes, .. } = *segment;
        let (discarded, packed) = (self.discarded.clone(), self.packs.numbers());
        Some(SegmentContent { header, end, records, entries_bytes, entries, discarded, packed })
    }
}

/// Where the headers of a segment's records are named.
enum FooterNames<'a> {
    Here(&'a [u8]),
    /// In the footer, from this byte of the segment on.
    InFooter(u64),
    Nowhere,
}

/// One check.
struct SegmentCheck<'a> {
    content: &'a SegmentContent,
    skip: &'a BTreeMap<u64, u64>,
    source: &'a mut dyn SegmentBytes,
    out: &'a mut dyn FnMut(Damage),
    checked: CheckedSegment,
}

impl SegmentCheck<'_> {
    /// Where the footer's record headers begin, if the footer is whole.
    fn footer(&mut self) -> Result<Option<u64>, CheckStop> {
        let SegmentContent { header, end, records, entries_bytes: entries_len, .. } = *self.content;
        let trailer_at = header.bytes - TRAILER_BYTES as u64;
        let footer_at = trailer_at - entries_len;
        let trailer = match self.whole(trailer_at, TRAILER_BYTES)? {
            Ok(bytes) => Trailer::decode(bytes).ok_or(None),
            Err(fault) => Err(fault),
        };
        let said = (records, end, entries_len);
        let fits = |trailer: &Trailer| {
            trailer.header == header && (trailer.records, trailer.end, trailer.entries_bytes) == said
        };
        let trailer = trailer.and_then(|trailer| if fits(&trailer) { Ok(trailer) } else { Err(None) });
        let mut found = Err(None);
        match trailer {
            Err(unread) => self.report(DamageKind::Footer, trailer_at, TRAILER_BYTES as u64, unread),
            Ok(trailer) => {
                let mut crc = Crc32c::default();
                let mut at = footer_at;
                found = loop {
                    if at == trailer_at {
                        break if crc.value() == trailer.entries_crc { Ok(()) } else { Err(None) };
                    }
                    let len = (trailer_at - at).min(FOOTER_STEP_BYTES as u64);
                    match self.whole(at, len as usize)? {
                        Ok(bytes) => crc.update(bytes),
                        Err(unread) => break Err(unread),
                    }
                    at += len;
                };
                if let Err(unread) = &found {
                    self.report(DamageKind::Footer, footer_at, entries_len, unread.clone());
                }
            }
        }
        Ok(found.is_ok().then_some(footer_at))
    }

    fn segment_header(&mut self) -> Result<(), CheckStop> {
        let expected = self.content.header.encode();
        let unread = match self.whole(0, SEGMENT_HEADER_BYTES)? {
            Ok(bytes) if *bytes == expected => return Ok(()),
            Ok(_) => None,
            Err(unread) => unread,
        };
        self.report(DamageKind::SegmentHeader, 0, SEGMENT_HEADER_BYTES as u64, unread);
        Ok(())
    }

    /// Compares every record with what is named of it.
    fn compare(&mut self, named: &FooterNames<'_>) -> Result<(), CheckStop> {
        let header = self.content.header;
        let mut cursor = RecordCursor::new(&header);
        let mut from = 0;
        for _ in 0..self.content.records {
            let bytes = match named {
                FooterNames::Here(entries) => {
                    let rest = entries.get(from..).unwrap_or_default();
                    rest[..rest.len().min(ENTRY_BYTES_MAX)].to_vec()
                }
                FooterNames::InFooter(footer_at) => {
                    let left = (self.content.entries_bytes as usize).saturating_sub(from);
                    self.whole(footer_at + from as u64, left.min(ENTRY_BYTES_MAX))?.unwrap_or_default().to_vec()
                }
                FooterNames::Nowhere => Vec::new(),
            };
            let mut entries = FooterEntries::from(&header, &bytes, cursor.clone());
            let Some(listed) = entries.next() else {
                // It was whole a moment ago.
                self.report(DamageKind::Records, cursor.at, self.content.end.saturating_sub(cursor.at), None);
                return Ok(());
            };
            from += listed.entry.bytes().len();
            let begins = LogPosition { segment: header.id, offset: listed.span.start };
            let is_gone = self.is_dead(begins.offset)
                || is_discarded(&self.content.discarded, &listed.header, begins)
                || self.content.packed.iter().any(|packed| packed.holds(&listed.header, begins));
            if !is_gone {
                self.record(&listed, cursor.stamp)?;
                self.checked.records += 1;
            }
            cursor = entries.cursor;
        }
        if cursor.at != self.content.end {
            let (low, high) = (cursor.at.min(self.content.end), cursor.at.max(self.content.end));
            self.report(DamageKind::Records, low, high - low, None);
        }
        Ok(())
    }

    /// Goes from record to record, where nothing names them; behind a head that is damaged, from the next one that is
    /// told alone.
    fn walk(&mut self) -> Result<(), CheckStop> {
        let header = self.content.header;
        let end = self.content.end;
        let mut at = SEGMENT_HEADER_BYTES as u64;
        // What the next record is told by, if the last was whole.
        let mut behind = Some(RecordCursor::new(&header));
        let mut lost: Option<(u64, Option<Fault>)> = None;
        while at < end {
            if let Some(dead_end) = self.dead_end(at) {
                at = dead_end;
                behind = None;
                continue;
            }
            let head = self.whole(at, RECORD_HEAD_BYTES_MAX.min((end - at) as usize))?.map(<[u8]>::to_vec);
            let found = head.as_deref().ok().and_then(|bytes| {
                let next = behind.as_ref().filter(|cursor| cursor.at == at).map(|cursor| cursor.read(&header, bytes));
                match next {
                    Some(HeadRead::Found(found)) => Some(*found),
                    _ => entry::read_alone(&header, at, bytes),
                }
            });
            let found = match found {
                Some(found) => self.sound(at, found)?,
                None => None,
            };
            match found {
                Some((listed, previous)) => {
                    if let Some((from, unread)) = lost.take() {
                        self.report(DamageKind::Records, from, at - from, unread);
                    }
                    self.record(&listed, previous)?;
                    self.checked.records += 1;
                    let mut cursor = RecordCursor::at(listed.span.start);
                    cursor.pass(&header, &listed.header, &listed.entry);
                    at = cursor.at;
                    behind = Some(cursor);
                }
                None => {
                    behind = None;
                    let unread = head.err().flatten();
                    // What cannot be read is passed over in larger steps.
                    let step = if unread.is_some() { UNREAD_STEP_BYTES } else { 1 };
                    lost.get_or_insert((at, unread));
                    at = (at + step).min(end);
                }
            }
        }
        if let Some((from, unread)) = lost {
            self.report(DamageKind::Records, from, end - from, unread);
        }
        Ok(())
    }

    /// A head at `at` whose checksum is right, with the stamp of the record before it.
    fn sound(&mut self, at: u64, found: ReadHead) -> Result<Option<(FooterRecord, Hlc)>, CheckStop> {
        let segment = self.content.header;
        let span = RecordCursor::at(at).span(&segment, &found.header, &found.entry);
        if span.end > self.content.end {
            return Ok(None);
        }
        let Ok(array) = self.whole(span.place, (span.data - span.place) as usize)? else { return Ok(None) };
        let sound = found.is_sound(&segment, array);
        Ok(sound.then_some((FooterRecord { header: found.header, entry: found.entry, span }, found.previous)))
    }

    /// Checks a record that follows one stamped `previous`.
    fn record(&mut self, listed: &FooterRecord, previous: Hlc) -> Result<(), CheckStop> {
        let segment = self.content.header;
        let FooterRecord { header, entry, span } = listed;
        let (payload_len, block_bytes) = (header.payload_len(), segment.block_bytes);
        let (at, head_len) = (span.start, span.data - span.start);
        let head = match self.whole(at, head_len as usize)? {
            Ok(bytes) => {
                let array = bytes[(span.place - at) as usize..].to_vec();
                let crcs: Vec<u32> = array.as_chunks().0.iter().map(|crc| u32::from_le_bytes(*crc)).collect();
                let sound = *bytes == entry::head(&segment, at, header, previous, entry, &crcs);
                Ok((array, sound))
            }
            Err(unread) => Err(unread),
        };
        let damage = |kind, at, len, skip, unread| Damage {
            kind,
            segment: segment.id,
            at,
            len,
            record: Some(header.clone()),
            skip,
            unread,
        };
        let array = match head {
            Ok((array, sound)) => {
                if !sound {
                    (self.out)(damage(DamageKind::Header, at, head_len, 0, None));
                }
                array
            }
            Err(unread) => {
                // Without its checksums nothing of it can be read.
                (self.out)(damage(DamageKind::Header, at, head_len, 0, unread.clone()));
                if payload_len > 0 {
                    (self.out)(damage(DamageKind::Data, at + head_len, payload_len.into(), 0, unread));
                }
                return Ok(());
            }
        };
        let mut bad: Option<(u32, u32, Option<Fault>)> = None;
        for (index, crc) in array.as_chunks().0.iter().enumerate() {
            let from = index as u32 * block_bytes;
            let upto = payload_len.min(from.saturating_add(block_bytes));
            let unread = match self.whole(at + head_len + u64::from(from), (upto - from) as usize)? {
                Ok(bytes) if crc32c(bytes) == u32::from_le_bytes(*crc) => {
                    if let Some((from, upto, unread)) = bad.take() {
                        let (start, len) = (at + head_len + u64::from(from), u64::from(upto - from));
                        (self.out)(damage(DamageKind::Data, start, len, from, unread));
                    }
                    continue;
                }
                Ok(_) => None,
                Err(unread) => unread,
            };
            bad = Some(bad.map_or((from, upto, unread.clone()), |(from, _, before)| (from, upto, before.or(unread))));
        }
        if let Some((from, upto, unread)) = bad {
            let (start, len) = (at + head_len + u64::from(from), u64::from(upto - from));
            (self.out)(damage(DamageKind::Data, start, len, from, unread));
        }
        Ok(())
    }

    fn is_dead(&self, at: u64) -> bool {
        self.dead_end(at).is_some()
    }

    /// End of the stretch of dead records that `at` lies in.
    fn dead_end(&self, at: u64) -> Option<u64> {
        self.skip.range(..=at).next_back().map(|(_, &end)| end).filter(|&end| at < end)
    }

    /// All `len` bytes from `at`, or what the device said; `None` if the file ends before.
    fn whole(&mut self, at: u64, len: usize) -> Result<Result<&[u8], Option<Fault>>, CheckStop> {
        match self.source.bytes(at, len) {
            Ok(bytes) if bytes.len() == len => Ok(Ok(bytes)),
            Ok(_) => Ok(Err(None)),
            Err(CheckStop::Failed(fault)) => Ok(Err(Some(fault))),
            Err(CheckStop::Stop) => Err(CheckStop::Stop),
        }
    }

    fn report(&mut self, kind: DamageKind, at: u64, len: u64, unread: Option<Fault>) {
        let segment = self.content.header.id;
        (self.out)(Damage { kind, segment, at, len, record: None, skip: 0, unread });
    }
}

/// Read of a footer at a time.
const FOOTER_STEP_BYTES: usize = 64 << 10;
/// What cannot be read is passed over by this much: a page.
const UNREAD_STEP_BYTES: u64 = 4096;
