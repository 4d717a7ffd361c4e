//! An edit that was checked is carried out: nothing here can fail.

use std::collections::BTreeSet;

use frieze_base::{FastMap, InodeId};
use frieze_hlc::Hlc;
use frieze_wire::edit::{SetState, Xattr};
use frieze_wire::message::{FileKind, VersionKind};
use prost::Message;

use super::{Draft, NameEdit, Tally};
use crate::acl::kept_value;
use crate::apply::TxnRun;
use crate::attributes::PLUGIN_XATTR;
use crate::inode::{FileLayout, Inode, without_set_id};
use crate::key::VersionKey;
use crate::namespace::Namespace;
use crate::patch::Patch;
use crate::stored::StoredXattr;

impl Namespace {
    /// Everything is checked: nothing fails any more.
    pub(super) fn apply_edit(&mut self, run: &mut TxnRun<'_>, draft: Draft<'_>) {
        let Draft { cause, brought, new, numbers, names, tallies, states, keeps_times, policy } = draft;
        let stamp = run.stamp;
        for (id, (mut inode, xattrs)) in brought {
            inode.layout = self.share(FileLayout::clone(&inode.layout));
            self.keep_orphan(inode.orphaned().unwrap_or(Hlc::ZERO), id, inode.is_directory());
            self.inodes.insert(id, inode);
            if !xattrs.is_empty() {
                self.xattrs.insert(id, xattrs);
                self.quota_changed(id);
            }
        }
        let mut times: Vec<(InodeId, i64)> = Vec::new();
        let shares = new.iter().any(|(_, asked)| !asked.shares.is_empty());
        if shares || states.iter().any(|(_, state, _)| !state.shares.is_empty()) {
            self.retention.changes.shares += 1;
        }
        for (id, (mut inode, asked)) in numbers.ids.into_iter().zip(new) {
            if keeps_times && inode.is_directory() {
                times.push((id, inode.mtime_ns));
            }
            inode.layout = self.share(FileLayout::clone(&inode.layout));
            self.count_made(id);
            self.inodes.insert(id, inode);
            self.numbers.note(id);
            self.alive += 1;
            self.change_xattrs(run, id, &asked.xattrs);
        }
        // What comes back has its count before anything is counted in it.
        for (&id, tally) in &tallies {
            let inode = self.edit(run, id);
            inode.ctime = stamp;
            if let Some(since) = inode.orphaned().filter(|_| tally.gains.len() > tally.losses.len()) {
                let extra = inode.extra_mut();
                extra.orphaned = Hlc::ZERO;
                extra.also_in.clear();
                inode.parent = InodeId::default();
                inode.links = if inode.is_directory() { 2 } else { 0 };
                self.orphans.remove(&(since, id));
                self.alive += 1;
            }
        }
        let mut told: FastMap<InodeId, &[u8]> = FastMap::default();
        let is_directory = |kind: FileKind| kind == FileKind::Directory;
        for naming in &names {
            let NameEdit { directory, name, old, new } = *naming;
            if let Some(old) = old {
                if new.is_none() {
                    self.clear_entry(run, directory, name);
                }
                told.entry(old.inode()).or_insert(name);
            }
            if let Some((id, kind)) = new {
                self.set_entry(run, directory, name, id, kind);
                run.add_link(id, directory, name);
                told.insert(id, name);
            }
            let gained = u32::from(new.is_some_and(|(_, kind)| is_directory(kind)));
            let lost = u32::from(old.is_some_and(|old| is_directory(old.kind())));
            self.subdirectories_changed(run, directory, (gained, lost));
        }
        for (id, mtime_ns) in times {
            self.edit(run, id).mtime_ns = mtime_ns;
        }
        for (id, tally) in tallies {
            self.count_names(run, id, &tally);
        }
        let shared: BTreeSet<InodeId> = states.iter().map(|(id, ..)| *id).collect();
        let gets_policy = states.iter().any(|(_, state, _)| state.gets_policy);
        let policy = gets_policy.then(|| self.take_policy(run, policy));
        for (id, state, patches) in states {
            if let Some(policy) = policy.filter(|_| state.gets_policy) {
                self.bind_policy(run, id, policy);
            }
            // No attribute that has times changes with a policy.
            if !state.is_only_policy() {
                self.change_state(run, id, state, patches);
            }
            told.entry(id).or_insert(b"");
        }
        let mut told: Vec<_> = told.into_iter().collect();
        told.sort_unstable();
        for (id, name) in told {
            // What has become a part of another file loses its name.
            let goes = cause == VersionKind::Shared && !shared.contains(&id);
            run.note_cause(id, if goes { VersionKind::Unnamed } else { cause }, name);
        }
    }

    /// Brings link count and places of an inode to what its names say.
    fn count_names(&mut self, run: &mut TxnRun<'_>, id: InodeId, tally: &Tally) {
        let inode = self.edit(run, id);
        if inode.is_directory() {
            match tally.gains.last() {
                Some(&parent) => inode.parent = parent,
                None => self.orphan(run, id),
            }
            return;
        }
        inode.links = (inode.links as usize + tally.gains.len() - tally.losses.len()) as u32;
        if inode.links == 0 {
            self.orphan(run, id);
            return;
        }
        for &directory in &tally.losses {
            inode.drop_place(directory);
        }
        for &directory in &tally.gains {
            inode.add_place(directory);
        }
    }

    fn change_state(&mut self, run: &mut TxnRun<'_>, id: InodeId, state: &SetState, patches: Vec<Patch>) {
        let (caller, stamp, lost_upto) = (run.caller, run.stamp, self.lost_upto);
        let is_first = self.inodes.get(id).is_some_and(|inode| inode.from < lost_upto);
        let inode = self.edit(run, id);
        inode.ctime = stamp;
        let writes = state.size.is_some() || !state.shares.is_empty();
        if writes {
            inode.extra_mut().patches = patches;
            if is_first {
                inode.hide_lost(lost_upto);
            }
            inode.mtime_ns = stamp.unix_ns();
            inode.mtime_stamp = stamp;
            if caller.uid != 0 {
                inode.mode = without_set_id(inode.mode);
            }
        }
        match state.size {
            Some(size) if state.extends => inode.size = inode.size.max(size),
            Some(size) => (inode.size, inode.size_as_of) = (size, stamp),
            None => {}
        }
        if state.times_anew && writes {
            inode.begin_times(stamp, (state.origin != 0).then_some((InodeId(state.origin), Hlc(state.origin_at))));
        }
        if state.uid.is_some() || state.gid.is_some() {
            inode.uid = state.uid.unwrap_or(inode.uid);
            inode.gid = state.gid.unwrap_or(inode.gid);
            if !inode.is_directory() {
                inode.mode = without_set_id(inode.mode);
            }
        }
        if let Some(mode) = state.mode {
            inode.mode = mode as u16;
        }
        if let Some(mtime_ns) = state.mtime_ns {
            inode.mtime_ns = mtime_ns;
            inode.mtime_stamp = stamp;
        }
        inode.atime_ns = state.atime_ns.unwrap_or(inode.atime_ns);
        self.change_xattrs(run, id, &state.xattrs);
    }

    fn change_xattrs(&mut self, run: &mut TxnRun<'_>, id: InodeId, xattrs: &[Xattr]) {
        for Xattr { name, value } in xattrs {
            let value = value.as_deref().and_then(|value| kept_value(name, value));
            let all = self.xattrs.entry(id).or_default();
            let stored = match &value {
                Some(value) => {
                    all.insert(name.as_slice().into(), value[..].into());
                    let stored = StoredXattr { value: value.to_vec(), session: run.session.0, uid: run.caller.uid };
                    Some(stored.encode_to_vec())
                }
                None => {
                    all.remove(name.as_slice());
                    None
                }
            };
            if all.is_empty() {
                self.xattrs.remove(&id);
            }
            run.change(VersionKey::Xattr(id, name), stored);
            self.bind_acl(run, id, name, value.as_deref());
            if *name == *PLUGIN_XATTR && self.inodes.unpacked(id).is_some_and(Inode::is_directory) {
                let plugin = value.as_deref().map(|text| String::from_utf8_lossy(text).into_owned());
                self.bind_plugin(run, id, plugin.unwrap_or_default());
            }
        }
    }
}
