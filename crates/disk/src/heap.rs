//! What the allocator keeps of memory that was given back to it.

#![expect(unsafe_code, reason = "malloc_trim has no wrapper; this file is all of it")]

/// Gives pages that the allocator holds and nobody uses back to the machine.
///
/// glibc keeps an arena for every few threads and gives back by itself only what lies at the end of one: a server whose
/// connections come and go grows by what each left behind. Elsewhere nothing happens.
///
/// # Cost
/// Some milliseconds for each 100 MiB of heap, during which each arena in turn is locked; and the faults of whoever needs
/// the memory again.
pub fn give_back_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer and touches only what is free.
    unsafe {
        libc::malloc_trim(KEPT_BYTES);
    }
}

/// Left at the end of an arena, for what comes next.
#[cfg(target_env = "gnu")]
const KEPT_BYTES: usize = 1 << 20;
