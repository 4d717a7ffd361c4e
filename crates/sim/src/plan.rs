//! The plan of a run, and its outcome.

use frieze_base::Rng;

use crate::breakage::ServerBreak;
use crate::violation::Violation;

/// A run. Everything in it follows from the seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerPlan {
    /// Decides everything.
    pub seed: u64,
    /// Operations that clients finish before the faults stop. Default 320.
    pub operations: u64,
    /// Clients. Default: 2 to 5, by the seed.
    pub clients: u64,
    /// Faults, each after a share of the operations. Default: 5 to 9, by the seed.
    pub faults: u64,
    /// The deliberate break, for the test of the tester.
    pub breakage: Option<ServerBreak>,
    /// True: the trace keeps its lines.
    pub keep_trace: bool,
}

impl ServerPlan {
    /// The run of a seed.
    pub fn of_seed(seed: u64) -> ServerPlan {
        let mut rng = Rng::new(seed ^ 0x5eed);
        ServerPlan {
            seed,
            operations: 320,
            clients: rng.between(2, 5),
            faults: rng.between(5, 9),
            breakage: None,
            keep_trace: false,
        }
    }
}

/// Outcome of a run.
#[derive(Clone, Debug)]
pub struct ServerOutcome {
    /// The promise that was broken first, if one was.
    pub violation: Option<Violation>,
    /// Two runs of one plan have the same.
    pub trace_hash: u64,
    /// The lines of the trace, if they were to be kept.
    pub trace: Vec<String>,
    /// Counts of events.
    pub counts: ServerCounts,
}

/// Counts of events in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerCounts {
    /// Operations that clients finished.
    pub operations: u64,
    /// Faults injected.
    pub faults: u64,
    /// Starts of the server after the first.
    pub restarts: u64,
    /// Losses of power.
    pub power_losses: u64,
    /// Changes made.
    pub changes: u64,
    /// Changes that losses of power took.
    pub lost: u64,
    /// Answers about instants that were remembered.
    pub remembered: u64,
}

impl ServerOutcome {
    /// Message about a broken promise: which, where, and how to replay it.
    pub fn failure(&self, seed: u64) -> Option<String> {
        let violation = self.violation.as_ref()?;
        Some(format!(
            "{violation}\n  after {} operations and {} faults of seed {seed:#x}, at commit {}\n  see it again: cargo \
             xtask sim one_server --seed {seed:#x}",
            self.counts.operations,
            self.counts.faults,
            commit().unwrap_or_else(|| "unknown".to_owned())
        ))
    }
}

/// The commit this was built from, read from the repository: a seed means something only there.
fn commit() -> Option<String> {
    let git = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.git");
    let head = std::fs::read_to_string(git.join("HEAD")).ok()?;
    let commit = match head.trim().strip_prefix("ref: ") {
        Some(reference) => std::fs::read_to_string(git.join(reference)).ok()?,
        None => head,
    };
    Some(commit.trim().chars().take(12).collect())
}
