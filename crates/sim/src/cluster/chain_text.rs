//! Sentences about the chains of a node.

use std::sync::{Mutex, MutexGuard, PoisonError};

use frieze_base::{ChainId, NodeId};
use frieze_node::ClusterState;
use frieze_wire::message::ReplicaStatus;

/// Why a node may not delete its records of a chain; `None` if all members serve, with everything, and are as many as
/// the wanted copies on the nodes that can keep one.
pub(super) fn why_needed(state: &ClusterState, chain: ChainId, id: NodeId) -> Option<String> {
    let chain = state.chain(chain)?;
    let can_keep =
        state.nodes().filter(|node| !node.is_draining && !node.is_dead && node.whole_devices().next().is_some());
    let wanted = (state.replicas() as usize).min(can_keep.count());
    let serving = chain.serving().count();
    let needed = chain.target(id).is_some() || serving < chain.targets.len() || serving < wanted;
    needed.then(|| format!("{id} gives up chain {}, of which {:?} have a part", chain.id, chain.targets))
}

/// A lock that is short.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// State of a chain at a node, as a sentence.
pub(super) fn chain_words(chain: &ReplicaStatus) -> String {
    let ReplicaStatus { chain: id, epoch, members, syncing, joining, last, clean, .. } = chain;
    let joining = if *joining { " joining" } else { "" };
    format!("chain {id} epoch {epoch} {members:?}+{syncing}{joining} {clean}/{last} {}", chain.failed)
}
