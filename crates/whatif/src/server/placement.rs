//! Where the bytes of files lie in a server's log.
//!
//! A write becomes a record behind the last one: its head, the checksums of its blocks, its bytes. A file consists of
//! pieces of records, the newest of each place. What was read and never written lay there before the load began, each
//! file in a place of its own.

use std::collections::BTreeMap;

use frieze_tier::RecordBlocks;
use frieze_trace::DeviceFile;

use super::{ServedFile, page_bytes};

/// Bytes that a read requests of one file of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReadSpan {
    pub(super) file: ServedFile,
    /// Position in the log of the file's first byte; `None` before the log of the load.
    pub(super) base: Option<u64>,
    /// Position in the log of the first byte of the record's payload, which decides whether it is young.
    pub(super) data_position: u64,
    pub(super) start: u64,
    pub(super) end: u64,
}

impl ReadSpan {
    pub(super) fn is_old(&self, edge: u64) -> bool {
        self.base.is_none() || self.data_position < edge
    }

    /// The offset up to which the file is old.
    pub(super) fn old_end(&self, edge: u64) -> u64 {
        self.base.map_or(u64::MAX, |base| edge.saturating_sub(base))
    }

    pub(super) fn page_bytes(&self) -> u64 {
        page_bytes(self.start, self.end)
    }
}

/// A piece of a file: a part of a record.
#[derive(Clone, Copy, Debug)]
struct LogExtent {
    end: u64,
    segment: u64,
    place: RecordBlocks,
    /// Bytes of the record before the piece.
    skip: u64,
}

#[derive(Clone, Debug, Default)]
struct PlacedFile {
    /// By first byte.
    extents: BTreeMap<u64, LogExtent>,
    /// Its end now: of what was written, and where it is read before it is written, of all that the load reads.
    size: u64,
    /// All that the load ever reads or writes of it.
    size_max: u64,
    is_known: bool,
}

/// The log, and where the bytes of each file lie in it.
#[derive(Clone, Debug)]
pub(super) struct LogPlaces {
    files: Vec<PlacedFile>,
    segment: u64,
    /// End of the log in its last segment.
    offset: u64,
}

impl LogPlaces {
    /// An empty log, and files of which the load reads or writes so many bytes at most.
    pub(super) fn new(sizes: impl Iterator<Item = u64>) -> LogPlaces {
        let files = sizes.map(|size_max| PlacedFile { size_max, ..PlacedFile::default() }).collect();
        LogPlaces { files, segment: 0, offset: SEGMENT_HEADER_BYTES }
    }

    /// Writes `bytes` at `offset` of a file. Returns the end of the log.
    pub(super) fn write(&mut self, file: u32, offset: u64, bytes: u64) -> u64 {
        let mut done = 0;
        while done < bytes {
            let len = (bytes - done).min(RECORD_BYTES_MAX);
            let place = self.append(len);
            let (start, segment) = (offset.saturating_add(done), self.segment);
            let end = start.saturating_add(len);
            self.files[file as usize].put(start, LogExtent { end, segment, place, skip: 0 });
            done += len;
        }
        let of_file = &mut self.files[file as usize];
        of_file.is_known = true;
        of_file.size = of_file.size.max(offset.saturating_add(bytes));
        self.end()
    }

    /// The file is removed: what is written under its number later is another one.
    pub(super) fn remove(&mut self, file: u32) {
        let of_file = &mut self.files[file as usize];
        (of_file.size, of_file.is_known) = (0, true);
        of_file.extents.clear();
    }

    /// The end of a file that is about to be read.
    pub(super) fn size(&mut self, file: u32) -> u64 {
        let of_file = &mut self.files[file as usize];
        if !std::mem::replace(&mut of_file.is_known, true) {
            of_file.size = of_file.size_max;
        }
        of_file.size
    }

    /// What a read of `start..end` of a file requests.
    pub(super) fn spans(&self, file: u32, start: u64, end: u64, out: &mut Vec<ReadSpan>) {
        let of_file = &self.files[file as usize];
        let before = of_file.extents.range(..=start).next_back().filter(|(_, extent)| extent.end > start);
        let first = before.map_or(start, |(first, _)| *first);
        let mut at = start;
        for (first, extent) in of_file.extents.range(first..end) {
            if at < *first {
                out.push(span_before(file, at, *first));
            }
            let (from, upto) = (at.max(*first), end.min(extent.end));
            let base = extent.segment * SEGMENT_BYTES;
            for (start, end) in extent.place.ranges(extent.skip + (from - first), upto - from).into_iter().flatten() {
                out.push(ReadSpan {
                    file: ServedFile::Device(DeviceFile::Segment(extent.segment)),
                    base: Some(base),
                    data_position: base + extent.place.data_start,
                    start,
                    end,
                });
            }
            at = upto;
        }
        if at < end {
            out.push(span_before(file, at, end));
        }
    }

    /// The place of a new record.
    fn append(&mut self, len: u64) -> RecordBlocks {
        let head = RECORD_HEAD_BYTES + 4 * len.div_ceil(BLOCK_BYTES);
        if self.offset + head + len > SEGMENT_BYTES - SEGMENT_FOOTER_BYTES {
            (self.segment, self.offset) = (self.segment + 1, SEGMENT_HEADER_BYTES);
        }
        let (crcs_start, data_start) = (self.offset + RECORD_HEAD_BYTES, self.offset + head);
        self.offset = data_start + len;
        RecordBlocks { crcs_start, data_start, len, block_bytes: BLOCK_BYTES }
    }

    fn end(&self) -> u64 {
        self.segment * SEGMENT_BYTES + self.offset
    }
}

impl PlacedFile {
    /// Puts a piece in place of what was there.
    fn put(&mut self, start: u64, extent: LogExtent) {
        let end = extent.end;
        if let Some((first, before)) = self.extents.range(..start).next_back().map(|(first, before)| (*first, *before))
            && before.end > start
        {
            self.extents.insert(first, LogExtent { end: start, ..before });
            if before.end > end {
                self.extents.insert(end, LogExtent { skip: before.skip + (end - first), ..before });
            }
        }
        while let Some((first, covered)) = self.extents.range(start..end).next().map(|(first, old)| (*first, *old)) {
            self.extents.remove(&first);
            if covered.end > end {
                self.extents.insert(end, LogExtent { skip: covered.skip + (end - first), ..covered });
            }
        }
        self.extents.insert(start, extent);
    }
}

/// Bytes that a file had before the load: whole blocks of it.
fn span_before(file: u32, start: u64, end: u64) -> ReadSpan {
    let (start, end) = (start / BLOCK_BYTES * BLOCK_BYTES, end.next_multiple_of(BLOCK_BYTES));
    ReadSpan { file: ServedFile::Before(file), base: None, data_position: 0, start, end }
}

/// The defaults of the log of a device (`multilog`, `LogSettings`).
const SEGMENT_BYTES: u64 = 64 << 20;
const BLOCK_BYTES: u64 = 16 << 10;
const SEGMENT_HEADER_BYTES: u64 = 64;
/// Mean head of a record before its checksums: fields are stored as differences to the record before (ADR 18).
const RECORD_HEAD_BYTES: u64 = 24;
/// Room for the footer of a segment, about: some 20 bytes a record of 16 KiB.
const SEGMENT_FOOTER_BYTES: u64 = 80 << 10;
/// The longest write of one request (`wire`, `PAYLOAD_BYTES_MAX`).
const RECORD_BYTES_MAX: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(log: &LogPlaces, start: u64, end: u64) -> Vec<(bool, u64)> {
        let mut spans = Vec::new();
        log.spans(0, start, end, &mut spans);
        spans.iter().map(|span| (span.base.is_none(), span.end - span.start)).collect()
    }

    #[test]
    fn a_read_finds_the_newest_record_of_each_byte() {
        let mut log = LogPlaces::new([1 << 20].into_iter());
        log.write(0, 0, 1000);
        log.write(0, 200, 100);
        log.write(0, 250, 10);
        // A block is verified as a whole: each piece costs its record, and the checksum before it.
        assert_eq!(pieces(&log, 0, 1000), [(false, 1004), (false, 104), (false, 14), (false, 104), (false, 1004)]);
        assert_eq!(pieces(&log, 0, 1), [(false, 1004)]);
        assert_eq!(pieces(&log, 255, 256), [(false, 14)]);
        assert_eq!(pieces(&log, 260, 299), [(false, 104)]);
        log.write(0, 100, 800);
        assert_eq!(pieces(&log, 0, 1000), [(false, 1004), (false, 804), (false, 1004)]);
    }

    #[test]
    fn what_was_never_written_lay_there_before() {
        let mut log = LogPlaces::new([100_000].into_iter());
        assert_eq!(log.size(0), 100_000, "read first: it was there");
        log.write(0, 20_000, 100);
        assert_eq!(pieces(&log, 0, 40_000), [(true, 32 << 10), (false, 104), (true, 32 << 10)]);
        log.remove(0);
        assert_eq!(log.size(0), 0);
        log.write(0, 0, 50);
        assert_eq!(log.size(0), 50);
    }

    #[test]
    fn a_long_write_is_several_records_and_a_segment_is_filled() {
        let mut log = LogPlaces::new([1 << 30].into_iter());
        let end = log.write(0, 0, 5 << 20);
        assert_eq!(end, SEGMENT_HEADER_BYTES + 2 * RECORD_HEAD_BYTES + 4 * 320 + (5 << 20));
        for part in 0..20 {
            log.write(0, part << 22, 4 << 20);
        }
        assert_eq!(log.segment, 1);
        // Two of 4 MiB, the checksums of the first lie near its blocks.
        let mut spans = Vec::new();
        log.spans(0, 0, 8 << 20, &mut spans);
        assert_eq!(spans.len(), 2);
    }
}
