//! Requests of operators and joining nodes: checked, proposed, and answered when the log has decided them.

use frieze_base::{MonoTime, NodeId};

use super::{Answer, Ask, Effect, Overseer, Subject, Wanted};
use crate::decision::{Decision, NodeStep};
use crate::error::Error;
use crate::message::Moment;
use crate::node::NodeState;
use crate::state::State;

/// A request under way.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) request: u64,
    ask: Ask,
    until: MonoTime,
}

impl Overseer {
    pub(super) fn on_ask(&mut self, at: Moment, state: &State, request: u64, ask: Ask) -> Result<(), Error> {
        if self.leading.is_none() {
            return Err(Error::NotLeader { leader: self.leader });
        }
        if !state.is_founded() {
            return Err(Error::NotFounded);
        }
        match &ask {
            Ask::Join { newcomer, cluster, clock } => {
                let (expected, found) = (state.cluster(), cluster.unwrap_or(state.cluster()));
                if expected != found {
                    return Err(Error::WrongCluster { expected, found });
                }
                let id = state.node_of_token(newcomer.token).map_or(NodeId(state.next_node), |node| node.id);
                self.check_clock(id, *clock)?;
            }
            Ask::Drain { node, fewer } => {
                let replicas = state.replicas();
                let stays = |other: &&crate::Node| other.id != *node && !other.is_draining && !other.is_dead;
                let left = state.nodes().filter(stays).count() as u32;
                let is_short = left < replicas && state.nodes().count() as u32 >= replicas;
                if left == 0 || is_short && !*fewer {
                    return Err(Error::TooFewNodes { node: *node, left, replicas });
                }
            }
            Ask::Undrain(_)
            | Ask::Remove(_)
            | Ask::DeclareDead { .. }
            | Ask::AddDevice { .. }
            | Ask::Balance(_)
            | Ask::Replicas(_) => {}
        }
        let until = MonoTime(at.mono.0 + self.settings.ask_ns);
        let max = self.settings.asks_max;
        let Some(leading) = &mut self.leading else { return Ok(()) };
        if leading.asks.len() >= max {
            return Err(Error::TooMany { what: "requests to change the cluster", max: max as u64 });
        }
        leading.asks.push(Asked { request, ask, until });
        Ok(())
    }

    /// Answers requests that are decided or impossible, and returns the decisions for the rest.
    pub(super) fn decide_asks(&mut self, now: MonoTime, state: &State, out: &mut Vec<Effect>) -> Vec<Wanted> {
        let Some(leading) = &mut self.leading else { return Vec::new() };
        let mut wanted = Vec::new();
        leading.asks.retain(|asked| {
            let result = match (answer(state, &asked.ask), propose(state, &asked.ask)) {
                (Some(answer), _) => Ok(answer),
                (None, Err(error)) => Err(error),
                (None, Ok(_)) if now >= asked.until => Err(Error::NotDecided),
                (None, Ok(some)) => {
                    wanted.push(some);
                    return true;
                }
            };
            out.push(Effect::Answer { request: asked.request, result });
            false
        });
        wanted
    }
}

/// The answer, if the state already satisfies the request.
fn answer(state: &State, ask: &Ask) -> Option<Answer> {
    let is_so = match ask {
        Ask::Join { newcomer, .. } => return state.node_of_token(newcomer.token).map(|node| Answer::Joined(node.id)),
        Ask::Drain { node, .. } => state.node(*node).is_ok_and(|node| node.is_draining),
        Ask::Undrain(node) => state.node(*node).is_ok_and(|node| !node.is_draining),
        Ask::Remove(node) => state.node_state(*node) == Some(NodeState::Removed),
        Ask::DeclareDead { node, .. } => match state.node(*node) {
            Ok(node) => node.is_dead,
            Err(_) => state.node_state(*node) == Some(NodeState::Removed),
        },
        Ask::AddDevice { node, device } => {
            state.node(*node).is_ok_and(|node| node.told.devices.iter().any(|known| known == device))
        }
        Ask::Balance(on) => state.is_balancing() == *on,
        Ask::Replicas(replicas) => state.replicas() == *replicas,
    };
    is_so.then_some(Answer::Decided)
}

/// The decision that satisfies the request. If the log would refuse it, the same error is returned at once.
fn propose(state: &State, ask: &Ask) -> Result<Wanted, Error> {
    let (subject, revision, decision) = match ask {
        Ask::Join { newcomer, .. } => (Subject::Newcomer(newcomer.token), 0, Decision::Join(newcomer.clone())),
        Ask::Drain { node, .. } => about(state, *node, NodeStep::Drain)?,
        Ask::Undrain(node) => about(state, *node, NodeStep::Undrain)?,
        Ask::Remove(node) => about(state, *node, NodeStep::Remove)?,
        Ask::DeclareDead { node, with_loss } => about(state, *node, NodeStep::DeclareDead { spares: !with_loss })?,
        Ask::AddDevice { node, device } => about(state, *node, NodeStep::AddDevice(device.clone()))?,
        Ask::Balance(on) => {
            let version = state.version();
            (Subject::Cluster, version, Decision::Balance { version, on: *on })
        }
        Ask::Replicas(replicas) => {
            let version = state.version();
            (Subject::Cluster, version, Decision::Replicas { version, replicas: *replicas })
        }
    };
    state.check(&decision)?;
    Ok((subject, revision, vec![decision]))
}

fn about(state: &State, node: NodeId, step: NodeStep) -> Result<(Subject, u64, Decision), Error> {
    let revision = state.node(node)?.revision;
    Ok((Subject::Node(node), revision, Decision::Node { node, revision, step }))
}
