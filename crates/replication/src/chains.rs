//! Driver of chains with several members: carries out the effects of their replicas, and feeds them the messages of
//! other members.
//!
//! Guarantees: a configuration is on stable storage before it is used; the stamps and promises that a message names lie
//! within the clock's durable bound before they are forwarded or acknowledged; a record is hidden before it is
//! published and shown when it is committed; a payload that does not match the writer's checksum is not appended; every
//! wait for other members ends. Leaves to others: membership and leases (the caller of [`DataPlane::configure`] and
//! [`crate::Lease::renew`]), transport of messages ([`crate::peers`]).
//!
//! A record is sent with its payload if the whole payload is here. The payload stays in memory until the record is
//! committed, within [`Bounds::flight_bytes_max`]; otherwise it is read back from the log. Every message to another
//! member is sent while the appender is locked, so messages leave in the order of the replica's effects; only catch-up
//! reads and sends old records without the lock ([`crate::catch_up`]).

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, TryLockError};
use std::time::Duration;

use bytes::Bytes;
use frieze_base::{ChainEpoch, ChainId, Fault, MonoTime, NodeId, Reason};
use frieze_chain::{
    AppendToken, Configuration, Forwarded, LogEnd, Message, Moment, Replica, ReplicaEffect, ReplicaInput, RequestId,
};
use frieze_hlc::Hlc;
use frieze_multilog::{Discards, RecordKind, RecordMeta, RecoveredItem};
use frieze_wire::message::{Durability, ReplicaStatus};
use frieze_wire::peer::{ChainAskKind, ServerMessage};

use crate::catch_up::Supply;
use crate::chain_state::{Held, Out, Waiter};
use crate::codec::{What, ask, heard, malformed, to_told};
use crate::commit_wait::{Gather, no_answer};
use crate::dedupe_image;
use crate::observer::Publishing;
use crate::plane::{Appender, DataPlane};
use crate::visibility::Sight;
use frieze_net::{PeerPayload, Peers, ReceivedPayload};
use frieze_storage::block_checksums;

/// Events of chains, for the control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// The syncing node has all that is committed: it can join.
    CaughtUp {
        /// The chain.
        chain: ChainId,
        /// Under this configuration.
        epoch: ChainEpoch,
        /// The syncing node.
        node: NodeId,
    },
    /// This node, the joining tail, can serve.
    Ready {
        /// The chain.
        chain: ChainId,
        /// Under this configuration.
        epoch: ChainEpoch,
    },
    /// A member sent an impossible message: its connection is to be closed.
    Distrust {
        /// The chain.
        chain: ChainId,
        /// The member.
        peer: NodeId,
        /// The rule that the message broke.
        why: &'static str,
    },
    /// The successor has sent nothing for long, despite repeats; or it sends again.
    Silent {
        /// The chain.
        chain: ChainId,
        /// The unreachable successor; `None` if it is reachable again.
        node: Option<NodeId>,
    },
    /// This node stops being a member of the chain although its configuration names it: its device failed to append a
    /// record.
    Failed {
        /// The chain.
        chain: ChainId,
        /// The fault.
        fault: Fault,
    },
    /// A record that another member lacks cannot be read here.
    Damaged {
        /// The chain.
        chain: ChainId,
        /// Number of the record.
        n: u64,
        /// The fault of the read.
        fault: Fault,
    },
}

/// End of the log of a chain at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainEnd {
    /// The chain.
    pub chain: ChainId,
    /// The newest configuration that the node has taken.
    pub taken: ChainEpoch,
    /// The configuration under which its last record was stamped.
    pub epoch: ChainEpoch,
    /// Number of its last record. Of two logs of a chain the one with the larger (epoch, n) has more.
    pub n: u64,
    /// Stamp of its last record; ZERO without one.
    pub newest: Hlc,
}

/// Called once, by the thread that has the result.
pub(crate) type WaitReply = Box<dyn FnOnce(Result<(), Fault>) + Send>;

/// A received record with its payload, whose checksums are computed.
pub(crate) struct Incoming<'a> {
    payload: ReceivedPayload<'a>,
    block_crcs: Vec<u32>,
    crc: u32,
    punch: bool,
}

impl DataPlane {
    /// Takes configurations of the control plane. An older or equal one is a delayed message and changes nothing. It is
    /// durable before it is used: after a restart this node does not take a configuration again that it had before.
    ///
    /// # Errors
    /// The disk's: then none is taken. `InvalidArgument` for an unknown chain.
    pub fn configure(&self, configurations: &[(ChainId, Configuration)]) -> Result<(), Fault> {
        let mut appender = self.hold_writes();
        let count = appender.chains.len();
        if let Some((chain, _)) = configurations.iter().find(|(chain, _)| chain.0 as usize >= count) {
            return Err(Fault::new(Reason::InvalidArgument, format!("there is no chain {chain}, only {count}")));
        }
        let newer: Vec<&(ChainId, Configuration)> =
            configurations.iter().filter(|(chain, to)| to.epoch > appender.chains[chain.0 as usize].epoch()).collect();
        if newer.is_empty() {
            return Ok(());
        }
        let taken = newer.iter().map(|(chain, to)| (*chain, to.epoch, to.members.contains(&self.me)));
        self.roles.take(&taken.collect::<Vec<_>>())?;
        self.shown.any_shared.store(true, Ordering::SeqCst);
        let mut out = Out::default();
        for (chain, configuration) in newer {
            let member = &mut appender.members[chain.0 as usize];
            (member.shared, member.supply) = (true, None);
            self.forget_closed(*chain);
            self.step(&mut appender, *chain, ReplicaInput::Configure(configuration.clone()), None, &mut out);
        }
        drop(appender);
        self.finish_out(out);
        Ok(())
    }

    /// Handles a message of node `from`, whose identity the connection has proven. `crc` is the payload's checksum
    /// according to the sender. True if it was a message about a chain.
    ///
    /// # Errors
    /// `BadFrame` for a message that no correct member sends: the connection is to be closed. Other faults: the message
    /// is lost, and the member sends it again.
    pub fn told(
        &self,
        from: NodeId,
        told: ServerMessage,
        crc: u32,
        payload: ReceivedPayload<'_>,
    ) -> Result<bool, Fault> {
        let lacks = match &told {
            ServerMessage::ChainRecord(record) => Some(record.left_bytes),
            _ => None,
        };
        let Some(heard) = heard(told, payload.len())? else { return Ok(false) };
        let chain = heard.chain;
        if chain.0 >= self.chain_count() {
            return Err(malformed(format!("there is no chain {chain}")));
        }
        if let Some(lacks) = lacks {
            self.shown.lacks[chain.0 as usize].store(lacks, Ordering::Relaxed);
        }
        let mut out = Out::default();
        let taken = match heard.what {
            What::Message(message) => self.hear(from, chain, heard.epoch, message, false, (crc, payload), &mut out),
            What::Punch(message) => {
                self.hear(from, chain, heard.epoch, message, true, (0, ReceivedPayload::from(&[][..])), &mut out)
            }
            What::Persist(n) => {
                self.hear_persist(from, chain, heard.epoch, n, &mut out);
                Ok(())
            }
            What::Persisted(n) => {
                self.hear_persisted(from, chain, heard.epoch, n, &mut out);
                Ok(())
            }
            What::CloseAfter(after) => self.hear_close_after(from, chain, after, &mut out),
            What::ClosedAfter(after) => {
                self.hear_closed_after(chain, after, &mut out);
                Ok(())
            }
            What::Unknown => Ok(()),
        };
        self.finish_out(out);
        taken.map(|()| true)
    }

    #[expect(clippy::too_many_arguments, reason = "what a message consists of, handed on once")]
    fn hear(
        &self,
        from: NodeId,
        chain: ChainId,
        epoch: ChainEpoch,
        message: Message,
        punch: bool,
        (crc, payload): (u32, ReceivedPayload<'_>),
        out: &mut Out,
    ) -> Result<(), Fault> {
        let incoming = match &message {
            Message::Record(record) => {
                if !self.device.fits(payload.len()) {
                    return Err(malformed(format!("record {} is longer than a segment", record.n)));
                }
                let (block_crcs, found) = block_checksums(&payload, self.device.block_bytes());
                if !punch && found != crc {
                    return Err(crate::plane::damaged());
                }
                Some(Incoming { payload, block_crcs, crc: found, punch })
            }
            _ => None,
        };
        // Stamps are within the durable bound before they are forwarded or acknowledged (protocols §3).
        self.clock.adopt(message.newest())?;
        let held = match &message {
            Message::Ack { held, .. } => Some(*held),
            _ => None,
        };
        let mut appender = self.hold_writes();
        if !appender.members[chain.0 as usize].shared {
            // A directory of one server has no other members.
            return Ok(());
        }
        appender.heard.insert(from, self.clock.reading().mono);
        if appender.members[chain.0 as usize].silent == Some(from) {
            appender.members[chain.0 as usize].silent = None;
            out.reports.push(Report::Silent { chain, node: None });
        }
        let is_close = matches!(message, Message::AskClose { .. });
        let input = ReplicaInput::Receive { from, epoch, message };
        self.step(&mut appender, chain, input, incoming.as_ref(), out);
        let now = self.clock.reading().mono;
        let member = &mut appender.members[chain.0 as usize];
        if is_close {
            member.asked_at = Some(now);
        }
        if let (Some(held), Some(supply)) = (held, &mut member.supply)
            && supply.heard(from, epoch, held)
        {
            out.supplies.push(chain);
        }
        Ok(())
    }

    /// Feeds one replica, and carries out its effects. What becomes committed is shown before any message about it
    /// leaves: a writer whose answer comes from another member may read here before this returns.
    pub(crate) fn step(
        &self,
        appender: &mut Appender,
        chain: ChainId,
        input: ReplicaInput,
        incoming: Option<&Incoming<'_>>,
        out: &mut Out,
    ) {
        let at = Moment { mono: self.clock.reading().mono, hlc: self.clock.newest() };
        let mut effects = Vec::new();
        appender.chains[chain.0 as usize].step(at, input, &mut effects);
        self.show(appender, [chain].into_iter());
        self.carry(appender, chain, effects, incoming, out);
    }

    /// Carries out the effects of a replica, in order, and shows what they commit. The caller has shown what led to
    /// them.
    pub(crate) fn carry(
        &self,
        appender: &mut Appender,
        chain: ChainId,
        effects: Vec<ReplicaEffect>,
        incoming: Option<&Incoming<'_>>,
        out: &mut Out,
    ) {
        let mut todo = VecDeque::from(effects);
        while let Some(effect) = todo.pop_front() {
            match effect {
                // The write path of this node appends its own writes.
                ReplicaEffect::Append { .. } => {}
                ReplicaEffect::Take { token, record } => {
                    let incoming = incoming.expect("a replica takes a record only when it is told one");
                    let input = self.take(appender, chain, token, &record, incoming, out);
                    let at = Moment { mono: self.clock.reading().mono, hlc: self.clock.newest() };
                    let mut more = Vec::new();
                    appender.chains[chain.0 as usize].step(at, input, &mut more);
                    self.show(appender, [chain].into_iter());
                    todo.extend(more);
                }
                ReplicaEffect::Send { to, epoch, message } => self.send(appender, chain, to, epoch, message, out),
                ReplicaEffect::Reply { request, result } => match waiter_of(request) {
                    None => appender.absorb(ReplicaEffect::Reply { request, result }, &mut out.done),
                    Some(id) => out.answer(appender.waiters.remove(&id), result.map(drop)),
                },
                ReplicaEffect::Closed { request, .. } => {
                    out.answer(waiter_of(request).and_then(|id| appender.waiters.remove(&id)), Ok(()));
                }
                ReplicaEffect::Seen { request, cut } => {
                    // Later writes are stamped above the newest record.
                    let newest = appender.chains[chain.0 as usize].newest();
                    let member = &mut appender.members[chain.0 as usize];
                    member.seen = member.seen.max(cut.min(newest));
                    // Show before the waiting request continues.
                    self.show(appender, [chain].into_iter());
                    out.answer(waiter_of(request).and_then(|id| appender.waiters.remove(&id)), Ok(()));
                }
                ReplicaEffect::Supply { to, after, upto } => {
                    let epoch = appender.chains[chain.0 as usize].epoch();
                    appender.members[chain.0 as usize].supply = Some(Supply::new(to, epoch, after, upto));
                    out.supplies.push(chain);
                }
                ReplicaEffect::Discard { after } => self.discard(appender, chain, after, out),
                ReplicaEffect::CaughtUp { node, epoch } => out.reports.push(Report::CaughtUp { chain, epoch, node }),
                ReplicaEffect::Ready { epoch } => out.reports.push(Report::Ready { chain, epoch }),
                ReplicaEffect::Distrust { peer, why } => out.reports.push(Report::Distrust { chain, peer, why }),
            }
        }
        let clean = appender.chains[chain.0 as usize].clean();
        let member = &mut appender.members[chain.0 as usize];
        if member.let_go(clean) {
            self.shown.in_flight[chain.0 as usize].store(member.held_bytes, Ordering::Relaxed);
            self.room.notify_all();
        }
        self.tell_ordered(appender, chain, out);
    }

    /// Appends a received record with its payload.
    fn take(
        &self,
        appender: &mut Appender,
        chain: ChainId,
        token: AppendToken,
        record: &Forwarded,
        incoming: &Incoming<'_>,
        out: &mut Out,
    ) -> ReplicaInput {
        let meta = meta_of(chain, record, incoming.punch);
        let failed = |fault: Fault, out: &mut Out| {
            let reason = fault.reason;
            out.reports.push(Report::Failed { chain, fault });
            ReplicaInput::AppendFailed { token, reason }
        };
        if !self.device.log().accepts(&meta) {
            let words = format!("record {} of chain {chain} lies before what its chunk holds", record.n);
            return failed(Fault::new(Reason::Corrupt, words), out);
        }
        // The replica hid the record before it asked for this append: it becomes visible when it is committed.
        let _publishing = self
            .caching
            .get()
            .map(|caching| Publishing::of(&**caching, (record.session, record.seq), record.chunk.inode));
        match self.device.append(&[meta], &[incoming.payload.bytes()], std::slice::from_ref(&incoming.block_crcs)) {
            Ok(end) => {
                let forwards = appender.chains[chain.0 as usize].successor().is_some();
                let payload = forwards.then(|| incoming.payload.keep(&incoming.payload));
                self.hold(
                    appender,
                    chain,
                    record.n,
                    Held::of(incoming.punch, payload, incoming.payload.len(), incoming.crc)
                        .behind(incoming.payload.ahead()),
                );
                if record.durability == Durability::Sync && appender.chains[chain.0 as usize].is_whole() {
                    out.flush = Some((end, incoming.payload.len() as u64));
                }
                ReplicaInput::Appended { token, end: LogEnd { segment: end.segment, offset: end.offset } }
            }
            Err(fault) => failed(fault, out),
        }
    }

    /// Keeps an uncommitted record, which may have to be sent, or sent again.
    pub(crate) fn hold(&self, appender: &mut Appender, chain: ChainId, n: u64, held: Held) {
        let member = &mut appender.members[chain.0 as usize];
        member.hold(n, held, self.bounds.flight_bytes_max);
        self.shown.in_flight[chain.0 as usize].store(member.held_bytes, Ordering::Relaxed);
    }

    fn send(
        &self,
        appender: &mut Appender,
        chain: ChainId,
        to: NodeId,
        epoch: ChainEpoch,
        message: Message,
        out: &mut Out,
    ) {
        out.told = true;
        let Message::Record(record) = &message else {
            return self.way.tell_soon(to, to_told(chain, epoch, message, false), PeerPayload::none());
        };
        let held = appender.members[chain.0 as usize].held.get_mut(&record.n);
        let mut ahead = None;
        let (punch, bytes, crc) = match held {
            Some(Held { punch: true, .. }) => (true, Bytes::new(), 0),
            Some(Held { payload: Some(payload), crc, ahead: gone, .. }) => {
                ahead = gone.take();
                (false, payload.clone(), *crc)
            }
            // Committed long ago, or its payload was not kept: read it from the log.
            _ => match self.device.payload_at(chain, record.n) {
                Ok((kind, bytes, crc)) => (kind == RecordKind::Punch, bytes, crc),
                Err(fault) => return out.reports.push(Report::Damaged { chain, n: record.n, fault }),
            },
        };
        self.way.tell_soon(to, to_told(chain, epoch, message, punch), PeerPayload { bytes, crc: Some(crc), ahead });
    }

    /// Removes records from the log that the chain does not have, and restarts the replica.
    fn discard(&self, appender: &mut Appender, chain: ChainId, after: u64, out: &mut Out) {
        let old = &appender.chains[chain.0 as usize];
        let configuration = old.configuration().clone();
        let mut chains: Vec<Replica> = crate::plane::fresh(appender.chains.len() as u32, self.me);
        let mut refused = None;
        let mut keep = |discarded: Discards| {
            self.forget_closed_for_good(chain)?;
            self.roles.discard(discarded)
        };
        let done = self.device.discard(chain, after, &mut keep, &mut |recovered| {
            let shown = match recovered {
                RecoveredItem::Record(meta) if meta.chain == chain => crate::plane::replay(&mut chains, meta).map(drop),
                RecoveredItem::Record(_) => Ok(()),
                RecoveredItem::Indexed { chains: tips, companion, .. } => {
                    dedupe_image::resume(&mut chains, tips, companion)
                }
            };
            refused = refused.take().or(shown.err());
        });
        if let Some(fault) = done.err().or(refused) {
            if fault.reason != Reason::Busy {
                out.reports.push(Report::Failed { chain, fault });
            }
            // The predecessor offers it again, and the discard is repeated.
            return;
        }
        let mut replica = chains.swap_remove(chain.0 as usize);
        let mut effects = Vec::new();
        let at = Moment { mono: self.clock.reading().mono, hlc: self.clock.newest() };
        // The log has no record of the current epoch, or nothing would be discarded.
        replica.step(at, ReplicaInput::Configure(configuration), &mut effects);
        appender.chains[chain.0 as usize] = replica;
        appender.members[chain.0 as usize].forget();
        self.shown.discarded.store(true, Ordering::Release);
        self.show(appender, [chain].into_iter());
        self.carry(appender, chain, effects, None, out);
    }

    /// Does the work that was queued while the appender was locked.
    pub(crate) fn finish_out(&self, out: Out) {
        let Out { done, waited, reports, supplies, flush, told } = out;
        if told {
            self.way.go();
        }
        if let Some((end, len)) = flush {
            self.device.begin_flush(end, len);
            self.hurry();
        }
        // One system call per client answers all requests that one flush made durable.
        frieze_net::reply_batch(done.len() + waited.len(), || {
            done.into_iter().for_each(|(reply, result)| reply(result));
            waited.into_iter().for_each(|(reply, result)| reply(result));
        });
        for report in reports {
            self.report(report);
        }
        for chain in supplies {
            self.supply(chain);
        }
    }

    /// Wakes the flusher: a request waits for a flush.
    pub(crate) fn hurry(&self) {
        (self.wake)();
    }

    pub(crate) fn report(&self, report: Report) {
        match self.reports.get() {
            Some(reports) => reports(report),
            None => tracing::warn!("{report:?}"),
        }
    }

    /// Reports that this node is no longer a member of any of its chains.
    pub(crate) fn report_failed(&self, reason: Reason) {
        let shared: Vec<ChainId> = {
            let appender = self.hold_writes();
            let chains = appender.chains.iter().zip(&appender.members);
            chains.filter(|(_, member)| member.shared).map(|(replica, _)| replica.chain()).collect()
        };
        shared.into_iter().for_each(|chain| self.report(Report::Failed { chain, fault: reason.into() }));
    }

    /// True if this node may answer for its chains of several members. Checked after the answer was read.
    ///
    /// # Errors
    /// `Unavailable` without a lease.
    pub fn check_lease(&self) -> Result<(), Fault> {
        if self.is_shared() && !self.lease.holds(self.clock.reading().mono) {
            return Err(no_lease());
        }
        Ok(())
    }

    /// True if the control plane configures any chain here: then a read of now asks first, and needs a lease.
    pub fn is_shared(&self) -> bool {
        self.shown.any_shared.load(Ordering::Relaxed)
    }

    /// Brings [`DataPlane::cuts`] up to everything that was committed of these chains at the time of the call, then
    /// calls `reply`.
    pub(crate) fn look(&self, chains: impl Iterator<Item = ChainId>, reply: WaitReply) {
        let asks: Vec<ChainId> = chains.filter(|chain| self.shown.sight(*chain) != Sight::Here).collect();
        if asks.is_empty() {
            return reply(Ok(()));
        }
        let mut out = Out::default();
        let mut appender = self.hold_writes();
        let gather = Gather::new(asks.len(), reply);
        for chain in asks {
            let request = self.wait(&mut appender, chain, gather.clone());
            self.step(&mut appender, chain, ReplicaInput::Look { request }, None, &mut out);
        }
        drop(appender);
        self.finish_out(out);
    }

    /// Closes the chains of this node at `at`, and calls `reply` when every record up to `at` that this node has is
    /// committed.
    pub(crate) fn close_shared(&self, at: Hlc, named: Option<&BTreeSet<ChainId>>, reply: WaitReply) {
        let mut out = Out::default();
        let mut appender = self.hold_writes();
        if let Err(fault) = self.clock.close(at) {
            drop(appender);
            return reply(Err(fault));
        }
        let now = self.clock.reading().mono;
        let mut open = Vec::new();
        let Appender { chains, members, .. } = &mut *appender;
        for (chain, (replica, member)) in chains.iter().zip(members).enumerate() {
            let is_asked = named.is_none_or(|named| named.contains(&replica.chain()));
            let is_here = is_asked && (!member.shared || replica.configuration().holds(self.me));
            if is_here {
                member.read_at = Some(now);
            }
            if is_here && !replica.is_readable_at(at) {
                open.push(ChainId(chain as u32));
            }
        }
        if open.is_empty() {
            drop(appender);
            return reply(Ok(()));
        }
        let gather = Gather::new(open.len(), reply);
        for chain in open {
            appender.members[chain.0 as usize].asked_at = Some(now);
            let request = self.wait(&mut appender, chain, gather.clone());
            self.step(&mut appender, chain, ReplicaInput::Close { request, at }, None, &mut out);
        }
        drop(appender);
        self.finish_out(out);
    }

    fn wait(&self, appender: &mut Appender, chain: ChainId, gather: Arc<Gather>) -> RequestId {
        RequestId(WAITER | self.wait_as(appender, chain, gather))
    }

    pub(crate) fn wait_as(&self, appender: &mut Appender, chain: ChainId, gather: Arc<Gather>) -> u64 {
        let id = appender.next_waiter;
        appender.next_waiter += 1;
        let since = self.clock.reading().mono;
        let reply: WaitReply = Box::new(move |result| gather.one(result));
        appender.waiters.insert(id, Waiter { chain, since, reply });
        id
    }

    /// A connection with a node broke: repeats the messages that may be lost with it.
    pub fn lost(&self, node: NodeId) {
        let mut out = Out::default();
        let mut appender = self.hold_writes();
        for chain in 0..appender.chains.len() {
            let configuration = appender.chains[chain].configuration();
            let concerns = configuration.holds(node) || configuration.syncing == Some(node);
            if appender.members[chain].shared && concerns {
                self.step(&mut appender, ChainId(chain as u32), ReplicaInput::Again, None, &mut out);
            }
        }
        drop(appender);
        self.finish_out(out);
    }

    /// Periodic work for chains of several members: repeats unanswered messages, promises while a reader is active,
    /// ends waits that are over their limit. Called about every 20 ms.
    pub fn tick(&self) {
        if !self.is_shared() {
            return;
        }
        let reading = self.clock.reading();
        let now = reading.mono;
        let mut out = Out::default();
        let mut appender = self.hold_writes();
        let is_late = |since: MonoTime, bound: Duration| u128::from(now.since_ns(since)) >= bound.as_nanos();
        let late: Vec<u64> = appender
            .waiters
            .iter()
            .filter(|(_, waiter)| is_late(waiter.since, self.bounds.wait))
            .map(|(id, _)| *id)
            .collect();
        for id in late {
            out.answer(appender.waiters.remove(&id), Err(no_answer()));
        }
        if is_late(appender.barriers_asked, self.bounds.again) {
            appender.barriers_asked = now;
            self.settle_barriers(&mut appender, &mut out);
            self.ask_barriers(&appender);
        }
        let instant = self.clock.now();
        let is_recent = |at: Option<MonoTime>| at.is_some_and(|at| !is_late(at, READ_RECENTLY));
        for chain in (0..appender.chains.len()).map(|chain| ChainId(chain as u32)) {
            let at = chain.0 as usize;
            let Appender { chains, members, heard, .. } = &mut *appender;
            let (replica, member) = (&chains[at], &mut members[at]);
            if !member.shared {
                continue;
            }
            let supplied = member.supply.map_or(0, |supply| supply.held);
            let come = (replica.epoch(), replica.last(), replica.clean(), replica.closed(), supplied);
            let is_supplying = member.supply.is_some_and(|supply| supply.is_under_way());
            let bound = if is_supplying { self.bounds.supply_again } else { self.bounds.again };
            // Other progress of the chain, such as promises while it is idle, is no progress of its catch-up.
            let mut again = member.supply.as_mut().is_some_and(|supply| supply.stands_still(now, bound));
            if !replica.waits() || member.come != come {
                (member.come, member.since, member.waits_since, member.silent) = (come, now, now, None);
            } else if is_late(member.since, bound) {
                (member.since, again) = (now, true);
            }
            if let Some(next) = replica.successor().filter(|next| member.silent != Some(*next))
                && is_late(heard.get(&next).copied().unwrap_or_default().max(member.waits_since), self.bounds.silent)
            {
                member.silent = Some(next);
                out.reports.push(Report::Silent { chain, node: Some(next) });
            }
            if member.supply.as_mut().is_some_and(|supply| supply.goes_on(&self.pace, now)) {
                out.supplies.push(chain);
            }
            let is_member = replica.configuration().holds(self.me);
            let orders = !member.ordered.is_empty();
            let (read, asked) = (is_recent(member.read_at), is_recent(member.asked_at));
            let promises = replica.is_head() && (read || asked);
            // The head continues to promise, for the readers here.
            let asks = is_member && !replica.is_head() && read && !asked;
            if asks {
                member.asked_at = Some(now);
            }
            if again {
                self.step(&mut appender, chain, ReplicaInput::Again, None, &mut out);
            }
            if orders {
                self.go_on_ordering(&mut appender, chain, &mut out);
            }
            if (promises || asks) && self.clock.close(instant).is_ok() {
                match promises {
                    true => self.promise_of(&mut appender, chain, instant, &mut out),
                    false => {
                        self.step(
                            &mut appender,
                            chain,
                            ReplicaInput::Close { request: NOBODY, at: instant },
                            None,
                            &mut out,
                        );
                    }
                }
            }
        }
        drop(appender);
        self.finish_out(out);
    }

    /// The chain's current configuration here. It does not change while the appender is locked.
    pub fn epoch_of(&self, chain: ChainId) -> ChainEpoch {
        ChainEpoch(self.shown.epochs[chain.0 as usize].load(Ordering::SeqCst))
    }

    /// True if records appended to the chain are forwarded. A hint: the writer copies the payload before it takes the
    /// lock.
    pub(crate) fn forwards(&self, chain: ChainId) -> bool {
        self.next_of(chain).is_some()
    }

    /// The member that receives what is appended to the chain, as far as known without the appender.
    pub fn next_of(&self, chain: ChainId) -> Option<NodeId> {
        let successor = self.shown.successors.get(chain.0 as usize)?.load(Ordering::Relaxed);
        (self.is_shared() && successor != 0).then_some(NodeId(successor))
    }

    /// True if reads at `at` of this node's chains do not change any more.
    pub(crate) fn is_closed(&self, at: Hlc, chains: Option<&BTreeSet<ChainId>>) -> bool {
        match chains {
            Some(chains) => {
                chains.iter().all(|chain| at.0 <= self.shown.closed[chain.0 as usize].load(Ordering::SeqCst))
            }
            None => at <= self.closed_here(),
        }
    }

    /// The newest instant closed on all of them.
    pub(crate) fn closed_here(&self) -> Hlc {
        let chains = (0..self.shown.closed.len()).map(|chain| ChainId(chain as u32));
        let here = chains.filter(|chain| self.shown.sight(*chain) != Sight::Away || self.remembers(*chain));
        let closed = here.map(|chain| self.shown.closed[chain.0 as usize].load(Ordering::SeqCst));
        Hlc(closed.min().unwrap_or(0))
    }

    /// Count of chains.
    pub fn chain_count(&self) -> u32 {
        self.shown.closed.len() as u32
    }

    /// True if this node is a member of the chain.
    pub fn is_here(&self, chain: ChainId) -> bool {
        self.shown.sight(chain) != Sight::Away
    }

    /// True if records were discarded from the log since the last call.
    pub fn has_discarded(&self) -> bool {
        self.shown.discarded.swap(false, Ordering::AcqRel)
    }

    /// End of the log of each chain here.
    pub fn ends(&self) -> Vec<ChainEnd> {
        ends_of(&self.hold_writes())
    }

    /// The same without waiting for a write; `None` while the appender is locked.
    pub fn ends_now(&self) -> Option<Vec<ChainEnd>> {
        match self.appender.try_lock() {
            Ok(appender) => Some(ends_of(&appender)),
            Err(TryLockError::Poisoned(poisoned)) => Some(ends_of(&poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Stamps before and after the records of chains of several members that a power loss took and no member has
    /// supplied since.
    pub fn power_took(&self) -> Vec<(ChainId, Hlc, Hlc)> {
        self.roles.lost()
    }

    /// Status of the chains that the control plane configures.
    pub fn status(&self) -> Vec<ReplicaStatus> {
        if !self.is_shared() {
            return Vec::new();
        }
        let appender = self.hold_writes();
        let shared = appender.chains.iter().zip(&appender.members).filter(|(_, member)| member.shared);
        let status = shared.map(|(replica, member)| {
            let Configuration { epoch, members, syncing, joining } = replica.configuration();
            ReplicaStatus {
                chain: replica.chain().0,
                epoch: epoch.0,
                members: members.iter().map(|node| node.0).collect(),
                syncing: syncing.map_or(0, |node| node.0),
                joining: *joining,
                last: replica.last(),
                clean: replica.clean(),
                in_flight_bytes: member.held_bytes,
                closed: replica.closed().0,
                behind: member.supply.map_or(0, |supply| replica.clean().saturating_sub(supply.sent)),
                failed: replica.failure().map_or(String::new(), |reason| reason.words().to_owned()),
            }
        });
        status.collect()
    }

    /// Checks that a chunk of this chain can be read here at `at`, or now.
    ///
    /// # Errors
    /// `Unavailable` if the records have to come from other members.
    pub fn check_here(&self, chain: ChainId, at: Option<Hlc>) -> Result<(), Fault> {
        let here = match at {
            None => self.shown.sight(chain) != Sight::Away,
            Some(at) => at.0 <= self.shown.closed[chain.0 as usize].load(Ordering::SeqCst),
        };
        if here || !self.is_shared() {
            return Ok(());
        }
        Err(frieze_chain::Error::NotMember { chain }.into())
    }

    /// Checks that a write to these chains can be stamped here.
    pub(crate) fn check_stamps(&self, appender: &Appender, chains: impl Iterator<Item = ChainId>) -> Result<(), Fault> {
        for chain in chains {
            let (replica, member) = (&appender.chains[chain.0 as usize], &appender.members[chain.0 as usize]);
            if !member.shared {
                continue;
            }
            if !replica.is_head() {
                let head = replica.configuration().head();
                return Err(frieze_chain::Error::NotHead { chain, head }.into());
            }
            if !self.lease.holds(self.clock.reading().mono) {
                return Err(no_lease());
            }
        }
        Ok(())
    }

    /// Waits until the chain's uncommitted bytes are below the limit.
    ///
    /// # Errors
    /// `Overloaded` if that takes too long: the members behind this one do not keep up.
    pub(crate) fn await_room(&self, chain: ChainId) -> Result<(), Fault> {
        let is_full = || self.shown.in_flight[chain.0 as usize].load(Ordering::Relaxed) >= self.bounds.flight_bytes_max;
        if !is_full() {
            return Ok(());
        }
        let held = self.room_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let (_held, waited) = self
            .room
            .wait_timeout_while(held, self.bounds.wait, |()| is_full())
            .unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            let max = self.bounds.flight_bytes_max >> 20;
            let words = format!("chain {chain} has {max} MiB that its other members do not have yet: send again later");
            return Err(Fault::new(Reason::Overloaded, words));
        }
        Ok(())
    }

    pub(crate) fn tell(&self, to: NodeId, chain: ChainId, epoch: ChainEpoch, question: ChainAskKind) {
        self.way.tell(to, ask(chain, epoch, question), PeerPayload::none());
    }
}

fn waiter_of(request: RequestId) -> Option<u64> {
    (request.0 & WAITER != 0).then_some(request.0 & !WAITER)
}

/// A chain record in the log's form: the parts of a group arrive one at a time.
fn meta_of(chain: ChainId, record: &Forwarded, punch: bool) -> RecordMeta {
    RecordMeta {
        kind: if punch { RecordKind::Punch } else { RecordKind::Write },
        chain,
        epoch: record.epoch,
        n: record.n,
        chunk: record.chunk,
        version: record.version,
        stamp: record.stamp,
        user_time: record.user_time,
        session: record.session,
        seq: record.seq,
        uid: record.uid,
        offset: record.offset,
        len: record.len,
        part: record.part,
        parts: u8::from(record.part == 0),
    }
}

fn no_lease() -> Fault {
    Fault::new(
        Reason::Unavailable,
        "this server has no lease just now: it may have been replaced; ask for the chain's members and try there, or \
         again",
    )
}

/// Bit of requests that wait but are no writes.
const WAITER: u64 = 1 << 63;
/// Request of a promise without a waiter.
pub(crate) const NOBODY: RequestId = RequestId(WAITER | (WAITER - 1));
/// For this long after a read at an instant the head of the chain promises continuously.
const READ_RECENTLY: Duration = Duration::from_secs(1);

/// End of the log of each chain.
fn ends_of(appender: &Appender) -> Vec<ChainEnd> {
    let ends = appender.chains.iter().map(|replica| ChainEnd {
        chain: replica.chain(),
        taken: replica.epoch(),
        epoch: replica.last_epoch(),
        n: replica.last(),
        newest: replica.newest(),
    });
    ends.collect()
}
