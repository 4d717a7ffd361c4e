//! The messages of Hadoop's protocols, as far as this door reads and writes them.
//!
//! Names follow Hadoop's definitions, without their `Proto`; the numbers are facts of the wire. A field that is not here
//! is skipped when it comes and never sent (ADR 0041). Enumerations are plain numbers, named at the end.

// RPC: RpcHeader.proto, IpcConnectionContext.proto, ProtobufRpcEngine2.proto.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RpcRequestHeader {
    #[prost(int32, optional, tag = "1")]
    pub(crate) rpc_kind: Option<i32>,
    #[prost(int32, optional, tag = "2")]
    pub(crate) rpc_op: Option<i32>,
    #[prost(sint32, required, tag = "3")]
    pub(crate) call_id: i32,
    #[prost(bytes = "vec", required, tag = "4")]
    pub(crate) client_id: Vec<u8>,
    #[prost(sint32, optional, tag = "5")]
    pub(crate) retry_count: Option<i32>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RpcResponseHeader {
    #[prost(uint32, required, tag = "1")]
    pub(crate) call_id: u32,
    #[prost(int32, required, tag = "2")]
    pub(crate) status: i32,
    #[prost(uint32, optional, tag = "3")]
    pub(crate) server_ipc_version_num: Option<u32>,
    #[prost(string, optional, tag = "4")]
    pub(crate) exception_class_name: Option<String>,
    #[prost(string, optional, tag = "5")]
    pub(crate) error_msg: Option<String>,
    #[prost(int32, optional, tag = "6")]
    pub(crate) error_detail: Option<i32>,
    #[prost(bytes = "vec", optional, tag = "7")]
    pub(crate) client_id: Option<Vec<u8>>,
    #[prost(sint32, optional, tag = "8")]
    pub(crate) retry_count: Option<i32>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RpcSasl {
    #[prost(uint32, optional, tag = "1")]
    pub(crate) version: Option<u32>,
    #[prost(int32, required, tag = "2")]
    pub(crate) state: i32,
    #[prost(bytes = "vec", optional, tag = "3")]
    pub(crate) token: Option<Vec<u8>>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) auths: Vec<SaslAuth>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SaslAuth {
    #[prost(string, required, tag = "1")]
    pub(crate) method: String,
    #[prost(string, required, tag = "2")]
    pub(crate) mechanism: String,
    #[prost(string, optional, tag = "3")]
    pub(crate) protocol: Option<String>,
    #[prost(string, optional, tag = "4")]
    pub(crate) server_id: Option<String>,
    #[prost(bytes = "vec", optional, tag = "5")]
    pub(crate) challenge: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct UserInformation {
    #[prost(string, optional, tag = "1")]
    pub(crate) effective_user: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(crate) real_user: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct IpcConnectionContext {
    #[prost(message, optional, tag = "2")]
    pub(crate) user_info: Option<UserInformation>,
    #[prost(string, optional, tag = "3")]
    pub(crate) protocol: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RequestHeader {
    #[prost(string, required, tag = "1")]
    pub(crate) method_name: String,
    #[prost(string, required, tag = "2")]
    pub(crate) declaring_class_protocol_name: String,
    #[prost(uint64, required, tag = "3")]
    pub(crate) client_protocol_version: u64,
}

// What calls and transfers share: Security.proto, acl.proto, hdfs.proto.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Token {
    #[prost(bytes = "vec", required, tag = "1")]
    pub(crate) identifier: Vec<u8>,
    #[prost(bytes = "vec", required, tag = "2")]
    pub(crate) password: Vec<u8>,
    #[prost(string, required, tag = "3")]
    pub(crate) kind: String,
    #[prost(string, required, tag = "4")]
    pub(crate) service: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct FsPermission {
    #[prost(uint32, required, tag = "1")]
    pub(crate) perm: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ExtendedBlock {
    #[prost(string, required, tag = "1")]
    pub(crate) pool_id: String,
    #[prost(uint64, required, tag = "2")]
    pub(crate) block_id: u64,
    #[prost(uint64, required, tag = "3")]
    pub(crate) generation_stamp: u64,
    #[prost(uint64, optional, tag = "4")]
    pub(crate) num_bytes: Option<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DatanodeId {
    #[prost(string, required, tag = "1")]
    pub(crate) ip_addr: String,
    #[prost(string, required, tag = "2")]
    pub(crate) host_name: String,
    #[prost(string, required, tag = "3")]
    pub(crate) datanode_uuid: String,
    #[prost(uint32, required, tag = "4")]
    pub(crate) xfer_port: u32,
    #[prost(uint32, required, tag = "5")]
    pub(crate) info_port: u32,
    #[prost(uint32, required, tag = "6")]
    pub(crate) ipc_port: u32,
    #[prost(uint32, optional, tag = "7")]
    pub(crate) info_secure_port: Option<u32>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DatanodeInfo {
    #[prost(message, optional, tag = "1")]
    pub(crate) id: Option<DatanodeId>,
    #[prost(uint64, optional, tag = "2")]
    pub(crate) capacity: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub(crate) dfs_used: Option<u64>,
    #[prost(uint64, optional, tag = "4")]
    pub(crate) remaining: Option<u64>,
    #[prost(uint64, optional, tag = "6")]
    pub(crate) last_update: Option<u64>,
    #[prost(string, optional, tag = "8")]
    pub(crate) location: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LocatedBlock {
    #[prost(message, optional, tag = "1")]
    pub(crate) b: Option<ExtendedBlock>,
    #[prost(uint64, required, tag = "2")]
    pub(crate) offset: u64,
    #[prost(message, repeated, tag = "3")]
    pub(crate) locs: Vec<DatanodeInfo>,
    #[prost(bool, required, tag = "4")]
    pub(crate) corrupt: bool,
    #[prost(message, optional, tag = "5")]
    pub(crate) block_token: Option<Token>,
    #[prost(bool, repeated, tag = "6")]
    pub(crate) is_cached: Vec<bool>,
    #[prost(int32, repeated, packed = "false", tag = "7")]
    pub(crate) storage_types: Vec<i32>,
    #[prost(string, repeated, tag = "8")]
    pub(crate) storage_ids: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LocatedBlocks {
    #[prost(uint64, required, tag = "1")]
    pub(crate) file_length: u64,
    #[prost(message, repeated, tag = "2")]
    pub(crate) blocks: Vec<LocatedBlock>,
    #[prost(bool, required, tag = "3")]
    pub(crate) under_construction: bool,
    #[prost(message, optional, tag = "4")]
    pub(crate) last_block: Option<LocatedBlock>,
    #[prost(bool, required, tag = "5")]
    pub(crate) is_last_block_complete: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct HdfsFileStatus {
    #[prost(int32, required, tag = "1")]
    pub(crate) file_type: i32,
    #[prost(bytes = "vec", required, tag = "2")]
    pub(crate) path: Vec<u8>,
    #[prost(uint64, required, tag = "3")]
    pub(crate) length: u64,
    #[prost(message, optional, tag = "4")]
    pub(crate) permission: Option<FsPermission>,
    #[prost(string, required, tag = "5")]
    pub(crate) owner: String,
    #[prost(string, required, tag = "6")]
    pub(crate) group: String,
    #[prost(uint64, required, tag = "7")]
    pub(crate) modification_time: u64,
    #[prost(uint64, required, tag = "8")]
    pub(crate) access_time: u64,
    #[prost(bytes = "vec", optional, tag = "9")]
    pub(crate) symlink: Option<Vec<u8>>,
    #[prost(uint32, optional, tag = "10")]
    pub(crate) block_replication: Option<u32>,
    #[prost(uint64, optional, tag = "11")]
    pub(crate) blocksize: Option<u64>,
    #[prost(message, optional, tag = "12")]
    pub(crate) locations: Option<LocatedBlocks>,
    #[prost(uint64, optional, tag = "13")]
    pub(crate) file_id: Option<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DirectoryListing {
    #[prost(message, repeated, tag = "1")]
    pub(crate) partial_listing: Vec<HdfsFileStatus>,
    #[prost(uint32, required, tag = "2")]
    pub(crate) remaining_entries: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ContentSummary {
    #[prost(uint64, required, tag = "1")]
    pub(crate) length: u64,
    #[prost(uint64, required, tag = "2")]
    pub(crate) file_count: u64,
    #[prost(uint64, required, tag = "3")]
    pub(crate) directory_count: u64,
    #[prost(uint64, required, tag = "4")]
    pub(crate) quota: u64,
    #[prost(uint64, required, tag = "5")]
    pub(crate) space_consumed: u64,
    #[prost(uint64, required, tag = "6")]
    pub(crate) space_quota: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct QuotaUsage {
    #[prost(uint64, required, tag = "1")]
    pub(crate) file_and_directory_count: u64,
    #[prost(uint64, required, tag = "2")]
    pub(crate) quota: u64,
    #[prost(uint64, required, tag = "3")]
    pub(crate) space_consumed: u64,
    #[prost(uint64, required, tag = "4")]
    pub(crate) space_quota: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct FsServerDefaults {
    #[prost(uint64, required, tag = "1")]
    pub(crate) block_size: u64,
    #[prost(uint32, required, tag = "2")]
    pub(crate) bytes_per_checksum: u32,
    #[prost(uint32, required, tag = "3")]
    pub(crate) write_packet_size: u32,
    #[prost(uint32, required, tag = "4")]
    pub(crate) replication: u32,
    #[prost(uint32, required, tag = "5")]
    pub(crate) file_buffer_size: u32,
    #[prost(bool, optional, tag = "6")]
    pub(crate) encrypt_data_transfer: Option<bool>,
    #[prost(uint64, optional, tag = "7")]
    pub(crate) trash_interval: Option<u64>,
    #[prost(int32, optional, tag = "8")]
    pub(crate) checksum_type: Option<i32>,
    #[prost(string, optional, tag = "9")]
    pub(crate) key_provider_uri: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct StorageTypes {
    #[prost(int32, repeated, packed = "false", tag = "1")]
    pub(crate) storage_types: Vec<i32>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct BlockStoragePolicy {
    #[prost(uint32, required, tag = "1")]
    pub(crate) policy_id: u32,
    #[prost(string, required, tag = "2")]
    pub(crate) name: String,
    #[prost(message, optional, tag = "3")]
    pub(crate) creation_policy: Option<StorageTypes>,
}

// Calls: ClientNamenodeProtocol.proto.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct GetBlockLocationsRequest {
    #[prost(string, required, tag = "1")]
    pub(crate) src: String,
    #[prost(uint64, required, tag = "2")]
    pub(crate) offset: u64,
    #[prost(uint64, required, tag = "3")]
    pub(crate) length: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct GetBlockLocationsResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) locations: Option<LocatedBlocks>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct GetServerDefaultsResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) server_defaults: Option<FsServerDefaults>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CreateRequest {
    #[prost(string, required, tag = "1")]
    pub(crate) src: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) masked: Option<FsPermission>,
    #[prost(string, required, tag = "3")]
    pub(crate) client_name: String,
    #[prost(uint32, required, tag = "4")]
    pub(crate) create_flag: u32,
    #[prost(bool, required, tag = "5")]
    pub(crate) create_parent: bool,
    #[prost(uint32, required, tag = "6")]
    pub(crate) replication: u32,
    #[prost(uint64, required, tag = "7")]
    pub(crate) block_size: u64,
    #[prost(string, optional, tag = "10")]
    pub(crate) ec_policy_name: Option<String>,
    #[prost(string, optional, tag = "11")]
    pub(crate) storage_policy: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CreateResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) fs: Option<HdfsFileStatus>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AppendRequest {
    #[prost(string, required, tag = "1")]
    pub(crate) src: String,
    #[prost(string, required, tag = "2")]
    pub(crate) client_name: String,
    #[prost(uint32, optional, tag = "3")]
    pub(crate) flag: Option<u32>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AppendResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) block: Option<LocatedBlock>,
    #[prost(message, optional, tag = "2")]
    pub(crate) stat: Option<HdfsFileStatus>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SetReplicationRequest {
    #[prost(string, required, tag = "1")]
    pub(crate) src: String,
    #[prost(uint32, required, tag = "2")]
    pub(crate) replication: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SetPermissionRequest {
    #[prost(string, required, tag = "1")]
    pub(crate) src: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) permission: Option<FsPermission>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SetOwnerRequest {
    #[prost(string, required, tag = "1")]
    pub(crate) src: String,
    #[prost(string, optional, tag = "2")]
    pub(crate) username: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub(crate) groupname: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AbandonBlockRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) b: Option<ExtendedBlock>,
    #[prost(string, required, tag = "2")]
    pub(crate) src: String,
    #[prost(string, required, tag = "3")]
    pub(crate) holder: String,
    #[prost(uint64, optional, tag = "4")]
    pub(crate) file_id: Option<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AddBlockRequest {
    #[prost(string, required, tag = "1")]
    pub(crate) src: String,
    #[prost(string, required, tag = "2")]
    pub(crate) client_name: String,
    #[prost(message, optional, tag = "3")]
    pub(crate) previous: Option<ExtendedBlock>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) exclude_nodes: Vec<DatanodeInfo>,
    #[prost(uint64, optional, tag = "5")]
    pub(crate) file_id: Option<u64>,
    #[prost(string, repeated, tag = "6")]
    pub(crate) favored_nodes: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct GetAdditionalDatanodeRequest {
    #[prost(string, required, tag = "1")]
    pub(crate) src: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) blk: Option<ExtendedBlock>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) existings: Vec<DatanodeInfo>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) excludes: Vec<DatanodeInfo>,
    #[prost(uint32, required, tag = "5")]
    pub(crate) num_additional_nodes: u32,
    #[prost(string, required, tag = "6")]
    pub(crate) client_name: String,
    #[prost(uint64, optional, tag = "8")]
    pub(crate) file_id: Option<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AddBlockResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) block: Option<LocatedBlock>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CompleteRequest {
    #[prost(string, required, tag = "1")]
    pub(crate) src: String,
    #[prost(string, required, tag = "2")]
    pub(crate) client_name: String,
    #[prost(message, optional, tag = "3")]
    pub(crate) last: Option<ExtendedBlock>,
    #[prost(uint64, optional, tag = "4")]
    pub(crate) file_id: Option<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TruncateRequest {
    #[prost(string, required, tag = "1")]
    pub(crate) src: String,
    #[prost(uint64, required, tag = "2")]
    pub(crate) new_length: u64,
    #[prost(string, required, tag = "3")]
    pub(crate) client_name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RenameRequest {
    #[prost(string, required, tag = "1")]
    pub(crate) src: String,
    #[prost(string, required, tag = "2")]
    pub(crate) dst: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Rename2Request {
    #[prost(string, required, tag = "1")]
    pub(crate) src: String,
    #[prost(string, required, tag = "2")]
    pub(crate) dst: String,
    #[prost(bool, required, tag = "3")]
    pub(crate) overwrite_dest: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DeleteRequest {
    #[prost(string, required, tag = "1")]
    pub(crate) src: String,
    #[prost(bool, required, tag = "2")]
    pub(crate) recursive: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct MkdirsRequest {
    #[prost(string, required, tag = "1")]
    pub(crate) src: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) masked: Option<FsPermission>,
    #[prost(bool, required, tag = "3")]
    pub(crate) create_parent: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct GetListingRequest {
    #[prost(string, required, tag = "1")]
    pub(crate) src: String,
    #[prost(bytes = "vec", required, tag = "2")]
    pub(crate) start_after: Vec<u8>,
    #[prost(bool, required, tag = "3")]
    pub(crate) need_location: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct GetListingResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) dir_list: Option<DirectoryListing>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RenewLeaseRequest {
    #[prost(string, required, tag = "1")]
    pub(crate) client_name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RecoverLeaseRequest {
    #[prost(string, required, tag = "1")]
    pub(crate) src: String,
    #[prost(string, required, tag = "2")]
    pub(crate) client_name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct GetFsStatsResponse {
    #[prost(uint64, required, tag = "1")]
    pub(crate) capacity: u64,
    #[prost(uint64, required, tag = "2")]
    pub(crate) used: u64,
    #[prost(uint64, required, tag = "3")]
    pub(crate) remaining: u64,
    #[prost(uint64, required, tag = "4")]
    pub(crate) under_replicated: u64,
    #[prost(uint64, required, tag = "5")]
    pub(crate) corrupt_blocks: u64,
    #[prost(uint64, required, tag = "6")]
    pub(crate) missing_blocks: u64,
    #[prost(uint64, optional, tag = "7")]
    pub(crate) missing_repl_one_blocks: Option<u64>,
    #[prost(uint64, optional, tag = "8")]
    pub(crate) blocks_in_future: Option<u64>,
    #[prost(uint64, optional, tag = "9")]
    pub(crate) pending_deletion_blocks: Option<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct GetDatanodeReportRequest {
    #[prost(int32, required, tag = "1")]
    pub(crate) kind: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct GetDatanodeReportResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) di: Vec<DatanodeInfo>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SetSafeModeRequest {
    #[prost(int32, required, tag = "1")]
    pub(crate) action: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct GetFileInfoResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) fs: Option<HdfsFileStatus>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct GetContentSummaryResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) summary: Option<ContentSummary>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct GetQuotaUsageResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) usage: Option<QuotaUsage>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct FsyncRequest {
    #[prost(string, required, tag = "1")]
    pub(crate) src: String,
    #[prost(string, required, tag = "2")]
    pub(crate) client: String,
    #[prost(sint64, optional, tag = "3")]
    pub(crate) last_block_length: Option<i64>,
    #[prost(uint64, optional, tag = "4")]
    pub(crate) file_id: Option<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SetTimesRequest {
    #[prost(string, required, tag = "1")]
    pub(crate) src: String,
    #[prost(uint64, required, tag = "2")]
    pub(crate) mtime: u64,
    #[prost(uint64, required, tag = "3")]
    pub(crate) atime: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct UpdateBlockForPipelineRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) block: Option<ExtendedBlock>,
    #[prost(string, required, tag = "2")]
    pub(crate) client_name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct UpdatePipelineRequest {
    #[prost(string, required, tag = "1")]
    pub(crate) client_name: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) old_block: Option<ExtendedBlock>,
    #[prost(message, optional, tag = "3")]
    pub(crate) new_block: Option<ExtendedBlock>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ConcatRequest {
    #[prost(string, required, tag = "1")]
    pub(crate) target: String,
    #[prost(string, repeated, tag = "2")]
    pub(crate) sources: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct XAttr {
    #[prost(int32, required, tag = "1")]
    pub(crate) namespace: i32,
    #[prost(string, required, tag = "2")]
    pub(crate) name: String,
    #[prost(bytes = "vec", optional, tag = "3")]
    pub(crate) value: Option<Vec<u8>>,
}

/// `setXAttr` and, without a flag, `removeXAttr`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SetXAttrRequest {
    #[prost(string, required, tag = "1")]
    pub(crate) src: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) xattr: Option<XAttr>,
    #[prost(uint32, optional, tag = "3")]
    pub(crate) flag: Option<u32>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct XAttrsRequest {
    #[prost(string, required, tag = "1")]
    pub(crate) src: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) xattrs: Vec<XAttr>,
}

/// The answer to `getXAttrs` and `listXAttrs`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct XAttrsResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) xattrs: Vec<XAttr>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CheckAccessRequest {
    #[prost(string, required, tag = "1")]
    pub(crate) path: String,
    #[prost(int32, required, tag = "2")]
    pub(crate) mode: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct GetStoragePolicyResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) storage_policy: Option<BlockStoragePolicy>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct GetStoragePoliciesResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) policies: Vec<BlockStoragePolicy>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct HaServiceStateResponse {
    #[prost(int32, required, tag = "1")]
    pub(crate) state: i32,
}

// Transfers: datatransfer.proto.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct BaseHeader {
    #[prost(message, optional, tag = "1")]
    pub(crate) block: Option<ExtendedBlock>,
    #[prost(message, optional, tag = "2")]
    pub(crate) token: Option<Token>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ClientOperationHeader {
    #[prost(message, optional, tag = "1")]
    pub(crate) base_header: Option<BaseHeader>,
    #[prost(string, required, tag = "2")]
    pub(crate) client_name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct OpReadBlock {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ClientOperationHeader>,
    #[prost(uint64, required, tag = "2")]
    pub(crate) offset: u64,
    #[prost(uint64, required, tag = "3")]
    pub(crate) len: u64,
    #[prost(bool, optional, tag = "4")]
    pub(crate) send_checksums: Option<bool>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Checksum {
    #[prost(int32, required, tag = "1")]
    pub(crate) kind: i32,
    #[prost(uint32, required, tag = "2")]
    pub(crate) bytes_per_checksum: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct OpWriteBlock {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ClientOperationHeader>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) targets: Vec<DatanodeInfo>,
    #[prost(int32, required, tag = "4")]
    pub(crate) stage: i32,
    #[prost(uint32, required, tag = "5")]
    pub(crate) pipeline_size: u32,
    #[prost(uint64, required, tag = "6")]
    pub(crate) min_bytes_rcvd: u64,
    #[prost(uint64, required, tag = "7")]
    pub(crate) max_bytes_rcvd: u64,
    #[prost(uint64, required, tag = "8")]
    pub(crate) latest_generation_stamp: u64,
    #[prost(message, optional, tag = "9")]
    pub(crate) requested_checksum: Option<Checksum>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct OpTransferBlock {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ClientOperationHeader>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct BlockChecksumOptions {
    #[prost(int32, optional, tag = "1")]
    pub(crate) block_checksum_type: Option<i32>,
    #[prost(uint64, optional, tag = "2")]
    pub(crate) stripe_length: Option<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct OpBlockChecksum {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<BaseHeader>,
    #[prost(message, optional, tag = "2")]
    pub(crate) block_checksum_options: Option<BlockChecksumOptions>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct OpBlockChecksumResponse {
    #[prost(uint32, required, tag = "1")]
    pub(crate) bytes_per_crc: u32,
    #[prost(uint64, required, tag = "2")]
    pub(crate) crc_per_block: u64,
    #[prost(bytes = "vec", required, tag = "3")]
    pub(crate) block_checksum: Vec<u8>,
    #[prost(int32, optional, tag = "4")]
    pub(crate) crc_type: Option<i32>,
    #[prost(message, optional, tag = "5")]
    pub(crate) block_checksum_options: Option<BlockChecksumOptions>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PacketHeader {
    #[prost(sfixed64, required, tag = "1")]
    pub(crate) offset_in_block: i64,
    #[prost(sfixed64, required, tag = "2")]
    pub(crate) seqno: i64,
    #[prost(bool, required, tag = "3")]
    pub(crate) last_packet_in_block: bool,
    #[prost(sfixed32, required, tag = "4")]
    pub(crate) data_len: i32,
    #[prost(bool, optional, tag = "5")]
    pub(crate) sync_block: Option<bool>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PipelineAck {
    #[prost(sint64, required, tag = "1")]
    pub(crate) seqno: i64,
    #[prost(int32, repeated, packed = "false", tag = "2")]
    pub(crate) reply: Vec<i32>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ReadOpChecksumInfo {
    #[prost(message, optional, tag = "1")]
    pub(crate) checksum: Option<Checksum>,
    #[prost(uint64, required, tag = "2")]
    pub(crate) chunk_offset: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct BlockOpResponse {
    #[prost(int32, required, tag = "1")]
    pub(crate) status: i32,
    #[prost(string, optional, tag = "2")]
    pub(crate) first_bad_link: Option<String>,
    #[prost(message, optional, tag = "3")]
    pub(crate) checksum_response: Option<OpBlockChecksumResponse>,
    #[prost(message, optional, tag = "4")]
    pub(crate) read_op_checksum_info: Option<ReadOpChecksumInfo>,
    #[prost(string, optional, tag = "5")]
    pub(crate) message: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ClientReadStatus {
    #[prost(int32, required, tag = "1")]
    pub(crate) status: i32,
}

/// `RpcRequestHeader::rpc_kind`: a call whose parameters are a message.
pub(crate) const RPC_PROTOCOL_BUFFER: i32 = 2;

/// `RpcResponseHeader::status`.
pub(crate) mod rpc_status {
    pub(crate) const SUCCESS: i32 = 0;
    pub(crate) const ERROR: i32 = 1;
    /// The connection ends behind it.
    pub(crate) const FATAL: i32 = 2;
}

/// `RpcResponseHeader::error_detail`.
pub(crate) mod rpc_error {
    pub(crate) const APPLICATION: i32 = 1;
    pub(crate) const NO_SUCH_METHOD: i32 = 2;
    pub(crate) const NO_SUCH_PROTOCOL: i32 = 3;
    pub(crate) const INVALID_RPC_HEADER: i32 = 12;
    pub(crate) const DESERIALIZING_REQUEST: i32 = 13;
    pub(crate) const VERSION_MISMATCH: i32 = 14;
    pub(crate) const UNAUTHORIZED: i32 = 15;
}

/// `RpcSasl::state`.
pub(crate) mod sasl {
    pub(crate) const SUCCESS: i32 = 0;
    pub(crate) const NEGOTIATE: i32 = 1;
}

/// `HdfsFileStatus::file_type`.
pub(crate) mod file_type {
    pub(crate) const DIRECTORY: i32 = 1;
    pub(crate) const FILE: i32 = 2;
    pub(crate) const SYMLINK: i32 = 3;
}

/// Bits of `CreateRequest::create_flag`.
pub(crate) mod create_flag {
    pub(crate) const OVERWRITE: u32 = 2;
    pub(crate) const APPEND: u32 = 4;
}

/// `Checksum::kind`.
pub(crate) mod checksum {
    pub(crate) const NULL: i32 = 0;
    pub(crate) const CRC32: i32 = 1;
    pub(crate) const CRC32C: i32 = 2;
}

/// `BlockChecksumOptions::block_checksum_type`.
pub(crate) mod block_checksum {
    /// MD5 over the CRCs of the block.
    pub(crate) const MD5_OF_CRCS: i32 = 1;
    /// The CRC of the block as a whole.
    pub(crate) const COMPOSITE_CRC: i32 = 2;
}

/// `XAttr::namespace`.
pub(crate) mod xattr_namespace {
    pub(crate) const USER: i32 = 0;
    pub(crate) const TRUSTED: i32 = 1;
    pub(crate) const SECURITY: i32 = 2;
}

/// `SetXAttrRequest::flag`.
pub(crate) mod xattr_flag {
    pub(crate) const CREATE: u32 = 1;
    pub(crate) const REPLACE: u32 = 2;
}

/// `OpWriteBlock::stage`.
pub(crate) mod stage {
    pub(crate) const SETUP_STREAMING_RECOVERY: i32 = 3;
    pub(crate) const CLOSE_RECOVERY: i32 = 5;
    pub(crate) const SETUP_CREATE: i32 = 6;
}

/// `BlockOpResponse::status`, `PipelineAck::reply`.
pub(crate) mod status {
    pub(crate) const SUCCESS: i32 = 0;
    pub(crate) const ERROR: i32 = 1;
    pub(crate) const ERROR_CHECKSUM: i32 = 2;
    pub(crate) const ERROR_INVALID: i32 = 3;
    pub(crate) const ERROR_EXISTS: i32 = 4;
    pub(crate) const ERROR_ACCESS_TOKEN: i32 = 5;
    pub(crate) const ERROR_UNSUPPORTED: i32 = 7;
}

/// `SetSafeModeRequest::action`.
pub(crate) const SAFEMODE_ENTER: i32 = 2;
/// See [`SAFEMODE_ENTER`]. Anything else leaves.
pub(crate) const SAFEMODE_GET: i32 = 3;
/// `StorageType` of every location.
pub(crate) const DISK: i32 = 1;
/// `HAServiceStateResponse::state`: the one that answers.
pub(crate) const ACTIVE: i32 = 1;

// What several calls have in common.

/// A call about a path alone: `getFileInfo`, `getContentSummary`, `isFileClosed` and others.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PathRequest {
    #[prost(string, required, tag = "1")]
    pub(crate) path: String,
}

/// An answer of yes or no: `delete`, `rename`, `complete` and others.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ResultResponse {
    #[prost(bool, required, tag = "1")]
    pub(crate) result: bool,
}

/// An answer of a number: `getPreferredBlockSize`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct NumberResponse {
    #[prost(uint64, required, tag = "1")]
    pub(crate) number: u64,
}

/// The answer to calls that give a block: `addBlock`, `updateBlockForPipeline`.
pub(crate) type BlockResponse = AddBlockResponse;

/// `AclStatus`: what `getAclStatus` answers, of a file without an access list.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AclStatus {
    #[prost(string, required, tag = "1")]
    pub(crate) owner: String,
    #[prost(string, required, tag = "2")]
    pub(crate) group: String,
    #[prost(bool, required, tag = "3")]
    pub(crate) sticky: bool,
    #[prost(message, optional, tag = "5")]
    pub(crate) permission: Option<FsPermission>,
}

/// See [`AclStatus`].
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct GetAclStatusResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) result: Option<AclStatus>,
}
