//! Undo: removes the changes of an actor, unit by unit.
//!
//! A unit is a name, an attribute, a length, or a range of bytes. If the newest version of a unit is the actor's, the
//! unit gets its newest version that is not the actor's. If others changed the unit later, the undo leaves it and lists
//! it with both versions. It also leaves what others have built on: a directory that the actor made and others filled,
//! a file that others wrote to.

mod actor;
mod bytes;
mod reach;
mod sight;
mod units;

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::{Fault, InodeId, Reason};
use frieze_hlc::Hlc;
use frieze_namespace::{ChangeSubject, Changed, Paths, SubjectChange, SubjectState};
use frieze_planes::Principal;
use frieze_wire::edit::{ActionKind, EditKind, Undo};
use frieze_wire::message::{FileKind, VersionKind, View};
use frieze_wire::quota::QUOTA_XATTR;

use self::actor::Actor;
use self::bytes::{EventKind, FileEvents};
use self::reach::Reach;
use self::sight::Sight;
use self::units::{is_as_before, naming_of, undo_attributes, undo_name, undo_xattr};
use super::names::NameKey;
use super::{Naming, Plan};
use crate::history::change_feed::CHANGES_MAX;
use crate::history::tree_pair::Interval;
use crate::tree_ops::TreeOps;

/// The changes in the interval that belong to the path, by subject.
struct UndoChanges<'a> {
    names: Vec<(NameKey, &'a SubjectChange)>,
    inodes: BTreeMap<InodeId, &'a SubjectChange>,
    xattrs: BTreeMap<InodeId, Vec<&'a SubjectChange>>,
    files: BTreeMap<InodeId, FileEvents>,
}

impl<'a> UndoChanges<'a> {
    fn of(subjects: &'a [SubjectChange]) -> UndoChanges<'a> {
        let mut changes =
            UndoChanges { names: Vec::new(), inodes: BTreeMap::new(), xattrs: BTreeMap::new(), files: BTreeMap::new() };
        for change in subjects {
            match &change.subject {
                ChangeSubject::Entry { parent, name } => changes.names.push(((*parent, name.clone()), change)),
                ChangeSubject::Inode(id) => drop(changes.inodes.insert(*id, change)),
                // Set by operators, as in a restore.
                ChangeSubject::Xattr { name, .. } if *name == *QUOTA_XATTR => {}
                ChangeSubject::Xattr { inode, .. } => changes.xattrs.entry(*inode).or_default().push(change),
            }
        }
        changes
    }

    /// The inodes of all changes, except those of names.
    fn ids(&self) -> BTreeSet<InodeId> {
        self.inodes.keys().chain(self.xattrs.keys()).chain(self.files.keys()).copied().collect()
    }

    /// The users on whose behalf the actor changed a file or directory; empty if the actor did not.
    fn uids(&self, actor: &Actor<'_>, id: InodeId) -> BTreeSet<u32> {
        let subjects = self.inodes.get(&id).into_iter().chain(self.xattrs.get(&id).into_iter().flatten());
        let events = self.files.get(&id).into_iter().flat_map(|file| &file.events);
        let wrote = events.filter(|event| event.by_actor).map(|event| event.uid);
        subjects.flat_map(|change| actor.uids(change)).chain(wrote).collect()
    }

    /// True if the actor made the inode in the interval.
    fn made_by(&self, actor: &Actor<'_>, id: InodeId) -> bool {
        self.inodes.get(&id).is_some_and(|change| {
            change.before.is_none() && change.revisions.first().is_some_and(|first| actor.made(first))
        })
    }
}

impl TreeOps {
    pub(crate) fn plan_undo(&self, principal: &Principal, ask: &Undo, now: Hlc) -> Result<Plan, Fault> {
        if ask.sessions.is_empty() && ask.uid.is_none() && ask.after == 0 {
            return Err(Fault::new(
                Reason::InvalidArgument,
                "an undo needs to know whose changes go, or since when: name a session, a user or an instant",
            ));
        }
        let upto = if ask.upto == 0 { now } else { Hlc(ask.upto) };
        if upto > now {
            self.planes.answer(View::exact(upto))?;
        }
        // A session made nothing before it was opened; its number is the stamp of its opening.
        let opened = ask.sessions.iter().min().map_or(0, |first| first.saturating_sub(1));
        let after = Hlc(ask.after.max(opened));
        let actor = Actor { sessions: &ask.sessions, uid: ask.uid, after, upto, caller: &principal.caller };
        let mut plan = Plan::new(EditKind::Undo, now, Hlc::ZERO);
        if after >= now {
            return Ok(plan);
        }
        let history = self.planes.meta.history();
        let mut reach = self.reach(principal, &ask.target, Interval { after, upto: now })?;
        let mut sight = Sight::new(history, now, &principal.caller);
        let (changed, planned) = self.changes_reached(&actor, &mut reach, &mut sight)?;
        let mut changes = UndoChanges::of(&changed.subjects);
        changes.files = self.files_reached(&actor, &mut reach, &changes.inodes)?;
        let mut paths = history.paths(&[now, after], &principal.caller);
        let coming = planned.into_iter().filter(|(_, naming)| naming.inode != 0);
        paths.set_coming(coming.map(|(key, naming)| (InodeId(naming.inode), key)).collect());

        let mut unseen = 0;
        for (key, change) in &changes.names {
            if actor.uids(change).next().is_none() {
                continue;
            }
            if !sight.tells_change(&actor, key.0, change)? {
                unseen += 1;
                continue;
            }
            // The undo returns to the state before the first change.
            self.check_kept_before(&actor, key.0, change, now)?;
            undo_name(&actor, &mut plan, &mut paths, key, change)?;
        }
        plan.displaced.retain(|id| !changes.made_by(&actor, *id));
        self.keep_what_others_built(&actor, &mut plan, &mut paths, &changes)?;
        self.settle_names(&mut plan, &mut paths)?;
        let back: BTreeMap<u64, NameKey> = plan.names.iter().map(|(key, naming)| (naming.inode, key.clone())).collect();
        let whole = whole_again(&actor, &plan, &changes);
        for id in changes.ids() {
            let by = changes.uids(&actor, id);
            if by.is_empty() || changes.made_by(&actor, id) {
                continue;
            }
            if id != InodeId::ROOT {
                let named = history.names(id, now)?.into_iter().map(|named| (named.parent, named.name));
                let mut names = named.chain(back.get(&id.0).cloned()).peekable();
                if names.peek().is_none() {
                    continue;
                }
                let Some(name) = sight.first_listable(names, &by)? else {
                    unseen += 1;
                    continue;
                };
                paths.note_known(id, name);
            }
            self.undo_inode(&actor, &mut plan, &mut paths, id, &changes)?;
            if let Some(mtime_ns) = whole.get(&id) {
                let version = self.planes.meta.inode(id, Some(plan.now))?;
                // A user that may change a directory's names without owning it may not set its time.
                if principal.caller.uid == 0 || principal.caller.uid == version.uid {
                    plan.state(id, &version).mtime_ns = Some(*mtime_ns);
                }
            }
        }
        if unseen > 0 {
            plan.note_action(
                ActionKind::Left,
                b"",
                0,
                format!("{unseen} changes in directories that you may not list"),
            );
        }
        Ok(plan)
    }

    /// The changes that belong to the path, and the names that the undo changes.
    fn changes_reached(
        &self,
        actor: &Actor<'_>,
        reach: &mut Reach<'_>,
        sight: &mut Sight<'_>,
    ) -> Result<(Changed, BTreeMap<NameKey, Naming>), Fault> {
        let Interval { after, upto } = reach.interval;
        // Restored names extend the reach.
        loop {
            let holds = &mut |subject: &ChangeSubject| reach.holds(subject);
            let changed = self.planes.meta.history().changed((after, upto), None, CHANGES_MAX, holds)?;
            let changes = UndoChanges::of(&changed.subjects);
            let mut planned = BTreeMap::new();
            for (key, change) in changes.names {
                if let Some((naming, _)) = naming_of(actor, change)
                    && sight.tells_change(actor, key.0, change)?
                {
                    planned.insert(key, naming);
                }
            }
            if !reach.grow(actor, &planned, &changes.inodes)? {
                return Ok((changed, planned));
            }
        }
    }

    /// The changes of bytes of files that belong to the path.
    fn files_reached(
        &self,
        actor: &Actor<'_>,
        reach: &mut Reach<'_>,
        inodes: &BTreeMap<InodeId, &SubjectChange>,
    ) -> Result<BTreeMap<InodeId, FileEvents>, Fault> {
        let mut ids: BTreeSet<InodeId> = inodes.keys().copied().collect();
        for id in self.history.touched(reach.interval, &|_| true)?.0 {
            if reach.holds_inode(id)? {
                ids.insert(id);
            }
        }
        let events = |id: InodeId| Ok((id, self.file_events(actor, id, reach.interval, inodes.get(&id).copied())?));
        ids.into_iter().map(events).collect()
    }

    /// Plans the actor's changes of one file or directory: attributes, bytes, length and time.
    fn undo_inode(
        &self,
        actor: &Actor<'_>,
        plan: &mut Plan,
        paths: &mut Paths<'_>,
        id: InodeId,
        changes: &UndoChanges<'_>,
    ) -> Result<(), Fault> {
        let version = self.planes.meta.inode(id, Some(plan.now))?;
        if let Some(change) = changes.inodes.get(&id) {
            if change.revisions.iter().any(|revision| actor.made(revision)) {
                self.check_kept_before(actor, id, change, plan.now)?;
            }
            undo_attributes(actor, plan, paths, id, &version, change)?;
        }
        for change in changes.xattrs.get(&id).into_iter().flatten() {
            undo_xattr(actor, plan, paths, id, &version, change)?;
        }
        match changes.files.get(&id).filter(|_| version.kind() == FileKind::File) {
            Some(found) => self.undo_bytes(plan, paths, id, &version, found),
            None => Ok(()),
        }
    }

    /// Refuses if the state before the first of some changes has expired.
    fn check_kept_before(&self, actor: &Actor<'_>, id: InodeId, change: &SubjectChange, now: Hlc) -> Result<(), Fault> {
        let Some(first) = change.revisions.first() else { return Ok(()) };
        let at = first.stamp.previous().max(actor.after);
        self.planes.check_kept_naming(actor.caller, id, at, [now, at])
    }

    /// A file that the actor made and others changed keeps its last name.
    fn keep_what_others_built(
        &self,
        actor: &Actor<'_>,
        plan: &mut Plan,
        paths: &mut Paths<'_>,
        changes: &UndoChanges<'_>,
    ) -> Result<(), Fault> {
        let mut kept = Vec::new();
        for (key, naming) in plan.names.iter().filter(|(_, naming)| naming.expect.0 != 0) {
            let id = naming.expect;
            let gains = plan.names.values().any(|other| other.inode == id.0);
            let version = self.planes.meta.inode(id, Some(plan.now))?;
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
            let named = changes.inodes.get(&id).and_then(|change| by_others(change));
            let written = changes.files.get(&id).and_then(|found| {
                let others = found.events.iter().filter(|event| !event.by_actor);
                others.filter(|event| matches!(event.kind, EventKind::Bytes { .. })).map(|event| event.stamp).max()
            });
            let marked = changes.xattrs.get(&id).and_then(|all| all.iter().filter_map(attribute).max());
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
}

/// Directories whose names are restored and then all equal those before the actor, the only one to change them: with
/// their times of then.
fn whole_again(actor: &Actor<'_>, plan: &Plan, changes: &UndoChanges<'_>) -> BTreeMap<InodeId, i64> {
    let stays = |(key, change): &&(NameKey, &SubjectChange)| !plan.names.contains_key(key) && !is_as_before(change);
    let others: BTreeSet<InodeId> = changes.names.iter().filter(stays).map(|(key, _)| key.0).collect();
    let renamed: BTreeSet<InodeId> = plan.names.keys().map(|(directory, _)| *directory).collect();
    let time_of = |id: &InodeId| {
        let change = changes.inodes.get(id).filter(|change| change.revisions.iter().all(|by| actor.made(by)))?;
        match &change.before {
            Some((_, SubjectState::Inode(before))) => Some((*id, before.mtime_ns)),
            _ => None,
        }
    };
    renamed.difference(&others).filter_map(time_of).collect()
}

/// Changes of an inode that extend it beyond what its maker made.
fn builds(kind: VersionKind) -> bool {
    !matches!(kind, VersionKind::Unnamed | VersionKind::Undone | VersionKind::Restored)
}
