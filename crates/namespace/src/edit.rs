//! Edits: many changes at one stamp, all or none.
//!
//! Guarantees: an edit runs only if everything it was planned on is still so; the rights are those that the single
//! operations need; what it leaves is a tree, with link counts right, whatever the plan said.
//! Leaves to others: the plan (`node`), and that nothing was written meanwhile to a file whose bytes it decides.
//!
//! All names of an edit change at once, so what counts is the end: names may change places, a directory may go together
//! with all that is in it, and a directory may move below one that moves away.

mod apply_edit;
mod staging;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use frieze_base::{FastMap, Fault, InodeId, NAME_BYTES_MAX, Seq};
use frieze_hlc::Hlc;
use frieze_wire::acl::is_acl;
use frieze_wire::edit::{Edit, EditKind, NEW, NamelessInode, NewInode, SetState, Share, Xattr};
use frieze_wire::message::{FileKind, VersionKind};
use frieze_wire::quota::QUOTA_XATTR;
use frieze_wire::txn::Caller;

use crate::acl::check_acl;
use crate::apply::{OpResult, TxnRun};
use crate::attributes::{PLUGIN_XATTR, check_plugin, check_xattr_change, check_xattrs_size, file_bytes_max};
use crate::error::{Error, lossy};
use crate::history::VersionHistory;
use crate::inode::{Extra, FileLayout, Inode, MAY_EXECUTE, MAY_WRITE, STICKY, allows};
use crate::key::VersionKey;
use crate::model::{NameEntry, Xattrs};
use crate::names::LINKS_MAX;
use crate::namespace::Namespace;
use crate::patch::{PATCHES_MAX, Patch, PatchSource, lay};
use crate::state_item::StateItem;
use crate::stored::{StoredInode, StoredXattr, decode};
use crate::walk::{NoHistory, PathWalk};

/// A name that changes.
struct NameEdit<'a> {
    directory: InodeId,
    name: &'a [u8],
    old: Option<NameEntry>,
    new: Option<(InodeId, FileKind)>,
}

/// Directories in which an inode gains and loses a name.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) gains: Vec<InodeId>,
    losses: Vec<InodeId>,
}

/// An edit whose numbers are resolved and that was found good.
pub(crate) struct Draft<'a> {
    cause: VersionKind,
    brought: BTreeMap<InodeId, (Inode, Xattrs)>,
    new: Vec<(Inode, &'a NewInode)>,
    numbers: NewNumbers,
    names: Vec<NameEdit<'a>>,
    tallies: BTreeMap<InodeId, Tally>,
    states: Vec<(InodeId, &'a SetState, Vec<Patch>)>,
    /// Directories that are made keep their times over the names they get.
    keeps_times: bool,
    /// The policy of retention that some of the states get.
    policy: &'a str,
}

/// The numbers of the inodes that an edit makes.
#[derive(Default)]
struct NewNumbers {
    ids: Vec<InodeId>,
    /// Which inode has a number.
    of: FastMap<InodeId, usize>,
}

impl Draft<'_> {
    /// Inodes that gain or lose names.
    pub(crate) fn tallies(&self) -> &BTreeMap<InodeId, Tally> {
        &self.tallies
    }

    /// The directory in which an inode gains its name.
    pub(crate) fn gain_of(&self, id: InodeId) -> Option<InodeId> {
        self.tallies.get(&id).and_then(|tally| tally.gains.last().copied())
    }

    /// Files whose length it sets.
    pub(crate) fn lengths(&self) -> impl Iterator<Item = (InodeId, u64)> {
        self.states.iter().filter_map(|(id, state, _)| Some((*id, state.size?)))
    }
}

impl Namespace {
    pub(crate) fn edit_tree(&mut self, run: &mut TxnRun<'_>, op: &Edit) -> Result<OpResult, Error> {
        let Some(staged) = &op.staged else { return self.edit_whole(run, op) };
        let whole = self.whole_edit(run.session, op, staged)?;
        let done = self.edit_whole(run, &whole)?;
        self.drop_staged_of(run.session, Seq(staged.request), run.stamp, run.changes);
        Ok(done)
    }

    fn edit_whole(&mut self, run: &mut TxnRun<'_>, op: &Edit) -> Result<OpResult, Error> {
        let draft = self.draft(run, op)?;
        let first = draft.numbers.ids.first().copied().unwrap_or_default();
        self.apply_edit(run, draft);
        Ok(OpResult::with(first))
    }

    /// Whether an edit would be carried out if it ran now, at `stamp`: everything is checked, rights and quotas
    /// included, and nothing changed.
    ///
    /// # Errors
    /// What the transaction would fail with. `Superseded`: plan it again.
    pub fn check_edit(&self, caller: &Caller, op: &Edit, stamp: Hlc) -> Result<(), Fault> {
        Ok(self.draft(&TxnRun::looking(caller, stamp, &mut Vec::new()), op).map(drop)?)
    }

    fn draft<'a>(&self, run: &TxnRun<'_>, op: &'a Edit) -> Result<Draft<'a>, Error> {
        let cause = match op.kind() {
            EditKind::Clone => VersionKind::Cloned,
            EditKind::Restore => VersionKind::Restored,
            EditKind::Undo => VersionKind::Undone,
            EditKind::CopyRange | EditKind::Join => VersionKind::Shared,
            EditKind::Remove => VersionKind::Unnamed,
            EditKind::Change | EditKind::Retain => VersionKind::SetAttr,
        };
        let mut draft = Draft {
            cause,
            brought: BTreeMap::new(),
            new: Vec::with_capacity(op.new.len()),
            numbers: self.number_new(op)?,
            names: Vec::with_capacity(op.names.len()),
            tallies: BTreeMap::new(),
            states: Vec::with_capacity(op.states.len()),
            keeps_times: op.keeps_times,
            policy: &op.policy,
        };
        if op.states.iter().any(|state| state.gets_policy) {
            self.check_policy(&op.policy)?;
        }
        for brought in &op.brought {
            let id = InodeId(brought.inode);
            if self.inodes.contains(id) {
                continue;
            }
            let (inode, _) = StoredInode::read(Hlc(brought.from), &brought.value, Arc::new)?;
            if inode.orphaned().is_none() || !self.was_given(id) {
                return Err(Error::InvalidArgument { why: "only an inode without a name is brought back" });
            }
            let some = |xattr: &Xattr| Some((xattr.name.as_slice().into(), xattr.value.as_deref()?.into()));
            draft.brought.insert(id, (inode, brought.xattrs.iter().filter_map(some).collect()));
        }
        for new in &op.new {
            let inode = new_inode(run, new)?;
            for xattr in new.xattrs.iter().filter(|xattr| is_acl(&xattr.name)) {
                xattr.value.as_ref().map(|value| check_acl(inode.kind(), &xattr.name, value)).transpose()?;
            }
            draft.new.push((inode, new));
        }
        self.draft_names(&mut draft, op)?;
        self.check_tree(&draft).map_err(|error| match (op.kind(), error) {
            // What was made in a directory since it was listed is to go as well.
            (EditKind::Remove, Error::NotEmpty { name }) => Error::Superseded { what: format!("what is in {name}") },
            (_, error) => error,
        })?;
        self.check_name_rights(run, &draft)?;
        let mut seen = BTreeSet::new();
        for state in &op.states {
            let id = InodeId(state.inode);
            if !seen.insert(id) {
                return Err(Error::InvalidArgument { why: "an edit changes an inode twice" });
            }
            let patches = self.check_state(run, &draft, id, state)?;
            draft.states.push((id, state, patches));
        }
        let xattrs = op.new.iter().flat_map(|new| &new.xattrs).chain(op.states.iter().flat_map(|state| &state.xattrs));
        if xattrs.into_iter().any(|xattr| *xattr.name == *QUOTA_XATTR) {
            return Err(Error::InvalidArgument { why: "a quota is not brought back or copied: set it" });
        }
        self.check_room_to_edit(&draft)?;
        Ok(draft)
    }

    /// What an edit needs to name an inode again that has no name: its last version; `None` if memory still holds it.
    ///
    /// # Errors
    /// `StaleHandle` if it never was; those of the store.
    pub fn bring(&self, history: &dyn VersionHistory, id: InodeId) -> Result<Option<NamelessInode>, Fault> {
        if self.inodes.contains(id) {
            return Ok(None);
        }
        let Some((from, Some(value))) = history.newest(&VersionKey::Inode(id).encode(), Hlc::MAX)? else {
            return Err(Error::StaleHandle { inode: id }.into());
        };
        let prefix = VersionKey::Xattr(id, b"").encode();
        let mut xattrs = Vec::new();
        let mut broken = Ok(());
        history.scan(&prefix, &[], Hlc::MAX, &mut |key, _, value| {
            match decode::<StoredXattr>(value, "extended attribute") {
                Ok(stored) => xattrs.push(Xattr { name: key[prefix.len()..].to_vec(), value: Some(stored.value) }),
                Err(error) => broken = Err(error),
            }
            broken.is_ok()
        })?;
        broken?;
        Ok(Some(NamelessInode { inode: id.0, from: from.0, value, xattrs }))
    }

    /// An inode as it is before the edit, or as the edit makes or brings it.
    pub(crate) fn drafted<'a>(&'a self, draft: &'a Draft<'_>, id: InodeId) -> Result<Cow<'a, Inode>, Error> {
        self.kept(id, None)?;
        let new = || draft.numbers.of.get(&id).map(|index| &draft.new[*index].0);
        let brought = || draft.brought.get(&id).map(|(inode, _)| inode);
        let found = self.inodes.get(id).or_else(|| brought().or_else(new).map(Cow::Borrowed));
        found.ok_or(Error::StaleHandle { inode: id })
    }

    /// The numbers of the inodes that an edit makes: directories by their order, and files by the slots of the
    /// directories in which they get their first names.
    fn number_new(&self, op: &Edit) -> Result<NewNumbers, Error> {
        let mut numbers = NewNumbers::default();
        let mut directories = 0;
        for new in &op.new {
            let is_directory = new.kind == FileKind::Directory as i32;
            numbers.ids.push(if is_directory { self.next_directory(directories)? } else { InodeId(0) });
            directories += u64::from(is_directory);
        }
        let mut files: FastMap<u16, u64> = FastMap::default();
        let numbered = |number: u64, ids: &[InodeId]| match number & NEW {
            0 => Some(InodeId(number)),
            _ => ids.get(usize::try_from(number & !NEW).ok()?).copied(),
        };
        for set in op.names.iter().filter(|set| set.inode & NEW != 0) {
            let index = usize::try_from(set.inode & !NEW).unwrap_or(usize::MAX);
            // What names no inode, or no directory, is refused with the names.
            if let (Some(InodeId(0)), Some(directory)) = (numbers.ids.get(index), numbered(set.directory, &numbers.ids))
            {
                let ahead = files.entry(directory.slot()).or_default();
                numbers.ids[index] = self.next_file(directory, *ahead)?;
                *ahead += 1;
            }
        }
        if numbers.ids.contains(&InodeId(0)) {
            return Err(Error::InvalidArgument { why: "an edit makes an inode and gives it no name" });
        }
        numbers.of = (0..).zip(&numbers.ids).map(|(index, id)| (*id, index)).collect();
        Ok(numbers)
    }

    fn draft_names<'a>(&self, draft: &mut Draft<'a>, op: &'a Edit) -> Result<(), Error> {
        let number = |number: u64, draft: &Draft<'_>| match number & NEW {
            0 => Ok(InodeId(number)),
            _ => usize::try_from(number & !NEW)
                .ok()
                .and_then(|index| draft.numbers.ids.get(index))
                .copied()
                .ok_or(Error::InvalidArgument { why: "an edit names an inode that it does not make" }),
        };
        let mut seen = BTreeSet::new();
        for set in &op.names {
            let directory = number(set.directory, draft)?;
            let name = set.name.as_slice();
            if name.len() > NAME_BYTES_MAX {
                return Err(Error::NameTooLong { bytes: name.len() });
            }
            if matches!(name, b"" | b"." | b"..") || name.contains(&b'/') || name.contains(&0) {
                return Err(Error::InvalidArgument { why: "not a name" });
            }
            if !seen.insert((directory, name)) {
                return Err(Error::InvalidArgument { why: "an edit sets a name twice" });
            }
            if !self.drafted(draft, directory)?.is_directory() {
                return Err(Error::not_directory(name));
            }
            let old = self.entry(directory, name);
            if old.map_or(0, |entry| entry.inode().0) != set.expect {
                return Err(Error::Superseded { what: format!("the name {:?}", lossy(name)) });
            }
            let new = match set.inode {
                0 => None,
                inode => {
                    let id = number(inode, draft)?;
                    if id == InodeId::ROOT {
                        return Err(Error::InvalidArgument { why: "the root has no name" });
                    }
                    Some((id, self.drafted(draft, id)?.kind()))
                }
            };
            if old.map(NameEntry::inode) == new.map(|(id, _)| id) {
                continue;
            }
            if let Some(old) = old {
                draft.tallies.entry(old.inode()).or_default().losses.push(directory);
            }
            if let Some((id, _)) = new {
                draft.tallies.entry(id).or_default().gains.push(directory);
            }
            draft.names.push(NameEdit { directory, name, old, new });
        }
        Ok(())
    }

    /// How many names an inode has in the end.
    pub(crate) fn names_after(&self, draft: &Draft<'_>, id: InodeId) -> Result<usize, Error> {
        let inode = self.drafted(draft, id)?;
        let now = match inode.is_directory() {
            _ if draft.numbers.of.contains_key(&id) => 0,
            true => usize::from(inode.links > 0),
            false => inode.links as usize,
        };
        let (gains, losses) = draft.tallies.get(&id).map_or((0, 0), |tally| (tally.gains.len(), tally.losses.len()));
        (now + gains).checked_sub(losses).ok_or(Error::Corrupt { what: "link count" })
    }

    /// Checks that the end is a tree.
    fn check_tree(&self, draft: &Draft<'_>) -> Result<(), Error> {
        let mut children: FastMap<InodeId, i64> = FastMap::default();
        for naming in &draft.names {
            let change = i64::from(naming.new.is_some()) - i64::from(naming.old.is_some());
            *children.entry(naming.directory).or_default() += change;
        }
        for id in draft.numbers.ids.iter().copied().chain(draft.brought.keys().copied()) {
            if self.names_after(draft, id)? == 0 {
                return Err(Error::InvalidArgument { why: "an edit makes or brings an inode and gives it no name" });
            }
        }
        for &id in draft.tallies.keys() {
            let inode = self.drafted(draft, id)?;
            let names = self.names_after(draft, id)?;
            match inode.is_directory() {
                true if names > 1 => return Err(Error::NotPermitted { why: "a directory has one name only" }),
                true if names == 0 => {
                    let now = self.name_count(id) as i64;
                    if now + children.get(&id).copied().unwrap_or(0) != 0 {
                        return Err(Error::NotEmpty { name: format!("inode {id}") });
                    }
                }
                false if names > LINKS_MAX as usize => {
                    return Err(Error::TooManyLinks { inode: id, links: inode.links });
                }
                _ => {}
            }
        }
        // Whatever gains something, or moves, has a way to the root.
        let mut rooted: BTreeSet<InodeId> = BTreeSet::from([InodeId::ROOT]);
        let gaining = draft.names.iter().filter(|naming| naming.new.is_some()).map(|naming| naming.directory);
        let moved = draft.names.iter().filter_map(|naming| naming.new).filter(|(_, kind)| *kind == FileKind::Directory);
        for start in gaining.chain(moved.map(|(id, _)| id)) {
            let mut way = BTreeSet::new();
            let mut here = start;
            while !rooted.contains(&here) {
                if !way.insert(here) {
                    return Err(Error::InvalidArgument { why: "a directory cannot move below itself" });
                }
                if self.names_after(draft, here)? == 0 {
                    return Err(Error::NotFound { name: format!("directory {here}") });
                }
                let gain = draft.tallies.get(&here).and_then(|tally| tally.gains.last().copied());
                here = match gain {
                    Some(parent) => parent,
                    None => self.drafted(draft, here)?.parent,
                };
            }
            rooted.extend(way);
        }
        Ok(())
    }

    fn check_name_rights(&self, run: &TxnRun<'_>, draft: &Draft<'_>) -> Result<(), Error> {
        let caller = run.caller;
        if caller.uid == 0 {
            return Ok(());
        }
        let walk = PathWalk { namespace: self, history: &NoHistory, at: None, caller, reads: run.reads };
        let mut checked = BTreeSet::new();
        for naming in &draft.names {
            let directory = self.drafted(draft, naming.directory)?;
            if checked.insert(naming.directory) && !draft.numbers.of.contains_key(&naming.directory) {
                // One that comes back is the caller's to fill, or lets him.
                let back = directory.links == 0 && directory.uid == caller.uid;
                if !back && !allows(&directory, caller, MAY_WRITE | MAY_EXECUTE) {
                    // Not which name: the caller may not be allowed to list it.
                    return Err(Error::AccessDenied { what: "changing names of a directory".to_owned() });
                }
                if directory.links > 0 && naming.directory != InodeId::ROOT {
                    walk.approach(naming.directory)?;
                }
            }
            if let Some(old) = naming.old {
                let inode = self.live_inode(old.inode())?;
                let owns = caller.uid == directory.uid || caller.uid == inode.uid;
                if directory.mode & STICKY != 0 && !owns {
                    return Err(Error::NotPermitted {
                        why: "the directory is sticky: only the owner may take a name from it",
                    });
                }
                let elsewhere =
                    draft.tallies[&old.inode()].gains.iter().any(|&directory| directory != naming.directory);
                if inode.is_directory() && elsewhere && !allows(&inode, caller, MAY_WRITE) {
                    return Err(Error::denied("moving", naming.name));
                }
            }
        }
        Ok(())
    }

    /// Checks a change of an inode and answers its patches afterwards.
    fn check_state(
        &self,
        run: &TxnRun<'_>,
        draft: &Draft<'_>,
        id: InodeId,
        state: &SetState,
    ) -> Result<Vec<Patch>, Error> {
        let caller = run.caller;
        let inode = self.drafted(draft, id)?;
        let what = || format!("inode {id}");
        if inode.is_directory() {
            // A change of its names is one, too.
            self.look_at(|| StateItem::Times(id));
        }
        // Whatever has changed of a file since, it may get a policy.
        let is_any = state.expect == 0 && state.is_only_policy();
        if inode.from != Hlc(state.expect) && !is_any {
            return Err(Error::Superseded { what: what() });
        }
        let owns = caller.uid == 0 || caller.uid == inode.uid;
        if !owns && (state.mode.is_some() || state.atime_ns.is_some() || state.mtime_ns.is_some()) {
            return Err(Error::NotPermitted { why: "only the owner puts mode and times back" });
        }
        if !owns && state.gets_policy {
            return Err(Error::NotPermitted { why: "only the owner gives a file or directory a policy of retention" });
        }
        if state.mode.is_some_and(|mode| mode > 0o7777) {
            return Err(Error::InvalidArgument { why: "not a mode" });
        }
        if caller.uid != 0 {
            let keeps_uid = state.uid.is_none_or(|uid| uid == inode.uid);
            let keeps_gid = state.gid.is_none_or(|gid| gid == inode.gid || owns && caller.in_group(gid));
            if !keeps_uid || !keeps_gid {
                return Err(Error::NotPermitted { why: "only the superuser gives a file away" });
            }
        }
        if state.origin != 0 && Hlc(state.origin_at) >= run.stamp {
            return Err(Error::InvalidArgument { why: "user times of an instant that is not past" });
        }
        let mut patches = inode.patches().to_vec();
        if state.size.is_some() || !state.shares.is_empty() {
            if inode.kind() != FileKind::File {
                return Err(Error::InvalidArgument { why: "only a regular file has bytes" });
            }
            if !owns && !allows(&inode, caller, MAY_WRITE) {
                return Err(Error::denied("writing", what().as_bytes()));
            }
            let bytes_max = file_bytes_max(inode.chunk_bytes());
            if let Some(bytes) = state.size.filter(|&size| size > bytes_max) {
                return Err(Error::TooLarge { what: "a length", bytes, bytes_max });
            }
            for share in &state.shares {
                lay(&mut patches, patch_of(share, run.stamp)?);
            }
            if let Some(len) = state.size.filter(|_| !state.extends) {
                lay(&mut patches, Patch::truncate(run.stamp, len));
            }
            if patches.len() > PATCHES_MAX {
                return Err(Error::TooManyPatches { inode: id, patches: patches.len(), patches_max: PATCHES_MAX });
            }
        }
        if !state.xattrs.is_empty() {
            let mut all = self.xattrs.get(&id).or_else(|| draft.brought.get(&id).map(|(_, all)| all)).cloned();
            let all = all.get_or_insert_default();
            for xattr in &state.xattrs {
                if !owns {
                    check_xattr_change(caller, &inode, &xattr.name)?;
                }
                match &xattr.value {
                    Some(value) if *xattr.name == *PLUGIN_XATTR => drop(check_plugin(&inode, value)?),
                    Some(value) if is_acl(&xattr.name) => drop(check_acl(inode.kind(), &xattr.name, value)?),
                    _ => {}
                }
                match &xattr.value {
                    Some(value) => all.insert(xattr.name.as_slice().into(), value.as_slice().into()),
                    None => all.remove(xattr.name.as_slice()),
                };
            }
            check_xattrs_size(all)?;
        }
        Ok(patches)
    }
}

fn new_inode(run: &TxnRun<'_>, new: &NewInode) -> Result<Inode, Error> {
    let stamp = run.stamp;
    let kind = FileKind::try_from(new.kind).map_err(|_| Error::InvalidArgument { why: "no such kind of file" })?;
    if !new.chunk_bytes.is_power_of_two() || new.chain_count == 0 || new.mode > 0o7777 {
        return Err(Error::InvalidArgument { why: "a new inode without a layout or with a mode that is none" });
    }
    if run.caller.uid != 0 && new.uid != run.caller.uid {
        return Err(Error::NotPermitted { why: "only the superuser gives a file away" });
    }
    if run.caller.uid != 0 && matches!(kind, FileKind::CharDevice | FileKind::BlockDevice) {
        return Err(Error::NotPermitted { why: "only the superuser makes device nodes" });
    }
    let (bytes, bytes_max) = (new.size, file_bytes_max(new.chunk_bytes));
    if bytes > bytes_max {
        return Err(Error::TooLarge { what: "a length", bytes, bytes_max });
    }
    if new.origin != 0 && Hlc(new.origin_at) >= stamp {
        return Err(Error::InvalidArgument { why: "a clone of an instant that is not past" });
    }
    let origin = (new.origin != 0).then_some((InodeId(new.origin), Hlc(new.origin_at)));
    let mut extra = Extra { target: new.target.as_slice().into(), rdev: new.rdev, origin, ..Extra::default() };
    for share in &new.shares {
        let patch = patch_of(share, stamp)?;
        if let Some(patch) = patch.cut(0, new.size) {
            lay(&mut extra.patches, patch);
        }
    }
    if extra.patches.len() > PATCHES_MAX {
        let inode = InodeId(new.shares.first().map_or(0, |share| share.inode));
        return Err(Error::TooManyPatches { inode, patches: extra.patches.len(), patches_max: PATCHES_MAX });
    }
    Ok(Inode {
        from: stamp,
        born: stamp,
        ctime: stamp,
        mtime_ns: new.mtime_ns,
        mtime_stamp: stamp,
        atime_ns: new.atime_ns,
        size: if kind == FileKind::Symlink { new.target.len() as u64 } else { new.size },
        size_as_of: stamp,
        named: Hlc::ZERO,
        parent: InodeId::default(),
        layout: Arc::new(FileLayout {
            chunk_bytes: new.chunk_bytes,
            chain_count: new.chain_count,
            plugin: new.plugin.clone(),
            regime: new.regime,
        }),
        links: if kind == FileKind::Directory { 2 } else { 0 },
        uid: new.uid,
        gid: new.gid,
        mode: new.mode as u16,
        kind: kind as u8,
        extra: (!extra.is_empty()).then(|| Box::new(extra)),
    })
}

fn patch_of(share: &Share, stamp: Hlc) -> Result<Patch, Error> {
    let wrong = Error::InvalidArgument { why: "a shared range without an end, or of an instant that is not past" };
    let end = match share.len {
        0 => u64::MAX,
        len => share.start.checked_add(len).ok_or(wrong.clone())?,
    };
    let source = match share.inode {
        0 => PatchSource::Hole,
        _ if Hlc(share.at) >= stamp || share.offset.checked_add(end - share.start).is_none() => return Err(wrong),
        inode => PatchSource::Shared { inode: InodeId(inode), offset: share.offset, at: Hlc(share.at) },
    };
    Ok(Patch { at: stamp, start: share.start, end, source })
}
