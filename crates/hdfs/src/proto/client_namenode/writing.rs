//! Calls that write files, of `ClientNamenodeProtocol.proto`.

use crate::proto::acl::FsPermission;
use crate::proto::hdfs::{DatanodeInfo, ExtendedBlock, HdfsFileStatus, LocatedBlock};

#[derive(Clone, PartialEq, prost::Message)]
pub struct CreateRequest {
    #[prost(string, required, tag = "1")]
    pub src: String,
    #[prost(message, optional, tag = "2")]
    pub masked: Option<FsPermission>,
    #[prost(string, required, tag = "3")]
    pub client_name: String,
    #[prost(uint32, required, tag = "4")]
    pub create_flag: u32,
    #[prost(bool, required, tag = "5")]
    pub create_parent: bool,
    #[prost(uint32, required, tag = "6")]
    pub replication: u32,
    #[prost(uint64, required, tag = "7")]
    pub block_size: u64,
    #[prost(message, optional, tag = "9")]
    pub unmasked: Option<FsPermission>,
    #[prost(string, optional, tag = "10")]
    pub ec_policy_name: Option<String>,
    #[prost(string, optional, tag = "11")]
    pub storage_policy: Option<String>,
}

/// Bits of `CreateRequest::create_flag`.
pub mod create_flag {
    pub const CREATE: u32 = 1;
    pub const OVERWRITE: u32 = 2;
    pub const APPEND: u32 = 4;
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CreateResponse {
    #[prost(message, optional, tag = "1")]
    pub fs: Option<HdfsFileStatus>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct AppendRequest {
    #[prost(string, required, tag = "1")]
    pub src: String,
    #[prost(string, required, tag = "2")]
    pub client_name: String,
    #[prost(uint32, optional, tag = "3")]
    pub flag: Option<u32>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct AppendResponse {
    #[prost(message, optional, tag = "1")]
    pub block: Option<LocatedBlock>,
    #[prost(message, optional, tag = "2")]
    pub stat: Option<HdfsFileStatus>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct AddBlockRequest {
    #[prost(string, required, tag = "1")]
    pub src: String,
    #[prost(string, required, tag = "2")]
    pub client_name: String,
    #[prost(message, optional, tag = "3")]
    pub previous: Option<ExtendedBlock>,
    #[prost(message, repeated, tag = "4")]
    pub exclude_nodes: Vec<DatanodeInfo>,
    #[prost(uint64, optional, tag = "5")]
    pub file_id: Option<u64>,
    #[prost(string, repeated, tag = "6")]
    pub favored_nodes: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct AddBlockResponse {
    #[prost(message, optional, tag = "1")]
    pub block: Option<LocatedBlock>,
}

/// The answer to calls that give a block: `addBlock`, `updateBlockForPipeline`.
pub type BlockResponse = AddBlockResponse;

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetAdditionalDatanodeRequest {
    #[prost(string, required, tag = "1")]
    pub src: String,
    #[prost(message, optional, tag = "2")]
    pub blk: Option<ExtendedBlock>,
    #[prost(message, repeated, tag = "3")]
    pub existings: Vec<DatanodeInfo>,
    #[prost(message, repeated, tag = "4")]
    pub excludes: Vec<DatanodeInfo>,
    #[prost(uint32, required, tag = "5")]
    pub num_additional_nodes: u32,
    #[prost(string, required, tag = "6")]
    pub client_name: String,
    #[prost(uint64, optional, tag = "8")]
    pub file_id: Option<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct AbandonBlockRequest {
    #[prost(message, optional, tag = "1")]
    pub b: Option<ExtendedBlock>,
    #[prost(string, required, tag = "2")]
    pub src: String,
    #[prost(string, required, tag = "3")]
    pub holder: String,
    #[prost(uint64, optional, tag = "4")]
    pub file_id: Option<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CompleteRequest {
    #[prost(string, required, tag = "1")]
    pub src: String,
    #[prost(string, required, tag = "2")]
    pub client_name: String,
    #[prost(message, optional, tag = "3")]
    pub last: Option<ExtendedBlock>,
    #[prost(uint64, optional, tag = "4")]
    pub file_id: Option<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct FsyncRequest {
    #[prost(string, required, tag = "1")]
    pub src: String,
    #[prost(string, required, tag = "2")]
    pub client: String,
    #[prost(sint64, optional, tag = "3")]
    pub last_block_length: Option<i64>,
    #[prost(uint64, optional, tag = "4")]
    pub file_id: Option<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct UpdateBlockForPipelineRequest {
    #[prost(message, optional, tag = "1")]
    pub block: Option<ExtendedBlock>,
    #[prost(string, required, tag = "2")]
    pub client_name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct UpdatePipelineRequest {
    #[prost(string, required, tag = "1")]
    pub client_name: String,
    #[prost(message, optional, tag = "2")]
    pub old_block: Option<ExtendedBlock>,
    #[prost(message, optional, tag = "3")]
    pub new_block: Option<ExtendedBlock>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RenewLeaseRequest {
    #[prost(string, required, tag = "1")]
    pub client_name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RecoverLeaseRequest {
    #[prost(string, required, tag = "1")]
    pub src: String,
    #[prost(string, required, tag = "2")]
    pub client_name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct TruncateRequest {
    #[prost(string, required, tag = "1")]
    pub src: String,
    #[prost(uint64, required, tag = "2")]
    pub new_length: u64,
    #[prost(string, required, tag = "3")]
    pub client_name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ConcatRequest {
    #[prost(string, required, tag = "1")]
    pub target: String,
    #[prost(string, repeated, tag = "2")]
    pub sources: Vec<String>,
}
