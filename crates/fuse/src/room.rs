//! What `df` shows: the room that is left to write, on the device and under the quotas of the directories above.

use frieze_client::Target;
use nix::errno::Errno;

use crate::errno::answer;
use crate::node::{NodeId, Place};
use crate::operations::Space;
use crate::tree::Tree;

impl Tree {
    /// The room at a node. Of the device and the quotas above the node that which leaves least counts, as on XFS: who writes there
    /// is refused when that is used up.
    pub(crate) fn room(&self, node: NodeId) -> Result<Space, Errno> {
        let status = self.client.status().map_err(|error| answer(&error.into()))?;
        let free_bytes = status.free_bytes;
        // Inodes are not set aside: as many more can be made as there is room for their names.
        let inodes_free = free_bytes / INODE_BYTES;
        let mut space = Space {
            capacity_bytes: status.capacity_bytes,
            free_bytes,
            inodes: status.inodes + inodes_free,
            inodes_free,
        };
        let node = self.node(node)?;
        if node.when.is_past() || node.place != Place::Tree {
            return Ok(space);
        }
        // What has no name lies below no directory.
        let Ok(path) = self.ask_as_mount(node.when, |fs| fs.path_of(node.inode)) else { return Ok(space) };
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end.max(1));
        for end in ends.chain([path.len()]) {
            let target = Target::path(&path[..end]);
            // A directory that was moved meanwhile is looked at when `df` is asked again.
            let Ok(Some((quota, used))) = self.ask_as_mount(node.when, |fs| fs.quota(&target)) else { continue };
            if let Some(max) = quota.bytes_max
                && max.saturating_sub(used.bytes) < space.free_bytes
            {
                (space.capacity_bytes, space.free_bytes) = (max, max.saturating_sub(used.bytes));
            }
            if let Some(max) = quota.files_max
                && max.saturating_sub(used.files) < space.inodes_free
            {
                (space.inodes, space.inodes_free) = (max, max.saturating_sub(used.files));
            }
        }
        Ok(space)
    }
}

/// Space that is taken as that of one more inode.
const INODE_BYTES: u64 = 4096;
