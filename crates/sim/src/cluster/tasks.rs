//! Calls that wait, left where they wait and gone on with later, all in one thread.
//!
//! A request of the server that waits for a majority does not return until it is there. The simulator runs it on a stack of its
//! own: where it waits it rests, everything else goes on, and when something has happened at its node it looks again. A node that
//! crashes takes its tasks with it: their stacks are unwound, and nothing that they were about to do happens.

use generator::{Generator, Gn};

/// Words of a stack: half a megabyte, of which the system gives only the pages that are touched.
const STACK_WORDS: usize = 0x10000;

/// A call that may rest.
pub(super) struct Task {
    stack: Generator<'static, (), ()>,
}

impl Task {
    /// Nothing of it has run yet.
    pub(super) fn new(run: impl FnOnce() + Send + 'static) -> Task {
        Task { stack: Gn::<()>::new_opt(STACK_WORDS, run) }
    }

    /// Runs until it rests. True when it is over.
    pub(super) fn go_on(&mut self) -> bool {
        self.stack.resume();
        self.stack.is_done()
    }
}

/// Lets everything else go on, from within a task.
pub(super) fn rest() {
    assert!(generator::is_generator(), "something waits that may not wait");
    #[expect(deprecated, reason = "what waits has no scope at hand, it is deep in the server")]
    generator::yield_with(());
}
