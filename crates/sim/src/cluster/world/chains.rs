//! What is looked at of the chains of one node: what it has given up, and, in words, how the others are.

use super::World;
use crate::violation::{Rule, Verdict, broken};
use frieze_wire::message::ChainStatus;

impl World {
    /// What a node has just given up others have: all who have a part in it serve, with everything, and they are as many as are wanted.
    pub(super) fn judge_what_went(&mut self, node: usize) -> Verdict {
        let Some(engine) = self.nodes[node].serving().cloned() else { return Ok(()) };
        let given_up = engine.chains_given_up();
        let known = std::mem::replace(&mut self.nodes[node].given_up, given_up.clone());
        let id = self.nodes[node].id;
        for chain in given_up.iter().filter(|chain| !known.contains(chain)) {
            self.counts.given_up += 1;
            self.say(|| format!("{id} gives up chain {}", chain.0));
            let mut words = None;
            engine.look_at_control(&mut |state| {
                let Some(chain) = state.chain(chain.0) else { return };
                let there = state.nodes().filter(|node| !node.is_draining && !node.is_dead).count();
                let wanted = (state.replicas() as usize).min(there);
                let serving = chain.serving().count();
                if chain.target(id).is_some() || serving < chain.targets.len() || serving < wanted {
                    words = Some(format!("{id} gives up chain {}, of which {:?} have a part", chain.id, chain.targets));
                }
            });
            if let Some(words) = words {
                return broken(Rule::Durable, words);
            }
        }
        Ok(())
    }

    /// Into the trace, in words only: how the chains of a node are, when that has changed.
    pub(super) fn tell_chains(&mut self, node: usize) {
        let Some(engine) = self.nodes[node].serving() else { return };
        let leads = if engine.leads() { "leads, " } else { "" };
        let chains = engine.chains().iter().map(chain_words).collect::<Vec<_>>().join(" ");
        let words = format!("   {} {leads}{chains}", self.nodes[node].id);
        if self.nodes[node].told != words {
            self.history().trace.words(words.clone());
            self.nodes[node].told = words;
        }
    }
}

/// How a node says that a chain is.
pub(super) fn chain_words(chain: &ChainStatus) -> String {
    let ChainStatus { chain: id, epoch, members, syncing, joining, last, clean, .. } = chain;
    let joining = if *joining { " joining" } else { "" };
    format!("chain {id} epoch {epoch} {members:?}+{syncing}{joining} {clean}/{last} {}", chain.failed)
}
