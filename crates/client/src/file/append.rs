//! Appends to an open file.

use std::sync::atomic::Ordering;

use frieze_trace::CallKind;
use frieze_wire::frame::PAYLOAD_BYTES_MAX;
use frieze_wire::message::WriteReply;

use crate::Error;
use crate::file::File;
use crate::file::write::WritePosition;
use crate::trace;

impl File {
    /// Appends all of `data` at the end of the file as it is then, atomically and in one piece; at most 4 MiB.
    ///
    /// # Errors
    /// `AppendTooLarge`; as [`File::write_at`].
    pub fn append(&self, data: &[u8]) -> Result<WriteReply, Error> {
        let scope = self.scope(CallKind::Append, self.end.load(Ordering::Relaxed), data.len() as u64);
        let reply = self.append_bytes(data);
        trace::note_end(&scope, &reply);
        reply
    }

    fn append_bytes(&self, data: &[u8]) -> Result<WriteReply, Error> {
        self.must_write()?;
        if data.len() > PAYLOAD_BYTES_MAX as usize {
            return Err(Error::AppendTooLarge { len: data.len(), max: PAYLOAD_BYTES_MAX as usize });
        }
        if data.is_empty() {
            let offset = self.stat()?.attr.size;
            return Ok(WriteReply { stamp: self.shared.newest().0, offset });
        }
        let reply = self.write_once(self.end.load(Ordering::Relaxed), data, WritePosition::End)?;
        self.end.fetch_max(reply.offset + data.len() as u64, Ordering::Relaxed);
        Ok(reply)
    }
}
