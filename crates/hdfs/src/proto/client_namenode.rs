//! Calls of the name service: `ClientNamenodeProtocol.proto`. Here the messages that several calls share.

pub use names::*;
pub use operations::*;
pub use snapshots::*;
pub use writing::*;

mod names;
mod operations;
mod snapshots;
mod writing;

/// A call about a path alone: `getFileInfo`, `getContentSummary`, `isFileClosed` and others.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PathRequest {
    #[prost(string, required, tag = "1")]
    pub path: String,
}

/// An answer of yes or no: `delete`, `rename`, `complete` and others.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ResultResponse {
    #[prost(bool, required, tag = "1")]
    pub result: bool,
}

/// An answer of a number: `getPreferredBlockSize`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct NumberResponse {
    #[prost(uint64, required, tag = "1")]
    pub number: u64,
}
