//! Transport drivers: TCP and Unix sockets, frames, connections within a process, proof of a caller's identity.
//!
//! Guarantees: blocking sockets, one thread a direction; a frame is sent by one vectored write and its payload is
//! received straight into the caller's buffer; body and payload are handed out only after their checksums matched; a
//! peer that stops in the middle of a frame, or does not read, loses its connection after a bounded time.
//! Leaves to others: what a frame means (`wire`), threads and pools (`node`, `client`).

mod acceptor;
mod addr;
mod admission;
mod busy_poll;
mod challenge;
mod error;
mod frame_reader;
mod frame_writer;
mod frames;
mod idle;
mod in_process;
mod in_process_transport;
mod listener;
mod log_throttle;
mod mono;
mod payload;
mod payload_part;
mod peer_client;
mod peer_credentials;
mod peer_timeouts;
mod peers;
mod private_file;
mod recv_low_water;
mod reply_batch;
mod reply_slots;
mod sock_diag;
mod socket_transport;
mod stream;
mod transport;

pub use acceptor::{AcceptedConnection, Acceptor, ConnectionHandler, Guest};
pub use addr::ServerAddr;
pub use admission::{Admission, AdmissionError, Origin, Seat};
pub use challenge::{Key, MAC_BYTES, NONCE_BYTES, random_nonce};
pub use error::Error;
pub use frame_reader::{FrameReader, HELLO_BYTES_MAX, RESTING_BYTES};
pub use frame_writer::{FrameWriter, PartialFrame};
pub use frames::{CRC_BYTES, FramePart, FramePayload, Limits, encode_frame};
pub use idle::{Idle, idle_until};
pub use in_process::{InProcess, InProcessConn, Inbox, Response};
pub use in_process_transport::InProcessTransport;
pub use listener::Listener;
pub use log_throttle::LogThrottle;
pub use mono::mono;
pub use payload::{BufferPool, ReceivedPayload};
pub use payload_part::{FileRange, PayloadPart};
pub use peer_client::PeerClient;
pub use peer_credentials::{NOBODY, Proof, host_name, kernel_proof, tcp_proof, user_of};
pub use peer_timeouts::{OPERATOR_WAIT_MAX, PEER_SILENCE_MAX, PEER_WAIT_MAX};
pub use peers::{PeerPayload, Peers, PeersCell, PrefixClaim, SentPrefix};
pub use private_file::{PrivateFile, PrivateFileError};
pub use reply_batch::reply_batch;
pub use reply_slots::{LINGER, ReplySlot, ReplySlots, SlotHolder};
pub use socket_transport::SocketTransport;
pub use stream::{Stream, send_unpaced};
pub use transport::{Cancel, CancelHandle, Transport, TransportConn, TransportLimits, TransportReply};

#[cfg(test)]
frieze_harness::count_allocations!();
