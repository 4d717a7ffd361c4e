//! The pass that applies policies of retention to what is stored: which files it still has to look at.
//!
//! Guarantees: after a pass nothing is left that the marks of its beginning let go. What it has done is not stored:
//! after a start it looks at everything again, and finds the same.
//! Leaves to others: what of a file goes (`thinning`), freeing it (`service`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use frieze_base::{Fault, InodeId};
use frieze_locks::{Mutex, MutexGuard, levels};
use frieze_retention::{PolicyNumber, Thinning};

use crate::gc_state::Needs;
use crate::planes::Planes;

/// How far policies were applied.
#[derive(Default)]
pub struct ThinningPass(Mutex<levels::Thinning, PassState>);

/// State of a [`ThinningPass`].
#[derive(Default)]
pub struct PassState {
    /// The marks up to which a pass looked, by policy.
    done: BTreeMap<PolicyNumber, Thinning>,
    /// Changes of policies that it knows of.
    changes: u64,
    /// Files that are still to be looked at.
    pub files: BTreeSet<InodeId>,
    /// Files of the next pass, whatever is coarsened until then: removed, and still open.
    pub later: BTreeSet<InodeId>,
    /// What shared ranges need, as of the beginning.
    pub needs: Arc<Needs>,
}

impl ThinningPass {
    /// Locks the pass: one thread does it.
    pub fn lock(&self) -> MutexGuard<'_, PassState> {
        self.0.lock()
    }
}

impl PassState {
    /// True if a pass has begun since the start.
    pub fn has_begun(&self) -> bool {
        !self.done.is_empty()
    }

    /// Finds the files with records in what was coarsened since the last pass; with the first one, and after files got
    /// other policies or an instant lost its name, in all that is thinned. Returns whether there are any.
    ///
    /// # Errors
    /// Those of the store and of the device: nothing has changed.
    ///
    /// # Cost
    /// The records of the stretches that were coarsened.
    pub fn begin(&mut self, planes: &Planes, needs: &dyn Fn() -> Result<Option<Needs>, Fault>) -> Result<bool, Fault> {
        let changes = planes.meta.policy_changes();
        let policies = planes.meta.policies().into_iter();
        let marks: BTreeMap<PolicyNumber, Thinning> = policies.map(|(number, marked)| (number, marked.marks)).collect();
        let is_anew = self.done.is_empty() || changes != self.changes;
        if !is_anew && marks == self.done {
            return Ok(false);
        }
        let mut files = BTreeSet::new();
        let none = Thinning::default();
        for (number, marks) in &marks {
            let done = self.done.get(number).filter(|_| !is_anew).unwrap_or(&none);
            for (after, upto) in done.marks().zip(marks.marks()).filter(|(after, upto)| after < upto) {
                files.extend(planes.data.device().files_written(after, upto, &|_| true)?.0);
            }
        }
        let Some(needs) = needs()? else { return Ok(false) };
        files.append(&mut self.later);
        self.needs = Arc::new(needs);
        (self.done, self.changes, self.files) = (marks, changes, files);
        Ok(!self.files.is_empty())
    }
}
