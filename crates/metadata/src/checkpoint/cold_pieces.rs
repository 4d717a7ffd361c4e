//! Reads single pieces of a checkpoint again: those that are not in memory ([`frieze_namespace::ColdSource`]).

use std::fmt;
use std::sync::Arc;

use frieze_disk::DiskFile;
use frieze_namespace::{ColdSource, PieceOffsets, PieceWindow};

use super::format::{HEADER_BYTES, Header, PIECE_HEAD_BYTES, UNFINISHED, piece_head};

/// A checkpoint that has its name. The open file keeps its bytes after it is removed from the directory.
pub(super) struct CheckpointPieces {
    name: String,
    file: Arc<dyn DiskFile>,
}

/// Names that are in a checkpoint alone cannot be read. This is the payload of a panic: a transaction may be half
/// executed, so the process has to end, as `frieze serve` does with every panic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostNames {
    /// What failed, of which file at which offset, and what to do.
    pub words: String,
    /// True: the disk failed; false: what it read is damaged.
    pub is_unreadable: bool,
}

impl CheckpointPieces {
    pub(super) fn new(name: String, file: Arc<dyn DiskFile>) -> CheckpointPieces {
        CheckpointPieces { name, file }
    }

    /// Ends the process: what asks for the piece has no other way to get it, and must not answer without it.
    fn lose(&self, offset: u64, what: &dyn fmt::Display, is_unreadable: bool) -> ! {
        let words = format!(
            "the server stops: names that are not in memory cannot be read at offset {offset} of {}: {what}; start it \
             again: it reads the whole file, and the store in place of a damaged one",
            self.name
        );
        tracing::error!("{words}");
        std::panic::panic_any(LostNames { words, is_unreadable })
    }
}

/// Where a checkpoint of this header has its pieces.
pub(super) fn offsets(header: &Header) -> PieceOffsets {
    let inodes = HEADER_BYTES as u64;
    PieceOffsets { inodes, names: inodes + header.inodes.bytes, head_bytes: PIECE_HEAD_BYTES as u64 }
}

impl ColdSource for CheckpointPieces {
    fn read<'a>(&self, offset: u64, piece_bytes: usize, window: &'a mut PieceWindow) -> &'a [u8] {
        let (from, bytes) = (offset - PIECE_HEAD_BYTES as u64, PIECE_HEAD_BYTES + piece_bytes);
        let ends_in_window = from + bytes as u64 <= window.offset + window.bytes.len() as u64;
        if from < window.offset || !ends_in_window {
            window.offset = from;
            window.bytes.resize(bytes.max(window.read_ahead_bytes), 0);
            match self.file.read_at(from, &mut window.bytes) {
                Ok(found) if found < bytes => self.lose(offset, &"the file is cut off", false),
                Ok(found) => window.bytes.truncate(found),
                // The handle has the name that the file had when it was written.
                Err(error) => self.lose(offset, &error.to_string().replace(UNFINISHED, &self.name), true),
            }
        }
        let (head, piece) = window.bytes[(from - window.offset) as usize..][..bytes].split_at(PIECE_HEAD_BYTES);
        // The checksum of the section begins with another number, that of the piece does not.
        if head != piece_head(0, piece).0 {
            self.lose(offset, &"the checksum of the piece is wrong", false);
        }
        piece
    }
}

impl fmt::Debug for CheckpointPieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests;
