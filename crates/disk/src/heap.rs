//! What the allocator keeps of memory that was given back to it.

#![expect(unsafe_code, reason = "mallopt and malloc_trim have no wrappers; this file is all of it")]

/// Lets the allocator keep no more arenas than there are processors, two at least. To be called before there are threads.
///
/// By itself glibc makes eight for each processor, and each keeps what its threads left behind: a server's memory becomes
/// that of its connections so far. Small allocations go through a cache of each thread in either case. Elsewhere nothing
/// happens.
pub fn use_few_arenas() {
    #[cfg(target_env = "gnu")]
    {
        let processors = std::thread::available_parallelism().map_or(2, |count| count.get().clamp(2, 64));
        // SAFETY: it takes no pointer, and nobody else sets this.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, processors as libc::c_int);
        }
    }
}

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
