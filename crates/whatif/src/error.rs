//! What can be wrong with a question.

/// Why a simulation does not run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum WhatIfError {
    /// Nothing in the trace moves bytes.
    #[error("the trace has no reads and no writes: there is nothing to simulate; record one with --trace-ring 256M")]
    EmptyTrace,
    /// More files than keys can name.
    #[error("{count} files are too many, {max} is the most: sample the trace")]
    TooManyFiles {
        /// Files of the trace.
        count: usize,
        /// The limit.
        max: usize,
    },
    /// A number outside its range.
    #[error("{name} = {value} is outside {min} to {max} {unit}")]
    OutOfRange {
        /// Its name, as `--set` takes it.
        name: String,
        /// What was given.
        value: f64,
        /// The least.
        min: f64,
        /// The most.
        max: f64,
        /// Of what.
        unit: &'static str,
    },
    /// A name that no profile has.
    #[error("there is no setting {name}: use one of {known}")]
    UnknownSetting {
        /// What was given.
        name: String,
        /// All names.
        known: String,
    },
    /// A value that cannot be read.
    #[error("{name}: cannot read {text:?} as {expected}")]
    BadValue {
        /// Of what.
        name: String,
        /// What was given.
        text: String,
        /// An example.
        expected: String,
    },
    /// A profile that cannot be read.
    #[error("profile {name}: {problem}")]
    BadProfile {
        /// Its name or path.
        name: String,
        /// Where and what.
        problem: String,
    },
    /// Policies that need what the hardware does not have.
    #[error("{0}")]
    Impossible(String),
    /// More systems than one run may have.
    #[error("{count} systems are too many for one run, {max} is the most: sweep fewer values at once")]
    TooManySystems {
        /// Asked for.
        count: usize,
        /// The limit.
        max: usize,
    },
    /// The run needs more memory than it may take.
    #[error("the run needs about {needed_bytes} bytes of memory and may take {allowed_bytes}: {advice}")]
    TooMuchMemory {
        /// The estimate.
        needed_bytes: u64,
        /// The limit.
        allowed_bytes: u64,
        /// What to do.
        advice: String,
    },
    /// A trace that cannot be read.
    #[error("{0}")]
    Trace(String),
}
