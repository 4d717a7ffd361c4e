//! The figures of `df`: the room that is left to write, on the device and under the quotas of the directories above.

use frieze_client::{FreeSpace, Target};
use nix::errno::Errno;

use crate::errno::answer;
use crate::node::{NodeId, NodePlace};
use crate::tree::MountTree;

impl MountTree {
    /// The room at a node.
    pub(crate) fn room(&self, node: NodeId) -> Result<FreeSpace, Errno> {
        let status = self.client.status().map_err(|error| answer(&error.into()))?;
        let mut room = FreeSpace::on_device(&status);
        let node = self.node(node)?;
        if node.when.is_past() || node.place != NodePlace::Tree {
            return Ok(room);
        }
        // A file without a name lies below no directory.
        let Ok(path) = self.ask_as_mount(node.when, |fs| fs.path_of(node.inode)) else { return Ok(room) };
        for place in FreeSpace::prefixes(&path) {
            // A directory that was moved meanwhile is found by the next `df`.
            let found = self.ask_as_mount(node.when, |fs| fs.quota(&Target::path(place)));
            if let Ok(Some(usage)) = found {
                room = room.under(&usage);
            }
        }
        Ok(room)
    }
}
