//! Addresses of a cluster's servers, and the chains of each.

/// Asks for the cluster's map. Any server answers, as it knows it: it may lag behind.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ClusterMap {}

/// The map of a cluster.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ClusterMapReply {
    /// Rises with every change of nodes and chains; 0 for a server that is alone.
    #[prost(uint64, tag = "1")]
    pub version: u64,
    /// Node that answers for names and sessions; 0 while there is none.
    #[prost(uint32, tag = "2")]
    pub leader: u32,
    /// Rises with every leader.
    #[prost(uint64, tag = "5")]
    pub term: u64,
    /// The servers, by node id.
    #[prost(message, repeated, tag = "3")]
    pub nodes: Vec<NodeAddress>,
    /// The chains in the order of their ids: chunk `c` lies on `chains[ChunkId::chain(c, chains.len())]`.
    #[prost(message, repeated, tag = "4")]
    pub chains: Vec<ChainMembers>,
}

/// Where a server is.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NodeAddress {
    /// Node id.
    #[prost(uint32, tag = "1")]
    pub node: u32,
    /// As in a `--server` option: `host:port` or `unix:/path`.
    #[prost(string, tag = "2")]
    pub address: String,
}

/// The members of a chain that serve.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ChainMembers {
    /// Node ids, head first. A syncing node is left out.
    #[prost(uint32, repeated, tag = "1")]
    pub serving: Vec<u32>,
}

/// A server asks to be one of the cluster. For administrators.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Join {
    /// Its description of itself.
    #[prost(message, optional, tag = "1")]
    pub newcomer: Option<crate::control::NodeInfoProto>,
    /// The cluster that its directory belongs to, 32 hex digits; empty if it is new.
    #[prost(string, tag = "2")]
    pub cluster: String,
    /// Its wall clock, microseconds since the Unix epoch.
    #[prost(uint64, tag = "3")]
    pub wall_us: u64,
}

/// The server is one of the cluster.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct JoinReply {
    /// Its node id.
    #[prost(uint32, tag = "1")]
    pub node: u32,
    /// The cluster, 32 hex digits.
    #[prost(string, tag = "2")]
    pub cluster: String,
    /// The secret that all servers of the cluster hold, 32 bytes.
    #[prost(bytes = "vec", tag = "3")]
    pub secret: Vec<u8>,
    /// Chains that chunks are spread over.
    #[prost(uint32, tag = "4")]
    pub chain_count: u32,
    /// The servers that it exchanges messages with.
    #[prost(message, repeated, tag = "5")]
    pub nodes: Vec<NodeAddress>,
}

/// Asks for the state of the cluster, or for an operation on it. Operations are for administrators, and the leader
/// answers them; a repeated one takes effect once.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Cluster {
    /// The operation; absent: only report the state.
    #[prost(oneof = "ClusterOp", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub op: Option<ClusterOp>,
}

/// An operation on a cluster.
#[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
pub enum ClusterOp {
    /// The node with this id gives its chains away.
    #[prost(uint32, tag = "1")]
    Drain(u32),
    /// It may keep its targets.
    #[prost(uint32, tag = "2")]
    Undrain(u32),
    /// A drained node is none of the cluster any more.
    #[prost(uint32, tag = "3")]
    Remove(u32),
    /// A node that is offline will not come back. Refused where it alone has the newest of a chain.
    #[prost(uint32, tag = "4")]
    DeclareDead(u32),
    /// Chains are moved until every node has its share, or that stops.
    #[prost(bool, tag = "5")]
    Balance(bool),
    /// So many replicas of each chain.
    #[prost(uint32, tag = "6")]
    Replicas(u32),
    /// A node that is offline will not come back, nor will what only it has, and the operator accepts that.
    #[prost(uint32, tag = "7")]
    DeclareLost(u32),
}

/// How the cluster is.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ClusterReply {
    /// The cluster, 32 hex digits; empty from a server that is alone.
    #[prost(string, tag = "1")]
    pub cluster: String,
    /// Node that leads the metalog; 0 while none is known.
    #[prost(uint32, tag = "2")]
    pub leader: u32,
    /// Node that answers. Fields that only the leader knows are absent at other nodes.
    #[prost(uint32, tag = "3")]
    pub told_by: u32,
    /// Decisions so far.
    #[prost(uint64, tag = "4")]
    pub version: u64,
    /// Replicas wanted of each chain.
    #[prost(uint32, tag = "5")]
    pub replicas: u32,
    /// Chains are moved until every node has its share.
    #[prost(bool, tag = "6")]
    pub is_balancing: bool,
    /// The nodes, by id.
    #[prost(message, repeated, tag = "7")]
    pub nodes: Vec<ClusterNodeStatus>,
    /// The chains, by id.
    #[prost(message, repeated, tag = "8")]
    pub chains: Vec<ClusterChain>,
    /// Chains that have as many full members as `copies_wanted`, and work. None that the answering node cannot vouch
    /// for.
    #[prost(uint32, tag = "9")]
    pub whole: u32,
    /// Limit of the bytes a second that the answering node sends to syncing nodes; 0 for no limit.
    #[prost(uint64, tag = "10")]
    pub sync_bytes_per_s: u64,
    /// Copies that every chain is to have: `replicas`, or as many as there are nodes that are neither draining nor
    /// declared dead. 0 from a node that is alone, or older than this field.
    #[prost(uint32, tag = "11")]
    pub copies_wanted: u32,
    /// Troubles, the most urgent first.
    #[prost(message, repeated, tag = "12")]
    pub troubles: Vec<super::Trouble>,
}

/// A node of the cluster.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ClusterNodeStatus {
    /// Its id.
    #[prost(uint32, tag = "1")]
    pub node: u32,
    /// Name for people.
    #[prost(string, tag = "2")]
    pub name: String,
    /// The site it stands at.
    #[prost(string, tag = "3")]
    pub site: String,
    /// The machine it runs on.
    #[prost(string, tag = "13")]
    pub machine: String,
    /// Where it is reached.
    #[prost(string, tag = "4")]
    pub address: String,
    /// `up`, `draining`, `offline`, `removed`, or `unknown`: no leader is known, and the answering node has had no
    /// recent contact with it.
    #[prost(string, tag = "5")]
    pub state: String,
    /// Milliseconds until its lease ends at the latest.
    #[prost(uint64, optional, tag = "6")]
    pub lease_left_ms: Option<u64>,
    /// Its wall clock less the leader's, in microseconds.
    #[prost(sint64, optional, tag = "7")]
    pub clock_offset_us: Option<i64>,
    /// Chains of which it has a target.
    #[prost(uint32, tag = "8")]
    pub targets: u32,
    /// Those in which it is a full member.
    #[prost(uint32, tag = "9")]
    pub serving: u32,
    /// Those that it heads.
    #[prost(uint32, tag = "10")]
    pub heads: u32,
    /// Targets that it still has to give away, if it is draining.
    #[prost(uint32, tag = "11")]
    pub to_drain: u32,
    /// Bytes that it can hold.
    #[prost(uint64, tag = "12")]
    pub capacity_bytes: u64,
    /// Chains that it has no part in any more and still has records of.
    #[prost(uint32, optional, tag = "14")]
    pub remains_chains: Option<u32>,
    /// Bytes of such that are being given back, as far as it has counted them.
    #[prost(uint64, optional, tag = "15")]
    pub remains_bytes: Option<u64>,
    /// Number of its process, as the log knows it.
    #[prost(uint64, tag = "16")]
    pub incarnation: u64,
    /// Number of that process's newest heartbeat. Absent: none arrived here, or another process sends them by now.
    #[prost(uint64, optional, tag = "17")]
    pub heartbeat: Option<u64>,
    /// While it is `offline`: the stamp of that decision.
    #[prost(uint64, tag = "18")]
    pub offline_since: u64,
    /// While it is `unknown`: when the answering node last had contact with it, in microseconds since the Unix epoch.
    /// Absent: never.
    #[prost(uint64, optional, tag = "19")]
    pub last_contact_us: Option<u64>,
    /// Any further trouble, as text; empty if none is known here.
    #[prost(string, tag = "20")]
    pub trouble: String,
    /// Its disk takes no more, or has failed, and it is out of its chains.
    #[prost(bool, tag = "21")]
    pub is_full: bool,
    /// See `is_full`.
    #[prost(bool, tag = "22")]
    pub has_failed: bool,
    /// `voter` or `learner` of the metalog, or `joining`: a learner that votes once it has caught up. As the answering
    /// node knows it; empty: none of them.
    #[prost(string, tag = "23")]
    pub metalog: String,
}

impl ClusterNodeStatus {
    /// Begins the [`trouble`](ClusterNodeStatus::trouble) of a node without a lease.
    pub const NO_LEASE: &str = "no lease";
}

/// A chain of the cluster.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ClusterChain {
    /// Its id.
    #[prost(uint32, tag = "1")]
    pub chain: u32,
    /// Its configuration.
    #[prost(uint64, tag = "2")]
    pub epoch: u64,
    /// Its targets, head first.
    #[prost(message, repeated, tag = "3")]
    pub targets: Vec<ClusterTargetStatus>,
    /// Why it does not work at the moment; empty if it does.
    #[prost(string, tag = "4")]
    pub waits: String,
    /// Its nodes that it waits for.
    #[prost(uint32, repeated, tag = "5")]
    pub waits_for: Vec<u32>,
    /// It resumed from a stale copy: acknowledged records between these stamps, both exclusive, may be missing; 0 and
    /// 0: it never did.
    #[prost(uint64, tag = "6")]
    pub behind_from: u64,
    /// See `behind_from`.
    #[prost(uint64, tag = "7")]
    pub behind_to: u64,
}

/// A replica of a chain.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ClusterTargetStatus {
    /// Its node.
    #[prost(uint32, tag = "1")]
    pub node: u32,
    /// `serving`, `joining`, `syncing`, `waiting`, `full` (its disk takes no more), `offline` or `unknown`.
    #[prost(string, tag = "2")]
    pub state: String,
    /// Bytes that it lacks, by its last report.
    #[prost(uint64, optional, tag = "3")]
    pub left_bytes: Option<u64>,
    /// Seconds until it has all.
    #[prost(uint64, optional, tag = "4")]
    pub left_s: Option<u64>,
    /// Bytes a second that it has received since its sync began.
    #[prost(uint64, optional, tag = "5")]
    pub bytes_per_s: Option<u64>,
}
