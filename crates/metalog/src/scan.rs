//! Every whole record in the files of a damaged journal, wherever it lies.
//!
//! Guarantees: a record is whole, is of the segment that its file is named after, and has a higher number than the one
//! before it; if it has the next number, it links to the one before. Leaves to others: which of them count.
//!
//! Records behind damage have no chain of links to the beginning. One that was withdrawn, and of which a failed append
//! left all bytes, may be among them.

use frieze_base::{LogIndex, SegmentId, crc32c};

use crate::error::Error;
use crate::format::{self, JournalRecordHeader, RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES};
use crate::recover::{FoundRecord, JournalFiles, SegmentSource};

/// The whole records of a journal.
#[derive(Debug, Default)]
pub(crate) struct JournalScan {
    /// In the order of their numbers. Where a number is left out, records are lost.
    pub(crate) records: Vec<FoundRecord>,
    /// All files, oldest first.
    pub(crate) files: Vec<SegmentId>,
    /// No record has a higher number, whole or not.
    pub(crate) last: LogIndex,
}

impl JournalScan {
    /// Reads all files of `source`.
    ///
    /// # Errors
    /// `WrongVersion`: another build wrote one. `Source`: a file cannot be read.
    ///
    /// # Cost
    /// Memory for all records.
    pub(crate) fn of(source: &mut dyn SegmentSource) -> Result<JournalScan, Error> {
        let files = JournalFiles::read_any(source)?;
        let mut scan = JournalScan::default();
        let mut before: Option<(LogIndex, u32)> = None;
        for file in &files.all {
            let segment = file.segment;
            scan.files.push(segment);
            let bytes = files.load(source, segment)?;
            if let Some(header) = file.header {
                scan.last = scan.last.max(LogIndex(header.first.0 - 1)).max(header.durable);
                // The first record links to the header of the segment, and that to the record before.
                if before.is_some_and(|(number, link)| header.first.0 == number.0 + 1 && header.link == link) {
                    before = Some((LogIndex(header.first.0 - 1), format::link_of(&header.encode())));
                }
            }
            let mut is_first = true;
            let mut offset = SEGMENT_HEADER_BYTES;
            while offset + RECORD_HEADER_BYTES <= bytes.len() {
                let Some((header, body)) = whole_record(&bytes[offset..], segment, &mut scan.last) else {
                    offset += format::ALIGNMENT;
                    continue;
                };
                // Where the header of the segment cannot be read, the link to it is not known.
                let is_unknown = is_first && file.header.is_none();
                let follows = before.is_none_or(|(number, link)| {
                    let is_next = header.number.0 == number.0 + 1;
                    header.number > number && (!is_next || is_unknown || header.link == link)
                });
                if !follows {
                    offset += format::ALIGNMENT;
                    continue;
                }
                is_first = false;
                before = Some((header.number, format::link_of(&bytes[offset..offset + RECORD_HEADER_BYTES])));
                scan.records.push(FoundRecord {
                    number: header.number,
                    data_end: header.data_end,
                    body: body.to_vec(),
                });
                offset += header.size();
            }
        }
        Ok(scan)
    }
}

/// The record that `bytes` begin with, if it is whole. `last` rises to its number, whole or not.
fn whole_record<'a>(
    bytes: &'a [u8],
    segment: SegmentId,
    last: &mut LogIndex,
) -> Option<(JournalRecordHeader, &'a [u8])> {
    let header = JournalRecordHeader::decode(bytes, segment)?;
    *last = (*last).max(header.number).max(header.durable);
    let body = bytes.get(RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + header.body_len as usize)?;
    (crc32c(body) == header.body_crc).then_some((header, body))
}
