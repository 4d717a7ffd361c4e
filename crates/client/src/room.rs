//! The room that is left to write.

use frieze_wire::message::StatusReply;
use frieze_wire::quota::{Quota, TreeUsage};

/// The room at a place: on the device of the server that was asked, and under the quotas of the directories above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes in all.
    pub capacity_bytes: u64,
    /// Bytes that can be written.
    pub free_bytes: u64,
    /// Inodes in all: those in use, and as many as can be made.
    pub inodes: u64,
    /// Inodes that can be made. None are set aside: there is room for as many as there is for their names.
    pub inodes_free: u64,
}

impl Room {
    /// The room on the device.
    pub fn on_device(status: &StatusReply) -> Room {
        let inodes_free = status.free_bytes / INODE_BYTES;
        Room {
            capacity_bytes: status.capacity_bytes,
            free_bytes: status.free_bytes,
            inodes: status.inodes + inodes_free,
            inodes_free,
        }
    }

    /// The same below a directory with a quota. What leaves least counts, as on XFS: who writes there is refused when that is used up.
    #[must_use]
    pub fn under(self, quota: &Quota, used: &TreeUsage) -> Room {
        let mut room = self;
        if let Some(max) = quota.bytes_max
            && max.saturating_sub(used.bytes) < room.free_bytes
        {
            (room.capacity_bytes, room.free_bytes) = (max, max.saturating_sub(used.bytes));
        }
        if let Some(max) = quota.files_max
            && max.saturating_sub(used.files) < room.inodes_free
        {
            (room.inodes, room.inodes_free) = (max, max.saturating_sub(used.files));
        }
        room
    }

    /// The directories above a path and the path itself, each of which may have a quota.
    pub fn places(path: &[u8]) -> impl Iterator<Item = &[u8]> {
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end.max(1));
        ends.chain((path.len() > 1).then_some(path.len())).map(|end| &path[..end])
    }
}

/// Space that is taken as that of one more inode.
const INODE_BYTES: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leaves_least_counts() {
        let status = StatusReply { capacity_bytes: 1 << 20, free_bytes: 1 << 19, inodes: 7, ..StatusReply::default() };
        let device = Room::on_device(&status);
        assert_eq!((device.inodes, device.inodes_free), (7 + 128, 128));
        let quota = Quota { bytes_max: Some(1000), files_max: Some(500) };
        let used = TreeUsage { bytes: 900, files: 20 };
        let room = device.under(&quota, &used);
        assert_eq!((room.capacity_bytes, room.free_bytes, room.inodes_free), (1000, 100, 128));
        assert_eq!(room.under(&quota, &TreeUsage { bytes: 2000, files: 600 }).free_bytes, 0);
        assert_eq!(device.under(&Quota::default(), &used), device);
    }

    #[test]
    fn the_places_of_a_path_begin_with_the_root() {
        let places = |path: &'static str| {
            Room::places(path.as_bytes()).map(|place| String::from_utf8_lossy(place).into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(places("/"), ["/"]);
        assert_eq!(places("/a/b"), ["/", "/a", "/a/b"]);
    }
}
