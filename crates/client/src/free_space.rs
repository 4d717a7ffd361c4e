//! Free space.

use frieze_wire::message::StatusReply;
use frieze_wire::quota::QuotaUse;

/// The space at a path: on the device of the server, and under the quotas of the directories above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeSpace {
    /// Bytes in all.
    pub capacity_bytes: u64,
    /// Bytes that can be written.
    pub free_bytes: u64,
    /// Inodes in all: those in use and those that can be made.
    pub inodes: u64,
    /// Inodes that can be made. None are reserved: their number follows from the free bytes.
    pub inodes_free: u64,
}

impl FreeSpace {
    /// The space on the device.
    pub fn on_device(status: &StatusReply) -> FreeSpace {
        let inodes_free = status.free_bytes / INODE_BYTES;
        FreeSpace {
            capacity_bytes: status.capacity_bytes,
            free_bytes: status.free_bytes,
            inodes: status.inodes + inodes_free,
            inodes_free,
        }
    }

    /// The same below a directory with a quota. The tightest bound counts, as on XFS: when it is reached, writes are
    /// refused.
    #[must_use]
    pub fn under(self, QuotaUse { quota, used, kept }: &QuotaUse) -> FreeSpace {
        let mut space = self;
        let bounds = [(quota.bytes_max, Some(used.bytes)), (quota.kept_max, *kept)];
        for (max, used) in bounds.into_iter().filter_map(|(max, used)| max.zip(used)) {
            if max.saturating_sub(used) < space.free_bytes {
                (space.capacity_bytes, space.free_bytes) = (max, max.saturating_sub(used));
            }
        }
        if let Some(max) = quota.files_max
            && max.saturating_sub(used.files) < space.inodes_free
        {
            (space.inodes, space.inodes_free) = (max, max.saturating_sub(used.files));
        }
        space
    }

    /// The directories above a path and the path itself, each of which may have a quota.
    pub fn prefixes(path: &[u8]) -> impl Iterator<Item = &[u8]> {
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end.max(1));
        ends.chain((path.len() > 1).then_some(path.len())).map(|end| &path[..end])
    }
}

/// Assumed space of one more inode.
const INODE_BYTES: u64 = 4096;

#[cfg(test)]
mod tests {
    use frieze_wire::quota::{Quota, TreeUsage};

    use super::*;

    #[test]
    fn the_tightest_bound_counts() {
        let status = StatusReply { capacity_bytes: 1 << 20, free_bytes: 1 << 19, inodes: 7, ..StatusReply::default() };
        let device = FreeSpace::on_device(&status);
        assert_eq!((device.inodes, device.inodes_free), (7 + 128, 128));
        let quota = Quota { bytes_max: Some(1000), files_max: Some(500), kept_max: Some(5000) };
        let usage = QuotaUse { quota, used: TreeUsage { bytes: 900, files: 20 }, kept: None };
        let space = device.under(&usage);
        assert_eq!((space.capacity_bytes, space.free_bytes, space.inodes_free), (1000, 100, 128));
        let full = QuotaUse { used: TreeUsage { bytes: 2000, files: 600 }, ..usage };
        assert_eq!(space.under(&full).free_bytes, 0);
        let history = QuotaUse { kept: Some(4950), ..usage };
        assert_eq!(device.under(&history).free_bytes, 50, "history takes the rest");
        assert_eq!(device.under(&QuotaUse { quota: Quota::default(), ..history }), device);
    }

    #[test]
    fn the_prefixes_of_a_path_begin_with_the_root() {
        let prefixes = |path: &'static str| {
            FreeSpace::prefixes(path.as_bytes())
                .map(|prefix| String::from_utf8_lossy(prefix).into_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(prefixes("/"), ["/"]);
        assert_eq!(prefixes("/a/b"), ["/", "/a", "/a/b"]);
    }
}
