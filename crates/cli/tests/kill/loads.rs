//! Loads that run beside each other, and the server that is killed under them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use frieze_base::Rng;
use frieze_testkit::wait::{clock, eventually};
use nix::sys::signal::Signal;

use crate::support::served::Served;

/// Runs loads while the server is killed again and again.
pub(crate) struct Loads<'scope, 'env> {
    pub(crate) scope: &'scope std::thread::Scope<'scope, 'env>,
    pub(crate) state: &'env State,
}

/// What the loads and the killer know of each other.
#[derive(Default)]
pub(crate) struct State {
    over: AtomicBool,
    failed: AtomicBool,
    /// Calls answered so far, for each load.
    progress: [AtomicU64; LOADS_MAX],
    loads: AtomicU64,
}

const LOADS_MAX: usize = 16;

/// What a load tells of itself.
pub(crate) struct Load<'a> {
    state: &'a State,
    /// Which load: no two have the same.
    pub(crate) index: usize,
}

impl Drop for Load<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.state.failed.store(true, Ordering::Relaxed);
        }
    }
}

impl Load<'_> {
    /// Notes that a call was answered. False when it is time to end.
    pub(crate) fn goes_on(&self) -> bool {
        self.state.progress[self.index].fetch_add(1, Ordering::Relaxed);
        !self.state.over.load(Ordering::Relaxed)
    }
}

impl<'scope, 'env> Loads<'scope, 'env> {
    pub(crate) fn start<T: Send + 'scope>(
        &self,
        run: impl FnOnce(Load<'env>) -> T + Send + 'scope,
    ) -> ScopedJoinHandle<'scope, T> {
        let index = self.state.loads.fetch_add(1, Ordering::Relaxed) as usize;
        let load = Load { state: self.state, index };
        self.scope.spawn(move || run(load))
    }
}

impl State {
    pub(crate) fn progress(&self) -> Vec<u64> {
        let loads = self.loads.load(Ordering::Relaxed) as usize;
        self.progress[..loads].iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    /// Waits until every load has got an answer, and all together have got `count`.
    fn await_answers(&self, count: u64) {
        let before = self.progress();
        eventually("every load goes on", || {
            assert!(!self.failed.load(Ordering::Relaxed), "a load has failed: its own words stand above");
            let now = self.progress();
            let each = now.iter().zip(&before).all(|(now, before)| now > before);
            (each && now.iter().sum::<u64>() >= before.iter().sum::<u64>() + count).then_some(())
        });
    }

    /// Kills the server at random moments, sometimes while it recovers; ends the loads after the last recovery. Tells
    /// how long the starts took.
    pub(crate) fn kill_again_and_again(
        &self,
        server: &mut Served,
        rng: &mut Rng,
        kills: u64,
        answers_max: u64,
    ) -> Starts {
        let mut starts = Starts::default();
        for round in 0..kills {
            self.await_answers(rng.below(answers_max));
            assert_eq!(server.end(Signal::SIGKILL), None, "it ran until it was killed");
            if round % 3 == 2 {
                // Somewhere between the first instruction and the first answer.
                server.spawn_again();
                std::thread::park_timeout(std::time::Duration::from_micros(rng.below(400_000)));
                assert_eq!(server.end(Signal::SIGKILL), None, "it ran until it was killed");
            }
            let began = clock();
            server.start_again();
            starts.took.push(clock() - began);
            if round % 25 == 24 {
                eprintln!("{} kills, answers {:?}, {starts}", round + 1, self.progress());
            }
        }
        self.await_answers(1);
        self.over.store(true, Ordering::Relaxed);
        starts
    }
}

/// How long starts took, from the first instruction to the line that says the server is ready.
#[derive(Default)]
pub(crate) struct Starts {
    took: Vec<Duration>,
}

impl std::fmt::Display for Starts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut took = self.took.clone();
        took.sort_unstable();
        let (median, last) = (took.get(took.len() / 2), took.last());
        let ms = |took: Option<&Duration>| took.map_or(0, Duration::as_millis);
        write!(f, "{} starts, median {} ms, longest {} ms", took.len(), ms(median), ms(last))
    }
}

/// Ends the loads if the killer fails, so that the test ends too.
pub(crate) struct EndOfLoads<'a>(pub(crate) &'a State);

impl Drop for EndOfLoads<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
    }
}
