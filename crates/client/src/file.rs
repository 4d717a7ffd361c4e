//! An open file.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use frieze_base::{ChunkId, Fault, InodeId, Reason, Seq, SessionId};
use frieze_hlc::Hlc;
use frieze_wire::frame::PAYLOAD_BYTES_MAX;
use frieze_wire::message::{
    Attr, Durability, InstantInfo, OpenReply, Read, ReadReply, Reply, Request, RequestBody, Seek, Stat, StatReply,
    Sync, View, Write, WriteReply,
};
use frieze_wire::txn::{Caller, Grant, Op, SetAttr, Settle, Target};

use crate::call::{Ask, Shared};
use crate::grants::Writer;
use crate::servers::Route;
use crate::{Error, Fs, OpenFlags};

/// An open file. Share it between threads as you like: every call is independent and takes its own offset.
///
/// A write has happened when the call returns; nothing is buffered here. [`File::close`] settles its length and tells of
/// failures; dropping the file does the same without telling.
#[derive(Debug)]
pub struct File {
    pub(crate) shared: Arc<Shared>,
    /// 0 of a state of the past.
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
    /// Where the file ended when it was last seen: a guess, to ask for grants before an append.
    end: AtomicU64,
    writer: Option<Arc<Writer>>,
    /// An answer of now said that something may be missing.
    may_lack: AtomicBool,
}

impl File {
    pub(crate) fn new(shared: Arc<Shared>, reply: OpenReply, flags: OpenFlags, fs: &Fs) -> File {
        let OpenReply { attr, capability, answered } = reply;
        let inode = InodeId(attr.inode);
        let view = fs.view();
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
            caller: fs.caller().cloned(),
            durability: AtomicI32::new(fs.durability() as i32),
            chunk_bytes: chunk_bytes.max(1),
            end: AtomicU64::new(attr.size),
            writer: flags.write.then(|| shared.writers.of(inode)),
            may_lack: AtomicBool::new(false),
            attr,
            shared,
        }
    }

    /// Which file.
    pub fn inode(&self) -> InodeId {
        self.inode
    }

    /// Attributes when it was opened.
    pub fn attr(&self) -> &Attr {
        &self.attr
    }

    /// What the server said of the instant when the file was opened.
    pub fn answered(&self) -> InstantInfo {
        self.answered
    }

    /// True if something that was acknowledged may be missing from what was read of it: a chain of the cluster went on from a copy that was
    /// behind, and nothing was written there since. That a view of the past lies in a gap [`File::answered`] says.
    pub fn may_lack(&self) -> bool {
        self.may_lack.load(Ordering::Relaxed)
    }

    /// Notes what an answer to a read says of what is missing. It is logged once for a file that is open.
    pub(crate) fn note_read(&self, reply: &ReadReply) {
        // That its instant lies in a gap was said when the file was opened.
        let is_news = reply.answered.incomplete && !self.answered.incomplete;
        if is_news && !self.may_lack.swap(true, Ordering::Relaxed) {
            self.shared.met_loss.store(true, Ordering::Relaxed);
            tracing::warn!(
                target: LOSS_LOG,
                "some of what was acknowledged may be missing from inode {}: its chain went on from a copy that was behind \
                 ('frieze cluster status' tells which did)",
                self.inode
            );
        }
    }

    /// What it was opened for.
    pub fn flags(&self) -> OpenFlags {
        self.flags
    }

    /// Attributes now, or at the view it was opened at; also of a file without a name.
    ///
    /// # Errors
    /// As any call.
    pub fn stat(&self) -> Result<StatReply, Error> {
        let request = Request::Stat(Stat { target: Target::inode(self.inode), view: self.view, recent: false });
        match self.shared.query(self.caller.as_ref(), request)? {
            Reply::Stat(reply) => Ok(reply),
            other => Err(self.shared.unexpected("attributes", &other)),
        }
    }

    /// Changes when writes from now on are acknowledged.
    pub fn set_durability(&self, durability: Durability) {
        self.durability.store(durability as i32, Ordering::Relaxed);
    }

    /// Reads up to `into.len()` bytes from `offset`; fewer only at the end of the file. Holes are zeros.
    ///
    /// # Errors
    /// `NotOpenFor`; `Refused` with `Corrupt` if stored bytes fail their checksum; as any call.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, Error> {
        self.must_read()?;
        check_range(offset, into.len() as u64)?;
        if into.len() >= WIDE_BYTES {
            return self.read_at_wide(offset, into);
        }
        let mut filled = 0;
        while filled < into.len() {
            let at = offset + filled as u64;
            let len = self.at_one_server(at, (into.len() - filled) as u64, Route::Read) as usize;
            let rest = &mut into[filled..filled + len];
            let ask = self.ask_read(at, len, false);
            let (reply, count) = match self.shared.ask(&ask, rest)? {
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

    /// `in_steps`: the answer may begin before all of it is verified, and end in the middle if that fails.
    pub(crate) fn ask_read(&self, offset: u64, len: usize, in_steps: bool) -> Ask<'static> {
        let reader = if self.session == SessionId(0) { self.shared.reader } else { 0 };
        let read = Read { capability: self.capability.clone(), offset, len: len as u32, in_steps, reader };
        self.ask(Request::Read(read), Seq(0), &[]).to(Route::Read(self.chunk_at(offset)))
    }

    /// Writes all of `data` at `offset`. Up to 1 MiB is one atomic write; more is several, sent one after the other
    /// without waiting. Returns the stamp of the last: a read at it, or later, holds all of them.
    ///
    /// In a file with user time a write is one record, so it is never split, and may have 4 MiB.
    ///
    /// # Errors
    /// `NotOpenFor`; `RecordTooLarge`; `Refused` with `BackwardUserTime` or `NoSpace`; as any call. Of a write of several
    /// pieces some may have happened.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<Hlc, Error> {
        self.must_write()?;
        check_range(offset, data.len() as u64)?;
        if data.is_empty() {
            return Ok(self.shared.newest());
        }
        let is_one = self.has_user_time() || self.at_one_head(offset, data.len() as u64) == data.len() as u64;
        if data.len() > self.piece_bytes_max() || !is_one {
            return self.write_at_wide(offset, data);
        }
        Ok(Hlc(self.write_once(offset, data, Place::At)?.stamp))
    }

    /// Appends all of `data` at the end of the file as it is then, atomically and in one piece; at most 4 MiB.
    ///
    /// # Errors
    /// `AppendTooLarge`; as [`File::write_at`].
    pub fn append(&self, data: &[u8]) -> Result<WriteReply, Error> {
        self.must_write()?;
        if data.len() > PAYLOAD_BYTES_MAX as usize {
            return Err(Error::AppendTooLarge { len: data.len(), max: PAYLOAD_BYTES_MAX as usize });
        }
        if data.is_empty() {
            let offset = self.stat()?.attr.size;
            return Ok(WriteReply { stamp: self.shared.newest().0, offset, taken: 0 });
        }
        let (mut done, mut begins) = (0, None);
        loop {
            let rest = &data[done..];
            let reply = self.write_once(self.end.load(Ordering::Relaxed), rest, Place::End)?;
            // An older server cuts it at the end of a chunk.
            let taken = if reply.taken == 0 { rest.len() } else { reply.taken as usize };
            self.end.fetch_max(reply.offset + taken as u64, Ordering::Relaxed);
            done += taken;
            let offset = *begins.get_or_insert(reply.offset);
            if done >= data.len() {
                return Ok(WriteReply { offset, taken: 0, ..reply });
            }
        }
    }

    /// One write request, its grant included.
    pub(crate) fn write_once(&self, offset: u64, data: &[u8], place: Place) -> Result<WriteReply, Error> {
        let writer = self.writer.as_ref().expect("opened for writing");
        let mut offset = offset;
        let mut rounds = 0;
        loop {
            // One server alone grants the end of the file, which only it knows, to an append. Of several the head may take a grant for
            // one that still holds which the leader has taken back, and nobody would count what was written by it.
            if place == Place::At || rounds > 0 || !self.shared.servers.age().is_alone() {
                self.ensure_granted_at(place, offset, data.len())?;
            }
            writer.mark_dirty();
            let numbered = self.shared.number()?;
            let ask = self.ask_write(offset, data, place, numbered.seq);
            match self.shared.ask(&ask, &mut []) {
                Ok((Reply::Write(reply), _)) => return Ok(reply),
                Ok((other, _)) => return Err(self.shared.unexpected("a write", &other)),
                // Refused is answered: it has not happened, and the next attempt is another request.
                Err(Error::Refused(fault)) if is_without_grant(&fault) && rounds < GRANT_ROUNDS_MAX => {
                    rounds += 1;
                    writer.drop_from(self.chunks_of(offset, data.len()).start);
                    if place == Place::End {
                        offset = self.stat()?.attr.size;
                        self.end.store(offset, Ordering::Relaxed);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    pub(crate) fn ask_write<'d>(&self, offset: u64, data: &'d [u8], place: Place, seq: Seq) -> Ask<'d> {
        let at = if place == Place::End { self.end.load(Ordering::Relaxed) } else { offset };
        let write = Write {
            capability: self.capability.clone(),
            offset: at,
            append: place == Place::End,
            durability: self.durability.load(Ordering::Relaxed),
            uid: self.caller.as_ref().map_or(self.shared.hello.uid, |caller| caller.uid),
        };
        self.ask(Request::Write(write), seq, data).to(Route::Write(self.chunk_at(at)))
    }

    /// The chunk that holds a byte.
    pub(crate) fn chunk_at(&self, offset: u64) -> ChunkId {
        ChunkId { inode: self.inode, index: self.chunks_of(offset, 1).start }
    }

    /// How many of `len` bytes from `offset` on go to one server: all where there is one, else those of the first chunks, as many as
    /// that server answers for.
    pub(crate) fn at_one_server(&self, offset: u64, len: u64, route: fn(ChunkId) -> Route) -> u64 {
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

    /// How many of `len` bytes from `offset` on one request writes: all where there is one server, else those of the first chunk.
    /// Two chunks may have one head now, and another each when it has to be sent again.
    pub(crate) fn at_one_head(&self, offset: u64, len: u64) -> u64 {
        if self.has_user_time() || self.shared.servers.age().is_alone() {
            return len;
        }
        len.min(self.chunk_bytes - offset % self.chunk_bytes)
    }

    /// True if a write of so many bytes is one record, or several of one server that are seen together.
    pub(crate) fn is_one_write(&self, offset: u64, len: usize) -> bool {
        let is_alone = self.shared.servers.age().is_alone();
        len <= PAYLOAD_BYTES_MAX as usize && (is_alone || offset % self.chunk_bytes + len as u64 <= self.chunk_bytes)
    }

    /// The right to read or write is in the capability, so the caller is not named again.
    pub(crate) fn ask<'d>(&self, request: Request, seq: Seq, payload: &'d [u8]) -> Ask<'d> {
        Ask::new(RequestBody { caller: None, request: Some(request) }, self.session, seq, payload)
    }

    /// Asks now, and not with the first byte, for what is needed to write a range.
    ///
    /// # Errors
    /// `BytesQuota` where nothing more may be written; `StaleHandle`; as any change.
    pub fn prepare_write(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.must_write()?;
        self.ensure_granted(offset, usize::try_from(len).unwrap_or(usize::MAX))
    }

    /// Asks for what is missing to write these bytes.
    pub(crate) fn ensure_granted(&self, offset: u64, len: usize) -> Result<(), Error> {
        self.ensure_granted_at(Place::At, offset, len)
    }

    /// The same; to append, among several servers, the file has to say that it is appended to.
    fn ensure_granted_at(&self, place: Place, offset: u64, len: usize) -> Result<(), Error> {
        let appends = place == Place::End && self.is_among_several();
        let writer = self.writer.as_ref().expect("opened for writing");
        let wanted = self.chunks_of(offset, len);
        while let Some(range) = writer.missing(wanted.clone()) {
            self.await_settled();
            let grant = Grant { inode: self.inode.0, first: range.start, count: range.len() as u32 };
            let op = if appends { Op::GrantAppend(grant) } else { Op::Grant(grant) };
            self.shared.change(self.caller.as_ref(), Durability::Async, op)?;
            writer.add(range);
        }
        Ok(())
    }

    /// Among several servers a settling gives back what it did not see was written: the grant is asked for anew behind it. One server
    /// alone lets nobody write meanwhile.
    fn await_settled(&self) {
        if !self.shared.servers.age().is_alone() {
            self.shared.writers.await_settled(self.inode, self.shared.options.timeout);
        }
    }

    /// True if there is more than one server.
    pub(crate) fn is_among_several(&self) -> bool {
        !self.shared.servers.age().is_alone()
    }

    /// True if these bytes may be written without asking.
    pub(crate) fn is_granted(&self, offset: u64, len: usize) -> bool {
        self.writer.as_ref().is_some_and(|writer| writer.missing(self.chunks_of(offset, len)).is_none())
    }

    pub(crate) fn note_granted(&self, chunks: Range<u32>) {
        if let Some(writer) = &self.writer {
            writer.add(chunks);
        }
    }

    pub(crate) fn note_lost_grant(&self, offset: u64) {
        if let Some(writer) = &self.writer {
            writer.drop_from(self.chunks_of(offset, 1).start);
        }
    }

    pub(crate) fn note_dirty(&self) {
        if let Some(writer) = &self.writer {
            writer.mark_dirty();
        }
    }

    fn chunks_of(&self, offset: u64, len: usize) -> Range<u32> {
        // Beyond the largest file: asked of the last chunk, and refused by the server.
        let index = |at: u64| u32::try_from(at / self.chunk_bytes).map_or(CHUNK_MAX, |index| index.min(CHUNK_MAX));
        let last = offset.saturating_add(len.max(1) as u64 - 1);
        index(offset)..index(last) + 1
    }

    /// Largest write that goes out as one.
    pub(crate) fn piece_bytes_max(&self) -> usize {
        if self.attr.time_plugin.is_empty() { REQUEST_BYTES } else { PAYLOAD_BYTES_MAX as usize }
    }

    /// Largest piece that a long run of bytes is written in: whole records, where all of a file have one size.
    pub fn run_bytes_max(&self, max: usize) -> usize {
        let size =
            self.attr.time_plugin.split(',').find_map(|field| field.strip_prefix("size=")?.parse::<usize>().ok());
        size.map_or(max, |size| max - max % size.clamp(1, max))
    }

    /// True if every write is a record of its own.
    pub fn has_user_time(&self) -> bool {
        !self.attr.time_plugin.is_empty()
    }

    /// Makes everything written to the file, and the metadata that names it, durable.
    ///
    /// # Errors
    /// As any call. What was written before a failure may or may not survive a crash; a later success says nothing of it.
    pub fn sync(&self) -> Result<(), Error> {
        if let Some(writer) = &self.writer
            && writer.take_dirty()
            && let Err(error) = self.settle(Keep::Grant)
        {
            writer.mark_dirty();
            return Err(error);
        }
        let request = Request::Sync(Sync { inode: self.inode.0 });
        match self.shared.query_in_session(self.caller.as_ref(), request)? {
            Reply::Done(_) => Ok(()),
            other => Err(self.shared.unexpected("a barrier", &other)),
        }
    }

    /// Cuts the file at `len` bytes, or extends it with a hole.
    ///
    /// # Errors
    /// `NotOpenFor`; as any call.
    pub fn set_len(&self, len: u64) -> Result<(), Error> {
        self.must_write()?;
        let change =
            SetAttr { target: Target::inode(self.inode), size: Some(len), by_handle: true, ..empty_set_attr() };
        self.shared.change(self.caller.as_ref(), self.durability(), Op::SetAttr(change))?;
        if let Some(writer) = &self.writer {
            // The server dropped the grants above; asking again for the one at the edge costs little.
            writer.drop_from(u32::try_from(len.div_ceil(self.chunk_bytes)).unwrap_or(u32::MAX));
        }
        self.end.store(len, Ordering::Relaxed);
        Ok(())
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
        match self.shared.ask(&self.ask(Request::Seek(seek), Seq(0), &[]), &mut []) {
            Ok((Reply::Seek(found), _)) => Ok(Some(found)),
            Ok((other, _)) => Err(self.shared.unexpected("an offset", &other)),
            Err(Error::Refused(fault)) if fault.reason == Reason::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Closes the file. If it was written to, its length is settled when this returns.
    ///
    /// # Errors
    /// As any call. The file is closed all the same, and nothing that was acknowledged is lost.
    pub fn close(mut self) -> Result<(), Error> {
        match self.release() {
            Some((keep, Wrote::Yes)) => self.settle(keep),
            // Nobody can tell a grant that was never used from one that is gone: it need not be waited for.
            Some((keep, Wrote::No)) if !self.post_settle(keep) => self.settle(keep),
            _ => Ok(()),
        }
    }

    /// As [`File::close`]; but the right to write to a file that nothing was written to, which nobody can tell from one that is gone, is
    /// given back a moment later, together with those of other files: for who calls
    /// [`Client::settle_closed`](crate::Client::settle_closed) all the time.
    ///
    /// # Errors
    /// As [`File::close`], for this file or those that were closed just before it.
    pub fn close_unused_later(mut self) -> Result<(), Error> {
        match self.release() {
            // Others may write to a file of rows only when its writer has settled it.
            Some((keep, Wrote::No)) if !self.has_user_time() && self.shared.servers.age().is_alone() => {
                self.settle_later(keep)
            }
            Some((keep, Wrote::No)) if !self.post_settle(keep) => self.settle(keep),
            Some((keep, Wrote::Yes)) => self.settle(keep),
            _ => Ok(()),
        }
    }

    /// As [`File::close`], later, together with other files closed in the same moment: for who calls
    /// [`Client::settle_closed`](crate::Client::settle_closed) all the time. If it is lost with the connection, the end of
    /// the session settles.
    ///
    /// # Errors
    /// As [`File::close`], for this file or those that were closed just before it.
    pub fn close_later(mut self) -> Result<(), Error> {
        match self.release() {
            // Others may write to a file of rows only when its writer has settled it.
            Some((keep, _)) if !self.has_user_time() && self.shared.is_busy() => self.settle_later(keep),
            Some((keep, _)) if !self.post_settle(keep) => self.settle(keep),
            _ => Ok(()),
        }
    }

    /// Ends this handle's part in writing, once: what is to be settled, if anything.
    fn release(&mut self) -> Option<(Keep, Wrote)> {
        let writer = self.writer.take()?;
        let (is_dirty, holds_any) = (writer.take_dirty(), writer.holds_any());
        let settles = (is_dirty || holds_any) && !self.shared.servers.age().is_alone();
        let keep = if self.shared.writers.release(self.inode, settles) { Keep::Nothing } else { Keep::Grant };
        match (is_dirty, keep) {
            (true, keep) => Some((keep, Wrote::Yes)),
            (false, Keep::Nothing) if holds_any => Some((keep, Wrote::No)),
            _ => None,
        }
    }

    fn settle(&self, keep: Keep) -> Result<(), Error> {
        let op = Op::Settle(self.settling(keep));
        let settled = self.shared.change(self.caller.as_ref(), Durability::Async, op).map(|_| ());
        if keep == Keep::Nothing {
            self.shared.writers.settled([self.inode]);
        }
        settled
    }

    /// Together with other files that are closed now.
    fn settle_later(&self, keep: Keep) -> Result<(), Error> {
        match self.shared.closing.add(self.caller.as_ref(), self.settling(keep)) {
            Some(closed) => self.shared.settle(&closed),
            None => Ok(()),
        }
    }

    /// Without waiting for the answer, where nobody has to.
    fn post_settle(&self, keep: Keep) -> bool {
        self.shared.servers.age().is_alone() && self.shared.post(self.caller.as_ref(), &Op::Settle(self.settling(keep)))
    }

    fn settling(&self, keep: Keep) -> Settle {
        Settle { inode: self.inode.0, keep_grant: keep == Keep::Grant, ..Settle::default() }
    }

    /// Proves the right to read or write.
    pub(crate) fn capability(&self) -> &[u8] {
        &self.capability
    }

    /// On whose behalf it was opened.
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
        if self.writer.is_some() { Ok(()) } else { Err(Error::NotOpenFor { what: "writing" }) }
    }
}

impl Drop for File {
    /// Settles without waiting. If that is lost, the end of the session settles.
    fn drop(&mut self) {
        if let Some((keep, _)) = self.release()
            && !self.post_settle(keep)
            && !self.shared.servers.age().is_alone()
            && let Err(error) = self.settle(keep)
        {
            tracing::debug!("a file is settled at the end of the session: {error}");
        }
        if self.view.at.is_none() {
            self.shared.open_files.remove(self.inode);
        }
    }
}

/// Where a write goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// To its offset.
    At,
    /// To the end of the file as the server knows it.
    End,
}

/// What the session goes on holding after a file is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keep {
    Grant,
    Nothing,
}

/// Whether there is a length to settle or only a grant to give back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrote {
    Yes,
    No,
}

/// True if the server does not know (any more) that the session may write there: another client's truncate took it.
pub(crate) fn is_without_grant(fault: &Fault) -> bool {
    fault.reason == Reason::Busy
}

/// What is logged where bytes may be missing: for programs that tell of it in their own words.
pub const LOSS_LOG: &str = "frieze_client::loss";

/// What a reply to a read must be.
pub(crate) fn expect_read(shared: &Shared, reply: Reply) -> Result<ReadReply, Error> {
    match reply {
        Reply::Read(reply) => Ok(reply),
        other => Err(shared.unexpected("file content", &other)),
    }
}

/// Offsets end at 2^63 - 1, as in POSIX.
pub(crate) fn check_range(offset: u64, len: u64) -> Result<(), Error> {
    match offset.checked_add(len) {
        Some(end) if end <= i64::MAX as u64 => Ok(()),
        _ => Err(Error::OffsetTooLarge { offset, len }),
    }
}

fn empty_set_attr() -> SetAttr {
    SetAttr { target: Target::inode(InodeId(0)), ..SetAttr::default() }
}

/// Bytes of one request of a stream: large enough that the cost of a call is lost in that of its bytes (1 MiB at 5 GB/s
/// is 200 us), small enough that buffers stay in the cache.
pub(crate) const REQUEST_BYTES: usize = 1 << 20;
/// A read of so much is worth an answer that comes while it is read.
const WIDE_BYTES: usize = 256 << 10;
/// Number of the last chunk of the largest file.
const CHUNK_MAX: u32 = u32::MAX - 1;
/// How often a write asks for its grant again before it believes that it may not.
pub(crate) const GRANT_ROUNDS_MAX: usize = 4;
