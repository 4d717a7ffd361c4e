//! One simulated machine: a disk, a store, a clock, and the server that runs on them, or its remains.
//!
//! The server is built by the constructor that the real one uses; only disk, clock, store and randomness are replaced.
//! An answer after the device has stopped never leaves the machine: the process died in the middle of the call. So it
//! did if names that were not in memory could not be read: the call ends in a panic, and the device counts as stopped.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use frieze_base::{Fault, Rng, SegmentId};
use frieze_disk::{CrashKind, Disk, DiskFile, SimDisk, SimTime};
use frieze_hlc::Hlc;
use frieze_metalog::{MemberSettings, SegmentSource, read_batches};
use frieze_node::{Conn, LostNames, ProcessStats, Responder, Scratch, Seams, ServerParts, Settings};
use frieze_wire::frame::{FrameHeader, FrameKind};
use frieze_wire::message::{Hello, Reply, Request, RequestBody, Status, StatusReply};
use frieze_wire::txn::{Batch, Caller};
use prost::Message;

use crate::breakage::{self, DiskCorruption, ServerBreak};
use crate::exchange::{ConnId, MachineResponse};
use crate::store::SimStore;

/// The user that every simulated client is, and that owns the file system.
pub(crate) const USER: u32 = 1000;
/// A user without files.
pub(crate) const STRANGER: u32 = 2000;
/// The user with all rights.
pub(crate) const SUPERUSER: u32 = 0;

/// Progress of the server: the difference before and after a call shows what the call did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    /// Entries of the metalog.
    pub(crate) index: u64,
    /// Records of the device log.
    pub(crate) records: u64,
    /// Newest stamp.
    pub(crate) newest: Hlc,
    pub(crate) fenced: bool,
}

/// Parts of a machine.
#[derive(Clone, Debug)]
pub(crate) struct Hardware {
    pub(crate) seed: u64,
    pub(crate) settings: Settings,
    pub(crate) wall_us: u64,
    pub(crate) breakage: Option<ServerBreak>,
}

pub(crate) struct Machine {
    pub(crate) disk: SimDisk,
    pub(crate) time: SimTime,
    pub(crate) store: SimStore,
    hardware: Hardware,
    rng: Rng,
    boot: u64,
    engine: Option<ServerParts>,
    conns: BTreeMap<ConnId, MachineConn>,
    outbox: Arc<Mutex<Vec<MachineResponse>>>,
    woken: Arc<AtomicBool>,
    scratch: Scratch,
    probe: (Conn, Arc<Probe>, Arc<dyn Responder>),
}

/// A connection, and the server's state of it.
struct MachineConn {
    conn: Conn,
    responder: Arc<dyn Responder>,
    scratch: Scratch,
}

struct MachineResponder {
    conn: ConnId,
    disk: SimDisk,
    answers: Arc<Mutex<Vec<MachineResponse>>>,
}

impl Responder for MachineResponder {
    fn respond(&self, request: &FrameHeader, result: Result<Reply, Fault>, payload: &[u8], payload_crc: u32) {
        if self.disk.is_crashed() {
            return;
        }
        let (conn, header, payload) = (self.conn, *request, payload.to_vec());
        let answer = MachineResponse { conn, header, result, payload, payload_crc, hlc: Hlc::ZERO };
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).push(answer);
    }
}

/// Observer outside of the server: it receives answers even while the server is crashing.
#[derive(Default)]
struct Probe(Mutex<Option<Reply>>);

impl Responder for Probe {
    fn respond(&self, _: &FrameHeader, result: Result<Reply, Fault>, _: &[u8], _: u32) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = result.ok();
    }
}

impl Machine {
    /// A machine that is off, with an empty disk.
    pub(crate) fn new(hardware: Hardware) -> Machine {
        let mut rng = Rng::new(hardware.seed);
        let disk = SimDisk::new(rng.next());
        let store = SimStore::new(disk.clone(), rng.next(), hardware.breakage);
        let probe = Arc::new(Probe::default());
        Machine {
            time: SimTime::new(hardware.wall_us),
            store,
            disk,
            rng,
            boot: 1,
            engine: None,
            conns: BTreeMap::new(),
            outbox: Arc::default(),
            woken: Arc::default(),
            scratch: Scratch::default(),
            probe: (Conn::new(Some(Caller::root()), [0; 32]), probe.clone(), probe),
            hardware,
        }
    }

    /// Starts the server on the content of the disk.
    pub(crate) fn start(&mut self) -> Result<(), Fault> {
        assert!(self.engine.is_none(), "it runs already");
        let mut entropy = [0u8; 64];
        self.rng.fill(&mut entropy);
        let woken = self.woken.clone();
        let boot = match self.hardware.breakage {
            Some(ServerBreak::BootUnnoticed) => 1,
            _ => self.boot,
        };
        let disk: Arc<dyn Disk> = match self.hardware.breakage {
            Some(ServerBreak::SyncLies(prefix)) => {
                breakage::faulty_disk(self.disk.clone(), DiskCorruption::Syncs(prefix))
            }
            Some(ServerBreak::ColdNamesStale) => breakage::faulty_disk(self.disk.clone(), DiskCorruption::Pieces),
            Some(ServerBreak::HolesWander) => breakage::faulty_disk(self.disk.clone(), DiskCorruption::Holes),
            _ => Arc::new(self.disk.clone()),
        };
        let seams = Seams {
            disk,
            time: Arc::new(self.time.clone()),
            store: Box::new(self.store.clone()),
            boot: format!("boot {boot}"),
            entropy,
            wake: Box::new(move || woken.store(true, Ordering::Relaxed)),
            process: Box::new(ProcessStats::default),
            keys: BTreeMap::new(),
            owner: user(),
        };
        self.store.begin_start();
        let engine = ServerParts::open(self.hardware.settings.clone(), seams);
        self.store.end_start();
        let engine = engine?;
        if self.disk.is_crashed() {
            // It died while it was opening, in something whose failure it need not notice.
            return Err(frieze_base::Reason::InputOutput.into());
        }
        self.engine = Some(engine);
        Ok(())
    }

    /// Notes of the recovery.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.engine.as_ref().map(|engine| engine.notes().to_vec()).unwrap_or_default()
    }

    pub(crate) fn is_up(&self) -> bool {
        self.engine.is_some()
    }

    /// True if the device has stopped under the server.
    pub(crate) fn is_dying(&self) -> bool {
        self.disk.is_crashed()
    }

    /// Ends the process, by its own death or with the power, and makes the disk ready for the next.
    pub(crate) fn die(&mut self, kind: CrashKind) {
        self.engine = None;
        self.conns.clear();
        self.outbox = Arc::default();
        self.woken.store(false, Ordering::Relaxed);
        self.disk.crash(kind);
        if kind == CrashKind::Power {
            self.boot += 1;
        }
        self.disk.fail_syncs(0);
        self.disk.restart();
        self.store.restart();
    }

    /// Stops the server in order.
    pub(crate) fn stop(&mut self) -> Result<(), Fault> {
        let engine = self.engine()?;
        until_lost(&self.disk, || engine.stop()).unwrap_or_else(|| Err(died()))
    }

    fn engine(&self) -> Result<&ServerParts, Fault> {
        self.engine.as_ref().ok_or_else(|| frieze_base::Reason::Unavailable.into())
    }

    /// Calls the server.
    fn call<T>(&self, run: impl FnOnce(&ServerParts) -> Result<T, Fault>) -> Result<T, Fault> {
        let engine = self.engine()?;
        until_lost(&self.disk, || run(engine)).unwrap_or_else(|| Err(died()))
    }

    /// Microseconds that the server wants to wait before it serves.
    pub(crate) fn restart_wait_us(&self) -> u64 {
        self.engine.as_ref().map_or(0, ServerParts::restart_wait_us)
    }

    /// Opens a connection of `caller`, and greets.
    pub(crate) fn connect(&mut self, id: ConnId, caller: Caller) {
        let mut challenge = [0u8; 32];
        self.rng.fill(&mut challenge);
        let outbox = MachineResponder { conn: id, disk: self.disk.clone(), answers: self.outbox.clone() };
        let conn = Conn::new(Some(caller), challenge);
        self.conns.insert(id, MachineConn { conn, responder: Arc::new(outbox), scratch: Scratch::default() });
        let hello = RequestBody { caller: None, trace: None, request: Some(Request::Hello(Hello::default())) };
        self.handle(id, &FrameHeader::of(FrameKind::Request), hello, &[]);
        self.take_answers();
    }

    pub(crate) fn is_connected(&self, id: ConnId) -> bool {
        self.conns.contains_key(&id)
    }

    /// The connection is gone.
    pub(crate) fn disconnect(&mut self, id: ConnId) {
        if let (Some(line), Some(engine)) = (self.conns.remove(&id), &self.engine) {
            until_lost(&self.disk, || engine.service.sessions.disconnected(&line.conn));
        }
    }

    /// Hands a request to the server.
    pub(crate) fn handle(&mut self, id: ConnId, header: &FrameHeader, body: RequestBody, payload: &[u8]) {
        let (Some(engine), Some(line)) = (&self.engine, self.conns.get_mut(&id)) else { return };
        let MachineConn { conn, responder, scratch } = line;
        let (header, body) = match self.hardware.breakage {
            Some(broken) => broken.mangle(*header, body, &mut self.rng),
            None => (*header, body),
        };
        until_lost(&self.disk, || engine.handle(conn, &header, body, payload.into(), responder, scratch));
    }

    /// The answers given since the last look.
    pub(crate) fn take_answers(&mut self) -> Vec<MachineResponse> {
        let mut answers = std::mem::take(&mut *self.outbox.lock().unwrap_or_else(PoisonError::into_inner));
        let hlc = self.engine.as_ref().map_or(Hlc::ZERO, |engine| engine.planes.newest());
        for answer in &mut answers {
            answer.hlc = hlc;
        }
        if let Some(broken) = self.hardware.breakage {
            answers.retain_mut(|answer| broken.spoil(answer));
        }
        answers
    }

    pub(crate) fn flush(&mut self) -> Result<(), Fault> {
        self.woken.store(false, Ordering::Relaxed);
        self.call(|engine| engine.planes.flush())
    }

    /// Writes a checkpoint of the names, and flushes so often while it waits for its tables. Also returns the result of
    /// the flushes.
    pub(crate) fn checkpoint(&mut self, flushes: u32) -> (Result<bool, Fault>, Result<(), Fault>) {
        let engine = match self.engine() {
            Ok(engine) => engine,
            Err(fault) => return (Err(fault), Ok(())),
        };
        let (mut left, mut flushed) = (flushes, Ok(()));
        let written = until_lost(&self.disk, || {
            engine.planes.meta.checkpoint(&mut || {
                if left == 0 || flushed.is_err() {
                    return false;
                }
                left -= 1;
                flushed = engine.planes.flush();
                flushed.is_ok()
            })
        });
        (written.unwrap_or_else(|| Err(died())), flushed)
    }

    /// Names leave memory, but for so many bytes, if a checkpoint has them.
    pub(crate) fn evict_names(&self, bytes_max: u64) -> Result<String, Fault> {
        self.call(|engine| {
            engine.planes.meta.evict_names(bytes_max);
            Ok(format!("{:?}", engine.planes.meta.names_memory().0))
        })
    }

    pub(crate) fn tend(&mut self) -> Result<(), Fault> {
        self.call(ServerParts::tend)
    }

    pub(crate) fn reclaim(&mut self) -> Result<(), Fault> {
        self.call(|engine| engine.service.upkeep.reclaim())
    }

    /// Problems of the stored data, as sentences.
    pub(crate) fn check_up(&self) -> Vec<String> {
        let Some(engine) = &self.engine else { return Vec::new() };
        let Some(checkup) = until_lost(&self.disk, || engine.check_up()) else { return Vec::new() };
        let damaged = checkup.scrub.findings.iter().map(|finding| format!("{finding:?}"));
        checkup.wrong.into_iter().chain(damaged).collect()
    }

    pub(crate) fn close_segment(&mut self) {
        if let Ok(engine) = self.engine() {
            engine.planes.close_segment();
        }
    }

    pub(crate) fn shelve(&mut self) -> Result<(), Fault> {
        while self.call(|engine| engine.service.upkeep.shelve())? {}
        self.call(|engine| engine.service.upkeep.keep_to_memory())
    }

    pub(crate) fn image(&mut self) -> Result<(), Fault> {
        while self.call(|engine| engine.service.upkeep.image(&|_| true))? {}
        Ok(())
    }

    /// True if a request waits for a flush, or something is dirty.
    pub(crate) fn wants_flush(&self) -> (bool, bool) {
        let dirty = self.engine.as_ref().is_some_and(|engine| engine.planes.is_dirty());
        (self.woken.load(Ordering::Relaxed), dirty)
    }

    /// How the server is.
    pub(crate) fn status(&mut self) -> StatusReply {
        match self.look(Request::Status(Status {})) {
            Some(Reply::Status(status)) => *status,
            _ => StatusReply::default(),
        }
    }

    /// The server's answer to a question of root, past the network.
    pub(crate) fn look(&mut self, request: Request) -> Option<Reply> {
        let engine = self.engine.as_ref()?;
        let (conn, probe, responder) = &self.probe;
        let header = FrameHeader::of(FrameKind::Request);
        let ask = |request| RequestBody { caller: None, trace: None, request: Some(request) };
        let scratch = &mut self.scratch;
        until_lost(&self.disk, || {
            engine.handle(conn, &header, ask(Request::Hello(Hello::default())), [][..].into(), responder, scratch);
            engine.handle(conn, &header, ask(request), [][..].into(), responder, scratch);
        })?;
        probe.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The entries with transactions in the journal of the metalog on the disk, and the entry up to which they count no
    /// more; `None` if it cannot be read.
    pub(crate) fn journal(&self) -> Option<(u64, LoggedBatches)> {
        let mut source = LogFiles { disk: &self.disk, files: BTreeMap::new() };
        let (base, entries) = read_batches(&MemberSettings::default(), &mut source).ok()?;
        let mut found = BTreeMap::new();
        for entry in entries {
            let batch = Batch::decode(entry.body.as_slice()).ok()?;
            if !batch.transactions.is_empty() {
                found.insert(entry.index.0, (entry.stamp, batch));
            }
        }
        Some((base.0, found))
    }

    /// An entry of the log of metadata, read from the disk, and its stamp; `None` if it is not there or cannot be read.
    pub(crate) fn logged(&self, index: u64) -> Option<(Hlc, Batch)> {
        self.journal()?.1.remove(&index)
    }

    pub(crate) fn marks(&mut self) -> Marks {
        let status = self.status();
        Marks {
            index: status.metalog_index,
            records: status.records,
            newest: Hlc(status.newest),
            fenced: status.fenced,
        }
    }
}

/// Runs a call of a server. `None`: its process ended in the middle, because the device did not read names that are not
/// in memory. That a checksum is wrong is no such excuse: no checkpoint rots here.
pub(crate) fn until_lost<T>(disk: &SimDisk, call: impl FnOnce() -> T) -> Option<T> {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)) {
        Ok(done) => Some(done),
        Err(panic) => {
            match panic.downcast::<LostNames>() {
                Ok(lost) if lost.is_unreadable => disk.crash(CrashKind::Process),
                Ok(lost) => std::panic::resume_unwind(Box::new(lost.words)),
                Err(panic) => std::panic::resume_unwind(panic),
            }
            None
        }
    }
}

fn died() -> Fault {
    frieze_base::Reason::InputOutput.into()
}

/// Entries with transactions and their stamps, by their place in the log.
pub(crate) type LoggedBatches = BTreeMap<u64, (Hlc, Batch)>;

/// The segments of the log of metadata as they lie on the disk.
struct LogFiles<'a> {
    disk: &'a SimDisk,
    files: BTreeMap<SegmentId, Arc<dyn DiskFile>>,
}

impl SegmentSource for LogFiles<'_> {
    fn segments(&mut self) -> Result<Vec<(SegmentId, u64)>, Fault> {
        let mut found = Vec::new();
        for name in self.disk.list()? {
            let id = name.strip_prefix("raft-").and_then(|hex| u64::from_str_radix(hex, 16).ok());
            if let Some(id) = id.map(SegmentId) {
                let file = self.disk.open(&name)?;
                found.push((id, file.len()?));
                self.files.insert(id, file);
            }
        }
        Ok(found)
    }

    fn read(&mut self, segment: SegmentId, offset: u64, into: &mut [u8]) -> Result<usize, Fault> {
        let file = self.files.get(&segment).ok_or(frieze_base::Reason::NotFound)?;
        // A read of the harness itself does not count against the device's injected faults.
        let to_fail = self.disk.spare_reads();
        let found = file.read_at(offset, into);
        self.disk.fail_reads(to_fail);
        Ok(found?)
    }
}

/// Every simulated client is this user.
pub(crate) fn user() -> Caller {
    Caller { uid: USER, gid: USER, groups: Vec::new() }
}
