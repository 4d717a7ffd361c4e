//! Policies, marks, and which file has which: the part of retention that is executed from the log of names.

use std::collections::BTreeMap;

use frieze_base::InodeId;
use frieze_hlc::Hlc;

use crate::error::RetentionError;
use crate::kept::KeptSet;
use crate::number::PolicyNumber;
use crate::policy::RetentionPolicy;
use crate::thinning::Thinning;

/// A mark: of files with `policy`, instants below `upto` are kept as class `class` keeps them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RetentionMark {
    /// The policy.
    pub policy: PolicyNumber,
    /// The class, from 1: see [`RetentionPolicy::marks_max`].
    pub class: usize,
    /// A grid point of the class.
    pub upto: Hlc,
}

/// An entry of the log of names that changes what is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetentionEntry {
    /// Makes a policy. It never changes.
    MakePolicy(PolicyNumber, RetentionPolicy),
    /// Gives a policy to a file. What the policies before it have thinned stays thinned.
    SetPolicy(InodeId, PolicyNumber),
    /// Raises a mark, of any number of files at once.
    Mark(RetentionMark),
    /// Pins an instant that is kept.
    Pin(InodeId, Hlc),
    /// Takes one pin of the instant away.
    Unpin(InodeId, Hlc),
}

/// Policies, marks, and what each file has of them, as of one position of the log.
///
/// Guarantees: it is a function of the entries. An instant that is not kept is never kept again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetentionTable {
    policies: BTreeMap<PolicyNumber, MarkedPolicy>,
    files: BTreeMap<InodeId, FileRetention>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct MarkedPolicy {
    policy: RetentionPolicy,
    marks: Thinning,
}

/// What a file has beyond its policy's marks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct FileRetention {
    policy: PolicyNumber,
    /// What earlier policies of the file have left: all its eras in one.
    past: Thinning,
    pins: BTreeMap<Hlc, u32>,
}

impl RetentionTable {
    /// Executes an entry. An entry that is refused changes nothing.
    ///
    /// # Errors
    /// `MarkNotAbove` for a mark of an older leader: nothing is to be done. `NotKept` for a pin of an instant that is
    /// not kept, whether or not its records are still there: choose a neighbour.
    pub fn apply(&mut self, entry: &RetentionEntry) -> Result<(), RetentionError> {
        match entry {
            RetentionEntry::MakePolicy(number, policy) => {
                if *number == PolicyNumber::default() || self.policies.contains_key(number) {
                    return Err(RetentionError::PolicyExists(*number));
                }
                let made = MarkedPolicy { policy: policy.clone(), marks: Thinning::default() };
                self.policies.insert(*number, made);
            }
            RetentionEntry::SetPolicy(inode, number) => {
                if *number != PolicyNumber::default() && !self.policies.contains_key(number) {
                    return Err(RetentionError::UnknownPolicy(*number));
                }
                let left = self.thinning(*inode);
                let file = self.files.entry(*inode).or_default();
                (file.policy, file.past) = (*number, left);
            }
            RetentionEntry::Mark(mark) => self.raise(*mark)?,
            RetentionEntry::Pin(inode, at) => {
                let kept = self.kept_set(*inode);
                if !kept.is_kept(*at) {
                    let epoch = kept.epoch_of(*at);
                    let (before, after) = (epoch.after, epoch.upto);
                    return Err(RetentionError::NotKept { inode: *inode, at: *at, before, after });
                }
                *self.files.entry(*inode).or_default().pins.entry(*at).or_default() += 1;
            }
            RetentionEntry::Unpin(inode, at) => {
                let pins = self.files.get_mut(inode).map(|file| &mut file.pins);
                let Some((pins, count)) = pins.and_then(|pins| pins.get(at).copied().map(|count| (pins, count))) else {
                    return Err(RetentionError::NotPinned { inode: *inode, at: *at });
                };
                match count {
                    1 => pins.remove(at),
                    _ => pins.insert(*at, count - 1),
                };
            }
        }
        Ok(())
    }

    fn raise(&mut self, mark: RetentionMark) -> Result<(), RetentionError> {
        let RetentionMark { policy, class, upto } = mark;
        let marked = self.policies.get_mut(&policy).ok_or(RetentionError::UnknownPolicy(policy))?;
        let count = marked.policy.marks_max();
        if class == 0 || class > count {
            return Err(RetentionError::UnknownClass { policy, class, count });
        }
        if !marked.policy.mark_grid(class).has(upto) {
            return Err(RetentionError::MarkOffGrid { upto });
        }
        let period = marked.policy.period_below(class);
        let last = marked.marks.mark(period);
        if upto <= last {
            return Err(RetentionError::MarkNotAbove { upto, last });
        }
        marked.marks.raise(period, upto);
        Ok(())
    }

    /// The marks that are due when every chain and the names are closed up to `closed`, for the leader to append.
    ///
    /// # Cost
    /// O(policies), whatever the number of files.
    pub fn marks_due(&self, closed: Hlc) -> Vec<RetentionMark> {
        let mut due = Vec::new();
        for (number, marked) in &self.policies {
            for class in 1..=marked.policy.marks_max() {
                let last = marked.marks.mark(marked.policy.period_below(class));
                let upto = marked.policy.mark_due(class, closed).filter(|upto| *upto > last);
                due.extend(upto.map(|upto| RetentionMark { policy: *number, class, upto }));
            }
        }
        due
    }

    /// The policy of a file.
    pub fn policy_of(&self, inode: InodeId) -> PolicyNumber {
        self.files.get(&inode).map(|file| file.policy).unwrap_or_default()
    }

    /// What marks leave of a file.
    pub fn thinning(&self, inode: InodeId) -> Thinning {
        let Some(file) = self.files.get(&inode) else { return Thinning::default() };
        let mut thinning = file.past;
        if let Some(marked) = self.policies.get(&file.policy) {
            thinning.join(&marked.marks);
        }
        thinning
    }

    /// The kept instants of a file.
    pub fn kept_set(&self, inode: InodeId) -> KeptSet {
        let pins = self.files.get(&inode).map(|file| file.pins.clone()).unwrap_or_default();
        KeptSet::new(self.thinning(inode), pins)
    }
}
