//! Ranges copied within the file system: shared, not copied. Several at one stamp publish bytes into chunks and files
//! together (ADR 34): the bytes wait in a nameless file, and this publishes them.

use frieze_base::{ByteRange, Fault, Reason};
use frieze_hlc::Hlc;
use frieze_planes::Principal;
use frieze_replication::file_bytes_max;
use frieze_wire::edit::{CopyRange, EditKind};
use frieze_wire::frame::FrameHeader;

use super::Plan;
use crate::session::capability::Presenter;
use crate::tree_ops::TreeOps;

/// Ranges of one request: one version of the metadata lists all of them.
const RANGES_MAX: usize = 1024;

impl TreeOps {
    /// Plans shared copies, all at one stamp. If sharing is not possible, the reason is `Unsupported` or `TooLarge`,
    /// and the caller copies the bytes.
    pub(crate) fn plan_copy_range(
        &self,
        principal: &Principal,
        header: &FrameHeader,
        ask: &CopyRange,
        now: Hlc,
    ) -> Result<Plan, Fault> {
        if ask.also.iter().any(|ask| !ask.also.is_empty()) {
            return Err(Fault::new(Reason::BadFrame, "malformed frame: ranges within ranges"));
        }
        if ask.also.len() >= RANGES_MAX {
            return Err(Fault::new(Reason::TooLarge, format!("at most {RANGES_MAX} ranges are copied at once")));
        }
        let mut plan = Plan::new(EditKind::CopyRange, now, now);
        for (number, range) in std::iter::once(ask).chain(&ask.also).enumerate() {
            let before = plan.len;
            self.add_copied_range(&mut plan, principal, header, range)?;
            let found = plan.len - before;
            // One range is copied as far as its source reaches, as copy_file_range(2) does. Several are all or nothing.
            if !ask.also.is_empty() && found < range.len {
                return Err(Fault::new(
                    Reason::InvalidArgument,
                    format!(
                        "of the ranges that are to be shown together number {number} has {found} of its {} bytes: its \
                         source ends before; nothing is shown",
                        range.len
                    ),
                ));
            }
        }
        Ok(plan)
    }

    fn add_copied_range(
        &self,
        plan: &mut Plan,
        principal: &Principal,
        header: &FrameHeader,
        ask: &CopyRange,
    ) -> Result<(), Fault> {
        let now = plan.now;
        let source = self.sessions.mint.open(&ask.source, Presenter::of_any(header.session, principal.uid))?;
        let target = self.sessions.mint.open(&ask.target, Presenter::of_any(header.session, principal.uid))?;
        if !source.read || !target.write || target.view.is_past() {
            return Err(Fault::new(
                Reason::AccessDenied,
                "the one file was not opened for reading, or the other not for writing",
            ));
        }
        if source.view.user_time().is_some() {
            return Err(Fault::new(Reason::Unsupported, "a file read by user time is copied, not shared"));
        }
        plan.at = source.at().unwrap_or(now);
        let seen = self.files.version_at(source.inode, plan.at)?;
        let size = self.files.look(&[&seen])?.extent(&seen).size;
        let start = ask.source_offset.min(size);
        let range = ByteRange::new(start, ask.source_offset.saturating_add(ask.len).min(size).max(start));
        if range.is_empty() {
            return Ok(());
        }
        let into = self.files.version_at(target.inode, now)?;
        if !into.inode.plugin().is_empty() {
            return Err(Fault::new(
                Reason::Unsupported,
                "what goes into a file with user time has to pass its plug-in: it is copied, not shared",
            ));
        }
        let bytes_max = file_bytes_max(into.inode.chunk_bytes());
        let end = ask.target_offset.checked_add(range.len()).filter(|end| *end <= bytes_max);
        let end = end.ok_or_else(|| {
            Fault::new(Reason::TooLarge, format!("a file holds at most {bytes_max} bytes: the range ends beyond"))
        })?;
        let shares = self.shares(&seen, range, ask.target_offset)?;
        let grows = end > self.files.look(&[&into])?.extent(&into).size;
        let state = plan.state(target.inode, &into.inode);
        state.shares.extend(shares);
        state.size = state.size.max(grows.then_some(end));
        // Writers may extend the file until this runs: the extension stays visible, and the plan stays valid.
        state.extends = true;
        match source.inode != target.inode {
            true => plan.adds.insert(target.inode),
            false => plan.adds.remove(&target.inode),
        };
        plan.len += range.len();
        Ok(())
    }
}
