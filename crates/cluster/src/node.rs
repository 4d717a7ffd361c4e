//! The nodes of a cluster, as the log has decided them.

use frieze_base::NodeId;

/// A device of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its number within the node, from 0.
    pub device: u32,
    /// Bytes it can hold: how many chains it gets, compared with others.
    pub capacity_bytes: u64,
    /// Nothing is placed on it any more, and what it has counts no more.
    pub has_failed: bool,
    /// It took a record no more for want of space: it gets nothing new until its server is restarted, and what it has stays.
    pub is_full: bool,
}

/// What a node tells of itself when it joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Newcomer {
    /// What people call it; unique in the cluster.
    pub name: String,
    /// The site it stands at; empty where there is one only. Replicas of a chain are spread over sites.
    pub site: String,
    /// The machine it runs on, a server for each of its disks; empty where nobody said. Replicas of a chain are spread over machines
    /// before anything else.
    pub machine: String,
    /// Where other nodes reach it.
    pub address: String,
    /// Drawn when its data directory was made: who asks twice is one node.
    pub token: u128,
    /// Number of its process. Rises with each start, and is durable before it is told to anybody.
    pub incarnation: u64,
    /// Its devices.
    pub devices: Vec<Device>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its id; never used again.
    pub id: NodeId,
    /// Changes of it: a decision about it names the one it is based on.
    pub revision: u64,
    /// What it told, when it joined and since.
    pub told: Newcomer,
    /// Its lease has ended, as far as the log knows.
    pub is_offline: bool,
    /// The stamp, as a number, of the decision that it is offline; 0 while it is not.
    pub offline_since: u64,
    /// It is giving its chains away.
    pub is_draining: bool,
    /// An operator said that what it alone has will not come back. Until it does.
    pub is_dead: bool,
}

/// What people are told about a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeState {
    /// It is there.
    Up,
    /// It is there and gives its chains away.
    Draining,
    /// Its lease has ended.
    Offline,
    /// Nobody leads who would know, and the server that answers has not heard from it lately.
    Unknown,
    /// It is none of the cluster any more.
    Removed,
}

impl Node {
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
        self.told.incarnation
    }

    /// Bytes that its devices can hold, those that failed left out.
    pub fn capacity_bytes(&self) -> u64 {
        self.whole_devices().map(|device| device.capacity_bytes).fold(0, u64::saturating_add)
    }

    /// The devices that have not failed.
    pub fn whole_devices(&self) -> impl Iterator<Item = &Device> {
        self.told.devices.iter().filter(|device| !device.has_failed)
    }

    /// Those of them that take more than they have.
    pub fn free_devices(&self) -> impl Iterator<Item = &Device> {
        self.whole_devices().filter(|device| !device.is_full)
    }

    /// True if this device has not failed and takes no more.
    pub fn is_full(&self, device: u32) -> bool {
        self.whole_devices().any(|whole| whole.device == device && whole.is_full)
    }
}
