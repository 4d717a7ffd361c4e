//! The bytes, the length and the modification time of one file, without the actor's changes.

use std::collections::BTreeMap;

use frieze_base::{ByteRange, Fault, InodeId, Reason, SessionId};
use frieze_hlc::Hlc;
use frieze_multilog::DroppedRecords;
use frieze_namespace::{Inode, PATCHES_MAX, PatchSource, Paths, SNAPSHOTS_MAX, SubjectChange, SubjectState};
use frieze_planes::not_whole_here;
use frieze_wire::edit::{ActionKind, Share};
use frieze_wire::message::FileKind;

use super::actor::Actor;
use crate::history::tree_pair::Interval;
use crate::tree_ops::{Plan, TreeOps};

/// Records of one file that an undo looks at.
const RECORDS_MAX: usize = 1 << 20;
/// Ranges of one file that are listed as left; the last one counts all further ones.
const LEFT_RANGES_MAX: usize = 100;

/// One change of a file's bytes or length.
#[derive(Clone, Copy, Debug)]
pub(super) struct ByteEvent {
    pub(super) stamp: Hlc,
    pub(super) by_actor: bool,
    /// The user on whose behalf it was made.
    pub(super) uid: u32,
    pub(super) kind: EventKind,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum EventKind {
    /// Bytes from the first up to the second; a write makes the file that long at least.
    Bytes { start: u64, end: u64, extends: bool },
    /// The length is set.
    Length(u64),
    /// The modification time is set, ns.
    Mtime(i64),
}

/// Bytes that have one history since the actor's first change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bytes {
    end: u64,
    /// Stamp of the actor's change, if that is visible; otherwise of the newest change by another.
    top: Hlc,
    by_actor: bool,
    /// Newest stamp of a change that is not the actor's, or just before the actor's first.
    under: Hlc,
    /// Stamp of a change of the actor that later changes of others cover; ZERO for none.
    covered: Hlc,
}

/// Everything known of one file's bytes.
#[derive(Default)]
pub(super) struct FileEvents {
    pub(super) events: Vec<ByteEvent>,
    /// Stamp of the first write that may be the actor's and whose record is dropped: the file has no history of that
    /// time.
    lost: Option<Hlc>,
}

impl TreeOps {
    /// Everything that changed a file's bytes, length and time in (`after`, `upto`], in order.
    pub(super) fn file_events(
        &self,
        actor: &Actor<'_>,
        id: InodeId,
        Interval { after, upto }: Interval,
        change: Option<&SubjectChange>,
    ) -> Result<FileEvents, Fault> {
        let (records, gone) = {
            if self.files.may_be_forgotten_remotely(id, after) {
                return Err(not_whole_here(id));
            }
            let records = self.files.records(id, after, upto, RECORDS_MAX + 1)?;
            (records, self.planes.data.device().log_of([id])?.dropped_records(id, after, upto))
        };
        if records.len() > RECORDS_MAX {
            return Err(Fault::new(
                Reason::Overloaded,
                format!("more than {RECORDS_MAX} writes to inode {id} in the interval: undo a shorter one"),
            ));
        }
        let mut events = Vec::new();
        if !records.is_empty() {
            let chunk_bytes = self.planes.meta.layout(id)?.chunk_bytes;
            for record in &records {
                let start = u64::from(record.chunk.index) * chunk_bytes + u64::from(record.offset);
                let end = start + u64::from(record.len);
                let extends = record.kind == frieze_multilog::RecordKind::Write;
                let by_actor = actor.did(record.stamp, record.session, record.uid);
                let kind = EventKind::Bytes { start, end, extends };
                events.push(ByteEvent { stamp: record.stamp, by_actor, uid: record.uid, kind });
            }
        }
        for revision in change.into_iter().flat_map(|change| &change.revisions) {
            let Some(SubjectState::Inode(inode)) = &revision.state else { continue };
            let (stamp, by_actor, uid) = (revision.stamp, actor.made(revision), revision.uid);
            let mut add = |kind| events.push(ByteEvent { stamp, by_actor, uid, kind });
            for patch in inode.patches().iter().filter(|patch| patch.at == stamp) {
                // A copied range makes a file at least so long, as a write does.
                let shows = matches!(patch.source, PatchSource::Shared { .. }) && inode.size >= patch.end;
                let extends = shows && inode.size_as_of != stamp;
                add(EventKind::Bytes { start: patch.start, end: patch.end, extends });
            }
            if inode.kind() == FileKind::File && inode.size_as_of == stamp {
                // Growing leaves no patch, and yet it states that no byte lies beyond.
                add(EventKind::Bytes { start: inode.size, end: u64::MAX, extends: false });
                add(EventKind::Length(inode.size));
            }
            if !inode.is_directory() && inode.mtime_stamp == stamp {
                add(EventKind::Mtime(inode.mtime_ns));
            }
        }
        let mut lost = None;
        for DroppedRecords { by, first, last } in gone {
            // The range is unknown: that there was a write is enough.
            let kind = EventKind::Bytes { start: 0, end: 0, extends: false };
            let own = match by {
                Some((session, uid)) => actor.may_have_done((first, last), session, uid),
                None => true,
            };
            let (_, uid) = by.unwrap_or((SessionId(0), actor.caller.uid));
            if own {
                let since = first.max(after.next());
                lost = Some(lost.map_or(since, |before: Hlc| before.min(since)));
                events.push(ByteEvent { stamp: since, by_actor: true, uid, kind });
            }
            if !own || by.is_none() {
                events.push(ByteEvent { stamp: last, by_actor: false, uid, kind });
            }
        }
        events.sort_by_key(|event| event.stamp);
        Ok(FileEvents { events, lost })
    }

    pub(super) fn undo_bytes(
        &self,
        plan: &mut Plan,
        paths: &mut Paths<'_>,
        id: InodeId,
        version: &Inode,
        found: &FileEvents,
    ) -> Result<(), Fault> {
        let Some(first) = found.events.iter().find(|event| event.by_actor) else { return Ok(()) };
        if let Some(lost) = found.lost {
            // Snapshots may still show single instants of that time.
            let instants = (lost.previous().0..=plan.now.0).map(Hlc).take(SNAPSHOTS_MAX + 1);
            instants.into_iter().try_for_each(|at| self.planes.check_kept(id, Some(at)))?;
        }
        let base_at = first.stamp.previous();
        let base = match self.files.version_at(id, base_at) {
            Ok(seen) => seen,
            // Made in the same transaction, by an edit of the actor: there is no older state of it.
            Err(fault) if fault.reason == Reason::NotFound => return Ok(()),
            Err(fault) => return Err(fault),
        };
        let now = self.files.version_at(id, plan.now)?;
        let (extent_base, extent_now) = {
            let look = self.files.look(&[&base, &now])?;
            (look.extent(&base), look.extent(&now))
        };
        let path = paths.of_inode(id)?;
        let size = undone_size(&found.events, extent_base.size);
        let size_after = size.unwrap_or(extent_now.size);
        let spans = byte_spans(&found.events, base_at);
        let mut shares: Vec<Share> = Vec::new();
        let mut ranges = Vec::new();
        let mut left = Vec::new();
        for (&start, span) in &spans {
            let end = span.end.min(size_after);
            if start >= end {
                continue;
            }
            if span.by_actor {
                let seen = self.files.version_at(id, span.under)?;
                shares.extend(self.shares(&seen, ByteRange::new(start, end), start)?);
                ranges.push((start, end, span.top, span.under));
            } else if span.covered != Hlc::ZERO {
                left.push((start, end, span.top, span.covered));
            }
        }
        for &(start, end, newest, older) in left.iter().take(LEFT_RANGES_MAX) {
            let told = plan.note_action(ActionKind::Left, &path, id.0, "others wrote these bytes since");
            (told.offset, told.len, told.newest, told.older) = (start, end - start, newest.0, older.0);
        }
        if version.patches().len() + 2 * shares.len() + 1 > PATCHES_MAX {
            let words = format!("its bytes would come from {} ranges: restore the whole file instead", shares.len());
            plan.note_action(ActionKind::Left, &path, id.0, words);
            return Ok(());
        }
        let newest_length = found.events.iter().rev().find(|event| matches!(event.kind, EventKind::Length(_)));
        if let Some(event) = newest_length.filter(|event| !event.by_actor && size.is_none())
            && found.events.iter().any(|event| event.by_actor && matches!(event.kind, EventKind::Length(_)))
        {
            plan.note_action(ActionKind::Left, &path, id.0, "others set the length since").newest = event.stamp.0;
        }
        let changed_size = size.filter(|&size| size != extent_now.size);
        let writes = !shares.is_empty() || changed_size.is_some();
        // Shared bytes count as a write and set the time, unless the undo sets another.
        let mtime = undone_mtime(&found.events, extent_base.mtime_ns).filter(|&ns| writes || ns != extent_now.mtime_ns);
        if !writes && mtime.is_none() {
            return Ok(());
        }
        for (start, end, newest, older) in ranges {
            let told = plan.note_action(ActionKind::Bytes, &path, id.0, "");
            (told.offset, told.len, told.newest, told.older) = (start, end - start, newest.0, older.0);
        }
        if let Some(size) = changed_size {
            plan.note_action(ActionKind::Bytes, &path, id.0, format!("length {} to {size}", extent_now.size));
        }
        let state = plan.state(id, version);
        state.shares = shares;
        state.size = changed_size;
        state.mtime_ns = mtime;
        // No other actor wrote to it since: the file is wholly what it was before the actor's first change.
        if writes && found.events.iter().all(|event| event.by_actor || event.stamp <= base_at) {
            self.take_times(plan, &base, base_at, version)?;
        }
        Ok(())
    }
}

/// The length without the actor's changes, if the newest change of the length is the actor's.
fn undone_size(events: &[ByteEvent], base: u64) -> Option<u64> {
    let (mut with, mut without) = (base, base);
    let mut newest_by_actor = false;
    for event in events.iter().skip_while(|event| !event.by_actor) {
        let apply = |size: u64| match event.kind {
            EventKind::Bytes { end, extends: true, .. } => size.max(end),
            EventKind::Length(len) => len,
            _ => size,
        };
        if apply(with) != with {
            with = apply(with);
            newest_by_actor = event.by_actor;
        }
        if !event.by_actor {
            without = apply(without);
        }
    }
    newest_by_actor.then_some(without)
}

/// The modification time without the actor's changes, if the newest is the actor's.
fn undone_mtime(events: &[ByteEvent], base_ns: i64) -> Option<i64> {
    let of = |event: &ByteEvent| match event.kind {
        EventKind::Bytes { end, .. } if end != u64::MAX => Some(event.stamp.unix_ns()),
        EventKind::Mtime(ns) => Some(ns),
        _ => None,
    };
    let newest_stamp = events.iter().filter(|event| of(event).is_some()).map(|event| event.stamp).max()?;
    let mut newest = events.iter().filter(|event| event.stamp == newest_stamp);
    if !newest.any(|event| event.by_actor) {
        return None;
    }
    let first = events.iter().position(|event| event.by_actor)?;
    let others = events[first..].iter().rev().filter(|event| !event.by_actor);
    // Of one transaction, the time that it set counts.
    let mut best: Option<(Hlc, i64)> = None;
    for event in others {
        if let Some(ns) = of(event)
            && best.is_none_or(|(stamp, _)| {
                event.stamp > stamp || matches!(event.kind, EventKind::Mtime(_)) && event.stamp == stamp
            })
        {
            best = Some((event.stamp, ns));
        }
    }
    Some(best.map_or(base_ns, |(_, ns)| ns))
}

/// The bytes that changed since the actor's first change, by start.
fn byte_spans(events: &[ByteEvent], base_at: Hlc) -> BTreeMap<u64, Bytes> {
    let mut spans: BTreeMap<u64, Bytes> = BTreeMap::new();
    for event in events.iter().skip_while(|event| !event.by_actor) {
        let EventKind::Bytes { start, end, .. } = event.kind else { continue };
        if start >= end {
            continue;
        }
        split_at(&mut spans, start);
        split_at(&mut spans, end);
        let mut at = start;
        let mut fresh = Vec::new();
        for (&begin, span) in spans.range_mut(start..end) {
            if at < begin {
                fresh.push((at, begin));
            }
            at = span.end;
            if event.by_actor {
                (span.top, span.by_actor) = (event.stamp, true);
            } else {
                if span.by_actor {
                    span.covered = span.top;
                }
                (span.top, span.by_actor, span.under) = (event.stamp, false, event.stamp);
            }
        }
        if at < end {
            fresh.push((at, end));
        }
        for (begin, end) in fresh {
            let under = if event.by_actor { base_at } else { event.stamp };
            let span = Bytes { end, top: event.stamp, by_actor: event.by_actor, under, covered: Hlc::ZERO };
            spans.insert(begin, span);
        }
    }
    // Neighbours with one history are one.
    let mut merged: BTreeMap<u64, Bytes> = BTreeMap::new();
    for (start, span) in spans {
        if let Some(mut last) = merged.last_entry() {
            let before = *last.get();
            if before.end == start && (Bytes { end: span.end, ..before }) == span {
                last.get_mut().end = span.end;
                continue;
            }
            let both = before.by_actor && span.by_actor && before.under == span.under;
            if before.end == start && both {
                *last.get_mut() = Bytes { end: span.end, top: before.top.max(span.top), ..before };
                continue;
            }
        }
        merged.insert(start, span);
    }
    merged
}

fn split_at(spans: &mut BTreeMap<u64, Bytes>, at: u64) {
    if let Some((_, span)) = spans.range_mut(..at).next_back()
        && span.end > at
    {
        let rest = *span;
        span.end = at;
        spans.insert(at, rest);
    }
}
