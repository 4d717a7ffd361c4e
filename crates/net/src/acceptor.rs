//! Listening sockets of gateways and the threads of their connections.
//!
//! Guarantees: a connection counts against the server's limits ([`Admission`]), for the user that the kernel reports,
//! and no gateway has more than [`ConnectionHandler::CONNECTIONS_MAX`]; closing a gateway ends every connection and
//! waits for its thread.
//! Leaves to others: the protocol on a connection.

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use frieze_locks::{Condvar, Mutex, MutexGuard, levels};

use crate::admission::{Admission, Origin, Seat};
use crate::log_throttle::LogThrottle;
use crate::peer_credentials::{Proof, tcp_proof};
use crate::stream::send_unpaced;

/// Stack of a connection's thread.
const STACK_BYTES: usize = 512 << 10;

/// Serves connections of one kind.
pub trait ConnectionHandler: Send + Sync + 'static {
    /// The name of its threads.
    const NAME: &'static str;
    /// Connections at a time, below the server's own limit; one more is closed at once, and its client tries again. A
    /// user, or an address of another machine, has a quarter of them at most, and the last sixteenth is for root.
    const CONNECTIONS_MAX: usize = usize::MAX;

    /// Serves a connection until it ends.
    fn serve(&self, accepted: AcceptedConnection);

    /// The gateway closes: no connection is served any more.
    fn stop(&self) {}
}

/// An accepted connection.
#[derive(Debug)]
pub struct AcceptedConnection {
    /// The socket.
    pub stream: TcpStream,
    /// Address of the client.
    pub peer: SocketAddr,
    /// Address on this machine.
    pub local: SocketAddr,
    /// The user and the admission of the connection.
    pub guest: Guest,
}

/// The user and the admission of a connection.
#[derive(Debug)]
pub struct Guest {
    /// The user, as the kernel reports it.
    pub proof: Proof,
    seat: Seat,
}

impl Guest {
    /// Counts the connection for this user from here on.
    ///
    /// # Errors
    /// `ConnectionRefused` if the user has as many connections as allowed: the connection ends.
    pub fn belongs_to(&mut self, uid: u32) -> io::Result<()> {
        let refused = |refused| io::Error::new(io::ErrorKind::ConnectionRefused, refused);
        match self.proof {
            // Root acts for others, and its connections count as its own.
            Proof::User(_) => Ok(()),
            Proof::Unproven => self.seat.belongs_to(Origin::User(uid)).map_err(refused),
        }
    }
}

/// A listening socket, its thread and its connections. Dropped, all end.
pub struct Acceptor {
    shared: Arc<AcceptorState>,
    thread: Option<JoinHandle<()>>,
    stop: Box<dyn Fn() + Send + Sync>,
    address: SocketAddr,
}

struct AcceptorState {
    listener: TcpListener,
    admission: Admission,
    missed: LogThrottle,
    stopping: AtomicBool,
    open: Mutex<levels::GatewayConnections, OpenConnections>,
    ended: Condvar,
}

#[derive(Default)]
struct OpenConnections {
    streams: BTreeMap<u64, (TcpStream, Origin)>,
    last: u64,
}

impl OpenConnections {
    /// True if one more connection of `origin` may be open beside these, of `max` in all.
    fn has_place(&self, origin: Origin, max: usize) -> bool {
        if origin == Origin::User(0) {
            return self.streams.len() < max;
        }
        let own = self.streams.values().filter(|(_, known)| *known == origin).count();
        self.streams.len() < max - max / 16 && own < max.div_ceil(4)
    }
}

impl Acceptor {
    /// Serves every client that connects.
    ///
    /// # Errors
    /// The system's: no thread can be started.
    pub fn start<S: ConnectionHandler>(
        listener: TcpListener,
        service: Arc<S>,
        admission: Admission,
    ) -> io::Result<Acceptor> {
        let address = listener.local_addr()?;
        let (stopping, open, ended) = (AtomicBool::new(false), Mutex::default(), Condvar::new());
        let missed = LogThrottle::default();
        let shared = Arc::new(AcceptorState { listener, admission, missed, stopping, open, ended });
        let (for_thread, served) = (shared.clone(), service.clone());
        let thread =
            thread::Builder::new().name(format!("{}-accept", S::NAME)).spawn(move || for_thread.accept_all(&served))?;
        Ok(Acceptor { shared, thread: Some(thread), stop: Box::new(move || service.stop()), address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        // Wakes accept(2).
        let _ = rustix::net::shutdown(&self.shared.listener, rustix::net::Shutdown::Both);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a thread that accepts connections of a gateway panicked");
        }
        let mut open = self.shared.open();
        open.streams.values().for_each(|(stream, _)| drop(stream.shutdown(Shutdown::Both)));
        (self.stop)();
        while !open.streams.is_empty() {
            open = self.shared.ended.wait(open);
        }
    }
}

impl AcceptorState {
    fn accept_all<S: ConnectionHandler>(self: &Arc<AcceptorState>, service: &Arc<S>) {
        while !self.stopping.load(Ordering::Acquire) {
            match self.listener.accept() {
                Ok((stream, peer)) => self.take(stream, peer, service),
                Err(_) if self.stopping.load(Ordering::Acquire) => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    // Out of descriptors or memory: some are free when a connection ends.
                    self.miss(format_args!("cannot take a connection to {}: {error}", S::NAME));
                    let open = self.open();
                    drop(self.ended.wait_timeout(open, std::time::Duration::from_millis(100)));
                }
            }
        }
    }

    /// Logs, at a limited rate, why connections are not served.
    fn miss(&self, words: std::fmt::Arguments<'_>) {
        if let Some(count) = self.missed.happened() {
            tracing::warn!(count, "{words}");
        }
    }

    fn take<S: ConnectionHandler>(self: &Arc<AcceptorState>, stream: TcpStream, peer: SocketAddr, service: &Arc<S>) {
        let Ok(local) = stream.local_addr() else { return };
        let proof = tcp_proof(peer, local).unwrap_or_else(|error| {
            self.miss(format_args!("a client stays unproven: {error}"));
            Proof::Unproven
        });
        // The admission logs refusals. Clients try again.
        let origin = Origin::of(proof, peer.ip().to_canonical());
        let Ok(seat) = self.admission.enter(origin) else { return };
        // Answers are complete: they do not wait for more data.
        let _ = stream.set_nodelay(true);
        // Blocks are sent as fast as the client reads; the next read finds a connection that has ended.
        let _ = send_unpaced(&stream);
        let Ok(kept) = stream.try_clone() else { return };
        let number = {
            let mut open = self.open();
            if !open.has_place(origin, S::CONNECTIONS_MAX) {
                let count = open.streams.len();
                return self.miss(format_args!(
                    "{count} clients are connected to {}: one more of {origin:?} is turned away",
                    S::NAME
                ));
            }
            open.last += 1;
            let number = open.last;
            open.streams.insert(number, (kept, origin));
            number
        };
        let (ends, service) = (ConnectionEntry { shared: self.clone(), number }, service.clone());
        let thread = thread::Builder::new().name(S::NAME.to_owned()).stack_size(STACK_BYTES).spawn(move || {
            let ends = ends;
            service.serve(AcceptedConnection { stream, peer, local, guest: Guest { proof, seat } });
            drop(ends);
        });
        if let Err(error) = thread {
            self.miss(format_args!("cannot serve a connection to {}: {error}", S::NAME));
        }
    }

    fn open(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock()
    }
}

/// Removes a connection from the list, however its thread ends.
struct ConnectionEntry {
    shared: Arc<AcceptorState>,
    number: u64,
}

impl Drop for ConnectionEntry {
    fn drop(&mut self) {
        if let Some((stream, _)) = self.shared.open().streams.remove(&self.number) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.shared.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_leaves_places_for_others_and_root_has_some_of_its_own() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = || TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut open = OpenConnections::default();
        let mut fill = |origin: Origin| {
            let mut count = 0;
            while open.has_place(origin, 64) {
                open.last += 1;
                open.streams.insert(open.last, (stream(), origin));
                count += 1;
            }
            count
        };
        let others = [1001, 1002, 1003].map(|uid| fill(Origin::User(uid)));
        assert_eq!(others, [16, 16, 16]);
        assert_eq!(fill(Origin::Unproven([127, 0, 0, 9].into())), 12);
        assert_eq!(fill(Origin::User(1004)), 0);
        assert_eq!(fill(Origin::User(0)), 4);
        assert!(!open.has_place(Origin::User(0), 64));
        assert!(open.has_place(Origin::User(1001), usize::MAX), "no limit of its own");
    }
}
