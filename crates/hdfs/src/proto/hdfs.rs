//! What calls and transfers share: `hdfs.proto`.

use crate::proto::acl::FsPermission;
use crate::proto::security::Token;

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
pub struct DatanodeLocalInfo {
    #[prost(string, required, tag = "1")]
    pub software_version: String,
    #[prost(string, required, tag = "2")]
    pub config_version: String,
    #[prost(uint64, required, tag = "3")]
    pub uptime_s: u64,
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

/// `StorageType` of every location.
pub const DISK: i32 = 1;

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

/// `HdfsFileStatus::file_type`.
pub mod file_type {
    pub const DIRECTORY: i32 = 1;
    pub const FILE: i32 = 2;
    pub const SYMLINK: i32 = 3;
}

/// `HdfsFileStatus::flags`: there is an access list.
pub const HAS_ACL: u32 = 1;

#[derive(Clone, PartialEq, prost::Message)]
pub struct DirectoryListing {
    #[prost(message, repeated, tag = "1")]
    pub partial_listing: Vec<HdfsFileStatus>,
    #[prost(uint32, required, tag = "2")]
    pub remaining_entries: u32,
}

/// A part of the listing of one directory.
#[derive(Clone, PartialEq, prost::Message)]
pub struct BatchedDirectoryListing {
    #[prost(message, repeated, tag = "1")]
    pub partial_listing: Vec<HdfsFileStatus>,
    /// Index of the directory in the request.
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

#[derive(Clone, PartialEq, prost::Message)]
pub struct CorruptFileBlocks {
    #[prost(string, repeated, tag = "1")]
    pub files: Vec<String>,
    #[prost(string, required, tag = "2")]
    pub cookie: String,
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
pub struct BlockChecksumOptions {
    #[prost(int32, optional, tag = "1")]
    pub block_checksum_type: Option<i32>,
    #[prost(uint64, optional, tag = "2")]
    pub stripe_length: Option<u64>,
}

/// `BlockChecksumOptions::block_checksum_type`.
pub mod block_checksum {
    /// MD5 over the CRCs of the block.
    pub const MD5_OF_CRCS: i32 = 1;
    /// The CRC of the block as a whole.
    pub const COMPOSITE_CRC: i32 = 2;
}

/// `Checksum::kind`.
pub mod checksum {
    pub const NULL: i32 = 0;
    pub const CRC32: i32 = 1;
    pub const CRC32C: i32 = 2;
}
