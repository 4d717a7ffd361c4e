//! From the change feed of an interval to the differences that a user reads: added, removed, renamed, modified.
//!
//! Guarantees: a name in a directory that the caller may not read, at that instant and now, is not in the answer; an
//! object that is the same at both ends is left out, whatever happened in between. Leaves to others: reading the feed
//! (`change_feed`), pages and sessions (`activity`).

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use frieze_base::{ByteRange, Fault, InodeId, SessionId};
use frieze_hlc::Hlc;
use frieze_namespace::{ChangeSubject, Inode, MAY_READ, Patch, PlaceName, Revision, SubjectState, TreeAt};
use frieze_wire::acl::is_acl;
use frieze_wire::message::{FileKind, View};
use frieze_wire::timeline::{
    ACL, AFTER_OUTSIDE, BEFORE_OUTSIDE, CONTENT, ChangedSpan, Difference, MODE, OWNER, REPLACED, Side, TIMES, XATTRS,
};
use frieze_wire::txn::Caller;

use crate::history::History;
use crate::history::change_feed::{Changes, FileChange};
use crate::history::scope::Scope;
use crate::history::tree_pair::{CutPair, Interval};

/// Spans listed for one file; beyond, the client compares the two states.
pub(crate) const SPANS_MAX: usize = 64;

/// Differences, and whether something is not shown.
#[derive(Debug, Default)]
pub(crate) struct Differences {
    /// In byte order of paths.
    pub(crate) all: Vec<Difference>,
    /// Something changed where the caller may not look.
    pub(crate) hidden: bool,
    /// Something changed that was forgotten since.
    pub(crate) left_out: bool,
}

/// What to do about a change in expired history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IfForgotten {
    /// Refuse the question.
    Refuse,
    /// Leave the change out and set a flag in the answer.
    LeaveOut,
}

/// The author and stamp of the last change of an object.
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    stamp: Hlc,
    session: SessionId,
    uid: u32,
}

/// What the feed contains about one inode.
#[derive(Debug, Default)]
struct Touch<'a> {
    last: Last,
    /// The last bookkeeping change: grants, settled lengths, names in a directory. It counts only where no other change
    /// is known.
    kept: Last,
    xattrs: bool,
    acl: bool,
    set_by_hand: bool,
    data: Option<&'a FileChange>,
}

/// An inode at both ends.
struct InodePair {
    id: InodeId,
    before: Option<Rc<Inode>>,
    after: Option<Rc<Inode>>,
}

/// Turns a feed into differences.
struct Differ<'a, 'b> {
    history: &'a History,
    scope: Scope,
    interval: Interval,
    caller: &'a Caller,
    before: &'b mut TreeAt<'a>,
    after: &'b mut TreeAt<'a>,
    found: Differences,
    if_forgotten: IfForgotten,
}

impl History {
    /// The differences at the ends of an interval, which are `cuts`, given the changes in it within `scope`.
    ///
    /// # Errors
    /// `HistoryExpired` if a changed object has no history at the start any more, and that is to be refused; those of
    /// the store.
    ///
    /// # Cost
    /// That of the changes: their inodes, names and paths at both ends.
    pub(crate) fn differences<'a>(
        &'a self,
        caller: &'a Caller,
        scope: Scope,
        cuts: &mut CutPair<'a>,
        changes: &Changes,
        if_forgotten: IfForgotten,
    ) -> Result<Differences, Fault> {
        let mut differ = Differ {
            history: self,
            scope,
            interval: Interval { after: cuts.before.at(), upto: cuts.after.at() },
            caller,
            before: &mut cuts.before,
            after: &mut cuts.after,
            found: Differences::default(),
            if_forgotten,
        };
        for (id, touch) in touches(changes) {
            differ.inode(id, &touch)?;
        }
        Ok(differ.finish())
    }
}

/// The contents of the feed, inode by inode.
fn touches(changes: &Changes) -> BTreeMap<InodeId, Touch<'_>> {
    let mut touches: BTreeMap<InodeId, Touch<'_>> = BTreeMap::new();
    for change in &changes.subjects {
        match &change.subject {
            ChangeSubject::Entry { .. } => {
                let mut old = change.before.as_ref().map(|(_, state)| state);
                for revision in &change.revisions {
                    let new = revision.state.as_ref();
                    // A rename or link over a name changes the inode that had the name before and the one that has it
                    // now.
                    for state in [old, new].into_iter().flatten() {
                        if let SubjectState::Entry { inode, .. } = state {
                            touches.entry(*inode).or_default().last.note(
                                revision.stamp,
                                revision.session,
                                revision.uid,
                            );
                        }
                    }
                    old = new;
                }
            }
            // Names in a directory came or went: nothing of the directory itself that a difference shows.
            ChangeSubject::Inode(_) if change.revisions.iter().all(Revision::is_of_entries) => {}
            ChangeSubject::Inode(id) => {
                let touch = touches.entry(*id).or_default();
                for revision in &change.revisions {
                    let last = if revision.causes.is_empty() { &mut touch.kept } else { &mut touch.last };
                    last.note(revision.stamp, revision.session, revision.uid);
                    let by_hand = frieze_wire::message::VersionKind::SetAttr;
                    touch.set_by_hand |= revision.causes.iter().any(|cause| cause.kind == by_hand);
                }
            }
            ChangeSubject::Xattr { inode, name } => {
                let before = change.before.as_ref().map(|(_, state)| state);
                let last = change.revisions.last().and_then(|revision| revision.state.as_ref());
                let touch = touches.entry(*inode).or_default();
                let differs = if is_acl(name) { &mut touch.acl } else { &mut touch.xattrs };
                *differs |= before != last;
            }
        }
    }
    for file in &changes.files {
        let touch = touches.entry(file.inode).or_default();
        touch.data = Some(file);
        for write in &file.writes {
            touch.last.note(write.last, write.session, write.uid);
        }
    }
    for touch in touches.values_mut().filter(|touch| touch.last.stamp == Hlc::ZERO) {
        touch.last = touch.kept;
    }
    touches
}

impl Last {
    fn note(&mut self, stamp: Hlc, session: SessionId, uid: u32) {
        if stamp > self.stamp {
            *self = Last { stamp, session, uid };
        }
    }
}

impl Differ<'_, '_> {
    fn inode(&mut self, id: InodeId, touch: &Touch<'_>) -> Result<(), Fault> {
        let names_before: BTreeSet<PlaceName> = self.before.names(id)?.into_iter().collect();
        let names_after: BTreeSet<PlaceName> = self.after.names(id)?.into_iter().collect();
        let (before, after) = (self.before.inode(id)?, self.after.inode(id)?);
        let ends = InodePair { id, before, after };
        let flags = flags_of(&ends, touch);
        let (spans, flags) = self.spans(&ends, touch, flags)?;
        let root = id == InodeId::ROOT;
        if root && flags != 0 {
            let path = PlaceName { parent: InodeId::ROOT, name: Vec::new() };
            self.add_difference(&ends, Some(&path), Some(&path), flags, &spans, touch.last)?;
        }
        let mut gone = names_before.difference(&names_after);
        let mut came = names_after.difference(&names_before);
        loop {
            let (old, new) = (gone.next(), came.next());
            match (old, new) {
                (None, None) => break,
                // A file with several names gets or loses one: its contents are unchanged by that.
                (Some(_), None) | (None, Some(_)) => self.add_difference(&ends, old, new, 0, &[], touch.last)?,
                (Some(_), Some(_)) => self.add_difference(&ends, old, new, flags, &spans, touch.last)?,
            }
        }
        if flags != 0 {
            for name in names_before.intersection(&names_after) {
                self.add_difference(&ends, Some(name), Some(name), flags, &spans, touch.last)?;
            }
        }
        Ok(())
    }

    /// Adds a difference, if it is in the scope and the caller may learn it.
    fn add_difference(
        &mut self,
        ends: &InodePair,
        before: Option<&PlaceName>,
        after: Option<&PlaceName>,
        flags: u32,
        spans: &[ChangedSpan],
        last: Last,
    ) -> Result<(), Fault> {
        let (scope, is_root) = (self.scope, self.scope.is_root(ends.id));
        let is_outside = |cut: &mut TreeAt<'_>, named: Option<&PlaceName>| {
            named.map_or(Ok(false), |named| Ok::<bool, Fault>(!is_root && !scope.holds(cut, named)?))
        };
        let is_outside = [is_outside(self.before, before)?, is_outside(self.after, after)?];
        if is_outside == [before.is_some(), after.is_some()] {
            return Ok(());
        }
        match self.if_forgotten {
            IfForgotten::Refuse => self.check_kept(ends.id, [before, after])?,
            IfForgotten::LeaveOut if !self.is_kept(ends.id, [before, after]) => {
                self.found.left_out = true;
                return Ok(());
            }
            IfForgotten::LeaveOut => {}
        }
        let [before, after] = [
            self.history.side(self.before, before, ends.id, ends.before.as_deref(), &mut self.found.hidden)?,
            self.history.side(self.after, after, ends.id, ends.after.as_deref(), &mut self.found.hidden)?,
        ];
        let (Some(side), is_both) = (after.as_ref().or(before.as_ref()), before.is_some() && after.is_some()) else {
            return Ok(());
        };
        let may_read = !spans.is_empty()
            && side.kind() == FileKind::File
            && self.before.allows(ends.id, MAY_READ)?
            && self.after.allows(ends.id, MAY_READ)?;
        let shown = if may_read && is_both { &spans[..spans.len().min(SPANS_MAX)] } else { &[] };
        self.found.all.push(Difference {
            flags: if is_both { flags } else { 0 },
            stamp: last.stamp.0,
            session: last.session.0,
            uid: last.uid,
            spans: shown.to_vec(),
            more_spans: may_read && is_both && spans.len() > SPANS_MAX,
            outside: u32::from(is_outside[0]) * BEFORE_OUTSIDE + u32::from(is_outside[1]) * AFTER_OUTSIDE,
            before,
            after,
        });
        Ok(())
    }

    /// A name that was removed, added or kept needs the history of its directory at the start; the inode needs its own.
    fn check_kept(&self, id: InodeId, names: [Option<&PlaceName>; 2]) -> Result<(), Fault> {
        for named in names.into_iter().flatten() {
            self.check_kept_then(named.parent)?;
        }
        match names {
            [None, _] => Ok(()),
            [Some(_), _] => self.check_kept_then(id),
        }
    }

    fn check_kept_then(&self, id: InodeId) -> Result<(), Fault> {
        let Interval { after, upto } = self.interval;
        self.history.planes.check_kept_naming(self.caller, id, after, [upto, after])
    }

    /// True if the end of the interval is not in forgotten history. Policies of retention keep names.
    fn is_kept(&self, id: InodeId, names: [Option<&PlaceName>; 2]) -> bool {
        let parents = names.into_iter().flatten().map(|named| named.parent);
        let mut all = parents.chain([id]);
        all.all(|id| self.history.planes.meta.check_kept(id, Some(self.interval.upto)).is_ok())
    }

    /// The bytes that differ or may differ, and the flags with the contents among them.
    fn spans(&mut self, ends: &InodePair, touch: &Touch<'_>, flags: u32) -> Result<(Vec<ChangedSpan>, u32), Fault> {
        let (Some(before), Some(after)) = (&ends.before, &ends.after) else { return Ok((Vec::new(), flags)) };
        let touched = touch.data.is_some() || before.patches() != after.patches() || before.size != after.size;
        if before.kind() != FileKind::File || !touched {
            return Ok((Vec::new(), flags));
        }
        let is_kept = |at: Hlc| self.history.planes.check_kept(ends.id, Some(at)).is_ok();
        if !is_kept(self.interval.after) || !is_kept(self.interval.upto) {
            // Whether the file belongs to the question is decided where it is known, and refused there. A deleted file
            // that only a snapshot shows has a name at the start alone: its removal is all that the answer can contain.
            return Ok((Vec::new(), flags | CONTENT));
        }
        let old = self.history.size_at(ends.id, before, self.interval.after)?;
        let new = self.history.size_at(ends.id, after, self.interval.upto)?;
        let spans = spans_of(touch.data, after.patches(), self.interval.after, old, new);
        let spans = self.really(ends, spans, old.min(new))?;
        let flags = if spans.is_empty() { flags } else { (flags | CONTENT) & !TIMES };
        Ok((spans, flags))
    }

    /// The spans without the bytes that both ends show from the same records: restored bytes are no difference.
    fn really(&self, ends: &InodePair, spans: Vec<ChangedSpan>, both: u64) -> Result<Vec<ChangedSpan>, Fault> {
        let [before, after] =
            [self.interval.after, self.interval.upto].map(|at| self.history.files.version_at(ends.id, at));
        let range = |span: &ChangedSpan| ByteRange::new(span.offset, span.offset + span.len);
        let kept = ByteRange::new(0, both);
        let ranges: Vec<ByteRange> = spans.iter().map(|span| range(span).intersect(kept)).collect();
        let differing = self.history.read.differing([&before?, &after?], &ranges)?;
        let mut found = Vec::new();
        for span in spans.iter().map(range) {
            let parts = differing.iter().map(|part| part.intersect(span));
            let beyond = ByteRange::new(span.start().max(both).min(span.end()), span.end());
            found.extend(parts.chain([beyond]).map(|part| ChangedSpan { offset: part.start(), len: part.len() }));
        }
        Ok(apart(found))
    }

    fn finish(mut self) -> Differences {
        let path = |difference: &Difference| -> Vec<u8> {
            difference.after.as_ref().or(difference.before.as_ref()).map_or(Vec::new(), |side| side.path.clone())
        };
        self.found.all.sort_by_cached_key(|difference| (path(difference), difference.after.is_some()));
        // A name that was removed and added again with another inode was replaced, unless that inode was renamed.
        let mut all: Vec<Difference> = Vec::with_capacity(self.found.all.len());
        for difference in self.found.all.drain(..) {
            match (&difference.before, &difference.after, all.last_mut()) {
                (None, Some(new), Some(last))
                    if last.after.is_none() && last.before.as_ref().is_some_and(|old| old.path == new.path) =>
                {
                    let old = last.before.as_ref().expect("just looked at");
                    last.flags = REPLACED | replaced_flags(old, new);
                    if difference.stamp >= last.stamp {
                        (last.stamp, last.session, last.uid) = (difference.stamp, difference.session, difference.uid);
                    }
                    last.outside |= difference.outside;
                    last.after = difference.after;
                }
                _ => all.push(difference),
            }
        }
        Differences { all, ..self.found }
    }
}

fn flags_of(ends: &InodePair, touch: &Touch<'_>) -> u32 {
    let (Some(before), Some(after)) = (&ends.before, &ends.after) else { return 0 };
    let mut flags = 0;
    if before.mode != after.mode {
        flags |= MODE;
    }
    if (before.uid, before.gid) != (after.uid, after.gid) {
        flags |= OWNER;
    }
    if touch.set_by_hand && (before.mtime_ns, before.atime_ns) != (after.mtime_ns, after.atime_ns) {
        flags |= if after.is_directory() { 0 } else { TIMES };
    }
    if touch.xattrs {
        flags |= XATTRS;
    }
    if touch.acl {
        flags |= ACL;
    }
    flags
}

fn replaced_flags(old: &Side, new: &Side) -> u32 {
    let bit = |differs: bool, bit: u32| if differs { bit } else { 0 };
    bit(old.mode != new.mode, MODE) | bit((old.uid, old.gid) != (new.uid, new.gid), OWNER)
}

/// Bytes written since `since`, decided by a patch since then, or beyond the shorter of both lengths: in order, apart.
pub(crate) fn spans_of(
    data: Option<&FileChange>,
    patches: &[Patch],
    since: Hlc,
    old: u64,
    new: u64,
) -> Vec<ChangedSpan> {
    let longer = old.max(new);
    let written = data.into_iter().flat_map(|file| &file.writes).map(|write| (write.range.start(), write.range.end()));
    let decided = patches.iter().filter(|patch| patch.at > since).map(|patch| (patch.start, patch.end));
    let ranges = written.chain(decided).chain([(old.min(new), longer)]);
    let spans = ranges.map(|(start, end)| ChangedSpan { offset: start, len: end.min(longer).saturating_sub(start) });
    apart(spans.collect())
}

/// The same bytes as spans in order that do not touch.
pub(crate) fn apart(mut spans: Vec<ChangedSpan>) -> Vec<ChangedSpan> {
    spans.retain(|span| span.len > 0);
    spans.sort_unstable_by_key(|span| span.offset);
    spans.dedup_by(|span, last| {
        let touches = last.offset + last.len >= span.offset;
        if touches {
            last.len = last.len.max(span.offset + span.len - last.offset);
        }
        touches
    });
    spans
}

impl History {
    /// Length of a file at an instant, with what was written and not yet settled.
    pub(crate) fn size_at(&self, id: InodeId, inode: &Inode, at: Hlc) -> Result<u64, Fault> {
        Ok(self.read.attr(id, inode, View::exact(at))?.0.size)
    }

    /// A name as it stands in an answer; `None`, and `hidden`, where the caller may not learn it.
    pub(crate) fn side(
        &self,
        cut: &mut TreeAt<'_>,
        named: Option<&PlaceName>,
        id: InodeId,
        inode: Option<&Inode>,
        hidden: &mut bool,
    ) -> Result<Option<Side>, Fault> {
        let (Some(named), Some(inode)) = (named, inode) else { return Ok(None) };
        let Some(directory) = cut.path(named.parent)? else { return Ok(None) };
        if !cut.may_list(named.parent)? {
            *hidden = true;
            return Ok(None);
        }
        let (attr, _) = self.read.attr(id, inode, View::exact(cut.at()))?;
        Ok(Some(Side {
            path: [&directory[..], b"/", &named.name].concat(),
            inode: id.0,
            kind: attr.kind,
            mode: attr.mode,
            uid: attr.uid,
            gid: attr.gid,
            size: attr.size,
            mtime_ns: attr.mtime_ns,
            born: attr.born,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::change_feed::Written;

    fn file(writes: &[(u64, u64)]) -> FileChange {
        let written = |(start, end): &(u64, u64)| Written {
            range: ByteRange::new(*start, *end),
            punch: false,
            first: Hlc(5),
            last: Hlc(5),
            session: SessionId(1),
            uid: 0,
        };
        FileChange { inode: InodeId(2), writes: writes.iter().map(written).collect(), lost: false }
    }

    #[test]
    fn spans_are_what_was_written_cut_off_or_added() {
        let truncates = |truncates: &[(u64, u64)]| {
            truncates.iter().map(|&(at, len)| Patch::truncate(Hlc(at), len)).collect::<Vec<_>>()
        };
        let check = |writes: &[(u64, u64)], cut: &[(u64, u64)], old, new, expect: &[(u64, u64)]| {
            let spans = spans_of(Some(&file(writes)), &truncates(cut), Hlc(3), old, new);
            let found: Vec<(u64, u64)> = spans.iter().map(|span| (span.offset, span.offset + span.len)).collect();
            assert_eq!(found, expect, "{writes:?} {cut:?} {old} {new}");
        };
        check(&[], &[], 10, 10, &[]);
        check(&[(2, 4), (4, 6), (8, 9)], &[], 10, 10, &[(2, 6), (8, 9)]);
        check(&[(8, 12)], &[], 10, 12, &[(8, 12)]);
        // Shorter, longer without data, cut off and grown again; a truncate of before does not count.
        check(&[], &[(5, 4)], 10, 4, &[(4, 10)]);
        check(&[], &[], 4, 10, &[(4, 10)]);
        check(&[(0, 3)], &[(5, 0)], 10, 10, &[(0, 10)]);
        check(&[(0, 3)], &[(2, 0)], 10, 10, &[(0, 3)]);
        // Written beyond what a later truncate left.
        check(&[(0, 100)], &[(5, 20)], 10, 20, &[(0, 20)]);
    }
}
