//! Which removed files no instant shows any more that their policies of retention keep.
//!
//! Guarantees: a file is named only if no kept instant lies between its making and its removal; one that was removed
//! before the marks rose is found once they have.
//! Leaves to others: which files are open, the transaction that lets go of them (`service`).
//!
//! Marks turn a stretch of kept instants into fewer. A file that this hides was removed in the stretch, so its inode
//! changed there: the changes of the stretch are looked at, some at a time.

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::{Fault, InodeId, MonoTime, Reason};
use frieze_hlc::Hlc;
use frieze_retention::{PolicyNumber, Thinning};

use crate::planes::Planes;

/// Changes of names that are looked at in one step.
const CHANGES_AT_ONCE: usize = 20_000;
/// Files after which a step ends.
const FILES_AT_ONCE: usize = 4096;
/// Time after which files that could not go are looked at again, ns.
const LOOK_AGAIN_NS: u64 = 10_000_000_000;

/// How far removed files were looked at. On the leader only; a new one begins anew.
#[derive(Default)]
pub struct RemovalScan {
    /// The marks up to which it looked.
    done: BTreeMap<PolicyNumber, Thinning>,
    /// Changes of policies that it knows of.
    changes: u64,
    /// Stretches of changes that it still has to look at.
    todo: Vec<(Hlc, Hlc)>,
    /// Files that were found, and could not go: they are open, or an edit was under way.
    waiting: BTreeSet<InodeId>,
    /// They are looked at again then.
    next_look: MonoTime,
}

impl RemovalScan {
    /// Some of the removed files that no kept instant shows, in order; none if there are none by now.
    ///
    /// # Errors
    /// Those of the store.
    ///
    /// # Cost
    /// Some 20,000 changes of names in what marks have coarsened since; all changes at the first call, and after files
    /// got other policies or an instant lost its name.
    pub fn next(&mut self, planes: &Planes) -> Result<BTreeSet<InodeId>, Fault> {
        let changes = planes.meta.policy_changes();
        let policies = planes.meta.policies().into_iter();
        let marks: BTreeMap<PolicyNumber, Thinning> = policies.map(|(number, marked)| (number, marked.marks)).collect();
        let mut due = BTreeSet::new();
        if self.done.is_empty() || changes != self.changes {
            let end = marks.values().map(Thinning::end).max().unwrap_or_default();
            self.todo = vec![(Hlc::ZERO, end)];
            self.waiting.clear();
        } else if marks != self.done {
            let none = Thinning::default();
            for (number, marks) in &marks {
                let done = self.done.get(number).unwrap_or(&none);
                self.todo.extend(done.marks().zip(marks.marks()).filter(|(after, upto)| after < upto));
            }
        }
        (self.done, self.changes) = (marks, changes);
        let now = planes.clock.reading().mono;
        if now >= self.next_look {
            self.next_look = MonoTime(now.0 + LOOK_AGAIN_NS);
            due.append(&mut self.waiting);
        }
        while due.len() < FILES_AT_ONCE
            && let Some((after, upto)) = self.todo.pop()
        {
            let found = planes.removed_within((after, upto));
            let (mut files, reached) = found.inspect_err(|_| {
                self.todo.push((after, upto));
                self.waiting.append(&mut due);
            })?;
            if reached < upto {
                self.todo.push((reached, upto));
            }
            due.append(&mut files);
            if !due.is_empty() {
                break;
            }
        }
        Ok(due)
    }

    /// Looks at these files again after a while.
    pub fn wait_for(&mut self, files: Vec<InodeId>) {
        self.waiting.extend(files);
    }

    /// True if there are changes that were not looked at yet.
    pub fn has_more(&self) -> bool {
        !self.todo.is_empty()
    }
}

impl Planes {
    /// The files that were removed among the first changes of an interval, and are due, and how far those reach.
    fn removed_within(&self, interval: (Hlc, Hlc)) -> Result<(BTreeSet<InodeId>, Hlc), Fault> {
        let (ids, reached) = self.meta.history().changed_inodes(interval, CHANGES_AT_ONCE)?;
        let mut due = BTreeSet::new();
        for id in ids {
            if self.removed_and_due(id)?.is_some() {
                due.insert(id);
            }
        }
        Ok((due, reached))
    }

    /// When a file lost its last name, if no instant shows it that its policy keeps, and it was not let go of before.
    ///
    /// # Errors
    /// Those of the store.
    pub fn removed_and_due(&self, id: InodeId) -> Result<Option<Hlc>, Fault> {
        if self.meta.is_removal_expired(id) {
            return Ok(None);
        }
        let inode = match self.meta.inode(id, None) {
            Err(fault) if matches!(fault.reason, Reason::NotFound | Reason::StaleHandle) => return Ok(None),
            inode => inode?,
        };
        let Some(since) = inode.orphaned() else { return Ok(None) };
        let kept = self.meta.kept_set(id)?;
        Ok(kept.is_some_and(|kept| kept.first_at_or_above(inode.born) >= since).then_some(since))
    }
}
