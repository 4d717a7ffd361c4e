//! The replica: its state, its `step`, and its queries.

mod member;
mod model;
mod restart;

use std::collections::{BTreeMap, VecDeque};

use model::{DirtyRecord, NeighbourState, PendingClose};

use frieze_base::{ChainEpoch, ChainId, ChunkId, NodeId, Reason, Seq, SessionId};
use frieze_hlc::Hlc;
use frieze_wire::chain::{Configuration, RecordHeader};
use frieze_wire::message::Durability;

pub use model::Replica;

use crate::configuration::RequestId;
use crate::dedupe::{BelowFloor, DedupeEntry};
use crate::error::Error;
use crate::message::{AppendToken, LogEnd, Moment, ReplicaEffect, ReplicaInput, WriteDone, WriteRequest};
use crate::settings::Settings;

/// The chain's memory of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestOutcome {
    /// Part of the group that this chain holds, the lowest if it holds several.
    pub part: u8,
    /// How far it has come.
    pub state: RequestState,
}

/// How far a remembered request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestState {
    /// It is a record and not yet committed: send the write again to be answered with the first.
    InFlight,
    /// It is committed.
    Done(WriteDone),
}

impl Replica {
    /// An empty replica of `chain`, its only member, in configuration `epoch`.
    pub fn new(chain: ChainId, epoch: ChainEpoch, settings: Settings) -> Replica {
        Replica::member(chain, NodeId::default(), Configuration::alone(epoch), settings)
    }

    /// An empty replica of `chain` on node `me`.
    pub fn member(chain: ChainId, me: NodeId, configuration: Configuration, settings: Settings) -> Replica {
        Replica {
            chain,
            me,
            settings,
            configuration,
            last_epoch: ChainEpoch(0),
            last: 0,
            appended: 0,
            clean: 0,
            dirty: VecDeque::new(),
            persisted: LogEnd::default(),
            failed: None,
            newest: Hlc::ZERO,
            newest_group: (SessionId(0), Seq(0)),
            promised: Hlc::ZERO,
            promises: VecDeque::new(),
            closed: Hlc::ZERO,
            closed_follows: 0,
            closing: Vec::new(),
            tail_queries: Vec::new(),
            link: NeighbourState::default(),
            sessions: BTreeMap::new(),
            tokens: 0,
            epochs: VecDeque::new(),
        }
    }

    /// Advances the replica by one input; `out` receives the driver's tasks, in order.
    ///
    /// # Panics
    /// If the driver breaks its part: a tick that is not fresh, appends completed out of order, a token never given.
    pub fn step(&mut self, at: Moment, input: ReplicaInput, out: &mut Vec<ReplicaEffect>) {
        match input {
            ReplicaInput::Write(write) => {
                let request = write.request;
                if let Err(error) = self.on_write(at, write, out) {
                    out.push(ReplicaEffect::Reply { request, result: Err(error.into()) });
                }
            }
            ReplicaInput::Appended { token, end } => {
                let next = (self.appended - self.clean) as usize;
                let record = self.dirty.get_mut(next).expect("only a record that was asked for is appended");
                assert_eq!(record.token, token, "appends complete in the order they were asked for");
                record.end = Some(end);
                self.appended = record.header.n;
                self.acknowledge_promises();
                self.forward(out);
                self.commit(out);
            }
            ReplicaInput::AppendFailed { token, reason } => {
                if self.is_head() {
                    self.withdraw(token, &Error::AppendFailed { reason }, out);
                    self.acknowledge_promises();
                    self.forward(out);
                    self.answer_closing(out);
                } else {
                    // The members before it hold the record: without it this one is none of them any more.
                    self.failed.get_or_insert(reason);
                    self.refuse_waiting(reason, out);
                }
            }
            ReplicaInput::Persisted { through } => {
                self.persisted = self.persisted.max(through);
                self.commit(out);
            }
            ReplicaInput::DeviceFailed { reason } => {
                self.failed.get_or_insert(reason);
                self.refuse_waiting(reason, out);
            }
            ReplicaInput::Close { request, at: instant } => {
                if let Err(error) = self.on_close(at, request, instant, out) {
                    out.push(ReplicaEffect::Reply { request, result: Err(error.into()) });
                }
                self.acknowledge_promises();
                self.forward(out);
                self.answer_closing(out);
            }
            ReplicaInput::Configure(configuration) => self.configure(configuration, out),
            ReplicaInput::Receive { from, epoch, message } => self.on_message(at, from, epoch, message, out),
            ReplicaInput::QueryTail { request } => self.on_query_tail(request, out),
            ReplicaInput::Resend => self.resend(out),
            ReplicaInput::EndSession(session) => {
                self.sessions.remove(&session);
            }
        }
        self.report_progress(out);
        self.assert_whole();
    }

    /// The chain.
    pub fn chain(&self) -> ChainId {
        self.chain
    }

    /// Configuration in force.
    pub fn epoch(&self) -> ChainEpoch {
        self.configuration.epoch
    }

    /// Configuration under which the last record was stamped.
    pub fn last_epoch(&self) -> ChainEpoch {
        self.last_epoch
    }

    /// Number of the last record given, committed or not.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Commit position: every record up to it may be read.
    pub fn clean(&self) -> u64 {
        self.clean
    }

    /// Newest stamp given.
    pub fn newest(&self) -> Hlc {
        self.newest
    }

    /// The closed timestamp: no record will be stamped at or below it any more.
    pub fn closed(&self) -> Hlc {
        self.closed
    }

    /// Newest promise made or received here, acknowledged or not.
    pub fn promised(&self) -> Hlc {
        self.promised
    }

    /// True if a read at `at` may be answered at once: it is closed, and every record up to it is committed. If not,
    /// [`ReplicaInput::Close`] answers when it is.
    pub fn is_readable_at(&self, at: Hlc) -> bool {
        at <= self.closed && self.first_dirty().is_none_or(|stamp| at < stamp)
    }

    /// The instant at which a read of now reads this chain: [`Hlc::MAX`], or just before the first record that is not
    /// committed. Stamps rise with numbers, so what is clean is a cut.
    pub fn now_cut(&self) -> Hlc {
        self.first_dirty().map_or(Hlc::MAX, Hlc::previous)
    }

    /// The memory of request `seq` of `session` on this chain; `None` if it never became a record here, or is
    /// forgotten. An append asks every chain before it chooses its offset: a retry has to find the first.
    pub fn outcome_of(&self, session: SessionId, seq: Seq) -> Option<RequestOutcome> {
        let (part, run) = self.sessions.get(&session)?.first_part(seq)?;
        let state = match run {
            DedupeEntry::InFlight { .. } => RequestState::InFlight,
            DedupeEntry::Done(done) => RequestState::Done(done),
        };
        Some(RequestOutcome { part, state })
    }

    /// The sessions that are remembered, in order. After a recovery the driver ends those that live no more.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> {
        self.sessions.keys().copied()
    }

    /// The record of a request that is not committed yet.
    pub fn in_flight_of(&self, session: SessionId, seq: Seq) -> Option<&RecordHeader> {
        let headers = self.dirty.iter().map(|record| &record.header);
        headers.rev().find(|header| (header.session, header.seq) == (session, seq))
    }

    /// True if a record of the session is not committed yet.
    pub fn is_in_flight(&self, session: SessionId) -> bool {
        self.dirty.iter().any(|record| record.header.session == session)
    }

    /// Records not yet committed.
    pub fn in_flight(&self) -> usize {
        self.dirty.len()
    }

    /// Head: epoch, duplicates, stamp, number, append (protocols §2).
    fn on_write(&mut self, at: Moment, write: WriteRequest, out: &mut Vec<ReplicaEffect>) -> Result<(), Error> {
        self.check_request(&write)?;
        let memory = self.sessions.entry(write.header.session).or_default();
        memory.acknowledge(write.acked.min(write.header.seq));
        match memory.recall(write.header.seq, write.header.part) {
            Err(BelowFloor { floor }) => {
                return Err(Error::SequenceTooOld { session: write.header.session, seq: write.header.seq, floor });
            }
            Ok(Some(DedupeEntry::Done(done))) => {
                out.push(ReplicaEffect::Reply { request: write.request, result: Ok(done) });
                return Ok(());
            }
            Ok(Some(DedupeEntry::InFlight { n })) => return self.join(n, write.request),
            Ok(None) => {}
        }
        self.check_room()?;
        self.check_user_time(&write)?;
        let stamp = self.stamp(at, &write)?;

        let n = self.last + 1;
        let epoch = self.configuration.epoch;
        let version = 1 + write.chunk_version.max(self.newest_version_in_flight(write.header.chunk));
        let token = AppendToken(self.tokens);
        self.tokens += 1;
        self.last = n;
        self.last_epoch = epoch;
        self.note_epoch(epoch, n);
        let memory = self.sessions.get_mut(&write.header.session).expect("made above");
        memory.begin(write.header.seq, write.header.part, n, self.settings.remembered_max);
        let header = RecordHeader { n, epoch, version, stamp, chain: self.chain, ..write.header };
        self.dirty.push_back(DirtyRecord {
            token,
            acked: write.acked.min(header.seq),
            header: header.clone(),
            durability: write.durability,
            waiting: vec![write.request],
            end: None,
        });
        out.push(ReplicaEffect::Append { token, request: write.request, header });
        Ok(())
    }

    fn check_request(&self, write: &WriteRequest) -> Result<(), Error> {
        let header = &write.header;
        let (chain, current, found) = (self.chain, self.configuration.epoch, header.epoch);
        assert!(header.part < header.parts, "part {} of a group of {}", header.part, header.parts);
        if found < current {
            return Err(Error::StaleEpoch { chain, current, found });
        }
        if found > current {
            return Err(Error::Behind { chain, current, found });
        }
        if !self.is_head() {
            return Err(Error::NotHead { chain, head: self.configuration.head() });
        }
        if header.session == SessionId(0) || header.seq == Seq(0) {
            return Err(Error::Unnumbered { session: header.session, seq: header.seq });
        }
        if header.len == 0 {
            return Err(Error::Empty);
        }
        Ok(())
    }

    /// Lets a retry wait for the record that its first run has become.
    fn join(&mut self, n: u64, request: RequestId) -> Result<(), Error> {
        self.check_device()?;
        let max = self.settings.retries_max;
        let waiting = &mut self.dirty[(n - self.clean - 1) as usize].waiting;
        if waiting.len() > max {
            return Err(Error::Overloaded { what: "retries of one request", max: max as u64 });
        }
        waiting.push(request);
        Ok(())
    }

    fn check_device(&self) -> Result<(), Error> {
        match self.failed {
            Some(reason) => Err(Error::DeviceFailed { chain: self.chain, reason }),
            None => Ok(()),
        }
    }

    fn check_room(&self) -> Result<(), Error> {
        self.check_device()?;
        let max = self.settings.in_flight_max;
        if self.dirty.len() >= max {
            return Err(Error::Overloaded { what: "writes in flight", max: max as u64 });
        }
        Ok(())
    }

    /// User time never goes backwards within a file, until its times begin anew; equal times are allowed (FFFS §6.4).
    fn check_user_time(&self, write: &WriteRequest) -> Result<(), Error> {
        let Some(found) = write.header.user_time else { return Ok(()) };
        let same_file = self.appending().filter(|record| record.header.chunk.inode == write.header.chunk.inode);
        let same_file = same_file.filter(|record| record.header.stamp > write.times_after);
        let newest = same_file.filter_map(|record| record.header.user_time).chain(write.newest_user_time).max();
        match newest {
            Some(newest) if found < newest => {
                Err(Error::BackwardUserTime { file_offset: write.file_offset, found, newest })
            }
            _ => Ok(()),
        }
    }

    /// Takes the fresh tick as the stamp of the record: above every stamp, every promise and the sender's newest known
    /// stamp.
    fn stamp(&mut self, at: Moment, write: &WriteRequest) -> Result<Hlc, Error> {
        let stamp = at.hlc;
        // The driver's clock adopts a sender's stamp if it is near enough. If it did not, the sender is at fault.
        if write.seen >= stamp {
            return Err(Error::SeenFuture { seen: write.seen, stamp });
        }
        let group = (write.header.session, write.header.seq);
        assert!(stamp > self.promised, "stamp {stamp} is promised not to come: {} is closed", self.promised);
        assert!(
            stamp > self.newest || self.is_further_part(stamp, group, write.header.part),
            "stamp {stamp} is not above {}, the newest of the chain",
            self.newest
        );
        self.newest = stamp;
        self.newest_group = group;
        Ok(stamp)
    }

    fn is_further_part(&self, stamp: Hlc, group: (SessionId, Seq), part: u8) -> bool {
        part > 0 && stamp == self.newest && group == self.newest_group
    }

    /// Newest version of `chunk` among the records that the index does not hold yet; 0 if there is none.
    fn newest_version_in_flight(&self, chunk: ChunkId) -> u64 {
        let mut of_chunk = self.appending().filter(|record| record.header.chunk == chunk);
        of_chunk.next().map_or(0, |record| record.header.version)
    }

    /// The records that are not whole in the log, newest first.
    fn appending(&self) -> impl Iterator<Item = &DirtyRecord> {
        self.dirty.iter().rev().take_while(|record| record.header.n > self.appended)
    }

    /// Commits every record that is complete here and at all successors and, if its writer asked for it, durable, and
    /// answers its request. Cumulative: a record waits for those before it, so that what is clean is a prefix.
    fn commit(&mut self, out: &mut Vec<ReplicaEffect>) {
        // A syncing node commits nothing before it knows that its log is a prefix of the chain's.
        if self.failed.is_some() || !(self.is_member() || self.is_sound()) {
            return;
        }
        while let Some(record) = self.dirty.front()
            && let Some(end) = record.end
            && record.header.n <= self.behind()
            && (record.durability == Durability::Async || end <= self.persisted)
        {
            let record = self.dirty.pop_front().expect("it was at the front");
            assert_eq!(record.header.n, self.clean + 1, "records commit one after the other");
            self.clean = record.header.n;
            let done =
                WriteDone { stamp: record.header.stamp, chunk: record.header.chunk, offset: record.header.offset };
            if let Some(memory) = self.sessions.get_mut(&record.header.session) {
                memory.finish(record.header.seq, record.header.part, done);
            }
            out.extend(record.waiting.into_iter().map(|request| ReplicaEffect::Reply { request, result: Ok(done) }));
        }
        self.answer_tail_queries(out);
        self.answer_closing(out);
    }

    /// Takes back the record of `token` and all after it: none of them is in the log. Their stamps stay burnt.
    fn withdraw(&mut self, token: AppendToken, error: &Error, out: &mut Vec<ReplicaEffect>) {
        let Some(first) = self.dirty.iter().position(|record| record.token == token) else {
            // Withdrawn already, together with one before it.
            return assert!(token.0 < self.tokens, "append {} was never asked for", token.0);
        };
        assert!(self.dirty[first].end.is_none(), "append {} was reported whole and then failed", token.0);
        for record in self.dirty.drain(first..) {
            if let Some(memory) = self.sessions.get_mut(&record.header.session) {
                memory.withdraw(record.header.seq, record.header.part);
            }
            let refused = |request| ReplicaEffect::Reply { request, result: Err(error.clone().into()) };
            out.extend(record.waiting.into_iter().map(refused));
        }
        self.last = self.clean + self.dirty.len() as u64;
        self.forget_after(self.last);
        assert!(self.link.sent.is_none_or(|sent| sent <= self.last), "only what is whole is sent on");
        for promise in &mut self.promises {
            promise.follows = promise.follows.min(self.last);
        }
    }

    /// Promises that nothing will be stamped at or below `instant`, and lets `request` wait until that is known and
    /// everything up to it is committed.
    fn on_close(
        &mut self,
        at: Moment,
        request: RequestId,
        instant: Hlc,
        out: &mut Vec<ReplicaEffect>,
    ) -> Result<(), Error> {
        if instant > at.hlc {
            return Err(Error::CloseFuture { at: instant, clock: at.hlc });
        }
        if !self.is_member() {
            return Err(Error::NotMember { chain: self.chain });
        }
        if self.first_dirty().is_some_and(|stamp| stamp <= instant) {
            self.check_device()?;
        }
        let max = self.settings.closing_max;
        if self.closing.len() >= max {
            return Err(Error::Overloaded { what: "instants waiting to close", max: max as u64 });
        }
        self.have_closed(instant, out);
        self.closing.push(PendingClose { at: instant, request });
        Ok(())
    }

    /// Tail: a promise counts from when the record that it follows is present. The other members learn of it from
    /// there.
    fn acknowledge_promises(&mut self) {
        if !self.is_tail() && !self.is_syncing() {
            return;
        }
        while let Some(promise) = self.promises.front()
            && promise.follows <= self.appended
        {
            (self.closed, self.closed_follows) = (promise.at, promise.follows);
            self.promises.pop_front();
        }
    }

    fn answer_closing(&mut self, out: &mut Vec<ReplicaEffect>) {
        let mut closing = std::mem::take(&mut self.closing);
        closing.retain(|&PendingClose { at, request }| {
            let readable = self.is_readable_at(at);
            if readable {
                out.push(ReplicaEffect::Closed { request, at });
            }
            !readable
        });
        self.closing = closing;
    }

    /// Refuses every request that waits for a record that will not commit. The records stay dirty: they may be in the
    /// log.
    fn refuse_waiting(&mut self, reason: Reason, out: &mut Vec<ReplicaEffect>) {
        self.refuse_all(&Error::DeviceFailed { chain: self.chain, reason }, out);
    }

    fn first_dirty(&self) -> Option<Hlc> {
        self.dirty.front().map(|record| record.header.stamp)
    }

    /// Checks what holds between any two inputs. Each line costs O(1), so it stays on in release.
    fn assert_whole(&self) {
        assert!(
            self.clean <= self.appended && self.appended <= self.last,
            "clean, appended and last are in this order"
        );
        assert_eq!(self.dirty.len() as u64, self.last - self.clean, "every record after the commit position is held");
        assert!(self.closed <= self.promised, "a promise is made before it counts");
        assert_eq!(
            self.promises.is_empty(),
            self.closed == self.promised,
            "the newest promise counts or is on its way"
        );
        assert!(self.last_epoch <= self.configuration.epoch, "no record is of a newer configuration");
        if let Some(front) = self.dirty.front() {
            assert_eq!(front.header.n, self.clean + 1, "numbers have no hole");
        }
    }
}
