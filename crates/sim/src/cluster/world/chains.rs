//! Checks of the chains of one node: the chains it has detached, and the state of the others as sentences.

use super::ClusterWorld;
use crate::violation::{Rule, Verdict, broken};
use frieze_base::{ChainId, NodeId};
use frieze_node::ClusterState;
use frieze_wire::message::ReplicaStatus;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

impl ClusterWorld {
    /// Checks that other nodes have what a node has just detached, by the state from which it decided that.
    pub(super) fn judge_detached(&mut self, node: usize) -> Verdict {
        if !self.nodes[node].may_detach {
            return Ok(());
        }
        let Some(engine) = self.nodes[node].serving().cloned() else { return Ok(()) };
        self.nodes[node].may_detach = self.nodes[node].tend_busy.load(Ordering::Relaxed);
        let detached = engine.chains_given_up();
        let known = std::mem::replace(&mut self.nodes[node].detached, detached.clone());
        let id = self.nodes[node].id;
        for (chain, _) in detached.iter().filter(|chain| !known.contains(chain)) {
            self.counts.detached += 1;
            self.say(|| format!("{id} gives up chain {chain}"));
            let needed = lock(&self.nodes[node].needed).remove(chain);
            if let Some(words) = needed {
                return broken(Rule::Durable, words);
            }
        }
        Ok(())
    }

    /// Into the trace, in words only: how the chains of a node are, when that has changed.
    pub(super) fn trace_chains(&mut self, node: usize) {
        let Some(engine) = self.nodes[node].serving() else { return };
        let leads = if engine.leads() { "leads, " } else { "" };
        let chains = engine.chains().iter().map(chain_words).collect::<Vec<_>>().join(" ");
        let words = format!("   {} {leads}{chains}", self.nodes[node].id);
        if self.nodes[node].last_trace != words {
            self.history().trace.words(words.clone());
            self.nodes[node].last_trace = words;
        }
    }
}

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
