//! Decisions of the control plane and its stored state, one of each kind.

use frieze_wire::control::{self, ChainStepKind, DecisionKind, NodeStepKind, STORED_FORMAT, StoredRole};

use super::AT;

fn newcomer() -> control::NodeInfoProto {
    control::NodeInfoProto {
        name: "ada".into(),
        site: "east".into(),
        machine: "rack7".into(),
        address: "10.0.0.2:7410".into(),
        token: (0..16).collect(),
        incarnation: 3,
        devices: vec![control::DeviceProto { device: 1, capacity_bytes: 1 << 40, has_failed: true, is_full: false }],
    }
}

pub(super) fn decisions() -> Vec<(&'static str, DecisionKind)> {
    let node = |kind| control::NodeStepProto { node: 2, revision: 300, kind: kind as i32, ..Default::default() };
    let chain =
        |kind| control::ChainStepProto { chain: 7, revision: 300, kind: kind as i32, node: 2, ..Default::default() };
    let newcomer = newcomer();
    let (address, devices) = (newcomer.address.clone(), newcomer.devices.clone());
    let back =
        control::NodeStepProto { incarnation: 4, address, devices: devices.clone(), ..node(NodeStepKind::Return) };
    let found = control::FoundCluster {
        cluster: vec![0xab; 16],
        replicas: 3,
        chain_count: 8,
        chain_epoch: 12,
        first: Some(newcomer.clone()),
        gaps: Vec::new(),
    };
    let resume = control::ChainStepProto { incarnation: 4, is_missing: true, ..chain(ChainStepKind::Resume) };
    vec![
        ("found", DecisionKind::Found(found)),
        ("join", DecisionKind::Join(newcomer)),
        ("node.return", DecisionKind::Node(back)),
        ("node.offline", DecisionKind::Node(node(NodeStepKind::Offline))),
        ("node.drain", DecisionKind::Node(node(NodeStepKind::Drain))),
        ("node.undrain", DecisionKind::Node(node(NodeStepKind::Undrain))),
        ("node.declare_dead", DecisionKind::Node(node(NodeStepKind::DeclareDead))),
        ("node.remove", DecisionKind::Node(node(NodeStepKind::Remove))),
        ("node.add_device", DecisionKind::Node(control::NodeStepProto { devices, ..node(NodeStepKind::AddDevice) })),
        ("node.fail_device", DecisionKind::Node(node(NodeStepKind::FailDevice))),
        ("chain.place", DecisionKind::Chain(control::ChainStepProto { device: 1, ..chain(ChainStepKind::Place) })),
        ("chain.retire", DecisionKind::Chain(chain(ChainStepKind::Retire))),
        ("chain.keep", DecisionKind::Chain(chain(ChainStepKind::Keep))),
        ("chain.sync", DecisionKind::Chain(control::ChainStepProto { incarnation: 4, ..chain(ChainStepKind::Sync) })),
        ("chain.join", DecisionKind::Chain(chain(ChainStepKind::Join))),
        ("chain.serve", DecisionKind::Chain(chain(ChainStepKind::Serve))),
        ("chain.take_out", DecisionKind::Chain(chain(ChainStepKind::TakeOut))),
        ("chain.left", DecisionKind::Chain(chain(ChainStepKind::Left))),
        ("chain.drop", DecisionKind::Chain(chain(ChainStepKind::Drop))),
        ("chain.resume", DecisionKind::Chain(resume)),
        ("replicas", DecisionKind::Adjust(control::Adjust { version: 300, replicas: Some(2), balance: None })),
        ("balance", DecisionKind::Adjust(control::Adjust { version: 300, replicas: None, balance: Some(false) })),
    ]
}

/// Of later versions than those before, which one batch holds.
pub(super) fn later_decisions() -> Vec<(&'static str, DecisionKind)> {
    let resume = control::ChainStepProto { chain: 7, revision: 300, node: 2, incarnation: 4, ..Default::default() };
    let resume =
        control::ChainStepProto { kind: ChainStepKind::Resume as i32, lost_from: AT, lost_to: AT + 9, ..resume };
    let found = control::FoundCluster { first: Some(newcomer()), gaps: vec![AT, AT + 9], ..Default::default() };
    let dead =
        control::NodeStepProto { node: 2, revision: 300, kind: NodeStepKind::DeclareDead as i32, ..Default::default() };
    let recover = control::Recover {
        cluster: vec![0xcd; 16],
        node: 2,
        info: Some(newcomer()),
        chain_epoch: 13,
        whole: vec![AT, 0],
    };
    vec![
        ("recover", DecisionKind::Recover(recover)),
        ("chain.resume_lost", DecisionKind::Chain(resume)),
        ("found_with_gaps", DecisionKind::Found(found)),
        (
            "node.fill_device",
            DecisionKind::Node(control::NodeStepProto { kind: NodeStepKind::FillDevice as i32, ..dead.clone() }),
        ),
        ("node.declare_dead_if_spared", DecisionKind::Node(control::NodeStepProto { spares: true, ..dead })),
    ]
}

pub(super) fn control_state() -> control::StoredCluster {
    let node = control::StoredNode {
        node: 2,
        revision: 5,
        info: Some(newcomer()),
        is_offline: true,
        is_draining: true,
        is_dead: true,
        offline_since: 0,
    };
    let stored = control::StoredTarget { device: 1, incarnation: 3, is_retiring: true, left: 77, ..Default::default() };
    let target = |node, role| control::StoredTarget { node, role: role as i32, ..stored };
    let roles = [StoredRole::Serving, StoredRole::Joining, StoredRole::Syncing, StoredRole::Out];
    let chain = control::StoredChain {
        chain: 7,
        chain_epoch: 12,
        revision: 300,
        targets: (1..).zip(roles).map(|(node, role)| target(node, role)).collect(),
        leaving: vec![3, 4],
        resumed_epoch: 11,
        resumed_missing: true,
        gaps: Vec::new(),
        behind_from: 0,
        behind_to: 0,
    };
    control::StoredCluster {
        format: STORED_FORMAT,
        cluster: vec![0xab; 16],
        version: 300,
        table_version: 200,
        next_node: 3,
        replicas: 3,
        is_balancing: true,
        nodes: vec![node],
        chains: vec![chain],
        former: Vec::new(),
    }
}
