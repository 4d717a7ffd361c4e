//! Why a policy, a mark or a pack is refused.

use frieze_base::{ErrorKind, Fault, InodeId, Reason};
use frieze_hlc::{Hlc, format_instant};

use crate::number::PolicyNumber;

/// What is refused. The same at every server that executes the same log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RetentionError {
    /// The text is no policy.
    #[error("{text:?} at byte {at} is not a policy of retention: {wrong}; {instead}")]
    NotPolicy {
        /// The class that is wrong, cut where it is very long.
        text: String,
        /// Where it begins in the policy, in bytes.
        at: usize,
        /// What is wrong with it.
        wrong: String,
        /// What to write instead.
        instead: String,
    },
    /// No policy has the number.
    #[error("there is no policy {0} of retention: make it first")]
    UnknownPolicy(PolicyNumber),
    /// The number has another policy.
    #[error("policy {0} of retention exists, and never changes: make another one, and give it to the files")]
    PolicyExists(PolicyNumber),
    /// There are as many policies as there may be.
    #[error("there are {max} policies of retention, and no more are allowed: use one of them")]
    TooManyPolicies {
        /// Most policies.
        max: usize,
    },
    /// Policies were changed too often.
    #[error(
        "policies of retention were changed so often that there are {max} combinations of them, and no more are \
        allowed: give the file a policy that other files have"
    )]
    TooManyRegimes {
        /// Most combinations.
        max: usize,
    },
    /// The policy has no such class.
    #[error("policy {policy} has {count} classes, and no mark of class {class}")]
    UnknownClass {
        /// The policy.
        policy: PolicyNumber,
        /// The class that was named.
        class: usize,
        /// Classes that can have marks: 1 up to this one.
        count: usize,
    },
    /// The mark is not above the last one of its class: what is thinned stays thinned.
    #[error("the mark {upto} is not above {last}, the last one of its class: nothing is to be done")]
    MarkNotAbove {
        /// The mark.
        upto: Hlc,
        /// The last mark.
        last: Hlc,
    },
    /// The mark is no grid point of its class.
    #[error("the mark {upto} is no grid point of its class: it would cut an epoch in two")]
    MarkOffGrid {
        /// The mark.
        upto: Hlc,
    },
    /// The instant is not kept for the file.
    #[error("{at} ({}) is not kept for inode {inode}: the next instant that is kept is {after} ({})",
        format_instant(*at), format_instant(*after))]
    NotKept {
        /// The file.
        inode: InodeId,
        /// The instant.
        at: Hlc,
        /// The newest kept instant before it.
        before: Option<Hlc>,
        /// The oldest kept instant after it.
        after: Hlc,
    },
    /// Nothing pins the instant.
    #[error("nothing pins {at} of inode {inode}")]
    NotPinned {
        /// The file.
        inode: InodeId,
        /// The instant.
        at: Hlc,
    },
}

impl RetentionError {
    /// What the caller does next.
    pub fn kind(&self) -> ErrorKind {
        self.reason().kind()
    }

    /// Why, for programs.
    pub fn reason(&self) -> Reason {
        match self {
            RetentionError::NotPolicy { .. } | RetentionError::UnknownClass { .. } => Reason::InvalidArgument,
            RetentionError::MarkOffGrid { .. } => Reason::InvalidArgument,
            RetentionError::UnknownPolicy(_) | RetentionError::NotPinned { .. } => Reason::NotFound,
            RetentionError::PolicyExists(_) => Reason::Exists,
            RetentionError::MarkNotAbove { .. } => Reason::Superseded,
            RetentionError::NotKept { .. } => Reason::HistoryExpired,
            RetentionError::TooManyPolicies { .. } | RetentionError::TooManyRegimes { .. } => Reason::NoSpace,
        }
    }
}

impl From<RetentionError> for Fault {
    fn from(error: RetentionError) -> Fault {
        Fault::new(error.reason(), error.to_string())
    }
}
