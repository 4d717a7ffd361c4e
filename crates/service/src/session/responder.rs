//! How answers leave: at once or later, from any thread.

use frieze_base::{Fault, Reason};
use frieze_wire::fabric::ConnectFabric;
use frieze_wire::frame::FrameHeader;
use frieze_wire::message::Reply;

use crate::session::reply_stream::Steps;

/// Answers go through this, at once or later, from any thread.
pub trait Responder: Send + Sync {
    /// Sends the answer to `request`. `payload_crc` is the CRC32C of `payload`.
    fn respond(&self, request: &FrameHeader, result: Result<Reply, Fault>, payload: &[u8], payload_crc: u32);

    /// The same with a payload that may be swapped: a buffer left in its place is used for the next payload.
    fn respond_with(&self, request: &FrameHeader, result: Result<Reply, Fault>, payload: &mut Vec<u8>, crc: u32) {
        self.respond(request, result, payload, crc);
    }

    /// Tests transfers with memory of the client, which this may then use for payloads.
    ///
    /// # Errors
    /// `FabricFailed` if there is no fabric that both ends have, or it does not work: payloads go by TCP as before.
    fn connect_fabric(&self, _: &ConnectFabric) -> Result<(), Fault> {
        Err(Fault::new(Reason::FabricFailed, "this connection has no fabric"))
    }

    /// Sends an answer whose payload `steps` brings piece by piece. If that fails half-way the connection ends.
    fn respond_in_steps(&self, request: &FrameHeader, reply: Reply, steps: &mut Steps<'_>) {
        let (mut payload, mut crc) = (Vec::with_capacity(steps.len), 0);
        let brought = steps.bring(&mut |bytes, of_all| {
            payload.extend_from_slice(bytes);
            crc = of_all.unwrap_or(0);
            Ok(())
        });
        match brought {
            Ok(()) => self.respond(request, Ok(reply), &payload, crc),
            Err(fault) => self.respond(request, Err(fault), &[], 0),
        }
    }
}

/// The answer of a request that has nothing to say.
pub(crate) fn done() -> Reply {
    Reply::Done(frieze_wire::message::EmptyReply {})
}
