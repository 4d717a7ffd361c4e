//! The table of calls: every method of Hadoop's `ClientProtocol`, and the function that answers it.
//!
//! Calls that read are in [`crate::queries`], those that change names and attributes in [`crate::mutations`], those
//! that write files in [`crate::file_writes`]. A feature that frieze does not have is answered as absent where the
//! protocol can say that (no encryption zone, no erasure coding), and refused by name where it cannot.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use frieze_base::MonoTime;
use prost::Message;

use crate::batched_listing::batched_listing;
use crate::blocks::BLOCK_BYTES;
use crate::call_codec::{unknown, with};
use crate::concat::concat;
use crate::exception::Exception;
use crate::file_names::FileNames;
use crate::file_writers::FileWriters;
use crate::file_writes::FileWrites;
use crate::locations::BlockLocator;
use crate::mutations::Mutations;
use crate::proto::{self, ResultResponse, checksum};
use crate::queries::Queries;
use crate::remote_user::{CallContext, RemoteUser};
use crate::retry_cache::{CallResult, RetryCache};
use crate::rpc::{Call, CallId};
use crate::{acls, administration, quotas, recorded, replicas, snapshots, xattrs};

/// Name of the protocol.
pub(crate) const PROTOCOL: &str = "org.apache.hadoop.hdfs.protocol.ClientProtocol";

/// The contexts of calls and transfers.
pub(crate) struct Service {
    pub(crate) names: FileNames,
    pub(crate) locator: Arc<BlockLocator>,
    pub(crate) writers: FileWriters,
    pub(crate) retries: RetryCache,
    /// Start of this process.
    pub(crate) began: MonoTime,
    /// Safe mode: changes are refused.
    pub(crate) is_safe: AtomicBool,
    /// Its receiver ends the thread that stores leases when this is dropped.
    pub(crate) _lease_thread: Sender<Infallible>,
}

impl Service {
    /// Starts the thread that stores leases. It ends with the sender of `ended`.
    pub(crate) fn store_leases(self: &Arc<Service>, ended: Receiver<Infallible>) -> io::Result<()> {
        let service = Arc::downgrade(self);
        let note = move || {
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(STORE_EVERY) {
                let Some(service) = service.upgrade() else { return };
                service.writers.leases.note(STORE_EVERY.as_nanos() as u64);
            }
        };
        thread::Builder::new().name("hdfs-leases".to_owned()).spawn(note).map(drop)
    }
}

impl Service {
    /// The gateway ends: stores its leases. The cluster may have ended already, and is not waited for.
    pub(crate) fn leave(&self) {
        if self.names.client.has_others() {
            self.names.client.end_within(SESSION_END_MAX);
        }
        self.writers.leases.leave();
    }
}

impl Drop for Service {
    /// Ends the session, and with it the thread that closes files.
    fn drop(&mut self) {
        self.names.client.end_within(SESSION_END_MAX);
        if let Err(error) = self.names.client.close() {
            tracing::debug!("the session of a gateway could not be ended: {error}");
        }
    }
}

impl Service {
    /// Answers a call. A change runs once, however often it is sent.
    pub(crate) fn answer(&self, user: &RemoteUser, call: &Call) -> CallResult {
        let scope = self.names.client.scope(recorded::call_of(&call.method));
        let answer = self.answer_call(user, call);
        recorded::end(&scope, &answer);
        answer
    }

    fn answer_call(&self, user: &RemoteUser, call: &Call) -> CallResult {
        let context = CallContext { user, program: &call.id.client };
        if call.protocol == replicas::PROTOCOL {
            return replicas::answer_of_replica(&self.names, &self.writers.leases, self.began, context, call);
        }
        if call.protocol != PROTOCOL {
            return Err(Exception::no_such_protocol(format!("Unknown protocol: {}", call.protocol)));
        }
        if !RUN_ONCE.contains(&call.method.as_str()) {
            return self.run(context, call);
        }
        if self.is_safe.load(Ordering::Acquire) {
            return Err(Exception::safe_mode(format!(
                "{}: this gateway is in safe mode and refuses changes",
                call.method
            )));
        }
        // A call without a number is not repeated under it.
        if call.id == CallId::default() {
            return self.run(context, call);
        }
        // A user that sends another user's number does not get that result.
        let client = [user.account.caller.uid.to_be_bytes().as_slice(), &call.id.client].concat();
        self.retries.once(&CallId { client, number: call.id.number }, || self.run(context, call))
    }

    /// Reads, enters or leaves safe mode. Other gateways, and transfers in progress, are not affected.
    fn set_safe_mode(
        &self,
        context: CallContext<'_>,
        request: &proto::SetSafeModeRequest,
    ) -> Result<ResultResponse, Exception> {
        if request.action != proto::SAFEMODE_GET {
            self.names.check_operator(context)?;
            self.is_safe.store(request.action == proto::SAFEMODE_ENTER, Ordering::Release);
        }
        Ok(ResultResponse { result: self.is_safe.load(Ordering::Acquire) })
    }

    fn run(&self, context: CallContext<'_>, call: &Call) -> CallResult {
        let (names, locator, writers) = (&self.names, &*self.locator, &self.writers);
        let queries = Queries { names, locator, writers };
        let mutations = Mutations { names, writers };
        let writes = FileWrites { names, locator, writers };
        match call.method.as_str() {
            "getFileInfo" => with(call, |path: proto::PathRequest| queries.file_info(context, &path.path, true)),
            "getFileLinkInfo" => with(call, |path: proto::PathRequest| queries.file_info(context, &path.path, false)),
            "getLocatedFileInfo" => with(call, |request: proto::GetLocatedFileInfoRequest| {
                queries.located_file_info(context, request.src.as_deref().unwrap_or_default())
            }),
            "getListing" => with(call, |request| queries.listing(context, &request)),
            "getBatchedListing" => with(call, |request| batched_listing(queries, context, &request)),
            "getBlockLocations" => with(call, |request| queries.block_locations(context, &request)),
            "getContentSummary" => {
                with(call, |path: proto::PathRequest| quotas::content_summary(names, context, &path.path))
            }
            "getQuotaUsage" => with(call, |path: proto::PathRequest| quotas::quota_usage(names, context, &path.path)),
            "getPreferredBlockSize" => with(call, |path: proto::PathRequest| queries.block_size(context, &path.path)),
            "getAclStatus" => with(call, |path: proto::PathRequest| acls::acl_status(names, context, &path.path)),
            "checkAccess" => with(call, |request| queries.check_access(context, &request)),
            "isFileClosed" => with(call, |path: proto::PathRequest| queries.is_file_closed(context, &path.path)),
            "getFsStats" => with(call, |()| queries.stats()),
            "getFsReplicatedBlockStats" => with(call, |()| administration::replicated_block_stats(names)),
            "getFsECBlockGroupStats" => with(call, |()| Ok(administration::erasure_coded_stats())),
            "listCorruptFileBlocks" => with(call, |request| administration::corrupt_files(names, context, &request)),
            "listOpenFiles" => {
                with(call, |request| administration::open_files(names, &writers.leases, context, &request))
            }
            "getServerDefaults" => with(call, |()| Ok(server_defaults())),
            "getDatanodeReport" => with(call, |request| queries.datanode_report(context, &request)),
            "getStoragePolicies" => {
                with(call, |()| Ok(proto::GetStoragePoliciesResponse { policies: vec![storage_policy()] }))
            }
            "getStoragePolicy" => with(call, |path: proto::PathRequest| {
                queries.file_info(context, &path.path, true)?;
                Ok(proto::GetStoragePolicyResponse { storage_policy: Some(storage_policy()) })
            }),
            "setSafeMode" => with(call, |request| self.set_safe_mode(context, &request)),
            // Features that frieze does not have: an empty answer.
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
            // There is no encryption zone, whose root this would be.
            "getEnclosingRoot" => {
                Ok(proto::GetEnclosingRootResponse { enclosing_root_path: Some("/".to_owned()) }.encode_to_vec())
            }
            "upgradeStatus" => Ok(proto::UpgradeStatusResponse { upgrade_finalized: true }.encode_to_vec()),
            // Reads of the present are linearizable.
            "msync" => Ok(Vec::new()),
            "getHAServiceState" => with(call, |()| Ok(proto::HaServiceStateResponse { state: proto::ACTIVE })),

            "mkdirs" => with(call, |request| mutations.mkdirs(context, &request)),
            "rename" => with(call, |request| mutations.rename(context, &request)),
            "rename2" => with(call, |request| mutations.rename_or_fail(context, &request)),
            "delete" => with(call, |request| mutations.delete(context, &request)),
            "setPermission" => with(call, |request| mutations.set_permission(context, &request)),
            "setOwner" => with(call, |request| mutations.set_owner(context, &request)),
            "setTimes" => with(call, |request| mutations.set_times(context, &request)),
            "getXAttrs" => with(call, |request| xattrs::xattrs(names, context, &request)),
            "listXAttrs" => with(call, |request| xattrs::xattr_names(names, context, &request)),
            "setQuota" => with(call, |request| quotas::set_quota(names, context, &request)),
            "setXAttr" => with(call, |request| xattrs::set_xattr(names, context, &request)),
            "removeXAttr" => with(call, |request| xattrs::remove_xattr(names, context, &request)),
            "modifyAclEntries" => with(call, |request| acls::modify_acl(names, context, &request)),
            "removeAclEntries" => with(call, |request| acls::remove_acl_entries(names, context, &request)),
            "removeDefaultAcl" => with(call, |request| acls::remove_default_acl(names, context, &request)),
            "removeAcl" => with(call, |request| acls::remove_acl(names, context, &request)),
            "setAcl" => with(call, |request| acls::set_acl(names, context, &request)),
            "concat" => with(call, |request| concat(names, writers, context, &request)),
            "setReplication" => with(call, |request| mutations.set_replication(context, &request)),
            "truncate" => with(call, |request| mutations.truncate(context, &request)),

            "createSnapshot" => with(call, |request| snapshots::create_snapshot(names, context, &request)),
            "deleteSnapshot" => with(call, |request| snapshots::delete_snapshot(names, context, &request)),
            "renameSnapshot" => with(call, |request| snapshots::rename_snapshot(names, context, &request)),
            "allowSnapshot" => {
                with(call, |path: proto::PathRequest| snapshots::allow_snapshot(names, context, &path.path))
            }
            "disallowSnapshot" => {
                with(call, |path: proto::PathRequest| snapshots::disallow_snapshot(names, context, &path.path))
            }
            "getSnapshottableDirListing" => with(call, |()| snapshots::snapshotted_directories(names, context)),
            "getSnapshotListing" => {
                with(call, |path: proto::PathRequest| snapshots::snapshot_listing(names, context, &path.path))
            }
            "getSnapshotDiffReport" => with(call, |request| snapshots::diff::snapshot_diff(names, context, &request)),

            "create" => with(call, |request| writes.create(context, &request)),
            "append" => with(call, |request| writes.append(context, &request)),
            "addBlock" => with(call, |request| writes.add_block(context, &request)),
            "abandonBlock" => with(call, |request| writes.abandon_block(context, &request)),
            "complete" => with(call, |request| writes.complete(context, &request)),
            "fsync" => with(call, |request| writes.fsync(context, &request)),
            "getAdditionalDatanode" => with(call, |request| writes.additional_location(context, &request)),
            "updateBlockForPipeline" => with(call, |request| writes.update_block(context, &request)),
            "updatePipeline" => with(call, |request| writes.update_pipeline(context, &request)),
            "renewLease" => with(call, |request: proto::RenewLeaseRequest| {
                writers.leases.renew(&context.holder(&request.client_name));
                Ok(())
            }),
            "recoverLease" => with(call, |request| writes.recover_lease(context, &request)),
            // A client reports replicas that it found damaged. Its read has not ended well, so the next read of the
            // file is verified here, and damage is logged.
            "reportBadBlocks" => Ok(Vec::new()),

            // Only this exception makes clients request the whole report.
            "getSnapshotDiffReportListing" => Err(unknown(&call.method, PROTOCOL)),
            method if UNSUPPORTED.contains(&method) => {
                Err(Exception::unsupported(format!("{method} is not supported by frieze")))
            }
            method => Err(unknown(method, PROTOCOL)),
        }
    }
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
            // Removed files are in the past: there is no trash.
            trash_interval: Some(0),
            checksum_type: Some(checksum::CRC32C),
            // Present and empty: no encryption. Absent, a client would use its own settings.
            key_provider_uri: Some(String::new()),
        }),
    }
}

/// The only policy: on disk.
fn storage_policy() -> proto::BlockStoragePolicy {
    proto::BlockStoragePolicy {
        policy_id: 7,
        name: "HOT".to_owned(),
        creation_policy: Some(proto::StorageTypes { storage_types: vec![proto::DISK] }),
    }
}

/// Age of a lease when it is stored, at least, and interval of the check.
const STORE_EVERY: Duration = Duration::from_secs(1);
/// How long a gateway that closes waits for the end of its session.
const SESSION_END_MAX: Duration = Duration::from_secs(1);

/// Calls that a repetition would find already done.
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

/// Methods of the protocol that are refused by name.
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
