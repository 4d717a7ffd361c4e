//! A write at the head of its chains: recalled if it is a retry, placed, stamped, appended, answered.
//!
//! Guarantees: records become visible in the order of their stamps; a write that crosses chunks is one group with one
//! stamp, visible wholly or not at all; a payload that does not match the client's checksum is
//! not appended. Leaves to others: rights and the end of the file (the caller, through [`WritePlace`]), durability
//! (`persist`), the other members (`effects`).

use bytes::Bytes;
use frieze_base::{ChainEpoch, ChainId, ChunkId, Fault, Reason};
use frieze_chain::{AppendToken, LogEnd, Moment, ReplicaEffect, ReplicaInput, RequestId, WriteRequest};
use frieze_hlc::Hlc;
use frieze_multilog::LogPosition;
use frieze_net::SentPrefix;
use frieze_storage::{Few, block_checksums};
use frieze_wire::chain::RecordHeader;
use frieze_wire::message::Durability;

use crate::append::RecordGroup;
use crate::appender::{Appender, EarlierRun, Group};
use crate::chain_state::{DeferredWork, UncommittedRecord};
use crate::fault::damaged;
use crate::plane::DataPlane;
use crate::request_table::KnownRequest;
use crate::striping::{ChunkPart, Spread, fits_one_chunk, in_one_record};
use crate::write_request::{Content, WriteAsk, WriteCallback, WritePlace, WriteResult};

/// Retries that wait for one request; a further one is refused and comes later.
const RETRIES_MAX: usize = 16;

/// A write that has its stamp, and no record in the log yet.
struct StampedWrite<'a> {
    ask: &'a WriteAsk<'a>,
    group_id: u64,
    moment: Moment,
    durability: Durability,
    /// Chains may have several members.
    shared: bool,
    tokens: Few<(ChainId, AppendToken)>,
    metas: Few<RecordHeader>,
    payloads: Few<&'a [u8]>,
    /// Checksums of the blocks of each payload.
    crcs: Few<Vec<u32>>,
    /// The payload, if it was copied for the other members.
    copied: Option<Bytes>,
    /// How much of it has been sent to them already.
    gone: Option<SentPrefix>,
}

impl StampedWrite<'_> {
    fn group(&self) -> RecordGroup<'_> {
        RecordGroup {
            request: (self.ask.session, self.ask.seq),
            inode: self.ask.inode,
            headers: &self.metas,
            payloads: &self.payloads,
            block_crcs: &self.crcs,
        }
    }
}

impl DataPlane {
    /// Writes, and replies through `reply`: at once, or for `sync` when [`DataPlane::on_persisted`] covers the write.
    pub fn write(&self, ask: WriteAsk<'_>, reply: WriteCallback) {
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
        let first = (ask.known_offset.unwrap_or(0) / ask.layout.chunk_bytes) as u32;
        if let Err(fault) = self.await_room(ask.at_end.unwrap_or_else(|| ask.layout.chain(first))) {
            reply(Err(fault));
            return;
        }
        let mut out = DeferredWork::default();
        // Its place does not depend on what other writes do to other files.
        let is_beside = ahead.is_some() && ask.at_end.is_none();
        let mut appender = if is_beside { self.lock_beside_fills(ask.inode) } else { self.lock_appender() };
        let appended = match self.stamp_write(&mut appender, &ask, (ahead, bytes, gone), reply, &mut out) {
            Ok(Some(stamped)) => {
                let group_id = stamped.group_id;
                let is_expected = |appender: &Appender| appender.groups.contains_key(&group_id);
                let (appended, mut lock) = self.append(appender, &stamped.group(), is_beside, is_expected);
                let flush = self.finish_append(&mut lock.appender, stamped, appended, &mut out);
                self.end_append(lock);
                Ok(flush)
            }
            done => {
                drop(appender);
                done.map(|_| None)
            }
        };
        match appended {
            Ok(Some((end, len))) => self.device.begin_flush(end, len),
            Ok(None) => {}
            Err((reply, fault)) => out.done.push((reply, Err(fault))),
        }
        // Replies are sent outside of the lock: a reply is a system call.
        self.run_deferred(out);
    }

    /// Recalls, places and stamps a write. `None` if it has its answer, or waits for that of an earlier run.
    fn stamp_write<'a>(
        &self,
        appender: &mut Appender,
        ask: &'a WriteAsk<'a>,
        (ahead, copied, gone): (Option<Vec<u32>>, Option<Bytes>, Option<SentPrefix>),
        reply: WriteCallback,
        out: &mut DeferredWork,
    ) -> Result<Option<StampedWrite<'a>>, (WriteCallback, Fault)> {
        macro_rules! try_or_reply {
            ($result:expr) => {
                match $result {
                    Ok(value) => value,
                    Err(fault) => return Err((reply, fault)),
                }
            };
        }
        let request = (ask.session, ask.seq);
        let known = appender.requests.recall(request, ask.acked);
        match known {
            KnownRequest::TooOld(floor) => {
                let (seq, session) = (ask.seq, ask.session);
                let words = format!(
                    "request {seq} of session {session} was acknowledged: everything below {floor} is forgotten"
                );
                return Err((reply, Fault::new(Reason::SequenceTooOld, words)));
            }
            // A retry is answered with its first run, wherever that placed an append.
            KnownRequest::InFlight(group) => {
                let group = appender.groups.get_mut(&group).expect("a request in flight has its group");
                if group.replies.len() >= RETRIES_MAX {
                    return Err((reply, Reason::Overloaded.into()));
                }
                group.replies.push(reply);
                return Ok(None);
            }
            KnownRequest::Refused | KnownRequest::Unknown => {}
        }
        let earlier = try_or_reply!(appender.earlier_run(self.me, ask.session, ask.seq, ask.layout));
        let len = match ask.content {
            Content::Bytes(payload, _) => payload.len(),
            Content::Hole => 1,
        };
        if let (Some(EarlierRun { result, .. }), Content::Bytes(..)) = (&earlier, ask.content) {
            // A record that counts nowhere is no answer: no read shows its bytes.
            try_or_reply!((ask.recalled)(WriteResult { end: result.offset + len as u64, ..*result }));
        }
        if let Some(EarlierRun { result: written, is_committed: true }) = earlier {
            if ask.at_end.is_some() {
                // In one record, wherever it was placed.
                out.done.push((reply, Ok(WriteResult { end: written.offset + len as u64, ..written })));
                return Ok(None);
            }
            let first = ask.layout.chain((written.offset / ask.layout.chunk_bytes) as u32);
            if !appender.states[first.0 as usize].shared || fits_one_chunk(written.offset, len, ask.layout) {
                out.done.push((reply, Ok(written)));
                return Ok(None);
            }
            // A head may have failed before the rest was written: a request with a record is answered with it.
        }
        if let Some(chain) = ask.at_end {
            // Only the head of the chain knows what was appended under this number; no other member may answer that
            // nothing was.
            try_or_reply!(self.check_stamps(appender, std::iter::once(chain)));
            if known == KnownRequest::Refused {
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
        let WritePlace { spread: Spread { parts, end }, user_time, inherited, times_after, above } = match before {
            // A retried append keeps its place.
            Some((offset, len)) => {
                let spread = try_or_reply!(in_one_record(offset, len, ask.layout));
                WritePlace { spread, user_time: None, inherited: None, times_after: Hlc::ZERO, above: Hlc::ZERO }
            }
            None => match ((ask.place)(), ask.at_end) {
                (Ok(placed), _) => placed,
                (Err(fault), Some(chain)) => {
                    return Err((reply, self.refuse(appender, chain, request, fault)));
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
            return Err((reply, self.refuse(appender, chain, request, fault)));
        }
        let shared = parts.iter().any(|part| appender.states[ask.layout.chain(part.chunk).0 as usize].shared);
        if shared {
            let chains = parts.iter().map(|part| ask.layout.chain(part.chunk));
            try_or_reply!(self.check_stamps(appender, chains));
            try_or_reply!(self.clock.observe(above));
        }
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
            let version = |part: &ChunkPart| log.chunk_version(ChunkId { inode: ask.inode, index: part.chunk });
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
                request,
                inode: ask.inode,
                left: parts.len() as u8,
                chunk_bytes: ask.layout.chunk_bytes,
                end,
                first: None,
                failed: None,
                replies: Few::from_iter([reply]),
            },
        );
        appender.requests.begin(request, group_id);
        let mut effects = Vec::new();
        let (mut metas, mut payloads): (Few<RecordHeader>, Few<&[u8]>) = (Few::new(), Few::new());
        let (mut tokens, mut numbers): (Few<(ChainId, AppendToken)>, Few<usize>) = (Few::new(), Few::new());
        for (index, part) in parts.iter().enumerate() {
            let chunk = ChunkId { inode: ask.inode, index: part.chunk };
            let chain = ask.layout.chain(part.chunk);
            let header = RecordHeader {
                kind: ask.content.kind(),
                chain,
                epoch: match appender.states[chain.0 as usize].shared {
                    // The client has found the head, which is all that matters here: chains have epochs of their own.
                    true => appender.chains[chain.0 as usize].epoch(),
                    false if ask.epoch == ChainEpoch(0) => self.epoch,
                    false => ask.epoch,
                },
                // The head gives number, version and stamp.
                n: 0,
                version: 0,
                stamp: Hlc::ZERO,
                chunk,
                user_time,
                session: ask.session,
                seq: ask.seq,
                uid: ask.uid,
                offset: part.offset,
                len: part.len,
                part: index as u8,
                parts: parts.len() as u8,
            };
            let write = WriteRequest {
                request: RequestId(group_id << 8 | index as u64),
                header,
                acked: ask.acked,
                seen: ask.seen,
                file_offset: part.at(ask.layout),
                durability,
                chunk_version: chunk_versions[index],
                newest_user_time,
                times_after,
            };
            appender.chains[chain.0 as usize].step(moment, ReplicaInput::Write(write), &mut effects);
            let mut others = Vec::new();
            for effect in effects.drain(..) {
                match effect {
                    ReplicaEffect::Append { token, header, .. } => {
                        tokens.push((chain, token));
                        numbers.push(index);
                        payloads.push(match ask.content {
                            Content::Bytes(payload, _) => part.bytes(payload.bytes()),
                            Content::Hole => &[],
                        });
                        metas.push(header);
                    }
                    other => others.push(other),
                }
            }
            self.apply_effects(appender, chain, others, out);
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
            self.publish_cuts(appender, tokens.iter().map(|(chain, _)| *chain));
        }
        Ok(Some(StampedWrite {
            ask,
            group_id,
            moment,
            durability,
            shared,
            tokens,
            metas,
            payloads,
            crcs,
            copied,
            gone,
        }))
    }

    /// Completes a write whose append has ended, or withdraws it. Returns the end of the append and its bytes, if a
    /// request waits for its durability.
    fn finish_append(
        &self,
        appender: &mut Appender,
        stamped: StampedWrite<'_>,
        appended: Result<LogPosition, Fault>,
        out: &mut DeferredWork,
    ) -> Option<(LogPosition, u64)> {
        let StampedWrite {
            ask, group_id, moment, durability, shared, tokens, metas, payloads, copied, mut gone, ..
        } = stamped;
        match appended {
            Ok(position) => {
                let end = LogEnd { segment: position.segment, offset: position.offset };
                let mut follows: Few<(ChainId, Vec<ReplicaEffect>)> = Few::new();
                for (((chain, token), meta), payload) in tokens.iter().zip(&metas).zip(&payloads) {
                    if shared && appender.states[chain.0 as usize].shared {
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
                        self.keep_uncommitted(
                            appender,
                            *chain,
                            meta.n,
                            UncommittedRecord::of(bytes, payload.len(), crc).behind(gone.take()),
                        );
                    }
                    let mut more = Vec::new();
                    let token = *token;
                    appender.chains[chain.0 as usize].step(moment, ReplicaInput::Appended { token, end }, &mut more);
                    follows.push((*chain, more));
                }
                self.publish_cuts(appender, tokens.iter().map(|(chain, _)| *chain));
                follows.into_iter().for_each(|(chain, effects)| self.apply_effects(appender, chain, effects, out));
                let last = payloads.last().map_or(0, |payload| payload.len() as u64);
                (durability == Durability::Sync).then_some((position, last))
            }
            Err(fault) => {
                if let Some(group) = appender.groups.get_mut(&group_id) {
                    group.failed = Some(fault.clone());
                }
                self.withdraw(appender, &tokens, fault.reason, moment, out);
                appender.finish(group_id, &mut out.done);
                None
            }
        }
    }

    fn withdraw(
        &self,
        appender: &mut Appender,
        tokens: &[(ChainId, AppendToken)],
        reason: Reason,
        moment: Moment,
        out: &mut DeferredWork,
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
        self.publish_cuts(appender, withdrawn.keys().copied());
        withdrawn.into_iter().for_each(|(chain, effects)| self.apply_effects(appender, chain, effects, out));
    }
}
