//! Which node gets a target: spread so that the load of a lost node falls evenly on the rest, over machines and sites,
//! and with as few moves as there can be.
//!
//! The load of a lost node falls on the nodes that share chains with it. So of the nodes with the least load, relative
//! to their capacity, the one is chosen that shares the fewest chains with the online members. Targets move from the
//! node with the most load to the one with the least until no move improves the balance; if all nodes have equal
//! capacity, no other way takes fewer moves.
//!
//! # Source
//! Cidon et al., *Copysets* (ATC'13), on the cost of a lost node by the nodes that share chains with it; the balanced
//! block designs that 3FS solves for ahead of time are approached greedily here, since nodes join one by one.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use frieze_base::{ChainId, NodeId};

use crate::chain::{Chain, TargetRole};
use crate::state::ClusterState;

/// Targets of each node, and the number of chains that each pair of nodes shares. Retiring targets are not counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Loads {
    targets: BTreeMap<NodeId, u64>,
    shared: BTreeMap<(NodeId, NodeId), u64>,
}

/// A target to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) chain: ChainId,
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) device: u32,
}

impl Loads {
    pub(crate) fn of(state: &ClusterState) -> Loads {
        let mut loads = Loads::default();
        for chain in state.chains() {
            let nodes: Vec<NodeId> = staying(chain).collect();
            for (place, node) in nodes.iter().enumerate() {
                loads.add(*node, &nodes[..place]);
            }
        }
        loads
    }

    /// `node` gets a target of a chain that these have.
    pub(crate) fn add(&mut self, node: NodeId, others: &[NodeId]) {
        *self.targets.entry(node).or_default() += 1;
        for other in others {
            *self.shared.entry(pair(node, *other)).or_default() += 1;
        }
    }

    fn targets(&self, node: NodeId) -> u64 {
        self.targets.get(&node).copied().unwrap_or(0)
    }

    fn shared(&self, a: NodeId, b: NodeId) -> u64 {
        self.shared.get(&pair(a, b)).copied().unwrap_or(0)
    }
}

fn pair(a: NodeId, b: NodeId) -> (NodeId, NodeId) {
    (a.min(b), a.max(b))
}

/// The nodes whose targets of the chain stay.
pub(crate) fn staying(chain: &Chain) -> impl Iterator<Item = NodeId> {
    chain.targets.iter().filter(|target| !target.is_retiring).map(|target| target.node)
}

/// The node, and its device, that is to have one more target of the chain, of those `eligible`; `None` if all have one.
pub(crate) fn choose(state: &ClusterState, loads: &Loads, chain: &Chain, eligible: &[NodeId]) -> Option<(NodeId, u32)> {
    let others: Vec<NodeId> = staying(chain).collect();
    let free = eligible.iter().filter(|node| chain.target(**node).is_none());
    let best = free.min_by_key(|node| {
        let pairs: u64 = others.iter().map(|other| 2 * loads.shared(**node, *other) + 1).sum();
        (beside(state, **node, &others), weight(state, loads.targets(**node) + 1, **node), pairs, **node)
    })?;
    Some((*best, device(state, *best)?))
}

/// The next move, one that spreads a chain before one that spreads the load; `None` if all is as it should be.
pub(crate) fn next_move(state: &ClusterState, loads: &Loads, eligible: &[NodeId]) -> Option<Move> {
    spreading_move(state, loads, eligible).or_else(|| best_move(state, loads, eligible))
}

/// The next move that makes the fullest node less full without making another one as full; `None` if there is none.
fn best_move(state: &ClusterState, loads: &Loads, eligible: &[NodeId]) -> Option<Move> {
    let mut nodes: Vec<(u128, NodeId)> =
        eligible.iter().map(|node| (weight(state, loads.targets(*node), *node), *node)).collect();
    nodes.sort();
    for &(_, from) in nodes.iter().rev() {
        let full = weight(state, loads.targets(from), from);
        for &(_, to) in &nodes {
            if weight(state, loads.targets(to) + 1, to) >= full {
                break;
            }
            let fits = state.chains_of(from).filter(|(chain, target)| {
                let is_still = target.role == TargetRole::Serving && !target.is_retiring && chain.leaving.is_empty();
                is_still && chain.target(to).is_none() && chain.targets.iter().all(|target| !target.is_retiring)
            });
            let best = fits
                .map(|(chain, _)| {
                    let others: Vec<NodeId> = staying(chain).filter(|node| *node != from).collect();
                    let shared = |node| others.iter().map(|other| loads.shared(node, *other)).sum::<u64>();
                    let places = (beside(state, to, &others), beside(state, from, &others));
                    // Heads are spread too: other things being equal, a node gives away a chain that it heads.
                    let heads = chain.serving().next().is_some_and(|head| head.node == from);
                    (places, (shared(to) as i64 - shared(from) as i64, Reverse(heads), chain.id))
                })
                .filter(|((to, from), _)| to <= from)
                .min_by_key(|(_, key)| *key);
            if let (Some((_, (_, _, chain))), Some(device)) = (best, device(state, to)) {
                return Some(Move { chain, from, to, device });
            }
        }
    }
    None
}

/// A move of a target that shares a machine or a site with other targets of its chain to a place with fewer of them;
/// `None` if there is none. No move for load balance undoes it.
fn spreading_move(state: &ClusterState, loads: &Loads, eligible: &[NodeId]) -> Option<Move> {
    let is_quiet = |chain: &&Chain| {
        chain.leaving.is_empty()
            && chain.targets.iter().all(|target| target.role == TargetRole::Serving && !target.is_retiring)
    };
    let moves = state.chains().filter(is_quiet).flat_map(|chain| {
        let members: Vec<NodeId> = staying(chain).collect();
        let of = move |from: NodeId| {
            let others: Vec<NodeId> = members.iter().copied().filter(|node| *node != from).collect();
            let crowd = beside(state, from, &others);
            let free = eligible.iter().filter(|to| chain.target(**to).is_none());
            let better = free.map(|to| (beside(state, *to, &others), *to)).filter(|(beside, _)| *beside < crowd);
            let best = better.min_by_key(|(beside, to)| (*beside, weight(state, loads.targets(*to) + 1, *to), *to))?;
            Some((best.0, Reverse(weight(state, loads.targets(from), from)), chain.id, from, best.1))
        };
        let members: Vec<NodeId> = staying(chain).collect();
        members.into_iter().filter_map(of).collect::<Vec<_>>()
    });
    let (_, _, chain, from, to) = moves.min()?;
    Some(Move { chain, from, to, device: device(state, to)? })
}

/// A chain whose head should move to the end of it, while that spreads heads better: writes enter at the head. `given`
/// lists chains whose head has moved already.
pub(crate) fn next_head(state: &ClusterState, given: &[ChainId]) -> Option<(ChainId, NodeId)> {
    let mut heads: BTreeMap<NodeId, u64> = BTreeMap::new();
    let at = |chain: &Chain, place| chain.serving().nth(place).map(|target| target.node);
    for chain in state.chains() {
        // The second member becomes head once the first has moved.
        let place = usize::from(given.contains(&chain.id));
        *heads.entry(at(chain, place)?).or_default() += 1;
    }
    let weigh = |node, more| weight(state, heads.get(&node).copied().unwrap_or(0) + more, node);
    let may = |chain: &&Chain| {
        // Two members serve while the former head syncs behind them.
        let is_whole = chain.serving().filter(|target| state.is_alive(target)).count() > 2;
        is_whole && chain.targets.iter().all(|target| target.role == TargetRole::Serving) && !given.contains(&chain.id)
    };
    let candidates = state.chains().filter(may).filter_map(|chain| {
        let (head, next) = (at(chain, 0)?, at(chain, 1)?);
        (weigh(next, 1) < weigh(head, 0)).then_some((Reverse(weigh(head, 0)), weigh(next, 1), chain.id, head))
    });
    candidates.min().map(|(_, _, chain, head)| (chain, head))
}

/// The full member that is easiest to replace: on a machine or at a site with other targets of the chain, and with the
/// most load.
pub(crate) fn fullest(state: &ClusterState, loads: &Loads, chain: &Chain) -> NodeId {
    let others: Vec<NodeId> = staying(chain).collect();
    let key = |node: &NodeId| (beside(state, *node, &others), weight(state, loads.targets(*node), *node), *node);
    let members = chain.serving().filter(|target| !target.is_retiring).map(|target| target.node);
    members.max_by_key(key).expect("a chain that has too many members has one")
}

/// How many of `others` run on the machine of `node`, and how many at its site.
pub(crate) fn beside(state: &ClusterState, node: NodeId, others: &[NodeId]) -> (usize, usize) {
    let told = |node: &NodeId| {
        let told = state.node(*node).map(|node| (node.info.machine.as_str(), node.info.site.as_str()));
        told.unwrap_or_default()
    };
    let (machine, site) = told(&node);
    let others = || others.iter().filter(|other| **other != node).map(told);
    // A node without a machine name counts as a machine of its own.
    let on_machine = others().filter(|other| !machine.is_empty() && other.0 == machine).count();
    (on_machine, others().filter(|other| other.1 == site).count())
}

/// Targets relative to the capacity of the node.
fn weight(state: &ClusterState, targets: u64, node: NodeId) -> u128 {
    let capacity = state.node(node).map_or(0, |node| node.capacity_bytes());
    (u128::from(targets) << 64) / u128::from(capacity.max(1))
}

/// The device of the node with the least to do.
fn device(state: &ClusterState, node: NodeId) -> Option<u32> {
    let targets = |device| state.chains_of(node).filter(|(_, target)| target.device == device).count() as u128;
    let key = |device: &&crate::node::NodeDevice| {
        (((targets(device.device) + 1) << 64) / u128::from(device.capacity_bytes.max(1)), device.device)
    };
    Some(state.node(node).ok()?.free_devices().min_by_key(key)?.device)
}
