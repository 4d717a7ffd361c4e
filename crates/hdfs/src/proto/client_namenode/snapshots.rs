//! Calls about snapshots, of `ClientNamenodeProtocol.proto`.

use crate::proto::hdfs::{SnapshotDiffReport, SnapshotListing, SnapshottableDirectoryListing};

/// `allowSnapshot` and other calls that name a directory alone are a [`PathRequest`](crate::proto::PathRequest).
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
pub struct GetSnapshottableDirListingResponse {
    #[prost(message, optional, tag = "1")]
    pub list: Option<SnapshottableDirectoryListing>,
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
pub struct GetSnapshotDiffReportResponse {
    #[prost(message, optional, tag = "1")]
    pub diff_report: Option<SnapshotDiffReport>,
}
