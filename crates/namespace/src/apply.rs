//! Executes transactions: once each, whole or not at all, at a stamp, leaving the versions they made.
//!
//! An operation first checks everything, then changes memory and notes which inodes it touched; at the end every
//! touched inode becomes one version. So a failed operation leaves no trace but its remembered outcome.

use std::borrow::Cow;

use frieze_base::{FastMap, Fault, InodeId, Reason, Seq, SessionId};
use frieze_hlc::Hlc;
use frieze_wire::edit::Edit;
use frieze_wire::message::{FileKind, VersionKind};
use frieze_wire::txn::{Caller, Op, Outcome, Target, Transaction};
use prost::Message;

use crate::cause::StoredCause;
use crate::entry_stamps::{EntryStamp, EntryStampPage};
use crate::error::Error;
use crate::history::KeyVersion;
use crate::inode::Inode;
use crate::key::{Cached, VersionKey};
use crate::model::NameEntry;
use crate::namespace::Namespace;
use crate::read_set::{NoReadSet, ReadSet};
use crate::stored::{StoredEntry, StoredInode, StoredOutcome};
use crate::walk::{FinalLink, NoHistory, PathEnd, PathWalk};

/// Outcomes remembered for one session that does not acknowledge them; it then has to before it goes on. The oldest
/// request comes beside them.
pub const OUTCOMES_REMEMBERED_MAX: usize = 4096;
/// Inodes touched by a transaction that are searched one by one. An edit touches many.
const TOUCHED_SCANNED_MAX: usize = 8;

/// One transaction while it runs.
pub(crate) struct TxnRun<'a> {
    pub(crate) session: SessionId,
    pub(crate) caller: &'a Caller,
    pub(crate) stamp: Hlc,
    pub(crate) changes: &'a mut Vec<KeyVersion>,
    /// Hears what it reads.
    pub(crate) reads: &'a dyn ReadSet,
    touched: Vec<DirtyInode>,
    /// Where in `touched` an inode is; kept once there are many.
    touched_at: FastMap<InodeId, usize>,
}

struct DirtyInode {
    id: InodeId,
    causes: Vec<StoredCause>,
    /// More of it changed than the times of a directory.
    is_edited: bool,
}

/// What an operation that succeeded answers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OpResult {
    pub(crate) id: u64,
    pub(crate) existed: bool,
    /// The other inode of a rename: what had the new name.
    pub(crate) replaced: u64,
}

impl OpResult {
    pub(crate) fn with(id: InodeId) -> OpResult {
        OpResult { id: id.0, ..OpResult::default() }
    }
}

impl Namespace {
    /// Executes one transaction at its stamp and appends the versions it makes to `changes`, at most one for each key.
    ///
    /// A retry (same session and seq) answers the first outcome, with the stamp of the first run, and changes nothing.
    /// `seq` 0 is for the server's own transactions: they are not remembered. Stamps have to rise from call to call.
    /// `reads` hears what an answer with this outcome tells of, beside what was changed.
    ///
    /// # Errors
    /// None: a failure is an [`Outcome`] with a reason, the same on every replica.
    pub fn apply(
        &mut self,
        txn: &Transaction,
        stamp: Hlc,
        changes: &mut Vec<KeyVersion>,
        reads: &dyn ReadSet,
    ) -> Outcome {
        if let Some(first) = self.replies.get(&SessionId(txn.session)).and_then(|r| r.outcomes.get(&txn.seq)) {
            // What it read then is not remembered.
            reads.add_everything();
            return first.clone();
        }
        if let Err(error) = self.admit(txn) {
            return failed(stamp, error);
        }
        self.count_quotas();
        let before = changes.len();
        let mut run = TxnRun {
            session: SessionId(txn.session),
            caller: &txn.caller,
            stamp,
            changes,
            reads,
            touched: Vec::with_capacity(4),
            touched_at: FastMap::default(),
        };
        let result = self.execute(&mut run, txn.op.as_ref());
        match result {
            Ok(_) => {
                self.count_changes(matches!(txn.op, Some(Op::Edit(_))));
                self.seal(run);
                // What is only staged changes nothing, for the session neither.
                if changes.len() > before && !matches!(txn.op, Some(Op::StageEdit(_))) {
                    self.note_change(SessionId(txn.session), changes);
                }
            }
            Err(_) => {
                debug_assert!(run.changes.len() == before && run.touched.is_empty(), "a failure left a trace");
                self.count_nothing();
                if let Some(Op::Edit(Edit { staged: Some(staged), .. })) = &txn.op {
                    self.drop_staged((SessionId(txn.session), Seq(staged.request), staged.plan), stamp, changes);
                }
            }
        }
        let outcome = match result {
            Ok(OpResult { id, existed, replaced }) => {
                Outcome { stamp: stamp.0, id, existed, replaced, ..Outcome::default() }
            }
            Err(error) => failed(stamp, error),
        };
        self.remember(txn, &outcome, changes);
        outcome
    }

    fn admit(&self, txn: &Transaction) -> Result<(), Error> {
        let session = SessionId(txn.session);
        match txn.op {
            Some(
                Op::OpenSession(_) | Op::EraseSessions(_) | Op::RaiseMarks(_) | Op::ExpireRemoved(_) | Op::Format(_),
            ) => return Ok(()),
            _ if !self.sessions.contains_key(&session) => return Err(Error::UnknownSession { session }),
            _ => {}
        }
        let Some(replies) = self.replies.get(&session).filter(|_| txn.seq != 0) else { return Ok(()) };
        if txn.seq < replies.acked {
            return Err(Error::SequenceTooOld { session, seq: txn.seq, acked: replies.acked });
        }
        // The oldest request without an answer always has room, or nothing could be acknowledged any more.
        let acked = replies.acked.max(txn.acked).max(1);
        if txn.seq > acked
            && replies.outcomes.len() >= OUTCOMES_REMEMBERED_MAX
            && replies.outcomes.range(acked..).count() >= OUTCOMES_REMEMBERED_MAX
        {
            return Err(Error::Overloaded { what: "unacknowledged outcomes", max: OUTCOMES_REMEMBERED_MAX });
        }
        Ok(())
    }

    fn execute(&mut self, run: &mut TxnRun<'_>, op: Option<&Op>) -> Result<OpResult, Error> {
        let op = op.ok_or(Error::InvalidArgument { why: "a transaction without an operation" })?;
        if self.format.is_none() && !matches!(op, Op::Format(_) | Op::OpenSession(_) | Op::CloseSession(_)) {
            return Err(Error::NotFormatted);
        }
        match op {
            Op::Format(op) => self.make_root(run, op),
            Op::OpenSession(op) => self.open_session(run, op),
            Op::CloseSession(op) => self.close_session(run, op),
            Op::EraseSessions(op) => self.erase_sessions(run, op),
            Op::Make(op) => self.make(run, op),
            Op::MakeNameless(op) => self.make_nameless(run, op),
            Op::Link(op) => self.link(run, op),
            Op::Remove(op) => self.remove(run, op),
            Op::Rename(op) => self.rename(run, op),
            Op::SetAttr(op) => self.set_attr(run, op),
            Op::SetXattr(op) => self.set_xattr(run, op),
            Op::RemoveXattr(op) => self.remove_xattr(run, op),
            Op::SetAcl(op) => self.set_acl(run, op),
            Op::Grant(op) => self.grant(run, op, false),
            Op::GrantAppend(op) => self.grant(run, op, true),
            Op::Settle(op) => self.settle(run, op),
            Op::SettleAll(op) => self.settle_all(run, op),
            Op::StopWriting(op) => self.stop_writing(run, op),
            Op::MakeSnapshot(op) => self.make_snapshot(run, op),
            Op::DeleteSnapshot(op) => self.delete_snapshot(run, op),
            Op::Edit(op) => self.edit_tree(run, op),
            Op::StageEdit(op) => self.stage_edit(run, op),
            Op::Forget(op) => self.forget(run, op),
            Op::RaiseMarks(op) => self.raise_marks(run, *op),
            Op::ExpireRemoved(op) => self.expire_removed(run, op),
        }
    }

    /// Makes a version of every inode touched.
    fn seal(&mut self, run: TxnRun<'_>) {
        let TxnRun { session, caller, stamp, changes, touched, .. } = run;
        for DirtyInode { id, causes, is_edited } in touched {
            if !is_edited && causes.is_empty() {
                let page = EntryStampPage::new(EntryStamp { stamp, session, uid: caller.uid });
                let value = Some(page.bytes().to_vec());
                changes.push(KeyVersion { key: VersionKey::EntryStamps(id).encode(), stamp, value });
                continue;
            }
            let inode = self.inodes.trimmed(id).expect("what was touched is in memory");
            let has_grants = !inode.grants().is_empty();
            let stored = StoredInode::of(&inode, session, caller.uid, causes);
            changes.push(KeyVersion {
                key: VersionKey::Inode(id).encode(),
                stamp,
                value: Some(stored.encode_to_vec()),
            });
            if has_grants {
                let inode = self.inodes.get_mut(id).expect("just seen");
                inode.extra_mut().made_by = Some(Box::new(stored.into_author()));
            }
            self.inodes.pack(id);
            self.forget_if_done(id);
        }
        self.trim_orphans();
    }

    fn remember(&mut self, txn: &Transaction, outcome: &Outcome, changes: &mut Vec<KeyVersion>) {
        let session = SessionId(txn.session);
        // A session that was just closed, or a close that has to be tried again, has nothing to remember.
        let ends = matches!(txn.op, Some(Op::CloseSession(_)));
        // An edit that was planned on what has changed since is planned again, under the same number.
        let again = outcome.reason == Reason::Superseded as u32;
        if txn.seq == 0 || ends || again || !self.sessions.contains_key(&session) {
            return;
        }
        let stamp = Hlc(outcome.stamp);
        let replies = self.replies.entry(session).or_default();
        // Requests are numbered from 1.
        replies.acked = replies.acked.max(txn.acked).max(1);
        let acked = replies.acked;
        while let Some(first) = replies.outcomes.first_entry().filter(|first| *first.key() < replies.acked) {
            changes.push(KeyVersion {
                key: VersionKey::Outcome(session, Seq(*first.key())).encode(),
                stamp,
                value: None,
            });
            first.remove();
        }
        let stored = StoredOutcome {
            id: outcome.id,
            existed: outcome.existed,
            replaced: outcome.replaced,
            reason: outcome.reason,
            message: outcome.message.clone(),
            acked: replies.acked,
        };
        let key = VersionKey::Outcome(session, Seq(txn.seq)).encode();
        changes.push(KeyVersion { key, stamp, value: Some(stored.encode_to_vec()) });
        replies.outcomes.insert(txn.seq, outcome.clone());
        self.drop_staged_before(session, Seq(acked), stamp, changes);
    }

    pub(crate) fn place(&self, run: &TxnRun<'_>, target: &Target, last: FinalLink) -> Result<PathEnd, Error> {
        let walk = PathWalk { namespace: self, history: &NoHistory, at: None, caller: run.caller, reads: run.reads };
        walk.place(target, last)
    }

    /// The inode a target names, to be changed.
    pub(crate) fn subject(&self, run: &TxnRun<'_>, target: &Target) -> Result<(InodeId, Cow<'_, Inode>), Error> {
        let walk = PathWalk { namespace: self, history: &NoHistory, at: None, caller: run.caller, reads: run.reads };
        let last = if target.follow { FinalLink::Follow } else { FinalLink::Stay };
        let place = walk.place(target, last)?;
        let id = place.found.ok_or_else(|| Error::not_found(&place.name))?.inode();
        run.reads.add(Cached::Inode(id));
        let inode = self.live_inode(id)?;
        if place.slash && !inode.is_directory() {
            return Err(Error::not_directory(&place.name));
        }
        Ok((id, inode))
    }

    pub(crate) fn live_inode(&self, id: InodeId) -> Result<Cow<'_, Inode>, Error> {
        self.kept(id, None)?;
        self.inodes.get(id).ok_or(Error::StaleHandle { inode: id })
    }

    /// An inode to be changed by this transaction, which will become a version of it. The first version of a file since
    /// grants were lost hides what was written under them: whatever the change is, it may let those bytes count.
    pub(crate) fn edit(&mut self, run: &mut TxnRun<'_>, id: InodeId) -> &mut Inode {
        run.touch(id).is_edited = true;
        self.count_before(id);
        let lost_upto = self.lost_upto;
        let inode = self.inodes.get_mut(id).expect("the operation has looked at it");
        if inode.from < lost_upto {
            inode.hide_lost(lost_upto);
        }
        inode.from = run.stamp;
        inode
    }

    /// A name comes to, goes from or changes its meaning in a directory. Its times alone become a stamp of its entries,
    /// not a version of it.
    pub(crate) fn directory_changed(&mut self, run: &mut TxnRun<'_>, id: InodeId) {
        run.touch(id);
        self.inodes.get_mut(id).expect("the operation has looked at it").change_entries(run.stamp);
    }

    /// The same of a directory that gains and loses subdirectories.
    pub(crate) fn subdirectories_changed(&mut self, run: &mut TxnRun<'_>, id: InodeId, (more, fewer): (u32, u32)) {
        self.directory_changed(run, id);
        if (more, fewer) != (0, 0) {
            let links = &mut self.edit(run, id).links;
            // A directory that goes may have fewer than none in between.
            *links = *links + more - fewer;
        }
    }

    pub(crate) fn set_entry(
        &mut self,
        run: &mut TxnRun<'_>,
        directory: InodeId,
        name: &[u8],
        id: InodeId,
        kind: FileKind,
    ) {
        let entry = NameEntry::new(id, kind, run.stamp);
        self.directories.set(directory, name, entry);
        let stored = StoredEntry { inode: id.0, kind: kind as i32, session: run.session.0, uid: run.caller.uid };
        run.change(VersionKey::Entry(directory, name), Some(stored.encode_to_vec()));
    }

    pub(crate) fn clear_entry(&mut self, run: &mut TxnRun<'_>, directory: InodeId, name: &[u8]) {
        self.directories.remove(directory, name).expect("the operation found the name in it");
        run.change(VersionKey::Entry(directory, name), None);
    }

    /// The last name of an inode is gone.
    pub(crate) fn orphan(&mut self, run: &mut TxnRun<'_>, id: InodeId) {
        let stamp = run.stamp;
        let inode = self.edit(run, id);
        inode.links = 0;
        inode.extra_mut().orphaned = stamp;
        let is_directory = inode.is_directory();
        self.keep_orphan(stamp, id, is_directory);
        self.alive -= 1;
    }
}

impl<'a> TxnRun<'a> {
    /// One that is only looked at: nothing is changed.
    pub(crate) fn looking(caller: &'a Caller, stamp: Hlc, changes: &'a mut Vec<KeyVersion>) -> TxnRun<'a> {
        let (session, reads) = (SessionId(0), &NoReadSet);
        TxnRun { session, caller, stamp, changes, reads, touched: Vec::new(), touched_at: FastMap::default() }
    }
}

impl TxnRun<'_> {
    pub(crate) fn change(&mut self, key: VersionKey<'_>, value: Option<Vec<u8>>) {
        self.changes.push(KeyVersion { key: key.encode(), stamp: self.stamp, value });
    }

    /// The inode has a name that no cause of its version [`Inode::named`] has.
    pub(crate) fn add_link(&mut self, id: InodeId, directory: InodeId, name: &[u8]) {
        self.change(VersionKey::Link(id, directory, name), Some(Vec::new()));
    }

    /// Notes why an inode changes, for `log`.
    pub(crate) fn note_cause(&mut self, id: InodeId, kind: VersionKind, name: &[u8]) {
        self.touch(id).causes.push(StoredCause::new(kind, name));
    }

    fn touch(&mut self, id: InodeId) -> &mut DirtyInode {
        let at = match self.touched.len() <= TOUCHED_SCANNED_MAX {
            true => self.touched.iter().position(|touched| touched.id == id),
            false => self.touched_at.get(&id).copied(),
        };
        let at = at.unwrap_or_else(|| {
            self.touched.push(DirtyInode { id, causes: Vec::new(), is_edited: false });
            if self.touched.len() > TOUCHED_SCANNED_MAX {
                let known = self.touched_at.len();
                // A slice, not `skip`, which counts through what it passes over: that took time in the square of it.
                let ids = self.touched[known..].iter().map(|touched| touched.id);
                self.touched_at.extend(ids.zip(known..));
            }
            self.touched.len() - 1
        });
        &mut self.touched[at]
    }
}

fn failed(stamp: Hlc, error: Error) -> Outcome {
    Outcome::failed(stamp, Fault::from(error))
}
