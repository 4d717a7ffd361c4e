//! Decisions about nodes.

use std::collections::BTreeSet;

use frieze_base::NodeId;
use frieze_hlc::Hlc;

use super::{ClusterState, DEVICES_MAX, NODES_MAX, check_revision, within};
use crate::chain::{Chain, ChainTarget, TargetRole};
use crate::decision::{ClusterChange, NodeStep};
use crate::error::{Error, LastOf, RemainingCopies};
use crate::node::{ClusterNode, NodeDevice, NodeInfo};

impl ClusterState {
    pub(super) fn join(&mut self, newcomer: &NodeInfo) -> Result<Vec<ClusterChange>, Error> {
        if let Some(node) = self.node_of_token(newcomer.token) {
            return Ok(vec![ClusterChange::Joined(node.id)]);
        }
        if self.nodes.len() >= NODES_MAX {
            return Err(Error::TooMany { what: "nodes", max: NODES_MAX as u64 });
        }
        let id = NodeId(self.next_node);
        let node = self.checked(id, newcomer)?;
        self.next_node += 1;
        self.nodes.insert(id, node);
        Ok(vec![ClusterChange::Joined(id)])
    }

    /// A node from its description of itself.
    pub(super) fn checked(&self, id: NodeId, info: &NodeInfo) -> Result<ClusterNode, Error> {
        check_word("name", &info.name)?;
        check_word("address", &info.address)?;
        for (what, text) in [("site", &info.site), ("machine", &info.machine)] {
            if !text.is_empty() {
                check_word(what, text)?;
            }
        }
        if let Some(node) = self.node_named(&info.name) {
            return Err(Error::NameTaken { name: info.name.clone(), node: node.id });
        }
        check_devices(id, &info.devices)?;
        let info = info.clone();
        Ok(ClusterNode {
            id,
            revision: 1,
            info,
            is_offline: false,
            offline_since: 0,
            is_draining: false,
            is_dead: false,
        })
    }

    /// True if the address or the devices differ from those in the log.
    ///
    /// # Errors
    /// If that cannot be.
    pub(crate) fn changes_description(
        node: &ClusterNode,
        address: &str,
        devices: &[NodeDevice],
    ) -> Result<bool, Error> {
        Ok(checked_devices(node, node.incarnation(), address, devices)? != node.info.devices
            || address != node.info.address)
    }

    pub(super) fn change_node(
        &mut self,
        id: NodeId,
        revision: u64,
        step: &NodeStep,
        stamp: u64,
    ) -> Result<Vec<ClusterChange>, Error> {
        let node = self.node(id)?;
        check_revision("the node", revision, node.revision)?;
        let mut next = ClusterNode { revision: revision + 1, ..node.clone() };
        let mut is_gone = false;
        match step {
            NodeStep::Return { incarnation, address, devices } => {
                if *incarnation < node.incarnation() {
                    let newest = node.incarnation();
                    return Err(Error::OldProcess { node: id, newest, found: *incarnation });
                }
                next.info.devices = checked_devices(node, *incarnation, address, devices)?;
                // Another process has no role in anything, so that no node waits for an acknowledgement of the former
                // one.
                is_gone = *incarnation > node.incarnation();
                (next.info.incarnation, next.info.address) = (*incarnation, address.clone());
                (next.is_offline, next.offline_since, next.is_dead) = (false, 0, false);
            }
            NodeStep::Offline => {
                is_gone = true;
                if !node.is_offline {
                    (next.is_offline, next.offline_since) = (true, stamp);
                }
            }
            NodeStep::Drain => next.is_draining = true,
            NodeStep::Undrain => next.is_draining = false,
            NodeStep::DeclareDead { .. } if !node.is_offline => return Err(Error::StillOnline { node: id }),
            NodeStep::DeclareDead { spares } => {
                let last_of = if *spares && !node.is_dead { self.last_of(id) } else { Vec::new() };
                if !last_of.is_empty() {
                    return Err(Error::OnlyCopy { node: id, last_of });
                }
                next.is_dead = true;
            }
            NodeStep::Remove => {
                let chains = self.chains.values();
                let chains = chains.filter(|chain| chain.target(id).is_some() || chain.leaving.contains(&id)).count();
                if chains > 0 {
                    return Err(Error::StillUsed { node: id, chains });
                }
                self.nodes.remove(&id);
                return Ok(vec![ClusterChange::Removed(id)]);
            }
            NodeStep::AddDevice(device) => {
                next.info.devices.push(device.clone());
                check_devices(id, &next.info.devices)?;
            }
            NodeStep::FailDevice(device) => device_of(&mut next, *device)?.has_failed = true,
            NodeStep::FillDevice(device) => device_of(&mut next, *device)?.is_full = true,
        }
        if next == (ClusterNode { revision: next.revision, ..node.clone() }) {
            return Ok(Vec::new());
        }
        self.nodes.insert(id, next);
        let mut changes = vec![ClusterChange::Node(id)];
        if is_gone {
            for chain in self.chains.values_mut().filter(|chain| chain.leaving.contains(&id)) {
                chain.leaving.retain(|node| *node != id);
                chain.revision += 1;
                changes.push(ClusterChange::Chain(chain.id));
            }
        }
        Ok(changes)
    }
}

impl ClusterState {
    /// The chains that would resume without records that only `node` is known to hold, if it does not come back, and
    /// the copies that would remain of each: it is the last full member that may come back, or the last of them that
    /// kept its memory.
    fn last_of(&self, node: NodeId) -> Vec<LastOf> {
        let may_return = |target: &&ChainTarget| {
            target.node != node && self.nodes.get(&target.node).is_some_and(|node| !node.is_dead)
        };
        let last_of = |chain: &Chain| {
            let own = chain.target(node).filter(|target| target.role == TargetRole::Serving)?;
            let rest = || chain.serving().filter(may_return);
            if rest().any(|target| self.kept_memory(target)) || rest().next().is_some() && !self.kept_memory(own) {
                return None;
            }
            let is_out = |target: &&ChainTarget| may_return(target) && target.role != TargetRole::Serving;
            // A target that was never a member still has to receive everything. The logs show which of the rest has
            // most.
            let copies = || chain.targets.iter().filter(is_out).map(|target| target.left).filter(|left| *left > 0);
            let left = match rest().next() {
                Some(_) => RemainingCopies::Durable,
                None => copies().min().map_or(RemainingCopies::Nothing, |since| RemainingCopies::Until(Hlc(since))),
            };
            Some(LastOf { chain: chain.id, left })
        };
        self.chains.values().filter_map(last_of).collect()
    }
}

/// A node's devices after a process of it has listed these. A device that the list lacks stays, for it may be back
/// tomorrow; one that has failed or is full stays so until another process has opened it and read its log again, as
/// after its replacement.
fn merged(node: &ClusterNode, incarnation: u64, info: &[NodeDevice]) -> Vec<NodeDevice> {
    let is_same = incarnation == node.incarnation();
    let mut devices = node.info.devices.clone();
    for device in info {
        match devices.iter_mut().find(|known| known.device == device.device) {
            Some(known) => {
                let has_failed = device.has_failed || is_same && known.has_failed;
                let is_full = device.is_full || is_same && known.is_full;
                *known = NodeDevice { has_failed, is_full, ..device.clone() };
            }
            None => devices.push(device.clone()),
        }
    }
    devices
}

fn device_of(node: &mut ClusterNode, device: u32) -> Result<&mut NodeDevice, Error> {
    let unknown = Error::BadDevice { node: node.id, device, why: "there is no such device" };
    node.info.devices.iter_mut().find(|known| known.device == device).ok_or(unknown)
}

fn check_word(what: &'static str, text: &str) -> Result<(), Error> {
    let is_word = (1..=255).contains(&text.len()) && !text.contains(|c: char| c.is_whitespace() || c.is_control());
    if is_word { Ok(()) } else { Err(Error::BadName { what, text: text.chars().take(300).collect() }) }
}

/// The devices of a node's list, if the list is possible.
fn checked_devices(
    node: &ClusterNode,
    incarnation: u64,
    address: &str,
    info: &[NodeDevice],
) -> Result<Vec<NodeDevice>, Error> {
    check_word("address", address)?;
    check_devices(node.id, info)?;
    let devices = merged(node, incarnation, info);
    check_devices(node.id, &devices)?;
    Ok(devices)
}

fn check_devices(node: NodeId, devices: &[NodeDevice]) -> Result<(), Error> {
    within("devices of a node", devices.len() as u64, DEVICES_MAX as u64)?;
    let mut seen = BTreeSet::new();
    for NodeDevice { device, capacity_bytes, .. } in devices {
        if !seen.insert(device) {
            return Err(Error::BadDevice { node, device: *device, why: "there is one of this number already" });
        }
        if *capacity_bytes == 0 {
            return Err(Error::BadDevice { node, device: *device, why: "it holds nothing" });
        }
    }
    Ok(())
}
