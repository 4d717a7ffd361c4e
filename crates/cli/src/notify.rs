//! Notifications of the service manager: this process is ready, or about to end (sd_notify(3)).
//!
//! Guarantees: without `NOTIFY_SOCKET` nothing happens; sending never waits, and its failure is logged and changes
//! nothing. Leaves to others: when it is ready (`serve`, `mount`).

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Names the socket of the service manager.
const VARIABLE: &str = "NOTIFY_SOCKET";

/// Everything is there; `status` is shown by `systemctl status`.
pub(crate) fn ready(status: &str) {
    send_to_supervisor(&format!("READY=1\nSTATUS={}\n", one_line(status)));
}

/// The process is about to end, which may take a while.
pub(crate) fn stopping(status: &str) {
    send_to_supervisor(&format!("STOPPING=1\nSTATUS={}\n", one_line(status)));
}

fn one_line(status: &str) -> String {
    status.replace('\n', " ")
}

fn send_to_supervisor(message: &str) {
    let Some(socket) = std::env::var_os(VARIABLE) else { return };
    if let Err(error) = send(&socket, message) {
        tracing::warn!("the service manager could not be notified: {error}");
    }
}

/// Sends `message` to a socket: a path, or, behind `@`, the name of one that has none.
fn send(socket: &OsStr, message: &str) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        [b'/', ..] => SocketAddr::from_pathname(socket)?,
        _ => {
            let words = format!("{VARIABLE} names no socket of this machine: {}", socket.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, words));
        }
    };
    let from = UnixDatagram::unbound()?;
    // A receiver that does not read is not waited for.
    from.set_nonblocking(true)?;
    from.send_to_addr(message.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut room = [0; 256];
        let len = socket.recv(&mut room).unwrap();
        String::from_utf8(room[..len].to_vec()).unwrap()
    }

    #[test]
    fn a_socket_with_a_path_and_an_abstract_one_are_notified() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        send(path.as_os_str(), "READY=1\n").unwrap();
        assert_eq!(received(&socket), "READY=1\n");
        let name = format!("frieze-test-{}", std::process::id());
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        send(OsStr::new(&format!("@{name}")), "STOPPING=1\n").unwrap();
        assert_eq!(received(&socket), "STOPPING=1\n");
    }

    #[test]
    fn a_missing_socket_is_an_error_and_no_wait() {
        assert!(send(OsStr::new("/nobody/is/there"), "READY=1\n").is_err());
        assert_eq!(send(OsStr::new("vsock:2:1"), "READY=1\n").unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert!(send(OsStr::new(""), "READY=1\n").is_err());
        assert_eq!(one_line("a\nREADY=1"), "a READY=1");
    }
}
