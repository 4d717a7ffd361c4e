//! What the allocator keeps of memory that was given back to it.

#![expect(unsafe_code, reason = "mallopt and malloc_trim have no wrappers; this file is all of it")]

/// Settles what the allocator may keep for later. To be called before there are threads.
///
/// *One arena for eight processors.* By itself glibc makes eight for each, and each keeps what its threads left behind: a
/// server's memory becomes that of its connections so far. What is free in one is of no use to the threads of another, so even two
/// hold much more than one: each is in the end as large as it ever had to be, and threads that come and go move what is needed
/// from one to the other. Most small allocations go through a cache of each thread and take no arena's lock.
///
/// *Large pieces are mapped one by one, and unmapped when they are freed.* By itself glibc does so from 128 KiB on, but puts
/// what is freed once, up to 32 MiB, into its arenas from then on. There the records of a shelf in the making, megabytes for
/// some milliseconds, leave room that small pieces move into, and the next shelf is built behind them. A large piece costs
/// the faults of its pages each time, about 0.4 us a KiB: what every request needs is kept by its connection and used again.
///
/// Elsewhere nothing happens.
pub fn settle_allocator() {
    #[cfg(target_env = "gnu")]
    {
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
        let settings = [
            (libc::M_ARENA_MAX, processors.div_ceil(PROCESSORS_EACH).min(ARENAS_MAX) as libc::c_int),
            (libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN),
            // Else 128 KiB, and what lies at an arena's end goes and comes back all the time.
            (libc::M_TRIM_THRESHOLD, KEPT_BYTES as libc::c_int),
        ];
        for (what, value) in settings {
            // SAFETY: it takes no pointer, and nobody else sets these.
            unsafe {
                libc::mallopt(what, value);
            }
        }
    }
}

/// Gives pages that the allocator holds and nobody uses back to the machine.
///
/// glibc gives back by itself only what lies at the end of an arena: a server whose connections come and go grows by what each
/// left behind. Elsewhere nothing happens.
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

/// Processors that share an arena.
#[cfg(target_env = "gnu")]
const PROCESSORS_EACH: usize = 8;
#[cfg(target_env = "gnu")]
const ARENAS_MAX: usize = 16;
/// Pieces from here on are mapped.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES_MIN: libc::c_int = 256 << 10;
/// Left at the end of an arena, for what comes next.
#[cfg(target_env = "gnu")]
const KEPT_BYTES: usize = 1 << 20;
