//! Pages and blocks leave memory: those that a checkpoint has, and that were not used for long.
//!
//! # Source
//! The clock of Corbató, A paging experiment with the Multics system (1968): a hand goes around, takes the mark of use
//! from what has it, and evicts what has none.

use std::sync::Arc;

use super::directories::{self, DirectoryTable};
use super::inode_table::{self, InodeTable};
use super::place::PieceLoads;
use crate::namespace::Namespace;

/// Pages and blocks that one call looks at: less than 1 ms.
const BITE_PIECES: usize = 1024;
/// Leaves without anything that one call looks for.
const BITE_LEAVES: usize = 4096;
/// Ends of names after which a pass gives up. Two ends evict all that is not being used, for the first one takes
/// marks away, and the hand begins in the middle.
const ENDS_MAX: u8 = 3;

/// Memory of packed inodes and names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamesMemory {
    /// Bytes in memory.
    pub bytes: u64,
    /// Bytes that would be in memory, too, if none was cold.
    pub cold_bytes: u64,
    /// Pages and blocks that were cold when they were needed, since the start.
    pub loads: u64,
}

/// The hand of the clock.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct EvictionHand {
    /// True: it is among the names; false: among the inodes.
    is_in_names: bool,
    leaf: u64,
    /// The directory in the leaf, and the group of its blocks.
    at: (u16, usize),
    /// Ends of names that this pass has come to.
    ends: u8,
}

/// Memory of these tables.
pub(super) fn memory_of(inodes: &InodeTable, names: &DirectoryTable, loads: &PieceLoads) -> NamesMemory {
    let ((pages, evicted_pages), (blocks, evicted_blocks)) = (inodes.memory_bytes(), names.memory_bytes());
    let (loads, loaded_bytes) = loads.counts();
    let cold = evicted_pages + evicted_blocks - loaded_bytes;
    let positive = |bytes: i64| u64::try_from(bytes).unwrap_or(0);
    NamesMemory { bytes: positive(pages + blocks - cold), cold_bytes: positive(cold), loads }
}

impl Namespace {
    /// Memory of packed inodes and names. What is not packed is not in it.
    pub fn names_memory(&self) -> NamesMemory {
        memory_of(&self.inodes, &self.directories, &self.piece_loads)
    }

    /// What counts the pieces that are read again; for [`crate::ColdFile::new`].
    pub fn piece_loads(&self) -> &Arc<PieceLoads> {
        &self.piece_loads
    }

    /// A pass of evictions begins.
    pub fn begin_eviction(&mut self) {
        self.hand.ends = 0;
    }

    /// Evicts pages and blocks that were not used since the pass before, until `bytes_max` bytes are left, or all were
    /// looked at twice. True if there is more to do: call it again, after others had the lock.
    ///
    /// # Cost
    /// Less than 1 ms.
    pub fn evict(&mut self, bytes_max: u64) -> bool {
        let (mut pieces, mut leaves) = (BITE_PIECES, BITE_LEAVES);
        let mut hand = self.hand;
        while hand.ends < ENDS_MAX && self.names_memory().bytes > bytes_max && pieces > 0 && leaves > 0 {
            leaves -= 1;
            if !hand.is_in_names {
                self.inodes.evict(hand.leaf, &mut pieces);
                hand.leaf += 1;
                if hand.leaf > self.last_id / inode_table::LEAF_INODES {
                    hand = EvictionHand { is_in_names: true, ends: hand.ends, ..EvictionHand::default() };
                }
                continue;
            }
            match self.directories.evict(hand.leaf, hand.at, &mut pieces) {
                Some(at) => hand.at = at,
                None => (hand.leaf, hand.at) = (hand.leaf + 1, (0, 0)),
            }
            if hand.leaf > self.last_id / directories::LEAF_INODES {
                hand = EvictionHand { ends: hand.ends + 1, ..EvictionHand::default() };
            }
        }
        self.hand = hand;
        hand.ends < ENDS_MAX && self.names_memory().bytes > bytes_max
    }
}

#[cfg(test)]
mod tests;
