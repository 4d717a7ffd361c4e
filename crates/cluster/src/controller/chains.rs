//! Decisions about each chain: offline members leave, returning ones sync, and each chain gets the replicas that are
//! wanted.
//!
//! One step of a chain at a time, the most urgent first. Facts that the log does not know (which target has caught up,
//! which is ready, whose log is the longest) come from reports of the present process under the configuration in force.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use frieze_base::{ChainEpoch, MonoTime, NodeId};

use super::model::{ChainScope, Controller, DecisionSubject, Leading, Proposal, SyncProgress};
use crate::chain::{Chain, ChainTarget, LostInterval, TargetRole};
use crate::decision::{ChainStep, Decision, NodeStep};
use crate::message::{ReplicaHealth, ReplicaReport};
use crate::node::ClusterNode;
use crate::placement::{self, Loads};
use crate::state::ClusterState;

/// Values shared by the steps of all chains.
struct StepPlan<'a> {
    now: MonoTime,
    state: &'a ClusterState,
    /// Nodes that may get targets.
    eligible: Vec<NodeId>,
    /// Replicas that there can be, those on disks that are full at the moment among them.
    wanted: usize,
    /// Those that there can be now: with so many that stay, one that is to go does.
    enough: usize,
    /// Running syncs by the nodes that take part in them.
    syncs: BTreeMap<NodeId, usize>,
    /// Made when it is first needed.
    loads: Option<Loads>,
}

impl Controller {
    /// Decides about the chains that `look` selects.
    pub(super) fn decide_chains(&mut self, now: MonoTime, state: &ClusterState, look: &ChainScope) -> Vec<Proposal> {
        let chains: Vec<&Chain> = match look {
            ChainScope::All => state.chains().collect(),
            ChainScope::At(some) if some.is_empty() => return Vec::new(),
            ChainScope::At(some) => some.iter().filter_map(|chain| state.chain(*chain)).collect(),
        };
        let mut plan = self.plan(now, state);
        let mut wanted = Vec::new();
        for chain in chains {
            self.follow_sync(now, state, chain);
            let steps = self.next_steps(&mut plan, chain);
            let decide = |(place, step)| Decision::Chain { chain: chain.id, revision: chain.revision + place, step };
            let decisions: Vec<Decision> = (0..).zip(steps).map(decide).collect();
            if !decisions.is_empty() {
                wanted.push((DecisionSubject::Chain(chain.id), chain.revision, decisions));
            }
        }
        if state.is_balancing() && *look == ChainScope::All {
            self.balance(&mut plan, &mut wanted);
        }
        wanted
    }

    fn plan<'a>(&self, now: MonoTime, state: &'a ClusterState) -> StepPlan<'a> {
        let (mut eligible, mut keeping): (Vec<NodeId>, usize) = (Vec::new(), 0);
        if let Some(leading) = &self.leading {
            let may = |node: &&ClusterNode| {
                let is_here = leading.offline.get(&node.id).is_none_or(|since| self.is_short(now, *since));
                is_here && !node.is_draining && !node.is_dead && node.whole_devices().next().is_some()
            };
            let (free, full): (Vec<&ClusterNode>, Vec<&ClusterNode>) =
                state.nodes().filter(may).partition(|node| node.free_devices().next().is_some());
            eligible = free.iter().map(|node| node.id).collect();
            keeping = full.len();
            if eligible.is_empty() {
                // If every node drains, no node can take the targets.
                let stays =
                    |node: &&ClusterNode| !node.is_offline && !node.is_dead && node.free_devices().next().is_some();
                eligible = state.nodes().filter(stays).map(|node| node.id).collect();
            }
        }
        // A node whose device is full keeps its targets, and a missing copy counts as wanted.
        let at_most = |nodes: usize| (state.replicas() as usize).min(nodes).max(1);
        let (wanted, enough) = (at_most(eligible.len() + keeping), at_most(eligible.len()));
        let mut syncs = BTreeMap::new();
        for chain in state.chains().filter(|chain| chain.newcomer().is_some()) {
            let busy = chain.newcomer().into_iter().chain(chain.serving().last());
            busy.for_each(|target| *syncs.entry(target.node).or_default() += 1);
        }
        StepPlan { now, state, eligible, wanted, enough, syncs, loads: None }
    }

    pub(super) fn is_short(&self, now: MonoTime, since: MonoTime) -> bool {
        now.since_ns(since) < self.settings.replace_after_ns
    }

    /// The next steps of a chain, to be decided together.
    fn next_steps(&mut self, plan: &mut StepPlan<'_>, chain: &Chain) -> Vec<ChainStep> {
        let (now, state) = (plan.now, plan.state);
        let gone = self.lost_target(state, chain);
        let Some(leading) = &mut self.leading else { return Vec::new() };
        let knows = |node: NodeId| {
            let report = state.node(node).ok().and_then(|node| leading.report(node, chain.id));
            report.is_some_and(|report| report.epoch >= chain.epoch)
        };
        if let Some(node) = chain.leaving.iter().find(|node| knows(**node)) {
            return vec![ChainStep::Left(*node)];
        }
        if let Some(node) = gone {
            // A target that left during its sync may do so again: other waiting targets come first.
            if chain.newcomer().is_some_and(|newcomer| newcomer.node == node) {
                leading.stalled.insert(chain.id, node);
            }
            return vec![ChainStep::TakeOut(node)];
        }
        if !chain.serving().any(|target| state.is_alive(target)) {
            return self.resume(plan, chain);
        }
        leading.stuck.remove(&chain.id);
        if !chain.leaving.is_empty() {
            return Vec::new();
        }
        if let Some(node) = unreachable_member(leading, state, chain) {
            return vec![ChainStep::TakeOut(node)];
        }
        if let Some(newcomer) = chain.newcomer() {
            let step = self.advance_newcomer(now, state, chain, newcomer);
            if let (Some(ChainStep::TakeOut(node)), Some(leading)) = (step, &mut self.leading) {
                leading.stalled.insert(chain.id, node);
            }
            return step.into_iter().collect();
        }
        self.complete(plan, chain)
    }

    /// A target that has a role and whose process has ended.
    fn lost_target(&self, state: &ClusterState, chain: &Chain) -> Option<NodeId> {
        let leading = self.leading.as_ref()?;
        // A node that was only late, and is about to be decided online, has lost nothing.
        let is_back = |target: &ChainTarget| {
            let step = state.node(target.node).ok().and_then(|node| self.returning(node));
            matches!(step, Some(NodeStep::Return { incarnation, .. }) if incarnation == target.incarnation)
        };
        let is_gone = |target: &ChainTarget| !state.is_alive(target) && !is_back(target);
        let mut parts = chain.targets.iter().filter(|target| target.role != TargetRole::Out && is_gone(target));
        // That another member kept its memory is known from its process, not from silence: a silent member may have
        // restarted too, and then the chain resumes from the newest log of all.
        let is_known = |other: &ChainTarget| {
            let watched = leading.nodes.get(&other.node);
            watched.is_some_and(|watched| watched.has_reported() && watched.incarnation == other.incarnation)
        };
        let is_rest = |other: &ChainTarget, gone: &ChainTarget| {
            other.node != gone.node && state.is_alive(other) && is_known(other)
        };
        let target =
            parts.find(|gone| gone.role != TargetRole::Serving || chain.serving().any(|other| is_rest(other, gone)))?;
        Some(target.node)
    }

    /// Lets the syncing target join, and the joining one serve.
    fn advance_newcomer(
        &self,
        now: MonoTime,
        state: &ClusterState,
        chain: &Chain,
        newcomer: &ChainTarget,
    ) -> Option<ChainStep> {
        let leading = self.leading.as_ref()?;
        let report =
            |node| leading.report(state.node(node).ok()?, chain.id).filter(|report| report.epoch == chain.epoch);
        if newcomer.role == TargetRole::Joining {
            return report(newcomer.node)?.is_ready.then_some(ChainStep::Serve(newcomer.node));
        }
        let tail = chain.tail()?;
        if report(tail.node).is_some_and(|report| report.caught_up == Some(newcomer.node)) {
            return Some(ChainStep::Join(newcomer.node));
        }
        let progress = leading.syncs.get(&chain.id)?;
        let is_stuck = now.since_ns(progress.moved) >= self.settings.sync_patience_ns;
        let others = chain.targets.iter().any(|target| target.role == TargetRole::Out && state.is_online(target.node));
        (is_stuck && others).then_some(ChainStep::TakeOut(newcomer.node))
    }

    /// Records how much a syncing target lacks.
    fn follow_sync(&mut self, now: MonoTime, state: &ClusterState, chain: &Chain) {
        let Some(leading) = &mut self.leading else { return };
        let Some(newcomer) = chain.newcomer() else {
            leading.syncs.remove(&chain.id);
            return;
        };
        let report = state.node(newcomer.node).ok().and_then(|node| leading.report(node, chain.id));
        let left_bytes = report.filter(|report| report.epoch == chain.epoch).map(|report| report.left_bytes);
        let fresh = SyncProgress {
            epoch: chain.epoch,
            since: now,
            first_bytes: left_bytes.unwrap_or(0),
            left_bytes: left_bytes.unwrap_or(u64::MAX),
            moved: now,
        };
        let progress = leading.syncs.entry(chain.id).or_insert(fresh);
        // A target learns what it lacks with the first record, and new writes may outpace the sync.
        let has_grown = left_bytes.is_some_and(|left| left > progress.first_bytes);
        if progress.epoch != chain.epoch || progress.left_bytes == u64::MAX || has_grown {
            *progress = SyncProgress { moved: progress.moved, ..fresh };
        } else if let Some(left) = left_bytes.filter(|left| *left < progress.left_bytes) {
            (progress.left_bytes, progress.moved) = (left, now);
        }
    }

    /// Sees to it that a chain that works has as many replicas as are wanted, where they are wanted.
    fn complete(&mut self, plan: &mut StepPlan<'_>, chain: &Chain) -> Vec<ChainStep> {
        let StepPlan { now, state, .. } = *plan;
        let Some(leading) = &self.leading else { return Vec::new() };
        let may_stay = |target: &ChainTarget| {
            let node = state.node(target.node);
            let is_whole = |node: &ClusterNode| node.whole_devices().any(|device| device.device == target.device);
            let drains = |node: &ClusterNode| node.is_draining && !plan.eligible.contains(&node.id);
            node.is_ok_and(|node| !drains(node) && !node.is_dead && is_whole(node))
        };
        // The target to remove is named before its replacement is chosen.
        let goes = chain.targets.iter().find(|target| !target.is_retiring && !may_stay(target));
        if let Some(target) = goes {
            return vec![ChainStep::Retire(target.node)];
        }
        let kept = chain.serving().filter(|target| !target.is_retiring && state.is_alive(target)).count();
        let retiring = chain.targets.iter().find(|target| target.is_retiring && target.role == TargetRole::Serving);
        let out = || chain.targets.iter().filter(|target| target.role == TargetRole::Out);
        if let Some(target) = retiring.filter(|_| kept >= plan.enough) {
            return vec![ChainStep::TakeOut(target.node)];
        }
        if kept > plan.wanted {
            return vec![ChainStep::Retire(plan.fullest(chain))];
        }
        let is_superfluous = |target: &&ChainTarget| {
            let is_dead = state.node(target.node).is_ok_and(|node| node.is_dead);
            is_dead || target.is_retiring && kept >= plan.enough || kept >= state.replicas() as usize
        };
        if let Some(target) = out().find(is_superfluous) {
            return vec![ChainStep::Drop(target.node)];
        }
        let is_free = |node: NodeId| plan.syncs.get(&node).is_none_or(|busy| *busy < self.settings.syncs_per_node_max);
        let tail = chain.tail().map_or(NodeId(0), |tail| tail.node);
        if kept < plan.wanted {
            let waiting = out().filter(|target| !target.is_retiring && !state.is_full(target));
            let present = waiting.filter_map(|target| {
                state.node(target.node).ok().filter(|node| leading.is_present(now, node) && is_free(node.id))
            });
            let has_stalled = |node: &&ClusterNode| leading.stalled.get(&chain.id) == Some(&node.id);
            if let Some(node) = present.min_by_key(has_stalled).filter(|_| is_free(tail)) {
                [tail, node.id].into_iter().for_each(|node| *plan.syncs.entry(node).or_default() += 1);
                return vec![ChainStep::Sync { node: node.id, incarnation: node.incarnation() }];
            }
        }
        let is_coming = |target: &&ChainTarget| {
            let is_here = leading.offline.get(&target.node).is_none_or(|since| self.is_short(now, *since));
            // Another node takes the place of one that is full, if there is another.
            !target.is_retiring && (target.role != TargetRole::Out || is_here && !state.is_full(target))
        };
        if chain.targets.iter().filter(is_coming).count() >= plan.wanted {
            return Vec::new();
        }
        // Members first: a retiring member that may stay after all.
        if let Some(target) = chain.targets.iter().find(|target| target.is_retiring && may_stay(target)) {
            return vec![ChainStep::Keep(target.node)];
        }
        plan.place(chain).into_iter().collect()
    }

    /// No online member kept its memory. The chain waits for members that may have; if there are none, it resumes from
    /// the newest log (protocols §7).
    fn resume(&mut self, plan: &mut StepPlan<'_>, chain: &Chain) -> Vec<ChainStep> {
        let StepPlan { now, state, .. } = *plan;
        let Some(leading) = &mut self.leading else { return Vec::new() };
        let is_dead = |target: &ChainTarget| state.node(target.node).map_or(true, |node| node.is_dead);
        if chain.serving().any(|target| state.kept_memory(target) && !is_dead(target)) {
            leading.stuck.remove(&chain.id);
            return Vec::new();
        }
        let since = *leading.stuck.entry(chain.id).or_insert(now);
        let is_patient = now.since_ns(since) < self.settings.return_patience_ns;
        let serving: Vec<&ChainTarget> = chain.serving().filter(|target| !is_dead(target)).collect();
        let all_dead = serving.is_empty();
        let is_missing = serving.len() < chain.serving().count();
        // If a member is lost for good, a target that was a member until lately may have more records than the
        // remaining members: the loss should be as small as possible.
        let others = || chain.targets.iter().filter(|target| !is_dead(target)).collect();
        let candidates: Vec<&ChainTarget> = if is_missing { others() } else { serving };
        let logs = candidates.iter().filter_map(|target| {
            let node = state.node(target.node).ok().filter(|node| leading.is_present(now, node))?;
            // A node without a report of the chain has no copy of it.
            let report = leading.report(node, chain.id).copied().unwrap_or_default();
            Some(CandidateLog::of(target, &report, node))
        });
        let logs: Vec<_> = logs.collect();
        if candidates.is_empty() {
            // No copy of the chain is left, as an operator has declared: it begins anew, empty.
            return plan.place(chain).into_iter().collect();
        }
        if !logs.iter().any(|log| all_dead || log.was_member) {
            // An offline member that is not lost for good may have every record.
            return Vec::new();
        }
        if logs.len() < candidates.len() && is_patient {
            return Vec::new();
        }
        let is_missing = is_missing || logs.len() < candidates.len();
        let Some(newest) = logs.iter().max_by_key(|log| (log.last, log.was_member, Reverse(log.lost))) else {
            return Vec::new();
        };
        // A member whose machine stayed on has every acknowledged record; if no machine did, what may be missing is
        // missing from every copy. Records written without the log that the chain resumes from are missing, whatever
        // other logs have.
        let kept_all = |log: &CandidateLog<'_>| log.was_member && log.lost.is_none();
        let lost = newest.lost.filter(|_| !newest.was_member || !logs.iter().any(kept_all));
        vec![ChainStep::Resume { node: newest.node.id, incarnation: newest.node.incarnation(), is_missing, lost }]
    }

    /// Moves targets from the fullest nodes to the emptiest, a few at a time.
    fn balance(&mut self, plan: &mut StepPlan<'_>, wanted: &mut Vec<Proposal>) {
        let state = plan.state;
        // A move for balance, not one from a draining node, which may have no destination.
        let moves = |target: &ChainTarget| target.is_retiring && plan.eligible.contains(&target.node);
        let mut moving = state.chains().filter(|chain| chain.targets.iter().any(moves)).count();
        if !wanted.is_empty() && moving == 0 {
            // First come those that lack replicas.
            return;
        }
        let eligible = plan.eligible.clone();
        let mut next = state.clone();
        while moving < self.settings.moves_max {
            let Some(found) = placement::next_move(&next, &Loads::of(&next), &eligible) else { break };
            let Some(chain) = next.chain(found.chain) else { break };
            let (id, revision) = (chain.id, chain.revision);
            let steps = [ChainStep::Place { node: found.to, device: found.device }, ChainStep::Retire(found.from)];
            let decide = |(place, step)| Decision::Chain { chain: id, revision: revision + place, step };
            let decisions: Vec<Decision> = (0..).zip(steps).map(decide).collect();
            decisions.iter().for_each(|decision| drop(next.apply(decision, 0)));
            if wanted.iter().all(|(subject, ..)| *subject != DecisionSubject::Chain(id)) {
                wanted.push((DecisionSubject::Chain(id), revision, decisions));
            }
            moving += 1;
        }
        let is_quiet = |chain: &Chain| chain.leaving.is_empty() && chain.newcomer().is_none();
        if moving > 0 || !wanted.is_empty() || !state.chains().all(is_quiet) {
            return;
        }
        // Then heads give way, while nothing else is under way.
        let mut given = Vec::new();
        while given.len() < self.settings.moves_max
            && let Some((id, head)) = placement::next_head(state, &given)
            && let Some(chain) = state.chain(id)
        {
            let step = ChainStep::TakeOut(head);
            let decision = Decision::Chain { chain: id, revision: chain.revision, step };
            wanted.push((DecisionSubject::Chain(id), chain.revision, vec![decision]));
            given.push(id);
        }
        if wanted.is_empty() {
            let version = state.version();
            wanted.push((DecisionSubject::Cluster, version, vec![Decision::Balance { version, on: false }]));
        }
    }
}

impl StepPlan<'_> {
    /// A new target for the chain, where it does most good.
    fn place(&mut self, chain: &Chain) -> Option<ChainStep> {
        let state = self.state;
        let loads = self.loads.get_or_insert_with(|| Loads::of(state));
        let (node, device) = placement::choose(state, loads, chain, &self.eligible)?;
        let others: Vec<NodeId> = placement::staying(chain).collect();
        loads.add(node, &others);
        Some(ChainStep::Place { node, device })
    }

    /// The full member that can best be spared.
    fn fullest(&mut self, chain: &Chain) -> NodeId {
        let state = self.state;
        let loads = self.loads.get_or_insert_with(|| Loads::of(state));
        placement::fullest(state, loads, chain)
    }
}

/// A log that a chain may resume from.
struct CandidateLog<'a> {
    node: &'a ClusterNode,
    /// (epoch, n) of its last record.
    last: (ChainEpoch, u64),
    /// What it may lack.
    lost: Option<LostInterval>,
    /// Every record went through it to the last.
    was_member: bool,
}

impl<'a> CandidateLog<'a> {
    fn of(target: &ChainTarget, report: &ReplicaReport, node: &'a ClusterNode) -> CandidateLog<'a> {
        // A joining target may not know yet everything that the tail before it committed.
        let was_member = target.role == TargetRole::Serving;
        // If it learned late that it had no role any more, its last records may not belong to the chain.
        let known =
            [Some(report.newest), Some(target.left).filter(|left| *left > 0), report.lost.map(|lost| lost.from)];
        let from = known.into_iter().flatten().min().unwrap_or(0);
        let to = report.lost.map_or(0, |lost| lost.to).max(from + 1);
        let lost = if was_member { report.lost } else { Some(LostInterval { from, to }) };
        CandidateLog { node, last: report.last, lost, was_member }
    }
}

/// A full member that its neighbours do not reach, or whose device has failed, if another one can continue.
fn unreachable_member(leading: &Leading, state: &ClusterState, chain: &Chain) -> Option<NodeId> {
    let health = |target: &ChainTarget| {
        let report = leading.report(state.node(target.node).ok()?, chain.id)?;
        (report.epoch == chain.epoch).then_some(report.health)
    };
    let accused =
        |node| chain.targets.iter().filter(|target| health(target) == Some(ReplicaHealth::Unreachable(node))).count();
    let blame = |(place, target): (usize, &ChainTarget)| {
        let failed = usize::from(matches!(health(target), Some(ReplicaHealth::Failed | ReplicaHealth::Full)));
        (failed * 100 + accused(target.node), place, target.node)
    };
    let members =
        chain.targets.iter().filter(|target| matches!(target.role, TargetRole::Serving | TargetRole::Joining));
    // Of two members that do not reach each other the later one is removed: fewer nodes have to acknowledge it.
    let (blame, _, node) = members.enumerate().map(blame).max()?;
    let mut others = chain.serving().filter(|other| other.node != node);
    (blame > 0 && others.any(|other| state.is_alive(other))).then_some(node)
}
