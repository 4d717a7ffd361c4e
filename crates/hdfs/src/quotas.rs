//! Quotas of names and space: those of frieze, in Hadoop's terms.
//!
//! A quota of names counts the directory itself, as frieze's does. One of space counts the bytes of files once,
//! whatever their replication; so does the space consumed.

use frieze_client::{Attr, Caller, FileKind, InodeId, Quota, QuotaUse, Target};

use crate::attributes::is_absent;
use crate::exception::Exception;
use crate::file_names::{FileNames, ResolvedPath};
use crate::proto::{self, SetQuotaRequest};
use crate::remote_user::CallContext;

/// In a call: leaves a quota unchanged (`HdfsConstants.QUOTA_DONT_SET`). [`NO_QUOTA`] removes it.
const AS_IT_IS: u64 = i64::MAX as u64;

/// Sets or removes one of the quotas of a directory, or both.
pub(crate) fn set_quota(
    names: &FileNames,
    context: CallContext<'_>,
    request: &SetQuotaRequest,
) -> Result<(), Exception> {
    let path = &request.path;
    let target = names.resolve_for_change(context, path)?;
    names.check_operator(context)?;
    if request.storage_type.is_some() {
        return Err(Exception::unsupported(format!("{path}: frieze has no quotas of kinds of storage")));
    }
    let (files, bytes) = (request.namespace_quota, request.storagespace_quota);
    let is_number = |quota: u64| quota <= AS_IT_IS || quota == NO_QUOTA;
    if !is_number(files) || !is_number(bytes) || files == 0 {
        return Err(Exception::argument(format!(
            "Illegal value for nsQuota or dsQuota : {} and {}",
            files.cast_signed(),
            bytes.cast_signed()
        )));
    }
    // The user of this gateway may set quotas like the superuser, and is not root everywhere.
    let fs = names.client.fs().as_caller(Caller::root());
    let failed = |error| Exception::of(error, path);
    if fs.stat(&target).map_err(failed)?.attr.kind() != FileKind::Directory {
        return Err(Exception::not_found(format!("Directory does not exist: {path}")));
    }
    let is = fs.quota(&target).map_err(failed)?.map_or(Quota::default(), |usage| usage.quota);
    let then = |wanted: u64, is: Option<u64>| match wanted {
        NO_QUOTA => None,
        AS_IT_IS => is,
        most => Some(most),
    };
    let quota = Quota { files_max: then(files, is.files_max), bytes_max: then(bytes, is.bytes_max), ..is };
    fs.set_quota(&target, &quota).map_err(failed)
}

/// The use of the quotas of a directory: counted by the server if it has one, else here.
pub(crate) fn quota_usage(
    names: &FileNames,
    context: CallContext<'_>,
    path: &str,
) -> Result<proto::GetQuotaUsageResponse, Exception> {
    let quota = quota_and_use(names, context, path)?;
    let (files, bytes) = match &quota {
        Some(QuotaUse { used, .. }) => (used.files, used.bytes),
        None => {
            let sums = sums(names, context, path)?;
            (sums.files + sums.directories, sums.bytes)
        }
    };
    let quota = quota.map_or(Quota::default(), |usage| usage.quota);
    let usage = proto::QuotaUsage {
        file_and_directory_count: files,
        quota: quota.files_max.unwrap_or(NO_QUOTA),
        space_consumed: bytes,
        space_quota: quota.bytes_max.unwrap_or(NO_QUOTA),
    };
    Ok(proto::GetQuotaUsageResponse { usage: Some(usage) })
}

/// The quota of a directory. The past has none: quotas bound changes of the present.
pub(crate) fn quota_of(names: &FileNames, context: CallContext<'_>, path: &str) -> Result<Quota, Exception> {
    Ok(quota_and_use(names, context, path)?.map_or(Quota::default(), |usage| usage.quota))
}

fn quota_and_use(names: &FileNames, context: CallContext<'_>, path: &str) -> Result<Option<QuotaUse>, Exception> {
    let ResolvedPath { fs, target, .. } = names.resolve(context, path)?;
    match fs.view().is_past() {
        true => Ok(None),
        false => fs.quota(&target).map_err(|error| Exception::of(error, path)),
    }
}

/// Files, directories and bytes below a path.
pub(crate) fn content_summary(
    names: &FileNames,
    context: CallContext<'_>,
    path: &str,
) -> Result<proto::GetContentSummaryResponse, Exception> {
    let (sums, quota) = (sums(names, context, path)?, quota_of(names, context, path)?);
    let summary = proto::ContentSummary {
        length: sums.bytes,
        file_count: sums.files,
        directory_count: sums.directories,
        quota: quota.files_max.unwrap_or(NO_QUOTA),
        space_consumed: sums.bytes,
        space_quota: quota.bytes_max.unwrap_or(NO_QUOTA),
    };
    Ok(proto::GetContentSummaryResponse { summary: Some(summary) })
}

pub(crate) fn sums(names: &FileNames, context: CallContext<'_>, path: &str) -> Result<TreeTotals, Exception> {
    let failed = |error| Exception::of(error, path);
    let resolved = names.resolve(context, path)?;
    let attr = resolved.fs.stat(&resolved.target).map_err(failed)?.attr;
    let mut sums = TreeTotals::default();
    sums.add(&attr);
    let mut directories = Vec::new();
    if attr.kind() == FileKind::Directory {
        directories.push(resolved.target);
    }
    while let Some(directory) = directories.pop() {
        let mut after = Vec::new();
        loop {
            let page = match resolved.fs.list(&directory, &after, 0, true) {
                Ok(page) => page,
                // Removed while its siblings were listed.
                Err(error) if is_absent(&error) => break,
                Err(error) => return Err(failed(error)),
            };
            let Some(last) = page.entries.last() else { break };
            after.clone_from(&last.name);
            for entry in &page.entries {
                let Some(attr) = &entry.attr else { continue };
                sums.add(attr);
                if attr.kind() == FileKind::Directory {
                    directories.push(Target::under(InodeId(page.inode), entry.name.as_slice()));
                }
            }
            if !page.more {
                break;
            }
        }
    }
    Ok(sums)
}

#[derive(Debug, Default)]
pub(crate) struct TreeTotals {
    pub(crate) files: u64,
    pub(crate) directories: u64,
    pub(crate) bytes: u64,
}

impl TreeTotals {
    fn add(&mut self, attr: &Attr) {
        match attr.kind() {
            FileKind::Directory => self.directories += 1,
            FileKind::File => {
                self.files += 1;
                self.bytes += attr.size;
            }
            _ => self.files += 1,
        }
    }
}

/// No quota: -1 on the wire.
pub(crate) const NO_QUOTA: u64 = u64::MAX;
