//! Waiting for other servers if a single thread runs the whole cluster, as in the simulator.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use frieze_base::MonoTime;

/// Called in place of sleeping if a single thread runs the whole cluster; shared by all that wait for other servers.
pub type Idle = Arc<OnceLock<Box<dyn Fn() + Send + Sync>>>;

/// Waits until `look` finds something if a single thread runs the whole cluster, at most `patience` by the clock `now`.
pub fn idle_until<T>(
    idle: &dyn Fn(),
    now: &dyn Fn() -> MonoTime,
    patience: Duration,
    mut look: impl FnMut() -> Option<T>,
) -> Option<T> {
    frieze_locks::check_may_wait();
    let began = now();
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if now().since_ns(began) > patience.as_nanos() as u64 {
            return None;
        }
        frieze_locks::run_as_other_thread(idle);
    }
}
