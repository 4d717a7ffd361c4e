//! The nodes, the network between them, and a stand-in for the control plane.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use frieze_base::{
    ByteRange, ChainEpoch, ChainId, ChunkId, Fault, InodeId, MonoTime, NodeId, Rng, Seq, SessionId, crc32c,
};
use frieze_disk::{CrashKind, Disk, SimDisk, SimTime, StateFile};
use frieze_hlc::{ClockSettings, Hlc, HlcClock};
use frieze_multilog::{LogPosition, RecoveredItem};
use frieze_tier::{MemoryDemand, Shares};
use frieze_wire::chain::Configuration;
use frieze_wire::message::Durability;
use frieze_wire::peer::ServerMessage;
use prost::Message as _;

use crate::bounds::Bounds;
use crate::{
    ChainEvent, ConfigStore, Content, DataPlane, Layout, WriteAsk, WritePlace, WriteResult, new_chains, replay, resume,
    split,
};
use frieze_net::{PeerPayload, Peers, PeersCell};
use frieze_storage::{Budget, Device, Identity, IdentityStore, ImageBudget, NodeClock, RecoveryLimits, STATE_FILE};

/// Chains of the test.
pub(super) const CHAINS: u32 = 2;
/// The file: its chunks are striped over the chains.
pub(super) const FILE: InodeId = InodeId(77);
pub(super) const CHUNK_BYTES: u64 = 16 << 10;
pub(super) const LAYOUT: Layout = Layout { chunk_bytes: CHUNK_BYTES, chain_count: CHAINS, inode: FILE };

/// A message in flight.
pub(super) struct Packet {
    pub(super) from: NodeId,
    pub(super) to: NodeId,
    pub(super) told: ServerMessage,
    pub(super) payload: PeerPayload,
    /// By chain: the instant at which a read of now at `from` read it when this was sent; `None`: the reader asks
    /// first.
    pub(super) shown: Vec<Option<Hlc>>,
}

/// The network.
#[derive(Default)]
pub(super) struct PacketQueue(Mutex<VecDeque<Packet>>);

impl PacketQueue {
    pub(super) fn queue(&self) -> std::sync::MutexGuard<'_, VecDeque<Packet>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Line {
    from: NodeId,
    net: Arc<PacketQueue>,
    plane: Arc<Mutex<Weak<DataPlane>>>,
}

impl Peers for Line {
    fn send(&self, to: NodeId, message: ServerMessage, payload: PeerPayload) {
        // A node during its start sends a message before it has readers.
        let plane = self.plane.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        let shown = (0..CHAINS).map(|chain| {
            let (plane, chain) = (plane.as_ref()?, ChainId(chain));
            (!plane.has_to_query_tail([chain].into_iter())).then(|| plane.cuts().of(chain))
        });
        self.net.queue().push_back(Packet { from: self.from, to, told: message, payload, shown: shown.collect() });
    }
}

/// A node: its durable state, and its process.
pub(super) struct PlaneNode {
    pub(super) id: NodeId,
    pub(super) disk: SimDisk,
    pub(super) time: SimTime,
    pub(super) plane: Option<Arc<DataPlane>>,
    /// The readers of this node, for the comparison with its messages.
    line: Arc<Mutex<Weak<DataPlane>>>,
    pub(super) reports: Arc<Mutex<Vec<ChainEvent>>>,
    lives: u64,
}

impl PlaneNode {
    fn open(&mut self, net: &Arc<PacketQueue>, shares: &Shares) {
        self.lives += 1;
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let (identity, file) = match Identity::load(&*disk).expect("a readable state") {
            Some(found) => found,
            None => {
                let identity = Identity { node: self.id.0, ..Identity::default() };
                let file = StateFile::open_or_create(&*disk, STATE_FILE).expect("a state file");
                let identity = Identity { format_version: frieze_storage::FORMAT_VERSION, ..identity };
                file.write(&identity.encode_to_vec()).expect("a state file");
                (identity, file)
            }
        };
        let keeper = Arc::new(IdentityStore::new(identity.clone(), file));
        let config_store = ConfigStore::load(disk.clone()).expect("readable config_store");
        let mut chains = new_chains(CHAINS, self.id, &config_store);
        let log = frieze_multilog::LogSettings {
            segment_bytes: 64 << 10,
            block_bytes: 512,
            seed: u64::from(self.id.0) << 32 | self.lives,
        };
        let budget = Budget {
            reserve_bytes: 0,
            index_bytes_max: shares.index,
            shelve_segments: 2,
            shares: *shares,
            images: ImageBudget { pieces_max: 16, percent: 0 },
        };
        let reach = RecoveryLimits {
            upto: Hlc::MAX,
            durable: LogPosition::default(),
            footers_from: frieze_base::SegmentId(0),
            serve_damaged: false,
        };
        let recovered =
            Device::recover(disk.clone(), log, budget, &reach, &config_store.discarded(), &mut |recovered| {
                match recovered {
                    RecoveredItem::Record(header) => {
                        assert_eq!(replay(&mut chains, header), Ok(0), "no record is missing")
                    }
                    RecoveredItem::Indexed { chains: tips, companion, .. } => {
                        resume(&mut chains, tips, companion).expect("what was kept");
                    }
                }
            })
            .expect("a readable log");
        let bound = Hlc(identity.clock_bound).max(recovered.newest);
        let clock = HlcClock::new(ClockSettings::default(), bound);
        let clock = Arc::new(NodeClock::new(clock, Arc::new(self.time.clone()), keeper));
        let way = Arc::new(PeersCell::default());
        let own = Arc::new(Mutex::new(Weak::new()));
        way.open(Arc::new(Line { from: self.id, net: net.clone(), plane: own.clone() }));
        let plane =
            DataPlane::new(Arc::new(recovered.device), clock, chains, (self.id, config_store), way, Arc::new(|| {}));
        let reports = self.reports.clone();
        plane.set_reports(Box::new(move |report| reports.lock().unwrap_or_else(PoisonError::into_inner).push(report)));
        plane.lease().renew(MonoTime(u64::MAX));
        let plane = Arc::new(plane);
        *own.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&plane);
        (self.plane, self.line) = (Some(plane), own);
    }
}

/// Outcome of a write.
pub(super) type Outcome = Arc<Mutex<Option<Result<WriteResult, Fault>>>>;

/// The whole cluster.
pub(super) struct ReplicaCluster {
    pub(super) net: Arc<PacketQueue>,
    pub(super) nodes: Vec<PlaneNode>,
    pub(super) rng: Rng,
    /// One message in so many is lost, and as many are duplicated; 0: none.
    pub(super) lossy: u64,
    /// Messages between these nodes are lost.
    pub(super) cut: BTreeSet<(NodeId, NodeId)>,
    /// No acknowledgement arrives.
    pub(super) without_acks: bool,
    pub(super) configurations: Vec<Configuration>,
    pub(super) shares: Shares,
    next_seq: u64,
}

impl ReplicaCluster {
    /// Nodes 1 to `count`, running; node 1 is the only member of the chains.
    pub(super) fn new(count: u32, seed: u64) -> ReplicaCluster {
        let mut rng = Rng::new(seed);
        let shares = MemoryDemand::default().divide().expect("memory");
        let net = Arc::new(PacketQueue::default());
        let nodes = (1..=count)
            .map(|id| {
                let time = SimTime::new(1_800_000_000_000_000 + rng.below(5_000));
                let reports = Arc::default();
                PlaneNode {
                    id: NodeId(id),
                    disk: SimDisk::new(rng.next()),
                    time,
                    plane: None,
                    line: Arc::default(),
                    reports,
                    lives: 0,
                }
            })
            .collect();
        let alone = Configuration { epoch: ChainEpoch(2), members: vec![NodeId(1)], ..Configuration::default() };
        let mut cluster = ReplicaCluster {
            net,
            nodes,
            rng,
            lossy: 0,
            cut: BTreeSet::new(),
            without_acks: false,
            configurations: vec![alone; CHAINS as usize],
            shares,
            next_seq: 0,
        };
        for id in 1..=count {
            cluster.start(id);
        }
        cluster
    }

    pub(super) fn start(&mut self, id: u32) {
        let (net, shares) = (self.net.clone(), self.shares);
        let node = &mut self.nodes[id as usize - 1];
        node.disk.restart();
        node.open(&net, &shares);
    }

    /// Sets bounds of a node, until its restart.
    pub(super) fn bound(&mut self, id: u32, set: impl FnOnce(&mut Bounds)) {
        let node = &mut self.nodes[id as usize - 1];
        let mut line = node.line.lock().unwrap_or_else(PoisonError::into_inner);
        *line = Weak::new();
        let plane = node.plane.as_mut().expect("the node is on");
        set(&mut Arc::get_mut(plane).expect("nobody else has it").bounds);
        *line = Arc::downgrade(plane);
    }

    pub(super) fn crash(&mut self, id: u32, kind: CrashKind) {
        let node = &mut self.nodes[id as usize - 1];
        node.disk.crash(kind);
        node.plane = None;
        node.reports.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let lost = NodeId(id);
        self.net.queue().retain(|packet| packet.from != lost && packet.to != lost);
    }

    pub(super) fn plane(&self, id: u32) -> &Arc<DataPlane> {
        self.nodes[id as usize - 1].plane.as_ref().expect("the node is on")
    }

    pub(super) fn is_on(&self, id: NodeId) -> bool {
        self.nodes[id.0 as usize - 1].plane.is_some()
    }

    /// Sends the next configuration of a chain to all running nodes.
    pub(super) fn configure(&mut self, chain: u32, members: &[u32], syncing: Option<u32>, joining: bool) {
        let epoch = ChainEpoch(self.configurations[chain as usize].epoch.0 + 1);
        let members = members.iter().copied().map(NodeId).collect();
        let to = Configuration { epoch, members, syncing: syncing.map(NodeId), joining };
        self.configurations[chain as usize] = to.clone();
        for node in &self.nodes {
            if let Some(plane) = &node.plane {
                plane.configure(&[(ChainId(chain), to.clone())]).expect("a disk that works");
            }
        }
    }

    pub(super) fn configure_all(&mut self, members: &[u32]) {
        for chain in 0..CHAINS {
            self.configure(chain, members, None, false);
        }
    }

    /// Advances the time of all nodes.
    pub(super) fn pass(&mut self, micros: u64) {
        self.nodes.iter().for_each(|node| node.time.advance_us(micros));
        self.tick();
    }

    pub(super) fn tick(&self) {
        self.nodes.iter().filter_map(|node| node.plane.as_ref()).for_each(|plane| {
            plane.tick();
        });
    }

    pub(super) fn flush(&self, id: u32) {
        let plane = self.plane(id);
        let end = plane.device().flush().expect("a disk that works");
        plane.device().write_footers(end).expect("a disk that works");
        plane.on_persisted(end);
    }

    pub(super) fn flush_all(&self) {
        self.nodes.iter().filter(|node| node.plane.is_some()).for_each(|node| self.flush(node.id.0));
    }

    /// Delivers one message. False if there is none.
    pub(super) fn deliver(&mut self) -> bool {
        let packet = {
            let mut queue = self.net.queue();
            let at = if self.lossy > 0 && self.rng.chance(4) { self.rng.below(queue.len().max(1) as u64) } else { 0 };
            queue.remove(at as usize)
        };
        let Some(packet) = packet else { return false };
        if self.lossy > 0 && self.rng.chance(self.lossy) || self.cut.contains(&(packet.from, packet.to)) {
            return true;
        }
        if self.without_acks && matches!(packet.told, ServerMessage::ChainAck(_)) {
            return true;
        }
        let times = if self.lossy > 0 && self.rng.chance(self.lossy) { 2 } else { 1 };
        let Some(plane) = self.nodes[packet.to.0 as usize - 1].plane.clone() else { return true };
        for _ in 0..times {
            let crc = packet.payload.crc.unwrap_or_else(|| crc32c(&packet.payload.bytes));
            match plane.on_message(packet.from, packet.told.clone(), crc, (&packet.payload.bytes).into()) {
                Ok(taken) => assert!(taken, "a message of a chain"),
                Err(fault) => assert!(fault.reason != frieze_base::Reason::BadFrame, "{fault}: {:?}", packet.told),
            }
        }
        true
    }

    /// Delivers until no message is in flight; time advances where a node waits.
    pub(super) fn settle(&mut self) {
        for _ in 0..60 {
            while self.deliver() {}
            self.flush_all();
            self.pass(20_000);
        }
        while self.deliver() {}
    }

    /// Asks node `id` to write `len` bytes, whose content identifies the writer and the time.
    pub(super) fn write(&mut self, id: u32, offset: u64, len: usize, durability: Durability) -> (Seq, Outcome) {
        self.next_seq += 1;
        let seq = Seq(self.next_seq);
        (seq, self.write_again(id, seq, offset, len, durability))
    }

    pub(super) fn write_again(&self, id: u32, seq: Seq, offset: u64, len: usize, durability: Durability) -> Outcome {
        let outcome: Outcome = Arc::default();
        let to = outcome.clone();
        let payload = bytes_of(seq, len);
        let place = || {
            let spread = split(offset, len, LAYOUT)?;
            Ok(WritePlace { spread, user_time: None, inherited: None, times_after: Hlc::ZERO, above: Hlc::ZERO })
        };
        let ask = WriteAsk {
            session: SessionId(9),
            seq,
            acked: Seq(0),
            epoch: ChainEpoch(0),
            seen: Hlc::ZERO,
            inode: FILE,
            layout: LAYOUT,
            known_offset: Some(offset),
            at_end: None,
            place: &place,
            recalled: &|_| Ok(()),
            content: Content::Bytes(payload[..].into(), Some(crc32c(&payload))),
            uid: 0,
            durability,
        };
        let reply = Box::new(move |result| *to.lock().unwrap_or_else(PoisonError::into_inner) = Some(result));
        self.plane(id).write(ask, reply);
        outcome
    }

    /// Result of a read of a chunk at node `id`, at an instant or now: bytes or a fault.
    pub(super) fn read(&mut self, id: u32, index: u32, at: Option<Hlc>) -> Result<Vec<u8>, Fault> {
        let chain = LAYOUT.chain(index);
        let done: Arc<Mutex<Option<Result<(), Fault>>>> = Arc::default();
        let to = done.clone();
        let reply = Box::new(move |result| *to.lock().unwrap_or_else(PoisonError::into_inner) = Some(result));
        match at {
            Some(at) => self.plane(id).close_shared(at, Some(&[chain].into()), reply),
            None => self.plane(id).query_tails([chain].into_iter(), reply),
        }
        for _ in 0..5000 {
            if done.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
                break;
            }
            if !self.deliver() {
                self.flush_all();
                self.pass(50_000);
            }
        }
        done.lock().unwrap_or_else(PoisonError::into_inner).take().expect("it ends")?;
        self.plane(id).check_here(chain, at)?;
        let bytes = self.bytes(id, index, at);
        if at.is_none() {
            self.plane(id).check_lease()?;
        }
        Ok(bytes)
    }

    /// The bytes of a chunk in a read at node `id`.
    pub(super) fn bytes(&self, id: u32, index: u32, at: Option<Hlc>) -> Vec<u8> {
        let plane = self.plane(id);
        let mut pieces = Vec::new();
        {
            let log = plane.device().log_of([FILE]).expect("a disk that works");
            let cuts = plane.cuts();
            let at = at.unwrap_or_else(|| cuts.of(LAYOUT.chain(index)));
            let chunk = ChunkId { inode: FILE, index };
            log.plan(chunk, ByteRange::new(0, CHUNK_BYTES), at, Hlc::ZERO, &mut pieces);
        }
        let mut bytes = vec![0; CHUNK_BYTES as usize];
        plane.device().read(&pieces, 0, &mut bytes, &mut Vec::new()).expect("sound bytes");
        bytes
    }

    /// The stamps, numbers and epochs of all records of a chain in a node's log.
    pub(super) fn log(&self, id: u32, chain: u32) -> Vec<(u64, Hlc, ChainEpoch)> {
        let (mut found, mut after) = (Vec::new(), 0);
        loop {
            let records = self.plane(id).device().records_of(ChainId(chain), after, 100).expect("a disk that works");
            let Some(last) = records.last() else { return found };
            after = last.header.n;
            found.extend(records.iter().map(|record| (record.header.n, record.header.stamp, record.header.epoch)));
        }
    }

    /// Reports of node `id` since the last call.
    pub(super) fn reports(&self, id: u32) -> Vec<ChainEvent> {
        std::mem::take(&mut *self.nodes[id as usize - 1].reports.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds `id` to a chain, as the control plane would: syncing, joining, serving.
    pub(super) fn bring_in(&mut self, chain: u32, id: u32) {
        let members: Vec<u32> = self.configurations[chain as usize].members.iter().map(|node| node.0).collect();
        self.configure(chain, &members, Some(id), false);
        let all: Vec<u32> = members.iter().copied().chain([id]).collect();
        let (mut joins, mut serves) = (false, false);
        for _ in 0..100 {
            self.settle();
            let reports: BTreeMap<u32, Vec<ChainEvent>> = all.iter().map(|id| (*id, self.reports(*id))).collect();
            for report in reports.into_values().flatten() {
                match report {
                    ChainEvent::CaughtUp { chain: of, epoch, .. }
                        if of.0 == chain && epoch == self.configurations[chain as usize].epoch && !joins =>
                    {
                        joins = true;
                        self.configure(chain, &all, None, true);
                    }
                    ChainEvent::Ready { chain: of, epoch }
                        if of.0 == chain && epoch == self.configurations[chain as usize].epoch =>
                    {
                        serves = true;
                    }
                    _ => {}
                }
            }
            if serves {
                self.configure(chain, &all, None, false);
                return self.settle();
            }
        }
        panic!("node {id} never came into chain {chain}");
    }
}

/// The bytes of a write.
pub(super) fn bytes_of(seq: Seq, len: usize) -> Vec<u8> {
    (0..len).map(|at| (seq.0 * 131 + at as u64 * 7 + 1) as u8).collect()
}

pub(super) fn outcome(outcome: &Outcome) -> Option<Result<WriteResult, Fault>> {
    outcome.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// A cluster of three members, in this order.
pub(super) fn three() -> ReplicaCluster {
    three_of(1)
}

pub(super) fn three_of(seed: u64) -> ReplicaCluster {
    let mut cluster = ReplicaCluster::new(3, seed);
    cluster.configure_all(&[1]);
    for chain in 0..2 {
        cluster.bring_in(chain, 2);
        cluster.bring_in(chain, 3);
    }
    cluster
}

/// The chain of chunk 0.
pub(super) fn chain() -> u32 {
    LAYOUT.chain(0).0
}

/// Chunk 0 with these writes, each of offset, length and number.
pub(super) fn chunk(writes: &[(u64, usize, frieze_base::Seq)]) -> Vec<u8> {
    let mut bytes = vec![0; CHUNK_BYTES as usize];
    for (offset, len, seq) in writes {
        bytes[*offset as usize..*offset as usize + len].copy_from_slice(&bytes_of(*seq, *len));
    }
    bytes
}
