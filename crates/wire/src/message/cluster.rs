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
