//! What people are told of the cluster: plain data, for `frieze cluster status`, `nodes` and `chains`.

use frieze_base::{ChainEpoch, ChainId, ClusterId, MonoTime, NodeId};

use super::leases::Watched;
use super::{Leading, Overseer};
use crate::chain::{Chain, Lost, Resumed, Role, Target, TargetState};
use crate::message::Remains;
use crate::node::{Node, NodeState};
use crate::state::State;

/// The cluster at a glance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its identity.
    pub cluster: ClusterId,
    /// Who leads, as far as is known.
    pub leader: Option<NodeId>,
    /// Of the state.
    pub version: u64,
    /// Of the chain table.
    pub table_version: u64,
    /// Replicas asked for.
    pub replicas: u32,
    /// Chains are moved until every node has its share.
    pub is_balancing: bool,
    /// The nodes.
    pub nodes: Vec<NodeStatus>,
    /// The chains.
    pub chains: Vec<ChainStatus>,
}

/// A node. What only the leader knows is `None` elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    /// As the log knows it.
    pub node: Node,
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
    /// What it still has of chains that others have by now.
    pub remains: Option<Remains>,
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
    pub waits: Option<Waits>,
    /// The last time that it went on from a log alone.
    pub resumed: Option<Resumed>,
    /// Where it went on from a copy that was behind: what was acknowledged in here may be missing.
    pub behind: Option<Lost>,
}

/// A target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetStatus {
    /// As the log knows it.
    pub target: Target,
    /// In one word.
    pub state: TargetState,
    /// Bytes that it lacks, as far as it has told.
    pub left_bytes: Option<u64>,
    /// Bytes a second that it has got, on average since it began to be brought up to date.
    pub bytes_per_s: Option<u64>,
    /// Seconds until it has all, at that rate.
    pub left_s: Option<u64>,
}

/// What a chain waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waits {
    /// These may have what nobody else has: they have to come back, or to be declared dead.
    Memory(Vec<NodeId>),
    /// All of its full members restarted: those that have not told yet what their logs hold.
    Logs(Vec<NodeId>),
    /// Who was taken out has to hear of it, or its lease to end.
    Leaving(Vec<NodeId>),
}

impl Status {
    /// Chains that have as many full members as are wanted, or as there are nodes.
    pub fn whole(&self) -> usize {
        let there = |node: &&NodeStatus| node.state == NodeState::Up;
        let wanted = (self.replicas as usize).min(self.nodes.iter().filter(there).count()).max(1);
        let serving = |chain: &&ChainStatus| chain.serving() >= wanted && chain.waits.is_none();
        self.chains.iter().filter(serving).count()
    }

    /// Bytes that targets lack, as far as they have told.
    pub fn left_bytes(&self) -> u64 {
        self.chains.iter().flat_map(|chain| &chain.targets).filter_map(|target| target.left_bytes).sum()
    }

    /// Seconds until the last of those that are brought up to date now is; `None` if none is.
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

impl Overseer {
    /// The cluster as it is known here. At a node that does not lead, what the log knows.
    pub fn status(&self, now: MonoTime, state: &State) -> Status {
        let leading = self.leading.as_ref();
        Status {
            cluster: state.cluster(),
            leader: self.leader,
            version: state.version(),
            table_version: state.table_version(),
            replicas: state.replicas(),
            is_balancing: state.is_balancing(),
            nodes: state.nodes().map(|node| of_node(leading, now, state, node)).collect(),
            chains: state.chains().map(|chain| of_chain(leading, now, state, chain)).collect(),
        }
    }
}

fn of_node(leading: Option<&Leading>, now: MonoTime, state: &State, node: &Node) -> NodeStatus {
    let watched = leading.and_then(|leading| leading.nodes.get(&node.id));
    let targets = || state.chains_of(node.id);
    let is_head = |chain: &Chain| chain.configuration().members.first() == Some(&node.id);
    NodeStatus {
        node: node.clone(),
        state: node.state(),
        lease_left_ns: watched.filter(|_| !node.is_offline).map(|watched| watched.lease_ends.since_ns(now)),
        clock_offset_us: watched.and_then(|watched| Some(watched.clock?.offset_us)),
        targets: targets().count(),
        serving: targets().filter(|(_, target)| target.role == Role::Serving).count(),
        heads: targets().filter(|(chain, _)| is_head(chain)).count(),
        to_drain: targets().filter(|_| node.is_draining).count(),
        remains: watched.and_then(Watched::remains).filter(|_| !node.is_offline),
    }
}

fn of_chain(leading: Option<&Leading>, now: MonoTime, state: &State, chain: &Chain) -> ChainStatus {
    let told = |target: &Target| {
        let report = leading?.report(state.node(target.node).ok()?, chain.id)?;
        (report.epoch == chain.epoch && target.role != Role::Serving).then_some(report.left_bytes)
    };
    let of_target = |target: &Target| {
        let progress = leading.and_then(|leading| leading.syncs.get(&chain.id));
        let progress = progress.filter(|_| matches!(target.role, Role::Syncing | Role::Joining));
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

fn waits(leading: Option<&Leading>, now: MonoTime, state: &State, chain: &Chain) -> Option<Waits> {
    if chain.serving().any(|target| state.is_alive(target)) {
        return (!chain.leaving.is_empty()).then(|| Waits::Leaving(chain.leaving.clone()));
    }
    let nodes = |keep: &dyn Fn(&Target) -> bool| -> Vec<NodeId> {
        chain.serving().filter(|target| keep(target)).map(|target| target.node).collect()
    };
    let memory = nodes(&|target| state.kept_memory(target) && state.node(target.node).is_ok_and(|node| !node.is_dead));
    if !memory.is_empty() {
        return Some(Waits::Memory(memory));
    }
    let is_here = |target: &Target| {
        let node = state.node(target.node).ok();
        node.is_some_and(|node| leading.is_some_and(|leading| leading.is_present(now, node)))
    };
    Some(Waits::Logs(nodes(&|target| !is_here(target))))
}
