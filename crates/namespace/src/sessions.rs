//! The file system itself, sessions, write grants, named instants.

use std::ops::Range;

use frieze_base::{InodeId, Seq, SessionId};
use frieze_hlc::{Hlc, check_snapshot_name};
use frieze_wire::message::{FileKind, VersionKind};
use frieze_wire::txn::{
    CloseSession, DeleteSnapshot, EraseSessions, Format, Grant, MakeSnapshot, OpenSession, Settle, SettleAll,
    StopWriting,
};
use prost::Message;

use crate::apply::{OpResult, TxnRun};
use crate::attributes::{absorb, file_bytes_max, is_current};
use crate::ended::ENDED_SESSIONS_MAX;
use crate::error::Error;
use crate::history::KeyVersion;
use crate::inode::{FileLayout, Inode, WriteGrant, without_set_id};
use crate::key::{Cached, VersionKey};
use crate::model::{NamedInstant, SessionState};
use crate::namespace::Namespace;
use crate::stored::{StoredFormat, StoredInode, StoredSession, StoredSnapshot};

/// Sessions open at once.
pub const SESSIONS_MAX: usize = 65_536;
/// Named instants.
pub const SNAPSHOTS_MAX: usize = 65_536;
/// Chunks that one request may ask for.
pub const GRANT_CHUNKS_MAX: u32 = 16;
/// Sessions that one transaction erases.
const ERASED_MAX: usize = 1024;
/// Ranges that a grant keeps apart; beyond, the two nearest become one. A grant says where data may be, so a larger one
/// costs a longer search for the end of the file and nothing else.
const GRANT_RANGES_MAX: usize = 32;
/// Longest command and host that a session keeps, bytes; the rest is cut.
const SESSION_TEXT_BYTES_MAX: usize = 1024;
/// Smallest chunk, bytes: below, a file would be all headers. Tests use it; a server has 64 MiB.
const CHUNK_BYTES_MIN: u64 = 4096;
/// Largest chunk, bytes: offsets within it are 32 bits.
const CHUNK_BYTES_MAX: u64 = 1 << 31;

impl Namespace {
    pub(crate) fn make_root(&mut self, run: &mut TxnRun<'_>, op: &Format) -> Result<OpResult, Error> {
        if self.format.is_some() {
            return Err(Error::exists(b"/"));
        }
        if !op.chunk_bytes.is_power_of_two() || !(CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&op.chunk_bytes) {
            return Err(Error::InvalidArgument { why: "a chunk is a power of two from 4 KiB to 2 GiB" });
        }
        if op.chain_count == 0 {
            return Err(Error::InvalidArgument { why: "there is at least one chain" });
        }
        let stamp = run.stamp;
        let layout =
            FileLayout { chunk_bytes: op.chunk_bytes, chain_count: op.chain_count, plugin: String::new(), regime: 0 };
        let root = Inode {
            from: stamp,
            born: stamp,
            ctime: stamp,
            mtime_ns: stamp.unix_ns(),
            mtime_stamp: stamp,
            atime_ns: stamp.unix_ns(),
            size: 0,
            size_as_of: stamp,
            named: Hlc::ZERO,
            parent: InodeId::ROOT,
            layout: self.share(layout),
            links: 2,
            uid: op.uid,
            gid: op.gid,
            mode: (op.mode & 0o7777) as u16,
            kind: FileKind::Directory as u8,
            extra: None,
        };
        self.inodes.insert(InodeId::ROOT, root);
        self.alive = 1;
        run.note_cause(InodeId::ROOT, VersionKind::Make, b"/");
        let Format { chunk_bytes, chain_count, uid, gid, mode } = *op;
        let stored = StoredFormat { chunk_bytes, chain_count, uid, gid, mode };
        run.change(VersionKey::Format, Some(stored.encode_to_vec()));
        self.format = Some(op.clone());
        Ok(OpResult::with(InodeId::ROOT))
    }

    pub(crate) fn open_session(&mut self, run: &mut TxnRun<'_>, op: &OpenSession) -> Result<OpResult, Error> {
        if self.sessions.len() >= SESSIONS_MAX {
            return Err(Error::Overloaded { what: "open sessions", max: SESSIONS_MAX });
        }
        let (command, host) = (cut(&op.command), cut(&op.host));
        let id = SessionId(run.stamp.0);
        let session = SessionState { opened: run.stamp, uid: op.uid, command, host, keeps: op.keeps, unchanging: true };
        run.change(VersionKey::Session(id), Some(StoredSession::of(&session).encode_to_vec()));
        self.sessions.insert(id, session);
        Ok(OpResult { id: id.0, ..OpResult::default() })
    }

    pub(crate) fn close_session(&mut self, run: &mut TxnRun<'_>, op: &CloseSession) -> Result<OpResult, Error> {
        let session = run.session;
        let granted = self.granted(session);
        if op.only_stopped && granted.iter().any(|id| self.may_write(session, *id)) {
            return Err(Error::Busy { what: format!("session {session} writes again: it is not over") });
        }
        if let Some(left) = granted.iter().find(|id| op.settled.iter().all(|settle| settle.inode != id.0)) {
            return Err(Error::Busy {
                what: format!("inode {left} of session {session} is not settled: settle it too"),
            });
        }
        self.check_settled(&op.settled)?;
        for settle in &op.settled {
            self.settle_one(run, settle, false);
        }
        let replies = self.replies.remove(&session).unwrap_or_default();
        for &seq in replies.outcomes.keys() {
            run.change(VersionKey::Outcome(session, Seq(seq)), None);
        }
        self.drop_staged_before(session, Seq(u64::MAX), run.stamp, run.changes);
        match self.sessions.remove(&session) {
            Some(last) if last.unchanging => self.end_unchanging(run, session, &last),
            _ => run.change(VersionKey::Session(session), None),
        }
        Ok(OpResult { id: session.0, ..OpResult::default() })
    }

    /// `appends`: records may reach over the ends of the chunks from the first one on.
    pub(crate) fn grant(&mut self, run: &mut TxnRun<'_>, op: &Grant, appends: bool) -> Result<OpResult, Error> {
        let id = InodeId(op.inode);
        run.reads.add(Cached::Inode(id));
        let inode = self.live_inode(id)?;
        if inode.kind() != FileKind::File {
            return Err(Error::InvalidArgument { why: "only a regular file is written in chunks" });
        }
        if !(1..=GRANT_CHUNKS_MAX).contains(&op.count) {
            return Err(Error::InvalidArgument { why: "a grant is for 1 to 16 chunks" });
        }
        let end = u64::from(op.first) + u64::from(op.count);
        let bytes_max = file_bytes_max(inode.chunk_bytes());
        let bytes = u64::from(op.first) * inode.chunk_bytes();
        if bytes >= bytes_max || end > u64::from(u32::MAX) {
            return Err(Error::TooLarge { what: "an offset", bytes, bytes_max });
        }
        let wanted = op.first..op.first + op.count;
        let keeps_mode = run.caller.uid == 0 || without_set_id(inode.mode) == inode.mode;
        let covered = |grant: &WriteGrant| {
            grant.session == run.session
                && !grant.is_stopped
                && grant.chunks.iter().any(|r| r.start <= wanted.start && wanted.end <= r.end)
        };
        let tells = !appends || inode.reaches_over(op.first);
        if keeps_mode && tells && inode.grants().iter().any(covered) {
            return Ok(OpResult::with(id));
        }
        if inode.orphaned().is_none() {
            self.check_room_to_write(inode.parent, inode.size, bytes..end.saturating_mul(inode.chunk_bytes()))?;
        }
        let (session, stamp) = (run.session, run.stamp);
        let inode = self.edit(run, id);
        if !keeps_mode {
            inode.mode = without_set_id(inode.mode);
            inode.ctime = stamp;
        }
        let extra = inode.extra_mut();
        if appends {
            extra.reaches_from = Some(extra.reaches_from.map_or(op.first, |first| first.min(op.first)));
        }
        match extra.grants.iter_mut().find(|grant| grant.session == session) {
            Some(grant) => {
                add_range(&mut grant.chunks, wanted);
                grant.is_stopped = false;
            }
            None => extra.grants.push(WriteGrant { session, chunks: vec![wanted], is_stopped: false }),
        }
        self.granted.entry(session).or_default().insert(id);
        Ok(OpResult::with(id))
    }

    pub(crate) fn settle(&mut self, run: &mut TxnRun<'_>, op: &Settle) -> Result<OpResult, Error> {
        self.check_settled(std::slice::from_ref(op))?;
        self.settle_one(run, op, op.keep_grant);
        Ok(OpResult { id: op.inode, ..OpResult::default() })
    }

    pub(crate) fn settle_all(&mut self, run: &mut TxnRun<'_>, op: &SettleAll) -> Result<OpResult, Error> {
        self.check_settled(&op.files)?;
        for settle in &op.files {
            self.settle_one(run, settle, settle.keep_grant);
        }
        Ok(OpResult::default())
    }

    /// The grants stay: until they are settled, what was written under them counts.
    pub(crate) fn stop_writing(&mut self, run: &mut TxnRun<'_>, op: &StopWriting) -> Result<OpResult, Error> {
        let session = run.session;
        let goes_on = |grant: &WriteGrant| grant.session == session && !grant.is_stopped;
        for id in op.inodes.iter().copied().map(InodeId) {
            if !self.inodes.get(id).is_some_and(|inode| inode.grants().iter().any(goes_on)) {
                continue;
            }
            let grants = &mut self.edit(run, id).extra_mut().grants;
            grants.iter_mut().filter(|grant| goes_on(grant)).for_each(|grant| grant.is_stopped = true);
        }
        Ok(OpResult::default())
    }

    /// What was measured while writers went on, and on what is not so any more, is measured again.
    fn check_settled(&self, settled: &[Settle]) -> Result<(), Error> {
        let is_old =
            |settle: &&Settle| self.inodes.get(InodeId(settle.inode)).is_some_and(|inode| !is_current(&inode, settle));
        match settled.iter().find(is_old) {
            Some(settle) => Err(Error::Superseded { what: format!("the length of inode {}", InodeId(settle.inode)) }),
            None => Ok(()),
        }
    }

    /// Without a grant of this session there is nothing to settle: a close that is repeated, or that never wrote.
    fn settle_one(&mut self, run: &mut TxnRun<'_>, settle: &Settle, keeps: bool) {
        let id = InodeId(settle.inode);
        let (session, caller) = (run.session, run.caller);
        let Some(inode) = self.inodes.get(id) else { return };
        if inode.grants().iter().all(|grant| grant.session != session) {
            return;
        }
        if !keeps && is_unused(&inode, settle) {
            return self.return_unused(run, id);
        }
        let ctime = inode.ctime;
        self.count_before(id);
        let inode = self.inodes.get_mut(id).expect("just seen");
        let mut changed = absorb(inode, settle);
        if inode.ctime > ctime && caller.uid != 0 {
            // Written after the mode was set, by a user without the right to keep these bits.
            inode.mode = without_set_id(inode.mode);
        }
        if !keeps {
            self.take_grant(session, id);
            changed = true;
        }
        if changed {
            self.edit(run, id);
        }
    }

    /// A session returns a grant under which nothing was written: the version that has the grant is written again
    /// without it. What is read at any instant stays the same, for there are no bytes that the grant let count.
    fn return_unused(&mut self, run: &mut TxnRun<'_>, id: InodeId) {
        self.take_grant(run.session, id);
        let inode = self.inodes.get(id).expect("the grant was found there");
        let (stamp, stored) = (inode.from, StoredInode::of_current(&inode));
        let value = Some(stored.encode_to_vec());
        run.changes.push(KeyVersion { key: VersionKey::Inode(id).encode(), stamp, value });
        self.inodes.trimmed(id);
        self.inodes.pack(id);
        self.forget_if_done(id);
    }

    fn take_grant(&mut self, session: SessionId, id: InodeId) {
        let inode = self.inodes.get_mut(id).expect("the grant was found there");
        inode.extra_mut().grants.retain(|grant| grant.session != session);
        if let Some(files) = self.granted.get_mut(&session) {
            files.remove(&id);
            if files.is_empty() {
                self.granted.remove(&session);
            }
        }
    }

    pub(crate) fn make_snapshot(&mut self, run: &mut TxnRun<'_>, op: &MakeSnapshot) -> Result<OpResult, Error> {
        check_snapshot_name(&op.name)?;
        let at = if op.at == 0 { run.stamp } else { Hlc(op.at) };
        if at > run.stamp {
            return Err(Error::Future { at, now: run.stamp });
        }
        if self.snapshots.contains_key(&op.name) {
            return Err(Error::exists(op.name.as_bytes()));
        }
        if self.snapshots.len() >= SNAPSHOTS_MAX {
            return Err(Error::Overloaded { what: "named instants", max: SNAPSHOTS_MAX });
        }
        let uid = run.caller.uid;
        let own = || self.snapshots.values().filter(|snapshot| snapshot.uid == uid).count();
        if op.count_max != 0 && own() >= op.count_max as usize {
            return Err(Error::SnapshotsFull { uid, max: op.count_max });
        }
        self.check_pinnable(at)?;
        let stored = StoredSnapshot { at: at.0, uid };
        run.change(VersionKey::Snapshot(op.name.as_bytes()), Some(stored.encode_to_vec()));
        let snapshot = NamedInstant { name: op.name.clone(), at, made: run.stamp, uid };
        self.pin(at);
        self.snapshots.insert(op.name.clone(), snapshot);
        Ok(OpResult::default())
    }

    pub(crate) fn delete_snapshot(&mut self, run: &mut TxnRun<'_>, op: &DeleteSnapshot) -> Result<OpResult, Error> {
        let snapshot = self.snapshots.get(&op.name).ok_or_else(|| Error::not_found(op.name.as_bytes()))?;
        if run.caller.uid != 0 && run.caller.uid != snapshot.uid {
            return Err(Error::NotPermitted { why: "only who made a snapshot deletes it" });
        }
        let (at, maker) = (snapshot.at, snapshot.uid);
        self.snapshots.remove(&op.name);
        self.unpin_instant(at);
        self.unpin(run, at, maker);
        run.change(VersionKey::Snapshot(op.name.as_bytes()), None);
        Ok(OpResult::default())
    }
}

impl Namespace {
    /// True if a session that changed nothing ended before `before`, and is still listed.
    pub fn has_ended_before(&self, before: Hlc) -> bool {
        self.ended.first_end().is_some_and(|ended| ended < before)
    }

    /// A session has changed something: its number is in versions that stay.
    pub(crate) fn note_change(&mut self, id: SessionId, changes: &mut Vec<KeyVersion>) {
        let Some(session) = self.sessions.get_mut(&id).filter(|session| session.unchanging) else { return };
        session.unchanging = false;
        changes.push(written_again(id, &StoredSession::of(session)));
    }

    /// A session ends that has changed nothing.
    pub(crate) fn end_unchanging(&mut self, run: &mut TxnRun<'_>, id: SessionId, session: &SessionState) {
        run.changes.push(written_again(id, &StoredSession { ended: run.stamp.0, ..StoredSession::of(session) }));
        self.ended.insert(id, run.stamp);
        while self.ended.len() > ENDED_SESSIONS_MAX {
            run.changes.extend(self.ended.take_first(Hlc::MAX).map(erasure));
        }
    }

    pub(crate) fn erase_sessions(&mut self, run: &mut TxnRun<'_>, op: &EraseSessions) -> Result<OpResult, Error> {
        let before = Hlc(op.before);
        if before > run.stamp {
            return Err(Error::Future { at: before, now: run.stamp });
        }
        for _ in 0..ERASED_MAX {
            let Some(id) = self.ended.take_first(before) else { break };
            run.changes.push(erasure(id));
        }
        Ok(OpResult::default())
    }
}

/// True if nothing was written to a file since its length was settled: the server kept writers out, and found no bytes
/// and no time newer than those of this version.
fn is_unused(inode: &Inode, settle: &Settle) -> bool {
    settle.complete.is_none()
        && settle.mtime_ns == 0
        && settle.size == inode.size
        && Hlc(settle.stamp) <= inode.size_as_of
        && inode.extra.as_ref().is_some_and(|extra| extra.made_by.is_some())
}

/// The one version of a session, in the place of what it was.
fn written_again(id: SessionId, stored: &StoredSession) -> KeyVersion {
    KeyVersion { key: VersionKey::Session(id).encode(), stamp: Hlc(id.0), value: Some(stored.encode_to_vec()) }
}

/// A session's only version goes: see [`crate::erases`].
fn erasure(id: SessionId) -> KeyVersion {
    KeyVersion { key: VersionKey::Session(id).encode(), stamp: Hlc(id.0), value: None }
}

/// Adds a range to sorted ranges that stay apart.
fn add_range(ranges: &mut Vec<Range<u32>>, new: Range<u32>) {
    let first = ranges.partition_point(|range| range.end < new.start);
    let last = ranges.partition_point(|range| range.start <= new.end);
    let merged = ranges[first..last].iter().fold(new, |all, range| all.start.min(range.start)..all.end.max(range.end));
    ranges.splice(first..last, [merged]);
    if ranges.len() > GRANT_RANGES_MAX {
        let gap = |at: &usize| ranges[at + 1].start - ranges[*at].end;
        let nearest = (0..ranges.len() - 1).min_by_key(gap).expect("there are several");
        ranges[nearest].end = ranges[nearest + 1].end;
        ranges.remove(nearest + 1);
    }
}

fn cut(text: &str) -> String {
    let end = (0..=text.len().min(SESSION_TEXT_BYTES_MAX)).rev().find(|&at| text.is_char_boundary(at));
    text[..end.unwrap_or(0)].to_owned()
}

#[cfg(test)]
mod tests;
