//! An open file. Its operations are in `read`, `write`, `append` and `close`.

pub(crate) mod append;
pub(crate) mod close;
pub(crate) mod read;
pub(crate) mod write;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use frieze_base::{ChunkId, InodeId, Seq, SessionId};
use frieze_trace::{CallKind, CallScope, EventFlags};
use frieze_wire::message::{
    Attr, Durability, InstantInfo, OpenReply, Reply, Request, RequestBody, Stat, StatReply, View,
};
use frieze_wire::txn::{Caller, Target};

use crate::Error;
use crate::client_core::ClientCore;
use crate::modes::OpenFlags;
use crate::request::RpcRequest;
use crate::route::ServerRoute;
use crate::rpc::QueryOptions;
use crate::write_grants::FileGrants;

/// An open file. Threads may share it: every call is independent and takes its own offset.
///
/// A write has happened when the call returns; the client buffers nothing. [`File::close`] settles the length and
/// returns errors; dropping the file settles without.
#[derive(Debug)]
pub struct File {
    pub(crate) shared: Arc<ClientCore>,
    /// 0 for a file of the past.
    session: SessionId,
    inode: InodeId,
    attr: Attr,
    answered: InstantInfo,
    capability: Vec<u8>,
    flags: OpenFlags,
    view: View,
    caller: Option<Caller>,
    durability: AtomicI32,
    chunk_bytes: u64,
    /// The last known end of the file in bytes: an estimate, to request grants before an append.
    end: AtomicU64,
    grants: Option<Arc<FileGrants>>,
    /// A reply of the present said that bytes may be missing.
    may_lack: AtomicBool,
}

/// The view through which a file is opened.
#[derive(Clone, Debug)]
pub(crate) struct OpenContext {
    pub(crate) view: View,
    pub(crate) caller: Option<Caller>,
    pub(crate) durability: Durability,
}

impl File {
    pub(crate) fn new(shared: Arc<ClientCore>, reply: OpenReply, flags: OpenFlags, context: OpenContext) -> File {
        let OpenReply { attr, capability, answered } = reply;
        let OpenContext { view, caller, durability } = context;
        let inode = InodeId(attr.inode);
        if view.at.is_none() {
            shared.open_files.add(inode, &capability);
        }
        let chunk_bytes = if attr.chunk_bytes == 0 { shared.hello.chunk_bytes } else { attr.chunk_bytes };
        File {
            session: if view.at.is_some() { SessionId(0) } else { shared.current_session() },
            inode,
            answered,
            capability,
            flags,
            view,
            caller,
            durability: AtomicI32::new(durability as i32),
            chunk_bytes: chunk_bytes.max(1),
            end: AtomicU64::new(attr.size),
            grants: flags.write.then(|| shared.grants.of(inode)),
            may_lack: AtomicBool::new(false),
            attr,
            shared,
        }
    }

    /// Its inode.
    pub fn inode(&self) -> InodeId {
        self.inode
    }

    /// Its attributes when it was opened.
    pub fn attr(&self) -> &Attr {
        &self.attr
    }

    /// What the server reported of the instant when the file was opened.
    pub fn answered(&self) -> InstantInfo {
        self.answered
    }

    /// True if acknowledged bytes may be missing from what was read: a chain of the cluster continued from a stale
    /// copy, and those bytes were not written since. [`File::answered`] says whether a view of the past lies in a gap.
    pub fn may_lack(&self) -> bool {
        self.may_lack.load(Ordering::Relaxed)
    }

    /// What it was opened for.
    pub fn flags(&self) -> OpenFlags {
        self.flags
    }

    /// A scope around a call about a range of this file.
    pub(crate) fn scope(&self, call: CallKind, offset: u64, len: u64) -> CallScope<'_> {
        let scope = self.shared.scope(call);
        scope.inode(self.inode.0);
        scope.range(offset, len);
        match self.view.instant() {
            Some(at) => scope.view(at),
            None if self.view.is_past() => scope.flag(EventFlags::PAST),
            None => {}
        }
        scope
    }

    /// Attributes now, or at the view it was opened at; also of a file without a name.
    ///
    /// # Errors
    /// As any call.
    pub fn stat(&self) -> Result<StatReply, Error> {
        let request = Request::Stat(Stat { target: Target::inode(self.inode), view: self.view, recent: false });
        match self.shared.query(self.caller.as_ref(), request, QueryOptions::default())? {
            Reply::Stat(reply) => Ok(reply),
            other => Err(self.shared.unexpected("attributes", &other)),
        }
    }

    /// Sets when later writes are acknowledged.
    pub fn set_durability(&self, durability: Durability) {
        self.durability.store(durability as i32, Ordering::Relaxed);
    }

    /// Largest piece of at most `max` bytes in which a long run of bytes is written: whole records, if all records of
    /// the file have one size.
    pub fn run_bytes_max(&self, max: usize) -> usize {
        let size =
            self.attr.time_plugin.split(',').find_map(|field| field.strip_prefix("size=")?.parse::<usize>().ok());
        size.map_or(max, |size| max - max % size.clamp(1, max))
    }

    /// True if every write is a record of its own.
    pub fn has_user_time(&self) -> bool {
        !self.attr.time_plugin.is_empty()
    }

    /// The chunk that holds a byte.
    pub(crate) fn chunk_at(&self, offset: u64) -> ChunkId {
        ChunkId { inode: self.inode, index: self.chunks_of(offset, 1).start }
    }

    fn chunks_of(&self, offset: u64, len: usize) -> Range<u32> {
        // A range beyond the largest file is counted to the last chunk, and refused by the server.
        let index = |at: u64| u32::try_from(at / self.chunk_bytes).map_or(CHUNK_MAX, |index| index.min(CHUNK_MAX));
        let last = offset.saturating_add(len.max(1) as u64 - 1);
        index(offset)..index(last) + 1
    }

    /// How many of `len` bytes from `offset` on go to one server: all if there is one, else those of the first chunks
    /// that one server answers for.
    pub(crate) fn at_one_server(&self, offset: u64, len: u64, route: fn(ChunkId) -> ServerRoute) -> u64 {
        let (first, last) = (self.chunk_at(offset), self.chunk_at(offset.saturating_add(len.max(1) - 1)));
        if first == last || self.shared.servers.age().is_alone() {
            return len;
        }
        let is_other = |index: &u32| {
            let chunk = ChunkId { index: *index, ..first };
            !self.shared.servers.is_same(route(first), route(chunk))
        };
        match (first.index + 1..=last.index).find(is_other) {
            Some(index) => len.min(u64::from(index) * self.chunk_bytes - offset),
            None => len,
        }
    }

    /// True if there is more than one server.
    pub(crate) fn is_among_several(&self) -> bool {
        !self.shared.servers.age().is_alone()
    }

    /// A request about this file. The capability proves the right to read or write, so the caller is not named again.
    pub(crate) fn request<'d>(&self, request: Request, seq: Seq, payload: &'d [u8]) -> RpcRequest<'d> {
        RpcRequest::new(RequestBody { caller: None, trace: None, request: Some(request) }, self.session, seq, payload)
    }

    /// Proves the right to read or write.
    pub(crate) fn capability(&self) -> &[u8] {
        &self.capability
    }

    /// The user on whose behalf it was opened.
    pub(crate) fn caller(&self) -> Option<&Caller> {
        self.caller.as_ref()
    }

    pub(crate) fn durability(&self) -> Durability {
        Durability::try_from(self.durability.load(Ordering::Relaxed)).unwrap_or(Durability::Async)
    }

    pub(crate) fn must_read(&self) -> Result<(), Error> {
        if self.flags.read { Ok(()) } else { Err(Error::NotOpenFor { what: "reading" }) }
    }

    pub(crate) fn must_write(&self) -> Result<(), Error> {
        if self.grants.is_some() { Ok(()) } else { Err(Error::NotOpenFor { what: "writing" }) }
    }
}

/// Offsets end at 2^63 - 1, as in POSIX.
pub(crate) fn check_range(offset: u64, len: u64) -> Result<(), Error> {
    match offset.checked_add(len) {
        Some(end) if end <= i64::MAX as u64 => Ok(()),
        _ => Err(Error::OffsetTooLarge { offset, len }),
    }
}

/// Index of the last chunk of the largest file.
const CHUNK_MAX: u32 = u32::MAX - 1;
