//! What keeps a gateway from opening.

use std::io;

/// What keeps the door from opening.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is none, or cannot be listened on.
    #[error("cannot listen for Hadoop clients on {address}: {source}")]
    Listen {
        /// As it was given.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// It lies beyond this machine, where the kernel cannot prove callers.
    #[error(
        "refusing to listen for Hadoop clients on {address}: beyond this machine nothing proves who they are; listen on 127.0.0.1, or say --hdfs-trust-names to believe every name but root"
    )]
    Beyond {
        /// As it was given.
        address: String,
    },
    /// Its own server does not answer.
    #[error(transparent)]
    Client(#[from] frieze_client::Error),
    /// The system lacks something.
    #[error("cannot {doing}: {source}")]
    System {
        /// What was to be done.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
}
