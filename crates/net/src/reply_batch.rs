//! Replies that become ready at the same moment are sent with one system call for each connection.
//!
//! Guarantees: every frame posted within [`reply_batch`] has been sent, or left to the thread that sends it, when that
//! returns, also by a panic; the frames of each connection keep their order.
//! Leaves to others: the sending (`frame_writer`).

use std::cell::RefCell;
use std::sync::Arc;

use crate::Error;

/// A writer whose posted frames can be held back.
pub(crate) trait BatchedWriter {
    /// Sends the frames that were held back.
    ///
    /// # Errors
    /// If the connection failed.
    fn release(self: Arc<Self>) -> Result<(), Error>;
}

thread_local! {
    /// Writers with frames that wait for the end of this thread's batch; `None` outside of a batch.
    static HELD: RefCell<Option<Vec<Arc<dyn BatchedWriter>>>> = const { RefCell::new(None) };
}

/// Runs `replies`, which posts `count` frames ([`FrameWriter::post`](crate::FrameWriter::post)): those to one
/// connection are sent together when it returns, a single one at once. Only for work of a moment.
pub fn reply_batch(count: usize, replies: impl FnOnce()) {
    if count <= 1 {
        return replies();
    }
    let is_outermost = HELD.with_borrow_mut(|held| {
        let is_outermost = held.is_none();
        held.get_or_insert_default();
        is_outermost
    });
    let _end = is_outermost.then(|| BatchEnd);
    replies();
}

/// True if a frame that this thread posts is to wait, with others to the same connection.
pub(crate) fn holds(writer: &Arc<impl BatchedWriter + 'static>) -> bool {
    HELD.with_borrow_mut(|held| held.as_mut().map(|held| held.push(writer.clone())).is_some())
}

struct BatchEnd;

impl Drop for BatchEnd {
    fn drop(&mut self) {
        let held = HELD.with_borrow_mut(Option::take);
        for writer in held.into_iter().flatten() {
            if let Err(error) = writer.release() {
                tracing::debug!("replies were not delivered: {error}");
            }
        }
    }
}
