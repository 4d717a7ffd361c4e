//! Restores: a file or tree becomes what it was at an instant, by a change at now that shares the old bytes.
//!
//! Only differences are touched; the time index finds them. Names made since stay unless the request deletes them. A
//! removed name gets its inode back; if that inode has another name now, the name gets a copy that shares the old
//! bytes.

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::{ByteRange, Fault, InodeId, Reason};
use frieze_hlc::{Hlc, format_instant};
use frieze_namespace::{ChangeSubject, MAY_READ, PATCHES_MAX, Paths, SubjectState, TreeAt};
use frieze_planes::{FileVersion, Principal};
use frieze_wire::acl::is_acl;
use frieze_wire::edit::{ActionKind, EditKind, Restore, Xattr};
use frieze_wire::message::{FileKind, View};
use frieze_wire::quota::QUOTA_XATTR;
use frieze_wire::timeline::ChangedSpan;
use frieze_wire::txn::{Caller, Target};

use super::names::NameKey;
use super::{Naming, Plan, attribute_words};
use crate::history::change_feed::FileChange;
use crate::history::diff::spans_of;
use crate::history::scope::Scope;
use crate::history::tree_pair::{CutPair, Interval};
use crate::tree_ops::TreeOps;

/// Names of then that have another inode now, or none.
struct WantedName {
    key: NameKey,
    /// Its inode then.
    inode: InodeId,
    /// Its inode now.
    now: Option<InodeId>,
    fate: NameRestore,
}

/// How a name of then gets its inode back.
#[derive(Clone, Debug, PartialEq, Eq)]
enum NameRestore {
    /// The name is made again.
    Named,
    /// The inode is renamed back from the name that it was given since.
    Moved(NameKey),
    /// By a copy: the inode has another name now.
    Copied,
}

/// Which names change in restored directories.
struct Names {
    /// Names made since are removed.
    deletes: bool,
    /// Directories in which names change.
    changed_in: BTreeSet<InodeId>,
    /// Directories whose names after the restore differ from those of then: they do not get the time of then either.
    others_in: BTreeSet<InodeId>,
}

/// The tree of then and of now below the path.
struct RestoreTrees<'a> {
    then: TreeAt<'a>,
    now: TreeAt<'a>,
    /// The inode of the path then; `root_now`: its inode now.
    root_then: InodeId,
    root_now: Option<InodeId>,
    /// The path's own name now; `None` for the root.
    own: Option<NameKey>,
}

impl RestoreTrees<'_> {
    fn contained_then(&mut self, directory: InodeId) -> Result<bool, Fault> {
        Ok(directory == self.root_then || self.then.is_within(directory, self.root_then)?)
    }

    fn contains_now(&mut self, directory: InodeId) -> Result<bool, Fault> {
        let root_now = self.root_now;
        for root in [Some(self.root_then), root_now].into_iter().flatten() {
            if self.now.is_within(directory, root)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// True if a directory of then is copied, or lay in one that is.
    fn is_copied(&mut self, directory: InodeId, copied: &BTreeSet<InodeId>) -> Result<bool, Fault> {
        for &copy in copied {
            if directory == copy || self.then.is_within(directory, copy)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn fate(&mut self, inode: InodeId) -> Result<NameRestore, Fault> {
        let now = self.now.names(inode)?;
        if now.is_empty() {
            return Ok(NameRestore::Named);
        }
        let then = self.then.names(inode)?;
        let is_directory = self.then.inode(inode)?.is_some_and(|inode| inode.is_directory());
        if !is_directory && now.iter().any(|named| then.contains(named)) {
            return Ok(NameRestore::Named);
        }
        for named in now {
            if self.contains_now(named.parent)? {
                return Ok(NameRestore::Moved((named.parent, named.name)));
            }
        }
        Ok(NameRestore::Copied)
    }
}

impl TreeOps {
    pub(crate) fn plan_restore(&self, principal: &Principal, ask: &Restore, now: Hlc) -> Result<Plan, Fault> {
        let at = Hlc(ask.at);
        self.planes.answer(View::exact(at))?;
        let target = Target { follow: false, ..ask.target.clone() };
        let whole = target.path.iter().all(|&byte| byte == b'/');
        let (own, root_then, root_now) = match whole {
            true => {
                let id = if target.path.is_empty() { InodeId(target.base) } else { InodeId::ROOT };
                // Without later changes this is the only check: no path is resolved, and no change is read.
                self.planes.check_kept_naming(&principal.caller, id, at, [now, at])?;
                (None, Some(id), Some(id))
            }
            false => {
                let (directory, name) = self.parent_of(principal, &target, now)?;
                let then = match self.planes.resolve_at(principal, &target, at) {
                    Ok(found) => Some(found.id),
                    Err(fault) if matches!(fault.reason, Reason::NotFound | Reason::NotDirectory) => None,
                    Err(fault) => return Err(fault),
                };
                let named = self.entry_at(directory, &name, now)?;
                (Some((directory, name)), then, named)
            }
        };
        let mut plan = Plan::new(EditKind::Restore, now, at);
        let root = Caller::root();
        let history = self.planes.meta.history();
        let mut paths = history.paths(&[now, at], &principal.caller);
        let Some(root_then) = root_then else {
            return self.plan_removal(principal, plan, ask, own, root_now, &mut paths);
        };
        let mut span = RestoreTrees {
            then: history.tree_at(at, &root),
            now: history.tree_at(now, &root),
            root_then,
            root_now,
            own,
        };
        let interval = Interval { after: at, upto: now };
        let mut cuts = CutPair::new(history, interval, &root);
        let changes = self.history.changes(Scope::Within(root_then), interval, &mut cuts)?;
        if let Some(key) = span.own.clone() {
            paths.note_known(root_then, key);
        }

        let mut wanted: Vec<WantedName> = Vec::new();
        let mut made: Vec<(NameKey, InodeId)> = Vec::new();
        if let Some(key) = span.own.clone().filter(|_| root_now != Some(root_then)) {
            wanted.push(WantedName { key, inode: root_then, now: root_now, fate: span.fate(root_then)? });
        }
        let mut touched: BTreeMap<InodeId, Vec<Xattr>> = BTreeMap::new();
        for change in &changes.subjects {
            let last = change.revisions.last().and_then(|revision| revision.state.as_ref());
            let before = change.before.as_ref().map(|(_, state)| state);
            let inode_of = |state: Option<&SubjectState>| match state {
                Some(SubjectState::Entry { inode, .. }) => Some(*inode),
                _ => None,
            };
            match &change.subject {
                ChangeSubject::Entry { parent, name } => {
                    let (then, named) = (inode_of(before), inode_of(last));
                    if then == named || !span.contained_then(*parent)? {
                        continue;
                    }
                    self.planes.check_kept_naming(&principal.caller, *parent, at, [now, at])?;
                    let key = (*parent, name.clone());
                    match (then, named) {
                        (Some(inode), now) => wanted.push(WantedName { key, inode, now, fate: span.fate(inode)? }),
                        (None, Some(inode)) => made.push((key, inode)),
                        (None, None) => {}
                    }
                }
                ChangeSubject::Inode(id) => {
                    touched.entry(*id).or_default();
                }
                // An operator sets quotas, whatever the data was.
                ChangeSubject::Xattr { name, .. } if *name == *QUOTA_XATTR => {}
                ChangeSubject::Xattr { inode, name } => {
                    let xattrs = touched.entry(*inode).or_default();
                    if before != last {
                        let value = match before {
                            Some(SubjectState::Xattr(value)) => Some(value.clone()),
                            _ => None,
                        };
                        xattrs.push(Xattr { name: name.clone(), value });
                    }
                }
            }
        }
        let written: BTreeMap<InodeId, &FileChange> = changes.files.iter().map(|file| (file.inode, file)).collect();
        for &id in written.keys() {
            touched.entry(id).or_default();
        }
        let copied: BTreeSet<InodeId> =
            wanted.iter().filter(|wanted| wanted.fate == NameRestore::Copied).map(|wanted| wanted.inode).collect();
        let back: Vec<NameKey> = wanted.iter().map(|wanted| wanted.key.clone()).collect();
        let made_in: Vec<NameKey> = made.iter().map(|(key, _)| key.clone()).collect();
        self.restore_names(principal, &mut plan, &mut span, &mut paths, wanted, &copied)?;
        for (key, inode) in made {
            if !ask.delete || plan.names.contains_key(&key) || span.is_copied(key.0, &copied)? {
                continue;
            }
            self.check_listable(principal, &mut span, key.0)?;
            self.plan_unname(&mut plan, &mut paths, key, inode)?;
        }
        if ask.delete {
            let replaced: Vec<InodeId> = plan.names.values().map(|naming| naming.expect).collect();
            for inode in replaced {
                self.plan_emptying(principal, &mut plan, &mut paths, inode)?;
            }
        }
        self.settle_names(&mut plan, &mut paths)?;
        let mut names = Names {
            deletes: ask.delete,
            changed_in: plan.names.keys().map(|(directory, _)| *directory).collect(),
            others_in: BTreeSet::new(),
        };
        let differs = back.iter().chain(&made_in).filter(|key| !plan.names.contains_key(*key));
        names.others_in = differs.map(|(directory, _)| *directory).collect();
        let back: BTreeSet<u64> = plan.names.values().map(|naming| naming.inode).collect();
        for (id, xattrs) in touched {
            let named = back.contains(&id.0) || !span.now.names(id)?.is_empty() || id == InodeId::ROOT;
            if !named || copied.contains(&id) {
                continue;
            }
            // What the caller named, or has a name in the restored tree that the caller may list.
            let mut allowed = (id == root_then).then_some(Ok(()));
            for named in span.then.names(id)? {
                let is_allowed = allowed.as_ref().is_some_and(Result::is_ok);
                if !is_allowed && span.contained_then(named.parent)? && !span.is_copied(named.parent, &copied)? {
                    allowed = Some(self.check_listable(principal, &mut span, named.parent));
                }
            }
            if let Some(allowed) = allowed {
                allowed?;
                self.restore_state(principal, &mut plan, &mut paths, id, xattrs, written.get(&id).copied(), &names)?;
            }
        }
        Ok(plan)
    }

    /// Removes an object that did not exist then, if the request deletes names made since.
    fn plan_removal(
        &self,
        principal: &Principal,
        mut plan: Plan,
        ask: &Restore,
        own: Option<NameKey>,
        root_now: Option<InodeId>,
        paths: &mut Paths<'_>,
    ) -> Result<Plan, Fault> {
        let gone = || {
            let words = format!(
                "{:?} did not exist at {}: there is nothing to put back",
                String::from_utf8_lossy(&ask.target.path),
                format_instant(plan.at)
            );
            Fault::new(Reason::NotFound, words)
        };
        match (own, root_now) {
            (Some(key), Some(inode)) if ask.delete => {
                self.plan_unname(&mut plan, paths, key, inode)?;
                self.plan_emptying(principal, &mut plan, paths, inode)?;
                self.settle_names(&mut plan, paths)?;
                Ok(plan)
            }
            _ => Err(gone()),
        }
    }

    /// A plan names what is in a directory: it asks for the right to list it, then and now.
    fn check_listable(&self, principal: &Principal, span: &mut RestoreTrees<'_>, id: InodeId) -> Result<(), Fault> {
        let instants = [span.then.inode(id)?.map(|_| span.then.at()), span.now.inode(id)?.map(|_| span.now.at())];
        let check = |at| self.planes.meta.check_access(id, Some(at), &principal.caller, MAY_READ);
        instants.into_iter().flatten().try_for_each(check)
    }

    fn restore_names(
        &self,
        principal: &Principal,
        plan: &mut Plan,
        span: &mut RestoreTrees<'_>,
        paths: &mut Paths<'_>,
        wanted: Vec<WantedName>,
        copied: &BTreeSet<InodeId>,
    ) -> Result<(), Fault> {
        let (at, mut given_back) = (plan.at, Vec::new());
        let mut sight = self.planes.meta.history().tree_at(plan.now, &principal.caller);
        let mut touched = Vec::new();
        for name in wanted {
            // The inode of the path now may be the copied one.
            if span.own.as_ref() == Some(&name.key) || !span.is_copied(name.key.0, copied)? {
                touched.push(name);
            }
        }
        let leaves = |wanted: &WantedName| match &wanted.fate {
            NameRestore::Moved(from) => Some(from.clone()),
            NameRestore::Named | NameRestore::Copied => None,
        };
        // The present inodes of these names are renamed back: they do not count as copies.
        let left: BTreeSet<NameKey> = touched.iter().filter_map(leaves).collect();
        for WantedName { key, inode, now, fate } in touched {
            self.check_listable(principal, span, key.0)?;
            let path = paths.of(key.0, &key.1)?;
            let to = match fate {
                NameRestore::Copied if !left.contains(&key) && self.is_copy(inode, at, now, plan.now)? => continue,
                NameRestore::Copied => {
                    let told = plan.actions.len();
                    let copy = self.add_clone(plan, principal, inode, at, &path)?;
                    let lives_at = lives_at(&mut sight, paths, inode)?;
                    let top = &mut plan.actions[told];
                    top.words = words_of_copy(&lives_at, now.is_some());
                    top.lives_at = lives_at;
                    copy
                }
                NameRestore::Named | NameRestore::Moved(_) => {
                    let kind = if now.is_some() { ActionKind::Replace } else { ActionKind::Name };
                    let words = match &fate {
                        NameRestore::Moved(from) => {
                            format!("from {}", String::from_utf8_lossy(&paths.of(from.0, &from.1)?))
                        }
                        _ => String::new(),
                    };
                    plan.note_action(kind, &path, inode.0, words);
                    inode.0
                }
            };
            if let NameRestore::Moved(from) = fate {
                given_back.push((from, inode));
            }
            plan.names.insert(key, Naming { expect: now.unwrap_or_default(), inode: to });
        }
        for (key, inode) in given_back {
            plan.names.entry(key).or_insert(Naming { expect: inode, inode: 0 });
        }
        Ok(())
    }

    /// True if a name has an untouched copy already: of an earlier restore.
    fn is_copy(&self, inode: InodeId, at: Hlc, copy: Option<InodeId>, now: Hlc) -> Result<bool, Fault> {
        let Some(copy) = copy else { return Ok(false) };
        let (then, copy) = (self.files.version_at(inode, at)?, self.files.version_at(copy, now)?);
        let (extent, extent_now) = {
            let look = self.files.look(&[&then, &copy])?;
            (look.extent(&then), look.extent(&copy))
        };
        let alike = then.inode.kind() == FileKind::File
            && copy.inode.kind() == FileKind::File
            && (then.inode.mode, extent.size, extent.mtime_ns)
                == (copy.inode.mode, extent_now.size, extent_now.mtime_ns)
            && self.xattrs_of(&then, at)? == self.xattrs_of(&copy, now)?;
        Ok(alike && self.read.may_differ([&then, &copy], &[ByteRange::new(0, extent.size)])?.is_empty())
    }

    /// The attributes that a copy gets.
    fn xattrs_of(&self, seen: &FileVersion, at: Hlc) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, Fault> {
        let is_copied = |name: &[u8]| name.starts_with(b"user.") || is_acl(name);
        self.planes.meta.xattrs(seen.id, Some(at), &Caller::root(), &is_copied)
    }

    pub(super) fn plan_unname(
        &self,
        plan: &mut Plan,
        paths: &mut Paths<'_>,
        key: NameKey,
        inode: InodeId,
    ) -> Result<(), Fault> {
        let path = paths.of(key.0, &key.1)?;
        plan.note_action(ActionKind::Unname, &path, inode.0, "");
        plan.names.insert(key, Naming { expect: inode, inode: 0 });
        Ok(())
    }

    /// Removes everything that a removed directory holds now, except objects that get another name.
    fn plan_emptying(
        &self,
        principal: &Principal,
        plan: &mut Plan,
        paths: &mut Paths<'_>,
        inode: InodeId,
    ) -> Result<(), Fault> {
        let mut todo = vec![inode];
        while let Some(directory) = todo.pop() {
            let back = plan.names.values().any(|naming| naming.inode == directory.0);
            let is_directory = self.planes.meta.kind(directory) == Some(FileKind::Directory);
            if back || !is_directory {
                continue;
            }
            self.planes.meta.check_access(directory, Some(plan.now), &principal.caller, MAY_READ)?;
            self.each_entry(directory, plan.now, &mut |entry| {
                let key = (directory, entry.name);
                if !plan.names.contains_key(&key) {
                    self.plan_unname(plan, paths, key, entry.inode)?;
                    if entry.kind == FileKind::Directory {
                        todo.push(entry.inode);
                    }
                }
                plan.check_size()
            })?;
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "private, one caller; a struct would only rename them")]
    fn restore_state(
        &self,
        principal: &Principal,
        plan: &mut Plan,
        paths: &mut Paths<'_>,
        id: InodeId,
        xattrs: Vec<Xattr>,
        written: Option<&FileChange>,
        names: &Names,
    ) -> Result<(), Fault> {
        let (then, now) = (self.files.version_at(id, plan.at)?, self.files.version_at(id, plan.now)?);
        let (old, new) = (&then.inode, &now.inode);
        let (extent_then, extent_now) = {
            let look = self.files.look(&[&then, &now])?;
            (look.extent(&then), look.extent(&now))
        };
        let is_file = old.kind() == FileKind::File;
        let bytes =
            is_file && (written.is_some() || old.patches() != new.patches() || extent_then.size != extent_now.size);
        let differs = |a: u32, b: u32| (a != b).then_some(a);
        let caller = &principal.caller;
        let is_renamed = old.is_directory() && names.changed_in.contains(&id);
        // A user that may change a directory's names without owning it may not set its time.
        let is_whole = !names.others_in.contains(&id) && (caller.uid == 0 || caller.uid == new.uid);
        let time_counts = !old.is_directory() || names.deletes || is_whole;
        let resized = is_file && extent_then.size != extent_now.size;
        let ranges = match bytes {
            true => {
                let sizes = (extent_then.size, extent_now.size);
                let touched = spans_of(written, new.patches(), plan.at, sizes.0, sizes.1);
                let kept = ByteRange::new(0, sizes.0);
                let within = |span: &ChangedSpan| ByteRange::new(span.offset, span.offset + span.len).intersect(kept);
                self.read.may_differ([&then, &now], &touched.iter().map(within).collect::<Vec<_>>())?
            }
            false => Vec::new(),
        };
        let bytes = resized || !ranges.is_empty();
        let mtime = bytes || (time_counts && (is_renamed || extent_then.mtime_ns != extent_now.mtime_ns));
        let mode = differs(old.mode.into(), new.mode.into());
        let (uid, gid) = (differs(old.uid, new.uid), differs(old.gid, new.gid));
        let atime = old.atime_ns != new.atime_ns;
        if !(bytes || mtime || atime) && mode.is_none() && uid.is_none() && gid.is_none() && xattrs.is_empty() {
            return Ok(());
        }
        let path = paths.of_inode(id)?;
        if bytes {
            if caller.uid != new.uid {
                self.planes.meta.check_access(id, Some(plan.at), caller, MAY_READ)?;
            }
            let mut shares = Vec::new();
            for range in &ranges {
                shares.extend(self.shares(&then, *range, range.start())?);
            }
            let mut size = resized.then_some(extent_then.size);
            if new.patches().len() + 2 * shares.len() + 1 > PATCHES_MAX {
                // One state for the whole file replaces all the states that it consisted of.
                shares = self.shares(&then, ByteRange::new(0, extent_then.size), 0)?;
                size = Some(extent_then.size);
            }
            let state = plan.state(id, new);
            (state.shares, state.size) = (shares, size);
            self.take_times(plan, &then, plan.at, new)?;
            for range in &ranges {
                let told = plan.note_action(ActionKind::Bytes, &path, id.0, "");
                (told.offset, told.len) = (range.start(), range.len());
            }
            if resized {
                let words = format!("length {} to {}", extent_now.size, extent_then.size);
                plan.note_action(ActionKind::Bytes, &path, id.0, words);
            }
        }
        let mut words = Vec::new();
        let mut word = |what: &str, from: String, to: String| words.push(format!("{what} {from} to {to}"));
        if mode.is_some() {
            word("mode", format!("{:04o}", new.mode), format!("{:04o}", old.mode));
        }
        if uid.is_some() {
            word("owner", new.uid.to_string(), old.uid.to_string());
        }
        if gid.is_some() {
            word("group", new.gid.to_string(), old.gid.to_string());
        }
        words.extend(xattrs.iter().map(|xattr| attribute_words(&xattr.name)));
        let state = plan.state(id, new);
        (state.mode, state.uid, state.gid) = (mode, uid, gid);
        state.atime_ns = atime.then_some(old.atime_ns);
        state.mtime_ns = mtime.then_some(extent_then.mtime_ns);
        state.xattrs = xattrs;
        // The time of a directory whose names are restored is not listed.
        if !(bytes || is_renamed && !names.deletes) || !words.is_empty() {
            let words = if words.is_empty() { "times".to_owned() } else { words.join(", ") };
            plan.note_action(ActionKind::Attributes, &path, id.0, words);
        }
        Ok(())
    }
}

/// The present path of an inode that was moved out, as far as the caller may list it; empty if there is none.
fn lives_at(sight: &mut TreeAt<'_>, paths: &mut Paths<'_>, id: InodeId) -> Result<Vec<u8>, Fault> {
    for named in sight.names(id)? {
        if sight.may_list(named.parent)? {
            return paths.of(named.parent, &named.name);
        }
    }
    Ok(Vec::new())
}

fn words_of_copy(lives_at: &[u8], replaces: bool) -> String {
    let original = match lives_at {
        [] => "was moved away since and stays there".to_owned(),
        path => format!("is {} now and stays there", String::from_utf8_lossy(path)),
    };
    let place = if replaces { ", in place of what has the name now" } else { "" };
    format!("a copy that shares the bytes of then{place}: the original {original}")
}
