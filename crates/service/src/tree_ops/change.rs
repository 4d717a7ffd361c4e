//! Mode and owner of a whole tree: a reader sees all of it as it was before, or as it is afterwards.

use frieze_base::{Fault, InodeId};
use frieze_hlc::Hlc;
use frieze_namespace::{Inode, MAY_EXECUTE, MAY_READ};
use frieze_planes::Principal;
use frieze_retention::RetentionPolicy;
use frieze_wire::edit::{ActionKind, ChangeTree, EditKind, FileRights};
use frieze_wire::message::FileKind;
use frieze_wire::txn::Caller;

use super::Plan;
use crate::tree_ops::TreeOps;

/// Bit of a mode: programs run with the group of the file.
const SET_GROUP: u32 = 0o2000;

impl TreeOps {
    /// # Errors
    /// `NotFound`; `AccessDenied` for a directory that the caller neither owns nor may search (whether he may change
    /// what is in it is checked when it is changed); `TooLarge` for a tree of more files than are changed at once.
    pub(crate) fn plan_change(&self, principal: &Principal, ask: &ChangeTree, now: Hlc) -> Result<Plan, Fault> {
        let (caller, top) = (&principal.caller, self.planes.resolve_at(principal, &ask.target, now)?.id);
        let path = match top {
            InodeId::ROOT => Vec::new(),
            _ => {
                let (parent, name) = self.parent_of(principal, &ask.target, now)?;
                self.path_at(parent, &name, now)?
            }
        };
        let kind = if ask.policy.is_some() { EditKind::Retain } else { EditKind::Change };
        let (mut plan, mut todo) = (Plan::new(kind, now, Hlc::ZERO), vec![(top, path)]);
        let policy = ask.policy.as_deref().map(str::parse::<RetentionPolicy>).transpose()?;
        plan.policy = policy.as_ref().map(RetentionPolicy::to_string).unwrap_or_default();
        while let Some((id, path)) = todo.pop() {
            let inode = self.planes.inode_at(id, Some(now))?;
            change(&mut plan, caller, ask, (id, &inode), &path);
            if policy.is_some() && self.planes.meta.retention_of(&inode).policy != policy {
                give_policy(&mut plan, (id, &inode), &path);
            }
            plan.check_size()?;
            if !inode.is_directory() {
                continue;
            }
            // The owner gives himself the right by the same change.
            if caller.uid != inode.uid {
                let may_look = self.planes.meta.check_access(id, Some(now), caller, MAY_READ | MAY_EXECUTE);
                may_look.map_err(|fault| {
                    Fault::new(fault.reason, format!("{}: {}", String::from_utf8_lossy(&path), fault.message))
                })?;
            }
            self.each_entry(id, now, &mut |entry| {
                todo.push((entry.inode, [&path, &b"/"[..], &entry.name].concat()));
                Ok(())
            })?;
        }
        Ok(plan)
    }
}

/// Adds that an inode gets the policy of the plan. A file may change meanwhile; a directory, whose names would get the
/// old policy, may not.
fn give_policy(plan: &mut Plan, (id, inode): (InodeId, &Inode), path: &[u8]) {
    let is_new = !plan.states.contains_key(&id);
    let state = plan.state(id, inode);
    state.gets_policy = true;
    if is_new && !inode.is_directory() {
        state.expect = 0;
    }
    let shown: &[u8] = if path.is_empty() { b"/" } else { path };
    plan.note_action(ActionKind::Attributes, shown, id.0, "policy of retention").file_kind = inode.kind() as i32;
}

/// Adds the change of one inode, unless it has all of it.
fn change(plan: &mut Plan, caller: &Caller, ask: &ChangeTree, (id, inode): (InodeId, &Inode), path: &[u8]) {
    let (uid, gid) = (ask.uid.unwrap_or(inode.uid), ask.gid.unwrap_or(inode.gid));
    let before = u32::from(inode.mode);
    let mode = match inode.kind() {
        // A symbolic link has no mode of its own.
        FileKind::Symlink => before,
        _ => ask.modes.iter().fold(before, |mode, change| change.of(mode, inode.is_directory())),
    };
    let mode = if caller.uid != 0 && !caller.in_group(gid) && mode != before { mode & !SET_GROUP } else { mode };
    // A file with several names is met several times.
    if (mode, uid, gid) == (before, inode.uid, inode.gid) || plan.states.contains_key(&id) {
        return;
    }
    let state = plan.state(id, inode);
    state.mode = (mode != before).then_some(mode);
    (state.uid, state.gid) = (ask.uid.filter(|uid| *uid != inode.uid), ask.gid.filter(|gid| *gid != inode.gid));
    let shown: &[u8] = if path.is_empty() { b"/" } else { path };
    let action = plan.note_action(ActionKind::Attributes, shown, id.0, "");
    (action.file_kind, action.rights) = (inode.kind() as i32, Some(FileRights { mode, uid, gid }));
}
