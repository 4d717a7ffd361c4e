//! Reply slots: the number of large replies under way at once.
//!
//! A large reply is fast while its memory is in the caches of a core: the buffer it is read into, the pages that the
//! kernel copies it to, and the reader's memory. If the scheduler interleaves a thousand replies, they evict each other
//! at each step. So a few are read and sent at a time, and the others wait in a queue. A reader that asks for more
//! within a moment keeps its slot for a while: then a thousand readers end one after the other, not all at the end.
//!
//! Guarantees: every waiting reader gets its slot; a reader that stops reading loses its slot soon, so it blocks no
//! other reader; the number of buffers in use is the number of slots and slow peers.
//! Leaves to others: small replies, which do not wait.

use frieze_locks::{Mutex, MutexGuard, levels};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::Duration;

/// Large replies under way for each processor: while some wait for their readers others run. On two processors that
/// others used too one run each of `bench get-storm` took 0.79, 0.70, 0.70 and 0.78 s of processor a GiB with 1, 2, 4
/// and 8, and was fastest with 4: little evidence, but the bounds are far apart.
const EACH: usize = 4;
/// Bytes after which a reader passes its slot on, if others wait.
const BURST_BYTES: u64 = 32 << 20;
/// Time that a reader keeps its slot after a reply, waiting for its next request.
pub const LINGER: Duration = Duration::from_micros(500);

/// Limits the large replies under way; the module says why.
pub struct ReplySlots {
    queue: Mutex<levels::ReadTurns, SlotQueue>,
    max: usize,
}

/// Slots, and the threads that wait for one.
#[derive(Default)]
struct SlotQueue {
    /// Slots in use.
    taken: usize,
    /// Readers that continue after a stall, and readers that begin.
    continuing: VecDeque<Arc<QueuedThread>>,
    beginning: VecDeque<Arc<QueuedThread>>,
    /// Buffers of slots that ended.
    buffers: Vec<Vec<u8>>,
}

/// A thread that waits.
struct QueuedThread {
    thread: Thread,
    is_called: AtomicBool,
}

/// One reader's share of the slots.
#[derive(Default)]
pub struct SlotHolder {
    /// Bytes since its slot began.
    burst_bytes: u64,
    /// Slot of its last reply, which it may use again.
    slot: Option<ReplySlot>,
}

/// A slot, or a place in line for one.
pub struct ReplySlot {
    slots: Arc<ReplySlots>,
    is_mine: bool,
    /// Buffer that the reply is read into.
    pub buffer: Vec<u8>,
}

impl Default for ReplySlots {
    /// As many slots as this machine has processors for.
    fn default() -> ReplySlots {
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
        ReplySlots::of(processors * EACH)
    }
}

impl ReplySlots {
    fn of(max: usize) -> ReplySlots {
        ReplySlots { queue: Mutex::default(), max }
    }

    /// Waits for a slot to send `len` bytes, unless the reader has one and may use it again.
    pub fn take(self: &Arc<ReplySlots>, holder: &mut SlotHolder, len: usize) -> ReplySlot {
        holder.burst_bytes += len as u64;
        if let Some(slot) = holder.slot.take().filter(|_| holder.burst_bytes <= BURST_BYTES || !self.is_awaited()) {
            return slot;
        }
        holder.burst_bytes = len as u64;
        self.wait(|queue| &mut queue.beginning);
        let buffer = self.queue().buffers.pop().unwrap_or_default();
        ReplySlot { slots: self.clone(), is_mine: true, buffer }
    }

    fn wait(&self, line: impl Fn(&mut SlotQueue) -> &mut VecDeque<Arc<QueuedThread>>) {
        let mut queue = self.queue();
        // A free slot is taken without waiting.
        if queue.taken < self.max {
            queue.taken += 1;
            return;
        }
        let waiter = Arc::new(QueuedThread { thread: std::thread::current(), is_called: AtomicBool::new(false) });
        line(&mut queue).push_back(waiter.clone());
        drop(queue);
        while !waiter.is_called.load(Ordering::Acquire) {
            std::thread::park();
        }
    }

    fn is_awaited(&self) -> bool {
        let queue = self.queue();
        !queue.continuing.is_empty() || !queue.beginning.is_empty()
    }

    /// Passes the slot to the next reader in the queue.
    fn pass_on(&self) {
        let mut queue = self.queue();
        match queue.continuing.pop_front().or_else(|| queue.beginning.pop_front()) {
            Some(next) => {
                drop(queue);
                next.is_called.store(true, Ordering::Release);
                next.thread.unpark();
            }
            None => queue.taken -= 1,
        }
    }

    fn queue(&self) -> MutexGuard<'_, SlotQueue> {
        self.queue.lock()
    }
}

impl SlotHolder {
    /// Ends a reply. It stays for the next one unless it was passed on.
    pub fn keep(&mut self, slot: ReplySlot) {
        self.slot = Some(slot).filter(|slot| slot.is_mine);
    }

    /// True if the reader has a slot.
    pub fn has_slot(&self) -> bool {
        self.slot.is_some()
    }

    /// Releases the slot: no reply is needed now.
    pub fn release(&mut self) {
        self.slot = None;
    }
}

impl ReplySlot {
    /// Passes the slot on while this reader is slow.
    pub fn yield_slot(&mut self) {
        if std::mem::take(&mut self.is_mine) {
            self.slots.pass_on();
        }
    }

    /// Waits for the slot again, if it was passed on.
    pub fn retake(&mut self) {
        if !std::mem::replace(&mut self.is_mine, true) {
            self.slots.wait(|queue| &mut queue.continuing);
        }
    }
}

impl Drop for ReplySlot {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        let mut queue = self.slots.queue();
        if queue.buffers.len() < self.slots.max {
            queue.buffers.push(buffer);
        }
        drop(queue);
        self.yield_slot();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn slots(max: usize) -> Arc<ReplySlots> {
        Arc::new(ReplySlots::of(max))
    }

    /// Waits until so many stand in queue.
    fn await_line(slots: &ReplySlots, continuing: usize, beginning: usize) {
        loop {
            let queue = slots.queue();
            if (queue.continuing.len(), queue.beginning.len()) == (continuing, beginning) {
                return;
            }
            drop(queue);
            std::thread::yield_now();
        }
    }

    #[test]
    fn who_asks_for_more_keeps_its_slot_until_it_has_had_its_share() {
        let slots = slots(1);
        let order = std::sync::Mutex::new(Vec::new());
        let mut holder = SlotHolder::default();
        let slot = slots.take(&mut holder, MIB);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _slot = slots.take(&mut SlotHolder::default(), MIB);
                order.lock().unwrap().push("other");
            });
            await_line(&slots, 0, 1);
            holder.keep(slot);
            for _ in 1..BURST_BYTES as usize / MIB {
                let slot = slots.take(&mut holder, MIB);
                order.lock().unwrap().push("one");
                holder.keep(slot);
            }
            drop(slots.take(&mut holder, MIB));
            order.lock().unwrap().push("one again");
        });
        let order = order.into_inner().unwrap();
        assert_eq!(order.iter().position(|who| *who == "other"), Some(order.len() - 2), "{order:?}");
        assert_eq!((order.len() as u64 - 1) * MIB as u64, BURST_BYTES);
        assert_eq!(slots.queue().taken, 0);
    }

    #[test]
    fn whom_nobody_waits_for_goes_on_for_ever() {
        let slots = slots(1);
        let mut holder = SlotHolder::default();
        for _ in 0..3 * BURST_BYTES as usize / MIB {
            let slot = slots.take(&mut holder, MIB);
            holder.keep(slot);
        }
        assert!(holder.has_slot());
        holder.release();
        assert_eq!(slots.queue().taken, 0);
    }

    #[test]
    fn who_is_slow_holds_up_nobody_and_goes_on_before_others_begin() {
        let slots = slots(1);
        let mut slow = slots.take(&mut SlotHolder::default(), 1);
        slow.yield_slot();
        let other = slots.take(&mut SlotHolder::default(), 1);
        let order = std::sync::Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _slot = slots.take(&mut SlotHolder::default(), 1);
                order.lock().unwrap().push("new");
            });
            await_line(&slots, 0, 1);
            scope.spawn(|| {
                slow.retake();
                order.lock().unwrap().push("slow");
                slow.yield_slot();
            });
            await_line(&slots, 1, 1);
            drop(other);
        });
        assert_eq!(*order.lock().unwrap(), ["slow", "new"]);
        drop(slow);
        assert_eq!(slots.queue().taken, 0);
    }

    #[test]
    fn what_was_given_up_is_not_kept() {
        let slots = slots(1);
        let mut holder = SlotHolder::default();
        let mut slot = slots.take(&mut holder, 1);
        slot.yield_slot();
        holder.keep(slot);
        assert!(!holder.has_slot());
        assert_eq!(slots.queue().taken, 0);
    }

    #[test]
    fn buffers_are_as_many_as_slots() {
        let slots = slots(2);
        let mut taken: Vec<ReplySlot> = (0..2).map(|_| slots.take(&mut SlotHolder::default(), 1)).collect();
        taken.iter_mut().for_each(ReplySlot::yield_slot);
        taken.push(slots.take(&mut SlotHolder::default(), 1));
        taken.iter_mut().for_each(|slot| slot.buffer.resize(10, 0));
        drop(taken);
        assert_eq!(slots.queue().buffers.len(), 2);
        assert_eq!(slots.take(&mut SlotHolder::default(), 1).buffer.len(), 10, "it is used again");
    }
}
