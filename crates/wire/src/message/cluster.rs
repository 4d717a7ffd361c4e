//! Where a cluster's servers are and what each answers for.

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

/// Who serves a chain.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ChainMembers {
    /// Node ids, head first. Who is only being brought up to date is left out.
    #[prost(uint32, repeated, tag = "1")]
    pub serving: Vec<u32>,
}

/// A server asks to be one of the cluster. For administrators.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Join {
    /// What it tells of itself.
    #[prost(message, optional, tag = "1")]
    pub newcomer: Option<crate::control::Newcomer>,
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
    /// The servers that it is told by, and tells.
    #[prost(message, repeated, tag = "5")]
    pub nodes: Vec<NodeAddress>,
}

/// Asks about the cluster, or for something to be done with it. What changes something is for administrators, and the leader
/// answers it; asked twice it happens once.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Cluster {
    /// What to do; absent: only tell how it is.
    #[prost(oneof = "ClusterOp", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub op: Option<ClusterOp>,
}

/// What can be done with a cluster.
#[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
pub enum ClusterOp {
    /// The node with this id gives its chains away.
    #[prost(uint32, tag = "1")]
    Drain(u32),
    /// It may keep what it has.
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
    /// A node that is offline will not come back, nor what it alone has, and that is meant.
    #[prost(uint32, tag = "7")]
    DeclareLost(u32),
}

/// How the cluster is.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ClusterReply {
    /// The cluster, 32 hex digits; empty from a server that is alone.
    #[prost(string, tag = "1")]
    pub cluster: String,
    /// Node that leads the metalog; 0 while nobody is known to.
    #[prost(uint32, tag = "2")]
    pub leader: u32,
    /// Node that answers. What only the leader knows is absent elsewhere.
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
    pub nodes: Vec<NodeStatus>,
    /// The chains, by id.
    #[prost(message, repeated, tag = "8")]
    pub chains: Vec<ClusterChain>,
    /// Chains that have as many full members as `copies_wanted`, and work. None that the answering node cannot vouch for.
    #[prost(uint32, tag = "9")]
    pub whole: u32,
    /// Bytes a second that the answering node gives at most to those that are brought up to date; 0 for no limit.
    #[prost(uint64, tag = "10")]
    pub sync_bytes_per_s: u64,
    /// Copies that every chain is to have: `replicas`, or as many as there are nodes that are neither draining nor declared dead. 0 from a
    /// node that is alone, or older than this field.
    #[prost(uint32, tag = "11")]
    pub copies_wanted: u32,
    /// What is wrong, the most urgent first.
    #[prost(message, repeated, tag = "12")]
    pub troubles: Vec<super::Trouble>,
}

/// A node of the cluster.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NodeStatus {
    /// Its id.
    #[prost(uint32, tag = "1")]
    pub node: u32,
    /// What people call it.
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
    /// `up`, `draining`, `offline`, `removed`, or `unknown`: nobody leads, and the answering node has not heard from it lately.
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
    /// Number of that process's newest heartbeat. Absent: none was heard here, or another process sends them by now.
    #[prost(uint64, optional, tag = "17")]
    pub heartbeat: Option<u64>,
    /// While it is `offline`: the stamp of that decision.
    #[prost(uint64, tag = "18")]
    pub offline_since: u64,
    /// While it is `unknown`: when the answering node heard from it last, in microseconds since the Unix epoch. Absent: never.
    #[prost(uint64, optional, tag = "19")]
    pub last_contact_us: Option<u64>,
    /// What is wrong with it besides, in words; empty: nothing that is known here.
    #[prost(string, tag = "20")]
    pub trouble: String,
    /// Its disk takes no more, or has failed, and it is out of its chains.
    #[prost(bool, tag = "21")]
    pub is_full: bool,
    /// See `is_full`.
    #[prost(bool, tag = "22")]
    pub has_failed: bool,
    /// `voter` or `learner` of the metalog, as the answering node knows it; empty: neither.
    #[prost(string, tag = "23")]
    pub metalog: String,
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
    pub targets: Vec<TargetStatus>,
    /// Why it does not work at the moment; empty if it does.
    #[prost(string, tag = "4")]
    pub waits: String,
    /// Its nodes that it waits for.
    #[prost(uint32, repeated, tag = "5")]
    pub waits_for: Vec<u32>,
    /// It went on from a copy that was behind: what was acknowledged between these stamps, both exclusive, may be missing; 0 and 0: it
    /// never had to.
    #[prost(uint64, tag = "6")]
    pub behind_from: u64,
    /// See `behind_from`.
    #[prost(uint64, tag = "7")]
    pub behind_to: u64,
}

/// A replica of a chain.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct TargetStatus {
    /// Its node.
    #[prost(uint32, tag = "1")]
    pub node: u32,
    /// `serving`, `joining`, `syncing`, `waiting`, `full` (its disk takes no more), `offline` or `unknown`.
    #[prost(string, tag = "2")]
    pub state: String,
    /// Bytes that it lacks, as far as it has told.
    #[prost(uint64, optional, tag = "3")]
    pub left_bytes: Option<u64>,
    /// Seconds until it has all.
    #[prost(uint64, optional, tag = "4")]
    pub left_s: Option<u64>,
    /// Bytes a second that it has got since it began to be brought up to date.
    #[prost(uint64, optional, tag = "5")]
    pub bytes_per_s: Option<u64>,
}
