//! Transport drivers: TCP and Unix sockets, frames, proof of who is calling.
//!
//! Guarantees: blocking sockets, one thread a direction; a frame goes out in one vectored write and its payload is
//! received straight into the caller's buffer; body and payload are handed out only after their checksums matched; a
//! peer that stops in the middle of a frame, or does not read, is given up after a bounded time.
//! Leaves to others: what a frame means (`wire`), threads and pools (`node`, `client`).

mod addr;
mod admission;
mod diag;
mod eager;
mod error;
mod frames;
mod idle;
mod key;
mod listener;
mod low_water;
mod mono;
mod payload;
mod peers;
mod private_file;
mod proof;
mod seldom;
mod stream;
mod together;
mod within;

pub use addr::ServerAddr;
pub use admission::{Admission, Origin, Refused, Seat};
pub use error::Error;
pub use frames::{
    Begun, CRC_BYTES, FrameReader, FrameWriter, HELLO_BYTES_MAX, Limits, Part, Payload, RESTING_BYTES, encode_frame,
};
pub use idle::{Idle, idle_until};
pub use key::{Key, MAC_BYTES, NONCE_BYTES, random_nonce};
pub use listener::Listener;
pub use mono::mono;
pub use payload::{BufferPool, ReceivedPayload};
pub use peers::{PeerPayload, Peers, PrefixClaim, SentPrefix, Way};
pub use private_file::{PrivateFile, PrivateFileError};
pub use proof::{NOBODY, Proof, host_name, kernel_proof, tcp_proof, user_of};
pub use seldom::Seldom;
pub use stream::{Stream, send_unpaced};
pub use together::together;
pub use within::{Asked, Came, Inbox, Lies, Lot, Within};
