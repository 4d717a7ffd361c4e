//! The parts of a server that its metadata uses, and how far recovery reaches.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use frieze_base::LogIndex;
use frieze_disk::Disk;
use frieze_hlc::Hlc;
use frieze_metalog::{DataEnd, MemberSettings};

use super::durable_mark::DurableMark;
use super::raft_driver::DriverSetup;
use frieze_net::{Idle, Peers};
use frieze_storage::{Device, IdentityStore, MetalogRole, NodeClock, Wake};

/// The parts of a server that its metadata uses.
pub struct MetadataHost {
    /// Stamps transactions.
    pub clock: Arc<NodeClock>,
    /// The identity of the directory.
    pub keeper: Arc<IdentityStore>,
    /// Its end is noted in entries: names may rest on the bytes before it.
    pub device: Arc<Device>,
    /// Where the files of the log are.
    pub disk: Arc<dyn Disk>,
    /// Sends messages to the other members.
    pub way: Arc<dyn Peers>,
    /// Seed of election timeouts, another one at every start.
    pub seed: u64,
    /// Length of node leases: a new leader is elected well before they end.
    pub lease: Duration,
    /// Length of a segment of the log in bytes.
    pub segment_bytes: u64,
    /// Number of this process among those of the directory.
    pub incarnation: u64,
    /// False if a loss of power took what earlier processes had in memory.
    pub kept_memory: bool,
    /// No stamp of an earlier process lies above it.
    pub stamp_bound: Hlc,
    /// Called when more of the log has become durable. Must not block.
    pub wake: Arc<dyn Fn() + Send + Sync>,
}

/// How far recovery is to reach.
pub struct RecoverUpto {
    /// The data log ends here: entries that name later data are cut off.
    pub data_end: DataEnd,
    /// The log was on stable storage up to this entry.
    pub durable: LogIndex,
    /// Entries are cut off on purpose: that some are missing is no damage.
    pub is_cut: bool,
    /// Serve what is left.
    pub serve_damaged: bool,
}

/// What a flush that begins now covers.
#[derive(Clone, Copy, Debug)]
pub struct FlushMark {
    /// The last entry executed.
    pub index: LogIndex,
    /// The last record of the journal.
    pub(super) record: LogIndex,
}

impl FlushMark {
    /// The mark of a flush that has covered everything up to this entry.
    pub fn of(index: LogIndex) -> FlushMark {
        FlushMark { index, record: LogIndex(0) }
    }
}

/// An election begins 10 to 20 ticks after the last sign of life of a leader, and ends within half a lease.
const TICKS_PER_LEASE: u32 = 80;
/// As often as threads can be expected to be woken, and as seldom as makes sense however long leases are.
const TICK_US: RangeInclusive<u64> = 5_000..=25_000;

impl MetadataHost {
    /// Settings of the Raft member.
    pub(super) fn member_settings(&self) -> MemberSettings {
        let tick_us = (self.lease / TICKS_PER_LEASE).as_micros() as u64;
        let tick_us = tick_us.clamp(*TICK_US.start(), *TICK_US.end());
        MemberSettings { tick_us, segment_bytes: self.segment_bytes, ..MemberSettings::default() }
    }

    pub(super) fn begin(&self, begin: DriverStart, unflushed: &Arc<Wake>, idle: &Idle) -> DriverSetup {
        let DriverStart { applied, mark } = begin;
        let (id, standing) = self.keeper.with(|identity| (identity.node_id(), identity.standing()));
        DriverSetup {
            id,
            clock: self.clock.clone(),
            device: self.device.clone(),
            way: self.way.clone(),
            unflushed: unflushed.clone(),
            applied,
            is_shared: standing != MetalogRole::Alone,
            mark,
            tick_us: self.member_settings().tick_us,
            seed: self.seed,
            idle: idle.clone(),
            keeper: self.keeper.clone(),
            wake: self.wake.clone(),
        }
    }
}

/// Where the state of a server is when its member of the metalog begins.
pub(super) struct DriverStart {
    /// The last entry in the store.
    pub(super) applied: LogIndex,
    /// How far the journal was flushed.
    pub(super) mark: DurableMark,
}
