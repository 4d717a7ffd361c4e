//! What all parts of the model use: time, chance, events, and messages.

use std::collections::BTreeMap;

use frieze_base::{Fault, MonoTime, Rng};
use frieze_wire::RemoteMemory;
use frieze_wire::message::Reply;

use super::breakage::FabricBreak;
use super::plan::FabricCounts;
use crate::schedule::Schedule;
use crate::trace::Trace;

/// Something that happens.
pub(super) enum FabricEvent {
    /// A client sends, if it may.
    Act(usize),
    /// A client whose process had ended starts again.
    ClientStarts(usize),
    /// A client that waits for bytes in a slot, or uses them, goes on.
    Look(usize, u64),
    /// The client has waited for a reply as long as it may.
    Limit(usize, u64),
    /// Keys of memory that was freed are closed.
    CloseKeys(Vec<u64>),
    /// A message arrives at the server; none: the connection has ended.
    ToServer(u64, Option<FabricAsk>),
    /// A message arrives at a client; none: the connection has ended.
    ToClient(u64, Option<Box<FabricReply>>),
    /// The thread of a connection goes on with this piece of work.
    Work(u64, u64),
    /// A piece of a transfer leaves the memory that it comes from.
    Leave(usize, usize),
    /// A piece of a transfer arrives.
    Land(usize, usize),
    /// A transfer completes, for the second time if so.
    Complete(usize, bool),
    /// A fault.
    Fault,
    /// The server starts again.
    ServerStarts,
}

/// A request.
pub(super) struct FabricAsk {
    /// Its number on the connection.
    pub(super) id: u64,
    /// Its number for ever.
    pub(super) seq: u64,
    pub(super) file: usize,
    pub(super) body: FabricAskBody,
}

pub(super) enum FabricAskBody {
    Read(Option<RemoteMemory>),
    /// The version that it makes, and its payload.
    Write(u64, WritePayload),
    Test(RemoteMemory),
}

pub(super) enum WritePayload {
    Inline(Vec<u8>),
    /// In a slot, and its CRC32C.
    Slot(RemoteMemory, u32),
}

/// A reply.
pub(super) struct FabricReply {
    pub(super) id: u64,
    pub(super) result: Result<Reply, Fault>,
    pub(super) payload: Vec<u8>,
    /// The version that was read.
    pub(super) version: u64,
}

pub(super) struct FabricKit {
    pub(super) rng: Rng,
    pub(super) schedule: Schedule<FabricEvent>,
    pub(super) trace: Trace,
    pub(super) counts: FabricCounts,
    pub(super) breakage: Option<FabricBreak>,
    pub(super) now_us: u64,
    /// Faults still come.
    pub(super) faults: bool,
    /// One transfer in so many does something odd.
    pub(super) odd_one_in: u64,
    /// All do until then.
    pub(super) odd_until_us: u64,
    last_number: u64,
    /// When the last message of each connection arrives, to the server and to the client.
    arrivals: BTreeMap<u64, [u64; 2]>,
}

impl FabricKit {
    pub(super) fn new(seed: u64, keep_trace: bool, breakage: Option<FabricBreak>) -> FabricKit {
        let mut rng = Rng::new(seed);
        FabricKit {
            odd_one_in: *rng.choose(&[3, 10, 30, 100]),
            odd_until_us: 0,
            rng,
            schedule: Schedule::default(),
            trace: Trace::new(keep_trace),
            counts: FabricCounts::default(),
            breakage,
            now_us: 1,
            faults: true,
            last_number: FIRST_NUMBER,
            arrivals: BTreeMap::new(),
        }
    }

    /// A number that nothing else has.
    pub(super) fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    pub(super) fn is_broken(&self, breakage: FabricBreak) -> bool {
        self.breakage == Some(breakage)
    }

    pub(super) fn mono(&self) -> MonoTime {
        MonoTime(self.now_us * 1000)
    }

    pub(super) fn after(&mut self, delay_us: u64, event: FabricEvent) {
        self.schedule.add(self.now_us + delay_us, event);
    }

    /// True if a transfer that begins now does something odd.
    pub(super) fn draw_oddity(&mut self) -> bool {
        self.faults && (self.now_us < self.odd_until_us || self.rng.chance(self.odd_one_in))
    }

    /// After a random delay.
    pub(super) fn soon(&mut self, delay_us_max: u64, event: FabricEvent) {
        let delay = self.rng.between(1, delay_us_max);
        self.after(delay, event);
    }

    pub(super) fn send_to_server(&mut self, conn: u64, ask: Option<FabricAsk>) {
        let at = self.arrival(conn, 0);
        self.schedule.add(at, FabricEvent::ToServer(conn, ask));
    }

    pub(super) fn send_to_client(&mut self, conn: u64, reply: Option<FabricReply>) {
        let at = self.arrival(conn, 1);
        self.schedule.add(at, FabricEvent::ToClient(conn, reply.map(Box::new)));
    }

    /// Messages of a connection arrive in order.
    fn arrival(&mut self, conn: u64, direction: usize) -> u64 {
        let soonest = self.now_us + self.rng.between(10, 200);
        let last = &mut self.arrivals.entry(conn).or_default()[direction];
        *last = soonest.max(*last);
        *last
    }
}

/// What a version of a file holds.
pub(super) fn content_of(version: u64) -> Vec<u8> {
    let len = PAYLOAD_BYTES_MIN + version.wrapping_mul(0x9e37_79b9) % (SLOT_BYTES as u64 - PAYLOAD_BYTES_MIN);
    let byte = |at: u64| (version.wrapping_mul(0x2545_f491_4f6c_dd1d).wrapping_add(at * 0x9e37_79b9) >> 11) as u8;
    (0..len).map(byte).collect()
}

/// Bytes of a slot, and of a room.
pub(super) const SLOT_BYTES: usize = 48;
/// Bytes that a test reads, and writes behind them.
pub(super) const TEST_BYTES: usize = 8;
const PAYLOAD_BYTES_MIN: u64 = 8;
/// Numbers below are the first versions of files.
const FIRST_NUMBER: u64 = 1000;
