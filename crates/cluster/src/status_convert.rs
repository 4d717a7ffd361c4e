//! Operators' requests, and their answers, from and to the messages of `wire`.

use frieze_base::NodeId;
use frieze_wire::message::{self as wire, ClusterChain, ClusterOp, ClusterReply};

use crate::chain::TargetState;
use crate::controller::{
    ChainStatus, ClusterStatus, ClusterTrouble, NodeStatus, OperatorRequest, TargetStatus, WaitCause,
};
use crate::node::NodeState;

impl OperatorRequest {
    /// The request of an operator.
    pub fn from_wire(op: ClusterOp) -> OperatorRequest {
        match op {
            ClusterOp::Drain(node) => OperatorRequest::Drain { node: NodeId(node), fewer: false },
            ClusterOp::Undrain(node) => OperatorRequest::Undrain(NodeId(node)),
            ClusterOp::Remove(node) => OperatorRequest::Remove(NodeId(node)),
            ClusterOp::DeclareDead(node) => OperatorRequest::DeclareDead { node: NodeId(node), with_loss: false },
            ClusterOp::DeclareLost(node) => OperatorRequest::DeclareDead { node: NodeId(node), with_loss: true },
            ClusterOp::Balance(on) => OperatorRequest::Balance(on),
            ClusterOp::Replicas(replicas) => OperatorRequest::Replicas(replicas),
        }
    }
}

impl ClusterStatus {
    /// The reply of server `reporter`; the reply's other fields are that server's to fill in.
    pub fn to_wire(&self, reporter: NodeId) -> ClusterReply {
        ClusterReply {
            cluster: self.cluster.to_string(),
            leader: self.leader.map_or(0, |leader| leader.0),
            told_by: reporter.0,
            version: self.version,
            replicas: self.replicas,
            is_balancing: self.is_balancing,
            nodes: self.nodes.iter().map(node_to_wire).collect(),
            chains: self.chains.iter().map(chain_to_wire).collect(),
            whole: self.whole() as u32,
            copies_wanted: self.copies_wanted,
            ..ClusterReply::default()
        }
    }
}

impl ClusterTrouble {
    /// The trouble in a reply.
    pub fn to_wire(self) -> wire::Trouble {
        let ClusterTrouble { what, remedy } = self;
        wire::Trouble { what, remedy }
    }
}

fn node_to_wire(status: &NodeStatus) -> wire::ClusterNodeStatus {
    let state = match status.state {
        NodeState::Up => "up",
        NodeState::Draining => "draining",
        NodeState::Offline => "offline",
        NodeState::Unknown => "unknown",
        NodeState::Removed => "removed",
    };
    wire::ClusterNodeStatus {
        node: status.node.id.0,
        name: status.node.info.name.clone(),
        site: status.node.info.site.clone(),
        machine: status.node.info.machine.clone(),
        address: status.node.info.address.clone(),
        state: state.to_owned(),
        lease_left_ms: status.lease_left_ns.map(|ns| ns / 1_000_000),
        clock_offset_us: status.clock_offset_us,
        targets: status.targets as u32,
        serving: status.serving as u32,
        heads: status.heads as u32,
        to_drain: status.to_drain as u32,
        capacity_bytes: status.node.capacity_bytes(),
        remains_chains: status.remains.map(|remains| remains.chains),
        remains_bytes: status.remains.map(|remains| remains.left_bytes),
        incarnation: status.node.incarnation(),
        heartbeat: status.heartbeat,
        offline_since: status.node.offline_since,
        last_contact_us: status.last_contact_us,
        trouble: status.trouble.clone().unwrap_or_default(),
        is_full: status.node.info.devices.iter().any(|device| device.is_full),
        has_failed: status.node.info.devices.iter().any(|device| device.has_failed),
        metalog: String::new(),
    }
}

fn chain_to_wire(status: &ChainStatus) -> ClusterChain {
    let target = |target: &TargetStatus| {
        let state = match target.state {
            TargetState::Serving => "serving",
            TargetState::Joining => "joining",
            TargetState::Syncing => "syncing",
            TargetState::Waiting => "waiting",
            TargetState::Full => "full",
            TargetState::Offline => "offline",
            TargetState::Unknown => "unknown",
        };
        wire::ClusterTargetStatus {
            node: target.target.node.0,
            state: state.to_owned(),
            left_bytes: target.left_bytes,
            left_s: target.left_s,
            bytes_per_s: target.bytes_per_s,
        }
    };
    let (waits, nodes): (&str, &[NodeId]) = match &status.waits {
        None => ("", &[]),
        Some(WaitCause::Memory(nodes)) => ("what these alone may have: they come back, or are declared dead", nodes),
        Some(WaitCause::Logs(nodes)) => ("what the logs of these hold", nodes),
        Some(WaitCause::Leaving(nodes)) => ("these to know that they were taken out, or their leases to end", nodes),
    };
    ClusterChain {
        chain: status.chain.0,
        epoch: status.epoch.0,
        targets: status.targets.iter().map(target).collect(),
        waits: waits.to_owned(),
        waits_for: nodes.iter().map(|node| node.0).collect(),
        behind_from: status.behind.map_or(0, |behind| behind.from),
        behind_to: status.behind.map_or(0, |behind| behind.to),
    }
}
