//! One-sided transfers over libfabric, which is opened at run time: what servers do for payloads instead of sending
//! them through a socket, where both ends have the hardware.
//!
//! A server writes the payload of a read into memory of its client, and fetches that of a write from there; a member of
//! a chain fetches a record's payload from its predecessor. Requests and replies go by TCP as before, and so does every
//! payload that a transfer cannot carry. [`Endpoint`] is libfabric; [`RoomPool`] is memory for payloads on their way;
//! [`ClientSlots`] is the memory of a client that its server may reach.
//!
//! Guarantees: a provider is used only after it has refused wrong, closed and exceeded keys; memory of a transfer is
//! not reused before the transfer has ended or its registration is closed; every wait is bounded; no payload is lost
//! with a transfer, because its bytes can be asked for again by TCP.
//! Leaves to others: what is transferred and when (`node`, `client`), checksums of payloads, which are compared at both
//! ends as with TCP.

mod bare_loop;
mod endpoint;
mod error;
#[doc(hidden)]
pub mod ffi;
mod hop;
mod host;
mod library;
mod objects;
mod pages;
mod peer;
mod probe;
mod rooms;
mod served_client;
mod slot_table;
mod slots;
mod transfer_table;
mod trial;

pub use bare_loop::BareLoop;
pub use endpoint::{Endpoint, EndpointCounts, EndpointOptions, TRANSFER_MAX};
pub use error::FabricError;
pub use hop::{HopReceiver, HopSender};
pub use host::{Fabric, FabricChoice, FabricHost, FabricReport, HostOptions};
pub use library::{library_version, prepare_environment};
pub use peer::{FabricPeer, SlotWriter};
pub use rooms::{ROOM_BYTES, Room, RoomPool};
pub use served_client::ServedClient;
pub use slot_table::{LentSlots, SlotEnd, SlotReply};
pub use slots::{ClientSlots, SLOTS};
pub use transfer_table::TransferTable;
pub use trial::TransferTrial;
