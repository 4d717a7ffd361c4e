//! The server with a witness beside it: every call goes to both, and the effects and answers of the server are
//! compared.
//!
//! The server handles one request at a time, so the order of the calls is the linear order for all checks. The effects
//! of a call follow from the ends of the two logs before and after it; a crash then removes what lies beyond the ends
//! that recovery finds, and the model is rebuilt from the rest.

mod account;
mod data;
mod edit;
mod liveness;
mod planned;
mod restart;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use frieze_base::{Fault, MonoTime, Reason};
use frieze_disk::TimeSource;
use frieze_hlc::Hlc;
use frieze_wire::message::Reply;

pub(crate) use edit::is_dry_run;
use liveness::Liveness;

use crate::exchange::{ClientRequest, ConnId, MachineResponse};
use crate::journal::{Act, Effect, Journal, LogPlace};
use crate::machine::{Hardware, Machine, Marks};
use crate::model::{Model, RequestEffect};
use crate::past_answers::PastAnswers;
use crate::trace::Trace;
use crate::violation::{Rule, Verdict, broken};

/// A request that waits for its answer, and the allowed answers.
pub(crate) struct WitnessedRequest {
    pub(crate) ask: ClientRequest,
    pub(crate) expect: Expectation,
}

pub(crate) enum Expectation {
    /// An answer that changes nothing, judged by the model when it comes.
    Read,
    /// A transaction: its effect, or the effect it would have had if it is not in the log.
    Txn { logged: bool, did: Result<RequestEffect, Result<(), Reason>> },
    /// A write: its effect, and the allowed refusals.
    Write { did: Option<RequestEffect>, refusals: Vec<Reason> },
    /// An edit or an expiry: its effect if it is in the log, now or from its first run.
    Planned { logged: bool, did: Option<RequestEffect> },
    /// A barrier after so many changes.
    Sync { count: usize },
}

/// Faults around the server that excuse refusals.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Excuses {
    /// The wall clock was set.
    pub(crate) clock: bool,
    /// The disk is nearly full.
    pub(crate) full: bool,
    /// Syncs, writes or reads were made to fail.
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
    pub(crate) memory: PastAnswers,
    pub(crate) trace: Trace,
    /// Writes that may or may not be visible yet, by stamp: no client has their answers.
    pub(crate) unsure: BTreeMap<Hlc, u64>,
    /// Lost intervals as the server reports them.
    pub(crate) gaps: Vec<(Hlc, Hlc)>,
    /// The clock was not trusted before or after the call that is judged.
    pub(crate) fenced: bool,
    /// Newest stamp of the server before the call that is judged.
    pub(crate) newest_before: Hlc,
    /// Changes during which a crash came: of these at most the first that is complete has happened.
    doubts: Vec<Effect>,
    /// Changes of names that were answered with an error of the device since the start: the journal may have them.
    failed: Vec<Effect>,
    lost_power: bool,
    asked: BTreeMap<(ConnId, u64), VecDeque<WitnessedRequest>>,
    /// Newest stamp given to a change, and newest instant answered.
    newest_stamp: Hlc,
    pub(crate) newest_answered: Hlc,
    pub(crate) sessions: Liveness,
    /// The user whose answer is judged.
    pub(crate) asker: u32,
    /// Answers of the server that the network has not collected yet.
    pub(crate) said: Vec<MachineResponse>,
    /// A flush failed: the server changes nothing until it is started again.
    pub(crate) read_only: bool,
    /// Changes that losses of power took.
    pub(crate) lost: u64,
    /// The newest number that the server has received of each session: the older ones are acknowledged.
    newest_seq: BTreeMap<u64, u64>,
    /// Every inode number that was ever given.
    made: BTreeSet<u64>,
    /// The next may leave some out: power was lost.
    skips_ids: bool,
    /// A loss of power may not have been declared yet: a server without a trusted clock does it with its first change.
    owes_loss: bool,
    next_conn: u64,
}

impl Witness {
    pub(crate) fn new(hardware: Hardware, trace: Trace) -> Witness {
        Witness {
            machine: Machine::new(hardware),
            model: Model::default(),
            journal: Journal::default(),
            excuses: Excuses::default(),
            memory: PastAnswers::default(),
            trace,
            unsure: BTreeMap::new(),
            gaps: Vec::new(),
            fenced: false,
            newest_before: Hlc::ZERO,
            doubts: Vec::new(),
            failed: Vec::new(),
            lost_power: false,
            asked: BTreeMap::new(),
            newest_stamp: Hlc::ZERO,
            newest_answered: Hlc::ZERO,
            sessions: Liveness::default(),
            asker: 0,
            said: Vec::new(),
            read_only: false,
            lost: 0,
            newest_seq: BTreeMap::new(),
            made: BTreeSet::new(),
            skips_ids: false,
            owes_loss: false,
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

    /// Gives a request to the server, and judges its effects and answers.
    pub(crate) fn deliver(&mut self, conn: ConnId, ask: ClientRequest) -> Verdict {
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
        let (before, after) = self.without_loss(before, after);
        let expect = self.account(&ask, before, after)?;
        let key = (conn, ask.header.request_id);
        self.asked.entry(key).or_default().push_back(WitnessedRequest { ask, expect });
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

    /// Lets the server write a checkpoint of the names, with so many flushes while it waits for its tables.
    pub(crate) fn checkpoint(&mut self, flushes: u32) -> Verdict {
        if !self.machine.is_up() || self.read_only {
            return Ok(());
        }
        let (written, flushed) = self.machine.checkpoint(flushes);
        self.trace.line(|| format!("checkpoint {written:?}, flushes {flushed:?}"));
        self.read_only |= flushed.is_err();
        self.excuse("a flush", flushed)?;
        match written {
            // The tables of the store are not complete up to it yet.
            Err(fault) if fault.reason == Reason::Unavailable => {}
            written => self.excuse("a checkpoint", written.map(drop))?,
        }
        self.judge_answers(None)
    }

    /// Names leave the server's memory, but for so many bytes.
    pub(crate) fn evict_names(&mut self, bytes_max: u64) -> Verdict {
        if !self.machine.is_up() {
            return Ok(());
        }
        let memory = self.machine.evict_names(bytes_max);
        self.trace.line(|| format!("names leave memory but for {bytes_max} bytes {memory:?}"));
        self.excuse("an eviction of names", memory.map(drop))
    }

    /// Lets the server look after clock and sessions.
    pub(crate) fn tend(&mut self) -> Verdict {
        if !self.machine.is_up() {
            return Ok(());
        }
        let before = self.machine.marks();
        let expired = self.sessions.expired(self.now(), SESSION_TIMEOUT_NS);
        let result = self.machine.tend();
        let given_back = self.machine.reclaim();
        let shelved = self.machine.shelve();
        let imaged = self.machine.image();
        let after = self.machine.marks();
        self.fenced = before.fenced || after.fenced;
        self.trace.line(|| format!("tend {result:?}, give back {given_back:?}, shelve {shelved:?}, image {imaged:?}"));
        let (before, after) = self.without_loss(before, after);
        let ended = (after.index - before.index) as usize;
        // A server without a trusted clock stamps nothing: it ends them later. One whose machine stopped meanwhile
        // skips those that it cannot end, and cannot be asked any more.
        let may_be_late = result.is_err() || self.fenced || self.machine.is_dying();
        if ended > expired.len() || (!may_be_late && ended < expired.len()) {
            return broken(Rule::Once, format!("{ended} sessions ended, {} were due: {expired:?}", expired.len()));
        }
        // One that cannot be ended now does not block others: the log says which were.
        let (mut due, mut executed_upto) = (expired, before.index);
        for index in before.index + 1..=after.index {
            let Some((stamp, session)) = self.ended(index, &due)? else {
                // The disk stopped before its entry could be read.
                break;
            };
            executed_upto = index;
            due.retain(|other| *other != session);
            self.journal.effects.push(self.end_of(index, stamp, session));
            self.model.sessions.remove(&session);
            self.sessions.forget(session);
        }
        // Changes from before the disk stopped, and the one during which it did, can all be there after the restart, in
        // their order.
        if self.doubts.is_empty() && self.machine.is_dying() {
            let written = executed_upto + 1..=after.index + 1;
            self.doubts =
                due.iter().zip(written).map(|(session, at)| self.end_of(at, after.newest, *session)).collect();
        }
        self.newest_stamp = self.newest_stamp.max(if ended > 0 { after.newest } else { Hlc::ZERO });
        self.excuse("looking after clock and sessions", result)?;
        self.excuse("giving back what was forgotten", given_back)?;
        self.excuse("moving the index to the disk", shelved)?;
        self.excuse("making images", imaged)?;
        self.judge_answers(None)
    }

    /// The same marks without the entry that declares a loss of power, if it is among the entries between them.
    fn without_loss(&mut self, before: Marks, after: Marks) -> (Marks, Marks) {
        if !self.owes_loss || after.index == before.index {
            return (before, after);
        }
        self.owes_loss = self.machine.is_dying();
        let first = Marks { index: before.index + 1, ..before };
        match self.machine.journal() {
            Some((_, entries)) if entries.contains_key(&first.index) => (before, after),
            // Whether the one entry is that one is not known: the request is in doubt.
            None if after.index == first.index => (before, Marks { index: before.index, ..after }),
            _ => (first, after),
        }
    }

    fn end_of(&self, index: u64, stamp: Hlc, session: u64) -> Effect {
        Effect::new(LogPlace::Meta(index), stamp, (session, 0, 0), Act::Expired)
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

    fn notice_session(&mut self, conn: ConnId, ask: &ClientRequest) {
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

    /// Judges the server's answers since the last check. `key`: the request that was just given to it.
    fn judge_answers(&mut self, key: Option<(ConnId, u64)>) -> Verdict {
        let answers = self.machine.take_answers();
        for answer in &answers {
            self.trace.answer(answer);
            let of = (answer.conn, answer.header.request_id);
            self.asker = self.sessions.conns.get(&answer.conn).map_or(0, |(uid, _)| *uid);
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
            let device = |fault: &Fault| fault.reason == Reason::InputOutput;
            let is_failure = answers.iter().any(|answer| answer.result.as_ref().is_err_and(device));
            let doubts = self.doubts.drain(..).filter(|doubt| is_failure && matches!(doubt.place, LogPlace::Meta(_)));
            self.failed.extend(doubts);
        }
        self.said.extend(answers);
        Ok(())
    }

    /// Requests of living connections that wait for an answer.
    pub(crate) fn unanswered(&self) -> usize {
        let living = self.asked.iter().filter(|((conn, _), _)| self.machine.is_connected(*conn));
        living.map(|(_, asked)| asked.len()).sum()
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
