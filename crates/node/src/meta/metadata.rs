//! The metadata of a server: transactions are ordered by a log and executed, and questions about names are answered.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use frieze_base::{Fault, LogIndex, NodeId, Reason};
use frieze_hlc::Hlc;
use frieze_metalog::{DataEnd, MemberChange};
use frieze_wire::peer::metalog::{MetalogClose, MetalogHeld, MetalogMessage, MetalogPiece};
use frieze_wire::txn::{Outcome, Transaction};

use super::host::{Mark, MetaHost, RecoverUpto};
use super::observer::{ChangeObserver, SharedReadSet};
use super::raft_driver::{MetalogStatus, RaftDriver};
use super::single::{SingleLog, SingleRun};
use super::state::AppliedState;
use crate::store::{VersionStore, Versions};
use frieze_net::Idle;
use frieze_storage::Standing;
use frieze_storage::Wake;

/// Order and execution of metadata, and answers about it.
pub(crate) struct Metadata {
    pub(super) state: AppliedState,
    /// `None` if this server was a member when it began.
    pub(super) single: Option<SingleLog>,
    pub(super) raft: OnceLock<RaftDriver>,
    pub(super) host: MetaHost,
    /// Wakes who flushes the journal of a member.
    pub(super) unflushed: Arc<Wake>,
    pub(super) idle: Idle,
}

/// What another member says.
pub(crate) enum PeerMetalog {
    Message(MetalogMessage),
    Piece(MetalogPiece),
    Held(MetalogHeld),
    Close(MetalogClose),
}

pub(super) enum LogDriver<'a> {
    Single(&'a SingleLog),
    Raft(&'a RaftDriver),
}

impl Metadata {
    /// Loads the namespace from `versions` and executes the metalog on the disk after it: of a machine that is alone, as far
    /// as the data log reaches. Returns the plane and what was cut, in words.
    ///
    /// # Errors
    /// `Corrupt` if an entry cannot be decoded or the log does not reach back to what the store holds; the disk's.
    pub(crate) fn recover(
        host: MetaHost,
        versions: Versions,
        data_end: DataEnd,
        reach: &RecoverUpto,
    ) -> Result<(Metadata, Vec<String>), Fault> {
        if host.keeper.with(|identity| identity.standing()) != Standing::Alone {
            return Ok((Metadata::recover_member(host, versions)?, Vec::new()));
        }
        let state = AppliedState::load(versions)?;
        let settings = frieze_metalog::MetalogSettings {
            segment_bytes: host.segment_bytes,
            ..frieze_metalog::MetalogSettings::default()
        };
        let (single, notes) = SingleLog::recover(&host, settings, &state, data_end, reach)?;
        let (unflushed, idle) = (Arc::default(), Arc::new(OnceLock::new()));
        Ok((Metadata { state, single: Some(single), raft: OnceLock::new(), host, unflushed, idle }, notes))
    }

    pub(super) fn order(&self) -> LogDriver<'_> {
        match (self.raft.get(), &self.single) {
            (Some(raft), _) => LogDriver::Raft(raft),
            (None, Some(single)) => LogDriver::Single(single),
            (None, None) => unreachable!("a server that is not alone has begun as a member"),
        }
    }

    fn raft(&self) -> Result<&RaftDriver, Fault> {
        self.raft
            .get()
            .ok_or_else(|| Fault::new(Reason::InvalidArgument, "this server is alone: it has no other members"))
    }

    /// Executes a transaction; what it reads is added to `reads`.
    ///
    /// # Errors
    /// SingleLog only what kept it from being ordered (`NoSpace`, `Fenced`, `InputOutput`, `Overloaded`); it has no effect then.
    /// With others also `Elsewhere` or `Unavailable`, if this server does not lead or ceases to: whether it ran, the next
    /// leader knows who is asked under the same session and number. What the transaction itself failed with is in its outcome.
    pub(crate) fn execute(&self, transaction: Transaction, reads: Option<SharedReadSet>) -> Result<Outcome, Fault> {
        let (transaction, reads) = match self.order() {
            LogDriver::Raft(raft) => return raft.execute(&self.state, transaction, reads),
            LogDriver::Single(single) => match single.execute(&self.state, transaction, reads) {
                SingleRun::Done(result) => return result,
                SingleRun::Over(transaction, reads) => (transaction, reads),
            },
        };
        self.raft()?.execute(&self.state, transaction, reads)
    }

    /// From now on `observer` is called with every change before any reader can see it. To be called once, at the start.
    pub(crate) fn observe_by(&self, observer: Arc<dyn ChangeObserver>) {
        self.state.observe_by(observer);
    }

    /// Takes over from the identity which inode numbers may be given.
    pub(crate) fn begin_ids(&self) {
        if let LogDriver::Single(single) = self.order() {
            single.begin_ids();
        }
    }

    /// True if this server is one of several, or may become one of several at any time.
    pub(crate) fn is_member(&self) -> bool {
        self.raft.get().is_some()
    }

    /// True if transactions are ordered here: alone, or as the leader.
    pub(crate) fn leads(&self) -> bool {
        self.raft.get().is_none_or(RaftDriver::leads)
    }

    /// # Errors
    /// `Elsewhere`, `Unavailable`: this server does not lead; the fault names who does.
    pub(crate) fn check_leads(&self) -> Result<(), Fault> {
        match self.raft.get() {
            Some(raft) if !raft.leads() => Err(raft.not_here()),
            _ => Ok(()),
        }
    }

    /// How often this server has begun to lead others.
    pub(crate) fn reigns(&self) -> u64 {
        self.raft.get().map_or(0, RaftDriver::reigns)
    }

    /// Whom to ask for transactions: `None` if this server is alone, or nobody is known to lead.
    pub(crate) fn leader(&self) -> Option<NodeId> {
        self.raft.get().and_then(RaftDriver::leader)
    }

    /// Where this member is; `None` if the server is alone.
    pub(crate) fn status(&self) -> Option<MetalogStatus> {
        self.raft.get().map(RaftDriver::status)
    }

    /// Stamp of the last transaction in the log.
    pub(crate) fn newest(&self) -> Hlc {
        match self.order() {
            LogDriver::Single(single) => single.newest(),
            LogDriver::Raft(raft) => raft.newest(),
        }
    }

    /// Every transaction stamped up to it has been executed here; ZERO while nothing was since the start.
    pub(crate) fn executed(&self) -> Hlc {
        self.state.executed()
    }

    /// Gives the store back: the plane was recovered in vain.
    pub(crate) fn into_store(self) -> Box<dyn VersionStore> {
        self.state.versions.into_store()
    }

    /// Leaves the names for the next start, if the store has all of them and `has_room` for so many bytes. Nothing may be changed afterwards.
    ///
    /// # Errors
    /// The disk's: the next start takes longer.
    pub(crate) fn write_clean_start_image(&self, has_room: &dyn Fn(u64) -> bool) -> Result<(), Fault> {
        self.state.write_clean_start_image(self.appended(), has_room)
    }

    /// Index of the last entry executed.
    pub(crate) fn appended(&self) -> LogIndex {
        match self.order() {
            LogDriver::Single(single) => single.appended(),
            LogDriver::Raft(raft) => raft.applied(),
        }
    }

    /// What a flush that begins now covers. The data come to stable storage after it is taken, and before [`Metadata::sync`].
    pub(crate) fn mark(&self) -> Mark {
        match self.order() {
            LogDriver::Single(single) => Mark { index: single.appended(), record: LogIndex(0) },
            LogDriver::Raft(raft) => Mark { index: raft.applied(), record: raft.written() },
        }
    }

    /// Makes the log durable up to `mark`; the data that it names must be durable already.
    ///
    /// # Errors
    /// The disk's: refuse writes from then on.
    pub(crate) fn sync(&self, mark: Mark) -> Result<(), Fault> {
        match self.order() {
            LogDriver::Single(single) => single.sync(mark.index),
            LogDriver::Raft(raft) => raft.flush(&self.state, Some(mark.record)),
        }
    }

    /// Waits until a journal is to be flushed, `timeout` at most. True if there is one: [`Metadata::sync`], after the
    /// device if [`Metadata::journal_names_data`].
    pub(crate) fn await_journal(&self, timeout: Duration) -> bool {
        if !timeout.is_zero() {
            self.unflushed.wait(timeout);
        }
        self.raft.get().is_some_and(RaftDriver::is_unflushed)
    }

    /// Ends the wait of [`Metadata::await_journal`].
    pub(crate) fn wake_journal(&self) {
        self.unflushed.wake();
    }

    /// True if what is to be flushed of the journal may name data.
    pub(crate) fn journal_names_data(&self) -> bool {
        self.raft.get().is_some_and(RaftDriver::unflushed_names_data)
    }

    /// The device can no longer keep what it is given: a member steps down and is silent.
    pub(crate) fn device_failed(&self, reason: Reason) {
        if let Some(raft) = self.raft.get() {
            raft.device_failed(&self.state, reason);
        }
    }

    /// Time goes by. To be called again after what is returned at the latest; `None`: nothing depends on it yet.
    pub(crate) fn beat(&self) -> Option<Duration> {
        self.raft.get().map(|raft| raft.beat(&self.state))
    }

    /// A node has ended its connections. It may be there all the same.
    pub(crate) fn gone(&self, node: NodeId) {
        if let Some(raft) = self.raft.get() {
            raft.gone(&self.state, node);
        }
    }

    /// Another member says something. What comes while this server is alone is not for it.
    ///
    /// # Errors
    /// `BadFrame` for what no member sends; the store's, if it cannot take a state.
    pub(crate) fn told(&self, from: NodeId, told: PeerMetalog, payload: &[u8]) -> Result<(), Fault> {
        let Some(raft) = self.raft.get() else { return Ok(()) };
        match told {
            PeerMetalog::Message(said) => raft.heard(&self.state, from, said, payload),
            PeerMetalog::Piece(piece) => raft.heard_piece(&self.state, from, piece, payload),
            PeerMetalog::Held(held) => {
                raft.heard_held(&self.state, from, held);
                Ok(())
            }
            PeerMetalog::Close(close) => {
                raft.promise(&self.state, Hlc(close.at));
                Ok(())
            }
        }
    }

    /// Adds or removes a member, as the leader. Ids of nodes never come twice. Returns when a majority holds the change; a new
    /// member counts by itself once it has caught up.
    ///
    /// # Errors
    /// `Elsewhere`: ask the leader. `Busy`: another change is under way. `InvalidArgument`: it makes no sense.
    pub(crate) fn change_members(&self, change: MemberChange) -> Result<(), Fault> {
        self.raft()?.change(&self.state, change)
    }

    /// Looks at what the log has decided about nodes and chains.
    pub(crate) fn look_at_control(&self, look: &mut dyn FnMut(&frieze_cluster::State)) {
        self.state.look_at_control(look);
    }

    /// What decisions have changed since the last call. After a start, and after a state was received, everything may have.
    pub(crate) fn take_control_news(&self) -> Vec<frieze_cluster::Change> {
        self.state.take_news()
    }

    /// Puts decisions about nodes and chains into the log, some time, or not at all: only the leader can, in its term. Never
    /// waits.
    pub(crate) fn decide(&self, term: u64, decisions: &[frieze_cluster::Decision]) {
        if let Some(raft) = self.raft.get() {
            raft.decide(&self.state, term, decisions.iter().map(frieze_cluster::Decision::to_wire));
        }
    }

    /// Waits until `look` finds something in what this member knows; a few seconds at most. SingleLog it looks once.
    pub(crate) fn wait_for<T>(&self, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        match self.raft.get() {
            Some(raft) => raft.wait_for(look),
            None => look(),
        }
    }

    /// Lets another member lead, if this one does.
    ///
    /// # Errors
    /// `Elsewhere`: it does not. `InvalidArgument`: the other cannot.
    pub(crate) fn hand_over(&self, to: NodeId) -> Result<(), Fault> {
        self.raft()?.transfer(&self.state, to)
    }

    /// Lets the member lead that could go on soonest, if this one does and there is one. Never waits.
    pub(crate) fn step_aside(&self) {
        if let Some(raft) = self.raft.get() {
            raft.step_aside(&self.state);
        }
    }

    /// Whoever waits for other members is told that this server stops, and nobody waits any more.
    pub(crate) fn end_waits(&self) {
        if let Some(raft) = self.raft.get() {
            raft.end();
        }
    }

    /// Waits until the namespace here holds everything that anybody was told before the call. SingleLog it always does.
    ///
    /// # Errors
    /// `Elsewhere`, `Unavailable`: no majority answers, or this server is no member any more: ask again, or another.
    pub(crate) fn linearizable(&self) -> Result<(), Fault> {
        self.raft.get().map_or(Ok(()), |raft| raft.linearizable(&self.state))
    }

    /// What whoever waits for other members does meanwhile, instead of sleeping: for a process with one thread.
    pub(crate) fn idle(&self) -> &Idle {
        &self.idle
    }

    /// Moves the versions of all entries up to `durable` into the store. Returns how far the store is.
    ///
    /// # Errors
    /// The store's: the versions wait for the next call.
    pub(crate) fn settle_versions(&self, durable: LogIndex) -> Result<LogIndex, Fault> {
        self.state.versions.settle(durable)
    }

    /// Makes the store durable up to what was settled.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn persist_versions(&self) -> Result<(), Fault> {
        self.state.versions.persist()
    }

    /// Puts the store in order for the next start; see [`VersionStore::rest`]. Nothing may be changed afterwards.
    ///
    /// # Errors
    /// The store's: the next start takes longer.
    pub(crate) fn rest_versions(&self) -> Result<(), Fault> {
        self.state.versions.rest()
    }

    /// Number of versions that wait for their entries to become durable.
    pub(crate) fn unsettled_versions(&self) -> usize {
        self.state.versions.waiting()
    }

    /// Gives back copies of the store's files in the kernel's memory; see [`VersionStore::keep_cached`].
    ///
    /// # Errors
    /// The disk's.
    pub(crate) fn keep_versions_cached(&self, bytes_max: u64) -> Result<u64, Fault> {
        self.state.versions.keep_cached(bytes_max)
    }

    /// Gives back copies of the log in the kernel's memory, if they are more than `bytes_max`. Returns how many bytes there
    /// are; 0 where nobody knows. Nobody reads the log but the next start.
    ///
    /// # Errors
    /// The disk's: more is in memory than should be, and nothing else.
    pub(crate) fn keep_cached(&self, bytes_max: u64) -> Result<u64, Fault> {
        let files = match self.order() {
            LogDriver::Single(single) => single.files(),
            LogDriver::Raft(raft) => raft.journal_files(),
        };
        let mut cached = 0;
        for file in &files {
            cached += file.cached_bytes()?.unwrap_or(0);
        }
        if cached > bytes_max {
            for file in &files {
                file.let_go(0, file.len()?)?;
            }
        }
        Ok(cached)
    }

    /// The store holds everything up to `through`, durably: the log may use its space again.
    ///
    /// # Errors
    /// The disk's.
    pub(crate) fn truncate(&self, through: LogIndex) -> Result<(), Fault> {
        match self.order() {
            LogDriver::Single(single) => single.truncate(through),
            LogDriver::Raft(raft) => {
                raft.truncate(&self.state, through);
                Ok(())
            }
        }
    }

    /// Promises that no transaction will be stamped at or below `at` any more, and waits until those that are, are executed
    /// here. True if that was so already.
    ///
    /// # Errors
    /// `Future` if `at` has not come yet. With others `NotYetClosed` if no majority answers in time.
    pub(crate) fn close(&self, at: Hlc) -> Result<bool, Fault> {
        match self.order() {
            LogDriver::Single(single) => single.close(at),
            LogDriver::Raft(raft) => raft.close(&self.state, at),
        }
    }

    /// As [`Metadata::close`], without waiting: with others the promise comes with the log before long. True if what of it can
    /// be done here is done.
    pub(crate) fn promise(&self, at: Hlc) -> bool {
        match self.order() {
            LogDriver::Single(single) => single.close(at).is_ok(),
            LogDriver::Raft(raft) => {
                raft.promise(&self.state, at);
                true
            }
        }
    }

    /// The newest instant closed.
    pub(crate) fn closed(&self) -> Hlc {
        match self.order() {
            LogDriver::Single(single) => single.closed(),
            LogDriver::Raft(raft) => raft.closed(),
        }
    }
}
