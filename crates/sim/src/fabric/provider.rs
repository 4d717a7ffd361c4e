//! Endpoints of the server: rooms, transfers under way, and what the provider makes of them.

use std::rc::{Rc, Weak};

use frieze_fabric::{TRANSFER_MAX, TransferTable};
use frieze_wire::RemoteMemory;

use super::breakage::FabricBreak;
use super::kit::{FabricEvent, FabricKit, SLOT_BYTES};
use super::memory::ClientMemory;
use crate::violation::{Rule, Verdict, broken};

/// The use of a room, for as long as its owner or a transfer has it.
#[derive(Debug)]
pub(super) struct RoomUse {
    endpoint: usize,
    room: usize,
    number: u64,
}

/// Memory of an endpoint, and its use.
struct SimRoom {
    bytes: Vec<u8>,
    used: Weak<RoomUse>,
    number: u64,
}

/// What the table of an endpoint keeps of a transfer.
struct PostedRoom {
    transfer: usize,
    kept: Option<Rc<RoomUse>>,
}

struct SimEndpoint {
    is_open: bool,
    /// A transfer did not end in time.
    is_stuck: bool,
    rooms: Vec<SimRoom>,
    rooms_max: usize,
    table: TransferTable<PostedRoom>,
    /// Transfers begun.
    begun: u64,
    /// Contexts as a broken endpoint gives them, the one that was freed last first, and whose each is.
    reused: Vec<usize>,
    stands_for: Vec<usize>,
}

/// How a transfer stands, as its thread sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransferStatus {
    UnderWay,
    Succeeded,
    Failed,
}

/// What a transfer is.
#[derive(Clone, Copy, Debug)]
pub(super) struct SimTransferPlan {
    /// Into the client's memory, else from there.
    pub(super) is_write: bool,
    pub(super) conn: u64,
    /// The piece of work that waits for it.
    pub(super) work: u64,
    pub(super) request: u64,
    pub(super) remote: RemoteMemory,
    /// Where it begins, in the room and behind the remote address.
    pub(super) at: usize,
    pub(super) remote_at: usize,
    pub(super) len: usize,
}

struct SimTransfer {
    plan: SimTransferPlan,
    endpoint: usize,
    room: usize,
    number: u64,
    context: usize,
    status: TransferStatus,
    deadline_us: u64,
    pieces: Vec<TransferPiece>,
    /// How it completes.
    succeeds: bool,
    comes_twice: bool,
    is_complete: bool,
    /// Transfers begun when it completed.
    begun_before: u64,
}

struct TransferPiece {
    at: usize,
    len: usize,
    /// On their way.
    bytes: Option<Vec<u8>>,
    has_landed: bool,
    is_damaged: bool,
}

/// What the provider says to a transfer.
pub(super) enum PostResult {
    Posted(usize),
    /// It takes none at the moment.
    Later,
    Refused,
}

/// The provider, and all endpoints that the server has had.
#[derive(Default)]
pub(super) struct SimProvider {
    endpoints: Vec<SimEndpoint>,
    transfers: Vec<SimTransfer>,
    /// It takes no transfer and completes none until then, and then fails until then.
    pub(super) stalls_until_us: u64,
    pub(super) fails_until_us: u64,
}

impl SimProvider {
    pub(super) fn open(&mut self, rooms_max: usize, transfers_max: usize) -> usize {
        let table = TransferTable::new(transfers_max);
        self.endpoints.push(SimEndpoint {
            is_open: true,
            is_stuck: false,
            rooms: Vec::new(),
            rooms_max,
            reused: (0..table.contexts()).collect(),
            stands_for: vec![0; table.contexts()],
            table,
            begun: 0,
        });
        self.endpoints.len() - 1
    }

    pub(super) fn is_stuck(&self, endpoint: usize) -> bool {
        self.endpoints[endpoint].is_stuck
    }

    /// Closes an endpoint: its transfers fail, and it touches no room any more.
    pub(super) fn close(&mut self, kit: &mut FabricKit, endpoint: usize) {
        self.endpoints[endpoint].is_open = false;
        for posted in self.endpoints[endpoint].table.end_all() {
            self.end(kit, posted.transfer, TransferStatus::Failed);
        }
    }

    /// A room. `Ok(None)` if all are in use, an error if the endpoint is closed.
    pub(super) fn take(&mut self, kit: &mut FabricKit, endpoint: usize) -> Result<Option<Rc<RoomUse>>, ()> {
        let number = kit.number();
        let of = &mut self.endpoints[endpoint];
        if !of.is_open {
            return Err(());
        }
        let free = of.rooms.iter().position(|room| room.used.strong_count() == 0);
        let Some(room) = free.or((of.rooms.len() < of.rooms_max).then_some(of.rooms.len())) else { return Ok(None) };
        let used = Rc::new(RoomUse { endpoint, room, number });
        let (bytes, used_by) = (vec![0; SLOT_BYTES], Rc::downgrade(&used));
        if room == of.rooms.len() {
            of.rooms.push(SimRoom { bytes, used: used_by, number });
        } else {
            (of.rooms[room].used, of.rooms[room].number) = (used_by, number);
        }
        Ok(Some(used))
    }

    pub(super) fn rooms_in_use(&self) -> usize {
        let rooms = self.endpoints.iter().flat_map(|endpoint| &endpoint.rooms);
        rooms.filter(|room| room.used.strong_count() > 0).count()
    }

    pub(super) fn bytes(&self, room: &RoomUse, len: usize) -> &[u8] {
        &self.endpoints[room.endpoint].rooms[room.room].bytes[..len]
    }

    pub(super) fn fill(&mut self, room: &RoomUse, at: usize, bytes: &[u8]) {
        self.endpoints[room.endpoint].rooms[room.room].bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Begins a transfer.
    pub(super) fn post(&mut self, kit: &mut FabricKit, room: &Rc<RoomUse>, plan: SimTransferPlan) -> PostResult {
        let index = self.transfers.len();
        let endpoint = &mut self.endpoints[room.endpoint];
        if !endpoint.is_open {
            return PostResult::Refused;
        }
        if kit.now_us < self.stalls_until_us {
            return PostResult::Later;
        }
        if kit.now_us < self.fails_until_us {
            return PostResult::Refused;
        }
        let kept = (!kit.is_broken(FabricBreak::RoomReusedEarly)).then(|| room.clone());
        let Ok(mut context) = endpoint.table.begin(PostedRoom { transfer: index, kept }) else {
            return PostResult::Later;
        };
        if kit.is_broken(FabricBreak::ContextReusedAtOnce) {
            let reused = endpoint.reused.pop().expect("as many as contexts");
            endpoint.stands_for[reused] = context;
            context = reused;
        }
        endpoint.begun += 1;
        let deadline_us = kit.now_us + TRANSFER_MAX.as_micros() as u64;
        let mut transfer = SimTransfer {
            plan,
            endpoint: room.endpoint,
            room: room.room,
            number: room.number,
            context,
            status: TransferStatus::UnderWay,
            deadline_us,
            pieces: Vec::new(),
            succeeds: true,
            comes_twice: false,
            is_complete: false,
            begun_before: 0,
        };
        draw_course(kit, index, &mut transfer);
        self.transfers.push(transfer);
        if !kit.is_broken(FabricBreak::NoTimeout) {
            kit.schedule.add(deadline_us, FabricEvent::Work(plan.conn, plan.work));
        }
        PostResult::Posted(index)
    }

    /// How a transfer stands. Once its time is over, its endpoint is stuck.
    pub(super) fn wait(&mut self, kit: &mut FabricKit, transfer: usize) -> TransferStatus {
        let SimTransfer { status, deadline_us, endpoint, .. } = self.transfers[transfer];
        let is_late = kit.now_us >= deadline_us && !kit.is_broken(FabricBreak::NoTimeout);
        if status != TransferStatus::UnderWay || !is_late {
            return status;
        }
        kit.counts.timeouts += 1;
        self.endpoints[endpoint].is_stuck = true;
        TransferStatus::Failed
    }

    /// A piece leaves the memory that it comes from.
    pub(super) fn leave(&mut self, kit: &mut FabricKit, memory: &ClientMemory, index: usize, piece: usize) -> Verdict {
        let transfer = &mut self.transfers[index];
        let endpoint = &self.endpoints[transfer.endpoint];
        // A transfer that has completed touches its room no more.
        if !endpoint.is_open || transfer.is_complete {
            return Ok(());
        }
        let SimTransferPlan { is_write, at: room_at, remote_at, remote, .. } = transfer.plan;
        let TransferPiece { at, len, .. } = transfer.pieces[piece];
        let bytes = if is_write {
            let room = room_of(endpoint, transfer)?;
            Some(room.bytes[room_at + at..room_at + at + len].to_vec())
        } else {
            memory.read(kit, &remote, remote_at + at, len)
        };
        if bytes.is_none() {
            self.refuse(kit, index);
        }
        self.transfers[index].pieces[piece].bytes = bytes;
        Ok(())
    }

    /// A piece arrives.
    pub(super) fn land(
        &mut self,
        kit: &mut FabricKit,
        memory: &mut ClientMemory,
        index: usize,
        piece: usize,
    ) -> Verdict {
        let transfer = &mut self.transfers[index];
        let TransferPiece { at, is_damaged, .. } = transfer.pieces[piece];
        let Some(mut bytes) = transfer.pieces[piece].bytes.take() else { return Ok(()) };
        if is_damaged {
            bytes[0] ^= 0x40;
        }
        transfer.pieces[piece].has_landed = true;
        let SimTransferPlan { is_write, at: room_at, remote_at, remote, request, .. } = transfer.plan;
        if is_write {
            kit.counts.late_pieces += u64::from(transfer.is_complete);
            if !memory.write(kit, (&remote, remote_at + at), &bytes, request)? {
                self.refuse(kit, index);
            }
            return Ok(());
        }
        let endpoint = &mut self.endpoints[transfer.endpoint];
        if endpoint.is_open && !transfer.is_complete {
            room_of(endpoint, transfer)?;
            let room = &mut endpoint.rooms[transfer.room].bytes;
            room[room_at + at..room_at + at + bytes.len()].copy_from_slice(&bytes);
        }
        Ok(())
    }

    /// The other end has refused a piece: the transfer fails soon.
    fn refuse(&mut self, kit: &mut FabricKit, index: usize) {
        kit.counts.refused_pieces += 1;
        self.transfers[index].succeeds = false;
        kit.soon(500, FabricEvent::Complete(index, false));
    }

    /// A completion.
    pub(super) fn complete(&mut self, kit: &mut FabricKit, memory: &ClientMemory, index: usize, again: bool) {
        let transfer = &mut self.transfers[index];
        let endpoint = &self.endpoints[transfer.endpoint];
        if !endpoint.is_open || transfer.is_complete != again {
            return;
        }
        if again && endpoint.begun - transfer.begun_before >= endpoint.table.contexts() as u64 / 2 {
            // Later than providers are taken to be.
            return;
        }
        if kit.now_us < self.stalls_until_us {
            kit.schedule.add(self.stalls_until_us, FabricEvent::Complete(index, again));
            return;
        }
        (transfer.is_complete, transfer.begun_before) = (true, endpoint.begun);
        let SimTransfer { plan, succeeds, comes_twice, context, .. } = *transfer;
        if plan.is_write && succeeds && !again {
            // What would not make a difference is there already.
            let pieces = &mut transfer.pieces;
            pieces.iter_mut().filter(|piece| !piece.has_landed).for_each(|piece| {
                let is_there = |bytes: &Vec<u8>| memory.has(&plan.remote, plan.remote_at + piece.at, bytes);
                if piece.bytes.as_ref().is_some_and(is_there) {
                    piece.bytes = None;
                }
            });
        }
        if comes_twice && !again {
            kit.soon(2000, FabricEvent::Complete(index, true));
        }
        let is_reused = kit.is_broken(FabricBreak::ContextReusedAtOnce);
        let endpoint = &mut self.endpoints[transfer.endpoint];
        let ended = endpoint.table.end(if is_reused { endpoint.stands_for[context] } else { context });
        let Some(posted) = ended else {
            kit.counts.strays += 1;
            return;
        };
        if is_reused {
            endpoint.reused.push(context);
        }
        if !succeeds && kit.is_broken(FabricBreak::FailedRoomLost) {
            std::mem::forget(posted.kept.clone());
        }
        let status = if succeeds { TransferStatus::Succeeded } else { TransferStatus::Failed };
        self.end(kit, posted.transfer, status);
    }

    fn end(&mut self, kit: &mut FabricKit, index: usize, status: TransferStatus) {
        let SimTransfer { plan, .. } = self.transfers[index];
        kit.counts.failures += u64::from(status == TransferStatus::Failed);
        self.transfers[index].status = status;
        kit.after(0, FabricEvent::Work(plan.conn, plan.work));
    }
}

/// The room of a transfer, which is still used for it.
fn room_of<'a>(endpoint: &'a SimEndpoint, transfer: &SimTransfer) -> Verdict<&'a SimRoom> {
    let room = &endpoint.rooms[transfer.room];
    if room.number == transfer.number && room.used.strong_count() > 0 {
        return Ok(room);
    }
    let is_free = room.used.strong_count() == 0;
    let plan = &transfer.plan;
    broken(Rule::Memory, format!("a transfer of request {} uses a room that is in other use: {is_free}", plan.request))
}

/// Draws when the pieces of a transfer leave and arrive, and when and how it completes.
fn draw_course(kit: &mut FabricKit, index: usize, transfer: &mut SimTransfer) {
    let is_write = transfer.plan.is_write;
    let duration = match kit.rng.below(20) {
        0 => kit.rng.between(200, 5_000),
        _ => kit.rng.between(5, 200),
    };
    let odd = if kit.draw_oddity() { kit.rng.below(8) } else { u64::MAX };
    // When it completes, and when the last piece has arrived.
    let (completes, upto) = match odd {
        // About when its time is over, or after that.
        0 => {
            let end = kit.rng.between(900_000, 3_000_000);
            (Some(end), end)
        }
        // Never, though bytes may arrive, now or much later.
        1 | 2 => (None, *kit.rng.choose(&[duration, 1_500_000, 4_000_000])),
        // With an error, before its bytes have arrived, or after.
        3 | 4 => {
            transfer.succeeds = false;
            (Some(duration), duration + kit.rng.between(0, 5_000))
        }
        _ => (Some(duration), duration),
    };
    transfer.comes_twice = odd == 5;
    let is_late = odd == 6 && is_write;
    let count = kit.rng.between(1, 3).min(transfer.plan.len as u64) as usize;
    let step = transfer.plan.len.div_ceil(count);
    for at in (0..transfer.plan.len).step_by(step) {
        let piece = transfer.pieces.len();
        let len = step.min(transfer.plan.len - at);
        let is_last = at + len == transfer.plan.len;
        let mut lands = kit.rng.between(1, upto.max(1));
        let mut leaves = kit.rng.between(0, lands);
        if is_last && is_late {
            leaves = duration.min(leaves);
            let longest = *kit.rng.choose(&[400, 3_000]);
            lands = duration + kit.rng.between(1, longest);
        }
        // With an error some bytes never arrive.
        let is_lost = !transfer.succeeds && kit.rng.chance(3);
        let is_damaged = odd == 7 && is_last;
        transfer.pieces.push(TransferPiece { at, len, bytes: None, has_landed: false, is_damaged });
        kit.after(leaves, FabricEvent::Leave(index, piece));
        if !is_lost {
            kit.after(lands, FabricEvent::Land(index, piece));
        }
    }
    if let Some(at) = completes {
        kit.after(at, FabricEvent::Complete(index, false));
    }
}
