//! The metalog of a machine with others: drives a [`Member`] of `frieze_metalog`.
//!
//! Guarantees: a transaction is answered when its entry is committed, on stable storage at a majority and here, and has been
//! executed here; entries are executed in the order of the log, the same at every member. Who leads no more answers nothing
//! that it has ordered: the client asks the next leader, and the namespace remembers what ran. A record of the journal is
//! said to be durable only after the data that its entries may name. After a failed write the member is silent.
//! Leaves to others: what is ordered and when it may be spoken of (`frieze_metalog`), the way to the others (`peers`).
//!
//! One lock, the core's, is held for one input of the member and everything that it brings about, execution included: so
//! effects are carried out in order, and the state is where the member thinks it is. Nobody waits while holding it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use frieze_base::{Fault, LogIndex, MonoTime, NodeId, Reason, SessionId};
use frieze_hlc::{Hlc, format_instant};
use frieze_metalog::{Change, DataEnd, Entry, Error, Member, MemberEffect, MemberInput, Members, Role};
use frieze_wire::peer::ServerMessage;
use frieze_wire::peer::metalog::MetalogClose;
use frieze_wire::txn::{Batch, Op, Outcome, Transaction};
use prost::Message;
use tracing::info;

use super::progress::{Idle, Progress};
use super::questions::Questions;
use super::segments::SegmentFiles;
use super::slots::{Queue, Slot};
use super::state::State;
use super::transfer::{Received, Transfers};
use super::wires::{self, Incoming, Outgoing};
use crate::caching::Gate;
use crate::clock::NodeClock;
use crate::device::Device;
use crate::durability::Wake;
use crate::peers::{PeerPayload, Peers};

/// Batches ordered and not committed. More wait and make larger ones: each costs every member a record and two messages.
const IN_FLIGHT_MAX: usize = 4;
/// Decisions in one batch, and those that wait.
const DECISIONS_MAX: usize = 4096;
const DECISIONS_WAITING_MAX: usize = 65_536;
/// How long a read waits for the answer of a majority, or for an instant to close.
const PATIENCE: Duration = Duration::from_secs(5);
/// The same for an instant while nobody is known to lead: an election takes a fraction of it.
const LEADERLESS: Duration = Duration::from_secs(1);
/// A question to the leader about an instant goes out again after so long, and a newer one after [`CLOSE_EVERY_NS`].
const CLOSE_AGAIN_NS: u64 = 100_000_000;
const CLOSE_EVERY_NS: u64 = 20_000_000;
/// Entries kept for members that lag, at most, and their bytes: beyond it they get the state.
const KEPT_ENTRIES: usize = 4096;
const KEPT_BYTES: usize = 64 << 20;
/// The same while a state is on its way to somebody who needs what follows it.
const KEPT_BYTES_SENDING: usize = 256 << 20;

/// See the module.
pub(super) struct Group {
    pub(super) id: NodeId,
    pub(super) clock: Arc<NodeClock>,
    device: Arc<Device>,
    pub(super) way: Arc<dyn Peers>,
    queue: Queue,
    pub(super) core: Mutex<Core>,
    /// Held by who flushes the journal.
    flushing: Mutex<()>,
    seen: Seen,
    pub(super) progress: Progress,
    /// Wakes who flushes the journal.
    unflushed: Arc<Wake>,
    pub(super) transfers: Transfers,
    /// Inode numbers up to it are left out, by every member.
    ids_above: AtomicU64,
    ticked: Mutex<Option<MonoTime>>,
    tick_ns: u64,
}

/// What is known without the core's lock.
#[derive(Default)]
struct Seen {
    applied: AtomicU64,
    closed: AtomicU64,
    /// It leads, and holds everything that was committed before.
    leads: AtomicBool,
    /// How often it began to.
    reigns: AtomicU64,
    /// It leads and cannot: another should.
    unfit: AtomicBool,
    /// 0: nobody is known to.
    leader: AtomicU32,
}

pub(super) struct Core {
    pub(super) member: Member,
    pub(super) journal: SegmentFiles,
    /// The last record written, and the last one on stable storage.
    written: LogIndex,
    persisted: LogIndex,
    /// The last record with an entry that may name data.
    names_data: LogIndex,
    /// Batches on their way, by their place.
    proposed: BTreeMap<u64, Proposed>,
    /// A leader serves once this entry, the first of its term, has been executed.
    serves_from: Option<LogIndex>,
    questions: Questions,
    closing: Option<Hlc>,
    /// The newest instant that somebody wants closed.
    wanted: Hlc,
    /// What the leader was asked to close last, and when.
    asked_close: Option<(Hlc, MonoTime)>,
    /// Sizes of the last entries executed, oldest first.
    kept: VecDeque<(LogIndex, usize)>,
    kept_bytes: usize,
    /// A state that has come whole.
    pub(super) received: Option<Received>,
    /// Decisions of the control plane that wait for a batch.
    decisions: Vec<frieze_wire::control::DecisionProto>,
    /// The term in which they were made.
    decided_in: u64,
    outgoing: Outgoing,
    incoming: BTreeMap<NodeId, Incoming>,
    failed: Option<Fault>,
}

/// A batch on its way.
struct Proposed {
    term: u64,
    batch: Batch,
    slots: Vec<Arc<Slot>>,
}

/// What the member is asked in one input, if it answers at once.
enum Asking<'a> {
    Nothing,
    Batch(Batch, Vec<Arc<Slot>>),
    Close,
    Read(u64),
    Change(&'a mut Option<Result<(LogIndex, u64), Fault>>),
}

/// What the server has to know to begin.
pub(super) struct Begin {
    pub(super) id: NodeId,
    pub(super) clock: Arc<NodeClock>,
    pub(super) device: Arc<Device>,
    pub(super) way: Arc<dyn Peers>,
    pub(super) unflushed: Arc<Wake>,
    pub(super) applied: LogIndex,
    pub(super) ids_above: u64,
    pub(super) tick_us: u64,
    /// Names the transfers of this life.
    pub(super) seed: u64,
    pub(super) idle: Idle,
}

/// What is to be known of a member from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetalogStatus {
    /// It leads, and holds all that was committed before.
    pub leads: bool,
    /// Whom it takes for the leader.
    pub leader: Option<NodeId>,
    /// Its term.
    pub term: u64,
    /// The members, as far as it knows.
    pub members: Members,
    /// The learners that could vote at once, as far as it leads.
    pub caught_up: Vec<NodeId>,
    /// Voters that there may be.
    pub voters_max: usize,
    /// Last entry that it no longer holds: the state stands for it.
    pub first: LogIndex,
    /// Last entry of its log.
    pub last: LogIndex,
    /// Last entry executed.
    pub applied: LogIndex,
    /// The closed timestamp.
    pub closed: Hlc,
    /// Why it is silent, if it is.
    pub failed: Option<Fault>,
}

impl Group {
    /// Goes on with `member`, whose records up to `persisted` are on stable storage. `first` is to be done first.
    pub(super) fn begin(
        begin: Begin,
        member: Member,
        journal: SegmentFiles,
        persisted: LogIndex,
        first: Vec<MemberEffect>,
        state: &State,
    ) -> Group {
        let core = Core {
            member,
            journal,
            written: persisted,
            persisted,
            names_data: LogIndex(0),
            proposed: BTreeMap::new(),
            serves_from: None,
            questions: Questions::default(),
            closing: None,
            wanted: Hlc::ZERO,
            asked_close: None,
            kept: VecDeque::new(),
            kept_bytes: 0,
            received: None,
            decisions: Vec::new(),
            decided_in: 0,
            outgoing: Outgoing::default(),
            incoming: BTreeMap::new(),
            failed: None,
        };
        let group = Group {
            id: begin.id,
            clock: begin.clock,
            device: begin.device,
            way: begin.way,
            queue: Queue::default(),
            core: Mutex::new(core),
            flushing: Mutex::default(),
            seen: Seen::default(),
            progress: Progress::new(begin.idle),
            unflushed: begin.unflushed,
            transfers: Transfers::new(begin.seed),
            ids_above: AtomicU64::new(begin.ids_above),
            ticked: Mutex::default(),
            tick_ns: begin.tick_us * 1000,
        };
        group.seen.applied.store(begin.applied.0, Ordering::Release);
        {
            let mut core = group.lock();
            let mut inputs = VecDeque::new();
            group.perform(&mut core, state, first, &mut Asking::Nothing, false, &mut inputs);
            group.run(&mut core, state, inputs);
        }
        group
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// See [`super::MetaPlane::execute`].
    pub(super) fn execute(
        &self,
        state: &State,
        transaction: Transaction,
        gate: Option<Arc<Gate>>,
    ) -> Result<Outcome, Fault> {
        if !self.leads() {
            return Err(self.not_here());
        }
        let slot = self.queue.put(transaction, gate);
        if !self.progress.is_driven() {
            slot.wake_me();
        }
        self.propose_waiting(&mut self.lock(), state);
        // It ends: what is ordered is committed, or the member stands down when a majority is silent, or its device fails.
        while !slot.is_done() {
            self.progress.rest();
        }
        slot.take()
    }

    /// Orders what waits, as far as there is room.
    fn propose_waiting(&self, core: &mut Core, state: &State) {
        while core.proposed.len() < IN_FLIGHT_MAX {
            let slots = self.queue.take();
            if !self.leads() || core.decided_in != core.member.term() {
                // What was known in an older term may have been overtaken.
                core.decisions.clear();
            }
            if !self.leads() {
                if slots.is_empty() {
                    return;
                }
                fail(&slots, &self.not_here());
                continue;
            }
            let decisions = core.decisions.drain(..core.decisions.len().min(DECISIONS_MAX)).collect::<Vec<_>>();
            if slots.is_empty() && decisions.is_empty() {
                return;
            }
            let transactions: Vec<Transaction> = slots.iter().map(|slot| slot.start()).collect();
            // Every member left the same numbers out when it began.
            let batch = Batch { transactions, ids_above: 0, decisions };
            let count = batch.transactions.len().max(1) as u32;
            match self.stamp(core, count) {
                Ok(stamp) => {
                    let data_end = if names_data(&batch) { self.data_end() } else { DataEnd::default() };
                    let input = MemberInput::Propose { body: batch.encode_to_vec(), count, data_end };
                    self.step(core, state, stamp, input, Asking::Batch(batch, slots));
                }
                Err(fault) => fail(&slots, &fault),
            }
        }
    }

    /// Puts decisions into the log while this member leads in `term`, some time, or not at all: whoever decides looks at what has
    /// become of it.
    pub(super) fn decide(
        &self,
        state: &State,
        term: u64,
        decisions: impl Iterator<Item = frieze_wire::control::DecisionProto>,
    ) {
        let mut core = self.lock();
        if core.decided_in != term {
            (core.decided_in, core.decisions) = (term, Vec::new());
        }
        let room = DECISIONS_WAITING_MAX.saturating_sub(core.decisions.len());
        core.decisions.extend(decisions.take(room));
        self.propose_waiting(&mut core, state);
    }

    /// Waits until `look` finds something, after each change of what this member knows; not for ever.
    pub(super) fn wait_for<T>(&self, look: impl FnMut() -> Option<T>) -> Option<T> {
        self.wait(look)
    }

    /// Fresh stamps above everything in the log.
    fn stamp(&self, core: &Core, count: u32) -> Result<Hlc, Fault> {
        let newest = core.member.newest();
        self.clock.observe(newest).map_err(|fault| {
            let words =
                format!("the newest change is stamped {newest}, which this server's clock cannot follow: {fault}");
            Fault::new(Reason::Unavailable, words)
        })?;
        let stamp = self.clock.tick_many(count.into());
        if stamp.is_err() {
            // A clock that is not trusted, or a bound that cannot be made durable: another can go on.
            self.seen.unfit.store(true, Ordering::Release);
        }
        stamp
    }

    fn data_end(&self) -> DataEnd {
        let end = self.device.log().end();
        DataEnd { segment: end.segment, offset: end.offset }
    }

    /// Gives the member an input and does what it asks for, and what comes of that.
    fn step(&self, core: &mut Core, state: &State, at: Hlc, input: MemberInput, mut asking: Asking<'_>) {
        let names = input_names_data(&input);
        let mut effects = Vec::new();
        core.member.step(at, input, &mut effects);
        let mut inputs = VecDeque::new();
        self.perform(core, state, effects, &mut asking, names, &mut inputs);
        self.run(core, state, inputs);
    }

    /// As [`Group::step`], of what needs no fresh stamp.
    pub(super) fn feed(&self, core: &mut Core, state: &State, input: MemberInput) {
        self.step(core, state, self.clock.newest(), input, Asking::Nothing);
    }

    fn run(&self, core: &mut Core, state: &State, mut inputs: VecDeque<MemberInput>) {
        while let Some(input) = inputs.pop_front() {
            let mut effects = Vec::new();
            core.member.step(self.clock.newest(), input, &mut effects);
            self.perform(core, state, effects, &mut Asking::Nothing, false, &mut inputs);
        }
        self.show(core, state);
    }

    /// Does what the member asks for, in order. `names`: entries that it writes may name data.
    fn perform(
        &self,
        core: &mut Core,
        state: &State,
        effects: Vec<MemberEffect>,
        asking: &mut Asking<'_>,
        names: bool,
        inputs: &mut VecDeque<MemberInput>,
    ) {
        for effect in effects {
            match effect {
                MemberEffect::Append { record, roll, segment, offset, bytes } => {
                    match core.journal.write(roll, segment, offset, &bytes) {
                        Ok(()) => {
                            core.written = record;
                            if names {
                                core.names_data = record;
                            }
                            inputs.push_back(MemberInput::Appended { record });
                            self.unflushed.wake();
                        }
                        Err(fault) => {
                            inputs.push_back(MemberInput::AppendFailed { record, reason: fault.reason });
                        }
                    }
                }
                MemberEffect::Remove { segment } => {
                    // What stays is found to be old at the next start.
                    let _left = core.journal.remove(segment);
                }
                MemberEffect::Send(message) => core.outgoing.tell(&*self.way, &message),
                MemberEffect::SendSnapshot { meta, message } => {
                    let to = message.to;
                    // One for which there is no room now is asked for again with the next heartbeat.
                    let here = self.applied() == meta.index && self.transfers.has_room(to);
                    let ids_above = self.ids_above.load(Ordering::Acquire);
                    let view = here.then(|| state.versions.view(meta.index).ok()).flatten();
                    match view {
                        Some(view) => self.transfers.begin((to, &meta, ids_above), &message, view),
                        None => inputs.push_back(MemberInput::SnapshotSent { to, whole: false }),
                    }
                }
                MemberEffect::Install { meta } => match self.install(core, state, &meta) {
                    Ok(()) => {}
                    Err(fault) => {
                        inputs.push_back(MemberInput::DeviceFailed { reason: fault.reason });
                        return;
                    }
                },
                MemberEffect::Committed { through, entries } => match self.commit(core, state, through, entries) {
                    Ok(()) => inputs.push_front(MemberInput::Applied { index: through }),
                    Err(fault) => {
                        inputs.push_back(MemberInput::DeviceFailed { reason: fault.reason });
                        return;
                    }
                },
                MemberEffect::Proposed { index, term } => match std::mem::replace(asking, Asking::Nothing) {
                    Asking::Batch(batch, slots) => {
                        core.proposed.insert(index.0, Proposed { term, batch, slots });
                    }
                    Asking::Change(answer) => *answer = Some(Ok((index, term))),
                    Asking::Nothing | Asking::Close | Asking::Read(_) => {}
                },
                MemberEffect::Refused(error) => match std::mem::replace(asking, Asking::Nothing) {
                    Asking::Batch(_, slots) => fail(&slots, &error.into()),
                    Asking::Change(answer) => *answer = Some(Err(error.into())),
                    // Who waits asks again.
                    Asking::Close => (core.closing, core.wanted) = (None, Hlc::ZERO),
                    Asking::Read(token) => core.questions.answered(token, Err(error.into())),
                    // A message that was not taken: its sender says it again.
                    Asking::Nothing => {}
                },
                MemberEffect::Closed { .. } | MemberEffect::NotClosed { .. } => core.closing = None,
                MemberEffect::ReadAt { token, index } => core.questions.answered(token, Ok(index)),
                MemberEffect::ReadFailed { token, error } => core.questions.answered(token, Err(error.into())),
                MemberEffect::Role { role, leader, .. } => self.on_role(core, state, role, leader),
                MemberEffect::Changed { .. } => {}
                MemberEffect::Failed(error) => self.on_failed(core, error.into()),
            }
        }
    }

    /// Executes committed entries.
    fn commit(&self, core: &mut Core, state: &State, through: LogIndex, entries: Vec<Entry>) -> Result<(), Fault> {
        let mut answers = Vec::new();
        let mut last = LogIndex(0);
        for entry in entries {
            let place = (entry.index, entry.stamp);
            match core.proposed.remove(&entry.index.0).filter(|proposed| proposed.term == entry.term) {
                Some(Proposed { batch, slots, .. }) => {
                    let outcomes = state.run(place, &batch, slots.iter().map(|slot| slot.reads()));
                    answers.extend(slots.into_iter().zip(outcomes));
                }
                None => state.follow(&entry)?,
            }
            core.kept.push_back((entry.index, entry.body.len()));
            core.kept_bytes += entry.body.len();
            last = entry.index;
        }
        if last < through {
            // The store's place moves on with entries that hold nothing, too.
            state.versions.add(through, Vec::new());
        }
        self.seen.applied.store(through.0, Ordering::Release);
        for (slot, outcome) in answers {
            slot.finish(Ok(outcome));
        }
        Ok(())
    }

    /// Puts the state that was received in the place of the one here.
    fn install(&self, core: &mut Core, state: &State, meta: &frieze_metalog::SnapshotMeta) -> Result<(), Fault> {
        let received = core.received.take().filter(|received| received.meta == *meta);
        let Some(Received { ids_above, .. }) = received else {
            return Err(Fault::new(Reason::Internal, format!("the state after entry {} has not come", meta.index)));
        };
        state.take_received(meta.index, &wires::state_to_wire(meta, ids_above).encode_to_vec(), ids_above)?;
        self.ids_above.store(ids_above, Ordering::Release);
        self.seen.applied.store(meta.index.0, Ordering::Release);
        (core.kept, core.kept_bytes) = (VecDeque::new(), 0);
        Ok(())
    }

    fn on_role(&self, core: &mut Core, state: &State, role: Role, leader: Option<NodeId>) {
        let before = self.leader();
        match leader {
            _ if leader == before => {}
            Some(leader) => info!("node {leader} leads the metalog, in term {}", core.member.term()),
            None => info!("nobody is known to lead the metalog any more"),
        }
        self.seen.leader.store(leader.map_or(0, |leader| leader.0), Ordering::Release);
        if role == Role::Leader {
            // The first entry of its term is in its log already.
            core.serves_from.get_or_insert(core.member.last());
            return;
        }
        core.serves_from = None;
        core.closing = None;
        self.transfers.forget_sending();
        if self.seen.leads.swap(false, Ordering::AcqRel)
            && let Some(caching) = state.caching()
        {
            caching.stand_down();
        }
        self.let_go(core, &Error::NotLeader { leader }.into());
    }

    fn on_failed(&self, core: &mut Core, fault: Fault) {
        core.failed = Some(fault.clone());
        core.serves_from = None;
        core.closing = None;
        core.questions.fail(&fault);
        self.seen.leads.store(false, Ordering::Release);
        self.seen.leader.store(0, Ordering::Release);
        self.let_go(core, &fault);
        // Who flushes finds out why, and tells.
        self.unflushed.wake();
    }

    /// Nothing that waits is answered by this leader. Whether it was ordered, the next one knows.
    fn let_go(&self, core: &mut Core, fault: &Fault) {
        for proposed in std::mem::take(&mut core.proposed).into_values() {
            fail(&proposed.slots, fault);
        }
        loop {
            let slots = self.queue.take();
            if slots.is_empty() {
                return;
            }
            fail(&slots, fault);
        }
    }

    /// After an input and all that it brought about: shows where the member is, and goes on with what waits.
    fn show(&self, core: &mut Core, state: &State) {
        self.seen.closed.fetch_max(core.member.closed().0, Ordering::AcqRel);
        if core.serves_from.is_some_and(|from| from <= self.applied()) && !self.leads() {
            // What sessions were given to cache by the leader before is not known: they may believe it for a lease. Those that
            // never keep anything were given nothing.
            if let Some(caching) = state.caching() {
                let namespace = state.read();
                let keeping = namespace.sessions().filter(|(_, session)| session.keeps);
                let sessions: Vec<SessionId> = keeping.map(|(id, _)| id).collect();
                drop(namespace);
                caching.take_over(sessions);
            }
            self.seen.reigns.fetch_add(1, Ordering::AcqRel);
            self.seen.leads.store(true, Ordering::Release);
        }
        if core.questions.take_again() {
            self.ask(core, state);
        }
        self.close_wanted(core, state);
        self.propose_waiting(core, state);
        self.progress.changed();
    }

    /// Asks how far this member has to be. Returns the question's number.
    fn ask(&self, core: &mut Core, state: &State) -> u64 {
        let token = core.questions.ask();
        self.step(core, state, self.clock.newest(), MemberInput::Read { token }, Asking::Read(token));
        token
    }

    /// Waits until the namespace here holds everything that anybody was told before the call.
    ///
    /// # Errors
    /// `Elsewhere`, `Unavailable`: no majority answers, or this server is no member: ask again, or another.
    pub(super) fn linearizable(&self, state: &State) -> Result<(), Fault> {
        let question = {
            let mut core = self.lock();
            match core.questions.join() {
                Some(question) => question,
                None => self.ask(&mut core, state),
            }
        };
        self.wait(|| match self.lock().questions.answer(question)? {
            Ok(index) if self.applied() < index => None,
            Ok(_) => Some(Ok(())),
            Err(fault) => Some(Err(fault)),
        })
        .unwrap_or_else(|| Err(Error::NoAnswer.into()))
    }

    /// See [`super::MetaPlane::close`].
    pub(super) fn close(&self, state: &State, at: Hlc) -> Result<bool, Fault> {
        if at <= self.closed() {
            return Ok(true);
        }
        // Refuses what has not come yet.
        self.clock.close(at)?;
        let began = self.clock.reading().mono;
        let closed = self.wait(|| {
            if at <= self.closed() {
                return Some(Ok(false));
            }
            self.promise(state, at);
            let waited = u128::from(self.clock.reading().mono.since_ns(began));
            if self.leader().is_none() && waited >= LEADERLESS.as_nanos() {
                return Some(Err(self.not_closed(at)));
            }
            self.lock().failed.clone().map(Err)
        });
        closed.unwrap_or_else(|| Err(self.not_closed(at)))
    }

    fn not_closed(&self, at: Hlc) -> Fault {
        let closed = self.closed();
        let words = format!(
            "the metalog cannot close {at} yet: no majority of its members answers; what can be read here without one is \
             {closed} ({}) and before",
            format_instant(closed)
        );
        Fault::new(Reason::NotYetClosed, words)
    }

    /// Sees to it that `at` is closed before long, and waits for nothing.
    pub(super) fn promise(&self, state: &State, at: Hlc) {
        if at <= self.closed() {
            return;
        }
        let mut core = self.lock();
        core.wanted = core.wanted.max(at);
        if core.member.role() == Role::Leader {
            return self.close_wanted(&mut core, state);
        }
        let now = self.clock.reading().mono;
        let due = core.asked_close.is_none_or(|(asked, when)| {
            let since = now.since_ns(when);
            since >= CLOSE_AGAIN_NS || (core.wanted > asked && since >= CLOSE_EVERY_NS)
        });
        if let Some(leader) = core.member.leader().filter(|_| due) {
            core.asked_close = Some((core.wanted, now));
            let told = ServerMessage::MetalogClose(MetalogClose { at: core.wanted.0 });
            self.way.tell(leader, told, PeerPayload::none());
        }
    }

    /// At the leader, one instant after the other: what is wanted meanwhile is the next.
    fn close_wanted(&self, core: &mut Core, state: &State) {
        if core.closing.is_some() || core.wanted <= core.member.closed() || core.serves_from.is_none() {
            return;
        }
        let at = core.wanted;
        // Entries on their way that are stamped above it close it.
        let stamp = match self.clock.close(at).and_then(|()| self.stamp(core, 1)) {
            Ok(stamp) => stamp,
            Err(_) => {
                // It lies ahead of the clock here, or the clock is not trusted: who waits asks again.
                core.wanted = Hlc::ZERO;
                return;
            }
        };
        core.closing = Some(at);
        self.step(core, state, stamp, MemberInput::Close { at }, Asking::Close);
    }

    /// Changes the members, or hands over the lead, as the leader. Returns when the change is committed.
    ///
    /// # Errors
    /// `Elsewhere`: ask the leader. `Busy`: a change is under way. `InvalidArgument`: it makes no sense.
    pub(super) fn change(&self, state: &State, change: Change) -> Result<(), Fault> {
        let mut answer = None;
        let input = MemberInput::Change(change);
        self.step(&mut self.lock(), state, self.clock.newest(), input, Asking::Change(&mut answer));
        let (index, term) = answer.unwrap_or_else(|| Err(Reason::Internal.into()))?;
        let committed = self.wait(|| {
            let core = self.lock();
            if let Some(fault) = &core.failed {
                return Some(Err(fault.clone()));
            }
            let done = self.applied() >= index;
            done.then(|| match core.member.term_at(index) {
                Some(found) if found != term => Err(Error::NotLeader { leader: core.member.leader() }.into()),
                _ => Ok(()),
            })
        });
        committed.unwrap_or_else(|| Err(Error::NoAnswer.into()))
    }

    /// Lets another member lead, if this one does.
    ///
    /// # Errors
    /// `Elsewhere`: it does not. `InvalidArgument`: the other cannot.
    pub(super) fn transfer(&self, state: &State, to: NodeId) -> Result<(), Fault> {
        let mut answer = None;
        let input = MemberInput::Transfer { to };
        self.step(&mut self.lock(), state, self.clock.newest(), input, Asking::Change(&mut answer));
        answer.map_or(Ok(()), |answer| answer.map(drop))
    }

    /// Lets the member lead that could go on soonest, if this one does and there is one.
    pub(super) fn step_aside(&self, state: &State) {
        let mut core = self.lock();
        if let Some(to) = core.member.next_leader().filter(|_| core.member.role() == Role::Leader) {
            self.feed(&mut core, state, MemberInput::Transfer { to });
        }
    }

    /// The server stops: nobody commits any more what is ordered here, and whoever waits for it is told.
    pub(super) fn end(&self) {
        let mut core = self.lock();
        core.serves_from = None;
        self.seen.leads.store(false, Ordering::Release);
        self.let_go(&mut core, &Fault::new(Reason::Unavailable, "this server stops: ask another one"));
        core.questions.fail(&Reason::Unavailable.into());
        self.progress.changed();
    }

    fn wait<T>(&self, look: impl FnMut() -> Option<T>) -> Option<T> {
        self.progress.wait(&|| self.clock.reading().mono, PATIENCE, look)
    }

    /// Another member says something of the Raft log.
    ///
    /// # Errors
    /// `BadFrame` for what no member sends.
    pub(super) fn heard(
        &self,
        state: &State,
        from: NodeId,
        said: frieze_wire::peer::metalog::MetalogMessage,
        payload: &[u8],
    ) -> Result<(), Fault> {
        let mut core = self.lock();
        let message = core.incoming.entry(from).or_default().take((from, self.id), said, payload)?;
        match message {
            // A state comes in pieces, and its message with the last of them.
            Some(message) if message.snapshot.is_some() => Err(wires::bad(from, "its state is missing")),
            Some(message) => {
                self.feed(&mut core, state, MemberInput::Receive(message));
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Another member has ended its connections.
    pub(super) fn gone(&self, state: &State, node: NodeId) {
        self.feed(&mut self.lock(), state, MemberInput::Gone { peer: node });
    }

    /// Time goes by: to be called more often than a tick of the member is long. Returns how long that is.
    pub(super) fn beat(&self, state: &State) -> Duration {
        let now = self.clock.reading().mono;
        {
            let mut ticked = self.ticked.lock().unwrap_or_else(PoisonError::into_inner);
            // One tick at most, however long nobody came: what the others said meanwhile is still to be heard.
            if ticked.is_some_and(|last| now.since_ns(last) < self.tick_ns) {
                return Duration::from_nanos(self.tick_ns / 4);
            }
            *ticked = Some(now);
        }
        self.feed(&mut self.lock(), state, MemberInput::Tick);
        self.tick_transfers(state);
        if self.seen.unfit.swap(false, Ordering::AcqRel) {
            self.step_aside(state);
        }
        Duration::from_nanos(self.tick_ns)
    }

    /// The only member does not wait for an election: it leads when this returns.
    ///
    /// # Errors
    /// The disk's.
    pub(super) fn lead_alone(&self, state: &State) -> Result<(), Fault> {
        // The longest that an election can be away, and then its entry.
        let ticks = 4 * frieze_metalog::MemberSettings::default().election_ticks;
        for _ in 0..ticks {
            if self.leads() {
                return Ok(());
            }
            self.feed(&mut self.lock(), state, MemberInput::Tick);
            self.flush(state, None)?;
        }
        Err(Fault::new(Reason::Internal, "the only member of the metalog does not lead it"))
    }

    /// The last record written, which a flush that begins now covers.
    pub(super) fn written(&self) -> LogIndex {
        self.lock().written
    }

    /// True if something of the journal is to be flushed, or the member has failed.
    pub(super) fn is_unflushed(&self) -> bool {
        let core = self.lock();
        core.written > core.persisted || core.failed.is_some()
    }

    /// True if it may be of an entry that names data: those come to stable storage before.
    pub(super) fn unflushed_names_data(&self) -> bool {
        let core = self.lock();
        core.names_data > core.persisted
    }

    /// Makes the journal durable up to the record `through`, or all of it.
    ///
    /// # Errors
    /// The disk's, now or before: the member is silent.
    pub(super) fn flush(&self, state: &State, through: Option<LogIndex>) -> Result<(), Fault> {
        let _one = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
        let (through, unflushed) = {
            let mut core = self.lock();
            if let Some(fault) = &core.failed {
                return Err(fault.clone());
            }
            let through = through.unwrap_or(core.written);
            if through <= core.persisted {
                return Ok(());
            }
            (through, core.journal.take_unflushed())
        };
        let flushed = unflushed.flush();
        let mut core = self.lock();
        match &flushed {
            Ok(()) => {
                core.persisted = core.persisted.max(through);
                self.feed(&mut core, state, MemberInput::Persisted { record: through });
            }
            Err(fault) => self.feed(&mut core, state, MemberInput::DeviceFailed { reason: fault.reason }),
        }
        flushed
    }

    /// The device of the data can no longer keep what it is given: neither can this member.
    pub(super) fn device_failed(&self, state: &State, reason: Reason) {
        self.feed(&mut self.lock(), state, MemberInput::DeviceFailed { reason });
    }

    /// The store holds entries up to `through` durably. Some are kept for members that lag.
    pub(super) fn truncate(&self, state: &State, through: LogIndex) {
        let mut core = self.lock();
        let sending = self.transfers.oldest();
        let bytes_max = if sending.is_some() { KEPT_BYTES_SENDING } else { KEPT_BYTES };
        let mut upto = LogIndex(0);
        while core.kept_bytes > bytes_max
            || (core.kept.len() > KEPT_ENTRIES
                && core.kept.front().is_some_and(|(index, _)| sending.is_none_or(|sending| *index <= sending)))
        {
            let Some((index, bytes)) = core.kept.pop_front() else { break };
            core.kept_bytes -= bytes;
            upto = index;
        }
        if upto > LogIndex(0) {
            let through = upto.min(through);
            self.feed(&mut core, state, MemberInput::Truncate { through });
        }
    }

    pub(super) fn applied(&self) -> LogIndex {
        LogIndex(self.seen.applied.load(Ordering::Acquire))
    }

    pub(super) fn closed(&self) -> Hlc {
        Hlc(self.seen.closed.load(Ordering::Acquire))
    }

    pub(super) fn leads(&self) -> bool {
        self.seen.leads.load(Ordering::Acquire)
    }

    pub(super) fn reigns(&self) -> u64 {
        self.seen.reigns.load(Ordering::Acquire)
    }

    pub(super) fn leader(&self) -> Option<NodeId> {
        Some(NodeId(self.seen.leader.load(Ordering::Acquire))).filter(|leader| leader.0 > 0)
    }

    pub(super) fn newest(&self) -> Hlc {
        self.lock().member.newest()
    }

    pub(super) fn status(&self) -> MetalogStatus {
        let core = self.lock();
        MetalogStatus {
            leads: self.leads(),
            leader: core.member.leader().filter(|_| core.failed.is_none()),
            term: core.member.term(),
            members: core.member.members().clone(),
            caught_up: core.member.caught_up(),
            voters_max: core.member.voters_max(),
            first: core.member.base().index,
            last: core.member.last(),
            applied: self.applied(),
            closed: self.closed(),
            failed: core.failed.clone(),
        }
    }

    /// Why a transaction is not taken here.
    pub(super) fn not_here(&self) -> Fault {
        match self.leader() {
            Some(leader) if leader == self.id => {
                Fault::new(Reason::Unavailable, "this server has just begun to lead the metalog: try again in a moment")
            }
            leader => Error::NotLeader { leader }.into(),
        }
    }
}

fn fail(slots: &[Arc<Slot>], fault: &Fault) {
    slots.iter().for_each(|slot| slot.finish(Err(fault.clone())));
}

/// True if what a batch changes may rest on bytes of files that were written before: then those come to stable storage first,
/// so that a name or a length is never there without them (protocols §7). Making what is new, and opening sessions, does not.
fn names_data(batch: &Batch) -> bool {
    batch.transactions.iter().any(|transaction| match &transaction.op {
        Some(Op::Make(make)) => make.or_open || make.replaces,
        Some(Op::OpenSession(_) | Op::Format(_) | Op::MakeSnapshot(_) | Op::DeleteSnapshot(_)) => false,
        Some(Op::MakeNameless(_)) => false,
        _ => true,
    })
}

/// True if entries in an input may name data: the leader says so by the end of its data log.
fn input_names_data(input: &MemberInput) -> bool {
    match input {
        MemberInput::Propose { data_end, .. } => *data_end != DataEnd::default(),
        MemberInput::Receive(message) => {
            let ends = message.entries.iter().filter_map(|entry| entry.data_end());
            ends.into_iter().any(|end| end != DataEnd::default())
        }
        _ => false,
    }
}
