//! Calls about names, attributes and quotas, of `ClientNamenodeProtocol.proto`.

use crate::proto::acl::FsPermission;
use crate::proto::hdfs::{
    BatchedDirectoryListing, ContentSummary, DirectoryListing, HdfsFileStatus, LocatedBlocks, QuotaUsage,
};

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
pub struct GetLocatedFileInfoRequest {
    #[prost(string, optional, tag = "1")]
    pub src: Option<String>,
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
    /// Files and directories. [`u64::MAX`] removes the quota, `i64::MAX` leaves it unchanged.
    #[prost(uint64, required, tag = "2")]
    pub namespace_quota: u64,
    /// Bytes.
    #[prost(uint64, required, tag = "3")]
    pub storagespace_quota: u64,
    /// For one kind of storage alone.
    #[prost(int32, optional, tag = "4")]
    pub storage_type: Option<i32>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetQuotaUsageResponse {
    #[prost(message, optional, tag = "1")]
    pub usage: Option<QuotaUsage>,
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
pub struct CheckAccessRequest {
    #[prost(string, required, tag = "1")]
    pub path: String,
    #[prost(int32, required, tag = "2")]
    pub mode: i32,
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
