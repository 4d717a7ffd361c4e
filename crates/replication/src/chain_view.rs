//! Read state of the chains, shared by all threads without the appender's lock: up to where each chain may be read
//! here, and whether the tail has to be asked first. `visibility` has the order in which it changes.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use frieze_base::ChainId;
use frieze_chain::Replica;
use frieze_hlc::Hlc;
use frieze_locks::RwLockReadGuard;

use crate::closed_record::ClosedRecord;

/// How a read of now may read a chain here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LocalRead {
    /// At its cut.
    AtCut = 0,
    /// After the tail has reported the newest commit.
    AskTail = 1,
    /// Not at all: other nodes are its members.
    NotMember = 2,
    /// At its cut, and at instants that are not closed yet: no other node has any of it.
    Sole = 3,
}

/// Read state of the chains, shared by all threads.
#[derive(Debug)]
pub(crate) struct ChainViews {
    /// By chain: a [`LocalRead`].
    pub(crate) local_reads: Vec<AtomicU8>,
    /// By chain: reads up to here do not change any more.
    pub(crate) closed: Vec<AtomicU64>,
    /// By chain: the same from before a restart, until a configuration arrives; 0 for none.
    pub(crate) closed_before_start: Vec<AtomicU64>,
    /// The stored record of it; unset in tests of chains alone.
    pub(crate) closed_record: OnceLock<Arc<ClosedRecord>>,
    /// By chain: uncommitted bytes.
    pub(crate) in_flight: Vec<AtomicU64>,
    /// By chain: bytes that this node still lacks, estimated by the sender of the last record.
    pub(crate) lag_bytes: Vec<AtomicU64>,
    /// The control plane configures a chain here.
    pub(crate) any_shared: AtomicBool,
    /// Records were discarded from the log.
    pub(crate) discarded: AtomicBool,
    /// By chain: the successor that receives appended records; 0 for none.
    pub(crate) successors: Vec<AtomicU32>,
    /// Count of chains that have one.
    pub(crate) forwarding: AtomicU32,
    /// By chain: the current configuration.
    pub(crate) epochs: Vec<AtomicU64>,
    /// Count of joins and departures of this node, over all chains.
    pub(crate) membership_count: AtomicU64,
    /// Count of detached chains.
    pub(crate) detach_count: AtomicU64,
}

impl ChainViews {
    pub(crate) fn new(replicas: &[Replica], any_shared: bool) -> ChainViews {
        let chains = replicas.len();
        ChainViews {
            local_reads: (0..chains).map(|_| AtomicU8::new(LocalRead::Sole as u8)).collect(),
            closed: (0..chains).map(|_| AtomicU64::new(0)).collect(),
            closed_record: OnceLock::new(),
            closed_before_start: (0..chains).map(|_| AtomicU64::new(0)).collect(),
            in_flight: (0..chains).map(|_| AtomicU64::new(0)).collect(),
            lag_bytes: (0..chains).map(|_| AtomicU64::new(0)).collect(),
            any_shared: AtomicBool::new(any_shared),
            discarded: AtomicBool::new(false),
            successors: (0..chains).map(|_| AtomicU32::new(0)).collect(),
            forwarding: AtomicU32::new(0),
            epochs: replicas.iter().map(|replica| AtomicU64::new(replica.epoch().0)).collect(),
            membership_count: AtomicU64::new(0),
            detach_count: AtomicU64::new(0),
        }
    }

    pub(crate) fn local_read(&self, chain: ChainId) -> LocalRead {
        match self.local_reads[chain.0 as usize].load(Ordering::SeqCst) {
            0 => LocalRead::AtCut,
            1 => LocalRead::AskTail,
            3 => LocalRead::Sole,
            _ => LocalRead::NotMember,
        }
    }
}

/// Instants at which a read of now reads each chain; unchanged until dropped.
pub struct Cuts<'a>(pub(crate) RwLockReadGuard<'a, Vec<Hlc>>);

impl Cuts<'_> {
    /// The instant at which a read of now reads chunks of `chain`: `MAX`, or below its first uncommitted record.
    pub fn of(&self, chain: ChainId) -> Hlc {
        self.0[chain.0 as usize]
    }
}
