//! A way to a server through this process, which can be slowed down: a network card of a given rate.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::stopwatch::Stopwatch;

/// Ends with the process.
pub(crate) struct Relay {
    address: String,
    shared: Arc<RelayState>,
}

struct RelayState {
    /// Where it leads.
    to: OnceLock<String>,
    /// Bytes a second from the server, all connections together; 0 for as many as there are.
    rate: AtomicU64,
    /// Since when, and what has passed since.
    passed: Mutex<Option<(Stopwatch, u64)>>,
}

impl Relay {
    /// One that leads nowhere yet.
    pub(crate) fn open() -> Result<Relay> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?.to_string();
        let shared = Arc::new(RelayState { to: OnceLock::new(), rate: AtomicU64::new(0), passed: Mutex::default() });
        let accepting = shared.clone();
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                // A connection from before it has a target, or while the server is away, is closed.
                let Some(to) = accepting.to.get() else { continue };
                let Ok(far) = TcpStream::connect(to) else { continue };
                if relay(&accepting, &near, &far).is_none() {
                    let _ = near.shutdown(Shutdown::Both);
                }
            }
        });
        Ok(Relay { address, shared })
    }

    /// Where it is.
    pub(crate) fn address(&self) -> String {
        self.address.clone()
    }

    /// From now on it leads to this server.
    pub(crate) fn lead_to(&self, server: &str) -> Result<()> {
        self.shared.to.set(server.to_owned()).ok().context("a relay leads to one server")
    }

    /// At most so many bytes a second from the server.
    pub(crate) fn limit(&self, bytes_per_s: Option<u64>) {
        self.shared.rate.store(bytes_per_s.unwrap_or(0), Ordering::Relaxed);
        *self.shared.passed.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Starts the two directions of a connection.
fn relay(shared: &Arc<RelayState>, near: &TcpStream, far: &TcpStream) -> Option<()> {
    near.set_nodelay(true).ok()?;
    far.set_nodelay(true).ok()?;
    let (mut up_from, mut up_to) = (near.try_clone().ok()?, far.try_clone().ok()?);
    let (mut down_from, mut down_to) = (far.try_clone().ok()?, near.try_clone().ok()?);
    let shared = shared.clone();
    thread::spawn(move || {
        pass(&mut up_from, &mut up_to, |_| {});
    });
    thread::spawn(move || {
        pass(&mut down_from, &mut down_to, |bytes| shared.wait_for(bytes));
    });
    Some(())
}

fn pass(from: &mut TcpStream, to: &mut TcpStream, wait_for: impl Fn(u64)) {
    let mut room = vec![0u8; PIECE_BYTES];
    while let Ok(len @ 1..) = from.read(&mut room) {
        wait_for(len as u64);
        if to.write_all(&room[..len]).is_err() {
            break;
        }
    }
    // The other end is closed already, or closes now.
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

impl RelayState {
    /// Waits until so many bytes more may have passed.
    fn wait_for(&self, bytes: u64) {
        let rate = self.rate.load(Ordering::Relaxed);
        if rate == 0 {
            return;
        }
        let due = {
            let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
            let (watch, so_far) = passed.get_or_insert_with(|| (Stopwatch::start(), 0));
            // Unused rate is not saved up, but for a moment.
            *so_far = (*so_far).max(((watch.seconds() - BURST_S).max(0.0) * rate as f64) as u64) + bytes;
            *so_far as f64 / rate as f64 - watch.seconds()
        };
        if due > 0.0 {
            thread::park_timeout(Duration::from_secs_f64(due));
        }
    }
}

/// Bytes passed on at once: a wait for them is short at any rate of interest.
const PIECE_BYTES: usize = 256 << 10;
/// For so long a server may be faster after it was slower.
const BURST_S: f64 = 0.05;
