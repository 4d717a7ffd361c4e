//! The running server: listeners, one thread a connection, one that flushes.
//!
//! Guarantees: there are at most `connections_max` connections, shared out among users. A peer that sends garbage or
//! half a frame, or does not read, receives the reason and is disconnected; other peers lose nothing. A peer that does
//! not prove its identity has a few KiB and 10 s. Stopping flushes everything.
//! Leaves to others: the meaning of a request (`parts`), bytes on sockets (`net`).
//!
//! Threads block on sockets instead of sharing a reactor: one context switch less for each small request, and payload
//! goes from the socket to the page cache through one cache-hot buffer (ADR 0003 has the measurements).

mod accept;
mod cluster_threads;
mod connection;
mod copy_check;
mod handshake;
mod in_process;
mod join;
mod join_check;
mod landing;
mod links;
mod machine;
mod metrics;
mod partial_payloads;
mod replies;
mod shared;
mod spans;
mod threads;
mod traffic;
mod upkeep_threads;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use frieze_base::{Fault, NodeId, Reason};
use frieze_disk::{FileDisk, FileDiskSettings, MachineTime};
use frieze_locks::Mutex;
use frieze_metadata::{LsmStore, STORE_DIRECTORY, check_store};
use frieze_net::{Admission, InProcess, Listener, LogThrottle, ServerAddr, user_of};
use frieze_planes::Settings;
use frieze_service::machine_bytes;
use frieze_storage::Identity;
use tracing::{error, info, warn};

use self::in_process::InProcessServer;
use self::metrics::MetricsPage;
use self::shared::{Shared, Wakes};
use self::spans::RequestSpans;
use self::threads::spawn;
use crate::directory;
use crate::offline::boot_id;
use crate::parts::{Seams, ServerParts};

/// A running server.
pub struct Server {
    shared: Arc<Shared>,
    listeners: Vec<Arc<Listener>>,
    /// Listeners of the settings; a client learns of the others over a connection to one of these.
    offered: usize,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Opens the data directory, recovers it, and serves on every address of the settings. Ready when it returns.
    ///
    /// # Errors
    /// What is wrong with settings, directory or addresses, and what to do.
    pub fn start(settings: Settings) -> Result<Server, Fault> {
        settings.validate()?;
        let settings = settings.with_memory_divided(machine_bytes())?;
        let addresses = machine::addresses(&settings)?;
        let keys = machine::keys(&settings.keys)?;
        let metrics = MetricsPage::open(&settings.metrics)?.map(Arc::new);
        if let Some(open) = addresses.iter().find(|address| !address.is_loopback())
            && keys.is_empty()
        {
            return Err(Fault::new(
                Reason::InvalidArgument,
                format!(
                    "refusing to listen on {open}: beyond this machine the kernel cannot prove callers; configure at \
                     least one [[keys]] entry, or listen on 127.0.0.1"
                ),
            ));
        }
        let directory = settings.dir.clone();
        let capacity_bytes_max = (settings.capacity_bytes_max > 0).then_some(settings.capacity_bytes_max);
        directory::check(&directory)?;
        let disk = FileDisk::open(&directory, FileDiskSettings { capacity_bytes_max })?;
        // Before anything is made: a start that is refused leaves the directory as it was.
        check_store(&disk, &directory)?;
        copy_check::check(&disk, &directory)?;
        directory::make_private(&directory)?;
        let store = LsmStore::open(&directory.join(STORE_DIRECTORY), settings.memory(0)?.store)?;
        let wakes = Wakes::default();
        let wake = wakes.flush.clone();
        let connections = Arc::new(AtomicU64::new(0));
        let counted = connections.clone();
        let disk = Arc::new(disk);
        let seams = Seams {
            disk: disk.clone(),
            time: Arc::new(MachineTime::new()),
            store: Box::new(store),
            boot: boot_id(),
            entropy: machine::entropy()?,
            wake: Box::new(move || wake.wake()),
            process: Box::new(move || machine::process_stats(counted.load(Ordering::Relaxed))),
            keys,
            owner: user_of(rustix::process::getuid().as_raw())?,
        };
        let admission = Admission::new(settings.connections_max as usize);
        // A new node sends its address to the other servers before it is one of them.
        let early = !settings.join.is_empty() && Identity::load(&*disk)?.is_none();
        let mut listeners = if early { machine::listen(&addresses)? } else { Vec::new() };
        let parts = cluster_threads::open(settings, seams, listeners.first().map(|first| &**first))?;
        copy_check::note(&disk, &parts)?;
        for note in parts.notes() {
            warn!("{note}");
        }
        // Only the passing of time ends the wait: recovery may have woken the flusher, which does not run yet.
        while let wait_us @ 1.. = parts.restart_wait_us() {
            info!("waiting {} ms until the clock has passed every stamp given before", wait_us.div_ceil(1000));
            wakes.flush.wait(Duration::from_micros(wait_us));
        }
        if !early {
            listeners = machine::listen(&addresses)?;
        }
        if let Some(first) = listeners.first() {
            // Called once, at the start.
            let _ = parts.listens_at.set(first.addr().to_string());
        }
        let offered = listeners.len();
        listeners.extend(machine::listen_nearby(&parts, &directory));
        // Called once, at the start.
        machine::fabric(&parts.planes.settings).into_iter().for_each(|fabric| drop(parts.fabric.set(fabric)));
        let shared = Arc::new(Shared {
            parts,
            wakes,
            links: OnceLock::new(),
            traffic: Arc::default(),
            pool: Arc::default(),
            slots: Arc::default(),
            metrics,
            spans: RequestSpans::of_process(),
            stopping: AtomicBool::new(false),
            connections,
            admission,
            missed: LogThrottle::default(),
            open: Mutex::default(),
            next_connection: AtomicU64::new(1),
            requests_under_way: AtomicU64::new(0),
        });
        let mut threads = Vec::new();
        for (name, run) in upkeep_threads::ALL {
            let shared = shared.clone();
            threads.push(spawn(name, move || run(&shared))?);
        }
        threads.extend(cluster_threads::begin(&shared)?);
        if let Some(page) = shared.metrics.clone() {
            let shared = shared.clone();
            threads.push(spawn("metrics", move || accept::accept_scrapes(&shared, &page))?);
        }
        for listener in &listeners {
            let (shared, listener) = (shared.clone(), listener.clone());
            threads.push(spawn("accept", move || accept::accept_clients(&shared, &listener))?);
        }
        Ok(Server { shared, listeners, offered, threads })
    }

    /// Addresses of the listeners, with the ports that were chosen.
    pub fn addresses(&self) -> Vec<String> {
        self.listeners[..self.offered].iter().map(|listener| listener.addr().to_string()).collect()
    }

    /// Address for clients in this process: the server's own socket, else the first address.
    pub fn nearby(&self) -> ServerAddr {
        self.listeners.get(self.offered).unwrap_or(&self.listeners[0]).addr().clone()
    }

    /// Address at which other servers and clients reach it.
    pub fn home(&self) -> ServerAddr {
        let parts = &self.shared.parts;
        let known = parts.planes.settings.reached_at(parts.listens_at.get().map(String::as_str)).ok();
        known.and_then(|text| text.parse().ok()).unwrap_or_else(|| self.nearby())
    }

    /// The server for a gateway in this process: requests without a socket, answered on the calling thread.
    pub fn in_process(&self) -> Arc<dyn InProcess> {
        Arc::new(InProcessServer::new(&self.shared))
    }

    /// Seats for connections, for a gateway in this process: a user with many at one gateway has few at the others.
    pub fn admission(&self) -> Admission {
        self.shared.admission.clone()
    }

    /// Number of this server in the cluster.
    pub fn node(&self) -> NodeId {
        self.shared.parts.planes.keeper.with(|identity| identity.node_id())
    }

    /// A secret that the servers of the cluster have and no other program: for data that a gateway of one server signs
    /// and a gateway of another verifies. `purpose` separates such secrets from each other.
    pub fn secret_for(&self, purpose: &str) -> [u8; 32] {
        self.shared.parts.planes.keeper.with(|identity| blake3::derive_key(purpose, &identity.key()))
    }

    /// Address of the metrics page, if there is one, with the port that was chosen.
    pub fn metrics_address(&self) -> Option<String> {
        self.shared.metrics.as_ref().map(|page| page.address().to_string())
    }

    /// Registers a callback that runs once if this server is removed from its cluster: from then on it answers no
    /// client and is to be stopped, and no other server may start on its directory.
    pub fn on_removal(&self, call: impl FnOnce(Fault) + Send + 'static) {
        self.shared.parts.removal.watch(Box::new(call));
    }

    /// The parts, for a process that embeds the server.
    pub fn parts(&self) -> &ServerParts {
        &self.shared.parts
    }

    /// Accepts no more requests, flushes everything, and ends.
    ///
    /// # Errors
    /// The disk's: what was not synced may be lost, and the next start recovers.
    pub fn stop(mut self) -> Result<(), Fault> {
        self.stop_threads();
        self.shared.parts.stop()
    }

    fn stop_threads(&mut self) {
        // Sent while there are connections to the other servers.
        self.shared.parts.resign();
        self.shared.stopping.store(true, Ordering::Release);
        for listener in &self.listeners {
            listener.stop();
        }
        if let Some(page) = &self.shared.metrics {
            page.stop();
        }
        for open in self.shared.open.lock().values() {
            open.stream.shutdown();
        }
        self.shared.wakes.wake_all();
        self.shared.parts.planes.changes.wake();
        self.shared.parts.stop_control();
        self.shared.parts.stop_journal();
        self.shared.parts.service.files.stop_answering();
        self.shared.parts.stop_stocking();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                error!("a server thread panicked");
            }
        }
        if let Some(links) = self.shared.links.get() {
            links.stop();
        }
        // A leader without any messages from other servers would wait for ever.
        self.shared.parts.end_waits();
        // Connection threads end by themselves now; they hold no lock across a request.
        let is_answering = || self.shared.metrics.as_ref().is_some_and(|page| page.is_answering());
        let is_called = || self.shared.requests_under_way.load(Ordering::Acquire) > 0;
        while self.shared.connections.load(Ordering::Acquire) > 0 || is_answering() || is_called() {
            std::thread::yield_now();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            self.stop_threads();
        }
    }
}
