//! Why the control plane refuses.

use frieze_base::{ChainId, ClusterId, ErrorKind, Fault, NodeId, Reason};
use frieze_hlc::{Hlc, format_instant};

/// A decision without effect, a refused heartbeat, or an operator's request that cannot be met.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no cluster yet.
    #[error("this server is alone and no cluster: start another with --join and this one's address")]
    NotFounded,
    /// There is one already.
    #[error("the cluster has been founded already")]
    AlreadyFounded,
    /// A cluster that is recovered from one node needs another identity.
    #[error("the cluster is {cluster} already: recovery from one server needs a new identity")]
    SameCluster {
        /// The identity.
        cluster: ClusterId,
    },
    /// The state has changed since the decision was made: read it again.
    #[error("{what} has changed meanwhile (it is at {found}, this was based on {based_on}): read it again")]
    Stale {
        /// The object that changed.
        what: &'static str,
        /// The revision that the decision names.
        based_on: u64,
        /// The revision that it has.
        found: u64,
    },
    /// The decision makes no sense in this state.
    #[error("chain {chain}, node {node}: {why}")]
    DoesNotFit {
        /// The chain.
        chain: ChainId,
        /// The node.
        node: NodeId,
        /// Why.
        why: &'static str,
    },
    /// The last member that kept its memory would go.
    #[error(
        "node {node} is the last of chain {chain} that kept its memory: wait until another serves, or declare the \
         lost ones dead"
    )]
    LastMember {
        /// The chain.
        chain: ChainId,
        /// The node.
        node: NodeId,
    },
    /// A decision of a newer version of frieze.
    #[error("a decision that this version of frieze does not know: upgrade all nodes to the newest version")]
    Unknown,
    /// Another node has this name.
    #[error("the name {name:?} belongs to node {node}: choose another with --name, or remove that node first")]
    NameTaken {
        /// The name.
        name: String,
        /// The node that has it.
        node: NodeId,
    },
    /// A name, site or address that cannot be one.
    #[error("{what} {text:?}: 1 to 255 bytes, no spaces and no control characters, are wanted")]
    BadName {
        /// Which of the three.
        what: &'static str,
        /// As given.
        text: String,
    },
    /// There is no such node.
    #[error("there is no node {node} in this cluster")]
    UnknownNode {
        /// The node.
        node: NodeId,
    },
    /// There was one, and it was removed.
    #[error(
        "node {node} was removed from this cluster: to bring the machine back, start it on an empty directory with \
         --join"
    )]
    Removed {
        /// The node.
        node: NodeId,
    },
    /// There is no such device, or there is one already.
    #[error("node {node}, device {device}: {why}")]
    BadDevice {
        /// The node.
        node: NodeId,
        /// Its device.
        device: u32,
        /// Why.
        why: &'static str,
    },
    /// Only a node that is offline can be declared dead.
    #[error("node {node} holds a lease: stop it first, or wait until it is offline")]
    StillOnline {
        /// The node.
        node: NodeId,
    },
    /// Chains would lose records that no other node is known to hold, and the operator has not confirmed the loss.
    #[error(
        "node {node} alone has the newest of {}: if it never comes back, {} would be gone, durable or not. If its \
         disks are there, start its server again: then nothing is lost. If they are lost, confirm the loss with \
         --accept-loss",
        chains_of(last_of),
        losses_of(last_of)
    )]
    OnlyCopy {
        /// The node.
        node: NodeId,
        /// The chains.
        last_of: Vec<LastOf>,
    },
    /// No server leads: too many voters lost their memory, and wait for this one.
    #[error(
        "no server leads: too many lost what they had in memory, and wait for node {node}, which may alone have the \
         names that were changed last. If its disks are there, start its server again: then nothing is lost. If they \
         are lost, confirm the loss with --accept-loss"
    )]
    NamesAlone {
        /// The node.
        node: NodeId,
    },
    /// It still has targets.
    #[error(
        "node {node} still has targets of {chains} chains: drain it first, or if it is gone for good remove it with \
         --dead"
    )]
    StillUsed {
        /// The node.
        node: NodeId,
        /// How many.
        chains: usize,
    },
    /// Too few nodes would be left.
    #[error(
        "without node {node} only {left} nodes would be left for {replicas} replicas: add a node first, or ask for \
         fewer replicas"
    )]
    TooFewNodes {
        /// The node.
        node: NodeId,
        /// Nodes that would be left.
        left: u32,
        /// Replicas wanted.
        replicas: u32,
    },
    /// A number that cannot be.
    #[error("{what}: {found} is not within 1 to {max}")]
    OutOfRange {
        /// The quantity.
        what: &'static str,
        /// As given.
        found: u64,
        /// The largest.
        max: u64,
    },
    /// A limit is reached.
    #[error("too many {what}: {max} at most")]
    TooMany {
        /// The items counted.
        what: &'static str,
        /// The limit.
        max: u64,
    },
    /// The sender belongs to another cluster.
    #[error(
        "this node belongs to cluster {found}, and here is cluster {expected}: check the address given with --join"
    )]
    WrongCluster {
        /// Of this cluster.
        expected: ClusterId,
        /// Of the sender.
        found: ClusterId,
    },
    /// A newer process of the same node has spoken.
    #[error(
        "a newer process of node {node} is running (start {newest}, this is {found}): its directory is in use twice, \
         perhaps as a copy; stop one"
    )]
    OldProcess {
        /// The node.
        node: NodeId,
        /// The newest incarnation known.
        newest: u64,
        /// The sender's.
        found: u64,
    },
    /// The sender's clock differs too much from those of the other nodes.
    #[error(
        "the clock of node {node} is {} ms {} those of the others, {} ms are allowed: set it (chrony, NTP), then the \
         node returns by itself",
        offset_us.unsigned_abs() / 1000, if *offset_us > 0 { "ahead of" } else { "behind" }, max_us / 1000
    )]
    ClockOff {
        /// The node.
        node: NodeId,
        /// Its clock less theirs, in microseconds.
        offset_us: i64,
        /// The limit, in microseconds.
        max_us: u64,
    },
    /// This node does not lead.
    #[error("this node does not lead the cluster{}", leader_or_none(leader))]
    NotLeader {
        /// The leader, if it is known.
        leader: Option<NodeId>,
    },
    /// It has not come about in time.
    #[error("not decided in time: repeat the request, it takes effect once")]
    NotDecided,
    /// Stored bytes that are no state.
    #[error("the stored state of the cluster cannot be read: {0}")]
    BadState(&'static str),
}

impl Error {
    /// Why, as doors map it.
    pub fn reason(&self) -> Reason {
        match self {
            Error::NotFounded | Error::Unknown => Reason::Unsupported,
            Error::AlreadyFounded | Error::SameCluster { .. } | Error::NameTaken { .. } => Reason::Exists,
            Error::Stale { .. } | Error::DoesNotFit { .. } => Reason::Superseded,
            Error::LastMember { .. }
            | Error::StillOnline { .. }
            | Error::NamesAlone { .. }
            | Error::OnlyCopy { .. }
            | Error::StillUsed { .. }
            | Error::TooFewNodes { .. }
            | Error::OldProcess { .. } => Reason::Busy,
            Error::BadName { .. } | Error::OutOfRange { .. } | Error::BadDevice { .. } => Reason::InvalidArgument,
            Error::UnknownNode { .. } => Reason::NotFound,
            Error::Removed { .. } => Reason::Removed,
            Error::TooMany { .. } => Reason::Overloaded,
            Error::WrongCluster { .. } => Reason::WrongCluster,
            Error::ClockOff { .. } => Reason::Fenced,
            Error::NotLeader { .. } | Error::NotDecided => Reason::Unavailable,
            Error::BadState(_) => Reason::Corrupt,
        }
    }

    /// The class of the error, by the caller's next action.
    pub fn kind(&self) -> ErrorKind {
        self.reason().kind()
    }
}

/// A chain of which a node alone has the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastOf {
    /// The chain.
    pub chain: ChainId,
    /// The copies that would remain.
    pub left: RemainingCopies,
}

/// The copies of a chain that remain without the node that alone has the newest records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RemainingCopies {
    /// Nothing.
    Nothing,
    /// Copies, the first of which was removed from the members at this stamp: they may lack later records, or more if
    /// none was complete.
    Until(Hlc),
    /// What was on stable storage: other members served to the last, and all of them have restarted since.
    Durable,
}

fn chains_of(last_of: &[LastOf]) -> String {
    let named: Vec<String> = last_of.iter().take(CHAINS_NAMED_MAX).map(|last| last.chain.to_string()).collect();
    let more = match last_of.len().saturating_sub(CHAINS_NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{} {}{more}", if last_of.len() == 1 { "chain" } else { "chains" }, named.join(", "))
}

fn leader_or_none(leader: &Option<NodeId>) -> String {
    leader.map_or(": no node does at the moment, try again".to_owned(), |node| format!(": node {node} does"))
}

/// The worst of the losses.
fn losses_of(last_of: &[LastOf]) -> String {
    match last_of.iter().map(|last| last.left).min() {
        None | Some(RemainingCopies::Nothing) => "all that they hold".to_owned(),
        Some(RemainingCopies::Until(since)) => {
            format!(
                "what was written since {}, and more where the copy that is left was never whole",
                format_instant(since)
            )
        }
        Some(RemainingCopies::Durable) => "what was not yet on stable storage elsewhere".to_owned(),
    }
}

/// Chains that an error names.
const CHAINS_NAMED_MAX: usize = 8;

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault::new(error.reason(), error.to_string())
    }
}
