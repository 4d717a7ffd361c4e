//! Work of the clients: they write, append to and read cells of shared files, create and remove names, and read at
//! instants of the past.

mod final_reads;
mod names;
mod operator;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frieze_base::{ChunkId, Fault, InodeId, NodeId, Reason, Seq};
use frieze_hlc::Hlc;
use frieze_wire::edit::CopyRange;
use frieze_wire::message::{Open, Read, Reply, Request, Sync, TxnReply, View, Write};
use frieze_wire::txn::{Grant, Make, MakeKind, MakeNameless, Op, SetAttr, Target};

use super::client::{ClusterClient, Route};
use super::history::{Cells, CutRecord, FileInfo, History, ReadRecord, SyncRecord, TogetherRecord, Value, WriteRecord};
use crate::violation::{Rule, broken};

/// Bytes of a cell.
pub(super) const CELL_BYTES: u64 = 64;
/// Cells of a chunk that are used: some at its beginning, one at its end.
pub(super) const CELLS_PER_CHUNK: u64 = 4;
pub(super) const CHUNK_BYTES: u64 = 64 << 10;
/// Cells of a file, on chunks of all chains.
pub(super) const CELLS: u64 = 3 * CELLS_PER_CHUNK;
pub(super) const FILES: usize = 4;
/// The last of them is cut now and then.
pub(super) const CUT: usize = FILES - 1;
pub(super) const LOGS: usize = 1;

/// Where a cell lies in its file.
pub(super) fn offset_of(cell: u64) -> u64 {
    let (chunk, slot) = (cell / CELLS_PER_CHUNK, cell % CELLS_PER_CHUNK);
    let within = if slot + 1 == CELLS_PER_CHUNK { CHUNK_BYTES - CELL_BYTES } else { slot * CELL_BYTES };
    chunk * CHUNK_BYTES + within
}

/// The chunk that a cell lies in.
pub(super) fn chunk_of(cell: u64) -> u32 {
    (cell / CELLS_PER_CHUNK) as u32
}

/// How often each thing is done.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClusterMix {
    pub(super) write: u64,
    pub(super) read: u64,
    pub(super) past: u64,
    pub(super) append: u64,
    pub(super) sync: u64,
    pub(super) names: u64,
    pub(super) cut: u64,
    pub(super) leave: u64,
    pub(super) together: u64,
    /// Atomic multi-writes are replaced by single writes.
    pub(super) is_apart: bool,
    /// Of writes, one in so many is `sync`.
    pub(super) sync_one_in: u64,
    /// Pause between two operations, at most.
    pub(super) think_us: u64,
}

pub(super) struct Worker {
    pub(super) client: ClusterClient,
    pub(super) history: Arc<Mutex<History>>,
    pub(super) mix: ClusterMix,
    /// The right to read and write a file, of this session.
    capabilities: BTreeMap<u64, Vec<u8>>,
    pub(super) granted: BTreeSet<(u64, u32)>,
    /// Where files that it appends to ended when it looked last.
    pub(super) ends: BTreeMap<u64, u64>,
}

impl Worker {
    pub(super) fn new(client: ClusterClient, history: Arc<Mutex<History>>, mix: ClusterMix) -> Worker {
        let (capabilities, granted, ends) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        Worker { client, history, mix, capabilities, granted, ends }
    }

    pub(super) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything that a client does, from its first session on.
    pub(super) fn live(mut self) {
        let lived = self.begin().and_then(|()| {
            self.client.may_vanish = true;
            while !self.client.port().calm {
                let done = self.one_thing();
                if self.client.take_vanished() {
                    self.capabilities.clear();
                    self.granted.clear();
                    while let Err(fault) = self.client.open_session() {
                        if !self.client.take_vanished() {
                            return Err(fault);
                        }
                    }
                } else {
                    done?;
                }
                self.history().operations += 1;
                let think = self.client.rng.below(self.mix.think_us.max(1));
                self.client.pause(think);
            }
            Ok(())
        });
        if let Err(fault) = lived {
            let doing = self.client.port().doing.clone();
            let what = format!("client {} was refused: {:?}: {fault} ({doing})", self.client.index, fault.reason);
            self.history().note::<()>(broken(Rule::PromisedErrors, what));
        }
        self.client.port().doing.clear();
    }

    fn begin(&mut self) -> Result<(), Fault> {
        self.client.open_session()?;
        if self.client.index > 0 {
            while !self.history().ready {
                self.client.pause(20_000);
            }
            return Ok(());
        }
        let mut made = Vec::new();
        for number in 0..FILES + LOGS {
            let path = if number < FILES { format!("/cells{number}") } else { format!("/log{}", number - FILES) };
            let make = Make {
                target: Target::path(path.as_str()),
                mode: 0o644,
                or_open: false,
                kind: Some(MakeKind::File(true)),
                ..Make::default()
            };
            let reply = self.make(make)?;
            made.push(FileInfo { path, inode: reply.id });
        }
        let make = Make {
            target: Target::path("/names"),
            mode: 0o755,
            or_open: false,
            kind: Some(MakeKind::Directory(true)),
            ..Make::default()
        };
        let reply = self.make(make)?;
        let mut history = self.history();
        history.logs = made.split_off(FILES);
        history.files = made;
        history.born = Hlc(reply.stamp);
        history.ready = true;
        Ok(())
    }

    /// Creates a file or directory that all clients use. A session that was cut off for too long has ended, and whether
    /// it created the file is unknown: another one checks.
    fn make(&mut self, mut make: Make) -> Result<TxnReply, Fault> {
        loop {
            let answer = self.client.change(Op::Make(make.clone()), true);
            match answer {
                Err(fault) if fault.reason == Reason::UnknownSession => self.client.open_session()?,
                // Only its stamp is needed, and all stamps that this client has received are newer.
                Err(fault) if fault.reason == Reason::Exists && make.or_open => {
                    return Ok(TxnReply { stamp: self.client.newest.0, ..TxnReply::default() });
                }
                answer => return answer,
            }
            make.or_open = true;
        }
    }

    fn one_thing(&mut self) -> Result<(), Fault> {
        let ClusterMix { write, read, past, append, sync, names, cut, leave, together, .. } = self.mix;
        let kinds =
            [(write, 0), (read, 1), (past, 2), (append, 3), (sync, 4), (names, 5), (cut, 6), (leave, 7), (together, 8)];
        let mut drawn = self.client.rng.below(kinds.iter().map(|(weight, _)| weight).sum());
        for (weight, kind) in kinds {
            if drawn < weight {
                return match kind {
                    0 => self.write(),
                    1 => self.read(),
                    2 => self.read_past(),
                    3 => self.append(),
                    4 => self.sync(),
                    6 => self.cut(),
                    7 => self.client.leave(),
                    8 => self.write_together(),
                    _ => self.change_names(),
                };
            }
            drawn -= weight;
        }
        Ok(())
    }

    fn some_cells(&mut self) -> Cells {
        let rng = &mut self.client.rng;
        let file = rng.below(FILES as u64) as usize;
        // Some are hot, so that clients meet there.
        let first = if rng.chance(2) { rng.below(2) * CELLS_PER_CHUNK } else { rng.below(CELLS) };
        let slot = first % CELLS_PER_CHUNK;
        // Those at the beginning of a chunk lie side by side.
        let room = if slot + 1 < CELLS_PER_CHUNK { CELLS_PER_CHUNK - 1 - slot } else { 1 };
        Cells { file, first, count: rng.between(1, room) }
    }

    pub(super) fn capability(&mut self, inode: u64, path: &str) -> Result<Vec<u8>, Fault> {
        if let Some(known) = self.capabilities.get(&inode) {
            return Ok(known.clone());
        }
        let open = Open { target: Target::path(path), view: View::default(), read: true, write: true, made_at: 0 };
        let (reply, ..) = self.client.call(Route::Lead, &Request::Open(open), &[], Seq(0))?;
        let Reply::Open(reply) = reply else { return Err(Reason::BadFrame.into()) };
        self.capabilities.insert(inode, reply.capability.clone());
        Ok(reply.capability)
    }

    fn grant(&mut self, inode: u64, chunk: u32) -> Result<(), Fault> {
        if self.granted.contains(&(inode, chunk)) {
            return Ok(());
        }
        self.client.change(Op::Grant(Grant { inode, first: chunk, count: 1 }), false)?;
        self.granted.insert((inode, chunk));
        Ok(())
    }

    pub(super) fn file(&self, number: usize) -> FileInfo {
        self.history().files[number].clone()
    }

    fn write(&mut self) -> Result<(), Fault> {
        let cells = self.some_cells();
        let FileInfo { path, inode } = self.file(cells.file);
        let capability = self.capability(inode, &path)?;
        let chunk = chunk_of(cells.first);
        self.grant(inode, chunk)?;
        let sync = self.client.rng.chance(self.mix.sync_one_in);
        let value = self.history().fresh_value();
        let record = WriteRecord {
            cells,
            value,
            client: self.client.identity(),
            invoked_us: self.client.now_us(),
            newest_before: self.client.newest,
            done: None,
            sync,
        };
        let place = {
            let mut history = self.history();
            history.writes.push(record);
            history.writes.len() - 1
        };
        let payload = value.to_le_bytes().repeat((cells.count * CELL_BYTES / 8) as usize);
        let offset = offset_of(cells.first);
        let reply = self.put(inode, chunk, &capability, offset, &payload, sync)?;
        let done = (self.client.now_us(), Hlc(reply.0));
        let mut history = self.history();
        history.writes[place].done = Some(done);
        history.instants.push(done.1);
        history.instants.push(done.1.previous());
        Ok(())
    }

    /// Writes to several places at once: the bytes wait in a file without a name, and one change shows them.
    fn write_together(&mut self) -> Result<(), Fault> {
        let mut parts: Vec<Cells> = Vec::new();
        for _ in 0..self.client.rng.between(2, 4) {
            let cells = self.some_cells();
            let place = |cells: &Cells| (cells.file, chunk_of(cells.first));
            if cells.file != CUT && parts.iter().all(|part| place(part) != place(&cells)) {
                parts.push(cells);
            }
        }
        if parts.is_empty() {
            return Ok(());
        }
        let beside = self.file(parts[0].file).inode;
        let waiting = self.client.change(Op::MakeNameless(MakeNameless { beside }), false)?;
        let (stamp, begun_us) = (Hlc(waiting.stamp), self.client.now_us());
        match self.write_from(waiting, parts) {
            // The only machine that had the waiting bytes was lost for good: there is nothing to show.
            Err(fault)
                if fault.reason == Reason::InvalidArgument
                    && self.history().ruined.iter().any(|ruined_us| *ruined_us > begun_us) =>
            {
                Ok(())
            }
            Err(fault) if fault.reason == Reason::StaleHandle => {
                let what = format!("the file of bytes that wait, made at {stamp}, does not exist: {fault}");
                self.history().doubt(stamp, Rule::PromisedErrors, what);
                Ok(())
            }
            written => written,
        }
    }

    /// Writes the parts from a file without a name.
    fn write_from(&mut self, waiting: TxnReply, parts: Vec<Cells>) -> Result<(), Fault> {
        let value = self.history().fresh_value();
        let mut ranges = Vec::new();
        for (chunk, cells) in (0..).zip(&parts) {
            let FileInfo { path, inode } = self.file(cells.file);
            let target = self.capability(inode, &path)?;
            self.grant(waiting.id, chunk)?;
            let len = cells.count * CELL_BYTES;
            let payload = value.to_le_bytes().repeat((len / 8) as usize);
            let source_offset = u64::from(chunk) * CHUNK_BYTES;
            // The waiting bytes are on stable storage before the change is requested.
            self.put(waiting.id, chunk, &waiting.capability, source_offset, &payload, true)?;
            let (source, target_offset) = (waiting.capability.clone(), offset_of(cells.first));
            ranges.push(CopyRange { source, source_offset, target, target_offset, len, also: Vec::new() });
        }
        let (newest_before, client, invoked_us) = (self.client.newest, self.client.identity(), self.client.now_us());
        // The bytes are on stable storage; the change may be lost with names.
        let (done, sync) = (None, true);
        let record =
            |cells: &Cells| WriteRecord { cells: *cells, value, client, invoked_us, newest_before, done, sync };
        let (place, number) = {
            let mut history = self.history();
            let place = history.writes.len();
            history.writes.extend(parts.iter().map(record));
            history.together.push(TogetherRecord { value, parts: parts.clone(), newest_before, is_done: false });
            (place, history.together.len() - 1)
        };
        if !self.mix.is_apart {
            let also = ranges.split_off(1);
            ranges[0].also = also;
        }
        let mut stamp = Hlc::ZERO;
        for range in ranges {
            let seq = self.client.number();
            let (reply, ..) = self.client.call(Route::Lead, &Request::CopyRange(range), &[], seq)?;
            let Reply::Edited(reply) = reply else { return Err(Reason::BadFrame.into()) };
            stamp = Hlc(reply.stamp);
        }
        let done = Some((self.client.now_us(), stamp));
        {
            let mut history = self.history();
            history.writes[place..place + parts.len()].iter_mut().for_each(|write| write.done = done);
            history.together[number].is_done = true;
            history.instants.extend([stamp, stamp.previous()]);
        }
        if self.client.rng.chance(2) {
            let at = if self.client.rng.chance(2) { stamp } else { stamp.previous() };
            for cells in parts {
                let node = self.client.any_node();
                self.read_at(cells, at, node)?;
            }
        }
        Ok(())
    }

    /// Writes. Returns stamp and offset.
    fn put(
        &mut self,
        inode: u64,
        chunk: u32,
        capability: &[u8],
        offset: u64,
        payload: &[u8],
        sync: bool,
    ) -> Result<(u64, u64), Fault> {
        let write = Write {
            capability: capability.to_vec(),
            offset,
            append: false,
            durability: sync.into(),
            ..Write::default()
        };
        let request = Request::Write(write);
        let route = Route::Write(ChunkId { inode: InodeId(inode), index: chunk });
        loop {
            // A refused write has not happened: the next attempt is another request.
            let seq = self.client.number();
            match self.client.call(route, &request, payload, seq) {
                Ok((Reply::Write(reply), ..)) => return Ok((reply.stamp, reply.offset)),
                Ok(_) => return Err(Reason::BadFrame.into()),
                // The grant is not known there any more.
                Err(fault) if fault.reason == Reason::Busy => {
                    self.granted.remove(&(inode, chunk));
                    self.grant(inode, chunk)?;
                }
                Err(fault) => return Err(fault),
            }
        }
    }

    /// Reads bytes, with zeros beyond the end.
    pub(super) fn bytes(
        &mut self,
        route: Route,
        capability: &[u8],
        offset: u64,
        len: u64,
    ) -> Result<(Vec<u8>, NodeId, bool), Fault> {
        let read =
            Read { capability: capability.to_vec(), offset, len: len as u32, in_steps: false, ..Read::default() };
        let (reply, mut payload, node) = self.client.call(route, &Request::Read(read), &[], Seq(0))?;
        let Reply::Read(reply) = reply else { return Err(Reason::BadFrame.into()) };
        payload.resize(len as usize, 0);
        // In reads of the past without a lease, that server does not know what was found missing since.
        Ok((payload, node, reply.answered.incomplete || reply.answered.without_lease))
    }

    /// The values in the cells; a cell that holds pieces of two is not one that was ever written.
    pub(super) fn values(&mut self, cells: Cells, payload: &[u8], node: NodeId) -> Option<Vec<Value>> {
        let mut values = Vec::new();
        for (cell, bytes) in cells.each().zip(payload.chunks(CELL_BYTES as usize)) {
            let mut words = bytes.chunks(8).map(|word| Value::from_le_bytes(word.try_into().unwrap_or_default()));
            let first = words.next().unwrap_or(0);
            if words.any(|word| word != first) {
                let what = format!("{node} says that cell {cell:?} holds pieces of several writes: {bytes:02x?}");
                self.history().note::<()>(broken(Rule::Whole, what));
                return None;
            }
            values.push(first);
        }
        Some(values)
    }

    fn read(&mut self) -> Result<(), Fault> {
        if self.client.rng.chance(5) {
            return self.read_log(None);
        }
        let cells = self.some_cells();
        let FileInfo { path, inode } = self.file(cells.file);
        let capability = self.capability(inode, &path)?;
        let chunk = ChunkId { inode: InodeId(inode), index: chunk_of(cells.first) };
        let route = if self.client.rng.chance(3) { Route::Read(chunk) } else { Route::At(self.client.any_node()) };
        let invoked_us = self.client.now_us();
        let len = cells.count * CELL_BYTES;
        let read = self.bytes(route, &capability, offset_of(cells.first), len)?;
        self.note_read(cells, invoked_us, read);
        Ok(())
    }

    /// Records a read of now. False if it is impossible.
    fn note_read(
        &mut self,
        cells: Cells,
        invoked_us: u64,
        (payload, node, incomplete): (Vec<u8>, NodeId, bool),
    ) -> bool {
        let Some(values) = self.values(cells, &payload, node) else { return false };
        let (done_us, client) = (self.client.now_us(), self.client.identity());
        self.history().reads.push(ReadRecord { cells, values, invoked_us, done_us, node, client, incomplete });
        true
    }

    fn some_instant(&mut self) -> Hlc {
        let newest = self.client.newest;
        let rng = &mut self.client.rng;
        let draw = rng.next();
        let recent = rng.chance(2);
        let past = rng.chance(4);
        let history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        if past || history.instants.is_empty() {
            return newest;
        }
        let count = history.instants.len() as u64;
        let reach = if recent { count.min(8) } else { count };
        history.instants[(count - 1 - draw % reach) as usize]
    }

    fn read_past(&mut self) -> Result<(), Fault> {
        // Before there was anything there is nothing to compare.
        let at = self.some_instant().max(self.history().born);
        let node = self.client.any_node();
        if self.client.rng.chance(4) {
            return self.list_at(at, node);
        }
        if self.client.rng.chance(4) {
            return self.read_log(Some(at));
        }
        let cells = self.some_cells();
        self.read_at(cells, at, node).map(drop)
    }

    /// Reads cells at an instant, and remembers the result. False if the instant is in the future of the asked node.
    pub(super) fn read_at(&mut self, cells: Cells, at: Hlc, node: NodeId) -> Result<bool, Fault> {
        let FileInfo { path, .. } = self.file(cells.file);
        let view = View { at: Some(at.0), user_at: None };
        let open = Open { target: Target::path(path), view, read: true, write: false, made_at: 0 };
        let opened = match self.client.call(Route::At(node), &Request::Open(open), &[], Seq(0)) {
            Ok((Reply::Open(reply), ..)) => reply,
            Ok(_) => return Err(Reason::BadFrame.into()),
            // Its clock is behind that of the node that stamped it.
            Err(fault) if fault.reason == Reason::Future => return Ok(false),
            Err(fault) => return Err(fault),
        };
        let len = cells.count * CELL_BYTES;
        // Not always at the same server.
        let node = if self.client.rng.chance(2) { self.client.any_node() } else { node };
        let (payload, node, incomplete) =
            match self.bytes(Route::At(node), &opened.capability, offset_of(cells.first), len) {
                Err(fault) if fault.reason == Reason::Future => return Ok(false),
                read => read?,
            };
        if let Some(values) = self.values(cells, &payload, node)
            && !incomplete
        {
            self.history().remember_cells(cells, at, &values, node);
        }
        Ok(true)
    }

    /// Cuts a file at the beginning of a cell.
    fn cut(&mut self) -> Result<(), Fault> {
        let cell = self.client.rng.below(CELLS);
        let FileInfo { path, .. } = self.file(CUT);
        let asked = Op::SetAttr(SetAttr {
            target: Target::path(path),
            mode: None,
            uid: None,
            gid: None,
            size: Some(offset_of(cell)),
            atime: None,
            mtime: None,
            by_handle: false,
            settled: None,
            extend: false,
            times_anew: false,
        });
        let record =
            CutRecord { cell, invoked_us: self.client.now_us(), newest_before: self.client.newest, done: None };
        let place = {
            let mut history = self.history();
            history.cuts.push(record);
            history.cuts.len() - 1
        };
        let reply = self.client.change(asked, false)?;
        let done_us = self.client.now_us();
        let mut history = self.history();
        history.cuts[place].done = Some((done_us, Hlc(reply.stamp)));
        history.instants.push(Hlc(reply.stamp));
        history.instants.push(Hlc(reply.stamp).previous());
        Ok(())
    }

    /// Everything acknowledged so far to this session, and to all others, survives from now on.
    fn sync(&mut self) -> Result<(), Fault> {
        let file = self.client.rng.below(FILES as u64) as usize;
        let FileInfo { inode, .. } = self.file(file);
        let invoked_us = self.client.now_us();
        self.client.call(Route::Lead, &Request::Sync(Sync { inode }), &[], Seq(0))?;
        let (done_us, client) = (self.client.now_us(), self.client.identity());
        self.history().syncs.push(SyncRecord { file, client, invoked_us, done_us });
        Ok(())
    }
}
