//! The long run: mixed writes and reads of the past for `FRIEZE_SECONDS` (a few by default; `make long-run` takes 30
//! minutes), with two restarts of the server in the first third; in the end memory is flat and a scrub is clean.
//! `FRIEZE_PACE` makes so many times as many calls a second: as many calls in less time.
//!
//! What is *flat*: over the last two thirds of the time, in which nothing is restarted, a line is fitted to the
//! resident memory of the server. It may rise by at most 5 % of its middle, or by 4 MiB where that is more. The load is
//! the same all the time, files come and go, sessions too, and what is older than a while is forgotten, so nothing that
//! is kept should grow but the few bytes a thousand writes that history costs.

#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

#[path = "long/loads.rs"]
mod loads;
#[path = "long/samples.rs"]
mod samples;
#[expect(dead_code, reason = "shared with tests that need more of it")]
mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use frieze_base::Rng;
use frieze_testkit::wait::clock;
use nix::sys::signal::Signal;

use loads::{Plan, append, come_and_go, forget_the_old, overwrite, read_the_past};
use samples::Samples;
use support::served::{Served, frieze};

/// Little memory, and of that little for the index: all of it is full soon, and shelves are read and merged all the
/// time.
const SETTINGS: &str = "segment_bytes = 16777216\nchunk_bytes = 4194304\nindex_bytes_max = 8388608\nmemory_bytes_max \
    = 134217728\nshelve_segments = 2\nsession_timeout = \"20m\"\n";
/// Below this many seconds, each counted as often as the pace says, memory is not judged: caches are still filling.
const JUDGED_FROM_S: u64 = 600;
/// Nor below this many, whatever the pace: a server of few minutes is still growing to what it takes.
const GROWN_AFTER_S: u64 = 300;
const SAMPLES: u32 = 60;

#[test]
fn memory_is_flat_and_everything_whole_after_a_long_time_of_writing_and_of_reading_the_past() {
    let seconds: u64 = std::env::var("FRIEZE_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(6);
    let pace: u32 = std::env::var("FRIEZE_PACE").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let whole = Duration::from_secs(seconds);
    let mut server = Served::with(SETTINGS, "127.0.0.1:0");
    let address = server.address.clone();
    let over = AtomicBool::new(false);
    let mut rng = Rng::new(20_261_122);
    let mut samples = Samples::new(&server.data());
    std::thread::scope(|scope| {
        let over = &over;
        let plan = |rng: &mut Rng| Plan { address: address.clone(), over, whole, pace, rng: rng.split() };
        let mut loads = Vec::new();
        for number in 0..2 {
            let plan = plan(&mut rng);
            loads.push(scope.spawn(move || overwrite(plan, number)));
        }
        for load in [append, come_and_go, read_the_past, read_the_past, forget_the_old] {
            let plan = plan(&mut rng);
            loads.push(scope.spawn(move || load(plan)));
        }
        let _end = End(over);
        let began = clock();
        // Two restarts in the first third: in order, and by a kill.
        let mut restarts = vec![(whole / 5, Signal::SIGKILL), (whole / 10, Signal::SIGTERM)];
        for number in 1..=SAMPLES {
            let due = whole * number / SAMPLES;
            while clock() - began < due {
                assert!(!loads.iter().any(|load| load.is_finished()), "a load has failed: its own words stand above");
                std::thread::park_timeout((due + began).saturating_sub(clock()).min(Duration::from_millis(100)));
            }
            if let Some((_, signal)) = restarts.pop_if(|(at, _)| *at <= clock() - began) {
                let before = clock();
                server.restart(signal);
                samples.note(format!("{signal}, serving again after {} ms", (clock() - before).as_millis()));
            }
            samples.take(clock() - began, &address);
        }
        over.store(true, Ordering::Relaxed);
        let calls: u64 = loads.into_iter().map(|load| load.join().unwrap()).sum();
        samples.note(format!("{calls} calls in {seconds} s"));
    });
    let scrubbed = server.run(&["scrub", "--rate", "100000"]);
    eprintln!("{samples}\n{}", scrubbed.out());
    assert!(scrubbed.status == 0 && scrubbed.out().contains("no damage is known"), "{scrubbed:?}");
    let status = server.run(&["status"]);
    assert_eq!(status.status, 0, "{status:?}");
    assert_eq!(server.end(Signal::SIGTERM), Some(0));
    let checked = frieze(&["fsck".as_ref(), server.data().as_os_str()]).output().unwrap();
    assert!(checked.status.success(), "{checked:?}");
    if seconds >= GROWN_AFTER_S && seconds * u64::from(pace) >= JUDGED_FROM_S {
        let (rise, allowed) = samples.rise_of_memory(whole / 3);
        assert!(rise <= allowed, "resident memory rose by {rise} bytes in the last two thirds, {allowed} are allowed");
    }
}

/// Ends the loads if something fails, so that the test ends too.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
