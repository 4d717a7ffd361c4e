//! Where the memory of this program comes from: jemalloc, told to keep little (ADR 0047).

#![expect(unsafe_code, reason = "a name that the allocator looks for; this file is all of it")]

use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// What the allocator is told, read by it when the program begins; `_RJEM_MALLOC_CONF` in the environment goes before it.
///
/// *One arena.* A thread allocates from the arena that it was given when it began, and connections come and go: of several arenas each
/// becomes as large as it ever had to be. Most pieces come from the cache of a thread and take no arena's lock.
/// *Little in that cache*, since a server has a thread for each connection: 64 pieces of a size at most, none of more than 8 KiB.
/// *What is free is given back* after a second, by a thread of the allocator: also when nobody asks it for anything.
// SAFETY: the allocator defines this symbol weakly, as a pointer to a string that ends with a zero; nothing else has the name.
#[unsafe(export_name = "_rjem_malloc_conf")]
#[used]
static TOLD: &[u8; TOLD_BYTES] =
    b"narenas:1,tcache_nslots_small_max:64,tcache_max:8192,dirty_decay_ms:1000,muzzy_decay_ms:0,background_thread:true\0";

const TOLD_BYTES: usize = 113;
