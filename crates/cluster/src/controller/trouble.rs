//! Troubles of a cluster as text for an operator: what, where, since when, and what to do.
//!
//! Guarantees: a chain that is not complete is named, with its copies counted against those wanted; a cluster without
//! troubles has a leader, every copy, and every server online. At most [`TROUBLES_MAX`] are named, and the number of
//! the rest. Leaves to others: the trouble of a server by itself (`node`), its display (`cli`, `metrics`).

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::NodeId;
use frieze_hlc::{Hlc, format_instant};

use super::status::{ChainStatus, ClusterStatus, NodeStatus, TargetStatus, WaitCause};
use crate::chain::TargetState;
use crate::node::NodeState;

/// The health of a server or cluster without trouble.
const HEALTHY: &str = "healthy";

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterTrouble {
    /// The trouble: what, where, and since when.
    pub what: String,
    /// What an operator does about it.
    pub remedy: String,
}

impl ClusterTrouble {
    /// These words.
    pub fn new(what: impl Into<String>, remedy: impl Into<String>) -> ClusterTrouble {
        ClusterTrouble { what: what.into(), remedy: remedy.into() }
    }

    /// The health that these leave, in words: all of them, or `healthy` if there are none.
    pub fn health_of(troubles: &[ClusterTrouble]) -> String {
        let words: Vec<&str> = troubles.iter().map(|trouble| trouble.what.as_str()).collect();
        if words.is_empty() { HEALTHY.to_owned() } else { words.join("; ") }
    }
}

/// Why a chain lacks a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum OutageCause {
    /// The server is offline, or its state is unknown.
    Away,
    /// Its disk is full.
    Full,
    /// Its disk has failed.
    Failed,
    /// It is given the copy now.
    Syncing,
    /// It is to be given the copy.
    Waiting,
}

/// Chains that lack the same for the same reasons: the copies that they have, and which servers do not serve them, and
/// why.
type Lack = (usize, BTreeSet<(NodeId, OutageCause)>);

impl ClusterStatus {
    /// The troubles, the most urgent first; empty: every chain has every copy, and every server is online.
    pub fn troubles(&self) -> Vec<ClusterTrouble> {
        let mut troubles = Vec::new();
        if self.leader.is_none() {
            troubles.push(self.no_leader());
        }
        let mut named = BTreeSet::new();
        let mut lacks: BTreeMap<Lack, usize> = BTreeMap::new();
        for chain in self.chains.iter().filter(|chain| chain.serving() < self.copies_wanted as usize) {
            *lacks.entry((chain.serving(), self.causes(chain))).or_default() += 1;
        }
        for ((have, causes), chains) in &lacks {
            named.extend(causes.iter().map(|(node, _)| *node));
            troubles.push(self.missing_copies(*have, causes, *chains));
        }
        troubles.extend(self.waiting());
        for node in &self.nodes {
            if !named.contains(&node.node.id) && self.cause_of_node(node).is_some() {
                troubles.push(ClusterTrouble::new(self.offline_since(node), remedy_of_offline(node)));
            }
            if let Some(words) = &node.trouble {
                let name = &node.node.info.name;
                troubles.push(ClusterTrouble::new(
                    format!("{name}: {words}"),
                    format!("frieze --server {} status", node.node.info.address),
                ));
            }
        }
        let more = troubles.len().saturating_sub(TROUBLES_MAX);
        if more > 0 {
            troubles.truncate(TROUBLES_MAX - 1);
            troubles.push(ClusterTrouble::new(
                format!("{} more troubles", more + 1),
                "frieze cluster nodes, frieze cluster chains",
            ));
        }
        troubles
    }

    fn no_leader(&self) -> ClusterTrouble {
        let since = self.no_leader_since_us.map_or("this server began".to_owned(), instant_of_us);
        let lost: Vec<String> = self
            .nodes
            .iter()
            .filter(|node| node.state == NodeState::Unknown)
            .map(|node| self.offline_since(node))
            .collect();
        let is_majority = 2 * lost.len() < self.nodes.len();
        let away = if lost.is_empty() { String::new() } else { format!(": {}", lost.join(", ")) };
        if is_majority && !lost.is_empty() {
            return ClusterTrouble::new(
                format!("none of the servers leads since {since}{away}"),
                "start the servers that are away: if the others lost their memory, they wait for what those have; if \
                 their disks are gone, 'frieze cluster declare-dead' with --accept-loss",
            );
        }
        ClusterTrouble::new(
            format!("no majority of the servers: none leads since {since}{away}"),
            "start the servers that are away; without a majority nothing can be changed, and only instants that \
             are closed can be read; if they are lost for good, 'frieze cluster recover' continues from one that is \
             left (docs/operating.md, When the majority is lost for good)",
        )
    }

    /// Nodes that could serve a chain and do not, with the cause.
    fn causes(&self, chain: &ChainStatus) -> BTreeSet<(NodeId, OutageCause)> {
        let of_target = |target: &TargetStatus| {
            let cause = match target.state {
                TargetState::Serving => return None,
                TargetState::Offline | TargetState::Unknown => OutageCause::Away,
                TargetState::Full => OutageCause::Full,
                TargetState::Joining | TargetState::Syncing => OutageCause::Syncing,
                TargetState::Waiting => OutageCause::Waiting,
            };
            Some((target.target.node, cause))
        };
        let mut causes: BTreeSet<_> = chain.targets.iter().filter_map(of_target).collect();
        // A server whose disk has failed, or that was replaced in its chains, has no target any more.
        let without =
            self.nodes.iter().filter(|node| chain.targets.iter().all(|target| target.target.node != node.node.id));
        causes.extend(without.filter_map(|node| Some((node.node.id, self.cause_of_node(node)?))));
        causes
    }

    /// The cause why a node keeps no copies of any chain.
    fn cause_of_node(&self, node: &NodeStatus) -> Option<OutageCause> {
        if node.node.is_dead || node.node.is_draining {
            return None;
        }
        match node.state {
            NodeState::Offline | NodeState::Unknown => Some(OutageCause::Away),
            _ if node.node.whole_devices().next().is_none() => Some(OutageCause::Failed),
            _ if node.node.free_devices().next().is_none() => Some(OutageCause::Full),
            _ => None,
        }
    }

    fn missing_copies(&self, have: usize, causes: &BTreeSet<(NodeId, OutageCause)>, chains: usize) -> ClusterTrouble {
        let named = || {
            causes.iter().filter_map(|(id, cause)| Some((self.nodes.iter().find(|node| node.node.id == *id)?, *cause)))
        };
        let words = |(node, cause): (&NodeStatus, OutageCause)| {
            let name = &node.node.info.name;
            match cause {
                OutageCause::Away => self.offline_since(node),
                OutageCause::Full => format!("the disk of {name} is full"),
                OutageCause::Failed => format!("the disk of {name} has failed"),
                OutageCause::Syncing => format!("{name} is syncing"),
                OutageCause::Waiting => format!("{name} waits to sync"),
            }
        };
        let remedy = |(node, cause): (&NodeStatus, OutageCause)| {
            let name = &node.node.info.name;
            match cause {
                OutageCause::Away => remedy_of_offline(node),
                OutageCause::Full => format!(
                    "give {name} room ('frieze forget', a larger disk), then restart its server: it receives what it \
                     lacks"
                ),
                OutageCause::Failed => {
                    format!("look at the disk of {name}, replace it if need be, then restart its server")
                }
                OutageCause::Syncing | OutageCause::Waiting => "'frieze cluster' shows how far it is".to_owned(),
            }
        };
        let mut remedies: Vec<String> = named().map(remedy).collect();
        remedies.dedup();
        let why = match causes.is_empty() {
            true => {
                remedies.push(
                    "add a server ('frieze serve --join'), or ask for fewer copies ('frieze cluster replicas')"
                        .to_owned(),
                );
                "no server has room for another, or it is about to be placed".to_owned()
            }
            false => named().map(words).collect::<Vec<_>>().join(", "),
        };
        let chains = if chains == 1 { "1 chain has".to_owned() } else { format!("{chains} chains have") };
        ClusterTrouble::new(format!("{chains} {have} of {} copies: {why}", self.copies_wanted), remedies.join("; "))
    }

    /// Chains that do not work, by their cause.
    fn waiting(&self) -> Vec<ClusterTrouble> {
        let mut groups: Vec<(&WaitCause, usize)> = Vec::new();
        for waits in self.chains.iter().filter_map(|chain| chain.waits.as_ref()) {
            match groups.iter_mut().find(|(known, _)| *known == waits) {
                Some((_, chains)) => *chains += 1,
                None => groups.push((waits, 1)),
            }
        }
        let words = |(waits, chains): (&WaitCause, usize)| {
            let (nodes, why, remedy) = match waits {
                WaitCause::Memory(nodes) => (
                    nodes,
                    "may alone have what was written last",
                    "start them again; if their disks are gone, 'frieze cluster declare-dead'",
                ),
                WaitCause::Logs(nodes) => {
                    (nodes, "have not reported their logs yet", "start them again, or wait half a minute")
                }
                WaitCause::Leaving(nodes) => {
                    (nodes, "have not acknowledged yet that they were taken out", "none: it ends with their leases")
                }
            };
            let chains = if chains == 1 {
                "1 chain does not work and waits for".to_owned()
            } else {
                format!("{chains} chains do not work and wait for")
            };
            ClusterTrouble::new(format!("{chains} {}, which {why}", self.names(nodes)), remedy)
        };
        groups.into_iter().map(words).collect()
    }

    fn names(&self, nodes: &[NodeId]) -> String {
        let name = |id: &NodeId| {
            let node = self.nodes.iter().find(|node| node.node.id == *id);
            node.map_or(format!("node {id}"), |node| node.node.info.name.clone())
        };
        if nodes.is_empty() { "its servers".to_owned() } else { nodes.iter().map(name).collect::<Vec<_>>().join(", ") }
    }

    /// That a node is not there, and since when, in words.
    fn offline_since(&self, node: &NodeStatus) -> String {
        let name = &node.node.info.name;
        match (node.state, node.last_contact_us) {
            (NodeState::Unknown, Some(us)) => format!("{name} was last heard from at {}", instant_of_us(us)),
            (NodeState::Unknown, None) => format!("{name} has not been heard from"),
            (NodeState::Offline, _) => {
                format!("{name} is away since {}", instant_of_us(Hlc(node.node.offline_since).micros()))
            }
            _ if node.node.whole_devices().next().is_none() => format!("the disk of {name} has failed"),
            _ => format!("the disk of {name} is full"),
        }
    }
}

fn remedy_of_offline(node: &NodeStatus) -> String {
    let name = &node.node.info.name;
    match node.state {
        NodeState::Unknown => format!("start {name} again"),
        NodeState::Offline => {
            format!("start {name} again; if its disks are gone, 'frieze cluster declare-dead {name}'")
        }
        _ => format!("look at the disk of {name}, give it room or replace it, then restart its server"),
    }
}

/// To the second: the text rests on leases.
fn instant_of_us(us: u64) -> String {
    let instant = format_instant(Hlc::first_of_micros(us));
    match instant.split_once('.') {
        Some((second, _)) => format!("{second}Z"),
        None => instant,
    }
}

/// Troubles that are named.
const TROUBLES_MAX: usize = 16;
