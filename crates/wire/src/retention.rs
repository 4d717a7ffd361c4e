//! Retention: which instants of a file or directory are kept.

use crate::target::Target;

/// Asks for the policy of a file or directory, and what it keeps.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Retention {
    /// The file or directory.
    #[prost(message, required, tag = "1")]
    pub target: Target,
    /// Whether this instant is kept; 0: do not say.
    #[prost(uint64, tag = "2")]
    pub at: u64,
    /// What this policy would keep of the file, or of all files below the directory, if they got it now; empty: do not
    /// say.
    #[prost(string, tag = "3")]
    pub preview: String,
}

/// A class of a policy.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RetainedClass {
    /// The period of the instants that are kept, as a policy writes it; `none`: nothing is kept.
    #[prost(string, tag = "1")]
    pub period: String,
    /// Instants below it are kept as this class says; 0: none is yet.
    #[prost(uint64, tag = "2")]
    pub below: u64,
    /// In a preview: the writes that it keeps.
    #[prost(uint64, tag = "3")]
    pub writes: u64,
    /// Their bytes.
    #[prost(uint64, tag = "4")]
    pub bytes: u64,
}

/// What a policy would keep, if it were set now.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RetentionPreview {
    /// Files with history here.
    #[prost(uint64, tag = "1")]
    pub files: u64,
    /// What stays by class: `all`, then from the finest to the coarsest; `none` is what is behind the last age.
    #[prost(message, repeated, tag = "2")]
    pub classes: Vec<RetainedClass>,
    /// Writes that no kept instant would show.
    #[prost(uint64, tag = "3")]
    pub freed_writes: u64,
    /// Their bytes.
    #[prost(uint64, tag = "4")]
    pub freed_bytes: u64,
}

/// To [`Retention`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RetentionReply {
    /// The policy; empty: everything is kept for ever.
    #[prost(string, tag = "1")]
    pub policy: String,
    /// What is thinned by it and by earlier policies, from the finest class to the coarsest.
    #[prost(message, repeated, tag = "2")]
    pub classes: Vec<RetainedClass>,
    /// The instant asked about.
    #[prost(message, optional, tag = "3")]
    pub instant: Option<RetainedInstant>,
    /// What the policy asked about would keep.
    #[prost(message, optional, tag = "5")]
    pub preview: Option<RetentionPreview>,
    /// The position that the answer is of: the newest stamp that this server has executed.
    #[prost(uint64, tag = "4")]
    pub as_of: u64,
}

/// Whether an instant is kept.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct RetainedInstant {
    /// The instant.
    #[prost(uint64, tag = "1")]
    pub at: u64,
    /// The state at it is known exactly.
    #[prost(bool, tag = "2")]
    pub is_exact: bool,
    /// The newest kept instant at or before it; 0: there is none.
    #[prost(uint64, tag = "3")]
    pub before: u64,
    /// The oldest kept instant at or after it.
    #[prost(uint64, tag = "4")]
    pub after: u64,
}
