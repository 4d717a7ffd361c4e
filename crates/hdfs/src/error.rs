//! Errors of opening a gateway.

use std::io;

/// Why the gateway cannot open.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is invalid, or cannot be listened on.
    #[error("cannot listen for Hadoop clients on {address}: {source}")]
    Listen {
        /// As configured.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// The address is reachable from other machines, where the kernel cannot prove callers.
    #[error(
        "refusing to listen for Hadoop clients on {address}: beyond this machine the kernel \
         cannot prove callers; listen on 127.0.0.1, or pass --hdfs-trust-names to believe every name but root"
    )]
    Beyond {
        /// As configured.
        address: String,
    },
    /// Its own server does not answer.
    #[error(transparent)]
    Client(#[from] frieze_client::Error),
    /// A system call failed.
    #[error("cannot {doing}: {source}")]
    System {
        /// What it was for.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
}
