//! The plan of a metalog run, and its outcome.

use super::breakage::MetalogBreak;
use crate::violation::Violation;

/// The plan.
#[derive(Clone, Debug)]
pub struct MetalogPlan {
    /// Everything is drawn from it.
    pub seed: u64,
    /// Keep the trace's lines.
    pub keep_trace: bool,
    /// How members are broken.
    pub breakage: Option<MetalogBreak>,
    /// Requests of each client.
    pub asks: u64,
}

impl MetalogPlan {
    /// The plan of a seed.
    pub fn of_seed(seed: u64) -> MetalogPlan {
        MetalogPlan { seed, keep_trace: false, breakage: None, asks: 80 }
    }
}

/// The outcome.
#[derive(Clone, Debug)]
pub struct MetalogOutcome {
    /// Two runs of one plan have the same.
    pub trace_hash: u64,
    /// The lines kept.
    pub trace: Vec<String>,
    /// Requests answered.
    pub answered: u64,
    /// Faults that came.
    pub faults: u64,
    /// Elections won.
    pub elections: u64,
    /// Those of them that may have lost entries.
    pub losses: u64,
    /// States installed instead of logs.
    pub installs: u64,
    /// Count of membership changes.
    pub changes: u64,
    /// The broken promise, if there is one.
    pub violation: Option<Violation>,
}

impl MetalogOutcome {
    /// How much happened, in words.
    pub fn counts(&self) -> String {
        let MetalogOutcome { answered, faults, elections, losses, installs, changes, .. } = self;
        format!(
            "{answered} answers, {faults} faults, {elections} elections, {losses} losses, {installs} installs, \
             {changes} changes"
        )
    }
}
