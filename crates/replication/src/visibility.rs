//! What all threads see of the chains without the appender: how far each may be read here, and whether anybody is asked
//! first.
//!
//! Guarantees: a reader that finds nothing to ask reads everything that was committed before; what is published is
//! hidden before, and what is told to others is shown before. Leaves to others: asking the tail (`chains`), the lease
//! (`bounds`).

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
    /// The tail has to be asked how far that is.
    Ask = 1,
    /// Not at all: others are its members.
    Away = 2,
}

/// What all threads see of the chains without the appender.
#[derive(Debug)]
pub(crate) struct Shown {
    /// By chain, as [`Sight`].
    sights: Vec<AtomicU8>,
    /// By chain: what is read up to here does not change any more.
    pub(crate) closed: Vec<AtomicU64>,
    /// By chain: the same of before a restart, until a configuration comes; 0 for none.
    pub(crate) remembered: Vec<AtomicU64>,
    /// Where that is kept; in tests of chains alone nowhere.
    pub(crate) remembered_by: OnceLock<Arc<Remembered>>,
    /// By chain: bytes not committed.
    pub(crate) in_flight: Vec<AtomicU64>,
    /// By chain: about how many bytes this node is still to be given, as it was told with the last record.
    pub(crate) lacks: Vec<AtomicU64>,
    /// A chain has its configuration from elsewhere.
    pub(crate) any_shared: AtomicBool,
    /// Records went from the log.
    pub(crate) discarded: AtomicBool,
    /// By chain: who is sent what is appended; 0 for nobody.
    pub(crate) successors: Vec<AtomicU32>,
    /// By chain: the configuration in force.
    pub(crate) epochs: Vec<AtomicU64>,
    /// How often this node has come into a chain, or gone from one.
    turns: AtomicU64,
    /// How often chains were taken out whole.
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
    /// True if a read of now of one of these chains asks.
    pub fn has_to_look(&self, mut chains: impl Iterator<Item = ChainId>) -> bool {
        chains.any(|chain| self.shown.sight(chain) != Sight::Here)
    }

    /// True if a read of now of these parts of chunks needs not ask: what is on its way through their chains lies
    /// beside them.
    pub fn is_clean_in(&self, mut parts: impl Iterator<Item = (ChainId, ChunkId, ByteRange)>) -> bool {
        let appender = self.hold_writes();
        parts.all(|(chain, chunk, range)| {
            let (replica, member) = (&appender.chains[chain.0 as usize], &appender.members[chain.0 as usize]);
            !member.shared || replica.is_clean_in(chunk, range)
        })
    }

    /// The instants at which a read of now reads the chains. An answer about several chunks takes them once: a group is
    /// then seen on all its chains or on none.
    pub fn cuts(&self) -> Cuts<'_> {
        Cuts(self.cuts.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Shows readers what is committed on these chains now, on all of them at once.
    pub(crate) fn show(&self, appender: &Appender, chains: impl Iterator<Item = ChainId> + Clone) {
        // What the tail has said to be committed is, though it is not known of here yet.
        let cut =
            |chain: ChainId| appender.chains[chain.0 as usize].now_cut().max(appender.members[chain.0 as usize].seen);
        let note = || {
            if self.is_shared() {
                chains.clone().for_each(|chain| self.note(appender, chain));
            }
        };
        // Nothing changes at an `async` write to a clean chain, by far the usual case: readers are not disturbed.
        if chains.clone().all(|chain| self.cuts().of(chain) == cut(chain)) {
            return note();
        }
        let mut cuts = self.cuts.write().unwrap_or_else(PoisonError::into_inner);
        // Together: who finds that there is nothing to ask for takes the cuts next, and reads by these.
        note();
        for chain in chains.clone() {
            cuts[chain.0 as usize] = cut(chain);
        }
    }

    /// Notes how a chain may be read here from now on, for all threads.
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

    /// How often this node has come into a chain, or gone from one: for [`DataPlane::check_turns`].
    pub fn turns(&self) -> u64 {
        self.shown.turns.load(Ordering::SeqCst)
    }

    /// Whether what was read of the chains that are here is still what is so now: it has the lease, and they are those
    /// that were here when it had turned `turns` times. The lease comes first: one that came since is of the chains of
    /// since.
    ///
    /// # Errors
    /// `Unavailable` if it is not: look again.
    pub fn check_still(&self, turns: u64) -> Result<(), Fault> {
        self.check_lease()?;
        self.check_turns(turns)
    }

    /// Whether the chains that are here are those that were when it had turned `turns` times. Whoever looked at all of
    /// its chains then has not looked at one that it came into; one that it has gone from may hold more by now,
    /// whatever lease came with that.
    ///
    /// # Errors
    /// `Unavailable` if they are not: look again.
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

/// Where a read of now reads each chain; they stay while it is held.
pub struct Cuts<'a>(RwLockReadGuard<'a, Vec<Hlc>>);

impl Cuts<'_> {
    /// The instant at which a read of now reads chunks of `chain`: `MAX`, or below its first record that is not
    /// committed.
    pub fn of(&self, chain: ChainId) -> Hlc {
        self.0[chain.0 as usize]
    }
}
