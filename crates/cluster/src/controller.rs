//! State that only the leader of the metalog has: which nodes are online, and the decisions that follow.
//!
//! A controller is volatile. It counts leases and stores the nodes' reports; what has to survive becomes a [`Decision`]
//! in the log. A decision that another leader has overtaken has no effect there, so a stale controller does no harm.

mod chains;
mod leases;
mod message;
mod model;
mod operator_requests;
mod status;
mod trouble;

use std::collections::BTreeSet;

use model::{ChainScope, Leading, PendingRequest};

use frieze_base::{MonoTime, NodeId};

use crate::decision::Decision;
use crate::error::Error;
use crate::message::WallMoment;
use crate::settings::Settings;
use crate::state::ClusterState;

pub use message::{ControllerEffect, ControllerInput, OperatorReply, OperatorRequest};
pub use model::Controller;
pub use status::{ChainStatus, ClusterStatus, Contacts, NodeStatus, TargetStatus, WaitCause};
pub use trouble::ClusterTrouble;

impl Controller {
    /// On this node; it does not lead yet.
    pub fn new(me: NodeId, settings: Settings) -> Controller {
        Controller { me, settings, leader: None, leading: None, tokens: 0 }
    }

    /// Advances the controller by one input; `out` receives the driver's tasks, in order. `state` is that of this node,
    /// with every decision executed that the driver has passed in.
    pub fn step(
        &mut self,
        at: WallMoment,
        state: &ClusterState,
        input: ControllerInput,
        out: &mut Vec<ControllerEffect>,
    ) {
        let now = at.mono;
        let mut look = ChainScope::All;
        match input {
            ControllerInput::Tick => {
                self.expire(now, state);
                let is_due = self.leading.as_ref().is_some_and(|leading| now.since_ns(leading.examined) >= LOOK_NS);
                look = if is_due { ChainScope::All } else { ChainScope::At(BTreeSet::new()) };
            }
            ControllerInput::Lead { term } => {
                // Another leader may have led in between without this node noticing: the collected state is stale in
                // any case.
                self.step_down(Some(self.me), out);
                self.leading = Some(Leading { term, since: now, ..Leading::default() });
            }
            ControllerInput::Follow(leader) => self.step_down(leader, out),
            ControllerInput::Heartbeat(heartbeat) => {
                let to = heartbeat.node;
                match self.on_heartbeat(at, state, heartbeat, out) {
                    Ok(chains) => look = chains,
                    Err(error) => out.push(ControllerEffect::Refuse { to, error }),
                }
            }
            ControllerInput::Confirmed { token } => {
                look = ChainScope::At(BTreeSet::new());
                self.on_confirmed(at, state, token, out);
            }
            ControllerInput::Applied(changes) => {
                self.on_applied(at, state, &changes, out);
                look = ChainScope::after(state, &changes);
            }
            ControllerInput::Request { request, ask } => {
                if let Err(error) = self.on_request(at, state, request, ask) {
                    out.push(ControllerEffect::Answer { request, result: Err(error) });
                }
            }
        }
        let Some(term) = self.leading.as_ref().map(|leading| leading.term).filter(|_| state.is_founded()) else {
            return;
        };
        self.watch_all(now, state);
        let decisions = self.decide(now, state, &look, out);
        let max = self.settings.decisions_max.max(1);
        out.extend(decisions.chunks(max).map(|some| ControllerEffect::Propose { term, decisions: some.to_vec() }));
        self.confirm(now, state, out);
    }

    fn step_down(&mut self, leader: Option<NodeId>, out: &mut Vec<ControllerEffect>) {
        self.leader = leader;
        let asks = self.leading.take().into_iter().flat_map(|leading| leading.requests);
        let refused = |pending: PendingRequest| ControllerEffect::Answer {
            request: pending.request,
            result: Err(Error::NotLeader { leader }),
        };
        out.extend(asks.map(refused));
    }

    /// True if this node leads, as far as it knows.
    pub fn leads(&self) -> bool {
        self.leading.is_some()
    }

    /// The nodes that have been offline for so long that other nodes replace them. Empty if this node does not lead.
    pub fn replaceable(&self, now: MonoTime) -> Vec<NodeId> {
        let offline = self.leading.iter().flat_map(|leading| &leading.offline);
        offline.filter(|(_, since)| !self.is_short(now, **since)).map(|(node, _)| *node).collect()
    }

    /// Finds the next decisions.
    fn decide(
        &mut self,
        now: MonoTime,
        state: &ClusterState,
        look: &ChainScope,
        out: &mut Vec<ControllerEffect>,
    ) -> Vec<Decision> {
        let mut wanted = self.decide_nodes(now, state);
        if *look == ChainScope::All {
            wanted.extend(self.decide_requests(now, state, out));
        }
        wanted.extend(self.decide_chains(now, state, look));
        let Some(leading) = &mut self.leading else { return Vec::new() };
        if *look == ChainScope::All {
            leading.examined = now;
        }
        let again = self.settings.again_ns;
        let mut decisions = Vec::new();
        for (subject, revision, some) in wanted {
            let is_proposed = leading
                .proposed
                .get(&subject)
                .is_some_and(|(before, when)| *before == revision && now.since_ns(*when) < again);
            if !is_proposed {
                leading.proposed.insert(subject, (revision, now));
                decisions.extend(some);
            }
        }
        decisions
    }

    /// Drops state that is long out of date.
    fn expire(&mut self, now: MonoTime, state: &ClusterState) {
        let again = self.settings.again_ns;
        let Some(leading) = &mut self.leading else { return };
        leading.proposed.retain(|_, (_, when)| now.since_ns(*when) < again);
        leading.stuck.retain(|chain, _| state.chain(*chain).is_some());
        leading.nodes.retain(|node, _| state.node(*node).is_ok());
        leading.confirming = leading.confirming.filter(|(_, when)| now.since_ns(*when) < again);
    }
}

/// Interval between two examinations of all chains while no report changes them: time alone changes little.
const LOOK_NS: u64 = 200_000_000;
