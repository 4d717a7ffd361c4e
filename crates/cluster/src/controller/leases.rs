//! Leases: which node has one, and its latest end.
//!
//! A node counts its lease from when it *sent* the heartbeat, the leader from when it *received* it, and longer by the
//! largest difference of their clocks' rates: a lease that has ended at the leader has ended at the node. A grant
//! leaves only after a majority has confirmed, later than the heartbeat came, that this node leads. So the next leader
//! need only wait for one lease from the start of its term: no grant of the leader before it rests on a later
//! heartbeat, however long that leader slept.

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::{ChainEpoch, ChainId, MonoTime, NodeId};

use super::message::ControllerEffect;
use super::model::{ChainScope, Controller, DecisionSubject, Leading, NodeWatch, OfflineProposal, Proposal};
use crate::chain::{Chain, TargetRole};
use crate::decision::{ClusterChange, Decision, NodeStep};
use crate::error::Error;
use crate::message::{
    Assignment, ClockOffset, Heartbeat, LeaseGrant, ReplicaHealth, ReplicaReport, TROUBLE_BYTES_MAX, WallMoment,
};
use crate::node::ClusterNode;
use crate::settings::Settings;
use crate::state::ClusterState;

impl Controller {
    /// Handles a heartbeat. Returns the chains with a new report.
    pub(super) fn on_heartbeat(
        &mut self,
        at: WallMoment,
        state: &ClusterState,
        mut heartbeat: Heartbeat,
        out: &mut Vec<ControllerEffect>,
    ) -> Result<ChainScope, Error> {
        let Some(leading) = &mut self.leading else { return Err(Error::NotLeader { leader: self.leader }) };
        if !state.is_founded() {
            return Err(Error::NotFounded);
        }
        let (expected, found) = (state.cluster(), heartbeat.cluster);
        if expected != found {
            return Err(Error::WrongCluster { expected, found });
        }
        let now = at.mono;
        let node = state.node(heartbeat.node)?;
        ClusterState::changes_description(node, &heartbeat.address, &heartbeat.devices)?;
        let ends = leading.ends(&self.settings, now);
        let fresh = || NodeWatch::new(node.incarnation(), ends, now);
        let watched = leading.nodes.entry(node.id).or_insert_with(fresh);
        let newest = watched.incarnation.max(node.incarnation());
        if heartbeat.incarnation < newest {
            return Err(Error::OldProcess { node: node.id, newest, found: heartbeat.incarnation });
        }
        let is_first = heartbeat.incarnation > watched.incarnation || !watched.has_reported();
        if heartbeat.incarnation > watched.incarnation {
            // The former process has ended, and its lease with it; the new one gets time to obtain one.
            *watched = NodeWatch::new(heartbeat.incarnation, ends, now);
        } else if heartbeat.number <= watched.last.0 {
            return Ok(ChainScope::At(BTreeSet::new()));
        }
        watched.last = (heartbeat.number, now);
        if node.is_offline {
            watched.lease_ends = watched.lease_ends.max(ends);
        }
        if is_first || heartbeat.heard > watched.heard.0 {
            watched.heard = (heartbeat.heard, now);
        }
        watched.clock = heartbeat.clock;
        if heartbeat.resigns {
            // It answers nothing since it resigned.
            (watched.resigned, watched.lease_ends, watched.asked) = (true, now, None);
        }
        let cut = heartbeat.trouble.floor_char_boundary(TROUBLE_BYTES_MAX);
        heartbeat.trouble.truncate(cut);
        let reports = std::mem::take(&mut heartbeat.chains).into_iter();
        let reports = reports.filter(|report| state.chain(report.chain).is_some());
        let reports: BTreeMap<ChainId, ReplicaReport> = reports.map(|report| (report.chain, report)).collect();
        let is_news = is_first || heartbeat.resigns || node.is_offline;
        let look = if is_news { ChainScope::All } else { ChainScope::At(changed_reports(&watched.reports, &reports)) };
        watched.reports = reports;
        let incarnation = heartbeat.incarnation;
        watched.last_heartbeat = Some(heartbeat);
        let (id, number) = (node.id, watched.last.0);
        if !node.is_dead {
            watched.tried = None;
        } else if watched.tried.is_none() {
            // Messages that were sent before a machine was lost may still arrive. An online node receives this one and
            // acknowledges it.
            watched.tried = Some(number);
            out.push(ControllerEffect::Grant {
                to: id,
                grant: LeaseGrant { number, incarnation, ..self.fresh(at, state, node) },
            });
        }
        self.check_clocks(id, out).inspect_err(|_| {
            // Without a lease, but with the hour: it finds out by itself that its clock has been put right.
            let fresh = self.fresh(at, state, node);
            out.push(ControllerEffect::Grant { to: id, grant: LeaseGrant { number, ..fresh } });
        })?;
        Ok(look)
    }

    /// Compares clocks with the one in the middle: if this node's own is the odd one, it is not to lead.
    fn check_clocks(&self, node: NodeId, out: &mut Vec<ControllerEffect>) -> Result<(), Error> {
        let Some(leading) = &self.leading else { return Ok(()) };
        let max_us = self.settings.clock_offset_us_max;
        let offset_us = -leading.middle_us(self.me);
        if offset_us.unsigned_abs() > max_us {
            out.push(ControllerEffect::StepAside(Error::ClockOff { node: self.me, offset_us, max_us }));
        }
        self.check_clock(node, leading.nodes.get(&node).and_then(|watched| watched.clock))
    }

    /// Refuses a node whose clock is certainly too far off.
    pub(super) fn check_clock(&self, node: NodeId, clock: Option<ClockOffset>) -> Result<(), Error> {
        let (Some(leading), Some(clock)) = (&self.leading, clock) else { return Ok(()) };
        let max_us = self.settings.clock_offset_us_max;
        let offset_us = clock.offset_us.saturating_sub(leading.middle_us(self.me));
        let is_off = offset_us.unsigned_abs() > max_us.saturating_add(clock.error_us);
        if is_off { Err(Error::ClockOff { node, offset_us, max_us }) } else { Ok(()) }
    }

    /// The step that brings a node back online, if its process has returned or is a new one. A node that was taken
    /// offline stays so while its clock is off: it would get no lease, and would be taken out and synced again for
    /// ever.
    pub(super) fn returning(&self, node: &ClusterNode) -> Option<NodeStep> {
        let watched = self.leading.as_ref()?.nodes.get(&node.id)?;
        let stays_out = node.is_offline && self.check_clock(node.id, watched.clock).is_err();
        returned(node, watched).filter(|_| !stays_out)
    }

    /// Begins to watch nodes that the log knows and that have sent nothing yet.
    pub(super) fn watch_all(&mut self, now: MonoTime, state: &ClusterState) {
        let Some(leading) = &mut self.leading else { return };
        let ends = leading.ends(&self.settings, now);
        for node in state.nodes() {
            leading.nodes.entry(node.id).or_insert_with(|| NodeWatch::new(node.incarnation(), ends, now));
            if node.is_offline {
                leading.offline.entry(node.id).or_insert(now);
            } else {
                leading.offline.remove(&node.id);
            }
        }
        leading.offline.retain(|node, _| state.node(*node).is_ok());
    }

    /// Requests a confirmation of the leadership, if a node waits for a lease.
    pub(super) fn confirm(&mut self, now: MonoTime, state: &ClusterState, out: &mut Vec<ControllerEffect>) {
        let Some(leading) = &mut self.leading else { return };
        if leading.confirming.is_some() {
            return;
        }
        let mut waits = false;
        for (id, watched) in &mut leading.nodes {
            let is_known = state.node(*id).is_ok_and(|node| may_hold(node, watched));
            if is_known && watched.last.0 > watched.answered {
                watched.asked = Some(watched.last);
                waits = true;
            }
        }
        if waits {
            self.tokens += 1;
            leading.confirming = Some((self.tokens, now));
            out.push(ControllerEffect::Confirm { token: self.tokens });
        }
    }

    /// A majority confirms that this node led when it sent the request: nodes whose heartbeats arrived before that get
    /// a lease.
    pub(super) fn on_confirmed(
        &mut self,
        at: WallMoment,
        state: &ClusterState,
        token: u64,
        out: &mut Vec<ControllerEffect>,
    ) {
        let Some(leading) = &mut self.leading else { return };
        if leading.confirming.is_none_or(|(asked, _)| asked != token) {
            return;
        }
        leading.confirming = None;
        let waiting = leading.nodes.iter_mut().filter_map(|(id, watched)| Some((*id, watched.asked.take()?)));
        for (id, (number, received)) in waiting.collect::<Vec<_>>() {
            if let Ok(node) = state.node(id) {
                self.grant(at, state, node, number, received, out);
            }
        }
    }

    fn grant(
        &mut self,
        at: WallMoment,
        state: &ClusterState,
        node: &ClusterNode,
        number: u64,
        received: MonoTime,
        out: &mut Vec<ControllerEffect>,
    ) {
        let is_off = self.check_clocks(node.id, &mut Vec::new()).is_err();
        let Some(leading) = &mut self.leading else { return };
        let Some(watched) = leading.nodes.get_mut(&node.id) else { return };
        // Each heartbeat is examined once: a node that gets no lease sends another one.
        watched.answered = watched.answered.max(number);
        if is_off || !may_hold(node, watched) {
            return;
        }
        // A node that receives nothing would keep its chains waiting for as long as its heartbeats arrive.
        let is_deaf = at.mono.since_ns(watched.heard.1) > self.settings.deaf_ns && watched.heard.0 < number;
        let lease_ns = if is_deaf { 0 } else { self.settings.lease_ns };
        if lease_ns > 0 {
            let ends = MonoTime(received.0 + self.settings.lease_ended_ns());
            watched.lease_ends = watched.lease_ends.max(ends);
        }
        let epoch = |chain| watched.reports.get(&chain).map_or(ChainEpoch(0), |report| report.epoch);
        let chains = state.chains().filter_map(|chain| assignment(state, chain, node.id, epoch(chain.id))).collect();
        let fresh = self.fresh(at, state, node);
        let grant = LeaseGrant { number, lease_ns, chains, ..fresh };
        out.push(ControllerEffect::Grant { to: node.id, grant });
    }

    /// Sends new decisions to the nodes that they concern, without waiting for their heartbeats.
    pub(super) fn on_applied(
        &self,
        at: WallMoment,
        state: &ClusterState,
        changes: &[ClusterChange],
        out: &mut Vec<ControllerEffect>,
    ) {
        let Some(leading) = &self.leading else { return };
        let mut assignments: BTreeMap<NodeId, BTreeMap<ChainId, Assignment>> = BTreeMap::new();
        for change in changes {
            let (ClusterChange::Configured(id, _) | ClusterChange::Chain(id)) = change else { continue };
            let Some(chain) = state.chain(*id) else { continue };
            for target in &chain.targets {
                let Some(watched) = leading.nodes.get(&target.node) else { continue };
                let epoch = watched.reports.get(id).map_or(ChainEpoch(0), |report| report.epoch);
                let assignment = assignment(state, chain, target.node, epoch);
                if let Some(assignment) = assignment.filter(|assignment| assignment.configuration.is_some()) {
                    assignments.entry(target.node).or_default().insert(*id, assignment);
                }
            }
        }
        for (to, chains) in assignments {
            let Ok(node) = state.node(to) else { continue };
            let chains = chains.into_values().collect();
            out.push(ControllerEffect::Grant { to, grant: LeaseGrant { chains, ..self.fresh(at, state, node) } });
        }
    }

    fn fresh(&self, at: WallMoment, state: &ClusterState, node: &ClusterNode) -> LeaseGrant {
        let (leader, wall_us, version) = (self.me, at.wall_us, state.version());
        LeaseGrant { incarnation: node.incarnation(), leader, wall_us, version, ..LeaseGrant::default() }
    }

    /// Decides which nodes are back online, and whose lease has ended.
    pub(super) fn decide_nodes(&mut self, now: MonoTime, state: &ClusterState) -> Vec<Proposal> {
        let mut wanted = Vec::new();
        for node in state.nodes() {
            let returning = self.returning(node);
            let Some(leading) = &mut self.leading else { return Vec::new() };
            let Some(watched) = leading.nodes.get_mut(&node.id) else { continue };
            let step = if let Some(step) = returning {
                step
            } else if !node.is_offline && watched.lease_ends <= now {
                // From now on it gets no lease, until the log has decided whether it is offline.
                watched.condemned = Some(OfflineProposal { revision: node.revision, number: watched.last.0 });
                NodeStep::Offline
            } else if let Some(step) = failed_device(state, node, watched) {
                step
            } else if node.is_dead && state.chains().all(|chain| is_without(chain, node.id)) {
                NodeStep::Remove
            } else {
                continue;
            };
            let decision = Decision::Node { node: node.id, revision: node.revision, step };
            wanted.push((DecisionSubject::Node(node.id), node.revision, vec![decision]));
        }
        wanted
    }
}

impl Leading {
    /// When the leases that another leader may have given have ended.
    fn ends(&self, settings: &Settings, now: MonoTime) -> MonoTime {
        MonoTime(self.since.0.max(now.0) + settings.lease_ended_ns())
    }

    /// The clock in the middle, less this node's own, in microseconds; each is taken for as near as it may be. Of two
    /// in the middle the one nearer to its own.
    fn middle_us(&self, me: NodeId) -> i64 {
        let clocks = self.nodes.iter().filter(|(node, _)| **node != me).filter_map(|(_, watched)| watched.clock);
        let nearest = |ClockOffset { offset_us, error_us }| {
            let error_us = i64::try_from(error_us).unwrap_or(i64::MAX);
            offset_us.signum() * offset_us.saturating_abs().saturating_sub(error_us).max(0)
        };
        let mut offsets: Vec<i64> = clocks.map(nearest).chain([0]).collect();
        offsets.sort_unstable();
        let (low, high) = (offsets[(offsets.len() - 1) / 2], offsets[offsets.len() / 2]);
        if low.unsigned_abs() < high.unsigned_abs() { low } else { high }
    }

    /// True if the node's present process has sent a heartbeat, and has a lease as far as is known here.
    pub(super) fn is_present(&self, now: MonoTime, node: &ClusterNode) -> bool {
        let watched = self.nodes.get(&node.id);
        watched.is_some_and(|watched| may_hold(node, watched) && watched.has_reported() && now < watched.lease_ends)
    }

    /// The report of the node's present process about a chain.
    pub(super) fn report(&self, node: &ClusterNode, chain: ChainId) -> Option<&ReplicaReport> {
        let watched = self.nodes.get(&node.id).filter(|watched| watched.incarnation == node.incarnation())?;
        watched.reports.get(&chain)
    }
}

/// True unless the node is not to have a lease.
fn may_hold(node: &ClusterNode, watched: &NodeWatch) -> bool {
    let is_condemned = watched.condemned.is_some_and(|condemned| condemned.revision == node.revision);
    !node.is_offline && watched.incarnation == node.incarnation() && !is_condemned && !watched.resigned
}

/// The step of a node with a heartbeat that the log does not reflect yet.
fn returned(node: &ClusterNode, watched: &NodeWatch) -> Option<NodeStep> {
    let heartbeat = watched.last_heartbeat.as_ref().filter(|_| !watched.resigned)?;
    // An impossible description was refused when it came.
    let changes_description =
        ClusterState::changes_description(node, &heartbeat.address, &heartbeat.devices).unwrap_or(false);
    let is_same = heartbeat.incarnation == node.incarnation() && !changes_description;
    // A node that was decided to be offline has to send another heartbeat first.
    let has_spoken = watched.condemned.is_none_or(|condemned| watched.last.0 > condemned.number);
    // A node that was declared dead has to have received an answer since.
    let hears = !node.is_dead || watched.tried.is_some_and(|tried| heartbeat.heard >= tried);
    let is_back = node.is_offline && has_spoken;
    let step = || NodeStep::Return {
        incarnation: heartbeat.incarnation,
        address: heartbeat.address.clone(),
        devices: heartbeat.devices.clone(),
    };
    (hears && (!is_same || is_back)).then(step)
}

/// The chains whose reports changed in a way that matters to decisions; the ends of logs are examined periodically.
fn changed_reports(
    before: &BTreeMap<ChainId, ReplicaReport>,
    after: &BTreeMap<ChainId, ReplicaReport>,
) -> BTreeSet<ChainId> {
    let heartbeat = |report: &ReplicaReport| (report.epoch, report.caught_up, report.is_ready, report.health);
    let is_new =
        |(chain, report): &(&ChainId, &ReplicaReport)| before.get(chain).map(heartbeat) != Some(heartbeat(report));
    after.iter().filter(is_new).map(|(chain, _)| *chain).collect()
}

/// A device that the present process reports as full or failed, and that the log does not know as such.
fn failed_device(state: &ClusterState, node: &ClusterNode, watched: &NodeWatch) -> Option<NodeStep> {
    let mut steps = watched.reports.values().filter_map(|report| {
        let device = state.chain(report.chain)?.target(node.id)?.device;
        let (mut whole, mut free) = (node.whole_devices(), node.free_devices());
        match report.health {
            ReplicaHealth::Failed => whole.any(|whole| whole.device == device).then_some(NodeStep::FailDevice(device)),
            ReplicaHealth::Full => free.any(|free| free.device == device).then_some(NodeStep::FillDevice(device)),
            ReplicaHealth::Good | ReplicaHealth::Unreachable(_) => None,
        }
    });
    steps.next()
}

fn is_without(chain: &Chain, node: NodeId) -> bool {
    chain.target(node).is_none() && !chain.leaving.contains(&node)
}

/// The assignment of a chain to a node, which has installed `epoch`.
fn assignment(state: &ClusterState, chain: &Chain, node: NodeId, epoch: ChainEpoch) -> Option<Assignment> {
    let target = chain.target(node);
    let (device, resumed) = (target.map_or(0, |target| target.device), chain.resumed);
    let told = |configuration| Some(Assignment { chain: chain.id, device, configuration, resumed });
    if let Some(target) = target.filter(|target| target.role != TargetRole::Out) {
        // A process that took no role has none, whatever the one before it had.
        if !state.kept_memory(target) {
            return None;
        }
        // Remaining members get the new configuration only after the leaving ones have acknowledged it: without it they
        // could answer nothing wrongly.
        let is_new = epoch < chain.epoch && chain.leaving.is_empty();
        return told(is_new.then(|| chain.configuration()));
    }
    let is_late = chain.leaving.contains(&node) || epoch > ChainEpoch(0);
    if is_late && epoch < chain.epoch { told(Some(chain.configuration())) } else { None }
}
