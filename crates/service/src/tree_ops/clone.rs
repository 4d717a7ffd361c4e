//! Clones: a file or tree as it was at an instant, under a new name, without a byte copied.

use std::collections::BTreeMap;

use frieze_base::{ByteRange, Fault, InodeId, Reason};
use frieze_hlc::Hlc;
use frieze_namespace::{MAY_EXECUTE, MAY_READ};
use frieze_planes::Principal;
use frieze_wire::acl::is_acl;
use frieze_wire::edit::{ActionKind, CloneTree, EditKind, NewInode, Xattr};
use frieze_wire::message::{FileKind, View};
use frieze_wire::quota::QUOTA_XATTR;
use frieze_wire::txn::Target;

use super::{Naming, Plan};
use crate::tree_ops::TreeOps;
use crate::write::check_new_name;

/// Set-user-id and set-group-id bits: a copy with another owner does not keep them.
const SET_ID: u32 = 0o6000;

impl TreeOps {
    pub(crate) fn plan_clone(&self, principal: &Principal, ask: &CloneTree, now: Hlc) -> Result<Plan, Fault> {
        let at = if ask.at == 0 { now } else { Hlc(ask.at) };
        self.planes.answer(View::exact(at))?;
        let source = self.planes.resolve_at(principal, &ask.source, at)?;
        check_new_name(&ask.target.path)?;
        let (directory, name) = self.parent_of(principal, &ask.target, now)?;
        let mut plan = Plan::new(EditKind::Clone, now, at);
        if let Some(taken) = self.entry_at(directory, &name, now)? {
            return Err(Fault::new(
                Reason::Exists,
                format!(
                    "{:?} already exists (inode {taken}): a clone makes a new name",
                    String::from_utf8_lossy(&name)
                ),
            ));
        }
        let path = self.path_at(directory, &name, now)?;
        let made = self.add_clone(&mut plan, principal, source.id, at, &path)?;
        plan.names.insert((directory, name), Naming { expect: InodeId(0), inode: made });
        Ok(plan)
    }

    /// The directory and the last component of a path that an edit makes, now.
    pub(super) fn parent_of(
        &self,
        principal: &Principal,
        target: &Target,
        at: Hlc,
    ) -> Result<(InodeId, Vec<u8>), Fault> {
        let mut path = target.path.as_slice();
        while let Some(shorter) = path.strip_suffix(b"/") {
            path = shorter;
        }
        let start = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
        let name = path[start..].to_vec();
        if name.is_empty() || name == b"." {
            return Err(Fault::new(
                Reason::InvalidArgument,
                "the root, or an empty path, is not a name in a directory",
            ));
        }
        let parent = Target { base: target.base, path: path[..start].to_vec(), follow: true };
        let found = self.planes.resolve_at(principal, &parent, at)?;
        if !found.inode.is_directory() {
            return Err(Reason::NotDirectory.into());
        }
        Ok((found.id, name))
    }

    /// Adds a copy of `id` as it was at `at`, with everything below it. The copy has no name yet.
    ///
    /// # Errors
    /// `AccessDenied` for what the caller may not read, then or now; `TooLarge` for too many names.
    pub(super) fn add_clone(
        &self,
        plan: &mut Plan,
        principal: &Principal,
        id: InodeId,
        at: Hlc,
        path: &[u8],
    ) -> Result<u64, Fault> {
        let mut links: BTreeMap<InodeId, u64> = BTreeMap::new();
        let top = self.add_copy(plan, principal, id, at, path, &mut links)?;
        let is_directory = self.planes.inode_at(id, Some(at))?.is_directory();
        let mut todo: Vec<_> = is_directory.then(|| (id, top, path.to_vec())).into_iter().collect();
        while let Some((directory, copy, path)) = todo.pop() {
            self.each_entry(directory, at, &mut |entry| {
                let path = [&path, &b"/"[..], &entry.name].concat();
                let copied = match links.get(&entry.inode) {
                    Some(&copied) => copied,
                    None => self.add_copy(plan, principal, entry.inode, at, &path, &mut links)?,
                };
                // The copy of a directory gets its number when it is made: until then names in it are kept by index.
                plan.names.insert((InodeId(copy), entry.name), Naming { expect: InodeId(0), inode: copied });
                if entry.kind == FileKind::Directory {
                    todo.push((entry.inode, copied, path));
                }
                plan.check_size()
            })?;
        }
        Ok(top)
    }

    fn add_copy(
        &self,
        plan: &mut Plan,
        principal: &Principal,
        id: InodeId,
        at: Hlc,
        path: &[u8],
        links: &mut BTreeMap<InodeId, u64>,
    ) -> Result<u64, Fault> {
        let caller = &principal.caller;
        let seen = self.files.version_at(id, at)?;
        let kind = seen.inode.kind();
        let mask = match kind {
            FileKind::File => MAY_READ,
            FileKind::Directory => MAY_READ | MAY_EXECUTE,
            _ => 0,
        };
        if mask != 0 {
            self.planes.meta.check_access(id, Some(at), caller, mask).map_err(|fault| {
                Fault::new(fault.reason, format!("{}: {}", String::from_utf8_lossy(path), fault.message))
            })?;
        }
        let extent = self.files.look(&[&seen])?.extent(&seen);
        let (size, shares) = match kind {
            FileKind::File => (extent.size, self.shares(&seen, ByteRange::new(0, extent.size), 0)?),
            _ => (0, Vec::new()),
        };
        let (origin, origin_at) = self.read.time_origin(&seen, at)?.unwrap_or_default();
        // An attribute that only the superuser sets is not copied by other users. A quota applies to its directory
        // alone.
        let is_copied =
            |name: &[u8]| *name != *QUOTA_XATTR && (caller.uid == 0 || name.starts_with(b"user.") || is_acl(name));
        let xattrs = self.planes.meta.xattrs(id, Some(at), caller, &is_copied)?.into_iter();
        let xattrs = xattrs.map(|(name, value)| Xattr { name, value: Some(value) }).collect();
        let inode = &seen.inode;
        let (uid, gid, mode) = match caller.uid {
            0 => (inode.uid, inode.gid, inode.mode.into()),
            uid => {
                let gid = if caller.in_group(inode.gid) { inode.gid } else { caller.gid };
                let same = (uid, gid) == (inode.uid, inode.gid);
                (uid, gid, u32::from(inode.mode) & if same { 0o7777 } else { 0o7777 & !SET_ID })
            }
        };
        let made = plan.make(NewInode {
            kind: kind as i32,
            mode,
            uid,
            gid,
            atime_ns: inode.atime_ns,
            mtime_ns: extent.mtime_ns,
            size,
            target: inode.symlink_target().to_vec(),
            rdev: inode.rdev(),
            chunk_bytes: inode.layout.chunk_bytes,
            chain_count: inode.layout.chain_count,
            plugin: inode.plugin().to_owned(),
            regime: inode.layout.regime,
            xattrs,
            shares,
            origin: origin.0,
            origin_at: origin_at.0,
        });
        if kind != FileKind::Directory {
            links.insert(id, made);
        }
        let told = plan.note_action(ActionKind::Make, path, 0, "");
        (told.len, told.older) = (size, seen.inode.from.0);
        Ok(made)
    }
}
