//! Atomic writes to several ranges, chunks or files.

use frieze_hlc::Hlc;
use frieze_wire::edit::CopyRange;
use frieze_wire::message::{Durability, Reply, Request};

use crate::file::check_range;
use crate::file::write::WritePosition;
use crate::{Error, File, Fs};

/// Bytes for one range of a file.
#[derive(Clone, Copy, Debug)]
pub struct WritePart<'a> {
    /// The file, open for writing.
    pub file: &'a File,
    /// Its first byte.
    pub offset: u64,
    /// The bytes to write.
    pub data: &'a [u8],
}

/// Alignment of the parts in the nameless file: no two parts share a page.
const ALIGNED_BYTES: u64 = 64 << 10;

impl Fs {
    /// Writes all of these parts at one stamp, which is returned: a reader of any instant, and of now, sees all of them
    /// or none, across chunks, files and servers, whatever fails in between. If parts overlap, the later one counts. A
    /// concurrent write to the same bytes is ordered before all of them or after all of them.
    ///
    /// A single part that is one record is written as one. Other parts are written to a file without a name, and one
    /// change of metadata makes them visible in all ranges.
    ///
    /// # Errors
    /// `NotOpenFor`; `Refused` with `Unsupported` for a file with user time; with `TooLarge` for more than 1,024 parts,
    /// or if a file would have more than 256 ranges written so; as any call. Then no part is visible, unless the reply
    /// was lost.
    ///
    /// [`Fs::forget`] works by names: it does not free the bytes of the nameless file.
    ///
    /// # Cost
    /// Two changes of metadata beside the bytes. A file has at most 256 such ranges at a time: this is for commits, not
    /// for every write.
    pub fn write_atomically(&self, parts: &[WritePart<'_>]) -> Result<Hlc, Error> {
        self.must_be_now("writing")?;
        for part in parts {
            part.file.must_write()?;
            check_range(part.offset, part.data.len() as u64)?;
        }
        let parts: Vec<&WritePart<'_>> = parts.iter().filter(|part| !part.data.is_empty()).collect();
        let Some(first) = parts.first() else { return Ok(self.shared.newest()) };
        if parts.len() == 1 && first.file.is_one_write(first.offset, first.data.len()) {
            return Ok(Hlc(first.file.write_once(first.offset, first.data, WritePosition::At)?.stamp));
        }
        let nameless = self.make_nameless(first.file)?;
        let mut ranges = Vec::with_capacity(parts.len());
        let mut at = 0;
        for WritePart { file, offset, data } in parts.iter().copied() {
            nameless.write_at(at, data)?;
            file.note_dirty();
            ranges.push(CopyRange {
                source: nameless.capability().to_vec(),
                source_offset: at,
                target: file.capability().to_vec(),
                target_offset: *offset,
                len: data.len() as u64,
                also: Vec::new(),
            });
            at = (at + data.len() as u64).next_multiple_of(ALIGNED_BYTES);
        }
        let is_sync = parts.iter().any(|part| part.file.durability() == Durability::Sync);
        // After a power loss before the change is ordered the change is sent again, and must find all of the bytes.
        nameless.sync()?;
        let also = ranges.split_off(1);
        let copy = CopyRange { also, ..ranges.remove(0) };
        let number = self.shared.number()?;
        let stamp = match self.shared.call(&first.file.request(Request::CopyRange(copy), number.seq, &[]), &mut [])?.0 {
            Reply::Edited(reply) => Hlc(reply.stamp),
            other => return Err(self.shared.unexpected("an atomic write", &other)),
        };
        if is_sync {
            parts.iter().try_for_each(|part| part.file.sync())?;
        }
        Ok(stamp)
    }
}
