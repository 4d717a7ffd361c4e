//! Directories with a quota, and what is known of their use.

use std::collections::BTreeMap;

use frieze_base::{FastMap, InodeId};
use frieze_wire::message::FileKind;
use frieze_wire::quota::{Quota, TreeUsage};

use crate::inode::Inode;

/// All directories with a quota, and what is known of their use.
#[derive(Debug, Default)]
pub(crate) struct Quotas {
    pub(crate) limits: BTreeMap<InodeId, QuotaLimit>,
    /// Those whose use is not known: after a restart, and when one was just set.
    pub(crate) uncounted: Vec<InodeId>,
    /// Counts the changes of quotas, and the moves from below one to below another, since the start.
    pub(crate) changes: u64,
    /// What inodes counted for before the transaction that runs.
    pub(crate) before: FastMap<InodeId, Option<QuotaCharge>>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct QuotaLimit {
    pub(crate) quota: Quota,
    /// `None` while it is among the uncounted.
    pub(crate) used: Option<TreeUsage>,
}

/// What an inode counts for, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QuotaCharge {
    pub(crate) home: InodeId,
    pub(crate) bytes: u64,
    pub(crate) is_directory: bool,
}

impl QuotaCharge {
    pub(crate) fn of(inode: &Inode) -> Option<QuotaCharge> {
        let has_name = inode.links > 0 && inode.orphaned().is_none() && inode.parent.0 != 0;
        let bytes = if inode.kind() == FileKind::File { inode.size } else { 0 };
        has_name.then_some(QuotaCharge { home: inode.parent, bytes, is_directory: inode.is_directory() })
    }

    pub(crate) fn usage(self) -> TreeUsage {
        TreeUsage { files: 1, bytes: self.bytes }
    }
}
