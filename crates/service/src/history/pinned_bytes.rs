//! Bytes that only a snapshot still references: live at a named instant, and not live now.
//!
//! Guarantees: exact for up to 20,000 files changed since; beyond, a lower bound, marked as one. Leaves to others:
//! freeing them.

use frieze_base::{ByteRange, Fault, InodeId, Reason};
use frieze_hlc::Hlc;
use frieze_multilog::PieceSource;
use frieze_namespace::{ChangeSubject, Inode};
use frieze_planes::FileVersion;
use frieze_wire::message::{FileKind, View};

use crate::history::History;
use crate::history::change_feed::{CHANGES_MAX, Detail};
use crate::history::diff::spans_of;
use crate::history::tree_pair::Interval;

/// Files that are looked at for one instant.
const FILES_MAX: usize = 20_000;

/// Bytes that only the past needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PinnedBytes {
    /// Live at the instant and no more.
    pub(crate) bytes: u64,
    /// The number is a lower bound.
    pub(crate) at_least: bool,
}

impl History {
    /// Bytes that were live at `at` and have been overwritten, cut off or deleted since.
    ///
    /// # Errors
    /// Those of the store.
    ///
    /// # Cost
    /// The files that changed since, up to 20,000 of them: not the tree.
    pub(crate) fn pinned_bytes(&self, at: Hlc) -> Result<PinnedBytes, Fault> {
        let now = self.planes.clock.newest().max(at);
        let interval = Interval { after: at, upto: now };
        self.planes.answer(View::exact(at))?;
        self.planes.answer(View::exact(now))?;
        let (mut files, _) = self.touched(interval, &|_| true)?;
        let mut held = PinnedBytes::default();
        let changed = self.planes.meta.history().changed((at, now), None, CHANGES_MAX, &mut |subject| {
            if let ChangeSubject::Inode(id) = subject {
                files.insert(*id);
            }
            Ok(false)
        });
        match changed {
            Err(fault) if fault.reason == Reason::Overloaded => held.at_least = true,
            changed => drop(changed?),
        }
        held.at_least |= files.len() > FILES_MAX;
        for id in files.into_iter().take(FILES_MAX) {
            held.bytes += self.pinned_of(id, interval)?;
        }
        Ok(held)
    }

    fn pinned_of(&self, id: InodeId, interval: Interval) -> Result<u64, Fault> {
        let then = match self.planes.meta.kept_inode(id, Some(interval.after)) {
            Err(fault) if matches!(fault.reason, Reason::NotFound | Reason::HistoryExpired) => return Ok(0),
            then => then?,
        };
        if then.kind() != FileKind::File || then.links == 0 {
            return Ok(0);
        }
        let now = self.planes.meta.inode(id, Some(interval.upto))?;
        if now.links == 0 {
            return Ok(self.read.attr(id, &then, View::exact(interval.after))?.0.bytes_live);
        }
        let (old, new) = (self.size_at(id, &then, interval.after)?, self.size_at(id, &now, interval.upto)?);
        let (written, _) = self.written(id, interval, Detail::Runs(0))?;
        let spans = spans_of(Some(&written), now.patches(), interval.after, old, new);
        let mut bytes = 0;
        for span in spans.into_iter().filter(|span| span.offset < old) {
            let range = ByteRange::new(span.offset, (span.offset + span.len).min(old));
            bytes += self.data_in(id, &then, interval.after, range)?;
        }
        Ok(bytes)
    }

    /// Bytes of `range` that hold data at an instant.
    fn data_in(&self, id: InodeId, inode: &Inode, at: Hlc, range: ByteRange) -> Result<u64, Fault> {
        let seen = FileVersion::at(id, inode.clone(), Some(at));
        let sources = self.files.sources(inode, range.start(), range.end())?;
        let mut pieces = Vec::new();
        self.files.look_through(&[&seen], &[&sources])?.plan(&seen, &sources, range, &mut pieces)?;
        let data = pieces.iter().filter(|piece| matches!(piece.source, PieceSource::Data(_)));
        Ok(data.map(|piece| u64::from(piece.len)).sum())
    }
}
