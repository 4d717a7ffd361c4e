//! Turns: the number of large replies under way at once.
//!
//! A large reply is fast while its memory is in the caches of a core: the buffer it is read into, the pages that the
//! kernel copies it to, and the reader's memory. If the scheduler interleaves a thousand replies, they evict each other
//! at each step. So a few are read and sent at a time, and the others wait in line. A reader that asks for more within
//! a moment keeps its turn for a while: then a thousand readers end one after the other, not all at the end.
//!
//! Guarantees: every waiting reader gets its turn; a reader that stops reading loses its turn soon, so it blocks no
//! other reader; the number of buffers in use is the number of turns and slow peers.
//! Leaves to others: small replies, which do not wait.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::Duration;

use frieze_locks::{Mutex, MutexGuard, levels};

/// Large replies under way for each processor: while some wait for their readers others run. On two processors that
/// others used too one run each of `bench get-storm` took 0.79, 0.70, 0.70 and 0.78 s of processor a GiB with 1, 2, 4
/// and 8, and was fastest with 4: little evidence, but the bounds are far apart.
const EACH: usize = 4;
/// Bytes after which a reader passes its turn on, if others wait.
const BURST_BYTES: u64 = 32 << 20;
/// Time that a reader keeps its turn after a reply, waiting for its next request.
pub(super) const LINGER: Duration = Duration::from_micros(500);

/// Limits the large replies under way; the module says why.
pub(super) struct Turns {
    line: Mutex<levels::ReadTurns, Line>,
    max: usize,
}

#[derive(Default)]
struct Line {
    /// Turns in use.
    taken: usize,
    /// Readers that continue after a stall, and readers that begin.
    going_on: VecDeque<Arc<Waiter>>,
    beginning: VecDeque<Arc<Waiter>>,
    /// Buffers of turns that ended.
    buffers: Vec<Vec<u8>>,
}

struct Waiter {
    thread: Thread,
    is_called: AtomicBool,
}

/// One reader's share of the turns.
#[derive(Default)]
pub(super) struct Place {
    /// Bytes since its turn began.
    burst_bytes: u64,
    /// Turn of its last reply, which it may use again.
    turn: Option<Turn>,
}

/// A turn, or a place in line for one.
pub(super) struct Turn {
    turns: Arc<Turns>,
    is_mine: bool,
    /// Buffer that the reply is read into.
    pub(super) buffer: Vec<u8>,
}

impl Turns {
    /// As many turns as this machine has processors for.
    pub(super) fn new() -> Turns {
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
        Turns::of(processors * EACH)
    }

    fn of(max: usize) -> Turns {
        Turns { line: Mutex::default(), max }
    }

    /// Waits for a turn to send `len` bytes, unless the reader has one and may use it again.
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
        // A free turn is taken without waiting.
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

    /// Passes the turn to the next reader in line.
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

    #[track_caller]
    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock()
    }
}

impl Place {
    /// Ends a reply. The turn stays for the next one unless it was passed on.
    pub(super) fn keep(&mut self, turn: Turn) {
        self.turn = Some(turn).filter(|turn| turn.is_mine);
    }

    /// True if the reader has a turn.
    pub(super) fn has_turn(&self) -> bool {
        self.turn.is_some()
    }

    /// Releases the turn: no reply is needed now.
    pub(super) fn let_go(&mut self) {
        self.turn = None;
    }
}

impl Turn {
    /// Passes the turn on while this reader is slow.
    pub(super) fn give_up(&mut self) {
        if std::mem::take(&mut self.is_mine) {
            self.turns.pass_on();
        }
    }

    /// Waits for the turn again, if it was passed on.
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
        let order = std::sync::Mutex::new(Vec::new());
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
        let order = std::sync::Mutex::new(Vec::new());
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
