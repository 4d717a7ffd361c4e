//! Errors of transports.

use std::io;
use std::time::Duration;

use frieze_base::{ErrorKind, Fault, Reason};

/// A transport failed. After any error of a reader or writer the connection is of no further use.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is not the address of a server.
    #[error("{text:?} is not the address of a server: expected HOST:PORT or unix:/PATH")]
    Address {
        /// The text.
        text: String,
    },
    /// No server answers there.
    #[error(
        "cannot reach frieze server at {addr}: {}; start one with `frieze serve --dir DIR` or name another \
         with --server",
        words(source)
    )]
    Connect {
        /// The address tried.
        addr: String,
        /// Error of the system.
        source: io::Error,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {addr}: {}", words(source))]
    Listen {
        /// The address.
        addr: String,
        /// Error of the system.
        source: io::Error,
    },
    /// Another server listens there.
    #[error("cannot listen on {addr}: another server answers there")]
    InUse {
        /// The address.
        addr: String,
    },
    /// The server refused the connection.
    #[error("{0}")]
    Refused(Fault),
    /// The peer ended the connection.
    #[error("{peer} closed the connection")]
    Closed {
        /// The peer.
        peer: String,
    },
    /// The system failed an operation on the connection.
    #[error("connection to {peer} broke while {doing}: {}", words(source))]
    Broken {
        /// The peer.
        peer: String,
        /// The operation: `sending`, `receiving`.
        doing: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// The peer sent nothing within the time it had.
    #[error("{peer} sent nothing for {:.3} s", waited.as_secs_f64())]
    Silent {
        /// The peer.
        peer: String,
        /// How long this end waited.
        waited: Duration,
    },
    /// The peer began a frame and did not complete it in time.
    #[error("{peer} did not complete a frame within {:.3} s", limit.as_secs_f64())]
    HalfFrame {
        /// The peer.
        peer: String,
        /// The time a frame has.
        limit: Duration,
    },
    /// The peer does not read.
    #[error("{peer} read nothing for {:.3} s: the connection is dropped", limit.as_secs_f64())]
    NotReading {
        /// The peer.
        peer: String,
        /// The time a frame has.
        limit: Duration,
    },
    /// The bytes are no frame of this protocol version.
    #[error("{peer}: {fault}")]
    Frame {
        /// The peer.
        peer: String,
        /// The fault of the header.
        fault: Fault,
    },
    /// Body or payload does not match its checksum.
    #[error("{peer}: checksum of the {part} is {found:08x}, expected {expected:08x}: it was changed on the way")]
    Checksum {
        /// The peer.
        peer: String,
        /// `body` or `payload`.
        part: &'static str,
        /// From the header.
        expected: u32,
        /// Of the bytes received.
        found: u32,
    },
    /// The text is not a key.
    #[error("not a key: expected NAME:HEX with a name of letters, digits, . _ - and at least 32 hexadecimal digits")]
    Key,
    /// A query of the system failed.
    #[error("cannot {doing}: {}", words(source))]
    System {
        /// The query.
        doing: &'static str,
        /// Error of the system.
        source: io::Error,
    },
}

impl Error {
    /// The cause, for messages that name the peer themselves.
    pub fn why(&self) -> String {
        match self {
            Error::Connect { source, .. } => words(source),
            other => other.to_string(),
        }
    }

    /// The reason, for programs.
    pub fn reason(&self) -> Reason {
        match self {
            Error::Address { .. } | Error::Key => Reason::InvalidArgument,
            Error::Connect { .. } | Error::Closed { .. } | Error::Broken { .. } | Error::System { .. } => {
                Reason::Unavailable
            }
            Error::Listen { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => Reason::AccessDenied,
            Error::Listen { source, .. } if source.kind() == io::ErrorKind::AddrInUse => Reason::Busy,
            Error::Listen { .. } => Reason::InvalidArgument,
            Error::InUse { .. } => Reason::Busy,
            Error::Silent { .. } | Error::HalfFrame { .. } | Error::NotReading { .. } => Reason::Unavailable,
            Error::Frame { fault, .. } | Error::Refused(fault) => fault.reason,
            Error::Checksum { .. } => Reason::BadFrame,
        }
    }

    /// What the caller does next.
    pub fn kind(&self) -> ErrorKind {
        self.reason().kind()
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault::new(error.reason(), error.to_string())
    }
}

/// The error of the system as a part of a sentence: `connection refused`, without the number.
fn words(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut chars = text.chars();
    match chars.next() {
        Some(first) if chars.clone().next().is_some_and(char::is_lowercase) => {
            first.to_lowercase().chain(chars).collect()
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreachable_server_is_explained() {
        let error = Error::Connect { addr: "127.0.0.1:7470".to_owned(), source: io::Error::from_raw_os_error(111) };
        assert_eq!(
            error.to_string(),
            "cannot reach frieze server at 127.0.0.1:7470: connection refused; start one with `frieze serve --dir DIR` \
             or name another with --server"
        );
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
}
