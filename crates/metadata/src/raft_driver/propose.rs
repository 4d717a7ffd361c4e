//! Transactions, decisions and changes of the members are put into the log, at the leader.
//!
//! Batches form by themselves (group commit without a timer). One thread at a time *combines*: it takes all
//! transactions that wait, and orders them as one batch. A thread that finds another one combining sleeps until its
//! transaction is done, or until the combining thread leaves and wakes it as the next. No thread queues for the lock of
//! the member to find that its transaction was ordered meanwhile.
//!
//! # Source
//! Flat combining (Hendler, Incze, Shavit, Tzafrir, SPAA'10).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use frieze_base::{Fault, LogIndex, NodeId, Reason, Seq, SessionId};
use frieze_hlc::Hlc;
use frieze_metalog::{BatchDurability, DataEnd, Error, MemberChange, MemberInput, RaftRole};
use frieze_namespace::NoReadSet;
use frieze_wire::control::DecisionProto;
use frieze_wire::edit::{Edit, EditKind, StageEdit};
use frieze_wire::txn::{Batch, Op, Outcome, Transaction};
use prost::Message;

use super::super::observer::SharedReadSet;
use super::super::state::AppliedState;
use super::driver::{InputReply, RaftCore, RaftDriver, fail};

/// Batches ordered and not committed. More wait and make larger ones: each costs every member a record and two
/// messages.
const IN_FLIGHT_MAX: usize = 4;
/// Decisions in one batch, and those that wait.
const DECISIONS_MAX: usize = 4096;
const DECISIONS_WAITING_MAX: usize = 65_536;

impl RaftDriver {
    /// See [`crate::Metadata::execute`].
    pub(crate) fn execute(
        &self,
        state: &AppliedState,
        transaction: Transaction,
        reads: Option<SharedReadSet>,
    ) -> Result<Outcome, Fault> {
        if !self.leads() {
            return Err(self.not_leading(&self.lock()));
        }
        if self.device.refuses_names() && adds_names(&transaction, state) {
            self.device.check_room_for_names()?;
        }
        let slot = self.queue.put(transaction, reads);
        if !self.progress.is_driven() {
            slot.wake_me();
        }
        // It ends: what is ordered is committed, or the member stands down when a majority is silent, or its device
        // fails.
        while !slot.is_done() {
            if self.combining.swap(true, Ordering::SeqCst) {
                // The thread that combines orders it, or wakes this one to do so.
                self.rest_for_others();
                continue;
            }
            let (answered, waiting) = {
                let mut core = self.lock();
                let waiting = self.propose_waiting(&mut core, state);
                core.has_waiting = false;
                (std::mem::take(&mut core.answered), waiting)
            };
            self.combining.store(false, Ordering::SeqCst);
            if waiting != WaitingTxns::Blocked {
                self.queue.wake_first();
            }
            answered.iter().filter(|one| !Arc::ptr_eq(one, &slot)).for_each(|one| one.wake());
            if slot.is_done() {
                break;
            }
            match self.is_alone() {
                // It waits for no other server: what it waits for is a flush, and other threads may wait for a lock
                // that this one holds.
                true => self.flush_all_here(state)?,
                false => self.progress.rest(),
            }
        }
        slot.take()
    }

    /// Sleeps until another thread has ordered a transaction, or wakes this one to do so.
    fn rest_for_others(&self) {
        match self.is_alone() {
            // Ordering takes no lock above that of the core, so this is as a wait for that lock.
            true => std::thread::park(),
            false => self.progress.rest(),
        }
    }

    /// Flushes data, and then the journal as it was before: what is written meanwhile may name later data.
    fn flush_all_here(&self, state: &AppliedState) -> Result<(), Fault> {
        let through = self.written();
        self.device.flush().inspect_err(|fault| self.device_failed(state, fault.reason))?;
        self.flush(state, Some(through))
    }

    /// Orders what waits, as far as there is room.
    pub(super) fn propose_waiting(&self, core: &mut RaftCore, state: &AppliedState) -> WaitingTxns {
        if core.is_ordering {
            // What comes of a batch is done before the next one is ordered.
            return WaitingTxns::Blocked;
        }
        core.is_ordering = true;
        let waiting = self.propose_batches(core, state);
        core.is_ordering = false;
        core.has_waiting |= waiting == WaitingTxns::Some;
        waiting
    }

    fn propose_batches(&self, core: &mut RaftCore, state: &AppliedState) -> WaitingTxns {
        if core.member.is_changing() {
            // Nothing is ordered behind a change of members before it is executed.
            return WaitingTxns::Blocked;
        }
        if core.lost_after.is_some()
            && let Err(fault) = self.declare_loss(core, state)
        {
            if self.is_alone() {
                self.fail_queue(&fault);
            }
            return WaitingTxns::Blocked;
        }
        // Alone, a batch is done when it is ordered: the thread of the next one orders it.
        let batches = if self.is_alone() { 1 } else { IN_FLIGHT_MAX };
        for _ in 0..batches {
            let in_room = core.proposed.len() < IN_FLIGHT_MAX && core.new_ids.have_room() && core.member.has_room();
            if !in_room {
                // What finds no room waits for a flush.
                return WaitingTxns::Blocked;
            }
            let slots = self.queue.take();
            if !self.leads() || core.decided_in != core.member.term() {
                // What was known in an older term may have been overtaken.
                core.decisions.clear();
            }
            if !self.leads() {
                if slots.is_empty() {
                    return WaitingTxns::None;
                }
                fail(&slots, &self.not_leading(core));
                continue;
            }
            let decisions = core.decisions.drain(..core.decisions.len().min(DECISIONS_MAX)).collect::<Vec<_>>();
            if slots.is_empty() && decisions.is_empty() {
                return WaitingTxns::None;
            }
            let transactions: Vec<Transaction> = slots.iter().map(|slot| slot.start()).collect();
            let batch = Batch { transactions, ids_above: 0, decisions };
            let count = batch.transactions.len().max(1) as u32;
            match self.stamp(core, count) {
                Ok(stamp) => {
                    // Alone, no answer waits for the data: so a change never stays without the bytes written before it.
                    let names = self.is_alone() || names_data(&batch);
                    let data_end = if names { self.data_end() } else { DataEnd::default() };
                    let durability = durability_of(&batch);
                    let input = MemberInput::Propose { body: batch.encode_to_vec(), count, data_end, durability };
                    core.new_ids.add(LogIndex(core.member.last().0 + 1), new_inodes(&batch));
                    self.step(core, state, stamp, input, InputReply::Batch(batch, slots));
                }
                Err(fault) => fail(&slots, &fault),
            }
        }
        WaitingTxns::Some
    }

    /// Puts decisions into the log while this member leads in `term`, some time, or not at all: the controller looks
    /// again.
    pub(crate) fn decide(&self, state: &AppliedState, term: u64, decisions: impl Iterator<Item = DecisionProto>) {
        let mut core = self.lock();
        if core.decided_in != term {
            (core.decided_in, core.decisions) = (term, Vec::new());
        }
        let room = DECISIONS_WAITING_MAX.saturating_sub(core.decisions.len());
        core.decisions.extend(decisions.take(room));
        let _waiting = self.propose_waiting(&mut core, state);
    }

    /// Fresh stamps above everything in the log.
    pub(super) fn stamp(&self, core: &RaftCore, count: u32) -> Result<Hlc, Fault> {
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

    pub(super) fn data_end(&self) -> DataEnd {
        let end = self.device.log().end();
        DataEnd { segment: end.segment, offset: end.offset }
    }

    /// Changes the members, or hands over the lead, as the leader. Returns when the change is committed.
    ///
    /// # Errors
    /// `Elsewhere`: ask the leader. `Busy`: a change is under way. `InvalidArgument`: it makes no sense.
    pub(crate) fn change_members(&self, state: &AppliedState, change: MemberChange) -> Result<(), Fault> {
        let mut answer = None;
        let input = MemberInput::Change(change);
        self.step(&mut self.lock(), state, self.clock.newest(), input, InputReply::Change(&mut answer));
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
    pub(crate) fn transfer_leadership(&self, state: &AppliedState, to: NodeId) -> Result<(), Fault> {
        let mut answer = None;
        let input = MemberInput::Transfer { to };
        self.step(&mut self.lock(), state, self.clock.newest(), input, InputReply::Change(&mut answer));
        answer.map_or(Ok(()), |answer| answer.map(drop))
    }

    /// The operator says that this voter is lost with what it had in memory: an election does not wait for it.
    ///
    /// # Errors
    /// `Elsewhere`: a leader is known, the log decides. `InvalidArgument`: it has no vote, or too few are left.
    pub(crate) fn declare_lost(&self, state: &AppliedState, node: NodeId) -> Result<(), Fault> {
        let mut answer = None;
        let input = MemberInput::DeclareLost { node };
        self.step(&mut self.lock(), state, self.clock.newest(), input, InputReply::Change(&mut answer));
        answer.map_or(Ok(()), |answer| answer.map(drop))
    }

    /// Lets the member lead that could go on soonest, if this one does and there is one.
    pub(crate) fn resign(&self, state: &AppliedState) {
        let mut core = self.lock();
        if let Some(to) = core.member.next_leader().filter(|_| core.member.role() == RaftRole::Leader) {
            self.feed(&mut core, state, MemberInput::Transfer { to });
        }
    }

    /// Nothing that waits is answered by this leader. Whether it was ordered, the next one knows.
    pub(super) fn fail_waiting(&self, core: &mut RaftCore, fault: &Fault) {
        for proposed in std::mem::take(&mut core.proposed).into_values() {
            fail(&proposed.slots, fault);
        }
        self.fail_queue(fault);
    }

    fn fail_queue(&self, fault: &Fault) {
        loop {
            let slots = self.queue.take();
            if slots.is_empty() {
                return;
            }
            fail(&slots, fault);
        }
    }

    /// Why a transaction is not taken here: a server that is alone has failed.
    fn not_leading(&self, core: &RaftCore) -> Fault {
        match &core.failed {
            Some(fault) if self.is_alone() => fault.clone(),
            _ => self.not_leader(),
        }
    }

    /// The server stops: waiting transactions and reads fail.
    pub(crate) fn stop(&self) {
        let mut core = self.lock();
        core.serves_from = None;
        self.seen.leads.store(false, Ordering::Release);
        self.fail_waiting(&mut core, &Fault::new(Reason::Unavailable, "this server stops: ask another one"));
        core.questions.fail(&Reason::Unavailable.into());
        self.progress.changed();
    }
}

/// What a thread that ordered transactions left in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitingTxns {
    /// Nothing.
    None,
    /// Perhaps some, which can be ordered now.
    Some,
    /// Perhaps some, which are ordered when something else has happened.
    Blocked,
}

/// Most inodes that a batch can make.
fn new_inodes(batch: &Batch) -> usize {
    let made = |transaction: &Transaction| match &transaction.op {
        Some(Op::Edit(edit)) => edit.new.len() + edit.staged.map_or(0, |staged| staged.new as usize),
        _ => 1,
    };
    batch.transactions.iter().map(made).sum()
}

/// What servers do by decisions of the control plane cannot be undone.
fn durability_of(batch: &Batch) -> BatchDurability {
    if batch.decisions.is_empty() { BatchDurability::Memory } else { BatchDurability::Stable }
}

/// True if a transaction makes names, inodes or what they have more. A retry of one that was executed does not, nor
/// does the opening of a file that exists.
fn adds_names(transaction: &Transaction, state: &AppliedState) -> bool {
    let namespace = state.read();
    let adds = match &transaction.op {
        Some(Op::Make(make)) if make.or_open => {
            let found = namespace.resolve(&state.versions, &make.target, None, &transaction.caller, &NoReadSet);
            found.is_err()
        }
        Some(Op::Make(_) | Op::MakeNameless(_) | Op::Link(_) | Op::MakeSnapshot(_)) => true,
        Some(Op::SetXattr(_) | Op::SetAcl(_)) => true,
        // A policy of retention makes room, as a removal does.
        Some(Op::Edit(Edit { kind, .. }) | Op::StageEdit(StageEdit { kind, .. })) => {
            ![EditKind::Remove as i32, EditKind::Retain as i32].contains(kind)
        }
        _ => false,
    };
    adds && namespace.remembered(SessionId(transaction.session), Seq(transaction.seq)).is_none()
}

/// True if what a batch changes may rest on bytes of files that were written before: then those come to stable storage
/// first, so that a name or a length is never there without them (protocols §7). Making what is new, and opening
/// sessions, does not.
fn names_data(batch: &Batch) -> bool {
    batch.transactions.iter().any(|transaction| match &transaction.op {
        Some(Op::Make(make)) => make.or_open || make.replaces,
        Some(Op::OpenSession(_) | Op::Format(_) | Op::MakeSnapshot(_) | Op::DeleteSnapshot(_)) => false,
        Some(Op::MakeNameless(_) | Op::StageEdit(_)) => false,
        _ => true,
    })
}
