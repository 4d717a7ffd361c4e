//! The server with a witness beside it: every call goes to both, and what the server did and said is compared.
//!
//! The server handles one request at a time, so the order of the calls is the linear order that everything is checked
//! against. What a call did is read off the ends of the two logs before and after it; a crash then takes away what lies
//! beyond the ends that recovery finds, and the model is made anew from what is left.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use frieze_base::{Fault, MonoTime, Reason};
use frieze_disk::{CrashKind, TimeSource};
use frieze_hlc::Hlc;
use frieze_wire::frame::FrameHeader;
use frieze_wire::message::{Reply, Request, RequestBody, Stat, View};
use frieze_wire::txn::{Op, Target};

use crate::journal::{Act, Effect, Journal, LogPlace};
use crate::machine::{Answer, ConnId, Hardware, Machine, Marks};
use crate::memory::Memory;
use crate::model::bytes::{Cut, Write};
use crate::model::tree::Change;
use crate::model::{Granted, Model, Ran};
use crate::trace::Trace;
use crate::violation::{Rule, Verdict, broken};

/// A request on its way in.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) header: FrameHeader,
    pub(crate) body: RequestBody,
    pub(crate) payload: Arc<[u8]>,
    /// The open file it goes through.
    pub(crate) handle: Option<Handle>,
}

/// An open file as the client that opened it knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    pub(crate) session: u64,
    pub(crate) inode: u64,
    /// Stamp of creation: tells the file from another that has its number.
    pub(crate) born: Hlc,
    pub(crate) view: View,
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) capability: Vec<u8>,
}

/// A request that waits for its answer, and what the answer may be.
pub(crate) struct Asked {
    pub(crate) ask: Ask,
    pub(crate) expect: Expect,
}

pub(crate) enum Expect {
    /// An answer that changes nothing, judged by the model when it comes.
    Read,
    /// A transaction: what it did, or would have done if it was not put into the log.
    Txn { logged: bool, did: Result<Ran, Result<(), Reason>> },
    /// A write: what it did, and the refusals that are in order.
    Write { did: Option<Ran>, refusals: Vec<Reason> },
    /// A barrier after so many changes.
    Sync { count: usize },
}

/// What the world around the server excuses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Excuses {
    /// The wall clock was set.
    pub(crate) clock: bool,
    /// The disk is nearly full.
    pub(crate) full: bool,
    /// Syncs were made to fail.
    pub(crate) device: bool,
    /// Stored bits are flipped.
    pub(crate) rot: bool,
}

/// The server and its witness.
pub(crate) struct Witness {
    pub(crate) machine: Machine,
    pub(crate) model: Model,
    pub(crate) journal: Journal,
    pub(crate) excuses: Excuses,
    pub(crate) memory: Memory,
    pub(crate) trace: Trace,
    /// Writes that may or may not be visible yet, by stamp: nobody was told of them.
    pub(crate) unsure: BTreeMap<Hlc, u64>,
    /// Lost intervals as the server tells them.
    pub(crate) gaps: Vec<(Hlc, Hlc)>,
    /// The clock was not trusted before or after the call that is judged.
    pub(crate) fenced: bool,
    /// Newest stamp of the server before the call that is judged.
    pub(crate) newest_before: Hlc,
    /// The change that a crash caught in the middle.
    doubt: Option<Effect>,
    lost_power: bool,
    asked: BTreeMap<(ConnId, u64), VecDeque<Asked>>,
    /// Newest stamp given to a change, and newest instant answered.
    newest_stamp: Hlc,
    pub(crate) newest_answered: Hlc,
    pub(crate) sessions: Liveness,
    /// What the server said and nobody has carried away yet.
    pub(crate) said: Vec<Answer>,
    /// A flush failed: the server changes nothing until it is started again.
    pub(crate) read_only: bool,
    /// Changes that losses of power took.
    pub(crate) lost: u64,
    /// The newest number that the server has seen of each session: the older ones are acknowledged.
    newest_seq: BTreeMap<u64, u64>,
    /// Every inode number that was ever given.
    made: BTreeSet<u64>,
    /// The next may leave some out: power was lost.
    skips_ids: bool,
    next_conn: u64,
}

/// Which sessions have connections: what the server should know of them.
#[derive(Default)]
pub(crate) struct Liveness {
    conns: BTreeMap<ConnId, (u32, Option<u64>)>,
    idle_since: BTreeMap<u64, MonoTime>,
    owners: BTreeMap<u64, u32>,
}

impl Liveness {
    fn attach(&mut self, conn: ConnId, session: u64, now: MonoTime) {
        let Some((uid, attached)) = self.conns.get_mut(&conn) else { return };
        if *attached == Some(session) {
            return;
        }
        self.owners.insert(session, *uid);
        if let Some(before) = attached.replace(session) {
            self.leave(before, now);
        }
        self.idle_since.entry(session).or_insert(now);
    }

    fn detach(&mut self, conn: ConnId, now: MonoTime) {
        if let Some((_, Some(session))) = self.conns.remove(&conn) {
            self.leave(session, now);
        }
    }

    fn leave(&mut self, session: u64, now: MonoTime) {
        if let Some(since) = self.idle_since.get_mut(&session) {
            *since = now;
        }
    }

    fn expired(&self, now: MonoTime, timeout_ns: u64) -> Vec<u64> {
        let connected = |session: u64| self.conns.values().any(|(_, attached)| *attached == Some(session));
        let gone = |(session, since): &(&u64, &MonoTime)| !connected(**session) && now.since_ns(**since) > timeout_ns;
        self.idle_since.iter().filter(gone).map(|(session, _)| *session).collect()
    }

    fn forget(&mut self, session: u64) {
        self.idle_since.remove(&session);
    }
}

impl Witness {
    pub(crate) fn new(hardware: Hardware, trace: Trace) -> Witness {
        Witness {
            machine: Machine::new(hardware),
            model: Model::default(),
            journal: Journal::default(),
            excuses: Excuses::default(),
            memory: Memory::default(),
            trace,
            unsure: BTreeMap::new(),
            gaps: Vec::new(),
            fenced: false,
            newest_before: Hlc::ZERO,
            doubt: None,
            lost_power: false,
            asked: BTreeMap::new(),
            newest_stamp: Hlc::ZERO,
            newest_answered: Hlc::ZERO,
            sessions: Liveness::default(),
            said: Vec::new(),
            read_only: false,
            lost: 0,
            newest_seq: BTreeMap::new(),
            made: BTreeSet::new(),
            skips_ids: false,
            next_conn: 0,
        }
    }

    pub(crate) fn now(&self) -> MonoTime {
        self.machine.time.reading().mono
    }

    /// A new connection of user `uid`.
    pub(crate) fn connect(&mut self, uid: u32) -> ConnId {
        self.next_conn += 1;
        let id = ConnId(self.next_conn);
        self.machine.connect(id, frieze_wire::txn::Caller { uid, gid: uid, groups: Vec::new() });
        self.sessions.conns.insert(id, (uid, None));
        id
    }

    pub(crate) fn disconnect(&mut self, conn: ConnId) {
        self.machine.disconnect(conn);
        let now = self.now();
        self.sessions.detach(conn, now);
    }

    /// Hands a request to the server, and judges what it did and said.
    pub(crate) fn deliver(&mut self, conn: ConnId, ask: Ask) -> Verdict {
        if !self.machine.is_up() || !self.machine.is_connected(conn) {
            return Ok(());
        }
        self.trace.request(conn, &ask);
        let before = self.machine.marks();
        self.newest_before = before.newest;
        self.machine.handle(conn, &ask.header, ask.body.clone(), &ask.payload);
        let after = self.machine.marks();
        self.fenced = before.fenced || after.fenced;
        self.notice_session(conn, &ask);
        let newest = self.newest_seq.entry(ask.header.session.0).or_default();
        *newest = ask.header.seq.0.max(*newest);
        let expect = self.account(&ask, before, after)?;
        let key = (conn, ask.header.request_id);
        self.asked.entry(key).or_default().push_back(Asked { ask, expect });
        self.judge_answers(Some(key))
    }

    /// Lets the server flush, as its flusher does.
    pub(crate) fn flush(&mut self) -> Verdict {
        if !self.machine.is_up() {
            return Ok(());
        }
        let result = self.machine.flush();
        self.trace.line(|| format!("flush {result:?}"));
        self.read_only |= result.is_err();
        self.excuse("a flush", result)?;
        self.judge_answers(None)
    }

    /// Lets the server look after clock and sessions.
    pub(crate) fn tend(&mut self) -> Verdict {
        if !self.machine.is_up() {
            return Ok(());
        }
        let before = self.machine.marks();
        let expired = self.sessions.expired(self.now(), SESSION_TIMEOUT_NS);
        let result = self.machine.tend();
        let after = self.machine.marks();
        self.fenced = before.fenced || after.fenced;
        self.trace.line(|| format!("tend {result:?}"));
        let ended = (after.index - before.index) as usize;
        if ended > expired.len() || (result.is_ok() && ended < expired.len()) {
            return broken(Rule::Once, format!("{ended} sessions ended, {} were due: {expired:?}", expired.len()));
        }
        let end = |at: usize, session: u64| Effect {
            place: LogPlace::Meta(before.index + at as u64 + 1),
            stamp: after.newest,
            session,
            seq: 0,
            acked: 0,
            act: Act::Expired,
            made: 0,
            answered: false,
            durable: false,
        };
        for (at, session) in expired.iter().enumerate() {
            if at < ended {
                self.journal.effects.push(end(at, *session));
                self.model.sessions.remove(session);
                self.sessions.forget(*session);
            } else {
                self.doubt = Some(end(at, *session));
                break;
            }
        }
        self.newest_stamp = self.newest_stamp.max(if ended > 0 { after.newest } else { Hlc::ZERO });
        self.excuse("looking after clock and sessions", result)?;
        self.judge_answers(None)
    }

    /// Refuses an error of the server's own work that nothing excuses.
    fn excuse(&self, doing: &str, result: Result<(), Fault>) -> Verdict {
        match result {
            Err(fault) if !self.machine.is_dying() && !self.excused(fault.reason) => {
                broken(Rule::PromisedErrors, format!("{doing} failed without a reason: {fault} ({:?})", fault.reason))
            }
            _ => Ok(()),
        }
    }

    /// True if the state of the world excuses this refusal.
    pub(crate) fn excused(&self, reason: Reason) -> bool {
        match reason {
            Reason::Fenced => self.excuses.clock && self.fenced,
            Reason::NoSpace => self.excuses.full,
            Reason::InputOutput => self.excuses.device,
            Reason::Corrupt => self.excuses.rot,
            _ => false,
        }
    }

    fn notice_session(&mut self, conn: ConnId, ask: &Ask) {
        let session = ask.header.session.0;
        let uid = self.sessions.conns.get(&conn).map(|(uid, _)| *uid);
        if session != 0
            && self.model.sessions.contains_key(&session)
            && self.sessions.owners.get(&session) == uid.as_ref()
        {
            let now = self.now();
            self.sessions.attach(conn, session, now);
        }
    }

    /// Takes down what a request did, and what it may be answered.
    fn account(&mut self, ask: &Ask, before: Marks, after: Marks) -> Verdict<Expect> {
        let entries = after.index - before.index;
        let records = after.records - before.records;
        let request = ask.body.request.as_ref().expect("simulated clients ask something");
        match request {
            Request::Txn(txn) => {
                let op = txn.op.as_ref().expect("simulated transactions do something");
                if entries > 1 || records > 0 {
                    return broken(Rule::Once, format!("{op:?} made {entries} entries and {records} records"));
                }
                self.account_txn(ask, op, entries == 1, before, after)
            }
            Request::Write(write) => self.account_write(ask, write.append, write.offset, before, after),
            Request::Sync(_) => Ok(Expect::Sync { count: self.journal.effects.len() }),
            _ if entries + records > 0 => {
                broken(Rule::Once, format!("{request:?} made {entries} entries and {records} records"))
            }
            _ => Ok(Expect::Read),
        }
    }

    fn account_txn(&mut self, ask: &Ask, op: &Op, logged: bool, before: Marks, after: Marks) -> Verdict<Expect> {
        let (session, seq, acked) = (ask.header.session.0, ask.header.seq.0, ask.header.acked.0);
        let preview = self.model.preview(session, seq, op);
        let effect = Effect {
            place: LogPlace::Meta(before.index + 1),
            stamp: after.newest,
            session,
            seq,
            acked,
            act: Act::Txn(Box::new(op.clone())),
            made: 0,
            answered: false,
            durable: false,
        };
        if !logged {
            self.doubt = Some(effect);
            return Ok(Expect::Txn { logged, did: preview });
        }
        if preview.is_err() {
            self.check_stamp(after.newest)?;
        }
        let made = if preview == Err(Ok(())) { self.number_of_made(op)? } else { 0 };
        self.journal.effects.push(Effect { made, ..effect });
        let ran = self.model.run(session, seq, acked, op, after.newest);
        Ok(Expect::Txn { logged, did: Ok(ran) })
    }

    /// The number of the inode that an operation has just made, as the server tells it; 0 if it makes none.
    fn number_of_made(&mut self, op: &Op) -> Verdict<u64> {
        let Op::Make(make) = op else { return Ok(0) };
        if !matches!(self.model.tree.decide(op), Ok(Change::Make { .. })) {
            return Ok(0);
        }
        let target = Target { follow: false, ..make.target.clone() };
        let Some(Reply::Stat(reply)) = self.machine.look(Request::Stat(Stat { target, view: View::NOW })) else {
            return broken(Rule::Linearizable, format!("what {op:?} has made is not there"));
        };
        let id = reply.attr.inode;
        // They follow each other; after a loss of power some are left out, never used twice.
        let follows = id == self.model.tree.last_id() + 1 || (self.skips_ids && id > self.model.tree.last_id());
        if !self.made.insert(id) || !follows {
            return broken(
                Rule::Once,
                format!(
                    "an inode was given the number {id}, after {}; given ever: {:?}",
                    self.model.tree.last_id(),
                    self.made
                ),
            );
        }
        self.skips_ids = false;
        self.model.tree.next_id(id);
        Ok(id)
    }

    /// Remembers that a transaction of a session was carried out: it lives on this connection, or no more.
    fn follow_session(&mut self, conn: ConnId, ask: &Ask, id: u64) {
        let now = self.now();
        let Some(Request::Txn(txn)) = &ask.body.request else { return };
        match txn.op {
            Some(Op::OpenSession(_)) => self.sessions.attach(conn, id, now),
            Some(Op::CloseSession(_)) => self.sessions.forget(ask.header.session.0),
            _ => {}
        }
    }

    fn account_write(&mut self, ask: &Ask, append: bool, offset: u64, before: Marks, after: Marks) -> Verdict<Expect> {
        let (session, seq) = (ask.header.session.0, ask.header.seq.0);
        let handle = ask.handle.as_ref().expect("writes go through a handle");
        let (inode, len) = (handle.inode, ask.payload.len() as u64);
        let chunk_bytes = CHUNK_BYTES;
        // Everything in the log counts, also what nobody was told of: it may be committed yet.
        let offset = if append { self.model.tree.bytes(inode).size(Cut::NOW) } else { offset };
        let (first, last) = (offset / chunk_bytes, (offset + len - 1) / chunk_bytes);
        let records = after.records - before.records;
        let write =
            Write { session, offset, bytes: ask.payload.clone(), user_time: self.user_time(handle, &ask.payload) };
        let mut refusals = self.refusals_of_write(ask, handle, &write, append);
        if self.is_behind(ask) {
            // A number that the client has left behind, answered or not.
            refusals.push(Reason::SequenceTooOld);
        }
        let effect = |place, act| Effect {
            place,
            stamp: after.newest,
            session,
            seq,
            acked: 0,
            act,
            made: 0,
            answered: false,
            durable: false,
        };
        // The server's own transaction: it has no number.
        let grant = |index| Effect { seq: 0, ..effect(LogPlace::Meta(index), Act::TailGrant { inode, first }) };
        match after.index - before.index {
            0 => {}
            entries if append && entries <= 1 + len / (16 * chunk_bytes) + 1 => {
                self.journal.effects.extend((before.index + 1..=after.index).map(grant));
                self.model.granted_tail(session, inode, first);
            }
            entries => return broken(Rule::Once, format!("a write made {entries} entries in the metalog")),
        }
        let ran = self.model.sessions.get(&session).and_then(|state| state.ran.get(&seq)).cloned();
        let parts = last - first + 1;
        let effect = effect(LogPlace::Data(before.records + parts), Act::Write { inode, write: write.clone() });
        if records == 0 {
            // Died in the middle of the record, or of a grant before it.
            self.doubt = Some(match append && self.needs_grant(&effect) {
                true => grant(after.index + 1),
                false => effect,
            });
            if ran.is_none() && refusals.is_empty() && !self.machine.is_dying() {
                refusals.push(Reason::NoSpace);
            }
            return Ok(Expect::Write { did: ran, refusals });
        }
        if let Some(ran) = ran {
            return broken(
                Rule::Once,
                format!("request {seq} of session {session} ran again: it was {ran:?} and made {records} more records"),
            );
        }
        if records != parts {
            return broken(Rule::Linearizable, format!("a write over {parts} chunks made {records} records"));
        }
        if refusals.iter().any(|reason| !PERHAPS.contains(reason)) {
            return broken(
                Rule::PromisedErrors,
                format!("{len} bytes at {offset} of inode {inode} were written, and should be refused: {refusals:?}"),
            );
        }
        self.check_stamp(after.newest)?;
        self.journal.effects.push(effect);
        self.model.wrote(seq, inode, after.newest, write);
        self.unsure.insert(after.newest, inode);
        Ok(Expect::Write { did: Some(Ran::Wrote { stamp: after.newest, offset }), refusals: Vec::new() })
    }

    fn needs_grant(&self, effect: &Effect) -> bool {
        let Act::Write { inode, write } = &effect.act else { return false };
        let (first, last) = (write.offset / CHUNK_BYTES, (write.end() - 1) / CHUNK_BYTES);
        self.model.may_write(effect.session, *inode, first, last) != Granted::Yes
    }

    /// Why this write is to be refused; reasons of `PERHAPS` only may be.
    fn refusals_of_write(&self, ask: &Ask, handle: &Handle, write: &Write, append: bool) -> Vec<Reason> {
        let mut perhaps = Vec::new();
        let Some(session) = self.model.sessions.get(&write.session) else {
            // A connection that has spoken for it before is refused for want of a grant.
            return vec![Reason::UnknownSession, Reason::Busy, Reason::StaleHandle];
        };
        let node = self.model.tree.node(handle.inode, Hlc::MAX);
        if handle.session != write.session || node.is_none_or(|node| node.born != handle.born) {
            return vec![Reason::StaleHandle];
        }
        if handle.view.is_past() {
            return vec![Reason::ReadOnly];
        }
        if !handle.write {
            return vec![Reason::AccessDenied];
        }
        if session.ran.contains_key(&ask.header.seq.0) {
            // A late double of what was acknowledged long ago is known, or refused, and the newest is known.
            return match self.is_behind(ask) {
                true => vec![Reason::Busy, Reason::BackwardUserTime],
                false => Vec::new(),
            };
        }
        if node.is_some_and(|node| !node.plugin.is_empty()) && write.user_time.is_none() {
            return vec![Reason::InvalidArgument];
        }
        let (first, last) = (write.offset / CHUNK_BYTES, (write.end() - 1) / CHUNK_BYTES);
        match self.model.may_write(write.session, handle.inode, first, last) {
            Granted::Yes => {}
            _ if append => {}
            Granted::No => return vec![Reason::Busy],
            Granted::Perhaps => perhaps.push(Reason::Busy),
        }
        let newest = self.model.tree.bytes(handle.inode).newest_user_time(Cut::NOW);
        if write.user_time.is_some() && write.user_time < newest {
            perhaps.push(Reason::BackwardUserTime);
        }
        perhaps
    }

    /// True if the server has seen a newer number of the session.
    fn is_behind(&self, ask: &Ask) -> bool {
        self.newest_seq.get(&ask.header.session.0).is_some_and(|newest| *newest > ask.header.seq.0)
    }

    /// The time of a record: the first eight bytes, in microseconds.
    fn user_time(&self, handle: &Handle, payload: &[u8]) -> Option<i64> {
        let node = self.model.tree.node(handle.inode, Hlc::MAX)?;
        if node.plugin.is_empty() {
            return None;
        }
        let field: [u8; 8] = payload.get(..8)?.try_into().ok()?;
        i64::try_from(u64::from_le_bytes(field)).ok()?.checked_mul(1000)
    }

    fn check_stamp(&mut self, stamp: Hlc) -> Verdict {
        let floor = self.newest_stamp.max(self.newest_answered);
        if stamp <= floor {
            return broken(
                Rule::StampsRise,
                format!(
                    "a change was stamped {stamp}, not above the stamp {} and the answered instant {}",
                    self.newest_stamp, self.newest_answered
                ),
            );
        }
        self.newest_stamp = stamp;
        Ok(())
    }

    /// Judges what the server said since the last look. `key`: the request just handed in.
    fn judge_answers(&mut self, key: Option<(ConnId, u64)>) -> Verdict {
        let answers = self.machine.take_answers();
        for answer in &answers {
            self.trace.answer(answer);
            let of = (answer.conn, answer.header.request_id);
            // Doubles of a request have one name, and may be answered in any order: each answer has to fit one of them.
            let mut waiting = self.asked.remove(&of).unwrap_or_default();
            let mut verdict = broken(Rule::Once, format!("an answer to nothing that was asked: {:?}", answer.result));
            for place in (0..waiting.len()).rev() {
                verdict = self.judge(&waiting[place], answer, key == Some(of));
                if verdict.is_ok() {
                    if let (Some(asked), Ok(Reply::Txn(reply))) = (waiting.remove(place), &answer.result) {
                        self.follow_session(answer.conn, &asked.ask, reply.id);
                    }
                    break;
                }
            }
            verdict?;
            if !waiting.is_empty() {
                self.asked.insert(of, waiting);
            }
        }
        if !self.machine.is_dying() {
            self.doubt = None;
        }
        self.said.extend(answers);
        Ok(())
    }

    /// Requests of living connections that wait for an answer.
    pub(crate) fn unanswered(&self) -> usize {
        let living = self.asked.iter().filter(|((conn, _), _)| self.machine.is_connected(*conn));
        living.map(|(_, asked)| asked.len()).sum()
    }

    /// Ends the process, with or without the power of the machine.
    pub(crate) fn die(&mut self, kind: CrashKind) {
        self.trace.line(|| format!("dies: {kind:?}"));
        self.machine.die(kind);
        self.lost_power |= kind == CrashKind::Power;
        self.forget_process();
    }

    fn forget_process(&mut self) {
        self.asked.clear();
        self.sessions.conns.clear();
        self.excuses.device = false;
        self.read_only = false;
    }

    /// Stops the server in order.
    pub(crate) fn stop(&mut self) -> Verdict {
        let result = self.machine.stop();
        self.trace.line(|| format!("stop {result:?}"));
        self.judge_answers(None)?;
        let stopped = result.is_ok();
        self.excuse("stopping", result)?;
        if stopped && !self.machine.is_dying() {
            self.journal.durable_up_to(self.journal.effects.len());
        }
        Ok(())
    }

    /// Starts the server. False if it died again while it started.
    pub(crate) fn start(&mut self) -> Verdict<bool> {
        let result = self.machine.start();
        self.trace.line(|| format!("start {:?} {:?}", result, self.machine.notes()));
        if let Err(fault) = result {
            if self.machine.is_dying() {
                return Ok(false);
            }
            return broken(Rule::Restarts, format!("the server does not start: {fault} ({:?})", fault.reason));
        }
        let now = self.now();
        self.reconcile()?;
        self.sessions.idle_since = self.model.sessions.keys().map(|session| (*session, now)).collect();
        Ok(true)
    }

    /// Compares what recovery found with what it had to find, and goes on from there.
    fn reconcile(&mut self) -> Verdict {
        let status = self.machine.status();
        let (index, records) = (status.metalog_index, status.records);
        if self.journal.effects.is_empty() {
            return self.begin(index, records);
        }
        let (known_index, known_records) = self.journal.ends();
        if let Some(doubt) = self.doubt.take() {
            let whole = match doubt.place {
                LogPlace::Meta(end) => end == known_index + 1 && index >= end,
                LogPlace::Data(end) => end > known_records && records >= end,
            };
            if whole {
                self.newest_stamp = self.newest_stamp.max(doubt.stamp);
                let made = match &doubt.act {
                    Act::Txn(op) if self.model.preview(doubt.session, doubt.seq, op) == Err(Ok(())) => {
                        self.number_of_made(&op.clone())?
                    }
                    _ => 0,
                };
                self.journal.effects.push(Effect { made, ..doubt });
            }
        }
        let meta_orders: Vec<bool> = self
            .journal
            .effects
            .iter()
            .map(|effect| matches!(effect.place, LogPlace::Meta(end) if end <= index))
            .collect();
        let lost = self.journal.cut(index, records);
        let ends = self.journal.ends();
        if ends != (index, records) {
            return broken(
                Rule::Prefix,
                format!(
                    "recovery found {index} entries and {records} records, where changes end at {} and {}: half a \
                     change, or one that nobody asked for",
                    ends.0, ends.1
                ),
            );
        }
        let gaps: Vec<(Hlc, Hlc)> = status.gaps.iter().map(|gap| (Hlc(gap.from), Hlc(gap.to))).collect();
        if !self.lost_power && gaps != self.gaps {
            return broken(Rule::Durable, format!("only the process died, and a gap was declared: {gaps:?}"));
        }
        let last_name = meta_orders.iter().rposition(|survived| *survived).unwrap_or(0);
        for (order, effect) in &lost {
            let told = format!(
                "{:?} stamped {} (request {} of session {})",
                effect.act, effect.stamp, effect.seq, effect.session
            );
            if effect.durable {
                return broken(Rule::Durable, format!("was durable and is lost: {told}"));
            }
            if !self.lost_power && effect.answered {
                return broken(Rule::Durable, format!("the process died and took along: {told}"));
            }
            if matches!(effect.place, LogPlace::Data(_)) && *order < last_name {
                return broken(Rule::Prefix, format!("later names survived without these bytes: {told}"));
            }
            if effect.answered && !gaps.iter().any(|(from, to)| effect.stamp > *from && effect.stamp <= *to) {
                return broken(Rule::SameForEver, format!("no gap of {gaps:?} covers what was lost: {told}"));
            }
        }
        self.lost += lost.len() as u64;
        let told = lost.iter().any(|(_, effect)| effect.answered);
        if told {
            self.memory.forget_by_user_time();
        }
        self.trace.line(|| format!("restarted at {index} entries and {records} records, {} changes lost", lost.len()));
        self.gaps = gaps;
        self.model = self.journal.replay();
        self.unsure.clear();
        self.skips_ids |= self.lost_power;
        self.lost_power = false;
        Ok(())
    }

    /// The first start: the file system was made.
    fn begin(&mut self, index: u64, records: u64) -> Verdict {
        if (index, records) != (1, 0) {
            return broken(Rule::Restarts, format!("a new file system has {index} entries and {records} records"));
        }
        let stat = Stat { target: Target { base: 1, path: Vec::new(), follow: false }, view: View::NOW };
        let Some(Reply::Stat(root)) = self.machine.look(Request::Stat(stat)) else {
            return broken(Rule::Restarts, "a new file system has no root");
        };
        let format = Effect {
            place: LogPlace::Meta(1),
            stamp: Hlc(root.attr.born),
            session: 0,
            seq: 0,
            acked: 0,
            act: Act::Format { mode: root.attr.mode },
            made: 0,
            answered: false,
            durable: true,
        };
        self.newest_stamp = format.stamp;
        self.journal.effects.push(format);
        self.model = self.journal.replay();
        self.gaps = self.machine.status().gaps.iter().map(|gap| (Hlc(gap.from), Hlc(gap.to))).collect();
        self.lost_power = false;
        Ok(())
    }

    /// True if an instant lies inside a lost interval.
    pub(crate) fn in_gap(&self, at: Hlc) -> bool {
        self.gaps.iter().any(|(from, to)| at > *from && at < *to)
    }

    /// Stamp of the root directory: nothing is older.
    pub(crate) fn earliest(&self) -> Hlc {
        self.journal.effects.first().map_or(Hlc::ZERO, |format| format.stamp)
    }

    /// Newest stamp that a change was given.
    pub(crate) fn newest_stamp(&self) -> Hlc {
        self.newest_stamp
    }
}

/// Chunks of simulated files: small, so that writes cross them.
pub(crate) const CHUNK_BYTES: u64 = 64 << 10;
/// How long simulated sessions live without a connection.
pub(crate) const SESSION_TIMEOUT_NS: u64 = 60_000_000_000;
/// Refusals that are in order, but need not come.
const PERHAPS: [Reason; 2] = [Reason::Busy, Reason::SequenceTooOld];
