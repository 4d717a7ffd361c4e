//! Undo: what an actor did goes, unit by unit.
//!
//! A unit is a name, an attribute, a length, or a range of bytes. One whose newest version is the actor's gets its newest
//! version by anybody else; one that others changed later is left and told, with both versions; so is what others have
//! built on: a directory the actor made and others filled, a file that others wrote to.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;

use frieze_base::{ByteRange, Fault, InodeId, Reason, SessionId};
use frieze_hlc::Hlc;
use frieze_namespace::{Cut, Inode, PATCHES_MAX, Revision, State, Subject, SubjectChange};
use frieze_wire::edit::{ActionKind, EditKind, NEW, Share, Undo, Xattr};
use frieze_wire::message::{FileKind, VersionKind, View};
use frieze_wire::txn::Caller;

use super::names::Paths;
use super::{Naming, Plan};
use crate::engine::Engine;
use crate::session::Principal;
use crate::timeline::{Interval, Scope};

/// Records of one file that an undo looks at.
const RECORDS_MAX: usize = 1 << 20;
/// Ranges of one file that are told as left; more are counted with the last.
const LEFT_RANGES_MAX: usize = 100;

/// Whose changes go.
struct Actor<'a> {
    sessions: &'a [u64],
    uid: Option<u32>,
    after: Hlc,
    upto: Hlc,
}

impl Actor<'_> {
    fn did(&self, stamp: Hlc, session: SessionId, uid: u32) -> bool {
        (self.sessions.is_empty() || self.sessions.contains(&session.0))
            && self.uid.is_none_or(|wanted| wanted == uid)
            && stamp > self.after
            && stamp <= self.upto
    }

    fn made(&self, revision: &Revision) -> bool {
        self.did(revision.stamp, revision.session, revision.uid)
    }
}

/// One change of a file's bytes or length.
#[derive(Clone, Copy, Debug)]
struct Event {
    stamp: Hlc,
    by_actor: bool,
    kind: EventKind,
}

#[derive(Clone, Copy, Debug)]
enum EventKind {
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
    /// Stamp of the actor's change, if that shows; else of the newest other.
    top: Hlc,
    by_actor: bool,
    /// Newest stamp by anybody else, or just before the actor's first.
    under: Hlc,
    /// Stamp of a change of the actor that others have covered; ZERO for none.
    covered: Hlc,
}

/// Everything known of one file's bytes.
#[derive(Default)]
struct FileEvents {
    events: Vec<Event>,
}

impl Engine {
    pub(crate) fn plan_undo(&self, principal: &Principal, ask: &Undo, now: Hlc) -> Result<Plan, Fault> {
        if ask.sessions.is_empty() && ask.uid.is_none() && ask.after == 0 {
            return Err(Fault::new(
                Reason::InvalidArgument,
                "an undo needs to know whose changes go, or since when: name a session, a user or an instant",
            ));
        }
        let upto = if ask.upto == 0 { now } else { Hlc(ask.upto) };
        if upto > now {
            self.answer(View { at: Some(upto.0), user_at: None })?;
        }
        // A session made nothing before it was opened; its number is the stamp of that.
        let opened = ask.sessions.iter().min().map_or(0, |first| first.saturating_sub(1));
        let after = Hlc(ask.after.max(opened));
        let actor = Actor { sessions: &ask.sessions, uid: ask.uid, after, upto };
        let root = Caller::root();
        let history = self.meta.versions();
        let scope = match ask.target.path.iter().all(|&byte| byte == b'/') && ask.target.base == InodeId::ROOT.0 {
            true => Scope::Everything,
            false => match self.resolve(principal, &ask.target, Some(now)) {
                Ok(found) => Scope::Within(found.id),
                Err(fault) if fault.reason == Reason::NotFound && after != Hlc::ZERO => {
                    Scope::Within(self.resolve(principal, &ask.target, Some(after))?.id)
                }
                Err(fault) => return Err(fault),
            },
        };
        let mut plan = Plan::new(EditKind::Undo, now, Hlc::ZERO);
        if after >= now {
            return Ok(plan);
        }
        let changes = self.changes(scope, Interval { after, upto: now })?;
        let mut paths = Paths { cuts: vec![Cut::new(history, now, &root), Cut::new(history, after, &root)] };
        let mut sight = Cut::new(history, now, &principal.caller);
        let mut unseen = 0;
        let mut inodes: BTreeMap<InodeId, &SubjectChange> = BTreeMap::new();
        let mut xattrs: BTreeMap<InodeId, Vec<&SubjectChange>> = BTreeMap::new();
        for change in &changes.subjects {
            match &change.subject {
                Subject::Entry { parent, name } => {
                    if !change.revisions.iter().any(|revision| actor.made(revision)) {
                        continue;
                    }
                    let listed = principal.caller.uid == 0
                        || sight.may_list(*parent)?
                        || sight.inode(*parent)?.is_some_and(|inode| inode.links == 0);
                    if !listed {
                        unseen += 1;
                        continue;
                    }
                    // What was there before the first change is what comes back.
                    if let Some(first) = change.revisions.first() {
                        self.check_kept(*parent, Some(first.stamp.previous().max(after)))?;
                    }
                    undo_name(&actor, &mut plan, &mut paths, *parent, name, change)?;
                }
                Subject::Inode(id) => drop(inodes.insert(*id, change)),
                Subject::Xattr { inode, .. } => xattrs.entry(*inode).or_default().push(change),
            }
        }
        let mut files: BTreeSet<InodeId> = changes.files.iter().map(|file| file.inode).collect();
        files.extend(inodes.keys().copied());
        let mut events: BTreeMap<InodeId, FileEvents> = BTreeMap::new();
        for id in files {
            let found = self.file_events(&actor, id, after, now, inodes.get(&id).copied())?;
            events.insert(id, found);
        }
        plan.displaced.retain(|id| !inodes.get(id).is_some_and(|change| made_by(&actor, change)));
        self.keep_what_others_built(&actor, &mut plan, &mut paths, &inodes, &xattrs, &events)?;
        self.settle_names(&mut plan, &mut paths)?;
        let back: BTreeSet<u64> = plan.names.values().map(|naming| naming.inode).collect();
        let ids: BTreeSet<InodeId> = inodes.keys().chain(xattrs.keys()).chain(events.keys()).copied().collect();
        for id in ids {
            let made_by_actor = inodes.get(&id).is_some_and(|change| made_by(&actor, change));
            let named = back.contains(&id.0) || id == InodeId::ROOT || !paths.cuts[0].names(id)?.is_empty();
            if made_by_actor || !named {
                continue;
            }
            let version = self.meta.namespace().inode(history, id, Some(now))?;
            if let Some(change) = inodes.get(&id) {
                if let Some(first) = change.revisions.first().filter(|_| change.revisions.iter().any(|r| actor.made(r)))
                {
                    self.check_kept(id, Some(first.stamp.previous().max(after)))?;
                }
                undo_attributes(&actor, &mut plan, &mut paths, id, &version, change)?;
            }
            for change in xattrs.get(&id).into_iter().flatten() {
                undo_xattr(&actor, &mut plan, &mut paths, id, &version, change)?;
            }
            if let Some(found) = events.get(&id).filter(|_| version.kind() == FileKind::File) {
                self.undo_bytes(&mut plan, &mut paths, id, &version, found)?;
            }
        }
        if unseen > 0 {
            plan.tell(ActionKind::Left, b"", 0, format!("{unseen} names in directories that you may not list"));
        }
        Ok(plan)
    }

    /// Everything that changed a file's bytes, length and time in (`after`, `now`], in order.
    fn file_events(
        &self,
        actor: &Actor<'_>,
        id: InodeId,
        after: Hlc,
        now: Hlc,
        change: Option<&SubjectChange>,
    ) -> Result<FileEvents, Fault> {
        let records = self.data.device().log().versions(id, after, now, RECORDS_MAX + 1);
        if records.len() > RECORDS_MAX {
            return Err(Fault::new(
                Reason::Overloaded,
                format!("more than {RECORDS_MAX} writes to inode {id} in the interval: undo a shorter one"),
            ));
        }
        let mut events = Vec::new();
        if !records.is_empty() {
            let chunk_bytes = self.meta.namespace().inode(self.meta.versions(), id, None)?.chunk_bytes();
            for record in &records {
                let start = u64::from(record.chunk.index) * chunk_bytes + u64::from(record.offset);
                let end = start + u64::from(record.len);
                let extends = record.kind == frieze_multilog::RecordKind::Write;
                let by_actor = actor.did(record.stamp, record.session, record.uid);
                let kind = EventKind::Bytes { start, end, extends };
                events.push(Event { stamp: record.stamp, by_actor, kind });
            }
        }
        for revision in change.into_iter().flat_map(|change| &change.revisions) {
            let Some(State::Inode(inode)) = &revision.state else { continue };
            let (stamp, by_actor) = (revision.stamp, actor.made(revision));
            let mut add = |kind| events.push(Event { stamp, by_actor, kind });
            for patch in inode.patches().iter().filter(|patch| patch.at == stamp) {
                add(EventKind::Bytes { start: patch.start, end: patch.end, extends: false });
            }
            if inode.kind() == FileKind::File && inode.size_as_of == stamp {
                // Growing leaves no patch, and yet says that there is nothing beyond.
                add(EventKind::Bytes { start: inode.size, end: u64::MAX, extends: false });
                add(EventKind::Length(inode.size));
            }
            if !inode.is_directory() && inode.mtime_stamp == stamp {
                add(EventKind::Mtime(inode.mtime_ns));
            }
        }
        events.sort_by_key(|event| event.stamp);
        Ok(FileEvents { events })
    }

    /// A file that the actor made and others changed keeps its last name.
    fn keep_what_others_built(
        &self,
        actor: &Actor<'_>,
        plan: &mut Plan,
        paths: &mut Paths<'_>,
        inodes: &BTreeMap<InodeId, &SubjectChange>,
        xattrs: &BTreeMap<InodeId, Vec<&SubjectChange>>,
        events: &BTreeMap<InodeId, FileEvents>,
    ) -> Result<(), Fault> {
        let mut kept = Vec::new();
        for (key, naming) in plan.names.iter().filter(|(_, naming)| naming.expect.0 != 0) {
            let id = naming.expect;
            let gains = plan.names.values().any(|other| other.inode == id.0);
            let version = self.meta.namespace().inode(self.meta.versions(), id, Some(plan.now))?;
            let losses = plan.names.values().filter(|other| other.expect == id && other.inode != id.0).count();
            if version.is_directory() || gains || version.links as usize > losses {
                continue;
            }
            let by_others = |change: &SubjectChange| {
                let made = change.revisions.iter().filter(|revision| !actor.made(revision));
                made.filter(|revision| revision.causes.iter().any(|cause| builds(cause.kind)))
                    .map(|last| last.stamp)
                    .max()
            };
            let attribute = |change: &&SubjectChange| {
                change.revisions.iter().filter(|revision| !actor.made(revision)).map(|last| last.stamp).max()
            };
            let named = inodes.get(&id).and_then(|change| by_others(change));
            let written = events.get(&id).and_then(|found| {
                let others = found.events.iter().filter(|event| !event.by_actor);
                others.filter(|event| matches!(event.kind, EventKind::Bytes { .. })).map(|event| event.stamp).max()
            });
            let marked = xattrs.get(&id).and_then(|all| all.iter().filter_map(attribute).max());
            if let Some(newest) = named.max(written).max(marked) {
                kept.push((key.clone(), id, newest));
            }
        }
        for (key, id, newest) in kept {
            plan.names.remove(&key);
            let path = paths.of(key.0, &key.1)?;
            plan.leave(&path, id.0, "others have changed it since").newest = newest.0;
        }
        Ok(())
    }

    fn undo_bytes(
        &self,
        plan: &mut Plan,
        paths: &mut Paths<'_>,
        id: InodeId,
        version: &Inode,
        found: &FileEvents,
    ) -> Result<(), Fault> {
        let Some(first) = found.events.iter().find(|event| event.by_actor) else { return Ok(()) };
        let base_at = first.stamp.previous();
        let base = match self.seen_at(id, base_at) {
            Ok(seen) => seen,
            // Made in the same transaction, by an edit of the actor: there is no older state of it.
            Err(fault) if fault.reason == Reason::NotFound => return Ok(()),
            Err(fault) => return Err(fault),
        };
        let now = self.seen_at(id, plan.now)?;
        let (extent_base, extent_now) = {
            let look = self.look();
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
                let seen = self.seen_at(id, span.under)?;
                shares.extend(self.shares(&seen, ByteRange::new(start, end), start)?);
                ranges.push((start, end, span.top, span.under));
            } else if span.covered != Hlc::ZERO {
                left.push((start, end, span.top, span.covered));
            }
        }
        for &(start, end, newest, older) in left.iter().take(LEFT_RANGES_MAX) {
            let told = plan.tell(ActionKind::Left, &path, id.0, "others wrote these bytes since");
            (told.offset, told.len, told.newest, told.older) = (start, end - start, newest.0, older.0);
        }
        if version.patches().len() + 2 * shares.len() + 1 > PATCHES_MAX {
            let words = format!("its bytes would come from {} ranges: restore the whole file instead", shares.len());
            plan.tell(ActionKind::Left, &path, id.0, words);
            return Ok(());
        }
        let newest_length = found.events.iter().rev().find(|event| matches!(event.kind, EventKind::Length(_)));
        if let Some(event) = newest_length.filter(|event| !event.by_actor && size.is_none())
            && found.events.iter().any(|event| event.by_actor && matches!(event.kind, EventKind::Length(_)))
        {
            plan.tell(ActionKind::Left, &path, id.0, "others set the length since").newest = event.stamp.0;
        }
        let changed_size = size.filter(|&size| size != extent_now.size);
        let writes = !shares.is_empty() || changed_size.is_some();
        // Bytes that come from elsewhere are a write and set the time, unless another is named.
        let mtime = undone_mtime(&found.events, extent_base.mtime_ns).filter(|&ns| writes || ns != extent_now.mtime_ns);
        if !writes && mtime.is_none() {
            return Ok(());
        }
        for (start, end, newest, older) in ranges {
            let told = plan.tell(ActionKind::Bytes, &path, id.0, "");
            (told.offset, told.len, told.newest, told.older) = (start, end - start, newest.0, older.0);
        }
        if let Some(size) = changed_size {
            plan.tell(ActionKind::Bytes, &path, id.0, format!("length {} to {size}", extent_now.size));
        }
        let state = plan.state(id, version);
        state.shares = shares;
        state.size = changed_size;
        state.mtime_ns = mtime;
        Ok(())
    }
}

/// Changes of an inode that make it more than its maker made it.
fn builds(kind: VersionKind) -> bool {
    !matches!(kind, VersionKind::Unnamed | VersionKind::Undone | VersionKind::Restored)
}

/// True if the actor made the inode in the interval.
fn made_by(actor: &Actor<'_>, change: &SubjectChange) -> bool {
    change.before.is_none() && change.revisions.first().is_some_and(|first| actor.made(first))
}

/// The newest version by anybody else, if the newest is the actor's: its stamp and value.
fn undone<'a, T>(
    actor: &Actor<'_>,
    change: &'a SubjectChange,
    value: impl Fn(&'a State) -> Option<T>,
) -> Option<(Hlc, Option<T>)> {
    let newest = change.revisions.last().filter(|newest| actor.made(newest))?;
    debug_assert!(newest.stamp > Hlc::ZERO);
    match change.revisions.iter().rev().find(|revision| !actor.made(revision)) {
        Some(other) => Some((other.stamp, other.state.as_ref().and_then(value))),
        None => Some(change.before.as_ref().map_or((Hlc::ZERO, None), |(since, state)| (*since, value(state)))),
    }
}

/// Inodes that the actor took the name away from.
fn displaced<'a>(
    actor: &Actor<'_>,
    change: &'a SubjectChange,
    inode_of: impl Fn(&'a State) -> Option<InodeId>,
) -> impl Iterator<Item = InodeId> {
    let states = change.revisions.iter().map(|revision| revision.state.as_ref());
    let before = iter::once(change.before.as_ref().map(|(_, state)| state)).chain(states);
    before
        .zip(&change.revisions)
        .filter(|(_, revision)| actor.made(revision))
        .filter_map(move |(before, _)| before.and_then(&inode_of))
}

fn newest_of(actor: &Actor<'_>, change: &SubjectChange) -> (Hlc, Hlc) {
    let of_actor = change.revisions.iter().rev().find(|revision| actor.made(revision));
    let newest = change.revisions.last().map_or(Hlc::ZERO, |newest| newest.stamp);
    (newest, of_actor.map_or(Hlc::ZERO, |revision| revision.stamp))
}

fn undo_name(
    actor: &Actor<'_>,
    plan: &mut Plan,
    paths: &mut Paths<'_>,
    directory: InodeId,
    name: &[u8],
    change: &SubjectChange,
) -> Result<(), Fault> {
    let inode_of = |state: &State| match state {
        State::Entry { inode, .. } => Some(*inode),
        _ => None,
    };
    let now = change.revisions.last().and_then(|last| last.state.as_ref()).and_then(inode_of);
    let path = paths.of(directory, name)?;
    let (newest, of_actor) = newest_of(actor, change);
    let Some((older, to)) = undone(actor, change, inode_of) else {
        let told = plan.tell(ActionKind::Left, &path, now.unwrap_or_default().0, "others changed the name since");
        (told.newest, told.older) = (newest.0, of_actor.0);
        plan.displaced.extend(displaced(actor, change, inode_of).filter(|id| Some(*id) != now));
        return Ok(());
    };
    if to == now {
        return Ok(());
    }
    let kind = match (now, to) {
        (_, None) => ActionKind::Unname,
        (None, Some(_)) => ActionKind::Name,
        (Some(_), Some(_)) => ActionKind::Replace,
    };
    let told = plan.tell(kind, &path, to.or(now).unwrap_or_default().0, "");
    (told.newest, told.older) = (newest.0, older.0);
    let naming = Naming { expect: now.unwrap_or_default(), inode: to.unwrap_or_default().0 };
    debug_assert!(naming.inode & NEW == 0);
    plan.names.insert((directory, name.to_vec()), naming);
    Ok(())
}

fn undo_xattr(
    actor: &Actor<'_>,
    plan: &mut Plan,
    paths: &mut Paths<'_>,
    id: InodeId,
    version: &Inode,
    change: &SubjectChange,
) -> Result<(), Fault> {
    let Subject::Xattr { name, .. } = &change.subject else { return Ok(()) };
    if !change.revisions.iter().any(|revision| actor.made(revision)) {
        return Ok(());
    }
    let value_of = |state: &State| match state {
        State::Xattr(value) => Some(value.clone()),
        _ => None,
    };
    let path = paths.of_inode(id)?;
    let what = format!("attribute {}", String::from_utf8_lossy(name));
    let (newest, of_actor) = newest_of(actor, change);
    let Some((older, value)) = undone(actor, change, value_of) else {
        let told = plan.tell(ActionKind::Left, &path, id.0, format!("others changed {what} since"));
        (told.newest, told.older) = (newest.0, of_actor.0);
        return Ok(());
    };
    let now = change.revisions.last().and_then(|last| last.state.as_ref()).and_then(value_of);
    if now != value {
        let told = plan.tell(ActionKind::Attributes, &path, id.0, what);
        (told.newest, told.older) = (newest.0, older.0);
        plan.state(id, version).xattrs.push(Xattr { name: name.clone(), value });
    }
    Ok(())
}

/// Mode, owner, group and access time: each a unit, changed where its value changed.
fn undo_attributes(
    actor: &Actor<'_>,
    plan: &mut Plan,
    paths: &mut Paths<'_>,
    id: InodeId,
    version: &Inode,
    change: &SubjectChange,
) -> Result<(), Fault> {
    let of = |state: &State| match state {
        State::Inode(inode) => Some([inode.mode.into(), inode.uid.into(), inode.gid.into(), inode.atime_ns]),
        _ => None,
    };
    let mut values: Vec<(Hlc, bool, [i64; 4])> = Vec::new();
    if let Some(before) = change.before.as_ref().and_then(|(since, state)| Some((*since, false, of(state)?))) {
        values.push(before);
    }
    for revision in &change.revisions {
        if let Some(value) = revision.state.as_ref().and_then(of) {
            values.push((revision.stamp, actor.made(revision), value));
        }
    }
    let names = ["mode", "owner", "group", "access time"];
    for (unit, name) in names.iter().enumerate() {
        // The first value counts as set by who made the inode, or before the interval.
        let mut sets: Vec<(Hlc, bool, i64)> = Vec::new();
        for (stamp, by_actor, value) in &values {
            if sets.last().is_none_or(|(_, _, last)| *last != value[unit]) {
                sets.push((*stamp, *by_actor, value[unit]));
            }
        }
        let Some(&(of_actor, ..)) = sets.iter().rev().find(|(_, by_actor, _)| *by_actor) else { continue };
        let Some(&(newest, newest_by_actor, now)) = sets.last() else { continue };
        let path = paths.of_inode(id)?;
        if !newest_by_actor {
            let told = plan.tell(ActionKind::Left, &path, id.0, format!("others changed the {name} since"));
            (told.newest, told.older) = (newest.0, of_actor.0);
            continue;
        }
        let Some(&(older, _, value)) = sets.iter().rev().find(|(_, by_actor, _)| !by_actor) else { continue };
        if value == now {
            continue;
        }
        let words = match unit {
            0 => format!("mode {now:04o} to {value:04o}"),
            3 => "access time".to_owned(),
            _ => format!("{name} {now} to {value}"),
        };
        let told = plan.tell(ActionKind::Attributes, &path, id.0, words);
        (told.newest, told.older) = (newest.0, older.0);
        let state = plan.state(id, version);
        match unit {
            0 => state.mode = Some(value as u32),
            1 => state.uid = Some(value as u32),
            2 => state.gid = Some(value as u32),
            _ => state.atime_ns = Some(value),
        }
    }
    Ok(())
}

/// The length without the actor's changes, if the newest change of the length is the actor's.
fn undone_size(events: &[Event], base: u64) -> Option<u64> {
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
fn undone_mtime(events: &[Event], base_ns: i64) -> Option<i64> {
    let of = |event: &Event| match event.kind {
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
fn byte_spans(events: &[Event], base_at: Hlc) -> BTreeMap<u64, Bytes> {
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
