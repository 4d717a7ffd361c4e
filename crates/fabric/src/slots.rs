//! Slots: memory of a client that the server of one connection may reach.
//!
//! Guarantees: the server knows the key of a slot from the request that names it until the registration is closed; a
//! slot belongs to its connection and dies with it; memory is unmapped after its registration is closed, so a late
//! write finds nothing. A slot is used again after the reply to its request, unless that reply says that the server did
//! not finish with it: then all slots are closed ([`LentSlots::end`]).

#![expect(unsafe_code, reason = "slots are memory that a server writes into")]

use std::sync::Arc;

use frieze_base::crc32c;
use frieze_wire::RemoteMemory;

use crate::FabricError;
use crate::endpoint::RegisteredMemory;
use crate::host::Fabric;
use crate::objects::MemoryAccess;
use crate::rooms::ROOM_BYTES;
use crate::slot_table::{LentSlots, SlotEnd, SlotReply};

/// Slots of a connection: one for each request that a stream has under way, and one for the payload being taken.
pub const SLOTS: usize = 5;

/// The slots of one connection.
#[derive(Debug)]
pub struct ClientSlots {
    fabric: Arc<Fabric>,
    server: u64,
    memory: Vec<RegisteredMemory>,
    table: LentSlots,
}

impl ClientSlots {
    /// Registers the slots of a connection to the server whose endpoint has this address.
    ///
    /// # Errors
    /// `Provider`.
    ///
    /// # Cost
    /// [`SLOTS`] registrations, and as many MiB of memory once they are used.
    pub fn new(fabric: &Arc<Fabric>, server: &[u8]) -> Result<ClientSlots, FabricError> {
        let core = fabric.endpoint().core();
        let memory =
            (0..SLOTS).map(|_| core.register(ROOM_BYTES, MemoryAccess::RemoteReadWrite)).collect::<Result<_, _>>()?;
        // Some providers accept transfers of known peers only.
        let server = core.insert(server)?;
        Ok(ClientSlots { fabric: fabric.clone(), server, memory, table: LentSlots::new(SLOTS) })
    }

    /// A slot that the server may write `len` bytes into until the reply to `request`. None if none is free.
    pub fn lend(&mut self, request: u64, len: usize) -> Option<RemoteMemory> {
        if len > ROOM_BYTES {
            return None;
        }
        self.table.lend(request).map(|slot| self.remote(slot, ROOM_BYTES))
    }

    /// Copies `payload` into a slot that the server may read until the reply to `request`. None if none is free.
    pub fn fill(&mut self, request: u64, payload: &[u8]) -> Option<RemoteMemory> {
        if payload.len() > ROOM_BYTES {
            return None;
        }
        let slot = self.table.lend(request)?;
        // SAFETY: the slot is free: no request names it, so the server makes no transfer of it.
        unsafe { self.memory[slot].pages().bytes_mut(0..payload.len()) }.copy_from_slice(payload);
        Some(self.remote(slot, payload.len()))
    }

    fn remote(&self, slot: usize, len: usize) -> RemoteMemory {
        let memory = &self.memory[slot];
        RemoteMemory { address: memory.base(), key: memory.key(), len: len as u32 }
    }

    /// The reply to `request` has come. If it says that bytes lie in its slot, they stay there until
    /// [`ClientSlots::release`].
    pub fn end(&mut self, request: u64, reply: SlotReply) -> SlotEnd {
        if reply.landed > ROOM_BYTES {
            // No slot has so many: the server says what is not so.
            self.table.close();
            return SlotEnd::Lost;
        }
        self.table.end(request, reply)
    }

    /// Closes the registrations. Returns which requests have slots that no payload can be taken from any more.
    pub fn close(mut self) -> LentSlots {
        self.table.close();
        std::mem::replace(&mut self.table, LentSlots::new(0))
    }

    /// The bytes that the last reply left in its slot.
    pub fn landed(&self) -> Option<&[u8]> {
        let (slot, len) = self.table.landed()?;
        // SAFETY: the server has finished: its reply says so, and no other request names the slot.
        Some(unsafe { self.memory[slot].pages().bytes(0..len.min(ROOM_BYTES)) })
    }

    /// True if the landed bytes have this checksum. Hardware may deliver the last of them after the reply: looks again
    /// for a millisecond.
    pub fn is_intact(&self, crc: u32) -> bool {
        (0..LOOKS).any(|look| {
            if look > 0 {
                std::thread::park_timeout(LOOK_AGAIN);
            }
            self.landed().is_some_and(|bytes| crc32c(bytes) == crc)
        })
    }

    /// The landed bytes are not needed any more.
    pub fn release(&mut self) {
        self.table.release();
    }

    /// Writes a pattern of `len` bytes at the beginning of the first slot, for the server to read, and names the slot.
    pub fn begin_probe(&mut self, request: u64, pattern: &[u8]) -> Option<RemoteMemory> {
        self.fill(request, pattern).map(|slot| RemoteMemory { len: ROOM_BYTES as u32, ..slot })
    }

    /// True if the server has written the complement of `pattern` behind it, in the slot of the reply's request.
    pub fn ends_probe(&self, pattern: &[u8]) -> bool {
        let behind = self.landed().and_then(|bytes| bytes.get(pattern.len()..2 * pattern.len()));
        behind.is_some_and(|behind| behind.iter().zip(pattern).all(|(found, sent)| *found == !sent))
    }
}

impl Drop for ClientSlots {
    fn drop(&mut self) {
        // Keys first, then the address, then the memory.
        self.memory.clear();
        self.fabric.endpoint().core().remove(self.server);
    }
}

const LOOKS: usize = 20;
const LOOK_AGAIN: std::time::Duration = std::time::Duration::from_micros(50);
