//! The data plane of one device: chains order, stamp and remember; the device appends; readers see what is committed.
//!
//! Guarantees: one append runs at a time, so a stamp is visible before the next is given; a write that crosses chunks
//! is one group with one stamp, seen wholly or not at all; a retry runs once; a read at a closed instant never changes.
//! Leaves to others: who may write and where the end of the file is (`engine`), when to flush (`durability`).

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

/// Retries that wait for one request; one more is told to come later.
const RETRIES_MAX: usize = 16;
/// Appends of one session that were refused for good and may have doubles on their way.
const REFUSED_MAX: usize = 64;
/// Configuration number of a new file system. Each start is a configuration of its own, so that a number that a loss of
/// power took is never used twice within one.
const FIRST_EPOCH: ChainEpoch = ChainEpoch(1);
/// The node that makes a file system. Until others join it has all chains for itself.
const FIRST_NODE: NodeId = NodeId(1);

/// A write as the engine has checked it.
pub struct WriteAsk<'a> {
    /// Session, number, and what it has been answered.
    pub session: SessionId,
    /// Number of the request.
    pub seq: Seq,
    /// Every number below it has been answered.
    pub acked: Seq,
    /// Configuration the client knows; 0 for whatever is current.
    pub epoch: ChainEpoch,
    /// Newest stamp the client has seen.
    pub seen: Hlc,
    /// The file.
    pub inode: InodeId,
    /// Its layout.
    pub layout: Layout,
    /// The offset, where it is known before.
    pub known_offset: Option<u64>,
    /// An append where chains have several members: the file is to end in a chunk of this chain, or nothing is written.
    /// So whoever asks again asks a head of the chain that would have the record.
    pub at_end: Option<ChainId>,
    /// Says where the write goes, or why it may not, while no other write can run.
    pub place: &'a dyn Fn() -> Result<Placed, Fault>,
    /// What the range is to hold.
    pub content: Content<'a>,
    /// On whose behalf.
    pub uid: u32,
    /// When to answer.
    pub durability: Durability,
}

/// What a write leaves in its range.
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

/// What is known of a write once its place is.
pub struct Placed {
    /// Where it goes.
    pub spread: Spread,
    /// Time of the data, where a plug-in found one: of the record, or of the last row that ends in it.
    pub user_time: Option<UserTime>,
    /// Newest time that a file has from its origin, if it has none of its own.
    pub inherited: Option<UserTime>,
    /// Times of records stamped up to here do not count.
    pub times_after: Hlc,
    /// It is stamped above this: other chains have that.
    pub above: Hlc,
}

/// A write has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its stamp.
    pub stamp: Hlc,
    /// Where in the file.
    pub offset: u64,
    /// Up to where in the file it reaches. Of a retry only the end of its first part is known.
    pub end: u64,
}

/// Called once with the outcome of a write, by whichever thread finds it done.
pub type WriteReply = Box<dyn FnOnce(Result<Written, Fault>) + Send>;

/// The chains of one device and the device.
pub struct DataPlane {
    pub(crate) device: Arc<Device>,
    pub(crate) clock: Arc<NodeClock>,
    epoch: ChainEpoch,
    /// Who this is among the members of chains.
    pub(crate) me: NodeId,
    pub(crate) appender: Mutex<Appender>,
    /// For each chain the instant at which a read of now reads: `MAX`, or below its first dirty record. Changed for all
    /// chains of a group at once, by who holds the appender.
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
    /// Told when a chain has more room.
    pub(crate) room: Condvar,
    pub(crate) room_lock: Mutex<()>,
    pub(crate) way: Arc<PeersCell>,
    /// What whoever looks after the cluster is told.
    pub(crate) reports: OnceLock<Box<dyn Fn(Report) + Send + Sync>>,
    /// Told when somebody waits for a flush.
    pub(crate) wake: Arc<dyn Fn() + Send + Sync>,
    /// What who waits for other members does meanwhile, where one thread runs everything.
    pub(crate) idle: OnceLock<Idle>,
}

/// What one append at a time may touch.
pub struct Appender {
    pub(crate) chains: Vec<Replica>,
    /// Beside each chain, what is kept of it as one of several members.
    pub(crate) members: Vec<Member>,
    pub(crate) waiters: BTreeMap<u64, Waiter>,
    pub(crate) next_waiter: u64,
    /// When the other members were last asked for what barriers wait for.
    pub(crate) barriers_asked: MonoTime,
    /// When each other node was last heard.
    pub(crate) heard: BTreeMap<NodeId, MonoTime>,
    groups: BTreeMap<u64, Group>,
    in_flight: BTreeMap<(SessionId, Seq), u64>,
    /// What each session has acknowledged. A chain forgets what lies below on its own; a late double of an append may
    /// now end on another chain, which never knew of it.
    acked: BTreeMap<SessionId, Seq>,
    /// Appends that were refused with `Busy`: their clients ask under other numbers, so their doubles come to nothing
    /// too.
    refused: BTreeSet<(SessionId, Seq)>,
    next_group: u64,
}

impl Appender {
    /// Takes in what a session has acknowledged when it asks under `seq`. Returns the first number that is not
    /// forgotten.
    fn acknowledge(&mut self, session: SessionId, acked: Seq, seq: Seq) -> Seq {
        let floor = self.acked.entry(session).or_default();
        *floor = (*floor).max(acked.min(seq));
        let floor = *floor;
        self.forget_refused(session, floor);
        floor
    }

    /// True if a request has made a record here, committed or not.
    fn has_record(&self, session: SessionId, seq: Seq) -> bool {
        self.chains.iter().any(|chain| chain.outcome_of(session, seq).is_some())
    }

    /// What is below the first number that a session may still ask under.
    fn forget_refused(&mut self, session: SessionId, below: Seq) {
        while let Some(request) = self.refused.range((session, Seq(0))..(session, below)).next().copied() {
            self.refused.remove(&request);
        }
    }
}

/// A write whose parts are on their way.
struct Group {
    request: (SessionId, Seq),
    inode: InodeId,
    left: u8,
    chunk_bytes: u64,
    /// Up to where in the file it reaches.
    end: u64,
    first: Option<Written>,
    failed: Option<Fault>,
    replies: Few<WriteReply>,
}

/// Fresh chains of node `me` for recovery to replay into. One that has had its configuration from elsewhere has no part
/// in its chain until a newer one names it.
pub fn new_chains(count: u32, me: NodeId, roles: &Roles) -> Vec<Replica> {
    let configuration = |chain| match roles.epoch(chain) {
        Some(epoch) => Configuration { epoch, ..Configuration::default() },
        None if me == FIRST_NODE => Configuration { epoch: FIRST_EPOCH, members: vec![me], ..Configuration::default() },
        None => Configuration::default(),
    };
    let settings = frieze_chain::Settings::default();
    (0..count).map(ChainId).map(|id| Replica::member(id, me, configuration(id), settings.clone())).collect()
}

/// Chains without a part in anything.
pub(crate) fn fresh(count: u32, me: NodeId) -> Vec<Replica> {
    let settings = frieze_chain::Settings::default();
    let nobody = Configuration::default;
    (0..count).map(|id| Replica::member(ChainId(id), me, nobody(), settings.clone())).collect()
}

/// Shows a recovered record to its chain. Returns how many records of the chain are missing before it.
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

    /// From now on whoever looks after the cluster is told there what happens to chains. Once only.
    pub fn report_to(&self, reports: Box<dyn Fn(Report) + Send + Sync>) {
        // Called once, at the start.
        let _ = self.reports.set(reports);
    }

    /// From now on who waits for other members does this meanwhile, if it is anything. Once only.
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

    /// Keeps every write out while it is held: for operations of the namespace that decide what present bytes are.
    pub fn hold_writes(&self) -> MutexGuard<'_, Appender> {
        self.appender.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on `caching` is told of every write before anybody sees it.
    pub fn watch(&self, caching: Arc<dyn PublishObserver>) {
        // Called once, at the start.
        let _ = self.caching.set(caching);
    }

    /// Writes, and answers through `reply`: at once, or for `sync` when [`DataPlane::persisted`] covers it.
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
        // Fetched before others have to wait for it.
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
        // Answered outside of the lock: a reply is a system call.
        self.finish_out(out);
    }

    /// Returns what was appended last, its end and bytes, if somebody waits until it is durable.
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
        // A retry is answered with its first run, wherever an append may have put it.
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
                // In one piece, wherever it was put.
                out.done.push((reply, Ok(Written { end: written.offset + len as u64, ..written })));
                return Ok(None);
            }
            if !shared || fits_one_chunk(written.offset, len, ask.layout) {
                out.done.push((reply, Ok(written)));
                return Ok(None);
            }
            // A head may have died with the rest of it: what has a record is answered with that.
        }
        if let Some(chain) = ask.at_end {
            // Only who leads the chain knows what was appended under this number: nobody else may say that nothing was.
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
            // A head before this one gave it its place.
            let offset = u64::from(record.chunk.index) * ask.layout.chunk_bytes + u64::from(record.offset);
            before = Some((offset, payload.len()));
        }
        let Placed { spread: Spread { parts, end }, user_time, inherited, times_after, above } = match before {
            // An append stays where it is.
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
        // Before it is published: who sees the bytes sees what they recalled.
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
        // The parts of a group become visible together: where one has to wait for the disk behind another's `sync`
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
                    // Who asks knows where the head is, and that is all that matters: chains have epochs of their own.
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
                // One part was refused: what the others were about to do is withdrawn.
                self.withdraw(appender, &tokens, Reason::Busy, moment, out);
                appender.finish(group_id, &mut out.done);
                return Ok(None);
            }
        }
        if metas.is_empty() {
            // All of it has a record already, from a head before this one: answered with that.
            return Ok(None);
        }
        if metas.len() < parts.len() {
            // Some of it has: the others are not beside it.
            metas.iter_mut().for_each(|meta| meta.parts = u8::from(meta.part == 0));
            crcs = numbers.iter().map(|number| std::mem::take(&mut crcs[*number])).collect();
        }
        if durability == Durability::Sync || shared {
            // Hidden before it is published: nobody sees it, and then not, and then again.
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

    /// Everything up to `through` is durable: answers the `sync` writes it covers.
    pub fn persisted(&self, through: LogPosition) {
        self.feed_all(|| ReplicaInput::Persisted {
            through: LogEnd { segment: through.segment, offset: through.offset },
        });
        if self.is_shared() {
            self.tell_persisted(&mut self.hold_writes(), through);
        }
    }

    /// The device failed: refuses what waits and everything to come.
    pub fn device_failed(&self, reason: Reason) {
        self.feed_all(|| ReplicaInput::DeviceFailed { reason });
        self.report_failed(reason);
    }

    /// A session is over: its numbers will not come again. A record of it that is not committed is still remembered, on
    /// its chain, until this is asked again.
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

    /// With what an append to the end is refused, early: as [`DataPlane::write`] refuses one. `acked` is what its
    /// session has acknowledged.
    pub fn refuse_append(&self, chain: ChainId, request: (SessionId, Seq), acked: Seq, fault: Fault) -> Fault {
        let mut appender = self.hold_writes();
        appender.acknowledge(request.0, acked, request.1);
        self.refuse(&mut appender, chain, request, fault)
    }

    /// `Busy` is the last word on the number of an append, which only who leads the chain may say: the client asks
    /// under another, and a double of this one that is still on its way comes to nothing. Where it may not be said, the
    /// client is told to ask again under the same number.
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

    /// The sessions of which something is remembered.
    pub fn sessions(&self) -> BTreeSet<SessionId> {
        let appender = self.hold_writes();
        let remembered = appender.chains.iter().flat_map(Replica::sessions);
        remembered.chain(appender.acked.keys().copied()).collect()
    }

    /// True if a request has made a record here, committed or not.
    pub fn has_record(&self, session: SessionId, seq: Seq) -> bool {
        self.hold_writes().has_record(session, seq)
    }

    /// What has to be kept of the chains' memory for records up to these, of sessions that live. `None` while one of
    /// those records is not committed.
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
            // The disk took its time: others may have cached the files again.
            let waited = appender.groups.values().map(|group| (group.request, group.inode));
            let _publishing = self.caching.get().map(|caching| Publishing::of_all(&**caching, waited));
            self.show(&appender, (0..appender.chains.len()).map(|chain| ChainId(chain as u32)));
            for (chain, effects) in effects.into_iter().enumerate() {
                self.carry(&mut appender, ChainId(chain as u32), effects, None, &mut out);
            }
        }
        self.finish_out(out);
    }

    /// Promises that nothing will be stamped at or below `at` any more. True if that was so before it was asked.
    ///
    /// # Errors
    /// `Future` if `at` has not come yet; `NotYetClosed` if records up to it are not committed: flush and ask again.
    pub fn close(&self, at: Hlc) -> Result<bool, Fault> {
        self.close_of(at, None)
    }

    /// The same for these chains, as far as this node can do so; for all if none are named.
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

    /// What a request that was committed before did.
    ///
    /// # Errors
    /// `Elsewhere` if it is a record of a chain that this node is no member of: what it recovered, or had when it was
    /// taken out, the chain may never have had.
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
