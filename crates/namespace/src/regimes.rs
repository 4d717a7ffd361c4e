//! Policies of retention, regimes and pinned instants, in memory and as they are stored.

use std::collections::BTreeMap;
use std::sync::Arc;

use frieze_hlc::Hlc;
use frieze_retention::{MarkedPolicy, PolicyNumber, Regime, RegimeTable, RetentionPolicy, Thinning};

use crate::error::Error;

/// Policies, regimes, and the instants that have names.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Retentions {
    pub(crate) table: RegimeTable,
    /// How many names each instant has.
    pub(crate) pins: Arc<BTreeMap<Hlc, u32>>,
    pub(crate) changes: PolicyChanges,
}

/// Counts changes, since the start.
#[derive(Debug, Default)]
pub(crate) struct PolicyChanges {
    /// Inodes that got another policy, and instants that lost their last name.
    pub(crate) policies: u64,
    /// Edits that share bytes of older states.
    pub(crate) shares: u64,
    /// Transactions by which records may die.
    pub(crate) expiries: u64,
}

/// How often something has changed is no part of the state.
impl PartialEq for PolicyChanges {
    fn eq(&self, _: &PolicyChanges) -> bool {
        true
    }
}

/// A policy and its marks.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct StoredPolicy {
    #[prost(string, tag = "1")]
    policy: String,
    #[prost(uint64, repeated, tag = "2")]
    marks: Vec<u64>,
}

/// A regime.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct StoredRegime {
    #[prost(uint32, tag = "1")]
    policy: u32,
    #[prost(uint64, repeated, tag = "2")]
    past: Vec<u64>,
}

fn stored_marks(thinning: &Thinning) -> Vec<u64> {
    thinning.marks().map(|mark| mark.0).collect()
}

fn read_marks(marks: &[u64]) -> Option<Thinning> {
    let marks: Vec<Hlc> = marks.iter().map(|mark| Hlc(*mark)).collect();
    Thinning::of_marks(&marks)
}

impl StoredPolicy {
    pub(crate) fn of(marked: &MarkedPolicy) -> StoredPolicy {
        StoredPolicy { policy: marked.policy.to_string(), marks: stored_marks(&marked.marks) }
    }

    pub(crate) fn read(&self) -> Result<MarkedPolicy, Error> {
        let corrupt = || Error::Corrupt { what: "policy of retention" };
        let policy: RetentionPolicy = self.policy.parse().map_err(|_| corrupt())?;
        Ok(MarkedPolicy { policy, marks: read_marks(&self.marks).ok_or_else(corrupt)? })
    }
}

impl StoredRegime {
    pub(crate) fn of(regime: &Regime) -> StoredRegime {
        StoredRegime { policy: regime.policy.0, past: stored_marks(&regime.past) }
    }

    pub(crate) fn read(&self) -> Result<Regime, Error> {
        let past = read_marks(&self.past).ok_or(Error::Corrupt { what: "regime of retention" })?;
        Ok(Regime { policy: PolicyNumber(self.policy), past })
    }
}
