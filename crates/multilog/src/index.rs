//! What was where, when: answers any range at any instant without replaying the log.
//!
//! Guarantees: a plan for an old instant looks at no more entries than one for now, within a factor: in each page of 64
//! KiB at most one base of the fragments visible then and as many deltas (or 16). The
//! index only grows at its end: an answer for `t` never changes by records stamped above `t`.
//! Leaves to others: where segments are (`segment`), reading bytes (the driver).
//!
//! # The algorithm
//! A file has chunks, a chunk has its records in the order of their stamps, so an instant is a number of records, found
//! by one binary search. The bytes of the chunk are cut into pages. A page keeps *deltas*, one for each record that
//! touches it, and now and then a *leaf*: the fragments visible before the next delta, sorted by offset. To know the
//! page at record number `r`, take the last leaf at or before `r` and lay the few deltas up to `r` over it. A new leaf
//! is due when the deltas since the last are as many as its fragments (at least 16), so leaves cost a fragment a delta however
//! the page is cut, 3 to 8 bytes, and what the page shows now is always at hand. A delta is only the record's number.

mod archive;
mod chunk;
mod file;
mod imaged;
mod marks;
mod page;
mod peaks;
mod records;
#[cfg(test)]
mod tests;
mod thin;
mod touched;

use std::mem::size_of;

pub(crate) use archive::{Writer, Writers};
pub(crate) use chunk::{Place, Record};
pub(crate) use file::File;
pub(crate) use imaged::Through;
pub use imaged::{Crowded, Looked, Looking};
pub(crate) use page::PAGE_BYTES;
pub use thin::Thin;
pub(crate) use touched::Touched;

use frieze_hlc::Hlc;

/// A user time, translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserCut {
    /// Reading at this stamp is reading at that user time; [`Hlc::ZERO`] before the first user time of the file.
    pub stamp: Hlc,
    /// Stamp of the next record with a user time: its newest lies above, rows at its beginning may not.
    pub next: Option<Hlc>,
    /// True while the file holds no later user time, of those that count: more records may still belong to the answer.
    pub open: bool,
}

/// Makes room for `additional` items and returns by how many bytes the memory of `vec` grew. Grows by an eighth rather
/// than doubling: the index is most of a server's memory, and slack of a factor of two would be half of it.
pub(crate) fn reserve_slim<T>(vec: &mut Vec<T>, additional: usize) -> usize {
    if vec.capacity() - vec.len() >= additional {
        return 0;
    }
    let before = heap_bytes(vec.capacity() * size_of::<T>());
    let wanted = vec.len() + additional.max(vec.len() / 8);
    // The block of the allocator has room for as many.
    let fit = heap_bytes(wanted * size_of::<T>()) / size_of::<T>();
    vec.reserve_exact(fit - vec.len());
    heap_bytes(vec.capacity() * size_of::<T>()) - before
}

/// Appends an item and returns by how many bytes the memory of `vec` grew.
fn push_slim<T>(vec: &mut Vec<T>, item: T) -> usize {
    let grown = reserve_slim(vec, 1);
    vec.push(item);
    grown
}

/// What an allocation of `bytes` takes from the machine, as jemalloc has it: blocks of 8 and 16 bytes, in steps of 16 up to 128, then four
/// sizes to each doubling; of large ones the pages that are used.
fn heap_bytes(bytes: usize) -> usize {
    match bytes {
        0 => 0,
        1..=8 => 8,
        9..=128 => bytes.next_multiple_of(16),
        129..LARGE_BYTES => bytes.next_multiple_of(1 << ((bytes - 1).ilog2() - 2)),
        _ => bytes.next_multiple_of(PAGE_OF_MACHINE_BYTES),
    }
}

/// From here on an allocation has pages of its own.
const LARGE_BYTES: usize = 16 << 10;
const PAGE_OF_MACHINE_BYTES: usize = 4096;
