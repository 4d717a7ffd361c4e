//! Parts of edits that are too long for one transaction: kept until the edit runs that names them.
//!
//! Guarantees: nothing but the edit itself reads a part; parts are dropped with the edit, with the acknowledgement of
//! their request, and with their session; they are bounded together.
//! Leaves to others: planning and dividing an edit (`service`).

use frieze_base::{Seq, SessionId};
use frieze_hlc::Hlc;
use frieze_wire::edit::{Edit, StageEdit, StagedParts};
use prost::Message;

use crate::apply::{OpResult, TxnRun};
use crate::error::Error;
use crate::history::KeyVersion;
use crate::key::VersionKey;
use crate::namespace::Namespace;
use crate::staged::{PART_BYTES, PlanId, STAGED_BYTES_MAX};

impl Namespace {
    /// Bytes of staged parts of edits, of all sessions.
    pub fn staged_bytes(&self) -> usize {
        self.staged.bytes
    }

    pub(crate) fn stage_edit(&mut self, run: &mut TxnRun<'_>, op: &StageEdit) -> Result<OpResult, Error> {
        let plan = |plan: u64| (run.session, Seq(op.request), plan);
        let (plan, former) = (plan(op.plan), plan(op.former));
        if plan == former {
            return Err(Error::InvalidArgument { why: "a plan that comes after itself" });
        }
        if let Some(acked) = self.replies.get(&run.session).map(|replies| replies.acked).filter(|&at| at > op.request) {
            return Err(Error::SequenceTooOld { session: run.session, seq: op.request, acked });
        }
        // A part that comes again takes its own place.
        let kept = self.staged.bytes - self.staged.bytes_of(&former) - self.staged.part_bytes(&plan, op.part);
        if kept + op.edit.len() + PART_BYTES > STAGED_BYTES_MAX {
            return Err(Error::Overloaded { what: "bytes of large changes under way", max: STAGED_BYTES_MAX });
        }
        self.drop_staged(former, run.stamp, run.changes);
        let (session, request, number) = plan;
        run.change(VersionKey::Staged(session, request, number, op.part), Some(op.edit.clone()));
        self.staged.insert(plan, op.part, op.edit.clone());
        Ok(OpResult::default())
    }

    /// An edit with its staged parts.
    ///
    /// # Errors
    /// `Superseded` if one is missing: it is planned again.
    pub(crate) fn whole_edit(&self, session: SessionId, op: &Edit, staged: &StagedParts) -> Result<Edit, Error> {
        let parts = self.staged.plans.get(&(session, Seq(staged.request), staged.plan));
        let parts = parts.filter(|parts| parts.keys().copied().eq(0..staged.count));
        let parts = parts.ok_or_else(|| Error::Superseded { what: "the list of changes".to_owned() })?;
        let mut whole = Edit::default();
        for part in parts.values() {
            let merged = whole.merge(part.as_slice());
            merged.map_err(|_| Error::InvalidArgument { why: "a part of an edit that is none" })?;
        }
        let Edit { kind, at, brought, new, names, states, keeps_times, staged: _, policy } = op;
        whole.policy.clone_from(policy);
        (whole.kind, whole.at, whole.keeps_times, whole.staged) = (*kind, *at, *keeps_times, None);
        whole.brought.extend_from_slice(brought);
        whole.new.extend_from_slice(new);
        whole.names.extend_from_slice(names);
        whole.states.extend_from_slice(states);
        Ok(whole)
    }

    /// Drops the parts of all plans of the session's requests before `acked`.
    pub(crate) fn drop_staged_before(
        &mut self,
        session: SessionId,
        acked: Seq,
        stamp: Hlc,
        changes: &mut Vec<KeyVersion>,
    ) {
        let first = (session, Seq(0), 0);
        while let Some((&plan, _)) = self.staged.plans.range(first..(session, acked, 0)).next() {
            self.drop_staged(plan, stamp, changes);
        }
    }

    /// Drops the parts of all plans of a request.
    pub(crate) fn drop_staged_of(
        &mut self,
        session: SessionId,
        request: Seq,
        stamp: Hlc,
        changes: &mut Vec<KeyVersion>,
    ) {
        let all = (session, request, 0)..=(session, request, u64::MAX);
        while let Some((&plan, _)) = self.staged.plans.range(all.clone()).next() {
            self.drop_staged(plan, stamp, changes);
        }
    }

    /// Drops the parts of a plan.
    pub(crate) fn drop_staged(&mut self, plan: PlanId, stamp: Hlc, changes: &mut Vec<KeyVersion>) {
        let (session, request, number) = plan;
        let key = |part| VersionKey::Staged(session, request, number, part).encode();
        changes.extend(self.staged.remove(&plan).map(|part| KeyVersion { key: key(part), stamp, value: None }));
    }
}
