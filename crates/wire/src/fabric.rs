//! Payloads that servers transfer themselves, by one-sided reads and writes of registered memory.

/// Registered memory of the sender of a message, which the receiver may reach.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct RemoteMemory {
    /// Address of its first byte, as the provider counts.
    #[prost(fixed64, tag = "1")]
    pub address: u64,
    /// Key of its registration.
    #[prost(fixed64, tag = "2")]
    pub key: u64,
    /// Length in bytes.
    #[prost(uint32, tag = "3")]
    pub len: u32,
}

/// An endpoint of a fabric.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct FabricOffer {
    /// Name of the provider, as libfabric has it.
    #[prost(string, tag = "1")]
    pub provider: String,
    /// Number of its protocol: endpoints of the same protocol reach each other.
    #[prost(uint32, tag = "2")]
    pub protocol: u32,
    /// Address of the endpoint, as the provider has it.
    #[prost(bytes = "vec", tag = "3")]
    pub address: Vec<u8>,
}

/// Asks the server to test transfers with the client's memory, and to use them from then on. The server reads
/// [`PROBE_BYTES`] at the beginning of `memory`, and writes their complement behind them. Its reply is `Done`, or the
/// refusal with which it goes on by TCP.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ConnectFabric {
    /// The client's endpoint.
    #[prost(message, required, tag = "1")]
    pub offer: FabricOffer,
    /// Memory of the client for the test.
    #[prost(message, required, tag = "2")]
    pub memory: RemoteMemory,
}

/// Bytes that a test reads, and writes.
pub const PROBE_BYTES: usize = 4096;
