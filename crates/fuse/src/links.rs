//! Where a symbolic link of the past leads.
//!
//! The kernel follows a link through the tree of the mount, where a directory of the past lies in an `.at`: `..` of
//! `d/.at/T` is `d/.at`, and not the directory that contained `d` at T. So the kernel gets a link that leads out of the
//! directory whose `.at` it was reached by with the way through the `.at` of the root, which contains everything of
//! that instant.
//!
//! Guarantees: a program that reads the link (`readlink(2)`: `ls -l`, `cp -a`, `tar`) gets its text as it is stored,
//! where the mount can inspect its system call; so a copy of the past has the links of the past. Leaves to others:
//! absolute links, which lead to the present as they always do.

use frieze_base::InodeId;
use frieze_client::Target;
use nix::errno::Errno;

use crate::at::{AT_NAME, link_target, user_name};
use crate::node::{FuseNode, ViewTime};
use crate::operations::FuseCaller;
use crate::process::is_reading_link;
use crate::tree::MountTree;

type Path = Vec<Vec<u8>>;

impl MountTree {
    /// The text of a link of the tree, or the way that the kernel has to go for it.
    pub(crate) fn read_link(&self, who: FuseCaller, link: &FuseNode) -> Result<Vec<u8>, Errno> {
        let text = self.ask(who, link.when, |fs| fs.read_link(&Target::inode(link.inode)))?;
        if !self.nodes.is_entered(link) || !leaves(&text, 0) || is_reading_link(who.thread) {
            return Ok(text);
        }
        Ok(self.way(who, link, &text).unwrap_or(text))
    }

    /// The way to the target of `text`, if it leads out of the view that the link was reached in.
    fn way(&self, who: FuseCaller, link: &FuseNode, text: &[u8]) -> Option<Vec<u8>> {
        let mut directory = self.path(who, link.inode, link.when)?;
        directory.pop();
        let mut at_entry = self.nodes.at_entry_of(link)?;
        let mut up = depth(&directory, &self.path(who, at_entry.inode, link.when)?)?;
        if !leaves(text, up) {
            return None;
        }
        up += AT_ENTRY_NAMES;
        while let Some(outer) = self.nodes.at_entry_of(&at_entry) {
            let here = self.path(who, at_entry.inode, at_entry.when)?;
            up += depth(&here, &self.path(who, outer.inode, at_entry.when)?)? + AT_ENTRY_NAMES;
            at_entry = outer;
        }
        up += self.path(who, at_entry.inode, at_entry.when)?.len();
        // Targets outside of the mount have no past.
        let climbs = text.split(|&byte| byte == b'/').take_while(|name| *name == b"..").count();
        if climbs > directory.len() {
            let rest = text.split(|&byte| byte == b'/').skip(climbs);
            return Some(join([&b".."[..]].repeat(up + climbs - directory.len()).into_iter().chain(rest)));
        }
        let mut way: Path = vec![b"..".to_vec(); up];
        let ViewTime { at, user_at } = link.when;
        if let Some(at) = at.filter(|_| self.base.at.is_none()) {
            way.extend([AT_NAME.to_vec(), link_target(at).into_bytes()]);
        }
        if let Some(user_at) = user_at.filter(|_| self.base.user_at.is_none()) {
            way.extend([AT_NAME.to_vec(), user_name(user_at).into_bytes()]);
        }
        way.extend(directory);
        Some(join(way.iter().map(Vec::as_slice).chain([text])))
    }

    /// The names from the root to an inode; `None` where the caller may not list the last directory.
    fn path(&self, who: FuseCaller, inode: InodeId, when: ViewTime) -> Option<Path> {
        if inode == InodeId::ROOT {
            return Some(Vec::new());
        }
        let path = self.ask(who, when, |fs| fs.path_of(inode)).ok()?;
        Some(path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
    }
}

/// How far `path` lies below `root`; `None` if it does not.
fn depth(path: &[Vec<u8>], root: &[Vec<u8>]) -> Option<usize> {
    path.strip_prefix(root).map(<[_]>::len)
}

/// True if a relative link in a directory so far below a root leads out of that.
fn leaves(text: &[u8], depth: usize) -> bool {
    let mut depth = Some(depth);
    for name in text.split(|&byte| byte == b'/').take_while(|_| !text.starts_with(b"/")) {
        depth = match name {
            b"" | b"." => depth,
            b".." => depth.and_then(|depth| depth.checked_sub(1)),
            _ => depth.map(|depth| depth + 1),
        };
    }
    depth.is_none()
}

fn join<'a>(names: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    names.collect::<Vec<_>>().join(&b'/')
}

/// `.at` and the name of an instant.
const AT_ENTRY_NAMES: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_leaves_where_it_climbs_above_the_root_at_any_name() {
        let leaves = |text: &str, depth| leaves(text.as_bytes(), depth);
        assert!(leaves("../x", 0) && leaves("a/../../x", 0) && leaves("../../x/..", 1) && leaves("..", 0));
        assert!(!leaves("../x", 1) && !leaves("a/../x", 0) && !leaves("./a//b", 0) && !leaves("x..", 0));
        assert!(!leaves("/../x", 0), "absolute");
    }
}
