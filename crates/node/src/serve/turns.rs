//! Turns: how many large answers are on their way at once.
//!
//! A large answer is fast while what it goes through is in the caches of a core: the buffer it is read into, the pages
//! that the kernel copies it to, and the memory of who takes it. A thousand that take turns by the scheduler's will
//! evict each other at each step. So a few are brought and sent at a time, the others wait in line, and whoever asks
//! for more within a moment keeps its turn for a while: then a thousand readers end one after the other, not all at the
//! end.
//!
//! Guarantees: who waits gets its turn; who does not take what is sent loses it soon, and with it holds up nobody; the
//! buffers in use are as many as turns and peers that are slow.
//! Leaves to others: what is small, which waits for nobody.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::Duration;

/// So many answers are on their way at once for each processor: while some wait for their readers others go on. On two
/// processors that others used too one run each of `bench get-storm` took 0.79, 0.70, 0.70 and 0.78 s of processor a
/// GiB with 1, 2, 4 and 8, and was fastest with 4: little evidence, but the bounds are far apart.
const EACH: usize = 4;
/// Who has a turn keeps it until it has had so many bytes, if others wait.
const BURST_BYTES: u64 = 32 << 20;
/// Who is done with an answer keeps its turn for so long, if it has not asked for more by then.
pub(super) const LINGER: Duration = Duration::from_micros(500);

/// See the module.
pub(super) struct Turns {
    line: Mutex<Line>,
    max: usize,
}

#[derive(Default)]
struct Line {
    /// Turns that are taken.
    taken: usize,
    /// Who goes on after it was slow, and who begins.
    going_on: VecDeque<Arc<Waiter>>,
    beginning: VecDeque<Arc<Waiter>>,
    /// Buffers of turns that are over.
    buffers: Vec<Vec<u8>>,
}

struct Waiter {
    thread: Thread,
    is_called: AtomicBool,
}

/// What one reader has of its turn.
#[derive(Default)]
pub(super) struct Place {
    /// Bytes since it began.
    burst_bytes: u64,
    /// It had one, and may go on.
    turn: Option<Turn>,
}

/// A turn, or a place in line for one.
pub(super) struct Turn {
    turns: Arc<Turns>,
    is_mine: bool,
    /// What is brought goes through it.
    pub(super) buffer: Vec<u8>,
}

impl Turns {
    /// As many as this machine has processors for.
    pub(super) fn new() -> Turns {
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
        Turns::of(processors * EACH)
    }

    fn of(max: usize) -> Turns {
        Turns { line: Mutex::default(), max }
    }

    /// Waits for a turn to send `len` bytes, unless it has one and may go on.
    pub(super) fn take(self: &Arc<Turns>, place: &mut Place, len: usize) -> Turn {
        place.burst_bytes += len as u64;
        if let Some(turn) = place.turn.take().filter(|_| place.burst_bytes <= BURST_BYTES || !self.is_awaited()) {
            return turn;
        }
        place.burst_bytes = len as u64;
        self.wait(|line| &mut line.beginning);
        let buffer = self.line().buffers.pop().unwrap_or_default();
        Turn { turns: self.clone(), is_mine: true, buffer }
    }

    fn wait(&self, queue: impl Fn(&mut Line) -> &mut VecDeque<Arc<Waiter>>) {
        let mut line = self.line();
        // Nobody waits while there is one to be had.
        if line.taken < self.max {
            line.taken += 1;
            return;
        }
        let waiter = Arc::new(Waiter { thread: std::thread::current(), is_called: AtomicBool::new(false) });
        queue(&mut line).push_back(waiter.clone());
        drop(line);
        while !waiter.is_called.load(Ordering::Acquire) {
            std::thread::park();
        }
    }

    fn is_awaited(&self) -> bool {
        let line = self.line();
        !line.going_on.is_empty() || !line.beginning.is_empty()
    }

    /// The turn goes to whoever is next.
    fn pass_on(&self) {
        let mut line = self.line();
        match line.going_on.pop_front().or_else(|| line.beginning.pop_front()) {
            Some(next) => {
                drop(line);
                next.is_called.store(true, Ordering::Release);
                next.thread.unpark();
            }
            None => line.taken -= 1,
        }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// The answer is sent. True if the turn stays for the next.
    pub(super) fn keep(&mut self, turn: Turn) {
        self.turn = Some(turn).filter(|turn| turn.is_mine);
    }

    /// True if it has one.
    pub(super) fn has_turn(&self) -> bool {
        self.turn.is_some()
    }

    /// Nothing more is asked for now.
    pub(super) fn let_go(&mut self) {
        self.turn = None;
    }
}

impl Turn {
    /// Whoever takes this answer is slow: others go on meanwhile.
    pub(super) fn give_up(&mut self) {
        if std::mem::take(&mut self.is_mine) {
            self.turns.pass_on();
        }
    }

    /// Waits for it again, if it was given up.
    pub(super) fn retake(&mut self) {
        if !std::mem::replace(&mut self.is_mine, true) {
            self.turns.wait(|line| &mut line.going_on);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        let mut line = self.turns.line();
        if line.buffers.len() < self.turns.max {
            line.buffers.push(buffer);
        }
        drop(line);
        self.give_up();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn turns(max: usize) -> Arc<Turns> {
        Arc::new(Turns::of(max))
    }

    /// Waits until so many stand in line.
    fn await_line(turns: &Turns, going_on: usize, beginning: usize) {
        loop {
            let line = turns.line();
            if (line.going_on.len(), line.beginning.len()) == (going_on, beginning) {
                return;
            }
            drop(line);
            std::thread::yield_now();
        }
    }

    #[test]
    fn who_asks_for_more_keeps_its_turn_until_it_has_had_its_share() {
        let turns = turns(1);
        let order = Mutex::new(Vec::new());
        let mut place = Place::default();
        let turn = turns.take(&mut place, MIB);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _turn = turns.take(&mut Place::default(), MIB);
                order.lock().unwrap().push("other");
            });
            await_line(&turns, 0, 1);
            place.keep(turn);
            for _ in 1..BURST_BYTES as usize / MIB {
                let turn = turns.take(&mut place, MIB);
                order.lock().unwrap().push("one");
                place.keep(turn);
            }
            drop(turns.take(&mut place, MIB));
            order.lock().unwrap().push("one again");
        });
        let order = order.into_inner().unwrap();
        assert_eq!(order.iter().position(|who| *who == "other"), Some(order.len() - 2), "{order:?}");
        assert_eq!((order.len() as u64 - 1) * MIB as u64, BURST_BYTES);
        assert_eq!(turns.line().taken, 0);
    }

    #[test]
    fn whom_nobody_waits_for_goes_on_for_ever() {
        let turns = turns(1);
        let mut place = Place::default();
        for _ in 0..3 * BURST_BYTES as usize / MIB {
            let turn = turns.take(&mut place, MIB);
            place.keep(turn);
        }
        assert!(place.has_turn());
        place.let_go();
        assert_eq!(turns.line().taken, 0);
    }

    #[test]
    fn who_is_slow_holds_up_nobody_and_goes_on_before_others_begin() {
        let turns = turns(1);
        let mut slow = turns.take(&mut Place::default(), 1);
        slow.give_up();
        let other = turns.take(&mut Place::default(), 1);
        let order = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _turn = turns.take(&mut Place::default(), 1);
                order.lock().unwrap().push("new");
            });
            await_line(&turns, 0, 1);
            scope.spawn(|| {
                slow.retake();
                order.lock().unwrap().push("slow");
                slow.give_up();
            });
            await_line(&turns, 1, 1);
            drop(other);
        });
        assert_eq!(*order.lock().unwrap(), ["slow", "new"]);
        drop(slow);
        assert_eq!(turns.line().taken, 0);
    }

    #[test]
    fn what_was_given_up_is_not_kept() {
        let turns = turns(1);
        let mut place = Place::default();
        let mut turn = turns.take(&mut place, 1);
        turn.give_up();
        place.keep(turn);
        assert!(!place.has_turn());
        assert_eq!(turns.line().taken, 0);
    }

    #[test]
    fn buffers_are_as_many_as_turns() {
        let turns = turns(2);
        let mut taken: Vec<Turn> = (0..2).map(|_| turns.take(&mut Place::default(), 1)).collect();
        taken.iter_mut().for_each(Turn::give_up);
        taken.push(turns.take(&mut Place::default(), 1));
        taken.iter_mut().for_each(|turn| turn.buffer.resize(10, 0));
        drop(taken);
        assert_eq!(turns.line().buffers.len(), 2);
        assert_eq!(turns.take(&mut Place::default(), 1).buffer.len(), 10, "it is used again");
    }
}
