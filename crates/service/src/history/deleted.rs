//! Queries about deleted names: when and by whose request each was removed, and how much space its history uses.
//!
//! Guarantees: a name that the caller could not have listed then, or could not list now, is not in the answer. Leaves
//! to others: the events in between (`activity`).

use std::collections::BTreeSet;

use frieze_base::{Fault, InodeId, NAME_BYTES_MAX, PATH_BYTES_MAX, Reason};
use frieze_hlc::Hlc;
use frieze_namespace::{EntryVersion, MAY_READ, NoReadSet, PlaceName, Resolved, TreeAt};
use frieze_planes::Principal;
use frieze_wire::message::{FileKind, View};
use frieze_wire::timeline::{
    Deleted, DeletedObject, DeletedReply, LastExisted, LastExistedReply, Usage, UsageDirectory, UsageReply,
};
use frieze_wire::txn::{Caller, Target};

use crate::history::History;
use crate::read::page;

/// Versions of names that one query reads for one path.
const VERSIONS_BACK_MAX: usize = 100_000;

/// The last resolution of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LastResolution {
    /// Newest instant.
    at: Hlc,
    /// The name that was removed just after: its directory, its position in the path, its inode. `None`: none was.
    ended_by: Option<(InodeId, usize, InodeId)>,
}

/// A walk backwards in time along one path.
struct Back<'a> {
    history: &'a History,
    names: &'a [&'a [u8]],
    looked_at: usize,
}

impl Back<'_> {
    /// The newest instant in `span` at which the path continues from `directory` with name number `depth`.
    fn search(&mut self, directory: InodeId, depth: usize, span: (Hlc, Hlc)) -> Result<Option<LastResolution>, Fault> {
        let name = self.names[depth];
        let (earliest, mut at) = span;
        let mut ended_by = None;
        while at >= earliest {
            self.looked_at += 1;
            if self.looked_at > VERSIONS_BACK_MAX {
                let words =
                    format!("the names on the path changed more than {VERSIONS_BACK_MAX} times: name an instant");
                return Err(Fault::new(Reason::Overloaded, words));
            }
            let Some(EntryVersion { from, state }) =
                self.history.planes.meta.history().name_version(directory, name, at)?
            else {
                return Ok(None);
            };
            if let Some((inode, kind)) = state {
                let here = LastResolution { at, ended_by: ended_by.map(|()| (directory, depth, inode)) };
                if depth + 1 == self.names.len() {
                    return Ok(Some(here));
                }
                if kind == FileKind::Directory
                    && let Some(below) = self.search(inode, depth + 1, (from.max(earliest), at))?
                {
                    // The removal that came first counts: one below, or if there is none, the one here.
                    return Ok(Some(LastResolution { ended_by: below.ended_by.or(here.ended_by), ..below }));
                }
            }
            if from <= earliest {
                break;
            }
            at = from.previous();
            ended_by = Some(());
        }
        Ok(None)
    }
}

impl History {
    pub(crate) fn last_existed(&self, principal: &Principal, ask: &LastExisted) -> Result<LastExistedReply, Fault> {
        let names: Vec<&[u8]> = ask.path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).collect();
        let plain = |name: &&[u8]| *name != b"." && *name != b".." && name.len() <= NAME_BYTES_MAX;
        if ask.path.len() > PATH_BYTES_MAX || names.is_empty() || !names.iter().all(plain) {
            return Err(Fault::new(Reason::InvalidArgument, "a path of plain names from the root is needed"));
        }
        let now = self.planes.clock.newest();
        self.planes.answer(View::exact(now))?;
        let target = Target { follow: false, ..Target::path(ask.path.clone()) };
        let refused = match self.planes.resolve_at(principal, &target, now) {
            Ok(found) => {
                let mut cut = self.planes.meta.history().tree_at(now, &principal.caller);
                let named = PlaceName { parent: found.parent, name: found.name };
                let was = self.deleted_object(&mut cut, &named, found.id)?.ok_or(Reason::AccessDenied)?;
                return Ok(LastExistedReply { at: 0, was, sessions: Vec::new() });
            }
            Err(fault) if fault.reason == Reason::NotFound => fault,
            Err(fault) => return Err(fault),
        };
        let found = self.last_led(&names, (self.planes.earliest(), now))?;
        let Some((found, ended_by)) = found.and_then(|found| Some((found, found.ended_by?))) else {
            return Err(refused);
        };
        let then = match self.planes.resolve_at(principal, &target, found.at) {
            // A caller that could not have looked does not learn whether there was such a name.
            Err(fault) if fault.reason == Reason::AccessDenied => return Err(refused),
            then => then?,
        };
        let mut cut = self.planes.meta.history().tree_at(found.at, &principal.caller);
        let named = PlaceName { parent: then.parent, name: then.name };
        let mut was = self.deleted_object(&mut cut, &named, then.id)?.ok_or(refused)?;
        let (directory, depth, inode) = ended_by;
        let stamp = found.at.next();
        self.ended(&mut was, &principal.caller, directory, inode, stamp)?;
        if !was.moved_to.is_empty() {
            let below = names[depth + 1..].iter().flat_map(|name| [b"/", *name].concat());
            was.moved_to.extend(below.collect::<Vec<u8>>());
        }
        Ok(LastExistedReply { at: found.at.0, sessions: self.infos(principal, [was.session].into_iter())?, was })
    }

    /// The newest instant in `span` at which the names resolved, from the root on. Rights are not checked.
    fn last_led(&self, names: &[&[u8]], span: (Hlc, Hlc)) -> Result<Option<LastResolution>, Fault> {
        Back { history: self, names, looked_at: 0 }.search(InodeId::ROOT, 0, span)
    }

    /// The last resolution of a path in `span`; `None` if it never resolved there, or where the caller may not look.
    ///
    /// # Errors
    /// `Overloaded` if the names on the path changed more often than a query reads; those of the store.
    pub(crate) fn last_resolved(
        &self,
        principal: &Principal,
        target: &Target,
        span: (Hlc, Hlc),
    ) -> Result<Option<Resolved>, Fault> {
        let names: Vec<&[u8]> = target.path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).collect();
        if target.base != InodeId::ROOT.0 || names.is_empty() {
            return Ok(None);
        }
        let Some(found) = self.last_led(&names, span)? else { return Ok(None) };
        Ok(self.planes.resolve_at(principal, target, found.at).ok())
    }

    pub(crate) fn deleted(&self, principal: &Principal, ask: &Deleted) -> Result<DeletedReply, Fault> {
        self.planes.answer(ask.view)?;
        let at = ask.view.instant();
        let found = self.planes.resolve(principal, &ask.target, at, &NoReadSet)?;
        if !found.inode.is_directory() {
            return Err(Reason::NotDirectory.into());
        }
        self.planes.check(principal, found.id, at, MAY_READ)?;
        let upto = at.unwrap_or(Hlc::MAX);
        let max = page(ask.count_max);
        let (mut went, mut next) = (Vec::new(), Vec::new());
        self.planes.meta.history().visit_names(found.id, &ask.after, upto, &mut |name, versions| {
            if let [.., EntryVersion { state: Some((inode, _)), .. }, EntryVersion { from, state: None }] = versions {
                if went.len() == max {
                    next = went.last().map_or(Vec::new(), |(name, _, _): &(Vec<u8>, _, _)| name.clone());
                    return false;
                }
                went.push((name.to_vec(), *inode, *from));
            }
            true
        })?;
        let mut names = Vec::with_capacity(went.len());
        for (name, inode, stamp) in went {
            let mut cut = self.planes.meta.history().tree_at(stamp.previous(), &principal.caller);
            let named = PlaceName { parent: found.id, name };
            if let Some(mut was) = self.deleted_object(&mut cut, &named, inode)? {
                self.ended(&mut was, &principal.caller, found.id, inode, stamp)?;
                names.push(was);
            }
        }
        let sessions = self.infos(principal, names.iter().map(|name| name.session))?;
        Ok(DeletedReply { sessions, names, next })
    }

    /// A name as it was, if the caller may learn it.
    fn deleted_object(
        &self,
        cut: &mut TreeAt<'_>,
        named: &PlaceName,
        id: InodeId,
    ) -> Result<Option<DeletedObject>, Fault> {
        if [id, named.parent].into_iter().any(|id| self.planes.meta.check_kept(id, Some(cut.at())).is_err()) {
            return Ok(None);
        }
        let inode = cut.inode(id)?;
        let side = self.side(cut, Some(named), id, inode.as_deref(), &mut false)?;
        Ok(side.map(|was| DeletedObject { was, stamp: 0, session: 0, uid: 0, moved_to: Vec::new() }))
    }

    /// Records the session and user that removed the name of `inode` from `directory` at `stamp`, and its new place.
    fn ended(
        &self,
        gone: &mut DeletedObject,
        caller: &Caller,
        directory: InodeId,
        inode: InodeId,
        stamp: Hlc,
    ) -> Result<(), Fault> {
        let history = self.planes.meta.history();
        let (session, uid) = history.author(directory, stamp)?;
        (gone.stamp, gone.session, gone.uid) = (stamp.0, session.0, uid);
        let before: BTreeSet<PlaceName> = history.names(inode, stamp.previous())?.into_iter().collect();
        let after = history.names(inode, stamp)?;
        if let Some(named) = after.iter().find(|named| !before.contains(named)) {
            let mut cut = history.tree_at(stamp, caller);
            if cut.may_list(named.parent)?
                && let Some(path) = cut.path(named.parent)?
            {
                gone.moved_to = [&path[..], b"/", &named.name].concat();
            }
        }
        Ok(())
    }

    pub(crate) fn usage(&self, principal: &Principal, ask: &Usage) -> Result<UsageReply, Fault> {
        self.planes.answer(ask.view)?;
        let at = ask.view.instant();
        let found = self.planes.resolve(principal, &ask.target, at, &NoReadSet)?;
        let mut reply = UsageReply::default();
        if !found.inode.is_directory() {
            self.add_file(&mut reply, found.id, true)?;
            return Ok(reply);
        }
        self.planes.check(principal, found.id, at, MAY_READ)?;
        let max = page(ask.count_max);
        let mut entries = Vec::new();
        self.planes.meta.history().visit_names(found.id, &ask.after, Hlc::MAX, &mut |name, versions| {
            if entries.len() >= max {
                reply.next = entries.last().map_or(Vec::new(), |(name, _): &(Vec<u8>, _)| name.clone());
                return false;
            }
            entries.push((name.to_vec(), versions.to_vec()));
            true
        })?;
        let mut counted = BTreeSet::new();
        for (name, versions) in entries {
            // Every inode that the name ever had; an inode with another place now is counted there. From now back: an
            // inode whose name was removed and came back is counted as present.
            for (position, version) in versions.iter().enumerate().rev() {
                let Some((inode, kind)) = version.state.filter(|(inode, _)| counted.insert(*inode)) else { continue };
                let gone_at = versions.get(position + 1).map(|next| next.from);
                if !self.belongs(found.id, &name, inode)? {
                    counted.remove(&inode);
                } else if kind == FileKind::Directory {
                    let at = gone_at.map_or(0, |gone_at| gone_at.previous().0);
                    reply.directories.push(UsageDirectory { name: name.clone(), inode: inode.0, at });
                } else {
                    self.add_file(&mut reply, inode, gone_at.is_none())?;
                }
            }
        }
        Ok(reply)
    }

    /// True if this is where an inode is counted: the first of its names, or the last one it had.
    fn belongs(&self, directory: InodeId, name: &[u8], inode: InodeId) -> Result<bool, Fault> {
        let history = self.planes.meta.history();
        let is_this = |named: &PlaceName| named.parent == directory && named.name == name;
        if let Some(first) = history.names(inode, Hlc::MAX)?.first() {
            return Ok(is_this(first));
        }
        let version = self.planes.meta.inode(inode, None)?;
        let Some(orphaned) = version.orphaned() else { return Ok(false) };
        Ok(history.names(inode, orphaned.previous())?.first().is_some_and(is_this))
    }

    fn add_file(&self, reply: &mut UsageReply, id: InodeId, is_there: bool) -> Result<(), Fault> {
        let written = self.files.with_log_of(id, |log| log.written_bytes(id))?;
        let live = match is_there {
            true => {
                let inode = self.planes.meta.inode(id, None)?;
                self.read.attr(id, &inode, frieze_wire::message::View::NOW)?.0.bytes_live
            }
            false => 0,
        };
        reply.live_bytes += live;
        reply.history_bytes += written.saturating_sub(live);
        *(if is_there { &mut reply.files } else { &mut reply.deleted_files }) += 1;
        Ok(())
    }
}
