//! What an operator does: drains, adds and replaces servers, and changes the count of copies.

use frieze_base::{Fault, NodeId, Seq};
use frieze_wire::control::NodeInfoProto;
use frieze_wire::message::{Cluster, ClusterOp, Join, Reply, Request};

use super::super::client::Route;
use super::Worker;
use crate::world::WALL_US;

impl Worker {
    /// The operator's work: spreads the chains over all nodes, if those have room for more than `copies`; if `drains`,
    /// drains nodes one at a time and undoes that.
    pub(in crate::cluster) fn operate(mut self, copies: u32, drains: bool) {
        let nodes = self.client.nodes().to_vec();
        let are_spare = nodes.len() as u32 > copies;
        if are_spare {
            self.try_to(ClusterOp::Balance(true));
        }
        while drains && !self.client.port().calm {
            let node = self.client.any_node().0;
            if !are_spare {
                // With as many nodes as replicas none can be spared before fewer are wanted.
                self.try_to(ClusterOp::Replicas(copies - 1));
            }
            self.try_to(ClusterOp::Drain(node));
            let drained_us = self.client.rng.between(100_000, 3_000_000);
            self.client.pause_while_busy(drained_us);
            self.try_to(ClusterOp::Undrain(node));
            self.try_to(match are_spare {
                true => ClusterOp::Balance(true),
                false => ClusterOp::Replicas(copies),
            });
            let rest_us = self.client.rng.between(100_000, 3_000_000);
            self.client.pause_while_busy(rest_us);
        }
        if drains {
            for node in nodes {
                self.try_to(ClusterOp::Undrain(node.0));
            }
            self.try_to(ClusterOp::Replicas(copies));
            self.try_to(ClusterOp::Balance(true));
        }
        self.client.port().doing.clear();
    }

    /// The operator's work when a machine is lost with all its data: it is declared dead.
    pub(in crate::cluster) fn bury(mut self, lost: NodeId) {
        self.leave_unnoticed();
        self.declare_dead(lost);
        self.client.port().doing.clear();
    }

    /// Another machine takes its place.
    pub(in crate::cluster) fn replace(mut self, newcomer: NodeInfoProto) {
        self.leave_unnoticed();
        self.ask_to_join(newcomer);
        self.client.port().doing.clear();
    }

    fn leave_unnoticed(&mut self) {
        let unnoticed_us = self.client.rng.between(100_000, 2_000_000);
        self.client.pause(unnoticed_us);
    }

    /// Work of a joining server: it asks until the cluster has added it.
    pub(in crate::cluster) fn join(mut self, newcomer: NodeInfoProto) {
        self.ask_to_join(newcomer);
        self.client.port().doing.clear();
    }

    pub(in crate::cluster) fn ask_to_join(&mut self, newcomer: NodeInfoProto) {
        let join = Request::Join(Join { newcomer: Some(newcomer), cluster: String::new(), wall_us: WALL_US });
        loop {
            if let Ok((Reply::Join(reply), ..)) = self.client.call(Route::Lead, &join, &[], Seq(0)) {
                self.client.port().joined = Some(reply);
                break;
            }
            self.client.pause(200_000);
        }
    }

    /// Retries until it is: the node first has to be found silent. The option that accepts a loss is used only where it
    /// has to be.
    fn declare_dead(&mut self, lost: NodeId) {
        let mut op = ClusterOp::DeclareDead(lost.0);
        while let Err(fault) = self.order(op) {
            if fault.message.contains("--accept-loss") {
                op = ClusterOp::DeclareLost(lost.0);
                continue;
            }
            self.client.pause(200_000);
        }
    }

    /// A request that may be refused, and is not repeated then.
    fn try_to(&mut self, op: ClusterOp) {
        drop(self.order(op));
    }

    /// A request that may be refused for now, and is repeated later.
    pub(in crate::cluster) fn order(&mut self, op: ClusterOp) -> Result<(), Fault> {
        let ask = Request::Cluster(Cluster { op: Some(op) });
        let answered = self.client.call(Route::Lead, &ask, &[], Seq(0));
        let done = answered.map(drop);
        let words = format!("the operator: {op:?}: {:?}", done.as_ref().map_err(Fault::to_string));
        self.history().trace.words(words);
        done
    }
}
