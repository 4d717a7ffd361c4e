//! The metadata of a server: transactions are ordered by a log and executed, and questions about names are answered.

use std::sync::Arc;
use std::time::Duration;

use frieze_base::{Fault, LogIndex, NodeId, Reason};
use frieze_hlc::Hlc;
use frieze_metalog::MemberChange;
use frieze_namespace::NamesMemory;
use frieze_wire::peer::metalog::{MetalogClose, MetalogHeld, MetalogMessage, MetalogPiece};
use frieze_wire::txn::{Outcome, Transaction};

use super::checkpoint::CheckpointStatus;
use super::host::{FlushMark, MetadataHost};
use super::observer::{ChangeObserver, SharedReadSet};
use super::raft_driver::{MetalogStatus, RaftDriver};
use super::state::AppliedState;
use crate::store::VersionStore;
use frieze_net::Idle;
use frieze_storage::Wake;

/// How long a checkpoint may wait for the tables of the store: far longer than a disk that works needs for one.
const TABLES_WAIT_MAX_NS: u64 = 60_000_000_000;

/// Order and execution of metadata, and answers about it.
pub struct Metadata {
    pub(super) state: AppliedState,
    pub(super) raft: RaftDriver,
    pub(super) host: MetadataHost,
    /// Wakes the thread that flushes the journal.
    pub(super) unflushed: Arc<Wake>,
    pub(super) idle: Idle,
    pub(super) lost_after: Option<Hlc>,
}

/// A message of another member.
pub enum PeerMetalog {
    /// Of Raft.
    Message(MetalogMessage),
    /// A piece of a state, as the payload.
    Piece(MetalogPiece),
    /// How far a receiver of a state is.
    Held(MetalogHeld),
    /// A follower needs an instant closed.
    Close(MetalogClose),
}

impl Metadata {
    fn raft(&self) -> Result<&RaftDriver, Fault> {
        self.shared()
            .ok_or_else(|| Fault::new(Reason::InvalidArgument, "this server is alone: it has no other members"))
    }

    /// The driver, if others are members or may become members.
    fn shared(&self) -> Option<&RaftDriver> {
        Some(&self.raft).filter(|raft| !raft.is_alone())
    }

    /// Executes a transaction; what it reads is added to `reads`.
    ///
    /// # Errors
    /// A lone server: only what kept it from being ordered (`NoSpace`, `Fenced`, `InputOutput`, `Overloaded`); it has
    /// no effect then. With others also `Elsewhere` or `Unavailable`, if this server does not lead or ceases to: a
    /// retry under the same session and number, at the next leader, returns what it did. What the transaction itself
    /// failed with is in its outcome.
    pub fn execute(&self, transaction: Transaction, reads: Option<SharedReadSet>) -> Result<Outcome, Fault> {
        self.await_room()?;
        self.execute_with_room(transaction, reads)
    }

    /// As [`Metadata::execute`], for a thread that holds a lock which a flush may need: it has waited for room before
    /// it took the lock ([`Metadata::await_room`]). The room comes of flushes.
    ///
    /// # Errors
    /// As [`Metadata::execute`].
    pub fn execute_with_room(&self, transaction: Transaction, reads: Option<SharedReadSet>) -> Result<Outcome, Fault> {
        self.raft.execute(&self.state, transaction, reads)
    }

    /// Waits until memory has room for more changes, a few seconds at most, if this server orders them.
    ///
    /// # Errors
    /// `NoSpace`: the disk is full, and memory is for changes that have no room there. `Overloaded`: the disk is too
    /// slow. Ask again later.
    ///
    /// # Panics
    /// With debug assertions, if the thread holds a lock that the flush may need.
    pub fn await_room(&self) -> Result<(), Fault> {
        frieze_locks::check_may_await_signal();
        if self.raft.leads() { self.state.versions.check_room() } else { Ok(()) }
    }

    /// From now on `observer` is called with every change before any reader can see it. To be called once, at the
    /// start.
    pub fn observe_by(&self, observer: Arc<dyn ChangeObserver>) {
        self.state.observe_by(observer);
    }

    /// True if this server is one of several, or may become one of several at any time.
    pub fn is_member(&self) -> bool {
        !self.raft.is_alone()
    }

    /// True if this server has yet to make the file system. A member never has to: it receives that of the others.
    pub fn awaits_format(&self) -> bool {
        !self.is_member() && self.format().is_none()
    }

    /// A grant given up to this stamp is known here, whatever a power loss took. A lone server flushes its log after it
    /// has answered: it knows those in the log. What a member lacks, the others may have: it gets the log from them,
    /// and what all of them lost is declared lost ([`frieze_cluster::Decision::LoseNames`]).
    pub fn grants_kept_upto(&self) -> Hlc {
        if self.is_member() { Hlc::MAX } else { self.raft.newest() }
    }

    /// True if transactions are ordered here: alone, or as the leader.
    pub fn leads(&self) -> bool {
        self.shared().is_none_or(RaftDriver::leads)
    }

    /// Whether this server leads.
    ///
    /// # Errors
    /// `Elsewhere`, `Unavailable`: this server does not lead; the fault names the leader.
    pub fn check_leads(&self) -> Result<(), Fault> {
        match self.shared() {
            Some(raft) if !raft.leads() => Err(raft.not_leader()),
            _ => Ok(()),
        }
    }

    /// How often this server has begun to lead others.
    pub fn leader_terms(&self) -> u64 {
        self.shared().map_or(0, RaftDriver::leader_terms)
    }

    /// The server that orders transactions; `None` on a lone server, or if no leader is known.
    pub fn leader(&self) -> Option<NodeId> {
        self.shared().and_then(RaftDriver::leader)
    }

    /// Where this member is; `None` if the server is alone.
    pub fn status(&self) -> Option<MetalogStatus> {
        self.shared().map(RaftDriver::status)
    }

    /// The start served a damaged log: changes of names stamped above it may be missing. The gap of a lone server is in
    /// its identity by now.
    pub fn lost_after(&self) -> Option<Hlc> {
        self.lost_after
    }

    /// Stamp of the last transaction in the log.
    pub fn newest(&self) -> Hlc {
        self.raft.newest()
    }

    /// Every transaction stamped up to it has been executed here; ZERO while nothing was since the start.
    pub fn executed(&self) -> Hlc {
        self.state.executed()
    }

    /// Returns the store: recovery begins again.
    pub fn into_store(self) -> Box<dyn VersionStore> {
        self.state.versions.into_store()
    }

    /// Writes a checkpoint of the present, and gives it its name when the tables of the store are complete up to it,
    /// which needs a flush or two ([`Metadata::sync`], [`Metadata::settle_versions`]) by other threads. `wait` is
    /// called meanwhile, without locks; it answers false to give up. True if there is a new checkpoint; false if the
    /// newest one is of now already.
    ///
    /// # Errors
    /// `NoSpace`, `Busy`, the disk's: the checkpoints before stay, try again later. `Unavailable` if `wait` gave up, or
    /// after a minute. `Superseded` if another state was received meanwhile.
    ///
    /// # Cost
    /// Nothing is executed for less than 1 ms for 10 million files. Each file is written once, 20 to 35 bytes; pages
    /// that change meanwhile are in memory twice. Cold ones are copied from the checkpoint before.
    pub fn checkpoint(&self, wait: &mut dyn FnMut() -> bool) -> Result<bool, Fault> {
        let (taken, changes) = self.state.take_present()?;
        let (index, now) = (taken.index, self.host.clock.reading());
        let has_room = |bytes| self.host.device.has_room(bytes);
        let checkpoints = &self.state.checkpoints;
        let Some(unnamed) = checkpoints.write(&taken, now.wall_us, &has_room)? else { return Ok(false) };
        let published = loop {
            match checkpoints.publish(&unnamed, &self.state.versions) {
                Ok(false) if self.host.clock.reading().mono.since_ns(now.mono) > TABLES_WAIT_MAX_NS || !wait() => {
                    let words = format!(
                        "a checkpoint of the names is dropped: the tables of the namespace's store are not complete up \
                         to its entry {index}"
                    );
                    break Err(Fault::new(Reason::Unavailable, words));
                }
                Ok(false) => {}
                published => break published,
            }
        };
        match published {
            Ok(_) => {
                self.state.note_saved(changes);
                self.state.relocate(unnamed, taken.present);
                self.evict_names(self.state.names_bytes_max());
                let ms = self.host.clock.reading().mono.since_ns(now.mono) / 1_000_000;
                tracing::debug!(ms, "the checkpoint of entry {index} has {} bytes", checkpoints.status().bytes);
            }
            Err(_) => checkpoints.drop_unnamed(),
        }
        published
    }

    /// Evicts packed inodes and names that were not used for long, if they take more than their share of the memory. To
    /// be called about twice a second.
    pub fn keep_names_to_memory(&self) {
        self.evict_names(self.state.names_bytes_max());
    }

    /// The same with another share: 0 evicts all that the newest checkpoint has.
    pub fn evict_names(&self, bytes_max: u64) {
        self.state.evict_names(bytes_max);
    }

    /// Memory of packed inodes and names, and their share.
    pub fn names_memory(&self) -> (NamesMemory, u64) {
        (self.state.read().names_memory(), self.state.names_bytes_max())
    }

    /// True if so much has changed since the newest checkpoint that [`Metadata::checkpoint`] is worth its writing.
    pub fn is_checkpoint_due(&self) -> bool {
        self.state.is_checkpoint_due(false)
    }

    /// Writes a checkpoint for the next start, if that makes it much shorter. To be called when everything is in
    /// tables.
    ///
    /// # Errors
    /// As [`Metadata::checkpoint`]: the next start takes longer.
    pub fn checkpoint_at_stop(&self) -> Result<(), Fault> {
        match self.state.is_checkpoint_due(true) {
            true => self.checkpoint(&mut || false).map(drop),
            false => Ok(()),
        }
    }

    /// The newest checkpoint.
    pub fn checkpoint_status(&self) -> CheckpointStatus {
        CheckpointStatus { changes_since: self.state.unsaved_changes(), ..self.state.checkpoints.status() }
    }

    /// Index of the last entry executed.
    pub fn appended(&self) -> LogIndex {
        self.raft.applied()
    }

    /// What a flush that begins now covers. The data come to stable storage after it is taken, and before
    /// [`Metadata::sync`].
    pub fn mark(&self) -> FlushMark {
        FlushMark { index: self.raft.applied(), record: self.raft.written() }
    }

    /// How far the log is durable: entries up to there survive a loss of power at all servers that runs into no more
    /// disk failures than are survived. A lone server's are on its stable storage; of a member's a majority of the
    /// voters has them there.
    pub fn durable_upto(&self) -> LogIndex {
        self.raft.durable()
    }

    /// Asks the other members to flush their logs: a client waits until the log is durable. Never waits.
    pub fn flush_others(&self) {
        if let Some(raft) = self.shared() {
            raft.flush_all(&self.state);
        }
    }

    /// Makes the log durable up to `mark`; the data that it names must be durable already.
    ///
    /// # Errors
    /// The disk's: refuse writes from then on.
    pub fn sync(&self, mark: FlushMark) -> Result<(), Fault> {
        self.raft.flush(&self.state, Some(mark.record))
    }

    /// Waits until a journal is to be flushed, `timeout` at most. True if there is one: [`Metadata::sync`], after the
    /// device if [`Metadata::journal_names_data`].
    pub fn await_journal(&self, timeout: Duration) -> bool {
        if !timeout.is_zero() {
            self.unflushed.wait(timeout);
        }
        self.raft.is_unflushed()
    }

    /// True, once, if [`Metadata::await_journal`] would end at once: for a process with one thread.
    pub fn take_journal_wake(&self) -> bool {
        self.unflushed.wait(Duration::ZERO)
    }

    /// Ends the wait of [`Metadata::await_journal`].
    pub fn wake_journal(&self) {
        self.unflushed.wake();
    }

    /// True if what is to be flushed of the journal may name data.
    pub fn journal_names_data(&self) -> bool {
        self.raft.unflushed_names_data()
    }

    /// The device failed: a member resigns and sends nothing any more.
    pub fn device_failed(&self, reason: Reason) {
        self.raft.device_failed(&self.state, reason);
    }

    /// Advances the timers of a member. Returns after how long it has to be called again; `None` on a lone server.
    pub fn tick(&self) -> Option<Duration> {
        self.shared().map(|raft| raft.tick(&self.state))
    }

    /// A node has closed its connections. It may be alive all the same.
    pub fn on_peer_lost(&self, node: NodeId) {
        if let Some(raft) = self.shared() {
            raft.on_peer_lost(&self.state, node);
        }
    }

    /// Handles a message of another member. A lone server drops it.
    ///
    /// # Errors
    /// `BadFrame` for a malformed message; the store's, if it cannot take a state.
    pub fn on_peer_message(&self, from: NodeId, told: PeerMetalog, payload: &[u8]) -> Result<(), Fault> {
        let Some(raft) = self.shared() else { return Ok(()) };
        match told {
            PeerMetalog::Message(said) => raft.on_message(&self.state, from, said, payload),
            PeerMetalog::Piece(piece) => raft.on_snapshot_piece(&self.state, from, piece, payload),
            PeerMetalog::Held(held) => {
                raft.on_snapshot_progress(&self.state, from, held);
                Ok(())
            }
            PeerMetalog::Close(close) => {
                raft.promise(&self.state, Hlc(close.at));
                Ok(())
            }
        }
    }

    /// Adds or removes a member, as the leader. Ids of nodes never come twice. Returns when a majority holds the
    /// change; a new member counts by itself once it has caught up.
    ///
    /// # Errors
    /// `Elsewhere`: ask the leader. `Busy`: another change is under way. `InvalidArgument`: it makes no sense.
    pub fn change_members(&self, change: MemberChange) -> Result<(), Fault> {
        self.raft()?.change_members(&self.state, change)
    }

    /// The operator says that this voter is lost with what it had in memory: while no leader is known, an election does
    /// not wait for it.
    ///
    /// # Errors
    /// `Elsewhere`: a leader is known, the log decides. `InvalidArgument`: it has no vote, or too few are left.
    pub fn declare_lost(&self, voter: NodeId) -> Result<(), Fault> {
        self.raft()?.declare_lost(&self.state, voter)
    }

    /// Calls `look` with the decisions about nodes and chains, locked meanwhile.
    pub fn look_at_control(&self, look: &mut dyn FnMut(&frieze_cluster::ClusterState)) {
        self.state.look_at_control(look);
    }

    /// What decisions changed since the last call. After a start, and after a state was received, everything may have
    /// changed.
    pub fn take_control_changes(&self) -> Vec<frieze_cluster::ClusterChange> {
        self.state.take_control_changes()
    }

    /// Puts decisions about nodes and chains into the log, as the leader of `term`; without effect elsewhere. Never
    /// waits.
    pub fn decide(&self, term: u64, decisions: &[frieze_cluster::Decision]) {
        if let Some(raft) = self.shared() {
            raft.decide(&self.state, term, decisions.iter().map(frieze_cluster::Decision::to_wire));
        }
    }

    /// Waits until `look` finds something in what this member knows; a few seconds at most. A lone server looks once.
    pub fn wait_for<T>(&self, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        match self.shared() {
            Some(raft) => raft.wait_for(look),
            None => look(),
        }
    }

    /// Transfers leadership to another member.
    ///
    /// # Errors
    /// `Elsewhere`: it does not. `InvalidArgument`: the other cannot.
    pub fn transfer_leadership(&self, to: NodeId) -> Result<(), Fault> {
        self.raft()?.transfer_leadership(&self.state, to)
    }

    /// Transfers leadership to the member that can lead soonest, if this one leads and there is one. Never waits.
    pub fn resign(&self) {
        if let Some(raft) = self.shared() {
            raft.resign(&self.state);
        }
    }

    /// This server stops: every wait for other members ends with `Unavailable`.
    pub fn stop_waits(&self) {
        if let Some(raft) = self.shared() {
            raft.stop();
        }
    }

    /// Waits until the namespace here holds every change that was acknowledged before the call. A lone server always
    /// does.
    ///
    /// # Errors
    /// `Elsewhere`, `Unavailable`: no majority answers, or this server is no member any more: ask again, or another.
    pub fn linearizable(&self) -> Result<(), Fault> {
        self.shared().map_or(Ok(()), |raft| raft.linearizable(&self.state))
    }

    /// What a thread does instead of sleeping while it waits for other members, in a process with one thread.
    pub fn idle(&self) -> &Idle {
        &self.idle
    }

    /// The log is durable up to `durable`: versions up to there may come into the tables of the store. Returns how far
    /// the tables are complete: the log is needed from there.
    ///
    /// # Errors
    /// The store's: the versions stay in memory, and the store tries again.
    pub fn settle_versions(&self, durable: LogIndex) -> Result<LogIndex, Fault> {
        self.state.versions.settle(durable)
    }

    /// Waits until tables of the store hold all versions up to what was settled last.
    ///
    /// # Errors
    /// The store's: the next start replays more of the log.
    pub fn persist_versions(&self) -> Result<(), Fault> {
        self.state.versions.persist()
    }

    /// The server stops: the store rearranges nothing any more. Nothing may be changed afterwards.
    pub fn rest_versions(&self) {
        self.state.versions.rest();
    }

    /// Number of changes whose entries may not be durable.
    pub fn unsettled_versions(&self) -> usize {
        self.state.versions.unsettled()
    }

    /// Gives back copies of the store's files in the kernel's memory; see [`VersionStore::keep_cached`].
    ///
    /// # Errors
    /// The disk's.
    pub fn keep_versions_cached(&self, bytes_max: u64) -> Result<u64, Fault> {
        self.state.versions.keep_cached(bytes_max)
    }

    /// Gives back copies of the log in the kernel's memory, if they are more than `bytes_max`. Returns how many bytes
    /// there are, 0 if that is unknown. Only the next start reads the log.
    ///
    /// # Errors
    /// The disk's: more is in memory than should be, and nothing else.
    pub fn keep_cached(&self, bytes_max: u64) -> Result<u64, Fault> {
        let files = self.raft.journal_files();
        let mut cached = 0;
        for file in &files {
            cached += file.cached_bytes()?.unwrap_or(0);
        }
        if cached > bytes_max {
            for file in &files {
                file.advise_dont_need(0, file.len()?)?;
            }
        }
        Ok(cached)
    }

    /// The store holds everything up to `through`, durably: the log may use its space again.
    ///
    /// # Errors
    /// The disk's.
    pub fn truncate(&self, through: LogIndex) -> Result<(), Fault> {
        self.raft.truncate(&self.state, through);
        Ok(())
    }

    /// Promises that no transaction will be stamped at or below `at` any more, and waits until those that are, are
    /// executed here. True if that was so already.
    ///
    /// # Errors
    /// `Future` if `at` has not come yet. With others `NotYetClosed` if no majority answers in time.
    pub fn close(&self, at: Hlc) -> Result<bool, Fault> {
        self.raft.close(&self.state, at)
    }

    /// As [`Metadata::close`], on a server that is alone. False, and nothing is promised, if it is not alone, or if
    /// `at` cannot be closed now.
    pub fn close_alone(&self, at: Hlc) -> bool {
        matches!(self.raft.close_alone(at), Some(Ok(())))
    }

    /// As [`Metadata::close`], without waiting: with others the promise comes with the log before long. True if what of
    /// it can be done here is done.
    pub fn promise(&self, at: Hlc) -> bool {
        self.raft.promise(&self.state, at)
    }

    /// The newest instant closed.
    pub fn closed(&self) -> Hlc {
        self.raft.closed()
    }
}
