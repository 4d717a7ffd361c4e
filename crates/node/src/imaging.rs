//! When images are made: in the background, for what is quiet, giving way to requests.
//!
//! Guarantees: nothing that is answered depends on it. While others are served it takes a part of the time.
//! Leaves to others: which pages (`multilog`), files (`device`), its thread (`serve`).

use std::cell::Cell;
use std::time::Duration;

use frieze_base::Fault;
use frieze_hlc::Hlc;

use crate::engine::Engine;

/// While others are served, making images takes one part in this many of the time.
const PART_WHEN_BUSY: u32 = 4;

impl Engine {
    /// Makes images, in one round, if any are due. To be called about twice a second, on a thread that may take long,
    /// and again while it says true: there is more to do. `pause` waits as long as it is told and says whether to go
    /// on.
    ///
    /// # Errors
    /// The disk's: the next call goes on.
    pub fn image(&self, pause: &dyn Fn(Duration) -> bool) -> Result<bool, Fault> {
        // What was forgotten before this start is zeros in places: that has to be known first.
        if self.durability.failure().is_some() || !self.reclaim.is_known() {
            return Ok(false);
        }
        let device = self.data.device();
        let delay_us = self.settings.image_delay.as_micros() as u64;
        let quiet = Hlc::last_of_micros(self.clock.reading().wall_us.saturating_sub(delay_us));
        let upto = if delay_us == 0 { Hlc::MAX } else { quiet }.min(self.durability.durable_stamp());
        let now = || self.clock.reading().mono;
        let (served, resumed) = (Cell::new(device.served()), Cell::new(now()));
        let go_on = || {
            let busy = served.replace(device.served()) != device.served();
            let took = Duration::from_nanos(now().since_ns(resumed.get()));
            let goes_on = pause(if busy { took * (PART_WHEN_BUSY - 1) } else { Duration::ZERO });
            resumed.set(now());
            goes_on
        };
        device.make_images(upto, &go_on)
    }
}
