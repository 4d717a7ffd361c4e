//! The name service: every call of Hadoop's `ClientProtocol`, and which function answers it.
//!
//! Calls that look are in [`crate::reading`], those that change names and attributes in [`crate::changing`], those that write
//! files in [`crate::writing`]. What frieze has nothing of is answered so where that is an answer (no encryption zone, no
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

use crate::blocks::{BLOCK_BYTES, Mint};
use crate::exception::{Exception, malformed};
use crate::leases::Leases;
use crate::names::{Place, numbered, place, shown};
use crate::past::{self, Moving};
use crate::principals::{Names, Principal};
use crate::proto::{self, ResultResponse, checksum};
use crate::replicas;
use crate::retries::{Answer, Retries};
use crate::rpc::{Call, CallId};
use crate::status::Reader;

/// The protocol that is served.
pub(crate) const PROTOCOL: &str = "org.apache.hadoop.hdfs.protocol.ClientProtocol";

/// Where blocks are read and written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataPlace {
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
    pub(crate) names: Names,
    pub(crate) mint: Mint,
    /// Signs what this door says to others.
    pub(crate) between_doors: Mint,
    pub(crate) leases: Leases,
    pub(crate) moving: Moving,
    pub(crate) retries: Retries,
    pub(crate) data: DataPlace,
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
pub struct Who {
    /// Whom the connection speaks for.
    pub principal: Principal,
    /// Which address of this machine it reached.
    pub reached: IpAddr,
    /// From which it came.
    pub peer: IpAddr,
}

/// A call under way: who asks, and from which program; no program if that is not known.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) who: &'a Who,
    pub(crate) program: &'a [u8],
}

impl Asked<'_> {
    /// Who holds a lease that this program asks for by the name it calls itself: others may say that name, but not as this user.
    pub(crate) fn holder(&self, client_name: &str) -> String {
        format!("{client_name} of {}", self.who.principal.caller.uid)
    }

    pub(crate) fn reader(&self) -> Reader<'_> {
        Reader { caller: Some(&self.who.principal.caller), reached: self.who.reached, peer: self.who.peer }
    }
}

impl Service {
    /// Answers a call. One that changes something runs once, however often it is sent.
    pub(crate) fn answer(&self, who: &Who, call: &Call) -> Answer {
        let asked = Asked { who, program: &call.id.client };
        if call.protocol == replicas::PROTOCOL {
            return self.answer_of_replica(asked, call);
        }
        if call.protocol != PROTOCOL {
            return Err(Exception::no_such_protocol(format!("Unknown protocol: {}", call.protocol)));
        }
        if !RUN_ONCE.contains(&call.method.as_str()) {
            return self.run(asked, call);
        }
        if self.is_safe.load(Ordering::Acquire) {
            return Err(Exception::safe_mode(format!(
                "{}: this door is in safe mode, nothing is changed",
                call.method
            )));
        }
        // What has no number does not come again under it.
        if call.id == CallId::default() {
            return self.run(asked, call);
        }
        // Whoever says another's number is not told what that one was.
        let client = [who.principal.caller.uid.to_be_bytes().as_slice(), &call.id.client].concat();
        self.retries.once(&CallId { client, number: call.id.number }, || self.run(asked, call))
    }

    /// Whether this door refuses changes; an operator may have it do so. Other doors go on, and so do transfers that have begun.
    fn set_safe_mode(
        &self,
        asked: Asked<'_>,
        request: &proto::SetSafeModeRequest,
    ) -> Result<ResultResponse, Exception> {
        if request.action != proto::SAFEMODE_GET {
            self.check_operator(asked)?;
            self.is_safe.store(request.action == proto::SAFEMODE_ENTER, Ordering::Release);
        }
        Ok(ResultResponse { result: self.is_safe.load(Ordering::Acquire) })
    }

    /// Whether who asks is the superuser, or who runs this door.
    ///
    /// # Errors
    /// `AccessControlException`.
    pub(crate) fn check_operator(&self, asked: Asked<'_>) -> Result<(), Exception> {
        let Principal { name, caller } = &asked.who.principal;
        match [0, self.client.hello().uid].contains(&caller.uid) {
            true => Ok(()),
            false => Err(Exception::access_control(format!(
                "Access denied for user {name}. Superuser privilege is required"
            ))),
        }
    }

    fn run(&self, asked: Asked<'_>, call: &Call) -> Answer {
        match call.method.as_str() {
            "getFileInfo" => with(call, |path: proto::PathRequest| self.file_info(asked, &path.path, true)),
            "getFileLinkInfo" => with(call, |path: proto::PathRequest| self.file_info(asked, &path.path, false)),
            "getLocatedFileInfo" => with(call, |request: proto::GetLocatedFileInfoRequest| {
                self.located_file_info(asked, request.src.as_deref().unwrap_or_default())
            }),
            "getListing" => with(call, |request| self.listing(asked, &request)),
            "getBatchedListing" => with(call, |request| self.batched_listing(asked, &request)),
            "getBlockLocations" => with(call, |request| self.block_locations(asked, &request)),
            "getContentSummary" => with(call, |path: proto::PathRequest| self.content_summary(asked, &path.path)),
            "getQuotaUsage" => with(call, |path: proto::PathRequest| self.quota_usage(asked, &path.path)),
            "getPreferredBlockSize" => with(call, |path: proto::PathRequest| self.block_size(asked, &path.path)),
            "getAclStatus" => with(call, |path: proto::PathRequest| self.acl_status(asked, &path.path)),
            "checkAccess" => with(call, |request| self.check_access(asked, &request)),
            "isFileClosed" => with(call, |path: proto::PathRequest| self.is_file_closed(asked, &path.path)),
            "getFsStats" => with(call, |()| self.stats()),
            "getFsReplicatedBlockStats" => with(call, |()| self.replicated_block_stats()),
            "getFsECBlockGroupStats" => with(call, |()| Ok(self.erasure_coded_stats())),
            "listCorruptFileBlocks" => with(call, |request| self.corrupt_files(asked, &request)),
            "listOpenFiles" => with(call, |request| self.open_files(asked, &request)),
            "getServerDefaults" => with(call, |()| Ok(server_defaults())),
            "getDatanodeReport" => with(call, |request| self.datanode_report(asked, &request)),
            "getStoragePolicies" => {
                with(call, |()| Ok(proto::GetStoragePoliciesResponse { policies: vec![storage_policy()] }))
            }
            "getStoragePolicy" => with(call, |path: proto::PathRequest| {
                self.file_info(asked, &path.path, true)?;
                Ok(proto::GetStoragePolicyResponse { storage_policy: Some(storage_policy()) })
            }),
            "setSafeMode" => with(call, |request| self.set_safe_mode(asked, &request)),
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

            "mkdirs" => with(call, |request| self.mkdirs(asked, &request)),
            "rename" => with(call, |request| self.rename(asked, &request)),
            "rename2" => with(call, |request| self.rename_or_fail(asked, &request)),
            "delete" => with(call, |request| self.delete(asked, &request)),
            "setPermission" => with(call, |request| self.set_permission(asked, &request)),
            "setOwner" => with(call, |request| self.set_owner(asked, &request)),
            "setTimes" => with(call, |request| self.set_times(asked, &request)),
            "getXAttrs" => with(call, |request| self.xattrs(asked, &request)),
            "listXAttrs" => with(call, |request| self.xattr_names(asked, &request)),
            "setQuota" => with(call, |request| self.set_quota(asked, &request)),
            "setXAttr" => with(call, |request| self.set_xattr(asked, &request)),
            "removeXAttr" => with(call, |request| self.remove_xattr(asked, &request)),
            "modifyAclEntries" => with(call, |request| self.modify_acl(asked, &request)),
            "removeAclEntries" => with(call, |request| self.remove_acl_entries(asked, &request)),
            "removeDefaultAcl" => with(call, |request| self.remove_default_acl(asked, &request)),
            "removeAcl" => with(call, |request| self.remove_acl(asked, &request)),
            "setAcl" => with(call, |request| self.set_acl(asked, &request)),
            "concat" => with(call, |request| self.concat(asked, &request)),
            "setReplication" => with(call, |request| self.set_replication(asked, &request)),
            "truncate" => with(call, |request| self.truncate(asked, &request)),

            "createSnapshot" => with(call, |request| self.create_snapshot(asked, &request)),
            "deleteSnapshot" => with(call, |request| self.delete_snapshot(asked, &request)),
            "renameSnapshot" => with(call, |request| self.rename_snapshot(asked, &request)),
            "allowSnapshot" => with(call, |path: proto::PathRequest| self.allow_snapshot(asked, &path.path)),
            "disallowSnapshot" => with(call, |path: proto::PathRequest| self.disallow_snapshot(asked, &path.path)),
            "getSnapshottableDirListing" => with(call, |()| self.snapshotted_directories(asked)),
            "getSnapshotListing" => with(call, |path: proto::PathRequest| self.snapshot_listing(asked, &path.path)),
            "getSnapshotDiffReport" => with(call, |request| self.snapshot_diff(asked, &request)),

            "create" => with(call, |request| self.create(asked, &request)),
            "append" => with(call, |request| self.append(asked, &request)),
            "addBlock" => with(call, |request| self.add_block(asked, &request)),
            "abandonBlock" => with(call, |request| self.abandon_block(asked, &request)),
            "complete" => with(call, |request| self.complete(asked, &request)),
            "fsync" => with(call, |request| self.fsync(asked, &request)),
            "getAdditionalDatanode" => with(call, |request| self.additional_place(asked, &request)),
            "updateBlockForPipeline" => with(call, |request| self.update_block(asked, &request)),
            "updatePipeline" => with(call, |request| self.update_pipeline(asked, &request)),
            "renewLease" => with(call, |request: proto::RenewLeaseRequest| {
                self.leases.renew(&asked.holder(&request.client_name));
                Ok(())
            }),
            "recoverLease" => with(call, |request| self.recover_lease(asked, &request)),
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
    pub(crate) fn fs(&self, asked: Asked<'_>) -> Fs {
        self.client.fs().as_caller(asked.who.principal.caller.clone()).sharing_group()
    }

    /// What a path means. One by the number of a file means the path that it has now, to who may list its directory: refusals on the way
    /// name names, and a number is to tell nobody one that he could not have listed.
    fn place(&self, asked: Asked<'_>, path: &str) -> Result<Place, Exception> {
        let Some((number, rest)) = numbered(path) else { return place(path) };
        let gone = || Exception::not_found(format!("File for given inode path does not exist: {path}"));
        let found = self.fs(asked).path_of(InodeId(number)).map_err(|error| match error.reason() {
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
    pub(crate) fn look(&self, asked: Asked<'_>, path: &str) -> Result<Looked, Exception> {
        let fs = self.fs(asked);
        match self.place(asked, path)? {
            Place::Now(path) => Ok(Looked { fs, target: Target::path(path), shows: Shows::Names }),
            Place::At(directory) => Ok(Looked { fs, target: Target::path(directory), shows: Shows::Instants }),
            Place::Snapshots(directory) => Ok(Looked { fs, target: Target::path(directory), shows: Shows::Snapshots }),
            Place::Past(past) => {
                let (fs, target) = past::view(&self.client, &self.moving, asked.program, &fs, &past)
                    .map_err(|error| Exception::of(error, path))?;
                Ok(Looked { fs, target, shows: Shows::Names })
            }
        }
    }

    /// What a path names, to change it; its last name is not followed.
    ///
    /// # Errors
    /// `SnapshotAccessControlException` for the past.
    pub(crate) fn change(&self, asked: Asked<'_>, path: &str) -> Result<Target, Exception> {
        match self.place(asked, path)? {
            Place::Now(path) => Ok(Target::under(InodeId::ROOT, path)),
            Place::At(_) | Place::Snapshots(_) | Place::Past(_) => Err(Exception::past_of(path)),
        }
    }
}

/// What a path names.
#[derive(Debug)]
pub(crate) struct Looked {
    /// The view.
    pub(crate) fs: Fs,
    /// The file there.
    pub(crate) target: Target,
    /// What it shows if it is a directory.
    pub(crate) shows: Shows,
}

/// What a directory shows when it is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shows {
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
) -> Answer {
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
