//! Why a transaction does not run.

use frieze_base::{ErrorKind, SessionId};

/// A transaction that the registry refuses. The same on every server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// The session has said that it has the answer.
    #[error("request {seq} of session {session} was acknowledged, as all below {acked}: its answer is not kept")]
    TooOld {
        /// The session.
        session: SessionId,
        /// The request.
        seq: u64,
        /// Requests below are acknowledged.
        acked: u64,
    },
    /// A front-end sent an attempt without the word that the one before was superseded.
    #[error("request {seq} of session {session} came with attempt {attempt}, after attempt {last}: send the next one")]
    AttemptSkipped {
        /// The session.
        session: SessionId,
        /// The request.
        seq: u64,
        /// The attempt.
        attempt: u32,
        /// The last one that ran; 0: none.
        last: u32,
    },
    /// The session acknowledges no answers.
    #[error("session {session} has {max} requests without an acknowledgement: acknowledge answers before the next one")]
    Unacknowledged {
        /// The session.
        session: SessionId,
        /// Most that are remembered, beside the oldest.
        max: usize,
    },
}

impl RegistryError {
    /// What the client does next: it goes on after an acknowledgement, or the request is at fault.
    pub fn kind(&self) -> ErrorKind {
        match self {
            RegistryError::TooOld { .. } | RegistryError::AttemptSkipped { .. } => ErrorKind::Invalid,
            RegistryError::Unacknowledged { .. } => ErrorKind::Unavailable,
        }
    }
}
