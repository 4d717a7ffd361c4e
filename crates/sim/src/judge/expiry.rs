//! Allowed answers of an expiry. Its content was checked in the log; every read checks that expired history is then
//! refused or unchanged.

use frieze_base::{Fault, Reason};
use frieze_hlc::Hlc;
use frieze_wire::message::{Reply, Request};

use crate::exchange::ClientRequest;
use crate::model::RequestEffect;
use crate::violation::{Rule, Verdict, broken};
use crate::witness::Witness;

impl Witness {
    pub(super) fn judge_forget(
        &mut self,
        ask: &ClientRequest,
        request: &Request,
        logged: bool,
        did: Option<&RequestEffect>,
        result: &Result<Reply, Fault>,
    ) -> Verdict {
        let Request::Forget(forget) = request else { return Ok(()) };
        let wrong = |expected: &dyn std::fmt::Debug| {
            broken(Rule::PromisedErrors, format!("{request:?} answered {result:?}, expected {expected:?}"))
        };
        let reply = match result {
            Ok(Reply::Forgot(reply)) => reply,
            Ok(_) => return wrong(&"to forget"),
            // Late duplicates of an acknowledged request are computed anew, and then refused.
            Err(fault) if !logged && self.is_behind(ask) && fault.reason != Reason::Internal => return Ok(()),
            Err(fault) if logged => {
                return match did {
                    Some(RequestEffect::Txn { result: Err(reason), .. }) if fault.reason == *reason => Ok(()),
                    did => wrong(&did),
                };
            }
            Err(fault) => {
                let refusals = self.refusals_of_forget(forget.before, self.forgotten_root(forget).err());
                return if refusals.contains(&fault.reason) { Ok(()) } else { wrong(&refusals) };
            }
        };
        let (session, seq) = (ask.header.session.0, ask.header.seq.0);
        let stamp = match (did, logged) {
            (Some(RequestEffect::Txn { stamp, result: Ok(_) }), true) => stamp.0,
            (_, true) => return wrong(&did),
            // After an earlier run nothing is left to expire.
            (_, false) => 0,
        };
        if (reply.stamp, reply.before) != (stamp, forget.before) {
            return wrong(&(stamp, forget.before));
        }
        if !forget.dry_run {
            // The client may use the space for other data after the answer: the change is on disk.
            self.note_answered(session, seq, true);
        }
        if let Ok(root) = self.forgotten_root(forget) {
            let left = self.model.tree.left_alone(root, Hlc(forget.before));
            if !left.contains(&reply.left) {
                return wrong(&format!("{left:?} left alone"));
            }
        }
        Ok(())
    }

    fn refusals_of_forget(&self, before: u64, root: Option<Reason>) -> Vec<Reason> {
        let mut refusals: Vec<Reason> = root.into_iter().collect();
        if Hlc(before) < self.earliest() {
            refusals.push(Reason::HistoryExpired);
        }
        if self.excuses.clock {
            refusals.push(Reason::Future);
        }
        refusals
    }
}
