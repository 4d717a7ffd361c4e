//! The beginning of a connection, and that it is still there.

use crate::fabric::FabricOffer;

/// First message of a connection.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Hello {
    /// Software and version of the client, for logs: `frieze/0.1.0`.
    #[prost(string, tag = "1")]
    pub software: String,
    /// Name of the key that proves the caller, where the kernel cannot; empty for none.
    #[prost(string, tag = "2")]
    pub key_name: String,
    /// 32 random bytes of the client.
    #[prost(bytes = "vec", tag = "3")]
    pub nonce: Vec<u8>,
    /// Cluster the client expects, 32 hex digits; empty for any.
    #[prost(string, tag = "4")]
    pub cluster: String,
    /// Node id of a server that will send peer messages ([`crate::peer`]); 0 for a client, which sends requests.
    #[prost(uint32, tag = "5")]
    pub node: u32,
}

/// Answer to [`Hello`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct HelloReply {
    /// Software and version of the server.
    #[prost(string, tag = "1")]
    pub software: String,
    /// Cluster, 32 hex digits.
    #[prost(string, tag = "2")]
    pub cluster: String,
    /// Node id of the server.
    #[prost(uint32, tag = "3")]
    pub node: u32,
    /// 32 random bytes of the server, to be answered by [`Prove`]; empty if the kernel has proven the caller already.
    #[prost(bytes = "vec", tag = "4")]
    pub challenge: Vec<u8>,
    /// User the connection is proven as; 65534 before a proof.
    #[prost(uint32, tag = "5")]
    pub uid: u32,
    /// True if the connection may speak for other users.
    #[prost(bool, tag = "6")]
    pub may_impersonate: bool,
    /// Chunk size of new files in bytes.
    #[prost(uint64, tag = "7")]
    pub chunk_bytes: u64,
    /// Path of a Unix socket of the same server, sent to clients on the same machine: it costs less than TCP.
    #[prost(string, tag = "8")]
    pub socket: String,
    /// To a node: the proof that this is a server of its cluster; empty to a client.
    #[prost(bytes = "vec", tag = "9")]
    pub proof: Vec<u8>,
    /// Version of the cluster's map ([`super::ClusterMapReply`]) at this server; 0 for one that is alone.
    #[prost(uint64, tag = "10")]
    pub map_version: u64,
    /// To a node: the identities that the cluster had before it was recovered from one server, oldest first.
    #[prost(message, repeated, tag = "11")]
    pub former: Vec<FormerCluster>,
    /// The server's endpoint for one-sided transfers, if it has one and the connection is by TCP.
    #[prost(message, optional, tag = "12")]
    pub fabric: Option<FabricOffer>,
}

/// An identity that a cluster had before it was recovered from one server.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct FormerCluster {
    /// The identity, 32 hex digits.
    #[prost(string, tag = "1")]
    pub cluster: String,
    /// Node that the cluster was recovered from.
    #[prost(uint32, tag = "2")]
    pub node: u32,
    /// Stamp of that decision: no record committed under the former identity is newer, unless its majority continued as
    /// well.
    #[prost(uint64, tag = "3")]
    pub at: u64,
}

/// Answers the server's challenge: BLAKE3 keyed by the secret over `challenge || client nonce || key name`. A node
/// answers by the cluster's own secret under the name `node`; the server proves itself to it by
/// `client nonce || challenge` under the name `server`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Prove {
    /// 32 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub mac: Vec<u8>,
}

/// Shows that the session is alive; any request does.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Ping {}

/// Nothing to add.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct EmptyReply {}
