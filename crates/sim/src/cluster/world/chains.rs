//! Checks of the chains of one node: the chains it has detached, and the state of the others as sentences.

use std::sync::atomic::Ordering;

use super::super::chain_text::{chain_words, lock};
use super::ClusterWorld;
use crate::violation::{Rule, Verdict, broken};

impl ClusterWorld {
    /// Checks that other nodes have what a node has just detached, by the state from which it decided that.
    pub(super) fn judge_detached(&mut self, node: usize) -> Verdict {
        if !self.nodes[node].may_detach {
            return Ok(());
        }
        let Some(engine) = self.nodes[node].serving().cloned() else { return Ok(()) };
        self.nodes[node].may_detach = self.nodes[node].tend_busy.load(Ordering::Relaxed);
        let detached = engine.service.upkeep.chains_given_up();
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
        let chains = engine.planes.chains().iter().map(chain_words).collect::<Vec<_>>().join(" ");
        let words = format!("   {} {leads}{chains}", self.nodes[node].id);
        if self.nodes[node].last_trace != words {
            self.history().trace.words(words.clone());
            self.nodes[node].last_trace = words;
        }
    }
}
