//! Many bytes, or many small writes: several requests in flight on one connection. Small requests are sent together,
//! and so are their replies: a system call and a wake-up of the other side cost more than a small request.
//!
//! `read` has the streams of reads, `write` those of writes.

pub(crate) mod read;
pub(crate) mod write;

use crate::Error;

/// Requests in flight by default: with 4 the server always has the next when one is done.
pub(crate) const DEPTH: usize = 4;
/// More requests in flight would only fill socket buffers.
pub(crate) const DEPTH_MAX: usize = 64;

/// What ended a stream.
pub(crate) enum StreamError<E> {
    /// An error of the client.
    Client(Error),
    /// An error of the program's own source or sink.
    Program(E),
}

/// Length of the next request: up to the next multiple of `step`, a part of a chunk, so that later ones never cross
/// one.
pub(crate) fn piece_len(offset: u64, left: u64, step: usize) -> usize {
    let step = step as u64;
    (step - offset % step).min(left) as usize
}
