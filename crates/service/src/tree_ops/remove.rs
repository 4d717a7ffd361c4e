//! Removal of a whole tree: every name is removed at one stamp, and a reader sees all of the tree or none.

use frieze_base::{Fault, InodeId, Reason};
use frieze_hlc::Hlc;
use frieze_namespace::{MAY_EXECUTE, MAY_READ};
use frieze_planes::Principal;
use frieze_wire::edit::{ActionKind, EditKind, RemoveTree};
use frieze_wire::message::FileKind;

use super::names::NameKey;
use super::{Naming, Plan};
use crate::tree_ops::TreeOps;

/// Directories with names still to be removed, and their paths.
type Todo = Vec<(InodeId, Vec<u8>)>;

impl TreeOps {
    /// # Errors
    /// `NotFound`; `AccessDenied` for a directory that the caller may not search (the right to remove names from it is
    /// checked when they are removed); `TooLarge` for a tree of more names than are changed at once.
    pub(crate) fn plan_remove(&self, principal: &Principal, ask: &RemoveTree, now: Hlc) -> Result<Plan, Fault> {
        let key = self.parent_of(principal, &ask.target, now)?;
        let path = self.path_at(key.0, &key.1, now)?;
        let named = |fault: Fault, path: &[u8]| {
            Fault::new(fault.reason, format!("{}: {}", String::from_utf8_lossy(path), fault.message))
        };
        let top = self.entry_at(key.0, &key.1, now)?.ok_or_else(|| named(Reason::NotFound.into(), &path))?;
        let kind = self.planes.inode_at(top, Some(now))?.kind();
        let (mut plan, mut todo) = (Plan::new(EditKind::Remove, now, Hlc::ZERO), Todo::new());
        take(&mut plan, &mut todo, key, (top, kind), path);
        while let Some((directory, path)) = todo.pop() {
            let may_look =
                self.planes.meta.check_access(directory, Some(now), &principal.caller, MAY_READ | MAY_EXECUTE);
            may_look.map_err(|fault| named(fault, &path))?;
            self.each_entry(directory, now, &mut |entry| {
                let below = [&path, &b"/"[..], &entry.name].concat();
                take(&mut plan, &mut todo, (directory, entry.name), (entry.inode, entry.kind), below);
                plan.check_size()
            })?;
        }
        Ok(plan)
    }
}

fn take(plan: &mut Plan, todo: &mut Todo, key: NameKey, (id, kind): (InodeId, FileKind), path: Vec<u8>) {
    plan.names.insert(key, Naming { expect: id, inode: 0 });
    plan.note_action(ActionKind::Unname, &path, id.0, "").file_kind = kind as i32;
    if kind == FileKind::Directory {
        todo.push((id, path));
    }
}
