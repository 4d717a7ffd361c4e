//! The plan of a run, and its outcome.

use super::breakage::ShardBreak;
use crate::violation::Violation;

/// The plan.
#[derive(Clone, Debug)]
pub struct ShardPlan {
    /// Everything is drawn from it.
    pub seed: u64,
    /// Keep the trace's lines.
    pub keep_trace: bool,
    /// How servers are broken.
    pub breakage: Option<ShardBreak>,
    /// Requests of all clients.
    pub asks: u64,
}

impl ShardPlan {
    /// The plan of a seed.
    pub fn of_seed(seed: u64) -> ShardPlan {
        ShardPlan { seed, keep_trace: false, breakage: None, asks: 200 }
    }
}

/// The outcome.
#[derive(Clone, Debug)]
pub struct ShardOutcome {
    /// Two runs of one plan have the same.
    pub trace_hash: u64,
    /// The lines kept.
    pub trace: Vec<String>,
    /// How much happened.
    pub counts: ShardCounts,
    /// The broken promise, if there is one.
    pub violation: Option<Violation>,
}

/// How much happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardCounts {
    /// Transactions in the log.
    pub transactions: u64,
    /// Those that changed something.
    pub changes: u64,
    /// Those that were refused.
    pub refused: u64,
    /// Those whose footprint was another than the front-end had found.
    pub superseded: u64,
    /// Those with parts in several slots.
    pub several: u64,
    /// Those with a part in the trunk.
    pub trunk: u64,
    /// Edits made.
    pub edits: u64,
    /// Changes that a quota refused.
    pub quota_full: u64,
    /// Changes below a quota.
    pub counted: u64,
    /// Looks at an item at an instant that were compared.
    pub compared: u64,
    /// Values that were asked for.
    pub asks: u64,
    /// Processes restarted.
    pub restarts: u64,
}
