//! What can go wrong with one-sided transfers.

/// Errors of the fabric. Each says what was attempted; the caller falls back to TCP.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FabricError {
    /// libfabric is not installed, or is too old.
    #[error("libfabric cannot be used: {0}; install the package libfabric1, or set fabric = \"none\"")]
    Library(String),
    /// The machine has no hardware for a fabric.
    #[error("no RDMA device is in {0}")]
    NoDevice(String),
    /// The provider refused a call, or there is no such provider.
    #[error("{what} (provider {provider}): {words}")]
    Provider {
        /// Name of the provider.
        provider: String,
        /// The call.
        what: &'static str,
        /// The provider's own words.
        words: String,
    },
    /// The provider accepts what it has to refuse: its memory protection cannot be relied on.
    #[error("provider {provider} accepts {what}: it is not used")]
    Unsafe {
        /// Name of the provider.
        provider: String,
        /// The transfer that it should have refused.
        what: &'static str,
    },
    /// The other end has another fabric.
    #[error("the other end has another fabric: {0}")]
    Address(String),
    /// A transfer was refused, or its peer ended.
    #[error("the transfer failed: {0}")]
    Transfer(String),
    /// A transfer did not complete in time. Its memory stays out of use until it completes or the endpoint is closed.
    #[error("the transfer did not complete within {0} ms")]
    Timeout(u64),
    /// All registered memory is in use.
    #[error("all {0} bytes of registered memory are in use")]
    Full(u64),
    /// The peer named memory that cannot hold the payload.
    #[error("a slot of {slot} bytes cannot hold {len}")]
    SlotTooSmall {
        /// Bytes of the slot.
        slot: u64,
        /// Bytes of the payload.
        len: u64,
    },
    /// The endpoint was closed.
    #[error("the endpoint is closed")]
    Closed,
}

impl FabricError {
    /// True if a transfer failed or did not end.
    pub(crate) fn is_of_transfer(&self) -> bool {
        matches!(self, FabricError::Transfer(_) | FabricError::Timeout(_))
    }
}
