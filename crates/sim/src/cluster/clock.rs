//! The clocks of a node, in which the process may pause between any two readings.
//!
//! Leases exist for a thread that the system pauses for a second between reading a state and checking its lease: the
//! check comes afterwards. A call of the server is one event here, so the clock makes the second pass: at one reading
//! both clocks have advanced, and the node takes part in no event until the other clocks have caught up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frieze_disk::{SimTime, TimeSource};
use frieze_hlc::ClockReading;

#[derive(Default)]
struct Stun {
    /// Looks at the clock until it happens, and how long it takes.
    fuse: Option<(u64, u64)>,
    /// Microseconds that the clocks have advanced by it and that the world has not read yet.
    stunned_us: u64,
}

/// The clocks of a node. Clones share everything.
#[derive(Clone)]
pub(super) struct NodeTime {
    pub(super) time: SimTime,
    stun: Arc<Mutex<Stun>>,
    /// True if there is a fuse, or an advance that is not read yet: checked at every reading of the clock, and seldom
    /// true.
    is_lit: Arc<AtomicBool>,
}

impl NodeTime {
    pub(super) fn new(wall_us: u64) -> NodeTime {
        NodeTime { time: SimTime::new(wall_us), stun: Arc::default(), is_lit: Arc::default() }
    }

    fn stun(&self) -> MutexGuard<'_, Stun> {
        self.stun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// At the `looks`-th look from now `us` go by.
    pub(super) fn stun_after(&self, looks: u64, us: u64) {
        self.stun().fuse = Some((looks, us));
        self.is_lit.store(true, Ordering::Relaxed);
    }

    /// How long it stood still since this was asked last.
    pub(super) fn take_stunned(&self) -> u64 {
        if !self.is_lit.load(Ordering::Relaxed) {
            return 0;
        }
        let mut stun = self.stun();
        self.is_lit.store(stun.fuse.is_some(), Ordering::Relaxed);
        std::mem::take(&mut stun.stunned_us)
    }
}

impl TimeSource for NodeTime {
    fn reading(&self) -> ClockReading {
        if !self.is_lit.load(Ordering::Relaxed) {
            return self.time.reading();
        }
        let mut stun = self.stun();
        if let Some((looks, us)) = &mut stun.fuse {
            *looks = looks.saturating_sub(1);
            if *looks == 0 {
                let us = *us;
                (stun.fuse, stun.stunned_us) = (None, stun.stunned_us + us);
                self.time.advance_us(us);
            }
        }
        self.time.reading()
    }
}
