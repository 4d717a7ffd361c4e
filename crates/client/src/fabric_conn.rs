//! A connection whose server transfers payloads itself: it writes those of reads into slots of this process, and
//! fetches those of writes from there ([`frieze_fabric`]). Requests and replies go by TCP, and so does every payload if
//! transfers fail, until they are tested again.
//!
//! Guarantees: a payload is handed out only after its checksum matched; after a transfer that the server gave up, no
//! slot is used again before its registration is closed.
//! Leaves to others: sending a request again (`rpc`).

use std::sync::Arc;
use std::time::Duration;

use frieze_base::{Fault, MonoTime, Reason, crc32c};
use frieze_fabric::{ClientSlots, FabricHost};
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
    /// A test that the server has not answered yet.
    test: Option<FabricTest>,
    /// When transfers are tested again, and the wait before the test after that one.
    retry_at: MonoTime,
    wait: Duration,
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
        FabricConn { tcp, host, server, slots: None, test: None, retry_at: mono(), wait: WAIT_MIN, tests: 0 }
    }

    /// Asks for a test of transfers if they are not in use, and the wait after the last failure is over. Payloads go by
    /// TCP until the server has answered.
    fn test_if_due(&mut self) -> Result<(), Error> {
        if self.slots.is_some() || self.test.is_some() || mono() < self.retry_at {
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
        let body = RequestBody { caller: None, request: Some(Request::ConnectFabric(ask)) };
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
                let stays = slots.end(request, 2 * PROBE_BYTES, false);
                if stays && slots.ends_probe(&pattern) {
                    slots.release();
                    tracing::debug!("payloads go by {}", self.server.provider);
                    (self.slots, self.wait) = (Some(slots), WAIT_MIN);
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
        tracing::debug!("payloads go by TCP: {why}; {} is tested again in {:?}", self.server.provider, self.wait);
        self.slots = None;
        self.retry_at = MonoTime(mono().0.saturating_add(self.wait.as_nanos() as u64));
        self.wait = (self.wait * 2).min(WAIT_MAX);
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
        Some(RequestBody { caller: body.caller.clone(), request: Some(request) })
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
                return self.tcp.send(header, &body, &[]);
            }
        }
        self.tcp.send(header, body, payload)
    }

    fn queue(&mut self, header: &FrameHeader, body: &RequestBody, payload: &[u8]) {
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
        let Some(slots) = &mut self.slots else { return Ok(reply) };
        let id = reply.header.request_id;
        let (landed, crc, is_abandoned) = match &reply.result {
            Ok(Reply::Read(read)) => (read.landed, read.landed_crc, read.is_slot_abandoned),
            // The server only reads what it fetches: the slot is quiet. But transfers do not work.
            Err(fault) => (0, 0, fault.reason == Reason::FabricFailed),
            _ => (0, 0, false),
        };
        if !slots.end(id, landed as usize, is_abandoned) {
            self.demote("the server could not finish a transfer");
        } else if landed > 0 {
            if !slots.is_intact(crc) {
                let peer = self.server.provider.clone();
                let found = slots.landed().map_or(0, crc32c);
                return Err(Error::Checksum { peer, part: "payload", expected: crc, found });
            }
            reply.header.payload_len = landed;
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
/// Wait after a failure before transfers are tested again.
const WAIT_MIN: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(60);
