//! Health reports of servers: no server calls a chain whole that lacks a copy, whichever nodes are away.

use frieze_node::{ClusterState, ClusterStatus};

use super::super::plan::CHAINS;
use super::ClusterWorld;
use crate::violation::{Rule, Verdict, broken};

impl ClusterWorld {
    /// Compares every server's report of now with the log's decisions at that server.
    pub(super) fn judge_health(&self) -> Verdict {
        for node in &self.nodes {
            let mut wrong = None;
            if let Some(engine) = node.serving() {
                engine.look_at_health(&mut |state, status| wrong = why_not_whole(state, status));
            }
            if let Some(words) = wrong {
                return broken(Rule::Health, format!("{} {words}", node.id));
            }
        }
        Ok(())
    }

    /// True if the leader calls all of it whole, with as many copies as there are to be.
    pub(super) fn leader_reports_whole(&self) -> bool {
        self.leader().is_some_and(|leader| {
            let mut is_whole = false;
            if let Some(engine) = self.nodes[leader].serving() {
                engine.look_at_health(&mut |_, status| {
                    is_whole = status.whole() == CHAINS as usize && status.copies_wanted == self.plan.copies;
                });
            }
            is_whole
        })
    }
}

/// Counted anew: the members of each chain that is called whole, against the servers that are to have a copy.
fn why_not_whole(state: &ClusterState, status: &ClusterStatus) -> Option<String> {
    if state.version() != status.version {
        // It has decided something in between.
        return None;
    }
    let keeps = state.nodes().filter(|node| !node.is_draining && !node.is_dead).count();
    let wanted = (state.replicas() as usize).min(keeps);
    let lacks = |chain: &&frieze_node::ChainHealth| {
        let is_there = |node| state.is_online(node);
        let known =
            state.chain(chain.chain).map_or(0, |known| known.serving().filter(|target| is_there(target.node)).count());
        status.is_whole(chain) && known < wanted
    };
    let chain = status.chains.iter().find(lacks)?;
    Some(format!("calls chain {} whole, which lacks some of {wanted} copies: {:?}", chain.chain, chain.targets))
}
