//! The answer to a request: a status, and a body in bounded pieces.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use frieze_hdfs::Exception;
use frieze_httpd::RequestGuard;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderValue, LOCATION};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const BYTES: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// Makes the pieces of a body.
type BodySource = Box<dyn FnMut() -> Result<Option<Bytes>, Exception>>;

/// An answer, before it is encoded as HTTP.
pub(crate) struct HttpReply {
    status: StatusCode,
    location: Option<String>,
    kind: Option<HeaderValue>,
    content: ReplyContent,
}

enum ReplyContent {
    Whole(Bytes),
    Pieces { left: Option<u64>, next: BodySource },
}

impl HttpReply {
    fn new(status: StatusCode, kind: Option<HeaderValue>, content: ReplyContent) -> HttpReply {
        HttpReply { status, location: None, kind, content }
    }

    /// Success without a body.
    pub(crate) fn done() -> HttpReply {
        HttpReply::new(StatusCode::OK, None, ReplyContent::Whole(Bytes::new()))
    }

    /// A value.
    pub(crate) fn json(value: &Value) -> HttpReply {
        HttpReply::new(StatusCode::OK, Some(JSON), ReplyContent::Whole(value.to_string().into()))
    }

    /// JSON that is made while it is sent.
    pub(crate) fn json_pieces(next: impl FnMut() -> Result<Option<Bytes>, Exception> + 'static) -> HttpReply {
        HttpReply::new(StatusCode::OK, Some(JSON), ReplyContent::Pieces { left: None, next: Box::new(next) })
    }

    /// Bytes of a file.
    pub(crate) fn bytes(len: u64, next: impl FnMut() -> Result<Option<Bytes>, Exception> + 'static) -> HttpReply {
        HttpReply::new(StatusCode::OK, Some(BYTES), ReplyContent::Pieces { left: Some(len), next: Box::new(next) })
    }

    /// A file was created at this location.
    pub(crate) fn made(location: String) -> HttpReply {
        HttpReply { status: StatusCode::CREATED, location: Some(location), ..HttpReply::done() }
    }

    /// Bytes are read or written at this location.
    pub(crate) fn redirect(location: String) -> HttpReply {
        HttpReply { status: StatusCode::TEMPORARY_REDIRECT, location: Some(location), ..HttpReply::done() }
    }

    /// An exception.
    pub(crate) fn refused(exception: &Exception) -> HttpReply {
        let Exception { class, message } = exception;
        let name = class.rsplit(['.', '$']).next().unwrap_or(class);
        let told = json!({ "RemoteException": { "exception": name, "javaClassName": class, "message": message } });
        HttpReply { status: status_of(class), ..HttpReply::json(&told) }
    }

    /// The HTTP response; the request lasts until it has been sent.
    pub(crate) fn response(self, request: RequestGuard) -> Response<SentBody> {
        let mut response = Response::new(SentBody { content: self.content, _request: request });
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        if let Some(kind) = self.kind {
            headers.insert(CONTENT_TYPE, kind);
        }
        if let Some(location) = self.location.and_then(|location| HeaderValue::from_str(&location).ok()) {
            headers.insert(LOCATION, location);
        }
        response
    }
}

/// The status of an exception, as Hadoop documents it: by its superclass in Java.
fn status_of(class: &str) -> StatusCode {
    let is = |known: Exception| known.class == class;
    if is(Exception::not_found("")) {
        StatusCode::NOT_FOUND
    } else if is(Exception::security("")) {
        StatusCode::UNAUTHORIZED
    } else if is(Exception::argument(""))
        || is(Exception::illegal_argument(""))
        || is(Exception::invalid_path(""))
        || is(Exception::unsupported(""))
    {
        StatusCode::BAD_REQUEST
    } else {
        // All others are subclasses of IOException.
        StatusCode::FORBIDDEN
    }
}

/// A body while it is sent.
pub(crate) struct SentBody {
    content: ReplyContent,
    _request: RequestGuard,
}

impl Body for SentBody {
    type Data = Bytes;
    type Error = Exception;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Exception>>> {
        let piece = match &mut self.content {
            ReplyContent::Whole(bytes) => Ok(Some(std::mem::take(bytes)).filter(|bytes| !bytes.is_empty())),
            ReplyContent::Pieces { left: Some(0), .. } => Ok(None),
            ReplyContent::Pieces { left, next } => next().inspect(|piece| {
                let len = piece.as_ref().map_or(0, Bytes::len) as u64;
                *left = left.map(|left| left.saturating_sub(len));
            }),
        };
        if let Err(exception) = &piece {
            tracing::warn!("an answer to a WebHDFS client ends in the middle: {exception}");
        }
        Poll::Ready(piece.transpose().map(|piece| piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            ReplyContent::Whole(bytes) => bytes.is_empty(),
            ReplyContent::Pieces { left, .. } => *left == Some(0),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            ReplyContent::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            ReplyContent::Pieces { left: Some(left), .. } => SizeHint::with_exact(*left),
            ReplyContent::Pieces { left: None, .. } => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_have_the_status_that_hadoop_documents() {
        let status = |exception: Exception| status_of(exception.class).as_u16();
        assert_eq!(status(Exception::argument("")), 400);
        assert_eq!(status(Exception::unsupported("")), 400);
        assert_eq!(status(Exception::security("")), 401);
        assert_eq!(status(Exception::io("")), 403);
        assert_eq!(status(Exception::access_control("")), 403);
        assert_eq!(status(Exception::authorization("")), 403);
        assert_eq!(status(Exception::not_found("")), 404);
    }
}
