//! The nodes of a cluster, as the log has decided them.

use frieze_base::NodeId;

/// A device of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeDevice {
    /// Its number within the node, from 0.
    pub device: u32,
    /// Bytes it can hold: its share of the chains is proportional to them.
    pub capacity_bytes: u64,
    /// The device has failed: no target is placed on it, and its targets do not count.
    pub has_failed: bool,
    /// The device ran out of space: it gets no new targets until its server restarts, and keeps those it has.
    pub is_full: bool,
}

/// A node's description of itself when it joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    /// Name for people; unique in the cluster.
    pub name: String,
    /// The site it stands at; empty where there is one only. Replicas of a chain are spread over sites.
    pub site: String,
    /// The machine it runs on, if several servers share one; empty if it was not given. Replicas of a chain are spread
    /// over machines before anything else.
    pub machine: String,
    /// Where other nodes reach it.
    pub address: String,
    /// Drawn when its data directory was created: a repeated request with the same token is the same node.
    pub token: u128,
    /// Number of its process. It rises with each start, and is durable before it is sent.
    pub incarnation: u64,
    /// Its devices.
    pub devices: Vec<NodeDevice>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterNode {
    /// Its id; never used again.
    pub id: NodeId,
    /// Changes of it: a decision about it names the one it is based on.
    pub revision: u64,
    /// Its description of itself, when it joined and since.
    pub info: NodeInfo,
    /// Its lease has ended, as far as the log knows.
    pub is_offline: bool,
    /// The stamp, as a number, of the decision that it is offline; 0 while it is not.
    pub offline_since: u64,
    /// It is giving its chains away.
    pub is_draining: bool,
    /// An operator declared what only this node has lost for good. Cleared when the node returns.
    pub is_dead: bool,
}

/// State of a node, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeState {
    /// It is there.
    Up,
    /// It is there and gives its chains away.
    Draining,
    /// Its lease has ended.
    Offline,
    /// No leader is known, and the answering server has had no recent contact with the node.
    Unknown,
    /// It is none of the cluster any more.
    Removed,
}

impl ClusterNode {
    /// In one word.
    pub fn state(&self) -> NodeState {
        match (self.is_offline, self.is_draining) {
            (true, _) => NodeState::Offline,
            (false, true) => NodeState::Draining,
            (false, false) => NodeState::Up,
        }
    }

    /// Its process: a target that another process served has lost its memory.
    pub fn incarnation(&self) -> u64 {
        self.info.incarnation
    }

    /// Bytes that its devices can hold, those that failed left out.
    pub fn capacity_bytes(&self) -> u64 {
        self.whole_devices().map(|device| device.capacity_bytes).fold(0, u64::saturating_add)
    }

    /// The devices that have not failed.
    pub fn whole_devices(&self) -> impl Iterator<Item = &NodeDevice> {
        self.info.devices.iter().filter(|device| !device.has_failed)
    }

    /// Those of them that take more than they have.
    pub fn free_devices(&self) -> impl Iterator<Item = &NodeDevice> {
        self.whole_devices().filter(|device| !device.is_full)
    }

    /// True if this device has not failed and takes no more.
    pub fn is_full(&self, device: u32) -> bool {
        self.whole_devices().any(|whole| whole.device == device && whole.is_full)
    }
}
