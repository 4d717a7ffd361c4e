//! The target of a path, and its attributes without its bytes.

use frieze_base::{Fault, Reason};
use frieze_hlc::Hlc;
use frieze_wire::message::{Attr, FileKind, GetXattr, List, ListReply, ReadLink, Reply, Stat, StatReply, View};
use frieze_wire::txn::Target;

use super::{expect_equal, judge_refusal};
use crate::machine::USER;
use crate::model::bytes::Cut;
use crate::model::tree::{InodeVersion, ROOT};
use crate::violation::{Rule, Verdict, broken};
use crate::witness::{CHUNK_BYTES, Witness};

impl Witness {
    /// Compares attributes with those of the model.
    pub(super) fn check_attr(&self, id: u64, view: View, attr: &Attr) -> Verdict {
        let at = view.instant().unwrap_or(Hlc::MAX);
        let Some(node) = self.model.tree.node(id, at) else {
            return broken(Rule::Tree, format!("inode {id} is not there at {at}, and has attributes {attr:?}"));
        };
        let mut expected = None;
        for without in self.choices(id, view) {
            let wanted = self.expected_attr(id, node, view, &without, attr);
            if wanted == *attr {
                return Ok(());
            }
            expected = Some(wanted);
        }
        broken(Rule::Tree, format!("at {view:?} inode {id} has {attr:?}, expected {expected:?}"))
    }

    /// The attributes of the model; values that it does not know come from the answer.
    pub(super) fn expected_attr(&self, id: u64, node: &InodeVersion, view: View, without: &[Hlc], attr: &Attr) -> Attr {
        let (size, mtime_ns, newest) = match (node.kind, self.shown(id, node, view, without)) {
            (FileKind::Symlink, _) => (node.target.len() as u64, node.born.unix_ns(), None),
            (FileKind::File, Ok(shown)) if !shown.empty => {
                let mtime_ns = shown.bytes.mtime_ns(shown.cut).unwrap_or(node.born.unix_ns());
                (shown.size(), mtime_ns, shown.bytes.newest_write(shown.cut))
            }
            (FileKind::File, _) => (0, node.born.unix_ns(), None),
            _ => {
                let upto = Cut { upto: view.instant().unwrap_or(Hlc::MAX), without };
                (0, self.model.tree.bytes(id).mtime_ns(upto).unwrap_or(node.born.unix_ns()), None)
            }
        };
        let mtime_ns = match node.kind {
            FileKind::Symlink => {
                let upto = Cut { upto: view.instant().unwrap_or(Hlc::MAX), without };
                self.model.tree.bytes(id).mtime_ns(upto).unwrap_or(mtime_ns)
            }
            _ => mtime_ns,
        };
        let bytes_live = match (node.kind, self.shown(id, node, view, without)) {
            (FileKind::File, Ok(shown)) if !shown.empty => shown.bytes.live(shown.cut),
            (FileKind::File, _) => 0,
            _ => size,
        };
        let ctime_ns = newest.map_or(0, Hlc::unix_ns).max(node.ctime.unix_ns());
        Attr {
            inode: id,
            kind: node.kind as i32,
            mode: node.mode,
            links: node.links,
            uid: USER,
            gid: USER,
            size,
            atime_ns: node.atime_ns,
            mtime_ns,
            ctime_ns: if view.user_at.is_some() { attr.ctime_ns } else { ctime_ns },
            born: node.born.0,
            rdev: 0,
            chunk_bytes: CHUNK_BYTES,
            time_plugin: node.plugin.clone(),
            bytes_live,
            changed: attr.changed,
            has_acl: false,
        }
    }

    pub(super) fn check_attr_now(&self, id: u64, attr: &Attr) -> Verdict {
        self.check_attr(id, View::NOW, attr)
    }

    /// The target of a path under a view.
    pub(crate) fn led(&self, target: &Target, view: View) -> Result<(u64, &InodeVersion), Reason> {
        let at = view.instant().unwrap_or(Hlc::MAX);
        if target.base != ROOT && target.path.first() != Some(&b'/') && self.asker != 0 {
            self.model.tree.approach(target.base, at)?;
        }
        let id = self.model.tree.resolve(target, at)?;
        let node = self.model.tree.node(id, at).ok_or(Reason::NotFound)?;
        Ok((id, node))
    }

    pub(super) fn judge_stat(&self, ask: &Stat, result: &Result<Reply, Fault>) -> Verdict {
        match (self.led(&ask.target, ask.view), result) {
            (Ok((id, _)), Ok(Reply::Stat(StatReply { attr, answered }))) => {
                self.check_answered(ask.view, answered, None)?;
                self.check_attr(id, ask.view, attr)
            }
            (expected, result) => judge_refusal(ask, expected.map(|_| ()), result),
        }
    }

    pub(super) fn judge_list(&self, ask: &List, result: &Result<Reply, Fault>) -> Verdict {
        let expected = match self.led(&ask.target, ask.view) {
            Ok((_, node)) if !node.is_directory() => Err(Reason::NotDirectory),
            other => other,
        };
        let (id, reply) = match (expected, result) {
            (Ok((id, _)), Ok(Reply::List(reply))) => (id, reply),
            (expected, result) => return judge_refusal(ask, expected.map(|_| ()), result),
        };
        let ListReply { entries, more, answered, inode, .. } = reply;
        self.check_answered(ask.view, answered, None)?;
        let at = ask.view.instant().unwrap_or(Hlc::MAX);
        let rest: Vec<(&[u8], u64)> = self
            .model
            .tree
            .list(id, at)
            .filter(|(name, _)| *name > ask.after.as_slice() || ask.after.is_empty())
            .collect();
        let count = if ask.count_max == 0 { 1000 } else { ask.count_max as usize };
        let found: Vec<(&[u8], u64)> = entries.iter().map(|entry| (entry.name.as_slice(), entry.inode)).collect();
        let wanted = &rest[..rest.len().min(count)];
        if found != wanted || *more != (rest.len() > count) || *inode != id {
            return broken(
                Rule::Tree,
                format!("{ask:?} listed {reply:?}, expected {wanted:?} of {} names", rest.len()),
            );
        }
        for entry in entries {
            let forgotten = self.model.tree.horizons.expired(entry.inode, at);
            match &entry.attr {
                // The name belongs to its directory's history, its content does not.
                None if forgotten => {}
                Some(_) if forgotten => return broken(Rule::SameForEver, format!("{ask:?} told {entry:?}: forgotten")),
                Some(attr) if attr.kind == entry.kind => self.check_attr(entry.inode, ask.view, attr)?,
                None if !ask.with_attrs => {}
                _ => return broken(Rule::Tree, format!("{ask:?} listed {entry:?}")),
            }
        }
        Ok(())
    }

    pub(super) fn judge_link(&self, ask: &ReadLink, result: &Result<Reply, Fault>) -> Verdict {
        let target = Target { follow: false, ..ask.target.clone() };
        match (self.led(&target, ask.view), result) {
            (Ok((_, node)), Ok(Reply::Bytes(reply))) if node.kind == FileKind::Symlink => {
                expect_equal("the target of a link", &reply.value, &node.target)
            }
            (Ok((_, node)), result) if node.kind != FileKind::Symlink => {
                judge_refusal(ask, Err(Reason::InvalidArgument), result)
            }
            (expected, result) => judge_refusal(ask, expected.map(|_| ()), result),
        }
    }

    pub(super) fn judge_xattr(&self, ask: &GetXattr, result: &Result<Reply, Fault>) -> Verdict {
        let expected = self.led(&ask.target, ask.view).and_then(|(_, node)| match ask.name.is_empty() {
            true => Ok(node.xattrs.keys().flat_map(|name| name.iter().copied().chain([0])).collect()),
            false => node.xattrs.get(&ask.name).cloned().ok_or(Reason::NoAttribute),
        });
        match (expected, result) {
            (Ok(value), Ok(Reply::Bytes(reply))) => expect_equal("an attribute", &reply.value, &value),
            (expected, result) => judge_refusal(ask, expected.map(|_: Vec<u8>| ()), result),
        }
    }
}
