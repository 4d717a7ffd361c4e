//! Operations that move no bytes of files: the call of the HDFS gateway behind each, and the encoding of its result.

use bytes::Bytes;
use frieze_hdfs::proto::{
    AclRequest, CheckAccessRequest, ConcatRequest, CreateSnapshotRequest, CreateSnapshotResponse, DISK, DeleteRequest,
    DeleteSnapshotRequest, DirectoryListing, FsPermission, GetAclStatusResponse, GetBlockLocationsRequest,
    GetBlockLocationsResponse, GetContentSummaryResponse, GetFileInfoResponse, GetFsStatsResponse, GetListingRequest,
    GetListingResponse, GetQuotaUsageResponse, GetServerDefaultsResponse, GetSnapshotDiffReportRequest,
    GetSnapshotDiffReportResponse, GetSnapshotListingResponse, GetSnapshottableDirListingResponse,
    GetStoragePoliciesResponse, GetStoragePolicyResponse, HdfsFileStatus, MkdirsRequest, PathRequest, Rename2Request,
    RenameRequest, RenameSnapshotRequest, ResultResponse, SetOwnerRequest, SetPermissionRequest, SetQuotaRequest,
    SetReplicationRequest, SetTimesRequest, SetXAttrRequest, TruncateRequest, XAttrsRequest, XAttrsResponse,
    xattr_flag,
};
use frieze_hdfs::{Calls, Exception, Message, RemoteUser};
use hyper::Method;
use serde_json::{Value, json};

use crate::json;
use crate::reply::HttpReply;
use crate::web_request::{WebRequest, invalid};

/// Answers a request.
///
/// # Errors
/// Those of the call; `IllegalArgumentException` for an unknown operation, or one of another method.
pub(crate) fn answer(calls: &Calls, user: &RemoteUser, web_request: &WebRequest) -> Result<HttpReply, Exception> {
    let to = OperationContext { calls, user, web_request };
    match web_request.method {
        Method::GET => to.get(),
        Method::PUT => to.put(),
        Method::POST => to.post(),
        Method::DELETE => to.delete(),
        ref other => Err(Exception::argument(format!("WebHDFS is asked by GET, PUT, POST and DELETE, not by {other}"))),
    }
}

/// Attributes of a file that must exist.
///
/// # Errors
/// `FileNotFoundException` if it is not.
pub(crate) fn existing(calls: &Calls, user: &RemoteUser, path: &str) -> Result<HdfsFileStatus, Exception> {
    of_existing(calls, user, "getFileInfo", path)
}

fn of_existing(calls: &Calls, user: &RemoteUser, method: &str, path: &str) -> Result<HdfsFileStatus, Exception> {
    let found: GetFileInfoResponse = calls.ask(user, method, &PathRequest { path: path.to_owned() })?;
    found.fs.ok_or_else(|| absent(path))
}

/// A request and the calls.
#[derive(Clone, Copy)]
struct OperationContext<'a> {
    calls: &'a Calls,
    user: &'a RemoteUser,
    web_request: &'a WebRequest,
}

impl OperationContext<'_> {
    fn get(self) -> Result<HttpReply, Exception> {
        let told = match self.web_request.op.as_str() {
            "GETFILESTATUS" => json!({ "FileStatus": json::status(&self.existing()?) }),
            "GETFILELINKSTATUS" => {
                let found = of_existing(self.calls, self.user, "getFileLinkInfo", &self.web_request.path)?;
                json!({ "FileStatus": json::status(&found) })
            }
            "LISTSTATUS" => return self.list(),
            "LISTSTATUS_BATCH" => self.list_batch()?,
            "GETCONTENTSUMMARY" => {
                let found: GetContentSummaryResponse = self.ask("getContentSummary")?;
                json::content_summary(&found.summary.unwrap_or_default())
            }
            "GETQUOTAUSAGE" => {
                let found: GetQuotaUsageResponse = self.ask("getQuotaUsage")?;
                json::quota_usage(&found.usage.unwrap_or_default())
            }
            "GETHOMEDIRECTORY" => json!({ "Path": self.home() }),
            "GETTRASHROOT" => json!({ "Path": format!("{}/.Trash", self.home()) }),
            // Removed files are in the past: there is no trash.
            "GETTRASHROOTS" => json!({ "Paths": [] }),
            "GET_BLOCK_LOCATIONS" => json::located_blocks(&self.locations()?.locations.unwrap_or_default()),
            "GETFILEBLOCKLOCATIONS" => json::block_locations(&self.locations()?.locations.unwrap_or_default()),
            "GETACLSTATUS" => {
                let found: GetAclStatusResponse = self.ask("getAclStatus")?;
                json::acl_status(&found.result.unwrap_or_default())
            }
            "GETXATTRS" => self.xattrs()?,
            "LISTXATTRS" => json::xattr_names(&self.ask::<XAttrsResponse>("listXAttrs")?.xattrs),
            "CHECKACCESS" => return self.check_access(),
            "GETSERVERDEFAULTS" => {
                let found: GetServerDefaultsResponse = self.calls.ask(self.user, "getServerDefaults", &())?;
                json::server_defaults(&found.server_defaults.unwrap_or_default())
            }
            "GETSTATUS" => json::fs_status(&self.calls.ask::<GetFsStatsResponse>(self.user, "getFsStats", &())?),
            "GETALLSTORAGEPOLICY" => {
                let found: GetStoragePoliciesResponse = self.calls.ask(self.user, "getStoragePolicies", &())?;
                let policies: Vec<Value> = found.policies.iter().map(json::storage_policy).collect();
                json!({ "BlockStoragePolicies": { "BlockStoragePolicy": policies } })
            }
            "GETSTORAGEPOLICY" => {
                let found: GetStoragePolicyResponse = self.ask("getStoragePolicy")?;
                json!({ "BlockStoragePolicy": json::storage_policy(&found.storage_policy.unwrap_or_default()) })
            }
            // A caller that is known without a token needs none.
            "GETDELEGATIONTOKEN" => self.none_of("getDelegationToken", json!({ "Token": null }))?,
            "GETSNAPSHOTTABLEDIRECTORYLIST" => {
                let found: GetSnapshottableDirListingResponse =
                    self.calls.ask(self.user, "getSnapshottableDirListing", &())?;
                json::snapshotted_directories(&found.list.unwrap_or_default())
            }
            "GETECPOLICY" => self.none_of("getErasureCodingPolicy", json!({}))?,
            "GETECPOLICIES" => self.none_of(
                "getErasureCodingPolicies",
                json!({ "ErasureCodingPolicies": { "ErasureCodingPolicyInfo": [] } }),
            )?,
            "GETECCODECS" => self.none_of("getErasureCodingCodecs", json!({ "ErasureCodingCodecs": {} }))?,
            "GETSNAPSHOTDIFF" => {
                let snapshot = |name| self.web_request.text(name).unwrap_or_default().to_owned();
                let request = GetSnapshotDiffReportRequest {
                    snapshot_root: self.web_request.path.clone(),
                    from_snapshot: snapshot("oldsnapshotname"),
                    to_snapshot: snapshot("snapshotname"),
                };
                let found: GetSnapshotDiffReportResponse =
                    self.calls.ask(self.user, "getSnapshotDiffReport", &request)?;
                json::snapshot_diff(&found.diff_report.unwrap_or_default())
            }
            // By remote call this is an unknown method, after which clients request the whole report; here the client
            // chooses.
            "GETSNAPSHOTDIFFLISTING" => {
                return Err(Exception::unsupported("getSnapshotDiffReportListing is not supported by frieze"));
            }
            "GETSNAPSHOTLIST" => {
                json::snapshots(&self.ask::<GetSnapshotListingResponse>("getSnapshotListing")?.list.unwrap_or_default())
            }
            "GETLINKTARGET" => return self.refused("getLinkTarget"),
            _ => return self.unknown(),
        };
        Ok(HttpReply::json(&told))
    }

    fn put(self) -> Result<HttpReply, Exception> {
        let src = self.web_request.path.clone();
        match self.web_request.op.as_str() {
            "MKDIRS" => {
                let masked = Some(FsPermission { perm: self.web_request.permission(0o755)? });
                let unmasked = self.web_request.unmasked()?;
                self.yes_or_no("mkdirs", &MkdirsRequest { src, masked, create_parent: true, unmasked })
            }
            "RENAME" => self.rename(src),
            "SETREPLICATION" => {
                let replication = self.web_request.number("replication")?.unwrap_or(1);
                self.yes_or_no("setReplication", &SetReplicationRequest { src, replication })
            }
            "SETOWNER" => {
                let said = |name| self.web_request.text(name).map(str::to_owned);
                let (username, groupname) = (said("owner"), said("group"));
                if (&username, &groupname) == (&None, &None) {
                    return Err(Exception::argument("Both owner and group are empty."));
                }
                self.done("setOwner", &SetOwnerRequest { src, username, groupname })
            }
            "SETPERMISSION" => {
                let permission = Some(FsPermission { perm: self.web_request.permission(0o755)? });
                self.done("setPermission", &SetPermissionRequest { src, permission })
            }
            "SETTIMES" => {
                // A negative time leaves it unchanged: such numbers do not fit.
                let time =
                    |name| self.web_request.number::<i64>(name).map(|time| time.map_or(u64::MAX, |time| time as u64));
                let (mtime, atime) = (time("modificationtime")?, time("accesstime")?);
                if (mtime, atime) == (u64::MAX, u64::MAX) {
                    return Err(Exception::argument("Both modificationtime and accesstime are -1."));
                }
                self.done("setTimes", &SetTimesRequest { src, mtime, atime })
            }
            "SETXATTR" => {
                let value = Some(self.web_request.text("xattr.value").unwrap_or_default());
                let xattr = Some(json::xattr_named(self.web_request.required("xattr.name")?, value)?);
                self.done("setXAttr", &SetXAttrRequest { src, xattr, flag: Some(self.xattr_flags()?) })
            }
            "REMOVEXATTR" => {
                let xattr = Some(json::xattr_named(self.web_request.required("xattr.name")?, None)?);
                self.done("removeXAttr", &SetXAttrRequest { src, xattr, flag: None })
            }
            "CREATESYMLINK" => self.refused("createSymlink"),
            "RENEWDELEGATIONTOKEN" => self.refused("renewDelegationToken"),
            "CANCELDELEGATIONTOKEN" => self.refused("cancelDelegationToken"),
            "MODIFYACLENTRIES" => self.change_acl("modifyAclEntries", true),
            "REMOVEACLENTRIES" => self.change_acl("removeAclEntries", false),
            "REMOVEDEFAULTACL" => self.done("removeDefaultAcl", &AclRequest { src, entries: Vec::new() }),
            "REMOVEACL" => self.done("removeAcl", &AclRequest { src, entries: Vec::new() }),
            "SETACL" => self.change_acl("setAcl", true),
            "ALLOWSNAPSHOT" => self.done("allowSnapshot", &PathRequest { path: src }),
            "DISALLOWSNAPSHOT" => self.done("disallowSnapshot", &PathRequest { path: src }),
            "CREATESNAPSHOT" => {
                let snapshot_name = self.web_request.text("snapshotname").map(str::to_owned);
                let request = CreateSnapshotRequest { snapshot_root: src, snapshot_name };
                let made: CreateSnapshotResponse = self.calls.ask(self.user, "createSnapshot", &request)?;
                Ok(HttpReply::json(&json!({ "Path": made.snapshot_path })))
            }
            "RENAMESNAPSHOT" => {
                let name = |parameter| self.web_request.required(parameter).map(str::to_owned);
                let (old_name, new_name) = (name("oldsnapshotname")?, name("snapshotname")?);
                self.done("renameSnapshot", &RenameSnapshotRequest { snapshot_root: src, old_name, new_name })
            }
            "SETSTORAGEPOLICY" => self.refused("setStoragePolicy"),
            "SATISFYSTORAGEPOLICY" => self.refused("satisfyStoragePolicy"),
            "ENABLEECPOLICY" => self.refused("enableErasureCodingPolicy"),
            "DISABLEECPOLICY" => self.refused("disableErasureCodingPolicy"),
            "SETECPOLICY" => self.refused("setErasureCodingPolicy"),
            "SETQUOTA" | "SETQUOTABYSTORAGETYPE" => {
                // An absent number leaves the quota unchanged.
                let number = |name| {
                    let number: Option<i64> = self.web_request.number(name)?;
                    Ok::<u64, Exception>(number.unwrap_or(i64::MAX).cast_unsigned())
                };
                let (namespace_quota, storagespace_quota) = (number("namespacequota")?, number("storagespacequota")?);
                let storage_type = (self.web_request.op != "SETQUOTA").then_some(DISK);
                self.done("setQuota", &SetQuotaRequest { path: src, namespace_quota, storagespace_quota, storage_type })
            }
            _ => self.unknown(),
        }
    }

    fn post(self) -> Result<HttpReply, Exception> {
        match self.web_request.op.as_str() {
            "CONCAT" => {
                let sources = self.web_request.required("sources")?.split(',').map(str::to_owned).collect();
                self.done("concat", &ConcatRequest { target: self.web_request.path.clone(), sources })
            }
            "TRUNCATE" => {
                let new_length = self.web_request.number("newlength")?;
                let new_length = new_length.ok_or_else(|| Exception::argument("the parameter newlength is missing"))?;
                let (src, client_name) = (self.web_request.path.clone(), "WebHDFS".to_owned());
                self.yes_or_no("truncate", &TruncateRequest { src, new_length, client_name })
            }
            "UNSETSTORAGEPOLICY" => self.refused("unsetStoragePolicy"),
            "UNSETECPOLICY" => self.refused("unsetErasureCodingPolicy"),
            _ => self.unknown(),
        }
    }

    fn delete(self) -> Result<HttpReply, Exception> {
        match self.web_request.op.as_str() {
            "DELETE" => {
                let recursive = self.web_request.flag("recursive", false)?;
                self.yes_or_no("delete", &DeleteRequest { src: self.web_request.path.clone(), recursive })
            }
            "DELETESNAPSHOT" => {
                let (snapshot_root, snapshot_name) =
                    (self.web_request.path.clone(), self.web_request.required("snapshotname")?.to_owned());
                self.done("deleteSnapshot", &DeleteSnapshotRequest { snapshot_root, snapshot_name })
            }
            _ => self.unknown(),
        }
    }

    fn unknown(self) -> Result<HttpReply, Exception> {
        let WebRequest { method, op, .. } = self.web_request;
        Err(invalid("op", op, &format!("there is no such operation of {method}")))
    }

    fn existing(self) -> Result<HdfsFileStatus, Exception> {
        existing(self.calls, self.user, &self.web_request.path)
    }

    /// A call about the path alone.
    fn ask<R: Default + Message>(self, method: &str) -> Result<R, Exception> {
        self.calls.ask(self.user, method, &PathRequest { path: self.web_request.path.clone() })
    }

    fn yes_or_no(self, method: &str, request: &impl Message) -> Result<HttpReply, Exception> {
        let ResultResponse { result } = self.calls.ask(self.user, method, request)?;
        Ok(HttpReply::json(&json!({ "boolean": result })))
    }

    fn done(self, method: &str, request: &impl Message) -> Result<HttpReply, Exception> {
        self.calls.ask::<()>(self.user, method, request).map(|()| HttpReply::done())
    }

    /// An operation that the HDFS gateway refuses, with its exception.
    fn refused(self, method: &str) -> Result<HttpReply, Exception> {
        self.done(method, &())
    }

    /// An operation that the HDFS gateway answers as absent.
    fn none_of(self, method: &str, told: Value) -> Result<Value, Exception> {
        self.calls.ask::<()>(self.user, method, &()).map(|()| told)
    }

    fn home(self) -> String {
        format!("/user/{}", self.user.account.name)
    }

    fn page(self, start_after: &[u8]) -> Result<DirectoryListing, Exception> {
        page(self.calls, self.user, &self.web_request.path, start_after)
    }

    /// The whole of a directory, sent page by page.
    fn list(self) -> Result<HttpReply, Exception> {
        let first = self.page(b"")?;
        let (calls, user, path) = (self.calls.clone(), self.user.clone(), self.web_request.path.clone());
        let mut next = Some(first);
        let mut begins = true;
        let mut is_over = false;
        Ok(HttpReply::json_pieces(move || {
            if is_over {
                return Ok(None);
            }
            let Some(listing) = next.take() else {
                is_over = true;
                return Ok(Some(Bytes::from_static(b"]}}")));
            };
            let mut text = if begins { "{\"FileStatuses\":{\"FileStatus\":[".to_owned() } else { String::new() };
            for status in &listing.partial_listing {
                text += if std::mem::take(&mut begins) { "" } else { "," };
                text += &json::status(status).to_string();
            }
            if let Some(last) = listing.partial_listing.last().filter(|_| listing.remaining_entries > 0) {
                next = Some(page(&calls, &user, &path, &last.path)?);
            }
            // A page whose names were all removed is one space; an empty piece would end the body.
            Ok(Some(if text.is_empty() { Bytes::from_static(b" ") } else { text.into() }))
        }))
    }

    fn list_batch(self) -> Result<Value, Exception> {
        let listing = self.page(self.web_request.text("startafter").unwrap_or_default().as_bytes())?;
        let told: Vec<Value> = listing.partial_listing.iter().map(json::status).collect();
        Ok(json!({ "DirectoryListing": {
            "partialListing": { "FileStatuses": { "FileStatus": told } },
            "remainingEntries": listing.remaining_entries,
        } }))
    }

    fn locations(self) -> Result<GetBlockLocationsResponse, Exception> {
        let offset = self.web_request.number("offset")?.unwrap_or(0);
        let length = self.web_request.number("length")?.unwrap_or(i64::MAX as u64);
        let request = GetBlockLocationsRequest { src: self.web_request.path.clone(), offset, length };
        self.calls.ask(self.user, "getBlockLocations", &request)
    }

    fn xattrs(self) -> Result<Value, Exception> {
        let named = self.web_request.texts("xattr.name").map(|name| json::xattr_named(name, None));
        let request = XAttrsRequest { src: self.web_request.path.clone(), xattrs: named.collect::<Result<_, _>>()? };
        let found: XAttrsResponse = self.calls.ask(self.user, "getXAttrs", &request)?;
        json::xattrs(&found.xattrs, self.web_request.text("encoding"))
    }

    fn change_acl(self, method: &str, with_permissions: bool) -> Result<HttpReply, Exception> {
        let entries = json::acl_spec(self.web_request.required("aclspec")?, with_permissions)?;
        self.done(method, &AclRequest { src: self.web_request.path.clone(), entries })
    }

    fn xattr_flags(self) -> Result<u32, Exception> {
        let Some(text) = self.web_request.text("flag") else { return Ok(0) };
        text.split(',').try_fold(0, |flags, name| match name.trim().to_ascii_uppercase().as_str() {
            "CREATE" => Ok(flags | xattr_flag::CREATE),
            "REPLACE" => Ok(flags | xattr_flag::REPLACE),
            _ => Err(invalid("flag", name, "it is CREATE, REPLACE or both")),
        })
    }

    fn check_access(self) -> Result<HttpReply, Exception> {
        let text = self.web_request.required("fsaction")?;
        let bits = match text.as_bytes() {
            [r @ (b'r' | b'-'), w @ (b'w' | b'-'), x @ (b'x' | b'-')] => {
                [(r, 4), (w, 2), (x, 1)].into_iter().filter(|(said, _)| **said != b'-').map(|(_, bit)| bit).sum()
            }
            _ => return Err(invalid("fsaction", text, "it is like r-x")),
        };
        self.done("checkAccess", &CheckAccessRequest { path: self.web_request.path.clone(), mode: bits })
    }

    fn rename(self, src: String) -> Result<HttpReply, Exception> {
        let dst = self.web_request.required("destination")?.to_owned();
        let Some(options) = self.web_request.text("renameoptions") else {
            return self.yes_or_no("rename", &RenameRequest { src, dst });
        };
        let mut overwrite_dest = false;
        for option in options.split(',') {
            match option.trim().to_ascii_uppercase().as_str() {
                "NONE" | "TO_TRASH" => {}
                "OVERWRITE" => overwrite_dest = true,
                _ => return Err(invalid("renameoptions", option, "it is NONE, OVERWRITE or TO_TRASH")),
            }
        }
        self.done("rename2", &Rename2Request { src, dst, overwrite_dest })
    }
}

fn page(calls: &Calls, user: &RemoteUser, path: &str, start_after: &[u8]) -> Result<DirectoryListing, Exception> {
    let request = GetListingRequest { src: path.to_owned(), start_after: start_after.to_vec(), need_location: false };
    let found: GetListingResponse = calls.ask(user, "getListing", &request)?;
    found.dir_list.ok_or_else(|| absent(path))
}

fn absent(path: &str) -> Exception {
    Exception::not_found(format!("File does not exist: {path}"))
}
