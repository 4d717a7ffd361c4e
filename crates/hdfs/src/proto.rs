//! The messages of Hadoop's protocols, as far as this door reads and writes them.
//!
//! Names follow Hadoop's definitions, without their `Proto`; the numbers are facts of the wire. A field that is not here
//! is skipped when it comes and never sent (ADR 0041). Enumerations are plain numbers, named at the end.

// one idea: the messages of Hadoop's protocols, one after the other.
#![expect(
    missing_docs,
    reason = "what a field means is what Hadoop's definitions say; a second text would only differ"
)]

// RPC: RpcHeader.proto, IpcConnectionContext.proto, ProtobufRpcEngine2.proto.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RpcRequestHeader {
    #[prost(int32, optional, tag = "1")]
    pub rpc_kind: Option<i32>,
    #[prost(int32, optional, tag = "2")]
    pub rpc_op: Option<i32>,
    #[prost(sint32, required, tag = "3")]
    pub call_id: i32,
    #[prost(bytes = "vec", required, tag = "4")]
    pub client_id: Vec<u8>,
    #[prost(sint32, optional, tag = "5")]
    pub retry_count: Option<i32>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RpcResponseHeader {
    #[prost(uint32, required, tag = "1")]
    pub call_id: u32,
    #[prost(int32, required, tag = "2")]
    pub status: i32,
    #[prost(uint32, optional, tag = "3")]
    pub server_ipc_version_num: Option<u32>,
    #[prost(string, optional, tag = "4")]
    pub exception_class_name: Option<String>,
    #[prost(string, optional, tag = "5")]
    pub error_msg: Option<String>,
    #[prost(int32, optional, tag = "6")]
    pub error_detail: Option<i32>,
    #[prost(bytes = "vec", optional, tag = "7")]
    pub client_id: Option<Vec<u8>>,
    #[prost(sint32, optional, tag = "8")]
    pub retry_count: Option<i32>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RpcSasl {
    #[prost(uint32, optional, tag = "1")]
    pub version: Option<u32>,
    #[prost(int32, required, tag = "2")]
    pub state: i32,
    #[prost(bytes = "vec", optional, tag = "3")]
    pub token: Option<Vec<u8>>,
    #[prost(message, repeated, tag = "4")]
    pub auths: Vec<SaslAuth>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct SaslAuth {
    #[prost(string, required, tag = "1")]
    pub method: String,
    #[prost(string, required, tag = "2")]
    pub mechanism: String,
    #[prost(string, optional, tag = "3")]
    pub protocol: Option<String>,
    #[prost(string, optional, tag = "4")]
    pub server_id: Option<String>,
    #[prost(bytes = "vec", optional, tag = "5")]
    pub challenge: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct UserInformation {
    #[prost(string, optional, tag = "1")]
    pub effective_user: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub real_user: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct IpcConnectionContext {
    #[prost(message, optional, tag = "2")]
    pub user_info: Option<UserInformation>,
    #[prost(string, optional, tag = "3")]
    pub protocol: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RequestHeader {
    #[prost(string, required, tag = "1")]
    pub method_name: String,
    #[prost(string, required, tag = "2")]
    pub declaring_class_protocol_name: String,
    #[prost(uint64, required, tag = "3")]
    pub client_protocol_version: u64,
}

// What calls and transfers share: Security.proto, acl.proto, hdfs.proto.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Token {
    #[prost(bytes = "vec", required, tag = "1")]
    pub identifier: Vec<u8>,
    #[prost(bytes = "vec", required, tag = "2")]
    pub password: Vec<u8>,
    #[prost(string, required, tag = "3")]
    pub kind: String,
    #[prost(string, required, tag = "4")]
    pub service: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct FsPermission {
    #[prost(uint32, required, tag = "1")]
    pub perm: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ExtendedBlock {
    #[prost(string, required, tag = "1")]
    pub pool_id: String,
    #[prost(uint64, required, tag = "2")]
    pub block_id: u64,
    #[prost(uint64, required, tag = "3")]
    pub generation_stamp: u64,
    #[prost(uint64, optional, tag = "4")]
    pub num_bytes: Option<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct DatanodeId {
    #[prost(string, required, tag = "1")]
    pub ip_addr: String,
    #[prost(string, required, tag = "2")]
    pub host_name: String,
    #[prost(string, required, tag = "3")]
    pub datanode_uuid: String,
    #[prost(uint32, required, tag = "4")]
    pub xfer_port: u32,
    #[prost(uint32, required, tag = "5")]
    pub info_port: u32,
    #[prost(uint32, required, tag = "6")]
    pub ipc_port: u32,
    #[prost(uint32, optional, tag = "7")]
    pub info_secure_port: Option<u32>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct DatanodeInfo {
    #[prost(message, optional, tag = "1")]
    pub id: Option<DatanodeId>,
    #[prost(uint64, optional, tag = "2")]
    pub capacity: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub dfs_used: Option<u64>,
    #[prost(uint64, optional, tag = "4")]
    pub remaining: Option<u64>,
    #[prost(uint64, optional, tag = "6")]
    pub last_update: Option<u64>,
    #[prost(string, optional, tag = "8")]
    pub location: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct LocatedBlock {
    #[prost(message, optional, tag = "1")]
    pub b: Option<ExtendedBlock>,
    #[prost(uint64, required, tag = "2")]
    pub offset: u64,
    #[prost(message, repeated, tag = "3")]
    pub locs: Vec<DatanodeInfo>,
    #[prost(bool, required, tag = "4")]
    pub corrupt: bool,
    #[prost(message, optional, tag = "5")]
    pub block_token: Option<Token>,
    #[prost(bool, repeated, tag = "6")]
    pub is_cached: Vec<bool>,
    #[prost(int32, repeated, packed = "false", tag = "7")]
    pub storage_types: Vec<i32>,
    #[prost(string, repeated, tag = "8")]
    pub storage_ids: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct LocatedBlocks {
    #[prost(uint64, required, tag = "1")]
    pub file_length: u64,
    #[prost(message, repeated, tag = "2")]
    pub blocks: Vec<LocatedBlock>,
    #[prost(bool, required, tag = "3")]
    pub under_construction: bool,
    #[prost(message, optional, tag = "4")]
    pub last_block: Option<LocatedBlock>,
    #[prost(bool, required, tag = "5")]
    pub is_last_block_complete: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct HdfsFileStatus {
    #[prost(int32, required, tag = "1")]
    pub file_type: i32,
    #[prost(bytes = "vec", required, tag = "2")]
    pub path: Vec<u8>,
    #[prost(uint64, required, tag = "3")]
    pub length: u64,
    #[prost(message, optional, tag = "4")]
    pub permission: Option<FsPermission>,
    #[prost(string, required, tag = "5")]
    pub owner: String,
    #[prost(string, required, tag = "6")]
    pub group: String,
    #[prost(uint64, required, tag = "7")]
    pub modification_time: u64,
    #[prost(uint64, required, tag = "8")]
    pub access_time: u64,
    #[prost(bytes = "vec", optional, tag = "9")]
    pub symlink: Option<Vec<u8>>,
    #[prost(uint32, optional, tag = "10")]
    pub block_replication: Option<u32>,
    #[prost(uint64, optional, tag = "11")]
    pub blocksize: Option<u64>,
    #[prost(message, optional, tag = "12")]
    pub locations: Option<LocatedBlocks>,
    #[prost(uint64, optional, tag = "13")]
    pub file_id: Option<u64>,
    #[prost(uint32, optional, tag = "18")]
    pub flags: Option<u32>,
}

/// `HdfsFileStatus::flags`: there is an access list.
pub const HAS_ACL: u32 = 1;
/// The same in `FsPermission` for clients of Hadoop 2.
pub const ACL_BIT: u32 = 1 << 12;

#[derive(Clone, PartialEq, prost::Message)]
pub struct DirectoryListing {
    #[prost(message, repeated, tag = "1")]
    pub partial_listing: Vec<HdfsFileStatus>,
    #[prost(uint32, required, tag = "2")]
    pub remaining_entries: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ContentSummary {
    #[prost(uint64, required, tag = "1")]
    pub length: u64,
    #[prost(uint64, required, tag = "2")]
    pub file_count: u64,
    #[prost(uint64, required, tag = "3")]
    pub directory_count: u64,
    #[prost(uint64, required, tag = "4")]
    pub quota: u64,
    #[prost(uint64, required, tag = "5")]
    pub space_consumed: u64,
    #[prost(uint64, required, tag = "6")]
    pub space_quota: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct QuotaUsage {
    #[prost(uint64, required, tag = "1")]
    pub file_and_directory_count: u64,
    #[prost(uint64, required, tag = "2")]
    pub quota: u64,
    #[prost(uint64, required, tag = "3")]
    pub space_consumed: u64,
    #[prost(uint64, required, tag = "4")]
    pub space_quota: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct FsServerDefaults {
    #[prost(uint64, required, tag = "1")]
    pub block_size: u64,
    #[prost(uint32, required, tag = "2")]
    pub bytes_per_checksum: u32,
    #[prost(uint32, required, tag = "3")]
    pub write_packet_size: u32,
    #[prost(uint32, required, tag = "4")]
    pub replication: u32,
    #[prost(uint32, required, tag = "5")]
    pub file_buffer_size: u32,
    #[prost(bool, optional, tag = "6")]
    pub encrypt_data_transfer: Option<bool>,
    #[prost(uint64, optional, tag = "7")]
    pub trash_interval: Option<u64>,
    #[prost(int32, optional, tag = "8")]
    pub checksum_type: Option<i32>,
    #[prost(string, optional, tag = "9")]
    pub key_provider_uri: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct StorageTypes {
    #[prost(int32, repeated, packed = "false", tag = "1")]
    pub storage_types: Vec<i32>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct BlockStoragePolicy {
    #[prost(uint32, required, tag = "1")]
    pub policy_id: u32,
    #[prost(string, required, tag = "2")]
    pub name: String,
    #[prost(message, optional, tag = "3")]
    pub creation_policy: Option<StorageTypes>,
}

// Calls: ClientNamenodeProtocol.proto.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetBlockLocationsRequest {
    #[prost(string, required, tag = "1")]
    pub src: String,
    #[prost(uint64, required, tag = "2")]
    pub offset: u64,
    #[prost(uint64, required, tag = "3")]
    pub length: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetBlockLocationsResponse {
    #[prost(message, optional, tag = "1")]
    pub locations: Option<LocatedBlocks>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetServerDefaultsResponse {
    #[prost(message, optional, tag = "1")]
    pub server_defaults: Option<FsServerDefaults>,
}

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
pub struct SetReplicationRequest {
    #[prost(string, required, tag = "1")]
    pub src: String,
    #[prost(uint32, required, tag = "2")]
    pub replication: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct SetPermissionRequest {
    #[prost(string, required, tag = "1")]
    pub src: String,
    #[prost(message, optional, tag = "2")]
    pub permission: Option<FsPermission>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct SetOwnerRequest {
    #[prost(string, required, tag = "1")]
    pub src: String,
    #[prost(string, optional, tag = "2")]
    pub username: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub groupname: Option<String>,
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
pub struct AddBlockResponse {
    #[prost(message, optional, tag = "1")]
    pub block: Option<LocatedBlock>,
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
pub struct TruncateRequest {
    #[prost(string, required, tag = "1")]
    pub src: String,
    #[prost(uint64, required, tag = "2")]
    pub new_length: u64,
    #[prost(string, required, tag = "3")]
    pub client_name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RenameRequest {
    #[prost(string, required, tag = "1")]
    pub src: String,
    #[prost(string, required, tag = "2")]
    pub dst: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Rename2Request {
    #[prost(string, required, tag = "1")]
    pub src: String,
    #[prost(string, required, tag = "2")]
    pub dst: String,
    #[prost(bool, required, tag = "3")]
    pub overwrite_dest: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct DeleteRequest {
    #[prost(string, required, tag = "1")]
    pub src: String,
    #[prost(bool, required, tag = "2")]
    pub recursive: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct MkdirsRequest {
    #[prost(string, required, tag = "1")]
    pub src: String,
    #[prost(message, optional, tag = "2")]
    pub masked: Option<FsPermission>,
    #[prost(bool, required, tag = "3")]
    pub create_parent: bool,
    #[prost(message, optional, tag = "4")]
    pub unmasked: Option<FsPermission>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetListingRequest {
    #[prost(string, required, tag = "1")]
    pub src: String,
    #[prost(bytes = "vec", required, tag = "2")]
    pub start_after: Vec<u8>,
    #[prost(bool, required, tag = "3")]
    pub need_location: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetListingResponse {
    #[prost(message, optional, tag = "1")]
    pub dir_list: Option<DirectoryListing>,
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

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetFileInfoResponse {
    #[prost(message, optional, tag = "1")]
    pub fs: Option<HdfsFileStatus>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetContentSummaryResponse {
    #[prost(message, optional, tag = "1")]
    pub summary: Option<ContentSummary>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct SetQuotaRequest {
    #[prost(string, required, tag = "1")]
    pub path: String,
    /// Files and directories; two numbers stand for what they are not.
    #[prost(uint64, required, tag = "2")]
    pub namespace_quota: u64,
    /// Bytes.
    #[prost(uint64, required, tag = "3")]
    pub storagespace_quota: u64,
    /// Of one kind of storage alone.
    #[prost(int32, optional, tag = "4")]
    pub storage_type: Option<i32>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetQuotaUsageResponse {
    #[prost(message, optional, tag = "1")]
    pub usage: Option<QuotaUsage>,
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
pub struct SetTimesRequest {
    #[prost(string, required, tag = "1")]
    pub src: String,
    #[prost(uint64, required, tag = "2")]
    pub mtime: u64,
    #[prost(uint64, required, tag = "3")]
    pub atime: u64,
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
pub struct ConcatRequest {
    #[prost(string, required, tag = "1")]
    pub target: String,
    #[prost(string, repeated, tag = "2")]
    pub sources: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct XAttr {
    #[prost(int32, required, tag = "1")]
    pub namespace: i32,
    #[prost(string, required, tag = "2")]
    pub name: String,
    #[prost(bytes = "vec", optional, tag = "3")]
    pub value: Option<Vec<u8>>,
}

/// `setXAttr` and, without a flag, `removeXAttr`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SetXAttrRequest {
    #[prost(string, required, tag = "1")]
    pub src: String,
    #[prost(message, optional, tag = "2")]
    pub xattr: Option<XAttr>,
    #[prost(uint32, optional, tag = "3")]
    pub flag: Option<u32>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct XAttrsRequest {
    #[prost(string, required, tag = "1")]
    pub src: String,
    #[prost(message, repeated, tag = "2")]
    pub xattrs: Vec<XAttr>,
}

/// The answer to `getXAttrs` and `listXAttrs`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct XAttrsResponse {
    #[prost(message, repeated, tag = "1")]
    pub xattrs: Vec<XAttr>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CheckAccessRequest {
    #[prost(string, required, tag = "1")]
    pub path: String,
    #[prost(int32, required, tag = "2")]
    pub mode: i32,
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

#[derive(Clone, PartialEq, prost::Message)]
pub struct HaServiceStateResponse {
    #[prost(int32, required, tag = "1")]
    pub state: i32,
}

// Transfers: datatransfer.proto.
#[derive(Clone, PartialEq, prost::Message)]
pub struct BaseHeader {
    #[prost(message, optional, tag = "1")]
    pub block: Option<ExtendedBlock>,
    #[prost(message, optional, tag = "2")]
    pub token: Option<Token>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ClientOperationHeader {
    #[prost(message, optional, tag = "1")]
    pub base_header: Option<BaseHeader>,
    #[prost(string, required, tag = "2")]
    pub client_name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct OpReadBlock {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ClientOperationHeader>,
    #[prost(uint64, required, tag = "2")]
    pub offset: u64,
    #[prost(uint64, required, tag = "3")]
    pub len: u64,
    #[prost(bool, optional, tag = "4")]
    pub send_checksums: Option<bool>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Checksum {
    #[prost(int32, required, tag = "1")]
    pub kind: i32,
    #[prost(uint32, required, tag = "2")]
    pub bytes_per_checksum: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct OpWriteBlock {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ClientOperationHeader>,
    #[prost(message, repeated, tag = "2")]
    pub targets: Vec<DatanodeInfo>,
    #[prost(int32, required, tag = "4")]
    pub stage: i32,
    #[prost(uint32, required, tag = "5")]
    pub pipeline_size: u32,
    #[prost(uint64, required, tag = "6")]
    pub min_bytes_rcvd: u64,
    #[prost(uint64, required, tag = "7")]
    pub max_bytes_rcvd: u64,
    #[prost(uint64, required, tag = "8")]
    pub latest_generation_stamp: u64,
    #[prost(message, optional, tag = "9")]
    pub requested_checksum: Option<Checksum>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct OpTransferBlock {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ClientOperationHeader>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct BlockChecksumOptions {
    #[prost(int32, optional, tag = "1")]
    pub block_checksum_type: Option<i32>,
    #[prost(uint64, optional, tag = "2")]
    pub stripe_length: Option<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct OpBlockChecksum {
    #[prost(message, optional, tag = "1")]
    pub header: Option<BaseHeader>,
    #[prost(message, optional, tag = "2")]
    pub block_checksum_options: Option<BlockChecksumOptions>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct OpBlockChecksumResponse {
    #[prost(uint32, required, tag = "1")]
    pub bytes_per_crc: u32,
    #[prost(uint64, required, tag = "2")]
    pub crc_per_block: u64,
    #[prost(bytes = "vec", required, tag = "3")]
    pub block_checksum: Vec<u8>,
    #[prost(int32, optional, tag = "4")]
    pub crc_type: Option<i32>,
    #[prost(message, optional, tag = "5")]
    pub block_checksum_options: Option<BlockChecksumOptions>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct PacketHeader {
    #[prost(sfixed64, required, tag = "1")]
    pub offset_in_block: i64,
    #[prost(sfixed64, required, tag = "2")]
    pub seqno: i64,
    #[prost(bool, required, tag = "3")]
    pub last_packet_in_block: bool,
    #[prost(sfixed32, required, tag = "4")]
    pub data_len: i32,
    #[prost(bool, optional, tag = "5")]
    pub sync_block: Option<bool>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct PipelineAck {
    #[prost(sint64, required, tag = "1")]
    pub seqno: i64,
    #[prost(int32, repeated, packed = "false", tag = "2")]
    pub reply: Vec<i32>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ReadOpChecksumInfo {
    #[prost(message, optional, tag = "1")]
    pub checksum: Option<Checksum>,
    #[prost(uint64, required, tag = "2")]
    pub chunk_offset: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct BlockOpResponse {
    #[prost(int32, required, tag = "1")]
    pub status: i32,
    #[prost(string, optional, tag = "2")]
    pub first_bad_link: Option<String>,
    #[prost(message, optional, tag = "3")]
    pub checksum_response: Option<OpBlockChecksumResponse>,
    #[prost(message, optional, tag = "4")]
    pub read_op_checksum_info: Option<ReadOpChecksumInfo>,
    #[prost(string, optional, tag = "5")]
    pub message: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ClientReadStatus {
    #[prost(int32, required, tag = "1")]
    pub status: i32,
}

/// `RpcRequestHeader::rpc_kind`: a call whose parameters are a message.
pub const RPC_PROTOCOL_BUFFER: i32 = 2;

/// `RpcResponseHeader::status`.
pub mod rpc_status {
    pub const SUCCESS: i32 = 0;
    pub const ERROR: i32 = 1;
    /// The connection ends behind it.
    pub const FATAL: i32 = 2;
}

/// `RpcResponseHeader::error_detail`.
pub mod rpc_error {
    pub const APPLICATION: i32 = 1;
    pub const NO_SUCH_METHOD: i32 = 2;
    pub const NO_SUCH_PROTOCOL: i32 = 3;
    pub const INVALID_RPC_HEADER: i32 = 12;
    pub const DESERIALIZING_REQUEST: i32 = 13;
    pub const VERSION_MISMATCH: i32 = 14;
    pub const UNAUTHORIZED: i32 = 15;
}

/// `RpcSasl::state`.
pub mod sasl {
    pub const SUCCESS: i32 = 0;
    pub const NEGOTIATE: i32 = 1;
}

/// `HdfsFileStatus::file_type`.
pub mod file_type {
    pub const DIRECTORY: i32 = 1;
    pub const FILE: i32 = 2;
    pub const SYMLINK: i32 = 3;
}

/// Bits of `CreateRequest::create_flag`.
pub mod create_flag {
    pub const CREATE: u32 = 1;
    pub const OVERWRITE: u32 = 2;
    pub const APPEND: u32 = 4;
}

/// `Checksum::kind`.
pub mod checksum {
    pub const NULL: i32 = 0;
    pub const CRC32: i32 = 1;
    pub const CRC32C: i32 = 2;
}

/// `BlockChecksumOptions::block_checksum_type`.
pub mod block_checksum {
    /// MD5 over the CRCs of the block.
    pub const MD5_OF_CRCS: i32 = 1;
    /// The CRC of the block as a whole.
    pub const COMPOSITE_CRC: i32 = 2;
}

/// `XAttr::namespace`.
pub mod xattr_namespace {
    pub const USER: i32 = 0;
    pub const TRUSTED: i32 = 1;
    pub const SECURITY: i32 = 2;
}

/// `SetXAttrRequest::flag`.
pub mod xattr_flag {
    pub const CREATE: u32 = 1;
    pub const REPLACE: u32 = 2;
}

/// `OpWriteBlock::stage`.
pub mod stage {
    pub const SETUP_STREAMING_RECOVERY: i32 = 3;
    pub const CLOSE_RECOVERY: i32 = 5;
    pub const SETUP_CREATE: i32 = 6;
}

/// `BlockOpResponse::status`, `PipelineAck::reply`.
pub mod status {
    pub const SUCCESS: i32 = 0;
    pub const ERROR: i32 = 1;
    pub const ERROR_CHECKSUM: i32 = 2;
    pub const ERROR_INVALID: i32 = 3;
    pub const ERROR_EXISTS: i32 = 4;
    pub const ERROR_ACCESS_TOKEN: i32 = 5;
    pub const CHECKSUM_OK: i32 = 6;
    pub const ERROR_UNSUPPORTED: i32 = 7;
}

/// `SetSafeModeRequest::action`.
pub const SAFEMODE_ENTER: i32 = 2;
/// See [`SAFEMODE_ENTER`]. Anything else leaves.
pub const SAFEMODE_GET: i32 = 3;
/// `StorageType` of every location.
pub const DISK: i32 = 1;
/// `HAServiceStateResponse::state`: the one that answers.
pub const ACTIVE: i32 = 1;

// What several calls have in common.

/// A call about a path alone: `getFileInfo`, `getContentSummary`, `isFileClosed` and others.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PathRequest {
    #[prost(string, required, tag = "1")]
    pub path: String,
}

/// An answer of yes or no: `delete`, `rename`, `complete` and others.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ResultResponse {
    #[prost(bool, required, tag = "1")]
    pub result: bool,
}

/// An answer of a number: `getPreferredBlockSize`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct NumberResponse {
    #[prost(uint64, required, tag = "1")]
    pub number: u64,
}

// What a place of blocks is asked: ClientDatanodeProtocol.proto.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetReplicaVisibleLengthRequest {
    #[prost(message, optional, tag = "1")]
    pub block: Option<ExtendedBlock>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetDatanodeInfoResponse {
    #[prost(message, required, tag = "1")]
    pub local_info: DatanodeLocalInfo,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct DatanodeLocalInfo {
    #[prost(string, required, tag = "1")]
    pub software_version: String,
    #[prost(string, required, tag = "2")]
    pub config_version: String,
    #[prost(uint64, required, tag = "3")]
    pub uptime_s: u64,
}

/// `allowSnapshot` and those beside it that name a directory alone are a [`PathRequest`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct CreateSnapshotRequest {
    #[prost(string, required, tag = "1")]
    pub snapshot_root: String,
    #[prost(string, optional, tag = "2")]
    pub snapshot_name: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CreateSnapshotResponse {
    #[prost(string, required, tag = "1")]
    pub snapshot_path: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct DeleteSnapshotRequest {
    #[prost(string, required, tag = "1")]
    pub snapshot_root: String,
    #[prost(string, required, tag = "2")]
    pub snapshot_name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RenameSnapshotRequest {
    #[prost(string, required, tag = "1")]
    pub snapshot_root: String,
    #[prost(string, required, tag = "2")]
    pub old_name: String,
    #[prost(string, required, tag = "3")]
    pub new_name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct SnapshottableDirectoryStatus {
    #[prost(message, optional, tag = "1")]
    pub dir_status: Option<HdfsFileStatus>,
    #[prost(uint32, required, tag = "2")]
    pub snapshot_quota: u32,
    #[prost(uint32, required, tag = "3")]
    pub snapshot_number: u32,
    #[prost(bytes = "vec", required, tag = "4")]
    pub parent_fullpath: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct SnapshottableDirectoryListing {
    #[prost(message, repeated, tag = "1")]
    pub listing: Vec<SnapshottableDirectoryStatus>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetSnapshottableDirListingResponse {
    #[prost(message, optional, tag = "1")]
    pub list: Option<SnapshottableDirectoryListing>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct SnapshotStatus {
    #[prost(message, optional, tag = "1")]
    pub dir_status: Option<HdfsFileStatus>,
    #[prost(uint32, required, tag = "2")]
    pub snapshot_id: u32,
    #[prost(bytes = "vec", required, tag = "3")]
    pub parent_fullpath: Vec<u8>,
    #[prost(bool, required, tag = "4")]
    pub is_deleted: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct SnapshotListing {
    #[prost(message, repeated, tag = "1")]
    pub listing: Vec<SnapshotStatus>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetSnapshotListingResponse {
    #[prost(message, optional, tag = "1")]
    pub list: Option<SnapshotListing>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetSnapshotDiffReportRequest {
    #[prost(string, required, tag = "1")]
    pub snapshot_root: String,
    #[prost(string, required, tag = "2")]
    pub from_snapshot: String,
    #[prost(string, required, tag = "3")]
    pub to_snapshot: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct SnapshotDiffReportEntry {
    #[prost(bytes = "vec", required, tag = "1")]
    pub fullpath: Vec<u8>,
    #[prost(string, required, tag = "2")]
    pub modification_label: String,
    #[prost(bytes = "vec", optional, tag = "3")]
    pub target_path: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct SnapshotDiffReport {
    #[prost(string, required, tag = "1")]
    pub snapshot_root: String,
    #[prost(string, required, tag = "2")]
    pub from_snapshot: String,
    #[prost(string, required, tag = "3")]
    pub to_snapshot: String,
    #[prost(message, repeated, tag = "4")]
    pub entries: Vec<SnapshotDiffReportEntry>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetSnapshotDiffReportResponse {
    #[prost(message, optional, tag = "1")]
    pub diff_report: Option<SnapshotDiffReport>,
}

/// The answer to calls that give a block: `addBlock`, `updateBlockForPipeline`.
pub type BlockResponse = AddBlockResponse;

/// `AclEntry`, of an access list or a default list.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct AclEntry {
    #[prost(int32, required, tag = "1")]
    pub kind: i32,
    #[prost(int32, required, tag = "2")]
    pub scope: i32,
    #[prost(int32, required, tag = "3")]
    pub permissions: i32,
    #[prost(string, optional, tag = "4")]
    pub name: Option<String>,
}

/// `AclEntry::kind`.
pub mod acl_type {
    pub const USER: i32 = 0;
    pub const GROUP: i32 = 1;
    pub const MASK: i32 = 2;
    pub const OTHER: i32 = 3;
}

/// `AclEntry::scope`.
pub mod acl_scope {
    pub const ACCESS: i32 = 0;
    pub const DEFAULT: i32 = 1;
}

/// `modifyAclEntries`, `removeAclEntries`, `setAcl`, and without entries `removeAcl` and `removeDefaultAcl`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AclRequest {
    #[prost(string, required, tag = "1")]
    pub src: String,
    #[prost(message, repeated, tag = "2")]
    pub entries: Vec<AclEntry>,
}

/// `AclStatus`: what `getAclStatus` answers.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AclStatus {
    #[prost(string, required, tag = "1")]
    pub owner: String,
    #[prost(string, required, tag = "2")]
    pub group: String,
    #[prost(bool, required, tag = "3")]
    pub sticky: bool,
    #[prost(message, repeated, tag = "4")]
    pub entries: Vec<AclEntry>,
    #[prost(message, optional, tag = "5")]
    pub permission: Option<FsPermission>,
}

/// See [`AclStatus`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetAclStatusResponse {
    #[prost(message, optional, tag = "1")]
    pub result: Option<AclStatus>,
}

/// Of blocks that have replicas.
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

/// Of blocks that are erasure-coded.
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

#[derive(Clone, PartialEq, prost::Message)]
pub struct CorruptFileBlocks {
    #[prost(string, repeated, tag = "1")]
    pub files: Vec<String>,
    #[prost(string, required, tag = "2")]
    pub cookie: String,
}

/// `ListOpenFilesRequest::types`.
pub mod open_files {
    pub const ALL: i32 = 1;
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ListOpenFilesRequest {
    /// Those of larger numbers.
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
pub struct GetBatchedListingRequest {
    #[prost(string, repeated, tag = "1")]
    pub paths: Vec<String>,
    #[prost(bytes = "vec", required, tag = "2")]
    pub start_after: Vec<u8>,
    #[prost(bool, required, tag = "3")]
    pub need_location: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetBatchedListingResponse {
    #[prost(message, repeated, tag = "1")]
    pub listings: Vec<BatchedDirectoryListing>,
    #[prost(bool, required, tag = "2")]
    pub has_more: bool,
    #[prost(bytes = "vec", required, tag = "3")]
    pub start_after: Vec<u8>,
}

/// A part of the listing of one directory.
#[derive(Clone, PartialEq, prost::Message)]
pub struct BatchedDirectoryListing {
    #[prost(message, repeated, tag = "1")]
    pub partial_listing: Vec<HdfsFileStatus>,
    /// Which of those asked for.
    #[prost(uint32, required, tag = "2")]
    pub parent_idx: u32,
    #[prost(message, optional, tag = "3")]
    pub exception: Option<RemoteException>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RemoteException {
    #[prost(string, required, tag = "1")]
    pub class_name: String,
    #[prost(string, optional, tag = "2")]
    pub message: Option<String>,
}

/// The end of a list of which the field of that number says whether there is more: of what there is none.
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
