//! Files that become a part of another: it shares their bytes behind its own, and their names are removed, at one
//! stamp.

use frieze_base::{ByteRange, Fault, Reason};
use frieze_hlc::Hlc;
use frieze_namespace::MAY_READ;
use frieze_planes::Principal;
use frieze_replication::file_bytes_max;
use frieze_wire::edit::{ActionKind, EditKind, JoinFiles};
use frieze_wire::frame::FrameHeader;
use frieze_wire::message::FileKind;

use super::{Naming, Plan};
use crate::session::capability::Presenter;
use crate::tree_ops::TreeOps;
use crate::write::check_writable;

/// Files joined at once: one version of the metadata lists all of them.
const SOURCES_MAX: usize = 1024;

impl TreeOps {
    /// # Errors
    /// `InvalidArgument` for what is no file, the target itself, or one named twice; `Unsupported` where user times
    /// would be mixed, `TooLarge` for too many or too long ones; as reading each.
    pub(crate) fn plan_join(
        &self,
        principal: &Principal,
        header: &FrameHeader,
        ask: &JoinFiles,
        now: Hlc,
    ) -> Result<Plan, Fault> {
        if ask.sources.is_empty() || ask.sources.len() > SOURCES_MAX {
            let words = format!("{} files are to be joined: 1 to {SOURCES_MAX} at once", ask.sources.len());
            return Err(Fault::new(Reason::InvalidArgument, words));
        }
        let target = self.sessions.mint.open(&ask.target, Presenter::of_any(header.session, principal.uid))?;
        check_writable(&target)?;
        let into = self.files.version_at(target.inode, now)?;
        let mut plan = Plan::new(EditKind::Join, now, now);
        let begins = self.files.look(&[&into])?.extent(&into).size;
        let bytes_max = file_bytes_max(into.inode.chunk_bytes());
        let mut end = begins;
        for source in &ask.sources {
            let key = self.parent_of(principal, source, now)?;
            let path = self.path_at(key.0, &key.1, now)?;
            let refused = |reason: Reason, words: &str| {
                Fault::new(reason, format!("{} cannot be joined: {words}", String::from_utf8_lossy(&path)))
            };
            let id = self.entry_at(key.0, &key.1, now)?.ok_or_else(|| refused(Reason::NotFound, "it is not there"))?;
            let seen = self.files.version_at(id, now)?;
            if seen.inode.kind() != FileKind::File {
                return Err(refused(Reason::InvalidArgument, "it is no file"));
            }
            if id == target.inode || !plan.taken.insert(id) {
                return Err(refused(Reason::InvalidArgument, "it is the target, or named twice"));
            }
            if !into.inode.plugin().is_empty() || !seen.inode.plugin().is_empty() {
                return Err(refused(Reason::Unsupported, "files with user time are copied, not joined"));
            }
            frieze_namespace::check_access(&seen.inode, &principal.caller, MAY_READ)?;
            let size = self.files.look(&[&seen])?.extent(&seen).size;
            let range = ByteRange::new(0, size);
            let shares = self.shares(&seen, range, end)?;
            end = end.checked_add(size).filter(|end| *end <= bytes_max).ok_or_else(|| {
                refused(Reason::TooLarge, &format!("a file holds at most {bytes_max} bytes: it would end beyond"))
            })?;
            plan.state(target.inode, &into.inode).shares.extend(shares);
            plan.names.insert(key, Naming { expect: id, inode: 0 });
            plan.note_action(ActionKind::Unname, &path, id.0, "");
        }
        plan.len = end - begins;
        plan.state(target.inode, &into.inode).size = Some(end);
        Ok(plan)
    }
}
