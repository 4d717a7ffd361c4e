//! The members of a chain and the header of its records, for every crate that names them: the core that runs a chain,
//! the core that decides its members, the log of a device, and the messages between servers.
//!
//! Guarantees: a message converts to these types and back without loss. Leaves to others: which configuration is in
//! force (`cluster`), what a record changes (`multilog`), the bytes of messages ([`crate::peer`]).

use frieze_base::{ChainEpoch, NodeId};

use crate::peer::control::ConfigurationProto;

/// The members of a chain, as the control plane has decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// Its number. Members of an older one are fenced.
    pub epoch: ChainEpoch,
    /// Head first, tail last. The log of each is a prefix of that of the one before it.
    pub members: Vec<NodeId>,
    /// The node that syncs behind the tail: it receives records, acknowledges none, serves no reads.
    pub syncing: Option<NodeId>,
    /// The tail is new: commits and promises need it, but it does not answer reads of now, and must not be left alone
    /// with the chain, before it has reported that it is ready.
    pub joining: bool,
}

impl Configuration {
    /// A chain of one member, which is head and tail.
    pub fn alone(epoch: ChainEpoch) -> Configuration {
        Configuration { epoch, members: vec![NodeId::default()], ..Configuration::default() }
    }

    /// The head, which stamps.
    pub fn head(&self) -> Option<NodeId> {
        self.members.first().copied()
    }

    /// The tail, which commits.
    pub fn tail(&self) -> Option<NodeId> {
        self.members.last().copied()
    }

    /// True if `node` is one of the members; the syncing node is not.
    pub fn holds(&self, node: NodeId) -> bool {
        self.members.contains(&node)
    }

    /// True if `node` is a member or the syncing node.
    pub fn names(&self, node: NodeId) -> bool {
        self.holds(node) || self.syncing == Some(node)
    }

    /// True if `node` may answer reads of now under it: a joining tail may not.
    pub fn may_answer(&self, node: NodeId) -> bool {
        let full = self.members.len() - usize::from(self.joining);
        self.members[..full].contains(&node)
    }

    /// The member before `node`.
    pub fn before(&self, node: NodeId) -> Option<NodeId> {
        if self.syncing == Some(node) {
            return self.tail();
        }
        let at = self.members.iter().position(|member| *member == node)?;
        at.checked_sub(1).map(|before| self.members[before])
    }

    /// The member after `node`; after the tail, the syncing node.
    pub fn after(&self, node: NodeId) -> Option<NodeId> {
        let at = self.members.iter().position(|member| *member == node)?;
        self.members.get(at + 1).copied().or(self.syncing)
    }
}

impl From<&Configuration> for ConfigurationProto {
    fn from(configuration: &Configuration) -> ConfigurationProto {
        ConfigurationProto {
            epoch: configuration.epoch.0,
            members: configuration.members.iter().map(|node| node.0).collect(),
            syncing: configuration.syncing.map_or(0, |node| node.0),
            joining: configuration.joining,
        }
    }
}

impl From<ConfigurationProto> for Configuration {
    fn from(message: ConfigurationProto) -> Configuration {
        Configuration {
            epoch: ChainEpoch(message.epoch),
            members: message.members.into_iter().map(NodeId).collect(),
            syncing: Some(NodeId(message.syncing)).filter(|node| node.0 > 0),
            joining: message.joining,
        }
    }
}
