//! `SO_RCVLOWAT`: how many bytes must arrive before a waiting thread is woken.

#![expect(unsafe_code, reason = "SO_RCVLOWAT has no safe wrapper in rustix or nix; this file is all of it")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Sets how many bytes wake a receive that waits; the end of the stream and the timeout wake it too.
///
/// # Errors
/// Those of `setsockopt(2)`: not a socket, or one that knows no such mark.
pub(crate) fn set_low_water(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    // SAFETY: the descriptor is borrowed for the call, the pointer is to a live integer of the length given, and the
    // call keeps neither.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const bytes).cast(),
            size_of_val(&bytes) as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_connection_takes_it_and_a_file_does_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connected = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        set_low_water(connected.as_fd(), 256 << 10).unwrap();
        set_low_water(connected.as_fd(), 1).unwrap();
        let file = File::open("/dev/null").unwrap();
        assert_eq!(set_low_water(file.as_fd(), 1).unwrap_err().raw_os_error(), Some(libc::ENOTSOCK));
    }
}
