//! The transport to a server in the same process: its code runs on the client's thread.

use std::sync::Arc;
use std::time::Duration;

use frieze_wire::FrameHeader;
use frieze_wire::message::RequestBody;

use crate::Error;
use crate::in_process::{InProcess, InProcessConn, Inbox};
use crate::payload_part::PayloadPart;
use crate::transport::{Cancel, CancelHandle, Transport, TransportConn, TransportLimits, TransportReply};

/// A server in this process.
#[derive(Clone, Debug)]
pub struct InProcessTransport {
    server: Arc<dyn InProcess>,
    /// What messages call it.
    name: String,
}

/// One connection to it.
#[derive(Debug)]
struct LocalConn {
    server: Box<dyn InProcessConn>,
    name: String,
    inbox: Arc<Inbox>,
    /// Payload of the last reply, until it is taken.
    payload: Vec<u8>,
    /// Its parts, if some of it stays in files.
    parts: Vec<PayloadPart>,
}

impl InProcessTransport {
    /// The server `server`, which messages call `name`.
    pub fn new(server: Arc<dyn InProcess>, name: String) -> InProcessTransport {
        InProcessTransport { server, name }
    }
}

impl Transport for InProcessTransport {
    fn server(&self) -> String {
        self.name.clone()
    }

    fn connect(&self, _: TransportLimits) -> Result<Box<dyn TransportConn>, Error> {
        let inbox = Arc::<Inbox>::default();
        let server = self.server.connect(inbox.clone()).map_err(Error::Refused)?;
        let (payload, parts) = (Vec::new(), Vec::new());
        Ok(Box::new(LocalConn { server, name: self.name.clone(), inbox, payload, parts }))
    }
}

impl TransportConn for LocalConn {
    fn admit(&mut self) {}

    fn send(&mut self, header: &FrameHeader, body: &RequestBody, payload: &[u8]) -> Result<(), Error> {
        self.queue(header, body, payload);
        Ok(())
    }

    fn queue(&mut self, header: &FrameHeader, body: &RequestBody, payload: &[u8]) {
        self.server.ask(header, body.clone(), payload);
    }

    fn send_queued(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn has_reply(&self) -> bool {
        self.inbox.has_reply()
    }

    fn await_reply(&mut self, limit: Duration) -> Result<bool, Error> {
        Ok(self.inbox.wait(limit))
    }

    fn receive(&mut self, limit: Duration) -> Result<TransportReply, Error> {
        if self.payload.capacity() > 0 {
            self.inbox.give_back(std::mem::take(&mut self.payload));
        }
        if !self.inbox.wait(limit) {
            return Err(Error::Silent { peer: self.name.clone(), waited: limit });
        }
        let response = self.inbox.take().ok_or_else(|| Error::Closed { peer: self.name.clone() })?;
        let header = FrameHeader { payload_len: response.payload_len() as u32, ..response.header };
        (self.payload, self.parts) = (response.payload, response.parts);
        Ok(TransportReply { header, result: response.result })
    }

    fn read_payload(&mut self, into: &mut [u8]) -> Result<(), Error> {
        into.copy_from_slice(&self.payload);
        Ok(())
    }

    fn payload_in_memory(&self) -> Option<&[u8]> {
        Some(&self.payload)
    }

    fn read_payload_parts(&mut self, _: usize, bytes: &mut Vec<u8>, parts: &mut Vec<PayloadPart>) -> Result<(), Error> {
        std::mem::swap(&mut self.payload, bytes);
        std::mem::swap(&mut self.parts, parts);
        Ok(())
    }

    fn runs_on_caller(&self) -> bool {
        true
    }

    fn cancel_handle(&self) -> CancelHandle {
        CancelHandle::new(self.inbox.clone())
    }
}

impl Cancel for Inbox {
    fn cancel(&self) {
        self.end();
    }
}
