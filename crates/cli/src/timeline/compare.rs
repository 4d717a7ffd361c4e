//! Two states of a file, compared byte by byte or line by line.

use anyhow::Result;
use frieze_base::{InodeId, Reason};
use frieze_client::{ChangedSpan, Difference, File, FileKind, Fs, HistoryInterval, OpenFlags, Side, Target, flags};
use similar::TextDiff;

use crate::format;

/// Spans listed of one file.
const SPANS_MAX: usize = 1000;
/// Bytes compared at once.
const PIECE_BYTES: usize = 1 << 20;
/// Longest file of which lines are compared.
const TEXT_BYTES_MAX: u64 = 4 << 20;

/// Compares the two states that a difference names.
pub(crate) struct Comparer<'a> {
    fs: &'a Fs,
    interval: HistoryInterval,
}

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Compared {
    /// The same bytes.
    Same,
    /// Other bytes here.
    Differ { spans: Vec<ChangedSpan>, more: bool },
    /// Not two files that may be read.
    Unknown,
}

impl<'a> Comparer<'a> {
    /// Compares states at the ends of `interval`.
    pub(crate) fn new(fs: &'a Fs, interval: HistoryInterval) -> Comparer<'a> {
        Comparer { fs, interval }
    }

    /// The bytes that differ. Only written ranges are read, unless another file has taken the name.
    ///
    /// # Errors
    /// If a file cannot be read, for any reason but its mode.
    pub(crate) fn bytes(&self, difference: &Difference) -> Result<Compared> {
        let (Some(before), Some(after)) = (&difference.before, &difference.after) else { return Ok(Compared::Unknown) };
        let whole = ChangedSpan { offset: 0, len: before.size.max(after.size) };
        let looked_at = match difference.spans.is_empty() || difference.more_spans {
            true => vec![whole],
            false => difference.spans.clone(),
        };
        let Some((old, new)) = self.open(before, after)? else { return Ok(Compared::Unknown) };
        let mut found = FoundSpans::default();
        let (mut left, mut right) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
        for span in looked_at {
            let (mut at, end) = (span.offset, (span.offset + span.len).min(whole.len));
            while at < end && !found.more {
                let len = usize::try_from(end - at).unwrap_or(usize::MAX).min(PIECE_BYTES);
                let (old_len, new_len) = (fill(&old, at, &mut left[..len])?, fill(&new, at, &mut right[..len])?);
                found.piece(at, &left[..old_len], &right[..new_len]);
                at += len as u64;
            }
        }
        Ok(match found.spans.is_empty() {
            true => Compared::Same,
            false => Compared::Differ { spans: found.spans, more: found.more },
        })
    }

    /// The lines that differ, as patch(1) reads them; `None` if it is no text, or too long.
    ///
    /// # Errors
    /// If a file cannot be read, for any reason but its mode.
    pub(crate) fn text(&self, difference: &Difference) -> Result<Option<String>> {
        let sides = [&difference.before, &difference.after];
        if difference.flags & (flags::CONTENT | flags::REPLACED) == 0 && sides.iter().all(|side| side.is_some()) {
            return Ok(None);
        }
        let mut texts = Vec::new();
        for (side, at) in sides.into_iter().zip([self.interval.after, self.interval.upto]) {
            let Some(side) = side else {
                texts.push(("/dev/null".to_owned(), String::new()));
                continue;
            };
            if side.kind() != FileKind::File || side.size > TEXT_BYTES_MAX {
                return Ok(None);
            }
            let Some(file) = self.open_side(side, at)? else { return Ok(None) };
            let mut bytes = vec![0; usize::try_from(side.size)?];
            let len = fill(&file, 0, &mut bytes)?;
            bytes.truncate(len);
            match String::from_utf8(bytes) {
                Ok(text) if !text.contains('\0') => texts.push((format::printable(&side.path), text)),
                _ => return Ok(None),
            }
        }
        let [(old_path, old), (new_path, new)] = &texts[..] else { return Ok(None) };
        if old == new {
            return Ok(None);
        }
        let diff = TextDiff::from_lines(old, new);
        let label = |path: &str, prefix: &str| match path {
            "/dev/null" => path.to_owned(),
            path => format!("{prefix}{path}"),
        };
        Ok(Some(diff.unified_diff().header(&label(old_path, "a"), &label(new_path, "b")).to_string()))
    }

    fn open(&self, before: &Side, after: &Side) -> Result<Option<(File, File)>> {
        if before.kind() != FileKind::File || after.kind() != FileKind::File {
            return Ok(None);
        }
        let old = self.open_side(before, self.interval.after)?;
        Ok(old.zip(self.open_side(after, self.interval.upto)?))
    }

    /// Opens a file as it was; `None` if the caller may not read it.
    fn open_side(&self, side: &Side, at: frieze_client::Hlc) -> Result<Option<File>> {
        let target = Target { follow: false, ..Target::path(side.path.clone()) };
        debug_assert!(InodeId(side.inode) != InodeId(0));
        match self.fs.at(at).open(&target, OpenFlags::READ) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.reason() == Reason::AccessDenied => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Fills `buffer` from a file as far as it goes; returns how far.
fn fill(file: &File, offset: u64, buffer: &mut [u8]) -> Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        let read = file.read_at(offset + done as u64, &mut buffer[done..])?;
        if read == 0 {
            break;
        }
        done += read;
    }
    Ok(done)
}

/// Spans as they are found.
#[derive(Default)]
struct FoundSpans {
    spans: Vec<ChangedSpan>,
    more: bool,
}

impl FoundSpans {
    /// Compares two states of the bytes from `at` on; bytes that only one has differ.
    fn piece(&mut self, at: u64, old: &[u8], new: &[u8]) {
        let both = old.len().min(new.len());
        let mut position = 0;
        while position < both {
            let Some(start) = (position..both).find(|&byte| old[byte] != new[byte]) else { break };
            let end = (start..both).find(|&byte| old[byte] == new[byte]).unwrap_or(both);
            self.add(at + start as u64, at + end as u64);
            position = end;
        }
        if old.len() != new.len() {
            self.add(at + both as u64, at + old.len().max(new.len()) as u64);
        }
    }

    fn add(&mut self, start: u64, end: u64) {
        let count = self.spans.len();
        match self.spans.last_mut() {
            // A few equal bytes between two that differ are no news.
            Some(last) if start <= last.offset + last.len + NEAR => last.len = end - last.offset,
            _ if count == SPANS_MAX => self.more = true,
            _ => self.spans.push(ChangedSpan { offset: start, len: end - start }),
        }
    }
}

/// Spans nearer to each other than this are merged.
const NEAR: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differing_bytes_are_printed_in_few_spans() {
        let check = |old: &[u8], new: &[u8], expect: &[(u64, u64)]| {
            let mut found = FoundSpans::default();
            found.piece(100, old, new);
            let spans: Vec<(u64, u64)> = found.spans.iter().map(|span| (span.offset, span.len)).collect();
            assert_eq!(spans, expect, "{old:?} {new:?}");
        };
        check(b"same", b"same", &[]);
        check(b"one", b"two", &[(100, 3)]);
        check(b"longer", b"long", &[(104, 2)]);
        check(b"x..............y", b"a..............b", &[(100, 1), (115, 1)]);
        check(b"x...y", b"a...b", &[(100, 5)]);
        check(b"", b"new", &[(100, 3)]);
    }
}
