//! The data plane of one device: chains order, stamp and deduplicate writes; the device appends them; readers see what
//! is committed.
//!
//! Guarantees: one append runs at a time, so a stamp is visible before the next is given; a write that crosses chunks
//! is one group with one stamp, visible wholly or not at all; a retry runs once; a read at a closed instant never
//! changes. Leaves to others: rights and the end of the file (`engine`), when to flush (`durability`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use bytes::Bytes;
use frieze_base::{ChainEpoch, ChainId, ChunkId, Fault, InodeId, MonoTime, NodeId, Reason, Seq, SessionId};
use frieze_chain::{
    AppendToken, Configuration, LogEnd, Moment, Replayed, Replica, ReplicaEffect, ReplicaInput, RequestId,
    RequestOutcome, RequestState, WriteRequest,
};
use frieze_hlc::{Hlc, UserTime};
use frieze_multilog::{ChainTip, LogPosition, RecordKind, RecordMeta};
use frieze_wire::message::Durability;

use crate::observer::{PublishObserver, Publishing};
use frieze_net::{Idle, PeersCell, ReceivedPayload, SentPrefix};
use frieze_storage::{Device, Few, NodeClock, block_checksums};

use crate::bounds::{Bounds, Lease};
use crate::chain_state::{Held, Member, Out, Waiter};
use crate::chains::Report;
use crate::config_store::Roles;
use crate::striping::{Layout, Spread, in_one_record};
use crate::striping::{Part, fits_one_chunk};

/// Retries that wait for one request; a further one is refused and comes later.
const RETRIES_MAX: usize = 16;
/// Permanently refused appends of one session whose duplicates may still arrive.
const REFUSED_MAX: usize = 64;
/// Configuration number of a new file system. Each start is a configuration of its own, so a record number that a power
/// loss took is never used twice in one configuration.
const FIRST_EPOCH: ChainEpoch = ChainEpoch(1);
/// The node that creates a file system. Until other nodes join it is the only member of all chains.
const FIRST_NODE: NodeId = NodeId(1);

/// A write that the engine has checked.
pub struct WriteAsk<'a> {
    /// Session of the client.
    pub session: SessionId,
    /// Number of the request.
    pub seq: Seq,
    /// Every number below it has been answered.
    pub acked: Seq,
    /// Configuration that the client knows; 0 for the current one.
    pub epoch: ChainEpoch,
    /// Newest stamp that the client has received.
    pub seen: Hlc,
    /// The file.
    pub inode: InodeId,
    /// Its layout.
    pub layout: Layout,
    /// The offset, if it is known in advance.
    pub known_offset: Option<u64>,
    /// For an append where chains have several members: the file has to end in a chunk of this chain, or nothing is
    /// written. So a retry reaches a head of the chain that would have the record.
    pub at_end: Option<ChainId>,
    /// Returns the place of the write, or the reason to refuse it, while no other write can run.
    pub place: &'a dyn Fn() -> Result<Placed, Fault>,
    /// New content of the range.
    pub content: Content<'a>,
    /// User of the request.
    pub uid: u32,
    /// Durability level at which the reply is sent.
    pub durability: Durability,
}

/// New content of a range.
#[derive(Clone, Copy)]
pub enum Content<'a> {
    /// Bytes, and their CRC32C as the client computed it, if they were sent.
    Bytes(ReceivedPayload<'a>, Option<u32>),
    /// Nothing: a hole.
    Hole,
}

impl Content<'_> {
    fn kind(&self) -> RecordKind {
        match self {
            Content::Bytes(..) => RecordKind::Write,
            Content::Hole => RecordKind::Punch,
        }
    }
}

/// Values that depend on the place of a write.
pub struct Placed {
    /// Chunks and chains of the write.
    pub spread: Spread,
    /// User time of the data, if a plug-in found one: of the record, or of the last row that ends in it.
    pub user_time: Option<UserTime>,
    /// Newest user time that a file has from its origin, if it has none of its own.
    pub inherited: Option<UserTime>,
    /// User times of records stamped up to here do not count.
    pub times_after: Hlc,
    /// Lower bound of its stamp, exclusive: other chains have records up to it.
    pub above: Hlc,
}

/// Result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its stamp.
    pub stamp: Hlc,
    /// Where in the file.
    pub offset: u64,
    /// End of the write in the file. For a retry only the end of its first part is known.
    pub end: u64,
}

/// Called once with the outcome of a write, by the thread that completes it.
pub type WriteReply = Box<dyn FnOnce(Result<Written, Fault>) + Send>;

/// The chains of one device and the device.
pub struct DataPlane {
    pub(crate) device: Arc<Device>,
    pub(crate) clock: Arc<NodeClock>,
    epoch: ChainEpoch,
    /// This node's id among the members of chains.
    pub(crate) me: NodeId,
    pub(crate) appender: Mutex<Appender>,
    /// For each chain the instant at which a read of now reads: `MAX`, or below its first dirty record. The holder of
    /// the appender's lock changes it for all chains of a group at once.
    pub(crate) cuts: RwLock<Vec<Hlc>>,
    closed: AtomicU64,
    pub(crate) caching: OnceLock<Arc<dyn PublishObserver>>,
    pub(crate) roles: Roles,
    pub(crate) lease: Lease,
    pub(crate) bounds: Bounds,
    pub(crate) pace: crate::catch_up::Pace,
    /// See [`DataPlane::supplied_bytes`].
    pub(crate) supplied: AtomicU64,
    pub(crate) shown: crate::visibility::Shown,
    /// Notified when a chain has more room.
    pub(crate) room: Condvar,
    pub(crate) room_lock: Mutex<()>,
    pub(crate) way: Arc<PeersCell>,
    /// Receiver of reports: the control plane.
    pub(crate) reports: OnceLock<Box<dyn Fn(Report) + Send + Sync>>,
    /// Called when a request waits for a flush.
    pub(crate) wake: Arc<dyn Fn() + Send + Sync>,
    /// Called in place of blocking on other members, when a single thread drives the whole cluster (simulator).
    pub(crate) idle: OnceLock<Idle>,
}

/// State of which one append at a time has the lock.
pub struct Appender {
    pub(crate) chains: Vec<Replica>,
    /// Driver state of each chain, beside its replica.
    pub(crate) members: Vec<Member>,
    pub(crate) waiters: BTreeMap<u64, Waiter>,
    pub(crate) next_waiter: u64,
    /// When barriers last asked the other members.
    pub(crate) barriers_asked: MonoTime,
    /// Time of the last message of each other node.
    pub(crate) heard: BTreeMap<NodeId, MonoTime>,
    groups: BTreeMap<u64, Group>,
    in_flight: BTreeMap<(SessionId, Seq), u64>,
    /// Acknowledged numbers of each session. A chain drops its entries below by itself; a late duplicate of an append
    /// may now end on another chain, which never had the request.
    acked: BTreeMap<SessionId, Seq>,
    /// Appends that were refused with `Busy`: their clients retry under new numbers, so their duplicates are refused
    /// too.
    refused: BTreeSet<(SessionId, Seq)>,
    next_group: u64,
}

impl Appender {
    /// Records that `session` has acknowledged numbers below `acked`, in its request `seq`. Returns the first number
    /// that is still remembered.
    fn acknowledge(&mut self, session: SessionId, acked: Seq, seq: Seq) -> Seq {
        let floor = self.acked.entry(session).or_default();
        *floor = (*floor).max(acked.min(seq));
        let floor = *floor;
        self.forget_refused(session, floor);
        floor
    }

    /// True if a request has a record here, committed or not.
    fn has_record(&self, session: SessionId, seq: Seq) -> bool {
        self.chains.iter().any(|chain| chain.outcome_of(session, seq).is_some())
    }

    /// Drops refused appends below the first number that the session may still use.
    fn forget_refused(&mut self, session: SessionId, below: Seq) {
        while let Some(request) = self.refused.range((session, Seq(0))..(session, below)).next().copied() {
            self.refused.remove(&request);
        }
    }
}

/// A write whose parts are not all complete.
struct Group {
    request: (SessionId, Seq),
    inode: InodeId,
    left: u8,
    chunk_bytes: u64,
    /// End of the write in the file.
    end: u64,
    first: Option<Written>,
    failed: Option<Fault>,
    replies: Few<WriteReply>,
}

/// Fresh chains of node `me` for recovery to replay into. If the control plane has configured a chain, this node has no
/// role in it until a newer configuration names it.
pub fn new_chains(count: u32, me: NodeId, roles: &Roles) -> Vec<Replica> {
    let configuration = |chain| match roles.epoch(chain) {
        Some(epoch) => Configuration { epoch, ..Configuration::default() },
        None if me == FIRST_NODE => Configuration { epoch: FIRST_EPOCH, members: vec![me], ..Configuration::default() },
        None => Configuration::default(),
    };
    let settings = frieze_chain::Settings::default();
    (0..count).map(ChainId).map(|id| Replica::member(id, me, configuration(id), settings.clone())).collect()
}

/// Chains without a role.
pub(crate) fn fresh(count: u32, me: NodeId) -> Vec<Replica> {
    let settings = frieze_chain::Settings::default();
    let nobody = Configuration::default;
    (0..count).map(|id| Replica::member(ChainId(id), me, nobody(), settings.clone())).collect()
}

/// Replays a recovered record into its chain. Returns how many records of the chain are missing before it.
///
/// # Errors
/// `Corrupt` if the record cannot follow what the chain holds.
pub fn replay(chains: &mut [Replica], meta: &RecordMeta) -> Result<u64, Fault> {
    let Some(chain) = chains.get_mut(meta.chain.0 as usize) else {
        return Err(Fault::new(
            Reason::Corrupt,
            format!("a record of chain {} was found, but this directory has {} chains", meta.chain, chains.len()),
        ));
    };
    chain
        .replay(&Replayed {
            epoch: meta.epoch,
            n: meta.n,
            stamp: meta.stamp,
            session: meta.session,
            seq: meta.seq,
            part: meta.part,
            chunk: meta.chunk,
            offset: meta.offset,
        })
        .map_err(Fault::from)
}

impl DataPlane {
    /// The data plane over a recovered device and its chains.
    pub fn new(
        device: Arc<Device>,
        clock: Arc<NodeClock>,
        mut chains: Vec<Replica>,
        (me, roles): (NodeId, Roles),
        way: Arc<PeersCell>,
        wake: Arc<dyn Fn() + Send + Sync>,
    ) -> DataPlane {
        let last = chains.iter().map(Replica::epoch).max().unwrap_or(FIRST_EPOCH);
        let epoch = ChainEpoch(last.0 + 1);
        let moment = Moment { mono: clock.reading().mono, hlc: clock.newest() };
        let mut members = Vec::with_capacity(chains.len());
        for chain in &mut chains {
            let shared = me != FIRST_NODE || roles.epoch(chain.chain()).is_some();
            if !shared {
                let alone = Configuration { epoch, members: vec![me], ..Configuration::default() };
                chain.step(moment, ReplicaInput::Configure(alone), &mut Vec::new());
            }
            members.push(Member::of(shared));
        }
        let any_shared = members.iter().any(|member| member.shared);
        let shown = crate::visibility::Shown::new(&chains, any_shared);
        let cuts = RwLock::new(chains.iter().map(Replica::now_cut).collect());
        let closed = chains.iter().map(|chain| chain.closed().0).min().unwrap_or(0);
        let appender = Mutex::new(Appender {
            chains,
            members,
            waiters: BTreeMap::new(),
            next_waiter: 1,
            barriers_asked: MonoTime(0),
            heard: BTreeMap::new(),
            groups: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            acked: BTreeMap::new(),
            refused: BTreeSet::new(),
            next_group: 1,
        });
        let plane = DataPlane {
            device,
            clock,
            epoch,
            me,
            appender,
            cuts,
            closed: AtomicU64::new(closed),
            caching: OnceLock::new(),
            roles,
            lease: Lease::default(),
            bounds: Bounds::default(),
            pace: crate::catch_up::Pace::default(),
            supplied: AtomicU64::new(0),
            shown,
            room: Condvar::new(),
            room_lock: Mutex::new(()),
            way,
            reports: OnceLock::new(),
            wake,
            idle: OnceLock::new(),
        };
        if any_shared {
            let appender = plane.hold_writes();
            plane.show(&appender, (0..appender.chains.len()).map(|chain| ChainId(chain as u32)));
        }
        plane
    }

    /// Sets the receiver of chain reports. Once only.
    pub fn report_to(&self, reports: Box<dyn Fn(Report) + Send + Sync>) {
        // Called once, at the start.
        let _ = self.reports.set(reports);
    }

    /// Sets the function that runs in place of blocking on other members. Once only.
    pub fn wait_by(&self, idle: Idle) {
        // Called once, at the start.
        let _ = self.idle.set(idle);
    }

    /// The configuration in force.
    pub fn epoch(&self) -> ChainEpoch {
        self.epoch
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Locks out every write: for operations of the namespace that decide what present bytes are.
    pub fn hold_writes(&self) -> MutexGuard<'_, Appender> {
        self.appender.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets `caching` as the observer of every write before it becomes visible.
    pub fn watch(&self, caching: Arc<dyn PublishObserver>) {
        // Called once, at the start.
        let _ = self.caching.set(caching);
    }

    /// Writes, and replies through `reply`: at once, or for `sync` when [`DataPlane::persisted`] covers the write.
    pub fn write(&self, ask: WriteAsk<'_>, reply: WriteReply) {
        let block = self.device.block_bytes();
        // A write within one chunk, by far the usual case, is checksummed before the lock is taken.
        let (mut ahead, mut bytes, mut gone) = (None, None, None);
        if let (Content::Bytes(payload, expected), Some(offset)) = (ask.content, ask.known_offset)
            && fits_one_chunk(offset, payload.len(), ask.layout)
        {
            let (crcs, crc) = block_checksums(&payload, block);
            if expected.is_some_and(|expected| crc != expected) {
                reply(Err(damaged()));
                return;
            }
            ahead = Some(crcs);
            let chain = ask.layout.chain((offset / ask.layout.chunk_bytes) as u32);
            bytes = self.forwards(chain).then(|| payload.keep(&payload));
            gone = payload.ahead();
        }
        // Loaded before the lock, which other writers wait for.
        if let Err(fault) = self.device.log_of([ask.inode]).map(drop) {
            reply(Err(fault));
            return;
        }
        if self.is_shared()
            && let Err(fault) =
                self.await_room(ask.at_end.unwrap_or_else(|| {
                    ask.layout.chain((ask.known_offset.unwrap_or(0) / ask.layout.chunk_bytes) as u32)
                }))
        {
            reply(Err(fault));
            return;
        }
        let mut out = Out::default();
        let mut appender = self.hold_writes();
        let held = self.write_held(&mut appender, ask, (ahead, bytes, gone), reply, &mut out);
        drop(appender);
        match held {
            Ok(Some((end, len))) => self.device.begin_flush(end, len),
            Ok(None) => {}
            Err((reply, fault)) => out.done.push((reply, Err(fault))),
        }
        // Replies are sent outside of the lock: a reply is a system call.
        self.finish_out(out);
    }

    /// Returns the end of the last append and its bytes, if a request waits for its durability.
    fn write_held(
        &self,
        appender: &mut Appender,
        ask: WriteAsk<'_>,
        (ahead, copied, mut gone): (Option<Vec<u32>>, Option<Bytes>, Option<SentPrefix>),
        reply: WriteReply,
        out: &mut Out,
    ) -> Result<Option<(LogPosition, u64)>, (WriteReply, Fault)> {
        macro_rules! try_or_reply {
            ($result:expr) => {
                match $result {
                    Ok(value) => value,
                    Err(fault) => return Err((reply, fault)),
                }
            };
        }
        // A retry is answered with its first run, wherever that placed an append.
        if let Some(group) = appender.in_flight.get(&(ask.session, ask.seq)) {
            let group = appender.groups.get_mut(group).expect("a request in flight has its group");
            if group.replies.len() >= RETRIES_MAX {
                return Err((reply, Reason::Overloaded.into()));
            }
            group.replies.push(reply);
            return Ok(None);
        }
        let floor = appender.acknowledge(ask.session, ask.acked, ask.seq);
        if ask.seq < floor {
            let (seq, session) = (ask.seq, ask.session);
            let words =
                format!("request {seq} of session {session} was acknowledged: everything below {floor} is forgotten");
            return Err((reply, Fault::new(Reason::SequenceTooOld, words)));
        }
        let shared = self.is_shared();
        if let Some(written) = try_or_reply!(appender.done_before(self.me, ask.session, ask.seq, ask.layout)) {
            let len = match ask.content {
                Content::Bytes(payload, _) => payload.len(),
                Content::Hole => 1,
            };
            if ask.at_end.is_some() {
                // In one record, wherever it was placed.
                out.done.push((reply, Ok(Written { end: written.offset + len as u64, ..written })));
                return Ok(None);
            }
            if !shared || fits_one_chunk(written.offset, len, ask.layout) {
                out.done.push((reply, Ok(written)));
                return Ok(None);
            }
            // A head may have failed before the rest was written: a request with a record is answered with it.
        }
        if let Some(chain) = ask.at_end {
            // Only the head of the chain knows what was appended under this number; no other member may answer that
            // nothing was.
            try_or_reply!(self.check_stamps(appender, std::iter::once(chain)));
            if appender.refused.contains(&(ask.session, ask.seq)) {
                let words = "this append was refused before, when it was sent first: ask under another number";
                return Err((reply, Fault::new(Reason::Busy, words)));
            }
        }
        let mut before = None;
        if let (Some(chain), Content::Bytes(payload, _)) = (ask.at_end, ask.content)
            && let Some(record) = appender.chains[chain.0 as usize].in_flight_of(ask.session, ask.seq)
        {
            // An earlier head placed it.
            let offset = u64::from(record.chunk.index) * ask.layout.chunk_bytes + u64::from(record.offset);
            before = Some((offset, payload.len()));
        }
        let Placed { spread: Spread { parts, end }, user_time, inherited, times_after, above } = match before {
            // A retried append keeps its place.
            Some((offset, len)) => {
                let spread = try_or_reply!(in_one_record(offset, len, ask.layout));
                Placed { spread, user_time: None, inherited: None, times_after: Hlc::ZERO, above: Hlc::ZERO }
            }
            None => match ((ask.place)(), ask.at_end) {
                (Ok(placed), _) => placed,
                (Err(fault), Some(chain)) => {
                    return Err((reply, self.refuse(appender, chain, (ask.session, ask.seq), fault)));
                }
                (Err(fault), None) => return Err((reply, fault)),
            },
        };
        if let Some(chain) = ask.at_end
            && before.is_none()
            && ask.layout.chain(parts[0].chunk) != chain
        {
            let words = format!("the file ends in chunk {}.{}: append there", ask.inode, parts[0].chunk);
            let fault = Fault::new(Reason::Busy, words);
            return Err((reply, self.refuse(appender, chain, (ask.session, ask.seq), fault)));
        }
        if shared {
            let chains = parts.iter().map(|part| ask.layout.chain(part.chunk));
            try_or_reply!(self.check_stamps(appender, chains));
            try_or_reply!(self.clock.observe(above));
        }
        // The observer recalls caches before the bytes become visible.
        let _publishing =
            self.caching.get().map(|caching| Publishing::of(&**caching, (ask.session, ask.seq), ask.inode));
        let mut crcs: Few<Vec<u32>> = Few::new();
        match (ahead, ask.content) {
            (Some(ahead), _) => crcs.push(ahead),
            (None, Content::Hole) => crcs.resize(parts.len(), Vec::new()),
            (None, Content::Bytes(payload, expected)) => {
                let mut whole = 0;
                for part in &parts {
                    let (blocks, crc) = block_checksums(part.bytes(&payload), self.device.block_bytes());
                    whole = frieze_base::crc32c_combine(whole, crc, part.len.into());
                    crcs.push(blocks);
                }
                if expected.is_some_and(|expected| whole != expected) {
                    return Err((reply, damaged()));
                }
            }
        }
        let (newest_user_time, chunk_versions) = {
            let log = try_or_reply!(self.device.log_of([ask.inode]));
            let newest = user_time.and_then(|_| log.newest_user_time(ask.inode, times_after, Hlc::MAX).or(inherited));
            let version = |part: &Part| log.chunk_version(ChunkId { inode: ask.inode, index: part.chunk });
            (newest, parts.iter().map(version).collect::<Few<u64>>())
        };
        let (hlc, mono) = try_or_reply!(self.clock.tick());
        let moment = Moment { mono, hlc };
        // The parts of a group become visible together: if one has to wait for the disk behind another request's `sync`
        // write, all do.
        let waits = parts.len() > 1
            && !shared
            && parts.iter().any(|part| appender.chains[ask.layout.chain(part.chunk).0 as usize].in_flight() > 0);
        let durability = if waits { Durability::Sync } else { ask.durability };
        let group_id = appender.next_group;
        appender.next_group += 1;
        appender.groups.insert(
            group_id,
            Group {
                request: (ask.session, ask.seq),
                inode: ask.inode,
                left: parts.len() as u8,
                chunk_bytes: ask.layout.chunk_bytes,
                end,
                first: None,
                failed: None,
                replies: Few::from_iter([reply]),
            },
        );
        appender.in_flight.insert((ask.session, ask.seq), group_id);
        let mut effects = Vec::new();
        let (mut metas, mut payloads): (Few<RecordMeta>, Few<&[u8]>) = (Few::new(), Few::new());
        let (mut tokens, mut numbers): (Few<(ChainId, AppendToken)>, Few<usize>) = (Few::new(), Few::new());
        for (index, part) in parts.iter().enumerate() {
            let chunk = ChunkId { inode: ask.inode, index: part.chunk };
            let chain = ask.layout.chain(part.chunk);
            let request = WriteRequest {
                request: RequestId(group_id << 8 | index as u64),
                session: ask.session,
                seq: ask.seq,
                acked: ask.acked,
                epoch: match appender.members[chain.0 as usize].shared {
                    // The client has found the head, which is all that matters here: chains have epochs of their own.
                    true => appender.chains[chain.0 as usize].epoch(),
                    false if ask.epoch == ChainEpoch(0) => self.epoch,
                    false => ask.epoch,
                },
                seen: ask.seen,
                chunk,
                offset: part.offset,
                len: part.len,
                file_offset: part.at(ask.layout),
                part: index as u8,
                parts: parts.len() as u8,
                user_time,
                uid: ask.uid,
                durability,
                chunk_version: chunk_versions[index],
                newest_user_time,
                times_after,
            };
            appender.chains[chain.0 as usize].step(moment, ReplicaInput::Write(request), &mut effects);
            let mut others = Vec::new();
            for effect in effects.drain(..) {
                match effect {
                    ReplicaEffect::Append { token, n, epoch, version, stamp, .. } => {
                        tokens.push((chain, token));
                        numbers.push(index);
                        payloads.push(match ask.content {
                            Content::Bytes(payload, _) => part.bytes(payload.bytes()),
                            Content::Hole => &[],
                        });
                        metas.push(RecordMeta {
                            kind: ask.content.kind(),
                            chain,
                            epoch,
                            n,
                            chunk,
                            version,
                            stamp,
                            user_time,
                            session: ask.session,
                            seq: ask.seq,
                            uid: ask.uid,
                            offset: part.offset,
                            len: part.len,
                            part: index as u8,
                            parts: parts.len() as u8,
                        });
                    }
                    other => others.push(other),
                }
            }
            self.carry(appender, chain, others, None, out);
            let refused = appender.groups.get(&group_id).is_none_or(|group| group.failed.is_some());
            if refused {
                // One part was refused: the other parts are withdrawn.
                self.withdraw(appender, &tokens, Reason::Busy, moment, out);
                appender.finish(group_id, &mut out.done);
                return Ok(None);
            }
        }
        if metas.is_empty() {
            // All parts already have records, from an earlier head: they are the answer.
            return Ok(None);
        }
        if metas.len() < parts.len() {
            // Some parts have records: the other parts form no group with them.
            metas.iter_mut().for_each(|meta| meta.parts = u8::from(meta.part == 0));
            crcs = numbers.iter().map(|number| std::mem::take(&mut crcs[*number])).collect();
        }
        if durability == Durability::Sync || shared {
            // Hidden before it is published: no reader sees it appear, vanish and appear again.
            self.show(appender, tokens.iter().map(|(chain, _)| *chain));
        }
        match self.device.append(&metas, &payloads, &crcs) {
            Ok(position) => {
                let end = LogEnd { segment: position.segment, offset: position.offset };
                let mut follows: Few<(ChainId, Vec<ReplicaEffect>)> = Few::new();
                for (((chain, token), meta), payload) in tokens.iter().zip(&metas).zip(&payloads) {
                    if shared && appender.members[chain.0 as usize].shared {
                        let forwards = appender.chains[chain.0 as usize].successor().is_some();
                        let kept = || match (&copied, ask.content) {
                            (Some(copied), _) => copied.clone(),
                            (None, Content::Bytes(all, _)) => all.keep(payload),
                            (None, Content::Hole) => Bytes::new(),
                        };
                        let bytes = forwards.then(kept);
                        let crc = match ask.content {
                            Content::Bytes(all, Some(crc)) if all.len() == payload.len() => crc,
                            _ => frieze_base::crc32c(payload),
                        };
                        let punch = meta.kind == RecordKind::Punch;
                        self.hold(
                            appender,
                            *chain,
                            meta.n,
                            Held::of(punch, bytes, payload.len(), crc).behind(gone.take()),
                        );
                    }
                    let mut more = Vec::new();
                    let token = *token;
                    appender.chains[chain.0 as usize].step(moment, ReplicaInput::Appended { token, end }, &mut more);
                    follows.push((*chain, more));
                }
                self.show(appender, tokens.iter().map(|(chain, _)| *chain));
                follows.into_iter().for_each(|(chain, effects)| self.carry(appender, chain, effects, None, out));
                let last = payloads.last().map_or(0, |payload| payload.len() as u64);
                Ok((durability == Durability::Sync).then_some((position, last)))
            }
            Err(fault) => {
                if let Some(group) = appender.groups.get_mut(&group_id) {
                    group.failed = Some(fault.clone());
                }
                self.withdraw(appender, &tokens, fault.reason, moment, out);
                appender.finish(group_id, &mut out.done);
                Ok(None)
            }
        }
    }

    fn withdraw(
        &self,
        appender: &mut Appender,
        tokens: &[(ChainId, AppendToken)],
        reason: Reason,
        moment: Moment,
        out: &mut Out,
    ) {
        // Newest first: a failed append takes every later one of its chain with it.
        let mut withdrawn = std::collections::BTreeMap::new();
        for (chain, token) in tokens {
            withdrawn.entry(*chain).or_insert_with(|| {
                let mut effects = Vec::new();
                let failed = ReplicaInput::AppendFailed { token: *token, reason };
                appender.chains[chain.0 as usize].step(moment, failed, &mut effects);
                effects
            });
        }
        self.show(appender, withdrawn.keys().copied());
        withdrawn.into_iter().for_each(|(chain, effects)| self.carry(appender, chain, effects, None, out));
    }

    /// Everything up to `through` is durable: answers the `sync` writes that this covers.
    pub fn persisted(&self, through: LogPosition) {
        self.feed_all(|| ReplicaInput::Persisted {
            through: LogEnd { segment: through.segment, offset: through.offset },
        });
        if self.is_shared() {
            self.tell_persisted(&mut self.hold_writes(), through);
        }
    }

    /// The device failed: refuses waiting requests and all later ones.
    pub fn device_failed(&self, reason: Reason) {
        self.feed_all(|| ReplicaInput::DeviceFailed { reason });
        self.report_failed(reason);
    }

    /// Ends a session: its numbers are not used again. The chain keeps the entry of an uncommitted record until the
    /// next call.
    pub fn end_session(&self, session: SessionId) {
        let mut out = Out::default();
        let mut appender = self.hold_writes();
        for chain in 0..appender.chains.len() {
            let replica = &appender.chains[chain];
            if !(appender.members[chain].shared && replica.is_in_flight(session)) {
                self.step(&mut appender, ChainId(chain as u32), ReplicaInput::EndSession(session), None, &mut out);
            }
        }
        appender.acked.remove(&session);
        appender.forget_refused(session, Seq(u64::MAX));
        drop(appender);
        self.finish_out(out);
    }

    /// The fault of an append to the end that is refused early, as [`DataPlane::write`] refuses one. `acked`: numbers
    /// that the session has acknowledged.
    pub fn refuse_append(&self, chain: ChainId, request: (SessionId, Seq), acked: Seq, fault: Fault) -> Fault {
        let mut appender = self.hold_writes();
        appender.acknowledge(request.0, acked, request.1);
        self.refuse(&mut appender, chain, request, fault)
    }

    /// `Busy` is final for the number of an append, and only the head of the chain may send it: the client retries
    /// under a new number, and a late duplicate of this one has no effect. Where this node may not send it, the client
    /// receives `Overloaded` and retries under the same number.
    fn refuse(&self, appender: &mut Appender, chain: ChainId, request: (SessionId, Seq), fault: Fault) -> Fault {
        if fault.reason != Reason::Busy {
            return fault;
        }
        if let Err(fault) = self.check_stamps(appender, std::iter::once(chain)) {
            return fault;
        }
        let (session, seq) = request;
        let is_here = appender.in_flight.contains_key(&request) || appender.has_record(session, seq);
        let refused = appender.refused.range((session, Seq(0))..=(session, Seq(u64::MAX))).count();
        if is_here || refused >= REFUSED_MAX && !appender.refused.contains(&request) {
            let words = "doubles of this session's appends are on their way: send it again later";
            return Fault::new(Reason::Overloaded, words);
        }
        appender.refused.insert(request);
        fault
    }

    /// Sessions with an entry in the dedupe state.
    pub fn sessions(&self) -> BTreeSet<SessionId> {
        let appender = self.hold_writes();
        let remembered = appender.chains.iter().flat_map(Replica::sessions);
        remembered.chain(appender.acked.keys().copied()).collect()
    }

    /// True if a request has a record here, committed or not.
    pub fn has_record(&self, session: SessionId, seq: Seq) -> bool {
        self.hold_writes().has_record(session, seq)
    }

    /// Encodes the chains' dedupe state for records up to `tips`, of live sessions. `None` while one of those records
    /// is not committed.
    pub fn keep_memory(&self, tips: &[ChainTip], lives: &dyn Fn(SessionId) -> bool) -> Option<Vec<u8>> {
        crate::dedupe_image::keep(&self.hold_writes().chains, tips, lives)
    }

    fn feed_all(&self, input: impl Fn() -> ReplicaInput) {
        let mut out = Out::default();
        {
            let mut appender = self.hold_writes();
            let moment = Moment { mono: self.clock.reading().mono, hlc: self.clock.newest() };
            let mut effects: Vec<Vec<ReplicaEffect>> = Vec::with_capacity(appender.chains.len());
            for chain in &mut appender.chains {
                let mut own = Vec::new();
                chain.step(moment, input(), &mut own);
                effects.push(own);
            }
            // While the write waited for the disk, clients may have cached the files again.
            let waited = appender.groups.values().map(|group| (group.request, group.inode));
            let _publishing = self.caching.get().map(|caching| Publishing::of_all(&**caching, waited));
            self.show(&appender, (0..appender.chains.len()).map(|chain| ChainId(chain as u32)));
            for (chain, effects) in effects.into_iter().enumerate() {
                self.carry(&mut appender, ChainId(chain as u32), effects, None, &mut out);
            }
        }
        self.finish_out(out);
    }

    /// Promises that nothing will be stamped at or below `at` any more. True if that was so before the call.
    ///
    /// # Errors
    /// `Future` if `at` lies ahead; `NotYetClosed` if records up to it are not committed: flush and retry.
    pub fn close(&self, at: Hlc) -> Result<bool, Fault> {
        self.close_of(at, None)
    }

    /// The same for these chains, as far as this node can; for all chains if `chains` is `None`.
    ///
    /// # Errors
    /// As [`DataPlane::close`]; `Unavailable` if other members do not answer.
    pub fn close_of(&self, at: Hlc, chains: Option<&BTreeSet<ChainId>>) -> Result<bool, Fault> {
        if self.is_shared() {
            return match self.is_closed(at, chains) {
                true => Ok(true),
                false => self.close_and_wait(at, chains).map(|()| false),
            };
        }
        if at.0 <= self.closed.load(Ordering::Acquire) {
            return Ok(true);
        }
        let mut appender = self.hold_writes();
        self.clock.close(at)?;
        let moment = Moment { mono: self.clock.reading().mono, hlc: self.clock.newest() };
        let mut effects = Vec::new();
        let mut closed = true;
        for chain in &mut appender.chains {
            if !chain.is_readable_at(at) {
                effects.clear();
                chain.step(moment, ReplicaInput::Close { request: RequestId(0), at }, &mut effects);
                closed &= effects
                    .iter()
                    .any(|effect| matches!(effect, ReplicaEffect::Closed { at: done, .. } if *done == at));
            }
        }
        if !closed {
            return Err(Fault::new(Reason::NotYetClosed, format!("records up to {at} are still on their way to disk")));
        }
        self.closed.fetch_max(at.0, Ordering::AcqRel);
        Ok(false)
    }

    /// The newest instant closed on every chain.
    pub fn closed(&self) -> Hlc {
        if self.is_shared() {
            self.closed.fetch_max(self.closed_here().0, Ordering::AcqRel);
        }
        Hlc(self.closed.load(Ordering::Acquire))
    }

    /// The lease.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }
}

impl Appender {
    pub(crate) fn absorb(&mut self, effect: ReplicaEffect, done: &mut Vec<(WriteReply, Result<Written, Fault>)>) {
        let ReplicaEffect::Reply { request, result } = effect else { return };
        let id = request.0 >> 8;
        let Some(group) = self.groups.get_mut(&id) else { return };
        group.left -= 1;
        match result {
            Ok(written) if request.0 & 0xff == 0 => {
                let offset = u64::from(written.chunk.index) * group.chunk_bytes + u64::from(written.offset);
                group.first = Some(Written { stamp: written.stamp, offset, end: group.end });
            }
            Ok(_) => {}
            Err(fault) => group.failed = group.failed.take().or(Some(fault)),
        }
        if group.left == 0 {
            self.finish(id, done);
        }
    }

    /// Result of a request that was committed before.
    ///
    /// # Errors
    /// `Elsewhere` if its record belongs to a chain of which this node is no member: the chain may never have had a
    /// record that this node recovered, or had when it was removed.
    fn done_before(&self, me: NodeId, session: SessionId, seq: Seq, layout: Layout) -> Result<Option<Written>, Fault> {
        for (replica, member) in self.chains.iter().zip(&self.members) {
            let Some(remembered) = replica.outcome_of(session, seq) else { continue };
            if member.shared && !replica.configuration().holds(me) {
                return Err(frieze_chain::Error::NotMember { chain: replica.chain() }.into());
            }
            if let RequestOutcome { part: 0, state: RequestState::Done(done) } = remembered {
                let chunk = u64::from(done.chunk.index);
                let offset = chunk * layout.chunk_bytes + u64::from(done.offset);
                return Ok(Some(Written { stamp: done.stamp, offset, end: (chunk + 1) * layout.chunk_bytes }));
            }
        }
        Ok(None)
    }

    fn finish(&mut self, id: u64, done: &mut Vec<(WriteReply, Result<Written, Fault>)>) {
        let Some(group) = self.groups.remove(&id) else { return };
        let result = match (group.failed, group.first) {
            (Some(fault), _) => Err(fault),
            (None, Some(written)) => Ok(written),
            (None, None) => Err(Fault::new(Reason::Internal, "a write was answered without its first part")),
        };
        self.in_flight.remove(&group.request);
        for reply in group.replies {
            done.push((reply, result.clone()));
        }
    }
}

pub(crate) fn damaged() -> Fault {
    Fault::new(Reason::BadFrame, "the payload does not match its checksum: it was damaged on the way; send it again")
}
