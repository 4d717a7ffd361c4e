//! The payload of a read, written into the client's memory instead of being sent.
//!
//! Guarantees: a payload that cannot be transferred is still to be sent, and the reply says if bytes may still arrive
//! in the client's memory, or if transfers with the client have ended: it then asks for a new test.
//! Leaves to others: memory and its lifetime (`fabric`), what is read (`service`).

use frieze_base::{Fault, Reason};
use frieze_fabric::{FabricError, ServedClient, SlotWriter};
use frieze_service::{Portion, Steps};
use frieze_wire::RemoteMemory;
use tracing::debug;

/// Where the payload of a read is.
pub(super) enum Landing {
    /// In the client's memory: so many bytes with this CRC32C.
    Landed(usize, u32),
    /// Still to be sent; the client's memory is as it was.
    Untouched,
    /// Still to be sent; bytes may still arrive in the client's memory, and transfers are not in use any more.
    Abandoned,
    /// It cannot be read.
    Damaged(Fault),
}

/// Writes what `steps` brings into the client's memory.
pub(super) fn land(client: &ServedClient, slot: RemoteMemory, steps: &mut Steps<'_>) -> Landing {
    let Some(peer) = client.peer() else { return Landing::Abandoned };
    let mut writer = match peer.write_into(slot, steps.len) {
        Ok(writer) => writer,
        Err(_) if peer.is_up() => return Landing::Untouched,
        Err(_) => return Landing::Abandoned,
    };
    let (mut crc, mut failed) = (0, None);
    let brought = steps.portions(&mut |portion, of_all| {
        crc = of_all.unwrap_or(0);
        match portion {
            Portion::Read(bytes) => {
                writer.next(bytes.len()).copy_from_slice(bytes);
                send(&mut writer, bytes.len(), &mut failed)
            }
            Portion::UnverifiedSpan { held, len, .. } => {
                let mut at = 0;
                while at < len {
                    let part = STEP_BYTES.min(len - at);
                    let offset = held.offset + at as u64;
                    if held.file.read_at(offset, writer.next(part))? < part {
                        // What the room had before is not this client's.
                        let words = format!("a segment ends before {}", offset + part as u64);
                        return Err(Fault::new(Reason::Corrupt, words));
                    }
                    send(&mut writer, part, &mut failed)?;
                    at += part;
                }
                Ok(())
            }
        }
    });
    let finished = writer.finish();
    let finished = failed.map_or(finished, Err);
    if let Err(error) = &finished {
        debug!("a payload goes by TCP, and the client's transfers are tested again: {error}");
    }
    match (brought, finished) {
        (Ok(()), Ok(len)) => Landing::Landed(len, crc),
        (Err(fault), Ok(_)) => Landing::Damaged(fault),
        (_, Err(_)) => Landing::Abandoned,
    }
}

/// Sends the next bytes; keeps the error of the fabric apart from those of reading.
fn send(writer: &mut SlotWriter<'_>, len: usize, failed: &mut Option<FabricError>) -> Result<(), Fault> {
    writer.send(len).map_err(|error| {
        let fault = Fault::new(Reason::FabricFailed, error.to_string());
        *failed = Some(error);
        fault
    })
}

/// Bytes of one transfer of a payload: the next is read while it is on its way.
const STEP_BYTES: usize = 512 << 10;
