//! The allocator of this program: jemalloc, configured to keep little (ADR 0047).

#![expect(unsafe_code, reason = "a name that the allocator looks for; this file is all of it")]

use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// Options that the allocator reads when the program begins; `_RJEM_MALLOC_CONF` in the environment overrides them.
///
/// *One arena.* A thread allocates from the arena that it was assigned when it began, and connections come and go: each
/// of several arenas becomes as large as it ever had to be. Most allocations come from the cache of a thread and take
/// no arena's lock. *A small cache*, since a server has a thread for each connection: 64 pieces of a size at most, none
/// of more than 8 KiB. *Free memory is returned* after a second, by a thread of the allocator: also when no allocation
/// happens.
// SAFETY: the allocator defines this symbol weakly, as a pointer to a string that ends with a zero; nothing else has
// the name.
#[unsafe(export_name = "_rjem_malloc_conf")]
#[used]
static TOLD: &[u8; TOLD_BYTES] =
    b"narenas:1,tcache_nslots_small_max:64,tcache_max:8192,dirty_decay_ms:1000,muzzy_decay_ms:0,\
    background_thread:true\0";

const TOLD_BYTES: usize = 113;
