//! A chain as the log has decided it: who has a target of it, which part each one plays, and the configuration that follows.

use frieze_base::{ChainEpoch, ChainId, NodeId};

/// The members of a chain: what `chain` calls by the same name. Cores do not know each other, so this is a counterpart, and the
/// driver converts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// Its number. Members of an older one are fenced.
    pub epoch: ChainEpoch,
    /// Head first, tail last.
    pub members: Vec<NodeId>,
    /// Who is brought up to date behind the tail.
    pub syncing: Option<NodeId>,
    /// The tail is new: it answers no read of now and cannot be left alone with the chain yet.
    pub joining: bool,
}

impl Configuration {
    /// True if `node` has any part in it.
    pub fn names(&self, node: NodeId) -> bool {
        self.members.contains(&node) || self.syncing == Some(node)
    }

    /// True if `node` may answer reads of now under it.
    pub fn may_answer(&self, node: NodeId) -> bool {
        let full = self.members.len() - usize::from(self.joining);
        self.members[..full].contains(&node)
    }
}

/// The part that a target plays in its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// A full member.
    Serving,
    /// The new tail: needed for writes, answers nothing yet.
    Joining,
    /// Brought up to date behind the tail.
    Syncing,
    /// None.
    Out,
}

/// What people are told about a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TargetState {
    /// A full member.
    Serving,
    /// The new tail.
    Joining,
    /// Brought up to date behind the tail.
    Syncing,
    /// Its node is there; it is to be brought up to date.
    Waiting,
    /// Its node is there, and its device takes no more.
    Full,
    /// Its node is not there.
    Offline,
    /// Nobody leads, and the server that answers has not heard from its node lately.
    Unknown,
}

/// A replica of a chain on a device of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The node.
    pub node: NodeId,
    /// Its device.
    pub device: u32,
    /// Its part.
    pub role: Role,
    /// The process that took this part. Another one has lost what was in memory only.
    pub incarnation: u64,
    /// Without having been a full member since: the stamp, as a number, of the decision that took its last part away. What the chain
    /// has that its log lacks is newer than its last record or than this. 0: it has none taken away.
    pub left: u64,
    /// It goes once enough others serve.
    pub is_retiring: bool,
}

/// How a chain went on when nobody had kept its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resumed {
    /// The configuration from which on it did.
    pub epoch: ChainEpoch,
    /// Somebody who may have had more was missing, or dead.
    pub is_missing: bool,
}

/// An interval in which records of a chain may have been lost, with the power or for good with all who held them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lost {
    /// The stamp, as a number, up to which nothing is missing.
    pub from: u64,
    /// Whatever was stamped since has a larger one than this.
    pub to: u64,
}

impl Lost {
    /// True if something stamped up to `at` may be missing of what was stamped after all that is there.
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
    /// Its targets: the members from head to tail, who is syncing, the rest.
    pub targets: Vec<Target>,
    /// Who was taken out alive, and is not known to know it. Until it does, or its lease has ended, nobody who stays is told of
    /// the configuration in force.
    pub leaving: Vec<NodeId>,
    /// The last time that it had to go on from a log alone.
    pub resumed: Option<Resumed>,
    /// The intervals in which records of it may have been lost, oldest first.
    pub gaps: Vec<Lost>,
    /// Where it went on from a log outside of it, perhaps more than once: what was acknowledged in here may be missing, whatever was
    /// durable, and so from what is there now.
    pub behind: Option<Lost>,
}

impl Chain {
    /// Notes that it went on without what may have been stamped there. Of very many the oldest become one.
    pub(crate) fn lose(&mut self, lost: Lost) {
        self.gaps.push(lost);
        if self.gaps.len() > GAPS_MAX {
            let first = self.gaps.remove(0);
            self.gaps[0].from = first.from;
        }
    }

    /// The same of what went with everybody who had it, durable or not.
    pub(crate) fn fall_behind(&mut self, lost: Lost) {
        let (from, to) =
            self.behind.map_or((lost.from, lost.to), |before| (before.from.min(lost.from), before.to.max(lost.to)));
        self.behind = Some(Lost { from, to });
        self.lose(lost);
    }

    /// The configuration in force.
    pub fn configuration(&self) -> Configuration {
        let of = |role| self.targets.iter().filter(move |target| target.role == role).map(|target| target.node);
        let joining = of(Role::Joining).next();
        Configuration {
            epoch: self.epoch,
            members: of(Role::Serving).chain(joining).collect(),
            syncing: of(Role::Syncing).next(),
            joining: joining.is_some(),
        }
    }

    /// The target on `node`.
    pub fn target(&self, node: NodeId) -> Option<&Target> {
        self.targets.iter().find(|target| target.node == node)
    }

    /// The full members, head first.
    pub fn serving(&self) -> impl Iterator<Item = &Target> {
        self.targets.iter().filter(|target| target.role == Role::Serving)
    }

    /// Who commits: the last of those that are members.
    pub fn tail(&self) -> Option<&Target> {
        self.targets.iter().rfind(|target| matches!(target.role, Role::Serving | Role::Joining))
    }

    /// The target that is syncing or joining: one at a time.
    pub fn newcomer(&self) -> Option<&Target> {
        self.targets.iter().find(|target| matches!(target.role, Role::Syncing | Role::Joining))
    }

    pub(crate) fn target_mut(&mut self, node: NodeId) -> Option<&mut Target> {
        self.targets.iter_mut().find(|target| target.node == node)
    }

    /// Members first, in their order.
    pub(crate) fn arrange(&mut self) {
        self.targets.sort_by_key(|target| target.role);
    }

    /// What holds between any two decisions.
    pub(crate) fn assert_whole(&self) {
        let count = |role| self.targets.iter().filter(|target| target.role == role).count();
        assert!(count(Role::Serving) > 0, "chain {} keeps a full member", self.id);
        assert!(count(Role::Joining) + count(Role::Syncing) <= 1, "chain {} takes in one at a time", self.id);
        assert!(self.targets.is_sorted_by_key(|target| target.role), "members of chain {} come first", self.id);
    }
}

/// Gaps that are kept apart.
const GAPS_MAX: usize = 64;
