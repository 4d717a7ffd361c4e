//! A range copied within the file system: shared, not copied.

use frieze_base::{ByteRange, Fault, Reason};
use frieze_wire::edit::{CopyRange, EditKind};
use frieze_wire::frame::FrameHeader;

use super::Plan;
use crate::data::file_bytes_max;
use crate::engine::Engine;
use frieze_hlc::Hlc;

impl Engine {
    /// Plans a shared copy; where sharing does not fit, the reason is `Unsupported` or `TooLarge` and the caller copies.
    pub(crate) fn plan_copy_range(&self, header: &FrameHeader, ask: &CopyRange, now: Hlc) -> Result<Plan, Fault> {
        let source = self.mint.open(&ask.source, header.session)?;
        let target = self.mint.open(&ask.target, header.session)?;
        if !source.read || !target.write || target.view.is_past() {
            return Err(Fault::new(
                Reason::AccessDenied,
                "the one file was not opened for reading, or the other not for writing",
            ));
        }
        if source.view.user_time().is_some() {
            return Err(Fault::new(Reason::Unsupported, "a file read by user time is copied, not shared"));
        }
        let at = source.at().unwrap_or(now);
        let mut plan = Plan::new(EditKind::CopyRange, now, at);
        let seen = self.seen_at(source.inode, at)?;
        let size = self.look(&[&seen])?.extent(&seen).size;
        let start = ask.source_offset.min(size);
        let range = ByteRange::new(start, ask.source_offset.saturating_add(ask.len).min(size).max(start));
        if range.is_empty() {
            return Ok(plan);
        }
        let into = self.seen_at(target.inode, now)?;
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
        let grows = end > self.look(&[&into])?.extent(&into).size;
        let state = plan.state(target.inode, &into.inode);
        state.shares = shares;
        state.size = grows.then_some(end);
        plan.len = range.len();
        Ok(plan)
    }
}
