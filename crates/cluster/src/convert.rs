//! Decisions and states as bytes: to and from the messages of `wire`.
//!
//! Input is checked as it is read: bytes that are no state are an error; a decision of a newer version is
//! [`Decision::Unknown`], which has no effect on any node.

use std::collections::BTreeMap;

use frieze_base::{ChainEpoch, ChainId, ClusterId, NodeId};
use frieze_wire::control as wire;
use prost::Message;

use crate::chain::{Chain, ChainTarget, LostInterval, Resumption, TargetRole};
use crate::decision::{ChainStep, ClusterRecovery, Decision, NodeStep};
use crate::error::Error;
use crate::node::{ClusterNode, NodeDevice, NodeInfo};
use crate::state::{ClusterState, FormerIdentity};

impl Decision {
    /// As it stands in a batch of the metalog.
    pub fn to_wire(&self) -> wire::DecisionProto {
        let kind = match self {
            Decision::Found { cluster, replicas, chain_count, epoch, first, gaps } => {
                Some(wire::DecisionKind::Found(wire::FoundCluster {
                    cluster: cluster.0.to_le_bytes().to_vec(),
                    replicas: *replicas,
                    chain_count: *chain_count,
                    chain_epoch: epoch.0,
                    first: Some(first.to_wire()),
                    gaps: gaps_to_wire(gaps),
                }))
            }
            Decision::Join(newcomer) => Some(wire::DecisionKind::Join(newcomer.to_wire())),
            Decision::Node { node, revision, step } => {
                Some(wire::DecisionKind::Node(node_step_to_wire(*node, *revision, step)))
            }
            Decision::Chain { chain, revision, step } => {
                Some(wire::DecisionKind::Chain(chain_step_to_wire(*chain, *revision, *step)))
            }
            Decision::Replicas { version, replicas } => {
                let (version, replicas) = (*version, Some(*replicas));
                Some(wire::DecisionKind::Adjust(wire::Adjust { version, replicas, balance: None }))
            }
            Decision::Balance { version, on } => {
                let (version, balance) = (*version, Some(*on));
                Some(wire::DecisionKind::Adjust(wire::Adjust { version, replicas: None, balance }))
            }
            Decision::Recover(recovered) => Some(wire::DecisionKind::Recover(wire::Recover {
                cluster: recovered.cluster.0.to_le_bytes().to_vec(),
                node: recovered.node.0,
                info: Some(recovered.info.to_wire()),
                chain_epoch: recovered.epoch.0,
                whole: recovered.whole.clone(),
            })),
            Decision::LoseNames(lost) => {
                Some(wire::DecisionKind::LoseNames(wire::LoseNames { from: lost.from, to: lost.to }))
            }
            Decision::Unknown => None,
        };
        wire::DecisionProto { kind }
    }

    /// From a batch of the metalog. Unreadable bytes become [`Decision::Unknown`], on every node alike.
    pub fn from_wire(decision: &wire::DecisionProto) -> Decision {
        let read = decision.kind.as_ref().and_then(|kind| match kind {
            wire::DecisionKind::Found(found) => Some(Decision::Found {
                cluster: cluster_from_wire(&found.cluster)?,
                replicas: found.replicas,
                chain_count: found.chain_count,
                epoch: ChainEpoch(found.chain_epoch),
                first: NodeInfo::from_wire(found.first.as_ref()?)?,
                gaps: gaps_from_wire(&found.gaps),
            }),
            wire::DecisionKind::Join(newcomer) => Some(Decision::Join(NodeInfo::from_wire(newcomer)?)),
            wire::DecisionKind::Node(step) => Some(Decision::Node {
                node: NodeId(step.node),
                revision: step.revision,
                step: node_step_from_wire(step)?,
            }),
            wire::DecisionKind::Chain(step) => Some(Decision::Chain {
                chain: ChainId(step.chain),
                revision: step.revision,
                step: chain_step_from_wire(step)?,
            }),
            wire::DecisionKind::Adjust(wire::Adjust { version, replicas: Some(replicas), balance: None }) => {
                Some(Decision::Replicas { version: *version, replicas: *replicas })
            }
            wire::DecisionKind::Adjust(wire::Adjust { version, replicas: None, balance: Some(on) }) => {
                Some(Decision::Balance { version: *version, on: *on })
            }
            wire::DecisionKind::LoseNames(lost) => {
                Some(Decision::LoseNames(LostInterval { from: lost.from, to: lost.to }))
            }
            wire::DecisionKind::Adjust(_) => None,
            wire::DecisionKind::Recover(recover) => Some(Decision::Recover(ClusterRecovery {
                cluster: cluster_from_wire(&recover.cluster)?,
                node: NodeId(recover.node),
                info: NodeInfo::from_wire(recover.info.as_ref()?)?,
                epoch: ChainEpoch(recover.chain_epoch),
                whole: recover.whole.clone(),
            })),
        });
        read.unwrap_or(Decision::Unknown)
    }
}

impl ClusterState {
    /// As bytes, the same on every node at one position of the log.
    pub fn encode(&self) -> Vec<u8> {
        let stored = wire::StoredCluster {
            format: wire::STORED_FORMAT,
            cluster: self.cluster.0.to_le_bytes().to_vec(),
            version: self.version,
            table_version: self.table_version,
            next_node: self.next_node,
            replicas: self.replicas,
            is_balancing: self.is_balancing,
            nodes: self.nodes.values().map(node_to_wire).collect(),
            chains: self.chains.values().map(chain_to_wire).collect(),
            former: self.former.iter().map(former_to_wire).collect(),
        };
        stored.encode_to_vec()
    }

    /// The state of these bytes.
    ///
    /// # Errors
    /// `BadState` if they are none, or of a newer version of frieze.
    pub fn decode(bytes: &[u8]) -> Result<ClusterState, Error> {
        let stored = wire::StoredCluster::decode(bytes).map_err(|_| Error::BadState("these bytes are no message"))?;
        if stored.format != wire::STORED_FORMAT {
            return Err(Error::BadState("it was written by another version of frieze"));
        }
        let broken = Error::BadState("a field is missing");
        let cluster = cluster_from_wire(&stored.cluster).ok_or(broken.clone())?;
        let nodes = stored.nodes.iter().map(|node| node_from_wire(node).map(|node| (node.id, node)));
        let chains = stored.chains.iter().map(|chain| chain_from_wire(chain).map(|chain| (chain.id, chain)));
        let chains: BTreeMap<ChainId, Chain> = chains.collect::<Option<_>>().ok_or(broken.clone())?;
        let former = stored.former.iter().map(former_from_wire).collect::<Option<_>>().ok_or(broken.clone())?;
        Ok(ClusterState {
            former,
            cluster,
            version: stored.version,
            table_version: stored.table_version,
            next_node: stored.next_node,
            replicas: stored.replicas,
            is_balancing: stored.is_balancing,
            nodes: nodes.collect::<Option<_>>().ok_or(broken)?,
            is_behind: chains.values().any(|chain| chain.behind.is_some()),
            chains,
        })
    }
}

impl NodeInfo {
    /// As it is sent and stored.
    pub fn to_wire(&self) -> wire::NodeInfoProto {
        wire::NodeInfoProto {
            name: self.name.clone(),
            site: self.site.clone(),
            machine: self.machine.clone(),
            address: self.address.clone(),
            token: self.token.to_le_bytes().to_vec(),
            incarnation: self.incarnation,
            devices: self.devices.iter().map(device_to_wire).collect(),
        }
    }

    /// `None` if the token has another length.
    pub fn from_wire(newcomer: &wire::NodeInfoProto) -> Option<NodeInfo> {
        Some(NodeInfo {
            name: newcomer.name.clone(),
            site: newcomer.site.clone(),
            machine: newcomer.machine.clone(),
            address: newcomer.address.clone(),
            token: u128::from_le_bytes(newcomer.token.as_slice().try_into().ok()?),
            incarnation: newcomer.incarnation,
            devices: newcomer.devices.iter().map(device_from_wire).collect(),
        })
    }
}

fn cluster_from_wire(bytes: &[u8]) -> Option<ClusterId> {
    Some(ClusterId(u128::from_le_bytes(bytes.try_into().ok()?)))
}

pub(crate) fn device_to_wire(device: &NodeDevice) -> wire::DeviceProto {
    let NodeDevice { device, capacity_bytes, has_failed, is_full } = *device;
    wire::DeviceProto { device, capacity_bytes, has_failed, is_full }
}

pub(crate) fn device_from_wire(device: &wire::DeviceProto) -> NodeDevice {
    let wire::DeviceProto { device, capacity_bytes, has_failed, is_full } = *device;
    NodeDevice { device, capacity_bytes, has_failed, is_full }
}

fn node_step_to_wire(node: NodeId, revision: u64, step: &NodeStep) -> wire::NodeStepProto {
    use wire::NodeStepKind as Kind;
    let mut sent = wire::NodeStepProto { node: node.0, revision, ..wire::NodeStepProto::default() };
    let kind = match step {
        NodeStep::Return { incarnation, address, devices } => {
            (sent.incarnation, sent.address) = (*incarnation, address.clone());
            sent.devices = devices.iter().map(device_to_wire).collect();
            Kind::Return
        }
        NodeStep::Offline => Kind::Offline,
        NodeStep::Drain => Kind::Drain,
        NodeStep::Undrain => Kind::Undrain,
        NodeStep::DeclareDead { spares } => {
            sent.spares = *spares;
            Kind::DeclareDead
        }
        NodeStep::Remove => Kind::Remove,
        NodeStep::AddDevice(device) => {
            sent.devices = vec![device_to_wire(device)];
            Kind::AddDevice
        }
        NodeStep::FailDevice(device) => {
            sent.devices = vec![wire::DeviceProto { device: *device, ..wire::DeviceProto::default() }];
            Kind::FailDevice
        }
        NodeStep::FillDevice(device) => {
            sent.devices = vec![wire::DeviceProto { device: *device, ..wire::DeviceProto::default() }];
            Kind::FillDevice
        }
    };
    sent.set_kind(kind);
    sent
}

fn node_step_from_wire(step: &wire::NodeStepProto) -> Option<NodeStep> {
    use wire::NodeStepKind as Kind;
    Some(match step.kind() {
        Kind::Unknown => return None,
        Kind::Return => NodeStep::Return {
            incarnation: step.incarnation,
            address: step.address.clone(),
            devices: step.devices.iter().map(device_from_wire).collect(),
        },
        Kind::Offline => NodeStep::Offline,
        Kind::Drain => NodeStep::Drain,
        Kind::Undrain => NodeStep::Undrain,
        Kind::DeclareDead => NodeStep::DeclareDead { spares: step.spares },
        Kind::Remove => NodeStep::Remove,
        Kind::AddDevice => NodeStep::AddDevice(device_from_wire(step.devices.first()?)),
        Kind::FailDevice => NodeStep::FailDevice(step.devices.first()?.device),
        Kind::FillDevice => NodeStep::FillDevice(step.devices.first()?.device),
    })
}

fn chain_step_to_wire(chain: ChainId, revision: u64, step: ChainStep) -> wire::ChainStepProto {
    use wire::ChainStepKind as Kind;
    let node = step.node().0;
    let mut sent = wire::ChainStepProto { chain: chain.0, revision, node, ..wire::ChainStepProto::default() };
    let kind = match step {
        ChainStep::Place { device, .. } => {
            sent.device = device;
            Kind::Place
        }
        ChainStep::Retire(_) => Kind::Retire,
        ChainStep::Keep(_) => Kind::Keep,
        ChainStep::Sync { incarnation, .. } => {
            sent.incarnation = incarnation;
            Kind::Sync
        }
        ChainStep::Join(_) => Kind::Join,
        ChainStep::Serve(_) => Kind::Serve,
        ChainStep::TakeOut(_) => Kind::TakeOut,
        ChainStep::Left(_) => Kind::Left,
        ChainStep::Drop(_) => Kind::Drop,
        ChainStep::Resume { incarnation, is_missing, lost, .. } => {
            (sent.incarnation, sent.is_missing) = (incarnation, is_missing);
            (sent.lost_from, sent.lost_to) = lost.map_or((0, 0), |LostInterval { from, to }| (from, to));
            Kind::Resume
        }
    };
    sent.set_kind(kind);
    sent
}

fn chain_step_from_wire(step: &wire::ChainStepProto) -> Option<ChainStep> {
    use wire::ChainStepKind as Kind;
    let node = NodeId(step.node);
    let wire::ChainStepProto { device, incarnation, is_missing, lost_from, lost_to, .. } = *step;
    let lost = (lost_to > 0).then_some(LostInterval { from: lost_from, to: lost_to });
    Some(match step.kind() {
        Kind::Unknown => return None,
        Kind::Place => ChainStep::Place { node, device },
        Kind::Retire => ChainStep::Retire(node),
        Kind::Keep => ChainStep::Keep(node),
        Kind::Sync => ChainStep::Sync { node, incarnation },
        Kind::Join => ChainStep::Join(node),
        Kind::Serve => ChainStep::Serve(node),
        Kind::TakeOut => ChainStep::TakeOut(node),
        Kind::Left => ChainStep::Left(node),
        Kind::Drop => ChainStep::Drop(node),
        Kind::Resume => ChainStep::Resume { node, incarnation, is_missing, lost },
    })
}

fn former_to_wire(former: &FormerIdentity) -> wire::StoredFormer {
    wire::StoredFormer { cluster: former.cluster.0.to_le_bytes().to_vec(), node: former.node.0, at: former.at }
}

fn former_from_wire(former: &wire::StoredFormer) -> Option<FormerIdentity> {
    Some(FormerIdentity { cluster: cluster_from_wire(&former.cluster)?, node: NodeId(former.node), at: former.at })
}

fn node_to_wire(node: &ClusterNode) -> wire::StoredNode {
    wire::StoredNode {
        node: node.id.0,
        revision: node.revision,
        info: Some(node.info.to_wire()),
        is_offline: node.is_offline,
        is_draining: node.is_draining,
        is_dead: node.is_dead,
        offline_since: node.offline_since,
    }
}

fn node_from_wire(node: &wire::StoredNode) -> Option<ClusterNode> {
    Some(ClusterNode {
        id: NodeId(node.node),
        revision: node.revision,
        info: NodeInfo::from_wire(node.info.as_ref()?)?,
        is_offline: node.is_offline,
        offline_since: node.offline_since,
        is_draining: node.is_draining,
        is_dead: node.is_dead,
    })
}

fn chain_to_wire(chain: &Chain) -> wire::StoredChain {
    wire::StoredChain {
        chain: chain.id.0,
        chain_epoch: chain.epoch.0,
        revision: chain.revision,
        targets: chain.targets.iter().map(target_to_wire).collect(),
        leaving: chain.leaving.iter().map(|node| node.0).collect(),
        resumed_epoch: chain.resumed.map_or(0, |resumed| resumed.epoch.0),
        resumed_missing: chain.resumed.is_some_and(|resumed| resumed.is_missing),
        gaps: gaps_to_wire(&chain.gaps),
        behind_from: chain.behind.map_or(0, |behind| behind.from),
        behind_to: chain.behind.map_or(0, |behind| behind.to),
    }
}

fn chain_from_wire(chain: &wire::StoredChain) -> Option<Chain> {
    let resumed = Resumption { epoch: ChainEpoch(chain.resumed_epoch), is_missing: chain.resumed_missing };
    Some(Chain {
        id: ChainId(chain.chain),
        epoch: ChainEpoch(chain.chain_epoch),
        revision: chain.revision,
        targets: chain.targets.iter().map(target_from_wire).collect::<Option<_>>()?,
        leaving: chain.leaving.iter().map(|node| NodeId(*node)).collect(),
        resumed: (resumed.epoch.0 > 0).then_some(resumed),
        gaps: gaps_from_wire(&chain.gaps),
        behind: (chain.behind_to > 0).then_some(LostInterval { from: chain.behind_from, to: chain.behind_to }),
    })
}

fn gaps_to_wire(gaps: &[LostInterval]) -> Vec<u64> {
    gaps.iter().flat_map(|LostInterval { from, to }| [*from, *to]).collect()
}

fn gaps_from_wire(gaps: &[u64]) -> Vec<LostInterval> {
    gaps.as_chunks().0.iter().map(|&[from, to]| LostInterval { from, to }).collect()
}

fn target_to_wire(target: &ChainTarget) -> wire::StoredTarget {
    let role = match target.role {
        TargetRole::Serving => wire::StoredRole::Serving,
        TargetRole::Joining => wire::StoredRole::Joining,
        TargetRole::Syncing => wire::StoredRole::Syncing,
        TargetRole::Out => wire::StoredRole::Out,
    };
    let ChainTarget { node, device, incarnation, left, is_retiring, .. } = *target;
    wire::StoredTarget { node: node.0, device, role: role as i32, incarnation, left, is_retiring }
}

fn target_from_wire(target: &wire::StoredTarget) -> Option<ChainTarget> {
    let role = match wire::StoredRole::try_from(target.role).ok()? {
        wire::StoredRole::Serving => TargetRole::Serving,
        wire::StoredRole::Joining => TargetRole::Joining,
        wire::StoredRole::Syncing => TargetRole::Syncing,
        wire::StoredRole::Out => TargetRole::Out,
    };
    let wire::StoredTarget { node, device, incarnation, left, is_retiring, .. } = *target;
    Some(ChainTarget { node: NodeId(node), device, role, incarnation, left, is_retiring })
}
