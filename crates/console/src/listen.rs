//! Where the console listens.

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};

use crate::error::ConsoleError;

/// Where `frieze console login` looks for a console unless another address is named.
pub const DEFAULT_ADDRESS: &str = "127.0.0.1:9880";

/// Which browsers may reach the console.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Audience {
    /// Those of this machine, whose users the kernel knows, and those that `ssh -L` lets in.
    #[default]
    ThisMachine,
    /// Those of other machines too, unencrypted: for networks that are trusted.
    Public,
}

/// Listens on an address that its audience allows.
///
/// # Errors
/// `Listen`, `Beyond`: choose another address.
pub(crate) fn listen(text: &str, audience: Audience) -> Result<TcpListener, ConsoleError> {
    let failed = |source| ConsoleError::Listen { address: text.to_owned(), source };
    let none = || failed(io::Error::new(io::ErrorKind::InvalidInput, "it is no HOST:PORT"));
    let address: SocketAddr = text.to_socket_addrs().map_err(failed)?.next().ok_or_else(none)?;
    if audience == Audience::ThisMachine && !address.ip().is_loopback() {
        return Err(ConsoleError::Beyond { address: text.to_owned() });
    }
    TcpListener::bind(address).map_err(failed)
}
