//! The metadata plane: transactions are gathered into batches, ordered by the metalog, executed by the namespace.
//!
//! Guarantees: a transaction is in the log before it is executed; every transaction has one stamp and runs once; what
//! it reads and writes is the namespace at that stamp.
//! Leaves to others: who may ask (`engine`), when to flush (`durability`).
//!
//! There are two ways to order. A machine that is alone (`alone`) writes to its log and executes at once, on the thread that
//! asks. With others (`member`) an entry is executed when a majority holds it durably, by all members in the order of the log.
//! The one becomes the other once, when the first other machine joins (`founding`). What is executed, and how, is the same
//! (`state`).

mod alone;
mod founding;
mod member;
mod progress;
mod questions;
mod segments;
mod slots;
mod state;
mod survivor;
mod transfer;
mod wires;

use std::ops::RangeInclusive;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use frieze_base::{Fault, LogIndex, NodeId, Reason};
use frieze_disk::Disk;
use frieze_hlc::Hlc;
use frieze_metalog::{Change, DataEnd, MemberSettings};
use frieze_namespace::Namespace;
use frieze_wire::peer::metalog::{MetalogClose, MetalogHeld, MetalogMessage, MetalogPiece};
use frieze_wire::txn::{Outcome, Transaction};

use crate::caching::{Caching, Gate};
use crate::clock::{Keeper, NodeClock};
use crate::device::Device;
use crate::durability::Wake;
use crate::identity::Standing;
use crate::peers::Peers;
use crate::reading::Reading;
use crate::store::{VersionStore, Versions};

use alone::{Alone, Ran};
use member::{Begin, Group};
pub(crate) use progress::{Idle, idle_until};
use state::State;

pub use member::MetalogStatus;
pub use segments::{SegmentFiles, Unflushed};
pub(crate) use survivor::{LeftJournal, LeftStore};

/// Order and execution of metadata.
pub(crate) struct MetaPlane {
    state: State,
    /// `None` if this server was a member when it began.
    alone: Option<Alone>,
    group: OnceLock<Group>,
    host: MetaHost,
    /// Wakes who flushes the journal of a member.
    unflushed: Arc<Wake>,
    idle: Idle,
}

/// What the plane stands on.
pub(crate) struct MetaHost {
    pub(crate) clock: Arc<NodeClock>,
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) device: Arc<Device>,
    pub(crate) disk: Arc<dyn Disk>,
    /// To the other members.
    pub(crate) way: Arc<dyn Peers>,
    /// Another one at every start: election timeouts are drawn from it.
    pub(crate) seed: u64,
    /// Length of leases: whoever is to grant them is elected well before they end.
    pub(crate) lease: Duration,
    /// Length of a segment of the log in bytes.
    pub(crate) segment_bytes: u64,
}

/// How far recovery is to reach.
pub(crate) struct MetaReach {
    /// The log was on stable storage up to this entry.
    pub(crate) durable: LogIndex,
    /// Serve what is left.
    pub(crate) serve_damaged: bool,
}

/// A place in the log: what a flush that begins now covers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    /// The last entry executed.
    pub(crate) index: LogIndex,
    /// Of a member: the last record of its journal.
    record: LogIndex,
}

/// What another member says.
pub(crate) enum MetaTold {
    Message(MetalogMessage),
    Piece(MetalogPiece),
    Held(MetalogHeld),
    Close(MetalogClose),
}

enum Order<'a> {
    Alone(&'a Alone),
    Group(&'a Group),
}

impl MetaPlane {
    /// Loads the namespace from `versions` and executes the metalog on the disk after it: of a machine that is alone, as far
    /// as the data log reaches. Returns the plane and what was cut, in words.
    ///
    /// # Errors
    /// `Corrupt` if an entry cannot be decoded or the log does not reach back to what the store holds; the disk's.
    pub(crate) fn recover(
        host: MetaHost,
        versions: Versions,
        data_end: DataEnd,
        reach: &MetaReach,
    ) -> Result<(MetaPlane, Vec<String>), Fault> {
        if host.keeper.with(|identity| identity.standing()) != Standing::Alone {
            return Ok((MetaPlane::recover_member(host, versions)?, Vec::new()));
        }
        let state = State::load(versions)?;
        let settings =
            frieze_metalog::Settings { segment_bytes: host.segment_bytes, ..frieze_metalog::Settings::default() };
        let (alone, notes) = Alone::recover(&host, settings, &state, data_end, reach)?;
        let (unflushed, idle) = (Arc::default(), Arc::new(OnceLock::new()));
        Ok((MetaPlane { state, alone: Some(alone), group: OnceLock::new(), host, unflushed, idle }, notes))
    }

    fn order(&self) -> Order<'_> {
        match (self.group.get(), &self.alone) {
            (Some(group), _) => Order::Group(group),
            (None, Some(alone)) => Order::Alone(alone),
            (None, None) => unreachable!("a server that is not alone has begun as a member"),
        }
    }

    fn group(&self) -> Result<&Group, Fault> {
        self.group
            .get()
            .ok_or_else(|| Fault::new(Reason::InvalidArgument, "this server is alone: it has no other members"))
    }

    /// Executes a transaction; `gate` hears what it reads.
    ///
    /// # Errors
    /// Alone only what kept it from being ordered (`NoSpace`, `Fenced`, `InputOutput`, `Overloaded`); it has no effect then.
    /// With others also `Elsewhere` or `Unavailable`, if this server does not lead or ceases to: whether it ran, the next
    /// leader knows who is asked under the same session and number. What the transaction itself failed with is in its outcome.
    pub(crate) fn execute(&self, transaction: Transaction, gate: Option<Arc<Gate>>) -> Result<Outcome, Fault> {
        let (transaction, gate) = match self.order() {
            Order::Group(group) => return group.execute(&self.state, transaction, gate),
            Order::Alone(alone) => match alone.execute(&self.state, transaction, gate) {
                Ran::Done(result) => return result,
                Ran::Over(transaction, gate) => (transaction, gate),
            },
        };
        self.group()?.execute(&self.state, transaction, gate)
    }

    /// From now on `caching` is told of every change before anybody sees it.
    pub(crate) fn watch(&self, caching: Arc<Caching>) {
        self.state.watch(caching);
    }

    /// Takes over from the identity which inode numbers may be given.
    pub(crate) fn begin_ids(&self) {
        if let Order::Alone(alone) = self.order() {
            alone.begin_ids();
        }
    }

    /// True if this server is one of several, or may become one of several at any time.
    pub(crate) fn is_member(&self) -> bool {
        self.group.get().is_some()
    }

    /// True if transactions are ordered here: alone, or as the leader.
    pub(crate) fn leads(&self) -> bool {
        self.group.get().is_none_or(Group::leads)
    }

    /// # Errors
    /// `Elsewhere`, `Unavailable`: this server does not lead; the fault names who does.
    pub(crate) fn check_leads(&self) -> Result<(), Fault> {
        match self.group.get() {
            Some(group) if !group.leads() => Err(group.not_here()),
            _ => Ok(()),
        }
    }

    /// How often this server has begun to lead others.
    pub(crate) fn reigns(&self) -> u64 {
        self.group.get().map_or(0, Group::reigns)
    }

    /// Whom to ask for transactions: `None` if this server is alone, or nobody is known to lead.
    pub(crate) fn leader(&self) -> Option<NodeId> {
        self.group.get().and_then(Group::leader)
    }

    /// Where this member is; `None` if the server is alone.
    pub(crate) fn status(&self) -> Option<MetalogStatus> {
        self.group.get().map(Group::status)
    }

    /// Stamp of the last transaction in the log.
    pub(crate) fn newest(&self) -> Hlc {
        match self.order() {
            Order::Alone(alone) => alone.newest(),
            Order::Group(group) => group.newest(),
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
    pub(crate) fn leave(&self, has_room: &dyn Fn(u64) -> bool) -> Result<(), Fault> {
        self.state.leave(self.appended(), has_room)
    }

    /// Index of the last entry executed.
    pub(crate) fn appended(&self) -> LogIndex {
        match self.order() {
            Order::Alone(alone) => alone.appended(),
            Order::Group(group) => group.applied(),
        }
    }

    /// What a flush that begins now covers. The data come to stable storage after it is taken, and before [`MetaPlane::sync`].
    pub(crate) fn mark(&self) -> Mark {
        match self.order() {
            Order::Alone(alone) => Mark { index: alone.appended(), record: LogIndex(0) },
            Order::Group(group) => Mark { index: group.applied(), record: group.written() },
        }
    }

    /// Makes the log durable up to `mark`; the data that it names must be durable already.
    ///
    /// # Errors
    /// The disk's: refuse writes from then on.
    pub(crate) fn sync(&self, mark: Mark) -> Result<(), Fault> {
        match self.order() {
            Order::Alone(alone) => alone.sync(mark.index),
            Order::Group(group) => group.flush(&self.state, Some(mark.record)),
        }
    }

    /// Waits until a journal is to be flushed, `timeout` at most. True if there is one: [`MetaPlane::sync`], after the
    /// device if [`MetaPlane::journal_names_data`].
    pub(crate) fn await_journal(&self, timeout: Duration) -> bool {
        if !timeout.is_zero() {
            self.unflushed.wait(timeout);
        }
        self.group.get().is_some_and(Group::is_unflushed)
    }

    /// Ends the wait of [`MetaPlane::await_journal`].
    pub(crate) fn wake_journal(&self) {
        self.unflushed.wake();
    }

    /// True if what is to be flushed of the journal may name data.
    pub(crate) fn journal_names_data(&self) -> bool {
        self.group.get().is_some_and(Group::unflushed_names_data)
    }

    /// The device can no longer keep what it is given: a member steps down and is silent.
    pub(crate) fn device_failed(&self, reason: Reason) {
        if let Some(group) = self.group.get() {
            group.device_failed(&self.state, reason);
        }
    }

    /// Time goes by. To be called again after what is returned at the latest; `None`: nothing depends on it yet.
    pub(crate) fn beat(&self) -> Option<Duration> {
        self.group.get().map(|group| group.beat(&self.state))
    }

    /// A node has ended its connections. It may be there all the same.
    pub(crate) fn gone(&self, node: NodeId) {
        if let Some(group) = self.group.get() {
            group.gone(&self.state, node);
        }
    }

    /// Another member says something. What comes while this server is alone is not for it.
    ///
    /// # Errors
    /// `BadFrame` for what no member sends; the store's, if it cannot take a state.
    pub(crate) fn told(&self, from: NodeId, told: MetaTold, payload: &[u8]) -> Result<(), Fault> {
        let Some(group) = self.group.get() else { return Ok(()) };
        match told {
            MetaTold::Message(said) => group.heard(&self.state, from, said, payload),
            MetaTold::Piece(piece) => group.heard_piece(&self.state, from, piece, payload),
            MetaTold::Held(held) => {
                group.heard_held(&self.state, from, held);
                Ok(())
            }
            MetaTold::Close(close) => {
                group.promise(&self.state, Hlc(close.at));
                Ok(())
            }
        }
    }

    /// Adds or removes a member, as the leader. Ids of nodes never come twice. Returns when a majority holds the change; a new
    /// member counts by itself once it has caught up.
    ///
    /// # Errors
    /// `Elsewhere`: ask the leader. `Busy`: another change is under way. `InvalidArgument`: it makes no sense.
    pub(crate) fn change_members(&self, change: Change) -> Result<(), Fault> {
        self.group()?.change(&self.state, change)
    }

    /// Looks at what the log has decided about nodes and chains.
    pub(crate) fn look_at_control(&self, look: &mut dyn FnMut(&frieze_cluster::ClusterState)) {
        self.state.look_at_control(look);
    }

    /// What decisions have changed since the last call. After a start, and after a state was received, everything may have.
    pub(crate) fn take_control_news(&self) -> Vec<frieze_cluster::ClusterChange> {
        self.state.take_news()
    }

    /// Puts decisions about nodes and chains into the log, some time, or not at all: only the leader can, in its term. Never
    /// waits.
    pub(crate) fn decide(&self, term: u64, decisions: &[frieze_cluster::Decision]) {
        if let Some(group) = self.group.get() {
            group.decide(&self.state, term, decisions.iter().map(frieze_cluster::Decision::to_wire));
        }
    }

    /// Waits until `look` finds something in what this member knows; a few seconds at most. Alone it looks once.
    pub(crate) fn wait_for<T>(&self, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        match self.group.get() {
            Some(group) => group.wait_for(look),
            None => look(),
        }
    }

    /// Lets another member lead, if this one does.
    ///
    /// # Errors
    /// `Elsewhere`: it does not. `InvalidArgument`: the other cannot.
    pub(crate) fn hand_over(&self, to: NodeId) -> Result<(), Fault> {
        self.group()?.transfer(&self.state, to)
    }

    /// Lets the member lead that could go on soonest, if this one does and there is one. Never waits.
    pub(crate) fn step_aside(&self) {
        if let Some(group) = self.group.get() {
            group.step_aside(&self.state);
        }
    }

    /// Whoever waits for other members is told that this server stops, and nobody waits any more.
    pub(crate) fn end_waits(&self) {
        if let Some(group) = self.group.get() {
            group.end();
        }
    }

    /// Waits until the namespace here holds everything that anybody was told before the call. Alone it always does.
    ///
    /// # Errors
    /// `Elsewhere`, `Unavailable`: no majority answers, or this server is no member any more: ask again, or another.
    pub(crate) fn linearizable(&self) -> Result<(), Fault> {
        self.group.get().map_or(Ok(()), |group| group.linearizable(&self.state))
    }

    /// What whoever waits for other members does meanwhile, instead of sleeping: for a process with one thread.
    pub(crate) fn idle(&self) -> &Idle {
        &self.idle
    }

    /// Gives back copies of the log in the kernel's memory, if they are more than `bytes_max`. Returns how many bytes there
    /// are; 0 where nobody knows. Nobody reads the log but the next start.
    ///
    /// # Errors
    /// The disk's: more is in memory than should be, and nothing else.
    pub(crate) fn keep_cached(&self, bytes_max: u64) -> Result<u64, Fault> {
        let files = match self.order() {
            Order::Alone(alone) => alone.files(),
            Order::Group(group) => group.lock().journal.files(),
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
            Order::Alone(alone) => alone.truncate(through),
            Order::Group(group) => {
                group.truncate(&self.state, through);
                Ok(())
            }
        }
    }

    /// The namespace as it is now.
    pub(crate) fn namespace(&self) -> Reading<'_, Namespace> {
        self.state.read()
    }

    /// Its history.
    pub(crate) fn versions(&self) -> &Versions {
        &self.state.versions
    }

    /// Promises that no transaction will be stamped at or below `at` any more, and waits until those that are, are executed
    /// here. True if that was so already.
    ///
    /// # Errors
    /// `Future` if `at` has not come yet. With others `NotYetClosed` if no majority answers in time.
    pub(crate) fn close(&self, at: Hlc) -> Result<bool, Fault> {
        match self.order() {
            Order::Alone(alone) => alone.close(at),
            Order::Group(group) => group.close(&self.state, at),
        }
    }

    /// As [`MetaPlane::close`], without waiting: with others the promise comes with the log before long. True if what of it can
    /// be done here is done.
    pub(crate) fn promise(&self, at: Hlc) -> bool {
        match self.order() {
            Order::Alone(alone) => alone.close(at).is_ok(),
            Order::Group(group) => {
                group.promise(&self.state, at);
                true
            }
        }
    }

    /// The newest instant closed.
    pub(crate) fn closed(&self) -> Hlc {
        match self.order() {
            Order::Alone(alone) => alone.closed(),
            Order::Group(group) => group.closed(),
        }
    }
}

/// An election begins 10 to 20 ticks after the last sign of life of a leader, and ends within half a lease.
const TICKS_PER_LEASE: u32 = 80;
/// As often as threads can be expected to be woken, and as seldom as makes sense however long leases are.
const TICK_US: RangeInclusive<u64> = 5_000..=25_000;

impl MetaHost {
    /// How a member goes about it.
    fn member_settings(&self) -> MemberSettings {
        let tick_us = (self.lease / TICKS_PER_LEASE).as_micros() as u64;
        let tick_us = tick_us.clamp(*TICK_US.start(), *TICK_US.end());
        MemberSettings { tick_us, segment_bytes: self.segment_bytes, ..MemberSettings::default() }
    }

    fn begin(
        &self,
        settings: &MemberSettings,
        applied: LogIndex,
        ids_above: u64,
        unflushed: &Arc<Wake>,
        idle: &Idle,
    ) -> Begin {
        Begin {
            id: self.keeper.with(|identity| identity.node_id()),
            clock: self.clock.clone(),
            device: self.device.clone(),
            way: self.way.clone(),
            unflushed: unflushed.clone(),
            applied,
            ids_above,
            tick_us: settings.tick_us,
            seed: self.seed,
            idle: idle.clone(),
        }
    }
}
