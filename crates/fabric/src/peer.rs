//! Transfers with one peer, as a server makes them.

#![expect(unsafe_code, reason = "transfers reach memory that the compiler does not see them reach")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use frieze_wire::RemoteMemory;

use crate::FabricError;
use crate::endpoint::{EndpointCore, PeerRole, Transfer};
use crate::host::Fabric;
use crate::objects::TransferDirection;
use crate::rooms::{ROOM_BYTES, Room};

/// The other end of a connection, as the fabric knows it.
#[derive(Debug)]
pub struct FabricPeer {
    fabric: Arc<Fabric>,
    role: PeerRole,
    number: u64,
    address: Vec<u8>,
    /// A transfer has failed: no more are made until the peer asks for a new probe.
    is_down: AtomicBool,
}

impl FabricPeer {
    /// The client at `address`.
    ///
    /// # Errors
    /// `Provider` if these bytes are no address of the provider.
    pub fn new(fabric: &Arc<Fabric>, address: &[u8]) -> Result<FabricPeer, FabricError> {
        FabricPeer::of(fabric, PeerRole::Client, address)
    }

    /// The server at `address`, which lends rooms to be read.
    ///
    /// # Errors
    /// As [`FabricPeer::new`]; `Closed` if this process has no endpoint for other servers.
    pub fn of_server(fabric: &Arc<Fabric>, address: &[u8]) -> Result<FabricPeer, FabricError> {
        FabricPeer::of(fabric, PeerRole::Server, address)
    }

    fn of(fabric: &Arc<Fabric>, role: PeerRole, address: &[u8]) -> Result<FabricPeer, FabricError> {
        let number = fabric.core(role).ok_or(FabricError::Closed)?.insert(address)?;
        Ok(FabricPeer {
            fabric: fabric.clone(),
            role,
            number,
            address: address.to_vec(),
            is_down: AtomicBool::new(false),
        })
    }

    /// True until a transfer has failed.
    pub fn is_up(&self) -> bool {
        !self.is_down.load(Ordering::Acquire)
    }

    fn core(&self) -> &EndpointCore {
        self.fabric.core(self.role).expect("it was inserted there")
    }

    /// Fetches `len` bytes from memory of the peer into a room of their own.
    ///
    /// # Errors
    /// `Full`: no room was free for a moment; ask again by TCP. `Transfer`, `Timeout`, `Closed`: the peer is down from
    /// now on.
    pub fn fetch(&self, from: &RemoteMemory, len: usize) -> Result<Bytes, FabricError> {
        check_len(from, len)?;
        if len == 0 {
            return Ok(Bytes::new());
        }
        let room = self.room(ROOM_WAIT)?;
        let (local, descriptor) = room.local(0, self.role);
        // SAFETY: the room is this function's until the transfer ends; without an end the transfer keeps it.
        let begun = unsafe {
            let at = (from.address, from.key);
            self.core().begin(TransferDirection::Read, self.number, (local, len, descriptor), at, room.used().clone())
        };
        self.check(begun.and_then(Transfer::wait))?;
        // SAFETY: the transfer has ended.
        Ok(unsafe { room.into_bytes(len) })
    }

    /// Begins to write a payload of `len` bytes into memory of the peer.
    ///
    /// # Errors
    /// `SlotTooSmall`; `Full`: no room is free; the next payload may go this way again. Others: the peer is down.
    pub fn write_into(&self, slot: RemoteMemory, len: usize) -> Result<SlotWriter<'_>, FabricError> {
        check_len(&slot, len)?;
        Ok(SlotWriter { peer: self, slot, room: self.room(Duration::ZERO)?, posted: 0, under_way: Vec::new() })
    }

    fn room(&self, wait: Duration) -> Result<Room, FabricError> {
        match self.fabric.rooms().take_within(wait) {
            Err(full @ FabricError::Full(_)) => Err(full),
            taken => self.check(taken),
        }
    }

    /// Notes a failure.
    fn check<T>(&self, done: Result<T, FabricError>) -> Result<T, FabricError> {
        if let Err(error) = &done {
            tracing::debug!("a peer of provider {} is down: {error}", self.fabric.endpoint().provider());
            self.is_down.store(true, Ordering::Release);
            self.core().note_failed(&self.address);
        }
        done
    }
}

impl Drop for FabricPeer {
    fn drop(&mut self) {
        self.core().remove(self.number);
    }
}

fn check_len(memory: &RemoteMemory, len: usize) -> Result<(), FabricError> {
    let room = (memory.len as usize).min(ROOM_BYTES);
    if len <= room { Ok(()) } else { Err(FabricError::SlotTooSmall { slot: room as u64, len: len as u64 }) }
}

/// A payload on its way into memory of a peer: filled and sent part by part, so that one is read while the one before
/// it is on its way.
#[derive(Debug)]
pub struct SlotWriter<'a> {
    peer: &'a FabricPeer,
    slot: RemoteMemory,
    room: Room,
    /// Bytes whose transfer was begun.
    posted: usize,
    under_way: Vec<Transfer<'a>>,
}

impl SlotWriter<'_> {
    /// Memory for the next `len` bytes.
    ///
    /// # Panics
    /// If they are beyond the room.
    pub fn next(&mut self, len: usize) -> &mut [u8] {
        // SAFETY: transfers under way end before this range.
        unsafe { self.room.bytes_mut(self.posted..self.posted + len) }
    }

    /// Sends the `len` bytes that [`SlotWriter::next`] filled.
    ///
    /// # Errors
    /// `Transfer`, `Timeout`, `Closed`: the peer is down, and its memory may still change.
    pub fn send(&mut self, len: usize) -> Result<(), FabricError> {
        let (local, descriptor) = self.room.local(self.posted, self.peer.role);
        // A client may name any address; hardware refuses what is not registered.
        let at = (self.slot.address.wrapping_add(self.posted as u64), self.slot.key);
        // SAFETY: the range is not touched again: `next` begins behind it. The transfer keeps the room.
        let begun = unsafe {
            let memory = self.room.used().clone();
            self.peer.core().begin(TransferDirection::Write, self.peer.number, (local, len, descriptor), at, memory)
        };
        self.under_way.push(self.peer.check(begun)?);
        self.posted += len;
        Ok(())
    }

    /// Waits until everything lies in the peer's memory. Returns how many bytes that are.
    ///
    /// # Errors
    /// As [`SlotWriter::send`].
    pub fn finish(self) -> Result<usize, FabricError> {
        let mut done = Ok(self.posted);
        // Each is waited for: one that never ends is noticed only so.
        for transfer in self.under_way {
            let ended = self.peer.check(transfer.wait());
            done = done.and_then(|posted| ended.map(|()| posted));
        }
        done
    }
}

/// Longest wait for a room before a payload is fetched. Rooms are in use until their records are committed, so a writer
/// that is faster than the chain waits here, as it waits for its socket without a fabric.
const ROOM_WAIT: Duration = Duration::from_millis(500);
