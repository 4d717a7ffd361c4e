//! Transports: how a client's requests reach a server and its replies come back.
//!
//! A [`Transport`] opens connections to one server; a [`TransportConn`] is one of them. Requests and replies are whole
//! messages with a payload beside them. Nothing here assumes a byte stream: a payload is copied from a socket, lies in
//! memory that both ends reach, or stays in a file ([`PayloadPart`]).
//!
//! Guarantees: replies of one connection are received in the order in which they arrive, each whole and verified, but
//! for parts that are marked as unverified. After an error the connection is of no further use.
//! Leaves to others: handshake, request ids, retries and pools (`client`).
//!
//! # Cost
//! One virtual call for each request, reply and payload; none for each byte.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use frieze_base::Fault;
use frieze_wire::FrameHeader;
use frieze_wire::message::{Reply, RequestBody};

use crate::Error;
use crate::payload_part::PayloadPart;

/// A way to one server.
pub trait Transport: Send + Sync + fmt::Debug {
    /// The server, for messages.
    fn server(&self) -> String;

    /// Opens a connection. Until [`TransportConn::admit`] it accepts small replies without payload only.
    ///
    /// # Errors
    /// `Connect` if no server answers there; `Refused` with the server's reason.
    fn connect(&self, limits: TransportLimits) -> Result<Box<dyn TransportConn>, Error>;
}

/// How long a new connection may wait.
#[derive(Clone, Copy, Debug)]
pub struct TransportLimits {
    /// For the connection to be made, and for each reply until the next call names a limit.
    pub connect: Duration,
    /// For a request to be accepted by the server, as long as the connection lives.
    pub send: Duration,
}

/// One connection to a server.
pub trait TransportConn: Send + fmt::Debug {
    /// The handshake is complete: replies may be of any size.
    fn admit(&mut self);

    /// Sends a request.
    ///
    /// # Errors
    /// `Closed`, `Broken`, `NotReading`.
    fn send(&mut self, header: &FrameHeader, body: &RequestBody, payload: &[u8]) -> Result<(), Error>;

    /// Adds a small request to those that [`TransportConn::send_queued`] sends. A transport that gains nothing by a
    /// batch sends it at once.
    fn queue(&mut self, header: &FrameHeader, body: &RequestBody, payload: &[u8]);

    /// Sends the queued requests as one batch.
    ///
    /// # Errors
    /// As [`TransportConn::send`].
    fn send_queued(&mut self) -> Result<(), Error>;

    /// True if the next reply has arrived: receiving it does not wait.
    fn has_reply(&self) -> bool;

    /// Waits until the next reply begins or the connection ends; false if neither has happened after `limit`.
    ///
    /// # Errors
    /// `Broken`.
    fn await_reply(&mut self, limit: Duration) -> Result<bool, Error>;

    /// Receives the next reply, and drops the payload of the last one if it was not taken.
    ///
    /// # Errors
    /// `Silent` if none arrives within `limit`; `HalfFrame`, `Closed`, `Broken`, `Frame`, `Checksum`.
    fn receive(&mut self, limit: Duration) -> Result<TransportReply, Error>;

    /// Copies the payload of the last reply.
    ///
    /// # Errors
    /// As [`TransportConn::receive`]. After `Checksum` the bytes in `into` are worthless.
    ///
    /// # Panics
    /// If `into` is not as long as the header of the reply says.
    fn read_payload(&mut self, into: &mut [u8]) -> Result<(), Error>;

    /// The payload of the last reply where it lies in this process's memory; `None` if it is to be copied by
    /// [`TransportConn::read_payload`].
    fn payload_in_memory(&self) -> Option<&[u8]>;

    /// Moves the payload of the last reply, `len` bytes, into `bytes`, which the connection takes in exchange, and
    /// `parts`. `parts` stays empty if all of the payload was read.
    ///
    /// # Errors
    /// As [`TransportConn::read_payload`].
    fn read_payload_parts(
        &mut self,
        len: usize,
        bytes: &mut Vec<u8>,
        parts: &mut Vec<PayloadPart>,
    ) -> Result<(), Error>;

    /// True if the server's work for a request is done on the thread that sends it: more requests in flight gain
    /// nothing.
    fn runs_on_caller(&self) -> bool;

    /// Ends the connection from another thread.
    fn cancel_handle(&self) -> CancelHandle;
}

/// A reply whose payload, if any, is still to be taken.
#[derive(Debug)]
pub struct TransportReply {
    /// Its header. `payload_len` is the length in bytes of the payload to be taken.
    pub header: FrameHeader,
    /// The reply itself.
    pub result: Result<Reply, Fault>,
}

/// What [`CancelHandle`] calls.
pub trait Cancel: Send + Sync + fmt::Debug {
    /// Ends the connection: a thread that waits for a reply returns.
    fn cancel(&self);
}

/// Ends a connection from another thread. Cheap to clone.
#[derive(Clone, Debug)]
pub struct CancelHandle(Arc<dyn Cancel>);

impl CancelHandle {
    /// A handle of a connection that `cancel` ends.
    pub fn new(cancel: Arc<dyn Cancel>) -> CancelHandle {
        CancelHandle(cancel)
    }

    /// Ends the connection: a thread that waits for a reply returns.
    pub fn cancel(&self) {
        self.0.cancel();
    }
}
