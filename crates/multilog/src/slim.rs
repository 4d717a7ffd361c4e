//! Vectors with little slack, and what an allocation takes from the machine.

use std::mem::size_of;

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
pub(crate) fn push_slim<T>(vec: &mut Vec<T>, item: T) -> usize {
    let grown = reserve_slim(vec, 1);
    vec.push(item);
    grown
}

/// What an allocation of `bytes` takes from the machine, as jemalloc has it: blocks of 8 and 16 bytes, in steps of 16
/// up to 128, then four sizes to each doubling; of large ones the pages that are used.
pub(crate) fn heap_bytes(bytes: usize) -> usize {
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
