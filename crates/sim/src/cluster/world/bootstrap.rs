//! Start of a simulated cluster: the first node, and those that join it.

use std::sync::PoisonError;

use frieze_base::{ClusterId, Fault, NodeId};
use frieze_node::Joining;
use frieze_wire::frame::{FrameHeader, FrameKind};
use frieze_wire::message::{Join, JoinReply, Reply, Request, RequestBody};

use super::super::outbox::NodeResponse;
use super::{ClusterEvent, ClusterWorld, FOUNDING_US_MAX, newcomer};
use crate::violation::{Rule, Verdict, broken};
use crate::world::WALL_US;

impl ClusterWorld {
    /// The first node alone, and then one after the other joins it.
    pub(super) fn found(&mut self) -> Verdict {
        let first = self.nodes[0].start();
        self.must(0, first)?;
        self.after(0, ClusterEvent::Serve(0, self.nodes[0].life));
        self.until(1_000_000, "the first server serves", |world| world.nodes[0].serves)?;
        for joiner in 1..self.nodes.len() {
            self.join(joiner)?;
        }
        self.until(FOUNDING_US_MAX, "the cluster is founded", ClusterWorld::is_whole)?;
        self.say(|| "the cluster is founded".to_owned());
        Ok(())
    }

    pub(super) fn must(&self, node: usize, done: Result<(), Fault>) -> Verdict {
        done.or_else(|fault| broken(Rule::Restarts, format!("{} does not start: {fault}", self.nodes[node].id)))
    }

    /// A node asks the leader to be taken in, until it is.
    pub(super) fn join(&mut self, joiner: usize) -> Verdict {
        let join = Join { newcomer: Some(newcomer(joiner)), cluster: String::new(), wall_us: WALL_US };
        for number in 0..60 {
            let Some(leader) = self.leader() else {
                self.run_for(100_000)?;
                continue;
            };
            let header = FrameHeader { request_id: number + 1, ..FrameHeader::of(FrameKind::Request) };
            let body = RequestBody { caller: None, trace: None, request: Some(Request::Join(join.clone())) };
            let client = usize::MAX - joiner;
            self.nodes[leader].request(client, u64::MAX - joiner as u64, header, body, Vec::new());
            let mut answer = None;
            for _ in 0..200 {
                self.run_for(50_000)?;
                let found = self.post.lock().unwrap_or_else(PoisonError::into_inner).answers.pop();
                answer = found.or(answer);
                if answer.is_some() {
                    break;
                }
            }
            if let Some(NodeResponse { result: Ok(Reply::Join(reply)), .. }) = answer {
                return self.begin_joined(joiner, reply);
            }
            self.run_for(500_000)?;
        }
        broken(Rule::Live, format!("{} is never taken in", self.nodes[joiner].id))
    }

    /// A node that was taken in begins.
    pub(super) fn begin_joined(&mut self, joiner: usize, reply: JoinReply) -> Verdict {
        let cluster = u128::from_str_radix(&reply.cluster, 16).unwrap_or_default();
        self.nodes[joiner].joining = Some(Joining {
            cluster: ClusterId(cluster),
            node: NodeId(reply.node),
            secret: reply.secret.try_into().unwrap_or_default(),
            chain_count: reply.chain_count,
            known: reply.nodes.iter().map(|known| format!("{}@{}", known.node, known.address)).collect(),
        });
        let started = self.nodes[joiner].start();
        self.must(joiner, started)?;
        self.nodes[joiner].joining = None;
        self.after(0, ClusterEvent::Serve(joiner, self.nodes[joiner].life));
        Ok(())
    }
}
