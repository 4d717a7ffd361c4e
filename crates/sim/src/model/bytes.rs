//! The bytes of one file as a list of events, folded anew for every question: slow, short, and independent of the
//! server's design.

use std::collections::BTreeSet;
use std::sync::Arc;

use frieze_hlc::Hlc;

/// Everything that ever happened to a file's length, bytes and modification time, by stamp.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileBytes {
    events: Vec<FileEvent>,
}

/// One thing that happened.
#[derive(Clone, Debug)]
pub(crate) struct FileEvent {
    pub(crate) stamp: Hlc,
    pub(crate) what: FileEventKind,
}

/// An event.
#[derive(Clone, Debug)]
pub(crate) enum FileEventKind {
    Write(FileWrite),
    Punch(FilePunch),
    Truncate {
        len: u64,
    },
    /// The modification time was set by hand.
    Touch {
        mtime_ns: i64,
    },
    /// A clone, restore, undo or copied range decided some of it.
    Edit {
        shares: Vec<SharedRange>,
        /// The length it set: it decides every byte beyond.
        size: Option<u64>,
        /// The length that the file has at least: it decides no byte beyond, as a write decides none.
        least: u64,
    },
}

/// A range with the content of an older state.
#[derive(Clone, Debug)]
pub(crate) struct SharedRange {
    /// First byte.
    pub(crate) start: u64,
    /// One past the last.
    pub(crate) end: u64,
    /// False: it is a hole that was punched, without content of another state.
    pub(crate) shows: bool,
    /// Content of that state: the rest of the range is a hole.
    pub(crate) pieces: Vec<(u64, Arc<[u8]>)>,
}

/// Bytes written.
#[derive(Clone, Debug)]
pub(crate) struct FileWrite {
    pub(crate) session: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: Arc<[u8]>,
    pub(crate) user_time: Option<i64>,
}

/// A hole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FilePunch {
    pub(crate) session: u64,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl FileWrite {
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }
}

/// Which events count: all stamped up to `upto`, but for those of `without`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut<'a> {
    pub(crate) upto: Hlc,
    pub(crate) without: &'a [Hlc],
}

impl Cut<'_> {
    /// Everything.
    pub(crate) const NOW: Cut<'static> = Cut { upto: Hlc::MAX, without: &[] };

    fn holds(&self, stamp: Hlc) -> bool {
        stamp <= self.upto && !self.without.contains(&stamp)
    }
}

impl FileBytes {
    /// A file to which nothing has happened.
    pub(crate) const NONE: FileBytes = FileBytes { events: Vec::new() };

    /// Adds an event, at any place in time.
    pub(crate) fn add(&mut self, stamp: Hlc, what: FileEventKind) {
        let at = self.events.partition_point(|event| event.stamp <= stamp);
        self.events.insert(at, FileEvent { stamp, what });
    }

    fn within<'a>(&'a self, cut: Cut<'a>) -> impl DoubleEndedIterator<Item = &'a FileEvent> {
        self.events.iter().filter(move |event| cut.holds(event.stamp))
    }

    /// The writes of a cut, by stamp.
    pub(crate) fn writes<'a>(&'a self, cut: Cut<'a>) -> impl DoubleEndedIterator<Item = (Hlc, &'a FileWrite)> {
        self.within(cut).filter_map(|event| match &event.what {
            FileEventKind::Write(write) => Some((event.stamp, write)),
            _ => None,
        })
    }

    /// The holes of a cut, by stamp.
    pub(crate) fn punches<'a>(&'a self, cut: Cut<'a>) -> impl Iterator<Item = (Hlc, FilePunch)> {
        self.within(cut).filter_map(|event| match event.what {
            FileEventKind::Punch(punch) => Some((event.stamp, punch)),
            _ => None,
        })
    }

    /// How many of the chunks `first..=last`, of `chunk_bytes`, have a record, or ever showed content of another state.
    pub(crate) fn chunks_written(&self, first: u64, last: u64, chunk_bytes: u64) -> u64 {
        let mut chunks = BTreeSet::new();
        let mut shown: Vec<(u64, u64)> = Vec::new();
        for event in &self.events {
            match &event.what {
                FileEventKind::Write(write) => {
                    chunks.extend(write.offset / chunk_bytes..=(write.end() - 1) / chunk_bytes)
                }
                // Of the others it has those that were written or showed content before.
                FileEventKind::Punch(punch) => {
                    let (start, end) = (punch.offset / chunk_bytes, (punch.offset + punch.len - 1) / chunk_bytes);
                    chunks.insert(start);
                    for (from, to) in &shown {
                        chunks.extend((from / chunk_bytes).max(start)..=((to - 1) / chunk_bytes).min(end));
                    }
                }
                FileEventKind::Edit { shares, size, .. } => {
                    // The part that it cuts off itself was never visible.
                    let size = size.unwrap_or(u64::MAX);
                    let ends =
                        shares.iter().filter(|share| share.shows).map(|share| (share.start, share.end.min(size)));
                    shown.extend(ends.filter(|(start, end)| start < end));
                }
                FileEventKind::Truncate { .. } | FileEventKind::Touch { .. } => {}
            }
        }
        for (start, end) in shown {
            chunks.extend((start / chunk_bytes).max(first)..=((end - 1) / chunk_bytes).min(last));
        }
        chunks.iter().filter(|chunk| (first..=last).contains(chunk)).count() as u64
    }

    /// The truncates of a cut, by stamp.
    pub(crate) fn truncates<'a>(&'a self, cut: Cut<'a>) -> impl Iterator<Item = (Hlc, u64)> {
        self.within(cut).filter_map(|event| match event.what {
            FileEventKind::Truncate { len } => Some((event.stamp, len)),
            _ => None,
        })
    }

    pub(crate) fn size(&self, cut: Cut<'_>) -> u64 {
        self.within(cut).fold(0, |size, event| match &event.what {
            FileEventKind::Write(write) => size.max(write.end()),
            FileEventKind::Truncate { len } | FileEventKind::Edit { size: Some(len), .. } => *len,
            FileEventKind::Edit { size: None, least, .. } => size.max(*least),
            FileEventKind::Punch(_) | FileEventKind::Touch { .. } => size,
        })
    }

    /// The modification time; `None` if nothing happened.
    pub(crate) fn mtime_ns(&self, cut: Cut<'_>) -> Option<i64> {
        self.within(cut).next_back().map(|event| match event.what {
            FileEventKind::Touch { mtime_ns } => mtime_ns,
            _ => event.stamp.unix_ns(),
        })
    }

    /// The stamp of the newest write or hole.
    pub(crate) fn newest_write(&self, cut: Cut<'_>) -> Option<Hlc> {
        let mut written =
            self.within(cut).filter(|event| matches!(event.what, FileEventKind::Write(_) | FileEventKind::Punch(_)));
        written.next_back().map(|event| event.stamp)
    }

    /// Newest user time of the records after a stamp.
    pub(crate) fn newest_user_time(&self, after: Hlc, cut: Cut<'_>) -> Option<i64> {
        self.writes(cut).filter(|(stamp, _)| *stamp > after).filter_map(|(_, write)| write.user_time).max()
    }

    /// Up to `len` bytes from `offset`, cut at the end of the file.
    pub(crate) fn read(&self, cut: Cut<'_>, offset: u64, len: u64) -> Vec<u8> {
        let size = self.size(cut);
        let (start, end) = (offset.min(size), offset.saturating_add(len).min(size));
        let mut bytes = vec![0u8; (end - start) as usize];
        for event in self.within(cut) {
            match &event.what {
                FileEventKind::Write(write) => {
                    let (from, to) = (write.offset.max(start), write.end().min(end));
                    if from < to {
                        let source = &write.bytes[(from - write.offset) as usize..(to - write.offset) as usize];
                        bytes[(from - start) as usize..(to - start) as usize].copy_from_slice(source);
                    }
                }
                FileEventKind::Punch(punch) => {
                    let (from, to) = (punch.offset.clamp(start, end), (punch.offset + punch.len).clamp(start, end));
                    bytes[(from - start) as usize..(to - start) as usize].fill(0);
                }
                FileEventKind::Truncate { len } => bytes[((*len).clamp(start, end) - start) as usize..].fill(0),
                FileEventKind::Touch { .. } => {}
                FileEventKind::Edit { shares, size, .. } => {
                    for share in shares {
                        let (from, to) = (share.start.clamp(start, end), share.end.clamp(start, end));
                        bytes[(from - start) as usize..(to - start) as usize].fill(0);
                        for (at, piece) in &share.pieces {
                            let (from, to) = ((*at).max(start), (at + piece.len() as u64).min(end));
                            if from < to {
                                let source = &piece[(from - at) as usize..(to - at) as usize];
                                bytes[(from - start) as usize..(to - start) as usize].copy_from_slice(source);
                            }
                        }
                    }
                    if let Some(len) = size {
                        bytes[((*len).clamp(start, end) - start) as usize..].fill(0);
                    }
                }
            }
        }
        bytes
    }

    /// Content of a range at a cut, moved by so many bytes: everything outside of the pieces is a hole.
    pub(crate) fn pieces(&self, cut: Cut<'_>, from: u64, to: u64, moved: i64) -> Vec<(u64, Arc<[u8]>)> {
        let mut pieces = Vec::new();
        let mut at = from;
        for (start, end) in self.data(cut) {
            let (start, end) = (start.max(at), end.min(to));
            if start < end {
                pieces.push((start.wrapping_add_signed(moved), self.read(cut, start, end - start).into()));
                at = end;
            }
        }
        pieces
    }

    /// The edits of a cut that decided bytes or length, by stamp.
    pub(crate) fn edits<'a>(&'a self, cut: Cut<'a>) -> impl Iterator<Item = Hlc> {
        self.within(cut).filter(|event| matches!(event.what, FileEventKind::Edit { .. })).map(|event| event.stamp)
    }

    /// True if bytes or length were changed after an instant and up to another.
    pub(crate) fn is_changed(&self, after: Hlc, upto: Hlc) -> bool {
        let within = |event: &&FileEvent| event.stamp > after && event.stamp <= upto;
        self.events.iter().filter(within).any(|event| !matches!(event.what, FileEventKind::Touch { .. }))
    }

    /// Stamps of the newest changes of the bytes of a range.
    pub(crate) fn newest_of(&self, start: u64, end: u64) -> BTreeSet<Hlc> {
        self.tops(start, end, Hlc::MAX).into_iter().map(|(_, _, stamp)| stamp).collect()
    }

    /// The newest change up to an instant of every byte of a range: ranges with their stamps, in no order.
    pub(crate) fn tops(&self, start: u64, end: u64, upto: Hlc) -> Vec<(u64, u64, Hlc)> {
        let mut tops: Vec<(u64, u64, Hlc)> = Vec::new();
        for event in self.events.iter().filter(|event| event.stamp <= upto) {
            let mut ranges = match &event.what {
                FileEventKind::Write(write) => vec![(write.offset, write.end())],
                FileEventKind::Punch(punch) => vec![(punch.offset, punch.offset + punch.len)],
                FileEventKind::Truncate { len } => vec![(*len, u64::MAX)],
                FileEventKind::Touch { .. } => Vec::new(),
                FileEventKind::Edit { shares, size, .. } => {
                    let shared = shares.iter().map(|share| (share.start, share.end));
                    shared.chain(size.map(|len| (len, u64::MAX))).collect()
                }
            };
            ranges.iter_mut().for_each(|(from, to)| (*from, *to) = ((*from).max(start), (*to).min(end)));
            for (start, end) in ranges.into_iter().filter(|(from, to)| from < to) {
                let left = tops
                    .iter()
                    .flat_map(|(from, to, stamp)| [(*from, (*to).min(start), *stamp), ((*from).max(end), *to, *stamp)]);
                tops = left.filter(|(from, to, _)| from < to).collect();
                tops.push((start, end, event.stamp));
            }
        }
        tops
    }

    /// The first offset from `offset` on that holds data (or, `data` false, a hole); the end of the file is a hole.
    pub(crate) fn seek(&self, cut: Cut<'_>, offset: u64, data: bool) -> Option<u64> {
        let size = self.size(cut);
        if offset >= size {
            return None;
        }
        let ranges = self.data(cut);
        if data {
            return ranges.iter().filter(|(_, to)| *to > offset).map(|(from, _)| (*from).max(offset)).min();
        }
        let mut at = offset;
        for (from, to) in ranges {
            if from > at {
                break;
            }
            at = at.max(to);
        }
        Some(at.min(size))
    }

    /// Bytes that hold data.
    pub(crate) fn live(&self, cut: Cut<'_>) -> u64 {
        let ranges = self.data(cut);
        let (mut live, mut at) = (0, 0);
        for (from, to) in ranges {
            live += to.saturating_sub(from.max(at));
            at = at.max(to);
        }
        live
    }

    /// The ranges that hold data, sorted; they may overlap.
    fn data(&self, cut: Cut<'_>) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for event in self.within(cut) {
            match &event.what {
                FileEventKind::Write(write) => ranges.push((write.offset, write.end())),
                FileEventKind::Punch(punch) => cut_out(&mut ranges, punch.offset, punch.offset + punch.len),
                FileEventKind::Truncate { len } => cut_out(&mut ranges, *len, u64::MAX),
                FileEventKind::Touch { .. } => {}
                FileEventKind::Edit { shares, size, .. } => {
                    for share in shares {
                        cut_out(&mut ranges, share.start, share.end);
                        ranges.extend(share.pieces.iter().map(|(at, piece)| (*at, at + piece.len() as u64)));
                    }
                    if let Some(len) = size {
                        cut_out(&mut ranges, *len, u64::MAX);
                    }
                }
            }
        }
        ranges.sort_unstable();
        ranges
    }
}

/// Takes `start..end` from ranges.
fn cut_out(ranges: &mut Vec<(u64, u64)>, start: u64, end: u64) {
    let left = ranges.iter().flat_map(|(from, to)| [(*from, (*to).min(start)), ((*from).max(end), *to)]);
    *ranges = left.filter(|(from, to)| from < to).collect();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(offset: u64, bytes: &[u8]) -> FileEventKind {
        FileEventKind::Write(FileWrite { session: 1, offset, bytes: bytes.into(), user_time: None })
    }

    #[test]
    fn a_hole_hides_what_was_there_and_what_comes_after_shows() {
        let mut file = FileBytes::default();
        file.add(Hlc(1), write(0, b"abcdef"));
        file.add(Hlc(2), FileEventKind::Punch(FilePunch { session: 1, offset: 1, len: 4 }));
        file.add(Hlc(3), write(2, b"x"));
        assert_eq!(file.read(Cut::NOW, 0, 10), b"a\0x\0\0f");
        assert_eq!((file.live(Cut::NOW), file.size(Cut::NOW)), (3, 6));
        assert_eq!((file.seek(Cut::NOW, 0, false), file.seek(Cut::NOW, 3, true)), (Some(1), Some(5)));
        assert_eq!(file.live(Cut { upto: Hlc(1), without: &[] }), 6);
    }

    #[test]
    fn truncated_bytes_read_as_zeros_when_the_file_grows_again() {
        let mut file = FileBytes::default();
        file.add(Hlc(1), write(0, b"abcdef"));
        file.add(Hlc(2), FileEventKind::Truncate { len: 2 });
        file.add(Hlc(3), write(4, b"x"));
        assert_eq!(file.read(Cut::NOW, 0, 10), b"ab\0\0x");
        assert_eq!(file.read(Cut { upto: Hlc(1), without: &[] }, 1, 3), b"bcd");
        assert_eq!(file.read(Cut { upto: Hlc::MAX, without: &[Hlc(2)] }, 0, 10), b"abcdxf");
        assert_eq!((file.seek(Cut::NOW, 0, false), file.seek(Cut::NOW, 2, true)), (Some(2), Some(4)));
        assert_eq!((file.seek(Cut::NOW, 4, false), file.seek(Cut::NOW, 5, true)), (Some(5), None));
    }
}
