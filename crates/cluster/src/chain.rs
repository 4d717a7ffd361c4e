//! A chain as the log has decided it: its targets, the role of each, and the configuration that follows.

use frieze_base::{ChainEpoch, ChainId, NodeId};
use frieze_wire::chain::Configuration;

/// The part that a target plays in its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TargetRole {
    /// A full member.
    Serving,
    /// The new tail: needed for writes, answers nothing yet.
    Joining,
    /// Receives the missing records from the tail; not a member.
    Syncing,
    /// None.
    Out,
}

/// State of a target, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TargetState {
    /// A full member.
    Serving,
    /// The new tail.
    Joining,
    /// Receives the missing records from the tail.
    Syncing,
    /// Its node is online; the sync has not begun.
    Waiting,
    /// Its node is there, and its device takes no more.
    Full,
    /// Its node is not there.
    Offline,
    /// No leader is known, and the answering server has had no recent contact with the node.
    Unknown,
}

/// A replica of a chain on a device of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainTarget {
    /// The node.
    pub node: NodeId,
    /// Its device.
    pub device: u32,
    /// Its part.
    pub role: TargetRole,
    /// The process that took this role. A process with another incarnation has lost what was only in memory.
    pub incarnation: u64,
    /// Stamp, as a number, of the decision that last removed this target from the members; 0 if none did since it last
    /// served. Records of the chain that its log lacks are newer than its last record or than this stamp.
    pub left: u64,
    /// The target is dropped once enough other targets serve.
    pub is_retiring: bool,
}

/// How a chain resumed when no member had kept its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resumption {
    /// The configuration from which on it did.
    pub epoch: ChainEpoch,
    /// A target that may have had more records was missing or dead.
    pub is_missing: bool,
}

/// An interval in which records of a chain may have been lost: with the power, or for good with every node that held
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LostInterval {
    /// The stamp, as a number, up to which nothing is missing.
    pub from: u64,
    /// Every later write has a larger stamp than this.
    pub to: u64,
}

impl LostInterval {
    /// True if the tree at instant `at` may lack records of this interval.
    pub fn touches(&self, at: u64) -> bool {
        self.from < at && at < self.to
    }
}

/// A chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Its number.
    pub id: ChainId,
    /// Number of the configuration in force.
    pub epoch: ChainEpoch,
    /// Changes of it: a decision about it names the one it is based on.
    pub revision: u64,
    /// Its targets: the members from head to tail, the syncing one, the rest.
    pub targets: Vec<ChainTarget>,
    /// Nodes that were removed while online and have not acknowledged it. Until each acknowledges, or its lease has
    /// ended, the remaining members are not sent the configuration in force.
    pub leaving: Vec<NodeId>,
    /// The last time that the chain resumed from a log alone.
    pub resumed: Option<Resumption>,
    /// The intervals in which records of it may have been lost, oldest first.
    pub gaps: Vec<LostInterval>,
    /// Where the chain resumed, perhaps more than once, from a log that was not a full member's: acknowledged records
    /// of this interval may be missing, durable or not, and so may be missing from the present.
    pub behind: Option<LostInterval>,
}

impl Chain {
    /// Records an interval whose writes may be lost. Beyond `GAPS_MAX` the oldest intervals are merged.
    pub(crate) fn add_gap(&mut self, lost: LostInterval) {
        self.gaps.push(lost);
        if self.gaps.len() > GAPS_MAX {
            let first = self.gaps.remove(0);
            self.gaps[0].from = first.from;
        }
    }

    /// Records an interval that was lost with every node that held it, durable or not.
    pub(crate) fn add_stale_interval(&mut self, lost: LostInterval) {
        let (from, to) =
            self.behind.map_or((lost.from, lost.to), |before| (before.from.min(lost.from), before.to.max(lost.to)));
        self.behind = Some(LostInterval { from, to });
        self.add_gap(lost);
    }

    /// The configuration in force.
    pub fn configuration(&self) -> Configuration {
        let of = |role| self.targets.iter().filter(move |target| target.role == role).map(|target| target.node);
        let joining = of(TargetRole::Joining).next();
        Configuration {
            epoch: self.epoch,
            members: of(TargetRole::Serving).chain(joining).collect(),
            syncing: of(TargetRole::Syncing).next(),
            joining: joining.is_some(),
        }
    }

    /// The target on `node`.
    pub fn target(&self, node: NodeId) -> Option<&ChainTarget> {
        self.targets.iter().find(|target| target.node == node)
    }

    /// The full members, head first.
    pub fn serving(&self) -> impl Iterator<Item = &ChainTarget> {
        self.targets.iter().filter(|target| target.role == TargetRole::Serving)
    }

    /// The tail, which commits: the last member.
    pub fn tail(&self) -> Option<&ChainTarget> {
        self.targets.iter().rfind(|target| matches!(target.role, TargetRole::Serving | TargetRole::Joining))
    }

    /// The target that is syncing or joining: one at a time.
    pub fn newcomer(&self) -> Option<&ChainTarget> {
        self.targets.iter().find(|target| matches!(target.role, TargetRole::Syncing | TargetRole::Joining))
    }

    pub(crate) fn target_mut(&mut self, node: NodeId) -> Option<&mut ChainTarget> {
        self.targets.iter_mut().find(|target| target.node == node)
    }

    /// Members first, in their order.
    pub(crate) fn arrange(&mut self) {
        self.targets.sort_by_key(|target| target.role);
    }

    /// Checks what holds between any two decisions.
    pub(crate) fn assert_whole(&self) {
        let count = |role| self.targets.iter().filter(|target| target.role == role).count();
        assert!(count(TargetRole::Serving) > 0, "chain {} keeps a full member", self.id);
        assert!(
            count(TargetRole::Joining) + count(TargetRole::Syncing) <= 1,
            "chain {} takes in one at a time",
            self.id
        );
        assert!(self.targets.is_sorted_by_key(|target| target.role), "members of chain {} come first", self.id);
    }
}

/// Gaps that are kept apart.
const GAPS_MAX: usize = 64;
