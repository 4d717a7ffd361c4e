//! Payloads by one-sided transfers in one thread under a seed: clients with slots, a server with rooms, and a fabric
//! between them that does everything that fabrics do.
//!
//! Which slot belongs to which request ([`frieze_fabric::LentSlots`]), what a reply says of it
//! ([`frieze_fabric::SlotReply`]), when transfers are tested ([`frieze_fabric::TransferTrial`]) and how long a transfer
//! keeps its memory ([`frieze_fabric::TransferTable`]) are the code that servers and clients run. Memory, provider,
//! connections and processes are simulated. A transfer moves its bytes in pieces at random moments, each of which looks
//! at the key again; it may complete late, twice, never, or with an error though pieces are still on their way; the
//! last piece of a write may arrive after its completion, and bytes may be damaged on the way. The provider stalls and
//! then fails; processes die in mid-transfer and come back; connections are cut.
//!
//! Three things the model takes for granted, as the code does: a transfer that has completed, with or without an error,
//! touches its room no more, though bytes that have left it may still arrive in a slot; bytes that arrive after the
//! completion of a write differ from what was in the slot before, so that the checksum awaits them; and a completion
//! comes the second time before many other transfers have begun.
//!
//! The judge compares every payload with what was written, counts how often each write was applied, looks at every
//! landing if the memory still belongs to the request that the transfer is of, and at the end that every request was
//! answered, that no room is in use, and that payloads go by the fabric again.
//!
//! Where to look: `kit` (events and messages), `memory` (slots and keys), `provider` (rooms and transfers), `served`
//! (a connection at the server), `client`, `world` (faults and the end), `breakage`.

mod breakage;
mod client;
mod kit;
mod memory;
mod plan;
mod provider;
mod served;
mod world;

pub use breakage::FabricBreak;
pub use plan::{FabricCounts, FabricOutcome, FabricPlan};
pub use world::run_fabric;
