//! Requests of operators and joining nodes: checked, proposed, and answered when the log has decided them.

use frieze_base::{MonoTime, NodeId};

use super::message::{ControllerEffect, OperatorReply, OperatorRequest};
use super::model::{Controller, DecisionSubject, PendingRequest, Proposal};
use crate::decision::{Decision, NodeStep};
use crate::error::Error;
use crate::message::WallMoment;
use crate::node::NodeState;
use crate::state::ClusterState;

impl Controller {
    pub(super) fn on_request(
        &mut self,
        at: WallMoment,
        state: &ClusterState,
        request: u64,
        ask: OperatorRequest,
    ) -> Result<(), Error> {
        if self.leading.is_none() {
            return Err(Error::NotLeader { leader: self.leader });
        }
        if !state.is_founded() {
            return Err(Error::NotFounded);
        }
        match &ask {
            OperatorRequest::Join { newcomer, cluster, clock } => {
                let (expected, found) = (state.cluster(), cluster.unwrap_or(state.cluster()));
                if expected != found {
                    return Err(Error::WrongCluster { expected, found });
                }
                let id = state.node_of_token(newcomer.token).map_or(NodeId(state.next_node), |node| node.id);
                self.check_clock(id, *clock)?;
            }
            OperatorRequest::Drain { node, fewer } => {
                let replicas = state.replicas();
                let stays = |other: &&crate::ClusterNode| other.id != *node && !other.is_draining && !other.is_dead;
                let left = state.nodes().filter(stays).count() as u32;
                let is_short = left < replicas && state.nodes().count() as u32 >= replicas;
                if left == 0 || is_short && !*fewer {
                    return Err(Error::TooFewNodes { node: *node, left, replicas });
                }
            }
            OperatorRequest::Undrain(_)
            | OperatorRequest::Remove(_)
            | OperatorRequest::DeclareDead { .. }
            | OperatorRequest::AddDevice { .. }
            | OperatorRequest::Balance(_)
            | OperatorRequest::Replicas(_) => {}
        }
        let until = MonoTime(at.mono.0 + self.settings.request_ns);
        let max = self.settings.requests_max;
        let Some(leading) = &mut self.leading else { return Ok(()) };
        if leading.requests.len() >= max {
            return Err(Error::TooMany { what: "requests to change the cluster", max: max as u64 });
        }
        leading.requests.push(PendingRequest { request, ask, until });
        Ok(())
    }

    /// Answers requests that are decided or impossible, and returns the decisions for the rest.
    pub(super) fn decide_requests(
        &mut self,
        now: MonoTime,
        state: &ClusterState,
        out: &mut Vec<ControllerEffect>,
    ) -> Vec<Proposal> {
        let Some(leading) = &mut self.leading else { return Vec::new() };
        let mut wanted = Vec::new();
        leading.requests.retain(|pending| {
            let result = match (answer(state, &pending.ask), propose(state, &pending.ask)) {
                (Some(answer), _) => Ok(answer),
                (None, Err(error)) => Err(error),
                (None, Ok(_)) if now >= pending.until => Err(Error::NotDecided),
                (None, Ok(some)) => {
                    wanted.push(some);
                    return true;
                }
            };
            out.push(ControllerEffect::Answer { request: pending.request, result });
            false
        });
        wanted
    }
}

/// The answer, if the state already satisfies the request.
fn answer(state: &ClusterState, ask: &OperatorRequest) -> Option<OperatorReply> {
    let is_so = match ask {
        OperatorRequest::Join { newcomer, .. } => {
            return state.node_of_token(newcomer.token).map(|node| OperatorReply::Joined(node.id));
        }
        OperatorRequest::Drain { node, .. } => state.node(*node).is_ok_and(|node| node.is_draining),
        OperatorRequest::Undrain(node) => state.node(*node).is_ok_and(|node| !node.is_draining),
        OperatorRequest::Remove(node) => state.node_state(*node) == Some(NodeState::Removed),
        OperatorRequest::DeclareDead { node, .. } => match state.node(*node) {
            Ok(node) => node.is_dead,
            Err(_) => state.node_state(*node) == Some(NodeState::Removed),
        },
        OperatorRequest::AddDevice { node, device } => {
            state.node(*node).is_ok_and(|node| node.info.devices.iter().any(|known| known == device))
        }
        OperatorRequest::Balance(on) => state.is_balancing() == *on,
        OperatorRequest::Replicas(replicas) => state.replicas() == *replicas,
    };
    is_so.then_some(OperatorReply::Decided)
}

/// The decision that satisfies the request. If the log would refuse it, the same error is returned at once.
fn propose(state: &ClusterState, ask: &OperatorRequest) -> Result<Proposal, Error> {
    let (subject, revision, decision) = match ask {
        OperatorRequest::Join { newcomer, .. } => {
            (DecisionSubject::Newcomer(newcomer.token), 0, Decision::Join(newcomer.clone()))
        }
        OperatorRequest::Drain { node, .. } => node_decision(state, *node, NodeStep::Drain)?,
        OperatorRequest::Undrain(node) => node_decision(state, *node, NodeStep::Undrain)?,
        OperatorRequest::Remove(node) => node_decision(state, *node, NodeStep::Remove)?,
        OperatorRequest::DeclareDead { node, with_loss } => {
            node_decision(state, *node, NodeStep::DeclareDead { spares: !with_loss })?
        }
        OperatorRequest::AddDevice { node, device } => {
            node_decision(state, *node, NodeStep::AddDevice(device.clone()))?
        }
        OperatorRequest::Balance(on) => {
            let version = state.version();
            (DecisionSubject::Cluster, version, Decision::Balance { version, on: *on })
        }
        OperatorRequest::Replicas(replicas) => {
            let version = state.version();
            (DecisionSubject::Cluster, version, Decision::Replicas { version, replicas: *replicas })
        }
    };
    state.check(&decision)?;
    Ok((subject, revision, vec![decision]))
}

fn node_decision(
    state: &ClusterState,
    node: NodeId,
    step: NodeStep,
) -> Result<(DecisionSubject, u64, Decision), Error> {
    let revision = state.node(node)?.revision;
    Ok((DecisionSubject::Node(node), revision, Decision::Node { node, revision, step }))
}
