//! The server without threads and sockets: it owns the cores and answers one request at a time, on any thread.
//!
//! Guarantees: whoever asks is proven before anything is done; a state change is logged before it is answered; a read
//! at a closed instant never changes. The real server calls it from one thread a connection, the simulator from one.
//! Leaves to others: sockets and threads (`serve`), the cores' own promises.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::Duration;

use frieze_base::{ChunkId, ClusterId, Fault, LogIndex, MonoTime, NodeId, Reason, Seq, SessionId};
use frieze_disk::{Disk, StateFile, TimeSource};
use frieze_hlc::{Clock, ClockSettings, Hlc, format_instant};
use frieze_metalog::DataEnd;
use frieze_wire::frame::FrameHeader;
use frieze_wire::message::{HelloReply, Reply, Request, RequestBody};
use frieze_wire::txn::{self, Caller, Op, Transaction};

use crate::caching::{Asking, Caching};
use crate::capability::Mint;
use crate::clock::{Keeper, NodeClock};
use crate::data::{self, DataPlane};
use crate::device::{Device, Reach};
use crate::durability::{Durability, Ticket};
use crate::grants::GrantSettings;
use crate::identity::{FORMAT_VERSION, Identity, STATE_FILE};
use crate::locks::Locks;
use crate::meta::{MetaPlane, MetaReach};
use crate::reclaim::Reclaim;
use crate::session::{Conn, KeyRight, Principal, Sessions};
use crate::settings::Settings;
use crate::store::{VersionStore, Versions};

/// What the simulator replaces.
pub struct Seams {
    /// Where logs and identity live.
    pub disk: Arc<dyn Disk>,
    /// The machine's clocks.
    pub time: Arc<dyn TimeSource>,
    /// Where the namespace's history lives.
    pub store: Box<dyn VersionStore>,
    /// Names the boot of the machine: while it is the same, the page cache has survived.
    pub boot: String,
    /// 64 fresh random bytes: identity and keys of a new directory, the seed of new segments, the name of this life.
    pub entropy: [u8; 64],
    /// Wakes whoever flushes.
    pub wake: Box<dyn Fn() + Send + Sync>,
    /// Memory and CPU of the process, for `status`.
    pub process: Box<dyn Fn() -> ProcessStats + Send + Sync>,
    /// Who may prove itself by which key.
    pub keys: BTreeMap<String, KeyRight>,
    /// Owner of the root directory of a new file system.
    pub owner: Caller,
}

/// What the process uses.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessStats {
    /// Resident memory, bytes.
    pub resident_bytes: u64,
    /// Largest so far, bytes.
    pub resident_bytes_peak: u64,
    /// CPU time, nanoseconds.
    pub cpu_ns: u64,
    /// Open connections.
    pub connections: u64,
}

/// Answers go through this, at once or later, from any thread.
pub trait Responder: Send + Sync {
    /// Sends the answer to `request`. `payload_crc` is the CRC32C of `payload`.
    fn respond(&self, request: &FrameHeader, result: Result<Reply, Fault>, payload: &[u8], payload_crc: u32);
}

/// Buffers of one connection, used again for every request.
#[derive(Default)]
pub struct Scratch {
    pub(crate) payload: Vec<u8>,
    pub(crate) block: Vec<u8>,
    pub(crate) pieces: Vec<frieze_multilog::Piece>,
    /// What the request may let its session cache.
    pub(crate) asking: Asking,
}

/// The server.
pub struct Engine {
    pub(crate) settings: Settings,
    pub(crate) clock: Arc<NodeClock>,
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) data: DataPlane,
    pub(crate) meta: MetaPlane,
    pub(crate) durability: Durability,
    pub(crate) sessions: Sessions,
    pub(crate) caching: Arc<Caching>,
    pub(crate) locks: Mutex<Locks>,
    pub(crate) reclaim: Reclaim,
    /// Held by edits while they are planned and run, and by a forgetting against them.
    pub(crate) forgetting: RwLock<()>,
    pub(crate) mint: Mint,
    pub(crate) process: Box<dyn Fn() -> ProcessStats + Send + Sync>,
    pub(crate) started: MonoTime,
    /// Stamp of the file system's first transaction: nothing is older.
    pub(crate) earliest: Hlc,
    keys: BTreeMap<String, KeyRight>,
    notes: Vec<String>,
    /// Where the server listens for callers on its machine, besides the addresses of its settings.
    pub(crate) socket: OnceLock<String>,
}

/// Software and version, as both ends tell each other.
pub const SOFTWARE: &str = concat!("frieze/", env!("CARGO_PKG_VERSION"));

impl Engine {
    /// Opens a data directory, making a file system in it if it is new, and recovers what a crash left.
    ///
    /// # Errors
    /// `WrongVersion`, `Corrupt`, `NoSpace`, and the disk's, each with what to do.
    pub fn open(settings: Settings, seams: Seams) -> Result<Engine, Fault> {
        settings.validate()?;
        let (identity, file, fresh) = match Identity::load(&*seams.disk)? {
            Some((identity, file)) => (identity, file, false),
            None => {
                let file = StateFile::open_or_create(&*seams.disk, STATE_FILE)?;
                (new_identity(&settings, &seams.entropy), file, true)
            }
        };
        let log_settings = frieze_multilog::Settings {
            segment_bytes: identity.segment_bytes,
            seed: u64::from_le_bytes(seams.entropy[48..56].try_into().expect("eight bytes")),
            ..frieze_multilog::Settings::default()
        };
        let keeper = Arc::new(Keeper::new(identity.clone(), file));
        let went_down = !fresh && !identity.clean && identity.boot != seams.boot;
        let clock_bound = Hlc(identity.clock_bound);
        let mut recovery = Recovery {
            settings: &settings,
            identity: &identity,
            keeper: &keeper,
            log_settings,
            went_down,
            clock_bound,
        };
        // Before anything is written that an older version could not read.
        if identity.format_version != FORMAT_VERSION {
            keeper.update(|identity| identity.format_version = FORMAT_VERSION)?;
        }
        let mut logs = recovery.recover(&seams.disk, &seams.time, seams.store, Hlc::MAX)?;
        if logs.meta.namespace().format().is_none() {
            // A first start that was cut short: nobody has seen a stamp, so there is none to wait for.
            recovery.clock_bound = Hlc::ZERO;
            logs = recovery.recover(&seams.disk, &seams.time, logs.meta.into_store(), Hlc::MAX)?;
        }
        let mut notes = std::mem::take(&mut logs.notes);
        let bound = logs.bound;
        if logs.first_orphan().is_some() {
            // What is cut off now was on stable storage: it must not be missed later.
            keeper.update(|identity| identity.set_durable(Ticket::default()))?;
        }
        while let Some(orphan) = logs.first_orphan() {
            // Its grant was lost with the power, so the file knows nothing of it: what follows is cut off with it.
            logs = recovery.recover(&seams.disk, &seams.time, logs.meta.into_store(), orphan.previous())?;
            notes.append(&mut logs.notes);
        }
        let Logs { clock, device, chains, meta, .. } = logs;
        let data = DataPlane::new(device, clock.clone(), chains);
        keeper.update(|identity| {
            if went_down {
                // The machine went down with the server: what was not flushed may be lost. Each log is whole up to its
                // last record, and both are whole up to the frontier.
                let whole = Hlc(identity.frontier);
                identity.add_gap(whole.min(bound), bound);
                identity.last_whole = whole.0;
                identity.inode_floor = identity.inode_bound;
                notes.push(format!(
                    "the machine went down: writes between {} and {} that were not synced may be lost",
                    format_instant(whole),
                    format_instant(bound)
                ));
            }
            if settings.serve_damaged {
                // What is missing is known by now.
                identity.set_durable(Ticket::default());
            }
            identity.clean = false;
            identity.boot.clone_from(&seams.boot);
            identity.clock_bound = bound.0;
        })?;
        meta.begin_ids();
        let started = clock.reading().mono;
        let cached: Vec<SessionId> = {
            let namespace = meta.namespace();
            let known = keeper.with(|identity| identity.caching.clone());
            known.into_iter().map(SessionId).filter(|id| namespace.session(*id).is_some()).collect()
        };
        // Not 0, which is what a client says that knows none.
        let life = u64::from_le_bytes(seams.entropy[56..64].try_into().expect("eight bytes")) | 1;
        let mut locks = Locks::default();
        let granted = GrantSettings::default();
        locks.found(cached.iter().copied(), MonoTime(started.0 + granted.lease_ns));
        let caching = Arc::new(Caching::new(clock.clone(), life, granted, cached));
        meta.watch(caching.clone());
        data.watch(caching.clone());
        let mint = Mint::new(identity.key());
        let engine = Engine {
            settings,
            clock,
            keeper,
            data,
            meta,
            durability: Durability::new(seams.wake),
            sessions: Sessions::default(),
            caching,
            locks: Mutex::new(locks),
            reclaim: Reclaim::default(),
            forgetting: RwLock::default(),
            mint,
            process: seams.process,
            started,
            earliest: Hlc::ZERO,
            keys: seams.keys,
            notes,
            socket: OnceLock::new(),
        };
        engine.make_file_system(&seams.owner)?;
        let earliest = {
            let namespace = engine.meta.namespace();
            for (session, _) in namespace.sessions() {
                engine.sessions.found(session, started);
            }
            namespace.current(frieze_base::InodeId::ROOT).map_or(Hlc::ZERO, |root| root.born)
        };
        engine.flush()?;
        // What was forgotten is found again: what a crash left of giving it back goes on.
        engine.reclaim.want();
        Ok(Engine { earliest, ..engine })
    }

    fn make_file_system(&self, owner: &Caller) -> Result<(), Fault> {
        if self.meta.namespace().format().is_some() {
            return Ok(());
        }
        let mode = self.settings.root_mode.unwrap_or(if owner.uid == 0 { 0o1777 } else { 0o755 });
        let format = txn::Format {
            chunk_bytes: self.settings.chunk_bytes,
            chain_count: self.settings.chain_count,
            uid: owner.uid,
            gid: owner.gid,
            mode,
        };
        let transaction = Transaction {
            session: 0,
            seq: 0,
            acked: 0,
            caller: owner.clone(),
            must_see: 0,
            op: Some(Op::Format(format)),
        };
        self.meta.execute(transaction)?.into_result()?;
        Ok(())
    }

    /// What recovery has to tell, in words.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The cluster of this directory.
    pub fn cluster(&self) -> ClusterId {
        self.keeper.with(Identity::cluster_id)
    }

    /// Microseconds to wait before serving, so that the wall clock has passed every stamp of an earlier life.
    pub fn restart_wait_us(&self) -> u64 {
        let newest = self.clock.newest();
        (newest.micros() + 1).saturating_sub(self.clock.reading().wall_us)
    }

    /// The newest stamp: goes into the header of every answer.
    pub fn newest(&self) -> Hlc {
        self.clock.newest()
    }

    /// Answers a request through `responder`, at once or when it is durable.
    pub fn handle(
        &self,
        conn: &Conn,
        header: &FrameHeader,
        body: RequestBody,
        payload: &[u8],
        responder: &Arc<dyn Responder>,
        scratch: &mut Scratch,
    ) {
        scratch.asking = Asking::of(header);
        let gate = match &body.request {
            Some(request) if self.caching.is_watched(header.session) => self.gate(header, request, responder),
            _ => None,
        };
        let responder = gate.as_ref().unwrap_or(responder);
        let answer = match body.request {
            Some(Request::Hello(hello)) => conn.hello(hello, self.greeting()).map(Reply::Hello),
            Some(Request::Prove(prove)) => conn.prove(&prove, &self.keys, self.greeting()).map(Reply::Hello),
            Some(request) => match self.admit(conn, header, body.caller) {
                Ok(principal) => match self.dispatch(conn, &principal, header, request, payload, responder, scratch) {
                    Some(answer) => answer,
                    None => return,
                },
                Err(fault) => Err(fault),
            },
            None => Err(Fault::new(
                Reason::Unsupported,
                "the request is of a kind that this server does not know: it may be older than the client",
            )),
        };
        responder.respond(&FrameHeader { holds: scratch.asking.holds, ..*header }, answer, &[], 0);
    }

    fn greeting(&self) -> HelloReply {
        let chunk_bytes = self.meta.namespace().format().map_or(self.settings.chunk_bytes, |format| format.chunk_bytes);
        let (cluster, NodeId(node)) = self.keeper.with(|identity| (identity.cluster_id(), identity.node_id()));
        HelloReply {
            software: SOFTWARE.to_owned(),
            cluster: cluster.to_string(),
            node,
            challenge: Vec::new(),
            uid: 0,
            may_impersonate: false,
            chunk_bytes,
            socket: self.socket.get().cloned().unwrap_or_default(),
        }
    }

    /// Checks who speaks and for which session.
    fn admit(&self, conn: &Conn, header: &FrameHeader, named: Option<Caller>) -> Result<Principal, Fault> {
        let principal = conn.principal(named)?;
        self.clock.observe(header.hlc)?;
        if header.session != SessionId(0) && conn.session() != Some(header.session) {
            let owner = self.meta.namespace().session(header.session).map(|session| session.uid);
            match owner {
                Some(uid) if uid == principal.uid => {
                    self.sessions.attach(conn, header.session, self.clock.reading().mono);
                }
                // The same words for both, so that nobody can look for sessions of others.
                Some(_) | None => return Err(unknown_session(header.session)),
            }
        }
        Ok(principal)
    }

    #[expect(clippy::too_many_arguments, reason = "what a request consists of, handed on once")]
    fn dispatch(
        &self,
        conn: &Conn,
        principal: &Principal,
        header: &FrameHeader,
        request: Request,
        payload: &[u8],
        responder: &Arc<dyn Responder>,
        scratch: &mut Scratch,
    ) -> Option<Result<Reply, Fault>> {
        Some(match request {
            Request::Hello(_) | Request::Prove(_) => Err(Reason::BadFrame.into()), // handled before
            Request::Ping(_) => Ok(done()),
            Request::Stat(ask) => self.stat(principal, &ask, &mut scratch.asking).map(Reply::Stat),
            Request::List(ask) => self.list(principal, &ask, &mut scratch.asking).map(Reply::List),
            Request::ReadLink(ask) => self.read_link(principal, &ask).map(Reply::Bytes),
            Request::Access(ask) => self.access(principal, &ask).map(|()| done()),
            Request::GetXattr(ask) => self.get_xattr(principal, &ask).map(Reply::Bytes),
            Request::Open(ask) => self.open_file(principal, header.session, &ask, &mut scratch.asking).map(Reply::Open),
            Request::Read(ask) => match self.read(header.session, &ask, scratch) {
                Ok((reply, crc)) => {
                    responder.respond(header, Ok(Reply::Read(reply)), &scratch.payload, crc);
                    return None;
                }
                Err(fault) => Err(fault),
            },
            Request::Write(ask) => {
                self.write(principal, header, &ask, payload, responder);
                return None;
            }
            Request::Punch(ask) => {
                self.punch(principal, header, &ask, responder);
                return None;
            }
            Request::Sync(_) => {
                self.sync(header, responder);
                return None;
            }
            Request::Seek(ask) => self.seek(header.session, &ask, scratch).map(Reply::Seek),
            Request::Txn(ask) => match self.transact(conn, principal, header, ask, responder, &mut scratch.asking) {
                Some(answer) => answer.map(Reply::Txn),
                None => return None,
            },
            Request::Now(ask) => self.now(&ask).map(Reply::Now),
            Request::Snapshots(ask) => self.snapshots(&ask).map(Reply::Snapshots),
            Request::Log(ask) => self.log(principal, &ask).map(Reply::Log),
            Request::Status(_) => Ok(Reply::Status(self.status())),
            Request::Clone(ask) => self
                .edit(principal, header, ask.dry_run, &|now| self.plan_clone(principal, &ask, now))
                .map(Reply::Edited),
            Request::Restore(ask) => self
                .edit(principal, header, ask.dry_run, &|now| self.plan_restore(principal, &ask, now))
                .map(Reply::Edited),
            Request::Undo(ask) => self
                .edit(principal, header, ask.dry_run, &|now| self.plan_undo(principal, &ask, now))
                .map(Reply::Edited),
            Request::CopyRange(ask) => {
                self.edit(principal, header, false, &|now| self.plan_copy_range(header, &ask, now)).map(Reply::Edited)
            }
            Request::Forget(ask) => self.forget(principal, header, &ask).map(Reply::Forgot),
            Request::Lock(ask) => self.lock(header.session, &ask).map(Reply::Lock),
            Request::TestLock(ask) => Ok(Reply::TestLock(self.test_lock(header.session, &ask))),
            Request::CancelLock(ask) => Ok(Reply::Lock(self.cancel_lock(header.session, &ask))),
            Request::Recalls(ask) => match self.recalls(header, &ask, responder) {
                Ok(()) => return None,
                Err(fault) => Err(fault),
            },
            Request::Diff(ask) => self.diff(principal, &ask).map(Reply::Diff),
            Request::Story(ask) => self.story(principal, &ask).map(Reply::Story),
            Request::LastSeen(ask) => self.last_seen(principal, &ask).map(Reply::LastSeen),
            Request::Deleted(ask) => self.deleted(principal, &ask).map(Reply::Deleted),
            Request::Sessions(ask) => self.list_sessions(&ask).map(Reply::Sessions),
            Request::Usage(ask) => self.usage(principal, &ask).map(Reply::Usage),
        })
    }

    /// Looks after what waits for sessions that cache; to be called some times a second.
    pub fn tick(&self) {
        self.caching.tick();
    }

    /// Cache grants given and not run out, at most: for tests and `status`.
    pub fn grants(&self) -> usize {
        self.caching.count()
    }

    /// A connection is gone.
    pub fn disconnected(&self, conn: &Conn) {
        self.sessions.detach(conn, self.clock.reading().mono);
    }

    /// Makes everything appended so far durable, if there is anything.
    ///
    /// # Errors
    /// The disk's: the server goes on read-only.
    pub fn flush(&self) -> Result<(), Fault> {
        // Promises keep up with the clock, so that `stable` does not lag behind on a busy server.
        let now = self.clock.newest();
        if now > self.meta.closed() && self.meta.close(now).is_ok() {
            match self.data.close(now) {
                Ok(_) => {}
                Err(fault) if fault.reason == Reason::NotYetClosed => {}
                Err(fault) => return Err(fault),
            }
        }
        self.durability.flush(&self.clock, &self.data, &self.meta)?;
        Ok(())
    }

    /// True if something waits to be flushed.
    pub fn is_dirty(&self) -> bool {
        let dirty = self.durability.is_dirty(&self.data, &self.meta);
        self.durability.dirty_age_ns(self.clock.reading().mono, dirty);
        dirty
    }

    /// Looks after clocks and sessions; to be called about twice a second.
    ///
    /// # Errors
    /// The disk's.
    pub fn tend(&self) -> Result<(), Fault> {
        self.caching.tick();
        let timeout_ns = self.settings.session_timeout.as_nanos() as u64;
        for session in self.sessions.expired(self.clock.reading().mono, timeout_ns) {
            // Its own number of the request: above any that a client counted up to.
            let closed = self.close_session(session, Seq(u64::MAX), Seq(u64::MAX), &Caller::root());
            if let Err(fault) = closed {
                if fault.reason != Reason::UnknownSession {
                    return Err(fault);
                }
                self.sessions.forget(session);
            }
        }
        self.clock.look(self.durability.durable_stamp(), self.durability.durable_ticket())
    }

    /// Flushes everything and notes that nothing was lost. The engine must not be used afterwards.
    ///
    /// # Errors
    /// The disk's: the next start recovers as after a crash.
    pub fn stop(&self) -> Result<(), Fault> {
        self.durability.finish(&self.clock, &self.data, &self.meta)?;
        let newest = self.clock.newest();
        self.keeper.update(|identity| {
            identity.clean = true;
            identity.clock_bound = newest.0;
            identity.frontier = newest.0;
            identity.set_durable(self.durability.durable_ticket());
        })
    }

    /// How long after a write its flush begins.
    pub fn flush_delay(&self) -> Duration {
        self.settings.flush_delay
    }
}

pub(crate) fn done() -> Reply {
    Reply::Done(frieze_wire::message::Done {})
}

pub(crate) fn unknown_session(session: SessionId) -> Fault {
    Fault::new(
        Reason::UnknownSession,
        format!("session {session} is unknown or has ended, or belongs to another user: open a new one"),
    )
}

/// What recovery starts from.
struct Recovery<'a> {
    settings: &'a Settings,
    identity: &'a Identity,
    keeper: &'a Arc<Keeper>,
    log_settings: frieze_multilog::Settings,
    /// The machine went down with the server: the ends of the logs may not fit together.
    went_down: bool,
    /// No stamp above it was given.
    clock_bound: Hlc,
}

/// Both logs as recovery found them.
struct Logs {
    clock: Arc<NodeClock>,
    device: Arc<Device>,
    chains: Vec<frieze_chain::Replica>,
    meta: MetaPlane,
    /// Every stamp so far lies at or below it.
    bound: Hlc,
    notes: Vec<String>,
    /// Records that may be younger than the end of the metalog.
    tail: Vec<(Hlc, SessionId, ChunkId)>,
}

impl Recovery<'_> {
    /// Recovers both logs; of the device log what is stamped up to `upto`.
    fn recover(
        &self,
        disk: &Arc<dyn Disk>,
        time: &Arc<dyn TimeSource>,
        store: Box<dyn VersionStore>,
        upto: Hlc,
    ) -> Result<Logs, Fault> {
        let mut chains = data::new_chains(settings_chain_count(self.settings, self.identity));
        let mut refused = None;
        let mut missing_records = 0;
        let mut tail = Vec::new();
        let (log_settings, reserve_bytes) = (self.log_settings.clone(), self.settings.reserve_bytes);
        let serve_damaged = self.settings.serve_damaged;
        let durable = self.identity.durable();
        let reach = Reach { upto, durable: durable.data, serve_damaged };
        let recovered = Device::recover(disk.clone(), log_settings, reserve_bytes, &reach, &mut |meta| {
            if self.went_down && meta.stamp > Hlc(self.identity.frontier) {
                tail.push((meta.stamp, meta.session, meta.chunk));
            }
            if refused.is_none() {
                match data::replay(&mut chains, meta) {
                    Ok(missing) => missing_records += missing,
                    Err(fault) => refused = Some(fault),
                }
            }
        })?;
        if let Some(fault) = refused {
            return Err(fault);
        }
        let mut notes = recovered.notes;
        if missing_records > 0 {
            notes.push(format!("{missing_records} records are missing from the middle of the device log"));
        }
        let bound = self.clock_bound.max(recovered.newest);
        let offset_us = self.settings.max_clock_offset.as_micros() as u64;
        let clock_settings =
            ClockSettings { max_clock_offset_us: offset_us, error_us_max: offset_us, ..ClockSettings::default() };
        let clock = Arc::new(NodeClock::new(Clock::new(clock_settings, bound), time.clone(), self.keeper.clone()));
        let device = Arc::new(recovered.device);
        let (meta, cuts) = MetaPlane::recover(
            clock.clone(),
            self.keeper.clone(),
            device.clone(),
            disk.clone(),
            frieze_metalog::Settings::default(),
            Versions::new(store),
            DataEnd { segment: recovered.end.segment, offset: recovered.end.offset },
            // What is cut off on purpose may take entries with it.
            &MetaReach { durable: if upto == Hlc::MAX { durable.meta } else { LogIndex(0) }, serve_damaged },
        )?;
        notes.extend(cuts);
        Ok(Logs { clock, device, chains, meta, bound, notes, tail })
    }
}

impl Logs {
    /// Stamp of the first record that depends on metadata that is lost: what is left gives its session no right to
    /// write there. Older records than the end of the metalog had their grants when they were written.
    fn first_orphan(&self) -> Option<Hlc> {
        let newest = self.meta.newest();
        let namespace = self.meta.namespace();
        let granted = |session, chunk: ChunkId| namespace.has_grant(session, chunk.inode, chunk.index);
        let mut young = self.tail.iter().filter(|(stamp, _, _)| *stamp > newest);
        young.find(|(_, session, chunk)| !granted(*session, *chunk)).map(|(stamp, _, _)| *stamp)
    }
}

fn new_identity(settings: &Settings, entropy: &[u8; 64]) -> Identity {
    Identity {
        format_version: FORMAT_VERSION,
        cluster: entropy[..16].to_vec(),
        node: 1,
        capability_key: entropy[16..48].to_vec(),
        clean: true,
        segment_bytes: settings.segment_bytes,
        chain_count: settings.chain_count,
        ..Identity::default()
    }
}

/// The number of chains was fixed when the directory was made.
fn settings_chain_count(settings: &Settings, identity: &Identity) -> u32 {
    if identity.chain_count == 0 { settings.chain_count } else { identity.chain_count }
}
