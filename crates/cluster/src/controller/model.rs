//! Data of the controller: nodes under watch, requests, proposals and syncs since this node leads.

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::{ChainEpoch, ChainId, MonoTime, NodeId};

use super::message::OperatorRequest;
use crate::decision::{ClusterChange, Decision};
use crate::message::{ClockOffset, Heartbeat, ReplicaGarbage, ReplicaReport};
use crate::node::ClusterNode;
use crate::settings::Settings;
use crate::state::ClusterState;

/// The volatile half of the control plane.
#[derive(Debug)]
pub struct Controller {
    pub(super) me: NodeId,
    pub(super) settings: Settings,
    /// The leader, if it is known here.
    pub(super) leader: Option<NodeId>,
    pub(super) leading: Option<Leading>,
    pub(super) tokens: u64,
}

/// State since this node became the leader.
#[derive(Debug, Default)]
pub(super) struct Leading {
    pub(super) term: u64,
    pub(super) since: MonoTime,
    /// When all chains were last examined.
    pub(super) examined: MonoTime,
    pub(super) nodes: BTreeMap<NodeId, NodeWatch>,
    /// The question about leadership that is under way.
    pub(super) confirming: Option<(u64, MonoTime)>,
    /// Based on which revision something was proposed, and when.
    pub(super) proposed: BTreeMap<DecisionSubject, (u64, MonoTime)>,
    pub(super) requests: Vec<PendingRequest>,
    /// Chains without a remaining member that may have kept its memory, and since when.
    pub(super) stuck: BTreeMap<ChainId, MonoTime>,
    /// Progress of the running syncs.
    pub(super) syncs: BTreeMap<ChainId, SyncProgress>,
    /// Targets whose sync made no progress and that make room for another one.
    pub(super) stalled: BTreeMap<ChainId, NodeId>,
    /// Since when nodes are known to be offline.
    pub(super) offline: BTreeMap<NodeId, MonoTime>,
}

/// The object of a decision: one decision about each is proposed at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DecisionSubject {
    Node(NodeId),
    Chain(ChainId),
    Cluster,
    Newcomer(u128),
}

/// The chains to examine for new decisions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ChainScope {
    All,
    At(BTreeSet<ChainId>),
}

impl ChainScope {
    /// The chains to examine after these changes: if a sync has ended, another one may begin.
    pub(super) fn after(state: &ClusterState, changes: &[ClusterChange]) -> ChainScope {
        let changed = changes.iter().map(|change| match change {
            ClusterChange::Chain(chain) => Some(*chain),
            ClusterChange::Configured(id, _) => {
                state.chain(*id).filter(|chain| chain.newcomer().is_some()).map(|_| *id)
            }
            ClusterChange::NoEffect(_) | ClusterChange::Recovered(_) => None,
            ClusterChange::Founded
            | ClusterChange::Joined(_)
            | ClusterChange::Node(_)
            | ClusterChange::Removed(_)
            | ClusterChange::NamesLost(_)
            | ClusterChange::Wanted => None,
        });
        changed.collect::<Option<_>>().map_or(ChainScope::All, ChainScope::At)
    }
}

/// A subject, the revision of it, and the decisions about it, which are proposed together.
pub(super) type Proposal = (DecisionSubject, u64, Vec<Decision>);

/// Progress of a sync.
#[derive(Clone, Copy, Debug)]
pub(super) struct SyncProgress {
    /// Under this configuration.
    pub(super) epoch: ChainEpoch,
    /// Since when.
    pub(super) since: MonoTime,
    /// Bytes that it lacked then.
    pub(super) first_bytes: u64,
    /// The least that it has lacked since, and when it first lacked so little.
    pub(super) left_bytes: u64,
    pub(super) moved: MonoTime,
}

/// What the leader knows of a node.
#[derive(Debug)]
pub(super) struct NodeWatch {
    pub(super) incarnation: u64,
    /// The newest heartbeat, and when it came.
    pub(super) last: (u64, MonoTime),
    /// One that waits for leadership to be confirmed.
    pub(super) asked: Option<(u64, MonoTime)>,
    /// The newest that was answered.
    pub(super) answered: u64,
    /// By then any lease that it may have has certainly ended.
    pub(super) lease_ends: MonoTime,
    /// The newest answer that the node has acknowledged, and since when the node is known to receive answers.
    pub(super) heard: (u64, MonoTime),
    /// It stops, or is proposed to be offline at this revision: no lease while that may still be decided.
    pub(super) resigned: bool,
    pub(super) condemned: Option<OfflineProposal>,
    /// Of one that was declared dead: the first heartbeat that came since, which was answered without a lease.
    pub(super) tried: Option<u64>,
    /// Its wall clock, as it has compared it with this node's.
    pub(super) clock: Option<ClockOffset>,
    /// Its last heartbeat, apart from the chains.
    pub(super) last_heartbeat: Option<Heartbeat>,
    pub(super) reports: BTreeMap<ChainId, ReplicaReport>,
}

/// A node was proposed to be offline.
#[derive(Clone, Copy, Debug)]
pub(super) struct OfflineProposal {
    /// Based on this revision of it: with another one the decision has been made, or has no effect any more.
    pub(super) revision: u64,
    /// Its newest heartbeat then. A later one means that the node is back.
    pub(super) number: u64,
}

impl NodeWatch {
    /// The node may have a lease until then, granted by the former leader.
    pub(super) fn new(incarnation: u64, lease_ends: MonoTime, now: MonoTime) -> NodeWatch {
        NodeWatch {
            incarnation,
            last: (0, now),
            asked: None,
            answered: 0,
            lease_ends,
            heard: (0, now),
            resigned: false,
            condemned: None,
            tried: None,
            clock: None,
            last_heartbeat: None,
            reports: BTreeMap::new(),
        }
    }

    /// Its own report of trouble.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.last_heartbeat.as_ref().map(|heartbeat| heartbeat.trouble.as_str()).filter(|trouble| !trouble.is_empty())
    }

    /// The newest heartbeat, if it is of the process that the log knows.
    pub(super) fn heartbeat(&self, node: &ClusterNode) -> Option<u64> {
        (self.has_reported() && self.incarnation == node.incarnation()).then_some(self.last.0)
    }

    /// Its report of replica garbage.
    pub(super) fn remains(&self) -> Option<ReplicaGarbage> {
        self.last_heartbeat.as_ref().map(|heartbeat| heartbeat.remains)
    }

    /// A heartbeat of this incarnation has arrived.
    pub(super) fn has_reported(&self) -> bool {
        self.last_heartbeat.is_some()
    }
}

/// A request under way.
#[derive(Debug)]
pub(super) struct PendingRequest {
    pub(super) request: u64,
    pub(super) ask: OperatorRequest,
    pub(super) until: MonoTime,
}
