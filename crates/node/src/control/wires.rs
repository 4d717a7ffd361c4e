//! Conversion of the control plane's messages to and from those of `wire`.

use frieze_base::{ChainEpoch, ChainId, ClusterId, Fault, NodeId, Reason};
use frieze_cluster::{
    Assignment, ClockOffset, Heartbeat, LeaseGrant, LostInterval, NodeDevice, ReplicaGarbage, ReplicaHealth,
    ReplicaReport, Resumption,
};
use frieze_wire::control::DeviceProto as WireDevice;
use frieze_wire::peer::control as wire;

pub(super) fn heartbeat_out(heartbeat: &Heartbeat) -> wire::HeartbeatProto {
    wire::HeartbeatProto {
        incarnation: heartbeat.incarnation,
        number: heartbeat.number,
        heard: heartbeat.heard,
        clock: heartbeat
            .clock
            .map(|ClockOffset { offset_us, error_us }| wire::ClockOffsetProto { offset_us, error_us }),
        resigns: heartbeat.resigns,
        address: heartbeat.address.clone(),
        devices: heartbeat.devices.iter().map(device_out).collect(),
        chains: heartbeat.chains.iter().map(report_out).collect(),
        remains_chains: heartbeat.remains.chains,
        remains_bytes: heartbeat.remains.left_bytes,
        trouble: heartbeat.trouble.clone(),
    }
}

/// A heartbeat of node `from` of `cluster`, as its connection has proven.
pub(super) fn heartbeat_in(from: NodeId, cluster: ClusterId, told: wire::HeartbeatProto) -> Heartbeat {
    Heartbeat {
        cluster,
        node: from,
        incarnation: told.incarnation,
        number: told.number,
        heard: told.heard,
        clock: told.clock.map(|wire::ClockOffsetProto { offset_us, error_us }| ClockOffset { offset_us, error_us }),
        resigns: told.resigns,
        address: told.address,
        devices: told.devices.iter().map(device_in).collect(),
        chains: told.chains.iter().map(report_in).collect(),
        remains: ReplicaGarbage { chains: told.remains_chains, left_bytes: told.remains_bytes },
        trouble: told.trouble,
    }
}

fn device_out(device: &NodeDevice) -> WireDevice {
    let NodeDevice { device, capacity_bytes, has_failed, is_full } = *device;
    WireDevice { device, capacity_bytes, has_failed, is_full }
}

fn device_in(device: &WireDevice) -> NodeDevice {
    let WireDevice { device, capacity_bytes, has_failed, is_full } = *device;
    NodeDevice { device, capacity_bytes, has_failed, is_full }
}

fn report_out(report: &ReplicaReport) -> wire::ChainReport {
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

fn report_in(report: &wire::ChainReport) -> ReplicaReport {
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

pub(super) fn grant_out(grant: &LeaseGrant) -> wire::LeaseGrantProto {
    wire::LeaseGrantProto {
        number: grant.number,
        incarnation: grant.incarnation,
        wall_us: grant.wall_us,
        version: grant.version,
        lease_ns: grant.lease_ns,
        chains: grant.chains.iter().map(assignment_out).collect(),
    }
}

/// A grant of the leader `from`.
pub(super) fn grant_in(from: NodeId, told: wire::LeaseGrantProto) -> LeaseGrant {
    LeaseGrant {
        number: told.number,
        incarnation: told.incarnation,
        leader: from,
        wall_us: told.wall_us,
        version: told.version,
        lease_ns: told.lease_ns,
        chains: told.chains.into_iter().map(assignment_in).collect(),
    }
}

fn assignment_out(assignment: &Assignment) -> wire::AssignmentProto {
    let configuration = assignment.configuration.as_ref().map(Into::into);
    wire::AssignmentProto {
        chain: assignment.chain.0,
        device: assignment.device,
        configuration,
        resumed_epoch: assignment.resumed.map_or(0, |resumed| resumed.epoch.0),
        resumed_missing: assignment.resumed.is_some_and(|resumed| resumed.is_missing),
    }
}

fn assignment_in(told: wire::AssignmentProto) -> Assignment {
    let configuration = told.configuration.map(Into::into);
    let resumed = Resumption { epoch: ChainEpoch(told.resumed_epoch), is_missing: told.resumed_missing };
    Assignment {
        chain: ChainId(told.chain),
        device: told.device,
        configuration,
        resumed: Some(resumed).filter(|resumed| resumed.epoch.0 > 0),
    }
}

pub(super) fn refused_out(fault: &Fault) -> wire::HeartbeatRefusal {
    wire::HeartbeatRefusal { reason: fault.reason as u32, message: fault.message.clone() }
}

pub(super) fn refused_in(told: wire::HeartbeatRefusal) -> Fault {
    Fault::new(Reason::from_code(told.reason), told.message)
}

#[cfg(test)]
mod tests {
    use frieze_wire::chain::Configuration;

    use super::*;

    #[test]
    fn what_is_told_is_what_is_heard() {
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
        assert_eq!(heartbeat_in(NodeId(2), ClusterId(5), heartbeat_out(&heartbeat)), heartbeat);
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
        assert_eq!(grant_in(NodeId(1), grant_out(&grant)), grant);
        let fault = Fault::new(Reason::WrongCluster, "no");
        assert_eq!(refused_in(refused_out(&fault)), fault);
    }
}
