//! The effects of a call, from the ends of the two logs, and its allowed answers.

use frieze_base::Reason;
use frieze_hlc::Hlc;
use frieze_wire::message::{Reply, Request, Stat, View};
use frieze_wire::txn::{Op, Target};

use super::{Expectation, Witness};
use crate::exchange::{ClientRequest, ConnId, Handle};
use crate::journal::{Act, Effect, LogPlace};
use crate::machine::Marks;
use crate::model::tree::TreeChange;
use crate::violation::{Rule, Verdict, broken};

impl Witness {
    /// Records the effect of a request, and its allowed answers.
    pub(super) fn account(&mut self, ask: &ClientRequest, before: Marks, after: Marks) -> Verdict<Expectation> {
        let entries = after.index - before.index;
        let records = after.records - before.records;
        let request = ask.body.request.as_ref().expect("simulated clients ask something");
        match request {
            Request::Txn(txn) => {
                let op = txn.op.as_ref().expect("simulated transactions do something");
                if entries > 1 || records > 0 {
                    return broken(Rule::Once, format!("{op:?} made {entries} entries and {records} records"));
                }
                self.account_txn(ask, op, entries == 1, before, after)
            }
            Request::Write(write) => self.account_write(ask, write.append, write.offset, before, after),
            Request::Punch(punch) => self.account_punch(ask, punch.offset, punch.len, before, after),
            Request::Clone(_) | Request::Restore(_) | Request::Undo(_) | Request::CopyRange(_) | Request::Forget(_) => {
                self.account_planned(ask, request, before, after)
            }
            Request::Sync(_) => Ok(Expectation::Sync { count: self.journal.effects.len() }),
            _ if entries + records > 0 => {
                broken(Rule::Once, format!("{request:?} made {entries} entries and {records} records"))
            }
            _ => Ok(Expectation::Read),
        }
    }

    fn account_txn(
        &mut self,
        ask: &ClientRequest,
        op: &Op,
        logged: bool,
        before: Marks,
        after: Marks,
    ) -> Verdict<Expectation> {
        let (session, seq, acked) = (ask.header.session.0, ask.header.seq.0, ask.header.acked.0);
        let preview = self.model.preview(session, seq, op);
        let act = Act::Txn(Box::new(op.clone()));
        let effect = Effect::new(LogPlace::Meta(before.index + 1), after.newest, (session, seq, acked), act);
        if !logged {
            self.doubts = vec![effect];
            return Ok(Expectation::Txn { logged, did: preview });
        }
        if preview.is_err() {
            self.check_stamp(after.newest)?;
        }
        let made = if preview == Err(Ok(())) { self.number_of_made(op)? } else { 0 };
        self.journal.effects.push(Effect { made, ..effect });
        let ran = self.model.run(session, seq, acked, op, after.newest);
        Ok(Expectation::Txn { logged, did: Ok(ran) })
    }

    /// The number of the inode that an operation has just created, from the server; 0 if it creates none.
    pub(super) fn number_of_made(&mut self, op: &Op) -> Verdict<u64> {
        let make = match op {
            Op::Make(make) => make,
            Op::Edit(edit) => return self.number_of_made_by_edit(op, edit),
            _ => return Ok(0),
        };
        if !matches!(self.model.tree.decide(op), Ok(TreeChange::Make { .. })) {
            return Ok(0);
        }
        let target = Target { follow: false, ..make.target.clone() };
        let Some(Reply::Stat(reply)) =
            self.machine.look(Request::Stat(Stat { target, view: View::NOW, ..Stat::default() }))
        else {
            return broken(Rule::Linearizable, format!("what {op:?} has made is not there"));
        };
        self.note_made(op, 0, reply.attr.inode)
    }

    /// Notes which numbers the inodes that an operation makes got: the one with this index has `id`. Returns the number
    /// of the first.
    pub(super) fn note_made(&mut self, op: &Op, index: usize, id: u64) -> Verdict<u64> {
        let tree = &mut self.model.tree;
        let expected = tree.numbers_of(op);
        // They follow each other; after a loss of power some are left out, never used twice.
        let left_out = expected.get(index).filter(|expected| **expected != id).map(|expected| {
            let newest = tree.numbers.newest();
            tree.numbers.left_out(*expected, id).filter(|upto| self.skips_ids && *upto >= newest)
        });
        if let Some(Some(upto)) = left_out {
            tree.numbers.leave_out(upto);
        }
        let numbers = tree.numbers_of(op);
        let is_new = numbers.iter().all(|id| self.made.insert(*id));
        if left_out == Some(None) || !is_new || expected.is_empty() {
            let words = format!("an inode was given the number {id}, not {expected:?}; given ever: {:?}", self.made);
            return broken(Rule::Once, words);
        }
        self.skips_ids = false;
        Ok(numbers[0])
    }

    /// Remembers that a transaction of a session was carried out: it lives on this connection, or no more.
    pub(super) fn follow_session(&mut self, conn: ConnId, ask: &ClientRequest, id: u64) {
        let now = self.now();
        let Some(Request::Txn(txn)) = &ask.body.request else { return };
        match txn.op {
            Some(Op::OpenSession(_)) => self.sessions.attach(conn, id, now),
            Some(Op::CloseSession(_)) => self.sessions.forget(ask.header.session.0),
            _ => {}
        }
    }

    /// The allowed refusals of any change through this handle; `None` if it is new and may be accepted.
    pub(super) fn refusals_of_handle(&self, ask: &ClientRequest, handle: &Handle) -> Option<Vec<Reason>> {
        let id = ask.header.session.0;
        let Some(session) = self.model.sessions.get(&id) else {
            // A connection that has spoken for it before is refused for want of a grant.
            let mut refusals = vec![Reason::UnknownSession, Reason::Busy, Reason::StaleHandle];
            // Of a file that was forgotten meanwhile that may be said first: both are so.
            if self.model.tree.kept(handle.inode, Hlc::MAX).is_err() {
                refusals.push(Reason::HistoryExpired);
            }
            return Some(refusals);
        };
        let node = self.model.tree.node(handle.inode, Hlc::MAX);
        if handle.session != id || node.is_none_or(|node| node.born != handle.born) {
            return Some(vec![Reason::StaleHandle]);
        }
        if handle.view.is_past() {
            return Some(vec![Reason::ReadOnly]);
        }
        if self.model.tree.kept(handle.inode, Hlc::MAX).is_err() {
            // Nothing of it is left, so no session gets a grant; a session without one may get only this answer.
            return Some(vec![Reason::HistoryExpired, Reason::Busy]);
        }
        if !handle.write {
            return Some(vec![Reason::AccessDenied]);
        }
        // A late duplicate of a request acknowledged long ago is remembered, or refused; the newest is remembered.
        session.ran.contains_key(&ask.header.seq.0).then(|| match self.is_behind(ask) {
            true => vec![Reason::Busy, Reason::BackwardUserTime],
            false => Vec::new(),
        })
    }

    /// True if the server has received a newer number of the session.
    pub(crate) fn is_behind(&self, ask: &ClientRequest) -> bool {
        self.newest_seq.get(&ask.header.session.0).is_some_and(|newest| *newest > ask.header.seq.0)
    }

    pub(super) fn check_stamp(&mut self, stamp: Hlc) -> Verdict {
        let floor = self.newest_stamp.max(self.newest_answered);
        if stamp <= floor {
            return broken(
                Rule::StampsRise,
                format!(
                    "a change was stamped {stamp}, not above the stamp {} and the answered instant {}",
                    self.newest_stamp, self.newest_answered
                ),
            );
        }
        self.newest_stamp = stamp;
        Ok(())
    }
}
