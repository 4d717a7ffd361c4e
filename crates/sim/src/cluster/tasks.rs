//! Calls that are suspended where they wait and resumed later, all in one thread.
//!
//! A server's call that waits for a majority does not return before it has one. The simulator runs the call on a stack
//! of its own: where it waits it is suspended, all other events continue, and when something has happened at its node
//! it checks again. A node that crashes ends its tasks: their stacks are unwound, and none of their further effects
//! happen.

use std::cell::RefCell;

use generator::{Generator, Gn};

/// Words of a stack: half a megabyte, of which the system gives only the pages that are touched.
const STACK_WORDS: usize = 0x10000;
/// Stacks that are kept for the next call, at most.
const SPARE_MAX: usize = 64;

type Stack = Generator<'static, (), ()>;

thread_local! {
    /// Unused stacks: a new one costs the system a mapping and a fault for each of its pages.
    static SPARE: RefCell<Vec<Stack>> = const { RefCell::new(Vec::new()) };
}

/// A call that may rest.
pub(super) struct Task(Option<Stack>);

impl Task {
    /// Nothing of it has run yet.
    pub(super) fn new(run: impl FnOnce() + Send + 'static) -> Task {
        let stack = match SPARE.with_borrow_mut(Vec::pop) {
            Some(mut spare) => {
                spare.init_code(run);
                spare
            }
            None => Gn::<()>::new_opt(STACK_WORDS, run),
        };
        Task(Some(stack))
    }

    /// Runs until it rests. True when it is over.
    pub(super) fn resume(&mut self) -> bool {
        let stack = self.0.as_mut().expect("it is taken only when the task goes");
        // A call has locks of its own.
        frieze_locks::run_as_other_thread(|| stack.resume());
        stack.is_done()
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        let Some(stack) = self.0.take() else { return };
        // One that rests is unwound where it goes.
        if stack.is_done() {
            SPARE.with_borrow_mut(|spare| {
                if spare.len() < SPARE_MAX {
                    spare.push(stack);
                }
            });
        }
    }
}

/// Suspends the current task, so that all other events continue.
pub(super) fn suspend() {
    assert!(generator::is_generator(), "something waits that may not wait");
    #[expect(deprecated, reason = "what waits has no scope at hand, it is deep in the server")]
    frieze_locks::run_as_other_thread(|| generator::yield_with(()));
}
