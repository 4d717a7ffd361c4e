//! What an answer may be: the model is asked the same question.
//!
//! A write that nobody was told of yet may be seen or not, but wholly: a read of now is right if it equals the model
//! with some of those writes left out.

mod edit;
mod timeline;

use std::collections::BTreeSet;

use frieze_base::{Fault, Reason, crc32c};
use frieze_hlc::Hlc;
use frieze_wire::message::{
    Answered, Attr, Durability, FileKind, GetXattr, List, ListReply, Log, Now, NowReply, Open, OpenReply, Read,
    ReadLink, ReadReply, Reply, Request, Seek, Stat, StatReply, VersionKind, View,
};
use frieze_wire::txn::Target;

use crate::machine::{Answer, USER};
use crate::model::Ran;
use crate::model::bytes::{Bytes, Cut};
use crate::model::tree::Node;
use crate::violation::{Rule, Verdict, broken};
use crate::witness::{Asked, CHUNK_BYTES, Expect, Handle, Witness};

/// A file as a view shows it.
struct Shown<'a> {
    bytes: &'a Bytes,
    cut: Cut<'a>,
    /// The file holds no record at that user time yet.
    empty: bool,
    /// A later record may still change what the user time shows.
    open: bool,
}

impl Shown<'_> {
    fn size(&self) -> u64 {
        if self.empty { 0 } else { self.bytes.size(self.cut) }
    }

    fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        if self.empty { Vec::new() } else { self.bytes.read(self.cut, offset, len) }
    }
}

impl Witness {
    /// Judges one answer. `at_once`: it was given within the call that asked.
    pub(crate) fn judge(&mut self, asked: &Asked, answer: &Answer, at_once: bool) -> Verdict {
        if crc32c(&answer.payload) != answer.payload_crc {
            return broken(Rule::PromisedErrors, "an answer's payload does not match its checksum");
        }
        if let Err(fault) = &answer.result
            && (self.excused(fault.reason) || self.excuses_request(asked, fault))
        {
            return Ok(());
        }
        let request = asked.ask.body.request.as_ref().expect("simulated clients ask something");
        let header = &asked.ask.header;
        match (&asked.expect, &answer.result) {
            (Expect::Txn { did: Ok(Ran::Txn { stamp, result: Ok(done) }), logged: true }, Ok(Reply::Txn(reply))) => {
                if (reply.stamp, reply.id, reply.existed) != (stamp.0, done.id, done.existed) {
                    return broken(
                        Rule::Linearizable,
                        format!("{request:?} answered {reply:?}, expected {done:?} stamped {stamp}"),
                    );
                }
                if let (Some(attr), true) = (&reply.attr, at_once) {
                    self.check_attr_now(done.id, attr)?;
                }
                let sync = matches!(request, Request::Txn(txn) if txn.durability == Durability::Sync as i32);
                self.told(header.session.0, header.seq.0, sync);
                Ok(())
            }
            (Expect::Txn { did: Ok(Ran::Txn { result: Err(reason), .. }), .. }, Err(fault))
            | (Expect::Txn { did: Err(Err(reason)), .. }, Err(fault))
                if fault.reason == *reason =>
            {
                Ok(())
            }
            (Expect::Txn { did, logged }, result) => broken(
                Rule::Linearizable,
                format!(
                    "{request:?} answered {result:?}, expected {did:?}{}",
                    if *logged { "" } else { " (not logged)" }
                ),
            ),
            (Expect::Write { did: Some(Ran::Wrote { stamp, offset }), .. }, Ok(Reply::Write(reply))) => {
                if (reply.stamp, reply.offset) != (stamp.0, *offset) {
                    return broken(
                        Rule::Linearizable,
                        format!(
                            "{request:?} was written at {} stamped {}, expected {offset} and {stamp}",
                            reply.offset,
                            Hlc(reply.stamp)
                        ),
                    );
                }
                let sync = matches!(request, Request::Write(write) if write.durability == Durability::Sync as i32);
                self.unsure.remove(stamp);
                self.told(header.session.0, header.seq.0, sync);
                Ok(())
            }
            (Expect::Write { did: Some(Ran::Wrote { stamp, offset }), .. }, Ok(Reply::Punch(reply))) => {
                let Request::Punch(punch) = request else {
                    return broken(Rule::PromisedErrors, format!("{request:?} answered {reply:?}"));
                };
                // What ran before is known to the end of its first chunk only.
                let (end, at_least) = (offset + punch.len, (offset / CHUNK_BYTES + 1) * CHUNK_BYTES);
                if reply.stamp != stamp.0 || (reply.upto != end && reply.upto != at_least.min(end)) {
                    let words = format!("{request:?} answered {reply:?}, expected {stamp} and {end}");
                    return broken(Rule::Linearizable, words);
                }
                self.unsure.remove(stamp);
                self.told(header.session.0, header.seq.0, punch.durability == Durability::Sync as i32);
                Ok(())
            }
            (Expect::Write { refusals, .. }, Err(fault)) if refusals.contains(&fault.reason) => Ok(()),
            (Expect::Write { did, refusals }, result) => {
                broken(Rule::Linearizable, format!("{request:?} answered {result:?}, expected {did:?} or {refusals:?}"))
            }
            (Expect::Edit { logged, did }, result) => {
                self.judge_edit(&asked.ask, request, *logged, did.as_ref(), result, at_once)
            }
            (Expect::Sync { count }, Ok(Reply::Done(_))) => {
                // A later answer can cover less than a crash has taken since, never more than there is.
                self.journal.durable_up_to((*count).min(self.journal.effects.len()));
                Ok(())
            }
            (Expect::Sync { .. }, result) => broken(Rule::PromisedErrors, format!("a barrier answered {result:?}")),
            (Expect::Read, result) => self.judge_read(asked, request, result, &answer.payload),
        }
    }

    /// Refusals that any request may meet.
    fn excuses_request(&self, asked: &Asked, fault: &Fault) -> bool {
        let session = asked.ask.header.session.0;
        fault.reason == Reason::UnknownSession && session != 0 && !self.model.sessions.contains_key(&session)
    }

    /// Somebody was told of a change.
    fn told(&mut self, session: u64, seq: u64, sync: bool) {
        let Some(effect) = self.journal.of_request(session, seq) else { return };
        effect.answered = true;
        if sync {
            let mine = |effect: &crate::journal::Effect| effect.session == session && effect.seq == seq;
            let count = self.journal.effects.iter().rposition(mine).map_or(0, |place| place + 1);
            self.journal.durable_up_to(count);
        }
    }

    fn judge_read(
        &mut self,
        asked: &Asked,
        request: &Request,
        result: &Result<Reply, Fault>,
        payload: &[u8],
    ) -> Verdict {
        let view = match request {
            Request::Stat(ask) => ask.view,
            Request::List(ask) => ask.view,
            Request::Open(ask) => ask.view,
            Request::ReadLink(ask) => ask.view,
            Request::GetXattr(ask) => ask.view,
            Request::Log(ask) => ask.view,
            Request::Deleted(ask) => ask.view,
            Request::Diff(ask) => View { at: Some(ask.to), user_at: None },
            Request::Story(ask) => View { at: Some(ask.upto), user_at: None },
            Request::Read(_) | Request::Seek(_) => asked.ask.handle.as_ref().map_or(View::NOW, |handle| handle.view),
            _ => View::NOW,
        };
        if let Some(reason) = self.refuses_instant(view, result) {
            return match result {
                Err(fault) if fault.reason == reason => Ok(()),
                other => broken(Rule::PromisedErrors, format!("{request:?} answered {other:?}, expected {reason:?}")),
            };
        }
        if let (Some(at), false) = (view.instant(), matches!(result, Err(fault) if fault.reason == Reason::Future)) {
            self.newest_answered = self.newest_answered.max(at);
        }
        match (request, result) {
            (Request::Stat(ask), result) => self.judge_stat(ask, result),
            (Request::List(ask), result) => self.judge_list(ask, result),
            (Request::Open(ask), result) => self.judge_open(ask, result),
            (Request::ReadLink(ask), result) => self.judge_link(ask, result),
            (Request::GetXattr(ask), result) => self.judge_xattr(ask, result),
            (Request::Read(ask), result) => self.judge_bytes(asked.ask.handle.as_ref(), asked, ask, result, payload),
            (Request::Seek(ask), result) => self.judge_seek(asked.ask.handle.as_ref(), asked, ask, result),
            (Request::Now(ask), Ok(Reply::Now(reply))) => self.judge_now(ask, reply),
            (Request::Now(ask), Err(fault))
                if fault.reason == Reason::NotFound && !self.model.snapshots.contains_key(&ask.name) =>
            {
                Ok(())
            }
            (Request::Snapshots(_), Ok(Reply::Snapshots(reply))) => {
                let found: Vec<_> = reply.snapshots.iter().map(|one| (one.name.clone(), Hlc(one.at))).collect();
                let known: Vec<_> = self.model.snapshots.iter().map(|(name, at)| (name.clone(), *at)).collect();
                expect_equal("the snapshots", &found, &known)
            }
            (Request::Ping(_), Ok(Reply::Done(_))) | (Request::Status(_), Ok(Reply::Status(_))) => Ok(()),
            (Request::Log(ask), result) => self.judge_log(ask, result),
            (Request::Diff(ask), result) => self.judge_diff(ask, result),
            (Request::Story(ask), result) => self.judge_story(ask, result),
            (Request::Deleted(ask), result) => self.judge_deleted(ask, result),
            (Request::LastSeen(ask), result) => self.judge_last_seen(ask, result),
            (Request::Sessions(ask), result) => self.judge_sessions(ask, result),
            (request, result) => broken(Rule::PromisedErrors, format!("{request:?} answered {result:?}")),
        }
    }

    /// The refusal that an instant has to meet, if it is out of bounds.
    fn refuses_instant(&self, view: View, result: &Result<Reply, Fault>) -> Option<Reason> {
        let at = view.instant()?;
        if at < self.earliest() {
            return Some(Reason::HistoryExpired);
        }
        if at <= self.newest_before {
            return None;
        }
        let reading = frieze_disk::TimeSource::reading(&self.machine.time);
        let slack = reading.error_us.unwrap_or(0) + FUTURE_US_MAX;
        let refused = matches!(result, Err(fault) if fault.reason == Reason::Future);
        match self.excuses.clock {
            // Which wall clock it believes is its own business while that jumps.
            true => refused.then_some(Reason::Future),
            false => (at > Hlc::last_of_micros(reading.wall_us + slack)).then_some(Reason::Future),
        }
    }

    /// Checks what an answer says of itself.
    fn check_answered(&self, view: View, answered: &Answered, open: Option<bool>) -> Verdict {
        let at = view.at.unwrap_or(0);
        if answered.at != at {
            return broken(Rule::SameForEver, format!("asked for {}, answered {}", Hlc(at), Hlc(answered.at)));
        }
        let incomplete = self.in_gap(Hlc(at));
        if at != 0 && answered.incomplete != incomplete {
            return broken(
                Rule::SameForEver,
                format!(
                    "the answer at {} says incomplete = {}, gaps are {:?}",
                    Hlc(at),
                    answered.incomplete,
                    self.gaps
                ),
            );
        }
        match open {
            Some(open) if view.at.is_none() && answered.user_time_open != open => {
                broken(Rule::SameForEver, format!("an answer by user time says open = {}", answered.user_time_open))
            }
            _ => Ok(()),
        }
    }

    /// The combinations of writes that a read of `inode` may leave out.
    fn choices(&self, inode: u64, view: View) -> Vec<Vec<Hlc>> {
        let unsure: Vec<Hlc> = match view.at {
            Some(_) => Vec::new(),
            None => self.unsure.iter().filter(|(_, of)| **of == inode).map(|(stamp, _)| *stamp).collect(),
        };
        let count = 1usize << unsure.len().min(10);
        let choice = |bits: usize| unsure.iter().enumerate().filter(move |(i, _)| bits >> i & 1 == 1).map(|(_, s)| *s);
        (0..count).map(|bits| choice(bits).collect()).collect()
    }

    fn shown<'a>(&'a self, id: u64, node: &Node, view: View, without: &'a [Hlc]) -> Result<Shown<'a>, Reason> {
        let bytes = self.model.tree.bytes(id);
        let cut = Cut { upto: view.instant().unwrap_or(Hlc::MAX), without };
        let Some(user) = view.user_at.filter(|_| node.kind == FileKind::File) else {
            return Ok(Shown { bytes, cut, empty: false, open: false });
        };
        let mut marks = bytes.writes(cut).filter_map(|(stamp, write)| Some((stamp, write.user_time?))).peekable();
        if marks.peek().is_none() {
            return Err(Reason::NoUserTime);
        }
        let last = marks.take_while(|(_, time)| *time <= user).last();
        let open = bytes.newest_user_time(Cut { upto: Hlc::MAX, without }).is_some_and(|newest| newest <= user);
        let upto = last.map_or(Hlc::ZERO, |(stamp, _)| stamp);
        Ok(Shown { bytes, cut: Cut { upto, without }, empty: last.is_none(), open })
    }

    /// Compares attributes with those of the model.
    fn check_attr(&self, id: u64, view: View, attr: &Attr) -> Verdict {
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

    /// The attributes that the model gives; what it does not know is taken from the answer.
    fn expected_attr(&self, id: u64, node: &Node, view: View, without: &[Hlc], attr: &Attr) -> Attr {
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
        }
    }

    fn check_attr_now(&self, id: u64, attr: &Attr) -> Verdict {
        self.check_attr(id, View::NOW, attr)
    }

    /// What a target leads to under a view.
    pub(crate) fn led(&self, target: &Target, view: View) -> Result<(u64, &Node), Reason> {
        let at = view.instant().unwrap_or(Hlc::MAX);
        let id = self.model.tree.resolve(target, at)?;
        let node = self.model.tree.node(id, at).ok_or(Reason::NotFound)?;
        Ok((id, node))
    }

    fn judge_stat(&self, ask: &Stat, result: &Result<Reply, Fault>) -> Verdict {
        match (self.led(&ask.target, ask.view), result) {
            (Ok((id, _)), Ok(Reply::Stat(StatReply { attr, answered }))) => {
                self.check_answered(ask.view, answered, None)?;
                self.check_attr(id, ask.view, attr)
            }
            (expected, result) => judge_refusal(ask, expected.map(|_| ()), result),
        }
    }

    fn judge_list(&self, ask: &List, result: &Result<Reply, Fault>) -> Verdict {
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
            match &entry.attr {
                Some(attr) if attr.kind == entry.kind => self.check_attr(entry.inode, ask.view, attr)?,
                None if !ask.with_attrs => {}
                _ => return broken(Rule::Tree, format!("{ask:?} listed {entry:?}")),
            }
        }
        Ok(())
    }

    fn judge_open(&self, ask: &Open, result: &Result<Reply, Fault>) -> Verdict {
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

    fn judge_link(&self, ask: &ReadLink, result: &Result<Reply, Fault>) -> Verdict {
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

    fn judge_xattr(&self, ask: &GetXattr, result: &Result<Reply, Fault>) -> Verdict {
        let expected = self.led(&ask.target, ask.view).and_then(|(_, node)| match ask.name.is_empty() {
            true => Ok(node.xattrs.keys().flat_map(|name| name.iter().copied().chain([0])).collect()),
            false => node.xattrs.get(&ask.name).cloned().ok_or(Reason::NoAttribute),
        });
        match (expected, result) {
            (Ok(value), Ok(Reply::Bytes(reply))) => expect_equal("an attribute", &reply.value, &value),
            (expected, result) => judge_refusal(ask, expected.map(|_: Vec<u8>| ()), result),
        }
    }

    /// Checks that a handle is still good, and returns the version of its inode.
    fn handled(&self, handle: Option<&Handle>, asked: &Asked) -> Result<(u64, &Node), Vec<Reason>> {
        let handle = handle.expect("bytes are read through a handle");
        if handle.session != asked.ask.header.session.0 {
            return Err(vec![Reason::StaleHandle]);
        }
        let at = handle.view.instant().unwrap_or(Hlc::MAX);
        match self.model.tree.node(handle.inode, at) {
            Some(node) if node.born == handle.born => Ok((handle.inode, node)),
            // It was lost with the power, or another has its number.
            _ => Err(vec![Reason::StaleHandle, Reason::NotFound]),
        }
    }

    fn judge_bytes(
        &self,
        handle: Option<&Handle>,
        asked: &Asked,
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
                (Ok(shown), Ok(Reply::Read(ReadReply { end_of_file, answered }))) => {
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

    fn judge_seek(&self, handle: Option<&Handle>, asked: &Asked, ask: &Seek, result: &Result<Reply, Fault>) -> Verdict {
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
    fn judge_log(&self, ask: &Log, result: &Result<Reply, Fault>) -> Verdict {
        let (id, reply) = match (self.led(&ask.target, ask.view), result) {
            (Ok((id, _)), Ok(Reply::Log(reply))) => (id, reply),
            (expected, result) => return judge_refusal(ask, expected.map(|_| ()), result),
        };
        let until = match (reply.more, reply.versions.last()) {
            (true, Some(last)) => Hlc(last.stamp).previous(),
            _ => Hlc::MAX,
        };
        let told = |kind: VersionKind| {
            let of_kind = reply.versions.iter().filter(move |version| version.kind == kind as i32);
            of_kind.filter(|version| Hlc(version.stamp) <= until)
        };
        let bytes = self.model.tree.bytes(id);
        let all = Cut { upto: until, without: &[] };
        let after = |stamp: &Hlc| stamp.0 > ask.after;
        let writes = bytes.writes(all).filter(|(stamp, _)| after(stamp));
        let known: Vec<_> = writes
            .map(|(stamp, write)| (stamp.0, write.session, write.offset, write.bytes.len() as u64, write.user_time))
            .collect();
        let found: Vec<_> = told(VersionKind::Write)
            .map(|version| (version.stamp, version.session, version.offset, version.len, version.user_time))
            .collect();
        expect_equal("the writes of a log", &found, &known)?;
        let known: Vec<_> = bytes.punches(all).filter(|(stamp, _)| after(stamp)).collect();
        let known: Vec<_> = known.iter().map(|(stamp, punch)| (stamp.0, punch.session, punch.offset)).collect();
        let found: Vec<_> =
            told(VersionKind::Punch).map(|version| (version.stamp, version.session, version.offset)).collect();
        expect_equal("the holes of a log", &found, &known)?;
        let known: Vec<_> = bytes.truncates(all).filter(|(stamp, _)| after(stamp)).map(|(s, len)| (s.0, len)).collect();
        let found: Vec<_> = told(VersionKind::Truncate).map(|version| (version.stamp, version.len)).collect();
        expect_equal("the truncates of a log", &found, &known)?;
        let known: BTreeSet<Hlc> = bytes.edits(all).filter(after).collect();
        let by_edits = [VersionKind::Cloned, VersionKind::Restored, VersionKind::Undone, VersionKind::Shared];
        let found = by_edits.into_iter().flat_map(told).map(|version| Hlc(version.stamp));
        // Of names, too.
        let found: BTreeSet<Hlc> = found.filter(|stamp| known.contains(stamp)).collect();
        expect_equal("the edits of a log", &found, &known)?;
        let sorted = reply.versions.windows(2).all(|pair| pair[0].stamp <= pair[1].stamp);
        expect_equal("the order of a log", &sorted, &true)
    }

    fn judge_now(&self, ask: &Now, reply: &NowReply) -> Verdict {
        let at = Hlc(reply.at);
        if ask.name.is_empty() && at < self.newest_before {
            return broken(Rule::Linearizable, format!("now is {at}, and {} was given", self.newest_before));
        }
        if Hlc(reply.earliest) != self.earliest() {
            return broken(Rule::SameForEver, format!("earliest is {}, was {}", Hlc(reply.earliest), self.earliest()));
        }
        match self.model.snapshots.get(&ask.name) {
            Some(known) => expect_equal("the instant of a snapshot", &at, known),
            None => Ok(()),
        }
    }
}

fn judge_refusal(ask: &dyn std::fmt::Debug, expected: Result<(), Reason>, result: &Result<Reply, Fault>) -> Verdict {
    match (expected, result) {
        (Err(reason), Err(fault)) if fault.reason == reason => Ok(()),
        (expected, result) => broken(Rule::Linearizable, format!("{ask:?} answered {result:?}, expected {expected:?}")),
    }
}

fn expect_equal<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, expected: &T) -> Verdict {
    match found == expected {
        true => Ok(()),
        false => broken(Rule::Linearizable, format!("{what}: {found:?}, expected {expected:?}")),
    }
}

/// Where two answers differ, without printing all of them.
fn differ(expected: &[u8], found: &[u8], size: u64, end_of_file: bool) -> String {
    let at = expected.iter().zip(found).position(|(a, b)| a != b).unwrap_or(expected.len().min(found.len()));
    let near = |bytes: &[u8]| format!("{:02x?}", &bytes[at.min(bytes.len())..bytes.len().min(at + 8)]);
    format!(
        "{} bytes (end of file: {end_of_file}), expected {} of a file of {size}; they part at byte {at}: {} instead of {}",
        found.len(),
        expected.len(),
        near(found),
        near(expected)
    )
}

/// How far above the wall clock and its error an instant may lie (`ClockSettings::future_us_max`).
const FUTURE_US_MAX: u64 = 1_000;
