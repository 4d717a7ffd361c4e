//! Quotas of names and space: those of frieze, in Hadoop's words.
//!
//! A quota of names counts a directory itself, as frieze's does. One of space counts the bytes of files once, however many copies
//! there are; the space that is told to be consumed does too.

use frieze_client::{Caller, FileKind, Quota, TreeUsage};

use crate::exception::Exception;
use crate::proto::{self, SetQuotaRequest};
use crate::reading::NO_QUOTA;
use crate::service::{Asked, Looked, Service};

/// In a call: leave this one as it is (`HdfsConstants.QUOTA_DONT_SET`). [`NO_QUOTA`] takes it away.
const AS_IT_IS: u64 = i64::MAX as u64;

impl Service {
    /// Sets one of the quotas of a directory, or both, or takes them away.
    pub(crate) fn set_quota(&self, asked: Asked<'_>, request: &SetQuotaRequest) -> Result<(), Exception> {
        let path = &request.path;
        let target = self.change(asked, path)?;
        self.check_operator(asked)?;
        if request.storage_type.is_some() {
            return Err(Exception::unsupported(format!("{path}: frieze has no quotas of kinds of storage")));
        }
        let (files, bytes) = (request.namespace_quota, request.storagespace_quota);
        let is_number = |asked: u64| asked <= AS_IT_IS || asked == NO_QUOTA;
        if !is_number(files) || !is_number(bytes) || files == 0 {
            return Err(Exception::argument(format!(
                "Illegal value for nsQuota or dsQuota : {} and {}",
                files.cast_signed(),
                bytes.cast_signed()
            )));
        }
        // Who runs this door may do what only the superuser may, and is not him everywhere.
        let fs = self.client.fs().as_caller(Caller::root());
        let failed = |error| Exception::of(error, path);
        if fs.stat(&target).map_err(failed)?.attr.kind() != FileKind::Directory {
            return Err(Exception::not_found(format!("Directory does not exist: {path}")));
        }
        let is = fs.quota(&target).map_err(failed)?.map_or(Quota::default(), |(quota, _)| quota);
        let then = |asked: u64, is: Option<u64>| match asked {
            NO_QUOTA => None,
            AS_IT_IS => is,
            most => Some(most),
        };
        let quota = Quota { files_max: then(files, is.files_max), bytes_max: then(bytes, is.bytes_max) };
        fs.set_quota(&target, &quota).map_err(failed)
    }

    /// What is used of the quotas of a directory: as counted where it has one.
    pub(crate) fn quota_usage(&self, asked: Asked<'_>, path: &str) -> Result<proto::GetQuotaUsageResponse, Exception> {
        let quota = self.quota_and_use(asked, path)?;
        let (files, bytes) = match &quota {
            Some((_, used)) => (used.files, used.bytes),
            None => {
                let sums = self.sums(asked, path)?;
                (sums.files + sums.directories, sums.bytes)
            }
        };
        let quota = quota.map_or(Quota::default(), |(quota, _)| quota);
        let usage = proto::QuotaUsage {
            file_and_directory_count: files,
            quota: quota.files_max.unwrap_or(NO_QUOTA),
            space_consumed: bytes,
            space_quota: quota.bytes_max.unwrap_or(NO_QUOTA),
        };
        Ok(proto::GetQuotaUsageResponse { usage: Some(usage) })
    }

    /// The quota of a directory. Of the past there is none: it bounds what is done now.
    pub(crate) fn quota_of(&self, asked: Asked<'_>, path: &str) -> Result<Quota, Exception> {
        Ok(self.quota_and_use(asked, path)?.map_or(Quota::default(), |(quota, _)| quota))
    }

    fn quota_and_use(&self, asked: Asked<'_>, path: &str) -> Result<Option<(Quota, TreeUsage)>, Exception> {
        let Looked { fs, target, .. } = self.look(asked, path)?;
        match fs.view().is_past() {
            true => Ok(None),
            false => fs.quota(&target).map_err(|error| Exception::of(error, path)),
        }
    }
}
