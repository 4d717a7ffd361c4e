//! Waits for connections.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::net::Shutdown;

use crate::stream::Socket;
use crate::{Error, ServerAddr, Stream};

/// A server's ear at one address.
#[derive(Debug)]
pub struct Listener {
    socket: ListenSocket,
    addr: ServerAddr,
    stopped: AtomicBool,
}

#[derive(Debug)]
enum ListenSocket {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// Listens on `addr`. Port 0 selects a free one, which [`Listener::addr`] returns. A Unix socket that a dead server
    /// left behind is replaced. Every user may connect to it: the kernel reports their identity.
    ///
    /// # Errors
    /// `InUse` if another server answers there, else `Listen` with what the system said.
    pub fn bind(addr: &ServerAddr) -> Result<Listener, Error> {
        let refused = |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => Error::InUse { addr: addr.to_string() },
            _ => Error::Listen { addr: addr.to_string(), source },
        };
        let (socket, addr) = match addr {
            ServerAddr::Tcp { host, port } => {
                let tcp = TcpListener::bind((host.as_str(), *port)).map_err(refused)?;
                let bound = tcp.local_addr().map_err(refused)?.into();
                (ListenSocket::Tcp(tcp), bound)
            }
            ServerAddr::Unix(path) => {
                remove_abandoned(path);
                let unix = UnixListener::bind(path).map_err(refused)?;
                fs::set_permissions(path, fs::Permissions::from_mode(0o666)).map_err(refused)?;
                (ListenSocket::Unix(unix, path.clone()), addr.clone())
            }
        };
        let listener = Listener { socket, addr, stopped: AtomicBool::new(false) };
        // std asks for 128; a thousand clients that reconnect at once after a restart must not be refused.
        rustix::net::listen(listener.fd(), BACKLOG)
            .map_err(|errno| Error::Listen { addr: listener.addr.to_string(), source: errno.into() })?;
        Ok(listener)
    }

    /// Where it listens.
    pub fn addr(&self) -> &ServerAddr {
        &self.addr
    }

    /// Waits for the next connection; `None` once [`Listener::stop`] was called. Connections that broke before they
    /// were accepted are skipped.
    ///
    /// # Errors
    /// `Listen` if the system has no more descriptors or memory: close connections, then call again.
    pub fn accept(&self) -> Result<Option<Stream>, Error> {
        loop {
            let accepted = match &self.socket {
                ListenSocket::Tcp(tcp) => {
                    tcp.accept().and_then(|(stream, peer)| Stream::of(Socket::Tcp(stream), peer.to_string()))
                }
                ListenSocket::Unix(unix, path) => unix.accept().and_then(|(stream, _)| {
                    Stream::of(Socket::Unix(stream), format!("a client of {}", path.display()))
                }),
            };
            if self.stopped.load(Ordering::Acquire) {
                return Ok(None);
            }
            match accepted {
                Ok(stream) => return Ok(Some(stream)),
                Err(source) if is_exhausted(&source) => {
                    return Err(Error::Listen { addr: self.addr.to_string(), source });
                }
                // The connection ended before it was accepted (accept(2): treat network errors like EAGAIN).
                Err(error) => tracing::debug!(addr = %self.addr, %error, "a connection broke before it was taken"),
            }
        }
    }

    /// Stops listening, from any thread: every `accept` returns `None`.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        // Linux wakes an accept by shutting the listening socket down; it fails only if that was done before.
        let _ = rustix::net::shutdown(self.fd(), Shutdown::Both);
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            ListenSocket::Tcp(tcp) => tcp.as_fd(),
            ListenSocket::Unix(unix, _) => unix.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let ListenSocket::Unix(_, path) = &self.socket {
            // What stays behind is replaced by the next server.
            let _ = fs::remove_file(path);
        }
    }
}

/// Removes a socket file on which no process listens. Any other file stays, and binding fails because of it.
fn remove_abandoned(path: &Path) {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    let is_refused = || UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    if is_socket && is_refused() {
        let _ = fs::remove_file(path);
    }
}

/// True if the system, not the connection, is at its end.
fn is_exhausted(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let exhausted = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    error.raw_os_error().is_some_and(|code| exhausted.iter().any(|errno| errno.raw_os_error() == code))
        || error.kind() == io::ErrorKind::InvalidInput
}

/// Connections that may wait to be taken; the kernel caps it at `net.core.somaxconn` (4,096 by default).
const BACKLOG: i32 = 4096;
