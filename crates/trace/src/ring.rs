//! The file of a ring: a page of header, then blocks of slots, written lap after lap.
//!
//! | words of the header | content |
//! |---|---|
//! | 0 | magic |
//! | 1 | version; slots of a block in the upper half |
//! | 2 | blocks |
//! | 3 | blocks that were claimed since the start |
//! | 4; 5 | wall clock less monotonic clock at the start, ns; monotonic clock at the start, ns |
//! | 6; 7 | process; fingerprint of the key of hashes |
//! | 8 | readings of both clocks since the start |
//! | 64..448 | the newest [`CLOCK_READINGS`] readings: monotonic clock, wall clock, newest stamp |
//! | 448..512 | program: length, then bytes |
//!
//! A thread claims a block by one addition, and fills its slots alone. A slot says in which lap it was written, so a
//! block that a thread has left unfilled shows no event of an earlier lap.

use crate::event::SLOT_WORDS;

/// "frzring" and a zero.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"frzring\0");
/// Of the header and of the slots.
pub(crate) const VERSION: u32 = 1;
/// Words of the header.
pub(crate) const HEADER_WORDS: usize = 512;
/// Slots of a block: a page.
pub(crate) const BLOCK_SLOTS: u64 = 64;
/// Bytes of a block.
pub(crate) const BLOCK_BYTES: u64 = BLOCK_SLOTS * SLOT_WORDS as u64 * 8;
/// Readings of both clocks that are kept.
pub(crate) const CLOCK_READINGS: u64 = 128;

pub(crate) const FORMAT_WORD: usize = 1;
pub(crate) const BLOCKS_WORD: usize = 2;
pub(crate) const CLAIMED_WORD: usize = 3;
pub(crate) const OFFSET_WORD: usize = 4;
pub(crate) const START_WORD: usize = 5;
pub(crate) const PROCESS_WORD: usize = 6;
pub(crate) const KEY_WORD: usize = 7;
pub(crate) const READINGS_WORD: usize = 8;
pub(crate) const READING_WORDS: usize = 64;
pub(crate) const PROGRAM_WORDS: usize = 448;
/// Bytes of a program's name in the header.
pub(crate) const PROGRAM_BYTES_MAX: usize = (HEADER_WORDS - PROGRAM_WORDS - 1) * 8;

/// First word of a slot.
pub(crate) fn slot_word(slot: u64) -> usize {
    HEADER_WORDS + slot as usize * SLOT_WORDS
}
