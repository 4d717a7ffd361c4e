//! A client: its connection with slots, requests in flight, and what it does with replies.

use std::collections::VecDeque;

use frieze_base::{Reason, crc32c};
use frieze_fabric::{LentSlots, SlotEnd, SlotReply, TransferTrial};
use frieze_wire::message::Reply;

use super::breakage::FabricBreak;
use super::kit::{
    FabricAsk, FabricAskBody, FabricEvent, FabricKit, FabricReply, SLOT_BYTES, TEST_BYTES, WritePayload, content_of,
};
use super::memory::{ClientMemory, SlotUse};
use crate::violation::{Rule, Verdict, broken};

/// A request that has no answer yet.
struct FabricCall {
    seq: u64,
    file: usize,
    /// The version that it makes; none for a read.
    makes: Option<u64>,
    /// Its payload always goes by TCP.
    is_plain: bool,
}

/// The slots of a connection, and the keys of their memory.
struct OpenedSlots {
    table: LentSlots,
    keys: Vec<u64>,
}

/// A test of transfers that has no answer yet.
struct SlotTest {
    id: u64,
    slots: OpenedSlots,
    pattern: Vec<u8>,
}

/// A payload in a slot that is looked at, and then used.
struct SlotReading {
    reply: FabricReply,
    said: SlotReply,
    slot: usize,
    until_us: u64,
    is_intact: bool,
}

struct FabricClientConn {
    id: u64,
    slots: Option<OpenedSlots>,
    closed: LentSlots,
    trial: TransferTrial,
    test: Option<SlotTest>,
    in_flight: VecDeque<(u64, FabricCall)>,
    inbox: VecDeque<FabricReply>,
    reading: Option<SlotReading>,
}

pub(super) struct FabricClient {
    index: usize,
    pub(super) is_up: bool,
    slots_max: usize,
    conn: Option<FabricClientConn>,
    todo: VecDeque<FabricCall>,
    /// Keys that a broken client passes to its next connection.
    kept: Vec<u64>,
    asked: u64,
    ended: u64,
    /// Writes that were acknowledged.
    pub(super) acked: Vec<u64>,
    /// The payload of the last read that was answered had landed in a slot.
    pub(super) last_landed: bool,
}

impl FabricClient {
    pub(super) fn new(kit: &mut FabricKit, index: usize) -> FabricClient {
        FabricClient {
            index,
            is_up: true,
            slots_max: *kit.rng.choose(&[1, 2, 4, 4]),
            conn: None,
            todo: VecDeque::new(),
            kept: Vec::new(),
            asked: 0,
            ended: 0,
            acked: Vec::new(),
            last_landed: false,
        }
    }

    /// Asks for something, to be sent when there is room.
    pub(super) fn ask(&mut self, kit: &mut FabricKit, file: usize, writes: bool) {
        self.asked += 1;
        let makes = writes.then(|| kit.number());
        let is_plain = kit.faults && kit.rng.chance(8);
        self.todo.push_back(FabricCall { seq: kit.number(), file, makes, is_plain });
        kit.after(1, FabricEvent::Act(self.index));
    }

    pub(super) fn is_idle(&self) -> bool {
        self.todo.is_empty() && self.conn.as_ref().is_none_or(|conn| conn.in_flight.is_empty() && conn.test.is_none())
    }

    /// How many requests were lost without an answer.
    pub(super) fn lost(&self) -> u64 {
        self.asked - self.ended
    }

    pub(super) fn backlog(&self) -> usize {
        self.todo.len() + self.conn.as_ref().map_or(0, |conn| conn.in_flight.len())
    }

    pub(super) fn wants_connection(&self) -> bool {
        self.is_up && self.conn.is_none() && !self.todo.is_empty()
    }

    pub(super) fn conn(&self) -> Option<u64> {
        self.conn.as_ref().map(|conn| conn.id)
    }

    pub(super) fn connected(&mut self, kit: &FabricKit, id: u64) {
        self.conn = Some(FabricClientConn {
            id,
            slots: None,
            closed: LentSlots::new(0),
            trial: TransferTrial::new(kit.mono()),
            test: None,
            in_flight: VecDeque::new(),
            inbox: VecDeque::new(),
            reading: None,
        });
    }

    /// Sends a request, if it may.
    pub(super) fn act(&mut self, kit: &mut FabricKit, memory: &mut ClientMemory) -> Verdict {
        let Some(conn) = self.conn.as_mut().filter(|conn| conn.test.is_none() && conn.reading.is_none()) else {
            return Ok(());
        };
        if conn.in_flight.len() >= DEPTH {
            return Ok(());
        }
        let Some(call) = self.todo.front() else { return Ok(()) };
        if !call.is_plain && conn.slots.is_none() && conn.trial.is_due(kit.mono()) {
            self.begin_test(kit, memory);
            return Ok(());
        }
        let call = self.todo.pop_front().expect("looked at");
        let id = kit.number();
        let body = match call.makes {
            None => {
                let slot = if call.is_plain { None } else { conn.lend(kit, memory, id)? };
                FabricAskBody::Read(slot.map(|key| ClientMemory::remote(key, SLOT_BYTES)))
            }
            Some(version) => {
                let payload = content_of(version);
                let slot = if call.is_plain { None } else { conn.lend(kit, memory, id)? };
                let payload = match slot {
                    Some(key) => {
                        memory.fill(key, &payload);
                        WritePayload::Slot(ClientMemory::remote(key, payload.len()), crc32c(&payload))
                    }
                    None => WritePayload::Inline(payload),
                };
                FabricAskBody::Write(version, payload)
            }
        };
        conn.trial.on_request();
        kit.send_to_server(conn.id, Some(FabricAsk { id, seq: call.seq, file: call.file, body }));
        kit.after(REPLY_MAX_US, FabricEvent::Limit(self.index, id));
        conn.in_flight.push_back((id, call));
        let gap = if kit.rng.chance(16) { 1_200_000 } else { 100 };
        kit.soon(gap, FabricEvent::Act(self.index));
        Ok(())
    }

    fn begin_test(&mut self, kit: &mut FabricKit, memory: &mut ClientMemory) {
        let keys = match std::mem::take(&mut self.kept) {
            kept if kept.is_empty() => (0..self.slots_max).map(|_| memory.register(kit)).collect(),
            kept => kept,
        };
        let conn = self.conn.as_mut().expect("the caller has looked");
        let mut slots = OpenedSlots { table: LentSlots::new(keys.len()), keys };
        let id = kit.number();
        let slot = slots.table.lend(id).expect("all are free");
        let mut pattern = vec![0; TEST_BYTES];
        kit.rng.fill(&mut pattern);
        memory.fill(slots.keys[slot], &pattern);
        memory.set_use(slots.keys[slot], SlotUse::Lent(id));
        let body = FabricAskBody::Test(ClientMemory::remote(slots.keys[slot], SLOT_BYTES));
        kit.send_to_server(conn.id, Some(FabricAsk { id, seq: 0, file: 0, body }));
        kit.after(REPLY_MAX_US, FabricEvent::Limit(self.index, id));
        conn.test = Some(SlotTest { id, slots, pattern });
    }

    /// A message of the server.
    pub(super) fn receive(
        &mut self,
        kit: &mut FabricKit,
        memory: &mut ClientMemory,
        id: u64,
        reply: Option<FabricReply>,
    ) -> Verdict {
        let Some(conn) = self.conn.as_mut().filter(|conn| conn.id == id) else { return Ok(()) };
        match reply {
            Some(reply) => {
                conn.inbox.push_back(reply);
                self.take_replies(kit, memory)
            }
            None => {
                self.disconnect(kit, memory);
                Ok(())
            }
        }
    }

    fn take_replies(&mut self, kit: &mut FabricKit, memory: &mut ClientMemory) -> Verdict {
        while let Some(conn) = self.conn.as_mut().filter(|conn| conn.reading.is_none()) {
            let Some(reply) = conn.inbox.pop_front() else { break };
            if conn.test.as_ref().is_some_and(|test| test.id == reply.id) {
                self.end_test(kit, memory, &reply);
            } else {
                self.take_reply(kit, memory, reply)?;
            }
        }
        kit.after(1, FabricEvent::Act(self.index));
        Ok(())
    }

    fn end_test(&mut self, kit: &mut FabricKit, memory: &mut ClientMemory, reply: &FabricReply) {
        let conn = self.conn.as_mut().expect("it has received something");
        let Some(SlotTest { id, mut slots, pattern }) = conn.test.take() else { return };
        let key = slots.keys[0];
        kit.trace.line(|| format!("client {}: test {id} ends with {:?}", self.index, reply.result));
        let behind = &memory.bytes(key, 2 * TEST_BYTES)[TEST_BYTES..];
        let has_arrived = behind.iter().zip(&pattern).all(|(found, sent)| *found == !sent);
        if reply.result.is_ok() && has_arrived {
            kit.counts.tests += 1;
            slots.table.end(id, SlotReply { landed: 2 * TEST_BYTES, ..SlotReply::default() });
            slots.table.release();
            memory.set_use(key, SlotUse::Free);
            conn.slots = Some(slots);
            conn.trial.on_success();
        } else {
            close(kit, memory, slots);
            conn.trial.on_failure(kit.mono());
        }
    }

    fn take_reply(&mut self, kit: &mut FabricKit, memory: &mut ClientMemory, mut reply: FabricReply) -> Verdict {
        let conn = self.conn.as_mut().expect("it has received something");
        conn.trial.on_reply();
        let mut said = SlotReply::of(&reply.result);
        let was_refused = matches!(&reply.result, Err(fault) if fault.reason == Reason::Corrupt);
        if kit.is_broken(FabricBreak::AbandonedStaysOpen)
            || (kit.is_broken(FabricBreak::RefusedStaysOpen) && was_refused)
        {
            said.is_abandoned = false;
        }
        let end = match &mut conn.slots {
            Some(slots) => slots.end(memory, reply.id, said),
            None => conn.closed.end(reply.id, said),
        };
        match end {
            SlotEnd::NoSlot | SlotEnd::Free => {}
            SlotEnd::AllClosed => {
                if let Some(mut slots) = conn.slots.take() {
                    kit.trace.line(|| format!("client {}: slots are closed after request {}", self.index, reply.id));
                    kit.counts.demotions += 1;
                    slots.table.close();
                    conn.closed = slots.table.clone();
                    close(kit, memory, slots);
                    conn.trial.on_failure(kit.mono());
                }
                if !kit.is_broken(FabricBreak::DamageIsFinal) {
                    reply.result = reply.result.map_err(SlotReply::refusal_after_close);
                }
            }
            SlotEnd::Landed => {
                let slots = conn.slots.as_ref().expect("it has landed there");
                let (slot, _) = slots.table.landed().expect("it has landed");
                let until_us = kit.now_us + LOOK_MAX_US;
                conn.reading = Some(SlotReading { reply, said, slot, until_us, is_intact: false });
                return self.look(kit, memory);
            }
            SlotEnd::Lost if kit.is_broken(FabricBreak::ClosedSlotIsEmpty) => {}
            SlotEnd::Lost => {
                self.disconnect(kit, memory);
                return Ok(());
            }
        }
        let payload = std::mem::take(&mut reply.payload);
        self.finish(kit, &reply, &payload, false)
    }

    /// Goes on with a payload in a slot.
    pub(super) fn look(&mut self, kit: &mut FabricKit, memory: &mut ClientMemory) -> Verdict {
        let Some(conn) = self.conn.as_mut() else { return Ok(()) };
        let (Some(slots), Some(reading)) = (conn.slots.as_mut(), conn.reading.as_mut()) else { return Ok(()) };
        let event = FabricEvent::Look(self.index, conn.id);
        let bytes = memory.bytes(slots.keys[reading.slot], reading.said.landed);
        if !reading.is_intact {
            let unchecked = kit.is_broken(FabricBreak::LandedUnchecked);
            if unchecked || crc32c(bytes) == reading.said.landed_crc {
                reading.is_intact = true;
                kit.soon(200, event);
            } else if kit.now_us < reading.until_us {
                kit.after(LOOK_AGAIN_US, event);
            } else {
                kit.counts.damaged_landings += 1;
                self.disconnect(kit, memory);
            }
            return Ok(());
        }
        let (payload, reply) = (bytes.to_vec(), conn.reading.take().expect("looked at").reply);
        if kit.rng.chance(2) {
            slots.release(memory);
        }
        self.finish(kit, &reply, &payload, true)?;
        self.take_replies(kit, memory)
    }

    /// A request has its reply, with this payload.
    fn finish(&mut self, kit: &mut FabricKit, reply: &FabricReply, payload: &[u8], has_landed: bool) -> Verdict {
        let conn = self.conn.as_mut().expect("it has received something");
        let Some(at) = conn.in_flight.iter().position(|(id, _)| *id == reply.id) else {
            return broken(Rule::Once, format!("client {}: a reply to request {} too many", self.index, reply.id));
        };
        let (id, mut call) = conn.in_flight.remove(at).expect("just found");
        match (&reply.result, call.makes) {
            (Ok(Reply::Read(_)), None) => {
                self.last_landed = has_landed;
                if payload != content_of(reply.version) {
                    let what = format!("request {id}: {} bytes that are not version {}", payload.len(), reply.version);
                    return broken(Rule::PromisedErrors, what);
                }
            }
            (Ok(Reply::Write(_)), Some(version)) => self.acked.push(version),
            (Err(fault), _) if fault.reason == Reason::FabricFailed => {
                if !kit.is_broken(FabricBreak::DemotionDropsRequest) {
                    kit.counts.redone += 1;
                    if kit.is_broken(FabricBreak::RedoIsNew) {
                        call.seq = kit.number();
                    }
                    self.todo.push_front(call);
                }
                return Ok(());
            }
            (Err(fault), None) if fault.reason == Reason::Corrupt => {}
            (result, _) => {
                return broken(Rule::PromisedErrors, format!("request {id} ({:?}) ends with {result:?}", call.makes));
            }
        }
        kit.trace.line(|| format!("client {}: request {id} has ended, in a slot: {has_landed}", self.index));
        kit.counts.answered += 1;
        self.ended += 1;
        Ok(())
    }

    /// The connection is closed: slots first, then everything without a reply is sent again.
    pub(super) fn disconnect(&mut self, kit: &mut FabricKit, memory: &mut ClientMemory) {
        let Some(conn) = self.conn.take() else { return };
        kit.trace.line(|| format!("client {}: connection {} ends", self.index, conn.id));
        for slots in conn.slots.into_iter().chain(conn.test.map(|test| test.slots)) {
            if kit.is_broken(FabricBreak::KeyOutlivesConnection) {
                slots.keys.iter().for_each(|key| memory.set_use(*key, SlotUse::Free));
                self.kept = slots.keys;
            } else {
                close(kit, memory, slots);
            }
        }
        kit.send_to_server(conn.id, None);
        for (_, mut call) in conn.in_flight.into_iter().rev() {
            kit.counts.redone += 1;
            // A read that was cut short is asked for without steps.
            call.is_plain |= call.makes.is_none() && kit.faults;
            if kit.is_broken(FabricBreak::RedoIsNew) {
                call.seq = kit.number();
            }
            self.todo.push_front(call);
        }
        kit.soon(5_000, FabricEvent::Act(self.index));
    }

    /// The process ends: nothing is sent again.
    pub(super) fn die(&mut self, kit: &mut FabricKit, memory: &mut ClientMemory) {
        self.disconnect(kit, memory);
        self.kept.drain(..).for_each(|key| {
            memory.set_use(key, SlotUse::Other);
            memory.close_key(key);
        });
        self.ended += self.todo.len() as u64;
        self.todo.clear();
        self.is_up = false;
    }

    /// Fails if the request still has no reply.
    pub(super) fn check_limit(&self, id: u64) -> Verdict {
        let Some(conn) = &self.conn else { return Ok(()) };
        let is_open =
            conn.in_flight.iter().any(|(open, _)| *open == id) || conn.test.as_ref().is_some_and(|test| test.id == id);
        if !is_open {
            return Ok(());
        }
        let limit = REPLY_MAX_US / 1_000_000;
        broken(Rule::Live, format!("client {}: request {id} has had no reply for {limit} s", self.index))
    }
}

impl FabricClientConn {
    /// A free slot for a request, if there is one.
    fn lend(&mut self, kit: &FabricKit, memory: &mut ClientMemory, id: u64) -> Verdict<Option<u64>> {
        let Some(slots) = &mut self.slots else { return Ok(None) };
        let mut slot = slots.table.lend(id);
        if slot.is_none() && kit.is_broken(FabricBreak::SlotReusedEarly) {
            // The slot of the oldest request.
            let oldest = self.in_flight.front().map_or(0, |(oldest, _)| *oldest);
            slots.table.end(oldest, SlotReply::default());
            slot = slots.table.lend(id);
            slot.iter().for_each(|slot| memory.set_use(slots.keys[*slot], SlotUse::Free));
        }
        let Some(key) = slot.map(|slot| slots.keys[slot]) else { return Ok(None) };
        if memory.used(key) != SlotUse::Free {
            return broken(Rule::Memory, format!("slot {key} is {:?} and lent to request {id}", memory.used(key)));
        }
        memory.set_use(key, SlotUse::Lent(id));
        Ok(Some(key))
    }
}

impl OpenedSlots {
    fn end(&mut self, memory: &mut ClientMemory, id: u64, said: SlotReply) -> SlotEnd {
        self.release(memory);
        let end = self.table.end(id, said);
        let slot = self.keys.iter().find(|key| memory.used(**key) == SlotUse::Lent(id));
        match (slot, end) {
            (Some(key), SlotEnd::Landed) => memory.set_use(*key, SlotUse::Landed(id)),
            (Some(key), _) => memory.set_use(*key, SlotUse::Free),
            (None, _) => {}
        }
        end
    }

    fn release(&mut self, memory: &mut ClientMemory) {
        self.table.release();
        for key in &self.keys {
            if matches!(memory.used(*key), SlotUse::Landed(_)) {
                memory.set_use(*key, SlotUse::Free);
            }
        }
    }
}

/// Closes registrations, then frees their memory.
fn close(kit: &mut FabricKit, memory: &mut ClientMemory, slots: OpenedSlots) {
    slots.keys.iter().for_each(|key| memory.set_use(*key, SlotUse::Other));
    if kit.is_broken(FabricBreak::MemoryFreedFirst) {
        kit.soon(1_000, FabricEvent::CloseKeys(slots.keys));
    } else {
        slots.keys.iter().for_each(|key| memory.close_key(*key));
    }
}

/// Requests in flight.
const DEPTH: usize = 4;
/// How long a client waits for the bytes of a slot, and between two looks.
const LOOK_MAX_US: u64 = 1_000;
const LOOK_AGAIN_US: u64 = 50;
/// No reply takes longer while both processes live.
const REPLY_MAX_US: u64 = 30_000_000;
