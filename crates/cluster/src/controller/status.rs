//! Status of the cluster for display: plain data, for `frieze cluster status`, `nodes` and `chains`. Its troubles, as
//! text, are in [`super::trouble`].
//!
//! A node vouches for what it knows: the leader for the nodes whose leases it counts, a follower with a leader for what
//! the log has decided, any other node for itself and its recent contacts.

use std::collections::BTreeMap;

use frieze_base::{ChainEpoch, ChainId, ClusterId, MonoTime, NodeId};

use super::model::{Controller, Leading, NodeWatch};
use crate::chain::{Chain, ChainTarget, LostInterval, Resumption, TargetRole, TargetState};
use crate::message::{ReplicaGarbage, WallMoment};
use crate::node::{ClusterNode, NodeState};
use crate::state::ClusterState;

/// The cluster at a glance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterStatus {
    /// Its identity.
    pub cluster: ClusterId,
    /// The leader, if it is known.
    pub leader: Option<NodeId>,
    /// Of the state.
    pub version: u64,
    /// Of the chain table.
    pub table_version: u64,
    /// Replicas wanted.
    pub replicas: u32,
    /// Copies that every chain is to have ([`ClusterState::copies_wanted`]).
    pub copies_wanted: u32,
    /// While no leader is known: since when, in microseconds since the Unix epoch.
    pub no_leader_since_us: Option<u64>,
    /// Chains are moved until every node has its share.
    pub is_balancing: bool,
    /// The nodes.
    pub nodes: Vec<NodeStatus>,
    /// The chains.
    pub chains: Vec<ChainStatus>,
}

/// A node. Fields that only the leader knows are `None` at other nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    /// As the log knows it.
    pub node: ClusterNode,
    /// In one word.
    pub state: NodeState,
    /// Nanoseconds until its lease ends at the latest.
    pub lease_left_ns: Option<u64>,
    /// Its wall clock less the leader's, in microseconds.
    pub clock_offset_us: Option<i64>,
    /// Chains of which it has a target.
    pub targets: usize,
    /// Those in which it is a full member.
    pub serving: usize,
    /// Those that it heads.
    pub heads: usize,
    /// Targets that it still has to give away, if it is draining.
    pub to_drain: usize,
    /// Its replica garbage.
    pub remains: Option<ReplicaGarbage>,
    /// Number of the newest heartbeat of the process that the log knows.
    pub heartbeat: Option<u64>,
    /// While it is [`NodeState::Unknown`]: when the answering node last had contact with it, in microseconds since the
    /// Unix epoch; `None`: not since its own process began.
    pub last_contact_us: Option<u64>,
    /// Any further trouble, in the node's own words or the leader's.
    pub trouble: Option<String>,
}

/// A node's own contacts with other nodes, whatever the log has decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contacts {
    /// When something last came from each.
    pub last: BTreeMap<NodeId, MonoTime>,
    /// The leader that the metalog knows at this moment; the controller follows it a beat later.
    pub leader: Option<NodeId>,
    /// Without a leader: since when.
    pub no_leader_since: Option<MonoTime>,
}

/// A chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainStatus {
    /// Its number.
    pub chain: ChainId,
    /// Its configuration.
    pub epoch: ChainEpoch,
    /// Head first.
    pub targets: Vec<TargetStatus>,
    /// Why it does not work at the moment.
    pub waits: Option<WaitCause>,
    /// The last time that it resumed from a log alone.
    pub resumed: Option<Resumption>,
    /// Where it resumed from a stale copy: acknowledged records of this interval may be missing.
    pub behind: Option<LostInterval>,
}

/// A target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetStatus {
    /// As the log knows it.
    pub target: ChainTarget,
    /// In one word.
    pub state: TargetState,
    /// Bytes that it lacks, by its last report.
    pub left_bytes: Option<u64>,
    /// Bytes a second that it has received, on average since its sync began.
    pub bytes_per_s: Option<u64>,
    /// Seconds until it has all, at that rate.
    pub left_s: Option<u64>,
}

/// The reason why a chain waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitCause {
    /// These nodes may have records that no other node has: they have to come back, or to be declared dead.
    Memory(Vec<NodeId>),
    /// All of its full members restarted: the nodes that have not reported their logs yet.
    Logs(Vec<NodeId>),
    /// The nodes that were taken out: each has to acknowledge, or its lease to end.
    Leaving(Vec<NodeId>),
}

impl ClusterStatus {
    /// Chains that work and have as many full members as are wanted. A member in an unknown state does not count.
    pub fn whole(&self) -> usize {
        self.chains.iter().filter(|chain| self.is_whole(chain)).count()
    }

    /// True if this chain is one of them.
    pub fn is_whole(&self, chain: &ChainStatus) -> bool {
        self.leader.is_some() && chain.serving() >= self.copies_wanted as usize && chain.waits.is_none()
    }

    /// Copies that are wanted and not there, of all chains.
    pub fn copies_missing(&self) -> u64 {
        let wanted = u64::from(self.copies_wanted);
        self.chains.iter().map(|chain| wanted.saturating_sub(chain.serving() as u64)).sum()
    }

    /// Bytes that targets lack, by their last reports.
    pub fn left_bytes(&self) -> u64 {
        self.chains.iter().flat_map(|chain| &chain.targets).filter_map(|target| target.left_bytes).sum()
    }

    /// Seconds until the last running sync ends; `None` if none runs.
    pub fn left_s(&self) -> Option<u64> {
        self.chains.iter().flat_map(|chain| &chain.targets).filter_map(|target| target.left_s).max()
    }
}

impl ChainStatus {
    /// Full members that are there.
    pub fn serving(&self) -> usize {
        self.targets.iter().filter(|target| target.state == TargetState::Serving).count()
    }
}

impl Controller {
    /// Age up to which a contact counts a node as online, where no leader is known.
    pub fn recently_ns(&self) -> u64 {
        self.settings.lease_ns.max(CONTACT_NS_MIN)
    }

    /// The status of the cluster as it is known here. A follower reports what the log knows; without a leader, what
    /// `contacts` show.
    pub fn status(&self, at: WallMoment, state: &ClusterState, contacts: &Contacts) -> ClusterStatus {
        let since = contacts.no_leader_since.filter(|_| contacts.leader.is_none());
        let view = StatusInputs { controller: self, at, state, contacts };
        ClusterStatus {
            cluster: state.cluster(),
            leader: contacts.leader,
            version: state.version(),
            table_version: state.table_version(),
            replicas: state.replicas(),
            copies_wanted: state.copies_wanted(),
            no_leader_since_us: since.map(|since| view.wall_us(since)),
            is_balancing: state.is_balancing(),
            nodes: state.nodes().map(|node| view.node(node)).collect(),
            chains: state.chains().map(|chain| view.chain(chain)).collect(),
        }
    }
}

/// The inputs of a status.
struct StatusInputs<'a> {
    controller: &'a Controller,
    at: WallMoment,
    state: &'a ClusterState,
    contacts: &'a Contacts,
}

impl StatusInputs<'_> {
    /// The wall clock's reading at `then`.
    fn wall_us(&self, then: MonoTime) -> u64 {
        self.at.wall_us.saturating_sub(self.at.mono.since_ns(then) / 1000)
    }

    /// The node's state, as far as this node can vouch for it.
    fn state_of(&self, node: &ClusterNode) -> NodeState {
        let StatusInputs { controller, at, .. } = *self;
        let is_recent = |last: &MonoTime| at.mono.since_ns(*last) < controller.recently_ns();
        let is_lost = match &controller.leading {
            _ if node.id == controller.me => false,
            // That its lease has ended is not decided yet, and without a majority never is. A new leader waits a whole
            // lease for a node that it has heard nothing of: until then the node may be there, and nothing shows that
            // it is.
            Some(leading) => !leading.is_present(at.mono, node),
            None if self.contacts.leader.is_some() => false,
            None => !self.contacts.last.get(&node.id).is_some_and(is_recent),
        };
        match node.state() {
            NodeState::Up | NodeState::Draining if is_lost => NodeState::Unknown,
            known => known,
        }
    }

    fn node(&self, node: &ClusterNode) -> NodeStatus {
        let StatusInputs { controller, state, .. } = *self;
        let watched = controller.leading.as_ref().and_then(|leading| leading.nodes.get(&node.id));
        let targets = || state.chains_of(node.id);
        let is_head = |chain: &Chain| chain.configuration().members.first() == Some(&node.id);
        let refused = || controller.check_clock(node.id, watched?.clock).err().map(|error| error.to_string());
        let last = self.contacts.last.get(&node.id);
        let state_of = self.state_of(node);
        NodeStatus {
            node: node.clone(),
            state: state_of,
            lease_left_ns: watched
                .filter(|_| !node.is_offline)
                .map(|watched| watched.lease_ends.since_ns(self.at.mono)),
            clock_offset_us: watched.and_then(|watched| Some(watched.clock?.offset_us)),
            targets: targets().count(),
            serving: targets().filter(|(_, target)| target.role == TargetRole::Serving).count(),
            heads: targets().filter(|(chain, _)| is_head(chain)).count(),
            to_drain: targets().filter(|_| node.is_draining).count(),
            remains: watched.and_then(NodeWatch::remains).filter(|_| !node.is_offline),
            heartbeat: watched.and_then(|watched| watched.heartbeat(node)),
            last_contact_us: last.filter(|_| state_of == NodeState::Unknown).map(|last| self.wall_us(*last)),
            trouble: refused().or_else(|| watched.filter(|_| !node.is_offline)?.trouble().map(str::to_owned)),
        }
    }

    fn target_state(&self, target: &ChainTarget) -> TargetState {
        let node = self.state.node(target.node);
        match self.state.target_state(target) {
            TargetState::Offline => TargetState::Offline,
            _ if node.is_ok_and(|node| self.state_of(node) == NodeState::Unknown) => TargetState::Unknown,
            known => known,
        }
    }

    fn chain(&self, chain: &Chain) -> ChainStatus {
        let mut status = of_chain(self.controller.leading.as_ref(), self.at.mono, self.state, chain);
        status.targets.iter_mut().for_each(|target| target.state = self.target_state(&target.target));
        status
    }
}

/// A node sends a message every half second.
const CONTACT_NS_MIN: u64 = 1_500_000_000;

fn of_chain(leading: Option<&Leading>, now: MonoTime, state: &ClusterState, chain: &Chain) -> ChainStatus {
    let told = |target: &ChainTarget| {
        let report = leading?.report(state.node(target.node).ok()?, chain.id)?;
        (report.epoch == chain.epoch && target.role != TargetRole::Serving).then_some(report.left_bytes)
    };
    let of_target = |target: &ChainTarget| {
        let progress = leading.and_then(|leading| leading.syncs.get(&chain.id));
        let progress = progress.filter(|_| matches!(target.role, TargetRole::Syncing | TargetRole::Joining));
        let bytes_per_s = progress.and_then(|progress| {
            let got = u128::from(progress.first_bytes.checked_sub(progress.left_bytes)?);
            let ns = u128::from(now.since_ns(progress.since));
            (ns > 0).then(|| u64::try_from(got * 1_000_000_000 / ns).unwrap_or(u64::MAX))
        });
        let left_bytes = told(target);
        let left_s = bytes_per_s.zip(left_bytes).and_then(|(rate, left)| left.checked_div(rate));
        TargetStatus { target: *target, state: state.target_state(target), left_bytes, bytes_per_s, left_s }
    };
    ChainStatus {
        chain: chain.id,
        epoch: chain.epoch,
        targets: chain.targets.iter().map(of_target).collect(),
        waits: waits(leading, now, state, chain),
        resumed: chain.resumed,
        behind: chain.behind,
    }
}

fn waits(leading: Option<&Leading>, now: MonoTime, state: &ClusterState, chain: &Chain) -> Option<WaitCause> {
    if chain.serving().any(|target| state.is_alive(target)) {
        return (!chain.leaving.is_empty()).then(|| WaitCause::Leaving(chain.leaving.clone()));
    }
    let nodes = |keep: &dyn Fn(&ChainTarget) -> bool| -> Vec<NodeId> {
        chain.serving().filter(|target| keep(target)).map(|target| target.node).collect()
    };
    let memory = nodes(&|target| state.kept_memory(target) && state.node(target.node).is_ok_and(|node| !node.is_dead));
    if !memory.is_empty() {
        return Some(WaitCause::Memory(memory));
    }
    let is_here = |target: &ChainTarget| {
        let node = state.node(target.node).ok();
        node.is_some_and(|node| leading.is_some_and(|leading| leading.is_present(now, node)))
    };
    Some(WaitCause::Logs(nodes(&|target| !is_here(target))))
}
