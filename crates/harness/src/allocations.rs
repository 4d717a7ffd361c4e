#![expect(unsafe_code, reason = "an allocator is unsafe to implement; this file is all of it, and runs under Miri")]
//! An allocator that counts: what a decoder had allocated at most, in bytes.
//!
//! Guarantees: counts are those of the calling thread; counting allocates nothing. Leaves to others: the bound.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, with a count of live bytes for each thread. [`crate::count_allocations!`] installs it.
#[derive(Clone, Copy, Debug)]
pub struct CountingAllocator;

thread_local! {
    /// Bytes that this thread allocated less those that it freed, and the most that this was since the last reset.
    static LIVE_AND_PEAK: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

fn count(bytes: isize) {
    // A thread that ends frees after its thread-locals are gone.
    let _ended = LIVE_AND_PEAK.try_with(|counts| {
        let (live, peak) = counts.get();
        let live = live.saturating_add(bytes);
        counts.set((live, peak.max(live)));
    });
}

// SAFETY: every call goes to `System` with the arguments that it came with, which meet the same conditions; counting
// beside it touches no memory that was allocated.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: see above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: see above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: see above.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: see above.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Calls `run`. Returns the most bytes that this thread had allocated during the call, beyond those before it.
///
/// # Panics
/// If the binary has another allocator: its tests lack [`crate::count_allocations!`].
pub fn peak_bytes(run: impl FnOnce()) -> usize {
    let reset = || {
        LIVE_AND_PEAK.with(|counts| {
            let live = counts.get().0;
            counts.set((live, live));
            live
        })
    };
    let before = reset();
    drop(std::hint::black_box(Vec::<u8>::with_capacity(64)));
    let counted = LIVE_AND_PEAK.with(|counts| counts.get().1) >= before + 64;
    assert!(counted, "no allocation is counted: put frieze_harness::count_allocations!() into the tests of this crate");
    let before = reset();
    run();
    LIVE_AND_PEAK.with(|counts| counts.get().1 - before) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_counts_what_lives_at_once() {
        assert_eq!(peak_bytes(|| {}), 0);
        let peak = peak_bytes(|| {
            for _ in 0..10 {
                drop(std::hint::black_box(vec![0u8; 1000]));
            }
        });
        assert_eq!(peak, 1000);
        let peak = peak_bytes(|| {
            let mut grown = Vec::with_capacity(10);
            grown.resize(500, 1u64);
            std::hint::black_box(&grown);
        });
        assert!((4000..8000).contains(&peak), "{peak}");
    }

    #[test]
    fn memory_of_other_threads_and_before_does_not_count() {
        let before = std::hint::black_box(vec![0u8; 5000]);
        let peak = peak_bytes(|| {
            drop(before);
            std::thread::scope(|scope| {
                scope.spawn(|| drop(std::hint::black_box(vec![0u8; 1 << 20])));
            });
        });
        assert!(peak < 1 << 16, "{peak}");
    }
}
