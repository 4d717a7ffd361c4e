//! Which page in a browser makes a request.
//!
//! The kernel reports a browser on this machine as its user, whatever page makes the request. So a gateway that
//! believes the kernel, or a cookie, refuses requests of pages from elsewhere ([`check_page`]), and host names that
//! another name server may have led here ([`host_of`]: DNS rebinding).

use std::net::{IpAddr, SocketAddr};

use hyper::HeaderMap;
use hyper::header::{HOST, HeaderName, ORIGIN};
use hyper::http::uri::Authority;

/// By this header browsers tell whether the request comes from a page of the same origin; `none` is the user of the
/// browser.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OriginFault {
    /// The client does not say what it wants to reach.
    #[error("the Host of the request is no HOST:PORT")]
    Host,
    /// The name is another server's, or of no server.
    #[error("{0} is not the name of this gateway: use its address, or localhost")]
    ForeignHost(String),
    /// A page of another origin makes the request.
    #[error("a web page of another origin may not use this gateway")]
    ForeignPage,
}

/// The name and port by which a client reached this address: what its requests call the host.
///
/// # Errors
/// `Host`.
pub fn host_of(headers: &HeaderMap, reached: SocketAddr) -> Result<Authority, OriginFault> {
    let host = match text(headers, HOST) {
        None | Some("") => reached.to_string(),
        Some(host) => host.to_owned(),
    };
    host.parse().map_err(|_| OriginFault::Host)
}

/// Refuses a host name that is neither an address, nor `localhost`, nor `own`, in small letters.
///
/// # Errors
/// `ForeignHost`.
pub fn check_host(host: &Authority, own: &str) -> Result<(), OriginFault> {
    let name = host.host().trim_matches(['[', ']']).to_ascii_lowercase();
    match name.parse::<IpAddr>().is_ok() || name == "localhost" || name == own {
        true => Ok(()),
        false => Err(OriginFault::ForeignHost(name)),
    }
}

/// Refuses a request that a page of another origin than `http://HOST` makes.
///
/// # Errors
/// `ForeignPage`.
pub fn check_page(headers: &HeaderMap, host: &Authority) -> Result<(), OriginFault> {
    let foreign_origin =
        text(headers, ORIGIN).is_some_and(|origin| origin.strip_prefix("http://") != Some(host.as_str()));
    let foreign_site = text(headers, SEC_FETCH_SITE).is_some_and(|site| !["none", "same-origin"].contains(&site));
    if foreign_origin || foreign_site { Err(OriginFault::ForeignPage) } else { Ok(()) }
}

/// True if a browser sends the request: programs do not say which page they are.
pub fn is_browser(headers: &HeaderMap) -> bool {
    headers.contains_key(ORIGIN) || headers.contains_key(SEC_FETCH_SITE)
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).map(|value| value.to_str().unwrap_or_default())
}
