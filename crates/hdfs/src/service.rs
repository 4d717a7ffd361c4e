//! The name service: every call of Hadoop's `ClientProtocol`, and which function answers it.
//!
//! Calls that look are in [`crate::queries`], those that change names and attributes in [`crate::mutations`], those that write
//! files in [`crate::file_writes`]. What frieze has nothing of is answered so where that is an answer (no encryption zone, no
//! erasure coding, no access list), and refused in words where it is not.

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use frieze_base::MonoTime;
use frieze_client::{Client, Fs, InodeId, NodeId, Reason, Target};
use prost::Message;

use crate::accounts::{Account, AccountNames};
use crate::blocks::{BLOCK_BYTES, TokenMint};
use crate::exception::{Exception, malformed};
use crate::leases::Leases;
use crate::moving_instants::{self, MovingInstants};
use crate::paths::{ParsedPath, numbered, place, shown};
use crate::proto::{self, ResultResponse, checksum};
use crate::replicas;
use crate::retry_cache::{CallResult, RetryCache};
use crate::rpc::{Call, CallId};
use crate::status::BlockClient;

/// The protocol that is served.
pub(crate) const PROTOCOL: &str = "org.apache.hadoop.hdfs.protocol.ClientProtocol";

/// Where blocks are read and written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataAddress {
    /// The address, if it is one; else the one by which a client reached the name service.
    pub(crate) ip: Option<IpAddr>,
    /// The port.
    pub(crate) port: u16,
}

/// Everything that calls and transfers share.
pub(crate) struct Service {
    pub(crate) client: Client,
    /// Which server of the cluster this is.
    pub(crate) node: NodeId,
    pub(crate) names: AccountNames,
    pub(crate) mint: TokenMint,
    /// Signs what this door says to others.
    pub(crate) between_doors: TokenMint,
    pub(crate) leases: Leases,
    pub(crate) moving: MovingInstants,
    pub(crate) retries: RetryCache,
    pub(crate) data: DataAddress,
    /// Where the name service listens, once it does: it answers for replicas too.
    pub(crate) names_port: OnceLock<u16>,
    /// When this process began.
    pub(crate) began: MonoTime,
    /// Changes are refused.
    pub(crate) is_safe: AtomicBool,
    /// Number of the last block that was begun.
    pub(crate) generation: AtomicU64,
    /// Gone when this is: what looks after leases ends then.
    pub(crate) _goes_on: Sender<Infallible>,
}

impl Service {
    /// Starts the thread that settles files which were closed. It ends with the client.
    pub(crate) fn settle_closed(&self) -> io::Result<()> {
        let client = self.client.clone();
        let settle = move || while client.settle_closed(CLOSED_MOMENT) {};
        thread::Builder::new().name("hdfs-settle".to_owned()).spawn(settle).map(drop)
    }

    /// Starts the thread that notes what the next process has to know of leases. It ends with the other side of `ended`.
    pub(crate) fn note_leases(self: &Arc<Service>, ended: Receiver<Infallible>) -> io::Result<()> {
        let service = Arc::downgrade(self);
        let note = move || {
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(NOTED_EVERY) {
                let Some(service) = service.upgrade() else { return };
                service.leases.note(NOTED_EVERY.as_nanos() as u64);
            }
        };
        thread::Builder::new().name("hdfs-leases".to_owned()).spawn(note).map(drop)
    }
}

impl Service {
    /// The door ends: notes what its writers go on by. The cluster may be gone by now, and is not waited for.
    pub(crate) fn leave(&self) {
        if self.client.has_others() {
            self.client.end_within(FAREWELL);
        }
        self.leases.leave();
    }
}

impl Drop for Service {
    /// Ends the session, and with it what settles files: it has the client, too.
    fn drop(&mut self) {
        self.client.end_within(FAREWELL);
        if let Err(error) = self.client.close() {
            tracing::debug!("the session of a door could not be ended: {error}");
        }
    }
}

/// Who calls.
#[derive(Clone, Debug)]
pub struct RemoteUser {
    /// Whom the connection speaks for.
    pub account: Account,
    /// Which address of this machine it reached.
    pub reached: IpAddr,
    /// From which it came.
    pub peer: IpAddr,
}

/// A call under way: who asks, and from which program; no program if that is not known.
#[derive(Clone, Copy)]
pub(crate) struct CallContext<'a> {
    pub(crate) user: &'a RemoteUser,
    pub(crate) program: &'a [u8],
}

impl CallContext<'_> {
    /// Who holds a lease that this program asks for by the name it calls itself: others may say that name, but not as this user.
    pub(crate) fn holder(&self, client_name: &str) -> String {
        format!("{client_name} of {}", self.user.account.caller.uid)
    }

    pub(crate) fn reader(&self) -> BlockClient<'_> {
        BlockClient { caller: Some(&self.user.account.caller), reached: self.user.reached, peer: self.user.peer }
    }
}

impl Service {
    /// Answers a call. One that changes something runs once, however often it is sent.
    pub(crate) fn answer(&self, user: &RemoteUser, call: &Call) -> CallResult {
        let context = CallContext { user, program: &call.id.client };
        if call.protocol == replicas::PROTOCOL {
            return self.answer_of_replica(context, call);
        }
        if call.protocol != PROTOCOL {
            return Err(Exception::no_such_protocol(format!("Unknown protocol: {}", call.protocol)));
        }
        if !RUN_ONCE.contains(&call.method.as_str()) {
            return self.run(context, call);
        }
        if self.is_safe.load(Ordering::Acquire) {
            return Err(Exception::safe_mode(format!(
                "{}: this door is in safe mode, nothing is changed",
                call.method
            )));
        }
        // What has no number does not come again under it.
        if call.id == CallId::default() {
            return self.run(context, call);
        }
        // Whoever says another's number is not told what that one was.
        let client = [user.account.caller.uid.to_be_bytes().as_slice(), &call.id.client].concat();
        self.retries.once(&CallId { client, number: call.id.number }, || self.run(context, call))
    }

    /// Whether this door refuses changes; an operator may have it do so. Other doors go on, and so do transfers that have begun.
    fn set_safe_mode(
        &self,
        context: CallContext<'_>,
        request: &proto::SetSafeModeRequest,
    ) -> Result<ResultResponse, Exception> {
        if request.action != proto::SAFEMODE_GET {
            self.check_operator(context)?;
            self.is_safe.store(request.action == proto::SAFEMODE_ENTER, Ordering::Release);
        }
        Ok(ResultResponse { result: self.is_safe.load(Ordering::Acquire) })
    }

    /// Whether who asks is the superuser, or who runs this door.
    ///
    /// # Errors
    /// `AccessControlException`.
    pub(crate) fn check_operator(&self, context: CallContext<'_>) -> Result<(), Exception> {
        let Account { name, caller } = &context.user.account;
        match [0, self.client.hello().uid].contains(&caller.uid) {
            true => Ok(()),
            false => Err(Exception::access_control(format!(
                "Access denied for user {name}. Superuser privilege is required"
            ))),
        }
    }

    fn run(&self, context: CallContext<'_>, call: &Call) -> CallResult {
        match call.method.as_str() {
            "getFileInfo" => with(call, |path: proto::PathRequest| self.file_info(context, &path.path, true)),
            "getFileLinkInfo" => with(call, |path: proto::PathRequest| self.file_info(context, &path.path, false)),
            "getLocatedFileInfo" => with(call, |request: proto::GetLocatedFileInfoRequest| {
                self.located_file_info(context, request.src.as_deref().unwrap_or_default())
            }),
            "getListing" => with(call, |request| self.listing(context, &request)),
            "getBatchedListing" => with(call, |request| self.batched_listing(context, &request)),
            "getBlockLocations" => with(call, |request| self.block_locations(context, &request)),
            "getContentSummary" => with(call, |path: proto::PathRequest| self.content_summary(context, &path.path)),
            "getQuotaUsage" => with(call, |path: proto::PathRequest| self.quota_usage(context, &path.path)),
            "getPreferredBlockSize" => with(call, |path: proto::PathRequest| self.block_size(context, &path.path)),
            "getAclStatus" => with(call, |path: proto::PathRequest| self.acl_status(context, &path.path)),
            "checkAccess" => with(call, |request| self.check_access(context, &request)),
            "isFileClosed" => with(call, |path: proto::PathRequest| self.is_file_closed(context, &path.path)),
            "getFsStats" => with(call, |()| self.stats()),
            "getFsReplicatedBlockStats" => with(call, |()| self.replicated_block_stats()),
            "getFsECBlockGroupStats" => with(call, |()| Ok(self.erasure_coded_stats())),
            "listCorruptFileBlocks" => with(call, |request| self.corrupt_files(context, &request)),
            "listOpenFiles" => with(call, |request| self.open_files(context, &request)),
            "getServerDefaults" => with(call, |()| Ok(server_defaults())),
            "getDatanodeReport" => with(call, |request| self.datanode_report(context, &request)),
            "getStoragePolicies" => {
                with(call, |()| Ok(proto::GetStoragePoliciesResponse { policies: vec![storage_policy()] }))
            }
            "getStoragePolicy" => with(call, |path: proto::PathRequest| {
                self.file_info(context, &path.path, true)?;
                Ok(proto::GetStoragePolicyResponse { storage_policy: Some(storage_policy()) })
            }),
            "setSafeMode" => with(call, |request| self.set_safe_mode(context, &request)),
            // There is none of it: an answer without one.
            "getEZForPath"
            | "getErasureCodingPolicy"
            | "getErasureCodingPolicies"
            | "getErasureCodingCodecs"
            | "getSlowDatanodeReport"
            | "getDelegationToken"
            | "getDataEncryptionKey" => Ok(Vec::new()),
            "listCacheDirectives" | "listCachePools" | "listEncryptionZones" | "listReencryptionStatus" => {
                Ok(proto::NoneListed { has_more: false }.encode_to_vec())
            }
            // No zone of encryption, whose root that would be.
            "getEnclosingRoot" => {
                Ok(proto::GetEnclosingRootResponse { enclosing_root_path: Some("/".to_owned()) }.encode_to_vec())
            }
            "upgradeStatus" => Ok(proto::UpgradeStatusResponse { upgrade_finalized: true }.encode_to_vec()),
            // A read of now is one of now.
            "msync" => Ok(Vec::new()),
            "getHAServiceState" => with(call, |()| Ok(proto::HaServiceStateResponse { state: proto::ACTIVE })),

            "mkdirs" => with(call, |request| self.mkdirs(context, &request)),
            "rename" => with(call, |request| self.rename(context, &request)),
            "rename2" => with(call, |request| self.rename_or_fail(context, &request)),
            "delete" => with(call, |request| self.delete(context, &request)),
            "setPermission" => with(call, |request| self.set_permission(context, &request)),
            "setOwner" => with(call, |request| self.set_owner(context, &request)),
            "setTimes" => with(call, |request| self.set_times(context, &request)),
            "getXAttrs" => with(call, |request| self.xattrs(context, &request)),
            "listXAttrs" => with(call, |request| self.xattr_names(context, &request)),
            "setQuota" => with(call, |request| self.set_quota(context, &request)),
            "setXAttr" => with(call, |request| self.set_xattr(context, &request)),
            "removeXAttr" => with(call, |request| self.remove_xattr(context, &request)),
            "modifyAclEntries" => with(call, |request| self.modify_acl(context, &request)),
            "removeAclEntries" => with(call, |request| self.remove_acl_entries(context, &request)),
            "removeDefaultAcl" => with(call, |request| self.remove_default_acl(context, &request)),
            "removeAcl" => with(call, |request| self.remove_acl(context, &request)),
            "setAcl" => with(call, |request| self.set_acl(context, &request)),
            "concat" => with(call, |request| self.concat(context, &request)),
            "setReplication" => with(call, |request| self.set_replication(context, &request)),
            "truncate" => with(call, |request| self.truncate(context, &request)),

            "createSnapshot" => with(call, |request| self.create_snapshot(context, &request)),
            "deleteSnapshot" => with(call, |request| self.delete_snapshot(context, &request)),
            "renameSnapshot" => with(call, |request| self.rename_snapshot(context, &request)),
            "allowSnapshot" => with(call, |path: proto::PathRequest| self.allow_snapshot(context, &path.path)),
            "disallowSnapshot" => with(call, |path: proto::PathRequest| self.disallow_snapshot(context, &path.path)),
            "getSnapshottableDirListing" => with(call, |()| self.snapshotted_directories(context)),
            "getSnapshotListing" => with(call, |path: proto::PathRequest| self.snapshot_listing(context, &path.path)),
            "getSnapshotDiffReport" => with(call, |request| self.snapshot_diff(context, &request)),

            "create" => with(call, |request| self.create(context, &request)),
            "append" => with(call, |request| self.append(context, &request)),
            "addBlock" => with(call, |request| self.add_block(context, &request)),
            "abandonBlock" => with(call, |request| self.abandon_block(context, &request)),
            "complete" => with(call, |request| self.complete(context, &request)),
            "fsync" => with(call, |request| self.fsync(context, &request)),
            "getAdditionalDatanode" => with(call, |request| self.additional_place(context, &request)),
            "updateBlockForPipeline" => with(call, |request| self.update_block(context, &request)),
            "updatePipeline" => with(call, |request| self.update_pipeline(context, &request)),
            "renewLease" => with(call, |request: proto::RenewLeaseRequest| {
                self.leases.renew(&context.holder(&request.client_name));
                Ok(())
            }),
            "recoverLease" => with(call, |request| self.recover_lease(context, &request)),
            // A client tells which replicas it found damaged. Its read has not ended well, so the next one of the file is verified here, and
            // what is damaged is named in the log.
            "reportBadBlocks" => Ok(Vec::new()),

            // Clients ask for the whole report where a server knows no pages of it: only this tells them.
            "getSnapshotDiffReportListing" => Err(unknown(&call.method, PROTOCOL)),
            method if UNSUPPORTED.contains(&method) => {
                Err(Exception::unsupported(format!("{method} is not supported by frieze")))
            }
            method => Err(unknown(method, PROTOCOL)),
        }
    }

    /// The file system for the caller. What it makes belongs to the group of its directory, as in HDFS.
    pub(crate) fn fs(&self, context: CallContext<'_>) -> Fs {
        self.client.fs().as_caller(context.user.account.caller.clone()).sharing_group()
    }

    /// What a path means. One by the number of a file means the path that it has now, to who may list its directory: refusals on the way
    /// name names, and a number is to tell nobody one that he could not have listed.
    fn place(&self, context: CallContext<'_>, path: &str) -> Result<ParsedPath, Exception> {
        let Some((number, rest)) = numbered(path) else { return place(path) };
        let gone = || Exception::not_found(format!("File for given inode path does not exist: {path}"));
        let found = self.fs(context).path_of(InodeId(number)).map_err(|error| match error.reason() {
            Reason::NoAttribute | Reason::NotFound | Reason::StaleHandle => gone(),
            Reason::AccessDenied => Exception::access_control(format!("Permission denied: {path}")),
            _ => Exception::of(error, path),
        })?;
        let now = String::from_utf8(shown(&found)).map_err(|_| gone())?;
        place(&format!("{now}{rest}"))
    }

    /// What a path names, to look at: a view and a target there.
    ///
    /// # Errors
    /// As what the path needs looked up.
    pub(crate) fn look(&self, context: CallContext<'_>, path: &str) -> Result<ResolvedPath, Exception> {
        let fs = self.fs(context);
        match self.place(context, path)? {
            ParsedPath::Now(path) => Ok(ResolvedPath { fs, target: Target::path(path), shows: DirectoryView::Names }),
            ParsedPath::At(directory) => {
                Ok(ResolvedPath { fs, target: Target::path(directory), shows: DirectoryView::Instants })
            }
            ParsedPath::Snapshots(directory) => {
                Ok(ResolvedPath { fs, target: Target::path(directory), shows: DirectoryView::Snapshots })
            }
            ParsedPath::Past(past) => {
                let (fs, target) = moving_instants::view(&self.client, &self.moving, context.program, &fs, &past)
                    .map_err(|error| Exception::of(error, path))?;
                Ok(ResolvedPath { fs, target, shows: DirectoryView::Names })
            }
        }
    }

    /// What a path names, to change it; its last name is not followed.
    ///
    /// # Errors
    /// `SnapshotAccessControlException` for the past.
    pub(crate) fn change(&self, context: CallContext<'_>, path: &str) -> Result<Target, Exception> {
        match self.place(context, path)? {
            ParsedPath::Now(path) => Ok(Target::under(InodeId::ROOT, path)),
            ParsedPath::At(_) | ParsedPath::Snapshots(_) | ParsedPath::Past(_) => Err(Exception::past_of(path)),
        }
    }
}

/// What a path names.
#[derive(Debug)]
pub(crate) struct ResolvedPath {
    /// The view.
    pub(crate) fs: Fs,
    /// The file there.
    pub(crate) target: Target,
    /// What it shows if it is a directory.
    pub(crate) shows: DirectoryView,
}

/// What a directory shows when it is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DirectoryView {
    /// The names in it.
    Names,
    /// The instants that have a name: it is the `.at` of the directory.
    Instants,
    /// Its snapshots: it is the `.snapshot` of the directory.
    Snapshots,
}

pub(crate) fn unknown(method: &str, protocol: &str) -> Exception {
    Exception::no_such_method(format!("Unknown method {method} called on {protocol} protocol."))
}

/// Reads the parameters of a call and writes its answer.
pub(crate) fn with<Q: Message + Default, R: Message>(
    call: &Call,
    answer: impl FnOnce(Q) -> Result<R, Exception>,
) -> CallResult {
    let request = Q::decode(call.parameters.as_slice()).map_err(|error| malformed(&call.method, &error))?;
    Ok(answer(request)?.encode_to_vec())
}

fn server_defaults() -> proto::GetServerDefaultsResponse {
    proto::GetServerDefaultsResponse {
        server_defaults: Some(proto::FsServerDefaults {
            block_size: BLOCK_BYTES,
            bytes_per_checksum: crate::transfer::CHUNK_BYTES,
            write_packet_size: 64 << 10,
            replication: 1,
            file_buffer_size: 4096,
            encrypt_data_transfer: Some(false),
            // What is removed is in the past: there is no folder for it.
            trash_interval: Some(0),
            checksum_type: Some(checksum::CRC32C),
            // Present and empty: there is no encryption. Absent, a client looks for it in its own settings.
            key_provider_uri: Some(String::new()),
        }),
    }
}

/// The one policy: on disk.
fn storage_policy() -> proto::BlockStoragePolicy {
    proto::BlockStoragePolicy {
        policy_id: 7,
        name: "HOT".to_owned(),
        creation_policy: Some(proto::StorageTypes { storage_types: vec![proto::DISK] }),
    }
}

/// How long an empty file that was closed waits for others.
const CLOSED_MOMENT: Duration = Duration::from_millis(5);
/// How old a lease is when it is noted, at least, and how often it is looked for such.
const NOTED_EVERY: Duration = Duration::from_secs(1);
/// How long a door that closes waits for its session to end.
const FAREWELL: Duration = Duration::from_secs(1);

/// Calls that find something else when they come again.
const RUN_ONCE: &[&str] = &[
    "mkdirs",
    "rename",
    "rename2",
    "delete",
    "create",
    "append",
    "addBlock",
    "complete",
    "truncate",
    "abandonBlock",
    "updateBlockForPipeline",
    "updatePipeline",
    "recoverLease",
    "setTimes",
    "setPermission",
    "setQuota",
    "setOwner",
    "setXAttr",
    "removeXAttr",
    "modifyAclEntries",
    "removeAclEntries",
    "removeDefaultAcl",
    "removeAcl",
    "setAcl",
    "concat",
    "createSnapshot",
    "deleteSnapshot",
    "renameSnapshot",
];

/// Calls of the protocol that are refused, so that who makes one is told what it is.
const UNSUPPORTED: &[&str] = &[
    "addCacheDirective",
    "addCachePool",
    "addErasureCodingPolicies",
    "cancelDelegationToken",
    "createEncryptionZone",
    "createSymlink",
    "disableErasureCodingPolicy",
    "enableErasureCodingPolicy",
    "finalizeUpgrade",
    "getCurrentEditLogTxid",
    "getDatanodeStorageReport",
    "getECTopologyResultForPolicies",
    "getEditsFromTxid",
    "getLinkTarget",
    "metaSave",
    "modifyCacheDirective",
    "modifyCachePool",
    "reencryptEncryptionZone",
    "refreshNodes",
    "removeCacheDirective",
    "removeCachePool",
    "removeErasureCodingPolicy",
    "renewDelegationToken",
    "restoreFailedStorage",
    "rollEdits",
    "rollingUpgrade",
    "satisfyStoragePolicy",
    "saveNamespace",
    "setBalancerBandwidth",
    "setErasureCodingPolicy",
    "setStoragePolicy",
    "unsetErasureCodingPolicy",
    "unsetStoragePolicy",
];
