//! The calls of Hadoop clients as traces record them.

use frieze_client::{CallKind, CallScope};

use crate::exception::Exception;

/// What a method of `ClientProtocol` does.
pub(crate) fn call_of(method: &str) -> CallKind {
    match method {
        "getFileInfo" | "getFileLinkInfo" | "getLocatedFileInfo" | "isFileClosed" | "getPreferredBlockSize" => {
            CallKind::Stat
        }
        "getListing" | "getBatchedListing" => CallKind::List,
        "getBlockLocations" => CallKind::Open,
        "checkAccess" => CallKind::Access,
        "getContentSummary" | "getQuotaUsage" | "getFsStats" => CallKind::StatFs,
        "mkdirs" => CallKind::Mkdir,
        "rename" | "rename2" => CallKind::Rename,
        "delete" => CallKind::RemoveTree,
        "setPermission" | "setOwner" | "setTimes" | "setQuota" | "setReplication" | "setAcl" | "modifyAclEntries"
        | "removeAclEntries" | "removeDefaultAcl" | "removeAcl" => CallKind::SetAttr,
        "getXAttrs" | "getAclStatus" => CallKind::XattrGet,
        "listXAttrs" => CallKind::XattrList,
        "setXAttr" => CallKind::XattrSet,
        "removeXAttr" => CallKind::XattrRemove,
        "concat" => CallKind::Join,
        "truncate" => CallKind::Truncate,
        "createSnapshot" | "deleteSnapshot" | "renameSnapshot" | "allowSnapshot" | "disallowSnapshot" => {
            CallKind::Snapshot
        }
        "getSnapshottableDirListing" | "getSnapshotListing" | "getSnapshotDiffReport" => CallKind::History,
        "create" => CallKind::Create,
        "append" => CallKind::Open,
        "complete" => CallKind::Close,
        "fsync" => CallKind::Sync,
        _ => CallKind::Other,
    }
}

/// States how a call ended. A fault that no request beneath has stated is the gateway's own.
pub(crate) fn end<V>(scope: &CallScope<'_>, answer: &Result<V, Exception>) {
    match answer {
        Ok(_) => scope.result(0),
        Err(exception) => scope.failed(exception.reason() as u32 as u16),
    }
}
