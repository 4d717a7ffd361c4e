//! A checkpoint in memory, for tests: what [`ColdSource`] and [`PieceOffsets`] mean.

use std::fmt;

use frieze_base::crc32c;

use super::place::{ColdSource, PieceWindow};
use super::relocation::PieceOffsets;
use super::snapshot::PresentSnapshot;

/// All pieces of a snapshot, each behind its checksum: inodes, then names.
pub struct MemoryPieces {
    bytes: Vec<u8>,
}

const HEAD_BYTES: usize = 4;

impl MemoryPieces {
    /// The pieces of a snapshot, and where they are.
    pub fn of(snapshot: &PresentSnapshot) -> (MemoryPieces, PieceOffsets) {
        let mut bytes = Vec::new();
        let put = |bytes: &mut Vec<u8>, piece: &[u8]| {
            bytes.extend_from_slice(&crc32c(piece).to_le_bytes());
            bytes.extend_from_slice(piece);
            true
        };
        snapshot.inode_pieces(&mut |piece| put(&mut bytes, piece));
        let names = bytes.len() as u64;
        snapshot.name_pieces(&mut |piece| put(&mut bytes, piece));
        (MemoryPieces { bytes }, PieceOffsets { inodes: 0, names, head_bytes: HEAD_BYTES as u64 })
    }
}

impl ColdSource for MemoryPieces {
    fn read<'a>(&self, offset: u64, piece_bytes: usize, window: &'a mut PieceWindow) -> &'a [u8] {
        let offset = usize::try_from(offset).expect("an offset in memory");
        let (head, piece) = self.bytes[offset - HEAD_BYTES..][..HEAD_BYTES + piece_bytes].split_at(HEAD_BYTES);
        assert_eq!(head, crc32c(piece).to_le_bytes(), "no piece of {piece_bytes} bytes is at {offset}");
        window.bytes.clear();
        window.bytes.extend_from_slice(piece);
        &window.bytes
    }
}

impl fmt::Debug for MemoryPieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of pieces", self.bytes.len())
    }
}
