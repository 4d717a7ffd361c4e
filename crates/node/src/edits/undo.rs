//! Undo: what an actor did goes, unit by unit.
//!
//! A unit is a name, an attribute, a length, or a range of bytes. One whose newest version is the actor's gets its newest
//! version by anybody else; one that others changed later is left and told, with both versions; so is what others have
//! built on: a directory the actor made and others filled, a file that others wrote to.

mod bytes;
mod units;

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::{Fault, InodeId, Reason, SessionId};
use frieze_hlc::Hlc;
use frieze_namespace::{Cut, Revision, Subject, SubjectChange};
use frieze_wire::edit::{ActionKind, EditKind, Undo};
use frieze_wire::message::{FileKind, VersionKind, View};
use frieze_wire::txn::Caller;

use self::bytes::{EventKind, FileEvents};
use self::units::{undo_attributes, undo_name, undo_xattr};
use super::Plan;
use super::names::Paths;
use crate::engine::Engine;
use crate::session::Principal;
use crate::timeline::{Interval, Scope};

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
}

/// Changes of an inode that make it more than its maker made it.
fn builds(kind: VersionKind) -> bool {
    !matches!(kind, VersionKind::Unnamed | VersionKind::Undone | VersionKind::Restored)
}

/// True if the actor made the inode in the interval.
fn made_by(actor: &Actor<'_>, change: &SubjectChange) -> bool {
    change.before.is_none() && change.revisions.first().is_some_and(|first| actor.made(first))
}
