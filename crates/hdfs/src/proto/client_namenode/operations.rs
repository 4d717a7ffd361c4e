//! Calls about the cluster and its settings, of `ClientNamenodeProtocol.proto`.

use crate::proto::hdfs::{BlockStoragePolicy, CorruptFileBlocks, DatanodeInfo, FsServerDefaults};

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetFsStatsResponse {
    #[prost(uint64, required, tag = "1")]
    pub capacity: u64,
    #[prost(uint64, required, tag = "2")]
    pub used: u64,
    #[prost(uint64, required, tag = "3")]
    pub remaining: u64,
    #[prost(uint64, required, tag = "4")]
    pub under_replicated: u64,
    #[prost(uint64, required, tag = "5")]
    pub corrupt_blocks: u64,
    #[prost(uint64, required, tag = "6")]
    pub missing_blocks: u64,
    #[prost(uint64, optional, tag = "7")]
    pub missing_repl_one_blocks: Option<u64>,
    #[prost(uint64, optional, tag = "8")]
    pub blocks_in_future: Option<u64>,
    #[prost(uint64, optional, tag = "9")]
    pub pending_deletion_blocks: Option<u64>,
}

/// Statistics of replicated blocks.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetFsReplicatedBlockStatsResponse {
    #[prost(uint64, required, tag = "1")]
    pub low_redundancy: u64,
    #[prost(uint64, required, tag = "2")]
    pub corrupt_blocks: u64,
    #[prost(uint64, required, tag = "3")]
    pub missing_blocks: u64,
    #[prost(uint64, required, tag = "4")]
    pub missing_repl_one_blocks: u64,
    #[prost(uint64, required, tag = "5")]
    pub blocks_in_future: u64,
    #[prost(uint64, required, tag = "6")]
    pub pending_deletion_blocks: u64,
    #[prost(uint64, optional, tag = "7")]
    pub highest_prio_low_redundancy_blocks: Option<u64>,
}

/// Statistics of erasure-coded blocks.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetFsEcBlockGroupStatsResponse {
    #[prost(uint64, required, tag = "1")]
    pub low_redundancy: u64,
    #[prost(uint64, required, tag = "2")]
    pub corrupt_blocks: u64,
    #[prost(uint64, required, tag = "3")]
    pub missing_blocks: u64,
    #[prost(uint64, required, tag = "4")]
    pub blocks_in_future: u64,
    #[prost(uint64, required, tag = "5")]
    pub pending_deletion_blocks: u64,
    #[prost(uint64, optional, tag = "6")]
    pub highest_prio_low_redundancy_blocks: Option<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetDatanodeReportRequest {
    #[prost(int32, required, tag = "1")]
    pub kind: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetDatanodeReportResponse {
    #[prost(message, repeated, tag = "1")]
    pub di: Vec<DatanodeInfo>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct SetSafeModeRequest {
    #[prost(int32, required, tag = "1")]
    pub action: i32,
}

/// `SetSafeModeRequest::action`.
pub const SAFEMODE_ENTER: i32 = 2;

/// See [`SAFEMODE_ENTER`]. Any other number leaves safe mode.
pub const SAFEMODE_GET: i32 = 3;

#[derive(Clone, PartialEq, prost::Message)]
pub struct ListCorruptFileBlocksRequest {
    #[prost(string, required, tag = "1")]
    pub path: String,
    #[prost(string, optional, tag = "2")]
    pub cookie: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ListCorruptFileBlocksResponse {
    #[prost(message, required, tag = "1")]
    pub corrupt: CorruptFileBlocks,
}

/// `ListOpenFilesRequest::types`.
pub mod open_files {
    pub const ALL: i32 = 1;
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ListOpenFilesRequest {
    /// Files with a larger number follow.
    #[prost(int64, required, tag = "1")]
    pub id: i64,
    #[prost(int32, repeated, packed = "false", tag = "2")]
    pub types: Vec<i32>,
    #[prost(string, optional, tag = "3")]
    pub path: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ListOpenFilesResponse {
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<OpenFilesBatch>,
    #[prost(bool, required, tag = "2")]
    pub has_more: bool,
    #[prost(int32, repeated, packed = "false", tag = "3")]
    pub types: Vec<i32>,
}

/// One file that is open for writing.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OpenFilesBatch {
    #[prost(int64, required, tag = "1")]
    pub id: i64,
    #[prost(string, required, tag = "2")]
    pub path: String,
    #[prost(string, required, tag = "3")]
    pub client_name: String,
    #[prost(string, required, tag = "4")]
    pub client_machine: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetStoragePolicyResponse {
    #[prost(message, optional, tag = "1")]
    pub storage_policy: Option<BlockStoragePolicy>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetStoragePoliciesResponse {
    #[prost(message, repeated, tag = "1")]
    pub policies: Vec<BlockStoragePolicy>,
}

/// The end of a list whose field 2 says whether more follows: an empty list.
#[derive(Clone, PartialEq, prost::Message)]
pub struct NoneListed {
    #[prost(bool, required, tag = "2")]
    pub has_more: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct UpgradeStatusResponse {
    #[prost(bool, required, tag = "1")]
    pub upgrade_finalized: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetEnclosingRootResponse {
    #[prost(string, optional, tag = "1")]
    pub enclosing_root_path: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetServerDefaultsResponse {
    #[prost(message, optional, tag = "1")]
    pub server_defaults: Option<FsServerDefaults>,
}
