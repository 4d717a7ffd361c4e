//! Answers: pages, JSON, assets, bytes of files, and where to go next.

use bytes::Bytes;
use frieze_httpd::{BodyContent, HttpBody, RequestGuard};
use hyper::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION,
    REFERRER_POLICY, SET_COOKIE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::{Response, StatusCode};

/// A page may use what this server sends, and nothing else; no page of others may show it in a frame.
const PAGE_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
     form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
);
/// Bytes of a file run nothing and reach nothing, even if they are opened as a page.
const FILE_POLICY: HeaderValue = HeaderValue::from_static("default-src 'none'; sandbox; frame-ancestors 'none'");

/// The error that ends a body in the middle.
pub(crate) type BodyError = frieze_client::Error;
/// The next piece of a file.
pub(crate) type FilePieces = Box<dyn FnMut() -> Result<Option<Bytes>, BodyError>>;

/// An answer, before it is encoded as HTTP.
pub(crate) struct ConsoleReply {
    status: StatusCode,
    headers: Vec<(HeaderName, HeaderValue)>,
    content: BodyContent<BodyError>,
}

impl ConsoleReply {
    fn new(status: StatusCode, kind: &'static str, content: BodyContent<BodyError>) -> ConsoleReply {
        let headers = vec![
            (CONTENT_TYPE, HeaderValue::from_static(kind)),
            (CONTENT_SECURITY_POLICY, PAGE_POLICY),
            (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
            (X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
            (REFERRER_POLICY, HeaderValue::from_static("same-origin")),
            (CACHE_CONTROL, HeaderValue::from_static("no-store")),
        ];
        ConsoleReply { status, headers, content }
    }

    /// A page.
    pub(crate) fn page(html: String) -> ConsoleReply {
        ConsoleReply::new(StatusCode::OK, "text/html; charset=utf-8", BodyContent::Whole(html.into()))
    }

    /// Plain text, for programs.
    pub(crate) fn text(text: String) -> ConsoleReply {
        ConsoleReply::new(StatusCode::OK, "text/plain; charset=utf-8", BodyContent::Whole(text.into()))
    }

    /// A value.
    pub(crate) fn json(value: &serde_json::Value) -> ConsoleReply {
        ConsoleReply::new(StatusCode::OK, "application/json", BodyContent::Whole(value.to_string().into()))
    }

    /// A file of the console itself.
    pub(crate) fn asset(kind: &'static str, bytes: &'static [u8]) -> ConsoleReply {
        let reply = ConsoleReply::new(StatusCode::OK, kind, BodyContent::Whole(Bytes::from_static(bytes)));
        // Their addresses have the hash of their bytes.
        reply.with(CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable"))
    }

    /// Bytes of a file in pieces: shown in the page as `kind`, or saved as `name`.
    pub(crate) fn file(kind: Option<&'static str>, name: &str, len: u64, next: FilePieces) -> ConsoleReply {
        let content = BodyContent::Pieces { left: Some(len), next };
        let reply = ConsoleReply::new(StatusCode::OK, kind.unwrap_or("application/octet-stream"), content);
        let disposition = match kind {
            Some(_) => Ok(HeaderValue::from_static("inline")),
            None => HeaderValue::from_str(&format!("attachment; filename*=UTF-8''{name}")),
        };
        let disposition = disposition.unwrap_or(HeaderValue::from_static("attachment"));
        reply.with(CONTENT_SECURITY_POLICY, FILE_POLICY).with(CONTENT_DISPOSITION, disposition)
    }

    /// Another page is next.
    pub(crate) fn see(location: &str) -> ConsoleReply {
        let reply = ConsoleReply::new(StatusCode::SEE_OTHER, "text/plain", BodyContent::Whole(Bytes::new()));
        match HeaderValue::from_str(location) {
            Ok(location) => reply.with(LOCATION, location),
            Err(_) => reply.with(LOCATION, HeaderValue::from_static("/")),
        }
    }

    /// The same with another status.
    pub(crate) fn status(mut self, status: StatusCode) -> ConsoleReply {
        self.status = status;
        self
    }

    /// The same with a cookie.
    pub(crate) fn cookie(mut self, cookie: &str) -> ConsoleReply {
        if let Ok(cookie) = HeaderValue::from_str(cookie) {
            self.headers.push((SET_COOKIE, cookie));
        }
        self
    }

    fn with(mut self, name: HeaderName, value: HeaderValue) -> ConsoleReply {
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name, value));
        self
    }

    /// The HTTP response; the request lasts until it has been sent.
    pub(crate) fn response(self, request: RequestGuard) -> Response<HttpBody<BodyError>> {
        let mut response = Response::new(HttpBody::new(self.content, request));
        *response.status_mut() = self.status;
        for (name, value) in self.headers {
            response.headers_mut().append(name, value);
        }
        response
    }
}
