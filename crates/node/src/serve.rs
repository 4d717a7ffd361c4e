//! The running server: listeners, one thread a connection, one that flushes.
//!
//! Guarantees: there are at most `connections_max` connections, shared out among users. A peer that sends garbage or
//! half a frame, or does not read, receives the reason and is disconnected; other peers lose nothing. A peer that does
//! not prove its identity has a few KiB and 10 s. Stopping flushes everything.
//! Leaves to others: the meaning of a request (`parts`), bytes on sockets (`net`).
//!
//! Threads block on sockets instead of sharing a reactor: one context switch less for each small request, and payload
//! goes from the socket to the page cache through one cache-hot buffer (ADR 0003 has the measurements).

mod another;
mod asker;
mod copied;
mod joining;
mod links;
mod loops;
mod metrics;
mod pieces;
mod proving;
mod together;
mod traffic;
mod turns;
mod within;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use frieze_base::{ChainEpoch, Fault, NodeId, Reason};
use frieze_disk::{FileDisk, FileDiskSettings, MachineTime};
use frieze_locks::{Mutex, MutexGuard, levels};
use frieze_metadata::LsmStore;
use frieze_net::{
    Admission, BufferPool, FramePayload, FrameReader, FrameWriter, InProcess, Key, Limits, Listener, LogThrottle,
    Origin, Proof, ReceivedPayload, Seat, ServerAddr, Stream, kernel_proof, random_nonce, user_of,
};
use frieze_planes::{KeySettings, Settings};
use frieze_service::{Conn, KeyRight, Responder, Scratch, Steps, class_of, machine_bytes};
use frieze_storage::{Identity, NodeClock, Wake};
use frieze_wire::frame::{FrameHeader, FrameKind};
use frieze_wire::message::{Refusal, Reply, ReplyBody, RequestBody};
use frieze_wire::peer::{PeerBody, ServerMessage};
use prost::Message;
use tracing::{debug, error, info, warn};

use self::links::Links;
use self::metrics::Door;
use self::pieces::{Pieces, Trouble};
use self::proving::Proving;
use self::traffic::Traffic;
use self::turns::{LINGER, Place, Turns};
use crate::directory;
use crate::offline::{STORE_DIRECTORY, boot_id};
use crate::parts::{ProcessStats, Seams, ServerParts};

/// Stack of a connection's thread: the deepest request (a listing of the past) uses a quarter of it.
const STACK_BYTES: usize = 512 << 10;
/// Interval of the upkeep of clocks and sessions.
const TEND_EVERY_NS: u64 = 500_000_000;
/// Interval of the upkeep of chains with several members: a closed timestamp may be so late for a reader of recent
/// bytes.
const PULSE_EVERY: Duration = Duration::from_millis(20);
/// Socket within the data directory.
const SOCKET: &str = "socket";
/// Payload buffer of a connection that sends no payload.
const IDLE_BUFFER_BYTES: usize = 64 << 10;
/// From this size on, a payload that may be forwarded is received into a buffer of its own; smaller ones are copied.
const SHARED_BYTES_MIN: usize = 64 << 10;
/// After so many requests without a payload a connection counts as sending none: a client that writes one file after
/// the other sends a few between two writes, and a large buffer that is allocated again costs a fault for each of its
/// pages.
const IDLE_REQUESTS: u64 = 16;

/// Limits of a connection on which another server sends: it is never silent for long.
const LISTENING: Limits = Limits { idle: Some(links::SILENT_MAX), frame: Duration::from_secs(10) };

/// A running server.
pub struct Server {
    shared: Arc<Shared>,
    listeners: Vec<Arc<Listener>>,
    /// Listeners of the settings; a client learns of the others over a connection to one of these.
    offered: usize,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    parts: ServerParts,
    wake: Arc<Wake>,
    /// Wakes the thread that reclaims space.
    rest: Arc<Wake>,
    /// Wakes the thread that scrubs.
    breath: Arc<Wake>,
    /// Wakes the thread that makes images.
    leisure: Arc<Wake>,
    /// Wakes the thread that looks after chains.
    pulse: Arc<Wake>,
    /// Wakes the thread that counts time for the metalog.
    beat: Arc<Wake>,
    /// Wakes the thread that renews the lease.
    tenancy: Arc<Wake>,
    /// Wakes the thread that requests decisions, while there are none to request.
    patience: Arc<Wake>,
    /// Connections to the other servers.
    links: OnceLock<Arc<Links>>,
    /// Messages on these connections and on those of the other servers.
    traffic: Arc<Traffic>,
    /// Buffers of payloads that are forwarded.
    pool: Arc<BufferPool>,
    /// Admission of large replies.
    turns: Arc<Turns>,
    /// Address of the metrics page.
    door: Option<Arc<Door>>,
    stopping: AtomicBool,
    connections: Arc<AtomicU64>,
    /// Seats for connections, of this gateway and of the others of the process.
    admission: Admission,
    /// Connections that could not be accepted.
    missed: LogThrottle,
    open: Mutex<levels::OpenConnections, BTreeMap<u64, Open>>,
    next_connection: AtomicU64,
    /// Requests from this process that are being answered.
    asking: AtomicU64,
}

impl Server {
    /// Opens the data directory, recovers it, and serves on every address of the settings. Ready when it returns.
    ///
    /// # Errors
    /// What is wrong with settings, directory or addresses, and what to do.
    pub fn start(settings: Settings) -> Result<Server, Fault> {
        settings.validate()?;
        let settings = settings.with_memory_divided(machine_bytes())?;
        let addresses = addresses(&settings)?;
        let keys = keys(&settings.keys)?;
        let door = Door::open(&settings.metrics)?.map(Arc::new);
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
        directory::make_private(&directory)?;
        copied::check(&disk, &directory)?;
        let store = LsmStore::open(&directory.join(STORE_DIRECTORY), settings.memory(0)?.store)?;
        let wake = Arc::new(Wake::default());
        let waker = wake.clone();
        let connections = Arc::new(AtomicU64::new(0));
        let counted = connections.clone();
        let disk = Arc::new(disk);
        let seams = Seams {
            disk: disk.clone(),
            time: Arc::new(MachineTime::new()),
            store: Box::new(store),
            boot: boot_id(),
            entropy: entropy()?,
            wake: Box::new(move || waker.wake()),
            process: Box::new(move || process_stats(counted.load(Ordering::Relaxed))),
            keys,
            owner: user_of(rustix::process::getuid().as_raw())?,
        };
        let admission = Admission::new(settings.connections_max as usize);
        // A new node sends its address to the other servers before it is one of them.
        let early = !settings.join.is_empty() && Identity::load(&*disk)?.is_none();
        let mut listeners = if early { listen(&addresses)? } else { Vec::new() };
        let parts = together::open(settings, seams, listeners.first().map(|first| &**first))?;
        copied::note(&disk, &parts)?;
        for note in parts.notes() {
            warn!("{note}");
        }
        let wait_us = parts.restart_wait_us();
        if wait_us > 0 {
            info!("waiting {} ms until the clock has passed every stamp given before", wait_us / 1000);
            // Nothing else runs yet, and only the passing of time can end the wait.
            wake.wait(Duration::from_micros(wait_us));
        }
        if !early {
            listeners = listen(&addresses)?;
        }
        if let Some(first) = listeners.first() {
            // Called once, at the start.
            let _ = parts.listens_at.set(first.addr().to_string());
        }
        let offered = listeners.len();
        listeners.extend(listen_nearby(&parts, &directory));
        let shared = Arc::new(Shared {
            parts,
            wake,
            rest: Arc::default(),
            breath: Arc::default(),
            leisure: Arc::default(),
            pulse: Arc::default(),
            beat: Arc::default(),
            tenancy: Arc::default(),
            patience: Arc::default(),
            links: OnceLock::new(),
            traffic: Arc::default(),
            pool: Arc::default(),
            turns: Arc::new(Turns::new()),
            door,
            stopping: AtomicBool::new(false),
            connections,
            admission,
            missed: LogThrottle::default(),
            open: Mutex::default(),
            next_connection: AtomicU64::new(1),
            asking: AtomicU64::new(0),
        });
        let mut threads = vec![spawn("flush", {
            let shared = shared.clone();
            move || loops::flush(&shared)
        })?];
        threads.push(spawn("journal", {
            let shared = shared.clone();
            move || loops::journal(&shared)
        })?);
        threads.push(spawn("beat", {
            let shared = shared.clone();
            move || {
                while !shared.stopping.load(Ordering::Acquire) {
                    let next = shared.parts.beat();
                    shared.beat.wait(next.unwrap_or(Duration::from_nanos(TEND_EVERY_NS)));
                }
            }
        })?);
        threads.push(spawn("stock", {
            let shared = shared.clone();
            move || {
                while !shared.stopping.load(Ordering::Acquire) {
                    shared.parts.stock(Duration::from_nanos(TEND_EVERY_NS));
                }
            }
        })?);
        threads.push(spawn("chains", {
            let shared = shared.clone();
            move || {
                while !shared.stopping.load(Ordering::Acquire) {
                    let alone = !shared.parts.planes.is_in_chains();
                    shared.pulse.wait(if alone { Duration::from_nanos(TEND_EVERY_NS) } else { PULSE_EVERY });
                    shared.parts.tick_chains();
                }
            }
        })?);
        threads.extend(together::begin(&shared)?);
        threads.push(spawn("reclaim", {
            let shared = shared.clone();
            move || loops::reclaim(&shared)
        })?);
        threads.push(spawn("scrub", {
            let shared = shared.clone();
            move || loops::scrub(&shared)
        })?);
        threads.push(spawn("image", {
            let shared = shared.clone();
            move || loops::image(&shared)
        })?);
        if let Some(door) = shared.door.clone() {
            let shared = shared.clone();
            threads.push(spawn("metrics", move || metrics::open_loop(&shared, &door))?);
        }
        for listener in &listeners {
            let (shared, listener) = (shared.clone(), listener.clone());
            threads.push(spawn("accept", move || accept_loop(&shared, &listener))?);
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
        Arc::new(within::Here::new(&self.shared))
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
        self.shared.door.as_ref().map(|door| door.address().to_string())
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
        if let Some(door) = &self.shared.door {
            door.stop();
        }
        for open in self.shared.open.lock().values() {
            open.stream.shutdown();
        }
        self.shared.wake.wake();
        self.shared.rest.wake();
        self.shared.breath.wake();
        self.shared.leisure.wake();
        self.shared.pulse.wake();
        self.shared.beat.wake();
        self.shared.tenancy.wake();
        self.shared.patience.wake();
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
        let is_answering = || self.shared.door.as_ref().is_some_and(|door| door.is_answering());
        let is_asked = || self.shared.asking.load(Ordering::Acquire) > 0;
        while self.shared.connections.load(Ordering::Acquire) > 0 || is_answering() || is_asked() {
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

/// Every thread of the server is spawned here.
fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Fault> {
    std::thread::Builder::new()
        .name(format!("frieze-{name}"))
        .stack_size(STACK_BYTES)
        .spawn(run)
        .map_err(|error| Fault::new(Reason::Overloaded, format!("the system has no more threads to give: {error}")))
}

fn accept_loop(shared: &Arc<Shared>, listener: &Listener) {
    loop {
        match listener.accept() {
            Ok(Some(stream)) => admit(shared, stream),
            Ok(None) => return,
            Err(fault) => {
                if let Some(count) = shared.missed.happened() {
                    warn!(count, "cannot take a connection: {fault}");
                }
                // Out of descriptors: some are closed when connections end, which takes at least this long.
                shared.wake.wait(Duration::from_millis(10));
            }
        }
    }
}

fn admit(shared: &Arc<Shared>, stream: Stream) {
    let proof = kernel_proof(&stream).unwrap_or_else(|fault| {
        debug!("cannot ask the kernel who {} is: {fault}", stream.peer());
        Proof::Unproven
    });
    let seat = match shared.admission.enter(Origin::of(proof, stream.peer_ip())) {
        Ok(seat) => seat,
        Err(refused) => return refuse(&stream, Fault::new(Reason::Overloaded, refused.to_string())),
    };
    let proven = match proof {
        Proof::User(uid) => user_of(uid).ok(),
        Proof::Unproven => None,
    };
    let conn = match random_nonce() {
        Ok(challenge) => Arc::new(Conn::new(proven, challenge)),
        Err(fault) => return refuse(&stream, fault.into()),
    };
    shared.connections.fetch_add(1, Ordering::AcqRel);
    let id = shared.next_connection.fetch_add(1, Ordering::Relaxed);
    let open = Open { stream: stream.clone(), conn: conn.clone() };
    shared.open.lock().insert(id, open);
    let for_thread = shared.clone();
    let served = stream.clone();
    let spawned = spawn("conn", move || {
        let gone = Gone { shared: for_thread, id };
        serve(&gone.shared, &served, &conn, seat);
    });
    if let Err(fault) = spawned {
        drop(Gone { shared: shared.clone(), id });
        refuse(&stream, fault);
    }
}

/// An open connection, and the identity of its peer as far as it is known.
struct Open {
    stream: Stream,
    conn: Arc<Conn>,
}

/// Unregisters a connection, however its thread ends.
struct Gone {
    shared: Arc<Shared>,
    id: u64,
}

impl Drop for Gone {
    fn drop(&mut self) {
        self.shared.open.lock().remove(&self.id);
        self.shared.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Sends the peer the reason why its connection ends, if it still reads, and closes the connection.
fn refuse(stream: &Stream, fault: Fault) {
    let body = Refusal::from(fault).encode_to_vec();
    let writer = FrameWriter::new(stream.clone(), Limits::HANDSHAKE);
    if writer.post(FrameHeader::of(FrameKind::Refusal), &body).is_err() {
        debug!("{} was gone before it could be refused", stream.peer());
    }
    stream.shutdown();
}

/// Replies of one connection.
struct Answers {
    writer: FrameWriter,
    clock: Arc<NodeClock>,
    epoch: ChainEpoch,
    turns: Arc<Turns>,
    place: Mutex<levels::ReadPlace, Place>,
}

impl Answers {
    #[track_caller]
    fn place(&self) -> MutexGuard<'_, Place> {
        self.place.lock()
    }

    fn header(&self, request: &FrameHeader, kind: FrameKind) -> FrameHeader {
        header_of_answer(request, kind, self.epoch, &self.clock)
    }
}

/// Header of the reply to `request`.
fn header_of_answer(request: &FrameHeader, kind: FrameKind, epoch: ChainEpoch, clock: &NodeClock) -> FrameHeader {
    FrameHeader {
        request_id: request.request_id,
        session: request.session,
        seq: request.seq,
        epoch,
        hlc: clock.newest(),
        // Duration of the cache lease, which the parts put in place of the request for one.
        holds: request.holds,
        ..FrameHeader::of(kind)
    }
}

impl Responder for Answers {
    fn respond(&self, request: &FrameHeader, result: Result<Reply, Fault>, payload: &[u8], payload_crc: u32) {
        let (kind, body) = match result {
            Ok(reply) => (FrameKind::Reply, ReplyBody { reply: Some(reply) }.encode_to_vec()),
            Err(fault) => (FrameKind::Refusal, Refusal::from(fault).encode_to_vec()),
        };
        let header = self.header(request, kind);
        let sent = if payload.is_empty() {
            self.writer.post(header, &body)
        } else {
            // The send may block until the reader reads. A large reply that is under way belongs to another thread.
            if let Some(mut place) = self.place.try_lock() {
                place.let_go();
            }
            self.writer.send(header, &body, FramePayload::Checked { pieces: &[payload], crc: payload_crc })
        };
        if let Err(fault) = sent {
            debug!("an answer was not delivered: {fault}");
        }
    }

    fn respond_in_steps(&self, request: &FrameHeader, mut reply: Reply, steps: &mut Steps<'_>) {
        if let Reply::Read(read) = &mut reply {
            read.crc_behind = true;
        }
        let body = ReplyBody { reply: Some(reply) }.encode_to_vec();
        let header = self.header(request, FrameKind::Reply);
        let mut place = self.place();
        let turn = RefCell::new(self.turns.take(&mut place, steps.len));
        steps.exchange_buffer(&mut turn.borrow_mut().buffer);
        let stalled = || turn.borrow_mut().give_up();
        let sent = self.writer.send_in_steps(header, &body, steps.len, &stalled, |step| {
            steps.hand_on(&mut |part, crc| {
                step(part, crc)?;
                if crc.is_none() {
                    turn.borrow_mut().retake();
                }
                Ok(())
            })
        });
        steps.exchange_buffer(&mut turn.borrow_mut().buffer);
        place.keep(turn.into_inner());
        if let Err(fault) = sent {
            debug!("an answer was not delivered whole: {fault}");
        }
    }
}

fn serve(shared: &Shared, stream: &Stream, conn: &Conn, seat: Seat) {
    match converse(shared, stream, conn, seat) {
        Ok(()) => {}
        Err(fault @ (frieze_net::Error::Frame { .. } | frieze_net::Error::Checksum { .. })) => {
            debug!("{} is closed: {fault}", stream.peer());
            refuse(stream, fault.into());
        }
        Err(fault) => debug!("{} is closed: {fault}", stream.peer()),
    }
    stream.shutdown();
    shared.parts.service.sessions.disconnected(conn);
    if let Some(node) = conn.node().filter(|_| !shared.stopping.load(Ordering::Acquire)) {
        shared.parts.hung_up(node);
    }
}

/// When a conversation ends, held replies are flushed, and its turn goes to the next reader.
struct Held {
    writer: FrameWriter,
    answers: Arc<Answers>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.answers.place().let_go();
        if let Err(fault) = self.writer.release() {
            debug!("answers were not delivered: {fault}");
        }
    }
}

fn converse(shared: &Shared, stream: &Stream, conn: &Conn, mut seat: Seat) -> Result<(), frieze_net::Error> {
    let mut reader = FrameReader::guarded(stream.clone(), Limits::HANDSHAKE)?;
    let writer = FrameWriter::new(stream.clone(), Limits::SERVING);
    let answers = Arc::new(Answers {
        writer: writer.clone(),
        clock: shared.parts.planes.clock.clone(),
        epoch: shared.parts.planes.data.epoch(),
        turns: shared.turns.clone(),
        place: Mutex::default(),
    });
    let responder: Arc<dyn Responder> = answers.clone();
    let held = Held { writer, answers };
    let (mut body, mut payload) = (Vec::new(), Vec::new());
    let mut pieces = Pieces::default();
    let mut scratch = Scratch::default();
    let mut proving = Some(Proving::new());
    let (mut is_told, mut plain) = (false, 0u64);
    let mut looked = frieze_net::mono();
    loop {
        if let Some(proving) = &proving {
            let Some(limits) = proving.limits() else {
                refuse(
                    stream,
                    Fault::new(Reason::Unproven, "nothing has proven whose the connection is: it is closed"),
                );
                return Ok(());
            };
            reader.set_limits(limits);
        }
        let at_rest = || {
            payload = Vec::new();
            scratch.rest();
            held.writer.rest();
        };
        let Some(header) = reader.read_frame_or_rest(&mut body, at_rest)? else { return Ok(()) };
        if let (FrameKind::Peer, Some(node)) = (header.kind, conn.node()) {
            if !std::mem::replace(&mut is_told, true) {
                reader.set_limits(LISTENING);
                if let Some(links) = shared.links.get() {
                    links.heard(node);
                }
            }
            match take_told(shared, node, &header, &body, &mut reader, &mut pieces, &mut payload) {
                Ok(()) => {}
                Err(Trouble::Connection(error)) => return Err(error),
                Err(Trouble::Malformed(fault)) => {
                    warn!("node {node} is not listened to any more: {fault}");
                    refuse(stream, fault);
                    return Ok(());
                }
            }
            if shared.stopping.load(Ordering::Acquire) {
                return Ok(());
            }
            // A removed server connects again, and receives the reason why its messages are refused.
            if frieze_net::mono().since_ns(looked) > TEND_EVERY_NS {
                looked = frieze_net::mono();
                if let Err(fault) = shared.parts.check_is_node(node) {
                    info!("node {node} is not listened to any more: {fault}");
                    refuse(stream, fault);
                    return Ok(());
                }
            }
            continue;
        }
        let request = RequestBody::decode(body.as_slice());
        let len = header.payload_len as usize;
        let whole;
        let brought: ReceivedPayload<'_> = if len >= SHARED_BYTES_MIN && shared.parts.planes.is_in_chains() {
            // The payload may be forwarded, or sent again, when the next is received.
            let asked = request.as_ref().ok().and_then(|body| body.request.as_ref());
            let goes_to = pieces::goes_to(shared, &header, asked, len);
            whole = pieces::receive(shared, &mut reader, len, goes_to)?;
            whole.brought()
        } else {
            receive_small(&mut reader, len, &mut payload)?
        };
        if header.kind != FrameKind::Request {
            let fault = Fault::new(Reason::BadFrame, "malformed frame: a client sends requests, nothing else");
            responder.respond(&header, Err(fault), &[], 0);
            return Ok(());
        }
        // Replies to requests that arrived together are sent together.
        if reader.has_frame() {
            held.writer.hold();
        }
        match request {
            Ok(request) => {
                if !request.request.as_ref().is_some_and(|request| class_of(&header, request).may_stream) {
                    // It may wait for something else.
                    held.answers.place().let_go();
                }
                let timed = shared.door.as_ref().map(|door| door.timed(request.request.as_ref(), &responder));
                let responder = timed.as_ref().unwrap_or(&responder);
                shared.parts.handle(conn, &header, request, brought, responder, &mut scratch);
            }
            Err(error) => {
                let fault = Fault::new(Reason::BadFrame, format!("malformed frame: the body is no request: {error}"));
                responder.respond(&header, Err(fault), &[], 0);
            }
        }
        if !reader.has_frame() {
            held.writer.release()?;
        }
        let stays = held.answers.place().has_turn() && !shared.parts.planes.is_in_chains();
        if !(stays && reader.await_frame(LINGER)? && reader.has_frame()) {
            held.answers.place().let_go();
        }
        if let Some(unproven) = &mut proving {
            unproven.asked();
            if let Some(origin) = conn.origin() {
                if let Err(refused) = seat.belongs_to(origin) {
                    refuse(stream, Fault::new(Reason::Overloaded, refused.to_string()));
                    return Ok(());
                }
                reader.admit(Limits::SERVING);
                proving = None;
            }
        }
        if shared.stopping.load(Ordering::Acquire) {
            return Ok(());
        }
        plain = if header.payload_len > 0 { 0 } else { plain + 1 };
        if plain == IDLE_REQUESTS && payload.capacity() > IDLE_BUFFER_BYTES {
            payload = Vec::new();
        }
    }
}

/// A payload in a buffer that the next frame overwrites.
fn receive_small<'a>(
    reader: &mut FrameReader,
    len: usize,
    payload: &'a mut Vec<u8>,
) -> Result<ReceivedPayload<'a>, frieze_net::Error> {
    Ok(if len > 0 { (&*reader.read_payload_unchecked(payload)?).into() } else { [][..].into() })
}

/// Handles one message of a server. If it cannot be processed now it is dropped (the server sends it again); a
/// malformed message closes the connection.
fn take_told(
    shared: &Shared,
    node: NodeId,
    header: &FrameHeader,
    body: &[u8],
    reader: &mut FrameReader,
    pieces: &mut Pieces,
    payload: &mut Vec<u8>,
) -> Result<(), Trouble> {
    let malformed = |what: String| Fault::new(Reason::BadFrame, format!("malformed frame: {what}"));
    let decoded = PeerBody::decode(body);
    let decoded = decoded.map_err(|error| Trouble::Malformed(malformed(format!("the body is no message: {error}"))))?;
    // A message that only a newer server knows is optional: it is ignored.
    let Some(told) = decoded.message else { return Ok(()) };
    let len = header.payload_len as usize;
    shared.traffic.received(&told, len + body.len());
    match &told {
        ServerMessage::ChainPiece(piece) => {
            let goes = |chain, len| pieces::next_of(shared, chain, len);
            pieces.take(&shared.pool, goes, reader, piece, len)
        }
        ServerMessage::ChainRecord(record) if record.ahead != 0 => {
            match pieces.finish(&shared.pool, reader, record, len)? {
                Some(whole) => {
                    let header = FrameHeader { payload_crc: record.crc, ..*header };
                    hand_on(shared, node, &header, told, whole.brought())
                }
                None => {
                    debug!("record {} of chain {} has come without its pieces: it is lost", record.n, record.chain);
                    Ok(())
                }
            }
        }
        _ if len >= SHARED_BYTES_MIN => {
            let whole = pieces::receive(shared, reader, len, None)?;
            hand_on(shared, node, header, told, whole.brought())
        }
        _ => hand_on(shared, node, header, told, receive_small(reader, len, payload)?),
    }
}

fn hand_on(
    shared: &Shared,
    node: NodeId,
    header: &FrameHeader,
    told: ServerMessage,
    payload: ReceivedPayload<'_>,
) -> Result<(), Trouble> {
    match shared.parts.told(node, header, told, payload) {
        Err(fault) if fault.reason == Reason::BadFrame => Err(Trouble::Malformed(fault)),
        Err(fault) => {
            debug!("what node {node} told is lost: {fault}");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// A socket in the data directory, for clients on this machine that connected over TCP. If it cannot be made (a
/// directory with a long name, a file system without sockets), clients stay on TCP and the server serves.
fn listen_nearby(parts: &ServerParts, directory: &Path) -> Option<Arc<Listener>> {
    let path = std::path::absolute(directory).ok()?.join(SOCKET);
    match Listener::bind(&ServerAddr::Unix(path.clone())) {
        Ok(listener) => {
            // Called once, at the start.
            let _ = parts.socket.set(path.to_str()?.to_owned());
            Some(Arc::new(listener))
        }
        Err(fault) => {
            info!("clients on this machine go on over TCP: {fault}");
            None
        }
    }
}

fn listen(addresses: &[ServerAddr]) -> Result<Vec<Arc<Listener>>, Fault> {
    addresses.iter().map(|address| Ok(Arc::new(Listener::bind(address)?))).collect()
}

fn addresses(settings: &Settings) -> Result<Vec<ServerAddr>, Fault> {
    settings.listen.iter().map(|text| text.parse::<ServerAddr>().map_err(Fault::from)).collect()
}

fn keys(settings: &[KeySettings]) -> Result<BTreeMap<String, KeyRight>, Fault> {
    let mut keys = BTreeMap::new();
    for entry in settings {
        let key = Key::new(entry.name.clone(), entry.secret.clone().into_bytes())?;
        let uid = match entry.user.parse() {
            Ok(uid) => uid,
            Err(_) => uid_of(&entry.user)?,
        };
        let right = KeyRight { key, caller: user_of(uid)?, may_impersonate: entry.may_impersonate };
        if keys.insert(entry.name.clone(), right).is_some() {
            return Err(Fault::new(Reason::InvalidArgument, format!("two keys are named {}", entry.name)));
        }
    }
    Ok(keys)
}

fn uid_of(name: &str) -> Result<u32, Fault> {
    let wrong = |why: String| Fault::new(Reason::InvalidArgument, format!("a key belongs to user {name:?}: {why}"));
    match nix::unistd::User::from_name(name) {
        Ok(Some(user)) => Ok(user.uid.as_raw()),
        Ok(None) => Err(wrong("this machine has no such user".to_owned())),
        Err(error) => Err(wrong(format!("the user database cannot be read: {error}"))),
    }
}

fn entropy() -> Result<[u8; 64], Fault> {
    let mut bytes = [0u8; 64];
    bytes[..32].copy_from_slice(&random_nonce()?);
    bytes[32..].copy_from_slice(&random_nonce()?);
    Ok(bytes)
}

/// Resource usage of this process as the kernel reports it.
fn process_stats(connections: u64) -> ProcessStats {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = |field: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(field)?.trim().trim_end_matches(" kB").parse::<u64>().ok())
            .unwrap_or(0)
    };
    let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    ProcessStats {
        resident_bytes: kib("VmRSS:") << 10,
        resident_bytes_peak: kib("VmHWM:") << 10,
        cpu_ns: cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64,
        connections,
    }
}
