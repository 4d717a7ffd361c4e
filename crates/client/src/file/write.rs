//! Writes to an open file, and the grants they need.

use std::ops::Range;
use std::sync::atomic::Ordering;

use frieze_base::{Fault, InodeId, Reason, Seq};
use frieze_hlc::Hlc;
use frieze_trace::CallKind;
use frieze_wire::frame::PAYLOAD_BYTES_MAX;
use frieze_wire::message::{Durability, Reply, Request, Sync, Write, WriteReply};
use frieze_wire::txn::{Grant, Op, SetAttr, Target};

use crate::Error;
use crate::buffers::REQUEST_BYTES;
use crate::file::close::SettleMode;
use crate::file::{File, check_range};
use crate::request::RpcRequest;
use crate::route::ServerRoute;
use crate::rpc::QueryOptions;
use crate::trace;

/// Where a write goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WritePosition {
    /// To its offset.
    At,
    /// To the end of the file as the server knows it.
    End,
}

impl File {
    /// Writes all of `data` at `offset`. Up to 1 MiB is one atomic write; more is several, sent one after the other
    /// without waiting. Returns the stamp of the last: a read at it, or later, holds all of them.
    ///
    /// In a file with user time a write is one record, so it is never split, and may have 4 MiB.
    ///
    /// # Errors
    /// `NotOpenFor`; `RecordTooLarge`; `Refused` with `BackwardUserTime` or `NoSpace`; as any call. Of a write of
    /// several pieces some may have happened.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<Hlc, Error> {
        let scope = self.scope(CallKind::Write, offset, data.len() as u64);
        let stamp = self.write_bytes(offset, data);
        trace::note_end(&scope, &stamp);
        stamp
    }

    fn write_bytes(&self, offset: u64, data: &[u8]) -> Result<Hlc, Error> {
        self.must_write()?;
        check_range(offset, data.len() as u64)?;
        if data.is_empty() {
            return Ok(self.shared.newest());
        }
        let is_one = self.has_user_time() || self.at_one_head(offset, data.len() as u64) == data.len() as u64;
        if data.len() > self.piece_bytes_max() || !is_one {
            return self.write_at_wide(offset, data);
        }
        Ok(Hlc(self.write_once(offset, data, WritePosition::At)?.stamp))
    }

    /// Makes one write request, its grant included.
    pub(crate) fn write_once(&self, offset: u64, data: &[u8], position: WritePosition) -> Result<WriteReply, Error> {
        let grants = self.grants.as_ref().expect("opened for writing");
        let mut offset = offset;
        let mut rounds = 0;
        loop {
            // A server that is alone grants the end of the file, which only it knows, to an append. Among several
            // servers the head may accept a grant that the leader has already taken back, and the bytes written under
            // it would not be counted.
            if position == WritePosition::At || rounds > 0 || !self.shared.servers.age().is_alone() {
                self.ensure_granted_for(position, offset, data.len())?;
            }
            grants.mark_dirty();
            let number = self.shared.number()?;
            let request = self.write_request(offset, data, position, number.seq);
            match self.shared.call(&request, &mut []) {
                Ok((Reply::Write(reply), _)) => return Ok(reply),
                Ok((other, _)) => return Err(self.shared.unexpected("a write", &other)),
                // A refused write has not happened, so the next attempt is another request.
                Err(Error::Refused(fault)) if is_without_grant(&fault) && rounds < GRANT_ROUNDS_MAX => {
                    rounds += 1;
                    grants.drop_from(self.chunks_of(offset, data.len()).start);
                    if position == WritePosition::End {
                        offset = self.stat()?.attr.size;
                        self.end.store(offset, Ordering::Relaxed);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    pub(crate) fn write_request<'d>(
        &self,
        offset: u64,
        data: &'d [u8],
        position: WritePosition,
        seq: Seq,
    ) -> RpcRequest<'d> {
        let append = position == WritePosition::End;
        let at = if append { self.end.load(Ordering::Relaxed) } else { offset };
        let write = Write {
            capability: self.capability.clone(),
            offset: at,
            append,
            durability: self.durability.load(Ordering::Relaxed),
            uid: self.caller.as_ref().map_or(self.shared.hello.uid, |caller| caller.uid),
            ..Write::default()
        };
        self.request(Request::Write(write), seq, data).to(ServerRoute::Write(self.chunk_at(at)))
    }

    /// How many of `len` bytes from `offset` on one request writes: all if there is one server, else those of the first
    /// chunk. Two chunks may have one head now, and different ones when the request is sent again.
    pub(crate) fn at_one_head(&self, offset: u64, len: u64) -> u64 {
        if self.has_user_time() || self.shared.servers.age().is_alone() {
            return len;
        }
        len.min(self.chunk_bytes - offset % self.chunk_bytes)
    }

    /// True if a write of so many bytes is one record, or several records of one server that become visible together.
    pub(crate) fn is_one_write(&self, offset: u64, len: usize) -> bool {
        let is_alone = self.shared.servers.age().is_alone();
        len <= PAYLOAD_BYTES_MAX as usize && (is_alone || offset % self.chunk_bytes + len as u64 <= self.chunk_bytes)
    }

    /// Largest write that is sent as one request.
    pub(crate) fn piece_bytes_max(&self) -> usize {
        if self.attr.time_plugin.is_empty() { REQUEST_BYTES } else { PAYLOAD_BYTES_MAX as usize }
    }

    /// Requests the grants for a range now, and not with its first write.
    ///
    /// # Errors
    /// `BytesQuota` if a quota leaves no room; `StaleHandle`; as any change.
    pub fn prepare_write(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.must_write()?;
        self.ensure_granted(offset, usize::try_from(len).unwrap_or(usize::MAX))
    }

    /// Requests the grants that are missing for a write at an offset.
    pub(crate) fn ensure_granted(&self, offset: u64, len: usize) -> Result<(), Error> {
        self.ensure_granted_for(WritePosition::At, offset, len)
    }

    /// The same; among several servers an append is announced to the leader.
    fn ensure_granted_for(&self, position: WritePosition, offset: u64, len: usize) -> Result<(), Error> {
        let appends = position == WritePosition::End && self.is_among_several();
        let grants = self.grants.as_ref().expect("opened for writing");
        let wanted = self.chunks_of(offset, len);
        while let Some(range) = grants.missing(wanted.clone()) {
            self.await_settled();
            let grant = Grant { inode: self.inode.0, first: range.start, count: range.len() as u32 };
            let op = if appends { Op::GrantAppend(grant) } else { Op::Grant(grant) };
            self.shared.change(self.caller.as_ref(), Durability::Async, op)?;
            grants.add(range);
        }
        Ok(())
    }

    /// Among several servers settling a file returns grants for bytes that it did not count as written, so a new grant
    /// is requested after it. A server that is alone lets no session write meanwhile.
    fn await_settled(&self) {
        if !self.shared.servers.age().is_alone() {
            self.shared.grants.await_settled(self.inode, self.shared.options.timeout);
        }
    }

    /// True if these bytes may be written without another grant.
    pub(crate) fn is_granted(&self, offset: u64, len: usize) -> bool {
        self.grants.as_ref().is_some_and(|grants| grants.missing(self.chunks_of(offset, len)).is_none())
    }

    pub(crate) fn note_granted(&self, chunks: Range<u32>) {
        if let Some(grants) = &self.grants {
            grants.add(chunks);
        }
    }

    pub(crate) fn note_lost_grant(&self, offset: u64) {
        if let Some(grants) = &self.grants {
            grants.drop_from(self.chunks_of(offset, 1).start);
        }
    }

    pub(crate) fn note_dirty(&self) {
        if let Some(grants) = &self.grants {
            grants.mark_dirty();
        }
    }

    /// Makes everything written to the file, and the metadata that names it, durable.
    ///
    /// # Errors
    /// As any call. Bytes written before a failure may or may not survive a crash; a later success does not cover them.
    pub fn sync(&self) -> Result<(), Error> {
        let _scope = self.scope(CallKind::Sync, 0, 0);
        if let Some(grants) = &self.grants
            && grants.take_dirty()
            && let Err(error) = self.settle(SettleMode::KeepGrant)
        {
            grants.mark_dirty();
            return Err(error);
        }
        let request = Request::Sync(Sync { inode: self.inode.0 });
        match self.shared.query(self.caller.as_ref(), request, QueryOptions::IN_SESSION)? {
            Reply::Done(_) => Ok(()),
            other => Err(self.shared.unexpected("a barrier", &other)),
        }
    }

    /// Truncates the file at `len` bytes, or extends it with a hole.
    ///
    /// # Errors
    /// `NotOpenFor`; as any call.
    pub fn set_len(&self, len: u64) -> Result<(), Error> {
        self.must_write()?;
        let target = Target::inode(self.inode);
        let change = SetAttr { target, size: Some(len), by_handle: true, ..empty_set_attr() };
        self.shared.change(self.caller.as_ref(), self.durability(), Op::SetAttr(change))?;
        if let Some(grants) = &self.grants {
            // The server dropped the grants above `len`. That of the last chunk is dropped here too, which costs
            // little.
            grants.drop_from(u32::try_from(len.div_ceil(self.chunk_bytes)).unwrap_or(u32::MAX));
        }
        self.end.store(len, Ordering::Relaxed);
        Ok(())
    }
}

/// True if the server does not know that the session may write there: a truncate by another client took the grant.
pub(crate) fn is_without_grant(fault: &Fault) -> bool {
    fault.reason == Reason::Busy
}

fn empty_set_attr() -> SetAttr {
    SetAttr { target: Target::inode(InodeId(0)), ..SetAttr::default() }
}

/// How often a write requests its grant again before it fails.
pub(crate) const GRANT_ROUNDS_MAX: usize = 4;
