//! Many systems under one load, on all cores, in lockstep.
//!
//! Guarantees: outcomes are in the order of the systems, and the same whatever the number of threads.
//! Leaves to others: what the systems are.
//!
//! # The algorithm
//! Each thread takes the next few systems and walks the accesses once, a block at a time: a block is simulated by all
//! of them while it is in the processor's cache. Few systems together, so that a sweep that is stopped has outcomes of
//! those that were done.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::WhatIfError;
use crate::local::{FrameAccess, LocalLoad};
use crate::outcome::SimOutcome;
use crate::simulation::{Simulation, SystemConfig};

/// Systems that one run may have.
pub const SYSTEMS_MAX: usize = 10_000;

/// How a sweep runs.
#[derive(Clone, Copy, Debug)]
pub struct SweepLimits {
    /// Threads, at least 1.
    pub threads: usize,
    /// Bytes that simulations may take beside the load; a thread waits with systems that do not fit beside the others.
    pub memory_bytes: u64,
}

/// Which systems a load is tried on.
#[derive(Clone, Debug)]
pub struct SystemSweep<'a> {
    load: &'a LocalLoad,
    systems: &'a [SystemConfig],
    limits: SweepLimits,
}

impl<'a> SystemSweep<'a> {
    /// A sweep that fits.
    ///
    /// # Errors
    /// `EmptyTrace`, `TooManySystems`; `TooMuchMemory` if one system alone exceeds the limit.
    pub fn new(
        load: &'a LocalLoad,
        systems: &'a [SystemConfig],
        limits: SweepLimits,
    ) -> Result<SystemSweep<'a>, WhatIfError> {
        if load.accesses().is_empty() {
            return Err(WhatIfError::EmptyTrace);
        }
        if systems.len() > SYSTEMS_MAX {
            return Err(WhatIfError::TooManySystems { count: systems.len(), max: SYSTEMS_MAX });
        }
        let needed_bytes = systems.iter().map(|system| system.memory_bytes(load)).max().unwrap_or(0);
        if needed_bytes > limits.memory_bytes {
            return Err(WhatIfError::TooMuchMemory {
                needed_bytes,
                allowed_bytes: limits.memory_bytes,
                advice: "sample the trace, or simulate frames instead of pages".to_owned(),
            });
        }
        Ok(SystemSweep { load, systems, limits })
    }

    /// Bytes that all systems together take at most, beside the load.
    pub fn memory_bytes(&self) -> u64 {
        let all: u64 = self.systems.iter().map(|system| system.memory_bytes(self.load)).sum();
        all.min(self.limits.memory_bytes)
    }

    /// Accesses that will be simulated, all systems together.
    pub fn accesses(&self) -> u64 {
        self.load.accesses().len() as u64 * self.systems.len() as u64
    }

    /// Simulates all systems, the first ones first. `progress` is called with the accesses done so far, from any
    /// thread; it returns false to stop, and then systems that are not done have no outcome.
    pub fn run(&self, progress: &(dyn Fn(u64) -> bool + Sync)) -> Vec<Option<SimOutcome>> {
        let (done, stopped) = (AtomicU64::new(0), AtomicBool::new(false));
        let queue = SystemQueue::default();
        let outcomes = Mutex::new(vec![None; self.systems.len()]);
        std::thread::scope(|scope| {
            for _ in 0..self.limits.threads.clamp(1, self.systems.len().max(1)) {
                scope.spawn(|| {
                    while let Some((systems, bytes)) = self.take(&queue) {
                        if !stopped.load(Ordering::Relaxed)
                            && let Some(of_systems) =
                                self.walk(&self.systems[systems.clone()], &done, &stopped, progress)
                        {
                            let mut outcomes = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
                            systems.zip(of_systems).for_each(|(at, outcome)| outcomes[at] = Some(outcome));
                        }
                        queue.lock().bytes -= bytes;
                        queue.released.notify_all();
                    }
                });
            }
        });
        outcomes.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next systems for a thread, and the bytes they may take; waits while they do not fit beside those of others.
    fn take(&self, queue: &SystemQueue) -> Option<(Range<usize>, u64)> {
        let mut state = queue.lock();
        loop {
            let first = state.next;
            let next = self.systems.get(first)?.memory_bytes(self.load);
            if state.bytes > 0 && state.bytes + next > self.limits.memory_bytes {
                state = queue.released.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            // No more than a thread's part, so that the last ones keep all threads at work.
            let together = self.systems.len().div_ceil(self.limits.threads.max(1)).min(TOGETHER_MAX);
            let mut bytes = next;
            let mut end = first + 1;
            while end < self.systems.len().min(first + together) {
                let more = self.systems[end].memory_bytes(self.load);
                if state.bytes + bytes + more > self.limits.memory_bytes {
                    break;
                }
                (bytes, end) = (bytes + more, end + 1);
            }
            (state.next, state.bytes) = (end, state.bytes + bytes);
            return Some((first..end, bytes));
        }
    }

    fn walk(
        &self,
        systems: &[SystemConfig],
        done: &AtomicU64,
        stopped: &AtomicBool,
        progress: &(dyn Fn(u64) -> bool + Sync),
    ) -> Option<Vec<SimOutcome>> {
        let mut simulations: Vec<_> = systems.iter().map(|system| Simulation::new(self.load, system)).collect();
        for block in self.load.accesses().chunks(BLOCK) {
            for simulation in &mut simulations {
                simulation.advance(block);
            }
            let more = (block.len() * systems.len()) as u64;
            if !progress(done.fetch_add(more, Ordering::Relaxed) + more) {
                stopped.store(true, Ordering::Relaxed);
            }
            if stopped.load(Ordering::Relaxed) {
                return None;
            }
        }
        Some(simulations.into_iter().map(Simulation::finish).collect())
    }
}

/// Which systems no thread has taken yet.
#[derive(Debug, Default)]
struct SystemQueue {
    state: Mutex<QueueState>,
    /// A thread is done with its systems.
    released: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    next: usize,
    /// Bytes of the systems that are being simulated.
    bytes: u64,
}

impl SystemQueue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Systems that a thread simulates together: a block is read from memory once for all of them.
const TOGETHER_MAX: usize = 4;
/// Accesses that all systems of a thread simulate before the next ones are looked at: 320 KiB, less than half of the
/// second-level caches of today's processors.
const BLOCK: usize = (320 << 10) / size_of::<FrameAccess>();
