//! Rooms: registered memory of this process that payloads pass through, a mebibyte each.
//!
//! Guarantees: a room has one owner, and returns to the pool when the last of its bytes are dropped and no transfer of
//! it is under way; memory is registered several rooms at a time, and never for a request once there are enough; the
//! number of rooms is bounded.

#![expect(unsafe_code, reason = "a room's bytes are memory that transfers reach, too")]

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use frieze_locks::{Condvar, Mutex, levels};
use frieze_wire::RemoteMemory;

use crate::FabricError;
use crate::endpoint::{Endpoint, EndpointCore, PeerRole, RegisteredMemory};
use crate::objects::MemoryAccess;
use crate::pages::MappedPages;

/// Bytes of a room: those of a request of a stream.
pub const ROOM_BYTES: usize = 1 << 20;
/// Rooms that are registered at once.
const ROOMS_AT_ONCE: usize = 8;

/// Registered memory for payloads.
#[derive(Debug)]
pub struct RoomPool {
    for_clients: Arc<EndpointCore>,
    for_servers: Option<Arc<EndpointCore>>,
    rooms_max: usize,
    rooms: Mutex<levels::FabricRooms, Rooms>,
    /// A room is free again.
    freed: Condvar,
}

#[derive(Debug, Default)]
struct Rooms {
    arenas: Vec<Arc<RoomArena>>,
    free: Vec<RoomPlace>,
}

/// Memory of several rooms. Clients never reach it; other servers may read it, by an endpoint of their own.
#[derive(Debug)]
struct RoomArena {
    for_clients: RegisteredMemory,
    for_servers: Option<RegisteredMemory>,
}

impl RoomArena {
    fn pages(&self) -> &MappedPages {
        self.for_clients.pages()
    }
}

/// Where a room lies.
#[derive(Debug)]
struct RoomPlace {
    arena: Arc<RoomArena>,
    at: usize,
}

/// A room in use.
#[derive(Debug)]
pub struct Room(Arc<UsedRoom>);

/// A room that its owner or a transfer still uses.
#[derive(Debug)]
pub(crate) struct UsedRoom {
    pool: Arc<RoomPool>,
    place: Option<RoomPlace>,
}

impl RoomPool {
    /// A pool of up to `rooms_max` rooms, for transfers of these endpoints.
    pub(crate) fn new(for_clients: &Endpoint, for_servers: Option<&Endpoint>, rooms_max: usize) -> Arc<RoomPool> {
        let (for_clients, for_servers) = (for_clients.core().clone(), for_servers.map(|of| of.core().clone()));
        Arc::new(RoomPool { for_clients, for_servers, rooms_max, rooms: Mutex::default(), freed: Condvar::new() })
    }

    /// A room of [`ROOM_BYTES`], with arbitrary content.
    ///
    /// # Errors
    /// `Full` if all rooms are in use; those of a registration.
    pub fn take(self: &Arc<RoomPool>) -> Result<Room, FabricError> {
        self.take_within(Duration::ZERO)
    }

    /// The same; waits up to `wait` for a room if all are in use.
    ///
    /// # Errors
    /// As [`RoomPool::take`].
    pub fn take_within(self: &Arc<RoomPool>, wait: Duration) -> Result<Room, FabricError> {
        let used = |place| Room(Arc::new(UsedRoom { pool: self.clone(), place: Some(place) }));
        let mut rooms = self.rooms.lock();
        let are_all_made =
            |rooms: &Rooms| (rooms.arenas.len() + 1) * ROOMS_AT_ONCE > self.rooms_max.next_multiple_of(ROOMS_AT_ONCE);
        if rooms.free.is_empty() && are_all_made(&rooms) && !wait.is_zero() {
            rooms = self.freed.wait_timeout_while(rooms, wait, |rooms| rooms.free.is_empty()).0;
        }
        if let Some(place) = rooms.free.pop() {
            return Ok(used(place));
        }
        if are_all_made(&rooms) {
            return Err(FabricError::Full((self.rooms_max * ROOM_BYTES) as u64));
        }
        let for_clients = self.for_clients.register(ROOMS_AT_ONCE * ROOM_BYTES, MemoryAccess::Local)?;
        let again = |core: &Arc<EndpointCore>| core.register_again(for_clients.pages(), MemoryAccess::RemoteRead);
        let for_servers = self.for_servers.as_ref().map(again).transpose()?;
        let arena = Arc::new(RoomArena { for_clients, for_servers });
        rooms.arenas.push(arena.clone());
        let place = |index: usize| RoomPlace { arena: arena.clone(), at: index * ROOM_BYTES };
        rooms.free.extend((1..ROOMS_AT_ONCE).rev().map(place));
        Ok(used(place(0)))
    }

    /// How other servers reach these bytes, if they lie in a room of this pool.
    pub fn find(&self, bytes: &[u8]) -> Option<RemoteMemory> {
        let start = bytes.as_ptr() as usize;
        let rooms = self.rooms.lock();
        rooms.arenas.iter().find_map(|arena| {
            let memory = arena.for_servers.as_ref()?;
            let offset = start.checked_sub(memory.pages().start() as usize)?;
            let is_within = offset + bytes.len() <= memory.pages().len();
            let address = memory.base() + offset as u64;
            is_within.then(|| RemoteMemory { address, key: memory.key(), len: bytes.len() as u32 })
        })
    }

    /// Bytes that are registered.
    pub fn registered_bytes(&self) -> u64 {
        self.rooms.lock().arenas.iter().map(|arena| arena.pages().len() as u64).sum()
    }
}

impl Drop for UsedRoom {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            self.pool.rooms.lock().free.push(place);
            self.pool.freed.notify_one();
        }
    }
}

impl UsedRoom {
    fn place(&self) -> &RoomPlace {
        self.place.as_ref().expect("it has one until it is dropped")
    }
}

impl Room {
    /// What a transfer keeps.
    pub(crate) fn used(&self) -> &Arc<UsedRoom> {
        &self.0
    }

    /// Address of the byte at `at`, and the descriptor of its memory for an endpoint.
    pub(crate) fn local(&self, at: usize, by: PeerRole) -> (*mut u8, usize) {
        assert!(at <= ROOM_BYTES, "{at} is beyond the room");
        let RoomPlace { arena, at: start } = self.0.place();
        let memory = match by {
            PeerRole::Client => Some(&arena.for_clients),
            PeerRole::Server => arena.for_servers.as_ref(),
        };
        let descriptor = memory.map_or(0, RegisteredMemory::descriptor);
        // SAFETY: within the arena's mapping.
        (unsafe { arena.pages().start().add(start + at) }, descriptor)
    }

    /// The bytes of a range, to be written.
    ///
    /// # Safety
    /// No transfer of the range is under way.
    pub(crate) unsafe fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        assert!(range.end <= ROOM_BYTES, "{range:?} is beyond the room");
        let place = self.0.place();
        // SAFETY: the room has one owner, borrowed mutably; the caller excludes transfers.
        unsafe { place.arena.pages().bytes_mut(place.at + range.start..place.at + range.end) }
    }

    /// Copies bytes into the room, and shares them.
    ///
    /// # Panics
    /// If they are more than a room has.
    pub fn share(mut self, bytes: &[u8]) -> Bytes {
        // SAFETY: the room is new: no transfer of it was begun.
        unsafe { self.bytes_mut(0..bytes.len()) }.copy_from_slice(bytes);
        // SAFETY: as above.
        unsafe { self.into_bytes(bytes.len()) }
    }

    /// The first `len` bytes, shared. The room returns to its pool when they are dropped.
    ///
    /// # Safety
    /// No transfer into the room is under way.
    pub(crate) unsafe fn into_bytes(self, len: usize) -> Bytes {
        assert!(len <= ROOM_BYTES, "{len} is beyond the room");
        Bytes::from_owner(RoomBytes { room: self.0, len })
    }
}

/// The owner of shared bytes of a room.
struct RoomBytes {
    room: Arc<UsedRoom>,
    len: usize,
}

impl AsRef<[u8]> for RoomBytes {
    fn as_ref(&self) -> &[u8] {
        let place = self.room.place();
        // SAFETY: shared bytes are not written: the room has no other owner, and no transfer into it is under way.
        unsafe { place.arena.pages().bytes(place.at..place.at + self.len) }
    }
}
