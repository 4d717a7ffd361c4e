//! Writes to several places, chunks or files that are seen together.

use frieze_hlc::Hlc;
use frieze_wire::edit::CopyRange;
use frieze_wire::message::{Durability, Reply, Request};

use crate::file::{Place, check_range};
use crate::{Error, File, Fs};

/// Bytes for one place in a file.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The file, open for writing.
    pub file: &'a File,
    /// Where in it.
    pub offset: u64,
    /// What is to be there.
    pub data: &'a [u8],
}

/// Where parts begin in the file in which they wait: nobody shares a page of it.
const ALIGNED_BYTES: u64 = 64 << 10;

impl Fs {
    /// Writes all of these parts at one stamp, which is returned: a reader of any instant, and of now, sees all of them or none, across
    /// chunks, files and servers, whatever breaks in between. Where parts overlap the later counts. What others write at the same
    /// time to the same bytes is before it or after it, as a whole.
    ///
    /// What is one record anyway is written as one. Else the bytes are written to a file without a name, and one change of metadata
    /// shows them in all places.
    ///
    /// # Errors
    /// `NotOpenFor`; `Refused` with `Unsupported` for a file with user time; with `TooLarge` for more than 1,024 parts, or if a file
    /// would show more than 256 ranges written so; as any call. Then nothing is seen, unless the answer was lost.
    ///
    /// [`Fs::forget`] works by names: it does not give back what lies in such a file.
    ///
    /// # Cost
    /// Two changes of metadata, and what the bytes cost. A file shows at most 256 such ranges at a time: this is for commits, not for
    /// every write.
    pub fn write_together(&self, parts: &[Part<'_>]) -> Result<Hlc, Error> {
        self.must_be_now("writing")?;
        for part in parts {
            part.file.must_write()?;
            check_range(part.offset, part.data.len() as u64)?;
        }
        let parts: Vec<&Part<'_>> = parts.iter().filter(|part| !part.data.is_empty()).collect();
        let Some(first) = parts.first() else { return Ok(self.shared.newest()) };
        if parts.len() == 1 && first.file.is_one_write(first.offset, first.data.len()) {
            return Ok(Hlc(first.file.write_once(first.offset, first.data, Place::At)?.stamp));
        }
        let waiting = self.make_nameless(first.file)?;
        let mut ranges = Vec::with_capacity(parts.len());
        let mut at = 0;
        for Part { file, offset, data } in parts.iter().copied() {
            waiting.write_at(at, data)?;
            file.note_dirty();
            ranges.push(CopyRange {
                source: waiting.capability().to_vec(),
                source_offset: at,
                target: file.capability().to_vec(),
                target_offset: *offset,
                len: data.len() as u64,
                also: Vec::new(),
            });
            at = (at + data.len() as u64).next_multiple_of(ALIGNED_BYTES);
        }
        let is_sync = parts.iter().any(|part| part.file.durability() == Durability::Sync);
        // Whoever loses power before the change is ordered must not find less of them than the change shows: it is asked for again.
        waiting.sync()?;
        let also = ranges.split_off(1);
        let ask = CopyRange { also, ..ranges.remove(0) };
        let numbered = self.shared.number()?;
        let stamp = match self.shared.ask(&first.file.ask(Request::CopyRange(ask), numbered.seq, &[]), &mut [])?.0 {
            Reply::Edited(reply) => Hlc(reply.stamp),
            other => return Err(self.shared.unexpected("bytes written together", &other)),
        };
        if is_sync {
            parts.iter().try_for_each(|part| part.file.sync())?;
        }
        Ok(stamp)
    }
}
