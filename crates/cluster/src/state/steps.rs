//! Decisions about chains. The rules that protect a chain's records are checked here, whichever node proposed the step:
//! - a full member goes only while another is there that kept its memory, so a tail that is joining is never alone;
//! - one target at a time syncs, and begins again when the member that it learns from leaves;
//! - a node that is taken out alive is *leaving* until it acknowledges;
//! - a chain resumes from a log alone only when every full member has restarted or was declared dead by an operator.
//!
//! Facts that only the leader can know (leases, which target has caught up, whose log is the longest) belong to
//! [`crate::Controller`].

use frieze_base::{ChainEpoch, ChainId, NodeId};
use frieze_hlc::Hlc;

use super::{ClusterState, TARGETS_MAX, check_revision};
use crate::chain::{Chain, ChainTarget, LostInterval, Resumption, TargetRole};
use crate::decision::{ChainStep, ClusterChange};
use crate::error::Error;
use crate::settings::CLOCK_OFFSET_US_MAX;

impl ClusterState {
    pub(super) fn change_chain(
        &mut self,
        id: ChainId,
        revision: u64,
        step: ChainStep,
        stamp: u64,
    ) -> Result<Vec<ClusterChange>, Error> {
        let node = step.node();
        let chain = self.chains.get(&id).ok_or(Error::DoesNotFit { chain: id, node, why: "there is no such chain" })?;
        check_revision("the chain", revision, chain.revision)?;
        let mut next = chain.clone();
        self.check_step(chain, step)?;
        match step {
            ChainStep::Place { node, device } => {
                next.targets.push(ChainTarget {
                    node,
                    device,
                    role: TargetRole::Out,
                    incarnation: 0,
                    left: 0,
                    is_retiring: false,
                });
            }
            ChainStep::Retire(_) => change(&mut next, node).is_retiring = true,
            ChainStep::Keep(_) => change(&mut next, node).is_retiring = false,
            ChainStep::Sync { incarnation, .. } => {
                let target = change(&mut next, node);
                (target.role, target.incarnation) = (TargetRole::Syncing, incarnation);
            }
            ChainStep::Join(_) => change(&mut next, node).role = TargetRole::Joining,
            ChainStep::Serve(_) => {
                let target = change(&mut next, node);
                (target.role, target.left) = (TargetRole::Serving, 0);
            }
            ChainStep::TakeOut(_) => self.take_out(&mut next, node, stamp),
            ChainStep::Left(_) => next.leaving.retain(|leaving| *leaving != node),
            ChainStep::Drop(_) => next.targets.retain(|target| target.node != node),
            ChainStep::Resume { incarnation, is_missing, lost, .. } => {
                let was_member = change(&mut next, node).role == TargetRole::Serving;
                match lost {
                    Some(lost) if was_member => next.add_gap(lost),
                    None if was_member => {}
                    _ => next.add_stale_interval(lost_until(lost, stamp)),
                }
                next.targets.retain(|target| target.node == node || !self.is_dead(target.node));
                next.targets.iter_mut().for_each(|target| leave(target, stamp));
                let target = change(&mut next, node);
                (target.role, target.incarnation, target.left) = (TargetRole::Serving, incarnation, 0);
                next.resumed = Some(Resumption { epoch: ChainEpoch(next.epoch.0 + 1), is_missing });
            }
        }
        next.arrange();
        next.revision += 1;
        let is_configured = !matches!(
            step,
            ChainStep::Place { .. }
                | ChainStep::Retire(_)
                | ChainStep::Keep(_)
                | ChainStep::Left(_)
                | ChainStep::Drop(_)
        );
        next.epoch.0 += u64::from(is_configured);
        next.assert_whole();
        let epoch = next.epoch;
        self.is_behind |= next.behind.is_some();
        self.chains.insert(id, next);
        Ok(vec![if is_configured { ClusterChange::Configured(id, epoch) } else { ClusterChange::Chain(id) }])
    }

    /// Whether the step may be done in this state.
    fn check_step(&self, chain: &Chain, step: ChainStep) -> Result<(), Error> {
        let node = step.node();
        let require = |holds: bool, why| {
            if holds { Ok(()) } else { Err(Error::DoesNotFit { chain: chain.id, node, why }) }
        };
        let target = chain.target(node);
        let role = target.map(|target| target.role);
        let is_settled = chain.leaving.is_empty();
        match step {
            ChainStep::Place { device, .. } => {
                let node = self.node(node)?;
                require(target.is_none(), "it has a target already")?;
                require(chain.targets.len() < TARGETS_MAX, "the chain has too many targets")?;
                require(
                    node.free_devices().any(|known| known.device == device),
                    "it has no such device that takes more",
                )
            }
            ChainStep::Retire(_) | ChainStep::Keep(_) => require(target.is_some(), "it has no target"),
            ChainStep::Sync { incarnation, .. } => {
                let process = self.node(node)?.incarnation();
                require(role == Some(TargetRole::Out), "it has a part already, or no target")?;
                require(self.is_online(node) && process == incarnation, "it is not there, or has restarted")?;
                require(chain.newcomer().is_none(), "another one is being taken in")?;
                require(chain.serving().any(|member| self.is_alive(member)), "no member is there to learn from")?;
                require(is_settled, "a member is leaving")
            }
            ChainStep::Join(_) => {
                require(role == Some(TargetRole::Syncing), "it is not syncing")?;
                require(target.is_some_and(|target| self.is_alive(target)), "it is not there, or has restarted")?;
                require(is_settled, "a member is leaving")
            }
            ChainStep::Serve(_) => {
                require(role == Some(TargetRole::Joining), "it is not joining")?;
                require(target.is_some_and(|target| self.is_alive(target)), "it is not there, or has restarted")
            }
            ChainStep::TakeOut(_) => {
                let target = target.ok_or(Error::DoesNotFit { chain: chain.id, node, why: "it has no target" })?;
                require(target.role != TargetRole::Out, "it has no part")?;
                require(is_settled || !self.is_alive(target), "a member is leaving")?;
                let mut others = chain.serving().filter(|member| member.node != node);
                if target.role == TargetRole::Serving && !others.any(|member| self.is_alive(member)) {
                    return Err(Error::LastMember { chain: chain.id, node });
                }
                Ok(())
            }
            ChainStep::Left(_) => require(chain.leaving.contains(&node), "it is not leaving"),
            ChainStep::Drop(_) => require(role == Some(TargetRole::Out), "it has a part, or no target"),
            ChainStep::Resume { incarnation, .. } => {
                let process = self.node(node)?.incarnation();
                require(self.is_online(node) && process == incarnation, "it is not there, or has restarted")?;
                let has_ended = |member: &ChainTarget| !self.kept_memory(member) || self.is_dead(member.node);
                require(chain.serving().all(has_ended), "a full member may have kept its memory")?;
                // If a full member is lost for good, a former member may have more records than the remaining ones.
                let is_missing = chain.serving().any(|member| self.is_dead(member.node));
                let may_resume = |target: &ChainTarget| is_missing || target.role == TargetRole::Serving;
                require(target.is_some_and(may_resume), "it was no full member to the last")
            }
        }
    }

    /// Takes a target's role away; a target that joins behind it begins again.
    fn take_out(&self, chain: &mut Chain, node: NodeId, stamp: u64) {
        let learned_from = chain.serving().last().map(|member| member.node);
        let target = change(chain, node);
        let was = target.role;
        leave(target, stamp);
        let target = *target;
        if was == TargetRole::Serving && self.is_alive(&target) {
            chain.leaving.push(node);
        }
        if learned_from == Some(node)
            && let Some(joining) = chain.targets.iter_mut().find(|target| target.role == TargetRole::Joining)
        {
            joining.role = TargetRole::Syncing;
        }
    }

    fn is_dead(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_none_or(|node| node.is_dead)
    }
}

/// Takes a part away, by a decision stamped `stamp`.
fn leave(target: &mut ChainTarget, stamp: u64) {
    // A target that was still syncing when it left lacks what it lacked then.
    if target.role != TargetRole::Out && target.left == 0 {
        target.left = stamp;
    }
    target.role = TargetRole::Out;
}

/// What is missing of a chain that resumes from a log outside of it, by a decision stamped `stamp`: every record since
/// the end of what is complete, by clocks that may have been ahead.
fn lost_until(lost: Option<LostInterval>, stamp: u64) -> LostInterval {
    let ahead = Hlc(stamp).micros().saturating_add(CLOCK_OFFSET_US_MAX).min(Hlc::MICROS_MAX);
    let LostInterval { from, to } = lost.unwrap_or(LostInterval { from: 0, to: 0 });
    LostInterval { from, to: to.max(Hlc::last_of_micros(ahead).0) }
}

fn change(chain: &mut Chain, node: NodeId) -> &mut ChainTarget {
    chain.target_mut(node).expect("the step was checked")
}
