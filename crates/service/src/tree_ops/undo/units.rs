//! Names and attributes without the actor's changes: one subject of the history at a time.

use std::iter;

use frieze_base::{Fault, InodeId};
use frieze_hlc::Hlc;
use frieze_namespace::{ChangeSubject, Inode, Paths, SubjectChange, SubjectState};
use frieze_wire::edit::{ActionKind, NEW, Xattr};

use super::actor::Actor;
use crate::tree_ops::names::NameKey;
use crate::tree_ops::{Naming, Plan, attribute_words};

/// The newest version that is not the actor's, if the newest of all is the actor's: its stamp and value.
fn undone<'a, T>(
    actor: &Actor<'_>,
    change: &'a SubjectChange,
    value: impl Fn(&'a SubjectState) -> Option<T>,
) -> Option<(Hlc, Option<T>)> {
    let newest = change.revisions.last().filter(|newest| actor.made(newest))?;
    debug_assert!(newest.stamp > Hlc::ZERO);
    match change.revisions.iter().rev().find(|revision| !actor.made(revision)) {
        Some(other) => Some((other.stamp, other.state.as_ref().and_then(value))),
        None => Some(change.before.as_ref().map_or((Hlc::ZERO, None), |(since, state)| (*since, value(state)))),
    }
}

/// Inodes that lost a name by a change of the actor.
fn displaced<'a>(
    actor: &Actor<'_>,
    change: &'a SubjectChange,
    inode_of: impl Fn(&'a SubjectState) -> Option<InodeId>,
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

fn inode_of(state: &SubjectState) -> Option<InodeId> {
    match state {
        SubjectState::Entry { inode, .. } => Some(*inode),
        _ => None,
    }
}

/// True if a name has the inode that it had before the interval.
pub(super) fn is_as_before(change: &SubjectChange) -> bool {
    let before = change.before.as_ref().and_then(|(_, state)| inode_of(state));
    before == change.revisions.last().and_then(|last| last.state.as_ref()).and_then(inode_of)
}

/// The inode of a name before and after the undo, and the stamp of the version it returns to; `None` if the actor
/// changed nothing of it, or others changed it since, or it has that inode already.
pub(super) fn naming_of(actor: &Actor<'_>, change: &SubjectChange) -> Option<(Naming, Hlc)> {
    let now = change.revisions.last().and_then(|last| last.state.as_ref()).and_then(inode_of);
    let (older, to) = undone(actor, change, inode_of)?;
    let naming = Naming { expect: now.unwrap_or_default(), inode: to.unwrap_or_default().0 };
    debug_assert!(naming.inode & NEW == 0);
    (to != now).then_some((naming, older))
}

/// Plans a name that the actor changed.
pub(super) fn undo_name(
    actor: &Actor<'_>,
    plan: &mut Plan,
    paths: &mut Paths<'_>,
    (directory, name): &NameKey,
    change: &SubjectChange,
) -> Result<(), Fault> {
    let path = paths.of(*directory, name)?;
    let (newest, of_actor) = newest_of(actor, change);
    if undone(actor, change, inode_of).is_none() {
        let now = change.revisions.last().and_then(|last| last.state.as_ref()).and_then(inode_of);
        let told =
            plan.note_action(ActionKind::Left, &path, now.unwrap_or_default().0, "others changed the name since");
        (told.newest, told.older) = (newest.0, of_actor.0);
        plan.displaced.extend(displaced(actor, change, inode_of).filter(|id| Some(*id) != now));
        return Ok(());
    }
    let Some((naming, older)) = naming_of(actor, change) else { return Ok(()) };
    let (kind, about) = match (naming.expect.0, naming.inode) {
        (expect, 0) => (ActionKind::Unname, expect),
        (0, inode) => (ActionKind::Name, inode),
        (_, inode) => (ActionKind::Replace, inode),
    };
    let told = plan.note_action(kind, &path, about, "");
    (told.newest, told.older) = (newest.0, older.0);
    plan.names.insert((*directory, name.clone()), naming);
    Ok(())
}

pub(super) fn undo_xattr(
    actor: &Actor<'_>,
    plan: &mut Plan,
    paths: &mut Paths<'_>,
    id: InodeId,
    version: &Inode,
    change: &SubjectChange,
) -> Result<(), Fault> {
    let ChangeSubject::Xattr { name, .. } = &change.subject else { return Ok(()) };
    if !change.revisions.iter().any(|revision| actor.made(revision)) {
        return Ok(());
    }
    let value_of = |state: &SubjectState| match state {
        SubjectState::Xattr(value) => Some(value.clone()),
        _ => None,
    };
    let path = paths.of_inode(id)?;
    let what = attribute_words(name);
    let (newest, of_actor) = newest_of(actor, change);
    let Some((older, value)) = undone(actor, change, value_of) else {
        let told = plan.note_action(ActionKind::Left, &path, id.0, format!("others changed {what} since"));
        (told.newest, told.older) = (newest.0, of_actor.0);
        return Ok(());
    };
    let now = change.revisions.last().and_then(|last| last.state.as_ref()).and_then(value_of);
    if now != value {
        let told = plan.note_action(ActionKind::Attributes, &path, id.0, what);
        (told.newest, told.older) = (newest.0, older.0);
        plan.state(id, version).xattrs.push(Xattr { name: name.clone(), value });
    }
    Ok(())
}

/// Mode, owner, group and access time: each a unit, changed where its value changed.
pub(super) fn undo_attributes(
    actor: &Actor<'_>,
    plan: &mut Plan,
    paths: &mut Paths<'_>,
    id: InodeId,
    version: &Inode,
    change: &SubjectChange,
) -> Result<(), Fault> {
    let of = |state: &SubjectState| match state {
        SubjectState::Inode(inode) => Some([inode.mode.into(), inode.uid.into(), inode.gid.into(), inode.atime_ns]),
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
        // The first value counts as set by the maker of the inode, or before the interval.
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
            let told = plan.note_action(ActionKind::Left, &path, id.0, format!("others changed the {name} since"));
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
        let told = plan.note_action(ActionKind::Attributes, &path, id.0, words);
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
