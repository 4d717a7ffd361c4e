//! The operations of WebHDFS as traces record them.

use frieze_client::{CallKind, CallScope, Gateway};
use frieze_hdfs::{Calls, Exception};

/// What an operation does.
fn call_of(op: &str) -> CallKind {
    match op {
        "GETFILESTATUS" | "GETFILELINKSTATUS" => CallKind::Stat,
        "LISTSTATUS" | "LISTSTATUS_BATCH" => CallKind::List,
        "GETCONTENTSUMMARY" | "GETQUOTAUSAGE" | "GETSTATUS" => CallKind::StatFs,
        "CHECKACCESS" => CallKind::Access,
        "GETLINKTARGET" => CallKind::Readlink,
        "MKDIRS" => CallKind::Mkdir,
        "RENAME" => CallKind::Rename,
        "DELETE" => CallKind::RemoveTree,
        "CREATESYMLINK" => CallKind::Symlink,
        "TRUNCATE" => CallKind::Truncate,
        "CONCAT" => CallKind::Join,
        "SETPERMISSION" | "SETOWNER" | "SETTIMES" | "SETREPLICATION" | "SETQUOTA" | "SETACL" | "MODIFYACLENTRIES"
        | "REMOVEACL" | "REMOVEACLENTRIES" | "REMOVEDEFAULTACL" => CallKind::SetAttr,
        "GETXATTRS" | "GETACLSTATUS" => CallKind::XattrGet,
        "SETXATTR" => CallKind::XattrSet,
        "LISTXATTRS" => CallKind::XattrList,
        "REMOVEXATTR" => CallKind::XattrRemove,
        "CREATESNAPSHOT" | "DELETESNAPSHOT" | "RENAMESNAPSHOT" => CallKind::Snapshot,
        "GETSNAPSHOTDIFF" | "GETSNAPSHOTDIFFLISTING" | "GETSNAPSHOTLIST" | "GETSNAPSHOTTABLEDIRECTORYLIST" => {
            CallKind::History
        }
        "OPEN" | "APPEND" | "GETFILEBLOCKLOCATIONS" | "GET_BLOCK_LOCATIONS" => CallKind::Open,
        "CREATE" => CallKind::Create,
        _ => CallKind::Other,
    }
}

/// Runs a part of an operation within a scope of its own.
pub(crate) fn recorded<V>(
    calls: &Calls,
    call: CallKind,
    part: impl FnOnce(&CallScope<'_>) -> Result<V, Exception>,
) -> Result<V, Exception> {
    let scope = calls.scope(Gateway::WebHdfs, call);
    let answer = part(&scope);
    match &answer {
        Ok(_) => scope.result(0),
        // A fault that no request beneath has stated is the gateway's own.
        Err(exception) => scope.failed(exception.reason() as u32 as u16),
    }
    answer
}

/// Runs an operation that moves no bytes of files, or the first step of one that does.
pub(crate) fn recorded_op<V>(
    calls: &Calls,
    op: &str,
    answer: impl FnOnce() -> Result<V, Exception>,
) -> Result<V, Exception> {
    recorded(calls, call_of(op), |_| answer())
}
