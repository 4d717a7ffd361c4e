//! The driver of one member: what it consists of, and how an input becomes effects.

use std::collections::{BTreeMap, VecDeque};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use frieze_base::{Fault, LogIndex, MonoTime, NodeId, Reason};
use frieze_hlc::Hlc;
use frieze_locks::{Mutex, MutexGuard, levels};
use frieze_metalog::{DataEnd, MemberEffect, MemberInput, RaftMember, SnapshotMeta};
use frieze_wire::peer::metalog::MetalogMessage;
use frieze_wire::txn::Batch;

use super::super::apply_wait::ApplyWait;
use super::super::codec::{self, RaftReceiver, RaftSender};
use super::super::durable_mark::DurableMark;
use super::super::pending_txns::{PendingTxn, TxnQueue};
use super::super::read_index::ReadIndexQueue;
use super::super::segments::SegmentFiles;
use super::super::snapshot_transfer::SnapshotTransfers;
use super::super::state::AppliedState;
use frieze_net::{Idle, PEER_WAIT_MAX, Peers};
use frieze_storage::{Device, IdentityStore, NodeClock, Wake};

use super::losses::UnsafeIds;

/// The driver of one member; see [`crate::raft_driver`].
pub(crate) struct RaftDriver {
    pub(super) id: NodeId,
    pub(super) clock: Arc<NodeClock>,
    pub(super) device: Arc<Device>,
    pub(super) way: Arc<dyn Peers>,
    pub(super) queue: TxnQueue,
    /// A thread orders what waits. It is set after a transaction is in the queue, and looked at before its thread
    /// sleeps; it is cleared before the queue is looked at for the last time. So no transaction stays without a thread.
    pub(super) combining: AtomicBool,
    core: Mutex<levels::RaftCore, RaftCore>,
    /// Held by the thread that flushes the journal.
    pub(super) flushing: Mutex<levels::RaftFlush, ()>,
    pub(super) seen: PublishedState,
    pub(super) progress: ApplyWait,
    /// Wakes the thread that flushes the journal.
    pub(super) unflushed: Arc<Wake>,
    pub(super) transfers: SnapshotTransfers,
    /// Other servers are members, or may become members at any time. While it is false, this server is alone.
    pub(super) is_shared: AtomicBool,
    /// How far the journal was flushed.
    mark: DurableMark,
    pub(super) keeper: Arc<IdentityStore>,
    /// Called when more of the log has become durable.
    pub(super) wake: Arc<dyn Fn() + Send + Sync>,
    pub(super) ticked: Mutex<levels::RaftTick, Option<MonoTime>>,
    pub(super) tick_ns: u64,
}

/// What is known without the core's lock.
#[derive(Default)]
pub(super) struct PublishedState {
    pub(super) applied: AtomicU64,
    pub(super) closed: AtomicU64,
    /// A majority of the voters has the log on stable storage up to this entry.
    pub(super) durable: AtomicU64,
    /// It leads, and holds everything that was committed before.
    pub(super) leads: AtomicBool,
    /// How often it began to.
    pub(super) reigns: AtomicU64,
    /// It leads and cannot: another should.
    pub(super) unfit: AtomicBool,
    /// 0: no leader is known.
    pub(super) leader: AtomicU32,
}

pub(super) struct RaftCore {
    pub(super) member: RaftMember,
    pub(super) journal: SegmentFiles,
    /// The last record written, and the last one on stable storage.
    pub(super) written: LogIndex,
    pub(super) persisted: LogIndex,
    /// The last record with an entry that may name data.
    pub(super) names_data: LogIndex,
    /// Batches on their way, by their place.
    pub(super) proposed: BTreeMap<u64, ProposedBatch>,
    /// Transactions whose threads are to be woken when the lock is released.
    pub(super) answered: Vec<Arc<PendingTxn>>,
    /// The thread that holds the lock orders what waits.
    pub(super) is_ordering: bool,
    /// More waits than was ordered: the thread of the first transaction is to be woken.
    pub(super) has_waiting: bool,
    /// A leader serves once this entry, the first of its term, has been executed.
    pub(super) serves_from: Option<LogIndex>,
    pub(super) questions: ReadIndexQueue,
    pub(super) closing: Option<Hlc>,
    /// The newest instant that a read wants closed.
    pub(super) wanted: Hlc,
    /// What the leader was asked to close last, and when.
    pub(super) asked_close: Option<(Hlc, MonoTime)>,
    /// The last entry that this process found or wrote at its start. Until there are others nothing is cut.
    pub(super) begun: LogIndex,
    /// Sizes of the last entries executed, oldest first.
    pub(super) kept: VecDeque<(LogIndex, usize)>,
    pub(super) kept_bytes: usize,
    /// A state that has come whole.
    pub(super) received: Option<SnapshotMeta>,
    /// Decisions of the control plane that wait for a batch.
    pub(super) decisions: Vec<frieze_wire::control::DecisionProto>,
    /// The term in which they were made.
    pub(super) decided_in: u64,
    pub(super) outgoing: RaftSender,
    pub(super) incoming: BTreeMap<NodeId, RaftReceiver>,
    pub(super) failed: Option<Fault>,
    /// This leader's election may have lost what is stamped above this: it says so before it orders anything else.
    pub(super) lost_after: Option<Hlc>,
    /// The entry that says what its election may have lost.
    pub(super) loss_entry: Option<LogIndex>,
    /// The member lost its memory and has again what it lacked. That is noted once the loss, if there is one, is
    /// declared.
    pub(super) is_back: bool,
    /// Inode numbers that entries give which are not known to be durable.
    pub(super) new_ids: UnsafeIds,
}

/// The core, locked. Threads whose transactions were answered meanwhile are woken when it is released.
pub(super) struct LockedCore<'a> {
    core: Option<MutexGuard<'a, RaftCore>>,
    queue: &'a TxnQueue,
}

impl Deref for LockedCore<'_> {
    type Target = RaftCore;

    fn deref(&self) -> &RaftCore {
        self.core.as_ref().expect("it is locked until it is dropped")
    }
}

impl DerefMut for LockedCore<'_> {
    fn deref_mut(&mut self) -> &mut RaftCore {
        self.core.as_mut().expect("it is locked until it is dropped")
    }
}

impl Drop for LockedCore<'_> {
    fn drop(&mut self) {
        let answered = std::mem::take(&mut self.answered);
        let has_waiting = std::mem::take(&mut self.has_waiting);
        self.core = None;
        if has_waiting {
            self.queue.wake_first();
        }
        answered.iter().for_each(|slot| slot.wake());
    }
}

/// A batch on its way.
pub(super) struct ProposedBatch {
    pub(super) term: u64,
    pub(super) batch: Batch,
    pub(super) slots: Vec<Arc<PendingTxn>>,
}

/// What the member is asked in one input, if it answers at once.
pub(super) enum InputReply<'a> {
    Nothing,
    Batch(Batch, Vec<Arc<PendingTxn>>),
    Close,
    Read(u64),
    Change(&'a mut Option<Result<(LogIndex, u64), Fault>>),
}

/// What the server has to know to begin.
pub(crate) struct DriverSetup {
    pub(crate) id: NodeId,
    pub(crate) clock: Arc<NodeClock>,
    pub(crate) device: Arc<Device>,
    pub(crate) way: Arc<dyn Peers>,
    pub(crate) unflushed: Arc<Wake>,
    pub(crate) applied: LogIndex,
    pub(crate) is_shared: bool,
    pub(crate) mark: DurableMark,
    pub(crate) tick_us: u64,
    /// Names the transfers of this life.
    pub(crate) seed: u64,
    pub(crate) idle: Idle,
    pub(crate) keeper: Arc<IdentityStore>,
    pub(crate) wake: Arc<dyn Fn() + Send + Sync>,
}

impl RaftDriver {
    /// Goes on with `member`, whose records up to `persisted` are on stable storage. `first` is to be done first.
    pub(crate) fn begin(
        begin: DriverSetup,
        member: RaftMember,
        journal: SegmentFiles,
        persisted: LogIndex,
        first: Vec<MemberEffect>,
        state: &AppliedState,
    ) -> RaftDriver {
        let core = RaftCore {
            member,
            journal,
            written: persisted,
            persisted,
            names_data: LogIndex(0),
            proposed: BTreeMap::new(),
            answered: Vec::new(),
            is_ordering: false,
            has_waiting: false,
            serves_from: None,
            questions: ReadIndexQueue::default(),
            closing: None,
            wanted: Hlc::ZERO,
            asked_close: None,
            begun: LogIndex(0),
            kept: VecDeque::new(),
            kept_bytes: 0,
            received: None,
            decisions: Vec::new(),
            decided_in: 0,
            outgoing: RaftSender::default(),
            incoming: BTreeMap::new(),
            failed: None,
            lost_after: None,
            loss_entry: None,
            is_back: false,
            new_ids: UnsafeIds::default(),
        };
        let group = RaftDriver {
            id: begin.id,
            clock: begin.clock,
            device: begin.device,
            way: begin.way,
            queue: TxnQueue::default(),
            combining: AtomicBool::new(false),
            core: Mutex::new(core),
            flushing: Mutex::default(),
            seen: PublishedState::default(),
            progress: ApplyWait::new(begin.idle),
            unflushed: begin.unflushed,
            transfers: SnapshotTransfers::new(begin.seed),
            is_shared: AtomicBool::new(begin.is_shared),
            mark: begin.mark,
            keeper: begin.keeper,
            wake: begin.wake,
            ticked: Mutex::default(),
            tick_ns: begin.tick_us * 1000,
        };
        group.seen.applied.store(begin.applied.0, Ordering::Release);
        {
            let mut core = group.lock();
            let mut inputs = VecDeque::new();
            group.run_effects(&mut core, state, first, &mut InputReply::Nothing, false, &mut inputs);
            group.run(&mut core, state, inputs);
        }
        group
    }

    #[track_caller]
    pub(super) fn lock(&self) -> LockedCore<'_> {
        LockedCore { core: Some(self.core.lock()), queue: &self.queue }
    }

    /// True while no other server is a member, or may become one.
    pub(crate) fn is_alone(&self) -> bool {
        !self.is_shared.load(Ordering::Acquire)
    }

    /// Gives the member an input and does what it asks for, and what comes of that.
    pub(super) fn step(
        &self,
        core: &mut RaftCore,
        state: &AppliedState,
        at: Hlc,
        input: MemberInput,
        mut asking: InputReply<'_>,
    ) {
        let names = input_names_data(&input);
        if names {
            core.member.note_data_end(self.data_end());
        }
        let mut effects = Vec::new();
        core.member.step(at, input, &mut effects);
        let mut inputs = VecDeque::new();
        self.run_effects(core, state, effects, &mut asking, names, &mut inputs);
        self.run(core, state, inputs);
    }

    /// As [`RaftDriver::step`], of what needs no fresh stamp.
    pub(super) fn feed(&self, core: &mut RaftCore, state: &AppliedState, input: MemberInput) {
        self.step(core, state, self.clock.newest(), input, InputReply::Nothing);
    }

    pub(super) fn run(&self, core: &mut RaftCore, state: &AppliedState, mut inputs: VecDeque<MemberInput>) {
        while let Some(input) = inputs.pop_front() {
            let mut effects = Vec::new();
            core.member.step(self.clock.newest(), input, &mut effects);
            self.run_effects(core, state, effects, &mut InputReply::Nothing, false, &mut inputs);
        }
        self.publish(core, state);
    }

    pub(super) fn wait<T>(&self, look: impl FnMut() -> Option<T>) -> Option<T> {
        self.progress.wait(&|| self.clock.reading().mono, PEER_WAIT_MAX, look)
    }

    /// Waits until `look` finds something, after each change of what this member knows; not for ever.
    pub(crate) fn wait_for<T>(&self, look: impl FnMut() -> Option<T>) -> Option<T> {
        self.wait(look)
    }

    /// Another member says something of the Raft log.
    ///
    /// # Errors
    /// `BadFrame` for what no member sends.
    pub(crate) fn on_message(
        &self,
        state: &AppliedState,
        from: NodeId,
        said: MetalogMessage,
        payload: &[u8],
    ) -> Result<(), Fault> {
        let mut core = self.lock();
        let message = core.incoming.entry(from).or_default().take((from, self.id), said, payload)?;
        match message {
            // A state comes in pieces, and its message with the last of them.
            Some(message) if message.snapshot.is_some() => Err(codec::bad(from, "its state is missing")),
            Some(message) => {
                // The durable bound of stamps covers what is acknowledged from memory, so that a later leader stamps
                // above it if all members lose it. What this server's clock cannot follow now is sent again.
                if message.newest_stamp().is_some_and(|newest| self.clock.adopt(newest).is_err()) {
                    return Ok(());
                }
                self.feed(&mut core, state, MemberInput::Receive(message));
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Asks all members to flush what they have: a client waits until it is durable.
    pub(crate) fn flush_all(&self, state: &AppliedState) {
        self.feed(&mut self.lock(), state, MemberInput::FlushAll);
    }

    /// Another member has ended its connections.
    pub(crate) fn on_peer_lost(&self, state: &AppliedState, node: NodeId) {
        self.feed(&mut self.lock(), state, MemberInput::Gone { peer: node });
    }

    /// Time goes by: to be called more often than a tick of the member is long. Returns how long that is.
    pub(crate) fn tick(&self, state: &AppliedState) -> Duration {
        let now = self.clock.reading().mono;
        {
            let mut ticked = self.ticked.lock();
            // One tick at most after a long pause: messages of that time are still to be received.
            if ticked.is_some_and(|last| now.since_ns(last) < self.tick_ns) {
                return Duration::from_nanos(self.tick_ns / 4);
            }
            *ticked = Some(now);
        }
        {
            let mut core = self.lock();
            if core.member.leader().is_none() {
                // An election need not wait for a voter that the log itself has declared dead, or removed.
                let mut dead = Vec::new();
                state.look_at_control(&mut |cluster| {
                    let lives = |node: &NodeId| cluster.nodes().any(|known| known.id == *node && !known.is_dead);
                    let voters = core.member.members().voters.iter().copied();
                    dead = voters.filter(|node| cluster.nodes().next().is_some() && !lives(node)).collect();
                });
                for node in dead {
                    self.feed(&mut core, state, MemberInput::DeclareLost { node });
                }
            }
            self.feed(&mut core, state, MemberInput::Tick);
        }
        self.tick_snapshots(state);
        if self.seen.unfit.swap(false, Ordering::AcqRel) {
            self.resign(state);
        }
        Duration::from_nanos(self.tick_ns)
    }

    /// Begins to order, on a server that is alone: it waits for no election and no other server. What its start may
    /// have lost is declared when this returns.
    ///
    /// # Errors
    /// The disk's.
    ///
    /// # Cost
    /// Two flushes of the journal; three after a loss of power.
    pub(crate) fn lead_alone(&self, state: &AppliedState) -> Result<(), Fault> {
        // An election that waits for nothing takes one tick, its first entry and a declared loss a flush each.
        for _ in 0..LEAD_STEPS_MAX {
            let is_settled = {
                let mut core = self.lock();
                if !self.leads() {
                    self.feed(&mut core, state, MemberInput::Tick);
                }
                // A clock that is not trusted declares nothing: what is changed later waits for it.
                core.loss_entry.is_none_or(|entry| entry <= self.applied())
            };
            if self.leads() && is_settled {
                let mut core = self.lock();
                core.begun = core.member.last();
                return Ok(());
            }
            self.flush(state, None)?;
        }
        Err(Fault::new(Reason::Internal, "the only member of the metalog does not lead it"))
    }

    /// Other servers may become members from now on: instants that were closed here without them come into the log.
    /// False if that is so already.
    ///
    /// # Errors
    /// The disk's, and those of a clock that is not trusted: the server is alone as before.
    pub(crate) fn share(&self, state: &AppliedState) -> Result<bool, Fault> {
        {
            let mut core = self.lock();
            if self.is_shared.swap(true, Ordering::AcqRel) {
                return Ok(false);
            }
            core.wanted = core.wanted.max(self.closed());
            self.close_wanted(&mut core, state);
        }
        let result = self.flush(state, None).and_then(|()| match self.lock().member.closed() >= self.closed() {
            true => Ok(true),
            false => Err(self.not_closed(self.closed())),
        });
        if result.is_err() {
            self.is_shared.store(false, Ordering::Release);
        }
        result
    }

    /// The server is alone again: what would have let others become members failed.
    pub(crate) fn unshare(&self) {
        self.is_shared.store(false, Ordering::Release);
    }

    /// Notes how far the journal is flushed.
    pub(super) fn note_flushed(&self, record: LogIndex) -> Result<(), Fault> {
        self.mark.note(record)
    }
}

/// Steps of [`RaftDriver::lead_alone`], more than any start takes.
const LEAD_STEPS_MAX: usize = 16;

/// Answers transactions with a fault.
pub(super) fn fail(slots: &[Arc<PendingTxn>], fault: &Fault) {
    slots.iter().for_each(|slot| slot.finish(Err(fault.clone())));
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
