//! Schedules images: in the background, of quiet files, yielding to requests.
//!
//! Guarantees: no answer depends on an image. While requests are served, image making takes a fixed part of the time.
//! Leaves to others: which pages (`multilog`), files (`device`), its thread (`serve`).

use std::cell::Cell;
use std::time::Duration;

use frieze_base::Fault;
use frieze_hlc::Hlc;

use crate::upkeep::Upkeep;

/// While requests are served, making images takes one part in this many of the time.
const PART_WHEN_BUSY: u32 = 4;

impl Upkeep {
    /// Makes images, in one round, if any are due. To be called about twice a second, on a thread that may take long,
    /// and again at once while it returns true: there is more to do. `pause` sleeps for the given time and returns
    /// whether to continue.
    ///
    /// # Errors
    /// The disk's: the next call continues.
    pub fn image(&self, pause: &dyn Fn(Duration) -> bool) -> Result<bool, Fault> {
        // History that expired before this start may read as zeros: the list of expired ranges has to be loaded first.
        if self.planes.durability.failure().is_some() || !self.planes.knows_dead() {
            return Ok(false);
        }
        let device = self.planes.data.device();
        let delay_us = self.planes.settings.image_delay.as_micros() as u64;
        let quiet = Hlc::last_of_micros(self.planes.clock.reading().wall_us.saturating_sub(delay_us));
        let upto = if delay_us == 0 { Hlc::MAX } else { quiet }.min(self.planes.durability.durable_stamp());
        let now = || self.planes.clock.reading().mono;
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
