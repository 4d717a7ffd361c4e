//! Answers that become ready at the same moment leave with one system call a connection.
//!
//! Guarantees: what was posted within [`together`] has been sent, or left to who sends it, when that returns, also by a panic; each
//! connection's frames keep their order.
//! Leaves to others: the sending (`frames`).

use std::cell::RefCell;

use crate::FrameWriter;

thread_local! {
    /// Whose frames wait for the end of what this thread does together; `None` outside of that.
    static HELD: RefCell<Option<Vec<FrameWriter>>> = const { RefCell::new(None) };
}

/// Runs `answers`, which posts so many frames ([`FrameWriter::post`]): those to one connection go out together when it is done, and
/// a single one at once. Only for what takes a moment.
pub fn together(count: usize, answers: impl FnOnce()) {
    if count <= 1 {
        return answers();
    }
    let is_outermost = HELD.with_borrow_mut(|held| {
        let is_outermost = held.is_none();
        held.get_or_insert_default();
        is_outermost
    });
    let _end = is_outermost.then(|| End);
    answers();
}

/// True if a frame that this thread posts is to wait, with others to the same connection.
pub(crate) fn waits(writer: &FrameWriter) -> bool {
    HELD.with_borrow_mut(|held| held.as_mut().map(|held| held.push(writer.clone())).is_some())
}

struct End;

impl Drop for End {
    fn drop(&mut self) {
        let held = HELD.with_borrow_mut(Option::take);
        for writer in held.into_iter().flatten() {
            if let Err(fault) = writer.release() {
                tracing::debug!("answers were not delivered: {fault}");
            }
        }
    }
}
