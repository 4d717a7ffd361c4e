//! Waiting for other servers where one thread runs everything, as the simulator does.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use frieze_base::MonoTime;

/// What to do instead of sleeping, where one thread runs everything: shared by all that wait for other servers.
pub type Idle = Arc<OnceLock<Box<dyn Fn() + Send + Sync>>>;

/// Waits until `look` finds something where one thread runs everything, `patience` at most by the clock `now`.
pub fn idle_until<T>(
    idle: &dyn Fn(),
    now: &dyn Fn() -> MonoTime,
    patience: Duration,
    mut look: impl FnMut() -> Option<T>,
) -> Option<T> {
    let began = now();
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if now().since_ns(began) > patience.as_nanos() as u64 {
            return None;
        }
        idle();
    }
}
