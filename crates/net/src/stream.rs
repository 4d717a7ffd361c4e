//! A connected byte stream: TCP or Unix socket, blocking.

use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType,
    sockopt,
};

use crate::recv_low_water::set_low_water;
use crate::{Error, ServerAddr, mono};

/// A connection. Cheap to clone: clones are the same connection, so that one thread may read, another write and a third
/// shut it down.
#[derive(Clone, Debug)]
pub struct Stream(Arc<Connected>);

#[derive(Debug)]
struct Connected {
    socket: Socket,
    peer: String,
    /// How long one receive waits, nanoseconds; 0 is for ever.
    receive_tick_ns: AtomicU64,
    /// So many bytes have to be there before a TCP receive that waits is woken; 0 until that is first set.
    low_water: AtomicUsize,
}

#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Connects to a server. A name with several addresses is tried address by address until `timeout` is over.
    ///
    /// # Errors
    /// `Connect`, with the remedy: no server listens there, or it did not answer in time.
    pub fn connect(addr: &ServerAddr, timeout: Duration) -> Result<Stream, Error> {
        let refused = |source| Error::Connect { addr: addr.to_string(), source };
        let socket = match addr {
            ServerAddr::Unix(path) => Socket::Unix(connect_unix(path, timeout).map_err(refused)?),
            ServerAddr::Tcp { host, port } => Socket::Tcp(
                connect_any((host.as_str(), *port).to_socket_addrs().map_err(refused)?, timeout).map_err(refused)?,
            ),
        };
        Stream::of(socket, addr.to_string()).map_err(refused)
    }

    /// Two ends of one connection within this process, for tests and for an embedded server.
    ///
    /// # Errors
    /// If the system has no more sockets to give.
    pub fn pair() -> Result<(Stream, Stream), Error> {
        let failed = |source| Error::System { doing: "make a pair of sockets", source };
        let (a, b) = UnixStream::pair().map_err(failed)?;
        let named = |socket| Stream::of(Socket::Unix(socket), "this process".to_owned()).map_err(failed);
        Ok((named(a)?, named(b)?))
    }

    /// Wraps a connected socket and sets what every connection of frieze has.
    pub(crate) fn of(socket: Socket, peer: String) -> io::Result<Stream> {
        match &socket {
            Socket::Tcp(tcp) => {
                tcp.set_nodelay(true)?;
                // A peer whose machine vanished is noticed after 60 + 3 * 20 s, so that its thread ends.
                sockopt::set_socket_keepalive(tcp, true)?;
                sockopt::set_tcp_keepidle(tcp, Duration::from_secs(60))?;
                sockopt::set_tcp_keepintvl(tcp, Duration::from_secs(20))?;
                sockopt::set_tcp_keepcnt(tcp, 3)?;
                send_unpaced(tcp)?;
            }
            Socket::Unix(unix) => {
                // TCP sizes its buffers itself; a Unix socket stays at 208 KiB by default.
                sockopt::set_socket_send_buffer_size(unix, UNIX_BUFFER_BYTES)?;
            }
        }
        Ok(Stream(Arc::new(Connected {
            socket,
            peer,
            receive_tick_ns: AtomicU64::new(0),
            low_water: AtomicUsize::new(0),
        })))
    }

    /// The other end, for messages.
    pub fn peer(&self) -> &str {
        &self.0.peer
    }

    /// The address of the peer's machine; this machine for a Unix socket and for a closed connection.
    pub fn peer_ip(&self) -> IpAddr {
        let ends = self.tcp_ends().and_then(Result::ok);
        ends.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |(peer, _)| peer.ip().to_canonical())
    }

    /// True for a Unix socket.
    pub fn is_unix(&self) -> bool {
        matches!(self.0.socket, Socket::Unix(_))
    }

    /// Both addresses of a TCP connection: the peer's and ours.
    pub(crate) fn tcp_ends(&self) -> Option<io::Result<(SocketAddr, SocketAddr)>> {
        match &self.0.socket {
            Socket::Tcp(tcp) => Some(tcp.peer_addr().and_then(|peer| Ok((peer, tcp.local_addr()?)))),
            Socket::Unix(_) => None,
        }
    }

    /// Ends the connection in both directions, from any thread: a read or write that waits on it returns.
    pub fn shutdown(&self) {
        // It fails only if the peer has ended it already, which is what was wanted.
        let _ = rustix::net::shutdown(self.fd(), Shutdown::Both);
    }

    /// Ends the receiving direction, from any thread: bytes that have arrived can be read, then a read finds the end.
    /// Sending still works.
    pub fn shut_in(&self) {
        // As there.
        let _ = rustix::net::shutdown(self.fd(), Shutdown::Read);
    }

    /// True if the peer has ended the connection or has sent unexpected bytes: do not use it again.
    /// Costs one system call and never waits.
    pub fn is_stale(&self) -> bool {
        let mut byte = [0u8; 1];
        let looked = rustix::net::recv(self.fd(), &mut byte[..], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        looked != Err(rustix::io::Errno::AGAIN)
    }

    /// Sets how long one receive and one send may wait before they give `AGAIN`.
    pub(crate) fn set_ticks(&self, receive: Duration, send: Duration) -> io::Result<()> {
        sockopt::set_socket_timeout(self.fd(), sockopt::Timeout::Recv, Some(receive))?;
        self.0.receive_tick_ns.store(receive.as_nanos() as u64, Ordering::Relaxed);
        sockopt::set_socket_timeout(self.fd(), sockopt::Timeout::Send, Some(send))?;
        Ok(())
    }

    /// Announces that `left` bytes of a large payload are still to come, 0 at its end: over TCP the receiver sleeps
    /// until a good part has arrived. Woken for each segment, it would take the lock of the socket from the sender
    /// again and again, which costs both more than the bytes (`bench seq-read`: 0.15 and 0.28 s of processor a GiB, so
    /// 0.10 and 0.23).
    pub(crate) fn expect(&self, left: usize) {
        let wanted = left.clamp(1, LOW_WATER_BYTES);
        let before = self.0.low_water.load(Ordering::Relaxed);
        if self.is_unix() || before.max(1) == wanted {
            return;
        }
        self.0.low_water.store(wanted, Ordering::Relaxed);
        // A refusal only costs time.
        if before == 0 {
            // The kernel makes room for exactly as much as is waited for. With just that much room the sender may stop
            // a few bytes short of it and continue by its timer of 200 ms: so there is room for a frame.
            let _ = set_low_water(self.fd(), ROOM_BYTES);
        }
        let _ = set_low_water(self.fd(), wanted);
    }

    /// Receives the bytes that have arrived, waiting for at least one. 0: the peer has ended its direction.
    pub(crate) fn receive(&self, into: &mut [u8], flags: RecvFlags) -> io::Result<usize> {
        if flags.contains(RecvFlags::DONTWAIT) {
            return self.receive_once(into, flags);
        }
        if !self.is_unix() {
            if self.0.low_water.load(Ordering::Relaxed) <= 1 {
                return self.receive_once(into, flags);
            }
            // A thread that sleeps in recv(2) with a part of the bytes already received is woken when as many again
            // have arrived, which may be never. A thread in poll(2) has received nothing yet.
            self.await_bytes()?;
            return self.receive_once(into, flags | RecvFlags::DONTWAIT);
        }
        // A thread that sleeps in recv(2) on a Unix socket is also woken when the peer receives what was sent to it,
        // only to sleep again: two switches of threads a request. A thread in poll(2) is not.
        loop {
            match self.receive_once(into, flags | RecvFlags::DONTWAIT) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.await_bytes()?,
                done => return done,
            }
        }
    }

    fn receive_once(&self, into: &mut [u8], flags: RecvFlags) -> io::Result<usize> {
        loop {
            match rustix::net::recv(self.fd(), &mut *into, flags) {
                Err(rustix::io::Errno::INTR) => {}
                done => return Ok(done?.1),
            }
        }
    }

    /// Sleeps until there is something to receive or the peer has ended; `WouldBlock` after a tick.
    fn await_bytes(&self) -> io::Result<()> {
        let tick_ns = self.0.receive_tick_ns.load(Ordering::Relaxed);
        let tick = Timespec { tv_sec: (tick_ns / 1_000_000_000) as i64, tv_nsec: (tick_ns % 1_000_000_000) as i64 };
        loop {
            let fd = self.fd();
            match rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], (tick_ns > 0).then_some(&tick)) {
                Err(rustix::io::Errno::INTR) => {}
                Ok(0) => return Err(io::ErrorKind::WouldBlock.into()),
                done => return Ok(done.map(drop)?),
            }
        }
    }

    /// Waits until there is room for more to be sent, or the peer has ended; false if that takes longer than `limit`.
    pub(crate) fn await_room(&self, limit: Duration) -> io::Result<bool> {
        self.await_either(PollFlags::OUT, limit)
    }

    /// Bytes that can be sent without a wait after [`Stream::await_room`] has returned true: the system reports room
    /// when a third of the buffer is free. Many if the peer is fast, few if it is slow.
    pub(crate) fn room_at_least(&self) -> usize {
        sockopt::socket_send_buffer_size(self.fd()).map_or(ROOM_BYTES_MIN, |bytes| (bytes / 3).max(ROOM_BYTES_MIN))
    }

    /// Waits until there is something to receive, or the peer has ended; false if that takes longer than `limit`.
    pub(crate) fn await_readable(&self, limit: Duration) -> io::Result<bool> {
        self.await_either(PollFlags::IN, limit)
    }

    fn await_either(&self, what: PollFlags, limit: Duration) -> io::Result<bool> {
        let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
        loop {
            let fd = self.fd();
            match rustix::event::poll(&mut [PollFd::new(&fd, what)], Some(&limit)) {
                Err(rustix::io::Errno::INTR) => {}
                done => return Ok(done? > 0),
            }
        }
    }

    /// Sends a prefix of the pieces; a closed connection gives `EPIPE`, never a signal.
    pub(crate) fn send(&self, pieces: &[IoSlice<'_>], flags: SendFlags) -> io::Result<usize> {
        loop {
            let mut control = SendAncillaryBuffer::default();
            match rustix::net::sendmsg(self.fd(), pieces, &mut control, flags | SendFlags::NOSIGNAL) {
                Err(rustix::io::Errno::INTR) => {}
                done => return Ok(done?),
            }
        }
    }

    /// Sends at most `len` bytes of a file from `offset` on, which advances by as many. The system takes them from its
    /// page cache; they do not pass through this process. 0 if the file ends there. May wait for room, as a blocking
    /// send.
    pub(crate) fn send_file(&self, file: BorrowedFd<'_>, offset: &mut u64, len: usize) -> io::Result<usize> {
        loop {
            match rustix::fs::sendfile(self.fd(), file, Some(offset), len) {
                Err(rustix::io::Errno::INTR) => {}
                done => return Ok(done?),
            }
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match &self.0.socket {
            Socket::Tcp(tcp) => tcp.as_fd(),
            Socket::Unix(unix) => unix.as_fd(),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }
}

/// Lets a connection within this machine send as fast as its peer receives, whatever congestion control the system
/// prefers.
///
/// # Errors
/// If the connection has ended.
pub fn send_unpaced(tcp: &TcpStream) -> io::Result<()> {
    if tcp.peer_addr()?.ip().to_canonical().is_loopback() {
        // A refusal only costs time.
        let _ = sockopt::set_tcp_congestion(tcp, UNPACED);
    }
    Ok(())
}

/// Connects to the first address that answers.
fn connect_any(addrs: impl Iterator<Item = SocketAddr>, timeout: Duration) -> io::Result<TcpStream> {
    let began = mono();
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for addr in addrs {
        let left = timeout.saturating_sub(Duration::from_nanos(mono().since_ns(began)));
        if left.is_zero() {
            break;
        }
        match TcpStream::connect_timeout(&addr, left) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Connects to a Unix socket, waiting at most `timeout` for a place in a full backlog.
fn connect_unix(path: &Path, timeout: Duration) -> io::Result<UnixStream> {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(timeout.max(Duration::from_millis(1))))?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

/// Less than this is not worth a call: a socket takes so much in a moment.
const ROOM_BYTES_MIN: usize = 16 << 10;
/// Large enough that a payload of 1 MiB takes four wake-ups, small enough that it is received while the rest is sent.
const LOW_WATER_BYTES: usize = 256 << 10;
/// Receive buffer of a TCP connection after the first large payload: a frame of 1 MiB.
const ROOM_BYTES: usize = 1 << 20;
/// Congestion control of TCP within one machine: it sends as fast as the peer receives. BBR, where the system prefers
/// it, sends by a timer at a pace that it learns, and learns a wrong one from a peer that sends a request, waits and
/// sends the next: half the speed for seconds at a time, and twice the processor (`bench snapshots`: 4.7 GiB/s or 2.0).
/// Every system has this one, and every user may select it.
const UNPACED: &str = "reno";
/// A frame of 1 MiB fits, so that its sender begins the next while the receiver copies.
const UNIX_BUFFER_BYTES: usize = 2 << 20;

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_buffer_has_room_for_far_more_than_the_low_water_mark() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let stream = Stream::of(Socket::Tcp(near), "a peer".to_owned()).unwrap();
        let room = || sockopt::socket_recv_buffer_size(stream.fd()).unwrap();
        // Without a large payload the buffer stays as it is.
        let before = room();
        stream.expect(0);
        assert_eq!(room(), before);
        stream.expect(600_000);
        assert!(room() > before && room() >= 4 * LOW_WATER_BYTES, "{} after {before}", room());
        stream.expect(0);
    }

    #[test]
    fn reported_room_can_be_sent_without_waiting() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_far, _) = listener.accept().unwrap();
        sockopt::set_socket_send_buffer_size(&near, 64 << 10).unwrap();
        let stream = Stream::of(Socket::Tcp(near), "a peer".to_owned()).unwrap();
        let bytes = vec![0; 1 << 20];
        // Its peer takes nothing: at some time there is no room.
        while stream.await_room(Duration::ZERO).unwrap() {
            let some = stream.room_at_least();
            assert!((ROOM_BYTES_MIN..=64 << 10).contains(&some), "{some} of a small buffer");
            let sent = stream.send(&[IoSlice::new(&bytes[..some])], SendFlags::DONTWAIT).unwrap();
            assert_eq!(sent, some, "all that there was room for");
        }
    }

    #[test]
    fn connections_within_the_machine_are_not_paced() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        for end in [near, far] {
            let stream = Stream::of(Socket::Tcp(end), "a peer".to_owned()).unwrap();
            assert_eq!(sockopt::tcp_congestion(stream.fd()).unwrap(), UNPACED);
        }
    }

    #[test]
    fn a_payload_in_two_parts_is_received_when_both_have_arrived() {
        use std::io::Write;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let stream = Stream::of(Socket::Tcp(stream), "a peer".to_owned()).unwrap();
        let tick = Duration::from_secs(20);
        stream.set_ticks(tick, tick).unwrap();
        stream.expect(160_000);
        far.write_all(&[1; 100_000]).unwrap();
        std::thread::scope(|scope| {
            let receiver = scope.spawn(|| stream.receive(&mut [0; 160_000], RecvFlags::empty()));
            let began = mono();
            // Time for it to go to sleep, as far as it gets.
            (0..1000).for_each(|_| std::thread::yield_now());
            far.write_all(&[2; 60_000]).unwrap();
            assert_eq!(receiver.join().unwrap().unwrap(), 160_000);
            assert!(
                mono().since_ns(began) < tick.as_nanos() as u64,
                "it was woken by the clock, not by the second part"
            );
        });
    }
}
