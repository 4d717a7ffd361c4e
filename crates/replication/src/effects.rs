//! Effects of the replicas, carried out in order.
//!
//! Guarantees: a record is hidden before it is published and shown when it is committed; messages to other members
//! leave in the order of the replica's effects, for each is queued while the appender is locked; only catch-up reads
//! and sends old records without the lock ([`crate::catch_up`]).
//!
//! A record is sent with its payload if the whole payload is here. The payload stays in memory until the record is
//! committed, within [`crate::Bounds::flight_bytes_max`]; otherwise it is read back from the log.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use frieze_base::{ChainEpoch, ChainId, Fault, NodeId, Reason};
use frieze_chain::{AppendToken, ForwardedRecord, LogEnd, Message, Moment, Replica, ReplicaEffect, ReplicaInput};
use frieze_multilog::{Discards, RecordKind, RecoveredItem};
use frieze_net::{PeerPayload, Peers};
use frieze_wire::message::Durability;
use frieze_wire::peer::ChainAskKind;

use crate::appender::Appender;
use crate::chain_state::{DeferredWork, UncommittedRecord, waiter_of};
use crate::codec::{ask, to_wire};
use crate::dedupe_image;
use crate::incoming::Incoming;
use crate::observer::PublishGuard;
use crate::plane::DataPlane;
use crate::report::ChainEvent;
use crate::supply::Supply;

impl DataPlane {
    /// Feeds one replica, and carries out its effects. What becomes committed is shown before any message about it
    /// leaves: a writer whose answer comes from another member may read here before this returns.
    pub(crate) fn step(
        &self,
        appender: &mut Appender,
        chain: ChainId,
        input: ReplicaInput,
        incoming: Option<&Incoming<'_>>,
        out: &mut DeferredWork,
    ) {
        let at = Moment { mono: self.clock.reading().mono, hlc: self.clock.newest() };
        let mut effects = Vec::new();
        appender.chains[chain.0 as usize].step(at, input, &mut effects);
        self.publish_cuts(appender, [chain].into_iter());
        self.apply_effects(appender, chain, effects, incoming, out);
    }

    /// Carries out the effects of a replica, in order, and shows what they commit. The caller has shown what led to
    /// them.
    pub(crate) fn apply_effects(
        &self,
        appender: &mut Appender,
        chain: ChainId,
        effects: Vec<ReplicaEffect>,
        incoming: Option<&Incoming<'_>>,
        out: &mut DeferredWork,
    ) {
        let mut todo = VecDeque::from(effects);
        while let Some(effect) = todo.pop_front() {
            match effect {
                // The write path of this node appends its own writes.
                ReplicaEffect::Append { .. } => {}
                ReplicaEffect::AppendForwarded { token, record } => {
                    let incoming =
                        incoming.expect("a replica appends a forwarded record only while it handles its message");
                    let input = self.append_forwarded(appender, chain, token, &record, incoming, out);
                    let at = Moment { mono: self.clock.reading().mono, hlc: self.clock.newest() };
                    let mut more = Vec::new();
                    appender.chains[chain.0 as usize].step(at, input, &mut more);
                    self.publish_cuts(appender, [chain].into_iter());
                    todo.extend(more);
                }
                ReplicaEffect::Send { to, epoch, message } => {
                    self.send_message(appender, chain, to, epoch, message, out)
                }
                ReplicaEffect::Reply { request, result } => match waiter_of(request) {
                    None => appender.on_reply(ReplicaEffect::Reply { request, result }, &mut out.done),
                    Some(id) => out.answer(appender.waiters.remove(&id), result.map(drop)),
                },
                ReplicaEffect::Closed { request, .. } => {
                    out.answer(waiter_of(request).and_then(|id| appender.waiters.remove(&id)), Ok(()));
                }
                ReplicaEffect::TailCut { request, cut } => {
                    // Later writes are stamped above the newest record.
                    let newest = appender.chains[chain.0 as usize].newest();
                    let state = &mut appender.states[chain.0 as usize];
                    state.seen = state.seen.max(cut.min(newest));
                    // Show before the waiting request continues.
                    self.publish_cuts(appender, [chain].into_iter());
                    out.answer(waiter_of(request).and_then(|id| appender.waiters.remove(&id)), Ok(()));
                }
                ReplicaEffect::Supply { to, after, upto } => {
                    let epoch = appender.chains[chain.0 as usize].epoch();
                    appender.states[chain.0 as usize].supply = Some(Supply::new(to, epoch, after, upto));
                    out.supplies.push(chain);
                }
                ReplicaEffect::Discard { after } => self.discard(appender, chain, after, out),
                ReplicaEffect::CaughtUp { node, epoch } => {
                    out.reports.push(ChainEvent::CaughtUp { chain, epoch, node })
                }
                ReplicaEffect::Ready { epoch } => out.reports.push(ChainEvent::Ready { chain, epoch }),
                ReplicaEffect::Distrust { peer, why } => out.reports.push(ChainEvent::Distrust { chain, peer, why }),
            }
        }
        let clean = appender.chains[chain.0 as usize].clean();
        let state = &mut appender.states[chain.0 as usize];
        if state.release(clean) {
            self.views.in_flight[chain.0 as usize].store(state.uncommitted_bytes, Ordering::Relaxed);
            // Locked once, so that no thread misses it between its look and its wait.
            drop(self.room_lock.lock());
            self.room.notify_all();
        }
        self.reply_ordered(appender, chain, out);
    }

    /// Appends a received record with its payload.
    fn append_forwarded(
        &self,
        appender: &mut Appender,
        chain: ChainId,
        token: AppendToken,
        record: &ForwardedRecord,
        incoming: &Incoming<'_>,
        out: &mut DeferredWork,
    ) -> ReplicaInput {
        let header = &record.header;
        let failed = |fault: Fault, out: &mut DeferredWork| {
            let reason = fault.reason;
            out.reports.push(ChainEvent::Failed { chain, fault });
            ReplicaInput::AppendFailed { token, reason }
        };
        if !self.device.log().accepts(header) {
            let words = format!("record {} of chain {chain} lies before what its chunk holds", header.n);
            return failed(Fault::new(Reason::Corrupt, words), out);
        }
        // The replica hid the record before it asked for this append: it becomes visible when it is committed.
        let _publishing = self
            .observer
            .get()
            .map(|observer| PublishGuard::of(&**observer, (header.session, header.seq), header.chunk.inode));
        match self.device.append(
            std::slice::from_ref(header),
            &[incoming.payload.bytes()],
            std::slice::from_ref(&incoming.block_crcs),
        ) {
            Ok(end) => {
                let forwards = appender.chains[chain.0 as usize].successor().is_some();
                let payload = forwards.then(|| incoming.payload.keep(&incoming.payload));
                self.keep_uncommitted(
                    appender,
                    chain,
                    header.n,
                    UncommittedRecord::of(payload, incoming.payload.len(), incoming.crc)
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
    pub(crate) fn keep_uncommitted(&self, appender: &mut Appender, chain: ChainId, n: u64, record: UncommittedRecord) {
        let state = &mut appender.states[chain.0 as usize];
        state.keep_uncommitted(n, record, self.bounds.flight_bytes_max);
        self.views.in_flight[chain.0 as usize].store(state.uncommitted_bytes, Ordering::Relaxed);
    }

    fn send_message(
        &self,
        appender: &mut Appender,
        chain: ChainId,
        to: NodeId,
        epoch: ChainEpoch,
        message: Message,
        out: &mut DeferredWork,
    ) {
        out.queued = true;
        let Message::Record(record) = &message else {
            return self.peers.queue(to, to_wire(chain, epoch, message), PeerPayload::none());
        };
        let n = record.header.n;
        let uncommitted = appender.states[chain.0 as usize].uncommitted.get_mut(&n);
        let mut ahead = None;
        let (bytes, crc) = match uncommitted {
            _ if record.header.kind == RecordKind::Punch => (Bytes::new(), 0),
            Some(UncommittedRecord { payload: Some(payload), crc, ahead: prefix, .. }) => {
                ahead = prefix.take();
                (payload.clone(), *crc)
            }
            // Committed long ago, or its payload was not kept: read it from the log.
            _ => match self.device.payload_at(chain, n) {
                Ok((_, bytes, crc)) => (bytes, crc),
                Err(fault) => return out.reports.push(ChainEvent::Damaged { chain, n, fault }),
            },
        };
        self.peers.queue(to, to_wire(chain, epoch, message), PeerPayload { bytes, crc: Some(crc), ahead });
    }

    pub(crate) fn send_ask(&self, to: NodeId, chain: ChainId, epoch: ChainEpoch, question: ChainAskKind) {
        self.peers.send(to, ask(chain, epoch, question), PeerPayload::none());
    }

    /// Removes records from the log that the chain does not have, and restarts the replica.
    fn discard(&self, appender: &mut Appender, chain: ChainId, after: u64, out: &mut DeferredWork) {
        let old = &appender.chains[chain.0 as usize];
        let configuration = old.configuration().clone();
        let mut chains: Vec<Replica> = crate::replay::fresh(appender.chains.len() as u32, self.me);
        let mut refused = None;
        let mut keep = |discarded: Discards| {
            self.drop_closed_durably(chain)?;
            self.config_store.record_discard(discarded)
        };
        let done = self.device.discard(chain, after, &mut keep, &mut |recovered| {
            let shown = match recovered {
                RecoveredItem::Record(meta) if meta.chain == chain => {
                    crate::replay::replay(&mut chains, meta).map(drop)
                }
                RecoveredItem::Record(_) => Ok(()),
                RecoveredItem::Indexed { chains: tips, companion, .. } => {
                    dedupe_image::resume(&mut chains, tips, companion)
                }
            };
            refused = refused.take().or(shown.err());
        });
        if let Some(fault) = done.err().or(refused) {
            if fault.reason != Reason::Busy {
                out.reports.push(ChainEvent::Failed { chain, fault });
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
        appender.states[chain.0 as usize].forget();
        self.views.discarded.store(true, Ordering::Release);
        self.publish_cuts(appender, [chain].into_iter());
        self.apply_effects(appender, chain, effects, None, out);
    }

    /// Does the work that was queued while the appender was locked.
    pub(crate) fn run_deferred(&self, out: DeferredWork) {
        let DeferredWork { done, waited, reports, supplies, flush, queued } = out;
        if queued {
            self.peers.go();
        }
        if let Some((end, len)) = flush {
            self.device.begin_flush(end, len);
            self.flush_soon();
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
    pub(crate) fn flush_soon(&self) {
        (self.wake)();
    }

    pub(crate) fn report(&self, report: ChainEvent) {
        match self.reports.get() {
            Some(reports) => reports(report),
            None => tracing::warn!("{report:?}"),
        }
    }
}
