//! Bytes that are stored of the trees whose quota bounds them: present and history together.
//!
//! Guarantees: on one server what is admitted never exceeds a bound by more than the writes under way; of chains whose
//! writes other servers admit, by what is written between two counts. A tree that was not counted yet is bounded by
//! what was admitted since. Leaves to others: the quotas themselves (`namespace`), refusing in words that name the
//! caller's file (`service`).
//!
//! A record counts for the directories above its file, of a removed file above where it was last, until it is dead.
//! Shared bytes count where they were written, holes nowhere, and copies on other servers once. Admission adds; a count
//! in the background, in steps, takes away what died and follows what moved.
//!
//! # Source
//! ZFS: `quota` counts snapshots, `refquota` does not; both are asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use frieze_base::{ChainId, FastMap, InodeId, MonoTime};
use frieze_locks::{Mutex, MutexGuard, levels};
use frieze_multilog::LogPosition;
use frieze_wire::peer::{KeptAsk, PeerResponse};

/// Bytes that are stored of trees with a quota of them.
#[derive(Default)]
pub struct BoundedTrees(Mutex<levels::KeptTrees, TreeCounts>);

#[derive(Default)]
pub(crate) struct TreeCounts {
    pub(crate) trees: BTreeMap<InodeId, Arc<KeptTree>>,
    /// Those of the last count, by directory and chain.
    pub(crate) by_chain: BTreeMap<InodeId, BTreeMap<ChainId, u64>>,
    pub(crate) pass: Option<CountPass>,
    /// What the last count was made of.
    pub(crate) counted: Option<CountBasis>,
    /// Other servers are asked again then.
    pub(crate) next_ask: MonoTime,
    /// The next count begins then.
    pub(crate) next: MonoTime,
}

/// A directory whose quota bounds what is stored below.
#[derive(Debug, Default)]
pub(crate) struct KeptTree {
    /// Bytes in chains that this server has, with those admitted.
    pub(crate) here: AtomicU64,
    /// Bytes in chains that only other servers have, as those last counted them.
    pub(crate) remote: AtomicU64,
    /// Admitted since the count under way began.
    pub(crate) admitted: AtomicU64,
    pub(crate) is_counted: AtomicBool,
}

/// The bound of a tree that a file lies in.
#[derive(Clone, Debug)]
pub struct TreeBound {
    pub(crate) root: InodeId,
    pub(crate) max: u64,
    pub(crate) tree: Arc<KeptTree>,
}

/// What a count depends on: while it is the same, so is the count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CountBasis {
    pub(crate) end: LogPosition,
    pub(crate) dead_bytes: u64,
    pub(crate) quota_changes: u64,
    pub(crate) memberships: u64,
}

/// A count under way.
pub(crate) struct CountPass {
    pub(crate) basis: CountBasis,
    pub(crate) files: Vec<InodeId>,
    pub(crate) sums: BTreeMap<InodeId, BTreeMap<ChainId, u64>>,
    /// Of directories, those with a quota that they lie in.
    pub(crate) above: FastMap<InodeId, Arc<[InodeId]>>,
    pub(crate) spent_ns: u64,
}

impl BoundedTrees {
    pub(crate) fn lock(&self) -> MutexGuard<'_, TreeCounts> {
        self.0.lock()
    }

    /// Bytes stored of a tree; `None` if they are not counted, or not bounded.
    pub fn of(&self, root: InodeId) -> Option<u64> {
        let counts = self.0.lock();
        let tree = counts.trees.get(&root).filter(|tree| tree.is_counted.load(Ordering::Acquire));
        tree.map(|tree| tree.stored())
    }

    /// The answer to another server: what is stored in these chains, as last counted.
    pub(crate) fn answer(&self, ask: &KeptAsk, chains: &BTreeSet<ChainId>) -> PeerResponse {
        let counts = self.0.lock();
        let of = |tree: &u64| {
            let of_tree = counts.by_chain.get(&InodeId(*tree));
            let within = of_tree.into_iter().flatten().filter(|(chain, _)| chains.contains(chain));
            within.map(|(_, bytes)| bytes).sum()
        };
        PeerResponse { kept: ask.trees.iter().map(of).collect(), ..PeerResponse::default() }
    }
}

impl KeptTree {
    /// Bytes stored of it.
    pub(crate) fn stored(&self) -> u64 {
        self.here.load(Ordering::Relaxed).saturating_add(self.remote.load(Ordering::Relaxed))
    }
}

impl CountPass {
    pub(crate) fn new(basis: CountBasis) -> CountPass {
        let (sums, above) = (BTreeMap::new(), FastMap::default());
        CountPass { basis, files: Vec::new(), sums, above, spent_ns: 0 }
    }
}
