//! Any bytes in the place of a message of Hadoop's protocols: a value that encodes and decodes to itself, or refused.

use std::fmt::Debug;

use frieze_harness::{check_stable, fuzz};
use prost::Message;

use crate::proto::*;

fn message<M: Message + Default + PartialEq + Debug>(bytes: &[u8]) {
    check_stable(bytes, |bytes| M::decode(bytes).ok(), M::encode_to_vec);
}

macro_rules! messages {
    ($test:ident: $($message:ty),+ $(,)?) => {
        #[test]
        fn $test() {
            // Fields of each kind of wire type, nested ones among them.
            let mut seeds = vec![
                b"\x08\x01\x12\x03a/b\x18\x80\x08\x22\x02\x08\x07\x2d\x01\0\0\0\x31\x01\0\0\0\0\0\0\0\x38\x01".to_vec(),
            ];
            $(seeds.push(<$message>::default().encode_to_vec());)+
            fuzz!(seeds, |bytes: &[u8]| {
                $(message::<$message>(bytes);)+
            });
        }
    };
}

messages!(
    any_bytes_are_messages_of_acl_or_refused:
    FsPermission, AclEntry, AclRequest, AclStatus, GetAclStatusResponse
);

messages!(
    any_bytes_are_messages_of_client_datanode_or_refused:
    GetReplicaVisibleLengthRequest, GetDatanodeInfoResponse
);

messages!(
    any_bytes_are_messages_of_client_namenode_or_refused:
    PathRequest, ResultResponse, NumberResponse, GetBlockLocationsRequest, GetBlockLocationsResponse,
    SetReplicationRequest, SetPermissionRequest, SetOwnerRequest, RenameRequest, Rename2Request, DeleteRequest,
    MkdirsRequest, GetListingRequest, GetListingResponse, GetLocatedFileInfoRequest, GetFileInfoResponse,
    GetContentSummaryResponse, SetQuotaRequest, GetQuotaUsageResponse, SetTimesRequest, CheckAccessRequest,
    GetBatchedListingRequest, GetBatchedListingResponse, GetFsStatsResponse, GetFsReplicatedBlockStatsResponse,
    GetFsEcBlockGroupStatsResponse, GetDatanodeReportRequest, GetDatanodeReportResponse, SetSafeModeRequest,
    ListCorruptFileBlocksRequest, ListCorruptFileBlocksResponse, ListOpenFilesRequest, ListOpenFilesResponse,
    OpenFilesBatch, GetStoragePolicyResponse, GetStoragePoliciesResponse, NoneListed, UpgradeStatusResponse,
    GetEnclosingRootResponse, GetServerDefaultsResponse, CreateSnapshotRequest, CreateSnapshotResponse,
    DeleteSnapshotRequest, RenameSnapshotRequest, GetSnapshottableDirListingResponse,
    GetSnapshotListingResponse, GetSnapshotDiffReportRequest, GetSnapshotDiffReportResponse, CreateRequest,
    CreateResponse, AppendRequest, AppendResponse, AddBlockRequest, AddBlockResponse,
    GetAdditionalDatanodeRequest, AbandonBlockRequest, CompleteRequest, FsyncRequest,
    UpdateBlockForPipelineRequest, UpdatePipelineRequest, RenewLeaseRequest, RecoverLeaseRequest,
    TruncateRequest, ConcatRequest
);

messages!(
    any_bytes_are_messages_of_datatransfer_or_refused:
    BaseHeader, ClientOperationHeader, OpReadBlock, Checksum, OpWriteBlock, OpTransferBlock, OpBlockChecksum,
    OpBlockChecksumResponse, PacketHeader, PipelineAck, ReadOpChecksumInfo, BlockOpResponse, ClientReadStatus
);

messages!(
    any_bytes_are_messages_of_ha_or_refused:
    HaServiceStateResponse
);

messages!(
    any_bytes_are_messages_of_hdfs_or_refused:
    ExtendedBlock, DatanodeId, DatanodeInfo, DatanodeLocalInfo, LocatedBlock, LocatedBlocks, HdfsFileStatus,
    DirectoryListing, BatchedDirectoryListing, RemoteException, ContentSummary, QuotaUsage, FsServerDefaults,
    StorageTypes, BlockStoragePolicy, CorruptFileBlocks, SnapshottableDirectoryStatus,
    SnapshottableDirectoryListing, SnapshotStatus, SnapshotListing, SnapshotDiffReportEntry, SnapshotDiffReport,
    BlockChecksumOptions
);

messages!(
    any_bytes_are_messages_of_rpc_or_refused:
    RpcRequestHeader, RpcResponseHeader, RpcSasl, SaslAuth, UserInformation, IpcConnectionContext, RequestHeader
);

messages!(
    any_bytes_are_messages_of_security_or_refused:
    Token
);

messages!(
    any_bytes_are_messages_of_xattr_or_refused:
    XAttr, SetXAttrRequest, XAttrsRequest, XAttrsResponse
);
