//! Why a metadata operation fails.

use frieze_base::{ErrorKind, Fault, Reason};

/// Why a metadata operation fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The caller lacks the right.
    #[error("permission denied")]
    AccessDenied,
}

impl Error {
    /// Why, for programs.
    pub fn reason(&self) -> Reason {
        match self {
            Error::AccessDenied => Reason::AccessDenied,
        }
    }

    /// What the caller does next.
    pub fn kind(&self) -> ErrorKind {
        self.reason().kind()
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault::new(error.reason(), error.to_string())
    }
}
