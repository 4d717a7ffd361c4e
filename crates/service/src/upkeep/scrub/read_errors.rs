//! Damage that readers meet.
//!
//! Guarantees: if a read fails because of damage, its segment is checked soon, whether a scrub is under way or not, and
//! the findings are reported like those of a scrub. However often readers come back, the interval between two checks of
//! a segment is bounded below.
//! Leaves to others: refusing the bytes (`device`).

use std::time::Duration;

use frieze_multilog::CheckStop;

use super::findings::found;
use crate::upkeep::Upkeep;

impl Upkeep {
    /// Checks the segments in which readers met damage.
    ///
    /// # Errors
    /// `Stop` if `pause` said so.
    pub(super) fn look_at_what_readers_met(&self, pause: &dyn Fn(Duration) -> bool) -> Result<(), CheckStop> {
        let noticed = self.planes.data.device().read_errors();
        while let Some(segment) = noticed.next() {
            let hit = self.look_at(None, segment, pause)?;
            noticed.mark_checked(segment, self.planes.clock.reading().mono);
            let now = self.planes.clock.now();
            let mut state = self.scrub.state.lock();
            let before = state.kept.damaged();
            for damage in hit.places {
                // Kept until a later scrub has finished without it.
                let run = state.kept.run;
                state.kept.add(found(damage, run, now));
            }
            if state.kept.damaged() != before {
                self.scrub.keep(&mut state);
            }
        }
        Ok(())
    }
}
