//! The server: its connections, each with a thread that handles one request at a time, its files, and its endpoint.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use frieze_base::{Fault, Reason, crc32c};
use frieze_fabric::TRANSFER_MAX;
use frieze_wire::RemoteMemory;
use frieze_wire::message::{EmptyReply, ReadReply, Reply, WriteReply};

use super::breakage::FabricBreak;
use super::kit::{FabricAsk, FabricAskBody, FabricEvent, FabricKit, FabricReply, TEST_BYTES, WritePayload, content_of};
use super::provider::{PostResult, RoomUse, SimProvider, SimTransferPlan, TransferStatus};
use crate::violation::{Rule, Verdict, broken};

/// The client's end of a connection.
#[derive(Clone, Copy)]
struct SimPeer {
    endpoint: usize,
    is_down: bool,
}

#[derive(Default)]
struct SimServedConn {
    incoming: VecDeque<FabricAsk>,
    peer: Option<SimPeer>,
    work: Option<ServedWork>,
    is_holding: bool,
    held: Vec<FabricReply>,
    /// The client has ended it.
    has_ended: bool,
}

/// A request that is being handled.
struct ServedWork {
    number: u64,
    ask: FabricAsk,
    stage: ServedStage,
}

enum ServedStage {
    Begins,
    Lands(SlotLanding),
    Fetches(PayloadFetch),
    /// The payload of a write is stored: from a room, or as it came.
    Applies(Option<Rc<RoomUse>>),
    TestFetches(PayloadFetch),
    TestWrites(SlotLanding),
}

/// A payload on its way into a slot.
struct SlotLanding {
    endpoint: usize,
    room: Rc<RoomUse>,
    slot: RemoteMemory,
    remote_at: usize,
    version: u64,
    payload: Vec<u8>,
    /// Bytes of one transfer.
    step: usize,
    posted: usize,
    under_way: Vec<usize>,
    begun_us: u64,
    has_failed: bool,
    /// The bytes from here on cannot be read.
    damaged_at: Option<usize>,
}

struct PayloadFetch {
    endpoint: usize,
    room: Rc<RoomUse>,
    slot: RemoteMemory,
    len: usize,
    transfer: Option<usize>,
    begun_us: u64,
}

/// What a piece of work does next.
enum WorkNext {
    /// It waits; an event will wake it.
    Waits(ServedStage),
    Replies(FabricReply),
    /// The same, without what a reply of a handled request does.
    Refuses(FabricReply),
}

pub(super) struct FabricServer {
    pub(super) is_up: bool,
    endpoint: Option<usize>,
    rooms_max: usize,
    transfers_max: usize,
    conns: BTreeMap<u64, SimServedConn>,
    /// The version of each file, and its bytes.
    files: Vec<(u64, Vec<u8>)>,
    /// Writes that were applied, by their numbers.
    applied: BTreeMap<u64, u64>,
    /// Versions that were made.
    pub(super) made: BTreeSet<u64>,
}

impl FabricServer {
    pub(super) fn new(kit: &mut FabricKit, files: usize) -> FabricServer {
        FabricServer {
            is_up: true,
            endpoint: None,
            rooms_max: *kit.rng.choose(&[1, 2, 4, 16]),
            transfers_max: *kit.rng.choose(&[2, 4, 16]),
            conns: BTreeMap::new(),
            files: (0..files as u64).map(|version| (version, content_of(version))).collect(),
            applied: BTreeMap::new(),
            made: BTreeSet::new(),
        }
    }

    /// The open endpoint; opens it if there is none, or if a transfer of the one before never ended.
    pub(super) fn open_endpoint(&mut self, kit: &mut FabricKit, provider: &mut SimProvider) -> usize {
        if let Some(endpoint) = self.endpoint {
            if !provider.is_stuck(endpoint) || kit.is_broken(FabricBreak::StuckStaysOpen) {
                return endpoint;
            }
            kit.trace.line(|| format!("endpoint {endpoint} is opened again"));
            kit.counts.reopened += 1;
            provider.close(kit, endpoint);
        }
        let endpoint = provider.open(self.rooms_max, self.transfers_max);
        self.endpoint = Some(endpoint);
        endpoint
    }

    pub(super) fn connect(&mut self, conn: u64) {
        self.conns.insert(conn, SimServedConn::default());
    }

    /// The process ends.
    pub(super) fn die(&mut self, kit: &mut FabricKit, provider: &mut SimProvider) {
        self.is_up = false;
        for conn in std::mem::take(&mut self.conns).into_keys() {
            kit.send_to_client(conn, None);
        }
        if let Some(endpoint) = self.endpoint.take() {
            provider.close(kit, endpoint);
        }
    }

    pub(super) fn receive(&mut self, kit: &mut FabricKit, id: u64, ask: Option<FabricAsk>) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        match ask {
            Some(ask) => conn.incoming.push_back(ask),
            None => {
                conn.has_ended = true;
                conn.incoming.clear();
            }
        }
        if conn.work.is_none() {
            self.begin_next(kit, id);
        }
    }

    fn begin_next(&mut self, kit: &mut FabricKit, id: u64) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if conn.has_ended {
            self.conns.remove(&id);
            return;
        }
        let Some(ask) = conn.incoming.pop_front() else { return };
        let number = kit.number();
        conn.work = Some(ServedWork { number, ask, stage: ServedStage::Begins });
        kit.soon(20, FabricEvent::Work(id, number));
    }

    /// The thread of a connection goes on.
    pub(super) fn work(&mut self, kit: &mut FabricKit, provider: &mut SimProvider, id: u64, number: u64) -> Verdict {
        let Some(conn) = self.conns.get_mut(&id) else { return Ok(()) };
        let Some(work) = conn.work.take_if(|work| work.number == number) else { return Ok(()) };
        let ServedWork { ask, stage, .. } = work;
        let next = match stage {
            ServedStage::Begins => self.begin(kit, provider, id, number, &ask),
            ServedStage::Lands(landing) => self.land(kit, provider, (id, number), &ask, landing),
            ServedStage::Fetches(fetch) => self.fetch(kit, provider, (id, number), &ask, fetch),
            ServedStage::Applies(room) => self.apply(kit, provider, &ask, room)?,
            ServedStage::TestFetches(fetch) => self.test_fetch(kit, provider, (id, number), &ask, fetch),
            ServedStage::TestWrites(landing) => self.test_write(kit, provider, (id, number), &ask, landing),
        };
        let conn = self.conns.get_mut(&id).expect("its thread is running");
        let (reply, releases) = match next {
            WorkNext::Waits(stage) => {
                conn.work = Some(ServedWork { number, ask, stage });
                return Ok(());
            }
            WorkNext::Replies(reply) => (reply, true),
            WorkNext::Refuses(reply) => (reply, !kit.is_broken(FabricBreak::RefusalStaysHeld)),
        };
        conn.held.push(reply);
        let has_payload = conn.held.last().is_some_and(|reply| !reply.payload.is_empty());
        if conn.incoming.is_empty() && releases {
            conn.is_holding = false;
        }
        if !conn.has_ended && (!conn.is_holding || has_payload) {
            std::mem::take(&mut conn.held).into_iter().for_each(|reply| kit.send_to_client(id, Some(reply)));
        }
        self.begin_next(kit, id);
        Ok(())
    }

    /// Replies to requests that arrived together are sent together.
    fn hold(&mut self, id: u64) {
        let conn = self.conns.get_mut(&id).expect("its thread is running");
        conn.is_holding |= !conn.incoming.is_empty();
    }

    fn peer(&self, id: u64) -> Option<SimPeer> {
        self.conns[&id].peer.filter(|peer| !peer.is_down)
    }

    fn note_failure(&mut self, id: u64) {
        if let Some(peer) = self.conns.get_mut(&id).and_then(|conn| conn.peer.as_mut()) {
            peer.is_down = true;
        }
    }

    fn begin(
        &mut self,
        kit: &mut FabricKit,
        provider: &mut SimProvider,
        id: u64,
        number: u64,
        ask: &FabricAsk,
    ) -> WorkNext {
        match &ask.body {
            FabricAskBody::Read(slot) => {
                self.hold(id);
                self.begin_read(kit, provider, (id, number), ask, *slot)
            }
            FabricAskBody::Write(_, WritePayload::Inline(_)) => {
                self.hold(id);
                kit.counts.inline += 1;
                kit.soon(100, FabricEvent::Work(id, number));
                WorkNext::Waits(ServedStage::Applies(None))
            }
            FabricAskBody::Write(_, WritePayload::Slot(slot, _)) => {
                let Some(peer) = self.peer(id) else { return refused(ask) };
                match provider.take(kit, peer.endpoint) {
                    Ok(Some(room)) => {
                        let len = slot.len as usize;
                        let fetch = PayloadFetch::new(kit, peer.endpoint, room, *slot, len);
                        self.fetch(kit, provider, (id, number), ask, fetch)
                    }
                    Ok(None) => {
                        kit.counts.full += 1;
                        refused(ask)
                    }
                    Err(()) => {
                        self.note_failure(id);
                        refused(ask)
                    }
                }
            }
            FabricAskBody::Test(slot) => {
                self.hold(id);
                self.conns.get_mut(&id).expect("its thread is running").peer = None;
                let endpoint = self.open_endpoint(kit, provider);
                match provider.take(kit, endpoint) {
                    Ok(Some(room)) => {
                        let fetch = PayloadFetch::new(kit, endpoint, room, *slot, TEST_BYTES);
                        self.test_fetch(kit, provider, (id, number), ask, fetch)
                    }
                    _ => test_failed(ask),
                }
            }
        }
    }

    fn begin_read(
        &mut self,
        kit: &mut FabricKit,
        provider: &mut SimProvider,
        (id, number): (u64, u64),
        ask: &FabricAsk,
        slot: Option<RemoteMemory>,
    ) -> WorkNext {
        let (version, payload) = self.files[ask.file].clone();
        let tells = !kit.is_broken(FabricBreak::DownUnannounced);
        let Some(slot) = slot else { return send_inline(kit, ask, version, payload, false) };
        let Some(peer) = self.peer(id) else { return send_inline(kit, ask, version, payload, tells) };
        let room = match provider.take(kit, peer.endpoint) {
            Ok(Some(room)) => room,
            Ok(None) => {
                kit.counts.full += 1;
                return send_inline(kit, ask, version, payload, false);
            }
            Err(()) => {
                self.note_failure(id);
                return send_inline(kit, ask, version, payload, tells);
            }
        };
        let step = payload.len().div_ceil(kit.rng.between(1, 3) as usize);
        let is_damaged = kit.faults && kit.rng.chance(20);
        let landing = SlotLanding {
            endpoint: peer.endpoint,
            room,
            slot,
            remote_at: 0,
            version,
            damaged_at: is_damaged.then_some(step),
            payload,
            step,
            posted: 0,
            under_way: Vec::new(),
            begun_us: kit.now_us,
            has_failed: false,
        };
        self.land(kit, provider, (id, number), ask, landing)
    }

    fn land(
        &mut self,
        kit: &mut FabricKit,
        provider: &mut SimProvider,
        work: (u64, u64),
        ask: &FabricAsk,
        mut landing: SlotLanding,
    ) -> WorkNext {
        let len = landing.payload.len();
        match landing.advance(kit, provider, work, ask.id) {
            None => WorkNext::Waits(ServedStage::Lands(landing)),
            Some(Ok(())) if landing.is_damaged() => {
                kit.counts.corrupt += 1;
                WorkNext::Replies(reply(ask, Err(Reason::Corrupt.into())))
            }
            Some(Ok(())) => {
                kit.counts.landed += 1;
                let landed_crc = crc32c(&landing.payload);
                let read = ReadReply { landed: len as u32, landed_crc, ..ReadReply::default() };
                let version = landing.version;
                WorkNext::Replies(FabricReply { version, ..reply(ask, Ok(Reply::Read(read))) })
            }
            Some(Err(())) => {
                self.note_failure(work.0);
                let is_told = landing.posted > 0 || !kit.is_broken(FabricBreak::DownUnannounced);
                send_inline(kit, ask, landing.version, landing.payload, is_told)
            }
        }
    }

    fn fetch(
        &mut self,
        kit: &mut FabricKit,
        provider: &mut SimProvider,
        work: (u64, u64),
        ask: &FabricAsk,
        mut fetch: PayloadFetch,
    ) -> WorkNext {
        let FabricAskBody::Write(_, WritePayload::Slot(_, crc)) = &ask.body else { unreachable!("it is one") };
        match fetch.advance(kit, provider, work, ask.id) {
            None => WorkNext::Waits(ServedStage::Fetches(fetch)),
            Some(Err(())) => {
                self.note_failure(work.0);
                refused(ask)
            }
            Some(Ok(())) => {
                self.hold(work.0);
                let is_intact = crc32c(provider.bytes(&fetch.room, fetch.len)) == *crc;
                if !is_intact && !kit.is_broken(FabricBreak::FetchedUnchecked) {
                    kit.counts.damaged_fetches += 1;
                    return WorkNext::Replies(reply(ask, Err(Reason::BadFrame.into())));
                }
                kit.counts.fetched += 1;
                kit.soon(300, FabricEvent::Work(work.0, work.1));
                WorkNext::Waits(ServedStage::Applies(Some(fetch.room)))
            }
        }
    }

    fn apply(
        &mut self,
        kit: &mut FabricKit,
        provider: &SimProvider,
        ask: &FabricAsk,
        room: Option<Rc<RoomUse>>,
    ) -> Verdict<WorkNext> {
        let FabricAskBody::Write(version, payload) = &ask.body else { unreachable!("it is one") };
        let done = WorkNext::Replies(reply(ask, Ok(Reply::Write(WriteReply::default()))));
        if self.applied.contains_key(&ask.seq) {
            return Ok(done);
        }
        let bytes = match (payload, &room) {
            (WritePayload::Slot(slot, _), Some(room)) => provider.bytes(room, slot.len as usize),
            (WritePayload::Inline(bytes), _) => bytes,
            (WritePayload::Slot(..), None) => unreachable!("it was fetched"),
        };
        if bytes != content_of(*version) {
            return broken(Rule::Whole, format!("write {version} is applied with other bytes than it was sent with"));
        }
        if !self.made.insert(*version) {
            return broken(Rule::Once, format!("write {version} is applied twice"));
        }
        kit.trace.line(|| format!("write {version} is applied to file {}", ask.file));
        self.files[ask.file] = (*version, bytes.to_vec());
        self.applied.insert(ask.seq, *version);
        Ok(done)
    }

    fn test_fetch(
        &mut self,
        kit: &mut FabricKit,
        provider: &mut SimProvider,
        work: (u64, u64),
        ask: &FabricAsk,
        mut fetch: PayloadFetch,
    ) -> WorkNext {
        match fetch.advance(kit, provider, work, ask.id) {
            None => WorkNext::Waits(ServedStage::TestFetches(fetch)),
            Some(Err(())) => test_failed(ask),
            Some(Ok(())) => {
                let payload = provider.bytes(&fetch.room, TEST_BYTES).iter().map(|byte| !byte).collect();
                let PayloadFetch { endpoint, slot, .. } = fetch;
                drop(fetch);
                let Ok(Some(room)) = provider.take(kit, endpoint) else { return test_failed(ask) };
                let landing = SlotLanding {
                    endpoint,
                    room,
                    slot,
                    remote_at: TEST_BYTES,
                    version: 0,
                    payload,
                    step: TEST_BYTES,
                    posted: 0,
                    under_way: Vec::new(),
                    begun_us: kit.now_us,
                    has_failed: false,
                    damaged_at: None,
                };
                self.test_write(kit, provider, work, ask, landing)
            }
        }
    }

    fn test_write(
        &mut self,
        kit: &mut FabricKit,
        provider: &mut SimProvider,
        work: (u64, u64),
        ask: &FabricAsk,
        mut landing: SlotLanding,
    ) -> WorkNext {
        match landing.advance(kit, provider, work, ask.id) {
            None => WorkNext::Waits(ServedStage::TestWrites(landing)),
            Some(Err(())) => test_failed(ask),
            Some(Ok(())) => {
                let conn = self.conns.get_mut(&work.0).expect("its thread is running");
                conn.peer = Some(SimPeer { endpoint: landing.endpoint, is_down: false });
                WorkNext::Replies(reply(ask, Ok(Reply::Done(EmptyReply {}))))
            }
        }
    }
}

/// Offers a transfer to the provider. `Ok(None)` if it is to be offered again, which an event does.
fn offer(
    kit: &mut FabricKit,
    provider: &mut SimProvider,
    room: &Rc<RoomUse>,
    plan: SimTransferPlan,
    begun_us: u64,
) -> Result<Option<usize>, ()> {
    match provider.post(kit, room, plan) {
        PostResult::Posted(transfer) => Ok(Some(transfer)),
        PostResult::Later if kit.now_us < begun_us + TRANSFER_MAX.as_micros() as u64 => {
            kit.soon(30_000, FabricEvent::Work(plan.conn, plan.work));
            Ok(None)
        }
        PostResult::Later | PostResult::Refused => Err(()),
    }
}

impl SlotLanding {
    fn is_damaged(&self) -> bool {
        self.damaged_at.is_some_and(|at| at < self.payload.len())
    }

    /// Goes on as far as it can. None while it waits.
    fn advance(
        &mut self,
        kit: &mut FabricKit,
        provider: &mut SimProvider,
        (conn, work): (u64, u64),
        request: u64,
    ) -> Option<Result<(), ()>> {
        let end = self.damaged_at.unwrap_or(usize::MAX).min(self.payload.len());
        while self.posted < end && !self.has_failed {
            let (at, len) = (self.posted, self.step.min(end - self.posted));
            provider.fill(&self.room, at, &self.payload[at..at + len]);
            let (remote, remote_at) = (self.slot, self.remote_at + at);
            let plan = SimTransferPlan { is_write: true, conn, work, request, remote, at, remote_at, len };
            match offer(kit, provider, &self.room, plan, self.begun_us) {
                Ok(None) => return None,
                Ok(Some(transfer)) => {
                    self.under_way.push(transfer);
                    self.posted += len;
                    self.begun_us = kit.now_us;
                }
                Err(()) => self.has_failed = true,
            }
        }
        if kit.is_broken(FabricBreak::ReplyBeforeCompletion) && !self.has_failed {
            return Some(Ok(()));
        }
        while let Some(transfer) = self.under_way.first() {
            match provider.wait(kit, *transfer) {
                TransferStatus::UnderWay => return None,
                TransferStatus::Failed => self.has_failed = true,
                TransferStatus::Succeeded => {}
            }
            self.under_way.remove(0);
            if self.has_failed && kit.is_broken(FabricBreak::FirstFailureEndsWait) {
                break;
            }
        }
        Some(if self.has_failed { Err(()) } else { Ok(()) })
    }
}

impl PayloadFetch {
    fn new(kit: &FabricKit, endpoint: usize, room: Rc<RoomUse>, slot: RemoteMemory, len: usize) -> PayloadFetch {
        PayloadFetch { endpoint, room, slot, len, transfer: None, begun_us: kit.now_us }
    }

    /// Goes on as far as it can. None while it waits.
    fn advance(
        &mut self,
        kit: &mut FabricKit,
        provider: &mut SimProvider,
        (conn, work): (u64, u64),
        request: u64,
    ) -> Option<Result<(), ()>> {
        let transfer = match self.transfer {
            Some(transfer) => transfer,
            None => {
                let (remote, len) = (self.slot, self.len);
                let plan = SimTransferPlan { is_write: false, conn, work, request, remote, at: 0, remote_at: 0, len };
                match offer(kit, provider, &self.room, plan, self.begun_us) {
                    Ok(posted) => *self.transfer.insert(posted?),
                    Err(()) => return Some(Err(())),
                }
            }
        };
        match provider.wait(kit, transfer) {
            TransferStatus::UnderWay => None,
            TransferStatus::Failed => Some(Err(())),
            TransferStatus::Succeeded => Some(Ok(())),
        }
    }
}

fn reply(ask: &FabricAsk, result: Result<Reply, Fault>) -> FabricReply {
    FabricReply { id: ask.id, result, payload: Vec::new(), version: 0 }
}

/// The payload of a write cannot be fetched.
fn refused(ask: &FabricAsk) -> WorkNext {
    WorkNext::Refuses(reply(ask, Err(Reason::FabricFailed.into())))
}

fn test_failed(ask: &FabricAsk) -> WorkNext {
    WorkNext::Replies(reply(ask, Err(Reason::FabricFailed.into())))
}

fn send_inline(
    kit: &mut FabricKit,
    ask: &FabricAsk,
    version: u64,
    payload: Vec<u8>,
    is_slot_abandoned: bool,
) -> WorkNext {
    kit.counts.inline += 1;
    let read = ReadReply { is_slot_abandoned, ..ReadReply::default() };
    WorkNext::Replies(FabricReply { version, payload, ..reply(ask, Ok(Reply::Read(read))) })
}
