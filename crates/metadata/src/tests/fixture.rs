//! Servers on simulated disks, the network between them, and transactions.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use frieze_base::{Fault, InodeId, LogIndex, NodeId, Seq, SessionId};
use frieze_disk::{CrashKind, Disk, SimDisk, SimTime, StateFile};
use frieze_hlc::{ClockSettings, Hlc, HlcClock};
use frieze_metalog::DataEnd;
use frieze_net::{PeerPayload, Peers};
use frieze_storage::{
    Budget, Device, FORMAT_VERSION, Identity, IdentityStore, ImageBudget, MetalogRole, NodeClock, RecoveryLimits,
    STATE_FILE,
};
use frieze_tier::MemoryDemand;
use frieze_wire::peer::ServerMessage;
use frieze_wire::txn::{Caller, Format, Make, MakeKind, Op, OpenSession, Outcome, Target, Transaction};
use prost::Message as _;

use crate::{MemoryStore, Metadata, MetadataHost, NameVersions, PeerMetalog, RecoverUpto};

/// Bytes of a chunk.
pub(crate) const CHUNK_BYTES: u64 = 4096;
/// Chains of the file system.
pub(crate) const CHAINS: u32 = 4;
const STARTED_US: u64 = 1_800_000_000_000_000;
/// Time between two looks at what waits.
const STEP_US: u64 = 2_000;

/// A message under way.
struct Letter {
    from: NodeId,
    to: NodeId,
    told: ServerMessage,
    payload: PeerPayload,
}

#[derive(Default)]
struct Wire(Mutex<VecDeque<Letter>>);

impl Wire {
    fn queue(&self) -> MutexGuard<'_, VecDeque<Letter>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Port {
    from: NodeId,
    wire: Arc<Wire>,
}

impl Peers for Port {
    fn send(&self, to: NodeId, message: ServerMessage, payload: PeerPayload) {
        self.wire.queue().push_back(Letter { from: self.from, to, told: message, payload });
    }
}

/// Several servers in one thread: a server that waits for others runs them meanwhile.
pub(crate) struct Servers {
    pub(crate) nodes: Vec<Metadata>,
    machines: Vec<LoneMachine>,
    wire: Arc<Wire>,
    time: SimTime,
    cut_off: Mutex<BTreeSet<NodeId>>,
}

impl Servers {
    /// Server 1 has a file system and is the only member of its metalog; the others wait to be added.
    pub(crate) fn new(count: u32) -> Arc<Servers> {
        let (wire, time) = (Arc::<Wire>::default(), SimTime::new(STARTED_US));
        let machine = |id: u32| LoneMachine {
            disk: SimDisk::new(id.into()),
            store: MemoryStore::default(),
            time: time.clone(),
            id: NodeId(id),
            wire: wire.clone(),
            names_bytes_max: 1 << 30,
        };
        let machines: Vec<LoneMachine> = (1..=count).map(machine).collect();
        let nodes = machines.iter().map(|machine| machine.open().expect("an empty directory").0).collect::<Vec<_>>();
        nodes[0].begin().expect("it leads");
        format(&nodes[0]);
        nodes[0].bootstrap(&|| Ok(())).expect("the only member leads");
        let servers = Arc::new(Servers { nodes, machines, wire, time: time.clone(), cut_off: Mutex::default() });
        for node in &servers.nodes {
            let all: Weak<Servers> = Arc::downgrade(&servers);
            let step = Box::new(move || all.upgrade().iter().for_each(|servers| servers.step()));
            assert!(node.idle().set(step).is_ok(), "it is set once");
        }
        servers
    }

    pub(crate) fn node(&self, id: u32) -> &Metadata {
        &self.nodes[id as usize - 1]
    }

    /// The machine of a server.
    pub(crate) fn machine(&self, id: u32) -> &LoneMachine {
        &self.machines[id as usize - 1]
    }

    /// All messages from and to a server are lost, or none any more.
    pub(crate) fn cut_off(&self, id: u32, is_cut: bool) {
        let mut cut = self.cut_off.lock().unwrap_or_else(PoisonError::into_inner);
        match is_cut {
            true => cut.insert(NodeId(id)),
            false => cut.remove(&NodeId(id)),
        };
    }

    /// Time goes by: journals are flushed, timers run, and the messages under way arrive.
    pub(crate) fn step(&self) {
        self.time.advance_us(STEP_US);
        for node in &self.nodes {
            if node.await_journal(Duration::ZERO) {
                let _failed = node.sync(node.mark());
            }
            node.tick();
        }
        let letters = std::mem::take(&mut *self.wire.queue());
        let cut = self.cut_off.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for Letter { from, to, told, payload } in letters {
            if cut.contains(&from) || cut.contains(&to) {
                continue;
            }
            let message = match told {
                ServerMessage::Metalog(message) => PeerMetalog::Message(message),
                ServerMessage::MetalogPiece(piece) => PeerMetalog::Piece(piece),
                ServerMessage::MetalogHeld(held) => PeerMetalog::Held(held),
                ServerMessage::MetalogClose(close) => PeerMetalog::Close(close),
                other => panic!("metadata sends {other:?}"),
            };
            self.node(to.0).on_peer_message(from, message, &payload.bytes).expect("a whole message");
        }
    }

    /// Steps until `is_done`, some seconds at most.
    pub(crate) fn run_until(&self, what: &str, is_done: impl Fn() -> bool) {
        let is_reached = (0..10_000).any(|_| {
            self.step();
            is_done()
        });
        assert!(is_reached, "{what} takes too long");
    }
}

/// A lone server with a file system.
pub(crate) fn lone() -> Metadata {
    LoneMachine::new(1).serve()
}

/// A machine with a server, which ends and starts again: alone, unless its directory says otherwise.
pub(crate) struct LoneMachine {
    pub(crate) disk: SimDisk,
    pub(crate) store: MemoryStore,
    time: SimTime,
    id: NodeId,
    wire: Arc<Wire>,
    /// Memory for names, bytes.
    pub(crate) names_bytes_max: u64,
}

impl LoneMachine {
    /// A machine whose losses are drawn from `seed`.
    pub(crate) fn new(seed: u64) -> LoneMachine {
        let (store, time) = (MemoryStore::default(), SimTime::new(STARTED_US));
        let (disk, id, wire) = (SimDisk::new(seed), NodeId(1), Arc::default());
        LoneMachine { disk, store, time, id, wire, names_bytes_max: 1 << 30 }
    }

    /// Starts the server on what is there. Also returns the notes of its recovery.
    pub(crate) fn open(&self) -> Result<(Metadata, Vec<String>), Fault> {
        self.open_with(false)
    }

    /// The same, where damage may be served.
    pub(crate) fn open_with(&self, serve_damaged: bool) -> Result<(Metadata, Vec<String>), Fault> {
        self.time.advance_us(STEP_US);
        let standing = if self.id == NodeId(1) { MetalogRole::Alone } else { MetalogRole::Joining };
        let way = Arc::new(Port { from: self.id, wire: self.wire.clone() });
        let (disk, store) = (Arc::new(self.disk.clone()), self.store.clone());
        try_open((disk, store), (self.id, standing), &self.time, way, (serve_damaged, self.names_bytes_max))
    }

    /// The process ends, or the machine.
    pub(crate) fn crash(&self, kind: CrashKind) {
        self.disk.crash(kind);
        self.disk.restart();
        self.store.lose_memory();
    }

    /// The same, with a file system.
    pub(crate) fn serve(&self) -> Metadata {
        let (metadata, _) = self.open().expect("it starts");
        metadata.begin().expect("it leads");
        if metadata.awaits_format() {
            format(&metadata);
        }
        metadata
    }
}

fn try_open(
    (disk, store): (Arc<dyn Disk>, MemoryStore),
    (id, standing): (NodeId, MetalogRole),
    time: &SimTime,
    way: Arc<dyn Peers>,
    (serve_damaged, names): (bool, u64),
) -> Result<(Metadata, Vec<String>), Fault> {
    let (identity, file) = match Identity::load(&*disk)? {
        Some(found) => found,
        None => {
            let identity = Identity {
                node: id.0,
                format_version: FORMAT_VERSION,
                standing: standing as i32,
                has_joined: standing != MetalogRole::Alone,
                ..Identity::default()
            };
            let file = StateFile::open_or_create(&*disk, STATE_FILE)?;
            file.write(&identity.encode_to_vec())?;
            (identity, file)
        }
    };
    let kept_memory = !identity.is_returning;
    let keeper = Arc::new(IdentityStore::new(identity, file));
    let settings = frieze_multilog::LogSettings { segment_bytes: 64 << 10, block_bytes: 512, ..Default::default() };
    let shares = MemoryDemand { names: Some(names), ..MemoryDemand::default() }.divide().expect("memory");
    let budget = Budget {
        reserve_bytes: 0,
        index_bytes_max: shares.index,
        shelve_segments: 2,
        shares,
        images: ImageBudget { pieces_max: 16, percent: 0 },
    };
    let reach = RecoveryLimits {
        upto: Hlc::MAX,
        durable: Default::default(),
        footers_from: frieze_base::SegmentId(0),
        serve_damaged: false,
    };
    let recovered = Device::recover(disk.clone(), settings, budget, &reach, &[], &mut |_| {})?;
    let data_end = DataEnd { segment: recovered.end.segment, offset: recovered.end.offset };
    let clock = HlcClock::new(ClockSettings::default(), Hlc::ZERO);
    let clock = Arc::new(NodeClock::new(clock, Arc::new(time.clone()), keeper.clone()));
    let host = MetadataHost {
        clock,
        keeper,
        device: Arc::new(recovered.device),
        disk,
        way,
        seed: id.0.into(),
        lease: Duration::from_secs(1),
        segment_bytes: 1 << 20,
        incarnation: 1,
        kept_memory,
        stamp_bound: Hlc::ZERO,
        wake: Arc::new(|| {}),
    };
    let upto = RecoverUpto { data_end, durable: LogIndex(0), is_cut: false, serve_damaged };
    Metadata::recover(host, NameVersions::open(Box::new(store))?, &upto)
}

fn format(metadata: &Metadata) {
    let format = Format { chunk_bytes: CHUNK_BYTES, chain_count: CHAINS, uid: 0, gid: 0, mode: 0o755 };
    run(metadata, SessionId(0), Seq(0), Op::Format(format)).expect("an empty file system");
}

/// Runs an operation of the superuser.
pub(crate) fn run(metadata: &Metadata, session: SessionId, seq: Seq, op: Op) -> Result<Outcome, Fault> {
    run_as(metadata, Caller::root(), session, seq, op)
}

/// Runs an operation of a caller.
pub(crate) fn run_as(
    metadata: &Metadata,
    caller: Caller,
    session: SessionId,
    seq: Seq,
    op: Op,
) -> Result<Outcome, Fault> {
    let transaction = Transaction { session: session.0, seq: seq.0, acked: 0, caller, must_see: 0, op: Some(op) };
    metadata.execute(transaction, None)?.into_result()
}

/// Opens a session of user `uid`.
pub(crate) fn open_session(metadata: &Metadata, uid: u32, keeps: bool) -> SessionId {
    let open = OpenSession { command: format!("program of {uid}"), host: "here".to_owned(), uid, keeps };
    SessionId(run(metadata, SessionId(0), Seq(0), Op::OpenSession(open)).expect("it is opened").id)
}

/// The target of a path from the root.
pub(crate) fn target(path: &str) -> Target {
    Target { base: InodeId::ROOT.0, path: path.as_bytes().to_vec(), follow: false }
}

/// Makes something at a path.
pub(crate) fn make(path: &str, kind: MakeKind) -> Op {
    Op::Make(Make { target: target(path), mode: 0o644, kind: Some(kind), ..Make::default() })
}
