//! Checks of all servers together: chains that are whole, equal states, and the end of a run.

use std::collections::BTreeSet;
use std::sync::PoisonError;

use frieze_base::NodeId;
use frieze_hlc::Hlc;
use frieze_wire::message::ReplicaStatus;

use super::super::node::SimNode;
use super::super::plan::CHAINS;
use super::{CALM_US_MAX, ClusterWorld, VOTERS_MAX};
use crate::violation::{Rule, Verdict, broken};

impl ClusterWorld {
    /// Every chain is served by as many nodes as it is to have, and they agree on that.
    pub(super) fn is_whole(&self) -> bool {
        let living = || self.nodes.iter().filter(|node| !node.is_gone);
        let count = living().count();
        // Each of them knows that all of them have the metalog, and that as many vote as may.
        let is_kept = living().all(|node| {
            let Some(status) = node.serving().and_then(|engine| engine.metalog()) else { return false };
            let (votes, learn) = (status.members.voters.len(), status.members.learners.len());
            let has_all = living().all(|other| status.members.contains(other.id));
            votes == count.min(VOTERS_MAX) && votes + learn == count && has_all
        });
        if !is_kept {
            return false;
        }
        // A machine that is lost has none.
        let of = |node: &SimNode| node.serving().map(|engine| engine.planes.chains()).unwrap_or_default();
        let all: Vec<Vec<ReplicaStatus>> = self.nodes.iter().map(of).collect();
        let at = |node: u32, chain: u32| all[self.index_of(NodeId(node))].iter().find(|status| status.chain == chain);
        let is_served = |chain: u32| {
            // A node that is no member any more knows an older configuration, or none.
            let of_chain = all.iter().flatten().filter(|status| status.chain == chain && !status.members.is_empty());
            let Some(newest) = of_chain.max_by_key(|status| status.epoch) else { return false };
            let same = |status: &ReplicaStatus| (status.epoch, &status.members) == (newest.epoch, &newest.members);
            newest.members.len() == count.min(self.plan.copies as usize)
                && !newest.joining
                && newest.syncing == 0
                && newest.members.iter().all(|node| at(*node, chain).is_some_and(same))
        };
        (0..CHAINS).all(is_served)
    }

    /// A node is about to lose what it has not flushed. In chains without another known copy, it is lost.
    pub(super) fn note_lost(&mut self, node: usize) {
        let now_us = self.now_us;
        let lost = self.only_at(node);
        self.history().lost.extend(lost.into_iter().map(|chain| (now_us, chain)));
    }

    /// Chains whose unflushed records are not known to have another copy.
    pub(super) fn only_at(&self, node: usize) -> Vec<u32> {
        let statuses: Vec<Vec<ReplicaStatus>> = self
            .nodes
            .iter()
            .map(|node| node.engine.as_ref().map_or_else(Vec::new, |engine| engine.planes.chains()))
            .collect();
        let is_only = |chain: &u32| {
            let chain = *chain;
            let of = |statuses: &Vec<ReplicaStatus>| statuses.iter().find(|status| status.chain == chain).cloned();
            let known: Vec<(usize, ReplicaStatus)> =
                statuses.iter().enumerate().filter_map(|(index, statuses)| Some((index, of(statuses)?))).collect();
            let newest = known.iter().map(|(_, status)| status.epoch).max().unwrap_or(0);
            let holds = |index: usize, status: &ReplicaStatus| {
                let is_short = self.nodes[index].short_at.get(&chain).is_some_and(|epoch| status.epoch <= *epoch);
                status.epoch == newest && is_whole_member(NodeId(index as u32 + 1), status) && !is_short
            };
            !known.iter().any(|(index, status)| *index != node && holds(*index, status))
        };
        (0..CHAINS).filter(is_only).collect()
    }

    /// True if another node has the durable part of a chain, which it kept through a power loss while it was a full
    /// member: then the chain can continue from there, and nothing durable is missing.
    pub(super) fn has_durable_copy(&self, node: usize, chain: u32) -> bool {
        let newest = self.epochs.get(&chain);
        let others = self.nodes.iter().enumerate().filter(|(index, other)| *index != node && !other.is_gone);
        others.into_iter().any(|(_, other)| newest.is_some() && other.short_at.get(&chain) == newest)
    }

    /// Names that servers declared lost: a gap of every chain.
    fn note_lost_names(&mut self) {
        let mut found: BTreeSet<(Hlc, Hlc)> = BTreeSet::new();
        for node in &self.nodes {
            let Some(engine) = node.serving() else { continue };
            engine.planes.meta.look_at_control(&mut |state| {
                let Some(first) = state.chains().next() else { return };
                let of_all = first.gaps.iter().filter(|gap| state.chains().all(|chain| chain.gaps.contains(gap)));
                found.extend(of_all.map(|gap| (Hlc(gap.from), Hlc(gap.to))));
            });
        }
        self.history().names_lost.extend(found);
    }

    /// Nodes that have executed the same hold the same. Entries that were lost are followed by others in their places.
    pub(super) fn audit(&mut self) -> Verdict {
        self.note_lost_names();
        for node in &self.nodes {
            let Some(engine) = node.serving() else { continue };
            let voters = engine.metalog().map_or(0, |status| status.members.voters.len());
            if voters > VOTERS_MAX {
                return broken(Rule::Whole, format!("{} knows {voters} that vote, of {VOTERS_MAX}", node.id));
            }
            // A state that was compared since the start, with nothing executed since, is unchanged.
            let status = engine.metalog();
            let executed = status.as_ref().map(|status| (node.life, status.applied));
            if executed.is_some() && self.audited.get(&node.id) == executed.as_ref() {
                continue;
            }
            let Ok((index, digest)) = engine.digest() else { continue };
            self.audited.extend(executed.map(|executed| (node.id, executed)));
            let closed = status.map_or(Hlc::ZERO, |status| status.closed);
            let (known, by, known_closed) = *self.digests.entry(index).or_insert((digest, node.id, closed));
            if known != digest {
                let (is_known_lost, is_lost) = {
                    let history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
                    (history.is_lost(known_closed), history.is_lost(closed))
                };
                if is_known_lost {
                    self.digests.insert(index, (digest, node.id, closed));
                }
                if is_known_lost || is_lost {
                    continue;
                }
                return broken(
                    Rule::Tree,
                    format!(
                        "{} and {by} have executed {index} entries, up to {closed} and {known_closed}, and hold \
                         different names",
                        node.id
                    ),
                );
            }
        }
        Ok(())
    }

    /// Faults end; requests are answered before long, and everything becomes whole.
    pub(super) fn calm_down(&mut self) -> Verdict {
        self.say(|| "no more faults".to_owned());
        self.calm = true;
        self.all_clocks();
        self.end_faults();
        self.until(CALM_US_MAX, "every request is answered", ClusterWorld::is_idle)?;
        // A machine with a rotten disk is removed when other machines have its data: that is the last fault, and not
        // part of the calm.
        let is_over = |world: &ClusterWorld| {
            let is_replaced = world.unreplaced == 0 && world.nodes.len() == world.machines;
            is_replaced && world.nodes.iter().all(|node| !node.is_rotten || node.is_gone)
        };
        self.until(CALM_US_MAX, "every chain is whole", |world| is_over(world) && world.is_whole())?;
        self.until(CALM_US_MAX, "the leader says so", ClusterWorld::leader_reports_whole)?;
        self.judge_health()
    }

    /// All servers have executed everything, and have the same state.
    pub(super) fn settle(&mut self) -> Verdict {
        let even = |world: &ClusterWorld| {
            let all: Vec<_> = world.nodes.iter().filter_map(|node| node.serving()?.metalog()).collect();
            let last = all.iter().map(|status| status.last).max();
            world.leader().is_some() && all.iter().all(|status| Some(status.applied) == last)
        };
        for _ in 0..2 {
            self.until(CALM_US_MAX, "everybody has executed everything", even)?;
            self.audit()?;
        }
        for node in &self.nodes {
            let Some(engine) = node.serving() else { continue };
            let checkup = engine.check_up();
            if let Some(wrong) = checkup.wrong.first() {
                return broken(Rule::Whole, format!("{}: {wrong}", node.id));
            }
            if let Some(finding) = checkup.scrub.findings.first() {
                return broken(Rule::Whole, format!("{}: {finding:?}", node.id));
            }
        }
        Ok(())
    }
}

/// True if a node says that it is a member of a chain and no newcomer to it.
pub(super) fn is_whole_member(id: NodeId, status: &ReplicaStatus) -> bool {
    let is_tail = status.members.last() == Some(&id.0);
    status.members.contains(&id.0) && !(status.joining && is_tail)
}
