//! The pass that applies policies of retention to what is stored: which files it still has to look at.
//!
//! Guarantees: after a pass nothing is left that the marks of its beginning let go. What it has done is not stored:
//! after a start it looks at everything again, and finds the same.
//! Leaves to others: what of a file goes (`thinning`), freeing it (`service`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use frieze_base::{ChainEpoch, ChainId, Fault, InodeId};
use frieze_locks::{Mutex, MutexGuard, levels};
use frieze_retention::{PolicyNumber, Thinning};

use crate::gc_state::Needs;
use crate::planes::Planes;
use crate::removal_scan::RemovalScan;

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
    /// The configurations of chains then: a member that caught up since has records below the marks.
    epochs: Vec<ChainEpoch>,
    /// Files that are still to be looked at.
    pub files: BTreeSet<InodeId>,
    /// Removed files that no kept instant shows.
    pub removals: RemovalScan,
    /// What shared ranges need, and of how many changes of them it knows.
    needs: Option<(Arc<Needs>, u64)>,
}

impl ThinningPass {
    /// Locks the pass: one thread does it.
    pub fn lock(&self) -> MutexGuard<'_, PassState> {
        self.0.lock()
    }
}

impl PassState {
    /// Finds the files with records in what was coarsened since the last pass; with the first one, and after files got
    /// other policies, an instant lost its name, or a chain got other members, in all that is thinned. Returns whether
    /// there are any.
    ///
    /// # Errors
    /// Those of the store and of the device: nothing has changed.
    ///
    /// # Cost
    /// The records of the stretches that were coarsened.
    pub fn begin(&mut self, planes: &Planes) -> Result<bool, Fault> {
        let changes = planes.meta.policy_changes();
        let policies = planes.meta.policies().into_iter();
        let marks: BTreeMap<PolicyNumber, Thinning> = policies.map(|(number, marked)| (number, marked.marks)).collect();
        let chains = (0..planes.data.chain_count()).map(ChainId);
        let epochs: Vec<ChainEpoch> = chains.map(|chain| planes.data.epoch_of(chain)).collect();
        let is_anew = self.done.is_empty() || changes != self.changes || epochs != self.epochs;
        if !is_anew && marks == self.done {
            return Ok(false);
        }
        let mut files = BTreeSet::new();
        let none = Thinning::default();
        for (number, marks) in &marks {
            let done = self.done.get(number).filter(|_| !is_anew).unwrap_or(&none);
            for (after, upto) in done.marks().zip(marks.marks()).filter(|(after, upto)| after < upto) {
                files.extend(planes.data.device().log().files_with_records(after, upto).0);
            }
        }
        (self.done, self.changes, self.epochs, self.files) = (marks, changes, epochs, files);
        if is_anew {
            // What is not shared any more stays until then.
            self.needs = None;
        }
        Ok(!self.files.is_empty())
    }

    /// What shared ranges need, and of how many changes of them that is; from `find`, if there were more since.
    ///
    /// # Errors
    /// Those of `find`.
    ///
    /// # Cost
    /// Where `find` is called, that of a pass over all inodes.
    pub fn needs(
        &mut self,
        planes: &Planes,
        find: &dyn Fn() -> Result<Needs, Fault>,
    ) -> Result<(Arc<Needs>, u64), Fault> {
        // Before it is found: what comes meanwhile may be missing.
        let shares = planes.meta.share_changes();
        match &self.needs {
            Some((needs, known)) if *known == shares => Ok((Arc::clone(needs), shares)),
            _ => {
                let found = (Arc::new(find()?), shares);
                self.needs = Some(found.clone());
                Ok(found)
            }
        }
    }
}
