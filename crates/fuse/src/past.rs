//! The virtual directory `.at` and its entries.

use std::time::Duration;

use frieze_base::Fault;
use frieze_client::{DirEntry, FileKind, InstantInfo, ListReply, Target, ZonePolicy};
use frieze_hlc::{Hlc, Zone};
use nix::errno::Errno;

use crate::at::{AtName, LINK_TARGET_BYTES, link_target, zoned_target};
use crate::attributes::{attributes, too_many, valid};
use crate::errno::answer;
use crate::node::{FuseNode, NodeId, ViewTime};
use crate::operations::{Attributes, FuseCaller, FuseEntry, NodeKind};
use crate::process::{ProcessId, variable_of};
use crate::tree::MountTree;

impl MountTree {
    /// `.at` in the directory `dir`. A cut by user time has none: there is no further time to go to.
    pub(crate) fn lookup_at(&self, who: FuseCaller, dir: &FuseNode) -> Result<FuseEntry, Errno> {
        if dir.when.user_at.is_some() {
            return Err(Errno::ENOENT);
        }
        let mut entry = self.at_attributes(who, dir, dir.id)?;
        if entry.attributes.kind != NodeKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        entry.attributes.node = self.nodes.refer_at(dir).map_err(too_many)?;
        Ok(entry)
    }

    /// Attributes of the `.at` of the directory that `node` belongs to: those of the directory, without the right to
    /// write.
    pub(crate) fn at_attributes(&self, who: FuseCaller, node: &FuseNode, id: NodeId) -> Result<FuseEntry, Errno> {
        // For a directory of now, its last known attributes if there is no leader: it is the way to the past, which
        // needs no leader.
        let attr = self.ask(who, node.when, |fs| fs.recent().stat(&Target::inode(node.inode)))?.attr;
        let of_directory = attributes(id, &attr);
        let attributes = Attributes { mode: of_directory.mode & !ANY_WRITE & 0o777, links: 2, ..of_directory };
        Ok(FuseEntry { attributes, valid: valid(node.when), promise: None })
    }

    /// Attributes of a moving name in the `.at` that `node` is, or belongs to.
    pub(crate) fn moving_attributes(
        &self,
        who: FuseCaller,
        node: &FuseNode,
        id: NodeId,
        name: &str,
    ) -> Result<FuseEntry, Errno> {
        let of_directory = self.at_attributes(who, node, id)?.attributes;
        let size = match zoneless_target(who, node, name) {
            Some(target) => target?.len() as u64,
            None => LINK_TARGET_BYTES,
        };
        let attributes =
            Attributes { kind: NodeKind::Symlink, mode: 0o777, links: 1, size, bytes_live: 0, ..of_directory };
        // Its meaning moves and depends on the caller: never kept.
        Ok(FuseEntry { attributes, valid: Duration::ZERO, promise: None })
    }

    /// A name in the `.at` directory `at`.
    pub(crate) fn lookup_in_at(&self, who: FuseCaller, at: &FuseNode, name: &[u8]) -> Result<FuseEntry, Errno> {
        match AtName::read(name, at.when).map_err(|fault| answer(&fault))? {
            AtName::Exact(instant) if self.nearest && self.kept(instant)? != instant => {
                let name = std::str::from_utf8(name).map_err(|_| Errno::ENOENT)?;
                self.lookup_moving(who, at, name)
            }
            AtName::Exact(instant) => self.enter(who, at, ViewTime { at: Some(instant), user_at: None }, PINNED),
            AtName::User(user_at) => self.enter(who, at, ViewTime { user_at: Some(user_at), ..at.when }, PINNED),
            AtName::Snapshot(snapshot) => {
                let instant = self.resolve(&snapshot)?;
                // The name may be given to another instant at any time.
                self.enter(who, at, ViewTime { at: Some(instant), user_at: None }, Duration::ZERO)
            }
            AtName::Moving(_) | AtName::Zoneless => {
                let name = std::str::from_utf8(name).map_err(|_| Errno::ENOENT)?;
                self.lookup_moving(who, at, name)
            }
        }
    }

    fn lookup_moving(&self, who: FuseCaller, at: &FuseNode, name: &str) -> Result<FuseEntry, Errno> {
        let mut entry = self.moving_attributes(who, at, at.id, name)?;
        entry.attributes.node = self.nodes.refer_moving(at, name).map_err(too_many)?;
        Ok(entry)
    }

    /// The newest instant at or before `at` that all policies of retention keep.
    fn kept(&self, at: Hlc) -> Result<Hlc, Errno> {
        self.client.nearest_kept(at).map_err(|error| answer(&Fault::from(error)))
    }

    /// The directory of `at` as it was `when`. The server checks whether that instant can be read, and whether the
    /// directory existed then.
    fn enter(&self, who: FuseCaller, at: &FuseNode, when: ViewTime, name_valid: Duration) -> Result<FuseEntry, Errno> {
        let attr = self.ask(who, when, |fs| fs.stat(&Target::inode(at.inode)))?.attr;
        let node = self.nodes.refer_past(at, when).map_err(too_many)?;
        let mut entry = self.entry(node, &attr, when);
        entry.valid = entry.valid.min(name_valid);
        Ok(entry)
    }

    /// Where a moving name, or a time without a zone, points to, for the process that asks.
    pub(crate) fn resolve_moving(&self, who: FuseCaller, node: &FuseNode, name: &str) -> Result<Vec<u8>, Errno> {
        if let Some(target) = zoneless_target(who, node, name) {
            return target;
        }
        let at = self.moving_names.resolve(ProcessId::of(who.thread), name, || self.resolve(name))?;
        Ok(link_target(at).into_bytes())
    }

    fn resolve(&self, name: &str) -> Result<Hlc, Errno> {
        let at = self.client.resolve(name, ZonePolicy::Refuse).map_err(|error| answer(&Fault::from(error)))?;
        if self.nearest { self.kept(at) } else { Ok(at) }
    }

    /// The saved snapshots: the entries of `ls .at`. Inside the past there are none.
    pub(crate) fn list_at(&self, at: &FuseNode, after: &[u8]) -> Result<ListReply, Errno> {
        let mut entries = Vec::new();
        if !at.when.is_past() {
            let snapshots = self.client.snapshots().map_err(|error| answer(&error.into()))?;
            entries = snapshots.into_iter().map(|snapshot| entry_of(snapshot.name)).collect();
            entries.retain(|entry| entry.name.as_slice() > after);
        }
        let answered = InstantInfo { was_stable: true, ..InstantInfo::default() };
        Ok(ListReply { entries, more: false, answered, inode: at.inode.0, parent: at.inode.0 })
    }
}

/// Where a time without a zone points to, for the process that asks; `None` for any other name.
fn zoneless_target(who: FuseCaller, node: &FuseNode, name: &str) -> Option<Result<Vec<u8>, Errno>> {
    match AtName::read(name.as_bytes(), node.when) {
        Ok(AtName::Zoneless) => {
            let zone = Zone::of_variable(variable_of(who.thread, "TZ").as_deref());
            Some(zoned_target(name, &zone).map(String::into_bytes).map_err(|fault| answer(&fault)))
        }
        _ => None,
    }
}

fn entry_of(name: String) -> DirEntry {
    DirEntry { name: name.into_bytes(), inode: 0, kind: FileKind::Directory as i32, attr: None }
}

const ANY_WRITE: u32 = 0o222;
/// The name contains the instant itself: it is valid as long as its target.
const PINNED: Duration = Duration::MAX;
