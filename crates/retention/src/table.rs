//! Which file has which policy: the part of retention that is executed from the log of names.

use std::collections::BTreeMap;

use frieze_base::InodeId;
use frieze_hlc::Hlc;

use crate::error::RetentionError;
use crate::kept::KeptSet;
use crate::number::PolicyNumber;
use crate::policy::RetentionPolicy;
use crate::regime::{RegimeNumber, RegimeTable, RetentionMark};
use crate::thinning::Thinning;

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
    regimes: RegimeTable,
    files: BTreeMap<InodeId, FileRetention>,
}

/// What a file has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct FileRetention {
    regime: RegimeNumber,
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
            RetentionEntry::MakePolicy(number, policy) => self.regimes.add_policy(*number, policy.clone())?,
            RetentionEntry::SetPolicy(inode, number) => {
                let regime = self.regimes.successor(self.regime_of(*inode), *number)?;
                self.files.entry(*inode).or_default().regime = regime;
            }
            RetentionEntry::Mark(mark) => self.regimes.raise(*mark)?,
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

    /// The marks that are due when every chain and the names are closed up to `closed`, for the leader to append.
    ///
    /// # Cost
    /// O(policies), whatever the number of files.
    pub fn marks_due(&self, closed: Hlc) -> Vec<RetentionMark> {
        self.regimes.marks_due(closed)
    }

    fn regime_of(&self, inode: InodeId) -> RegimeNumber {
        self.files.get(&inode).map(|file| file.regime).unwrap_or_default()
    }

    /// The policy of a file.
    pub fn policy_of(&self, inode: InodeId) -> PolicyNumber {
        self.regimes.policy_of(self.regime_of(inode))
    }

    /// What marks leave of a file.
    pub fn thinning(&self, inode: InodeId) -> Thinning {
        self.regimes.thinning(self.regime_of(inode))
    }

    /// The kept instants of a file.
    pub fn kept_set(&self, inode: InodeId) -> KeptSet {
        let pins = self.files.get(&inode).map(|file| file.pins.clone()).unwrap_or_default();
        KeptSet::new(self.thinning(inode), pins)
    }
}
