//! A scrub that begins by itself.
//!
//! Guarantees: without a command, everything stored is read once in `scrub_every`, slowly.

use frieze_hlc::Hlc;
use frieze_wire::scrub::ScrubState;

use crate::upkeep::Upkeep;

/// A scrub that begins by itself takes about one part in this many of the time until the next.
const PART: u64 = 8;
/// Lowest rate in bytes a second, so that the scrub ends: 1 MiB.
const RATE_MIN: u64 = 1 << 20;

impl Upkeep {
    /// When the next scrub begins by itself; `None` if none does.
    pub fn scrub_due(&self) -> Option<Hlc> {
        let every_us = self.planes.settings.scrub_every.as_micros() as u64;
        let state = self.scrub.state.lock();
        let kept = &state.kept;
        if every_us == 0 || kept.state() == ScrubState::Running {
            return None;
        }
        // A directory that was never scrubbed has been written to since it was made.
        let last = kept.ended.max(kept.started).max(self.planes.earliest().0);
        Some(Hlc::first_of_micros(Hlc(last).micros() + every_us))
    }

    pub(super) fn start_scrub_if_due(&self) {
        let now = self.planes.clock.now();
        if self.scrub_due().is_some_and(|due| due <= now) {
            let within_s = (self.planes.settings.scrub_every.as_secs() / PART).max(1);
            let rate = (self.stored_bytes() / within_s).max(RATE_MIN);
            self.scrub.start(now, rate.min(self.planes.settings.scrub_bytes_per_s));
        }
    }
}
