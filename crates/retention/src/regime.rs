//! Policies with their marks, and regimes: a policy together with what the policies before it have thinned.

use std::collections::BTreeMap;

use frieze_hlc::Hlc;

use crate::error::RetentionError;
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

/// The number of a regime, as a file has it. 0 is the regime of files that never had a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegimeNumber(pub u32);

/// Policies, their marks, and regimes.
///
/// A file has the number of a regime and nothing else, so a million files cost what one does. A file that changes its
/// policy gets the regime of the new policy and of all that was thinned before: one that there is, if there is one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegimeTable {
    policies: BTreeMap<PolicyNumber, MarkedPolicy>,
    regimes: BTreeMap<RegimeNumber, Regime>,
}

/// A policy and its marks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkedPolicy {
    /// The policy.
    pub policy: RetentionPolicy,
    /// Its marks.
    pub marks: Thinning,
}

/// What files have that share all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Regime {
    /// Their policy.
    pub policy: PolicyNumber,
    /// What earlier policies have thinned: all their eras in one.
    pub past: Thinning,
}

impl RegimeTable {
    /// Most policies; each costs its text and 136 bytes.
    pub const POLICIES_MAX: usize = 1024;
    /// Most regimes, of 140 bytes: a policy that is changed every hour makes as many in seven years.
    pub const REGIMES_MAX: usize = 1 << 16;

    /// True if no file ever had a policy.
    pub fn is_empty(&self) -> bool {
        self.regimes.is_empty()
    }

    /// The number of a policy; the next free one, if the policy is new. That is not in the table then.
    ///
    /// # Errors
    /// `TooManyPolicies`.
    pub fn number_of(&self, policy: &RetentionPolicy) -> Result<PolicyNumber, RetentionError> {
        if let Some((number, _)) = self.policies.iter().find(|(_, marked)| marked.policy == *policy) {
            return Ok(*number);
        }
        if self.policies.len() >= Self::POLICIES_MAX {
            return Err(RetentionError::TooManyPolicies { max: Self::POLICIES_MAX });
        }
        Ok(PolicyNumber(self.policies.last_key_value().map_or(1, |(last, _)| last.0 + 1)))
    }

    /// Checks that files of any regimes may get another policy.
    ///
    /// # Errors
    /// `TooManyRegimes`.
    pub fn check_room(&self) -> Result<(), RetentionError> {
        // Each regime that there is may become another one.
        match 2 * self.regimes.len() < Self::REGIMES_MAX {
            true => Ok(()),
            false => Err(RetentionError::TooManyRegimes { max: Self::REGIMES_MAX / 2 }),
        }
    }

    /// Makes a policy. It never changes.
    ///
    /// # Errors
    /// `PolicyExists` for a number that is taken.
    pub fn add_policy(&mut self, number: PolicyNumber, policy: RetentionPolicy) -> Result<(), RetentionError> {
        if number == PolicyNumber::default() || self.policies.contains_key(&number) {
            return Err(RetentionError::PolicyExists(number));
        }
        self.policies.insert(number, MarkedPolicy { policy, marks: Thinning::default() });
        Ok(())
    }

    /// Takes a policy with its marks as they were stored.
    pub fn load_policy(&mut self, number: PolicyNumber, marked: MarkedPolicy) {
        self.policies.insert(number, marked);
    }

    /// Takes a regime as it was stored.
    pub fn load_regime(&mut self, number: RegimeNumber, regime: Regime) {
        self.regimes.insert(number, regime);
    }

    /// A policy and its marks.
    pub fn policy(&self, number: PolicyNumber) -> Option<&MarkedPolicy> {
        self.policies.get(&number)
    }

    /// Every policy, by number.
    pub fn policies(&self) -> impl Iterator<Item = (PolicyNumber, &MarkedPolicy)> {
        self.policies.iter().map(|(number, marked)| (*number, marked))
    }

    /// A regime; `None` for that of files that never had a policy.
    pub fn regime(&self, number: RegimeNumber) -> Option<&Regime> {
        self.regimes.get(&number)
    }

    /// The regime of a file that had `from` and gets `policy`. What the policies before it have thinned stays thinned.
    /// It is made if there is none.
    ///
    /// # Errors
    /// `UnknownPolicy`; `TooManyRegimes`. Nothing has changed then.
    ///
    /// # Cost
    /// O(regimes).
    pub fn successor(&mut self, from: RegimeNumber, policy: PolicyNumber) -> Result<RegimeNumber, RetentionError> {
        if policy != PolicyNumber::default() && !self.policies.contains_key(&policy) {
            return Err(RetentionError::UnknownPolicy(policy));
        }
        if self.policy_of(from) == policy {
            return Ok(from);
        }
        let mut past = self.thinning(from);
        let marks = self.policies.get(&policy).map(|marked| marked.marks).unwrap_or_default();
        let mut both = past;
        both.join(&marks);
        if both == marks {
            // The marks of the policy have thinned all of it, too.
            past = Thinning::default();
        }
        let regime = Regime { policy, past };
        if regime == Regime::default() {
            return Ok(RegimeNumber::default());
        }
        if let Some((number, _)) = self.regimes.iter().find(|(_, known)| **known == regime) {
            return Ok(*number);
        }
        if self.regimes.len() >= Self::REGIMES_MAX {
            return Err(RetentionError::TooManyRegimes { max: Self::REGIMES_MAX });
        }
        let number = RegimeNumber(self.regimes.last_key_value().map_or(1, |(last, _)| last.0 + 1));
        self.regimes.insert(number, regime);
        Ok(number)
    }

    /// Raises a mark.
    ///
    /// # Errors
    /// `UnknownPolicy`, `UnknownClass`, `MarkOffGrid`; `MarkNotAbove` for a mark of an older leader. Nothing has
    /// changed then.
    pub fn raise(&mut self, mark: RetentionMark) -> Result<(), RetentionError> {
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

    /// The policy of a regime.
    pub fn policy_of(&self, regime: RegimeNumber) -> PolicyNumber {
        self.regimes.get(&regime).map(|regime| regime.policy).unwrap_or_default()
    }

    /// What marks leave of the files of a regime.
    pub fn thinning(&self, regime: RegimeNumber) -> Thinning {
        let Some(regime) = self.regimes.get(&regime) else { return Thinning::default() };
        let mut thinning = regime.past;
        if let Some(marked) = self.policies.get(&regime.policy) {
            thinning.join(&marked.marks);
        }
        thinning
    }

    /// What marks leave of the files of every regime together: an instant that it leaves is kept for each file.
    pub fn thinning_of_all(&self) -> Thinning {
        let mut all = Thinning::default();
        for number in self.regimes.keys() {
            all.join(&self.thinning(*number));
        }
        all
    }
}
