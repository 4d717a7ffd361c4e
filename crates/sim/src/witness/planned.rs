//! Requests that the server turns into a transaction, edits and expiries: the transaction is in its log.

use frieze_base::Reason;
use frieze_hlc::Hlc;
use frieze_wire::edit::{Edit, StagedParts};
use frieze_wire::forget::{Forget, Horizon};
use frieze_wire::txn::{Op, Transaction};

use prost::Message;

use super::{CHUNK_BYTES, Witness};
use crate::journal::{Act, Effect, LogPlace};
use crate::violation::{Rule, Verdict, broken};

impl Witness {
    /// The server's transaction for the request of `effect`; `None` if the disk stopped before it could be read.
    pub(super) fn planned(&self, effect: &Effect, index: u64) -> Verdict<Option<(Hlc, Op)>> {
        let Some((stamp, batch)) = self.machine.logged(index) else {
            return match self.machine.is_dying() {
                true => Ok(None),
                false => broken(Rule::Durable, format!("entry {index} is said to be in the log, and cannot be read")),
            };
        };
        let one = match <[Transaction; 1]>::try_from(batch.transactions) {
            Ok([one]) => one,
            Err(all) => return broken(Rule::Once, format!("a request is one of {} transactions", all.len())),
        };
        let named = (one.session, one.seq) == (effect.session, effect.seq);
        match one.op {
            Some(Op::Edit(edit)) if named => match edit.staged {
                Some(staged) => Ok(Some((stamp, Op::Edit(self.whole_edit(edit, staged, index)?)))),
                None => Ok(Some((stamp, Op::Edit(edit)))),
            },
            Some(op @ Op::Forget(_)) if named => Ok(Some((stamp, op))),
            Some(Op::StageEdit(stage)) if (one.session, stage.request) == (effect.session, effect.seq) => {
                Ok(Some((stamp, Op::StageEdit(stage))))
            }
            other => broken(
                Rule::Once,
                format!("for request {} of session {} the log has {other:?}", effect.seq, effect.session),
            ),
        }
    }

    /// An edit with its parts, which are the entries just before it.
    fn whole_edit(&self, edit: Edit, staged: StagedParts, index: u64) -> Verdict<Edit> {
        let mut whole = Edit::default();
        for part in 0..staged.count {
            let found = self.machine.logged(index - u64::from(staged.count) + u64::from(part));
            let op = found.and_then(|(_, batch)| batch.transactions.into_iter().next()).and_then(|one| one.op);
            match op {
                Some(Op::StageEdit(stage)) if (stage.plan, stage.part) == (staged.plan, part) => {
                    if let Err(error) = whole.merge(stage.edit.as_slice()) {
                        return broken(Rule::Once, format!("part {part} of an edit: {error}"));
                    }
                }
                other => return broken(Rule::Once, format!("part {part} of the edit at entry {index} is {other:?}")),
            }
        }
        let Edit { kind, at, keeps_times, brought, new, names, states, .. } = edit;
        let rest = (brought.len(), new.len(), names.len(), states.len());
        if rest != (0, 0, 0, 0) || whole.new.len() as u64 != staged.new {
            return broken(Rule::Once, format!("an edit of {staged:?} has {rest:?} beside them"));
        }
        Ok(Edit { kind, at, keeps_times, ..whole })
    }

    /// The transaction that a restart found in the log for a request during which the server crashed.
    pub(super) fn planned_in_doubt(&mut self, doubt: Effect) -> Verdict<Effect> {
        let LogPlace::Meta(index) = doubt.place else { return Ok(doubt) };
        if let Act::Expired = &doubt.act {
            let due: Vec<u64> = self.model.sessions.keys().copied().collect();
            let Some((stamp, session)) = self.ended(index, &due)? else {
                return broken(Rule::Durable, format!("entry {index} was recovered and cannot be read"));
            };
            return Ok(Effect { stamp, session, ..doubt });
        }
        let Act::Planned = &doubt.act else { return Ok(doubt) };
        match self.planned(&doubt, index)? {
            Some((stamp, Op::StageEdit(_))) => Ok(Effect { stamp, seq: 0, acked: 0, act: Act::Staged, ..doubt }),
            Some((stamp, op)) => Ok(Effect { stamp, act: Act::Txn(Box::new(op)), ..doubt }),
            None => broken(Rule::Durable, format!("entry {index} was recovered and cannot be read")),
        }
    }

    /// Stamp and session of an entry that ends one of these; `None` if the disk stopped before it could be read.
    pub(super) fn ended(&self, index: u64, due: &[u64]) -> Verdict<Option<(Hlc, u64)>> {
        let Some((stamp, batch)) = self.machine.logged(index) else {
            return match self.machine.is_dying() {
                true => Ok(None),
                false => broken(Rule::Durable, format!("entry {index} is said to be in the log, and cannot be read")),
            };
        };
        match &batch.transactions[..] {
            [Transaction { session, op: Some(Op::CloseSession(_)), .. }] if due.contains(session) => {
                Ok(Some((stamp, *session)))
            }
            other => broken(Rule::Once, format!("sessions {due:?} are due to end, and the log has {other:?}")),
        }
    }

    /// An expiry covers exactly the requested part.
    pub(super) fn check_forget(&self, ask: &Forget, op: &Horizon) -> Verdict {
        let wrong = |words: String| broken(Rule::SameForEver, format!("{ask:?}: {words}"));
        if op.before != ask.before {
            return wrong(format!("forgets what was before {}", op.before));
        }
        match self.forgotten_root(ask) {
            Ok(root) if root == op.root => {}
            other => return wrong(format!("is about inode {}, expected {other:?}", op.root)),
        }
        if let Some(open) = op.sessions.iter().find(|session| self.model.sessions.contains_key(&session.id)) {
            return wrong(format!("takes the words of session {}, which is open", open.id));
        }
        self.model.tree.check_horizon(op, CHUNK_BYTES).or_else(wrong)
    }

    /// The file or directory that a forgetting is about.
    pub(crate) fn forgotten_root(&self, ask: &Forget) -> Result<u64, Reason> {
        let tree = &self.model.tree;
        let before = frieze_hlc::Hlc(ask.before);
        let root = match tree.resolve(&ask.target, frieze_hlc::Hlc::MAX) {
            Err(Reason::NotFound) => tree.resolve(&ask.target, before),
            found => found,
        }?;
        // A target that did not exist then has no history to expire.
        tree.node(root, before).map(|_| root).ok_or(Reason::InvalidArgument)
    }
}
