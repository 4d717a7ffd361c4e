//! One node of the simulated cluster: its durable state, the server, and the suspended calls of the server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use frieze_base::{ChainId, ClusterId, Fault, NodeId, Rng};
use frieze_disk::{CrashKind, Disk, SimDisk, TimeSource};
use frieze_hlc::Hlc;
use frieze_node::{
    Conn, Copy, Joining, LeftBehind, MemoryStore, PeerPayload, Peers, ProcessStats, Responder, Scratch, Seams,
    ServerParts, Settings, WentOn,
};
use frieze_wire::frame::{FrameHeader, FrameKind};
use frieze_wire::message::{Hello, Reply, Request, RequestBody};
use frieze_wire::peer::ServerMessage;
use frieze_wire::txn::Caller;

use super::breakage::ClusterBreak;
use super::clock::NodeTime;
use super::net::Envelope;
use super::outbox::{NodeConnId, NodeResponse, Post};
use super::tasks::{Task, suspend};
use crate::breakage::{DiskCorruption, faulty_disk};
use crate::machine::until_lost;
use crate::world::WALL_US;

struct NodePeers {
    from: NodeId,
    post: Post,
}

impl Peers for NodePeers {
    fn send(&self, to: NodeId, message: ServerMessage, payload: PeerPayload) {
        // Its header is that of the sender's connection.
        let envelope =
            Box::new(Envelope { from: self.from, to, header: FrameHeader::of(FrameKind::Peer), message, payload });
        self.post.lock().unwrap_or_else(PoisonError::into_inner).messages.push_back(envelope);
    }
}

struct NodeResponder {
    node: NodeId,
    client: usize,
    conn: NodeConnId,
    post: Post,
}

impl Responder for NodeResponder {
    fn respond(&self, request: &FrameHeader, result: Result<Reply, Fault>, payload: &[u8], _: u32) {
        let answer = NodeResponse {
            node: self.node,
            client: self.client,
            conn: self.conn,
            request_id: request.request_id,
            result,
            payload: payload.to_vec(),
            hlc: Hlc::ZERO,
        };
        self.post.lock().unwrap_or_else(PoisonError::into_inner).answers.push(answer);
    }
}

type NodeConn = (Arc<Conn>, Arc<dyn Responder>);

pub(super) struct SimNode {
    pub(super) id: NodeId,
    pub(super) disk: SimDisk,
    pub(super) store: MemoryStore,
    pub(super) time: NodeTime,
    /// How far its clocks were moved so far, and how much faster they run than true time.
    pub(super) elapsed_us: u64,
    pub(super) rate_ppm: i64,
    /// How far its wall clock is from true time.
    pub(super) skew_us: i64,
    rng: Rng,
    boot: u64,
    settings: Settings,
    post: Post,
    pub(super) joining: Option<Joining>,
    /// Rises with every start and every end: events of an earlier process are skipped.
    pub(super) life: u64,
    pub(super) starts: u64,
    pub(super) engine: Option<Arc<ServerParts>>,
    /// It has begun to serve.
    pub(super) serves: bool,
    pub(super) tasks: Vec<Task>,
    doors: BTreeMap<NodeConnId, NodeConn>,
    /// Connections of earlier processes: a request on one of them fails with its end.
    stale: BTreeSet<NodeConnId>,
    /// Those of the last process, whose other ends are not notified yet.
    ended: Vec<NodeConnId>,
    /// No process runs there, and the machine refuses connections.
    pub(super) refuses: bool,
    pub(super) paused_until_us: u64,
    /// A call stood still: its machine's clocks show this already, whichever process runs there.
    pub(super) ahead_until_us: u64,
    pub(super) woken: Arc<AtomicBool>,
    pub(super) flush_at_us: Option<u64>,
    pub(super) journal_at_us: Option<u64>,
    pub(super) control_busy: Arc<AtomicBool>,
    pub(super) tend_busy: Arc<AtomicBool>,
    /// Chains are detached during its periodic work, and at no other time.
    pub(super) may_detach: bool,
    /// It crashes at one of its next effects.
    pub(super) may_crash: bool,
    /// It is gone for ever, with its disk.
    pub(super) is_gone: bool,
    /// It is not started again by itself.
    pub(super) stays_away: bool,
    /// Its disk has damage somewhere.
    pub(super) is_rotten: bool,
    /// Epochs of the chains of which it was a full member when a power loss took its unflushed records: it has the
    /// durable part of these, and all that other members have only in a later epoch.
    pub(super) short_at: BTreeMap<u32, u64>,
    /// Chains that this process has detached, and the count, as far as judged.
    pub(super) detached: Vec<(ChainId, u64)>,
    /// Chains that it last decided to detach and still needs, with the reason.
    pub(super) needed: Arc<Mutex<BTreeMap<ChainId, String>>>,
    /// A sync failed: its supervisor restarts the server.
    pub(super) failed: bool,
    /// State of its chains in the last line of the trace.
    pub(super) last_trace: String,
    broken: Option<ClusterBreak>,
}

/// Most bytes that a node writes into one segment of its log, as far as that matters for bit rot.
const WRITTEN_BYTES_MAX: usize = 256 << 10;

/// Address of a node: never connected to, but a server needs one.
pub(super) fn address(id: NodeId) -> String {
    format!("10.0.0.{}:7470", id.0)
}

impl SimNode {
    pub(super) fn new(
        id: NodeId,
        mut rng: Rng,
        settings: &Settings,
        post: &Post,
        broken: Option<ClusterBreak>,
    ) -> SimNode {
        let settings = Settings {
            advertise: address(id),
            name: format!("node{}", id.0),
            machine: "machine0".to_owned(),
            ..settings.clone()
        };
        SimNode {
            id,
            disk: SimDisk::new(rng.next()),
            store: MemoryStore::default(),
            time: NodeTime::new(WALL_US),
            elapsed_us: 0,
            rate_ppm: 0,
            skew_us: 0,
            rng,
            boot: 1,
            settings,
            post: post.clone(),
            joining: None,
            life: 0,
            starts: 0,
            engine: None,
            serves: false,
            tasks: Vec::new(),
            doors: BTreeMap::new(),
            stale: BTreeSet::new(),
            ended: Vec::new(),
            refuses: false,
            paused_until_us: 0,
            ahead_until_us: 0,
            woken: Arc::default(),
            flush_at_us: None,
            journal_at_us: None,
            control_busy: Arc::default(),
            tend_busy: Arc::default(),
            may_detach: false,
            may_crash: false,
            is_gone: false,
            stays_away: false,
            is_rotten: false,
            short_at: BTreeMap::new(),
            detached: Vec::new(),
            needed: Arc::default(),
            failed: false,
            last_trace: String::new(),
            broken,
        }
    }

    /// True time has come to `now_us`.
    pub(super) fn advance(&mut self, now_us: u64) {
        let should = now_us.saturating_add_signed(now_us as i64 / 1_000_000 * self.rate_ppm);
        if should > self.elapsed_us {
            self.time.time.advance_us(should - self.elapsed_us);
            self.elapsed_us = should;
        }
    }

    /// Duration of a pause in the last call, if there was one: true time has still to catch up.
    pub(super) fn take_stunned(&mut self) -> u64 {
        let stunned_us = self.time.take_stunned();
        self.elapsed_us += stunned_us;
        stunned_us
    }

    /// Opens the content of the disk. It serves when [`SimNode::serve`] says so.
    pub(super) fn start(&mut self) -> Result<(), Fault> {
        assert!(self.engine.is_none(), "it runs already");
        self.life += 1;
        self.starts += 1;
        self.woken = Arc::default();
        self.control_busy = Arc::default();
        self.tend_busy = Arc::default();
        (self.flush_at_us, self.journal_at_us, self.failed) = (None, None, false);
        self.detached.clear();
        self.needed = Arc::default();
        let mut entropy = [0u8; 64];
        self.rng.fill(&mut entropy);
        let woken = self.woken.clone();
        let disk: Arc<dyn Disk> = match self.broken {
            Some(ClusterBreak::SyncLies) => faulty_disk(self.disk.clone(), DiskCorruption::Syncs("raft-")),
            _ => Arc::new(self.disk.clone()),
        };
        let seams = Seams {
            disk,
            time: Arc::new(self.time.clone()),
            store: Box::new(self.store.clone()),
            boot: format!("boot {}", self.boot),
            entropy,
            wake: Box::new(move || woken.store(true, Ordering::Relaxed)),
            process: Box::new(ProcessStats::default),
            keys: BTreeMap::new(),
            owner: Caller::root(),
        };
        let engine = match &self.joining {
            Some(joining) => ServerParts::join(self.settings.clone(), seams, joining)?,
            None => ServerParts::open(self.settings.clone(), seams)?,
        };
        if self.disk.is_crashed() {
            return Err(frieze_base::Reason::InputOutput.into());
        }
        self.engine = Some(Arc::new(engine));
        self.refuses = true;
        Ok(())
    }

    /// Makes this server, whose process has ended, the only one of its cluster, as `frieze cluster recover` does.
    /// Returns the result and the chains of which it had everything.
    pub(super) fn go_on_alone(&mut self) -> Result<(WentOn, BTreeSet<u32>), Fault> {
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let time: Arc<dyn TimeSource> = Arc::new(self.time.clone());
        let left = LeftBehind::look(disk.clone(), Box::new(self.store.clone()), time, false)?;
        let mut identity = [0; 16];
        self.rng.fill(&mut identity);
        let now_us = self.time.reading().wall_us;
        let went_on = left.go_on(&disk, ClusterId(u128::from_be_bytes(identity)), now_us)?;
        // It does not join a cluster any more.
        self.joining = None;
        let full = left.chains.iter().filter(|chain| chain.copy == Copy::Full);
        Ok((went_on, full.map(|chain| chain.chain.0).collect()))
    }

    /// Begins to serve, when the clock has passed every stamp of an earlier life. Returns how long to wait else.
    pub(super) fn serve(&mut self) -> Result<Option<Duration>, Fault> {
        let Some(engine) = &self.engine else { return Ok(None) };
        let wait_us = engine.restart_wait_us();
        if wait_us > 0 {
            return Ok(Some(Duration::from_micros(wait_us)));
        }
        engine.connect(Arc::new(NodePeers { from: self.id, post: self.post.clone() }));
        engine.while_waiting(Box::new(suspend));
        engine.begin_node()?;
        self.serves = true;
        Ok(None)
    }

    /// The process, or the power, goes.
    pub(super) fn die(&mut self, kind: CrashKind) {
        // Before the device can be used again.
        self.tasks.clear();
        self.ended.extend(std::mem::take(&mut self.doors).into_keys());
        self.stale.extend(&self.ended);
        self.refuses = kind == CrashKind::Process;
        self.engine = None;
        self.serves = false;
        self.life += 1;
        self.disk.crash(kind);
        self.store.lose_memory();
        if kind == CrashKind::Power {
            self.boot += 1;
        }
        self.disk.fail_syncs(0);
        self.disk.restart();
        self.may_crash = false;
    }

    /// A place in its log of bytes where something was written, by a draw.
    pub(super) fn written_byte(&self, draw: u64) -> Option<(String, u64)> {
        let names = self.disk.list().ok()?;
        let logs: Vec<&String> = names.iter().filter(|name| name.starts_with("seg-")).collect();
        let name = logs.get(draw as usize % logs.len().max(1))?;
        let mut bytes = vec![0; WRITTEN_BYTES_MAX];
        self.disk.open(name).ok()?.read_direct_at(0, &mut bytes).ok()?;
        let written: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] != 0).collect();
        let at = written.get((draw >> 20) as usize % written.len().max(1))?;
        Some(((*name).clone(), *at as u64))
    }

    /// The server, if it serves.
    pub(super) fn serving(&self) -> Option<&Arc<ServerParts>> {
        self.engine.as_ref().filter(|_| self.serves)
    }

    /// Begins a call that may wait.
    pub(super) fn begin(&mut self, run: impl FnOnce(&ServerParts) + Send + 'static) {
        let Some(engine) = self.serving().cloned() else { return };
        let disk = self.disk.clone();
        let mut task = Task::new(move || {
            let _lost = until_lost(&disk, || run(&engine));
        });
        if !task.resume() {
            self.tasks.push(task);
        }
    }

    /// Resumes suspended calls whose wait is over.
    pub(super) fn resume_tasks(&mut self) {
        self.tasks.retain_mut(|task| !task.resume());
    }

    /// A request of a client arrives.
    pub(super) fn request(
        &mut self,
        client: usize,
        conn: NodeConnId,
        header: FrameHeader,
        body: RequestBody,
        payload: Vec<u8>,
    ) {
        let Some(engine) = self.serving().cloned() else { return };
        let (node, post, id) = (self.id, self.post.clone(), conn);
        let rng = &mut self.rng;
        let (conn, responder) = self.doors.entry(id).or_insert_with(|| {
            let mut challenge = [0u8; 32];
            rng.fill(&mut challenge);
            let conn = Arc::new(Conn::new(Some(Caller::root()), challenge));
            let nobody: Arc<dyn Responder> = Arc::new(NodeResponder { node, client, conn: id, post: Post::default() });
            let hello = RequestBody { caller: None, trace: None, request: Some(Request::Hello(Hello::default())) };
            let greeting = FrameHeader::of(FrameKind::Request);
            engine.handle(&conn, &greeting, hello, [][..].into(), &nobody, &mut Scratch::default());
            (conn, Arc::new(NodeResponder { node, client, conn: id, post }))
        });
        let (conn, responder) = (conn.clone(), responder.clone());
        self.begin(move |engine| {
            engine.handle(&conn, &header, body, payload[..].into(), &responder, &mut Scratch::default());
        });
    }

    /// Connections whose other ends can be notified of the end from now on: by its machine when a process dies, and
    /// after a power loss when the machine is back.
    pub(super) fn take_ended(&mut self) -> Vec<NodeConnId> {
        std::mem::take(&mut self.ended)
    }

    /// True if the machine, without a server, rejects messages on this connection: it is over.
    pub(super) fn rejects(&self, conn: NodeConnId) -> bool {
        match self.serves {
            true => self.stale.contains(&conn),
            false => self.refuses,
        }
    }

    /// A connection of a client is gone.
    pub(super) fn disconnect(&mut self, conn: NodeConnId) {
        if let (Some((conn, _)), Some(engine)) = (self.doors.remove(&conn), &self.engine) {
            engine.service.sessions.disconnected(&conn);
        }
    }
}
