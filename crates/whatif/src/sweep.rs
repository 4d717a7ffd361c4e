//! Many systems under one load, on all cores, in lockstep.
//!
//! Guarantees: outcomes are in the order of the systems, and the same whatever the number of threads.
//! Leaves to others: what the systems are.
//!
//! # The algorithm
//! Each thread has some of the systems and walks the accesses once, a block at a time: a block is simulated by all its
//! systems while it is in the processor's cache.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

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
    /// Bytes that simulations may take beside the load; systems are simulated in as many rounds as that needs.
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

    /// Simulates all systems. `progress` is called with the accesses done so far, from any thread; it returns false to
    /// stop, and then systems that are not done have no outcome.
    pub fn run(&self, progress: &(dyn Fn(u64) -> bool + Sync)) -> Vec<Option<SimOutcome>> {
        let (done, stopped) = (AtomicU64::new(0), AtomicBool::new(false));
        let mut outcomes: Vec<Option<SimOutcome>> = vec![None; self.systems.len()];
        let mut first = 0;
        while first < self.systems.len() && !stopped.load(Ordering::Relaxed) {
            let end = self.round(first);
            let each = (end - first).div_ceil(self.limits.threads.max(1));
            std::thread::scope(|scope| {
                let parts = self.systems[first..end].chunks(each).zip(outcomes[first..end].chunks_mut(each));
                for (systems, outcomes) in parts {
                    let (done, stopped) = (&done, &stopped);
                    scope.spawn(move || self.walk(systems, outcomes, done, stopped, progress));
                }
            });
            first = end;
        }
        outcomes
    }

    /// The end of the systems that fit into memory together with that at `first`.
    fn round(&self, first: usize) -> usize {
        let mut bytes = 0;
        let fits = |system: &&SystemConfig| {
            bytes += system.memory_bytes(self.load);
            bytes <= self.limits.memory_bytes
        };
        first + self.systems[first..].iter().take_while(fits).count().max(1)
    }

    fn walk(
        &self,
        systems: &[SystemConfig],
        outcomes: &mut [Option<SimOutcome>],
        done: &AtomicU64,
        stopped: &AtomicBool,
        progress: &(dyn Fn(u64) -> bool + Sync),
    ) {
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
                return;
            }
        }
        for (outcome, simulation) in outcomes.iter_mut().zip(simulations) {
            *outcome = Some(simulation.finish());
        }
    }
}

/// Accesses that all systems of a thread simulate before the next ones are looked at: 320 KiB, less than half of the
/// second-level caches of today's processors.
const BLOCK: usize = (320 << 10) / size_of::<FrameAccess>();
