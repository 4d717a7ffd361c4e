//! Listening sockets and the threads of connections.
//!
//! Guarantees: a connection has one of the places of the server ([`Admission`]), counted for the user that the kernel names, and no door
//! has more than [`ConnectionHandler::CONNECTIONS_MAX`]; closing a door ends every connection and waits until its thread has ended.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use frieze_client::{Admission, Origin, Proof, Seat, Seldom, tcp_proof};

use crate::error::Error;

/// Stack of a connection's thread.
const STACK_BYTES: usize = 512 << 10;

/// What a connection is for.
pub trait ConnectionHandler: Send + Sync + 'static {
    /// A name for threads.
    const NAME: &'static str;
    /// Connections at one time, whatever places the server has; a further one is closed at once, and its client tries again.
    const CONNECTIONS_MAX: usize = usize::MAX;

    /// Serves a connection until it ends.
    fn serve(&self, accepted: AcceptedConnection);

    /// The door closes: nobody is to be served any more.
    fn stop(&self) {}
}

/// A connection that is to be served.
#[derive(Debug)]
pub struct AcceptedConnection {
    /// It.
    pub stream: TcpStream,
    /// The other end.
    pub peer: SocketAddr,
    /// This end.
    pub local: SocketAddr,
    /// Whose it is.
    pub guest: Guest,
}

/// Whose a connection is, and the place that it has.
#[derive(Debug)]
pub struct Guest {
    /// As the kernel knows it.
    pub proof: Proof,
    seat: Seat,
}

impl Guest {
    /// It is known now that the connection is this user's.
    ///
    /// # Errors
    /// `ConnectionRefused` if he has as many as he may: it ends.
    pub fn belongs_to(&mut self, uid: u32) -> io::Result<()> {
        let refused = |refused| io::Error::new(io::ErrorKind::ConnectionRefused, refused);
        match self.proof {
            // Root speaks for others, and answers for what it opens.
            Proof::User(_) => Ok(()),
            Proof::Unproven => self.seat.belongs_to(Origin::User(uid)).map_err(refused),
        }
    }
}

/// Listens on an address.
pub(crate) fn bind(address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).map_err(|source| Error::Listen { address: address.to_string(), source })
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
    missed: Seldom,
    stopping: AtomicBool,
    open: Mutex<OpenConnections>,
    ended: Condvar,
}

#[derive(Default)]
struct OpenConnections {
    streams: BTreeMap<u64, TcpStream>,
    last: u64,
}

impl Acceptor {
    /// Serves whoever connects.
    ///
    /// # Errors
    /// `System`: there is no thread for it.
    pub fn start<S: ConnectionHandler>(
        listener: TcpListener,
        service: Arc<S>,
        admission: Admission,
    ) -> Result<Acceptor, Error> {
        let failed = |doing| move |source| Error::System { doing, source };
        let address = listener.local_addr().map_err(failed("ask for an address"))?;
        let (stopping, open, ended) = (AtomicBool::new(false), Mutex::default(), Condvar::new());
        let missed = Seldom::default();
        let shared = Arc::new(AcceptorState { listener, admission, missed, stopping, open, ended });
        let (for_thread, served) = (shared.clone(), service.clone());
        let thread = thread::Builder::new()
            .name(format!("{}-accept", S::NAME))
            .spawn(move || for_thread.accept_all(&served))
            .map_err(failed("start a thread"))?;
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
            tracing::error!("a thread of the HDFS door panicked");
        }
        let mut open = self.shared.open();
        open.streams.values().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
        (self.stop)();
        while !open.streams.is_empty() {
            open = self.shared.ended.wait(open).unwrap_or_else(PoisonError::into_inner);
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
                    // Out of descriptors or memory: as soon as a connection ends there may be some.
                    self.miss(format_args!("cannot take a connection of a Hadoop client: {error}"));
                    let open = self.open();
                    drop(self.ended.wait_timeout(open, std::time::Duration::from_millis(100)));
                }
            }
        }
    }

    /// Says now and then what keeps connections from being served.
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
        // What is turned away is logged there. Hadoop's clients try again.
        let Ok(seat) = self.admission.enter(Origin::of(proof, plain(peer.ip()))) else { return };
        // Answers are whole: they need not wait for more.
        let _ = stream.set_nodelay(true);
        // Blocks go out as fast as they are taken; a connection that has ended says so when it is read.
        let _ = frieze_client::send_unpaced(&stream);
        let Ok(kept) = stream.try_clone() else { return };
        let number = {
            let mut open = self.open();
            if open.streams.len() >= S::CONNECTIONS_MAX {
                let most = S::CONNECTIONS_MAX;
                return self.miss(format_args!("{most} clients are connected to {}: one more is turned away", S::NAME));
            }
            open.last += 1;
            let number = open.last;
            open.streams.insert(number, kept);
            number
        };
        let (ends, service) = (ConnectionEntry { shared: self.clone(), number }, service.clone());
        let thread = thread::Builder::new().name(S::NAME.to_owned()).stack_size(STACK_BYTES).spawn(move || {
            let ends = ends;
            service.serve(AcceptedConnection { stream, peer, local, guest: Guest { proof, seat } });
            drop(ends);
        });
        if let Err(error) = thread {
            self.miss(format_args!("cannot serve a Hadoop client: {error}"));
        }
    }

    fn open(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes a connection out of the list, however its thread ends.
struct ConnectionEntry {
    shared: Arc<AcceptorState>,
    number: u64,
}

impl Drop for ConnectionEntry {
    fn drop(&mut self) {
        if let Some(stream) = self.shared.open().streams.remove(&self.number) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.shared.ended.notify_all();
    }
}

/// An IPv4 address that came through an IPv6 socket, as what it is.
pub fn plain(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(ip, IpAddr::V4),
        v4 => v4,
    }
}
