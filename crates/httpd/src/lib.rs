//! HTTP/1 server connections: hyper on a thread and a socket, without a runtime.
//!
//! Three gateways stand on it: WebHDFS (`crates/http`), whose requests and answers are streams of bytes, the console
//! (`crates/console`), and the page of metrics (`crates/node`), which is one answer to one path. [`serve`] runs one
//! connection on the calling thread; [`PageListener`] and [`PageConnection`] serve one page on an address of their own;
//! [`HttpBody`] is the body of an answer, in memory or in pieces; [`origin`] tells which page in a browser asks.
//!
//! Guarantees: every connection has limits ([`ConnectionLimits`]): a client that sends garbage, too much, half a
//! request or nothing is answered or closed within them, and a connection between requests has a small buffer.
//! Leaves to others: listening for many connections and their threads (`frieze_net::Acceptor`), what an answer holds,
//! the protocol itself (`hyper`). ADR 0042 says why hyper needs no runtime here.

mod connection;
mod http_body;
mod limits;
pub mod origin;
mod page;
mod socket;

pub use crate::connection::serve;
pub use crate::http_body::{BodyContent, HttpBody};
pub use crate::limits::ConnectionLimits;
pub use crate::page::{PageConnection, PageListener};
pub use crate::socket::RequestGuard;
