//! The change feed: its entries of an interval equal the changes in the model.

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::{Fault, Reason};
use frieze_hlc::Hlc;
use frieze_wire::message::{FileKind, Reply};
use frieze_wire::timeline::{
    CONTENT, Deleted, Diff, Difference, LastExisted, MODE, Sessions, Side, Story, Usage, XATTRS,
};
use frieze_wire::txn::{Op, Target};

use super::{expect_equal, judge_refusal};
use crate::journal::Act;
use crate::model::bytes::Cut;
use crate::model::tree::ROOT;
use crate::violation::{Rule, Verdict, broken};
use crate::witness::Witness;

/// A name: directory, name in it, inode.
type NameAtInstant<'a> = (u64, &'a [u8], u64);

/// Every name at an instant, with its path.
struct NameIndex<'a> {
    all: BTreeMap<NameAtInstant<'a>, Vec<u8>>,
    /// Directories above and at each inode that is one, by inode.
    within: BTreeSet<u64>,
}

impl Witness {
    /// All names at an instant, and the directories at or below `root` then.
    fn names(&self, at: Hlc, root: u64) -> NameIndex<'_> {
        let tree = &self.model.tree;
        let mut names = NameIndex { all: BTreeMap::new(), within: BTreeSet::new() };
        let mut left: Vec<(u64, Vec<u8>, bool)> = vec![(ROOT, Vec::new(), root == ROOT)];
        while let Some((directory, path, within)) = left.pop() {
            if within {
                names.within.insert(directory);
            }
            for (name, id) in tree.list(directory, at) {
                let path = [&path, &b"/"[..], name].concat();
                if tree.node(id, at).is_some_and(|node| node.is_directory()) {
                    left.push((id, path.clone(), within || id == root));
                }
                names.all.insert((directory, name, id), path);
            }
        }
        names
    }

    pub(super) fn judge_diff(&self, ask: &Diff, result: &Result<Reply, Fault>) -> Verdict {
        let tree = &self.model.tree;
        let (from, to) = (Hlc(ask.from), Hlc(ask.to));
        if from < self.earliest() || from > to {
            let reason = if from > to { Reason::InvalidArgument } else { Reason::HistoryExpired };
            return judge_refusal(ask, Err(reason), result);
        }
        let root = match tree.resolve(&ask.target, to) {
            Err(Reason::NotFound) => tree.resolve(&ask.target, from),
            found => found,
        };
        let (root, reply) = match (root, result) {
            (Ok(root), Ok(Reply::Diff(reply))) => (root, reply),
            (Ok(root), Err(fault)) if fault.reason == Reason::HistoryExpired && self.lost_below(root, from, to) => {
                return Ok(());
            }
            (expected, result) => return judge_refusal(ask, expected.map(|_| ()), result),
        };
        let wrong = |words: String| broken(Rule::SameForEver, format!("{ask:?}: {words}; {:?}", reply.differences));
        for side in reply.differences.iter().filter_map(|one| one.before.as_ref()) {
            if tree.horizons.expired(side.inode, from) {
                return wrong(format!("inode {} at {from} is forgotten, and reported", side.inode));
            }
        }
        if reply.hidden || reply.more || reply.incomplete != (self.in_gap(from) || self.in_gap(to)) {
            return wrong(format!("hidden {}, more {}, incomplete {}", reply.hidden, reply.more, reply.incomplete));
        }
        let (before, after) = (self.names(from, root), self.names(to, root));
        let gone = || before.all.iter().filter(|(name, _)| !after.all.contains_key(*name));
        let came = || after.all.iter().filter(|(name, _)| !before.all.contains_key(*name));
        // A rename into or out of the requested part lists both sides; names outside are not listed.
        let side = |side: &Option<Side>| side.as_ref().map(|side| (side.path.clone(), side.inode));
        // A name below a renamed directory stays the same, with another path.
        let name_of = |names: &NameIndex<'_>, side: &Option<Side>| {
            let side = side.as_ref()?;
            let mut all = names.all.iter();
            all.find(|(name, path)| name.2 == side.inode && **path == side.path)
                .map(|(name, _)| (name.0, name.1.to_vec(), name.2))
        };
        let mut reported: [BTreeSet<(Vec<u8>, u64)>; 2] = Default::default();
        let mut same = BTreeSet::new();
        for one in &reply.differences {
            self.check_author(one, from, to).or_else(wrong)?;
            let (old, new) = (name_of(&before, &one.before), name_of(&after, &one.after));
            let of_root = one.after.as_ref().is_some_and(|after| after.inode == ROOT);
            if of_root || (old.is_some() && old == new) {
                same.extend(old);
                continue;
            }
            reported[0].extend(side(&one.before));
            reported[1].extend(side(&one.after));
        }
        let all: [BTreeSet<(Vec<u8>, u64)>; 2] = [
            gone().map(|((_, _, id), path)| (path.clone(), *id)).collect(),
            came().map(|((_, _, id), path)| (path.clone(), *id)).collect(),
        ];
        let own = |id: u64| id == root;
        let inside: [BTreeSet<(Vec<u8>, u64)>; 2] = [
            gone()
                .filter(|((parent, _, id), _)| before.within.contains(parent) || own(*id))
                .map(|((_, _, id), path)| (path.clone(), *id))
                .collect(),
            came()
                .filter(|((parent, _, id), _)| after.within.contains(parent) || own(*id))
                .map(|((_, _, id), path)| (path.clone(), *id))
                .collect(),
        ];
        for end in 0..2 {
            if let Some(missing) = inside[end].difference(&reported[end]).next() {
                return wrong(format!("{missing:?} {} and is not reported", ["went", "came"][end]));
            }
            if let Some(more) = reported[end].difference(&all[end]).next() {
                return wrong(format!("{more:?} is reported, and {} not", ["went", "came"][end]));
            }
        }
        for one in &reply.differences {
            self.check_flags(one, from, to).or_else(wrong)?;
        }
        // A changed inode whose name stays is listed.
        let stays = before.all.iter().filter(|(name, _)| after.all.contains_key(*name));
        for ((parent, name, id), _) in stays {
            let inside = before.within.contains(parent) || after.within.contains(parent) || own(*id);
            let reported = !inside || same.contains(&(*parent, name.to_vec(), *id));
            if !reported && self.has_changed(*id, from, to) {
                return wrong(format!("inode {id} was changed and is not reported"));
            }
        }
        Ok(())
    }

    /// True if something at or below `root` at either end is forgotten as it was at the first.
    fn lost_below(&self, root: u64, from: Hlc, to: Hlc) -> bool {
        let horizons = &self.model.tree.horizons;
        let lost = |at: Hlc| {
            let names = self.names(at, root);
            let below = |parent: &u64| names.within.contains(parent);
            names.all.keys().any(|(parent, _, id)| {
                // A rename lists the old place of the name, where it was before, and the new one, where it was not yet.
                let homes = || [from, to].into_iter().flat_map(|end| self.model.tree.homes(*id, end));
                let reported = || homes().chain([*parent, *id]);
                (below(parent) || *id == root) && reported().any(|id| horizons.expired(id, from))
            })
        };
        horizons.expired(root, from) || lost(from) || lost(to)
    }

    /// True if `root`, or anything below it, is forgotten at an instant.
    pub(super) fn holds_lost(&self, root: u64, at: Hlc) -> bool {
        let names = self.names(at, root);
        let below = names.all.keys().filter(|(parent, ..)| names.within.contains(parent)).map(|(_, _, id)| *id);
        below.chain([root]).any(|id| self.model.tree.horizons.expired(id, at))
    }

    /// True if bytes, length, mode or attributes differ.
    fn has_changed(&self, id: u64, from: Hlc, to: Hlc) -> bool {
        let tree = &self.model.tree;
        let (Some(old), Some(new)) = (tree.node(id, from), tree.node(id, to)) else { return false };
        old.mode != new.mode || old.xattrs != new.xattrs || self.bytes_differ(id, from, to)
    }

    fn bytes_differ(&self, id: u64, from: Hlc, to: Hlc) -> bool {
        let tree = &self.model.tree;
        let is_file = tree.node(id, to).is_some_and(|node| node.kind == FileKind::File);
        let size = |upto: Hlc| tree.bytes(id).size(Cut { upto, without: &[] });
        is_file && (size(from) != size(to) || tree.differing((id, from), (id, to), size(to)).is_some())
    }

    /// A difference names the change that made it.
    fn check_author(&self, one: &Difference, from: Hlc, to: Hlc) -> Result<(), String> {
        let stamp = Hlc(one.stamp);
        let author = self.journal.stamped(stamp).map(|effect| effect.session);
        match stamp > from && stamp <= to && author == Some(one.session) {
            true => Ok(()),
            false => Err(format!("{one:?} is by session {author:?}")),
        }
    }

    fn check_flags(&self, one: &Difference, from: Hlc, to: Hlc) -> Result<(), String> {
        let tree = &self.model.tree;
        let (Some(old), Some(new)) = (&one.before, &one.after) else { return Ok(()) };
        if old.inode != new.inode {
            return Ok(());
        }
        let id = new.inode;
        let (Some(before), Some(after)) = (tree.node(id, from), tree.node(id, to)) else {
            return Err(format!("inode {id} is not at both ends"));
        };
        let flag = |flag: u32| one.flags & flag != 0;
        if flag(MODE) != (before.mode != after.mode) || flag(XATTRS) != (before.xattrs != after.xattrs) {
            return Err(format!("{one:?} has wrong flags"));
        }
        let sizes = [from, to].map(|upto| tree.bytes(id).size(Cut { upto, without: &[] }));
        if after.kind == FileKind::File && [old.size, new.size] != sizes {
            return Err(format!("{one:?} has other lengths than {sizes:?}"));
        }
        if flag(CONTENT) && !tree.bytes(id).is_changed(from, to) {
            return Err(format!("{one:?} was not written to"));
        }
        if !flag(CONTENT) && self.bytes_differ(id, from, to) {
            return Err(format!("{one:?} was written to"));
        }
        // Outside the spans both hold the same.
        let mut at = 0;
        for span in one.spans.iter().filter(|_| !one.more_spans) {
            if let Some(byte) = self.differing_in(id, from, to, at, span.offset) {
                return Err(format!("{one:?}: byte {byte} differs"));
            }
            at = span.offset + span.len;
        }
        match one.spans.is_empty() || one.more_spans {
            true => Ok(()),
            false => match self.differing_in(id, from, to, at, sizes[0].max(sizes[1])) {
                Some(byte) => Err(format!("{one:?}: byte {byte} differs")),
                None => Ok(()),
            },
        }
    }

    /// The first byte of a range that differs at two instants.
    fn differing_in(&self, id: u64, from: Hlc, to: Hlc, start: u64, end: u64) -> Option<u64> {
        let bytes = self.model.tree.bytes(id);
        let pieces = |upto: Hlc| bytes.pieces(Cut { upto, without: &[] }, start, end, 0);
        let ranges = [pieces(from), pieces(to)].concat();
        ranges.into_iter().find_map(|(at, piece)| {
            let len = piece.len() as u64;
            let [old, new] = [from, to].map(|upto| bytes.read(Cut { upto, without: &[] }, at, len));
            let byte = |bytes: &[u8], at: usize| bytes.get(at).copied().unwrap_or(0);
            (0..piece.len()).find(|i| byte(&old, *i) != byte(&new, *i)).map(|i| at + i as u64)
        })
    }

    pub(super) fn judge_story(&self, ask: &Story, result: &Result<Reply, Fault>) -> Verdict {
        let (after, upto) = (Hlc(ask.after), Hlc(ask.upto));
        let tree = &self.model.tree;
        let root = self.led(&ask.target, ask.view).and_then(|(id, node)| match node.is_directory() {
            true => Ok(id),
            false => Err(Reason::NotDirectory),
        });
        let (root, reply) = match (root, result) {
            (Ok(root), Ok(Reply::Story(reply))) => (root, reply),
            (expected, result) => return judge_refusal(ask, expected.map(|_| ()), result),
        };
        let wrong = |words: String| broken(Rule::SameForEver, format!("{ask:?}: {words}; {:?}", reply.events));
        let reported_upto = Hlc(reply.upto);
        let horizons = &tree.horizons;
        let is_kept = |ids: &[u64], at: Hlc| ids.iter().all(|id| !horizons.expired(*id, at));
        // Expired history of the directory is left out, and the answer says so.
        let told_before = reply.forgotten.map_or(Hlc::ZERO, |forgotten| Hlc(forgotten.before));
        if told_before < horizons.before(root) && horizons.before(root) > after {
            return wrong(format!("tells of {:?}", reply.forgotten));
        }
        let after = after.max(told_before.previous().min(upto));
        if reply.hidden || reported_upto > upto || (reported_upto < upto && reported_upto <= after) {
            return wrong(format!("hidden {}, reported up to {reported_upto}", reply.hidden));
        }
        if !reply.events.is_sorted_by_key(|event| event.stamp) {
            return wrong("events out of order".to_owned());
        }
        for event in &reply.events {
            self.check_author(event, after, reported_upto).or_else(wrong)?;
            let lost =
                |side: &Option<Side>| side.as_ref().is_some_and(|side| horizons.expired(side.inode, Hlc(event.stamp)));
            if lost(&event.after) {
                return wrong(format!("{event:?} is forgotten, and reported"));
            }
        }
        // Every name that came or went at a stamp is an event of that stamp.
        for effect in self.journal.effects.iter().filter(|one| one.stamp > after && one.stamp <= reported_upto) {
            let stamp = effect.stamp;
            let events = || reply.events.iter().filter(|event| event.stamp == stamp.0);
            let is_inside = |parent: u64, at: Hlc| match ask.recursive {
                true => root == ROOT || self.names(at, root).within.contains(&parent),
                false => parent == root,
            };
            for (parent, name) in tree.names_changed(stamp) {
                let ends = [(stamp.previous(), true), (stamp, false)];
                for (at, before) in ends {
                    let Some(id) = tree.entry(parent, name, at).filter(|_| is_inside(parent, at)) else { continue };
                    // Both directories of a rename list it, or neither.
                    let homes: Vec<u64> = ends.iter().flat_map(|(at, _)| tree.homes(id, *at)).collect();
                    if !is_kept(&[parent, id], stamp) || !is_kept(&homes, stamp) {
                        continue;
                    }
                    let side = |event: &Difference| match before {
                        true => event.before.clone(),
                        false => event.after.clone(),
                    };
                    let fits = |side: &Side| side.inode == id && side.path.ends_with(name);
                    if !events().any(|event| side(event).as_ref().is_some_and(fits)) {
                        let words = format!("{:?} in {parent} at {at}", String::from_utf8_lossy(name));
                        return wrong(format!("{words} is inode {id}, which is not reported"));
                    }
                }
            }
            if let Act::Write { inode, .. } = &effect.act {
                let named = self.names(stamp, root);
                let inside = named.all.keys().any(|(parent, _, id)| {
                    id == inode
                        && is_kept(&[*parent, *id], stamp)
                        && match ask.recursive {
                            true => named.within.contains(parent),
                            false => *parent == root,
                        }
                });
                let reported = reply.events.iter().any(|event| {
                    let is_it = event.after.as_ref().is_some_and(|side| side.inode == *inode);
                    is_it && event.stamp >= stamp.0 && event.session == effect.session && event.flags & CONTENT != 0
                });
                if inside && !reported {
                    return wrong(format!("a write to {inode} at {stamp} is not reported"));
                }
            }
        }
        Ok(())
    }

    pub(super) fn judge_deleted(&self, ask: &Deleted, result: &Result<Reply, Fault>) -> Verdict {
        let expected = self.led(&ask.target, ask.view).and_then(|(id, node)| match node.is_directory() {
            true => Ok(id),
            false => Err(Reason::NotDirectory),
        });
        let (id, reply) = match (expected, result) {
            (Ok(id), Ok(Reply::Deleted(reply))) => (id, reply),
            (expected, result) => return judge_refusal(ask, expected.map(|_| ()), result),
        };
        let at = ask.view.instant().unwrap_or(Hlc::MAX);
        let session = |stamp: Hlc| self.journal.stamped(stamp).map_or(0, |effect| effect.session);
        let mut known: Vec<_> = self.model.tree.deleted_names(id, at);
        let horizons = &self.model.tree.horizons;
        known.retain(|(_, inode, stamp)| [id, *inode].iter().all(|id| !horizons.expired(*id, stamp.previous())));
        let known: Vec<_> =
            known.into_iter().map(|(name, inode, stamp)| (name.to_vec(), inode, stamp.0, session(stamp))).collect();
        let last = |path: &[u8]| path.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec();
        let found: Vec<_> =
            reply.names.iter().map(|gone| (last(&gone.was.path), gone.was.inode, gone.stamp, gone.session)).collect();
        expect_equal("the names that went", &found, &known)
    }

    /// Every file counts in one directory, the first of its names or its last former one; expired bytes may be freed
    /// already, and count only as far as they are still there.
    pub(super) fn judge_usage(&self, ask: &Usage, result: &Result<Reply, Fault>) -> Verdict {
        let (id, reply) = match (self.led(&ask.target, ask.view), result) {
            (Ok((id, _)), Ok(Reply::Usage(reply))) => (id, reply),
            (expected, result) => return judge_refusal(ask, expected.map(|_| ()), result),
        };
        let tree = &self.model.tree;
        let now = Hlc::MAX;
        let is_directory = |id: u64| tree.node(id, now).is_some_and(|node| node.is_directory());
        // Files whose only name is here, or was the last; those with several are counted in one of their directories.
        let (mut sure, mut perhaps) = (Vec::new(), Vec::new());
        if !is_directory(id) {
            sure.push(id);
        } else if ask.count_max == 0 {
            for other in tree.ids().filter(|other| !is_directory(*other)) {
                let homes = tree.homes(other, now);
                if homes.contains(&id) {
                    (if homes.len() == 1 { &mut sure } else { &mut perhaps }).push(other);
                }
            }
        }
        let files = reply.files + reply.deleted_files;
        let bounds = sure.len() as u64..=(sure.len() + perhaps.len()) as u64;
        if ask.count_max == 0 && !bounds.contains(&files) {
            return broken(Rule::SameForEver, format!("{ask:?} answered {reply:?}, expected {sure:?} of {perhaps:?}"));
        }
        let written = |id: u64, from: Hlc| {
            let writes = tree.bytes(id).writes(Cut::NOW).filter(|(stamp, _)| *stamp >= from);
            writes.map(|(_, write)| write.bytes.len() as u64).sum::<u64>()
        };
        let horizons = &tree.horizons;
        let least: u64 = sure
            .iter()
            .filter(|id| !horizons.is_erased(**id))
            .map(|id| written(*id, horizons.before(*id).next()))
            .sum();
        let most: u64 = sure.iter().chain(&perhaps).map(|id| written(*id, Hlc::ZERO) + self.shared(*id)).sum();
        let reported = reply.live_bytes + reply.history_bytes;
        match ask.count_max == 0 && !(least..=most).contains(&reported) {
            true => broken(
                Rule::SameForEver,
                format!("{ask:?} answered {reply:?}: {reported} bytes, expected {least} to {most}"),
            ),
            false => Ok(()),
        }
    }

    /// Bytes that a file shares with others, or the length of a link.
    fn shared(&self, id: u64) -> u64 {
        let bytes = self.model.tree.bytes(id);
        let link = self.model.tree.node(id, Hlc::MAX).map_or(0, |node| node.target.len() as u64);
        if bytes.edits(Cut::NOW).next().is_some() { link + bytes.live(Cut::NOW) } else { link }
    }

    pub(super) fn judge_last_existed(&self, ask: &LastExisted, result: &Result<Reply, Fault>) -> Verdict {
        let tree = &self.model.tree;
        let target = Target { base: ROOT, path: ask.path.clone(), follow: false };
        match (tree.resolve(&target, Hlc::MAX), result) {
            (Ok(id), Ok(Reply::LastExisted(reply))) => {
                return expect_equal("what is there now", &(reply.at, reply.was.was.inode), &(0, id));
            }
            (Err(Reason::NotFound), _) => {}
            (expected, result) => return judge_refusal(ask, expected.map(|_| ()), result),
        }
        // Links on the way are not followed into the past.
        let names: Vec<&[u8]> = ask.path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).collect();
        let plain = |at: Hlc| names.iter().try_fold(ROOT, |directory, name| tree.entry(directory, name, at));
        let effects = self.journal.effects.iter().rev();
        let expected = effects.map(|effect| effect.stamp.previous()).find_map(|at| Some((at.0, plain(at)?)));
        let ways = |at: Hlc| {
            let ids = names.iter().scan(ROOT, |here, name| Some(std::mem::replace(here, tree.entry(*here, name, at)?)));
            ids.chain(plain(at)).any(|id| tree.horizons.expired(id, at))
        };
        match (expected, result) {
            (Some((at, _)), Err(fault)) if ways(Hlc(at)) && fault.reason == Reason::HistoryExpired => Ok(()),
            (Some((at, _)), _) if ways(Hlc(at)) => {
                broken(Rule::SameForEver, format!("{ask:?} answered {result:?}, which is forgotten"))
            }
            (Some(expected), Ok(Reply::LastExisted(reply))) => {
                expect_equal("where a path last led", &(reply.at, reply.was.was.inode), &expected)
            }
            (None, Err(fault)) if fault.reason == Reason::NotFound => Ok(()),
            (expected, result) => {
                broken(Rule::SameForEver, format!("{ask:?} answered {result:?}, expected {expected:?}"))
            }
        }
    }

    pub(super) fn judge_sessions(&self, ask: &Sessions, result: &Result<Reply, Fault>) -> Verdict {
        let Ok(Reply::Sessions(reply)) = result else {
            return broken(Rule::PromisedErrors, format!("{ask:?} answered {result:?}"));
        };
        let mut known: BTreeMap<u64, u64> = BTreeMap::new();
        for effect in &self.journal.effects {
            match &effect.act {
                Act::Txn(op) if matches!(**op, Op::OpenSession(_)) => drop(known.insert(effect.stamp.0, 0)),
                // Of several that ended in one look after them, only the last stamp is known here.
                Act::Expired => {
                    let reported = reply.sessions.iter().find(|one| one.id == effect.session).map(|one| one.ended);
                    let ended = reported.filter(|ended| (effect.session..=effect.stamp.0).contains(ended));
                    known.insert(effect.session, ended.unwrap_or(effect.stamp.0));
                }
                _ => {}
            }
        }
        // Not every wish to close one is granted: one that comes late, under a number that was acknowledged, is
        // refused.
        for (session, at) in &self.model.closed {
            known.insert(*session, at.0);
        }
        known.retain(|id, ended| *id > ask.after && (*ended == 0 || *ended > ask.since));
        let known: Vec<(u64, u64)> = known.into_iter().collect();
        let found: Vec<(u64, u64)> = reply.sessions.iter().map(|one| (one.id, one.ended)).collect();
        expect_equal("the sessions", &(found, reply.more), &(known, false))
    }
}
