//! Heartbeats and leases as bytes: to and from the messages of `wire`.

use frieze_base::{ChainEpoch, ChainId, ClusterId, NodeId};
use frieze_wire::peer::control as wire;

use crate::chain::{LostInterval, Resumption};
use crate::convert::{device_from_wire, device_to_wire};
use crate::message::{Assignment, ClockOffset, Heartbeat, LeaseGrant, ReplicaGarbage, ReplicaHealth, ReplicaReport};

impl Heartbeat {
    /// The message to the leader.
    pub fn to_wire(&self) -> wire::HeartbeatProto {
        wire::HeartbeatProto {
            incarnation: self.incarnation,
            number: self.number,
            heard: self.heard,
            clock: self.clock.map(|ClockOffset { offset_us, error_us }| wire::ClockOffsetProto { offset_us, error_us }),
            resigns: self.resigns,
            address: self.address.clone(),
            devices: self.devices.iter().map(device_to_wire).collect(),
            chains: self.chains.iter().map(report_to_wire).collect(),
            remains_chains: self.remains.chains,
            remains_bytes: self.remains.left_bytes,
            trouble: self.trouble.clone(),
        }
    }

    /// A heartbeat of node `from` of `cluster`, as its connection has proven.
    pub fn from_wire(from: NodeId, cluster: ClusterId, sent: wire::HeartbeatProto) -> Heartbeat {
        Heartbeat {
            cluster,
            node: from,
            incarnation: sent.incarnation,
            number: sent.number,
            heard: sent.heard,
            clock: sent.clock.map(|wire::ClockOffsetProto { offset_us, error_us }| ClockOffset { offset_us, error_us }),
            resigns: sent.resigns,
            address: sent.address,
            devices: sent.devices.iter().map(device_from_wire).collect(),
            chains: sent.chains.iter().map(report_from_wire).collect(),
            remains: ReplicaGarbage { chains: sent.remains_chains, left_bytes: sent.remains_bytes },
            trouble: sent.trouble,
        }
    }
}

impl LeaseGrant {
    /// The message to the node.
    pub fn to_wire(&self) -> wire::LeaseGrantProto {
        wire::LeaseGrantProto {
            number: self.number,
            incarnation: self.incarnation,
            wall_us: self.wall_us,
            version: self.version,
            lease_ns: self.lease_ns,
            chains: self.chains.iter().map(assignment_to_wire).collect(),
        }
    }

    /// A grant of the leader `from`.
    pub fn from_wire(from: NodeId, sent: wire::LeaseGrantProto) -> LeaseGrant {
        LeaseGrant {
            number: sent.number,
            incarnation: sent.incarnation,
            leader: from,
            wall_us: sent.wall_us,
            version: sent.version,
            lease_ns: sent.lease_ns,
            chains: sent.chains.into_iter().map(assignment_from_wire).collect(),
        }
    }
}

fn report_to_wire(report: &ReplicaReport) -> wire::ChainReport {
    wire::ChainReport {
        chain: report.chain.0,
        epoch: report.epoch.0,
        caught_up: report.caught_up.map_or(0, |node| node.0),
        is_ready: report.is_ready,
        last_epoch: report.last.0.0,
        last: report.last.1,
        has_failed: matches!(report.health, ReplicaHealth::Failed | ReplicaHealth::Full),
        is_full: report.health == ReplicaHealth::Full,
        unreachable: match report.health {
            ReplicaHealth::Unreachable(node) => node.0,
            ReplicaHealth::Good | ReplicaHealth::Failed | ReplicaHealth::Full => 0,
        },
        left_bytes: report.left_bytes,
        lost_from: report.lost.map_or(0, |lost| lost.from),
        lost_to: report.lost.map_or(0, |lost| lost.to),
        newest: report.newest,
    }
}

fn report_from_wire(report: &wire::ChainReport) -> ReplicaReport {
    let health = match (report.has_failed, report.is_full, report.unreachable) {
        (true, true, _) => ReplicaHealth::Full,
        (true, false, _) => ReplicaHealth::Failed,
        (false, _, 0) => ReplicaHealth::Good,
        (false, _, node) => ReplicaHealth::Unreachable(NodeId(node)),
    };
    ReplicaReport {
        chain: ChainId(report.chain),
        epoch: ChainEpoch(report.epoch),
        caught_up: Some(NodeId(report.caught_up)).filter(|node| node.0 > 0),
        is_ready: report.is_ready,
        last: (ChainEpoch(report.last_epoch), report.last),
        newest: report.newest,
        health,
        left_bytes: report.left_bytes,
        lost: (report.lost_to > 0).then_some(LostInterval { from: report.lost_from, to: report.lost_to }),
    }
}

fn assignment_to_wire(assignment: &Assignment) -> wire::AssignmentProto {
    let configuration = assignment.configuration.as_ref().map(Into::into);
    wire::AssignmentProto {
        chain: assignment.chain.0,
        device: assignment.device,
        configuration,
        resumed_epoch: assignment.resumed.map_or(0, |resumed| resumed.epoch.0),
        resumed_missing: assignment.resumed.is_some_and(|resumed| resumed.is_missing),
    }
}

fn assignment_from_wire(sent: wire::AssignmentProto) -> Assignment {
    let configuration = sent.configuration.map(Into::into);
    let resumed = Resumption { epoch: ChainEpoch(sent.resumed_epoch), is_missing: sent.resumed_missing };
    Assignment {
        chain: ChainId(sent.chain),
        device: sent.device,
        configuration,
        resumed: Some(resumed).filter(|resumed| resumed.epoch.0 > 0),
    }
}

#[cfg(test)]
mod tests {
    use frieze_wire::chain::Configuration;

    use super::*;
    use crate::node::NodeDevice;

    #[test]
    fn heartbeats_and_grants_come_back_from_their_messages() {
        let report = |health, caught_up| ReplicaReport {
            chain: ChainId(3),
            epoch: ChainEpoch(7),
            caught_up,
            is_ready: true,
            last: (ChainEpoch(6), 41),
            newest: 43,
            health,
            left_bytes: 9,
            lost: caught_up.map(|node| LostInterval { from: 5, to: 6 + u64::from(node.0) }),
        };
        let heartbeat = Heartbeat {
            cluster: ClusterId(5),
            node: NodeId(2),
            incarnation: 4,
            number: 10,
            heard: 9,
            clock: Some(ClockOffset { offset_us: -3, error_us: 8 }),
            resigns: true,
            address: "b:1".to_owned(),
            devices: vec![NodeDevice { device: 1, capacity_bytes: 2, has_failed: true, is_full: false }],
            chains: vec![
                report(ReplicaHealth::Good, None),
                report(ReplicaHealth::Failed, Some(NodeId(8))),
                report(ReplicaHealth::Full, None),
                report(ReplicaHealth::Unreachable(NodeId(6)), None),
            ],
            remains: ReplicaGarbage { chains: 3, left_bytes: 7 << 30 },
            trouble: "its clock is off".to_owned(),
        };
        assert_eq!(Heartbeat::from_wire(NodeId(2), ClusterId(5), heartbeat.to_wire()), heartbeat);
        let configuration = |syncing| Configuration {
            epoch: ChainEpoch(8),
            members: vec![NodeId(1), NodeId(2)],
            syncing,
            joining: true,
        };
        let assignment = |configuration, resumed| Assignment { chain: ChainId(1), device: 2, configuration, resumed };
        let resumed = Resumption { epoch: ChainEpoch(5), is_missing: true };
        let grant = LeaseGrant {
            number: 10,
            incarnation: 4,
            leader: NodeId(1),
            wall_us: 77,
            version: 12,
            lease_ns: 2_000,
            chains: vec![
                assignment(None, None),
                assignment(Some(configuration(None)), Some(resumed)),
                assignment(Some(configuration(Some(NodeId(3)))), None),
            ],
        };
        assert_eq!(LeaseGrant::from_wire(NodeId(1), grant.to_wire()), grant);
    }
}
