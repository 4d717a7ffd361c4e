//! The body of an answer while it is sent.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use crate::socket::RequestGuard;

/// Makes the pieces of a body, `None` behind the last one.
type BodySource<E> = Box<dyn FnMut() -> Result<Option<Bytes>, E>>;

/// What a body consists of.
pub enum BodyContent<E> {
    /// Bytes in memory.
    Whole(Bytes),
    /// Bytes that are made while they are sent.
    Pieces {
        /// How many bytes are left; `None`: not known before.
        left: Option<u64>,
        /// The next piece.
        next: BodySource<E>,
    },
}

/// A body while it is sent. The request lasts until it is dropped.
pub struct HttpBody<E> {
    content: BodyContent<E>,
    _guard: RequestGuard,
}

impl<E> HttpBody<E> {
    /// The body of the answer to the request of `guard`.
    pub fn new(content: BodyContent<E>, guard: RequestGuard) -> HttpBody<E> {
        HttpBody { content, _guard: guard }
    }
}

impl<E: fmt::Display> Body for HttpBody<E> {
    type Data = Bytes;
    type Error = E;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, E>>> {
        let piece = match &mut self.content {
            BodyContent::Whole(bytes) => Ok(Some(std::mem::take(bytes)).filter(|bytes| !bytes.is_empty())),
            BodyContent::Pieces { left: Some(0), .. } => Ok(None),
            BodyContent::Pieces { left, next } => next().inspect(|piece| {
                let len = piece.as_ref().map_or(0, Bytes::len) as u64;
                *left = left.map(|left| left.saturating_sub(len));
            }),
        };
        if let Err(error) = &piece {
            tracing::warn!("an answer by HTTP ends in the middle: {error}");
        }
        Poll::Ready(piece.transpose().map(|piece| piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            BodyContent::Whole(bytes) => bytes.is_empty(),
            BodyContent::Pieces { left, .. } => *left == Some(0),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            BodyContent::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            BodyContent::Pieces { left: Some(left), .. } => SizeHint::with_exact(*left),
            BodyContent::Pieces { left: None, .. } => SizeHint::default(),
        }
    }
}
