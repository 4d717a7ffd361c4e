//! Reads of an open file.

use std::sync::atomic::Ordering;

use frieze_base::{Fault, Reason, Seq, SessionId};
use frieze_trace::CallKind;
use frieze_wire::message::{Read, ReadReply, Reply, Request, Seek};

use crate::Error;
use crate::client_core::ClientCore;
use crate::file::{File, check_range};
use crate::request::RpcRequest;
use crate::route::ServerRoute;
use crate::trace;

/// Target of the log lines about bytes that may be missing, for programs that report them in their own words.
pub const LOSS_LOG: &str = "frieze_client::loss";

impl File {
    /// Reads up to `into.len()` bytes from `offset`; fewer only at the end of the file. Holes are zeros.
    ///
    /// # Errors
    /// `NotOpenFor`; `Refused` with `Corrupt` if stored bytes fail their checksum; as any call.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, Error> {
        let scope = self.scope(CallKind::Read, offset, into.len() as u64);
        let count = self.read_bytes(offset, into);
        trace::note_end(&scope, &count);
        count
    }

    fn read_bytes(&self, offset: u64, into: &mut [u8]) -> Result<usize, Error> {
        self.must_read()?;
        check_range(offset, into.len() as u64)?;
        if into.len() >= WIDE_BYTES {
            return self.read_at_wide(offset, into);
        }
        let mut filled = 0;
        while filled < into.len() {
            let at = offset + filled as u64;
            let len = self.at_one_server(at, (into.len() - filled) as u64, ServerRoute::Read) as usize;
            let rest = &mut into[filled..filled + len];
            let (reply, count) = match self.shared.call(&self.read_request(at, len, false), rest)? {
                (Reply::Read(reply), count) => (reply, count),
                (other, _) => return Err(self.shared.unexpected("file content", &other)),
            };
            self.note_read(&reply);
            filled += count;
            if reply.end_of_file || count == 0 {
                break;
            }
        }
        Ok(filled)
    }

    /// A read. With `in_steps` the reply may begin before all of it is verified, and end in the middle if that fails.
    pub(crate) fn read_request(&self, offset: u64, len: usize, in_steps: bool) -> RpcRequest<'static> {
        let reader = if self.session == SessionId(0) { self.shared.reader } else { 0 };
        let read =
            Read { capability: self.capability.clone(), offset, len: len as u32, in_steps, reader, dest_slot: None };
        self.request(Request::Read(read), Seq(0), &[]).to(ServerRoute::Read(self.chunk_at(offset)))
    }

    /// Notes whether a reply says that bytes may be missing. The first such reply of an open file is logged.
    pub(crate) fn note_read(&self, reply: &ReadReply) {
        // A view in a gap was reported when the file was opened.
        let is_new = reply.answered.incomplete && !self.answered.incomplete;
        if is_new && !self.may_lack.swap(true, Ordering::Relaxed) {
            self.shared.met_loss.store(true, Ordering::Relaxed);
            tracing::warn!(
                target: LOSS_LOG,
                "acknowledged bytes may be missing from inode {}: its chain continued from a stale copy \
                 ('frieze cluster status' names the chain)",
                self.inode
            );
        }
    }

    /// The next offset at or after `offset` that holds data; `None` if only a hole follows, or the end.
    ///
    /// # Errors
    /// As any call.
    pub fn seek_data(&self, offset: u64) -> Result<Option<u64>, Error> {
        self.seek(offset, true)
    }

    /// The next offset at or after `offset` that lies in a hole; the end of the file counts as one. `None` beyond it.
    ///
    /// # Errors
    /// As any call.
    pub fn seek_hole(&self, offset: u64) -> Result<Option<u64>, Error> {
        self.seek(offset, false)
    }

    fn seek(&self, offset: u64, data: bool) -> Result<Option<u64>, Error> {
        let seek = Seek { capability: self.capability.clone(), offset, data };
        match self.shared.call(&self.request(Request::Seek(seek), Seq(0), &[]), &mut []) {
            Ok((Reply::Seek(found), _)) => Ok(Some(found)),
            Ok((other, _)) => Err(self.shared.unexpected("an offset", &other)),
            Err(Error::Refused(Fault { reason: Reason::NotFound, .. })) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The reply to a read.
pub(crate) fn expect_read(core: &ClientCore, reply: Reply) -> Result<ReadReply, Error> {
    match reply {
        Reply::Read(reply) => Ok(reply),
        other => Err(core.unexpected("file content", &other)),
    }
}

/// From this length on it pays that the reply is received while the server still reads.
const WIDE_BYTES: usize = 256 << 10;
