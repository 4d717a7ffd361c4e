//! A connection whose server transfers payloads itself: it writes those of reads into slots of this process, and
//! fetches those of writes from there ([`frieze_fabric`]). Requests and replies go by TCP, and so does every payload if
//! transfers fail, until they are tested again.
//!
//! Guarantees: a payload is handed out only after its checksum matched; after a transfer that the server gave up, no
//! slot is used again before its registration is closed.
//! Leaves to others: sending a request again (`rpc`).

use std::sync::Arc;
use std::time::Duration;

use frieze_base::{Fault, crc32c};
use frieze_fabric::{ClientSlots, FabricHost, LentSlots, SlotEnd, SlotReply, TransferTrial};
use frieze_net::{CancelHandle, Error, NONCE_BYTES, PayloadPart, TransportConn, TransportReply, mono, random_nonce};
use frieze_wire::fabric::{ConnectFabric, FabricOffer, PROBE_BYTES};
use frieze_wire::message::{Reply, Request, RequestBody};
use frieze_wire::{FrameHeader, FrameKind};

use crate::connection::name_of;

/// A connection with an offer of transfers.
#[derive(Debug)]
pub(crate) struct FabricConn {
    tcp: Box<dyn TransportConn>,
    host: Arc<FabricHost>,
    /// The server's endpoint.
    server: FabricOffer,
    /// Slots, while transfers are in use.
    slots: Option<ClientSlots>,
    /// Which requests have slots that were closed since.
    closed: LentSlots,
    /// A test that the server has not answered yet.
    test: Option<FabricTest>,
    /// When they are tested.
    trial: TransferTrial,
    tests: u64,
}

/// A test of transfers.
#[derive(Debug)]
struct FabricTest {
    request: u64,
    slots: ClientSlots,
    pattern: [u8; PROBE_BYTES],
}

impl FabricConn {
    /// Puts transfers by the endpoint that the server has offered over a connection. They are tested when the first
    /// large payload is to be sent or received.
    pub(crate) fn over(tcp: Box<dyn TransportConn>, host: Arc<FabricHost>, server: FabricOffer) -> FabricConn {
        let (closed, trial) = (LentSlots::new(0), TransferTrial::new(mono()));
        FabricConn { tcp, host, server, slots: None, closed, test: None, trial, tests: 0 }
    }

    /// Asks for a test of transfers if they are not in use, and one is due. Payloads go by TCP until the server has
    /// answered.
    fn test_if_due(&mut self) -> Result<(), Error> {
        if self.slots.is_some() || self.test.is_some() || !self.trial.is_due(mono()) {
            return Ok(());
        }
        // It may be opened just now, by a thread of its own.
        let Some(fabric) = self.host.current_or_named() else { return Ok(()) };
        let mut slots = match ClientSlots::new(&fabric, &self.server.address) {
            Ok(slots) => slots,
            Err(error) => {
                self.demote(&error.to_string());
                return Ok(());
            }
        };
        let mut pattern = [0; PROBE_BYTES];
        for part in pattern.chunks_mut(NONCE_BYTES) {
            part.copy_from_slice(&random_nonce()?[..part.len()]);
        }
        self.tests += 1;
        // No request of the client has such a number.
        let request = u64::MAX - self.tests;
        let Some(memory) = slots.begin_probe(request, &pattern) else { return Ok(()) };
        let ask = ConnectFabric { offer: fabric.endpoint().offer(), memory };
        let body = RequestBody { caller: None, trace: None, request: Some(Request::ConnectFabric(ask)) };
        let header = FrameHeader { request_id: request, ..FrameHeader::of(FrameKind::Request) };
        self.tcp.send(&header, &body, &[])?;
        self.test = Some(FabricTest { request, slots, pattern });
        Ok(())
    }

    /// The server has answered a test.
    fn end_test(&mut self, test: FabricTest, result: Result<Reply, Fault>) {
        let FabricTest { request, mut slots, pattern } = test;
        match result {
            Ok(Reply::Done(_)) => {
                slots.end(request, SlotReply { landed: 2 * PROBE_BYTES, ..SlotReply::default() });
                if slots.ends_probe(&pattern) {
                    slots.release();
                    tracing::info!("payloads go by {}", self.server.provider);
                    self.slots = Some(slots);
                    self.trial.on_success();
                } else {
                    self.demote("what the server wrote did not arrive");
                }
            }
            Ok(other) => self.demote(&format!("the reply to a test is {}", name_of(&other))),
            Err(fault) => self.demote(&fault.to_string()),
        }
    }

    /// From now on payloads go by TCP, until transfers are tested again. Closes the registrations.
    fn demote(&mut self, why: &str) {
        let (wait, provider) = (self.trial.on_failure(mono()), &self.server.provider);
        match self.slots.take() {
            Some(slots) => {
                self.closed = slots.close();
                tracing::warn!("payloads go by TCP: {why}; {provider} is tested again in {wait:?}");
            }
            None => tracing::debug!("payloads go by TCP: {why}; {provider} is tested again in {wait:?}"),
        }
    }

    /// The request with a slot for its payload, if it is worth one and a slot is free.
    fn with_slot(&mut self, header: &FrameHeader, body: &RequestBody, payload: &[u8]) -> Option<RequestBody> {
        let slots = self.slots.as_mut()?;
        let request = match body.request.as_ref()? {
            Request::Read(read) => {
                let slot = slots.lend(header.request_id, read.len as usize)?;
                let mut read = read.clone();
                read.dest_slot = Some(slot);
                Request::Read(read)
            }
            Request::Write(write) => {
                let slot = slots.fill(header.request_id, payload)?;
                let mut write = write.clone();
                (write.src_slot, write.src_crc) = (Some(slot), crc32c(payload));
                Request::Write(write)
            }
            _ => return None,
        };
        Some(RequestBody { caller: body.caller.clone(), trace: body.trace, request: Some(request) })
    }
}

/// True if the payload is worth a transfer.
fn is_large(body: &RequestBody, payload: &[u8]) -> bool {
    match &body.request {
        Some(Request::Read(read)) => read.in_steps && read.len >= READ_BYTES_MIN,
        Some(Request::Write(_)) => payload.len() >= WRITE_BYTES_MIN,
        _ => false,
    }
}

impl TransportConn for FabricConn {
    fn admit(&mut self) {
        self.tcp.admit();
    }

    fn send(&mut self, header: &FrameHeader, body: &RequestBody, payload: &[u8]) -> Result<(), Error> {
        if is_large(body, payload) {
            self.test_if_due()?;
            if let Some(body) = self.with_slot(header, body, payload) {
                self.trial.on_request();
                return self.tcp.send(header, &body, &[]);
            }
        }
        self.trial.on_request();
        self.tcp.send(header, body, payload)
    }

    fn queue(&mut self, header: &FrameHeader, body: &RequestBody, payload: &[u8]) {
        self.trial.on_request();
        self.tcp.queue(header, body, payload);
    }

    fn send_queued(&mut self) -> Result<(), Error> {
        self.tcp.send_queued()
    }

    fn has_reply(&self) -> bool {
        self.tcp.has_reply()
    }

    fn await_reply(&mut self, limit: Duration) -> Result<bool, Error> {
        self.tcp.await_reply(limit)
    }

    fn receive(&mut self, limit: Duration) -> Result<TransportReply, Error> {
        let mut reply = self.tcp.receive(limit)?;
        if let Some(test) = self.test.take_if(|test| test.request == reply.header.request_id) {
            self.end_test(test, reply.result);
            reply = self.tcp.receive(limit)?;
        }
        self.trial.on_reply();
        let (id, said) = (reply.header.request_id, SlotReply::of(&reply.result));
        let end = match &mut self.slots {
            Some(slots) => slots.end(id, said),
            None => self.closed.end(id, said),
        };
        match end {
            SlotEnd::NoSlot | SlotEnd::Free => {}
            SlotEnd::AllClosed => {
                if self.slots.is_some() {
                    self.demote("the server could not finish a transfer");
                }
                reply.result = reply.result.map_err(SlotReply::refusal_after_close);
            }
            SlotEnd::Landed if self.slots.as_ref().is_some_and(|slots| slots.is_intact(said.landed_crc)) => {
                reply.header.payload_len = said.landed as u32;
            }
            SlotEnd::Landed | SlotEnd::Lost => {
                let peer = self.server.provider.clone();
                let found = self.slots.as_ref().and_then(ClientSlots::landed).map_or(0, crc32c);
                return Err(Error::Checksum { peer, part: "payload", expected: said.landed_crc, found });
            }
        }
        Ok(reply)
    }

    fn read_payload(&mut self, into: &mut [u8]) -> Result<(), Error> {
        match self.slots.as_ref().and_then(ClientSlots::landed) {
            Some(landed) => {
                into.copy_from_slice(&landed[..into.len()]);
                Ok(())
            }
            None => self.tcp.read_payload(into),
        }
    }

    fn payload_in_memory(&self) -> Option<&[u8]> {
        self.slots.as_ref().and_then(ClientSlots::landed).or_else(|| self.tcp.payload_in_memory())
    }

    fn read_payload_parts(
        &mut self,
        len: usize,
        bytes: &mut Vec<u8>,
        parts: &mut Vec<PayloadPart>,
    ) -> Result<(), Error> {
        match self.slots.as_ref().and_then(ClientSlots::landed) {
            Some(landed) => {
                bytes.clear();
                bytes.extend_from_slice(&landed[..len]);
                Ok(())
            }
            None => self.tcp.read_payload_parts(len, bytes, parts),
        }
    }

    fn runs_on_caller(&self) -> bool {
        self.tcp.runs_on_caller()
    }

    fn cancel_handle(&self) -> CancelHandle {
        self.tcp.cancel_handle()
    }
}

/// Least bytes of a read that are worth a slot: the server sends less as a whole.
const READ_BYTES_MIN: u32 = 256 << 10;
/// Least bytes of a write that are worth a slot.
const WRITE_BYTES_MIN: usize = 64 << 10;
