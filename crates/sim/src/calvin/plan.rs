//! The plan of a run, and its outcome.

use super::breakage::CalvinBreak;
use crate::violation::Violation;

/// The plan.
#[derive(Clone, Debug)]
pub struct CalvinPlan {
    /// Everything is drawn from it.
    pub seed: u64,
    /// Keep the trace's lines.
    pub keep_trace: bool,
    /// How servers or front-ends are broken.
    pub breakage: Option<CalvinBreak>,
    /// Requests of all clients.
    pub asks: u64,
}

impl CalvinPlan {
    /// The plan of a seed.
    pub fn of_seed(seed: u64) -> CalvinPlan {
        CalvinPlan { seed, keep_trace: false, breakage: None, asks: 160 }
    }
}

/// The outcome.
#[derive(Clone, Debug)]
pub struct CalvinOutcome {
    /// Two runs of one plan have the same.
    pub trace_hash: u64,
    /// The lines kept.
    pub trace: Vec<String>,
    /// How much happened.
    pub counts: CalvinCounts,
    /// The broken promise, if there is one.
    pub violation: Option<Violation>,
}

/// How much happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CalvinCounts {
    /// Requests answered.
    pub answered: u64,
    /// Transactions in the log.
    pub transactions: u64,
    /// Those that were repetitions of others.
    pub again: u64,
    /// Those that had to be sent anew with other inodes.
    pub superseded: u64,
    /// Those that changed something.
    pub changes: u64,
    /// Parts of edits that were kept.
    pub stages: u64,
    /// Edits that were made.
    pub edits: u64,
    /// Edits that were planned again, for their trees had changed.
    pub replanned: u64,
    /// Edits that were given up after too many plans.
    pub busy: u64,
    /// Edits that were given up because their session had as many stages as it may.
    pub overloaded: u64,
    /// Commits that came before their stages.
    pub stages_missing: u64,
    /// Limits that were set.
    pub limits: u64,
    /// Changes that found no room in their shard.
    pub gathers: u64,
    /// Changes that a limit refused.
    pub quota_full: u64,
    /// Files that were not made, for their slot had no number left.
    pub numbers_used_up: u64,
    /// Sessions that have ended.
    pub sessions_ended: u64,
    /// Processes restarted.
    pub restarts: u64,
    /// Values that were asked for.
    pub asks: u64,
    /// States of a shard or a trunk that were compared at an instant.
    pub compared: u64,
}
