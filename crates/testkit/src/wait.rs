//! Waiting for another process or thread, whose state can only be looked at. The one place of the tests in which time
//! passes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// How long a test waits for something that takes far less on any machine: 60 s, or `FRIEZE_PATIENCE` seconds, for runs
/// that take long on machines that have other things to do.
pub fn patience() -> Duration {
    let seconds = std::env::var("FRIEZE_PATIENCE").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(60))
}

/// Sets a flag when it is dropped, after a panic too: a thread of a scope that runs until the flag is set would hold up
/// the end of a failed test for ever.
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Time since some moment in the past.
pub fn clock() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Looks again and again until `look` finds something.
///
/// # Panics
/// After [`patience`], with `what`.
#[track_caller]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = clock();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(clock() - began < patience(), "{what}: not within {:?}", patience());
        pass(Duration::from_millis(1));
    }
}

/// Looks again and again until `holds` returns true.
///
/// # Panics
/// After [`patience`], with `what`.
#[track_caller]
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    eventually(what, || holds().then_some(()));
}

/// Lets time pass: for what must *not* happen meanwhile, and for leases that end by time alone.
pub fn pass(duration: Duration) {
    let until = clock() + duration;
    while let Some(left) = until.checked_sub(clock()).filter(|left| !left.is_zero()) {
        std::thread::park_timeout(left);
    }
}
