//! Edits that are too long for one transaction: their parts go into the log first.

use frieze_base::{Fault, Seq, SessionId};
use frieze_hlc::Hlc;
use frieze_wire::edit::{Edit, StageEdit, StagedParts};
use frieze_wire::txn::{Op, Transaction};

use crate::metadata::Metadata;

/// What an edit was planned for, and when.
#[derive(Clone, Copy, Debug)]
pub struct EditPlan {
    /// The session that asks.
    pub session: SessionId,
    /// Its request.
    pub request: Seq,
    /// The newest stamp that the client knows.
    pub must_see: Hlc,
    /// The instant of the plan, which names it.
    pub plan: Hlc,
    /// The instant of the plan before, which is given up.
    pub former: Option<Hlc>,
}

impl Metadata {
    /// Stages the lists of an edit that takes more than `part_bytes` bytes, in parts. Returns what is left of it: the
    /// change that names the parts, or the edit as it is if it is shorter.
    ///
    /// # Errors
    /// `Overloaded` if the parts of other edits fill the room for them; `UnknownSession`; `Elsewhere`; the log's.
    /// Parts that are staged go with the request: try again.
    ///
    /// # Cost
    /// The bytes of the edit in the log, in the store and in memory, until it runs.
    pub fn stage_edit(&self, edit: Edit, part_bytes: usize, plan: EditPlan) -> Result<Edit, Fault> {
        let EditPlan { session, request, must_see, plan, former } = plan;
        let (new, kind) = (edit.new.len() as u64, edit.kind);
        let (parts, mut rest) = edit.divided(part_bytes);
        if parts.is_empty() {
            return Ok(rest);
        }
        rest.staged = Some(StagedParts { request: request.0, plan: plan.0, count: parts.len() as u32, new });
        let mut former = former.unwrap_or_default();
        for (part, edit) in (0..).zip(parts) {
            let former = std::mem::take(&mut former).0;
            let stage = StageEdit { request: request.0, plan: plan.0, part, edit, former, kind };
            let transaction = Transaction {
                session: session.0,
                must_see: must_see.0,
                op: Some(Op::StageEdit(stage)),
                ..Transaction::default()
            };
            self.execute(transaction, None)?.into_result()?;
        }
        Ok(rest)
    }
}
