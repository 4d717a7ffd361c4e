//! Edits in the model: carries out an edit step by step, and compares two states of a tree.

use std::collections::BTreeSet;

use frieze_base::Reason;
use frieze_hlc::Hlc;
use frieze_wire::edit::{Edit, NEW, Share};
use frieze_wire::message::FileKind;

use super::{InodeVersion, Tree, TreeChange};
use crate::model::bytes::{Cut, FileEventKind, SharedRange};

/// A difference between two states of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mismatch {
    /// In nothing.
    Nothing,
    /// The second may hold more names.
    MoreNames,
}

impl Tree {
    pub(super) fn decide_edit(&self, edit: &Edit) -> Result<TreeChange, Reason> {
        for set in edit.names.iter().filter(|set| set.directory & NEW == 0) {
            if self.entry(set.directory, &set.name, Hlc::MAX).unwrap_or(0) != set.expect {
                return Err(Reason::Superseded);
            }
        }
        Ok(TreeChange::Edit { edit: Box::new(edit.clone()) })
    }

    /// Does everything an edit says; returns the number of the first inode it made, or 0.
    pub(super) fn commit_edit(&mut self, edit: &Edit, stamp: Hlc) -> u64 {
        let made = self.numbers.of_edit(edit);
        let number = |id: u64| if id & NEW == 0 { id } else { made[(id & !NEW) as usize] };
        for (new, &id) in edit.new.iter().zip(&made) {
            self.numbers.note(id);
            let kind = FileKind::try_from(new.kind).expect("the server made it");
            let directory = kind == FileKind::Directory;
            let mut node = InodeVersion {
                links: if directory { 2 } else { 0 },
                atime_ns: new.atime_ns,
                target: new.target.clone(),
                plugin: new.plugin.clone(),
                origin: (new.origin != 0).then_some((new.origin, Hlc(new.origin_at))),
                ..super::new_node(kind, new.mode, stamp)
            };
            for xattr in &new.xattrs {
                node.set_xattr(&xattr.name, xattr.value.as_deref());
            }
            self.nodes.entry(id).or_default().set(stamp, node);
            if kind == FileKind::File {
                let shares = new.shares.iter().map(|share| self.shared(share)).collect();
                self.write(id, stamp, FileEventKind::Edit { shares, size: Some(new.size), least: 0 });
            }
            self.write(id, stamp, FileEventKind::Touch { mtime_ns: new.mtime_ns });
        }
        let mut touched: BTreeSet<u64> = BTreeSet::new();
        for set in &edit.names {
            let (directory, inode) = (number(set.directory), number(set.inode));
            let before = self.entry(directory, &set.name, Hlc::MAX).unwrap_or(0);
            if before == inode {
                continue;
            }
            touched.extend([directory, before, inode]);
            let now = (inode != 0).then_some(inode);
            self.set_entry(directory, &set.name, now, stamp);
            if before != 0 && !self.is_directory(before) {
                self.edit(before, stamp, |node| node.links -= 1);
            }
            if inode != 0 {
                let is_directory = self.is_directory(inode);
                self.edit(inode, stamp, |node| match is_directory {
                    true => node.parent = directory,
                    false => node.links += 1,
                });
            }
        }
        touched.remove(&0);
        for id in touched {
            if !self.is_directory(id) {
                continue;
            }
            let parent = self.node(id, Hlc::MAX).map_or(0, |node| node.parent);
            let named = id == super::ROOT || self.list(parent, Hlc::MAX).any(|(_, named)| named == id);
            let below: Vec<u64> = self.list(id, Hlc::MAX).map(|(_, id)| id).collect();
            let below = below.into_iter().filter(|id| self.is_directory(*id)).count() as u32;
            self.edit(id, stamp, |node| node.links = if named { 2 + below } else { 0 });
        }
        // A new directory has the time that the edit names, whatever names it received.
        for (id, new) in made.iter().zip(&edit.new).filter(|_| edit.keeps_times) {
            if self.is_directory(*id) {
                self.write(*id, stamp, FileEventKind::Touch { mtime_ns: new.mtime_ns });
            }
        }
        for state in &edit.states {
            let id = state.inode;
            if state.size.is_some() || !state.shares.is_empty() {
                let shares = state.shares.iter().map(|share| self.shared(share)).collect();
                let (size, least) = match state.extends {
                    true => (None, state.size.unwrap_or(0)),
                    false => (state.size, 0),
                };
                self.write(id, stamp, FileEventKind::Edit { shares, size, least });
            }
            if let Some(mtime_ns) = state.mtime_ns {
                self.write(id, stamp, FileEventKind::Touch { mtime_ns });
            }
            let decides = state.size.is_some() || !state.shares.is_empty();
            self.edit(id, stamp, |node| {
                if state.times_anew && decides {
                    node.begin_times(stamp, (state.origin != 0).then_some((state.origin, Hlc(state.origin_at))));
                }
                node.mode = state.mode.unwrap_or(node.mode);
                node.atime_ns = state.atime_ns.unwrap_or(node.atime_ns);
                for xattr in &state.xattrs {
                    node.set_xattr(&xattr.name, xattr.value.as_deref());
                }
            });
        }
        made.first().copied().unwrap_or(0)
    }

    /// The newest user time of a file, its origin's if it has none of its own.
    pub(crate) fn newest_user_time(&self, id: u64) -> Option<i64> {
        self.newest_user_time_of(id, self.node(id, Hlc::MAX)?, Cut::NOW)
    }

    /// The same of a version of a file, by the writes of a cut.
    pub(crate) fn newest_user_time_of(&self, id: u64, node: &InodeVersion, cut: Cut<'_>) -> Option<i64> {
        let (mut id, mut node, mut cut) = (id, node, cut);
        loop {
            let newest = self.bytes(id).newest_user_time(node.times_after, cut);
            match node.origin {
                Some((from, upto)) if newest.is_none() => {
                    (id, node, cut) = (from, self.node(from, upto)?, Cut { upto, without: &[] });
                }
                _ => return newest,
            }
        }
    }

    /// When a name was changed last.
    pub(crate) fn named_at(&self, directory: u64, name: &[u8]) -> Option<Hlc> {
        self.entries.get(&directory)?.get(name)?.newest()
    }

    /// Names that were changed at a stamp.
    pub(crate) fn names_changed(&self, stamp: Hlc) -> Vec<(u64, &[u8])> {
        let all = self.entries.iter().flat_map(|(parent, names)| names.iter().map(move |name| (*parent, name)));
        let changed = all.filter(|(_, (_, versions))| versions.at(stamp) != versions.at(stamp.previous()));
        changed.map(|(parent, (name, _))| (parent, name.as_slice())).collect()
    }

    /// Names that were once in a directory and are not at an instant: their inodes, and the times of their removal.
    pub(crate) fn deleted_names(&self, directory: u64, at: Hlc) -> Vec<(&[u8], u64, Hlc)> {
        let names = self.entries.get(&directory).into_iter().flatten();
        let gone = names.filter_map(|(name, versions)| {
            let (from, None) = versions.version_at(at)? else { return None };
            Some((name.as_slice(), (*versions.at(from.previous())?)?, *from))
        });
        gone.collect()
    }

    /// Content of a share.
    pub(crate) fn shared(&self, share: &Share) -> SharedRange {
        let end = if share.len == 0 { u64::MAX } else { share.start + share.len };
        let then = cut(Hlc(share.at));
        let pieces = match share.inode {
            0 => Vec::new(),
            inode => {
                let moved = share.start.wrapping_sub(share.offset).cast_signed();
                self.bytes(inode).pieces(then, share.offset, share.offset + (end - share.start), moved)
            }
        };
        SharedRange { start: share.start, end, shows: share.inode != 0, pieces }
    }

    /// Where two states of a tree differ, the first difference in words; `None` if they do not.
    pub(crate) fn compare(&self, one: (u64, Hlc), two: (u64, Hlc), differs: Mismatch) -> Option<String> {
        let mut left = vec![(one.0, two.0, String::new())];
        while let Some((one_id, two_id, path)) = left.pop() {
            let (Some(old), Some(new)) = (self.node(one_id, one.1), self.node(two_id, two.1)) else {
                return Some(format!("{path:?}: inode {one_id} or {two_id} is not there"));
            };
            let of = |node: &InodeVersion| (node.kind, node.mode, node.target.clone(), node.xattrs.clone());
            if of(old) != of(new) {
                return Some(format!("{path:?}: {new:?} instead of {old:?}"));
            }
            match old.kind {
                FileKind::File => {
                    if let Some(words) = self.compare_bytes((one_id, one.1), (two_id, two.1)) {
                        return Some(format!("{path:?}, inode {one_id} and {two_id}: {words}"));
                    }
                    continue;
                }
                FileKind::Directory => {}
                _ => continue,
            }
            for (name, id) in self.list(one_id, one.1) {
                let path = format!("{path}/{}", String::from_utf8_lossy(name));
                match self.entry(two_id, name, two.1) {
                    Some(other) => left.push((id, other, path)),
                    None => return Some(format!("{path:?} is missing")),
                }
            }
            let more = |(name, _): &(&[u8], u64)| self.entry(one_id, name, one.1).is_none();
            if let Some((name, id)) = self.list(two_id, two.1).find(more).filter(|_| differs == Mismatch::Nothing) {
                return Some(format!("{path}/{} is more (inode {id})", String::from_utf8_lossy(name)));
            }
        }
        None
    }

    /// How two states of files differ in length, time and content.
    fn compare_bytes(&self, one: (u64, Hlc), two: (u64, Hlc)) -> Option<String> {
        let of = |(id, upto): (u64, Hlc)| (self.bytes(id).size(cut(upto)), self.bytes(id).mtime_ns(cut(upto)));
        if of(one) != of(two) {
            return Some(format!("length and time {:?} instead of {:?}", of(two), of(one)));
        }
        let byte = self.differing(one, two, of(one).0)?;
        let read = |(id, upto): (u64, Hlc)| self.bytes(id).read(cut(upto), byte, 8);
        Some(format!("byte {byte} of {}: {:02x?} instead of {:02x?}", of(one).0, read(two), read(one)))
    }

    /// The first byte below `size` in which two states of files differ.
    pub(crate) fn differing(&self, one: (u64, Hlc), two: (u64, Hlc), size: u64) -> Option<u64> {
        let [(old, old_cut), (new, new_cut)] = [one, two].map(|(id, upto)| (self.bytes(id), cut(upto)));
        let mut ranges: Vec<(u64, u64)> = [(old, old_cut), (new, new_cut)]
            .iter()
            .flat_map(|(bytes, cut)| bytes.pieces(*cut, 0, size, 0))
            .map(|(at, piece)| (at, piece.len() as u64))
            .collect();
        ranges.sort_unstable();
        ranges.into_iter().find_map(|(at, len)| {
            let (old, new) = (old.read(old_cut, at, len), new.read(new_cut, at, len));
            let byte = |bytes: &[u8], at: usize| bytes.get(at).copied().unwrap_or(0);
            (0..len as usize).find(|i| byte(&old, *i) != byte(&new, *i)).map(|i| at + i as u64)
        })
    }
}

fn cut(upto: Hlc) -> Cut<'static> {
    Cut { upto, without: &[] }
}
