//! The units that an undo of one path covers.
//!
//! A unit belongs to a path if its file or directory lay at or below the path at the start or at the end of the
//! interval, or, if it lost its last name in between, when it lost it; or if it gets back a name that belongs to the
//! path. A rename is one change: if one of its names belongs to the path, so does the other, wherever it lies.

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::{FastMap, Fault, InodeId, Reason};
use frieze_hlc::Hlc;
use frieze_metadata::NameHistory;
use frieze_namespace::{ChangeSubject, PlaceName, SubjectChange, TreeAt};
use frieze_planes::Principal;
use frieze_wire::message::VersionKind;
use frieze_wire::txn::{Caller, Target};

use super::actor::Actor;
use crate::history::tree_pair::Interval;
use crate::tree_ops::names::NameKey;
use crate::tree_ops::{Naming, TreeOps};

/// The objects below a path, or all objects.
pub(super) struct Reach<'a> {
    history: NameHistory<'a>,
    pub(super) interval: Interval,
    /// The tree at the end of the interval and at its start.
    ends: [TreeAt<'a>; 2],
    /// The inodes of the path, and those that get a name back; `None`: everything belongs.
    roots: Option<BTreeSet<InodeId>>,
    /// Names that belong although their directory may not.
    names: BTreeSet<NameKey>,
    known: FastMap<InodeId, bool>,
}

/// A caller without limits: a later check decides what the answer may reveal.
static ANYBODY: Caller = Caller { uid: 0, gid: 0, groups: Vec::new() };

impl TreeOps {
    /// The inodes of `target` at the ends of the interval; if it had none, its last one.
    ///
    /// # Errors
    /// As [`Planes::resolve`] now, if the path had no inode in the interval.
    pub(super) fn reach(&self, principal: &Principal, target: &Target, interval: Interval) -> Result<Reach<'_>, Fault> {
        let history = self.planes.meta.history();
        let Interval { after, upto } = interval;
        let ends = [upto, after].map(|at| history.tree_at(at, &ANYBODY));
        let mut reach =
            Reach { history, interval, ends, roots: None, names: BTreeSet::new(), known: FastMap::default() };
        if target.base == InodeId::ROOT.0 && target.path.iter().all(|&byte| byte == b'/') {
            return Ok(reach);
        }
        let now = self.planes.resolve_at(principal, target, upto);
        let then = match after {
            Hlc::ZERO => Err(Reason::NotFound.into()),
            after => self.planes.resolve_at(principal, target, after),
        };
        let found = match (now, then) {
            (Err(fault), _) if fault.reason != Reason::NotFound => return Err(fault),
            (Err(fault), Err(_)) => {
                vec![self.history.last_resolved(principal, target, (after.next(), upto))?.ok_or(fault)?]
            }
            (now, then) => now.into_iter().chain(then).collect(),
        };
        for found in &found {
            // The names of the path itself lie in directories above it.
            let named = [upto, after].map(|at| history.names(found.id, at));
            let named = named.into_iter().collect::<Result<Vec<_>, _>>()?.concat();
            reach.names.extend(named.into_iter().map(|PlaceName { parent, name }| (parent, name)));
            if found.id != InodeId::ROOT {
                reach.names.insert((found.parent, found.name.clone()));
            }
        }
        reach.roots = Some(found.iter().map(|found| found.id).collect());
        Ok(reach)
    }
}

impl Reach<'_> {
    /// True if the changes of the subject belong to the path.
    pub(super) fn holds(&mut self, subject: &ChangeSubject) -> Result<bool, Fault> {
        if self.roots.is_none() {
            return Ok(true);
        }
        if let ChangeSubject::Entry { parent, name } = subject
            && self.names.contains(&(*parent, name.clone()))
        {
            return Ok(true);
        }
        self.holds_inode(subject.inode())
    }

    /// True if a file or directory belongs to the path.
    pub(super) fn holds_inode(&mut self, id: InodeId) -> Result<bool, Fault> {
        if let Some(known) = self.knows(id)? {
            return Ok(known);
        }
        let mut answer = false;
        for parent in self.last_parents(id)? {
            answer = answer || self.contained_last(parent)?;
        }
        self.known.insert(id, answer);
        Ok(answer)
    }

    /// As [`Reach::holds_inode`] for a deleted directory that an object lay in: walks up, as far as directories are
    /// deleted.
    fn contained_last(&mut self, directory: InodeId) -> Result<bool, Fault> {
        let (mut way, mut here) = (BTreeSet::new(), directory);
        let answer = loop {
            if let Some(known) = self.knows(here)? {
                break known;
            }
            match self.last_parents(here)?.first() {
                Some(&parent) if way.insert(here) => here = parent,
                _ => break false,
            }
        };
        self.known.extend(way.into_iter().map(|id| (id, answer)));
        Ok(answer)
    }

    /// Whether an inode belongs to the path, if an earlier search or one of the ends decides it.
    fn knows(&mut self, id: InodeId) -> Result<Option<bool>, Fault> {
        let Some(roots) = &self.roots else { return Ok(Some(true)) };
        if roots.contains(&id) {
            return Ok(Some(true));
        }
        if let Some(&known) = self.known.get(&id) {
            return Ok(Some(known));
        }
        for end in &mut self.ends {
            let Some(inode) = end.inode(id)? else { continue };
            let directories = match inode.is_directory() {
                true => vec![id],
                false => end.names(id)?.into_iter().map(|named| named.parent).collect(),
            };
            for directory in directories {
                if end.is_below(directory, &|id| roots.contains(&id))? {
                    self.known.insert(id, true);
                    return Ok(Some(true));
                }
            }
        }
        Ok(None)
    }

    /// The directories with the last names of an inode that lost them in the interval.
    fn last_parents(&mut self, id: InodeId) -> Result<Vec<InodeId>, Fault> {
        let last = self.ends[0].last_names(id)?.filter(|(last, _)| *last >= self.interval.after);
        Ok(last.map_or(Vec::new(), |(_, names)| names.into_iter().map(|named| named.parent).collect()))
    }

    /// Adds the inodes of names that change, and the other names of renames. True if the reach grew: the changes have
    /// to be read again.
    pub(super) fn grow(
        &mut self,
        actor: &Actor<'_>,
        planned: &BTreeMap<NameKey, Naming>,
        inodes: &BTreeMap<InodeId, &SubjectChange>,
    ) -> Result<bool, Fault> {
        if self.roots.is_none() {
            return Ok(false);
        }
        let (mut coming, mut named) = (Vec::new(), BTreeSet::new());
        for naming in planned.values() {
            let back = InodeId(naming.inode);
            if naming.inode != 0 && !self.holds_inode(back)? {
                coming.push(back);
            }
            for id in [naming.expect, back] {
                let Some(change) = inodes.get(&id) else { continue };
                for revision in change.revisions.iter().filter(|revision| actor.made(revision)) {
                    let did = |kind| revision.causes.iter().any(|cause| cause.kind == kind);
                    if did(VersionKind::Named) && did(VersionKind::Unnamed) {
                        let before = self.history.names(id, revision.stamp.previous())?;
                        let after = self.history.names(id, revision.stamp)?;
                        let (gone, come) = (before.iter(), after.iter());
                        let moved = gone.filter(|name| !after.contains(name));
                        let moved = moved.chain(come.filter(|name| !before.contains(name)));
                        named.extend(moved.map(|PlaceName { parent, name }| (*parent, name.clone())));
                    }
                }
            }
        }
        let mut grown = !coming.is_empty();
        for (parent, name) in named {
            let subject = ChangeSubject::Entry { parent, name: name.clone() };
            if !self.holds(&subject)? {
                grown = true;
                self.names.insert((parent, name));
            }
        }
        if let Some(roots) = &mut self.roots {
            roots.extend(coming);
        }
        // An inode outside the path may belong to it now.
        self.known.retain(|_, known| *known);
        Ok(grown)
    }
}
