//! Data and holes of a file: `SEEK_DATA`, `SEEK_HOLE` and `st_blocks`, now and at any instant.
//!
//! A hole is a range that was never written, was punched, or was cut off and grown over again. Answers are exact to the
//! byte. A range without records is skipped a chunk's record at a time, so that a file that is nothing but a hole of
//! 256 PiB costs nothing.

use frieze_base::{ByteRange, Fault, Reason};
use frieze_multilog::{Piece, PieceSource};
use frieze_planes::end_of_chunk;
use frieze_wire::message::Seek;

use crate::read::Reader;
use crate::session::capability::Presenter;
use crate::session::scratch::Scratch;

impl Reader {
    /// The next data, or the next hole, at or after an offset.
    ///
    /// # Errors
    /// `NotFound`: there is none before the end of the file.
    pub fn seek(&self, by: Presenter, ask: &Seek, scratch: &mut Scratch) -> Result<u64, Fault> {
        let capability = self.sessions.mint.open(&ask.capability, by)?;
        self.planes.answer(capability.view)?;
        let inode = self.planes.inode_at(capability.inode, capability.at())?;
        let seen = self.version(capability.inode, inode, capability.view)?;
        let sources = self.files.sources(&seen.inode, ask.offset, u64::MAX)?;
        let look = self.files.look_through(&[&seen], &[&sources])?;
        let size = look.extent(&seen).size;
        if ask.offset >= size {
            return Err(Fault::new(Reason::NotFound, "the offset lies at or beyond the end of the file"));
        }
        let mut at = ask.offset;
        while at < size {
            let next = look.next_written(&seen, &sources, at, size)?;
            if next > at {
                if !ask.data {
                    return Ok(at);
                }
                at = next;
                continue;
            }
            let upto = end_of_chunk(&seen, at, size);
            scratch.pieces.clear();
            match look.plan(&seen, &sources, ByteRange::new(at, upto), &mut scratch.pieces) {
                // Other servers know the holes of this chunk: it counts as data, and reads of its holes return zeros.
                Err(fault) if fault.reason == Reason::Unsupported => {
                    if ask.data {
                        return Ok(at);
                    }
                    at = upto;
                    continue;
                }
                planned => planned?,
            }
            if let Some(piece) = scratch.pieces.iter().find(|piece| is_data(piece) == ask.data) {
                return Ok(piece.at);
            }
            at = upto;
        }
        match ask.data {
            true => Err(Fault::new(Reason::NotFound, "no data at or after the offset")),
            false => Ok(size), // every file ends in a hole
        }
    }
}

fn is_data(piece: &Piece) -> bool {
    matches!(piece.source, PieceSource::Data(_))
}
