//! The answer to a request: a status, and a body in bounded pieces.

use bytes::Bytes;
use frieze_hdfs::Exception;
use frieze_httpd::{BodyContent, HttpBody, RequestGuard};
use hyper::header::{CONTENT_TYPE, HeaderValue, LOCATION};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const BYTES: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// An answer, before it is encoded as HTTP.
pub(crate) struct HttpReply {
    status: StatusCode,
    location: Option<String>,
    kind: Option<HeaderValue>,
    content: BodyContent<Exception>,
}

/// The body of an answer while it is sent.
pub(crate) type SentBody = HttpBody<Exception>;

impl HttpReply {
    fn new(status: StatusCode, kind: Option<HeaderValue>, content: BodyContent<Exception>) -> HttpReply {
        HttpReply { status, location: None, kind, content }
    }

    /// Success without a body.
    pub(crate) fn done() -> HttpReply {
        HttpReply::new(StatusCode::OK, None, BodyContent::Whole(Bytes::new()))
    }

    /// A value.
    pub(crate) fn json(value: &Value) -> HttpReply {
        HttpReply::new(StatusCode::OK, Some(JSON), BodyContent::Whole(value.to_string().into()))
    }

    /// JSON that is made while it is sent.
    pub(crate) fn json_pieces(next: impl FnMut() -> Result<Option<Bytes>, Exception> + 'static) -> HttpReply {
        HttpReply::new(StatusCode::OK, Some(JSON), BodyContent::Pieces { left: None, next: Box::new(next) })
    }

    /// Bytes of a file.
    pub(crate) fn bytes(len: u64, next: impl FnMut() -> Result<Option<Bytes>, Exception> + 'static) -> HttpReply {
        HttpReply::new(StatusCode::OK, Some(BYTES), BodyContent::Pieces { left: Some(len), next: Box::new(next) })
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
        let mut response = Response::new(HttpBody::new(self.content, request));
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
