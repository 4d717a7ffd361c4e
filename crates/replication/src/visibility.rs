//! Read state of the chains, shared by all threads without the appender's lock: up to where each chain may be read
//! here, and whether the tail has to be asked first.
//!
//! Guarantees: a reader that needs no request to the tail reads everything that was committed before; a record is
//! hidden before it is published, and shown before a message about it leaves. Leaves to others: asking the tail
//! (`chains`), the lease (`bounds`).

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLockReadGuard};

use frieze_base::{ByteRange, ChainId, ChunkId, Fault, Reason};
use frieze_chain::Replica;
use frieze_hlc::Hlc;

use crate::closed_record::Remembered;
use crate::plane::{Appender, DataPlane};

/// How a read of now may read a chain here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// At its cut.
    Here = 0,
    /// After the tail has reported the newest commit.
    Ask = 1,
    /// Not at all: other nodes are its members.
    Away = 2,
}

/// Read state of the chains, shared by all threads.
#[derive(Debug)]
pub(crate) struct Shown {
    /// By chain: a [`Sight`].
    sights: Vec<AtomicU8>,
    /// By chain: reads up to here do not change any more.
    pub(crate) closed: Vec<AtomicU64>,
    /// By chain: the same from before a restart, until a configuration arrives; 0 for none.
    pub(crate) remembered: Vec<AtomicU64>,
    /// The stored record of it; unset in tests of chains alone.
    pub(crate) remembered_by: OnceLock<Arc<Remembered>>,
    /// By chain: uncommitted bytes.
    pub(crate) in_flight: Vec<AtomicU64>,
    /// By chain: bytes that this node still lacks, estimated by the sender of the last record.
    pub(crate) lacks: Vec<AtomicU64>,
    /// The control plane configures a chain here.
    pub(crate) any_shared: AtomicBool,
    /// Records were discarded from the log.
    pub(crate) discarded: AtomicBool,
    /// By chain: the successor that receives appended records; 0 for none.
    pub(crate) successors: Vec<AtomicU32>,
    /// By chain: the current configuration.
    pub(crate) epochs: Vec<AtomicU64>,
    /// Count of joins and departures of this node, over all chains.
    turns: AtomicU64,
    /// Count of detached chains.
    pub(crate) went: AtomicU64,
}

impl Shown {
    pub(crate) fn new(replicas: &[Replica], any_shared: bool) -> Shown {
        let chains = replicas.len();
        Shown {
            sights: (0..chains).map(|_| AtomicU8::new(Sight::Here as u8)).collect(),
            closed: (0..chains).map(|_| AtomicU64::new(0)).collect(),
            remembered_by: OnceLock::new(),
            remembered: (0..chains).map(|_| AtomicU64::new(0)).collect(),
            in_flight: (0..chains).map(|_| AtomicU64::new(0)).collect(),
            lacks: (0..chains).map(|_| AtomicU64::new(0)).collect(),
            any_shared: AtomicBool::new(any_shared),
            discarded: AtomicBool::new(false),
            successors: (0..chains).map(|_| AtomicU32::new(0)).collect(),
            epochs: replicas.iter().map(|replica| AtomicU64::new(replica.epoch().0)).collect(),
            turns: AtomicU64::new(0),
            went: AtomicU64::new(0),
        }
    }

    pub(crate) fn sight(&self, chain: ChainId) -> Sight {
        match self.sights[chain.0 as usize].load(Ordering::SeqCst) {
            0 => Sight::Here,
            1 => Sight::Ask,
            _ => Sight::Away,
        }
    }
}

impl DataPlane {
    /// True if a read of now of one of these chains has to ask the tail.
    pub fn has_to_look(&self, mut chains: impl Iterator<Item = ChainId>) -> bool {
        chains.any(|chain| self.shown.sight(chain) != Sight::Here)
    }

    /// True if a read of now of these parts of chunks needs no request to the tail: the uncommitted records of their
    /// chains lie outside the parts.
    pub fn is_clean_in(&self, mut parts: impl Iterator<Item = (ChainId, ChunkId, ByteRange)>) -> bool {
        let appender = self.hold_writes();
        parts.all(|(chain, chunk, range)| {
            let (replica, member) = (&appender.chains[chain.0 as usize], &appender.members[chain.0 as usize]);
            !member.shared || replica.is_clean_in(chunk, range)
        })
    }

    /// The instants at which a read of now reads the chains. An answer about several chunks takes them once: a group is
    /// then visible on all its chains or on none.
    pub fn cuts(&self) -> Cuts<'_> {
        Cuts(self.cuts.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Shows readers what is committed on these chains now, on all of them at once.
    pub(crate) fn show(&self, appender: &Appender, chains: impl Iterator<Item = ChainId> + Clone) {
        // The tail has reported a commit that may not be recorded here yet.
        let cut =
            |chain: ChainId| appender.chains[chain.0 as usize].now_cut().max(appender.members[chain.0 as usize].seen);
        let note = || {
            if self.is_shared() {
                chains.clone().for_each(|chain| self.note(appender, chain));
            }
        };
        // An `async` write to a clean chain, by far the usual case, changes nothing: readers are not disturbed.
        if chains.clone().all(|chain| self.cuts().of(chain) == cut(chain)) {
            return note();
        }
        let mut cuts = self.cuts.write().unwrap_or_else(PoisonError::into_inner);
        // In one step: a reader that needs no request to the tail takes the cuts next, and reads by them.
        note();
        for chain in chains.clone() {
            cuts[chain.0 as usize] = cut(chain);
        }
    }

    /// Publishes how a chain may be read here, to all threads.
    pub(crate) fn note(&self, appender: &Appender, chain: ChainId) {
        let (replica, member) = (&appender.chains[chain.0 as usize], &appender.members[chain.0 as usize]);
        let closed = if replica.is_whole() { replica.closed().min(replica.now_cut()) } else { Hlc::ZERO };
        let remembered = self.shown.remembered[chain.0 as usize].load(Ordering::SeqCst);
        self.shown.closed[chain.0 as usize].store(closed.0.max(remembered), Ordering::SeqCst);
        let sight = match () {
            () if !member.shared => Sight::Here,
            () if !replica.configuration().holds(self.me) => Sight::Away,
            () if replica.is_readable_now() => Sight::Here,
            () => Sight::Ask,
        };
        let before = self.shown.sights[chain.0 as usize].swap(sight as u8, Ordering::SeqCst);
        if (before == Sight::Away as u8) != (sight == Sight::Away) {
            self.shown.turns.fetch_add(1, Ordering::SeqCst);
        }
        let successor = replica.successor().map_or(0, |node| node.0);
        self.shown.successors[chain.0 as usize].store(successor, Ordering::Relaxed);
        self.shown.epochs[chain.0 as usize].store(replica.epoch().0, Ordering::SeqCst);
    }

    /// Count of joins and departures of this node: for [`DataPlane::check_turns`].
    pub fn turns(&self) -> u64 {
        self.shown.turns.load(Ordering::SeqCst)
    }

    /// Checks that a read of this node's chains is still valid: the node has a lease, and its chains are those of the
    /// time when the count was `turns`. The lease is checked first: a newer lease may belong to newer chains.
    ///
    /// # Errors
    /// `Unavailable` if not: retry the read.
    pub fn check_still(&self, turns: u64) -> Result<(), Fault> {
        self.check_lease()?;
        self.check_turns(turns)
    }

    /// Checks that this node's chains are those of the time when the count was `turns`. A reader of all chains of that
    /// time has not read a chain that the node joined since; a chain that the node left may have more records by now,
    /// whatever lease came with the change.
    ///
    /// # Errors
    /// `Unavailable` if not: retry the read.
    pub fn check_turns(&self, turns: u64) -> Result<(), Fault> {
        match self.turns() == turns {
            true => Ok(()),
            false => Err(Fault::new(
                Reason::Unavailable,
                "the server has come to have more of the data, or less, while it looked: try again",
            )),
        }
    }
}

/// Instants at which a read of now reads each chain; unchanged until dropped.
pub struct Cuts<'a>(RwLockReadGuard<'a, Vec<Hlc>>);

impl Cuts<'_> {
    /// The instant at which a read of now reads chunks of `chain`: `MAX`, or below its first uncommitted record.
    pub fn of(&self, chain: ChainId) -> Hlc {
        self.0[chain.0 as usize]
    }
}
