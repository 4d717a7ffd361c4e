//! Expiring history: which inodes lay below a path at an instant, what they lose, and the transaction that records it.
//!
//! Guarantees: only the owner of a path or the superuser expires history, and only history that belongs to him; reads
//! at or after the instant answer as before; reads before it are refused from the transaction on, however much space is
//! freed yet. A snapshot protects what its maker owns from the expiry of any user, and everything if the superuser made
//! it; it protects nothing if the expiry goes through snapshots. The answer lists each snapshot that showed expired
//! history, and what becomes of it. Leaves to others: refusing (`namespace`), freeing space (`gc`).
//!
//! The tree at the instant decides what lies below a path: an object moved in by then belongs to it with all of its
//! history, an object moved out by then does not, an object deleted by then belongs to the directory that it was
//! deleted from. The tree of a closed instant never changes, so the plan cannot become stale.

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::{Fault, InodeId, Reason};
use frieze_hlc::{Hlc, format_instant};
use frieze_metadata::InodeHome;
use frieze_namespace::{
    ExpiredInodes, Expiries, Expiry, FORGET_INODES_MAX, Inode, NoReadSet, Owners, Pins, SnapshotFates, TreeOwners,
    pack_owners,
};
use frieze_planes::Principal;
use frieze_wire::forget::{Forget, ForgetReply, ForgottenFile, ForgottenSession, Horizon, encode_ids};
use frieze_wire::frame::FrameHeader;
use frieze_wire::message::{FileKind, View};
use frieze_wire::txn::{Caller, Op, Transaction};

use crate::upkeep::Upkeep;
use crate::write::check_numbered;

/// Files that an answer names.
const BIGGEST_MAX: usize = 10;

/// What lay below a path at an instant.
#[derive(Default)]
struct Below {
    /// By number; true if the inode had lost its last name by then and has had none since.
    inodes: BTreeMap<InodeId, bool>,
    directories: BTreeSet<InodeId>,
    /// When each was made.
    born: BTreeMap<InodeId, Hlc>,
    /// The users whose snapshots protect it.
    owners: Owners,
    /// Number of inodes left as they are: owned by other users, or with names outside the path.
    left: u64,
}

impl Upkeep {
    pub(crate) fn forget(
        &self,
        principal: &Principal,
        header: &FrameHeader,
        ask: &Forget,
    ) -> Result<ForgetReply, Fault> {
        if !ask.dry_run {
            self.planes.check_changeable()?;
            check_numbered(header)?;
        }
        let before = Hlc(ask.before);
        self.planes.answer(View::exact(before))?;
        let now = self.planes.clock.now();
        self.planes.answer(View::exact(now))?;
        let found = match self.planes.resolve(principal, &ask.target, None, &NoReadSet) {
            Err(fault) if fault.reason == Reason::NotFound => self.planes.resolve_at(principal, &ask.target, before)?,
            found => found?,
        };
        if principal.caller.uid != 0 && principal.caller.uid != found.inode.uid {
            return Err(Fault::new(
                Reason::NotPermitted,
                "only the owner of a file or directory, or the superuser, forgets its history",
            ));
        }
        let path = self.planes.path_of(found.id, &[now, before])?;
        let mut reply = ForgetReply { before: before.0, ..ForgetReply::default() };
        // One at a time, and no pass counts what is counted here.
        let _alone = self.thinning.lock();
        let progress = self.planes.gc.progress();
        let _under_way = progress.begin();
        let mut below = self.below(found.id, before, &principal.caller)?;
        reply.left = below.left;
        for (id, nameless) in
            below.inodes.iter_mut().filter(|(id, nameless)| **nameless && !below.directories.contains(id))
        {
            // A session that has the file open continues to read it: its present state stays, until the next expiry.
            if self.sessions.opened.holds(*id) {
                *nameless = false;
                reply.open += 1;
            }
        }
        // Three steps for each inode: find it, compute what it can lose, free that.
        progress.expect(3 * below.inodes.len() as u64);
        let wanted = self.losing(&below, before, ask.with_snapshots)?;
        let pick = |nameless: bool| -> Vec<InodeId> {
            wanted.iter().filter(|id| below.inodes[id] == nameless).copied().collect()
        };
        let (named, nameless) = (pick(false), pick(true));
        let of = ExpiredInodes { named: &named, nameless: &nameless, owners: &below.owners };
        let through = ask.with_snapshots;
        let sessions = {
            let horizons = self.as_if(found.id, (before, now), through, of);
            let is_about = |id: InodeId, home: InodeHome| {
                let in_directory = !home.is_directory && below.directories.contains(&home.parent);
                in_directory || below.inodes.contains_key(&id)
            };
            let everything = found.id == InodeId::ROOT && principal.caller.uid == 0;
            self.without_trace(&horizons, before, principal, if everything { None } else { Some(&is_about) })?
        };
        reply.sessions = sessions.len() as u64;
        let horizons = match ask.dry_run {
            true => self.as_if(found.id, (before, now), through, of),
            false => {
                // No clone, restore or undo that was planned on history expiring now may run after it.
                let alone = self.forgetting.write();
                reply.stamp =
                    self.set_horizon(principal, header, (found.id, &path, before), (through, sessions), of)?;
                // Read while no edit runs: `needs` notices one that was planned on a snapshot deleted meanwhile.
                let horizons = self.planes.meta.horizons();
                drop(alone);
                horizons
            }
        };
        let needs = self.files.needs(&horizons)?;
        if !ask.dry_run {
            // The caller may rely on the answer, so the transaction is durable before it.
            self.planes.flush()?;
        }
        let mut state = self.planes.gc.lock();
        // One after the other: the expired ranges of all of them together may not fit into memory.
        let mut biggest: Vec<(u64, InodeId, u64)> = Vec::new();
        let mut fate = SnapshotFates::of(self.planes.meta.snapshots(), before);
        for (&id, &deleted) in &below.inodes {
            let dead = self.files.dead_of(&horizons, &needs, id)?;
            progress.step();
            reply.held_bytes += dead.held_bytes;
            fate.add(&horizons, id, below.born.get(&id).copied().unwrap_or_default(), &dead.held_by_pin);
            if dead.graves.is_empty() {
                continue;
            }
            let (bytes, writes) = (dead.bytes(), dead.graves.len() as u64);
            *(if deleted { &mut reply.deleted_files } else { &mut reply.files }) += 1;
            reply.writes += writes;
            reply.bytes += bytes;
            if bytes > 0 {
                let at = biggest.partition_point(|(more, ..)| *more >= bytes);
                biggest.insert(at, (bytes, id, writes));
                biggest.truncate(BIGGEST_MAX);
            }
            if !ask.dry_run {
                self.planes.mark_dead(&mut state, id, &dead)?;
            }
        }
        if !ask.dry_run {
            // No read may return expired bytes from an image either, even after a crash.
            self.planes.data.device().forget_images(below.inodes.keys().copied())?;
        }
        reply.biggest = self.biggest(&below, &biggest, before)?;
        (reply.shown_by, reply.more_snapshots) = fate.snapshot_losses();
        let holding = reply.shown_by.iter().filter(|snapshot| snapshot.holds);
        reply.snapshots = holding.map(|snapshot| snapshot.name.clone()).collect();
        if !ask.dry_run {
            state.expiries.forgettings = self.planes.expiries().forgettings;
            self.planes.gc.note(&state);
            reply.freed_bytes = self.planes.give_back(&mut state)?;
            reply.waiting_bytes = state.waiting_bytes();
            reply.trouble = state.trouble().map_or(String::new(), |fault| fault.message.clone());
        }
        Ok(reply)
    }

    /// Writes the horizon into the log, unless it adds nothing. Returns the stamp of the first transaction, 0 for none.
    fn set_horizon(
        &self,
        principal: &Principal,
        header: &FrameHeader,
        (root, path, before): (InodeId, &[u8], Hlc),
        (with_snapshots, mut sessions): (bool, Vec<ForgottenSession>),
        ExpiredInodes { named, nameless, owners }: ExpiredInodes<'_>,
    ) -> Result<u64, Fault> {
        let mut first = 0;
        let all: Vec<(InodeId, bool)> = {
            let both = named.iter().map(|id| (*id, false)).chain(nameless.iter().map(|id| (*id, true)));
            both.collect()
        };
        let mut parts: Vec<&[(InodeId, bool)]> = all.chunks(FORGET_INODES_MAX).collect();
        if parts.is_empty() && !sessions.is_empty() {
            parts.push(&[]);
        }
        for (number, part) in parts.into_iter().enumerate() {
            let ids =
                |wanted: bool| encode_ids(part.iter().filter(|(_, nameless)| *nameless == wanted).map(|(id, _)| id.0));
            let op = Horizon {
                before: before.0,
                root: root.0,
                path: path.to_vec(),
                named: ids(false),
                nameless: ids(true),
                with_snapshots,
                owners: pack_owners(part.iter().map(|(id, _)| *id), owners),
                sessions: std::mem::take(&mut sessions),
            };
            let transaction = Transaction {
                session: header.session.0,
                // A retry adds nothing: only the first transaction has the number of the request.
                seq: if number == 0 { header.seq.0 } else { 0 },
                acked: header.acked.0,
                caller: principal.caller.clone(),
                must_see: header.hlc.0,
                op: Some(Op::Forget(op)),
            };
            let outcome = self.planes.meta.execute(transaction, None)?.into_result()?;
            first = if number == 0 { outcome.stamp } else { first };
        }
        Ok(first)
    }

    /// The history that would expire, for a dry run.
    fn as_if(&self, root: InodeId, (before, now): (Hlc, Hlc), through: bool, of: ExpiredInodes<'_>) -> Expiries {
        let forgetting = Expiry { before, pins: Pins::default(), through, root, path: Vec::new(), uid: 0 };
        self.planes.meta.horizons_after(now.next(), forgetting, of)
    }

    /// The directories below, and the files that can lose history, except those whose history has all expired already.
    fn losing(&self, below: &Below, before: Hlc, through: bool) -> Result<Vec<InodeId>, Fault> {
        let mut wanted = Vec::new();
        for (&id, &nameless) in &below.inodes {
            self.planes.gc.progress().step();
            let horizon = self.planes.meta.inode_horizon(id);
            let is_known = horizon.is_wholly_expired
                || (!nameless && horizon.forgotten.is_some_and(|forgotten| forgotten.before >= before.0));
            // History that snapshots pinned at an earlier expiry can still expire through them.
            let is_pinned = through && horizon.pins.first().is_some_and(|pin| *pin < before);
            if is_known && !is_pinned {
                continue;
            }
            if below.directories.contains(&id) || self.planes.meta.is_removal_expired(id) {
                wanted.push(id);
                continue;
            }
            // As if only this file expired, and no other file needed its bytes.
            let mut alone = Expiries::default();
            let forgetting = Expiry { before, pins: Pins::default(), through, root: id, path: Vec::new(), uid: 0 };
            let (ids, owners) = ([id], Owners::new());
            let (named, gone): (&[InodeId], &[InodeId]) = if nameless { (&[], &ids) } else { (&ids, &[]) };
            alone.add(before, forgetting, ExpiredInodes { named, nameless: gone, owners: &owners });
            let held_by_snapshots = through && !horizon.pins.is_empty();
            if held_by_snapshots || !self.files.dead_of(&alone, &BTreeMap::new(), id)?.graves.is_empty() {
                wanted.push(id);
            }
        }
        Ok(wanted)
    }

    /// The inodes that lay below `root` at `at` and belong to the caller.
    fn below(&self, root: InodeId, at: Hlc, caller: &Caller) -> Result<Below, Fault> {
        let history = self.planes.meta.history();
        let version = |id: InodeId| match self.planes.meta.inode(id, Some(at)) {
            Err(fault) if fault.reason == Reason::NotFound => Ok(None),
            found => found.map(Some),
        };
        let Some(top) = version(root)? else {
            return Err(Fault::new(
                Reason::InvalidArgument,
                format!("it was made after {}: there is nothing before that to forget", format_instant(at)),
            ));
        };
        // A restore may have undone a deletion of that time.
        let gone = |id: InodeId, then: &Inode| match then.links {
            0 => {
                let newest = self.planes.meta.inode(id, None)?;
                Ok::<bool, Fault>(newest.orphaned().is_some_and(|since| since <= at))
            }
            _ => Ok(false),
        };
        // Most inodes that ever had a name here have no history left. A caller that is not the superuser learns how
        // many of the rest were not his.
        let is_done = |id: InodeId, kind: FileKind| {
            caller.uid == 0
                && kind != FileKind::Directory
                && self.planes.meta.is_wholly_expired(id)
                && self.planes.data.device().log().is_wholly_dead(id)
        };
        let mut below = Below::default();
        below.inodes.insert(root, gone(root, &top)?);
        below.born.insert(root, top.born);
        let mut theirs = TreeOwners::default();
        theirs.own(root, &top);
        let mut looked_at: BTreeSet<InodeId> = [root].into();
        let mut linked: Vec<InodeId> = Vec::new();
        let mut todo = Vec::new();
        if top.is_directory() {
            below.directories.insert(root);
            todo.push(root);
        }
        while let Some(directory) = todo.pop() {
            let mut found: BTreeSet<InodeId> = BTreeSet::new();
            history.visit_names(directory, b"", at, &mut |_, versions| {
                let named = versions.iter().filter_map(|version| version.state);
                found.extend(named.filter(|(id, kind)| !is_done(*id, *kind)).map(|(id, _)| id));
                true
            })?;
            for id in found {
                let Some(inode) = version(id)? else { continue };
                theirs.lay_in(directory, id, &inode);
                if looked_at.contains(&id) {
                    continue;
                }
                // Counted from the last of its directories only.
                let many = !inode.is_directory() && inode.links > 1;
                if !many && inode.parent != directory {
                    continue;
                }
                looked_at.insert(id);
                self.planes.gc.progress().step();
                if caller.uid != 0 && caller.uid != inode.uid {
                    below.left += 1;
                    continue;
                }
                below.born.insert(id, inode.born);
                theirs.own(id, &inode);
                if many {
                    linked.push(id);
                    continue;
                }
                below.inodes.insert(id, gone(id, &inode)?);
                if inode.is_directory() {
                    below.directories.insert(id);
                    todo.push(id);
                }
            }
        }
        for id in linked {
            match history.names(id, at)?.iter().all(|named| below.directories.contains(&named.parent)) {
                true => drop(below.inodes.insert(id, false)),
                false => below.left += 1,
            }
        }
        below.owners = theirs.owners(&below.directories);
        Ok(below)
    }

    fn biggest(
        &self,
        below: &Below,
        biggest: &[(u64, InodeId, u64)],
        before: Hlc,
    ) -> Result<Vec<ForgottenFile>, Fault> {
        let file = |&(bytes, id, writes): &(u64, InodeId, u64)| {
            let deleted = below.inodes[&id];
            let version = self.planes.meta.inode(id, Some(before))?;
            let named = version.orphaned().map_or(before, Hlc::previous);
            Ok(ForgottenFile { path: self.planes.path_of(id, &[named])?, bytes, writes, deleted })
        };
        biggest.iter().map(file).collect()
    }
}
