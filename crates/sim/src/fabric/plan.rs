//! The plan of a run, and its outcome.

use super::breakage::FabricBreak;
use crate::violation::Violation;

/// The plan.
#[derive(Clone, Debug)]
pub struct FabricPlan {
    /// Everything is drawn from it.
    pub seed: u64,
    /// Keep the trace's lines.
    pub keep_trace: bool,
    /// Which rule is broken.
    pub breakage: Option<FabricBreak>,
    /// Requests of all clients while there are faults.
    pub asks: u64,
}

impl FabricPlan {
    /// The plan of a seed.
    pub fn of_seed(seed: u64) -> FabricPlan {
        FabricPlan { seed, keep_trace: false, breakage: None, asks: 100 }
    }
}

/// The outcome.
#[derive(Clone, Debug)]
pub struct FabricOutcome {
    /// Two runs of one plan have the same.
    pub trace_hash: u64,
    /// The lines kept.
    pub trace: Vec<String>,
    /// How much happened.
    pub counts: FabricCounts,
    /// The broken promise, if there is one.
    pub violation: Option<Violation>,
}

/// How much happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FabricCounts {
    /// Requests answered.
    pub answered: u64,
    /// Reads whose payload the server wrote into a slot.
    pub landed: u64,
    /// Writes whose payload the server fetched.
    pub fetched: u64,
    /// Payloads that went by TCP.
    pub inline: u64,
    /// Requests that were sent again.
    pub redone: u64,
    /// Tests of transfers that succeeded.
    pub tests: u64,
    /// Times that a client closed its slots after a failure.
    pub demotions: u64,
    /// Transfers that failed.
    pub failures: u64,
    /// Transfers that did not end in time.
    pub timeouts: u64,
    /// Completions that ended nothing.
    pub strays: u64,
    /// Pieces that a closed key kept out.
    pub refused_pieces: u64,
    /// Pieces that landed after the completion of their transfer.
    pub late_pieces: u64,
    /// Checksums that did not match, at the client.
    pub damaged_landings: u64,
    /// Checksums that did not match, at the server.
    pub damaged_fetches: u64,
    /// Reads that were refused because stored bytes were damaged.
    pub corrupt: u64,
    /// Requests for which no room was free.
    pub full: u64,
    /// Endpoints that were closed because a transfer of theirs had not ended.
    pub reopened: u64,
    /// Deaths of the server and of clients, and connections that were cut.
    pub deaths: u64,
    /// Times that the provider stalled.
    pub stalls: u64,
}
