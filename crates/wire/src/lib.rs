//! Frames and messages between frieze processes.
//!
//! Guarantees: old bytes still read; the golden bytes in `tests/` are what `docs/formats.md` draws. A frame is a fixed
//! header, a protobuf body and a raw payload that is never copied into the body.
//! Leaves to others: sockets (`net`), what a request means (`node`, `namespace`).

pub mod acl;
pub mod chain;
pub mod control;
pub mod edit;
pub mod fabric;
pub mod forget;
pub mod frame;
pub mod holding;
pub mod message;
pub mod mode;
pub mod peer;
pub mod quota;
pub mod retention;
pub mod scrub;
pub mod timeline;
pub mod trace;
pub mod txn;
pub mod writers;

mod convert;
mod target;
mod view;

pub use fabric::RemoteMemory;
pub use frame::{FRAME_HEADER_BYTES, FrameHeader, FrameKind, Holds};
