//! The content of a file, by position, by hole and by version.

use std::collections::BTreeSet;

use frieze_base::{Fault, Reason};
use frieze_hlc::Hlc;
use frieze_wire::message::{FileKind, Log, Open, OpenReply, Read, ReadReply, Reply, Seek, VersionKind, View};

use super::{expect_equal, judge_refusal};
use crate::exchange::Handle;
use crate::model::bytes::{Cut, FileBytes};
use crate::model::tree::InodeVersion;
use crate::violation::{Rule, Verdict, broken};
use crate::witness::{Witness, WitnessedRequest};

/// A file as a view shows it.
pub(super) struct ViewedFile<'a> {
    pub(super) bytes: &'a FileBytes,
    pub(super) cut: Cut<'a>,
    /// The file holds no record at that user time yet.
    pub(super) empty: bool,
    /// A later record may still change the read at this user time.
    pub(super) open: bool,
}

impl ViewedFile<'_> {
    pub(super) fn size(&self) -> u64 {
        if self.empty { 0 } else { self.bytes.size(self.cut) }
    }

    fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        if self.empty { Vec::new() } else { self.bytes.read(self.cut, offset, len) }
    }
}

impl Witness {
    /// The combinations of writes that a read of `inode` may leave out.
    pub(super) fn choices(&self, inode: u64, view: View) -> Vec<Vec<Hlc>> {
        let unsure: Vec<Hlc> = match view.at {
            Some(_) => Vec::new(),
            None => self.unsure.iter().filter(|(_, of)| **of == inode).map(|(stamp, _)| *stamp).collect(),
        };
        let count = 1usize << unsure.len().min(10);
        let choice = |bits: usize| unsure.iter().enumerate().filter(move |(i, _)| bits >> i & 1 == 1).map(|(_, s)| *s);
        (0..count).map(|bits| choice(bits).collect()).collect()
    }

    pub(super) fn shown<'a>(
        &'a self,
        id: u64,
        node: &InodeVersion,
        view: View,
        without: &'a [Hlc],
    ) -> Result<ViewedFile<'a>, Reason> {
        let bytes = self.model.tree.bytes(id);
        let cut = Cut { upto: view.instant().unwrap_or(Hlc::MAX), without };
        let Some(user) = view.user_at.filter(|_| node.kind == FileKind::File) else {
            return Ok(ViewedFile { bytes, cut, empty: false, open: false });
        };
        let tree = &self.model.tree;
        let newest = tree.newest_user_time_of(id, node, Cut { upto: Hlc::MAX, without });
        let open = newest.is_some_and(|newest| newest <= user);
        let (mut id, mut cut, mut node) = (id, cut, node);
        loop {
            let bytes = tree.bytes(id);
            let own = bytes.writes(cut).filter(|(stamp, _)| *stamp > node.times_after);
            let mut marks = own.filter_map(|(stamp, write)| Some((stamp, write.user_time?))).peekable();
            let is_timed = marks.peek().is_some();
            let last = marks.take_while(|(_, time)| *time <= user).last();
            // Before its first user time a clone equals its source, and a restored file its earlier state.
            let below = node.origin.filter(|_| last.is_none()).and_then(|(from, upto)| {
                let cut = Cut { upto, without: &[] };
                let node = tree.node(from, upto)?;
                tree.newest_user_time_of(from, node, cut).map(|_| (from, node, cut))
            });
            if let Some(below) = below {
                (id, node, cut) = below;
                tree.kept(id, cut.upto)?;
                continue;
            }
            if !is_timed {
                return Err(Reason::NoUserTime);
            }
            let upto = last.map_or(Hlc::ZERO, |(stamp, _)| stamp);
            if upto != Hlc::ZERO {
                tree.kept(id, upto)?;
            }
            return Ok(ViewedFile { bytes, cut: Cut { upto, without: cut.without }, empty: last.is_none(), open });
        }
    }

    pub(super) fn judge_open(&self, ask: &Open, result: &Result<Reply, Fault>) -> Verdict {
        let expected = self.led(&ask.target, ask.view).and_then(|(id, node)| match node.kind {
            FileKind::Directory => Err(Reason::IsDirectory),
            FileKind::Symlink => Err(Reason::SymlinkLoop),
            _ if ask.write && ask.view.is_past() => Err(Reason::ReadOnly),
            _ => Ok((id, node)),
        });
        let (id, node) = match expected {
            Ok(found) => found,
            Err(reason) => return judge_refusal(ask, Err(reason), result),
        };
        // Bound to a user time, a write that may or may not count may or may not give the file its first.
        let mut refusal = None;
        for without in self.choices(id, ask.view) {
            match (self.shown(id, node, ask.view, &without), result) {
                (Ok(shown), Ok(Reply::Open(OpenReply { attr, answered, .. }))) => {
                    let wanted = self.expected_attr(id, node, ask.view, &without, attr);
                    if wanted == *attr {
                        return self.check_answered(ask.view, answered, Some(shown.open));
                    }
                    refusal = Some(format!("{wanted:?}"));
                }
                (Err(reason), Err(fault)) if fault.reason == reason => return Ok(()),
                (shown, _) => refusal = Some(format!("{:?}", shown.map(|shown| shown.size()))),
            }
        }
        broken(Rule::Linearizable, format!("{ask:?} answered {result:?}, expected {refusal:?}"))
    }

    /// Checks that a handle is still good, and returns the version of its inode.
    fn handled(&self, handle: Option<&Handle>, asked: &WitnessedRequest) -> Result<(u64, &InodeVersion), Vec<Reason>> {
        let handle = handle.expect("bytes are read through a handle");
        if handle.session != asked.ask.header.session.0 {
            return Err(vec![Reason::StaleHandle]);
        }
        let at = handle.view.instant().unwrap_or(Hlc::MAX);
        if let Err(reason) = self.model.tree.kept(handle.inode, at) {
            return Err(vec![reason]);
        }
        match self.model.tree.node(handle.inode, at) {
            Some(node) if node.born == handle.born => Ok((handle.inode, node)),
            // It was lost with the power, or another has its number.
            _ => Err(vec![Reason::StaleHandle, Reason::NotFound]),
        }
    }

    pub(super) fn judge_bytes(
        &self,
        handle: Option<&Handle>,
        asked: &WitnessedRequest,
        ask: &Read,
        result: &Result<Reply, Fault>,
        payload: &[u8],
    ) -> Verdict {
        let view = handle.map_or(View::NOW, |handle| handle.view);
        let (id, node) = match (self.handled(handle, asked), result) {
            (Ok(found), _) => found,
            (Err(reasons), Err(fault)) if reasons.contains(&fault.reason) => return Ok(()),
            (Err(reasons), result) => {
                return broken(
                    Rule::Linearizable,
                    format!("a read through {handle:?} answered {result:?}, expected {reasons:?}"),
                );
            }
        };
        let (offset, len) = (ask.offset, u64::from(ask.len));
        let mut expected = String::new();
        for without in self.choices(id, view) {
            match (self.shown(id, node, view, &without), result) {
                (Ok(shown), Ok(Reply::Read(ReadReply { end_of_file, answered, .. }))) => {
                    let bytes = shown.read(offset, len);
                    let ends = offset.saturating_add(len) >= shown.size();
                    if bytes == payload && ends == *end_of_file {
                        return self.check_answered(view, answered, Some(shown.open));
                    }
                    expected = differ(&bytes, payload, shown.size(), *end_of_file);
                }
                (Err(reason), Err(fault)) if fault.reason == reason => return Ok(()),
                (shown, result) => {
                    expected = format!("answered {result:?}, expected {:?}", shown.map(|shown| shown.size()));
                }
            }
        }
        broken(Rule::Linearizable, format!("a read of {len} bytes at {offset} of inode {id} at {view:?}: {expected}"))
    }

    pub(super) fn judge_seek(
        &self,
        handle: Option<&Handle>,
        asked: &WitnessedRequest,
        ask: &Seek,
        result: &Result<Reply, Fault>,
    ) -> Verdict {
        let view = handle.map_or(View::NOW, |handle| handle.view);
        let (id, node) = match (self.handled(handle, asked), result) {
            (Ok(found), _) => found,
            (Err(reasons), Err(fault)) if reasons.contains(&fault.reason) => return Ok(()),
            (Err(reasons), result) => {
                return broken(Rule::Linearizable, format!("a seek answered {result:?}, expected {reasons:?}"));
            }
        };
        let mut expected = Vec::new();
        for without in self.choices(id, view) {
            let wanted = self.shown(id, node, view, &without).and_then(|shown| {
                let found = if shown.empty { None } else { shown.bytes.seek(shown.cut, ask.offset, ask.data) };
                found.ok_or(Reason::NotFound)
            });
            match (&wanted, result) {
                (Ok(wanted), Ok(Reply::Seek(found))) if wanted == found => return Ok(()),
                (Err(reason), Err(fault)) if *reason == fault.reason => return Ok(()),
                _ => expected.push(wanted),
            }
        }
        broken(
            Rule::Linearizable,
            format!("{:?} from {} of inode {id}: {result:?}, expected {expected:?}", ask.data, ask.offset),
        )
    }

    /// The versions of a file: every write and every truncate, by stamp, and nothing that never was.
    pub(super) fn judge_log(&self, ask: &Log, result: &Result<Reply, Fault>) -> Verdict {
        let (id, reply) = match (self.led(&ask.target, ask.view), result) {
            (Ok((id, _)), Ok(Reply::Log(reply))) => (id, reply),
            (expected, result) => return judge_refusal(ask, expected.map(|_| ()), result),
        };
        let until = match (reply.more, reply.versions.last()) {
            (true, Some(last)) => Hlc(last.stamp).previous(),
            _ if ask.upto != 0 => Hlc(ask.upto),
            _ => Hlc::MAX,
        };
        let versions_of = |kind: VersionKind| {
            let of_kind = reply.versions.iter().filter(move |version| version.kind == kind as i32);
            of_kind.filter(|version| Hlc(version.stamp) <= until)
        };
        let bytes = self.model.tree.bytes(id);
        let all = Cut { upto: until, without: &[] };
        // Expired history of the file, or of its directory, is left out; the answer says so.
        let told_before = reply.forgotten.map_or(Hlc::ZERO, |forgotten| Hlc(forgotten.before));
        let horizons = &self.model.tree.horizons;
        let at = ask.view.instant().unwrap_or(Hlc::MAX);
        let homes = self.model.tree.homes(id, at).into_iter().map(|home| horizons.before(home));
        let known = [horizons.before(id)].into_iter().chain(homes).any(|before| before == told_before);
        let hides = horizons.before(id).0 > ask.after && told_before < horizons.before(id);
        if hides || (!known && told_before != Hlc::ZERO) {
            return broken(Rule::SameForEver, format!("{ask:?} tells of {:?}", reply.forgotten));
        }
        let since = told_before.previous().0.max(ask.after);
        let after = |stamp: &Hlc| stamp.0 > since;
        let writes = bytes.writes(all).filter(|(stamp, _)| after(stamp));
        let known: Vec<_> = writes
            .map(|(stamp, write)| (stamp.0, write.session, write.offset, write.bytes.len() as u64, write.user_time))
            .collect();
        let found: Vec<_> = versions_of(VersionKind::Write)
            .map(|version| (version.stamp, version.session, version.offset, version.len, version.user_time))
            .collect();
        expect_equal("the writes of a log", &found, &known)?;
        let known: Vec<_> = bytes.punches(all).filter(|(stamp, _)| after(stamp)).collect();
        let known: Vec<_> = known.iter().map(|(stamp, punch)| (stamp.0, punch.session, punch.offset)).collect();
        let found: Vec<_> =
            versions_of(VersionKind::Punch).map(|version| (version.stamp, version.session, version.offset)).collect();
        expect_equal("the holes of a log", &found, &known)?;
        let known: Vec<_> = bytes.truncates(all).filter(|(stamp, _)| after(stamp)).map(|(s, len)| (s.0, len)).collect();
        let found: Vec<_> = versions_of(VersionKind::Truncate).map(|version| (version.stamp, version.len)).collect();
        expect_equal("the truncates of a log", &found, &known)?;
        let known: BTreeSet<Hlc> = bytes.edits(all).filter(after).collect();
        let by_edits = [VersionKind::Cloned, VersionKind::Restored, VersionKind::Undone, VersionKind::Shared];
        let found = by_edits.into_iter().flat_map(versions_of).map(|version| Hlc(version.stamp));
        // Of names, too.
        let found: BTreeSet<Hlc> = found.filter(|stamp| known.contains(stamp)).collect();
        expect_equal("the edits of a log", &found, &known)?;
        let sorted = reply.versions.windows(2).all(|pair| pair[0].stamp <= pair[1].stamp);
        expect_equal("the order of a log", &sorted, &true)
    }
}

/// Where two answers differ, without printing all of them.
fn differ(expected: &[u8], found: &[u8], size: u64, end_of_file: bool) -> String {
    let at = expected.iter().zip(found).position(|(a, b)| a != b).unwrap_or(expected.len().min(found.len()));
    let near = |bytes: &[u8]| format!("{:02x?}", &bytes[at.min(bytes.len())..bytes.len().min(at + 8)]);
    format!(
        "{} bytes (end of file: {end_of_file}), expected {} of a file of {size}; they part at byte {at}: {} instead of \
         {}",
        found.len(),
        expected.len(),
        near(found),
        near(expected)
    )
}
